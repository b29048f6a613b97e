# Four images: `docker build --target operator|router|picker|engine .`, all of them by `make images`.
# Locked dependencies, no root, nothing written at run time, one process, no shell needed. Plain instructions only, so
# that it builds with BuildKit and without. Kubernetes' probes look after the processes: no HEALTHCHECK.
#
# Two builds give the same files: the base can be pinned (--build-arg BASE=python:3.13-slim-trixie@sha256:...), as releases
# do; images/uv.txt holds the installer and uv.lock the dependencies by hash; images/settle makes bytecode and times the same.
ARG BASE=python:3.13-slim-trixie

# A new value of REBUILD makes all trees of files below anew, whatever the builder remembers, and a new value of RECOMPILE
# makes the compiled router anew, which takes three minutes of CPU.
FROM ${BASE} AS uv
COPY images/uv.txt /build/
RUN python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore --require-hashes \
      --only-binary=:all: --requirement /build/uv.txt
ENV UV_PYTHON=/usr/local/bin/python3 UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/promptgroup \
    UV_LINK_MODE=copy UV_NO_CACHE=1 UV_FROZEN=1
WORKDIR /build
COPY pyproject.toml uv.lock images/settle ./

# --- what each needs, as one tree -------------------------------------------------------------------------------------
FROM uv AS operator-tree
ARG REBUILD=
RUN uv sync --no-default-groups --group tracing --no-install-project
COPY operator operator
COPY contract contract
ARG SOURCE_DATE_EPOCH=0
RUN ./settle operator/promptgroup_operator contract/promptgroup_contract

FROM uv AS engine-tree
ARG REBUILD=
RUN uv sync --only-group engine
COPY lab lab
COPY contract contract
ARG SOURCE_DATE_EPOCH=0
RUN ./settle lab/promptgroup_local contract/promptgroup_contract

# --- the images -------------------------------------------------------------------------------------------------------
FROM ${BASE} AS runtime
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /

FROM runtime AS operator
COPY --from=operator-tree /opt /opt
EXPOSE 8081 8082
ENTRYPOINT ["/opt/promptgroup/bin/python", "-m", "promptgroup_operator"]
CMD ["run"]

# Stands for an engine where there is no GPU: vLLM's API, a real block-wise prefix cache.
FROM runtime AS engine
COPY --from=engine-tree /opt /opt
EXPOSE 8000
ENTRYPOINT ["/opt/promptgroup/bin/python", "-m", "promptgroup_local.engine"]

# --- the data path last, so that a builder which makes all stages in order compiles it for no other image --------------
FROM uv AS compiler
ARG RECOMPILE=
ENV UV_PROJECT_ENVIRONMENT=/opt/compiler
RUN uv sync --only-group compile
# COMPILE=no leaves the router to be interpreted: it takes seconds to build, and half as much CPU again for a request;
# COMPILE=profiled compiles it twice, the second time for what a workload did with the first: as images are released
ARG COMPILE=yes
# the base's own archive, whose signature apt checks; images of Python have its headers, Debian's Python has them in a package
RUN if [ "$COMPILE" != no ]; then \
      test -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || headers=python3-dev && \
      apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev $headers; fi
COPY scripts/compile_router.py tests/bench/python_part.py scripts/
COPY contract contract
COPY router router
RUN mkdir compiled && if [ "$COMPILE" = profiled ]; then workload="scripts/python_part.py --even --batches=400 --sessions=100"; fi && \
    if [ "$COMPILE" != no ]; then \
      PYTHONHASHSEED=0 /opt/compiler/bin/python scripts/compile_router.py compiled $workload; fi

FROM uv AS router-tree
ARG REBUILD=
RUN uv sync --only-group router
COPY contract router
COPY router router
COPY --from=compiler /build/compiled router
ARG SOURCE_DATE_EPOCH=0
RUN ./settle router/*

FROM uv AS picker-tree
ARG REBUILD=
RUN uv sync --only-group picker
COPY picker picker
COPY contract router
COPY router router
COPY --from=compiler /build/compiled router
ARG SOURCE_DATE_EPOCH=0
RUN ./settle picker/promptgroup_picker router/*

FROM runtime AS picker
COPY --from=picker-tree /opt /opt
EXPOSE 9002 9003 9090 9094/udp
ENTRYPOINT ["/opt/promptgroup/bin/python", "-m", "promptgroup_picker"]

FROM runtime AS router
COPY --from=router-tree /opt /opt
EXPOSE 8080 9090 9094/udp
ENTRYPOINT ["/opt/promptgroup/bin/python", "-m", "promptgroup_router"]
