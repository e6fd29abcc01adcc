"""Tables of ParetoBandit: a line a budget, chosen on validation and judged once on test."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.extensions.league.paretobandit import BUDGETS, arm_tables, paretobandit_rows

REAL = Path(__file__).parents[4] / "shared" / "data" / "league" / "paretobandit"
ONE = {0.5: 0.8}  # one budget, and its published reward
Records = list[dict[str, Any]]


def records(seed: int, size: int = 120) -> Records:
    """Two models; the dear one is better at long prompts alone, at the same cost everywhere."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(size):
        is_long = bool(rng.integers(2))
        arms = {
            "small": {"reward": 0.4 if is_long else 0.8, "cost": 0.1, "near_best": False},
            "large": {"reward": 0.9 if is_long else 0.8, "cost": 1.0, "near_best": True},
        }
        prompt = f"question {seed} {number} " + "word " * (40 if is_long else 4)
        rows.append(
            {
                "prompt": prompt,
                "difficulty": "hard",
                "arms": arms,
                "source": "long" if is_long else "short",
            }
        )
    return rows


def write(folder: Path, name: str, rows: Records, *, is_plain: bool = False) -> None:
    """Write a file in the repository's layout."""
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if is_plain:
        (folder / f"{name}.jsonl").write_text(text)
    else:
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def written(
    folder: Path, change: Callable[[str, Records], Records] = lambda _, rows: rows, **more: Any
) -> Path:
    """Folder with a pair of files, each changed."""
    for seed, name in enumerate(("val_k2", "test_k2")):
        write(folder, name, change(name, records(seed)), **more)
    return folder


pytestmark = pytest.mark.filterwarnings("ignore:.*components:UserWarning")


def test_the_dear_model_is_called_where_it_pays(tmp_path: Path) -> None:
    """Half the prompts are long.

    At the cost of half the calls, the price takes them and a mixture any.
    """
    (row,) = paretobandit_rows(written(tmp_path), budgets={0.55: 0.7})
    assert (row.cell, row.n, row.clusters, row.verdict) == ("k2 / budget 0.55", 120, 120, "ahead")
    assert row.raglab == pytest.approx(0.85, abs=0.02)
    assert row.free == pytest.approx(0.725, abs=0.02)
    assert row.difference == pytest.approx(row.raglab - row.free)
    assert row.published == 0.7
    assert "another file" in row.published_source
    assert isnan(row.reproduced)
    assert (row.calls, row.reference_calls) == (1.0, 1.0)
    assert "small" in row.free_name
    assert "large" in row.free_name
    assert "dropped" not in row.note


def test_budgets_of_the_paper(tmp_path: Path) -> None:
    """Below the cheapest model nothing is chosen, and the line says so."""
    rows = paretobandit_rows(written(tmp_path))
    assert [row.published for row in rows] == list(BUDGETS.values())
    amounts = [float(row.cell.rpartition(" ")[2]) for row in rows]
    assert amounts == sorted(amounts)
    for row in rows:
        assert (row.difference, row.low, row.high, row.verdict) == (0.0, 0.0, 0.0, "level")
        assert "No arm keeps this budget on validation" in row.note
        assert row.free_name.endswith("1.000 small")


def test_a_budget_that_does_not_bind(tmp_path: Path) -> None:
    """The dear model everywhere is as good as any choice.

    Just below, a choice is better than a mixture.
    """
    nearly, all_dear = paretobandit_rows(written(tmp_path), budgets={0.9: nan, 1.0: nan})
    assert all_dear.raglab == pytest.approx(all_dear.free)
    assert nearly.verdict == "ahead"
    assert isnan(nearly.published)
    assert nearly.published_source == "none of this budget"


def test_plain_and_gzipped_files_give_the_same_lines(tmp_path: Path) -> None:
    """Same input, same lines; another seed draws other resamples."""
    packed, plain = written(tmp_path / "packed"), written(tmp_path / "plain", is_plain=True)
    first = paretobandit_rows(packed, budgets=ONE)
    assert first == paretobandit_rows(plain, budgets=ONE) == paretobandit_rows(packed, budgets=ONE)
    assert first[0].low != paretobandit_rows(packed, budgets=ONE, seed=1)[0].low


