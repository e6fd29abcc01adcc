from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from raglab.lab.slice_rates import (
    NO_VALUE,
    SEVERAL_LINES,
    SLICE_COLUMNS,
    business_lines,
    slices,
    stated_columns,
)
from raglab.metrics import RATES, clopper_pearson
from raglab.replay import decide, sweep
from raglab.values import Case, Chunk, TraceData, map_fields
from refusals import refused
from worlds import Hit, ask, policy, random_policies, random_trace, trace_of

NEAR, FAR = Hit(0.25, "a.md", tags={"domain": "home"}), Hit(9.0, "a.md", tags={"domain": "home"})


def _said(french_right=0, english_right=10, size=10):
    """Answerable cases of two languages.

    Those not right are refused, since their hit is too far.
    """
    rows = []
    for lang, right in (("fr", french_right), ("en", english_right)):
        rows += [
            (
                ask(expect_sources=("a.md",), extra={"lang": lang}),
                [[NEAR if number < right else FAR]],
            )
            for number in range(size)
        ]
    return decide(trace_of(*rows), policy())


def lines_of(cases, chunks):
    """Line of each case, of a trace of these cases and chunks."""
    nothing = map_fields(trace_of((ask(), [[NEAR]])).hits, lambda field: field[:0])
    stated = stated_columns(TraceData(tuple(cases), tuple(chunks), ("x",), nothing))
    return business_lines(stated.columns["line"].tolist(), stated.lines, stated.documents)


def by_value(said, **more):
    """Slices by column and value."""
    return slices(said, **more).set_index(["column", "value"])


def test_a_slice_by_hand():
    """None of 10 French and all of 10 English pass: p = 2 / C(20, 10), and French stands on top."""
    found = by_value(_said())
    row = found.loc["language", "fr"]
    assert found.index[0] == ("language", "fr")
    assert (row["n"], row["k"], row["rate"], row["rest"]) == (10, 0, 0.0, 1.0)
    assert (row["low"], row["high"]) == clopper_pearson(0, 10)
    assert row["p"] == pytest.approx(2 / 184_756)
    assert row["p_holm"] == pytest.approx(2 * row["p"])
    assert found["flag"].to_dict() == {key: key[0] == "language" for key in found.index}


def test_a_slice_costs_what_its_cases_do():
    """By default 1 minus the pass rate; where a refusal costs a quarter, the French pay one."""
    found = by_value(_said(), rate="false_refusal_rate")["expected_cost"]
    assert (found["language", "fr"], found["language", "en"], found["line", "home"]) == (
        1.0,
        0.0,
        0.5,
    )
    cheap = by_value(_said(), costs={"ok": {"refused": 0.25}})["expected_cost"]
    assert (cheap["language", "fr"], cheap["language", "en"]) == (0.25, 0.0)


def test_a_column_of_one_value_has_no_rest():
    """All cases are of one line: n is all of them, and there is nothing to test against."""
    found = by_value(_said())
    row = found.loc["line", "home"]
    assert row["n"] == 20
    assert np.isnan([row["rest"], row["p"], row["p_holm"]]).all()
    assert {"doctype", "intent"}.isdisjoint(found.index.get_level_values(0))


def test_few_cases_are_shown_but_not_tested():
    """Below `least` a slice has p but takes no part in the correction."""
    found = by_value(_said(1, 4, size=5), least=6)
    assert found.loc[("language", "fr"), "p"] > 0
    assert found["p_holm"].isna().all()
    assert not found["flag"].any()
    assert slices(_said(0, 5, size=5), least=5)["flag"].sum() == 2


def test_one_bad_case_is_not_the_worst_slice():
    """A slice of one failed case stands below one of 10 failed cases: its rate may well be 97 %."""
    by = {"team": ["a", *["b"] * 19]}
    found = slices(_said(), by=by)
    order = [tuple(key) for key in found[["column", "value"]].to_numpy()]
    assert order.index(("language", "fr")) < order.index(("team", "a"))


def test_own_columns_stand_beside_and_replace():
    """A value a case; a name of a column takes its place; nothing said is `(none)`."""
    team = [None, float("nan"), *["x"] * 18]
    found = slices(_said(), by={"team": np.array(team, dtype=object), "language": ["all"] * 20})
    assert Counter(found["column"]) == {
        "team": 2,
        "language": 1,
        "line": 1,
        "named_documents": 1,
        "label": 1,
    }
    assert set(found["value"]) == {NO_VALUE, "x", "all", "home", "no", "ok"}


@settings(deadline=None, derandomize=True, max_examples=3)
@given(st.integers(0, 1000))
def test_laws(seed):
    """Every column holds every case once; rows of cases may be shuffled.

    P is the sum over tables no likelier.
    """
    trace, one = random_trace(seed, 14), random_policies(seed, 1)[0]
    rng = np.random.default_rng(seed)
    drawn = rng.choice(["a", "b", "c"], size=14)
    rows = rng.permutation(14)
    shuffled = TraceData(
        tuple(trace.cases[row] for row in rows),
        trace.chunks,
        trace.arms,
        map_fields(trace.hits, lambda field: field[rows]),
    )
    rated = sweep(trace, [one]).iloc[0]
    for rate in RATES:
        found = slices(decide(trace, one), by={"drawn": drawn}, rate=rate, least=3)
        again = slices(decide(shuffled, one), by={"drawn": drawn[rows]}, rate=rate, least=3)
        pd.testing.assert_frame_equal(found, again)
        assert tuple(found) == SLICE_COLUMNS
        assert found["rate"].to_numpy() == pytest.approx(
            (found["k"] / found["n"]).to_numpy(), nan_ok=True
        )
        summed = found.groupby("column")[["k", "n"]].sum()
        assert (summed["k"] == rated[f"{rate}_k"]).all()
        assert (summed["n"] == rated[f"{rate}_n"]).all()
        for row in found.dropna(subset="p").itertuples():
            tables = hypergeom(rated[f"{rate}_n"], rated[f"{rate}_k"], row.n).pmf(
                np.arange(row.n + 1)
            )
            assert row.p == pytest.approx(tables[tables <= tables[row.k] * (1 + 1e-7)].sum())


def test_lines_come_from_the_case_then_from_its_documents():
    """What the case says; else the tag of what it expects, else of what the user named.

    Several are several.
    """
    chunks = [
        Chunk("1", "", "x/a.md", tags={"domain": " home "}),
        Chunk("2", "", "b.md", tags={"domain": "fleet"}),
        Chunk("3", "", "c.md", tags={"domain": ""}),
    ]
    cases = [
        Case("1", "", "ok", ("b.md#1",), extra={"line": "cyber"}),
        Case("2", "", "ok", ("a.md#2",), ("a.md",), selected_sources=("b.md",)),
        Case("3", "", "ambiguous", (), ("a.md#2", "b.md")),
        Case("4", "", "refuse", selected_sources=("b.md",)),
        Case("5", "", "ok", ("c.md",)),
        Case("6", "", "refuse"),
    ]
    assert lines_of(cases, chunks) == ["cyber", "home", SEVERAL_LINES, "fleet", NO_VALUE, NO_VALUE]
    products = [Chunk("1", "", "a.md", tags={"product": "Home Plus"})]
    assert lines_of(cases[1:2], products) == ["Home Plus"]


def test_what_cannot_be_is_refused():
    """An unknown rate, values that are not one a case, a level that is none."""
    said = _said()
    refused("rate must be one of", slices, said, rate="accuracy")
    refused("a value a case, got 1 of 'team' for 20", slices, said, by={"team": ["x"]})
    refused("level must be in", slices, said, level=1.0)
