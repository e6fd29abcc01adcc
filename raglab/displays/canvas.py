"""Canvas (shore): figures, inks, legends; the one module that knows matplotlib.

No state of `pyplot` is touched: a figure made here belongs to who asked for it.

Colours are those of Okabe and Ito, told apart by colour-blind readers; lines differ in dashes too.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from raglab.metrics import OBJECTIVES, RATE_TABLE, RATES
from raglab.values import Status
from raglab.words.characters import visible
from raglab.words.text import html_text

if TYPE_CHECKING:
    import pandas as pd

Style = dict[str, Any]

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, SILVER, GRID = "#E69F00", "#56B4E9", "#666666", "#9a9a9a", "#e4e4e4"
INKS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LABEL_INKS = {Status.ok: GREEN, Status.refuse: VERMILLION, Status.ambiguous: BLUE}
# errors, as a report draws them
RATE_INKS = dict(zip(OBJECTIVES, cycle(INKS), strict=False))
MORE_RATES = [name for name in RATES if name not in OBJECTIVES]
SWEEP_INKS = RATE_INKS | dict(zip(MORE_RATES, cycle((GREY, ORANGE, SKY)), strict=False))
# a thin line is seen on a broad one where two policies share a value
BROAD_LINE: Style = {"color": SILVER, "linewidth": 3.2, "zorder": 1.5}
THIN_LINE: Style = {"color": "black", "linewidth": 1.4, "zorder": 1.6}
DOTTED_LINE: Style = {"linestyle": DASHES[2]}
POLICY_VALUE_STYLES = (BROAD_LINE, THIN_LINE, BROAD_LINE | DOTTED_LINE, THIN_LINE | DOTTED_LINE)
IDEAL_LINE: Style = {"color": GREY, "linewidth": 1.0, "linestyle": DASHES[1]}
HEAT_MAP: Style = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "aspect": "auto"}
INTERVAL_BAND: Style = {"alpha": 0.16, "linewidth": 0}
CERTIFIED_LINE: Style = {"color": "black", "linewidth": 1.6, "linestyle": DASHES[3]}
BOUND_MARK: Style = {"color": "black", "marker": "v", "linestyle": "none", "markersize": 7}
TARGET_LINE: Style = {"color": "black", "linewidth": 0.9, "linestyle": "--"}
TRIAL_MARK: Style = {"color": GREY, "markersize": 3, "alpha": 0.4, "markeredgewidth": 0}
FRONTIER_LINE: Style = {"color": BLUE, "markersize": 5, "linewidth": 1.2, "drawstyle": "steps-post"}
LABEL_BOX: Style = {"facecolor": "white", "edgecolor": SILVER, "linewidth": 0.5, "pad": 1.5}
CLEAR_BOX: Style = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}
ABOVE_AXES: Style = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.02), "borderaxespad": 0.0}
ABOVE_RIGHT: Style = ABOVE_AXES | {"loc": "lower right", "bbox_to_anchor": (1.0, 1.02)}
BESIDE_AXES: Style = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
LONGEST_LABEL = 28
LONGEST_TITLE = 100  # characters
FAR_MARK_WIDTHS = 3.0
SHARE_MARGIN = 0.03  # room beyond 0 and 100 %, so that lines on the frame are seen


def line_style(legend_index: int) -> Style:
    """Line through time of the run or arm at a place in its legend."""
    return {
        "color": INKS[legend_index % 7],
        "linestyle": DASHES[legend_index % 4],
        "linewidth": 1.5,
    }


def point_style(legend_index: int) -> Style:
    """Mark of the policy at a place in its legend."""
    return {
        "marker": MARKERS[legend_index % 7],
        "color": "black",
        "linestyle": "none",
        "markersize": 8,
        "markerfacecolor": INKS[-1 - legend_index % 7],
    }


def literal_text(text: str, max_length: int = LONGEST_LABEL) -> str:
    """Text that is drawn as it stands.

    No mathematics, never left out of a legend, cut where it is long.
    """
    short_text = text if len(text) <= max_length else f"{text[: max_length - 1]}…"
    drawn_text = visible(short_text).replace("$", r"\$")
    return f"\u200b{drawn_text}" if drawn_text.startswith("_") else drawn_text


def rate_label(rate: str) -> str:
    """Name of a rate in a legend."""
    return RATE_TABLE[rate].label


def size_text(counts: ArrayLike, counted_noun: str) -> str:
    """Number of cases, or of what else a figure is of.

    Of several numbers the least and the largest.

    Example:
      >>> size_text(1200, "cases"), size_text([40, 12, 40], "cases")
      ('n = 1,200 cases', 'n = 12 to 40 cases')
    """
    distinct_counts = np.unique(np.asarray(counts, dtype=np.int64))
    return (
        "n = "
        f"{' to '.join(f'{count:,}' for count in distinct_counts[[0, -1][: len(distinct_counts)]])}"
        f" {counted_noun}"
    )


def spaced_places(n_rows: int, max_places: int) -> NDArray[np.int64]:
    """Places of n rows, evenly spaced, at most so many, with both ends.

    Example:
      >>> spaced_places(9, 3).tolist(), spaced_places(2, 3).tolist()
      ([0, 4, 8], [0, 1])
    """
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, max_places)).round().astype(np.int64))


def visible_range(
    change_points: NDArray[np.float64], marks: Sequence[float]
) -> tuple[float, float]:
    """Part of an axis with every change, and the marks near them.

    A mark is near within `FAR_MARK_WIDTHS` times the width of all changes.

    An infinite change lies beyond every axis.

    Example:
      >>> visible_range(np.array([0.0, 1.0, np.inf]), [1.5, 40.0])
      (-0.09, 1.59)
    """
    change_points = change_points[np.isfinite(change_points)]
    changes_width = float(np.ptp(change_points)) if len(change_points) else 0.0
    near_marks = np.asarray(marks, dtype=np.float64)
    if changes_width:
        near_marks = near_marks[
            (near_marks >= change_points.min() - FAR_MARK_WIDTHS * changes_width)
            & (near_marks <= change_points.max() + FAR_MARK_WIDTHS * changes_width)
        ]
    drawn_points = np.concatenate([change_points, near_marks])
    lowest, highest = (
        (float(drawn_points.min()), float(drawn_points.max())) if len(drawn_points) else (0.0, 1.0)
    )
    margin = 0.06 * (highest - lowest) or max(abs(lowest) * 0.1, 0.01)
    return lowest - margin, highest + margin


DOTS_PER_INCH = 100
NARROW_AXES_INCHES = (
    4.2  # inches of axes with their labels, below which they are drawn for a column
)
MIN_PLOT_INCHES = 3.0  # inches that a legend beside axes leaves to them, at least
MIN_PANEL_INCHES = 2.5  # inches of a panel that stands beside another one, at least
COLUMN_PANEL_HEIGHT = 0.72  # of the height of panels that stand below each other for a column
CHARACTER_POINTS = 5.2  # points that a sign takes, on average
LONG_ROW_NAME = 8  # signs of the name of a row
LEFT_MARGIN_POINTS = 50  # points before axes, where their name and ticks stand
SUBPLOT_SHARE = 0.775  # of a figure, that matplotlib gives to axes


def empty_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Empty figure, inches, that makes room for its labels and legends."""
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def panels(
    ax: Axes | Sequence[Axes] | None,
    n_rows: int,
    n_columns: int,
    figure_size: tuple[float, float],
    figure_width: float | None = None,
) -> Sequence[Axes]:
    """Axes of some panels: those given, those of a new figure, or as many in the place of one.

    Args:
      figure_size: of a new figure, inches. Panels below each other share their level axis there.
      figure_width: of a new figure instead; panels that are too narrow for it stand below each
        other.

    Raises:
      ValueError: another number of axes.
    """
    subplot_options: Style = {"sharex": n_columns == 1, "squeeze": False}
    if ax is None:
        n_panels, panel_height = n_rows * n_columns, figure_size[1] / n_rows
        if figure_width is not None and n_columns > (
            fitting_columns := max(1, int(figure_width / MIN_PANEL_INCHES))
        ):
            n_columns, n_rows, panel_height = (
                fitting_columns,
                -(-n_panels // fitting_columns),
                COLUMN_PANEL_HEIGHT * panel_height,
            )
        figure = empty_figure(figure_width or figure_size[0], panel_height * n_rows)
        grid_axes: list[Axes] = list(figure.subplots(n_rows, n_columns, **subplot_options).flat)
        for spare_axes in grid_axes[n_panels:]:
            spare_axes.set_axis_off()
        return grid_axes[:n_panels]
    panel_axes: list[Axes] = np.atleast_1d(np.asarray(ax, dtype=object)).ravel().tolist()
    if len(panel_axes) == n_rows * n_columns:
        return panel_axes
    subplot_place = panel_axes[0].get_subplotspec() if len(panel_axes) == 1 else None
    if subplot_place is None:
        rule = f"ax must be {n_rows * n_columns} axes, or one of a grid"
        msg = f"{rule}, got {len(panel_axes)}; make them with subplots({n_rows}, {n_columns})."
        raise ValueError(msg)
    panel_axes[0].set_axis_off()
    return list(subplot_place.subgridspec(n_rows, n_columns).subplots(**subplot_options).flat)


def is_narrow(axes: Axes) -> bool:
    """Whether axes are of a column of a page: what is beside the figure goes, legends are short."""
    return _size_in_inches(axes)[0] < NARROW_AXES_INCHES


def _size_in_inches(axes: Axes) -> tuple[float, float]:
    """Width and height of the place of axes, with its labels."""
    axes_box, figure = axes.get_position(original=True), whole_figure(axes)
    return (
        axes_box.width * figure.get_figwidth() / SUBPLOT_SHARE,
        axes_box.height * figure.get_figheight() / SUBPLOT_SHARE,
    )


def fit(axes: Axes) -> None:
    """Write titles and names of axes in 9 points, in as many lines as their place asks for.

    Beside long names of rows they end at the right end of the axes, for there is room before those.
    """
    width_inches, height_inches = _size_in_inches(axes)
    # names of rows of one panel move all that stand below each other
    row_names = [
        tick_label.get_text()
        for panel_axes in whole_figure(axes).axes
        for tick_label in panel_axes.get_yticklabels()
    ]
    name_lines = "\n".join(row_names).split("\n")
    longest_name = max(map(len, name_lines))
    ends_right = is_narrow(axes) and longest_name > LONG_ROW_NAME
    width_in_characters = int(
        (72 * width_inches - (0 if ends_right else LEFT_MARGIN_POINTS)) / CHARACTER_POINTS
    )
    if ends_right and not any(tick_label.get_text() for tick_label in axes.get_yticklabels()):
        # beside the panel that has the names: before these axes is no room
        width_in_characters -= 2 * longest_name // 3
    height_in_characters = int(
        (0.6 if is_narrow(axes) else 0.9) * 72 * height_inches / CHARACTER_POINTS
    )
    label_position: Any = "right" if ends_right else "center"
    axes.set_xlabel(
        _wrapped(axes.get_xlabel(), width_in_characters), fontsize=9, loc=label_position
    )
    axes.set_ylabel(_wrapped(axes.get_ylabel(), height_in_characters), fontsize=9)
    title = _wrapped(axes.get_title(loc="left"), width_in_characters)
    axes.set_title("", loc="left")
    axes.set_title(title, fontsize=9, loc="right" if ends_right else "left")


def _wrapped(text: str, line_length: int) -> str:
    """Text in lines of at most so many signs."""
    return "\n".join(fill(text_line, max(line_length, 12)) for text_line in text.split("\n"))


def whole_figure(artist: Figure | Axes) -> Figure:
    """Figure itself, or the one that axes are in.

    Raises:
      ValueError: the axes were removed from theirs.
    """
    figure = artist if isinstance(artist, Figure) else artist.get_figure(root=True)
    if figure is None:
        msg = "axes must be in a figure to be drawn, got axes that were removed; draw them again."
        raise ValueError(msg)
    return figure


def png(artist: Figure | Axes, note: str = "") -> bytes:
    """PNG of a figure, or of the one that axes are in; the same figure gives the same bytes.

    Args:
      note: written below it, so that it also stands where the figure is shown alone.
    """
    png_bytes, figure = BytesIO(), whole_figure(artist)
    if note:
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color=VERMILLION)
    figure.savefig(
        png_bytes, format="png", dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": None}
    )
    return png_bytes.getvalue()


