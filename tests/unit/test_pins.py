"""docker/pins.toml: what it promises of every image, and how it speaks of what is not there."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from scripts import paths, pins
from scripts.errors import KitError, UsageError
from scripts.pins import requirement_files

LOADED = pins.load()
EVERY_IMAGE = [LOADED.image(backend, stack) for backend, table in LOADED.backends.items() for stack in table["stacks"]]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the files in docker/ itself to spoil, without the folders of the images."""
    shutil.copytree(paths.ROOT / "docker", tmp_path / "docker", ignore=lambda folder, names: [name for name in names if (Path(folder) / name).is_dir()])
    return tmp_path


@pytest.fixture
def whole_copy(tmp_path: Path) -> Path:
    """A copy of docker/ to spoil."""
    shutil.copytree(paths.ROOT / "docker", tmp_path / "docker")
    return tmp_path


def edit(root: Path, old: str, new: str) -> None:
    path = root / "docker/pins.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("image", EVERY_IMAGE, ids=lambda image: f"{image.backend}-{image.stack}")
def test_the_lock_of_every_image_holds_its_pins(image):
    locked = image.locked()
    assert {name: locked.get(name) for name in image.pins} == {name: pin.version for name, pin in image.pins.items()}


@pytest.mark.parametrize("image", EVERY_IMAGE, ids=lambda image: f"{image.backend}-{image.stack}")
def test_every_package_of_every_lock_has_a_hash(image):
    assert [name for name, block in requirement_files.blocks(image.lock_text()).items() if "--hash=sha256:" not in block] == []


def test_the_articles_versions_are_in_their_images():
    stated = {"transformers": "4.26.0", "tensor-parallel": "1.0.24", "deepspeed": "0.7.7", "bminf": "2.0.1"}
    for backend, package in (("layer-parallel", "transformers"), ("tensor-parallel", "tensor-parallel"), ("deepspeed", "deepspeed"), ("bminf", "bminf")):
        pin = LOADED.image(backend, "2023-02").pins[package]
        assert (pin.version, pin.origin) == (stated[package], "stated")


def test_an_unknown_backend_is_named_with_those_there_are():
    with pytest.raises(UsageError, match=f"there is no backend 'nope', allowed are {', '.join(LOADED.backends)}"):
        LOADED.image("nope", "current")


def test_an_unknown_stack_is_named_with_those_there_are():
    with pytest.raises(UsageError, match=f"STACK is '2019', allowed are {', '.join(LOADED.stacks)}; try"):
        LOADED.image("int8", "2019")


@pytest.mark.parametrize(
    ("backend", "stack", "near"),
    [
        ("int8", "hoper", "try STACK=hopper$"),
        ("int8", "2023-2", "try STACK=2023-02$"),
        ("int8", "mine", "try STACK=current$"),
        ("depspeed", "current", "try deepspeed;"),
    ],
)
def test_a_misspelled_backend_or_stack_gets_the_nearest_name(backend, stack, near):
    with pytest.raises(UsageError, match=near):
        LOADED.image(backend, stack)


def test_a_backend_that_is_not_in_a_stack_says_where_it_is(copy):
    with (copy / "docker/pins.toml").open("a") as file:
        file.write('\n[backend.new]\nsummary = "a test"\nstacks = ["2023-02", "current"]\n')
    with pytest.raises(UsageError, match="STACK is 'demo', new has 2023-02, current; try STACK=2023-02"):
        pins.load(copy).image("new", "demo")


NEEDS = "transformers needs a version, an origin (stated, derived, chosen) and a why"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('origin = "stated", why = "named in the article" }', 'origin = "stated", why = "" }', NEEDS),
        ('origin = "stated"', 'origin = "statd"', "the origin of transformers is 'statd', allowed are stated, derived, chosen; try stated"),
        ('origin = "stated", ', "", NEEDS),
    ],
)
def test_a_pin_without_origin_or_reason_is_refused(copy, old, new, words):
    edit(copy, old, new)
    with pytest.raises(KitError, match=re.escape(f"[stack.2023-02]: {words}")):
        pins.load(copy)


