"""The exact `make` lines that run a stored result's job again, or that measure what is missing beside it."""

import shlex
from collections.abc import Mapping, Sequence

from scripts import pins, stats
from scripts.articles import Article
from scripts.report.text import Markdown, code
from scripts.results import Record
from scripts.verdicts.lacking import Lacking

#: A folder beside the kit. In it no committed run counts as done, so a command needs no FORCE=1, and what it measures mixes with no committed result.
OWN_RUNS = "../mine/runs"

#: The stack of today's versions, which belongs to no article.
TODAY = "current"


def variables(record: Record, article: Article) -> dict[str, str]:
    """What has to be typed after `make bench-<backend>`, or `make profile-<backend>` for a profile."""
    job = record.job
    own = article.case(job.case)
    case = own or article.cases_of(job.backend)[0]
    typed = {"ARTICLE": job.article, "VARIANT": job.variant, "STACK": job.stack, "WEIGHTS": job.model["weights"]}
    if own:
        typed["CASES"] = job.case
    if job.model["scale"] != "full":
        typed["SCALE"] = job.model["scale"]
    if job.device != "cuda":
        typed["DEVICE"] = job.device
    typed["GPUS"] = str(job.device_count)
    if article.batch_sizes_of(case, job.variant) != [job.batch_size]:
        typed["BATCH_SIZES"] = str(job.batch_size)
    items = job.options.get("items")
    if items is not None and items != article.options_of(case, job.variant, job.model["scale"]).get("items"):
        typed["ITEMS"] = str(items)
    if job.timed_runs != article.protocol_of(case)["timed_runs"]:
        typed["TIMED_RUNS"] = str(job.timed_runs)
    if job.kind == "profile" and "profiler" in job.options:
        typed["PROFILER"] = job.options["profiler"]
    if record.host["engine"] not in ("docker", "host"):
        typed["ENGINE"] = record.host["engine"]
    if record.host["engine"] == "host":
        typed |= {"ENGINE": "host", "PYTHON_HOST": "/path/to/python3"} if job.stack != "demo" else {"ENGINE": "host"}
    return typed | {"RUNS": OWN_RUNS}


def line(record: Record, article: Article) -> str:
    """`make bench-deepspeed ARTICLE=… RUNS=../mine/runs`."""
    own = article.case(record.job.case)
    target = f"{'profile' if record.job.kind == 'profile' else 'bench'}-{own.backend if own else record.job.backend}"
    return f"make {shlex.quote(target)} {_typed(variables(record, article))}"


def rest_of_table(record: Record, article: Article, cases: Sequence[str], count: int) -> str:
    """`make article-deepspeed-inference … CASES=a,b GPUS=8` measures what is missing of these cases beside a result, which ran on GPUs and at full size."""
    return _beside(record, article, {"CASES": ",".join(cases), "GPUS": str(count)})


def rest_of_claims(record: Record, article: Article, claims: Sequence[str], lacking: Lacking) -> str:
    """`make article-deepspeed-inference … CLAIMS=2.4,2.7 REPEATS=5 GPUS=1` measures what verdicts on these claims lack beside a result."""
    on = {"GPUS": str(lacking.gpus)} if lacking.gpus else {}
    return _beside(record, article, {"CLAIMS": ",".join(claims), "REPEATS": str(lacking.repeats), **on})


def whole_article(article: Article, records: Sequence[Record], runs: str) -> str:
    """`make article-deepspeed-inference STACK=hopper-2023-05 WEIGHTS=random REPEATS=5 RUNS=…`: five runs of every row.

    The setting is that of these results of other articles. `runs` names their folder; "" where the kit takes that folder by default.
    """
    typed = {"STACK": _stack_as_of(article, records), "WEIGHTS": _shared([record.job.model["weights"] for record in records])}
    typed |= {"REPEATS": str(stats.LEAST_RUNS), "RUNS": runs, **_where(_shared([record.host["engine"] for record in records]))}
    return f"make article-{article.slug} {_typed({name: value for name, value in typed.items() if value})}"


def _stack_as_of(article: Article, records: Sequence[Record]) -> str:
    """The article's port to newer GPUs where these results share a port, today's stack where they share that; else "", for the article's own stack."""
    used, stacks = _shared([record.job.stack for record in records]), pins.load().stacks
    if stacks.get(used, {}).get("port_of"):
        return next((name for name, table in stacks.items() if table.get("port_of") == article.stack), "")
    return used if used == TODAY else ""


def _shared(values: Sequence[str]) -> str:
    """The value that all have; "" where they differ."""
    return values[0] if len(set(values)) == 1 else ""


def _beside(record: Record, article: Article, chosen: Mapping[str, str]) -> str:
    """The command that measures what is missing of these rows, in the setting of a result."""
    job = record.job
    typed = {"VARIANT": job.variant, "STACK": job.stack, "WEIGHTS": job.model["weights"], **chosen}
    return f"make article-{article.slug} {_typed(typed | _where(record.host['engine']))}"


def _where(engine: str) -> dict[str, str]:
    return {"ENGINE": "host", "PYTHON_HOST": "/path/to/{backend}/bin/python3"} if engine == "host" else {} if engine in ("", "docker") else {"ENGINE": engine}


def _typed(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())


def shown(record: Record, article: Article | None) -> Markdown:
    """`line` as code, with a note where the job's backend or loading arguments differ from those of its case now. Empty where the article is not known
    or lacks the variant now."""
    if not article or record.job.variant not in article.variants:
        return Markdown()
    typed, otherwise = code(line(record, article)), _ran_in_another(record, article) or article.loaded_otherwise(record.job)
    return Markdown("{} (this run {})").format(typed, otherwise) if otherwise else typed


def _ran_in_another(record: Record, article: Article) -> str:
    case = article.case(record.job.case)
    return f"used the backend {record.job.backend}; its case now says {case.backend}" if case and case.backend != record.job.backend else ""
