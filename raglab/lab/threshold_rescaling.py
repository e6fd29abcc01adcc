"""Thresholds after an upgrade (shore): mapped, certified again, judged (S6.1, S6.4, S6.10).

They are mapped on split tune and judged on report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import may_be_judged
from raglab.decision.learned_cases import (
    HELD_BACK,
    REPEATED,
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
from raglab.lab.carried_labels import LabelValidity, label_key, label_validity
from raglab.lab.certificate_checks import (
    Retest,
    certificate_defect,
    retest,
    stated_corners,
    stated_mix,
)
from raglab.lab.certification import Certification, certify_alone, pilot_trace
from raglab.lab.certification_families import grid
from raglab.lab.certification_needs import need_line
from raglab.lab.certification_settings import CertificationSettings, checked_settings
from raglab.lab.certified_losses import COST, pilot_counts
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.gate_fitting import fit_fused_gate
from raglab.lab.looks import Reuse, chosen_among, look_divisor, recorded_looks
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
from raglab.words.html_display import Cell, Fold, display

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["quantile", "isotonic", "refit"]
METHODS = ("quantile", "isotonic", "refit")
LEAST_OK = 20  # questions labelled ok below which all questions are mapped on
UNMEASURED = "not measured: the signal is missing or constant"
CLIPPED = "clipped: the threshold lies outside the scores of the old trace"
OUTSIDE = "outside the old scores: all or none pass, and it is kept so"
UNCROSSED = "raised to the lower bound, above which it must not lie"
REFITTED = "refit on the new cases"
UNRECORDED = (
    "Without looks= a look that failed is not known, nor whether these cases chose the policy "
    "before."
)
COLUMNS = ["path", "from", "to", "passes_from", "passes_to", "note"]
DELTA = 0.1  # error of the promise where nothing states another


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RescaledThresholds:
    """A policy for another encoder, reranker, chunking, index, model or arm, and its promises.

    Attributes:
      policy: with its certificate where it is certified, else without one.
      table: a row a threshold: `path`, `from`, `to`, the shares `passes_from` and `passes_to` of
        the questions that it was mapped on, `note`.
      labels: which labels stay valid.
      certification: of the policy on split certify of the new trace; None where it was not tested.
      judged: its targets on split report of the new trace; None without that split or without
        targets.
      unmapped: the same of the policy with its old thresholds.
      delta: error that this look may spend; NaN where nothing was tested.
      look: number of this look at the certify questions, 0 where nothing was tested.
      hypotheses: policies that the certify questions may have chosen; their number divides delta
        for the test.
      missing: what a promise lacks, a sentence each.
      notes: what a reader must know, a sentence each.
    """

    policy: Policy
    table: pd.DataFrame
    labels: LabelValidity | None = None
    certification: Certification | None = None
    judged: Retest | None = None
    unmapped: Retest | None = None
    delta: float = float("nan")
    look: int = 0
    hypotheses: int = 1
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def certified(self) -> bool:
        """Whether the policy carries a new certificate."""
        return self.certification is not None and self.certification.policy is not None

    def frame(self) -> pd.DataFrame:
        """Thresholds before and after, a row a threshold.

        `note` names the ones that were not measured and stay.
        """
        return self.table.copy()

    def __repr__(self) -> str:
        moved = int((self.table["from"] != self.table["to"]).sum())
        sizes = (
            f"{moved} of {len(self.table)} thresholds moved, "
            f"{'certified' if self.certified else 'not certified'}"
        )
        return f"{type(self).__name__}(policy {self.policy.policy_id}: {sizes})"

    def _repr_html_(self) -> str:
        """Display for a notebook: thresholds, promises, labels, and what is missing."""
        mark: Any = "good" if self.certified else "bad"
        spent = (
            f"{self.delta:.3g}, look {self.look}, 1 of {self.hypotheses:,} policies"
            if self.look
            else "none"
        )
        facts: list[tuple[Cell | str, ...]] = [
            ("policy", self.policy.policy_id),
            ("certified", Cell("yes" if self.certified else "no", mark=mark)),
            ("delta spent", spent),
            ("on split report", "not judged" if self.judged is None else self.judged.verdict),
            ("unmapped there", "not judged" if self.unmapped is None else self.unmapped.verdict),
        ]
        rows = [
            (path, f"{old:.4g}", f"{new:.4g}", f"{before:.3f}", f"{after:.3f}", note)
            for path, old, new, before, after, note in self.table.itertuples(index=False)
        ]
        labels = (
            []
            if self.labels is None
            else [tuple(map(str, row)) for row in self.labels.table.to_numpy().tolist()]
        )
        folds = [
            Fold("thresholds", rows, len(rows), COLUMNS, open=True),
            Fold("labels", labels, None, ("kind", "cases", "valid", "uncertain", "lost", "why")),
            *(
                Fold(title, [(f"{place + 1}", text) for place, text in enumerate(texts)], open=True)
                for title, texts in (("missing", self.missing), ("notes", self.notes))
                if texts
            ),
        ]
        return display("Rescaled thresholds", facts, folds)


class Promised(NamedTuple):
    """What is to be promised.

    Targets, costs of `expected_cost`, the budget delta, and the old certificate where valid.

    sentences: why the old certificate is not read, or nothing. mix: of the old certificate.
    """

    targets: dict[str, float]
    costs: metrics.Costs | None
    delta: float
    stated: Mapping[str, Any] | None
    sentences: tuple[str, ...]
    mix: TrafficMix | None = None


class Mapped(NamedTuple):
    """A policy with its thresholds moved, the table of them, and what a reader must know."""

    policy: Policy
    rows: list[tuple[str, float, float, float, float, str]]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class LookResult(NamedTuple):
    """Outcome on split certify: see `RescaledThresholds`."""

    certification: Certification | None
    missing: tuple[str, ...]
    delta: float = float("nan")
    look: int = 0
    hypotheses: int = 1


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
        fewer than 20 are labelled ok); `isotonic`, the new score expected at the threshold, by
        monotone regression on the same questions; `refit`, on the new cases alone the cheapest
        policy of `raglab.lab.grid` whose p-value there is at most delta, else that of the lowest
        p-value, with its fused gate or decision model fitted again.
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
        declared with another direction or unit; no question with a score in both traces under
        `isotonic`; a fused gate or a decision model under `quantile` or `isotonic`; `refit` without
        targets; settings that `certify_policy` refuses; a policy that learned from the certify
        cases; a signal of the user that `to` lacks; an arm of `to` that has to be guessed.

    Source: rules S6.1, S6.3, S6.4, S6.10.

    Example:
      `raglab.rescale_thresholds(trace, certified.policy, to=new_trace, looks="looks.jsonl")`.
    """
    import pandas as pd

    certified_arm = (policy.certificate or {}).get("arm")
    arms = paired_arms(
        trace,
        to,
        certified_arm if arm is None and certified_arm in trace.arms else arm,
        to_arm,
        "to_arm",
    )
    new_arm = arms[1]
    promised = _promised(policy, targets, delta)
    _check_method(policy, method, promised)
    _check_same_cases(trace, to)
    labels = label_validity(trace, to)
    here, there = _mapping_cases(trace), _mapping_cases(to)
    mapped = _mapped_thresholds(here, there, policy, method, arms)
    if method == "refit":
        mapped = _refitted(there, mapped, promised, new_arm)
    mapped = mapped._replace(policy=_remembered(mapped.policy, policy, there))
    if relabel := _relabelled(to, mapped.policy, labels, new_arm):
        tested = LookResult(None, (relabel,))
    else:
        tested = _tested(
            to, policy, mapped.policy, promised, new_arm, None if looks is None else Path(looks)
        )
    judged, unmapped, doubts = _judged(to, policy, mapped.policy, promised, new_arm)
    certification = tested.certification
    certified = None if certification is None else certification.policy
    return RescaledThresholds(
        policy=mapped.policy if certified is None else certified,
        table=pd.DataFrame(mapped.rows, columns=COLUMNS),
        labels=labels,
        certification=certification,
        judged=judged,
        unmapped=unmapped,
        delta=tested.delta,
        look=tested.look,
        hypotheses=tested.hypotheses,
        missing=(*mapped.missing, *tested.missing),
        notes=(*mapped.notes, *_label_notes(to, labels), *_look_notes(tested, looks), *doubts),
    )


