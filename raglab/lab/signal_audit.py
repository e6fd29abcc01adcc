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
from numpy.typing import NDArray
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
from raglab.values import Status, TraceData
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
FOLDS, REPEATS = 10, 2  # of the cross-validation
EVERYWHERE, CONSTANT = "missing everywhere", "the same in every case"
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
LABELS = np.array([Status.ok, Status.ok, Status.refuse, Status.ambiguous])


class LabelledSignals(NamedTuple):
    """What every case measures, and what each action would earn it.

    cases: as a fit reads them. can_answer: whether there are hits, [Q]. ms: that each signal took,
    [S, Q], NaN where nobody measured it. stages: of the times of one shard, None without any.
    """

    cases: DecisionCases
    can_answer: NDArray[np.bool_]
    ms: Array
    stages: tuple[str, ...] | None = None

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether answering without any gate would be right, [Q]."""
        is_right: NDArray[np.bool_] = self.cases.classes == OUTCOME_CLASSES.index("right")
        return is_right

    @property
    def ambiguous(self) -> NDArray[np.bool_]:
        """Whether a case should be asked back, [Q]."""
        is_ambiguous: NDArray[np.bool_] = self.cases.classes == OUTCOME_CLASSES.index("ambiguous")
        return is_ambiguous

    def rows(self, keep: NDArray[Any]) -> LabelledSignals:
        """The same of some cases."""
        return LabelledSignals(self.cases.rows(keep), self.can_answer[keep], self.ms[:, keep])

    def case_costs(self, decided: NDArray[np.integer[Any]] | int, matrix: Array) -> Array:
        """What each case costs under a decision, [Q].

        Nothing retrieved is refused before, as by a hard gate.

        Args:
          decided: status, [Q] or one for all.
          matrix: of `metrics.cost_matrix`.
        """
        status = np.where(self.can_answer, decided, Status.refuse)
        label = LABELS[self.cases.classes]
        is_right = np.where(status == Status.ok, self.right, self.cases.options_right)
        cell = (status.astype(np.int64) * len(Status) + label) * 2 + is_right
        costs: Array = matrix[label, OUTCOME_OF_CELL[cell]]
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
        missed = self.table.loc[self.table["worth_low"] > 0.0, "signal"]
        measured = int((self.table["n"] > 0).sum())
        facts = [("split", self.split), ("cases", f"{self.cases:,}")]
        facts += [(name, f"{n:,}") for name, n in self.classes.items()]
        facts.append(("signals measured", f"{measured} of {len(self.table)}"))
        if not np.isnan(self.cost):
            facts.append(("cost with all signals", f"{self.cost:.3f}"))
            facts.append(("with none", f"{self.cost_without_signals:.3f}"))
            facts.append(("missed beside all others", ", ".join(missed) or "none"))
        return Summary(facts, {"signals": self.table}, self.notes)


@answered_traces("trace")
def audit_signals(
    trace: TraceView,
    policy: Policy | None = None,
    *,
    arm: str | None = None,
    costs: Costs | None = None,
    folds: int = FOLDS,
    repeats: int = REPEATS,
    level: float = 0.95,
    seed: int = 0,
) -> SignalAudit:
    """Worth of every signal, built-in or of the trace, on labelled cases.

    The cases are those of split `tune` where there is one, else all.

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
    start = policy if policy is not None else Policy.load()
    here = tune_cases(trace)
    check_recorded(here, start, arm, "an audit")
    # Of each shard only its signals are kept, so that hits of a large trace never have to fit in
    # memory. Cases go by their ids: folds must not depend on the order of the rows.
    parts = list(each_shard(shard_signals, here, start, arm, what="measure"))
    of_cases = [case for cases in cases_by_shard(here) for case in cases]
    labelled = LabelledSignals(
        join_decision_cases([part.cases for part in parts]),
        np.concatenate([part.can_answer for part in parts]),
        np.concatenate([part.ms for part in parts], axis=1),
    ).rows(np.argsort([case.id for case in of_cases], kind="stable"))
    _check_folds(labelled, folds, repeats)
    matrix = start.decision.costs.matrix if costs is None else cost_matrix(costs)
    known, signals = labelled.cases.known, labelled.cases.signals
    correlations = rank_correlations(signals)
    table = pd.DataFrame([_signal_row(signal, labelled, level) for signal in known.rows])
    off_diagonal = np.where(np.eye(len(signals), dtype=bool), np.nan, correlations)
    nearest = np.nan_to_num(np.abs(off_diagonal), nan=-1.0).argmax(axis=1)
    table["nearest"] = np.array(known.names, dtype=object)[nearest]
    table["rank_correlation"] = off_diagonal[np.arange(len(signals)), nearest]
    table.loc[table["rank_correlation"].isna(), "nearest"] = ""
    table["ms"] = _milliseconds(parts)
    # Costs take hundreds of fits; without repeats the audit is the rest, at once.
    cost, free, rows = np.nan, np.nan, dict[str, tuple[float, ...]]()
    if repeats:
        names = _varying(labelled.cases, known.names)
        drawn = audit_folds(labelled, names, folds, repeats, seed)
        same = _doubles(names, correlations, known)
        # hundreds of small fits, over which threads would only wait for each other
        with threadpool_limits(1):
            cost, free, rows = _costed(labelled, same, matrix, drawn, seed, level)
    costed = pd.DataFrame.from_dict(rows, orient="index", columns=list(COSTS), dtype=np.float64)
    table = table.join(costed, on="signal")
    # What never varies is worth nothing; of what no case has it is unknown.
    table.loc[table["note"] == CONSTANT, list(WORTHS)] = 0.0
    counts = np.bincount(labelled.cases.classes, minlength=len(OUTCOME_CLASSES)).tolist()
    gone = ", ".join(table.loc[table["note"] == EVERYWHERE, "signal"])
    headline = [note for note in [headline_note(here)] if note]
    # It may be an error of the measurement, so it is named.
    headline += [f"Nothing measured in any case: {gone}."] if gone else []
    return SignalAudit(
        table=_sorted_frame(table),
        correlations=pd.DataFrame(correlations, index=list(known.names), columns=list(known.names)),
        cost=cost,
        cost_without_signals=free,
        split="tune" if all(case.split == "tune" for case in of_cases) else "all",
        cases=len(labelled.can_answer),
        level=level,
        notes=(*direction_notes(labelled.cases, level), *headline),
        classes=dict(zip(OUTCOME_CLASSES, counts, strict=True)),
    )


