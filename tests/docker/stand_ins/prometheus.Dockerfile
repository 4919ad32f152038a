# Debian's Prometheus, for tests where the official image cannot be pulled.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=nobody /prometheus
USER nobody
ENTRYPOINT ["prometheus"]
