# cacheupdater's image: an interpreter, the wheels of image/requirements.lock, our own wheel, and nothing to build with.
# What may be changed: BASE_IMAGE (any image with Python 3.11 or newer and its venv module; both stages use it).
# Run it with a read-only root, an emptyDir at /tmp, and volumes where it writes: /run/cacheupdater (the hints' socket) and
# /var/lib/cacheupdater (what was learned). Python loaders of your own go to /app: a volume, or an image FROM this one.
# The digest is one of .github/pins.json. No HEALTHCHECK: /livez and /readyz are for the probes of whatever runs it.

ARG BASE_IMAGE=docker.io/library/python:3.12.13-slim-bookworm@sha256:4766d8b510c428e595d74b9cc5bbb2fae8e26316fffb4adc89908d79aacd58a2

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# for those whose packages come by another way: an index of their own, a proxy's certificates (a volume of the build)
ARG PIP_INDEX_URL
ARG PIP_CERT
WORKDIR /build
# the tools in a folder of their own, so that what is copied from here has none
RUN python3 -m venv /build/tools && python3 -m venv --without-pip /opt/cacheupdater && mkdir /build/empty
RUN --mount=type=bind,source=image,target=/build/image \
    /build/tools/bin/pip install --require-hashes --only-binary :all: -r image/build.lock \
    && /build/tools/bin/pip --python /opt/cacheupdater/bin/python3 install \
        --require-hashes --only-binary :all: --no-deps -r image/requirements.lock
# the project last: whoever changes it installs nothing else again
COPY pyproject.toml README.md LICENSE ./
COPY cacheupdater cacheupdater
COPY client client
RUN /build/tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /build/tools/bin/pip --python /opt/cacheupdater/bin/python3 install --no-deps --no-index --find-links dist cacheupdater

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
ARG VERSION=0+unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="cacheupdater" \
      org.opencontainers.image.description="Keeps the values in your Redis cache fresh, so that the application does not have to" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/cacheupdater/cacheupdater" \
      org.opencontainers.image.documentation="https://github.com/cacheupdater/cacheupdater/tree/main/docs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/cacheupdater /opt/cacheupdater
# what the base leaves: setuid programs, folders that all may write, pip
RUN --mount=type=bind,source=image/seal.py,target=/opt/cacheupdater/seal.py ["python3", "/opt/cacheupdater/seal.py"]
COPY --from=build --chown=65532:65532 /build/empty /var/lib/cacheupdater
COPY --from=build --chown=65532:65532 /build/empty /run/cacheupdater
COPY --from=build /build/empty /etc/cacheupdater
COPY --from=build /build/empty /app
ENV PATH=/opt/cacheupdater/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    CACHEUPDATER_CONFIG=/etc/cacheupdater/cacheupdater.yaml
WORKDIR /app
EXPOSE 9090
USER 65532:65532
ENTRYPOINT ["cacheupdater"]
CMD ["run", "--config", "/etc/cacheupdater/cacheupdater.yaml"]
