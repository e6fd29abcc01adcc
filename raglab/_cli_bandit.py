"""The command `simulate`: bandits over the arms of a trace, or over arms of known means, beside what learns nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raglab._cli import AsJson, PolicyPath, Split, load_policy, load_trace, records, refusals, written

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.simulated import Simulated
    from raglab.reward import RewardWeights

BUDGET_MS = 8000.0
MOST_COLUMNS = ("right", "reward", "regret", "difference")


def simulate(
    path: Annotated[
        Path | None, typer.Argument(help="Trace of several arms, made by `raglab trace --arm …`; none with --means.")
    ] = None,
    policy: PolicyPath = None,
    bandit: Annotated[
        list[str] | None,
        typer.Option(
            "--bandit",
            "-b",
            help="epsilon_greedy, ucb1, kl_ucb, thompson_beta, thompson_nig, lin_ucb, lin_thompson; "
            "repeat; thompson_beta and ucb1 where none.",
        ),
    ] = None,
    means: Annotated[
        str | None, typer.Option(help="Bernoulli arms in the place of a trace, such as 0.7,0.6,0.5.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Questions a replication.")] = 2000,
    replications: Annotated[int, typer.Option(min=1, help="Simulations, each with chance of its own.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same result.")] = 0,
    weights: Annotated[
        str | None,
        typer.Option(help="w1,w2,w3,w4,w5 of margin, diversity, latency, cache, consistency; or a JSON file by name."),
    ] = None,
    always_answer: Annotated[
        bool, typer.Option("--always-answer", help="Every gate of the policy off: arms are judged by what they find.")
    ] = False,
    budget_ms: Annotated[float, typer.Option(help="Latency budget of a question, in the reward.")] = BUDGET_MS,
    split: Split = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a row a learner and replication as CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Months of traffic in seconds: what bandits earn and lose on questions whose right arm is known."""
    with refusals():
        if (path is None) == (means is None):
            msg = "simulate takes either a trace or --means, got both or none; such as --means 0.7,0.6,0.5."
            raise ValueError(msg)
        names = tuple(dict.fromkeys(bandit or ("thompson_beta", "ucb1")))
        of_traces = {
            "--policy": policy is not None,
            "--weights": weights is not None,
            "--always-answer": always_answer,
            "--budget-ms": budget_ms != BUDGET_MS,
            "--split": split is not None,
        }
        if means is not None and any(of_traces.values()):
            idle = ", ".join(option for option, given in of_traces.items() if given)
            msg = f"arms of --means have neither questions nor latencies, got {idle}; leave it out, or give a trace."
            raise ValueError(msg)
        sizes: dict[str, Any] = {"rounds": rounds, "replications": replications, "seed": seed}
        if path is None:
            found, told = _arms(means or "", names, sizes)
        else:
            given = (policy, weights, split)
            found, told = _trace(path, given, names, sizes, budget_ms, always_answer=always_answer)
        written(_by_replication(found), out)
        if as_json:
            typer.echo(json.dumps({"told": told, "policies": records(found.table)}, ensure_ascii=False))
            return
        typer.echo("\n".join(told) + "\n")
        typer.echo(_readable(found.table).to_string(index=False, na_rep="–"))


def _arms(means: str, names: tuple[str, ...], sizes: dict[str, Any]) -> tuple[Simulated, list[str]]:
    import numpy as np

    from raglab.bandit import Bandit
    from raglab.lab.bandit_plots import lai_robbins
    from raglab.lab.simulated import simulated_arms

    if linear := [name for name in names if name.startswith("lin_")]:
        msg = f"arms of --means have no context to learn from, got {linear[0]}; choose another, or give a trace."
        raise ValueError(msg)
    known = np.array(_numbers(means, "--means"))
    found = simulated_arms(known, {name: Bandit(name) for name in names}, **sizes)
    simulated = f"{sizes['rounds']} rounds, {sizes['replications']} replications"
    told = [
        f"{len(known)} Bernoulli arms of means {means}, {simulated}; every policy meets the same chance.",
        "regret: expected reward lost in all rounds against the best arm, mean over replications (95 % interval).",
        "reward: expected, a round. pulls: share of the rounds.",
    ]
    if ((known > 0.0) & (known < 1.0)).all() and len(set(known)) > 1:
        slope = lai_robbins(known)
        told.append(f"In the long run no good learner loses less than {slope:.4g} · ln(rounds) (Lai and Robbins).")
    return found, told


