"""python -m scripts.profile BACKEND: profile one call of each of a backend's cases, as typed after `make profile-…`.

The result lies among the runs like any other, with the trace beside it; `make report` shows the kernels that took longest.
"""

import dataclasses
import signal
import sys

from scripts import bench, nsight, options, results, runner
from scripts.errors import UsageError, run_command


def line_of(record: results.Record) -> str:
    """What came out, as one line for the terminal."""
    found = (record.guest.figures or {}).get("profile") if record.guest else None
    if record.status != "ok" or not found:
        return f"{record.status}: {record.reason}"
    return f"{found['new_tokens']} new tokens in {found['wall_ms']:.2f} ms, {found['profiled_wall_ms']:.2f} ms under {found['profiler']}"


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if len(sys.argv) != 2:
        raise UsageError("profile what? type for example make profile-deepspeed ARTICLE=deepspeed-inference CASES=ds-inference")
    asked = options.parse()
    planned = bench.plan([sys.argv[1]], asked, every=False)
    runs = results.runs_for(asked.scale, asked.device)
    worst = 0
    for one in planned:
        sizes = asked.batch_sizes or [None]
        for size in sizes:
            wanted = dataclasses.replace(one, profiler=asked.profiler, batch_size=size)
            print(wanted.title, file=sys.stderr, flush=True)
            record = runner.perform(wanted, asked, runs)
            folder = runs / record.id
            kept = [str(path) for path in (folder / name for name in nsight.KEPT) if path.exists()]
            print("\n  ".join([f"  {line_of(record)}", *kept, str(folder / "result.json")]), flush=True)
            worst = max(worst, bench.EXIT_CODES[record.status])
    print(results.where_shown(runs))
    return worst


if __name__ == "__main__":
    run_command(main)
