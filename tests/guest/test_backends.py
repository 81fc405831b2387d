"""Each backend on a real tiny model: times come out, and the output is plain transformers'."""

import re
import shutil

import pytest

from bench.job import parse_result, to_json
from bench.reasons import reports_out_of_memory
from tests.guest.conftest import Guest
from tests.guest.samples import tiny_job


@pytest.mark.parametrize(("backend", "architecture"), [("transformers", "gptj"), ("layer-parallel", "bloom"), ("int8", "llama")])
def test_a_backend_completes_with_the_right_output(guest, checkpoints, references, backend, architecture):  # the demo runs every pair
    changes = {"load": {"dtype": "int8"}, "tolerance": 0.1} if backend == "int8" else {}
    job = tiny_job(architecture, checkpoints[architecture], backend=backend, reference=references[architecture], **changes)
    result = guest.run(job)
    assert result.status == "ok", result.reason
    assert result.check["passed"] and result.check["greedy_tokens"] == 4, result.check  # of its runs of 1 and 4 tokens the longest is compared
    assert (result.prompt_tokens, result.batch_size) == (32, 1)
    assert [len(one["timed_ms"]) for one in result.measurements] == [3, 3]
    assert result.measurements[0]["cold_ms"] > 0 and result.measurements[1]["cold_ms"] is None
    assert 0 < result.launch_us["before"] < 1000 and 0 < result.launch_us["after"] < 1000
    assert result.load_s > 0 and result.memory["peak_rss_bytes"] > 50_000_000
    assert result.environment["packages"]["transformers"] == "5.17.0"
    assert result.compat["dtype"] == "dtype="
    assert set(result.phases) == {"import", "load", "prompt", "measure", "check", "answers", "tokens", "describe"}
    if backend == "int8":
        assert result.used["quantised_layers"] > 0 and "bitsandbytes" in result.used["library_file"]


def test_tensor_parallel_over_two_cpu_devices_gives_the_same_output(python_tensor_parallel, tmp_path, checkpoints, references):
    job = tiny_job("bloom", checkpoints["bloom"], backend="tensor-parallel", device_count=2, reference=references["bloom"])
    result = Guest(python_tensor_parallel, tmp_path).run(job)
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert result.used["devices"] == ["cpu", "cpu"]
    assert result.used["wrapper"] == "TensorParallelPreTrainedModel"


@pytest.mark.parametrize(
    ("backend", "architecture", "word"), [("deepspeed", "bloom", "CUDA"), ("bminf", "bloom", "CUDA"), ("tensor-parallel", "llama", "Llama")]
)
def test_what_cannot_run_here_is_unsupported_with_its_reason(guest, checkpoints, backend, architecture, word):
    result = guest.run(tiny_job(architecture, checkpoints[architecture], backend=backend))
    assert result.status == "unsupported" and word in result.reason


def test_a_wrong_model_is_seen(guest, checkpoints, references, tmp_path):
    """One layer's weights are perturbed by a tenth: it runs as fast as ever, and its output check fails."""
    wrong = tmp_path / "wrong"
    shutil.copytree(checkpoints["bloom"], wrong)
    file = wrong / "model.safetensors"
    guest.code(
        "from safetensors.torch import load_file, save_file; import torch; "
        f"t = load_file({str(file)!r}); n = 'transformer.h.1.mlp.dense_4h_to_h.weight'; t[n] = t[n] * 1.1; "
        f"save_file(t, {str(file)!r}, metadata={{'format': 'pt'}}); print('null')"
    )
    result = guest.run(tiny_job("bloom", wrong, reference=references["bloom"]))
    assert result.status == "ok"
    assert not result.check["passed"] and result.check["logits_relative_error"] > 1e-3


def test_a_model_that_is_not_there_is_a_failed_row_with_its_reason(guest):
    result = guest.run(tiny_job("bloom", "/no/such/model"))
    assert result.status == "failed" and "/no/such/model" in result.reason
    assert result.environment["python"]


