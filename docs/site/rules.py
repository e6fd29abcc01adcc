"""The rules by number: what RULES.md states of each."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

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
