"""Figures of computed values; the one file that knows matplotlib.

A function takes numbers, an optional `ax` (or `figure`, where there are several panels) and returns what it drew
on. Nothing is measured here, and no state of `pyplot` is touched: a notebook shows the returned figure. How
it looks is said in `_ink`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from raglab.lab import _ink as ink
from raglab.metrics import Reliability, RiskCoverage
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DPI = 100


class Panel(NamedTuple):
    """One threshold over its range: `steps` as `replay.steps` gives them; marks: name of a policy -> its value."""

    title: str
    unit: str
    steps: pd.DataFrame
    marks: Mapping[str, float]


def figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Empty figure, inches, that makes room for its labels and legends."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def png(drawn: Figure | Axes) -> bytes:
    """PNG of a figure, or of the one that axes are in; the same figure gives the same bytes."""
    stream = BytesIO()
    whole = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    if whole is None:
        msg = "axes must be in a figure to be drawn, got axes that were removed; draw them again."
        raise ValueError(msg)
    whole.savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def reliability(bins: Reliability, drawn: Figure | None = None) -> Figure:
    """Share that is right against confidence, one point and interval a bin, and its count as a bar below.

    Args:
      bins: of confidences from 0 to 100.
    """
    drawn = drawn or figure(6.4, 5.4)
    on, below = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    on.plot([0, 100], [0, 1], label="if it were a probability", **ink.IDEAL)
    reach = np.abs(np.stack([bins.rate - bins.interval.low, bins.interval.high - bins.rate]))
    on.errorbar(bins.score, bins.rate, yerr=reach, label="right, with 95 % interval", **ink.OBSERVED)
    below.bar(bins.score, bins.n, width=4.0, color=ink.SKY)
    for place, count in zip(bins.score, bins.n, strict=True):
        below.annotate(str(int(count)), (place, count), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    below.set_ylim(0, 1.35 * max(1, int(bins.n.max(initial=0))))
    below.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    below.set_xlim(0, 100)
    below.set_xlabel("confidence (points, 0 to 100)", fontsize=9)
    below.set_ylabel("cases (count)", fontsize=9)
    _tidy(below)
    _shares(on, "right if answered (share of cases, %)")
    _legend_above(on, 2)
    return drawn


def risk_coverage(
    curves: Mapping[str, RiskCoverage],
    points: Mapping[str, tuple[float, float]],
    ax: Axes | None = None,
    *,
    target: float | None = None,
) -> Axes:
    """Share of answers that are wrong against share answered, a step line a signal, a mark a policy.

    Args:
      points: name -> (coverage, hallucination_rate); a NaN has no mark. target: drawn as a dashed line.
    """
    on = _axes(ax, 8.2, 4.8)
    for place, (name, curve) in enumerate(curves.items()):
        on.plot(curve.coverage, curve.risk, label=ink.plain(name), **ink.curve_style(place))
    for place, (name, (coverage, risk)) in enumerate(points.items()):
        if not np.isnan(coverage + risk):
            on.plot([coverage], [risk], label=ink.plain(name), **ink.point_style(place))
    if target is not None:
        on.axhline(target, label=f"target {100 * target:g} %", **ink.TARGET)
    on.set_xlim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
    on.xaxis.set_major_formatter(_percent())
    on.set_xlabel("coverage (share of cases answered, %)", fontsize=9)
    _shares(on, "risk (wrong share of the answered, %)")
    _legend_beside(on)
    return on


def threshold(panel: Panel, targets: Mapping[str, float], ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Rates as exact step functions of one threshold, the policies' values as vertical lines, targets dashed.

    A value far beyond every change is named at the edge.

    Args:
      targets: rate -> target, drawn in the ink of the rate.
    """
    on = _axes(ax, 7.0, 4.2)
    steps = panel.steps
    low, high = ink.seen_range(steps["low"].to_numpy()[1:], list(panel.marks.values()))
    edges = np.append(steps["low"].to_numpy(), steps["high"].to_numpy()[-1])
    for name, colour in ink.RATE_INKS.items():
        on.stairs(steps[name].to_numpy(), edges, baseline=None, color=colour, linewidth=1.5, label=ink.words(name))
        if name in targets:
            on.axhline(targets[name], **ink.TARGET | {"color": colour})
    for place, (name, value) in enumerate(panel.marks.items()):
        on.axvline(value, **ink.VALUES[place % len(ink.VALUES)], label=ink.plain(name))
        if not low <= value <= high:
            _beyond(on, f"{ink.plain(name)} {value:g}", place, right=value > high)
    on.set_xlim(low, high)
    on.set_title(panel.title, fontsize=9, loc="left")
    on.set_xlabel(f"threshold ({panel.unit})", fontsize=8)
    on.xaxis.set_major_locator(MaxNLocator(nbins=6))
    _shares(on, "rate (%)")
    if legend:
        _legend_beside(on)
    return on