def _promised(policy: Policy, targets: Mapping[str, float] | None, delta: float | None) -> Promised:
    """Targets, costs and budget: those given, else those of the policy's certificate."""
    defect = certificate_defect(policy)
    stated = None if defect else policy.certificate
    rows = stated or {}
    promises = {
        str(promise["name"]): float(promise["alpha"]) for promise in rows.get("promises", ())
    }
    wanted = promises if targets is None else dict(targets)
    budget = float(rows.get("budget", rows.get("delta", DELTA))) if delta is None else delta
    if wanted:
        checked_settings(wanted, rows.get("costs"), budget, None, again=True, looks=None)
    metrics.check_delta(budget)
    costs = rows.get("costs") if COST in wanted else None
    sentences: tuple[str, ...] = (f"The old certificate is not read: {defect}",) if defect else ()
    if "delta" in rows.get("mix", {}):
        sentences = ("The mix of the old certificate is an estimate; certify anew with it.",)
    return Promised(wanted, costs, budget, stated, sentences, stated_mix(rows))


def _check_method(policy: Policy, method: str, promised: Promised) -> None:
    if method not in METHODS:
        msg = f"method must be one of {', '.join(METHODS)}, got {method!r}."
        raise ValueError(msg)
    if method == "refit" and not promised.targets:
        msg = (
            "method refit must have targets to choose by, got none; state "
            "targets={'hallucination_rate': 0.1}."
        )
        raise ValueError(msg)
    fitted = "a fused gate" if policy.fused.enabled else "a decision model"
    if method != "refit" and (policy.fused.enabled or policy.decision.rule == EXPECTED_COST):
        remedy = "fit it on the new cases (method='refit'), or switch it off"
        msg = (
            f"{fitted} can not be moved, since its weights are of the old scores, got method "
            f"{method!r}; {remedy}."
        )
        raise ValueError(msg)


