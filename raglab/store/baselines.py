"""Baselines (shore): what a policy did on labelled cases, a JSON file, a case a line (S6.12).

    {"format": "raglab-baseline-1", "policy_id": …, "arm": …, "basis": …, "schema_version": …,
     "costs": …, "retrieval": …, "corpus_hash": …, "status_only": …, "missing_answers": …,
     "cases_hash": …, "measures": …, "cases": [{"id": …, "question": …, "label": …, "judged_by": …,
     "outcome": …, "cost": …}, one a line]}

The cases are sorted by id: their order says nothing. What follows from the cases (hash,
costs, measures) is computed again on reading and must agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from raglab import metrics
from raglab.decision.answer_text import ANSWER_BASES, MIXED, SOURCES
from raglab.metrics.costs import LABEL_OF_CELL, LABELS, OUTCOME_OF_CELL, OUTCOMES
from raglab.store.files import (
    MAX_FILE_BYTES,
    JsonLine,
    Where,
    input_error,
    read_json,
    shown_value,
    write_text,
)
from raglab.store.records import Faults, Fields, FilledText, Name, Text, read_record
from raglab.values import SCHEMA_VERSION, FloatArray, IntArray
from raglab.words.canonical import canonical_json, digest
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

BASELINE_FORMAT = "raglab-baseline-1"
COST_MEASURE = "expected_cost"
BASELINE_REMEDY = "save the baseline again (raglab check --save-baseline)"
UNDECIDED_OUTCOME = "answered_undecided"
# outcome of each cell, as files name it
OUTCOME_NAMES = (
    *(OUTCOMES[outcome] for outcome in OUTCOME_OF_CELL[: metrics.PLAIN_CELLS]),
    *[UNDECIDED_OUTCOME] * len(metrics.UNDECIDED_CELLS),
)
# Cell of a label and an outcome; a pair that no decision gives, such as a right answer to what is
# to refuse, has none.
CELL_OF_OUTCOME: Mapping[tuple[str, str], int] = {
    (LABELS[LABEL_OF_CELL[cell]], OUTCOMES[OUTCOME_OF_CELL[cell]]): cell
    for cell in range(metrics.PLAIN_CELLS)
    if metrics.DISTINCT_CELL[cell] == cell
} | {
    # no later answer is known to be the same
    (LABELS[0], UNDECIDED_OUTCOME): metrics.UNDECIDED_CELLS[1]
}


Count = Annotated[int, Field(ge=0)]
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class _CaseFields(Fields):
    """A case of a file."""

    id: Name
    question: Fingerprint
    label: Text
    judged_by: Fingerprint
    outcome: Text
    cost: float


class _FileFields(Fields):
    """A file, by its keys."""

    format: Literal["raglab-baseline-1"]
    policy_id: FilledText
    arm: FilledText
    basis: FilledText
    schema_version: Annotated[int, Field(ge=0, le=SCHEMA_VERSION)]
    costs: dict[str, dict[str, float]]
    retrieval: dict[str, Any]
    corpus_hash: Text | None = None
    status_only: Count
    missing_answers: Count
    cases_hash: FilledText
    measures: dict[str, Any]
    cases: list[_CaseFields]


class BaselineCase(NamedTuple):
    """What a policy did on one case.

    id: of the case. question: see `question_fingerprint`. label: its expected status. judged_by:
    see `label_fingerprint`. outcome: one of `metrics.OUTCOMES` or
    `answered_undecided`.
    """

    id: str
    question: str
    label: str
    judged_by: str
    outcome: str

    @property
    def cell(self) -> int:
        """Decision, label and whether the case is right, as in `metrics.rate_counts`."""
        return CELL_OF_OUTCOME[self.label, self.outcome]


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(Result):
    """Outcome of each labelled case under one policy, with what a later comparison needs.

    policy_id: of the policy. arm: retrieval strategy. basis: kind of basis on which the cases are
    judged (rule S6.3): `sources`, `text` or `mixed`. schema_version: of the raglab that measured.
    costs: matrix, [3, 5]. retrieval: settings that the trace states. corpus_hash: of the documents,
    None where the trace states none. status_only: cases scored by status alone. missing_answers:
    answers that are not recorded and count as not correct. cases: in the order of their ids.
    first_forms: id -> fingerprint of the question as raglab 0.1.0 wrote it; of a file none.
    """

    policy_id: str
    arm: str
    basis: str
    schema_version: int
    costs: FloatArray
    retrieval: Mapping[str, Any]
    corpus_hash: str | None
    status_only: int
    missing_answers: int
    cases: tuple[BaselineCase, ...]
    first_forms: Mapping[str, str]

    def _summary(self) -> Summary:
        return Summary(
            [
                ("policy", self.policy_id),
                ("cases", f"{len(self.cases):,}"),
                (COST_MEASURE, f"{self.expected_cost:.3f}"),
            ],
            {"cases": self.frame()},
        )

    @property
    def cells(self) -> IntArray:
        """Cell of each case, [Q]."""
        return np.array([case.cell for case in self.cases], dtype=np.int64)

    @property
    def case_costs(self) -> FloatArray:
        """Cost of each case, [Q]."""
        return metrics.cell_costs(self.costs)[self.cells]

    @property
    def expected_cost(self) -> float:
        """Mean cost of a case."""
        return float(
            metrics.expected_cost(np.bincount(self.cells, minlength=metrics.N_CELLS), self.costs)
        )

    @property
    def cases_hash(self) -> str:
        """First 16 hex digits of the SHA-256 of ids, questions and labels."""
        return digest(canonical_json([case[:4] for case in self.cases]), 16)

    @property
    def measures(self) -> dict[str, dict[str, Any]]:
        """Expected cost and each rate with its counts; a rate of no case is None."""
        cell_counts = np.bincount(self.cells, minlength=metrics.N_CELLS)
        rate_numerators = metrics.rate_counts(cell_counts)
        label_counts = metrics.label_counts(cell_counts)
        rate_denominators = metrics.denominators(rate_numerators, label_counts)
        counted_rates = zip(
            metrics.RATES, rate_numerators.tolist(), rate_denominators.tolist(), strict=True
        )
        rates = {
            rate_name: {
                "rate": numerator / denominator if denominator else None,
                "k": numerator,
                "n": denominator,
            }
            for rate_name, numerator, denominator in counted_rates
        }
        return {COST_MEASURE: {"cost": self.expected_cost, "n": len(self.cases)}, **rates}

    def frame(self) -> pd.DataFrame:
        """A row a case: `case_id`, `question`, `label`, `judged_by`, `outcome`, `cost`."""
        import pandas as pd

        names = ["case_id", *BaselineCase._fields[1:]]
        return pd.DataFrame(self.cases, columns=names).assign(cost=self.case_costs)

    def text(self) -> str:
        """The file's content: the head, then one case a line."""
        fact_names = [
            fact_name
            for fact_name in _FileFields.model_fields
            if fact_name not in {"format", "cases"}
        ]
        file_head = {
            "format": BASELINE_FORMAT,
            **{fact_name: getattr(self, fact_name) for fact_name in fact_names},
        }
        # every cost by label and outcome: defaults may change, a baseline does not
        cost_rows = (dict(zip(OUTCOMES, cost_row, strict=True)) for cost_row in self.costs.tolist())
        file_head["costs"] = dict(zip(LABELS, cost_rows, strict=True))
        file_head["retrieval"] = json.loads(canonical_json(dict(self.retrieval)))  # keys sorted
        case_lines = (
            json.dumps(case._asdict() | {"cost": case_cost}, ensure_ascii=False)
            for case, case_cost in zip(self.cases, self.case_costs.tolist(), strict=True)
        )
        head_text = json.dumps(file_head, ensure_ascii=False, indent=2).removesuffix("\n}")
        return f"{head_text},\n" + '  "cases": [\n    ' + ",\n    ".join(case_lines) + "\n  ]\n}\n"

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all; the same baseline gives the same bytes.

        Raises:
          InputError: there is a file already, or the folder cannot be written.
        """
        check_free(Path(path))
        write_text(self.text(), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a baseline.

        Raises:
          InputError: the file is no baseline, of another format, or its parts do not agree.
        """
        location = Where(str(path))
        faults = Faults("values")
        record = read_json(Path(path), MAX_FILE_BYTES)
        file_fields = faults.checked(read_record(JsonLine(location, record), _FileFields, faults))
        cases = [BaselineCase(**case.model_dump(exclude={"cost"})) for case in file_fields.cases]
        known_bases = (SOURCES, MIXED, *ANSWER_BASES)
        least_cases = max(file_fields.status_only, file_fields.missing_answers)
        judged_outcomes = [(case.label, case.outcome) for case in cases]
        impossible_outcomes = [
            " and ".join(judged_outcome)
            for judged_outcome in judged_outcomes
            if judged_outcome not in CELL_OF_OUTCOME
        ]
        for is_broken, broken_rule, shown_fact in (
            (
                file_fields.basis not in known_bases,
                f"basis must be one of {', '.join(known_bases)}",
                file_fields.basis,
            ),
            (impossible_outcomes, "label and outcome must go together", impossible_outcomes[:1]),
            (
                least_cases > len(cases),
                "status_only and missing_answers must count cases",
                least_cases,
            ),
        ):
            if is_broken:
                raise input_error(
                    location, broken_rule, BASELINE_REMEDY, shown_value(str(shown_fact))
                )
        try:
            costs = metrics.cost_matrix(file_fields.costs)
        except ValueError as error:
            raise input_error(
                location, "costs must be valid", BASELINE_REMEDY, str(error)
            ) from error
        derived_facts = ("costs", "cases_hash", "measures", "cases")
        stated_facts = file_fields.model_dump(exclude={"format", *derived_facts})
        baseline = cls(
            costs=costs, cases=baseline_rows(cases, location), first_forms={}, **stated_facts
        )
        # Where one part of a file was changed without the others, one does not follow.
        expected_record = json.loads(baseline.text())
        expected_record["measures"] = {
            fact_name: expected_record["measures"].get(fact_name)
            for fact_name in file_fields.measures
        }
        record["cases"].sort(key=itemgetter("id"))
        for fact_name in derived_facts:
            if expected_record[fact_name] != record[fact_name]:
                raise input_error(
                    location,
                    f"{fact_name} must agree with the other parts of the file",
                    BASELINE_REMEDY,
                    "another",
                )
        return baseline


def baseline_rows(cases: Sequence[BaselineCase], location: Where) -> tuple[BaselineCase, ...]:
    """Cases in the order of their ids.

    Raises:
      InputError: no case, or an id twice.
    """
    ordered_cases = tuple(sorted(cases))
    if not ordered_cases:
        raise input_error(
            location, "a baseline must have at least one case", "give labelled cases", "none"
        )
    for case, next_case in pairwise(ordered_cases):
        if case.id == next_case.id:
            raise input_error(
                location,
                "a case's id must be unique",
                "rename or remove one",
                f"{shown_value(case.id)} twice",
            )
    return ordered_cases


def check_free(path: Path) -> None:
    """Refuse to write over a file.

    Raises:
      InputError: there is one.
    """
    if path.exists():
        raise input_error(
            path,
            "a baseline must be written to a new file",
            "choose another path",
            "one that is there",
        )
