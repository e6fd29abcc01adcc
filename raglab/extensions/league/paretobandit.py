"""ParetoBandit (shore): its tables of rewards and costs, a line a budget.

Chosen on validation, judged once on test.

Layout of the repository `data_collection/rewards`: JSON lines `val_*` and `test_*`, gzipped or not,
with `prompt`, `source` and `arms`, a mapping of a model to `reward` and `cost`; other keys are
ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raglab.bandit import (
    Budget,
    Frontier,
    PricedPolicy,
    Table,
    choose_price,
    compare_plans,
    fit_priced_policy,
    frontier,
    play_paced,
    text_features,
)
from raglab.extensions.league.rows import FEW, ROUNDING, LeagueRow, league_verdict, paired_interval
from raglab.extensions.league.stored_lines import StoredLines, line_files, stored_lines
from raglab.store.files import InputError

NAME, METRIC = "paretobandit", "reward"
TASK = "Which model answers the question, within a mean cost of a question?"
# Published reward by budget, dollars a question: arXiv 2604.00136, table of budget compliance, and
# the repository's experiments/01_stationary_budget_pacing at commit 72ccbef.
BUDGETS: Mapping[float, float] = {
    2.929e-5: 0.793,
    8.288e-5: 0.813,
    2.345e-4: 0.859,
    6.637e-4: 0.898,
    1.878e-3: 0.917,
    5.314e-3: 0.924,
    1.504e-2: 0.929,
}
PUBLISHED = "arXiv 2604.00136: of another file, with 1,824 prompts and three arms, learned online"
FEWER = f"Fewer than {FEW} test questions: not judged."
LEAST = 2  # questions of validation that a regression needs
RAGLAB, MIXTURE = "raglab", "best fixed mixture of validation"


class RewardTables(NamedTuple):
    """Tables of a pair of files, with features fitted on the texts of validation.

    Its note counts what was dropped.
    """

    validation: Table
    test: Table
    note: str


class ChosenPlans(NamedTuple):
    """Plans for the test file by name, whether raglab's price follows spend, what is unusual."""

    plans: dict[str, NDArray[np.float64]]
    is_paced: bool
    note: str


