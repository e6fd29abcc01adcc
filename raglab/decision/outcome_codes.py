"""Outcome codes (algebra): what one decision counts as, and many policies' counts (S6.2, S6.3).

A code numbers (what decided, label, whether the case is right). Where a trace holds recorded
answers there is a block of them for each `AnswerCheck`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import AnswerCheck, Basis, MissingAnswers
from raglab.decision.chain import GENERATES, STAGES, STATUS_OF, Outcome, values_at_slot
from raglab.decision.measurement import Evidence
from raglab.metrics import CELLS
from raglab.values import CodeArray, IntArray, SlotArray, Status

NO_BASIS = Basis(0, 0)
N_CODES = len(STAGES) * CELLS  # of a block
BLOCKS = len(AnswerCheck)
RECORDED = [  # an answer is recorded, and judged
    AnswerCheck.recorded,
    AnswerCheck.wrong_text,
    AnswerCheck.undecided,
    AnswerCheck.undecided_other,
]
# what decided nothing is no right refusal: it counts as answered
UNEARNED_CELL = Status.ok * CELLS + Status.refuse * 2

# Cell of each `AnswerCheck` and (decision, label, right), [BLOCKS, 18].
CELL_OF_CHECK = np.tile(metrics.DISTINCT_CELL[: metrics.PLAIN_CELLS].astype(np.int8), (BLOCKS, 1))
CELL_OF_CHECK[AnswerCheck.unearned] = UNEARNED_CELL
CELL_OF_CHECK[AnswerCheck.undecided :] = np.array(metrics.UNDECIDED_CELLS)[:, None]
# The same of each code (what decided, label, right), [BLOCKS · N_CODES].
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
        return [MissingAnswers(*pair) for pair in self.missing.tolist()]


def outcome_codes(evidence: Evidence, outcome: Outcome) -> SlotArray:
    """Code of every policy and case, [P, Q]."""
    right = at_slots(evidence.right, outcome)
    label = evidence.label * np.int8(2)
    codes: SlotArray = outcome.stage.astype(np.int16) * np.int16(CELLS) + label + right
    if evidence.answered:
        codes += answer_check_codes(evidence, outcome) * np.int16(N_CODES)
    return codes


def answer_check_codes(evidence: Evidence, outcome: Outcome) -> CodeArray:
    """`AnswerCheck` of every policy and case, [P, Q]."""
    answered, status = GENERATES.take(outcome.stage), STATUS_OF.take(outcome.stage)
    if not evidence.answered:
        return np.zeros(status.shape, dtype=np.int8)
    is_ok = status == Status.ok
    lacks = answered & at_slots(evidence.unrecorded, outcome)
    unearned = lacks & (evidence.label_code == Status.refuse) & (status == Status.refuse)
    undecided = np.where(is_ok, at_slots(evidence.undecided, outcome), 0)
    of_sources = at_slots(evidence.sources_right, outcome)
    wrong = of_sources & ~at_slots(evidence.right, outcome) & is_ok
    checks: CodeArray = np.select(
        [unearned, ~evidence.by_text & ~unearned, ~answered, lacks, undecided > 0, wrong],
        [
            AnswerCheck.unearned,
            AnswerCheck.by_sources,
            AnswerCheck.not_answered,
            AnswerCheck.unrecorded,
            AnswerCheck.undecided - 1 + undecided,
            AnswerCheck.wrong_text,
        ],
        AnswerCheck.recorded,
    ).astype(np.int8)
    return checks


def at_slots(table: NDArray[Any], outcome: Outcome) -> NDArray[Any]:
    """Values of the sets of hits that were chosen, [P, Q], of a table [D, S, Q]."""
    if table.shape[0] == 1:
        return values_at_slot(table[0], outcome.slot)
    slot = outcome.slot.astype(np.int64)
    return table[outcome.depth.astype(np.int64), slot, np.arange(slot.shape[1])]


def codes_wide(evidence: Evidence) -> int:
    """How many codes the cases of evidence may have."""
    return N_CODES * (BLOCKS if evidence.answered else 1)


class CodeCounts(NamedTuple):
    """Cases by cell, [P, 20], by what decided, [P, stages], and `Tally.missing`, [P, 2]."""

    cells: IntArray
    stages: IntArray
    missing: IntArray


def count_codes(counted: IntArray) -> CodeCounts:
    """Counts of cases by code, [P, codes] of one block or of all."""
    blocks = counted.reshape(len(counted), -1, N_CODES)
    codes, n_blocks = blocks.sum(axis=1), np.zeros((len(counted), BLOCKS), dtype=np.int64)
    n_blocks[:, : blocks.shape[1]] = blocks.sum(axis=2)
    unrecorded = n_blocks[:, AnswerCheck.unrecorded]
    missing = np.stack([unrecorded, unrecorded + n_blocks[:, RECORDED].sum(axis=1)], axis=1)
    cells = counted @ _CELLS_OF_CODES[: counted.shape[1]]
    return CodeCounts(cells, codes.reshape(len(codes), len(STAGES), CELLS).sum(axis=2), missing)


def codes_missing(codes: SlotArray) -> list[MissingAnswers]:
    """Recorded answers that each policy lacks, of the codes of cases, [P, Q]."""
    return tally_codes(codes).missing_answers


def tally_codes(codes: SlotArray, basis: Basis = NO_BASIS) -> Tally:
    """Counted decisions of the codes of cases, [P, Q].

    Args:
      basis: on which the cases are judged.
    """
    counted = np.array(
        [np.bincount(row, minlength=BLOCKS * N_CODES) for row in codes], dtype=np.int64
    )
    cells, stages, missing = count_codes(counted.reshape(len(codes), BLOCKS * N_CODES))
    return Tally(cells, stages, metrics.label_counts(cells[0]), "numpy", missing, basis)
