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

MAX_SHOWN_ROWS = 20  # rows of a table that are printed
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
        has_comparison = self.compare is not None
        has_output = self.save is not None
        idle_options = {
            "--rate": (bool(self.rates) and not has_comparison, "with --baseline"),
            "--min-effect": (self.min_effect is not None and not has_comparison, "with --baseline"),
            "--cost": (
                self.costs is not None and not (has_comparison or has_output),
                "with --baseline or --save-baseline",
            ),
            "--again": (self.again and (has_comparison or has_output), "without a baseline"),
        }
        for option_name, (is_idle, needed_options) in idle_options.items():
            if is_idle:
                message = (
                    f"{option_name} must be given {needed_options}, got it otherwise; leave it out."
                )
                raise ValueError(message)
        return has_comparison or has_output


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
    baseline_costs, arm, comparison = options.costs, None, None
    if baseline is not None:
        baseline_costs = stated_costs(baseline.costs) if baseline_costs is None else baseline_costs
        arm = baseline.arm
    current_baseline = baseline_of(trace, policy, costs=baseline_costs, arm=arm)
    if baseline is not None:
        min_effect = MIN_EFFECT if options.min_effect is None else options.min_effect
        comparison = compare_baselines(
            baseline, current_baseline, rates=options.rates, min_effect=min_effect
        )
    if options.save is not None:
        make_folder(options.save.parent)
        current_baseline.save(options.save)
    check_facts = _facts(current_baseline, comparison, options.save)
    check_tables: dict[str, pd.DataFrame] = {}
    if comparison is not None:
        check_tables = {"measures": comparison.table, "changed": comparison.changed}
        check_tables["settings"] = comparison.settings
    if as_json:
        table_records: dict[str, Any] = {
            table_name: json_records(table.astype(object).where(table.notna(), None))
            for table_name, table in check_tables.items()
        }
        say_json({**check_facts, "measures": current_baseline.measures, **table_records}, indent=2)
        return bool(comparison and comparison.lost)
    _print(check_facts, check_tables, certified=policy.certificate is not None)
    return bool(comparison and comparison.lost)


def _print(
    facts: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], *, certified: bool
) -> None:
    for fact_name, table in tables.items():
        if len(table):
            shown_table = table.drop(columns=["before_k", "after_k"], errors="ignore").head(
                MAX_SHOWN_ROWS
            )
            say(f"{fact_name}, {len(shown_table)} of {len(table):,}:")
            shown_table = shown_table.rename(columns={"low": "loss_low", "high": "loss_high"})
            shown_table = shown_table.astype(
                dict.fromkeys(shown_table.select_dtypes("Int64"), "float64")
            )
            say(table_text(shown_table) + "\n")
    for fact_name, fact_value in facts.items():
        if isinstance(fact_value, tuple):
            fact_text = ", ".join(fact_value)
        elif isinstance(fact_value, dict):
            fact_text = counted(
                {fact_key: fact_count for fact_key, fact_count in fact_value.items() if fact_count}
            )
        else:
            fact_text = value_text(fact_value)
        if fact_text not in {"", DASH}:
            say(f"{fact_name}: {fact_text}")
    if certified:
        say("note: The certificate is not re-tested here: run check without a baseline.")


def _facts(
    current_baseline: Baseline, comparison: BaselineComparison | None, saved_path: Path | None
) -> dict[str, Any]:
    """What a check states, apart from tables."""
    check_facts: dict[str, Any] = {
        "policy_id": current_baseline.policy_id,
        "basis": current_baseline.basis,
        "cases_hash": current_baseline.cases_hash,
        "saved": None if saved_path is None else str(saved_path),
        "expected_cost": current_baseline.expected_cost,
    }
    if comparison is None:
        scoring_counts = {
            "scored by status": current_baseline.status_only,
            "missing answers": current_baseline.missing_answers,
        }
        return check_facts | {"cases": len(current_baseline.cases), "scoring": scoring_counts}
    comparison_fields = (
        "cases",
        "unpaired",
        "scoring",
        "notes",
        "min_effect",
        "detectable",
        "lost",
    )
    return check_facts | {
        "baseline_policy_id": comparison.before,
        **{field_name: getattr(comparison, field_name) for field_name in comparison_fields},
        "verdict": "lost" if comparison.lost else "not shown",
    }
