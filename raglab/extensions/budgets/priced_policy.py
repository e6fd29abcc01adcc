"""Linear policies under a budget (algebra): predicted reward less priced cost, at a pace (S4.8).

The cost is predicted too and multiplied by a price.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.user_warnings import warn_user
from raglab.bandit.budget import Budget, check_budget
from raglab.bandit.environments import Table, table_costs
from raglab.bandit.learner import check_whole
from raglab.decision.learned_cases import code_text
from raglab.extensions.budgets.prices import (
    Pacer,
    PriceChoice,
    choose_price,
    pace,
    priced_arms,
    start_pacer,
)
from raglab.extensions.budgets.ridge import RidgeFit, fit_ridge
from raglab.values import FloatArray, PlaceArray, refuse
from raglab.words.canonical import digest

if TYPE_CHECKING:
    import pandas as pd

UNSTEADY = 0.1  # share of a spend that two sets of predictions may differ by


class PricedPolicy(NamedTuple):
    """Arm of largest predicted reward less the price times its cost.

    Attributes:
      arms: names, [A].
      feature_names: of the regressions.
      rewards: regression of the reward of each arm.
      costs: regression of the cost of each arm; None where costs are known before the choice.
      budget: mean cost of a question that it keeps.
      price: chosen on predictions of questions that the regressions had not seen, with the spend of
        a question measured there.
      notes: whether the regressions on all rows spend something else.
      fitted_on: codes of the questions that it was fitted or its price chosen on, by their texts
        and by their numbers, see `row_names`.
      has_texts: whether the texts are among them.
    """

    arms: tuple[str, ...]
    feature_names: tuple[str, ...]
    rewards: RidgeFit
    costs: RidgeFit | None
    budget: Budget
    price: PriceChoice
    notes: tuple[str, ...] = ()
    fitted_on: str = ""
    has_texts: bool = False

    def predictions(self, table: Table) -> tuple[FloatArray, FloatArray]:
        """Predicted reward and cost, [Q, A] each.

        Args:
          table: of the same arms and features.

        Raises:
          ValueError: another table's arms or features.
        """
        for name in ("arms", "feature_names"):
            fitted = getattr(self, name)
            applied = getattr(table, name)
            if fitted != applied:
                refuse(
                    f"a table must have the policy's {name}, {', '.join(fitted)[:200]}",
                    ", ".join(applied)[:200],
                    "give the same",
                )
        cost = (
            table_costs(table)
            if self.costs is None
            else np.maximum(self.costs.predict(table.features), 0.0)
        )
        return self.rewards.predict(table.features), cost

    def plan(self, table: Table) -> FloatArray:
        """Probabilities [Q, A] at the chosen price.

        0 and 1, except where a share of the questions uses the budget up.

        Args:
          table: of the same arms and features.
        """
        return self.price.plan(*self.predictions(table), table.mask)

    def frame(self) -> pd.DataFrame:
        """A row an arm: constant, strength and leave-one-out error of its regressions."""
        import pandas as pd

        fits = {"reward": self.rewards} | ({} if self.costs is None else {"cost": self.costs})
        parts = ("constant", "strength", "error")
        columns = {
            f"{name}_{part}": getattr(fit, part) for name, fit in fits.items() for part in parts
        }
        return pd.DataFrame({"arm": self.arms, **columns})


def fit_priced_policy(
    table: Table,
    budget: Budget | float,
    *,
    validation: Table | None = None,
    logged: ArrayLike | None = None,
    known_costs: bool = False,
    strength: float | None = None,
    questions: Sequence[str] | None = None,
) -> PricedPolicy:
    """Policy from a table: a ridge of reward and of cost an arm, and one price.

    The price is chosen on predictions of questions that were not fitted: those of `validation`, or
    each row of `table` by the regressions without it (leave-one-out, exact). The spend there is the
    measured cost.

    Args:
      table: rewards, costs and features.
      budget: see `choose_price`.
      validation: another table that the price is chosen on.
      logged: the arm that was chosen in each row of a log, [Q]: no other reward or cost of the row
        is read. Without `validation` the price is chosen on predicted costs, since nobody paid the
        other arms.
      known_costs: whether a cost is known before the arm is chosen, such as a price list.
      strength: of all ridges; chosen for each from the data where None (see `fit_ridge`).
      questions: texts of the rows of `table`, then of `validation`, by which `certify_cascade`
        knows them again; None: by their numbers alone.

    Raises:
      ValueError: a table without features or costs, a row without its logged arm, an arm measured
        in fewer than two rows, a budget that nothing can keep, or a validation table of other arms.

    Warns:
      UserWarning: the regressions on all rows spend another amount than the price was chosen for;
        it is in `notes` too.

    Source: rule S4.8.

    Example: the dear arm is better where x is 1, and half of the questions can have it.
      >>> import pandas as pd
      >>> frame = pd.DataFrame(
      ...     {"small": [0.5, 0.5] * 4, "large": [0.5, 1.0] * 4, "x": [0.0, 1.0] * 4}
      ... )
      >>> table = Table.from_frame(
      ...     frame,
      ...     costs={"small": 1.0, "large": 3.0},
      ...     price=1.0,
      ...     features=["x"],
      ...     order="given",
      ... )
      >>> fit_priced_policy(table, Budget(2.0, "$")).plan(table)[:2].tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    checked = check_budget(budget)
    if not table.feature_names or not table.has_costs:
        value = "none" if table.has_costs else "no costs"
        refuse(
            "a priced policy needs a table with features and costs",
            value,
            "name them in from_frame",
        )
    if logged is not None and np.shape(logged) != (len(table.mask),):
        refuse(
            f"logged must be [Q], the arm of {len(table.mask)} rows",
            np.shape(logged),
            "give an arm a row",
        )
    known = table.mask & np.isfinite(table.gross)
    paid = table_costs(table)
    if logged is not None:
        known = known & (
            check_whole("logged", logged, len(table.arms))[:, None] == np.arange(len(table.arms))
        )
    if (known.sum(axis=0) < 2).any():
        arm = table.arms[int(np.argmin(known.sum(axis=0)))]
        refuse(
            "a regression needs two measured rows of each arm",
            f"{known.sum(axis=0).min()} of {arm}",
            "drop the arm",
        )
    # A cell that was not measured teaches nothing, and is NaN for the regressions.
    rewards = fit_ridge(table.features, np.where(known, table.gross, np.nan), strength=strength)
    costs = (
        None
        if known_costs
        else fit_ridge(table.features, np.where(known, paid, np.nan), strength=strength)
    )
    free = PriceChoice(0.0, 0.0, 0.0, 0.0)
    tables = [part for part in (table, validation) if part is not None]
    names = row_names(tables, questions)
    policy = PricedPolicy(
        table.arms,
        table.feature_names,
        rewards,
        costs,
        checked,
        free,
        fitted_on=code_text([*names, *row_names(tables)]),
        has_texts=questions is not None,
    )
    judged = table if validation is None else validation
    reward, cost = policy.predictions(judged)
    # On its own table a row is predicted by the regressions without it.
    if validation is None:
        reward = rewards.held_out
        cost = cost if costs is None else np.maximum(costs.held_out, 0.0)
    spend = cost if validation is None and logged is not None else table_costs(judged)
    policy = policy._replace(
        price=choose_price(reward, cost, checked, spend=spend, mask=judged.mask)
    )
    return policy if validation is not None else _with_spend_note(policy, table, logged is not None)


