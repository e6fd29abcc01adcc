"""Pipeline (shore): question by arm, depth, gates, generation, answer gates (S2.9, S2.12).

The gates are those of the replay, over a trace of this one question, so that a question asked live
is decided as a stored trace would decide it. Caches stand before retrieval and before the whole
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from raglab.decision import chain
from raglab.decision.checks import Check, answer_checks, error_check
from raglab.decision.decisions import Decisions
from raglab.decision.measurement import add_answers, measured_tables
from raglab.decision.recorded_answers import AnswerKey, calibrate_confidence
from raglab.decision.signal_values import ANSWERED, STORED, Columns, used_signals
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.live.arm_choice import measures, record_outcome, select_arm
from raglab.live.measured_signals import FAILURES, answer_places
from raglab.live.requests import Request
from raglab.live.response import (
    PREVIEW,
    CheckedAnswer,
    Response,
    ResponseFields,
    ResponseRecord,
    SingleGeneration,
    answer_sets,
    check_answer,
)
from raglab.live.retriever import restrict_to_hits
from raglab.live.system import (
    Key,
    System,
    pack_depths,
    unpack_depths,
)
from raglab.live.telemetry import depths_in_spans, request_tracing, write_stored_depths
from raglab.models.files import BUNDLED
from raglab.policy_parts.patterns import pattern_hits
from raglab.replay import decide_on_tables, refine_on_tables
from raglab.retrieval.arms import DepthHits, walk
from raglab.reward import answer_brevity
from raglab.signals import declaration
from raglab.values import Answers, Case, Hits, ModelUnavailableError, Status, TraceData
from raglab.words.languages import Reason, refusal, say
from raglab.words.text import is_foreign
from raglab.words.tokeniser import word_count


class StoredAnswer(NamedTuple):
    """What the cache keeps of an answer, and of the way to it what bandit and log ask for again."""

    answer: ResponseFields
    checks: tuple[Check, ...]
    measures: dict[str, float | None]
    offered: tuple[dict[str, Any], ...]


_STORED = TypeAdapter(StoredAnswer)


def answer_request(request: Request, system: System) -> Response:
    """Response of the chain of gates.

    Retrieval, verdict, generation, and the gates on the answer.
    """
    start = perf_counter()
    if request.narrowed is not None:
        system = replace(system, generator=request.narrowed.generator(system.generator))
    keys = {
        arm: Key(
            policy_id=system.policy.policy_id,
            fingerprint=system.fingerprint,
            arm=arm,
            question=request.text,
            documents=request.documents,
        )
        for arm in system.retriever.strategies
    }
    made_by: list[Any] = [system.generator.name, system.scorer.name, request.selected]
    made_by += [function.identity for function in system.signals.functions]
    # warnings and reasons are in it
    made_by += [request.language] if request.language != "en" else []
    # a group that the policy's model may be biased for
    model = system.policy.structure.decision
    made_by += () if model is None else model.group_values([request.case()]) or ()
    choice = select_arm(keys, made_by, request, system)
    if request.narrowed is not None:  # what it became is retrieved anew
        system = replace(system, caches=None)
    # The same question to the same arm, policy, index and models has the same answer, whoever asks
    # it.
    key, caches = keys[choice.arm], system.caches
    digest = key.digest("answer", *made_by)
    stored = None if caches is None else caches.answers.get(digest, _STORED.validate_python)
    if stored is not None and stored.answer.policy_id == key.policy_id:
        answer, checks, component_values, offered = stored
        record = ResponseRecord(
            answer_cache_hit=True, checks=checks, measures=component_values, offered=offered
        )
        tracing = request_tracing.get()
        if tracing is not None:
            write_stored_depths(partial(_stored_depths, key, system), tracing, key.arm, system)
    else:
        answer, record = _generate_answer(request, key, system)
        # a signal that failed once may be there next time
        if caches is not None and not record.signal_failures:
            rows = [check._asdict() | {"passes": bool(check.passes)} for check in record.checks]
            parts = (answer._asdict(), rows, record.measures, record.offered)
            caches.answers.set(digest, dict(zip(StoredAnswer._fields, parts, strict=True)))
    # What belongs to this request alone is added after the cache: id, arm and why, its time and its
    # chance.
    answer = answer._replace(request_id=request.id, arm=choice.arm, arm_reason=choice.reason)
    record = record._replace(
        ms={**record.ms, "total": 1e3 * (perf_counter() - start)}, propensity=choice.propensity
    )
    response = Response(answer, record)
    if choice.propensity is not None and not choice.rewarded:
        record_outcome(response, system)
    return response


def answer_or_refuse(request: Request, system: System, answer: Callable[[], Response]) -> Response:
    """The response of `answer`.

    Where the model fails and the system must answer, a refusal with its `error`.

    Raises:
      ModelUnavailableError: the model failed, and `on_error` of the system is `raise`.

    Source: rule S0.1.
    """
    start = perf_counter()
    try:
        return answer()
    except ModelUnavailableError as error:
        if system.on_error == "raise":
            raise
        reason = say(request.language, Reason("ungenerated", {"reason": error.reason}))
        record = ResponseRecord(
            {"total": 1e3 * (perf_counter() - start)}, checks=(error_check(reason),)
        )
        return unretrieved_response(
            ResponseFields(
                say(request.language, Reason("unavailable")),
                status=Status.refuse,
                refusal_reason=reason,
                error=str(error),
            ),
            request,
            system,
            record,
        )


def unretrieved_response(
    answer: ResponseFields, request: Request, system: System, record: ResponseRecord
) -> Response:
    """Response with an answer that no arm retrieved for."""
    policy_id = system.policy.policy_id
    return Response(answer._replace(policy_id=policy_id, request_id=request.id), record)


def _generate_answer(
    request: Request, key: Key, system: System
) -> tuple[ResponseFields, ResponseRecord]:
    """An answer that no cache holds, and how it came about."""
    if system.signals.functions:
        system = replace(system, signals=system.signals.for_question())
    if _reads_answers(system):
        system = replace(system, generator=SingleGeneration(system.generator))
    decisions, depths, cached = _retrieve_depths(request, key, system)
    decisions = replace(decisions, language=request.language)
    ms: dict[str, float] = {}
    for depth in depths:
        for stage, spent in depth.ms.items():
            ms[stage] = ms.get(stage, 0.0) + spent
    # Components of the reward are measured on the hits, whether gates answer or refuse (rule S4.3).
    row = measures(decisions.trace, decisions, key.arm)[0].tolist()
    evidence = None
    if request.narrowed is not None:
        evidence = {
            "query": request.text,
            "documents": [*request.documents],
            "task": request.narrowed.task,
            "arm": key.arm,
            "depths": pack_depths(depths),
            "answer": None,
        }
    record = ResponseRecord(
        ms,
        strategy_cache_hit=cached,
        queries=tuple(depth.query for depth in depths),
        measures=dict(zip(("margin", "diversity", "consistency"), map(_present, row), strict=True)),
        retrieved=_hit_statistics(decisions),
        signal_failures=decisions.trace.meta.get(FAILURES, ()),
        evidence=evidence,
    )
    return complete_response(decisions, request.text, request.selected, system, record)


def _reads_answers(system: System) -> bool:
    """Whether a signal of the policy is measured on the answer, before anything is decided."""
    return bool(set(used_signals(system.policy)) & set(ANSWERED)) or any(
        function.needs_answers for function in system.signals.functions
    )


def _present(value: float) -> float | None:
    """The number, None where it is NaN."""
    return None if np.isnan(value) else value


def _hit_statistics(decisions: Decisions) -> dict[str, float | None]:
    """Features of rule S4.2 that only retrieval tells, at the depth that decided.

    For the log, not for a choice.
    """
    hits, depth = decisions.trace.hits, int(decisions.outcome.depth[0])
    cosine: NDArray[np.float64] = hits.cosine[0, 0, depth][hits.chunk[0, 0, depth] >= 0]
    if not len(cosine):
        return {"n_hits": 0.0}
    return {
        "n_hits": float(len(cosine)),
        "cosine_best": float(cosine.max()),
        "cosine_mean": float(cosine.mean()),
        "cosine_std": float(cosine.std()),
    }


def _retrieve_depths(
    request: Request, key: Key, system: System
) -> tuple[Decisions, list[DepthHits], bool]:
    """What was retrieved for a question, depth by depth as far as its policy goes.

    Returns: decisions of the gates, the depths, and whether all came from the strategy cache.
    """
    caches, stored = system.caches, _stored_depths(key, system)
    # names a document that is not there, cached or not
    scope = system.retriever.scope(request.documents)
    case = request.case()
    thresholds = policy_thresholds([system.policy])
    depths: list[DepthHits] = []
    passes: list[chain.Pass] = []
    decisions: Decisions | None = None
    walked = _depths(request.text, key.arm, stored, scope, system)
    tracing = request_tracing.get()
    if tracing is not None:
        walked = depths_in_spans(walked, tracing, key.arm, system, len(stored))
    for depth in walked:
        # A trace replays all depths at once; live, a further depth is a whole retrieval, so each is
        # decided first.
        depths.append(depth)
        start = perf_counter()
        trace = case_trace(
            case, key.arm, depths, system, None if decisions is None else decisions.trace
        )
        measured = measured_tables(trace, system.policy)
        between = perf_counter()
        decisions, going = refine_on_tables(measured, trace, system.policy, thresholds, passes)
        depth.ms.update(evidence=1e3 * (between - start), gates=1e3 * (perf_counter() - between))
        # The loop goes on past a refusal that another query may mend (rule S2.9).
        if decisions.status[0] != Status.refuse or not going.any():
            break
    assert decisions is not None  # noqa: S101 - a walk has a first depth
    cached = 0 < len(depths) <= len(stored)
    if caches is not None and not cached:
        caches.strategies.set(
            key.digest("strategy"), {"arm": key.arm, "depths": pack_depths(depths)}
        )
    return decisions, depths, cached


def _stored_depths(key: Key, system: System) -> list[DepthHits]:
    """Depths that the strategy cache holds, none where there is no cache."""
    if system.caches is None:
        return []
    n_chunks = len(system.retriever.chunks)
    stored = system.caches.strategies.get(
        key.digest("strategy"), lambda entry: unpack_depths(entry["depths"], n_chunks)
    )
    return stored or []


def _depths(
    text: str,
    arm: str,
    stored: Sequence[DepthHits],
    scope: NDArray[np.int64] | None,
    system: System,
) -> Iterator[DepthHits]:
    """Depths that the cache holds, then those beyond it; no model runs before one is asked for."""
    yield from stored
    walked = walk(system.retriever.strategies[arm], system.retriever.question(text), scope)
    yield from islice(walked, len(stored), None)


def case_trace(
    case: Case,
    arm: str,
    depths: Sequence[DepthHits],
    system: System,
    earlier: TraceData | None = None,
) -> TraceData:
    """Trace of one question, of the depths that were retrieved.

    Args:
      earlier: of the same question with fewer depths: its patterns and the user's signals are not
        measured again.
    """
    hits = Hits._make(
        np.concatenate(fields, axis=2)
        for fields in zip(*(depth.hits for depth in depths), strict=True)
    )
    places = np.unique(hits.chunk[hits.chunk >= 0])
    chunks, hits, vectors = restrict_to_hits(
        system.retriever.chunks, system.retriever.indexes.vectors, hits
    )
    entities = tuple(system.entities[int(place)] for place in places)
    # the question is the same at every depth
    if earlier is not None and earlier.pattern_hits is not None:
        hits_of = earlier.pattern_hits._replace(chunk_entities=entities)
    else:
        hits_of = pattern_hits(
            [case], chunks, system.policy.pattern_lists, entities, system.policy.patterns.digest
        )
    trace = TraceData(
        cases=(case,),
        chunks=chunks,
        arms=(arm,),
        hits=hits,
        pattern_hits=hits_of,
        meta={"fingerprint": system.fingerprint},
        vectors=vectors,
    )
    # Parser, generator and functions take longer than all gates together: they run where the policy
    # asks for them.
    used, columns, answers = set(used_signals(system.policy)), Columns(), None
    if used & set(STORED):
        for family in system.reader.measuring(used):
            columns |= family.columns(trace)
    if _reads_answers(system):
        answers = _answers_to_all_hits(trace, system)
        calibration = system.policy.structure.calibration
        rows = {
            "generation": calibrate_confidence(answers.confidence, calibration),
            "support": answers.support,
        }
        for name in ANSWERED if used & set(ANSWERED) else ():
            columns[name] = np.full(hits.chunk.shape[:3], np.nan)
            if name in rows:
                columns[name][0, 0, answers.depth] = rows[name]
    if system.signals.functions:
        own, failures = system.signals.measured(trace, system.policy.structure, answers, earlier)
        columns |= own
        declarations = {
            function.name: declaration(function.declared) for function in system.signals.functions
        }
        meta = {**trace.meta, "signals": declarations, FAILURES: failures}
        trace = replace(trace, meta=meta)
    return replace(trace, columns=columns) if columns else trace


def _answers_to_all_hits(trace: TraceData, system: System) -> Answers:
    """The answer to all hits of each depth, which signals of the answer are measured on."""
    keys, answers = [], []
    for depth, places in enumerate(answer_places(trace, 0, system.policy.structure)[0]):
        chunks = tuple(
            int(number) for number in trace.hits.chunk[0, 0, depth][places] if number >= 0
        )
        if chunks:
            passages = [trace.chunks[number] for number in chunks]
            keys.append(AnswerKey(case=0, arm=0, depth=depth, chunks=chunks))
            answers.append(
                check_answer(trace.cases[0].query, passages, system.generator, system.scorer)
            )
    return answer_sets(keys, answers, system.generator.name, system.scorer.name)


def complete_response(
    decisions: Decisions, text: str, selected: int | None, system: System, record: ResponseRecord
) -> tuple[ResponseFields, ResponseRecord]:
    """What follows on retrieval: the choice among options, generation, and the gates on the answer.

    Args:
      decisions: of the one question, as far as retrieval goes.
      selected: the option that the user chose.
      record: so far; its ms are added to.

    Returns: the answer but for its arm and request; and how it came about.
    """
    if selected is not None:
        return _selected_option(decisions, selected, text, system, record)
    case_id = decisions.trace.cases[0].id
    if decisions.status[0] != Status.ok:
        return _decided_answer(decisions, system, None), record._replace(
            checks=tuple(decisions.explain(case_id))
        )
    ms = dict(record.ms)
    chunks = decisions.chunks_of_decision(0)
    passages = [decisions.trace.chunks[number] for number in chunks]
    checked = check_answer(
        text, passages, system.generator, system.scorer, ms=ms, language=decisions.language
    )
    # The answer becomes the recorded one of its set of hits, so that its gates are the replay's and
    # not a second copy.
    start = perf_counter()
    key = AnswerKey(case=0, arm=0, depth=int(decisions.outcome.depth[0]), chunks=chunks)
    answers = answer_sets([key], [checked], system.generator.name, system.scorer.name)
    trace = replace(decisions.trace, answers=answers)
    measured = add_answers(decisions.tables, trace, system.policy.structure)
    final = replace(
        decide_on_tables(measured, trace, system.policy, decisions.thresholds),
        language=decisions.language,
    )
    ms["gates"] = ms.get("gates", 0.0) + 1e3 * (perf_counter() - start)
    # Of an answer that leaves, its optional components are measured too; a refusal has neither.
    component_values = dict(record.measures)
    if component_values and final.status[0] == Status.ok:
        component_values["brevity"] = float(answer_brevity(word_count(checked.text)))
        component_values["logprob"] = _present(checked.confidence)
    if record.evidence is not None:
        row = checked._asdict() | {
            "chunks": list(chunks),
            "depth": key.depth,
            "cited": list(checked.cited),
        }
        record = record._replace(evidence={**record.evidence, "answer": row})
    record = record._replace(ms=ms, checks=tuple(final.explain(case_id)), measures=component_values)
    return _decided_answer(final, system, checked), record


def _decided_answer(
    decisions: Decisions, system: System, checked: CheckedAnswer | None
) -> ResponseFields:
    """What a decision says; `checked` is the text that the gates read, None where there is none."""
    status = Status(int(decisions.status[0]))
    refused, sources = status == Status.refuse, tuple[str, ...]()
    if status == Status.ok:
        sources = _answer_sources(decisions, decisions.chunks_of_decision(0), checked)
    text = None if checked is None else checked.text
    failures = [*decisions.trace.meta.get(FAILURES, ())]
    trace, encoder = decisions.trace, system.retriever.encoder.name
    passages = (trace.chunks[n].full_text for n in np.unique(trace.hits.chunk[0]) if n >= 0)
    if encoder.startswith(f"{BUNDLED}==") and is_foreign(trace.cases[0].query, passages):
        failures.append(Reason("foreign"))
    return ResponseFields(
        refusal(decisions.language, system.policy.refusal_message) if refused else text,
        sources,
        status,
        refusal_reason=decisions.reason(0) if refused else None,
        options=_options(decisions),
        warnings=(
            *decisions.warnings(0),
            *dict.fromkeys(say(decisions.language, failure) for failure in failures),
        ),
        confidence=float(decisions.confidence()[0]),
        route=decisions.route(0),
        policy_id=system.policy.policy_id,
    )


def _answer_sources(
    decisions: Decisions, chunks: Sequence[int], checked: CheckedAnswer | None
) -> tuple[str, ...]:
    """Where the answer comes from: what it cites, first, then what else it was given."""
    first = [] if checked is None else [chunks[place] for place in checked.cited]
    shown = (decisions.trace.chunks[number].shown for number in (*first, *chunks))
    return tuple(dict.fromkeys(shown))


def _options(decisions: Decisions) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "id": option.option_id,
            "sources": [f"{name}#{page}" for name, page in option.sources],
            "best_l2": option.best_l2,
            "text": " ".join(decisions.trace.chunks[option.chunks[0]].full_text.split())[:PREVIEW],
        }
        for option in decisions.options(decisions.trace.cases[0].id)
    )


def _selected_option(
    decisions: Decisions, selected: int, text: str, system: System, record: ResponseRecord
) -> tuple[ResponseFields, ResponseRecord]:
    """The user's choice among the options completes the question (rule S3.7)."""
    decided = _decided_answer(decisions, system, None)
    record = record._replace(offered=decided.options)
    # Refused until everything holds: an unknown option and an answer that a gate stops leave the
    # same fields.
    refused = decided._replace(
        answer=refusal(decisions.language, system.policy.refusal_message),
        sources=(),
        status=Status.refuse,
        options=(),
    )
    try:
        option = decisions.select(decisions.trace.cases[0].id, selected)
    except KeyError:
        reason = decisions.say("invalid_selection", option=selected)
        return refused._replace(refusal_reason=reason), record
    # The hits of an option are no slot of the chain, so the gates on the answer are asked by
    # themselves.
    passages = [decisions.trace.chunks[number] for number in option.chunks]
    checked = check_answer(
        text, passages, system.generator, system.scorer, language=decisions.language
    )
    calibration = system.policy.structure.calibration
    confidence = float(calibrate_confidence(np.array(checked.confidence), calibration))
    checks = tuple(
        answer_checks(
            confidence,
            checked.support,
            checked.claim,
            checked.refused,
            policy_thresholds([system.policy]),
            decisions.language,
        )
    )
    record = record._replace(checks=checks)
    failed = next((check for check in checks if not check.passes), None)
    if failed is not None:
        return refused._replace(refusal_reason=failed.text), record
    sources = _answer_sources(decisions, option.chunks, checked)
    answer = refused._replace(
        answer=checked.text, sources=sources, status=Status.ok, refusal_reason=None
    )
    return answer, record
