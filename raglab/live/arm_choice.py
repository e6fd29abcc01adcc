"""Choice of an arm (shore): router, context features, measured rewards, feedback (S4.1 to S4.4).

Rewards are measured by component.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import gates
from raglab.bandit.environments import Table
from raglab.decision.decisions import Decisions
from raglab.decision.measurement import policy_pattern_hits
from raglab.decision.signal_values import Intent, intent
from raglab.decision.threshold_arrays import intent_thresholds
from raglab.decision.trace_view import Measured
from raglab.live.measured_signals import SIGNAL_STAGE
from raglab.live.online_bandit import OPTIONAL_FEATURES, ArmChoice, Features
from raglab.live.requests import Request
from raglab.live.response import Response
from raglab.live.system import BANDIT, Key, System
from raglab.policy import PolicyData
from raglab.policy_parts.arms import ARMS
from raglab.policy_parts.patterns import entities_in
from raglab.replay import decide_policies
from raglab.retrieval.arms import Sizes, check_arm
from raglab.retrieval.indexes import Indexes, Queries
from raglab.reward import (
    COMPONENTS,
    REWARD_BUDGET_MS,
    RewardWeights,
    hit_diversity,
    rank_consistency,
    reward,
    score_margin,
)
from raglab.store.database import UnwritableLogError
from raglab.values import BoolArray, FloatArray, Status, TraceData, WholeArray, refuse
from raglab.words.text import content_words

if TYPE_CHECKING:
    import pandas as pd


def default_arm(question: str, system: System) -> tuple[str, str]:
    """The arm that answers a question, and why, without a bandit.

    Where one is wanted, the router stands in for it.

    Source: rules S4.1, S4.7: the router is the source's own, simple → hybrid, complex → iterative,
      flagged → its arm.

    Raises:
      ValueError: the index lacks the arm.
      MissingExtensionError: the room of the arm is not installed.
    """
    arm_strategies = system.retriever.strategies
    wanted_arm = system.arm or system.policy.strategy.arm
    if wanted_arm == "bandit":
        arm, reason = route_arm(question, system.policy, tuple(arm_strategies))
        return arm, f"bandit {'off' if system.online is None else 'not asked'}, {reason}"
    if wanted_arm != "router":
        check_arm(wanted_arm, arm_strategies)
        return wanted_arm, f"{'chosen' if system.arm else 'policy'}: {wanted_arm}"
    return route_arm(question, system.policy, tuple(arm_strategies))


def route_arm(question: str, policy: PolicyData, arms: Sequence[str]) -> tuple[str, str]:
    """The source's router over the arms that there are (rule S4.7), and why."""
    question_intent, intent_margins = _question_intent(question, policy)
    # An intent that reaches its threshold has an arm of its own; of two the one further above it.
    intent_arms = {
        arm_name: intent_flag
        for arm_name in arms
        if (intent_flag := _own_intent(arm_name))
        and gates.meets_threshold(getattr(intent_margins, intent_flag))
    }

    def reasons(intent_score: str) -> str:
        return ", ".join(question_intent.reasons.get(intent_score, ()))

    if intent_arms:
        flagged_arm = min(
            intent_arms,
            key=lambda arm_name: (-float(getattr(intent_margins, intent_arms[arm_name])), arm_name),
        )
        intent_flag = intent_arms[flagged_arm]
        intent_score = getattr(question_intent, intent_flag)
        return (
            flagged_arm,
            f"router: {intent_flag} intent {intent_score:.2f} ({reasons(intent_flag)})",
        )
    complexity = question_intent.complexity
    if gates.meets_threshold(intent_margins.complexity) and "iterative" in arms:
        return "iterative", f"router: complexity {complexity:.2f} ({reasons('complexity')})"
    arm_name = "hybrid" if "hybrid" in arms else arms[0]
    return arm_name, f"router: simple question, complexity {complexity:.2f}"


def _question_intent(question: str, policy: PolicyData) -> tuple[Intent, gates.IntentMargins]:
    """Intent scores of a question, and how far they are above the policy's thresholds."""
    intent_scores = intent(question)
    return intent_scores, gates.intent_margins(
        intent_scores.graph,
        intent_scores.table,
        intent_scores.complexity,
        intent_thresholds(policy),
    )


def wants_bandit(system: System) -> bool:
    """Whether a bandit chooses the arm: where it is wanted, and not switched off."""
    return (system.arm or system.policy.strategy.arm) == "bandit" and system.online is not None


