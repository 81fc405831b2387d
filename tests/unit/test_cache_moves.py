"""The rate at which the key-value cache moved between GPUs, from two results."""

import json

import pytest

from bench.instruments import cache_moves

#: bigscience/bloom-7b1: 30 layers, width 4096, 250880 words.
CACHE_BYTES_OF_A_TOKEN = 30 * 2 * 4096 * 2
EMBEDDING = 250880 * 4096
LAYER = 200_000_000


def result(held, call_ms=1000.0, shares=(0.5,), dtype="float16", **used):
    model, runs = {"shape": "bloom-7b1", "scale": "full"}, [{"new_tokens": 3, "arguments": {}}]
    prompt = {"texts": ["a b", "a b c d e f g h i,"]}
    guest = {"used": {"parameters_per_device": held, **used}, "measurements": [{"timed_ms": [call_ms, call_ms]}], "batch_size": 2}
    busy = [{"gpus": [{"code": "ok", "share": share} for share in shares]}]
    return {"id": "a", "job": {"case": "c", "model": model, "runs": runs, "prompt": prompt, "load": {"dtype": dtype}}, "guest": guest, "host": {"busy": busy}}


def test_the_layers_beside_the_embedding_move_nothing_and_the_others_move_there_and_back():
    held = {"cuda:1": EMBEDDING + 1 * LAYER, "cuda:2": 3 * LAYER}
    assert cache_moves.moved_bytes(result(held)) == pytest.approx(2 * 3 / 4 * CACHE_BYTES_OF_A_TOKEN * 2 * (11 + 12))


@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", 1), ("int8", 1), ("float32", 2)])
def test_the_cache_has_the_job_s_dtype_and_16_bits_beside_weights_of_8(dtype, times):
    held = {"cuda:0": EMBEDDING, "cuda:1": 30 * LAYER}
    assert cache_moves.moved_bytes(result(held, dtype=dtype)) == times * cache_moves.moved_bytes(result(held)) > 0


def test_with_inputs_on_an_empty_gpu_every_layer_s_cache_moves():
    moved = cache_moves.moved_bytes(result({"cuda:7": EMBEDDING + 30 * LAYER}, inputs_device="cuda:0"))
    assert moved == pytest.approx(2 * CACHE_BYTES_OF_A_TOKEN * 2 * (11 + 12))
    assert cache_moves.moved_bytes(result({"cuda:7": EMBEDDING + 30 * LAYER})) == 0


def test_the_rate_is_that_of_the_time_that_all_gpus_together_took_longer(tmp_path):
    one, many = result({"cuda:0": EMBEDDING + 30 * LAYER}), result({"cuda:0": EMBEDDING, "cuda:1": 30 * LAYER}, 1500.0, (0.6, 0.4))
    for name, content in (("one", one), ("many", many)):
        (tmp_path / name).write_text(json.dumps(content))
    cache_moves.main(tmp_path / "one", tmp_path / "many", tmp_path / "out")
    told = json.loads((tmp_path / "out").read_text())
    assert told["kernel_ms"] == {"one": 500.0, "many": 1500.0}
    assert told["moved_bytes_per_s"] == pytest.approx(told["moved_bytes"] / 1.0)


def test_a_result_that_tells_no_busy_gpu_is_named():
    unknown = result({}, shares=(0.5, 0.0))
    unknown["host"]["busy"][0]["gpus"][1]["code"] = "too-short"
    for one in (result({}, shares=()), unknown):
        with pytest.raises(ValueError, match="a has no timed call in which the share of each GPU is known"):
            cache_moves.kernel_ms(one)


def test_a_prompt_is_as_long_as_its_longest_sentence_or_as_the_result_says():
    assert cache_moves.prompt_tokens(result({})) == 10
    told = result({})
    told["guest"]["figures"] = {"padded_prompt_tokens": 2 * 12}
    assert cache_moves.prompt_tokens(told) == 12


def test_kernels_that_took_no_longer_tell_no_rate(tmp_path):
    one, many = result({"cuda:0": EMBEDDING + 30 * LAYER}), result({"cuda:0": EMBEDDING, "cuda:1": 30 * LAYER})
    for name, content in (("one", one), ("many", many)):
        (tmp_path / name).write_text(json.dumps(content))
    cache_moves.main(tmp_path / "one", tmp_path / "many", tmp_path / "out")
    assert json.loads((tmp_path / "out").read_text())["moved_bytes_per_s"] is None
