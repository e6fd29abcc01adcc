"""Outcome codes (algebra): what one decision counts as, and many policies' counts (S6.2, S6.3).

A code numbers (what decided, label, whether the case is right). Where a trace holds recorded
answers there are six blocks of them: cases whose answer is not judged or not given, answered ones,
answered ones whose answer is missing, those whose answer is undecided (the first such answer of
the case, another one), and refusals of what should be refused that only the missing answer makes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import Basis, MissingAnswers
from raglab.decision.chain import GENERATES, STAGES, STATUS_OF, Outcome, values_at_slot
from raglab.decision.measurement import Evidence
from raglab.metrics import CELLS
from raglab.values import IntArray, SlotArray, Status

NO_BASIS = Basis(0, 0)
N_CODES = len(STAGES) * CELLS  # of a block
BLOCKS = 6
TEXT_BLOCKS = slice(1, 5)  # answered cases whose answer is judged
UNDECIDED_BLOCK = 3  # the first of two
# what decided nothing is no right refusal: it counts as answered
UNEARNED_CELL = Status.ok * CELLS + Status.refuse * 2

# Cell (decision, label, right) of each code (what decided, label, right), [BLOCKS · N_CODES].
CELL_OF_CODE = np.tile(
    metrics.DISTINCT_CELL[
        (STATUS_OF.astype(np.int64)[:, None] * CELLS + np.arange(CELLS)).ravel()
    ].astype(np.int8),
    BLOCKS,
)
CELL_OF_CODE[-N_CODES:] = UNEARNED_CELL
for _number, _cell in enumerate(metrics.UNDECIDED_CELLS, UNDECIDED_BLOCK):
    CELL_OF_CODE[_number * N_CODES : (_number + 1) * N_CODES] = _cell
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
    right = _at_slots(evidence.right, outcome)
    label = evidence.label * np.int8(2)
    codes: SlotArray = outcome.stage.astype(np.int16) * np.int16(CELLS) + label + right
    if evidence.answered:
        generates, lacks = GENERATES.take(outcome.stage), _at_slots(evidence.unrecorded, outcome)
        answered = generates & evidence.by_text
        refused = STATUS_OF.take(outcome.stage) == Status.refuse
        unearned = generates & lacks & refused & (evidence.label_code == Status.refuse)
        is_ok = answered & (STATUS_OF.take(outcome.stage) == Status.ok)
        undecided = np.where(is_ok, _at_slots(evidence.undecided, outcome), 0)
        block = answered.astype(np.int16) + (answered & lacks) + np.int16(BLOCKS - 1) * unearned
        codes += np.int16(N_CODES) * np.where(
            undecided > 0, undecided + np.int16(UNDECIDED_BLOCK - 1), block
        ).astype(np.int16)
    return codes


def _at_slots(table: NDArray[Any], outcome: Outcome) -> NDArray[Any]:
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
    codes, n_blocks = blocks.sum(axis=1), blocks.sum(axis=2)
    unrecorded = (
        n_blocks[:, 2] if n_blocks.shape[1] == BLOCKS else np.zeros(len(counted), dtype=np.int64)
    )
    missing = np.stack([unrecorded, n_blocks[:, TEXT_BLOCKS].sum(axis=1)], axis=1)
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
