"""ZeRO stage 3 for inference: each weight is cut over the GPUs and brought together layer by layer, one process a GPU.

Settings and dtype rule are those of bloom-ds-zero-inference.py in huggingface/transformers-bloom-inference. Every rank runs its own
sequences; here all run the same ones, as that script's benchmark does.
"""

from bench import compat
from bench.backends import Loaded
from bench.measuring import ranks
from bench.models import pretrained

RANKS = True
ARGUMENTS = ("cpu_offload",)


def unsupported(job):
    if job.device == "cpu":
        return "ZeRO stage 3 is started over NCCL with float16 or bfloat16 weights: it needs an NVIDIA GPU"
    return ""


def settings(hidden_size, dtype_name, rank_count, cpu_offload=False):
    """DeepSpeed's configuration. The script gives the prefetch bucket as 0.9 of a square, which later versions only take as a whole number."""
    zero = {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": hidden_size * hidden_size,
        "stage3_prefetch_bucket_size": int(0.9 * hidden_size * hidden_size),
        "stage3_param_persistence_threshold": 0,
    }
    if cpu_offload:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {
        "fp16": {"enabled": dtype_name == "float16"},
        "bf16": {"enabled": dtype_name == "bfloat16"},
        "zero_optimization": zero,
        "steps_per_print": 2000,
        "train_batch_size": rank_count,
        "train_micro_batch_size_per_gpu": 1,
        "wall_clock_breakdown": False,
    }


def load(job):
    import deepspeed
    import torch
    import transformers

    torch.cuda.set_device(ranks.local())
    deepspeed.init_distributed("nccl")
    hidden_size = transformers.AutoConfig.from_pretrained(job.model["path"]).hidden_size
    offload = bool(job.load.get("cpu_offload", False))
    wanted = settings(hidden_size, job.load["dtype"], ranks.total(), offload)
    # While this object lives, from_pretrained makes every weight in pieces on the GPUs. The engine has to live on as well: where it is
    # let go, it takes the hooks off the model that bring the pieces together.
    keeper = compat.zero_config_class(transformers.__version__)(wanted)
    model = pretrained.load_model(job)
    engine = deepspeed.initialize(model=model, config=wanted)[0]
    engine.module.eval()
    mine = sum(parameter.ds_tensor.numel() * parameter.ds_tensor.element_size() for parameter in engine.module.parameters())
    used = {
        "dtype": pretrained.dtype_of(engine.module),
        "stage": 3,
        "ranks": ranks.total(),
        "cpu_offload": offload,
        "weights_of_first_rank_bytes": mine,
    }
    return Loaded(model=engine.module, device=pretrained.first_device(job), used=used, kept=(keeper, engine))
