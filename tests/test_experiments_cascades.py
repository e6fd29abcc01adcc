"""Tables of cascades: what a look at a table finds, and miniatures of the published layouts."""

from __future__ import annotations

import doctest
import importlib
import json

import numpy as np
import pandas as pd
import pytest

from experiments import cascade_levels
from experiments.league.abstention import INTERVENED, VANILLA, abstention_cells, is_right
from experiments.league.cascade_looks import abstention_looks, date_looks, router_looks
from experiments.league.cascade_rows import abstention_rows, certified_halves, refusal_rows
from experiments.league.llmrouter import llmrouter_rows
from experiments.league.mot_cascade import KINDS, STRONG, WEAK, date_table, vote_signals
from experiments.league.table_checks import constant_columns, near_duplicates, turned_groups
from refusals import refused


@pytest.mark.parametrize("name", ["abstention", "cascade_looks", "mot_cascade", "table_checks"])
def test_examples(name):
    """Of the docstrings."""
    result = doctest.testmod(importlib.import_module(f"experiments.league.{name}"))
    assert result.attempted > result.failed == 0


def test_a_near_duplicate_is_found_and_a_short_common_start_is_not():
    """By runs of five words, whatever case and punctuation."""
    text = " ".join(f"word{n}" for n in range(40))
    longer, other = f"{text.upper()}, more!", "word0 word1 word2 word3 word4 and then quite another"
    assert near_duplicates([longer, other, text], [text]).tolist() == [True, False, True]


def test_a_direction_that_turns_in_a_group():
    """Told with its group; a group with few answers and a signal without direction are not."""
    rng = np.random.default_rng(0)
    correct, group = np.arange(400) % 2 == 0, np.repeat(["a", "b", "c"], [250, 140, 10])
    sign = np.where(group == "b", -1.0, 1.0)
    turning = sign * correct + rng.normal(0, 0.5, 400)
    signals = pd.DataFrame({"turns": turning, "noise": rng.random(400), "sure": 1.0})
    assert constant_columns(signals) == ["sure"]
    assert turned_groups(signals[["turns", "noise"]], correct, group) == ["turns in b"]


