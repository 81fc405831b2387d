"""The engines in containers before a container starts: addresses, words for Apptainer, and what is said where something is missing."""

import dataclasses
import hashlib
import json
import os
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import pins
from scripts.containers import apptainer, container, podman, restrictions
from scripts.containers.restrictions import Folders
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.images import build, image_files, sif
from scripts.machine import cores
from scripts.machine.gpus import Gpu
from scripts.report.views import matrix
from scripts.results import shapes
from scripts.run import engines, options
from scripts.run.engines import contained
from scripts.run.options import Options
from scripts.verdicts import row_groups
from tests.fakes.cdi import uuid
from tests.samples import a_job
from tests.unit.test_verify import right

IMAGE = pins.load().image("layer-parallel", "current")


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"CONTAINER_HOST": "unix:///a.sock", "DOCKER_HOST": "unix:///b.sock"}, "unix:///a.sock"),
        ({"DOCKER_HOST": "unix:///b.sock", "XDG_RUNTIME_DIR": "RUNTIME"}, "unix:///b.sock"),
        ({"XDG_RUNTIME_DIR": "RUNTIME"}, "unix://RUNTIME/podman/podman.sock"),
    ],
)
def test_podman_is_looked_for_where_it_is_set_and_then_at_its_sockets(tmp_path: Path, variables: dict[str, str], address: str) -> None:
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman/podman.sock").touch()
    here = {name: value.replace("RUNTIME", str(tmp_path)) for name, value in variables.items()}
    assert podman._address(here) == address.replace("RUNTIME", str(tmp_path))


def test_a_podman_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", "unix:///nowhere/podman.sock")
    with pytest.raises(NothingRuns, match="^no Podman answers at unix:///nowhere/podman.sock; start its service with `systemctl --user start"):
        engines.choose(IMAGE, [], Options(engine="podman"))


@pytest.mark.parametrize("engine", ["podman", "docker"])
@pytest.mark.parametrize("address", ["tcp://a:99999999", "http://[::1", "rubbish", "ssh://"])
def test_an_address_of_an_engine_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, engine: str, address: str) -> None:
    monkeypatch.delenv("CONTAINER_HOST", raising=False)  # Podman's own variable comes before Docker's
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(NothingRuns, match=re.escape(address)):
        engines.choose(IMAGE, [], Options(engine=engine))


class Answers:
    """An engine's service that answers a question for its version with what it likes."""

    def __init__(self, components: object) -> None:
        self.components = components

    def version(self) -> dict:
        return {"Components": self.components}


@pytest.mark.parametrize("components", [None, [1], [{"Name": "Podman Engine"}], [{"Name": "Podman Engine", "Version": "9" * 5000}]])
def test_the_version_of_an_engine_is_a_few_numbers_whatever_it_answers(components: object) -> None:
    assert all(number < 10**6 for number in podman.version(Answers(components)))


class Client:
    """An engine's service as far as it tells who it is; it has no images."""

    def __init__(self, name: str, version: str) -> None:
        self.component = {"Name": name, "Version": version}

    def version(self) -> dict:
        return {"Components": [self.component]}


def test_podman_is_refused_where_docker_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "connect", lambda: Client("Podman Engine", "5.8.6"))
    with pytest.raises(PreflightError, match="is Podman and not Docker; type ENGINE=podman"):
        engines.choose(IMAGE, [], Options(engine="docker"))


@pytest.mark.parametrize(
    ("info", "limits"),
    [
        ({"CgroupVersion": "1", "SecurityOptions": ["name=rootless"]}, False),
        ({"CgroupVersion": "2", "SecurityOptions": ["name=rootless"]}, True),
        ({"CgroupVersion": "1", "SecurityOptions": ["name=seccomp"]}, True),
    ],
)
def test_podman_without_root_sets_limits_with_cgroups_of_version_2_alone(info: dict, limits: bool) -> None:
    assert podman.sets_limits(info) is limits


def test_a_machine_without_apptainer_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NothingRuns, match="^there is no apptainer on the PATH; load its module"):
        engines.choose(IMAGE, [], Options(engine="apptainer"))


class Asked(Exception):
    """The settings of a container that was asked for."""


