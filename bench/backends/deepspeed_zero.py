"""ZeRO stage 3 for inference: each weight is split over the GPUs and gathered layer by layer, one process per GPU.

Settings and dtype rule are those of bloom-ds-zero-inference.py in huggingface/transformers-bloom-inference. Every rank could run sequences
of its own; in the kit, as in that script's benchmark, all run the same ones.
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
    """DeepSpeed's configuration. The script's prefetch bucket is 0.9 of a square; later versions require a whole number."""
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
    configuration = settings(hidden_size, job.load["dtype"], ranks.total(), offload)
    # While this object lives, from_pretrained creates every weight in pieces on the GPUs. The engine has to live on as well: when it is
    # freed, it removes the hooks that gather the pieces.
    keeper = compat.zero_config_class(transformers.__version__)(configuration)
    model = pretrained.load_model(job)
    engine = deepspeed.initialize(model=model, config=configuration)[0]
    engine.module.eval()
    own_bytes = sum(parameter.ds_tensor.numel() * parameter.ds_tensor.element_size() for parameter in engine.module.parameters())
    used = {
        "dtype": pretrained.dtype_of(engine.module),
        "stage": 3,
        "ranks": ranks.total(),
        "cpu_offload": offload,
        "weights_of_first_rank_bytes": own_bytes,
    }
    return Loaded(model=engine.module, device=pretrained.first_device(job), used=used, kept=(keeper, engine))
