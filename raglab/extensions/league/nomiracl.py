"""NoMIRACL (shore): models' replies on whether passages answer a question (EMNLP 2024 Findings).

Layout of the repository `results/baselines`: folders `relevant` (the passages answer) and
`non_relevant` (they do not), in them files `<language>.<split>.<template>.jsonl` of lines
`{"query_id", "results": {model: reply}}`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extensions.league.accepted_answers import fitted_model
from raglab.extensions.league.refusals import answer_vote
from raglab.extensions.league.rows import (
    NOT_JUDGED,
    RATES,
    LeagueRow,
    LeagueVerdict,
    joint_note,
    league_verdict,
    paired_interval,
)
from raglab.extensions.league.stored_lines import (
    StoredLines,
    first_record,
    line_files,
    stored_lines,
)
from raglab.gating import fused_gate
from raglab.store.files import InputError

NAME = "nomiracl"
TASK = "answer the question from the passages, or say that they hold no answer"
HALLUCINATION, ERROR = RATES
FOLDERS = {"relevant": True, "non_relevant": False}
# how the name of the model begins whose rates the paper reports; in closed ones
REFERENCE, CLOSED = "gpt-4", "gpt"
RUN = "test.vanilla_prompt"  # split and template of the published figures
LEAST = 10  # questions of a kind below which no interval is given
PUBLISHED = {HALLUCINATION: 0.332, ERROR: 0.149}
SOURCE = "NoMIRACL, EMNLP 2024 Findings: GPT-4 over all languages of the paper"


class ReplyFile(NamedTuple):
    """File of replies in a language to questions that are all answerable, or none of them."""

    path: Path
    language: str
    is_answerable: bool


class Replies(NamedTuple):
    """Votes of models on questions.

    models: names, [M]. vote: 1 where a reply answers, 0 where it refuses, NaN where it is missing,
    [M, N]. answerable: [N]. language: [N]. notes: what was dropped, by language.
    """

    models: tuple[str, ...]
    vote: NDArray[np.float64]
    answerable: NDArray[np.bool_]
    language: NDArray[np.str_]
    notes: dict[str, str]


class RefusalDecisions(NamedTuple):
    """Decisions, [N], 1 or 0, by the choice on other languages, and the reference model's own."""

    answers: NDArray[np.float64]
    reference: NDArray[np.float64]
    reference_name: str


def is_nomiracl(folder: Path) -> bool:
    """Whether a folder has the layout.

    Both of its folders hold a file whose first record has `results`.
    """
    heads = ([first_record(path) for path in line_files(folder / name)] for name in FOLDERS)
    return all(any(isinstance(head.get("results"), Mapping) for head in of) for of in heads)


def nomiracl_rows(folder: Path, *, level: float = 0.95) -> list[LeagueRow]:
    """Rows of each language and of all.

    Hallucination and error rate, with all models and with the open ones alone.

    Fusion and threshold are chosen on the other languages: the threshold is the highest whose error
    rate there is at most that of the reference model's own replies. Null hypothesis of a
    difference: both decide with the same rate on the population of questions of these languages.
    Assumed is that questions are drawn independently; the interval is that of `paired_interval`.
    Fusion and threshold stay fixed: what other languages would have given is not in it. Each row
    has the verdict of its own interval, and none where the rate beside it has no interval. Both
    rates of a cell are judged together too (`cell_verdict`), and the note says where that differs:
    a policy that always answers is ahead in error and behind in hallucination, a trade.

    Files of another split or template than those of the paper are cells of their own, as are their
    fits.

    Args:
      folder: of the layout.
      level: of the intervals, in (0, 1).

    Returns:
      Four rows a language and of all. A language without replies, or of which a file cannot be
      read, is not judged; nor is any without a model whose name begins with `gpt-4`.
    """
    rows = []
    for run, files in _runs(folder).items():
        rows += _run_rows(run, files, level)
    return rows


def _runs(folder: Path) -> dict[str, list[ReplyFile]]:
    """Files by split and template, the published run first.

    Replies of two runs are never put together.
    """
    runs: dict[str, list[ReplyFile]] = {}
    for name, has_answer in FOLDERS.items():
        for path in line_files(folder / name):
            language, _, run = path.name.removesuffix(".gz").removesuffix(".jsonl").partition(".")
            runs.setdefault(run, []).append(ReplyFile(path, language, has_answer))
    return {run: runs[run] for run in sorted(runs, key=lambda run: (run != RUN, run))}


