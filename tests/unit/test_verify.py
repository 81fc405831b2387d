"""scripts/images/verify.py without Docker: every way in which an image can differ from its pins and its lock is one line that names it."""

import json
import types

import pytest

from scripts import pins
from scripts.images import build, image_files, verify
from scripts.pins import requirement_files

LOADED = pins.load()
KERNELS = "deepspeed/ops/transformer/inference/transformer_inference_op.so"


def archive(block):
    """The sha256 of one file that a block of a lock allows."""
    return block.partition("--hash=sha256:")[2].split()[0]


def right(image):
    """What an image answers that is just as pinned."""
    compiled = image.options.get("compile", {})
    listed = compiled.get("environment", {}).get("TORCH_CUDA_ARCH_LIST", "")
    return {
        "python": f"{image.python}.18",
        "cuda": image.cuda,
        "arch_list": list(image.arch_list),
        "torch_architectures": [*image.arch_list, "sm_35"],
        "packages": image.locked(),
        "archives": {name: archive(block) for name, block in requirement_files.blocks(image.lock_text()).items()},
        "altered": {},
        "unowned": {},
        "compiled_with": [f"{name}={version}" for name, version in compiled.get("compiled_with", {}).items()],
        "debian": ["libc6=2.36", *(f"{pin.name}={pin.version}" for pin in image.debian_pins.values())],
        "debian_added": [f"{pin.name}={pin.version}" for pin in image.debian_pins.values()],
        "compilers": [],
        "leftovers": [],
        "kernels": {KERNELS: {"architectures": [f"sm_{one.replace('.', '')}" for one in listed.split(";")], "loads": ""}} if listed else {},
        "user": 10001,
    }


def test_packages_are_those_of_the_lock_however_an_image_spells_them():
    spelled = {name: {key.upper().replace("-", "_"): value for key, value in right(INT8)[name].items()} for name in ("packages", "archives")}
    assert differences(INT8, **spelled) == []


def differences(image, **changed):
    return verify.differences(image, right(image) | changed, ["libc6=2.36"])


@pytest.mark.parametrize(
    "image", [image for image in LOADED.images() if "added_files" not in image.options], ids=lambda image: f"{image.backend}-{image.stack}"
)
def test_an_image_that_is_as_pinned_has_no_differences(image):
    assert differences(image) == []


INT8, DEEPSPEED = LOADED.image("int8", "2023-02"), LOADED.image("deepspeed", "2023-02")


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"packages": INT8.locked() | {"torch": "2.0.0"}}, "torch: locked 1.13.1, found 2.0.0"),
        ({"packages": INT8.locked() | {"sneaked-in": "1.0"}}, "sneaked-in: not in the lock"),
        ({"archives": right(INT8)["archives"] | {"torch": "ab" * 32}}, f"torch: installed from a file with sha256 {'ab' * 32}, which is not in the lock"),
        ({"archives": {}}, "torch: the image does not say from which file it was installed"),
        ({"altered": {"torch": ["torch/lib/libtorch.so: another hash"]}}, "torch: torch/lib/libtorch.so: another hash"),
        ({"unowned": {"evil.pth": "00"}}, "evil.pth: belongs to no package, and pins.toml does not add it"),
        ({"torch_architectures": ["sm_35"]}, "torch lists sm_86, and its libraries hold no code for it"),
        ({"debian": ["libc6=2.36", "gcc=4:12"]}, "Debian package gcc=4:12: not in the base image"),
        ({"debian": []}, "Debian package libc6=2.36: in the base image, and not here"),
        ({"compilers": ["/usr/bin/gcc-12"]}, "/usr/bin/gcc-12: a compiler"),
        ({"leftovers": ["/etc/pip.conf"]}, "/etc/pip.conf: left by the build"),
        ({"user": 0}, "runs as root"),
        ({"debian_added": ["gcc=4:12"], "debian": ["libc6=2.36", "gcc=4:12"]}, "Debian package gcc=4:12: not in the base image"),
        ({"kernels": {KERNELS: {"architectures": ["sm_80"], "loads": ""}}}, f"{KERNELS}: pinned for nothing, holds sm_80"),
    ],
)
def test_whatever_differs_is_named(changed, line):
    assert line in differences(INT8, **changed)


