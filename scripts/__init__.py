"""The host: builds images, runs jobs and writes the report (Python >= 3.11). It never measures."""

#: The kit's version: `python -m scripts --version`, results and CITATION.cff carry it.
__version__ = "0.1.0"

#: What Ctrl-C is answered with, here because it may come before any module is imported.
INTERRUPTED = "interrupted; what is stored stays, type the same command again"

#: The same of another signal, with its name: SIGTERM of `kill`, `timeout` or a batch system, SIGHUP of a closed terminal.
STOPPED = "stopped by {}; what is stored stays, type the same command again"
