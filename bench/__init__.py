"""The guest: what runs inside an image (Python >= 3.8, the standard library and what the image pins)."""
