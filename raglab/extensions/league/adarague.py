"""AdaRAGUE (shore): stored answers of arms that retrieve never, once or in steps.

Whose answer is taken, by question.

Layout of the repository `Adaptive_Rag/predictions`: `dev*` and `test*` hold a folder
`ARM_qa_MODEL_SET...` an arm, with `prediction__SET_to_*.json`, `ground_truth__*.json` and, of an
arm in steps, `stepNum.json`; in `classifier`, a folder `MODEL/epoch/N/.../SET` holds the router's
`SET_option.json`. Files are gzipped or not; others are ignored.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit import Table, compare_plans, fit_ridge
from raglab.extensions.league.refusals import answer_vote
from raglab.extensions.league.rows import LeagueRow, league_verdict, paired_interval, signed
from raglab.extensions.league.stored_lines import is_stored_file
from raglab.store.files import (
    MAX_FILE_BYTES,
    InputError,
    Where,
    decode_utf8,
    input_error,
    parse_json,
)
from raglab.words.text import exact_match, normalise_answer, token_f1

if TYPE_CHECKING:
    import pandas as pd

NAME, METRIC = "adarague", "accuracy"
TASK = "Whose answer is taken: of the arm without retrieval, with one, or in steps?"
RAGLAB, FIXED, ROUTER = "raglab", "best fixed arm of development", "published router"
SEPARATE, POOLED = "a ridge an arm and set", "a ridge an arm over all sets"
DEVELOPMENT, TEST = PARTS = ("dev", "test")  # how the folders of the two parts begin
LEAST = 2  # development questions that a regression needs
ODD = "questions have a gold answer that is no text or number and are dropped"
LONG = 10  # words above which an answer is a sentence
_FOLDER = re.compile(r"(?P<arm>[^_]+)_qa_(?P<model>.+?)(?P<settings>____.*)?")
_PREDICTION = re.compile(r"prediction__(?P<set>.+?)_to_.+?\.json(?:\.gz)?")
_Paths = dict[tuple[str, str], Path]  # of predictions, by arm and its settings
_Matched = dict[str, dict[str, Path]]  # of predictions, by arm and part


class StoredAnswers(NamedTuple):
    """Answers of an arm or of the router, by question.

    Whether each is correct, and the model's calls behind it.

    accuracy: as the repository stores it, NaN where it does not. differences: questions by which
    each stored figure, `acc` or `em`, differs from these answers.
    """

    texts: Mapping[str, str]
    correct: Mapping[str, bool]
    calls: Mapping[str, float]
    accuracy: float
    differences: tuple[int, ...]


class AnswerPart(NamedTuple):
    """Questions that all arms answer, by id.

    Correct and calls [Q, A], and signals [Q, F] of the answers alone.
    """

    ids: tuple[str, ...]
    correct: NDArray[np.float64]
    calls: NDArray[np.float64]
    signals: NDArray[np.float64]


class AnswerCell(NamedTuple):
    """A question set of one model.

    Arms, parts, the router where it is stored, and texts of its line by field.
    """

    name: str
    arms: tuple[str, ...]
    development: AnswerPart
    test: AnswerPart
    router: StoredAnswers | None
    texts: dict[str, Any]


def adarague_rows(folder: Path, *, level: float = 0.95, seed: int = 0) -> list[LeagueRow]:
    """Lines of AdaRAGUE's files.

    Accuracy of the chosen answers against the best fixed arm, paired by question.

    An answer is correct where it contains a gold answer, both normalised as SQuAD does (lower case,
    no ASCII punctuation, no a, an, the, single blanks): the repository's `acc`. raglab's policy is
    that of `chosen_arms`, from the answers of all arms. The published router is that of the last
    epoch that is stored. Its outputs and the numbers of steps are stored for test questions alone,
    so neither can be a signal.

    The null hypothesis of a line is that both policies answer the same share correctly, of
    questions like those of test. Questions are independent by assumption; in the line `all` a
    question that several models answer is one, with the mean over them. The interval is that of
    resampled questions and of `paired_interval`; the policies stay fixed.

    Args:
      folder: of the layout.
      level: of the intervals, in (0, 1).
      seed: of the resamples.

    Returns:
      A line a set and model, and the line `all` where there are several. What cannot be judged, or
      of which a file cannot be read or is of another form, says why.

    Source: the evaluation script of SQuAD (Rajpurkar et al. 2016); rule S4.5 for the ridge.
    """
    import pandas as pd

    paths = _prediction_paths(folder)
    has_models = len({model for model, _ in paths}) > 1
    cells: list[AnswerCell] = []
    rows: list[LeagueRow] = []
    for (model, name), parts in sorted(paths.items()):
        shown = f"{name} / {model}" if has_models else name
        try:
            cell = _cell(folder, (model, name, shown), parts)
        except InputError as error:  # a part of a cell is not judged as the whole
            cell = LeagueRow(NAME, shown, TASK, METRIC, higher_is_better=True, n=0, note=str(error))
        if isinstance(cell, AnswerCell):
            cells.append(cell)
        else:
            rows.append(cell)
    frames = {}
    # Cells of the same arms share a ridge.
    for arms in sorted({cell.arms for cell in cells}):
        group = [cell for cell in cells if cell.arms == arms]
        leaks = [_is_judged_elsewhere(cell, group) for cell in group]
        chosen = chosen_arms(
            [cell.development for cell in group], [cell.test for cell in group], leaks
        )
        for cell, leak, (method, choice) in zip(group, leaks, chosen, strict=True):
            sets = ", ".join(member.name for member in group) if method == POOLED else cell.name
            called = f"raglab calls all {len(arms)} arms." if method != FIXED else ""
            apart = (
                f"{leak.sum()} development questions are of another model's test and not in the "
                "ridge over all sets."
            )
            texts = (called, apart if leak.any() else "", cell.texts["note"])
            fields = cell.texts | {
                "note": " ".join(text for text in texts if text),
                "fitted_on": f"{method}; development questions of {sets}; no test question",
            }
            frames[cell.name] = _policies(cell, choice, is_fixed=method == FIXED)
            rows.append(_row(cell.name, frames[cell.name], fields, level, seed))
    rows.sort(key=lambda row: row.cell)
    if len(frames) > 1:
        # A column that a cell lacks is in no mean over all cells.
        whole = {
            part: pd.concat([tables[part] for tables in frames.values()])
            for part in ("correct", "calls")
        }
        means = {
            part: table.dropna(axis=1).groupby(level=0).mean() for part, table in whole.items()
        }
        note = f"{len(whole['correct'])} answers to the questions of {len(frames)} lines."
        fields = {"free_name": f"{FIXED}, of each line", "fitted_on": "as each line", "note": note}
        rows.append(_row("all", means, fields, level, seed))
    return rows


def _is_judged_elsewhere(cell: AnswerCell, group: Sequence[AnswerCell]) -> NDArray[np.bool_]:
    """Whether each development question is one of test, of the same set and another model."""
    name = cell.name.partition(" / ")[0]
    judged = {
        key
        for member in group
        if member.name.partition(" / ")[0] == name
        for key in member.test.ids
    }
    return np.array([key in judged for key in cell.development.ids])


def chosen_arms(
    development: Sequence[AnswerPart],
    judged: Sequence[AnswerPart],
    leaks: Sequence[NDArray[np.bool_]] | None = None,
) -> list[tuple[str, NDArray[np.intp]]]:
    """Method of each set, and the arm that it takes of each judged question.

    A ridge predicts from the answers of all arms whether each is correct; the highest wins. A ridge
    a set, one over all sets, or none (the best fixed arm) is chosen in each set by the correct
    answers on its development questions, of which each is predicted without itself; of equals the
    plainer.

    Args:
      development: a part a set, of the same arms.
      judged: a part of each set, whose signals alone are read.
      leaks: whether each development question is kept out of the ridge over all sets, a sequence a
        set.
    """
    signals = np.concatenate([part.signals for part in development])
    fit = ~np.concatenate(leaks) if leaks else np.ones(len(signals), dtype=bool)
    has_pool = int(fit.sum()) >= LEAST
    if has_pool:
        every = fit_ridge(signals[fit], np.concatenate([part.correct for part in development])[fit])
        held_out = every.predict(signals)
        held_out[fit] = every.held_out
        held = np.split(held_out, np.cumsum([len(part.ids) for part in development])[:-1])
    chosen = []
    for place, (part, new) in enumerate(zip(development, judged, strict=True)):
        own, rows = fit_ridge(part.signals, part.correct), np.arange(len(part.ids))
        # A fixed arm is counted on the questions that chose it, which flatters it and no ridge.
        fixed = part.correct.mean(axis=0)
        plans = {
            FIXED: (np.tile(fixed, (len(part.ids), 1)), np.tile(fixed, (len(new.ids), 1))),
            SEPARATE: (own.held_out, own.predict(new.signals)),
        }
        if has_pool:
            plans[POOLED] = (held[place], every.predict(new.signals))
        earned = {
            name: float(part.correct[rows, plan.argmax(axis=1)].sum())
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
            row += [
                np.log1p(len(words)),
                answer_vote(answer) == 0.0,
                not words,
                any(map(str.isdigit, answer)),
            ]
            row += [words in (["yes"], ["no"]), len(words) > LONG]
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


def prediction_files(folder: Path) -> list[tuple[str, Path]]:
    """Part and path of each file of predictions in a folder of the layout, by part and path."""
    return [
        (part, path)
        for part in PARTS
        for path in sorted(folder.glob(f"{part}*/*_qa_*/prediction__*.json*"))
        if is_stored_file(path)
    ]


def adarague_folders(folder: Path) -> set[str]:
    """Names of the folders in one of the layout that hold predictions."""
    return {path.parents[1].name for _, path in prediction_files(folder)}


def ignored_note(folder: Path) -> str:
    """Sentence that counts files of predictions that are not read; empty where all are."""
    read = {
        path
        for parts in _prediction_paths(folder).values()
        for arms in parts.values()
        for path in arms.values()
    }
    names = Counter(
        path.parents[1].name for _, path in prediction_files(folder) if path not in read
    )
    counts = ", ".join(f"{count:,} in {name}" for name, count in sorted(names.items()))
    why = (
        "their names are of another form, or the same arm, model and set is read from a file "
        "before them"
    )
    return f"{NAME}: files of predictions that are ignored: {counts}; {why}." if names else ""


def _prediction_paths(folder: Path) -> dict[tuple[str, str], dict[str, _Paths]]:
    """Files of predictions by model and set, and part."""
    paths: dict[tuple[str, str], dict[str, _Paths]] = defaultdict(
        lambda: {part: {} for part in PARTS}
    )
    for part, path in prediction_files(folder):
        arm, file = _FOLDER.fullmatch(path.parent.name), _PREDICTION.fullmatch(path.name)
        if arm and file:
            model = arm["model"].removesuffix("_" + file["set"])
            # Of a file and its gzipped copy the file, which is the first by name; so of `test` and
            # `test_2`.
            paths[model, file["set"]][part].setdefault((arm["arm"], arm["settings"] or ""), path)
    return paths


def _cell(
    folder: Path, names: tuple[str, str, str], parts: Mapping[str, _Paths]
) -> AnswerCell | LeagueRow:
    """Cell of a model, a set and the name shown; a line that says why where it cannot be judged."""
    model, name, shown = names
    matched, notes = _matched(parts)
    arms = tuple(matched)
    read = {part: _golds(matched[arms[0]][part]) for part in parts if arms}
    golds = {part: texts for part, (texts, _) in read.items()}
    stored = {part: [_answers(matched[arm][part], golds[part]) for arm in arms] for part in parts}
    path = _router_path(folder, model, name) if arms else None
    router = None if path is None else _answers(path, golds[TEST])
    if router is not None and golds[TEST] and not router.correct:
        notes.append("The router's file answers no test question and is ignored.")
        router = None
    judged = {
        part: [*answers, *([router] if router and part == TEST else [])]
        for part, answers in stored.items()
    }
    ids = {
        part: sorted(set.intersection(*(set(answers.correct) for answers in of))) if of else []
        for part, of in judged.items()
    }
    odd = {part: keys for part, (_, keys) in read.items()}
    if len(arms) < 2 or not all(ids.values()):
        return _unjudged_row(shown, arms, ids, golds, odd, notes)
    counts = _question_counts(golds, odd, judged, ids)
    # What is judged is not fitted to.
    repeated = set(ids[DEVELOPMENT]) & set(ids[TEST])
    ids[DEVELOPMENT] = [key for key in ids[DEVELOPMENT] if key not in repeated]
    if len(ids[DEVELOPMENT]) < LEAST:
        note = (
            f"{len(ids[DEVELOPMENT])} questions of development that are not of test: a regression "
            f"needs {LEAST}."
        )
        return LeagueRow(NAME, shown, TASK, METRIC, higher_is_better=True, n=0, note=note)
    counts["development questions are test questions too and are left out of the fit"] = len(
        repeated
    )
    development, test = (_part(stored[part], ids[part]) for part in (DEVELOPMENT, TEST))
    figures = [
        figure
        for answers in (*stored[DEVELOPMENT], *judged[TEST])
        for figure in answers.differences
    ]
    reproduced = (
        f"{sum(map(bool, figures))} of {len(figures)} stored acc and em differ, by {sum(figures)} "
        "questions in all"
    )
    texts = {
        "published": nan if router is None else router.accuracy,
        "published_source": f"acc of the last epoch, {path.parent.relative_to(folder).as_posix()}"
        if path and router
        else "",
        "reproduced_note": reproduced
        + (f"; the router's by {sum(router.differences)}" if router else ""),
        "free_name": f"{FIXED}: {arms[int(development.correct.sum(axis=0).argmax())]}",
        "note": " ".join(
            [*notes, *(f"{count} {text}." for text, count in counts.items() if count)]
        ),
    }
    return AnswerCell(shown, arms, development, test, router, texts)


def _unjudged_row(
    shown: str,
    arms: Sequence[str],
    ids: Mapping[str, Sequence[str]],
    golds: Mapping[str, Mapping[str, Sequence[str]]],
    odd: Mapping[str, set[str]],
    notes: Sequence[str],
) -> LeagueRow:
    """Line of a cell whose answers leave no choice of an arm, with the reasons."""
    sizes = f"{len(ids[DEVELOPMENT])} development and {len(ids[TEST])} test questions"
    texts = [
        f"{len(arms)} arms have answers in both parts, to {sizes}: no choice.",
        *notes,
        *(
            f"Beside the predictions of {part} lies no gold answer."
            for part in golds
            if not golds[part]
        ),
    ]
    texts += [f"{sum(map(len, odd.values()))} {ODD}."] if any(odd.values()) else []
    return LeagueRow(NAME, shown, TASK, METRIC, True, 0, note=" ".join(texts))


def _question_counts(
    golds: Mapping[str, Mapping[str, Sequence[str]]],
    odd: Mapping[str, set[str]],
    judged: Mapping[str, Sequence[StoredAnswers]],
    ids: Mapping[str, Sequence[str]],
) -> dict[str, int]:
    """Numbers of questions that are dropped or that any answer gets right, by their note."""
    return {
        "questions that an arm, the router or the gold answers lack are dropped": sum(
            len(set().union(golds[part], *(arm.texts for arm in judged[part])) - odd[part])
            - len(ids[part])
            for part in ids
        ),
        ODD: sum(map(len, odd.values())),
        "questions have a gold answer without a word, which every answer contains": sum(
            not all(map(normalise_answer, golds[TEST][key])) for key in ids[TEST]
        ),
    }


def _matched(parts: Mapping[str, _Paths]) -> tuple[_Matched, list[str]]:
    """Files of each arm that both parts have, and sentences on other settings and one-part arms.

    Runs of an arm with other settings are arms of their own; where each part has one, they are one
    arm.
    """
    matched: _Matched = {}
    notes, alone = [], []
    for arm in sorted({arm for paths in parts.values() for arm, _ in paths}):
        settings = {
            part: [of for name, of in paths if name == arm] for part, paths in parts.items()
        }
        first, second = settings[DEVELOPMENT], settings[TEST]
        if len(first) == len(second) == 1:
            matched[arm] = {part: parts[part][arm, settings[part][0]] for part in parts}
            if first != second:
                which = " and ".join(of[0].strip("_") or "none" for of in (first, second))
                notes.append(
                    f"The settings of arm {arm} differ between development and test: {which}."
                )
            continue
        shared = sorted({*first} & {*second})
        for of in shared:
            matched[arm if len(shared) == 1 else arm + of] = {
                part: parts[part][arm, of] for part in parts
            }
        alone += [
            f"{arm}{of} ({part})" for part in parts for of in settings[part] if of not in shared
        ]
    if alone:
        notes.append(
            f"{len(alone)} arms have answers in one part alone and are left out: "
            f"{', '.join(alone)}."
        )
    return matched, notes


def _stored(path: Path) -> dict[str, Any]:
    """Object of a JSON file, gzipped or not."""
    where = Where(str(path))
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        rule, remedy = "a stored file must be readable", "fetch it again"
        raise input_error(where, rule, remedy, type(error).__name__) from error
    value = parse_json(decode_utf8(raw, where), where) if len(raw) <= MAX_FILE_BYTES else "more"
    if value is None:  # how the repository writes a figure that a set does not have
        return {}
    if not isinstance(value, dict):
        rule = f"a stored file must be a JSON object of at most {MAX_FILE_BYTES} bytes"
        raise input_error(where, rule, "fetch it again", type(value).__name__)
    return value


def _beside(path: Path, stem: str) -> dict[str, Any]:
    """Object of the file that lies beside another and begins so; empty where there is none."""
    paths = sorted(path.parent.glob(f"{stem}*.json*"))
    return _stored(paths[0]) if paths else {}


def _golds(path: Path) -> tuple[dict[str, list[str]], set[str]]:
    """Gold answers by question beside predictions, and questions with them in another form.

    Lists in lists are flattened; a question without a gold answer is in neither.
    """
    golds, odd = {}, set()
    for key, stored in _beside(path, "ground_truth__").items():
        texts = _flat(stored)
        if not all(isinstance(text, str | int | float) for text in texts):
            odd.add(key)
        elif texts:
            golds[key] = list(map(str, texts))
    return golds, odd


def _flat(value: object) -> list[object]:
    """Values of lists in lists; those of nothing are none."""
    if isinstance(value, list):
        return [part for of in value for part in _flat(of)]
    return [] if value is None or value == "" else [value]


def _answers(path: Path, golds: Mapping[str, Sequence[str]]) -> StoredAnswers:
    """Answers of a file to questions with a gold answer, and the figures they reproduce."""
    steps, texts, calls = _beside(path, "stepNum"), {}, {}
    for key, value in _stored(path).items():
        # The router's answers have the number of steps of the arm that it chose.
        answer = (
            value
            if isinstance(value, Mapping)
            else {"prediction": value, "stepNum": steps.get(key)}
        )
        text = answer.get("prediction")
        texts[key] = (
            " ".join(map(str, text))
            if isinstance(text, list)
            else ""
            if text is None
            else str(text)
        )
        # An arm without steps, and one without retrieval, which has 0 of them, call the model once.
        calls[key] = max(1.0, _number(answer.get("stepNum"), 1.0))
    correct = {key: is_answered(text, golds[key]) for key, text in texts.items() if key in golds}
    acc, em = _beside(path, "eval_metic_result_acc"), _beside(path, "evaluation_metrics__")
    exact = sum(exact_match(texts[key], golds[key]) for key in correct)
    figures = [
        (_number(acc.get("acc")) * _number(acc.get("count")), sum(correct.values())),
        (_number(em.get("em")) * _number(em.get("count")), exact),
    ]
    differences = tuple(abs(round(stored) - hits) for stored, hits in figures if isfinite(stored))
    return StoredAnswers(texts, correct, calls, _number(acc.get("acc")), differences)


def _number(value: object, absent: float = nan) -> float:
    """Number of a JSON value; another where it is none."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else absent


