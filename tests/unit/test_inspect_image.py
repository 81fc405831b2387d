"""docker/inspect_image.py on folders of packages that the test writes: which files are not what a package brought."""

import base64
import hashlib
import importlib.util
from importlib.metadata import distributions

import pytest

from scripts.images import verify

SPEC = importlib.util.spec_from_file_location("inspect_image", verify.INSPECTION)
inspect_image = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(inspect_image)

SHARED = "build_backend.py"


def recorded(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


@pytest.fixture
def packages(tmp_path):
    """Two packages that both bring SHARED; the second was installed last."""
    for name, content in (("first", b"first"), ("second", b"second")):
        (tmp_path / SHARED).write_bytes(content)
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"{SHARED},{recorded(content)},{len(content)}\n{folder.name}/METADATA,,\n")
    return tmp_path


def altered(folder):
    everything = list(distributions(path=[str(folder)]))
    digests = inspect_image.recorded_digests(everything)
    return {one.metadata["Name"]: files for one in everything for files in [inspect_image.altered_files(one, digests)] if files}


def test_a_file_that_two_packages_bring_may_be_that_of_either(packages):
    assert altered(packages) == {}


def test_a_file_that_is_none_of_theirs_is_altered_for_both(packages):
    (packages / SHARED).write_bytes(b"third")
    assert altered(packages) == {"first": [f"{SHARED}: another hash"], "second": [f"{SHARED}: another hash"]}


def test_a_file_that_is_gone_is_missing_for_both(packages):
    (packages / SHARED).unlink()
    assert altered(packages) == {"first": [f"{SHARED}: missing"], "second": [f"{SHARED}: missing"]}


def test_a_file_and_a_link_to_a_folder_that_no_package_brought_are_unowned(packages, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "__init__.py").write_bytes(b"evil")
    (packages / "sitecustomize").symlink_to(elsewhere)
    (packages / "evil.pth").write_bytes(b"evil")
    (packages / "__pycache__").mkdir()
    (packages / "__pycache__/build_backend.cpython-38.pyc").write_bytes(b"")
    monkeypatch.setattr(inspect_image.glob, "glob", lambda pattern: [str(packages)])
    digests = inspect_image.recorded_digests(distributions(path=[str(packages)]))
    unowned = inspect_image.unowned_files(digests)
    assert {path: digest for path, digest in unowned.items() if ".dist-info" not in path} == {
        "sitecustomize": "",
        "evil.pth": hashlib.sha256(b"evil").hexdigest(),
    }
