"""The generated parts of a page that is otherwise written by hand: each between two marker lines."""

from scripts.errors import KitError


def pair(name: str) -> tuple[str, str]:
    """The lines that begin and end the part of a name."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def put_between(page: str, text: str, name: str, part: str) -> str:
    """The text of a page with a part made anew; KitError, which names the page, where a marker is missing or there twice."""
    begin, end = pair(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise KitError(f"{page} needs one line {begin} and below it one line {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{part}{end}{rest.partition(end)[2]}"
