"""Pictures of the league: the differences of a table, a panel a metric."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from experiments.league.rows import RATES

COLOURS = 32  # of a picture, so that it is small
MARKS = {  # blue, grey and vermillion of a palette that colour-blind readers tell apart
    "better": {"marker": ">", "color": "#0072B2"},
    "level": {"marker": "o", "color": "#777777", "markerfacecolor": "white"},
    "worse": {"marker": "<", "color": "#D55E00"},
}


def write_picture(rows: pd.DataFrame, path: Path) -> None:
    """Draw a table: right of 0 is better for raglab, pooled cells stand last, in their own part.

    Args:
      rows: of one table, see `league_frame`.
      path: of the PNG file.
    """
    rows = rows[rows["verdict"].isin(MARKS)].sort_values("is_pooled", kind="stable")
    cells = rows.drop_duplicates("cell")
    places = {cell: -place for place, cell in enumerate(cells["cell"])}
    metrics = rows["metric"].unique()
    size = (3.6 + 3.3 * len(metrics), 1.6 + 0.21 * len(cells))
    figure = Figure(size, layout="constrained")
    axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axis, metric in zip(axes, metrics, strict=True):
        sign = -1.0 if metric in RATES else 1.0
        for verdict, part in rows[rows["metric"] == metric].groupby("verdict"):
            ends = np.sort(sign * part[["low", "high"]].to_numpy(), axis=1).T
            gain, height = sign * part["difference"].to_numpy(), part["cell"].map(places)
            reach = np.abs(ends - gain)
            axis.errorbar(gain, height, xerr=reach, linestyle="", label=verdict, **MARKS[verdict])
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.axhline(0.5 - float((~cells["is_pooled"]).sum()), color="silver", linewidth=0.8)
        names = ["raglab", rows["reference"].iloc[0]][:: int(sign)]
        axis.set_title(metric, fontsize=9)
        axis.set_xlabel(f"{' less '.join(names)}; right is better", fontsize=8)
    trades = np.where(cells["joint"] == "trade", " (trade)", "")
    axes[0].set_yticks([*places.values()], cells["cell"] + trades, fontsize=8)
    entries = {
        label: mark
        for axis in axes
        for mark, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(entries.values(), entries, loc="outside upper center", ncols=len(entries))
    drawn = BytesIO()
    figure.savefig(drawn, dpi=100, metadata={"Software": None})
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path, optimize=True)
