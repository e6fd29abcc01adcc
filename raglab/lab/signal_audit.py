"""Signal audit (shore): what each signal tells and repeats, and what decisions lose without.

The decision meant is the one by expected cost.

Nothing here chooses anything: the audit says which signals are worth their milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from raglab import metrics
from raglab.decision.measurement import measured_tables
from raglab.decision.scoring import headline_note
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.gating.expected_cost import (
    OUTCOME_CLASSES,
    action_costs,
    expected_costs,
    least_cost,
)
from raglab.lab.answer_basis import check_recorded
from raglab.lab.decision_fitting import (
    MIN_KIND_CASES,
    PENALTY_STRENGTHS,
    DecisionCases,
    decision_cases,
    direction_notes,
    fit_model,
    join_decision_cases,
    stratified_folds,
    tells_apart,
    tune_cases,
)
from raglab.live.measured_signals import SIGNAL_STAGE
from raglab.metrics.costs import OUTCOME_OF_CELL, Costs, cost_matrix
from raglab.metrics.intervals import check_level, mean_interval
from raglab.progress import progress
from raglab.replay import cases_by_shard, each_shard
from raglab.signals import DOUBLE, Signal, SignalSet
from raglab.store.policies import Policy
from raglab.values import AnyArray, BoolArray, FloatArray, IntArray, Status, TraceData, WholeArray
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_FOLDS, DEFAULT_REPEATS = 10, 2  # of the cross-validation
MISSING_EVERYWHERE = "missing everywhere"
ALWAYS_CONSTANT = "the same in every case"
# Stages of retrieval, as a trace's latencies name them, that a signal is read from.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "confidence": ("rerank",),
    "rerank_margin": ("rerank",),
    "hybrid": ("keyword", "fuse"),
    "top1_cosine": ("embed", "dense"),
    "mean_cosine": ("embed", "dense"),
    "gap": ("embed", "dense"),
    "score_scale": ("embed", "dense"),
    "score_spread": ("embed", "dense"),
    "nqc": ("embed", "dense"),
    "anchor_similarity": ("embed", "measure"),
    "signature_similarity": ("embed", "measure"),
}


# of the classes, by `expected_cost.OUTCOME_CLASSES`
CLASS_LABELS = np.array([Status.ok, Status.ok, Status.refuse, Status.ambiguous])


class LabelledSignals(NamedTuple):
    """What every case measures, and what each action would earn it.

    cases: as a fit reads them. can_answer: whether there are hits, [Q]. ms: that each signal took,
    [S, Q], NaN where nobody measured it. stages: of the times of one shard, None without any.
    """

    cases: DecisionCases
    can_answer: BoolArray
    ms: FloatArray
    stages: tuple[str, ...] | None = None

    @property
    def right(self) -> BoolArray:
        """Whether answering without any gate would be right, [Q]."""
        is_right: BoolArray = self.cases.classes == OUTCOME_CLASSES.index("right")
        return is_right

    @property
    def ambiguous(self) -> BoolArray:
        """Whether a case should be asked back, [Q]."""
        is_ambiguous: BoolArray = self.cases.classes == OUTCOME_CLASSES.index("ambiguous")
        return is_ambiguous

    def rows(self, keep: AnyArray) -> LabelledSignals:
        """The same of some cases."""
        return LabelledSignals(self.cases.rows(keep), self.can_answer[keep], self.ms[:, keep])

    def case_costs(self, decided: WholeArray | int, matrix: FloatArray) -> FloatArray:
        """What each case costs under a decision, [Q].

        Nothing retrieved is refused before, as by a hard gate.

        Args:
          decided: status, [Q] or one for all.
          matrix: of `metrics.cost_matrix`.
        """
        status = np.where(self.can_answer, decided, Status.refuse)
        labels = CLASS_LABELS[self.cases.classes]
        is_right = np.where(status == Status.ok, self.right, self.cases.options_right)
        cell_codes = (status.astype(np.int64) * len(Status) + labels) * 2 + is_right
        costs: FloatArray = matrix[labels, OUTCOME_OF_CELL[cell_codes]]
        return costs


@dataclass(frozen=True, eq=False, repr=False)
class SignalAudit(Result):
    """Worth of each signal.

    Attributes:
      table: a row a signal, the most worth first, constant ones last; see `audit_signals`.
      correlations: rank correlation of any two, [S, S], NaN where one is constant.
      cost: cross-validated cost of a case with all signals.
      cost_without_signals: of the better of always answering and always refusing; NaN without
        cross-validation.
      split: split of the cases, `all` where none is named tune.
      cases: number of cases.
      level: of the intervals.
      notes: for the reader, in sentences.
      classes: cases by what answering them is: right, a miss, to be refused, ambiguous.
    """

    table: pd.DataFrame
    correlations: pd.DataFrame
    cost: float
    cost_without_signals: float
    split: str
    cases: int
    level: float
    notes: tuple[str, ...]
    classes: Mapping[str, int]

    def _summary(self) -> Summary:
        missed_signals = self.table.loc[self.table["worth_low"] > 0.0, "signal"]
        n_measured = int((self.table["n"] > 0).sum())
        facts = [("split", self.split), ("cases", f"{self.cases:,}")]
        facts += [(class_name, f"{n_cases:,}") for class_name, n_cases in self.classes.items()]
        facts.append(("signals measured", f"{n_measured} of {len(self.table)}"))
        if not np.isnan(self.cost):
            facts.append(("cost with all signals", f"{self.cost:.3f}"))
            facts.append(("with none", f"{self.cost_without_signals:.3f}"))
            facts.append(("missed beside all others", ", ".join(missed_signals) or "none"))
        return Summary(facts, {"signals": self.table}, self.notes)


@answered_traces("trace")
def audit_signals(
    trace: TraceView,
    policy: Policy | None = None,
    *,
    arm: str | None = None,
    costs: Costs | None = None,
    folds: int = DEFAULT_FOLDS,
    repeats: int = DEFAULT_REPEATS,
    level: float = 0.95,
    seed: int = 0,
) -> SignalAudit:
    """Worth of every signal, built-in or of the trace, on labelled cases.

    The cases are those of split `tune` if it has any, else all.

    Columns of the frame, a row a signal, the most worth first; then signals that are the same in
    every case, and last those that no case has:

    - `signal`, `unit`, `direction`, `stage`; `n` cases that have it, `missing` share that have not;
      `note`.
    - `auroc_right` with `_low`, `_high`: chance that it ranks a case that is right if answered
      above one that is wrong, in the declared direction; a signal that says `ask` is read backwards
      here, less of it as surer.
    - `auroc_ambiguous`: the same of ambiguous cases against all others; one that says `surer` is
      read backwards. One that says `either` is read upwards in both. Over the cases that have the
      signal.
    - `nearest`, `rank_correlation`: the other signal that it repeats most, and Spearman's
      correlation with it.
    - `cost`: cross-validated cost of a case with all signals; `cost_without`: without this one;
      `worth`: their difference with a paired interval over cases (above 0: it saves that much).
      `worth_doubles`: the same where all go that repeat it, at a rank correlation of 0.9 or beyond.
      `cost_alone` and `worth_alone`: this one alone, against the better of always answering and
      always refusing.
    - `ms`: milliseconds a case, median, of the retrieval stages that it needs or of the function
      that measures it; NaN where nothing tells them apart.

    The interval is that of these folds: it counts the draw of the cases that are judged, not of
    those fitted on. A good signal is worth nothing together with its double: see `worth_doubles`
    and `worth_alone`.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; their
        signals are held whole.
      policy: the policy that chooses the hits and, without `costs`, gives the cost of a failure.
      arm: of the trace; the first where not given.
      costs: see `metrics.cost_matrix`.
      folds: of the stratified cross-validation, at least 2.
      repeats: of the cross-validation; 0 leaves the costs out.
      level: of the intervals, in (0, 1).
      seed: of the folds.

    Raises:
      ValueError: no cases, repeats below 0, level outside (0, 1), or too many answers missing of
        cases judged by text; with repeats, folds below 2 or above half the cases, or too few cases
        for a fit without one fold, which needs 10 that would be answered right and 10 others: 10
        folds need 12 of each, 3 folds 15 of each.

    Source: rules S2.15, S2.17, S6.3, S6.7.
    """
    import pandas as pd

    check_level(level)
    start_policy = policy if policy is not None else Policy.load()
    tuning_trace = tune_cases(trace)
    check_recorded(tuning_trace, start_policy, arm, "an audit")
    # Of each shard only its signals are kept, so that hits of a large trace never have to fit in
    # memory. Cases go by their ids: folds must not depend on the order of the rows.
    parts = list(each_shard(shard_signals, tuning_trace, start_policy, arm, what="measure"))
    tuning_cases = [case for cases in cases_by_shard(tuning_trace) for case in cases]
    labelled_signals = LabelledSignals(
        join_decision_cases([part.cases for part in parts]),
        np.concatenate([part.can_answer for part in parts]),
        np.concatenate([part.ms for part in parts], axis=1),
    ).rows(np.argsort([case.id for case in tuning_cases], kind="stable"))
    _check_folds(labelled_signals, folds, repeats)
    outcome_costs = start_policy.decision.costs.matrix if costs is None else cost_matrix(costs)
    signal_set = labelled_signals.cases.known
    signal_values = labelled_signals.cases.signals
    correlations = rank_correlations(signal_values)
    signal_table = pd.DataFrame(
        [_signal_row(signal, labelled_signals, level) for signal in signal_set.rows]
    )
    off_diagonal = np.where(np.eye(len(signal_values), dtype=bool), np.nan, correlations)
    nearest_index = np.nan_to_num(np.abs(off_diagonal), nan=-1.0).argmax(axis=1)
    signal_table["nearest"] = np.array(signal_set.names, dtype=object)[nearest_index]
    signal_table["rank_correlation"] = off_diagonal[np.arange(len(signal_values)), nearest_index]
    signal_table.loc[signal_table["rank_correlation"].isna(), "nearest"] = ""
    signal_table["ms"] = _milliseconds(parts)
    # Costs take hundreds of fits; without repeats the audit is the rest, at once.
    mean_cost, cost_without_signals, cost_rows = np.nan, np.nan, dict[str, tuple[float, ...]]()
    if repeats:
        varying_names = _varying(labelled_signals.cases, signal_set.names)
        fold_plan = audit_folds(labelled_signals, varying_names, folds, repeats, seed)
        doubles = _doubles(varying_names, correlations, signal_set)
        # hundreds of small fits, over which threads would only wait for each other
        with threadpool_limits(1):
            mean_cost, cost_without_signals, cost_rows = _costed(
                labelled_signals, doubles, outcome_costs, fold_plan, seed, level
            )
    cost_table = pd.DataFrame.from_dict(
        cost_rows, orient="index", columns=list(COST_COLUMNS), dtype=np.float64
    )
    signal_table = signal_table.join(cost_table, on="signal")
    # What never varies is worth nothing; of what no case has it is unknown.
    signal_table.loc[signal_table["note"] == ALWAYS_CONSTANT, list(WORTH_COLUMNS)] = 0.0
    class_counts = np.bincount(
        labelled_signals.cases.classes, minlength=len(OUTCOME_CLASSES)
    ).tolist()
    missing_names = ", ".join(
        signal_table.loc[signal_table["note"] == MISSING_EVERYWHERE, "signal"]
    )
    headline_notes = [note for note in [headline_note(tuning_trace)] if note]
    # It may be an error of the measurement, so it is named.
    headline_notes += [f"Nothing measured in any case: {missing_names}."] if missing_names else []
    return SignalAudit(
        table=_sorted_frame(signal_table),
        correlations=pd.DataFrame(
            correlations, index=list(signal_set.names), columns=list(signal_set.names)
        ),
        cost=mean_cost,
        cost_without_signals=cost_without_signals,
        split="tune" if all(case.split == "tune" for case in tuning_cases) else "all",
        cases=len(labelled_signals.can_answer),
        level=level,
        notes=(*direction_notes(labelled_signals.cases, level), *headline_notes),
        classes=dict(zip(OUTCOME_CLASSES, class_counts, strict=True)),
    )


def shard_signals(trace: TraceData, policy: Policy, arm: str | None) -> LabelledSignals:
    """What an audit reads of one trace in memory; pure, so that any worker may measure it."""
    evidence = measured_tables(trace, policy, arm).evidence
    cases = decision_cases(evidence)
    arm_index = trace.arm(arm or trace.arms[0])
    signal_ms = np.full(cases.signals.shape, np.nan)
    for signal_index, signal_name in enumerate(cases.known.names):
        needed_stages = NEEDS.get(signal_name, (f"{SIGNAL_STAGE}{signal_name}",))
        if trace.latency is not None and set(needed_stages) <= set(trace.latency.stages):
            stage_columns = [trace.latency.stages.index(stage) for stage in needed_stages]
            signal_ms[signal_index] = trace.latency.ms[:, arm_index, 0][:, stage_columns].sum(
                axis=1
            )
    measured_stages = None if trace.latency is None else trace.latency.stages
    return LabelledSignals(cases, evidence.n_hits[0] >= 1, signal_ms, measured_stages)


def _milliseconds(shards: Sequence[LabelledSignals]) -> FloatArray | float:
    """Median of each signal, [S]; NaN where a shard has no times, or of other stages."""
    import pandas as pd

    if shards[0].stages is None or len({shard.stages for shard in shards}) > 1:
        return np.nan
    return pd.DataFrame(np.concatenate([shard.ms.T for shard in shards])).median().to_numpy()


def rank_correlations(signals: FloatArray) -> FloatArray:
    """Spearman's rank correlation of any two rows over the columns that have both, [S, S].

    NaN where one is constant.

    Example:
      >>> rank_correlations(np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]])).round(
      ...     3
      ... ).tolist()
      [[1.0, 1.0, nan], [1.0, 1.0, nan], [nan, nan, nan]]
    """
    import pandas as pd

    correlations: FloatArray = pd.DataFrame(signals.T).corr("spearman").to_numpy()
    return correlations


class AuditFold(NamedTuple):
    """Cases to fit on and to judge, [Q] of positions, and the penalty chosen on the former.

    All signals chose the penalty.
    """

    fitted: IntArray
    judged: IntArray
    strength: float


def audit_folds(
    labelled_signals: LabelledSignals,
    signal_names: Sequence[str],
    folds: int,
    repeats: int,
    seed: int,
) -> list[AuditFold]:
    """Stratified folds, all repeats one after the other.

    The penalty is chosen once a fold, by the model of all.
    """
    all_folds = []
    for repeat in progress(range(repeats), "fold", "repeat"):
        fold_numbers = stratified_folds(
            labelled_signals.cases.classes, folds, np.random.default_rng([seed, repeat])
        )
        for fold in range(folds):
            fitted_rows = np.flatnonzero(fold_numbers != fold)
            judged_rows = np.flatnonzero(fold_numbers == fold)
            fitted_cases = labelled_signals.cases.rows(fitted_rows)
            varying_names = _varying(fitted_cases, signal_names)
            strength = (
                fit_model(fitted_cases, signal_names=varying_names, seed=seed).strength
                if varying_names
                else PENALTY_STRENGTHS[0]
            )
            all_folds.append(AuditFold(fitted_rows, judged_rows, strength))
    return all_folds


def crossed_costs(
    labelled_signals: LabelledSignals,
    signal_names: Sequence[str],
    outcome_costs: FloatArray,
    folds: Sequence[AuditFold],
    seed: int = 0,
) -> FloatArray:
    """Cost of each case under decisions by models that did not see it, mean over repeats, [Q].

    Without a signal that varies the decision is the better of always answering and always refusing.

    Args:
      signal_names: signals that the decision reads.
      outcome_costs: cost by label and outcome.

    Source: rule S2.17.
    """
    action_prices = action_costs(outcome_costs)
    total_costs = np.zeros(len(labelled_signals.can_answer))
    n_judged = np.zeros(len(labelled_signals.can_answer))
    for fold in folds:
        fitted_signals = labelled_signals.rows(fold.fitted)
        judged_signals = labelled_signals.rows(fold.judged)
        if varying_names := _varying(fitted_signals.cases, signal_names):
            model = fit_model(
                fitted_signals.cases,
                signal_names=varying_names,
                seed=seed,
                strengths=(fold.strength,),
            )
            class_chances = model.probabilities(judged_signals.cases.signals)
            action_cost = expected_costs(class_chances, model.asked_right, action_prices)
            decided_status: Any = least_cost(*action_cost, judged_signals.cases.can_ask)
        else:
            # ties to refuse
            fixed_statuses = (Status.refuse, Status.ok)
            decided_status = min(
                fixed_statuses,
                key=lambda status: float(fitted_signals.case_costs(status, outcome_costs).mean()),
            )
        total_costs[fold.judged] += judged_signals.case_costs(decided_status, outcome_costs)
        n_judged[fold.judged] += 1
    return total_costs / n_judged


def _varying(cases: DecisionCases, signal_names: Sequence[str]) -> list[str]:
    """Signals of those named that tell any two cases apart."""
    rows = (
        (signal_name, cases.signals[cases.known.place(signal_name)]) for signal_name in signal_names
    )
    return [signal_name for signal_name, values in rows if tells_apart(values)]


WORTH_COLUMNS = tuple(
    f"{name}{end}"
    for name in ("worth", "worth_doubles", "worth_alone")
    for end in ("", "_low", "_high")
)
COST_COLUMNS = ("cost", "cost_without", *WORTH_COLUMNS[:6], "cost_alone", *WORTH_COLUMNS[6:])


def _costed(
    labelled_signals: LabelledSignals,
    doubles: Mapping[str, frozenset[str]],
    outcome_costs: FloatArray,
    folds: Sequence[AuditFold],
    seed: int,
    level: float,
) -> tuple[float, float, dict[str, tuple[float, ...]]]:
    """Cross-validated costs of a case, with all signals and with none.

    And `COST_COLUMNS` of each signal.

    Args:
      doubles: signals to be read -> themselves and those that repeat them.
    """

    @cache
    def paid(signal_names: tuple[str, ...]) -> FloatArray:
        return crossed_costs(labelled_signals, signal_names, outcome_costs, folds, seed)

    def paid_without(left_out: frozenset[str]) -> FloatArray:
        return paid(tuple(signal_name for signal_name in doubles if signal_name not in left_out))

    all_costs = paid_without(frozenset())
    free_costs = paid(())
    mean_cost = float(all_costs.mean())
    cost_rows = dict[str, tuple[float, ...]]()
    for signal_name, repeated in progress(doubles.items(), "audit", "signal"):
        costs_without = paid_without(frozenset({signal_name}))
        costs_alone = paid((signal_name,))
        cost_differences = (
            costs_without - all_costs,
            paid_without(repeated) - all_costs,
            free_costs - costs_alone,
        )
        worth, doubles_worth, alone_worth = (
            _mean_difference(paired, level) for paired in cost_differences
        )
        leading_costs = (mean_cost, float(costs_without.mean()), *worth, *doubles_worth)
        cost_rows[signal_name] = (*leading_costs, float(costs_alone.mean()), *alone_worth)
    return mean_cost, float(free_costs.mean()), cost_rows


def _mean_difference(differences: FloatArray, level: float) -> tuple[float, float, float]:
    """Mean of paired differences with its t interval over cases.

    Without one where no case differs.
    """
    if not differences.any():  # that no decision changed does not show that none would
        return 0.0, np.nan, np.nan
    lower_bound, upper_bound = mean_interval(differences[:, None], level)
    return float(differences.mean()), float(lower_bound[0]), float(upper_bound[0])


def _signal_row(signal: Signal, labelled_signals: LabelledSignals, level: float) -> dict[str, Any]:
    """Columns of a signal that need no fit."""
    signal_values = labelled_signals.cases.signals[labelled_signals.cases.known.place(signal.name)]
    is_measured = ~np.isnan(signal_values)
    constant_note = "" if tells_apart(signal_values[is_measured]) else ALWAYS_CONSTANT
    signal_cells: dict[str, Any] = {
        "signal": signal.name,
        "unit": signal.unit.name,
        "direction": signal.direction,
        "stage": signal.stage,
        "n": int(is_measured.sum()),
        "missing": float((~is_measured).mean()),
        "note": constant_note if is_measured.any() else MISSING_EVERYWHERE,
    }
    for column, is_target, backward_direction, is_ranked in (
        ("auroc_right", labelled_signals.right, "ask", is_measured & labelled_signals.can_answer),
        ("auroc_ambiguous", labelled_signals.ambiguous, "surer", is_measured),
    ):
        # NaN where no case has it
        area, lower_bound, upper_bound = np.nan, np.nan, np.nan
        if is_ranked.any():
            ranked_values = (
                -signal_values if signal.direction == backward_direction else signal_values
            )[is_ranked]
            area = metrics.auroc(is_target[is_ranked], ranked_values)
            lower_bound, upper_bound = map(
                float, metrics.auroc_interval(is_target[is_ranked], ranked_values, level)
            )
        signal_cells |= {column: area, f"{column}_low": lower_bound, f"{column}_high": upper_bound}
    return signal_cells


def _doubles(
    signal_names: Sequence[str], correlations: FloatArray, signal_set: SignalSet
) -> dict[str, frozenset[str]]:
    """Each signal with those that repeat it."""
    correlation_rows = {
        signal_name: np.nan_to_num(np.abs(correlations[signal_set.place(signal_name)]))
        for signal_name in signal_names
    }
    return {
        signal_name: frozenset(
            {
                signal_name,
                *(
                    double
                    for double in signal_names
                    if correlation_row[signal_set.place(double)] >= DOUBLE
                ),
            }
        )
        for signal_name, correlation_row in correlation_rows.items()
    }


def _check_folds(labelled_signals: LabelledSignals, folds: int, repeats: int) -> None:
    """Stop where folds or repeats mean nothing, or a fold leaves too few cases for a fit.

    Told in the user's cases.
    """
    n_cases = len(labelled_signals.can_answer)
    if not n_cases:
        msg = "an audit must have at least one case, got none; check the split."
        raise ValueError(msg)
    if repeats < 0:
        msg = f"repeats must be at least 0, got {repeats}; 0 leaves the costs out."
        raise ValueError(msg)
    if not repeats:
        return
    class_sizes = (n_right := int(labelled_signals.right.sum()), n_cases - n_right)
    has_varying = folds >= 2 and _varying(
        labelled_signals.cases, labelled_signals.cases.known.names
    )
    # A fold holds at most so many of a kind; what it leaves is fitted on, where a signal differs at
    # all.
    case_counts = range(MIN_KIND_CASES, 3 * MIN_KIND_CASES)
    n_needed = (
        next(n_kind for n_kind in case_counts if n_kind - ceil(n_kind / folds) >= MIN_KIND_CASES)
        if has_varying
        else 0
    )
    if min(class_sizes) < n_needed:
        msg = (
            f"costs must be fitted without each of {folds} folds, so on at least {n_needed} "
            "cases that "
            f"would be answered right and {n_needed} others, got {class_sizes[0]} and "
            f"{class_sizes[1]}; label "
            "more, or set repeats=0, which leaves the costs out."
        )
        raise ValueError(msg)
    if not 2 <= folds <= n_cases // 2:
        msg = f"folds must be from 2 to half the {n_cases} cases, got {folds}; or set repeats=0."
        raise ValueError(msg)


def _sorted_frame(signal_table: pd.DataFrame) -> pd.DataFrame:
    """Rows by worth with the doubles, then by worth, then by AUROC.

    Then constant signals, then those of no case.
    """
    auroc_gains = (
        (signal_table[["auroc_right", "auroc_ambiguous"]] - 0.5).abs().max(axis=1).fillna(-1.0)
    )
    worth, doubles_worth = (
        signal_table[column].fillna(-np.inf).round(12) for column in ("worth", "worth_doubles")
    )
    # A worth of 0 is above that of a signal that costs, and of all where none is measured: no rank
    # for a constant.
    note_ranks = signal_table["note"].map({"": 0, ALWAYS_CONSTANT: 1, MISSING_EVERYWHERE: 2})
    row_order = np.lexsort((-auroc_gains, -worth, -doubles_worth, note_ranks))
    first_columns = ["signal", "worth", "worth_low", "worth_high"]
    return signal_table.iloc[row_order].reset_index(drop=True)[
        [*dict.fromkeys((*first_columns, *signal_table))]
    ]
