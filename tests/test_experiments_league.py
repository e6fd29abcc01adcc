"""The league's study: laws of its rows, and miniatures of the published layouts."""

from __future__ import annotations

import doctest
import gzip
import importlib
import json
import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from math import comb, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.league import __main__ as study
from experiments.league.adarague import AnswerPart, chosen_arms
from experiments.league.answers import REACH, Part, answer_rows, scored_answers
from experiments.league.dba import dba_answers, dba_rows, left_out_parts
from experiments.league.nomiracl import nomiracl_rows
from experiments.league.own_table import own_rows, question_parts
from experiments.league.rows import (
    RATES,
    league_frame,
    paired_interval,
    row_verdict,
)
from refusals import refused

GUIDE = Path(__file__).parents[1] / "docs" / "league.md"
RUN_GUIDE = GUIDE.with_name("league_run.md")
GRID = st.integers(-3, 3).map(lambda value: value / 4)


@pytest.mark.parametrize("name", ["adarague", "answers", "nomiracl", "refusals", "rows"])
def test_examples(name):
    """Of the docstrings."""
    result = doctest.testmod(importlib.import_module(f"experiments.league.{name}"))
    assert result.attempted > result.failed == 0


class TestRows:
    """Verdicts and intervals."""

    @given(GRID, GRID)
    def test_the_verdict_turns_with_the_metric_and_the_sides(self, first, second):
        """Of a metric of which less is better, and of both sides exchanged, it is the opposite."""
        low, high = min(first, second), max(first, second)
        opposite = {"better": "worse", "worse": "better", "level": "level"}
        verdict = row_verdict("AUROC", low, high)
        assert (verdict == "level") == (low <= 0.0 <= high)
        assert row_verdict(RATES[0], low, high) == opposite[verdict]
        assert row_verdict("AUROC", -high, -low) == opposite[verdict]
        assert row_verdict("AUROC", nan, high) == "not judged"

    @given(wins=st.integers(0, 19), losses=st.integers(0, 19))
    def test_few_unequal_pairs_are_judged_by_the_sign_test(self, wins, losses):
        """The interval turns with the sides, holds the mean; five wins to none show nothing."""
        gain = np.array([1.0] * wins + [-1.0] * losses + [0.0] * 200)
        low, high = paired_interval(gain)
        assert paired_interval(-gain) == pytest.approx((-high, -low))
        assert low <= gain.mean() <= high
        pairs = wins + losses
        chance = sum(comb(pairs, k) for k in range(min(wins, losses) + 1)) / 2**pairs
        if pairs < 20 and 2.0 * chance > 0.05:
            assert low <= 0.0 <= high


def answer_table(seed, levels):
    """Two cells of 80 answers; signals of few levels, with ties, blanks, and against the labels."""
    rng = np.random.default_rng(seed)
    correct, cell = rng.random(160) < 0.5, np.repeat(["a", "b"], 80)
    table = pd.DataFrame(
        {
            "cell": cell,
            "question": np.arange(160).astype(str),
            "correct": correct,
            "reference": (rng.random(160) < np.where(correct, 0.6, 0.4)).astype(float),
            "x": rng.integers(0, levels, 160) + correct + np.where(cell == "b", 0.25, 0.0),
            "y": rng.integers(0, levels, 160) + (~correct).astype(float),
        }
    )
    table.loc[rng.random(160) < 0.1, "x"] = nan
    return table, [Part(cell == name, cell != name, "the other cell") for name in ("a", "b")]


class TestAnswers:
    """Judged by what was fitted on others."""

    @pytest.mark.parametrize(("seed", "levels"), [(0, 1), (1, 2), (2, 4)])
    def test_what_moves_no_score(self, seed, levels):
        """Labels of judged answers, the sign of a column, a blank filled with the fit's median."""
        table, parts = answer_table(seed, levels)
        is_a = parts[0].judged
        scored = scored_answers(table, parts)["score"]
        turned = table.assign(correct=table["correct"] ^ is_a)
        after = scored_answers(turned, parts)["score"]
        assert after[is_a].equals(scored[is_a])
        assert not after[~is_a].equals(scored[~is_a])
        filled = table.fillna({"x": float(np.nanmedian(table["x"][parts[0].fit]))})
        assert scored_answers(filled, parts[:1])["score"][is_a].equals(scored[is_a])
        signs = answer_rows("t", table.assign(y=-table["y"]), parts, "r")
        rows = answer_rows("t", table, parts, "r")
        figures = ["raglab", "difference", "low", "high", "hindsight"]
        pd.testing.assert_frame_equal(league_frame(signs)[figures], league_frame(rows)[figures])

    @pytest.mark.parametrize(("groups", "questions"), [(1, 20), (2, 240), (4, 45)])
    def test_no_question_is_judged_by_itself(self, groups, questions):
        """Every answer is judged once, by others."""
        table, _ = answer_table(4, 3)
        table["cell"] = np.array([*"abcd"])[np.arange(160) % groups]
        table["question"] = np.arange(160) * 7 % questions
        parts = question_parts(table, 0)
        assert (np.sum([part.judged for part in parts], axis=0) == 1).all()
        for part in parts:
            assert not set(table["question"][part.judged]) & set(table["question"][part.fit])

    def test_signals_that_know_nothing(self):
        """Of 8 tables of noise, judged in five folds, at most one verdict is not level."""
        verdicts: list[str] = []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            fold = np.arange(300) % 5
            table = pd.DataFrame(rng.normal(size=(300, 4)), columns=[*"xyzw"]).assign(
                cell="c", question=np.arange(300), correct=rng.random(300) < 0.5
            )
            table["reference"] = rng.normal(size=300)
            parts = [Part(fold == number, fold != number, "") for number in range(5)]
            rows = answer_rows("t", table, parts, "r", reach=REACH)
            verdicts += league_frame(rows)["verdict"].tolist()
        assert len(verdicts) == 8
        assert sum(verdict != "level" for verdict in verdicts) <= 1


