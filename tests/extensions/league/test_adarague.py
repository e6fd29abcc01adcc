"""Answers of AdaRAGUE.

Figures reproduced from them, and a choice of arm that is fitted on development questions.
"""

from __future__ import annotations

import gzip
import json
import shutil
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.extensions.league.adarague import (
    FIXED,
    RAGLAB,
    AnswerPart,
    _difference,
    adarague_folders,
    adarague_rows,
    answer_signals,
    chosen_arms,
    ignored_note,
    is_answered,
)
from raglab.extensions.league.rows import LeagueRow
from raglab.words.text import exact_match

REAL = Path(__file__).parents[4] / "shared" / "data" / "league" / "adarague"
SETTINGS = "____prompt_set_1___bm25_retrieval_count__6___distractor_count__1"
MODEL, QUESTIONS = "llama_8b_it", 60
Answers = dict[str, str]


def write(path: Path, value: object, *, is_plain: bool = False) -> None:
    """Write a JSON file over several lines, as the repository does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=4)
    if is_plain:
        path.with_suffix("").write_text(text)
    else:
        path.write_bytes(gzip.compress(text.encode()))


def answers(name: str, seed: int) -> tuple[dict[str, list[str]], dict[str, Answers]]:
    """Gold answers and those of three arms.

    An arm refuses where it is wrong, one of them is right in each question.
    """
    rng = np.random.default_rng(seed)
    golds = {
        f"{name}_{seed}_{number}": [f"The Gold {number}", f"number {number}"]
        for number in range(QUESTIONS)
    }
    arms: dict[str, Answers] = {arm: {} for arm in ("nor", "oner", "ircot")}
    for number, key in enumerate(golds):
        right = rng.choice(3, p=[0.2, 0.3, 0.5])
        for place, texts in enumerate(arms.values()):
            texts[key] = f"a gold {number}." if place == right else "I don't know"
    return golds, arms


def figures(
    golds: dict[str, list[str]], texts: Answers, *, off_by: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stored figures of some answers: the router's file and the plain one."""
    acc = sum(is_answered(text, golds[key]) for key, text in texts.items()) + off_by
    em = sum(exact_match(text, golds[key]) for key, text in texts.items())
    return {"acc": acc / len(texts), "count": len(texts)}, {
        "em": em / len(texts),
        "f1": 0.5,
        "count": len(texts),
    }


def write_set(
    root: Path, name: str, *, model: str = MODEL, off_by: int = 0, parts: str = "dt", **more: Any
) -> None:
    """Write a question set in the repository's layout, with a router that always asks once."""
    for seed, part in enumerate(("dev_500", "test")):
        if part[0] not in parts:
            continue
        golds, arms = answers(name, seed)
        end = f"__{name}_to_{name}__{part}_subsampled.json.gz"
        for arm, texts in arms.items():
            folder = root / part / f"{arm}_qa_{model}_{name}{SETTINGS}"
            acc, em = figures(golds, texts, off_by=off_by if arm == "nor" else 0)
            for stem, value in (
                ("prediction", texts),
                ("ground_truth", golds),
                ("evaluation_metrics", em),
            ):
                write(folder / (stem + end), value, **more)
            write(folder / f"official_evaluation_metrics{end}", None, **more)
            if part == "test":
                write(folder / "eval_metic_result_acc.json.gz", acc, **more)
            if part == "test" and arm == "ircot":
                write(folder / "stepNum.json.gz", dict.fromkeys(texts, 4), **more)
        if part == "test":
            for epoch, arm in ((5, "ircot"), (15, "oner")):
                folder = (
                    root
                    / "classifier"
                    / "t5-large"
                    / model
                    / "epoch"
                    / str(epoch)
                    / "2024_11_28"
                    / name
                )
                option = {
                    key: {"prediction": text, "stepNum": 1, "option": "B"}
                    for key, text in arms[arm].items()
                }
                write(folder / f"{name}_option.json.gz", option, **more)
                write(
                    folder / "eval_metic_result_acc.json.gz", figures(golds, arms[arm])[0], **more
                )


