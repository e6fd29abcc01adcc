"""Replies (algebra): what a user's reply says to what was asked, by words alone (S5.4).

A reply counts only for what it names: a value on offer, one that the documents state elsewhere, a
page that exists, yes, or no. Every word and sign of it must be accounted for: by the name, by
closed lists of manners, or by a reason behind `because` that names nothing else. All else is not
understood, and changes nothing. A part that sets something aside names what is declined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    plain,
    stems,
    whole_words,
)
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
    content_words,
    held_phrases,
    held_values,
    is_joined,
    manners,
    mended,
    mention,
    own_value,
    phrases,
    sum_key,
    sums_spelled,
    tokens,
    told_values,
    unknown_words,
    words_of_others,
)
from raglab.extensions.clarification.reply_traits import has, shown_text
from raglab.extensions.clarification.statements import statements, value_key
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import GapReading, Reply, ReplyRequest
from raglab.words.tokeniser import split_words

__all__ = ["CONTENTS", "DOCUMENT", "LAST_PAGE", "NOT_UNDERSTOOD", "PAGE_SCOPE", "read_reply"]
NOT_UNDERSTOOD = Reply("not_understood")
LONGEST_YES = 8  # words of a reply that begins with yes and names nothing
# A sign that no plain reply has: a picture, a frown, a mark of code, a sign before a figure.
_SIGN = re.compile(r"[^\w\s.,;:!?'\"“”«»()/&+%€£$¥°#|*@…–—-]|[:;]['-]?[(/|](?!\w)|(?<![\w)])[-+]\d")
_TONE = re.compile("[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")  # of a picture, its form and colour
_RUN = re.compile(r"(?<!\d)\d++(?:[./:+&;,' -]#?\d+)+")
_THOUSANDS = re.compile(r"\d{1,3}(?:[ ,.']\d{3})+(?:[.,]\d{1,2})?")


def read_reply(reply: str, request: ReplyRequest, /) -> Reply:
    """What a reply names of what was asked.

    Source: rule S5.4.

    Example:
      >>> deposits = (GapReading("Pet deposit"), GapReading("Rent deposit"))
      >>> request = ReplyRequest(
      ...     "What is the deposit?", "field_type", "deposit", deposits, "Pet deposit"
      ... )
      >>> (
      ...     read_reply("the rent one", request),
      ...     read_reply("banana", request).kind,
      ...     read_reply("no", request).declined,
      ... )
      (Reply(kind='chosen', value='Rent deposit', quote='', declined=()), 'not_understood', ('Pet \
deposit',))
    """
    text = _spelled(reply, request)
    words = tokens(text)
    if (
        not words
        or not _is_stated(text, request)
        or expression("musing").fullmatch(text.strip(" .!…"))
    ):
        return NOT_UNDERSTOOD
    if _is_whole(text, "none_of"):
        return Reply("declined", declined=tuple(reading.value for reading in request.readings))
    is_odd = "?" in text or _SIGN.search(text) is not None
    if _says(words, "agreeing", "assent"):
        return (
            NOT_UNDERSTOOD if request.proposed is None or is_odd else Reply("yes", request.proposed)
        )
    if _says(words, "declining", "dissent"):
        proposed = _proposal(request)
        return (
            Reply("declined", declined=(proposed,)) if proposed and not is_odd else NOT_UNDERSTOOD
        )
    text = mended(_pages_spelled(text, request), request)
    held = _with_names_held(text, request)
    if (
        _SIGN.search(held.text)
        or expression("undecided").search(held.text)
        or _is_question(held, request)
    ):
        return NOT_UNDERSTOOD
    return _named(text, request)


def _spelled(reply: str, request: ReplyRequest) -> str:
    """A reply in plain letters, without courtesies.

    Pictures are yes or no, sums have signs, `no. 1` is an option.
    """
    text, names = (
        _TONE.sub("", plain(reply)),
        [name for reading in request.readings for name in phrases(reading)],
    )
    numbers = "|".join(str(place) for place, _ in enumerate(request.readings, 1))
    called = rf"(?<![\w'])(?:(?:{'|'.join(entries('option'))})[ #]*)+"
    number = re.compile(rf"{called}(?=(?:{numbers or '(?!)'})(?![\w%]|[.,]\d))")
    if not any(number.search(name) for name in names):  # `Dock No. 1` is a name
        text = number.sub(f"{entries('option')[0]} ", text)
    text = expression("agreeing_sign").sub(f" {entries('agreeing')[0]} ", text)
    # beside words it is no plain no
    if text and not expression("declining_sign").sub(" ", text).strip():
        text = entries("declining")[0]
    return expression("courtesy").sub(" ", sums_spelled(text)).strip(" .!\"'“”«»")


def _proposal(request: ReplyRequest) -> str:
    """What a bare no turns down: the proposal, or all that there is."""
    if request.proposed is not None:
        return request.proposed
    return request.readings[0].value if len(request.readings) == 1 else ""


def _is_stated(text: str, request: ReplyRequest) -> bool:
    """Whether each value and run of figures of a reply is in what was offered or the documents."""
    texts = (
        *(" ".join(reading) for reading in request.readings),
        *(chunk.full_text for chunk in request.documents),
    )
    known = {sum_key(value.text) for each in texts for value in values_in(each)}
    for run in _RUN.findall(text):  # `1/2`, `1 2`
        is_sum = _THOUSANDS.fullmatch(run) is not None and any(
            value_key(run) == re.sub(r"\D", "", key) for key in known
        )
        if not is_sum and not any(
            re.search(rf"(?<!\d){re.escape(run)}(?!\d)", plain(each)) for each in texts
        ):
            return False
    values = [value.text for value in values_in(text) if value.kind not in {"number", "time"}]
    return not request.documents or all(
        told_values(value) & known or any(sum_key(value) in value_key(each) for each in texts)
        for value in values
    )


def _is_question(held: _Held, request: ReplyRequest) -> bool:
    """Whether a reply asks something back, beyond the question itself, made whole."""
    if "?" in held.text:
        return True
    if re.match(expression("asking_back").pattern, bare(held.text)) is None:
        return False
    own = set(
        split_words(
            plain(
                " ".join(
                    (request.question, *(text for reading in request.readings for text in reading))
                )
            )
        )
    )
    own |= {
        *split_words(" ".join(entries("page"))),
        *(word for name in held.names for word in split_words(name)),
    }
    return bool({*split_words(held.restored(held.text))} - own - set(entries("articles")))


# --- words of agreement and refusal


def _is_whole(text: str, key: str) -> bool:
    """Whether a text is one of the entries, with nothing beside it but manners."""
    rest = expression(key).sub(" ", text)
    return rest != text and not (
        set(tokens(rest)) - set(entries("polite")) - set(entries("dissent"))
    )


def _says(words: Sequence[str], key: str, beside: str) -> bool:
    """Whether words begin with an entry and hold only entries and what may stand beside them."""
    text = " ".join(words)
    match = expression(key).match(text)
    if match is None:
        return False
    rest = set(tokens(expression(key).sub(" ", text)))
    return not rest - set(entries(beside))


def _opening(text: str) -> tuple[str, str]:
    """Whether a reply opens with yes or no, once or more, and what follows.

    With both it is neither.
    """
    for key, word in (("opening_no", "no"), ("agreeing", "yes")):
        opening = re.compile(rf"(?:{'|'.join(entries(key))})(?:[,;:.!]|\s[-–—])*\s+(?=\S)")
        rest = text
        # `not`, `wrong` or `right` may go on to say of what, so that it is no answer by itself.
        while (match := opening.match(rest)) and not (
            word == "no" and expression("going_on").match(rest, match.end())
        ):
            rest = rest[match.end() :]
        if rest != text:
            return word, rest
    return "", text


# --- parts of a reply


# `the pet one not the other`: a `not` behind a noun begins a part; behind a verb it is the verb's.
_BARE_NOT = re.compile(
    r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bam )(?<!\bdo )(?<!\bdoes )(?<!\bdid )(?<!\bbe )(?<!'s "
    r")(?<!'m )"
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
    for part in filter(None, (_without_and(piece) for piece in _PART.split(marked))):
        (denied if expression("setting_aside").search(part) else affirmed).append(
            held.restored(part)
        )
    return affirmed, denied


def _without_and(part: str) -> str:
    """A part without an `and` at its end or start: `the pet one and`, before a `not`."""
    words = part.strip(" ,.;:!?–—|").split()
    inner = words[words[:1] in (["and"], ["et"]) :]
    return " ".join(inner[: len(inner) - (inner[-1:] in (["and"], ["et"]))])


class _Held(NamedTuple):
    """A reply with marks for names of readings, so that a name's `not` or comma is not its own."""

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
    held = _with_names_held(text, request)
    # the `no` of a name opens nothing
    opening, rest = (held.restored(words) for words in _opening(held.text))
    affirmed, denied = _parts(rest, request)
    chosen = _chosen(affirmed, request)
    turned_down, mentioned, is_bare = _turned_down(denied, request)
    if chosen.kind == "not_understood" or chosen.value in mentioned or turned_down is None:
        return NOT_UNDERSTOOD
    if chosen.value:
        is_no = is_bare or (
            opening == "no" and not denied and _is_no_to(chosen.value, text, rest, request)
        )
        if is_no:  # `no pet deposit`, `the pet one, no`
            alone = opening == "" and len(affirmed) == len(denied) == 1
            is_clear = alone if is_bare else chosen.value == request.proposed and affirmed == [rest]
            return Reply("declined", declined=(chosen.value,)) if is_clear else NOT_UNDERSTOOD
        proposed = (
            (request.proposed,)
            if opening == "no" and request.proposed not in {None, chosen.value}
            else ()
        )
        declined = tuple(dict.fromkeys((*turned_down, *proposed)))
        return chosen._replace(kind="corrected", declined=declined) if declined else chosen
    if turned_down and not any(expression("agreeing").search(part) for part in affirmed):
        return Reply("declined", declined=turned_down)
    return NOT_UNDERSTOOD if denied or not opening else _bare_answer(opening, rest, request)


