"""DBA (shore): model votes on own answers, disagreement-based abstention (arXiv 2602.04853).

Layout of the repository `results/baselines`: a folder a question set, in it a folder a model, in it
JSON lines `{"id", "baselines": {vote: {"accepted": true, "correct": 1}}}`, gzipped or not; other
keys are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab.extensions.league.accepted_answers import (
    AUROC,
    TASK,
    AnswerTable,
    JudgedPart,
    answer_rows,
)
from raglab.extensions.league.rows import LeagueRow, is_pooled
from raglab.extensions.league.stored_lines import first_record, line_files, stored_lines
from raglab.store.files import InputError

NAME = "dba"
SOURCE = "arXiv 2602.04853 reports votes by cell; its figures are not in the repository"
PUBLISHED = "assistive"  # part of the name of the vote that the paper proposes


class Vote(NamedTuple):
    """Answer of a model to a question.

    Its votes by name, whether it is right, and where it stands.
    """

    question_set: str
    model: str
    question: str
    votes: dict[str, float]
    correct: bool
    reference: float


def is_dba(folder: Path) -> bool:
    """Whether a folder has the layout.

    The first record of a file two folders down holds `baselines`.
    """
    return bool(dba_folders(folder))


def dba_folders(folder: Path) -> set[str]:
    """Names of the question sets in a folder, which hold a model with such a record."""
    return {model.parent.name for model, heads in _heads(folder).items() if _has_votes(heads)}


def dba_rows(folder: Path, *, level: float = 0.95) -> list[LeagueRow]:
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
      level: of the intervals, in (0, 1).

    Returns:
      Two rows a cell and of all; a cell without answers, or of which a file cannot be read, is not
      judged.
    """
    answers, notes = _answers(folder)
    has_answers = {f"{answer.question_set} / {answer.model}" for answer in answers}
    empty = [
        LeagueRow(
            NAME, name, TASK, AUROC, higher_is_better=True, n=0, published_source=SOURCE, note=note
        )
        for name, note in notes.items()
        if name not in has_answers
    ]
    if not answers:
        return empty
    names = tuple(sorted({name for answer in answers for name in answer.votes}))
    sets, models = (
        np.array([getattr(answer, of) for answer in answers]) for of in ("question_set", "model")
    )
    cell = np.array([f"{answer.question_set} / {answer.model}" for answer in answers])
    table = AnswerTable(
        table=NAME,
        names=names,
        signals=np.array([[answer.votes.get(name, nan) for answer in answers] for name in names]),
        correct=np.array([answer.correct for answer in answers]),
        cell=cell,
        question=np.array([f"{answer.question_set} {answer.question}" for answer in answers]),
        reference=np.array([answer.reference for answer in answers]),
        reference_name="the published assistive vote",
        calls=None,
        reference_calls=1.0,
        notes=notes,
    )
    parts = []
    for name in dict.fromkeys(cell.tolist()):
        judged = cell == name
        is_set, is_model = sets == sets[judged][0], models == models[judged][0]
        choices = {
            "the other models on the other question sets": ~is_set & ~is_model,
            "other question sets of the same model (no other model is there)": ~is_set,
            "other models on the same question set (no other set is there)": ~is_model,
        }
        words = next((words for words, fit in choices.items() if fit.any()), "nothing")
        parts.append(
            JudgedPart(judged, choices.get(words, np.zeros(len(answers), dtype=bool)), words)
        )
    rows = [row._replace(published_source=SOURCE) for row in answer_rows(table, parts, level=level)]
    return sorted([*rows, *empty], key=lambda row: (is_pooled(row), row.cell))


def _heads(folder: Path) -> dict[Path, list[Mapping[str, Any]]]:
    """First records of the files in each folder two down that has files.

    A second path to a folder is passed over.
    """
    real: dict[Path, Path] = {}
    for path in sorted(folder.glob("*/*")):
        if path.is_dir() and line_files(path):
            real.setdefault(path.resolve(), path)
    return {path: [first_record(file) for file in line_files(path)] for path in real.values()}


def _has_votes(heads: Sequence[Mapping[str, Any]]) -> bool:
    return any(isinstance(head.get("baselines"), Mapping) for head in heads)


def _models(folder: Path) -> list[Path]:
    """Folders of models.

    Those in a question set, and any whose files hold no record, which are shown as such.
    """
    heads = _heads(folder)
    sets = {model.parent for model, of in heads.items() if _has_votes(of)}
    return [model for model, of in heads.items() if model.parent in sets or not any(of)]


def _answers(folder: Path) -> tuple[list[Vote], dict[str, str]]:
    """Answers with published vote and verdict, and per cell what was dropped or why it is empty."""
    answers: dict[str, list[Vote]] = {}
    notes: dict[str, list[str]] = {}
    for model in _models(folder):
        counts: Counter[str] = Counter()
        votes: dict[str, Vote] = {}
        name = f"{model.parent.name} / {model.name}"
        answers[name], notes[name] = [], []
        try:  # a part of a cell is not judged as the whole
            stored = [stored_lines(path) for path in line_files(model)]
        except InputError as error:
            notes[name] = [str(error)]
            continue
        counts["lines that are no JSON object, dropped"] = sum(lines.unread for lines in stored)
        for record in (record for lines in stored for record in lines.records):
            _add_answer(record, model, votes, counts)
        answers[name] = list(votes.values())
        most = max((len(answer.votes) for answer in votes.values()), default=0)
        counts["answers that lack a vote, which is missing"] = sum(
            len(answer.votes) < most for answer in votes.values()
        )
        notes[name] = [f"{what}: {count:,}" for what, count in counts.items() if count]
        if not votes:
            notes[name].insert(0, "no line holds an assistive vote with a verdict of 0 or 1")
    names = {name: {vote for answer in of for vote in answer.votes} for name, of in answers.items()}
    for name, has in names.items():
        if has and (absent := set().union(*names.values()) - has):
            notes[name].append(f"votes that only other cells have: {', '.join(sorted(absent))}")
    whole = [answer for of in answers.values() for answer in of]
    return whole, {name: ", ".join(texts) for name, texts in notes.items()}


def _add_answer(
    record: Mapping[str, Any], model: Path, votes: dict[str, Vote], counts: Counter[str]
) -> None:
    """Add the answer of a line to `votes`, or count why not."""
    question, stored = record.get("id"), record.get("baselines")
    if question is None or not isinstance(stored, Mapping):
        counts["lines without id or votes, dropped"] += 1
        return
    # Some files name a vote `ic_idk`, others `idk`.
    known = {
        name.removeprefix("ic_"): vote
        for name, vote in stored.items()
        if isinstance(vote, Mapping) and isinstance(vote.get("accepted"), bool)
    }
    published = next((name for name in sorted(known) if PUBLISHED in name), None)
    if published is None:
        counts["answers without an assistive vote, dropped"] += 1
    elif not isinstance(verdict := known[published].get("correct"), int | float) or verdict not in {
        0,
        1,
    }:
        counts["verdicts other than 0 and 1, dropped"] += 1
    elif str(question) in votes:
        counts["second answers to a question, dropped"] += 1
    else:
        # A vote that asks again has a verdict on that reply; what is accepted is the answer of the
        # assistive vote.
        counts["answers with unequal verdicts, judged by the assistive vote's"] += any(
            vote.get("correct") != verdict for vote in known.values()
        )
        decisions = {name: float(vote["accepted"]) for name, vote in known.items()}
        names = (model.parent.name, model.name, str(question))
        votes[str(question)] = Vote(*names, decisions, verdict == 1, decisions[published])
