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
from raglab.decision.outcome_codes import CELL_OF_CHECK, RECORDED_CHECKS
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
    contract_texts = np.full((len(Status) + 1, len(Status), 7), None, dtype=object)
    basis_texts = ("the answer rests on", "the refusal rests on", "the options hold")  # by label
    for label_status in Status:
        for decided_status in Status:
            mismatch_text = f"{decided_status.name} where the label is {label_status.name}"
            contract_texts[label_status, decided_status, [0, 4]] = (
                mismatch_text,
                f"{mismatch_text}, and {UNRECORDED}",
            )
        match_text = f"{label_status.name} as labelled"
        contract_texts[label_status, label_status, 1] = (
            f"{match_text}, but {basis_texts[label_status]} other sources than expected"
        )
        met_text = "" if label_status == Status.refuse else ", expected sources"
        contract_texts[label_status, label_status, 2] = match_text + met_text
    ok_text = "ok as labelled"
    contract_texts[Status.ok, Status.ok, 3:] = (
        f"{ok_text}, but {NOT_EXPECTED}",
        f"{ok_text}, but {UNRECORDED}",
        f"{ok_text}, expected sources and answer",
        f"{ok_text}, but {UNDECIDED}",
    )
    return contract_texts


CONTRACT_TEXTS = _contract_table().ravel()  # by `CaseVerdicts.contract_codes`


