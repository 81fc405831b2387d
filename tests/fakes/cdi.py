"""Write a CDI spec of simulated GPUs: `python3 tests/fakes/cdi.py COUNT FILE [--uuid]`.

Each GPU is /dev/null under the name /dev/nvidia<index>, so that a test can see from inside a container which GPUs
it was given. Device names are indices, with --uuid also the UUIDs of the fake NVML beside this file.
"""

import json
import sys


def uuid(index: int) -> str:
    """The UUID that nvml.c gives to the GPU of this index."""
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def device(name: str, indices: range) -> dict:
    """One CDI device that brings a node for each of `indices`."""
    nodes = [{"path": f"/dev/nvidia{index}", "hostPath": "/dev/null"} for index in indices]
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


def spec(count: int, with_uuids: bool = False) -> dict:
    """The whole spec: one device per GPU, and `all`."""
    devices = []
    for index in range(count):
        names = [str(index)] + ([uuid(index)] if with_uuids else [])
        devices += [device(name, range(index, index + 1)) for name in names]
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [*devices, device("all", range(count))]}


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as stream:
        json.dump(spec(int(sys.argv[1]), "--uuid" in sys.argv[3:]), stream, indent=1)
