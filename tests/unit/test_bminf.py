"""Where BMInf's int8 mode has kernels."""

import pytest

from bench.backends import bminf


@pytest.mark.parametrize(("capability", "runs"), [((7, 5), True), ((8, 6), True), ((8, 9), True), ((9, 0), False), ((12, 0), False)])
def test_int8_is_refused_on_gpus_newer_than_its_kernels(capability, runs):
    assert (bminf.no_int8_kernel(capability) == "") is runs


def test_the_refusal_names_the_gpu():
    assert "sm_90" in bminf.no_int8_kernel((9, 0))