def _is_no_to(value: str, text: str, rest: str, request: ReplyRequest) -> bool:
    """Whether a no is to what is named behind it.

    To the proposal, or to a bare name (`no pet deposit`).
    """
    apart = re.search(r"[^\w\s']", text[: len(text) - len(rest)]) is not None
    return value == request.proposed or not (
        apart or bare(rest) != rest or request.kind == PAGE_SCOPE
    )


def _bare_answer(opening: str, rest: str, request: ReplyRequest) -> Reply:
    """A yes or a no with words beside it that name nothing.

    What it is to, where they say nothing at all.
    """
    fillers, names = (
        (manners() | chatter(), asked_stems(request))
        if opening == "yes"
        else (manners(), frozenset())
    )
    if (
        unknown_words(rest, fillers, names)
        or len(tokens(rest)) > LONGEST_YES
        or _names_label(rest, request)
    ):
        return NOT_UNDERSTOOD
    against = "agreeing" if opening == "no" else "declining"
    if expression(against).search(rest) or request.proposed is None:
        return NOT_UNDERSTOOD
    return (
        Reply("yes", request.proposed)
        if opening == "yes"
        else Reply("declined", declined=(request.proposed,))
    )


def _chosen(affirmed: Sequence[str], request: ReplyRequest) -> Reply:
    """The only value that the parts of a reply name.

    One without a value where they name none and say nothing.
    """
    by_part = [(part, mention(part, request)) for part in affirmed]
    values = {naming.named.value for _, naming in by_part if naming is not None}
    if len(values) > 1 and request.kind == PAGE_SCOPE:  # `page 1 is only the cover, try page 3`
        by_part = [
            (part, naming) for part, naming in by_part if not expression("only_cover").search(part)
        ]
        values = {naming.named.value for _, naming in by_part if naming is not None}
    if not values:
        return _stated_elsewhere(affirmed, request)
    if (
        len(values) > 1
        or "" in values
        or _are_two([part for part, naming in by_part if naming is not None], request)
    ):
        return NOT_UNDERSTOOD
    named = next(naming.named for _, naming in by_part if naming is not None)
    reading = next((option for option in request.readings if option.value == named.value), None)
    is_clear = all(_is_accounted(part, naming, reading, request) for part, naming in by_part)
    return (
        named
        if is_clear and any(naming is not None and not naming.rest for _, naming in by_part)
        else NOT_UNDERSTOOD
    )


