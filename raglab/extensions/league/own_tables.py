"""Own tables (algebra): a person's table of answers, judged as the published ones are.

A row an answer: `id` of the question, `correct` (0 or 1), optional `group`, `cost` and `baseline`;
every other column of numbers is a signal. Fitted is on the other groups; without groups on the
other folds of questions.
"""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.extensions.league.accepted_answers import (
    LEAST,
    REACH,
    AnswerTable,
    JudgedPart,
    answer_rows,
)
from raglab.extensions.league.own_files import OwnTable, own_table
from raglab.extensions.league.rows import NOT_JUDGED, LeagueRow

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 5  # of questions, where there are no groups to leave out


def own_rows(
    source: Path | pd.DataFrame, *, level: float = 0.95, seed: int = 0
) -> tuple[list[LeagueRow], list[str]]:
    """Rows of each group and of all, and notes of what was ignored or dropped, with counts.

    The difference is against `baseline`, a decision (0 or 1) or a score, surer upwards; without
    one, against the single signal that is best where raglab is fitted. A signal that ranks against
    the labels there is turned round; a baseline that does so is not, and nothing is judged against
    it. Answers to a judged question are never fitted on, whatever their group; where that leaves a
    group nothing to fit on, folds of questions are judged, each by the other groups' answers in the
    other folds. AUROC is then the mean over folds. Which questions make a fold follows from the
    seed, and what other folds would have given is not in the interval.

    A blank signal takes the median of the answers that are fitted. Answers without a baseline are
    left out of the comparison. A row number, and a column that equals the verdict or its opposite,
    is no signal.

    Args:
      source: CSV, TSV, JSON lines (also gzipped), Parquet, or a data frame.
      level: of the intervals, in (0, 1).
      seed: of the folds, where there are no groups.

    Raises:
      InputError: see `own_table`.
    """
    own = own_table(source)
    notes = list(own.notes)
    table = _answer_table(own)
    if table.reference is not None and np.isnan(table.reference).all():
        notes.append("The column baseline has no number and is ignored.")
        table = table._replace(reference=None)
    parts, text = _parts(table, seed)
    rows = answer_rows(table, parts, level=level, reach=REACH)
    if fault := _reversed_text(table, level):
        why = "the baseline ranks the wrong way round, see the notes"
        rows = [
            row._replace(note=f"{why}; {row.note}".rstrip("; "), verdict=NOT_JUDGED) for row in rows
        ]
        rows = [row._replace(difference=nan, low=nan, high=nan) for row in rows]
        notes.append(f"{fault[0].upper()}{fault[1:]}.")
    return rows, [*notes, *([text] if text else [])]


def _answer_table(own: OwnTable) -> AnswerTable:
    return AnswerTable(
        table=own.name,
        names=tuple(own.signals),
        signals=np.stack(list(own.signals.values())),
        correct=own.correct,
        cell=np.full(len(own.correct), "all questions") if own.group is None else own.group,
        question=own.question,
        reference=own.baseline,
        reference_name="the baseline of the table",
        calls=np.full(len(own.correct), nan) if own.cost is None else own.cost,
        reference_calls=nan,
        notes={},
        shows_fit=True,
    )


def _reversed_text(table: AnswerTable, level: float) -> str:
    """Why nothing is judged against a baseline with mean AUROC and interval below .5 in groups."""
    if table.reference is None:
        return ""
    has = ~np.isnan(table.reference)
    correct, baseline = table.correct[has], table.reference[has]
    # Beside what ranks nothing, whose AUROC is .5, and within groups, as it is judged.
    beside, groups = np.zeros(len(baseline)), table.cell[has]
    gap = metrics.mean_auroc_difference(
        correct, baseline, beside, cells=groups, clusters=table.question[has], level=level
    )
    if not gap.high < 0.0:
        return ""
    area = f"AUROC {0.5 + gap.value:.3f}" + ", mean over groups" * (len(set(groups.tolist())) > 1)
    direction = "it must be 1 for accept, or higher where surer"
    return f"the baseline ranks the wrong way round ({area}): {direction}; turn it round"


def _parts(table: AnswerTable, seed: int) -> tuple[list[JudgedPart], str]:
    """Each group, fitted on the others; without groups each fold of questions.

    With shared questions both.

    No judged question is fitted on. The sentence says that groups share their questions.
    """
    groups = sorted(set(table.cell.tolist()))
    names, number = np.unique(table.question, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(np.arange(len(names)) % FOLDS)[number]
    other_folds = f"the other {FOLDS - 1} of {FOLDS} folds of questions"
    if len(groups) < 2:
        return [
            JudgedPart(fold == of, fold != of, other_folds)
            for of in range(FOLDS)
            if (fold == of).any()
        ], ""
    judged = [table.cell == group for group in groups]
    fits = [~np.isin(table.question, np.unique(table.question[of])) for of in judged]
    words = "the other groups, without the judged questions"
    sharing = sum(
        _can_fit(table, ~of) and not _can_fit(table, fit)
        for of, fit in zip(judged, fits, strict=True)
    )
    if not sharing:
        return [JudgedPart(of, fit, words) for of, fit in zip(judged, fits, strict=True)], ""
    which = (
        "All groups share" if sharing == len(groups) else f"{sharing} of {len(groups)} groups share"
    )
    words = f"the other groups, in {other_folds}"
    parts = [
        JudgedPart(of & (fold == each), ~of & (fold != each), words)
        for of in judged
        for each in range(FOLDS)
        if (of & (fold == each)).any()
    ]
    return (
        parts,
        f"{which} their questions: each group is judged in {FOLDS} folds of questions, by {words}.",
    )


def _can_fit(table: AnswerTable, fit: NDArray[np.bool_]) -> bool:
    return min(int(table.correct[fit].sum()), int((~table.correct[fit]).sum())) >= LEAST
