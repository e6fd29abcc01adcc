"""Command line (shore): what `raglab check` does with a baseline.

Compare with it, print, and write a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raglab.cli.common import json_records, say, say_json, table_text
from raglab.store.files import make_folder
from raglab.values import counted
from raglab.words.results import DASH, value_text

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.baseline import BaselineComparison
    from raglab.metrics import Costs
    from raglab.store.baselines import Baseline
    from raglab.store.policies import Policy
    from raglab.store.traces import StudyTrace

SHOWN = 20  # rows of a table that are printed
BaselinePath = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        help="Compare with this stored table, paired by case; exits 3 where the expected cost or a "
        "--rate lost more than --min-effect and its 95 % interval excludes 0.",
    ),
]
SavedBaseline = Annotated[
    Path | None,
    typer.Option("--save-baseline", help="Write the table of this policy to this new file."),
]
TestedRates = Annotated[
    list[str] | None,
    typer.Option("--rate", help="Rate that is tested too. Repeatable."),
]
MinEffect = Annotated[
    float | None,
    typer.Option("--min-effect", help="Largest loss of a cost or rate that passes. Default: 0.02."),
]


class BaselineOptions(NamedTuple):
    """Options of `raglab check` that a baseline decides about.

    compare: file to compare with. save: file to write. again: the certificate's cases again.
    """

    compare: Path | None
    save: Path | None
    rates: Sequence[str]
    min_effect: float | None
    costs: Costs | None
    again: bool

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline is compared with or written.

        Raises:
          ValueError: an option without the one that it acts on.
        """
        compares, writes = self.compare is not None, self.save is not None
        idle = {
            "--rate": (bool(self.rates) and not compares, "with --baseline"),
            "--min-effect": (self.min_effect is not None and not compares, "with --baseline"),
            "--cost": (
                self.costs is not None and not (compares or writes),
                "with --baseline or --save-baseline",
            ),
            "--again": (self.again and (compares or writes), "without a baseline"),
        }
        for name, (is_idle, where) in idle.items():
            if is_idle:
                msg = f"{name} must be given {where}, got it otherwise; leave it out."
                raise ValueError(msg)
        return compares or writes


def stated_retrieval(policy: Policy, baseline: Baseline | None) -> Mapping[str, Any]:
    """Retrieval settings and arm of a baseline, else of the policy's certificate, else none.

    The published ones.
    """
    if baseline is not None:
        return {"retrieval": baseline.retrieval, "arm": baseline.arm}
    return dict(policy.certificate or {})


def run_baseline(
    policy: Policy,
    trace: StudyTrace,
    baseline: Baseline | None,
    options: BaselineOptions,
    *,
    as_json: bool,
) -> bool:
    """Compare a policy with a baseline, write its own, and print both.

    Whether something tested is lost.
    """
    from raglab.lab.baseline import MIN_EFFECT, baseline_of, compare_baselines
    from raglab.metrics import stated_costs
    from raglab.store.baselines import check_free

    if options.save is not None:
        check_free(options.save)
    costs, arm, comparison = options.costs, None, None
    if baseline is not None:
        costs, arm = stated_costs(baseline.costs) if costs is None else costs, baseline.arm
    now = baseline_of(trace, policy, costs=costs, arm=arm)
    if baseline is not None:
        effect = MIN_EFFECT if options.min_effect is None else options.min_effect
        comparison = compare_baselines(baseline, now, rates=options.rates, min_effect=effect)
    if options.save is not None:
        make_folder(options.save.parent)
        now.save(options.save)
    facts = _facts(now, comparison, options.save)
    tables: dict[str, pd.DataFrame] = {}
    if comparison is not None:
        tables = {"measures": comparison.table, "changed": comparison.changed}
        tables["settings"] = comparison.settings
    if as_json:
        rows: dict[str, Any] = {
            name: json_records(table.astype(object).where(table.notna(), None))
            for name, table in tables.items()
        }
        say_json({**facts, "measures": now.measures, **rows}, indent=2)
        return bool(comparison and comparison.lost)
    _print(facts, tables, certified=policy.certificate is not None)
    return bool(comparison and comparison.lost)


def _print(
    facts: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], *, certified: bool
) -> None:
    for name, table in tables.items():
        if len(table):
            shown = table.drop(columns=["before_k", "after_k"], errors="ignore").head(SHOWN)
            say(f"{name}, {len(shown)} of {len(table):,}:")
            shown = shown.rename(columns={"low": "loss_low", "high": "loss_high"})
            shown = shown.astype(dict.fromkeys(shown.select_dtypes("Int64"), "float64"))
            say(table_text(shown) + "\n")
    for name, fact in facts.items():
        if isinstance(fact, tuple):
            text = ", ".join(fact)
        elif isinstance(fact, dict):
            text = counted({key: n for key, n in fact.items() if n})
        else:
            text = value_text(fact)
        if text not in {"", DASH}:
            say(f"{name}: {text}")
    if certified:
        say("note: The certificate is not re-tested here: run check without a baseline.")


def _facts(
    now: Baseline, comparison: BaselineComparison | None, saved: Path | None
) -> dict[str, Any]:
    """What a check states, apart from tables."""
    facts: dict[str, Any] = {
        "policy_id": now.policy_id,
        "basis": now.basis,
        "cases_hash": now.cases_hash,
        "saved": None if saved is None else str(saved),
        "expected_cost": now.expected_cost,
    }
    if comparison is None:
        scoring = {"scored by status": now.status_only, "missing answers": now.missing_answers}
        return facts | {"cases": len(now.cases), "scoring": scoring}
    names = ("cases", "unpaired", "scoring", "notes", "min_effect", "detectable", "lost")
    return facts | {
        "baseline_policy_id": comparison.before,
        **{name: getattr(comparison, name) for name in names},
        "verdict": "lost" if comparison.lost else "not shown",
    }
