# The image of amdgpu-exporter: non-root, made for a read-only root, needs no shell when it runs.
#
#   docker build -t amdgpu-exporter .                                  ROCm, where wanted, is mounted from the host
#   docker build -t amdgpu-exporter:rocm --build-arg BASE=IMAGE .      IMAGE brings ROCm (and python3 >= 3.11)
#   docker build ... --build-arg ROCM=IMAGE .                          IMAGE has ROCm's compiler: the helper that
#                                                                      reads device counters is built with it
# Name your own mirror of an image with the same arguments. docs/INSTALL.md says more.
ARG BASE=python:3.13-slim-trixie
ARG ROCM=${BASE}

# checkov:skip=CKV_DOCKER_7:The tag stands in BASE; the checker does not follow one argument to another.
FROM ${ROCM} AS helper
COPY . /src
# Does nothing, saying so, where the image in ROCM has no compiler of ROCm.
RUN ["/bin/sh", "/src/deploy/image/build-helper", "/src", "/out"]

FROM ${BASE} AS build
COPY pyproject.toml README.md LICENSE /src/
COPY exporter /src/exporter
COPY deploy/image/sbom.py /src/sbom.py
# pip goes again once it has done its work: what runs has nothing that installs.
RUN python3 -m venv /opt/amdgpu-exporter \
    && /opt/amdgpu-exporter/bin/python -m pip install --no-cache-dir '/src[kubernetes]' \
    && /opt/amdgpu-exporter/bin/python -m pip uninstall --yes pip \
    && /opt/amdgpu-exporter/bin/python /src/sbom.py > /opt/amdgpu-exporter/sbom.cdx.json

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="amdgpu-exporter" \
      org.opencontainers.image.description="Prometheus exporter for AMD GPUs that says not only that a GPU is slow but why" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/amdgpu-exporter /opt/amdgpu-exporter
COPY --from=helper /out/ /opt/amdgpu-exporter/
ENV PATH=/opt/amdgpu-exporter/bin:/opt/rocm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    STATE_DIRECTORY=/var/lib/amdgpu-exporter \
    AMDGPU_EXPORTER_LISTEN=:9408
# The import writes the byte code of what is used, of Python's own library too: on a read-only root it would be
# compiled again at every start. It also ends the build where something does not load.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin exporter \
    && install --directory --owner=10001 --group=10001 --mode=0711 /var/lib/amdgpu-exporter \
    && python -c 'import exporter.cli, exporter.service, exporter.pages.app, exporter.reader, exporter.node_status' \
    && python -c 'import exporter.owners.reader, exporter.windows.reducer, grpc, psutil, uvicorn'
USER 10001:10001
EXPOSE 9408
# For container engines; Kubernetes has its own probes. It asks the daemon alone: a hung GPU is no reason to restart.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9408/-/healthy', timeout=4)"]
ENTRYPOINT ["amdgpu-exporter"]
CMD ["serve"]
