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
LEAST_OK = 20  # questions labelled ok below which all questions are mapped on
UNMEASURED, OUTSIDE, BOUNDED, REFITTED = "unmeasured", "outside", "bounded", "refitted"
UNRECORDED = "Without looks= neither a failed look nor an earlier choice on these cases is known."
COLUMNS = [
    "path",
    "from",
    "to",
    "passes_from",
    "passes_to",
    "missing_from",
    "missing_to",
    "note",
]
DELTA = 0.1  # error of the promise where nothing states another


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
        tested = self.certification
        return look_divisor(tested.certificate.hypotheses, self.look) if tested else 1

    @property
    def certified(self) -> bool:
        """Whether the policy carries a new certificate."""
        return self.certification is not None and self.certification.policy is not None

    def _summary(self) -> Summary:
        moved = int((self.table["from"] != self.table["to"]).sum())
        facts: list[tuple[Cell | str, ...]] = [
            ("policy", self.policy.policy_id),
            ("moved", f"{moved} of {len(self.table)} thresholds"),
            ("certified", Cell("yes", mark="good") if self.certified else Cell("no", mark="bad")),
        ]
        if self.look:
            facts += [("look", f"{self.look}"), ("delta", f"{self.delta:.3g}")]
            facts.append(("hypotheses", f"{self.hypotheses:,}"))
        for name, judged in (("on report", self.judged), ("unmapped", self.unmapped)):
            facts += [(name, judged.verdict)] if judged is not None else []
        for level in (Validity.uncertain, Validity.lost):
            n = int((self.labels == level).sum())
            facts += [(f"labels {level.name}", f"{n:,}")] if n else []
        return Summary(facts, {"thresholds": self.table}, (*self.missing, *self.notes))


class Promised(NamedTuple):
    """What is to be promised.

    Targets, costs of `expected_cost`, the budget delta, and the old certificate where valid.

    defect: why the old certificate is not read, or nothing. mix: of the old certificate.
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
    arms = paired_arms(trace, to, old_arm, to_arm, "to_arm")
    promised = _promised(policy, targets, delta)
    fitted = "a fused gate" if policy.fused.enabled else "a decision model"
    if method not in get_args(Method):
        msg = f"method must be one of {', '.join(get_args(Method))}, got {method!r}."
        raise ValueError(msg)
    if method == "refit" and not promised.targets:
        msg = "refit must have targets to choose by, got none; state targets=."
        raise ValueError(msg)
    if method == "quantile" and (policy.fused.enabled or policy.decision.rule == EXPECTED_COST):
        msg = f"{fitted} can not be moved, got method {method!r}; method='refit', or switch it off."
        raise ValueError(msg)
    _check_same_cases(trace, to)
    labels = label_validity(trace, to)
    there = _mapping_cases(to)
    mapped = _mapped_thresholds(_mapping_cases(trace), there, policy, arms)
    if method == "refit":
        mapped = _refitted(there, mapped, promised, arms[1])
    moved = with_scores_of(mapped.policy, there.meta)
    # It remembers the cases its thresholds were mapped on beside others it remembers.
    if moved.policy_id != policy.policy_id:
        moved = with_further_cases(moved, [case.query for case in _all_cases(there)])
    tested, lacking = _tested(to, policy, moved, promised, labels, arms[1], looks)
    judged, unmapped, doubts = _judged(to, policy, moved, promised, arms[1])
    unrecorded = [UNRECORDED] if tested and tested.certificate.looks and looks is None else []
    return RescaledThresholds(
        policy=(tested and tested.policy) or moved,
        table=mapped.table,
        labels=labels,
        certification=tested,
        judged=judged,
        unmapped=unmapped,
        missing=(*mapped.missing, *lacking),
        notes=(*mapped.notes, *unrecorded, *doubts),
    )


def _promised(policy: Policy, targets: Mapping[str, float] | None, delta: float | None) -> Promised:
    """Targets, costs and budget: those given, else those of the policy's certificate."""
    defect = certificate_defect(policy)
    stated = None if defect else policy.certificate
    rows = stated or {}
    wanted = stated_targets(rows) if targets is None else dict(targets)
    budget = float(rows.get("budget", rows.get("delta", DELTA))) if delta is None else delta
    if wanted:
        checked_settings(wanted, rows.get("costs"), budget)
    metrics.check_delta(budget)
    costs = rows.get("costs") if COST in wanted else None
    why = f"The old certificate is not read: {defect}" if defect else ""
    if "delta" in rows.get("mix", {}):
        why = "The mix of the old certificate is an estimate; certify anew with it."
    return Promised(wanted, costs, budget, stated, why, stated_mix(rows))


