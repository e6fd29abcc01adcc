"""A user's reply: it completes the request that was asked about, or corrects what was filled in by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.answering.parse import Failure, failures
from raglab.default_learner import OTHER
from raglab.lab import _asking_documents as documents
from raglab.lab import _asking_options as choices
from raglab.lab._asking_reading import domain_checks, field_check, made_of
from raglab.lab._asking_request import Clarifier, Request
from raglab.lab._asking_words import PAGE_SCOPE, Meant, meant, shown, told_tried
from raglab.lab._audited import hashed
from raglab.lab.asking import Vague, finished, vague
from raglab.lab.caches import normalised
from raglab.lab.response import Response, Seen
from raglab.store.requests import REPLIES, SETTLEMENTS, request_of

if TYPE_CHECKING:
    from raglab.lab.audit_log import AuditLog
    from raglab.lab.live import Lab

Chain = Callable[[Request, "Lab"], Response]
LAST = ("toc", "document")  # scopes that are tried where the user's own finds nothing


class Open(NamedTuple):
    """What a reply is about.

    proposed: what a yes agrees to. candidates: what was offered. again: whether it was answered already, by a default.
    """

    request: Request
    kind: str
    key: tuple[str, str, Mapping[str, str]]
    conditions: Mapping[str, str]
    proposed: str | None
    candidates: tuple[str, ...]
    tried: tuple[str, ...]
    again: bool


def replied(
    request_id: str, answer: str, system: Lab, chain: Chain, *, question: str | None, now: datetime
) -> Response:
    """Response to a request with the user's reply; see `raglab.lab.session.reply`.

    The request keeps its id: the log has the reply, the signals and a second decision under it. What is learned comes
    before what is answered, and a signal counts once, so that a reply that broke off may be given again.
    """
    log, clarifier = system.audit, system.clarifier
    if log is None or clarifier is None:
        msg = "a reply needs what asked, which is switched off; open the lab with clarify=True."
        raise ValueError(msg)
    if not isinstance(answer, str):
        msg = f"a reply must be a text, got {type(answer).__name__}; pass yes, no or a value."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    log.settle(now=now)
    one = _open(request_id, log, system, question, now)
    if one.kind == choices.KIND:
        said = _chosen(one, answer, log, system, chain)
    else:
        said = _answered(one, answer, log, clarifier, system, chain)
    log.replied(request_id, answer, now=now)
    log.decided(request_id, said, said.seen.checks, said.seen.ms, now=now)
    return said


def _open(request_id: str, log: AuditLog, system: Lab, question: str | None, now: datetime) -> Open:
    pending, filled = log.pending(request_id), log.application(request_id)
    with log.log.reading() as entries:
        asked = request_of(entries, request_id)
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
    for name, here in (("policy_id", system.policy.policy_id), ("fingerprint", system.fingerprint)):
        if asked[name] != here:
            msg = f"a reply must go to the {name} that asked, {asked[name]}, got {here}; open that policy and index."
            raise ValueError(msg)
    text = _text(asked, question)
    request = Request(request_id, text, tuple(asked["documents"]), None, asked["session"], now)
    if pending is not None:
        said, about = pending.clarification, (pending.kind, pending.key, pending.conditions)
        return Open(request, *about, said.proposed_default, tuple(said.candidate_values), pending.tried, again=False)
    if filled is None:  # cannot be: one of the two is there
        raise AssertionError
    about = (filled.kind, filled.key, filled.conditions)
    return Open(request, *about, filled.value, (filled.value,), (), again=True)


def _text(asked: Mapping[str, Any], question: str | None) -> str:
    """Text of the question: the log's, or the caller's where the log keeps none."""
    given = None if question is None else normalised(question)
    if asked["question"] is None and given is None:
        msg = "the audit log keeps no text of questions; give the question again, with question=."
        raise ValueError(msg)
    same = asked["question_hash"] in ("", None) or given is None or hashed(given) == asked["question_hash"]
    if not same:
        msg = f"question must be the one that was asked, got {question!r:.80}; give it as it was, or leave it out."
        raise ValueError(msg)
    return str(asked["question"] if given is None else given)


def _answered(one: Open, answer: str, log: AuditLog, clarifier: Clarifier, system: Lab, chain: Chain) -> Response:
    read_by = clarifier.read(one.request)
    if read_by is None:
        msg = "a reply needs the corpus's vocabulary; open the lab with clarify=True."
        raise ValueError(msg)
    parsed = read_by.parsed
    named = one.candidates if one.kind == documents.KIND else parsed.documents or one.request.documents
    pinned = clarifier.pinned(named)
    least = clarifier.costs.min_field_confidence
    known = [one_ for one_ in failures(parsed, one.request.text, pinned.chunks, least=least) if one_.kind == one.kind]
    offered = tuple(dict.fromkeys((*one.candidates, *(known[0].candidates if known else ()))))
    failure = Failure(one.kind, one.key[0], offered, known[0].question_to_user if known else "", "the user was asked")
    told = meant(_numbered(answer, one), offered, one.proposed, one.kind)
    _learn(one, told, log)
    waiting = vague(one.request, parsed, failure, pinned, domain_checks(one.request.text, system), system)
    apart = _apart(chain, one)
    if told.value is not None and not told.learned:
        return _in_words(waiting, told.value, system, apart)
    return _completed(waiting, one, told.value, system, apart)


def _numbered(answer: str, one: Open) -> str:
    """The value of an option that is named by its number; where pages are meant a number is a page."""
    number = answer.strip()
    named = not one.again and one.kind != PAGE_SCOPE and number.isascii() and number.isdecimal()
    return one.candidates[int(number) - 1] if named and 0 < int(number) <= len(one.candidates) else answer


def _learn(one: Open, told: Meant, log: AuditLog) -> None:
    """Signals of a reply (rule S5.4)."""
    about: dict[str, Any] = {"conditions": one.conditions, "now": one.request.now}
    value = told.value if told.learned or told.value is None else OTHER
    if value is not None and (value == one.proposed or one.proposed is None):
        log.signal(one.request.id, one.key, value, "explicit_yes", **about)
    elif one.proposed is not None:
        log.signal(one.request.id, one.key, one.proposed, "explicit_no", value, **about)


def _completed(waiting: Vague, one: Open, value: str | None, system: Lab, chain: Chain) -> Response:
    """Answer under the user's value; where that finds nothing, what is left is tried, and named."""
    log, name = system.audit, waiting.failure.target_field
    refused = () if value is not None or one.proposed is None else (one.proposed,)
    left = [other for other in waiting.failure.candidates if other not in {value, *refused, *one.tried}]
    if value is None and one.kind != PAGE_SCOPE and len(left) != 1:
        warning = f"nothing was filled in for {name}: {shown(one.proposed or '', 'en')} was declined"
        return _plain(waiting, chain(waiting.request, system), warning)
    order = left if value is None else [value, *(_scopes(left) if one.kind == PAGE_SCOPE else ())]
    tried: list[str] = []
    for at in order:
        reading = waiting.read(at)
        if not reading.failed:
            warnings = [told_tried(name, tried, one.kind)] if tried else []
            if refused:
                warnings = [f"{shown(refused[0], 'en')} was declined, {shown(at, 'en')} taken", *warnings]
            return finished(waiting, reading, system, chain, {}, warnings)
        tried.append(at)
        if at == value and log is not None:
            about: dict[str, Any] = {"conditions": one.conditions, "now": waiting.request.now}
            log.signal(waiting.request.id, one.key, at, "failure", **about)
    if one.kind != PAGE_SCOPE:
        return _plain(waiting, chain(waiting.request, system), told_tried(name, tried, one.kind))
    reason = told_tried(name, [*one.tried, *tried])
    fields = {
        "status": "refuse",
        "answer": system.policy.refusal_message,
        "refusal_reason": reason,
        "arm_reason": "the field was read for, no arm retrieved",
    }
    checks = (*waiting.domain, field_check(reason, found=False))
    return made_of(waiting.request, fields, system, Seen({}, False, False, checks=checks))


