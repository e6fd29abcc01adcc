"""Clarification (shore): ask once, read the reply, complete the request, learn the default (S5).

A request goes through the pipeline as ever. Before that, where the system clarifies, what the question leaves
out is filled in: by the learned default where its gate says apply, else by the user, once a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from raglab.audit.default_table import DefaultUse, RowKey
from raglab.canonical import digest
from raglab.decimals import decimals
from raglab.decision.checks import Check
from raglab.default_learner import (
    ClarificationDefault,
    ClarificationRequest,
    Suggested,
    Worth,
    document_roles,
    fills_in,
    gate,
    leads,
    lookup,
    suggest,
)
from raglab.extensions.clarification import clarification_reading as documents
from raglab.extensions.clarification.clarification_reading import (
    Reading,
    domain_checks,
    read_complete,
    read_single,
    read_value,
    reading_response,
)
from raglab.extensions.clarification.clarification_requests import (
    LAST_PAGE,
    LONGEST,
    PAGE_SCOPE,
    GapClarifier,
    PinnedDocuments,
    applied_default,
    clarification_options,
    default_warning,
    question_worth,
    vain_warning,
    value_by_words,
    value_phrase,
)
from raglab.extensions.clarification.fields import NOTHING
from raglab.extensions.clarification.missing_fields import failures, open_documents
from raglab.extensions.clarification.narrowed_questions import NarrowedRequest, scope_request
from raglab.extensions.clarification.question_parsing import parse
from raglab.extensions.clarification.question_signals import PARSER as RULES_VERSION
from raglab.extensions.clarification.question_vocabulary import Failure, ParsedQuestion, QuestionReading, named_document
from raglab.extensions.clarification.question_wording import question_wording as wording
from raglab.extensions.clarification.task_answers import TASKS
from raglab.extensions.clarification.unanswered_questions import is_likely_stated, unanswered_gap
from raglab.languages import sentence
from raglab.live.arm_choice import wants_bandit
from raglab.live.logged_requests import audit_log, log_answer, log_request, model_names
from raglab.live.model_failures import answer_or_refuse
from raglab.live.pipeline import answer_request, fields_response, try_request
from raglab.live.requests import Request
from raglab.live.response import Response, ResponseRecord
from raglab.packs import Pack
from raglab.values import Chunk

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.live.system import Lab

KIND = "options"


def option_values(options: Sequence[Mapping[str, Any]], chunks: Sequence[Chunk]) -> dict[str, int]:
    """Id of each option by what a choice of it is learned under: the roles of its documents among the options'.

    So that what was learned holds for other documents; where roles do not tell the options apart, it is their sources.
    """
    files = [sorted({source.rsplit("#", 1)[0] for source in option["sources"]}) for option in options]
    named = {name for of in files for name in of}
    roles = document_roles({chunk.document: chunk.tags for chunk in chunks if chunk.document in named})
    values = ["; ".join(roles.get(name, name) for name in of) for of in files]
    if len(set(values)) < len(values):
        values = ["; ".join(option["sources"]) for option in options]
    short = [value if 0 < len(value) <= LONGEST else _value_digest(value) for value in values]
    return {value: option["id"] for value, option in zip(short, options, strict=True)}


def option_key(values: Iterable[str]) -> RowKey:
    """Key of the row: the set of the options' values."""
    return RowKey(f"{KIND}:{_value_digest(sorted(values))}", KIND, {})