def _all_cases(trace: TraceView) -> list[Case]:
    return list(chain.from_iterable(cases_by_shard(trace)))


def _check_same_cases(trace: TraceView, to: TraceView) -> None:
    """Refuse traces of other questions, splits or labels, whatever the order of their rows."""
    keys = [
        [
            (
                "\n".join((plain_question(case.query), *sorted(case.selected_sources))),
                case.split or "",
                repr(label_key(case)),
            )
            for case in _all_cases(view)
        ]
        for view in (trace, to)
    ]
    checks = (
        ("questions and documents that the user named", "retrieve the same cases twice"),
        ("splits", "deal the splits before either trace is built"),
        ("labels", "correct sources, option and answers in both"),
    )
    for width, (what, remedy) in enumerate(checks, 1):
        before, after = (Counter(key[:width] for key in of_trace) for of_trace in keys)
        differing = max((before - after).total(), (after - before).total())
        if differing:
            first = " ".join(min((before - after) or (after - before)))
            msg = (
                f"trace and to must hold the same {what}, got {differing:,} of {len(keys[0]):,} "
                f"cases that differ, such as {first!r:.200}; {remedy}."
            )
            raise ValueError(msg)


def _mapping_cases(trace: TraceView) -> TraceView:
    """Cases that thresholds are mapped on: split tune, else all that are not held back.

    Raises:
      ValueError: every case is held back.
    """
    view: Any = trace
    splits = [case.split for case in _all_cases(trace)]
    wanted = {"tune"} if "tune" in splits else {*splits} - {*HELD_BACK_SPLITS}
    rows = [row for row, split in enumerate(splits) if split in wanted]
    if splits and not rows:
        msg = (
            "thresholds must be mapped on cases of split tune or of none, got "
            f"{', '.join(sorted(map(str, {*splits})))} alone; give the whole trace."
        )
        raise ValueError(msg)
    mapped_on: TraceView = trace if len(rows) == len(splits) else view.subset(rows)
    return mapped_on


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
    acting, by_cost = acting_gates(policy), policy.decision.rule == EXPECTED_COST
    # A decision model does not act on thresholds, and would be refused on hits of another arm.
    policy = policy.replace("decision.rule", "chain") if by_cost else policy
    thresholds, evidence = policy_thresholds([policy]), measured_tables(trace, policy, arm).evidence
    # fitted, or of the answers: no embedder's scale
    fixed = {gate.name for gate in GATES if not gate.moved} | {"decision"}
    by_path = {}
    for path, swept in swept_paths(evidence.known).items():
        is_acting = swept.section in acting or (swept.section == "resolver" and not by_cost)
        if swept.section in fixed or not is_acting or swept.whole or policy.value(path) is None:
            continue
        by_path[path] = _passes_above(swept) * threshold_values(evidence, thresholds, path, 0)[0]
    return Scores(by_path, evidence.known)


def _passes_above(swept: Threshold) -> float:
    """Sign that makes more of a score pass."""
    return 1.0 if swept.side == "floor" else -1.0


