"""python -m tests.chaos: SEED, FAULTS and KIND are read from the environment, as `make chaos` sets them."""

import functools
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts import surroundings
from scripts.machine import signals
from tests.chaos import campaign, containers, faults
from tests.chaos.place import DOCKER, removed_at_end

FAULTS = 120

#: What may be typed after `make chaos`.
VARIABLES = ("SEED", "FAULTS", "KIND")


def own_mounts() -> None:
    """Go on in a mount namespace of its own, so that no mount outlives the campaign; only root may."""
    if os.geteuid() == 0 and "CHAOS_OWN_MOUNTS" not in os.environ:
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.chaos"]
        if subprocess.run([*command[:4], "true"], capture_output=True, check=False).returncode == 0:
            os.execvpe(command[0], command, os.environ | {"CHAOS_OWN_MOUNTS": "1"})


def number_of(name: str, default: int) -> int:
    typed = os.environ.get(name) or str(default)
    if not typed.isdecimal() or not 1 <= int(typed) <= 100_000:
        print(f"error: {name} is {typed!r}, allowed are whole numbers from 1 to 100000; try make chaos {name}={default}", file=sys.stderr)
        sys.exit(2)
    return int(typed)


@functools.cache
def no_docker() -> str:
    return containers.lacking()


def lacks(kind: faults.Kind) -> str:
    """What this machine lacks for a kind of fault, or ""."""
    return (no_docker() if kind.engine == DOCKER else "") or kind.lacking()


def refuse_unread() -> None:
    """A variable that is typed and not read would be ignored in silence."""
    for name in os.environ.get("KIT_TYPED", "").split():
        if name not in VARIABLES:
            print(f"error: chaos does not read {name}, allowed are {', '.join(VARIABLES)}; leave {name} out", file=sys.stderr)
            sys.exit(2)


def main() -> int:
    surroundings.use(os.environ)
    refuse_unread()
    count, only = number_of("FAULTS", FAULTS), os.environ.get("KIND", "")
    own_mounts()
    seed = os.environ.get("SEED") or secrets.token_hex(4)
    print(f"chaos: SEED={seed} FAULTS={count}", flush=True)
    wanted = [kind for kind in faults.KINDS if only in kind.name]
    lacking = {kind: why for kind in wanted if (why := lacks(kind))}
    kinds = [kind for kind in wanted if kind not in lacking]
    for name, why in [*((kind.name, why) for kind, why in lacking.items()), *faults.NEVER_TRIED.items()]:
        print(f"not tried: {name}: {why}", flush=True)
    if not kinds:
        names = ", ".join(kind.name for kind in faults.KINDS)
        print(f"error: KIND is {only!r}, and no kind of fault has it in its name and can be tried here; allowed are parts of {names}", file=sys.stderr)
        return 3
    outcomes = []
    with signals.raised(), tempfile.TemporaryDirectory(prefix="chaos-") as name, removed_at_end(Path(name) / "places") as places:
        Path(name).chmod(0o755)
        places.mkdir()
        with campaign.Campaign(places, kinds) as run:
            for outcome in run.perform(campaign.drawn(seed, count, kinds)):
                outcomes.append(outcome)
                for category, words in outcome.breaches:
                    print(f"BREACH {category}: fault {outcome.fault.number}: {words}", flush=True)
                if outcome.breaches:
                    print(outcome.words, flush=True)
    print("\n".join(campaign.summary(kinds, outcomes)))
    return 1 if any(outcome.breaches for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
