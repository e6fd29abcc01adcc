"""Figures of computed values; the one file that knows matplotlib.

A function takes numbers, an optional `ax` (or `figure`, where there are several panels) and returns what it drew
on. Nothing is measured here, and no state of `pyplot` is touched: a notebook shows the returned figure. Colours
are those of Okabe and Ito, told apart by colour-blind readers; lines differ in dashes too.
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

from raglab.metrics import Reliability, RiskCoverage
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666"
INKS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
RATE_INKS = {"false_refusal_rate": BLUE, "hallucination_rate": VERMILLION, "missed_ambiguity_rate": GREEN, "over_ask_rate": PURPLE}
LABEL_INKS = {Status.ok: GREEN, Status.refuse: VERMILLION, Status.ambiguous: BLUE}
MARKS: tuple[dict[str, Any], ...] = (  # a thin line is seen on a broad one where two policies share a value
    {"color": "#9a9a9a", "linewidth": 3.2},
    {"color": "black", "linewidth": 1.4},
    {"color": "#9a9a9a", "linewidth": 3.2, "linestyle": DASHES[2]},
    {"color": "black", "linewidth": 1.4, "linestyle": DASHES[2]},
)
DPI = 100
SHARE_MARGIN = 0.03  # room beyond 0 and 100 %, so that lines on the frame are seen


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
    on.plot([0, 100], [0, 1], color=GREY, linestyle=DASHES[1], linewidth=1, label="if it were a probability")
    reach = np.abs(np.stack([bins.rate - bins.interval.low, bins.interval.high - bins.rate]))
    on.errorbar(bins.score, bins.rate, yerr=reach, fmt="o", color=BLUE, capsize=3, linewidth=1.3, label="right, with 95 % interval")
    below.bar(bins.score, bins.n, width=4.0, color=SKY)
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
    curves: Mapping[str, RiskCoverage], points: Mapping[str, tuple[float, float]], ax: Axes | None = None, *, target: float | None = None
) -> Axes:
    """Share of answers that are wrong against share answered, a step line a signal, a mark a policy.

    Args:
      points: name -> (coverage, hallucination_rate); a NaN has no mark. target: drawn as a dashed line.
    """
    on = _axes(ax, 8.2, 4.8)
    for place, (name, curve) in enumerate(curves.items()):
        on.plot(curve.coverage, curve.risk, drawstyle="steps-post", color=INKS[place % 7], linestyle=DASHES[place % 4], linewidth=1.5, label=_plain(name))
    for place, (name, (coverage, risk)) in enumerate(points.items()):
        if not np.isnan(coverage + risk):
            on.plot([coverage], [risk], MARKERS[place % 7], color="black", markerfacecolor=INKS[-1 - place % 7], markersize=8, label=_plain(name))
    if target is not None:
        on.axhline(target, color="black", linestyle="--", linewidth=0.8, label=f"target {100 * target:g} %")
    on.set_xlim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    on.xaxis.set_major_formatter(_percent())
    on.set_xlabel("coverage (share of cases answered, %)", fontsize=9)
    _shares(on, "risk (wrong share of the answered, %)")
    _legend_beside(on)
    return on


def threshold(panel: Panel, targets: Mapping[str, float], ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Rates as exact step functions of one threshold, the policies' values as vertical lines, targets dashed.

    Args:
      targets: rate -> target, drawn in the ink of the rate.
    """
    on = _axes(ax, 7.0, 4.2)
    steps = panel.steps
    low, high = _seen_range(steps["low"].to_numpy()[1:], list(panel.marks.values()))
    edges = np.append(steps["low"].to_numpy(), steps["high"].to_numpy()[-1])
    for name, ink in RATE_INKS.items():
        on.stairs(steps[name].to_numpy(), edges, baseline=None, color=ink, linewidth=1.5, label=_words(name))
        if name in targets:
            on.axhline(targets[name], color=ink, linestyle="--", linewidth=0.9)
    for place, (name, value) in enumerate(panel.marks.items()):
        on.axvline(value, **MARKS[place % len(MARKS)], label=_plain(name))
    on.set_xlim(low, high)
    on.set_title(panel.title, fontsize=9, loc="left")
    on.set_xlabel(f"threshold ({panel.unit})", fontsize=8)
    on.xaxis.set_major_locator(MaxNLocator(nbins=6))
    _shares(on, "rate (%)")
    if legend:
        _legend_beside(on)
    return on


def thresholds(panels: Sequence[Panel], targets: Mapping[str, float], drawn: Figure | None = None, *, columns: int = 3) -> Figure:
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
        known |= {label: line for line, label in zip(*on.get_legend_handles_labels(), strict=True) if label not in known}
    known["target"] = Line2D([], [], color=GREY, linestyle="--", linewidth=0.9)
    drawn.legend(list(known.values()), list(known), loc="outside upper center", ncols=len(known), fontsize=9, frameon=False)
    return drawn


