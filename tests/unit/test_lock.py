"""scripts/pins/resolve.py: what it asks uv for, how it tells of changes, and that it writes all files or none."""

import dataclasses
import hashlib
import io
import json
import os
import socket
import stat
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts import paths, pins
from scripts.errors import KitError, UsageError
from scripts.pins import base_digests, requirement_files, resolve

OLD = "# head\nalpha==1.0 \\\n    --hash=sha256:aa\nbeta==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:bb\n"


def test_every_image_environment_and_the_tools_get_a_lock():
    loaded = pins.load()
    paths = {str(request.path.relative_to(loaded.root)) for request in resolve.requests(loaded)}
    assert paths >= {"scripts/requirements/run.txt", "docker/demo/common/requirements.txt", "docker/deepspeed/2023-02/compile.txt"}
    assert paths >= {f"docker/{image.backend}/{image.stack}/requirements.txt" for image in loaded.images()}


def test_a_backend_is_locked_alone_with_the_environment_that_holds_it():
    loaded = pins.load()
    assert {str(request.path.relative_to(loaded.root)) for request in resolve.of_backend(loaded, "compiled")} == {
        "docker/compiled/current/requirements.txt",
        "docker/demo/common/requirements.txt",
    }
    assert "docker/deepspeed/current/compile.txt" in {str(request.path.relative_to(loaded.root)) for request in resolve.of_backend(loaded, "deepspeed")}
    with pytest.raises(UsageError, match="BACKEND is 'nope', allowed are transformers, .*; try BACKEND=compiled"):
        resolve.of_backend(loaded, "nope")


def test_the_demo_is_locked_for_every_platform_and_an_image_for_linux_only():
    requests = {str(request.path.relative_to(paths.ROOT)): request for request in resolve.requests(pins.load())}
    assert requests["docker/demo/common/requirements.txt"].universal
    assert requests["docker/demo/common/requirements.txt"].python == "3.11"
    assert not requests["docker/int8/2023-02/requirements.txt"].universal
    assert requests["docker/int8/2023-02/requirements.txt"].exclude_newer == "2023-02-08"


def test_changes_are_told_package_by_package():
    new = OLD.replace("alpha==1.0", "alpha==1.1").replace("beta==2.0", "gamma==3.0")
    assert resolve.changes(OLD, new) == ["  alpha 1.0 -> 1.1", "  beta 2.0 -> (absent)", "  gamma (absent) -> 3.0"]


def test_another_hash_is_a_change_and_the_same_text_is_none():
    assert resolve.changes(OLD, OLD.replace("sha256:aa", "sha256:ac")) == ["  alpha 1.0: other hashes or markers"]
    assert resolve.changes(OLD, OLD) == []


def test_files_differ_that_are_missing_or_hold_another_text(tmp_path):
    (tmp_path / "same.txt").write_text("new")
    (tmp_path / "other.txt").write_text("old")
    texts = {tmp_path / f"{name}.txt": "new" for name in ("same", "other", "missing")}
    assert resolve.differing(texts) == [tmp_path / "other.txt", tmp_path / "missing.txt"]


def test_all_files_are_written_or_none(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "file").write_text("in the way of a folder")
    with pytest.raises(KitError, match="Nothing was changed"):
        resolve.write_all({tmp_path / "a.txt": "new", tmp_path / "file" / "b.txt": "new"})
    assert (tmp_path / "a.txt").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "file"]


def test_the_changes_of_a_lock_are_counted_and_told(monkeypatch, tmp_path, capsys):
    (tmp_path / "old.txt").write_text(OLD)
    resolved = {tmp_path / "old.txt": OLD.replace("alpha==1.0", "alpha==1.1"), tmp_path / "new.txt": OLD}
    moved = dataclasses.replace(pins.load(), root=tmp_path)
    monkeypatch.setattr(pins, "load", lambda: moved)
    monkeypatch.setattr(resolve, "resolve_all", lambda _: resolved)
    monkeypatch.setattr(base_digests, "record", lambda _: [])
    resolve.lock()
    assert capsys.readouterr().out.splitlines() == ["old.txt: 1 change", "  alpha 1.0 -> 1.1", "new.txt: new"]


def test_written_files_can_be_read_by_everyone(tmp_path):
    resolve.write_all({tmp_path / "new" / "a.txt": "text"})
    assert stat.S_IMODE((tmp_path / "new" / "a.txt").stat().st_mode) == 0o644


