"""Figures (shore): curves and panels that the report and several displays draw.

A function takes numbers, an optional `ax` (or `figure`, where there are several panels) and returns
what it drew on. Nothing is measured here, and no state of `pyplot` is touched: a notebook shows the
returned figure. How it looks is said in `canvas`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.displays import canvas
from raglab.metrics import RATE_TABLE, Interval
from raglab.values import BoolArray, Curve, FloatArray, Floats, IntArray, Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.displays.canvas import Axes, Figure, Style

SETTLED_COVERAGE = 0.05  # coverage from which on a risk is more than the first few cases


# styles, artists
def risk_line(axes: Axes, curve: Curve, label: str, legend_index: int, **style: Any) -> Any:  # noqa: ANN401
    """Risk over coverage: at each coverage that of the smallest one reachable above it.

    Returns the line.
    """
    line_look = canvas.line_style(legend_index) | {"drawstyle": "steps-pre", "label": label} | style
    return axes.plot(from_zero_coverage(curve.x, 0.0), from_zero_coverage(curve.y), **line_look)[0]


def from_zero_coverage(values: FloatArray, scale: float = 1.0) -> FloatArray:
    """Values with the first once more at coverage 0, times a scale."""
    return np.concatenate([scale * values[:1], values])


def risk_axes(axes: Axes, highest_risk: float) -> None:
    """Both axes in percent, with their labels.

    The upright one holds `highest_risk` and what was drawn before.
    """
    former_top = axes.get_ylim()[1] if axes.get_ylabel() else 0.0
    canvas.shares_along(axes, "coverage (share of cases answered, %)")
    canvas.shares_up(axes, "risk (wrong share of the answered, %)")
    canvas.round_ticks(axes)
    axes.set_ylim(
        -canvas.SHARE_MARGIN * highest_risk,
        max(former_top, min(1.1 * highest_risk, 1 + canvas.SHARE_MARGIN)),
    )


def risk_top(curve: Curve, drawn_risks: Floats, *targets: float) -> float:
    """Highest value that the upright axis must hold.

    The first few cases, whose risk is chance, are no reason.

    Args:
      drawn_risks: of each step, [N].
    """
    is_settled = (
        curve.x >= min(SETTLED_COVERAGE, curve.x[-1]) if len(curve.x) else np.zeros(0, dtype=bool)
    )
    return max(float(np.max(np.asarray(drawn_risks)[is_settled], initial=0.0)), *targets, 0.01)


def target_label(rate: str, target: float) -> str:
    """Target of a rate in a legend."""
    return f"target: {canvas.rate_label(rate)} ≤ {100 * target:g} %"


def target_line(axes: Axes, target: float, legend_label: str, **style: Any) -> None:  # noqa: ANN401 - a style
    """Dashed line at a target, once."""
    if legend_label not in axes.get_legend_handles_labels()[1]:
        axes.axhline(target, label=legend_label, **canvas.TARGET_LINE | style)


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
    axes = canvas.empty_figure(8.2, 4.8).subplots()
    for legend_index, (signal_name, curve) in enumerate(curves.items()):
        risk_line(axes, curve, canvas.literal_text(signal_name), legend_index)
    answering_points = {
        signal_name: point for signal_name, point in points.items() if not np.isnan(sum(point))
    }
    for legend_index, (signal_name, (coverage, risk)) in enumerate(answering_points.items()):
        axes.plot(
            [coverage],
            [risk],
            label=canvas.literal_text(signal_name),
            **canvas.point_style(legend_index),
        )
    if target is not None:
        target_line(axes, target, f"target {100 * target:g} %")
    risks = [risk for _, risk in answering_points.values()]
    curve_tops = [risk_top(curve, curve.y) for curve in curves.values()]
    risk_axes(axes, max([*curve_tops, *risks, target or 0.0, 0.01]))
    canvas.legend_beside(axes)
    return axes


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
    axes = ax or canvas.empty_figure(7.6, 4.2).subplots()
    steps = panel.steps
    # The outer steps have no end, so the range comes from the changes and from the values of the
    # policies.
    range_start, range_end = canvas.visible_range(
        steps["low"].to_numpy()[1:], list(panel.marks.values())
    )
    step_edges = np.append(steps["low"].to_numpy(), steps["high"].to_numpy()[-1])
    for rate_name, rate_colour in canvas.RATE_INKS.items():
        line_look: Style = {
            "color": rate_colour,
            "linewidth": 1.5,
            "label": canvas.rate_label(rate_name),
        }
        axes.stairs(steps[rate_name].to_numpy(), step_edges, baseline=None, **line_look)
        if rate_name in targets:
            target_line(
                axes,
                targets[rate_name],
                target_label(rate_name, targets[rate_name]),
                color=rate_colour,
            )
    # Styles go by place among all policies, so that panels which share a legend agree.
    policy_order = list(dict.fromkeys((*names, *panel.marks)))
    for rate_name, policy_value in panel.marks.items():
        policy_index = policy_order.index(rate_name)
        axes.axvline(
            policy_value,
            **canvas.POLICY_VALUE_STYLES[policy_index % len(canvas.POLICY_VALUE_STYLES)],
            label=canvas.literal_text(rate_name),
        )
        if not range_start <= policy_value <= range_end:
            _name_at_edge(
                axes,
                f"{canvas.literal_text(rate_name)} {policy_value:g}",
                policy_index,
                is_right=policy_value > range_end,
            )
    # A logarithmic axis has no place for 0, so it begins below the first change above it.
    if panel.log:
        positive_edges = step_edges[1:-1][step_edges[1:-1] > 0]
        axes.set_xscale("log")
        axes.set_xlim(
            min(positive_edges, default=1.0) / 2.0, max(positive_edges, default=1.0) * 2.0
        )
    else:
        axes.set_xlim(range_start, range_end)
        canvas.limit_ticks(axes)
    axes.set_title(panel.title, fontsize=9, loc="left")
    axes.set_xlabel(f"threshold ({panel.unit}{', logarithmic' if panel.log else ''})", fontsize=8)
    canvas.shares_up(axes, "rate (%)")
    if legend:
        canvas.legend_beside(axes)
    return axes


PANEL_COLUMNS = 3  # of small multiples


def threshold_panels(panels: Sequence[Panel], targets: Mapping[str, float]) -> Figure:
    """Small multiples of `threshold`, one legend for all."""
    if len(panels) == 1:
        return canvas.whole_figure(threshold(panels[0], targets))
    n_rows = max(1, -(-len(panels) // PANEL_COLUMNS))
    figure = canvas.empty_figure(3.7 * PANEL_COLUMNS, 2.5 * n_rows + 0.7)
    panel_grid = figure.subplots(n_rows, PANEL_COLUMNS, squeeze=False)
    policy_names = [policy_name for panel in panels for policy_name in panel.marks]
    for panel_index, axes in enumerate(panel_grid.flat):
        if panel_index >= len(panels):
            axes.set_axis_off()
            continue
        threshold(panels[panel_index], targets, axes, legend=False, names=policy_names)
        if panel_index % PANEL_COLUMNS:
            axes.set_ylabel("")
    return canvas.legend_over(list(panel_grid.flat), 4)


def confusion_matrix(
    counts: IntArray,
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
    axes = ax or canvas.empty_figure(5.4, 4.0).subplots()
    label_totals = counts.sum(axis=1, keepdims=True)
    label_shares = counts / np.maximum(label_totals, 1)
    # intervals add a line to each cell, so the text must be smaller
    font_size = 7 if canvas.is_narrow(axes) else 10 if interval is None else 9
    axes.imshow(label_shares, **canvas.HEAT_MAP | style)
    for (row, column), cell_count in np.ndenumerate(counts):
        cell_text = (
            f"{cell_count}\n{100 * label_shares[row, column]:.0f} %"
            if label_totals[row, 0]
            else f"{cell_count}\n–"
        )
        if interval is not None and label_totals[row, 0]:
            lower_bound, upper_bound = (
                100 * np.asarray(interval_end)[row, column] for interval_end in interval
            )
            cell_text += f"\n({lower_bound:.0f} to {upper_bound:.0f} %)"
        # an answer from the wrong sources is counted as an answer, so it is named in its cell
        if wrong and row == column == Status.ok:
            cell_text += f"\n{wrong} wrong\nsource{'' if wrong == 1 else 's'}"
        # white is read on the dark half of the colour map
        text_colour = "white" if label_shares[row, column] > 0.55 else "black"
        font_weight = "bold" if row == column else "normal"
        axes.text(
            column,
            row,
            cell_text,
            ha="center",
            va="center",
            fontsize=font_size,
            color=text_colour,
            weight=font_weight,
        )
    status_names = [status.name for status in Status]
    axes.set_xticks(range(3), status_names)
    axes.set_yticks(
        range(3),
        [
            f"{status_name}\n(n = {label_total})"
            for status_name, label_total in zip(status_names, label_totals[:, 0], strict=True)
        ],
    )
    axes.set_xlabel("decision (cases, and % of the row)")
    axes.set_ylabel("label (cases)")
    axes.set_title(title, loc="left")
    axes.tick_params(length=0)
    return axes


def confusion_matrices(counts: Mapping[str, IntArray]) -> Figure:
    """`confusion_matrix` of several policies beside each other."""
    figure = canvas.empty_figure(4.4 * len(counts), 4.2)
    for axes, (policy_name, policy_counts) in zip(
        figure.subplots(1, len(counts), squeeze=False).flat, counts.items(), strict=True
    ):
        confusion_matrix(policy_counts, axes, title=canvas.literal_text(policy_name))
    return figure


DECISION_WORDS = {Status.ok: "answers", Status.refuse: "refuses", Status.ambiguous: "asks back"}


def probability_by_label(counts: IntArray, edges: Sequence[float]) -> Figure:
    """Histogram of P(right) for each label, stacked by what was decided.

    Args:
      counts: cases by label, decision and percent, [3, 3, B].
      edges: of the bins, percent.
    """
    panels = canvas.panels(None, len(Status), 1, (7.4, 5.4))
    for axes, label, decision_counts in zip(panels, Status, counts, strict=True):
        bar_floor = np.zeros(len(edges) - 1)
        for status, bar_counts in zip(Status, decision_counts, strict=True):
            bar_style: Style = {"color": canvas.LABEL_INKS[status], "label": DECISION_WORDS[status]}
            axes.stairs(
                bar_floor + bar_counts,
                edges,
                baseline=bar_floor,
                fill=True,
                alpha=0.75,
                **bar_style,
            )
            bar_floor = bar_floor + bar_counts  # stairs hold the array itself
        axes.set_title(f"label {label.name} (n = {int(bar_floor.sum())})", fontsize=9, loc="left")
        axes.set_ylabel("cases (count)", fontsize=9)
        canvas.counts_up(axes, int(bar_floor.max(initial=0)))
        canvas.tidy(axes)
    panels[-1].set_xlim(edges[0], edges[-1])
    panels[-1].set_xlabel("P(right), probability that an answer would be right (%)", fontsize=9)
    return canvas.legend_over(panels, 3)


COST_MARKS: dict[str, Style] = {  # of a candidate: column -> its mark, what it is
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
LONGEST_CANDIDATE_NAME = 44


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
    candidate_rows = costs.sort_values(["cross_validated", "in_sample"], kind="stable")
    figure = canvas.empty_figure(8.2, max(3.4, 1.5 + 0.24 * len(candidate_rows)))
    axes = figure.subplots()
    row_heights = np.arange(len(candidate_rows))
    incumbent_label = canvas.literal_text(f"{incumbent}, the incumbent, cross-fitted", 60)
    incumbent_cost = float(costs["cross_validated"][incumbent])
    axes.axvline(incumbent_cost, color=canvas.GREY, linewidth=0.9, label=incumbent_label)
    error_bar_style: Style = {"linestyle": "none", "ecolor": canvas.SILVER, "elinewidth": 3.0}
    axes.errorbar(
        candidate_rows["cross_validated"],
        row_heights,
        xerr=candidate_rows["std_error"].to_numpy(float),
        **error_bar_style,
    )
    for column, mark_style in COST_MARKS.items():
        if candidate_rows[column].notna().any():
            axes.plot(candidate_rows[column], row_heights, linestyle="none", **mark_style)
    axes.set_yticks(
        row_heights,
        [
            canvas.literal_text(str(candidate_name), LONGEST_CANDIDATE_NAME)
            for candidate_name in candidate_rows.index
        ],
    )
    canvas.tidy(axes)
    for tick_label, candidate_name in zip(
        axes.get_yticklabels(), candidate_rows.index, strict=True
    ):
        tick_label.set_fontweight("bold" if candidate_name == selected else "normal")
    axes.set_ylim(len(candidate_rows) - 0.4, -0.6)
    axes.set_xlabel("expected cost (a case; 1 is a failed contract)", fontsize=9)
    axes.set_ylabel("candidate (cheapest cross-fitted on top)", fontsize=9)
    return canvas.legend_over([axes], 2)


def pareto(
    false_refusal: FloatArray,
    hallucination: FloatArray,
    front: BoolArray,
    targets: Mapping[str, float],
) -> Axes:
    """Trials by false-refusal and hallucination rate, a line through those unbeaten in both.

    Args:
      false_refusal, hallucination: of each trial, [N].
      front: whether no other beats it, [N].
      targets: of these two, dashed where they are stated.
    """
    axes = canvas.empty_figure(7.0, 4.6).subplots()
    axes.plot(false_refusal[~front], hallucination[~front], "o", label="trial", **canvas.TRIAL_MARK)
    front_order = np.argsort(false_refusal[front], kind="stable")
    front_line = (false_refusal[front][front_order], hallucination[front][front_order])
    axes.plot(*front_line, "o-", label="no other trial is better in both", **canvas.FRONTIER_LINE)
    for rate_name, draw_target, name_axis in (
        ("false_refusal_rate", axes.axvline, canvas.shares_along),
        ("hallucination_rate", axes.axhline, canvas.shares_up),
    ):
        if rate_name in targets:
            draw_target(
                targets[rate_name],
                label=target_label(rate_name, targets[rate_name]),
                **canvas.TARGET_LINE,
            )
        name_axis(axes, f"{rate_name} (share of the {RATE_TABLE[rate_name].share_of}, %)")
    canvas.legend_above(axes, 3)
    return axes


def _name_at_edge(axes: Axes, value_text: str, policy_index: int, *, is_right: bool) -> None:
    """Say at the edge that a value lies beyond it."""
    label_x, text_side, arrow_text = (
        (0.98, "right", f"{value_text} →") if is_right else (0.02, "left", f"← {value_text}")
    )
    text_style: Style = {
        "ha": text_side,
        "va": "top",
        "fontsize": 8,
        "bbox": canvas.LABEL_BOX,
        "zorder": 3,
    }
    axes.annotate(
        arrow_text, (label_x, 0.86 - 0.14 * policy_index), xycoords="axes fraction", **text_style
    )
