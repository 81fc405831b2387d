# Every file that the locks of a stack name, fetched by the Python and the pip of its base image: see scripts/images/archive.py.
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS fetched
ARG STACK
ARG PIP_NO_CACHE_DIR=1 PIP_DEFAULT_TIMEOUT=120 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \
    --mount=type=bind,from=kit,target=/run/kit --mount=type=bind,source=.,target=/run/locks \
    . /run/kit/begin.sh && mkdir /wheels && \
    for lock in /run/locks/*/$STACK/requirements.txt /run/locks/*/$STACK/compile.txt; do \
        if [ -e $lock ]; then pip download -q --require-hashes --no-deps -d /wheels -r $lock || exit 1; fi; \
    done
FROM scratch
COPY --from=fetched /wheels /
