"""ParetoBandit: its tables of rewards and costs, a row a budget.

Chosen on validation, judged once on test.

Folder `data_collection/rewards` of the repository: JSON lines `val_*` and `test_*` with `prompt`,
`source` and `arms`, a mapping of a model to `reward` and `cost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.rows import INTERVAL, ROUNDING, Row, paired_interval
from experiments.league.stored import stored_lines
from experiments.league.table_checks import plain_words
from raglab import bandit
from raglab.bandit import Table

# Published reward by budget, dollars a question: arXiv 2604.00136, table of budget compliance, and
# the repository's experiments/01_stationary_budget_pacing at commit 72ccbef. They are of another
# file, with 1,824 prompts and three arms, learned online.
BUDGETS: Mapping[float, float] = {
    2.929e-5: 0.793,
    8.288e-5: 0.813,
    2.345e-4: 0.859,
    6.637e-4: 0.898,
    1.878e-3: 0.917,
    5.314e-3: 0.924,
    1.504e-2: 0.929,
}
RAGLAB, MIXTURE = "raglab", "best fixed mixture of validation"


def paretobandit_rows(
    folder: Path, budgets: Mapping[float, float] = BUDGETS, seed: int = 0
) -> list[Row]:
    """Rows of ParetoBandit's files.

    Reward within each budget against the best fixed mixture, paired by question.

    Features (lengths, source, 32 exact components of TF-IDF, which no seed moves), regressions,
    price, mixture and the choice between policies are of `val_*`; `test_*` of the same ending is
    judged once. raglab's policy is `fit_priced_policy`, played in the file's order with a price
    that follows the spend (`play_paced`), where its leave-one-out reward on validation is above
    that of the mixture; else it is the mixture. Where nothing keeps the budget on validation, both
    are its cheapest arm.

    The null hypothesis of a row is that both policies earn the same mean reward on questions like
    those of the test file. The interval is that of resampled questions and of `paired_interval`; it
    assumes that questions are independent. Policy, price and mixture stay fixed.

    Args:
      folder: of the layout.
      budgets: published reward by budget, dollars a question, NaN where none is known.
      seed: of the resamples.
    """
    rows = []
    for path in sorted(folder.glob("val_*.jsonl*")):
        test = path.with_name(path.name.replace("val", "test", 1))
        tables, note = arm_tables(path, test)
        corners = bandit.frontier(tables[0])
        # The regressions are the same at all budgets; each has its own price, and this one is not
        # used.
        most = float(tables[0].cost.max())
        policy = bandit.fit_priced_policy(tables[0], most, validation=tables[0])
        for amount, published in sorted(budgets.items()):
            name = path.name.partition(".")[0].removeprefix("val_")
            row = Row("paretobandit", f"{name} / budget {amount:.3g}", "reward", 0, published)
            rows.append(_judged_row(row, tables, note, corners, policy, amount, seed))
    return rows


def arm_tables(validation: Path, test: Path) -> tuple[tuple[Table, Table], str]:
    """Tables of a pair of files, and what was dropped.

    Features are fitted on the texts of validation. A question of validation whose prompt is in
    test, but for case, blanks and punctuation, is left out: what is judged is not fitted to.
    """
    records = [stored_lines(path) for path in (validation, test)]
    judged = {plain_words(record["prompt"]) for record in records[1]}
    fitted = [record for record in records[0] if plain_words(record["prompt"]) not in judged]
    dropped, records[0] = len(records[0]) - len(fitted), fitted
    arms = sorted(records[1][0]["arms"])
    texts, sources = (
        [[record[key] for record in part] for part in records] for key in ("prompt", "source")
    )
    features = bandit.text_features(texts[0], sources[0], seed=None)
    tables = []
    for part, *columns in zip(records, texts, sources, strict=True):
        reward, cost = (
            pd.DataFrame([[row["arms"][arm][key] for arm in arms] for row in part], columns=arms)
            for key in ("reward", "cost")
        )
        joined = pd.concat([reward, features.frame(*columns)], axis=1)
        tables.append(
            Table.from_frame(joined, costs=cost, price=0.0, features=features.names, order="given")
        )
    note = (
        f"{dropped} prompts of validation are in test and left out of the fit; " if dropped else ""
    )
    return (tables[0], tables[1]), note


def chosen_plans(
    tables: tuple[Table, Table],
    corners: bandit.Frontier,
    policy: bandit.PricedPolicy,
    amount: float,
) -> tuple[dict[str, NDArray[np.float64]], str]:
    """Plans for the test file that validation chooses within a budget, and what raglab's is."""
    validation, test = tables
    is_met = amount >= corners.least_spend
    mixture = corners.mixture_at(amount) if is_met else corners.mixture[0]
    # A row of validation is predicted by the regressions without it.
    reward = policy.rewards.held_out
    cost = np.maximum(policy.costs.held_out, 0.0) if policy.costs else validation.cost
    same = {RAGLAB: mixture, MIXTURE: mixture}
    try:
        price = bandit.choose_price(reward, cost, amount, spend=validation.cost)
    except ValueError:  # nothing else can be wrong with the predictions of a table
        return same, "no price keeps this budget: raglab is the mixture"
    earned = (price.plan(reward, cost) * validation.gross).sum(axis=1).mean()
    if earned <= (validation.gross @ mixture).mean():
        return same, "the price earns less on validation: raglab is the mixture"
    priced = policy._replace(budget=bandit.Budget(amount, "$"), price=price)
    # A budget that does not bind has no price that a pacer could start from.
    plan = bandit.play_paced(priced, test).plan if price.price else priced.plan(test)
    return {RAGLAB: plan, MIXTURE: mixture}, "the price follows the spend" if price.price else ""


def _judged_row(
    row: Row,
    tables: tuple[Table, Table],
    note: str,
    corners: bandit.Frontier,
    policy: bandit.PricedPolicy,
    amount: float,
    seed: int,
) -> Row:
    """Row of a budget with what its plans earn on the test file."""
    validation, test = tables
    plans, how = chosen_plans(tables, corners, policy, amount)
    shown = bandit.compare_plans(test, plans, reference=MIXTURE, level=INTERVAL, seed=seed)
    raglab, mixture = (
        {str(key): value for key, value in line.items()} for line in shown.to_dict("records")
    )
    # Plans that are equal but for rounding are equal.
    gain = ((plans[RAGLAB] - plans[MIXTURE]) * test.gross).sum(axis=1)
    gain = np.where(np.abs(gain) < ROUNDING, 0.0, gain)
    low, high = paired_interval(gain, raglab["difference_low"], raglab["difference_high"])
    shares = [
        f"{share:.3f} {arm}"
        for arm, share in zip(corners.arms, plans[MIXTURE], strict=True)
        if share > 0.0
    ]
    spends = " and ".join(f"{plan['spend'] / amount:.3f}" for plan in (raglab, mixture))
    return row._replace(
        n=len(gain),
        free=float(mixture["reward"]),
        free_name=", ".join(shares),
        hindsight=float(bandit.frontier(test).reward_at(amount)),
        hindsight_name="best fixed mixture of test",
        raglab=float(raglab["reward"]),
        fitted_on=f"{len(validation.mask)} questions of validation",
        reference=MIXTURE,
        difference=float(raglab["difference"]),
        low=low,
        high=high,
        clusters=len(gain),
        calls=1.0,
        reference_calls=1.0,
        note=f"{note}spend over budget on test {spends}" + f"; {how}" * bool(how),
    )
