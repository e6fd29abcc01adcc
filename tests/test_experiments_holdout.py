"""Halves, judging and the log of `experiments/holdout.py`."""

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
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

import raglab
from labelled import labelled
from raglab import metrics
from raglab.lab.search_space import always_answer
from raglab.replay import steps, tally
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Status

FOLDER = Path(raglab.__file__).parents[1] / "experiments"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
WRONG = {label: {"answered_wrong": 10.0} for label in ("ok", "refuse", "ambiguous")}


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The scripts as modules; the threads that they ask for are theirs alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")
        patch.setattr(sys, "path", [*sys.path, str(FOLDER)])  # at the end: tests have an arms.py too
        modules = {name: importlib.import_module(name) for name in ("holdout", "platforms", "sets", "tuners")}
    yield SimpleNamespace(**modules)
    for name in modules:
        del sys.modules[name]


@cache
def trace() -> Trace:
    """Two hundred labelled cases with signals that tell something, a tenth of them without hits."""
    return labelled(3, {"": 200}, missing=0.1)


@cache
def policy() -> Policy:
    """The published policy, which refines no further than the trace."""
    return Policy.load().replace("refine.max_depth", 0)


def test_halves_share_no_case_and_hold_each_label_alike(scripts: Any) -> None:
    """Two halves are all cases once, every label in equal parts, the same again for the same number."""
    label = np.array([0] * 31 + [1] * 12 + [2] * 5, dtype=np.int8)
    for number in range(5):
        one, other = scripts.tuners.half_rows(label, number)
        assert sorted([*one, *other]) == list(range(len(label)))
        assert np.abs(np.bincount(label[one]) - np.bincount(label[other])).max() <= 1
        assert np.array_equal(one, scripts.tuners.half_rows(label, number)[0])


def test_a_rule_is_judged_as_the_policy_that_says_the_same(scripts: Any) -> None:
    """Answering whatever has hits gives the cells that the replay counts for always-answer."""
    cases = scripts.tuners.seen_cases(trace(), policy())
    cells = scripts.tuners.count_cells(cases, np.full(len(trace()), Status.ok))
    assert cells.tolist() == tally(trace(), [always_answer(policy())]).cells[0].tolist()


@pytest.mark.parametrize("costs", [None, WRONG])
def test_the_threshold_on_the_confidence_is_the_best_that_its_gate_has(scripts: Any, costs: Any) -> None:
    """No step of the gate's threshold costs less, and the gate with the threshold found decides the same."""
    cases = scripts.tuners.seen_cases(trace(), policy())
    best = scripts.tuners.threshold_on(cases, "confidence", costs, upper=False, on_fire=Status.refuse)
    gate = always_answer(policy()).replace("confidence.enabled", True)
    every = steps(trace(), gate, "confidence.tau_default", costs=costs)["expected_cost"]
    assert best.cost == pytest.approx(every.min())
    same = gate.replace("confidence.tau_default", float(np.clip(best.at, 0.0, 100.0)))
    assert scripts.tuners.count_cells(cases, best.decide(cases)).tolist() == tally(trace(), [same]).cells[0].tolist()


def test_a_threshold_from_above_is_one_from_below_on_the_negative(scripts: Any) -> None:
    """Firing above a bound costs what firing below its negative costs on negated values."""
    cases = scripts.tuners.seen_cases(trace(), policy())
    turned = cases._replace(signals=-cases.signals)
    above = scripts.tuners.threshold_on(cases, "gap", None, upper=True, on_fire=Status.refuse)
    below = scripts.tuners.threshold_on(turned, "gap", None, upper=False, on_fire=Status.refuse)
    assert (above.cost, above.at) == (below.cost, -below.at)
    assert np.array_equal(above.decide(cases), below.decide(turned))