def interval_arms(value: ArrayLike, low: ArrayLike, high: ArrayLike) -> NDArray[np.float64]:
    """Lengths of an interval's arms below and above its value, [2, N].

    NaN where there is no interval to be drawn.

    One that is as narrow as a point is none: it would be read as a certainty.

    Example:
      >>> interval_arms([0.5, 0.0], [0.4, 0.0], [0.7, 0.0]).round(1).tolist()
      [[0.1, nan], [0.2, nan]]
    """
    middles, lower_bounds, upper_bounds = (
        np.asarray(bound_values, dtype=np.float64) for bound_values in (value, low, high)
    )
    arm_lengths = np.maximum(np.stack([middles - lower_bounds, upper_bounds - middles]), 0.0)
    # a difference of rounding is none
    return np.where(upper_bounds - lower_bounds > 1e-9, arm_lengths, np.nan)


# an artist
def draw_with_band(
    axes: Axes,
    frame_rows: pd.DataFrame,
    x_column: str,
    y_column: str,
    line_label: str,
    line_look: Style,
    band_prefix: str = "",
) -> Any:  # noqa: ANN401
    """Line of two columns of a frame, and a band between its columns `low` and `high`.

    Returns the line.
    """
    (line,) = axes.plot(frame_rows[x_column], frame_rows[y_column], label=line_label, **line_look)
    axes.fill_between(
        frame_rows[x_column],
        frame_rows[f"{band_prefix}low"],
        frame_rows[f"{band_prefix}high"],
        color=line_look["color"],
        **INTERVAL_BAND,
    )
    return line


