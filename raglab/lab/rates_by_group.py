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

    stated = stated_targets(policy.certificate or {}) if targets is None else dict(targets)
    if targets is None:
        stated.pop(COST, None)
    if not stated or any(name not in metrics.OBJECTIVES for name in stated):
        got = ", ".join(stated) or "none, and the policy holds no certificate"
        msg = (
            f"targets must be highest values of {', '.join(metrics.OBJECTIVES)}, got {got}; write "
            "targets={'hallucination_rate': 0.1}."
        )
        raise ValueError(msg)
    cells = CELL_OF_CODE[
        join_columns(each_shard(shard_codes, trace, [policy], arm, what="decide"))[0]
    ]
    names = [name for cases in cases_by_shard(trace) for name in group_values(cases, group)]
    groups, place = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
    table = np.zeros((len(groups), metrics.N_CELLS), dtype=np.int64)
    np.add.at(table, (place, cells), 1)
    columns, sizes = metrics.rate_columns(table), table.sum(axis=1).tolist()
    rows = []
    for number, name in enumerate(groups.tolist()):
        for rate, alpha in stated.items():
            k, n = (int(columns[f"{rate}_{count}"][number]) for count in "kn")
            ends = [float(columns[f"{rate}{end}"][number]) for end in ("", "_low", "_high")]
            need = need_line(rate, data_need(alpha, n, k, delta))
            needed = cases_needed(alpha, delta)
            rows.append((name, sizes[number], rate, alpha, k, n, *ends, needed, need))
    heads = ["group", "cases", "rate", "target", "k", "n", "value", "low", "high", "needed", "need"]
    frame = pd.DataFrame(rows, columns=heads)
    frame.attrs |= {"note": COMMON, "headline": headline_note(trace)}
    return frame