def _mapped_thresholds(
    here: TraceView, there: TraceView, policy: Policy, arms: tuple[str, str]
) -> Mapped:
    """Policy whose thresholds are moved to the scores of the new cases."""
    import pandas as pd

    views = (here, there)
    before, after = (_scores(view, policy, arm) for view, arm in zip(views, arms, strict=True))
    labels = [label_codes(_all_cases(view)) for view in views]
    # Questions labelled ok are those that an answer may be lost of, so that their share is kept.
    is_ok = [label == Status.ok for label in labels]
    notes, missing, changes, rows = [], list[str](), dict[str, float](), list[tuple[Any, ...]]()
    if (n_ok := int(is_ok[0].sum())) < LEAST_OK:
        notes.append(f"Mapped on all {len(is_ok[0]):,} questions: {n_ok} labelled ok are too few.")
        is_ok = [np.ones_like(rows_ok) for rows_ok in is_ok]
    thresholds = swept_paths(before.known)
    _check_declared(before, after)
    for path, every_old in before.by_path.items():
        swept, value = thresholds[path], float(policy.value(path))
        scores = (every_old, after.by_path[path])
        old, new = (of[rows_ok] for of, rows_ok in zip(scores, is_ok, strict=True))
        blank = [1.0 - np.isfinite(of).mean() for of in (old, new)]
        pair = (("old", old), ("new", new))
        unmapped = [side for side, of in pair if len(np.unique(of[np.isfinite(of)])) < 2]
        if unmapped:
            rows.append((path, value, value, np.nan, np.nan, *blank, UNMEASURED))
            if not _is_same(old, new):
                missing.append(
                    f"{path} is not mapped: its signal is missing or constant in the "
                    f"{' and '.join(unmapped)} trace."
                )
            continue
        _warn_of_turn(path, scores, labels)
        moved, note = _moved_value(swept, value, scores, old, new)
        low = changes.get(f"{swept.section}.min", -np.inf)
        if swept.signal and swept.key == "max" and low > moved:
            moved, note = low, BOUNDED
        changes[path] = moved
        sign = _passes_above(swept)
        shares = [float((of >= sign * at).mean()) for of, at in ((old, value), (new, moved))]
        rows.append((path, value, moved, *shares, *blank, note))
    calibrated = policy.confidence.fallback == "cosine" and policy.confidence.calibration
    if calibrated and "confidence" in acting_gates(policy):
        notes.append("The calibrated cosine is not mapped: fit it by raglab.lab.calibrate_cosine.")
    if own := policy_thresholds([policy]).own:
        notes.append(f"Own gates are not mapped: {', '.join(own)}.")
    moves = ((path, value) for path, value in changes.items() if value != policy.value(path))
    changed = policy.replace(*chain.from_iterable(moves), "certificate", None)
    return Mapped(changed, pd.DataFrame(rows, columns=COLUMNS), tuple(notes), tuple(missing))


def _warn_of_turn(path: str, scores: tuple[Array, Array], labels: list[NDArray[np.int8]]) -> None:
    """Warn of a new score that ranks the wrong way round where the old one does not."""
    old, new = (ScoredCases.of_labels(*pair) for pair in zip(scores, labels, strict=True))
    turned = new.contradiction(f"the new score of {path}")
    if turned and old.ranking().low > 0.5:
        warn_user(turned)


def _scores(view: TraceView, policy: Policy, arm: str) -> Scores:
    """Scores of all cases, by the path of their threshold."""
    parts = list(each_shard(shard_scores, view, policy, arm, what="measure"))
    paths = parts[0].by_path
    joined = {path: np.concatenate([part.by_path[path] for part in parts]) for path in paths}
    return Scores(joined, parts[0].known)


def _is_same(old: Array, new: Array) -> bool:
    """Whether the scores are the same, in any order."""
    return np.array_equal(np.sort(old), np.sort(new), equal_nan=True)


def _check_declared(before: Scores, after: Scores) -> None:
    """Refuse a signal of which more means something else in the new trace, or of another unit."""
    thresholds = swept_paths(before.known)
    for name in {thresholds[path].signal for path in before.by_path} - {""}:
        rows = [known.signal(name) for known in (before.known, after.known)]
        old, new = (f"higher {row.direction!r} and unit {row.unit.name!r}" for row in rows)
        if old != new:
            msg = (
                f"signal {name} must have the same direction and unit in both traces, got {old} "
                f"in trace, {new} in to; declare it alike, or name it apart."
            )
            raise ValueError(msg)


def _moved_value(
    swept: Threshold,
    value: float,
    scores: tuple[Array, Array],
    old_ok: Array,
    new_ok: Array,
) -> tuple[float, str]:
    """Threshold on the new scores within its range, and a note.

    One that judges nothing in the old ones stays so, and it stays where the scores are the same.

    Args:
      scores: old and new, of all questions.
      old_ok, new_ok: of those that it is mapped on.
    """
    sign = _passes_above(swept)
    threshold, (loosest, strictest) = sign * value, (swept.low, swept.high)[:: int(sign)]
    old, new = (of[np.isfinite(of)] for of in scores)
    if threshold <= old.min():
        return value if threshold <= new.min() else loosest, OUTSIDE
    if threshold > old.max():
        return value if threshold > new.max() else strictest, OUTSIDE
    moved = threshold if _is_same(old_ok, new_ok) else quantile_map(threshold, old_ok, new_ok)
    return value if moved == threshold else float(np.clip(sign * moved, swept.low, swept.high)), ""


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
    levels, sizes = np.unique(target[~np.isnan(target)], return_counts=True)
    if not len(levels):
        msg = "target must hold a score, got none; score the queries with its embedder."
        raise ValueError(msg)
    wanted = int((np.asarray(source) >= threshold).sum())
    at_or_above = np.append(np.cumsum(sizes[::-1])[::-1], 0)
    candidates = np.append(levels, np.nextafter(levels[-1], np.inf))
    return float(candidates[::-1][np.abs(at_or_above - wanted)[::-1].argmin()])