def components(
    trace: TraceData, policy: PolicyData, *, budget_ms: float = REWARD_BUDGET_MS
) -> pd.DataFrame:
    """Reward components and outcome of each case under each arm, at the policy's decision depth.

    `cache_hit` is 0 throughout: a trace retrieves once and caches nothing. The components do not
    depend on whether the gates answered or refused, only on what was retrieved.

    Args:
      trace: with the embeddings of its chunks and its latencies, as `build_trace` makes it.
      budget_ms: of a question; `latency_ratio` is in units of it.

    Returns: a row a case and arm, cases outside, arms inside: `case_id`, `split`, `arm`, `depth`,
      `margin`, `diversity`, `latency_ratio`, `cache_hit`, `consistency`, `ms`, `status`, `right`
      (the contract of rule S6.3).

    Raises:
      ValueError: the trace lacks embeddings or latencies, or the budget is not above 0.

    Source: rules S1.3, S4.3.
    """
    import pandas as pd

    if not budget_ms > 0.0:
        refuse("budget_ms must be above 0", f"{budget_ms:g}", "correct it")
    # Each arm is decided as if it alone answered: full information, from which any learner can be
    # replayed.
    arm_frames = []
    measured_trace = Measured(trace)
    for arm in trace.arms:
        (decisions,) = decide_policies(measured_trace, [policy], arm)
        latency_ms = retrieval_ms(trace, decisions, arm)
        margins, diversities, consistencies = measures(trace, decisions, arm).T
        arm_frames.append(
            pd.DataFrame(
                {
                    "case_id": [case.id for case in trace.cases],
                    "split": [case.split for case in trace.cases],
                    "arm": arm,
                    "depth": decisions.outcome.depth,
                    "margin": margins,
                    "diversity": diversities,
                    "latency_ratio": latency_ms / budget_ms,
                    "cache_hit": 0.0,
                    "consistency": consistencies,
                    "ms": latency_ms,
                    "status": [Status(int(status_code)).name for status_code in decisions.status],
                    "right": decisions.right,
                }
            )
        )
    # made arm by arm, read case by case; a stable sort keeps the arms' order within a case
    return pd.concat(arm_frames).sort_index(kind="stable", ignore_index=True)


def measures(trace: TraceData, decisions: Decisions, arm: str) -> FloatArray:
    """Margin, diversity and consistency of one arm at the depth that decided, [Q, 3].

    Margin is between the two best scores of all hits that were reranked; diversity is of the first
    `final_k` hits in the arm's order; consistency compares the fused order with the reranked one
    over the hits that were reranked.

    Raises:
      ValueError: the trace lacks the embeddings of its chunks.

    Source: rule S4.3.
    """
    if trace.vectors is None:
        refuse("components need the embeddings of the chunks", "none", "build the trace again")
    case_indices = np.arange(len(trace))
    arm_index = trace.arm(arm)
    hits = type(trace.hits)(
        *[hit_field[case_indices, arm_index, decisions.outcome.depth] for hit_field in trace.hits]
    )
    rank_order = np.argsort(
        np.where(hits.rank >= 0, hits.rank, np.iinfo(np.int32).max), axis=1, kind="stable"
    )
    hit_positions = np.arange(rank_order.shape[1])
    score_fields = (hits.chunk, hits.s_hybrid, hits.s_rerank)
    chunks, fused_scores, rerank_scores = (
        np.take_along_axis(hit_field, rank_order, axis=1) for hit_field in score_fields
    )
    is_present: BoolArray = np.asarray(chunks) >= 0
    not_reranked = hits.n_reranked[:, None] == 0  # then margin and consistency are missing
    is_reranked = is_present & (not_reranked | (hit_positions < hits.n_reranked[:, None]))
    is_first = is_present & (hit_positions < decisions.policy.chosen.final_k)
    n_first = int(is_first.sum(axis=1).max(initial=0))
    fallback_scores = np.where(not_reranked, np.nan, -1.0 * hit_positions)
    return np.stack(
        [
            score_margin(rerank_scores, is_reranked),
            hit_diversity(trace.vectors[chunks[:, :n_first]], is_first[:, :n_first]),
            rank_consistency(
                fused_scores, np.broadcast_to(fallback_scores, fused_scores.shape), is_reranked
            ),
        ],
        axis=1,
    )