def asked_of_docker(tmp_path: Path, loosened: str = "", **settings: object) -> dict:
    """With which settings Docker is asked for a job's container."""

    class Containers:
        def create(self, tag: str, command: list[str], **settings: object) -> None:
            raise Asked(settings)

    engine = contained.DockerEngine.__new__(contained.DockerEngine)
    work, models = tmp_path / "work", tmp_path / "models"
    for folder in (work, models):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    contained.Contained.__init__(engine, IMAGE, [], Options(models=models, **settings))
    engine.client = types.SimpleNamespace(info=lambda: {"MemTotal": 64 << 30}, containers=Containers())
    engine.loosened = loosened
    with pytest.raises(Asked) as told:
        engine.run(a_job(), work, lambda line: None)
    return told.value.args[0] | {"labels": None, "mounts": None}


UNLIMITED = [{"Name": "memlock", "Soft": -1, "Hard": -1}]


@pytest.mark.parametrize(
    ("loosened", "options", "changed"),
    [
        ("", {"memlock": True}, {"ulimits": UNLIMITED}),
        ("shm", {}, {"ipc_mode": "host", "shm_size": None}),
        ("seccomp", {}, {"security_opt": ["no-new-privileges:true", "seccomp=unconfined"]}),
        ("memlock", {}, {"ulimits": UNLIMITED}),
    ],
)
def test_a_container_without_a_restriction_differs_in_it_alone(tmp_path: Path, loosened: str, options: dict, changed: dict) -> None:
    of_kit, other = asked_of_docker(tmp_path), asked_of_docker(tmp_path, loosened, **options)
    assert of_kit["cap_drop"] == ["ALL"] and of_kit["ipc_mode"] == "private" and not of_kit["ulimits"] and of_kit["user"]
    assert {name: value for name, value in other.items() if value != of_kit[name]} == changed and other.keys() == of_kit.keys()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of Apptainer a program that writes down its arguments and its environment."""
    path = tmp_path / "bin/apptainer"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\n/usr/bin/env > {tmp_path}/environment\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))
    return path


def arguments(program: Path, tmp_path: Path, **more: object) -> list[str]:
    """What Apptainer is asked for by a job in the folder `a,"b`."""
    work = tmp_path / 'a,"b'
    work.mkdir()
    own = {"PATH": "/opt/venv/bin", "HF_HOME": "/tmp/hf"}
    apptainer.run(Path("x.sif"), own, ["true"], folders=Folders(work, tmp_path), timeout_s=20, **more)
    return (tmp_path / "arguments").read_text().splitlines()


def test_apptainer_is_asked_for_every_restriction(program: Path, tmp_path: Path) -> None:
    asked = arguments(program, tmp_path)
    for words in (
        ["--userns"],
        ["--containall"],
        ["--no-home"],
        ["--no-mount", "bind-paths,hostfs,cwd"],
        ["--no-privs"],
        ["--cleanenv"],
        ["--no-eval"],
        ["--net"],
        ["--network", "none"],
    ):
        place = asked.index(words[0])
        assert asked[place : place + len(words)] == words
    assert "--nv" not in asked


def test_a_folder_with_a_comma_and_a_quote_in_its_name_stays_one_mount(program: Path, tmp_path: Path) -> None:
    asked = arguments(program, tmp_path)
    assert f'"type=bind","source={tmp_path}/a,""b","destination=/run/job"' in asked
    assert f'"type=bind","source={tmp_path}","destination=/kit/bench","ro"' in asked


def test_a_job_in_apptainer_gets_the_variables_of_image_and_kit_and_its_gpus(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    between = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    for name, value in (between | {"HF_TOKEN": "a-secret", "NCCL_SOCKET_IFNAME": "ib0", "NCCL_TOPO_FILE": "/etc/topology.xml"}).items():
        monkeypatch.setenv(name, value)
    asked = arguments(program, tmp_path, gpus=[Gpu(index, uuid(index), "Fake GPU", 80 << 30, "9.0") for index in (1, 3)])
    after = asked[asked.index("env") :]
    assert after[:2] == ["env", "-i"] and after[-1] == "true"
    gpus = {"CUDA_VISIBLE_DEVICES": f"{uuid(1)},{uuid(3)}", "LD_LIBRARY_PATH": "/.singularity.d/libs"}
    wanted = {"PATH": "/opt/venv/bin", "HF_HOME": "/tmp/hf"} | restrictions.ENVIRONMENT | gpus | between
    assert dict(word.split("=", 1) for word in after[2:-1]) == wanted
    assert "--nv" in asked


def test_apptainer_itself_does_not_get_what_would_open_the_container(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APPTAINER_BIND", "APPTAINERENV_HF_TOKEN", "SINGULARITY_BIND", "HF_TOKEN"):
        monkeypatch.setenv(name, "/secret")
    arguments(program, tmp_path)
    assert "/secret" not in (tmp_path / "environment").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/nowhere/sh\n", "cannot be started .*install Apptainer"),
        ("#!/bin/sh\nexec sleep 30\n", "has not answered `exec` within 1 s"),
        ("#!/bin/sh\nprintf '\\377\\376'; exit 5\n", "does not run x.sif"),
        ("#!/bin/sh\necho first >&2; echo last >&2; exit 5\n", "does not run x.sif: last$"),
        ("#!/bin/sh\nprintf '\\377\\376'\n", "brings no libcuda.so.1"),
    ],
)
def test_an_apptainer_that_hangs_or_prints_rubbish_or_cannot_start_is_one_line(program: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    program.write_text(text)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(apptainer, "LOOK_S", 1)
    with pytest.raises(KitError, match=said):
        apptainer.require_driver(Path("x.sif"), {})


def test_an_apptainer_that_builds_nothing_and_says_it_did_is_one_line(program: Path, tmp_path: Path) -> None:
    program.write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "images").mkdir()
    with pytest.raises(KitError, match="built made.sif and left no such file"):
        sif.build(tmp_path / "images")


def test_what_an_apptainer_that_fails_has_built_is_no_image(program: Path, tmp_path: Path) -> None:
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/made.sif; echo no space left >&2; exit 1\n")
    (tmp_path / "images").mkdir()
    with pytest.raises(KitError, match="Apptainer could not build the SIF: no space left"):
        sif.build(tmp_path / "images")


def kept(folder: Path) -> Path:
    """A SIF as make restore leaves it."""
    folder.mkdir()
    path = folder / f"{IMAGE.backend}-{IMAGE.stack}-{IMAGE.pins_id}-0123456789ab.sif"
    path.write_bytes(b"content")
    about = path.stat()
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    known = image_files.ImageFile(IMAGE.tag, "sha256:0123", IMAGE.pins_id, False, {"PATH": "/bin"}, digest, about.st_size, about.st_mtime_ns)
    path.with_suffix(".json").write_text(json.dumps({field: getattr(known, field) for field in known.__struct_fields__}))
    return path


def test_a_sif_is_found_by_the_pins_and_its_facts_are_those_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_SIF", str(tmp_path / "sif"))
    path = kept(tmp_path / "sif")
    found, known = image_files.read(sif.KIND, IMAGE)
    assert found == path
    assert image_files.facts(sif.KIND, known) == {
        "tag": IMAGE.tag,
        "id": "sha256:0123",
        "digest": "",
        "pins_id": IMAGE.pins_id,
        "stand_in": False,
        "sif_sha256": known.sha256,
    }
    with pytest.raises(PreflightError, match="make archive ONLY=images BACKEND=layer-parallel STACK=hopper where Docker is, and make restore ENGINE=apptainer"):
        image_files.read(sif.KIND, dataclasses.replace(IMAGE, stack="hopper"))


def test_a_copied_sif_is_the_same_and_a_changed_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_SIF", str(tmp_path / "sif"))
    path = kept(tmp_path / "sif")
    path.write_bytes(b"content")
    assert image_files.read(sif.KIND, IMAGE)[0] == path, "another time, the same content"
    path.write_bytes(b"CONTENT")
    with pytest.raises(KitError, match="is not the file that was built; type make restore ENGINE=apptainer"):
        image_files.read(sif.KIND, IMAGE)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(KitError, match="json is damaged"):
        image_files.read(sif.KIND, IMAGE)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere")


def of_another_image(path: Path) -> None:
    path.write_text(path.read_text().replace(IMAGE.tag, "llm-repro/another:tag"))


@pytest.mark.parametrize(
    ("suffix", "change", "said"),
    [
        (".json", a_pipe, "a file of at most 1,048,576 bytes is allowed"),
        (".json", lambda path: path.write_text(" " * (image_files.FACTS_BYTES + 1)), "a file of at most 1,048,576 bytes is allowed"),
        (".json", of_another_image, "belongs to llm-repro/another:tag and not to"),
        (".sif", a_link_to_nothing, "is damaged"),
        (".sif", a_pipe, "is no file"),
    ],
)
def test_a_folder_of_sifs_that_somebody_changed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, change: Callable, said: str) -> None:
    monkeypatch.setenv("KIT_SIF", str(tmp_path / "sif"))
    change(kept(tmp_path / "sif").with_suffix(suffix))
    with pytest.raises(KitError, match=f"{said}.*type make restore ENGINE=apptainer"):
        image_files.read(sif.KIND, IMAGE)


def blob(layout: Path, content: dict) -> dict:
    """The descriptor of a JSON file that is written among the blobs of a layout."""
    text = json.dumps(content).encode()
    digest = hashlib.sha256(text).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / digest).write_bytes(text)
    return {"digest": f"sha256:{digest}", "size": len(text)}


def manifest_of(layout: Path, **config: object) -> dict:
    return blob(layout, {"config": blob(layout, {"config": config}), "layers": []})


def test_each_image_of_an_archive_is_found_with_its_own_manifest_id_and_environment(tmp_path: Path) -> None:
    plain = manifest_of(tmp_path, Env=["PATH=/bin", "OPTIONS=a=b"])
    nested = blob(tmp_path, {"manifests": [manifest_of(tmp_path, User="10001")]})
    names = ("docker.io/llm-repro/int8:current-0", "docker.io/library/python:3.12")
    listed = [{**one, "annotations": {"io.containerd.image.name": name}} for name, one in zip(names, (plain, nested), strict=True)]
    (tmp_path / "index.json").write_text(json.dumps({"manifests": listed}))
    found = dict(image_files._images(tmp_path))
    assert sorted(found) == ["llm-repro/int8:current-0", "python:3.12"]
    first = found["llm-repro/int8:current-0"]
    assert first.manifest["digest"] == plain["digest"] and first.environment == {"PATH": "/bin", "OPTIONS": "a=b"}
    assert first.id == blob(tmp_path, {"config": {"Env": ["PATH=/bin", "OPTIONS=a=b"]}})["digest"]
    assert found["python:3.12"].config == {"config": {"User": "10001"}}


@pytest.mark.parametrize(
    ("user", "pins_id", "told"),
    [
        ("10001", IMAGE.pins_id, []),
        ("bench:bench", IMAGE.pins_id, []),
        ("", IMAGE.pins_id, ["runs as root"]),
        ("0:10001", IMAGE.pins_id, ["runs as root"]),
        ("root", IMAGE.pins_id, ["runs as root"]),
        ("10001", "other", [f"label {build.PINS_LABEL}: pinned {IMAGE.pins_id}, found other"]),
    ],
)
def test_a_file_takes_the_place_of_an_earlier_one_where_the_image_is_right_and_else_is_not_kept(tmp_path, monkeypatch, user, pins_id, told) -> None:
    monkeypatch.setenv("KIT_SIF", str(tmp_path / "sif"))
    earlier = kept(tmp_path / "sif")

    def built(layout: Path) -> Path:
        assert json.loads((layout / "index.json").read_text())["manifests"][0]["digest"] == archived.manifest["digest"]
        (tmp_path / "made.sif").write_bytes(b"built")
        (tmp_path / "made.sif").chmod(0o600)
        return tmp_path / "made.sif"

    manifest = manifest_of(tmp_path / "layout", User=user, Env=["PATH=/bin"], Labels={build.PINS_LABEL: pins_id, "stand-in": "true"})
    (tmp_path / "layout/index.json").write_text(json.dumps({"manifests": [{**manifest, "annotations": {"io.containerd.image.name": IMAGE.tag}}]}))
    ((_, archived),) = image_files._images(tmp_path / "layout")
    answer = json.dumps(right(IMAGE) | {"user": os.getuid()})
    kind = dataclasses.replace(sif.KIND, build=built, output_of=lambda made, environment, command: f"a greeting\n{answer}\n")
    assert list(image_files._restore(kind, IMAGE, tmp_path / "layout", archived)) == [f"{IMAGE.tag}: {line}" for line in told]
    if told:
        assert image_files.find(kind, IMAGE) == earlier
        return
    path, known = image_files.read(kind, IMAGE)
    assert path.read_bytes() == b"built" and path.stat().st_mode & 0o777 == 0o644 and archived.id.removeprefix("sha256:")[:12] in path.name
    assert (known.id, known.stand_in, known.environment, known.sha256) == (archived.id, True, {"PATH": "/bin"}, hashlib.sha256(b"built").hexdigest())
    assert sorted((tmp_path / "sif").iterdir()) == sorted([path, path.with_suffix(".json")]), "the earlier file is gone"


@pytest.mark.timeout(20)
def test_an_index_that_names_itself_ends(tmp_path: Path) -> None:
    endless = "sha256:" + 64 * "0"
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    for path in (tmp_path / "index.json", tmp_path / "blobs/sha256" / (64 * "0")):
        path.write_text(json.dumps({"manifests": [{"digest": endless}]}))
    with pytest.raises(LookupError, match="config"):
        dict(image_files._images(tmp_path))


def test_a_manifest_too_large_for_an_image_is_not_read(tmp_path: Path) -> None:
    large = blob(tmp_path, {"config": {}})
    (tmp_path / "blobs/sha256" / large["digest"].removeprefix("sha256:")).write_bytes(b" " * (image_files.MANIFEST_BYTES + 1))
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [large]}))
    with pytest.raises(ValueError, match="at most 4,194,304 bytes"):
        dict(image_files._images(tmp_path))


def test_a_digest_that_leads_out_of_an_archive_is_no_digest(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:../../../etc/passwd"}]}))
    with pytest.raises(ValueError, match="is no digest"):
        dict(image_files._images(tmp_path))


@pytest.mark.parametrize(
    ("controllers", "chooses"),
    [("cpu memory pids\n", False), ("cpuset cpu memory pids\n", True), (None, False)],
    ids=["not delegated", "delegated", "no systemd"],
)
def test_podman_without_root_keeps_a_job_on_cores_where_systemd_delegates_that(tmp_path: Path, controllers: str | None, chooses: bool) -> None:
    user = os.getuid()
    folder = tmp_path / f"user.slice/user-{user}.slice/user@{user}.service"
    folder.mkdir(parents=True)
    if controllers is not None:
        (folder / "cgroup.controllers").write_text(controllers)
    assert podman.chooses_cores({"CgroupVersion": "2", "SecurityOptions": ["name=rootless"]}, tmp_path) is chooses
    assert podman.chooses_cores({"CgroupVersion": "2", "SecurityOptions": ["name=seccomp"]}, tmp_path)
    assert podman.chooses_cores({"CgroupVersion": "1", "SecurityOptions": ["name=rootless"]}, tmp_path)


def test_every_engine_that_can_be_typed_can_stand_in_a_result_and_in_the_report() -> None:
    typed = set(options.UNUSED)
    assert typed == {*engines.CONTAINED, "host"}
    assert typed == set(typing.get_args(typing.get_type_hints(shapes.Host)["engine"])) == set(row_groups.ENGINES) == set(matrix.SHORT)


def test_a_models_folder_that_cannot_be_made_is_told_before_an_image_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(tmp_path / "a disk that is not mounted")
    monkeypatch.setattr(container, "connect", lambda: types.SimpleNamespace())
    monkeypatch.setattr(podman, "refuse", lambda client: None)
    monkeypatch.setattr(contained, "remove_abandoned", lambda client: None)
    engine = contained.DockerEngine(IMAGE, [], Options(models=tmp_path / "models"))
    with pytest.raises(KitError, match="the models' folder .*/models cannot be written .a link that leads nowhere.; type MODELS="):
        engine.prepare()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="NOT TESTED: to be kept on fewer cores needs two")
@pytest.mark.parametrize("gpus", [[], [Gpu(0, uuid(0), "Fake GPU", 80 << 30, "9.0")]], ids=["CPU", "a GPU near unknown cores"])
def test_a_container_stays_on_the_cores_that_its_runner_is_kept_on(gpus: list[Gpu]) -> None:
    one = str(min(os.sched_getaffinity(0)))
    with cores.kept_on(one):
        assert contained.Contained(IMAGE, gpus, Options()).cores == one
    assert contained.Contained(IMAGE, gpus, Options()).cores == cores.own()


def test_a_container_of_a_runner_that_may_use_every_core_is_kept_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(os.cpu_count() or 1)))
    assert contained.Contained(IMAGE, [Gpu(0, uuid(0), "Fake GPU", 80 << 30, "9.0")], Options()).cores == ""
