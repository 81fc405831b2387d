"""Which words Docker is asked with, from what it tells about itself."""

import json
from pathlib import Path

import pytest
import yaml

from scripts.containers import gpu_requests, restrictions
from scripts.errors import PreflightError
from scripts.machine.gpus import Gpu
from tests.fakes import cdi


def gpu(index: int) -> Gpu:
    return Gpu(index, cdi.uuid(index), "Fake GPU", 80 << 30, "9.0")


class Engine:
    """What an engine tells of itself, and nothing more."""

    def __init__(self, name: str = "Engine", version: str = "26.1.5", **facts: object) -> None:
        self.component, self.facts = {"Name": name, "Version": version}, facts

    def version(self) -> dict:
        return {"Components": [self.component]}

    def info(self) -> dict:
        return self.facts


def with_spec(folder: Path, **how: bool) -> Engine:
    (folder / "nvidia.json").write_text(json.dumps(cdi.spec(4, **how)))
    return Engine(CDISpecDirs=[str(folder), str(folder / "absent")])


def asked(engine: Engine, *indices: int, mode: str = "auto") -> list[tuple]:
    return [(one["Driver"], one["DeviceIDs"], one["Capabilities"]) for one in gpu_requests.requests(engine, [gpu(index) for index in indices], mode)]


def test_a_cdi_spec_is_used_by_index(tmp_path: Path) -> None:
    assert asked(with_spec(tmp_path), 1, 3) == [("cdi", ["nvidia.com/gpu=1", "nvidia.com/gpu=3"], [])]


def test_a_uuid_in_the_spec_goes_before_the_index(tmp_path: Path) -> None:
    assert asked(with_spec(tmp_path, with_uuids=True), 2) == [("cdi", [f"nvidia.com/gpu={cdi.uuid(2)}"], [])]


def test_without_a_spec_for_every_gpu_the_toolkit_is_asked_by_uuid(tmp_path: Path) -> None:
    assert asked(with_spec(tmp_path), 3, 4) == [("", [cdi.uuid(3), cdi.uuid(4)], [["gpu"]])]
    assert asked(Engine(), 0) == [("", [cdi.uuid(0)], [["gpu"]])]


def test_the_mode_can_be_forced(tmp_path: Path) -> None:
    assert asked(with_spec(tmp_path), 1, mode="nvidia") == [("", [cdi.uuid(1)], [["gpu"]])]


def test_a_spec_that_is_forced_and_names_no_such_gpu_is_an_error(tmp_path: Path) -> None:
    assert asked(with_spec(tmp_path), 1, mode="cdi") == [("cdi", ["nvidia.com/gpu=1"], [])]
    with pytest.raises(PreflightError, match="GPU_MODE=cdi: no CDI spec names GPU 4; .* or GPU_MODE=nvidia"):
        asked(with_spec(tmp_path), 4, mode="cdi")


def test_no_gpus_ask_for_nothing() -> None:
    assert asked(Engine()) == []


def test_specs_in_yaml_count_and_broken_or_foreign_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(cdi.spec(2)))
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.yml").write_text("[]")
    (tmp_path / "d.json").write_text(json.dumps({**cdi.spec(9), "kind": "vendor.example/gpu"}))
    (tmp_path / "e.txt").write_text(json.dumps(cdi.spec(9)))
    assert gpu_requests.cdi_devices({"CDISpecDirs": [str(tmp_path)]}) == {"0", "1", "all"}


def test_devices_that_docker_discovered_count() -> None:
    told = [{"Source": "cdi", "ID": "nvidia.com/gpu=5"}, {"Source": "cdi", "ID": "vendor.example/net=eth7"}]
    assert gpu_requests.cdi_devices({"DiscoveredDevices": told}) == {"5"}


def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Engine:
    """A Podman whose machine has a spec of four GPUs; its API tells nothing of specs."""
    with_spec(tmp_path)
    monkeypatch.setattr(gpu_requests, "FOLDERS_OF_PODMAN", (str(tmp_path / "absent"), str(tmp_path)))
    return Engine("Podman Engine", version, CDISpecDirs=None)


@pytest.mark.parametrize("version", ["5.4.0", "5.8.6", "6.0.0-dev"])
def test_podman_is_asked_by_cdi_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    assert asked(podman(tmp_path, monkeypatch, version), 1, 3) == [("cdi", ["nvidia.com/gpu=1", "nvidia.com/gpu=3"], [])]


def test_podman_never_gets_the_request_that_it_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gpu_requests.PreflightError, match="no CDI spec in .*absent or .* names GPU 3, 4, and Podman .*nvidia-ctk cdi generate"):
        asked(podman(tmp_path, monkeypatch, "5.8.6"), 3, 4)


@pytest.mark.parametrize("version", ["4.3.1", "5.3.9"])
def test_a_podman_that_ignores_cdi_names_too_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    with pytest.raises(gpu_requests.PreflightError, match=f"Podman {version} ignores requests for GPUs; update it to 5.4"):
        asked(podman(tmp_path, monkeypatch, version), 1)


def test_root_of_a_rootless_engine_is_the_person_themselves(tmp_path: Path) -> None:
    assert restrictions.user({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, tmp_path) == "0:0"


def test_a_job_gets_nearly_all_memory_unless_told() -> None:
    machine = 64 << 30
    assert restrictions.settings(machine, None)["mem_limit"] == machine - machine // 20
    assert restrictions.settings(machine, 1 << 30)["memswap_limit"] == 1 << 30


def test_locked_memory_is_unlimited_on_demand_only() -> None:
    assert restrictions.settings(1 << 34, None)["ulimits"] == []
    unlimited = restrictions.settings(1 << 34, None, memlock=True)["ulimits"]
    assert [(limit["Name"], limit["Hard"]) for limit in unlimited] == [("memlock", -1)]
