"""One contract for all engines: what a job may see, write and reach, how it ends, and that nothing is left.

tests/images/places.py lists what single engines do not do. Podman and Apptainer come from .ci/next.sh; KIT_NEEDS_ENGINES=1 makes their absence a failure.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import docker
import pytest

from scripts import paths
from scripts.containers import apptainer, container, gpu_requests, podman, restrictions
from scripts.containers.container import Outcome
from scripts.containers.restrictions import Folders
from scripts.errors import KitError, PreflightError
from scripts.images import sif as sif_files
from scripts.images import squashfs as squashfs_files
from scripts.machine import temporary_folders
from scripts.machine.gpus import Gpu
from tests.fakes.cdi import uuid
from tests.images import places
from tests.images.places import EXCEPTIONS, WITH_A_DAEMON, Place

NEEDED = {
    "docker": (),
    "podman": ("CONTAINER_HOST",),
    "podman-rootless": ("KIT_TEST_ROOTLESS",),
    "apptainer": (),
    "apptainer-person": ("KIT_TEST_PERSON_BIN",),
    "pyxis": (),
    "host": (),
}

#: Tells, from inside, everything that the contract is about. Arguments: the job's folder, a secret file, the address of a listening socket.
INSPECT = r"""
import json, os, re, socket, sys
job, secret, host, port = sys.argv[1:]
def can_write(path):
    try:
        with open(path, "w") as stream: stream.write("x")
        return True
    except OSError:
        return False
def can_read(path):
    try:
        return bool(open(path).read())
    except OSError:
        return False
def reaches(address):
    try:
        socket.create_connection((address, int(port)), timeout=3).close()
        return True
    except OSError:
        return False
status = dict(re.findall(r"^(\w+):\s+(.*)$", open("/proc/self/status").read(), re.M))
print(json.dumps({
    "uid": os.getuid(), "cwd": os.getcwd(), "environment": dict(os.environ), "hostname": socket.gethostname(),
    "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")], "no_new_privileges": status["NoNewPrivs"],
    "interfaces": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
    "reaches": [address for address in ("127.0.0.1", host) if reaches(address)],
    "reads_secret": can_read(secret), "reads_bench": can_read("/kit/bench/job.py"), "reads_models": can_read("/models/weights"),
    "writes": [path for path in ("/x", "/usr/x", "/etc/x", "/run/x", "/kit/x", "/kit/bench/x", "/models/x", "/tmp/x", job + "/x") if can_write(path)],
    "read_only": [path for path in ("/", "/kit/bench", "/models", "/tmp", job) if os.path.isdir(path) and os.statvfs(path).f_flag & os.ST_RDONLY],
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]), "cores": sorted(os.sched_getaffinity(0)),
    "dev": sorted(name for name in os.listdir("/dev") if name.startswith(("nvidia", "sd", "vd", "nvme"))),
}))
"""

#: Two processes, of which one leaves the session and holds the output open, write until they die.
BEATING = r"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        open(sys.argv[1] + "/beat-of-a-daemon", "a").write("x"); time.sleep(0.05)
print("up", flush=True)
while True:
    open(sys.argv[1] + "/beat", "a").write("x"); time.sleep(0.05)
"""


def not_tested(reason: str) -> None:
    if os.environ.get("KIT_NEEDS_ENGINES") == "1":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED: {reason}")


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="llm-repro-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def archive(client: docker.DockerClient, image: str, open_folder: Path) -> Path:
    """What `docker save` writes of the image."""
    path = open_folder / "image.tar"
    with path.open("wb") as stream:
        for chunk in client.images.get(image).save(named=image):
            stream.write(chunk)
    return path


@pytest.fixture(scope="module")
def layout(archive: Path, open_folder: Path) -> Path:
    """The image as an OCI layout."""
    folder = open_folder / "layout"
    with tarfile.open(archive) as packed:
        packed.extractall(folder)  # noqa: S202, for what Docker has just written
    return folder


def with_environment(made: Path, client: docker.DockerClient, image: str) -> Path:
    """An image file, the environment of its image beside it."""
    own = dict(line.split("=", 1) for line in client.images.get(image).attrs["Config"]["Env"])
    made.with_suffix(".json").write_text(json.dumps(own))
    return made


