# One vLLM release over the image of what several share (cpu.Dockerfile). `runner env build --engine docker` builds it and
# makes the context:
#   held.txt, packages.txt   the packages to lay over it, those that are held to a hash and the others
#   wheels/                  their wheels, downloaded on the host
#   plugin/, check.py        our vLLM platform, and the check that all of it imports
ARG BASE_IMAGE

FROM ${BASE_IMAGE} AS build
ARG BUILD_ID
ARG EXPECTED
# By this label the runner finds the stage, and removes it: it holds the wheels and a second copy of the release.
LABEL attnmatrix.stage=${BUILD_ID}
USER 0:0
COPY . /context
# A venv of its own, with the shared one behind it, as runner/environments/layers.py makes them on a machine: so the
# layer holds what it adds and no more, also where a package replaces a shared one.
RUN python3 -m venv --without-pip /opt/vllm && \
    over="pip --python /opt/vllm/bin/python install --no-index --find-links /context/wheels --no-deps --no-compile \
        --no-cache-dir --disable-pip-version-check --quiet" && \
    $over --require-hashes --requirement /context/held.txt && \
    $over --requirement /context/packages.txt && \
    echo "import site; site.addsitedir('$(echo /opt/env/lib/python3*/site-packages)')" \
        > "$(echo /opt/vllm/lib/python3*/site-packages)/attnmatrix_over.pth" && \
    /opt/vllm/bin/python -m pip install --no-index --no-build-isolation --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --quiet /context/plugin
# The check comes last, so that what does not import never becomes an image. It also leaves the bytecode of all that it
# imports, which cells, as nobody on a read-only root, could not keep: that of shared packages too, hence one folder.
RUN HOME=/tmp/check /opt/vllm/bin/python -I -X pycache_prefix=/opt/vllm/bytecode /context/check.py ${EXPECTED} \
        > /opt/vllm/versions.json

FROM ${BASE_IMAGE}
COPY --from=build /opt/vllm /opt/vllm
ENV PATH=/opt/vllm/bin:$PATH PYTHONPYCACHEPREFIX=/opt/vllm/bytecode
USER 65534:65534