def shard_signals(trace: TraceData, policy: Policy, arm: str | None) -> LabelledSignals:
    """What an audit reads of one trace in memory; pure, so that any worker may measure it."""
    evidence = measured_tables(trace, policy, arm).evidence
    cases, at = decision_cases(evidence), trace.arm(arm or trace.arms[0])
    ms = np.full(cases.signals.shape, np.nan)
    for row, name in enumerate(cases.known.names):
        stages = NEEDS.get(name, (f"{SIGNAL_STAGE}{name}",))
        if trace.latency is not None and set(stages) <= set(trace.latency.stages):
            places = [trace.latency.stages.index(stage) for stage in stages]
            ms[row] = trace.latency.ms[:, at, 0][:, places].sum(axis=1)
    measured = None if trace.latency is None else trace.latency.stages
    return LabelledSignals(cases, evidence.n_hits[0] >= 1, ms, measured)


def _milliseconds(parts: Sequence[LabelledSignals]) -> Array | float:
    """Median of each signal, [S]; NaN where a shard has no times, or of other stages."""
    import pandas as pd

    if parts[0].stages is None or len({part.stages for part in parts}) > 1:
        return np.nan
    return pd.DataFrame(np.concatenate([part.ms.T for part in parts])).median().to_numpy()


def rank_correlations(signals: Array) -> Array:
    """Spearman's rank correlation of any two rows over the columns that have both, [S, S].

    NaN where one is constant.

    Example:
      >>> rank_correlations(np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]])).round(
      ...     3
      ... ).tolist()
      [[1.0, 1.0, nan], [1.0, 1.0, nan], [nan, nan, nan]]
    """
    import pandas as pd

    correlations: Array = pd.DataFrame(signals.T).corr("spearman").to_numpy()
    return correlations


class AuditFold(NamedTuple):
    """Cases to fit on and to judge, [Q] of positions, and the penalty chosen on the former.

    All signals chose the penalty.
    """

    fitted: NDArray[np.int64]
    judged: NDArray[np.int64]
    strength: float


