"""docker, the library of Docker's interface, which is imported when it is first asked for something.

With what it imports itself it takes a third of the time in which a command answers a wrong value. The modules that use it
have their annotations as text (`from __future__ import annotations`), or these would ask.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docker
    import docker.models.containers
    import docker.models.images
else:

    class _Docker:
        """What the library has, by its name."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("docker"), name)

    docker = _Docker()

__all__ = ["docker"]
