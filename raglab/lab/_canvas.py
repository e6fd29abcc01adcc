"""Figures, axes and legends that every drawing shares; the one file that knows matplotlib.

No state of `pyplot` is touched: a figure made here belongs to who asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from matplotlib._pylab_helpers import Gcf
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from raglab.lab import _ink as ink

__all__ = ["Axes", "Figure"]

DPI = 100


def figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Empty figure, inches, that makes room for its labels and legends."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Axes as given, or those of a new figure, inches."""
    return ax if ax is not None else figure(width, height).subplots()


def whole(drawn: Figure | Axes) -> Figure:
    """Figure itself, or the one that axes are in.

    Raises:
      ValueError: the axes were removed from theirs.
    """
    found = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    if found is None:
        msg = "axes must be in a figure to be drawn, got axes that were removed; draw them again."
        raise ValueError(msg)
    return found


def png(drawn: Figure | Axes) -> bytes:
    """PNG of a figure, or of the one that axes are in; the same figure gives the same bytes."""
    stream = BytesIO()
    whole(drawn).savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def shown_by_pyplot(drawn: Figure) -> bool:
    """Whether `pyplot` holds the figure, so that a notebook shows it at the end of the cell in any case."""
    return any(manager.canvas.figure is drawn for manager in Gcf.get_all_fig_managers())


def line(**style: Any) -> Line2D:  # noqa: ANN401 - a style
    """Line for a legend."""
    return Line2D([], [], **style)


def tidy(on: Axes) -> None:
    """Axes without a frame above and right, with a light grid."""
    on.spines[["top", "right"]].set_visible(False)
    on.grid(visible=True, color=ink.GRID, linewidth=0.6)
    on.set_axisbelow(True)
    on.tick_params(labelsize=8)


def shares_up(on: Axes, label: str) -> None:
    """Upright axis of shares in percent."""
    on.set_ylim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
    on.yaxis.set_major_formatter(_percent())
    on.set_ylabel(label, fontsize=9)
    tidy(on)


def shares_along(on: Axes, label: str) -> None:
    """Level axis of shares in percent."""
    on.set_xlim(-ink.SHARE_MARGIN, 1 + ink.SHARE_MARGIN)
    on.xaxis.set_major_formatter(_percent())
    on.set_xlabel(label, fontsize=9)


def counts_up(on: Axes, most: int, ticks: int = 4) -> None:
    """Upright axis of counts up to the largest, with room above."""
    on.set_ylim(0, 1.12 * max(1, most))
    on.yaxis.set_major_locator(MaxNLocator(nbins=ticks, integer=True))


def few_ticks(on: Axes) -> None:
    """Level axis with at most six ticks."""
    on.xaxis.set_major_locator(MaxNLocator(nbins=6))


def round_ticks(on: Axes) -> None:
    """Upright axis with ticks at ones, twos or fives of a decimal place."""
    on.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))


def legend_above(on: Axes, columns: int = 1, first: Callable[[str], bool] = bool) -> None:
    """Legend over the axes, starting at their left end; labels that are to be first stand first."""
    entries = zip(*on.get_legend_handles_labels(), strict=True)
    ordered = sorted(entries, key=lambda entry: not first(entry[1]))
    lines, labels = [one for one, _ in ordered], [label for _, label in ordered]
    on.legend(lines, labels, ncols=columns, fontsize=8, frameon=False, **ink.ABOVE)


def legend_beside(on: Axes) -> None:
    """Legend right of the axes."""
    on.legend(fontsize=8, frameon=False, **ink.BESIDE)


def legend_over(drawn: Figure, lines: Sequence[Any], labels: Sequence[str], columns: int) -> None:
    """One legend over all axes of a figure."""
    n_columns = min(columns, len(labels))
    drawn.legend(lines, labels, loc="outside upper center", ncols=n_columns, fontsize=9, frameon=False)


def _percent() -> FuncFormatter:
    return FuncFormatter(lambda share, _: f"{100 * share + 0.0:.4g} %")
