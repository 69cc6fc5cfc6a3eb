#!/usr/bin/env bash
# Installs the runner of this checkout for the steps that follow, in an environment of its own, from its lock alone.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "${PROJECT:-$here/../../..}" && pwd)
lock=$project/.github/locks/runner.txt
place=$RUNNER_TEMP/attnmatrix

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "::error title=Python::3.11 or newer is needed as python3: use actions/setup-python before this"
    exit 3
}
"$here/index.sh" "$project" >>"$GITHUB_ENV"
python3 -m venv --clear "$place"
pip=("$place/bin/python" -m pip install --quiet --disable-pip-version-check)
# The lock names every package by the hashes of its files. pip refuses a file that has another hash, and a package that
# another one needs and the lock does not name. So nothing is resolved, and the project itself takes nothing from an index.
if ! "${pip[@]}" --require-hashes --only-binary=:all: --requirement "$lock" ||
    ! "${pip[@]}" --no-index --no-deps --no-build-isolation "$project"; then
    echo "::error title=Packages::what $lock names could not be installed as it says: see pip's message above. Where a" \
        "hash does not match, the index gave another file than the one that was locked: do not use it. Where a package" \
        "is not in the lock, write the lock anew with 'make lock' and commit it"
    exit 3
fi
echo "$place/bin" >>"$GITHUB_PATH"
