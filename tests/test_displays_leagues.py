"""A league drawn.

A panel a metric, right is better whatever the metric, marks by verdict, of a frame alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer

from raglab.displays.canvas import png
from raglab.displays.leagues import MARKS, MOST_DRAWN, NONE_JUDGED, RATES, LeagueDisplay

VERDICTS = {"a": "ahead", "b": "level", "c": "behind", "d": "not judged"}
NONE = float("nan")


def frame(table: str = "first") -> pd.DataFrame:
    """The pooled row first, four cells, two metrics of which less is better in the second."""
    ends = {
        "ahead": (0.1, 0.3),
        "level": (-0.1, 0.1),
        "behind": (-0.3, -0.1),
        "not judged": (NONE, NONE),
    }
    rows = []
    for metric, sign in (("AUROC", 1.0), ("error rate", -1.0)):
        for n, (cell, verdict) in enumerate({"all": "ahead", **VERDICTS}.items(), 1_000):
            low, high = sorted(sign * end for end in ends[verdict])
            rows.append(
                (table, cell, metric, sign > 0, n, "the vote", (low + high) / 2, low, high, verdict)
            )
    names = (
        "table",
        "cell",
        "metric",
        "higher_is_better",
        "n",
        "reference",
        "difference",
        "low",
        "high",
        "verdict",
    )
    return pd.DataFrame(rows, columns=list(names))


def marks(display: LeagueDisplay, panel: int) -> dict[str, tuple[list[float], list[float]]]:
    """Values and heights of the marks of a panel, by verdict."""
    drawn = [
        part for part in display.axes_[panel].containers if isinstance(part, ErrorbarContainer)
    ]
    return {
        str(part.get_label()): (
            np.asarray(part[0].get_xdata(), np.float64).round(6).tolist(),
            np.asarray(part[0].get_ydata(), np.float64).tolist(),
        )
        for part in drawn
    }


def test_right_is_better_in_both_panels() -> None:
    """A lower error rate is drawn right of 0; the pooled row is last and bold.

    The table has the same signs.
    """
    display = LeagueDisplay.from_league(frame(), name="May")
    assert [on.get_title(loc="left") for on in display.axes_] == ["AUROC", "error rate"]
    expected = {
        "ahead": ([0.2, 0.2], [0.0, -4.0]),
        "level": ([0.0], [-1.0]),
        "behind": ([-0.2], [-2.0]),
    }
    assert [marks(display, panel) for panel in (0, 1)] == [expected, expected]
    assert (
        display.axes_[0].get_xlabel() == "AUROC of raglab\nless that of the vote\n(right is better)"
    )
    assert (
        display.axes_[1].get_xlabel()
        == "error rate of the vote\nless that of raglab\n(right is better)"
    )
    labels = display.ax_.get_yticklabels()
    assert [(text.get_text(), text.get_fontweight()) for text in labels][-2:] == [
        ("d", "normal"),
        ("all", "bold"),
    ]
    assert display.ax_.get_ylabel() == "cell of May"
    rows = display.frame()
    assert rows.loc[rows["metric"] == "error rate", "gain_low"].round(6).tolist()[:3] == [
        0.1,
        -0.1,
        -0.3,
    ]
    assert "May: raglab beside the reference" in display._repr_html_()
    assert png(display.figure_)


def test_a_verdict_has_a_mark_and_a_colour_of_its_own() -> None:
    """So that neither alone tells them apart; what is not judged is said in words.

    Each row has its n.
    """
    assert (
        len({(look["marker"]) for look in MARKS.values()})
        == len({look["color"] for look in MARKS.values()})
        == 3
    )
    display = LeagueDisplay.from_league(frame())
    (legend,) = display.figure_.legends
    assert [text.get_text() for text in legend.get_texts()] == list(MARKS)
    texts = [text.get_text() for text in display.ax_.texts]
    assert texts.count("not judged") == 1
    assert [text for text in texts if text.startswith("1,")] == [
        "1,001",
        "1,002",
        "1,003",
        "1,004",
        "1,000",
    ]


def test_rows_that_differ() -> None:
    """A cell that lacks a metric keeps its place; nothing judged has no legend.

    An interval of no width no line.
    """
    rows = frame()
    display = LeagueDisplay.from_league(rows[(rows["cell"] != "b") | (rows["metric"] == "AUROC")])
    assert marks(display, 1)["behind"] == ([-0.2], [-2.0])
    alone = LeagueDisplay.from_league(rows[rows["verdict"] == "not judged"])
    assert not alone.figure_.legends
    assert png(alone.figure_)
    even = LeagueDisplay.from_league(rows.assign(difference=0.0, low=0.0, high=0.0))
    assert even.rows["gain"].tolist() == [0.0] * 10


def test_which_table() -> None:
    """Of several it is named; the message names them."""
    both = pd.concat([frame("first"), frame("second")])
    assert set(LeagueDisplay.from_league(both, table="second").rows["table"]) == {"second"}
    with pytest.raises(ValueError, match="one of first, second, got None"):
        LeagueDisplay.from_league(both)
    with pytest.raises(ValueError, match="one of first, got 'third'"):
        LeagueDisplay.from_league(frame(), table="third")
    with pytest.raises(ValueError, match="none, for there is no row"):
        LeagueDisplay.from_league(frame()[:0])
    with pytest.raises(ValueError, match="got no verdict"):
        LeagueDisplay.from_league(frame().drop(columns="verdict"))


def test_rates_that_are_traded() -> None:
    """Each is drawn by its own verdict, and the cell is called a trade.

    The rates are those of the league.
    """
    rows = frame().replace({"metric": {"AUROC": RATES[0], "error rate": RATES[1]}})
    rows.loc[
        (rows["cell"] == "a") & (rows["metric"] == RATES[1]),
        ["verdict", "difference", "low", "high"],
    ] = [
        "behind",
        0.2,
        0.1,
        0.3,
    ]
    display = LeagueDisplay.from_league(rows)
    assert (marks(display, 0)["ahead"], marks(display, 1)["behind"]) == (
        ([0.2, 0.2], [0, -4]),
        ([-0.2] * 2, [0, -2]),
    )
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names == ["a (trade)", "b", "c", "d", "all"]


def test_nothing_that_is_judged() -> None:
    """Is said, on an axis without differences."""
    rows = frame()
    display = LeagueDisplay.from_league(rows[rows["verdict"] == "not judged"].assign(reference=""))
    assert NONE_JUDGED in [text.get_text() for text in display.ax_.texts]
    assert not display.ax_.get_xticks().size
    assert "that of the reference" in display.ax_.get_xlabel()


def test_many_cells() -> None:
    """Those of most questions are drawn, which is said, and all are in the table."""
    rows = pd.concat([frame(), *(frame().assign(cell=f"x{n}", n=n)[1:2] for n in range(100))])
    display = LeagueDisplay.from_league(rows)
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names == ["a", "b", "c", "d", *(f"x{n}" for n in range(44, 100)), "all"]
    assert (
        display.ax_.get_ylabel()
        == f"cell of first\n({MOST_DRAWN} of 104 cells, those of most answers)"
    )
    assert len(display.frame()) == 110
