"""The loop, options, replies.

A request goes through the chain of gates as ever. Before that, where the system clarifies, what the question leaves
out is filled in: by the learned default where its gate says apply, else by the user, once a request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from raglab.answering.question_gaps import failures
from raglab.answering.question_vocabulary import Failure, ParsedQuestion, Read
from raglab.answering.question_wording import asked as wording
from raglab.audit.default_rows import hashed
from raglab.audit.explanation import Explained
from raglab.audit.explanation import explain as explained
from raglab.decision.decisions import Check
from raglab.default_learner import (
    OTHER,
    ClarificationDefault,
    ClarificationRequest,
    Suggested,
    asks,
    gate,
    lookup,
    suggest,
)
from raglab.live import clarification_reading as documents
from raglab.live.clarification_reading import Reading, answer_of, domain_checks, field_check, made_of, read, read_known
from raglab.live.clarification_requests import (
    LONGEST,
    PAGE_SCOPE,
    Clarifier,
    Meant,
    Pinned,
    Request,
    default_of,
    is_default,
    meant,
    options_of,
    shown,
    told_default,
    told_tried,
    worth_of,
)
from raglab.live.response import Response, Seen
from raglab.live.system import normalised
from raglab.store.log_tables import REPLIES, SETTLEMENTS, request_of

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.live.system import Lab

KIND = "options"


def value_of(option: Mapping[str, Any]) -> str:
    """What a choice is learned under: the sources of the option."""
    text = "; ".join(option["sources"])
    return text if len(text) <= LONGEST else _digest(option["sources"])


def key_of(options: Sequence[Mapping[str, Any]]) -> tuple[str, str, Mapping[str, str]]:
    """Key of the row: the set of the options' sources."""
    return (f"{KIND}:{_digest(sorted(sorted(one['sources']) for one in options))}", KIND, {})


def learned(
    said: Response, request: Request, clarifier: Clarifier, system: Lab, chain: Callable[..., Response]
) -> Response:
    """A choice teaches its set of options; options whose choice is known are settled where the gate says so."""
    log = system.audit
    if log is None:
        return said
    if request.selected is not None:
        offered = {one["id"]: one for one in said.seen.offered}
        if said["status"] == "ok" and request.selected in offered:
            value = value_of(offered[request.selected])
            key = key_of(said.seen.offered)
            log.signal(request.id, key, value, "explicit_yes", conditions={}, now=request.now)
        return said
    if said["status"] != "ambiguous" or said["clarification"] is not None:
        return said
    key = key_of(said["options"])
    values = {value_of(one): one["id"] for one in said["options"]}
    row = lookup(log.rows(*key[:2]), *key)
    log.met(request.id, key, now=request.now)
    if row is None:
        return said
    best = suggest(row, list(values), clarifier.learner).value
    if not is_default(row, best, clarifier.learner) or asks(row, clarifier.learner):
        return said
    verdict = gate(row, ask_below=clarifier.learner.ask_below, apply_above=clarifier.learner.apply_above)
    about: dict[str, Any] = {"conditions": {}, "kind": KIND, "now": request.now}
    chosen = chain(request._replace(selected=values[best]), system)
    log.applied(request.id, row=row, value=best, gate=verdict, **about)
    warnings = [*chosen["warnings"], told_default(row, best)]
    return Response({**chosen, "default_applied": default_of(row, best, verdict), "warnings": warnings}, chosen.seen)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:12]


Chain = Callable[[Request, "Lab"], Response]


class Vague(NamedTuple):
    """A request that leaves something out, with the default row that it meets; None where there is none yet."""

    request: Request
    parsed: ParsedQuestion
    failure: Failure
    pinned: Pinned
    row: ClarificationDefault | None
    domain: tuple[Check, ...]

    @property
    def key(self) -> tuple[str, str, Mapping[str, str]]:
        """Key of the row."""
        return (self.failure.target_field, self.pinned.doctype, {} if self.row is None else self.row.sub_conditions)

    def read(self, value: str) -> Reading:
        """What a value leads to."""
        return read(self.failure, value, self.request.text, self.parsed, self.pinned.chunks)


def asked(request: Request, system: Lab, chain: Chain) -> Response:
    """Response to a request, logged; see `raglab.live.ask.ask`."""
    start, log, clarifier = perf_counter(), _log_of(system), system.clarifier
    read_by = None if clarifier is None else clarifier.read(request)
    known = _opened(log, request, read_by, system)
    log.settle(now=request.now)
    if clarifier is None:
        said = chain(request, system)
    else:
        if read_by is None or request.selected is not None:
            said = chain(request, system)
        else:
            said = _clarified(request, read_by.parsed, clarifier, system, chain)
            said = said if read_by.reason is None else _with(said, {}, [read_by.reason])
        if clarifier.costs.options:
            said = learned(said, request, clarifier, system, chain)
        said = Response(said, said.seen._replace(ms={**said.seen.ms, "total": 1e3 * (perf_counter() - start)}))
    log.decided(known, said, said.seen.checks, said.seen.ms, now=request.now)
    return said