@pytest.mark.parametrize(
    ("kernels", "line"),
    [
        ({}, "kernels: pinned for sm_70 sm_75 sm_80 sm_86, and the image has no compiled library"),
        ({KERNELS: {"architectures": ["sm_70"], "loads": ""}}, f"{KERNELS}: pinned for sm_70 sm_75 sm_80 sm_86, holds sm_70"),
        ({KERNELS: {"architectures": ["sm_70", "sm_75", "sm_80", "sm_86"], "loads": "no libcudart"}}, f"{KERNELS}: does not load: no libcudart"),
    ],
)
def test_kernels_that_are_missing_or_for_other_gpus_are_named(kernels, line):
    assert differences(DEEPSPEED, kernels=kernels) == [line]


def test_the_compilers_packages_are_compared_with_the_pins():
    found = [line.replace("g++-11=", "g++-11=9.9-") for line in right(DEEPSPEED)["compiled_with"]] + ["rust=1.0"]
    pinned = DEEPSPEED.options["compile"]["compiled_with"]["g++-11"]
    assert differences(DEEPSPEED, compiled_with=found) == [
        f"compiled with g++-11 9.9-{pinned}, pinned {pinned}",
        "compiled with rust 1.0, which pins.toml does not name",
    ]


def test_a_library_that_is_compiled_here_comes_from_no_file_of_the_lock():
    assert differences(DEEPSPEED, archives=right(DEEPSPEED)["archives"] | {"deepspeed": "ab" * 32}) == []


def test_an_added_file_is_the_one_of_docker_patches():
    image = LOADED.image("deepspeed", "hopper")
    assert "torch/_six.py: is not docker/patches/torch_six.py" in differences(image, unowned={"torch/_six.py": "00"})


def test_an_unknown_base_is_not_compared():
    assert verify.differences(INT8, right(INT8) | {"debian": ["gcc=1"]}, None) == []


def test_settings_of_the_building_machine_are_found_and_those_of_the_dockerfile_are_not():
    ours = {"CreatedBy": "RUN |2 PIP_NO_CACHE_DIR=1 PIP_PYTHON=/opt/venv/bin/python3 /bin/sh -c . /run/kit/begin.sh"}
    theirs = {"CreatedBy": "RUN |1 HTTPS_PROXY=http://user:secret@proxy /bin/sh -c true"}
    assert verify.traces({"Config": {"Env": ["PATH=/usr/bin"]}}, [ours]) == []
    assert verify.traces({"Config": {"Env": ["PIP_INDEX_URL=http://here"]}}, [ours, theirs]) == [
        "environment: PIP_INDEX_URL=http://here",
        "history: HTTPS_PROXY=http://user:secret@proxy",
    ]


@pytest.mark.parametrize(
    ("labels", "found"), [({build.PINS_LABEL: DEEPSPEED.pins_id}, None), ({build.PINS_LABEL: "0" * 12}, "0" * 12), ({}, "(none)"), (None, "(none)")]
)
def test_an_image_of_the_same_packages_that_was_built_from_other_patches_is_told_by_its_label(monkeypatch, tmp_path, labels, found):
    lines = [f"label org.llm-repro.pins-id: pinned {DEEPSPEED.pins_id}, found {found}"] if found else []
    asked = types.SimpleNamespace(attrs={"Config": {"Labels": labels}}, history=lambda: [])
    monkeypatch.setattr(verify, "inspect", lambda client, name: right(DEEPSPEED))
    monkeypatch.setattr(verify, "packages_of_base", lambda client, image: None)
    assert verify.check(types.SimpleNamespace(images={DEEPSPEED.tag: asked}), DEEPSPEED) == lines
    kind = types.SimpleNamespace(output_of=lambda made, environment, command: json.dumps(right(DEEPSPEED)))
    archived = image_files._Archived({}, "sha256:1", {"config": {"Labels": labels, "User": "bench"}}, {})
    assert image_files._differences(kind, DEEPSPEED, tmp_path, archived) == lines


def test_an_image_may_hold_a_compiler_where_its_pins_name_one_and_only_what_came_with_it():
    image = LOADED.image("compiled", "current")
    fitting = right(image)
    with_more = {"debian": [*fitting["debian"], "libc6-dev=2.36"], "debian_added": [*fitting["debian_added"], "libc6-dev=2.36"]}
    assert differences(image, compilers=["/usr/bin/gcc-12"], **with_more) == []
    assert differences(image, debian=[*fitting["debian"], "vim=9"]) == ["Debian package vim=9: not in the base image"]
    other = [line.replace("gcc-12=", "gcc-12=9.9-") for line in fitting["debian"]]
    version = image.debian_pins["gcc-12"].version
    assert f"Debian package gcc-12: 9.9-{version}, pinned {version}" in differences(image, debian=other)
    assert f"Debian package gcc-12: (none), pinned {version}" in differences(image, debian=["libc6=2.36"])
