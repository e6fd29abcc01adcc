"""Draws, judging and the log of `experiments/holdout.py`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raglab
from labelled import labelled
from raglab.lab.search_space import always_answer
from raglab.replay import tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status

FOLDER = Path(raglab.__file__).parents[1] / "experiments"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The scripts as modules; the threads that they set are theirs alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")
        # at the end: tests have an arms.py too
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        modules = {
            name: importlib.import_module(name)
            for name in ("holdout", "platforms", "sets", "tuners")
        }
    yield SimpleNamespace(**modules)
    for name in modules:
        del sys.modules[name]


@cache
def trace() -> Trace:
    """Two hundred labelled cases whose signals differ for right and wrong, a tenth without hits."""
    return labelled(3, {"": 200}, missing=0.1)


@cache
def policy() -> Policy:
    """The default policy, which refines no further than the trace."""
    return Policy.load().replace("refine.max_depth", 0)


@given(
    counts=st.lists(st.integers(0, 30), min_size=3, max_size=3).filter(
        lambda counts: sum(counts) > 20
    ),
    size=st.sampled_from([0, 1, 7, 20]),
    number=st.integers(0, 3),
)
def test_a_draw_takes_of_each_label_its_share(
    scripts: Any, counts: list[int], size: int, number: int
) -> None:
    """Drawn and judged cases are all cases once, each label within one case of its share.

    They are alike for one number.
    """
    label = np.repeat(np.arange(3, dtype=np.int8), counts)
    draw = scripts.tuners.Draw(size, number)
    drawn, judged = scripts.tuners.draw_rows(label, draw)
    assert sorted([*drawn, *judged]) == list(range(len(label)))
    if size:
        assert len(drawn) == size
    share = len(drawn) / len(label) if size else 0.5
    assert np.abs(np.bincount(label[drawn], minlength=3) - np.array(counts) * share).max() < 1.0
    assert np.array_equal(drawn, scripts.tuners.draw_rows(label, draw)[0])


def test_a_draw_leaves_cases_to_judge_on(scripts: Any) -> None:
    """As many cases as there are cannot be drawn."""
    with pytest.raises(ValueError, match="must leave cases to judge on, got 3 of 3"):
        scripts.tuners.draw_rows(np.zeros(3, dtype=np.int8), scripts.tuners.Draw(3, 0))


def test_right_if_answered_is_what_always_answer_has_right(scripts: Any) -> None:
    """As many as the replay counts."""
    cells = tally(trace(), [always_answer(policy())]).cells[0][:18].reshape(3, 3, 2)
    cases = scripts.tuners.seen_cases(trace(), policy())
    assert cases.right.sum() == cells[Status.ok, Status.ok, 1]
    assert cases.signals.shape[1] == len(cases.label) == len(trace())


def test_the_selection_alone_is_that_of_tune(scripts: Any) -> None:
    """Without the search of the chain: the same candidate, costs, nested estimate and judged cells.

    Likewise for a deal that shares its models with a longer one.
    """
    draw, costs = scripts.tuners.Draw(60, 1), scripts.holdout.COSTS
    found = {
        (matrix, deal): outcome
        for matrix, deal, outcome in scripts.tuners.selected(
            trace(), policy(), draw, costs, [(3, 1), (3, 2)]
        )
    }
    assert set(found) == {(matrix, deal) for matrix in costs for deal in ((3, 1), (3, 2))}
    for (matrix, (folds, repeats)), outcome in found.items():
        settings = {"trials": 5, "folds": folds, "repeats": repeats}
        whole = scripts.tuners.tuned(trace(), policy(), draw, costs[matrix], **settings)
        assert (outcome.selected, outcome.expected) == (whole.selected, whole.expected)
        for name, cost in outcome.cross_validated.items():
            assert cost == pytest.approx(whole.cross_validated[name], abs=1e-12)
            assert outcome.savings[name] == pytest.approx(whole.savings[name], abs=1e-12)
        for name in {*outcome.cells} - {scripts.tuners.ALWAYS}:
            assert outcome.cells[name] == whole.cells[name]


def test_a_rule_sees_the_drawn_cases_alone(scripts: Any) -> None:
    """Judged cases with other labels change no selection and no cross-validated cost."""
    draw = scripts.tuners.Draw(0, 1)
    _, judged = scripts.tuners.draw_rows(scripts.tuners.labels_of(trace()), draw)
    drawn = scripts.tuners.tuning_trace(trace(), draw)
    assert not {case.id for case in drawn.cases} & {trace().cases[row].id for row in judged}
    assert {case.split for case in drawn.cases} == {"tune"}


def test_where_no_model_can_be_fitted_the_cheaper_free_policy_stands_for_it(scripts: Any) -> None:
    """Of ten cases a model cannot be fitted.

    `expected cost always` is what the drawn cases say is cheaper.
    """
    draw = scripts.tuners.Draw(10, 0)
    for matrix, _, outcome in scripts.tuners.selected(
        trace(),
        policy(),
        draw,
        {"default": None, "free": {"refuse": {"answered_wrong": 50}}},
        [(2, 1)],
    ):
        free = (
            "always-refuse"
            if matrix == "free"
            else min(scripts.tuners.FREE, key=outcome.cross_validated.get)
        )
        assert outcome.cells[scripts.tuners.ALWAYS] == outcome.cells[free]


def unit_of(scripts: Any, path: Path, matrix: str, deal: str = "2x1") -> Any:
    """A unit of the new rule on a saved trace."""
    place = scripts.holdout.CaseSet("made", str(path), None)
    return scripts.holdout.Unit(place, scripts.tuners.Draw(40, 0), matrix, f"new {deal}", 0)


def test_a_run_that_was_killed_goes_on_where_it_was(scripts: Any, tmp_path: Path) -> None:
    """What the log holds is not measured again, cut lines are skipped, a key's last line holds."""
    trace().save(tmp_path / "made.parquet")
    log = tmp_path / "out" / "results.jsonl"
    units = [
        unit_of(scripts, tmp_path / "made.parquet", matrix) for matrix in ("default", "refuse10")
    ]
    assert scripts.holdout.measure_all(units[:1], log) == []
    with log.open("a") as file:
        file.write('{"key": "cut o')
    assert scripts.holdout.measure_all(units, log) == []
    texts = log.read_text(encoding="utf-8").splitlines()
    assert [json.loads(text)["matrix"] for text in texts] == ["default", "refuse10"]
    lines = scripts.holdout.read_log(log)
    scripts.holdout.append_line(log, {**lines[units[0].key], "seconds": -1.0})
    assert scripts.holdout.read_log(log)[units[0].key]["seconds"] == -1.0