def thresholds(
    panels: Sequence[Panel], targets: Mapping[str, float], drawn: Figure | None = None, *, columns: int = 3
) -> Figure:
    """Small multiples of `threshold`, one legend for all."""
    n_rows = max(1, -(-len(panels) // columns))
    drawn = drawn or figure(3.7 * columns, 2.5 * n_rows + 0.7)
    grid = drawn.subplots(n_rows, columns, squeeze=False)
    known: dict[str, Any] = {}
    for place, on in enumerate(grid.flat):
        if place >= len(panels):
            on.set_axis_off()
            continue
        threshold(panels[place], targets, on, legend=False)
        if place % columns:
            on.set_ylabel("")
        known = {label: line for line, label in zip(*on.get_legend_handles_labels(), strict=True)} | known
    known["targets"] = Line2D([], [], **ink.TARGET | {"color": ink.GREY})
    _legend_over(drawn, list(known.values()), list(known), columns=7)
    return drawn


def label_by_decision(counts: NDArray[np.int64], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Heat-table of labels (rows) and decisions (columns): counts, and their share of the row.

    Args:
      counts: [3, 3] in the order of `Status`.
    """
    on = _axes(ax, 4.4, 4.0)
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(total, 1)
    on.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), count in np.ndenumerate(counts):
        text = f"{count}\n{100 * share[row, column]:.0f} %" if total[row, 0] else f"{count}\n–"
        colour = "white" if share[row, column] > 0.55 else "black"
        weight = "bold" if row == column else "normal"
        on.text(column, row, text, ha="center", va="center", fontsize=10, color=colour, weight=weight)
    names = [status.name for status in Status]
    on.set_xticks(range(3), names)
    on.set_yticks(range(3), [f"{name}\n(n = {n})" for name, n in zip(names, total[:, 0], strict=True)])
    on.set_xlabel("decision (cases, and % of the row)")
    on.set_ylabel("label (cases)")
    on.set_title(ink.plain(title), fontsize=10)
    on.tick_params(length=0)
    return on


def labels_by_decision(counts: Mapping[str, NDArray[np.int64]], drawn: Figure | None = None) -> Figure:
    """`label_by_decision` of several policies beside each other."""
    drawn = drawn or figure(4.4 * len(counts), 4.2)
    for on, (name, table) in zip(drawn.subplots(1, len(counts), squeeze=False).flat, counts.items(), strict=True):
        label_by_decision(table, on, title=name)
    return drawn


def confidence_by_label(
    counts: Mapping[str, NDArray[np.int64]],
    edges: Sequence[float],
    taus: Mapping[str, float],
    drawn: Figure | None = None,
) -> Figure:
    """Histogram of the confidence for each label, one above the other, with the taus as vertical lines.

    Args:
      counts: label -> cases between the edges, [B]. taus: name -> confidence.
    """
    drawn = drawn or figure(7.4, 5.4)
    grid = drawn.subplots(len(counts), 1, sharex=True, squeeze=False)[:, 0]
    for on, (name, bars) in zip(grid, counts.items(), strict=True):
        on.stairs(bars, edges, fill=True, color=ink.LABEL_INKS[Status[name]], alpha=0.75)
        on.set_title(f"label {name} (n = {int(bars.sum())})", fontsize=9, loc="left")
        on.set_ylabel("cases (count)", fontsize=9)
        on.set_ylim(0, 1.12 * max(1, int(bars.max(initial=0))))
        on.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        for place, (label, tau) in enumerate(taus.items()):
            on.axvline(tau, **ink.VALUES[place % len(ink.VALUES)], label=ink.plain(label))
        _tidy(on)
    grid[-1].set_xlim(edges[0], edges[-1])
    grid[-1].set_xlabel("confidence (points, 0 to 100)", fontsize=9)
    if taus:
        lines, labels = grid[0].get_legend_handles_labels()
        _legend_over(drawn, lines, labels, columns=2)
    return drawn


def pareto(
    false_refusal: NDArray[np.float64],
    hallucination: NDArray[np.float64],
    front: NDArray[np.bool_],
    targets: Mapping[str, float],
    ax: Axes | None = None,
) -> Axes:
    """Trials by false-refusal and hallucination rate, those that no other beats in both joined by a line.

    Args:
      false_refusal, hallucination: of each trial, [N]. front: whether no other beats it, [N].
    """
    on = _axes(ax, 7.0, 4.6)
    on.plot(false_refusal[~front], hallucination[~front], "o", label="trial", **ink.TRIAL)
    order = np.argsort(false_refusal[front], kind="stable")
    line = (false_refusal[front][order], hallucination[front][order])
    on.plot(*line, "o-", label="no other trial is better in both", **ink.FRONT)
    on.axvline(targets["false_refusal_rate"], label="targets", **ink.TARGET)
    on.axhline(targets["hallucination_rate"], **ink.TARGET)
    on.set_xlim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
    on.xaxis.set_major_formatter(_percent())
    on.set_xlabel("false_refusal_rate (share of the answerable, %)", fontsize=9)
    _shares(on, "hallucination_rate (share of the answered, %)")
    _legend_above(on, 3)
    return on


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    return ax if ax is not None else figure(width, height).subplots()


def _percent() -> PercentFormatter:
    return PercentFormatter(xmax=1.0, decimals=0, symbol=" %")


def _tidy(on: Axes) -> None:
    on.spines[["top", "right"]].set_visible(False)
    on.grid(visible=True, color="#e4e4e4", linewidth=0.6)
    on.set_axisbelow(True)
    on.tick_params(labelsize=8)


def _shares(on: Axes, label: str) -> None:
    on.set_ylim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
    on.yaxis.set_major_formatter(_percent())
    on.set_ylabel(label, fontsize=9)
    _tidy(on)


def _legend_above(on: Axes, columns: int) -> None:
    on.legend(ncols=columns, fontsize=8, frameon=False, **ink.ABOVE)


def _legend_beside(on: Axes) -> None:
    on.legend(fontsize=8, frameon=False, **ink.BESIDE)


def _legend_over(drawn: Figure, lines: Sequence[Any], labels: Sequence[str], columns: int) -> None:
    n_columns = min(columns, len(labels))
    drawn.legend(lines, labels, loc="outside upper center", ncols=n_columns, fontsize=9, frameon=False)


def _beyond(on: Axes, text: str, place: int, *, right: bool) -> None:
    """Say at the edge that a value lies beyond it."""
    at, shown = ((0.98, 0.86 - 0.14 * place), f"{text} →") if right else ((0.02, 0.86 - 0.14 * place), f"← {text}")
    side = "right" if right else "left"
    on.annotate(shown, at, xycoords="axes fraction", ha=side, va="top", fontsize=8, bbox=ink.LABEL, zorder=3)
