#!/usr/bin/env bash
# Prints the setting of pip for PyTorch's CPU wheels, as a line of GITHUB_ENV: INDEX, what is set already, or what
# .github/pip-index says. A pull request of a fork has no variables of the repository, but it has that file.
set -euo pipefail
project=${1:-.}
index=${INDEX:-${PIP_EXTRA_INDEX_URL:-}}

if [[ -z "$index" && -r "$project/.github/pip-index" ]]; then
    index=$(grep --extended-regexp --max-count=1 '^https?://' "$project/.github/pip-index" || true)
fi
if [[ -z "$index" ]]; then
    [[ -n "${PIP_FIND_LINKS:-}" ]] || echo "PyTorch's CPU wheels: no index of them is named. Where an environment cannot" \
        "be built because of that, write its address as one line into .github/pip-index and commit it, or give it to" \
        "the action as its input 'index'" >&2
elif [[ "$index" =~ ^https?://[^[:space:]]+$ ]]; then
    echo "PIP_EXTRA_INDEX_URL=$index"
else
    echo "::error title=PyTorch's CPU wheels::the index is no address of one line: correct the input 'index'," \
        "PIP_EXTRA_INDEX_URL or .github/pip-index" >&2
    exit 2
fi
