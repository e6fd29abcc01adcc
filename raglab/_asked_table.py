"""What simulated users came to: rates by bucket of requests with intervals, regret, and when a row falls silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._asked_sim import ALWAYS, NEVER, ORACLE, Asked, Policy, asked
from raglab._binomial import clopper_pearson
from raglab._learner import check_whole, refuse
from raglab._users import Array, World
from raglab._votes import SIGNALS, Learner, confidence, no_votes, scheduled, voted

if TYPE_CHECKING:
    import pandas as pd

HUNDRED = 100.0
QUIET = 10  # requests without a question after which a row counts as silent
BUCKETS = 20
MEASURES = ("questions", "errors", "unanswered", "cost", "regret", "silent")


class Silence(NamedTuple):
    """When rows fell silent, [U, slots].

    requests: that met the row. after: its requests up to its last question; 0 never asked; NaN not silent in the end.
    """

    requests: NDArray[np.int64]
    after: Array


def simulate(
    world: World,
    policies: Mapping[str, Policy],
    *,
    users: int = 2000,
    requests: int = 200,
    seed: int = 0,
    question_cost: float = 1.0,
    error_cost: float = 10.0,
    buckets: int = BUCKETS,
    level: float = 0.95,
    n_jobs: int = 1,
) -> pd.DataFrame:
    """Questions, silent errors, cost and regret of each policy, by bucket of requests.

    All policies meet the same users, requests and noise, so that their differences may be taken pair by pair; the bits
    hang neither on the number of processes nor on which policies stand beside.

    Args:
      policies: name -> learner, a `Priced` one, or one of `BASELINES`, which `_asked_sim.asked` describes.
      question_cost, error_cost: of a question or an unanswered request, of a wrong value applied silently.
      buckets: into which the requests are cut; level: of the intervals over users.

    Returns: a row a policy and bucket: `policy`, `bucket`, `first`, `last` (numbers of its requests, from 1),
      `questions`, `errors` (silent ones), `unanswered`, `cost`, each per 100 requests; `regret` (cost of a user above
      the oracle's, all requests up to `last`); `silent` (share of users who are not asked after `last`; NaN in the
      last bucket); each with `_low` and `_high`; `users`.

    Raises:
      ValueError: no policy, one that is unknown, sizes below 1, costs below 0, a world that breaks a rule.

    Source: rules S5.4, S5.5.

    Example:
      >>> from raglab._users import world
      >>> one = simulate(world({"a": {"x": 1.0}}), {"learner": Learner()}, users=5, requests=4, buckets=2)
      >>> one[["last", "questions", "errors"]].to_numpy().tolist()
      [[2.0, 50.0, 0.0], [4.0, 0.0, 0.0]]
    """
    import pandas as pd

    check_whole("buckets", buckets, 1, "give at least one")
    for name, cost in (("question_cost", question_cost), ("error_cost", error_cost)):
        if not 0.0 <= cost < np.inf:
            refuse(f"{name} must be >= 0", cost, "it is what one costs")
    if not policies:
        refuse("policies must be at least one", "none", "give a learner or a baseline by name")
    if not 0.0 < level < 1.0:
        refuse("level must be in (0, 1)", level, "0.95 is usual")
    sizes: dict[str, Any] = {"users": users, "requests": requests, "seed": seed, "n_jobs": n_jobs}
    costs: dict[str, Any] = {"question_cost": question_cost, "error_cost": error_cost}
    best = cost_of(asked(world, ORACLE, **sizes, **costs), **costs)
    parts = [
        _table(name, asked(world, policy, **sizes, **costs), best, costs, min(buckets, requests), level)
        for name, policy in policies.items()
    ]
    return pd.concat(parts, ignore_index=True)


def cost_of(found: Asked, question_cost: float, error_cost: float) -> Array:
    """Cost of every request, [U, T]; an unanswered one costs as much as a question: its user must ask again."""
    return np.asarray(question_cost * (found.question + 1.0 * found.unanswered) + error_cost * found.error)


def silence(found: Asked, quiet: int = QUIET) -> Silence:
    """When each row fell silent: it asked nothing at its last `quiet` requests, or at none at all.

    A row that met fewer requests after its last question is not known to be silent: NaN.
    """
    slots = found.topic.shape[1]
    at = found.slot[..., None] == np.arange(slots)  # [U, T, slots]
    number = np.cumsum(at, axis=1)
    total = number[:, -1]
    last = np.where(at & found.question[..., None], number, 0).max(axis=1)
    return Silence(total, np.where(total - last >= quiet, last.astype(np.float64), np.nan))


def confidence_paths(learners: Mapping[str, Learner], requests: int) -> pd.DataFrame:
    """Confidence of a row whose value is always right, request by request, after one yes at the first.

    Returns: a row a learner, request and way: `learner`, `gated`, `request`, `question`, `confidence` (after it).
      `gated` false: the value is applied silently ever after; true: the gate asks when it is due, and is told yes.

    Source: rules S5.4, S5.5.

    Example:
      >>> confidence_paths({"vote_share": Learner()}, 3)["confidence"].tolist()
      [1.0, 0.75, 0.6666666666666666, 1.0, 0.75, 0.6666666666666666]
    """
    import pandas as pd

    check_whole("requests", requests, 1, "give at least one")
    rows = []
    for name, learner in learners.items():
        for gated in (False, True):
            votes, sure = no_votes(1), 0.0
            for request in range(1, requests + 1):
                asks = request == 1 or (gated and bool(scheduled(sure, request - 1, learner)))
                votes = voted(votes, 0, SIGNALS.index("explicit_yes" if asks else "implicit_ok"))
                sure = float(confidence(votes, learner))
                rows.append((name, gated, request, asks, sure))
    return pd.DataFrame(rows, columns=["learner", "gated", "request", "question", "confidence"])


def _table(
    name: str, found: Asked, best: Array, costs: Mapping[str, float], buckets: int, level: float
) -> pd.DataFrame:
    """Rows of one policy."""
    import pandas as pd

    requests = found.question.shape[1]
    ends = np.rint(np.linspace(0, requests, buckets + 1)).astype(np.int64)
    size = np.diff(ends)
    cost = cost_of(found, **costs)
    by_user = {"questions": found.question, "errors": found.error, "unanswered": found.unanswered, "cost": cost}
    columns: dict[str, object] = {
        "policy": name, "bucket": np.arange(buckets), "first": ends[:-1] + 1, "last": ends[1:]
    }  # fmt: skip
    for measure, part in by_user.items():
        sums = np.add.reduceat(part.astype(np.float64), ends[:-1], axis=1)
        columns |= _with_ends(measure, HUNDRED * sums / size, level)
    columns |= _with_ends("regret", np.cumsum(cost - best, axis=1)[:, ends[1:] - 1], level)
    last = np.where(found.question, np.arange(1, requests + 1), 0).max(axis=1)
    quiet = (last[:, None] <= ends[1:]).sum(axis=0)
    low, high = clopper_pearson(quiet, len(last), level)
    open_end = ends[1:] == requests
    for key, value in (("silent", quiet / len(last)), ("silent_low", low), ("silent_high", high)):
        columns[key] = np.where(open_end, np.nan, value)
    return pd.DataFrame(columns | {"users": len(last)})


def _with_ends(name: str, values: Array, level: float) -> dict[str, object]:
    """Mean over the users and its t interval, by column; NaN where there is one user."""
    low, high = mean_interval(values, level)
    return {name: values.mean(axis=0), f"{name}_low": low, f"{name}_high": high}


def mean_interval(values: Array, level: float) -> tuple[Array, Array]:
    """Ends of the t interval of the mean over the first axis.

    Args:
      values: [U, N].
    """
    from scipy.special import stdtrit

    count = len(values)
    mean = values.mean(axis=0)
    if count < 2:
        return np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    reach = stdtrit(count - 1, 0.5 + level / 2.0) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return mean - reach, mean + reach


__all__ = ["ALWAYS", "MEASURES", "NEVER", "ORACLE", "Silence", "confidence_paths", "cost_of", "silence", "simulate"]