def _trace(
    path: Path,
    given: tuple[Path | None, str | None, str | None],
    names: tuple[str, ...],
    sizes: dict[str, Any],
    budget_ms: float,
    *,
    always_answer: bool,
) -> tuple[Simulated, list[str]]:
    import numpy as np

    from raglab.bandit import Bandit
    from raglab.lab.simulated import FIXED, ORACLE, baselines, best_fixed, simulated
    from raglab.lab.space import always_answer as opened
    from raglab.lab.traffic import router, table

    policy, weights, split = given
    trace, chosen = load_trace(path, split), load_policy(policy)
    chosen = opened(chosen) if always_answer else chosen
    world = table(trace, chosen, _weights(weights), budget_ms=budget_ms)
    plans = baselines(world, router(trace, chosen))
    found = simulated(world, {name: Bandit(name) for name in names}, plans, **sizes)
    right = dict(zip(found.table["policy"], found.table["right"].to_numpy(np.float64), strict=True))
    simulation = f"{sizes['rounds']} rounds, {sizes['replications']} replications"
    best = best_fixed(world)
    knows = ORACLE if best is None else f"{FIXED} ({best}) and {ORACLE}"
    told = [
        f"{len(world.mask)} cases, arms {', '.join(world.arms)}, {simulation}; every policy meets the same cases.",
        "right: share of right decisions. regret: right decisions lost in all rounds against each case's best arm.",
        f"difference: right minus that of {found.reference}. ms: mean retrieval. pulls: share of the rounds.",
        "Brackets: 95 % intervals over resampled cases and replications, paired in regret and difference.",
        f"Learners see rewards, never labels; {knows} {'knows' if best is None else 'know'} the labels.",
    ]
    if best is not None:
        room = 100.0 * (right[ORACLE] - right[FIXED])
        told.append(f"All that choosing could gain over the best fixed arm is {room:.2f} points of right decisions.")
    return found, told


def _weights(text: str | None) -> RewardWeights:
    """Reward weights of five numbers, or of a JSON file with names."""
    from raglab.reward import PUBLISHED, RewardWeights

    if text is None:
        return PUBLISHED
    if not Path(text).is_file():
        parts = text.split(",")
        msg = f"--weights must be w1,w2,w3,w4,w5 or a JSON file, got {text!r}; such as 0.4,0.1,0.2,0.1,0.2."
        if len(parts) != 5:
            raise ValueError(msg)
        try:
            return RewardWeights(*map(float, parts))
        except ValueError:
            raise ValueError(msg) from None
    try:
        rows = json.loads(Path(text).read_text(encoding="utf-8"))
        named = {"lambda_" if name == "lambda" else name: float(value) for name, value in rows.items()}
    except (ValueError, TypeError, AttributeError) as error:
        msg = f"{text} must hold one JSON object of numbers by name, got {error}."
        raise ValueError(msg) from None
    odd = sorted(set(named) - set(RewardWeights._fields))
    if odd:
        msg = f"weights must be of {', '.join(RewardWeights._fields)}, got {odd[0]!r} in {text}; correct its name."
        raise ValueError(msg)
    return RewardWeights(**named)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        msg = f"{option} must be numbers with commas between them, got {text!r}; such as 0.7,0.6,0.5."
        raise ValueError(msg) from None


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Table with each number and its interval in one column."""
    import pandas as pd

    columns: dict[str, Any] = {"policy": table["policy"]}
    for name in MOST_COLUMNS:
        if name not in table:
            continue
        digits = 1 if name == "regret" else 3
        sign = "+" if name == "difference" else ""
        if f"{name}_low" in table:
            ends = zip(*(table[f"{name}{end}"] for end in ("", "_low", "_high")), strict=True)
            columns[name] = [
                f"{one:{sign}.{digits}f} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})" for one, low, high in ends
            ]
        else:
            columns[name] = [f"{one:.{digits}f}" for one in table[name]]
    if "ms" in table:
        columns["ms"] = [f"{one:.1f}" for one in table["ms"]]
    pulls = [name for name in table if str(name).startswith("pulls_")]
    columns |= {str(name).replace("pulls_", "% "): (100 * table[name]).round(1) for name in pulls}
    return pd.DataFrame(columns).replace("nan", "–")


def _by_replication(found: Simulated) -> pd.DataFrame:
    """One row a learner and replication."""
    import pandas as pd

    names = [str(name) for name in found.table if str(name).startswith("pulls_")]
    parts = []
    for name, one in found.runs.items():
        values = {"policy": name, "replication": range(len(one.regret)), "value": one.value[:, -1]}
        pulls = {column: one.pulls[:, arm] for arm, column in enumerate(names)}
        parts.append(pd.DataFrame(values | {"regret": one.regret[:, -1]} | pulls))
    return pd.concat(parts, ignore_index=True)


COMMANDS = ((simulate, "raglab simulate out/arms.parquet -p datasets/broker/policy.yaml --bandit thompson_beta"),)
