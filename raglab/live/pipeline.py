"""Pipeline (shore): question by arm, depth, gates, generation, answer gates (S2.9, S2.12).

The gates are those of the replay, over a trace of this one question, so that a question asked live
is decided as a stored trace would decide it. Caches stand before retrieval and before the whole
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.audit.log import check_from_json, check_to_json
from raglab.decision import chain
from raglab.decision.checks import answer_checks
from raglab.decision.decisions import Decisions
from raglab.decision.measurement import add_answers, measured_tables
from raglab.decision.recorded_answers import AnswerKey, calibrate_confidence
from raglab.decision.signal_values import ANSWERED, Columns, used_signals
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.live.arm_choice import measures, record_outcome, select_arm
from raglab.live.measured_signals import FAILURES, answer_places
from raglab.live.requests import Request
from raglab.live.response import (
    KEYS,
    PREVIEW,
    CheckedAnswer,
    Response,
    ResponseRecord,
    SingleGeneration,
    answer_sets,
    check_answer,
)
from raglab.live.signal_families import document_signals
from raglab.live.system import Key, StoredAnswer, System, pack_depths, unpack_depths
from raglab.live.telemetry import depths_in_spans, write_stored_depths
from raglab.live.trace_building import restrict_to_hits
from raglab.policy_parts.patterns import pattern_hits
from raglab.replay import decide_on_tables, refine_on_tables
from raglab.resolver import INVALID_SELECTION
from raglab.retrieval.arms import DepthHits, walk
from raglab.reward import answer_brevity
from raglab.values import Answers, Case, Hits, Status, TraceData
from raglab.words.languages import retold
from raglab.words.tokeniser import word_count


def answer_request(request: Request, system: System) -> Response:
    """Response of the chain of gates.

    Retrieval, verdict, generation, and the gates on the answer.
    """
    start = perf_counter()
    system = _with_task(request, system)
    keys = {arm: _key(arm, request, system) for arm in system.retriever.strategies}
    made_by = (
        system.generator.name,
        system.scorer.name,
        request.selected,
        *system.signals.identities,
    )
    # warnings and reasons are in it
    made_by = (*made_by, *((request.language,) if request.language != "en" else ()))
    made_by = (*made_by, *_decided_groups(request, system))
    choice = select_arm(keys, made_by, request, system)
    # The same question to the same arm, policy, index and models has the same answer, whoever asks
    # it.
    # what it became is retrieved anew
    key, caches = keys[choice.arm], None if request.narrowed else system.caches
    digest = key.digest("answer", *made_by)
    cached_answer = (
        None
        if caches is None
        else caches.answers.get(digest, partial(_cached_answer, system.policy.policy_id))
    )
    if cached_answer is not None:
        fields, account = cached_answer
        write_stored_depths(partial(_stored_depths, key, system), key.arm, system)
    else:
        fields, account = _generate_answer(request, key, system)
        fields |= {"policy_id": system.policy.policy_id}
        # a signal that failed once may be there next time
        if caches is not None and not account.signal_failures:
            caches.answers.set(digest, fields | _cached_with(account))
    # What belongs to this request alone is added after the cache: id, arm and why, its time and its
    # chance.
    identity = {"request_id": request.id, "arm": choice.arm, "arm_reason": choice.reason}
    ms = {**account.ms, "total": 1e3 * (perf_counter() - start)}
    response = Response(
        {**fields, **identity}, account._replace(ms=ms, propensity=choice.propensity)
    )
    if choice.propensity is not None and not choice.rewarded:
        record_outcome(response, system)
    return response


def _decided_groups(request: Request, system: System) -> tuple[str, ...]:
    """Group of a request that the policy's model may be biased for, so the answer depends on it."""
    model = system.policy.structure.decision
    return () if model is None else model.group_values([request.case()]) or ()


def _cached_with(account: ResponseRecord) -> dict[str, Any]:
    """What the cache keeps of the way to an answer, as JSON values.

    What the bandit and the log ask for again.
    """
    return {
        "measures": account.measures,
        "offered": account.offered,
        "checks": [*map(check_to_json, account.checks)],
    }