def _router_path(folder: Path, model: str, name: str) -> Path | None:
    """File of the router's answers of the last epoch, and of its last run.

    None where none is stored.
    """
    paths = {}
    for path in folder.rglob(f"{name}_option.json*"):
        parts = path.relative_to(folder).parts
        if (
            model in parts
            and "epoch" in parts
            and (epoch := parts[parts.index("epoch") + 1]).isdigit()
        ):
            paths[int(epoch), parts] = path
    return paths[max(paths)] if paths else None


def _part(arms: Sequence[StoredAnswers], ids: Sequence[str]) -> AnswerPart:
    """Answers of all arms to some questions."""
    correct = np.array([[float(arm.correct[key]) for arm in arms] for key in ids])
    calls = np.array([[arm.calls[key] for arm in arms] for key in ids])
    return AnswerPart(
        tuple(ids),
        correct,
        calls,
        answer_signals([[arm.texts[key] for arm in arms] for key in ids]),
    )


def _policies(
    cell: AnswerCell, choice: NDArray[np.intp], *, is_fixed: bool
) -> dict[str, pd.DataFrame]:
    """Tables `correct` and `calls` of the policies and of each arm, a row a test question."""
    import pandas as pd

    test, tables = cell.test, {}
    fixed = int(cell.development.correct.sum(axis=0).argmax())
    index = [f"{cell.name.partition(' / ')[0]} {key}" for key in test.ids]
    for part, values in (("correct", test.correct), ("calls", test.calls)):
        columns = dict(zip(cell.arms, values.T, strict=True))
        columns |= {RAGLAB: values[np.arange(len(choice)), choice], FIXED: values[:, fixed]}
        if part == "calls" and not is_fixed:  # who chooses by all answers has called all arms
            columns[RAGLAB] = values.sum(axis=1)
        if cell.router is not None:
            columns[ROUTER] = np.array([float(getattr(cell.router, part)[key]) for key in test.ids])
        tables[part] = pd.DataFrame(columns, index=index)
    return tables