def _are_two(parts: Sequence[str], request: ReplyRequest) -> bool:
    """Whether two parts name one reading by words of it that they do not share.

    `the lamp, the strap`.
    """
    names = {name for reading in request.readings for name in phrases(reading)}
    words = [
        frozenset(stems(bare(part))) - manners() - chatter() - asked_stems(request)
        for part in parts
    ]
    partial = [
        own for part, own in zip(parts, words, strict=True) if own and bare(part) not in names
    ]
    texts = [frozenset(stems(shown_text(reading, request))) for reading in request.readings]
    partial = [own for own in partial if any(own <= text for text in texts)]
    return any(not first & second for first, second in combinations(partial, 2))


def _is_accounted(
    part: str, named: Mention | None, reading: GapReading | None, request: ReplyRequest
) -> bool:
    """Whether all words of a part are name, manners, or a reason that tells of nothing else."""
    if named is not None:
        return not named.rest or (
            _is_reason(part) and not _tells_of_another(part, reading, request)
        )
    if _names_label(part, request) or expression("either").search(part):
        return False
    if _is_reason(part):
        return not _tells_of_another(part, reading, request)
    return not unknown_words(
        bare(part), (manners() | chatter()) - words_of_others(reading, request)
    )


def _is_reason(part: str) -> bool:
    """Whether a part says why: `because of my dog`."""
    return expression("because").match(part) is not None


