"""Clarification.

What the published rule asks and gets wrong, what a study finds, and when the cover sheet is found.

python experiments/clarify.py [--data ../shared/data] [--seeds 200] [--trials 200] [--figures
    out/clarify] [--jobs 2] [--parts rows stable broker clariq sharc sets speed] [--set FOLDER]

A set is a folder of documents with `fields.jsonl` (where each field stands), and a pack of its
trade if it has one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.clarify_worlds import clariq, cover, sharc, stable
from experiments.document_worlds import SCOPES, document_world, field_scope, read_fields
from raglab import Chunk, load_corpus, tune_clarification
from raglab.default_learner import (
    SPLITS,
    DefaultLearner,
    Priced,
    World,
    confidence_paths,
    request_outcomes,
    silence,
    simulate,
    world,
)
from raglab.default_learner.confidence import APPLY_ABOVE, ASK_BELOW
from raglab.default_learner.simulation import BASELINES, Policy
from raglab.displays import ClarifyDisplay, ConfidenceDisplay, SilenceDisplay, SplitDisplay
from raglab.displays.canvas import png
from raglab.extensions.clarification.contents import scope
from raglab.lab.clarify_study import (
    ClarifyStudy,
    policy_rates,
    seed_differences,
    seed_rates,
    summary,
)
from raglab.live import read_field
from raglab.metrics import clopper_pearson
from raglab.metrics.intervals import mean_interval
from raglab.store.policies import load_pack

BUNDLED = Path("datasets/broker")
PACK = load_pack(BUNDLED / "pack")
PUBLISHED, POSTERIOR = DefaultLearner(), DefaultLearner("posterior")
HUNDRED = 100.0
# a flat prior, and no word needed
BEFORE = POSTERIOR._replace(prior_yes=1.0, prior_no=1.0, on_word=False)
REQUESTS = 200
PARTS = ("rows", "stable", "broker", "clariq", "sharc", "sets", "speed")
SHARED = {"clariq": (clariq, "clariq-train-dev"), "sharc": (sharc, "sharc-dev-a")}
RATES = {"questions": "questions", "errors": "silent errors", "cost": "cost"}


def cell(row: pd.Series, name: str, sign: str = "") -> str:
    """Value with the ends of its interval."""
    return (
        f"{row[name]:{sign}.2f} ({row[f'{name}_low']:{sign}.2f} to {row[f'{name}_high']:{sign}.2f})"
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def drawn(display: object, folder: Path | None, name: str) -> None:
    """Write a figure."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(png(display.figure_))  # type: ignore[attr-defined]


def demonstration(figures: Path | None) -> None:
    """Where vote_share ends on silent successes alone, and what it asks for ever."""
    paths = confidence_paths({"vote_share": PUBLISHED, "posterior": POSTERIOR}, 1000)
    print("## One yes, then silent successes alone (1,000 requests that are always right)\n")
    rows = []
    for (name, gated), part in paths.groupby(["learner", "gated"], sort=False):
        sure, at = part["confidence"], part["request"]
        below = at[(sure < ASK_BELOW) & (at > 5)]
        rows.append(
            [
                f"{name}, {'asks when due' if gated else 'never asks'}",
                str(at[sure > APPLY_ABOVE].max()),
                str(below.min()) if len(below) else "never",
                f"{sure.iloc[-1]:.4f}",
                str(part["question"].sum()),
                str(at[part["question"]].max()),
            ]
        )
    limits = (f"last above {APPLY_ABOVE:.2f}", f"first below {ASK_BELOW:.2f}")
    markdown(("learner", *limits, "ends at", "questions", "last question"), rows)
    shown = paths[paths["request"] <= 60]
    drawn(ConfidenceDisplay.from_paths(shown), figures, "confidence")


def judged(study: ClarifyStudy, title: str) -> None:
    """Comparison of a study on what it did not see."""
    print(f"\n### {title}\n\n`{study.learner}`\n")
    markdown(
        ("policy", *(f"{name} per 100" for name in RATES.values())),
        [
            [row["policy"], *(cell(row, rate) for rate in RATES)]
            for _, row in study.comparison.iterrows()
        ],
    )
    print()
    markdown(
        ("tuned minus", *RATES.values()),
        [
            [row["policy"], *(cell(row, rate, "+") for rate in RATES)]
            for _, row in study.differences.iterrows()
        ],
    )
    print("\n" + "\n".join(f"- {note}" for note in study.notes) + "\n\n```\n" + study.env() + "```")