def _opened(log: AuditLog, request: Request, read_by: Read | None, system: Lab) -> str:
    """Log the request, and give the id that the log has it under.

    Where nothing is clarified, a caller may use an id twice; the log keeps the second under a name of its own.
    """
    models = {
        "encoder": system.retriever.encoder.name,
        "generator": system.generator.name,
        "scorer": system.scorer.name,
        "prompt_version": str(getattr(system.generator, "prompt_version", "")),
        **({} if read_by is None else {"parser": read_by.by}),
    }
    about: dict[str, Any] = {
        "session": request.session,
        "documents": request.documents,
        "parsed": None if read_by is None else read_by.parsed,
        "policy": system.policy,
        "fingerprint": system.fingerprint,
        "models": models,
        "now": request.now,
    }
    try:
        log.opened(request.id, request.text, **about)
    except ValueError:
        if system.clarifier is not None:
            raise
        again = f"{str(request.id)[:150]}~{uuid4().hex[:12]}"
        log.opened(again, request.text, **about)
        return again
    return request.id


def _clarified(request: Request, parsed: ParsedQuestion, clarifier: Clarifier, system: Lab, chain: Chain) -> Response:
    domain = domain_checks(request.text, system)
    if not all(check.passes for check in domain):
        return chain(request, system)
    pinned = clarifier.pinned(parsed.documents or request.documents)
    least = clarifier.costs.min_field_confidence
    failure = next(iter(failures(parsed, request.text, pinned.chunks, least=least)), None)
    if failure is None and not pinned.chunks:
        failure = documents.which(parsed, clarifier, least)
        pinned = pinned if failure is None else clarifier.pinned(failure.candidates)
    if failure is not None:
        return _filled(vague(request, parsed, failure, pinned, domain, system), clarifier, system, chain)
    reading = read_known(request.text, parsed, pinned.chunks, least)
    if reading is None:
        return chain(request, system)
    return answer_of(request, reading, _why(reading), domain, system, {})


def vague(
    request: Request, parsed: ParsedQuestion, failure: Failure, pinned: Pinned, domain: Sequence[Check], system: Lab
) -> Vague:
    """A request with the most specific row of what it leaves out (rule S5.7)."""
    rows = _log_of(system).rows(failure.target_field, pinned.doctype)
    row = lookup(rows, failure.target_field, pinned.doctype, pinned.conditions)
    return Vague(request, parsed, failure, pinned, row, tuple(domain))


def _filled(one: Vague, clarifier: Clarifier, system: Lab, chain: Chain) -> Response:
    """Fill in what is missing, or ask (rules S5.4, S5.5, S5.10)."""
    log, request, failure, rule = _log_of(system), one.request, one.failure, clarifier.learner
    best = suggest(one.row, _candidates(one), rule)
    counted = log.met(request.id, one.key, now=request.now)
    row = counted if one.row is None else one.row  # as it was when this request met it
    learned = is_default(row, best.value, rule)
    first = one.read(best.value)
    silent = learned and not asks(row, rule)
    readings = [first] if silent and not first.failed else [first, *map(one.read, _others(best, one))]
    worth = worth_of(row, {reading.value: reading.outcome for reading in readings}, clarifier)
    silent = silent or (learned and not worth.asks)
    verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
    about: dict[str, Any] = {"conditions": one.pinned.conditions, "now": request.now}
    if silent:
        log.applied(request.id, row=row, value=best.value, gate=verdict, kind=failure.kind, **about)
    if silent and not first.failed:
        more = {"default_applied": default_of(row, best.value, verdict)}
        return finished(one, first, system, chain, more, [told_default(row, best.value)])
    if learned and first.failed:
        log.signal(request.id, one.key, best.value, "failure", **about)
    left = [reading for reading in readings if not reading.failed]
    tried = [reading.value for reading in readings[: readings.index(left[0]) if left else None]]
    told = [told_tried(failure.target_field, tried, failure.kind)] if tried else []
    if not left:
        return _with(chain(request, system), {}, told)
    if worth.asks:
        why = _why_asked(row, clarifier, tried, learned=learned)
        return _asked(one, row, left, tried, best, why, worth, system)
    same = f"nothing was asked: it would cost more than it could save on {failure.target_field}"
    return finished(one, left[0], system, chain, {}, [*told, same])


def _candidates(one: Vague) -> tuple[str, ...]:
    """Values that may fill in: those of the failure, and pages of this document that users named before."""
    voted = () if one.row is None else one.row.candidate_votes
    pages = {str(chunk.page) for chunk in one.pinned.chunks}
    named = (value for value in voted if one.failure.kind == PAGE_SCOPE and value in pages)
    return tuple(dict.fromkeys((*one.failure.candidates, *named)))


