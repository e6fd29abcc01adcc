"""Rendering of the report (shore): its blocks as one self-contained HTML page without network.

Everything from outside is escaped. The page runs one script of its own, by which tables sort, and
those of a frozen cockpit inside it; all are named by their hash in the page's content security
policy, so that no other can run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from raglab.lab.report.blocks import Frame, ReportPart, blocks_of
from raglab.lab.report.first_screen import FirstScreen
from raglab.lab.report.words import WORDS
from raglab.words.characters import visible

UNBROKEN = "\u00a0"


def render_page(title: str, first: FirstScreen, parts: Sequence[ReportPart]) -> str:
    """HTML of the page.

    The first screen, the contents and the parts.
    """
    template_folder = files("raglab.lab.report")
    script = template_folder.joinpath("tables.js").read_text(encoding="utf-8").strip()
    frozen_pages = [block.html for block in blocks_of(parts) if isinstance(block, Frame)]
    # Scripts are allowed by their hash: text of a corpus on the page can never run.
    scripts = {
        script,
        *(
            inline_code
            for frozen_page in frozen_pages
            for inline_code in inline_scripts(frozen_page)
        ),
    }

    def unbroken(text: str, *, tight: bool = False) -> str:
        """Text with unbroken percentages.

        Args:
          tight: broken after a semicolon only, as counts and interval of a number are.
        """
        unbroken_text = str(text).replace(" %", f"{UNBROKEN}%")
        return (
            unbroken_text.replace(" ", UNBROKEN).replace(f";{UNBROKEN}", "; ")
            if tight
            else unbroken_text
        )

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        # Only text is shown so: a script and a frozen page, marked as what they are, must stay
        # themselves to the byte.
        finalize=lambda value: visible(value, lines=True) if type(value) is str else value,
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["anchor"] = anchor
    return environment.from_string(
        template_folder.joinpath("report.html.j2").read_text(encoding="utf-8")
    ).render(
        title=title,
        first=first,
        parts=parts,
        titles={section.title for part in parts for section in part.sections},
        script=script,
        runs=" ".join(sorted(map(script_hash, scripts))),
        words=WORDS,
    )


def anchor(title: str) -> str:
    """Anchor of a section in the page.

    Example:
      >>> anchor("Does the confidence mean what it says?")
      'does-the-confidence-mean-what-it-says'
    """
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def script_hash(script: str) -> str:
    """A script as a content security policy names it.

    Example:
      >>> script_hash("")
      "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode('ascii')}'"


class _Scripts(HTMLParser):
    """Texts of the scripts of a page, data blocks too."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag == "script":
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.texts[-1] += data


def inline_scripts(page: str) -> list[str]:
    """Scripts that stand in a page, as a browser reads them.

    Example:
      >>> inline_scripts('<p title="<script>no()</script>"><script type="module">go()</script>')
      ['go()']
    """
    # A browser reads every end of a line as one sign before it hashes.
    scripts = _Scripts()
    scripts.feed(page.replace("\r\n", "\n").replace("\r", "\n"))
    scripts.close()
    return scripts.texts
