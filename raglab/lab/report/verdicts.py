"""Verdicts (shore): which targets are met or possible, how near one comes (S6.2, S6.4, S6.9)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics, replay
from raglab.certify import MAX_OVER_ASK
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.decisions import chain_place
from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import Measured, TraceView
from raglab.lab.search_space import always_answer
from raglab.metrics import RATE_TABLE
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import each_shard
from raglab.signals import BUILT_IN_SET, NAMES, SignalSet
from raglab.store.policies import Policy
from raglab.values import Curve, Status, TraceData, check_labelled
from raglab.words.canonical import decimals

if TYPE_CHECKING:
    import pandas as pd


# the two rates that a threshold on one signal trades
PLANE = ("false_refusal_rate", "hallucination_rate")
UNREACHABLE = "not met; all targets together cannot be met with these signals"
BOUGHT = "not met: within its target only by asking back or refusing"


DELTA = 0.10  # one-sided error of what can be certified at all


FINE_EDGES = tuple(float(edge) for edge in range(0, 101, 4))
P_RIGHT = "P(right)"  # of a decision by expected cost, beside the signals


class AnswerSignals(NamedTuple):
    """What answering every case would give, [Q].

    score: signal -> its value, higher is surer; NaN where nothing can be answered; of the fused
    gate and of the model's `P(right)` too, where the policy decides by one; of the trace's own ones
    those with a direction, with a minus where less of them is surer. right: answered correctly if
    it were answered. label: status codes. explicit: whether the user named documents in any case.
    known: the signals of the trace.
    """

    score: Mapping[str, NDArray[np.float64]]
    right: NDArray[np.bool_]
    label: NDArray[np.int8]
    explicit: bool
    known: SignalSet = BUILT_IN_SET


def answer_signals(trace: TraceView, policy: Policy, arm: str | None = None) -> AnswerSignals:
    """Signals of every case, and whether the policy's gate-free hits hold the expected sources.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; the
        columns are held whole.

    Source: rules S2.2, S2.4, S2.6, S2.8, S2.17, S6.2.
    """
    parts = list(each_shard(shard_answer_signals, trace, policy, arm, what="measure"))
    score = {name: np.concatenate([part.score[name] for part in parts]) for name in parts[0].score}
    right, label = (np.concatenate([part[field] for part in parts]) for field in (1, 2))
    return AnswerSignals(score, right, label, any(part.explicit for part in parts), parts[0].known)


def shard_answer_signals(
    trace: TraceData | Measured, policy: Policy, arm: str | None = None
) -> AnswerSignals:
    """`answer_signals` of one trace in memory; pure, so that any worker may measure a shard."""
    held = Measured.of(trace)
    decisions = replay.decide(held, always_answer(policy), arm=arm)
    evidence = decisions.tables.evidence
    can = decisions.status == Status.ok
    signals = {
        "confidence": decisions.confidence(),
        "top-1 cosine": evidence.top1[0],
        "-best l2": -evidence.best_l2[0],
        "gap": evidence.gap[0],
    }
    for own in evidence.known.rows[len(NAMES) :]:
        values = evidence.signals[evidence.known.place(own.name), 0]
        signals |= {"surer": {own.name: values}, "ask": {f"-{own.name}": -values}}.get(
            own.direction, {}
        )
    if policy.fused_model is not None:
        signals["fused gate"] = evidence.fused[0]
    if policy.decision.rule == EXPECTED_COST:
        signals[P_RIGHT] = measured_tables(held, policy, arm).evidence.probability[0, 0]
    return AnswerSignals(
        {name: np.where(can, value, np.nan) for name, value in signals.items()},
        decisions.right & can,
        evidence.label,
        bool(evidence.explicit.any()),
        evidence.known,
    )


class ThresholdRates(NamedTuple):
    """Rates of the thresholds on a signal, from the highest down, [N].

    Or of one of them, as numbers.

    threshold: NaN where none reaches what it must; nothing is answered then.
    """

    signal: str
    threshold: Any
    refused: Any
    n_ok: int
    wrong: Any
    answered: Any

    @property
    def false_refusal(self) -> Any:  # noqa: ANN401 - a number or an array of them
        """Share of the answerable that is refused; NaN where there is none."""
        return np.asarray(self.refused) / (self.n_ok or np.nan)

    @property
    def hallucination(self) -> Any:  # noqa: ANN401 - a number or an array of them
        """Share of the answers that are wrong; NaN where there is none."""
        return np.asarray(self.wrong) / np.where(self.answered, self.answered, np.nan)

    def at(self, place: int) -> ThresholdRates:
        """One of the thresholds."""
        refused, wrong, answered = (
            int(column[place]) for column in (self.refused, self.wrong, self.answered)
        )
        return ThresholdRates(
            self.signal, float(self.threshold[place]), refused, self.n_ok, wrong, answered
        )


def threshold_rates(signals: AnswerSignals, signal: str) -> ThresholdRates:
    """Rates of every threshold on a signal, "answer at or above it, else refuse".

    There is one threshold for each distinct value.
    """
    score, n_ok = signals.score[signal], int((signals.label == Status.ok).sum())
    by_answer = metrics.risk_coverage(signals.right, score)
    by_label = metrics.risk_coverage(signals.label == Status.ok, score)
    return ThresholdRates(
        signal, by_answer.at, n_ok - (by_label.n - by_label.k), n_ok, by_answer.k, by_answer.n
    )


def nearest_thresholds(
    signals: AnswerSignals, signal: str, targets: Mapping[str, float]
) -> tuple[ThresholdRates, ThresholdRates]:
    """Lowest hallucination rate and lowest false-refusal rate, each at the other's target.

    Args:
      targets: of both rates.
    """
    every = threshold_rates(signals, signal)
    refusal, wrong = every.false_refusal, every.hallucination

    def lowest(
        is_met: NDArray[np.bool_], first: NDArray[np.float64], tie_break: NDArray[np.float64]
    ) -> ThresholdRates:
        there = np.flatnonzero(is_met)
        if not len(there):
            return ThresholdRates(
                signal=signal, threshold=float("nan"), refused=0, n_ok=0, wrong=0, answered=0
            )
        return every.at(int(there[np.lexsort((tie_break[there], first[there]))[0]]))

    return (
        lowest(refusal <= targets["false_refusal_rate"], wrong, refusal),
        lowest(wrong <= targets["hallucination_rate"], refusal, wrong),
    )


class Keeper(NamedTuple):
    """What meets all targets.

    A threshold on one signal, a policy or a trial, with its coverage and over-ask.
    """

    name: str
    coverage: float
    over_ask: float


class Reachable(NamedTuple):
    """Whether all targets can be met together, and by what.

    best: of those that answer enough and ask little the one that answers most; None where there is
    none. bought: of those that keep the targets by refusing or asking back the one that asks least;
    None where there is none. min_coverage, max_over_ask: what answering enough and asking little
    mean here.
    """

    best: Keeper | None
    bought: Keeper | None
    min_coverage: float
    max_over_ask: float

    @property
    def together(self) -> bool:
        """Whether all targets can be met together."""
        return self.best is not None


def least_coverage(n_ok: int, n_cases: int) -> float:
    """Least coverage of a policy whose targets count as met: half the share of ok labels.

    Source: rule S6.9.

    Example:
      >>> least_coverage(30, 100)
      0.15
    """
    return n_ok / (2 * n_cases) if n_cases else 0.0


def reachable(
    signals: AnswerSignals,
    table: pd.DataFrame,
    trials: pd.DataFrame | None,
    targets: Mapping[str, float],
    *,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> Reachable:
    """Whether a signal threshold, a table policy or a trial keeps all targets at once, and answers.

    Args:
      table, trials: of `replay.sweep` and of a study; rows without a target's rate, `coverage` or
        `over_ask_rate` do not count.
      targets: rate -> highest value, of a rate that is wanted high the least.
      min_coverage: share of all cases that must be answered; `least_coverage` where not given.
      max_over_ask: share of the unambiguous that may be asked back.

    Raises:
      ValueError: min_coverage or max_over_ask outside [0, 1].

    Source: rule S6.9.
    """
    least = _least(
        min_coverage, int((signals.label == Status.ok).sum()), len(signals.label), max_over_ask
    )
    keepers = _signal_keepers(signals, targets)
    for frame in (table, trials):
        if frame is not None:
            keepers += _row_keepers(
                frame, targets, "a trial of the study" if frame is trials else None
            )
    answers = [
        keeper for keeper in keepers if keeper.coverage >= least and keeper.over_ask <= max_over_ask
    ]
    best = max(answers, key=lambda keeper: (keeper.coverage, -keeper.over_ask), default=None)
    known = [keeper for keeper in keepers if not np.isnan([keeper.coverage, keeper.over_ask]).any()]
    bought = (
        min(known, key=lambda keeper: (keeper.over_ask, -keeper.coverage), default=None)
        if best is None
        else None
    )
    return Reachable(best, bought, least, max_over_ask)


def _least(min_coverage: float | None, n_ok: int, n_cases: int, max_over_ask: float) -> float:
    least = least_coverage(n_ok, n_cases) if min_coverage is None else min_coverage
    for name, share in (("min_coverage", least), ("max_over_ask", max_over_ask)):
        if not 0.0 <= share <= 1.0:
            msg = f"{name} must be in [0, 1], got {share}; it is a share of cases, 0.1 for 10 %."
            raise ValueError(msg)
    return least


# a number or an array of them
def target_met(name: str, rate: Any, limit: float) -> Any:  # noqa: ANN401
    """Whether a rate keeps its target; NaN keeps none (rule S6.2)."""
    return rate <= limit if RATE_TABLE[name].better == "low" else rate >= limit


def _signal_rates(signals: AnswerSignals, every: ThresholdRates) -> dict[str, NDArray[np.float64]]:
    """Rates of every threshold on a signal that answers at or above it, else refuses, [N] each."""
    labels = np.bincount(signals.label, minlength=len(Status))
    n, unasked = len(signals.label), np.zeros(len(every.answered))
    of_refuse = metrics.risk_coverage(signals.label == Status.refuse, signals.score[every.signal])
    passed = every.answered - every.wrong + labels[Status.refuse] - (of_refuse.n - of_refuse.k)
    return {
        "false_refusal_rate": every.false_refusal,
        "hallucination_rate": every.hallucination,
        "over_ask_rate": unasked if labels[Status.ambiguous] < n else unasked * np.nan,
        "missed_ambiguity_rate": unasked + 1.0 if labels[Status.ambiguous] else unasked * np.nan,
        "coverage": every.answered / n,
        "pass_rate": passed / n,
    }


def _signal_keepers(signals: AnswerSignals, targets: Mapping[str, float]) -> list[Keeper]:
    """Of each signal the threshold that answers most of those that keep all targets.

    None of them ever asks.
    """
    keepers = []
    for signal in signals.score:
        every = threshold_rates(signals, signal)
        rates = _signal_rates(signals, every)
        keeps = np.ones(len(every.answered), dtype=bool)
        for name, limit in targets.items():
            keeps &= target_met(name, rates[name], limit) if name in rates else False
        places = np.flatnonzero(keeps)
        if len(places):  # a lower threshold answers more
            most = every.at(int(places[-1]))
            name = f"{signal} at or above {decimals(most.threshold)}"
            keepers.append(Keeper(name, most.answered / len(signals.label), 0.0))
    return keepers


def _row_keepers(
    frame: pd.DataFrame, targets: Mapping[str, float], name: str | None
) -> list[Keeper]:
    """Rows of a table that keep all targets; the index names them where no name is given."""
    if not set(targets) <= set(frame.columns):
        return []
    keeps = np.ones(len(frame), dtype=bool)
    for rate, limit in targets.items():
        keeps &= target_met(rate, frame[rate].to_numpy(dtype=np.float64), limit)
    beside = frame.reindex(columns=["coverage", "over_ask_rate"]).to_numpy(dtype=np.float64)
    rows = zip(frame.index, beside, keeps, strict=True)
    return [
        Keeper(name or str(index), float(row[0]), float(row[1]))
        for index, row, is_keeper in rows
        if is_keeper
    ]


class TargetVerdict(NamedTuple):
    """Verdict on a target.

    Met, not met, bought by asking or refusing, or out of reach with these signals.

    target: highest value, of a rate that is wanted high the least. is_target: whether its user
    stated it; else it is the coverage or over-ask without which no target is met.
    """

    name: str
    target: float
    k: int
    n: int
    low: float
    high: float
    says: str
    is_target: bool


def verdicts(
    row: Mapping[str, Any],
    targets: Mapping[str, float],
    *,
    can: bool,
    min_coverage: float | None = None,
    max_over_ask: float = MAX_OVER_ASK,
) -> list[TargetVerdict]:
    """Verdict on every target for a policy, then on its coverage and over-ask.

    Without the last two no target is met.

    A rate over nothing meets nothing (rule S6.2). A target that is kept by refusing most or by
    asking back is bought, not met: always refusing or always asking would earn as much (rule S6.9).
    Without targets there is no verdict.

    Args:
      row: of `replay.sweep`.
      targets: see `reachable`.
      can: whether all targets can be met together, see `reachable`.
      min_coverage, max_over_ask: see `reachable`; a target of `over_ask_rate` takes the place of
        the latter.

    Raises:
      ValueError: min_coverage or max_over_ask outside [0, 1].
    """
    if not targets:
        return []
    most = targets.get("over_ask_rate", max_over_ask)
    least = _least(min_coverage, int(row["false_refusal_rate_n"]), int(row["coverage_n"]), most)
    enough, little = row["coverage"] >= least, not row["over_ask_rate"] > most
    missed = "not met" if can else UNREACHABLE
    target_verdicts = []
    for name, target in targets.items():
        met_verdict = "met" if (enough and little) or RATE_TABLE[name].better == "high" else BOUGHT
        says = met_verdict if target_met(name, row[name], target) else missed
        target_verdicts.append(_target_verdict(row, name, target, says, is_target=True))
    beside = {"coverage": (least, enough), "over_ask_rate": (most, little)}
    return target_verdicts + [
        _target_verdict(row, name, limit, "met" if met else "not met", is_target=False)
        for name, (limit, met) in beside.items()
        if name not in targets
    ]


def _target_verdict(
    row: Mapping[str, Any], name: str, target: float, says: str, *, is_target: bool
) -> TargetVerdict:
    k, n, low, high = (row[f"{name}_{part}"] for part in ("k", "n", "low", "high"))
    return TargetVerdict(name, target, int(k), int(n), float(low), float(high), says, is_target)


USUAL_TARGETS = (0.01, 0.02, 0.05, 0.10, 0.20)


def certifiable(n: int, delta: float = DELTA) -> float:
    """Lowest of `USUAL_TARGETS` n answered cases certify with errors at half its rate, else NaN.

    Example:
      >>> certifiable(83), certifiable(2000)
      (0.1, 0.01)
    """
    return next(
        (t for t in USUAL_TARGETS if metrics.upper_bound(int(t / 2 * n), n, delta) <= t),
        float("nan"),
    )


def best_bound(signals: AnswerSignals, delta: float = DELTA) -> tuple[ThresholdRates, float]:
    """Threshold on one signal with least upper hallucination bound, and that bound; in sample."""
    best, least = (
        ThresholdRates(signal="-", threshold=float("nan"), refused=0, n_ok=0, wrong=0, answered=0),
        float("nan"),
    )
    for signal in signals.score:
        every = threshold_rates(signals, signal)
        if len(every.answered):
            bounds = np.asarray(metrics.upper_bound(every.wrong, every.answered, delta))
            place = int(np.argmin(bounds))
            if not bounds[place] >= least:
                best, least = every.at(place), float(bounds[place])
    return best, least


def curves(signals: AnswerSignals) -> dict[str, Curve]:
    """Risk–coverage steps of every signal."""
    return {
        name: metrics.risk_coverage(signals.right, score) for name, score in signals.score.items()
    }


def probability_histograms(signals: AnswerSignals, status: NDArray[np.int8]) -> NDArray[np.int64]:
    """Case counts by label, decision (both in `Status` order), P(right) in %, by `FINE_EDGES`.

    Args:
      status: decisions, [Q].
    """
    score = 100.0 * signals.score[P_RIGHT]
    known = ~np.isnan(score)
    cells = [
        [
            np.histogram(
                score[known & (signals.label == label) & (status == decision)], FINE_EDGES
            )[0]
            for decision in Status
        ]
        for label in Status
    ]
    return np.array(cells)


def confusion_counts(decisions: CaseVerdicts) -> NDArray[np.int64]:
    """Cases by label (rows) and decision (columns), [3, 3] in the order of `Status`.

    Raises:
      ValueError: some case has no label.
    """
    return metrics.outcome_table(check_labelled(decisions.label_code), decisions.status)


def decided_by_label(decisions: CaseVerdicts) -> dict[tuple[str, Status], NDArray[np.int64]]:
    """What decided, and its decision -> cases by label, [3].

    Those that decided any, in the order of the chain.

    Raises:
      ValueError: some case has no label.
    """
    label = check_labelled(decisions.label_code)
    names, place = np.unique(decisions.decided_by.astype(str), return_inverse=True)
    counts = np.zeros((len(names), len(Status), len(Status)), dtype=np.int64)
    np.add.at(counts, (place, decisions.status.astype(int), label.astype(int)), 1)
    pairs = [
        (name, status) for name in sorted(names.tolist(), key=chain_place) for status in Status
    ]
    rows = {(name, status): counts[names.tolist().index(name), status] for name, status in pairs}
    return {pair: row for pair, row in rows.items() if row.any()}


def harm(decisions: CaseVerdicts) -> NDArray[np.int64]:
    """How bad each decision is, [Q].

    3 a wrong answer, 2 an answerable question refused, 1 otherwise wrong, 0 right.
    """
    refused = (decisions.status == Status.refuse) & (decisions.label_code == Status.ok)
    wrong = np.where(decisions.status == Status.ok, 3, np.where(refused, 2, 1))
    return np.where(decisions.right, 0, wrong)


def flipped_cases(before: CaseVerdicts, after: CaseVerdicts) -> list[int]:
    """Cases whose status or verdict differs, most harmful change first, then in trace order."""
    rows = np.flatnonzero((before.status != after.status) | (before.right != after.right))
    was, now = harm(before)[rows], harm(after)[rows]
    flips: list[int] = rows[np.lexsort((rows, -now, was - now))].tolist()
    return flips


def front(
    false_refusal: NDArray[np.float64], hallucination: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Points that no other beats in both rates, [N]; equal points stand together; NaN is never one.

    Example:
      >>> front(np.array([0.0, 0.2, 0.2]), np.array([0.5, 0.1, 0.6]))
      array([ True,  True, False])
    """
    known = ~(np.isnan(false_refusal) | np.isnan(hallucination))
    order = np.lexsort((hallucination, false_refusal))
    out = np.zeros(len(order), dtype=bool)
    best = last = np.inf
    for place in order[known[order]]:
        same = hallucination[place] == best and false_refusal[place] == last
        if hallucination[place] < best or same:
            out[place], best, last = True, hallucination[place], false_refusal[place]
    return out


