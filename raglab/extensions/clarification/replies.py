"""Replies (algebra): what a user's reply says to what was asked, by words alone (S5.4).

A reply counts only for what it names: a value on offer, one that the documents state elsewhere, a page that exists,
yes, or no. Every word of it must be accounted for: by the name, by manners, or as an explanation that names nothing
else. All else is not understood, and changes nothing. A part that sets something aside names what is declined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

from raglab.extensions.clarification.language_words import entries, expression, plain, stems, whole_words
from raglab.extensions.clarification.reply_names import (
    CONTENTS,
    DOCUMENT,
    LAST_PAGE,
    PAGE_SCOPE,
    Mention,
    asked_stems,
    bare,
    by_place,
    chatter,
    has,
    held_phrases,
    held_values,
    is_joined,
    manners,
    mended,
    mention,
    own_value,
    phrases,
    tokens,
    told_values,
    unknown_words,
    words_of_others,
)
from raglab.extensions.clarification.reply_traits import shown_text
from raglab.extensions.clarification.statements import statements, value_key
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.words import split_words

__all__ = ["CONTENTS", "DOCUMENT", "LAST_PAGE", "NOT_UNDERSTOOD", "PAGE_SCOPE", "read_reply"]
NOT_UNDERSTOOD = Reply("not_understood")
LONGEST_YES = 8  # words of a reply that begins with yes and names nothing
LEAST_CLAUSE = 3  # words of a clause that explains: `I have a dog`
_CODE = re.compile(r"[{}<>=`\[\]\\^~]|(?<![\w)])[-+]\d")


def read_reply(reply: str, request: ReplyRequest, /) -> Reply:
    """What a reply names of what was asked.

    Source: rule S5.4.

    Example:
      >>> deposits = (GapReading("Pet deposit"), GapReading("Rent deposit"))
      >>> asked = ReplyRequest("What is the deposit?", "field_type", "deposit", deposits, "Pet deposit")
      >>> read_reply("the rent one", asked), read_reply("banana", asked).kind, read_reply("no", asked).declined
      (Reply(kind='chosen', value='Rent deposit', quote='', declined=()), 'not_understood', ('Pet deposit',))
    """
    text = expression("courtesy").sub(" ", plain(reply)).strip(" .!\"'“”«»")
    words = tokens(text)
    if not words or not _is_stated(reply, request):
        return NOT_UNDERSTOOD
    if _is_whole(text, "none_of"):
        return Reply("declined", declined=tuple(reading.value for reading in request.readings))
    is_doubted = "?" in text
    if _says(words, "agreeing", "assent") and not _CODE.search(text):
        return NOT_UNDERSTOOD if request.proposed is None or is_doubted else Reply("yes", request.proposed)
    if _says(words, "declining", "dissent"):
        proposed = _proposal(request)
        return Reply("declined", declined=(proposed,)) if proposed and not is_doubted else NOT_UNDERSTOOD
    text = mended(_pages_spelled(text, request), request)
    held = _with_names_held(text, request)
    if _CODE.search(held.text) or expression("undecided").search(held.text) or _is_question(text, held, request):
        return NOT_UNDERSTOOD
    return _named(text, request)


def _proposal(request: ReplyRequest) -> str:
    """What a bare no turns down: the proposal, or all that there is."""
    if request.proposed is not None:
        return request.proposed
    return request.readings[0].value if len(request.readings) == 1 else ""


def _is_stated(reply: str, request: ReplyRequest) -> bool:
    """Whether every sum, date or other value that a reply prints stands in what was offered or in the documents."""
    told = {value_key(value.text) for value in values_in(reply) if value.kind not in {"number", "time"}}
    if not told or not request.documents:
        return True
    texts = (*(" ".join(reading) for reading in request.readings), *(chunk.full_text for chunk in request.documents))
    known = {value_key(value.text) for text in texts for value in values_in(text)}
    return told <= known or all(any(key in value_key(text) for text in texts) for key in told)


def _is_question(text: str, held: _Held, request: ReplyRequest) -> bool:
    """Whether a reply asks something back, beyond a name with a question mark or the question itself, made whole."""
    if "?" in text and re.match(expression("checking_back").pattern, bare(held.text)):
        return True
    opening = re.match(expression("asking_back").pattern, bare(held.text))
    if "?" not in text and opening is None:
        return False
    own = set(split_words(plain(" ".join((request.question, *(text for one in request.readings for text in one))))))
    own |= {*split_words(" ".join(entries("page"))), *(word for name in held.names for word in split_words(name))}
    lead = bare(text) if "?" in text and opening is None else text
    return bool({*split_words(lead)} - own - set(entries("articles")))


# --- words of agreement and refusal


def _is_whole(text: str, key: str) -> bool:
    """Whether a text is one of the entries, with nothing beside it but manners."""
    rest = expression(key).sub(" ", text)
    return rest != text and not (set(tokens(rest)) - set(entries("polite")) - set(entries("dissent")))


def _says(words: Sequence[str], key: str, beside: str) -> bool:
    """Whether words begin with an entry and hold nothing but entries and what may stand beside them."""
    text = " ".join(words)
    match = expression(key).match(text)
    if match is None:
        return False
    rest = set(tokens(expression(key).sub(" ", text)))
    return not rest - set(entries(beside))


def _opening(text: str) -> tuple[str, str]:
    """Whether a reply opens with yes or no, and what follows."""
    for key, told in (("opening_no", "no"), ("agreeing", "yes")):
        match = re.match(rf"(?:{'|'.join(entries(key))})(?:[,;:.!]|\s[-–—])*\s+(?=\S)", text)
        if match and not _continues(text[match.end() :], told):
            return told, text[match.end() :]
    return "", text


def _continues(rest: str, told: str) -> bool:
    """Whether `not`, `wrong` or `right` goes on to say of what, so that it is no answer by itself."""
    return told == "no" and re.match(r"(?:of|de)\b", rest) is not None


# --- parts of a reply


# `the pet one not the other`: a `not` behind a noun begins a part; behind a verb it is the verb's.
_BARE_NOT = re.compile(
    r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bam )(?<!\bdo )(?<!\bdoes )(?<!\bdid )(?<!\bbe )(?<!'s )(?<!'m )"
    r"(?<!est )(?<!sont )\b(?:not|pas) "
)
_PART = re.compile(r"[,.;:!?–—|](?=\s|$)|\s-\s|\||[()]|(?<!\d)[/+&\n](?!\d)")


def _parts(text: str, request: ReplyRequest) -> tuple[list[str], list[str]]:
    """Parts of a reply that say what is meant, and those that set something aside."""
    held = _with_names_held(text, request)
    marked = re.sub(whole_words(entries("instead_of")), " | not ", held.text)
    marked = _BARE_NOT.sub(" | not ", marked)
    marked = re.sub(whole_words(entries("turning")), " | ", marked)
    marked = re.sub(whole_words(entries("because")), r" | \g<0>", marked)
    affirmed: list[str] = []
    denied: list[str] = []
    for part in filter(None, (_without_and(one) for one in _PART.split(marked))):
        head, why = _with_its_reason(held.restored(part), request)
        explains = re.match(expression("because").pattern, part)
        own = _with_names_held(head, request).text if why else part
        is_denied = explains is None and expression("setting_aside").search(own) is not None
        (denied if is_denied else affirmed).append(head)
        affirmed += [why] if why else []
    return affirmed, denied


def _without_and(part: str) -> str:
    """A part without an `and` at its end or start: `the pet one and`, before a `not`."""
    words = part.strip(" ,.;:!?–—|").split()
    inner = words[words[:1] in (["and"], ["et"]) :]
    return " ".join(inner[: len(inner) - (inner[-1:] in (["and"], ["et"]))])


def _with_its_reason(part: str, request: ReplyRequest) -> tuple[str, str]:
    """A part and what explains it: `the pet one` and `for my dog`, but `the one for pets` as it stands."""
    starts = [match.start() for match in expression("of_which").finditer(part)]
    if not starts or _names_cleanly(part, request):
        return part, ""
    at = next((start for start in starts if _names_cleanly(part[:start], request)), len(part))
    return part[:at].strip(), part[at:]


def _names_cleanly(part: str, request: ReplyRequest) -> bool:
    """Whether a part names a reading or page, and says nothing else but what it sets aside."""
    named = mention(" ".join(_setting_aside().sub(" ", part).split()), request)
    return named is not None and named.named.value != "" and not named.rest


class _Held(NamedTuple):
    """A reply whose names of readings are held by marks, so that a `not` or comma of a name is none of the reply's."""

    text: str
    names: tuple[str, ...]

    def restored(self, part: str) -> str:
        for number, name in enumerate(self.names):
            part = part.replace(f"name{number}name", name)
        return part


