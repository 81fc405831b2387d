"""One module for each backend: `layer-parallel` is `layer_parallel.py`."""
