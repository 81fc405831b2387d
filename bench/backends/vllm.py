"""vLLM: an engine with its own scheduler, paged key-value cache and compiled model.

On one GPU the engine works in this process, so torch's peaks are its own; on several it starts a process for each GPU (`processes` of
`load` makes one process on one GPU too). An engine in other processes could begin with the first rows of a batch before the others arrive,
and equal calls could work on different batches. So the engine pauses until it has all rows; the pause is a part of the timed call. The
engine gets and gives token ids, so no tokeniser takes part. Prefix caching is off, because timed calls repeat their prompt. The key-value
cache has the size that the job needs and is allocated ahead; the result has its bytes.

options of `load`: cache_tokens (the most tokens of a prompt and its answer together; by default those of the job's prompt and longest run,
so a form that renders or pads prompts of its own needs it), enforce_eager (true: no compilation and no CUDA graphs), attention (a name of
vLLM's attention backends), processes (true: the engine in a process of its own on one GPU too).
"""

import contextlib
import itertools
import os
import time
import traceback

from bench.backends import LOGITS, MASK, REQUESTS, TOKENS, Engine, end_tokens_of, process_memory
from bench.backends.compiled import cache_tokens_of, no_compiler, own_cache_of_kernels
from bench.measuring import environment, work
from bench.models import prompts, weights

GIVES = (TOKENS, MASK, LOGITS, REQUESTS)

ARGUMENTS = ("cache_tokens", "enforce_eager", "attention", "processes")

#: Arguments of `generate` that the engine follows, with transformers' meaning.
FOLLOWED = ("do_sample", "num_beams", "max_new_tokens", "max_length", "min_length", "min_new_tokens", "eos_token_id", "pad_token_id", "streamer")

#: The kit gives the engine the size of its cache, not a share of the GPU: this share only has to be free when the engine starts.
LEAST_FREE_SHARE = 0.1

#: Room in the cache beside the job's own tokens: blocks are whole, and the engine keeps some for itself.
SPARE_TOKENS_A_ROW, SPARE_BYTES = 64, 64 << 20

#: The limit of prompt tokens in a step; higher where a batch has more, so that one step reads all its prompts.
LEAST_STEP_TOKENS = 2048


def unsupported(job):
    if job.device == "cpu":
        return "vLLM's wheel holds CUDA code: it needs an NVIDIA GPU"
    for run in job.runs:
        if run["arguments"].get("do_sample") or run["arguments"].get("num_beams", 1) != 1:
            return "the kit asks vLLM for greedy tokens only, this run samples or searches beams: {}".format(run["arguments"])
    return no_compiler(job.device, "inductor")


def load(job):
    own_cache_of_kernels()
    own_process = job.device_count > 1 or bool(job.load.get("processes"))
    _set_environment(own_process)
    import vllm

    ids = prompts.token_ids(job.prompt, job.model["path"])
    config = weights.config_of(job.model["shape"], job.model["scale"])
    settings, began = settings_of(job, config, ids), time.monotonic()
    llm = vllm.LLM(**settings)
    attention = settings["attention_config"]
    used = {
        "dtype": job.load["dtype"],
        "ready_s": round(time.monotonic() - began, 3),
        "cache_tokens": settings["max_model_len"],
        "preallocated_bytes": settings["kv_cache_memory_bytes"],
        "enforce_eager": settings["enforce_eager"],
        "attention": attention["backend"] if attention else "vLLM's own choice",
        "engine_in_own_process": own_process,
        "rows_begin_together": True,
        "ranks": job.device_count,
    }
    return Vllm(device="cpu", llm=llm, ends=_end_tokens(job.model["path"]), vocabulary=config["vocab_size"], own_process=own_process, used=used)


def settings_of(job, config, ids):
    """vLLM's own settings for a job, by the config.json of its model and its prompt [rows, tokens]."""
    cache_tokens, rows = cache_tokens_of(job, ids.shape[1]), ids.shape[0]
    attention = job.load.get("attention") or attention_of(config["model_type"])
    return {
        "model": job.model["path"],
        "dtype": job.load["dtype"],
        "load_format": "safetensors",
        "trust_remote_code": False,
        "skip_tokenizer_init": True,
        "tensor_parallel_size": job.device_count,
        "max_model_len": cache_tokens,
        "max_num_seqs": rows,
        "max_num_batched_tokens": max(LEAST_STEP_TOKENS, ids.numel()),
        "enable_prefix_caching": False,
        "enforce_eager": bool(job.load.get("enforce_eager")),
        "attention_config": {"backend": attention} if attention else None,
        "compilation_config": {"pass_config": {"fuse_allreduce_rms": False}},  # kernels that need CUDA's compiler, which the image lacks
        "kv_cache_memory_bytes": cache_bytes_of(config, job.load["dtype"], rows, cache_tokens, job.device_count),
        "gpu_memory_utilization": LEAST_FREE_SHARE,
        "logprobs_mode": "raw_logits",
        "max_logprobs": -1,
        "seed": 0,
    }


