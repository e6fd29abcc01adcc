"""Thresholds after an upgrade (shore): mapped, certified again, judged (S6.1, S6.4, S6.10).

They are mapped on split tune and judged on report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import may_be_judged
from raglab.decision.learned_cases import (
    HELD_BACK_SPLITS,
    Learned,
    hash_queries,
    learned_cases,
    trace_queries,
    with_further_cases,
    with_scores_of,
)
from raglab.decision.measurement import measured_tables
from raglab.decision.score_directions import ScoredCases
from raglab.decision.scoring import trace_basis
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.decision.trace_view import TraceView, answered_traces, held_trace
from raglab.gates import GATES, Threshold
from raglab.lab.answer_basis import basis_conflict
from raglab.lab.carried_labels import Validity, label_key, label_validity
from raglab.lab.certificate_checks import Retest, retest
from raglab.lab.certification import certify_alone, pilot_trace
from raglab.lab.certification_counts import (
    COST,
    CertificationSettings,
    checked_settings,
    pilot_counts,
)
from raglab.lab.certification_families import grid
from raglab.lab.certification_words import Certification, need_line
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import fit_fused_gate
from raglab.lab.looks import (
    Reuse,
    certificate_defect,
    chosen_among,
    look_divisor,
    recorded_looks,
    stated_corners,
    stated_mix,
    stated_targets,
)
from raglab.lab.trace_comparison import paired_arms
from raglab.metrics.mixes import TrafficMix
from raglab.policy_parts.acting import acting_gates
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import cases_by_shard, decide_policies, each_shard
from raglab.replaying.breakpoints import SWEPT, swept_paths, threshold_values
from raglab.signals import SignalSet
from raglab.store.policies import Policy
from raglab.values import Case, Status, TraceData, label_codes
from raglab.words.characters import plain_question
from raglab.words.html_display import Cell
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Method = Literal["quantile", "refit"]
MIN_OK_QUESTIONS = 20  # questions labelled ok below which all questions are mapped on
UNMEASURED, OUTSIDE, BOUNDED, REFITTED = "unmeasured", "outside", "bounded", "refitted"
UNRECORDED_LOOKS = (
    "Without looks= neither a failed look nor an earlier choice on these cases is known."
)
RESCALED_COLUMNS = [
    "path",
    "from",
    "to",
    "passes_from",
    "passes_to",
    "missing_from",
    "missing_to",
    "note",
]
DEFAULT_DELTA = 0.1  # error of the promise where nothing states another


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RescaledThresholds(Result):
    """A policy for another encoder, reranker, chunking, index, model or arm, and its promises.

    Attributes:
      policy: with its certificate where it is certified, else without one.
      table: a row a threshold: `path`, `from`, `to`; of the questions that it was mapped on the
        shares that pass, `passes_from` and `passes_to`, and that have no score, `missing_from` and
        `missing_to`; `note`: `unmeasured` where the signal is missing or constant in a trace and
        the threshold stays, `outside` where all or none of the old scores pass and so do the new
        ones, `bounded` where it was raised to the lower bound of its signal, `refitted` where it
        was chosen on the new cases, else empty.
      labels: whether the labels of each case of the new trace mean the same there, codes of
        `raglab.lab.carried_labels.Validity`, [Q]; an uncertain one is scored as it stands.
      certification: of the policy on split certify of the new trace; None where it was not tested.
      judged: its targets on split report of the new trace; None without that split or without
        targets.
      unmapped: the same of the policy with its old thresholds.
      missing: what a promise lacks, a sentence each.
      notes: what a reader must know, a sentence each.
    """

    policy: Policy
    table: pd.DataFrame
    labels: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    certification: Certification | None = None
    judged: Retest | None = None
    unmapped: Retest | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def look(self) -> int:
        """Number of this look at the certify questions, 0 where nothing was tested."""
        return self.certification.certificate.looks if self.certification else 0

    @property
    def delta(self) -> float:
        """Error that this look may spend; NaN where nothing was tested."""
        return self.certification.certificate.delta if self.certification else float("nan")

    @property
    def hypotheses(self) -> int:
        """Policies that the certify questions may have chosen; they divide delta for the test."""
        certification = self.certification
        return look_divisor(certification.certificate.hypotheses, self.look) if certification else 1

    @property
    def certified(self) -> bool:
        """Whether the policy carries a new certificate."""
        return self.certification is not None and self.certification.policy is not None

    def _summary(self) -> Summary:
        n_moved = int((self.table["from"] != self.table["to"]).sum())
        summary_facts: list[tuple[Cell | str, ...]] = [
            ("policy", self.policy.policy_id),
            ("moved", f"{n_moved} of {len(self.table)} thresholds"),
            ("certified", Cell("yes", mark="good") if self.certified else Cell("no", mark="bad")),
        ]
        if self.look:
            summary_facts += [("look", f"{self.look}"), ("delta", f"{self.delta:.3g}")]
            summary_facts.append(("hypotheses", f"{self.hypotheses:,}"))
        for fact_name, retest_result in (("on report", self.judged), ("unmapped", self.unmapped)):
            summary_facts += (
                [(fact_name, retest_result.verdict)] if retest_result is not None else []
            )
        for level in (Validity.uncertain, Validity.lost):
            n_cases = int((self.labels == level).sum())
            summary_facts += [(f"labels {level.name}", f"{n_cases:,}")] if n_cases else []
        return Summary(summary_facts, {"thresholds": self.table}, (*self.missing, *self.notes))


class Promised(NamedTuple):
    """What is to be promised.

    Targets, costs of `expected_cost`, and the budget delta.

    stated: the old certificate where valid, with the mix it states. defect: why the old certificate
    is not read, or nothing. mix: of the old certificate.
    """

    targets: dict[str, float]
    costs: metrics.Costs | None
    delta: float
    stated: Mapping[str, Any] | None
    defect: str
    mix: TrafficMix | None


class Mapped(NamedTuple):
    """A policy with its thresholds moved, the table of them, and what a reader must know."""

    policy: Policy
    table: pd.DataFrame
    notes: tuple[str, ...]
    missing: tuple[str, ...]


@answered_traces("trace", "to")
def rescale_thresholds(
    trace: TraceView,
    policy: Policy,
    *,
    to: TraceView,
    method: Method = "quantile",
    targets: Mapping[str, float] | None = None,
    delta: float | None = None,
    arm: str | None = None,
    to_arm: str | None = None,
    looks: str | Path | None = None,
) -> RescaledThresholds:
    """Policy for the same questions by another encoder, reranker, chunking, index, model or arm.

    Thresholds are mapped on split `tune` (without one, on all cases that are not of split certify
    or report), certified on split `certify` of `to` and judged on split `report` of `to`. What a
    promise lacks is stated in `missing`. A threshold stays as it is where the scores of both traces
    are the same, and where its signal is missing or constant in either trace; the column `note`
    says so. One that lies outside all old scores passes all or none of the new ones too. Gates that
    are off, counts of hits, and fits on answers or the cosine, are not mapped. Where the policy
    answers certify cases whose label is lost (see `raglab.lab.carried_labels`), nothing is
    certified.

    *Validity.* The null hypothesis is that the mapped policy breaks a target on the traffic that
    the certify cases are drawn from, retrieved as in `to`. Its p-value is that of `certify_policy`.
    Mapping never looks at the certify cases, so on cases of which nobody made a certificate the
    test is at delta. A certificate on the same cases is counted as a look; look j ≥ 2 may spend
    delta / (j (j − 1)), and these sum to delta. The old policy may have been chosen on the same
    cases among m candidates (`Certificate.hypotheses`; the most of all looks that the file holds,
    whether or not the policy carries the certificate): the mapped policy is then one of m, each
    fixed without these cases, and from which of the policies of looks 2 … j − 1 a later upgrade
    starts may depend on these cases too, in at most 2^(j − 2) ways. So the test is at delta / (j (j
    − 1) · m · 2^(j − 2)) (union bound). *Assumption:* what is tried at each look, and targets, do
    not depend on these cases in another way.

    Args:
      trace: the questions with the old hits; in memory, or of shards (`Trace.open`).
      policy: for the old hits.
      to: the same questions, labels and splits with the new hits; in memory, or of shards.
      method: `quantile`, the same share of the questions labelled ok passes (of all questions where
        fewer than 20 are labelled ok); `refit`, on the new cases alone the cheapest policy of
        `raglab.lab.certification_families.grid` whose p-value there is at most delta, else that of
        the lowest p-value, with its fused gate or decision model fitted again.
      targets: rate -> highest value; those of the policy's certificate where not given.
      delta: error of a promise on fresh cases, and of all later looks at them together, in (0,
        0.5); that of the policy's certificate where not given, else 0.1.
      arm: of `trace`; that of the policy's certificate where not given, else the first.
      to_arm: of `to`; where not given that of the same name, or the only one that there is.
      looks: file that remembers every look at the certify cases, as for `certify_policy`; without
        it a look that failed is forgotten, and so is among how many a policy without a certificate
        was chosen.

    Warns:
      UserWarning: the labels say that a score of `to` ranks the other way than the old one.

    Raises:
      ValueError: other questions, labels (of what decides correctness) or splits; a signal that is
        declared with another direction or unit; a fused gate or a decision model under `quantile`;
        `refit` without targets; settings that `certify_policy` refuses; a policy that learned from
        the certify cases; a signal of the user that `to` lacks; an arm of `to` that has to be
        guessed.

    Source: rules S6.1, S6.3, S6.4, S6.10.

    Example:
      `raglab.rescale_thresholds(trace, certified.policy, to=new_trace, looks="looks.jsonl")`.
    """
    certified_arm = (policy.certificate or {}).get("arm")
    old_arm = certified_arm if arm is None and certified_arm in trace.arms else arm
    arm_pair = paired_arms(trace, to, old_arm, to_arm, "to_arm")
    promise_terms = _promised(policy, targets, delta)
    fit_name = "a fused gate" if policy.fused.enabled else "a decision model"
    if method not in get_args(Method):
        msg = f"method must be one of {', '.join(get_args(Method))}, got {method!r}."
        raise ValueError(msg)
    if method == "refit" and not promise_terms.targets:
        msg = "refit must have targets to choose by, got none; state targets=."
        raise ValueError(msg)
    if method == "quantile" and (policy.fused.enabled or policy.decision.rule == EXPECTED_COST):
        msg = (
            f"{fit_name} can not be moved, got method {method!r}; method='refit', or switch it off."
        )
        raise ValueError(msg)
    # Mapping compares shares of the same questions: of others it would mean nothing.
    _check_same_cases(trace, to)
    validity = label_validity(trace, to)
    # Certify and report cases stay unseen until the policy is fixed.
    mapping_trace = _mapping_cases(to)
    mapping = _mapped_thresholds(_mapping_cases(trace), mapping_trace, policy, arm_pair)
    if method == "refit":
        mapping = _refitted(mapping_trace, mapping, promise_terms, arm_pair[1])
    moved_policy = with_scores_of(mapping.policy, mapping_trace.meta)
    # It remembers the cases its thresholds were mapped on beside others it remembers.
    if moved_policy.policy_id != policy.policy_id:
        moved_policy = with_further_cases(
            moved_policy, [case.query for case in _all_cases(mapping_trace)]
        )
    certification, missing_promises = _tested(
        to, policy, moved_policy, promise_terms, validity, arm_pair[1], looks
    )
    mapped_retest, old_retest, judging_notes = _judged(
        to, policy, moved_policy, promise_terms, arm_pair[1]
    )
    record_notes = (
        [UNRECORDED_LOOKS]
        if certification and certification.certificate.looks and looks is None
        else []
    )
    return RescaledThresholds(
        policy=(certification and certification.policy) or moved_policy,
        table=mapping.table,
        labels=validity,
        certification=certification,
        judged=mapped_retest,
        unmapped=old_retest,
        missing=(*mapping.missing, *missing_promises),
        notes=(*mapping.notes, *record_notes, *judging_notes),
    )


def _promised(policy: Policy, targets: Mapping[str, float] | None, delta: float | None) -> Promised:
    """Targets, costs and budget: those given, else those of the policy's certificate."""
    defect = certificate_defect(policy)
    valid_certificate = None if defect else policy.certificate
    certificate_fields = valid_certificate or {}
    declared_targets = stated_targets(certificate_fields) if targets is None else dict(targets)
    error_budget = (
        float(certificate_fields.get("budget", certificate_fields.get("delta", DEFAULT_DELTA)))
        if delta is None
        else delta
    )
    if declared_targets:
        checked_settings(declared_targets, certificate_fields.get("costs"), error_budget)
    metrics.check_delta(error_budget)
    outcome_costs = certificate_fields.get("costs") if COST in declared_targets else None
    defect_note = f"The old certificate is not read: {defect}" if defect else ""
    if "delta" in certificate_fields.get("mix", {}):
        defect_note = "The mix of the old certificate is an estimate; certify anew with it."
    return Promised(
        declared_targets,
        outcome_costs,
        error_budget,
        valid_certificate,
        defect_note,
        stated_mix(certificate_fields),
    )


