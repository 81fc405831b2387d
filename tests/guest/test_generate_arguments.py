"""Arguments of `generate` that the installed transformers does not know, with the real library: current ones, and those of a pinned stack before them."""

import pytest

from scripts import articles
from tests.guest.samples import tiny_job


@pytest.mark.parametrize("kind", ["measure", "profile"])
def test_an_argument_that_the_library_does_not_know_is_refused_before_the_weights_are_loaded(either, kind):
    runs = [{"new_tokens": 4, "arguments": {"do_sample": False, "max_new_token": 4}}]
    done = either.run(tiny_job("bloom", "/no/such/model", kind=kind, runs=runs))
    assert done.status == "failed" and done.load_s is None and "load" not in done.phases
    version = done.environment["packages"]["transformers"]
    words = "UnknownArgument: generate of transformers {} knows no argument 'max_new_token'; did you mean 'max_new_tokens'?"
    assert done.reason == words.format(version)


def test_arguments_of_a_pipeline_are_known_to_the_forms_that_ask_one_and_to_no_other(either, checkpoints):
    runs = [{"new_tokens": 2, "arguments": {"do_sample": False, "return_full_text": False, "max_new_tokens": 2}}]
    asked = {"runs": runs, "options": {}, "timed_runs": 1, "warmup_runs": 0, "prompt": {"text": "a fox", "tokens": None, "batch_size": 1}}
    result = either.run(tiny_job("gptj", checkpoints["gptj"], form="transformers-pipeline-sequences", **asked))
    assert result.status == "ok", result.reason
    assert "knows no argument 'return_full_text'" in either.run(tiny_job("gptj", checkpoints["gptj"], **asked)).reason


def test_the_library_knows_every_argument_of_the_kit_s_articles(either):
    names = set()
    for article in articles.without_mistakes().values():
        for case in article.cases:
            names |= {name for variant in article.variants_of(case) for run in article.runs_of(case, variant) for name in run["arguments"]}
    assert {"do_sample", "num_return_sequences"} <= names
    code = "import json, transformers; from bench.models import generate_arguments as asked; print(json.dumps(sorted(set({!r}) - asked.known(transformers, False))))"
    assert either.code(code.format(sorted(names))) == []