def write_records(path, records):
    """JSON lines, gzipped where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


VOTES = {"ays": 0.7, "idk": 0.65, "pairwise_assistive": 0.75}  # chance to tell right from wrong


def dba_folder(folder, suffix=""):
    """Two question sets of three models; the second set names a vote `ic_idk`."""
    for place, (name, model) in enumerate((s, m) for s in ("first", "second") for m in "abc"):
        rng = np.random.default_rng(place)
        records = []
        for number in range(70):
            correct = int(rng.random() < 0.5)
            votes = {
                f"ic_{vote}" if vote == "idk" and name == "second" else vote: {
                    "accepted": bool((rng.random() < chance) == bool(correct)),
                    "correct": correct,
                }
                for vote, chance in VOTES.items()
            }
            records.append({"id": f"q{number}", "baselines": votes})
        records[0]["baselines"]["pairwise_assistive"]["correct"] = -1
        del records[1]["baselines"]["pairwise_assistive"]
        records[2]["baselines"]["ays"]["correct"] = 2
        write_records(folder / name / model / f"full.jsonl{suffix}", records)
    return folder


def nomiracl_folder(folder, models=("gpt-4", "gpt-3.5", "orca")):
    """Each model answers what can be answered with chance .8, and else with .3."""
    replies = ("I don't know. None of them says so.", "Yes, answer is present in [2].")
    for number, language in enumerate(("aa", "bb", "cc")):
        for name, chance in (("relevant", 0.8), ("non_relevant", 0.3)):
            rng = np.random.default_rng([number, int(10 * chance)])
            records = [
                {
                    "query_id": f"{language}{question}",
                    "results": {model: replies[int(rng.random() < chance)] for model in models},
                }
                for question in range(40)
            ]
            write_records(folder / name / f"{language}.test.vanilla_prompt.jsonl.gz", records)
    return folder


class TestTables:
    """Miniatures of the four layouts."""

    def test_dba(self, tmp_path):
        """What is dropped is counted; gzipped files and the other name of a vote change nothing."""
        rows = dba_rows(dba_folder(tmp_path / "plain"))
        assert repr(rows) == repr(dba_rows(dba_folder(tmp_path / "packed", ".gz")))
        assert len(rows) == 14
        assert {row.calls for row in rows} == {3.0}
        answers, notes = dba_answers(tmp_path / "plain")
        assert len(answers) == 6 * 68
        assert answers[[*VOTES]].notna().all(axis=None)
        for part in left_out_parts(answers):
            judged, fit = (answers.loc[rows, ["set", "model"]] for rows in part[:2])
            assert len(fit) == 2 * 68
            assert not (fit == judged.iloc[0]).any(axis=None)
        assert [int(n) for n in re.findall(r": (\d+)", notes["first / a"])] == [1, 1, 1]

    def test_labels_of_test_choose_no_arm(self):
        """Only the signals of what is judged are read."""
        rng = np.random.default_rng(0)
        parts = []
        for _ in range(4):
            signals = rng.normal(size=(30, 2))
            correct = pd.DataFrame((signals + rng.normal(size=(30, 2)) > 0.0).astype(float))
            parts.append(AnswerPart(correct, correct, signals))
        judged = parts[2:]
        turned = [part._replace(correct=1.0 - part.correct) for part in judged]
        chosen = [chosen_arms(parts[:2], table) for table in (judged, turned)]
        for (method, arms), (method_turned, arms_turned) in zip(*chosen, strict=True):
            assert method == method_turned
            np.testing.assert_array_equal(arms, arms_turned)

    @pytest.mark.filterwarnings("ignore:.*components:UserWarning")
    def test_the_program(self, tmp_path, capsys, monkeypatch):
        """Prints a line a row, and writes them with a picture a table."""
        monkeypatch.setattr(study, "TABLES", {"dba": dba_rows, "nomiracl": nomiracl_rows})
        for make in (dba_folder, nomiracl_folder):
            make(tmp_path / make.__name__.partition("_")[0])
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["league", str(tmp_path), "--out", str(out)])
        study.main()
        rows = pd.read_csv(out / "rows.csv")
        printed = capsys.readouterr().out.splitlines()
        assert len(rows) == sum(line.startswith("| ") for line in printed) - 2 == 14 + 16
        assert {path.stem for path in out.glob("*.png")} == {
            f"league-{name}" for name in study.TABLES
        }


class TestOwnTable:
    """A table of one's own, and the page."""

    def test_the_blocks_of_the_page_run(self, tmp_path, monkeypatch):
        """A block of text is what the block before it printed; each table has a small picture."""
        monkeypatch.chdir(tmp_path)
        text = RUN_GUIDE.read_text(encoding="utf-8")
        (code, printed) = re.findall(r"```(?:python|text)\n(.*?)```", text, flags=re.DOTALL)
        with redirect_stdout(StringIO()) as stream:
            exec(compile(code, RUN_GUIDE.name, "exec"), {})  # noqa: S102 - the project's own page
        assert stream.getvalue() == printed
        for name in study.TABLES:
            assert f"\n## {name}: " in GUIDE.read_text(encoding="utf-8")
            assert (GUIDE.parent / "pictures" / f"league-{name}.png").stat().st_size <= 80_000
        table = pd.read_csv("own.csv")
        for name, column in (
            ("baseline", 1 - table["baseline"]),
            ("id", table["id"].where(table["id"] > 3)),
        ):
            table.assign(**{name: column}).to_csv("table.csv", index=False)
            refused("baseline must be|must be filled", own_rows, Path("table.csv"))
