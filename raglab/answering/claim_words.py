"""Claim tokens, numerals, lexicon.

Nothing here is learned: the lists are written down, and `_wording` reads them by the beginnings of words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.text import STOP_WORDS

# Letters that a word is known by: `insured`, `insurance` and `insurer` are one, so are `assuré` and `assurance`.
KEY = 5

# Words that carry no fact of their own, beyond those that a question is read without.
SMALL = STOP_WORDS | frozenset(
    """also any all am at each else ever every just let much often own per quite rather really same several
    some still these though too up upon very while within yet yes its itself himself herself themselves
    became become becomes becoming got get gets getting goes going went known called named
    aussi autre autres bien cela celle celui ceux chaque comme déjà donc entre fait font lors mais même mêmes
    or puis si soit tout toute toutes tous très étant était étaient fut furent""".split()  # noqa: SIM905
)

# Talk: what one says of oneself or to another is in no document, so these count as any other word.
SPEAKER = frozenset(
    """i me my mine myself je j moi mon ma mes you your yours we us our ours so just really very too well much lol haha
    yeah yep hey hi wow oh okay ok""".split()  # noqa: SIM905
)

_UNITS = {
    "%": "% percent pct pourcent",
    "£": "£ gbp pound pounds sterling livres",
    "€": "€ eur euro euros",
    "$": "$ usd dollar dollars",
}
UNITS = {word: unit for unit, words in _UNITS.items() for word in words.split()}

_MONTHS = (
    "january jan janvier",
    "february feb février fevrier",
    "march mars",
    "april apr avril",
    "may mai",
    "june jun juin",
    "july jul juillet",
    "august aug août aout",
    "september sep sept septembre",
    "october oct octobre",
    "november nov novembre",
    "december dec décembre decembre",
)
MONTHS = {word: number for number, words in enumerate(_MONTHS, 1) for word in words.split()}

_DIGITS = {
    0: "zero zéro",
    2: "two deux",
    3: "three trois",
    4: "four quatre",
    5: "five cinq",
    6: "six",
    7: "seven sept",
    8: "eight huit",
    9: "nine neuf",
    10: "ten dix",
    11: "eleven onze",
    12: "twelve douze",
    13: "thirteen treize",
    14: "fourteen quatorze",
    15: "fifteen quinze",
    16: "sixteen seize",
    17: "seventeen",
    18: "eighteen",
    19: "nineteen",
    20: "twenty vingt vingts",
    30: "thirty trente",
    40: "forty quarante",
    50: "fifty cinquante",
    60: "sixty soixante",
    70: "seventy septante",
    80: "eighty huitante octante",
    90: "ninety nonante",
}
NUMBERS = {word: number for number, words in _DIGITS.items() for word in words.split()}
SCALES = {
    "hundred": 100,
    "cent": 100,
    "cents": 100,
    "thousand": 1000,
    "mille": 1000,
    "million": 10**6,
    "millions": 10**6,
    "billion": 10**9,
    "billions": 10**9,
    "milliard": 10**9,
    "milliards": 10**9,
}
SUFFIXES = {"k": 1000, "mn": 10**6, "bn": 10**9, **SCALES}

# What turns the next word of substance. French `ne` alone turns nothing: `ne … que` is `only`.
NEGATORS = frozenset(
    """not no never without cannot neither nor none nobody nothing nowhere hardly barely non pas jamais aucun aucune
    aucuns aucunes nul nulle ni sans rien guère except excepting excluding excepté sauf hormis""".split()  # noqa: SIM905
)
WITH_NE = frozenset(["plus", "personne", "point"])
NE = frozenset(["ne", "n"])
BONUS = frozenset(["bonus", "discount", "protection"])  # no claims before these are a name

# Two poles of one idea a line, by whole words; an ending of `-` stands for all words that begin so.
_OPPOSITES = """
increas- rise rises rising rose risen grow grows grew grown growing growth raise raised raises climb- rais-
  augment- hauss- accroî- élev- / decreas- fall falls fell fallen falling drop dropped drops reduc- declin-
  shrink- shrank lowered lowers cut cuts diminu- baiss- recul- rédui- chut-
