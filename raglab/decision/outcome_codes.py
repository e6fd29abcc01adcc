"""Outcome codes (algebra): what one decision counts as, and many policies' counts (S6.2, S6.3).

A code numbers (what decided, label, whether the case is right). Where a trace holds recorded
answers there is a block of them for each `AnswerCheck`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import AnswerCheck, Basis, MissingAnswers
from raglab.decision.chain import GENERATES, STAGES, STATUS_OF, Outcome, values_at_slot
from raglab.decision.measurement import Evidence
from raglab.metrics import CELLS
from raglab.values import AnyArray, CodeArray, IntArray, SlotArray, Status

NO_BASIS = Basis(0, 0)
CODES_PER_BLOCK = len(STAGES) * CELLS  # of a block
CHECK_BLOCKS = len(AnswerCheck)
RECORDED_CHECKS = [  # an answer is recorded, and judged
    AnswerCheck.recorded,
    AnswerCheck.wrong_text,
    AnswerCheck.undecided,
    AnswerCheck.undecided_other,
]
# what decided nothing is no right refusal: it counts as answered
UNEARNED_CELL = Status.ok * CELLS + Status.refuse * 2

# Cell of each `AnswerCheck` and (decision, label, right), [CHECK_BLOCKS, 18].
CELL_OF_CHECK = np.tile(
    metrics.DISTINCT_CELL[: metrics.PLAIN_CELLS].astype(np.int8), (CHECK_BLOCKS, 1)
)
CELL_OF_CHECK[AnswerCheck.unearned] = UNEARNED_CELL
CELL_OF_CHECK[AnswerCheck.undecided :] = np.array(metrics.UNDECIDED_CELLS)[:, None]
# The same of each code (what decided, label, right), [CHECK_BLOCKS · CODES_PER_BLOCK].
CELL_OF_CODE = CELL_OF_CHECK[
    :, (STATUS_OF.astype(np.int64)[:, None] * CELLS + np.arange(CELLS)).ravel()
].ravel()
_CELLS_OF_CODES = (CELL_OF_CODE[:, None] == np.arange(metrics.N_CELLS)).astype(np.int64)


class Tally(NamedTuple):
    """Counted decisions of many policies.

    Attributes:
      cells: cases by decision, label and whether they are right (sources, and the answer where it
        is judged), and the undecided ones, [P, 20].
      stages: decisions by the stage that decided, [P, stages].
      labels: cases by label, [3].
      engine: name of the engine that counted, and the reason where the compiled kernel could not.
      missing: answered cases whose answer is judged: those without a recorded one, and all, [P,
        2].
      basis: on which the cases are judged.
    """

    cells: IntArray
    stages: IntArray
    labels: IntArray
    engine: str
    missing: IntArray
    basis: Basis = NO_BASIS

    @property
    def counts(self) -> IntArray:
        """What each of `metrics.RATES` counts, [P, rates]."""
        return metrics.rate_counts(self.cells)

    @property
    def missing_answers(self) -> list[MissingAnswers]:
        """Answers that each policy lacks."""
        return [MissingAnswers(*missing_counts) for missing_counts in self.missing.tolist()]


def outcome_codes(evidence: Evidence, outcome: Outcome) -> SlotArray:
    """Code of every policy and case, [P, Q]."""
    is_right = at_slots(evidence.right, outcome)
    label_offset = evidence.label * np.int8(2)
    case_codes: SlotArray = (
        outcome.stage.astype(np.int16) * np.int16(CELLS) + label_offset + is_right
    )
    if evidence.answered:
        case_codes += answer_check_codes(evidence, outcome) * np.int16(CODES_PER_BLOCK)
    return case_codes


def answer_check_codes(evidence: Evidence, outcome: Outcome) -> CodeArray:
    """`AnswerCheck` of every policy and case, [P, Q]."""
    is_answered = GENERATES.take(outcome.stage)
    status_codes = STATUS_OF.take(outcome.stage)
    if not evidence.answered:
        return np.zeros(status_codes.shape, dtype=np.int8)
    is_ok = status_codes == Status.ok
    lacks_answer = is_answered & at_slots(evidence.unrecorded, outcome)
    is_unearned = (
        lacks_answer & (evidence.label_code == Status.refuse) & (status_codes == Status.refuse)
    )
    undecided_codes = np.where(is_ok, at_slots(evidence.undecided, outcome), 0)
    sources_right = at_slots(evidence.sources_right, outcome)
    is_wrong = sources_right & ~at_slots(evidence.right, outcome) & is_ok
    check_codes: CodeArray = np.select(
        [
            is_unearned,
            ~evidence.by_text & ~is_unearned,
            ~is_answered,
            lacks_answer,
            undecided_codes > 0,
            is_wrong,
        ],
        [
            AnswerCheck.unearned,
            AnswerCheck.by_sources,
            AnswerCheck.not_answered,
            AnswerCheck.unrecorded,
            AnswerCheck.undecided - 1 + undecided_codes,
            AnswerCheck.wrong_text,
        ],
        AnswerCheck.recorded,
    ).astype(np.int8)
    return check_codes


def at_slots(slot_values: AnyArray, outcome: Outcome) -> AnyArray:
    """Values of the sets of hits that were chosen, [P, Q], of a table [D, S, Q]."""
    if slot_values.shape[0] == 1:
        return values_at_slot(slot_values[0], outcome.slot)
    slot_numbers = outcome.slot.astype(np.int64)
    return slot_values[
        outcome.depth.astype(np.int64), slot_numbers, np.arange(slot_numbers.shape[1])
    ]


def codes_wide(evidence: Evidence) -> int:
    """How many codes the cases of evidence may have."""
    return CODES_PER_BLOCK * (CHECK_BLOCKS if evidence.answered else 1)


class CodeCounts(NamedTuple):
    """Cases by cell, [P, 20], by what decided, [P, stages], and `Tally.missing`, [P, 2]."""

    cells: IntArray
    stages: IntArray
    missing: IntArray


def count_codes(code_counts: IntArray) -> CodeCounts:
    """Counts of cases by code, [P, codes] of one block or of all."""
    count_blocks = code_counts.reshape(len(code_counts), -1, CODES_PER_BLOCK)
    counts_by_code = count_blocks.sum(axis=1)
    block_counts = np.zeros((len(code_counts), CHECK_BLOCKS), dtype=np.int64)
    block_counts[:, : count_blocks.shape[1]] = count_blocks.sum(axis=2)
    n_unrecorded = block_counts[:, AnswerCheck.unrecorded]
    missing_counts = np.stack(
        [n_unrecorded, n_unrecorded + block_counts[:, RECORDED_CHECKS].sum(axis=1)], axis=1
    )
    cell_counts = code_counts @ _CELLS_OF_CODES[: code_counts.shape[1]]
    return CodeCounts(
        cell_counts,
        counts_by_code.reshape(len(counts_by_code), len(STAGES), CELLS).sum(axis=2),
        missing_counts,
    )


def codes_missing(codes: SlotArray) -> list[MissingAnswers]:
    """Recorded answers that each policy lacks, of the codes of cases, [P, Q]."""
    return tally_codes(codes).missing_answers


def tally_codes(codes: SlotArray, basis: Basis = NO_BASIS) -> Tally:
    """Counted decisions of the codes of cases, [P, Q].

    Args:
      basis: on which the cases are judged.
    """
    code_counts = np.array(
        [
            np.bincount(policy_codes, minlength=CHECK_BLOCKS * CODES_PER_BLOCK)
            for policy_codes in codes
        ],
        dtype=np.int64,
    )
    cell_counts, stage_counts, missing_counts = count_codes(
        code_counts.reshape(len(codes), CHECK_BLOCKS * CODES_PER_BLOCK)
    )
    return Tally(
        cell_counts,
        stage_counts,
        metrics.label_counts(cell_counts[0]),
        "numpy",
        missing_counts,
        basis,
    )
