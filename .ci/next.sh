#!/bin/bash
# Podman and Apptainer of Debian's next release, for a throwaway CI machine: Debian 12 has an older Podman and no Apptainer. Needs root.
#
#   .ci/next.sh make              make the tree of that release, unless it is there
#   eval "$(.ci/next.sh start)"   start Podman's service, print `export CONTAINER_HOST=… PATH=…`: PATH begins with a folder that has `apptainer`
#   .ci/next.sh stop              stop the service; images are kept
#   .ci/next.sh enter COMMAND…    run a command among the programs of the tree, and the folders of this machine
#
# The tree lies in ENGINE_DIR and is entered by pivot_root in a mount namespace of its own: Apptainer finds no mount point below a chroot.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
tree=$dir/sid  # trixie and the release after it have no Apptainer
socket=$dir/podman.sock
packages=apptainer,catatonit,ca-certificates,conmon,fuse-overlayfs,netavark,passt,podman,runc,squashfuse,uidmap

# What a machine like this one refuses: crun wants cgroups of one kind, and raised limits want CAP_SYS_RESOURCE.
configure() {
    mkdir -p "$tree/etc/containers" "$tree/etc/cdi"
    cat > "$tree/etc/containers/containers.conf" <<'CONF'
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=1024:20000"]
oom_score_adj = 0
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
    cp /etc/hosts /etc/resolv.conf "$tree/etc/"  # Apptainer wants them for a build
    printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' > "$tree/etc/containers/policy.json"
    python3 "$here/../tests/fakes/cdi.py" "${FAKE_GPUS:-8}" "$tree/etc/cdi/nvidia.json"
}

enter() {
    local name shared=(/dev /proc /sys /tmp)
    for name in /*; do  # of this machine what Debian itself does not have: there lie the kit and whatever belongs to it
        [[ -d $name && ! -L $name && ! $name =~ ^/(bin|boot|dev|etc|lib.*|lost.found|media|mnt|opt|proc|run|sbin|srv|sys|tmp|usr|var)$ ]] && shared+=("$name")
    done
    mount --bind "$tree" "$tree"
    for name in "${shared[@]}"; do
        mkdir -p "$tree$name"
        mount --rbind "$name" "$tree$name"
    done
    mkdir -p "$tree$dir" "$tree/oldroot"
    mount --bind "$dir" "$tree$dir"
    mount -t tmpfs tmpfs "$tree/run"
    local folder=$PWD
    cd "$tree"
    pivot_root . oldroot
    umount -l /oldroot
    cd "$folder" 2>/dev/null || cd /
    exec "$@"
}

inside() { unshare --mount --propagation private "$here/next.sh" entered "$@"; }

write_wrapper() {
    mkdir -p "$dir/next-bin"
    cat > "$dir/next-bin/apptainer" <<WRAPPER
#!/bin/sh
exec unshare --mount --propagation private "$here/next.sh" entered apptainer "\$@"
WRAPPER
    chmod 755 "$dir/next-bin/apptainer"
}

answers() { curl --silent --fail --max-time 5 --unix-socket "$socket" http://podman/_ping >/dev/null; }

start() {
    make_tree sid "$packages" "$tree"
    configure
    write_wrapper
    if ! answers; then
        rm -f "$socket"
        setsid nohup unshare --mount --propagation private "$here/next.sh" entered \
            podman --storage-driver "${PODMAN_STORAGE:-overlay}" system service --time=0 "unix://$socket" > "$dir/podman.log" 2>&1 < /dev/null &
        for _ in $(seq 100); do answers && break; sleep 0.2; done
    fi
    answers || { tail -20 "$dir/podman.log" >&2; say "Podman's service did not start; its log is $dir/podman.log"; exit 1; }
    say "Podman answers at $socket"
    echo "export CONTAINER_HOST=unix://$socket PATH=$dir/next-bin:\$PATH"
}

case ${1:-} in
    make) make_tree sid "$packages" "$tree" ;;
    start) start ;;
    stop) pkill -f -- "system service --time=0 unix://$socket" || true ;;
    enter) shift; inside "$@" ;;
    entered) shift; enter "$@" ;;
    *) say "usage: .ci/next.sh make|start|stop|enter COMMAND"; exit 2 ;;
esac