def test_a_stack_of_a_backend_that_the_file_does_not_have_is_named_with_its_table(copy):
    edit(copy, '"current", "demo"]', '"curent", "demo"]')
    with pytest.raises(KitError, match=r"docker/pins.toml, \[backend.transformers\]: stacks names 'curent', allowed are 2023-02, .*; write 'current'"):
        pins.load(copy)


def test_broken_toml_is_one_line_with_its_place(copy):
    edit(copy, "[host]", "[host")
    with pytest.raises(KitError, match=r"pins.toml: .*line"):
        pins.load(copy)


def test_a_missing_lock_says_what_to_type(whole_copy):
    (whole_copy / "docker/int8/current/requirements.txt").unlink()
    with pytest.raises(KitError, match="docker/int8/current/requirements.txt is missing: type make lock BACKEND=int8, then make render"):
        pins.load(whole_copy).image("int8", "current").locked()


@pytest.mark.parametrize("name", ["Dockerfile", "requirements.txt", "torch.txt", "compile.txt", "source.txt"])
def test_a_changed_file_gives_another_image_name(whole_copy, name):
    image = pins.load(whole_copy).image("deepspeed", "2023-02")
    before = image.tag
    with open(image.folder / name, "a") as file:
        file.write("# changed\n")
    assert image.tag != before


def test_another_base_image_gives_another_image_name(copy):
    before = pins.load(copy).image("int8", "current").pins_id
    edit(copy, "python:3.12-slim-bookworm", "python:3.12-slim-trixie")
    assert pins.load(copy).image("int8", "current").pins_id != before


@pytest.mark.parametrize("name", ["deepspeed-0.7.7-cuda12.patch", "torch_six.py"])
def test_a_changed_patch_gives_the_images_that_use_it_another_name_and_no_other(whole_copy, name):
    before = {(image.backend, image.stack): image.tag for image in pins.load(whole_copy).images()}
    with open(whole_copy / "docker/patches" / name, "a") as file:
        file.write("# changed\n")
    after = {(image.backend, image.stack): image.tag for image in pins.load(whole_copy).images()}
    assert [key for key in before if before[key] != after[key]] == [("deepspeed", "hopper")]


def test_the_base_that_a_compiler_comes_from_needs_an_origin_too(copy):
    edit(copy, 'base = { version = "debian:trixie-slim", origin = "derived"', 'base = { version = "debian:trixie-slim", origin = ""')
    with pytest.raises(KitError, match=r"\[backend.deepspeed.2024-06.compile\]: base needs a version, an origin"):
        pins.load(copy)


def test_a_debian_package_needs_an_origin_too(copy):
    edit(copy, 'gcc-12 = { version = "12.2.0-14+deb12u1", origin = "derived"', 'gcc-12 = { version = "12.2.0-14+deb12u1", origin = ""')
    with pytest.raises(KitError, match=r"\[backend.compiled.current.debian\]: gcc-12 needs a version, an origin"):
        pins.load(copy)


def test_two_backends_of_one_environment_may_not_want_two_versions(copy):
    edit(copy, "[backend.int8.demo.pins]\n", '[backend.int8.demo.pins]\ntransformers = { version = "5.0.0", origin = "chosen", why = "x" }\n')
    with pytest.raises(KitError, match="int8 pins transformers 5.0.0 in the environment 'common', which has 5.17.0"):
        pins.load(copy).environment_pins("common")


def test_a_cpu_lock_has_the_cpu_build_of_torch_and_nothing_of_cuda():
    full = LOADED.image("transformers", "demo").lock_text()
    cpu = requirement_files.cpu_only(full)
    names = requirement_files.versions(cpu)
    assert names["torch"] == requirement_files.versions(full)["torch"] + "+cpu"
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))]
    assert all(digest in requirement_files.blocks(cpu)["torch"] for digest in LOADED.stacks["demo"]["cpu_wheels"].values())
    assert set(requirement_files.versions(full)) - set(names) >= {"triton", "nvidia-cublas"}


def test_a_backend_may_be_the_same_as_another_one_on_a_stack():
    zero, kernels = LOADED.image("deepspeed-zero", "2023-05"), LOADED.image("deepspeed", "2023-05")
    assert (zero.pins, zero.options, zero.lock_text()) == (kernels.pins, kernels.options, kernels.lock_text())
    assert zero.tag != kernels.tag


