"""The bandit's log as tables: a row a choice, a row an arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from raglab._counting import won
from raglab.lab._folded import Setup, p95
from raglab.reward import COMPONENTS, OPTIONAL, reward
from raglab.store.audit import Entries
from raglab.store.choices import CHOICES, REWARDS, THUMBS

if TYPE_CHECKING:
    import pandas as pd

ARM_COLUMNS = ("arm", "pulls", "rewards", "wins", "win_rate", "mean_reward", "mean_ms", "p95_ms")


def frame(log: Entries, setup: Setup) -> pd.DataFrame:
    """Choices in order, those of the setup's arms, rewards scored by its weights.

    Returns: `seq`, `request_id`, `at`, `policy_id`, `question`, `arm`, `action` (place of the arm), `reward` (NaN where
      none has come: drop such rows for `off_policy.estimate`), `propensity`, `p_<arm>`, `mask` (a boolean an arm),
      `features`, `components` (None without a reward), `measured`, `ms`, `thumb`, `age`.
    """
    import pandas as pd

    rewards = {row["request_id"]: row for row in log.rows(REWARDS)}
    thumbs = {row["request_id"]: int(row["up"]) for row in log.rows(THUMBS)}
    rows = []
    for choice in log.rows(CHOICES):
        if choice["arm"] not in setup.arms:
            continue
        request = choice["request_id"]
        came, thumb = rewards.get(request), thumbs.get(request)
        share = dict(zip(choice["arms"], choice["propensities"], strict=True))
        there = dict(zip(choice["arms"], choice["mask"], strict=True))
        rows.append(
            {name: choice[name] for name in ("seq", "request_id", "at", "policy_id", "question", "arm")}
            | {
                "action": setup.arms.index(choice["arm"]),
                "reward": np.nan,  # of all rows at once, below
                "propensity": choice["propensity"],
            }
            | {f"p_{arm}": share.get(arm, 0.0) for arm in setup.arms}
            | {
                "mask": tuple(bool(there.get(arm, False)) for arm in setup.arms),
                "features": choice["features"],
                "components": None if came is None else came["components"],
                "measured": None if came is None else came["measured"],
                "ms": np.nan if came is None else came["ms"],
                "thumb": np.nan if thumb is None else float(thumb),
                "age": np.nan if came is None else float(came["age"]),
            }
        )
    columns = ["seq", "request_id", "at", "policy_id", "question", "arm", "action", "reward", "propensity"]
    columns += [f"p_{arm}" for arm in setup.arms]
    columns += ["mask", "features", "components", "measured", "ms", "thumb", "age"]
    told = pd.DataFrame(rows, columns=columns)
    raw = [row["components"] or {} for row in rows]
    parts: dict[str, Any] = {
        name: np.array([np.nan if one.get(name) is None else one[name] for one in raw], dtype=np.float64)
        for name in (*COMPONENTS, *OPTIONAL)
    }
    told["reward"] = reward(parts | {"thumbs": told["thumb"].to_numpy(np.float64)}, setup.weights)
    return told


def arms_frame(choices: pd.DataFrame, setup: Setup) -> pd.DataFrame:
    """Metrics of each arm; NaN where there is nothing to say.

    Returns: `arm`, `pulls`, `rewards` (that have come), `wins` (above the bandit's threshold), `win_rate` (of the
      rewards), `mean_reward`, `mean_ms`, `p95_ms`.

    Source: rule S4.6.
    """
    import pandas as pd

    rows = []
    for arm in setup.arms:
        of = choices[choices["arm"] == arm]
        came = of["reward"].dropna().to_numpy(np.float64)
        ms = of["ms"].dropna().to_numpy(np.float64)
        wins = int(won(came, setup.bandit).sum())
        n, none = len(came), float("nan")
        means = (wins / n, float(came.mean()), float(ms.mean())) if n else (none, none, none)
        rows.append((arm, len(of), n, wins, *means, p95(ms.tolist())))
    return pd.DataFrame(rows, columns=list(ARM_COLUMNS))
