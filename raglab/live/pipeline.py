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
from pydantic import TypeAdapter

from raglab.decision import chain
from raglab.decision.checks import Check, answer_checks, error_check
from raglab.decision.decisions import Decisions
from raglab.decision.measurement import add_answers, measured_tables
from raglab.decision.recorded_answers import AnswerKey, calibrate_confidence
from raglab.decision.signal_values import ANSWER_SIGNALS, STORED_SIGNALS, Columns, used_signals
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.live.arm_choice import measures, record_outcome, select_arm
from raglab.live.measured_signals import SIGNAL_FAILURES, answer_places
from raglab.live.requests import Request
from raglab.live.response import (
    PREVIEW_CHARACTERS,
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
from raglab.values import (
    Answers,
    Case,
    FloatArray,
    Hits,
    IntArray,
    ModelUnavailableError,
    Status,
    TraceData,
)
from raglab.words.languages import Reason, refusal, say
from raglab.words.text import is_foreign
from raglab.words.tokeniser import word_count


class StoredAnswer(NamedTuple):
    """What the cache keeps of an answer, and of the way to it what bandit and log ask for again."""

    answer: ResponseFields
    checks: tuple[Check, ...]
    measures: dict[str, float | None]
    offered: tuple[dict[str, Any], ...]


_STORED_ANSWER = TypeAdapter(StoredAnswer)


def answer_request(request: Request, system: System) -> Response:
    """Response of the chain of gates.

    Retrieval, verdict, generation, and the gates on the answer.
    """
    start_time = perf_counter()
    if request.narrowed is not None:
        system = replace(system, generator=request.narrowed.generator(system.generator))
    keys_by_arm = {
        arm: Key(
            policy_id=system.policy.policy_id,
            fingerprint=system.fingerprint,
            arm=arm,
            question=request.text,
            documents=request.documents,
        )
        for arm in system.retriever.strategies
    }
    answer_sources_used: list[Any] = [system.generator.name, system.scorer.name, request.selected]
    answer_sources_used += [function.identity for function in system.signals.functions]
    # warnings and reasons are in it
    answer_sources_used += [request.language] if request.language != "en" else []
    # a group that the policy's model may be biased for
    decision_model = system.policy.structure.decision
    answer_sources_used += (
        () if decision_model is None else decision_model.group_values([request.case()]) or ()
    )
    arm_choice = select_arm(keys_by_arm, answer_sources_used, request, system)
    if request.narrowed is not None:  # what it became is retrieved anew
        system = replace(system, caches=None)
    # The same question to the same arm, policy, index and models has the same answer, whoever asks
    # it.
    answer_key = keys_by_arm[arm_choice.arm]
    caches = system.caches
    answer_digest = answer_key.digest("answer", *answer_sources_used)
    stored_answer = (
        None
        if caches is None
        else caches.answers.get(answer_digest, _STORED_ANSWER.validate_python)
    )
    if stored_answer is not None and stored_answer.answer.policy_id == answer_key.policy_id:
        answer, checks, component_values, offered_options = stored_answer
        record = ResponseRecord(
            answer_cache_hit=True, checks=checks, measures=component_values, offered=offered_options
        )
        request_spans = request_tracing.get()
        if request_spans is not None:
            write_stored_depths(
                partial(_stored_depths, answer_key, system), request_spans, answer_key.arm, system
            )
    else:
        answer, record = _generate_answer(request, answer_key, system)
        # a signal that failed once may be there next time
        if caches is not None and not record.signal_failures:
            check_rows = [
                check._asdict() | {"passes": bool(check.passes)} for check in record.checks
            ]
            stored_parts = (answer._asdict(), check_rows, record.measures, record.offered)
            caches.answers.set(
                answer_digest, dict(zip(StoredAnswer._fields, stored_parts, strict=True))
            )
    # What belongs to this request alone is added after the cache: id, arm and why, its time and its
    # chance.
    answer = answer._replace(
        request_id=request.id, arm=arm_choice.arm, arm_reason=arm_choice.reason
    )
    record = record._replace(
        ms={**record.ms, "total": 1e3 * (perf_counter() - start_time)},
        propensity=arm_choice.propensity,
    )
    response = Response(answer, record)
    if arm_choice.propensity is not None and not arm_choice.rewarded:
        record_outcome(response, system)
    return response


def answer_or_refuse(
    request: Request, system: System, make_response: Callable[[], Response]
) -> Response:
    """The response of `make_response`.

    Where the model fails and the system must answer, a refusal with its `error`.

    Raises:
      ModelUnavailableError: the model failed, and `on_error` of the system is `raise`.

    Source: rule S0.1.
    """
    start_time = perf_counter()
    try:
        return make_response()
    except ModelUnavailableError as error:
        if system.on_error == "raise":
            raise
        text = say(request.language, Reason("ungenerated", {"reason": error.reason}))
        record = ResponseRecord(
            {"total": 1e3 * (perf_counter() - start_time)}, checks=(error_check(text),)
        )
        return unretrieved_response(
            ResponseFields(
                say(request.language, Reason("unavailable")),
                status=Status.refuse,
                refusal_reason=text,
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
    request: Request, answer_key: Key, system: System
) -> tuple[ResponseFields, ResponseRecord]:
    """An answer that no cache holds, and how it came about."""
    if system.signals.functions:
        system = replace(system, signals=system.signals.for_question())
    if _reads_answers(system):
        system = replace(system, generator=SingleGeneration(system.generator))
    decisions, depths, from_cache = _retrieve_depths(request, answer_key, system)
    decisions = replace(decisions, language=request.language)
    stage_ms: dict[str, float] = {}
    for depth in depths:
        for stage_name, spent_ms in depth.ms.items():
            stage_ms[stage_name] = stage_ms.get(stage_name, 0.0) + spent_ms
    # Components of the reward are measured on the hits, whether gates answer or refuse (rule S4.3).
    component_values = measures(decisions.trace, decisions, answer_key.arm)[0].tolist()
    request_evidence = None
    if request.narrowed is not None:
        request_evidence = {
            "query": request.text,
            "documents": [*request.documents],
            "task": request.narrowed.task,
            "arm": answer_key.arm,
            "depths": pack_depths(depths),
            "answer": None,
        }
    record = ResponseRecord(
        stage_ms,
        strategy_cache_hit=from_cache,
        queries=tuple(depth.query for depth in depths),
        measures=dict(
            zip(
                ("margin", "diversity", "consistency"), map(_present, component_values), strict=True
            )
        ),
        retrieved=_hit_statistics(decisions),
        signal_failures=decisions.trace.meta.get(SIGNAL_FAILURES, ()),
        evidence=request_evidence,
    )
    return complete_response(decisions, request.text, request.selected, system, record)


def _reads_answers(system: System) -> bool:
    """Whether a signal of the policy is measured on the answer, before anything is decided."""
    return bool(set(used_signals(system.policy)) & set(ANSWER_SIGNALS)) or any(
        function.needs_answers for function in system.signals.functions
    )


def _present(number: float) -> float | None:
    """The number, None where it is NaN."""
    return None if np.isnan(number) else number


def _hit_statistics(decisions: Decisions) -> dict[str, float | None]:
    """Features of rule S4.2 that only retrieval tells, at the depth that decided.

    For the log, not for a choice.
    """
    hits = decisions.trace.hits
    depth = int(decisions.outcome.depth[0])
    hit_cosines: FloatArray = hits.cosine[0, 0, depth][hits.chunk[0, 0, depth] >= 0]
    if not len(hit_cosines):
        return {"n_hits": 0.0}
    return {
        "n_hits": float(len(hit_cosines)),
        "cosine_best": float(hit_cosines.max()),
        "cosine_mean": float(hit_cosines.mean()),
        "cosine_std": float(hit_cosines.std()),
    }


def _retrieve_depths(
    request: Request, answer_key: Key, system: System
) -> tuple[Decisions, list[DepthHits], bool]:
    """What was retrieved for a question, depth by depth as far as its policy goes.

    Returns: decisions of the gates, the depths, and whether all came from the strategy cache.
    """
    caches = system.caches
    stored_depths = _stored_depths(answer_key, system)
    # names a document that is not there, cached or not
    document_scope = system.retriever.scope(request.documents)
    request_case = request.case()
    thresholds = policy_thresholds([system.policy])
    depths: list[DepthHits] = []
    passes: list[chain.Pass] = []
    decisions: Decisions | None = None
    depth_stream = _depths(request.text, answer_key.arm, stored_depths, document_scope, system)
    request_spans = request_tracing.get()
    if request_spans is not None:
        depth_stream = depths_in_spans(
            depth_stream, request_spans, answer_key.arm, system, len(stored_depths)
        )
    for depth in depth_stream:
        # A trace replays all depths at once; live, a further depth is a whole retrieval, so each is
        # decided first.
        depths.append(depth)
        start_time = perf_counter()
        trace = case_trace(
            request_case,
            answer_key.arm,
            depths,
            system,
            None if decisions is None else decisions.trace,
        )
        depth_tables = measured_tables(trace, system.policy)
        measured_time = perf_counter()
        decisions, is_refining = refine_on_tables(
            depth_tables, trace, system.policy, thresholds, passes
        )
        depth.ms.update(
            evidence=1e3 * (measured_time - start_time),
            gates=1e3 * (perf_counter() - measured_time),
        )
        # The loop goes on past a refusal that another query may mend (rule S2.9).
        if decisions.status[0] != Status.refuse or not is_refining.any():
            break
    assert decisions is not None  # noqa: S101 - a walk has a first depth
    from_cache = 0 < len(depths) <= len(stored_depths)
    if caches is not None and not from_cache:
        caches.strategies.set(
            answer_key.digest("strategy"), {"arm": answer_key.arm, "depths": pack_depths(depths)}
        )
    return decisions, depths, from_cache


def _stored_depths(answer_key: Key, system: System) -> list[DepthHits]:
    """Depths that the strategy cache holds, none without a cache."""
    if system.caches is None:
        return []
    n_chunks = len(system.retriever.chunks)
    stored_depths = system.caches.strategies.get(
        answer_key.digest("strategy"),
        lambda stored_entry: unpack_depths(stored_entry["depths"], n_chunks),
    )
    return stored_depths or []


def _depths(
    question_text: str,
    arm_name: str,
    stored_depths: Sequence[DepthHits],
    document_scope: IntArray | None,
    system: System,
) -> Iterator[DepthHits]:
    """Depths that the cache holds, then those beyond it; no model runs before one is asked for."""
    yield from stored_depths
    new_depths = walk(
        system.retriever.strategies[arm_name],
        system.retriever.question(question_text),
        document_scope,
    )
    yield from islice(new_depths, len(stored_depths), None)


def case_trace(
    case: Case,
    arm_name: str,
    depths: Sequence[DepthHits],
    system: System,
    earlier_trace: TraceData | None = None,
) -> TraceData:
    """Trace of one question, of the depths that were retrieved.

    Args:
      earlier_trace: of the same question with fewer depths: its patterns and the user's signals are
        not measured again.
    """
    hits = Hits._make(
        np.concatenate(depth_fields, axis=2)
        for depth_fields in zip(*(depth.hits for depth in depths), strict=True)
    )
    # Only chunks that were hit travel with the trace, so that its size is that of the question.
    chunk_positions = np.unique(hits.chunk[hits.chunk >= 0])
    chunks, hits, vectors = restrict_to_hits(
        system.retriever.chunks, system.retriever.indexes.vectors, hits
    )
    entities = tuple(system.entities[int(chunk_position)] for chunk_position in chunk_positions)
    # the question is the same at every depth
    if earlier_trace is not None and earlier_trace.pattern_hits is not None:
        pattern_counts = earlier_trace.pattern_hits._replace(chunk_entities=entities)
    else:
        pattern_counts = pattern_hits(
            [case], chunks, system.policy.pattern_lists, entities, system.policy.patterns.digest
        )
    question_trace = TraceData(
        cases=(case,),
        chunks=chunks,
        arms=(arm_name,),
        hits=hits,
        pattern_hits=pattern_counts,
        meta={"fingerprint": system.fingerprint},
        vectors=vectors,
    )
    # Parser, generator and functions take longer than all gates together: they run where the policy
    # asks for them.
    used_names, signal_columns, depth_answers = set(used_signals(system.policy)), Columns(), None
    if used_names & set(STORED_SIGNALS):
        for signal_family in system.reader.measuring(used_names):
            signal_columns |= signal_family.columns(question_trace)
    if _reads_answers(system):
        depth_answers = _answers_to_all_hits(question_trace, system)
        calibration = system.policy.structure.calibration
        answer_rows = {
            "generation": calibrate_confidence(depth_answers.confidence, calibration),
            "support": depth_answers.support,
        }
        for signal_name in ANSWER_SIGNALS if used_names & set(ANSWER_SIGNALS) else ():
            signal_columns[signal_name] = np.full(hits.chunk.shape[:3], np.nan)
            if signal_name in answer_rows:
                signal_columns[signal_name][0, 0, depth_answers.depth] = answer_rows[signal_name]
    if system.signals.functions:
        function_columns, failures = system.signals.measured(
            question_trace, system.policy.structure, depth_answers, earlier_trace
        )
        signal_columns |= function_columns
        declarations = {
            function.name: declaration(function.declared) for function in system.signals.functions
        }
        meta = {**question_trace.meta, "signals": declarations, SIGNAL_FAILURES: failures}
        question_trace = replace(question_trace, meta=meta)
    return replace(question_trace, columns=signal_columns) if signal_columns else question_trace


def _answers_to_all_hits(trace: TraceData, system: System) -> Answers:
    """The answer to all hits of each depth, which signals of the answer are measured on."""
    answer_keys = []
    checked_answers = []
    for depth, hit_places in enumerate(answer_places(trace, 0, system.policy.structure)[0]):
        chunk_numbers = tuple(
            int(chunk_number)
            for chunk_number in trace.hits.chunk[0, 0, depth][hit_places]
            if chunk_number >= 0
        )
        if chunk_numbers:
            passages = [trace.chunks[chunk_number] for chunk_number in chunk_numbers]
            answer_keys.append(AnswerKey(case=0, arm=0, depth=depth, chunks=chunk_numbers))
            checked_answers.append(
                check_answer(trace.cases[0].query, passages, system.generator, system.scorer)
            )
    return answer_sets(answer_keys, checked_answers, system.generator.name, system.scorer.name)


def complete_response(
    decisions: Decisions,
    question_text: str,
    selected_option: int | None,
    system: System,
    record: ResponseRecord,
) -> tuple[ResponseFields, ResponseRecord]:
    """What follows on retrieval: the choice among options, generation, and the gates on the answer.

    Args:
      decisions: of the one question, as far as retrieval goes.
      selected_option: the option that the user chose.
      record: so far; its ms are added to.

    Returns: the answer but for its arm and request; and how it came about.
    """
    if selected_option is not None:
        return _selected_option(decisions, selected_option, question_text, system, record)
    case_id = decisions.trace.cases[0].id
    if decisions.status[0] != Status.ok:
        return _decided_answer(decisions, system, None), record._replace(
            checks=tuple(decisions.explain(case_id))
        )
    stage_ms = dict(record.ms)
    chunk_numbers = decisions.chunks_of_decision(0)
    passages = [decisions.trace.chunks[chunk_number] for chunk_number in chunk_numbers]
    checked_answer = check_answer(
        question_text,
        passages,
        system.generator,
        system.scorer,
        stage_ms=stage_ms,
        language=decisions.language,
    )
    # The answer becomes the recorded one of its set of hits, so that its gates are the replay's and
    # not a second copy.
    start_time = perf_counter()
    answer_key = AnswerKey(
        case=0, arm=0, depth=int(decisions.outcome.depth[0]), chunks=chunk_numbers
    )
    answers = answer_sets([answer_key], [checked_answer], system.generator.name, system.scorer.name)
    trace = replace(decisions.trace, answers=answers)
    answered_tables = add_answers(decisions.tables, trace, system.policy.structure)
    final_decisions = replace(
        decide_on_tables(answered_tables, trace, system.policy, decisions.thresholds),
        language=decisions.language,
    )
    stage_ms["gates"] = stage_ms.get("gates", 0.0) + 1e3 * (perf_counter() - start_time)
    # Of an answer that leaves, its optional components are measured too; a refusal has neither.
    component_values = dict(record.measures)
    if component_values and final_decisions.status[0] == Status.ok:
        component_values["brevity"] = float(answer_brevity(word_count(checked_answer.text)))
        component_values["logprob"] = _present(checked_answer.confidence)
    if record.evidence is not None:
        answer_row = checked_answer._asdict() | {
            "chunks": list(chunk_numbers),
            "depth": answer_key.depth,
            "cited": list(checked_answer.cited),
        }
        record = record._replace(evidence={**record.evidence, "answer": answer_row})
    record = record._replace(
        ms=stage_ms, checks=tuple(final_decisions.explain(case_id)), measures=component_values
    )
    return _decided_answer(final_decisions, system, checked_answer), record


def _decided_answer(
    decisions: Decisions, system: System, checked_answer: CheckedAnswer | None
) -> ResponseFields:
    """What a decision says; `checked_answer` is the text that the gates read, None without one."""
    status = Status(int(decisions.status[0]))
    is_refused = status == Status.refuse
    sources = tuple[str, ...]()
    if status == Status.ok:
        sources = _answer_sources(decisions, decisions.chunks_of_decision(0), checked_answer)
    answer_text = None if checked_answer is None else checked_answer.text
    failure_reasons = [*decisions.trace.meta.get(SIGNAL_FAILURES, ())]
    trace = decisions.trace
    encoder_name = system.retriever.encoder.name
    passages = (
        trace.chunks[chunk_number].full_text
        for chunk_number in np.unique(trace.hits.chunk[0])
        if chunk_number >= 0
    )
    if encoder_name.startswith(f"{BUNDLED}==") and is_foreign(trace.cases[0].query, passages):
        failure_reasons.append(Reason("foreign"))
    return ResponseFields(
        refusal(decisions.language, system.policy.refusal_message) if is_refused else answer_text,
        sources,
        status,
        refusal_reason=decisions.reason(0) if is_refused else None,
        options=_options(decisions),
        warnings=(
            *decisions.warnings(0),
            *dict.fromkeys(
                say(decisions.language, failure_reason) for failure_reason in failure_reasons
            ),
        ),
        confidence=float(decisions.confidence()[0]),
        route=decisions.route(0),
        policy_id=system.policy.policy_id,
    )


def _answer_sources(
    decisions: Decisions, chunk_numbers: Sequence[int], checked_answer: CheckedAnswer | None
) -> tuple[str, ...]:
    """Where the answer comes from: what it cites, first, then what else it was given."""
    chunks = (
        []
        if checked_answer is None
        else [chunk_numbers[cited_position] for cited_position in checked_answer.cited]
    )
    names = (
        decisions.trace.chunks[chunk_number].shown for chunk_number in (*chunks, *chunk_numbers)
    )
    return tuple(dict.fromkeys(names))


def _options(decisions: Decisions) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "id": option.option_id,
            "sources": [
                f"{document_name}#{page_number}" for document_name, page_number in option.sources
            ],
            "best_l2": option.best_l2,
            "text": " ".join(decisions.trace.chunks[option.chunks[0]].full_text.split())[
                :PREVIEW_CHARACTERS
            ],
        }
        for option in decisions.options(decisions.trace.cases[0].id)
    )


