"""Fitting decisions by expected cost (shore): calibrated multinomial logit on signals (S2.17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.chain import ASKED_SLOT, answer_slots
from raglab.decision.inclusion import check_alone, inclusion_weights
from raglab.decision.learned_cases import (
    hash_queries,
    trace_queries,
    warn_of_held_back,
    with_learned_cases,
    with_scores_of,
)
from raglab.decision.measurement import Evidence, measured_tables, structure_hash
from raglab.decision.score_directions import HIT_SIGNALS, ScoredCases
from raglab.decision.trace_view import TracePart, TraceView, answered_traces
from raglab.gating.expected_cost import (
    ABSENT_LOGIT,
    LABEL_OF_CLASS,
    OUTCOME_CLASSES,
    SCALED_SIGNAL_LIMIT,
)
from raglab.gating.signal_gates import MIN_OPTIONS
from raglab.lab.answer_basis import check_recorded
from raglab.lab.arrays import AnyArray, BoolArray, FloatArray, IntArray
from raglab.lab.group_fitting import (
    CaseGroups,
    FittedGroups,
    check_groups,
    fit_groups,
    group_sentences,
    log_softmax,
)
from raglab.lab.held_out_groups import grouped_folds, held_groups, held_sentences, is_judged
from raglab.loops.parallel import run_each
from raglab.metrics.mixes import Mix, checked_mix
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import case_cells, case_rows, cases_by_shard, each_shard, evidence_with_model
from raglab.signals import BUILT_IN_SET, Direction, SignalSet
from raglab.store.case_labels import check_split_names
from raglab.store.policies import Policy
from raglab.values import Status, TraceData

TraceKind = TypeVar("TraceKind")  # a trace, in memory or of shards
STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # inverse of the penalty, as scikit-learn's `C`
FOLDS = 5  # of the choice of the penalty and of the calibration
LEAST = 10  # cases that would be answered right, and others, that a fit must see
DIGITS = 6  # of the numbers of a model: more than any fit tells apart
# of a signal, beside its greatest value: what differs less is rounding, or is lost in `DIGITS`
LEAST_RANGE = 1e-4
STEEPEST = 4.0  # by which calibration may stretch or shrink the logits
LEAST_SHARE = 1e-3  # of a weight that a signal is allowed, beside the mean
BIAS_PENALTY = 1e-3  # so that a class of few cases has a finite bias


class DecisionCases(NamedTuple):
    """Labelled cases as a fit reads them.

    signals: in the order of `known`, [S, Q]. classes: places in `CLASSES`, [Q]. can_ask: whether
    there are two options, [Q]. options_right: whether they hold what an ambiguous case expects,
    [Q]. known: the signals. groups: of the cases, where the fit is to have biases of groups.
    weight: of each case, where they were drawn with several probabilities, [Q].
    """

    signals: FloatArray
    classes: IntArray
    can_ask: BoolArray
    options_right: BoolArray
    known: SignalSet = BUILT_IN_SET
    groups: CaseGroups | None = None
    weight: FloatArray | None = None

    def rows(self, keep: AnyArray) -> DecisionCases:
        """The same of some cases."""
        groups = None if self.groups is None else self.groups.rows(keep)
        arrays = {name: column[..., keep] for name, column in self.arrays.items()}
        return self._replace(groups=groups, **arrays)

    @property
    def arrays(self) -> dict[str, Any]:
        """Columns of the cases by name, cases last."""
        names = ("signals", "classes", "can_ask", "options_right", "weight")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def weights(self) -> FloatArray:
        """Weight of each case, 1 where none is stated, [Q]."""
        return np.ones(len(self.classes)) if self.weight is None else self.weight

    @property
    def shares(self) -> FloatArray:
        """Share of each label, [3]."""
        sums = np.bincount(np.take(LABEL_OF_CLASS, self.classes), self.weights, len(Status))
        return sums / sums.sum()


def decision_cases(evidence: Evidence) -> DecisionCases:
    """Cases of the first depth: their signals, and what would have been right."""
    every = np.arange(len(evidence.label))
    right = evidence.right[0, answer_slots(evidence), every] & (evidence.n_hits[0] >= 1)
    classes = np.select(
        [
            (evidence.label == Status.ok) & right,
            evidence.label == Status.ok,
            evidence.label == Status.refuse,
        ],
        [
            OUTCOME_CLASSES.index("right"),
            OUTCOME_CLASSES.index("miss"),
            OUTCOME_CLASSES.index("refuse"),
        ],
        OUTCOME_CLASSES.index("ambiguous"),
    )
    options = evidence.right[0, evidence.n_slots_relevant + ASKED_SLOT]
    return DecisionCases(
        evidence.signals[:, 0],
        classes.astype(np.int64),
        evidence.n_options_all[0] >= MIN_OPTIONS,
        options,
        evidence.known,
    )


def check_kinds(right: BoolArray, what: str, kind: str, least: int = LEAST) -> None:
    """Stop where a fit sees fewer than `least` cases of a kind, or fewer others.

    Args:
      right: whether each case is of the kind, [Q].
      what: the fit, with its verb.
      kind: in words.
      least: of each.

    Raises:
      ValueError: too few.
    """
    counts = int(right.sum()), int((~right).sum())
    if min(counts) < least:
        msg = (
            f"{what} at least {least} {kind} and {least} others, got {counts[0]} and {counts[1]}; "
            "label more."
        )
        raise ValueError(msg)


def direction_notes(cases: DecisionCases, level: float = 0.95) -> list[str]:
    """Scores of hits, and the user's signals, whose direction the labels contradict.

    See `raglab.decision.score_directions`. Cases are taken to be independent.

    Args:
      cases: with their signals.
      level: of the intervals, in (0, 1).

    Source: rules S2.15, S2.17.
    """
    texts = (
        scored_cases(cases, score).contradiction(signal.name, signal.direction, level)
        for signal, score in zip(cases.known.rows, cases.signals, strict=True)
        if signal.name in HIT_SIGNALS or signal.name not in BUILT_IN_SET.names
    )
    return list(filter(None, texts))


def scored_cases(cases: DecisionCases, score: FloatArray) -> ScoredCases:
    """Cases by a score, [..., Q], right if answered against wrong or to be refused."""
    right, ambiguous = (
        cases.classes == OUTCOME_CLASSES.index(name) for name in ("right", "ambiguous")
    )
    return ScoredCases(score, right, ambiguous)


def join_decision_cases(parts: Sequence[DecisionCases]) -> DecisionCases:
    """Cases of all parts, in order."""
    first = parts[0]
    arrays: dict[str, Any] = {
        name: np.concatenate([part.arrays[name] for part in parts], axis=-1)
        for name in first.arrays
    }
    groups = first.groups
    if groups is not None:
        names = [part.groups.names for part in parts if part.groups is not None]
        groups = groups._replace(names=np.concatenate(names))
    return first._replace(groups=groups, **arrays)


def tune_cases(trace: TraceKind) -> TraceKind:
    """Cases of split `tune` where a trace has one, else all of it.

    Raises:
      ValueError: a split of a name that no study reads.
    """
    if not hasattr(trace, "split"):
        return trace
    of_shards: Any = trace
    splits: set[str | None] = set()
    for cases in cases_by_shard(of_shards):
        splits.update(case.split for case in cases)
        if "tune" in splits:  # further shards need not be read
            break
    check_split_names(splits)
    tune_trace: TraceKind = trace.split("tune") if "tune" in splits else trace
    return tune_trace


@dataclass(frozen=True)
class FittedModel:
    """Multinomial logistic as fitted.

    names: of its signals, [F]. center, scale: [F]; a signal counts as (value - center) / scale.
    weights: [4, F]. bias: [4]. asked_right: chance that the options of a case to be asked hold what
    it expects. strength: inverse of the penalty that was chosen. temperature: factor of the logits
    that calibration came to. known: the signals of the cases that it was fitted on, of which
    `names` are some. groups: biases of groups, where they were asked for. shares: of the labels in
    the cases, [3].
    """

    names: tuple[str, ...]
    center: FloatArray
    scale: FloatArray
    weights: FloatArray
    bias: FloatArray
    asked_right: float
    strength: float
    temperature: float
    known: SignalSet = BUILT_IN_SET
    groups: FittedGroups | None = None
    shares: FloatArray | None = None

    def probabilities(self, signals: FloatArray) -> FloatArray:
        """Class probabilities by the common model, [4, Q], of signals [S, Q] in `known` order."""
        rows = signals[[self.known.place(name) for name in self.names]]
        x = scaled_signals(rows, self.center, self.scale)
        logits = x @ self.weights.T + self.bias
        return np.exp(log_softmax(logits)).T


def scaled_signals(rows: FloatArray, center: FloatArray, scale: FloatArray) -> FloatArray:
    """Signals [F, Q] as the logistic reads them, [Q, F].

    0 where missing, at most `LIMIT` either way.
    """
    features: FloatArray = np.nan_to_num(
        np.clip((rows.T - center) / scale, -SCALED_SIGNAL_LIMIT, SCALED_SIGNAL_LIMIT), nan=0.0
    )
    return features


def tells_apart(values: FloatArray) -> bool:
    """Whether any two values of a signal differ by more than last digits."""
    there = values[~np.isnan(values)]
    return bool(len(there) and there.max() - there.min() > LEAST_RANGE * np.abs(there).max())


def usable_signals(
    signals: FloatArray,
    names: Sequence[str] | None = None,
    known: SignalSet = BUILT_IN_SET,
) -> tuple[str, ...]:
    """Names of the signals, of those named or all, that tell two cases apart beyond last digits.

    Raises:
      ValueError: a name that is no signal, or none is left.
    """
    wanted = (
        tuple(signal.name for signal in known.rows if signal.alone)
        if names is None
        else tuple(names)
    )
    usable_names = [
        name for name in dict.fromkeys(wanted) if tells_apart(signals[known.place(name)])
    ]
    if not usable_names:
        msg = (
            f"a decision needs a signal that differs between cases, got {', '.join(wanted)}; "
            "build the trace again."
        )
        raise ValueError(msg)
    return tuple(usable_names)


def fit_model(
    cases: DecisionCases,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    strengths: Sequence[float] = STRENGTHS,
    least: int = LEAST,
    fold: IntArray | None = None,
) -> FittedModel:
    """Multinomial logistic of classes on signals, calibrated, monotone for declared directions.

    The penalty is chosen by cross-validated log-loss. The logits of the same folds, which no fit
    saw, then give one temperature, which is folded into the weights, and biases of the cases'
    groups where the cases have groups.

    Args:
      names: of the signals; all that differ between cases and that one arm alone has where not
        given.
      least: number of cases that would be answered right, and of others, below which nothing is
        fitted.
      fold: of each case, from 0, such as leaves whole groups out, [Q]; drawn by the seed,
        stratified, where not given. Of a stated fold, a case whose class no other fold holds is not
        judged.

    Raises:
      ValueError: fewer than `least` cases that would be answered right or fewer others, or no
        usable signal.

    Source: rules S2.17, S2.20; temperature scaling: Guo et al. 2017.
    """
    right = cases.classes == 0
    check_kinds(right, "a decision must be fitted on", "cases that would be answered right", least)
    usable_names = usable_signals(cases.signals, names, cases.known)
    rows = cases.signals[[cases.known.place(name) for name in usable_names]]
    # Standardised, so that one strength of the penalty means the same for every signal.
    center = np.nanmean(rows, axis=1)
    scale = np.nanstd(rows, axis=1)
    x = scaled_signals(rows, center, scale)
    directions = tuple(cases.known.signal(name).direction for name in usable_names)
    # products so small that threads only wait for each other
    with _pools().limit(limits=1, user_api="blas"):
        parts = (
            stratified_folds(cases.classes, FOLDS, np.random.default_rng(seed))
            if fold is None
            else fold
        )
        judged = (
            np.ones(len(parts), dtype=np.bool_) if fold is None else is_judged(cases.classes, fold)
        )
        weight = cases.weights
        strength, held = _choose_strength(
            x, cases.classes, weight, directions, strengths, parts, judged
        )
        temperature = _temperature(held[judged], cases.classes[judged], weight[judged])
        weights, bias = _fit_weights(x, cases.classes, directions, strength, weight=weight)
    # of a class without a case nothing can be learned
    present = np.isin(np.arange(len(OUTCOME_CLASSES)), cases.classes)
    groups = None
    if cases.groups is not None:
        logits = np.where(present, temperature * held, ABSENT_LOGIT)[judged]
        groups = fit_groups(logits, cases.classes[judged], cases.groups.rows(judged))
    return FittedModel(
        names=usable_names,
        center=center,
        scale=scale,
        weights=temperature * weights,
        bias=np.where(present, temperature * bias, ABSENT_LOGIT),
        asked_right=_asked_right(cases),
        strength=strength,
        temperature=temperature,
        known=cases.known,
        groups=groups,
        shares=cases.shares,
    )


@cache
def _pools() -> ThreadpoolController:
    """Thread pools of the linear algebra; finding them costs more than a fit."""
    return ThreadpoolController()


def _asked_right(cases: DecisionCases) -> float:
    """Chance that the options of a case to be asked hold what it expects.

    One success and one failure more.
    """
    is_askable = (cases.classes == OUTCOME_CLASSES.index("ambiguous")) & cases.can_ask
    if not is_askable.any():
        return 0.0
    weight = cases.weights[is_askable]
    return float((weight @ cases.options_right[is_askable] + 1.0) / (weight.sum() + 2.0))


def _choose_strength(
    x: FloatArray,
    classes: IntArray,
    weight: FloatArray,
    directions: Sequence[Direction],
    strengths: Sequence[float],
    fold: IntArray,
    judged: BoolArray,
) -> tuple[float, FloatArray]:
    """Strength of least cross-validated log-loss, stronger of equals, held-out logits, [Q, 4].

    Args:
      fold: of each case, from 0, [Q].
      judged: whether a case counts in the loss, [Q].
    """
    folds, rows = int(fold.max()) + 1, np.flatnonzero(judged)
    best: tuple[float, float, FloatArray] | None = None
    starts: list[FloatArray | None] = [None] * folds
    for strength in sorted(strengths):
        logits = np.zeros((len(classes), len(OUTCOME_CLASSES)))
        for fold_number in range(folds):
            rest = fold != fold_number
            weights, bias = _fit_weights(
                x[rest], classes[rest], directions, strength, starts[fold_number], weight[rest]
            )
            starts[fold_number] = np.concatenate([weights.ravel(), bias])
            logits[~rest] = x[~rest] @ weights.T + bias
            logits[np.ix_(~rest, ~np.isin(np.arange(len(OUTCOME_CLASSES)), classes[rest]))] = (
                ABSENT_LOGIT
            )
        loss = -_mean(log_softmax(logits)[rows, classes[rows]], weight[rows])
        if best is None or loss < best[0]:
            best = loss, strength, logits
    assert best is not None  # noqa: S101 - strengths is never empty
    return best[1], best[2]


def stratified_folds(
    kinds: NDArray[np.integer[Any]], folds: int, rng: np.random.Generator
) -> IntArray:
    """Fold of every case.

    Each kind shuffled and dealt out in turn, the next kind going on where the last ended.

    Args:
      kinds: number of the kind of each case, such as its label, [Q].
    """
    turn = np.concatenate(
        [rng.permutation(np.flatnonzero(kinds == kind)) for kind in range(int(kinds.max()) + 1)]
    )
    fold = np.empty(len(kinds), dtype=np.int64)
    fold[turn] = np.arange(len(kinds)) % folds
    return fold


def _mean(values: FloatArray, weight: FloatArray) -> float:
    """Weighted mean; the plain one, to the bit, where all weights are 1."""
    return float((weight * values).sum() / weight.sum())


def _temperature(logits: FloatArray, classes: IntArray, weight: FloatArray) -> float:
    """Factor of held-out logits with the least log-loss, within `STEEPEST` either way."""
    from scipy.optimize import minimize_scalar

    every = np.arange(len(classes))

    learned = np.isin(np.arange(len(OUTCOME_CLASSES)), classes)

    def loss(log_factor: float) -> float:
        scaled = np.where(learned, np.exp(log_factor) * logits, ABSENT_LOGIT)
        return -_mean(log_softmax(scaled)[every, classes], weight)

    end = float(np.log(STEEPEST))
    return float(np.exp(minimize_scalar(loss, bounds=(-end, end), method="bounded").x))


def _bounds(
    directions: Sequence[Direction], present: BoolArray
) -> list[tuple[float | None, float | None]]:
    """Bounds of the weights by class and signal, then of the biases.

    A weight counts beside those of the other classes only, so a signal that speaks for a class is
    one whose weight is 0 there and at most 0 elsewhere.
    """
    own = {"surer": OUTCOME_CLASSES.index("right"), "ask": OUTCOME_CLASSES.index("ambiguous")}
    bounds: list[tuple[float | None, float | None]] = []
    for place in range(len(OUTCOME_CLASSES)):
        for direction in directions:
            speaks_for = own.get(direction)
            if speaks_for is None or not present[speaks_for]:
                bounds.append((None, None))
            else:
                bounds.append((0.0 if place == speaks_for else None, 0.0))
    return bounds + [(None, None) if is_there else (0.0, 0.0) for is_there in present]


def penalty_shares(x: FloatArray, one_hot: FloatArray) -> FloatArray:
    """How much of a weight each signal is allowed, mean 1, [F]: the penalty is divided by it.

    In proportion to the share of the signal's variance that lies between the classes: under one
    penalty for all, a signal that tells the classes apart is shrunk as much as one that is noise.

    Args:
      x: [Q, F].
      one_hot: weight of each case in its class, 0 in the others, [Q, C]; every class has cases.

    Source: adaptive weights of a penalty (Zou 2006).

    Example:
      >>> x = np.array([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0], [2.0, 0.5]])
      >>> penalty_shares(x, np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])).round(
      ...     2
      ... ).tolist()
      [1.94, 0.06]
    """
    sizes, weight = one_hot.sum(axis=0), one_hot.sum(axis=1)
    total = x.mean(axis=0) if (weight == 1.0).all() else weight @ x / weight.sum()
    means = (one_hot.T @ x) / sizes[:, None]
    between = sizes @ (means - total) ** 2
    within = (weight[:, None] * (x - total) ** 2).sum(axis=0)
    part = np.divide(between, within, out=np.zeros(len(total)), where=within > 0.0)
    if not part.any():  # one class alone
        return np.ones(len(total))
    shares: FloatArray = np.maximum(part / part.mean(), LEAST_SHARE)
    return shares


def _fit_weights(
    x: FloatArray,
    classes: IntArray,
    directions: Sequence[Direction],
    strength: float,
    start: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Weights [4, F] and biases [4] of the penalised logistic.

    Those of a class without cases are 0.

    Args:
      x: [Q, F].
      strength: inverse of the penalty.
      start: weights and biases to begin with, [4 · F + 4].
      weight: of each case, [Q]; 1 where not given.
    """
    from scipy.optimize import minimize

    n_classes, (n, width) = len(OUTCOME_CLASSES), x.shape
    size = n_classes * width
    one_hot = np.zeros((n, n_classes))
    weight = np.ones(n) if weight is None else weight
    one_hot[np.arange(n), classes] = weight
    present: BoolArray = np.asarray(one_hot.any(axis=0))
    shut = np.where(present, 0.0, -np.inf)  # a class without cases takes no part
    share = penalty_shares(x, one_hot[:, present])

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        weights, bias = theta[:size].reshape(n_classes, width), theta[size:]
        logits = x @ weights.T + bias + shut
        # Less the largest: no exponential overflows, and the probabilities stay the same.
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        # Weights that move alike in all classes change no probability, so only what differs is
        # penalised.
        centred = weights[present] - weights[present].mean(axis=0)
        penalty = (centred**2 / share).sum() / (2.0 * strength) + BIAS_PENALTY / 2.0 * (
            bias**2
        ).sum()
        chosen = logits[one_hot > 0.0]
        value = float((weight * np.log(total[:, 0])).sum() - (weight * chosen).sum() + penalty)
        error = weight[:, None] * (odds / total) - one_hot
        slope = error.T @ x
        slope[present] += centred / share / strength
        slope[~present] = 0.0
        return value, np.concatenate([slope.ravel(), error.sum(axis=0) + BIAS_PENALTY * bias])

    begin = np.zeros(size + n_classes) if start is None else start
    optimum = minimize(
        loss, begin, jac=True, method="L-BFGS-B", bounds=_bounds(directions, present)
    )
    weights = optimum.x[:size].reshape(n_classes, width)
    return np.where(present[:, None], weights, 0.0), np.where(present, optimum.x[size:], 0.0)


