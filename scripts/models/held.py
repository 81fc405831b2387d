"""A model whose files lie on this machine, each checked."""

from dataclasses import dataclass
from pathlib import Path

from scripts.models import files
from scripts.pins.models import ModelFile


@dataclass(frozen=True)
class HeldModel:
    """`folder` is what a job loads; `commit` is `folder-…` where only the digest of the weights is known; `files` are those of the commit.

    `converted_by` names what made the safetensors of `folder` where the commit has its weights in pickles; "" where the files are the commit's own.
    """

    folder: Path
    commit: str
    files: tuple[ModelFile, ...]
    converted_by: str = ""

    @property
    def weights_sha256(self) -> str:
        """Of the commit's weights, converted or not: a conversion keeps every tensor as it is."""
        return files.weights_sha256(self.files)

    @property
    def files_sha256(self) -> str:
        """64 hex digits over the names and digests of all files."""
        return files.files_sha256(self.files)

    @property
    def in_pickles(self) -> bool:
        """Have the weights still to be converted?"""
        return not self.converted_by and any(files.is_weights(file.name) and file.name.endswith(".bin") for file in self.files)