def test_rewards_of_test_choose_nothing(tmp_path: Path) -> None:
    """With test rewards reversed the spend is the same, and raglab's policy loses what it won."""

    def turned(name: str, rows: Records) -> Records:
        for cell in (cell for row in rows if name == "test_k2" for cell in row["arms"].values()):
            cell["reward"] = 1.0 - cell["reward"]
        return rows

    (row,) = paretobandit_rows(written(tmp_path / "first"), budgets=ONE)
    (other,) = paretobandit_rows(written(tmp_path / "second", turned), budgets=ONE)
    assert (row.note, row.free_name) == (other.note, other.free_name)
    assert other.difference == pytest.approx(-row.difference)
    assert (row.verdict, other.verdict) == ("ahead", "behind")


def test_lines_that_cannot_be_scored_are_dropped_and_counted(tmp_path: Path) -> None:
    """A reward above 1, a cost below 0, a boolean, a missing arm or prompt: none of them counts."""
    broken: list[dict[str, Any]] = [
        {"small": {"reward": 1.5, "cost": 0.1}},
        {"small": {"reward": 0.5, "cost": -0.1}},
        {"small": {"reward": True, "cost": 0.1}},
        {"small": "none"},
    ]

    def damaged(name: str, rows: Records) -> Records:
        if name == "val_k2":
            rows += [{**rows[0], "arms": rows[0]["arms"] | arms} for arms in broken]
            rows += [
                records(1)[0],
                {**rows[0], "prompt": None},
                {**rows[0], "arms": {"large": rows[0]["arms"]["large"]}},
            ]
        return rows

    (row,) = paretobandit_rows(written(tmp_path / "damaged", damaged), budgets=ONE)
    (whole,) = paretobandit_rows(written(tmp_path / "whole"), budgets=ONE)
    assert "6 lines without a prompt, or a reward or cost of some arm, are dropped." in row.note
    assert "1 lines of validation have a prompt of test and are left out of the fit." in row.note
    assert row._replace(note="") == whole._replace(note="")


def test_a_third_arm_and_several_pairs(tmp_path: Path) -> None:
    """Pairs are told by their ending.

    A file without its partner, or without costs, is not judged.
    """

    def wider(_: str, rows: Records) -> Records:
        return [
            {**row, "arms": row["arms"] | {"middle": {"reward": 0.7, "cost": 0.5}}} for row in rows
        ]

    written(tmp_path)
    for seed, name in enumerate(("val_k3", "test_k3")):
        write(tmp_path, name, wider(name, records(seed)))
    write(tmp_path, "val_k4", records(0))
    for seed, name in enumerate(("val_k5", "test_k5")):
        free = {arm: {"reward": 0.5, "cost": 0.0} for arm in ("small", "large")}
        write(tmp_path, name, [{**row, "arms": free} for row in records(seed)])
    rows = paretobandit_rows(tmp_path, budgets=ONE)
    assert [row.cell for row in rows] == ["k2 / budget 0.5", "k3 / budget 0.5", "k4", "k5"]
    assert [row.verdict for row in rows] == ["ahead", "ahead", "not judged", "not judged"]
    tables = arm_tables(tmp_path / "val_k3.jsonl.gz", tmp_path / "test_k3.jsonl.gz")
    assert tables is not None
    assert tables.test.arms == ("large", "middle", "small")


def test_the_mixture_is_chosen_where_prompts_tell_nothing(tmp_path: Path) -> None:
    """Rewards that do not hang on the prompt.

    No price earns more than the mixture on validation.
    """

    def even(_: str, rows: Records) -> Records:
        rng = np.random.default_rng(7)
        for row in rows:
            row["arms"] = {
                arm: cell | {"reward": float(rng.integers(2))} for arm, cell in row["arms"].items()
            }
        return rows

    (row,) = paretobandit_rows(written(tmp_path, even), budgets={0.2: 0.5})
    assert row.difference == 0.0
    assert "which is raglab's policy" in row.note


LINE = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0, 2.0])),
    min_size=2,
    max_size=2,
)


