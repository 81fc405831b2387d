"""The versions that images hold: docker/pins.toml, and the locks resolved from it."""

from scripts.pins.model import INPUTS, Image, Pin, Pins, load, reference

__all__ = ["INPUTS", "Image", "Pin", "Pins", "load", "reference"]
