"""Certification (shore): a policy tested on held-out cases (S6.4, S6.7, S6.9, S6.10).

Of several policies the cheapest is tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import Certificate, DataNeed, Promise, certificate_facts
from raglab.decision.learned_cases import with_learned_cases
from raglab.decision.refusal_warnings import refusal_text
from raglab.decision.scoring import headline_sentence, trace_status_only
from raglab.decision.trace_view import TraceView, answered_traces, failed_count, held_trace
from raglab.lab.candidate_tests import (
    SequenceResult,
    TestOrder,
    candidate_order,
    candidate_table,
    sequence_test,
)
from raglab.lab.certification_cases import (
    CertifyCases,
    certify_splits,
    distinct_candidates,
    doubt_notes,
)
from raglab.lab.certification_families import grid
from raglab.lab.certification_needs import (
    data_needs,
    label_need_line,
    label_needs,
    missing_cases,
    missing_sentence,
    need_frame,
    need_note,
)
from raglab.lab.certification_settings import CertificationSettings, checked_settings
from raglab.lab.certification_texts import (
    certificate_notes,
    certificate_reason,
    direction_notes,
    missing_candidates,
    number_texts,
    threshold_text,
)
from raglab.lab.certified_losses import (
    COST,
    Nearest,
    RateCounts,
    SplitCounts,
    count_split,
    free_policies,
    in_mix,
    nearest_target,
    question_losses,
    unit_cells,
)
from raglab.lab.looks import (
    Look,
    chosen_among,
    held_looks,
    known_certificate,
    record_look,
    upgrade_look,
)
from raglab.lab.search_space import limit_depth
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.metrics.mix_tests import LabelNeed
from raglab.metrics.mixes import FEW_UNITS, SAMPLE, Mix
from raglab.replay import decide_policies
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import SCHEMA_VERSION, refuse
from raglab.words.canonical import decimals, digest, percent
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Certification(Result):
    """Result of a certification.

    The columns of `frame()`: `policy_id`; `tested`; `certified`; by target `<target>_k` errors of
    `<target>_n` cases, `<target>_bound` (upper bound of this candidate alone, at confidence
    1 − delta) and `<target>_p` (p-value of its test); `cost`, `coverage` and `over_ask_rate`;
    `changed` settings. `_bound` and `_p` are not corrected for the number of candidates. So where
    all candidates are tested at once (Holm), a bound may lie under its target although `certified`
    is False. Columns that begin with `pilot_` hold the counts and the cost on a pilot.

    Attributes:
      certificate: see `Certificate`.
      policy: the chosen one with its certificate inside, None where none was certified.
      table: a row a candidate in the order of the tests.
      needs: target -> what it needs and what the chosen candidate, or the first one tested, has;
        empty where none was tested.
      nearest: lowest hallucination target that is likely to be certified on as many cases, by the
        pilot alone, beside the other targets, and that always-answer does not reach; NaN for none.
      notes: what a reader must know.
      chance: of the nearest target, by the best candidate.
      status_only: cases certified on that are scored by status alone.
      failed: cases left out, since a call failed; they count as answers that lack (S6.10).
      label_needs: in a stated mix, target -> labelled questions that certify it, by label; of
        targets within one label see needs.
    """

    certificate: Certificate
    policy: Policy | None
    table: pd.DataFrame
    needs: Mapping[str, DataNeed]
    nearest: float
    notes: tuple[str, ...]
    chance: float = float("nan")
    status_only: int = 0
    failed: int = 0
    label_needs: Mapping[str, LabelNeed] = field(default_factory=dict)

    @property
    def facts(self) -> list[tuple[str, ...]]:
        """Facts of the certificate, with the settings in which the chosen candidate differs."""
        certificate, table = self.certificate, self.table
        if self.policy is None:
            return certificate_facts(certificate)
        changed = dict(zip(table["policy_id"], table["changed"], strict=True))[certificate.chosen]
        chosen = [
            ("chosen", str(certificate.chosen)),
            ("changed", number_texts(changed) or "nothing"),
        ]
        return [*chosen, *certificate_facts(certificate)]

    def _summary(self) -> Summary:
        needs = need_frame(self.needs, self.certificate.cases + self.failed)
        return Summary(
            self.facts,
            {"promises": self.certificate.table, "needs": needs, "candidates": self.table},
            (self.certificate.reason, *self.notes),
            "Certified" if self.policy is not None else "Not certified",
        )


def certificate_lines(certification: Certification) -> list[str]:
    """Lines that say what a certification gave; where it failed, the notes say what is missing."""
    certificate = certification.certificate
    lead = "NOT CERTIFIED" if certification.policy is None else "CERTIFIED"
    lines = [f"{lead}: {certificate.reason.removeprefix('not certified: ')}."]
    lines += [": ".join(row) for row in certification.facts]
    for promise in certificate.promises:
        shown = percent if promise.name != COST else decimals
        bound = shown(promise.bound)
        lines.append(f"{promise.name}: {promise.k:g} of {promise.n}, upper bound {bound}")
    return lines + [f"note: {note}" for note in certification.notes]


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
        unknown, so a further one is not refused, and the reason says "first look that is known of".
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
    costs, arm = terms.costs, terms.arm
    if costs is not None and COST not in terms.targets:
        rule = f"costs must be those of a target {COST}"
        refuse(rule, f"the targets {', '.join(terms.targets)}", f"add {COST}, or leave costs= out")
    cases = certify_splits(trace)
    offered = distinct_candidates([policy], cases)
    learned_on = cases.held_out if cases.pilot is None else cases.pilot
    _warn_of_refusals(learned_on, policy, arm)
    notes, order = _depth_note(trace, offered), TestOrder("single", np.arange(1), None)
    return _certification(cases, offered, order, terms, notes)


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

    Where the cases to certify on are so few that no candidate could pass even if none of them were
    lost, none is tested and no look is taken or noted; the reason says how many labelled cases are
    missing, and `looks` is 0. This rests on the number of cases, of candidates tested at once
    (Holm), the targets and delta alone. Such a call cannot certify anything, so it spends no error;
    and it tells nothing of how a case is decided or labelled, so that nothing that is certified
    next can depend on it. How many cases are answered, or carry a label, would show more such
    calls, but is learned from the cases: what is certified next may be chosen by it, so that counts
    as a look, as every call under a stated mix does.

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
    learned_on = cases.held_out if cases.pilot is None else cases.pilot
    replayed = held_trace(learned_on)
    if isinstance(candidates, Policy):
        listed, start = [], limit_depth(candidates, trace)
    else:
        every = [*(candidates.values() if isinstance(candidates, Mapping) else candidates)]
        if not every:
            refuse("candidates must hold at least one policy", "none", "give one for its family")
        if paths is not None:
            refuse("paths must vary one policy", f"a list of {len(every)}", "leave them out")
        listed = distinct_candidates(every, cases)
        start = listed[0]
    passes_once = bool(listed) or cases.pilot is None
    with nullcontext(replayed) if passes_once else pilot_trace(replayed, start, arm) as pilot:
        family = [] if listed else grid(pilot, start, arm, paths)
        offered = listed or distinct_candidates(family, cases)
        # Which candidates are tested, and in which order, is settled before the cases to certify on
        # are looked at.
        order = candidate_order(pilot, cases, offered, terms)
    missing = missing_cases(
        cases.n_questions, terms.targets, terms.costs, terms.level, order.n_tests
    )
    if missing and terms.mix is None:
        return _untested(cases, offered, order, terms, missing)
    if not listed:
        _warn_of_refusals(replayed, start, arm)
    notes = _depth_note(trace, listed)
    measured = replayed if cases.pilot is None else None
    return _certification(cases, offered, order, terms, notes, measured, is_family=not listed)


def _depth_note(trace: StudyTrace, offered: Sequence[Policy]) -> tuple[str, ...]:
    """Note on policies that refine deeper live than the trace measured, so not all was tested."""
    deeper = sum(limit_depth(policy, trace).policy_id != policy.policy_id for policy in offered)
    note = (
        f"{deeper:,} of {len(offered):,} policies refine deeper than the trace, where the test "
        "stops: build it deeper, or lower refine.max_depth."
    )
    return (note,) if deeper else ()


class CandidateTest(NamedTuple):
    """Candidates tested at a look that is taken.

    tried: in the order of the tests. held: their decisions on the cases. counts: their losses.
    first: thresholds of the first of a policy's family. corners: of a stated mix, [V, 3]. labels:
    see `_mix_facts`.
    """

    cases: CertifyCases
    offered: Sequence[Policy]
    order: TestOrder
    terms: CertificationSettings
    tried: Sequence[Policy]
    held: SplitCounts
    counts: RateCounts
    tested: SequenceResult
    look: Look
    hypotheses: int
    corners: NDArray[np.float64] | None
    first: str


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
    targets, names = terms.targets, list(terms.targets)
    held_out, arm_name = cases.held_out, terms.arm or cases.held_out.arms[0]
    # In the order that the pilot fixed: these cases must not choose what is tested first.
    tried = [offered[place] for place in order.places]
    measured: TraceView = held_out if replayed is None else replayed
    held = count_split(measured, tried, offered[0], names, terms.arm, terms.costs)
    counts = question_losses(
        held.losses, measured, tried, cases.questions, names, terms.arm, terms.costs
    )
    failed = failed_count(held_out)
    units, labels, of_mix = _labels_in_mix(held, measured, tried, cases, terms, failed)
    # Another look at the same cases is refused here, before it says anything.
    costs = terms.costs if COST in targets else None
    key_at = partial(
        certification_key, tried, counts, targets, arm=arm_name, costs=costs, of_mix=of_mix
    )
    look, key, hypotheses, terms = _noted_look(terms, offered, cases, len(tried), key_at)
    corners = terms.corners(labels)
    if corners is not None:
        cells, level = held.counted.cells, terms.level / order.n_tests
        counts = in_mix(counts, cells, units, names, terms.costs, corners, level)
    tested = sequence_test(counts, order, targets, terms.level)
    first = (threshold_text(offered[0], tried[0]) or "the policy given") if is_family else ""
    facts = (cases, offered, order, terms, tried, held, counts, tested, look, hypotheses)
    test = CandidateTest(*facts, corners, first)
    # A case scored by status alone counts any answer as correct, so the certificate says how many
    # are (rule S6.3).
    alone = int((np.bincount(cases.questions, trace_status_only(held_out)) > 0).sum())
    certificate = _certificate(test, headline_sentence(alone, cases.n_questions, failed))
    policy = None
    if tested.certified:
        # The policy carries what a check needs to repeat the test on the same terms, with a code of
        # each case it used (rule S6.10).
        rows = certificate.rows | _check_facts(held_out, key, arm_name, terms)
        chosen = tried[tested.chosen].replace("certificate", rows)
        policy = with_learned_cases(chosen, cases.queries)
    needs = data_needs(
        [each for place, each in enumerate(tested.promises) if counts.mixed(place) is None],
        terms.level,
    )
    n_cases = cases.n_questions + failed
    lacks = () if policy else [need_note(name, need, n_cases) for name, need in needs.items()]
    of_labels, mix_notes = _mix_facts(held, counts, tested, terms)
    # Of the pilot alone, since a hint from these cases would be a second test.
    near = _nearest(order, terms)
    return Certification(
        certificate=certificate,
        policy=policy,
        table=candidate_table(offered[0], tried, counts, tested, order, targets, terms.level),
        needs=needs,
        nearest=near.alpha,
        notes=(*lacks, *_notes(test, certificate, near, mix_notes), *notes),
        chance=near.chance,
        status_only=alone,
        failed=failed,
        label_needs=of_labels,
    )


def _certificate(test: CandidateTest, headline: str) -> Certificate:
    """Certificate of the chosen candidate, or of why there is none.

    Args:
      headline: cases that count otherwise, with their number.
    """
    terms, order, counts, tested = test.terms, test.order, test.counts, test.tested
    at, n, corners = tested.chosen, len(test.offered), test.corners
    facts: dict[str, Any] = {"chosen": None, "coverage": 0.0}
    if tested.certified:
        free = free_policies(test.held, terms.targets, terms.costs, terms.level, corners)
        facts = {"chosen": test.tried[at].policy_id, "free": free}
        facts |= {"coverage": float(counts.coverage[at]), "over_ask": float(counts.over_ask[at])}
    if counts.basis.text:  # answers that count as wrong
        facts["undecided"] = int(counts.undecided[at])
        facts["missing_answers"] = int(counts.missing[at, 0])
    passed = zip(test.tried, tested.passed, strict=True)
    method = "single" if n == 1 else order.method
    judged = (tested, terms, method, test.look, counts.basis)
    return Certificate(
        **facts,
        certified=tuple(policy.policy_id for policy, keeps in passed if keeps),
        promises=tested.promises,
        binding=tested.binding,
        delta=terms.delta,
        method=order.method,
        tested=tested.n_tested,
        candidates=n,
        cases=test.cases.n_questions,
        reason=certificate_reason(*judged, headline=headline, first=test.first),
        pilot=order.pilot_cases,
        cases_hash=test.cases.held_out_hash,
        looks=test.look.number,
        spent=test.look.spent,
        mix=None if terms.traffic is None else terms.traffic.rows,
        mix_corners=() if corners is None else tuple(map(tuple, corners.tolist())),
        basis=str(counts.basis),
        pilot_hash=order.pilot_hash,
        looks_recorded=terms.looks is not None,
        hypotheses=test.hypotheses,
    )


def _notes(
    test: CandidateTest, certificate: Certificate, near: Nearest, mix_notes: Sequence[str]
) -> list[str]:
    """Notes on a certificate: what makes it worth less, and what was not measured."""
    cases, order = test.cases, test.order
    is_alone = cases.held_out_hash == cases.trace_hash
    is_dropped = bool(test.first) and order.pilot is not None and 0 not in order.places
    return [
        *certificate_notes(certificate, near, test.terms.targets, unsplit=is_alone),
        *([f"By its pilot the policy given is not tested; first: {test.first}."] * is_dropped),
        *mix_notes,
        *missing_candidates(test.tried, test.counts, test.tested.chosen),
        *unmeasured_note(cases.held_out, test.offered[0]),
        *order.notes,
        *doubt_notes(test.offered, cases),
    ]


def _labels_in_mix(
    held: SplitCounts,
    measured: TraceView,
    tried: Sequence[Policy],
    cases: CertifyCases,
    terms: CertificationSettings,
    failed: int,
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None, tuple[Any, ...]]:
    """Cells of each question, cases of each label, and what marks a look in a stated mix.

    None without a mix; a mix may be refused.
    """
    if terms.mix is None:
        return None, None, ()
    units = unit_cells(
        held.counted,
        measured,
        tried,
        cases.questions,
        list(terms.targets),
        terms.arm,
        terms.costs,
        failed=failed,
    )
    labels = metrics.label_counts(units[0, 0]) - failed
    corners = terms.corners(labels)
    of_corners = None if corners is None else corners.tolist()
    return units, labels, (terms.mix.rows, terms.mix.is_fixed, of_corners, units.tolist())


def _mix_facts(
    held: SplitCounts,
    counts: RateCounts,
    tested: SequenceResult,
    terms: CertificationSettings,
) -> tuple[dict[str, LabelNeed], list[str]]:
    """Labels that targets need in a stated mix, and notes on the mix that a promise is for."""
    names, labels = list(terms.targets), metrics.label_counts(held.counted.cells[0])
    of_row, where = counts.subset(np.array([tested.shown])), "is stated"
    if counts.mix is None:  # the labelled cases' own mix, of which only the direction is said
        shares, cells = labels / labels.sum(), held.counted.cells[[tested.shown]]
        of_row = in_mix(of_row, cells, None, names, terms.costs, shares[None], terms.level)
        where = f"the {percent(shares[0])} of these cases"
    notes = direction_notes(of_row, terms.targets, where) if tested.certified else []
    if counts.mix is None:
        return {}, notes
    needs = label_needs(of_row, terms.targets, terms.level)
    lines = [
        label_need_line(name, terms.targets[name], need, labels.tolist())
        for name, need in needs.items()
    ]
    # labels of which the mix has few cases
    of_label = metrics.label_counts(counts.mix.cells[0, 0]).astype(int).tolist()
    most = zip(metrics.LABELS, of_label, counts.mix.corners.max(axis=0), strict=True)
    few = [f"{n} {name}" for name, n, share in most if share and n < FEW_UNITS]
    if few:
        notes.append(f"The mix rests on few cases: {', '.join(few)}.")
    return needs, [*lines, *notes]


def _untested(
    cases: CertifyCases,
    offered: Sequence[Policy],
    order: TestOrder,
    terms: CertificationSettings,
    missing: Mapping[str, int],
) -> Certification:
    """Result where the cases are too few for any candidate: none is tested, and no look is taken.

    Args:
      missing: see `missing_cases`.
    """
    import pandas as pd

    targets, n_cases = terms.targets, cases.n_questions
    text = missing_sentence(missing, n_cases, targets, terms.level, order.n_tests)
    certificate = Certificate(
        chosen=None,
        certified=(),
        coverage=0.0,
        # Nothing was counted: a share of no case, with no bound.
        promises=tuple(
            Promise(name, float(alpha), 0, 0, np.nan) for name, alpha in targets.items()
        ),
        binding=max(missing, key=lambda name: missing[name]),
        delta=terms.delta,
        method=order.method,
        tested=0,
        candidates=len(offered),
        cases=n_cases,
        reason=f"not certified: {text}",
        pilot=order.pilot_cases,
        cases_hash=cases.held_out_hash,
        looks=0,
        spent=0.0,
        pilot_hash=order.pilot_hash,
    )
    near = _nearest(order, terms)
    ids = [offered[place].policy_id for place in order.places]
    return Certification(
        certificate=certificate,
        policy=None,
        table=pd.DataFrame({"policy_id": ids, "tested": False, "certified": False}),
        needs={},
        nearest=near.alpha,
        notes=(
            *certificate_notes(certificate, near, targets, unsplit=False),
            *order.notes,
            *doubt_notes(offered, cases),
        ),
        chance=near.chance,
    )


def _noted_look(
    terms: CertificationSettings,
    offered: Sequence[Policy],
    cases: CertifyCases,
    n_tried: int,
    key_at: Callable[[float, int], str],
) -> tuple[Look, str, int, CertificationSettings]:
    """This look, its key, policies these cases may have chosen with it, settings at its level."""
    known = known_certificate(offered, cases.held_out_hash, cases.queries)
    with held_looks(terms.looks, cases.held_out_hash, cases.queries) as held:
        if terms.reuse is None:
            key = key_at(terms.delta, 1)
            look = record_look(known, held.before, key, terms.delta, again=terms.again)
            # A candidate that these cases chose before is still one of as many.
            earlier = (record.hypotheses for record in held.before.values())
            hypotheses = max(n_tried * chosen_among(known), *earlier, 1)
        else:
            upgrade = upgrade_look(terms.reuse, held.before, terms.delta, key_at)
            look, key, hypotheses = upgrade.look, upgrade.key, upgrade.hypotheses
            again = look.number > 1
            terms = terms._replace(
                budget=terms.delta, delta=upgrade.delta, divisor=upgrade.divisor, again=again
            )
        held.note(key, terms.delta, hypotheses)
    return look, key, hypotheses, terms


def pilot_trace(
    pilot: TraceView, start: Policy, arm: str | None
) -> AbstractContextManager[TraceView]:
    """The pilot for a grid and its order.

    Measured on disk where it stands in shards, so that two passes read it.
    """
    if start.structure.decision is not None:
        return nullcontext(pilot)
    return pilot.measured_once(start, arm)


def _check_facts(
    trace: TraceView, key: str, arm: str, terms: CertificationSettings
) -> dict[str, Any]:
    """What a check on new cases needs beside the promises.

    How their hits must be retrieved, and this look's key.
    """
    retrieval = dict(trace.meta.get("parameters", {}))
    facts: dict[str, Any] = {
        "key": key,
        "arm": arm,
        "retrieval": retrieval,
        "schema_version": SCHEMA_VERSION,
    }
    if COST in terms.targets:
        facts["costs"] = metrics.stated_costs(metrics.cost_matrix(terms.costs))
    return facts if terms.budget is None else facts | {"budget": terms.budget}


def _nearest(order: TestOrder, terms: CertificationSettings) -> Nearest:
    """Target to hint at, by what the candidates did on the pilot."""
    if order.pilot is None:
        return Nearest(np.nan, np.nan)
    return nearest_target(
        order.pilot, terms.targets, terms.level, size=order.size, free_rate=order.free_rate
    )


def _warn_of_refusals(trace: TraceView, policy: Policy, arm: str | None) -> None:
    """Warn if gates refuse nearly all answerable cases of a trace of one part (rule S2.19)."""
    # of several it would take one more pass over their files
    if len(trace.parts) == 1 and (text := refusal_text(decide_policies(trace, [policy], arm)[0])):
        warn_user(f"The policy to be certified: {text}")


def certification_key(
    tried: Sequence[Policy],
    rate_counts: RateCounts,
    targets: Mapping[str, float],
    delta: float,
    divisor: int,
    *,
    arm: str,
    costs: metrics.Costs | None = None,
    of_mix: Sequence[Any] = (),
) -> str:
    """Digest of a certification.

    What was tested, in which order, at which level, and what was counted.
    """
    by_name = np.argsort(list(targets))
    losses = [
        [int(loss) if float(loss).is_integer() else float(loss) for loss in row]
        for row in rate_counts.k[:, by_name].tolist()
    ]
    counts = [losses, rate_counts.n[:, by_name].tolist()]
    parts: list[Any] = [
        [policy.policy_id for policy in tried],
        sorted(targets.items()),
        delta,
        arm,
        counts,
    ]
    if costs:
        parts.append(metrics.stated_costs(metrics.cost_matrix(costs)))
    if divisor > 1:
        parts.append({"divisor": divisor})
    parts += of_mix
    return digest(json.dumps(parts), 12)
