"""The mixin of results: text, page and frame of one description."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from raglab.words.results import DASH, LINE, Result, Summary, value_text


@dataclass(repr=False)
class Sizes(Result):
    """A result for tests."""

    table: pd.DataFrame
    notes: tuple[str, ...] = ()

    def _summary(self):
        return Summary([("cases", "3"), ("id", "<b>")], {"sizes": self.table}, self.notes)


def test_every_view_reads_the_same_description():
    """Facts in the short form and on the page, rows in the frame too, notes in lines."""
    sizes = Sizes(pd.DataFrame({"n": [1, None]}), ("word " * 60,))
    assert repr(sizes) == "Sizes(cases 3; id <b>)"
    assert max(map(len, str(sizes).splitlines())) <= LINE
    assert str(sizes).split()[:4] == repr(sizes).split()
    page = sizes._repr_html_()
    assert "&lt;b&gt;" in page
    assert DASH in page
    assert "word word" in page
    copied = sizes.frame()
    copied["n"] = 9
    assert sizes.table["n"][0] == 1


def test_values_are_numbers_until_they_are_shown():
    """Four digits, whatever the size; missing is a dash."""
    shown = [1234567.0, 0.00012345, float("inf"), float("nan"), None, False, 7, "a"]
    assert list(map(value_text, shown)) == [
        "1.235e+06", "0.0001234", "∞", DASH, DASH, "no", "7", "a"
    ]  # fmt: skip


def test_arrays_in_cells_and_many_columns_fit_a_page():
    """An array is shown as text; columns beyond the room are counted."""
    assert value_text(np.array([1, 2])) == "[1 2]"
    assert value_text(np.array([0.5])) == "0.5"
    wide = Sizes(pd.DataFrame({f"column {i}": ["v"] for i in range(3000)}))
    page = wide._repr_html_()
    assert len(page.encode()) < 20_000
    assert "more columns" in page