def _all_cases(trace: TraceView) -> list[Case]:
    return list(chain.from_iterable(cases_by_shard(trace)))


def _check_same_cases(trace: TraceView, new_trace: TraceView) -> None:
    """Refuse traces of other questions, splits or labels, whatever the order of their rows."""
    trace_keys = [
        [
            (
                "\n".join((plain_question(case.query), *sorted(case.selected_sources))),
                case.split or "",
                repr(label_key(case)),
            )
            for case in _all_cases(view)
        ]
        for view in (trace, new_trace)
    ]
    key_checks = (
        ("questions and documents that the user named", "retrieve the same cases twice"),
        ("splits", "deal the splits before either trace is built"),
        ("labels", "correct sources, option and answers in both"),
    )
    for key_width, (subject, remedy) in enumerate(key_checks, 1):
        old_counts, new_counts = (
            Counter(case_key[:key_width] for case_key in case_keys) for case_keys in trace_keys
        )
        n_differing = max((old_counts - new_counts).total(), (new_counts - old_counts).total())
        if n_differing:
            first_example = " ".join(min((old_counts - new_counts) or (new_counts - old_counts)))
            msg = (
                f"trace and to must hold the same {subject}, got {n_differing:,} of "
                f"{len(trace_keys[0]):,} "
                f"cases that differ, such as {first_example!r:.200}; {remedy}."
            )
            raise ValueError(msg)