def audit_folds(
    labelled: LabelledSignals, names: Sequence[str], folds: int, repeats: int, seed: int
) -> list[AuditFold]:
    """Stratified folds, all repeats one after the other.

    The penalty is chosen once a fold, by the model of all.
    """
    all_folds = []
    for repeat in progress(range(repeats), "fold", "repeat"):
        number = stratified_folds(
            labelled.cases.classes, folds, np.random.default_rng([seed, repeat])
        )
        for fold in range(folds):
            rest, held = np.flatnonzero(number != fold), np.flatnonzero(number == fold)
            cases = labelled.cases.rows(rest)
            varying = _varying(cases, names)
            strength = (
                fit_model(cases, signal_names=varying, seed=seed).strength
                if varying
                else PENALTY_STRENGTHS[0]
            )
            all_folds.append(AuditFold(rest, held, strength))
    return all_folds


def crossed_costs(
    labelled: LabelledSignals,
    names: Sequence[str],
    matrix: Array,
    folds: Sequence[AuditFold],
    seed: int = 0,
) -> Array:
    """Cost of each case under decisions by models that did not see it, mean over repeats, [Q].

    Without a signal that varies the decision is the better of always answering and always refusing.

    Args:
      names: signals that the decision reads.
      matrix: cost by label and outcome.

    Source: rule S2.17.
    """
    prices = action_costs(matrix)
    paid, times = np.zeros(len(labelled.can_answer)), np.zeros(len(labelled.can_answer))
    for fold in folds:
        rest, held = labelled.rows(fold.fitted), labelled.rows(fold.judged)
        if varying := _varying(rest.cases, names):
            model = fit_model(
                rest.cases, signal_names=varying, seed=seed, strengths=(fold.strength,)
            )
            chances = model.probabilities(held.cases.signals)
            actions = expected_costs(chances, model.asked_right, prices)
            decided: Any = least_cost(*actions, held.cases.can_ask)
        else:
            # ties to refuse
            fixed = (Status.refuse, Status.ok)
            decided = min(fixed, key=lambda status: float(rest.case_costs(status, matrix).mean()))
        paid[fold.judged] += held.case_costs(decided, matrix)
        times[fold.judged] += 1
    return paid / times


def _varying(cases: DecisionCases, names: Sequence[str]) -> list[str]:
    """Signals of those named that tell any two cases apart."""
    rows = ((name, cases.signals[cases.known.place(name)]) for name in names)
    return [name for name, row in rows if tells_apart(row)]


WORTHS = tuple(
    f"{name}{end}"
    for name in ("worth", "worth_doubles", "worth_alone")
    for end in ("", "_low", "_high")
)
COSTS = ("cost", "cost_without", *WORTHS[:6], "cost_alone", *WORTHS[6:])


def _costed(
    labelled: LabelledSignals,
    doubles: Mapping[str, frozenset[str]],
    matrix: Array,
    folds: Sequence[AuditFold],
    seed: int,
    level: float,
) -> tuple[float, float, dict[str, tuple[float, ...]]]:
    """Cross-validated costs of a case with all signals and with none, and `COSTS` of each signal.

    Args:
      doubles: signals to be read -> themselves and those that repeat them.
    """

    @cache
    def paid(names: tuple[str, ...]) -> Array:
        return crossed_costs(labelled, names, matrix, folds, seed)

    def paid_without(left_out: frozenset[str]) -> Array:
        return paid(tuple(name for name in doubles if name not in left_out))

    every, none = paid_without(frozenset()), paid(())
    cost, rows = float(every.mean()), dict[str, tuple[float, ...]]()
    for name, same in progress(doubles.items(), "audit", "signal"):
        without, alone = paid_without(frozenset({name})), paid((name,))
        differences = (without - every, paid_without(same) - every, none - alone)
        worth, of_doubles, of_alone = (_mean_difference(paired, level) for paired in differences)
        costs = (cost, float(without.mean()), *worth, *of_doubles)
        rows[name] = (*costs, float(alone.mean()), *of_alone)
    return cost, float(none.mean()), rows