def _difference(
    correct: pd.DataFrame, reference: str, level: float, seed: int
) -> tuple[float, float, float]:
    """Accuracy of raglab less that of a reference, on the same questions, with its interval."""
    table, plans = Table.from_frame(correct[[RAGLAB, reference]], order="given"), np.eye(2)
    named = dict(zip(table.arms, plans, strict=True))
    row = compare_plans(table, named, reference=reference, level=level, seed=seed).to_dict(
        "records"
    )[0]
    gain = table.value[:, 0] - table.value[:, 1]
    return float(gain.mean()), *paired_interval(
        gain, row["difference_low"], row["difference_high"], level
    )


def _row(
    name: str, tables: Mapping[str, pd.DataFrame], texts: Mapping[str, Any], level: float, seed: int
) -> LeagueRow:
    """Line of the policies on test questions; `texts` are its other fields."""
    correct, calls = (dict(tables[part].mean()) for part in ("correct", "calls"))
    difference, low, high = _difference(tables["correct"], FIXED, level, seed)
    arms = {arm: share for arm, share in correct.items() if arm not in {RAGLAB, FIXED, ROUTER}}
    best = max(arms, key=lambda arm: arms[arm], default="")
    note = str(texts["note"])
    if ROUTER in correct:
        gap = "{} ({} to {})".format(
            *map(signed, _difference(tables["correct"], ROUTER, level, seed))
        )
        note = f"Less the router, of {calls[ROUTER]:.2f} calls: {gap}. {note}".strip()
    return LeagueRow(
        NAME,
        name,
        TASK,
        METRIC,
        higher_is_better=True,
        n=len(tables["correct"]),
        reproduced=float(correct.get(ROUTER, nan)),
        free=float(correct[FIXED]),
        hindsight=float(arms.get(best, nan)),
        hindsight_name=f"arm {best}",
        raglab=float(correct[RAGLAB]),
        reference=FIXED,
        difference=difference,
        low=low,
        high=high,
        clusters=len(tables["correct"]),
        calls=float(calls[RAGLAB]),
        reference_calls=float(calls[FIXED]),
        verdict=league_verdict(low, high, higher_is_better=True),
        **{**texts, "note": note},
    )