def _mapping_cases(trace: TraceView) -> TraceView:
    """Cases that thresholds are mapped on: split tune, else all that are not held back.

    Raises:
      ValueError: every case is held back.
    """
    view: Any = trace
    case_splits = [case.split for case in _all_cases(trace)]
    mapping_splits = {"tune"} if "tune" in case_splits else {*case_splits} - {*HELD_BACK_SPLITS}
    case_rows = [row for row, split in enumerate(case_splits) if split in mapping_splits]
    if case_splits and not case_rows:
        msg = (
            "thresholds must be mapped on cases of split tune or of none, got "
            f"{', '.join(sorted(map(str, {*case_splits})))} alone; give the whole trace."
        )
        raise ValueError(msg)
    mapping_trace: TraceView = (
        trace if len(case_rows) == len(case_splits) else view.subset(case_rows)
    )
    return mapping_trace


class Scores(NamedTuple):
    """What movable thresholds are compared with at depth 0, by path, [Q] each, more passes.

    Known: the signals.
    """

    by_path: dict[str, Array]
    known: SignalSet


def shard_scores(trace: TraceData, policy: Policy, arm: str | None) -> Scores:
    """Scores of one trace in memory that gates which act compare.

    Pure, so that any worker may measure a shard.
    """
    acting_names, decides_by_cost = acting_gates(policy), policy.decision.rule == EXPECTED_COST
    # A decision model does not act on thresholds, and would be refused on hits of another arm.
    policy = policy.replace("decision.rule", "chain") if decides_by_cost else policy
    thresholds, evidence = policy_thresholds([policy]), measured_tables(trace, policy, arm).evidence
    # fitted, or of the answers: no embedder's scale
    fixed_sections = {gate.name for gate in GATES if not gate.moved} | {"decision"}
    scores_by_path = {}
    for path, swept_threshold in swept_paths(evidence.known).items():
        is_acting = swept_threshold.section in acting_names or (
            swept_threshold.section == "resolver" and not decides_by_cost
        )
        if (
            swept_threshold.section in fixed_sections
            or not is_acting
            or swept_threshold.whole
            or policy.value(path) is None
        ):
            continue
        scores_by_path[path] = (
            _passes_above(swept_threshold) * threshold_values(evidence, thresholds, path, 0)[0]
        )
    return Scores(scores_by_path, evidence.known)


