"""Hostile texts.

20,000 characters that make a careless expression run for minutes, and markup that must stay text.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from raglab.words.characters import visible

N = 20_000
LONG_TEXTS = {
    name: (part * N)[:N]
    for name, part in {
        "digits": "1",
        "letters": "a",
        "capitals": "A",
        "blanks": " ",
        "lines": "\n",
        "blank lines": " \n",
        "words": "ab ",
        "names": "Aa ",
        "names by line": "Aa\n",
        "initials": "A. ",
        "numbers": "12 ",
        "thousands": "123,",
        "decimals": "1.",
        "items": "1. ",
        "dashes": " -",
        "hyphens": "a-",
        "slashes": "1/",
        "brackets": "(",
        "squares": "[a#",
        "quotes": '"',
        "apostrophes": "a'",
        "ideographs": "漢",
        "accents": "e\u0301",
        "cells": "| a ",
        "rules": "|-",
        "stars": "**a",
        "marks": "# ",
        "tags": "<a ",
        "comments": "<!--",
        "fences": "```\n",
        "stops": ". ",
        "money": "£1,",
        "currency": "1 €",
        "dates": "1/1/2020 ",
        "months": "1 January ",
        "number words": "one hundred and ",
        "negations": "not ",
        "pages": "page 1, ",
        "no-break blanks": "\u00a0",
        "unseen": "\u200b",
    }.items()
} | {
    "letters and a mark": "a" * (N - 1) + "!",
    "digits and a letter": "1" * (N - 1) + "a",
    "blanks and a letter": " " * (N - 1) + "a",
    "accents on one letter": "a" + "\u0301" * (N - 1),
}

MARKUP = (
    "<script>alert(1)</script><img src=http://evil.example/x.png onerror=alert(1)>"
    "\"><svg onload=alert(1)>' onmouseover=alert(1) "
    "![x](http://evil.example/y.png) [go](javascript:alert(1)) <http://evil.example> "
    "<style>@import url(http://evil.example/z.css)</style><base href=http://evil.example>"
    "\\frac{$x$} $\\frac{ \\href{javascript:alert(1)}{x} \x1b[2J \u202egnp.exe \x00 {{7*7}} {% "
    "raw %}"
)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        """Note it."""
        self.tags.append((tag, dict(attrs)))


def assert_inert(page):
    """No script, event, form, frame, style sheet or address elsewhere in the markup.

    Nothing that hides in the text.
    """
    parser = _Tags()
    parser.feed(page)
    loads = {
        "script",
        "iframe",
        "object",
        "embed",
        "link",
        "base",
        "svg",
        "form",
        "video",
        "audio",
        "math",
    }
    assert not loads & {tag for tag, _ in parser.tags}
    for tag, attributes in parser.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"src", "href", "action", "srcset", "poster", "background"}:
                assert (value or "").startswith(("data:image/png;base64,", "#")), (tag, value)
            assert name != "style" or "url(" not in (value or "")
    if "<style" in page:
        assert "url(" not in page.partition("<style")[2].partition("</style>")[0]
    assert all(
        char.isprintable() or char in "\n\t"
        for char in page
        if char not in "\u00ad\u00a0\u200b\u200c\u200d\u202f\u2009"
    )


# Markup, and characters that turn a line, end it, hide, or move a cursor; of a file no half of a
# surrogate pair comes.
SCRIPT = (
    "<script>alert(1)</script><img src=x onerror=alert(2)"
    ">\u202e\u2066\u2028\x1b[2J\x85\ufeff\U000e0041"
)


def check_display(value):
    """Its line and its page are short, and of its texts nothing is markup."""
    line, page = repr(value), value._repr_html_()
    assert len(line) <= 300
    assert "\n" not in line
    assert len(page.encode()) <= 20_000
    assert page.startswith('<div class="raglab-value')
    assert "<script" not in page
    assert "<img" not in page
    for text in (line, page):
        assert visible(text, lines=True) == text
    tags = set(re.findall(r"<\s*/?\s*([a-zA-Z!]+)", page))
    assert tags <= {
        "div",
        "style",
        "b",
        "table",
        "tr",
        "th",
        "td",
        "small",
        "details",
        "summary",
        "span",
    }