def _sort_key(case: Case) -> tuple[str, ...]:
    """What tells a case from others in both traces, for a pairing that row order cannot change."""
    named = "\n".join(sorted(case.selected_sources))
    return (
        f"{plain_question(case.query)}\n{named}",
        case.split or "",
        repr(label_key(case)),
        case.id,
    )


def _sorted_rows(cases: Sequence[Case]) -> list[int]:
    return sorted(range(len(cases)), key=lambda row: _sort_key(cases[row]))


def _all_cases(trace: TraceView) -> list[Case]:
    return list(chain.from_iterable(cases_by_shard(trace)))


def _check_same_cases(trace: TraceView, to: TraceView) -> None:
    """Refuse traces of other questions, splits or labels."""
    keys = [[_sort_key(case) for case in _all_cases(view)] for view in (trace, to)]
    remedies = {
        1: ("questions and documents that the user named", "retrieve the same cases both times"),
        2: ("splits", "deal the splits before either trace is built"),
        3: (
            "labels",
            (
                "a question has one label, whatever is retrieved: correct it in both, its sources, "
                "option and answers too"
            ),
        ),
    }
    for width, (what, remedy) in remedies.items():
        before, after = (Counter(key[:width] for key in of_trace) for of_trace in keys)
        differing = max((before - after).total(), (after - before).total())
        if differing:
            rule, first = (
                f"trace and to must hold the same {what}",
                min((before - after) or (after - before)),
            )
            value = (
                f"{differing:,} of {len(keys[0]):,} cases that differ, such as "
                f"{' '.join(first)!r:.200}"
            )
            msg = f"{rule}, got {value}; {remedy}."
            raise ValueError(msg)


def _mapping_cases(trace: TraceView) -> TraceView:
    """Cases that thresholds are mapped on: split tune, else all that are not held back.

    Raises:
      ValueError: every case is held back.
    """
    view: Any = trace
    names = {case.split for case in _all_cases(trace)}
    if names <= {None} or names == {"tune"}:
        return trace
    if "tune" in names:
        tune: TraceView = view.split("tune")
        return tune
    rows = [row for row, case in enumerate(_all_cases(trace)) if case.split not in HELD_BACK]
    if not rows:
        held = ", ".join(sorted(map(str, names)))
        msg = (
            f"thresholds must be mapped on cases of split tune or of none, got {held} alone; give "
            "the whole trace."
        )
        raise ValueError(msg)
    rest: TraceView = view.subset(rows)
    return rest