# any JSON
def _cached_answer(
    policy_id: str,
    stored_answer: Any,  # noqa: ANN401
) -> tuple[dict[str, Any], ResponseRecord]:
    """What the cache holds of an answer and of the way to it, which took no time.

    Raises:
      ValueError, TypeError, KeyError: it is no answer of this policy.
    """
    if StoredAnswer.model_validate(stored_answer).policy_id != policy_id:
        msg = f"a stored answer must be of the policy {policy_id}."
        raise ValueError(msg)
    return stored_answer, ResponseRecord(
        answer_cache_hit=True,
        checks=tuple(map(check_from_json, stored_answer["checks"])),
        measures=stored_answer["measures"],
        offered=stored_answer["offered"],
    )


def _generate_answer(
    request: Request, key: Key, system: System
) -> tuple[dict[str, Any], ResponseRecord]:
    """Fields of an answer that no cache holds, and how it came about."""
    if set(used_signals(system.policy)) & set(ANSWERED) or system.signals.read_answers:
        system = replace(system, generator=SingleGeneration(system.generator))
    if request.narrowed:
        system = replace(system, caches=None)
    retrieval = _retrieve_depths(request, key, system)
    decisions = replace(retrieval.decisions, language=request.language)
    ms: dict[str, float] = {}
    for depth in retrieval.depths:
        for stage, spent in depth.ms.items():
            ms[stage] = ms.get(stage, 0.0) + spent
    # Components of the reward are measured on the hits, whether gates answer or refuse (rule S4.3).
    row = measures(decisions.trace, decisions, key.arm)[0].tolist()
    account = ResponseRecord(
        ms,
        strategy_cache_hit=retrieval.cached,
        queries=tuple(depth.query for depth in retrieval.depths),
        measures=dict(zip(("margin", "diversity", "consistency"), map(_present, row), strict=True)),
        retrieved=_hit_statistics(decisions),
        signal_failures=decisions.trace.meta.get(FAILURES, ()),
        evidence=_request_evidence(request, key.arm, retrieval.depths)
        if request.narrowed
        else None,
    )
    return complete_response(decisions, request.text, request.selected, system, account)


def fields_response(
    request: Request, fields: Mapping[str, Any], system: System, record: ResponseRecord
) -> Response:
    """Response that no arm retrieved for.

    A field that is not stated is None or empty, its status `ok`.
    """
    stated = dict.fromkeys(KEYS) | {
        "sources": [],
        "status": Status.ok.name,
        "options": [],
        "warnings": [],
        "policy_id": system.policy.policy_id,
        "request_id": request.id,
        **fields,
    }
    return Response(stated | {"refused": stated["status"] == Status.refuse.name}, record)


def _key(arm: str, request: Request, system: System) -> Key:
    """What the answer of an arm to a request hangs on."""
    return Key(
        policy_id=system.policy.policy_id,
        fingerprint=system.fingerprint,
        arm=arm,
        question=request.text,
        documents=request.documents,
    )


def _request_evidence(request: Request, arm: str, depths: Sequence[DepthHits]) -> dict[str, Any]:
    """What a clarified request was and retrieved, as JSON values."""
    narrowed = request.narrowed
    task = "" if narrowed is None else narrowed.task
    request_fields = {
        "query": request.text,
        "documents": list(request.documents),
        "task": task,
        "arm": arm,
    }
    return request_fields | {"depths": pack_depths(depths), "answer": None}


