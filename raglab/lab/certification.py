"""Certification (shore): policies in an order, tested on held-out cases (S6.4, S6.7, S6.9, S6.10).

Of several policies the cheapest that keeps its targets is certified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raglab import certify, metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import Certificate, Promise, TestMethod
from raglab.decision.learned_cases import with_learned_cases
from raglab.decision.refusal_warnings import refusal_text
from raglab.decision.scoring import headline_sentence, trace_status_only
from raglab.decision.trace_view import (
    TraceView,
    answered_traces,
    failed_count,
    held_trace,
)
from raglab.lab.answer_basis import missing_notes
from raglab.lab.certification_counts import (
    COST,
    CertificationSettings,
    CertifyCases,
    PilotCounts,
    RateCounts,
    SplitCounts,
    certify_splits,
    checked_settings,
    count_split,
    distinct_candidates,
    free_policies,
    in_mix,
    pilot_counts,
    question_losses,
    repeated_cases,
    unit_cells,
)
from raglab.lab.certification_families import grid
from raglab.lab.certification_words import (
    Certification,
    SequenceResult,
    candidate_table,
    certificate_notes,
    certificate_reason,
    changed_settings,
    lacking_cases,
    mix_notes,
    nearest_target,
    need_note,
    number_texts,
    untested_reason,
)
from raglab.lab.looks import TakenLook, take_look
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.lab.untuned_policies import limit_depth
from raglab.metrics.mixes import SAMPLE, Mix
from raglab.replay import decide_policies
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import SCHEMA_VERSION, FloatArray, IntArray, refuse
from raglab.words.canonical import digest


@answered_traces("trace")
def certify_policy(
    trace: StudyTrace,
    policy: Policy,
    *,
    targets: Mapping[str, float] | None = None,
    costs: metrics.Costs | None = None,
    delta: float = 0.1,
    arm: str | None = None,
    again: bool = False,
    looks: str | Path | None = None,
    mix: Mix = SAMPLE,
) -> Certification:
    """Test whether one policy keeps every target at once, with probability at least 1 − delta.

    The probability is over the cases.

    Only this policy is tested, as one hypothesis. `certify_best` chooses among several.

    Args:
      trace: with a split `certify`, the only one that is tested on, or without any splits. Of
        shards (`Trace.open`) one is in memory at a time.
      policy: to test.
      targets: rate -> highest value, such as `{"hallucination_rate": 0.1}`; `expected_cost` too, in
        units of cost.
      costs: label -> outcome -> cost, of the target `expected_cost`, see `metrics.cost_matrix`.
      delta: error of the promise, in (0, 0.5).
      arm: which of the trace's arms; the first where not given.
      again: states that these cases were certified on before, and allows a further look.
      looks: file that remembers every look at the cases, and at other sets that share more than 5 %
        of their questions; the same certification again is the same look. Without a file only the
        policy's own certificate is remembered: a look that failed, or that another policy took, is
        unknown, so a further one is not refused, and the reason says "first look known of".
      mix: traffic that the promise is for: `sample`, that of the labelled cases; label -> share or
        (least, largest share); or `raglab.traffic_mix(...)`, whose error takes half of delta. Then
        the numbers of cases of each label are as they are, a promise holds in every mix inside, and
        within a label traffic must be like the labelled cases.

    Warns:
      UserWarning: one gate of the policy refuses nearly all cases labelled ok (in memory).

    Raises:
      ValueError: no targets, a policy of which a part was fitted or tuned on any of the cases to
        certify on, an unknown rate, target outside (0, 1), of the cost outside (0, the highest
        cost), costs without that target, no cases, or without `again` another certification on the
        same cases that `looks` or the policy's certificate remembers; under a mix a label with a
        share and no case, or a question of several labels.

    Source: rules S2.19, S6.4, S6.7, S6.9, S6.10, S6.15; exact binomial p-values, of graded costs
      those of Hoeffding and Bentkus (Bates and others 2021), in a mix see `metrics.mix_tests`.

    Example:
      `raglab.certify_policy(trace, result.policy, targets={"hallucination_rate": 0.1},
      looks="looks.jsonl")`.
    """
    settings = checked_settings(targets, costs, delta, arm, again=again, looks=looks, mix=mix)
    return certify_alone(trace, policy, settings)


def certify_alone(
    trace: StudyTrace, policy: Policy, settings: CertificationSettings
) -> Certification:
    """`certify_policy` under settings that are checked.

    Raises:
      ValueError: as `certify_policy`.
    """
    if settings.costs is not None and COST not in settings.targets:
        refuse(
            f"costs must be those of a target {COST}",
            f"the targets {', '.join(settings.targets)}",
            f"add {COST}, or leave costs= out",
        )
    cases = certify_splits(trace)
    candidates, learning_doubts = distinct_candidates([policy], cases)
    _warn_of_refusals(cases.learned_on, policy, settings.arm)
    depth_notes = _depth_note(trace, candidates)
    test_order = TestOrder("single", np.arange(1))
    return _certification(cases, candidates, test_order, settings, (*learning_doubts, *depth_notes))


@answered_traces("trace")
def certify_best(
    trace: StudyTrace,
    candidates: Policy | Sequence[Policy] | Mapping[str, Policy],
    *,
    targets: Mapping[str, float] | None = None,
    costs: metrics.Costs | None = None,
    delta: float = 0.1,
    arm: str | None = None,
    paths: Sequence[str] | None = None,
    again: bool = False,
    looks: str | Path | None = None,
    mix: Mix = SAMPLE,
) -> Certification:
    """Cheapest of several policies that keeps every target, at probability 1 − delta or more.

    The probability is over the cases.

    On split `tune` (the pilot) the candidates are ordered from the safest to the cheapest, without
    those that another one beats in both. On split `certify` they are tested in that order until one
    fails. Of those that passed the one of least pilot cost is returned. Pilot figures of a policy
    whose decision model was fitted on the pilot come from models that never saw the case. Without a
    split `tune` every candidate is tested at once (Holm).

    A candidate that can certify nothing at its expected number of answers is not in the order: its
    counts on the pilot, times the cases to certify on over those of the pilot, would fail the test
    even if none of them were lost. Where no candidate is left, or where the cases to certify on are
    too few for any policy, none is tested and no look is taken or noted; the reason says how many
    cases a target needs and has, and `looks` is 0. This rests on the pilot, the number of cases to
    certify on, the targets and delta alone. So such a call spends no error, and it tells nothing of
    how a case to certify on is decided or labelled, by which the next call could be chosen.

    Args:
      trace: with a split `certify`, or without any splits. Of shards (`Trace.open`) one is in
        memory at a time: the pilot is measured once and kept on disk meanwhile (see
        `measured_shards`), the cases to certify on once.
      candidates: policies to choose from, such as `TuneResult.policies`; or one policy, whose
        declared family is tested: `grid` over its cost ratio, its bounds on signals or its gates'
        thresholds. It refines no further than the trace measured.
      targets: rate -> highest value, such as `{"hallucination_rate": 0.1}`; `expected_cost` too, in
        units of cost.
      costs: label -> outcome -> cost, by which the candidates are chosen, and of the target
        `expected_cost`; see `metrics.cost_matrix`.
      delta: error of the promise, in (0, 0.5), for any number of candidates and targets.
      arm: which of the trace's arms; the first where not given.
      paths: thresholds that the family of one policy varies; `declared_family` where not given.
      again: as for `certify_policy`.
      looks: as for `certify_policy`.
      mix: as for `certify_policy`; costs are compared there too.

    Warns:
      UserWarning: one gate of the one policy given refuses nearly all cases labelled ok (in
        memory).

    Raises:
      ValueError: as `certify_policy`; no candidates, or paths with several candidates.

    Source: rules S2.19, S6.4, S6.7, S6.9, S6.10; Pareto testing (Laufer-Goldshtein and others
      2023).

    Example: with splits `tune` and `certify`, so that the policy is fitted on other cases than
      those it is tested on: `raglab.certify_best(trace, raglab.fit_decision(trace.split("tune")),
      targets={"hallucination_rate": 0.2})`.
    """
    settings = checked_settings(targets, costs, delta, arm, again=again, looks=looks, mix=mix)
    cases = certify_splits(trace)
    # The cases that an order is learned on are replayed several times, in memory measured once.
    replayed_trace = held_trace(cases.learned_on)
    is_family = isinstance(candidates, Policy)
    if isinstance(candidates, Policy):
        listed_candidates = None
        start_policy = limit_depth(candidates, trace)
    else:
        listed_policies = [
            *(candidates.values() if isinstance(candidates, Mapping) else candidates)
        ]
        if not listed_policies:
            refuse("candidates must hold at least one policy", "none", "give one for its family")
        if paths is not None:
            refuse(
                "paths must vary one policy", f"a list of {len(listed_policies)}", "leave them out"
            )
        listed_candidates = distinct_candidates(listed_policies, cases)
        start_policy = listed_policies[0]
    passes_twice = is_family and cases.pilot is not None
    with (
        pilot_trace(replayed_trace, start_policy, arm)
        if passes_twice
        else nullcontext(replayed_trace) as pilot_cases
    ):
        tested_candidates, learning_doubts = listed_candidates or distinct_candidates(
            grid(pilot_cases, start_policy, arm, paths), cases
        )
        # Which candidates are tested, and in which order, is settled before the cases to certify on
        # are looked at.
        test_order = candidate_order(pilot_cases, cases, tested_candidates, settings)
    # What a mix needs is of each label, of which the number of cases says nothing.
    n_cases = {} if settings.mix else dict.fromkeys(settings.targets, cases.n_questions)
    if not len(test_order.places) or lacking_cases(n_cases, settings, test_order.n_tests):
        return _untested(cases, tested_candidates, test_order, settings, learning_doubts)
    if is_family:
        _warn_of_refusals(replayed_trace, start_policy, arm)
    result_notes = (
        learning_doubts if is_family else (*learning_doubts, *_depth_note(trace, tested_candidates))
    )
    measured_trace = replayed_trace if cases.pilot is None else None
    return _certification(
        cases,
        tested_candidates,
        test_order,
        settings,
        result_notes,
        measured_trace,
        is_family=is_family,
    )


def _depth_note(trace: StudyTrace, policies: Sequence[Policy]) -> tuple[str, ...]:
    """Note on policies that refine deeper live than the trace measured, so not all was tested."""
    n_deeper = sum(limit_depth(policy, trace).policy_id != policy.policy_id for policy in policies)
    depth_note = (
        f"{n_deeper:,} of {len(policies):,} policies refine deeper than the trace, where the test "
        "stops: build it deeper, or lower refine.max_depth."
    )
    return (depth_note,) if n_deeper else ()


def _warn_of_refusals(trace: TraceView, policy: Policy, arm: str | None) -> None:
    """Warn if gates refuse nearly all answerable cases of a trace of one part (rule S2.19)."""
    # of several it would take one more pass over their files
    if len(trace.parts) == 1 and (
        refusal_warning := refusal_text(decide_policies(trace, [policy], arm)[0])
    ):
        warn_user(f"The policy to be certified: {refusal_warning}")


def pilot_trace(
    pilot: TraceView, start_policy: Policy, arm: str | None
) -> AbstractContextManager[TraceView]:
    """The pilot for a grid and its order.

    Of shards it is measured once, on disk, and both passes read that.
    """
    if start_policy.structure.decision is not None:
        return nullcontext(pilot)
    return pilot.measured_once(start_policy, arm)


# the order


class TestOrder(NamedTuple):
    """How candidates are tested.

    method: `single`, one alone; `fixed_sequence`, one after the other until one fails; `holm`, all
    at once. places: of the candidates in the order of the tests, [M]. pilot: what all of them do on
    the pilot; None without one. size: cases to certify on, over those of the pilot.
    """

    method: TestMethod
    places: IntArray
    pilot: PilotCounts | None = None
    size: float = float("nan")

    @property
    def pilot_tried(self) -> RateCounts | None:
        """Losses of the candidates on the pilot, in the order of the tests, [M]."""
        return self.pilot and self.pilot.losses.subset(self.places)

    @property
    def n_tests(self) -> int:
        """Tests among which the allowed error is divided."""
        return len(self.places) if self.method == "holm" else 1


def candidate_order(
    pilot: TraceView,
    cases: CertifyCases,
    candidates: Sequence[Policy],
    settings: CertificationSettings,
) -> TestOrder:
    """Order of the candidates, learned on the pilot (rule S6.10)."""
    # Without cases of its own to learn an order on, any order would come from the cases it is
    # tested on.
    if cases.pilot is None:
        return TestOrder("holm", np.arange(len(candidates)))
    counts_on_pilot = pilot_counts(pilot, candidates, settings)
    size_ratio = cases.n_questions / len(pilot)
    places = pilot_order(counts_on_pilot.losses, settings.alphas, settings.level, size_ratio)
    return TestOrder("fixed_sequence", places, counts_on_pilot, size_ratio)


def pilot_order(
    rate_counts: RateCounts, alphas: FloatArray, delta: float, size_ratio: float
) -> IntArray:
    """Candidates worth testing, learned on a pilot split: from the safest to the cheapest, [M].

    Left out are those that another one beats in p-value and cost, and those that can certify
    nothing at their expected number of answers: empty where none can.

    Args:
      rate_counts: candidates on the pilot.
      alphas: targets, [T].
      delta: level of the tests.
      size_ratio: cases to be certified on, over those of the pilot.

    Source: rule S6.10; Pareto testing (Laufer-Goldshtein and others 2023).
    """
    rows = np.flatnonzero((rate_counts.at_best(size_ratio).p(alphas) <= delta).all(axis=1))
    p_values = rate_counts.p(alphas).max(axis=1)
    return rows[certify.pareto_order(p_values[rows], -rate_counts.cost[rows])]


# the tests


def sequence_test(
    rate_counts: RateCounts, test_order: TestOrder, targets: Mapping[str, float], delta: float
) -> SequenceResult:
    """Tests of all targets together for every candidate, with error delta over all of them."""
    in_sequence = test_order.method != "holm"
    p_values = rate_counts.p(np.array(list(targets.values())))
    # A candidate keeps its promise only if it keeps every target, so its p-value is the largest of
    # them.
    joint_p = p_values.max(axis=1)
    passed_mask = (certify.fixed_sequence if in_sequence else certify.holm)(joint_p, delta)
    # Any candidate that passed may be taken, at no further error: the cheapest on the pilot, of
    # equals the surest.
    candidate_costs = (test_order.pilot_tried or rate_counts).cost
    chosen_place = int(
        min(
            np.flatnonzero(passed_mask),
            key=lambda target_place: (candidate_costs[target_place], joint_p[target_place]),
            default=-1,
        )
    )
    # Where none passed, the one that came nearest is shown: the first in a sequence, else the
    # least p.
    shown_place = (
        chosen_place if chosen_place >= 0 else 0 if in_sequence else int(np.argmin(joint_p))
    )
    shown_counts = rate_counts.subset(np.array([shown_place]))
    n_candidates = len(passed_mask)

    def promises_at(test_level: float) -> tuple[Promise, ...]:
        return tuple(
            Promise(
                name=target_name,
                alpha=float(target_rate),
                k=shown_counts.total(0, target_place),
                n=int(shown_counts.n[0, target_place]),
                bound=float(shown_counts.bounds(target_place, test_level, target_rate)[0]),
            )
            for target_place, (target_name, target_rate) in enumerate(targets.items())
        )

    promises = promises_at(delta)
    # Holm's first test of n candidates is at delta / n, so where none passed that is the level that
    # stopped it.
    failed_promises = promises if in_sequence else promises_at(delta / n_candidates)
    # What stopped it binds: in a sequence the first that failed, of all at once the nearest where
    # none passed; else the target with the least room.
    n_passed = int(passed_mask.sum()) if in_sequence else n_candidates
    failing_place = n_passed if in_sequence else shown_place if chosen_place < 0 else n_candidates
    target_use = [promise.bound / promise.alpha if promise.n else np.inf for promise in promises]
    binding_promise = promises[
        int(np.argmax(p_values[failing_place] if failing_place < n_candidates else target_use))
    ]
    return SequenceResult(
        p=p_values,
        passed=passed_mask,
        chosen=chosen_place,
        promises=promises,
        binding=binding_promise.name,
        n_tested=min(n_passed + 1, n_candidates),
        failed=() if chosen_place >= 0 else failed_promises,
        shown=shown_place,
    )


class Decided(NamedTuple):
    """What candidates do on the cases to certify on.

    tried: in the order of the tests. split: their decisions. counts: losses of distinct questions.
    units: questions by cell, which a stated mix weighs; None without one. failed: calls.
    """

    tried: list[Policy]
    split: SplitCounts
    counts: RateCounts
    units: IntArray | None
    failed: int

    def corners(self, settings: CertificationSettings) -> FloatArray | None:
        """Outermost mixes, [V, 3], what is not stated in the ratio of the cases; None of their own.

        Raises:
          ValueError: a label with a share and no question.
        """
        if self.units is None or settings.traffic is None:
            return None
        counts = metrics.label_counts(self.units[0, 0]) - self.failed
        return settings.traffic.at_labels(counts).vertices(counts)


def _certification(
    cases: CertifyCases,
    candidates: Sequence[Policy],
    test_order: TestOrder,
    settings: CertificationSettings,
    further_notes: Sequence[str],
    replayed_trace: TraceView | None = None,
    *,
    is_family: bool = False,
) -> Certification:
    """Test candidates in order on the certify cases, which are looked at for the first time.

    Args:
      replayed_trace: those cases measured, where they are.
      is_family: whether the candidates are those of one policy, which is the first of them.
    """
    held_out = cases.held_out
    measured_trace = held_out if replayed_trace is None else replayed_trace
    # In the order that the pilot fixed: these cases must not choose what is tested first.
    tried_policies = [candidates[candidate_place] for candidate_place in test_order.places]
    n_failed = failed_count(held_out)
    candidate_counts = count_split(measured_trace, tried_policies, candidates[0], settings)
    repeated_questions = repeated_cases(measured_trace, tried_policies, cases.numbers, settings.arm)
    rate_counts = question_losses(candidate_counts.losses, repeated_questions)
    question_cells = (
        None
        if settings.mix is None
        else unit_cells(candidate_counts.losses, repeated_questions, n_failed=n_failed)
    )
    decided = Decided(tried_policies, candidate_counts, rate_counts, question_cells, n_failed)
    # Another look at the same cases is refused here, before it says anything.
    look, settings = _noted_look(settings, candidates, cases, decided)
    if (mix_corners := decided.corners(settings)) is not None:
        rate_counts = in_mix(
            rate_counts, mix_corners, settings.level / test_order.n_tests, question_cells
        )
        decided = decided._replace(counts=rate_counts)
    test_result = sequence_test(rate_counts, test_order, settings.targets, settings.level)
    # A case scored by status alone counts any answer as correct, so the certificate says how many
    # are (rule S6.3).
    n_status_only = int((np.bincount(cases.numbers, trace_status_only(held_out)) > 0).sum())
    headline_words = headline_sentence(n_status_only, cases.n_questions, n_failed)
    n_tried = len(tried_policies)
    first_settings = (
        number_texts(changed_settings(candidates[0], tried_policies[0])) or "the policy given"
    )
    tested_phrase = {
        "fixed_sequence": f"the first of {n_tried} candidates{f' ({first_settings})' * is_family}",
        "holm": f"the likeliest of {n_tried} candidates, at level {settings.level / n_tried:.3g},",
    }.get(test_order.method if len(candidates) > 1 else "", "the policy")
    reason = certificate_reason(
        test_result,
        settings,
        tested_phrase,
        look,
        (f"judged by {rate_counts.basis.described}", headline_words),
    )
    certificate, certified_policy = _earned(
        cases, candidates, test_order, settings, decided, test_result, look, reason
    )
    needs = {
        promise.name: certify.data_need(promise.alpha, promise.n, int(promise.k), settings.level)
        for candidate_place, promise in enumerate(test_result.promises)
        if promise.name != COST and rate_counts.mixed(candidate_place) is None
    }
    n_cases = cases.n_questions + n_failed
    nearest_hint = nearest_target(test_order.pilot, test_order.size, settings)
    need_notes = [need_note(target_name, need, n_cases) for target_name, need in needs.items()]
    label_needs, notes_on_mix = mix_notes(rate_counts, test_result, settings)
    is_given_dropped = is_family and test_order.pilot is not None and 0 not in test_order.places
    # policies that are not certified for missing answers, and the gaps of the chosen one (S6.3)
    answer_gaps = {
        tried_policies[candidate_place].policy_id: missing_answers
        for candidate_place, missing_answers in enumerate(rate_counts.missing_answers)
        if candidate_place == test_result.chosen or not missing_answers.is_compared
    }
    return Certification(
        certificate=certificate,
        policy=certified_policy,
        table=candidate_table(
            candidates[0],
            tried_policies,
            rate_counts,
            test_result,
            test_order.pilot_tried,
            settings,
        ),
        needs=needs,
        nearest=nearest_hint[0],
        notes=(
            *([] if test_result.certified else need_notes),
            *certificate_notes(
                certificate, nearest_hint, settings, unsplit=len(cases.by_split) == 1
            ),
            *(
                [f"By its pilot the policy given is not tested; first: {first_settings}."]
                * is_given_dropped
            ),
            *notes_on_mix,
            *missing_notes(answer_gaps, "the cases certified on"),
            *unmeasured_note(held_out, candidates[0]),
            *(test_order.pilot.notes if test_order.pilot else ()),
            *further_notes,
        ),
        chance=nearest_hint[1],
        status_only=n_status_only,
        failed=n_failed,
        label_needs=label_needs,
    )


def _earned(
    cases: CertifyCases,
    candidates: Sequence[Policy],
    test_order: TestOrder,
    settings: CertificationSettings,
    decided_candidates: Decided,
    test_result: SequenceResult,
    look: TakenLook,
    reason: str,
) -> tuple[Certificate, Policy | None]:
    """Certificate, and the chosen policy that holds it, None where none passed."""
    rate_counts = decided_candidates.counts
    chosen_place = test_result.chosen
    mix_corners = decided_candidates.corners(settings)
    policy_verdicts = zip(decided_candidates.tried, test_result.passed, strict=True)
    certificate = _certificate(
        cases,
        candidates,
        test_order,
        settings,
        certified=tuple(
            policy.policy_id for policy, is_certified in policy_verdicts if is_certified
        ),
        promises=test_result.promises,
        binding=test_result.binding,
        tested=test_result.n_tested,
        reason=reason,
        looks=look.number,
        spent=look.spent,
        mix=None if settings.traffic is None else settings.traffic.rows,
        mix_corners=() if mix_corners is None else tuple(map(tuple, mix_corners.tolist())),
        basis=str(rate_counts.basis),
        looks_recorded=settings.looks is not None,
        hypotheses=look.hypotheses,
        # answers that count as wrong
        undecided=int(rate_counts.undecided[chosen_place]) if rate_counts.basis.text else None,
        missing_answers=int(rate_counts.missing[chosen_place, 0])
        if rate_counts.basis.text
        else None,
    )
    if not test_result.certified:
        return certificate, None
    chosen_policy = decided_candidates.tried[chosen_place]
    certificate = replace(
        certificate,
        chosen=chosen_policy.policy_id,
        coverage=float(rate_counts.coverage[chosen_place]),
        over_ask=float(rate_counts.over_ask[chosen_place]),
        free=free_policies(decided_candidates.split, settings, mix_corners),
    )
    # The policy carries what a check needs to repeat the test on the same terms: how hits must be
    # retrieved, this look's key, and a code of each case it used (rule S6.10).
    certificate_fields = certificate.rows | {
        "key": look.key,
        "arm": settings.arm or cases.held_out.arms[0],
        "retrieval": dict(cases.held_out.meta.get("parameters", {})),
        "schema_version": SCHEMA_VERSION,
    }
    if COST in settings.targets:
        certificate_fields["costs"] = metrics.stated_costs(metrics.cost_matrix(settings.costs))
    if settings.budget is not None:
        certificate_fields["budget"] = settings.budget
    return certificate, with_learned_cases(
        chosen_policy.replace("certificate", certificate_fields), cases.queries
    )


def _untested(
    cases: CertifyCases,
    candidates: Sequence[Policy],
    test_order: TestOrder,
    settings: CertificationSettings,
    learning_doubts: Sequence[str],
) -> Certification:
    """Result where no candidate can pass: none is tested, and no look is taken."""
    import pandas as pd

    n_cases = cases.n_questions
    counts_on_pilot = test_order.pilot
    target_sizes = dict.fromkeys(settings.targets, n_cases)
    cases_phrase = ""
    if test_order.n_tests > 1:
        cases_phrase = f" for {test_order.n_tests:,} tests at once"
    elif counts_on_pilot is not None and not len(test_order.places):
        # of the candidate that is nearest to passing, if none of its expected answers is wrong
        best_counts = counts_on_pilot.losses.at_best(test_order.size)
        likeliest_row = int(best_counts.p(settings.alphas).max(axis=1).argmin())
        target_sizes = {
            target_name: int(best_counts.n[likeliest_row, candidate_place])
            for candidate_place, target_name in enumerate(settings.targets)
            if best_counts.mixed(candidate_place) is None
        }
        cases_phrase = (
            f" (expected of the likeliest of {len(candidates):,} candidates on {n_cases:,} cases)"
        )
    lacking_targets = lacking_cases(target_sizes, settings, test_order.n_tests)
    certificate = _certificate(
        cases,
        candidates,
        test_order,
        settings,
        # Nothing was counted: a share of no case, with no bound.
        promises=tuple(
            Promise(target_name, float(target_rate), 0, 0, np.nan)
            for target_name, target_rate in settings.targets.items()
        ),
        binding=max(
            lacking_targets,
            key=lambda target_name: (
                lacking_targets[target_name][0] - lacking_targets[target_name][1]
            ),
            default=None,
        ),
        tested=0,
        reason=untested_reason(lacking_targets, settings, cases_phrase),
        looks=0,
        spent=0.0,
    )
    nearest_hint = nearest_target(test_order.pilot, test_order.size, settings)
    candidate_places = test_order.places if len(test_order.places) else range(len(candidates))
    policy_ids = [candidates[candidate_place].policy_id for candidate_place in candidate_places]
    return Certification(
        certificate=certificate,
        policy=None,
        table=pd.DataFrame({"policy_id": policy_ids, "tested": False, "certified": False}),
        needs={},
        nearest=nearest_hint[0],
        notes=(
            *certificate_notes(certificate, nearest_hint, settings, unsplit=False),
            *(counts_on_pilot.notes if counts_on_pilot else ()),
            *learning_doubts,
        ),
        chance=nearest_hint[1],
    )


def _certificate(
    cases: CertifyCases,
    candidates: Sequence[Policy],
    test_order: TestOrder,
    settings: CertificationSettings,
    **given_fields: Any,  # noqa: ANN401 - fields of a certificate
) -> Certificate:
    """Certificate of some cases, as yet of no policy."""
    counts_on_pilot = test_order.pilot
    certificate_fields: dict[str, Any] = {
        "chosen": None,
        "certified": (),
        "coverage": 0.0,
    } | given_fields
    return Certificate(
        **certificate_fields,
        delta=settings.delta,
        method=test_order.method,
        candidates=len(candidates),
        cases=cases.n_questions,
        pilot=counts_on_pilot.cases if counts_on_pilot else 0,
        cases_hash=cases.hash,
        pilot_hash=counts_on_pilot.hash if counts_on_pilot else None,
    )


def _noted_look(
    settings: CertificationSettings,
    candidates: Sequence[Policy],
    cases: CertifyCases,
    decided_candidates: Decided,
) -> tuple[TakenLook, CertificationSettings]:
    """This look and the settings at its level.

    Its key is a digest of what is tested, in which order, at which level, and of what is counted.
    """
    target_order = np.argsort(list(settings.targets))
    rate_counts = decided_candidates.counts
    sorted_losses = [
        [
            int(target_loss) if target_loss.is_integer() else target_loss
            for target_loss in policy_losses
        ]
        for policy_losses in rate_counts.k[:, target_order].tolist()
    ]
    policy_ids = [policy.policy_id for policy in decided_candidates.tried]
    sorted_targets = sorted(settings.targets.items())
    tested_parts = [
        settings.arm or cases.held_out.arms[0],
        [sorted_losses, rate_counts.n[:, target_order].tolist()],
    ]
    is_priced = settings.costs and COST in settings.targets
    stated_costs = [metrics.stated_costs(metrics.cost_matrix(settings.costs))] if is_priced else []
    mix_parts: list[Any] = []
    mix_corners = decided_candidates.corners(settings)
    question_cells = decided_candidates.units
    if settings.mix is not None and mix_corners is not None and question_cells is not None:
        mix_parts = [
            settings.mix.rows,
            settings.mix.is_fixed,
            mix_corners.tolist(),
            question_cells.tolist(),
        ]

    def key_at(delta: float, divisor: int) -> str:
        divisor_parts = [{"divisor": divisor}] if divisor > 1 else []
        key_parts = [
            policy_ids,
            sorted_targets,
            delta,
            *tested_parts,
            *stated_costs,
            *divisor_parts,
            *mix_parts,
        ]
        return digest(json.dumps(key_parts), 12)

    taken_look = take_look(
        candidates,
        settings.looks,
        cases.hash,
        cases.queries,
        key_at,
        settings.delta,
        settings.reuse,
        n_tested=len(policy_ids),
        again=settings.again,
    )
    if settings.reuse is not None:
        settings = settings._replace(
            budget=settings.delta,
            delta=taken_look.delta,
            divisor=taken_look.divisor,
            again=taken_look.number > 1,
        )
    return taken_look, settings
