"""docker, the library of Docker's interface, imported at its first use.

Its import would take a third of the time in which a command answers a wrong value. The modules that use it keep their annotations
as text (`from __future__ import annotations`), because evaluated annotations would import it at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docker
    import docker.models.containers
    import docker.models.images
else:

    class _Docker:
        """Looks each name up in the library."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("docker"), name)

    docker = _Docker()

__all__ = ["docker"]
