"""Rules S2.1 to S2.5 and S3.

1,506 random scenarios decided elsewhere, and our own, decided by hand (rule S3.8).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from conformance import decide_case, select_case

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared" / "conformance" / "resolver_cases.jsonl.gz"
SAMPLE = [
    json.loads(line)
    for line in (HERE / "data" / "resolver_sample.jsonl").read_text(encoding="utf-8").splitlines()
]


def _differs(case, patterns):
    """Field, what came and what was expected, wherever they differ."""
    expected = dict(case["expect"])
    selection = expected.pop("selection", None)
    said = decide_case(case, patterns)
    wrong = [(key, said[key], value) for key, value in expected.items() if said[key] != value]
    if selection is not None:
        selection = dict(selection)
        chosen = select_case(case, patterns, selection.pop("selected_option"))
        wrong += [
            (f"selection.{key}", chosen[key], value)
            for key, value in selection.items()
            if chosen[key] != value
        ]
    return wrong


@pytest.mark.parametrize("case", SAMPLE[1:], ids=lambda case: case["id"])
def test_a_scenario_written_by_hand(case):
    """Each states in `why` which rule decides and how the expectation was derived."""
    assert case["why"].startswith("S")
    assert _differs(case, SAMPLE[0]["patterns"]) == []


def test_the_sample_covers_every_rule():
    """All of S2.1 to S2.5 and S3 are cited, and all outcomes occur."""
    why = " ".join(case["why"] for case in SAMPLE[1:])
    rules = (
        [f"S2.{n}" for n in range(1, 6)]
        + [f"S3.3.{n}" for n in range(1, 6)]
        + ["S3.1", "S3.4", "S3.5", "S3.7", "S0.4", "S2.12"]
    )
    assert [rule for rule in rules if rule not in why] == []
    assert {case["expect"]["status"] for case in SAMPLE[1:]} == {"ok", "refuse", "ambiguous"}
    assert {case["expect"]["stage"] for case in SAMPLE[1:]} == {"ood", "retrieval", "coverage"}


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not beside the repository")
@pytest.mark.parametrize("every", [1, 10])
def test_all_shared_cases_agree(every):
    """Status, stage, chosen hits in order, options, reason and selection."""
    with gzip.open(SHARED, "rt", encoding="utf-8") as file:
        patterns, *cases = [json.loads(line) for line in file]
    wrong = {
        case["id"]: differs
        for case in cases[::every]
        if (differs := _differs(case, patterns["patterns"]))
    }
    assert len(cases) == 1506
    assert wrong == {}
