"""What a browser without JavaScript makes of a page: its forms, and what it would post."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"input", "link", "meta", "br", "hr", "img"}


@dataclass
class Control:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    options: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.attributes.get("name") or ""

    @property
    def type(self) -> str:
        return (self.attributes.get("type") or "text") if self.tag == "input" else self.tag

    def sent(self) -> list[str]:
        """What it adds to the form's data as it stands."""
        value = self.attributes.get("value") or ""
        match self.type:
            case "textarea":
                return [self.text.replace("\r\n", "\n").replace("\n", "\r\n")]
            case "select":
                chosen = [text for text, is_chosen in self.options if is_chosen]
                return chosen[-1:] or [text for text, _ in self.options[:1]]
            case "checkbox":
                return [value] if "checked" in self.attributes else []
            case "number":
                return [value if re.fullmatch(r"-?(\d+|\d*\.\d+)([eE][+-]?\d+)?", value) else ""]
            case "datetime-local":
                return [value.removesuffix(":00") if value.count(":") == 2 else value]
            case "button" | "file" | "submit":
                return []
        return [re.sub(r"[\r\n]", "", value)]


class Page(HTMLParser):
    """Every control of a page, in order; `ids` and `links` beside."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.controls: list[Control] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: Control | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if tag == "a" and "href" in given else []
        if tag in ("input", "textarea", "select", "button"):
            self._open = Control(tag, given)
            self.controls.append(self._open)
        elif tag == "option" and self._open is not None:
            self._open.options.append((given.get("value") or "", "selected" in given))

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open is not None and self._open.tag == "textarea":
            self._open.text += data

    def handle_endtag(self, tag: str) -> None:
        if self._open is not None and tag == self._open.tag:
            if tag == "textarea":
                self._open.text = self._open.text.removeprefix("\n")
            self._open = None

    def named(self, name: str) -> list[Control]:
        """The controls of this name."""
        return [control for control in self.controls if control.name == name]

    def data(self, **typed: Any) -> dict[str, list[str]]:
        """What the page's form posts, with what is typed instead under `typed` (names with `__` for dots)."""
        return self.filled({name.replace("__", "."): value for name, value in typed.items()})

    def filled(self, typed: Mapping[str, Any]) -> dict[str, list[str]]:
        """What the page's form posts; `typed` replaces by name."""
        sent: dict[str, list[str]] = {}
        for control in self.controls:
            if control.name:
                for text in control.sent():
                    sent.setdefault(control.name, []).append(text)
        for name, value in typed.items():
            sent[name] = value if isinstance(value, list) else [value]
        return sent
