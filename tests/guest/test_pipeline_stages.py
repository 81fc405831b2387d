"""A model cut into stages: the same tokens under every schedule, and stages that work at once."""

import pytest

from tests.guest.samples import SHAPES

CUT = """
import json, time, torch, transformers
from bench.forms import pipeline_stages
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}).eval()
prompt = torch.arange(4, 28)
rows = torch.stack([prompt.roll(place) for place in range(4)])
right = model.generate(rows, do_sample=False, max_new_tokens=6, min_new_tokens=6)[:, 24:]
parts = pipeline_stages.cut(model, ["cpu"] * {stages})
found = {{}}
for name, batches, in_flight in (("in turn", rows.split(2), 1), ("rolling", rows.split(2), 2), ("naive", [rows], 1)):
    tokens, wall_ms, busy_ms = pipeline_stages.generate(parts, list(batches), 6, in_flight)
    found[name] = [bool(torch.equal(torch.cat(tokens), right)), wall_ms >= max(busy_ms) > 0, len(busy_ms)]
found["still whole"] = bool(torch.equal(model.generate(rows, do_sample=False, max_new_tokens=6, min_new_tokens=6)[:, 24:], right))
print(json.dumps(found))
"""


@pytest.mark.parametrize(("architecture", "count"), [("bloom", 2), ("bloom", 4), ("gptj", 2), ("llama", 3)])
def test_every_schedule_gives_the_whole_model_s_tokens(guest, checkpoints, architecture, count):
    assert architecture in SHAPES
    found = guest.code(CUT.format(path=str(checkpoints[architecture]), stages=count))
    assert found == {"in turn": [True, True, count], "rolling": [True, True, count], "naive": [True, True, count], "still whole": True}


PLACED = """
import json, transformers
from bench.forms import pipeline_stages
from bench.models import pretrained
model = transformers.AutoModelForCausalLM.from_pretrained({path!r}).eval()
pipeline_stages._bytes_of = lambda module: 100 if module is model.lm_head else 1
first, last = pipeline_stages.cut(model, ["cpu", "meta"])
norm = next(getattr(last.body, name) for name in ("ln_f", "norm") if hasattr(last.body, name))
places = [sorted({{parameter.device.type for parameter in part.parameters()}}) for part in (*pretrained.layers_of(model), norm, last.head, model.lm_head)]
print(json.dumps([places, first.head is None]))
"""


@pytest.mark.parametrize("architecture", ["bloom", "gptj", "llama"])
def test_each_stage_lies_on_its_device_and_a_heavy_output_matrix_is_weighed_and_copied(guest, checkpoints, architecture):
    (*layers, norm, head, whole_head), has_no_head = guest.code(PLACED.format(path=str(checkpoints[architecture])))
    assert layers == [["cpu"], ["cpu"], ["cpu"], ["meta"]], "the last stage also has the output matrix"
    assert (norm, head, whole_head, has_no_head) == (["meta"], ["meta"], ["cpu"], True)


SLEEPING = """
import json, time, torch
from bench.forms import pipeline_stages

class Slow(pipeline_stages.Stage):
    def step(self, batch, value):
        time.sleep(0.02)
        if {fails} and batch == 1:
            raise RuntimeError("stage broke")
        return value

parts = [Slow(None, "cpu") for _ in range(2)]
batches = [torch.full((1, 1), float(number)) for number in range(2)]
try:
    found = {{k: pipeline_stages.generate(parts, batches, 5, k)[1:] for k in (1, 2)}}
except RuntimeError as error:
    found = str(error)
print(json.dumps(found))
"""


def test_a_rolling_queue_keeps_stages_at_work_that_wait_when_micro_batches_go_in_turn(guest):
    found = guest.code(SLEEPING.format(fails=False))
    (in_turn_ms, in_turn_busy), (rolling_ms, rolling_busy) = found["1"], found["2"]
    assert in_turn_ms >= 400 and rolling_ms < 0.75 * in_turn_ms, "2 micro-batches x 5 tokens x 2 stages x 20 ms, against nearly half of it"
    assert all(busy >= 195 for busy in in_turn_busy + rolling_busy)


def test_a_stage_that_fails_ends_the_run_with_its_error(guest):
    assert guest.code(SLEEPING.format(fails=True)) == "stage broke"


def test_layers_are_shared_out_by_their_size_and_every_stage_has_one(guest):
    code = "import json; from bench.forms import pipeline_stages; print(json.dumps([pipeline_stages.shares(s, n) for s, n in {!r}]))"
    cases = [([1] * 30, 4), ([1] * 30, 2), ([1, 1, 1, 1 + 4], 2), ([5, 1], 2), ([1, 1, 9], 3), ([9, 1, 1], 3)]
    found = guest.code(code.format(cases))
    assert [[stop - start for start, stop in one] for one in found] == [[7, 8, 7, 8], [15, 15], [3, 1], [1, 1], [1, 1, 1], [1, 1, 1]]
    for (sizes, _), cuts in zip(cases, found, strict=True):
        assert cuts[0][0] == 0 and cuts[-1][1] == len(sizes) and all(one[1] == other[0] for one, other in zip(cuts, cuts[1:], strict=False))
