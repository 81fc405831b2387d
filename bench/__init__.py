"""The guest: the code that runs inside an image (Python >= 3.8, with the standard library and the image's pinned packages)."""
