"""Containers: run a job in a restricted one (Docker, Podman, Apptainer, pyxis), watch it, remove it."""
