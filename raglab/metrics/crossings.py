"""Crossings (algebra): shares of ok in traffic at which another policy becomes cheaper (S6.15).

The expected cost of a policy is a straight line in the share of ok, the other labels in the ratio
of the labelled cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isinf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab.metrics.costs import Cells
from raglab.metrics.intervals import FloatArray
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.9  # of the intervals
DIGITS = 12  # of a difference of costs
RESAMPLES = 2_000  # of the cases, within labels


class Crossing(NamedTuple):
    """Shares of ok in traffic between which a policy costs less than each of several others.

    Attributes:
      low: lower end; -inf where it costs less down to 0.
      high: upper end; inf where it costs less up to 1. Nowhere where `low` is at least `high`.
      below: policy that is cheaper below the lower end; empty where none is.
      above: policy that is cheaper above the upper end; empty where none is.
      low_interval: 90 % interval of the lower end.
      high_interval: 90 % interval of the upper end.
      sample: share of ok among the labelled cases.
    """

    low: float
    high: float
    below: str
    above: str
    low_interval: tuple[float, float]
    high_interval: tuple[float, float]
    sample: float

    def says(self, subject: str) -> str:
        """The crossing in a sentence or two, ends with their 90 % intervals.

        Args:
          subject: name of the policy.
        """
        lead = f"The labelled cases are {100.0 * self.sample:.0f} % ok"
        ends = [
            (name, f"{side} {100.0 * end:.0f} % ({_share(low)} to {_share(high)})")
            for name, side, end, (low, high) in (
                (self.above, "above", self.high, self.high_interval),
                (self.below, "below", self.low, self.low_interval),
            )
            if name
        ]
        if self.low >= self.high:
            rivals = " or ".join(dict.fromkeys(name for name in (self.below, self.above) if name))
            return f"{lead}. At no share of ok in traffic does {subject} cost less than {rivals}."
        if not ends:
            # what the cases do not rule out, by the near ends of the intervals
            near = {"above": self.high_interval[0], "below": self.low_interval[1]}
            may = [f"{side} {_share(end)} %" for side, end in near.items() if not isinf(end)]
            doubt = f", but by the 90 % interval one may be {' or '.join(may)}" if may else ""
            return (
                f"{lead}. At no share of ok in traffic is a policy without tuning cheaper{doubt}."
            )
        (name, share), *more = ends
        further = "".join(f", {end} {rival}" for rival, end in more)
        return (
            f"{lead}. {share.capitalize()} ok in traffic {name} is cheaper{further}: state `mix`."
        )


def _share(end: float) -> str:
    return "none" if isinf(end) else f"{100.0 * end:.0f}"


def cost_lines(
    loss: FloatArray, label: Cells, rng: np.random.Generator | None = None
) -> list[FloatArray]:
    """Expected cost of policies where no case of traffic is ok, and where all are, [P] each.

    Args:
      loss: cost of each case under each policy, [P, Q].
      label: of each case, [Q]; some are ok, and some not.
      rng: generator of resamples within labels, whose costs are [P, resamples] each.
    """
    sides: list[FloatArray] = []
    for side in (label != Status.ok, label == Status.ok):
        total: FloatArray = np.zeros(())
        for code in np.unique(label[side]).tolist():
            columns, counts = np.unique(loss[:, label == code], axis=1, return_counts=True)
            drawn = counts[:, None]
            if rng is not None:
                n = int(counts.sum())
                drawn = rng.multinomial(n, counts / n, size=RESAMPLES).T
            total = total + columns @ drawn
        mean = total / side.sum()
        sides.append(mean if rng is not None else mean[:, 0])
    return sides


def cost_table(losses: Mapping[str, FloatArray], label: Cells) -> pd.DataFrame:
    """Cost of a case that is ok, and of the others in their ratio, a row a policy.

    Args:
      losses: cost of each case by name of the policy, [Q].
      label: of each case, [Q].

    Returns:
      `cases`; `all_ok` and `none_ok` with their standard errors `_error`; NaN where no case is of
        the kind.
    """
    import pandas as pd

    rows = []
    for loss in losses.values():
        row: dict[str, float] = {"cases": len(label)}
        for name, side in (("all_ok", label == Status.ok), ("none_ok", label != Status.ok)):
            parts = [loss[label == code] for code in np.unique(label[side]).tolist()]
            n = max(1, sum(map(len, parts)))
            spread = sum(len(part) * part.var(ddof=min(1, len(part) - 1)) for part in parts)
            row[name] = sum(float(part.sum()) for part in parts) / n if parts else np.nan
            row[f"{name}_error"] = float(np.sqrt(spread)) / n
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index(list(losses), name="policy"))


def crossing_ends(none_ok: FloatArray, all_ok: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper share of ok that each rival leaves a policy, [P - 1, ...] each.

    Args:
      none_ok: costs of the policy and its rivals where no case of traffic is ok, [P, ...].
      all_ok: likewise where all are.
    """
    # costs nearer than that are equal, and equal at an end alone is no crossing
    first, last = (np.round(costs[1:] - costs[0], DIGITS) for costs in (none_ok, all_ok))
    with np.errstate(invalid="ignore", divide="ignore"):
        at = first / (first - last)
    never = (first <= 0.0) & (last <= 0.0)
    low = np.where(never, 1.0, np.where(first >= 0.0, -inf, at))
    high = np.where(never, 0.0, np.where(last >= 0.0, inf, at))
    return low, high


def crossing(
    loss: FloatArray,
    rivals: FloatArray,
    names: Sequence[str],
    label: Cells,
    seed: int = 0,
) -> Crossing | None:
    """Crossing of a policy with several others, on cases that none of them learned from.

    Args:
      loss: cost of each case under the policy, [Q].
      rivals: cost of each case under each other policy, [P, Q].
      names: of the other policies, [P].
      label: of each case, [Q].
      seed: of the resamples within labels that the intervals come from.

    Returns:
      None where no case is ok, or all are: the lines are not known then.

    Source: rule S6.15; percentile interval, Efron and Tibshirani 1993.

    Example: always-answer fails on what should be refused, the policy on one in ten of each.
      >>> label, tenth = np.repeat([0, 1], 50), np.tile(np.arange(10) == 0, 10) * 1.0
      >>> found = crossing(tenth, (label == 1)[None] * 1.0, ["always-answer"], label)
      >>> round(found.high, 3), found.above, found.low
      (0.9, 'always-answer', -inf)
    """
    is_ok = label == Status.ok
    if is_ok.all() or not is_ok.any():
        return None
    every = np.concatenate([loss[None], rivals])
    low, high = crossing_ends(*cost_lines(every, label))
    rng = np.random.default_rng([seed, len(label)])
    lows, highs = crossing_ends(*cost_lines(every, label, rng))
    most, least = int(np.argmax(low)), int(np.argmin(high))
    tail = (1.0 - LEVEL) / 2.0
    intervals = [
        tuple(np.quantile(ends, [tail, 1.0 - tail], method="nearest").tolist())
        for ends in (lows.max(axis=0), highs.min(axis=0))
    ]
    return Crossing(
        low=float(low[most]),
        high=float(high[least]),
        below="" if isinf(low[most]) else names[most],
        above="" if isinf(high[least]) else names[least],
        low_interval=intervals[0],
        high_interval=intervals[1],
        sample=float(is_ok.mean()),
    )
