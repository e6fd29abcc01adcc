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

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.baseline import BaselineComparison
    from raglab.metrics import Costs
    from raglab.store.baselines import Baseline
    from raglab.store.policies import Policy
    from raglab.store.traces import StudyTrace

SIDES = ("before", "after")
SHOWN = 20  # changed cases that are printed
BaselinePath = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        help="Compare with this stored table, paired by case, in place of the certificate; exits 3 "
        "where the expected "
        "cost or a rate of --rate lost more than --min-effect and its 95 % interval excludes 0.",
    ),
]
SavedBaseline = Annotated[
    Path | None,
    typer.Option(
        "--save-baseline", help="Write the table of this policy here. No file is overwritten."
    ),
]
TestedRates = Annotated[
    list[str] | None,
    typer.Option("--rate", help="Rate that is tested like the expected cost. Repeatable."),
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
                msg = (
                    f"{name} must be given {where}, where it acts, got it otherwise; leave {name} "
                    "out."
                )
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
    costs = (
        stated_costs(baseline.costs)
        if options.costs is None and baseline is not None
        else options.costs
    )
    now = baseline_of(trace, policy, costs=costs, arm=None if baseline is None else baseline.arm)
    comparison = None
    if baseline is not None:
        effect = MIN_EFFECT if options.min_effect is None else options.min_effect
        comparison = compare_baselines(baseline, now, rates=options.rates, min_effect=effect)
    if options.save is not None:
        make_folder(options.save.parent)
        now.save(options.save)
    if as_json:
        say_json(_record(now, comparison, options.save), indent=2)
    else:
        _print(now, comparison, options.save, certified=policy.certificate is not None)
    return comparison is not None and bool(comparison.lost)


def _record(
    now: Baseline, comparison: BaselineComparison | None, saved: Path | None
) -> dict[str, Any]:
    from raglab.lab.baseline import scoring_notes

    record: dict[str, Any] = {
        "policy_id": now.policy_id,
        "basis": now.basis,
        "cases_hash": now.cases_hash,
    }
    if comparison is None:
        record |= {"cases": len(now.cases), "measures": now.measures, "notes": scoring_notes(now)}
    else:
        record |= {
            "baseline_policy_id": comparison.before,
            "verdict": "lost" if comparison.lost else "not shown",
            "lost": comparison.lost,
            "min_effect": comparison.min_effect,
            "cases": comparison.cases,
            "unpaired": comparison.unpaired,
            "measures": json_records(
                comparison.table.astype(object).where(comparison.table.notna(), None)
            ),
            "changed": json_records(comparison.changed),
            "notes": comparison.notes,
        }
    return record | {"saved": None if saved is None else str(saved)}


def _print(
    now: Baseline, comparison: BaselineComparison | None, saved: Path | None, *, certified: bool
) -> None:
    from raglab.lab.baseline import scoring_notes

    if comparison is not None:
        say(
            f"policy {comparison.after} against the baseline of policy {comparison.before}: "
            f"{comparison.cases:,} paired cases, basis "
            f"{now.basis}.\nA loss above 0 is worse than the baseline. A test fails above "
            f"{comparison.min_effect:g} "
            "if its 95 % interval excludes 0.\n"
        )
        say(table_text(_readable(comparison.table)))
        if len(comparison.changed):
            more = f", the first {SHOWN}" if len(comparison.changed) > SHOWN else ""
            say(f"\n{len(comparison.changed):,} cases with another outcome{more}:")
            say(table_text(comparison.changed.head(SHOWN)))
        say(f"\nverdict: {comparison.headline}")
        for note in comparison.notes:
            say(f"note: {note}")
    else:
        for note in scoring_notes(now):
            say(f"note: {note}")
    if certified:
        say(
            "note: The policy's certificate is not re-tested here; run check without a baseline "
            "for that."
        )
    if saved is not None:
        rates = ", ".join(
            f"{name} {row['k']}/{row['n']}"
            for name, row in now.measures.items()
            if "k" in row and row["n"]
        )
        say(
            f"baseline:    {saved}  ({len(now.cases):,} cases, expected cost "
            f"{now.expected_cost:.3f}; {rates})"
        )


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Table with counts beside rates and the interval in one column.

    A rate of no case is a dash.
    """
    import pandas as pd

    rows = []
    for row in table.to_dict("records"):
        cells = {}
        for side in SIDES:
            counts = "" if pd.isna(row[f"{side}_n"]) else f" {row[f'{side}_k']}/{row[f'{side}_n']}"
            cells[side] = "–" if pd.isna(row[side]) else f"{row[side]:.3f}{counts}"
        loss = f"{row['loss']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        cells["loss [95 % interval]"] = "–" if pd.isna(row["loss"]) else loss
        cells["tested"] = "yes" if row["tested"] else "no"
        rows.append({"measure": row["measure"], **cells, "verdict": row["verdict"]})
    return pd.DataFrame(rows)
