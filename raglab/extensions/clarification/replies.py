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
_ODD_SIGN = re.compile(
    r"[^\w\s.,;:!'\"“”«»()/&+%€£$¥°#|*@…–—-]|[:;]['-]?[(/|](?!\w)|(?<![\w)])[-+]\d"
)
_PICTURE_TONE = re.compile(
    "[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]"
)  # of a picture, its form and colour
# `the pet one not the other`: a `not` behind a noun begins a part; behind a verb it is the verb's.
_BARE_NOT = re.compile(
    r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bam )(?<!\bdo )(?<!\bdoes )(?<!\bdid )(?<!\bbe )(?<!'s "
    r")(?<!'m )(?<!est )(?<!sont )\b(?=(?:not|pas) )"
)
_PART_BREAK = re.compile(r"[,.;:!–—|](?=\s|$)|\s-\s|\||[()]|(?<!\d)[/+&\n](?!\d)")
MAX_READ_REPLY = 1_000  # characters that are read; a longer reply is not understood
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
    button_text = plain(reply)
    pressed_values = [
        reading.value
        for reading in request.readings
        if button_text and button_text in {plain(reading.value), plain(reading.text)}
    ]
    if len(pressed_values) == 1:
        return Reply("chosen", pressed_values[0])
    if len(reply) > MAX_READ_REPLY:
        return NOT_UNDERSTOOD
    spelled_reply, choice = choice_of(mended(_spelled(reply, request), request), request)
    sure_text = " ".join(expression("doubt").sub(" ", spelled_reply).split())
    if (
        not re.search(r"\w", sure_text)
        or _ODD_SIGN.search(spelled_reply)
        or expression("undecided").search(sure_text)
        or expression("musing").fullmatch(spelled_reply)
    ):
        return NOT_UNDERSTOOD
    read_result = _read(sure_text.strip(" ,.!…"), choice)
    if sure_text == spelled_reply:
        return read_result
    return read_result._replace(doubted=True) if read_result.value else NOT_UNDERSTOOD


def _spelled(reply: str, request: ReplyRequest) -> str:
    """A reply in plain letters, without courtesies.

    Pictures are yes or no, sums have signs, `no. 1` is an option, pages are written alike.
    """
    spelled_text = _PICTURE_TONE.sub("", plain(reply))
    reading_names = [plain(f"{reading.value} {reading.text}") for reading in request.readings]
    option_numbers = (
        "|".join(str(option_number) for option_number, _ in enumerate(reading_names, 1)) or "(?!)"
    )
    option_words = rf"(?<![\w'])(?:(?:{'|'.join(entries('option'))})[ #]*)+"
    number_pattern = re.compile(rf"{option_words}(?=(?:{option_numbers})(?![\w%]|[.,]\d))")
    if not any(
        number_pattern.search(reading_name) for reading_name in reading_names
    ):  # `Dock No. 1` is a name
        spelled_text = number_pattern.sub(f"{entries('option')[0]} ", spelled_text)
    spelled_text = expression("agreeing_sign").sub(f" {entries('agreeing')[0]} ", spelled_text)
    # beside words it is no plain no
    if spelled_text and not expression("declining_sign").sub(" ", spelled_text).strip():
        spelled_text = entries("declining")[0]
    spelled_text = expression("courtesy").sub(" ", sums_spelled(spelled_text))
    return " ".join(spelled_text.split()).strip(" .!\"'“”«»")


def _is_whole(text: str, list_name: str, *allowed_lists: str) -> bool:
    """Whether a text is entries of a list, with nothing beside them but words of others."""
    remaining_text = expression(list_name).sub(" ", text)
    words = {*re.findall(r"[\w'-]+", remaining_text)}
    return remaining_text != text and not words.difference(*map(entries, allowed_lists))


def _whole(reply_text: str, choice: ReplyOffers) -> Reply | None:
    """What a reply says that is nothing but yes, no, none of them, or a question back."""
    request = choice.request
    plain_words = re.sub(r"[^\w' -]+ *", " ", reply_text)
    reading_values = [reading.value for reading in request.readings]
    if _is_whole(reply_text, "none_of", "polite", "dissent"):
        return _declined(*reading_values)
    if expression("agreeing").match(plain_words) and _is_whole(plain_words, "agreeing", "assent"):
        return NOT_UNDERSTOOD if request.proposed is None else Reply("yes", request.proposed)
    if expression("declining").match(plain_words) and _is_whole(
        plain_words, "declining", "dissent"
    ):
        return _declined(
            request.proposed or (reading_values[0] if len(reading_values) == 1 else None)
        )
    return NOT_UNDERSTOOD if re.match(expression("asking_back").pattern, bare(reply_text)) else None


def _declined(*offered_values: str | None) -> Reply:
    declined_values = tuple(
        offered_value for offered_value in dict.fromkeys(offered_values) if offered_value
    )
    return Reply("declined", declined=declined_values) if declined_values else NOT_UNDERSTOOD


