"""Budgets (algebra): the limit on what questions cost, as a value (S4.8).

What keeps one is in `raglab.extensions.budgets`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import is_number
from raglab.values import refuse

STARTING_PRICE_BUDGETS = (
    0.1  # price of a pacer that is not given any, times the budget of a question
)


class Budget(NamedTuple):
    """Limit on the mean cost of a question.

    Attributes:
      per_question: in the unit of the table's costs, above 0.
      unit: its name, for displays.
      price: value lost a unit of cost with which a pacer starts; 0.1 / per_question where None.
      step: of a pacer, above 0: a question that costs k budgets more than its own raises the price
        by the factor exp(step * k).
    """

    per_question: float
    unit: str = ""
    price: float | None = None
    step: float = 0.01

    @property
    def first_price(self) -> float:
        """Price with which a pacer starts."""
        return STARTING_PRICE_BUDGETS / self.per_question if self.price is None else self.price


def check_budget(budget: Budget | float) -> Budget:
    """Budget whose numbers keep their rules; a number is the budget of a question.

    Raises:
      ValueError: the rule, the value, and what to do.
    """
    budget_value = budget if isinstance(budget, Budget) else Budget(budget)
    for name in ("per_question", "price", "step"):
        field_value = getattr(budget_value, name)
        is_unset = name == "price" and field_value is None
        if not is_unset and not (is_number(field_value) and 0.0 < field_value < np.inf):
            remedy = "0.01 is usual" if name == "step" else "state it in the unit of the costs"
            refuse(f"{name} of a budget must be a number above 0", repr(field_value), remedy)
    return budget_value
