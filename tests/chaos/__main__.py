"""python -m tests.chaos: SEED, FAULTS and ONLY are read from the environment, as `make chaos` sets them."""

import collections
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chaos import campaign, faults, oracle
from tests.chaos.place import removed_at_end

FAULTS = 120


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


def main() -> int:
    count, only = number_of("FAULTS", FAULTS), os.environ.get("ONLY", "")
    own_mounts()
    seed = os.environ.get("SEED") or secrets.token_hex(4)
    print(f"chaos: SEED={seed} FAULTS={count}", flush=True)
    lacking = {kind: kind.lacking() for kind in faults.ON_HOST}
    kinds = [kind for kind in faults.ON_HOST if not lacking[kind] and only in kind.name]
    for kind, why in lacking.items():
        if why:
            print(f"not tried: {kind.name}: {why}")
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, removed_at_end(Path(name) / "places") as places:
        Path(name).chmod(0o755)
        places.mkdir()
        run = campaign.Campaign(places, campaign.kits())
        run.prepare(kinds)
        for outcome in run.perform(campaign.drawn(seed, count, kinds)):
            outcomes.append(outcome)
            for category, words in outcome.breaches:
                print(f"BREACH {category}: fault {outcome.fault.number}: {words}", flush=True)
            if outcome.breaches:
                print(outcome.words, flush=True)
    for kind in kinds:
        of_kind = [outcome for outcome in outcomes if outcome.fault.kind is kind]
        breaches = collections.Counter(category for outcome in of_kind for category, _ in outcome.breaches)
        late = sum(not outcome.struck for outcome in of_kind)
        told = ", ".join(f"{category} {number}" for category, number in breaches.items()) or "0 breaches"
        print(f"{kind.name}: {len(of_kind) - late} injected{f', {late} came too late' if late else ''}, {told}")
    total = collections.Counter(category for outcome in outcomes for category, _ in outcome.breaches)
    injected = sum(outcome.struck for outcome in outcomes)
    print(f"faults injected: {injected}, " + ", ".join(f"{category}: {total[category]}" for category in oracle.CATEGORIES))
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
