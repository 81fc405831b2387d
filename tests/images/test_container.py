"""Containers of a real Docker, beyond the contract of all engines (test_engines.py)."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from scripts.containers import container
from scripts.containers.container import Outcome
from scripts.containers.restrictions import Folders
from scripts.errors import KitError, PreflightError
from scripts.machine import locks
from scripts.machine.gpus import Gpu
from tests.fakes.cdi import uuid

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

#: Tells, from inside, everything that the restrictions are about.
INSPECT = r"""
import getpass, json, os, re
def can_write(path):
    try:
        with open(path, "w") as stream: stream.write("x")
        return True
    except OSError:
        return False
status = dict(re.findall(r"^(\w+):\s+(.*)$", open("/proc/self/status").read(), re.M))
os.close(os.open("/tmp/tool", os.O_CREAT | os.O_WRONLY, 0o755))
open("/tmp/tool", "w").write("#!/bin/sh\nexit 0\n")
os.mkdir("/run/job/results")
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "status": status, "interfaces": os.listdir("/sys/class/net"),
    "environment": dict(os.environ), "user": getpass.getuser(), "cwd": os.getcwd(), "bench": os.path.exists("/kit/bench/job.py"),
    "writable": [p for p in ("/x", "/usr/x", "/kit/x", "/kit/bench/x", "/models/x", "/tmp/x", "/run/job/results/x") if can_write(p)],
    "read_only": [p for p in ("/", "/kit/bench", "/models", "/tmp", "/run/job") if os.statvfs(p).f_flag & os.ST_RDONLY],
    "runs_from_tmp": os.system("/tmp/tool") == 0, "first_process": open("/proc/1/comm").read().strip(),
    "shm_bytes": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "tmp_bytes": os.statvfs("/tmp").f_blocks * os.statvfs("/tmp").f_frsize,
}))
"""


def gpu(index: int) -> Gpu:
    return Gpu(index, uuid(index), "Fake GPU", 80 << 30, "9.0")


#: What the restrictions that a measurement loosens look like from within, and three that stay.
RESTRICTED = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "shm": os.stat("/dev/shm").st_dev, "seccomp": status["Seccomp"],
    "privileges": status["NoNewPrivs"], "capabilities": status["CapEff"], "root": "read-only" if os.statvfs("/").f_flag & os.ST_RDONLY else "",
}))
"""