def test_few_questions_and_few_gains_tell_nothing(tmp_path: Path) -> None:
    """Below 20 test questions there is no interval.

    Five gains in 120 questions tell nothing, ten do.
    """

    def few(name: str, rows: Records) -> Records:
        return rows[:19] if name == "test_k2" else rows

    (row,) = paretobandit_rows(written(tmp_path / "few", few), budgets={0.55: 0.7})
    assert (row.n, row.verdict, isnan(row.low)) == (19, "not judged", True)
    assert "Fewer than 20 test questions: not judged." in row.note
    for gains, verdict in ((5, "level"), (10, "ahead")):

        def rare(name: str, rows: Records, gains: int = gains) -> Records:
            for number, record in enumerate(rows):
                is_long = number < (gains if name == "test_k2" else 60)
                record["source"] = "long" if is_long else "short"
                record["prompt"] = f"{name} {number} " + "word " * (40 if is_long else 4)
                record["arms"] = {
                    "small": {"reward": 0.5, "cost": 0.1},
                    "large": {"reward": 1.0 if is_long else 0.5, "cost": 1.0},
                }
            return rows

        (row,) = paretobandit_rows(written(tmp_path / str(gains), rare), budgets={0.12: 0.7})
        assert row.difference > 0.0
        assert row.verdict == verdict


def test_an_arm_that_is_left_out_is_named(tmp_path: Path) -> None:
    """One that most lines lack and one of another reward scale, with the numbers of lines."""

    def more(_: str, rows: Records) -> Records:
        for number, row in enumerate(rows):
            row["arms"] |= {"stars": {"reward": 4.0, "cost": 0.2}}
            if number < 50:
                row["arms"] |= {"rare": {"reward": 0.5, "cost": 0.2}}
        return rows

    (row,) = paretobandit_rows(written(tmp_path, more), budgets=ONE)
    lines = "lines of validation have a reward in [0, 1] and a cost of it"
    assert f"Arm rare is left out: 50 of 120 {lines}, 0 have others." in row.note
    assert f"Arm stars is left out: 0 of 120 {lines}, 120 have others." in row.note


def test_lines_without_arms_are_counted_beside_an_arm_that_is_left_out(tmp_path: Path) -> None:
    """A validation line without `arms` has no cell of the arm; no test line counts in its place."""

    def bare(name: str, rows: Records) -> Records:
        for number, row in enumerate(rows):
            row["arms"] |= (
                {"stars": {"reward": 4.0, "cost": 0.2}} if name == "test_k2" or number < 100 else {}
            )
            if name == "val_k2" and number < 30:
                row["arms"] = [None, "none", 3][number % 3]
            if name == "val_k2" and number < 10:
                del row["arms"]
        return rows

    (row,) = paretobandit_rows(written(tmp_path, bare), budgets=ONE)
    lines = "lines of validation have a reward in [0, 1] and a cost of it"
    assert f"Arm stars is left out: 0 of 120 {lines}, 70 have others." in row.note
    assert "30 lines without a prompt, or a reward or cost of some arm, are dropped." in row.note
    assert row.fitted_on.startswith("90 questions of val_k2")


def test_a_prompt_of_test_in_other_letters_is_not_fitted_on(tmp_path: Path) -> None:
    """Case, blanks and punctuation do not make another question."""

    def copied(name: str, rows: Records) -> Records:
        return rows + [row | {"prompt": row["prompt"].upper() + " !\n"} for row in records(1)] * (
            name == "val_k2"
        )

    (row,) = paretobandit_rows(written(tmp_path, copied), budgets=ONE)
    assert row.fitted_on.startswith("120 questions of val_k2")
    assert "120 lines of validation have a prompt of test" in row.note


def test_costs_of_test_are_read_by_the_price_alone(tmp_path: Path) -> None:
    """A price that follows the spend says so; a mixture reads nothing of test.

    No seed moves the components.
    """
    priced, none = paretobandit_rows(written(tmp_path), budgets={0.55: nan, 0.05: nan})[::-1]
    assert priced.fitted_on.endswith(
        "no reward of test_k2; the price follows the costs already spent there"
    )
    assert none.fitted_on.endswith("nothing of test_k2")
    (other,) = paretobandit_rows(tmp_path, budgets={0.55: nan}, seed=5)
    assert (other.raglab, other.difference) == (priced.raglab, priced.difference)