def attention_of(model_type):
    """The attention backend that a model needs to be named, or "".

    ALiBi falls back to FlashAttention 2 on Hopper, while 0.20.0 prepares the call for version 3 and fails.
    """
    return "TRITON_ATTN" if model_type == "bloom" else ""


def cache_bytes_of(config, dtype, rows, cache_tokens, device_count):
    """Bytes of the cache of keys and values on each GPU, which holds a part of the heads."""
    needed = work.cache_bytes(work.model_of(config), dtype, rows, cache_tokens + SPARE_TOKENS_A_ROW)
    return int(needed) // device_count + SPARE_BYTES


def _set_environment(own_process):
    """Settings that vLLM reads from its environment when it is imported; processes of its own inherit them."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING=str(int(own_process)),
        VLLM_WORKER_MULTIPROC_METHOD="spawn",
        VLLM_NO_USAGE_STATS="1",
        VLLM_USE_DEEP_GEMM="0",  # kernels for FP8 alone, whose warm-up fails on Hopper without CUDA's compiler
        VLLM_LOGGING_LEVEL="WARNING",
        VLLM_HOST_IP="127.0.0.1",  # a container without a network has only the loopback interface
        VLLM_CACHE_ROOT=os.path.join(os.path.dirname(os.environ["TRITON_CACHE_DIR"]), "vllm"),
    )
    if "GPU-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        from vllm.third_party import pynvml

        os.environ["CUDA_VISIBLE_DEVICES"] = indices(os.environ["CUDA_VISIBLE_DEVICES"], pynvml)
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML's, whose indices these are


def indices(uuids, pynvml):
    """ "3,0" for the UUIDs of these GPUs: vLLM 0.20.0 reads whole numbers and nothing else."""
    pynvml.nvmlInit()
    try:
        return ",".join(str(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid))) for uuid in uuids.split(","))
    finally:
        pynvml.nvmlShutdown()


def _end_tokens(path):
    """The model's end tokens in order, as transformers would take them."""
    import transformers

    try:
        generation = transformers.GenerationConfig.from_pretrained(path)
    except OSError:  # the checkpoint has no generation_config.json
        generation = transformers.GenerationConfig.from_model_config(transformers.AutoConfig.from_pretrained(path))
    return end_tokens_of(generation)