def _names_label(part: str, request: ReplyRequest) -> bool:
    """Whether a part of a reply is called as something that the documents state or are headed."""
    own = (
        frozenset(stems(bare(expression("because").sub(" ", part))))
        - manners()
        - asked_stems(request)
    )
    if not own:
        return False
    names = {
        name
        for statement in statements(request.documents)
        for name in (statement.label, statement.heading)
    }
    return any(own <= frozenset(stems(name)) for name in names)


def _tells_of_another(text: str, reading: GapReading | None, request: ReplyRequest) -> bool:
    """Whether a text has a word, value or place of another reading than one.

    `because 2 is paid`.
    """
    rivals = [option for option in request.readings if option != reading]
    own = asked_stems(request) | (
        frozenset[str]() if reading is None else frozenset(stems(" ".join(reading)))
    )
    why = expression("because").sub(" ", text)
    apart = (
        {word for word in stems(why) if not has(own, word) and not word.isdigit()}
        - manners()
        - chatter()
    )
    if any(
        has(frozenset(stems(shown_text(rival, request))), word)
        for rival in rivals
        for word in apart
    ):
        return True
    values = told_values(text) - (frozenset() if reading is None else held_values(reading, request))
    if any(values & held_values(rival, request) for rival in rivals):
        return True
    subject = bare(why)
    placed = {
        by_place(word, request)
        for word in (subject, *tokens(text))
        if word == subject or word[:1].isdigit()
    }
    return any(rival in placed for rival in rivals)


def _stated_elsewhere(affirmed: Sequence[str], request: ReplyRequest) -> Reply:
    """The value that the documents state beside those on offer.

    One without a value where nothing was said.
    """
    if not affirmed:
        return Reply("declined")
    text = " ".join(affirmed)
    reply = None if is_joined(bare(text)) and len(affirmed) > 1 else own_value(text, request)
    return Reply("declined") if reply is None else reply


def _turned_down(
    denied: Sequence[str], request: ReplyRequest
) -> tuple[tuple[str, ...] | None, frozenset[str], bool]:
    """Values reply parts turn down in so many words, all they mention, and if one is a bare no.

    None in the place of the values where a word of such a part is not accounted for.
    """
    values, clear = {reading.value for reading in request.readings}, list[str]()
    mentioned, is_bare = set[str](), False
    for part in denied:
        text = " ".join(expression("setting_aside").sub(" ", part).split())
        named, words = (
            mention(text, request),
            content_words(expression("others").sub(" ", text), request),
        )
        if named is not None:
            mentioned.add(named.named.value)
            clear += [named.named.value] if not named.rest and named.named.value in values else []
        elif not words:
            is_bare |= expression("others").search(part) is None
        elif not _names_label(text, request) and not _is_thing(text, words, request):
            return None, frozenset(mentioned), is_bare
    return tuple(dict.fromkeys(clear)), frozenset(mentioned), is_bare


def _is_thing(text: str, words: frozenset[str], request: ReplyRequest) -> bool:
    """Whether a text is something with an article that the documents speak of: `not the lamp`."""
    known = frozenset(stem for chunk in request.documents for stem in stems(chunk.full_text))
    return words <= known and expression("determiners").match(text) is not None
