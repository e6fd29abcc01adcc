"""Rows (algebra): one line of the league, with the difference that it judges and the verdict."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite, nan
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.metrics.intervals import clopper_pearson, mean_interval

LeagueVerdict = Literal["ahead", "level", "behind", "not judged"]
CellVerdict = Literal["ahead", "level", "trade", "behind", "not judged"]
AHEAD: Final = "ahead"
LEVEL: Final = "level"
TRADE: Final = "trade"
BEHIND: Final = "behind"
NOT_JUDGED: Final = "not judged"
ROUNDING = 1e-12  # a difference below it is that of the order in which floats are added
FEW = 20  # unequal pairs below which resamples and t are too narrow
# of one cell, judged together: always to answer, or to refuse, wins one
RATES = ("hallucination rate", "error rate")


class LeagueRow(NamedTuple):
    """Line of the league.

    A published cell, what its stored outputs give, and what raglab makes of them.

    Attributes:
      table: layout that the cell comes from: `dba`, `nomiracl`, `paretobandit`, `adarague`, or the
        name of an own file.
      cell: question set, model, language or budget; `all` for the mean over cells or the pooled
        questions.
      task: one plain sentence: what is decided.
      metric: name and unit of the figures of this line.
      higher_is_better: of that metric.
      n: answers that are judged, more than `clusters` where several are to one question.
      published: figure of the paper or repository; NaN where none is at hand.
      published_source: where that figure stands.
      reproduced: the published method again, from the stored outputs; NaN where they do not give
        it.
      reproduced_note: how, or why not.
      free: best policy that costs no label of the judged questions, or was chosen on other data.
      free_name: of that policy.
      hindsight: best single signal or arm, chosen on the judged questions; shown, and compared with
        nothing.
      hindsight_name: of that signal or arm.
      raglab: raglab's figure, fitted without what is judged.
      fitted_on: on which data, and what was left out.
      reference: what `difference` is against.
      difference: `raglab` less the reference, on the same questions.
      low: lower end of its interval.
      high: upper end of its interval.
      clusters: independent units of that interval; lines of one question are one unit.
      calls: model calls behind raglab's decision of one question; of an own table the mean `cost`
        of an answer.
      reference_calls: model calls behind the reference's; NaN where they are not known, as of an
        own table.
      verdict: `ahead`, `level`, `behind` or `not judged`, by the interval of this row alone.
      note: rows that were dropped, with counts; overspend; few questions; the verdict of two rates
        together.
    """

    table: str
    cell: str
    task: str
    metric: str
    higher_is_better: bool
    n: int
    published: float = nan
    published_source: str = ""
    reproduced: float = nan
    reproduced_note: str = ""
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
    verdict: LeagueVerdict = NOT_JUDGED
    note: str = ""


def is_pooled(row: LeagueRow) -> bool:
    """Whether a row is of all cells of its table together, and no cell by itself."""
    return row.cell == "all" or row.cell.startswith(("all, ", "all in "))


def league_verdict(low: float, high: float, *, higher_is_better: bool) -> LeagueVerdict:
    """Verdict by the interval of the difference raglab less reference.

    Args:
      low: lower end.
      high: upper end; NaN where there is no interval.
      higher_is_better: of the metric.

    Returns:
      `ahead` or `behind` where the interval lies on one side of 0, `level` where it holds 0, `not
      judged` without one.

    Example:
      >>> (
      ...     league_verdict(0.01, 0.03, higher_is_better=True),
      ...     league_verdict(0.01, 0.03, higher_is_better=False),
      ... )
      ('ahead', 'behind')
      >>> (
      ...     league_verdict(-0.01, 0.03, higher_is_better=True),
      ...     league_verdict(nan, nan, higher_is_better=True),
      ... )
      ('level', 'not judged')
    """
    if not (isfinite(low) and isfinite(high)):
        return NOT_JUDGED
    if low <= 0.0 <= high:
        return LEVEL
    return AHEAD if (low > 0.0) == higher_is_better else BEHIND


def cell_verdict(verdicts: Collection[LeagueVerdict]) -> CellVerdict:
    """Verdict of a cell by those of its rates, of which one can be bought with the other.

    Args:
      verdicts: of each rate by itself.

    Returns:
      `ahead` where a rate is ahead and none behind, `behind` the other way round, `trade` where one
      is ahead and one behind, `level` where all are; `not judged` where a rate is not, because its
      price is not known.

    Example:
      >>> (
      ...     cell_verdict(["ahead", "level"]),
      ...     cell_verdict(["ahead", "behind"]),
      ...     cell_verdict(["ahead", "not judged"]),
      ... )
      ('ahead', 'trade', 'not judged')
    """
    if NOT_JUDGED in verdicts:
        return NOT_JUDGED
    if AHEAD in verdicts:
        return TRADE if BEHIND in verdicts else AHEAD
    return BEHIND if BEHIND in verdicts else LEVEL


def joint_note(verdict: LeagueVerdict, sibling: LeagueVerdict, name: str) -> str:
    """Note of a rate whose verdict is another one than that of both rates of its cell.

    Empty where they are equal.

    Args:
      verdict: of the rate by itself.
      sibling: of the rate beside it, by itself.
      name: of the rate beside it.

    Example:
      >>> joint_note("ahead", "behind", "error rate"), joint_note("ahead", "level", "error rate")
      ('the error rate is behind, both together: trade', '')
    """
    joint = cell_verdict([verdict, sibling])
    return "" if joint == verdict else f"the {name} is {sibling}, both together: {joint}"


def paired_interval(
    gain: NDArray[np.float64], low: float, high: float, level: float
) -> tuple[float, float]:
    """Interval of a mean paired difference.

    The widest of a given one, the t interval and, of few, the sign test's.

    Null hypothesis: the mean difference is 0. Pairs are independent by assumption. Below 20 unequal
    pairs the exact sign test joins, which further assumes that gains and losses are of one size.

    Measured at level .95, 1,500 tables of each kind, share with 0 outside although it is true.
    Differences of 1 and -1 by chance, with 20 to 500 pairs of which 5 or 100 % are unequal: at most
    5 %, but 6 % at 50 pairs, all unequal, without resamples. Not held are rare large gains that
    many small losses even out, as rewards may have and rates do not, because a sample may lack
    them: gains in 10 % of pairs, 11 % with 20 pairs, 14 % with 50 (6 % with resamples besides), 8 %
    with 200, 6 % with 500; gains in 3 % of pairs, 53 %, 20 %, 7 % and 8 %. Nearly all of these
    intervals lie on the side of the small differences; with rare losses it is the other side.

    Args:
      gain: difference of each pair, [N].
      low: lower end of another interval, such as that of resamples.
      high: upper end.
      level: in (0, 1).

    Example:
      >>> gain = np.array([1.0] * 5 + [0.0] * 95)
      >>> low, high = paired_interval(gain, 0.01, 0.10, 0.95)
      >>> round(low, 3), round(high, 3)
      (-0.002, 0.1)
    """
    ends = [(low, high), tuple(map(float, mean_interval(gain, level)))]
    unequal = int((gain != 0.0).sum())
    if 0 < unequal < FEW:
        exact = np.array(clopper_pearson(int((gain > 0.0).sum()), unequal, level))
        ends.append(tuple(((2.0 * exact - 1.0) * np.abs(gain).mean()).tolist()))
    return float(np.nanmin([end[0] for end in ends])), float(np.nanmax([end[1] for end in ends]))


def signed(value: float) -> str:
    """Difference in three decimals, with more where it is so small that they would show none.

    Rounding is 0.

    Example:
      >>> signed(0.0123), signed(0.00008), signed(-0.00001), signed(-1e-16)
      ('+0.012', '+0.0001', '-1e-05', '+0.000')
    """
    size = abs(value)
    if size < ROUNDING:
        return "+0.000"
    return (
        f"{value:+.3f}"
        if not 0.0 < size < 1e-3
        else f"{value:+.4f}"
        if size >= 5e-5
        else f"{value:+.0e}"
    )