def _passes_above(swept_threshold: Threshold) -> float:
    """Sign that makes more of a score pass."""
    return 1.0 if swept_threshold.side == "floor" else -1.0


def _mapped_thresholds(
    old_trace: TraceView, new_trace: TraceView, policy: Policy, arm_pair: tuple[str, str]
) -> Mapped:
    """Policy whose thresholds are moved to the scores of the new cases."""
    import pandas as pd

    views = (old_trace, new_trace)
    old_scores, new_scores = (
        _scores(view, policy, arm) for view, arm in zip(views, arm_pair, strict=True)
    )
    label_pair = [label_codes(_all_cases(view)) for view in views]
    # Questions labelled ok are those that an answer may be lost of, so that their share is kept.
    ok_masks = [case_labels == Status.ok for case_labels in label_pair]
    notes, missing_notes, moved_values, table_rows = (
        [],
        list[str](),
        dict[str, float](),
        list[tuple[Any, ...]](),
    )
    if (n_ok := int(ok_masks[0].sum())) < MIN_OK_QUESTIONS:
        notes.append(
            f"Mapped on all {len(ok_masks[0]):,} questions: {n_ok} labelled ok are too few."
        )
        ok_masks = [np.ones_like(ok_mask) for ok_mask in ok_masks]
    thresholds = swept_paths(old_scores.known)
    _check_declared(old_scores, new_scores)
    for path, old_values in old_scores.by_path.items():
        swept_threshold, threshold_value = thresholds[path], float(policy.value(path))
        score_pair = (old_values, new_scores.by_path[path])
        old_ok, new_ok = (
            side_scores[ok_mask] for side_scores, ok_mask in zip(score_pair, ok_masks, strict=True)
        )
        missing_shares = [1.0 - np.isfinite(side_scores).mean() for side_scores in (old_ok, new_ok)]
        scores_by_side = (("old", old_ok), ("new", new_ok))
        unmapped_sides = [
            side
            for side, side_scores in scores_by_side
            if len(np.unique(side_scores[np.isfinite(side_scores)])) < 2
        ]
        # A constant signal has no order, so that no share of it can be kept.
        if unmapped_sides:
            table_rows.append(
                (
                    path,
                    threshold_value,
                    threshold_value,
                    np.nan,
                    np.nan,
                    *missing_shares,
                    UNMEASURED,
                )
            )
            if not _is_same(old_ok, new_ok):
                missing_notes.append(
                    f"{path} is not mapped: its signal is missing or constant in the "
                    f"{' and '.join(unmapped_sides)} trace."
                )
            continue
        _warn_of_turn(path, score_pair, label_pair)
        moved_value, note = _moved_value(
            swept_threshold, threshold_value, score_pair, old_ok, new_ok
        )
        lower_bound = moved_values.get(f"{swept_threshold.section}.min", -np.inf)
        # The upper bound of a signal must not fall below its lower one, or nothing could pass.
        if swept_threshold.signal and swept_threshold.key == "max" and lower_bound > moved_value:
            moved_value, note = lower_bound, BOUNDED
        moved_values[path] = moved_value
        sign = _passes_above(swept_threshold)
        pass_shares = [
            float((side_scores >= sign * side_value).mean())
            for side_scores, side_value in ((old_ok, threshold_value), (new_ok, moved_value))
        ]
        table_rows.append((path, threshold_value, moved_value, *pass_shares, *missing_shares, note))
    cosine_calibration = policy.confidence.fallback == "cosine" and policy.confidence.calibration
    if cosine_calibration and "confidence" in acting_gates(policy):
        notes.append("The calibrated cosine is not mapped: fit it by raglab.lab.calibrate_cosine.")
    if user_gates := policy_thresholds([policy]).own:
        notes.append(f"Own gates are not mapped: {', '.join(user_gates)}.")
    value_changes = (
        (path, threshold_value)
        for path, threshold_value in moved_values.items()
        if threshold_value != policy.value(path)
    )
    changed_policy = policy.replace(*chain.from_iterable(value_changes), "certificate", None)
    return Mapped(
        changed_policy,
        pd.DataFrame(table_rows, columns=RESCALED_COLUMNS),
        tuple(notes),
        tuple(missing_notes),
    )


