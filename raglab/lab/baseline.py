"""Baseline comparison (shore): a policy now against a stored table on the same cases (S6.12).

The table says what a policy did then.

A loss is what got worse: a higher cost, a higher rate of errors, a lower coverage or pass rate. It
counts where it exceeds a minimum effect and its paired 95 % interval excludes 0. A comparison that
passes does not show that nothing was lost: see `BaselineComparison.detectable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import gold_answers, judged_cases
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import trace_basis, trace_status_only
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.answer_basis import check_compared
from raglab.lab.paired_differences import difference_text, differing_settings, paired_table
from raglab.metrics.costs import COST_ROUNDING, LABELS, OUTCOMES
from raglab.replay import each_shard, shard_codes
from raglab.store.baselines import (
    COST_MEASURE,
    OUTCOME_NAMES,
    Baseline,
    BaselineCase,
    baseline_rows,
)
from raglab.store.case_labels import first_form, label_fingerprint, question_fingerprint
from raglab.store.files import Where
from raglab.store.policies import Policy
from raglab.values import (
    SCHEMA_VERSION,
    FloatArray,
    IntArray,
    SlotArray,
    TraceData,
    check_labelled,
    counted,
    label_codes,
    refuse,
)
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

MIN_EFFECT = 0.02  # loss up to which nothing fails, in units of cost and of rates
# share of the smaller table below which a comparison says nothing of the policy
MIN_PAIRED_SHARE = 0.25
BASELINE_SIDES = ("before", "after")
SAVE_AGAIN = "save the baseline again on these cases (--save-baseline)"


class _ShardCases(NamedTuple):
    """What a baseline keeps of a shard; codes: [1, Q], of `outcome_codes`."""

    cases: list[BaselineCase]
    codes: SlotArray
    status_only: int


@answered_traces("trace")
def baseline_of(
    trace: TraceView, policy: Policy, *, costs: metrics.Costs | None = None, arm: str | None = None
) -> Baseline:
    """Outcome and cost of each labelled case under a policy, to be stored and compared with later.

    Args:
      trace: labelled cases, in memory or of shards (`Trace.open`), one of which is in memory at a
        time.
      policy: that decides them; it needs no certificate.
      costs: see `metrics.cost_matrix`.
      arm: of the trace; the first where not given.

    Raises:
      ValueError: no case, a case without a label, an id twice, an unknown arm, costs that mean
        nothing, or more than 5 % of the answers missing, of cases judged by text.

    Source: rules S6.3, S6.7, S6.12.

    Example: `baseline_of(trace, policy).save("baseline.json")`.
    """
    if not len(trace):
        refuse("a baseline must have at least one case", "none", "check the split")
    # Shard by shard, and of each only its columns: hits of a large trace never have to fit in
    # memory.
    shard_parts = list(each_shard(shard_cases, trace, policy, arm, what="decide"))
    # A baseline that lacks many recorded answers would show losses that are gaps (rule S6.3).
    policy_missing = codes_missing(
        np.concatenate([shard_part.codes for shard_part in shard_parts], axis=-1)
    )[0]
    check_compared({policy.policy_id: policy_missing})
    # Retrieval and corpus go along: where they differ later, the difference is not of the policy
    # alone.
    return Baseline(
        policy_id=policy.policy_id,
        arm=arm or trace.arms[0],
        basis=trace_basis(trace).kind,
        schema_version=SCHEMA_VERSION,
        costs=metrics.cost_matrix(costs),
        retrieval=dict(trace.meta.get("parameters", {})),
        corpus_hash=trace.meta.get("corpus_hash"),
        status_only=sum(shard_part.status_only for shard_part in shard_parts),
        missing_answers=policy_missing.k,
        cases=baseline_rows(
            [case for shard_part in shard_parts for case in shard_part.cases], Where("trace")
        ),
        first_forms={case.id: question_fingerprint(case, first_form) for case in trace.cases},
    )


def shard_cases(trace: TraceData, policy: Policy, arm: str | None) -> _ShardCases:
    """What a baseline keeps of the cases of one trace in memory.

    Pure, so that any worker may decide a shard.
    """
    outcome_numbers = shard_codes(trace, [policy], arm)
    label_indices = check_labelled(label_codes(trace.cases))
    case_columns = trace.cases, judged_cases(trace), label_indices, CELL_OF_CODE[outcome_numbers[0]]
    cases = [
        BaselineCase(
            case.id,
            question_fingerprint(case),
            LABELS[label_index],
            label_fingerprint(case, gold_answers(case) if is_by_text else ()),
            OUTCOME_NAMES[outcome_cell],
        )
        for case, is_by_text, label_index, outcome_cell in zip(*case_columns, strict=True)
    ]
    return _ShardCases(cases, outcome_numbers, int(trace_status_only(trace).sum()))


@dataclass(frozen=True, eq=False, repr=False)
class BaselineComparison(Result):
    """What a policy lost or gained against a baseline, on the cases that both have.

    before, after: ids of the policies. table: a row a measure, expected cost first: `measure`,
    `before`, `after`, `loss` (above 0: worse now) with `low`, `high` (paired 95 % interval),
    `tested` (whether it can fail), `verdict`; of a rate `before_k`, `before_n`, `after_k`,
    `after_n`. changed: cases with another outcome, greatest loss first: `case_id`, `label`,
    `before`, `after`, `loss` (of cost). settings: what differs besides the policy: `setting`,
    `before`, `after`. cases: that are paired. unpaired: reason -> how many cases of either are left
    out. min_effect: loss up to which nothing fails. detectable: difference of expected cost that so
    many cases detect (80 % power). scoring: how many cases are scored by status alone, and lack an
    answer.

    Verdicts: `lost`, a loss above the minimum effect whose interval excludes 0; `open`, as large,
    but its interval holds 0; `small`, its interval excludes 0, but it is no larger than the minimum
    effect; `kept`, neither; `no case`, a rate of no case.
    """

    before: str
    after: str
    table: pd.DataFrame
    changed: pd.DataFrame
    settings: pd.DataFrame
    cases: int
    unpaired: Mapping[str, int]
    min_effect: float
    detectable: float
    scoring: Mapping[str, int]

    @property
    def lost(self) -> tuple[str, ...]:
        """Tested measures of which something is lost."""
        rows = self.table["tested"] & (self.table["verdict"] == "lost")
        return tuple(self.table.loc[rows, "measure"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: that the policy is not all that differs."""
        names = ", ".join(self.settings["setting"])
        return (f"{names} differ: the difference is not of the policy alone.",) if names else ()

    def _summary(self) -> Summary:
        loss_text = difference_text(*self.table.loc[0, ["loss", "low", "high"]])
        facts = [
            ("before", self.before),
            ("after", self.after),
            ("verdict", f"lost in {', '.join(self.lost)}" if self.lost else "no loss shown"),
            ("tested above", f"{self.min_effect:g}"),
            ("loss of expected cost", f"{loss_text} a case, on {self.cases:,} paired cases"),
            ("detectable difference", f"{self.detectable:.2g}"),
            *(
                (count_name, f"{n_cases:,}")
                for count_name, n_cases in {**self.unpaired, **self.scoring}.items()
                if n_cases
            ),
        ]
        losses_table = self.table.drop(columns=["before_k", "after_k"])
        summary_tables = {
            "losses": losses_table,
            "changed cases": self.changed,
            "settings": self.settings,
        }
        return Summary(facts, summary_tables, self.notes, "Policy against a baseline")