def test_a_draw_that_fails_keeps_no_other_from_being_measured(scripts: Any, tmp_path: Path) -> None:
    """The failure is printed with its place, the other result is in the log."""
    trace().save(tmp_path / "made.parquet")
    good = unit_of(scripts, tmp_path / "made.parquet", "default")
    failed = scripts.holdout.measure_all(
        [good._replace(draw=scripts.tuners.Draw(500, 7)), good], tmp_path / "results.jsonl"
    )
    assert len(failed) == 1
    assert "made, Draw(size=500, number=7)" in failed[0]
    assert "must leave cases to judge on" in failed[0]
    assert list(scripts.holdout.read_log(tmp_path / "results.jsonl")) == [good.key]


def cells_of(**counts: int) -> list[int]:
    """Cells by decision, label and whether the sources were found: `ok_ok_1` is a right answer."""
    cells = np.zeros((3, 3, 2), dtype=int)
    for name, count in counts.items():
        decision, label, found = name.split("_")
        cells[Status[decision], Status[label], int(found)] = count
    return cells.ravel().tolist()


ANSWER = cells_of(ok_ok_1=4, ok_ok_0=2, ok_refuse_0=3, ok_ambiguous_0=1)
REFUSE = cells_of(refuse_ok_0=6, refuse_refuse_0=3, refuse_ambiguous_0=1)
SOME = cells_of(ok_ok_1=4, ok_ok_0=1, refuse_refuse_0=3, refuse_ok_0=1, ambiguous_ambiguous_0=1)


def test_figures_are_those_counted_by_hand(scripts: Any) -> None:
    """Ten cases: contract, status alone, cost under two matrices, and rates."""
    row = scripts.holdout.figures(SOME, None)
    assert (row["pass_rate"], row["status_rate"], row["held_out"]) == (0.7, 0.9, pytest.approx(0.3))
    assert (row["false_refusal_rate"], row["hallucination_rate"], row["over_ask_rate"]) == (
        1 / 6,
        1 / 5,
        0.0,
    )
    assert scripts.holdout.figures(ANSWER, {"refuse": {"answered_wrong": 10}})[
        "held_out"
    ] == pytest.approx(3.3)


def line_of(
    number: int, rule: str, selected: str, cells: dict[str, list[int]], **validated: float
) -> dict[str, Any]:
    """Line of the log under the default costs."""
    about = {
        "number": number,
        "matrix": "default",
        "rule": rule,
        "selected": selected,
        "expected": 0.2,
    }
    return {**about, "cells": cells, "cross_validated": validated}


