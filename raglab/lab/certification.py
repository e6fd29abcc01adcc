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
from numpy.typing import NDArray

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
from raglab.values import SCHEMA_VERSION, refuse
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
    terms = checked_settings(targets, costs, delta, arm, again=again, looks=looks, mix=mix)
    return certify_alone(trace, policy, terms)


def certify_alone(trace: StudyTrace, policy: Policy, terms: CertificationSettings) -> Certification:
    """`certify_policy` under settings that are checked.

    Raises:
      ValueError: as `certify_policy`.
    """
    if terms.costs is not None and COST not in terms.targets:
        rule = f"costs must be those of a target {COST}"
        refuse(rule, f"the targets {', '.join(terms.targets)}", f"add {COST}, or leave costs= out")
    cases = certify_splits(trace)
    offered, doubts = distinct_candidates([policy], cases)
    _warn_of_refusals(cases.learned_on, policy, terms.arm)
    notes, order = _depth_note(trace, offered), TestOrder("single", np.arange(1))
    return _certification(cases, offered, order, terms, (*doubts, *notes))


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
    terms = checked_settings(targets, costs, delta, arm, again=again, looks=looks, mix=mix)
    cases = certify_splits(trace)
    # The cases that an order is learned on are replayed several times, in memory measured once.
    replayed, is_family = held_trace(cases.learned_on), isinstance(candidates, Policy)
    if isinstance(candidates, Policy):
        listed, start = None, limit_depth(candidates, trace)
    else:
        every = [*(candidates.values() if isinstance(candidates, Mapping) else candidates)]
        if not every:
            refuse("candidates must hold at least one policy", "none", "give one for its family")
        if paths is not None:
            refuse("paths must vary one policy", f"a list of {len(every)}", "leave them out")
        listed = distinct_candidates(every, cases)
        start = every[0]
    passes_twice = is_family and cases.pilot is not None
    with pilot_trace(replayed, start, arm) if passes_twice else nullcontext(replayed) as pilot:
        offered, doubts = listed or distinct_candidates(grid(pilot, start, arm, paths), cases)
        # Which candidates are tested, and in which order, is settled before the cases to certify on
        # are looked at.
        order = candidate_order(pilot, cases, offered, terms)
    # What a mix needs is of each label, of which the number of cases says nothing.
    n_cases = {} if terms.mix else dict.fromkeys(terms.targets, cases.n_questions)
    if not len(order.places) or lacking_cases(n_cases, terms, order.n_tests):
        return _untested(cases, offered, order, terms, doubts)
    if is_family:
        _warn_of_refusals(replayed, start, arm)
    notes = doubts if is_family else (*doubts, *_depth_note(trace, offered))
    measured = replayed if cases.pilot is None else None
    return _certification(cases, offered, order, terms, notes, measured, is_family=is_family)


def _depth_note(trace: StudyTrace, policies: Sequence[Policy]) -> tuple[str, ...]:
    """Note on policies that refine deeper live than the trace measured, so not all was tested."""
    deeper = sum(limit_depth(policy, trace).policy_id != policy.policy_id for policy in policies)
    note = (
        f"{deeper:,} of {len(policies):,} policies refine deeper than the trace, where the test "
        "stops: build it deeper, or lower refine.max_depth."
    )
    return (note,) if deeper else ()


def _warn_of_refusals(trace: TraceView, policy: Policy, arm: str | None) -> None:
    """Warn if gates refuse nearly all answerable cases of a trace of one part (rule S2.19)."""
    # of several it would take one more pass over their files
    if len(trace.parts) == 1 and (text := refusal_text(decide_policies(trace, [policy], arm)[0])):
        warn_user(f"The policy to be certified: {text}")


def pilot_trace(
    pilot: TraceView, start: Policy, arm: str | None
) -> AbstractContextManager[TraceView]:
    """The pilot for a grid and its order.

    Measured on disk where it stands in shards, so that two passes read it.
    """
    if start.structure.decision is not None:
        return nullcontext(pilot)
    return pilot.measured_once(start, arm)


