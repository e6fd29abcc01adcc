"""Answers that are judged by what was fitted elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab import metrics
from raglab.extensions.league.accepted_answers import (
    REACH,
    AnswerTable,
    JudgedPart,
    _best_single,
    answer_rows,
    judged_answers,
)
from raglab.extensions.league.rows import LeagueRow


def answer_table(seed: int, levels: int) -> tuple[AnswerTable, list[JudgedPart]]:
    """Two cells of 80 answers.

    Signals of few levels, so that ties occur, one of them against the labels.
    """
    rng = np.random.default_rng(seed)
    correct = rng.random(160) < 0.5
    noise = rng.integers(0, levels, (2, 160)).astype(float)
    signals = noise + np.stack([correct, ~correct])
    signals[0, rng.random(160) < 0.1] = np.nan
    cell = np.repeat(["a", "b"], 80)
    table = AnswerTable(
        "t", ("x", "y"), signals, correct, cell, np.arange(160).astype(str), None, "", None, 1.0, {}
    )
    return table, [JudgedPart(cell == name, cell != name, "the other cell") for name in ("a", "b")]


@given(st.integers(0, 50), st.integers(1, 4))
def test_labels_of_judged_answers_move_no_score(seed: int, levels: int) -> None:
    """Turned round in one cell, they change scores of the other alone."""
    table, parts = answer_table(seed, levels)
    is_a = parts[0].judged
    turned = table._replace(correct=np.where(is_a, ~table.correct, table.correct))
    before, after = judged_answers(table, parts), judged_answers(turned, parts)
    np.testing.assert_array_equal(before.score[is_a], after.score[is_a])
    assert (before.score[~is_a] != after.score[~is_a]).any()


@given(st.integers(0, 50), st.integers(1, 4))
def test_the_order_of_the_rows_changes_nothing(seed: int, levels: int) -> None:
    """To the bit, also of the intervals."""
    table, parts = answer_table(seed, levels)
    order = np.random.default_rng(seed).permutation(160)
    moved = table._replace(
        signals=table.signals[:, order],
        correct=table.correct[order],
        cell=table.cell[order],
        question=table.question[order],
    )
    turned = [part._replace(judged=part.judged[order], fit=part.fit[order]) for part in parts]
    assert repr(answer_rows(moved, turned, level=0.9)) == repr(answer_rows(table, parts, level=0.9))


FIGURES = (
    "n",
    "reproduced",
    "free",
    "hindsight",
    "raglab",
    "difference",
    "low",
    "high",
    "clusters",
    "verdict",
)


def figures(rows: list[LeagueRow]) -> list[tuple[object, ...]]:
    """What is measured in rows, as texts, so that missing figures are equal."""
    return [tuple(str(getattr(row, name)) for name in FIGURES) for row in rows]


@given(st.integers(0, 50), st.integers(1, 4), st.booleans())
def test_the_sign_of_a_column_changes_no_figure(
    seed: int,
    levels: int,
    second: bool,
) -> None:
    """To the bit, with blanks and ties, whichever column it is."""
    table, parts = answer_table(seed, levels)
    turned = table._replace(signals=table.signals * np.where([[second], [not second]], -1.0, 1.0))
    assert figures(answer_rows(turned, parts, level=0.9)) == figures(
        answer_rows(table, parts, level=0.9)
    )


@given(st.integers(0, 50), st.integers(2, 4))
def test_a_blank_is_the_median_of_what_is_fitted(seed: int, levels: int) -> None:
    """Written into the table before, it gives the same scores."""
    table, parts = answer_table(seed, levels)
    scores = judged_answers(table, parts)
    for part in parts:
        centers = np.nanmedian(table.signals[:, part.fit], axis=1)[:, None]
        full = table._replace(signals=np.where(np.isnan(table.signals), centers, table.signals))
        np.testing.assert_array_equal(
            judged_answers(full, [part]).score[part.judged], scores.score[part.judged]
        )


@given(st.integers(0, 50), st.floats(-20.0, 20.0))
def test_a_single_signal_keeps_its_order_beyond_the_fitted_values(seed: int, shift: float) -> None:
    """Its fusion has the AUROC of the signal itself, in whatever range the judged answers lie."""
    rng = np.random.default_rng(seed)
    correct, cell = rng.random(160) < 0.5, np.repeat(["a", "b"], 80)
    signals = (correct + rng.normal(0.0, 0.5, 160)).round(1)[None] + np.where(
        cell == "b", shift, 0.0
    )
    table = AnswerTable(
        "t", ("x",), signals, correct, cell, np.arange(160).astype(str), None, "", None, 1.0, {}
    )
    rows = answer_rows(
        table, [JudgedPart(cell == name, cell != name, "") for name in ("a", "b")], level=0.9
    )
    for row, name in zip(rows, ("a", "b"), strict=False):
        of = cell == name
        inside = np.clip(signals[0][of], *np.percentile(signals[0][~of], [0, 100]))
        # within the fitted range the knots of the fit may tie answers
        if (inside != signals[0][of]).all():
            assert row.raglab == pytest.approx(metrics.auroc(correct[of], signals[0][of]))


def test_the_row_of_all_counts_judged_answers_alone() -> None:
    """A cell of right answers alone has no part in it, which is said."""
    table, _ = answer_table(3, 4)
    cell = np.concatenate([table.cell, np.full(40, "c")])
    more = table._replace(
        signals=np.concatenate([table.signals, np.ones((2, 40))], axis=1),
        correct=np.concatenate([table.correct, np.ones(40, dtype=bool)]),
        cell=cell,
        question=np.arange(200).astype(str),
        calls=np.where(cell == "c", 100.0, 3.0),
    )
    whole = [JudgedPart(cell == name, cell != name, "the other cells") for name in ("a", "b", "c")]
    *_, row = answer_rows(more, whole, level=0.9)
    assert (row.cell, row.n, row.clusters, row.calls) == ("all", 160, 160, 3.0)
    assert row.note.startswith("of 3 cells 1 is left out; mean over 2 cells")


def test_why_nothing_is_fitted() -> None:
    """The right and wrong answers that remain are counted."""
    table, parts = answer_table(3, 4)
    few = [part._replace(fit=part.fit & (np.arange(160) % 8 == 0)) for part in parts]
    row, *_ = answer_rows(table, few, level=0.9)
    right = table.correct[few[0].fit]
    counts = (
        f"{right.sum()} right and {(~right).sum()} wrong answers to fit on (the other cell); 20 "
        "of each are needed"
    )
    assert (row.verdict, row.note) == ("not judged", f"nothing to fit: {counts}")


def test_a_signal_of_the_judged_cell_alone_is_not_used() -> None:
    """Nor one that the judged cell lacks: it would take weight from those that it has."""
    table, parts = answer_table(1, 2)
    lacking = table._replace(
        signals=np.where([[False], [True]] & parts[0].judged, np.nan, table.signals)
    )
    scores = judged_answers(lacking, parts)
    assert scores.calls[:80].tolist() == [1.0] * 80
    assert scores.calls[80:].tolist() == [1.0] * 80


def test_the_best_single_signal_has_its_own_name() -> None:
    """Where another that is nowhere there stands before it.

    Without right or wrong answers there is none.
    """
    table, _ = answer_table(2, 3)
    known = np.ones(160, dtype=bool)
    lacking = table._replace(signals=np.where([[True], [False]], np.nan, table.signals))
    name, area = _best_single(lacking, known, table.cell)
    assert name == "y"
    alone = _best_single(table._replace(correct=known | table.correct), known, table.cell)
    assert (alone[0], np.isnan(alone[1])) == ("", True)
    # A cell of right answers alone has no AUROC, and no part in the mean.
    is_a = table.cell == "a"
    part = _best_single(lacking._replace(correct=table.correct | is_a), known, table.cell)
    # it ranks against the labels
    assert part == ("y", metrics.auroc(table.correct[~is_a], -table.signals[1][~is_a]))
    assert area != part[1]


@given(st.integers(0, 50), st.integers(1, 4))
def test_the_reach_of_intervals_over_parts(seed: int, levels: int) -> None:
    """A row over several parts has ends that much further from its difference.

    A cell of one part has its own.
    """
    table, parts = answer_table(seed, levels)
    before, after = (
        answer_rows(table, parts, level=0.9),
        answer_rows(table, parts, level=0.9, reach=2.0),
    )
    for row, wide in zip(before, after, strict=True):
        assert wide.difference == row.difference
        factor = 2.0 if row.cell == "all" else 1.0
        assert np.isclose(wide.high - wide.low, factor * (row.high - row.low))


def test_signals_that_know_nothing() -> None:
    """Of 150 tables of noise signals, judged in five folds, at most one in twenty is not level."""
    verdicts = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        fold, numbers = np.arange(300) % 5, np.arange(300).astype(str)
        parts = [JudgedPart(fold == of, fold != of, "the other folds") for of in range(5)]
        one = np.full(300, "one")
        signals, right, score = (
            rng.normal(size=(4, 300)),
            rng.random(300) < 0.5,
            rng.normal(size=300),
        )
        table = AnswerTable(
            "t", ("x", "y", "z", "w"), signals, right, one, numbers, score, "b", None, 1.0, {}
        )
        verdicts += [row.verdict for row in answer_rows(table, parts, level=0.95, reach=REACH)]
    assert len(verdicts) == 150
    assert sum(verdict != "level" for verdict in verdicts) <= 7