class Scores(NamedTuple):
    """What movable thresholds are compared with at depth 0, by path, [Q] each, more passes.

    Known: the signals.
    """

    by_path: dict[str, NDArray[np.float64]]
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
    fixed_gates = {gate.name for gate in GATES if not gate.moved}
    by_path = {}
    for path, swept in swept_paths(evidence.known).items():
        if path.startswith("decision."):  # costs are no scores of an embedder
            continue
        is_acting = swept.section in acting or (swept.section == "resolver" and not by_cost)
        if is_acting and not (
            swept.whole or policy.value(path) is None or swept.section in fixed_gates
        ):
            by_path[path] = (
                _passes_above(swept) * threshold_values(evidence, thresholds, path, 0)[0]
            )
    return Scores(by_path, evidence.known)


def _varies(scores: NDArray[np.float64]) -> bool:
    """Whether the scores of a signal differ at all, among the cases that have one."""
    known = scores[np.isfinite(scores)]
    return len(known) > 0 and bool(known.min() < known.max())


def _passes_above(swept: Threshold) -> float:
    """Sign that makes more of a score pass."""
    return 1.0 if swept.side == "floor" else -1.0


def _all_scores(trace: TraceView, policy: Policy, arm: str | None, order: Sequence[int]) -> Scores:
    """Scores of all cases in an order."""
    parts = list(each_shard(shard_scores, trace, policy, arm, what="measure"))
    by_path = {
        path: np.concatenate([part.by_path[path] for part in parts])[order]
        for path in parts[0].by_path
    }
    return Scores(by_path, parts[0].known)


def _mapped_thresholds(
    here: TraceView, there: TraceView, policy: Policy, method: Method, arms: tuple[str, str]
) -> Mapped:
    """Policy whose thresholds are moved to the scores of the new cases."""
    pairs = [(view, _all_cases(view)) for view in (here, there)]
    orders = [_sorted_rows(cases) for _, cases in pairs]
    before, after = (
        _all_scores(view, policy, arm, order)
        for (view, _), arm, order in zip(pairs, arms, orders, strict=True)
    )
    is_ok, notes = _mapped_questions(pairs[0][1], orders[0])
    labels = label_codes(pairs[0][1])[orders[0]]
    rows, changes, missing, thresholds = [], dict[str, float](), [], swept_paths(before.known)
    _check_declared(before, after)
    for path, of_all in before.by_path.items():
        swept, value, scores = (
            thresholds[path],
            float(policy.value(path)),
            (of_all, after.by_path[path]),
        )
        old, new = (of[is_ok] for of in scores)
        if unmapped := [side for side, of in (("old", old), ("new", new)) if not _varies(of)]:
            rows.append((path, value, value, np.nan, np.nan, UNMEASURED))
            if not np.array_equal(np.sort(old), np.sort(new), equal_nan=True):
                where = " and ".join(unmapped)
                missing.append(
                    f"{path} is not mapped: its signal is missing or constant in the {where} trace."
                )
            continue
        _warn_of_turned(path, scores, labels)
        bounded, note = _moved_value(swept, value, scores, is_ok, method)
        low = (
            changes.get(f"{swept.section}.min", -np.inf)
            if swept.signal and swept.key == "max"
            else -np.inf
        )
        if low > bounded:
            bounded, note = low, UNCROSSED
        changes |= {path: bounded}
        sign = _passes_above(swept)
        shares = [float((of >= sign * at).mean()) for of, at in ((old, value), (new, bounded))]
        rows.append((path, value, bounded, shares[0], shares[1], note))
        blank = [1.0 - np.isfinite(of).mean() for of in (old, new)]
        if abs(blank[0] - blank[1]) > REPEATED:
            lead = (
                f"{path}: {blank[0]:.0%} of the questions have no score in the old trace, "
                f"{blank[1]:.0%} in the new one"
            )
            notes.append(f"{lead}; the share that passes is of all of them.")
    is_cosine = policy.confidence.fallback == "cosine" and policy.confidence.calibration is not None
    if is_cosine and "confidence" in acting_gates(policy):
        notes.append(
            "The calibrated cosine is not mapped: fit it on the new trace "
            "(raglab.lab.calibrate_cosine)."
        )
    if own := policy_thresholds([policy]).own:
        notes.append(f"Thresholds of own gates are not mapped: {', '.join(own)}.")
    moved = (
        item
        for path, value in changes.items()
        if value != policy.value(path)
        for item in (path, value)
    )
    return Mapped(policy.replace(*moved, "certificate", None), rows, tuple(notes), tuple(missing))