def _scopes(left: Sequence[str]) -> list[str]:
    return [value for value in LAST if value in left]


def _in_words(waiting: Vague, words: str, system: Lab, chain: Chain) -> Response:
    """Answer to the question with the user's own words behind it."""
    said = chain(waiting.request._replace(text=f"{waiting.request.text} ({words})"), system)
    return _plain(waiting, said, f"{waiting.failure.target_field}: {words!r} is none of the values on offer")


def _plain(waiting: Vague, said: Response, warning: str) -> Response:
    more = {"request_id": waiting.request.id, "warnings": [*said["warnings"], warning]}
    return Response({**said, **more}, said.seen)


def _chosen(one: Open, answer: str, log: AuditLog, system: Lab, chain: Chain) -> Response:
    """A reply of options that were settled silently: they are shown, or the one that is named is taken."""
    shown_again = _apart(chain, one)(one.request, system)
    values = {choices.value_of(option): option["id"] for option in shown_again["options"]}
    named = {str(number): value for value, number in values.items()}
    bare = answer.strip()
    told = Meant(named[bare], learned=True) if bare in named else meant(answer, list(values), one.proposed, one.kind)
    if told.value is not None and told.value not in values:
        msg = f"a reply must be yes, no, or an option from 1 to {len(values)}, got {answer!r:.80}; say which."
        raise ValueError(msg)
    _learn(one, told, log)
    if told.value is None:
        return shown_again
    picked = one.request._replace(selected=values[told.value])
    return _apart(chain, one)(picked, system)


def _apart(chain: Chain, one: Open) -> Chain:
    """The chain under an id that no bandit has answered yet; the response keeps the request's own."""

    def again(request: Request, system: Lab) -> Response:
        said = chain(request._replace(id=f"{request.id}~reply") if one.again else request, system)
        return Response({**said, "request_id": one.request.id}, said.seen)

    return again
