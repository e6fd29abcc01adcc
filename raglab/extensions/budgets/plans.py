"""Plans beside each other (algebra): reward and spend of fixed probabilities, paired (S4.8).

Both are on the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from raglab.bandit.budget import Budget, check_budget
from raglab.bandit.environments import Table, table_costs
from raglab.bandit.fixed_plans import MIXTURE_PLAN, PRICED_PLAN, check_plan
from raglab.bandit.learner import check_count
from raglab.extensions.budgets.priced_policy import fit_priced_policy
from raglab.extensions.budgets.prices import choose_price, frontier
from raglab.metrics.intervals import check_level, percentile_interval
from raglab.values import FloatArray, refuse

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 100  # in memory at a time
FEWEST = 10  # questions below which an interval by resampling is said to be too narrow


def compare_plans(
    table: Table,
    plans: Mapping[str, ArrayLike],
    *,
    budget: Budget | float | None = None,
    validation: Table | None = None,
    reference: str = MIXTURE_PLAN,
    level: float = 0.95,
    n_boot: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Reward and spend of plans on the same questions, apart, with paired intervals.

    Intervals resample questions, the same for all plans; plans, prices and mixtures stay fixed.

    Args:
      table: with costs, on which the plans are compared.
      plans: name -> probabilities [A] or [Q, A].
      budget: adds the row `best fixed mixture`: of most reward within the budget on `validation`,
        or on this table where there is none, which flatters it and is noted.
      validation: another table of the same arms, on which the best fixed mixture is chosen.
      reference: name of the plan that `difference` and `spend_difference` compare with; the first
        plan where it is missing.
      level: of the intervals, in (0, 1).
      n_boot: resamples of the questions.
      seed: of the resamples.

    Returns:
      A row a plan: `policy`, `reward` a question, `spend` a question in the unit of the costs,
        `of_budget` (spend over budget; without a budget NaN), `difference` and `spend_difference`
        (less those of the reference), each but `of_budget` with `_low` and `_high`.
        `attrs["notes"]` names what flatters or was left out.

    Raises:
      ValueError: probabilities that break a rule, other arms in `validation`, or a budget that
        nothing can keep.

    Source: rule S4.8.

    Example:
      >>> import pandas as pd
      >>> frame = pd.DataFrame({"small": [0.5, 0.5], "large": [1.0, 0.5]})
      >>> table = Table.from_frame(
      ...     frame, costs={"small": 1.0, "large": 3.0}, price=1.0, order="given"
      ... )
      >>> shown = compare_plans(table, {"priced": [[0.0, 1.0], [1.0, 0.0]]}, budget=2.0)
      >>> shown[["policy", "reward", "spend"]].values.tolist()
      [['priced', 0.75, 2.0], ['best fixed mixture', 0.625, 2.0]]
    """
    import pandas as pd

    check_level(level)
    check_count("n_boot", n_boot, 1, "2000 are usual")
    check_count("seed", seed, 0, "state a seed")
    notes: list[str] = []
    each = {name: plan_rows(table, name, plan) for name, plan in plans.items()}
    if budget is not None:
        chosen_on = table if validation is None else validation
        if chosen_on.arms != table.arms:
            refuse(
                "validation must have the table's arms in their order",
                chosen_on.arms,
                "name them alike",
            )
        corners = frontier(chosen_on)
        each[MIXTURE_PLAN] = plan_rows(table, MIXTURE_PLAN, corners.mixture_at(budget))
        notes += corners.notes
        if validation is None:
            notes.append(
                f"The {MIXTURE_PLAN} was chosen on the questions that it is judged on, which "
                "flatters "
                "it."
            )
    if not each:
        refuse("a plan or a budget is needed", "neither", "give a plan")
    against = list(each).index(reference if reference in each else next(iter(each)))
    if len(table.mask) < FEWEST:
        notes.append(
            f"Intervals resample {len(table.mask)} questions, which are too few: they are too "
            "narrow."
        )
    # A masked cell has probability 0; what stands in it is no number of anything.
    reward, cost = (np.where(table.mask, part, 0.0) for part in (table.gross, table_costs(table)))
    # The shape is [2, P, Q].
    values = np.stack(
        [[(plan * part).sum(axis=1) for plan in each.values()] for part in (reward, cost)]
    )
    point = values.mean(axis=2)
    drawn = _resampled_means(values, n_boot, seed)
    columns = {
        "reward": (point[0], drawn[:, 0]),
        "spend": (point[1], drawn[:, 1]),
        "difference": (point[0] - point[0, against], drawn[:, 0] - drawn[:, 0, [against]]),
        "spend_difference": (point[1] - point[1, against], drawn[:, 1] - drawn[:, 1, [against]]),
    }
    frame: dict[str, object] = {"policy": list(each)}
    for name, (centre, draws) in columns.items():
        low, high = percentile_interval(draws, level)
        frame |= {name: centre, f"{name}_low": low, f"{name}_high": high}
    frame["of_budget"] = point[1] / (
        np.nan if budget is None else check_budget(budget).per_question
    )
    result = pd.DataFrame(frame)
    result.attrs["notes"] = tuple(notes)
    return result


