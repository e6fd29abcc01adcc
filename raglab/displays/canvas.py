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
BROAD: Style = {"color": SILVER, "linewidth": 3.2, "zorder": 1.5}
THIN: Style = {"color": "black", "linewidth": 1.4, "zorder": 1.6}
DOTTED: Style = {"linestyle": DASHES[2]}
VALUES = (BROAD, THIN, BROAD | DOTTED, THIN | DOTTED)
IDEAL: Style = {"color": GREY, "linewidth": 1.0, "linestyle": DASHES[1]}
HEAT: Style = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "aspect": "auto"}
BAND: Style = {"alpha": 0.16, "linewidth": 0}
CERTIFIED: Style = {"color": "black", "linewidth": 1.6, "linestyle": DASHES[3]}
BOUND: Style = {"color": "black", "marker": "v", "linestyle": "none", "markersize": 7}
TARGET: Style = {"color": "black", "linewidth": 0.9, "linestyle": "--"}
TRIAL: Style = {"color": GREY, "markersize": 3, "alpha": 0.4, "markeredgewidth": 0}
FRONT: Style = {"color": BLUE, "markersize": 5, "linewidth": 1.2, "drawstyle": "steps-post"}
LABEL: Style = {"facecolor": "white", "edgecolor": SILVER, "linewidth": 0.5, "pad": 1.5}
CLEAR: Style = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}
ABOVE: Style = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.02), "borderaxespad": 0.0}
RIGHT: Style = ABOVE | {"loc": "lower right", "bbox_to_anchor": (1.0, 1.02)}
BESIDE: Style = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
LONGEST_NAME = 28
LONGEST_TITLE = 100  # characters
FAR = 3.0
SHARE_MARGIN = 0.03  # room beyond 0 and 100 %, so that lines on the frame are seen


def line_style(place: int) -> Style:
    """Line through time of the run or arm at a place in its legend."""
    return {"color": INKS[place % 7], "linestyle": DASHES[place % 4], "linewidth": 1.5}


def point_style(place: int) -> Style:
    """Mark of the policy at a place in its legend."""
    return {
        "marker": MARKERS[place % 7],
        "color": "black",
        "linestyle": "none",
        "markersize": 8,
        "markerfacecolor": INKS[-1 - place % 7],
    }


def literal_text(text: str, longest: int = LONGEST_NAME) -> str:
    """Text that is drawn as it stands.

    No mathematics, never left out of a legend, cut where it is long.
    """
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    shown = visible(short).replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def rate_label(rate: str) -> str:
    """Name of a rate in a legend."""
    return RATE_TABLE[rate].label


def size_text(n: ArrayLike, what: str) -> str:
    """Number of cases, or of what else a figure is of.

    Of several numbers the least and the largest.

    Example:
      >>> size_text(1200, "cases"), size_text([40, 12, 40], "cases")
      ('n = 1,200 cases', 'n = 12 to 40 cases')
    """
    sizes = np.unique(np.asarray(n, dtype=np.int64))
    return f"n = {' to '.join(f'{size:,}' for size in sizes[[0, -1][: len(sizes)]])} {what}"


