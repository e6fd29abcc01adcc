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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import BASES, MIXED, SOURCES
from raglab.metrics.costs import LABEL_OF_CELL, LABELS, OUTCOME_OF_CELL, OUTCOMES
from raglab.store.files import (
    MAX_FILE_BYTES,
    Where,
    input_error,
    read_json,
    shown_value,
    write_text,
)
from raglab.store.record_fields import (
    Record,
    only_keys,
    optional_text,
    required_records,
    required_text,
)
from raglab.store.records import MAX_NAME
from raglab.values import SCHEMA_VERSION
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "raglab-baseline-1"
COST = "expected_cost"
REMEDY = (
    "take the file as it was written, or save the baseline again (raglab check --save-baseline)"
)
HEAD = (
    "format",
    "policy_id",
    "arm",
    "basis",
    "schema_version",
    "costs",
    "retrieval",
    "corpus_hash",
    "status_only",
    "missing_answers",
    "cases_hash",
    "measures",
    "cases",
)
COUNTS = ("schema_version", "status_only", "missing_answers")
_DIGITS = frozenset("0123456789abcdef")
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
class Baseline:
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

    def __repr__(self) -> str:
        return (
            f"Baseline({len(self.cases):,} cases, policy {self.policy_id}, {COST} "
            f"{self.expected_cost:.3f})"
        )

    @property
    def cells(self) -> NDArray[np.int64]:
        """Cell of each case, [Q]."""
        return np.array([case.cell for case in self.cases], dtype=np.int64)

    @property
    def case_costs(self) -> NDArray[np.float64]:
        """Cost of each case, [Q]."""
        costs: NDArray[np.float64] = metrics.cell_costs(self.costs)[self.cells]
        return costs

    @property
    def expected_cost(self) -> float:
        """Mean cost of a case."""
        return float(metrics.expected_cost(_cell_counts(self.cells), self.costs))

    @property
    def cases_hash(self) -> str:
        """First 16 hex digits of the SHA-256 of ids, questions and labels."""
        return digest(canonical_json([case[:4] for case in self.cases]), 16)

    @property
    def measures(self) -> dict[str, dict[str, Any]]:
        """Expected cost and each rate with its counts; a rate of no case is None."""
        counts = _cell_counts(self.cells)
        k, n = metrics.rate_counts(counts), metrics.label_counts(counts)
        sizes = metrics.denominators(k, n)
        rates = {
            name: {
                "rate": int(k[at]) / int(sizes[at]) if sizes[at] else None,
                "k": int(k[at]),
                "n": int(sizes[at]),
            }
            for at, name in enumerate(metrics.RATES)
        }
        return {COST: {"cost": self.expected_cost, "n": len(self.cases)}, **rates}

    def frame(self) -> pd.DataFrame:
        """A row a case: `case_id`, `question`, `label`, `judged_by`, `outcome`, `cost`."""
        import pandas as pd

        columns = ["case_id", *BaselineCase._fields[1:]]
        return pd.DataFrame(self.cases, columns=columns).assign(cost=self.case_costs)

    def text(self) -> str:
        """The file's content: the head, then one case a line."""
        head = {
            "format": FORMAT,
            "policy_id": self.policy_id,
            "arm": self.arm,
            "basis": self.basis,
            "schema_version": self.schema_version,
            "costs": _matrix_record(self.costs),
            "retrieval": json.loads(canonical_json(dict(self.retrieval))),  # keys sorted
            "corpus_hash": self.corpus_hash,
            "status_only": self.status_only,
            "missing_answers": self.missing_answers,
            "cases_hash": self.cases_hash,
            "measures": self.measures,
        }
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
        where = Where(str(path))
        record = read_json(Path(path), MAX_FILE_BYTES)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            value = shown_value(record.get("format") if isinstance(record, dict) else record)
            raise input_error(
                where, f"a baseline must be a JSON object of the format {FORMAT}", REMEDY, value
            )
        only_keys(record, HEAD, where, REMEDY)
        texts = {
            key: required_text(record, key, where)
            for key in ("policy_id", "arm", "basis", "cases_hash")
        }
        if texts["basis"] not in {SOURCES, MIXED, *BASES}:
            raise input_error(
                where,
                f"basis must be one of {', '.join((SOURCES, MIXED, *BASES))}",
                REMEDY,
                shown_value(texts["basis"]),
            )
        baseline = cls(
            policy_id=texts["policy_id"],
            arm=texts["arm"],
            basis=texts["basis"],
            costs=_matrix(record, where),
            retrieval=_object(record, "retrieval", where),
            corpus_hash=optional_text(record, "corpus_hash", where),
            cases=_cases(record, where),
            first_forms={},
            **{key: _count(record, key, where) for key in COUNTS},
        )
        if baseline.schema_version > SCHEMA_VERSION:
            rule = f"schema_version must be at most {SCHEMA_VERSION}"
            raise input_error(where, rule, REMEDY, str(baseline.schema_version))
        _check_agreement(baseline, record, where)
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
    repeated = [case.id for case, following in pairwise(ordered) if case.id == following.id]
    if repeated:
        rule = "a case's id must be unique, since cases are paired by it"
        raise input_error(where, rule, "rename or remove one", f"{shown_value(repeated[0])} twice")
    return ordered