def draw_band_label(axes: Axes, band_label: str) -> Any:  # noqa: ANN401 - an artist
    """Entry of a legend that says what all bands are."""
    return axes.fill_between([], [], [], color=GREY, label=band_label, **INTERVAL_BAND)


def draw_marks(
    axes: Axes,
    value: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    height: ArrayLike,
    **style: Any,  # noqa: ANN401 - a style
) -> None:
    """Marks with level intervals, a row each; a missing number has no mark."""
    mark_style: Style = {
        "linestyle": "none",
        "markersize": 5,
        "elinewidth": 1.2,
        "capsize": 2.5,
    } | style
    axes.errorbar(value, height, xerr=interval_arms(value, low, high), **mark_style)


def draw_measures(
    axes: Axes,
    frame_rows: pd.DataFrame,
    measures: Mapping[str, str],
    measure_styles: Sequence[Style],
    spread: float,
    style: Style,
) -> None:
    """Marks of several measures of each row of a frame, the first row on top.

    Args:
      measures: column, beside which its `_low` and `_high` stand -> label.
      spread: of the marks of a row, in rows.
    """
    for measure_index, (measure, measure_label) in enumerate(measures.items()):
        offset = (measure_index - (len(measures) - 1) / 2) / max(1, len(measures) - 1)
        measured_values, lower_bounds, upper_bounds = (
            frame_rows[f"{measure}{column_suffix}"].to_numpy(dtype=np.float64)
            for column_suffix in ("", "_low", "_high")
        )
        row_heights = -np.arange(len(frame_rows)) - spread * offset
        draw_marks(
            axes,
            measured_values,
            lower_bounds,
            upper_bounds,
            row_heights,
            **{"label": measure_label} | measure_styles[measure_index] | style,
        )


