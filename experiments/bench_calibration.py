"""How fast calibration, selective prediction and certificates are at a million rows, beside their peers.

Prints a plain table. All times are processor time of one thread; a shared machine slows it too: read ratios. Peers are
those of the extra `bench`; one that is not installed is left out. What would take minutes is timed in part and scaled.

    python experiments/bench_calibration.py            1,000,000 rows
    python experiments/bench_calibration.py --quick    the same path on 20,000 rows, in seconds
"""

from __future__ import annotations

from bench import line, seconds  # first: it sets the number of threads before NumPy starts

# isort: split
import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.calibration import ece, ece_interval, smooth_ece
from raglab.certify import certify, fixed_sequence, gate_counts, joint_p, pareto_order
from raglab.metrics import aurc

Run = Callable[[], Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BINS = 15
DELTA = 0.1
ALPHAS = (0.05, 0.10)  # hallucinations, false refusals
THRESHOLDS = np.arange(0.0, 100.0, 5.0)  # of each of two gates


class Sizes(NamedTuple):
    """Rows, repeats of what is fast, resamples of the plain bootstrap, rows that MAPIE is given."""

    rows: int
    repeats: int
    resamples: int
    fewer: int


FULL = Sizes(1_000_000, 21, 5, 20_000)
QUICK = Sizes(20_000, 3, 2, 1_000)


class Gated(NamedTuple):
    """Cases of two gates, half of them a pilot's.

    group: 0 answerable and right if answered, 1 answerable and wrong, 2 to refuse. held: not of the pilot.
    """

    signals: tuple[Floats, Floats]
    group: Ints
    held: NDArray[np.bool_]


def plain_ece(y: NDArray[np.bool_], p: Floats) -> float:
    """ECE in the fewest passes: one sum of residuals a bin."""
    bins = np.maximum(np.ceil(p * BINS), 1.0).astype(np.int64)
    return float(np.abs(np.bincount(bins, weights=p - y)).sum() / p.size)


def plain_bins(y: NDArray[np.bool_], p: Floats) -> float:
    """ECE from the bins of scikit-learn's `calibration_curve`: a search for the edge and three sums."""
    bins = np.searchsorted(np.linspace(0.0, 1.0, BINS + 1)[1:-1], p)
    n, k, total = np.bincount(bins), np.bincount(bins, weights=y), np.bincount(bins, weights=p)
    filled = n > 0
    gap = np.abs(total[filled] / n[filled] - k[filled] / n[filled])
    return float((gap * n[filled]).sum() / p.size)


def plain_aurc(correct: NDArray[np.bool_], confidence: Floats) -> float:
    """AURC by one argsort, which depends on the order of tied rows."""
    wrong = ~correct[np.argsort(-confidence)]
    return float((wrong.cumsum() / np.arange(1, wrong.size + 1)).mean())


def gated(n: int, rng: np.random.Generator) -> Gated:
    """Cases whose signals, whole points from 0 to 100, separate the groups well enough for both targets."""
    group = rng.choice(3, n, p=[0.85, 0.03, 0.12])
    middle = np.array([70.0, 45.0, 30.0])[group]
    first, second = (np.clip(np.round(rng.normal(middle, 15.0)), 0.0, 100.0) for _ in range(2))
    return Gated((first, second), group, rng.random(n) < 0.5)


def counted(passing: Ints, answerable: int) -> tuple[Ints, Ints]:
    """Hallucinations of the answered and false refusals of the answerable, k and n, [..., 2]."""
    answered = passing.sum(axis=-1)
    k = np.stack([answered - passing[..., 0], answerable - passing[..., :2].sum(axis=-1)], axis=-1)
    return k, np.stack([answered, np.full_like(answered, answerable)], axis=-1)


def certificate(cases: Gated) -> Ints:
    """Pairs of thresholds that keep both targets: order learned on the pilot half, tested on the other."""
    part = cases.group + 3 * cases.held
    passing = gate_counts(cases.signals, [THRESHOLDS, THRESHOLDS], part)
    total = np.bincount(part, minlength=6)
    pilot, held = (
        counted(passing[..., 3 * i : 3 * i + 3].reshape(-1, 3), total[3 * i : 3 * i + 2].sum()) for i in (0, 1)
    )
    order = pareto_order(joint_p(*pilot, ALPHAS), pilot[1][:, 0].astype(np.float64))
    return order[fixed_sequence(joint_p(*held, ALPHAS)[order], DELTA)]


def one_by_one(cases: Gated) -> Ints:
    """Counts of all pairs of thresholds, one pair at a time, [20, 20, 6]."""
    first, second = cases.signals
    part = cases.group + 3 * cases.held
    return np.array(
        [
            [np.bincount(part[(first >= one) & (second >= other)], minlength=6) for other in THRESHOLDS]
            for one in THRESHOLDS
        ]
    )


def mapie_pairs(cases: Gated) -> Run:
    """MAPIE's control of two risks over 400 pairs, Holm: a learned order costs seconds more."""
    from mapie.risk_control import BinaryClassificationController, BinaryRisk

    hallucination = BinaryRisk(lambda y, _: y != 0, lambda _, said: said == 1, higher_is_better=False)
    refusal = BinaryRisk(lambda _, said: said == 0, lambda y, _: y < 2, higher_is_better=False)
    pairs = np.stack(np.meshgrid(THRESHOLDS, THRESHOLDS, indexing="ij"), axis=-1).reshape(-1, 2)
    signals = np.stack(cases.signals, axis=1)

    def run() -> None:
        BinaryClassificationController(
            lambda x, one, other: ((x[:, 0] >= one) & (x[:, 1] >= other)).astype(int),
            [hallucination, refusal],
            list(ALPHAS),
            confidence_level=1.0 - DELTA,
            list_predict_params=pairs,
        ).calibrate(signals, cases.group)

    return run


def mapie_gate(correct: NDArray[np.bool_], p: Floats) -> Run:
    """MAPIE's control of one risk over its 100 thresholds, fixed sequence."""
    from mapie.risk_control import BinaryClassificationController, precision

    def run() -> None:
        BinaryClassificationController(
            lambda x: np.stack([1.0 - x, x], axis=1), precision, 0.9,
            confidence_level=1.0 - DELTA, fwer_method="fixed_sequence",
        ).calibrate(p, correct)  # fmt: skip

    return run


def netcal_ece(y: NDArray[np.bool_], p: Floats) -> Run:
    """ECE of netcal."""
    from netcal.metrics import ECE

    return lambda: ECE(BINS).measure(p, y.astype(int))


def relplot_smooth(y: NDArray[np.bool_], p: Floats) -> Run:
    """Smooth ECE of relplot, on the probability itself."""
    import relplot
    from relplot.metrics import smECE

    relplot.config.use_logit_scaling = False
    return lambda: smECE(p, y.astype(float))


def shown(taken: float) -> str:
    """Time in the unit that suits it."""
    return f"{taken * 1000.0:,.1f} ms" if taken < 0.2 else f"{taken:,.2f} s"


def peer(what: str, ready: Callable[[], Run], repeats: int, times: float = 1.0) -> None:
    """Print the time of a peer, or that it is not here; `times` scales what was timed in part."""
    try:
        run = ready()
    except ModuleNotFoundError as missing:
        line(f"  {what}", f"no {missing.name}")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line(f"  {what}", shown(times * seconds(run, repeats)), "" if times == 1.0 else f"scaled x {times:,.0f}")


class Table(NamedTuple):
    """Prints rows; targets only of the full size."""

    sizes: Sizes

    def under(self, what: str, taken: float, most: float | None = None) -> None:
        """Print a time and whether it is below its target."""
        if most is None or self.sizes is not FULL:
            line(what, shown(taken))
        else:
            line(what, shown(taken), f"< {most:g} s", met=taken < most)

    def within(self, what: str, times: float, most: float) -> None:
        """Print a ratio and whether it is within its target."""
        if self.sizes is FULL:
            line(what, f"{times:,.2f} x", f"<= {most:g} x", met=times <= most)
        else:
            line(what, f"{times:,.2f} x")


def ece_rows(table: Table, name: str, y: NDArray[np.bool_], p: Floats) -> None:
    """ECE against plain NumPy, timed in turns; the target is against the same bins, which are those of scikit-learn."""
    runs = (ece, plain_ece, plain_bins)
    turns = [[seconds(lambda run=run: run(y, p), 1) for run in runs] for _ in range(table.sizes.repeats)]  # type: ignore[misc]
    taken, plain, searched = np.median(turns, axis=0).tolist()
    line(f"ECE, {name}", shown(taken))
    line("  plain NumPy, the same bins", shown(searched))
    table.within("  against it", taken / searched, 1.5)
    line("  plain NumPy, scores cut to bins, edges off by an ulp", shown(plain))
    line("  against it", f"{taken / plain:,.2f} x")


def netcal_row(name: str, y: NDArray[np.bool_], p: Floats) -> None:
    """ECE of the peer."""
    peer(f"netcal, {name}", lambda: netcal_ece(y, p), 3)


def smooth_rows(table: Table, name: str, y: NDArray[np.bool_], p: Floats) -> None:
    """Smooth ECE."""
    table.under(f"smooth ECE, {name}", seconds(lambda: smooth_ece(y, p), 5), 0.2)
    peer("relplot", lambda: relplot_smooth(y, p), 1)


def bootstrap_rows(table: Table, name: str, y: NDArray[np.bool_], p: Floats, rng: np.random.Generator) -> None:
    """Bootstrap of ECE; the target is for scores of up to 1,000 levels."""

    def resample() -> None:
        rows = rng.integers(p.size, size=p.size)
        plain_ece(y[rows], p[rows])

    taken = seconds(lambda: ece_interval(y, p, resamples=1_000, rng=rng), 3)
    table.under(f"bootstrap of ECE, 1,000 resamples, {name}", taken, None if name == "continuous" else 0.5)
    drawn = table.sizes.resamples
    peer(f"plain NumPy, rows drawn {drawn} times", lambda: resample, drawn, 1_000.0)


def pair_rows(table: Table, rng: np.random.Generator) -> None:
    """Certificate over pairs of thresholds."""
    rows, fewer = table.sizes.rows, table.sizes.fewer
    cases, some = gated(rows, rng), gated(fewer, rng)
    table.under("certificate, 400 pairs, 2 targets, pilot and test", seconds(lambda: certificate(cases), 5), 0.3)
    peer("plain NumPy, counts of one pair at a time", lambda: lambda: one_by_one(cases), 1)
    peer(f"MAPIE, Holm, on {fewer:,} cases", lambda: mapie_pairs(some), 1, rows / fewer)


def gate_rows(table: Table, name: str, y: NDArray[np.bool_], p: Floats) -> None:
    """Certificate of one gate."""
    rows, fewer = table.sizes.rows, table.sizes.fewer
    line(f"certify, one gate, {name}", shown(seconds(lambda: certify(p, y, alpha=0.1), 3)))
    peer(f"MAPIE, 100 thresholds, on {fewer:,} cases", lambda: mapie_gate(y[:fewer], p[:fewer]), 1, rows / fewer)


def aurc_rows(name: str, y: NDArray[np.bool_], p: Floats) -> None:
    """AURC."""
    line(f"AURC, {name}", shown(seconds(lambda: aurc(y, p), 5)))
    line("  plain NumPy, one argsort, ties as they come", shown(seconds(lambda: plain_aurc(y, p), 5)))


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a smoke test on few rows, without targets")
    table = Table(QUICK if options.parse_args().quick else FULL)
    rng = np.random.default_rng(3)
    drawn = rng.random(table.sizes.rows)
    rounded = {"101 levels": np.round(drawn * 100.0) / 100.0, "1,000 levels": np.round(drawn * 999.0) / 999.0}
    scores = [(name, rng.random(p.size) < p, p) for name, p in (rounded | {"continuous": drawn}).items()]
    np.empty(31 << 20, np.uint8)  # given back at once: then glibc keeps what plain NumPy frees, at its best speed
    line(f"{table.sizes.rows:,} rows, one thread", "measured", "target")
    for each in scores:
        ece_rows(table, *each)
    for each in scores:
        netcal_row(*each)
    for each in scores:
        smooth_rows(table, *each)
    for each in scores:
        bootstrap_rows(table, *each, rng)
    pair_rows(table, rng)
    for each in scores:
        gate_rows(table, *each)
    for each in scores:
        aurc_rows(*each)


if __name__ == "__main__":
    main()
