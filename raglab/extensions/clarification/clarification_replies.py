"""Replies (shore): what the user says to a question of the loop, what it teaches, and the request completed (S5.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.audit.default_table import RowKey
from raglab.canonical import digest
from raglab.default_learner import (
    OTHER,
)
from raglab.extensions.clarification import clarification_reading as documents
from raglab.extensions.clarification.clarification_reading import (
    domain_checks,
    field_check,
    read_named,
    read_quoted,
)
from raglab.extensions.clarification.clarification_requests import (
    LAST_PAGE,
    PAGE_SCOPE,
    GapClarifier,
    PinnedDocuments,
    ReplyMeaning,
    chunks_of_documents,
    interpret_reply,
    vain_warning,
    value_phrase,
)
from raglab.extensions.clarification.fields import Extraction
from raglab.extensions.clarification.missing_fields import failures
from raglab.extensions.clarification.narrowed_questions import NarrowedRequest, page_kind_value, words_request
from raglab.extensions.clarification.question_vocabulary import Failure, first_entry, plain_terms, topic_stems
from raglab.extensions.clarification.reply_words import is_agreement, reply_topic, size_meant
from raglab.extensions.clarification.stated_values import heading_of, word_stems
from raglab.extensions.clarification.task_answers import TASKS
from raglab.live.logged_requests import audit_log, log_decision
from raglab.live.model_failures import answer_or_refuse
from raglab.live.pipeline import fields_response
from raglab.live.requests import Request, language_of
from raglab.live.response import Response, ResponseRecord
from raglab.live.system import normalise_question
from raglab.packs import Pack
from raglab.policy import check_pack
from raglab.store.log_tables import REPLIES, SETTLEMENTS, request_row
from raglab.text import split_words

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.live.system import Lab
from raglab.extensions.clarification.clarification import (
    KIND,
    Turn,
    Vague,
    extend_response,
    finish_request,
    option_values,
    vague,
)

LAST = ("toc", "document")  # scopes that are tried where the user's own finds nothing


class Open(NamedTuple):
    """What a reply is about.

    proposed: what a yes agrees to. candidates: what was offered. again: whether it was answered already, by a default.
    """

    request: Request
    kind: str
    key: RowKey
    conditions: Mapping[str, str]
    proposed: str | None
    candidates: tuple[str, ...]
    tried: tuple[str, ...]
    again: bool


def answer_reply(
    request_id: str, answer: str, system: Lab, clarifier: GapClarifier, *, question: str | None, now: datetime
) -> Response:
    """Response to a request with the user's reply; see `raglab.live.ask.reply`.

    The request keeps its id: the log has the reply, the signals and a second decision under it. What is learned comes
    before what is answered, and a signal counts once, so that a reply that broke off may be given again.
    """
    log = audit_log(system)
    if not isinstance(answer, str):
        msg = f"a reply must be a text, got {type(answer).__name__}; pass yes, no or a value."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    # A default that silence settled in the meantime takes no correction any more.
    log.settle(now=now)
    one = _open_request(request_id, log, system, question, now)
    # A bandit gave the request its reward when a default answered it; the corrected answer is another round.
    answered_as = f"{request_id}~reply" if one.again else request_id
    turn = Turn(request=one.request, system=system, log=log, clarifier=clarifier, answered_as=answered_as)
    complete = _choose_option if one.kind == KIND else _answer_reply
    response = answer_or_refuse(one.request, system, partial(complete, one, answer, turn))
    if response["error"] is not None:
        return response  # the reply is not in the log, so that it may be given again
    log.replied(request_id, answer, now=now)
    log_decision(log, request_id, response, now)
    return response


def _open_request(request_id: str, log: AuditLog, system: Lab, question: str | None, now: datetime) -> Open:
    pending, filled = log.pending(request_id), log.application(request_id)
    with log.log.reading() as entries:
        asked = request_row(entries, request_id)
        had = entries.one(REPLIES, request_id=request_id)
        silent = entries.one(SETTLEMENTS, request_id=request_id)
    if had is not None:
        msg = f"a request takes one reply, and {request_id!r} had {had['reply']!r}; ask the question again."
        raise ValueError(msg)
    if pending is None and filled is None:
        msg = f"a reply must be to a request that was asked about or filled in, got {request_id!r}; ask it anew."
        raise ValueError(msg)
    if pending is None and silent is not None:
        rule = f"a default is corrected before the next request and within 24 hours, and {request_id!r} was settled"
        msg = f"{rule} at {silent['at'][:19]} ({silent['outcome']}); ask the question again."
        raise ValueError(msg)
    here = system.policy.policy_id
    if asked["policy_id"] != here:
        msg = f"a reply must go to the policy_id that asked, {asked['policy_id']}, got {here}; open that policy."
        raise ValueError(msg)
    named = () if pending is None or pending.kind != documents.KIND else pending.clarification.candidate_values
    system.check_documents(asked["fingerprint"], asked["documents"] or named)
    remedy = "open that pack, or ask the question again"
    check_pack(asked["models"].get("pack"), system.pack.digest, f"the request {request_id!r}", remedy)
    text = _question_text(asked, question)
    request = Request(
        id=request_id,
        text=text,
        documents=tuple(asked["documents"]),
        selected=None,
        session=asked["session"],
        now=now,
        resumed=True,  # a reply that broke off is given again
        language=language_of(text, system.pack),
    )
    if pending is not None:
        asking, about = pending.clarification, (pending.kind, pending.key, pending.conditions)
        offered = tuple(asking.candidate_values)
        return Open(request, *about, asking.proposed_default, offered, pending.tried, again=False)
    if filled is None:  # cannot be: one of the two is there
        raise AssertionError
    about = (filled.kind, filled.key, filled.conditions)
    return Open(request, *about, filled.value, (filled.value,), (), again=True)


def _question_text(asked: Mapping[str, Any], question: str | None) -> str:
    """Text of the question: the log's, or the caller's where the log keeps none."""
    given = None if question is None else normalise_question(question)
    if asked["question"] is None and given is None:
        msg = "the audit log keeps no text of questions; give the question again, with question=."
        raise ValueError(msg)
    same = asked["question_hash"] in ("", None) or given is None or digest(given) == asked["question_hash"]
    if not same:
        msg = f"question must be the one that was asked, got {question!r:.80}; give it as it was, or leave it out."
        raise ValueError(msg)
    return str(asked["question"] if given is None else given)


def _answer_reply(one: Open, answer: str, turn: Turn) -> Response:
    """Learn what the reply means, then answer the request filled in by it."""
    request, clarifier = one.request, turn.clarifier
    reading = clarifier.read(request)
    if reading is None:
        msg = "a reply needs the corpus's vocabulary; open the lab with clarify=True."
        raise ValueError(msg)
    parsed, least = reading.parsed, clarifier.costs.min_field_confidence
    # Which documents were meant is asked where none was named: the question leads to the same candidates again.
    which = documents.which(parsed, clarifier, least) if one.kind == documents.KIND else None
    offered = one.candidates if one.kind == documents.KIND else parsed.documents or request.documents
    pinned = clarifier.pinned(offered if which is None else which.candidates)
    learned = documents.learned_values(one.kind, pinned.chunks)
    if one.again and which is not None:  # a default that was applied is known by its role
        files = {role: name for name, role in learned.items()}
        one = one._replace(proposed=files.get(one.proposed or "", one.proposed), candidates=which.candidates)
    # The log keeps what was offered; what else the question could have meant is read from it again.
    alike = [
        gap
        for gap in failures(parsed, request.text, pinned.chunks, least=least, pack=turn.pack)
        if gap.kind == one.kind
    ]
    offered = tuple(dict.fromkeys((*one.candidates, *(alike[0].candidates if alike else ()))))
    failure = Failure(
        kind=one.kind,
        target_field=one.key.target_field,
        candidates=offered,
        question_to_user=alike[0].question_to_user if alike else "",
        reason="the user was asked",
    )
    meaning = interpret_reply(_numbered_value(answer, one), offered, one.proposed, one.kind, turn.pack)
    waiting = vague(turn, parsed, failure, pinned, domain_checks(request.text, turn.system, request.language))
    if meaning.value is not None and not meaning.learned:
        meaning = _by_statement(waiting, meaning)
        _check_words(waiting, one, meaning, answer)
    # A signal counts once, so learning first loses nothing if the answer breaks off and the reply is given again.
    _learn(one, _as_learned(meaning, failure, pinned, turn.pack), turn.log, learned)
    if meaning.value is not None and not meaning.learned:
        return _in_words(waiting, meaning.value)
    return _complete_request(waiting, one, meaning.value, answer)


def _check_words(waiting: Vague, one: Open, meaning: ReplyMeaning, answer: str) -> None:
    """Stop a reply to a question about pages that names none and has no word of the documents: `perhaps`."""
    if meaning.learned or one.kind != PAGE_SCOPE or waiting.failure.target_field not in waiting.pack.readings:
        return
    said = reply_topic(answer)
    known = frozenset[str]().union(*(word_stems(chunk.text) for chunk in waiting.pinned.chunks))
    if not (said.meant | said.part) & known:
        offered = ", ".join(one.candidates)
        msg = f"a reply must be yes, no, a page's number or one of {offered}, got {answer!r}; say which."
        raise ValueError(msg)


def _by_statement(waiting: Vague, meaning: ReplyMeaning) -> ReplyMeaning:
    """The meaning of words that no candidate is called by: the only one whose statement they tell.

    By its size, `the smaller one`; by its words, where it has all of them; else it is the one that question and reply
    mean before all others that the documents state.
    """
    words = meaning.value or ""
    said = set(topic_stems(words, filler=waiting.pack.filler))
    found = {one: read.found for one in waiting.failure.candidates if (read := waiting.read(one)).found is not None}
    sized = _by_size(plain_terms(words), {one: each.value or "" for one, each in found.items() if each is not None})
    if sized is not None:
        return ReplyMeaning(sized, learned=True)
    met = [one for one, each in found.items() if each is not None and said and said <= set(topic_stems(each.sentence))]
    if len(met) != 1 and len(found) > 1:
        told = _quotation(waiting, words)
        best = "" if told is None else told.quoted[0][1]
        met = [one for one, each in found.items() if each is not None and _states(best, each)]
    return ReplyMeaning(met[0], learned=True) if len(met) == 1 else meaning


def _states(line: str, found: Extraction) -> bool:
    """Whether a line that is quoted is the one that a value was read from."""
    return bool(found.value) and set(split_words(found.sentence)) <= set(split_words(line))


_NUMBER = re.compile(r"\d[\d,.\u00a0\u202f]*")


def _by_size(said: str, values: Mapping[str, str]) -> str | None:
    """The candidate whose value is the largest or smallest, where a reply in plain letters means one of these."""
    size = size_meant(said)
    found = {one: _NUMBER.search(value.replace(" ", "")) for one, value in values.items()} if size else {}
    numbers = {one: float(match[0].replace(",", "").rstrip(".")) for one, match in found.items() if match}
    if len(numbers) < len(values) or len(set(numbers.values())) < 2:
        return None
    return (min if size == "small" else max)(numbers, key=lambda one: numbers[one])


def _as_learned(meaning: ReplyMeaning, failure: Failure, pinned: PinnedDocuments, pack: Pack) -> ReplyMeaning:
    """What a reply teaches: of a page of this document the kind of section that it holds, if it holds one kind.

    A page's number says nothing of where another document has a part of its text.
    """
    if (
        meaning.value is None
        or not meaning.learned
        or failure.kind != PAGE_SCOPE
        or failure.target_field in pack.readings
    ):
        return meaning
    learned = page_kind_value(failure, meaning.value, pinned.chunks, pack)
    return meaning._replace(value=learned, learned=not learned.isdecimal())


def _numbered_value(answer: str, one: Open) -> str:
    """The value of an option that is named by its number; where pages are meant a number is a page."""
    number = answer.strip()
    named = not one.again and one.kind != PAGE_SCOPE and number.isascii() and number.isdecimal()
    return one.candidates[int(number) - 1] if named and 0 < int(number) <= len(one.candidates) else answer


def _learn(one: Open, meaning: ReplyMeaning, log: AuditLog, learned: Mapping[str, str] = MappingProxyType({})) -> None:
    """Signals of a reply (rule S5.4).

    Args:
      learned: what values are learned under, where not as they are.
    """
    about: dict[str, Any] = {"conditions": one.conditions, "now": one.request.now}
    said = meaning.value if meaning.learned or meaning.value is None else OTHER
    value, proposed = (None if each is None else learned.get(each, each) for each in (said, one.proposed))
    if value is not None and (value == proposed or proposed is None):
        log.signal(one.request.id, one.key, value, "explicit_yes", **about)
    elif proposed is not None:
        log.signal(one.request.id, one.key, proposed, "explicit_no", value, **about)


def _complete_request(waiting: Vague, one: Open, value: str | None, said: str) -> Response:
    """Answer under the user's value; where that finds nothing, what is left is tried, and named."""
    turn, name, paged = waiting.turn, waiting.failure.target_field, one.kind == PAGE_SCOPE
    language = turn.request.language
    refused = () if value is not None or one.proposed is None else (one.proposed,)
    left = [other for other in waiting.failure.candidates if other not in {value, *refused, *one.tried}]
    # A bare no settles the field only where one value is left; pages may be read through one after the other.
    if value is None and not paged and len(left) != 1:
        declined = value_phrase(one.proposed or "", language, turn.pack)
        warning = turn.say("nothing was filled in for {field}: {value} was declined", field=name, value=declined)
        return extend_response(turn.answer(), {}, [warning])
    quoted = _quoted(waiting, said, value) if value is not None and _says_more(waiting, one, value, said) else None
    # After the user's own page only the wide scopes are worth reading; without one, all that was not declined.
    order = left if value is None else [value, *(_scopes(left) if paged else ())]
    tried: list[str] = []
    for at in () if quoted is not None else order:
        reading = waiting.read(at)
        if not reading.failed:
            return finish_request(waiting, reading, {}, _notes(waiting, tried, refused, at))
        tried.append(at)
        # Only the user's own value is counted against: the others were never said to be right.
        if at == value:
            about: dict[str, Any] = {"conditions": one.conditions, "now": waiting.request.now}
            turn.log.signal(waiting.request.id, one.key, waiting.learned(at), "failure", **about)
            quoted = None if _is_read(waiting) else _quoted(waiting, said, value)
            if quoted is not None:
                break
    if quoted is None and value is not None and _is_read(waiting):
        quoted = _quoted(waiting, said, value)
    if quoted is None and paged:
        return _not_on_any_page(waiting, vain_warning(name, [*one.tried, *tried], turn.pack, language=language))
    told = [] if quoted is not None else [vain_warning(name, tried, turn.pack, one.kind, language=language)]
    return extend_response(turn.answer() if quoted is None else quoted, {}, told)


