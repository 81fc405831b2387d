"""The fixed kernel in real processes: two runs of it and of nothing, and what the command says of them."""

import json
import re

import pytest

from scripts.commands.line import invoke


@pytest.mark.full
def test_a_calibration_times_nothing_and_a_fixed_kernel_and_says_what_is_missing(python, models, tmp_path, capsys):
    typed = {"--device": "cpu", "--engine": "host", "--runs": str(tmp_path / "runs"), "--models": str(models), "--timed-runs": "5", "--repeats": "2"}
    assert invoke(["calibrate", *(word for pair in typed.items() for word in pair)]) == 0
    said = capsys.readouterr().out
    # A run that foreign load disturbed does not count beside one that it did not.
    assert re.search(r"fixed kernel       median .*\((10 calls of 2|5 calls of 1) runs\)", said), said
    assert "noise floor        not known" in said and "5 are needed; type REPEATS=10" in said
    results = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("runs/*/result.json"))]
    figures = {result["job"]["case"]: result["guest"]["figures"]["kernel"] for result in results}
    assert figures["fixed-kernel"] == {"kernel": "product", "size": 512, "products": 4, "dtype": "float32"}
    nothing_ms, kernel_ms = (min(result["guest"]["measurements"][0]["timed_ms"]) for result in (results[0], results[-1]))
    assert nothing_ms < 0.1 < kernel_ms
