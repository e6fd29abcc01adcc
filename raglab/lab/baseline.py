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
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import gold_answers, judged_cases
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import trace_basis, trace_status_only
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.answer_basis import check_compared
from raglab.lab.paired_differences import difference_text, differing_settings, paired_table
from raglab.metrics.costs import COST_ROUNDING, LABELS, OUTCOMES
from raglab.replay import each_shard, shard_codes
from raglab.store.baselines import COST, OUTCOME_NAMES, Baseline, BaselineCase, baseline_rows
from raglab.store.case_labels import first_form, label_fingerprint, question_fingerprint
from raglab.store.files import Where
from raglab.store.policies import Policy
from raglab.values import SCHEMA_VERSION, TraceData, check_labelled, counted, label_codes, refuse
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

MIN_EFFECT = 0.02  # loss up to which nothing fails, in units of cost and of rates
# share of the smaller table below which a comparison says nothing of the policy
LEAST_PAIRED = 0.25
SIDES = ("before", "after")
SAVE_AGAIN = "save the baseline again on these cases (--save-baseline)"


class _ShardCases(NamedTuple):
    """What a baseline keeps of a shard; codes: [1, Q], of `outcome_codes`."""

    cases: list[BaselineCase]
    codes: NDArray[np.int16]
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
    parts = list(each_shard(shard_cases, trace, policy, arm, what="decide"))
    # A baseline that lacks many recorded answers would show losses that are gaps (rule S6.3).
    missing = codes_missing(np.concatenate([part.codes for part in parts], axis=-1))[0]
    check_compared({policy.policy_id: missing})
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
        status_only=sum(part.status_only for part in parts),
        missing_answers=missing.k,
        cases=baseline_rows([case for part in parts for case in part.cases], Where("trace")),
        first_forms={case.id: question_fingerprint(case, first_form) for case in trace.cases},
    )


