# Debian's etcd, for tests where the official image cannot be pulled.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends etcd-client etcd-server \
    && rm -rf /var/lib/apt/lists/*
CMD ["etcd"]