# the order


class TestOrder(NamedTuple):
    """How candidates are tested.

    method: `single`, one alone; `fixed_sequence`, one after the other until one fails; `holm`, all
    at once. places: of the candidates in the order of the tests, [M]. pilot: what all of them do on
    the pilot; None without one. size: cases to certify on, over those of the pilot.
    """

    method: TestMethod
    places: NDArray[np.int64]
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
    pilot: TraceView, cases: CertifyCases, offered: Sequence[Policy], terms: CertificationSettings
) -> TestOrder:
    """Order of the candidates, learned on the pilot (rule S6.10)."""
    # Without cases of its own to learn an order on, any order would come from the cases it is
    # tested on.
    if cases.pilot is None:
        return TestOrder("holm", np.arange(len(offered)))
    counts, size = pilot_counts(pilot, offered, terms), cases.n_questions / len(pilot)
    places = pilot_order(counts.losses, terms.alphas, terms.level, size)
    return TestOrder("fixed_sequence", places, counts, size)


def pilot_order(
    counts: RateCounts, alphas: NDArray[np.float64], delta: float, size: float
) -> NDArray[np.int64]:
    """Candidates worth testing, learned on a pilot split: from the safest to the cheapest, [M].

    Left out are those that another one beats in p-value and cost, and those that can certify
    nothing at their expected number of answers: empty where none can.

    Args:
      counts: candidates on the pilot.
      alphas: targets, [T].
      delta: level of the tests.
      size: cases to be certified on, over those of the pilot.

    Source: rule S6.10; Pareto testing (Laufer-Goldshtein and others 2023).
    """
    rows = np.flatnonzero((counts.at_best(size).p(alphas) <= delta).all(axis=1))
    p = counts.p(alphas).max(axis=1)
    return rows[certify.pareto_order(p[rows], -counts.cost[rows])]


# the tests


def sequence_test(
    counts: RateCounts, order: TestOrder, targets: Mapping[str, float], delta: float
) -> SequenceResult:
    """Tests of all targets together for every candidate, with error delta over all of them."""
    in_sequence = order.method != "holm"
    p = counts.p(np.array(list(targets.values())))
    # A candidate keeps its promise only if it keeps every target, so its p-value is the largest of
    # them.
    joint = p.max(axis=1)
    passed = (certify.fixed_sequence if in_sequence else certify.holm)(joint, delta)
    # Any candidate that passed may be taken, at no further error: the cheapest on the pilot, of
    # equals the surest.
    cost = (order.pilot_tried or counts).cost
    chosen = int(
        min(np.flatnonzero(passed), key=lambda place: (cost[place], joint[place]), default=-1)
    )
    # Where none passed, the one that came nearest is shown: the first in a sequence, else the
    # least p.
    shown = chosen if chosen >= 0 else 0 if in_sequence else int(np.argmin(joint))
    row, n_candidates = counts.subset(np.array([shown])), len(passed)

    def promises_at(level: float) -> tuple[Promise, ...]:
        return tuple(
            Promise(
                name=name,
                alpha=float(alpha),
                k=row.total(0, place),
                n=int(row.n[0, place]),
                bound=float(row.bounds(place, level, alpha)[0]),
            )
            for place, (name, alpha) in enumerate(targets.items())
        )

    promises = promises_at(delta)
    # Holm's first test of n candidates is at delta / n, so where none passed that is the level that
    # stopped it.
    failed = promises if in_sequence else promises_at(delta / n_candidates)
    # What stopped it binds: in a sequence the first that failed, of all at once the nearest where
    # none passed; else the target with the least room.
    stopped = int(passed.sum()) if in_sequence else n_candidates
    fails_at = stopped if in_sequence else shown if chosen < 0 else n_candidates
    room = [promise.bound / promise.alpha if promise.n else np.inf for promise in promises]
    binding = promises[int(np.argmax(p[fails_at] if fails_at < n_candidates else room))]
    return SequenceResult(
        p=p,
        passed=passed,
        chosen=chosen,
        promises=promises,
        binding=binding.name,
        n_tested=min(stopped + 1, n_candidates),
        failed=() if chosen >= 0 else failed,
        shown=shown,
    )


