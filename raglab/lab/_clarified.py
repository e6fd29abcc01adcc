"""Rates of clarification policies over seeds, on the same users and requests: means, intervals, paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raglab._asked_sim import Policy, asked
from raglab._asked_table import cost_of
from raglab._learner import check_whole
from raglab._users import World

if TYPE_CHECKING:
    import pandas as pd

RATES = ("questions", "errors", "unanswered", "cost")  # per 100 requests
HUNDRED = 100.0


def rates_of(
    world: World, policy: Policy, *, question_cost: float = 1.0, error_cost: float = 10.0, **sizes: Any  # noqa: ANN401
) -> dict[str, float]:  # fmt: skip
    """Questions, silent errors, unanswered and cost, each per 100 requests; `sizes` are those of `asked`."""
    found = asked(world, policy, question_cost=question_cost, error_cost=error_cost, **sizes)
    parts = (found.question, found.error, found.unanswered, cost_of(found, question_cost, error_cost))
    return {name: HUNDRED * float(part.mean()) for name, part in zip(RATES, parts, strict=True)}


def compared(
    world: World,
    policies: Mapping[str, Policy],
    *,
    seeds: int,
    users: int,
    requests: int,
    seed: int = 0,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    n_jobs: int = 1,
) -> pd.DataFrame:
    """Rates of policies over seeds, a row a policy and seed; within a seed all meet the same.

    Each seed has users, requests and noise of its own, and topics drawn anew from the world's (a bootstrap sample), so
    that intervals over the seeds hold the chance of the topics as well.
    """
    import pandas as pd

    check_whole("seeds", seeds, 2, "an interval needs at least two")
    sizes: dict[str, Any] = {"users": users, "requests": requests}
    costs = {"question_cost": question_cost, "error_cost": error_cost}

    def one(number: int) -> list[dict[str, Any]]:
        rng = np.random.default_rng([seed, number])
        count = len(world.contexts)
        drawn = world.traffic * rng.multinomial(count, np.full(count, 1.0 / count))
        made = world._replace(traffic=drawn / drawn.sum(), at_once=min(world.at_once, int((drawn > 0.0).sum())))
        own = int(rng.integers(2**31))
        return [
            {"policy": name, "seed": number, **rates_of(made, policy, seed=own, **sizes, **costs)}
            for name, policy in policies.items()
        ]

    if n_jobs == 1:
        rows = [one(number) for number in range(seeds)]
    else:
        from joblib import Parallel, delayed  # type: ignore[import-untyped] # it has no types

        rows = Parallel(n_jobs=n_jobs)(delayed(one)(number) for number in range(seeds))
    return pd.DataFrame([row for part in rows for row in part])


def summary(by_seed: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Mean over the seeds of each policy, and the ends between which `level` of the seeds lie."""
    return _ends(by_seed, list(dict.fromkeys(by_seed["policy"])), {}, level)


def paired(by_seed: pd.DataFrame, reference: str, level: float = 0.95) -> pd.DataFrame:
    """Rates of `reference` minus those of each other policy, seed by seed, as `summary` gives them."""
    names = [name for name in dict.fromkeys(by_seed["policy"]) if name != reference]
    return _ends(by_seed, names, {"of": reference}, level)


def _ends(by_seed: pd.DataFrame, names: Sequence[str], minus: Mapping[str, str], level: float) -> pd.DataFrame:
    import pandas as pd

    tail = (1.0 - level) / 2.0
    of = {name: part.sort_values("seed") for name, part in by_seed.groupby("policy", sort=False)}
    rows: list[dict[str, Any]] = []
    for name in names:
        row: dict[str, Any] = {"policy": name}
        for rate in RATES:
            values = of[name][rate].to_numpy(dtype=np.float64)
            if minus:
                values = of[minus["of"]][rate].to_numpy(dtype=np.float64) - values
            low, high = np.quantile(values, [tail, 1.0 - tail])
            row |= {rate: float(values.mean()), f"{rate}_low": float(low), f"{rate}_high": float(high)}
        rows.append(row | {"seeds": len(of[name])})
    return pd.DataFrame(rows)
