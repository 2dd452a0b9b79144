# Images: `server` (API, worker, setup; no torch), `trainer` (a worker that trains), `agent` (ONNX Runtime), `agent-torch`
# (PyTorch, OpenVINO and llama.cpp too).
#
#   docker build --target server -t edgefront-server .
#
# Packages come from the index that pip is configured for. To use your own pip.conf, for another index or another build of
# torch (docker compose: EDGEFRONT_PIP_CONFIG):
#
#   docker build --target agent-torch --secret id=pip,src=$HOME/.config/pip/pip.conf -t edgefront-agent-torch .

ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim AS base
ENV PATH=/opt/edgefront/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    EDGEFRONT_HOME=/data
RUN groupadd --gid 10001 edgefront \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin edgefront \
    && install --directory --owner=edgefront --group=edgefront --mode=0700 /data /setup /enrolment
WORKDIR /data

FROM base AS source
WORKDIR /src
RUN python -m venv /opt/edgefront
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY core core
COPY migrations migrations
COPY api api
COPY workers workers
COPY agents agents
# With its symbolic links to the folders above.
COPY edgefront edgefront

FROM source AS server-build
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --constraint constraints.txt '.[server]'

FROM server-build AS trainer-build
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --constraint constraints.txt '.[server,train,cpu-fast]'

FROM source AS agent-build
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --constraint constraints.txt '.[agent]'

FROM agent-build AS agent-torch-build
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --constraint constraints.txt '.[agent,torch,cpu-fast,openvino,llamacpp]'

FROM base AS server
COPY --from=server-build /opt/edgefront /opt/edgefront
USER edgefront
VOLUME /data
EXPOSE 8090
CMD ["python", "-m", "edgefront.api"]

FROM base AS trainer
COPY --from=trainer-build /opt/edgefront /opt/edgefront
USER edgefront
VOLUME /data

FROM base AS agent
COPY --from=agent-build /opt/edgefront /opt/edgefront
USER edgefront
VOLUME /data
ENTRYPOINT ["edgefront", "agent", "--data-dir", "/data"]

FROM base AS agent-torch
# OpenMP, which xllamacpp needs of the system.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=agent-torch-build /opt/edgefront /opt/edgefront
USER edgefront
VOLUME /data
ENTRYPOINT ["edgefront", "agent", "--data-dir", "/data"]
