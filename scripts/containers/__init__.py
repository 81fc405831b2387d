"""The Docker engine: run a job in a restricted container, watch it, remove it."""