def _warn_of_turn(
    path: str, score_pair: tuple[Array, Array], label_pair: list[NDArray[np.int8]]
) -> None:
    """Warn of a new score that ranks the wrong way round where the old one does not."""
    old_cases, new_cases = (
        ScoredCases.of_labels(*scores_and_labels)
        for scores_and_labels in zip(score_pair, label_pair, strict=True)
    )
    contradiction = new_cases.contradiction(f"the new score of {path}")
    if contradiction and old_cases.ranking().low > 0.5:
        warn_user(contradiction)


def _scores(view: TraceView, policy: Policy, arm: str) -> Scores:
    """Scores of all cases, by the path of their threshold."""
    parts = list(each_shard(shard_scores, view, policy, arm, what="measure"))
    threshold_paths = parts[0].by_path
    joined_scores = {
        path: np.concatenate([part.by_path[path] for part in parts]) for path in threshold_paths
    }
    return Scores(joined_scores, parts[0].known)


def _is_same(old_scores: Array, new_scores: Array) -> bool:
    """Whether the scores are the same, in any order."""
    return np.array_equal(np.sort(old_scores), np.sort(new_scores), equal_nan=True)


def _check_declared(old_scores: Scores, new_scores: Scores) -> None:
    """Refuse a signal of which more means something else in the new trace, or of another unit."""
    swept_thresholds = swept_paths(old_scores.known)
    for signal_name in {swept_thresholds[path].signal for path in old_scores.by_path} - {""}:
        signal_rows = [
            signal_set.signal(signal_name) for signal_set in (old_scores.known, new_scores.known)
        ]
        old_text, new_text = (
            f"higher {signal_row.direction!r} and unit {signal_row.unit.name!r}"
            for signal_row in signal_rows
        )
        if old_text != new_text:
            msg = (
                f"signal {signal_name} must have the same direction and unit in both traces, "
                f"got {old_text} "
                f"in trace, {new_text} in to; declare it alike, or name it apart."
            )
            raise ValueError(msg)