NO_CUDA = """
import torch

def refuse(*arguments):
    raise RuntimeError("CUDA driver initialization failed")

torch.cuda.device_count, torch.cuda.get_device_name = (lambda: 1), refuse
import sys
from bench import __main__ as program
path, into = {job!r}, {into!r}
print(program.main(program.read_job(path), path, into))
"""


@pytest.mark.parametrize(("model", "status"), [(None, "ok"), ("/no/such/model", "failed")])
def test_a_gpu_that_cannot_be_described_costs_neither_a_good_result_nor_the_reason_of_a_failure(guest, checkpoints, tmp_path, model, status):
    job, into = tmp_path / "asked.json", tmp_path / "result.json"
    job.write_text(to_json(tiny_job("bloom", model or checkpoints["bloom"], backend="transformers")))
    done = guest.command("-c", NO_CUDA.format(job=str(job), into=str(into)))
    assert done.returncode == 0 and "CUDA driver initialization failed" in done.stderr, "the log has the traceback"
    result = parse_result(into.read_text())
    assert result.status == status and (model or "") in result.reason
    assert result.environment["packages"]["transformers"] and result.environment["torch"]["version"] and "devices" not in result.environment


def test_the_reason_of_a_library_s_error_names_its_place(guest, checkpoints):
    result = guest.run(tiny_job("bloom", checkpoints["bloom"], runs=[{"new_tokens": 4, "arguments": {"do_sample": True, "temperature": -1.0}}]))
    assert result.status == "failed" and "temperature" in result.reason
    assert re.search(r" \(transformers/[\w/]+\.py, line \d+\)$", result.reason), result.reason


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("CUDA error: out of memory", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", True),
        ("Workspace can't be allocated, not enough memory", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", False),
        ("Workspace is of another batch", False),
    ],
)
def test_an_error_that_only_words_tell_to_be_of_memory_is_known(text, memory):
    assert reports_out_of_memory(RuntimeError(text)) is memory


def test_a_backend_without_a_module_ends_with_one_line(guest, checkpoints):
    done = guest.raw(to_json(tiny_job("bloom", checkpoints["bloom"], backend="my-own")))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "error: backend 'my-own' has no module bench/backends/my_own.py; write this file, as docs/adding.md shows"


def test_a_job_that_cannot_be_read_ends_with_one_line_and_no_result(guest, tmp_path):
    done = guest.raw('{"schema": 1')
    assert done.returncode == 1 and done.stderr.startswith("error: not JSON")
    assert not (tmp_path / "result.json").exists()


def test_a_prompt_is_cut_or_repeated_to_its_length_and_to_the_batch(guest, checkpoints):
    code = "import json; from bench.models import prompts; print(json.dumps([list(prompts.token_ids({{'text': 'ab', 'tokens': {}, 'batch_size': {}}}, {!r}).shape) for _ in [0]][0]))"
    assert guest.code(code.format(7, 3, str(checkpoints["bloom"]))) == [3, 7]
    assert guest.code(code.format(1, 1, str(checkpoints["bloom"]))) == [1, 1]
    assert guest.code(code.format(None, 1, str(checkpoints["bloom"]))) == [1, 2]


def test_inputs_of_a_spread_model_lie_on_the_first_gpu_and_others_with_the_model(guest):
    code = (
        "import json, types, torch; from bench.models.pretrained import inputs_device as place; "
        "model = lambda device, **more: types.SimpleNamespace(device=torch.device(device), **more); "
        "print(json.dumps([place(model('cuda:7', _hf_hook=1)), place(model('cuda:7')), place(model('cpu', _hf_hook=1))]))"
    )
    assert guest.code(code) == ["cuda:0", "cuda:7", "cpu"]