class Decided(NamedTuple):
    """What candidates do on the cases to certify on.

    tried: in the order of the tests. split: their decisions. counts: losses of distinct questions.
    units: questions by cell, which a stated mix weighs; None without one. failed: calls.
    """

    tried: list[Policy]
    split: SplitCounts
    counts: RateCounts
    units: NDArray[np.int64] | None
    failed: int

    def corners(self, terms: CertificationSettings) -> NDArray[np.float64] | None:
        """Outermost mixes, [V, 3], what is not stated in the ratio of the cases; None of their own.

        Raises:
          ValueError: a label with a share and no question.
        """
        if self.units is None or terms.traffic is None:
            return None
        labels = metrics.label_counts(self.units[0, 0]) - self.failed
        return terms.traffic.at_labels(labels).vertices(labels)


def _certification(
    cases: CertifyCases,
    offered: Sequence[Policy],
    order: TestOrder,
    terms: CertificationSettings,
    notes: Sequence[str],
    replayed: TraceView | None = None,
    *,
    is_family: bool = False,
) -> Certification:
    """Test candidates in order on the certify cases, which are looked at for the first time.

    Args:
      replayed: those cases measured, where they are.
      is_family: whether the candidates are those of one policy, which is the first of them.
    """
    held_out = cases.held_out
    measured = held_out if replayed is None else replayed
    # In the order that the pilot fixed: these cases must not choose what is tested first.
    tried, failed = [offered[place] for place in order.places], failed_count(held_out)
    split = count_split(measured, tried, offered[0], terms)
    repeats = repeated_cases(measured, tried, cases.numbers, terms.arm)
    counts = question_losses(split.losses, repeats)
    units = None if terms.mix is None else unit_cells(split.losses, repeats, failed=failed)
    decided = Decided(tried, split, counts, units, failed)
    # Another look at the same cases is refused here, before it says anything.
    look, terms = _noted_look(terms, offered, cases, decided)
    if (corners := decided.corners(terms)) is not None:
        counts = in_mix(counts, corners, terms.level / order.n_tests, units)
        decided = decided._replace(counts=counts)
    tested = sequence_test(counts, order, terms.targets, terms.level)
    # A case scored by status alone counts any answer as correct, so the certificate says how many
    # are (rule S6.3).
    alone = int((np.bincount(cases.numbers, trace_status_only(held_out)) > 0).sum())
    headline = headline_sentence(alone, cases.n_questions, failed)
    n = len(tried)
    first = number_texts(changed_settings(offered[0], tried[0])) or "the policy given"
    who = {
        "fixed_sequence": f"the first of {n} candidates{f' ({first})' * is_family}",
        "holm": f"the likeliest of {n} candidates, at level {terms.level / n:.3g},",
    }.get(order.method if len(offered) > 1 else "", "the policy")
    reason = certificate_reason(
        tested, terms, who, look, (f"judged by {counts.basis.described}", headline)
    )
    certificate, policy = _earned(cases, offered, order, terms, decided, tested, look, reason)
    needs = {
        promise.name: certify.data_need(promise.alpha, promise.n, int(promise.k), terms.level)
        for place, promise in enumerate(tested.promises)
        if promise.name != COST and counts.mixed(place) is None
    }
    n_cases, nearest = cases.n_questions + failed, nearest_target(order.pilot, order.size, terms)
    lacks = [need_note(name, need, n_cases) for name, need in needs.items()]
    of_labels, of_mix = mix_notes(counts, tested, terms)
    is_dropped = is_family and order.pilot is not None and 0 not in order.places
    # policies that are not certified for missing answers, and the gaps of the chosen one (S6.3)
    gaps = {
        tried[place].policy_id: answers
        for place, answers in enumerate(counts.missing_answers)
        if place == tested.chosen or not answers.is_compared
    }
    return Certification(
        certificate=certificate,
        policy=policy,
        table=candidate_table(offered[0], tried, counts, tested, order.pilot_tried, terms),
        needs=needs,
        nearest=nearest[0],
        notes=(
            *([] if tested.certified else lacks),
            *certificate_notes(certificate, nearest, terms, unsplit=len(cases.by_split) == 1),
            *([f"By its pilot the policy given is not tested; first: {first}."] * is_dropped),
            *of_mix,
            *missing_notes(gaps, "the cases certified on"),
            *unmeasured_note(held_out, offered[0]),
            *(order.pilot.notes if order.pilot else ()),
            *notes,
        ),
        chance=nearest[1],
        status_only=alone,
        failed=failed,
        label_needs=of_labels,
    )