def _read(text: str, choice: ReplyOffers) -> Reply:
    """What a reply without a doubt says: as a whole, or what its parts name and set aside."""
    if (whole_reply := _whole(text, choice)) is not None:
        return whole_reply
    opening, remaining_text = _opening(text)
    reply_parts = _parts(remaining_text)
    remainder_pattern = expression("others")
    denied_parts = [
        reply_part for reply_part in reply_parts if expression("setting_aside").search(reply_part)
    ]
    stated_parts = [reply_part for reply_part in reply_parts if reply_part not in denied_parts]
    reason_parts = [
        reply_part for reply_part in stated_parts if expression("because").match(reply_part)
    ]
    affirmed_parts = [reply_part for reply_part in stated_parts if reply_part not in reason_parts]
    bare_parts = [expression("setting_aside").sub(" ", reply_part) for reply_part in denied_parts]
    denied_replies = [
        named(" ".join(remainder_pattern.sub(" ", reply_part).split()), choice)
        for reply_part in bare_parts
    ]
    affirmed_replies = [
        part_reply
        for reply_part in affirmed_parts
        if (part_reply := named(reply_part, choice)) is not None
    ]
    chosen_reply = next(iter(affirmed_replies), None)
    if (
        NOT_UNDERSTOOD in (*affirmed_replies, *denied_replies)
        or len({part_reply.value for part_reply in affirmed_replies}) > 1
        or any(tells_of_another(reason, chosen_reply, choice) for reason in reason_parts)
    ):
        return NOT_UNDERSTOOD
    denied_values = {part_reply.value for part_reply in denied_replies if part_reply is not None}
    declined_values = [
        part_reply.value
        for part_reply in choice.request.readings
        if part_reply.value in denied_values
    ]
    if chosen_reply is None:
        return _unnamed(
            opening, "" if denied_parts or reason_parts else remaining_text, declined_values, choice
        )
    proposed = choice.request.proposed
    # a no that names nothing: `the pet one, no`
    denied_pairs = zip(denied_replies, bare_parts, strict=True)
    is_bare = any(
        part_reply is None and not remainder_pattern.search(reply_part)
        for part_reply, reply_part in denied_pairs
    )
    if is_bare or (opening == "no" and not denied_parts and chosen_reply.value == proposed):
        is_clear = not is_bare or (len(denied_parts) == 1 and not opening)
        return (
            _declined(chosen_reply.value)
            if is_clear and stated_parts == affirmed_parts[:1]
            else NOT_UNDERSTOOD
        )
    if opening == "no":
        sign_match = re.search(r"[^\w\s']", text[: len(text) - len(remaining_text)])
        is_paged = choice.request.kind == PAGE_SCOPE
        if not (
            denied_parts or sign_match or is_paged or bare(remaining_text) != remaining_text
        ):  # `no pet deposit`
            return NOT_UNDERSTOOD
        declined_values += [proposed] if proposed not in {None, chosen_reply.value} else []
    declined = tuple(dict.fromkeys(declined_values))
    return chosen_reply._replace(kind="corrected", declined=declined) if declined else chosen_reply


def _unnamed(
    opening: str, remaining_text: str, declined_values: Sequence[str], choice: ReplyOffers
) -> Reply:
    """What a reply says that names nothing to be taken: what it turns down, else yes or no."""
    proposed = choice.request.proposed
    if declined_values and opening != "yes":
        return _declined(*declined_values)
    if not remaining_text or not opening or proposed is None:
        return NOT_UNDERSTOOD
    if opening == "yes":
        return Reply("yes", proposed)
    return NOT_UNDERSTOOD if expression("agreeing").search(remaining_text) else _declined(proposed)


def _opening(text: str) -> tuple[str, str]:
    """Whether a reply opens with yes or no, once or more, and what follows."""
    # `not of the pets` says of what
    excluded_words = {"no": expression("going_on").pattern, "yes": "(?!)"}
    for name, opening_word in (("opening_no", "no"), ("agreeing", "yes")):
        opening_pattern = rf"(?:{'|'.join(entries(name))})(?:[,;:.!]|\s[-–—])*\s+(?=\S)"
        if opening_match := re.match(
            rf"(?:{opening_pattern}(?!{excluded_words[opening_word]}))+", text
        ):
            return opening_word, text[opening_match.end() :]
    return "", text


def _parts(text: str) -> list[str]:
    """Parts of a reply, so that each says what is meant, sets something aside, or says why."""
    marked_text = whole_words(entries("instead_of")).sub(" | not ", text)
    marked_text = _BARE_NOT.sub("| ", marked_text)
    marked_text = whole_words(entries("turning")).sub(" | ", marked_text)
    marked_text = whole_words(entries("because")).sub(r" | \g<0>", marked_text)
    marked_parts = (reply_part.strip(" ,.;:!–—|") for reply_part in _PART_BREAK.split(marked_text))
    # `the pet one and`, before a `not`
    return [
        reply_part
        for reply_part in (_EDGE_AND.sub("", marked_part).strip() for marked_part in marked_parts)
        if reply_part
    ]
