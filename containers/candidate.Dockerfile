# A candidate over the image of its release (overlay.Dockerfile). The runner makes the context:
#   files/, gone.txt   what the candidate replaces of /opt/vllm, and what it removes, by lines
#   written.txt        the Python sources among what it replaces, by lines
ARG BASE_IMAGE

FROM ${BASE_IMAGE}
USER 0:0
COPY . /context
# Folders that are empty then go too: Python would take them for packages. Nothing is imported here: the release was, and
# what the candidate breaks is what the cells are to find. What is replaced gets its bytecode, where it can be compiled.
RUN (cd /opt/vllm && xargs -r -d '\n' rm -f < /context/gone.txt) && \
    find /opt/vllm/lib/python3*/site-packages/vllm -type d -empty -delete && \
    if [ -d /context/files ]; then cp -R /context/files/. /opt/vllm/; fi && \
    if [ -s /context/written.txt ]; then \
        python3 -I -X pycache_prefix=/opt/vllm/bytecode -m compileall -q -j0 -i /context/written.txt || true; \
    fi && \
    rm -rf /context
USER 65534:65534
