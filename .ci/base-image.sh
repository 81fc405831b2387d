#!/bin/bash
# Make a local stand-in for the public image python:X.Y-slim-bookworm, for a CI machine that reaches no image registry:
#
#   .ci/base-image.sh 3.8        # needs DOCKER_HOST, see engine.sh
#   .ci/base-image.sh trixie     # debian:trixie-slim instead, without Python: an image may take its compiler from there
#
# Debian 12 by debootstrap off this machine's own mirror, and in /usr/local a copy of the Python X.Y found here. It carries the
# label stand-in=true, which builds on it inherit and results report.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
version=${1:?usage: .ci/base-image.sh X.Y, or trixie}
if [ "$version" = trixie ]; then release=trixie tag=debian:trixie-slim; else release=bookworm tag=python:$version-slim-bookworm; fi
tree=$dir/$release

# The tree as an image of the given name.
import_tree() {
    tar -C "$tree" -c --numeric-owner . | docker import --change 'LABEL stand-in=true' --change 'ENV LANG=C.UTF-8' - "$1" >/dev/null
}

build_from_copy() {
    local context=$dir/python-$version
    rm -rf "$context"
    copy_python "$version" "$prefix" "$context/root/usr/local"
    cat > "$context/Dockerfile" <<DOCKERFILE
FROM llm-repro-ci/bookworm
COPY root/ /
RUN ldconfig && python3 -m ensurepip --default-pip && python3 -c 'import bz2, ctypes, lzma, readline, sqlite3, ssl, uuid, zlib'
CMD ["python3"]
DOCKERFILE
    docker buildx build --quiet --load --provenance=false --label stand-in=true --tag "$tag" "$context" >&2
    rm -rf "$context"
}

# The version is Debian's own, which lives in /usr and needs no copy.
build_from_debian() {
    docker buildx build --quiet --load --provenance=false --label stand-in=true --tag "$tag" - >&2 <<'DOCKERFILE'
FROM llm-repro-ci/bookworm
RUN apt-get update -q && apt-get install -y -q --no-install-recommends python3 python3-venv python3-pip python3-dev && rm -rf /var/lib/apt/lists/*
RUN ln -s python3 /usr/bin/python
CMD ["python3"]
DOCKERFILE
}

if docker image inspect "$tag" >/dev/null 2>&1; then
    say "$tag is there"
    exit
fi
if [ "$release" = trixie ]; then
    make_tree trixie ca-certificates "$tree"
    import_tree "$tag"
    say "$tag is made"
    exit
fi
prefix=$(find_prefix "$version")
make_tree bookworm "$copied_python_needs" "$tree"
docker image inspect llm-repro-ci/bookworm >/dev/null 2>&1 || import_tree llm-repro-ci/bookworm
if [ "$prefix" = /usr ]; then build_from_debian; else build_from_copy; fi
docker run --rm --network none "$tag" sh -c 'python3 --version && pip --version' >&2
say "$tag is made"