def test_the_arm_that_does_not_refuse_is_taken(tmp_path: Path) -> None:
    """One arm is right in each question and the others refuse, which the signals show.

    All arms are called.
    """
    write_set(tmp_path, "nq")
    (row,) = adarague_rows(tmp_path)
    assert (row.cell, row.n, row.clusters, row.raglab, row.verdict) == (
        "nq",
        QUESTIONS,
        QUESTIONS,
        1.0,
        "ahead",
    )
    _, arms = answers("nq", 1)
    shares = {
        arm: np.mean(["gold" in text for text in texts.values()]) for arm, texts in arms.items()
    }
    assert row.free == pytest.approx(shares["ircot"])
    assert row.hindsight == pytest.approx(max(shares.values()))
    assert row.difference == pytest.approx(1.0 - shares["ircot"])
    assert (row.calls, row.reference_calls) == (6.0, 4.0)  # one, one, four steps
    assert row.reproduced == pytest.approx(row.published) == pytest.approx(shares["oner"])
    assert "epoch/15/" in row.published_source
    assert (
        row.reproduced_note
        == "0 of 10 stored acc and em differ, by 0 questions in all; the router's by 0"
    )
    assert "Less the router, of 1.00 calls" in row.note
    assert "raglab calls all 3 arms." in row.note
    assert "dropped" not in row.note
    assert row.free_name == f"{FIXED}: ircot"


def test_a_figure_that_does_not_reproduce_is_counted(tmp_path: Path) -> None:
    """Three questions more in the file of one arm."""
    write_set(tmp_path, "nq", off_by=3)
    (row,) = adarague_rows(tmp_path)
    assert row.reproduced_note.startswith("1 of 10 stored acc and em differ, by 3 questions in all")


