"""Choice of an arm (shore): router, context features, measured rewards, feedback (S4.1 to S4.4).

Rewards are measured by component.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab.bandit.environments import Table
from raglab.decision.decisions import Decisions
from raglab.decision.measurement import policy_pattern_hits
from raglab.decision.signal_values import Intent, intent
from raglab.decision.threshold_arrays import intent_thresholds
from raglab.decision.trace_view import Measured
from raglab.live.measured_signals import SIGNAL_STAGE
from raglab.live.online_bandit import LATER, ArmChoice, Features
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
from raglab.values import Status, TraceData, refuse
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
    there = system.retriever.strategies
    wanted = system.arm or system.policy.strategy.arm
    if wanted == "bandit":
        arm, reason = route_arm(question, system.policy, tuple(there))
        return arm, f"bandit {'off' if system.online is None else 'not asked'}, {reason}"
    if wanted != "router":
        check_arm(wanted, there)
        return wanted, f"{'chosen' if system.arm else 'policy'}: {wanted}"
    return route_arm(question, system.policy, tuple(there))


def route_arm(question: str, policy: PolicyData, arms: Sequence[str]) -> tuple[str, str]:
    """The source's router over the arms that there are (rule S4.7), and why."""
    question_intent, margins = _question_intent(question, policy)
    # An intent that reaches its threshold has an arm of its own; of two the one further above it.
    flags = {
        arm: flag
        for arm in arms
        if (flag := _own_intent(arm)) and gates.meets_threshold(getattr(margins, flag))
    }

    def reasons(score: str) -> str:
        return ", ".join(question_intent.reasons.get(score, ()))

    if flags:
        name = min(flags, key=lambda arm: (-float(getattr(margins, flags[arm])), arm))
        flag = flags[name]
        score = getattr(question_intent, flag)
        return name, f"router: {flag} intent {score:.2f} ({reasons(flag)})"
    complexity = question_intent.complexity
    if gates.meets_threshold(margins.complexity) and "iterative" in arms:
        return "iterative", f"router: complexity {complexity:.2f} ({reasons('complexity')})"
    arm = "hybrid" if "hybrid" in arms else arms[0]
    return arm, f"router: simple question, complexity {complexity:.2f}"


