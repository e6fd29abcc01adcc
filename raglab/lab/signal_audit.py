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
    CLASSES,
    ActionCosts,
    action_costs,
    expected_costs,
    least_cost,
)
from raglab.lab.answer_basis import check_recorded
from raglab.lab.decision_fitting import (
    LEAST,
    STRENGTHS,
    DecisionCases,
    FittedModel,
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
from raglab.replay import each_shard
from raglab.signals import DOUBLE, Signal, SignalSet
from raglab.store.policies import Policy
from raglab.values import Latency, Status, TraceData
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

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


# of the classes, by `expected_cost.CLASSES`
LABELS = np.array([Status.ok, Status.ok, Status.refuse, Status.ambiguous])


class LabelledSignals(NamedTuple):
    """What every case measures, and what each action would earn it.

    cases: as a fit reads them. can_answer: whether there are hits, [Q].
    """

    cases: DecisionCases
    can_answer: NDArray[np.bool_]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether answering without any gate would be right, [Q]."""
        is_right: NDArray[np.bool_] = self.cases.classes == CLASSES.index("right")
        return is_right

    @property
    def ambiguous(self) -> NDArray[np.bool_]:
        """Whether a case should be asked back, [Q]."""
        is_ambiguous: NDArray[np.bool_] = self.cases.classes == CLASSES.index("ambiguous")
        return is_ambiguous

    def rows(self, keep: NDArray[Any]) -> LabelledSignals:
        """The same of some cases."""
        return LabelledSignals(self.cases.rows(keep), self.can_answer[keep])

    def case_costs(
        self, decided: NDArray[np.integer[Any]] | int, matrix: NDArray[np.float64]
    ) -> NDArray[np.float64]:
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
        costs: NDArray[np.float64] = matrix[label, OUTCOME_OF_CELL[cell]]
        return costs


@dataclass(frozen=True, eq=False, repr=False)
class SignalAudit:
    """Worth of each signal.

    Attributes:
      table: a row a signal, the most worth first, constant ones last; see `audit_signals`.
      correlations: rank correlation of any two, [S, S], NaN where one is constant.
      cost: cross-validated cost of a case with all signals.
      cost_without_signals: of the better of always answering and always refusing; NaN without
        cross-validation.
      split: split of the cases.
      cases: number of cases.
      level: of the intervals.
      notes: for the reader, in sentences.
    """

    table: pd.DataFrame
    correlations: pd.DataFrame
    cost: float
    cost_without_signals: float
    split: str
    cases: int
    level: float
    notes: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """What each signal is worth, a row a signal."""
        return self.table.copy()

    def __repr__(self) -> str:
        notes = [visible(note, lines=True) for note in self.notes]
        sizes = f"{len(self.table)} signals on {self.cases:,} cases"
        return "\n".join([f"{type(self).__name__} of {sizes}; see .frame()", *notes])


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
    check_level(level)
    start = policy if policy is not None else Policy.load()
    here = tune_cases(trace)
    check_recorded(here, start, arm, "an audit")
    # Of each shard only its signals are kept, so that hits of a large trace never have to fit in
    # memory.
    joined = _join_shards(list(each_shard(shard_signals, here, start, arm, what="measure")))
    # In the order of the ids: folds must not depend on the order of the rows.
    labelled = joined.sorted_cases()
    _check_folds(labelled, folds, repeats)
    matrix = start.decision.costs.matrix if costs is None else cost_matrix(costs)
    correlations = rank_correlations(labelled.cases.signals)
    known = labelled.cases.known
    nearest = _nearest(correlations, known.names)
    rows = [
        _signal_row(signal, labelled, level)
        | nearest[signal.name]
        | {"ms": _milliseconds(joined.latency, signal.name)}
        for signal in known.rows
    ]
    # Costs take hundreds of fits; without repeats the audit is the rest, at once.
    signal_costs = _Costed(float("nan"), float("nan"), {})
    if repeats:
        names = _varying(labelled.cases, known.names)
        parts = audit_folds(labelled, names, folds, repeats, seed)
        # hundreds of small fits, over which threads would only wait for each other
        with threadpool_limits(1):
            signal_costs = _costed(
                labelled, _doubles(names, correlations, known), matrix, parts, seed, level
            )
    frame = _sorted_frame(
        [row | signal_costs.rows.get(row["signal"], _uncosted(row)) for row in rows]
    )
    split = "tune" if joined.tune else "all"
    return SignalAudit(
        table=frame,
        correlations=_named(correlations, known.names),
        cost=signal_costs.cost,
        cost_without_signals=signal_costs.without_signals,
        split=split,
        cases=len(labelled.can_answer),
        level=level,
        notes=(
            *_audit_notes(split, labelled, signal_costs, frame, folds * bool(repeats), repeats),
            *direction_notes(labelled.cases, level),
            *filter(None, [headline_note(here)]),
        ),
    )


class ShardSignals(NamedTuple):
    """Signals, labels, ids [Q], retrieval times of a shard's cases, and if all are for tuning.

    latency: of the arm at depth 0, [Q, 1, 1, stages]; None where nobody measured it.
    """

    labelled: LabelledSignals
    ids: NDArray[np.object_]
    tune: bool
    latency: Latency | None

    def sorted_cases(self) -> LabelledSignals:
        """Signals and labels in the order of the ids, whatever the order of the rows."""
        return self.labelled.rows(np.argsort(self.ids.tolist(), kind="stable"))


def shard_signals(trace: TraceData, policy: Policy, arm: str | None) -> ShardSignals:
    """What an audit reads of one trace in memory; pure, so that any worker may measure it."""
    evidence = measured_tables(trace, policy, arm).evidence
    at, spent = trace.arm(arm or trace.arms[0]), trace.latency
    return ShardSignals(
        labelled=LabelledSignals(decision_cases(evidence), evidence.n_hits[0] >= 1),
        ids=np.array([case.id for case in trace.cases], dtype=object),
        tune=all(case.split == "tune" for case in trace.cases),
        latency=None if spent is None else spent._replace(ms=spent.ms[:, [at], :1]),
    )


def _join_shards(parts: Sequence[ShardSignals]) -> ShardSignals:
    """Cases of all shards, in order; without times where a shard has none, or of other stages."""
    joined = join_decision_cases([part.labelled.cases for part in parts])
    timed = [part.latency for part in parts if part.latency is not None]
    alike = len(timed) == len(parts) and all(latency.stages == timed[0].stages for latency in timed)
    return ShardSignals(
        labelled=LabelledSignals(
            joined, np.concatenate([part.labelled.can_answer for part in parts])
        ),
        ids=np.concatenate([part.ids for part in parts]),
        tune=all(part.tune for part in parts),
        latency=timed[0]._replace(ms=np.concatenate([latency.ms for latency in timed]))
        if alike
        else None,
    )


def rank_correlations(signals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's rank correlation of any two rows over the columns that have both, [S, S].

    NaN where one is constant.

    Example:
      >>> rank_correlations(np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]])).round(
      ...     3
      ... ).tolist()
      [[1.0, 1.0, nan], [1.0, 1.0, nan], [nan, nan, nan]]
    """
    size = len(signals)
    table = np.full((size, size), np.nan)
    known = ~np.isnan(signals)
    for first in range(size):
        for second in range(first, size):
            both = known[first] & known[second]
            a, b = (_ranks(signals[row, both]) for row in (first, second))
            spread = float(np.sqrt((a * a).sum() * (b * b).sum()))
            if spread > 0.0:
                table[first, second] = table[second, first] = float(
                    np.clip((a * b).sum() / spread, -1.0, 1.0)
                )
    return table


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks less their mean, ties at the mean of theirs, [Q]."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (count.cumsum() - (count + 1) / 2.0)[place]
    return ranks - ranks.mean() if len(ranks) else ranks


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
                fit_model(cases, names=varying, seed=seed).strength if varying else STRENGTHS[0]
            )
            all_folds.append(AuditFold(rest, held, strength))
    return all_folds