def compare_baselines(
    before: Baseline, after: Baseline, *, rates: Sequence[str] = (), min_effect: float = MIN_EFFECT
) -> BaselineComparison:
    """What was lost or gained from one baseline to another, paired by case.

    A case is paired by its id where question and label are the same. The order of the cases does
    not matter.

    Args:
      before: first table.
      after: second table, of the same arm and costs.
      rates: of `metrics.RATES`, that fail as the expected cost does; the others are shown.
      min_effect: loss up to which nothing fails, at least 0, in units of cost and of rates.

    Raises:
      ValueError: another basis, another cost matrix, too few paired cases, a name that is no rate,
        or a minimum effect below 0 or not finite.

    Source: rules S6.3, S6.7, S6.12; intervals as in `metrics.paired_cost` and
      `metrics.paired_rates`.
    """
    for rate_name in rates:
        if rate_name not in metrics.RATES:
            refuse(
                f"rates must be among {', '.join(metrics.RATES)}",
                repr(rate_name),
                "name others, or leave them out",
            )
    if not 0.0 <= min_effect < np.inf:
        refuse("min_effect must be a number of at least 0", min_effect, "0.02 is 2 %")
    if before.basis != after.basis:
        refuse(
            f"a baseline must be compared on its own basis, {before.basis} (rule S6.3)",
            f"cases judged by {after.basis}",
            SAVE_AGAIN,
        )
    if not np.array_equal(before.costs, after.costs):
        first_cell = tuple(np.argwhere(before.costs != after.costs)[0])
        rate_name = f"{LABELS[first_cell[0]]}.{OUTCOMES[first_cell[1]]}"
        refuse(
            (
                "a baseline must be compared by its own costs, "
                f"{rate_name}={before.costs[first_cell]:g}"
            ),
            f"{rate_name}={after.costs[first_cell]:g}",
            "leave the costs out, or save it again with them",
        )
    # An id with another question or label is another case.
    paired_cases, unpaired = _paired(before, after)
    n_smaller = min(len(before.cases), len(after.cases))
    # A small rest that still pairs is no sample of the cases (rule S6.12).
    if not paired_cases or len(paired_cases) < MIN_PAIRED_SHARE * n_smaller:
        baseline_rule = (
            f"{MIN_PAIRED_SHARE:.0%} of the cases must be paired with the baseline by id, question"
        )
        refuse(
            f"{baseline_rule} and label",
            f"{len(paired_cases)} of {n_smaller}, {counted(unpaired)}",
            SAVE_AGAIN,
        )
    # Every rate and cost follows from the outcome cells, so no trace is needed here.
    outcome_cells = np.array(
        [(before_case.cell, after_case.cell) for before_case, after_case in paired_cases],
        dtype=np.int64,
    ).T
    case_prices = metrics.cell_costs(before.costs)[outcome_cells]
    case_losses = case_prices[1] - case_prices[0]
    highest_price = float(before.costs.max()) or 1.0
    cost_guard = metrics.interval_guard(before.costs)
    return BaselineComparison(
        before=before.policy_id,
        after=after.policy_id,
        table=_losses(outcome_cells, before.costs, rates, min_effect),
        changed=_changed(paired_cases, case_losses),
        settings=_settings(before, after),
        cases=len(paired_cases),
        unpaired=unpaired,
        min_effect=min_effect,
        detectable=metrics.paired_sizes(
            case_losses, price=highest_price, guard=cost_guard
        ).smallest.estimate,
        scoring={
            "scored by status": after.status_only,
            "missing answers before": before.missing_answers,
            "missing answers after": after.missing_answers,
        },
    )


