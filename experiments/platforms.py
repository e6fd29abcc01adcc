"""What the scores of five platforms on HINT3 are worth: frames with a probability and no distances.

Markdown tables.

    python experiments/platforms.py DATA/hint3-sofmattress

Each frame is `sets.hint3_frame`: a message, the one intent found, `node_score`. The gates on
distances and on a reranker's confidence are off, as the trace says of itself;
`signals.node_score.min` decides. Messages are dealt in turn, label by label, to tune and certify.
Tune orders the thresholds; certify is looked at once for each target.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from sets import PLATFORMS, hint3_frame

from raglab import (
    Policy,
    Trace,
    calibration,
    certify_best,
    decide,
    metrics,
    sweep,
    trace_from_frame,
)
from raglab.lab import always_answer
from raglab.values import Status

SIGNALS = {"node_score": {"higher": "surer", "unit": "probability", "source": "HINT3"}}
# hallucination rates that each platform is certified for, each at 90 %
LEVELS = (0.4, 0.3, 0.2, 0.1)
MIN_SCORE = 0.5  # of the row that shows the rates of one threshold
BINS = 5


def platform_trace(folder: Path, platform: str) -> Trace:
    """Trace of a platform's frame, dealt to tune and certify."""
    frame = hint3_frame(folder, platform)
    dealt: Counter[str] = Counter()
    splits = []
    for label in frame["label"]:
        splits.append(("tune", "certify")[dealt[label] % 2])
        dealt[label] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the module says that the gates are off
        return trace_from_frame(
            frame.assign(split=splits), score=None, signals=SIGNALS, name=platform
        )


def rates_row(trace: Trace) -> str:
    """Rates of always-answer, and of one threshold, with counts."""
    bare = always_answer(Policy.load())
    rows = sweep(trace, [bare, bare.replace("signals.node_score.min", MIN_SCORE)]).to_dict(
        "records"
    )
    names = ("hallucination_rate", "false_refusal_rate", "coverage", "pass_rate")
    cells = [f"{row[f'{name}_k']}/{row[f'{name}_n']}" for row in rows for name in names]
    return " | ".join(cells)


def reliability_row(trace: Trace) -> str:
    """How far the score can be believed where a platform finds an intent.

    AUROC, ECE, and share right by bin.
    """
    decisions = decide(trace, always_answer(Policy.load()))
    answered = decisions.status == Status.ok
    right, score = decisions.right[answered], trace.signal("node_score").to_numpy()[answered]
    low, high = metrics.auroc_interval(right, score)
    error = calibration.ece(right, score, bins=BINS, strategy="quantile")
    ends = calibration.ece_interval(
        right, score, bins=BINS, strategy="quantile", rng=np.random.default_rng(0)
    )
    curve = calibration.reliability(right, score, bins=BINS, strategy="quantile")
    bins = ", ".join(f"{x:.2f}: {k}/{n}" for x, k, n in zip(curve.x, curve.k, curve.n, strict=True))
    auroc = f"{metrics.auroc(right, score):.3f} [{low:.3f}, {high:.3f}]"
    return f"{answered.sum()} | {auroc} | {error:.3f} [{ends[0]:.3f}, {ends[1]:.3f}] | {bins}"


def certificate_row(trace: Trace) -> str:
    """What each level certifies: threshold, share answered, errors and bound."""
    policy = always_answer(Policy.load()).replace("signals.node_score.min", MIN_SCORE)
    cells = []
    for alpha in LEVELS:
        certification = certify_best(
            trace, policy, targets={"hallucination_rate": alpha}, again=True
        )
        (promise,) = certification.certificate.promises
        counts = f"{promise.k:g}/{promise.n} ≤ {promise.bound:.3f}"
        if certification.policy is None:
            cells.append(f"no ({counts})")
        else:
            least = certification.policy.value("signals.node_score.min")
            cells.append(f"**{certification.certificate.coverage:.3f}** at {least:.3f} ({counts})")
    return " | ".join(cells)


def main() -> None:
    """Print rates, reliability and certificates of the platforms."""
    parser = argparse.ArgumentParser(
        description="What the scores of five platforms on HINT3 are worth."
    )
    parser.add_argument("folder", type=Path, help="folder of the set, with preds/")
    folder = parser.parse_args().folder
    traces = {platform: platform_trace(folder, platform) for platform in PLATFORMS}
    n = Counter(case.expect_status for case in next(iter(traces.values())).cases)
    print(
        f"{n['ok']} messages in scope, {n['refuse']} out of scope; gates off: "
        f"{traces['bert'].meta['gates_off']}"
    )
    rates = "hallucination | false refusal | answered | pass"
    tables = (
        (f"{rates} | at {MIN_SCORE:g}: {rates}", rates_row),
        ("found | AUROC | ECE | mean score: right of found", reliability_row),
        (" | ".join(f"answered at ≤ {alpha:.0%}" for alpha in LEVELS), certificate_row),
    )
    for heads, row in tables:
        print(f"\n| platform | {heads} |\n|{'---|' * (heads.count('|') + 2)}")
        for platform, trace in traces.items():
            print(f"| {platform} | {row(trace)} |")


if __name__ == "__main__":
    main()