def _earned(
    cases: CertifyCases,
    offered: Sequence[Policy],
    order: TestOrder,
    terms: CertificationSettings,
    decided: Decided,
    tested: SequenceResult,
    look: TakenLook,
    reason: str,
) -> tuple[Certificate, Policy | None]:
    """Certificate, and the chosen policy that holds it, None where none passed."""
    counts, at, corners = decided.counts, tested.chosen, decided.corners(terms)
    passed = zip(decided.tried, tested.passed, strict=True)
    certificate = _certificate(
        cases,
        offered,
        order,
        terms,
        certified=tuple(policy.policy_id for policy, keeps in passed if keeps),
        promises=tested.promises,
        binding=tested.binding,
        tested=tested.n_tested,
        reason=reason,
        looks=look.number,
        spent=look.spent,
        mix=None if terms.traffic is None else terms.traffic.rows,
        mix_corners=() if corners is None else tuple(map(tuple, corners.tolist())),
        basis=str(counts.basis),
        looks_recorded=terms.looks is not None,
        hypotheses=look.hypotheses,
        # answers that count as wrong
        undecided=int(counts.undecided[at]) if counts.basis.text else None,
        missing_answers=int(counts.missing[at, 0]) if counts.basis.text else None,
    )
    if not tested.certified:
        return certificate, None
    chosen = decided.tried[at]
    certificate = replace(
        certificate,
        chosen=chosen.policy_id,
        coverage=float(counts.coverage[at]),
        over_ask=float(counts.over_ask[at]),
        free=free_policies(decided.split, terms, corners),
    )
    # The policy carries what a check needs to repeat the test on the same terms: how hits must be
    # retrieved, this look's key, and a code of each case it used (rule S6.10).
    rows = certificate.rows | {
        "key": look.key,
        "arm": terms.arm or cases.held_out.arms[0],
        "retrieval": dict(cases.held_out.meta.get("parameters", {})),
        "schema_version": SCHEMA_VERSION,
    }
    if COST in terms.targets:
        rows["costs"] = metrics.stated_costs(metrics.cost_matrix(terms.costs))
    if terms.budget is not None:
        rows["budget"] = terms.budget
    return certificate, with_learned_cases(chosen.replace("certificate", rows), cases.queries)


