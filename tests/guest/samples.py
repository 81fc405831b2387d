"""Jobs on tiny models."""

from bench.models.weights import RECIPE
from tests.samples import a_job

SHAPES = {"bloom": "bloomz-7b1", "gptj": "gpt-j-6B", "llama": "llama-3-8B"}


def tiny_job(architecture, path, **changes):
    model = {
        "name": "tiny",
        "architecture": architecture,
        "shape": SHAPES[architecture],
        "revision": None,
        "weights": "random",
        "scale": "tiny",
        "seed": 0,
        "recipe": RECIPE,
        "path": str(path),
    }
    greedy = {"do_sample": False, "num_beams": 1}
    fields = {
        "backend": "transformers",
        "stack": "demo",
        "device": "cpu",
        "device_count": 1,
        "model": model,
        "load": {"dtype": "float32"},
        "prompt": {"text": "the quick brown fox", "tokens": 32, "batch_size": 1},
        "runs": [{"new_tokens": 1, "arguments": greedy}, {"new_tokens": 4, "arguments": greedy}],
        "warmup_runs": 1,
        "timed_runs": 3,
        "reference": None,
        "tolerance": 1e-3,
    }
    return a_job(**{**fields, **changes})
