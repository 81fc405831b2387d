"""What the two instruments compute from what they see."""

import pytest

from bench import profile


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