def test_a_set_of_pins_that_cannot_be_resolved_ends_in_what_uv_says():
    request = dataclasses.replace(resolve.requests(pins.load())[0], requirements=("not a requirement",))
    with pytest.raises(KitError, match="installer.txt cannot be locked: (.|\n)*Nothing was written. Change docker/pins.toml.$"):
        resolve.resolve(request)


@pytest.mark.slow  # uv tries again
def test_an_index_that_cannot_be_reached_is_no_fault_of_the_pins(monkeypatch, tmp_path):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # nobody listens there
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{unheard.getsockname()[1]}/simple")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path))
        with pytest.raises(KitError, match="installer.txt cannot be locked: (.|\n)*Nothing was written. Look at the network and type the same again.$"):
            resolve.resolve(resolve.requests(pins.load())[0])


def a_wheel(name, version, needs=()):
    """The bytes of a wheel that holds its metadata and nothing else."""
    packed, folder = io.BytesIO(), f"{name}-{version}.dist-info"
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {one}\n" for one in needs))
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{folder}/RECORD", "")
    return packed.getvalue()


@pytest.fixture
def index(monkeypatch, tmp_path):
    """The files of a package index that uv asks, {name of a wheel: bytes}; all of them are from the first of January 2026."""
    wheels = {"tool-1.0-py3-none-any.whl": a_wheel("tool", "1.0", ["helper"]), "helper-1.0-py3-none-any.whl": a_wheel("helper", "1.0")}

    def listing(project):
        files = [
            {"filename": name, "url": f"/files/{name}", "upload-time": "2026-01-01T00:00:00Z", "hashes": {"sha256": hashlib.sha256(content).hexdigest()}}
            for name, content in wheels.items()
            if name.startswith(f"{project}-")
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files}).encode()

    class Index(BaseHTTPRequestHandler):
        def do_GET(self):
            *_, name = self.path.rstrip("/").split("/")
            body = wheels[name] if name in wheels else listing(name)
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if name in wheels else "application/vnd.pypi.simple.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    yield wheels
    server.shutdown()
    server.server_close()


def test_a_release_that_the_index_learns_of_later_changes_no_lock_that_is_there(index, tmp_path):
    path = tmp_path / "requirements.txt"
    request = resolve.Request(path, ("tool==1.0",), "3.11", True, "2026-02-01", (("tool", "ab" * 32),))
    first = resolve.resolve(request)
    path.write_text(first)
    index["helper-1.1-py3-none-any.whl"] = a_wheel("helper", "1.1")
    assert resolve.resolve(request) == first and requirement_files.versions(first) == {"tool": "1.0", "helper": "1.0"}
    path.unlink()
    assert requirement_files.versions(resolve.resolve(request)) == {"tool": "1.0", "helper": "1.1"}


def test_a_new_lock_takes_the_versions_of_its_stack_s_plain_one_so_that_images_share_layers(index, tmp_path):
    plain, path = tmp_path / "plain.txt", tmp_path / "requirements.txt"
    request = resolve.Request(path, ("tool==1.0",), "3.11", True, "2026-02-01", like=plain)
    plain.write_text(resolve.resolve(request))
    index["helper-1.1-py3-none-any.whl"] = a_wheel("helper", "1.1")
    assert requirement_files.versions(resolve.resolve(request))["helper"] == "1.0"
    assert requirement_files.versions(resolve.resolve(dataclasses.replace(request, like=None)))["helper"] == "1.1"


def test_a_locked_version_goes_where_the_pins_want_another_and_every_hash_is_the_index_s(index, tmp_path):
    path = tmp_path / "requirements.txt"
    request = resolve.Request(path, ("tool==1.0",), "3.11", False, "2026-02-01")
    index["tool-2.0-py3-none-any.whl"] = a_wheel("tool", "2.0")
    first = resolve.resolve(request)
    path.write_text(first.replace("sha256:", "sha256:ffffffff", 1))
    assert resolve.resolve(request) == first
    assert requirement_files.versions(resolve.resolve(dataclasses.replace(request, requirements=("tool==2.0",)))) == {"tool": "2.0"}


def test_names_are_compared_as_the_index_compares_them():
    assert requirement_files.normalized("Py.YAML_x") == "py-yaml-x"


def test_packages_for_windows_only_are_not_expected_anywhere_else():
    text = "colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:aa\n" + OLD
    assert requirement_files.versions(text) == {"alpha": "1.0", "beta": "2.0"}
