"""AdaRAGUE: stored answers of arms that retrieve never, once or in steps; whose answer is taken.

Folder `Adaptive_Rag/predictions` of the repository: `dev*` and `test*` hold a folder
`ARM_qa_MODEL_SET____...` an arm, with `prediction__SET_to_*.json`, `ground_truth__*.json` and, of
an arm in steps, `stepNum.json`; the router's `SET_option.json` lies in
`classifier/.../epoch/N/.../SET`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.refusals import answer_vote
from experiments.league.rows import INTERVAL, Row, paired_interval, signed
from experiments.league.stored import stored_text
from raglab import bandit
from raglab.metrics import exact_match, token_f1
from raglab.words.answer_terms import normalise_answer

ARMS, MODEL = ("ircot", "nor", "oner"), "llama_8b_it"
RAGLAB, FIXED, ROUTER = "raglab", "best fixed arm of development", "published router"
SEPARATE, POOLED = "a ridge an arm and set", "a ridge an arm over all sets"
DEVELOPMENT, TEST = "dev", "test"  # how the folders of the two parts begin
LONG = 10  # words above which an answer is a sentence


class StoredAnswers(NamedTuple):
    """Answers of an arm or of the router.

    by_question: text, correct and calls, a row a question. accuracy: as the repository stores it,
    NaN where it does not. differences: questions by which each stored figure, `acc` or `em`,
    differs from these answers.
    """

    by_question: pd.DataFrame
    accuracy: float
    differences: list[int]


class AnswerPart(NamedTuple):
    """Questions that all arms answer.

    Correct and calls, a column an arm, and signals [Q, F] of the answers alone.
    """

    correct: pd.DataFrame
    calls: pd.DataFrame
    signals: NDArray[np.float64]


def adarague_rows(folder: Path, seed: int = 0) -> list[Row]:
    """Rows of AdaRAGUE's files.

    Accuracy of the chosen answers against the best fixed arm, paired by question.

    An answer is correct where it contains a gold answer, both normalised as SQuAD does (lower case,
    no ASCII punctuation, no a, an, the, single blanks): the repository's `acc`. raglab's policy is
    that of `chosen_arms`, from the answers of all arms. The published router is that of the last
    epoch that is stored. Its outputs and the numbers of steps are stored for test questions alone,
    so neither can be a signal.

    The null hypothesis of a row is that both policies answer the same share correctly, of questions
    like those of test. Questions are independent by assumption. The interval is that of resampled
    questions and of `paired_interval`; the policies stay fixed.

    Args:
      folder: of the layout.
      seed: of the resamples.

    Source: the evaluation script of SQuAD (Rajpurkar et al. 2016); rule S4.5 for the ridge.
    """
    paths = folder.glob(f"{TEST}*/{ARMS[0]}_qa_{MODEL}_*/prediction__*.json*")
    names = sorted({path.name.removeprefix("prediction__").partition("_to_")[0] for path in paths})
    parts, routers, notes = zip(*(_answer_set(folder, name) for name in names), strict=True)
    development, test = zip(*parts, strict=True)
    tables: dict[str, list[pd.DataFrame]] = {"correct": [], "calls": []}
    rows = []
    for place, (method, choice) in enumerate(chosen_arms(development, test)):
        fixed = int(np.argmax(development[place].correct.sum()))
        row = Row(
            "adarague",
            names[place],
            "accuracy",
            0,
            published=routers[place].accuracy,
            free_name=ARMS[fixed],
            fitted_on=f"development questions: {method}",
            note=notes[place],
        )
        for field, columns in tables.items():
            values: pd.DataFrame = getattr(test[place], field)
            plans = {
                RAGLAB: values.to_numpy()[np.arange(len(choice)), choice],
                FIXED: values.iloc[:, fixed],
                ROUTER: routers[place].by_question.loc[values.index, field],
            }
            if field == "calls" and method != FIXED:  # who chooses by all answers has called all
                plans[RAGLAB] = values.sum(axis=1)
            columns.append(values.assign(**plans).astype(np.float64))
        rows.append(_judged_row(row, *(columns[-1] for columns in tables.values()), seed))
    if len(rows) > 1:
        row = Row("adarague", "all", "accuracy", 0, free_name=FIXED, fitted_on="as each row")
        rows.append(_judged_row(row, *map(pd.concat, tables.values()), seed))
    return rows


def chosen_arms(
    development: Sequence[AnswerPart], judged: Sequence[AnswerPart]
) -> list[tuple[str, NDArray[np.intp]]]:
    """Method of each set, and the arm that it takes of each judged question.

    A ridge predicts from the answers of all arms whether each is correct; the highest wins. A ridge
    a set, one over all sets, or none (the best fixed arm) is chosen in each set by the correct
    answers on its development questions, of which each is predicted without itself; of equals the
    plainer.

    Args:
      development: a part a set, of the same arms.
      judged: a part of each set, whose signals alone are read.
    """
    every = bandit.fit_ridge(
        np.concatenate([part.signals for part in development]),
        np.concatenate([part.correct for part in development]),
    )
    sizes = np.cumsum([len(part.signals) for part in development])
    held = np.split(every.held_out, sizes[:-1])
    chosen = []
    for part, new, held_out in zip(development, judged, held, strict=True):
        correct = part.correct.to_numpy()
        own, rows = bandit.fit_ridge(part.signals, correct), np.arange(len(correct))
        # A fixed arm is counted on the questions that chose it, which flatters it and no ridge.
        fixed = correct.mean(axis=0)
        plans = {
            FIXED: (np.tile(fixed, (len(correct), 1)), np.tile(fixed, (len(new.signals), 1))),
            SEPARATE: (own.held_out, own.predict(new.signals)),
            POOLED: (held_out, every.predict(new.signals)),
        }
        earned = {
            name: float(correct[rows, plan.argmax(axis=1)].sum())
            for name, (plan, _) in plans.items()
        }
        best = max(plans, key=lambda name: earned[name])
        chosen.append((best, plans[best][1].argmax(axis=1)))
    return chosen


def answer_signals(texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Signals of the answers of all arms to each question, [Q, F]; no label is read.

    Of each two arms: the answers agree, F1 of their words, one is contained in the other, and back;
    then, all agree. Of each arm: log of 1 + words, a refusal, no answer, a digit, yes or no, more
    than ten words.

    Args:
      texts: [Q] sequences of [A] answers.

    Example:
      >>> answer_signals([("Paris", "in Paris")])[0].round(2).tolist()[:5]
      [0.0, 0.67, 1.0, 0.0, 0.0]
    """
    rows: list[list[float]] = []
    for answers in texts:
        plain = [normalise_answer(answer) for answer in answers]
        row: list[float] = []
        for left, right in itertools.combinations(plain, 2):
            is_within, is_around = bool(left) and left in right, bool(right) and right in left
            row += [is_within and is_around, token_f1(left, [right]), is_within, is_around]
        row.append(len(set(plain)) == 1)
        for answer, words in zip(answers, map(str.split, plain), strict=True):
            row += [np.log1p(len(words)), answer_vote(answer) == 0.0, not words]
            row += [any(map(str.isdigit, answer)), words in (["yes"], ["no"]), len(words) > LONG]
        rows.append(row)
    return np.array(rows, np.float64)