Pairs = list[tuple[BaselineCase, BaselineCase]]
ONLY_BEFORE = "only in the baseline"
ONLY_AFTER = "only in these cases"
OTHER_QUESTION = "another question under the same id"
OTHER_LABEL = "another label"


def _paired(before: Baseline, after: Baseline) -> tuple[Pairs, dict[str, int]]:
    """Cases that both have with one question and label, and how many are left out, by reason."""
    before_cases, after_cases = (
        {case.id: case for case in side_baseline.cases} for side_baseline in (before, after)
    )
    shared_cases = [
        (before_cases[case_id], after_cases[case_id])
        for case_id in before_cases
        if case_id in after_cases
    ]
    # A file of raglab 0.1.0 knows its questions by their first form.
    shared_cases = [
        (before_case._replace(question=after_case.question), after_case)
        if before_case.question == after.first_forms.get(before_case.id)
        else (before_case, after_case)
        for before_case, after_case in shared_cases
    ]
    paired_cases = [
        (before_case, after_case)
        for before_case, after_case in shared_cases
        if before_case[:4] == after_case[:4]
    ]
    n_same_question = sum(
        before_case.question == after_case.question for before_case, after_case in shared_cases
    )
    unpaired = {
        ONLY_BEFORE: len(before_cases) - len(shared_cases),
        ONLY_AFTER: len(after_cases) - len(shared_cases),
        OTHER_QUESTION: len(shared_cases) - n_same_question,
        OTHER_LABEL: n_same_question - len(paired_cases),
    }
    return paired_cases, unpaired


