"""The backend `vllm` against a stand-in of vLLM's interface, made of real tiny transformers models: vLLM itself runs on no CPU of these tests."""

import pytest

from bench.backends import vllm as backend
from bench.job import Result, to_json
from bench.measuring import answers_file
from bench.models import weights
from scripts.results import answers as answers_of_host
from tests.guest.conftest import SHAPES
from tests.guest.samples import tiny_job
from tests.guest.test_batch import answers_of, lines_of

GREEDY = {"do_sample": False, "num_beams": 1}
BATCH = {"text": "the quick brown fox", "tokens": 32, "batch_size": 3}

#: A request takes a step to begin for each row before it, as prompts do that do not fit into one step.
STAND_IN = """
import dataclasses, enum, sys, types
vllm = types.ModuleType("vllm")
vllm.asked, vllm.events = [], []

class Kind(enum.Enum):
    CUMULATIVE, DELTA, FINAL_ONLY = 0, 1, 2

@dataclasses.dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int = 16
    min_tokens: int = 0
    logprobs: int = None
    flat_logprobs: bool = False
    detokenize: bool = True
    ignore_eos: bool = False
    stop_token_ids: list = None
    output_kind: Kind = Kind.CUMULATIVE

def output(name, tokens, logprobs=None):
    return types.SimpleNamespace(request_id=name, outputs=[types.SimpleNamespace(token_ids=tokens, logprobs=logprobs)])

class Engine:
    def __init__(self, llm):
        self.llm, self.waiting, self.at = llm, [], 0
        self.engine_core = types.SimpleNamespace(shutdown=lambda: print("shut down"))
    def add_request(self, name, prompt, params):
        vllm.events.append("1 queued")
        assert params.output_kind != Kind.CUMULATIVE and name not in [one[0] for one in self.waiting]
        self.kind = params.output_kind
        self.waiting.append([name, self.llm.tokens(prompt, params)[0], len(self.waiting), self.at])
    def has_unfinished_requests(self):
        return any(one[1] for one in self.waiting)
    def step(self):
        self.at += 1
        if self.kind == Kind.FINAL_ONLY:
            ended = [one for one in self.waiting if len(one[1]) == self.at - one[3]]
            self.waiting = [one for one in self.waiting if one not in ended]
            self.at = self.at if self.waiting else 0
            return [output(one[0], one[1]) for one in ended]
        ready = [one for one in self.waiting if one[1] and self.at > one[2]]
        return [output(one[0], (one[1].pop(0),)) for one in ready]

class LLM:
    def __init__(self, model, **settings):
        import transformers
        vllm.asked.append(settings)
        self.model, self.llm_engine = transformers.AutoModelForCausalLM.from_pretrained(model).eval(), Engine(self)
    def tokens(self, prompt, params):
        import torch
        assert params.temperature == 0 and params.ignore_eos and not params.detokenize
        ids, made, first = list(prompt["prompt_token_ids"]), [], None
        while len(made) < params.max_tokens and not (made and len(made) > params.min_tokens and made[-1] in (params.stop_token_ids or [])):
            with torch.no_grad():
                logits = self.model(torch.tensor([ids])).logits[0, -1]
            first = logits.clone() if first is None else first
            if len(made) < params.min_tokens:
                logits[params.stop_token_ids] = float("-inf")
            made.append(int(logits.argmax()))
            ids.append(made[-1])
        return made, first
    def sleep(self, level, mode):
        assert (level, mode) == (0, "keep")
        vllm.events.append("paused")
    def wake_up(self, tags):
        assert tags == ["scheduling"]
        vllm.events.append("goes on")
    def enqueue(self, prompts, params, use_tqdm):
        vllm.events.append(str(len(prompts)) + " queued")
        self.queued = [prompts, params, use_tqdm]
    def wait_for_completion(self, use_tqdm):
        assert use_tqdm is False
        vllm.events.append("waits")
        return self.generate(*self.queued)
    def generate(self, prompts, params, use_tqdm):
        assert params.logprobs in (None, -1) and not use_tqdm
        outputs = []
        for number, prompt in enumerate(prompts):
            made, logits = self.tokens(prompt, params)
            order = [int(logits.argmax())] + logits.argsort(descending=True).tolist()
            flat = types.SimpleNamespace(token_ids=order, logprobs=logits[order].tolist())
            outputs.append(output(str(number), made, flat if params.logprobs else None))
        return outputs

vllm.LLM, vllm.SamplingParams, vllm.sampling_params = LLM, SamplingParams, types.SimpleNamespace(RequestOutputKind=Kind)
parallel = types.ModuleType("vllm.distributed.parallel_state")
parallel.cleanup_dist_env_and_memory = lambda: None
sys.modules.update({{"vllm": vllm, "vllm.distributed": types.ModuleType("vllm.distributed"), "vllm.distributed.parallel_state": parallel}})

import json
from bench import __main__ as program, backends
from bench.job import parse_job
job = parse_job({text!r})
backends.find("vllm").unsupported = lambda job: ""
"""


