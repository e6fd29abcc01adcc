"""Worlds that misled the learners.

High rewards, no intercept, costs, drift in order, drifting linear arms.

python experiments/bandit_worlds.py [--quick]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from raglab.bandit import Bandit, Bernoulli, Run, Table, run

COSTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def shown(values: np.ndarray, digits: int = 1) -> str:
    """Mean over replications with its standard error."""
    return f"{values.mean():.{digits}f} ({values.std(ddof=1) / np.sqrt(len(values)):.{digits}f})"


def never_tried(replications: int) -> None:
    """Share of replications that never take some arm, with an intercept alone and with features."""
    print(f"## Arms never tried in 1,000 rounds, {replications} replications, 0/1 rewards\n")
    rng, rows = np.random.default_rng(0), []
    for means in ((0.8, 0.95), (0.9, 0.99), (0.95, 0.97, 0.99), (0.99, 1.0), (1.0, 1.0)):
        for n_features in (0, 4):
            frame = pd.DataFrame((rng.random((2000, len(means))) < means) * 1.0)
            names = [f"x{number}" for number in range(n_features)]
            frame[names] = rng.random((2000, n_features))
            table = Table.from_frame(frame, features=names, order="replacement")
            cells = []
            for policy in ("lin_ucb", "lin_thompson"):
                for prior_mean in (0.0, 0.5):
                    done = run(
                        Bandit(policy, prior_mean=prior_mean),
                        table,
                        rounds=1000,
                        replications=replications,
                    )
                    never, best = (
                        (done.pulls == 0).any(axis=1).mean(),
                        done.pulls[:, -1].mean() / 1000,
                    )
                    cells.append(f"{never:.3f} / {best:.3f}")
            rows.append([", ".join(f"{mean:g}" for mean in means), f"{n_features}", *cells])
    head = (
        "means",
        "features beside the intercept",
        "lin_ucb, prior_mean 0 (as before)",
        "lin_ucb, default",
    )
    markdown((*head, "lin_thompson, prior_mean 0", "lin_thompson, default"), rows)
    print(
        "Each cell: share of replications with an arm never taken / share of pulls of the last "
        "arm.\n"
    )
    frame, rows = pd.DataFrame((np.random.default_rng(0).random((2000, 2)) < (0.8, 0.95)) * 1.0), []
    table = Table.from_frame(frame, order="replacement")
    for policy in ("lin_ucb", "lin_thompson"):
        for exploration in (1.0, 0.3, 0.1):
            cells = []
            for prior_mean in (0.0, 0.5, 1.0):
                bandit = Bandit(policy, exploration=exploration, prior_mean=prior_mean)
                done = run(bandit, table, rounds=1000, replications=replications)
                never, best = (done.pulls == 0).any(axis=1).mean(), done.pulls[:, -1].mean() / 1000
                cells.append(f"{never:.3f} / {best:.3f}")
            rows.append([policy, f"{exploration:g}", *cells])
    print("The same of means .80, .95 by exploration and prior_mean.\n")
    markdown(
        ("learner", "exploration", "prior_mean 0", "prior_mean .5 (default)", "prior_mean 1"), rows
    )


def intercepts(replications: int) -> None:
    """Best arm's share with centred features (no constant in them), with or without intercept."""
    print(
        "## A frame's features without a constant: share of pulls of the best arm, 10,000 rounds\n"
    )
    rng, rows = np.random.default_rng(1), []
    features = rng.standard_normal((2000, 3))
    for means in ((0.3, 0.7), (0.8, 0.95)):
        frame = pd.DataFrame((rng.random((2000, 2)) < means) * 1.0, columns=["a", "b"])
        frame[["x", "y", "z"]] = features
        cells = []
        for intercept, prior_mean in ((False, 0.0), (False, 0.5), (True, 0.0), (True, 0.5)):
            table = Table.from_frame(
                frame, features=["x", "y", "z"], intercept=intercept, order="replacement"
            )
            done = run(
                Bandit("lin_ucb", prior_mean=prior_mean),
                table,
                rounds=10_000,
                replications=replications,
            )
            cells.append(f"{done.pulls[:, 1].mean() / 10_000:.3f}")
        rows.append([f"{means[0]:g}, {means[1]:g}", *cells])
    head = (
        "means",
        "no intercept, prior_mean 0 (as before)",
        "no intercept",
        "intercept, prior_mean 0",
        "default",
    )
    markdown(head, rows)