def _untested(
    cases: CertifyCases,
    offered: Sequence[Policy],
    order: TestOrder,
    terms: CertificationSettings,
    doubts: Sequence[str],
) -> Certification:
    """Result where no candidate can pass: none is tested, and no look is taken."""
    import pandas as pd

    n_cases, pilot = cases.n_questions, order.pilot
    sizes, whose = dict.fromkeys(terms.targets, n_cases), ""
    if order.n_tests > 1:
        whose = f" for {order.n_tests:,} tests at once"
    elif pilot is not None and not len(order.places):
        # of the candidate that is nearest to passing, if none of its expected answers is wrong
        best = pilot.losses.at_best(order.size)
        row = int(best.p(terms.alphas).max(axis=1).argmin())
        sizes = {
            name: int(best.n[row, place])
            for place, name in enumerate(terms.targets)
            if best.mixed(place) is None
        }
        whose = f" (expected of the likeliest of {len(offered):,} candidates on {n_cases:,} cases)"
    lacking = lacking_cases(sizes, terms, order.n_tests)
    certificate = _certificate(
        cases,
        offered,
        order,
        terms,
        # Nothing was counted: a share of no case, with no bound.
        promises=tuple(
            Promise(name, float(alpha), 0, 0, np.nan) for name, alpha in terms.targets.items()
        ),
        binding=max(lacking, key=lambda name: lacking[name][0] - lacking[name][1], default=None),
        tested=0,
        reason=untested_reason(lacking, terms, whose),
        looks=0,
        spent=0.0,
    )
    nearest = nearest_target(order.pilot, order.size, terms)
    places = order.places if len(order.places) else range(len(offered))
    ids = [offered[place].policy_id for place in places]
    return Certification(
        certificate=certificate,
        policy=None,
        table=pd.DataFrame({"policy_id": ids, "tested": False, "certified": False}),
        needs={},
        nearest=nearest[0],
        notes=(
            *certificate_notes(certificate, nearest, terms, unsplit=False),
            *(pilot.notes if pilot else ()),
            *doubts,
        ),
        chance=nearest[1],
    )


def _certificate(
    cases: CertifyCases,
    offered: Sequence[Policy],
    order: TestOrder,
    terms: CertificationSettings,
    **facts: Any,  # noqa: ANN401 - fields of a certificate
) -> Certificate:
    """Certificate of some cases, as yet of no policy."""
    pilot = order.pilot
    stated: dict[str, Any] = {"chosen": None, "certified": (), "coverage": 0.0} | facts
    return Certificate(
        **stated,
        delta=terms.delta,
        method=order.method,
        candidates=len(offered),
        cases=cases.n_questions,
        pilot=pilot.cases if pilot else 0,
        cases_hash=cases.hash,
        pilot_hash=pilot.hash if pilot else None,
    )


def _noted_look(
    terms: CertificationSettings,
    offered: Sequence[Policy],
    cases: CertifyCases,
    decided: Decided,
) -> tuple[TakenLook, CertificationSettings]:
    """This look and the settings at its level.

    Its key is a digest of what is tested, in which order, at which level, and of what is counted.
    """
    by_name, counts = np.argsort(list(terms.targets)), decided.counts
    losses = [
        [int(loss) if loss.is_integer() else loss for loss in row]
        for row in counts.k[:, by_name].tolist()
    ]
    ids, targets = [policy.policy_id for policy in decided.tried], sorted(terms.targets.items())
    tested_on = [terms.arm or cases.held_out.arms[0], [losses, counts.n[:, by_name].tolist()]]
    is_priced = terms.costs and COST in terms.targets
    more = [metrics.stated_costs(metrics.cost_matrix(terms.costs))] if is_priced else []
    of_mix: list[Any] = []
    corners, units = decided.corners(terms), decided.units
    if terms.mix is not None and corners is not None and units is not None:
        of_mix = [terms.mix.rows, terms.mix.is_fixed, corners.tolist(), units.tolist()]

    def key_at(delta: float, divisor: int) -> str:
        divided = [{"divisor": divisor}] if divisor > 1 else []
        parts = [ids, targets, delta, *tested_on, *more, *divided, *of_mix]
        return digest(json.dumps(parts), 12)

    look = take_look(
        offered,
        terms.looks,
        cases.hash,
        cases.queries,
        key_at,
        terms.delta,
        terms.reuse,
        n_tested=len(ids),
        again=terms.again,
    )
    if terms.reuse is not None:
        terms = terms._replace(
            budget=terms.delta, delta=look.delta, divisor=look.divisor, again=look.number > 1
        )
    return look, terms
