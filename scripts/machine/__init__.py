"""This machine: its GPUs, locks, signals and files."""
