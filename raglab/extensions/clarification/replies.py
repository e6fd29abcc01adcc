"""Replies (algebra): what a user's reply says to what was asked, by words alone (S5.4).

A button first: the number or the label of a value on offer. Else a reply counts only for what it
names: a value on offer, one that the documents state elsewhere, a page that exists, yes, or no.
Every word and sign of it must be accounted for: by the name, by closed lists of manners, by what is
set aside, or by a reason behind `because` that names nothing else. All else is not understood, and
changes nothing. A doubt, `I think`, answers and is no vote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from raglab.extensions.clarification.language_words import entries, expression, plain, whole_words
from raglab.extensions.clarification.reply_names import (
    CONTENTS_PAGES,
    DOCUMENT,
    LAST_PAGE,
    NOT_UNDERSTOOD,
    PAGE_SCOPE,
    ReplyOffers,
    bare,
    choice_of,
    mended,
    named,
    sums_spelled,
    tells_of_another,
)
from raglab.live.clarifier import Reply, ReplyRequest

__all__ = ["CONTENTS_PAGES", "DOCUMENT", "LAST_PAGE", "NOT_UNDERSTOOD", "PAGE_SCOPE", "read_reply"]
# A sign that no plain reply has: a picture, a frown, a mark of code, a sign before a figure.
_SIGN = re.compile(r"[^\w\s.,;:!'\"“”«»()/&+%€£$¥°#|*@…–—-]|[:;]['-]?[(/|](?!\w)|(?<![\w)])[-+]\d")
_TONE = re.compile("[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")  # of a picture, its form and colour
# `the pet one not the other`: a `not` behind a noun begins a part; behind a verb it is the verb's.
_BARE_NOT = re.compile(
    r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bam )(?<!\bdo )(?<!\bdoes )(?<!\bdid )(?<!\bbe )(?<!'s "
    r")(?<!'m )(?<!est )(?<!sont )\b(?=(?:not|pas) )"
)
_PART = re.compile(r"[,.;:!–—|](?=\s|$)|\s-\s|\||[()]|(?<!\d)[/+&\n](?!\d)")
LONGEST_REPLY = 1_000  # characters that are read; a longer reply is not understood
_EDGE_AND = re.compile(r"^(?:and|et) | (?:and|et)$")


def read_reply(reply: str, request: ReplyRequest, /) -> Reply:
    """What a reply names of what was asked.

    Source: rule S5.4.

    Example:
      >>> from raglab.live.clarifier import GapReading
      >>> deposits = (GapReading("Pet deposit"), GapReading("Rent deposit"))
      >>> request = ReplyRequest(
      ...     "What is the deposit?", "field_type", "deposit", deposits, "Pet deposit"
      ... )
      >>> (
      ...     read_reply("the rent one", request),
      ...     read_reply("banana", request).kind,
      ...     read_reply("no", request).declined,
      ... )
      (Reply(kind='chosen', value='Rent deposit', quote='', declined=(), doubted=False), \
'not_understood', ('Pet deposit',))
    """
    button = plain(reply)
    pressed = [
        reading.value
        for reading in request.readings
        if button and button in {plain(reading.value), plain(reading.text)}
    ]
    if len(pressed) == 1:
        return Reply("chosen", pressed[0])
    if len(reply) > LONGEST_REPLY:
        return NOT_UNDERSTOOD
    text, choice = choice_of(mended(_spelled(reply, request), request), request)
    sure = " ".join(expression("doubt").sub(" ", text).split())
    if (
        not re.search(r"\w", sure)
        or _SIGN.search(text)
        or expression("undecided").search(sure)
        or expression("musing").fullmatch(text)
    ):
        return NOT_UNDERSTOOD
    heard = _read(sure.strip(" ,.!…"), choice)
    if sure == text:
        return heard
    return heard._replace(doubted=True) if heard.value else NOT_UNDERSTOOD


def _spelled(reply: str, request: ReplyRequest) -> str:
    """A reply in plain letters, without courtesies.

    Pictures are yes or no, sums have signs, `no. 1` is an option, pages are written alike.
    """
    text = _TONE.sub("", plain(reply))
    names = [plain(f"{reading.value} {reading.text}") for reading in request.readings]
    places = "|".join(str(place) for place, _ in enumerate(names, 1)) or "(?!)"
    called = rf"(?<![\w'])(?:(?:{'|'.join(entries('option'))})[ #]*)+"
    number = re.compile(rf"{called}(?=(?:{places})(?![\w%]|[.,]\d))")
    if not any(number.search(name) for name in names):  # `Dock No. 1` is a name
        text = number.sub(f"{entries('option')[0]} ", text)
    text = expression("agreeing_sign").sub(f" {entries('agreeing')[0]} ", text)
    # beside words it is no plain no
    if text and not expression("declining_sign").sub(" ", text).strip():
        text = entries("declining")[0]
    text = expression("courtesy").sub(" ", sums_spelled(text))
    return " ".join(text.split()).strip(" .!\"'“”«»")


def _is_whole(text: str, key: str, *beside: str) -> bool:
    """Whether a text is entries of a list, with nothing beside them but words of others."""
    rest = expression(key).sub(" ", text)
    words = {*re.findall(r"[\w'-]+", rest)}
    return rest != text and not words.difference(*map(entries, beside))


def _whole(text: str, choice: ReplyOffers) -> Reply | None:
    """What a reply says that is nothing but yes, no, none of them, or a question back."""
    request, words = choice.request, re.sub(r"[^\w' -]+ *", " ", text)
    values = [reading.value for reading in request.readings]
    if _is_whole(text, "none_of", "polite", "dissent"):
        return _declined(*values)
    if expression("agreeing").match(words) and _is_whole(words, "agreeing", "assent"):
        return NOT_UNDERSTOOD if request.proposed is None else Reply("yes", request.proposed)
    if expression("declining").match(words) and _is_whole(words, "declining", "dissent"):
        return _declined(request.proposed or (values[0] if len(values) == 1 else None))
    return NOT_UNDERSTOOD if re.match(expression("asking_back").pattern, bare(text)) else None


def _declined(*values: str | None) -> Reply:
    declined = tuple(value for value in dict.fromkeys(values) if value)
    return Reply("declined", declined=declined) if declined else NOT_UNDERSTOOD


def _read(text: str, choice: ReplyOffers) -> Reply:
    """What a reply without a doubt says: as a whole, or what its parts name and set aside."""
    if (whole := _whole(text, choice)) is not None:
        return whole
    opening, rest = _opening(text)
    parts, remainder = _parts(rest), expression("others")
    denied = [part for part in parts if expression("setting_aside").search(part)]
    stated = [part for part in parts if part not in denied]
    reasons = [part for part in stated if expression("because").match(part)]
    affirmed = [part for part in stated if part not in reasons]
    bared = [expression("setting_aside").sub(" ", part) for part in denied]
    gone = [named(" ".join(remainder.sub(" ", part).split()), choice) for part in bared]
    heard = [each for part in affirmed if (each := named(part, choice)) is not None]
    chosen = next(iter(heard), None)
    if (
        NOT_UNDERSTOOD in (*heard, *gone)
        or len({each.value for each in heard}) > 1
        or any(tells_of_another(reason, chosen, choice) for reason in reasons)
    ):
        return NOT_UNDERSTOOD
    away = {each.value for each in gone if each is not None}
    turned_down = [each.value for each in choice.request.readings if each.value in away]
    if chosen is None:
        return _unnamed(opening, "" if denied or reasons else rest, turned_down, choice)
    proposed = choice.request.proposed
    # a no that names nothing: `the pet one, no`
    pairs = zip(gone, bared, strict=True)
    is_bare = any(each is None and not remainder.search(part) for each, part in pairs)
    if is_bare or (opening == "no" and not denied and chosen.value == proposed):
        is_clear = not is_bare or (len(denied) == 1 and not opening)
        return _declined(chosen.value) if is_clear and stated == affirmed[:1] else NOT_UNDERSTOOD
    if opening == "no":
        apart = re.search(r"[^\w\s']", text[: len(text) - len(rest)])
        is_paged = choice.request.kind == PAGE_SCOPE
        if not (denied or apart or is_paged or bare(rest) != rest):  # `no pet deposit`
            return NOT_UNDERSTOOD
        turned_down += [proposed] if proposed not in {None, chosen.value} else []
    declined = tuple(dict.fromkeys(turned_down))
    return chosen._replace(kind="corrected", declined=declined) if declined else chosen


def _unnamed(opening: str, rest: str, turned_down: Sequence[str], choice: ReplyOffers) -> Reply:
    """What a reply says that names nothing to be taken: what it turns down, else yes or no."""
    proposed = choice.request.proposed
    if turned_down and opening != "yes":
        return _declined(*turned_down)
    if not rest or not opening or proposed is None:
        return NOT_UNDERSTOOD
    if opening == "yes":
        return Reply("yes", proposed)
    return NOT_UNDERSTOOD if expression("agreeing").search(rest) else _declined(proposed)


def _opening(text: str) -> tuple[str, str]:
    """Whether a reply opens with yes or no, once or more, and what follows."""
    # `not of the pets` says of what
    beyond = {"no": expression("going_on").pattern, "yes": "(?!)"}
    for key, word in (("opening_no", "no"), ("agreeing", "yes")):
        opening = rf"(?:{'|'.join(entries(key))})(?:[,;:.!]|\s[-–—])*\s+(?=\S)"
        if match := re.match(rf"(?:{opening}(?!{beyond[word]}))+", text):
            return word, text[match.end() :]
    return "", text


def _parts(text: str) -> list[str]:
    """Parts of a reply, so that each says what is meant, sets something aside, or says why."""
    marked = whole_words(entries("instead_of")).sub(" | not ", text)
    marked = _BARE_NOT.sub("| ", marked)
    marked = whole_words(entries("turning")).sub(" | ", marked)
    marked = whole_words(entries("because")).sub(r" | \g<0>", marked)
    parts = (part.strip(" ,.;:!–—|") for part in _PART.split(marked))
    # `the pet one and`, before a `not`
    return [part for part in (_EDGE_AND.sub("", each).strip() for each in parts) if part]
