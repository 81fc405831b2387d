#!/bin/bash
# A private Docker engine with eight simulated GPUs, for a throwaway CI machine: Debian 12, root, no GPU needed.
#
#   eval "$(.ci/engine.sh start)"    install what is missing, start dockerd, print `export DOCKER_HOST=…`
#   .ci/engine.sh stop               stop it; images are kept
#   .ci/engine.sh clean              stop it and remove everything it kept, also what a killed engine left behind
#
# Everything lives under ENGINE_DIR. FAKE_GPUS is the number of GPUs. FAKE_NVIDIA_HOOK=1 also makes the engine believe
# in the NVIDIA container toolkit, so that `--gpus` is accepted (it brings no device).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${ENGINE_DIR:-/var/lib/llm-repro-ci}
socket=$dir/docker.sock

say() { echo "engine: $*" >&2; }

# Debian 12 has Docker 20.10, which knows no CDI. The next release has 26.1; its own runc and tini want a newer libc, so
# only these four packages come from there, off the very mirror this machine already uses.
install_docker() {
    if command -v dockerd >/dev/null && docker buildx version >/dev/null 2>&1 && docker compose version >/dev/null 2>&1 \
        && [ "$(dockerd --version | sed -E 's/.*version ([0-9]+).*/\1/')" -ge 26 ]; then
        return
    fi
    say "installing Docker"
    local mirror
    mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" {print $2; exit}')
    [ -n "$mirror" ] || { say "no Debian 12 mirror among this machine's apt sources"; exit 1; }
    echo "deb $mirror trixie main" > /etc/apt/sources.list.d/docker-from-trixie.list
    cat > /etc/apt/preferences.d/docker-from-trixie <<'PIN'
Package: *
Pin: release n=trixie
Pin-Priority: -10

Package: docker.io docker-cli docker-buildx docker-compose
Pin: release n=trixie
Pin-Priority: 990
PIN
    apt-get update -q >&2
    apt-get install -y -q --no-install-recommends docker.io docker-cli docker-buildx docker-compose iptables >&2
    rm /etc/apt/sources.list.d/docker-from-trixie.list /etc/apt/preferences.d/docker-from-trixie  # nothing else shall come from there
    apt-get update -q >&2
}

# A CI machine's root may lack CAP_SYS_RESOURCE; runc then refuses raised limits, negative OOM scores and that capability.
# This runtime lowers them to what is allowed, and is plain runc otherwise.
write_runtime() {
    cat > "$dir/bin/runc-clamped" <<RUNTIME
#!/usr/bin/python3 -S
import json, os, resource, sys

arguments = sys.argv[1:]
if "create" in arguments or "run" in arguments:
    bundle = arguments[arguments.index("--bundle") + 1] if "--bundle" in arguments else "."
    path = os.path.join(bundle, "config.json")
    with open(path) as stream:
        config = json.load(stream)
    process = config["process"]
    process["oomScoreAdj"] = max(0, process.get("oomScoreAdj") or 0)
    for granted in (process.get("capabilities") or {}).values():
        if "CAP_SYS_RESOURCE" in granted:
            granted.remove("CAP_SYS_RESOURCE")
    for limit in process.get("rlimits") or []:
        ceiling = resource.getrlimit(getattr(resource, limit["type"]))[1]
        if ceiling != resource.RLIM_INFINITY:
            limit["hard"] = min(limit["hard"], ceiling)
            limit["soft"] = min(limit["soft"], ceiling)
    with open(path, "w") as stream:
        json.dump(config, stream)
os.execv("$(command -v runc)", ["runc"] + arguments)
RUNTIME
    chmod 755 "$dir/bin/runc-clamped"
}

write_configuration() {
    mkdir -p "$dir/bin" "$dir/cdi"
    python3 "$here/../tests/fakes/cdi.py" "${FAKE_GPUS:-8}" "$dir/cdi/nvidia.json"
    write_runtime
    rm -f "$dir/bin/nvidia-container-runtime-hook"
    if [ "${FAKE_NVIDIA_HOOK:-0}" = 1 ]; then
        printf '#!/bin/sh\nexec cat >/dev/null\n' > "$dir/bin/nvidia-container-runtime-hook"
        chmod 755 "$dir/bin/nvidia-container-runtime-hook"
    fi
    cat > "$dir/daemon.json" <<JSON
{"features": {"cdi": true}, "cdi-spec-dirs": ["$dir/cdi"], "mtu": 1400,
 "default-runtime": "clamped", "runtimes": {"clamped": {"path": "$dir/bin/runc-clamped"}}}
JSON
}

answers() { docker -H "unix://$socket" version >/dev/null 2>&1; }

start() {
    install_docker
    if ! answers; then
        write_configuration
        PATH=$dir/bin:$PATH setsid nohup dockerd --config-file "$dir/daemon.json" -H "unix://$socket" --data-root "$dir/data" \
            --exec-root "$dir/exec" --pidfile "$dir/pid" > "$dir/log" 2>&1 < /dev/null &
        for _ in $(seq 150); do answers && break; sleep 0.2; done
    fi
    answers || { tail -20 "$dir/log" >&2; say "dockerd did not start; its log is $dir/log"; exit 1; }
    say "Docker $(docker -H "unix://$socket" version --format '{{.Server.Version}}') answers"
    echo "export DOCKER_HOST=unix://$socket"
}

# By its command line: the number in a file that an earlier engine left may be another process by now.
stop() {
    local ours="--data-root $dir/data "
    pkill -f -- "$ours" || return 0
    for _ in $(seq 100); do pgrep -f -- "$ours" >/dev/null || return 0; sleep 0.2; done
    say "dockerd did not stop within 20 s"
    exit 1
}

# Layers of builds that were cut off belong to no image: no `docker prune` removes them, and they fill the disk run by run.
clean() {
    stop
    pkill -KILL -f "$dir/exec/" || true  # what a killed dockerd left running
    awk -v dir="$dir/" 'index($2, dir) == 1 {print $2}' /proc/mounts | sort -r | xargs --no-run-if-empty umount --lazy
    rm -rf "$dir"
}

case ${1:-} in
    start) start ;;
    stop) stop ;;
    clean) clean ;;
    *) say "usage: .ci/engine.sh start|stop|clean"; exit 2 ;;
esac
