"""A job and a result as the tests start from them."""

import types
from pathlib import Path

from bench.job import Job, Result


class AnEngineWithoutGpus:
    """As much of an engine as a measurement asks for beside `run`."""

    gpus = ()
    cores = ""
    models = Path("/nowhere")
    asked = types.SimpleNamespace(shared_with=0)

    def owns(self, pid):
        return None


def a_job(**changes):
    fields = {
        "id": "run-01",
        "kind": "measure",
        "article": "inference-tools",
        "case": "layer-parallel",
        "variant": "controlled",
        "backend": "layer-parallel",
        "stack": "current",
        "device": "cuda",
        "device_count": 2,
        "model": {
            "name": "m",
            "architecture": "bloom",
            "shape": "bloomz-7b1",
            "revision": "main",
            "weights": "random",
            "scale": "full",
            "seed": 0,
            "path": "/models/x",
        },
        "load": {"dtype": "float16"},
        "prompt": {"text": "hello", "tokens": 8, "batch_size": 1},
        "runs": [{"new_tokens": 1, "arguments": {"do_sample": False}}],
        "warmup_runs": 2,
        "timed_runs": 10,
        "reference": "/models/r.npz",
        "tolerance": 0.02,
    }
    return Job(**{**fields, **changes})


def a_result(**changes):
    fields = {
        "id": "run-01",
        "status": "ok",
        "load_s": 1.5,
        "prompt_tokens": 8,
        "batch_size": 1,
        "measurements": [{"new_tokens": 1, "cold_ms": 9.0, "warmup_ms": [3.0, 2.0], "timed_ms": [1.0] * 10}],
    }
    return Result(**{**fields, **changes})