def studied(name: str, tune: World, held_out: World, args: argparse.Namespace) -> DefaultLearner:
    """Two studies: within 2 silent errors per 100, and within the published rule's own."""
    print(
        f"\n## {name}: {len(tune.contexts)} contexts to tune on, {len(held_out.contexts)} held "
        "out\n"
    )
    print(
        f"{args.seeds} seeds of 100 users and {REQUESTS} requests; brackets hold 95 % of the seeds."
    )
    sizes: dict[str, Any] = {
        "name": name,
        "trials": args.trials,
        "seeds": args.seeds,
        "requests": REQUESTS,
        "n_jobs": args.jobs,
    }
    first = tune_clarification(tune, held_out, **sizes)
    judged(first, "Least cost within 2 silent errors per 100")
    own = policy_rates(tune, PUBLISHED, users=2000, requests=REQUESTS, seed=1)["errors"] / HUNDRED
    second = tune_clarification(tune, held_out, **sizes, objective="questions", most_errors=own)
    judged(
        second,
        f"Fewest questions within the published rule's own silent errors ({HUNDRED * own:.2f} per "
        "100)",
    )
    if args.mlruns is not None:
        for study in (first, second):
            print(f"- MLflow run {study.track(args.mlruns).run_id}")
    return first.learner


def curves(name: str, world: World, tuned: DefaultLearner, args: argparse.Namespace) -> None:
    """Curves over the requests, and the time until silent."""
    policies: dict[str, Policy] = {
        "published rule": PUBLISHED,
        "tuned": tuned,
        "published, priced": Priced(PUBLISHED),
    }
    policies |= {baseline.replace("_", " "): baseline for baseline in BASELINES}
    table = simulate(world, policies, users=2000, requests=REQUESTS, seed=0, n_jobs=args.jobs)
    drawn(ClarifyDisplay.from_simulation(table, name=name), args.figures, f"{name}-curves")
    rows = {}
    for policy in ("published rule", "tuned", "published, priced"):
        rows[policy] = silence(
            request_outcomes(
                world, policies[policy], users=2000, requests=REQUESTS, seed=0, n_jobs=args.jobs
            )
        )
    drawn(
        SilenceDisplay.from_silence(rows, name=f"{name}: time until silent"),
        args.figures,
        f"{name}-silence",
    )
    print(f"\n### {name}: curves (2,000 users, {REQUESTS} requests)\n")
    lines = []
    for label, part in table.groupby("policy", sort=False):
        tenths = [part[part["last"] <= 20], part[part["first"] > 180]]
        early, late = ([tenth["questions"].mean(), tenth["errors"].mean()] for tenth in tenths)
        quiet = "–"
        if label in rows:
            met = rows[str(label)].requests >= 30
            after = rows[str(label)].after[met]
            known = after[~np.isnan(after)]
            median = f"{np.median(known):.0f} requests" if len(known) else "none"
            quiet = f"{100 * len(known) / len(after):.1f} %, median {median}"
        regret = cell(part.iloc[-1], "regret")
        lines.append(
            [
                str(label),
                f"{early[0]:.1f}, {late[0]:.1f}",
                f"{early[1]:.2f}, {late[1]:.2f}",
                regret,
                quiet,
            ]
        )
    head = (
        "policy",
        "questions, first and last 20",
        "silent errors, first and last 20",
        "regret a user",
    )
    markdown((*head, "rows (30 requests or more) that fell silent"), lines)


def sensitivity(data: Path, tuned: DefaultLearner, args: argparse.Namespace) -> None:
    """The assumption on noise, varied: held-out ClariQ topics, tuned at 0.01."""
    print("\n### ClariQ: what the assumed noise changes (held out; the same tuned learner)\n")
    rows = []
    for noise in (0.0, 0.01, 0.02, 0.04):
        noisy_world = clariq(data, "held_out", noise_per_need=noise)
        policies: dict[str, Policy] = {
            "tuned": tuned,
            "published": PUBLISHED,
            "published, priced": Priced(PUBLISHED),
        }
        by_seed = seed_rates(
            noisy_world, policies, seeds=args.seeds, users=50, requests=REQUESTS, n_jobs=args.jobs
        )
        means, apart = summary(by_seed), seed_differences(by_seed, "tuned").iloc[0]
        cells = [
            f"{row['questions']:.1f}, {row['errors']:.2f}, {row['cost']:.1f}"
            for _, row in means.iterrows()
        ]
        rows.append(
            [f"{noise:g}", *cells, cell(apart, "questions", "+"), cell(apart, "errors", "+")]
        )
    head = (
        "noise a step of need",
        "tuned: questions, errors, cost",
        "published",
        "published, priced",
    )
    markdown((*head, "tuned minus published: questions", "silent errors"), rows)