class ThresholdCurve(NamedTuple):
    """Steps of one threshold, each policy's value, and the policy that states all the others."""

    path: str
    steps: pd.DataFrame
    marks: Mapping[str, float]
    base: str


def threshold_curves(
    trace: TraceView, policies: Mapping[str, Policy], bases: Sequence[str], arm: str | None = None
) -> tuple[list[ThresholdCurve], list[str]]:
    """Curve of each threshold under the first policy where it matters, and paths that never do.

    Where the first base decides by expected cost: of its cost ratio alone, since no threshold of
    the chain acts. A threshold has at most `MOST_STEPS` steps, more than a figure has pixels.

    Args:
      bases: names of policies, the one of most interest first; one under which the path never
        matters has no mark.
    """
    by_cost = [policies[name].decision.rule == EXPECTED_COST for name in bases]
    tried = tuple(name for name, cost in zip(bases, by_cost, strict=True) if cost == by_cost[0])
    paths = [RATIO] if by_cost[0] else _stated_thresholds(policies, tried)
    shown: dict[str, ThresholdCurve] = {}
    for place, base in enumerate(tried):
        rest = [path for path in paths if path not in shown]
        for path, frame in _steps_by_path(trace, policies[base], rest, arm).items():
            values = {name: policies[name].value(path) for name in reversed(tried[place:])}
            marks = {name: float(value) for name, value in values.items() if value is not None}
            shown[path] = ThresholdCurve(path, frame, marks, base)
    return [shown[path] for path in paths if path in shown], [
        path for path in paths if path not in shown
    ]


