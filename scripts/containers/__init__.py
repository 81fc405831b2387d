"""The Docker engine: a job in a container, restricted, watched and removed."""