def _moved_value(
    swept_threshold: Threshold,
    old_value: float,
    score_pair: tuple[Array, Array],
    old_ok: Array,
    new_ok: Array,
) -> tuple[float, str]:
    """Threshold on the new scores within its range, and a note.

    One that judges nothing in the old ones stays so, and it stays where the scores are the same.

    Args:
      score_pair: old and new, of all questions.
      old_ok, new_ok: of those that it is mapped on.
    """
    sign = _passes_above(swept_threshold)
    signed_threshold, (loosest, strictest) = (
        sign * old_value,
        (swept_threshold.low, swept_threshold.high)[:: int(sign)],
    )
    old_finite, new_finite = (side_scores[np.isfinite(side_scores)] for side_scores in score_pair)
    if signed_threshold <= old_finite.min():
        return old_value if signed_threshold <= new_finite.min() else loosest, OUTSIDE
    if signed_threshold > old_finite.max():
        return old_value if signed_threshold > new_finite.max() else strictest, OUTSIDE
    moved_threshold = (
        signed_threshold
        if _is_same(old_ok, new_ok)
        else quantile_map(signed_threshold, old_ok, new_ok)
    )
    return old_value if moved_threshold == signed_threshold else float(
        np.clip(sign * moved_threshold, swept_threshold.low, swept_threshold.high)
    ), ""


def quantile_map(threshold: float, source: Array, target: Array) -> float:
    """Threshold on another embedder's score that answers the same share of the same queries.

    It needs no labels.

    "Answer where score >= threshold" answers m of the source's queries; returned is the level
    observed in the target that answers nearest to m, the higher of two that are equally near, or
    the next float above all of them where answering none is nearest. So ties are counted as they
    fall, and a higher threshold never maps to a lower one. A distance, where lower is surer, is
    mapped with its sign turned. The same share is not the same risk: a certificate does not carry
    over, test it again on labelled cases.

    Args:
      threshold: for the source, not NaN.
      source: scores of the queries by the first embedder, [Q]; NaN never answers.
      target: scores of the same queries by the second embedder, [Q]; NaN never answers.

    Raises:
      ValueError: no score in the target.

    Example:
      >>> quantile_map(0.7, np.array([0.5, 0.6, 0.7, 0.8]), np.array([20.0, 30.0, 40.0, 50.0]))
      40.0
    """
    target_levels, level_counts = np.unique(target[~np.isnan(target)], return_counts=True)
    if not len(target_levels):
        msg = "target must hold a score, got none; score the queries with its embedder."
        raise ValueError(msg)
    n_answered = int((np.asarray(source) >= threshold).sum())
    n_at_or_above = np.append(np.cumsum(level_counts[::-1])[::-1], 0)
    candidate_levels = np.append(target_levels, np.nextafter(target_levels[-1], np.inf))
    return float(candidate_levels[::-1][np.abs(n_at_or_above - n_answered)[::-1].argmin()])