def check_free(path: Path) -> None:
    """Refuse to write over a file.

    Raises:
      InputError: there is one.
    """
    if path.exists():
        rule = "a baseline must be written to a new file"
        raise input_error(
            Where(str(path)),
            rule,
            "choose another path, or remove the file first",
            "one that is there",
        )


def _cell_counts(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.bincount(cells, minlength=metrics.N_CELLS)


def _matrix_record(matrix: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    """Every cost by label and outcome: defaults may change, a baseline does not."""
    return {
        label: dict(zip(OUTCOMES, row, strict=True))
        for label, row in zip(LABELS, matrix.tolist(), strict=True)
    }


def _matrix(record: Record, where: Where) -> NDArray[np.float64]:
    stated = _object(record, "costs", where)
    only_keys(stated, LABELS, where, REMEDY)
    for label in LABELS:
        only_keys(_object(stated, label, where), OUTCOMES, where, REMEDY)
        if missing := [outcome for outcome in OUTCOMES if outcome not in stated[label]]:
            raise input_error(
                where,
                "costs must state every label and outcome",
                REMEDY,
                f"no {label}.{missing[0]}",
            )
    try:
        return metrics.cost_matrix(stated)
    except ValueError as error:
        raise input_error(
            where, "costs must be finite numbers of at least 0", REMEDY, str(error)
        ) from error


def _object(record: Record, key: str, where: Where) -> Mapping[str, Any]:
    if not isinstance(record.get(key), dict):
        raise input_error(where, f"{key} must be an object", REMEDY, shown_value(record.get(key)))
    value: Mapping[str, Any] = record[key]
    return value


def _count(record: Record, key: str, where: Where) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise input_error(
            where, f"{key} must be a whole number of at least 0", REMEDY, shown_value(value)
        )
    return value


def _cases(record: Record, where: Where) -> tuple[BaselineCase, ...]:
    rows = []
    for place, row in enumerate(required_records(record, "cases", where)):
        here = where._replace(id=f"cases[{place}]")
        only_keys(row, (*BaselineCase._fields, "cost"), here, REMEDY)
        case = BaselineCase(*(required_text(row, key, here) for key in BaselineCase._fields))
        if len(case.id) > MAX_NAME:
            raise input_error(
                here, f"id must have at most {MAX_NAME} characters", REMEDY, str(len(case.id))
            )
        for key in ("question", "judged_by"):
            if len(row[key]) != 16 or not _DIGITS.issuperset(row[key]):
                raise input_error(
                    here, f"{key} must be 16 hex digits", REMEDY, shown_value(row[key])
                )
        if (case.label, case.outcome) not in CELL_OF:
            value = f"{shown_value(case.label)} and {shown_value(case.outcome)}"
            raise input_error(
                here, "label and outcome must be a pair that a decision can give", REMEDY, value
            )
        rows.append(case)
    return baseline_rows(rows, where)


def _check_agreement(baseline: Baseline, record: Record, where: Where) -> None:
    """Refuse a file of which one part was changed without the others."""
    costs = {row["id"]: row.get("cost") for row in record["cases"]}
    for case, cost in zip(baseline.cases, baseline.case_costs.tolist(), strict=True):
        if isinstance(costs[case.id], bool) or costs[case.id] != cost:
            value = f"{shown_value(costs[case.id])} for {case.label}.{case.outcome}"
            raise input_error(
                where._replace(id=case.id),
                f"cost must be that of the matrix, {cost:g}",
                REMEDY,
                value,
            )
    if record["cases_hash"] != baseline.cases_hash:
        value = shown_value(record["cases_hash"])
        raise input_error(
            where, f"cases_hash must be that of the cases, {baseline.cases_hash}", REMEDY, value
        )
    stated, measures = _object(record, "measures", where), baseline.measures
    if odd := [name for name in stated if name not in measures or stated[name] != measures[name]]:
        here = where._replace(id=odd[0])
        raise input_error(
            here, "measures must be those of the cases", REMEDY, canonical_json(stated[odd[0]])[:80]
        )
    if baseline.status_only > len(baseline.cases) or baseline.missing_answers > len(baseline.cases):
        value = f"{baseline.status_only} and {baseline.missing_answers} of {len(baseline.cases)}"
        raise input_error(
            where, "status_only and missing_answers must count some of the cases", REMEDY, value
        )
