"""tests/float32_rotary.py computes GPT-J as transformers does, and what DeepSpeed's float32 kernel makes of it is something else."""

import pytest


def test_the_right_rotation_gives_the_model_s_logits_and_the_kernel_s_does_not(guest, checkpoints):
    code = (
        "import json, torch, transformers; from tests import float32_rotary as r; ids = torch.arange(8)[None] + 10; "
        f"m = transformers.AutoModelForCausalLM.from_pretrained({str(checkpoints['gptj'])!r}).eval(); "
        "off = lambda a, b: float((a - b).norm() / b.norm()); torch.set_grad_enabled(False); expected = m(ids).logits[:, -1]; "
        "print(json.dumps([off(found, expected) for found in r.last_logits('gpt-j-6B', 'tiny', 0, ids, (r.rotated, r.rotated_in_place))]))"
    )
    right, in_place = guest.code(code)
    assert right == pytest.approx(0, abs=1e-5) and in_place > 1e-3