def costs(replications: int) -> None:
    """Value of the default learner and thompson_nig if the better of two arms costs something."""
    print(
        f"## Arms .60 at no cost and .65 at a cost, 0/1 rewards, 2,000 rounds, {replications} "
        "replications\n"
    )
    rng, rows = np.random.default_rng(2), []
    frame = pd.DataFrame((rng.random((4000, 2)) < [0.6, 0.65]) * 1.0, columns=["free", "dear"])
    for cost in COSTS:
        table = Table.from_frame(frame, costs={"free": 0.0, "dear": cost}, order="replacement")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the switch is what is measured
            default = run(Bandit(), table, rounds=2000, replications=replications)
        nig = run(Bandit("thompson_nig"), table, rounds=2000, replications=replications)
        # what the default did before: successes of the reward as the learner sees it
        blind = run(
            Bandit(), table._replace(cost=np.zeros((1, 1))), rounds=2000, replications=replications
        )
        values = [done.value[:, -1].mean() / 2000 for done in (default, nig, blind)]
        best = max(0.6, 0.65 - cost)
        dear = [f"{done.pulls[:, 1].mean() / 2000:.2f}" for done in (default, blind)]
        ratio = f"{values[0] / values[1]:.3f}"
        rows.append(
            [f"{cost:g}", f"{best:.2f}", *(f"{value:.4f}" for value in values), ratio, *dear]
        )
    head = (
        "cost",
        "best arm",
        "default",
        "thompson_nig",
        "thompson_beta as before",
        "default / nig",
    )
    markdown((*head, "dear pulls, default", "dear pulls, before"), rows)


def regret_on_means(done: Run, means: np.ndarray) -> np.ndarray:
    """Expected regret [R] of the arms taken, against the best mean of each round."""
    rounds = np.arange(len(means))
    return np.asarray((means.max(axis=1) - means[rounds, done.arm]).sum(axis=1))


def orders(n_frames: int) -> None:
    """The same drifting process as a frame in order, as a frame with replacement, and simulated."""
    print(
        f"## Drift: 1,000 rounds, frames of 0/1 rewards in order ({n_frames} of them, 10 "
        "replications each)\n"
    )
    t = np.arange(1000)
    switch = np.where(t[:, None] < 500, [0.9, 0.1], [0.1, 0.9])
    waves = np.column_stack(
        [0.5 + 0.4 * np.sin(t / 160.0), 0.5 - 0.4 * np.sin(t / 160.0), np.full(1000, 0.5)]
    )
    learners = {"thompson_nig, discount .95": Bandit("thompson_nig", discount=0.95)}
    learners |= {"thompson_beta, window 50": Bandit(window=50), "ucb1": Bandit("ucb1")}
    rows = []
    for title, means in (("one switch", switch), ("waves", waves)):
        for name, bandit in learners.items():
            rng, ends = np.random.default_rng(3), {"given": [], "replacement": []}
            for seed in range(n_frames):
                frame = pd.DataFrame((rng.random(means.shape) < means) * 1.0)
                for order, regrets in ends.items():
                    table = Table.from_frame(frame, order=order)
                    if order == "given":
                        done = run(bandit, table, rounds=1000, replications=10, seed=seed)
                        regrets.append(regret_on_means(done, means).mean())
                    elif seed < 10:
                        # on the means of the row that was drawn, so that the regret has the same
                        # unit
                        expected = table._replace(value=means)
                        done = run(bandit, expected, rounds=1000, replications=10, seed=seed)
                        regrets.append(done.regret[:, -1].mean())
            process = run(bandit, Bernoulli(means), rounds=1000, replications=400).regret[:, -1]
            in_order, drawn = (np.array(ends[order]) for order in ("given", "replacement"))
            apart = in_order.mean() - process.mean()
            error = np.hypot(
                in_order.std(ddof=1) / np.sqrt(len(in_order)),
                process.std(ddof=1) / np.sqrt(len(process)),
            )
            rows.append(
                [
                    title,
                    name,
                    shown(drawn),
                    shown(in_order),
                    shown(process),
                    f"{apart / error:+.2f}",
                ]
            )
    head = (
        "process",
        "learner",
        "frame with replacement",
        "frame in order",
        "simulated",
        "difference / standard error",
    )
    markdown(head, rows)
    # a frame of the means themselves, as where rewards are graded and not drawn
    for name, bandit in (learners | {"thompson_beta, discount .9": Bandit(discount=0.9)}).items():
        cells = [
            shown(
                run(
                    bandit,
                    Table.from_frame(pd.DataFrame(switch), order=order),
                    rounds=1000,
                    replications=100,
                ).regret[:, -1]
            )
            for order in ("replacement", "given")
        ]
        print(
            f"- frame of the means, one switch, {name}: {cells[0]} with replacement, {cells[1]} "
            "in order"
        )
    print()


