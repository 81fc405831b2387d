"""Generated sections of a page that people write by hand, each between two marker lines."""

from scripts.errors import KitError


def pair(name: str) -> tuple[str, str]:
    """The lines that begin and end the section with this name."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def put_between(page: str, text: str, name: str, part: str) -> str:
    """The text of a page with a section replaced by `part`; raises KitError, which names the page, where a marker is missing or occurs twice."""
    begin, end = pair(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise KitError(f"{page} needs one line {begin} and below it one line {end}")
    before, _, after = text.partition(begin)
    return f"{before}{begin}\n{part}{end}{after.partition(end)[2]}"
