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
from raglab.lab.arrays import BoolArray, FloatArray, IntArray
from raglab.lab.decision_fitting import check_kinds, tune_cases
from raglab.lab.held_out_groups import held_groups, held_sentences, is_judged
from raglab.lab.untuned_policies import always_answer, published_policy
from raglab.progress import progress
from raglab.replay import cases_by_shard, decide, each_shard, join_columns
from raglab.signals import NAMES, SIGNALS
from raglab.store.policies import Policy
from raglab.store.records import hash_cases
from raglab.values import Status, TraceData, check_labelled, label_codes, refuse
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["logistic", "boosting"]
Fit = Callable[[FloatArray, BoolArray, Sequence[str]], Model]
SURER = ("surer",)  # direction of the signals that a fused gate is fitted on
LEAST = 20  # cases of each kind that a fused gate must see
CALIBRATION = "a calibration needs"
CHAIN, FUSED = "published chain", "fused"


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
        parts = [(part.signal, min(part.y), max(part.y)) for part in self.model.parts]
        adds = pd.DataFrame(parts, columns=["signal", "least", "most"])
        return Summary(facts, {"calibration": self.quality, "added to the logit": adds})


def case_signals(
    trace: TraceView, policy: Policy, arm: str | None = None, *, directions: Sequence[str] = SURER
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
    parts = list(each_shard(shard_case_signals, trace, policy, arm, directions, what="measure"))
    right = np.concatenate([part.right for part in parts])
    return Signals(np.concatenate([part.score for part in parts], axis=1), right, parts[0].names)


def shard_case_signals(
    trace: TraceData, policy: Policy, arm: str | None = None, directions: Sequence[str] = SURER
) -> Signals:
    """`case_signals` of one trace in memory; pure, so that any worker may measure a shard."""
    decisions = replay.decide(trace, always_answer(policy), arm=arm)
    can = decisions.status == Status.ok
    evidence = decisions.tables.evidence
    own = evidence.known.rows[len(NAMES) :]
    surer = (*SIGNALS, *(signal.name for signal in own if signal.direction == "surer"))
    asking = [signal.name for signal in own if signal.direction == "ask" and "ask" in directions]
    places = [evidence.known.place(name) for name in (*surer, *asking)]
    rows = evidence.signals[places, 0]
    rows[len(surer) :] *= -1.0
    names = (*surer, *(f"-{name}" for name in asking))
    return Signals(np.where(can, rows, np.nan), decisions.right & can, names)


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
        msg = f"folds must be at least 2, got {folds}; 5 is usual."
        raise ValueError(msg)
    start = policy if policy is not None else Policy.load()
    # Split tune alone: cases to certify or report on must stay unseen (rule S6.5).
    here = tune_cases(trace)
    check_recorded(here, start, arm, "a fused gate")
    signals = case_signals(here, start, arm)
    check_kinds(signals.right, "a fused gate must be fitted on", "right cases", LEAST)
    fits: dict[str, Fit] = {"logistic": fused_gate.fit_fusion, "boosting": fit_boosting}
    if method not in fits:
        msg = f"method must be one of {', '.join(fits)}, got {method!r}."
        raise ValueError(msg)
    fit, by_split = fits[method], trace_queries(here)
    warn_of_held_back(by_split, "A fused gate")
    if groups is None:
        ids = [case.id for cases in cases_by_shard(here) for case in cases]
        named = np.argsort(np.argsort(ids))
        order = np.lexsort((named, signals.right, *signals.score[::-1]))  # not that of the rows
        fold = np.empty(len(order), dtype=np.int64)  # not stratified: see `calibration.folds_of`
        dealt = np.resize(np.arange(folds), len(order))
        fold[order] = np.random.default_rng(seed).permutation(dealt)
    else:
        fold = _group_folds(trace, here, groups, signals.right, folds, seed)
    held_out = np.full(len(fold), np.nan)
    for number in progress(range(int(fold.max()) + 1), "fit", "fold"):
        of = fold == number
        part = fit(signals.score[:, ~of], signals.right[~of], signals.names)
        held_out[of] = fused_gate.logit(signals.score[:, of], part, signals.names)
    known = ~np.isnan(held_out)
    whole = fit(signals.score, signals.right, signals.names)
    if not whole.parts or not known.any():
        msg = "a fused gate must find a signal that ranks right above wrong, got none."
        raise ValueError(msg)
    # A fit is too sure of its own cases: the scale comes from cases that it did not see.
    slope, intercept = calibration.fit(
        signals.right[known], held_out[known], method="platt"
    ).weights
    model = fused_gate.rescale_logit(whole, float(slope), float(intercept))
    p = 1.0 / (1.0 + np.exp(-(slope * held_out + intercept)))
    parts = {part.signal: {"x": part.x, "y": part.y} for part in model.parts}
    # By this fingerprint a study refuses the policy as a candidate on cases it was fitted on.
    section = start.fused.model_dump() | {"enabled": True, "bias": model.bias, "parts": parts}
    queries = list(chain.from_iterable(by_split.values()))
    section["fitted_on"] = hash_queries(queries)
    quality = _quality(
        signals.right[known],
        fused_gate.fused_probability(signals.score, model, signals.names)[known],
        p[known],
    )
    fused = with_scores_of(with_learned_cases(start.replace("fused", section), queries), here.meta)
    return FittedGate(policy=fused, model=model, p=p, quality=quality, fitted_on=here)


def _group_folds(
    trace: TraceView,
    here: TraceView,
    groups: str | Sequence[object],
    right: BoolArray,
    folds: int,
    seed: int,
) -> IntArray:
    """Fold of each case of `here`, [Q], whole groups together.

    Not stratified, see `calibration.folds_of`.
    """
    held = held_groups(trace, here, groups, "a fused gate")
    n_folds = min(folds, len(held.names))
    rng = np.random.default_rng(seed)
    fold = calibration.folds_of(
        right, np.zeros(len(right)), folds=n_folds, groups=held.number, rng=rng
    )
    alone = ~is_judged(right, fold)
    if alone.any():
        kind = "right" if right[alone].any() else "wrong"
        msg = (
            "groups must leave right and wrong cases in every fit of a fused gate, got all "
            f"{int(alone.sum())} {kind} cases in one fold."
        )
        raise ValueError(msg)
    for sentence in held_sentences(held, folds):
        warn_user(sentence)
    return fold


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
        msg = "gates can be compared only with a fused one, got a policy without; fit one."
        raise ValueError(msg)
    check_recorded(trace, policy, arm, "a comparison of gates")
    signals = case_signals(trace, policy, arm)
    gates = dict(zip(signals.names, signals.score, strict=True))
    gates[FUSED] = fused_gate.fused_probability(signals.score, policy.fused_model, signals.names)
    matrix = metrics.cost_matrix(costs)
    codes = np.concatenate([label_codes(cases) for cases in cases_by_shard(trace)])
    label = check_labelled(codes).astype(np.int64)
    # Gates compare at one coverage or one risk only; the published chain states which.
    chain = replay.sweep(trace, [published_policy(policy)], arm=arm, costs=costs).iloc[0]
    risk, coverage = float(chain["hallucination_rate"]), float(chain["coverage"])
    rows: list[dict[str, Any]] = []
    for name, values in gates.items():
        scored = (signals.right, values)
        low, high = metrics.auroc_interval(*scored)
        row: dict[str, Any] = {"gate": name, "AURC": metrics.aurc(*scored)}
        if name != FUSED:
            # The same seed for every gate, so that all differences are of the same resamples.
            rng = np.random.default_rng(seed)
            ends = metrics.aurc_difference(*scored, gates[FUSED], resamples=resamples, rng=rng)
            row |= {"difference": ends.value, "low": ends.low, "high": ends.high}
        share, paid = _cost_curve(label, *scored, matrix)
        place = min(int(np.searchsorted(share, coverage)), len(paid) - 1)
        rows.append(
            row
            | {
                "AUROC": metrics.auroc(*scored),
                "AUROC_low": float(low),
                "AUROC_high": float(high),
                "coverage": np.nan if np.isnan(risk) else metrics.coverage_at_risk(*scored, risk),
                "risk": metrics.risk_at_coverage(*scored, coverage) if coverage else np.nan,
                "expected_cost": float(paid[place]),
                "least_cost": float(paid.min()),
            }
        )
    # The chain is a point and not a curve, so it has no AURC.
    point = {"gate": CHAIN, "AURC": np.nan, "coverage": coverage, "risk": risk}
    rows.append(point | {"expected_cost": float(chain["expected_cost"])})
    return pd.DataFrame(rows).sort_values("AURC", kind="stable", ignore_index=True)


def _cost_curve(
    label: IntArray,
    right: BoolArray,
    values: FloatArray,
    matrix: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Coverage and expected cost of one gate, [N], from refusing all to its lowest threshold."""
    answered = np.concatenate([[0], metrics.risk_coverage(right, values).n])
    # Cases by label and whether they are right if answered, counted from the surest down: whole
    # numbers, so that no cost depends on the order of the cases.
    kind = label * 2 + right
    order = np.argsort(np.where(np.isnan(values), np.inf, -values), kind="stable")
    passing = np.concatenate(
        [np.zeros((1, 6), dtype=np.int64), np.eye(6, dtype=np.int64)[kind[order]].cumsum(axis=0)]
    )
    cells = np.zeros((len(answered), metrics.N_CELLS), dtype=np.int64)
    cells[:, : metrics.CELLS] = passing[answered]
    cells[:, metrics.CELLS : 2 * metrics.CELLS] = passing[-1] - passing[answered]
    return answered / len(label), np.asarray(metrics.expected_cost(cells, matrix))


def fit_boosting(signals: FloatArray, right: BoolArray, names: Sequence[str] = SIGNALS) -> Model:
    """Gradient boosting of monotone trees with one split each, read out as one polyline a signal.

    Args:
      signals: [S, Q].
      right: [Q].
      names: of the signals, [S].
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    used = [
        row for row, values in enumerate(signals) if len(np.unique(values[~np.isnan(values)])) > 1
    ]
    if not used:
        msg = "a fused gate needs a signal that varies, got none."
        raise ValueError(msg)
    # A missing value counts as the lowest: missing never speaks for an answer.
    design = np.stack(
        [np.where(np.isnan(signals[row]), np.nanmin(signals[row]), signals[row]) for row in used],
        axis=1,
    )
    order = np.lexsort((right, *design.T[::-1]))
    trees = HistGradientBoostingClassifier(
        max_iter=150,
        learning_rate=0.1,
        max_leaf_nodes=2,
        min_samples_leaf=LEAST,
        monotonic_cst=[1] * len(used),
        early_stopping=False,
        random_state=0,
    )
    first, parts = design.min(axis=0), []
    # several wait for each other, and cost more than they bring
    with threadpool_limits(1, user_api="openmp"):
        trees.fit(design[order], right[order])
        bias = float(trees.decision_function(first[None])[0])
        # Trees of one split add up, so what one signal adds is what moving it alone changes.
        for column, row in enumerate(used):
            levels = np.unique(design[:, column])
            probe = np.tile(first, (len(levels), 1))
            probe[:, column] = levels
            y = np.maximum.accumulate(trees.decision_function(probe) - bias)
            # Between two steps nothing changes: their ends alone make the polyline of the policy.
            ends = np.flatnonzero(np.diff(y) > 0)
            knots = np.unique(np.concatenate([[0], ends, ends + 1]))
            if len(ends):
                parts.append(
                    Part(names[row], tuple(levels[knots].tolist()), tuple(y[knots].tolist()))
                )
    return Model(bias, tuple(parts))


def _quality(right: BoolArray, in_sample: FloatArray, cross_fitted: FloatArray) -> pd.DataFrame:
    """Calibration of the probabilities in sample, which flatters, beside cross-fitted."""
    import pandas as pd

    rows = []
    for name, p in (("in sample", in_sample), ("cross-fitted", cross_fitted)):
        brier = calibration.brier_decomposition(right, p)
        errors = (calibration.ece(right, p), calibration.smooth_ece(right, p), brier.score)
        parts = (brier.mcb, brier.dsc, brier.unc)
        rows.append((name, *errors, *parts, metrics.aurc(right, p)))
    names = ["probabilities", "ECE", "smooth ECE", "Brier", "MCB", "DSC", "UNC", "AURC"]
    return pd.DataFrame(rows, columns=names)


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedAnswers(Result):
    """policy: with the fitted curve.

    Outcomes: a row a case of the split it was fitted on, see `answer_outcomes`.
    """

    policy: Policy
    outcomes: pd.DataFrame
    TABLE: ClassVar[str] = "outcomes"

    def _summary(self) -> Summary:
        right = int(self.outcomes["right"].sum())
        facts = [
            ("policy", self.policy.policy_id),
            ("right", f"{right:,} of {len(self.outcomes):,}"),
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
    frames = list(each_shard(shard_outcomes, trace, policy, arm, what="outcomes"))
    # an empty one has no types
    return join_frames([frame for frame in frames if len(frame)] or frames[:1])


def shard_outcomes(trace: TraceData, policy: Policy, arm: str | None) -> pd.DataFrame:
    """`answer_outcomes` of one trace in memory; pure, so that any worker may judge a shard."""
    import pandas as pd

    if trace.answers is None:
        msg = "a calibration needs answers, got none; record them with raglab.record_answers."
        raise ValueError(msg)
    check_labelled(label_codes(trace.cases))
    free = always_answer(policy).replace(
        "refine.max_depth", 0, "generation.calibration", policy.generation.calibration
    )
    decisions = decide(trace, free, arm=arm)
    evidence, basis, rows = decisions.tables.evidence, decisions.basis.by, []
    for row, case in enumerate(trace.cases):
        answer = decisions.answer(row)
        if answer is None or answer.refused:
            continue
        slot, depth = int(decisions.outcome.slot[row]), int(decisions.outcome.depth[row])
        is_right = case.expect_status == Status.ok.name and bool(evidence.right[depth, slot, row])
        rows.append(
            (
                case.id,
                case.expect_status,
                answer.text,
                answer.confidence,
                float(evidence.generation[depth, slot, row]),
                answer.support,
                is_right,
                bool(evidence.undecided[depth, slot, row]),
                basis if evidence.by_text[row] else SOURCES,
            )
        )
    names = ["case_id", "label", "answer", "raw", "confidence", "support", "right", "undecided"]
    return pd.DataFrame(rows, columns=[*names, "basis"])


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
    plain = policy.replace("generation.calibration", None)
    answers = answer_outcomes(trace, plain, arm=arm)
    outcomes = answers[answers["raw"].notna()].reset_index(drop=True)
    if outcomes.empty:
        refuse(
            "a calibration needs answers with a confidence",
            f"0 of {len(answers)}",
            'record others, or switch the gate off: policy.replace("generation.enabled", False)',
        )
    right = outcomes["right"].to_numpy(dtype=bool)
    check_kinds(right, CALIBRATION, "right answers with a confidence")
    x, y = fit_answer_confidence(outcomes["raw"].to_numpy(), right)
    knots = {"x": x, "y": y, "fitted_on": hash_cases(chain.from_iterable(cases_by_shard(trace)))}
    return CalibratedAnswers(policy.replace("generation.calibration", knots), outcomes)


class Cosines(NamedTuple):
    """Each case's best cosine of first hits, or NaN, and whether right if answered, [Q] each."""

    best: FloatArray
    right: BoolArray


def shard_cosines(trace: TraceData, policy: Policy, arm: str | None) -> Cosines:
    """Cosines of one trace in memory; pure, so that any worker may measure a shard."""
    hits, at = trace.hits, trace.arm(trace.arms[0] if arm is None else arm)
    order = arm_order(hits.rank[:, at, 0], hits.chunk[:, at, 0].astype(np.int64))
    best = np.fmax.reduce(
        first_by_rank(hits.cosine[:, at, 0], order, policy.chosen.final_k), axis=0
    )
    return Cosines(best, shard_case_signals(trace, policy, arm).right)


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
    best, right = join_columns(each_shard(shard_cosines, trace, policy, arm, what="measure"))
    known = ~np.isnan(best)
    check_kinds(right[known], CALIBRATION, "right cases with a cosine")
    fitted = calibration.fit(right[known], best[known], method="platt")
    if not (slope := fitted.weights[0]) > 0.0:
        msg = f"the cosine must rank right above wrong, got slope {slope:g}; keep fallback: hybrid."
        raise ValueError(msg)
    x = np.unique(np.quantile(best[known], np.linspace(0.0, 1.0, MAX_KNOTS)).round(FITTED_DIGITS))
    y = calibration.apply(fitted, x).round(FITTED_DIGITS)
    knots = {
        "x": tuple(x.tolist()),
        "y": tuple(y.tolist()),
        "fitted_on": hash_cases(chain.from_iterable(cases_by_shard(trace))),
    }
    return with_scores_of(
        policy.replace("confidence.fallback", "cosine", "confidence.calibration", knots), trace.meta
    )
