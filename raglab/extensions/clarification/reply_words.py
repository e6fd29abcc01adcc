"""Reply words (shore): what a user's reply says of time, size and place, and what it sets aside (S5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from raglab.extensions.clarification.question_vocabulary import READ, plain_terms
from raglab.extensions.clarification.stated_values import SMALL, word_stems
from raglab.languages import LANGUAGES
from raglab.numerals import dates_in
from raglab.text import split_words

Time = Literal["old", "new", ""]
Size = Literal["large", "small", ""]
_WORDS = LANGUAGES.replies


def whole_words(patterns: Iterable[str]) -> re.Pattern[str]:
    """Any of some expressions as whole words."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns) or '(?!)'})(?!\w)")


OLDER, NEWER = whole_words(_WORDS.older), whole_words(_WORDS.newer)
_LARGER, _SMALLER = whole_words(_WORDS.larger), whole_words(_WORDS.smaller)
_PARTS = "|".join(_WORDS.parts)
_PAGE = re.compile(rf"(?<!\w)(?:{_PARTS}|p\.?)s? ?0*([1-9]\d{{0,2}})(?!\w)|^0*([1-9]\d?)$")
_COVER, _NEXT, _LAST = whole_words(_WORDS.cover), whole_words(_WORDS.next), whole_words(_WORDS.last)
_BEHIND_COVER = re.compile(
    rf"(?<!\w)(?:{'|'.join(_WORDS.after)})(?!\w).{{0,12}}?(?<!\w)(?:{'|'.join(_WORDS.cover)})(?!\w)"
)
_CONTENTS, _WHOLE, _LOOKING = whole_words(_WORDS.contents), whole_words(_WORDS.whole), whole_words(_WORDS.looking)
_ONLY = whole_words(map(re.escape, _WORDS.only))
_PART = re.compile(rf"(?<!\w)(?:{_PARTS})s?(?: (?:{'|'.join(_WORDS.about)})(?!\w))* ?(?P<rest>[^,.;!?]{{1,60}})")
_DENYING = re.compile(rf"^(?:{'|'.join(_WORDS.denying)})")
NEGATIVE = whole_words(_WORDS.negative)
_SEGMENT = re.compile(rf"[,.;:!?–—]+(?: |$)| - |(?<!\w)(?:{'|'.join(_WORDS.turning)})(?!\w)")
_OPENING = re.compile(rf"^(?:{'|'.join((*_WORDS.agreeing, *_WORDS.refusing))})[,;:.!]* (?=\S)")
_AGREED = whole_words(_WORDS.agreed)
_ORDINALS = {place: whole_words(words) for place, words in _WORDS.ordinals.items()}


class ReplyTopic(NamedTuple):
    """What a reply says of the statement that is meant.

    text: its words, without those that say where to look. meant, denied: stems of what is meant, and of what is not.
    part: stems of the part of a document that it names. time: whether it means what held before or what holds. forbids:
    whether it asks for what is not, or must not be.
    """

    text: str
    meant: frozenset[str]
    denied: frozenset[str]
    part: frozenset[str]
    time: Time
    forbids: bool


class NamedPages(NamedTuple):
    """Pages that a reply names by their number or in words, and those that it sets aside."""

    named: frozenset[int]
    denied: frozenset[int]


def is_agreement(said: str) -> bool:
    """Whether a reply in plain letters agrees and says nothing beside that.

    Example:
      >>> [is_agreement(text) for text in ("yes please", "oui, c'est bien ca", "yes, the full charge", "no")]
      [True, True, False, False]
    """
    words = _tokens(said)
    if not words or not set(words) <= {*_WORDS.agreeing, *_WORDS.assent}:
        return False
    return words[0] in _WORDS.agreeing or _AGREED.match(said) is not None


def is_refusal(said: str) -> bool:
    """Whether a reply in plain letters declines and says nothing beside that.

    Example:
      >>> [is_refusal(text) for text in ("no thanks", "non merci", "no, page 3")]
      [True, True, False]
    """
    words = _tokens(said)
    return bool(words) and words[0] in _WORDS.refusing and set(words) <= {*_WORDS.refusing, *_WORDS.dissent}


def _tokens(said: str) -> list[str]:
    return re.findall(r"[\w']+", said)


def time_meant(said: str) -> Time:
    """Whether a reply in plain letters means what held before or what holds now; '' where it tells neither.

    Example:
      >>> [time_meant(text) for text in ("la regle de maintenant, pas l'ancienne", "before the new rates", "page 3")]
      ['new', 'old', '']
    """
    kept = ", ".join(part for part, denied in _segments(said) if not denied) or said
    old, new = OLDER.search(kept), NEWER.search(kept)
    if old and new:
        return "old" if old.start() < new.start() else "new"
    return "old" if old else "new" if new else ""


_YEAR = re.compile(r"(?:19|20)\d\d(?!\d)")