def shard_cases(trace: TraceData, policy: Policy, arm: str | None) -> _ShardCases:
    """What a baseline keeps of the cases of one trace in memory.

    Pure, so that any worker may decide a shard.
    """
    codes = shard_codes(trace, [policy], arm)
    labels = check_labelled(label_codes(trace.cases))
    columns = trace.cases, judged_cases(trace), labels, CELL_OF_CODE[codes[0]]
    cases = [
        BaselineCase(
            case.id,
            question_fingerprint(case),
            LABELS[label],
            label_fingerprint(case, gold_answers(case) if is_text else ()),
            OUTCOME_NAMES[cell],
        )
        for case, is_text, label, cell in zip(*columns, strict=True)
    ]
    return _ShardCases(cases, codes, int(trace_status_only(trace).sum()))


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
        failing = self.table["tested"] & (self.table["verdict"] == "lost")
        return tuple(self.table.loc[failing, "measure"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: that the policy is not all that differs."""
        names = ", ".join(self.settings["setting"])
        return (f"{names} differ: the difference is not of the policy alone.",) if names else ()

    def _summary(self) -> Summary:
        loss = difference_text(*self.table.loc[0, ["loss", "low", "high"]])
        facts = [
            ("before", self.before),
            ("after", self.after),
            ("verdict", f"lost in {', '.join(self.lost)}" if self.lost else "no loss shown"),
            ("tested above", f"{self.min_effect:g}"),
            ("loss of expected cost", f"{loss} a case, on {self.cases:,} paired cases"),
            ("detectable difference", f"{self.detectable:.2g}"),
            *((name, f"{n:,}") for name, n in {**self.unpaired, **self.scoring}.items() if n),
        ]
        losses = self.table.drop(columns=["before_k", "after_k"])
        tables = {"losses": losses, "changed cases": self.changed, "settings": self.settings}
        return Summary(facts, tables, self.notes, "Policy against a baseline")


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
    for name in rates:
        if name not in metrics.RATES:
            rule = f"rates must be among {', '.join(metrics.RATES)}"
            refuse(rule, repr(name), "name others, or leave them out")
    if not 0.0 <= min_effect < np.inf:
        refuse("min_effect must be a number of at least 0", min_effect, "0.02 is 2 %")
    if before.basis != after.basis:
        rule = f"a baseline must be compared on its own basis, {before.basis} (rule S6.3)"
        refuse(rule, f"cases judged by {after.basis}", SAVE_AGAIN)
    if not np.array_equal(before.costs, after.costs):
        at = tuple(np.argwhere(before.costs != after.costs)[0])
        name = f"{LABELS[at[0]]}.{OUTCOMES[at[1]]}"
        rule = f"a baseline must be compared by its own costs, {name}={before.costs[at]:g}"
        remedy = "leave the costs out, or save it again with them"
        refuse(rule, f"{name}={after.costs[at]:g}", remedy)
    # An id with another question or label is another case.
    pairs, unpaired = _paired(before, after)
    shared = min(len(before.cases), len(after.cases))
    # A small rest that still pairs is no sample of the cases (rule S6.12).
    if not pairs or len(pairs) < LEAST_PAIRED * shared:
        rule = f"{LEAST_PAIRED:.0%} of the cases must be paired with the baseline by id, question"
        refuse(f"{rule} and label", f"{len(pairs)} of {shared}, {counted(unpaired)}", SAVE_AGAIN)
    # Every rate and cost follows from the outcome cells, so no trace is needed here.
    cells = np.array([(first.cell, second.cell) for first, second in pairs], dtype=np.int64).T
    prices = metrics.cell_costs(before.costs)[cells]
    losses = prices[1] - prices[0]
    price, guard = float(before.costs.max()) or 1.0, metrics.interval_guard(before.costs)
    return BaselineComparison(
        before=before.policy_id,
        after=after.policy_id,
        table=_losses(cells, before.costs, rates, min_effect),
        changed=_changed(pairs, losses),
        settings=_settings(before, after),
        cases=len(pairs),
        unpaired=unpaired,
        min_effect=min_effect,
        detectable=metrics.paired_sizes(losses, price=price, guard=guard).smallest.estimate,
        scoring={
            "scored by status": after.status_only,
            "missing answers before": before.missing_answers,
            "missing answers after": after.missing_answers,
        },
    )


Pairs = list[tuple[BaselineCase, BaselineCase]]
ONLY_BEFORE, ONLY_AFTER = "only in the baseline", "only in these cases"
OTHER_QUESTION, OTHER_LABEL = "another question under the same id", "another label"


def _paired(before: Baseline, after: Baseline) -> tuple[Pairs, dict[str, int]]:
    """Cases that both have with one question and label, and how many are left out, by reason."""
    first, second = ({case.id: case for case in baseline.cases} for baseline in (before, after))
    both = [(first[name], second[name]) for name in first if name in second]
    # A file of raglab 0.1.0 knows its questions by their first form.
    both = [
        (old._replace(question=new.question), new)
        if old.question == after.first_forms.get(old.id)
        else (old, new)
        for old, new in both
    ]
    pairs = [(old, new) for old, new in both if old[:4] == new[:4]]
    same_question = sum(old.question == new.question for old, new in both)
    unpaired = {
        ONLY_BEFORE: len(first) - len(both),
        ONLY_AFTER: len(second) - len(both),
        OTHER_QUESTION: len(both) - same_question,
        OTHER_LABEL: same_question - len(pairs),
    }
    return pairs, unpaired


def _losses(
    cells: NDArray[np.int64], costs: NDArray[np.float64], rates: Sequence[str], min_effect: float
) -> pd.DataFrame:
    """A row a measure, see `BaselineComparison`; cells: before and after, [2, Q]."""
    table = paired_table(cells[0], cells[1], SIDES, costs)
    names = table["measure"]
    # A fall of what is better high is a loss.
    falls = names.map(lambda name: name != COST and metrics.RATE_TABLE[name].better == "high")
    ends = {"loss": "difference", "low": "high", "high": "low"}
    turned = {name: 0.0 - table[end] for name, end in ends.items()}
    table = table.rename(columns={"difference": "loss"})
    table = table.assign(
        **{name: table[name].where(~falls, column) for name, column in turned.items()},
        tested=(names == COST) | names.isin(rates),
    )
    # what differs less from the minimum effect is rounding
    least = min_effect + COST_ROUNDING * np.where(names == COST, float(costs.max()), 1.0)
    exceeds, is_shown = table["loss"] > least, table["low"] > 0.0
    conditions = [table["loss"].isna(), exceeds & is_shown, exceeds, is_shown]
    verdicts = np.select(conditions, ["no case", "lost", "open", "small"], "kept")
    counts = [f"{side}_{count}" for side in SIDES for count in "kn"]
    shown = ["measure", *SIDES, "loss", "low", "high", "tested", "verdict", *counts]
    return table.assign(verdict=verdicts)[shown]


def _changed(pairs: Pairs, losses: NDArray[np.float64]) -> pd.DataFrame:
    import pandas as pd

    rows = [(old.id, old.label, old.outcome, new.outcome) for old, new in pairs]
    table = pd.DataFrame(rows, columns=["case_id", "label", *SIDES]).assign(loss=losses)
    table = table[table["before"] != table["after"]]
    return table.sort_values(["loss", "case_id"], ascending=[False, True], ignore_index=True)


def _settings(before: Baseline, after: Baseline) -> pd.DataFrame:
    """What differs besides the policy, a row each."""
    stated = [
        {
            "arm": baseline.arm,
            "documents": baseline.corpus_hash,
            "schema of traces": baseline.schema_version,
            **{
                f"retrieval.{name}": value
                for name, value in baseline.retrieval.items()
                if name != "arms"
            },
        }
        for baseline in (before, after)
    ]
    return differing_settings(stated[0], stated[1], SIDES)
