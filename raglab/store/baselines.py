"""Baselines (shore): what a policy did on labelled cases, a JSON file, a case a line (S6.12).

    {"format": "raglab-baseline-1", "policy_id": …, "arm": …, "basis": …, "schema_version": …,
     "costs": …, "retrieval": …, "corpus_hash": …, "status_only": …, "missing_answers": …,
     "cases_hash": …, "measures": …, "cases": [{"id": …, "question": …, "label": …, "judged_by": …,
     "outcome": …, "cost": …}, one a line]}

The cases are sorted by id, so that their order says nothing. What follows from the cases (hash,
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
from numpy.typing import NDArray
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
from raglab.values import SCHEMA_VERSION
from raglab.words.canonical import canonical_json, digest
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "raglab-baseline-1"
COST = "expected_cost"
REMEDY = "save the baseline again (raglab check --save-baseline)"
UNDECIDED = "answered_undecided"
# outcome of each cell, as files name it
OUTCOME_NAMES = (
    *(OUTCOMES[outcome] for outcome in OUTCOME_OF_CELL[: metrics.PLAIN_CELLS]),
    *[UNDECIDED] * len(metrics.UNDECIDED_CELLS),
)
# Cell of a label and an outcome; a pair that no decision gives, such as a right answer to what is
# to refuse, has none.
CELL_OF: Mapping[tuple[str, str], int] = {
    (LABELS[LABEL_OF_CELL[cell]], OUTCOMES[OUTCOME_OF_CELL[cell]]): cell
    for cell in range(metrics.PLAIN_CELLS)
    if metrics.DISTINCT_CELL[cell] == cell
} | {(LABELS[0], UNDECIDED): metrics.UNDECIDED_CELLS[1]}  # no later answer is known to be the same


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
        return CELL_OF[self.label, self.outcome]


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
    costs: NDArray[np.float64]
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
                (COST, f"{self.expected_cost:.3f}"),
            ],
            {"cases": self.frame()},
        )

    @property
    def cells(self) -> NDArray[np.int64]:
        """Cell of each case, [Q]."""
        return np.array([case.cell for case in self.cases], dtype=np.int64)

    @property
    def case_costs(self) -> NDArray[np.float64]:
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
        counts = np.bincount(self.cells, minlength=metrics.N_CELLS)
        k, n = metrics.rate_counts(counts), metrics.label_counts(counts)
        sizes = metrics.denominators(k, n)
        pairs = zip(metrics.RATES, k.tolist(), sizes.tolist(), strict=True)
        rates = {
            name: {"rate": count / size if size else None, "k": count, "n": size}
            for name, count, size in pairs
        }
        return {COST: {"cost": self.expected_cost, "n": len(self.cases)}, **rates}

    def frame(self) -> pd.DataFrame:
        """A row a case: `case_id`, `question`, `label`, `judged_by`, `outcome`, `cost`."""
        import pandas as pd

        columns = ["case_id", *BaselineCase._fields[1:]]
        return pd.DataFrame(self.cases, columns=columns).assign(cost=self.case_costs)

    def text(self) -> str:
        """The file's content: the head, then one case a line."""
        names = [name for name in _FileFields.model_fields if name not in {"format", "cases"}]
        head = {"format": FORMAT, **{name: getattr(self, name) for name in names}}
        # every cost by label and outcome: defaults may change, a baseline does not
        rows = (dict(zip(OUTCOMES, row, strict=True)) for row in self.costs.tolist())
        head["costs"] = dict(zip(LABELS, rows, strict=True))
        head["retrieval"] = json.loads(canonical_json(dict(self.retrieval)))  # keys sorted
        lines = (
            json.dumps(case._asdict() | {"cost": cost}, ensure_ascii=False)
            for case, cost in zip(self.cases, self.case_costs.tolist(), strict=True)
        )
        opening = json.dumps(head, ensure_ascii=False, indent=2).removesuffix("\n}")
        return f"{opening},\n" + '  "cases": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n"

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
        where, faults = Where(str(path)), Faults("values")
        record = read_json(Path(path), MAX_FILE_BYTES)
        stated = faults.checked(read_record(JsonLine(where, record), _FileFields, faults))
        cases = [BaselineCase(**case.model_dump(exclude={"cost"})) for case in stated.cases]
        known = (SOURCES, MIXED, *ANSWER_BASES)
        least = max(stated.status_only, stated.missing_answers)
        pairs = [(case.label, case.outcome) for case in cases]
        odd = [" and ".join(pair) for pair in pairs if pair not in CELL_OF]
        for broken, rule, value in (
            (stated.basis not in known, f"basis must be one of {', '.join(known)}", stated.basis),
            (odd, "label and outcome must go together", odd[:1]),
            (least > len(cases), "status_only and missing_answers must count cases", least),
        ):
            if broken:
                raise input_error(where, rule, REMEDY, shown_value(str(value)))
        try:
            costs = metrics.cost_matrix(stated.costs)
        except ValueError as error:
            raise input_error(where, "costs must be valid", REMEDY, str(error)) from error
        derived = ("costs", "cases_hash", "measures", "cases")
        stated_facts = stated.model_dump(exclude={"format", *derived})
        baseline = cls(
            costs=costs, cases=baseline_rows(cases, where), first_forms={}, **stated_facts
        )
        # Where one part of a file was changed without the others, one does not follow.
        again = json.loads(baseline.text())
        again["measures"] = {name: again["measures"].get(name) for name in stated.measures}
        record["cases"].sort(key=itemgetter("id"))
        for name in derived:
            if again[name] != record[name]:
                raise input_error(
                    where, f"{name} must agree with the other parts of the file", REMEDY, "another"
                )
        return baseline


def baseline_rows(cases: Sequence[BaselineCase], where: Where) -> tuple[BaselineCase, ...]:
    """Cases in the order of their ids.

    Raises:
      InputError: no case, or an id twice.
    """
    ordered = tuple(sorted(cases))
    if not ordered:
        raise input_error(
            where, "a baseline must have at least one case", "give labelled cases", "none"
        )
    for case, following in pairwise(ordered):
        if case.id == following.id:
            raise input_error(
                where,
                "a case's id must be unique",
                "rename or remove one",
                f"{shown_value(case.id)} twice",
            )
    return ordered


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