def vllm_job(architecture, checkpoint, **changes):
    runs = [{"new_tokens": 1, "arguments": GREEDY}, {"new_tokens": 12, "arguments": GREEDY}]
    return tiny_job(architecture, checkpoint, **{"backend": "vllm", "prompt": BATCH, "runs": runs, **changes})


def asked(guest, job, lines):
    return guest.code(STAND_IN.format(text=to_json(job)) + lines)


WHOLE = """
result = program.run(job, {folder!r})
tokens = json.load(open({folder!r} + "/tokens.json"))
settings = {{name: value for name, value in vllm.asked[0].items() if name != "gpu_memory_utilization"}}
print(json.dumps([result.status, result.reason, result.check, result.used, result.figures, tokens["again"], len(tokens["fresh"]), settings]))
"""


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_a_job_runs_from_ids_to_ids_and_passes_the_output_check(guest, checkpoints, references, tmp_path, architecture):
    job = vllm_job(architecture, checkpoints[architecture], reference=references[architecture])
    status, reason, check, used, figures, again, fresh, settings = asked(guest, job, WHOLE.format(folder=str(tmp_path)))
    assert status == "ok", reason
    assert check["passed"] and check["greedy_common_prefix_tokens"] == 4, check
    assert again == {"reason": "ValueError: vLLM cannot follow ['logits_processor']"} and fresh == 2
    assert figures["token_times"]["new_tokens"] == 12 and {len(call) for call in figures["token_times"]["between_ms"]} == {11}
    assert (used["cache_tokens"], used["engine_in_own_process"], used["dtype"]) == (48, False, "float32")
    assert used["preallocated_bytes"] == settings["kv_cache_memory_bytes"] > 0
    assert settings["attention_config"] == ({"backend": "TRITON_ATTN"} if architecture == "bloom" else None)
    assert settings["compilation_config"] == {"pass_config": {"fuse_allreduce_rms": False}}
    assert settings["enable_prefix_caching"] is False and settings["skip_tokenizer_init"] and settings["max_model_len"] == 48
    assert (settings["tensor_parallel_size"], settings["max_num_seqs"], settings["dtype"]) == (1, 3, "float32")


COMPARED = """
import torch
from bench.backends import transformers as plain
loaded, other = backends.find("vllm").load(job), plain.load(job)
ids = torch.arange(5, 15).repeat(2, 1)
mask = torch.ones_like(ids)
mask[1, :4] = 0
def both(**arguments):
    return [engine.generate(ids, mask, **arguments).tolist() for engine in (loaded, other)]
end = int(other.generate(ids, mask, do_sample=False, max_new_tokens=3, eos_token_id=-1)[0, 1])
found = {{
    "exact": both(do_sample=False, num_beams=1, max_new_tokens=6, min_length=16),
    "ends": both(do_sample=False, max_new_tokens=6, eos_token_id=[end], pad_token_id=7),
    "forbidden": both(do_sample=False, max_new_tokens=6, min_length=16, eos_token_id=[end], pad_token_id=7),
    "no end": both(do_sample=False, max_new_tokens=6, eos_token_id=2**31 - 1, pad_token_id=7),
}}
difference = float((loaded.last_logits(ids) - other.last_logits(ids)).abs().max())
print(json.dumps([found, difference, loaded.end_tokens() == other.end_tokens()]))
"""