def name_rows(axes: Axes, row_names: Sequence[str]) -> None:
    """Upright axis of rows at 0, -1, ..., the first on top."""
    axes.set_yticks(-np.arange(len(row_names)), row_names)
    axes.set_ylim(0.4 - len(row_names), 0.6)
    tidy(axes)


def tidy(axes: Axes) -> None:
    """Axes without a frame above and right, with a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def shares_up(axes: Axes, axis_label: str) -> None:
    """Upright axis of shares in percent."""
    axes.set_ylim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    axes.yaxis.set_major_formatter(_percent_text)
    axes.set_ylabel(axis_label, fontsize=9)
    tidy(axes)


def shares_along(axes: Axes, axis_label: str) -> None:
    """Level axis of shares in percent."""
    axes.set_xlim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    axes.xaxis.set_major_formatter(_percent_text)
    axes.set_xlabel(axis_label, fontsize=9)


def strip_below(axes: Axes, lower_end: float) -> None:
    """Upright axis of shares with a strip below 0 %, where none can be."""
    axes.set_ylim(lower_end, 1 + SHARE_MARGIN)
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.axhline(0.0, color=SILVER, linewidth=0.6)


def counts_up(axes: Axes, largest_count: int) -> None:
    """Upright axis of counts up to the largest, with room above."""
    axes.set_ylim(0, 1.12 * max(1, largest_count))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))


def limit_ticks(axes: Axes) -> None:
    """Level axis with at most six ticks, of a column four."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4 if is_narrow(axes) else 6))


