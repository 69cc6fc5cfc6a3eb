#!/usr/bin/env bash
# Installs the runner of this checkout for the steps that follow, in an environment of its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "${PROJECT:-$here/../../..}" && pwd)
place=$RUNNER_TEMP/attnmatrix

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "::error title=Python::3.11 or newer is needed as python3: use actions/setup-python before this"
    exit 3
}
# vLLM's compiled CPU code is linked against libnuma; a machine of one's own is not changed.
if [[ "${RUNNER_ENVIRONMENT:-}" == github-hosted ]] && [[ "$(ldconfig -p)" != *libnuma.so.1* ]]; then
    sudo apt-get update --quiet --quiet
    sudo apt-get install --yes --quiet --quiet --no-install-recommends libnuma1
fi
"$here/index.sh" "$project" >>"$GITHUB_ENV"
python3 -m venv --clear "$place"
"$place/bin/python" -m pip install --quiet --disable-pip-version-check "$project"
echo "$place/bin" >>"$GITHUB_PATH"