def label_by_decision(counts: NDArray[np.int64], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Heat-table of labels (rows) and decisions (columns): counts, and their share of the row.

    Args:
      counts: [3, 3] in the order of `Status`.
    """
    on = _axes(ax, 4.4, 4.0)
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(total, 1)
    on.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    for (row, column), count in np.ndenumerate(counts):
        text = f"{count}\n{100 * share[row, column]:.0f} %" if total[row, 0] else f"{count}\n–"
        ink = "white" if share[row, column] > 0.55 else "black"
        on.text(column, row, text, ha="center", va="center", color=ink, fontsize=10, fontweight="bold" if row == column else "normal")
    names = [status.name for status in Status]
    on.set_xticks(range(3), names)
    on.set_yticks(range(3), [f"{name}\n(n = {n})" for name, n in zip(names, total[:, 0], strict=True)])
    on.set_xlabel("decision (cases, and % of the row)")
    on.set_ylabel("label (cases)")
    on.set_title(_plain(title), fontsize=10)
    on.tick_params(length=0)
    return on


def labels_by_decision(counts: Mapping[str, NDArray[np.int64]], drawn: Figure | None = None) -> Figure:
    """`label_by_decision` of several policies beside each other."""
    drawn = drawn or figure(4.4 * len(counts), 4.2)
    for on, (name, table) in zip(drawn.subplots(1, len(counts), squeeze=False).flat, counts.items(), strict=True):
        label_by_decision(table, on, title=name)
    return drawn


def confidence_by_label(
    counts: Mapping[str, NDArray[np.int64]], edges: Sequence[float], taus: Mapping[str, float], drawn: Figure | None = None
) -> Figure:
    """Histogram of the confidence for each label, one above the other, with the taus as vertical lines.

    Args:
      counts: label -> cases between the edges, [B]. taus: name -> confidence.
    """
    drawn = drawn or figure(7.4, 5.4)
    grid = drawn.subplots(len(counts), 1, sharex=True, squeeze=False)[:, 0]
    for on, (name, bars) in zip(grid, counts.items(), strict=True):
        on.stairs(bars, edges, fill=True, color=LABEL_INKS[Status[name]], alpha=0.75)
        on.set_title(f"label {name} (n = {int(bars.sum())})", fontsize=9, loc="left")
        on.set_ylabel("cases (count)", fontsize=9)
        on.set_ylim(0, 1.12 * max(1, int(bars.max(initial=0))))
        on.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        for place, (label, tau) in enumerate(taus.items()):
            on.axvline(tau, **MARKS[place % len(MARKS)], label=_plain(label))
        _tidy(on)
    grid[-1].set_xlim(edges[0], edges[-1])
    grid[-1].set_xlabel("confidence (points, 0 to 100)", fontsize=9)
    if taus:
        drawn.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(taus), fontsize=8, frameon=False)
    return drawn


def pareto(
    false_refusal: NDArray[np.float64], hallucination: NDArray[np.float64], front: NDArray[np.bool_], targets: Mapping[str, float], ax: Axes | None = None
) -> Axes:
    """Trials by false-refusal and hallucination rate, those that no other beats in both joined by a line.

    Args:
      false_refusal, hallucination: of each trial, [N]. front: whether no other beats it, [N].
    """
    on = _axes(ax, 7.0, 4.6)
    on.plot(false_refusal[~front], hallucination[~front], "o", color=GREY, markersize=3, alpha=0.4, markeredgewidth=0, label="trial")
    order = np.argsort(false_refusal[front], kind="stable")
    line = (false_refusal[front][order], hallucination[front][order])
    on.plot(*line, "o-", drawstyle="steps-post", color=BLUE, markersize=5, linewidth=1.2, label="no other trial is better in both")
    on.axvline(targets["false_refusal_rate"], color="black", linestyle="--", linewidth=0.9, label="targets")
    on.axhline(targets["hallucination_rate"], color="black", linestyle="--", linewidth=0.9)
    on.set_xlim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    on.xaxis.set_major_formatter(_percent())
    on.set_xlabel("false_refusal_rate (share of the answerable, %)", fontsize=9)
    _shares(on, "hallucination_rate (share of the answered, %)")
    _legend_above(on, 3)
    return on


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    return ax if ax is not None else figure(width, height).subplots()


def _plain(text: str) -> str:
    """Text that is drawn as it stands: no mathematics, and never left out of a legend."""
    shown = text.replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def _words(rate: str) -> str:
    return rate.removesuffix("_rate").replace("_", " ")


def _percent() -> PercentFormatter:
    return PercentFormatter(xmax=1.0, decimals=0, symbol=" %")


def _tidy(on: Axes) -> None:
    on.spines[["top", "right"]].set_visible(False)
    on.grid(visible=True, color="#e4e4e4", linewidth=0.6)
    on.set_axisbelow(True)
    on.tick_params(labelsize=8)


def _shares(on: Axes, label: str) -> None:
    on.set_ylim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    on.yaxis.set_major_formatter(_percent())
    on.set_ylabel(label, fontsize=9)
    _tidy(on)


def _legend_above(on: Axes, columns: int) -> None:
    on.legend(loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=columns, fontsize=8, frameon=False, borderaxespad=0.0)


def _legend_beside(on: Axes) -> None:
    on.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)


def _seen_range(breaks: NDArray[np.float64], marks: Sequence[float]) -> tuple[float, float]:
    """Part of the axis that holds every change and every mark, with a margin."""
    every = np.concatenate([breaks, np.asarray(marks, dtype=np.float64)])
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    margin = 0.06 * (high - low) or max(abs(low) * 0.1, 0.01)
    return low - margin, high + margin