def round_ticks(axes: Axes) -> None:
    """Upright axis with ticks at ones, twos or fives of a decimal place."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))


def legend_above(
    axes: Axes, n_columns: int = 1, stands_first: Callable[[str], bool] = bool
) -> None:
    """Legend over the axes, below their title; labels that are to be first stand first.

    It starts at the left end of the axes, or ends at their right one where they are narrow.
    """
    entries = zip(*axes.get_legend_handles_labels(), strict=True)
    if not (ordered_entries := sorted(entries, key=lambda entry: not stands_first(entry[1]))):
        return
    legend_style = _legend_style(
        [label for _, label in ordered_entries], n_columns, 72 * _size_in_inches(axes)[0] - 10
    )
    if title := axes.get_title(loc="left"):
        line_length = int(72 * _size_in_inches(axes)[0] / CHARACTER_POINTS)
        legend_style |= {
            "title": _wrapped(title, line_length),
            "title_fontsize": 9,
            "alignment": "left",
        }
        axes.set_title("", loc="left")
    legend_place = ABOVE_RIGHT if is_narrow(axes) else ABOVE_AXES
    axes.legend(handles=[handle for handle, _ in ordered_entries], **legend_style, **legend_place)


def legend_beside(axes: Axes) -> None:
    """Legend right of the axes; above them where little width would be left to them."""
    label_lengths = [len(label) for label in axes.get_legend_handles_labels()[1]]
    legend_inches = (30 + CHARACTER_POINTS * max(label_lengths, default=0)) / 72
    if _size_in_inches(axes)[0] - legend_inches < MIN_PLOT_INCHES:
        legend_above(axes)
    else:
        axes.legend(fontsize=8, frameon=False, **BESIDE_AXES)


def legend_over(axes_of_figure: Sequence[Axes], n_columns: int) -> Figure:
    """One legend over several axes, each label once; returns their figure."""
    figure = whole_figure(axes_of_figure[0])
    entries: dict[str, Any] = {}
    for axes in axes_of_figure:
        for legend_handle, legend_label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(legend_label, legend_handle)
    if entries:
        legend_style = _legend_style([*entries], n_columns, 72 * figure.get_figwidth())
        figure.legend(handles=[*entries.values()], loc="outside upper center", **legend_style)
    return figure


def _legend_style(labels: Sequence[str], columns: int, points: float) -> Style:
    """Labels in as many columns as fit, at most those wanted, and lines that fit."""
    signs = int((points - 30 * columns) / CHARACTER_POINTS)
    n = max(1, min(columns, len(labels), signs // (max(map(len, labels), default=0) + 1)))
    wrapped = [_wrapped(label, signs // n) for label in labels]
    return {"labels": wrapped, "ncols": n, "fontsize": 8, "frameon": False}


def _percent_text(share: float, _: float) -> str:
    return f"{100 * share + 0.0:.4g} %"


__all__ = ["Axes", "Figure"]


def image(figure: Figure, alternative_text: str) -> str:
    """Figure as an image of a page; none where `pyplot` shows it in any case."""
    # a figure is pyplot's only where somebody imported that; closed, it has no manager
    pyplot, manager = sys.modules.get("matplotlib.pyplot"), figure.canvas.manager
    if pyplot is not None and manager is not None and pyplot.fignum_exists(manager.num):
        return ""
    png_text = b64encode(png(figure)).decode("ascii")
    return (
        f'<img alt="{html_text(alternative_text)}" style="max-width: 100%" '
        f'src="data:image/png;base64,{png_text}">'
    )
