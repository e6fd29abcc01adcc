"""Verdicts on decided cases (algebra): contracts met, and what another policy changes (S6.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import read_only
from raglab.decision.answer_text import AnswerCheck, Basis, MissingAnswers
from raglab.decision.learned_cases import in_sample_note, trace_learned
from raglab.decision.outcome_codes import CELL_OF_CHECK, RECORDED
from raglab.decision.scoring import headline_sentence, trace_basis
from raglab.decision.trace_view import case_row, failed_count
from raglab.metrics import CELLS
from raglab.policy import PolicyData
from raglab.values import (
    UNLABELLED,
    BoolArray,
    Case,
    CodeArray,
    FloatArray,
    PlaceArray,
    Status,
    TextArray,
    check_labelled,
    refuse,
)
from raglab.words.html_display import MAX_FOLD_ROWS, Fold
from raglab.words.results import Summary

if TYPE_CHECKING:
    import pandas as pd

STATUS_NAMES = np.array([status.name for status in Status], dtype=object)


NOT_EXPECTED = "the recorded answer is not the expected one"
UNRECORDED = "no answer is recorded for these hits"
UNDECIDED = "whether the answer is right is undecided"


def _contract_table() -> TextArray:
    """In what a contract is met or not, by label (the last: none), status, and kind.

    Kinds: status wrong, sources wrong, met, answer wrong, none recorded, met by the answer too,
    undecided.
    """
    table = np.full((len(Status) + 1, len(Status), 7), None, dtype=object)
    rests = ("the answer rests on", "the refusal rests on", "the options hold")  # by label
    for label in Status:
        for status in Status:
            wrong = f"{status.name} where the label is {label.name}"
            table[label, status, [0, 4]] = wrong, f"{wrong}, and {UNRECORDED}"
        labelled = f"{label.name} as labelled"
        table[label, label, 1] = f"{labelled}, but {rests[label]} other sources than expected"
        met = "" if label == Status.refuse else ", expected sources"
        table[label, label, 2] = labelled + met
    ok = "ok as labelled"
    table[Status.ok, Status.ok, 3:] = (
        f"{ok}, but {NOT_EXPECTED}",
        f"{ok}, but {UNRECORDED}",
        f"{ok}, expected sources and answer",
        f"{ok}, but {UNDECIDED}",
    )
    return table


CONTRACTS = _contract_table().ravel()  # by `CaseVerdicts.contract_codes`


class CaseColumns(NamedTuple):
    """What is held of every case, [Q] each: its id and some thirty bytes, whatever its hits.

    ids: of the cases. status, decided_by, depth, confidence: as `Decisions` has them. label_code:
    expected status. passes: whether it passes its contract, false without a label. status_only:
    whether it is scored by status alone. answer_checks: codes of `AnswerCheck`.
    """

    ids: TextArray
    status: CodeArray
    decided_by: TextArray
    depth: CodeArray
    confidence: FloatArray
    label_code: CodeArray
    passes: BoolArray
    status_only: BoolArray
    answer_checks: CodeArray


class CaseVerdicts(ABC):
    """Decisions of one policy with the labels of the cases, in memory or over shards.

    trace: what was decided, in memory or of shards. columns: of all cases, of shards; in memory
    each is made where it is asked for.
    """

    trace: Any
    policy: PolicyData
    columns: CaseColumns

    @abstractmethod
    def __len__(self) -> int:
        """Count the cases."""

    @property
    @abstractmethod
    def origin(self) -> list[tuple[str, str]]:
        """What was decided, as facts of a display."""

    @property
    def status(self) -> CodeArray:
        """Status codes, [Q]."""
        return self.columns.status

    @property
    def decided_by(self) -> TextArray:
        """Name of what decided each case, [Q], see `Decisions.decided_by`."""
        return self.columns.decided_by

    @property
    def label_code(self) -> CodeArray:
        """The expected `Status` of every case, [Q]; `UNLABELLED` where it has none."""
        return self.columns.label_code

    @property
    def passes(self) -> BoolArray:
        """Whether each case passes its contract, [Q]; false where it has no label."""
        return self.columns.passes

    @property
    def status_only(self) -> BoolArray:
        """Whether each case is scored by status alone: labelled ok, with no sources stated, [Q]."""
        return self.columns.status_only

    @property
    def answer_checks(self) -> CodeArray:
        """`AnswerCheck` of every case, [Q].

        What its recorded answer says, where it is judged by text.
        """
        return self.columns.answer_checks

    def confidence(self) -> FloatArray:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100.

        NaN where no score was measured.
        """
        return self.columns.confidence

    def ids(self) -> Sequence[str]:
        """Ids of the cases, [Q]."""
        ids: list[str] = self.columns.ids.tolist()
        return ids

    def row_of(self, case_id: str) -> int:
        """Position of a case.

        Raises:
          KeyError: the trace holds no such case.
        """
        return case_row(self.ids(), case_id)

    @abstractmethod
    def cases_at(self, rows: PlaceArray) -> list[Case]:
        """Cases at ascending positions."""

    def _summary(self) -> Summary:
        """What decided, label by decision, and the first cases whose contract is not met."""
        # None where a case has no label
        failed = np.flatnonzero(self.correct == False)  # noqa: E712
        heads = "label", *(outcome.name for outcome in Status)
        folds = (
            Fold("label by decision", self._label_rows(), None, heads, open=True),
            Fold("what decided", self._deciding_rows(), None, ("decided by", "cases")),
            Fold(
                "contract not met",
                self._failed_rows(failed[:MAX_FOLD_ROWS]),
                len(failed),
                ("case", "query", "decided by", "why"),
            ),
        )
        facts = [
            ("cases", f"{len(self):,}"),
            ("decided", self.status_counts()),
            ("contract", self.contracts()),
            *([("basis", self.basis_text())] if self.is_labelled else []),
            ("policy", self.policy.policy_id),
            *self.origin,
            *([("judged", self.in_sample)] if self.in_sample else []),
        ]
        return Summary(facts, {fold.title: fold for fold in folds})

    def _label_rows(self) -> Iterator[tuple[str, ...]]:
        """Cases by label and status; cases without a label, neither right nor wrong, first."""
        labels = self.label_code
        for code, name in ((UNLABELLED, "none"), *((label, label.name) for label in Status)):
            counts = np.bincount(self.status[labels == code], minlength=len(Status))
            if counts.any():
                yield name, *(f"{count:,}" for count in counts.tolist())

    def _deciding_rows(self) -> Iterator[tuple[str, str]]:
        """What decided, most frequent first: the gate that decides most is worth a look."""
        counts = Counter(self.decided_by.tolist())
        for name in sorted(counts, key=lambda name: (-counts[name], name)):
            yield name, f"{counts[name]:,}"

    def _failed_rows(self, rows: PlaceArray) -> Iterator[tuple[str, ...]]:
        """Some cases and why; only these are looked up, of millions there would be no page."""
        for row, case in zip(rows.tolist(), self.cases_at(rows), strict=True):
            yield case.id, case.query, str(self.decided_by[row]), self.why(row) or ""

    def status_counts(self) -> str:
        """How many cases have each status, in words."""
        counts = np.bincount(self.status, minlength=len(Status)).tolist()
        return ", ".join(f"{n:,} {status.name}" for status, n in zip(Status, counts, strict=True))

    def contracts(self) -> str:
        """How many contracts are met, and how many cases are left out or scored by status alone."""
        labelled = int((self.label_code != UNLABELLED).sum())
        alone = int(self.status_only.sum())
        headline = headline_sentence(alone, len(self), failed_count(self.trace))
        met = f"met in {int(self.passes.sum()):,} of {labelled:,}" if labelled else "no labels"
        return f"{met} ({headline})" if headline else met

    @property
    def is_labelled(self) -> bool:
        """Whether any case has a label."""
        return bool((self.label_code != UNLABELLED).any())

    @property
    def basis(self) -> Basis:
        """What *correct* means of these cases (rule S6.3)."""
        return trace_basis(self.trace)

    @property
    def missing_answers(self) -> MissingAnswers:
        """Answers not recorded for the hits that are answered from, of cases judged by text."""
        checks = self.answer_checks
        unrecorded = int((checks == AnswerCheck.unrecorded).sum())
        return MissingAnswers(unrecorded, unrecorded + int(np.isin(checks, RECORDED).sum()))

    @property
    def undecided(self) -> int:
        """Cases answered from the expected sources with an answer that nobody can call right."""
        return int((self.answer_checks >= AnswerCheck.undecided).sum())

    def basis_text(self) -> str:
        """The basis, and how many answers are missing, in words."""
        missing, unearned = (
            self.missing_answers,
            int((self.answer_checks == AnswerCheck.unearned).sum()),
        )
        basis, undecided = self.basis, self.undecided
        parts = [basis.described, *([str(missing)] if missing.k else [])]
        if undecided:
            parts.append(f"{undecided:,} answers undecided, which count as wrong")
        if unearned:
            parts.append(
                f"{unearned:,} refused only since no answer is recorded, which is not correct"
            )
        return "; ".join(parts)

    @property
    def in_sample(self) -> str:
        """That the policy learned from some of these labelled cases, with the count.

        '' where it is not known to.
        """
        return (
            in_sample_note(trace_learned([self.policy], self.trace)[0]) if self.is_labelled else ""
        )

    @property
    def right(self) -> BoolArray:
        """Whether each case passes its contract, [Q] (rule S6.3).

        Raises:
          ValueError: some case has no label.
        """
        check_labelled(self.label_code)
        return self.passes

    @property
    def cells(self) -> CodeArray:
        """Cell of every case, [Q].

        Decision, label, and whether the contract is met where that says more than they do.

        Raises:
          ValueError: some case has no label.
        """
        code = self.status.astype(np.int64) * CELLS + self.label_code * 2 + self.right
        cells: CodeArray = CELL_OF_CHECK[self.answer_checks, code]
        return cells

    @cached_property
    def correct(self) -> TextArray:
        """Whether each case fulfils its label, [Q] (rule S6.3); None where it has none."""
        correct: TextArray = self.passes.astype(object)
        correct[self.label_code == UNLABELLED] = None
        return read_only(correct)

    def why(self, row: int) -> str | None:
        """How a case met or missed its contract, None without a label.

        `reason` says what decided.
        """
        contract: str | None = CONTRACTS[self.contract_codes[row]]
        return contract

    @cached_property
    def contract_codes(self) -> PlaceArray:
        """Place in `CONTRACTS` of the reason of each verdict, [Q].

        No answer, else status, sources or text wrong.
        """
        label, check = self.label_code, self.answer_checks
        met = np.where((check == AnswerCheck.recorded) & (self.status == Status.ok), 5, 2)
        fails = np.where(check == AnswerCheck.wrong_text, 3, 1)
        fails = np.where(check >= AnswerCheck.undecided, 6, fails)
        kind = np.where(self.status != label, 0, np.where(self.passes, met, fails))
        kind = np.where(np.isin(check, [AnswerCheck.unrecorded, AnswerCheck.unearned]), 4, kind)
        at = (np.where(label == UNLABELLED, len(Status), label), self.status, kind)
        codes: PlaceArray = np.ravel_multi_index(at, (len(Status) + 1, len(Status), 7))
        return read_only(codes)

    def changed(self, after: CaseVerdicts) -> pd.DataFrame:
        """Cases that another policy decides otherwise.

        By status, or by whether their contract is met.

        Args:
          after: decisions on the same cases; what they say stands as `now`.

        Returns: a row a case in the trace's order: `case_id`, `query`, `expect_status`, `was` and
          `now` (statuses), `decided_by_was`, `decided_by_now`, `correct_was`, `correct_now` (None
          without a label), `change`: `gained`, `lost` or `after`.

        Raises:
          ValueError: the cases are not the same.
        """
        import pandas as pd

        rows = self.changed_rows(after)
        cases = self.cases_at(rows)
        changes = [_change(self.correct[row], after.correct[row]) for row in rows]
        return pd.DataFrame(
            {
                "case_id": [case.id for case in cases],
                "query": [case.query for case in cases],
                "expect_status": [case.expect_status for case in cases],
                "was": STATUS_NAMES[self.status[rows]],
                "now": STATUS_NAMES[after.status[rows]],
                "decided_by_was": self.decided_by[rows],
                "decided_by_now": after.decided_by[rows],
                "correct_was": self.correct[rows].tolist(),
                "correct_now": after.correct[rows].tolist(),
                "change": changes,
            }
        )

    def changed_rows(self, after: CaseVerdicts) -> PlaceArray:
        """Positions of cases whose status, or meeting of contract, differs, in the trace's order.

        Raises:
          ValueError: the cases are not the same, or judged on another basis.
        """
        if self.trace is not after.trace and list(self.ids()) != list(after.ids()):
            pair = f"{len(self.ids())} and {len(after.ids())}"
            refuse(
                "decisions must be on the same cases to be compared",
                f"others ({pair})",
                "decide one trace twice",
            )
        if self.basis != after.basis:
            pair = f"{self.basis} and {after.basis}"
            refuse(
                "decisions must be judged on one basis to be compared",
                pair,
                "decide one trace twice",
            )
        return np.flatnonzero((self.status != after.status) | (self.correct != after.correct))


def _change(was: object, now: object) -> str:
    """What a change of policy does to the contract of a case."""
    return "other" if was == now else "gained" if now else "lost"