@pytest.mark.parametrize("wrong", ['"nope"', '"bminf"', '"deepspeed-zero"', '"deepspeed"\nadded_files = {}'])
def test_the_same_as_nothing_or_as_itself_is_refused(copy, wrong):
    edit(copy, '[backend.deepspeed-zero.2023-05]\nsame_as = "deepspeed"', f"[backend.deepspeed-zero.2023-05]\nsame_as = {wrong}")
    with pytest.raises(KitError, match=r"\[backend.deepspeed-zero.2023-05\]: same_as is"):
        pins.load(copy)


def test_two_backends_that_are_the_same_as_each_other_are_refused(copy):
    edit(copy, "[backend.deepspeed-zero]", '[backend.deepspeed.2023-05]\nsame_as = "deepspeed-zero"\n\n[backend.deepspeed-zero]')
    with pytest.raises(KitError, match="same_as is '.*', allowed are a backend that has this stack without same_as, and no other key here"):
        pins.load(copy)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[backend.vllm]", '[backend."/etc"]\nsummary = "x"\nstacks = []\n\n[backend.vllm]', r"\[backend\]: unknown key '/etc'"),
        ("[backend.vllm]", '[backend."../x"]\nsummary = "x"\nstacks = []\n\n[backend.vllm]', r"\[backend\]: unknown key '../x'"),
        ('"torch_six.py"', '"/dev/zero"', r"\[backend.deepspeed.hopper.added_files.torch/_six.py\]: '/dev/zero': allowed are letters"),
        ('"deepspeed-0.7.7-cuda12.patch"', '"../../x.patch"', r"\[backend.deepspeed.hopper.compile.patches\[0\]\]: '../../x.patch': allowed are letters"),
        ('environment = "tensor-parallel"', 'environment = "../x"', r"\[backend.tensor-parallel.demo.environment\]: '../x': allowed are letters"),
    ],
)
def test_a_name_of_the_pins_that_would_lead_elsewhere_is_refused(copy, old, new, message):
    edit(copy, old, new)
    with pytest.raises(KitError, match=message):
        pins.load(copy)


NEW = '[backend.{}]\nsummary = "x"\nstacks = {}\n\n'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (NEW.format("MyEngine", "[]"), r"\[backend.MyEngine\]: a backend's name has small letters, digits and '-'.*; write 'myengine'"),
        (NEW.format("my_engine", "[]"), "write 'my-engine'"),
        (NEW.format("mine", '["demo", "demo"]'), "stacks names 'demo' twice; write each stack once"),
        (NEW.format("mine", '["curent"]') + "[backend.mine.current.pins]\n", "stacks names 'curent', allowed are .*; write 'current'"),
        (
            NEW.format("mine", '["demo"]') + '[backend.mine.demo]\nenvironment = "mine"\n',
            r"environment is 'mine', allowed are common, .*\[stack.demo.environments\]",
        ),
        (
            NEW.format("mine", '["demo"]') + '[backend.mine.demo.pins]\nx = { version = ">=1", origin = "chosen", why = "y" }\n',
            "the version of x is '>=1', allowed is one version, such as 1.2.3",
        ),
        (NEW.format("mine", '["demo"]') + '[backend.mine.demo.pins]\nx = "1"\n', r"\[backend.mine.demo.pins.x\]: '1': Expected `object`, got `str`"),
        ("[backend.vllm]\n\n", "^docker/pins.toml: not TOML: "),
    ],
)
def test_a_mistake_in_a_new_backend_is_one_line_that_says_what_is_allowed(copy, table, message):
    edit(copy, "[backend.vllm]", table + "[backend.vllm]")
    with pytest.raises(KitError, match=message) as caught:
        pins.load(copy)
    assert "\n" not in str(caught.value)