def last_date(text: str) -> tuple[int, ...]:
    """Year, month and day of the last date that a text names, 0 where it tells none; () where it names no year.

    Example:
      >>> last_date("built up to February 2025"), last_date("from 1 July 2025"), last_date("Dinner")
      ((2025, 2, 0), (2025, 7, 1), ())
    """
    years = [(int(year), 0, 0) for year in _YEAR.findall(text)]
    return max([*(date[:3] for date in dates_in(text)), *years], default=())


def size_meant(said: str) -> Size:
    """Whether a reply in plain letters means the larger or the smaller; '' where it tells neither."""
    small, large = _SMALLER.search(said), _LARGER.search(said)
    return "" if bool(small) == bool(large) else "small" if small else "large"


def ordinal_meant(said: str) -> int | None:
    """Place in a list, from 0, that a short reply in plain letters names: `the second one`."""
    if len(split_words(said)) > 4:
        return None
    places = [place for place, form in _ORDINALS.items() if form.search(said)]
    return places[0] - 1 if len(places) == 1 and not _COVER.search(said) else None


def names_contents(said: str) -> bool:
    """Whether a reply in plain letters sends to the table of contents."""
    return bool(_CONTENTS.search(said))


def names_whole(said: str) -> bool:
    """Whether a reply in plain letters means the whole of the documents."""
    return bool(_WHOLE.search(said))


def named_pages(said: str, pages: Sequence[int], proposed: int | None = None) -> NamedPages:
    """Pages that a reply in plain letters names or sets aside.

    Args:
      pages: that there are, in order. proposed: the page that the user was asked about, which the next one follows.

    Example:
      >>> named_pages("page 1 is only the cover, try page 3", (1, 2, 3))
      NamedPages(named=frozenset({3}), denied=frozenset({1}))
    """
    if not pages:
        return NamedPages(frozenset(), frozenset())
    if _BEHIND_COVER.search(said):
        return NamedPages(frozenset(pages[1:2]), frozenset())
    if _NEXT.search(said):
        later = next((page for page in pages if page > (proposed or pages[0])), None)
        return NamedPages(frozenset() if later is None else frozenset({later}), frozenset())
    named: set[int] = set()
    denied: set[int] = set()
    for part, is_denied in _segments(said):
        found = {page for match in _PAGE.finditer(part) if (page := int(match[1] or match[2])) in pages}
        found |= {pages[0]} if _COVER.search(part) else set()
        found |= {pages[-1]} if _LAST.search(part) else set()
        aside = is_denied or (bool(_ONLY.search(part)) and bool(_COVER.search(part)))
        (denied if aside else named).update(found)
    if names_contents(said) and _COVER.search(said):  # `that is the cover, try the contents`
        named, denied = named - {pages[0]}, denied | {pages[0]}
    return NamedPages(frozenset(named - denied), frozenset(denied))


@cache
def small_stems() -> frozenset[str]:
    """Stems of words that carry no matter: small ones, and those of agreeing and refusing."""
    words = (*SMALL, *_WORDS.agreeing, *_WORDS.refusing, *_WORDS.parts)
    return frozenset(stem for word in words for stem in word_stems(word))


@lru_cache(maxsize=READ)
def reply_topic(reply: str) -> ReplyTopic:
    """What a reply says of the statement that is meant.

    Example:
      >>> topic = reply_topic("no, the machine itself, not the charger")
      >>> sorted(topic.meant), sorted(topic.denied)
      (['machi'], ['charg'])
    """
    said = _OPENING.sub("", " ".join(plain_terms(reply).split()))
    meant: set[str] = set()
    denied: set[str] = set()
    kept: list[str] = []
    forbids = False
    told = _without_places(said)
    for part, is_denied in _segments(told):
        if is_denied:
            denied |= word_stems(part)
        else:
            forbids = forbids or bool(NEGATIVE.search(part))
            meant |= word_stems(part)
            kept.append(part)
    named = frozenset[str]().union(*(word_stems(match["rest"]) for match in _PART.finditer(told)))
    small = small_stems()
    return ReplyTopic(
        text=", ".join(kept),
        meant=frozenset(meant) - small,
        denied=frozenset(denied - meant) - small,
        part=named - small,
        time=time_meant(said),
        forbids=forbids,
    )


def _without_places(said: str) -> str:
    """A reply without the words that only say where to look."""
    for form in (_BEHIND_COVER, _COVER, _NEXT, _LAST, _CONTENTS, _WHOLE, _PAGE, _LOOKING):
        said = form.sub(" ", said)
    return " ".join(said.split())


def _segments(said: str) -> list[tuple[str, bool]]:
    """Parts of a reply, and whether each says what is not meant: of a later part any negation does."""
    parts = [part.strip() for part in _SEGMENT.split(said) if part and part.strip()]
    return [
        (part, bool(_DENYING.search(part) or (place and NEGATIVE.search(part)))) for place, part in enumerate(parts)
    ]