def _refitted(there: TraceView, mapped: Mapped, promised: Promised, arm: str) -> Mapped:
    """Policy chosen on the new cases alone.

    The cheapest whose p-value is at most delta, else the least p-value. The table has the
    thresholds that the mapping moved, and those that the grid chose.
    """
    import pandas as pd

    start, notes = mapped.policy, list(mapped.notes)
    if start.decision.rule == EXPECTED_COST and start.decision.model is not None:
        model = start.decision.model
        group = None if model.groups is None else model.groups.attribute
        start = fit_decision(there, start, signals=tuple(model.parts), group=group, arm=arm)
        notes.append("The decision model is fitted again, with seed 0.")
    if start.fused.enabled:
        start = fit_fused_gate(there, start, arm=arm).policy
        notes.append("The fused gate is fitted again, by method logistic and seed 0.")
    view: Any = held_trace(there)
    with pilot_trace(view, start, arm) as pilot:
        offered = grid(pilot, start, arm)
        terms = CertificationSettings(
            promised.targets, promised.costs, promised.delta, arm, mix=promised.mix
        )
        counts = pilot_counts(pilot, offered, terms)
    p, cost = counts.losses.p(terms.alphas).max(axis=1), counts.losses.cost
    is_passing = p <= promised.delta
    # of those that pass the cheapest, else the one nearest to passing
    place = int(np.lexsort((p, cost, ~is_passing) if is_passing.any() else (cost, p))[0])
    chosen = offered[place]
    best = "" if is_passing.any() else f", the lowest, above {promised.delta:g}"
    notes.append(
        f"Refit on {len(there):,} new cases among {len(offered):,} policies: p-value "
        f"{p[place]:.3g}{best}."
    )
    rows = mapped.table.to_dict("records")
    for row in rows:
        value = float(chosen.value(row["path"]))
        if value != row["to"]:
            row |= {"to": value, "passes_to": np.nan, "note": REFITTED}
    known = {row["path"] for row in rows}
    learned = ("decision.ratio", *(path for path, swept in SWEPT.items() if not swept.signal))
    for path in dict.fromkeys(learned):
        before, value = start.value(path), chosen.value(path)
        if path not in known and value != before:
            old = np.nan if before is None else float(before)
            rows.append({"path": path, "from": old, "to": value, "note": REFITTED})
    table = pd.DataFrame(rows, columns=COLUMNS)
    return Mapped(chosen, table, (*notes, *counts.notes), mapped.missing)


def _tested(
    to: TraceView,
    old: Policy,
    policy: Policy,
    promised: Promised,
    labels: NDArray[np.int8],
    arm: str,
    looks: str | Path | None,
) -> tuple[Certification | None, tuple[str, ...]]:
    """Certification on split certify of the new trace, and what a promise lacks.

    A further look where these cases were certified on before.
    """
    view: Any = to
    by_split, stated = trace_queries(to), promised.stated
    lacking = (
        _relabelled(to, policy, labels, arm)
        or (
            ""
            if "certify" in by_split
            else "The new trace has no split certify: nothing is promised."
        )
        or promised.defect
        or ("" if promised.targets else "No targets and no certificate: nothing is promised.")
    )
    if lacking:
        return None, (lacking,)
    path = None if looks is None else Path(looks)
    queries, basis = by_split["certify"], trace_basis(view.split("certify"))
    if stated is not None and basis_conflict(stated["basis"], basis):
        text = f"The new certify cases are judged by {basis}, the old by {stated['basis']}."
        return None, (text,)
    before = {} if path is None else recorded_looks(path, hash_queries(queries), queries)
    known = None if stated is None else stated.get("key")
    unknown = sum(not record.hypotheses for key, record in before.items() if key != known)
    if unknown:
        text = f"{looks} holds {unknown:,} looks that do not state among how many candidates"
        return None, (f"{text} they chose: take new cases.",)
    reuse = _reuse(old, by_split, stated)
    if isinstance(reuse, str):
        return None, (reuse,)
    terms = CertificationSettings(
        promised.targets,
        promised.costs,
        promised.delta,
        arm,
        reuse.looks > 0,
        path,
        reuse,
        mix=promised.mix,
    )
    certification = certify_alone(view, policy, terms)
    return certification, _broken_promises(certification) if certification.policy is None else ()