def drifting_linear(n_worlds: int) -> None:
    """Linear learners that forget, on linear arms whose coefficients change."""
    print(
        f"## Linear arms that drift: regret in 2,000 rounds, {n_worlds} worlds, 10 replications "
        "each\n"
    )
    settings: dict[str, dict[str, float]] = {
        "remembers all": {},
        "discount .998": {"discount": 0.998},
        "discount .99": {"discount": 0.99},
        "discount .95": {"discount": 0.95},
        "window 500": {"window": 500},
        "window 100": {"window": 100},
    }
    rows = []
    for title, n_changes in (
        ("no change", 0),
        ("one change", 1),
        ("five changes", 5),
        ("twenty changes", 20),
    ):
        for policy, exploration in (("lin_ucb", 0.3), ("lin_thompson", 0.6)):
            ends: dict[str, list[float]] = {name: [] for name in settings}
            for seed in range(n_worlds):
                rng = np.random.default_rng(seed)
                features = np.column_stack([np.ones(2000), rng.standard_normal((2000, 3))])
                parts = np.minimum(np.arange(2000) * (n_changes + 1) // 2000, n_changes)
                theta = rng.normal(0.0, 0.12, (n_changes + 1, 3, 4)) + np.eye(4)[0] / 2.0
                means = np.clip(np.einsum("tf,taf->ta", features, theta[parts]), 0.0, 1.0)
                rewards = np.clip(means + rng.normal(0.0, 0.1, means.shape), 0.0, 1.0)
                unknown = np.full(means.shape, np.nan)
                names = ("intercept", "x", "y", "z")
                mask = np.ones(means.shape, np.bool_)
                table = Table(
                    ("a", "b", "c"), means, rewards, mask, features, names, unknown, order="given"
                )
                for name, change in settings.items():
                    # settings
                    bandit = Bandit(policy, exploration=exploration)._replace(**change)
                    done = run(
                        bandit,
                        table,
                        rounds=2000,
                        replications=10 if policy == "lin_thompson" else 1,
                    )
                    ends[name].append(float(done.regret[:, -1].mean()))
            best = min(ends, key=lambda name: float(np.mean(ends[name])))
            cells = [
                f"**{shown(np.array(end))}**" if name == best else shown(np.array(end))
                for name, end in ends.items()
            ]
            rows.append([title, policy, *cells])
    markdown(("world", "learner", *settings), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the replications")
    quick = parser.parse_args().quick
    never_tried(20 if quick else 200)
    intercepts(4 if quick else 40)
    costs(20 if quick else 200)
    orders(4 if quick else 40)
    drifting_linear(2 if quick else 10)
