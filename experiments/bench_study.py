"""What a study costs.

One of many configurations, whole and tracked, and each further configuration; see `bench.py`.
"""

from __future__ import annotations

import logging
import time

from bench import Options, Row, Rows
from synthetic import FULL, PATTERNS, QUICK, synthetic_trace

import raglab
from raglab import Policy, Trace

CASES, TRIALS = 400, 1_500


def searched(options: Options) -> Rows:
    """A study of the chain's thresholds with all candidates and folds.

    The slope between two numbers of trials.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    trace = synthetic_trace(
        (QUICK if options.quick else FULL)._replace(cases=60 if options.quick else CASES)
    )
    policy = Policy.from_mapping({"patterns": PATTERNS})
    few, many = (2, 6) if options.quick else (TRIALS // 3, TRIALS + TRIALS // 3)
    marks = []
    for trials in (few, few, many):  # the first is not timed
        marks.append(time.process_time())
        result = raglab.tune(trace, policy=policy, trials=trials)
    marks.append(time.process_time())
    yield Row(f"a study of {many:,} configurations", marks[3] - marks[2], "s")
    each = 1e3 * ((marks[3] - marks[2]) - (marks[2] - marks[1])) / (many - few)
    yield Row("each further configuration", each, "ms")
    if options.first:
        start = time.process_time()
        raglab.track(result, options.folder / "mlruns")
        yield Row("tracking it in MLflow, in an empty folder", time.process_time() - start, "s")


def certified(options: Options) -> Rows:
    """A decision by expected cost fitted on half of the cases, and its family's certified best.

    The best is certified on the other cases.
    """
    source = synthetic_trace(QUICK if options.quick else FULL._replace(cases=2_000))
    cases = tuple(
        case._replace(split=("tune", "certify")[row // 5 % 2])
        for row, case in enumerate(source.cases)
    )
    trace = Trace(cases, source.chunks, source.arms, source.hits, meta=source.meta)
    policy = Policy.from_mapping({"patterns": PATTERNS})
    start = time.process_time()
    fitted = raglab.fit_decision(trace, policy)
    yield Row(
        f"fit a decision by expected cost, {len(trace):,} cases", time.process_time() - start, "s"
    )
    start = time.process_time()
    raglab.certify_best(
        trace, fitted, targets={"hallucination_rate": 0.75, "false_refusal_rate": 0.6}
    )
    yield Row("certify the best of its family", time.process_time() - start, "s")


BENCHES = (searched, certified)
