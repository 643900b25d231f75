"""A page as a browser takes it apart, for tests of what is in it."""

from html.parser import HTMLParser
from typing import Any

import msgspec

Attributes = dict[str, str | None]


class Page(HTMLParser):
    """The elements of a page, and what stands in those that matter."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Attributes]] = []
        self.inside: list[str] = []  # of each element what stands in it up to the next tag
        self._within = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append("")
        self._within = True

    def handle_endtag(self, tag: str) -> None:
        self._within = False

    def handle_data(self, data: str) -> None:
        if self._within:
            self.inside[-1] += data

    def all(self, tag: str) -> list[tuple[Attributes, str]]:
        """Return every element of this name with what stands in it."""
        found = zip(self.elements, self.inside, strict=True)
        return [(attrs, text) for (name, attrs), text in found if name == tag]

    @property
    def script(self) -> str:
        """The one script that runs."""
        (found,) = [text for attrs, text in self.all("script") if attrs.get("type") == "module"]
        return found

    @property
    def policy(self) -> str:
        (found,) = [attrs for attrs, _ in self.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy"]
        return found["content"] or ""

    @property
    def contents(self) -> Any:
        """What the page reads, parsed."""
        (found,) = [text for attrs, text in self.all("script") if attrs.get("id") == "proctor-episodes"]
        return msgspec.json.decode(found)