def _run_rows(run: str, files: Sequence[ReplyFile], level: float) -> list[LeagueRow]:
    """Rows of one split and template, part of the cell's name except for the published run's."""
    suffix = "" if run == RUN else f", {run or 'no split and template'}"
    replies, faults = _replies(files)
    languages = sorted(set(replies.language.tolist()))
    names = [
        row for row, name in enumerate(replies.models) if name.casefold().startswith(REFERENCE)
    ]
    if not names:
        fault = (
            f"no model's name begins with {REFERENCE}, whose error rate sets the threshold and "
            "which is compared with"
        )
        faults |= {name: f"{fault}; here: {', '.join(replies.models)}" for name in languages}
    rows = [
        LeagueRow(
            NAME,
            f"language {name}{suffix}",
            TASK,
            HALLUCINATION,
            higher_is_better=False,
            n=int((replies.language == name).sum()),
            note=note,
        )
        for name, note in sorted(faults.items())
    ]
    if not names:
        return rows
    reference = names[0]
    is_open = np.array([CLOSED not in name.casefold() for name in replies.models])
    for models, words in (
        (np.ones(len(is_open), dtype=bool), suffix),
        (is_open, f"{suffix}, open models alone"),
    ):
        if not models.any():
            continue
        choice = _choice(replies, models, reference)
        for language in languages:
            is_of = replies.language == language
            rows += _rate_rows(replies, choice, is_of, f"language {language}{words}", models, level)
        rows += _rate_rows(replies, choice, replies.language != "", f"all{words}", models, level)
    if run == RUN:
        return rows
    return [
        row._replace(published=nan, published_source=f"the paper's figures are of {RUN}")
        for row in rows
    ]


def _replies(files: Sequence[ReplyFile]) -> tuple[Replies, dict[str, str]]:
    """Votes of all replies.

    What was dropped is counted by language, and why a language has none is said.
    """
    votes: list[dict[str, float]] = []
    answerable, languages = [], []
    counts: dict[str, Counter[str]] = {file.language: Counter() for file in files}
    stored: dict[Path, StoredLines] = {}
    faults: dict[str, str] = {}
    for file in files:
        try:  # a part of a language is not judged as the whole
            stored[file.path] = stored_lines(file.path)
        except InputError as error:
            faults[file.language] = str(error)
    ids: set[tuple[str, bool, str]] = set()
    for file in (file for file in files if file.language not in faults):
        lines, count = stored[file.path], counts[file.language]
        count["lines that are no JSON object, dropped"] += lines.unread
        for record in lines.records:
            results, question = (
                record.get("results"),
                (file.language, file.is_answerable, str(record.get("query_id"))),
            )
            texts = results.items() if isinstance(results, Mapping) else ()
            vote = {str(model): answer_vote(text) for model, text in texts if isinstance(text, str)}
            if not vote or question in ids:
                count["lines without replies, or of a question that is already there, dropped"] += 1
                continue
            ids.add(question)
            votes.append(vote)
            answerable.append(file.is_answerable)
            languages.append(file.language)
    models = tuple(sorted({model for vote in votes for model in vote}))
    table = np.array([[vote.get(model, nan) for vote in votes] for model in models]).reshape(
        len(models), len(votes)
    )
    language_of = np.array(languages, dtype=str)
    for name, count in counts.items():
        count["replies that are missing"] = int(np.isnan(table[:, language_of == name]).sum())
    notes = {
        name: ", ".join(f"{what}: {number:,}" for what, number in count.items() if number)
        for name, count in counts.items()
    }
    for name in counts.keys() - set(languages) - faults.keys():
        faults[name] = "; ".join(filter(None, ["no line holds a reply", notes[name]]))
    return Replies(models, table, np.array(answerable, dtype=bool), language_of, notes), faults


def _choice(replies: Replies, models: NDArray[np.bool_], reference: int) -> RefusalDecisions:
    """Decisions on each language by votes fused, and a threshold chosen, on the others.

    NaN where nothing could be.
    """
    size = len(replies.language)
    answers = np.full(size, nan)
    for language in sorted(set(replies.language.tolist())):
        judged, fit = replies.language == language, replies.language != language
        right = replies.answerable[fit]
        has = models & ~np.isnan(replies.vote[:, judged]).all(axis=1)
        names = [name for name, is_there in zip(replies.models, has, strict=True) if is_there]
        model = fitted_model(replies.vote[has][:, fit], right, names, LEAST)
        allowed = error_rate(replies.vote[reference, fit], right)
        if model is None or isnan(allowed):
            continue
        chance = fused_gate.fused_probability(replies.vote[has][:, fit], model, names)
        threshold = refusal_threshold(chance[right], allowed)
        answers[judged] = (
            fused_gate.fused_probability(replies.vote[has][:, judged], model, names) >= threshold
        )
    return RefusalDecisions(answers, replies.vote[reference], replies.models[reference])


def error_rate(vote: NDArray[np.float64], answerable: NDArray[np.bool_]) -> float:
    """Share of the answerable questions that are refused, of those with a vote."""
    known = vote[answerable & ~np.isnan(vote)]
    return float((known == 0.0).mean()) if len(known) else nan


