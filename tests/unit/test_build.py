"""scripts/images/build.py without Docker: which images are meant, the command line, and how an answer is compared with the lock."""

import errno
import os

import pytest

from scripts import paths, pins
from scripts.commands.images import chosen
from scripts.errors import KitError, PreflightError, UsageError
from scripts.images import build

LOADED = pins.load()
IMAGE = LOADED.image("int8", "2023-02")
RIGHT = {"python": "3.8.20", "cuda": "11.7", "arch_list": list(IMAGE.arch_list), "packages": IMAGE.locked() | {"pip": "23.0.1"}}


def test_the_stack_of_an_article_is_the_one_it_names():
    assert [image.stack for image in chosen("int8", "article", "")] == ["2023-02"]
    assert [image.stack for image in chosen("int8", "article", "batch-generate")] == ["2024-06"]


def test_all_means_every_image_or_those_of_one_stack():
    assert build.images_of(LOADED, "all", "article") == LOADED.images()
    assert {image.stack for image in build.images_of(LOADED, "all", "current")} == {"current"}


@pytest.mark.parametrize(
    ("backend", "stack", "message"),
    [
        ("nope", "current", "allowed are transformers, layer-parallel"),
        ("int8", "2019", "allowed are 2023-02, 2023-05, 2024-06, current, hopper, hopper-2023-05, demo"),
        ("all", "2019", "allowed are 2023-02, 2023-05, 2024-06, current, hopper, hopper-2023-05, demo"),
        ("all", "demo", "type `make demo`"),
        ("int8", "demo", "type `make demo`"),
    ],
)
def test_what_cannot_be_built_says_what_can(backend, stack, message):
    with pytest.raises(UsageError, match=message):
        build.images_of(LOADED, backend, stack)


def test_a_backend_without_an_image_of_the_articles_stack_says_what_was_meant():
    with pytest.raises(UsageError, match="STACK=article means 2023-02 here; vllm has .*; type STACK=current"):
        chosen("vllm", "article", "")


def test_an_unknown_article_is_named_with_those_there_are():
    with pytest.raises(UsageError, match="ARTICLE is 'nope', allowed are .*inference-tools"):
        chosen("int8", "article", "nope")


def test_an_image_that_holds_its_lock_has_no_differences():
    assert build.differences(IMAGE, RIGHT) == []
    local = RIGHT | {"packages": RIGHT["packages"] | {"torch": "1.13.1+cu117"}}
    assert build.differences(IMAGE, local) == []


def test_each_difference_is_one_line():
    wrong = {"python": "3.9.2", "cuda": "", "arch_list": [], "packages": RIGHT["packages"] | {"torch": "2.0.0"}}
    del wrong["packages"]["bitsandbytes"]
    assert build.differences(IMAGE, wrong) == [
        "bitsandbytes: locked 0.37.0, found none",
        "torch: locked 1.13.1, found 2.0.0",
        "python: pinned 3.8, found 3.9.2",
        "cuda of torch: pinned 11.7, found none",
        "architectures of torch: pinned sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86, found none",
    ]


@pytest.mark.parametrize("named", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_secrets_are_passed_only_where_the_machine_has_them(monkeypatch, tmp_path, named):
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert not [part for part in build.buildx_command(IMAGE, "x:y") if "secret" in part]
    (tmp_path / "ca.pem").write_text("x")
    monkeypatch.setenv(named, str(tmp_path / "ca.pem"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert [part for part in build.buildx_command(IMAGE, "x:y") if "secret" in part] == [f"--secret=id=ca_bundle,src={tmp_path / 'ca.pem'}"]


def test_patches_are_given_only_to_an_image_that_has_them():
    assert not [part for part in build.buildx_command(IMAGE, "x:y") if "build-context=patches" in part]
    patched = build.buildx_command(LOADED.image("deepspeed", "hopper"), "x:y")
    assert f"--build-context=patches={paths.ROOT / 'docker/patches'}" in patched


def test_a_build_that_fails_is_told_by_its_last_lines_without_the_dockerfile_that_buildx_quotes(capsys):
    script = "seq 30; echo 'ERROR: no such package' >&2; echo Dockerfile:12; echo '  12 | RUN pip install'; exit 1"
    with pytest.raises(KitError) as told:
        build._stream(IMAGE, ["bash", "-c", script])
    lines = [*range(12, 31), "ERROR: no such package"]
    assert str(told.value) == f"{IMAGE.tag} was not built, the last lines were:\n  " + "\n  ".join(map(str, lines))
    assert capsys.readouterr().out.endswith("ERROR: no such package\nDockerfile:12\n  12 | RUN pip install\n")


def test_a_build_that_filled_the_disk_says_so_and_one_that_went_on_is_built():
    full = "echo 'ERROR: write /opt/venv/x: No space left on device'"
    with pytest.raises(KitError, match="was not built: the disk of the Docker engine is full; `docker system df` shows"):
        build._stream(IMAGE, ["bash", "-c", f"{full}; echo more; exit 1"])
    build._stream(IMAGE, ["bash", "-c", f"{full}; echo the cache is not kept"])


@pytest.mark.timeout(20)
def test_a_build_that_is_interrupted_is_ended(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build._stream(IMAGE, ["bash", "-c", f"echo $$ > {tmp_path}/pid; echo begun; exec sleep 60"])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_build_from_kept_files_gets_them_with_the_scripts_of_every_build_and_no_index(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "idna.whl").write_text("x")
    with build.with_wheels(IMAGE, wheels) as kit:
        assert (kit / "wheels/idna.whl").read_text() == "x" and (kit / "begin.sh").read_text() == (IMAGE.build_scripts / "begin.sh").read_text()
        assert "no-index = true" in (kit / "pip.conf").read_text()
        command = build.buildx_command(IMAGE, "x:y", kit=kit)
        assert f"--build-context=kit={kit}" in command and f"--secret=id=pip_conf,src={kit / 'pip.conf'}" in command
    assert os.listdir(tmp_path) == ["wheels"]
    (wheels / "idna.whl").unlink()
    with pytest.raises(UsageError, match="which holds no files; try WHEELS=archives/wheels/2023-02"), build.with_wheels(IMAGE, wheels):
        pass


def test_kept_files_where_no_file_can_be_linked_are_copied(monkeypatch, tmp_path):
    def no_links(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted", source)

    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/idna.whl").write_text("x")
    monkeypatch.setattr(os, "link", no_links)  # as on a stick with FAT
    with build.with_wheels(IMAGE, tmp_path / "wheels") as kit:
        assert (kit / "wheels/idna.whl").read_text() == "x"


def test_a_missing_docker_command_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="`docker` command is missing: install"):
        build.require_buildx()
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(PreflightError, match="`docker buildx` is missing: install"):
        build.require_buildx()