def crossed_costs(
    labelled: LabelledSignals,
    names: Sequence[str],
    matrix: NDArray[np.float64],
    folds: Sequence[AuditFold],
    seed: int = 0,
) -> NDArray[np.float64]:
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
        varying = _varying(rest.cases, names)
        if varying:
            model = fit_model(rest.cases, names=varying, seed=seed, strengths=(fold.strength,))
            paid[fold.judged] += held.case_costs(_decided(held, model, prices), matrix)
        else:
            paid[fold.judged] += held.case_costs(_best_fixed_status(rest, matrix), matrix)
        times[fold.judged] += 1
    return paid / times


def _decided(
    labelled: LabelledSignals, model: FittedModel, prices: ActionCosts
) -> NDArray[np.integer[Any]]:
    """Cheapest action of each case."""
    answer, refuse, ask = expected_costs(
        model.probabilities(labelled.cases.signals), model.asked_right, prices
    )
    return least_cost(answer, refuse, ask, labelled.cases.can_ask)


def _best_fixed_status(labelled: LabelledSignals, matrix: NDArray[np.float64]) -> int:
    """Better of always refusing and always answering; ties to refuse."""
    return min(
        (Status.refuse, Status.ok),
        key=lambda status: float(labelled.case_costs(status, matrix).mean()),
    )


