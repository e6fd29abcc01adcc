"""Whether a signal function measures the same: alone, among others and again."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.measurement import measured_tables
from raglab.lab.decision_fitting import decision_cases, scored_cases
from raglab.live.measured_signals import measure, signal_rows
from raglab.live.signal_functions import SignalFunction, signal_function
from raglab.policy import PolicyData
from raglab.store.traces import Trace
from raglab.values import TraceData, refuse

CONTRADICTED = 0.99  # level of the interval that must lie below one half


class SignalCheck(NamedTuple):
    """Measurements of a signal function on some rows.

    Attributes:
      rows: different ones that it was called for.
      missing: share of NaN.
      ms: milliseconds a row in batches.
      auroc: chance that it ranks a case that is right if answered above one that is wrong, in its
        declared direction, ambiguous ones left out; NaN where all cases are of one kind.
      auroc_low: lower end of its 99 % interval.
      auroc_high: upper end of its 99 % interval.
    """

    rows: int
    missing: float
    ms: float
    auroc: float
    auroc_low: float
    auroc_high: float


def check_signal(
    signal: str | SignalFunction,
    trace: TraceData,
    *,
    policy: PolicyData | None = None,
    most_cases: int = 64,
) -> SignalCheck:
    """Check a signal function in a test: stop at the first rule that it breaks.

    A row has the same value alone, among others, in another order and measured again, to the last
    bit; it is finite or NaN, and within the unit. Labels must not contradict its direction: an
    interval of 99 % that lies below one half. The function is called for every row four times.

    Args:
      signal: its name or function.
      trace: with rows as they will occur.
      policy: the policy whose hits are judged and whose answers are read; the published defaults.
      most_cases: most cases that are read, spread over the trace.

    Raises:
      AssertionError: a rule is broken; the message names rule, case and remedy.
      ValueError: the function raised, or returned what is no value; see `raglab.add_signals`.
    """
    function, start = signal_function(signal), policy or PolicyData.from_mapping()
    step = max(1, -(-len(trace) // most_cases))
    sample = trace.subset(range(0, len(trace), step)) if isinstance(trace, Trace) else trace
    rows = signal_rows(sample, function, [0], start.structure, sample.answers)
    cells = [*rows.cells.values()]
    whose = [f"case {sample.cases[places[0][0]].id!r}" for places in rows.places.values()]
    if not cells:
        rule = f"check_signal needs rows of the signal {function.name}"
        refuse(rule, "none", "give a trace with hits and answers")
    begin = perf_counter()
    values = _in_batches(function, cells, whose)
    ms = 1e3 * (perf_counter() - begin) / len(cells)
    alone = [measure(function, [row], [name]) for row, name in zip(cells, whose, strict=True)]
    for repeat, rule in (
        (
            _in_batches(function, cells, whose),
            "return the same for the same rows again; fix its seed, or its temperature",
        ),
        (
            _in_batches(function, cells[::-1], whose[::-1])[::-1],
            "not hang on the order of the rows; score each row by itself",
        ),
        (
            np.concatenate(alone),
            "return the same for a row alone and among others; score each row by itself",
        ),
    ):
        differs = np.flatnonzero(~((values == repeat) | (np.isnan(values) & np.isnan(repeat))))
        if len(differs):
            row = int(differs[0])
            msg = (
                f"the signal {function.name} must {rule}: got {values[row]} and {repeat[row]} for "
                f"{whose[row]}."
            )
            raise AssertionError(msg)
    by_case = np.full(len(sample), np.nan)
    for value, places in zip(values, rows.places.values(), strict=True):
        by_case[[case for case, _, depth in places if not depth]] = value
    cases = scored_cases(decision_cases(measured_tables(sample, start).evidence), by_case)
    if text := cases.contradiction(f"the signal {function.name}", function.higher, CONTRADICTED):
        raise AssertionError(text)
    area = cases.ranking(function.higher, CONTRADICTED)
    return SignalCheck(len(cells), float(np.isnan(values).mean()), ms, *area[2:])


def _in_batches(
    function: SignalFunction, cells: Sequence[tuple[Any, ...]], whose: Sequence[str]
) -> NDArray[np.float64]:
    """Values of rows, as many at once as the function takes."""
    starts = range(0, len(cells), function.batch)
    parts = [slice(start, start + function.batch) for start in starts]
    return np.concatenate([measure(function, cells[part], whose[part]) for part in parts])
