"""The host: builds images, runs jobs and writes the report (Python >= 3.11). It never measures."""

#: The kit's version: `python -m scripts --version`, results and CITATION.cff carry it.
__version__ = "0.1.0"
