"""What a page of the built site loads, where it leads to and which of its places can be led to."""

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded, self.links, self.ids = list[str](), list[str](), set[str | None]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        told = dict(attributes)
        self.ids.add(told.get("id"))
        if tag in ("img", "script") and (source := told.get("src")):
            self.loaded.append(source)
        if tag == "link" and told.get("rel") == "stylesheet" and (source := told.get("href")):
            self.loaded.append(source)
        if tag == "a" and (source := told.get("href")):
            self.links.append(source)
