"""make sbom-<backend>: write a bill of materials (CycloneDX, JSON) of an image to reports/sbom/.

It lists the Python packages with the sha256 of the file that each was installed from, the Debian packages, and the packages that compiled
the kernels. All facts come from the built image.
"""

import json
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from bench.job import write_whole
from scripts.containers.container import connect
from scripts.images import build, verify
from scripts.pins import Image, requirement_files

FOLDER = "reports/sbom"

#: The release of Debian that every base image is made of.
DISTRIBUTION = "debian-12"


def path_of(image: Image) -> Path:
    return image.folder.parents[2] / FOLDER / f"{image.backend}-{image.stack}.cdx.json"


def text(image: Image, content: dict[str, Any], stand_in: bool) -> str:
    """The bill of an image with the content `content` (see docker/inspect_image.py); the same content gives the same bytes."""
    bom = Bom(components=[*_python(content), *_debian(content)])
    bom.metadata.component = Component(
        name=f"llm-repro/{image.backend}",
        version=f"{image.stack}-{image.pins_id}",
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=[
            Property(name="llm-repro:base", value=image.base + (" (stand-in)" if stand_in else "")),
            Property(name="llm-repro:python", value=content["python"]),
            *(Property(name="llm-repro:compiled-with", value=package) for package in content["compiled_with"]),
        ],
    )
    bom.register_dependency(bom.metadata.component, bom.components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["serialNumber"], document["metadata"]["timestamp"]  # they would differ between two bills of the same image
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _python(content: dict[str, Any]) -> list[Component]:
    archives = verify.noted_archives(content)
    components = []
    for installed, version in content["packages"].items():
        name = requirement_files.normalized(installed)
        purl = PackageURL("pypi", None, name, version)
        digest = archives.get(name)
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
        components.append(Component(name=name, version=version, purl=purl, bom_ref=str(purl), hashes=hashes))
    return components


def _debian(content: dict[str, Any]) -> list[Component]:
    components = []
    for line in content["debian"]:
        name, _, version = line.partition("=")
        purl = PackageURL("deb", "debian", name, version, {"distro": DISTRIBUTION})
        components.append(Component(name=name, version=version, purl=purl, bom_ref=str(purl)))
    return components


def write(image: Image) -> Path:
    """Build a missing image, write its bill, and return the bill's path."""
    build.build(image)
    client = connect()
    bill = text(image, verify.inspect(client, image.tag), build.image_facts(client, image)["stand_in"])
    path = path_of(image)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, bill)
    return path
