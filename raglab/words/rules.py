"""The rules by number (shore): what RULES.md states of each, and where it stands."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

NUMBER = re.compile(r"\b(S\d{1,2}\.\d{1,2})\b")
LONGEST = 400  # characters of what is told of a rule
_STATED = re.compile(
    r"^- \*\*(S\d{1,2}\.\d{1,2})(?: ([^*\n]{1,60}))?\*\* (?:\[[^\]\n]{1,80}\] )?", re.MULTILINE
)
_SENTENCE_END = re.compile(r"\.(?= [A-Z*`]|$)")
_MARKS = re.compile(r"`|\*(?=\S)|(?<=\S)\*|\[(?=[^\]\n]{1,80}\]\()|(?<=\w)\]\([^)\n]{1,200}\)")


@cache
def rule_sentences() -> dict[str, str]:
    """Name, if any, and first sentence of each rule of RULES.md, by number, without its marks.

    Example:
      >>> rule_sentences()["S0.1"]
      'A decision is ok, refuse or ambiguous.'
    """
    text = files("raglab").joinpath("RULES.md").read_text(encoding="utf-8")
    stated = list(_STATED.finditer(text))
    ends = [*(match.start() for match in stated[1:]), len(text)]
    return {
        match[1]: (f"{match[2]}: " if match[2] else "") + _first_sentence(text[match.end() : end])
        for match, end in zip(stated, ends, strict=True)
    }


def _first_sentence(text: str) -> str:
    line = " ".join(text.partition("\n\n")[0].split())
    end = _SENTENCE_END.search(line)
    plain = _MARKS.sub("", line[: end.end()] if end else line)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


def rules_address() -> str | None:
    """RULES.md as a notebook in the working folder links to it.

    None where that is no folder of the project.

    A notebook server shows what is below its root, which a checkout of the project is and
    `site-packages` is not.
    """
    with as_file(files("raglab").joinpath("RULES.md")) as file:
        place = Path(file)
    root = place.parents[1]
    try:
        inside = Path.cwd().relative_to(root)
    except (OSError, ValueError):  # elsewhere, or gone
        return None
    up = "../" * len(inside.parts)
    return (
        f"{up}{place.relative_to(root).as_posix()}" if (root / "pyproject.toml").is_file() else None
    )
