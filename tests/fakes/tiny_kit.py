"""A copy of the kit whose articles' models are tiny, so that the commands for real weights run to their end on any machine."""

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

from scripts.paths import ROOT

#: The model of the first article and its pinned commit: the commands take them from the copy's article and pins.
NAME, COMMIT = "bigscience/bloomz-7b1-mt", "13e9b1a39fe86c8024fe15667d063aa8a3e32460"

#: Bytecode that another process writes at this moment, and then renames.
HALF_WRITTEN = "*.pyc.*"


def writing_model(folder: str) -> str:
    """The code with which a guest writes a tiny model of that article into a folder, its weights in both formats."""
    return f"""
import os, torch
from safetensors.torch import load_file
from bench.models import weights
folder = {folder!r}
weights.write_checkpoint(folder, "bloomz-7b1", "tiny", 0)
state = load_file(os.path.join(folder, "model.safetensors"))
state["lm_head.weight"] = state["transformer.word_embeddings.weight"]
torch.save(state, os.path.join(folder, "pytorch_model.bin"))
print(0)
"""


class TinyKit:
    """The commands of a copy of the kit in `folder`, whose models come from the hub at `endpoint`."""

    def __init__(self, folder: Path, endpoint: str, parameters: int) -> None:
        self.root, self.models, self.runs = folder / "kit", folder / "models", folder / "runs"
        for name in ("scripts", "bench", "docker"):  # with its bytecode, or the first command would compile all of it
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns(HALF_WRITTEN))
        shutil.copy2(ROOT / "Makefile", self.root)
        (self.root / ".venv").symlink_to((ROOT / ".venv").resolve())
        for lock in (self.root / "scripts/requirements").iterdir():
            os.utime(lock, (0, 0))  # or make would take the tools of the linked environment for older than their locks
        with (self.root / "bench/models/weights.py").open("a") as stream:
            stream.write('\nSHAPES = {shape: config_of(shape, "tiny") for shape in SHAPES}\n')
        article = self.root / "bench/articles/inference-tools.toml"
        text = re.sub(r"(?m)^parameters = .*$", f"parameters = {parameters}", article.read_text())
        text = re.sub(r'(?ms)^text = """.*?"""$', 'text = "What is the next stage after TB infection?"', text, count=1)  # the whole text takes a minute
        article.write_text(text.replace("new_tokens = 128", "new_tokens = 32"))
        (self.root / "docker/models.json").write_text("{}\n")
        own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "cache"), "KIT_LOCKS": str(folder / "locks"), "MODELS": str(self.models)}
        inherited = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "HF_TOKEN", "HF_HUB_CACHE")
        self.environment = {name: value for name, value in os.environ.items() if name not in inherited} | own | {"RUNS": str(self.runs)}

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", *arguments]
        return subprocess.run(command, cwd=self.root, env=self.environment | environment, capture_output=True, text=True, timeout=500)

    def cpu_s(self, *arguments: str) -> float:
        """The processor seconds of a command that has to succeed: a busy machine makes it slower and costs no more of these."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.make(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stdout + done.stderr
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def parameters_of(model: dict[str, bytes]) -> int:
    """Of a tiny model in float32: its weights in bytes / 4."""
    return len(model["model.safetensors"]) // 4


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def without(model: dict[str, bytes], ending: str) -> dict[str, bytes]:
    return {name: content for name, content in model.items() if not name.endswith(ending)}