@pytest.fixture(scope="module")
def sif(client: docker.DockerClient, image: str, layout: Path) -> Path:
    """The image for Apptainer."""
    if not shutil.which("apptainer"):
        not_tested('there is no apptainer on the PATH: type eval "$(.ci/next.sh start)"')
    return with_environment(sif_files.build(layout), client, image)


@pytest.fixture(scope="module")
def sqsh(client: docker.DockerClient, image: str, layout: Path) -> Path:
    """The image for pyxis."""
    if not shutil.which("mksquashfs"):
        not_tested("there is no mksquashfs: type apt-get install squashfs-tools")
    return with_environment(squashfs_files.build(layout), client, image)


@pytest.fixture(params=places.NAMES)
def place(request: pytest.FixtureRequest, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    name = request.param
    missing = [variable for variable in NEEDED[name] if variable not in os.environ]
    if missing:
        not_tested(f'{missing[0]} is not set: type eval "$(.ci/next.sh start)"')
    if name.startswith("podman"):
        request.getfixturevalue("loaded")
    file = request.getfixturevalue("sqsh" if name == "pyxis" else "sif") if name.startswith(("apptainer", "pyxis")) else Path("none")
    chosen = Place(name, image, file)
    monkeypatch.setenv("KIT_LOCKS", str(tmp_path / "locks"))
    of_slurm = request.getfixturevalue("slurm_job") if name == "pyxis" else {}
    for variable, value in {**chosen.variables(), **of_slurm}.items():
        monkeypatch.setenv(variable, value)
    return chosen


@pytest.fixture
def folders(place: Place) -> Iterator[dict[str, Path]]:
    """The folders of a job: its own, bench and models; and `secret`, which it is not shown."""
    with tempfile.TemporaryDirectory(prefix="llm-repro-test-", dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        made = {part: root / part for part in ("work", "bench", "models", "secret")}
        for folder in made.values():
            folder.mkdir()
        (made["bench"] / "job.py").write_text("x = 1\n")
        (made["models"] / "weights").write_text("weights")
        (made["secret"] / "token").write_text("a-secret")
        os.chown(made["work"], place.user, -1)
        yield made


Run = Callable[..., tuple[Outcome, list[str]]]


@pytest.fixture
def run(place: Place, folders: dict[str, Path]) -> Run:
    """Run Python lines with the job's folder as their first argument: (outcome, lines)."""

    def start(code: str, *arguments: str, models: Path = folders["models"], linked: Sequence[Path] = (), **more: object) -> tuple[Outcome, list[str]]:
        lines: list[str] = []
        job = str(folders["work"]) if place.name == "host" else "/run/job"
        shown = Folders(folders["work"], folders["bench"], models, linked)
        return place.run(["python3", "-c", code, job, *arguments], shown, **({"on_line": lines.append} | more)), lines

    return start


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    """A socket of this machine that answers at all its addresses: (an address beside 127.0.0.1, the port)."""
    with socket.create_server(("", 0)) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing, and says which address would
        yield probe.getsockname()[0], server.getsockname()[1]


@pytest.fixture
def inside(run: Run, folders: dict[str, Path], listening: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> dict:
    for name in ("HF_TOKEN", "HTTPS_PROXY", "APPTAINERENV_HF_TOKEN"):
        monkeypatch.setenv(name, "a-secret")
    monkeypatch.setenv("APPTAINER_BIND", str(folders["secret"]))
    host, port = listening
    outcome, lines = run(INSPECT, str(folders["secret"] / "token"), host, str(port), cores="0")
    assert outcome.exit_code == 0, lines
    return json.loads(lines[-1])


def isolates(place: Place) -> bool:
    return "isolation" not in EXCEPTIONS[place.name]


def test_a_job_sees_its_folders_and_no_others(place: Place, inside: dict) -> None:
    assert inside["reads_secret"] is not isolates(place)
    if isolates(place):
        assert inside["reads_bench"] and inside["reads_models"] and inside["cwd"] == "/kit"
    if isolates(place) and "processes" not in EXCEPTIONS[place.name]:
        assert inside["processes"] < 10 and inside["dev"] == []
        assert inside["hostname"] != socket.gethostname()


def test_a_job_writes_its_folder_and_tmp_alone(place: Place, inside: dict, folders: dict[str, Path]) -> None:
    if isolates(place):
        in_memory = ["/run/x"] if "run_in_memory" in EXCEPTIONS[place.name] else []
        assert inside["writes"] == [*in_memory, "/tmp/x", "/run/job/x"]
        assert inside["read_only"] == ["/", "/kit/bench", "/models"]
    assert (folders["work"] / "x").read_text() == "x"
    assert (folders["work"] / "x").stat().st_uid == place.user


def test_a_job_reaches_no_network(place: Place, inside: dict, listening: tuple[str, int]) -> None:
    closed = isolates(place) and "network" not in EXCEPTIONS[place.name]
    assert inside["reaches"] == ([] if closed else ["127.0.0.1", listening[0]])
    assert (inside["interfaces"] == ["lo"]) is closed


def test_a_job_has_no_privileges_and_can_get_none(place: Place, inside: dict) -> None:
    if isolates(place) and "privileges" not in EXCEPTIONS[place.name]:
        assert set(inside["capabilities"]) == {"0" * 16} and inside["no_new_privileges"] == "1"


#: What it says goes to one output: an engine may mix the lines of two.
READ_THEN_WRITE = """
import errno, sys
print(open(sys.argv[2]).read())
try:
    open(sys.argv[2], "a")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_the_targets_of_links_in_the_models_folder_are_shown_at_their_own_paths(place: Place, run: Run, folders: dict[str, Path]) -> None:
    if not isolates(place):
        pytest.skip("the host engine shows a job no folders")
    target = folders["secret"] / "token"
    target.chmod(0o666)
    _, lines = run(READ_THEN_WRITE, str(target), linked=[target.parent])
    assert {"a-secret", "EROFS"} <= set(lines), lines


def test_a_job_gets_the_environment_of_image_and_kit(place: Place, inside: dict, client: docker.DockerClient, image: str) -> None:
    assert "a-secret" not in json.dumps(inside["environment"])
    fixed = restrictions.ENVIRONMENT.items()
    if isolates(place):
        of_image = dict(line.split("=", 1) for line in client.images.get(image).attrs["Config"]["Env"])
        own = {name: value for name, value in inside["environment"].items() if name not in ("HOSTNAME", "container", "LC_CTYPE")}
        threads = {"OMP_NUM_THREADS": os.environ["OMP_NUM_THREADS"]}  # tests/conftest.py sets it, and a job on a CPU gets it
        assert own == of_image | restrictions.ENVIRONMENT | threads
    else:
        assert {name for name, value in fixed if inside["environment"].get(name) != value} == {"PYTHONDONTWRITEBYTECODE"}


def unlimited(place: Place) -> bool:
    """Does this machine's kernel let the engine set no limits?"""
    return place.name.startswith("podman") and not podman.sets_limits(place.client().info())


def test_a_job_stays_on_its_cores(place: Place, inside: dict) -> None:
    assert inside["cores"] == (sorted(os.sched_getaffinity(0)) if unlimited(place) else [0])


def test_the_exit_code_and_the_signal_that_ended_a_job_are_told(run: Run) -> None:
    before = time.time()
    outcome, lines = run("print('done', flush=True); raise SystemExit(7)")
    assert (lines, outcome.exit_code, outcome.oom_killed, outcome.timed_out) == (["done"], 7, False, False)
    assert before < outcome.started_at < outcome.finished_at < time.time()
    outcome, lines = run("import os, signal; print('done', flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    assert (lines, outcome.exit_code) == (["done"], 128 + signal.SIGSEGV)


def test_a_command_that_is_not_there_fails_and_is_named(place: Place, folders: dict[str, Path]) -> None:
    if place.name == "host":
        pytest.skip("the host engine refuses an interpreter that is not there before it starts a job")
    lines: list[str] = []
    outcome = place.run(["/nowhere"], Folders(folders["work"], folders["bench"], folders["models"]), lines.append)
    assert lines and ("/nowhere" in lines[-1] or place.name.startswith("podman"))
    assert outcome.exit_code == 127 if "exit_127" not in EXCEPTIONS[place.name] else outcome.exit_code != 0


def test_errors_are_part_of_the_output(run: Run) -> None:
    outcome, lines = run("raise SystemExit('bad weather')")
    assert (outcome.exit_code, lines) == (1, ["bad weather"])


def test_lines_come_whole_and_while_the_job_runs(run: Run) -> None:
    moments: list[tuple[str, float]] = []
    code = (
        "import sys, time\nfor part in (b'one\\ntw', b'o \\xc3', b'\\xa4\\n', b'last'):\n    sys.stdout.buffer.write(part); sys.stdout.flush(); time.sleep(0.4)"
    )
    run(code, on_line=lambda line: moments.append((line, time.time())))
    assert [line for line, _ in moments] == ["one", "two ä", "last"]
    assert moments[1][1] - moments[0][1] > 0.5


def still(folder: Path) -> bool:
    """Has the job's folder stopped changing? Its processes are then gone."""
    before = {path: path.stat().st_size for path in folder.iterdir()}
    time.sleep(0.5)
    return before == {path: path.stat().st_size for path in folder.iterdir()}


def soon_still(folder: Path) -> bool:
    """The same within some seconds: the warden hears of its runner's death by a pipe that ends."""
    return any(still(folder) for _ in range(20))


def ended(place: Place, folder: Path) -> bool:
    """Have the processes of a job ended once its runner goes on?"""
    return soon_still(folder) if "at_once" in EXCEPTIONS[place.name] else still(folder)


def left(place: Place) -> list[str]:
    """The containers of this contract that are there."""
    if place.name not in WITH_A_DAEMON:
        return []
    there = place.client().containers.list(all=True, filters={"label": f"{container.RUN_LABEL}=contract"}, ignore_removed=True)
    return [one.short_id for one in there]


def mounted(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder.parent) in line]


def test_a_job_that_takes_too_long_is_stopped_with_all_its_processes(place: Place, run: Run, folders: dict[str, Path]) -> None:
    outcome, lines = run(BEATING, timeout_s=6)
    assert outcome.timed_out and not outcome.oom_killed and lines == ["up"]
    assert 6 <= outcome.finished_at - outcome.started_at < 20
    assert (folders["work"] / "beat-of-a-daemon").exists() and ended(place, folders["work"])
    assert left(place) == [] and mounted(folders["work"]) == []


def test_a_daemon_that_a_finished_job_leaves_ends_with_it(place: Place, run: Run, folders: dict[str, Path]) -> None:
    outcome, _ = run(BEATING.replace('print("up", flush=True)', "time.sleep(0.5); sys.exit(5)"), timeout_s=30)
    assert (outcome.exit_code, outcome.timed_out) == (5, False)
    assert (folders["work"] / "beat-of-a-daemon").exists() and ended(place, folders["work"])


def test_an_exception_of_the_runner_leaves_nothing(place: Place, run: Run, folders: dict[str, Path]) -> None:
    def fail(line: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run(BEATING, on_line=fail)
    assert ended(place, folders["work"]) and left(place) == []


def test_a_killed_runner_leaves_nothing_once_the_next_one_has_come(place: Place, folders: dict[str, Path]) -> None:
    job = str(folders["work"]) if place.name == "host" else "/run/job"
    arguments = [place.name, *(str(folders[name]) for name in ("work", "bench", "models")), place.image, str(place.file)]
    command = [sys.executable, "-m", "tests.images.places", *arguments, "python3", "-c", BEATING, job]
    of_pyxis = f"{temporary_folders.OF_PYXIS}*"
    before = set(Path(tempfile.gettempdir()).glob(of_pyxis))
    runner = subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    assert runner.stdout.readline() == "up\n", runner.stdout.read()
    runner.kill()
    runner.wait()
    if place.name == "pyxis":
        temporary_folders.sweep()
        assert set(Path(tempfile.gettempdir()).glob(of_pyxis)) <= before
    if place.name in WITH_A_DAEMON:
        assert len(left(place)) == 1
        assert container.sweep(place.client()) == ["contract"]
    assert soon_still(folders["work"]) and left(place) == []


def test_a_folder_that_is_not_there_is_named(place: Place, run: Run, folders: dict[str, Path]) -> None:
    if not isolates(place):
        pytest.skip("the host engine shows a job no folders")
    with pytest.raises(KitError, match="missing-models is not there"):
        run("", models=folders["models"] / "missing-models")
    assert not (folders["models"] / "missing-models").exists()


def test_memory_is_limited_where_the_engine_can(place: Place, run: Run) -> None:
    if "memory" in EXCEPTIONS[place.name] or unlimited(place):
        pytest.skip("this engine sets no limit of memory here")
    outcome, _ = run("b = bytearray(1 << 30)", memory_bytes=128 << 20)
    assert (outcome.exit_code, outcome.oom_killed, outcome.timed_out) == (137, True, False)


# GPUs

NODES = "import os; print(sorted(name for name in os.listdir('/dev') if name.startswith('nvidia')), os.environ.get('CUDA_VISIBLE_DEVICES'))"


def gpu(index: int) -> Gpu:
    return Gpu(index, uuid(index), "Fake GPU", 80 << 30, "9.0")


def test_a_job_gets_the_chosen_gpus(place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if place.name == "host":
        pytest.skip("tests/unit/test_host.py has it")
    if place.name == "docker":
        request.getfixturevalue("cdi_gpus")
    if place.name.startswith("podman"):
        monkeypatch.setattr(gpu_requests, "FOLDERS_OF_PODMAN", (os.environ["KIT_TEST_CDI"],))
    outcome, lines = run(NODES, gpus=[gpu(1), gpu(3)])
    if place.name.startswith("apptainer"):
        every = [f"nvidia{index}" for index in range(8)]
        assert lines == [f"{every} {uuid(1)},{uuid(3)}"], "Apptainer hides no GPU; CUDA sees those that the variable names"
    elif place.name == "pyxis":
        assert lines == [f"[] {uuid(1)},{uuid(3)}"], "enroot brings GPUs in, and there is none; CUDA sees those that the variable names"
    else:
        assert lines == ["['nvidia1', 'nvidia3'] None"]
    assert outcome.exit_code == 0


@pytest.fixture
def machine_driver(fake_nvml: Path) -> Iterator[None]:
    """A simulated libcuda.so.1 among the libraries of the machine that Apptainer runs on."""
    target = Path(os.environ["KIT_TEST_CDI"]).parents[1] / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    shutil.copy2(fake_nvml / "libnvidia-ml.so.1", target)
    ldconfig = [paths.ROOT / ".ci/next.sh", "enter", "ldconfig"]
    subprocess.run(ldconfig, check=True)
    yield
    target.unlink()
    subprocess.run(ldconfig, check=True)


def test_a_driver_that_does_not_come_into_a_container_is_said_before_the_job(sif: Path) -> None:
    with pytest.raises(PreflightError, match=r"apptainer --nv brings no libcuda\.so\.1 into the container; `ldconfig -p"):
        apptainer.require_driver(sif, json.loads(sif.with_suffix(".json").read_text()))


@pytest.mark.usefixtures("machine_driver")
def test_a_driver_that_comes_into_a_container_is_found_by_its_programs(sif: Path, tmp_path: Path) -> None:
    own, lines = json.loads(sif.with_suffix(".json").read_text()), []
    apptainer.require_driver(sif, own)
    code = "import ctypes; ctypes.CDLL('libcuda.so.1'); print('loaded')"
    apptainer.run(sif, own, ["python3", "-c", code], folders=Folders(tmp_path, tmp_path), gpus=[gpu(0)], timeout_s=60, on_line=lines.append)
    assert lines == ["loaded"]


def test_podman_is_refused_where_docker_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip("the address of Docker is not set")
    with pytest.raises(PreflightError, match="is Docker and not Podman; type ENGINE=docker, or .*CONTAINER_HOST"):
        podman.connect()
