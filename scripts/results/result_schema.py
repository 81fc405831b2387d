"""What the report reads of a result.json beyond bench.job's own checks, as data, and the function that checks it.

A shape is a type, a list of one shape, or a dict of shapes; a name that ends in "?" may be absent or null. Names that a
shape does not mention are let through: an older report reads a newer kit's results as far as it knows them.
"""

from bench.job import InvalidDocument

NUMBER = (int, float)
#: No byte count, and no time in ms, is as large; what is larger is damage and overflows in sums of squares.
LARGEST = 1e18

HOST = {
    "engine": str,
    "started_at": str,
    "wall_s?": NUMBER,
    "began?": NUMBER,
    "prepare_s?": NUMBER,
    "commit?": str,
    "dirty?": bool,
    "pins_id?": str,
    "image?": {"tag": str, "id?": str, "digest?": str, "pins_id?": str, "stand_in?": bool},
    "differences?": [str],
    "machine?": {"cpu?": str, "cpu_count?": int, "memory_total_bytes?": NUMBER, "load_average_before?": NUMBER},
    "driver?": {"driver?": str, "cuda_driver?": str},
    "gpus?": [{"index": int, "uuid": str, "name": str, "memory_total_bytes": NUMBER, "compute_capability": str}],
    "gpu_memory?": [{"uuid": str, "peak_used_bytes?": NUMBER}],
}

JOB = {
    "article": str,
    "case": str,
    "variant": str,
    "backend": str,
    "stack": str,
    "model": {"weights": str, "scale": str},
    "load": dict,
    "prompt": {"batch_size?": int},
    "form?": str,
    "options?": dict,
}

#: Text by text; where all tokens are the same there is no first that differs.
PADDING = {"first_different_token": list, "logits_relative_error": [NUMBER]}

#: What the judge says of the timed calls' tokens (bench/checking/judge.py).
JUDGED = {
    "passed": bool,
    "reason": str,
    "regret?": {"p50": NUMBER, "p90": NUMBER, "max": NUMBER},
    "logits_error?": {"prompt": NUMBER, "late": NUMBER},
    "allowed?": {"regret_p90": NUMBER, "regret_max": NUMBER, "logits_error": NUMBER},
    "plain?": {"regret_p90": NUMBER, "regret_max": NUMBER, "prompt": NUMBER, "late": NUMBER},
    "steps?": int,
    "calls?": int,
    "not_seen?": [str],
}

#: What the forms of bench/forms give, as far as the report has tables for it.
FIGURES = {
    "calls?": [{"new_tokens": int, "timed_tokens": [int]}],
    "workload?": {
        "items": int,
        "new_tokens": int,
        "prompt_tokens": int,
        "padded_prompt_tokens": int,
        "decode_rows": int,
        "seconds": NUMBER,
        "resumed": bool,
    },
    "padding?": {"new_tokens": int, "prompt_tokens": [int], "left": PADDING, "right": PADDING},
    "cycles?": {
        "sequences": int,
        "counted_tokens": int,
        "real_tokens": int,
        "ranks": int,
        "padded_logits_relative_error?": NUMBER,
        "memory?": {"before?": [dict], "after?": [dict]},
    },
    "fusion?": [{"region": str, "implementation": str, "batch_size": int, "us": [NUMBER], "device_us?": NUMBER, "relative_error?": NUMBER, "reason": str}],
    "schedules?": [
        {"schedule": str, "stages": int, "micro_batches": int, "micro_batch_size": int, "wall_ms": [NUMBER], "busy_ms": [[NUMBER]], "identical": int}
    ],
    "new_tokens?": int,
    "prompt_tokens?": int,
    "profile?": {
        "profiler": str,
        "new_tokens": int,
        "wall_ms": NUMBER,
        "profiled_wall_ms": NUMBER,
        "kernels?": int,
        "devices?": dict,
        "top?": [{"name": str, "count": int, "ms": NUMBER}],
    },
    "kv_offload?": {
        "context_tokens": int,
        "memory_limit_bytes?": NUMBER,
        "caches": [
            {
                "cache": str,
                "most_sequences": int,
                "searched_to_the_end": bool,
                "batch_size?": int,
                "first_ms?": [NUMBER],
                "all_ms?": [NUMBER],
                "new_tokens?": int,
                "identical?": int,
            }
        ],
    },
}

GUEST = {
    "load_s?": NUMBER,
    "measurements": [{"new_tokens": int, "cold_ms?": NUMBER, "timed_ms": [NUMBER]}],
    "memory": {"devices?": [{"peak_allocated_bytes": NUMBER, "peak_reserved_bytes": NUMBER}], "peak_rss_bytes?": NUMBER},
    "check?": {
        "logits_relative_error?": NUMBER,
        "tolerance?": NUMBER,
        "greedy_common_prefix_tokens?": int,
        "greedy_tokens?": int,
        "passed": bool,
        "reason?": str,
        "judged?": JUDGED,
    },
    "launch_us?": {"before?": NUMBER, "after?": NUMBER},
    "figures?": FIGURES,
    "used": dict,
    "compat": dict,
    "phases?": {"import?": [NUMBER], "load?": [NUMBER], "measure?": [NUMBER], "check?": [NUMBER]},
    "environment": {"python?": str, "torch?": {"version?": str}, "packages?": dict},
}


def check(value: object, shape: object, name: str) -> None:
    """Raise InvalidDocument, naming the field, where `value` has not the shape."""
    wrong = _wrong(value, shape)
    if wrong is not None:
        path, found = wrong
        raise InvalidDocument(f"damaged result.json: {name}{path} is {str(found)[:60]!r}")


def _wrong(value: object, shape: object) -> tuple[str, object] | None:
    """(path, value) of the first field that has not its shape; the path is put together on the way back only."""
    if isinstance(shape, dict):
        return _wrong_field(value, shape) if isinstance(value, dict) else ("", value)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return "", value
        return next((wrong for item in value if (wrong := _wrong(item, shape[0]))), None)
    if not isinstance(value, shape) or (isinstance(value, bool) and shape is not bool):
        return "", value
    return ("", value) if shape is NUMBER and not -LARGEST < value < LARGEST else None


def _wrong_field(value: dict, shape: dict) -> tuple[str, object] | None:
    for name, inner in shape.items():
        field = name.rstrip("?")
        found = value.get(field)
        if found is None and field != name:
            continue
        wrong = _wrong(found, inner)
        if wrong is not None:
            return f".{field}{wrong[0]}", wrong[1]
    return None