def _with_spend_note(
    policy: PricedPolicy,
    table: Table,
    is_log: bool,  # noqa: FBT001
) -> PricedPolicy:
    """Policy noting, with a warning, where regressions on all rows do not spend what was chosen.

    Where features hardly tell the arms apart, predictions without a row differ by that row's own
    noise alone: a price that halves those sends all questions to one arm later.
    """
    reward, cost = policy.predictions(table)
    paid = cost if is_log else np.where(table.mask, table_costs(table), 0.0)
    spend = float((policy.price.plan(reward, cost, table.mask) * paid).sum(axis=1).mean())
    if abs(spend - policy.price.spend) <= UNSTEADY * policy.price.spend:
        return policy
    note = (
        f"The price spends {policy.price.spend:.4g} a question on predictions without the row, "
        f"but {spend:.4g} by the regressions on all rows: the features hardly tell the arms apart. "
        "Choose it on a validation table (compare_plans)."
    )
    warn_user(note)
    return policy._replace(notes=(note,))


def row_names(tables: Sequence[Table], questions: Sequence[str] | None = None) -> list[str]:
    """Name of each row, [Q]: its text or a digest of its features, rewards before costs, and costs.

    Args:
      tables: whose rows follow each other; the order of arms and features counts.
      questions: text of each row, [Q]; None: rows with the same numbers share a name.

    Raises:
      ValueError: another number of texts.
    """
    parts = [np.column_stack([table.features, table.gross, table_costs(table)]) for table in tables]
    rows = [digest(str(row), 16) for part in parts for row in part.round(12).tolist()]
    names = rows if questions is None else [*questions]
    if len(names) != len(rows):
        refuse(f"questions must be the texts of {len(rows):,} rows", len(names), "give one each")
    return names


class PacedPlay(NamedTuple):
    """What a paced policy chose, question after question.

    arm: [Q] by row of the table. price: [Q] when the row was decided. order: [Q] rows in the order
    played. pacer: at the end. plan: [Q, A] 1 on the arm chosen, for `compare_plans`.
    """

    arm: PlaceArray
    price: FloatArray
    order: PlaceArray
    pacer: Pacer
    plan: FloatArray


def play_paced(
    policy: PricedPolicy,
    table: Table,
    *,
    order: str = "given",
    seed: int = 0,
    pacer: Pacer | None = None,
) -> PacedPlay:
    """Play every question once, in order, with a price that follows the spend so far.

    The price starts where it was chosen and holds the budget on questions that cost more or less
    than those.

    Args:
      policy: its regressions and its first price.
      table: of the same arms and features.
      order: `given`, the rows as they are, or `shuffled`, by the seed.
      seed: of the order `shuffled`.
      pacer: of earlier plays; a new one where None.

    Raises:
      ValueError: another order, or a table of other arms or features.

    Source: rule S4.8.
    """
    if order not in {"given", "shuffled"}:
        refuse("order must be given or shuffled", repr(order), "choose one of them")
    reward, cost = policy.predictions(table)
    rows = (
        np.arange(len(reward))
        if order == "given"
        else np.random.default_rng(seed).permutation(len(reward))
    )
    # A price of 0 cannot be multiplied: where the budget did not bind, the pacer starts as it does
    # without a price.
    start = policy.price.price or policy.budget.price
    pacer = start_pacer(policy.budget._replace(price=start)) if pacer is None else pacer
    if np.ndim(pacer.price):
        refuse(
            "a pacer of one play is needed",
            f"one of {np.shape(pacer.price)} plays",
            "start it without a batch",
        )
    paid, arm, price = table_costs(table), np.empty(len(reward), np.intp), np.empty(len(reward))
    for row in rows:
        price[row] = float(pacer.price)
        open_ = table.mask[row]
        arm[row] = priced_arms(reward[row], cost[row], pacer.price, open_)
        pacer = pace(pacer, paid[row, arm[row]])
    return PacedPlay(arm, price, rows.astype(np.intp), pacer, np.eye(reward.shape[1])[arm])