@pytest.mark.parametrize(
    "names", [("free", "threshold", "signal"), pytest.param(("sklearn", "logistic"), marks=pytest.mark.slow)]
)
def test_tuners_fit_on_the_training_half_alone(scripts: Any, names: tuple[str, ...]) -> None:
    """Judged cases with other labels change no threshold and no in-sample cell."""
    half = scripts.tuners.draw_half(trace(), policy(), 1, 10)
    cases = tuple(
        case._replace(expect_status="refuse", expect_sources=()) if case.split == "report" else case
        for case in half.whole.cases
    )
    other = scripts.tuners.Half(1, type(half.whole)(cases, *list(vars_of(half.whole))[1:]), policy(), 10)
    for name in names:
        one, two = (scripts.tuners.TASKS[name].run(each, None) for each in (half, other))
        for tuner, result in one.items():
            assert result.chosen == two[tuner].chosen
            assert result.in_sample.tolist() == two[tuner].in_sample.tolist()
            assert result.in_sample.sum() + result.held_out.sum() == len(trace())


def vars_of(there: Trace) -> Iterator[Any]:
    """Fields of a trace in their order."""
    return (getattr(there, name) for name in there.__dataclass_fields__)


@pytest.mark.slow
def test_scikit_learn_tunes_the_expected_cost(scripts: Any) -> None:
    """Its threshold on the confidence costs the training half little more than the exact best, under either matrix."""
    half = scripts.tuners.draw_half(trace(), policy(), 0, 10)
    for costs in (None, WRONG):
        (tuned,) = scripts.tuners.tuned_threshold(half, costs).values()
        best = scripts.tuners.threshold_on(half.seen[0], "confidence", costs, upper=False, on_fire=Status.refuse)
        found = metrics.expected_cost(tuned.in_sample, costs)
        assert best.cost - 1e-12 <= found <= best.cost + 0.05 * (10 if costs else 1)


