"""The answers of an engine's own scheduler: each item once, as long as it asked for or up to an end token."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.forms import kept_answers, workload
from bench.measuring.answers_file import Outputs

END = 9
ITEMS = (0, 1)


def kept(folder: Path, answers: list[tuple[int, list[int]]]) -> list:
    """The items in the file after an engine gave these answers to the items 0 and 1, of at most two tokens each."""
    outputs = Outputs(str(folder), "a job")
    tokenizer = SimpleNamespace(decode=lambda tokens, skip_special_tokens: str(tokens))
    waiting = [SimpleNamespace(number=number, new_tokens=2) for number in ITEMS]
    kept_answers.keep(kept_answers.as_asked(iter(answers), waiting, [END]), outputs, tokenizer, {0: 3, 1: 4}, lambda items: None)
    return [item for batch in outputs.batches for item in batch["items"]]


def test_each_answer_is_kept_in_the_order_of_finishing(tmp_path: Path) -> None:
    assert kept(tmp_path, [(1, [6, 7]), (0, [END])]) == [[1, 2, "[6, 7]"], [0, 1, "[9]"]]


def test_an_answer_as_long_as_asked_needs_no_end_token_and_may_have_one(tmp_path: Path) -> None:
    assert kept(tmp_path, [(0, [5, END]), (1, [END, 5])]) == [[0, 2, "[5, 9]"], [1, 2, "[9, 5]"]]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(0, [END]), (0, [END]), (1, [END])], "item 0 came, but it was not asked for or had come before"),
        ([(0, [END]), (1, [END]), (1, [END])], "item 1 came, but it was not asked for or had come before"),
        ([(0, [END]), (7, [6])], "item 7 came, but it was not asked for or had come before"),
        ([(0, [END])], "1 of 2 items did not come, item 1 first"),
        ([], "2 of 2 items did not come"),
        ([(0, [END]), (1, [6, 7, 8])], "item 1 came with 3 new tokens, 1 to 2 were asked for"),
        ([(0, [END]), (1, [])], "item 1 came with 0 new tokens, 1 to 2 were asked for"),
        ([(0, [END]), (1, [6])], "item 1 came with 1 new tokens and no end token, 2 were asked for"),
    ],
)
def test_an_engine_that_answers_something_else_than_was_asked_fails_the_run(tmp_path: Path, answers: list, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        kept(tmp_path, answers)
    numbers = [item[0] for batch in Outputs(str(tmp_path), "a job").batches for item in batch["items"]]
    assert len(numbers) == len(set(numbers)) and set(numbers) <= set(ITEMS), "what is kept is true, for the run that goes on from it"


def test_an_order_that_there_is_not_is_refused_before_anything_is_sorted() -> None:
    job = SimpleNamespace(options={"items": 2, "order": "shuffled"})
    with pytest.raises(ValueError, match="order is 'shuffled', allowed are naive and sorted"):
        workload.in_order(job, None, [])
    job.options["order"] = "naive"
    assert workload.in_order(job, None, [2, 1]) == [2, 1]
