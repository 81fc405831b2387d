"""The Dockerfile of an image: the sections of docker/Dockerfile.template that it needs, with its values."""

from pathlib import Path
from typing import Any

from scripts.pins import Image, reference

#: The mount of docker/build, whose scripts begin and end every RUN whose layer is kept.
WITH_KIT = ("--mount=type=bind,from=kit,target=/run/kit",)

#: Optional secrets, so that the same Dockerfile builds behind a proxy with its own certificates. They leave no trace in the image.
WITH_SECRETS = ("--mount=type=secret,id=pip_conf", "--mount=type=secret,id=ca_bundle", *WITH_KIT)

#: The date of every file in an image: the oldest date that a zip file can hold.
SOURCE_DATE_EPOCH = 315532800

#: Settings of a build that do not stay in the image. With a fixed date and seed pip writes the same bytecode in every build.
#: The base image's pip installs into the environment from outside, so the environment holds only the packages of the lock.
ARGUMENTS = (
    f"ARG SOURCE_DATE_EPOCH={SOURCE_DATE_EPOCH} PYTHONHASHSEED=0 PIP_PYTHON=/opt/venv/bin/python3",
    "ARG PIP_NO_CACHE_DIR=1 PIP_DEFAULT_TIMEOUT=120 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore",
)


def template(root: Path) -> dict[str, str]:
    """Section name -> its lines; a section begins with `#== name`."""
    sections: dict[str, str] = {}
    for part in (root / "docker/Dockerfile.template").read_text(encoding="utf-8").split("#== ")[1:]:
        name, _, body = part.partition("\n")
        sections[name.strip()] = body
    return sections


def text(image: Image, summary: str, sections: dict[str, str], *, shares: bool) -> str:
    """The Dockerfile's text: the sections that the image needs, with its values. `shares`: the image has a shared.txt."""
    body = "".join(sections[name] for name in _names(image.options, shares))
    values = {
        "BACKEND": image.backend,
        "STACK": image.stack,
        "SUMMARY": summary,
        "BASE": image.base,
        "PYTHON": image.python,
        "ADDED_FILES": _added_files(image),
        "CUDA_WHY": image.options.get("cuda_on_library_path", ""),
        "DEBIAN_PACKAGES": " ".join(f"{pin.name}={pin.version}" for pin in image.debian_pins.values()),
        "ARGUMENTS": "\n".join(ARGUMENTS),
        "WITH_KIT": " \\\n    ".join(WITH_KIT),
        "WITH_SECRETS": " \\\n    ".join(WITH_SECRETS),
    }
    for name, value in (values | _compile_values(image)).items():
        body = body.replace(f"@{name}@", value)
    return body


def _names(options: dict[str, Any], shares: bool) -> list[str]:
    """The names of the sections that an image needs, in order."""
    names = ["start", "torch"]
    if "compile" in options:
        compiler = options["compile"]["compiler"]
        names += [f"compiler-{compiler}", "compile-tools"] + (["cuda-home-from-wheels"] if compiler == "wheels" else [])
        names += ["source"] + (["patches"] if "patches" in options["compile"] else []) + ["compile-environment", "compile"]
    names += ["final"] + (["shared-packages"] if shares else []) + (["compiled-packages"] if "compile" in options else []) + ["packages"]
    names += ["added-files"] if "added_files" in options else []
    names += ["debian-packages"] if "debian" in options else []
    return names + (["cuda-on-library-path"] if "cuda_on_library_path" in options else []) + ["end"]


def _added_files(image: Image) -> str:
    """The commands that put files of docker/patches into site-packages."""
    packages = f"/opt/venv/lib/python{image.python}/site-packages"
    files = image.options.get("added_files", {})
    return " && \\\n    ".join(f"install -m 644 /run/patches/{name} {packages}/{place}" for place, name in files.items())


def _compile_values(image: Image) -> dict[str, str]:
    table = image.options.get("compile")
    if not table:
        return {}
    return {
        "COMPILE_WHY": table["why"],
        "COMPILER_BASE": reference(table.get("base", {})),
        "COPIED": " ".join(table.get("copied", [])),
        "PATCHES": " ".join(table.get("patches", [])),
        "PACKAGES": " ".join(table["packages"]),
        "CUDA_HOME": table["cuda_home"],
        "NVCC": table["nvcc"],
        "SOURCE": table["source"],
        "COMPILE_ENVIRONMENT": " \\\n    ".join(f'{key}="{value}"' for key, value in table["environment"].items()),
    }