def _notes(waiting: Vague, tried: Sequence[str], refused: Sequence[str], taken: str) -> list[str]:
    """What was read in vain before a value that was taken, and what the user declined."""
    turn, language = waiting.turn, waiting.turn.request.language
    field, kind = waiting.failure.target_field, waiting.failure.kind
    notes = [vain_warning(field, tried, turn.pack, kind, language=language)] if tried else []
    if refused:
        declined, said = (value_phrase(value, language, turn.pack) for value in (refused[0], taken))
        notes.insert(0, turn.say("{declined} was declined, {taken} taken", declined=declined, taken=said))
    return notes


def _is_read(waiting: Vague) -> bool:
    """Whether a rule of the pack reads the field on pages: all of them are read before anything is quoted."""
    return waiting.failure.kind == PAGE_SCOPE and waiting.failure.target_field in waiting.pack.readings


def _says_more(waiting: Vague, one: Open, value: str, said: str) -> bool:
    """Whether a reply says more than the value that it names.

    Of a page which of its statements is meant, `the one for summer, page 4`; of a heading which of its lines; of a part
    of a document what is wanted of it, where that is no task or no heading tells the part.
    """
    if one.kind == PAGE_SCOPE:
        paged = value.isdecimal() or value == LAST_PAGE
        return (paged and bool(reply_topic(said).meant)) or value in map(heading_of, waiting.pinned.chunks)
    if one.kind != "intent":
        return False
    plain = plain_terms(said).strip(" .!")
    named = is_agreement(plain) or value in one.candidates or first_entry(waiting.pack.intents, plain) in TASKS
    return not named or not any("#" in page for page in waiting.read(value).request.documents)


