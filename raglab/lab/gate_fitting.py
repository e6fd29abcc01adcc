"""Fitted gates (shore): the fused gate, calibrations of answers and of the cosine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from raglab import calibration, metrics, replay
from raglab.answering.extractive import FITTED_DIGITS, MAX_KNOTS, fit_answer_confidence
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import SOURCES
from raglab.decision.learned_cases import (
    hash_queries,
    trace_queries,
    warn_of_held_back,
    with_learned_cases,
    with_scores_of,
)
from raglab.decision.sharded_decisions import join_frames
from raglab.decision.signal_values import arm_order, first_by_rank
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.gating import fused_gate
from raglab.gating.fused_gate import Model, Part
from raglab.lab.answer_basis import check_recorded
from raglab.lab.decision_fitting import check_kinds, tune_cases
from raglab.lab.held_out_groups import held_groups, held_sentences, is_judged
from raglab.lab.untuned_policies import always_answer, published_policy
from raglab.progress import progress
from raglab.replay import cases_by_shard, decide, each_shard, join_columns
from raglab.signals import NAMES, SIGNALS
from raglab.store.policies import Policy
from raglab.store.records import hash_cases
from raglab.values import (
    BoolArray,
    FloatArray,
    IntArray,
    Status,
    TraceData,
    check_labelled,
    label_codes,
    refuse,
)
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["logistic", "boosting"]
Fit = Callable[[FloatArray, BoolArray, Sequence[str]], Model]
SURER_DIRECTION = ("surer",)  # direction of the signals that a fused gate is fitted on
MIN_GATE_CASES = 20  # cases of each kind that a fused gate must see
CALIBRATION_NEEDS = "a calibration needs"
PUBLISHED_CHAIN = "published chain"
FUSED_GATE = "fused"


class Signals(NamedTuple):
    """Signals of cases, [S, Q], whether each is right if answered, [Q], and signal names, [S]."""

    score: FloatArray
    right: BoolArray
    names: tuple[str, ...] = SIGNALS


@dataclass(frozen=True, eq=False, repr=False)
class FittedGate(Result):
    """A fitted gate.

    policy: the one given, with the gate switched on. model: its parts. p: cross-fitted
    probabilities of the cases it was fitted on, in their order. quality: calibration in sample
    beside cross-fitted; of unseen groups where the folds left groups out. fitted_on: their trace,
    in memory or of shards.
    """

    policy: Policy
    model: Model
    p: FloatArray
    quality: pd.DataFrame
    fitted_on: TraceView
    TABLE: ClassVar[str] = "quality"

    def _summary(self) -> Summary:
        import pandas as pd

        facts = [
            ("policy", self.policy.policy_id),
            ("answers at", f"{self.policy.fused.min_fused:g} or more"),
            ("cases", f"{len(self.p):,}"),
        ]
        rows = [(part.signal, min(part.y), max(part.y)) for part in self.model.parts]
        logit_range = pd.DataFrame(rows, columns=["signal", "least", "most"])
        return Summary(facts, {"calibration": self.quality, "added to the logit": logit_range})


def case_signals(
    trace: TraceView,
    policy: Policy,
    arm: str | None = None,
    *,
    directions: Sequence[str] = SURER_DIRECTION,
) -> Signals:
    """Signals of each case at depth 0, and whether gate-free choices carry the expected sources.

    The signals are those of retrieval and the trace's own of which more speaks for an answer, or of
    stated directions.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time; the
        columns are held whole.
      directions: of the trace's own signals that are listed; with `ask` those as `-<name>`,
        negated, come last.
    """
    shard_signals = list(
        each_shard(shard_case_signals, trace, policy, arm, directions, what="measure")
    )
    answer_right = np.concatenate([part.right for part in shard_signals])
    return Signals(
        np.concatenate([part.score for part in shard_signals], axis=1),
        answer_right,
        shard_signals[0].names,
    )


def shard_case_signals(
    trace: TraceData,
    policy: Policy,
    arm: str | None = None,
    directions: Sequence[str] = SURER_DIRECTION,
) -> Signals:
    """`case_signals` of one trace in memory; pure, so that any worker may measure a shard."""
    decisions = replay.decide(trace, always_answer(policy), arm=arm)
    is_answered = decisions.status == Status.ok
    evidence = decisions.tables.evidence
    own_signals = evidence.known.rows[len(NAMES) :]
    surer_names = (
        *SIGNALS,
        *(signal.name for signal in own_signals if signal.direction == "surer"),
    )
    asking_names = [
        signal.name for signal in own_signals if signal.direction == "ask" and "ask" in directions
    ]
    signal_places = [
        evidence.known.place(signal_name) for signal_name in (*surer_names, *asking_names)
    ]
    signal_rows = evidence.signals[signal_places, 0]
    signal_rows[len(surer_names) :] *= -1.0
    signal_names = (*surer_names, *(f"-{signal_name}" for signal_name in asking_names))
    return Signals(
        np.where(is_answered, signal_rows, np.nan), decisions.right & is_answered, signal_names
    )


@answered_traces("trace")
def fit_fused_gate(
    trace: TraceView,
    policy: Policy | None = None,
    *,
    arm: str | None = None,
    method: Method = "logistic",
    folds: int = 5,
    groups: str | Sequence[object] | None = None,
    seed: int = 0,
) -> FittedGate:
    """Fused gate: one probability from all signals, monotone in each, fitted on split `tune`.

    Without splits it is fitted on all cases.

    Both methods give an additive model, so that every case can be explained by its parts. The logit
    is calibrated by Platt's method on cases that no fit saw; that calibration is folded into the
    model.

    Args:
      trace: in memory, or of shards (`Trace.open`), of which the signals are held whole, the hits
        shard by shard.
      policy: gets the gate; its `fused.min_fused` stays.
      arm: of the trace; the first where not given.
      method: `logistic` on ranked, standardised signals, or `boosting`, trees of one split under
        the same monotone constraints.
      folds: of the cross-fit, at least 2; as many as groups where these are fewer.
      groups: what the folds leave out whole: an attribute of the cases
        (`raglab.gating.case_groups.group_value`), or one value for each case of the trace, in order
        (scikit-learn's `groups`). Calibration, `p` and the cross-fitted row of `quality` are then
        of unseen groups; without it they flatter where signals identify a group that has the same
        labels. The parts are those of the fit without `groups`, on another scale.
      seed: of the folds.

    Raises:
      ValueError: fewer than 20 right or 20 wrong cases, folds below 2, signals that rank against
        the labels, too many answers missing of cases judged by text; fewer than two groups, a case
        without one, or all right or all wrong cases in one fold.

    Warns:
      UserWarning: fewer groups than folds, and a group that holds more than half of the cases.

    Source: rules S2.14, S6.3; leave-group-out: Roberts and others 2017.
    """
    if folds < 2:
        message = f"folds must be at least 2, got {folds}; 5 is usual."
        raise ValueError(message)
    start_policy = policy if policy is not None else Policy.load()
    # Split tune alone: cases to certify or report on must stay unseen (rule S6.5).
    tune_trace = tune_cases(trace)
    check_recorded(tune_trace, start_policy, arm, "a fused gate")
    trace_signals = case_signals(tune_trace, start_policy, arm)
    check_kinds(
        trace_signals.right, "a fused gate must be fitted on", "right cases", MIN_GATE_CASES
    )
    fit_of_method: dict[str, Fit] = {"logistic": fused_gate.fit_fusion, "boosting": fit_boosting}
    if method not in fit_of_method:
        message = f"method must be one of {', '.join(fit_of_method)}, got {method!r}."
        raise ValueError(message)
    fit_parts = fit_of_method[method]
    queries_by_split = trace_queries(tune_trace)
    warn_of_held_back(queries_by_split, "A fused gate")
    if groups is None:
        case_ids = [case.id for cases in cases_by_shard(tune_trace) for case in cases]
        id_ranks = np.argsort(np.argsort(case_ids))
        # By what the fit reads, not by the order of the rows, so that this does not matter.
        case_order = np.lexsort((id_ranks, trace_signals.right, *trace_signals.score[::-1]))
        # Not stratified, see `calibration.folds_of`.
        case_fold = np.empty(len(case_order), dtype=np.int64)
        dealt_folds = np.resize(np.arange(folds), len(case_order))
        case_fold[case_order] = np.random.default_rng(seed).permutation(dealt_folds)
    else:
        case_fold = _group_folds(trace, tune_trace, groups, trace_signals.right, folds, seed)
    held_out_logits = np.full(len(case_fold), np.nan)
    for fold_number in progress(range(int(case_fold.max()) + 1), "fit", "fold"):
        is_held_out = case_fold == fold_number
        fold_model = fit_parts(
            trace_signals.score[:, ~is_held_out],
            trace_signals.right[~is_held_out],
            trace_signals.names,
        )
        held_out_logits[is_held_out] = fused_gate.logit(
            trace_signals.score[:, is_held_out], fold_model, trace_signals.names
        )
    judged_mask = ~np.isnan(held_out_logits)
    full_model = fit_parts(trace_signals.score, trace_signals.right, trace_signals.names)
    if not full_model.parts or not judged_mask.any():
        message = "a fused gate must find a signal that ranks right above wrong, got none."
        raise ValueError(message)
    # A fit is too sure of its own cases: the scale comes from cases that it did not see.
    slope, intercept = calibration.fit(
        trace_signals.right[judged_mask], held_out_logits[judged_mask], method="platt"
    ).weights
    model = fused_gate.rescale_logit(full_model, float(slope), float(intercept))
    p_correct = 1.0 / (1.0 + np.exp(-(slope * held_out_logits + intercept)))
    part_knots = {
        fold_model.signal: {"x": fold_model.x, "y": fold_model.y} for fold_model in model.parts
    }
    # By this fingerprint a study refuses the policy as a candidate on cases it was fitted on.
    fused_section = start_policy.fused.model_dump() | {
        "enabled": True,
        "bias": model.bias,
        "parts": part_knots,
    }
    fitted_queries = list(chain.from_iterable(queries_by_split.values()))
    fused_section["fitted_on"] = hash_queries(fitted_queries)
    quality = _quality(
        trace_signals.right[judged_mask],
        fused_gate.fused_probability(trace_signals.score, model, trace_signals.names)[judged_mask],
        p_correct[judged_mask],
    )
    fused_policy = with_scores_of(
        with_learned_cases(start_policy.replace("fused", fused_section), fitted_queries),
        tune_trace.meta,
    )
    return FittedGate(
        policy=fused_policy, model=model, p=p_correct, quality=quality, fitted_on=tune_trace
    )


def _group_folds(
    trace: TraceView,
    tune_trace: TraceView,
    groups: str | Sequence[object],
    is_right: BoolArray,
    folds: int,
    seed: int,
) -> IntArray:
    """Fold of each case of `tune_trace`, [Q], whole groups together.

    Not stratified, see `calibration.folds_of`.
    """
    case_groups = held_groups(trace, tune_trace, groups, "a fused gate")
    n_folds = min(folds, len(case_groups.names))
    rng = np.random.default_rng(seed)
    case_fold = calibration.folds_of(
        is_right, np.zeros(len(is_right)), folds=n_folds, groups=case_groups.number, rng=rng
    )
    unjudged_mask = ~is_judged(is_right, case_fold)
    if unjudged_mask.any():
        case_kind = "right" if is_right[unjudged_mask].any() else "wrong"
        message = (
            "groups must leave right and wrong cases in every fit of a fused gate, got all "
            f"{int(unjudged_mask.sum())} {case_kind} cases in one fold."
        )
        raise ValueError(message)
    for sentence in held_sentences(case_groups, folds):
        warn_user(sentence)
    return case_fold


@answered_traces("trace")
def compare_gates(
    trace: TraceView,
    policy: Policy,
    *,
    arm: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    costs: metrics.Costs | None = None,
) -> pd.DataFrame:
    """A policy's fused gate against each signal and the published chain, on cases of `trace`.

    A gate answers where its signal is at least a threshold, and refuses else; the chain may also
    ask.

    Args:
      trace: in memory, or of shards.
      policy: with a fused gate.
      arm: of the trace; the first where not given.
      resamples: of the paired bootstrap.
      seed: of the resamples.
      costs: label -> outcome -> cost, see `metrics.cost_matrix`.

    Returns:
      A row a gate, the lowest AURC first: `AURC`; `difference` to the fused gate with a paired 95 %
        interval (positive: fused is better); `AUROC` of right against wrong; `coverage` at the
        published chain's risk, and `risk` and `expected_cost` at its coverage; `least_cost`, over
        all thresholds, chosen on these very cases, so it flatters.

    Raises:
      ValueError: the policy has no fused gate, or costs that mean nothing.

    Source: rules S2.14, S6.7.
    """
    import pandas as pd

    if policy.fused_model is None:
        message = "gates can be compared only with a fused one, got a policy without; fit one."
        raise ValueError(message)
    check_recorded(trace, policy, arm, "a comparison of gates")
    trace_signals = case_signals(trace, policy, arm)
    gate_values = dict(zip(trace_signals.names, trace_signals.score, strict=True))
    gate_values[FUSED_GATE] = fused_gate.fused_probability(
        trace_signals.score, policy.fused_model, trace_signals.names
    )
    cost_table = metrics.cost_matrix(costs)
    case_labels = np.concatenate([label_codes(cases) for cases in cases_by_shard(trace)])
    label_numbers = check_labelled(case_labels).astype(np.int64)
    # Gates compare at one coverage or one risk only; the published chain states which.
    chain_rates = replay.sweep(trace, [published_policy(policy)], arm=arm, costs=costs).iloc[0]
    chain_risk = float(chain_rates["hallucination_rate"])
    chain_coverage = float(chain_rates["coverage"])
    gate_rows: list[dict[str, Any]] = []
    for gate_name, signal_values in gate_values.items():
        scored_cases = (trace_signals.right, signal_values)
        auroc_low, auroc_high = metrics.auroc_interval(*scored_cases)
        gate_row: dict[str, Any] = {"gate": gate_name, "AURC": metrics.aurc(*scored_cases)}
        if gate_name != FUSED_GATE:
            # The same seed for every gate, so that all differences are of the same resamples.
            rng = np.random.default_rng(seed)
            difference_interval = metrics.aurc_difference(
                *scored_cases, gate_values[FUSED_GATE], resamples=resamples, rng=rng
            )
            gate_row |= {
                "difference": difference_interval.value,
                "low": difference_interval.low,
                "high": difference_interval.high,
            }
        curve_coverage, curve_costs = _cost_curve(label_numbers, *scored_cases, cost_table)
        curve_index = min(
            int(np.searchsorted(curve_coverage, chain_coverage)), len(curve_costs) - 1
        )
        gate_rows.append(
            gate_row
            | {
                "AUROC": metrics.auroc(*scored_cases),
                "AUROC_low": float(auroc_low),
                "AUROC_high": float(auroc_high),
                "coverage": np.nan
                if np.isnan(chain_risk)
                else metrics.coverage_at_risk(*scored_cases, chain_risk),
                "risk": metrics.risk_at_coverage(*scored_cases, chain_coverage)
                if chain_coverage
                else np.nan,
                "expected_cost": float(curve_costs[curve_index]),
                "least_cost": float(curve_costs.min()),
            }
        )
    # The chain is a point and not a curve, so it has no AURC.
    chain_row = {
        "gate": PUBLISHED_CHAIN,
        "AURC": np.nan,
        "coverage": chain_coverage,
        "risk": chain_risk,
    }
    gate_rows.append(chain_row | {"expected_cost": float(chain_rates["expected_cost"])})
    return pd.DataFrame(gate_rows).sort_values("AURC", kind="stable", ignore_index=True)


def _cost_curve(
    label_numbers: IntArray,
    is_right: BoolArray,
    signal_values: FloatArray,
    cost_table: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Coverage and expected cost of one gate, [N], from refusing all to its lowest threshold."""
    n_answered = np.concatenate([[0], metrics.risk_coverage(is_right, signal_values).n])
    # Cases by label and whether they are right if answered, counted from the surest down: whole
    # numbers, so that no cost depends on the order of the cases.
    case_kind = label_numbers * 2 + is_right
    case_order = np.argsort(
        np.where(np.isnan(signal_values), np.inf, -signal_values), kind="stable"
    )
    passing_cells = np.concatenate(
        [
            np.zeros((1, 6), dtype=np.int64),
            np.eye(6, dtype=np.int64)[case_kind[case_order]].cumsum(axis=0),
        ]
    )
    cells = np.zeros((len(n_answered), metrics.N_CELLS), dtype=np.int64)
    cells[:, : metrics.CELLS] = passing_cells[n_answered]
    cells[:, metrics.CELLS : 2 * metrics.CELLS] = passing_cells[-1] - passing_cells[n_answered]
    return n_answered / len(label_numbers), np.asarray(metrics.expected_cost(cells, cost_table))


def fit_boosting(
    signals: FloatArray, is_right: BoolArray, signal_names: Sequence[str] = SIGNALS
) -> Model:
    """Gradient boosting of monotone trees with one split each, read out as one polyline a signal.

    Args:
      signals: [S, Q].
      is_right: [Q].
      signal_names: of the signals, [S].
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    used_signals = [
        signal_row
        for signal_row, signal_values in enumerate(signals)
        if len(np.unique(signal_values[~np.isnan(signal_values)])) > 1
    ]
    if not used_signals:
        message = "a fused gate needs a signal that varies, got none."
        raise ValueError(message)
    # A missing value counts as the lowest: missing never speaks for an answer.
    design_matrix = np.stack(
        [
            np.where(
                np.isnan(signals[signal_row]), np.nanmin(signals[signal_row]), signals[signal_row]
            )
            for signal_row in used_signals
        ],
        axis=1,
    )
    case_order = np.lexsort((is_right, *design_matrix.T[::-1]))
    trees = HistGradientBoostingClassifier(
        max_iter=150,
        learning_rate=0.1,
        max_leaf_nodes=2,
        min_samples_leaf=MIN_GATE_CASES,
        monotonic_cst=[1] * len(used_signals),
        early_stopping=False,
        random_state=0,
    )
    lowest_values = design_matrix.min(axis=0)
    model_parts = []
    # several wait for each other, and cost more than they bring
    with threadpool_limits(1, user_api="openmp"):
        trees.fit(design_matrix[case_order], is_right[case_order])
        base_logit = float(trees.decision_function(lowest_values[None])[0])
        # Trees of one split add up, so what one signal adds is what moving it alone changes.
        for design_column, signal_row in enumerate(used_signals):
            signal_levels = np.unique(design_matrix[:, design_column])
            probe_cases = np.tile(lowest_values, (len(signal_levels), 1))
            probe_cases[:, design_column] = signal_levels
            y = np.maximum.accumulate(trees.decision_function(probe_cases) - base_logit)
            # Between two steps nothing changes: their ends alone make the polyline of the policy.
            step_ends = np.flatnonzero(np.diff(y) > 0)
            knot_places = np.unique(np.concatenate([[0], step_ends, step_ends + 1]))
            if len(step_ends):
                model_parts.append(
                    Part(
                        signal_names[signal_row],
                        tuple(signal_levels[knot_places].tolist()),
                        tuple(y[knot_places].tolist()),
                    )
                )
    return Model(base_logit, tuple(model_parts))


def _quality(is_right: BoolArray, in_sample: FloatArray, cross_fitted: FloatArray) -> pd.DataFrame:
    """Calibration of the probabilities in sample, which flatters, and cross-fitted."""
    import pandas as pd

    rows = []
    for sample_name, p_correct in (("in sample", in_sample), ("cross-fitted", cross_fitted)):
        brier_parts = calibration.brier_decomposition(is_right, p_correct)
        columns = (
            calibration.ece(is_right, p_correct),
            calibration.smooth_ece(is_right, p_correct),
            brier_parts.score,
        )
        score_parts = (brier_parts.mcb, brier_parts.dsc, brier_parts.unc)
        rows.append((sample_name, *columns, *score_parts, metrics.aurc(is_right, p_correct)))
    column_names = ["probabilities", "ECE", "smooth ECE", "Brier", "MCB", "DSC", "UNC", "AURC"]
    return pd.DataFrame(rows, columns=column_names)


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedAnswers(Result):
    """policy: with the fitted curve.

    Outcomes: a row a case of the split it was fitted on, see `answer_outcomes`.
    """

    policy: Policy
    outcomes: pd.DataFrame
    TABLE: ClassVar[str] = "outcomes"

    def _summary(self) -> Summary:
        n_right = int(self.outcomes["right"].sum())
        facts = [
            ("policy", self.policy.policy_id),
            ("right", f"{n_right:,} of {len(self.outcomes):,}"),
        ]
        return Summary(facts, {"answers": self.outcomes})


@answered_traces("trace")
def answer_outcomes(trace: TraceView, policy: Policy, *, arm: str | None = None) -> pd.DataFrame:
    """The generator's answer to each case if nothing refuses, and whether it is right.

    Right is an answer to a question whose label is ok, from hits that hold the expected sources,
    that the basis of the trace calls right (rule S6.3); where a case is not judged by its answer,
    the sources decide. It is what `decide` calls correct: as many rows are right as cases labelled
    ok that `always_answer` has correct.

    Args:
      trace: with answers; see `record_answers`; in memory, or of shards, one of which is in memory
        at a time.
      policy: the policy whose hits and calibration are used.
      arm: of the trace; the first where not given.

    Returns:
      `case_id`, `label`, `answer`, `raw` (the generator's own confidence, NaN where it has none),
        `confidence` (after the policy's calibration), `support`, `right`, `undecided` (nobody can
        tell, which is not right), `basis` (of the case); without the cases that got no answer.

    Raises:
      ValueError: the trace holds no answers.
    """
    shard_frames = list(each_shard(shard_outcomes, trace, policy, arm, what="outcomes"))
    # an empty one has no types
    return join_frames(
        [shard_frame for shard_frame in shard_frames if len(shard_frame)] or shard_frames[:1]
    )


def shard_outcomes(trace: TraceData, policy: Policy, arm: str | None) -> pd.DataFrame:
    """`answer_outcomes` of one trace in memory; pure, so that any worker may judge a shard."""
    import pandas as pd

    if trace.answers is None:
        message = "a calibration needs answers, got none; record them with raglab.record_answers."
        raise ValueError(message)
    check_labelled(label_codes(trace.cases))
    free_policy = always_answer(policy).replace(
        "refine.max_depth", 0, "generation.calibration", policy.generation.calibration
    )
    decisions = decide(trace, free_policy, arm=arm)
    evidence, judging_basis, outcome_rows = decisions.tables.evidence, decisions.basis.by, []
    for case_index, case in enumerate(trace.cases):
        case_answer = decisions.answer(case_index)
        if case_answer is None or case_answer.refused:
            continue
        hit_slot = int(decisions.outcome.slot[case_index])
        hit_depth = int(decisions.outcome.depth[case_index])
        is_right = case.expect_status == Status.ok.name and bool(
            evidence.right[hit_depth, hit_slot, case_index]
        )
        outcome_rows.append(
            (
                case.id,
                case.expect_status,
                case_answer.text,
                case_answer.confidence,
                float(evidence.generation[hit_depth, hit_slot, case_index]),
                case_answer.support,
                is_right,
                bool(evidence.undecided[hit_depth, hit_slot, case_index]),
                judging_basis if evidence.by_text[case_index] else SOURCES,
            )
        )
    column_names = [
        "case_id",
        "label",
        "answer",
        "raw",
        "confidence",
        "support",
        "right",
        "undecided",
    ]
    return pd.DataFrame(outcome_rows, columns=[*column_names, "basis"])


@answered_traces("trace")
def calibrate_answers(
    trace: TraceView, policy: Policy, *, arm: str | None = None
) -> CalibratedAnswers:
    """Policy whose `generation.calibration` maps confidence to the probability of being right.

    The confidence is the generator's.

    Answers without a confidence are left out. Fit it on the tune split and judge it on the report
    split: `answer_outcomes(report, fitted.policy)`.

    Args:
      trace: with answers; see `record_answers`.
      policy: the policy that gets the calibration.
      arm: of the trace; the first where not given.

    Raises:
      ValueError: the trace holds no answers, none of them carries a confidence, or fewer than 10
        with one are right, or wrong.
    """
    uncalibrated_policy = policy.replace("generation.calibration", None)
    case_answers = answer_outcomes(trace, uncalibrated_policy, arm=arm)
    outcomes = case_answers[case_answers["raw"].notna()].reset_index(drop=True)
    if outcomes.empty:
        refuse(
            "a calibration needs answers with a confidence",
            f"0 of {len(case_answers)}",
            'record others, or switch the gate off: policy.replace("generation.enabled", False)',
        )
    is_right = outcomes["right"].to_numpy(dtype=bool)
    check_kinds(is_right, CALIBRATION_NEEDS, "right answers with a confidence")
    x, y = fit_answer_confidence(outcomes["raw"].to_numpy(), is_right)
    calibration_knots = {
        "x": x,
        "y": y,
        "fitted_on": hash_cases(chain.from_iterable(cases_by_shard(trace))),
    }
    return CalibratedAnswers(policy.replace("generation.calibration", calibration_knots), outcomes)


class Cosines(NamedTuple):
    """Each case's best cosine of first hits, or NaN, and whether right if answered, [Q] each."""

    best: FloatArray
    right: BoolArray


def shard_cosines(trace: TraceData, policy: Policy, arm: str | None) -> Cosines:
    """Cosines of one trace in memory; pure, so that any worker may measure a shard."""
    hits = trace.hits
    arm_index = trace.arm(trace.arms[0] if arm is None else arm)
    hit_order = arm_order(hits.rank[:, arm_index, 0], hits.chunk[:, arm_index, 0].astype(np.int64))
    best_cosine = np.fmax.reduce(
        first_by_rank(hits.cosine[:, arm_index, 0], hit_order, policy.chosen.final_k), axis=0
    )
    return Cosines(best_cosine, shard_case_signals(trace, policy, arm).right)


@answered_traces("trace")
def calibrate_cosine(trace: TraceView, policy: Policy, *, arm: str | None = None) -> Policy:
    """Policy whose confidence falls back to the cosine if the reranker breaks (rule S2.8).

    The cosine is calibrated on a trace.

    The map from the best cosine of the first hits to the probability of being right, if answered,
    is Platt's, read off at quantiles of the cosine. It belongs to the encoder: fit it on the tune
    split of a trace of the same encoder.

    Args:
      trace: in memory, or of shards, one of which is in memory at a time.
      policy: the policy that gets the calibrated cosine.
      arm: of the trace; the first where not given.

    Raises:
      ValueError: fewer than 10 cases are right, or wrong, the cosine ranks against the labels, or
        too many answers are missing of cases judged by text.
    """
    check_recorded(trace, policy, arm, "the cosine")
    best_cosine, is_right = join_columns(
        each_shard(shard_cosines, trace, policy, arm, what="measure")
    )
    present_mask = ~np.isnan(best_cosine)
    check_kinds(is_right[present_mask], CALIBRATION_NEEDS, "right cases with a cosine")
    platt_fit = calibration.fit(is_right[present_mask], best_cosine[present_mask], method="platt")
    if not (slope := platt_fit.weights[0]) > 0.0:
        message = (
            f"the cosine must rank right above wrong, got slope {slope:g}; keep fallback: hybrid."
        )
        raise ValueError(message)
    x = np.unique(
        np.quantile(best_cosine[present_mask], np.linspace(0.0, 1.0, MAX_KNOTS)).round(
            FITTED_DIGITS
        )
    )
    y = calibration.apply(platt_fit, x).round(FITTED_DIGITS)
    calibration_knots = {
        "x": tuple(x.tolist()),
        "y": tuple(y.tolist()),
        "fitted_on": hash_cases(chain.from_iterable(cases_by_shard(trace))),
    }
    return with_scores_of(
        policy.replace(
            "confidence.fallback", "cosine", "confidence.calibration", calibration_knots
        ),
        trace.meta,
    )