def paretobandit_rows(
    folder: Path,
    *,
    budgets: Mapping[float, float] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> list[LeagueRow]:
    """Lines of ParetoBandit's files.

    Reward within each budget against the best fixed mixture, paired by question.

    Features (lengths, source, 32 exact components of TF-IDF, which no seed moves), regressions,
    price, mixture and the choice between policies are of `val_*`; `test_*` of the same ending is
    judged once. raglab's policy is `fit_priced_policy`, played in the file's order with a price
    that follows the spend (`play_paced`), where its leave-one-out reward on validation is above
    that of the mixture; else it is the mixture. Where nothing keeps the budget on validation, both
    are its cheapest arm.

    The null hypothesis of a line is that both policies earn the same mean reward on questions like
    those of the test file. The interval is that of resampled questions and of `paired_interval`; it
    assumes that questions are independent. Policy, price and mixture stay fixed. Fewer than 20 test
    questions are not judged.

    Args:
      folder: of the layout.
      budgets: published reward by budget, dollars a question, NaN where none is known; None: the
        seven of the paper.
      level: of the intervals, in (0, 1).
      seed: of the resamples.

    Returns:
      A line a pair of files and budget, by name and budget. What cannot be judged or read says why.

    Source: rule S4.8.
    """
    files = {path.name.partition(".")[0]: path for path in line_files(folder)}
    rows: list[LeagueRow] = []
    for name in sorted(
        {file.partition("_")[2] for file in files if file.startswith(("val_", "test_"))}
    ):
        pair = [files.get(f"{part}_{name}") for part in ("val", "test")]
        tables, note = None, ""
        try:
            tables = None if None in pair else arm_tables(*(path for path in pair if path))
            note = "" if tables else _fault([path for path in pair if path])
        except InputError as error:  # a part of a file is not judged as the whole
            note = str(error)
        if tables is None or not tables.validation.has_costs or len(tables.validation.mask) < LEAST:
            if tables is not None:
                note = (
                    f"{len(tables.validation.mask)} questions of validation: a regression needs "
                    f"{LEAST} with costs."
                )
            rows.append(LeagueRow(NAME, name, TASK, METRIC, higher_is_better=True, n=0, note=note))
            continue
        corners = frontier(tables.validation)
        # The regressions are the same at all budgets; each has its own price, and this one is not
        # used.
        most = float(tables.validation.cost.max())
        policy = fit_priced_policy(tables.validation, most, validation=tables.validation)
        amounts = sorted((budgets or BUDGETS).items())
        rows += [_row(tables, corners, policy, (name, *amount), level, seed) for amount in amounts]
    return rows


def arm_tables(validation: Path, test: Path) -> RewardTables | None:
    """Tables of a pair of files, of the usual arms of validation among those of test.

    None where no line has them.

    A line without a prompt, or without a reward in [0, 1] and a cost from 0 of one of the arms, is
    dropped and counted; so is one of validation whose prompt is in test, but for case, blanks and
    punctuation. Arms left out are named.

    Args:
      validation: file of JSON lines.
      test: file of JSON lines.
    """
    stored = [stored_lines(path) for path in (validation, test)]
    cells = [[_cells(record) for record in part.records] for part in stored]
    judged = _usual_arms(cells[1])
    arms = _usual_arms([{arm: line[arm] for arm in line if arm in judged} for line in cells[0]])
    lines = [
        [
            (record, line)
            for record, line in zip(part.records, lines, strict=True)
            if line.keys() >= set(arms)
        ]
        for part, lines in zip(stored, cells, strict=True)
    ]
    dropped = sum(part.unread + len(part.records) for part in stored) - sum(map(len, lines))
    if not arms or not all(lines):
        return None
    # What is judged is not fitted to.
    prompts, size = {_plain(record["prompt"]) for record, _ in lines[1]}, len(lines[0])
    lines[0] = [
        (record, line) for record, line in lines[0] if _plain(record["prompt"]) not in prompts
    ]
    counts = {
        "lines without a prompt, or a reward or cost of some arm, are dropped": dropped,
        "lines of validation have a prompt of test and are left out of the fit": size
        - len(lines[0]),
    }
    if not lines[0]:
        return None
    texts, sources = (
        [[str(record.get(key, "")) for record, _ in part] for part in lines]
        for key in ("prompt", "source")
    )
    features = text_features(texts[0], sources[0], seed=None)
    tables = []
    for part, *columns in zip(lines, texts, sources, strict=True):
        frame = features.frame(*columns)
        reward, cost = (
            pd.DataFrame([[line[arm][i] for arm in arms] for _, line in part], columns=arms)
            for i in (0, 1)
        )
        joined = pd.concat([reward, frame], axis=1)
        tables.append(
            Table.from_frame(joined, costs=cost, price=0.0, features=features.names, order="given")
        )
    note = " ".join(
        [
            *_left_out(stored, cells[0], arms),
            *(f"{count} {text}." for text, count in counts.items() if count),
        ]
    )
    return RewardTables(tables[0], tables[1], note)


def _usual_arms(cells: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Arms that lines have together most often."""
    shapes = Counter(tuple(sorted(line)) for line in cells if line)
    return max(shapes, key=lambda names: (shapes[names], names), default=())


def _plain(prompt: str) -> str:
    """Words of a prompt in lower case; the prompt itself where it has none."""
    return " ".join(re.findall(r"\w+", prompt.casefold())) or prompt


def _left_out(
    stored: Sequence[StoredLines], cells: Sequence[Mapping[str, object]], arms: Sequence[str]
) -> list[str]:
    """Sentence of each arm that is in a file and not among those that are played.

    Counted are lines of validation.
    """
    names = [
        [
            set(record["arms"]) if isinstance(record.get("arms"), Mapping) else set()
            for record in part.records
        ]
        for part in stored
    ]
    texts = []
    for arm in sorted(set().union(*(line for part in names for line in part)) - set(arms)):
        usable, named = sum(arm in line for line in cells), sum(arm in line for line in names[0])
        counts = (
            f"{usable} of {len(cells)} lines of validation have a reward in [0, 1] and a cost of it"
        )
        texts.append(f"Arm {arm} is left out: {counts}, {named - usable} have others.")
    return texts


def _fault(paths: Sequence[Path]) -> str:
    """Why a pair of files gives no tables: what their lines lack, with counts."""
    texts = [
        (
            "There are no val_ and test_ files with rewards and costs of the same arms and other "
            "prompts in each."
        )
    ]
    prompts = []
    for path in paths:
        records = stored_lines(path).records
        prompted = [record for record in records if isinstance(record.get("prompt"), str)]
        prompts.append([_plain(record["prompt"]) for record in prompted])
        armed = sum(bool(_cells(record)) for record in prompted)
        texts.append(
            f"{path.name}: {len(records):,} lines, {len(prompted):,} with a prompt of text, "
            f"{armed:,} of these with an arm that has a reward in [0, 1] and a cost."
        )
    judged = set(prompts[-1]) if len(prompts) > 1 else set()
    if repeated := sum(prompt in judged for prompt in prompts[0]):
        texts.append(
            f"{repeated:,} lines of the first have a prompt of the second, which is judged."
        )
    return " ".join(texts)


def _cells(record: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Reward and cost of each arm that has both, of a line that has a prompt."""
    arms: Any = record.get("arms")
    cells: dict[str, tuple[float, float]] = {}
    is_read = isinstance(arms, Mapping) and isinstance(record.get("prompt"), str)
    for arm, cell in arms.items() if is_read else ():
        reward, cost = (
            _number(cell.get(part) if isinstance(cell, Mapping) else None)
            for part in ("reward", "cost")
        )
        if 0.0 <= reward <= 1.0 and cost >= 0.0:
            cells[arm] = (reward, cost)
    return cells


def _number(value: object) -> float:
    """Number of a JSON value; NaN where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else nan


def _plans(
    tables: RewardTables, corners: Frontier, policy: PricedPolicy, amount: float
) -> ChosenPlans:
    """Plans for the test file that validation chooses within a budget, and what is not as usual."""
    val, note = tables.validation, ""
    is_kept = amount >= corners.least_spend
    mixture = corners.mixture_at(amount) if is_kept else corners.mixture[0]
    if not is_kept:
        note = (
            "No arm keeps this budget on validation: the reference is the cheapest, of "
            f"{corners.least_spend:.3g}."
        )
    # A row of validation is predicted by the regressions without it.
    reward, cost = (
        policy.rewards.held_out,
        np.maximum(policy.costs.held_out, 0.0) if policy.costs else val.cost,
    )
    try:
        price = choose_price(reward, cost, amount, spend=val.cost)
    except ValueError:  # nothing else can be wrong with the predictions of a table
        note = f"{note} No price keeps this budget: raglab's policy is the reference."
        return ChosenPlans({RAGLAB: mixture, MIXTURE: mixture}, is_paced=False, note=note.strip())
    earned, fixed = (
        (price.plan(reward, cost) * val.gross).sum(axis=1).mean(),
        (val.gross @ mixture).mean(),
    )
    if earned <= fixed:
        note = (
            f"{note} On validation the price earns {earned:.4f}, the mixture {fixed:.4f}, which "
            "is raglab's policy."
        )
        return ChosenPlans({RAGLAB: mixture, MIXTURE: mixture}, is_paced=False, note=note.strip())
    priced = policy._replace(budget=Budget(amount, "$"), price=price)
    # A budget that does not bind has no price that a pacer could start from.
    plan = play_paced(priced, tables.test).plan if price.price else priced.plan(tables.test)
    return ChosenPlans({RAGLAB: plan, MIXTURE: mixture}, is_paced=bool(price.price), note=note)


def _row(
    tables: RewardTables,
    corners: Frontier,
    policy: PricedPolicy,
    cell: tuple[str, float, float],
    level: float,
    seed: int,
) -> LeagueRow:
    """Line of a pair of files, a budget, and its published reward."""
    name, amount, published = cell
    plans, is_paced, note = _plans(tables, corners, policy, amount)
    shown = compare_plans(tables.test, plans, reference=MIXTURE, level=level, seed=seed)
    row, mixture = (
        {str(key): value for key, value in line.items()} for line in shown.to_dict("records")
    )
    shares = [
        f"{share:.3f} {arm}"
        for arm, share in zip(corners.arms, plans[MIXTURE], strict=True)
        if share > 0.0
    ]
    difference, low, high = _difference(tables.test, plans, row, level)
    learned = (
        "no reward of {}; the price follows the costs already spent there"
        if is_paced
        else "nothing of {}"
    )
    spends = (
        f"Spend over budget on test: raglab {row['spend'] / amount:.3f}, reference "
        f"{mixture['spend'] / amount:.3f}."
    )
    return LeagueRow(
        table=NAME,
        cell=f"{name} / budget {amount:.3g}",
        task=TASK,
        metric=METRIC,
        higher_is_better=True,
        n=len(tables.test.mask),
        published=published,
        published_source=PUBLISHED if isfinite(published) else "none of this budget",
        reproduced_note="It learns online from the model that it calls; its plays are not stored.",
        free=float(mixture["reward"]),
        free_name=f"{MIXTURE}: {', '.join(shares)}",
        hindsight=float(frontier(tables.test).reward_at(amount)),
        hindsight_name="best fixed mixture of the test file",
        raglab=float(row["reward"]),
        fitted_on=f"{len(tables.validation.mask)} questions of val_{name}; "
        f"{learned.format(f'test_{name}')}",
        reference=MIXTURE,
        difference=difference,
        low=low,
        high=high,
        clusters=len(tables.test.mask),
        calls=1.0,
        reference_calls=1.0,
        verdict=league_verdict(low, high, higher_is_better=True),
        note=" ".join(
            text for text in (spends, note, "" if isfinite(low) else FEWER, tables.note) if text
        ),
    )


def _difference(
    test: Table, plans: Mapping[str, NDArray[np.float64]], row: Mapping[str, Any], level: float
) -> tuple[float, float, float]:
    """Mean reward of raglab less that of the mixture on the same questions, with its interval.

    NaN of too few.
    """
    gain = ((plans[RAGLAB] - plans[MIXTURE]) * test.gross).sum(axis=1)
    # Plans that are equal but for rounding are equal.
    gain = np.where(np.abs(gain) < ROUNDING, 0.0, gain)
    if len(gain) < FEW:
        return float(row["difference"]), nan, nan
    return float(row["difference"]), *paired_interval(
        gain, row["difference_low"], row["difference_high"], level
    )