MOST_STEPS = 2_000  # of a threshold in a figure


def _steps_by_path(
    trace: TraceView, policy: Policy, paths: Sequence[str], arm: str | None
) -> dict[str, pd.DataFrame]:
    """Steps of those of some thresholds that matter under a policy, by path.

    All that it sets in one pass of shards.
    """
    with warnings.catch_warnings():
        # the page says of its cases what a warning of `steps` would
        warnings.simplefilter("ignore")
        all_steps = _all_steps(trace, policy, paths, arm)
    steps = {path: all_steps[path].reset_index(drop=True) for path in paths if path in all_steps}
    return {path: frame for path, frame in steps.items() if len(frame) > 1}


def _all_steps(
    trace: TraceView, policy: Policy, paths: Sequence[str], arm: str | None
) -> dict[str, pd.DataFrame]:
    """Steps of some thresholds by path, and of others that the policy sets."""
    steps = {}
    alone = [path for path in paths if policy.value(path) is None or len(paths) == 1]
    if len(alone) < len(paths):
        every = replay.steps(trace, policy, path=None, arm=arm, resolution=MOST_STEPS)
        steps = {
            str(path): frame.drop(columns="path")
            for path, frame in every.groupby("path", sort=False)
        }
    return steps | {
        path: replay.steps(trace, policy, path=path, arm=arm, resolution=MOST_STEPS)
        for path in alone
    }


RATIO = "decision.ratio"


def _stated_thresholds(policies: Mapping[str, Policy], names: Sequence[str]) -> list[str]:
    """Thresholds of the chain, and those of signals that some policy states."""
    own = sorted({signal for name in names for signal in policies[name].signals})
    return [
        path
        for path in dict.fromkeys(
            (
                *replay.SWEPT,
                *(f"signals.{signal}.{end}" for signal in own for end in ("min", "max")),
            )
        )
        if not path.startswith("decision.")
        and (
            not path.startswith("signals.")
            or any(policies[name].value(path) is not None for name in names)
        )
    ]