def stable_defaults(args: argparse.Namespace) -> None:
    """Questions that a default costs which is always right."""
    print(
        "\n## Questions a stable default: no noise, no drift, one true value (2,000 users, "
        f"{REQUESTS} requests)\n"
    )
    worlds = {
        "bundled": document_world(BUNDLED),
        **{folder.name: document_world(folder) for folder in args.set},
    }
    worlds |= {
        name: of(args.data / at) for name, (of, at) in SHARED.items() if (args.data / at).is_dir()
    }
    rows = []
    for name, base_world in worlds.items():
        still = stable(base_world)
        for rule, learner in (
            ("posterior", POSTERIOR),
            ("posterior, flat prior", BEFORE),
            ("vote_share", PUBLISHED),
        ):
            outcomes = request_outcomes(
                still, learner, users=2000, requests=REQUESTS, seed=0, n_jobs=args.jobs
            )
            at = outcomes.slot[..., None] == np.arange(outcomes.topic.shape[1])  # [U, T, slots]
            met, questions = at.sum(axis=1), (at & outcomes.question[..., None]).sum(axis=1)
            # Before anyone said yes or named a value nothing can be learned; that is the user's
            # part, not the rule's.
            told_at = at & (outcomes.question & ~outcomes.unanswered)[..., None]
            after = (
                at & outcomes.question[..., None] & (np.cumsum(told_at, axis=1) - told_at > 0)
            ).sum(axis=1)
            per_user = [
                (part * (met > 0)).sum(axis=1) / (met > 0).sum(axis=1)
                for part in (questions, 1.0 + after)
            ]
            cells = []
            for values in per_user:
                low, high = mean_interval(values[:, None], 0.95)
                cells.append(f"{values.mean():.3f} ({float(low[0]):.3f} to {float(high[0]):.3f})")
            errors = f"{HUNDRED * outcomes.error.mean():.3f}"
            rows.append(
                [name, str(len(still.contexts)), rule, *cells, str(int(questions.max())), errors]
            )
    head = (
        "world",
        "contexts",
        "rule",
        "questions a default",
        "where the first reply says what is right",
    )
    markdown((*head, "most of one default", "silent errors per 100"), rows)


def cover_sheets(args: argparse.Namespace) -> None:
    """Case 12: requests until the split, and false splits among 20 columns of noise."""
    print(
        "\n## Case 12: requests until a row is split by page_1_kind (2,000 rows, 400 requests, 20 "
        "noise columns)\n"
    )
    rows: list[list[str]] = []
    split_requests: dict[str, np.ndarray] = {}
    for share in (0.4, 0.2, 0.1):
        seen_world = cover(share)
        hidden = seen_world._replace(columns=(), levels=seen_world.levels[..., :0])
        for name, rule in product(("vote_share", "posterior"), SPLITS):
            learner = (PUBLISHED if name == "vote_share" else POSTERIOR)._replace(split=rule)
            sizes: dict[str, Any] = {"users": 2000, "requests": 400, "seed": 0, "n_jobs": args.jobs}
            outcomes, blind = (
                request_outcomes(seen_world, learner, **sizes),
                request_outcomes(hidden, learner, **sizes),
            )
            at = np.where(outcomes.column == 0, outcomes.split, np.nan).astype(np.float64).ravel()
            if (name, rule) == ("posterior", "evidence"):
                split_requests[f"{100 * share:g} % cover sheets"] = at
            by_noise, false = int((outcomes.column > 0).sum()), int((blind.split >= 0).sum())
            low, high = (HUNDRED * float(end) for end in clopper_pearson(false, 2000))
            ends = ", ".join(
                f"{quantile:.0f}" for quantile in np.nanquantile(at, [0.05, 0.25, 0.5, 0.75, 0.95])
            )
            late = [HUNDRED * float(each.question[:, 300:].mean()) for each in (outcomes, blind)]
            rows.append(
                [
                    f"{100 * share:g} %",
                    f"{name}, {rule}",
                    f"{np.isfinite(at).sum()} of 2000",
                    ends,
                    str(by_noise),
                    f"{false / 20:.2f} % ({low:.2f} to {high:.2f})",
                    f"{late[0]:.1f}",
                    f"{late[1]:.1f}",
                ]
            )
    head = (
        "cover sheets",
        "rule",
        "split by page_1_kind",
        "after requests (5, 25, 50, 75, 95 %)",
        "split by noise",
    )
    more = (
        "false splits where only noise is seen",
        "questions per 100 in the last 100, column seen",
        "not seen",
    )
    markdown((*head, *more), rows)
    drawn(SplitDisplay.from_requests(split_requests, name="case 12"), args.figures, "case-12")


