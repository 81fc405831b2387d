#!/bin/bash
# Podman and Apptainer of Debian's next release, for a throwaway CI machine: Debian 12 has an older Podman and no Apptainer. Needs root.
#
#   .ci/next.sh make              make the tree of that release, unless it is there
#   eval "$(.ci/next.sh start)"   start Podman's services, of root and of an ordinary user, and print variables for the tests
#   .ci/next.sh stop              stop the services; images are kept
#   .ci/next.sh enter COMMAND…    run a command among the programs of the tree and the folders of this machine
#
# The tree lies in ENGINE_DIR and is entered by pivot_root in a mount namespace of its own: Apptainer finds no mount point below a chroot.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
tree=$dir/sid  # of Debian's releases in the making the only one with Apptainer
packages=apptainer,catatonit,ca-certificates,conmon,fuse-overlayfs,netavark,passt,podman,runc,squashfuse,uidmap
person=4321
as_person="setpriv --reuid $person --regid $person --clear-groups --inh-caps=-all env HOME=/var/person XDG_RUNTIME_DIR=/run/person"

configure() {
    mkdir -p "$tree/etc/containers" "$tree/etc/cdi" "$tree/var/person"
    # crun wants cgroups of one kind, and raised limits want CAP_SYS_RESOURCE, which a CI machine may lack.
    cat > "$tree/etc/containers/containers.conf" <<'CONF'
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=1024:20000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
    cp /etc/hosts /etc/resolv.conf "$tree/etc/"  # Apptainer wants them for a build
    grep -q "^person:" "$tree/etc/passwd" || {
        echo "person:x:$person:$person::/var/person:/bin/sh" >> "$tree/etc/passwd"
        echo "person:x:$person:" >> "$tree/etc/group"
        for name in subuid subgid; do echo "person:100000:65536" >> "$tree/etc/$name"; done
    }
    chown $person:$person "$tree/var/person"
    python3 "$here/../tests/fakes/cdi.py" "${FAKE_GPUS:-8}" "$tree/etc/cdi/nvidia.json"
}

# In a mount namespace of its own: become a process of the tree.
entered() { # COMMAND…
    local name folder=$PWD shared=(/dev/pts /dev/shm /proc /sys /tmp) upper=$tree/run/dev
    for name in /*; do  # of this machine what Debian itself does not have: there lie the kit and whatever belongs to it
        [[ -d $name && ! -L $name && ! $name =~ ^/(bin|boot|dev|etc|lib.*|lost.found|media|mnt|oldroot|opt|proc|run|sbin|srv|sys|tmp|usr|var)$ ]] && shared+=("$name")
    done
    mount --bind "$tree" "$tree"
    mount -t tmpfs -o mode=755 tmpfs "$tree/run"
    mkdir "$tree/run/person" && chown $person:$person "$tree/run/person"
    # This machine's devices, FUSE open to every user as Debian has it, and the simulated GPUs, which rootless Podman takes by their own names.
    mkdir "$upper" "$tree/run/work"
    mknod -m 666 "$upper/fuse" c 10 229
    for name in $(seq 0 $((${FAKE_GPUS:-8} - 1))); do mknod -m 666 "$upper/nvidia$name" c 1 3; done
    mount -t overlay -o "lowerdir=/dev,upperdir=$upper,workdir=$tree/run/work" overlay "$tree/dev"
    for name in "${shared[@]}"; do
        mkdir -p "$tree$name"
        mount --rbind "$name" "$tree$name"
    done
    mkdir -p "$tree$dir" "$tree/oldroot"
    mount --bind "$dir" "$tree$dir"
    cd "$tree"
    pivot_root . oldroot
    umount -l /oldroot
    cd "$folder" 2>/dev/null || cd /
    PATH=/usr/sbin:/usr/bin:/sbin:/bin exec "$@"
}

enter="unshare --mount --propagation private env ENGINE_DIR=$dir $here/next.sh entered"

write_wrappers() {
    mkdir -p "$dir/next-bin" "$dir/next-bin-person"
    printf '#!/bin/sh\nexec %s apptainer "$@"\n' "$enter" > "$dir/next-bin/apptainer"
    printf '#!/bin/sh\nexec %s %s apptainer "$@"\n' "$enter" "$as_person" > "$dir/next-bin-person/apptainer"
    chmod 755 "$dir"/next-bin*/apptainer
}

answers() { curl --silent --fail --max-time 5 --unix-socket "$1" http://podman/_ping >/dev/null; }

serve() { # SOCKET [COMMAND…]
    local socket=$1 log=$1.log
    shift
    answers "$socket" && return
    rm -f "$socket"
    # shellcheck disable=SC2086
    env -u CONTAINER_HOST setsid nohup $enter "$@" podman system service --time=0 "unix://$socket" > "$log" 2>&1 < /dev/null &
    for _ in $(seq 300); do answers "$socket" && return; sleep 0.2; done  # a busy machine may take many seconds
    tail -20 "$log" >&2
    say "Podman's service did not start; its log is $log"
    exit 1
}

start() {
    make_tree sid "$packages" "$tree"
    configure
    write_wrappers
    mkdir -p "$dir/podman-person" && chown $person:$person "$dir/podman-person"
    serve "$dir/podman.sock"
    # shellcheck disable=SC2086
    serve "$dir/podman-person/podman.sock" $as_person
    say "$(curl --silent --unix-socket "$dir/podman.sock" http://podman/version | sed -E 's/.*"Version":"([0-9.]+)".*/Podman \1 answers/')"
    echo "export CONTAINER_HOST=unix://$dir/podman.sock KIT_TEST_ROOTLESS=unix://$dir/podman-person/podman.sock KIT_TEST_CDI=$tree/etc/cdi"
    echo "export KIT_TEST_PERSON_BIN=$dir/next-bin-person PATH=$dir/next-bin:\$PATH"
}

case ${1:-} in
    make) make_tree sid "$packages" "$tree" ;;
    start) start ;;
    stop) pkill -f -- "system service --time=0 unix://$dir/" || true
        pkill -KILL -U $person || true ;;  # what keeps the ordinary user's namespaces
    enter) shift; exec $enter "$@" ;;
    entered) shift; entered "$@" ;;
    *) say "usage: .ci/next.sh make|start|stop|enter COMMAND"; exit 2 ;;
esac
