"""The page of the league: its blocks run and print what it shows.

And the figure of a league of its own.
"""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from league_files import dba_folder, nomiracl_folder
from raglab.displays import LeagueDisplay
from raglab.displays.leagues import RATES as DRAWN_RATES
from raglab.extensions.league.league import LAYOUTS, League, league_table
from raglab.extensions.league.rows import RATES, is_pooled

GUIDE = Path(__file__).parents[3] / "docs" / "league.md"


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own; each line of a block of text is printed by the block before it."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed, text = "", GUIDE.read_text(encoding="utf-8")
    for kind, block in re.findall(r"```(python|text)\n(.*?)```", text, flags=re.DOTALL):
        if kind == "text":
            assert block == printed
            continue
        with redirect_stdout(StringIO()) as stream:
            exec(compile(block, GUIDE.name, "exec"), names)  # noqa: S102 - the project's own page
        printed = stream.getvalue()
    assert (tmp_path / "own.png").stat().st_size > 0
    assert len(text.splitlines()) <= 200


def test_a_section_a_table() -> None:
    """With a figure that is there, and small.

    And the rows of the synthetic example are no published ones.
    """
    text = GUIDE.read_text(encoding="utf-8")
    for layout in LAYOUTS:
        assert f"\n## {layout.name}: " in text
        picture = GUIDE.parent / "pictures" / f"league-{layout.name}.png"
        assert f"(pictures/{picture.name})" in text
        assert picture.stat().st_size <= 80_000


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> League:
    """Two tables."""
    data = tmp_path_factory.mktemp("data")
    dba_folder(data / "dba")
    nomiracl_folder(data / "nomiracl")
    return league_table(data)


@pytest.mark.parametrize("table", ["dba", "nomiracl"])
def test_every_row_is_drawn(league: League, table: str) -> None:
    """By its verdict, right is better; the pooled rows are those of the league, last."""
    rows = [row for row in league.rows if row.table == table]
    drawn = LeagueDisplay.from_league(league, table=table).frame()
    assert len(drawn) == len(rows)
    assert (drawn["gain_low"] > 0).tolist() == (drawn["verdict"] == "ahead").tolist()
    assert (drawn["gain_high"] < 0).tolist() == (drawn["verdict"] == "behind").tolist()
    pooled = [row.cell for row in rows if is_pooled(row)]
    assert pooled
    assert drawn["cell"].tolist()[-len(pooled) :] == pooled
    assert drawn["is_pooled"].sum() == len(pooled)
    assert DRAWN_RATES == RATES  # the figure imports no extension