def _with_names_held(text: str, request: ReplyRequest) -> _Held:
    used: list[str] = []
    for name in held_phrases(text, request):
        pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
        if re.search(pattern, text):
            text = re.sub(pattern, f"name{len(used)}name", text)
            used.append(name)
    return _Held(text, tuple(used))


def _pages_spelled(text: str, request: ReplyRequest) -> str:
    """A text whose pages are written alike, so that the full stop of `p. 1` ends no part."""
    if request.kind != PAGE_SCOPE:
        return text
    return re.sub(rf"(?<!\w)(?:{'|'.join(entries('page'))}) ?(\d{{1,4}})(?!\w)", r"page \1", text)


# --- what the parts name


def _named(text: str, request: ReplyRequest) -> Reply:
    """What the parts of a reply name, those that set something aside apart from the others."""
    opening, rest = _opening(text)
    affirmed, denied = _parts(rest, request)
    chosen = _chosen(affirmed, request)
    turned_down, mentioned = _turned_down(denied, request)
    if chosen.kind == "not_understood" or chosen.value in mentioned:
        return NOT_UNDERSTOOD
    if chosen.value and opening == "no" and not denied and _is_no_to(chosen.value, text, rest, request):
        is_clear = chosen.value == request.proposed and affirmed == [rest]
        return Reply("declined", declined=(chosen.value,)) if is_clear else NOT_UNDERSTOOD
    if chosen.value:
        proposed = (request.proposed,) if opening == "no" and request.proposed not in {None, chosen.value} else ()
        declined = tuple(dict.fromkeys((*turned_down, *proposed)))
        return chosen._replace(kind="corrected", declined=declined) if declined else chosen
    if turned_down and not any(expression("agreeing").search(part) for part in affirmed):
        return Reply("declined", declined=turned_down)
    if denied or not opening or "?" in rest:
        return NOT_UNDERSTOOD
    return _bare_answer(opening, rest, request)


