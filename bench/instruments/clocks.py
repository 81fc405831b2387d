"""The shared part of clocks_latency, clocks_tokens and clocks_batches, which compare the kit's clock with the articles' own loops.

A loop and the kit time the same calls of the same model alternately, because hosts change their speed within a second. The result is the
ratio of the two means over all rounds with its interval. An interval without 1 would show an overhead of the kit.

LIMIT_S=60 in the environment limits an instrument to the rounds of about 60 seconds, unless several ranks run it.
"""

import argparse
import dataclasses
import os
import statistics
from time import perf_counter

from bench import backends, forms
from bench.instruments import fitting
from bench.job import read_job, to_json, write_whole
from bench.measuring import clock, ranks
from bench.models import prompts


def arguments(instrument):
    """(Job, path of the result, number of rounds) from a command line JOB OUT [ROUNDS]; the job's model.path holds its checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("out")
    parser.add_argument("rounds", nargs="?", type=int, default=30)
    typed = parser.parse_args()
    job = read_job(typed.job)
    fitting.must_fit(instrument, job)
    return job, typed.out, typed.rounds


def load(job):
    """The job's model with its prompt, as the kit loads it."""
    loaded = backends.find(job.backend).load(job)
    loaded.input_ids, loaded.answers = prompts.token_ids(job.prompt, job.model["path"]).to(loaded.device), []
    return loaded


def limit_s():
    """LIMIT_S in seconds. Several ranks have no limit: with different numbers of rounds they would wait for each other for ever."""
    return float("inf" if ranks.total() > 1 else os.environ.get("LIMIT_S", "inf"))


def in_turn(kit, article, rounds):
    """[(value of `kit()`, value of `article()`)] of at most `rounds` rounds within LIMIT_S; the order alternates between rounds."""
    pairs, began = [], perf_counter()
    for number in range(rounds):
        if pairs and perf_counter() - began > limit_s():
            break
        values = {clock_of: clock_of() for clock_of in ((article, kit) if number % 2 else (kit, article))}
        pairs.append((values[kit], values[article]))
    return pairs


def call_by_call(job, loaded, article, rounds):
    """([(the kit's ms of a call, value of `article()`)], the form's figures). The job's form makes its calls; after each, while the kit's
    clock is stopped, the article's loop makes one.

    Every call follows a call of the other side. The cold call and the first pair, which do not, are left out.
    """
    article()  # to warm up
    began = perf_counter()
    article()
    rounds = max(1, int(min(rounds, limit_s() / 2 / (perf_counter() - began))))
    article_values = []
    longer = dataclasses.replace(job, warmup_runs=0, timed_runs=rounds + 1)
    (measurement,), _, figures = forms.find(job.form).run(longer, loaded, lambda **event: article_values.append(article()))
    return list(zip(measurement["timed_ms"], article_values))[1:], figures


def summary(pairs, unit="ms"):
    """{ratio (of the means over all rounds), half_width (of its 95 % interval, None for one round), median (of the rounds' ratios), rounds,
    kit_UNIT, article_UNIT, rounds_UNIT: the pairs themselves}.

    The mean of the rounds' ratios would be above 1 for two equal clocks, because of their variance. The interval is that of a
    ratio of paired means, linearised (Cochran, Sampling Techniques, 3rd edition, section 2.11).
    """
    kit, article = (statistics.fmean(pair[column] for pair in pairs) for column in (0, 1))
    ratio = kit / article
    residuals = [of_kit - ratio * of_article for of_kit, of_article in pairs]
    return {
        "ratio": ratio,
        "half_width": 1.96 * statistics.stdev(residuals) / article / len(pairs) ** 0.5 if len(pairs) > 1 else None,
        "median": statistics.median(of_kit / of_article for of_kit, of_article in pairs),
        "rounds": len(pairs),
        "kit_" + unit: kit,
        "article_" + unit: article,
        "rounds_" + unit: [[round(of_kit, 4), round(of_article, 4)] for of_kit, of_article in pairs],
    }


def write(job, figures, out):
    """Print a summary and write it as JSON, with facts of the machine. With several ranks only the first does."""
    import torch
    import transformers

    if not ranks.is_first():
        return
    figures = {**figures, "case": job.case, "stack": job.stack, "batch_size": job.prompt["batch_size"]}
    figures.update(launch_us=clock.launch_us(job.device), cpu_cores=len(os.sched_getaffinity(0)), transformers=transformers.__version__)
    if torch.cuda.is_available():
        figures.update(gpu=torch.cuda.get_device_name(), device_count=torch.cuda.device_count())
    write_whole(out, to_json(figures))
    spread = "" if figures["half_width"] is None else " ± {:.4f}".format(figures["half_width"])
    line = "{}/{}, batch {}: kit / article's loop: {:.4f}{} (95 % interval over {} rounds, median {:.4f})"
    print(line.format(job.article, job.case, job.prompt["batch_size"], figures["ratio"], spread, figures["rounds"], figures["median"]))
