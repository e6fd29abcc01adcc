"""How figures look: colours, dashes, marks and words; no plotting library is named here.

Colours are those of Okabe and Ito, told apart by colour-blind readers; lines differ in dashes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab.values import Status

Style = dict[str, Any]

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, SILVER, GRID = "#E69F00", "#56B4E9", "#666666", "#9a9a9a", "#e4e4e4"
INKS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LABEL_INKS = {Status.ok: GREEN, Status.refuse: VERMILLION, Status.ambiguous: BLUE}
RATE_INKS = dict(
    zip(
        ("false_refusal_rate", "hallucination_rate", "missed_ambiguity_rate", "over_ask_rate"),
        (BLUE, VERMILLION, GREEN, PURPLE),
        strict=True,
    )
)
SWEEP_INKS = RATE_INKS | {"coverage": GREY, "pass_rate": ORANGE}
VALUES: tuple[Style, ...] = (  # a thin line is seen on a broad one where two policies share a value
    {"color": SILVER, "linewidth": 3.2, "zorder": 1.5},
    {"color": "black", "linewidth": 1.4, "zorder": 1.6},
    {"color": SILVER, "linewidth": 3.2, "zorder": 1.5, "linestyle": DASHES[2]},
    {"color": "black", "linewidth": 1.4, "zorder": 1.6, "linestyle": DASHES[2]},
)
IDEAL: Style = {"color": GREY, "linewidth": 1.0, "linestyle": DASHES[1]}
HEAT: Style = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "aspect": "auto"}
BAND: Style = {"alpha": 0.16, "linewidth": 0}
CERTIFIED: Style = {"color": "black", "linewidth": 1.6, "linestyle": DASHES[3]}
BOUND: Style = {"color": "black", "marker": "v", "linestyle": "none", "markersize": 7}
TARGET: Style = {"color": "black", "linewidth": 0.9, "linestyle": "--"}
TRIAL: Style = {"color": GREY, "markersize": 3, "alpha": 0.4, "markeredgewidth": 0}
FRONT: Style = {"color": BLUE, "markersize": 5, "linewidth": 1.2, "drawstyle": "steps-post"}
LABEL: Style = {"facecolor": "white", "edgecolor": SILVER, "linewidth": 0.5, "pad": 1.5}
ABOVE: Style = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.02), "borderaxespad": 0.0}
BESIDE: Style = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
LONGEST_NAME = 28
FAR = 3.0
SHARE_MARGIN = 0.03  # room beyond 0 and 100 %, so that lines on the frame are seen


def curve_style(place: int) -> Style:
    """Line of the curve at a place in its legend."""
    return {"drawstyle": "steps-pre", "linewidth": 1.5, "color": INKS[place % 7], "linestyle": DASHES[place % 4]}


def line_style(place: int) -> Style:
    """Line through time of the run or arm at a place in its legend."""
    return {"color": INKS[place % 7], "linestyle": DASHES[place % 4], "linewidth": 1.5}


def bin_style(place: int) -> Style:
    """Points with intervals of the curve at a place in its legend."""
    return {
        "color": INKS[place % 7],
        "marker": MARKERS[place % 7],
        "markersize": 5,
        "linewidth": 1.0,
        "linestyle": DASHES[place % 4],
        "elinewidth": 1.2,
        "capsize": 3,
    }


def point_style(place: int) -> Style:
    """Mark of the policy at a place in its legend."""
    return {
        "marker": MARKERS[place % 7],
        "color": "black",
        "linestyle": "none",
        "markersize": 8,
        "markerfacecolor": INKS[-1 - place % 7],
    }


def plain(text: str) -> str:
    """Text that is drawn as it stands: no mathematics, never left out of a legend, cut where it is long."""
    short = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    shown = short.replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def words(rate: str) -> str:
    """Name of a rate in a legend."""
    return rate.removesuffix("_rate").replace("_", " ")


def seen_range(breaks: NDArray[np.float64], marks: Sequence[float]) -> tuple[float, float]:
    """Part of an axis that holds every change, and every mark that is not off by `FAR` times the width of the changes.

    Example:
      >>> seen_range(np.array([0.0, 1.0]), [1.5, 40.0])
      (-0.09, 1.59)
    """
    span = float(np.ptp(breaks)) if len(breaks) else 0.0
    near = [mark for mark in marks if span == 0.0 or breaks.min() - FAR * span <= mark <= breaks.max() + FAR * span]
    every = np.concatenate([breaks, np.asarray(near, dtype=np.float64)])
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    margin = 0.06 * (high - low) or max(abs(low) * 0.1, 0.01)
    return low - margin, high + margin
