"""Layer by layer against plain transformers: an error shows in the layer where it begins."""

import json
import shutil

from bench.job import to_json
from tests.guest.samples import tiny_job


def test_the_first_wrong_layer_is_the_one_that_was_changed(guest, checkpoints, tmp_path):
    right, wrong = checkpoints["bloom"], tmp_path / "wrong"
    shutil.copytree(right, wrong)
    file = str(wrong / "model.safetensors")
    guest.code(
        "from safetensors.torch import load_file, save_file; "
        f"t = load_file({file!r}); n = 'transformer.h.2.mlp.dense_4h_to_h.weight'; t[n] = t[n] * 2; save_file(t, {file!r}, metadata={{'format': 'pt'}}); print('null')"
    )
    (tmp_path / "job.json").write_text(to_json(tiny_job("bloom", right)))
    code = (
        "import json; from bench import job, backends; from bench.instruments import layers; from bench.models import pretrained; "
        f"asked = job.parse_job(open({str(tmp_path / 'job.json')!r}).read()); real = pretrained.load_model; calls = []\n"
        "def load(asked, *args, **kwargs):\n"
        "    calls.append(1)\n"
        f"    asked = asked if len(calls) == 1 else __import__('dataclasses').replace(asked, model=dict(asked.model, path={str(wrong)!r}))\n"
        "    return real(asked, *args, **kwargs)\n"
        "pretrained.load_model = load\n"
        "print(json.dumps(layers.compare(asked)))"
    )
    found = guest.code(code)["with_mask"]
    assert found["layers"][:2] == [0.0, 0.0] and found["layers"][2] > 1e-3 and found["logits"] > 1e-3


def test_an_error_that_is_not_finite_is_told_and_stored(guest, tmp_path):
    (tmp_path / "job.json").write_text(to_json(tiny_job("bloom", tmp_path)))
    out = tmp_path / "out.json"
    code = (
        "import json, torch; from bench.instruments import layers; nan = torch.tensor([float('nan')]); one = torch.ones(1); "
        "layers.compare = lambda job: {'with_mask': dict(layers=layers.errors([one, nan], [one, one]), logits=layers.errors([nan], [one])[0])}; "
        f"layers.main({str(tmp_path / 'job.json')!r}, {str(out)!r})"
    )
    done = guest.command("-c", code)
    assert done.stdout.startswith("with_mask first layer 0, last layer not finite, logits not finite\n"), done.stderr
    assert json.loads(out.read_text())["with_mask"] == {"layers": [0.0, None], "logits": None}
