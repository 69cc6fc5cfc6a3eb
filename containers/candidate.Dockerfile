# A candidate over the image of its release (overlay.Dockerfile). The runner makes the context:
#   files/, gone.txt   what the candidate replaces of /opt/vllm, and what it removes, by lines
#   check.py           the check that all of it imports
ARG BASE_IMAGE

FROM ${BASE_IMAGE}
ARG EXPECTED
USER 0:0
COPY . /context
# The bytecode of what was replaced is made anew by the check: it keeps the time and size of its source.
RUN if [ -d /context/files ]; then cp -R /context/files/. /opt/vllm/; fi && \
    (cd /opt/vllm && xargs -r -d '\n' rm -f < /context/gone.txt) && \
    HOME=/tmp/check python3 -I -X pycache_prefix=/opt/vllm/bytecode /context/check.py ${EXPECTED} \
        > /opt/vllm/versions.json && \
    rm -rf /context /tmp/check
USER 65534:65534