def test_sets_models_and_their_pool(tmp_path: Path) -> None:
    """Plain files give the same lines.

    Models share questions, which are counted once in the line of all.
    """
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    for root, is_plain in ((packed, False), (plain / "deeper" / "predictions", True)):
        for name in ("nq", "2wiki_multi"):
            write_set(root, name, is_plain=is_plain)
    rows = adarague_rows(packed)
    assert [row.cell for row in rows] == ["2wiki_multi", "nq", "all"]
    assert [row._replace(published_source="") for row in rows] == [
        row._replace(published_source="") for row in adarague_rows(plain / "deeper" / "predictions")
    ]
    assert rows[-1].n == 2 * QUESTIONS
    assert rows[-1].difference == pytest.approx((rows[0].difference + rows[1].difference) / 2)
    write_set(packed, "nq", model="other_7b")
    rows = adarague_rows(packed)
    assert [row.cell for row in rows] == [
        f"2wiki_multi / {MODEL}",
        f"nq / {MODEL}",
        "nq / other_7b",
        "all",
    ]
    assert rows[-1].clusters == 2 * QUESTIONS
    assert "180 answers" in rows[-1].note


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A set without development questions, one question without an answer, one without gold.

    No router.
    """
    write_set(tmp_path, "squad", parts="t")
    write_set(tmp_path, "nq")
    folder = tmp_path / "test" / f"oner_qa_{MODEL}_nq{SETTINGS}"
    end = "__nq_to_nq__test_subsampled.json.gz"
    golds, arms = answers("nq", 1)
    keys = list(golds)
    write(
        folder / f"prediction{end}",
        {key: text for key, text in arms["oner"].items() if key != keys[0]},
    )
    first = tmp_path / "test" / f"ircot_qa_{MODEL}_nq{SETTINGS}"
    write(first / f"ground_truth{end}", golds | {keys[1]: [], keys[2]: ["the"]})
    nq, squad = adarague_rows(tmp_path)
    assert (squad.cell, squad.verdict, squad.n) == ("squad", "not judged", 0)
    assert "0 arms have answers in both parts" in squad.note
    assert "3 arms have answers in one part alone" in squad.note
    assert nq.n == QUESTIONS - 2
    assert "2 questions that an arm, the router or the gold answers lack are dropped." in nq.note
    assert "1 questions have a gold answer without a word" in nq.note
    assert "left out of the fit" not in nq.note
    # one test question, with a wrong gold answer
    for path in (tmp_path / "dev_500").rglob("[pg]r*__nq*"):
        wrong: Any = ["wrong"] if path.name.startswith("ground") else "wrong"
        write(path, json.loads(gzip.decompress(path.read_bytes())) | {keys[3]: wrong})
    (repeated, _) = adarague_rows(tmp_path)
    assert (
        "1 development questions are test questions too and are left out of the fit."
        in repeated.note
    )
    assert (repeated.raglab, repeated.free, repeated.n) == (nq.raglab, nq.free, nq.n)
    for path in (tmp_path / "classifier").rglob("*_option.json.gz"):
        path.unlink()
    row = adarague_rows(tmp_path)[0]
    assert isnan(row.published)
    assert isnan(row.reproduced)
    assert row.published_source == ""
    assert row.difference == pytest.approx(nq.difference)


def test_an_arm_of_two_settings_is_two_arms(tmp_path: Path) -> None:
    """The same arm with another number of passages."""
    write_set(tmp_path, "nq")
    for part in ("dev_500", "test"):
        folder = tmp_path / part / f"oner_qa_{MODEL}_nq{SETTINGS}"
        for path in list(folder.iterdir()):
            copy = folder.with_name(folder.name.replace("count__6", "count__15")) / path.name
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (row,) = adarague_rows(tmp_path)
    assert row.calls == 7.0


def moved(folder: Path, settings: str) -> None:
    """Rename the folder of an arm."""
    folder.rename(folder.with_name(folder.name.replace("count__6", settings)))


def test_an_arm_of_other_settings_in_development(tmp_path: Path) -> None:
    """One run in each part is one arm, and the note says so.

    Of several runs only those of both parts count.
    """
    write_set(tmp_path, "nq")
    (whole,) = adarague_rows(tmp_path)
    moved(tmp_path / "dev_500" / f"oner_qa_{MODEL}_nq{SETTINGS}", "count__15")
    (row,) = adarague_rows(tmp_path)
    assert row.note.endswith(
        "The settings of arm oner differ between development and test: "
        "prompt_set_1___bm25_retrieval_count__15___distractor_count__1 and "
        "prompt_set_1___bm25_retrieval_count__6___distractor_count__1."
    )
    assert (row.raglab, row.free, row.calls) == (whole.raglab, whole.free, whole.calls)
    copy = tmp_path / "test" / f"oner_qa_{MODEL}_nq{SETTINGS}"
    shutil.copytree(copy, copy.with_name(copy.name.replace("count__6", "count__9")))
    (row,) = adarague_rows(tmp_path)
    assert "3 arms have answers in one part alone and are left out: oner____prompt" in row.note
    assert row.calls == 5.0


def test_questions_of_another_model_s_test_are_not_in_the_pool(tmp_path: Path) -> None:
    """One model's development questions are the other's test.

    Their labels change nothing of its choice.
    """

    def exchanged(part: str) -> None:
        for path in (tmp_path / part).rglob("*_other_7b_*/*"):
            value = json.loads(gzip.decompress(path.read_bytes()))
            if path.name.startswith(("pred", "ground")):
                write(path, {key.replace("_0_", "_1_"): texts for key, texts in value.items()})

    write_set(tmp_path, "nq")
    write_set(tmp_path, "nq", model="other_7b")
    # test questions of the other model are further ones
    for folder in (tmp_path / "test").glob("*other*"):
        for path in folder.iterdir():
            value = json.loads(gzip.decompress(path.read_bytes()))
            if not path.name.startswith(("e", "o")):
                write(path, {key.replace("_1_", "_2_"): texts for key, texts in value.items()})
    for path in (tmp_path / "classifier").rglob("*"):
        if path.is_file():
            path.unlink()
    exchanged("dev_500")
    first, second, _ = adarague_rows(tmp_path)
    assert (
        "60 development questions are of another model's test and not in the ridge over all sets."
        in second.note
    )
    assert "another model's test" not in first.note
    assert first.n == second.n == QUESTIONS


@given(
    correct=st.lists(st.tuples(*[st.sampled_from([0.0, 1.0])] * 3), min_size=6, max_size=20),
    seed=st.integers(0, 9),
)
def test_labels_that_leak_are_in_no_pool(correct: list[tuple[float, ...]], seed: int) -> None:
    """The first set's choice ignores the labels of the second, which the pool leaves out."""
    rng = np.random.default_rng(seed)
    first, second = (
        part(correct, rng.integers(0, 2, (len(correct), 3)).astype(float)) for _ in range(2)
    )
    leaks = [np.zeros(len(correct), dtype=bool), np.ones(len(correct), dtype=bool)]
    other = second._replace(correct=1.0 - second.correct)
    (method, arms), _ = chosen_arms([first, second], [first, second], leaks)
    (same, same_arms), _ = chosen_arms([first, other], [first, other], leaks)
    assert (method, arms.tolist()) == (same, same_arms.tolist())


