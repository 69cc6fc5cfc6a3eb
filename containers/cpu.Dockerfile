# The environment of one vLLM release on a CPU. `runner env build --engine docker` builds it and makes the context:
#   lock.txt, wheels/   the lock, and every wheel that it names
#   plugin/, check.py   our vLLM platform, and the check that all of it imports
#
# The wheels are downloaded on the host, by the host's pip: whatever that needs (index settings, credentials, proxy,
# certificates, a folder of local wheels) stays on the host and never reaches the daemon, not even a build stage.
ARG BASE_IMAGE

FROM ${BASE_IMAGE} AS system
# vLLM's compiled code wants libnuma. The base image of make-base.sh has it, and then nothing here uses a network.
RUN ldconfig -p | grep -q libnuma.so.1 || \
    { apt-get update && apt-get install --yes --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/*; }
ENV PATH=/opt/env/bin:$PATH LANG=C.UTF-8

FROM system AS build
ARG BUILD_ID
# By this label the runner finds the stage, and removes it: it holds the wheels and a second copy of the environment.
LABEL attnmatrix.stage=${BUILD_ID}
COPY . /context
RUN python3 -m venv /opt/env && \
    pip install --no-index --find-links /context/wheels --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --quiet --requirement /context/lock.txt && \
    pip install --no-index --no-build-isolation --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --quiet /context/plugin
# The check comes last, so that an environment that does not import never becomes an image. It also leaves the bytecode
# of what it imports, which cells, as nobody on a read-only root, could not keep; other caches stay out.
RUN HOME=/tmp/check python -I /context/check.py > /opt/env/versions.json

FROM system
COPY --from=build /opt/env /opt/env
USER 65534:65534
