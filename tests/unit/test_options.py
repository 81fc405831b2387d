"""Every variable of `make bench-…`: a wrong value gets one line with the value, what is allowed and what to type."""

import pytest

from scripts import options
from scripts.errors import UsageError


def test_nothing_typed_means_the_articles_way_on_gpus_in_docker():
    asked = options.parse({})
    assert (asked.device, asked.engine, asked.weights, asked.scale, asked.stack) == ("cuda", "docker", "hub", "full", "article")
    assert (asked.gpus, asked.gpu_ids, asked.variant, asked.force, asked.timeout_s) == (None, None, "", False, 3600)


def test_make_exports_empty_variables_and_they_count_as_not_typed():
    assert options.parse({name: "" for name in (*options.CHOICES, "GPUS", "GPU_IDS", "STACK", "TIMEOUT_S")}) == options.parse({})


def test_gpus_are_a_number_or_a_list():
    assert options.parse({"GPUS": "2"}).gpus == 2
    assert options.parse({"GPU_IDS": "1,3"}).gpu_ids == [1, 3]
    assert options.parse({"BATCH_SIZES": "64,1"}).batch_sizes == [64, 1]


def test_cases_are_names_with_commas():
    assert options.parse({"CASES": "single,batch"}).cases == ["single", "batch"]
    assert options.parse({"CASES": ""}).cases == []


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ({"GPUS": "two"}, ["GPUS", "'two'", "whole number", "GPUS=2"]),
        ({"GPUS": "0"}, ["GPUS", "'0'", "from 1"]),
        ({"GPUS": "-1"}, ["GPUS", "'-1'"]),
        ({"GPU_IDS": "0;1"}, ["GPU_IDS", "'0;1'", "GPU_IDS=0,3"]),
        ({"GPU_IDS": "1,1"}, ["GPU_IDS", "different"]),
        ({"GPUS": "2", "GPU_IDS": "0"}, ["GPUS is 2", "GPU_IDS names 1"]),
        ({"ITEMS": "many"}, ["ITEMS", "'many'", "whole number"]),
        ({"BATCH_SIZES": "8,0"}, ["BATCH_SIZES", "'8,0'", "from 1", "BATCH_SIZES=1,8,64"]),
        ({"BATCH_SIZES": "8,8"}, ["BATCH_SIZES", "different"]),
        ({"DEVICE": "cpu", "GPU_IDS": "0"}, ["GPU_IDS", "DEVICE=cpu"]),
        ({"DEVICE": "tpu"}, ["DEVICE", "'tpu'", "cuda, cpu"]),
        ({"VARIANT": "mine"}, ["VARIANT", "'mine'", "published, controlled"]),
        ({"WEIGHTS": "mine"}, ["WEIGHTS", "hub, random"]),
        ({"SCALE": "big"}, ["SCALE", "full, tiny"]),
        ({"ENGINE": "podman"}, ["ENGINE", "docker, host"]),
        ({"FORCE": "yes"}, ["FORCE", "'yes'"]),
        ({"TIMEOUT_S": "soon"}, ["TIMEOUT_S", "'soon'"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(typed, parts):
    with pytest.raises(UsageError) as error:
        options.parse(typed)
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert "\n" not in str(error.value)
