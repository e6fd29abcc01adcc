"""Baseline comparison (shore): a policy now against a stored table on the same cases (S6.12).

The table says what a policy did then.

A loss is what got worse: a higher cost, a higher rate of errors, a lower coverage or pass rate. It
counts where it exceeds a minimum effect and its paired 95 % interval excludes 0. A comparison that
passes does not show that nothing was lost: see `metrics.paired_size_note`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.decision.answer_text import gold_answers, judged_cases
from raglab.decision.outcome_codes import CELL_OF_CODE, codes_missing
from raglab.decision.scoring import status_only_sentence, trace_basis, trace_status_only
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.answer_basis import check_compared
from raglab.metrics.costs import LABELS, OUTCOMES, SAME
from raglab.replay import each_shard, join_columns, shard_codes
from raglab.store.baselines import COST, OUTCOME_NAMES, Baseline, BaselineCase, baseline_rows
from raglab.store.case_labels import first_form, label_fingerprint, question_fingerprint
from raglab.store.files import Where
from raglab.store.policies import Policy
from raglab.values import SCHEMA_VERSION, TraceData, check_labelled, label_codes
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95  # of the paired intervals
MIN_EFFECT = 0.02  # loss up to which nothing fails, in units of cost and of rates
# share of the smaller table below which a comparison says nothing of the policy
LEAST_PAIRED = 0.25
Verdict = Literal["lost", "open", "small", "kept", "no case"]


class _CaseColumns(NamedTuple):
    """What a baseline keeps of cases, [Q] each; codes: [1, Q], of `outcome_codes`."""

    ids: NDArray[np.object_]
    questions: NDArray[np.object_]
    labels: NDArray[np.int8]
    judged_by: NDArray[np.object_]
    by_text: NDArray[np.bool_]
    status_only: NDArray[np.bool_]
    codes: NDArray[np.int16]


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
        msg = "a baseline must have at least one case, got none; check the split."
        raise ValueError(msg)
    # Shard by shard, and of each only its columns: hits of a large trace never have to fit in
    # memory.
    columns: _CaseColumns = join_columns(
        each_shard(shard_columns, trace, policy, arm, what="decide")
    )
    # A baseline that lacks many recorded answers would show losses that are gaps (rule S6.3).
    missing = codes_missing(columns.codes)[0]
    check_compared({policy.policy_id: missing})
    cells = CELL_OF_CODE[columns.codes[0]]
    rows = zip(
        columns.ids.tolist(),
        columns.questions.tolist(),
        (LABELS[label] for label in columns.labels),
        columns.judged_by.tolist(),
        (OUTCOME_NAMES[cell] for cell in cells),
        strict=True,
    )
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
        status_only=int(columns.status_only.sum()),
        missing_answers=missing.k,
        cases=baseline_rows([BaselineCase(*row) for row in rows], Where("trace")),
        first_forms={case.id: question_fingerprint(case, first_form) for case in trace.cases},
    )


def shard_columns(trace: TraceData, policy: Policy, arm: str | None) -> _CaseColumns:
    """What a baseline keeps of the cases of one trace in memory.

    Pure, so that any worker may decide a shard.
    """
    labels = check_labelled(label_codes(trace.cases))
    by_text = judged_cases(trace)
    judged_by = [
        label_fingerprint(case, gold_answers(case) if is_text else ())
        for case, is_text in zip(trace.cases, by_text, strict=True)
    ]
    return _CaseColumns(
        ids=np.array([case.id for case in trace.cases], dtype=object),
        questions=np.array([question_fingerprint(case) for case in trace.cases], dtype=object),
        labels=labels,
        judged_by=np.array(judged_by, dtype=object),
        by_text=by_text,
        status_only=trace_status_only(trace),
        codes=shard_codes(trace, [policy], arm),
    )


@dataclass(frozen=True, eq=False, repr=False)
class BaselineComparison:
    """What a policy lost or gained against a baseline, on the cases that both have.

    before, after: ids of the policies. table: a row a measure, expected cost first: `measure`,
    `before`, `after`, `loss` (above 0: worse now) with `low`, `high` (paired 95 % interval),
    `tested` (whether it can fail), `verdict`; of a rate `before_k`, `before_n`, `after_k`,
    `after_n`. changed: cases with another outcome, greatest loss first: `case_id`, `label`,
    `before`, `after`, `loss` (of cost). cases: that are paired. unpaired: reason -> how many cases
    of either are left out. min_effect: loss up to which nothing fails. notes: what a reader must
    know.

    Verdicts: `lost`, a loss above the minimum effect whose interval excludes 0; `open`, as large,
    but its interval holds 0; `small`, its interval excludes 0, but it is no larger than the minimum
    effect; `kept`, neither; `no case`, a rate of no case.
    """

    before: str
    after: str
    table: pd.DataFrame
    changed: pd.DataFrame
    cases: int
    unpaired: Mapping[str, int]
    min_effect: float
    notes: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """The table."""
        return self.table

    @property
    def lost(self) -> tuple[str, ...]:
        """Tested measures of which something is lost."""
        failing = self.table["tested"] & (self.table["verdict"] == "lost")
        return tuple(self.table.loc[failing, "measure"])

    @property
    def headline(self) -> str:
        """Whether something is lost, and how much of the expected cost."""
        cost: Any = self.table.iloc[0]
        what = (
            f"lost in {', '.join(self.lost)}"
            if self.lost
            else f"no loss above {self.min_effect:g} is shown"
        )
        ends = f"[{cost['low']:+.3f}, {cost['high']:+.3f}]"
        return (
            f"{what}; expected cost {cost['loss']:+.3f} {ends} a case, on {self.cases:,} paired "
            "cases"
        )

    def __repr__(self) -> str:
        return visible(f"BaselineComparison({self.before} to {self.after}: {self.headline})")


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
    _check_settings(rates, min_effect)
    _check_comparable(before, after)
    # An id with another question or label is another case.
    pairs, unpaired = _paired(before, after)
    shared = min(len(before.cases), len(after.cases))
    # A small rest that still pairs is no sample of the cases (rule S6.12).
    if len(pairs) < LEAST_PAIRED * shared:
        rule = (
            f"at least {LEAST_PAIRED:.0%} of the cases must be paired with the baseline by id, "
            "question and label"
        )
        msg = f"{rule}, got {len(pairs)} of {shared}; save the baseline again (--save-baseline)."
        raise ValueError(msg)
    # Every rate and cost follows from the outcome cells, so no trace is needed here.
    cells = np.array([(first.cell, second.cell) for first, second in pairs], dtype=np.int64).T
    prices = metrics.cell_costs(before.costs)[cells]
    table = _measures(cells, before.costs, rates, min_effect)
    notes = (
        *_verdict_notes(table, min_effect),
        *_unpaired_notes(unpaired),
        *_difference_notes(before, after),
        *_size_notes(prices[1] - prices[0], before.costs, table, min_effect),
    )
    return BaselineComparison(
        before=before.policy_id,
        after=after.policy_id,
        table=table,
        changed=_changed(pairs, prices),
        cases=len(pairs),
        unpaired=unpaired,
        min_effect=min_effect,
        notes=notes,
    )


def _check_settings(rates: Sequence[str], min_effect: float) -> None:
    unknown = [name for name in rates if name not in metrics.RATES]
    if unknown:
        msg = (
            f"rates must be among {', '.join(metrics.RATES)}, got {unknown[0]!r}; expected_cost "
            "is always tested."
        )
        raise ValueError(msg)
    if not 0.0 <= min_effect < np.inf:
        msg = (
            f"min_effect must be a number of at least 0, got {min_effect}; 0.02 is 2 % of a cost "
            "or rate of 1."
        )
        raise ValueError(msg)


def _check_comparable(before: Baseline, after: Baseline) -> None:
    if before.basis != after.basis:
        rule = f"a baseline must be compared on its own basis, {before.basis} (rule S6.3)"
        remedy = (
            "give cases with gold answers and recorded answers, as the baseline had, or save the "
            "baseline again"
        )
        if after.basis != "sources":
            remedy = "save the baseline again on these cases"
        msg = f"{rule}, got cases judged by {after.basis}; {remedy}."
        raise ValueError(msg)
    if not np.array_equal(before.costs, after.costs):
        at = tuple(np.argwhere(before.costs != after.costs)[0])
        name = f"{LABELS[at[0]]}.{OUTCOMES[at[1]]}"
        rule = f"a baseline must be compared by its own costs, {name}={before.costs[at]:g}"
        msg = (
            f"{rule}, got {name}={after.costs[at]:g}; leave the costs out, or save the baseline "
            "again with them."
        )
        raise ValueError(msg)


Pairs = list[tuple[BaselineCase, BaselineCase]]
ONLY_BEFORE, ONLY_AFTER = "only in the baseline", "only in these cases"
OTHER_QUESTION, OTHER_LABEL = "another question under the same id", "another label"


def _paired(before: Baseline, after: Baseline) -> tuple[Pairs, dict[str, int]]:
    """Cases that both have with one question and label, and how many are left out, by reason."""
    first, second = ({case.id: case for case in baseline.cases} for baseline in (before, after))
    # A file of raglab 0.1.0 knows its questions by their first form.
    both = [
        (
            case._replace(question=second[name].question)
            if case.question == after.first_forms.get(name)
            else case,
            second[name],
        )
        for name, case in first.items()
        if name in second
    ]
    pairs = [pair for pair in both if pair[0][:4] == pair[1][:4]]
    same_question = sum(
        case_before.question == case_after.question for case_before, case_after in both
    )
    unpaired = {
        ONLY_BEFORE: len(first) - len(both),
        ONLY_AFTER: len(second) - len(both),
        OTHER_QUESTION: len(both) - same_question,
        OTHER_LABEL: same_question - len(pairs),
    }
    if not pairs:
        reasons = ", ".join(f"{count} {reason}" for reason, count in unpaired.items() if count)
        rule = "a baseline must share cases (id, question and label) with those it is compared on"
        msg = (
            f"{rule}, got none ({reasons}); give the cases it was saved on, or save it again on "
            "these."
        )
        raise ValueError(msg)
    return pairs, unpaired


def _measures(
    cells: NDArray[np.int64], costs: NDArray[np.float64], rates: Sequence[str], min_effect: float
) -> pd.DataFrame:
    """A row a measure, see `BaselineComparison`; cells: before and after, [2, Q]."""
    import pandas as pd

    counted = np.stack([np.bincount(row, minlength=metrics.N_CELLS) for row in cells])
    spent = np.asarray(metrics.expected_cost(counted, costs))
    cost = metrics.paired_cost(cells[0], cells[1], costs, LEVEL)
    compared = metrics.paired_rates(cells[0], cells[1], LEVEL)
    margin = SAME * float(costs.max())
    rows = [
        {"measure": COST, "before": float(spent[0]), "after": float(spent[1])}
        | _loss((cost.difference, cost.low, cost.high), min_effect, margin, tested=True)
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.asarray(compared.k / compared.n)
    for at, (name, rate) in enumerate(metrics.RATE_TABLE.items()):
        ends = tuple(float(end[at]) for end in (compared.difference, compared.low, compared.high))
        loss = ends if rate.better == "low" else (0.0 - ends[0], 0.0 - ends[2], 0.0 - ends[1])
        row = {"measure": name, "before": float(shares[0, at]), "after": float(shares[1, at])}
        row |= _loss(loss, min_effect, SAME, tested=name in rates)
        sizes = zip(
            _COUNTS,
            (int(of[side, at]) for side in (0, 1) for of in (compared.k, compared.n)),
            strict=True,
        )
        rows.append(row | dict(sizes))
    return pd.DataFrame(rows).astype(dict.fromkeys(_COUNTS, "Int64"))


_COUNTS = ("before_k", "before_n", "after_k", "after_n")  # of a rate, missing of the cost


def _loss(
    ends: tuple[float, ...], min_effect: float, margin: float, *, tested: bool
) -> dict[str, Any]:
    """Columns of a loss; ends: estimate, low, high.

    Margin: below which a difference to the effect is rounding.
    """
    loss, low, high = ends
    verdict: Verdict = "kept"
    if np.isnan(loss):
        verdict = "no case"
    elif loss > min_effect + margin:
        verdict = "lost" if low > 0.0 else "open"
    elif low > 0.0:
        verdict = "small"
    return {"loss": loss, "low": low, "high": high, "tested": tested, "verdict": verdict}


def _changed(pairs: Pairs, prices: NDArray[np.float64]) -> pd.DataFrame:
    import pandas as pd

    loss = prices[1] - prices[0]
    places = [at for at, (first, second) in enumerate(pairs) if first.outcome != second.outcome]
    places.sort(key=lambda at: (-loss[at], pairs[at][0].id))
    rows = [
        (first.id, first.label, first.outcome, second.outcome, float(loss[at]))
        for at in places
        for first, second in [pairs[at]]
    ]
    return pd.DataFrame(rows, columns=["case_id", "label", "before", "after", "loss"])


def _verdict_notes(table: pd.DataFrame, min_effect: float) -> tuple[str, ...]:
    """Losses that fail nothing.

    As large as the minimum effect but not shown, or of rates that are not tested.
    """
    notes = []
    losses = {
        row["measure"]: f"{row['loss']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        for row in _rows(table)
    }
    if open_losses := [
        row["measure"] for row in _rows(table) if row["verdict"] == "open" and row["tested"]
    ]:
        named = ", ".join(f"{name} {losses[name]}" for name in open_losses)
        notes.append(f"Above {min_effect:g}, but not shown, since the interval holds 0: {named}.")
    if untested := [
        row["measure"] for row in _rows(table) if row["verdict"] == "lost" and not row["tested"]
    ]:
        named = ", ".join(f"{name} {losses[name]}" for name in untested)
        notes.append(
            f"Lost in rates that are not tested, so nothing fails: {named}. State them to test "
            "them."
        )
    return tuple(notes)


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _size_notes(
    gains: NDArray[np.float64], costs: NDArray[np.float64], table: pd.DataFrame, min_effect: float
) -> tuple[str, ...]:
    """What so few cases cannot tell, if it exceeds the minimum effect and no cost is lost."""
    price = float(costs.max()) or 1.0
    guard = metrics.interval_guard(costs)
    smallest = metrics.paired_sizes(gains, price=price, guard=guard).smallest.estimate
    if smallest <= min_effect or table["verdict"].iloc[0] == "lost":
        return ()
    return (metrics.paired_size_note(gains, price=price, guard=guard),)


def _unpaired_notes(unpaired: Mapping[str, int]) -> tuple[str, ...]:
    counts = ", ".join(f"{count:,} {reason}" for reason, count in unpaired.items() if count)
    return (f"Cases left out: {counts}.",) if counts else ()


def _difference_notes(before: Baseline, after: Baseline) -> tuple[str, ...]:
    """What differs beside the policy, and what the outcomes rest on."""
    notes = []
    if before.arm != after.arm:
        notes.append(
            f"The baseline is of the arm {before.arm}, these decisions are of {after.arm}."
        )
    names = [name for name in {**before.retrieval, **after.retrieval} if name != "arms"]
    differing = [name for name in names if before.retrieval.get(name) != after.retrieval.get(name)]
    if differing:
        differences = "; ".join(
            f"{name} {before.retrieval.get(name)} to {after.retrieval.get(name)}"
            for name in differing
        )
        notes.append(
            f"Retrieval differs from the baseline's: {differences}. The difference is not of the "
            "policy alone."
        )
    if before.corpus_hash != after.corpus_hash:
        notes.append(
            "The documents differ from the baseline's. The difference is not of the policy alone."
        )
    if before.schema_version != after.schema_version:
        versions = f"{before.schema_version} to {after.schema_version}"
        notes.append(
            f"The schema of traces differs ({versions}): another raglab measured the baseline."
        )
    if before.missing_answers:
        notes.append(
            f"{before.missing_answers:,} answers missing in the baseline count as not correct "
            "there (S6.3)."
        )
    return (*notes, *scoring_notes(after))


def scoring_notes(baseline: Baseline) -> tuple[str, ...]:
    """What the outcomes of a baseline rest on.

    Cases scored by status alone, and missing answers.
    """
    notes = []
    if alone := status_only_sentence(baseline.status_only, len(baseline.cases)):
        notes.append(
            f"{alone}: labelled ok without sources, they count any answer as correct (S6.3)."
        )
    if baseline.missing_answers:
        notes.append(
            f"{baseline.missing_answers:,} answers are not recorded and count as not correct "
            "(S6.3)."
        )
    return tuple(notes)
