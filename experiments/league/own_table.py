"""Own table: answers of one's own, judged as the published ones are.

CSV, a row an answer: `id` of the question, `correct` and `baseline`, the decision (0 or 1) or score
of the method to beat, surer upwards; optional `group`. Every other column of numbers is a signal.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.league.answers import LEAST, REACH, Part, answer_rows
from experiments.league.clustered import mean_auroc_difference
from experiments.league.rows import INTERVAL, Row

KINDS = (True, False)
FOLDS = 5  # of questions, where there are no groups to leave out
FIELDS = {"group": "cell", "id": "question", "correct": "correct", "baseline": "reference"}


def own_rows(path: Path, seed: int = 0) -> list[Row]:
    """Rows of each group and of all.

    Fitted is on the other groups, never on answers to a judged question. Where groups share so many
    questions that this leaves too little, each is judged in five folds of questions, by the other
    groups in the other folds; without groups, by the other folds. AUROC is then the mean over
    folds. Which questions make a fold follows from the seed, and what other folds would have given
    is not in the interval.

    Args:
      path: of the table.
      seed: of the folds.

    Raises:
      ValueError: a blank id, verdict or baseline, or a baseline that ranks the wrong way round.
    """
    table = pd.read_csv(path, dtype={"id": str, "group": str})
    if "group" not in table:
        table["group"] = "all questions"
    signals = table.drop(columns=[*FIELDS]).select_dtypes("number")
    answers = table[[*FIELDS]].rename(columns=FIELDS).join(signals)
    if answers[[*FIELDS.values()]].isna().any(axis=None):
        msg = "id, correct, baseline and group must be filled in every row, got blanks; fill them."
        raise ValueError(msg)
    answers["correct"] = answers["correct"].astype(bool)
    # Beside what ranks nothing, whose AUROC is .5, and within groups, as it is judged.
    gap = mean_auroc_difference(
        answers["correct"],
        answers["reference"],
        np.zeros(len(answers)),
        cells=answers["cell"],
        clusters=answers["question"],
        level=INTERVAL,
    )
    if gap.high < 0.0:
        msg = (
            f"baseline must be higher where surer, got AUROC {0.5 + gap.value:.3f}; turn it round."
        )
        raise ValueError(msg)
    parts = question_parts(answers, seed)
    return answer_rows(path.stem, answers, parts, "the baseline of the table", reach=REACH)


def question_parts(answers: pd.DataFrame, seed: int) -> list[Part]:
    """Parts of which none is fitted on answers to its own questions.

    Each group; each fold of questions where there is one group; else both.
    """
    groups = [(answers["cell"] == group).to_numpy() for group in sorted(set(answers["cell"]))]
    names, number = np.unique(answers["question"].astype(str), return_inverse=True)
    place = np.random.default_rng(seed).permutation(np.arange(len(names)) % FOLDS)[number]
    folds = [place == number for number in np.unique(place)]
    if len(groups) < 2:
        return [Part(fold, ~fold, "the other folds of questions") for fold in folds]
    question, correct = answers["question"], answers["correct"]
    fits = [~question.isin(question[group]).to_numpy() for group in groups]
    if min(correct[fit].value_counts().get(kind, 0) for fit in fits for kind in KINDS) >= LEAST:
        words = "the other groups, without the judged questions"
        return [Part(group, fit, words) for group, fit in zip(groups, fits, strict=True)]
    words = "the other groups in the other folds of questions"
    pairs = [(group, fold) for group in groups for fold in folds if (group & fold).any()]
    return [Part(group & fold, ~group & ~fold, words) for group, fold in pairs]
