"""Group rates (shore): what a policy does for each group, what one promise needs (S2.20, S6.9).

The promise is for that group alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from raglab import metrics
from raglab.certify import cases_needed, data_need
from raglab.decision.outcome_codes import CELL_OF_CODE
from raglab.decision.scoring import headline_note
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.gating.case_groups import group_values
from raglab.lab.certification_counts import COST
from raglab.lab.certification_words import need_line
from raglab.lab.looks import stated_targets
from raglab.replay import cases_by_shard, each_shard, join_columns, shard_codes
from raglab.store.policies import Policy

if TYPE_CHECKING:
    import pandas as pd

COMMON = "A certificate is a promise for all cases together; it promises nothing for a group alone."


@answered_traces("trace")
def group_rates(
    trace: TraceView,
    policy: Policy,
    group: str,
    *,
    targets: Mapping[str, float] | None = None,
    delta: float = 0.1,
    arm: str | None = None,
) -> pd.DataFrame:
    """Observed rates by group with exact intervals, and cases needed for a promise for it alone.

    A certificate stays common: it promises nothing for a group (`frame.attrs["note"]`). An interval
    holds for its row alone.

    Args:
      trace: of labelled cases; for those of a certificate its `trace.split("certify")`.
      policy: whose decisions are counted.
      group: attribute of the cases, see `raglab.gating.case_groups.group_value`.
      targets: rate -> highest value; those of the policy's certificate but for the expected cost,
        which is no share, where not given.
      delta: error of a promise, in (0, 0.5).
      arm: of the trace; the first where not given.

    Returns:
      a row a group and rate, the group '' of cases that state none: `group`, `cases`, `rate`,
        `target`, `k`, `n`, `value`, `low` and `high` (95 %, Clopper and Pearson), `needed` (cases
        of the group, of those that the rate is a share of, that certify the target without an
        error) and `need`, the same as a sentence.

    Raises:
      ValueError: no targets, one that is no rate or outside (0, 1), or a case without a label.

    Source: rules S2.20, S6.9.

    Example: `group_rates(trace.split("certify"), certified.policy, "tenant")`
    """
    import pandas as pd

    declared_targets = (
        stated_targets(policy.certificate or {}) if targets is None else dict(targets)
    )
    if targets is None:
        declared_targets.pop(COST, None)
    if not declared_targets or any(name not in metrics.OBJECTIVES for name in declared_targets):
        target_text = ", ".join(declared_targets) or "none, and the policy holds no certificate"
        msg = (
            f"targets must be highest values of {', '.join(metrics.OBJECTIVES)}, got "
            f"{target_text}; write "
            "targets={'hallucination_rate': 0.1}."
        )
        raise ValueError(msg)
    # Decided once for all groups: a group only picks its rows.
    case_cells = CELL_OF_CODE[
        join_columns(each_shard(shard_codes, trace, [policy], arm, what="decide"))[0]
    ]
    case_groups = [name for cases in cases_by_shard(trace) for name in group_values(cases, group)]
    group_names, group_index = np.unique(np.array(case_groups, dtype=np.str_), return_inverse=True)
    group_cells = np.zeros((len(group_names), metrics.N_CELLS), dtype=np.int64)
    np.add.at(group_cells, (group_index, case_cells), 1)
    rate_values = metrics.rate_columns(group_cells)
    group_sizes = group_cells.sum(axis=1).tolist()
    group_rows = []
    for row_index, name in enumerate(group_names.tolist()):
        for rate, alpha in declared_targets.items():
            n_counted, n_base = (
                int(rate_values[f"{rate}_{count_name}"][row_index]) for count_name in "kn"
            )
            rate_interval = [
                float(rate_values[f"{rate}{suffix}"][row_index]) for suffix in ("", "_low", "_high")
            ]
            # What more data would certify is what a reader of a group asks for.
            need_text = need_line(rate, data_need(alpha, n_base, n_counted, delta))
            n_needed = cases_needed(alpha, delta)
            group_rows.append(
                (
                    name,
                    group_sizes[row_index],
                    rate,
                    alpha,
                    n_counted,
                    n_base,
                    *rate_interval,
                    n_needed,
                    need_text,
                )
            )
    column_names = [
        "group",
        "cases",
        "rate",
        "target",
        "k",
        "n",
        "value",
        "low",
        "high",
        "needed",
        "need",
    ]
    rate_table = pd.DataFrame(group_rows, columns=column_names)
    rate_table.attrs |= {"note": COMMON, "headline": headline_note(trace)}
    return rate_table