def spaced_places(n: int, most: int) -> NDArray[np.int64]:
    """Places of n rows, evenly spaced, at most so many, with both ends.

    Example:
      >>> spaced_places(9, 3).tolist(), spaced_places(2, 3).tolist()
      ([0, 4, 8], [0, 1])
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def visible_range(breaks: NDArray[np.float64], marks: Sequence[float]) -> tuple[float, float]:
    """Part of an axis with every change, and every mark within `FAR` times the changes' width.

    An infinite change lies beyond every axis.

    Example:
      >>> visible_range(np.array([0.0, 1.0, np.inf]), [1.5, 40.0])
      (-0.09, 1.59)
    """
    breaks = breaks[np.isfinite(breaks)]
    span = float(np.ptp(breaks)) if len(breaks) else 0.0
    near = np.asarray(marks, dtype=np.float64)
    if span:
        near = near[(near >= breaks.min() - FAR * span) & (near <= breaks.max() + FAR * span)]
    every = np.concatenate([breaks, near])
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    margin = 0.06 * (high - low) or max(abs(low) * 0.1, 0.01)
    return low - margin, high + margin


DPI = 100
NARROW = 4.2  # inches of axes with their labels, below which they are drawn for a column
COLUMN = 2.5  # inches of a panel that stands beside another one, at least
LOWER = 0.72  # of the height of panels that stand below each other for a column
SIGN = 5.2  # points that a sign takes, on average
LONG_ROW = 8  # signs of the name of a row
BEFORE = 50  # points before axes, where their name and ticks stand
SUBPLOT = 0.775  # of a figure, that matplotlib gives to axes


def empty_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Empty figure, inches, that makes room for its labels and legends."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def panels(
    ax: Axes | Sequence[Axes] | None,
    rows: int,
    columns: int,
    size: tuple[float, float],
    width: float | None = None,
) -> Sequence[Axes]:
    """Axes of some panels: those given, those of a new figure, or as many in the place of one.

    Args:
      size: of a new figure, inches. Panels below each other share their level axis there.
      width: of a new figure instead; panels that are too narrow for it stand below each other.

    Raises:
      ValueError: another number of axes.
    """
    shared: Style = {"sharex": columns == 1, "squeeze": False}
    if ax is None:
        n, height = rows * columns, size[1] / rows
        if width is not None and columns > (fitting := max(1, int(width / COLUMN))):
            columns, rows, height = fitting, -(-n // fitting), LOWER * height
        drawn = empty_figure(width or size[0], height * rows)
        grid: list[Axes] = list(drawn.subplots(rows, columns, **shared).flat)
        for spare in grid[n:]:
            spare.set_axis_off()
        return grid[:n]
    panel_axes: list[Axes] = np.atleast_1d(np.asarray(ax, dtype=object)).ravel().tolist()
    if len(panel_axes) == rows * columns:
        return panel_axes
    place = panel_axes[0].get_subplotspec() if len(panel_axes) == 1 else None
    if place is None:
        rule = f"ax must be {rows * columns} axes, or one of a grid"
        msg = f"{rule}, got {len(panel_axes)}; make them with subplots({rows}, {columns})."
        raise ValueError(msg)
    panel_axes[0].set_axis_off()
    return list(place.subgridspec(rows, columns).subplots(**shared).flat)


def is_narrow(on: Axes) -> bool:
    """Whether axes are of a column of a page: what is beside the figure goes, legends are short."""
    return _inches(on)[0] < NARROW


def _inches(on: Axes) -> tuple[float, float]:
    """Width and height of the place of axes, with its labels."""
    place, figure = on.get_position(original=True), whole_figure(on)
    return (
        place.width * figure.get_figwidth() / SUBPLOT,
        place.height * figure.get_figheight() / SUBPLOT,
    )


def fit(on: Axes) -> None:
    """Write titles and names of axes in 9 points, in as many lines as their place asks for.

    Beside long names of rows they end at the right end of the axes, for there is room before those.
    """
    inches, height = _inches(on)
    # names of rows of one panel move all that stand below each other
    texts = [text.get_text() for each in whole_figure(on).axes for text in each.get_yticklabels()]
    rows = "\n".join(texts).split("\n")
    longest = max(map(len, rows))
    is_right = is_narrow(on) and longest > LONG_ROW
    width = int((72 * inches - (0 if is_right else BEFORE)) / SIGN)
    if is_right and not any(text.get_text() for text in on.get_yticklabels()):
        width -= (
            2 * longest // 3
        )  # beside the panel that has the names: before these axes is no room
    high = int((0.6 if is_narrow(on) else 0.9) * 72 * height / SIGN)
    place: Any = "right" if is_right else "center"
    on.set_xlabel(_wrapped(on.get_xlabel(), width), fontsize=9, loc=place)
    on.set_ylabel(_wrapped(on.get_ylabel(), high), fontsize=9)
    title = _wrapped(on.get_title(loc="left"), width)
    on.set_title("", loc="left")
    on.set_title(title, fontsize=9, loc="right" if is_right else "left")


def _wrapped(text: str, signs: int) -> str:
    """Text in lines of at most so many signs."""
    return "\n".join(fill(line, max(signs, 12)) for line in text.split("\n"))


def whole_figure(drawn: Figure | Axes) -> Figure:
    """Figure itself, or the one that axes are in.

    Raises:
      ValueError: the axes were removed from theirs.
    """
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    if figure is None:
        msg = "axes must be in a figure to be drawn, got axes that were removed; draw them again."
        raise ValueError(msg)
    return figure


def png(drawn: Figure | Axes, note: str = "") -> bytes:
    """PNG of a figure, or of the one that axes are in; the same figure gives the same bytes.

    Args:
      note: written below it, so that it also stands where the figure is shown alone.
    """
    stream, whole = BytesIO(), whole_figure(drawn)
    if note:
        whole.supxlabel(note, x=0.01, ha="left", fontsize=8, color=VERMILLION)
    whole.savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def interval_arms(value: ArrayLike, low: ArrayLike, high: ArrayLike) -> NDArray[np.float64]:
    """Lengths of an interval's arms below and above its value, [2, N].

    NaN where there is no interval to be drawn.

    One that is as narrow as a point is none: it would be read as a certainty.

    Example:
      >>> interval_arms([0.5, 0.0], [0.4, 0.0], [0.7, 0.0]).round(1).tolist()
      [[0.1, nan], [0.2, nan]]
    """
    middle, bottom, top = (np.asarray(values, dtype=np.float64) for values in (value, low, high))
    arms = np.maximum(np.stack([middle - bottom, top - middle]), 0.0)
    return np.where(top - bottom > 1e-9, arms, np.nan)  # a difference of rounding is none


# an artist
def draw_with_band(
    on: Axes,
    rows: pd.DataFrame,
    at: str,
    value: str,
    label: str,
    look: Style,
    prefix: str = "",
) -> Any:  # noqa: ANN401
    """Line of two columns of a frame, and a band between its columns `low` and `high`.

    Returns the line.
    """
    (line,) = on.plot(rows[at], rows[value], label=label, **look)
    on.fill_between(
        rows[at], rows[f"{prefix}low"], rows[f"{prefix}high"], color=look["color"], **BAND
    )
    return line


def draw_band_label(on: Axes, label: str) -> Any:  # noqa: ANN401 - an artist
    """Entry of a legend that says what all bands are."""
    return on.fill_between([], [], [], color=GREY, label=label, **BAND)


def draw_marks(
    on: Axes,
    value: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    height: ArrayLike,
    **style: Any,  # noqa: ANN401 - a style
) -> None:
    """Marks with level intervals, a row each; a missing number has no mark."""
    look: Style = {"linestyle": "none", "markersize": 5, "elinewidth": 1.2, "capsize": 2.5} | style
    on.errorbar(value, height, xerr=interval_arms(value, low, high), **look)


def draw_measures(
    on: Axes,
    rows: pd.DataFrame,
    measures: Mapping[str, str],
    looks: Sequence[Style],
    spread: float,
    style: Style,
) -> None:
    """Marks of several measures of each row of a frame, the first row on top.

    Args:
      measures: column, beside which its `_low` and `_high` stand -> label.
      spread: of the marks of a row, in rows.
    """
    for place, (measure, label) in enumerate(measures.items()):
        aside = (place - (len(measures) - 1) / 2) / max(1, len(measures) - 1)
        value, low, high = (
            rows[f"{measure}{end}"].to_numpy(dtype=np.float64) for end in ("", "_low", "_high")
        )
        height = -np.arange(len(rows)) - spread * aside
        draw_marks(on, value, low, high, height, **{"label": label} | looks[place] | style)


def name_rows(on: Axes, names: Sequence[str]) -> None:
    """Upright axis of rows at 0, -1, ..., the first on top."""
    on.set_yticks(-np.arange(len(names)), names)
    on.set_ylim(0.4 - len(names), 0.6)
    tidy(on)


def tidy(on: Axes) -> None:
    """Axes without a frame above and right, with a light grid."""
    on.spines[["top", "right"]].set_visible(False)
    on.grid(visible=True, color=GRID, linewidth=0.6)
    on.set_axisbelow(True)
    on.tick_params(labelsize=8)


def shares_up(on: Axes, label: str) -> None:
    """Upright axis of shares in percent."""
    on.set_ylim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    on.yaxis.set_major_formatter(_percent_text)
    on.set_ylabel(label, fontsize=9)
    tidy(on)


def shares_along(on: Axes, label: str) -> None:
    """Level axis of shares in percent."""
    on.set_xlim(-SHARE_MARGIN, 1 + SHARE_MARGIN)
    on.xaxis.set_major_formatter(_percent_text)
    on.set_xlabel(label, fontsize=9)


def strip_below(on: Axes, floor: float) -> None:
    """Upright axis of shares with a strip below 0 %, where none can be."""
    on.set_ylim(floor, 1 + SHARE_MARGIN)
    on.set_yticks(np.linspace(0.0, 1.0, 6))
    on.axhline(0.0, color=SILVER, linewidth=0.6)


def counts_up(on: Axes, most: int) -> None:
    """Upright axis of counts up to the largest, with room above."""
    on.set_ylim(0, 1.12 * max(1, most))
    on.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))


def limit_ticks(on: Axes) -> None:
    """Level axis with at most six ticks, of a column four."""
    on.xaxis.set_major_locator(MaxNLocator(nbins=4 if is_narrow(on) else 6))


def round_ticks(on: Axes) -> None:
    """Upright axis with ticks at ones, twos or fives of a decimal place."""
    on.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))


def legend_above(on: Axes, columns: int = 1, first: Callable[[str], bool] = bool) -> None:
    """Legend over the axes, below their title; labels that are to be first stand first.

    It starts at the left end of the axes, or ends at their right one where they are narrow.
    """
    entries = zip(*on.get_legend_handles_labels(), strict=True)
    if not (ordered := sorted(entries, key=lambda entry: not first(entry[1]))):
        return
    look = _legend([label for _, label in ordered], columns, 72 * _inches(on)[0] - 10)
    if title := on.get_title(loc="left"):
        signs = int(72 * _inches(on)[0] / SIGN)
        look |= {"title": _wrapped(title, signs), "title_fontsize": 9, "alignment": "left"}
        on.set_title("", loc="left")
    place = RIGHT if is_narrow(on) else ABOVE
    on.legend(handles=[handle for handle, _ in ordered], **look, **place)


def legend_beside(on: Axes) -> None:
    """Legend right of the axes; above them where they are narrow."""
    if is_narrow(on):
        legend_above(on)
    else:
        on.legend(fontsize=8, frameon=False, **BESIDE)


def legend_over(drawn: Sequence[Axes], columns: int) -> Figure:
    """One legend over several axes, each label once; returns their figure."""
    whole = whole_figure(drawn[0])
    entries: dict[str, Any] = {}
    for on in drawn:
        for line, label in zip(*on.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, line)
    if entries:
        look = _legend([*entries], columns, 72 * whole.get_figwidth())
        whole.legend(handles=[*entries.values()], loc="outside upper center", **look)
    return whole


def _legend(labels: Sequence[str], columns: int, points: float) -> Style:
    """Labels in as many columns as fit, at most those wanted, and lines that fit."""
    signs = int((points - 30 * columns) / SIGN)
    n = max(1, min(columns, len(labels), signs // (max(map(len, labels), default=0) + 1)))
    wrapped = [_wrapped(label, signs // n) for label in labels]
    return {"labels": wrapped, "ncols": n, "fontsize": 8, "frameon": False}


def _percent_text(share: float, _: float) -> str:
    return f"{100 * share + 0.0:.4g} %"


__all__ = ["Axes", "Figure"]


def image(drawn: Figure, alt: str) -> str:
    """Figure as an image of a page; none where `pyplot` shows it in any case."""
    # a figure is pyplot's only where somebody imported that; closed, it has no manager
    pyplot, manager = sys.modules.get("matplotlib.pyplot"), drawn.canvas.manager
    if pyplot is not None and manager is not None and pyplot.fignum_exists(manager.num):
        return ""
    data = b64encode(png(drawn)).decode("ascii")
    return (
        f'<img alt="{html_text(alt)}" style="max-width: 100%" src="data:image/png;base64,{data}">'
    )