def test_costs_of_a_table_are_those_counted_by_hand(
    scripts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two draws, one with the old rule.

    Means, the best free policy in hindsight, paired differences.
    """
    free = {"always-answer": ANSWER, "always-refuse": REFUSE, "defaults": ANSWER}
    new = [{**free, "tuned": cells, "expected cost always": SOME} for cells in (SOME, REFUSE)]
    old = {**free, "tuned": ANSWER, "confidence at least": SOME}
    lines = [
        line_of(0, "new 5x2", "expected cost", new[0]),
        line_of(1, "new 5x2", "always-refuse", new[1]),
        line_of(
            0, "old", "always-answer", old, **{"always-answer": 0.6, "confidence at least": 0.5}
        ),
        line_of(1, "new 5x1", "always-answer", {**new[1], "tuned": ANSWER}),
    ]
    rows = scripts.holdout.costs_of(lines, "default", "new 5x2")
    assert list(rows) == [0, 1]
    assert (rows[0]["old"], rows[0][scripts.holdout.LOWEST]) == (
        pytest.approx(0.6),
        pytest.approx(0.3),
    )
    assert scripts.holdout.best_free(rows) == "always-answer"
    assert scripts.holdout.column(rows, "new").value == pytest.approx(0.5)
    behind = scripts.holdout.column(rows, "new", "expected cost always")
    assert (behind.value, behind.error) == (pytest.approx(0.2), pytest.approx(0.2))
    scripts.holdout.print_costs({("made", 30): lines}, "new 5x2")
    shown = capsys.readouterr().out
    assert "| made, 30 | default | 2 (1) | 0.600 | 0.500 (0.200) |" in shown
    assert "| -0.100 (0.200) |" in shown
    assert "| expected cost 1, always-refuse 1 |" in shown
    scripts.holdout.print_chain(
        {("made", 0): [*lines, line_of(0, "chain", "chain", {"tuned": ANSWER})]}, "new 5x2"
    )
    shown = capsys.readouterr().out
    assert (
        "| made | default | 1 | 0.600 | 0.300 | 0.600 | always-answer 0.600 | +0.000 | +0.300 | "
        "chain 1 |" in shown
    )
    scripts.holdout.print_deals({("made", 30): lines}, ["5x1", "5x2"])
    assert "| made, 30 | default | 1 | -0.100 |" in capsys.readouterr().out


def test_a_difference_above_its_standard_error_is_bold(scripts: Any) -> None:
    """Above by more than its error, not by less."""
    assert scripts.holdout.Mean(0.02, 0.01).signed == "**+0.020 (0.010)**"
    assert scripts.holdout.Mean(0.01, 0.02).signed == "+0.010 (0.020)"
    assert scripts.holdout.mean([0.0, 0.3, 0.0]).signed == "+0.100 (0.100)"
    assert scripts.holdout.Mean(-0.02, 0.01).signed == "-0.020 (0.010)"


def test_what_a_platform_said_becomes_a_trace(scripts: Any, tmp_path: Path) -> None:
    """A right intent passes, a wrong one fails, out of scope is a refusal, nothing found no hit."""
    (tmp_path / "preds").mkdir()
    rows = (
        "where is my order,WHERE,WHERE,0.9",
        "hello,NO_NODES_DETECTED,WHERE,0.4",
        "emi,EMI,WHERE,0.5",
        "hm,NO_NODES_DETECTED,NO_NODES_DETECTED,0.0",
    )
    text = "\n".join(("sentence,label,predicted_node,predicted_node_score", *rows))
    (tmp_path / "preds" / "luis_sofmattress.csv").write_text(text, encoding="utf-8")
    made = scripts.sets.hint3_trace(tmp_path, "luis")
    assert [case.expect_status for case in made.cases] == ["ok", "refuse", "ok", "refuse"]
    frame = raglab.decide(made, always_answer(policy())).frame()
    assert frame["status"].tolist() == ["ok", "ok", "ok", "refuse"]
    assert frame["correct"].tolist() == [True, False, False, True]
    assert scripts.tuners.seen_cases(made, policy()).signals[0, :3].tolist() == pytest.approx(
        [90.0, 40.0, 50.0]
    )
    with pytest.raises(ValueError, match="platform must be one of bert"):
        scripts.sets.hint3_trace(tmp_path, "watson")
    # The same rows without a distance: one right and two wrong of three found; a half dismisses one
    # of the wrong.
    bare = scripts.platforms.platform_trace(tmp_path, "luis")
    assert bare.meta["gates_off"] == ["l2", "density", "gap", "similarity", "confidence"]
    assert [case.split for case in bare.cases] == ["tune", "tune", "certify", "certify"]
    assert scripts.platforms.rates_row(bare) == "2/3 | 0/2 | 3/4 | 2/4 | 1/2 | 0/2 | 2/4 | 3/4"
    assert scripts.platforms.reliability_row(bare).startswith("3 | 1.000 [")
