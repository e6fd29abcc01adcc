"""Draws, judging and the log of `experiments/holdout.py`."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import raglab
from labelled import labelled
from raglab.store.policies import Policy

FOLDER = Path(raglab.__file__).parents[1] / "experiments"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@pytest.fixture(scope="module")
def scripts():
    """The scripts as modules; the threads that they set are theirs alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")
        # at the end: tests have an arms.py too
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])
        modules = {name: importlib.import_module(name) for name in ("holdout", "sets", "tuners")}
    yield SimpleNamespace(**modules)
    for name in modules:
        del sys.modules[name]


@cache
def trace():
    """Two hundred labelled cases whose signals differ for right and wrong, a tenth without hits."""
    return labelled(3, {"": 200}, missing=0.1)


@cache
def policy():
    """The default policy, which refines no further than the trace."""
    return Policy.load().replace("refine.max_depth", 0)


def test_the_selection_alone_is_that_of_tune(scripts):
    """Without the search of the chain: the same candidate, costs, nested estimate and judged cells.

    By two of the cost matrices.
    """
    tuners, draw, costs = scripts.tuners, scripts.tuners.Draw(60, 1), scripts.holdout.COSTS
    deals: dict[str, int] = {"folds": 3, "repeats": 2}
    found = dict(tuners.selected(trace(), policy(), draw, costs, **deals))
    assert list(found) == list(costs)
    drawn = tuners.tuning_trace(trace(), draw)
    for matrix, outcome in [*found.items()][:2]:
        goal = raglab.Goal(costs=costs[matrix], targets={})
        study = raglab.tune(drawn, policy=policy(), seed=1, goal=goal, trials=2, **deals)
        assert (outcome.selected, outcome.expected) == (study.selected, study.held_out_estimate)
        for name in outcome.costs.index:
            for column in ("cross_validated", "gain", "std_error"):
                assert outcome.costs.loc[name, column] == pytest.approx(
                    study.costs.loc[name, column], abs=1e-12, nan_ok=True
                )
        cells = tuners.judged_cells(trace(), draw, study.policies)
        for name in {*outcome.cells} - {tuners.ALWAYS, tuners.TUNED}:
            assert outcome.cells[name] == cells[name]
        assert outcome.cells[tuners.TUNED] == cells[study.selected]


def test_a_rule_sees_the_drawn_cases_alone(scripts):
    """Judged cases with other labels change no selection and no cross-validated cost."""
    draw = scripts.tuners.Draw(0, 1)
    _, judged = scripts.tuners.draw_rows(scripts.tuners.labels_of(trace()), draw)
    drawn = scripts.tuners.tuning_trace(trace(), draw)
    assert not {case.id for case in drawn.cases} & {trace().cases[row].id for row in judged}
    assert {case.split for case in drawn.cases} == {"tune"}


def test_a_run_that_was_killed_goes_on_where_it_was(scripts, tmp_path):
    """What the log holds is not measured again; cut lines are skipped; what fails stops nothing."""
    trace().save(tmp_path / "made.parquet")
    log, holdout = tmp_path / "out" / "results.jsonl", scripts.holdout
    place = holdout.CaseSet("made", str(tmp_path / "made.parquet"), None)
    first, again, large = (
        holdout.Unit(place, scripts.tuners.Draw(*draw)) for draw in ((40, 0), (40, 1), (500, 7))
    )
    assert holdout.measure_all([first], log, folds=2, repeats=1) == []
    before = holdout.read_log(log)
    with log.open("a") as file:
        file.write('{"key": "cut o')
    failed = holdout.measure_all([large, first, again], log, folds=2, repeats=1)
    assert [text.partition(":")[0] for text in failed] == ["made, Draw(size=500, number=7)"]
    after = holdout.read_log(log)
    assert list(after) == [first.key, again.key]
    assert after[first.key] == before[first.key]
