"""Fitting decisions by expected cost (shore): calibrated multinomial logit on signals (S2.17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
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
from raglab.values import AnyArray, BoolArray, FloatArray, IntArray, Status, TraceData, WholeArray

TraceKind = TypeVar("TraceKind")  # a trace, in memory or of shards
PENALTY_STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # inverse of the penalty, as scikit-learn's `C`
MODEL_FOLDS = 5  # of the choice of the penalty and of the calibration
MIN_KIND_CASES = 10  # cases that would be answered right, and others, that a fit must see
MODEL_DIGITS = 6  # of the numbers of a model: more than any fit tells apart
# of a signal, beside its greatest value: what differs less is rounding, or is lost in
# `MODEL_DIGITS`
MIN_SIGNAL_RANGE = 1e-4
MAX_LOGIT_STRETCH = 4.0  # by which calibration may stretch or shrink the logits
MIN_PENALTY_SHARE = 1e-3  # of a weight that a signal is allowed, over the mean
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

    def rows(self, case_selection: AnyArray) -> DecisionCases:
        """The same of some cases."""
        groups = None if self.groups is None else self.groups.rows(case_selection)
        chosen_arrays = {name: column[..., case_selection] for name, column in self.arrays.items()}
        return self._replace(groups=groups, **chosen_arrays)

    @property
    def arrays(self) -> dict[str, Any]:
        """Columns of the cases by name, cases last."""
        column_names = ("signals", "classes", "can_ask", "options_right", "weight")
        return {
            column_name: getattr(self, column_name)
            for column_name in column_names
            if getattr(self, column_name) is not None
        }

    @property
    def weights(self) -> FloatArray:
        """Weight of each case, 1 where none is stated, [Q]."""
        return np.ones(len(self.classes)) if self.weight is None else self.weight

    @property
    def shares(self) -> FloatArray:
        """Share of each label, [3]."""
        weights = np.bincount(np.take(LABEL_OF_CLASS, self.classes), self.weights, len(Status))
        return weights / weights.sum()


def decision_cases(evidence: Evidence) -> DecisionCases:
    """Cases of the first depth: their signals, and what would have been right."""
    case_indices = np.arange(len(evidence.label))
    answer_right = evidence.right[0, answer_slots(evidence), case_indices] & (
        evidence.n_hits[0] >= 1
    )
    case_classes = np.select(
        [
            (evidence.label == Status.ok) & answer_right,
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
    asked_options = evidence.right[0, evidence.n_slots_relevant + ASKED_SLOT]
    return DecisionCases(
        evidence.signals[:, 0],
        case_classes.astype(np.int64),
        evidence.n_options_all[0] >= MIN_OPTIONS,
        asked_options,
        evidence.known,
    )


def check_kinds(
    is_kind: BoolArray, fit_phrase: str, kind_phrase: str, min_cases: int = MIN_KIND_CASES
) -> None:
    """Stop where a fit sees fewer than `min_cases` cases of a kind, or fewer others.

    Args:
      is_kind: whether each case is of the kind, [Q].
      fit_phrase: the fit, with its verb.
      kind_phrase: in words.
      min_cases: of each.

    Raises:
      ValueError: too few.
    """
    counts = int(is_kind.sum()), int((~is_kind).sum())
    if min(counts) < min_cases:
        message = (
            f"{fit_phrase} at least {min_cases} {kind_phrase} and {min_cases} others, got "
            f"{counts[0]} and {counts[1]}; "
            "label more."
        )
        raise ValueError(message)


def direction_notes(cases: DecisionCases, interval_level: float = 0.95) -> list[str]:
    """Scores of hits, and the user's signals, whose direction the labels contradict.

    See `raglab.decision.score_directions`. Cases are taken to be independent.

    Args:
      cases: with their signals.
      interval_level: of the intervals, in (0, 1).

    Source: rules S2.15, S2.17.
    """
    contradictions = (
        scored_cases(cases, signal_scores).contradiction(
            signal.name, signal.direction, interval_level
        )
        for signal, signal_scores in zip(cases.known.rows, cases.signals, strict=True)
        if signal.name in HIT_SIGNALS or signal.name not in BUILT_IN_SET.names
    )
    return list(filter(None, contradictions))


def scored_cases(cases: DecisionCases, case_scores: FloatArray) -> ScoredCases:
    """Cases by a score, [..., Q], right if answered against wrong or to be refused."""
    is_right, is_ambiguous = (
        cases.classes == OUTCOME_CLASSES.index(name) for name in ("right", "ambiguous")
    )
    return ScoredCases(case_scores, is_right, is_ambiguous)


def join_decision_cases(case_parts: Sequence[DecisionCases]) -> DecisionCases:
    """Cases of all parts, in order."""
    first_part = case_parts[0]
    joined_arrays: dict[str, Any] = {
        column_name: np.concatenate(
            [case_part.arrays[column_name] for case_part in case_parts], axis=-1
        )
        for column_name in first_part.arrays
    }
    joined_groups = first_part.groups
    if joined_groups is not None:
        group_names = [
            case_part.groups.names for case_part in case_parts if case_part.groups is not None
        ]
        joined_groups = joined_groups._replace(names=np.concatenate(group_names))
    return first_part._replace(groups=joined_groups, **joined_arrays)


def tune_cases(trace: TraceKind) -> TraceKind:
    """Cases of split `tune` where a trace has one, else all of it.

    Raises:
      ValueError: a split of a name that no study reads.
    """
    if not hasattr(trace, "split"):
        return trace
    sharded_trace: Any = trace
    split_names: set[str | None] = set()
    for shard_cases in cases_by_shard(sharded_trace):
        split_names.update(case.split for case in shard_cases)
        if "tune" in split_names:  # further shards need not be read
            break
    check_split_names(split_names)
    tune_trace: TraceKind = trace.split("tune") if "tune" in split_names else trace
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
        rows = signals[[self.known.place(signal_name) for signal_name in self.names]]
        x = scaled_signals(rows, self.center, self.scale)
        class_logits = x @ self.weights.T + self.bias
        return np.exp(log_softmax(class_logits)).T


def scaled_signals(
    signal_rows: FloatArray, signal_center: FloatArray, signal_scale: FloatArray
) -> FloatArray:
    """Signals [F, Q] as the logistic reads them, [Q, F].

    0 where missing, at most `LIMIT` either way.
    """
    features: FloatArray = np.nan_to_num(
        np.clip(
            (signal_rows.T - signal_center) / signal_scale,
            -SCALED_SIGNAL_LIMIT,
            SCALED_SIGNAL_LIMIT,
        ),
        nan=0.0,
    )
    return features


def tells_apart(signal_values: FloatArray) -> bool:
    """Whether any two values of a signal differ by more than last digits."""
    present_values = signal_values[~np.isnan(signal_values)]
    return bool(
        len(present_values)
        and present_values.max() - present_values.min()
        > MIN_SIGNAL_RANGE * np.abs(present_values).max()
    )


def usable_signals(
    signals: FloatArray,
    signal_names: Sequence[str] | None = None,
    signal_set: SignalSet = BUILT_IN_SET,
) -> tuple[str, ...]:
    """Names of the signals, of those named or all, that tell two cases apart beyond last digits.

    Raises:
      ValueError: a name that is no signal, or none is left.
    """
    candidate_names = (
        tuple(signal.name for signal in signal_set.rows if signal.alone)
        if signal_names is None
        else tuple(signal_names)
    )
    usable_names = [
        signal_name
        for signal_name in dict.fromkeys(candidate_names)
        if tells_apart(signals[signal_set.place(signal_name)])
    ]
    if not usable_names:
        message = (
            "a decision needs a signal that differs between cases, got "
            f"{', '.join(candidate_names)}; "
            "build the trace again."
        )
        raise ValueError(message)
    return tuple(usable_names)


def fit_model(
    cases: DecisionCases,
    *,
    signal_names: Sequence[str] | None = None,
    seed: int = 0,
    strengths: Sequence[float] = PENALTY_STRENGTHS,
    min_cases: int = MIN_KIND_CASES,
    case_fold: IntArray | None = None,
) -> FittedModel:
    """Multinomial logistic of classes on signals, calibrated, monotone for declared directions.

    The penalty is chosen by cross-validated log-loss. The logits of the same folds, which no fit
    saw, then give one temperature, which is folded into the weights, and biases of the cases'
    groups where the cases have groups.

    Args:
      signal_names: of the signals; all that differ between cases and that one arm alone has where
        not given.
      min_cases: number of cases that would be answered right, and of others, below which nothing is
        fitted.
      case_fold: of each case, from 0, such as leaves whole groups out, [Q]; drawn by the seed,
        stratified, where not given. Of a stated fold, a case whose class no other fold holds is not
        judged.

    Raises:
      ValueError: fewer than `min_cases` cases that would be answered right or fewer others, or no
        usable signal.

    Source: rules S2.17, S2.20; temperature scaling: Guo et al. 2017.
    """
    is_right = cases.classes == 0
    check_kinds(
        is_right, "a decision must be fitted on", "cases that would be answered right", min_cases
    )
    usable_names = usable_signals(cases.signals, signal_names, cases.known)
    signal_rows = cases.signals[[cases.known.place(signal_name) for signal_name in usable_names]]
    # Standardised, so that one strength of the penalty means the same for every signal.
    signal_center = np.nanmean(signal_rows, axis=1)
    signal_scale = np.nanstd(signal_rows, axis=1)
    x = scaled_signals(signal_rows, signal_center, signal_scale)
    directions = tuple(cases.known.signal(signal_name).direction for signal_name in usable_names)
    # products so small that threads only wait for each other
    with _pools().limit(limits=1, user_api="blas"):
        fold_numbers = (
            stratified_folds(cases.classes, MODEL_FOLDS, np.random.default_rng(seed))
            if case_fold is None
            else case_fold
        )
        judged_mask = (
            np.ones(len(fold_numbers), dtype=np.bool_)
            if case_fold is None
            else is_judged(cases.classes, case_fold)
        )
        case_weights = cases.weights
        strength, held_out_logits = _choose_strength(
            x, cases.classes, case_weights, directions, strengths, fold_numbers, judged_mask
        )
        temperature = _temperature(
            held_out_logits[judged_mask], cases.classes[judged_mask], case_weights[judged_mask]
        )
        class_weights, class_bias = _fit_weights(
            x, cases.classes, directions, strength, case_weights=case_weights
        )
    # of a class without a case nothing can be learned
    class_present = np.isin(np.arange(len(OUTCOME_CLASSES)), cases.classes)
    fitted_groups = None
    if cases.groups is not None:
        judged_logits = np.where(class_present, temperature * held_out_logits, ABSENT_LOGIT)[
            judged_mask
        ]
        fitted_groups = fit_groups(
            judged_logits, cases.classes[judged_mask], cases.groups.rows(judged_mask)
        )
    return FittedModel(
        names=usable_names,
        center=signal_center,
        scale=signal_scale,
        weights=temperature * class_weights,
        bias=np.where(class_present, temperature * class_bias, ABSENT_LOGIT),
        asked_right=_asked_right(cases),
        strength=strength,
        temperature=temperature,
        known=cases.known,
        groups=fitted_groups,
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
    weights = cases.weights[is_askable]
    return float((weights @ cases.options_right[is_askable] + 1.0) / (weights.sum() + 2.0))


def _choose_strength(
    x: FloatArray,
    classes: IntArray,
    case_weights: FloatArray,
    directions: Sequence[Direction],
    strengths: Sequence[float],
    case_fold: IntArray,
    judged_mask: BoolArray,
) -> tuple[float, FloatArray]:
    """Strength of least cross-validated log-loss, stronger of equals, held-out logits, [Q, 4].

    Args:
      case_fold: of each case, from 0, [Q].
      judged_mask: whether a case counts in the loss, [Q].
    """
    n_folds = int(case_fold.max()) + 1
    judged_rows = np.flatnonzero(judged_mask)
    best_choice: tuple[float, float, FloatArray] | None = None
    start_parameters: list[FloatArray | None] = [None] * n_folds
    for strength in sorted(strengths):
        held_out_logits = np.zeros((len(classes), len(OUTCOME_CLASSES)))
        for fold_number in range(n_folds):
            training_mask = case_fold != fold_number
            class_weights, class_bias = _fit_weights(
                x[training_mask],
                classes[training_mask],
                directions,
                strength,
                start_parameters[fold_number],
                case_weights[training_mask],
            )
            start_parameters[fold_number] = np.concatenate([class_weights.ravel(), class_bias])
            held_out_logits[~training_mask] = x[~training_mask] @ class_weights.T + class_bias
            held_out_logits[
                np.ix_(
                    ~training_mask,
                    ~np.isin(np.arange(len(OUTCOME_CLASSES)), classes[training_mask]),
                )
            ] = ABSENT_LOGIT
        held_out_loss = -_mean(
            log_softmax(held_out_logits)[judged_rows, classes[judged_rows]],
            case_weights[judged_rows],
        )
        if best_choice is None or held_out_loss < best_choice[0]:
            best_choice = held_out_loss, strength, held_out_logits
    assert best_choice is not None  # noqa: S101 - strengths is never empty
    return best_choice[1], best_choice[2]


def stratified_folds(case_kinds: WholeArray, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Fold of every case.

    Each kind shuffled and dealt out in turn, the next kind going on where the last ended.

    Args:
      case_kinds: number of the kind of each case, such as its label, [Q].
    """
    dealing_order = np.concatenate(
        [
            rng.permutation(np.flatnonzero(case_kinds == kind_number))
            for kind_number in range(int(case_kinds.max()) + 1)
        ]
    )
    case_fold = np.empty(len(case_kinds), dtype=np.int64)
    case_fold[dealing_order] = np.arange(len(case_kinds)) % n_folds
    return case_fold


