"""The environment variables that describe this machine.

The command line reads the environment once and hands it over with `use`; no other code of the kit reads it. The values that a user
chooses for a command (GPUS, MODELS, …) are options of the command line and not part of this module.
"""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.measuring.ranks import BETWEEN_GPUS
from scripts.errors import UsageError

#: The variables in which pip and its library requests look for a file of certificates; the first that is set counts.
CERTIFICATES_OF_PIP = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

#: Variables that, like every path, hold only outside of a container: an interface to the network, and a library of the machine.
OUTSIDE = ("NCCL_SOCKET_IFNAME", "NCCL_NET_PLUGIN")

#: A variable of BETWEEN_GPUS that sets nothing: NVIDIA's images tell the version of their own NCCL in it, which a job does not use.
NO_SETTING = "NCCL_VERSION"

#: How many threads torch takes on a CPU. Where other processes take the cores too, threads that wait for each other make a job many times as slow as one.
THREADS = "OMP_NUM_THREADS"

#: Variables that would lead an installer into another Python environment.
LEADING_ASTRAY = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")


@dataclass(frozen=True)
class Surroundings:
    """`variables` is the whole environment, for child processes that need it."""

    variables: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A variable's value; "" where it is not set."""
        return self.variables.get(name, "")

    def only(self, names: Collection[str]) -> dict[str, str]:
        """The variables that have one of these names."""
        return {name: text for name, text in self.variables.items() if name in names}

    def without(self, names: Collection[str]) -> dict[str, str]:
        """The variables that have none of these names."""
        return {name: text for name, text in self.variables.items() if name not in names}

    @property
    def between_gpus(self) -> dict[str, str]:
        """The machine's settings for the exchange of data between GPUs: every job on GPUs gets these variables, and its result names them."""
        return {name: text for name, text in self.variables.items() if name.startswith(BETWEEN_GPUS) and name != NO_SETTING}

    @property
    def between_gpus_inside(self) -> dict[str, str]:
        """The variables of `between_gpus` that hold in a container, which sees no network and no files of the machine."""
        return {name: text for name, text in self.between_gpus.items() if name not in OUTSIDE and "/" not in text}

    def inside(self, on_gpus: bool) -> dict[str, str]:
        """What a job in a container gets of these variables: on GPUs the settings between them, on a CPU the number of threads."""
        return self.between_gpus_inside if on_gpus else self.only((THREADS,))

    @property
    def for_installers(self) -> dict[str, str]:
        """The variables for pip and uv, without those that would lead them into another environment."""
        return self.without(LEADING_ASTRAY)

    @property
    def locks(self) -> Path:
        """The folder of locks: KIT_LOCKS, else one folder per user."""
        return Path(self.text("KIT_LOCKS") or f"/tmp/llm-repro-{os.getuid()}")

    @property
    def cost_per_gpu_hour(self) -> float | None:
        """COST_PER_GPU_HOUR, the price in any currency that a report uses. None where it is not set; raises UsageError."""
        typed = self.text("COST_PER_GPU_HOUR")
        price = float(typed) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", typed) else 0.0
        if typed and not price:
            raise UsageError(f"COST_PER_GPU_HOUR is {typed[:40]!r}, allowed is a price above 0 such as 2.5; try COST_PER_GPU_HOUR=2.5")
        return price or None

    @property
    def hub_token(self) -> str:
        """HF_TOKEN, for gated models; it stays in this process. A token from a file often ends in a line break."""
        return self.text("HF_TOKEN").strip()

    @property
    def hub_endpoint(self) -> str:
        """HF_ENDPOINT: a mirror of the hub; "" for the hub itself."""
        return self.text("HF_ENDPOINT").rstrip("/")

    @property
    def hub_cache(self) -> Path:
        """The cache of the hub's own client, which other programs share: HF_HUB_CACHE, else `hub` in HF_HOME, else in the user's cache."""
        home = self.text("HF_HOME") or f"{self.text('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
        return Path(self.text("HF_HUB_CACHE") or f"{home}/hub").expanduser()

    @property
    def certificates(self) -> str:
        """The file of certificates that the environment names for pip; "" where it names none."""
        return next((self.text(name) for name in CERTIFICATES_OF_PIP if self.text(name)), "")


_current = Surroundings()


def use(variables: Mapping[str, str]) -> None:
    """Take these variables as the environment from now on."""
    global _current
    _current = Surroundings(dict(variables))


def use_price(typed: str) -> None:
    """Take this text as COST_PER_GPU_HOUR; "" for checks and published reports, which must not have this shell's price."""
    use({**current().variables, "COST_PER_GPU_HOUR": typed})


def current() -> Surroundings:
    """The surroundings that the command line handed over; empty ones before."""
    return _current
