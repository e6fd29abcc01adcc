"""Words, sentences, number and accent folding; SQuAD scores."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

BITS = 64


_TOKEN = re.compile(r"[^\W_]+")  # letters and digits
# Function words of English and French: they say nothing about what a question is about (rule S2.7).
STOP_WORDS = frozenset(
    """a an the of to in on at by for from with without and or not no is are was were be been being do does did has
    have had will would can could should may might must shall i you he she it we they me him her us them my your his
    its our their this that these those what which who whom whose when where why how there here as if than then so
    such about into over under le la les un une des du de d l et ou ne pas est sont a ont été être avoir dans sur
    sous par pour avec sans ce cet cette ces qui que quoi dont où quand comment pourquoi quel quelle quels quelles
    je tu il elle nous vous ils elles mon ma mes ton ta tes son sa ses notre votre nos vos leur leurs au aux en y se
    s n j m t c qu""".split()  # noqa: SIM905
)


def words(text: str) -> list[str]:
    """Lower-case words of a text in order, with accents, numbers included.

    Example:
      >>> words("Quel est l'excess? £1,000")
      ['quel', 'est', 'l', 'excess', '1', '000']
    """
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


@lru_cache(maxsize=1 << 16)
def word_set(text: str) -> frozenset[str]:
    """Distinct words of a text, kept for the passages that are asked about again."""
    return frozenset(words(text))


def content_words(text: str) -> tuple[str, ...]:
    """Distinct words of a text that are no function words of English or French, in order, at most 64.

    Example:
      >>> content_words("What is the excess on the fleet, the excess?")
      ('excess', 'fleet')
    """
    return tuple(dict.fromkeys(w for w in words(text) if w not in STOP_WORDS))[:BITS]


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


_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TERM = re.compile(
    r"(?P<word>[^\W\d_]+)"
    r"|(?P<grouped>(?<![\w.,])\d{1,3}(?P<mark>[,'’ \u00a0\u2009\u202f])\d{3}(?:(?P=mark)\d{3})*(?:[.,]\d{1,2})?(?!\d))"
    r"|(?P<number>\d+(?:[.,]\d+)*)"
)
_ORDINAL = ("st", "nd", "rd", "th", "er", "re", "e", "eme")
_NUMBERS = {  # not un and une, which are articles
    0: "zero", 1: "one", 2: "two deux", 3: "three trois", 4: "four quatre", 5: "five cinq", 6: "six", 7: "seven sept",
    8: "eight huit", 9: "nine neuf", 10: "ten dix", 11: "eleven onze", 12: "twelve douze", 13: "thirteen treize",
    14: "fourteen quatorze", 15: "fifteen quinze", 16: "sixteen seize", 17: "seventeen", 18: "eighteen", 19: "nineteen",
    20: "twenty vingt", 30: "thirty trente", 40: "forty quarante", 50: "fifty cinquante", 60: "sixty soixante",
    70: "seventy", 80: "eighty", 90: "ninety", 100: "hundred cent", 1000: "thousand mille",
}  # fmt: skip
_NAMED = {name: str(number) for number, names in _NUMBERS.items() for name in names.split()}


def folded(text: str) -> str:
    """Text without case and accents.

    Example:
      >>> folded("Élément")
      'element'
    """
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in apart if not unicodedata.combining(c)) if not apart.isascii() else apart


_IDLE = frozenset(map(folded, STOP_WORDS))


def normalised(text: str) -> str:
    """Text as SQuAD compares it: lower case, without ASCII punctuation, English articles and spare blanks.

    Source: Rajpurkar et al. 2016, the published evaluation script.

    Example:
      >>> normalised("The  Norman's dukes, a few.")
      'normans dukes few'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer is, normalised, one of the gold answers; with no golds, whether it is empty.

    Example:
      >>> exact_match("The 10th century.", ["in the 10th", "10th century"])
      True
    """
    return normalised(answer) in {normalised(gold) for gold in golds or ("",)}


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 of the tokens shared with a gold answer, counted with repeats, in [0, 1]; the best over the golds.

    An empty answer has 1 where the gold is empty (or there are no golds), else 0.

    Example:
      >>> token_f1("the dukes of Normandy", ["Normandy"])
      0.5
    """
    return max(_f1(normalised(answer).split(), normalised(gold).split()) for gold in golds or ("",))


def answer_recall(answer: str, gold: str) -> float:
    """Share of the gold's distinct content words and numbers found in the answer, in [0, 1]; NaN if it has none.

    Example:
      >>> answer_recall("Storm - Excess: GBP 1,200", "The excess is 1200 euros.")
      0.6666666666666666
    """
    wanted = set(content_terms(gold))
    return len(wanted & set(content_terms(answer))) / len(wanted) if wanted else float("nan")


def content_terms(text: str) -> tuple[str, ...]:
    """Words without case, accents and function words, and numbers in one spelling, in order, with repeats.

    A number loses the marks of its thousands and the noughts at the end of its decimals, has a point before them, and
    is in digits: `1,200`, `1 200,00` and `1200` are one, `ten` and `10` too. Of ordinals the number is left.

    Example:
      >>> content_terms("L'excédent est de 1 200,50 € dès le 1er mars, over ten days")
      ('excedent', '1200.5', '1', 'mars', '10', 'days')
    """
    found: list[str] = []
    figure_end = -1
    for match in _TERM.finditer(folded(text)):
        term = match[0]
        if match.lastgroup != "word":
            found.append(_number(term, grouped=match.lastgroup == "grouped"))
            figure_end = match.end()
        elif match.start() == figure_end and term == "k" and found[-1].isdigit():
            found[-1] += "000"
        elif not (term in _IDLE or (match.start() == figure_end and term in _ORDINAL)):
            found.append(_NAMED.get(term, term))
    return tuple(found)


def _number(digits: str, *, grouped: bool) -> str:
    """One spelling of a number: no marks of thousands, a point before the decimals, no noughts after them."""
    if grouped and not digits.startswith("0"):
        digits = re.sub(r"[^\d.,]|,(?=\d{3})", "", digits)
    elif digits.count(".") + digits.count(",") != 1:
        return digits
    whole, point, part = digits.replace(",", ".").partition(".")
    part = part.rstrip("0")
    return f"{whole}{point}{part}" if part else whole


def _f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2.0 * shared / (len(found) + len(wanted))
