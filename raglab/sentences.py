"""Passages cut into what can be cited: sentences, list items and table rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["heading", "prose", "head", "row"]

_END = re.compile(r"(?<=[.!?…])(?:\[[^\[\]]{1,24}\])*(?:[\"'”)\]]|[ \u00a0\u202f]?»)*\s+")
_OPENING = "\"'“«([ \u00a0\u202f"
_ENUMERATED = re.compile(r"\([a-z]{1,4}\)\s")
_WORD = re.compile(r"[^\W\d_]+")
_LOOK_BACK = 16  # characters: longer than any abbreviation
_NEVER_LAST = re.compile(
    r"(?:^|[\s\"'“«(\[-])(?:Mr|Mrs|Ms|Dr|Prof|St|Ste|Mme|Mlle|MM|Rev|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rep|Hon|Messrs|vs|cf|ca|c"
    r"|approx|env|e\.g|i\.e|p\.\s?ex)\.\s+$"
)
_SELDOM_LAST = re.compile(
    r"(?:(?:^|[\s\"'“«(\[.])(?:[Nn]os?|[Aa]rt|[Ss]ect|[Ff]ig|[Vv]ol|[Cc]h|pp?|al|av|etc|Inc|Ltd|Co|Corp|Jr|Sr|[ap]\.m)"
    r"|(?:^|[\W\d_])[^\W\d_a-z])\.[\"'”»)\]]*\s+$"
)
_STARTERS = frozenset(  # words that begin a sentence and hardly ever a name: after a doubtful full stop they settle it
    """The This That These Those It Its He She They His Her Their We You In On At By If When While Where However But And
    For As To From With Although Though There Thus After Before During Since Because Some Many Most Each All Both No Not
    Le La Les Il Elle Ils Elles Ce Cet Cette Ces Un Une En Si Dans Pour Mais Toutefois Sont Est""".split()  # noqa: SIM905
)
_RULE = re.compile(r"^\|?[\s:|-]*-[\s:|-]*\|?$")
_CELL = re.compile(r"(?<!\\)\|")
_MARK = re.compile(r"^\s*(?:[-*+•]|\d{1,2}[.)]|#{1,6}|>)\s+")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*\n]{1,400})(?<=\S)\1(?![\w*])")
_PATH_JOINT = " > "
_TITLE_WIDTH = 0.6  # of the longest line: a first line shorter than this was not broken for want of room


class Piece(NamedTuple):
    """One piece of a passage and what it is.

    text: as `sentences` gives it. kind: a row of a table, its head, a heading, or prose, list items among it.
    cells: of a row or a head, empty ones too. heads: the table's head over each cell, empty where there is none.
    """

    text: str
    kind: Kind
    cells: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()


def sentences(text: str) -> list[str]:
    r"""Sentences, list items and table rows of a passage in order, without Markdown's marks; never an empty one.

    A line of a table is one, its cells separated by `; `; the line under a table's head is left out. A line break
    inside prose is a blank; a blank line, a list item, a heading or a table row ends a sentence. The first line is a
    heading where it is a path (`Policy > Excess`) or stops well short of the lines below it, without a full stop.

    Example:
      >>> sentences("# Excess\n\nThe excess is £250. It rose\nin 2025.\n| Storm | £400 |")
      ['Excess', 'The excess is £250.', 'It rose in 2025.', 'Storm; £400']
    """
    return [piece.text for piece in pieces(text)]


def pieces(text: str) -> list[Piece]:
    r"""What `sentences` gives, each with its kind, and table rows with their cells under the heads of their columns.

    Example:
      >>> pieces("| Peril | Excess |\n|---|---|\n| Storm | £400 |")[1]
      Piece(text='Storm; £400', kind='row', cells=('Storm', '£400'), heads=('Peril', 'Excess'))
    """
    lines = _EMPHASIS.sub(r"\2", text).splitlines()
    found: list[Piece] = []
    block: list[str] = []
    heads: tuple[str, ...] = ()
    if _is_title(lines):
        found.append(Piece(_MARK.sub("", lines[0]).strip(), "heading"))
        lines = lines[1:]

    def close() -> None:
        found.extend(Piece(part, "prose") for part in _prose(" ".join(block)))
        block.clear()

    for line in lines:
        bare = line.strip()
        if bare.startswith("|"):
            close()
            if not _RULE.match(bare):
                cells = _cells(bare)
                shown = "; ".join(cell for cell in cells if cell)
                found += [Piece(shown, "row", cells, heads if len(heads) == len(cells) else ())] if shown else []
            elif found and found[-1].kind == "row" and not heads:
                heads = found[-1].cells
                found[-1] = found[-1]._replace(kind="head")
            continue
        heads = ()
        if bare.startswith("#") and _MARK.match(line):
            close()
            found += [Piece(part, "heading") for part in [_MARK.sub("", line).strip()] if part]
        elif not bare:
            close()
        elif _MARK.match(line) or _ENUMERATED.match(bare):
            close()
            block.append(_MARK.sub("", line).strip())
        else:
            block.append(bare)
    close()
    return found


def _is_title(lines: list[str]) -> bool:
    """Whether the first line is a heading of what follows, though no mark says so."""
    if len(lines) < 2 or not lines[1].strip() or lines[0].lstrip().startswith(("|", "#")):
        return False
    first = lines[0].strip()
    if first.endswith((".", "!", "?", "…", ":", ";", ",")):
        return False
    if _PATH_JOINT in first and not first.startswith(">"):
        return True
    longest = max(len(line) for line in lines)
    room = len(first) + 1 + len(lines[1].split(maxsplit=1)[0])
    return bool(first) and room <= _TITLE_WIDTH * longest and _begins(lines[1].lstrip(" *|-+•>"))


def _cells(line: str) -> tuple[str, ...]:
    """Cells of a table's line, with the empty ones."""
    inner = line.removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(cell.strip().replace("\\|", "|") for cell in _CELL.split(inner))


def _prose(block: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(block):
        after = block[match.end() :][:_LOOK_BACK]
        if _begins(after) and not _goes_on(block[max(start, match.end() - _LOOK_BACK) : match.end()], after):
            yield block[start : match.end()].strip()
            start = match.end()
    if block[start:].strip():
        yield block[start:].strip()


def _begins(after: str) -> bool:
    """Whether a sentence may begin so: with a capital, a digit, a sum of money, or a letter in brackets."""
    first = after.lstrip(_OPENING)[:1]
    return first.isupper() or first.isdigit() or (first in "£$€¥" and first != "") or bool(_ENUMERATED.match(after))


def _goes_on(before: str, after: str) -> bool:
    """Whether the full stop belongs to an abbreviation inside a sentence."""
    if _NEVER_LAST.search(before):
        return True
    word = _WORD.match(after.lstrip(_OPENING))
    return bool(_SELDOM_LAST.search(before)) and (word is None or word[0] not in _STARTERS)