def _quoted(waiting: Vague, said: str, value: str | None = None) -> Response | None:
    """Answer by the statements of the named documents that question and reply mean; None where a gate refuses it."""
    narrowed = _quotation(waiting, said, value)
    response = None if narrowed is None else waiting.turn.answer_narrowed(narrowed)
    return response if response is not None and response["status"] == "ok" else None


def _quotation(waiting: Vague, said: str, value: str | None = None) -> NarrowedRequest | None:
    """The statements of the named documents that question and reply mean.

    Args:
      value: that the reply accepted, which a yes does not name.
    """
    kind, chunks, field = waiting.failure.kind, waiting.pinned.chunks, waiting.parsed.said("target_field") or ""
    if value is not None:
        phrase = value_phrase(value, waiting.turn.request.language, waiting.pack, kind)
        said = phrase if is_agreement(plain_terms(said).strip(" .!")) else f"{phrase}, {said}"
    if kind == documents.KIND and value is not None:
        chunks = chunks_of_documents(chunks, (value,))
    told = kind == "intent" or (kind == PAGE_SCOPE and not field)
    if not chunks:
        return None
    text, clarifier = waiting.request.text, waiting.turn.clarifier
    return read_quoted(said, text, field, chunks, clarifier, part=told, heading=value or "")


