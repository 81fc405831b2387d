"""The scripts behind reports/instruments that a CPU can run."""

import json

import pytest


def test_the_right_rotation_gives_the_model_s_logits_and_the_kernel_s_does_not(guest, checkpoints):
    code = (
        "import json, torch, transformers; from bench.instruments import float32_rotary as r; ids = torch.arange(8)[None] + 10; "
        f"m = transformers.AutoModelForCausalLM.from_pretrained({str(checkpoints['gptj'])!r}).eval(); "
        "off = lambda a, b: float((a - b).norm() / b.norm()); torch.set_grad_enabled(False); expected = m(ids).logits[:, -1]; "
        "print(json.dumps([off(found, expected) for found in r.last_logits('gpt-j-6B', 'tiny', 0, ids, 2)]))"
    )
    right, in_place = guest.code(code)
    assert right == pytest.approx(0, abs=1e-5) and in_place > 1e-3


def test_attention_is_timed_with_and_without_a_mask(guest, tmp_path):
    done = guest.command("-m", "bench.instruments.masked_attention", "2", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["masked"] for row in rows] == [False, True] and all(us > 0 for row in rows for us in row["us"])
