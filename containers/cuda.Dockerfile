# What a lock names, for machines with GPUs: torch for CUDA, FlashInfer, and the compiler that FlashInfer and Triton start
# when a cell runs. overlay.Dockerfile lays vLLM's CUDA wheel over it, and candidate.Dockerfile a candidate over that.
# `runner env build 0.32.0 --cuda` builds all of it, and makes the context; no GPU is needed for that:
#   lock.txt, wheels/   the lock, and every wheel that it names, downloaded on the host (see cpu.Dockerfile for why)
ARG BASE_IMAGE

FROM ${BASE_IMAGE} AS system
# The base image of make-base.sh --cuda has all three, and then nothing here uses a network.
RUN { ldconfig -p | grep -q libnuma.so.1 && command -v g++ && ls "$(python3 -c \
        'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; } > /dev/null || \
    { apt-get update && apt-get install --yes --no-install-recommends libnuma1 g++ python3-dev && \
      rm -rf /var/lib/apt/lists/*; }
# The driver comes from the host: NVIDIA's container toolkit mounts what NVIDIA_DRIVER_CAPABILITIES names, and no GPU but
# the one that was leased. MAX_JOBS: as many compilers at once as fit into the memory of a cell, on however many cores.
ENV PATH=/opt/env/bin:/opt/env/cuda/bin:$PATH LANG=C.UTF-8 CUDA_HOME=/opt/env/cuda MAX_JOBS=3 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM system AS build
ARG BUILD_ID
# By this label the runner finds the stage, and removes it: it holds the wheels and a second copy of the environment.
LABEL attnmatrix.stage=${BUILD_ID}
COPY . /context
RUN python3 -m venv /opt/env && \
    pip install --no-index --find-links /context/wheels --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --quiet --requirement /context/lock.txt
# NVIDIA's wheels make one folder together, nvidia/cu13, which is a CUDA toolkit but for names that a linker looks for:
# lib64, libraries without a version, and the driver's, for which an empty one serves until the host mounts its own.
RUN cd /opt/env && ln -s lib/python3*/site-packages/nvidia/cu13 cuda && cd cuda && ln -s lib lib64 && \
    for library in lib/*.so.*; do ln -s "${library#lib/}" "${library%%.so.*}.so" || exit 1; done && \
    mkdir lib/stubs && echo | gcc -shared -Wl,-soname,libcuda.so.1 -x c -o lib/stubs/libcuda.so -
# Last, so that what cannot compile for a GPU never becomes an image.
RUN cd /tmp && printf '#include <cuda_runtime.h>\n#include <cub/cub.cuh>\n__global__ void kernel() {}\n' > check.cu && \
    nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC check.cu -lcuda -lcudart \
        -L"$CUDA_HOME/lib64" -L"$CUDA_HOME/lib64/stubs" -o check.so

FROM system
COPY --from=build /opt/env /opt/env
USER 65534:65534
