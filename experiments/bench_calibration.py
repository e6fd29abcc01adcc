"""How fast calibration, selective prediction and certificates are at a million rows, beside peers.

See `bench.py`.

Peers are those of the extra `bench`; one that is not installed is left out. What would take minutes
is timed in part and scaled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from bench import BESIDE, Options, Row, Rows, seconds
from numpy.typing import NDArray

from raglab.calibration import ece, ece_interval, smooth_ece
from raglab.certify import certify, fixed_sequence, pareto_order
from raglab.metrics import aurc, binomial_p

Run = Callable[[], Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BINS = 15
DELTA = 0.1
FEW = 50  # of the rows, the part that MAPIE is given; its time is scaled
DRAWN = 5  # of the 1,000 resamples of plain NumPy, which are scaled
ALPHAS = (0.05, 0.10)  # hallucinations, false refusals
THRESHOLDS = np.arange(0.0, 100.0, 5.0)  # of each of two gates


class Gated(NamedTuple):
    """Cases of two gates, half of them a pilot's.

    group: 0 answerable and right if answered, 1 answerable and wrong, 2 to refuse. held: not of the
    pilot.
    """

    signals: tuple[Floats, Floats]
    group: Ints
    held: NDArray[np.bool_]


def plain_ece(y: NDArray[np.bool_], p: Floats) -> float:
    """ECE in the fewest passes: one sum of residuals a bin."""
    bins = np.maximum(np.ceil(p * BINS), 1.0).astype(np.int64)
    return float(np.abs(np.bincount(bins, weights=p - y)).sum() / p.size)


def plain_bins(y: NDArray[np.bool_], p: Floats) -> float:
    """ECE from the bins of scikit-learn's `calibration_curve`.

    A search for the edge and three sums.
    """
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
    """Cases whose signals, whole points from 0 to 100, separate groups enough for both targets."""
    group = rng.choice(3, n, p=[0.85, 0.03, 0.12])
    middle = np.array([70.0, 45.0, 30.0])[group]
    first, second = (np.clip(np.round(rng.normal(middle, 15.0)), 0.0, 100.0) for _ in range(2))
    return Gated((first, second), group, rng.random(n) < 0.5)


def counted(passing: Ints, answerable: int) -> tuple[Ints, Ints]:
    """Hallucinations of the answered and false refusals of the answerable, k and n, [..., 2]."""
    answered = passing.sum(axis=-1)
    k = np.stack([answered - passing[..., 0], answerable - passing[..., :2].sum(axis=-1)], axis=-1)
    return k, np.stack([answered, np.full_like(answered, answerable)], axis=-1)


def passing_counts(signals: tuple[Floats, Floats], part: Ints) -> Ints:
    """Cases of each of six parts that pass both gates, per pair of thresholds, [20, 20, 6]."""
    counts = np.zeros((len(THRESHOLDS) + 1, len(THRESHOLDS) + 1, 6), dtype=np.int64)
    passed = (np.searchsorted(THRESHOLDS, signal, side="right") for signal in signals)
    np.add.at(counts, (*passed, part), 1)
    return counts[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1][1:, 1:]


def certificate(cases: Gated) -> Ints:
    """Pairs of thresholds that keep both targets.

    Order learned on the pilot half, tested on the other.
    """
    part = cases.group + 3 * cases.held
    passing = passing_counts(cases.signals, part)
    total = np.bincount(part, minlength=6)
    pilot, held = (
        counted(passing[..., 3 * i : 3 * i + 3].reshape(-1, 3), total[3 * i : 3 * i + 2].sum())
        for i in (0, 1)
    )
    # of two targets the larger p-value, which needs no correction (Berger 1982)
    p_pilot, p_held = (
        binomial_p(*counts, np.array(ALPHAS)).max(axis=-1) for counts in (pilot, held)
    )
    order = pareto_order(p_pilot, pilot[1][:, 0].astype(np.float64))
    return order[fixed_sequence(p_held[order], DELTA)]


def one_by_one(cases: Gated) -> Ints:
    """Counts of all pairs of thresholds, one pair at a time, [20, 20, 6]."""
    first, second = cases.signals
    part = cases.group + 3 * cases.held
    return np.array(
        [
            [
                np.bincount(part[(first >= first_bound) & (second >= second_bound)], minlength=6)
                for second_bound in THRESHOLDS
            ]
            for first_bound in THRESHOLDS
        ]
    )


def mapie_pairs(cases: Gated) -> Run:
    """MAPIE's control of two risks over 400 pairs, Holm: a learned order costs seconds more."""
    from mapie.risk_control import BinaryClassificationController, BinaryRisk

    hallucination = BinaryRisk(
        lambda y, _: y != 0, lambda _, answers: answers == 1, higher_is_better=False
    )
    refusal = BinaryRisk(
        lambda _, answers: answers == 0, lambda y, _: y < 2, higher_is_better=False
    )
    pairs = np.stack(np.meshgrid(THRESHOLDS, THRESHOLDS, indexing="ij"), axis=-1).reshape(-1, 2)
    signals = np.stack(cases.signals, axis=1)

    def run() -> None:
        BinaryClassificationController(
            lambda x, first, second: ((x[:, 0] >= first) & (x[:, 1] >= second)).astype(int),
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
            lambda x: np.stack([1.0 - x, x], axis=1),
            precision,
            0.9,
            confidence_level=1.0 - DELTA,
            fwer_method="fixed_sequence",
        ).calibrate(p, correct)

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


