"""The Dockerfile of an image: the sections of docker/Dockerfile.template that it needs, with its values put in."""

from pathlib import Path

from scripts.pins import Image, reference

#: Optional secrets, so that the same Dockerfile builds behind a proxy that brings its own certificates. They leave no trace.
WITH_SECRETS = (
    "--mount=type=secret,id=pip_conf,target=/etc/pip.conf",
    "--mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle",
    "if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi",
)

#: Settings of a build that do not stay in the image. With a fixed date pip makes bytecode that is the same in every build.
ARGUMENTS = (
    "ARG SOURCE_DATE_EPOCH=315532800",
    "ARG PIP_NO_CACHE_DIR=1 PIP_DEFAULT_TIMEOUT=120 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore",
)


def template(root: Path) -> dict[str, str]:
    """Section name -> its lines; a section begins with `#== name`."""
    sections: dict[str, str] = {}
    for part in (root / "docker/Dockerfile.template").read_text(encoding="utf-8").split("#== ")[1:]:
        name, _, body = part.partition("\n")
        sections[name.strip()] = body
    return sections


def text(image: Image, summary: str, sections: dict[str, str]) -> str:
    """The sections that this image needs, with its values put in."""
    body = "".join(sections[name] for name in _names(image.options))
    values = {
        "BACKEND": image.backend,
        "STACK": image.stack,
        "SUMMARY": summary,
        "BASE": image.base,
        "PYTHON": image.python,
        "ADDED_FILES": _added_files(image),
        "CUDA_WHY": image.options.get("cuda_on_library_path", ""),
        "ARGUMENTS": "\n".join(ARGUMENTS),
        "WITH_SECRETS": " \\\n    ".join(WITH_SECRETS),
    }
    for name, value in (values | _compile_values(image)).items():
        body = body.replace(f"@{name}@", value)
    return body


def _names(options: dict) -> list[str]:
    """The sections, in their order."""
    names = ["start", "torch"]
    if "compile" in options:
        compiler, patched = options["compile"]["compiler"], "patches" in options["compile"]
        names += [f"compiler-{compiler}", "compile-tools"] + (["cuda-home-from-wheels"] if compiler == "wheels" else [])
        names += ["patched-source", "compile-environment", "compile-patched"] if patched else ["compile-environment", "compile"]
    names += ["final"] + (["compiled-packages"] if "compile" in options else []) + ["packages"]
    names += ["added-files"] if "added_files" in options else []
    return names + (["cuda-on-library-path"] if "cuda_on_library_path" in options else []) + ["end"]


def _added_files(image: Image) -> str:
    """One line for each file that goes into site-packages from docker/patches."""
    packages = f"/opt/venv/lib/python{image.python}/site-packages"
    files = image.options.get("added_files", {})
    return "\n".join(f"COPY --from=patches --chmod=644 {name} {packages}/{place}" for place, name in files.items())


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
        "COMPILE_ENVIRONMENT": " \\\n    ".join(f'{key}="{value}"' for key, value in table["environment"].items()),
    }
