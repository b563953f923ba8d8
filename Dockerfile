# `headrace run` in a container: the wheel's service and console, its data in /data.
#
#     docker build --tag headrace .
#     docker run --publish 127.0.0.1:8080:8080 --volume headrace:/data headrace
#
# Every Python package is pinned by hash.  So can the image below be, by whoever builds:
# --build-arg PYTHON=python:3.13-slim-bookworm@sha256:...
ARG PYTHON=python:3.13-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /source
RUN python -m venv /opt/headrace
COPY requirements/server.txt requirements/server.txt
RUN /opt/headrace/bin/pip install --no-cache-dir --require-hashes --requirement requirements/server.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY console console
COPY functions/headrace functions/headrace
RUN /opt/headrace/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${PYTHON}
RUN groupadd --gid 10001 headrace \
    && useradd --uid 10001 --gid headrace --home-dir /data --no-create-home --shell /usr/sbin/nologin headrace \
    && install --directory --owner=headrace --group=headrace --mode=0700 /data
COPY --from=build /opt/headrace /opt/headrace
ENV PATH="/opt/headrace/bin:${PATH}" \
    PYTHONUNBUFFERED=1 \
    HEADRACE_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8080/v1/health', timeout=4)"]
# In the container nobody else is; who may reach the port is said where it is published.
CMD ["headrace", "run", "--host", "0.0.0.0", "--port", "8080"]
