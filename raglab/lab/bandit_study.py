"""Study of a bandit: which reward weights and settings lead to right decisions, and does it hold on other cases?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab._learner import Bandit, check_bandit
from raglab._worlds import Table
from raglab.lab._search import Judged, maximised
from raglab.lab.components import BUDGET_MS, components
from raglab.lab.simulated import ORACLE, baselines, best_fixed, earned, mean_ms, simulated
from raglab.lab.space import Range
from raglab.lab.traffic import router, table
from raglab.policy import Policy
from raglab.replay import run
from raglab.reward import PUBLISHED, RewardWeights, reward
from raglab.store.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import Tracked

Array = NDArray[np.float64]
WEIGHTS = ("margin", "diversity", "latency", "cache", "consistency")  # w1 … w5
TUNED, PUBLISHED_WEIGHTS = "tuned", "published weights"
FINALISTS, AGAIN = 20, 5  # best trials that are judged once more, on so many times the replications
DIGITS, UNKNOWN = 4, 1e9  # of what is found; excess of a latency that nobody measured, in ms


@dataclass(frozen=True)
class BanditStudy:
    """Outcome of a study of a bandit.

    weights, bandit: what was found. trials: a row a trial: `value` (share of right decisions), `feasible`, `ms`,
    `threshold`, and the values tried. comparison: policies on the cases that the study did not see, as
    `simulated.simulated` describes them, `difference` against the tuned one. notes: what a reader must know.
    study: Optuna's own.
    """

    weights: RewardWeights
    bandit: Bandit
    trials: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]
    study: Any
    settings: Mapping[str, Any]

    def env(self) -> str:
        """Lines for a `.env` that put what was found to work online."""
        found = self.weights
        rows: dict[str, Any] = {"POLICY": self.bandit.policy}
        rows |= {f"W{number}": getattr(found, name) for number, name in enumerate(WEIGHTS, start=1)}
        rows |= {
            "LAMBDA": found.lambda_,
            "THRESHOLD": self.bandit.threshold,
            "EXPLORATION": self.bandit.exploration,
            "EPSILON": self.bandit.epsilon,
            "PRIOR_STRENGTH": self.bandit.prior_strength,
            "FLOOR": self.bandit.floor,
            "BUDGET_MS": self.settings["budget_ms"],
        }
        return "".join(f"RAGLAB_BANDIT_{name}={value}\n" for name, value in rows.items())

    def track(self, folder: str | Path = "mlruns", *, experiment: str = "bandit") -> Tracked:
        """Log the study as one MLflow run: settings and values found, metrics, tables of trials and comparison."""
        from raglab.lab.tracking import track_run

        rows = self.comparison.to_dict("records")
        names = ("right", "right_low", "right_high", "regret", "ms")
        series = [(f"{_key(row['policy'])}.{name}", float(row[name]), 0) for row in rows for name in names]
        best = self.trials["value"].where(self.trials["feasible"]).cummax()
        series += [("best_value", float(value), int(number)) for number, value in enumerate(best)]
        found = {f"tuned.{name}": value for name, value in self.weights._asdict().items()}
        found |= {f"tuned.{name}": value for name, value in self.bandit._asdict().items() if name != "history"}
        return track_run(
            f"{self.settings['bandit']} {self.settings['sampler']} {self.settings['trials']}",
            experiment,
            {**self.settings, **found},
            series,
            {"trials": self.trials, "comparison": self.comparison},
            folder,
            tags={"trace_fingerprint": str(self.settings["trace"]), "policy_id": str(self.settings["policy_id"])},
            texts={"bandit.env": self.env(), "notes.txt": "\n".join(self.notes) + "\n"},
        )


class _Part(NamedTuple):
    """One split: its table of full information, and the components that weights re-score."""

    world: Table
    measured: pd.DataFrame
    router: Array

    def rewards(self, weights: RewardWeights) -> Array:
        return np.asarray(reward(self.measured, weights), dtype=np.float64).reshape(self.world.mask.shape)


def tune_bandit(
    trace: Trace,
    policy: Policy,
    *,
    bandit: str | Bandit = "thompson_beta",
    trials: int = 200,
    rounds: int = 1000,
    replications: int = 50,
    budget_ms: float = BUDGET_MS,
    latency_budget_ms: float | None = None,
    sampler: str = "tpe",
    seed: int = 0,
    level: float = 0.95,
    n_boot: int = 2000,
    engine: str = "auto",
    progress: bool = False,
) -> BanditStudy:
    """Search reward weights and settings of a bandit on split `tune`, judge what is found on split `report`.

    The value of a trial is the share of right decisions of the simulated bandit, which sees rewards alone. All trials
    meet the same cases in the same order. The first trial is the published one; it and the best are judged once more on
    other chance and more replications: a learner that soon stays with one arm may owe that to luck, and with few
    replications a search finds the settings that were lucky.

    Searched: w1 … w5, lambda, and of the bandit what its policy reads: exploration (epsilon of epsilon_greedy), prior
    strength, and the reward threshold of thompson_beta as a quantile of the rewards, which lie close together. Only
    the product of lambda and w3 matters, and scaling w1 … w5 changes nothing: found weights sum to 1.

    Args:
      trace: without splits all cases serve for both, and the notes say that the rates flatter.
      bandit: policy, or settings to start from.
      rounds, replications: of each simulation.
      budget_ms: of a question, in the reward. latency_budget_ms: highest mean latency that a trial may have; the same
        where not given.
      level: of the intervals. n_boot: resamples of cases and replications.

    Raises:
      ValueError: unknown policy or sampler, trials below 1, or a trace without vectors or latencies.

    Source: rules S4.4, S4.5, S4.7, S6.5.

    Example: `print(tune_bandit(trace, policy).env())`.
    """
    base = Bandit(bandit) if isinstance(bandit, str) else bandit
    check_bandit(base)
    tune, judge, notes = _parts(trace, policy, budget_ms)
    most_ms = budget_ms if latency_budget_ms is None else latency_budget_ms
    space = _space(base)
    sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "engine": engine}

    def judged(params: Mapping[str, Any]) -> Judged:
        _, learner, rewards = _settled(params, base, tune)
        right, ms = _tried(learner, tune.world._replace(reward=rewards), seed=seed, **sizes)
        over = UNKNOWN if np.isnan(ms) else ms - most_ms  # missing never passes
        return Judged(right, {"mean_ms": over}, {"ms": ms, "threshold": learner.threshold})

    first = [_own(base, tune, space)]
    study, seen = maximised(judged, space, trials=trials, sampler=sampler, seed=seed, first=first, progress=progress)
    weights, learner = _winner(seen, space, base, tune, seed, sizes)
    names = {TUNED: (learner, judge.rewards(weights)), PUBLISHED_WEIGHTS: (base, judge.rewards(PUBLISHED))}
    plans = baselines(judge.world, judge.router, fixed=best_fixed(tune.world))
    shown = simulated(
        judge.world, names, plans, rounds=rounds, replications=AGAIN * replications, seed=seed + 1,
        reference=TUNED, level=level, n_boot=n_boot, engine=engine,
    )  # fmt: skip
    notes += _notes(shown.table, seen, most_ms)
    if not tune.measured["cache_hit"].any():
        notes.append("No answer came from a cache here, so w4 decides nothing; set it by hand.")
    settings = {
        "bandit": base.policy, "trials": trials, "rounds": rounds, "replications": replications,
        "budget_ms": budget_ms, "latency_budget_ms": most_ms, "sampler": sampler, "seed": seed, "level": level,
        "n_boot": n_boot, "policy_id": policy.policy_id, "trace": trace.meta.get("fingerprint"),
        "tune_cases": len(tune.world.mask), "report_cases": len(judge.world.mask),
    }  # fmt: skip
    return BanditStudy(weights, learner, seen, shown.table, tuple(notes), study, settings)


def _parts(trace: Trace, policy: Policy, budget_ms: float) -> tuple[_Part, _Part, list[str]]:
    """Split that is tuned on and split that is judged on."""
    if {"tune", "report"} <= {case.split for case in trace.cases}:
        tune, judge = (_part(trace.split(name), policy, budget_ms) for name in ("tune", "report"))
        return tune, judge, []
    every = _part(trace, policy, budget_ms)
    note = "The cases have no splits tune and report: tuned and judged on the same cases, so the rates flatter (S6.5)."
    return every, every, [note]


def _part(trace: Trace, policy: Policy, budget_ms: float) -> _Part:
    measured = components(trace, policy, budget_ms=budget_ms)
    return _Part(table(trace, policy, budget_ms=budget_ms, measured=measured), measured, router(trace, policy))


def _space(base: Bandit) -> dict[str, Range]:
    """What is tried, by name."""
    space = {name: Range(0.0, 1.0) for name in WEIGHTS} | {"lambda_": Range(0.25, 16.0, log=True)}
    if base.policy == "epsilon_greedy":
        return space | {"epsilon": Range(0.001, 0.5, log=True)}
    space["exploration"] = Range(0.05, 5.0, log=True)
    if base.policy in {"thompson_beta", "thompson_nig", "lin_ucb", "lin_thompson"}:
        space["prior_strength"] = Range(0.1, 100.0, log=True)
    if base.policy == "thompson_beta":
        space["threshold_quantile"] = Range(0.0, 1.0)
    return space


def _settled(params: Mapping[str, Any], base: Bandit, part: _Part) -> tuple[RewardWeights, Bandit, Array]:
    """Weights, bandit and rewards of the values of a trial; to so many digits, so that a `.env` says the same."""
    total = sum(params[name] for name in WEIGHTS) or 1.0
    shares = {name: round(params[name] / total, DIGITS) for name in WEIGHTS}
    weights = PUBLISHED._replace(**shares, lambda_=_short(params["lambda_"]))
    rewards = part.rewards(weights)
    known: dict[str, Any] = {
        name: _short(params[name]) for name in ("epsilon", "exploration", "prior_strength") if name in params
    }
    if "threshold_quantile" in params:
        there = rewards[part.world.mask & ~np.isnan(rewards)]
        known["threshold"] = _threshold(there, params["threshold_quantile"])
    return weights, base._replace(**known), rewards


def _threshold(rewards: Array, quantile: float) -> float:
    """Threshold that the share `quantile` of the rewards do not exceed, of n + 1 such shares; 0 for none of them."""
    place = min(int(quantile * (len(rewards) + 1)), len(rewards))
    return float(np.ceil(np.sort(rewards)[place - 1] * 1e6) / 1e6) if place else 0.0


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _own(base: Bandit, part: _Part, space: Mapping[str, Range]) -> dict[str, float]:
    """Values of the published reward and of the bandit as given, for the first trial."""
    own: dict[str, float] = {name: float(getattr(PUBLISHED, name)) for name in (*WEIGHTS, "lambda_")}
    own |= {name: getattr(base, name) for name in ("epsilon", "exploration", "prior_strength") if name in space}
    if "threshold_quantile" in space:
        rewards = part.rewards(PUBLISHED)
        there = rewards[part.world.mask & ~np.isnan(rewards)]
        below = int((there <= base.threshold).sum())
        own["threshold_quantile"] = (below + 0.5) / (len(there) + 1)
    return {name: float(np.clip(value, space[name].low, space[name].high)) for name, value in own.items()}


def _tried(
    learner: Bandit, world: Table, *, seed: int, rounds: int, replications: int, engine: str
) -> tuple[float, float]:
    """Share of right decisions and mean milliseconds of a simulated bandit."""
    found = run(learner, world, rounds=rounds, replications=replications, seed=seed, engine=engine)
    return float(found.value[:, -1].mean()) / rounds, mean_ms(earned(found, world))


def _winner(
    seen: pd.DataFrame, space: Mapping[str, Range], base: Bandit, part: _Part, seed: int, sizes: Mapping[str, Any]
) -> tuple[RewardWeights, Bandit]:
    """Best of the finalists on other chance; the first of equals, so that the published one stays unless beaten."""
    pool = seen[seen["feasible"]] if seen["feasible"].any() else seen
    best = pool.sort_values(["value", "number"], ascending=[False, True], kind="stable").head(FINALISTS)
    best = pool[pool["number"].isin([0, *best["number"]])]
    again = {**sizes, "replications": AGAIN * int(sizes["replications"])}
    scored = []
    for row in best.to_dict("records"):
        weights, learner, rewards = _settled({name: row[name] for name in space}, base, part)
        scored.append(
            (_tried(learner, part.world._replace(reward=rewards), seed=seed + 1, **again)[0], weights, learner)
        )
    _, weights, learner = max(scored, key=lambda one: one[0])
    return weights, learner


def _notes(shown: pd.DataFrame, seen: pd.DataFrame, most_ms: float) -> list[str]:
    """What the comparison says, in plain words."""
    rows = {str(row["policy"]): row for row in shown.to_dict("records")}
    kept = seen["feasible"] if seen["feasible"].any() else slice(None)
    best, first = (f"{100 * one:.2f} %" for one in (seen.loc[kept, "value"].max(), seen["value"].iloc[0]))
    flatters = f"the best of {len(seen)} flatters. What follows is on the cases that it is judged on."
    said = [
        f"On the cases it was tuned on, the best trial is right in {best}, the published one in {first}; {flatters}"
    ]
    for name, row in rows.items():
        if name in {TUNED, ORACLE}:
            continue
        gain, low, high = (-row[part] for part in ("difference", "difference_high", "difference_low"))
        verdict = "not told apart from" if low <= 0.0 <= high else ("better than" if gain > 0.0 else "worse than")
        said.append(
            f"Tuned is {verdict} {name}: {100 * gain + 0.0:+.2f} points of right decisions "
            f"({100 * low + 0.0:+.2f} to {100 * high + 0.0:+.2f})."
        )
    room = rows[ORACLE]["right"] - rows[PUBLISHED_WEIGHTS]["right"]
    said.append(f"The best arm of every case would be {100 * room:.2f} points above the published weights.")
    if not seen["feasible"].any():
        said.append(f"No trial keeps the mean latency within {most_ms:g} ms; the winner is the best of all trials.")
    return said


def _key(name: str) -> str:
    """Name as MLflow takes it."""
    return name.replace(" ", "_")