def test_gold_answers_in_lists_and_of_other_forms(tmp_path: Path) -> None:
    """Lists in lists are read.

    An object is no gold answer, and its question is dropped and counted.
    """
    write_set(tmp_path, "nq")
    (whole,) = adarague_rows(tmp_path)
    for path in tmp_path.rglob("ground_truth*"):
        golds = json.loads(gzip.decompress(path.read_bytes()))
        write(path, {key: [texts[:1], [texts[1:]]] for key, texts in golds.items()})
    (nested,) = adarague_rows(tmp_path)
    assert nested == whole
    for path in (tmp_path / "test").rglob("ground_truth*"):
        golds = json.loads(gzip.decompress(path.read_bytes()))
        golds |= {key: {"answer": golds[key]} for key in list(golds)[:4]}
        write(path, golds)
    (row,) = adarague_rows(tmp_path)
    assert row.n == QUESTIONS - 4
    assert "4 questions have a gold answer that is no text or number and are dropped." in row.note
    assert "the gold answers lack" not in row.note


def test_a_file_of_another_form_is_a_cell_that_is_not_judged(tmp_path: Path) -> None:
    """A list in the place of an object, one cut off, one without a byte, a link to nothing.

    Others are judged.
    """
    write_set(tmp_path, "nq")
    write_set(tmp_path, "squad")
    (before,) = (row for row in adarague_rows(tmp_path) if row.cell == "squad")
    path = next((tmp_path / "test").rglob("prediction__nq*"))
    faults = {
        "must be a JSON object": ["Paris"],
        "got EOFError": path.read_bytes()[:20],
        "nq_to_nq": b"",
        "FileNot": 0,
    }
    for text, value in faults.items():
        path.unlink()
        if isinstance(value, list):
            write(path, value)
        elif isinstance(value, bytes):
            path.write_bytes(value)
        else:
            path.symlink_to(tmp_path / "nothing")
        nq, squad = adarague_rows(tmp_path)
        assert (nq.cell, nq.verdict, text in nq.note) == ("nq", "not judged", True)
        assert (squad.raglab, squad.difference) == (before.raglab, before.difference)


def test_a_set_of_one_development_question(tmp_path: Path) -> None:
    """Has nothing to fit on, which is said; numbers that are texts are none."""
    write_set(tmp_path, "nq")
    for path in (tmp_path / "dev_500").rglob("*_nq__*.gz"):
        value = json.loads(gzip.decompress(path.read_bytes())) or {}
        write(path, {"em": "none"} if "em" in value else dict([*value.items()][:1]))
    (row,) = adarague_rows(tmp_path)
    assert (row.verdict, row.n) == ("not judged", 0)
    assert row.note == "1 questions of development that are not of test: a regression needs 2."


def test_files_that_are_ignored_are_counted(tmp_path: Path) -> None:
    """Of a second folder of a part; a folder in the place of a file is none."""
    write_set(tmp_path, "nq")
    before = adarague_rows(tmp_path)
    assert ignored_note(tmp_path) == ""
    for path in [*(tmp_path / "test").rglob("*.gz")]:
        copy = tmp_path / "test_2" / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / "test" / f"other_qa_{MODEL}_nq" / "prediction__nq_to_nq__test.json").mkdir(
        parents=True
    )
    assert repr(adarague_rows(tmp_path)) == repr(before)
    assert "ignored: 3 in test_2;" in ignored_note(tmp_path)
    assert adarague_folders(tmp_path) == {"dev_500", "test", "test_2"}


def test_signals_of_answers() -> None:
    """Agreement of each two arms, then of all.

    Words, a refusal, no answer, a digit, yes or no, a sentence.
    """
    row = answer_signals(
        [("The Eiffel Tower", "eiffel tower."), ("", "no"), ("I don't know", "born in 1990")]
    )
    assert row[0, :5].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0]
    assert row[1, :5].tolist() == [0.0, 0.0, 0.0, 0.0, 0.0]
    assert row[1, 7] == 1.0  # no answer
    assert row[1, 15] == 1.0  # no
    assert row[2, 6] == 1.0  # a refusal
    assert row[2, 14] == 1.0  # a digit
    assert row.shape == (3, 4 + 1 + 2 * 6)


