"""The report's skeleton: Jinja templates in which every value that is no Markdown is escaped."""

import re
from pathlib import Path

import jinja2

from scripts import stats
from scripts.report.text import Markdown, prose

TEMPLATES = Path(__file__).resolve().parent / "templates"

_environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    finalize=Markdown.escape,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # HTML's escapes are not Markdown's: `finalize` escapes
)
_environment.filters["prose"] = prose
_environment.globals["stats"] = stats


def render(name: str, **values: object) -> Markdown:
    """A template with its values put in; parts that are empty leave no empty lines behind."""
    text = _environment.get_template(f"{name}.md.j2").render(**values)
    return Markdown(re.sub(r"\n{3,}", "\n\n", text).strip())
