"""What the displays draw on axes: reliability, selective prediction, one gate over its threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab.certify import Certificate
from raglab.lab import _canvas as canvas
from raglab.lab import _ink as ink
from raglab.metrics import Interval
from raglab.values import Curve, Floats

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Axes

DIAGONAL = "if scores were true probabilities"
COUNTS = "cases by score"
STRIP = (-0.20, -0.06)  # of the upright axis: where the counts stand, below 0 %
SPREAD_BINS = 20
SETTLED = 0.05  # coverage from which on a risk is more than the first few cases


def reliability(on: Axes, curve: Curve, interval: Interval, spread: Curve, label: str, **style: Any) -> Any:  # noqa: ANN401 - styles, artists
    """Points with intervals over the mean score, and below them how many cases have such scores.

    A second curve on the same axes takes the next colour, and its counts are an outline.

    Args:
      spread: bins of 1 / `SPREAD_BINS`, whose `n` is drawn.

    Returns: the line through the points.
    """
    labels = on.get_legend_handles_labels()[1]
    if DIAGONAL not in labels:
        on.plot([0, 1], [0, 1], label=DIAGONAL, **ink.IDEAL)
    drawn = ink.bin_style(len(on.containers)) | style
    reach = np.abs(np.stack([curve.y - interval.low, interval.high - curve.y]))
    made = on.errorbar(curve.x, curve.y, yerr=reach, label=label, **drawn)
    _counts(on, spread, drawn["color"], filled=len(on.containers) == 1)
    on.set_xlim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
    on.set_xlabel("score (as a probability, 0 to 1)", fontsize=9)
    canvas.shares_up(on, "came true (share of cases, %)")
    on.set_ylim(STRIP[0] - 0.01, 1 + ink.SHARE_MARGIN)
    on.set_yticks(np.linspace(0.0, 1.0, 6))
    on.axhline(0.0, color=ink.SILVER, linewidth=0.6)
    canvas.legend_above(on, first=lambda label: not label.startswith((COUNTS, DIAGONAL)))
    return made.lines[0]


def _counts(on: Axes, spread: Curve, colour: str, *, filled: bool) -> None:
    """Cases by score in the strip below 0 %, the tallest bar as high as the strip."""
    bars = np.zeros(SPREAD_BINS)
    bars[np.rint(spread.at * SPREAD_BINS).astype(int)] = spread.n
    top = STRIP[0] + (STRIP[1] - STRIP[0]) * bars / bars.max()
    look: dict[str, Any] = {"fill": True, "alpha": 0.35, "linewidth": 0} if filled else {"linewidth": 1.1}
    label = f"{COUNTS}, tallest bar {int(bars.max())}"
    on.stairs(top, np.linspace(0.0, 1.0, SPREAD_BINS + 1), baseline=STRIP[0], color=colour, label=label, **look)


def risk(on: Axes, curve: Curve, label: str, place: int, **style: Any) -> Any:  # noqa: ANN401 - styles, artists
    """Risk over coverage: at each coverage that of the smallest one reachable above it; returns the line."""
    drawn = ink.curve_style(place) | style
    return on.plot(_from_zero(curve.x, 0.0), _from_zero(curve.y), label=label, **drawn)[0]


def risk_band(on: Axes, curve: Curve, interval: Interval, label: str, colour: str) -> None:
    """Interval of the risk at each step."""
    low, high = (_from_zero(np.asarray(end)) for end in interval)
    on.fill_between(_from_zero(curve.x, 0.0), low, high, step="pre", color=colour, label=label, **ink.BAND)


def _from_zero(values: NDArray[np.float64], first: float | None = None) -> NDArray[np.float64]:
    """Values with the first once more, or another, at coverage 0."""
    return np.concatenate([values[:1] if first is None else np.full(len(values[:1]), first), values])


def risk_axes(on: Axes, top: float) -> None:
    """Both axes in percent, with their labels; the upright one holds `top` and what was drawn before."""
    known = on.get_ylim()[1] if on.get_ylabel() else 0.0
    canvas.shares_along(on, "coverage (share of cases answered, %)")
    canvas.shares_up(on, "risk (wrong share of the answered, %)")
    canvas.round_ticks(on)
    on.set_ylim(-ink.SHARE_MARGIN * top, max(known, min(1.1 * top, 1 + ink.SHARE_MARGIN)))


def risk_top(curve: Curve, most: Floats, *others: float) -> float:
    """Highest value that the upright axis must hold; the first few cases, whose risk is chance, are no reason.

    Args:
      most: of each step, [N].
    """
    settled = curve.x >= min(SETTLED, curve.x[-1]) if len(curve.x) else np.zeros(0, dtype=bool)
    return max(float(np.max(np.asarray(most)[settled], initial=0.0)), *others, 0.01)


def target(on: Axes, value: float, label: str, **style: Any) -> None:  # noqa: ANN401 - a style
    """Dashed line at a target, once."""
    if label not in on.get_legend_handles_labels()[1]:
        on.axhline(value, label=label, **ink.TARGET | style)


def rates(on: Axes, steps: pd.DataFrame, names: Sequence[str], level: float, **style: Any) -> list[Any]:  # noqa: ANN401 - styles, artists
    """Rates as exact steps of one threshold, each with the interval of its steps; returns the step lines.

    Args:
      steps: with `low`, `high`, ascending, and for each name the rate and its `_low` and `_high`.
    """
    edges = _edges(steps)
    lines = []
    for name in names:
        value, low, high = (steps[f"{name}{end}"].to_numpy(dtype=np.float64) for end in ("", "_low", "_high"))
        colour = ink.SWEEP_INKS[name]
        on.stairs(high, edges, baseline=low, fill=True, color=colour, **ink.BAND)
        look: dict[str, Any] = {"color": colour, "linewidth": 1.5, "baseline": None, "label": ink.words(name)} | style
        lines.append(on.stairs(value, edges, **look))
    on.fill_between([], [], [], color=ink.GREY, label=f"{100 * level:g} % interval at each step", **ink.BAND)
    return lines


def _edges(steps: pd.DataFrame) -> NDArray[np.float64]:
    """Ends of the steps; an open end lies as far out as all steps are wide, so that it is drawn."""
    edges = np.append(steps["low"].to_numpy(dtype=np.float64), steps["high"].to_numpy(dtype=np.float64)[-1])
    known = edges[np.isfinite(edges)]
    room = max(float(np.ptp(known)), abs(float(known[0])), 1.0) if len(known) else 1.0
    middle = (float(known[0]), float(known[-1])) if len(known) else (0.0, 0.0)
    return np.where(np.isfinite(edges), edges, np.where(edges < 0, middle[0] - room, middle[1] + room))


def sweep_axes(on: Axes, steps: pd.DataFrame, marks: Sequence[float], unit: str, targets: Mapping[str, float]) -> None:
    """Range that holds every change and mark, targets dashed in the ink of their rate, axes with labels."""
    changes = steps["low"].to_numpy(dtype=np.float64)[1:]
    on.set_xlim(*ink.seen_range(changes, list(marks)))
    for name, value in targets.items():
        label = f"target: {ink.words(name)} ≤ {100 * value:g} %"
        target(on, value, label, color=ink.SWEEP_INKS[name])
    on.set_xlabel(f"threshold ({unit})", fontsize=9)
    canvas.few_ticks(on)
    canvas.shares_up(on, "rate (%)")


def certified(on: Axes, made: Certificate) -> None:
    """Certified threshold as a line, and the upper bound of its risk on it; where there is none, that is said."""
    sure = f"{100 * (1 - made.delta):g} % confidence"
    at = made.threshold
    if at is None:
        on.plot([], [], label=f"nothing certified at {sure}", linestyle="none")
        return
    alpha = f"{100 * made.promises[0].alpha:g} %"
    on.axvline(at, label=f"certified at {at:.4g}: risk ≤ {alpha} at {sure}", **ink.CERTIFIED)
    on.plot([at], [made.bound], label=f"upper bound there, {100 * made.bound:.3g} %", **ink.BOUND)
