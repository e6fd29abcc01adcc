"""What a study costs.

One of many configurations, whole and tracked, and each further configuration; see `bench.py`.
"""

from __future__ import annotations

import logging
import time

from bench import Options, Row, Rows
from synthetic import FULL, PATTERNS, QUICK, synthetic_trace

import raglab
from raglab import Policy

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


BENCHES = (searched,)
