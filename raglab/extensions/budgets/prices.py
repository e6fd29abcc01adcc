"""Prices (algebra): frontier of fixed mixtures, a price that keeps a budget, a pacer (S4.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.budget import Budget, check_budget
from raglab.bandit.environments import Table, table_costs
from raglab.values import BoolArray, FloatArray, PlaceArray, refuse

if TYPE_CHECKING:
    import pandas as pd

REACH = 1e4  # a pacer's price stays within this factor of 1 / per_question
ROUNDING = 1e-9  # share of a budget that sums may be off
KEPT = 1.02  # spend over budget up to which a budget counts as kept


def check_least(budget: Budget, least: float, how: str) -> None:
    """Refuse a budget that nothing can keep.

    Args:
      least: least spend a question that there is.
      how: of what.

    Raises:
      ValueError: the budget is below that spend.
    """
    if budget.per_question < least * (1.0 - ROUNDING):
        unit = f" {budget.unit}" if budget.unit else ""
        refuse(
            f"per_question must be at least {least:.6g}{unit}, the least spend of {how}",
            f"{budget.per_question:.6g}{unit}",
            "raise it, or add an arm",
        )


def unkept_note(budget: Budget | float, spend: float, rounds: int) -> str:
    """What is to be said of a mean spend a round above the budget; nothing where it is kept.

    Example:
      >>> unkept_note(Budget(2.0, "$"), 2.0, 100)
      ''
      >>> unkept_note(Budget(2.0, "$"), 3.0, 100).partition(" (rule")[0]
      'The mean spend of 100 rounds is 3 $, 1.5 times the budget of 2 $'
    """
    checked = check_budget(budget)
    ratio = spend / checked.per_question
    unit = f" {checked.unit}" if checked.unit else ""
    if ratio <= KEPT:
        return ""
    return (
        f"The mean spend of {rounds:,} rounds is {spend:.4g}{unit}, {ratio:.3g} times the budget "
        f"of {checked.per_question:.4g}{unit} (rule S4.8): more rounds, a larger step or a first "
        "price come nearer."
    )


class Frontier(NamedTuple):
    """Upper concave frontier of the fixed mixtures of arms.

    No mixture earns more at the same spend.

    Attributes:
      arms: names of the arms that are mixed, [A].
      spend: of the corners, [N], ascending; between two corners the two arms are mixed.
      reward: of the corners, [N], ascending.
      mixture: probabilities of the arms at each corner, [N, A].
      notes: arms that were left out, because some question cannot have them.
    """

    arms: tuple[str, ...]
    spend: FloatArray
    reward: FloatArray
    mixture: FloatArray
    notes: tuple[str, ...]

    @property
    def least_spend(self) -> float:
        """Least spend a question of any fixed mixture."""
        return float(self.spend[0])

    def reward_at(self, spend: ArrayLike) -> FloatArray:
        """Most reward at a spend, [...]; NaN below the least, that of the last corner beyond it.

        Args:
          spend: of a question, [...].
        """
        return np.interp(np.asarray(spend, np.float64), self.spend, self.reward, left=np.nan)

    def mixture_at(self, budget: Budget | float) -> FloatArray:
        """Mixture of most reward that keeps a budget, [A]; of at most two arms.

        Args:
          budget: mean cost of a question, in the unit of the costs.

        Raises:
          ValueError: the budget is below the least spend of a fixed mixture.
        """
        checked = check_budget(budget)
        check_least(checked, self.least_spend, "a fixed mixture")
        return np.array(
            [np.interp(checked.per_question, self.spend, share) for share in self.mixture.T]
        )

    def frame(self) -> pd.DataFrame:
        """A row a corner: spend, reward, and the share of each arm."""
        import pandas as pd

        shares = {
            f"share_{arm}": share for arm, share in zip(self.arms, self.mixture.T, strict=True)
        }
        return pd.DataFrame({"spend": self.spend, "reward": self.reward, **shares})


def frontier(table: Table) -> Frontier:
    """Frontier of the fixed mixtures of arms that every question can have, exact on this table.

    Args:
      table: with costs.

    Raises:
      ValueError: no arm is available in every question.

    Source: Andrew, Another efficient algorithm for convex hulls in two dimensions (1979).

    Example:
      >>> import pandas as pd
      >>> frame = pd.DataFrame({"small": [0.5, 0.5], "poor": [0.4, 0.6], "large": [1.0, 0.8]})
      >>> table = Table.from_frame(
      ...     frame, costs={"small": 1.0, "poor": 2.0, "large": 3.0}, price=1.0, order="given"
      ... )
      >>> frontier(table).frame()[["spend", "reward"]].round(6).values.tolist()
      [[1.0, 0.5], [3.0, 0.9]]
      >>> frontier(table).mixture_at(2.0).tolist()
      [0.5, 0.0, 0.5]
    """
    always = np.flatnonzero(table.mask.all(axis=0))
    if not len(always):
        refuse(
            "a fixed mixture needs an arm for every question",
            "none",
            "add one, such as the default",
        )
    left_out = [arm for number, arm in enumerate(table.arms) if number not in always]
    text = f"{len(left_out)} arms that some question cannot have are in no mixture: "
    notes = (f"{text}{', '.join(left_out)}.",) if left_out else ()
    spend = table_costs(table)[:, always].mean(axis=0)
    reward = table.gross[:, always].mean(axis=0)
    # From the cheapest arm on, a corner stays while the slope to the next falls; at equal spend the
    # better arm counts.
    corners: list[int] = []
    for arm in np.lexsort((-reward, spend)):
        if corners and reward[arm] <= reward[corners[-1]]:
            continue
        while len(corners) > 1 and _slope(spend, reward, corners[-2], corners[-1]) <= _slope(
            spend, reward, corners[-1], arm
        ):
            corners.pop()
        corners.append(int(arm))
    mixture = np.eye(len(table.arms))[always[corners]]
    return Frontier(table.arms, spend[corners], reward[corners], mixture, notes)


def _slope(spend: FloatArray, reward: FloatArray, first: int, second: int) -> float:
    """Reward gained a unit of spend from one arm to a dearer one."""
    return float((reward[second] - reward[first]) / (spend[second] - spend[first]))


class PriceChoice(NamedTuple):
    """Price that keeps a budget on the questions that it was chosen on.

    price, looser_price: value lost a unit of cost; at the first the spend is within the budget, at
    the second, just below the last crossing, it is above. share: of the questions that are decided
    at the looser price, so that the budget is used up; both prices are 0 where the budget does not
    bind. spend: a question, expected.
    """

    price: float
    looser_price: float
    share: float
    spend: float

    def plan(self, reward: ArrayLike, cost: ArrayLike, mask: BoolArray | None = None) -> FloatArray:
        """Probabilities [Q, A] of arms of predicted reward and cost [Q, A]."""
        one_hot = np.eye(np.shape(reward)[-1])
        tight, loose = (
            one_hot[priced_arms(reward, cost, price, mask)]
            for price in (self.price, self.looser_price)
        )
        return (1.0 - self.share) * tight + self.share * loose


def priced_arms(
    reward: ArrayLike, cost: ArrayLike, price: ArrayLike, mask: BoolArray | None = None
) -> PlaceArray:
    """Arm of largest reward - price * cost among the available ones, [...].

    The cheapest of equals, then the lowest.

    Args:
      reward, cost: [..., A].
      price: [...], at least 0.
      mask: [..., A].
    """
    dear = np.asarray(cost, np.float64)
    score = np.asarray(reward, np.float64) - np.asarray(price, np.float64)[..., None] * dear
    score = score if mask is None else np.where(mask, score, -np.inf)
    best = score >= score.max(axis=-1, keepdims=True)
    return np.argmin(np.where(best, dear, np.inf), axis=-1)


def choose_price(
    reward: ArrayLike,
    cost: ArrayLike,
    budget: Budget | float,
    *,
    spend: ArrayLike | None = None,
    mask: BoolArray | None = None,
) -> PriceChoice:
    """Smallest price from which on the spend keeps a budget.

    Exact, over all prices at which some choice changes.

    A price is a Lagrange multiplier: of all plans with this spend, deciding by reward - price *
    cost earns most by its own predictions. A share of the questions decided at the price just below
    uses the budget up.

    Args:
      reward: predicted reward, [Q, A], finite where available.
      cost: predicted cost, [Q, A], finite where available.
      budget: mean cost of a question, in the unit of `spend`.
      spend: cost that is paid, [Q, A]; `cost` where None.
      mask: available arms, [Q, A].

    Raises:
      ValueError: a budget below the spend of the arm that is predicted cheapest of each question;
        shapes that do not fit, no question, or a number that is missing or infinite where the arm
        is available.

    Source: Everett, Generalized Lagrange multiplier method for solving problems of optimum
      allocation (1963).

    Example:
      >>> choice = choose_price([[0.5, 0.9], [0.5, 0.6]], [[0.0, 1.0], [0.0, 1.0]], 0.5)
      >>> choice.price, choice.spend, choice.plan([[0.5, 0.9]], [[0.0, 1.0]]).tolist()
      (0.25, 0.5, [[0.0, 1.0]])
    """
    checked = check_budget(budget)
    paid = np.asarray(cost if spend is None else spend, np.float64)
    rewards = float_array(reward, "reward")
    costs = float_array(cost, "cost")
    _check_predictions({"reward": rewards, "cost": costs, "spend": paid}, mask)
    prices, steps, first = _switches(rewards, costs, paid, mask)
    # Spend a question between one price of change and the next; sums are of the prices' order, so
    # the bits are.
    levels = (first + np.concatenate([[0.0], np.cumsum(steps)])) / len(paid)
    within = levels <= checked.per_question * (1.0 + ROUNDING)
    check_least(checked, float(levels[-1]), "the cheapest arm of each question")
    if within.all():
        return PriceChoice(0.0, 0.0, 0.0, float(levels[0]))
    # the spend is above the budget until prices[last] is passed
    last = int(np.flatnonzero(~within)[-1])
    before = prices[last - 1] if last else 0.0
    after = prices[last + 1] if last + 1 < len(prices) else 2.0 * prices[last]
    share = (checked.per_question - levels[last + 1]) / (levels[last] - levels[last + 1])
    share = float(np.clip(share, 0.0, 1.0))
    mixed = (1.0 - share) * levels[last + 1] + share * levels[last]
    price = 0.5 * float(prices[last] + after)
    looser_price = 0.5 * float(prices[last] + before)
    return PriceChoice(price, looser_price, share, float(mixed))


def _check_predictions(parts: dict[str, FloatArray], mask: BoolArray | None) -> None:
    """Refuse predictions that no price can be chosen on; see `choose_price`."""
    shape = parts["reward"].shape
    open_ = np.ones(shape, np.bool_) if mask is None else np.asarray(mask)
    shapes = {name: part.shape for name, part in {**parts, "mask": open_}.items()}
    if {*shapes.values()} != {shape} or len(shape) != 2 or 0 in shape:
        refuse(
            "reward, cost, spend and mask must be [Q, A] each, of a question at least",
            shapes,
            "give all of each",
        )
    if open_.dtype != np.bool_ or not open_.any(axis=1).all():
        refuse(
            "mask must be booleans, with an arm for each question",
            open_.dtype,
            "leave out such questions",
        )
    for name, part in parts.items():
        if not np.isfinite(part[open_]).all():
            refuse(
                f"{name} of an available arm must be finite",
                "NaN or infinity",
                "predict it, or mask the arm",
            )


def _switches(
    reward: FloatArray, cost: FloatArray, paid: FloatArray, mask: BoolArray | None
) -> tuple[FloatArray, FloatArray, float]:
    """Prices at which some question takes a cheaper arm, ascending; what is paid more then, in all.

    Paid at price 0.
    """
    rows = np.arange(len(reward))
    arm = priced_arms(reward, cost, np.zeros(len(reward)), mask)
    first = float(paid[rows, arm].sum())
    at: list[FloatArray] = []
    step: list[FloatArray] = []
    # A question moves along the upper envelope of its arms' lines: at most one move an arm.
    for _ in range(reward.shape[1] - 1):
        saving = cost[rows, arm][:, None] - cost
        cheaper = saving > 0.0 if mask is None else (saving > 0.0) & mask
        price = (reward[rows, arm][:, None] - reward) / np.where(cheaper, saving, 1.0)
        price = np.where(cheaper, price, np.inf)
        least = price.min(axis=1)
        moving = np.isfinite(least)
        # Of arms that are reached at the same price the cheapest is where the question goes.
        target = np.argmin(np.where(cheaper & (price <= least[:, None]), cost, np.inf), axis=1)
        at.append(least[moving])
        step.append((paid[rows, target] - paid[rows, arm])[moving])
        arm = np.where(moving, target, arm)
    prices, place = np.unique(np.concatenate([np.zeros(0), *at]), return_inverse=True)
    return (
        prices,
        np.bincount(place, np.concatenate([np.zeros(0), *step]), len(prices)).astype(np.float64),
        first,
    )


class Pacer(NamedTuple):
    """A price that follows the spend so far; [...] is any batch of plays.

    Attributes:
      budget: the budget that the price holds.
      price: value lost a unit of cost, for the next question, [...].
      spend: in all, [...].
      rounds: questions paid.
    """

    budget: Budget
    price: FloatArray
    spend: FloatArray
    rounds: int


def start_pacer(budget: Budget | float, batch: tuple[int, ...] = ()) -> Pacer:
    """Pacer before the first question.

    Args:
      budget: the budget that the price holds.
      batch: shape of plays side by side.
    """
    checked = check_budget(budget)
    return Pacer(checked, np.full(batch, checked.first_price), np.zeros(batch), 0)


def pace(pacer: Pacer, cost: ArrayLike) -> Pacer:
    """Pacer after one more question of each play, which cost `cost`.

    The price is multiplied by exp(step * (cost / per_question - 1)) and stays within a factor of
    10,000 of 1 / per_question. While it stays inside, spend - rounds * per_question is exactly
    per_question / step * ln(price / first price): the overspend of a question falls as 1 / rounds.

    Args:
      pacer: before the question.
      cost: of the question, [...], at least 0; NaN, a cost that never arrives, counts as the budget
        of a question.

    Raises:
      ValueError: a cost below 0 or infinite.

    Source: Balseiro, Lu and Mirrokni, Dual mirror descent for online allocation problems (2020),
      with entropy.

    Example:
      >>> pacer = pace(start_pacer(Budget(2.0, price=1.0, step=0.1)), 4.0)
      >>> round(float(pacer.price), 6), float(pacer.spend), pacer.rounds
      (1.105171, 4.0, 1)
    """
    budget = pacer.budget
    paid = np.asarray(cost, np.float64)
    paid = np.where(np.isnan(paid), budget.per_question, paid)
    is_wrong = ~((paid >= 0.0) & (paid < np.inf))
    if is_wrong.any():
        refuse("a cost must be at least 0", paid[is_wrong].flat[0], "give what was paid")
    # The logarithm moves, so that no single dear question overflows the price.
    log_price = np.log(pacer.price) + budget.step * (paid / budget.per_question - 1.0)
    reach = np.log(REACH)
    middle = -np.log(budget.per_question)
    price = np.exp(np.clip(log_price, middle - reach, middle + reach))
    return Pacer(budget, price, pacer.spend + paid, pacer.rounds + 1)
