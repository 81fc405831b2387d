# Sourced by base-image.sh and stock.sh: trees of Debian off this machine's own mirror, and copies of a Python found here.

dir=${ENGINE_DIR:-/var/lib/llm-repro-ci}

say() { echo "$(basename "$0" .sh): $*" >&2; }

# A tree of Debian with these packages and what they need; it is made whole or not at all, and once.
make_tree() { # RELEASE PACKAGE,… FOLDER
    local release=$1 packages=$2 tree=$3 mirror log=$dir/debootstrap-$1.log tries=5
    [ -d "$tree" ] && return
    mkdir -p "$dir"
    command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >&2
    mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" {print $2; exit}')
    say "Debian $release by debootstrap"
    until rm -rf "$tree.partial" && debootstrap --variant=minbase --include="$packages" "$release" "$tree.partial" "$mirror" > "$log" 2>&1; do
        tail -20 "$log" >&2
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { say "Debian $release could not be made; its log is $log"; exit 1; }
        say "Debian $release again in a minute: a mirror may be taking over a new state of the release"
        sleep 60
    done
    rm -rf "$tree.partial"/var/cache/apt/archives/*.deb "$tree.partial"/var/lib/apt/lists/*
    mv "$tree.partial" "$tree"
}

# The folder of an installed Python X.Y: one that starts under its own name, or one that a version manager keeps.
find_prefix() { # X.Y
    local candidate
    for candidate in $(type -aP "python$1") "$(pyenv root 2>/dev/null)"/versions/"$1".*/bin/python3; do
        "$candidate" - "$1" 2>/dev/null <<'PYTHON' && return
import sys
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
    sys.exit(1)
print(sys.base_prefix)
PYTHON
    done
    say "no Python $1 on this machine: install one so that python$1 starts it"
    return 1
}

# What the modules of a copied Python link to, and what the public image of a Python has besides.
copied_python_needs=ca-certificates,netbase,tzdata,libbz2-1.0,libexpat1,libffi8,libgdbm6,liblzma5,libncursesw6,libnsl2,libreadline8,libsqlite3-0,libssl3,libtirpc3,libuuid1,zlib1g

# Python without its tests and without whatever was installed into it.
copy_python() { # X.Y PREFIX FOLDER
    mkdir -p "$3/bin" "$3/include" "$3/lib"
    cp -a "$2/bin/python$1" "$3/bin/"
    ln -s "python$1" "$3/bin/python3"
    ln -s "python$1" "$3/bin/python"
    cp -a "$2/include/python$1" "$3/include/"
    cp -a "$2"/lib/libpython3*.so* "$3/lib/" 2>/dev/null || true
    tar -C "$2/lib" -c --exclude=__pycache__ --exclude=site-packages --exclude=test --exclude=tests --exclude=idlelib \
        --exclude='config-*/*.a' "python$1" | tar -C "$3/lib" -x
    mkdir -p "$3/lib/python$1/site-packages"
}
