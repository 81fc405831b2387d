"""The Dockerfile of an image: the sections of docker/Dockerfile.template that it needs, with its values."""

import functools
from typing import TYPE_CHECKING

from scripts.pins import Image, reference

if TYPE_CHECKING:
    import jinja2

#: The template, of Jinja2.
TEMPLATE = "docker/Dockerfile.template"

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


def text(image: Image, summary: str, template: str, *, shares: bool) -> str:
    """The Dockerfile's text: the sections of the template that the image needs, with its values. `shares`: the image has a shared.txt."""
    site_packages = f"/opt/venv/lib/python{image.python}/site-packages"
    compiled = image.options.get("compile")
    added = image.options.get("added_files", {}).items()
    return _compiled(template).render(
        image=image,
        summary=summary,
        shares=shares,
        compile=compiled,
        compile_environment=[f'{name}="{value}"' for name, value in compiled["environment"].items()] if compiled else [],
        reference=reference,
        added_files=[f"install -m 644 /run/patches/{name} {site_packages}/{place}" for place, name in added],
        debian_packages=[f"{pin.name}={pin.version}" for pin in image.debian_pins.values()],
        cuda_why=image.options.get("cuda_on_library_path", ""),
        arguments=ARGUMENTS,
        with_kit=" \\\n    ".join(WITH_KIT),
        with_secrets=" \\\n    ".join(WITH_SECRETS),
    )


@functools.cache
def _compiled(template: str) -> "jinja2.Template":
    import jinja2  # here, so that only rendering waits for it

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string(template)
