"""Rows of the league: a published cell, the difference that it judges, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raglab.metrics import clopper_pearson
from raglab.metrics.intervals import mean_interval

INTERVAL = 0.95  # level of all intervals
# Of one cell, judged together: always to answer, or to refuse, wins one. Less is better.
RATES = ("hallucination rate", "error rate")
ROUNDING = 1e-12  # a difference below it is that of the order in which floats are added
FEW = 20  # unequal pairs below which resamples and t are too narrow


class Row(NamedTuple):
    """Published cell, what its stored outputs give, and what raglab makes of them.

    Attributes:
      table: `dba`, `nomiracl`, `paretobandit`, `adarague`, or the name of an own file.
      cell: question set, model, language or budget; begins with `all` for all cells together.
      metric: of the figures of this row.
      n: answers that are judged, more than `clusters` where several are to one question.
      published: figure of the paper or repository; NaN where none is at hand.
      reproduced: the published method again, from the stored outputs.
      free: best policy that costs no label of the judged questions.
      free_name: that policy.
      hindsight: best single signal or arm, chosen on the judged questions; compared with nothing.
      hindsight_name: that signal or arm.
      raglab: fitted without what is judged.
      fitted_on: on which data.
      reference: what `difference` is against.
      difference: `raglab` less the reference, on the same questions.
      low: lower end of its interval.
      high: upper end of its interval.
      clusters: independent units of that interval.
      calls: model calls behind raglab's decision of one question.
      reference_calls: behind the reference's.
      note: what was dropped, with counts; spend; how the published figures were reproduced.
    """

    table: str
    cell: str
    metric: str
    n: int
    published: float = nan
    reproduced: float = nan
    free: float = nan
    free_name: str = ""
    hindsight: float = nan
    hindsight_name: str = ""
    raglab: float = nan
    fitted_on: str = ""
    reference: str = ""
    difference: float = nan
    low: float = nan
    high: float = nan
    clusters: int = 0
    calls: float = nan
    reference_calls: float = nan
    note: str = ""


def row_verdict(metric: str, low: float, high: float) -> str:
    """`better`, `level` or `worse`, by where the interval lies; `not judged` without one.

    `ahead` is said of a table alone, and only where it held on cells kept back.

    Args:
      metric: of the rates less is better.
      low: lower end of raglab less the reference.
      high: upper end.

    Example:
      >>> row_verdict("accuracy", 0.01, 0.03), row_verdict("error rate", 0.01, 0.03)
      ('better', 'worse')
    """
    if not (isfinite(low) and isfinite(high)):
        return "not judged"
    if low <= 0.0 <= high:
        return "level"
    return "better" if (low > 0.0) != (metric in RATES) else "worse"


def joint_verdict(verdicts: Collection[str]) -> str:
    """Verdict of a cell by those of its rates, of which one can be bought with the other.

    Args:
      verdicts: of each rate by itself.

    Example:
      >>> joint_verdict(["better", "level"]), joint_verdict(["better", "worse"])
      ('better', 'trade')
    """
    if {"better", "worse"} <= set(verdicts):
        return "trade"
    return next(name for name in ("not judged", "better", "worse", "level") if name in verdicts)


def league_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows with `verdict`, of the row alone, `joint`, of both rates of a cell, and `is_pooled`."""
    frame = pd.DataFrame(rows)
    frame["verdict"] = [row_verdict(row.metric, row.low, row.high) for row in rows]
    kind = frame["metric"].where(~frame["metric"].isin(RATES), "rates")
    frame["joint"] = frame.groupby(["table", "cell", kind])["verdict"].transform(
        lambda verdicts: joint_verdict(set(verdicts))
    )
    frame["is_pooled"] = frame["cell"].str.match("all(?:,|$)")
    return frame


def verdict_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Number of cells by table and joint verdict, pooled rows apart; both rates are one cell."""
    cells = frame[frame["metric"] != RATES[1]]
    return pd.crosstab([cells["table"], cells["is_pooled"]], cells["joint"])


def paired_interval(
    gain: NDArray[np.float64], low: float = nan, high: float = nan
) -> tuple[float, float]:
    """Interval of a mean paired difference.

    The widest of another one, the t interval and, of few, the sign test's.

    Null hypothesis: the mean difference is 0. Pairs are independent by assumption. Below 20 unequal
    pairs the exact sign test joins, which further assumes that gains and losses are of one size.

    Measured, 1,500 tables of each kind, share with 0 outside although it is true. Differences of 1
    and -1 by chance, with 20 to 500 pairs of which 5 or 100 % are unequal: at most 5 %, but 6 % at
    50 pairs, all unequal, without resamples. Not held are rare large gains that many small losses
    even out, as rewards may have and rates do not, because a sample may lack them: gains in 10 % of
    pairs, 11 % with 20 pairs, 14 % with 50 (6 % with resamples besides), 8 % with 200, 6 % with
    500; gains in 3 % of pairs, 53 %, 20 %, 7 % and 8 %.

    Args:
      gain: difference of each pair, [N].
      low: lower end of another interval, such as that of resamples.
      high: upper end.

    Example:
      >>> low, high = paired_interval(np.array([1.0] * 5 + [0.0] * 95), 0.01, 0.10)
      >>> round(low, 3), round(high, 3)
      (-0.002, 0.1)
    """
    ends = [(low, high), tuple(map(float, mean_interval(gain, INTERVAL)))]
    unequal = int((gain != 0.0).sum())
    if 0 < unequal < FEW:
        exact = np.array(clopper_pearson(int((gain > 0.0).sum()), unequal, INTERVAL))
        ends.append(tuple(((2.0 * exact - 1.0) * np.abs(gain).mean()).tolist()))
    return float(np.nanmin([end[0] for end in ends])), float(np.nanmax([end[1] for end in ends]))


def signed(value: float) -> str:
    """Difference in three decimals, in more where three would show 0.

    Example:
      >>> signed(0.0123), signed(0.00008), signed(-1e-16)
      ('+0.012', '+0.0001', '+0.000')
    """
    value = 0.0 if abs(value) < ROUNDING else value
    return f"{value:+.4f}" if 0.0 < abs(value) < 1e-3 else f"{value:+.3f}"