def _mean_difference(paired: Array, level: float) -> tuple[float, float, float]:
    """Mean of paired differences with its t interval over cases.

    Without one where no case differs.
    """
    if not paired.any():  # that no decision changed does not show that none would
        return 0.0, np.nan, np.nan
    low, high = mean_interval(paired[:, None], level)
    return float(paired.mean()), float(low[0]), float(high[0])


def _signal_row(signal: Signal, labelled: LabelledSignals, level: float) -> dict[str, Any]:
    """Columns of a signal that need no fit."""
    values = labelled.cases.signals[labelled.cases.known.place(signal.name)]
    known = ~np.isnan(values)
    varies = "" if tells_apart(values[known]) else CONSTANT
    row: dict[str, Any] = {
        "signal": signal.name,
        "unit": signal.unit.name,
        "direction": signal.direction,
        "stage": signal.stage,
        "n": int(known.sum()),
        "missing": float((~known).mean()),
        "note": varies if known.any() else EVERYWHERE,
    }
    for name, truth, backwards, of in (
        ("auroc_right", labelled.right, "ask", known & labelled.can_answer),
        ("auroc_ambiguous", labelled.ambiguous, "surer", known),
    ):
        # NaN where no case has it
        area, low, high = np.nan, np.nan, np.nan
        if of.any():
            score = (-values if signal.direction == backwards else values)[of]
            area = metrics.auroc(truth[of], score)
            low, high = map(float, metrics.auroc_interval(truth[of], score, level))
        row |= {name: area, f"{name}_low": low, f"{name}_high": high}
    return row


def _doubles(
    names: Sequence[str], correlations: Array, known: SignalSet
) -> dict[str, frozenset[str]]:
    """Each signal with those that repeat it."""
    rows = {name: np.nan_to_num(np.abs(correlations[known.place(name)])) for name in names}
    return {
        name: frozenset({name, *(double for double in names if row[known.place(double)] >= DOUBLE)})
        for name, row in rows.items()
    }


def _check_folds(signals: LabelledSignals, folds: int, repeats: int) -> None:
    """Stop where folds or repeats mean nothing, or a fold leaves too few cases for a fit.

    Told in the user's cases.
    """
    cases = len(signals.can_answer)
    if not cases:
        msg = "an audit must have at least one case, got none; check the split."
        raise ValueError(msg)
    if repeats < 0:
        msg = f"repeats must be at least 0, got {repeats}; 0 leaves the costs out."
        raise ValueError(msg)
    if not repeats:
        return
    kinds = (n_right := int(signals.right.sum()), cases - n_right)
    varies = folds >= 2 and _varying(signals.cases, signals.cases.known.names)
    # A fold holds at most so many of a kind; what it leaves is fitted on, where a signal differs at
    # all.
    counts = range(MIN_KIND_CASES, 3 * MIN_KIND_CASES)
    need = next(n for n in counts if n - ceil(n / folds) >= MIN_KIND_CASES) if varies else 0
    if min(kinds) < need:
        msg = (
            f"costs must be fitted without each of {folds} folds, so on at least {need} cases that "
            f"would be answered right and {need} others, got {kinds[0]} and {kinds[1]}; label "
            "more, or set repeats=0, which leaves the costs out."
        )
        raise ValueError(msg)
    if not 2 <= folds <= cases // 2:
        msg = f"folds must be from 2 to half the {cases} cases, got {folds}; or set repeats=0."
        raise ValueError(msg)


def _sorted_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows by worth with the doubles, then by worth, then by AUROC.

    Then constant signals, then those of no case.
    """
    areas = (frame[["auroc_right", "auroc_ambiguous"]] - 0.5).abs().max(axis=1).fillna(-1.0)
    worth, of_doubles = (
        frame[name].fillna(-np.inf).round(12) for name in ("worth", "worth_doubles")
    )
    # A worth of 0 is above that of a signal that costs, and of all where none is measured: no rank
    # for a constant.
    last = frame["note"].map({"": 0, CONSTANT: 1, EVERYWHERE: 2})
    order = np.lexsort((-areas, -worth, -of_doubles, last))
    first = ["signal", "worth", "worth_low", "worth_high"]
    return frame.iloc[order].reset_index(drop=True)[[*dict.fromkeys((*first, *frame))]]
