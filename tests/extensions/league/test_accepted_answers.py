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


def answer_table(seed: int, levels: int) -> tuple[AnswerTable, list[JudgedPart]]:
    """Two cells of 80 answers; signals of few levels, so that ties occur, one of them against the labels."""
    rng = np.random.default_rng(seed)
    correct = rng.random(160) < 0.5
    noise = rng.integers(0, levels, (2, 160)).astype(float)
    signals = noise + np.stack([correct, ~correct])
    signals[0, rng.random(160) < 0.1] = np.nan
    cell = np.repeat(["a", "b"], 80)
    table = AnswerTable("t", ("x", "y"), signals, correct, cell, np.arange(160).astype(str), None, "", None, 1.0, {})
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


def test_a_signal_of_the_judged_cell_alone_is_not_used() -> None:
    """Nor one that the judged cell lacks: it would take weight from those that it has."""
    table, parts = answer_table(1, 2)
    lacking = table._replace(signals=np.where([[False], [True]] & parts[0].judged, np.nan, table.signals))
    scores = judged_answers(lacking, parts)
    assert scores.calls[:80].tolist() == [1.0] * 80
    assert scores.calls[80:].tolist() == [1.0] * 80


def test_the_best_single_signal_has_its_own_name() -> None:
    """Where another that is nowhere there stands before it; without right or wrong answers there is none."""
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
    assert part == ("y", metrics.auroc(table.correct[~is_a], table.signals[1][~is_a]))
    assert area != part[1]


@given(st.integers(0, 50), st.integers(1, 4))
def test_the_reach_of_intervals_over_parts(seed: int, levels: int) -> None:
    """A row over several parts has ends that much further from its difference; a cell of one part has its own."""
    table, parts = answer_table(seed, levels)
    before, after = answer_rows(table, parts, level=0.9), answer_rows(table, parts, level=0.9, reach=2.0)
    for row, wide in zip(before, after, strict=True):
        assert wide.difference == row.difference
        factor = 2.0 if row.cell == "all" else 1.0
        assert np.isclose(wide.high - wide.low, factor * (row.high - row.low))


@pytest.mark.slow
def test_signals_that_know_nothing() -> None:
    """Of 150 tables whose signals are noise, judged in five folds, one in twenty at most is not level."""
    verdicts = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        fold, numbers = np.arange(300) % 5, np.arange(300).astype(str)
        parts = [JudgedPart(fold == of, fold != of, "the other folds") for of in range(5)]
        one = np.full(300, "one")
        signals, right, score = rng.normal(size=(4, 300)), rng.random(300) < 0.5, rng.normal(size=300)
        table = AnswerTable("t", ("x", "y", "z", "w"), signals, right, one, numbers, score, "b", None, 1.0, {})
        verdicts += [row.verdict for row in answer_rows(table, parts, level=0.95, reach=REACH)]
    assert len(verdicts) == 150
    assert sum(verdict != "level" for verdict in verdicts) <= 7
