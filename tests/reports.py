"""The pages of a report as one text, for tests that ask what it says and not where."""

from pathlib import Path

from scripts.report import pages


def pages_of(folder: Path) -> list[Path]:
    """The index, the articles, the settings with their environments, and what stands behind all of them."""
    last = (pages.METHOD, pages.PROFILES, pages.RUNS)
    names = [path.name for path in pages.written_by_the_kit(folder)]
    return [folder / name for name in sorted(names, key=lambda name: (name != pages.INDEX, name in last, not name.startswith("article-"), name))]


def text_of(folder: Path) -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in pages_of(folder))
