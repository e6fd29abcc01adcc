"""Whether a signal function measures the same: alone, among others and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raglab.decision.measurement import measured_tables
from raglab.lab.decision_fitting import decision_cases, scored_cases
from raglab.live.measured_signals import measure, signal_rows
from raglab.live.signal_functions import SignalFunction
from raglab.policy import PolicyData


class SignalCheck(NamedTuple):
    """Different rows it was called for, share of NaN, AUROC in its declared direction."""

    rows: int
    missing: float
    auroc: float


def check_signal(function, trace):
    """A row has one value, to the last bit, alone, in batches, in reverse and measured again."""
    start = PolicyData.from_mapping()
    rows = signal_rows(trace, function, [0], start.structure, trace.answers)
    cells = [*rows.cells.values()]
    whose = [f"case {trace.cases[places[0][0]].id!r}" for places in rows.places.values()]
    values = _in_batches(function, cells, whose)
    alone = [measure(function, [row], [name]) for row, name in zip(cells, whose, strict=True)]
    np.testing.assert_array_equal(values, np.concatenate(alone))
    np.testing.assert_array_equal(values, _in_batches(function, cells[::-1], whose[::-1])[::-1])
    np.testing.assert_array_equal(values, _in_batches(function, cells, whose))
    by_case = np.full(len(trace), np.nan)
    for value, places in zip(values, rows.places.values(), strict=True):
        by_case[[case for case, _, depth in places if not depth]] = value
    cases = scored_cases(decision_cases(measured_tables(trace, start).evidence), by_case)
    auroc = cases.ranking(function.higher)[2]
    return SignalCheck(len(cells), float(np.isnan(values).mean()), auroc)


def _in_batches(function, cells, whose):
    """Values of rows, as many at once as the function takes."""
    starts = range(0, len(cells), function.batch)
    parts = [slice(start, start + function.batch) for start in starts]
    return np.concatenate([measure(function, cells[part], whose[part]) for part in parts])


class Counted:
    """A function of how much of its first passages a query shares, which counts its asked rows."""

    def __init__(self, stop_after=1_000_000):
        self.rows = []
        self.sizes = []
        self.stop_after = stop_after

    def __call__(self, rows):
        """Share of the query's words in the texts."""
        if len(self.sizes) >= self.stop_after:
            msg = "out of credit"
            raise OSError(msg)
        self.sizes.append(len(rows))
        self.rows += rows["query"].tolist()
        return [
            len({*query.split()} & {*" ".join(texts).split()}) / max(1, len(query.split()))
            for query, texts in zip(rows["query"], rows["hits.text"], strict=True)
        ]


def counted(fn=None, **fields):
    """A signal function over `Counted`."""
    counter = Counted() if fn is None else fn
    return SignalFunction("share_of_words", counter, **fields), counter
