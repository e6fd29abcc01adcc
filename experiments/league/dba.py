"""DBA: model votes on own answers, disagreement-based abstention (arXiv 2602.04853).

Folder `results/baselines` of the repository: a folder a question set, in it a folder a model, in it
JSON lines `{"id", "baselines": {vote: {"accepted": true, "correct": 1}}}`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.league.answers import Part, answer_rows
from experiments.league.rows import Row
from experiments.league.stored import stored_lines

PUBLISHED = "pairwise_assistive"  # the vote that the paper proposes


def dba_rows(folder: Path) -> list[Row]:
    """Rows of each question set and model, and of all.

    Every cell is judged by a fit on the other models and the other question sets. Null hypothesis
    of a difference: the fused votes and the assistive vote have the same AUROC on the population of
    questions. Assumed is that questions are drawn independently; models share them, and the
    clusters of the last rows are therefore questions. Cells are fitted on each other, but fits
    hardly change: over 156 resamples of questions, each fitted anew, the pooled difference of AUROC
    of the 30 cells at hand has a standard deviation of .0059, that of accuracy .0035; the intervals
    have .0061 and .0033.

    Args:
      folder: of the layout.
    """
    answers, notes = dba_answers(folder)
    parts, reference = left_out_parts(answers), "the published assistive vote"
    votes = answers.drop(columns=["set", "model"])
    rows = answer_rows("dba", votes, parts, reference, reference_calls=1.0, notes=notes)
    return sorted(rows, key=lambda row: row.cell == "all")


def left_out_parts(answers: pd.DataFrame) -> list[Part]:
    """Each cell, fitted on the other models and the other question sets."""
    parts = []
    for _, rows in answers.groupby("cell"):
        question_set, model = rows[["set", "model"]].iloc[0]
        fit = (answers["set"] != question_set) & (answers["model"] != model)
        judged = answers.index.isin(rows.index)
        parts.append(Part(judged, fit.to_numpy(), "the other models on the other question sets"))
    return parts


def dba_answers(folder: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Answers with their votes, a row an answer, and what was dropped, by cell."""
    rows: list[dict[str, Any]] = []
    notes = {}
    for path in sorted(folder.glob("*/*/*.jsonl*")):
        question_set, model = path.parts[-3:-1]
        place = {"set": question_set, "model": model, "cell": f"{question_set} / {model}"}
        counts: Counter[str] = Counter()
        for record in stored_lines(path):
            # Some files name a vote `ic_idk`, others `idk`.
            votes = {
                name.removeprefix("ic_"): vote
                for name, vote in record.get("baselines", {}).items()
                if isinstance(vote.get("accepted"), bool)
            }
            if PUBLISHED not in votes:
                counts["answers without an assistive vote, dropped"] += 1
                continue
            verdict = votes[PUBLISHED]["correct"]
            if verdict not in {0, 1}:
                counts["verdicts other than 0 and 1, dropped"] += 1
                continue
            # A vote that asks again has a verdict on that reply; what is accepted is the answer of
            # the assistive vote.
            counts["answers with unequal verdicts, judged by the assistive vote's"] += any(
                vote["correct"] != verdict for vote in votes.values()
            )
            decisions = {name: float(vote["accepted"]) for name, vote in votes.items()}
            reference = decisions[PUBLISHED]
            question = f"{question_set} {record['id']}"
            row = {"question": question, "correct": verdict == 1, "reference": reference}
            rows.append(place | row | decisions)
        notes[place["cell"]] = ", ".join(f"{what}: {n}" for what, n in counts.items() if n)
    answers = pd.DataFrame(rows)
    signals = sorted({*answers} - {"set", "model", "cell", "question", "correct", "reference"})
    fields = ["set", "model", "cell", "question", "correct", "reference"]
    return answers[[*fields, *signals]], notes