def _warn_of_turned(
    path: str, scores: tuple[NDArray[np.float64], NDArray[np.float64]], label: NDArray[np.int8]
) -> None:
    """Warn where what passes a gate ranks ok above refuse in the old trace, and below in the new.

    Args:
      path: of the threshold.
      scores: old and new, [Q], more passes.
      label: of each case, its code, [Q].
    """
    before, after = (ScoredCases.of_labels(of, label) for of in scores)
    text = after.contradiction(f"the new score of {path}")
    if text and before.ranking().low > 0.5:
        warn_user(text)


def _mapped_questions(
    cases: Sequence[Case], order: Sequence[int]
) -> tuple[NDArray[np.bool_], list[str]]:
    """Whether each question, in an order, is one that thresholds are mapped on, and notes."""
    # Questions labelled ok are those that an answer may be lost of, so that their share is kept.
    is_ok = np.array([cases[row].expect_status == Status.ok.name for row in order], dtype=bool)
    notes = []
    if is_ok.sum() < LEAST_OK:
        notes.append(
            f"Fewer than {LEAST_OK} questions are labelled ok ({int(is_ok.sum())}): mapped on all "
            f"{len(is_ok):,}."
        )
        is_ok[:] = True
    return is_ok, notes


def _check_declared(before: Scores, after: Scores) -> None:
    """Refuse a signal of which more means something else in the new trace, or of another unit."""
    thresholds = swept_paths(before.known)
    for name in dict.fromkeys(
        thresholds[path].signal for path in before.by_path if thresholds[path].signal
    ):
        rows = [known.signal(name) for known in (before.known, after.known)]
        old, new = (f"higher {row.direction!r} and unit {row.unit.name!r}" for row in rows)
        if old != new:
            rule = f"signal {name} must have the same direction and unit in both traces"
            msg = (
                f"{rule}, got {old} in trace, {new} in to; declare it alike, or give it another "
                "name."
            )
            raise ValueError(msg)


def _moved_value(
    swept: Threshold,
    value: float,
    scores: tuple[NDArray[np.float64], NDArray[np.float64]],
    is_ok: NDArray[np.bool_],
    method: Method,
) -> tuple[float, str]:
    """Threshold on the new scores within its range, and a note.

    One that judges nothing in the old ones stays so.
    """
    sign = _passes_above(swept)
    threshold, bounds = sign * value, sorted((sign * swept.low, sign * swept.high))
    old, new = (of[np.isfinite(of)] for of in scores)
    if threshold <= old.min():
        return value if threshold <= new.min() else sign * bounds[0], OUTSIDE
    if threshold > old.max():
        return value if threshold > new.max() else sign * bounds[1], OUTSIDE
    try:
        moved, note = _moved(threshold, scores[0][is_ok], scores[1][is_ok], method)
    except ValueError as error:
        msg = f"{swept.path} can not be mapped from trace to to: {error}"
        raise ValueError(msg) from error
    return value if moved == threshold else float(
        np.clip(sign * moved, swept.low, swept.high)
    ), note


def _moved(
    threshold: float, old: NDArray[np.float64], new: NDArray[np.float64], method: Method
) -> tuple[float, str]:
    """Threshold on the new scores, more passes, and a note.

    The same where the scores are the same.
    """
    if method == "isotonic":
        if np.array_equal(old, new, equal_nan=True):
            return threshold, ""
        moved, is_clipped = isotonic_map(threshold, old, new)
        return moved, CLIPPED if is_clipped else ""
    if np.array_equal(np.sort(old), np.sort(new), equal_nan=True):
        return threshold, ""
    return quantile_map(threshold, old, new), ""