def test_uneven_rows_ends_and_lengths_mean_what_they_mean_in_transformers(guest, checkpoints):
    found, difference, same_ends = asked(guest, vllm_job("llama", checkpoints["llama"]), COMPARED.format())
    assert {name: ours == right for name, (ours, right) in found.items()} == dict.fromkeys(found, True), found
    assert len(found["ends"][0][0]) <= 6 and found["forbidden"] != found["ends"]
    assert difference < 1e-4 and same_ends


TOGETHER = """
import torch
loaded = backends.find("vllm").load(job)
streamer = types.SimpleNamespace(put=lambda tokens: None, end=lambda: None)
found = []
for rows in (3, 1):
    for arguments in ({{}}, {{"streamer": streamer}}):
        vllm.events.clear()
        loaded.generate(torch.arange(5, 15).repeat(rows, 1), do_sample=False, max_new_tokens=2, **arguments)
        found.append(list(vllm.events))
vllm.events.clear()
loaded.llm.enqueue = lambda *arguments, **named: 1 / 0
try:
    loaded.generate(torch.arange(5, 15).repeat(3, 1), do_sample=False, max_new_tokens=2)
except ZeroDivisionError:
    found.append(list(vllm.events))
loaded.llm.enqueue, loaded.llm.wait_for_completion = (lambda *arguments, **named: None), (lambda **named: [])
try:
    loaded.generate(torch.arange(5, 15).repeat(3, 1), do_sample=False, max_new_tokens=2)
except RuntimeError as error:
    found.append(str(error))
print(json.dumps(found))
"""


@pytest.mark.parametrize("processes", [True, False])
def test_the_rows_of_a_batch_begin_together_in_an_engine_of_its_own_process(guest, checkpoints, processes):
    """On two H200s without this, two of five equal calls of 32 rows made other tokens than the rest. A call that fails leaves no engine paused."""
    job = vllm_job("bloom", checkpoints["bloom"], load={"dtype": "float32", "processes": processes})
    batch, streamed, one, one_streamed, failed, wrong = asked(guest, job, TOGETHER.format())
    paused, goes_on = (["paused"], ["goes on"]) if processes else ([], [])
    assert batch == [*paused, "3 queued", *goes_on, "waits"] and streamed == [*paused, *["1 queued"] * 3, *goes_on]
    assert one == ["1 queued", "waits"] and one_streamed == ["1 queued"]
    assert failed == paused + goes_on and wrong == "vLLM answered 0 rows, the call has 3"


MEMORY = """
import subprocess
import torch
filling = "import subprocess, sys; held = b'x' * (300 << 20); again = sys.argv.pop() == 'parent'; "
waiting = "child = again and subprocess.Popen([sys.executable, '-c', 'held = bytes(1) * (200 << 20); print(0, flush=True); input()']); input()"
child = subprocess.Popen([sys.executable, "-c", filling + waiting, "parent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
try:
    result = program.run(job, {folder!r})
finally:
    child.stdin.close()
    child.wait()
alone = int([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0]) * 1024
print(json.dumps([result.status, result.reason, result.memory.get("processes"), result.memory["peak_rss_bytes"] - alone]))
"""