def _is_no_to(value: str, text: str, rest: str, request: ReplyRequest) -> bool:
    """Whether a no is to what is named behind it: to the proposal, or to a bare name (`no pet deposit`)."""
    apart = re.search(r"[^\w\s']", text[: len(text) - len(rest)]) is not None
    return value == request.proposed or not (apart or bare(rest) != rest or request.kind == PAGE_SCOPE)


def _bare_answer(opening: str, rest: str, request: ReplyRequest) -> Reply:
    """A yes or a no with words beside it that name nothing: what it is to, where they say nothing at all."""
    known = manners() | (asked_stems(request) | chatter() if opening == "yes" else frozenset())
    if unknown_words(rest, known) or len(tokens(rest)) > LONGEST_YES or _names_label(rest, request):
        return NOT_UNDERSTOOD
    against = "agreeing" if opening == "no" else "declining"
    if expression(against).search(rest) or request.proposed is None:
        return NOT_UNDERSTOOD
    return Reply("yes", request.proposed) if opening == "yes" else Reply("declined", declined=(request.proposed,))


def _chosen(affirmed: Sequence[str], request: ReplyRequest) -> Reply:
    """The only value that the parts of a reply name; one without a value where they name none and say nothing."""
    by_part = [(part, mention(part, request)) for part in affirmed]
    values = {one.named.value for _, one in by_part if one is not None}
    if len(values) > 1 and request.kind == PAGE_SCOPE:  # `page 1 is only the cover, try page 3`
        by_part = [(part, one) for part, one in by_part if not expression("only_cover").search(part)]
        values = {one.named.value for _, one in by_part if one is not None}
    if not values:
        return _stated_elsewhere(affirmed, request)
    if len(values) > 1 or "" in values or _are_two([part for part, one in by_part if one is not None], request):
        return NOT_UNDERSTOOD
    named = next(one.named for _, one in by_part if one is not None)
    reading = next((one for one in request.readings if one.value == named.value), None)
    told = all(_is_told(part, one, reading, request) for part, one in by_part)
    return named if told and any(one is not None and not one.rest for _, one in by_part) else NOT_UNDERSTOOD


