"""Which of an article's numbers may stand beside which rows."""

from collections.abc import Mapping

from scripts.articles import Article, Case
from scripts.verdicts import token_times
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group


def by_case(group: Group, article: Article | None, metric: str = "mean_ms") -> dict[str, Case]:
    """The cases whose published numbers of a metric may stand beside this group's: run as published, on a GPU, at full size."""
    if article is None or group.key.variant != "published" or group.cannot_judge():
        return {}
    return {case.name: case for case in article.cases if metric in (case.published or {})}


def is_published_row(case: Case, row: Row, article: Article) -> bool:
    """Is this row the article's own: on as many GPUs, in its batch size?"""
    return (row.count, row.batch_size) == (case.gpus, article.prompt_of(case)["batch_size"])


def tokens(case: Case, article: Article) -> int:
    """How many new tokens the calls have that the article's one number for a case is about."""
    return int(article.runs_of(case, "published")[0]["new_tokens"])


def of_calls(cases: Mapping[str, Case], row: Row, new_tokens: int, article: Article | None) -> Case | None:
    """The case among `cases` (by `by_case`) whose published mean is of these very calls of a row; `new_tokens` 0 stands for a row without a time."""
    case = cases.get(row.case)
    return case if case and article and is_published_row(case, row, article) and new_tokens in (0, tokens(case, article)) else None


def mean_ms(case: Case | None) -> float | None:
    """The article's mean of a case's calls."""
    return case.published["mean_ms"] if case and case.published else None


def ms_per_token(cases: Mapping[str, Case], row: Row, article: Article | None) -> float | None:
    """The article's ms_per_token for a row's batch size; None unless the row ran on as many GPUs as the article and loaded as its case says now."""
    case = cases.get(row.case)
    if not case or not article or row.count != case.gpus or article.loaded_otherwise(row.record.job):
        return None
    return case.published_at(token_times.METRIC, row.batch_size)