@pytest.mark.parametrize("processes", [True, False])
def test_the_resident_memory_of_an_engine_s_own_processes_counts_and_that_of_their_children(guest, checkpoints, tmp_path, processes):
    job = vllm_job("bloom", checkpoints["bloom"], load={"dtype": "float32", "processes": processes})
    status, reason, count, more = asked(guest, job, MEMORY.format(folder=str(tmp_path)))
    assert status == "ok", reason
    assert count == (3 if processes else None)
    assert 480 << 20 < more < 600 << 20 if processes else more <= 0


PADDED = """
loaded = backends.find("vllm").load(job)
loaded._made = lambda rows, asked: [[5, 6], [7]]
loaded.ends = [3]
import torch
ids = torch.arange(5, 15).repeat(2, 1)
print(json.dumps([loaded.generate(ids, max_new_tokens=2, **more).tolist()[1] for more in ({{"pad_token_id": 0}}, {{"pad_token_id": None}}, {{}})]))
"""


def test_a_padding_token_of_number_zero_is_one(guest, checkpoints):
    assert asked(guest, vllm_job("bloom", checkpoints["bloom"]), PADDED.format()) == [[7, 0], [7, 3], [7, 3]]


QUEUE = """
from bench.models import texts
result = program.run(job, {folder!r})
print(json.dumps([result.status, result.reason, result.figures, result.check]))
"""


def test_a_workload_through_the_engine_s_own_queue_gives_each_text_the_answer_of_a_batch(guest, checkpoints, references, tmp_path):
    lengths = {"median": 3, "sigma": 0.8, "least": 1, "most": 6}
    options = {"templated": False, "items": 9, "order": "naive", "seed": 0, "prompt_tokens": lengths, "answer_tokens": lengths, "terminators": []}
    runs = [{"new_tokens": 6, "arguments": {"do_sample": False}}]
    asked_of = {"options": options, "runs": runs, "reference": references["llama"], "warmup_runs": 0}
    plain = guest.run(tiny_job("llama", checkpoints["llama"], form="workload", prompt=BATCH, **asked_of))
    answers = answers_of(tmp_path)
    (tmp_path / answers_file.NAME).unlink()
    queued = vllm_job("llama", checkpoints["llama"], form="engine-queue", load={"dtype": "float32", "cache_tokens": 64}, **asked_of)
    status, reason, figures, check = asked(guest, queued, QUEUE.format(folder=str(tmp_path)))
    assert (status, reason) == ("ok", "") and check["passed"]
    assert answers_of(tmp_path) == answers and sorted(answers) == list(range(9)) and len({made for made, _ in answers.values()}) > 2
    assert figures["workload"]["new_tokens"] == plain.figures["workload"]["new_tokens"] == figures["workload"]["decode_rows"]
    assert figures["workload"]["prompt_tokens"] == figures["workload"]["padded_prompt_tokens"] == plain.figures["workload"]["prompt_tokens"]


def test_requests_that_arrive_over_time_get_the_same_answers_from_the_queue_as_in_static_batches(guest, checkpoints, references, tmp_path):
    lengths = {"median": 3, "sigma": 0.8, "least": 1, "most": 6}
    options = {"templated": False, "items": 9, "order": "naive", "seed": 0, "prompt_tokens": lengths, "answer_tokens": lengths, "terminators": []}
    runs = [{"new_tokens": 6, "arguments": {"do_sample": False}}]
    asked_of = {"options": dict(options, arrivals_per_s=20), "runs": runs, "reference": references["llama"], "warmup_runs": 0}
    plain = guest.run(tiny_job("llama", checkpoints["llama"], form="workload", prompt=BATCH, **asked_of))
    answers = answers_of(tmp_path)
    (tmp_path / answers_file.NAME).unlink()
    queued = vllm_job("llama", checkpoints["llama"], form="engine-queue", load={"dtype": "float32", "cache_tokens": 64}, **asked_of)
    status, reason, figures, _ = asked(guest, queued, QUEUE.format(folder=str(tmp_path)))
    assert (status, reason) == ("ok", "") and plain.status == "ok", plain.reason
    assert answers_of(tmp_path) == answers and sorted(answers) == list(range(9))
    assert figures["latency"]["offered_s"] == plain.figures["latency"]["offered_s"], "the same load for both"
    latencies_ms = [ms for line in lines_of(tmp_path) for ms in line["latency_ms"]]
    assert len(latencies_ms) == 9 and max(latencies_ms) == figures["latency"]["longest_ms"]
    for result in (plain, Result(queued.id, "ok", measurements=[{"timed_ms": [line["ms"] for line in lines_of(tmp_path)], "new_tokens": 6}], figures=figures)):
        assert answers_of_host.contradiction(queued, result) == ""