CORRECT = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0])] * 3), min_size=3, max_size=20)


def part(correct: list[tuple[float, ...]], signals: np.ndarray[Any, Any]) -> AnswerPart:
    """Part of a set with some signals."""
    values = np.array(correct)
    return AnswerPart(tuple(map(str, range(len(values)))), values, np.ones_like(values), signals)


@given(correct=CORRECT)
def test_signals_that_tell_nothing_leave_the_best_fixed_arm(
    correct: list[tuple[float, ...]],
) -> None:
    """A mean without the question itself is never better than the arm of most correct answers."""
    development = part(correct, np.zeros((len(correct), 2)))
    ((method, arm),) = chosen_arms([development], [development])
    assert method == FIXED
    assert set(arm) == {int(np.array(correct).sum(axis=0).argmax())}


@given(correct=CORRECT, seed=st.integers(0, 50))
def test_judged_labels_choose_nothing(correct: list[tuple[float, ...]], seed: int) -> None:
    """Arms of judged questions are the same with and without labels; every question has one."""
    signals = np.random.default_rng(seed).integers(0, 2, (len(correct), 3)).astype(float)
    known = part(correct, signals)
    blind = known._replace(
        correct=np.full_like(known.correct, np.nan), calls=np.full_like(known.calls, np.nan)
    )
    ((method, arm),), ((same, blind_arm),) = (
        chosen_arms([known], [known]),
        chosen_arms([known], [blind]),
    )
    assert method == same
    assert arm.tolist() == blind_arm.tolist()
    assert set(arm) <= {0, 1, 2}


@given(wins=st.integers(0, 12), losses=st.integers(0, 12))
def test_the_interval_is_no_narrower_than_the_sign_test(wins: int, losses: int) -> None:
    """Five wins to none tell nothing at 95 % (p = .0625), six to none do (p = .031)."""
    gain = np.array([1.0] * wins + [-1.0] * losses + [0.0] * (30 - wins - losses))
    correct = pd.DataFrame({RAGLAB: (gain > 0).astype(float), FIXED: (gain < 0).astype(float)})
    difference, low, high = _difference(correct, FIXED, 0.95, 0)
    assert difference == pytest.approx((wins - losses) / 30)
    assert low <= difference + 1e-12
    assert difference <= high + 1e-12
    if not losses:
        assert (low > 0.0) == (wins >= 6)


@pytest.mark.skipif(not REAL.is_dir(), reason="the repository's files are not there")
def test_the_repository_s_files() -> None:
    """Every stored acc reproduces.

    Em differs where the repository counts it by another rule, in one set.
    """
    rows = adarague_rows(REAL)
    cells: dict[str, LeagueRow] = {row.cell: row for row in rows}
    assert all(row.reproduced == pytest.approx(row.published) for row in rows if row.cell != "all")
    published = {"nq": 0.490, "squad": 0.290, "trivia": 0.632, "hotpotqa": 0.414}
    assert {name: cells[name].published for name in published} == published
    off = {
        name
        for name, row in cells.items()
        if row.cell != "all" and not row.reproduced_note.startswith("0 of")
    }
    assert off <= {"hotpotqa"}
    assert all(
        row.reproduced_note.endswith("the router's by 0") for row in rows if row.cell != "all"
    )
    assert cells["all"].verdict == "ahead"
    assert all(row.verdict in {"ahead", "level"} for row in rows)


def test_no_gold_answers(tmp_path: Path) -> None:
    """Predictions alone are judged by nothing, and the line says what lacks."""
    write_set(tmp_path, "nq")
    for path in (tmp_path / "test").rglob("ground_truth*"):
        path.unlink()
    (row,) = adarague_rows(tmp_path)
    assert (row.verdict, row.n) == ("not judged", 0)
    assert "Beside the predictions of test lies no gold answer." in row.note


def test_a_router_without_answers_is_ignored(tmp_path: Path) -> None:
    """The arms are judged as if none were stored, and the line says so."""
    write_set(tmp_path, "nq")
    for path in (tmp_path / "classifier").rglob("*_option.json*"):
        write(path, {})
    (row,) = adarague_rows(tmp_path)
    assert row.verdict != "not judged"
    assert (isnan(row.published), isnan(row.reproduced), row.published_source) == (True, True, "")
    assert "The router's file answers no test question and is ignored." in row.note
