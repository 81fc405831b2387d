"""What the two instruments compute from what they see."""

import pytest

from bench import profile
from scripts.commands import measure
from tests.synthetic import job, record


def kernel(device, name, begin, duration):
    return {"cat": "kernel", "name": name, "ts": begin, "dur": duration, "args": {"device": device}}


def test_time_that_kernels_share_counts_once():
    assert profile.busy_ms([(0, 1000), (500, 1000), (3000, 500)]) == pytest.approx(2.0)
    assert profile.busy_ms([(0, 1000), (100, 100)]) == pytest.approx(1.0)
    assert profile.busy_ms([]) == 0


def test_kernels_are_told_apart_from_everything_else_in_a_trace():
    trace = {"traceEvents": [kernel(0, "gemm", 0, 10), {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 99}, {"ph": "M"}]}
    assert profile.kernels(trace) == [(0, "gemm", 0.0, 10.0)]


def test_the_summary_counts_by_device_and_names_the_longest_first():
    found = [(0, "gemm", 0.0, 1000.0), (1, "gemm", 0.0, 500.0), (1, "softmax", 600.0, 200.0)]
    summary = profile.summary(found)
    assert summary["kernels"] == 3
    assert summary["devices"] == {"0": {"kernels": 1, "busy_ms": 1.0}, "1": {"kernels": 2, "busy_ms": 0.7}}
    assert [one["name"] for one in summary["top"]] == ["gemm", "softmax"]
    assert summary["top"][0]["count"] == 2


def test_a_profile_is_told_with_its_times_and_a_failed_one_with_its_reason():
    run = record(job("int8"), 90.0)
    run.guest.figures["profile"] = {"new_tokens": 16, "wall_ms": 100.0, "profiled_wall_ms": 130.5, "profiler": "torch"}
    assert measure._profile_line(run) == "16 new tokens in 100.00 ms, 130.50 ms under torch"
    assert measure._profile_line(record(job("int8"), 90.0, status="failed", reason="no kernels")) == "failed: no kernels"