REFUSED = """
import torch
loaded = backends.find("vllm").load(job)
said = []
for arguments in ({{"do_sample": True}}, {{"num_beams": 4}}, {{"repetition_penalty": 1.2}}):
    try:
        loaded.generate(torch.arange(8).repeat(3, 1), max_new_tokens=2, **arguments)
    except ValueError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_an_argument_that_the_engine_cannot_follow_is_refused_by_name(guest, checkpoints):
    said = asked(guest, vllm_job("bloom", checkpoints["bloom"]), REFUSED.format())
    assert said == ["vLLM cannot follow do_sample or num_beams"] * 2 + ["vLLM cannot follow ['repetition_penalty']"]


def test_a_machine_or_a_job_that_it_cannot_serve_is_refused_before_anything_is_loaded():
    job = vllm_job("bloom", "/nowhere")
    assert backend.unsupported(job) == "vLLM's wheel holds CUDA code: it needs an NVIDIA GPU"
    sampled = vllm_job("bloom", "/nowhere", device="cuda", runs=[{"new_tokens": 4, "arguments": {"do_sample": True}}])
    assert backend.unsupported(sampled) == "the kit asks vLLM for greedy tokens only, this run samples or searches beams: {'do_sample': True}"


def test_a_gpu_stands_by_its_index_where_the_host_gave_its_uuid():
    class Driver:
        known, open = ["GPU-a", "GPU-b", "GPU-c"], False

        def nvmlInit(self):
            self.open = True

        def nvmlShutdown(self):
            self.open = False

        def nvmlDeviceGetHandleByUUID(self, uuid):
            assert self.open
            return self.known.index(uuid)

        def nvmlDeviceGetIndex(self, handle):
            return handle

    driver = Driver()
    assert backend.indices("GPU-c,GPU-a", driver) == "2,0" and not driver.open


def test_the_cache_holds_the_job_and_each_of_two_gpus_has_half_of_it():
    config = weights.config_of("bloomz-7b1", "full")
    one = backend.cache_bytes_of(config, "float16", 8, 256, 1)
    assert one - backend.SPARE_BYTES == 2 * 30 * 4096 * 2 * 8 * (256 + backend.SPARE_TOKENS_A_ROW)
    assert backend.cache_bytes_of(config, "float16", 8, 256, 2) - backend.SPARE_BYTES == (one - backend.SPARE_BYTES) // 2


CLOSED = """
import gc, weakref
import torch._dynamo
loaded = backends.find("vllm").load(job)
model, ended = loaded.llm.model, []
loaded.llm.llm_engine.engine_core.shutdown = lambda: ended.append(True)
torch._dynamo.convert_frame.register_bytecode_hook(types.MethodType(lambda self, old, new: None, model))
gone = weakref.ref(model)
del model
loaded.close()
gc.collect()
print(json.dumps([gone() is None, ended]))
"""


def test_a_closed_engine_gives_its_model_back_although_vllm_left_a_hook_to_it_in_torch(guest, checkpoints):
    """The probes of the GPU need the memory: on an H200 they found none free after vLLM's own clean-up."""
    assert asked(guest, vllm_job("bloom", checkpoints["bloom"]), CLOSED) == [True, [True]]
