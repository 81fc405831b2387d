"""8-bit weights by bitsandbytes (LLM.int8)."""

from importlib import metadata

from bench import compat
from bench.backends import Loaded
from bench.models import pretrained

ARGUMENTS = ("device_map", "max_memory")


def unsupported(job):
    bitsandbytes, transformers = metadata.version("bitsandbytes"), metadata.version("transformers")
    if job.device == "cpu" and not compat.eight_bit_on_cpu(bitsandbytes, transformers):
        return "bitsandbytes {} with transformers {} quantises on a GPU only".format(bitsandbytes, transformers)
    return ""


def library_file():
    """The file name of the compiled library that bitsandbytes has loaded."""
    import bitsandbytes.cextension as extension

    library = getattr(extension, "lib", None)
    return str(getattr(getattr(library, "_lib", library), "_name", library)).rsplit("/", 1)[-1]


def load(job):
    import transformers

    arguments = compat.eight_bit_arguments(transformers.__version__, lambda: transformers.BitsAndBytesConfig(load_in_8bit=True))
    if job.device == "cuda":
        arguments["device_map"] = job.load.get("device_map", "auto")
        if "max_memory" in job.load:
            arguments["max_memory"] = {0: job.load["max_memory"]}  # no other GPU is named, so the whole model goes to the first
    else:
        arguments["device_map"] = {"": "cpu"}
    model = pretrained.load_model(job, dtype_name="float16" if job.device == "cuda" else "float32", **arguments)
    library = library_file()
    if job.device == "cuda" and "cuda" not in library:
        raise RuntimeError("bitsandbytes loaded {} and no CUDA library, so the calls would not time int8 on the GPU".format(library))
    quantised = [module for module in model.modules() if type(module).__name__ == "Linear8bitLt"]
    if not quantised:
        raise RuntimeError("no layer became Linear8bitLt: the model is not 8-bit")
    device = pretrained.inputs_device(model)
    held = pretrained.devices_of(model)
    used = {"dtype": "int8", "library_file": library, "quantised_layers": len(quantised), "parameters_per_device": held, "inputs_device": device}
    return Loaded(model=model, device=device, used=used)
