"""Move a policy's thresholds from one embedder to another by quantiles of the same questions, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab._steps import SWEPT, measured
from raglab.policy import thresholds
from raglab.replay import tables_of
from raglab.robustness import quantile_map
from raglab.store.policies import Policy
from raglab.values import Trace

if TYPE_CHECKING:
    import pandas as pd


ANSWERS = ("fused.", "generation.", "support.")  # fitted, or of the answers: no embedder's scale


class Transferred(NamedTuple):
    """A policy for another embedder, without a certificate, and a row a threshold: where it was, where it is now."""

    policy: Policy
    table: pd.DataFrame


def transfer(policy: Policy, source: Trace, target: Trace, *, arm: str | None = None) -> Transferred:
    """Policy whose thresholds pass the same share of questions on the target as on the source.

    Any certificate is dropped: it was earned with other hits. Re-test its targets on cases that did not choose the
    policy: `raglab.lab.check.retest(moved.policy, cases, targets)`.

    Args:
      source, target: the same questions, retrieved with the one and with the other embedder.

    Raises:
      ValueError: other questions, or a fused gate, which must be fitted on the target instead.
    """
    import pandas as pd

    if sorted(case.query for case in source.cases) != sorted(case.query for case in target.cases):
        msg = "source and target must hold the same questions, got others; retrieve the same cases with both embedders."
        raise ValueError(msg)
    if policy.fused.enabled:
        msg = "a fused gate can not be moved, got one switched on; fit it on the target (raglab.fuse) or switch it off."
        raise ValueError(msg)
    limits, rows, changes = thresholds([policy]), [], list[Any]()
    here, there = (tables_of(trace, policy, arm).evidence for trace in (source, target))
    for path, swept in SWEPT.items():
        value = policy.value(path)
        if swept.whole or value is None or path.startswith(ANSWERS):
            continue
        sign = 1.0 if swept.side == "floor" else -1.0
        before, after = (sign * measured(found, limits, path, 0)[0] for found in (here, there))
        if not (np.isfinite(before).any() and np.isfinite(after).any()):
            continue
        moved = float(np.clip(sign * quantile_map(sign * value, before, after), swept.low, swept.high))
        changes += [path, moved]
        shares = [float((scores >= sign * at).mean()) for scores, at in ((before, value), (after, moved))]
        rows.append((path, float(value), moved, *shares))
    columns = ["path", "from", "to", "passes_from", "passes_to"]
    return Transferred(policy.replace(*changes), pd.DataFrame(rows, columns=columns))