more greater higher larger longer exceed- above supérieur- davantage / less fewer lower smaller shorter
  below inférieur- moins
before prior avant / after afterwards following après
first premier première / last final dernier dernière
earl- / late later latest
maximum most max maximal- maximale / minimum least min minimal-
start- begin- began begun commenc- début- / end ends ended ending finish- expir- ceas- termin- fini-
cover- includ- insure insures insured insuring inclu- couv- compris comprise / exclud- exclu- uninsured uncovered
allow- permit- authoris- authoriz- permis- permet- autoris- / forbid- forbad- prohibit- ban banned bans interdi-
accept- approv- agree- accords accorde accordé accordée / reject- refus- deny denies denied denying denial disagree-
win wins won winning winner victor- gagn- / lose loses lost losing loser defeat- perd-
mandatory compulsory obligatory required obligatoire- / optional voluntary facultati-
inside indoor- intérieur- / outside outdoor- extérieur-
true vrai vraie / false untrue faux fausse
positiv- / negativ- négati-
success- succeed- réussi- / fail- unsuccessful- échou- échec-
support- favour- favor- / oppos- contradict-
presen- présen- / absen-
high haut haute / low bas basse
large big grand grande / small little petit petite
long / short court courte
open opens opened opening ouvert- ouvr- / close closes closed closing closure ferm-
buy buys bought purchas- achet- achat- / sell sells sold vend- vent-
male males man men homme hommes / female females woman women femme femmes
north northern nord / south southern sud
east eastern / west western ouest
same même identi- / differ-
major- / minor-
possib- / impossib-
able / unable
legal- lawful- légal- / illegal- unlawful- illégal-
valid- / invalid-
active actively activat- / inactiv- deactivat- inhibit- block-
promot- enhanc- improv- amélior- / prevent- imped- hinder- worsen- empêch- aggrav-
often frequent- common commonly fréquent- / rare rarely seldom uncommon rarement
occupied / unoccupied vacant empty inoccupé inoccupée
employed / unemployed
known / unknown
limited / unlimited
necessary nécessaire- / unnecessary
safe safely / unsafe dangerous
join joins joined joining / leave leaves left leaving quit quits
ancest- / descend-
import imports imported / export exports exported
hot warm chaud chaude / cold cool froid froide
weak- faible- / strong- fort forte forts fortes
born né née / died dies die dead death mort morte décéd-
annual annually yearly annuel- / monthly mensuel-
"""


def _poles() -> tuple[dict[str, tuple[str, int]], tuple[tuple[str, tuple[str, int]], ...]]:
    """Idea and sign by whole word, and by beginning."""
    whole: dict[str, tuple[str, int]] = {}
    begun: dict[str, tuple[str, int]] = {}
    for line in _OPPOSITES.replace("\n  ", " ").strip().splitlines():
        poles = line.split(" / ")
        idea = "~" + poles[0].split()[0].rstrip("-")
        for sign, pole in zip((1, -1), poles, strict=True):
            for word in pole.split():
                (begun if word.endswith("-") else whole)[word.rstrip("-")] = (idea, sign)
    return whole, tuple(sorted(begun.items(), key=lambda item: (-len(item[0]), item[0])))


POLES, POLE_BEGINNINGS = _poles()


LAST_DAY, LAST_MONTH = 31, 12


def value_of(digits: str) -> float:
    """Value of a number in digits.

    Blanks, apostrophes and a comma before three digits part thousands, and so do several points; else a comma or a
    point begins the decimals.

    Example:
      >>> [value_of(digits) for digits in ("1,000", "1 000,50", "2.5", "1.000.000")]
      [1000.0, 1000.5, 2.5, 1000000.0]
    """
    joined = re.sub(r"[\u00a0\u202f' ]", "", digits)
    joined = re.sub(r",(?=\d{3}(?:\D|$))", "", joined).replace(",", ".")
    head, *rest = joined.split(".")
    if len(rest) > 1 and all(len(part) == 3 for part in rest):
        return float(head + "".join(rest))
    return float(f"{head}.{''.join(rest)}") if rest else float(head)


def plain(value: float) -> str:
    """A value as every way of writing it is known by.

    Example:
      >>> plain(250.0), plain(0.1 + 0.2)
      ('250', '0.3')
    """
    return str(int(value)) if value == int(value) else repr(round(value, 6))


def date_of(text: str) -> tuple[str, str, str]:
    """Day, month and year of a date in digits; the day comes first where either may.

    Example:
      >>> date_of("2025-04-01"), date_of("01/04/2025")
      (('1', 'm4', '2025'), ('1', 'm4', '2025'))
    """
    numbers = [int(number) for number in re.split(r"\D", text)]
    day, month, year = numbers[::-1] if numbers[0] > LAST_DAY else numbers
    if month > LAST_MONTH:
        day, month = month, day
    return str(day), f"m{month}", str(year)


def counted(words: Sequence[str], start: int) -> tuple[int, int]:
    """Value of the number words from `start` on, and where they end.

    Example:
      >>> counted("one hundred and twenty five vans".split(), 0), counted("quatre vingt dix jours".split(), 0)
      ((125, 5), (90, 3))
    """
    total = current = 0
    at = start
    while at < len(words):
        word = words[at]
        if at > start and word in {"and", "et"} and _joins(words, at, current):
            at += 1
            continue
        small = _small(word, first=at == start)
        if word in SCALES:
            scale = SCALES[word]
            if scale == 100:
                current = max(current, 1) * 100
            else:
                total, current = total + max(current, 1) * scale, 0
        elif small == 20 and current % 100 == 4:  # quatre-vingt
            current += 76
        elif small is not None and (current == 0 or _adds(current % 100, small)):
            current += small
        else:
            break
        at += 1
    return total + current, at


def _small(word: str, *, first: bool) -> int | None:
    """Value of a number word under a hundred; `un` counts only inside a number, as it is an article."""
    if word == "one" or (word == "un" and not first):
        return 1
    return NUMBERS.get(word)


def _joins(words: Sequence[str], at: int, current: int) -> bool:
    """Whether `and` or `et` stands inside one number: `hundred and two`, `vingt et un`."""
    follows = _small(words[at + 1], first=False) if at + 1 < len(words) else None
    return follows is not None and (words[at] == "et" or (current >= 100 and current % 100 == 0))


def _adds(current: int, small: int) -> bool:
    """Whether a number word may follow another in one number: `twenty five`, `soixante quinze`."""
    if current == 0:
        return True
    return (current % 10 == 0 and current >= 20 and small < 10) or (current in {60, 80} and 10 <= small < 20)


BREAK, NEGATION, LITTLE, WORD, NAME, NUMBER, UNIT = "break", "negation", "little", "word", "name", "number", "unit"

_DATE = r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b"
_DIGIT_RUN = r"\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*"
_CODE = r"\d+(?:[/:]\d+)+"
_LETTERS = r"[^\W\d_]+(?:['’][^\W\d_]+|\d[^\W_]*)*"
_MARKS = r"[.!?,;:()\[\]–—|\"“”«»]+"
_TOKEN = re.compile(rf"{_LETTERS}|{_MARKS}|{_DATE}|{_CODE}|(?:{_DIGIT_RUN})(?:[^\W\d_]+\d*)?|[%£€$]")
_NUMBER = re.compile(rf"({_DIGIT_RUN})([^\W\d_]+\d*)?")
_IS_DATE = re.compile(_DATE)
_ENGLISH = re.compile(r"(.+)n['’]t$")
_ORDINALS = frozenset(["st", "nd", "rd", "th", "e", "er", "ère", "ème", "s"])
_IRREGULAR = {"wo": "will", "ca": "can", "sha": "shall"}
_MAYBE_MONTHS = frozenset(["may", "march", "mars", "mai", "sept"])
_ADVERB = re.compile(
    r"(?!family|supply|apply|reply).{3,}ly$|.*(?:quement|alement|ivement|ièrement|eusement|amment|emment)$"
)
_ENDING = re.compile(r"(?<=[a-z]{3})(?:(?:ing|ed|e)?s?|(?<=[^s])s)$")
_PER_CENT = re.compile(r"\b(?:per|pour) ?cent\b", re.IGNORECASE)
_ENDS = frozenset(".!?")
_COUNTING = frozenset({*NUMBERS, *SCALES, *_MAYBE_MONTHS, "one", "m"})
_NO_NEGATION = {"not": {"only"}, "pas": {"seulement"}, "non": {"seulement", "plus"}}
_TURNING = NEGATORS | WITH_NE
EXACT = 15  # digits, with what parts them, up to which a number is known by its value
REACH = 6  # words after a negation among which the one that it turns is looked for


class Word(NamedTuple):
    """One word of a text.

    key: what it is known by; equal keys match. kind: what it is. sign: -1 where it stands for the opposite or is
    negated, else 1. negated: whether a negation turned it.
    """

    key: str
    kind: str
    sign: int = 1
    negated: bool = False


Part = tuple[str, Word]

_FIXED = {
    **{word: Word(f"m{number}", NUMBER) for word, number in MONTHS.items() if word not in _MAYBE_MONTHS},
    **{word: Word(unit, UNIT) for word, unit in UNITS.items()},
    **{word: Word(word, WORD) for word in SPEAKER},
    **dict.fromkeys(NEGATORS, Word("¬", NEGATION)),
    "à": Word("à", LITTLE),  # no `a`
}


def words_of(text: str) -> list[Word]:
    """The words of a text in order, punctuation that parts clauses among them, negations carried to what they turn.

    Numbers are known by their value, whether in digits or in words, months by their place, currencies by their sign.

    Example:
      >>> [(word.key, word.sign) for word in words_of("It doesn't cover 1,000 vans")]
      [('it', 1), ('doe', 1), ('¬', 1), ('~cover', -1), ('1000', 1), ('van', 1)]
    """
    parts: list[Part] = []
    first = True
    for token in _TOKEN.findall(_PER_CENT.sub("%", text)):
        parts += _parts(token, first)
        first = token in _ENDS
    texts = [part for part, _ in parts]
    if not _COUNTING.isdisjoint(texts):
        parts = _numbered(parts)
    return [word for _, word in parts] if _TURNING.isdisjoint(texts) else _turned(parts)


@lru_cache(maxsize=2**16)
def _known(word: str) -> Word:
    """A word in small letters by itself."""
    if word in _FIXED:
        return _FIXED[word]
    pole = POLES.get(word) or next((pole for start, pole in POLE_BEGINNINGS if word.startswith(start)), None)
    if pole:
        return Word(pole[0], WORD, pole[1])
    bare = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return Word(_ENDING.sub("", bare)[:KEY], LITTLE if word in SMALL or len(word) == 1 else WORD)


@lru_cache(maxsize=2**16)
def _parts(token: str, first: bool) -> tuple[Part, ...]:  # noqa: FBT001
    """Small letters and the word of each part of a token; `first` in its sentence, a capital is no name."""
    start = token[0]
    if start.isdigit():
        if _IS_DATE.fullmatch(token):
            return tuple((key, Word(key, NUMBER)) for key in date_of(token))
        number = _NUMBER.fullmatch(token)
        return tuple(_number(number[1], (number[2] or "").lower())) if number else ((token, Word(token, NUMBER)),)
    if start.isalpha():
        if any(letter.isdigit() for letter in token):
            return ((token.lower(), Word(token.lower(), NUMBER)),)
        known = [(piece, _known(piece)) for piece in _pieces(token)]
        if start.isupper() and (not first or (len(token) > 1 and token.isupper())):
            known = [(piece, word._replace(kind=NAME) if word.kind == WORD else word) for piece, word in known]
        return tuple(known)
    if start in UNITS:
        return ((token, _known(token)),)
    return ((token, Word("?", WORD) if "?" in token else Word("", BREAK)),)


def _pieces(part: str) -> list[str]:
    """Words in small letters of what is written as one: elisions, possessives, `n't`."""
    word = part.lower().replace("’", "'")
    negated = _ENGLISH.match(word)
    if negated:
        return [_IRREGULAR.get(negated[1], negated[1]), "not"]
    return [piece for piece in word.split("'") if piece != "s"] if "'" in word else [word]


def _number(digits: str, glued: str) -> Iterator[Part]:
    """A number by its value, and what is written to it."""
    if len(digits) > EXACT:
        yield digits, Word(digits + glued, NUMBER)
        return
    value = value_of(digits)
    if glued in SUFFIXES:
        yield digits, Word(plain(value * SUFFIXES[glued]), NUMBER)
    elif not glued or glued in _ORDINALS:
        yield digits, Word(plain(value), NUMBER)
    elif glued.isalpha():
        yield digits, Word(plain(value), NUMBER)
        yield glued, _known(glued)
    else:
        yield digits, Word(digits + glued, NUMBER)


def _numbered(parts: list[Part]) -> list[Part]:
    """Number words joined into their value, and months that may be other words told by a number beside them."""
    out: list[Part] = []
    texts = [text for text, _ in parts]
    at = 0
    while at < len(parts):
        text, word = parts[at]
        scale = _scale(parts, at) if word.kind == NUMBER else 0
        if scale:
            out.append((text, word._replace(key=plain(float(word.key) * scale))))
            at += 2
        elif text in NUMBERS or text in SCALES or text == "one":
            value, end = counted(texts, at)
            lone = text == "one" and end == at + 1
            out.append((text, Word(str(value), LITTLE if lone else NUMBER)))
            at = end
        elif text in _MAYBE_MONTHS:
            beside = [parts[i][1].kind for i in (at - 1, at + 1) if 0 <= i < len(parts)]
            out.append((text, Word(f"m{MONTHS[text]}", NUMBER) if NUMBER in beside else word))
            at += 1
        else:
            out.append(parts[at])
            at += 1
    return out


def _scale(parts: list[Part], at: int) -> int:
    """What the number in digits here is multiplied by: 10**6 in `2 million` and in `£2m`, 0 if by nothing."""
    if at + 1 == len(parts) or not parts[at][0][0].isdigit() or not parts[at][1].key.replace(".", "", 1).isdigit():
        return 0
    follows = parts[at + 1][0]
    if follows == "m":
        return 10**6 if at and parts[at - 1][0] in UNITS else 0
    return SCALES.get(follows, 0)


def _turned(parts: list[Part]) -> list[Word]:
    """Words with the sign of those that a negation turns."""
    words = [word for _, word in parts]
    for at, (text, word) in enumerate(parts):
        if word.kind != NEGATION and text not in WITH_NE:
            continue
        negates, since = _negates(parts, at)
        if not negates:
            words[at] = Word(text[:KEY], LITTLE)
            continue
        words[at] = Word("¬", NEGATION)
        after, before = range(at + 1, min(len(parts), at + 1 + REACH)), range(at - 1, max(-1, at - 1 - REACH), -1)
        spans = (range(since, at), after, before)
        focus = next((found for span in spans if (found := _focus(parts, span)) is not None), None)
        if focus is not None:
            turned = words[focus]
            words[focus] = turned._replace(sign=-turned.sign, negated=not turned.negated)
    return words


def _negates(parts: list[Part], at: int) -> tuple[bool, int]:
    """Whether a word negates, and from where on the verb may stand before it."""
    text, word = parts[at]
    ne = next((i for i in range(at - 1, max(-1, at - 5), -1) if parts[i][0] in NE), None)
    since = at if ne is None else ne + 1
    if text in WITH_NE:
        return ne is not None, since
    if word.kind != NEGATION:
        return False, at
    follows = parts[at + 1] if at + 1 < len(parts) else ("", Word("", BREAK))
    if follows[0] in _NO_NEGATION.get(text, ()):
        return False, at
    if text == "no" and follows[0] in {"claim", "claims"} and at + 2 < len(parts) and parts[at + 2][0] in BONUS:
        return False, at
    if text == "no" and (follows[0].startswith(".") or follows[1].kind == NUMBER):
        return False, at
    return True, since


def _focus(parts: list[Part], span: range) -> int | None:
    """The first word of substance within one clause; an adverb only if it is alone."""
    adverb = None
    for at in span:
        text, (_, kind, *_) = parts[at]
        if kind == BREAK:
            break
        if kind in {WORD, NAME, NUMBER, UNIT}:
            if not _ADVERB.match(text):
                return at
            adverb = at if adverb is None else adverb
    return adverb