def _losses(
    cells: IntArray, costs: FloatArray, rates: Sequence[str], min_effect: float
) -> pd.DataFrame:
    """A row a measure, see `BaselineComparison`; cells: before and after, [2, Q]."""
    measure_table = paired_table(cells[0], cells[1], BASELINE_SIDES, costs)
    measure_names = measure_table["measure"]
    # A fall of what is better high is a loss.
    is_fall = measure_names.map(
        lambda column_name: (
            column_name != COST_MEASURE and metrics.RATE_TABLE[column_name].better == "high"
        )
    )
    turned_ends = {"loss": "difference", "low": "high", "high": "low"}
    turned_columns = {
        column_name: 0.0 - measure_table[source_column]
        for column_name, source_column in turned_ends.items()
    }
    measure_table = measure_table.rename(columns={"difference": "loss"})
    measure_table = measure_table.assign(
        **{
            column_name: measure_table[column_name].where(~is_fall, turned_column)
            for column_name, turned_column in turned_columns.items()
        },
        tested=(measure_names == COST_MEASURE) | measure_names.isin(rates),
    )
    # what differs less from the minimum effect is rounding
    least_losses = min_effect + COST_ROUNDING * np.where(
        measure_names == COST_MEASURE, float(costs.max()), 1.0
    )
    exceeds = measure_table["loss"] > least_losses
    is_shown = measure_table["low"] > 0.0
    verdict_conditions = [measure_table["loss"].isna(), exceeds & is_shown, exceeds, is_shown]
    verdicts = np.select(verdict_conditions, ["no case", "lost", "open", "small"], "kept")
    count_columns = [
        f"{side_name}_{count_letter}" for side_name in BASELINE_SIDES for count_letter in "kn"
    ]
    shown_columns = [
        "measure",
        *BASELINE_SIDES,
        "loss",
        "low",
        "high",
        "tested",
        "verdict",
        *count_columns,
    ]
    return measure_table.assign(verdict=verdicts)[shown_columns]


def _changed(paired_cases: Pairs, case_losses: FloatArray) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (before_case.id, before_case.label, before_case.outcome, after_case.outcome)
        for before_case, after_case in paired_cases
    ]
    table = pd.DataFrame(rows, columns=["case_id", "label", *BASELINE_SIDES]).assign(
        loss=case_losses
    )
    table = table[table["before"] != table["after"]]
    return table.sort_values(["loss", "case_id"], ascending=[False, True], ignore_index=True)


def _settings(before: Baseline, after: Baseline) -> pd.DataFrame:
    """What differs besides the policy, a row each."""
    settings_by_side = [
        {
            "arm": side_baseline.arm,
            "documents": side_baseline.corpus_hash,
            "schema of traces": side_baseline.schema_version,
            **{
                f"retrieval.{name}": value
                for name, value in side_baseline.retrieval.items()
                if name != "arms"
            },
        }
        for side_baseline in (before, after)
    ]
    return differing_settings(settings_by_side[0], settings_by_side[1], BASELINE_SIDES)
