# The environment of one vLLM release on a GPU: an image that has vLLM for CUDA already, such as the one images.lock
# names, with what the cases need besides. Needs the NVIDIA container toolkit on the host, and a network to build:
#   docker build -f containers/cuda.Dockerfile --build-arg BASE_IMAGE="$(runner env base cuda)" -t attnmatrix-cuda:0.32.0 .
# It has not been built or run where this project's own tests run, which is on machines without a GPU or a registry.
ARG BASE_IMAGE

FROM ${BASE_IMAGE}
# By this label results say on which base they rest, where it was named by its digest: `runner env base cuda` prints it.
ARG BASE_IMAGE
LABEL attnmatrix.base=${BASE_IMAGE}
# The vendor's image brings torch, vLLM and FlashInfer that fit each other: pip may add to them, not change them.
RUN python3 -m pip list --format=freeze > /tmp/constraints.txt && \
    python3 -m pip install --no-cache-dir --constraint /tmp/constraints.txt pytest pytest-xdist hypothesis hatchling && \
    rm /tmp/constraints.txt
COPY plugin /tmp/plugin
RUN python3 -m pip install --no-cache-dir --no-deps --no-build-isolation /tmp/plugin && rm -r /tmp/plugin
# With this the plugin leaves the device alone: what the cells see is the real GPU.
ENV ATTNMATRIX_EVIDENCE=device VLLM_PLUGINS=attnmatrix
ENTRYPOINT []
USER 65534:65534