@settings(max_examples=12, deadline=None)
@given(lines=st.lists(LINE, min_size=20, max_size=26), budget=st.sampled_from([0.25, 1.0, 3.0]))
def test_a_line_keeps_its_laws(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[tuple[float, float]]], budget: float
) -> None:
    """Rewards are in [0, 1], the difference is in its interval, and a verdict follows from it."""
    folder = tmp_path_factory.mktemp("laws")
    for name in ("val_k2", "test_k2"):
        cells = [
            {arm: {"reward": r, "cost": c} for arm, (r, c) in zip("ab", line, strict=True)}
            for line in lines
        ]
        rows = [
            {"prompt": f"word {name} {number}", "source": "a", "arms": arms}
            for number, arms in enumerate(cells)
        ]
        write(folder, name, rows)
    (row,) = paretobandit_rows(folder, budgets={budget: 0.5})
    if row.verdict == "not judged":
        assert all(cost == 0.0 for line in lines for _, cost in line)
        return
    assert 0.0 <= row.raglab <= 1.0
    assert row.difference == pytest.approx(row.raglab - row.free)
    assert row.low <= row.difference + 1e-9
    assert row.difference <= row.high + 1e-9
    assert row.verdict == ("ahead" if row.low > 0 else "behind" if row.high < 0 else "level")


@pytest.mark.filterwarnings("ignore:.*source that was not fitted:UserWarning")
@pytest.mark.skipif(not REAL.is_dir(), reason="the repository's files are not there")
def test_the_repository_s_files() -> None:
    """Ahead of the mixture if the budget binds, never behind, within 2 % of feasible budgets."""
    rows = paretobandit_rows(REAL)
    assert [row.verdict for row in rows[1:3]] == ["ahead", "ahead"]
    assert {row.verdict for row in rows} <= {"ahead", "level"}
    assert "No price keeps this budget" in rows[0].note
    assert all(float(row.note.partition("raglab ")[2].partition(",")[0]) <= 1.02 for row in rows)


@pytest.mark.filterwarnings("ignore:.*not fitted:UserWarning")
def test_files_of_other_forms_are_not_judged(tmp_path: Path) -> None:
    """One line of validation, prompts that are lists or absent, no arms, a file that is cut off.

    With the reason.
    """
    changes: dict[str, tuple[Callable[[str, Records], Records], str]] = {
        "one": (
            lambda name, rows: rows[:1] if name.startswith("val") else rows,
            "1 questions of validation",
        ),
        "chat": (
            lambda _, rows: [row | {"prompt": [{"role": "user"}]} for row in rows],
            "120 lines, 0 with a prompt",
        ),
        "none": (
            lambda _, rows: [{"arms": row["arms"]} for row in rows],
            "120 lines, 0 with a prompt of text",
        ),
        "empty": (
            lambda _, rows: [row | {"arms": {}} for row in rows],
            "120 with a prompt of text, 0 of these",
        ),
    }
    for name, (change, text) in changes.items():
        (row,) = paretobandit_rows(written(tmp_path / name, change), budgets=ONE)
        assert (row.cell, row.verdict, row.n) == ("k2", "not judged", 0)
        assert text in row.note
    folder = written(tmp_path / "cut")
    path = folder / "test_k2.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-10])
    write(folder, "val_k3", records(0))
    write(folder, "test_k3", records(1))
    first, second = paretobandit_rows(folder, budgets=ONE)
    assert (first.cell, "EOFError" in first.note, second.cell) == ("k2", True, "k3 / budget 0.5")
    assert second.verdict != "not judged"


def test_validation_that_is_test(tmp_path: Path) -> None:
    """Nothing is left to fit on, and the line says why."""

    def same(_: str, rows: Records) -> Records:
        return [row | {"prompt": f"question {number}"} for number, row in enumerate(rows)]

    (row,) = paretobandit_rows(written(tmp_path, same), budgets=ONE)
    assert row.verdict == "not judged"
    assert "120 lines of the first have a prompt of the second" in row.note


def test_arms_of_validation_alone(tmp_path: Path) -> None:
    """An arm that test lacks is left out and named, however many lines of validation have it.

    The others are judged.
    """

    def renamed(name: str, rows: Records) -> Records:
        for row in rows if name == "val_k2" else []:
            row["arms"]["unseen"] = {"reward": 1.0, "cost": 0.0}
        return rows

    (whole,) = paretobandit_rows(written(tmp_path / "first"), budgets=ONE)
    (row,) = paretobandit_rows(written(tmp_path / "second", renamed), budgets=ONE)
    assert (row.raglab, row.low, row.high) == (whole.raglab, whole.low, whole.high)
    assert (
        "Arm unseen is left out: 120 of 120 lines of validation have a reward in [0, 1]" in row.note
    )