def _varying(cases: DecisionCases, names: Sequence[str]) -> list[str]:
    """Signals of those named that tell any two cases apart."""
    rows = ((name, cases.signals[cases.known.place(name)]) for name in names)
    return [name for name, row in rows if tells_apart(row)]


class _Costed(NamedTuple):
    """Cross-validated costs of a case.

    With all signals, with none, and the columns of each signal.
    """

    cost: float
    without_signals: float
    rows: Mapping[str, dict[str, float]]


def _costed(
    labelled: LabelledSignals,
    doubles: Mapping[str, frozenset[str]],
    matrix: NDArray[np.float64],
    folds: Sequence[AuditFold],
    seed: int,
    level: float,
) -> _Costed:
    """Costs of every signal.

    Args:
      doubles: signals to be read -> themselves and those that repeat them.
    """

    @cache
    def paid(left_out: frozenset[str]) -> NDArray[np.float64]:
        return crossed_costs(
            labelled,
            [signal_name for signal_name in doubles if signal_name not in left_out],
            matrix,
            folds,
            seed,
        )

    every, none = paid(frozenset()), crossed_costs(labelled, (), matrix, folds, seed)
    rows = {}
    for name, same in progress(doubles.items(), "audit", "signal"):
        without, alone = (
            paid(frozenset({name})),
            crossed_costs(labelled, [name], matrix, folds, seed),
        )
        row = {"cost": float(every.mean()), "cost_without": float(without.mean())}
        row |= _difference("worth", without - every, level)
        row |= _difference("worth_doubles", paid(same) - every, level)
        row |= {"cost_alone": float(alone.mean())} | _difference("worth_alone", none - alone, level)
        rows[name] = row
    return _Costed(float(every.mean()), float(none.mean()), rows)


def _difference(name: str, paired: NDArray[np.float64], level: float) -> dict[str, float]:
    """Mean of paired differences with its t interval over cases.

    Without one where no case differs.
    """
    if not paired.any():  # that no decision changed does not show that none would
        return {name: 0.0, f"{name}_low": float("nan"), f"{name}_high": float("nan")}
    low, high = mean_interval(paired[:, None], level)
    return {
        name: float(paired.mean()),
        f"{name}_low": float(low[0]),
        f"{name}_high": float(high[0]),
    }


COSTS = (
    "cost",
    "cost_without",
    "worth",
    "worth_low",
    "worth_high",
    "worth_doubles",
    "worth_doubles_low",
    "worth_doubles_high",
    "cost_alone",
    "worth_alone",
    "worth_alone_low",
    "worth_alone_high",
)


def _uncosted(row: Mapping[str, Any]) -> dict[str, float]:
    """Columns of costs of a signal that no model reads.

    What never varies is worth nothing, the rest is unknown.
    """
    worthless = row["note"] == CONSTANT
    return {name: 0.0 if worthless and name.startswith("worth") else float("nan") for name in COSTS}