def is_answered(answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer contains a gold answer, both normalised: the repository's `acc`.

    Example:
      >>> (
      ...     is_answered("It is the Eiffel Tower.", ["Eiffel tower"]),
      ...     is_answered("Eiffel", ["Eiffel tower"]),
      ... )
      (True, False)
    """
    return any(normalise_answer(gold) in normalise_answer(answer) for gold in golds)


def _answer_set(
    folder: Path, name: str
) -> tuple[tuple[AnswerPart, AnswerPart], StoredAnswers, str]:
    """Parts of a question set, its router, and what was dropped or reproduced.

    A question that an arm, the router or the gold answers lack is dropped.
    """
    parts: dict[str, AnswerPart] = {}
    differences: list[int] = []
    dropped = 0
    for part in (TEST, DEVELOPMENT):
        pattern = f"_qa_{MODEL}_{name}____*/prediction__{name}_to_*"
        paths = [min(folder.glob(f"{part}*/{arm}{pattern}")) for arm in ARMS]
        golds = _beside(paths[0], "ground_truth__")
        arms = dict(zip(ARMS, (_answers(path, golds) for path in paths), strict=True))
        judged = [answers.by_question.index for answers in arms.values()]
        if part == TEST:
            router = _answers(_router_path(folder, name), golds)
            judged.append(router.by_question.index)
            empty = [key for key in golds if not all(map(normalise_answer, golds[key]))]
        ids = judged[0]
        for index in judged[1:]:
            ids = ids.intersection(index)
        if part == DEVELOPMENT:  # what is judged is not fitted to
            ids = ids.difference(parts[TEST].correct.index)
        dropped += len(golds) - len(ids)
        ids = ids.sort_values()
        text, correct, calls = (
            pd.DataFrame(
                {arm: answers.by_question.loc[ids, field] for arm, answers in arms.items()}
            )
            for field in ("text", "correct", "calls")
        )
        parts[part] = AnswerPart(correct, calls, answer_signals(text.to_numpy().tolist()))
        differences += [figure for answers in arms.values() for figure in answers.differences]
    differences += router.differences
    note = (
        f"{sum(map(bool, differences))} of {len(differences)} stored acc and em differ, by "
        f"{sum(differences)} questions; {len(empty)} gold answers without a word; {dropped} dropped"
    )
    return (parts[DEVELOPMENT], parts[TEST]), router, note


def _answers(path: Path, golds: Mapping[str, Sequence[str]]) -> StoredAnswers:
    """Answers of a file to questions with a gold answer, and the figures they reproduce."""
    steps, rows = _beside(path, "stepNum"), {}
    for key, value in json.loads(stored_text(path)).items():
        # The router's answers have the number of steps of the arm that it chose.
        answer = (
            value if isinstance(value, dict) else {"prediction": value, "stepNum": steps.get(key)}
        )
        if key in golds:
            text = str(answer["prediction"] or "")
            # An arm without steps, and one without retrieval, which has 0 of them, call once.
            calls = max(1.0, answer["stepNum"] or 0.0)
            rows[key] = (text, is_answered(text, golds[key]), calls, exact_match(text, golds[key]))
    frame = pd.DataFrame.from_dict(
        rows, orient="index", columns=["text", "correct", "calls", "exact"]
    )
    acc, em = _beside(path, "eval_metic_result_acc"), _beside(path, "evaluation_metrics__")
    differences = [
        abs(round(stored[key] * stored["count"]) - int(frame[field].sum()))
        for stored, key, field in ((acc, "acc", "correct"), (em, "em", "exact"))
        if key in stored
    ]
    return StoredAnswers(frame, acc.get("acc", np.nan), differences)


def _beside(path: Path, stem: str) -> dict[str, Any]:
    """Object of the file that lies beside another and begins so; empty where there is none."""
    paths = sorted(path.parent.glob(f"{stem}*.json*"))
    return json.loads(stored_text(paths[0])) if paths else {}


def _router_path(folder: Path, name: str) -> Path:
    """File of the router's answers of the last epoch."""
    paths = (folder / "classifier").glob(f"*/{MODEL}/epoch/*/*/*/{name}/{name}_option.json*")
    return max(paths, key=lambda path: (int(path.parts[-5]), path))


def _difference(correct: pd.DataFrame, reference: str, seed: int) -> tuple[float, float, float]:
    """Accuracy of raglab less that of a reference, on the same questions, with its interval."""
    table = bandit.Table.from_frame(correct[[RAGLAB, reference]], order="given")
    plans = dict(zip(table.arms, np.eye(2), strict=True))
    row = bandit.compare_plans(table, plans, reference=reference, level=INTERVAL, seed=seed).iloc[0]
    gain = table.value[:, 0] - table.value[:, 1]
    ends = paired_interval(gain, float(row["difference_low"]), float(row["difference_high"]))
    return float(gain.mean()), *ends


def _judged_row(row: Row, correct: pd.DataFrame, calls: pd.DataFrame, seed: int) -> Row:
    """Row with what the policies get right of test questions; the gap to the router is noted."""
    means, n_calls = correct.mean(), calls.mean()
    difference, low, high = _difference(correct, FIXED, seed)
    best = str(means[[*ARMS]].idxmax())
    gap = "{} [{}, {}]".format(*map(signed, _difference(correct, ROUTER, seed)))
    router = f"less the router, of {n_calls[ROUTER]:.2f} calls: {gap}"
    return row._replace(
        n=len(correct),
        reproduced=float(means[ROUTER]),
        free=float(means[FIXED]),
        hindsight=float(means[best]),
        hindsight_name=best,
        raglab=float(means[RAGLAB]),
        reference=FIXED,
        difference=difference,
        low=low,
        high=high,
        clusters=len(correct),
        calls=float(n_calls[RAGLAB]),
        reference_calls=float(n_calls[FIXED]),
        note=f"{router}; {row.note}".strip("; "),
    )