def empty_reads() -> None:
    """How often a scope that does not hold a field comes back empty, of the bundled labels."""
    documents: dict[str, list[Chunk]] = {}
    for chunk in load_corpus(BUNDLED).chunks:
        documents.setdefault(chunk.file_name, []).append(chunk)
    wrong = empty = 0
    for label in read_fields(BUNDLED / "fields.jsonl"):
        field = PACK.fields.get(label.field)
        if field is None or field.reading is None:
            continue
        chunks = documents[label.document]
        true = field_scope(label, chunks, PACK)
        narrower = [value for value in SCOPES[:-1] if value != true]
        held = read_field(label.field, scope(chunks, true, field=label.field, pack=PACK), pack=PACK)
        for value in narrower:
            read = read_field(
                label.field, scope(chunks, value, field=label.field, pack=PACK), pack=PACK
            )
            is_wrong = (
                held is None or (read is not None and read.value != held.value) or read is None
            )
            wrong, empty = wrong + is_wrong, empty + (read is None)
    print(
        f"\nBundled labels: of {wrong} reads of a scope that does not hold the field, {empty} "
        "came back empty."
    )


def speed() -> None:
    """Users times requests a second, one process."""
    print("\n## Speed (one process)\n")
    rows = []
    worlds = {
        "2 contexts": world({"a": {"x": 0.7, "y": 0.3}, "b": {"x": 1.0}}, noise=0.02, drift=0.001),
        "case 12, 21 columns": cover(),
        "bundled documents": document_world(BUNDLED),
    }
    for name, simulated_world in worlds.items():
        for policy, learner in (("vote_share", PUBLISHED), ("posterior", POSTERIOR)):
            best = min(_timed(simulated_world, learner) for _ in range(3))
            rows.append([name, policy, f"{2000 * REQUESTS / best / 1e6:.2f} million"])
    begun = time.perf_counter()
    policies: dict[str, Policy] = {
        "a": PUBLISHED,
        "b": POSTERIOR,
        **{baseline: baseline for baseline in BASELINES},
    }
    simulate(document_world(BUNDLED), policies, users=2000, requests=REQUESTS)
    took = time.perf_counter() - begun
    markdown(("world", "learner", "requests of users a second"), rows)
    print(
        f"\nTable of 5 policies, 2,000 users, {REQUESTS} requests, bundled documents: {took:.1f} s."
    )


def _timed(simulated_world: World, learner: DefaultLearner) -> float:
    begun = time.perf_counter()
    request_outcomes(simulated_world, learner, users=2000, requests=REQUESTS, seed=0)
    return time.perf_counter() - begun


def main() -> None:
    """All figures of this part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--mlruns", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--set", type=Path, nargs="+", default=[], help="folders of documents with fields.jsonl"
    )
    args = parser.parse_args()
    if "rows" in args.parts:
        demonstration(args.figures)
        cover_sheets(args)
        empty_reads()
    if "stable" in args.parts:
        stable_defaults(args)
    documents = {"broker": BUNDLED} if "broker" in args.parts else {}
    documents |= {folder.name: folder for folder in args.set if "sets" in args.parts}
    for name, folder in documents.items():
        simulated_world = document_world(folder)
        tuned = studied(
            f"{name} (tuned and judged on the same documents)",
            simulated_world,
            simulated_world,
            args,
        )
        curves(name, simulated_world, tuned, args)
    for name, (of, place) in SHARED.items():
        if name not in args.parts:
            continue
        if not (args.data / place).is_dir():
            print(f"\n{name}: left out, {args.data / place} is not there.")
            continue
        parts = of(args.data / place, "tune"), of(args.data / place, "held_out")
        tuned = studied(name, *parts, args)
        curves(name, parts[1], tuned, args)
        if name == "clariq":
            sensitivity(args.data / place, tuned, args)
    if "speed" in args.parts:
        speed()


if __name__ == "__main__":
    main()