def plan_within(reward: FloatArray, table: Table, budget: Budget | float) -> FloatArray:
    """Plan [Q, A] of most reward within a budget, by one who knows every reward and cost.

    Args:
      reward: that is known of each arm, [Q, A]; not read where the arm is masked.
      table: with costs.
      budget: mean cost of a question.

    Raises:
      ValueError: the budget is below the spend of the cheapest arm of each question.
    """
    known, cost = (np.where(table.mask, cells, 0.0) for cells in (reward, table_costs(table)))
    return choose_price(known, cost, budget, mask=table.mask).plan(known, cost, table.mask)


def study_plans(tune: Table, judge: Table, budget: Budget | float) -> dict[str, FloatArray]:
    """Plans within a budget that are chosen on one table and judged on another, by name, [Q, A].

    The best fixed mixture, and a policy of ridges with a price where some feature varies. A plan
    that cannot be made of these rows is left out.
    """
    plans: dict[str, FloatArray] = {}
    with suppress(ValueError):
        mixture = frontier(tune).mixture_at(budget)
        if judge.mask[:, mixture > 0.0].all():
            plans[MIXTURE_PLAN] = np.broadcast_to(mixture, judge.mask.shape)
    with suppress(ValueError):
        if np.ptp(tune.features, axis=0).any():
            plans[PRICED_PLAN] = fit_priced_policy(tune, budget).plan(judge)
    return plans


def plan_rows(table: Table, name: str, plan: ArrayLike) -> FloatArray:
    """Probabilities [Q, A] of a plan, checked.

    Args:
      table: whose rows and arms they are of.
      name: of the plan, as a message says it.
      plan: probabilities [A] or [Q, A].

    Raises:
      ValueError: another shape, no probabilities, or some for an arm that is not available.
    """
    rows = np.asarray(plan, np.float64)
    if rows.shape not in {table.mask.shape, table.mask.shape[1:]}:
        refuse(
            f"plan {name!r} must be [A] or [Q, A] of {table.mask.shape}",
            rows.shape,
            "give a number an arm",
        )
    check_plan(rows, f"plan {name!r}")
    rows = np.broadcast_to(rows, table.mask.shape)
    if (rows[~table.mask] > 0.0).any():
        refuse(
            f"plan {name!r} may give nothing to an unavailable arm", "some", "give a row a question"
        )
    return rows


def _resampled_means(values: FloatArray, n_boot: int, seed: int) -> FloatArray:
    """Means [n_boot, ...] of values [..., Q] over questions drawn with replacement."""
    rng = np.random.default_rng(seed)
    size = values.shape[-1]
    share = np.full(size, 1.0 / size)
    blocks = [min(RESAMPLES, n_boot - first) for first in range(0, n_boot, RESAMPLES)]
    counts = (rng.multinomial(size, share, size=block).astype(np.float64) for block in blocks)
    return np.concatenate([np.moveaxis(values @ count.T, -1, 0) / size for count in counts])
