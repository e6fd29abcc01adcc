"""How fast a stored trace is replayed.

Sweeps by both engines, exact steps, single decisions, memory.

A synthetic trace of 10,000 cases of 50 hits under 1,000 policies, all gates and rules on; see
`bench.py`.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from bench import Options, Row, Rows, module, seconds
from synthetic import (
    FULL,
    PATTERNS,
    QUICK,
    cost_policies,
    own_signals,
    random_policies,
    synthetic_trace,
)

import raglab
from raglab import Policy, Trace, replay

ENGINES = {"numpy": "NumPy", "numba": "compiled"}
AXIS = "similarity.min_similarity"  # the threshold with most breakpoints
LARGER = 30  # times the cases in which one axis is counted
SINGLE_CASES, SINGLE_POLICIES = 60, 20


def measured(trace: Trace) -> Any:  # noqa: ANN401 - a trace, or what a tree makes of it
    """The trace with its measurements, where a tree keeps them in a value of their own."""
    make = getattr(raglab, "Measured", None)
    return trace if make is None else make(trace)


def trace_and_policies(options: Options) -> tuple[Trace, list[Policy]]:
    """Trace and policies."""
    sizes = QUICK if options.quick else FULL
    return synthetic_trace(sizes), random_policies(sizes.policies)


def sweep_rate(trace: Trace, policies: Sequence[Policy], engine: str) -> float:
    """Million decisions a second of a sweep whose cases are measured already."""
    ready = measured(trace)
    taken = seconds(lambda: raglab.sweep(ready, policies, level=None, engine=engine), 3)
    return len(trace) * len(policies) / taken / 1e6


def swept(options: Options) -> Rows:
    """Sweeps, measuring included and not."""
    trace, policies = trace_and_policies(options)
    start = time.process_time()
    raglab.decide(trace, policies[0])
    yield Row("measure all cases and decide once", time.process_time() - start, "s")
    for engine, name in ENGINES.items():
        yield Row(f"sweep, {name}", sweep_rate(trace, policies, engine), "M decisions/s")
    yield Row("peak memory of the process after sweeps", peak_megabytes(), "MB")


def swept_otherwise(options: Options) -> Rows:
    """Sweeps with gates on signals of the user, and of decisions by expected cost."""
    trace, policies = trace_and_policies(options)
    kinds = {
        "own signals": own_signals(trace, policies),
        "expected cost": (trace, cost_policies(trace, len(policies))),
    }
    for what, (judged, these) in kinds.items():
        for engine, name in ENGINES.items():
            yield Row(
                f"sweep of {what}, {name}", sweep_rate(judged, these, engine), "M decisions/s"
            )


def decided(options: Options) -> Rows:
    """Decisions under one policy: their frame, one case at a time, and from nothing."""
    trace, policies = trace_and_policies(options)
    ready = measured(trace)
    yield Row(
        "decide under one policy",
        1e3 * seconds(lambda: raglab.decide(ready, policies[0]), 50),
        "ms",
    )
    fresh = iter([raglab.decide(ready, policies[1]) for _ in range(8)])
    yield Row("frame of decisions", 1e3 * seconds(lambda: next(fresh).frame(), 7), "ms")
    singles = [
        trace.subset([row]) for row in range(0, len(trace), max(1, len(trace) // SINGLE_CASES))
    ]
    some = policies[:SINGLE_POLICIES]

    def one_by_one() -> None:
        for single in map(measured, singles):
            for policy in some:
                raglab.decide(single, policy)

    yield Row(
        "one case and one policy at a time",
        len(singles) * len(some) / seconds(one_by_one, 2),
        "decisions/s",
    )
    alone = iter([trace.subset([0]) for _ in range(30)])
    start = time.process_time()
    for single in alone:
        raglab.decide(single, policies[0])
    yield Row("one case, not measured before", 1e3 * (time.process_time() - start) / 30, "ms")


def stepped(options: Options) -> Rows:
    """Exact steps: of all thresholds of four policies, and of the axis with most breakpoints."""
    trace, policies = trace_and_policies(options)
    published = Policy.from_mapping({"patterns": PATTERNS})
    judged, gated = own_signals(trace, [published])
    kinds = {
        "published": (measured(trace), published),
        "own signals": (measured(judged), gated[0]),
        "at random": (measured(trace), policies[0]),
        "expected cost": (measured(trace), cost_policies(trace, 1)[0]),
    }
    for what, (ready, policy) in kinds.items():
        whole = seconds(lambda ready=ready, policy=policy: raglab.steps(ready, policy), 7)
        yield Row(f"steps of all thresholds, {what}", 1e3 * whole, "ms")
    ready = kinds["published"][0]
    bare = seconds(lambda: raglab.steps(ready, published, level=None), 7)
    yield Row("steps of all thresholds, published, no intervals", 1e3 * bare, "ms")
    alone = seconds(lambda: raglab.steps(ready, published, path=AXIS), 7)
    yield Row("steps of one axis", 1e3 * alone, "ms")


# evidence or a part of it
def spread(evidence: Any, rng: np.random.Generator) -> Any:  # noqa: ANN401
    """Evidence with the fractions of each case scaled by its own factor, so all cases differ.

    The order within a case stays, as do whole numbers, NaN and the type.
    """

    def part(field: Any) -> Any:  # noqa: ANN401 - an array, a tuple of arrays, or a number
        if isinstance(field, tuple) and hasattr(field, "_fields"):
            return spread(field, rng)
        if (
            not isinstance(field, np.ndarray)
            or field.dtype.kind != "f"
            or not np.any(field % 1.0 > 0.0)
        ):
            return field
        return field * rng.uniform(0.9, 1.0, field.shape[-1])

    return type(evidence)(*map(part, evidence))


def counted(options: Options) -> Rows:
    """Counting the steps of single thresholds, and of one over many more cases that all differ."""
    trace, _ = trace_and_policies(options)
    policy = Policy.from_mapping({"patterns": PATTERNS})
    evidence = module("measurement").measured_tables(trace, policy).evidence
    paths = replay.all_step_cells(evidence, policy)
    alone = [
        seconds(lambda path=path: replay.step_cells(evidence, policy, path), 7) for path in paths
    ]
    yield Row("counting the steps of one threshold, median", 1e3 * statistics.median(alone), "ms")
    yield Row("counting the steps of one threshold, slowest", 1e3 * max(alone), "ms")
    larger = replay.case_rows(evidence, np.tile(np.arange(len(trace)), LARGER))
    larger = spread(larger, np.random.default_rng(0))
    taken = seconds(lambda: replay.step_cells(larger, policy, AXIS), 2)
    yield Row(f"the same of one axis, {LARGER} times the cases, all different", 1e3 * taken, "ms")


def peak_megabytes() -> float:
    """Most memory the process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024.0**2 if sys.platform == "darwin" else 1024.0
    )


BENCHES = (swept, swept_otherwise, decided, stepped, counted)