def _question_intent(question: str, policy: PolicyData) -> tuple[Intent, gates.IntentMargins]:
    """Intent scores of a question, and how far they are above the policy's thresholds."""
    scores = intent(question)
    return scores, gates.intent_margins(
        scores.graph, scores.table, scores.complexity, intent_thresholds(policy)
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
    parts, held = [], Measured(trace)
    for arm in trace.arms:
        (decisions,) = decide_policies(held, [policy], arm)
        ms = retrieval_ms(trace, decisions, arm)
        margin, diversity, consistency = measures(trace, decisions, arm).T
        parts.append(
            pd.DataFrame(
                {
                    "case_id": [case.id for case in trace.cases],
                    "split": [case.split for case in trace.cases],
                    "arm": arm,
                    "depth": decisions.outcome.depth,
                    "margin": margin,
                    "diversity": diversity,
                    "latency_ratio": ms / budget_ms,
                    "cache_hit": 0.0,
                    "consistency": consistency,
                    "ms": ms,
                    "status": [Status(int(code)).name for code in decisions.status],
                    "right": decisions.right,
                }
            )
        )
    # made arm by arm, read case by case; a stable sort keeps the arms' order within a case
    return pd.concat(parts).sort_index(kind="stable", ignore_index=True)


def measures(trace: TraceData, decisions: Decisions, arm: str) -> NDArray[np.float64]:
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
    cases, number = np.arange(len(trace)), trace.arm(arm)
    hits = type(trace.hits)(
        *[field[cases, number, decisions.outcome.depth] for field in trace.hits]
    )
    order = np.argsort(
        np.where(hits.rank >= 0, hits.rank, np.iinfo(np.int32).max), axis=1, kind="stable"
    )
    place = np.arange(order.shape[1])
    by_rank = (hits.chunk, hits.s_hybrid, hits.s_rerank)
    chunk, fused, score = (np.take_along_axis(field, order, axis=1) for field in by_rank)
    there: NDArray[np.bool_] = np.asarray(chunk) >= 0
    none = hits.n_reranked[:, None] == 0  # then margin and consistency are missing
    reranked = there & (none | (place < hits.n_reranked[:, None]))
    best = there & (place < decisions.policy.chosen.final_k)
    k = int(best.sum(axis=1).max(initial=0))
    second = np.where(none, np.nan, -1.0 * place)
    return np.stack(
        [
            score_margin(score, reranked),
            hit_diversity(trace.vectors[chunk[:, :k]], best[:, :k]),
            rank_consistency(fused, np.broadcast_to(second, fused.shape), reranked),
        ],
        axis=1,
    )


def retrieval_ms(trace: TraceData, decisions: Decisions, arm: str) -> NDArray[np.float64]:
    """Milliseconds of retrieval down to the depth that decided, [Q]; NaN where a depth has none.

    Raises:
      ValueError: the trace lacks latencies.
    """
    if trace.latency is None:
        refuse("latency_ratio needs the latencies of retrieval", "none", "build the trace again")
    stages = [
        place
        for place, name in enumerate(trace.latency.stages)
        if not name.startswith(SIGNAL_STAGE)
    ]
    ms = trace.latency.ms[:, trace.arm(arm)][..., stages]
    # not measured is not free
    by_depth = np.where(np.isnan(ms).all(axis=2), np.nan, np.nansum(ms, axis=2))
    down_to = np.cumsum(by_depth, axis=1)
    total: NDArray[np.float64] = down_to[np.arange(len(trace)), decisions.outcome.depth]
    return total


FEATURES = ("intercept", "words", "entities", "graph", "table", "complexity", "documents", "path")
_FILE = re.compile(r"\b[\w-]{1,100}\.(?:md|pdf|csv|txt|docx?|xlsx?|html?)\b", re.IGNORECASE)


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
      measured: what `components` says of the same trace and policy, where it is at hand: other
        weights re-score it.

    Raises:
      ValueError: `measured` is of another trace.

    Source: rules S4.1, S4.7.
    """
    component_frame = (
        components(trace, policy, budget_ms=budget_ms) if measured is None else measured
    )
    shape = (len(trace), len(trace.arms))
    rows = [(case.id, arm) for case in trace.cases for arm in trace.arms]
    if list(zip(component_frame["case_id"], component_frame["arm"], strict=True)) != rows:
        rule = f"measured must be {len(rows)} components of this trace"
        refuse(rule, f"{len(component_frame)} of another", "measure again")
    return Table(
        arms=trace.arms,
        value=component_frame["right"].to_numpy(np.float64).reshape(shape),
        reward=np.asarray(reward(component_frame, weights), dtype=np.float64).reshape(shape),
        mask=np.array(
            [available(case.query, policy, trace.arms) for case in trace.cases], dtype=bool
        ).reshape(shape),
        features=case_features(trace, policy),
        feature_names=FEATURES,
        ms=component_frame["ms"].to_numpy(np.float64).reshape(shape),
    )


def available(question: str, policy: PolicyData, arms: Sequence[str]) -> NDArray[np.bool_]:
    """Which arms may answer a question, [A].

    One with an intent, as `graph`, only where that reaches (rule S4.1).
    """
    _, margins = _question_intent(question, policy)
    flags = map(_own_intent, arms)
    return np.array(
        [not flag or bool(gates.meets_threshold(getattr(margins, flag))) for flag in flags],
        dtype="bool",
    )


def _own_intent(arm: str) -> str:
    """Intent of a question that an arm needs, '' where it needs none."""
    return ARMS[arm].intent if arm in ARMS else ""


def context(
    question: str, n_entities: int, documents: Sequence[str], policy: PolicyData
) -> NDArray[np.float64]:
    """What is known of a question before retrieval, [F] as named in `FEATURES`, each near [0, 1].

    Source: rule S4.2; what only a retrieval tells (hits, margins, overlap) cannot choose it.
    """
    question_intent, scales = intent(question), policy.strategy
    return np.array(
        [
            1.0,
            len(content_words(question)) / scales.words_scale,
            n_entities / scales.entities_scale,
            question_intent.graph,
            question_intent.table,
            question_intent.complexity,
            float(bool(documents)),
            float(_FILE.search(question) is not None),
        ]
    )


def case_features(trace: TraceData, policy: PolicyData) -> NDArray[np.float64]:
    """Context of every case, [Q, F]."""
    entities = policy_pattern_hits(trace, policy).query_entities
    return np.array(
        [
            context(case.query, len(names), case.selected_sources, policy)
            for case, names in zip(trace.cases, entities, strict=True)
        ]
    )


def router(trace: TraceData, policy: PolicyData) -> NDArray[np.float64]:
    """The source's router as a policy, [Q, A].

    All mass on the arm it sends a case to (rule S4.7).
    """
    chosen = [trace.arm(route_arm(case.query, policy, trace.arms)[0]) for case in trace.cases]
    return np.eye(len(trace.arms))[chosen]


# of BM25's best score: a hit that counts; first hits of two lists that are compared
DENSE_AT, OVERLAP_AT = 0.5, 10


def list_features(
    text: str, indexes: Indexes, queries: Queries, scope: NDArray[np.integer] | None
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
    k = Sizes().fetch_k
    scores, words = indexes.bm25.search([text], k, [scope])
    near = scores[0] >= DENSE_AT * scores[0, 0]  # NaN where there is no hit
    first = set(words[0, :OVERLAP_AT].tolist()) - {-1}
    shared = first & set(indexes.nearest(queries.vectors, OVERLAP_AT, scope)[0].tolist())
    return {"bm25_hits": float(near.mean()), "list_overlap": len(shared) / OVERLAP_AT}


class Offer(NamedTuple):
    """Arms on offer and what is known of the question.

    mask: bool [A]. features: by name. why: what speaks for an arm, by arm.
    """

    mask: NDArray[np.bool_]
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
    names = entities_in(question, policy.patterns.entities)
    known = context(question, len(names), documents, policy).tolist()
    features: dict[str, float | None] = dict(zip(FEATURES[1:], known[1:], strict=True))
    there = {arm for arm, on in zip(arms, mask, strict=True) if on}
    features |= {
        "answer_cached": float(bool(there & set(answered))),
        "strategy_cached": float(bool(there & set(retrieved))),
        **(dict.fromkeys(LATER) if lists is None else lists),
    }
    question_intent, margins = _question_intent(question, policy)
    words = "high complexity" if gates.meets_threshold(margins.complexity) else "simple question"
    why = {
        arm: f"{flag} intent {getattr(question_intent, flag):.2f}" if flag else words
        for arm, flag in zip(arms, map(_own_intent, arms), strict=True)
    }
    return Offer(mask, features, why)


def select_arm(
    ways: Mapping[str, Key], made_by: Sequence[Any], request: Request, system: System
) -> ArmChoice:
    """The arm and why; the probability is None where no bandit chose it.

    A user's choice among options is answered by the arm that offered them, and is no choice of the
    bandit's.
    """
    text, online = request.text, system.online if wants_bandit(system) else None
    if online is None:
        return ArmChoice(*default_arm(text, system), None)
    # The keys differ in their arm alone, which the digest of a question leaves out: any of them
    # will do.
    any_way = next(iter(ways.values()))
    about = {"policy_id": any_way.policy_id, "fingerprint": any_way.fingerprint}
    question = any_way._replace(arm="").digest()
    # Before the bandit chooses: another arm might number other documents as its options.
    if request.selected is not None:
        # Without the log the router chooses; the question counts as missing where its choice is to
        # be logged.
        with (
            suppress(UnwritableLogError),
            system.log_outages.writing(BANDIT, ends=False),
        ):
            before = online.asked_before(question, **about)
            if before is not None:
                return ArmChoice(before, f"selected {before}: it offered the options", None)
    # What is cached costs no time, so it is a feature that the bandit chooses by.
    caches = system.caches
    answered = [
        arm
        for arm, key in ways.items()
        if caches is not None and key.digest("answer", *made_by) in caches.answers
    ]
    retrieved = [
        arm
        for arm, key in ways.items()
        if caches is not None and key.digest("strategy") in caches.strategies
    ]
    known = offer(
        text,
        system.policy,
        online.arms,
        documents=any_way.documents,
        answered=answered,
        retrieved=retrieved,
        lists=_cached_list_features(text, any_way, system),
    )
    try:
        with system.log_outages.writing(BANDIT, ends=False):
            return online.choose(
                request.id,
                known.mask,
                known.features,
                known.why,
                question=question,
                resumed=request.resumed,
                **about,
            )
    # A log that cannot be written costs a choice to learn from, not the answer.
    except UnwritableLogError:
        return ArmChoice(*default_arm(text, system), None)


def _cached_list_features(text: str, key: Key, system: System) -> Features:
    """What the two lists say of a question.

    Kept with its retrievals, so that one asked again is not embedded again.
    """
    name, caches, ready = key._replace(arm="").digest("lists"), system.caches, system.retriever
    if caches is not None:
        known = caches.strategies.get(
            name, lambda row: {feature: float(row[feature]) for feature in LATER}
        )
        if known is not None:
            return known
    features = list_features(
        text, ready.indexes, ready.question(text, keep=True), ready.scope(key.documents)
    )
    if caches is not None:
        caches.strategies.set(name, features)
    return features


def record_outcome(response: Response, system: System) -> None:
    """Log the reward components of an answered request.

    If one cannot be measured, the choice gets no reward.
    """
    online, record = system.online, response.record
    if (
        online is None
        or not record.measures
        or any(record.measures.get(name, 0.0) is None for name in COMPONENTS)
    ):
        return
    measured = {name: value for name, value in record.measures.items() if value is not None}
    components = {
        **measured,
        "latency_ratio": record.ms["total"] / online.budget_ms,
        "cache_hit": float(record.answer_cache_hit),
    }
    depth = {"depth": len(record.queries) - 1.0, "confidence": response["confidence"]}
    outcome = (depth if record.queries else {}) | {
        "answered": float(response["status"] == "ok"),
        "strategy_cache_hit": float(record.strategy_cache_hit),
    }
    with suppress(UnwritableLogError), system.log_outages.writing(BANDIT):
        online.update(
            response["request_id"],
            components,
            ms=record.ms["total"],
            measured=outcome | dict(record.retrieved),
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
        remedy = 'unset RAGLAB_BANDIT_ENABLED and open it with arm="bandit"'
        refuse("feedback needs a system with a bandit", "one without", remedy)
    system.online.thumbs(request_id, up)
