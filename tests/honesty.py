"""Does the kit's clock tell what the first article's own loop tells? Both time the same calls of the same tiny model.

    PYTHON tests/honesty.py [ROUNDS]      in an environment with torch and transformers (`make honesty`)

Each round times ten calls with the article's loop (perf_counter around `generate`, nothing else) and ten with
bench/measure.py, in turn, each first in every other round, so that a drift of the machine hits both. Printed: the ratio of the two means with
the spread over the rounds. A ratio that is not 1 within that spread would be the kit's own overhead.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import measure, weights


def articles_loop(generate):
    """Mean ms of ten calls, as the article's measure_latency takes it."""
    latencies = []
    for _ in range(10):
        began = perf_counter()
        generate()
        latencies.append(perf_counter() - began)
    return 1000 * statistics.fmean(latencies)


def kits_clock(generate):
    """Mean ms of ten calls, as the guest takes it."""
    samples = measure.measure(generate, new_tokens=1, warmup_runs=0, timed_runs=10, cold=False, synchronize=lambda: None)
    return statistics.fmean(samples["timed_ms"])


def tiny_model():
    """A tiny random BLOOM, through the kit's own checkpoint."""
    import transformers

    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        weights.write_checkpoint(folder, "bloomz-7b1", "tiny", seed=0)
        return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def main(rounds):
    import torch

    model = tiny_model()
    ids = torch.arange(64).reshape(1, 64) + 10

    def generate():
        with torch.no_grad():
            return model.generate(ids, max_new_tokens=1, do_sample=False).shape[1] - 64

    for _ in range(5):
        generate()
    ratios = []
    for number in range(rounds):
        first, second = (articles_loop, kits_clock) if number % 2 else (kits_clock, articles_loop)
        times = {first: first(generate), second: second(generate)}
        ratios.append(times[kits_clock] / times[articles_loop])
    spread = statistics.stdev(ratios) / rounds**0.5
    print(f"kit / article's loop: {statistics.fmean(ratios):.4f} ± {1.96 * spread:.4f} (95 % interval over {rounds} rounds of ten calls, median {statistics.median(ratios):.4f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