class CaseColumns(NamedTuple):
    """What is held of every case, [Q] each: its id and some thirty bytes; the hits add nothing.

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
        case_ids: list[str] = self.columns.ids.tolist()
        return case_ids

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
        failed_rows = np.flatnonzero(self.correct == False)  # noqa: E712
        column_titles = "label", *(outcome.name for outcome in Status)
        table_folds = (
            Fold("label by decision", self._label_rows(), None, column_titles, open=True),
            Fold("what decided", self._deciding_rows(), None, ("decided by", "cases")),
            Fold(
                "contract not met",
                self._failed_rows(failed_rows[:MAX_FOLD_ROWS]),
                len(failed_rows),
                ("case", "query", "decided by", "why"),
            ),
        )
        fact_rows = [
            ("cases", f"{len(self):,}"),
            ("decided", self.status_counts()),
            ("contract", self.contracts()),
            *([("basis", self.basis_text())] if self.is_labelled else []),
            ("policy", self.policy.policy_id),
            *self.origin,
            *([("judged", self.in_sample)] if self.in_sample else []),
        ]
        return Summary(fact_rows, {table_fold.title: table_fold for table_fold in table_folds})

    def _label_rows(self) -> Iterator[tuple[str, ...]]:
        """Cases by label and status; cases without a label, neither right nor wrong, first."""
        label_codes = self.label_code
        for label_code, label_name in (
            (UNLABELLED, "none"),
            *((label, label.name) for label in Status),
        ):
            counts = np.bincount(self.status[label_codes == label_code], minlength=len(Status))
            if counts.any():
                yield label_name, *(f"{n_cases:,}" for n_cases in counts.tolist())

    def _deciding_rows(self) -> Iterator[tuple[str, str]]:
        """What decided, most frequent first: the gate that decides most is worth a look."""
        counts = Counter(self.decided_by.tolist())
        for decider_name in sorted(
            counts, key=lambda decider_name: (-counts[decider_name], decider_name)
        ):
            yield decider_name, f"{counts[decider_name]:,}"

    def _failed_rows(self, case_indices: PlaceArray) -> Iterator[tuple[str, ...]]:
        """Some cases and why; only these are looked up, of millions there would be no page."""
        for case_index, failed_case in zip(
            case_indices.tolist(), self.cases_at(case_indices), strict=True
        ):
            yield (
                failed_case.id,
                failed_case.query,
                str(self.decided_by[case_index]),
                self.why(case_index) or "",
            )

    def status_counts(self) -> str:
        """How many cases have each status, in words."""
        counts = np.bincount(self.status, minlength=len(Status)).tolist()
        return ", ".join(
            f"{n_cases:,} {status.name}" for status, n_cases in zip(Status, counts, strict=True)
        )

    def contracts(self) -> str:
        """How many contracts are met, and how many cases are left out or scored by status alone."""
        n_labelled = int((self.label_code != UNLABELLED).sum())
        n_status_only = int(self.status_only.sum())
        headline = headline_sentence(n_status_only, len(self), failed_count(self.trace))
        text = f"met in {int(self.passes.sum()):,} of {n_labelled:,}" if n_labelled else "no labels"
        return f"{text} ({headline})" if headline else text

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
        check_codes = self.answer_checks
        n_unrecorded = int((check_codes == AnswerCheck.unrecorded).sum())
        return MissingAnswers(
            n_unrecorded, n_unrecorded + int(np.isin(check_codes, RECORDED_CHECKS).sum())
        )

    @property
    def undecided(self) -> int:
        """Cases answered from the expected sources with an answer that nobody can call right."""
        return int((self.answer_checks >= AnswerCheck.undecided).sum())

    def basis_text(self) -> str:
        """The basis, and how many answers are missing, in words."""
        missing_answers = self.missing_answers
        n_unearned = int((self.answer_checks == AnswerCheck.unearned).sum())
        judging_basis = self.basis
        n_undecided = self.undecided
        parts = [
            judging_basis.described,
            *([str(missing_answers)] if missing_answers.k else []),
        ]
        if n_undecided:
            parts.append(f"{n_undecided:,} answers undecided, which count as wrong")
        if n_unearned:
            parts.append(
                f"{n_unearned:,} refused only since no answer is recorded, which is not correct"
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
        cell_codes = self.status.astype(np.int64) * CELLS + self.label_code * 2 + self.right
        checked_cells: CodeArray = CELL_OF_CHECK[self.answer_checks, cell_codes]
        return checked_cells

    @cached_property
    def correct(self) -> TextArray:
        """Whether each case fulfils its label, [Q] (rule S6.3); None where it has none."""
        values: TextArray = self.passes.astype(object)
        values[self.label_code == UNLABELLED] = None
        return read_only(values)

    def why(self, row: int) -> str | None:
        """How a case met or missed its contract, None without a label.

        `reason` says what decided.
        """
        text: str | None = CONTRACT_TEXTS[self.contract_codes[row]]
        return text

    @cached_property
    def contract_codes(self) -> PlaceArray:
        """Place in `CONTRACT_TEXTS` of the reason of each verdict, [Q].

        No answer, else status, sources or text wrong.
        """
        label_codes = self.label_code
        check_codes = self.answer_checks
        met_kinds = np.where(
            (check_codes == AnswerCheck.recorded) & (self.status == Status.ok), 5, 2
        )
        failed_kinds = np.where(check_codes == AnswerCheck.wrong_text, 3, 1)
        failed_kinds = np.where(check_codes >= AnswerCheck.undecided, 6, failed_kinds)
        verdict_kinds = np.where(
            self.status != label_codes, 0, np.where(self.passes, met_kinds, failed_kinds)
        )
        verdict_kinds = np.where(
            np.isin(check_codes, [AnswerCheck.unrecorded, AnswerCheck.unearned]), 4, verdict_kinds
        )
        table_position = (
            np.where(label_codes == UNLABELLED, len(Status), label_codes),
            self.status,
            verdict_kinds,
        )
        text_positions: PlaceArray = np.ravel_multi_index(
            table_position, (len(Status) + 1, len(Status), 7)
        )
        return read_only(text_positions)

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

        changed_rows = self.changed_rows(after)
        changed_cases = self.cases_at(changed_rows)
        contract_changes = [
            _change(self.correct[case_index], after.correct[case_index])
            for case_index in changed_rows
        ]
        return pd.DataFrame(
            {
                "case_id": [changed_case.id for changed_case in changed_cases],
                "query": [changed_case.query for changed_case in changed_cases],
                "expect_status": [changed_case.expect_status for changed_case in changed_cases],
                "was": STATUS_NAMES[self.status[changed_rows]],
                "now": STATUS_NAMES[after.status[changed_rows]],
                "decided_by_was": self.decided_by[changed_rows],
                "decided_by_now": after.decided_by[changed_rows],
                "correct_was": self.correct[changed_rows].tolist(),
                "correct_now": after.correct[changed_rows].tolist(),
                "change": contract_changes,
            }
        )

    def changed_rows(self, after: CaseVerdicts) -> PlaceArray:
        """Positions of cases whose status, or meeting of contract, differs, in the trace's order.

        Raises:
          ValueError: the cases are not the same, or judged on another basis.
        """
        if self.trace is not after.trace and list(self.ids()) != list(after.ids()):
            differing_pair = f"{len(self.ids())} and {len(after.ids())}"
            refuse(
                "decisions must be on the same cases to be compared",
                f"others ({differing_pair})",
                "decide one trace twice",
            )
        if self.basis != after.basis:
            refuse(
                "decisions must be judged on one basis to be compared",
                f"{self.basis} and {after.basis}",
                "decide one trace twice",
            )
        return np.flatnonzero((self.status != after.status) | (self.correct != after.correct))


def _change(earlier_correct: object, later_correct: object) -> str:
    """What a change of policy does to the contract of a case."""
    return "other" if earlier_correct == later_correct else "gained" if later_correct else "lost"
