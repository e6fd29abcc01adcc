"""Figures (shore): curves and panels that the report and several displays draw.

A function takes numbers, an optional `ax` (or `figure`, where there are several panels) and returns
what it drew on. Nothing is measured here, and no state of `pyplot` is touched: a notebook shows the
returned figure. How it looks is said in `canvas`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.displays import canvas
from raglab.metrics import RATE_TABLE, Interval
from raglab.values import Curve, Floats, Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Figure, Style

SETTLED = 0.05  # coverage from which on a risk is more than the first few cases


# styles, artists
def risk_line(on: Axes, curve: Curve, label: str, place: int, **style: Any) -> Any:  # noqa: ANN401
    """Risk over coverage: at each coverage that of the smallest one reachable above it.

    Returns the line.
    """
    look = canvas.line_style(place) | {"drawstyle": "steps-pre", "label": label} | style
    return on.plot(from_zero_coverage(curve.x, 0.0), from_zero_coverage(curve.y), **look)[0]


def from_zero_coverage(values: NDArray[np.float64], scale: float = 1.0) -> NDArray[np.float64]:
    """Values with the first once more at coverage 0, times a scale."""
    return np.concatenate([scale * values[:1], values])


def risk_axes(on: Axes, top: float) -> None:
    """Both axes in percent, with their labels.

    The upright one holds `top` and what was drawn before.
    """
    known = on.get_ylim()[1] if on.get_ylabel() else 0.0
    canvas.shares_along(on, "coverage (share of cases answered, %)")
    canvas.shares_up(on, "risk (wrong share of the answered, %)")
    canvas.round_ticks(on)
    on.set_ylim(-canvas.SHARE_MARGIN * top, max(known, min(1.1 * top, 1 + canvas.SHARE_MARGIN)))


def risk_top(curve: Curve, most: Floats, *targets: float) -> float:
    """Highest value that the upright axis must hold.

    The first few cases, whose risk is chance, are no reason.

    Args:
      most: of each step, [N].
    """
    settled = curve.x >= min(SETTLED, curve.x[-1]) if len(curve.x) else np.zeros(0, dtype=bool)
    return max(float(np.max(np.asarray(most)[settled], initial=0.0)), *targets, 0.01)


def target_label(rate: str, value: float) -> str:
    """Target of a rate in a legend."""
    return f"target: {canvas.rate_label(rate)} ≤ {100 * value:g} %"


def target_line(on: Axes, value: float, label: str, **style: Any) -> None:  # noqa: ANN401 - a style
    """Dashed line at a target, once."""
    if label not in on.get_legend_handles_labels()[1]:
        on.axhline(value, label=label, **canvas.TARGET | style)


class Panel(NamedTuple):
    """One threshold over its range: `steps` as `replay.steps` gives them.

    Marks: name of a policy -> its value.
    """

    title: str
    unit: str
    steps: pd.DataFrame
    marks: Mapping[str, float]
    log: bool = False


def draw_risk_coverage(
    curves: Mapping[str, Curve],
    points: Mapping[str, tuple[float, float]],
    *,
    target: float | None = None,
) -> Axes:
    """Share of wrong answers against share answered, a step line a signal, a mark a policy.

    Args:
      points: name -> (coverage, hallucination_rate); a NaN has no mark.
      target: drawn as a dashed line.
    """
    on = canvas.empty_figure(8.2, 4.8).subplots()
    for place, (name, curve) in enumerate(curves.items()):
        risk_line(on, curve, canvas.literal_text(name), place)
    answering = {name: at for name, at in points.items() if not np.isnan(sum(at))}
    for place, (name, (coverage, risk)) in enumerate(answering.items()):
        on.plot([coverage], [risk], label=canvas.literal_text(name), **canvas.point_style(place))
    if target is not None:
        target_line(on, target, f"target {100 * target:g} %")
    risks = [risk for _, risk in answering.values()]
    tops = [risk_top(curve, curve.y) for curve in curves.values()]
    risk_axes(on, max([*tops, *risks, target or 0.0, 0.01]))
    canvas.legend_beside(on)
    return on


def threshold(
    panel: Panel,
    targets: Mapping[str, float],
    ax: Axes | None = None,
    *,
    legend: bool = True,
    names: Sequence[str] = (),
) -> Axes:
    """Rates as exact steps of one threshold, policies' values as vertical lines, targets dashed.

    A value far beyond every change is named at the edge.

    Args:
      targets: rate -> target, drawn in the ink of the rate.
      names: of all policies, so that each keeps its line where several panels share a legend; those
        of the panel where not given.
    """
    on = ax or canvas.empty_figure(7.6, 4.2).subplots()
    steps = panel.steps
    # The outer steps have no end, so the range comes from the changes and from the values of the
    # policies.
    low, high = canvas.visible_range(steps["low"].to_numpy()[1:], list(panel.marks.values()))
    edges = np.append(steps["low"].to_numpy(), steps["high"].to_numpy()[-1])
    for name, colour in canvas.RATE_INKS.items():
        look: Style = {"color": colour, "linewidth": 1.5, "label": canvas.rate_label(name)}
        on.stairs(steps[name].to_numpy(), edges, baseline=None, **look)
        if name in targets:
            target_line(on, targets[name], target_label(name, targets[name]), color=colour)
    # Styles go by place among all policies, so that panels which share a legend agree.
    order = list(dict.fromkeys((*names, *panel.marks)))
    for name, value in panel.marks.items():
        place = order.index(name)
        on.axvline(
            value, **canvas.VALUES[place % len(canvas.VALUES)], label=canvas.literal_text(name)
        )
        if not low <= value <= high:
            _beyond(on, f"{canvas.literal_text(name)} {value:g}", place, right=value > high)
    # A logarithmic axis has no place for 0, so it begins below the first change above it.
    if panel.log:
        inner = edges[1:-1][edges[1:-1] > 0]
        on.set_xscale("log")
        on.set_xlim(min(inner, default=1.0) / 2.0, max(inner, default=1.0) * 2.0)
    else:
        on.set_xlim(low, high)
        canvas.limit_ticks(on)
    on.set_title(panel.title, fontsize=9, loc="left")
    on.set_xlabel(f"threshold ({panel.unit}{', logarithmic' if panel.log else ''})", fontsize=8)
    canvas.shares_up(on, "rate (%)")
    if legend:
        canvas.legend_beside(on)
    return on


COLUMNS = 3  # of small multiples


def threshold_panels(panels: Sequence[Panel], targets: Mapping[str, float]) -> Figure:
    """Small multiples of `threshold`, one legend for all."""
    if len(panels) == 1:
        return canvas.whole_figure(threshold(panels[0], targets))
    n_rows = max(1, -(-len(panels) // COLUMNS))
    drawn = canvas.empty_figure(3.7 * COLUMNS, 2.5 * n_rows + 0.7)
    grid = drawn.subplots(n_rows, COLUMNS, squeeze=False)
    names = [name for panel in panels for name in panel.marks]
    for place, on in enumerate(grid.flat):
        if place >= len(panels):
            on.set_axis_off()
            continue
        threshold(panels[place], targets, on, legend=False, names=names)
        if place % COLUMNS:
            on.set_ylabel("")
    return canvas.legend_over(list(grid.flat), 4)


def confusion_matrix(
    counts: NDArray[np.int64],
    ax: Axes | None = None,
    *,
    title: str = "",
    interval: Interval | None = None,
    wrong: int = 0,
    **style: Any,  # noqa: ANN401 - a style
) -> Axes:
    """Heat-table of labels (rows) and decisions (columns): counts, and their share of the row.

    Args:
      counts: [3, 3] in the order of `Status`.
      interval: of each share, [3, 3]; written below it.
      wrong: answers at (ok, ok) from the wrong sources; said there if there are any.
    """
    on = ax or canvas.empty_figure(5.4, 4.0).subplots()
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(total, 1)
    size = 7 if canvas.is_narrow(on) else 10 if interval is None else 9
    on.imshow(share, **canvas.HEAT | style)
    for (row, column), count in np.ndenumerate(counts):
        text = f"{count}\n{100 * share[row, column]:.0f} %" if total[row, 0] else f"{count}\n–"
        if interval is not None and total[row, 0]:
            low, high = (100 * np.asarray(end)[row, column] for end in interval)
            text += f"\n({low:.0f} to {high:.0f} %)"
        if wrong and row == column == Status.ok:
            text += f"\n{wrong} wrong\nsource{'' if wrong == 1 else 's'}"
        colour = "white" if share[row, column] > 0.55 else "black"
        weight = "bold" if row == column else "normal"
        on.text(
            column, row, text, ha="center", va="center", fontsize=size, color=colour, weight=weight
        )
    names = [status.name for status in Status]
    on.set_xticks(range(3), names)
    on.set_yticks(
        range(3), [f"{name}\n(n = {n})" for name, n in zip(names, total[:, 0], strict=True)]
    )
    on.set_xlabel("decision (cases, and % of the row)")
    on.set_ylabel("label (cases)")
    on.set_title(title, loc="left")
    on.tick_params(length=0)
    return on


def confusion_matrices(counts: Mapping[str, NDArray[np.int64]]) -> Figure:
    """`confusion_matrix` of several policies beside each other."""
    drawn = canvas.empty_figure(4.4 * len(counts), 4.2)
    for on, (name, table) in zip(
        drawn.subplots(1, len(counts), squeeze=False).flat, counts.items(), strict=True
    ):
        confusion_matrix(table, on, title=canvas.literal_text(name))
    return drawn


DECIDED = {Status.ok: "answers", Status.refuse: "refuses", Status.ambiguous: "asks back"}


def probability_by_label(counts: NDArray[np.int64], edges: Sequence[float]) -> Figure:
    """Histogram of P(right) for each label, stacked by what was decided.

    Args:
      counts: cases by label, decision and percent, [3, 3, B].
      edges: of the bins, percent.
    """
    panels = canvas.panels(None, len(Status), 1, (7.4, 5.4))
    for on, label, parts in zip(panels, Status, counts, strict=True):
        floor = np.zeros(len(edges) - 1)
        for status, part in zip(Status, parts, strict=True):
            look: Style = {"color": canvas.LABEL_INKS[status], "label": DECIDED[status]}
            on.stairs(floor + part, edges, baseline=floor, fill=True, alpha=0.75, **look)
            floor = floor + part  # stairs hold the array itself
        on.set_title(f"label {label.name} (n = {int(floor.sum())})", fontsize=9, loc="left")
        on.set_ylabel("cases (count)", fontsize=9)
        canvas.counts_up(on, int(floor.max(initial=0)))
        canvas.tidy(on)
    panels[-1].set_xlim(edges[0], edges[-1])
    along = "P(right), probability that an answer would be right (%)"
    panels[-1].set_xlabel(along, fontsize=9)
    return canvas.legend_over(panels, 3)


COSTS: dict[str, Style] = {  # of a candidate: column -> its mark, what it is
    "in_sample": {
        "color": canvas.GREY,
        "marker": "o",
        "markersize": 9,
        "markerfacecolor": "none",
        "label": "in sample, not comparable: cases it was made of",
    },
    "cross_validated": {
        "color": canvas.BLUE,
        "marker": "o",
        "markersize": 5,
        "label": "cross-fitted: by versions that never saw the case",
    },
    "report": {
        "color": canvas.VERMILLION,
        "marker": "D",
        "markersize": 5,
        "label": "judged: cases nothing was fitted or chosen on",
    },
}
LONGEST_CANDIDATE = 44


def candidate_costs(costs: pd.DataFrame, selected: str, incumbent: str) -> Figure:
    """Expected cost of every candidate, the cheapest cross-fitted on top.

    In sample, cross-fitted and judged.

    A bar is one standard error of the paired gain over the incumbent to each side; the incumbent's
    cost is a line.

    Args:
      costs: a row a candidate, as `TuneResult.costs`.
      selected: the one that was chosen.
      incumbent: what it had to beat.
    """
    rows = costs.sort_values(["cross_validated", "in_sample"], kind="stable")
    drawn = canvas.empty_figure(8.2, max(3.4, 1.5 + 0.24 * len(rows)))
    on = drawn.subplots()
    places = np.arange(len(rows))
    label = canvas.literal_text(f"{incumbent}, the incumbent, cross-fitted", 60)
    cost = float(costs["cross_validated"][incumbent])
    on.axvline(cost, color=canvas.GREY, linewidth=0.9, label=label)
    bars: Style = {"linestyle": "none", "ecolor": canvas.SILVER, "elinewidth": 3.0}
    on.errorbar(rows["cross_validated"], places, xerr=rows["std_error"].to_numpy(float), **bars)
    for column, look in COSTS.items():
        if rows[column].notna().any():
            on.plot(rows[column], places, linestyle="none", **look)
    on.set_yticks(
        places, [canvas.literal_text(str(name), LONGEST_CANDIDATE) for name in rows.index]
    )
    canvas.tidy(on)
    for tick, name in zip(on.get_yticklabels(), rows.index, strict=True):
        tick.set_fontweight("bold" if name == selected else "normal")
    on.set_ylim(len(rows) - 0.4, -0.6)
    on.set_xlabel("expected cost (a case; 1 is a failed contract)", fontsize=9)
    on.set_ylabel("candidate (cheapest cross-fitted on top)", fontsize=9)
    return canvas.legend_over([on], 2)


def pareto(
    false_refusal: NDArray[np.float64],
    hallucination: NDArray[np.float64],
    front: NDArray[np.bool_],
    targets: Mapping[str, float],
) -> Axes:
    """Trials by false-refusal and hallucination rate, a line through those unbeaten in both.

    Args:
      false_refusal, hallucination: of each trial, [N].
      front: whether no other beats it, [N].
      targets: of these two, dashed where they are stated.
    """
    on = canvas.empty_figure(7.0, 4.6).subplots()
    on.plot(false_refusal[~front], hallucination[~front], "o", label="trial", **canvas.TRIAL)
    order = np.argsort(false_refusal[front], kind="stable")
    line = (false_refusal[front][order], hallucination[front][order])
    on.plot(*line, "o-", label="no other trial is better in both", **canvas.FRONT)
    for name, draw, name_axis in (
        ("false_refusal_rate", on.axvline, canvas.shares_along),
        ("hallucination_rate", on.axhline, canvas.shares_up),
    ):
        if name in targets:
            draw(targets[name], label=target_label(name, targets[name]), **canvas.TARGET)
        name_axis(on, f"{name} (share of the {RATE_TABLE[name].share_of}, %)")
    canvas.legend_above(on, 3)
    return on


def _beyond(on: Axes, text: str, place: int, *, right: bool) -> None:
    """Say at the edge that a value lies beyond it."""
    x, side, shown = (0.98, "right", f"{text} →") if right else (0.02, "left", f"← {text}")
    look: Style = {"ha": side, "va": "top", "fontsize": 8, "bbox": canvas.LABEL, "zorder": 3}
    on.annotate(shown, (x, 0.86 - 0.14 * place), xycoords="axes fraction", **look)
