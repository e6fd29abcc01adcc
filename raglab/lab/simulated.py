"""Learners and baselines on the cases of a table: right decisions, regret, pulls and milliseconds, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._learner import Bandit
from raglab._worlds import Bernoulli, Table
from raglab.lab import _audit as audit
from raglab.replay import Run, run

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
FIXED, UNIFORM, ORACLE, ROUTER = "best fixed arm", "uniform", "oracle", "router"
MS_KNOWN = 1e-12


class Simulated(NamedTuple):
    """Learners and baselines that met the same cases in the same order.

    table: a row a policy, as `simulated` describes it. runs: name -> run, of the learners. reference: what
    `difference` is taken against.
    """

    table: pd.DataFrame
    runs: Mapping[str, Run]
    reference: str


class Earned(NamedTuple):
    """What a policy came to in each replication and case, [R, Q]; pulls [A], of all rounds of all replications."""

    value: Array
    n: Array  # rounds of the case
    ms: Array
    timed: Array  # rounds whose milliseconds are known
    pulls: Array


def baselines(world: Table, router: Array | None = None, *, fixed: str | None = None) -> dict[str, Array]:
    """Policies that learn nothing, as probabilities [Q, A]: the best fixed arm, uniform, the router, the oracle.

    A fixed arm is available in every case; where there is none, it is left out. The oracle takes the best available arm
    of each case, ties shared.

    Args:
      router: of the source. fixed: name of the arm that was best on other cases; on these ones where not given.

    Raises:
      ValueError: the fixed arm is unknown, or not available in every case.
    """
    mask = world.mask
    arm = best_fixed(world) if fixed is None else fixed
    plans: dict[str, Array] = {}
    if arm is not None:
        if arm not in world.arms or not mask[:, world.arms.index(arm)].all():
            msg = f"fixed must be an arm that is available in every case, got {arm!r} of {', '.join(world.arms)}."
            raise ValueError(msg)
        plans[FIXED] = np.broadcast_to(np.eye(len(world.arms))[world.arms.index(arm)], mask.shape)
    plans[UNIFORM] = mask / mask.sum(axis=1, keepdims=True)
    if router is not None:
        plans[ROUTER] = router
    return plans | {ORACLE: audit.greedy(world.value, mask)}


def best_fixed(world: Table) -> str | None:
    """Arm of most value among those that are available in every case; the first of equals, None if there is none."""
    always = np.flatnonzero(world.mask.all(axis=0))
    return None if not len(always) else world.arms[always[int(np.argmax(world.value[:, always].sum(axis=0)))]]


def simulated(
    world: Table,
    learners: Mapping[str, Bandit | tuple[Bandit, Array]],
    plans: Mapping[str, Array],
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    reference: str = FIXED,
    level: float = 0.95,
    n_boot: int = 2000,
    engine: str = "auto",
    n_jobs: int = 1,
) -> Simulated:
    """Learners beside policies that learn nothing, on the same cases in the same order.

    Intervals resample cases and replications together: a learner's path is chance, and so are the cases. Learners are
    not trained anew on the resampled cases.

    Args:
      learners: name -> settings, or settings and rewards [Q, A] in the place of the world's. plans: name ->
        probabilities [Q, A]; their expected value is taken, so that they add no chance.
      reference: what `difference` is taken against; the first policy where it is not there.

    Returns: `table`, a row a policy: `policy`, `right` (mean value a round, with `_low`, `_high`), `regret` (value
      lost in all rounds against the best available arm of each case, likewise), `difference` (`right` minus that of the
      reference, paired, likewise), `ms` (mean of the known), and `pulls_<arm>` (share of the rounds).

    Source: rule S4.7.
    """
    import pandas as pd

    runs: dict[str, Run] = {}
    for name, given in learners.items():
        bandit, reward = (given, world.reward) if isinstance(given, Bandit) else given
        met = world._replace(reward=reward)
        runs[name] = run(bandit, met, rounds=rounds, replications=replications, seed=seed, engine=engine, n_jobs=n_jobs)
    if runs:
        cases = _cases(next(iter(runs.values())))
    else:
        cases = _cases(run(plans[next(iter(plans))], world, rounds=rounds, replications=replications, seed=seed))
    drawn = _per_case(cases, len(world.mask))
    each = {name: earned(one, world) for name, one in runs.items()}
    each |= {name: expected(plan, drawn, world) for name, plan in plans.items()}
    best = expected(audit.greedy(world.value, world.mask), drawn, world)
    against = reference if reference in each else next(iter(each))
    rows = _rows(each, best, against, rounds, level, n_boot, seed)
    shares = [
        {f"pulls_{arm}": share for arm, share in zip(world.arms, _shares(one.pulls), strict=True)}
        for one in each.values()
    ]
    table = pd.DataFrame([row | share for row, share in zip(rows, shares, strict=True)])
    return Simulated(table, runs, against)


def simulated_arms(
    means: Array,
    learners: Mapping[str, Bandit],
    *,
    rounds: int,
    replications: int,
    seed: int = 0,
    level: float = 0.95,
    engine: str = "auto",
    n_jobs: int = 1,
) -> Simulated:
    """Learners beside a uniform choice on Bernoulli arms of known means, on the same chance.

    Returns: `table`, a row a policy: `policy`, `reward` (expected, a round), `regret` (expected reward lost in all
      rounds against the best arm, mean over replications, `_low` and `_high` a t interval of it), and `pulls_<arm>`
      (share of the rounds).
    """  # fmt: skip
    import pandas as pd

    world = Bernoulli(np.asarray(means, dtype=np.float64))
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed, "n_jobs": n_jobs}
    runs = {name: run(bandit, world, engine=engine, **sizes) for name, bandit in learners.items()}
    runs[UNIFORM] = run(np.full(world.n_arms, 1.0 / world.n_arms), world, **sizes)
    rows = []
    for name, one in runs.items():
        last = one.regret[:, -1]
        low, high = mean_interval(last[:, None], level)
        row = {"policy": name, "reward": float(one.value[:, -1].mean()) / rounds, "regret": float(last.mean())}
        shares = {
            f"pulls_arm {arm}": share for arm, share in enumerate(_shares(one.pulls.sum(axis=0).astype(np.float64)))
        }
        rows.append(row | {"regret_low": float(low[0]), "regret_high": float(high[0])} | shares)
    return Simulated(pd.DataFrame(rows), runs, UNIFORM)


def mean_interval(values: Array, level: float) -> tuple[Array, Array]:
    """Normal-theory interval of the mean over the first axis, [N]; NaN where one replication says nothing of others.

    Args:
      values: [R, N].
    """
    from scipy.stats import t

    if len(values) < 2:
        none = np.full(values.shape[1:], np.nan)
        return none, none
    mean = values.mean(axis=0)
    reach = t.ppf(0.5 + level / 2.0, len(values) - 1) * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return mean - reach, mean + reach


def earned(found: Run, world: Table) -> Earned:
    """What a run came to by replication and case."""
    case, n_cases = _cases(found), len(world.mask)
    arm = found.arm.astype(np.intp)
    ms = world.ms[case, arm]
    return Earned(
        _per_case(case, n_cases, world.value[case, arm]),
        _per_case(case, n_cases),
        _per_case(case, n_cases, np.nan_to_num(ms)),
        _per_case(case, n_cases, ~np.isnan(ms)),
        found.pulls.sum(axis=0).astype(np.float64),
    )


def expected(plan: Array, drawn: Array, world: Table) -> Earned:
    """What fixed probabilities [Q, A] are expected to come to, given how often each case was drawn, [R, Q]."""
    value = (plan * np.where(world.mask, world.value, 0.0)).sum(axis=1)
    known = world.mask & ~np.isnan(world.ms)
    ms = (plan * np.where(known, world.ms, 0.0)).sum(axis=1)
    timed = (plan * known).sum(axis=1)
    return Earned(drawn * value, drawn, drawn * ms, drawn * timed, drawn.sum(axis=0) @ plan)


def mean_ms(one: Earned) -> float:
    """Mean milliseconds a round, of the rounds where they are known; NaN where none are."""
    total = float(one.timed.sum())
    return float(one.ms.sum()) / total if total > MS_KNOWN else float("nan")


def _cases(found: Run) -> NDArray[np.int32]:
    if found.case is None:
        msg = "a run must be one over a table of cases, got one over arms of known means; see simulated_arms."
        raise ValueError(msg)
    return found.case


def _per_case(cases: NDArray[np.int32], n_cases: int, weight: NDArray[Any] | None = None) -> Array:
    """Sum of weights, or count, of each case in each replication, [R, Q]."""
    at = cases + n_cases * np.arange(len(cases))[:, None]
    flat = None if weight is None else np.asarray(weight, dtype=np.float64).ravel()
    size = n_cases * len(cases)
    return np.bincount(at.ravel(), flat, size).reshape(len(cases), n_cases).astype(np.float64)


def _rows(
    each: Mapping[str, Earned], best: Earned, against: str, rounds: int, level: float, n_boot: int, seed: int
) -> list[dict[str, Any]]:
    """Right decisions, regret and difference of each policy, with their intervals."""
    names = list(each)
    place = names.index(against)
    sums = [*(one.value for one in each.values()), best.value, best.n]
    n_replications, n_cases = best.n.shape
    rng = np.random.default_rng([seed, 1])
    share = np.full(n_replications, 1.0 / n_replications)
    draws = []
    for counts in audit.resamples(n_cases, n_boot, 3 * n_cases, seed):
        again = rng.multinomial(n_replications, share, size=len(counts)).astype(np.float64)
        totals = np.stack([((again @ one) * counts).sum(axis=1) for one in sums], axis=1)
        draws.append(totals[:, :-1] / totals[:, -1:])
    point = np.array([one.sum() for one in sums[:-1]]) / best.n.sum()
    drawn = np.concatenate(draws)
    measures = {
        "right": (point[:-1], drawn[:, :-1]),
        "regret": (rounds * (point[-1] - point[:-1]), rounds * (drawn[:, [-1]] - drawn[:, :-1])),
        "difference": (point[:-1] - point[place], drawn[:, :-1] - drawn[:, [place]]),
    }
    chance = audit.unseen(n_cases, level) / n_cases
    rows: list[dict[str, Any]] = [{"policy": name} for name in names]
    for measure, (value, resampled) in measures.items():
        low, high = audit.ends(resampled, level)
        for at, name in enumerate(names):
            other, known = (best, ORACLE) if measure == "regret" else (each[against], against)
            if measure != "right" and name != known and not (each[name].value - other.value).any():
                high[at] = chance * (rounds if measure == "regret" else 1)  # never apart on these cases is no proof
                low[at] = 0.0 if measure == "regret" else -chance
            rows[at] |= {measure: value[at], f"{measure}_low": low[at], f"{measure}_high": high[at]}
    return [row | {"ms": mean_ms(one)} for row, one in zip(rows, each.values(), strict=True)]


def _shares(pulls: Array) -> list[float]:
    return (pulls / pulls.sum()).tolist()