def scores(options: Options) -> list[tuple[str, NDArray[np.bool_], Floats]]:
    """Name, outcomes and scores of few levels, many, and all different."""
    rng = np.random.default_rng(3)
    drawn = rng.random(20_000 if options.quick else 1_000_000)
    rounded = {
        "101 levels": np.round(drawn * 100.0) / 100.0,
        "1,000 levels": np.round(drawn * 999.0) / 999.0,
    }
    return [
        (name, rng.random(p.size) < p, p) for name, p in (rounded | {"continuous": drawn}).items()
    ]


def peer(
    options: Options, name: str, ready: Callable[[], Run], taken: float, times: float = 1.0
) -> Rows:
    """How many times faster raglab is than a peer; nothing where it is not installed.

    `times` scales what it did.
    """
    if not options.peers:
        return
    try:
        run = ready()
    except ModuleNotFoundError:
        return
    yield Row(f"{name}: times faster", times * seconds(run, 1) / taken, BESIDE)


def errors(options: Options) -> Rows:
    """ECE, its bootstrap and smooth ECE, against plain NumPy on the same bins, netcal, relplot."""
    for name, y, p in scores(options):
        taken = seconds(partial(ece, y, p), 21)
        yield Row(f"ECE, {name}", 1e3 * taken, "ms")
        yield from peer(
            options,
            f"ECE against plain NumPy, {name}",
            lambda y=y, p=p: partial(plain_bins, y, p),
            taken,
        )
        yield from peer(options, f"ECE against netcal, {name}", partial(netcal_ece, y, p), taken)
        taken = seconds(partial(smooth_ece, y, p), 7)
        yield Row(f"smooth ECE, {name}", 1e3 * taken, "ms")
        yield from peer(
            options, f"smooth ECE against relplot, {name}", partial(relplot_smooth, y, p), taken
        )
        taken = seconds(
            partial(ece_interval, y, p, resamples=1_000, rng=np.random.default_rng(5)), 3
        )
        yield Row(f"bootstrap of ECE, {name}", 1e3 * taken, "ms")
        drawn = partial(resampled, y, p, np.random.default_rng(4))
        yield from peer(
            options,
            f"bootstrap against plain NumPy, {name}",
            lambda drawn=drawn: drawn,
            taken,
            1_000 / DRAWN,
        )


def resampled(y: NDArray[np.bool_], p: Floats, rng: np.random.Generator) -> None:
    """ECE of some resamples of rows in plain NumPy."""
    for _ in range(DRAWN):
        rows = rng.integers(p.size, size=p.size)
        plain_ece(y[rows], p[rows])


def certificates(options: Options) -> Rows:
    """Certificate over pairs of thresholds, and of one gate, against pairs one by one and MAPIE."""
    every, rng, few = scores(options), np.random.default_rng(6), slice(None, None, FEW)
    size = every[0][2].size
    cases, some = gated(size, rng), gated(size // FEW, rng)
    taken = seconds(partial(certificate, cases), 7)
    yield Row("certificate of 400 pairs, 2 targets", 1e3 * taken, "ms")
    yield from peer(
        options, "certificate against pairs one by one", lambda: partial(one_by_one, cases), taken
    )
    yield from peer(
        options, "certificate against MAPIE, scaled", partial(mapie_pairs, some), taken, FEW
    )
    for name, y, p in every:
        taken = seconds(partial(certify, y, p, alpha=0.1), 9)
        yield Row(f"certify one gate, {name}", 1e3 * taken, "ms")
        yield from peer(
            options,
            f"one gate against MAPIE, scaled, {name}",
            partial(mapie_gate, y[few], p[few]),
            taken,
            FEW,
        )


def curves(options: Options) -> Rows:
    """AURC, against one argsort that leaves ties as they come."""
    for name, y, p in scores(options):
        taken = seconds(partial(aurc, y, p), 9)
        yield Row(f"AURC, {name}", 1e3 * taken, "ms")
        yield from peer(
            options,
            f"AURC against plain NumPy, {name}",
            lambda y=y, p=p: partial(plain_aurc, y, p),
            taken,
        )


BENCHES = (errors, certificates, curves)