def model_section(
    model: FittedModel,
    structure: str,
    fitted_on: str | None = None,
    traffic: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Model as a policy states it, its numbers rounded.

    Args:
      traffic: shares of the labels there, [3]; None where they are those of the cases.
    """

    def short(value: float) -> float:
        return float(f"{value:.{DIGITS}g}")

    groups: dict[str, Any] = {}
    if model.groups is not None and model.groups.bias:
        bias = {
            name: tuple(map(short, row.tolist())) for name, row in sorted(model.groups.bias.items())
        }
        groups = {"groups": {"attribute": model.groups.attribute, "bias": bias}}
    if traffic is not None and model.shares is not None:
        fitted = tuple(map(short, model.shares.tolist()))
        groups["mix"] = {"fitted": fitted, "traffic": tuple(map(float, traffic))}
    return {
        "parts": {
            name: {
                "center": short(center),
                "scale": short(scale),
                "missing": short(center),
                "weights": tuple(short(weight) for weight in column),
            }
            for name, center, scale, column in zip(
                model.names,
                model.center.tolist(),
                model.scale.tolist(),
                model.weights.T.tolist(),
                strict=True,
            )
        },
        "bias": tuple(short(bias) for bias in model.bias.tolist()),
        "asked_right": short(model.asked_right),
        "structure": structure,
        "fitted_on": fitted_on,
        **groups,
    }


def decide_by_model(
    policy: Policy,
    model: FittedModel,
    arm: str,
    costs: metrics.Costs | None = None,
    fitted_on: str | None = None,
    traffic: Sequence[float] | None = None,
) -> Policy:
    """Policy that decides by expected cost with a fitted model.

    Args:
      arm: whose hits it was fitted on.
      costs: label -> outcome -> cost; those of the policy where not given.
      traffic: see `model_section`.
    """
    fitted = policy.replace(
        "decision.model",
        model_section(model, structure_hash(policy.structure, arm), fitted_on, traffic),
        "decision.rule",
        EXPECTED_COST,
    )
    return fitted if costs is None else policy_with_costs(fitted, costs)


def policy_with_costs(policy: Policy, costs: metrics.Costs | None) -> Policy:
    """Policy whose decision by expected cost goes by these costs: label -> outcome -> cost."""
    by_label = zip(metrics.LABELS, metrics.cost_matrix(costs).tolist(), strict=True)
    return policy.replace(
        "decision.costs",
        {label: dict(zip(metrics.OUTCOMES, row, strict=True)) for label, row in by_label},
    )


def held_out_cells(
    trace: TraceView, policies: Sequence[Policy], arm: str | None = None, *, seed: int = 0
) -> IntArray:
    """Cases by cell, [P, 20], of policies with one model, decided by models blind to them.

    Those models have the same signals and never saw the cases.

    Args:
      trace: cases that the model was fitted on; of shards it is measured twice.
      policies: alike but for costs, ratio and gates.

    Raises:
      ValueError: policies with different models, or without one; too few cases for a fit without a
        fold.

    Source: rules S2.17, S2.20, S6.9.
    """
    first = policies[0].decision.model
    if first is None or any(policy.decision.model != first for policy in policies):
        msg = (
            "policies must decide by one model, got several or none; take those of "
            "`raglab.lab.certification_families.grid`."
        )
        raise ValueError(msg)
    group = None if first.groups is None else first.groups.attribute
    parts = list(each_shard(fitted_cases, trace, policies[0], arm, group, what="measure"))
    cases = join_decision_cases(parts)
    fold = stratified_folds(cases.classes, FOLDS, np.random.default_rng(seed))
    without, traffic = [], None if first.mix is None else first.mix.traffic
    for held in range(FOLDS):
        model = fit_model(cases.rows(fold != held), names=tuple(first.parts), seed=seed)
        section = model_section(model, first.structure, traffic=traffic)
        without.append(policies[0].replace("decision.model", section))
    folds = np.split(fold, np.cumsum([len(part.classes) for part in parts])[:-1])
    pairs = list(zip(trace.parts, folds, strict=True))
    counted = run_each(fold_cells, pairs, without, list(policies), arm, what="replay")
    return np.sum(list(counted), axis=0, dtype=np.int64)


def fitted_cases(
    trace: TraceData, policy: Policy, arm: str | None, group: str | None = None
) -> DecisionCases:
    """Labelled cases of one shard as a fit reads them; pure, so that any worker may measure it.

    Args:
      group: attribute whose groups the fit is to have biases of; None for none.
    """
    cases = decision_cases(measured_tables(trace, policy, arm).evidence)
    return cases if group is None else cases._replace(groups=CaseGroups.of(trace.cases, group))


def fold_cells(
    pair: tuple[TracePart, IntArray],
    without: Sequence[Policy],
    policies: Sequence[Policy],
    arm: str | None,
) -> IntArray:
    """Cases of one part by cell, [P, 20], each decided by the model that never saw its fold.

    Args:
      pair: the part and the fold of each of its cases.
      without: a policy a fold, with its model.
    """
    part, fold = pair
    trace = part.loaded()
    evidence = measured_tables(trace, policies[0], arm).evidence
    cells = np.zeros((len(policies), metrics.N_CELLS), dtype=np.int64)
    for held in np.unique(fold).tolist():
        rows = np.flatnonzero(fold == held)
        cases = [trace.cases[row] for row in rows.tolist()]
        held_out = evidence_with_model(case_rows(evidence, rows), without[held], cases)
        cells_by_case = case_cells(held_out, policies)
        cells += [np.bincount(row, minlength=metrics.N_CELLS) for row in cells_by_case]
    return cells


@answered_traces("trace")
def fit_decision(
    trace: TraceView,
    policy: Policy | None = None,
    *,
    signals: Sequence[str] | None = None,
    costs: metrics.Costs | None = None,
    group: str | None = None,
    groups: str | Sequence[object] | None = None,
    seed: int = 0,
    arm: str | None = None,
    mix: Mix = metrics.SAMPLE,
) -> Policy:
    """Policy that takes the action of least expected cost, by a model of signals.

    The model is fitted on split `tune`.

    Without splits it is fitted on all cases. The model belongs to the hits of this policy and arm:
    another `final_k`, order, set of patterns or arm is refused when it decides.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; their
        signals are held whole.
      policy: its patterns, hits and domain gate are kept; the published defaults where not given.
      signals: names of `raglab.signals.NAMES` or of the trace's own; all that differ between the
        cases where not given.
      costs: label -> outcome -> cost, see `metrics.cost_matrix`; those of the policy where not
        given.
      group: attribute of the cases, such as `tenant` or `language`
        (`raglab.gating.case_groups.group_value`): each group gets a bias of its own, shrunk towards
        the common policy the more, the fewer its cases and the less groups differ. One of fewer
        than 20 labelled cases, or unknown when it is decided, follows the common policy.
      groups: what the folds leave out whole: an attribute of the cases, or one value for each case
        of the trace, in order (scikit-learn's `groups`). Penalty, temperature and group biases then
        come from cases whose group no fit saw: the probabilities are those of an unseen group. It
        adds nothing to the policy, other than `group`, which gives each group a bias; both may be
        stated. There are as many folds as groups where these are fewer than 5. The result does not
        depend on the order of the cases. With a group for each case it is the fit without `groups`,
        of other folds: the same weights but for penalty and temperature.
      seed: of the folds in which the penalty is chosen and the probabilities are calibrated.
      arm: which of the trace's arms; the first where not given.
      mix: shares of the labels in traffic, see `raglab.Goal`. They do not enter the fit: the class
        probabilities are corrected when the policy decides. Cases that were drawn with several
        inclusion probabilities are weighed in the fit (rule S6.15).

    Raises:
      ValueError: an unknown signal or cost, too few cases of a kind, or too many answers missing of
        cases judged by text, no case that states the group; fewer than two `groups`, a case without
        one, or groups of one kind each.

    Warns:
      UserWarning: groups without a bias of their own, with the counts of their cases; fewer folds
        than 5, a group that holds more than half of the cases, and cases of a class that one fold
        holds alone.

    Source: rules S2.17, S2.20, S6.3; Chow 1970, Elkan 2001; leave-group-out: Roberts and others
      2017.

    Example: `raglab.fit_decision(trace, policy, costs={"refuse": {"answered_wrong": 10}})`.
    """
    base = Policy.load() if policy is None else policy
    if costs is not None:
        metrics.cost_matrix(costs)  # stops before anything is fitted
    fitted = tune_cases(trace)
    plain = base.replace("decision.rule", "chain")
    check_recorded(fitted, plain, arm, "a decision")
    cases = join_decision_cases(
        list(each_shard(fitted_cases, fitted, plain, arm, group, what="measure"))
    )
    weight, stated = inclusion_weights(fitted), checked_mix(mix)
    check_groups(cases.groups, weight)
    cases, traffic = cases._replace(weight=weight), None
    if stated is not None:
        check_alone(stated, weight)
        labels = np.bincount(np.take(LABEL_OF_CLASS, cases.classes), minlength=len(Status))
        traffic = stated.at_labels(labels).center(labels).tolist()
    fold = None
    if groups is not None:
        held = held_groups(trace, fitted, groups, "a decision")
        order = _case_order(cases, held.number)
        cases = cases.rows(order)
        fold = grouped_folds(cases.classes, held.number[order], FOLDS, np.random.default_rng(seed))
        for sentence in held_sentences(held, FOLDS):
            warn_user(sentence)
        _warn_of_unjudged(cases.classes, fold)
    model = fit_model(cases, names=signals, seed=seed, fold=fold)
    if cases.groups is not None and model.groups is not None:
        for sentence in group_sentences(cases.groups, model.groups.bias):
            warn_user(sentence)
    # The policy remembers its cases: there is no certificate and no comparison on them (rules S6.4,
    # S6.11).
    by_split = trace_queries(fitted)
    queries = list(chain.from_iterable(by_split.values()))
    warn_of_held_back(by_split, "A decision by expected cost")
    decided = decide_by_model(
        plain,
        model,
        fitted.arms[0] if arm is None else arm,
        costs,
        hash_queries(queries),
        traffic,
    )
    return with_scores_of(with_learned_cases(decided, queries), fitted.meta)


def _case_order(cases: DecisionCases, numbers: IntArray) -> IntArray:
    """Order of cases by what a fit reads of them, [Q]: sums must not depend on that of the rows.

    Args:
      numbers: of their groups, [Q].
    """
    bias = np.zeros(len(numbers), dtype=np.int64)
    if cases.groups is not None:
        bias = np.unique(cases.groups.names, return_inverse=True)[1]
    return np.lexsort(
        (bias, cases.options_right, cases.can_ask, *cases.signals[::-1], cases.classes, numbers)
    )


def _warn_of_unjudged(classes: IntArray, fold: IntArray) -> None:
    """Warn of cases that no fit of the folds can judge, with their number.

    Raises:
      ValueError: none that would be answered right can be judged, or none of the others.
    """
    judged, is_right = is_judged(classes, fold), classes == OUTCOME_CLASSES.index("right")
    counts = [int((judged & kind).sum()) for kind in (is_right, ~is_right)]
    if not min(counts):
        msg = (
            "groups must leave cases that would be answered right, and others, on both sides of a "
            f"fold, got {counts[0]} and {counts[1]} that can be judged."
        )
        raise ValueError(msg)
    if n := int((~judged).sum()):
        warn_user(f"{n} cases have their class in one fold alone: no penalty is chosen on them.")