def _others(best: Suggested, one: Vague) -> list[str]:
    """The values that are not suggested, by their votes; ties as the failure has them."""
    votes = {} if one.row is None else one.row.candidate_votes
    others = [value for value in one.failure.candidates if value != best.value]
    return sorted(others, key=lambda value: -max(0.0, votes.get(value, 0.0)))


def _asked(
    one: Vague,
    row: ClarificationDefault,
    left: Sequence[Reading],
    tried: Sequence[str],
    best: Suggested,
    why: str,
    worth: Any,  # noqa: ANN401 - Worth
    system: Lab,
) -> Response:
    """Ask the user: `ambiguous`, until `reply` (rules S0.2, S5.2)."""
    failure, request, language = one.failure, one.request, one.parsed.language
    values, failed = [reading.value for reading in left], tried[0] if tried else None
    reason = f"{shown(failed, 'en')} did not state it" if failed else best.reason
    about = {
        "request_id": request.id,
        "kind": failure.kind,
        "row_id": row.row_id,
        "version": row.version,
        "confidence": row.confidence,
        "why": why,
        "policy_id": system.policy.policy_id,
        "prompt_version": "",
    }
    asking = ClarificationRequest(
        target_field=failure.target_field,
        question_to_user=_question(one, values, failed),
        candidate_values=values,
        proposed_default=values[0],
        proposed_default_reason=reason,
        audit=about,
    )
    cost = {"gain": worth.gain, "cost": worth.cost, "conditions": one.pinned.conditions, "tried": tried}
    _log_of(system).clarified(request.id, asking, row=row, kind=failure.kind, why=why, now=request.now, **cost)
    fields = {
        "status": "ambiguous",
        "options": options_of(values, language, failure.kind),
        "clarification": asking.model_dump(mode="json"),
        "arm_reason": f"{failure.kind} of {failure.target_field}: {why}",
    }
    return made_of(request, fields, system, Seen({}, False, False, checks=one.domain))


def _question(one: Vague, values: Sequence[str], failed: str | None) -> str:
    failure, language = one.failure, one.parsed.language
    if failure.kind == documents.KIND:
        return documents.asked(failure.target_field, tuple(values), values[0], language)
    return wording(failure, values[0], failed=failed, language=language, doctype=one.pinned.doctype)


def finished(
    one: Vague, reading: Reading, system: Lab, chain: Chain, more: Mapping[str, Any], warnings: Sequence[str]
) -> Response:
    """Response to a request that is filled in: what was read, or what the chain says to the narrower question."""
    if reading.found is not None:
        return answer_of(one.request, reading, _why(reading), one.domain, system, {"warnings": [*warnings], **more})
    narrowed = one.request._replace(text=reading.question, documents=reading.documents or one.request.documents)
    return _with(chain(narrowed, system), more, warnings)


def _with(said: Response, more: Mapping[str, Any], warnings: Sequence[str]) -> Response:
    return Response({**said, **more, "warnings": [*said["warnings"], *warnings]}, said.seen)


def _why(reading: Reading) -> str:
    return f"{reading.field} was read, no arm retrieved: {shown(reading.value, 'en')}"


def _why_asked(row: ClarificationDefault, clarifier: Clarifier, tried: Sequence[str], *, learned: bool) -> str:
    rule = clarifier.learner
    verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
    if tried:
        return f"{' and '.join(shown(value, 'en') for value in tried)} did not state it"
    if not learned:
        return "no default was learned for it yet"
    if verdict == "ask":
        return f"confidence {row.confidence:.2f} is below ask_below {rule.ask_below:g}"
    schedule = f"and request {row.requests + 1} is one in {rule.every}"
    return f"confidence {row.confidence:.2f} is not above apply_above {rule.apply_above:g}, {schedule}"


def explain(request_id: str, log: AuditLog | str | Path | None = None, *, lab: Lab | None = None) -> Explained:
    """How a request came to its answer, rebuilt from the audit log alone; see `raglab.audit.explanation.explain`.

    Args:
      log: an audit log, its file or URL, or the folder of an index. lab: whose log it is, where no log is given.

    Raises:
      ValueError: neither or both are given, the lab keeps no log, or the log has no such request.

    Source: rule S5.8.
    """
    from raglab.live.settings import open_audit

    if lab is not None and log is None:
        return explained(request_id, _log_of(lab))
    if log is None or lab is not None:
        msg = f"explain needs a log or a lab, got {'neither' if log is None else 'both'}; pass lab=, or log=."
        raise ValueError(msg)
    return explained(request_id, open_audit(log) if isinstance(log, str | Path) else log)


def _log_of(system: Lab) -> AuditLog:
    if system.audit is None:
        msg = "this needs the audit log, which is switched off; open the lab with audit=True."
        raise ValueError(msg)
    return system.audit


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
    """Response to a request with the user's reply; see `raglab.live.ask.reply`.

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
    if one.kind == KIND:
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
    values = {value_of(option): option["id"] for option in shown_again["options"]}
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
