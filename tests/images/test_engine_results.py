"""One tiny job by Docker, Podman, Apptainer, a simulated pyxis and the host: five results of one job, equal but for the engine.

KIT_TEST_ARCHIVES is a folder of `make archive` with the image of layer-parallel; without it the test archives the image of the stack current.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import paths, pins
from scripts.containers import podman
from scripts.images import archive as keeping
from scripts.images import build
from scripts.run.engines import demo_environments
from tests.images.test_engines import not_tested

TINY = ("DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random", "VARIANT=published", "GPUS=2")
NAMES = ("docker", "podman", "apptainer", "pyxis", "host")

#: An image of several GB is restored twice before the first test.
pytestmark = pytest.mark.timeout(1500)

#: Of the host's facts those that time, load and the state of the clone decide.
OF_THE_MOMENT = ("commit", "dirty", "started_at", "began", "wall_s", "prepare_s", "container_s", "judge_s", "conditions", "machine")


def make(target: str, *arguments: str, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")} | variables
    done = subprocess.run(["make", "--no-print-directory", target, *arguments], cwd=paths.ROOT, env=kept, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of models, results, locks and SIF files, as variables."""
    if not shutil.which("apptainer") or "CONTAINER_HOST" not in os.environ:
        not_tested('Podman or Apptainer is missing: type eval "$(.ci/next.sh start)"')
    root = tmp_path_factory.mktemp("engines")
    return {
        "MODELS": str(root / "models"),
        "RUNS": str(root / "runs"),
        "KIT_LOCKS": str(root / "locks"),
        "KIT_SIF": str(root / "sif"),
        "KIT_SQSH": str(root / "sqsh"),
    }


@pytest.fixture(scope="module")
def stack(client, places: dict[str, str], tmp_path_factory: pytest.TempPathFactory):
    """The stack of an image that all engines have."""
    given = os.environ.get("KIT_TEST_ARCHIVES")
    folder = Path(given) if given else tmp_path_factory.mktemp("archives")
    if not given:
        if not build.exists(client, pins.load().image("layer-parallel", "current").tag):
            not_tested("the image of layer-parallel is not there: type make build-layer-parallel STACK=current")
        make("archive", f"ARCHIVES={folder}", "ONLY=images", "BACKEND=layer-parallel", "STACK=current")
    archived = sorted(path.name for path in folder.glob(f"*{keeping.SUFFIX}*"))
    assert archived, f"{folder} holds no images"
    stack = archived[0].partition(keeping.SUFFIX)[0]
    image = pins.load().image("layer-parallel", stack)
    engine = podman.connect()
    files = [f"{name}={places[name]}" for name in ("KIT_SIF", "KIT_SQSH")]
    said = [make("restore", f"ARCHIVES={folder}", f"ENGINE={name}", *files) for name in ("podman", "apptainer", "pyxis")]
    assert all("holds what its pins and its lock say" in output for output in said), said
    yield stack
    engine.images.remove(image.tag, force=True)


@pytest.fixture(scope="module")
def records(places: dict[str, str], stack: str, slurm_job: dict[str, str]) -> dict[str, dict]:
    """{engine: its result}"""
    python = demo_environments.ensure("common")
    typed = [f"{name}={value}" for name, value in places.items()]
    for name in NAMES:
        own = [f"PYTHON_HOST={python}"] if name == "host" else []
        of_slurm = slurm_job if name == "pyxis" else {}
        make("bench-layer-parallel", f"ENGINE={name}", f"STACK={stack}", *TINY, *typed, *own, **of_slurm)
    found = [json.loads(path.read_text()) for path in Path(places["RUNS"]).glob("*/result.json")]
    return {record["host"]["engine"]: record for record in found}


def test_every_engine_has_a_result_of_the_same_job(records: dict[str, dict]) -> None:
    assert sorted(records) == sorted(NAMES)
    jobs = [record["job"] | {"id": "", "reference": "", "model": record["job"]["model"] | {"path": ""}} for record in records.values()]
    assert all(job == jobs[0] for job in jobs)
    assert len({record["id"] for record in records.values()}) == len(NAMES), "the engine is part of what tells runs apart"


def test_every_engine_computes_the_right_output(records: dict[str, dict]) -> None:
    assert {record["status"] for record in records.values()} == {"ok"}
    faults = {name: record["guest"]["check"]["reason"] or record["guest"]["check"]["judged"]["reason"] for name, record in records.items()}
    assert faults == dict.fromkeys(records, ""), "a busy machine may make calls with unseen prompts slow: then this says so"
    assert all(record["guest"]["check"]["passed"] and record["guest"]["check"]["judged"]["passed"] for record in records.values())
    assert not [key for record in records.values() for key in record["guest"] if key not in records["docker"]["guest"]]


def test_containers_differ_in_their_engine_alone(records: dict[str, dict]) -> None:
    docker = records["docker"]
    for name in ("podman", "apptainer", "pyxis"):
        record = records[name]
        assert record["guest"]["environment"] == docker["guest"]["environment"]
        image = {key: value for key, value in record["host"]["image"].items() if key not in ("sif_sha256", "squashfs_sha256")}
        assert image == docker["host"]["image"] and record["host"]["differences"] == []
        same = [key for key in docker["host"] if key not in (*OF_THE_MOMENT, "engine", "image")]
        assert [key for key in same if record["host"][key] != docker["host"][key]] == []


@pytest.mark.parametrize(("engine", "variable", "fact"), [("apptainer", "KIT_SIF", "sif_sha256"), ("pyxis", "KIT_SQSH", "squashfs_sha256")])
def test_a_result_names_the_file_of_its_engine(records: dict[str, dict], places: dict[str, str], engine: str, variable: str, fact: str) -> None:
    (file,) = (path for path in Path(places[variable]).iterdir() if path.suffix in (".sif", ".sqsh"))
    digest = subprocess.run(["sha256sum", file], capture_output=True, text=True, check=True).stdout.split()[0]
    image = records[engine]["host"]["image"]
    assert image[fact] == digest
    assert image["id"].removeprefix("sha256:")[:12] in file.name


def test_the_host_names_its_differences(records: dict[str, dict]) -> None:
    assert records["host"]["host"]["image"] is None and records["host"]["host"]["differences"]


def test_the_report_has_a_page_for_each_engine(records: dict[str, dict], places: dict[str, str]) -> None:
    make("report", f"RUNS={places['RUNS']}", f"KIT_LOCKS={places['KIT_LOCKS']}")
    index = (Path(places["RUNS"]).parent / "REPORT.md").read_text()
    for words in ("containers", "Podman", "Apptainer", "pyxis", "no containers"):
        assert f", tiny, {words}](" in index, index


def test_a_sif_that_was_changed_or_is_gone_is_one_line(records: dict[str, dict], places: dict[str, str], stack: str) -> None:
    (file,) = Path(places["KIT_SIF"]).glob("*.sif")
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last[0] ^ 1]))
    assert f"{file} is not the file that was built; type make restore ENGINE=apptainer" in failing(places, stack)
    file.unlink()
    archived = f"type make archive ONLY=images BACKEND=layer-parallel STACK={stack} where Docker is, and make restore ENGINE=apptainer here"
    assert archived in failing(places, stack)


def failing(places: dict[str, str], stack: str) -> str:
    """What a run with Apptainer says that has to fail."""
    command = ["make", "--no-print-directory", "bench-layer-parallel", "ENGINE=apptainer", f"STACK={stack}", *TINY, "FORCE=1"]
    done = subprocess.run([*command, *(f"{name}={value}" for name, value in places.items())], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr
