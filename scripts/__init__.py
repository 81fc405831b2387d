"""The host: builds images, runs jobs and writes the report (Python >= 3.11). It never measures."""

#: The kit's version: `python -m scripts --version`, results and CITATION.cff carry it.
__version__ = "0.1.0"

#: The answer to Ctrl-C; it stands here because Ctrl-C may come before other modules are imported.
INTERRUPTED = "interrupted; stored files stay; type the same command again"

#: The answer to another signal, by its name: SIGTERM from `kill`, `timeout` or a batch system, SIGHUP from a closed terminal.
STOPPED = "stopped by {}; stored files stay; type the same command again"