def write_dates(folder, n_questions):
    """Layout of the cascade: the weak votes of a hard question scatter."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(n_questions):
        hard = number % 5 == 0
        question = {"question": f"It is day {number // 2}. What is day {number}?", "answer": "1"}
        rows.append((question, [[str(rng.integers(9)) if hard else "1"] * 20 for _ in KINDS]))
    rows[1][1][0][:2] = [None, None]
    for place, kind in enumerate(KINDS):
        path = folder / f"GPT3_result/date_{kind}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([row | {"results": votes[place]} for row, votes in rows]))
    path = folder / "GPT4_result/date_greedy_cot2.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([row | {"prediction": "1"} for row, _ in rows]))


def test_the_date_cascade(tmp_path):
    """Votes that scatter send a question to the strong model; halves of stems keep these whole."""
    write_dates(tmp_path, 120)
    dates = date_table(tmp_path)
    assert dates.table.arms == (WEAK, STRONG)
    assert dates.table.gross[:, 1].all()
    assert len(set(dates.stems)) == 60
    for by_stem in (False, True):
        halves = certified_halves(dates, 2, by_stem=by_stem)
        assert (halves["policy"] > halves["mixture"]).all()
        assert (halves["calls"] <= 0.3).all()
    near, failed, constant, turned = date_looks(dates, halves, halves, halves)
    assert near.whole.split(";")[0].endswith("of 2")
    assert (failed.check, failed.finding) == ("failed votes", "2 votes of 1 questions")
    assert constant.finding == "all votes alike in 95 of 120 questions"
    assert constant.whole != constant.without
    assert turned.finding.startswith("in 0 of 2 fitted halves")
    path = tmp_path / "GPT3_result/date_cot1.json"
    path.write_text(json.dumps(json.loads(path.read_text())[1:]))
    refused("all files must have the same questions", date_table, tmp_path)


def test_a_vote_that_failed_counts_or_is_left_out():
    """No answer at all has no share, and is no error."""
    assert vote_signals([["a", None], ["a", "b"]])["first"] == 0.5
    assert vote_signals([["a"], ["a", "b"]])["first"] == pytest.approx(2 / 3)
    assert vote_signals([[], []]) == {"first": 0.0, "second": 0.0, "least_kind": 0.0}


def test_the_models_of_a_router(tmp_path):
    """A test question that stands in train is in the row of all and not in the clean one."""
    rng = np.random.default_rng(0)
    words = np.array(
        ["river", "bridge", "engine", "letter", "garden", "window", "number", "planet"]
    )
    parts = {}
    for part, size in (("train", 80), ("test", 20)):
        parts[part] = [
            {
                "question": f"{part} {number} {' '.join(rng.choice(words, 12))}",
                "cluster_id": number % 2,
                "scores": {"large": 1.0 - 0.5 * (number % 2), "small": float(rng.random() < 0.5)},
            }
            for number in range(size)
        ]
    parts["test"][:5] = parts["train"][:5]
    for part, records in parts.items():
        path = tmp_path / f"dcrouter_preprocessed/{part}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(records))
    listed = tmp_path / "example_data/llm_candidates/default_llm.json"
    listed.parent.mkdir(parents=True)
    listed.write_text(json.dumps({"large": {"output_price": 0.9}, "small": {"output_price": 0.2}}))
    rows = llmrouter_rows(tmp_path)
    assert [row.n for row in rows] == [20, 15, 20, 15]
    assert {row.note.partition(";")[0] for row in rows} == {
        "5 of 20 test questions are nearly in train"
    }
    plain, ridge, constant, turned = router_looks(tmp_path)
    assert plain.finding == "5 of 20 test questions nearly in train, 5 wholly"
    assert plain.whole.endswith("n 20")
    assert ridge.without.endswith("n 15")
    assert constant.finding == "1 of 10 signals"  # all train texts have 14 words
    assert constant.without == constant.whole
    assert turned.without == "the same"


def write_replies(folder, model):
    """Replies to 30 answerable and 30 unanswerable questions; only the latter are doubted."""
    for kind, doubts in (("solve", 0), ("unsolve", 5)):
        first, again = (
            folder / f"stage1/SUM/{model}/{kind}/generation_log.jsonl",
            folder / f"stage2/SUM/{model}/{kind}_intervention_result.jsonl",
        )
        for path, is_first in ((first, True), (again, False)):
            path.parent.mkdir(parents=True, exist_ok=True)
            records = []
            for number in range(30):
                is_refused = not is_first and number % 2 < doubts and number % 10 < 1 + doubts
                reply = "I don't know." if is_refused else f"\\boxed{{{15 + (number % 3 == 0)}}}"
                records.append(
                    {
                        "question_index": number,
                        "input_text": f"{kind} {number}? Let's think step by step.",
                        "GT_answer": "15" if kind == "solve" else "",
                        "output": f"{'wait ' * (doubts + number % 4)}</think> {reply}",
                    }
                )
            path.write_text("\n".join(map(json.dumps, records)))


def test_replies_of_reasoning_models(tmp_path):
    """Right by the last box, or by not knowing; a cell without all four files is left out."""
    assert not is_right(r"\boxed{15} and on", "15")
    assert not is_right(r"</think> \boxed{16}", "15")
    assert not is_right(r"</think> \boxed{15}", None)
    for model in ("m", "n"):
        write_replies(tmp_path / "out", model)
    cells = [*abstention_cells(tmp_path)]
    assert [(cell.group, cell.model) for cell in cells] == [("SUM", "m"), ("SUM", "n")]
    table = cells[0].table
    assert (len(cells[0].kinds), table.arms) == (60, (VANILLA, INTERVENED))
    assert cells[0].questions[0] == "solve 0?"
    assert cells[0].refused[:, 0].sum() == 0
    assert abstention_rows(cells)["n"].tolist() == [30, 30]
    refusals = refusal_rows(cells).set_index("model")
    assert refusals.index.tolist() == ["m", "n", "all"]
    assert (refusals["first"] == 0.0).all()
    assert (refusals["fitted"] == 1.0).all()
    assert refusals["intervened"].eq(cells[0].refused[30:, 1].mean()).all()
    assert (refusals["false, fitted"] <= refusals["false, intervened"]).all()
    near, constant, turned = abstention_looks(cells)
    assert near.finding == "0 of 60 judged questions are nearly in the fitted half"
    assert "ended of SUM m" in constant.finding
    assert turned.whole.endswith("n 60")
    (tmp_path / "out/stage2/SUM/m/solve_intervention_result.jsonl").unlink()
    assert len([*abstention_cells(tmp_path)]) == 1


@pytest.mark.parametrize("kind", cascade_levels.KINDS)
def test_false_promises_are_few(kind):
    """A miniature of the simulation; 5,000 repetitions are in experiments/README.md."""
    k = cascade_levels.false_promises("share", kind, repetitions=15, seed=1)
    assert k <= 5