def _mean(case_values: FloatArray, case_weights: FloatArray) -> float:
    """Weighted mean; the plain one, to the bit, where all weights are 1."""
    return float((case_weights * case_values).sum() / case_weights.sum())


def _temperature(logits: FloatArray, classes: IntArray, case_weights: FloatArray) -> float:
    """Factor of held-out logits with the least log-loss, within `MAX_LOGIT_STRETCH` either way."""
    from scipy.optimize import minimize_scalar

    case_indices = np.arange(len(classes))

    class_present = np.isin(np.arange(len(OUTCOME_CLASSES)), classes)

    def loss(log_factor: float) -> float:
        scaled_logits = np.where(class_present, np.exp(log_factor) * logits, ABSENT_LOGIT)
        return -_mean(log_softmax(scaled_logits)[case_indices, classes], case_weights)

    log_limit = float(np.log(MAX_LOGIT_STRETCH))
    return float(np.exp(minimize_scalar(loss, bounds=(-log_limit, log_limit), method="bounded").x))


def _bounds(
    directions: Sequence[Direction], class_present: BoolArray
) -> list[tuple[float | None, float | None]]:
    """Bounds of the weights by class and signal, then of the biases.

    Only differences between classes count, so a signal that speaks for a class is
    one whose weight is 0 there and at most 0 elsewhere.
    """
    class_of_direction = {
        "surer": OUTCOME_CLASSES.index("right"),
        "ask": OUTCOME_CLASSES.index("ambiguous"),
    }
    weight_bounds: list[tuple[float | None, float | None]] = []
    for class_index in range(len(OUTCOME_CLASSES)):
        for direction in directions:
            favoured_class = class_of_direction.get(direction)
            if favoured_class is None or not class_present[favoured_class]:
                weight_bounds.append((None, None))
            else:
                weight_bounds.append((0.0 if class_index == favoured_class else None, 0.0))
    return weight_bounds + [
        (None, None) if is_present else (0.0, 0.0) for is_present in class_present
    ]


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
    class_sizes = one_hot.sum(axis=0)
    case_weights = one_hot.sum(axis=1)
    overall_mean = (
        x.mean(axis=0) if (case_weights == 1.0).all() else case_weights @ x / case_weights.sum()
    )
    class_means = (one_hot.T @ x) / class_sizes[:, None]
    between_variance = class_sizes @ (class_means - overall_mean) ** 2
    within_variance = (case_weights[:, None] * (x - overall_mean) ** 2).sum(axis=0)
    variance_ratio = np.divide(
        between_variance,
        within_variance,
        out=np.zeros(len(overall_mean)),
        where=within_variance > 0.0,
    )
    if not variance_ratio.any():  # one class alone
        return np.ones(len(overall_mean))
    signal_shares: FloatArray = np.maximum(
        variance_ratio / variance_ratio.mean(), MIN_PENALTY_SHARE
    )
    return signal_shares


