"""Signals of cases as a table (shore): what a classifier of scikit-learn is fitted on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from raglab.decision.trace_view import answered_traces
from raglab.gating.expected_cost import OUTCOME_CLASSES
from raglab.lab.decision_fitting import fitted_cases, join_decision_cases
from raglab.replay import cases_by_shard, each_shard
from raglab.store.policies import Policy

if TYPE_CHECKING:
    import pandas as pd

    from raglab.decision.trace_view import TraceView

RIGHT_DECISION = {"right": "ok", "miss": "refuse", "refuse": "refuse", "ambiguous": "ambiguous"}


@answered_traces("trace")
def signal_table(
    trace: TraceView, policy: Policy | None = None, *, arm: str | None = None
) -> pd.DataFrame:
    """Every signal of every case, and the decision that is right for the hits that the case has.

    Args:
      trace: labelled, in memory or of shards (`Trace.open`), one of which is in memory at a time.
      policy: says which hits are chosen; the default policy where None.
      arm: of the trace; the first where None.

    Returns:
      A row a case, indexed by `case_id`: a column a signal, built-in or the trace's own, NaN where
      it is missing; and `right_decision`: `ok` where the answer would be right, `ambiguous` where
      the label is, else `refuse`.

    Source: rule S2.17.

    Example: with `table = signal_table(trace)`,
      `PolicyClassifier().fit(table[names], table["right_decision"])`.
    """
    import pandas as pd

    chain_policy = (Policy.load() if policy is None else policy).replace("decision.rule", "chain")
    fitted_signals = join_decision_cases(
        list(each_shard(fitted_cases, trace, chain_policy, arm, what="measure"))
    )
    right_decisions = np.array([RIGHT_DECISION[name] for name in OUTCOME_CLASSES])[
        fitted_signals.classes
    ]
    signals = dict(zip(fitted_signals.known.names, fitted_signals.signals, strict=True))
    case_index = pd.Index(
        [case.id for shard_cases in cases_by_shard(trace) for case in shard_cases], name="case_id"
    )
    return pd.DataFrame(signals | {"right_decision": right_decisions}, index=case_index)
