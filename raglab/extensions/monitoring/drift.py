"""Drift (shore): whether signals of unlabelled requests still look like certified ones (S6.13).

A hint is not about the promise: signals may drift while it stays whole, and it may break while no
signal moves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import Measured, TraceView, answered_traces
from raglab.extensions.monitoring.betting import log_bar, log_mean
from raglab.metrics import check_delta
from raglab.replay import each_shard
from raglab.store.policies import Policy
from raglab.values import TraceData

if TYPE_CHECKING:
    import pandas as pd

# Small ones bet on extremes; those near 1 keep their wealth through a long time without drift.
EXPONENTS = np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98])
NOTE = (
    "A hint is no statement about a promise: it may stay whole while signals drift, and break "
    "while none does."
)


@dataclass(frozen=True, eq=False, repr=False)
class SignalDrift:
    """Hints that signals of a stream are not those of a reference.

    Attributes:
      table: a row a signal, the strongest first: `signal`; `log_wealth` after the last request and
        `highest` ever; `bar`; `hint`, whether it was ever reached; `first`, the number of the
        request at which, 0 where it was not.
      notes: what a reader must know.
    """

    table: pd.DataFrame
    notes: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """Rows of the signals."""
        return self.table.copy()

    def __repr__(self) -> str:
        hints = ", ".join(self.table["signal"][self.table["hint"]]) or "none"
        return f"SignalDrift(hints: {hints}; {len(self.table)} signals. {NOTE})"


@answered_traces("reference", "stream")
def signal_drift(
    reference: TraceView,
    stream: TraceView,
    *,
    delta: float = 0.1,
    seed: int,
    arm: str | None = None,
) -> SignalDrift:
    """Hints that signals drift, said at any time; a hint is no statement about a promise.

    The null hypothesis of a signal: its values of the reference and of the stream could stand in
    any order. Each value of the stream is ranked among the reference and the stream so far, ties at
    random; the ranks then are independent and uniform, and wealth that bets on high or low ones
    reaches S / delta with probability delta / S at most.

    Args:
      reference: the certified cases, or a trace of when all was well; labels are not read.
      stream: unlabelled requests in the order of time.
      delta: error of all S signals together, in (0, 0.5): each has delta / S. It is no part of a
        monitor's delta.
      seed: of the ties.
      arm: of both traces; the first where None.

    Raises:
      ValueError: an empty trace, no signal that both have, or delta outside (0, 0.5).

    Source: rule S6.13; Vovk, Nouretdinov and Gammerman 2003.

    Example: `signal_drift(trace.split("certify"), this_week, seed=1).frame()`
    """
    import pandas as pd

    check_delta(delta)
    left, right = (_signals(trace, arm) for trace in (reference, stream))
    names = [name for name in left if name in right]
    measured = [
        name for name in names if not (np.isnan(left[name]).all() and np.isnan(right[name]).all())
    ]
    if not measured or not len(reference) or not len(stream):
        msg = (
            f"both traces must have requests and a signal in common, got {len(reference)} and "
            f"{len(stream)} requests."
        )
        raise ValueError(msg)
    bar, rows = log_bar(delta / len(measured)), []
    for name, rng in zip(measured, np.random.default_rng(seed).spawn(len(measured)), strict=True):
        path = log_wealth_of_ranks(conformal_ranks(left[name], right[name], rng))
        first = np.flatnonzero(path >= bar)
        rows.append(
            (
                name,
                path[-1],
                path.max(),
                bar,
                bool(len(first)),
                int(first[0]) + 1 if len(first) else 0,
            )
        )
    table = pd.DataFrame(rows, columns=["signal", "log_wealth", "highest", "bar", "hint", "first"])
    table = table.sort_values("highest", ascending=False, kind="stable", ignore_index=True)
    alone, empty = len({*left} ^ {*right}), len(names) - len(measured)
    counts = (
        (alone, "signals are of one of the traces alone"),
        (empty, "signals have no value in either"),
    )
    return SignalDrift(
        table, (NOTE, *(f"{count} {what}; they are left out." for count, what in counts if count))
    )


def shard_signal_values(
    trace: TraceData | Measured, arm: str | None
) -> dict[str, NDArray[np.float64]]:
    """Signals of each case of a trace in memory at its first search, by name.

    Pure, so that any worker may do it.
    """
    evidence = measured_tables(
        Measured.of(trace), Policy.load().replace("decision.rule", "chain"), arm
    ).evidence
    return dict(zip(evidence.known.names, evidence.signals[:, 0], strict=True))


def _signals(trace: TraceView, arm: str | None) -> dict[str, NDArray[np.float64]]:
    parts = list(each_shard(shard_signal_values, trace, arm, what="measure"))
    return (
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    )


def conformal_ranks(
    reference: NDArray[np.float64], stream: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Rank of each value among the reference and the stream so far, from the top, in (0, 1), [T].

    NaN is the lowest.

    Example: 3 is above both, 0 below all three.
      >>> ranks = conformal_ranks(
      ...     np.array([1.0, 2.0]), np.array([3.0, 0.0]), np.random.default_rng(1)
      ... )
      >>> bool(ranks[0] < 1 / 3), bool(ranks[1] > 3 / 4)
      (True, True)
    """
    values = np.nan_to_num(reference, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    ordered, ranks = sorted(values.tolist()), []
    later = np.nan_to_num(stream, nan=-np.inf, posinf=np.inf, neginf=-np.inf).tolist()
    for value, tie in zip(later, rng.random(len(later)).tolist(), strict=True):
        insort(ordered, value)
        above = len(ordered) - bisect_right(ordered, value)
        ranks.append(
            (above + tie * (len(ordered) - above - bisect_left(ordered, value))) / len(ordered)
        )
    return np.clip(np.array(ranks), 2.0**-60, 1.0 - 2.0**-53)


def log_wealth_of_ranks(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log wealth after each rank, [T].

    Bets e * p ** (e - 1) on ranks near 0, and as many on those near 1.

    Each bet has mean 1 where ranks are uniform and independent, so their mixture is a martingale.
    """
    both = np.log(np.stack([ranks, 1.0 - ranks], axis=-1))[..., None]
    logs = (np.log(EXPONENTS) + (EXPONENTS - 1.0) * both).reshape(len(ranks), -1)
    return log_mean(logs.cumsum(axis=0))