@pytest.fixture
def left(client: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The runs of this test whose containers are there; its locks are its own, so that other runs beside it do not matter."""
    monkeypatch.setenv("KIT_LOCKS", str(tmp_path / "locks"))

    def look() -> list[str]:
        there = client.containers.list(all=True, filters={"label": container.RUN_LABEL}, ignore_removed=True)
        ours = [one.labels for one in there if str(tmp_path) in one.labels.get(container.OWNER_LABEL, "")]
        return sorted(labels[container.RUN_LABEL] for labels in ours)

    return look


@pytest.fixture
def run(client: docker.DockerClient, image: str, tmp_path: Path, left: Callable) -> Iterator[Callable]:
    """Run a command or Python lines in a container: (outcome, lines); no container may be left, whatever happened."""
    work, models = tmp_path / "work", tmp_path / "models"
    work.mkdir()
    models.mkdir()

    def start(*command: str, python: str = "", tag: str = image, timeout_s: float = 60, shown: Path | None = None, **more: object) -> tuple[Outcome, list[str]]:
        lines: list[str] = []
        folders = Folders(work, ROOT / "bench", shown or models)
        wanted = ["python3", "-c", python] if python else command
        outcome = container.run(client, tag, wanted, run_id="test", folders=folders, timeout_s=timeout_s, **({"on_line": lines.append} | more))
        return outcome, lines

    yield start
    assert left() == []


@pytest.fixture
def inside(run: Callable, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setenv("HF_TOKEN", "a-secret")
    monkeypatch.setenv("HTTPS_PROXY", "a-secret")
    outcome, lines = run(python=INSPECT)
    assert outcome.exit_code == 0, lines
    return json.loads(lines[-1])


def test_a_job_may_compute_and_nothing_else(inside: dict) -> None:
    assert inside["uid"] == (os.getuid() or 10001) and inside["gid"] == (os.getgid() or 10001)
    assert inside["interfaces"] == ["lo"]
    assert {inside["status"][name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert inside["status"]["NoNewPrivs"] == "1"
    assert inside["status"]["Seccomp"] == "2"
    assert inside["read_only"] == ["/", "/kit/bench", "/models"]
    assert inside["writable"] == ["/tmp/x", "/run/job/results/x"]


def test_a_job_finds_its_code_and_room_to_work(inside: dict) -> None:
    assert inside["cwd"] == "/kit" and inside["bench"]
    assert inside["user"] == "bench", "torch's compiler asks for the user's name, and the image does not know the user's number"
    assert inside["runs_from_tmp"]
    assert inside["tmp_bytes"] == 4 << 30
    assert inside["shm_bytes"] > 1 << 30
    assert "init" in inside["first_process"]


@pytest.mark.parametrize(
    ("loosened", "changed"),
    [
        ("", {}),
        ("shm", {"shm": os.stat("/dev/shm").st_dev}),
        ("seccomp", {"seccomp": "0"}),
    ],
)
def test_a_container_is_without_the_named_restriction_alone(run: Callable, loosened: str, changed: dict) -> None:
    outcome, lines = run(python=RESTRICTED, loosened=loosened)
    assert outcome.exit_code == 0, lines
    found = json.loads(lines[-1])
    without = {"shm": os.stat("/dev/shm").st_dev, "seccomp": "0"}
    assert {name: value for name, value in without.items() if found[name] == value} == changed
    assert found["privileges"] == "1" and found["capabilities"] == "0" * 16 and found["root"] == "read-only", "the others stay"


def test_results_belong_to_the_job_and_can_be_read_and_removed(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "work" / "job.json").write_text("{}")
    run("sh", "-c", "echo done > /run/job/result.json; rm /run/job/job.json")
    result = tmp_path / "work" / "result.json"
    assert result.stat().st_uid == (os.getuid() or 10001)
    assert result.read_text() == "done\n"
    result.unlink()


def test_a_person_gets_their_own_files(client: docker.DockerClient, image: str) -> None:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    if os.getuid() != 0 or not os.path.exists(address):
        pytest.skip("only root can try it as somebody else, on a Docker of this machine")
    person = 4321
    with tempfile.TemporaryDirectory(prefix="llm-repro-test-", dir="/tmp") as name:
        work = Path(name)
        os.chown(work, person, person)
        child = os.fork()  # not a new program: somebody else may not be allowed to read this one
        if child == 0:
            os.environ["KIT_LOCKS"] = str(work / "locks")
            os.setgroups([os.stat(address).st_gid])
            os.setgid(person)
            os.setuid(person)
            command = ["sh", "-c", "id -u > /run/job/mine"]
            folders = Folders(work, ROOT / "bench")
            os._exit(container.run(container.connect(), image, command, run_id="person", folders=folders, timeout_s=60).exit_code)
        assert os.waitpid(child, 0)[1] == 0
        assert (work / "mine").read_text() == f"{person}\n"
        assert (work / "mine").stat().st_uid == person
    assert client.containers.list(all=True, filters={"label": f"{container.RUN_LABEL}=person"}) == []


def test_lines_come_whole_and_while_the_job_runs(run: Callable) -> None:
    moments: list[tuple[str, float]] = []
    code = (
        "import sys, time\n"
        "for part in (b'one\\ntw', b'o \\xc3', b'\\xa4\\n', b'@{}\\n', b'last'):\n"
        "    sys.stdout.buffer.write(part); sys.stdout.flush(); time.sleep(0.3)"
    )
    run(python=code, on_line=lambda line: moments.append((line, time.time())))
    assert [line for line, _ in moments] == ["one", "two ä", "@{}", "last"]
    assert moments[2][1] - moments[0][1] > 0.5


def test_a_line_without_an_end_fills_no_memory(run: Callable) -> None:
    _, (line,) = run(python="import sys; [sys.stdout.write('x' * 1000000) for _ in range(50)]")
    assert len(line) < 100_000 and line.endswith("(49,934,464 more bytes of this line are left out)")


def test_a_daemon_that_holds_the_output_makes_no_timeout_of_a_finished_job(run: Callable) -> None:
    outcome, lines = run(python="import os, time; print('done', flush=True); os.fork() or (os.setsid(), time.sleep(60))", timeout_s=30)
    assert (lines, outcome.exit_code, outcome.timed_out) == (["done"], 0, False)


@pytest.mark.parametrize("command", ["sleep 100", "trap '' TERM; yes", "exec >&- 2>&-; sleep 100"], ids=["silent", "talking", "closed"])
def test_a_job_that_takes_too_long_is_stopped(run: Callable, command: str) -> None:
    outcome, _ = run("sh", "-c", command, timeout_s=2, on_line=lambda line: None)
    assert outcome.timed_out and not outcome.oom_killed
    assert 2 <= outcome.finished_at - outcome.started_at < 15


# GPUs


@pytest.mark.usefixtures("cdi_gpus")
def test_a_job_sees_the_chosen_gpus_and_no_others(run: Callable) -> None:
    assert run("sh", "-c", "ls /dev/nvidia[0-9]*", gpus=[gpu(1), gpu(3)])[1] == ["/dev/nvidia1", "/dev/nvidia3"]
    assert run("sh", "-c", "ls /dev | grep -c nvidia", gpus=[])[1] == ["0"]


@pytest.mark.usefixtures("cdi_gpus")
def test_two_runs_at_once_get_different_gpus(image: str, tmp_path: Path, fake_nvml: Path, left: Callable) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fake_nvml), "FAKE_NVML_GPUS": "8"}
    command = ("sh", "-c", "ls /dev/nvidia[0-9]*; sleep 3")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    running = [start_runner(image, tmp_path / name, 2, *command, env=environment) for name in ("first", "second")]
    seen = [set(process.communicate(timeout=60)[0].split()) for process in running]
    assert sorted(seen[0] | seen[1]) == [f"/dev/nvidia{index}" for index in range(4)]
    assert len(seen[0]) == len(seen[1]) == 2
    assert left() == []


@pytest.mark.usefixtures("cdi_gpus")
def test_a_gpu_that_docker_does_not_know_is_explained(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.containers.gpu_requests.cdi_devices", lambda info: {"0", "99"})
    with pytest.raises(PreflightError, match=r"nvidia\.com/gpu=99.*nvidia-ctk cdi generate.*GPU_MODE=nvidia"):
        run("true", gpus=[gpu(99)])


def test_a_missing_toolkit_is_explained(run: Callable, client: docker.DockerClient) -> None:
    if "nvidia" in client.info().get("Runtimes", {}):
        pytest.skip("this Docker has the toolkit")
    with pytest.raises(PreflightError, match="install the NVIDIA Container Toolkit"):
        run("true", gpus=[gpu(0)], gpu_mode="nvidia")


def test_cdi_for_a_gpu_without_a_spec_is_refused(run: Callable) -> None:
    with pytest.raises(PreflightError, match="no CDI spec names GPU 99"):
        run("true", gpus=[gpu(99)], gpu_mode="cdi")


# What goes wrong outside


def test_an_image_that_is_not_built_names_its_target(run: Callable) -> None:
    with pytest.raises(PreflightError, match="make build-layer-parallel STACK=2023-02"):
        run("true", tag="llm-repro/layer-parallel:2023-02-0123456789ab")


def test_a_command_that_does_not_start_says_so(run: Callable) -> None:
    outcome, lines = run("/nowhere")
    assert outcome.exit_code == 127 and "/nowhere" in lines[0]


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: whoever is not root runs containers as himself, and reads what is his")
def test_a_folder_that_the_container_s_user_may_not_read_is_named_with_the_way_out(run: Callable, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    with pytest.raises(PreflightError, match=f"{mine} cannot be read by user 10001.*type chmod -R o.rX {mine}"):
        run("true", shown=mine)
    mine.chmod(0o755)
    assert run("ls", "/models", shown=mine)[0].exit_code == 0


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "nonsense"])
def test_docker_that_does_not_answer_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(PreflightError, match="no Docker answers at .*DOCKER_HOST") as error:
        container.connect()
    assert host in str(error.value) and "\n" not in str(error.value)


class Relay:
    """A socket that passes everything on to Docker, until it is cut: Docker stopped in mid-run."""

    def __init__(self, path: Path, target: str) -> None:
        self.target, self.sockets = target, []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self.server.accept()
            except OSError:
                return
            outer = socket.socket(socket.AF_UNIX)
            outer.connect(self.target)
            self.sockets += [inner, outer]
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        for one in (self.server, *self.sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_docker_stopped_in_mid_run_is_said_and_swept_later(
    client: docker.DockerClient, image: str, tmp_path: Path, left: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        pytest.skip("Docker is not on a socket of this machine")
    relay = Relay(tmp_path / "relay.sock", address.removeprefix("unix://"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay.sock")
    through_relay = container.connect()
    folders, command = Folders(tmp_path, ROOT / "bench"), ["sh", "-c", "echo up; sleep 100"]
    with pytest.raises(KitError, match="the container engine stopped answering during test"):
        container.run(through_relay, image, command, run_id="test", folders=folders, timeout_s=60, on_line=lambda line: relay.cut())
    assert left() == ["test"]
    assert container.sweep(client) == ["test"]
    assert left() == []


# Runners that are stopped


def forget_ignored_signals() -> None:
    """Under nohup, or behind an `&` of a script, some signals come ignored, and runners leave them so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start_runner(image: str, work: Path, gpus: int, *command: str, **more: object) -> subprocess.Popen:
    arguments = [sys.executable, "-m", "tests.images.a_runner", image, str(work), str(gpus), *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(arguments, cwd=ROOT, start_new_session=True, preexec_fn=forget_ignored_signals, **pipes, **more)


@pytest.fixture
def sleeping(client: docker.DockerClient, image: str, tmp_path: Path, left: Callable) -> Iterator[Callable[[str], subprocess.Popen]]:
    """A function that starts a runner whose container sleeps."""
    running = []

    def start(name: str) -> subprocess.Popen:
        (tmp_path / name).mkdir()
        running.append(start_runner(image, tmp_path / name, 0, "sh", "-c", "echo up; sleep 100"))
        assert running[-1].stdout.readline() == "up\n", running[-1].stderr.read()
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()
    container.sweep(client)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_runner_takes_its_container_along(sleeping: Callable, left: Callable, number: int, code: int) -> None:
    process = sleeping("stopped")
    assert left() == ["stopped"]
    process.send_signal(number)
    assert process.wait(timeout=30) == code
    assert left() == []


def test_a_runner_under_nohup_outlives_its_terminal(image: str, tmp_path: Path, left: Callable) -> None:
    command = [sys.executable, "-m", "tests.images.a_runner", image, str(tmp_path), "0", "sh", "-c", "echo up; sleep 2; echo done"]
    process = subprocess.Popen(["nohup", *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=60)[0] == "done\n"
    assert process.returncode == 0 and left() == []


def test_an_impatient_second_ctrl_c_does_not_leave_the_container(sleeping: Callable, left: Callable) -> None:
    process = sleeping("impatient")
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    process.wait(timeout=30)
    assert left() == []


def test_a_killed_runners_container_is_swept_and_a_living_ones_is_not(client: docker.DockerClient, sleeping: Callable, left: Callable) -> None:
    killed, living = sleeping("killed"), sleeping("living")
    killed.kill()
    killed.wait()
    assert left() == ["killed", "living"]
    assert container.sweep(client) == ["killed"]
    assert left() == ["living"]
    assert container.sweep(client) == []
    living.terminate()
    assert living.wait(timeout=30) == 143
    assert left() == []


@pytest.mark.usefixtures("left")
def test_a_sweep_keeps_away_from_containers_of_others(client: docker.DockerClient, image: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("data")
    labels = {container.RUN_LABEL: "theirs", container.OWNER_LABEL: str(precious), container.RUNNER_LABEL: container._this_runner()}
    elsewhere = {**labels, container.OWNER_LABEL: str(locks.folder() / "gone.lock"), container.RUNNER_LABEL: "another-machine:0"}
    made = [client.containers.create(image, "true", labels=some, network_mode="none") for some in (labels, elsewhere)]
    try:
        assert container.sweep(client) == []
        assert precious.read_text() == "data"
        for one in made:
            one.reload()
    finally:
        for one in made:
            one.remove(force=True)


def test_docker_stopped_between_two_jobs_is_one_line(client: docker.DockerClient, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        pytest.skip("Docker is not on a socket of this machine")
    relay = Relay(tmp_path / "relay.sock", address.removeprefix("unix://"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay.sock")
    monkeypatch.setenv("KIT_LOCKS", str(tmp_path / "locks"))
    through_relay = container.connect()
    relay.cut()
    with pytest.raises(KitError, match="the container engine stopped answering during test.*type the same command"):
        container.run(through_relay, image, ["true"], run_id="test", folders=Folders(tmp_path, ROOT / "bench"), timeout_s=60)