def _refitted(new_trace: TraceView, mapping: Mapped, promise_terms: Promised, arm: str) -> Mapped:
    """Policy chosen on the new cases alone.

    The cheapest whose p-value is at most delta, else the least p-value. The table has the
    thresholds that the mapping moved, and those that the grid chose.
    """
    import pandas as pd

    # Models learned the old scores: they are fitted again before thresholds are chosen.
    start_policy, notes = mapping.policy, list(mapping.notes)
    if start_policy.decision.rule == EXPECTED_COST and start_policy.decision.model is not None:
        decision_model = start_policy.decision.model
        group_attribute = None if decision_model.groups is None else decision_model.groups.attribute
        start_policy = fit_decision(
            new_trace,
            start_policy,
            signals=tuple(decision_model.parts),
            group=group_attribute,
            arm=arm,
        )
        notes.append("The decision model is fitted again, with seed 0.")
    if start_policy.fused.enabled:
        start_policy = fit_fused_gate(new_trace, start_policy, arm=arm).policy
        notes.append("The fused gate is fitted again, by method logistic and seed 0.")
    memory_trace: Any = held_trace(new_trace)
    with pilot_trace(memory_trace, start_policy, arm) as pilot_view:
        grid_policies = grid(pilot_view, start_policy, arm)
        settings = CertificationSettings(
            promise_terms.targets,
            promise_terms.costs,
            promise_terms.delta,
            arm,
            mix=promise_terms.mix,
        )
        policy_counts = pilot_counts(pilot_view, grid_policies, settings)
    p, mean_costs = policy_counts.losses.p(settings.alphas).max(axis=1), policy_counts.losses.cost
    is_passing = p <= promise_terms.delta
    # of those that pass the cheapest, else the one nearest to passing
    chosen_index = int(
        np.lexsort((p, mean_costs, ~is_passing) if is_passing.any() else (mean_costs, p))[0]
    )
    chosen_policy = grid_policies[chosen_index]
    best_note = "" if is_passing.any() else f", the lowest, above {promise_terms.delta:g}"
    notes.append(
        f"Refit on {len(new_trace):,} new cases among {len(grid_policies):,} policies: p-value "
        f"{p[chosen_index]:.3g}{best_note}."
    )
    # The table shows each threshold that moved, by the map or by the choice.
    table_rows = mapping.table.to_dict("records")
    for table_row in table_rows:
        chosen_value = float(chosen_policy.value(table_row["path"]))
        if chosen_value != table_row["to"]:
            table_row |= {"to": chosen_value, "passes_to": np.nan, "note": REFITTED}
    table_paths = {table_row["path"] for table_row in table_rows}
    learned_paths = (
        "decision.ratio",
        *(path for path, swept_threshold in SWEPT.items() if not swept_threshold.signal),
    )
    for path in dict.fromkeys(learned_paths):
        start_value, chosen_value = start_policy.value(path), chosen_policy.value(path)
        if path not in table_paths and chosen_value != start_value:
            old_cell = np.nan if start_value is None else float(start_value)
            table_rows.append(
                {"path": path, "from": old_cell, "to": chosen_value, "note": REFITTED}
            )
    refitted_table = pd.DataFrame(table_rows, columns=RESCALED_COLUMNS)
    return Mapped(chosen_policy, refitted_table, (*notes, *policy_counts.notes), mapping.missing)


def _tested(
    new_trace: TraceView,
    old_policy: Policy,
    policy: Policy,
    promise_terms: Promised,
    validity: NDArray[np.int8],
    arm: str,
    looks_file: str | Path | None,
) -> tuple[Certification | None, tuple[str, ...]]:
    """Certification on split certify of the new trace, and what a promise lacks.

    A further look where these cases were certified on before.
    """
    certify_view: Any = new_trace
    queries_by_split, certificate = trace_queries(new_trace), promise_terms.stated
    missing_reason = (
        _relabelled(new_trace, policy, validity, arm)
        or (
            ""
            if "certify" in queries_by_split
            else "The new trace has no split certify: nothing is promised."
        )
        or promise_terms.defect
        or ("" if promise_terms.targets else "No targets and no certificate: nothing is promised.")
    )
    if missing_reason:
        return None, (missing_reason,)
    looks_path = None if looks_file is None else Path(looks_file)
    queries, certify_basis = queries_by_split["certify"], trace_basis(certify_view.split("certify"))
    if certificate is not None and basis_conflict(certificate["basis"], certify_basis):
        reason = (
            f"The new certify cases are judged by {certify_basis}, the old by "
            f"{certificate['basis']}."
        )
        return None, (reason,)
    earlier_looks = (
        {} if looks_path is None else recorded_looks(looks_path, hash_queries(queries), queries)
    )
    certificate_key = None if certificate is None else certificate.get("key")
    n_unknown = sum(
        not look_record.hypotheses
        for look_key, look_record in earlier_looks.items()
        if look_key != certificate_key
    )
    if n_unknown:
        reason = (
            f"{looks_file} holds {n_unknown:,} looks that do not state among how many candidates"
        )
        return None, (f"{reason} they chose: take new cases.",)
    reuse = _reuse(old_policy, queries_by_split, certificate)
    if isinstance(reuse, str):
        return None, (reuse,)
    settings = CertificationSettings(
        promise_terms.targets,
        promise_terms.costs,
        promise_terms.delta,
        arm,
        reuse.looks > 0,
        looks_path,
        reuse,
        mix=promise_terms.mix,
    )
    certification = certify_alone(certify_view, policy, settings)
    return certification, _broken_promises(certification) if certification.policy is None else ()


