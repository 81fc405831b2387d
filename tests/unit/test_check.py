"""Is the output right? The check has to see a wrong model, not only a right one."""

import numpy
import pytest

from bench.checking import check


class Tensor:
    """As much of a torch tensor as the check touches."""

    def __init__(self, values):
        self.values = numpy.asarray(values)
        self.shape = self.values.shape

    def float(self):
        return Tensor(self.values.astype(numpy.float32))

    def cpu(self):
        return self

    def numpy(self):
        return self.values

    def tolist(self):
        return self.values.tolist()


IDS = Tensor([[5, 6, 7]])
LOGITS = numpy.array([[1.0, 2.0, 3.0, 4.0]])


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "reference.npz"
    check.save_reference(path, Tensor(LOGITS), Tensor([[3, 3, 1]]), IDS)
    return path


def test_the_same_output_passes(reference):
    found = check.compare(reference, Tensor(LOGITS), Tensor([[3, 3, 1]]), IDS, 1e-3)
    assert found["passed"] and found["logits_relative_error"] == 0
    assert (found["greedy_common_prefix_tokens"], found["greedy_tokens"]) == (3, 3)


def test_logits_that_are_off_fail_with_the_error_and_the_tolerance(reference):
    found = check.compare(reference, Tensor(LOGITS * 1.33), Tensor([[3, 3, 1]]), IDS, 2e-2)
    assert not found["passed"]
    assert found["logits_relative_error"] == pytest.approx(0.33, rel=1e-3)
    assert "0.33 off" in found["reason"] and "0.02 is allowed" in found["reason"]


def test_the_tolerance_decides_and_its_edge_is_inside(reference):
    error = check.compare(reference, Tensor(LOGITS * 1.01), Tensor([[3]]), IDS, 1.0)["logits_relative_error"]
    assert check.compare(reference, Tensor(LOGITS * 1.01), Tensor([[3]]), IDS, error)["passed"]
    assert not check.compare(reference, Tensor(LOGITS * 1.01), Tensor([[3]]), IDS, error * 0.999)["passed"]


def test_not_a_number_is_a_wrong_answer_and_never_a_small_error(reference):
    found = check.compare(reference, Tensor(LOGITS * numpy.nan), Tensor([[0]]), IDS, 1.0)
    assert not found["passed"] and found["logits_relative_error"] is None and "not finite" in found["reason"]


def test_the_prefix_ends_at_the_first_other_token(reference):
    assert check.compare(reference, Tensor(LOGITS), Tensor([[3, 0, 1]]), IDS, 1)["greedy_common_prefix_tokens"] == 1


def test_the_worst_row_of_a_batch_counts(tmp_path):
    path = tmp_path / "batch.npz"
    check.save_reference(path, Tensor(numpy.vstack([LOGITS, LOGITS])), Tensor([[1], [1]]), IDS)
    found = check.compare(path, Tensor(numpy.vstack([LOGITS, LOGITS * 2])), Tensor([[1], [1]]), IDS, 0.5)
    assert found["logits_relative_error"] == pytest.approx(1.0)


def test_a_batch_of_one_sequence_is_compared_row_by_row_with_the_answer_for_that_sequence(reference):
    batch = Tensor([[5, 6, 7], [5, 6, 7]])
    found = check.compare(reference, Tensor(numpy.vstack([LOGITS, LOGITS * 2])), Tensor([[3, 3, 1], [3, 0, 1]]), batch, 0.5)
    assert found["logits_relative_error"] == pytest.approx(1.0) and found["greedy_common_prefix_tokens"] == 1
    assert "another prompt" in check.compare(reference, Tensor(LOGITS), Tensor([[3]]), Tensor([[5, 6, 7], [5, 6, 8]]), 1)["reason"]


def test_a_form_that_made_no_tokens_for_the_prompt_has_its_logits_checked_alone(reference):
    found = check.compare(reference, Tensor(LOGITS), None, IDS, 1e-3)
    assert found["passed"] and found["greedy_common_prefix_tokens"] is None


def test_an_answer_to_another_prompt_is_not_compared(reference):
    found = check.compare(reference, Tensor(LOGITS), Tensor([[3]]), Tensor([[5, 6]]), 1)
    assert not found["passed"] and "another prompt" in found["reason"]


def test_the_reference_s_tokens_are_those_of_the_rows_that_are_checked_and_of_no_other_prompt(reference):
    assert check.expected_tokens(reference, numpy.array([[5, 6, 7]])) == [3, 3, 1]
    more_rows = numpy.array([[5, 6, 7]] * check.CHECKED_ROWS + [[5, 6, 8]])
    assert check.expected_tokens(reference, more_rows) == [3, 3, 1] and check.expected_tokens(reference, more_rows[::-1]) is None


def test_of_a_batch_of_different_prompts_the_first_row_s_tokens_are_expected_where_all_checked_rows_are_those_of_the_reference(tmp_path):
    rows = numpy.arange(3 * check.CHECKED_ROWS).reshape(check.CHECKED_ROWS, 3)
    check.save_reference(tmp_path / "reference.npz", Tensor(LOGITS), Tensor(rows + 100), Tensor(rows))
    assert check.expected_tokens(tmp_path / "reference.npz", numpy.concatenate([rows, rows])) == [100, 101, 102]
    last_is_another = numpy.concatenate([rows[:-1], rows[:1]])
    assert check.expected_tokens(tmp_path / "reference.npz", last_is_another) is None


def test_memory_counts_devices_of_all_ranks_and_adds_up_their_resident_sets():
    from bench.actions import memory_of_ranks

    ranks = [{"devices": [{"device": "cuda:0"}], "peak_rss_bytes": 3}, {"devices": [{"device": "cuda:1"}], "peak_rss_bytes": 4}]
    assert memory_of_ranks(ranks) == {"devices": [{"device": "cuda:0"}, {"device": "cuda:1"}], "peak_rss_bytes": 7}
    ranks[1]["processes"] = 3
    assert memory_of_ranks(ranks)["processes"] == 4