def refusal_threshold(chance: NDArray[np.float64], allowed: float) -> float:
    """Highest threshold that refuses at most an allowed share of answerable questions.

    Refused is what lies below.

    Args:
      chance: that a question can be answered, of answerable ones, [N]; NaN is refused.
      allowed: share, in [0, 1].

    Example:
      >>> refusal_threshold(np.array([0.1, 0.4, 0.4, 0.9]), 0.5)
      0.4
    """
    values = np.sort(np.where(np.isnan(chance), -1.0, chance))
    levels = np.unique(values)
    shares = np.searchsorted(values, levels, side="left") / len(values)
    return float(levels[shares <= allowed][-1])


def _rate_rows(
    replies: Replies,
    choice: RefusalDecisions,
    is_of: NDArray[np.bool_],
    cell: str,
    models: NDArray[np.bool_],
    level: float,
) -> list[LeagueRow]:
    """Rows of hallucination and error rate on some questions, raglab less the reference, paired."""
    known = is_of & ~np.isnan(choice.answers) & ~np.isnan(choice.reference)
    best = _best_single(replies, is_of)
    wrong = {
        metric: [
            (votes[known & (replies.answerable == kind)] != float(kind)).astype(np.float64)
            for votes in (choice.answers, choice.reference, replies.vote[best])
        ]
        for metric, kind in ((HALLUCINATION, False), (ERROR, True))
    }
    lacks_fit = is_of & np.isnan(choice.answers)
    counts = {
        "questions without a reply of the reference, not judged": int(
            (is_of & ~known & ~lacks_fit).sum()
        ),
        f"questions not judged, for other languages hold no {LEAST} of a kind and votes that "
        "vary to fit on": int(lacks_fit.sum()),
    }
    dropped = [f"{text}: {count:,}" for text, count in counts.items() if count]
    sizes = {metric: len(of[0]) for metric, of in wrong.items()}
    few = [
        f"{n} questions of {metric}: a verdict needs {LEAST} of both rates"
        for metric, n in sizes.items()
        if n < LEAST
    ]
    model_counts = float(models.sum())
    rows = []
    for metric, beside in ((HALLUCINATION, ERROR), (ERROR, HALLUCINATION)):
        fused, published, single = wrong[metric]
        judged = len(fused) >= LEAST
        low, high = paired_interval(fused - published, nan, nan, level) if judged else (nan, nan)
        shares = [f"{_share(values):.3f}" for values in wrong[beside][:2] if len(values)]
        at = f"at {' against '.join(shares)} of {beside}" if shares else ""
        notes = (at, *dropped, _notes(replies, is_of), *few)
        row = LeagueRow(
            NAME,
            cell,
            TASK,
            metric,
            higher_is_better=False,
            n=len(fused),
            published=PUBLISHED[metric] if cell.startswith("all") else nan,
            published_source=SOURCE
            if cell.startswith("all")
            else "no figure of a language is in the repository",
            reproduced=_share(published),
            reproduced_note=f"replies of {choice.reference_name} by the rule of refusals",
            free=1.0 - _share(wrong[ERROR][1]) if metric == HALLUCINATION else nan,
            free_name="refuse at random, as often as the reference errs"
            if metric == HALLUCINATION
            else "",
            hindsight=_share(single),
            hindsight_name=replies.models[best],
            raglab=_share(fused),
            fitted_on="fusion and threshold: the other languages" if judged else "",
            reference=f"the reply of {choice.reference_name}",
            difference=_share(fused) - _share(published),
            low=low,
            high=high,
            clusters=len(fused),
            calls=model_counts,
            reference_calls=1.0,
            note="; ".join(filter(None, notes)),
        )
        rows.append(row)
    verdicts: list[LeagueVerdict] = [
        league_verdict(row.low, row.high, higher_is_better=False) for row in rows
    ]
    if NOT_JUDGED in verdicts:  # the price of a rate is the rate beside it
        verdicts = [NOT_JUDGED] * len(rows)
    return [
        row._replace(
            verdict=verdict,
            note="; ".join(filter(None, [row.note, joint_note(verdict, sibling, name)])),
        )
        for row, verdict, sibling, name in zip(
            rows, verdicts, verdicts[::-1], (ERROR, HALLUCINATION), strict=True
        )
    ]


def _share(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else nan


def _best_single(replies: Replies, is_of: NDArray[np.bool_]) -> int:
    """Model with the least sum of both rates on these very questions.

    A missing reply counts as wrong.
    """
    sums = [
        _share(votes[is_of & replies.answerable] != 1.0)
        + _share(votes[is_of & ~replies.answerable] != 0.0)
        for votes in replies.vote
    ]
    return int(np.argmin(np.nan_to_num(sums, nan=2.0)))


def _notes(replies: Replies, is_of: NDArray[np.bool_]) -> str:
    """What was dropped in the language of a row; of all languages the sum is that of their rows."""
    languages = sorted(set(replies.language[is_of].tolist()))
    return replies.notes[languages[0]] if len(languages) == 1 else ""
