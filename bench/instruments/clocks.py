"""The kit's clock beside the articles' own loops: what the three instruments clocks_latency, clocks_tokens and clocks_batches share.

A loop and the kit time the same calls of the same model in turn, for hosts change their speed within a second. The result is the ratio
of the two means over all rounds with its interval. A ratio whose interval does not hold 1 would be the kit's own overhead.

LIMIT_S=60 in the environment holds an instrument to about the rounds of so many seconds, unless several ranks run it.
"""

import argparse
import dataclasses
import os
import statistics
from time import perf_counter

from bench import forms
from bench.job import parse_job, to_json, write_whole
from bench.measuring import clock


def arguments():
    """(Job, path of the result, how many rounds) from a command line JOB OUT [ROUNDS]; the job's model.path holds its checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("out")
    parser.add_argument("rounds", nargs="?", type=int, default=30)
    typed = parser.parse_args()
    with open(typed.job, encoding="utf-8") as stream:
        return parse_job(stream.read()), typed.out, typed.rounds


def limit_s():
    """How long the rounds may take, by LIMIT_S; several ranks have no limit: with rounds of their own they would wait for each other for ever."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return float("inf" if several else os.environ.get("LIMIT_S", "inf"))


def in_turn(kit, article, rounds):
    """[(what `kit()` gives, what `article()` gives)] of each round, each of them first in every other one; of as many as LIMIT_S allows."""
    pairs, began = [], perf_counter()
    for number in range(rounds):
        if pairs and perf_counter() - began > limit_s():
            break
        values = {timed: timed() for timed in ((article, kit) if number % 2 else (kit, article))}
        pairs.append((values[kit], values[article]))
    return pairs


def call_by_call(job, loaded, article, rounds):
    """([(the kit's ms of a call, what `article()` gives)], the form's figures): the job's form makes its calls, and after each, with the
    kit's clock stopped, the article's loop makes one.

    Each call of either follows one of the other: the cold call and the first pair, which do not, are left out.
    """
    article()  # to warm up
    began = perf_counter()
    article()
    rounds = max(1, int(min(rounds, limit_s() / 2 / (perf_counter() - began))))
    others = []
    timed = dataclasses.replace(job, warmup_runs=0, timed_runs=rounds + 1)
    (measurement,), _, figures = forms.find(job.form).run(timed, loaded, lambda **event: others.append(article()))
    return list(zip(measurement["timed_ms"], others))[1:], figures


def summary(pairs, unit="ms"):
    """{ratio (of the means over all rounds), half_width (of its 95 % interval, None for one round), median (of the rounds' ratios), rounds,
    kit_UNIT, article_UNIT, rounds_UNIT: the pairs themselves}.

    The mean of the rounds' own ratios would lie above 1 for two equal clocks, by their variance. The interval is that of a
    ratio of paired means, linearised (Cochran, Sampling Techniques, 3rd edition, section 2.11).
    """
    kit, article = (statistics.fmean(pair[column] for pair in pairs) for column in (0, 1))
    ratio = kit / article
    residuals = [ours - ratio * theirs for ours, theirs in pairs]
    return {
        "ratio": ratio,
        "half_width": 1.96 * statistics.stdev(residuals) / article / len(pairs) ** 0.5 if len(pairs) > 1 else None,
        "median": statistics.median(ours / theirs for ours, theirs in pairs),
        "rounds": len(pairs),
        "kit_" + unit: kit,
        "article_" + unit: article,
        "rounds_" + unit: [[round(ours, 4), round(theirs, 4)] for ours, theirs in pairs],
    }


def write(job, figures, out):
    """Print a summary and write it as JSON, with where it was measured; of several ranks the first one does."""
    import torch
    import transformers

    if os.environ.get("RANK", "0") != "0":
        return
    figures = {**figures, "case": job.case, "stack": job.stack, "batch_size": job.prompt["batch_size"]}
    figures.update(launch_us=clock.launch_us(job.device), cpu_cores=len(os.sched_getaffinity(0)), transformers=transformers.__version__)
    if torch.cuda.is_available():
        figures.update(gpu=torch.cuda.get_device_name(), device_count=torch.cuda.device_count())
    write_whole(out, to_json(figures))
    spread = "" if figures["half_width"] is None else " ± {:.4f}".format(figures["half_width"])
    line = "{}/{}, batch {}: kit / article's loop: {:.4f}{} (95 % interval over {} rounds, median {:.4f})"
    print(line.format(job.article, job.case, job.prompt["batch_size"], figures["ratio"], spread, figures["rounds"], figures["median"]))
