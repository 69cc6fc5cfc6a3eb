#!/usr/bin/env bash
# From a machine with a GPU, its driver, Python 3.11 or newer and a package index, to a run directory with evidence
# `device`, which is told apart from all other evidence and can be shown beside it (`runner overflows RUN...`):
#   containers/on-a-gpu.sh [--vllm RELEASE] [RUNNER OPTIONS]      such as --vllm 0.32.0 --filter forward,small
# No Docker: cells run as processes of this user, without the walls of a container. Made to be run again: what is there
# is kept. Without options it runs the cells of this GPU's arch.
set -euo pipefail
cd "$(dirname "$0")/.."

release=0.32.0
if [[ "${1:-}" == --vllm ]]; then
    release=${2:?"--vllm wants a release, such as 0.32.0"}
    shift 2
fi
python=${PYTHON:-python3}

stop() { echo "on-a-gpu.sh: $1" >&2; exit 3; }

command -v nvidia-smi >/dev/null || stop "no nvidia-smi on the PATH: install the NVIDIA driver first"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1) || stop "nvidia-smi does not answer: $capability"
arch=sm${capability//[!0-9]/}
[[ "$arch" =~ ^sm[0-9]{2,3}$ ]] || stop "nvidia-smi gives no compute capability, but '$capability'"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "Python 3.11 or newer is needed: set PYTHON"

make --quiet PYTHON="$python" .venv/installed

if [[ -z "${ATTNMATRIX_CUDA_PYTHON:-}" ]]; then
    place=$PWD/.runner/cuda/vllm-$release
    export ATTNMATRIX_CUDA_PYTHON=$place/bin/python
    if [[ ! -e "$place/checked" ]]; then
        echo "on-a-gpu.sh: installing vLLM $release for CUDA into $place" >&2
        "$python" -m venv --clear "$place"
        "$ATTNMATRIX_CUDA_PYTHON" -m pip install --quiet --disable-pip-version-check "vllm==$release" \
            pytest pytest-xdist hypothesis
        # FlashInfer's compiled kernels, as a package: nothing is compiled or downloaded later. Not every version has one.
        flashinfer=$("$ATTNMATRIX_CUDA_PYTHON" -m pip show flashinfer-python | sed -n 's/^Version: //p')
        "$ATTNMATRIX_CUDA_PYTHON" -m pip install --quiet --disable-pip-version-check "flashinfer-cubin==$flashinfer" ||
            echo "on-a-gpu.sh: no flashinfer-cubin $flashinfer is to be had: FlashInfer compiles what it needs, for which" \
                "nvcc of a CUDA toolkit must be on the PATH; without it vLLM takes no FlashInfer" >&2
        "$ATTNMATRIX_CUDA_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps ./plugin
        ATTNMATRIX_EVIDENCE=device "$ATTNMATRIX_CUDA_PYTHON" containers/check.py "$release"
        touch "$place/checked"
    fi
fi

exec .venv/bin/runner --engine local --filter "$arch" --filter "vllm=$release" "$@"