SLIM = 'base = { version = "python:3.8-slim-bookworm", origin'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('engine = "docker"', 'engine = "dokcer"', r"\[stack.2023-02\]: engine is 'dokcer', allowed are docker, host; write 'docker'"),
        (SLIM, "base = {}\n#", r"\[stack.2023-02\]: there is no base, and the images of a stack with the engine docker are built on one"),
        ('digest = ""', 'digest = "sha256:ab"', r"\[stack.2023-02.base.digest\]: 'sha256:ab': "),
        ('compiler = "debian"', 'compiler = "debain"', r"\[backend.deepspeed.2023-02.compile\]: compiler is 'debain', allowed are .*; write 'debian'"),
        ('source = "deepspeed"', 'source = "deepsped"', r"compile\]: source is 'deepsped', allowed are deepspeed, pydantic; write 'deepspeed'"),
        ('base = { version = "debian:', '# { version = "debian:', r"\[backend.deepspeed.2024-06.compile\]: there is no base, and a copied compiler needs "),
        ('cuda_home = "/usr"\n', "", r"\[backend.deepspeed.2023-02.compile\]: Object missing required field `cuda_home`"),
        ('nvcc = "11.8"\n', "", r"\[backend.deepspeed.2023-02.compile\]: Object missing required field `nvcc`"),
    ],
)
def test_a_value_that_would_leave_a_part_out_of_an_image_is_one_line_that_says_what_is_allowed(copy, old, new, message):
    edit(copy, old, new)
    with pytest.raises(KitError, match=message) as caught:
        pins.load(copy)
    assert "\n" not in str(caught.value)


def test_pins_that_were_edited_after_their_lock_are_told_before_anything_runs(whole_copy):
    pins.load(whole_copy).image("int8", "demo").refuse_other_lock()
    edit(
        whole_copy,
        'bitsandbytes = { version = "0.50.2", origin = "chosen", why = "as in',
        'bitsandbytes = { version = "0.50.3", origin = "chosen", why = "as in',
    )
    words = "^docker/demo/common/requirements.txt has bitsandbytes 0.50.2, docker/pins.toml 0.50.3; type make lock BACKEND=int8, then make render"
    with pytest.raises(KitError, match=words):
        pins.load(whole_copy).image("int8", "demo").refuse_other_lock()


def test_a_pin_and_its_lock_may_spell_name_and_version_differently(whole_copy):
    image = pins.load(whole_copy).image("int8", "demo")
    pin = image.pins["bitsandbytes"]
    longer = dataclasses.replace(pin, name="BitsAndBytes", version=f"{pin.version}.0")
    dataclasses.replace(image, pins={"bitsandbytes": longer}).refuse_other_lock()
    other = dataclasses.replace(longer, version=f"{pin.version}0")
    with pytest.raises(KitError, match="requirements.txt has BitsAndBytes"):
        dataclasses.replace(image, pins={"bitsandbytes": other}).refuse_other_lock()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('exclude_newer = "', 'exclude_newr = "', r"\[host\]: unknown key 'exclude_newr'; did you mean 'exclude_newer'"),
        (
            "[host.pins.run]",
            '[host.pins.run]\nextra = { version = "1", origin = "chosen", why = "x", wyh = "y" }\n',
            r"\[host.pins.run.extra\]: unknown key 'wyh'",
        ),
        (
            "[backend.int8.current.pins]",
            "[backend.int8.curent]\nx = 1\n[backend.int8.current.pins]",
            r"\[backend.int8\]: unknown key 'curent'; did you mean 'current'",
        ),
        ("[backend.int8.current.pins]", "[backend.int8.current.pin]", r"\[backend.int8.current\]: unknown key 'pin'; did you mean 'pins'"),
        ('nvcc = "', 'nvc = "', r"\[backend.deepspeed.2023-02.compile\]: unknown key 'nvc'; did you mean 'nvcc'"),
        ('cuda = "', 'arch_lst = "', r"\[stack.2023-02\]: unknown key 'arch_lst'; did you mean 'arch_list'"),
    ],
)
def test_a_key_of_the_pins_that_nothing_reads_is_one_line_with_its_table_and_the_nearest_key(copy, old, new, message):
    edit(copy, old, new)
    with pytest.raises(KitError, match=message) as caught:
        pins.load(copy)
    assert str(caught.value).startswith("docker/pins.toml") and "\n" not in str(caught.value)
