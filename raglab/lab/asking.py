"""The loop in `ask`: ask once what a question leaves out, learn the default, stay silent next time (rule S5).

A request goes through the chain of gates as ever. Before that, where the system clarifies, what the question leaves
out is filled in: by the learned default where its gate says apply, else by the user, once a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from raglab._explain import Check
from raglab.answering.parse import Failure, ParsedQuestion, Read, failures
from raglab.answering.parse import asked as wording
from raglab.default_learner import ClarificationDefault, ClarificationRequest, Suggested, asks, gate, lookup, suggest
from raglab.lab import _asking_documents as documents
from raglab.lab import _asking_options as choices
from raglab.lab._asking_reading import (
    Reading,
    answer_of,
    domain_checks,
    made_of,
    read,
    read_known,
)
from raglab.lab._asking_request import Clarifier, Pinned, Request, is_default, text_of, time_of, worth_of
from raglab.lab._asking_words import PAGE_SCOPE, default_of, options_of, shown, told_default, told_tried
from raglab.lab.explained import Explained
from raglab.lab.explained import explain as explained
from raglab.lab.response import Response, Seen

if TYPE_CHECKING:
    from raglab.lab.audit_log import AuditLog
    from raglab.lab.live import Lab

__all__ = ["Request", "Vague", "asked", "explain", "finished", "text_of", "time_of", "vague"]

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
    """Response to a request, logged; see `raglab.lab.session.ask`."""
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
            said = choices.learned(said, request, clarifier, system, chain)
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
    """How a request came to its answer, rebuilt from the audit log alone; see `raglab.lab.explained.explain`.

    Args:
      log: an audit log, its file or URL, or the folder of an index. lab: whose log it is, where no log is given.

    Raises:
      ValueError: neither or both are given, the lab keeps no log, or the log has no such request.

    Source: rule S5.8.
    """
    from raglab.lab.clarify_settings import opened

    if lab is not None and log is None:
        return explained(request_id, _log_of(lab))
    if log is None or lab is not None:
        msg = f"explain needs a log or a lab, got {'neither' if log is None else 'both'}; pass lab=, or log=."
        raise ValueError(msg)
    return explained(request_id, opened(log) if isinstance(log, str | Path) else log)


def _log_of(system: Lab) -> AuditLog:
    if system.audit is None:
        msg = "this needs the audit log, which is switched off; open the lab with audit=True."
        raise ValueError(msg)
    return system.audit
