"""Which versions an image holds: docker/pins.toml, the locks resolved from it."""

from scripts.pins.model import (
    INPUTS,
    ORIGINS,
    Image,
    Pin,
    Pins,
    load,
    reference,
)

__all__ = [
    "INPUTS",
    "Image",
    "ORIGINS",
    "Pin",
    "Pins",
    "load",
    "reference",
]
