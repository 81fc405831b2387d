"""CLAIMS: which rows of an article its claims compare, and in which variants."""

import sys
from collections.abc import Sequence

from scripts.articles import Article, Case
from scripts.run.options import Options


def compares(article: Article, case: Case, asked: Options) -> bool:
    """Does any requested claim compare this case? True for every case where no claim is requested."""
    return not asked.claims or case.name in article.rows_of_claims(asked.claims)


def in_variant(article: Article, case: Case, variant: str, asked: Options) -> bool:
    """Does a requested claim that compares this case run in the variant? A typed variant is taken as it is."""
    if not asked.claims or asked.variant:
        return True
    return any(case.name in article.rows_of_claims([claim]) and variant in article.judging_variants(claim) for claim in asked.claims)


def sizes(article: Article, case: Case, asked: Options) -> Sequence[int] | None:
    """The batch sizes in which the claims compare a case; None where a claim names none, or no claim is asked for."""
    named = article.rows_of_claims(asked.claims).get(case.name, {None})
    return None if None in named else sorted(size for size in named if size)


def note_untested(article: Article, asked: Options) -> None:
    """Say which of the claims cannot be tested in the variant that was typed."""
    for claim in asked.claims if asked.variant in article.variants else ():
        if lacking := article.lacking_in(asked.variant, claim):
            print(f"note: claim {claim} stays not tested: VARIANT={asked.variant} has no {', no '.join(lacking)}", file=sys.stderr)