def retrieval_ms(trace: TraceData, decisions: Decisions, arm: str) -> FloatArray:
    """Milliseconds of retrieval down to the depth that decided, [Q]; NaN where a depth has none.

    Raises:
      ValueError: the trace lacks latencies.
    """
    if trace.latency is None:
        refuse("latency_ratio needs the latencies of retrieval", "none", "build the trace again")
    stage_indices = [
        stage_index
        for stage_index, stage_name in enumerate(trace.latency.stages)
        if not stage_name.startswith(SIGNAL_STAGE)
    ]
    stage_ms = trace.latency.ms[:, trace.arm(arm)][..., stage_indices]
    # not measured is not free
    depth_ms = np.where(np.isnan(stage_ms).all(axis=2), np.nan, np.nansum(stage_ms, axis=2))
    cumulative_ms = np.cumsum(depth_ms, axis=1)
    total_ms: FloatArray = cumulative_ms[np.arange(len(trace)), decisions.outcome.depth]
    return total_ms


ROUTER_FEATURES = (
    "intercept",
    "words",
    "entities",
    "graph",
    "table",
    "complexity",
    "documents",
    "path",
)
_FILE_NAME = re.compile(r"\b[\w-]{1,100}\.(?:md|pdf|csv|txt|docx?|xlsx?|html?)\b", re.IGNORECASE)


def table(
    trace: TraceData,
    policy: PolicyData,
    weights: RewardWeights = RewardWeights(),  # noqa: B008 - a tuple
    *,
    budget_ms: float = REWARD_BUDGET_MS,
    measured: pd.DataFrame | None = None,
) -> Table:
    """Full information on a trace.

    `value` is the right decision, 0 or 1, `reward` what the learner sees of it.

    An arm is available where rule S4.1 says so: `graph` and `table` only on the question's intent.

    Args:
      measured: what `components` says of the same trace and policy, if known: other
        weights re-score it.

    Raises:
      ValueError: `measured` is of another trace.

    Source: rules S4.1, S4.7.
    """
    component_frame = (
        components(trace, policy, budget_ms=budget_ms) if measured is None else measured
    )
    table_shape = (len(trace), len(trace.arms))
    case_arms = [(case.id, arm) for case in trace.cases for arm in trace.arms]
    if list(zip(component_frame["case_id"], component_frame["arm"], strict=True)) != case_arms:
        refuse(
            f"measured must be {len(case_arms)} components of this trace",
            f"{len(component_frame)} of another",
            "measure again",
        )
    return Table(
        arms=trace.arms,
        value=component_frame["right"].to_numpy(np.float64).reshape(table_shape),
        reward=np.asarray(reward(component_frame, weights), dtype=np.float64).reshape(table_shape),
        mask=np.array(
            [available(case.query, policy, trace.arms) for case in trace.cases], dtype=bool
        ).reshape(table_shape),
        features=case_features(trace, policy),
        feature_names=ROUTER_FEATURES,
        ms=component_frame["ms"].to_numpy(np.float64).reshape(table_shape),
    )


def available(question: str, policy: PolicyData, arms: Sequence[str]) -> BoolArray:
    """Which arms may answer a question, [A].

    One with an intent, as `graph`, only where that reaches (rule S4.1).
    """
    _, intent_margins = _question_intent(question, policy)
    arm_flags = map(_own_intent, arms)
    return np.array(
        [
            not intent_flag or bool(gates.meets_threshold(getattr(intent_margins, intent_flag)))
            for intent_flag in arm_flags
        ],
        dtype="bool",
    )


def _own_intent(arm: str) -> str:
    """Intent of a question that an arm needs, '' where it needs none."""
    return ARMS[arm].intent if arm in ARMS else ""


def context(
    question: str, n_entities: int, documents: Sequence[str], policy: PolicyData
) -> FloatArray:
    """Features of a question before retrieval, [F] as `ROUTER_FEATURES` names them, near [0, 1].

    Source: rule S4.2; what only a retrieval tells (hits, margins, overlap) cannot choose it.
    """
    question_intent = intent(question)
    strategy_scales = policy.strategy
    return np.array(
        [
            1.0,
            len(content_words(question)) / strategy_scales.words_scale,
            n_entities / strategy_scales.entities_scale,
            question_intent.graph,
            question_intent.table,
            question_intent.complexity,
            float(bool(documents)),
            float(_FILE_NAME.search(question) is not None),
        ]
    )


def case_features(trace: TraceData, policy: PolicyData) -> FloatArray:
    """Context of every case, [Q, F]."""
    entities = policy_pattern_hits(trace, policy).query_entities
    return np.array(
        [
            context(case.query, len(entity_names), case.selected_sources, policy)
            for case, entity_names in zip(trace.cases, entities, strict=True)
        ]
    )


