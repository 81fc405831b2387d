"""scripts/images/render.py: generated files follow from pins.toml and the locks, and `--check` finds every one that does not."""

import shutil
from pathlib import Path

import pytest
import yaml

from scripts import paths, pins
from scripts.errors import KitError
from scripts.images import marked_sections, pin_tables, render
from scripts.pins import resolve


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that rendering reads and writes, to spoil."""
    shutil.copytree(paths.ROOT / "docker", tmp_path / "docker")
    shutil.copytree(paths.ROOT / "scripts/requirements", tmp_path / "scripts/requirements")
    (tmp_path / "reports").mkdir()
    for name in ("compose.yaml", "reports/images.json"):
        if (paths.ROOT / name).exists():
            shutil.copy(paths.ROOT / name, tmp_path / name)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_images_of_a_stack_with_one_torch_and_different_files_of_it_share_no_layer_which_is_told(copy: Path) -> None:
    loaded = pins.load(copy)
    assert render._torch_problems(loaded) == []
    edit(loaded.image("tensor-parallel", "2023-05").folder / "torch.txt", "sha256:", "sha256:0")
    (problem,) = render._torch_problems(loaded)
    assert problem.startswith("stack 2023-05: backends with the same torch have different files torch.txt: ") and " | tensor-parallel" in problem


def test_what_is_committed_is_what_pins_toml_gives():
    assert render.problems(pins.load()) == []


def test_a_check_fails_with_every_file_that_differs_and_render_writes_these_and_no_other(copy, monkeypatch, capsys):
    here = pins.load(copy)
    monkeypatch.setattr(pins, "load", lambda: here)
    render.check()
    render.write()
    assert capsys.readouterr().out == "nothing to write\n"
    edit(copy / "compose.yaml", "read_only: true", "read_only: false")
    edit(copy / "docker/int8/current/torch.txt", "--hash=sha256:", "--hash=sha256:0")
    (copy / "docker/bminf/current/Dockerfile").unlink()
    with pytest.raises(KitError, match="^generated files and docker/pins.toml disagree:\n") as told:
        render.check()
    spoilt = ["compose.yaml", "docker/int8/current/torch.txt", "docker/bminf/current/Dockerfile"]
    assert all(f"\n  {name}: is not what pins.toml and the locks give (make render)" in str(told.value) for name in spoilt)
    render.write()
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"{name}: written" for name in spoilt)
    render.check()


def test_a_changed_package_of_the_compiler_is_named(copy):
    edit(copy / "docker/pins.toml", '"g++-11", "gcc-11", "make"]', '"g++-11", "gcc-10", "make"]')
    found = [line for line in render.problems(pins.load(copy)) if line.startswith("docker/deepspeed/2023-02/Dockerfile: ")]
    assert len(found) == 1 and "g++-11 gcc-11 make" in found[0] and "g++-11 gcc-10 make" in found[0]


def test_a_changed_hash_of_any_package_is_named_with_its_lock(copy):
    edit(copy / "docker/bminf/2023-02/requirements.txt", "numpy==1.24.2 \\\n    --hash=sha256:", "numpy==1.24.2 \\\n    --hash=sha256:0")
    found = render.problems(pins.load(copy))
    assert "docker/bminf/2023-02/requirements.txt: numpy==1.24.2 has other hashes than in the other locks (make lock)" in found


def test_a_lock_that_nothing_makes_any_more_is_named(copy):
    (copy / "docker/bminf/current/shared.txt").write_text("idna==3.6\n")
    assert "docker/bminf/current/shared.txt: no command writes it any more (git rm docker/bminf/current/shared.txt)" in render.problems(pins.load(copy))


def test_rendering_twice_gives_the_same_bytes(copy):
    loaded = pins.load(copy)
    assert render.expected(loaded) == render.expected(loaded)
    assert render.compose(loaded) == render.compose(loaded)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("docker/int8/current/Dockerfile", "USER bench", "USER root"),
        ("docker/int8/current/torch.txt", "--hash=sha256:", "--hash=sha256:0"),
        ("compose.yaml", "read_only: true", "read_only: false"),
    ],
)
def test_a_hand_edited_file_is_named(copy, name, old, new):
    edit(copy / name, old, new)
    assert any(line.startswith(f"{name}: is not what pins.toml and the locks give (make render)") for line in render.problems(pins.load(copy)))


def test_a_changed_hash_in_a_lock_is_noticed(copy):
    edit(copy / "docker/int8/current/requirements.txt", "torch==2.11.0 \\\n    --hash=sha256:", "torch==2.11.0 \\\n    --hash=sha256:0")
    found = render.problems(pins.load(copy))
    assert any("docker/int8/current/torch.txt" in line for line in found)
    assert any("compose.yaml" in line for line in found)


def test_one_pass_gives_the_files_of_the_images_and_the_tags_that_follow_from_them(copy):
    before = pins.load(copy).image("int8", "current").tag
    edit(copy / "docker/Dockerfile.template", "WORKDIR /kit", "WORKDIR  /kit")
    resolve.write_all(render.expected(pins.load(copy)))
    assert pins.load(copy).image("int8", "current").tag != before
    assert render.problems(pins.load(copy)) == []


def test_a_changed_pin_is_noticed_with_both_versions(copy):
    edit(copy / "docker/pins.toml", 'bitsandbytes = { version = "0.37.0"', 'bitsandbytes = { version = "0.37.1"')
    assert "docker/int8/2023-02/requirements.txt: has bitsandbytes 0.37.0, pins.toml 0.37.1 (make lock)" in render.problems(pins.load(copy))


@pytest.mark.parametrize(
    ("old", "new", "lock", "problem"),
    [
        ('exclude_newer = "2024-06-01"', 'exclude_newer = "2024-03-01"', "docker/int8/2024-06/requirements.txt", "nothing newer than 2024-03-01"),
        ('python = { version = "3.12"', 'python = { version = "3.13"', "docker/deepspeed/current/compile.txt", "Python 3.13, x86_64-manylinux_2_28"),
        ('python = ">=3.11"', 'python = ">=3.12"', "scripts/requirements/dev.txt", "Python >= 3.12, every platform"),
        ('= "6746dbcbeb52', '= "0000dbcbeb52', "docker/demo/common/requirements.txt", "torch lacks the sha256 0000dbcbeb52… of pins.toml (make lock)"),
    ],
    ids=["date", "Python", "Python of the tools", "sha256 of a CPU build"],
)
def test_a_lock_that_was_made_for_another_date_or_python_or_build_is_noticed(copy, old, new, lock, problem):
    edit(copy / "docker/pins.toml", old, new)
    assert any(line.startswith(f"{lock}: ") and problem in line for line in render.problems(pins.load(copy)))


def test_a_pin_whose_name_and_version_the_index_spells_differently_is_no_problem(copy):
    before = 'tensor-parallel = { version = "2.0.0", origin = "derived"'
    edit(copy / "docker/pins.toml", before, before.replace("tensor-parallel", "Tensor_Parallel").replace("2.0.0", "2.0"))
    assert render._lock_problems(pins.load(copy)) == []


def test_a_misspelled_pin_is_told_with_its_lock(copy):
    edit(copy / "docker/pins.toml", 'torch = { version = "2.3.0"', 'torhc = { version = "2.3.0"')
    assert "docker/int8/2024-06/requirements.txt: has torhc (absent), pins.toml 2.3.0 (make lock)" in render.problems(pins.load(copy))


def test_a_lock_without_hashes_is_noticed(copy):
    with open(copy / "docker/int8/2023-02/requirements.txt", "a") as file:
        file.write("sneaked==1.0\n")
    assert "docker/int8/2023-02/requirements.txt: sneaked has no hash (make lock)" in render.problems(pins.load(copy))


def test_images_of_a_stack_share_their_torch_layer(copy):
    layers = {image.stack: set() for image in pins.load(copy).images()}
    for image in pins.load(copy).images():
        before_final = (image.folder / "Dockerfile").read_text().partition("FROM ${BASE_IMAGE}")[2].partition("\nFROM ")[0]
        layers[image.stack].add((before_final.partition("\n#")[0], (image.folder / "torch.txt").read_text()))
    assert {stack: len(found) for stack, found in layers.items()} == dict.fromkeys(layers, 1)


def test_no_dockerfile_leaves_a_placeholder_or_pulls_a_frontend():
    for image in pins.load().images():
        text = (image.folder / "Dockerfile").read_text()
        compiler_base = pins.reference(image.options.get("compile", {}).get("base", {}))
        assert "@" not in text.replace(image.base, "").replace(compiler_base, "")
        assert "# syntax=" not in text
        assert "--require-hashes --no-deps" in text
        assert text.rstrip().endswith("USER bench\nWORKDIR /kit")


def test_the_compiler_stays_out_of_the_final_image():
    for stack in ("2023-02", "hopper", "current"):
        final = (pins.load().image("deepspeed", stack).folder / "Dockerfile").read_text().rpartition("\nFROM ")[2]
        assert "apt-get" not in final
        assert "from=compiler" not in final


def test_a_debian_package_that_an_image_runs_with_is_installed_in_its_pinned_version_after_all_layers_that_images_share(copy):
    text = (copy / "docker/compiled/current/Dockerfile").read_text()
    version = pins.load(copy).image("compiled", "current").debian_pins["g++-12"].version
    assert f" g++-12={version}" in text and text.index("requirements.txt") < text.index("apt-get install")
    edit(copy / "docker/pins.toml", f'"g++-12" = {{ version = "{version}"', '"g++-12" = { version = "12.9"')
    found = [line for line in render.problems(pins.load(copy)) if line.startswith("docker/compiled/current/Dockerfile: ")]
    assert len(found) == 1 and "g++-12=12.9" in found[0]


def test_cuda_packages_that_came_with_a_backend_stay_out_of_the_layer_that_a_stack_shares(copy):
    lock = copy / "docker/int8/current/requirements.txt"
    lock.write_text(lock.read_text() + "nvidia-cutlass-dsl==4.3.0 \\\n    --hash=sha256:ab\n")
    image = pins.load(copy).image("int8", "current")
    layer = render.image_files(pins.load(copy), image)[image.folder / "torch.txt"]
    assert layer == (copy / "docker/transformers/current/torch.txt").read_text()


def test_a_patched_source_is_checked_first_and_compiled_afterwards(copy):
    text = (copy / "docker/deepspeed/hopper/Dockerfile").read_text()
    steps = ["pip download --require-hashes", "patch -p1 < /run/patches/", "pip wheel --no-index"]
    assert sorted(steps, key=text.index) == steps
    assert "pip wheel --require-hashes" not in text


def test_an_added_file_goes_into_the_image_that_runs(copy):
    final = (copy / "docker/deepspeed/hopper/Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert "install -m 644 /run/patches/torch_six.py /opt/venv/lib/python3.11/site-packages/torch/_six.py" in final


@pytest.mark.parametrize("name", ["deepspeed-0.7.7-cuda12.patch", "torch_six.py"])
def test_a_missing_patch_is_named_with_the_image_that_wants_it(copy, name):
    (copy / "docker/patches" / name).unlink()
    found = render.problems(pins.load(copy))
    assert f"docker/patches/{name}: is missing, and deepspeed on the stack hopper is built with it (git checkout docker/patches)" in found


def test_compose_gives_every_image_as_a_restricted_service():
    services = yaml.safe_load((paths.ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {f"{image.backend}-{image.stack}" for image in pins.load().images()}
    for service in services.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["network_mode"] == "none"
        assert service["user"] == "10001:10001" and all(volume.endswith(":ro") for volume in service["volumes"])
        assert service["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_a_new_backend_needs_one_table_and_its_lock(copy):
    with open(copy / "docker/pins.toml", "a") as file:
        file.write('\n[backend.new]\nsummary = "a test"\nstacks = ["current", "demo"]\n')
    (copy / "docker/new/current").mkdir(parents=True)
    shutil.copy(copy / "docker/transformers/current/requirements.txt", copy / "docker/new/current")
    loaded = pins.load(copy)
    assert copy / "docker/new/current/Dockerfile" in render.expected(loaded)
    assert "new-current:" in render.compose(loaded)
    assert "new" in [image.backend for image in loaded.environments()["common"]]
    assert "| `new` | a test | current, demo |" in pin_tables.tables(loaded)


def test_the_page_gets_its_tables_between_the_markers():
    begin, end = marked_sections.pair("pins")
    text = pin_tables.put_in(f"above\n{begin}\nold\n{end}\nbelow\n", pins.load())
    assert text.startswith("above\n") and text.endswith(f"{end}\nbelow\n") and "\nold\n" not in text
    assert "| transformers | 4.26.0 | stated |" in text


def test_a_page_without_markers_says_which_to_put_in():
    with pytest.raises(KitError, match="pins:begin"):
        pin_tables.put_in("no markers", pins.load())


def test_a_missing_page_is_no_problem(copy):
    (copy / "docker/README.md").unlink()
    assert render.problems(pins.load(copy)) == []


def test_a_folder_that_pins_toml_does_not_know_is_named(copy):
    (copy / "docker/gone/current").mkdir(parents=True)
    (copy / "docker/gone/current/Dockerfile").write_text("FROM scratch\n")
    assert "docker/gone/current: is not in pins.toml (git rm -r docker/gone/current)" in render.problems(pins.load(copy))