def _note(values: NDArray[np.float64]) -> str:
    known = values[~np.isnan(values)]
    if not len(known):
        return EVERYWHERE
    return "" if tells_apart(known) else CONSTANT


def _signal_row(signal: Signal, labelled: LabelledSignals, level: float) -> dict[str, Any]:
    """Columns of a signal that need no fit."""
    values = labelled.cases.signals[labelled.cases.known.place(signal.name)]
    known = ~np.isnan(values)
    row: dict[str, Any] = {
        "signal": signal.name,
        "unit": signal.unit.name,
        "direction": signal.direction,
        "stage": signal.stage,
    }
    row |= {"n": int(known.sum()), "missing": float((~known).mean()), "note": _note(values)}
    answered = known & labelled.can_answer
    surer = -values if signal.direction == "ask" else values
    asks = -values if signal.direction == "surer" else values
    row |= _area("auroc_right", labelled.right[answered], surer[answered], level)
    return row | _area("auroc_ambiguous", labelled.ambiguous[known], asks[known], level)


def _area(
    name: str, truth: NDArray[np.bool_], values: NDArray[np.float64], level: float
) -> dict[str, float]:
    """AUROC of a signal with its interval; NaN where no case has it or all are of one kind."""
    if not len(truth):
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), float("nan"))
    low, high = metrics.auroc_interval(truth, values, level)
    return {
        name: metrics.auroc(truth, values),
        f"{name}_low": float(low),
        f"{name}_high": float(high),
    }