@pytest.mark.parametrize(
    ("backend", "load", "asked"),
    [
        ("layer_parallel", {"dtype": "float16", "device_map": "auto"}, {"device_map": "auto"}),
        ("int8", {"dtype": "int8", "device_map": "auto"}, {"device_map": "auto"}),
        ("int8", {"dtype": "int8", "device_map": "auto", "max_memory": "24GB"}, {"device_map": "auto", "max_memory": {"0": "24GB"}}),
    ],
)
def test_a_spread_backend_asks_for_its_job_s_map_and_puts_the_inputs_on_the_first_gpu(guest, backend, load, asked):
    """Without a GPU, so the model is a stand-in that accelerate would have put on GPU 7."""
    code = (
        f"import json, types, torch; from bench.models import pretrained; from bench.backends import {backend} as backend; calls = []; "
        "Linear8bitLt = type('Linear8bitLt', (), {}); "
        "model = types.SimpleNamespace(device=torch.device('cuda:7'), _hf_hook=1, parameters=lambda: [], modules=lambda: [Linear8bitLt()]); "
        "pretrained.load_model = lambda job, **arguments: calls.append(arguments) or model; "
        "pretrained.dtype_of = lambda model: 'float16'; vars(backend).update(library_file=lambda: 'a cuda file'); "
        f"loaded = backend.load(types.SimpleNamespace(device='cuda', load={load!r})); "
        "(made,) = calls; print(json.dumps([loaded.device, loaded.used['inputs_device'], "
        "{name: made[name] for name in ('device_map', 'max_memory') if name in made}]))"
    )
    assert guest.code(code) == ["cuda:0", "cuda:0", asked]


CUDNN = """
import json
from torch.backends import cuda
from bench.backends import transformers
from bench.job import parse_job

seen, load_onto = [], transformers.pretrained.load_onto
transformers.pretrained.load_onto = lambda *given: seen.append(cuda.cudnn_sdp_enabled()) or load_onto(*given)
cuda.enable_cudnn_sdp({before})
loaded = transformers.load(parse_job({job!r}))
print(json.dumps([seen, cuda.cudnn_sdp_enabled(), loaded.used]))
"""


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("asked", [False, True, None])
def test_cudnn_s_attention_is_off_or_on_as_asked_before_the_model_is_loaded(guest, checkpoints, before, asked):
    given = {} if asked is None else {"cudnn_attention": asked}
    job = tiny_job("gptj", checkpoints["gptj"], load={"dtype": "float32", **given})
    meanwhile, afterwards, used = guest.code(CUDNN.format(job=to_json(job), before=before))
    assert [*meanwhile, afterwards] == [before if asked is None else asked] * 2
    assert used == {"dtype": "float32", **given}, "a result without the argument tells what it told before"


CUDNN_KEEPS = """
import json
from torch.backends import cuda
from bench.backends import transformers
from bench.job import parse_job

cuda.enable_cudnn_sdp = lambda allowed: None
print(json.dumps(transformers.load(parse_job({job!r})).used["cudnn_attention"]))
"""


def test_a_result_tells_torch_s_setting_and_not_what_the_job_asked_for(guest, checkpoints):
    job = tiny_job("gptj", checkpoints["gptj"], load={"dtype": "float32", "cudnn_attention": False})
    assert guest.code(CUDNN_KEEPS.format(job=to_json(job))) is True


def test_plain_transformers_without_cudnn_s_attention_has_the_right_output_and_tells_it(guest, checkpoints, references):
    load = {"dtype": "float32", "cudnn_attention": False}
    result = guest.run(tiny_job("llama", checkpoints["llama"], load=load, reference=references["llama"]))
    assert result.status == "ok" and result.check["passed"], (result.reason, result.check)
    assert result.used == load and result.compat["cudnn_attention"] == "yes"


@pytest.mark.parametrize(
    ("backend", "name", "value", "words"),
    [
        ("transformers", "cudnn_attention", "no", "'no', allowed are true and false"),
        ("compiled", "attention", "groupd", "'groupd', allowed are eager, sdpa, grouped"),
        ("compiled", "attention", {}, "{}, allowed are eager, sdpa, grouped"),
    ],
)
def test_a_value_of_load_that_a_backend_refuses_is_refused_before_the_model_is_looked_for(guest, backend, name, value, words):
    result = guest.run(tiny_job("llama", "/nowhere", backend=backend, load={"dtype": "float32", name: value}))
    assert (result.status, result.reason) == ("unsupported", f"load.{name} is {words}")
