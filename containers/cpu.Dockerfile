# What a lock names, on a CPU: what several vLLM releases share. overlay.Dockerfile lays each of them over it.
# `runner env build --engine docker` builds it and makes the context:
#   lock.txt, wheels/   the lock, and every wheel that it names
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
# --require-hashes where the lock has hashes: the wheels are looked at once more where they are installed.
ARG CHECKED
# By this label the runner finds the stage, and removes it: it holds the wheels and a second copy of the environment.
LABEL attnmatrix.stage=${BUILD_ID}
COPY . /context
RUN python3 -m venv /opt/env && \
    pip install --no-index --find-links /context/wheels --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --quiet ${CHECKED} --requirement /context/lock.txt

FROM system
COPY --from=build /opt/env /opt/env
USER 65534:65534