def _with_task(request: Request, system: System) -> System:
    """System whose generator answers the narrower question, if the request is one, by its task."""
    narrowed = request.narrowed
    return (
        system
        if narrowed is None
        else replace(system, generator=narrowed.generator(system.generator))
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


class Retrieval(NamedTuple):
    """What was retrieved for a question, by depth as far as its policy goes, and the gates' view.

    cached: whether every depth came from the strategy cache.
    """

    decisions: Decisions
    depths: list[DepthHits]
    cached: bool


def _retrieve_depths(request: Request, key: Key, system: System) -> Retrieval:
    """Retrieval depth by depth, as far as the policy goes; from the cache where it is there."""
    caches, stored = system.caches, _stored_depths(key, system)
    # names a document that is not there, cached or not
    scope = system.retriever.scope(request.documents)
    case = request.case()
    thresholds = policy_thresholds([system.policy])
    depths: list[DepthHits] = []
    passes: list[chain.Pass] = []
    decisions: Decisions | None = None
    walked = _depths(request.text, key.arm, stored, scope, system)
    for depth in depths_in_spans(walked, key.arm, system, len(stored)):
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
    return Retrieval(decisions, depths, cached)


def _stored_depths(key: Key, system: System) -> list[DepthHits]:
    """Depths that the strategy cache holds, none where there is no cache."""
    n_chunks = len(system.retriever.chunks)
    read = lambda entry: unpack_depths(entry["depths"], n_chunks)  # noqa: E731 - of one use
    return (
        []
        if system.caches is None
        else system.caches.strategies.get(key.digest("strategy"), read) or []
    )


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
    used, signals = set(used_signals(system.policy)), system.signals
    columns = document_signals(trace, system.reader, used)
    answers = (
        _answers_to_all_hits(trace, system)
        if used & set(ANSWERED) or signals.read_answers
        else None
    )
    if answers is not None and used & set(ANSWERED):
        columns |= _answer_columns(trace, answers, system)
    if not signals.functions:
        return replace(trace, columns=columns) if columns else trace
    signal_columns, failures = signals.measured(trace, system.policy.structure, answers, earlier)
    meta = {**trace.meta, "signals": signals.declarations, FAILURES: failures}
    return replace(trace, columns=columns | signal_columns, meta=meta)


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


def _answer_columns(trace: TraceData, answers: Answers, system: System) -> Columns:
    """Signals of those answers, by name, [1, 1, D]: what a trace has of recorded ones."""
    columns = {name: np.full(trace.hits.chunk.shape[:3], np.nan) for name in ANSWERED}
    calibration = system.policy.structure.calibration
    columns["generation"][0, 0, answers.depth] = calibrate_confidence(
        answers.confidence, calibration
    )
    columns["support"][0, 0, answers.depth] = answers.support
    return columns


def complete_response(
    decisions: Decisions, text: str, selected: int | None, system: System, account: ResponseRecord
) -> tuple[dict[str, Any], ResponseRecord]:
    """What follows on retrieval: the choice among options, generation, and the gates on the answer.

    Args:
      decisions: of the one question, as far as retrieval goes.
      selected: the option that the user chose.
      account: so far; its ms are added to.

    Returns: the response's fields but for arm, policy and request; and how they came about.
    """
    if selected is not None:
        return _selected_option(decisions, selected, text, system, account)
    case_id = decisions.trace.cases[0].id
    if decisions.status[0] != Status.ok:
        return _response_fields(decisions, system, None), account._replace(
            checks=tuple(decisions.explain(case_id))
        )
    ms = dict(account.ms)
    chunks = decisions.chunks_of_decision(0)
    passages = [decisions.trace.chunks[number] for number in chunks]
    answer = check_answer(text, passages, system.generator, system.scorer, ms=ms)
    # The answer becomes the recorded one of its set of hits, so that its gates are the replay's and
    # not a second copy.
    start = perf_counter()
    key = AnswerKey(case=0, arm=0, depth=int(decisions.outcome.depth[0]), chunks=chunks)
    answers = answer_sets([key], [answer], system.generator.name, system.scorer.name)
    trace = replace(decisions.trace, answers=answers)
    measured = add_answers(decisions.tables, trace, system.policy.structure)
    final = decide_on_tables(measured, trace, system.policy, decisions.thresholds)
    final = replace(final, language=decisions.language)
    ms["gates"] = ms.get("gates", 0.0) + 1e3 * (perf_counter() - start)
    # Of an answer that leaves, its optional components are measured too; a refusal has neither.
    parts = {
        "brevity": float(answer_brevity(word_count(answer.text))),
        "logprob": _present(answer.confidence),
    }
    more = parts if account.measures and final.status[0] == Status.ok else {}
    if account.evidence is not None:
        answer_record = answer._asdict() | {
            "chunks": list(chunks),
            "depth": key.depth,
            "cited": list(answer.cited),
        }
        account = account._replace(evidence={**account.evidence, "answer": answer_record})
    account = account._replace(
        ms=ms, checks=tuple(final.explain(case_id)), measures={**account.measures, **more}
    )
    return _response_fields(final, system, answer), account


def _response_fields(
    decisions: Decisions, system: System, generated: CheckedAnswer | None
) -> dict[str, Any]:
    status = Status(int(decisions.status[0]))
    refused = status == Status.refuse
    failed = decisions.trace.meta.get(FAILURES, ())
    answer = (
        decisions.say(system.policy.refusal_message)
        if refused
        else generated.text
        if generated is not None
        else None
    )
    return {
        "answer": answer,
        "sources": []
        if status != Status.ok
        else _answer_sources(decisions, decisions.chunks_of_decision(0), generated),
        "status": status.name,
        "refused": refused,
        "refusal_reason": decisions.reason(0) if refused else None,
        "options": _options(decisions),
        "warnings": [
            *decisions.warnings(0),
            *(retold(failure, decisions.language) for failure in failed),
        ],
        "confidence": float(decisions.confidence()[0]),
        "route": decisions.route(0),
        "clarification": None,
        "default_applied": None,
        "error": None,
    }


def _answer_sources(
    decisions: Decisions, chunks: Sequence[int], generated: CheckedAnswer | None
) -> list[str]:
    """Where the answer comes from: what it cites, first, then what else it was given."""
    first = [] if generated is None else [chunks[place] for place in generated.cited]
    return list(dict.fromkeys(decisions.trace.chunks[number].shown for number in (*first, *chunks)))


def _options(decisions: Decisions) -> list[dict[str, Any]]:
    return [
        {
            "id": option.option_id,
            "sources": [f"{name}#{page}" for name, page in option.sources],
            "best_l2": option.best_l2,
            "text": " ".join(decisions.trace.chunks[option.chunks[0]].full_text.split())[:PREVIEW],
        }
        for option in decisions.options(decisions.trace.cases[0].id)
    ]


def _selected_option(
    decisions: Decisions, selected: int, text: str, system: System, account: ResponseRecord
) -> tuple[dict[str, Any], ResponseRecord]:
    """The user's choice among the options completes the question (rule S3.7)."""
    account = account._replace(offered=tuple(_options(decisions)))
    # Refused until everything holds: an unknown option and an answer that a gate stops leave the
    # same fields.
    fields = _response_fields(decisions, system, None) | {
        "options": [],
        "status": "refuse",
        "refused": True,
        "sources": [],
    }
    fields["answer"] = decisions.say(system.policy.refusal_message)
    try:
        option = decisions.select(decisions.trace.cases[0].id, selected)
    except KeyError:
        return fields | {
            "refusal_reason": decisions.say(INVALID_SELECTION, option=selected)
        }, account
    # The hits of an option are no slot of the chain, so the gates on the answer are asked by
    # themselves.
    passages = [decisions.trace.chunks[number] for number in option.chunks]
    answer = check_answer(text, passages, system.generator, system.scorer)
    confidence = float(
        calibrate_confidence(np.array(answer.confidence), system.policy.structure.calibration)
    )
    thresholds = policy_thresholds([system.policy])
    measurements = (confidence, answer.support, answer.claim, answer.refused)
    checks = tuple(answer_checks(*measurements, thresholds, decisions.language))
    failed = next((check for check in checks if not check.passes), None)
    if failed is not None:
        return fields | {"refusal_reason": failed.text}, account._replace(checks=checks)
    sources = _answer_sources(decisions, option.chunks, answer)
    ok = {
        "status": "ok",
        "refused": False,
        "refusal_reason": None,
        "answer": answer.text,
        "sources": sources,
    }
    return fields | ok, account._replace(checks=checks)
