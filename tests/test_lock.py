"""scripts/lock.py: what it asks uv for, how it tells of changes, and that it writes all files or none."""

import dataclasses
import os
import stat

import pytest

from scripts import lock, lockfile, pins
from scripts.errors import KitError

OLD = "# head\nalpha==1.0 \\\n    --hash=sha256:aa\nbeta==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:bb\n"


def test_every_image_environment_and_the_tools_get_a_lock():
    loaded = pins.load()
    paths = {str(request.path.relative_to(loaded.root)) for request in lock.requests(loaded)}
    assert paths >= {"scripts/requirements.txt", "docker/demo/common/requirements.txt", "docker/deepspeed/2023-02/compile.txt"}
    assert paths >= {f"docker/{image.backend}/{image.stack}/requirements.txt" for image in loaded.images()}


def test_the_demo_is_locked_for_every_platform_and_an_image_for_linux_only():
    requests = {str(request.path.relative_to(pins.ROOT)): request for request in lock.requests(pins.load())}
    assert requests["docker/demo/common/requirements.txt"].universal
    assert requests["docker/demo/common/requirements.txt"].python == "3.11"
    assert not requests["docker/int8/2023-02/requirements.txt"].universal
    assert requests["docker/int8/2023-02/requirements.txt"].exclude_newer == "2023-02-08"


def test_changes_are_told_package_by_package():
    new = OLD.replace("alpha==1.0", "alpha==1.1").replace("beta==2.0", "gamma==3.0")
    assert lock.changes(OLD, new) == ["  alpha 1.0 -> 1.1", "  beta 2.0 -> (absent)", "  gamma (absent) -> 3.0"]


def test_another_hash_is_a_change_and_the_same_text_is_none():
    assert lock.changes(OLD, OLD.replace("sha256:aa", "sha256:ac")) == ["  alpha 1.0: other hashes or markers"]
    assert lock.changes(OLD, OLD) == []


def test_all_files_are_written_or_none(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "file").write_text("in the way of a folder")
    with pytest.raises(KitError, match="Nothing was changed"):
        lock.write_all({tmp_path / "a.txt": "new", tmp_path / "file" / "b.txt": "new"})
    assert (tmp_path / "a.txt").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "file"]


def test_written_files_can_be_read_by_everyone(tmp_path):
    lock.write_all({tmp_path / "new" / "a.txt": "text"})
    assert stat.S_IMODE((tmp_path / "new" / "a.txt").stat().st_mode) == 0o644


def test_a_set_of_pins_that_cannot_be_resolved_ends_in_what_uv_says():
    request = dataclasses.replace(lock.requests(pins.load())[0], wanted=("not a requirement",))
    with pytest.raises(KitError, match="no lock for .*requirements.txt"):
        lock.resolve(request)


def test_names_are_compared_as_the_index_compares_them():
    assert lockfile.normalized("Py.YAML_x") == "py-yaml-x"


def test_packages_for_windows_only_are_not_expected_anywhere_else():
    text = "colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:aa\n" + OLD
    assert lockfile.versions(text) == {"alpha": "1.0", "beta": "2.0"}
