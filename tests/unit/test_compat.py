"""Both sides of every branch on a library's version."""

import sys
import types

import pytest

from bench import compat


@pytest.fixture(autouse=True)
def forget():
    compat.TAKEN.clear()


def test_a_version_is_its_first_two_numbers():
    assert compat.release("2.0.1+cu117") == (2, 0)
    assert compat.release("4.43.4") == (4, 43)
    assert compat.release("5.17.0.dev0") == (5, 17)


@pytest.mark.parametrize(
    ("version", "name", "expected"),
    [
        ("4.26.0", "float32", {}),
        ("4.26.0", "float16", {"torch_dtype": "X"}),
        ("4.43.4", "float32", {}),
        ("5.17.0", "float32", {"dtype": "X"}),
        ("5.17.0", "float16", {"dtype": "X"}),
    ],
)
def test_the_dtype_argument_follows_the_version(version, name, expected):
    assert compat.dtype_argument(version, name, "X") == expected
    assert "dtype" in compat.TAKEN


def test_eight_bit_loading_follows_the_version():
    assert compat.eight_bit_arguments("4.26.0", lambda: "config") == {"load_in_8bit": True}
    assert compat.eight_bit_arguments("5.17.0", lambda: "config") == {"quantization_config": "config"}


@pytest.mark.parametrize(("bitsandbytes", "transformers", "able"), [("0.50.2", "5.17.0", True), ("0.37.0", "4.26.0", False), ("0.50.2", "4.43.4", False)])
def test_eight_bit_needs_a_gpu_before_both_libraries_had_cpu_kernels(bitsandbytes, transformers, able):
    assert compat.eight_bit_on_cpu(bitsandbytes, transformers) is able


@pytest.mark.parametrize(
    ("branch", "before", "since"),
    [
        (lambda version: compat.dtype_argument(version, "float16", "X"), "4.57.6", "5.0.0"),
        (lambda version: compat.eight_bit_arguments(version, dict), "4.57.6", "5.0.0"),
        (lambda version: compat.eight_bit_on_cpu("0.46.0", version), "4.45.2", "4.46.0"),
        (lambda version: compat.eight_bit_on_cpu(version, "4.46.0"), "0.45.5", "0.46.0"),
        (lambda version: compat.length_arguments(version, {}, 20, 1), "4.38.2", "4.39.0"),
        (lambda version: compat.pipeline_arguments(version, {"max_length": 30}, 10), "4.48.3", "4.49.0"),
        (compat.stops_row_by_row, "4.38.2", "4.39.0"),
        (compat.streams_tokens, "4.27.4", "4.28.0"),
        (compat.records_collectives, "2.1.2", "2.2.0"),
        (compat.cudnn_attention, "2.2.2", "2.3.0"),
        (compat.offloaded_cache, "4.43.4", "4.44.0"),
    ],
)
def test_a_branch_begins_with_the_release_that_changed_the_library(branch, before, since):
    assert branch("0.1.0") == branch(before) != branch(since) == branch("9.0.0")


def test_the_configuration_of_zero_is_taken_from_where_the_release_has_it(monkeypatch):
    for module in ("transformers.deepspeed", "transformers.integrations.deepspeed"):
        monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(HfDeepSpeedConfig=module))
    places = [compat.zero_config_class(version) for version in ("4.26.0", "4.32.1", "4.33.0", "5.17.0")]
    assert places == ["transformers.deepspeed"] * 2 + ["transformers.integrations.deepspeed"] * 2


def test_a_length_that_a_pipeline_would_override_becomes_a_number_of_new_tokens():
    assert compat.pipeline_arguments("4.49.0", {"max_length": 30, "do_sample": True}, 10) == {"do_sample": True, "max_new_tokens": 20}
    assert compat.TAKEN == {"pipeline_length": "max_new_tokens="}
    assert compat.pipeline_arguments("4.49.0", {"do_sample": True}, 10) == {"do_sample": True}
    assert compat.TAKEN == {"pipeline_length": "as given"}


def test_the_articles_empty_arguments_stay_empty_where_they_still_mean_one_token():
    assert compat.length_arguments("4.26.0", {}, 128, 1) == {}
    assert compat.TAKEN == {"one_token": "default max_length=20"}


@pytest.mark.parametrize("version", ["4.39.0", "4.43.4", "5.17.0"])
def test_later_versions_are_asked_for_the_one_token(version):
    assert compat.length_arguments(version, {}, 128, 1)["max_new_tokens"] == 1


@pytest.mark.parametrize("prompt_tokens", [8, 19])
def test_a_short_prompt_cannot_rely_on_the_default_length(prompt_tokens):
    assert compat.length_arguments("4.26.0", {}, prompt_tokens, 1)["max_new_tokens"] == 1


def test_exact_lengths_are_forced_where_the_article_gives_none():
    assert compat.length_arguments("4.26.0", {"do_sample": False}, 10, 16) == {"max_new_tokens": 16, "min_length": 26}


def test_a_length_that_the_article_gives_is_kept():
    assert compat.length_arguments("5.17.0", {"max_new_tokens": 128, "min_length": 128}, 128, 128) == {}


@pytest.mark.parametrize(("version", "able"), [("4.26.0", False), ("4.38.2", False), ("4.39.0", True), ("5.17.0", True)])
def test_batches_stop_row_by_row_from_the_version_on_that_can(version, able):
    assert compat.stops_row_by_row(version) is able
    assert {"stopping": "row by row" if able else "whole batch"} == compat.TAKEN


@pytest.mark.parametrize(("version", "able"), [("4.43.4", False), ("5.16.1", False), ("5.17.0", True)])
def test_compiled_decoding_is_driven_from_the_version_on_that_was_tried(version, able):
    assert compat.compiled_decoding(version) is able


@pytest.mark.parametrize(("version", "able"), [("4.43.4", False), ("5.16.1", False), ("5.17.0", True)])
def test_continuous_batching_is_driven_from_the_version_on_that_was_tried(version, able):
    assert compat.continuous_batching(version) is able


def test_meta_modules_come_from_torch_or_from_accelerate():
    new = types.SimpleNamespace(__version__="2.11.0", device=lambda name: name)
    first, old = types.SimpleNamespace(__version__="2.0.0", device=lambda name: name), types.SimpleNamespace(__version__="1.13.1")
    accelerate = types.SimpleNamespace(init_empty_weights=lambda: "empty")
    assert compat.meta_device(new, accelerate) == compat.meta_device(first, accelerate) == "meta"
    assert compat.meta_device(old, accelerate) == "empty"


def test_out_of_memory_is_known_by_its_type_in_every_torch():
    class New(RuntimeError):
        pass

    new = types.SimpleNamespace(cuda=types.SimpleNamespace(OutOfMemoryError=New), OutOfMemoryError=New)
    older = types.SimpleNamespace(cuda=types.SimpleNamespace(OutOfMemoryError=New))
    assert New in compat.out_of_memory_errors(new)
    assert New in compat.out_of_memory_errors(older)


def test_weights_go_straight_onto_a_device_where_the_library_leaves_no_hooks():
    assert [compat.loads_straight(version) for version in ("4.26.0", "4.43.4", "5.0.0", "5.17.0")] == [False, False, True, True]


@pytest.mark.parametrize(("version", "able"), [("1.13.1", False), ("2.5.1", False), ("2.6.0", True), ("2.11.0+cu130", True)])
def test_pickles_are_read_by_a_torch_that_runs_none_of_their_code(version, able):
    assert compat.safe_pickles(version) is able
