"""Stored baselines: one file that diffs by case, read strictly, never written over another."""

from __future__ import annotations

import difflib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.store.baselines import BASELINE_FORMAT, Baseline
from raglab.store.files import InputError
from study_worlds import PAIRS, baseline_case, baseline_of_cases

SMALL = baseline_of_cases(
    [
        baseline_case(1),
        baseline_case(2, "ok", "refused"),
        baseline_case(3, "refuse", "answered_wrong"),
        baseline_case(4, "refuse", "refused"),
        baseline_case(5, "ambiguous", "asked_right"),
    ],
    {"refuse": {"answered_wrong": 10}},
)


def test_a_worked_example():
    """One false refusal at 1 and one wrong answer at 10 in five cases: 2.2.

    Rates with their counts.
    """
    assert SMALL.expected_cost == pytest.approx(2.2)
    assert SMALL.case_costs.tolist() == [0.0, 1.0, 10.0, 0.0, 0.0]
    assert SMALL.measures["false_refusal_rate"] == {"rate": 0.5, "k": 1, "n": 2}
    assert SMALL.measures["hallucination_rate"] == {"rate": 0.5, "k": 1, "n": 2}
    assert baseline_of_cases([baseline_case(1)]).measures["missed_ambiguity_rate"] == {
        "rate": None,
        "k": 0,
        "n": 0,
    }
    frame = SMALL.frame()
    assert frame["cost"].tolist() == SMALL.case_costs.tolist()
    assert frame["case_id"].tolist() == [row.id for row in SMALL.cases]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_file_gives_back_what_was_saved(tmp_path_factory, pairs, order):
    """To the byte, whatever the order of the cases."""
    cases = [baseline_case(number, *pair) for number, pair in enumerate(pairs)]
    made = baseline_of_cases(cases, {"ok": {"refused": 0.3}})
    path = tmp_path_factory.mktemp("b") / "b.json"
    made.save(path)
    loaded = Baseline.load(path)
    assert loaded.text() == made.text() == path.read_text(encoding="utf-8")
    assert (loaded.cells == made.cells).all()
    order.shuffle(cases)
    assert baseline_of_cases(cases, {"ok": {"refused": 0.3}}).text() == made.text()


def test_a_file_diffs_by_case():
    """A case that is decided otherwise changes its line and the measures, no more."""
    cases = [baseline_case(number) for number in range(50)]
    before = baseline_of_cases(cases).text().splitlines()
    after = baseline_of_cases([*cases[:-1], baseline_case(49, "ok", "refused")]).text().splitlines()
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert sum('"id"' in line for line in changed) == 2
    assert len(changed) < 20
    assert len(before) == len(after)


def test_no_file_is_written_over(tmp_path):
    """Neither a baseline nor any other file; the remedy is stated and the file is as it was."""
    path = tmp_path / "b.json"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"must be written to a new file.*choose another path"):
        SMALL.save(path)
    assert path.read_text(encoding="utf-8") == "mine"


def _set(*path):
    """Change that sets the last item at the place that the others name."""
    *places, last, value = path

    def change(record):
        at = record
        for place in places:
            at = at[place]
        at[last] = value

    return change


CHANGES = [
    (
        _set("format", "raglab-baseline-9"),
        f"format must be '{BASELINE_FORMAT}', got 'raglab-baseline-9'",
    ),
    (lambda record: record.pop("policy_id"), "policy_id is required"),
    (_set("status_only", 6), "must count cases"),
    (_set("costs", "ok", "refused", -1), "costs must be valid"),
    (_set("costs", "ok", "asked", 1), "costs must agree with"),
    (_set("costs", "refuse", "answered_wrong", 5), "measures must agree with"),
    (_set("cases", 0, "cost", 0.5), "cases must agree with"),
    (_set("cases", 0, "cost", True), "cases.0.cost must be"),
    (_set("cases", 1, "outcome", "answered_wrong"), "measures must agree with"),
    (_set("cases", 0, "question", "xyz"), "question must match"),
    (_set("cases", 0, "question", "0" * 16), "cases_hash must agree with"),
    (_set("cases", 0, "id", "q00002"), "a case's id must be unique"),
    (_set("cases", []), "at least one case"),
    (_set("measures", "expected_cost", "cost", 0.1), "measures must agree with"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_changed_file_is_refused(tmp_path, change, message):
    """What follows from the cases is computed again.

    The message names file, rule and remedy in one line.
    """
    record = json.loads(SMALL.text())
    change(record)
    path = tmp_path / "b.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(InputError, match=message) as refused:
        Baseline.load(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": NaN}', "format: raglab-baseline-1", "7"]
)
def test_what_is_no_baseline_is_refused(tmp_path, text):
    """Empty files, other JSON and other formats."""
    path = tmp_path / "b.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        Baseline.load(path)


def test_a_measure_that_is_not_stated_is_no_error(tmp_path):
    """A rate that raglab got after the file was written."""
    record = json.loads(SMALL.text())
    del record["measures"]["coverage"]
    path = tmp_path / "b.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert Baseline.load(path).text() == SMALL.text()
    assert np.isclose(Baseline.load(path).expected_cost, 2.2)