def _reuse(
    old_policy: Policy,
    queries_by_split: Mapping[str | None, list[str]],
    certificate: Mapping[str, Any] | None,
) -> Reuse | str:
    """What the old policy knows of the certify cases, or why nothing valid can be said on them."""

    def overlap(cases_hash: str) -> Learned | None:
        """Which certify cases are of a set; None for none."""
        policy = old_policy.model_copy(update={"tuned_on": cases_hash})
        (learned,) = learned_cases([policy], queries_by_split, ("certify",))
        return learned if "policy" in learned.parts else None

    pilot_hash = None if certificate is None else certificate["pilot_hash"]
    if pilot_hash is not None and overlap(pilot_hash):
        return "The certify cases are the pilot of the old certificate: take others."
    decision_model = old_policy.decision.model
    learned_hashes = {
        old_policy.tuned_on,
        old_policy.fused.fitted_on,
        decision_model and decision_model.fitted_on,
    }
    certified_hashes = {
        *old_policy.learned_cases,
        *(() if certificate is None else [str(certificate["cases_hash"])]),
    }
    for cases_hash in sorted(certified_hashes - learned_hashes):
        if not (overlapping := overlap(cases_hash)):
            continue
        if certificate is None or cases_hash != certificate["cases_hash"]:
            return (
                f"The policy was certified on {overlapping.k:,} of the {overlapping.n:,} "
                "certify cases, and "
                "does not state among how many candidates: take new cases, or the policy with "
                "that certificate."
            )
        return Reuse(
            int(certificate["looks"]), float(certificate["spent"]), chosen_among(certificate)
        )
    return Reuse()


def _broken_promises(certification: Certification) -> tuple[str, ...]:
    """What a certification that failed lacks, a sentence each."""
    certificate = certification.certificate
    sentences = [f"{certificate.reason[0].upper()}{certificate.reason[1:]}."]
    for promise in certificate.promises:
        if promise.n and promise.bound <= promise.alpha:
            continue
        cases_note = f"{promise.n:,} cases: these certify {promise.bound:.4g}"
        need_text = f"{promise.name} ≤ {promise.alpha:g} has {cases_note}."
        if promise.name in certification.needs:
            need_text = need_line(promise.name, certification.needs[promise.name])
        sentences.append(need_text)
    return tuple(sentences)


def _judged(
    new_trace: TraceView,
    old_policy: Policy,
    mapped_policy: Policy,
    promise_terms: Promised,
    arm: str,
) -> tuple[Retest | None, Retest | None, list[str]]:
    """Verdicts of split report on the mapped and the old thresholds, and why one is missing."""
    report_trace: Any = new_trace
    retests: dict[str, Retest | None] = {"mapped": None, "old": None}
    judging_notes = list[str]()
    if promise_terms.targets and "report" in trace_queries(new_trace):
        report_cases, mix_corners = (
            report_trace.split("report"),
            stated_corners(promise_terms.stated or {}),
        )
        retest_settings: Any = {
            "delta": promise_terms.delta,
            "arm": arm,
            "costs": promise_terms.costs,
        }
        for policy_name, judged_policy in (("mapped", mapped_policy), ("old", old_policy)):
            try:
                retests[policy_name] = retest(
                    judged_policy,
                    report_cases,
                    promise_terms.targets,
                    corners=mix_corners,
                    **retest_settings,
                )
            except ValueError as error:  # too many answers missing, or a model of other hits
                judging_notes.append(
                    f"The {policy_name} policy is not judged on split report: {error}"
                )
    return retests["mapped"], retests["old"], judging_notes


def _relabelled(new_trace: TraceView, policy: Policy, validity: NDArray[np.int8], arm: str) -> str:
    """How many certify cases must be labelled again before anything is promised of them.

    A name that now means another text would count as correct. Empty where none must.
    """
    cases = _all_cases(new_trace)
    is_lost = (validity == Validity.lost) & [case.split == "certify" for case in cases]
    if new_trace.has_answers:  # what is judged by text is not judged by sources
        is_lost &= ~may_be_judged(cases)
    if is_lost.any():
        is_lost &= decide_policies(new_trace, [policy], arm)[0].status == Status.ok
    relabel_rule = "certify cases that the policy answers must be labelled again, such as"
    return (
        f"{is_lost.sum():,} {relabel_rule} {cases[int(is_lost.argmax())].id}."
        if is_lost.any()
        else ""
    )
