"""Traffic for bandits: the cases of a trace as a table of full information, every arm of every case measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raglab import gates
from raglab._worlds import Table
from raglab.evidence import content_words
from raglab.intent import intent
from raglab.lab.components import BUDGET_MS, components
from raglab.lab.routing import routed
from raglab.policy import Policy, intent_thresholds
from raglab.replay import patterns_of
from raglab.reward import RewardWeights, reward
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd

FEATURES = ("intercept", "words", "entities", "graph", "table", "complexity", "documents", "path")
MANY_WORDS, MANY_ENTITIES = 20.0, 4.0  # scales that bring counts near [0, 1]
ON_INTENT = ("graph", "table")
_FILE = re.compile(r"\b[\w-]+\.(?:md|pdf|csv|txt|docx?|xlsx?|html?)\b", re.IGNORECASE)


def table(
    trace: Trace,
    policy: Policy,
    weights: RewardWeights = RewardWeights(),  # noqa: B008 - a tuple
    *,
    budget_ms: float = BUDGET_MS,
    measured: pd.DataFrame | None = None,
) -> Table:
    """Full information on a trace: `value` is the right decision, 0 or 1, `reward` what the learner sees of it.

    An arm is available where rule S4.1 says so: `graph` and `table` only on the question's intent.

    Args:
      measured: what `components` says of the same trace and policy, where it is at hand: other weights re-score it.

    Raises:
      ValueError: `measured` is of another trace.

    Source: rules S4.1, S4.7.
    """
    seen = components(trace, policy, budget_ms=budget_ms) if measured is None else measured
    shape = (len(trace), len(trace.arms))
    rows = [(case.id, arm) for case in trace.cases for arm in trace.arms]
    if list(zip(seen["case_id"], seen["arm"], strict=True)) != rows:
        msg = f"measured must be components of this trace, {len(rows)} rows, got {len(seen)} of another; measure again."
        raise ValueError(msg)
    return Table(
        arms=trace.arms,
        value=seen["right"].to_numpy(np.float64).reshape(shape),
        reward=np.asarray(reward(seen, weights), dtype=np.float64).reshape(shape),
        mask=np.array([available(case.query, policy, trace.arms) for case in trace.cases], dtype=bool).reshape(shape),
        features=features(trace, policy),
        feature_names=FEATURES,
        ms=seen["ms"].to_numpy(np.float64).reshape(shape),
    )


def available(question: str, policy: Policy, arms: Sequence[str]) -> NDArray[np.bool_]:
    """Which arms may answer a question, [A]: `graph` and `table` only where its intent says so (rule S4.1)."""
    seen, limits = intent(question), intent_thresholds(policy)
    margins = gates.intent_margins(seen.graph, seen.table, seen.complexity, limits)
    return np.array([arm not in ON_INTENT or bool(gates.reaches(getattr(margins, arm))) for arm in arms], dtype=bool)


def context(question: str, n_entities: int, documents: Sequence[str]) -> NDArray[np.float64]:
    """What is known of a question before anything is retrieved, [F] as named in `FEATURES`, each near [0, 1].

    Source: rule S4.2; what only a retrieval tells (hits, margins, overlap) cannot choose it.
    """
    seen = intent(question)
    return np.array(
        [
            1.0,
            len(content_words(question)) / MANY_WORDS,
            n_entities / MANY_ENTITIES,
            seen.graph,
            seen.table,
            seen.complexity,
            float(bool(documents)),
            float(_FILE.search(question) is not None),
        ]
    )


def features(trace: Trace, policy: Policy) -> NDArray[np.float64]:
    """Context of every case, [Q, F]."""
    entities = patterns_of(trace, policy).query_entities
    return np.array(
        [
            context(case.query, len(names), case.selected_sources)
            for case, names in zip(trace.cases, entities, strict=True)
        ]
    )


def router(trace: Trace, policy: Policy) -> NDArray[np.float64]:
    """The source's router as a policy, [Q, A]: all mass on the arm it sends a case to (rule S4.7)."""
    chosen = [trace.arm(routed(case.query, policy, trace.arms)[0]) for case in trace.cases]
    return np.eye(len(trace.arms))[chosen]
