#!/bin/bash
# The README's commands as a newcomer types them, on a machine that has what the README names and nothing else: no Docker, no
# compiler, an ordinary user with an empty home. Needs root, and Debian's mirror and a package index as this machine reaches them.
#
#   .ci/stock.sh bookworm            # Debian 12 and its Python 3.11
#   .ci/stock.sh trixie              # Debian 13 and its Python 3.13
#   .ci/stock.sh 3.12                # Debian 12 with Ubuntu 24.04's Python, copied from this machine; skipped where it has none
#   .ci/stock.sh bookworm "make report" "make check"    # these commands only
#   .ci/stock.sh silence bookworm 5  # fail where `make demo` of the last run printed nothing for longer than 5 s
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. .ci/debian.sh
lane=${1:?usage: .ci/stock.sh bookworm, trixie, 3.12, or silence LANE SECONDS}
[ "$lane" != silence ] || exec .ci/silence.py check "$dir/stock-$2.silence" "$3"
tree=$dir/stock-$lane

# The lane has a folder, mounts and processes of its own: whatever happens, these two end before the folder is removed.
if [ -z "${LANE_ROOT:-}" ]; then
    mkdir -p "$dir" && root=$(mktemp -d "$tree.XXXXXX") || exit
    trap 'rm -rf "$root"' EXIT
    LANE_ROOT=$root unshare --mount --pid --fork --kill-child --mount-proc .ci/stock.sh "$@"
    exit
fi
root=$LANE_ROOT
home=/home/newcomer
failed=()

# How this machine reaches its package index: variables, pip's files, certificates, and the paths that any of them names.
mapfile -t settings < <(env | grep -iE '^(pip_|uv_|ssl_cert_|requests_ca_bundle=|curl_ca_bundle=|(https?|all|no)_proxy=)' | grep -v '^[A-Z]*_CACHE_DIR=')
own_pip_file=~/.config/pip/pip.conf
[ ! -e "$own_pip_file" ] || settings+=(PIP_CONFIG_FILE=/etc/pip-own.conf)

# A folder named simple is an index, and its packages lie beside it.
named_paths() {
    { printf '%s\n' "${settings[@]#*=}"; cat /etc/pip.conf /etc/xdg/pip/pip.conf "$own_pip_file" 2>/dev/null; } \
        | sed 's/^[#;].*//' | grep -oE '/[^[:space:]]+' | sed -E 's#^/+#/#; s#/simple/?$##' | sort -u
}

# A file or folder of this machine at the same place of the lane's, or at another, to read only.
show() { # PATH [PLACE]
    local place=$root${2:-$1}
    [ -e "$1" ] || return 0
    if [ -d "$1" ]; then mkdir -p "$place"; elif [ ! -e "$place" ]; then mkdir -p "$(dirname "$place")" && touch "$place"; fi
    mount --bind -o ro "$1" "$place"
}

show_settings() {
    local path
    show "$own_pip_file" /etc/pip-own.conf || return
    for path in /etc/hosts /etc/resolv.conf /etc/ssl/certs /etc/pip.conf /etc/xdg/pip $(named_paths); do show "$path" || return; done
}

# Debian with these packages and what they need; whole or not at all, like the tree below it.
make_stock() { # RELEASE PACKAGE…
    local release=$1 smallest=ca-certificates
    shift
    [ -d "$tree" ] && return
    [ "$release" = trixie ] || smallest=$copied_python_needs  # as base-image.sh has it, which makes this tree too
    make_tree "$release" "$smallest" "$dir/$release"
    say "the packages of the lane $lane: $*"
    rm -rf "$tree.partial" && cp -a --reflink=auto "$dir/$release" "$tree.partial" && cp -L --remove-destination /etc/resolv.conf "$tree.partial/etc/" || return
    { chroot "$tree.partial" apt-get update -q && DEBIAN_FRONTEND=noninteractive chroot "$tree.partial" \
        apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@"; } > "$tree.log" 2>&1 \
        || { tail -20 "$tree.log" >&2; return 1; }
    rm -rf "$tree.partial"/var/cache/apt/archives/*.deb "$tree.partial"/var/lib/apt/lists/*
    mv "$tree.partial" "$tree"
}

# The lane works in a copy of the tree, so that nothing of it reaches the next one.
make_root() {
    cp -a --reflink=auto "$tree/." "$root/" || return
    if [ "$lane" = 3.12 ]; then copy_python "$lane" "$prefix" "$root/usr/local" && chroot "$root" ldconfig || return; fi
    chroot "$root" useradd --no-create-home --uid 1000 --user-group --shell /bin/bash newcomer \
        && chroot "$root" install --directory --owner=newcomer --group=newcomer "$home" \
        && git clone --quiet --bare --no-hardlinks . "$root/srv/kit.git" && chown -R 1000:1000 "$root/srv/kit.git"
}

mount_devices() {
    local node
    mount -t proc proc "$root/proc" && mount --rbind -o ro /sys "$root/sys" && mount -t tmpfs tmpfs "$root/dev" || return
    for node in full null random tty urandom zero; do touch "$root/dev/$node" && mount --bind "/dev/$node" "$root/dev/$node" || return; done
    mkdir "$root/dev/pts" "$root/dev/shm" && ln -s pts/ptmx "$root/dev/ptmx" && ln -s /proc/self/fd "$root/dev/fd"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
}

as_newcomer() { # COMMAND
    chroot --userspec=1000:1000 --groups=1000 "$root" env -i HOME=$home USER=newcomer LOGNAME=newcomer SHELL=/bin/bash TERM=xterm-256color \
        LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin "${settings[@]}" bash -c "cd $home/kit 2>/dev/null || cd; $1"
}

newcomer() { # COMMAND
    local began=$SECONDS
    echo "--- newcomer: $1"
    if as_newcomer "$1"; then echo "--- passed in $((SECONDS - began)) s"; else
        failed+=("$1")
        echo "--- FAILED in $((SECONDS - began)) s: $1"
    fi
}

# On a terminal, which `script` provides; how long it says nothing is written down.
demo_on_a_terminal() {
    rm -f "$tree.silence"
    newcomer "script --quiet --return --command 'stty rows 24 cols 80; make demo' /dev/null < /dev/null" > >(.ci/silence.py watch "$tree.silence") 2>&1
    wait $!
}

case $lane in
    bookworm | trixie) make_stock "$lane" python3 python3-venv make git ca-certificates ;;
    3.12) prefix=$(find_prefix "$lane") || { say "skipped: the lane of Python $lane"; exit 0; }; make_stock bookworm make git ca-certificates ;;
    *) say "no lane $lane: bookworm, trixie or 3.12"; exit 2 ;;
esac
[ -d "$tree" ] && make_root && mount_devices && show_settings || { say "the machine of the lane $lane could not be made"; exit 1; }

newcomer "git clone --quiet /srv/kit.git kit"
if [ $# = 1 ]; then
    demo_on_a_terminal
    [ "$lane" = bookworm ] || set -- "$1" "make test-fast"  # with the newest Python: make test-all runs them with Debian 12's
    set -- "$@" "make compare A=HEAD~1 B=reports/runs" "make bundle" "make verify-bundle BUNDLE=llm-repro-bundle.tar.gz" \
        "make report" "git diff --exit-code reports" 'test -z "$(git status --porcelain | tee /dev/stderr)"'
fi
for command in "${@:2}"; do newcomer "$command"; done
[ ${#failed[@]} = 0 ] || { printf "stock: failed on $lane: %s\n" "${failed[@]}"; exit 1; }