def _nearest(correlations: NDArray[np.float64], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Signal that each goes with most, and its correlation; '' and NaN where none is known."""
    nearest = {}
    off_diagonal = np.where(np.eye(len(correlations), dtype=bool), np.nan, correlations)
    for name, row in zip(names, off_diagonal, strict=True):
        known = ~np.isnan(row)
        best = int(np.argmax(np.where(known, np.abs(row), -1.0)))
        nearest[name] = {
            "nearest": names[best] if known.any() else "",
            "rank_correlation": float(row[best]) if known.any() else float("nan"),
        }
    return nearest


def _doubles(
    names: Sequence[str], correlations: NDArray[np.float64], known: SignalSet
) -> dict[str, frozenset[str]]:
    """Each signal with those that repeat it."""
    rows = {name: np.nan_to_num(np.abs(correlations[known.place(name)])) for name in names}
    return {
        name: frozenset({name, *(double for double in names if row[known.place(double)] >= DOUBLE)})
        for name, row in rows.items()
    }


def _milliseconds(latency: Latency | None, name: str) -> float:
    """Milliseconds a case of the stages that a signal needs, median over cases at depth 0.

    NaN where unknown.
    """
    stages = NEEDS.get(name, (f"{SIGNAL_STAGE}{name}",))
    if latency is None or not set(stages) <= set(latency.stages):
        return float("nan")
    spent = latency.ms[:, 0, 0][:, [latency.stages.index(stage) for stage in stages]].sum(axis=1)
    return float(np.median(spent[~np.isnan(spent)])) if (~np.isnan(spent)).any() else float("nan")


def _check_folds(signals: LabelledSignals, folds: int, repeats: int) -> None:
    """Stop where folds or repeats mean nothing, or a fold leaves too few cases for a fit.

    Told in the user's cases.
    """
    cases = len(signals.can_answer)
    if not cases:
        msg = "an audit of signals needs at least one case, got none; check the split."
        raise ValueError(msg)
    if repeats < 0:
        msg = f"repeats must be at least 0, got {repeats}; 0 leaves the costs out."
        raise ValueError(msg)
    if not repeats:
        return
    right = int(signals.right.sum())
    # A fold holds at most so many of a kind; what it leaves is fitted on, where a signal differs at
    # all.
    kinds = (right, cases - right)
    left = [count - ceil(count / folds) for count in kinds] if folds >= 2 else kinds
    if min(left) < LEAST and folds >= 2 and _varying(signals.cases, signals.cases.known.names):
        need = next(
            count for count in range(LEAST, 3 * LEAST) if count - ceil(count / folds) >= LEAST
        )
        msg = (
            f"costs of an audit must be fitted without each of {folds} folds, so on at least "
            f"{need} cases that would "
            f"be answered right and {need} others, got {kinds[0]} and {kinds[1]}; label more, or "
            "set repeats=0, which "
            "leaves the costs out."
        )
        raise ValueError(msg)
    if not 2 <= folds <= cases // 2:
        remedy = f"lower folds to {cases // 2} or less" if cases >= 4 else "label more"
        msg = (
            f"folds must be from 2 to half the {cases} cases, got {folds}; {remedy}, or set "
            "repeats=0."
        )
        raise ValueError(msg)


def _sorted_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows by worth with the doubles, then by worth, then by AUROC.

    Then constant signals, then those of no case.
    """
    import pandas as pd

    frame = pd.DataFrame(rows)
    tells = (
        (frame[["auroc_right", "auroc_ambiguous"]] - 0.5).abs().max(axis=1).fillna(-1.0).to_numpy()
    )
    worth, of_doubles = (
        frame[name].fillna(-np.inf).round(12).to_numpy() for name in ("worth", "worth_doubles")
    )
    # A worth of 0 is above that of a signal that costs, and of all where none is measured: no rank
    # for a constant.
    last = frame["note"].map({"": 0, CONSTANT: 1, EVERYWHERE: 2}).to_numpy()
    order = np.lexsort((np.arange(len(frame)), -tells, -worth, -of_doubles, last))
    first = ["signal", "worth", "worth_low", "worth_high"]
    ordered = frame.iloc[order].reset_index(drop=True)
    return ordered[[*first, *(name for name in ordered.columns if name not in first)]]


def _named(correlations: NDArray[np.float64], names: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(correlations, index=list(names), columns=list(names))


def _audit_notes(
    split: str,
    labelled: LabelledSignals,
    signal_costs: _Costed,
    frame: pd.DataFrame,
    folds: int,
    repeats: int,
) -> tuple[str, ...]:
    counts = np.bincount(labelled.cases.classes, minlength=len(CLASSES))
    text = ", ".join(f"{n} {name}" for n, name in zip(counts, CLASSES, strict=True))
    where = "split tune" if split == "tune" else "all cases, since no split is named tune"
    lines = [f"Judged on {where}: {len(labelled.can_answer)} cases ({text})."]
    # Costs come first, for they are what a signal is worth; without folds none was measured.
    if folds:
        often = "once" if repeats == 1 else f"{repeats} times"
        lines.append(
            f"With all signals a case costs {signal_costs.cost:.3f}, with none "
            f"{signal_costs.without_signals:.3f}; "
            f"cross-validated in {folds} folds, {often}. Worth: what a case costs more without "
            "the signal, with no "
            "interval where no decision changed."
        )
        missed = frame.loc[frame["worth_low"] > 0.0, "signal"].tolist()
        text = (
            f"{', '.join(missed)} (their intervals lie above 0)"
            if missed
            else "none, as far as these cases can tell"
        )
        lines.append(f"Missed beside all others: {text}.")
        # Of two signals that repeat each other neither is missed alone; only taken away together
        # they show their worth.
        repeated = (frame["worth_doubles_low"] > 0.0) & (frame["rank_correlation"].abs() >= DOUBLE)
        if repeated.any():
            lines.append(
                f"Missed where their doubles go too: {', '.join(frame.loc[repeated, 'signal'])}."
            )
    # What is never measured, or never varies, may be an error of its measurement, so it is named.
    gone = frame.loc[frame["note"] == EVERYWHERE, "signal"].tolist()
    if gone:
        lines.append(f"Nothing measured in any case: {', '.join(gone)}.")
    flat = frame.loc[frame["note"] == CONSTANT, "signal"].tolist()
    if flat:
        lines.append(f"The same in every case, so worth nothing here: {', '.join(flat)}.")
    return tuple(lines)
