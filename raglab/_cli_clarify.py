"""The command `clarify-sim`: users with true preferences before the published rule, another one, and baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raglab._cli import AsJson, records, refusals, written

if TYPE_CHECKING:
    import pandas as pd

    from raglab.default_learner import Learner

NAMES = ("questions", "errors", "unanswered", "cost")  # per 100 requests
IMAGES = (".png",)


def clarify_sim(
    path: Annotated[
        Path | None,
        typer.Argument(help="Data of the world: folder of documents, of ClariQ, or file of ShARC; datasets/broker."),
    ] = None,
    world: Annotated[
        Literal["broker", "clariq", "sharc", "cover"],
        typer.Option(help="What users want, and where; cover is case 12, which needs no data."),
    ] = "broker",
    rule: Annotated[
        Literal["vote_share", "posterior"], typer.Option(help="Of the learner beside the published one.")
    ] = "posterior",
    ask_below: Annotated[float, typer.Option(help="Always asks below this confidence.")] = 0.60,
    apply_above: Annotated[float, typer.Option(help="Always applies above this confidence.")] = 0.85,
    users: Annotated[int, typer.Option(min=1, help="Users, each with default rows of its own.")] = 1000,
    requests: Annotated[int, typer.Option(min=1, help="Requests of each user.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same result.")] = 0,
    question_cost: Annotated[float, typer.Option(min=0, help="Of one question.")] = 1.0,
    error_cost: Annotated[float, typer.Option(min=0, help="Of one wrong value applied silently.")] = 10.0,
    tune: Annotated[
        int, typer.Option(min=0, help="Trials of a study of thresholds, rule and schedule; 0 is none.")
    ] = 0,
    seeds: Annotated[int, typer.Option(min=2, help="Of the study's comparison.")] = 20,
    mlruns: Annotated[Path | None, typer.Option(help="Log the study to this MLflow folder.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a row a policy and bucket as CSV, or curves as PNG.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A year of requests in seconds: questions and silent errors of what asks once, always, never, or knows."""
    with refusals():
        from raglab.default_learner import Learner, simulate
        from raglab.lab.clarify_worlds import world_of

        chosen = Learner(rule=rule, ask_below=ask_below, apply_above=apply_above)
        given: dict[str, Any] = {"question_cost": question_cost, "error_cost": error_cost}
        policies: dict[str, Any] = {"published": Learner()}
        if chosen != Learner():
            policies[rule] = chosen
        told = []
        env = ""
        if tune:
            made, found = _tuned(world, path, tune, seed, users, requests, seeds, mlruns, given)
            policies["tuned"], env, notes = found
            told += notes
        else:
            made = world_of(world, path)
        policies |= {name: name for name in ("always_ask", "never_ask", "oracle")}
        table = simulate(made, policies, users=users, requests=requests, seed=seed, **given)
        _drawn_or_written(table, out)
        told.insert(0, f"{world}: {len(made.contexts)} contexts, {users} users, {requests} requests each; seed {seed}.")
        rows = _whole(table)
        if as_json:
            typer.echo(json.dumps({"told": told, "env": env, "policies": records(rows)}, ensure_ascii=False))
            return
        told += [
            "questions, errors (silent), unanswered and cost: per 100 requests.",
            "regret: cost of a user above the oracle's.",
            "early, late: questions per 100 in the first and in the last tenth of the requests.",
            "Brackets: 95 % intervals over users, who meet the same under every policy.",
        ]
        typer.echo("\n".join(told) + "\n")
        typer.echo(rows.pipe(_readable).to_string(index=False, na_rep="–"))
        if env:
            typer.echo(f"\n{env}", nl=False)


def _tuned(
    world: str,
    path: Path | None,
    trials: int,
    seed: int,
    users: int,
    requests: int,
    seeds: int,
    mlruns: Path | None,
    costs: dict[str, Any],
) -> tuple[Any, tuple[Learner, str, list[str]]]:
    """World that is judged on, and what a study found on the other part."""
    from raglab.lab.clarify_study import tune_clarification
    from raglab.lab.clarify_worlds import world_of

    split = world in {"clariq", "sharc"}
    on, judged = (world_of(world, path, part if split else None) for part in ("tune", "held_out"))
    sizes: dict[str, Any] = {"users": min(users, 400), "requests": requests, "seeds": seeds, "users_per_seed": 50}
    found = tune_clarification(on, judged, name=world, trials=trials, seed=seed, **sizes, **costs)
    notes = list(found.notes)
    if not split:
        notes.append("This world has no parts: tuned and judged on the same contexts, so the rates flatter (S6.5).")
    if mlruns is not None:
        run = found.track(mlruns)
        notes.append(f"MLflow: {run.command}; then open {run.link}")
    return judged, (found.learner, found.env(), notes)


def _drawn_or_written(table: pd.DataFrame, out: Path | None) -> None:
    if out is None or out.suffix.lower() not in IMAGES:
        written(table, out)
        return
    from raglab.lab._canvas import png
    from raglab.lab.clarify_plots import ClarifyDisplay

    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(png(ClarifyDisplay.from_simulation(table).figure_))
    typer.echo(f"wrote {out}", err=True)


def _whole(table: pd.DataFrame) -> pd.DataFrame:
    """Rates over all requests, a row a policy."""
    import pandas as pd

    rows = []
    for policy, part in table.groupby("policy", sort=False):
        size = part["last"] - part["first"] + 1
        row: dict[str, Any] = {"policy": policy}
        row |= {name: float((part[name] * size).sum() / size.sum()) for name in NAMES}
        tenth = part["last"] <= part["last"].max() / 10
        early = part[tenth] if tenth.any() else part.head(1)
        late = part[part["first"] > 0.9 * part["last"].max()]
        row |= {"early": float(early["questions"].mean())}
        row |= {"late": float((late if len(late) else part.tail(1))["questions"].mean())}
        row |= {f"regret{end}": float(part[f"regret{end}"].iloc[-1]) for end in ("", "_low", "_high")}
        rows.append(row)
    return pd.DataFrame(rows)


def _readable(rows: pd.DataFrame) -> pd.DataFrame:
    """Table with regret and its interval in one column."""
    shown = rows[["policy", *NAMES, "early", "late"]].round(2)
    ends = zip(*(rows[f"regret{end}"] for end in ("", "_low", "_high")), strict=True)
    return shown.assign(regret=[f"{one:.1f} ({low:.1f} to {high:.1f})" for one, low, high in ends])


COMMANDS = ((clarify_sim, "raglab clarify-sim datasets/broker --rule posterior --users 1000 --requests 200"),)