def _are_two(parts: Sequence[str], request: ReplyRequest) -> bool:
    """Whether two parts name one reading by words of it that they do not share: `the lamp, the strap`."""
    names = {name for one in request.readings for name in phrases(one)}
    words = [frozenset(stems(bare(part))) - manners() - chatter() - asked_stems(request) for part in parts]
    partial = [own for part, own in zip(parts, words, strict=True) if own and bare(part) not in names]
    texts = [frozenset(stems(shown_text(one, request))) for one in request.readings]
    partial = [own for own in partial if any(own <= text for text in texts)]
    return any(not first & second for first, second in combinations(partial, 2))


def _is_told(part: str, named: Mention | None, reading: GapReading | None, request: ReplyRequest) -> bool:
    """Whether a part of a reply names what was named, explains it, or says nothing."""
    if named is not None and not named.rest:
        return True
    if _is_explanation(part):
        return not _names_label(part, request) and not _tells_of_another(part, reading, request)
    if named is not None:
        return False
    known = (manners() | chatter()) - words_of_others(reading, request)
    return not unknown_words(bare(part), known) and not _names_label(part, request)


def _is_explanation(part: str) -> bool:
    """Whether a part says why, or is a clause that asks for nothing: `because of my dog`, `I have a dog`."""
    if _reasons().match(part) or _reasons().match(bare(part)):  # `it is for a wedding`
        return True
    clause = re.match(expression("subject").pattern, part) is not None and len(tokens(part)) >= LEAST_CLAUSE
    return clause and bare(part) == part and not is_joined(part)


def _names_label(part: str, request: ReplyRequest) -> bool:
    """Whether a part of a reply is called as something that the documents state or are headed."""
    own = frozenset(stems(bare(_reasons().sub(" ", part)))) - manners() - asked_stems(request)
    if not own:
        return False
    names = {name for one in statements(request.documents) for name in (one.label, one.heading)}
    return any(own <= frozenset(stems(name)) for name in names)


def _tells_of_another(text: str, reading: GapReading | None, request: ReplyRequest) -> bool:
    """Whether a text has a word, value or place of another reading than one: `because 2 is paid`."""
    others = [one for one in request.readings if one != reading]
    own = asked_stems(request) | (frozenset[str]() if reading is None else frozenset(stems(" ".join(reading))))
    why = _reasons().sub(" ", text)
    apart = {one for one in stems(why) if not has(own, one) and not one.isdigit()} - manners() - chatter()
    if any(has(frozenset(stems(shown_text(one, request))), word) for one in others for word in apart):
        return True
    told = told_values(text) - (frozenset() if reading is None else held_values(reading))
    if any(told & held_values(one) for one in others):
        return True
    subject = bare(why)
    placed = {by_place(word, request) for word in (subject, *tokens(text)) if word == subject or word[:1].isdigit()}
    return any(one in placed for one in others)


def _stated_elsewhere(affirmed: Sequence[str], request: ReplyRequest) -> Reply:
    """The value that the documents state beside those on offer; one without a value where nothing was said."""
    if not affirmed:
        return Reply("declined")
    text = " ".join(affirmed)
    found = None if is_joined(bare(text)) and len(affirmed) > 1 else own_value(text, request)
    return Reply("declined") if found is None else found


def _turned_down(denied: Sequence[str], request: ReplyRequest) -> tuple[tuple[str, ...], frozenset[str]]:
    """Values that parts of a reply turn down in so many words, and all that those parts mention."""
    by_part = [mention(" ".join(_setting_aside().sub(" ", part).split()), request) for part in denied]
    told = [one for one in by_part if one is not None]
    values = {reading.value for reading in request.readings}
    clear = (one.named.value for one in told if not one.rest and one.named.value in values)
    return tuple(dict.fromkeys(clear)), frozenset(one.named.value for one in told)


@cache
def _setting_aside() -> re.Pattern[str]:
    return whole_words(entries("setting_aside"))


@cache
def _reasons() -> re.Pattern[str]:
    return whole_words((*entries("because"), *entries("of_which")))
