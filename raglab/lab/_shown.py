"""How displays show themselves in a notebook: figure and table as HTML, numbers with their counts and interval."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab.lab import _canvas as canvas
from raglab.lab._wording import Cell, interval, number, percent
from raglab.values import Curve, Status

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab._canvas import Figure

MOST_ROWS = 20
_CELL = "padding: 0.15em 0.8em; white-space: nowrap"


class Display(Protocol):
    """What is drawn and can be drawn again."""

    figure_: Figure

    def to_frame(self) -> pd.DataFrame: ...


def text(display: Display) -> str:
    """Name of a display and the first and last rows of its table, for where no HTML is shown."""
    return f"{type(display).__name__}\n{display.to_frame().round(4).to_string(max_rows=10)}"


def html(display: Display, told: str, columns: Mapping[str, Iterable[Any]], interval_is: str) -> str:
    """Figure as an image, unless `pyplot` shows it in any case, and beneath it a table of at most `MOST_ROWS` rows.

    Args:
      told: caption; the alternative text of the image too. columns: head -> numbers, text or cells.
      interval_is: what the intervals of the cells are.
    """
    image = ""
    if not canvas.shown_by_pyplot(display.figure_):
        data = b64encode(canvas.png(display.figure_)).decode("ascii")
        alt = escape(told.replace("\n", "; "), quote=True)
        image = f'<img alt="{alt}" style="max-width: 100%" src="data:image/png;base64,{data}">'
    parts = [list(values) for values in columns.values()]
    size = len(parts[0])
    rows = np.unique(np.linspace(0, size - 1, min(size, MOST_ROWS)).round().astype(int))
    left_out = f" {len(rows)} of {size} rows; to_frame() has all." if len(rows) < size else ""
    caption = escape(f"{told}\nIn small: counts and {interval_is}.{left_out}").replace("\n", "<br>")
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(_cell(values[row]) for values in parts)}</tr>" for row in rows)
    return (
        f'<div>{image}<div style="overflow-x: auto"><table class="dataframe">'
        f'<caption style="caption-side: top; text-align: left">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _cell(value: Any) -> str:  # noqa: ANN401 - cell of a frame
    one = value if isinstance(value, Cell) else Cell(_plain(value), mark="" if isinstance(value, str) else "number")
    side = "right" if one.mark == "number" else "left"
    small = f'<br><small style="opacity: 0.75">{escape(one.small)}</small>' if one.small else ""
    return f'<td style="{_CELL}; text-align: {side}">{escape(one.text)}{small}</td>'


def _plain(value: Any) -> str:  # noqa: ANN401 - cell of a frame
    endless = isinstance(value, float | np.floating) and np.isinf(value)
    return ("∞" if value > 0 else "−∞") if endless else number(value)


def said(frame: pd.DataFrame, rate: str = "rate", prefix: str = "") -> list[Cell]:
    """A rate of a frame as cells: its value, below it k of n and the interval."""
    parts = (frame[rate], *(frame[f"{prefix}{end}"] for end in ("k", "n", "low", "high")))
    return [
        Cell(percent(value), f"{k}/{n}; {interval(low, high)}", "number")
        for value, k, n, low, high in zip(*parts, strict=True)
    ]


def codes(name: str, statuses: ArrayLike) -> NDArray[Any]:
    """Statuses as codes, [Q], where they came as names; codes as they came.

    Raises:
      ValueError: a name that is no status.
    """
    found = np.asarray(statuses)
    if found.dtype.kind not in "OUT":
        return found
    odd = [one for one in found.ravel() if one not in Status.__members__]
    if odd:
        msg = f"{name} must hold {', '.join(Status.__members__)} or their codes, got {odd[0]!r}."
        raise ValueError(msg)
    return np.array([Status[str(one)] for one in found.ravel()], dtype=np.int64).reshape(found.shape)


def known(curve: Curve, name: str) -> Curve:
    """Curve as it came.

    Raises:
      ValueError: it has no step, since every score was missing.
    """
    if not len(curve.x):
        msg = f"{name} must hold a number for at least one case, got NaN only; nothing could ever be answered."
        raise ValueError(msg)
    return curve
