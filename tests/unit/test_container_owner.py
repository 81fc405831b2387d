"""Whose container a process runs in, by its control group and the container's labels."""

import os
import types
from pathlib import Path

import pytest
from docker.errors import DockerException, NotFound

from scripts.containers import container

OUTER, INNER = "a" * 64, "b" * 64


class FakeClient:
    """An engine with one container, whose owner's lock has this name."""

    def __init__(self, owner: str, error: Exception | None = None) -> None:
        self.owner, self.error, self.containers = owner, error, self

    def get(self, container_id: str) -> object:
        if self.error:
            raise self.error
        if container_id != INNER:
            raise NotFound("no such container")
        return types.SimpleNamespace(labels={container.OWNER_LABEL: f"/tmp/locks/{self.owner}"})


def process(proc: Path, cgroup: str) -> int:
    (proc / "77").mkdir()
    (proc / "77" / "cgroup").write_text(cgroup)
    return 77


OURS = f"runner-{os.getpid()}-0a1b2c3d.lock"


@pytest.mark.parametrize(
    ("cgroup", "owner", "ours"),
    [
        (f"0::/system.slice/docker-{INNER}.scope\n", OURS, True),
        (f"0::/docker/{OUTER}/docker/{INNER}\n", OURS, True),
        (f"0::/docker/{INNER}\n", f"runner-{os.getpid()}7-0a1b2c3d.lock", False),
        (f"0::/docker/{OUTER}\n", OURS, False),
        ("0::/user.slice/user-1000.slice\n", OURS, False),
    ],
    ids=["ours", "ours, in an engine within a container", "another process's", "another engine's", "no container"],
)
def test_a_process_is_ours_in_a_container_that_this_process_made(tmp_path: Path, cgroup: str, owner: str, ours: bool) -> None:
    assert container.is_ours(FakeClient(owner), process(tmp_path, cgroup), tmp_path) is ours


def test_what_cannot_be_asked_is_not_told(tmp_path: Path) -> None:
    assert container.is_ours(FakeClient(OURS), 78, tmp_path) is None
    silent = FakeClient(OURS, DockerException("the engine does not answer"))
    assert container.is_ours(silent, process(tmp_path, f"0::/docker/{INNER}\n"), tmp_path) is None