def _fit_weights(
    x: FloatArray,
    classes: IntArray,
    directions: Sequence[Direction],
    strength: float,
    start_parameters: FloatArray | None = None,
    case_weights: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Weights [4, F] and biases [4] of the penalised logistic.

    Those of a class without cases are 0.

    Args:
      x: [Q, F].
      strength: inverse of the penalty.
      start_parameters: weights and biases to begin with, [4 · F + 4].
      case_weights: of each case, [Q]; 1 where not given.
    """
    from scipy.optimize import minimize

    n_classes, (n_cases, n_signals) = len(OUTCOME_CLASSES), x.shape
    n_weights = n_classes * n_signals
    one_hot = np.zeros((n_cases, n_classes))
    case_weights = np.ones(n_cases) if case_weights is None else case_weights
    one_hot[np.arange(n_cases), classes] = case_weights
    class_present: BoolArray = np.asarray(one_hot.any(axis=0))
    absent_offset = np.where(class_present, 0.0, -np.inf)  # a class without cases takes no part
    penalty_share = penalty_shares(x, one_hot[:, class_present])

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        signal_weights = parameters[:n_weights].reshape(n_classes, n_signals)
        class_bias = parameters[n_weights:]
        class_logits = x @ signal_weights.T + class_bias + absent_offset
        # Less the largest: no exponential overflows, and the probabilities stay the same.
        class_logits -= class_logits.max(axis=1, keepdims=True)
        class_odds = np.exp(class_logits)
        odds_total = class_odds.sum(axis=1, keepdims=True)
        # Weights that move alike in all classes change no probability, so only what differs is
        # penalised.
        centred_weights = signal_weights[class_present] - signal_weights[class_present].mean(axis=0)
        penalty = (centred_weights**2 / penalty_share).sum() / (
            2.0 * strength
        ) + BIAS_PENALTY / 2.0 * (class_bias**2).sum()
        chosen_logits = class_logits[one_hot > 0.0]
        total_loss = float(
            (case_weights * np.log(odds_total[:, 0])).sum()
            - (case_weights * chosen_logits).sum()
            + penalty
        )
        class_errors = case_weights[:, None] * (class_odds / odds_total) - one_hot
        weight_slope = class_errors.T @ x
        weight_slope[class_present] += centred_weights / penalty_share / strength
        weight_slope[~class_present] = 0.0
        return total_loss, np.concatenate(
            [weight_slope.ravel(), class_errors.sum(axis=0) + BIAS_PENALTY * class_bias]
        )

    initial_parameters = (
        np.zeros(n_weights + n_classes) if start_parameters is None else start_parameters
    )
    optimum = minimize(
        loss,
        initial_parameters,
        jac=True,
        method="L-BFGS-B",
        bounds=_bounds(directions, class_present),
    )
    signal_weights = optimum.x[:n_weights].reshape(n_classes, n_signals)
    return np.where(class_present[:, None], signal_weights, 0.0), np.where(
        class_present, optimum.x[n_weights:], 0.0
    )


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

    def short(number: float) -> float:
        return float(f"{number:.{MODEL_DIGITS}g}")

    extra_sections: dict[str, Any] = {}
    if model.groups is not None and model.groups.bias:
        group_biases = {
            group_name: tuple(map(short, class_biases.tolist()))
            for group_name, class_biases in sorted(model.groups.bias.items())
        }
        extra_sections = {"groups": {"attribute": model.groups.attribute, "bias": group_biases}}
    if traffic is not None and model.shares is not None:
        fitted_shares = tuple(map(short, model.shares.tolist()))
        extra_sections["mix"] = {"fitted": fitted_shares, "traffic": tuple(map(float, traffic))}
    return {
        "parts": {
            signal_name: {
                "center": short(center),
                "scale": short(scale),
                "missing": short(center),
                "weights": tuple(short(class_weight) for class_weight in signal_weights),
            }
            for signal_name, center, scale, signal_weights in zip(
                model.names,
                model.center.tolist(),
                model.scale.tolist(),
                model.weights.T.tolist(),
                strict=True,
            )
        },
        "bias": tuple(short(class_bias) for class_bias in model.bias.tolist()),
        "asked_right": short(model.asked_right),
        "structure": structure,
        "fitted_on": fitted_on,
        **extra_sections,
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
    fitted_policy = policy.replace(
        "decision.model",
        model_section(model, structure_hash(policy.structure, arm), fitted_on, traffic),
        "decision.rule",
        EXPECTED_COST,
    )
    return fitted_policy if costs is None else policy_with_costs(fitted_policy, costs)


def policy_with_costs(policy: Policy, costs: metrics.Costs | None) -> Policy:
    """Policy whose decision by expected cost goes by these costs: label -> outcome -> cost."""
    costs_by_label = zip(metrics.LABELS, metrics.cost_matrix(costs).tolist(), strict=True)
    return policy.replace(
        "decision.costs",
        {
            label_name: dict(zip(metrics.OUTCOMES, outcome_costs, strict=True))
            for label_name, outcome_costs in costs_by_label
        },
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
    shared_model = policies[0].decision.model
    if shared_model is None or any(policy.decision.model != shared_model for policy in policies):
        message = (
            "policies must decide by one model, got several or none; take those of "
            "`raglab.lab.certification_families.grid`."
        )
        raise ValueError(message)
    group_attribute = None if shared_model.groups is None else shared_model.groups.attribute
    case_parts = list(
        each_shard(fitted_cases, trace, policies[0], arm, group_attribute, what="measure")
    )
    cases = join_decision_cases(case_parts)
    case_fold = stratified_folds(cases.classes, MODEL_FOLDS, np.random.default_rng(seed))
    blind_policies = []
    traffic = None if shared_model.mix is None else shared_model.mix.traffic
    for held_fold in range(MODEL_FOLDS):
        blind_model = fit_model(
            cases.rows(case_fold != held_fold), signal_names=tuple(shared_model.parts), seed=seed
        )
        blind_section = model_section(blind_model, shared_model.structure, traffic=traffic)
        blind_policies.append(policies[0].replace("decision.model", blind_section))
    folds_by_part = np.split(
        case_fold, np.cumsum([len(case_part.classes) for case_part in case_parts])[:-1]
    )
    parts_with_folds = list(zip(trace.parts, folds_by_part, strict=True))
    cells_by_part = run_each(
        fold_cells, parts_with_folds, blind_policies, list(policies), arm, what="replay"
    )
    return np.sum(list(cells_by_part), axis=0, dtype=np.int64)


def fitted_cases(
    trace: TraceData, policy: Policy, arm: str | None, group_attribute: str | None = None
) -> DecisionCases:
    """Labelled cases of one shard as a fit reads them; pure, so that any worker may measure it.

    Args:
      group_attribute: attribute whose groups the fit is to have biases of; None for none.
    """
    cases = decision_cases(measured_tables(trace, policy, arm).evidence)
    return (
        cases
        if group_attribute is None
        else cases._replace(groups=CaseGroups.of(trace.cases, group_attribute))
    )


def fold_cells(
    part_with_fold: tuple[TracePart, IntArray],
    blind_policies: Sequence[Policy],
    policies: Sequence[Policy],
    arm: str | None,
) -> IntArray:
    """Cases of one part by cell, [P, 20], each decided by the model that never saw its fold.

    Args:
      part_with_fold: the part and the fold of each of its cases.
      blind_policies: a policy a fold, with its model.
    """
    part, case_fold = part_with_fold
    trace = part.loaded()
    evidence = measured_tables(trace, policies[0], arm).evidence
    cells_by_policy = np.zeros((len(policies), metrics.N_CELLS), dtype=np.int64)
    for held_fold in np.unique(case_fold).tolist():
        fold_rows = np.flatnonzero(case_fold == held_fold)
        fold_cases = [trace.cases[case_index] for case_index in fold_rows.tolist()]
        held_out_evidence = evidence_with_model(
            case_rows(evidence, fold_rows), blind_policies[held_fold], fold_cases
        )
        cells_by_case = case_cells(held_out_evidence, policies)
        cells_by_policy += [
            np.bincount(policy_cells, minlength=metrics.N_CELLS) for policy_cells in cells_by_case
        ]
    return cells_by_policy


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
    base_policy = Policy.load() if policy is None else policy
    if costs is not None:
        metrics.cost_matrix(costs)  # stops before anything is fitted
    fitted_trace = tune_cases(trace)
    chain_policy = base_policy.replace("decision.rule", "chain")
    check_recorded(fitted_trace, chain_policy, arm, "a decision")
    cases = join_decision_cases(
        list(each_shard(fitted_cases, fitted_trace, chain_policy, arm, group, what="measure"))
    )
    case_weights = inclusion_weights(fitted_trace)
    traffic_mix = checked_mix(mix)
    check_groups(cases.groups, case_weights)
    cases = cases._replace(weight=case_weights)
    traffic = None
    if traffic_mix is not None:
        check_alone(traffic_mix, case_weights)
        label_counts = np.bincount(np.take(LABEL_OF_CLASS, cases.classes), minlength=len(Status))
        traffic = traffic_mix.at_labels(label_counts).center(label_counts).tolist()
    case_fold = None
    if groups is not None:
        case_groups = held_groups(trace, fitted_trace, groups, "a decision")
        case_order = _case_order(cases, case_groups.number)
        cases = cases.rows(case_order)
        case_fold = grouped_folds(
            cases.classes, case_groups.number[case_order], MODEL_FOLDS, np.random.default_rng(seed)
        )
        for sentence in held_sentences(case_groups, MODEL_FOLDS):
            warn_user(sentence)
        _warn_of_unjudged(cases.classes, case_fold)
    model = fit_model(cases, signal_names=signals, seed=seed, case_fold=case_fold)
    if cases.groups is not None and model.groups is not None:
        for sentence in group_sentences(cases.groups, model.groups.bias):
            warn_user(sentence)
    # The policy remembers its cases: there is no certificate and no comparison on them (rules S6.4,
    # S6.11).
    queries_by_split = trace_queries(fitted_trace)
    fitted_queries = list(chain.from_iterable(queries_by_split.values()))
    warn_of_held_back(queries_by_split, "A decision by expected cost")
    decided_policy = decide_by_model(
        chain_policy,
        model,
        fitted_trace.arms[0] if arm is None else arm,
        costs,
        hash_queries(fitted_queries),
        traffic,
    )
    return with_scores_of(with_learned_cases(decided_policy, fitted_queries), fitted_trace.meta)


def _case_order(cases: DecisionCases, group_numbers: IntArray) -> IntArray:
    """Order of cases by what a fit reads of them, [Q]: sums must not depend on that of the rows.

    Args:
      group_numbers: of their groups, [Q].
    """
    group_codes = np.zeros(len(group_numbers), dtype=np.int64)
    if cases.groups is not None:
        group_codes = np.unique(cases.groups.names, return_inverse=True)[1]
    return np.lexsort(
        (
            group_codes,
            cases.options_right,
            cases.can_ask,
            *cases.signals[::-1],
            cases.classes,
            group_numbers,
        )
    )


def _warn_of_unjudged(classes: IntArray, case_fold: IntArray) -> None:
    """Warn of cases that no fit of the folds can judge, with their number.

    Raises:
      ValueError: none that would be answered right can be judged, or none of the others.
    """
    judged_mask = is_judged(classes, case_fold)
    is_right = classes == OUTCOME_CLASSES.index("right")
    counts = [int((judged_mask & kind_mask).sum()) for kind_mask in (is_right, ~is_right)]
    if not min(counts):
        message = (
            "groups must leave cases that would be answered right, and others, on both sides of a "
            f"fold, got {counts[0]} and {counts[1]} that can be judged."
        )
        raise ValueError(message)
    if n_unjudged := int((~judged_mask).sum()):
        warn_user(
            f"{n_unjudged} cases have their class in one fold alone: no penalty is chosen on them."
        )