def router(trace: TraceData, policy: PolicyData) -> FloatArray:
    """The source's router as a policy, [Q, A].

    All mass on the arm it sends a case to (rule S4.7).
    """
    arm_indices = [trace.arm(route_arm(case.query, policy, trace.arms)[0]) for case in trace.cases]
    return np.eye(len(trace.arms))[arm_indices]


# of BM25's best score: a hit that counts; first hits of two lists that are compared
NEAR_SCORE = 0.5
OVERLAP_HITS = 10


def list_features(
    question_text: str, indexes: Indexes, queries: Queries, scope: WholeArray | None
) -> Features:
    """How crowded keyword hits are, and how far they agree with embedding hits, each in [0, 1].

    `bm25_hits`: share of the 50 best hits of BM25 whose score is at least half of the best one's;
    nearly every question has 50, so that a plain count says nothing. `list_overlap`: hits that both
    lists have among their first 10, of 10.

    Args:
      queries: the question with its embedding.
      scope: positions that it may find; None is all of them.

    Source: rule S4.2.
    """
    n_fetched = Sizes().fetch_k
    bm25_scores, bm25_hits = indexes.bm25.search([question_text], n_fetched, [scope])
    is_near = bm25_scores[0] >= NEAR_SCORE * bm25_scores[0, 0]  # NaN without a hit
    first_words = set(bm25_hits[0, :OVERLAP_HITS].tolist()) - {-1}
    shared_hits = first_words & set(
        indexes.nearest(queries.vectors, OVERLAP_HITS, scope)[0].tolist()
    )
    return {"bm25_hits": float(is_near.mean()), "list_overlap": len(shared_hits) / OVERLAP_HITS}


class Offer(NamedTuple):
    """Arms on offer and what is known of the question.

    mask: bool [A]. features: by name. why: what speaks for an arm, by arm.
    """

    mask: BoolArray
    features: dict[str, float | None]
    why: dict[str, str]


def offer(
    question: str,
    policy: PolicyData,
    arms: Sequence[str],
    *,
    documents: Sequence[str] = (),
    answered: Collection[str] = (),
    retrieved: Collection[str] = (),
    lists: Features | None = None,
) -> Offer:
    """Arms available for a question, and the features that a bandit sees.

    The features are those of rule S4.2 that are known before an arm retrieves: the context of
    `context`, whether any arm on offer has its answer or its hits in the cache, and what the two
    lists say that every arm begins with. What only retrieval tells (statistics of the scores, the
    reranker's margin) cannot choose it: it is logged with the reward.

    Args:
      answered, retrieved: arms whose answer, whose hits, the cache holds.
      lists: of `list_features`; None where nobody measured them.

    Source: rules S4.1, S4.2.
    """
    mask = available(question, policy, arms)
    entity_names = entities_in(question, policy.patterns.entities)
    context_values = context(question, len(entity_names), documents, policy).tolist()
    features: dict[str, float | None] = dict(
        zip(ROUTER_FEATURES[1:], context_values[1:], strict=True)
    )
    available_arms = {arm for arm, is_available in zip(arms, mask, strict=True) if is_available}
    features |= {
        "answer_cached": float(bool(available_arms & set(answered))),
        "strategy_cached": float(bool(available_arms & set(retrieved))),
        **(dict.fromkeys(OPTIONAL_FEATURES) if lists is None else lists),
    }
    question_intent, intent_margins = _question_intent(question, policy)
    complexity_text = (
        "high complexity" if gates.meets_threshold(intent_margins.complexity) else "simple question"
    )
    arm_reasons = {
        arm: f"{intent_flag} intent {getattr(question_intent, intent_flag):.2f}"
        if intent_flag
        else complexity_text
        for arm, intent_flag in zip(arms, map(_own_intent, arms), strict=True)
    }
    return Offer(mask, features, arm_reasons)