def _not_on_any_page(waiting: Vague, reason: str) -> Response:
    """Refusal of a field that stands on none of the pages; retrieval is not asked, as it would read the same pages."""
    system = waiting.turn.system
    fields = {
        "status": "refuse",
        "answer": waiting.turn.say(system.policy.refusal_message),
        "refusal_reason": reason,
        "arm_reason": waiting.turn.say("the field was read for, no arm retrieved"),
    }
    checks = (*waiting.domain, field_check(reason, found=False))
    return fields_response(waiting.request, fields, system, ResponseRecord(checks=checks))


def _scopes(left: Sequence[str]) -> list[str]:
    return [value for value in LAST if value in left]


def _in_words(waiting: Vague, words: str) -> Response:
    """Answer to the question completed by the user's own words: a field that they name is read."""
    parsed, chunks, pack = waiting.parsed, waiting.pinned.chunks, waiting.pack
    told = {"field": waiting.failure.target_field, "words": repr(words)}
    more = [waiting.turn.say("{field}: {words} is none of the values on offer", **told)]
    reading = read_named(words, waiting.request.text, chunks, pack, waiting.turn.clarifier.reader)
    if reading is not None:
        return finish_request(waiting, reading, {}, more)
    quoted = _quoted(waiting, words)
    if quoted is not None:
        return extend_response(quoted, {}, more)
    narrowed = words_request(waiting.failure, words, waiting.request.text, parsed, chunks, pack=pack)
    return extend_response(waiting.turn.answer_narrowed(narrowed), {}, more)


def _choose_option(one: Open, answer: str, turn: Turn) -> Response:
    """A reply of options that were settled silently: they are shown, or the one that is named is taken."""
    options = turn.answer()
    values = option_values(options["options"], turn.clarifier.chunks)
    named = {str(number): value for value, number in values.items()}
    named |= {"; ".join(option["sources"]): named[str(option["id"])] for option in options["options"]}
    bare = answer.strip()
    meaning = (
        ReplyMeaning(named[bare], learned=True)
        if bare in named
        else interpret_reply(answer, list(values), one.proposed, one.kind, turn.pack)
    )
    if meaning.value is not None and meaning.value not in values:
        msg = f"a reply must be yes, no, or an option from 1 to {len(values)}, got {answer!r:.80}; say which."
        raise ValueError(msg)
    _learn(one, meaning, turn.log)
    return options if meaning.value is None else turn.answer(selected=values[meaning.value])