def _value_digest(value: object) -> str:
    return digest(json.dumps(value, ensure_ascii=False), 12)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A user's turn: the request, and all that answers it and learns from it.

    answered_as: id under which the pipeline answers. It is another than the request's where a reply corrects a request
    that was answered already, since a bandit takes an id once; the response keeps the request's own. read_by: parser of
    the question, with the version of its prompt where it has one; '' where nothing read it.
    """

    request: Request
    system: Lab
    log: AuditLog
    clarifier: GapClarifier
    answered_as: str
    read_by: str = ""

    @property
    def pack(self) -> Pack:
        """What the trade calls things, by which the request is read."""
        return self.system.pack

    def say(self, template: str, **parts: object) -> str:
        """A sentence in the language of the question."""
        return sentence(template, self.request.language, **parts)

    def answer(self, **changes: Any) -> Response:  # noqa: ANN401 - fields of Request
        """Response of the pipeline to the request, or to one that is changed in these fields."""
        response = answer_request(self.request._replace(**changes, id=self.answered_as), self.system)
        return Response({**response, "request_id": self.request.id}, response.seen)

    def answer_narrowed(self, narrowed: NarrowedRequest) -> Response:
        """Response of the pipeline to what the question became."""
        return self.answer(**self._narrowed(narrowed))

    def try_answer(self, narrowed: NarrowedRequest) -> Response:
        """Response that what the question became would get; nothing learns of it."""
        return try_request(self.request._replace(**self._narrowed(narrowed)), self.system)

    def _narrowed(self, narrowed: NarrowedRequest) -> dict[str, Any]:
        return {
            "text": narrowed.query,
            "documents": narrowed.documents or self.request.documents,
            "narrowed": narrowed,
        }


def learn_options(response: Response, turn: Turn) -> Response:
    """A choice teaches its set of options; options whose choice is known are settled where the gate says so."""
    log, request, rule = turn.log, turn.request, turn.clarifier.learner
    if request.selected is not None:
        offered = {option["id"]: option for option in response.seen.offered}
        if response["status"] == "ok" and request.selected in offered:
            values = option_values(response.seen.offered, turn.clarifier.chunks)
            value = next(value for value, number in values.items() if number == request.selected)
            log.signal(request.id, option_key(values), value, "explicit_yes", conditions={}, now=request.now)
        return response
    # A question that was asked back is settled by its reply, not by what earlier users chose.
    if response["status"] != "ambiguous" or response["clarification"] is not None:
        return response
    # The row is read before this request counts: the schedule asks by how often it was met before.
    values = option_values(response["options"], turn.clarifier.chunks)
    key = option_key(values)
    row = lookup(log.rows(key.target_field, key.doctype), *key)
    log.met(request.id, key, now=request.now)
    if row is None:
        return response
    best = suggest(row, list(values), rule).value
    if not fills_in(row, best, rule):
        return response
    verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
    settled = turn.answer(selected=values[best])
    return _apply_default(
        settled, DefaultUse(row, best, verdict, KIND, {}), [default_warning(row, best, turn.pack, request.language)]
    )


def _apply_default(response: Response, use: DefaultUse, warnings: Sequence[str] = ()) -> Response:
    """The response with the default that it rests on, which is logged with the decision (rule S5.8)."""
    named = {"default_applied": applied_default(use.row, use.value, use.gate)}
    extended = extend_response(response, named, warnings)
    return Response(extended, extended.seen._replace(applied=use))


class Vague(NamedTuple):
    """A request that leaves something out, with the default row that it meets; None where there is none yet.

    alias: what these documents call a learned value, where they call it otherwise.
    """

    turn: Turn
    parsed: ParsedQuestion
    failure: Failure
    pinned: PinnedDocuments
    row: ClarificationDefault | None
    domain: tuple[Check, ...]
    alias: Mapping[str, str] = {}

    @property
    def request(self) -> Request:
        """The request."""
        return self.turn.request

    @property
    def pack(self) -> Pack:
        """Pack of the system."""
        return self.turn.pack

    @property
    def key(self) -> RowKey:
        """Key of the row."""
        return RowKey(
            self.failure.target_field, self.pinned.doctype, {} if self.row is None else self.row.sub_conditions
        )

    def learned(self, value: str) -> str:
        """What a value is learned under; see `learned_values`."""
        return documents.learned_values(self.failure.kind, self.pinned.chunks).get(value, value)

    def read(self, value: str) -> Reading:
        """What a value leads to; where no rule reads it, what the pipeline says to the narrower question."""
        here = self.alias.get(value, value)
        reader = self.turn.clarifier.reader
        reading = read_value(self.failure, here, self.request.text, self.parsed, self.pinned.chunks, self.pack, reader)
        reading = reading._replace(value=value)
        if reading.found is not None:
            return reading
        if not reading.request.documents and self.pinned.chunks:  # the documents have nothing that it names
            return reading._replace(found=NOTHING)
        return reading._replace(response=self.turn.try_answer(reading.request))


def clarify_request(request: Request, system: Lab, clarifier: GapClarifier) -> Response:
    """Response to a request, logged; see `raglab.live.ask.ask`.

    Raises:
      UnwritableLogError: the log cannot be written; without it nothing can be learned or asked back.
    """
    start, log = perf_counter(), audit_log(system)
    request = _with_documents(request, clarifier)
    reading = clarifier.read(request)
    read: dict[str, Any] = {} if reading is None else {"parsed": reading.parsed, "parser": reading.by}
    logged_as, resumed = log_request(log, request, system, **read)
    # Silence of an earlier turn counts before this one is decided, so that it decides under what was learned then.
    log.settle(now=request.now)
    language = request.language if reading is None else reading.parsed.language
    request = request._replace(resumed=resumed, language=language)
    read_by = "" if reading is None else reading.by
    turn = Turn(request, system, log, clarifier, answered_as=request.id, read_by=read_by)
    response = answer_or_refuse(request, system, partial(_answer_turn, turn, reading))
    ms = {**response.seen.ms, "total": 1e3 * (perf_counter() - start)}
    response = Response(response, response.seen._replace(ms=ms))
    log_answer(log, logged_as, response, request.now, system)
    return response


def _answer_turn(turn: Turn, reading: QuestionReading | None) -> Response:
    """Response to a turn, with what is missing filled in or asked for, and learned from."""
    # Who chose among options has said what is meant: nothing is left to clarify.
    if reading is None or turn.request.selected is not None:
        response = turn.answer()
    else:
        response = _clarify_gaps(turn, reading.parsed)
        response = response if reading.reason is None else extend_response(response, {}, [reading.reason])
    return learn_options(response, turn) if turn.clarifier.costs.options else response


def _with_documents(request: Request, clarifier: GapClarifier) -> Request:
    """The request with the document that its words name, where the user pinned none; else with those that all answer.

    Who writes the name of a device means its manual as surely as who picks it from a list. Where nothing is named and
    several of few documents answer, which of them is meant is what the question leaves out.
    """
    known = clarifier.vocabulary
    if request.documents or request.selected is not None or known is None:
        return request
    named = named_document(request.text, known)
    if named is not None:
        return request._replace(documents=(named,))
    least = clarifier.costs.min_field_confidence
    return request._replace(documents=open_documents(request.text, known, parse(request.text, known), least))


def _made_by(turn: Turn) -> dict[str, str]:
    """What a question to the user was made by: models, parser with its prompt, pack, learner, rules, this raglab."""
    model, _, read_by = turn.read_by.rpartition(":")  # the rules have no prompt, but a version
    return {
        **model_names(turn.system),
        "parser": model or read_by,
        "prompt_version": read_by if model else RULES_VERSION,
        "pack": turn.pack.digest,
        **({} if turn.clarifier.reader is None else {"reader": turn.clarifier.reader.name}),
        "fingerprint": turn.system.fingerprint,
        "learner_rule": turn.clarifier.learner.rule,
        "learner": turn.log.digest,
        "raglab": version("raglab-toolkit"),
    }


def _clarify_gaps(turn: Turn, parsed: ParsedQuestion) -> Response:
    """Response to a question as it was read: filled in, read from the named documents, or left to the pipeline."""
    request, clarifier = turn.request, turn.clarifier
    # Out of domain is refused before anyone is asked about it.
    domain = domain_checks(request.text, turn.system, request.language)
    if not all(check.passes for check in domain):
        return turn.answer()
    pinned = clarifier.pinned(parsed.documents or request.documents)
    least = clarifier.costs.min_field_confidence
    failure = next(iter(failures(parsed, request.text, pinned.chunks, least=least, pack=turn.pack)), None)
    # A question that names no document may still be about a few: which of them is then what is missing.
    if failure is None and not pinned.chunks:
        failure = documents.which(parsed, clarifier, least)
        pinned = pinned if failure is None else clarifier.pinned(failure.candidates)
    if failure is not None:
        return _fill_in(vague(turn, parsed, failure, pinned, domain))
    reading = read_complete(request.text, parsed, pinned.chunks, least, turn.pack, clarifier.reader)
    reading = reading or read_single(request.text, parsed, pinned.chunks, least, turn.pack)
    if reading is None:
        scope = parsed.said("page_scope", least) or ""
        narrowed = scope_request(scope, request.text, parsed, pinned.chunks, pack=turn.pack)
        response = turn.answer() if narrowed is None else turn.answer_narrowed(narrowed)
        return _ask_unanswered(response, turn, parsed, pinned, domain)
    return reading_response(request, reading, _why(reading, turn), domain, turn.system, {})


def _ask_unanswered(
    response: Response, turn: Turn, parsed: ParsedQuestion, pinned: PinnedDocuments, domain: Sequence[Check]
) -> Response:
    """A refusal, or the question to the user where what was asked says too little; any other response as it is.

    A bandit had its round with the refusal and takes an id once, so that nothing is asked then.
    """
    clarifier, text = turn.clarifier, turn.request.text
    if response["status"] != "refuse" or clarifier.vocabulary is None or wants_bandit(turn.system):
        return response
    least, encode = clarifier.costs.min_field_confidence, clarifier.vocabulary.encode
    gap = unanswered_gap(parsed, text, pinned.chunks, least, turn.pack, encode)
    return response if gap is None else _fill_in(vague(turn, parsed, gap, pinned, domain))


def vague(
    turn: Turn, parsed: ParsedQuestion, failure: Failure, pinned: PinnedDocuments, domain: Sequence[Check]
) -> Vague:
    """A request with the most specific row of what it leaves out (rule S5.7)."""
    rows = turn.log.rows(failure.target_field, pinned.doctype)
    row = lookup(rows, failure.target_field, pinned.doctype, pinned.conditions)
    failure, alias = _with_learned_name(failure, row, turn)
    return Vague(turn, parsed, failure, pinned, row, tuple(domain), alias)


def _with_learned_name(
    failure: Failure, row: ClarificationDefault | None, turn: Turn
) -> tuple[Failure, Mapping[str, str]]:
    """A failure whose candidates have the name of the learned value, where these documents call it otherwise.

    What one document calls `Dinner, with a stay` another calls `Dinner`: a learned name that would fill in stands for
    the only candidate that it can mean.
    """
    best = None if row is None or not row.candidate_votes else suggest(row, list(row.candidate_votes)).value
    rule = turn.clarifier.learner
    if row is None or best is None or best in failure.candidates or not fills_in(row, best, rule):
        return failure, {}
    if failure.kind == PAGE_SCOPE:  # a page's number is the same in every document
        return failure, {}
    here = value_by_words(best, failure.candidates, turn.pack)
    if here is None:
        return failure, {}
    candidates = tuple(best if one == here else one for one in failure.candidates)
    return failure._replace(candidates=candidates), {best: here}


class Prospect(NamedTuple):
    """What may fill in what a request leaves out, before anything is applied or asked.

    row: as the request met it. best: value to propose. is_default: whether it was learned. silent: whether it is
    applied without a question. readings: what the values lead to, the best first, and alone where nothing else counts.
    worth: of asking.
    """

    row: ClarificationDefault
    best: Suggested
    is_default: bool
    silent: bool
    readings: list[Reading]
    worth: Worth


def _prospect(one: Vague) -> Prospect:
    turn, rule = one.turn, one.turn.clarifier.learner
    values = {one.learned(value): value for value in _candidate_values(one)}
    found = suggest(one.row, list(values), rule, language=turn.request.language)
    best = found._replace(value=values[found.value])
    # A row that is there already decides as it was before this request counted; a new one begins with it.
    new_row = turn.log.met(turn.request.id, one.key, now=turn.request.now)
    row = new_row if one.row is None else one.row
    learned_before = leads(row, found.value, rule)
    silent = fills_in(row, found.value, rule)
    # Reading a value is cheap but not free: the others are read only where the first does not settle it.
    first = one.read(best.value)
    readings = [first] if silent and not first.failed else [first, *map(one.read, _other_values(best, one))]
    worth = question_worth(row, {one.learned(reading.value): reading.outcome for reading in readings}, turn.clarifier)
    return Prospect(
        row=row,
        best=best,
        is_default=learned_before,
        silent=silent or fills_in(row, found.value, rule, worth),
        readings=readings,
        worth=worth,
    )


def _fill_in(one: Vague) -> Response:
    """Fill in what is missing, or ask (rules S5.4, S5.5, S5.10)."""
    log, request, rule = one.turn.log, one.request, one.turn.clarifier.learner
    prospect = _prospect(one)
    row, best, first = prospect.row, prospect.best.value, prospect.readings[0]
    about: dict[str, Any] = {"conditions": one.pinned.conditions, "now": request.now}
    # A default is applied where it fills something in: one that reads nothing was tried, and is evidence against it.
    if prospect.silent and not first.failed:
        verdict = gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above)
        response = finish_request(one, first, {}, [default_warning(row, best, one.pack, request.language)])
        use = DefaultUse(row, one.learned(best), verdict, one.failure.kind, one.pinned.conditions)
        return _apply_default(response, use)
    if prospect.is_default and first.failed:
        log.signal(request.id, one.key, one.learned(best), "failure", **about)
    return _without_default(one, prospect)


def _without_default(one: Vague, prospect: Prospect) -> Response:
    """Ask which of the values that lead to an answer is meant; where none does, the question is answered as it is."""
    field, readings = one.failure.target_field, prospect.readings
    left = [reading for reading in readings if not reading.failed]
    # Only what was tried before a value worked is named: later failures had no part in the answer.
    before = readings[: readings.index(left[0]) if left else None]
    # A candidate that a gate refuses was never proposed; a page that was read and a learned default are named.
    tried = [one.value for one in before if one.found is not None or (prospect.is_default and one is readings[0])]
    language = one.request.language
    warnings = [vain_warning(field, tried, one.pack, one.failure.kind, language=language)] if tried else []
    if left:
        return _ask_user(one, prospect, [reading.value for reading in left], tried)
    # That the pipeline answers none of them as they are is no answer: which part or thing is meant stays to be asked. A
    # field that stands on no page, and kinds of figure that no document states, leave nothing to ask.
    paged = one.failure.kind == PAGE_SCOPE and field not in one.pack.readings
    open_still = paged or one.failure.kind in {"intent", "implicit_entity"}
    if open_still and len(readings) > 1 and not prospect.is_default:
        return _ask_user(one, prospect, [reading.value for reading in readings], [])
    response = one.turn.answer()
    if response["status"] == "refuse" and len(readings) > 1 and not prospect.is_default and _is_held(one):
        return _ask_user(one, prospect, [reading.value for reading in readings], [])
    return extend_response(response, {}, warnings)


def _is_held(one: Vague) -> bool:
    """Whether documents are likely to state a field that no page was read for, so that a refusal is put off.

    A bandit had its round with the refusal and takes an id once, so that nothing is asked then.
    """
    if one.failure.kind != PAGE_SCOPE or one.failure.target_field not in one.pack.readings:
        return False
    if wants_bandit(one.turn.system):
        return False
    known = one.turn.clarifier.vocabulary
    encode = None if known is None else known.encode
    return is_likely_stated(one.failure.target_field, one.request.text, one.pinned.chunks, one.pack, encode)


def _candidate_values(one: Vague) -> tuple[str, ...]:
    """Values that may fill in: those of the failure, and the scopes and tasks that users named before."""
    voted = () if one.row is None else one.row.candidate_votes
    pages = {str(chunk.page) for chunk in one.pinned.chunks}
    more = {PAGE_SCOPE: {*pages, LAST_PAGE}, "intent": {*TASKS}}.get(one.failure.kind, set())
    named = (value for value in voted if value in more)
    return tuple(dict.fromkeys((*one.failure.candidates, *named)))


def _other_values(best: Suggested, one: Vague) -> list[str]:
    """The values that are not suggested, by their votes; ties as the failure has them."""
    votes = {} if one.row is None else one.row.candidate_votes
    others = [value for value in one.failure.candidates if value != best.value]
    return sorted(others, key=lambda value: -max(0.0, votes.get(one.learned(value), 0.0)))


def _ask_user(one: Vague, prospect: Prospect, values: list[str], tried: Sequence[str]) -> Response:
    """Ask the user: `ambiguous`, until `reply` (rules S0.2, S5.2).

    Args:
      values: that read something, the one to propose first. tried: those before it, which did not.
    """
    turn, failure, row, worth = one.turn, one.failure, prospect.row, prospect.worth
    failed = tried[0] if tried else None
    why = _question_reason(row, turn, tried, is_default=prospect.is_default)
    asking = ClarificationRequest(
        target_field=failure.target_field,
        question_to_user=_question(one, values, failed),
        candidate_values=values,
        proposed_default=values[0],
        proposed_default_reason=_unstated([failed], turn) if failed else prospect.best.reason,
        # What the question rests on, so that it can be explained when the row has long gone on.
        audit={
            "request_id": turn.request.id,
            "kind": failure.kind,
            "row_id": row.row_id,
            "version": row.version,
            "confidence": row.confidence,
            "why": why,
            "policy_id": turn.system.policy.policy_id,
            **_made_by(turn),
        },
    )
    # Logged before it is put to the user: a reply may come from another process at once.
    turn.log.clarified(
        turn.request.id,
        asking,
        row=row,
        kind=failure.kind,
        why=why,
        gain=worth.gain,
        cost=worth.cost,
        conditions=one.pinned.conditions,
        tried=tried,
        now=turn.request.now,
    )
    fields = {
        "status": "ambiguous",
        "options": clarification_options(values, one.parsed.language, failure.kind, turn.pack),
        "clarification": asking.model_dump(mode="json"),
        "arm_reason": turn.say("{kind} of {field}: {why}", kind=failure.kind, field=failure.target_field, why=why),
    }
    return fields_response(turn.request, fields, turn.system, ResponseRecord(checks=one.domain))


def _question(one: Vague, values: Sequence[str], failed: str | None) -> str:
    failure, language = one.failure, one.parsed.language
    if failure.kind == documents.KIND:
        return documents.field_question(failure.target_field, tuple(values), values[0], language)
    about: dict[str, Any] = {"failed": failed, "language": language, "doctype": one.pinned.doctype}
    return wording(failure, values[0], **about, pack=one.pack)


def finish_request(one: Vague, reading: Reading, more: Mapping[str, Any], warnings: Sequence[str]) -> Response:
    """Response to a request that is filled in: what was read, or what the pipeline says to what it became."""
    if reading.found is not None:
        system, fields = one.turn.system, {"warnings": [*warnings], **more}
        return reading_response(one.request, reading, _why(reading, one.turn), one.domain, system, fields)
    tried = reading.response  # a bandit learns from its own answer alone, which a trial is not
    said = tried if tried is not None and not wants_bandit(one.turn.system) else None
    return extend_response(one.turn.answer_narrowed(reading.request) if said is None else said, more, warnings)


def extend_response(response: Response, more: Mapping[str, Any], warnings: Sequence[str]) -> Response:
    """The response with further fields, and warnings after its own."""
    return Response({**response, **more, "warnings": [*response["warnings"], *warnings]}, response.seen)


def _why(reading: Reading, turn: Turn) -> str:
    value = value_phrase(reading.value, turn.request.language, turn.pack)
    return turn.say("{field} was read, no arm retrieved: {value}", field=reading.field, value=value)


def _unstated(tried: Sequence[str], turn: Turn) -> str:
    """That some values did not state the field."""
    values = turn.say(" and ").join(value_phrase(value, turn.request.language, turn.pack) for value in tried)
    return turn.say("{values} did not state it", values=values)


def _question_reason(row: ClarificationDefault, turn: Turn, tried: Sequence[str], *, is_default: bool) -> str:
    rule, sure = turn.clarifier.learner, row.confidence
    if tried:
        return _unstated(tried, turn)
    if not is_default:
        return turn.say("no default was learned for it yet")
    if gate(row, ask_below=rule.ask_below, apply_above=rule.apply_above) == "ask":
        bounds = {"confidence": decimals(sure, rule.ask_below), "least": decimals(rule.ask_below, sure)}
        return turn.say("confidence {confidence} is below ask_below {least}", **bounds)
    bounds = {"confidence": decimals(sure, rule.apply_above), "least": decimals(rule.apply_above, sure)}
    template = "confidence {confidence} is not above apply_above {least}, and request {number} is one in {every}"
    return turn.say(template, **bounds, number=row.requests + 1, every=rule.every)