class Vllm(Engine):
    """`llm` is vLLM's own engine; `ends` are the model's end tokens."""

    names = itertools.count()

    def generate(self, input_ids, attention_mask=None, **arguments):
        import torch

        rows = _rows(input_ids, attention_mask)
        asked = self._asked(input_ids.shape[1], arguments)
        made = self._streamed(rows, asked, input_ids, arguments["streamer"]) if "streamer" in arguments else self._made(rows, asked)
        longest = max(len(tokens) for tokens in made)
        pad = arguments.get("pad_token_id")
        pad = (self.ends or [0])[0] if pad is None else pad
        return torch.tensor([tokens + [pad] * (longest - len(tokens)) for tokens in made])

    def finished(self, requests, ends, coming=None):
        engine, numbers = self.llm.llm_engine, {}
        self._add(requests, ends, numbers)
        while engine.has_unfinished_requests() or (coming and coming.left):
            if coming:
                if not engine.has_unfinished_requests():
                    coming.wait()
                self._add(coming.due(), ends, numbers)
            ended = [(numbers[output.request_id], list(output.outputs[0].token_ids)) for output in engine.step()]
            if coming:
                coming.answered([number for number, _ in ended])
            yield from ended

    def _add(self, requests, ends, numbers):
        """Give requests to the engine; `numbers` gets {the engine's name of a request: its number}."""
        import vllm

        for number, ids, most in requests:
            asked = vllm.SamplingParams(temperature=0.0, max_tokens=most, ignore_eos=True, stop_token_ids=list(ends), detokenize=False)
            asked.output_kind = vllm.sampling_params.RequestOutputKind.FINAL_ONLY
            name = "queued-{}".format(next(self.names))
            numbers[name] = number
            self.llm.llm_engine.add_request(name, {"prompt_token_ids": ids}, asked)

    def last_logits(self, input_ids, attention_mask=None):
        import torch
        import vllm

        # flat_logprobs gives one object, not one for each token of the vocabulary.
        asked = vllm.SamplingParams(temperature=0.0, max_tokens=1, logprobs=-1, flat_logprobs=True, detokenize=False, ignore_eos=True)
        outputs = self.llm.generate(_as_prompts(_rows(input_ids, attention_mask)), asked, use_tqdm=False)
        logits = torch.full((len(outputs), self.vocabulary), float("nan"))
        for row, output in zip(logits, outputs):
            told = output.outputs[0].logprobs
            row[torch.tensor(told.token_ids)] = torch.tensor(told.logprobs)
        return logits

    def end_tokens(self):
        return self.ends

    def memory(self, job):
        """As in Engine; where the engine has processes of its own, they hold the weights on their way to the GPUs."""
        told = process_memory(job)
        if self.own_process:
            told["peak_rss_bytes"], told["processes"] = environment.peak_rss_of_all()
        return told

    def close(self):
        """As in Engine. Everything is measured by now, so what goes wrong here is told in the log and fails no run."""
        import torch
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        try:
            self.llm.llm_engine.engine_core.shutdown()
            self.llm = None
            torch._dynamo.reset()  # compiled code holds the model's memory
            getattr(torch._dynamo.convert_frame, "_bytecode_hooks", {}).clear()  # vLLM 0.20.0 registers a method of the model there, for ever
            cleanup_dist_env_and_memory()
        except Exception:
            traceback.print_exc()

    def _asked(self, prompt_tokens, arguments):
        """vLLM's sampling parameters for arguments of transformers' `generate`; raises ValueError for one that cannot be followed."""
        import vllm

        unknown = sorted(set(arguments) - set(FOLLOWED))
        if unknown or arguments.get("do_sample") or arguments.get("num_beams", 1) != 1:
            raise ValueError("vLLM cannot follow {}".format(unknown or "do_sample or num_beams"))
        most = arguments["max_new_tokens"] if "max_new_tokens" in arguments else arguments["max_length"] - prompt_tokens
        least = max(arguments.get("min_new_tokens") or 0, (arguments.get("min_length") or 0) - prompt_tokens)
        ends = arguments.get("eos_token_id", self.ends)
        ends = [end for end in (ends if isinstance(ends, (list, tuple)) else [ends]) if end is not None and end < self.vocabulary]
        return vllm.SamplingParams(
            temperature=0.0, max_tokens=most, min_tokens=max(0, min(least, most)), ignore_eos=True, stop_token_ids=ends, detokenize=False
        )

    def _made(self, rows, asked):
        with self._begun_together(rows):
            self.llm.enqueue(_as_prompts(rows), asked, use_tqdm=False)
        outputs = self.llm.wait_for_completion(use_tqdm=False)
        if len(outputs) != len(rows):  # some are rows of an earlier call, which failed
            raise RuntimeError("vLLM answered {} rows, the call has {}".format(len(outputs), len(rows)))
        return [list(output.outputs[0].token_ids) for output in outputs]

    @contextlib.contextmanager
    def _begun_together(self, rows):
        """Within the block, an engine in its own process works on no row before all rows are added."""
        paused = self.own_process and len(rows) > 1
        if paused:
            self.llm.sleep(level=0, mode="keep")
        try:
            yield
        finally:
            if paused:
                self.llm.wake_up(tags=["scheduling"])

    def _streamed(self, rows, asked, input_ids, streamer):
        """As `_made`, step by step: a step's tokens go to the streamer once every row has its own."""
        import torch
        import vllm

        asked.output_kind = vllm.sampling_params.RequestOutputKind.DELTA
        engine, made, told = self.llm.llm_engine, {}, 0
        streamer.put(input_ids)
        with self._begun_together(rows):
            for prompt in _as_prompts(rows):
                name = "streamed-{}".format(next(self.names))
                made[name] = []
                engine.add_request(name, prompt, asked)
        while engine.has_unfinished_requests():
            for output in engine.step():
                made[output.request_id] += list(output.outputs[0].token_ids)
            while told < min(len(tokens) for tokens in made.values()):
                streamer.put(torch.tensor([tokens[told] for tokens in made.values()]))
                told += 1
        streamer.end()
        return list(made.values())


def _rows(input_ids, attention_mask):
    """The prompts [rows, tokens] as lists of ids without their padding on the left."""
    if attention_mask is None:
        return input_ids.tolist()
    return [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask)]


def _as_prompts(rows):
    return [{"prompt_token_ids": ids} for ids in rows]
