"""The arm of a live question: chosen, by a bandit from what is known before retrieval, and learned from after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab.evidence import entities_in
from raglab.intent import intent
from raglab.lab import traffic
from raglab.lab.caches import Key
from raglab.lab.live import Lab
from raglab.lab.online import Chosen
from raglab.lab.response import Response
from raglab.lab.routing import arm_of, wants_bandit
from raglab.policy import Policy, intent_thresholds


class Offer(NamedTuple):
    """Arms on offer and what is known of the question.

    mask: bool [A]. features: by name. why: what speaks for an arm, by arm.
    """

    mask: NDArray[np.bool_]
    features: dict[str, float | None]
    why: dict[str, str]


def offer(
    question: str,
    policy: Policy,
    arms: Sequence[str],
    *,
    documents: Sequence[str] = (),
    answered: Collection[str] = (),
    retrieved: Collection[str] = (),
) -> Offer:
    """What a bandit is told of a question.

    The features are those of rule S4.2 that are known before retrieval: the context of `traffic.context`, and whether
    any arm on offer has its answer or its hits in the cache. What only retrieval tells (number of hits, statistics of
    their scores, the reranker's margin) cannot choose it: it is logged with the reward.

    Args:
      answered, retrieved: arms whose answer, whose hits, the cache holds.

    Source: rules S4.1, S4.2.
    """
    mask = traffic.available(question, policy, arms)
    names = entities_in(question, policy.patterns.entities)
    known = traffic.context(question, len(names), documents).tolist()
    features: dict[str, float | None] = dict(zip(traffic.FEATURES[1:], known[1:], strict=True))
    there = {arm for arm, on in zip(arms, mask, strict=True) if on}
    features |= {
        "answer_cached": float(bool(there & set(answered))),
        "strategy_cached": float(bool(there & set(retrieved))),
    }
    seen = intent(question)
    margins = gates.intent_margins(seen.graph, seen.table, seen.complexity, intent_thresholds(policy))
    words = "high complexity" if gates.reaches(margins.complexity) else "simple question"
    why = {"graph": f"graph intent {seen.graph:.2f}", "table": f"table intent {seen.table:.2f}"}
    return Offer(mask, features, {arm: why.get(arm, words) for arm in arms})


def chosen(text: str, ways: Mapping[str, Key], made_by: Sequence[Any], request: str, system: Lab) -> Chosen:
    """The arm and why; the probability is None where no bandit chose it.

    A user's choice among options is answered by the arm that offered them, and is no choice of the bandit's.
    """
    online = system.online if wants_bandit(system) else None
    if online is None:
        return Chosen(*arm_of(text, system), None)
    any_way = next(iter(ways.values()))
    about = {"policy_id": any_way.policy_id, "fingerprint": any_way.fingerprint}
    question = any_way._replace(arm="").digest()
    if made_by[-1] is not None:
        before = online.asked_before(question, **about)
        if before is not None:
            return Chosen(before, f"selected {before}: it offered the options", None)
    caches = system.caches
    answered: list[str] = []
    retrieved: list[str] = []
    if caches is not None:
        answered = [one for one, key in ways.items() if key.digest("answer", *made_by) in caches.answers]
        retrieved = [one for one, key in ways.items() if key.digest("strategy") in caches.strategies]
    known = offer(text, system.policy, online.arms, documents=any_way.documents, answered=answered, retrieved=retrieved)
    return online.choose(request, known.mask, known.features, known.why, question=question, **about)


def learned(said: Response, system: Lab) -> None:
    """Tell the bandit what came of its choice; a component that cannot be measured leaves the choice without reward."""
    online, seen = system.online, said.seen
    if online is None or not seen.measures or None in seen.measures.values():
        return
    cached = float(seen.answer_cache_hit)
    components = {**seen.measures, "latency_ratio": seen.ms["total"] / online.budget_ms, "cache_hit": cached}
    told = {"depth": len(seen.queries) - 1.0, "confidence": said["confidence"]} if seen.queries else {}
    told |= {"answered": float(said["status"] == "ok"), "strategy_cache_hit": float(seen.strategy_cache_hit)}
    online.update(said["request_id"], components, ms=seen.ms["total"], measured=told | dict(seen.retrieved))


def feedback(request_id: str, up: bool, *, lab: Lab) -> None:  # noqa: FBT001 - feedback is up or down
    """Thumb up or down for an answer, whenever it comes; of several the last counts (rule S4.3).

    Args:
      request_id: as the response names it.

    Raises:
      ValueError: no bandit chose the arm of this request, or it is switched off.
    """
    if lab.online is None:
        msg = "feedback goes to the bandit's log, and the bandit is switched off; unset RAGLAB_BANDIT_ENABLED."
        raise ValueError(msg)
    lab.online.thumbs(request_id, up)