def quantile_map(
    threshold: float, source: NDArray[np.float64], target: NDArray[np.float64]
) -> float:
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
        msg = (
            "target must hold at least one score, got none; score the queries with the target's "
            "embedder."
        )
        raise ValueError(msg)
    wanted = int((np.asarray(source) >= threshold).sum())
    at_or_above = np.append(np.cumsum(sizes[::-1])[::-1], 0)
    candidates = np.append(levels, np.nextafter(levels[-1], np.inf))
    away = np.abs(at_or_above - wanted)
    return float(candidates[len(away) - 1 - int(np.argmin(away[::-1]))])


def isotonic_map(
    threshold: float, source: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[float, bool]:
    """New score expected at a threshold on the old score, and whether it lies outside all old ones.

    Monotone least squares of the target on the source over the same questions; outside the range it
    is clipped. A higher threshold never maps to a lower one. Where the scores are weakly related
    the line is flat, so that the share that passes is not kept.

    Args:
      threshold: for the source.
      source, target: scores of the same questions, [Q]; NaN or infinite ones are left out.

    Source: Barlow and others 1972 (pool adjacent violators).

    Example:
      >>> isotonic_map(0.5, np.array([0.0, 1.0]), np.array([10.0, 30.0]))
      (20.0, False)
    """
    from sklearn.isotonic import IsotonicRegression

    is_paired = np.isfinite(source) & np.isfinite(target)
    x, y = source[is_paired], target[is_paired]
    if not len(x):
        msg = (
            "source and target must both have scores for some question, got none; score the same "
            "questions twice."
        )
        raise ValueError(msg)
    order = np.lexsort((y, x))  # not that of the rows: sums must not depend on it
    regression = IsotonicRegression(out_of_bounds="clip").fit(x[order], y[order])
    is_clipped = not x.min() <= threshold <= x.max()
    return float(
        regression.predict(np.array([np.clip(threshold, x.min(), x.max())]))[0]
    ), is_clipped


def _refitted(there: TraceView, mapped: Mapped, promised: Promised, arm: str | None) -> Mapped:
    """Policy chosen on the new cases alone.

    The cheapest whose p-value is at most delta, else the least p-value.
    """
    start, cases, notes = mapped.policy, there, list(mapped.notes)
    if start.decision.rule == EXPECTED_COST and start.decision.model is not None:
        model = start.decision.model
        group = None if model.groups is None else model.groups.attribute
        start = fit_decision(cases, start, signals=tuple(model.parts), group=group, arm=arm)
        notes.append("The decision model is fitted again, with seed 0.")
    if start.fused.enabled:
        start = fit_fused_gate(cases, start, arm=arm).policy
        notes.append(
            "The fused gate is fitted again by method logistic, seed 0: a policy does not state "
            "how."
        )
    view: Any = held_trace(cases)
    with pilot_trace(view, start, arm) as pilot:
        offered = grid(pilot, start, arm)
        counts = pilot_counts(
            pilot,
            offered,
            list(promised.targets),
            promised.costs,
            arm,
            promised.mix,
            promised.delta,
        )
    p = counts.losses.p(np.array(list(promised.targets.values()))).max(axis=1)
    passing = np.flatnonzero(p <= promised.delta)
    cost = counts.losses.cost
    place = (
        min(passing.tolist(), key=lambda at: (cost[at], p[at]))
        if len(passing)
        else min(range(len(offered)), key=lambda at: (p[at], cost[at]))
    )
    lead = (
        f"Refit on {len(there):,} new cases among {len(offered):,} policies: p-value "
        f"{p[place]:.3g} there"
    )
    notes.append(
        f"{lead}{'' if len(passing) else f', above {promised.delta:g}, the lowest there is'}."
    )
    return Mapped(
        offered[place],
        _refitted_rows(mapped.rows, start, offered[place]),
        (*notes, *counts.notes),
        mapped.missing,
    )


def _refitted_rows(
    rows: Sequence[tuple[str, float, float, float, float, str]], start: Policy, chosen: Policy
) -> list[tuple[str, float, float, float, float, str]]:
    """Table of the thresholds after a refit.

    Those that the mapping moved, and those that the grid chose.
    """
    refitted = []
    for path, old, mapped, before, after, note in rows:
        value = float(chosen.value(path))
        is_same = value == mapped
        refitted.append(
            (path, old, value, before, after if is_same else np.nan, note if is_same else REFITTED)
        )
    known = {row[0] for row in rows}
    learned = ("decision.ratio", *(path for path, swept in SWEPT.items() if not swept.signal))
    refitted += [
        (
            path,
            np.nan if start.value(path) is None else float(start.value(path)),
            value,
            np.nan,
            np.nan,
            REFITTED,
        )
        for path in dict.fromkeys(learned)
        if path not in known and (value := chosen.value(path)) != start.value(path)
    ]
    return refitted


def _remembered(policy: Policy, old: Policy, there: TraceView) -> Policy:
    """Policy that keeps the cases its moved thresholds were mapped on beside others it keeps."""
    policy = with_scores_of(policy, there.meta)
    if policy.policy_id == old.policy_id:
        return policy
    return with_further_cases(policy, [case.query for case in _all_cases(there)])


def _tested(
    to: TraceView,
    old: Policy,
    policy: Policy,
    promised: Promised,
    arm: str | None,
    looks: Path | None,
) -> LookResult:
    """Certification on split certify of the new trace, a further look if certified on before."""
    view: Any = to
    by_split = trace_queries(to)
    if "certify" not in by_split:
        return LookResult(
            None, ("No case of the new trace is of split certify: nothing can be promised of it.",)
        )
    if promised.sentences:
        return LookResult(None, promised.sentences)
    if not promised.targets:
        return LookResult(
            None,
            ("No targets are stated, and the policy carries no certificate: nothing is promised.",),
        )
    cases = view.split("certify")
    if promised.stated is not None and basis_conflict(promised.stated["basis"], trace_basis(cases)):
        value = f"those of the old certificate by {promised.stated['basis']}"
        return LookResult(
            None,
            (f"The new certify cases are judged by {trace_basis(cases)}, {value} (rule S6.3).",),
        )
    reuse = _reuse(old, by_split, promised)
    reuse = _unknown_choices(looks, by_split["certify"], promised.stated) or reuse
    if isinstance(reuse, str):
        return LookResult(None, (reuse,))
    again = reuse.looks > 0
    terms = CertificationSettings(
        promised.targets, promised.costs, promised.delta, arm, again, looks, reuse, mix=promised.mix
    )
    certification = certify_alone(view, policy, terms)
    certificate = certification.certificate
    missing = _unkept(certification) if certification.policy is None else ()
    divisor = look_divisor(certificate.hypotheses, certificate.looks)
    return LookResult(certification, missing, certificate.delta, certificate.looks, divisor)


def _unknown_choices(
    looks: Path | None, queries: Sequence[str], stated: Mapping[str, Any] | None
) -> str:
    """Why the looks that a file remembers allow no further one; empty where they do."""
    before = {} if looks is None else recorded_looks(looks, hash_queries(queries), queries)
    known = None if stated is None else stated.get("key")
    unknown = sum(not record.hypotheses for key, record in before.items() if key != known)
    if not unknown:
        return ""
    return (
        f"{looks} holds {unknown:,} looks of an older raglab at the certify cases, which do not "
        "state among how many "
        "candidates they chose: take new cases."
    )


def _reuse(
    old: Policy, by_split: Mapping[str | None, Sequence[str]], promised: Promised
) -> Reuse | str:
    """What the old policy knows of the certify cases, or why nothing valid can be said on them."""
    stated = promised.stated
    learned_on = {hashed for hashed in (old.tuned_on, old.fused.fitted_on) if hashed is not None}
    if old.decision.model is not None and old.decision.model.fitted_on is not None:
        learned_on.add(old.decision.model.fitted_on)
    pilot = None if stated is None else stated["pilot_hash"]
    (of_pilot,) = learned_cases(
        [old.model_copy(update={"tuned_on": pilot})], by_split, ("certify",)
    )
    if pilot is not None and "policy" in of_pilot.parts:
        return (
            "The certify cases are the pilot of the old certificate, on which the policy was "
            "chosen: take others, or "
            "the splits of that certificate."
        )
    certified_on = {
        *old.learned_cases,
        *(() if stated is None else (str(stated["cases_hash"]),)),
    } - learned_on
    for hashed in sorted(certified_on):
        (overlap,) = learned_cases(
            [old.model_copy(update={"tuned_on": hashed})], by_split, ("certify",)
        )
        if "policy" not in overlap.parts:
            continue
        if stated is None or hashed != stated["cases_hash"]:
            return (
                f"The policy was certified before on {overlap.k:,} of the {overlap.n:,} certify "
                "cases, and does not "
                "state among how many candidates: take new cases, or the policy with that "
                "certificate."
            )
        return Reuse(int(stated["looks"]), float(stated["spent"]), chosen_among(stated))
    return Reuse()


def _unkept(certification: Certification) -> tuple[str, ...]:
    """What a certification that failed lacks, a sentence each."""
    certificate = certification.certificate
    sentences = [f"{certificate.reason[0].upper()}{certificate.reason[1:]}."]
    for promise in certificate.promises:
        if promise.n and promise.bound <= promise.alpha:
            continue
        if promise.name in certification.needs:
            sentences.append(need_line(promise.name, certification.needs[promise.name]))
        else:
            bound = (
                f"an upper bound of {promise.bound:.4g} on {promise.n:,} cases"
                if promise.n
                else "no case"
            )
            sentences.append(
                f"{promise.name} ≤ {promise.alpha:g} has {bound}: these certify "
                f"{promise.bound:.4g}."
            )
    return tuple(sentences)


def _judged(
    to: TraceView, old: Policy, policy: Policy, promised: Promised, arm: str | None
) -> tuple[Retest | None, Retest | None, tuple[str, ...]]:
    """Verdict of split report on the mapped and on the old thresholds, and why there is none."""
    view: Any = to
    if not promised.targets or "report" not in {case.split for case in _all_cases(to)}:
        return None, None, ()
    cases, doubts = view.split("report"), list[str]()
    results: list[Retest | None] = []
    for name, judged in (("mapped", policy), ("old", old)):
        try:
            results.append(
                retest(
                    judged,
                    cases,
                    promised.targets,
                    delta=promised.delta,
                    arm=arm,
                    costs=promised.costs,
                    corners=stated_corners(promised.stated or {}),
                )
            )
        except ValueError as error:  # too many answers missing, or a model of other hits
            results.append(None)
            doubts.append(f"The {name} policy is not judged on split report: {error}")
    return results[0], results[1], tuple(doubts)


def _relabelled(to: TraceView, policy: Policy, labels: LabelValidity, arm: str | None) -> str:
    """How many certify cases must be labelled again before anything is promised of them.

    Empty where none must.
    """
    cases = _all_cases(to)
    lost = labels.lost & np.array([case.split == "certify" for case in cases], dtype=bool)
    if to.has_answers:  # what is judged by text is not judged by sources
        lost &= ~may_be_judged(cases)
    if lost.any():
        lost &= decide_policies(to, [policy], arm)[0].status == Status.ok
    if not lost.any():
        return ""
    case_id = cases[int(np.argmax(lost))].id
    rule = "a name that now means another text would count as correct"
    return (
        f"{int(lost.sum()):,} certify cases that the policy answers must be labelled again, such "
        f"as {case_id}: {rule}."
    )


def _label_notes(to: TraceView, labels: LabelValidity) -> tuple[str, ...]:
    """How many cases to certify on have labels that may not hold."""
    is_certify = np.array([case.split == "certify" for case in _all_cases(to)], dtype=bool)
    doubtful, lost = (int(mask[is_certify].sum()) for mask in (labels.doubtful, labels.lost))
    if not doubtful:
        return ()
    count = (
        f"{doubtful:,} of {int(is_certify.sum()):,} certify cases have a label that is uncertain "
        f"or lost ({lost:,})"
    )
    return (f"{count}; an uncertain one is scored as it stands, which may count either way.",)


def _look_notes(tested: LookResult, looks: str | Path | None) -> tuple[str, ...]:
    """How often the certify cases were used."""
    unknown = () if looks is not None or not tested.look else (UNRECORDED,)
    if tested.look < 2:
        return unknown
    level = (
        f"{tested.delta / tested.hypotheses:.3g}, as one of {tested.hypotheses:,} that these "
        "cases may have chosen"
    )
    lead = f"The certify cases were used before: look {tested.look} may spend {tested.delta:.3g}"
    return (f"{lead}, and the policy is tested at {level}.", *unknown)
