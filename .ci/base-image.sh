#!/bin/bash
# Make a local stand-in for the public image python:X.Y-slim-bookworm, for a CI machine that reaches no image registry:
#
#   .ci/base-image.sh 3.8        # needs DOCKER_HOST, see engine.sh
#   .ci/base-image.sh trixie     # debian:trixie-slim instead, without Python: an image may take its compiler from there
#
# Debian 12 by debootstrap off this machine's own mirror, and in /usr/local a copy of the Python X.Y found here. It carries the
# label stand-in=true, which builds on it inherit and results report.
set -euo pipefail
version=${1:?usage: .ci/base-image.sh X.Y, or trixie}
if [ "$version" = trixie ]; then release=trixie tag=debian:trixie-slim; else release=bookworm tag=python:$version-slim-bookworm; fi
dir=${ENGINE_DIR:-/var/lib/llm-repro-ci}
tree=$dir/$release
# What Python's own modules link to, and what the public image has besides.
packages=ca-certificates,netbase,tzdata,libbz2-1.0,libexpat1,libffi8,libgdbm6,liblzma5,libncursesw6,libnsl2,libreadline8,libsqlite3-0,libssl3,libtirpc3,libuuid1,zlib1g

say() { echo "base-image: $*" >&2; }

# The folder of an installed Python X.Y: one that starts under its own name, or one that a version manager keeps.
find_prefix() {
    local candidate
    for candidate in $(type -aP "python$version") "$(pyenv root 2>/dev/null)"/versions/"$version".*/bin/python3; do
        "$candidate" - "$version" 2>/dev/null <<'PYTHON' && return
import sys
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
    sys.exit(1)
print(sys.base_prefix)
PYTHON
    done
    say "no Python $version on this machine: install one so that python$version starts it"
    exit 1
}

# One tree serves every version; it is made whole or not at all.
make_tree() {
    [ -d "$tree" ] && return
    command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >&2
    local mirror
    mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" {print $2; exit}')
    say "Debian $release by debootstrap"
    rm -rf "$tree.partial"
    debootstrap --variant=minbase --include="$packages" "$release" "$tree.partial" "$mirror" > "$dir/debootstrap.log" 2>&1 \
        || { tail -20 "$dir/debootstrap.log" >&2; exit 1; }
    rm -rf "$tree.partial"/var/cache/apt/archives/*.deb "$tree.partial"/var/lib/apt/lists/*
    mv "$tree.partial" "$tree"
}

# Python without its tests and without whatever was installed into it.
copy_python() {
    mkdir -p "$1/bin" "$1/include" "$1/lib"
    cp -a "$prefix/bin/python$version" "$1/bin/"
    ln -s "python$version" "$1/bin/python3"
    ln -s "python$version" "$1/bin/python"
    cp -a "$prefix/include/python$version" "$1/include/"
    cp -a "$prefix"/lib/libpython3*.so* "$1/lib/" 2>/dev/null || true
    tar -C "$prefix/lib" -c --exclude=__pycache__ --exclude=site-packages --exclude=test --exclude=tests --exclude=idlelib \
        --exclude='config-*/*.a' "python$version" | tar -C "$1/lib" -x
    mkdir -p "$1/lib/python$version/site-packages"
}

# The tree as an image of the given name.
import_tree() {
    tar -C "$tree" -c --numeric-owner . | docker import --change 'LABEL stand-in=true' --change 'ENV LANG=C.UTF-8' - "$1" >/dev/null
}

build_from_copy() {
    local context=$dir/python-$version
    rm -rf "$context"
    copy_python "$context/root/usr/local"
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
    packages=ca-certificates
    make_tree
    import_tree "$tag"
    say "$tag is made"
    exit
fi
prefix=$(find_prefix)
make_tree
docker image inspect llm-repro-ci/bookworm >/dev/null 2>&1 || import_tree llm-repro-ci/bookworm
if [ "$prefix" = /usr ]; then build_from_debian; else build_from_copy; fi
docker run --rm --network none "$tag" sh -c 'python3 --version && pip --version' >&2
say "$tag is made"