def select_arm(
    keys_by_arm: Mapping[str, Key], made_by: Sequence[Any], request: Request, system: System
) -> ArmChoice:
    """The arm and why; the probability is None where no bandit chose it.

    A user's choice among options is answered by the arm that offered them, and is no choice of the
    bandit's.
    """
    question_text = request.text
    online_bandit = system.online if wants_bandit(system) else None
    if online_bandit is None:
        return ArmChoice(*default_arm(question_text, system), None)
    # The keys differ in their arm alone, which the digest of a question leaves out: any of them
    # will do.
    any_key = next(iter(keys_by_arm.values()))
    system_ids = {"policy_id": any_key.policy_id, "fingerprint": any_key.fingerprint}
    question_id = any_key._replace(arm="").digest()
    # Before the bandit chooses: another arm might number other documents as its options.
    if request.selected is not None:
        # Without the log the router chooses; the question counts as missing where its choice is to
        # be logged.
        with (
            suppress(UnwritableLogError),
            system.log_outages.writing(BANDIT, ends=False),
        ):
            earlier_arm = online_bandit.asked_before(question_id, **system_ids)
            if earlier_arm is not None:
                return ArmChoice(
                    earlier_arm, f"selected {earlier_arm}: it offered the options", None
                )
    # What is cached costs no time, so it is a feature that the bandit chooses by.
    caches = system.caches
    answered_arms = [
        arm
        for arm, arm_key in keys_by_arm.items()
        if caches is not None and arm_key.digest("answer", *made_by) in caches.answers
    ]
    retrieved_arms = [
        arm
        for arm, arm_key in keys_by_arm.items()
        if caches is not None and arm_key.digest("strategy") in caches.strategies
    ]
    arm_offer = offer(
        question_text,
        system.policy,
        online_bandit.arms,
        documents=any_key.documents,
        answered=answered_arms,
        retrieved=retrieved_arms,
        lists=_cached_list_features(question_text, any_key, system),
    )
    try:
        with system.log_outages.writing(BANDIT, ends=False):
            return online_bandit.choose(
                request.id,
                arm_offer.mask,
                arm_offer.features,
                arm_offer.why,
                question=question_id,
                resumed=request.resumed,
                **system_ids,
            )
    # A log that cannot be written costs a choice to learn from, not the answer.
    except UnwritableLogError:
        return ArmChoice(*default_arm(question_text, system), None)


def _cached_list_features(question_text: str, cache_key: Key, system: System) -> Features:
    """What the two lists say of a question.

    Kept with its retrievals, so that one asked again is not embedded again.
    """
    entry_name, caches, ready_retriever = (
        cache_key._replace(arm="").digest("lists"),
        system.caches,
        system.retriever,
    )
    if caches is not None:
        stored_features = caches.strategies.get(
            entry_name,
            lambda stored_entry: {
                feature_name: float(stored_entry[feature_name])
                for feature_name in OPTIONAL_FEATURES
            },
        )
        if stored_features is not None:
            return stored_features
    features = list_features(
        question_text,
        ready_retriever.indexes,
        ready_retriever.question(question_text, keep=True),
        ready_retriever.scope(cache_key.documents),
    )
    if caches is not None:
        caches.strategies.set(entry_name, features)
    return features


def record_outcome(response: Response, system: System) -> None:
    """Log the reward components of an answered request.

    If one cannot be measured, the choice gets no reward.
    """
    online_bandit = system.online
    record = response.record
    if (
        online_bandit is None
        or not record.measures
        or any(record.measures.get(component_name, 0.0) is None for component_name in COMPONENTS)
    ):
        return
    measured_values = {
        component_name: component_value
        for component_name, component_value in record.measures.items()
        if component_value is not None
    }
    component_values = {
        **measured_values,
        "latency_ratio": record.ms["total"] / online_bandit.budget_ms,
        "cache_hit": float(record.answer_cache_hit),
    }
    depth_values = {"depth": len(record.queries) - 1.0, "confidence": response["confidence"]}
    outcome_values = (depth_values if record.queries else {}) | {
        "answered": float(response["status"] == "ok"),
        "strategy_cache_hit": float(record.strategy_cache_hit),
    }
    with suppress(UnwritableLogError), system.log_outages.writing(BANDIT):
        online_bandit.update(
            response["request_id"],
            component_values,
            ms=record.ms["total"],
            measured=outcome_values | dict(record.retrieved),
        )


# feedback is up or down
def feedback(request_id: str, up: bool, *, system: System) -> None:  # noqa: FBT001
    """Log a thumb up or down for an answer, at any time; of several the last counts (rule S4.3).

    Args:
      request_id: as the response names it.
      up: True for a thumb up, False for a thumb down.
      system: the system that answered.

    Raises:
      ValueError: no bandit chose the arm of this request, or it is switched off.
    """
    if system.online is None:
        refuse(
            "feedback needs a system with a bandit",
            "one without",
            'unset RAGLAB_BANDIT_ENABLED and open it with arm="bandit"',
        )
    system.online.thumbs(request_id, up)