def test_a_study_gets_both_halves_as_splits_and_a_fit_the_training_half(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tune` is judged by its own policy, the chain by its line of costs, the decision by cost on the other half."""
    half = scripts.tuners.draw_half(trace(), policy(), 4, 10)
    seen: dict[str, Any] = {}
    rows = {"candidate": ["always-answer", "chain", "chain without resolver"], "in_sample": [0.5, 0.2, 0.2],
            "cross_validated": [0.5, 0.4, 0.3], "report": [0.5, 0.4, 0.35], "coverage": [1.0, 0.6, 0.7]}  # fmt: skip

    def tune(given: Trace, **settings: Any) -> Any:
        seen.update(settings, trace=given)
        free = always_answer(settings["policy"])
        return SimpleNamespace(
            costs=pd.DataFrame(rows), selected="always-answer", policy=free, policies={}, expected=0.25
        )

    def fit_decision(given: Trace, start: Policy, **settings: Any) -> Policy:
        seen.update(settings, fitted_on=given)
        return start

    monkeypatch.setattr(raglab, "tune", tune, raising=False)
    monkeypatch.setattr(raglab, "fit_decision", fit_decision, raising=False)
    found = scripts.tuners.study(half, WRONG)
    assert (seen["seed"], seen["trials"], seen["goal"].matrix[0, 1]) == (4, 10, 10.0)
    assert {case.split for case in seen["trace"].cases} == {"tune", "report"}
    assert found["tune"].figures == {"cross_validated": 0.25}
    assert found["tune"].held_out.tolist() == tally(half.test, [always_answer(policy())]).cells[0].tolist()
    assert found["chain"].chosen == "chain without resolver"
    assert found["chain"].figures["held_out"] == 0.35
    scripts.tuners.expected_cost(half, None)
    assert [case.id for case in seen["fitted_on"].cases] == [case.id for case in half.train.cases]


def unit_of(scripts: Any, path: Path, task: str) -> Any:
    """A unit on the first half of a saved trace."""
    return scripts.holdout.Unit(scripts.holdout.Given("made", str(path), None), 0, task, "default", 10)


def test_a_run_that_was_killed_goes_on_where_it_was(scripts: Any, tmp_path: Path) -> None:
    """What the log holds is not measured again, a line cut off is skipped, and the last line of a key holds."""
    trace().save(tmp_path / "made.parquet")
    log = tmp_path / "out" / "results.jsonl"
    units = [unit_of(scripts, tmp_path / "made.parquet", task) for task in ("free", "threshold")]
    assert scripts.holdout.measure_all(units[:1], log, 1) == []
    with log.open("a") as file:
        file.write('{"key": "cut o')
    lines = scripts.holdout.read_log(log)
    missing = [unit for unit in units if scripts.holdout.unit_key(unit) not in lines]
    assert missing == units[1:]
    assert scripts.holdout.measure_all(missing, log, 1) == []
    lines = scripts.holdout.read_log(log)
    assert sorted(line["task"] for line in lines.values()) == ["free", "threshold"]
    scripts.holdout.append_line(log, {**lines[scripts.holdout.unit_key(units[0])], "seconds": -1.0})
    assert scripts.holdout.read_log(log)[scripts.holdout.unit_key(units[0])]["seconds"] == -1.0


def test_one_tuner_that_fails_keeps_no_other_from_being_measured(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is told with its place, the other result is in the log."""

    def fail(*_: Any) -> Any:
        msg = "no such thing"
        raise ValueError(msg)

    trace().save(tmp_path / "made.parquet")
    monkeypatch.setitem(scripts.holdout.TASKS, "threshold", scripts.tuners.Task(("one",), fail))
    units = [unit_of(scripts, tmp_path / "made.parquet", task) for task in ("threshold", "free")]
    failed = scripts.holdout.measure_all(units, tmp_path / "results.jsonl", 1)
    assert len(failed) == 1
    assert "made, half 0, threshold, default" in failed[0]
    assert "no such thing" in failed[0]
    assert [line["task"] for line in scripts.holdout.read_log(tmp_path / "results.jsonl").values()] == ["free"]


def test_halves_are_the_same_in_one_process_and_in_two(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four halves with two tuners each: every line holds the same bytes but for the seconds that it took."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    get_reusable_executor().shutdown(wait=True)  # processes of another test do not know where the scripts are
    trace().save(tmp_path / "made.parquet")
    given = scripts.holdout.Given("made", str(tmp_path / "made.parquet"), None)
    units = [
        scripts.holdout.Unit(given, half, task, "default", 10) for half in range(4) for task in ("free", "threshold")
    ]
    told = []
    for jobs in (1, 2):
        log = tmp_path / f"{jobs}.jsonl"
        assert scripts.holdout.measure_all(units, log, jobs) == []
        lines = sorted(scripts.holdout.read_log(log).items())
        told.append(json.dumps([{**line, "seconds": 0} for _, line in lines]))
    assert told[0] == told[1]
    assert len(lines) == len(units)
    get_reusable_executor().shutdown(wait=True)


def line_of(half: int, task: str, cells: dict[str, Any], **figures: float) -> dict[str, Any]:
    """Line of the log, its cells by tuner."""
    results = {
        name: {"chosen": name, "in_sample": found, "held_out": found, "figures": figures}
        for name, found in cells.items()
    }
    return {"half": half, "task": task, "matrix": "default", "results": results}


def cells_of(**counts: int) -> list[int]:
    """Cells by decision, label and whether the sources were found: `ok_ok_1` is a right answer."""
    cells = np.zeros((3, 3, 2), dtype=int)
    for name, count in counts.items():
        decision, label, found = name.split("_")
        cells[Status[decision], Status[label], int(found)] = count
    return cells.ravel().tolist()


def test_figures_of_a_table_are_those_counted_by_hand(scripts: Any) -> None:
    """Ten cases: the contract, the status alone, cost, rates, and the distance to the best of the half."""
    answer = cells_of(ok_ok_1=4, ok_ok_0=2, ok_refuse_0=3, ok_ambiguous_0=1)
    tuned = cells_of(ok_ok_1=4, ok_ok_0=1, refuse_refuse_0=3, refuse_ok_0=1, ambiguous_ambiguous_0=1)
    none = cells_of(refuse_ok_0=6, refuse_refuse_0=3, refuse_ambiguous_0=1)
    free = {"always-answer": answer, "always-refuse": none, "published": none}
    chain = {"chosen": "chain", "in_sample": None, "held_out": None, "figures": {"in_sample": 0.3, "held_out": 0.5}}
    lines = []
    for half in range(2):
        study = line_of(half, "study", {"tune": tuned}, cross_validated=0.25)
        study["results"]["chain"] = chain
        lines += [line_of(half, "free", free), study]
    found = scripts.holdout.table_of(lines, "default")
    row = found["tune"][0]
    assert (row["pass_rate"], row["status_rate"], row["held_out"]) == (0.7, 0.9, pytest.approx(0.3))
    assert (row["false_refusal_rate"], row["hallucination_rate"], row["over_ask_rate"]) == (1 / 6, 1 / 5, 0.0)
    assert (row["optimism"], row["error"], row["regret"]) == (0.0, pytest.approx(0.05), 0.0)
    assert found["always-answer"][1]["regret"] == pytest.approx(0.3)
    assert found["chain"][0]["optimism"] == pytest.approx(0.2)
    assert found["chain"][0]["pass_rate"] == 0.5
    assert scripts.holdout.best_free(found) == "always-answer"
    told = "; ".join(scripts.holdout.verdicts("mtrag", found))
    assert "tune − always-answer: pass 0.300 (0.000), asked ≥ −0.01: met" in told
    assert "tune: held-out − cross-validated 0.050 (0.000), asked within ± 0.02: **missed**" in told


def test_what_a_platform_said_becomes_a_trace(scripts: Any, tmp_path: Path) -> None:
    """A right intent passes, a wrong one fails, what is out of scope is to be refused, nothing found is no hit."""
    (tmp_path / "preds").mkdir()
    rows = ("where is my order,WHERE,WHERE,0.9", "hello,NO_NODES_DETECTED,WHERE,0.4", "emi,EMI,WHERE,0.5",
            "hm,NO_NODES_DETECTED,NO_NODES_DETECTED,0.0")  # fmt: skip
    text = "\n".join(("sentence,label,predicted_node,predicted_node_score", *rows))
    (tmp_path / "preds" / "luis_sofmattress.csv").write_text(text, encoding="utf-8")
    made = scripts.sets.hint3_trace(tmp_path, "luis")
    assert [case.expect_status for case in made.cases] == ["ok", "refuse", "ok", "refuse"]
    frame = raglab.decide(made, always_answer(policy())).frame()
    assert frame["status"].tolist() == ["ok", "ok", "ok", "refuse"]
    assert frame["correct"].tolist() == [True, False, False, True]
    assert scripts.tuners.seen_cases(made, policy()).signals[0, :3].tolist() == pytest.approx([90.0, 40.0, 50.0])
    with pytest.raises(ValueError, match="platform must be one of bert"):
        scripts.sets.hint3_trace(tmp_path, "watson")
    # The same rows without a distance: one right and two wrong of three found; a half dismisses one of the wrong.
    bare = scripts.platforms.platform_trace(tmp_path, "luis")
    assert bare.meta["gates_off"] == ["l2", "density", "gap", "similarity", "confidence"]
    assert [case.split for case in bare.cases] == ["tune", "tune", "certify", "certify"]
    assert scripts.platforms.rates_row(bare) == "2/3 | 0/2 | 3/4 | 2/4 | 1/2 | 0/2 | 2/4 | 3/4"
    assert scripts.platforms.reliability_row(bare).startswith("3 | 1.000 [")


def test_numbers_of_a_line_are_plain_json(scripts: Any) -> None:
    """NaN is written as null, since other readers of JSON refuse it."""
    record = scripts.holdout.result_record(
        scripts.tuners.Result("x", np.arange(18), None, {"cross_validated": float("nan")})
    )
    assert json.loads(json.dumps(record, allow_nan=False))["figures"] == {"cross_validated": None}
