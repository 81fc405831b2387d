"""Bills of materials: what an image answers is in them, and those that are committed are of the locks."""

import json
import resource

import pytest

from scripts import pins
from scripts.images import build, sbom, verify
from scripts.pins import requirement_files

LOADED = pins.load()
FOUND = {
    "python": "3.8.18",
    "packages": {"Jinja2": "3.1.2", "PyYAML": "6.0", "torch": "1.13.1"},
    "archives": {"Jinja2": "cd" * 32, "torch": "ab" * 32},
    "debian": ["libc6=2.36-9+deb12u10"],
    "compiled_with": ["gcc-11=11.3.0-12"],
}


def test_a_bill_names_every_package_with_its_file_and_the_base():
    said = json.loads(sbom.text(LOADED.image("deepspeed", "2023-02"), FOUND, stand_in=True))
    assert (said["bomFormat"], said["specVersion"]) == ("CycloneDX", "1.6")
    components = {one["purl"]: one for one in said["components"]}
    debian = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?distro=debian-12"
    assert set(components) == {"pkg:pypi/jinja2@3.1.2", "pkg:pypi/pyyaml@6.0", "pkg:pypi/torch@1.13.1", debian}
    assert components["pkg:pypi/jinja2@3.1.2"]["name"] == "jinja2"
    assert components["pkg:pypi/jinja2@3.1.2"]["hashes"] == [{"alg": "SHA-256", "content": "cd" * 32}]
    assert components["pkg:pypi/torch@1.13.1"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert "hashes" not in components["pkg:pypi/pyyaml@6.0"], "its file is not known"
    assert {one["ref"]: one.get("dependsOn", []) for one in said["dependencies"]} == {"image": sorted(components), **dict.fromkeys(components, [])}
    of_image = LOADED.image("deepspeed", "2023-02")
    named = {"name": "llm-repro/deepspeed", "version": f"2023-02-{of_image.pins_id}", "type": "container", "bom-ref": "image"}
    found = {"llm-repro:base": f"{of_image.base} (stand-in)", "llm-repro:python": "3.8.18", "llm-repro:compiled-with": "gcc-11=11.3.0-12"}
    properties = [{"name": name, "value": value} for name, value in sorted(found.items())]
    assert said["metadata"]["component"] == {**named, "properties": properties} and of_image.base == "python:3.8-slim-bookworm"


def test_the_same_image_gives_the_same_bill():
    image = LOADED.image("int8", "2023-02")
    bill = sbom.text(image, FOUND, stand_in=False)
    assert bill == sbom.text(image, FOUND, stand_in=False) == json.dumps(json.loads(bill), indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize("stand_in", [True, False])
def test_a_bill_is_written_of_the_image_that_is_built_and_replaces_an_earlier_one_whole(monkeypatch, tmp_path, stand_in):
    image, done = LOADED.image("int8", "2023-02"), []
    path = tmp_path / "sbom" / "int8-2023-02.cdx.json"
    monkeypatch.setattr(sbom, "path_of", lambda image: path)
    monkeypatch.setattr(sbom, "connect", lambda: "engine")
    monkeypatch.setattr(build, "build", lambda image: done.append(image.tag))
    monkeypatch.setattr(build, "image_facts", lambda client, image: {"stand_in": stand_in} if (client, done) == ("engine", [image.tag]) else {})
    monkeypatch.setattr(verify, "inspect", lambda client, tag: FOUND if (client, done) == ("engine", [tag]) else {})
    assert sbom.write(image) == path and path.read_text(encoding="utf-8") == sbom.text(image, FOUND, stand_in)
    assert sbom.text(image, FOUND, True) != sbom.text(image, FOUND, False)

    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    done.clear()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            sbom.write(image)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert path.read_text(encoding="utf-8") == sbom.text(image, FOUND, stand_in), "a full disk leaves the bill as it was"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("image", [image for image in LOADED.images() if sbom.path_of(image).exists()], ids=lambda image: f"{image.backend}-{image.stack}")
def test_a_committed_bill_is_of_the_lock_unless_it_says_that_it_is_of_another(image):
    said = json.loads(sbom.path_of(image).read_text())
    if said["metadata"]["component"]["version"] != f"{image.stack}-{image.pins_id}":
        pytest.skip("of an earlier image; `make sbom-…` writes it anew")
    held = {one["name"]: one for one in said["components"] if one["purl"].startswith("pkg:pypi/")}
    assert {name: one["version"].partition("+")[0] for name, one in held.items()} == image.locked()
    blocks, compiled = requirement_files.blocks(image.lock_text()), image.options.get("compile", {}).get("source")
    assert [name for name, one in held.items() if name != compiled and f"sha256:{one['hashes'][0]['content']}" not in blocks[name]] == []