def _selected_option(
    decisions: Decisions, option_id: int, question_text: str, system: System, record: ResponseRecord
) -> tuple[ResponseFields, ResponseRecord]:
    """The user's choice among the options completes the question (rule S3.7)."""
    decided_fields = _decided_answer(decisions, system, None)
    record = record._replace(offered=decided_fields.options)
    # Refused until everything holds: an unknown option and an answer that a gate stops leave the
    # same fields.
    refused_fields = decided_fields._replace(
        answer=refusal(decisions.language, system.policy.refusal_message),
        sources=(),
        status=Status.refuse,
        options=(),
    )
    try:
        chosen_option = decisions.select(decisions.trace.cases[0].id, option_id)
    except KeyError:
        refusal_reason = decisions.say("invalid_selection", option=option_id)
        return refused_fields._replace(refusal_reason=refusal_reason), record
    # The hits of an option are no slot of the chain, so the gates on the answer are asked by
    # themselves.
    passages = [decisions.trace.chunks[chunk_number] for chunk_number in chosen_option.chunks]
    checked_answer = check_answer(
        question_text, passages, system.generator, system.scorer, language=decisions.language
    )
    calibration = system.policy.structure.calibration
    confidence = float(calibrate_confidence(np.array(checked_answer.confidence), calibration))
    gate_checks = tuple(
        answer_checks(
            confidence,
            checked_answer.support,
            checked_answer.claim,
            checked_answer.refused,
            policy_thresholds([system.policy]),
            decisions.language,
        )
    )
    record = record._replace(checks=gate_checks)
    failed_check = next((check for check in gate_checks if not check.passes), None)
    if failed_check is not None:
        return refused_fields._replace(refusal_reason=failed_check.text), record
    sources = _answer_sources(decisions, chosen_option.chunks, checked_answer)
    answer = refused_fields._replace(
        answer=checked_answer.text, sources=sources, status=Status.ok, refusal_reason=None
    )
    return answer, record