def _reuse(
    old: Policy, by_split: Mapping[str | None, list[str]], stated: Mapping[str, Any] | None
) -> Reuse | str:
    """What the old policy knows of the certify cases, or why nothing valid can be said on them."""

    def overlap(hashed: str) -> Learned | None:
        """Which certify cases are of a set; None for none."""
        policy = old.model_copy(update={"tuned_on": hashed})
        (learned,) = learned_cases([policy], by_split, ("certify",))
        return learned if "policy" in learned.parts else None

    pilot = None if stated is None else stated["pilot_hash"]
    if pilot is not None and overlap(pilot):
        return "The certify cases are the pilot of the old certificate: take others."
    model = old.decision.model
    learned_on = {old.tuned_on, old.fused.fitted_on, model and model.fitted_on}
    certified_on = {*old.learned_cases, *(() if stated is None else [str(stated["cases_hash"])])}
    for hashed in sorted(certified_on - learned_on):
        if not (shared := overlap(hashed)):
            continue
        if stated is None or hashed != stated["cases_hash"]:
            return (
                f"The policy was certified on {shared.k:,} of the {shared.n:,} certify cases, and "
                "does not state among how many candidates: take new cases, or the policy with "
                "that certificate."
            )
        return Reuse(int(stated["looks"]), float(stated["spent"]), chosen_among(stated))
    return Reuse()


def _broken_promises(certification: Certification) -> tuple[str, ...]:
    """What a certification that failed lacks, a sentence each."""
    certificate = certification.certificate
    sentences = [f"{certificate.reason[0].upper()}{certificate.reason[1:]}."]
    for promise in certificate.promises:
        if promise.n and promise.bound <= promise.alpha:
            continue
        best = f"{promise.n:,} cases: these certify {promise.bound:.4g}"
        need = f"{promise.name} ≤ {promise.alpha:g} has {best}."
        if promise.name in certification.needs:
            need = need_line(promise.name, certification.needs[promise.name])
        sentences.append(need)
    return tuple(sentences)


def _judged(
    to: TraceView, old: Policy, policy: Policy, promised: Promised, arm: str
) -> tuple[Retest | None, Retest | None, list[str]]:
    """Verdict of split report on the mapped and on the old thresholds, and why there is none."""
    view: Any = to
    results: dict[str, Retest | None] = {"mapped": None, "old": None}
    doubts = list[str]()
    if promised.targets and "report" in trace_queries(to):
        cases, corners = view.split("report"), stated_corners(promised.stated or {})
        terms: Any = {"delta": promised.delta, "arm": arm, "costs": promised.costs}
        for name, judged in (("mapped", policy), ("old", old)):
            try:
                results[name] = retest(judged, cases, promised.targets, corners=corners, **terms)
            except ValueError as error:  # too many answers missing, or a model of other hits
                doubts.append(f"The {name} policy is not judged on split report: {error}")
    return results["mapped"], results["old"], doubts


def _relabelled(to: TraceView, policy: Policy, labels: NDArray[np.int8], arm: str) -> str:
    """How many certify cases must be labelled again before anything is promised of them.

    A name that now means another text would count as correct. Empty where none must.
    """
    cases = _all_cases(to)
    lost = (labels == Validity.lost) & [case.split == "certify" for case in cases]
    if to.has_answers:  # what is judged by text is not judged by sources
        lost &= ~may_be_judged(cases)
    if lost.any():
        lost &= decide_policies(to, [policy], arm)[0].status == Status.ok
    rule = "certify cases that the policy answers must be labelled again, such as"
    return f"{lost.sum():,} {rule} {cases[int(lost.argmax())].id}." if lost.any() else ""
