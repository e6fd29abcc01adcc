"""Certification (shore): a policy, or the cheapest of several, tested on held-out cases (S6.4, S6.7, S6.9, S6.10)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, product
from math import ceil
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import certify as tests
from raglab import metrics
from raglab.breakpoints import SWEPT, breakpoints, threshold_at
from raglab.canonical import digest
from raglab.certify import Certificate, DataNeed, Promise, TestMethod
from raglab.decimals import percent
from raglab.decision.learned_cases import (
    Queries,
    check_unlearned,
    hash_queries,
    learned_cases,
    with_learned_cases,
)
from raglab.decision.measured_trace import held_trace
from raglab.decision.measurement import gates_off
from raglab.decision.refusal_warnings import refusal_text
from raglab.decision.scoring import status_only_note, status_only_sentence, trace_status_only
from raglab.decision.trace_view import TracePart, TraceView
from raglab.gates import GATES
from raglab.html_display import Fold, display
from raglab.lab.certification_notes import (
    JudgedCases,
    certificate_notes,
    certificate_reason,
    look_sentence,
    missing_candidates,
    threshold_text,
    untested_note,
)
from raglab.lab.certified_losses import (
    COST,
    Nearest,
    RateCounts,
    count_split,
    free_policies,
    nearest_target,
    pilot_counts,
    pilot_order,
)
from raglab.lab.label_sampling import PROBABILITY
from raglab.lab.looks import (
    Look,
    Reuse,
    chosen_among,
    held_looks,
    known_certificate,
    record_look,
    split_queries,
    trace_hash,
    upgrade_look,
)
from raglab.lab.search_space import limit_depth
from raglab.lab.unmeasured_gates import unmeasured_note
from raglab.misuse import takes
from raglab.policy_sections import EXPECTED_COST
from raglab.replay import cases_by_shard, decide_policies, each_part, part_evidence
from raglab.signal_gates import SIGNALS, signal_path
from raglab.store.case_labels import check_split_names
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.thresholds import policy_thresholds
from raglab.user_warnings import warn_user
from raglab.values import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd

PATHS = tuple(path for path, swept in SWEPT.items() if swept.candidate)
MOST = 2_000  # candidates on the grid of a policy
UNSTATED = object()
DECISION = "decision."  # paths of what an expected cost is compared by


def grid(trace: TraceView, policy: Policy, arm: str | None = None, paths: Sequence[str] | None = None) -> list[Policy]:
    """Policies with thresholds on a grid of observed values: one declared family, at which no label is looked.

    Their gates are switched on; the lowest value of each passes everything, so that a gate may be out of use. Of one
    threshold alone as many values are tried as `MOST` allows, evenly by rank.

    Args:
      trace: of shards the values are gathered in one pass; those of all cases are held whole, the hits are not.
      paths: `declared_family` of the policy where not given.

    Raises:
      ValueError: a path that cannot be swept, or one that does not act under the policy's rule.

    Source: rules S6.4, S6.9.
    """
    used = list(dict.fromkeys(declared_family(policy, gates_off(trace)) if paths is None else paths))
    _check_paths(used, policy)
    # Levels so many that the grid of all thresholds together stays below `MOST` candidates.
    size = max(2, int(MOST ** (1.0 / max(1, len(used)))))
    values = _observed_values(trace, policy, arm, used)
    levels = [_candidate_levels(known, policy.value(path), size) for known, path in zip(values, used, strict=True)]
    # Rules of the resolver and costs have no switch.
    sections = dict.fromkeys(path.rpartition(".")[0] for path in used if not path.startswith(("resolver.", DECISION)))
    switched = [item for name in sections for item in (f"{name}.enabled", True)]
    base = policy.replace(*switched) if switched else policy
    # The two taus move together: their spread is what naming documents is worth, not what is searched for.
    spread = policy.confidence.tau_default - policy.confidence.tau_explicit
    out = [policy]
    for combination in product(*levels):
        if _crosses(policy, dict(zip(used, combination, strict=True))):
            continue
        changes: list[Any] = [item for pair in zip(used, combination, strict=True) for item in pair]
        if "confidence.tau_default" in used and "confidence.tau_explicit" not in used:
            tau = combination[used.index("confidence.tau_default")]
            changes += ["confidence.tau_explicit", float(np.clip(tau - spread, 0.0, 100.0))]
        out.append(base.replace(*changes))
    return out


def _observed_values(
    trace: TraceView, policy: Policy, arm: str | None, paths: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Values at which some case may change, by path, ascending and each once; the same however the cases are cut."""
    parts = list(each_part(observed_values, trace, policy, arm, paths, what="thresholds"))
    return [np.unique(np.concatenate(of_path)) for of_path in zip(*parts, strict=True)]


def observed_values(
    part: TracePart, policy: Policy, arm: str | None, paths: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Values of one part's cases, by path, ascending and each once; pure, so that any worker may find them."""
    evidence = part_evidence(part, policy, arm)
    thresholds = policy_thresholds([policy])
    every = (breakpoints(evidence, thresholds, path) for path in paths)
    # Which zero is met first must not decide its sign.
    return [np.unique(values[~np.isnan(values)] + 0.0) for values in every]


def declared_family(policy: Policy, off: Collection[str] = ()) -> tuple[str, ...]:
    """Thresholds that the candidates of a certificate vary unless others are named.

    Args:
      off: gates that the trace cannot judge (`gates_off`); where that leaves none of the chain's, bounds decide.

    Where the least expected cost decides that is the ratio of costs alone, since the chain's thresholds do not act
    there. Where only bounds on signals decide it is those that are stated. Else it is `PATHS`, without the fused gate
    where the policy has none.

    Source: rule S6.9.
    """
    if policy.decision.rule == EXPECTED_COST:
        return (f"{DECISION}ratio",)
    bounds = tuple(
        f"{signal_path(name)}.{end}"
        for name, gate in sorted(policy.signals.items())
        for end in ("min", "max")
        if gate.enabled and gate.on_fire != "warn" and getattr(gate, end) is not None
    )
    gate_names = (gate.name for gate in GATES if gate.switch and gate.thresholds and gate.firing != "warn")
    if bounds and not any(policy.value(f"{name}.enabled") for name in gate_names if name not in off):
        return bounds
    active_paths = tuple(path for path in PATHS if path.partition(".")[0] not in off)
    return tuple(path for path in active_paths if policy.fused_model is not None or path != "fused.min_fused") or bounds


def _check_paths(paths: Sequence[str], policy: Policy) -> None:
    unknown = [path for path in paths if threshold_at(path) is None]
    if unknown:
        named = ", ".join((*(path for path, swept in SWEPT.items() if not swept.signal), "signals.<name>.min or max"))
        msg = f"paths must be among {named}, got {unknown[0]!r}."
        raise ValueError(msg)
    by_cost = policy.decision.rule == EXPECTED_COST
    acting = (
        (DECISION, f"{SIGNALS}.") if by_cost else tuple({f"{path.partition('.')[0]}." for path in SWEPT} - {DECISION})
    )
    idle = [path for path in paths if not path.startswith(acting)]
    if idle:
        instead = f"vary {DECISION}ratio" if by_cost else "fit a decision by expected cost first (raglab.fit_decision)"
        msg = f"paths must be thresholds that act under rule {policy.decision.rule}, got {idle[0]!r}; {instead}."
        raise ValueError(msg)


def _crosses(policy: Policy, changes: Mapping[str, Any]) -> bool:
    """Whether some signal's min would lie above its max, which no policy may state (rule S2.15)."""
    for path in changes:
        section = path.rpartition(".")[0]
        if section.startswith(f"{SIGNALS}."):
            ends = (f"{section}.{key}" for key in ("min", "max"))
            low, high = (changes.get(end, policy.value(end)) for end in ends)
            if low is not None and high is not None and low > high:
                return True
    return False


def _candidate_levels(known: NDArray[np.float64], own: float | None, size: int) -> list[Any]:
    """About so many observed values, evenly by rank, with the lowest and the policy's own."""
    if not len(known):
        return [own]
    picked = np.quantile(known, np.linspace(0.0, 1.0, size - 1), method="inverted_cdf").tolist()
    values_tried = {*picked, *([] if own is None else [own])}
    return sorted(map(int, values_tried) if isinstance(own, int) else values_tried)


SPLITS = ("tune", "certify")


class Certification(NamedTuple):
    """Result of a certification.

    certificate: see `Certificate`. policy: the chosen one with its certificate inside, None where none was certified.
    table: a row a candidate in the order of the tests, with what was seen on both splits. needs: target -> what it
    needs and what the chosen candidate, or the first one tested, has. nearest: lowest hallucination target that is
    likely to be certified on as many cases, by the pilot alone, beside the other targets, and that always-answer does
    not reach; NaN for none. notes: what a reader must know. chance: of the nearest target, by the best candidate.
    status_only: cases certified on that are scored by status alone.
    """

    certificate: Certificate
    policy: Policy | None
    table: pd.DataFrame
    needs: Mapping[str, DataNeed]
    nearest: float
    notes: tuple[str, ...]
    chance: float = float("nan")
    status_only: int = 0

    def frame(self) -> pd.DataFrame:
        """Tests of the candidates, a row a candidate in the order of the tests.

        Columns: `policy_id`; `tested`; `certified`; by target `<target>_k` errors of `<target>_n` cases,
        `<target>_bound` (upper bound of this candidate alone, at confidence 1 − delta) and `<target>_p` (p-value of its
        test); `cost`, `coverage` and `over_ask_rate`; `changed` settings. `_bound` and `_p` are not corrected for the
        number of candidates. So where all candidates are tested at once (Holm), a bound may lie under its target
        although `certified` is False. Columns that begin with `pilot_` hold the counts and the cost on a pilot.
        """
        return self.table.copy()

    def __repr__(self) -> str:
        alone = status_only_sentence(self.status_only, self.certificate.cases)
        n = self.certificate.candidates
        tested = f"{self.certificate.tested:,} of {n:,} candidates tested" if n > 1 else "1 candidate tested"
        return f"Certification({self.certificate!r}, {tested}{f'; {alone}' if alone else ''})"

    def _repr_html_(self) -> str:
        """Display for a notebook: the certificate, what it needs and what a reader must know."""
        facts, folds = self.certificate.display_parts()
        needs = [(name, need_line(name, need)) for name, need in self.needs.items()]
        notes = [(f"{place + 1}", note) for place, note in enumerate(self.notes)]
        more = [Fold("what each target needs", needs), Fold("notes", notes, open=True)]
        return display("Certified" if self.policy is not None else "Not certified", facts, [*folds, *more])


def need_line(name: str, need: DataNeed) -> str:
    """What a target needs, how many cases there are, and the best target they certify."""
    n_zero, n_one, n_two = need.needed
    what = f"{metrics.RATE_TABLE[name].share_of} cases"
    best = f"these certify {percent(need.best)}" if need.answered else "these certify nothing"
    return (
        f"{name} ≤ {percent(need.alpha)} needs {n_zero} {what} without an error, {n_one} with one, {n_two} with two; "
        f"there are {need.answered} with {need.wrong}: {best}."
    )


def need_note(name: str, need: DataNeed, n_cases: int) -> str:
    """`need_line`, and about how many more labelled questions that is where there are too few.

    Args:
      name: of the rate. need: of it. n_cases: labelled questions there are, whether they count in the rate or not.
    """
    line = need_line(name, need)
    if not need.answered or need.best <= need.alpha:
        return line
    more = tests.cases_needed(need.alpha, need.delta, need.wrong) - need.answered
    questions = ceil(more * n_cases / need.answered)
    line += (
        f" So at least {more:,} more are missing, and that without a further error: about {questions:,} more labelled "
        f"questions, since {need.answered:,} of {n_cases:,} count here; where the cases have splits, new ones go to "
        "split certify."
    )
    if need.wrong > need.alpha * need.answered:
        share = percent(need.wrong / need.answered)
        line += f" The {share} seen are above the target, so more labels alone will hardly do: fewer errors must."
    return line


@takes(trace="trace", policy="policy")
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
) -> Certification:
    """Test whether one policy keeps every target at once, with probability at least 1 − delta over the cases.

    Only this policy is tested, as one hypothesis. `certify_best` chooses among several.

    Args:
      trace: with a split `certify`, the only one that is tested on, or without any splits. Of shards (`Trace.open`) one
        is in memory at a time.
      policy: to test.
      targets: rate -> highest value, such as `{"hallucination_rate": 0.1}`; `expected_cost` too, in units of cost.
      costs: label -> outcome -> cost, of the target `expected_cost`, see `metrics.cost_matrix`.
      delta: error of the promise, in (0, 0.5).
      arm: which of the trace's arms; the first where not given.
      again: states that these cases were certified on before, and allows a further look.
      looks: file that remembers every look at the cases, and at other sets that share more than 5 % of their questions;
        the same certification again is the same look. Without a file only the policy's own certificate is remembered: a
        look that failed, or that another policy took, is unknown, so a further one is not refused, and the reason says
        "first look that is known of".

    Warns:
      UserWarning: one gate of the policy refuses nearly all cases labelled ok (in memory).

    Raises:
      ValueError: no targets, a policy of which a part was fitted or tuned on any of the cases to certify on, an unknown
        rate, target outside (0, 1), of the cost outside (0, the highest cost), costs without that target, no cases, or
        without `again` another certification on the same cases that `looks` or the policy's certificate remembers.

    Source: rules S2.19, S6.4, S6.7, S6.9, S6.10; exact binomial p-values, of graded costs those of Hoeffding and
      Bentkus (Bates and others 2021).

    Example: `raglab.certify_policy(trace, result.policy, targets={"hallucination_rate": 0.1}, looks="looks.jsonl")`.
    """
    terms = checked_settings(targets, costs, delta, arm, again=again, looks=looks)
    return certify_alone(trace, policy, terms)


def certify_alone(trace: StudyTrace, policy: Policy, terms: CertificationSettings) -> Certification:
    """`certify_policy` under settings that are checked.

    Raises:
      ValueError: as `certify_policy`.
    """
    costs, arm = terms.costs, terms.arm
    if costs is not None and COST not in terms.targets:
        names = ", ".join(terms.targets)
        msg = f"costs must be those of a target {COST}, got the targets {names}; add {COST}, in units of cost."
        raise ValueError(msg)
    cases = _certify_splits(trace)
    offered = _distinct_candidates([policy], cases)
    learned_on = cases.held_out if cases.pilot is None else cases.pilot
    notes = (*_depth_note(trace, offered), *_warn_of_refusals(learned_on, policy, arm))
    return _certification(cases, offered, TestOrder("single", np.arange(1), None), terms, notes)


@takes(trace="trace", candidates="policy or policies")
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
) -> Certification:
    """The cheapest of several policies that keeps every target, with probability at least 1 − delta over the cases.

    On split `tune` (the pilot) the candidates are ordered from the safest to the cheapest, without those that another
    one beats in both. On split `certify` they are tested in that order until one fails. Of those that passed the one of
    least pilot cost is returned. Pilot figures of a policy whose decision model was fitted on the pilot come from
    models that never saw the case. Without a split `tune` every candidate is tested at once (Holm).

    Args:
      trace: with a split `certify`, or without any splits. Of shards (`Trace.open`) one is in memory at a time: the
        pilot is measured once and kept on disk meanwhile (see `measured_shards`), the cases to certify on once.
      candidates: policies to choose from, such as `TuneResult.policies`; or one policy, whose declared family is
        tested: `grid` over its cost ratio, its bounds on signals or its gates' thresholds. It refines no further than
        the trace measured.
      targets: rate -> highest value, such as `{"hallucination_rate": 0.1}`; `expected_cost` too, in units of cost.
      costs: label -> outcome -> cost, by which the candidates are chosen, and of the target `expected_cost`; see
        `metrics.cost_matrix`.
      delta: error of the promise, in (0, 0.5), for any number of candidates and targets.
      arm: which of the trace's arms; the first where not given.
      paths: thresholds that the family of one policy varies; `declared_family` where not given.
      again: as for `certify_policy`.
      looks: as for `certify_policy`.

    Warns:
      UserWarning: one gate of the one policy given refuses nearly all cases labelled ok (in memory).

    Raises:
      ValueError: as `certify_policy`; no candidates, or paths with several candidates.

    Source: rules S2.19, S6.4, S6.7, S6.9, S6.10; Pareto testing (Laufer-Goldshtein and others 2023).

    Example: with splits `tune` and `certify`, so that the policy is fitted on other cases than those it is tested on:
      `raglab.certify_best(trace, raglab.fit_decision(trace.split("tune")), targets={"hallucination_rate": 0.2})`.
    """
    terms = checked_settings(targets, costs, delta, arm, again=again, looks=looks)
    cases = _certify_splits(trace)
    # The cases that an order is learned on are replayed several times, in memory measured once.
    learned_on = cases.held_out if cases.pilot is None else cases.pilot
    replayed = held_trace(learned_on)
    if isinstance(candidates, Policy):
        listed, start = [], limit_depth(candidates, trace)
        notes = _warn_of_refusals(replayed, start, arm)
    else:
        listed = _distinct_candidates(_listed(candidates, paths), cases)
        start, notes = listed[0], _depth_note(trace, listed)
    passes_once = bool(listed) or cases.pilot is None
    with nullcontext(replayed) if passes_once else pilot_trace(replayed, start, arm) as pilot:
        family = [] if listed else grid(pilot, start, arm, paths)
        offered = listed or _distinct_candidates(family, cases)
        # Which candidates are tested, and in which order, is settled before the cases to certify on are looked at.
        order = _order(pilot, cases, offered, terms)
    measured = replayed if cases.pilot is None else None
    return _certification(cases, offered, order, terms, notes, measured, is_family=not listed)


class CertificationSettings(NamedTuple):
    """Targets, costs, arm, delta and file of looks of a certification.

    targets: rate -> highest value. costs: see `metrics.cost_matrix`. delta: error. arm: None for the first. again,
    looks: see `certify_policy`. reuse: what an upgrade knows of earlier looks; delta is divided then by the number of
    this look, which is set under the lock of the file. divisor: of delta, at whose quotient the policy is tested, as
    one of so many that these cases may have chosen. budget: error from which delta was divided, for the next division;
    None where it was not.
    """

    targets: Mapping[str, float]
    costs: metrics.Costs | None
    delta: float
    arm: str | None
    again: bool
    looks: Path | None
    reuse: Reuse | None = None
    divisor: int = 1
    budget: float | None = None

    @property
    def level(self) -> float:
        """Level of the tests."""
        return self.delta / self.divisor


def checked_settings(
    targets: Mapping[str, float] | None,
    costs: metrics.Costs | None,
    delta: float,
    arm: str | None,
    *,
    again: bool,
    looks: str | Path | None,
) -> CertificationSettings:
    """Check the settings of a certification."""
    _check_targets({} if targets is None else targets, costs)
    metrics.check_delta(delta)
    return CertificationSettings(dict(targets or {}), costs, delta, arm, again, None if looks is None else Path(looks))


def _listed(candidates: Sequence[Policy] | Mapping[str, Policy], paths: Sequence[str] | None) -> list[Policy]:
    """Policies of a list or of a mapping of names."""
    listed = list(candidates.values() if isinstance(candidates, Mapping) else candidates)
    if not listed:
        msg = "candidates must hold at least one policy, got none; give one alone for its declared family."
        raise ValueError(msg)
    if paths is not None:
        msg = f"paths must vary one policy, got a list of {len(listed)}; leave them out, or give one policy alone."
        raise ValueError(msg)
    return listed


def _depth_note(trace: StudyTrace, offered: Sequence[Policy]) -> tuple[str, ...]:
    """Note on policies that refine deeper live than the trace was measured, so that not all they do was tested."""
    deeper = sum(limit_depth(policy, trace).policy_id != policy.policy_id for policy in offered)
    if not deeper:
        return ()
    which = "The policy refines" if len(offered) == 1 else f"{deeper:,} of {len(offered):,} policies refine"
    remedy = "build the trace deeper, or certify with refine.max_depth as low"
    return (f"{which} further (refine.max_depth) than the trace was measured; the test stops there: {remedy}.",)


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
    """Test candidates in their order on the cases to certify on, which are looked at here for the first time.

    Args:
      replayed: those cases measured, where they are.
      is_family: whether the candidates are those of one policy, which is the first of them.
    """
    targets, names = terms.targets, list(terms.targets)
    held_out, arm_name = cases.held_out, terms.arm or cases.held_out.arms[0]
    # In the order that the pilot fixed: these cases must not choose what is tested first.
    tried = [offered[place] for place in order.places]
    held = count_split(held_out if replayed is None else replayed, tried, offered[0], names, terms.arm, terms.costs)
    counts = held.losses
    # Another look at the same cases is refused here, before it says anything.
    costs = terms.costs if COST in targets else None
    key_at = partial(certification_key, tried, counts, targets, arm=arm_name, costs=costs)
    look, key, hypotheses, terms = _noted_look(terms, offered, cases, len(tried), key_at)
    delta = terms.delta
    tested = _sequence_test(counts, order, targets, terms.level)
    # Of the pilot alone, since a hint from these cases would be a second test.
    near = _nearest(order, targets, terms.level)
    # A case scored by status alone counts any answer as correct, so the certificate says how many are (rule S6.3).
    alone = trace_status_only(held_out)
    sentence = look_sentence(look, recorded=terms.looks is not None, again=terms.again)
    if terms.divisor > 1:
        sentence += f"; tested at {terms.level:.3g}, as one of {terms.divisor:,} that these cases may have chosen"
    first, untested = _first_tested(offered, tried, order, terms, len(held_out)) if is_family else ("", ())
    judged = JudgedCases(counts.basis, alone, sentence, len(tried), len(offered), first)
    tests = tested.failed or tested.promises
    reason = certificate_reason(tests, tested.binding, delta, order.method, judged, certified=tested.certified)
    needs = _data_needs(tested.promises, terms.level)
    certificate = Certificate(
        chosen=tried[tested.chosen].policy_id if tested.certified else None,
        certified=tuple(policy.policy_id for policy, ok in zip(tried, tested.passed, strict=True) if ok),
        coverage=float(counts.coverage[tested.chosen]) if tested.certified else 0.0,
        promises=tested.promises,
        binding=tested.binding,
        delta=delta,
        method=order.method,
        tested=tested.n_tested,
        candidates=len(offered),
        cases=len(held_out),
        reason=reason,
        pilot=order.pilot_cases,
        cases_hash=cases.held_out_hash,
        looks=look.number,
        spent=look.spent,
        over_ask=float(counts.over_ask[tested.chosen]) if tested.certified else 0.0,
        free=free_policies(held, targets, terms.costs, terms.level) if tested.certified else (),
        basis=str(counts.basis),
        pilot_hash=order.pilot_hash,
        looks_recorded=terms.looks is not None,
        hypotheses=hypotheses,
    )
    # The policy carries what a check needs to repeat the test on the same terms (rule S6.10).
    facts = certificate.rows | _check_facts(held_out, key, arm_name, targets, terms.costs)
    facts |= {} if terms.budget is None else {"budget": terms.budget}
    return Certification(
        certificate=certificate,
        policy=_certified_policy(tried[tested.chosen], facts, cases) if tested.certified else None,
        table=_candidate_table(offered[0], tried, counts, tested, order, names, terms.level),
        needs=needs,
        nearest=near.alpha,
        notes=(
            *(() if tested.certified else untested),
            *(need_note(name, need, len(held_out)) for name, need in needs.items() if not tested.certified),
            *filter(None, [status_only_note(alone)]),
            *certificate_notes(
                certificate, near, order.free_rate, targets, unsplit=cases.held_out_hash == cases.trace_hash
            ),
            *(untested if tested.certified else ()),
            *missing_candidates(tried, counts, tested.chosen),
            *unmeasured_note(held_out, offered[0]),
            *order.notes,
            *_doubt_notes(offered, cases),
            *notes,
        ),
        chance=near.chance,
        status_only=int(alone.sum()),
    )


def _first_tested(
    offered: Sequence[Policy], tried: Sequence[Policy], order: TestOrder, terms: CertificationSettings, n_cases: int
) -> tuple[str, tuple[str, ...]]:
    """Which candidate of a policy's family is tested first, and a note where the policy itself is not tested."""
    start = offered[0]
    if tried[0].policy_id == start.policy_id:
        return "the policy given", ()
    text = threshold_text(start, tried[0])
    if order.pilot is None or 0 in order.places:
        return text, ()
    note = untested_note(order.pilot, terms.targets, terms.level, size=order.size, n_cases=n_cases, tested=text)
    return text, (note,)


def _noted_look(
    terms: CertificationSettings,
    offered: Sequence[Policy],
    cases: CertifyCases,
    n_tried: int,
    key_at: Callable[[float, int], str],
) -> tuple[Look, str, int, CertificationSettings]:
    """This look, its key, the policies these cases may have chosen with it, and the settings at its level."""
    known = known_certificate(offered, cases.held_out_hash)
    queries = list(chain.from_iterable(cases.by_split[name] for name in cases.tested))
    with held_looks(terms.looks, cases.held_out_hash, queries) as held:
        if terms.reuse is None:
            key = key_at(terms.delta, 1)
            look = record_look(known, held.before, cases.held_out_hash, key, terms.delta, again=terms.again)
            # A candidate that these cases chose before is still one of as many.
            earlier = (record.hypotheses for record in held.before.values())
            hypotheses = max(n_tried * chosen_among(known), *earlier, 1)
        else:
            upgrade = upgrade_look(terms.reuse, held.before, terms.delta, key_at)
            look, key, hypotheses = upgrade.look, upgrade.key, upgrade.hypotheses
            again = look.number > 1
            terms = terms._replace(budget=terms.delta, delta=upgrade.delta, divisor=upgrade.divisor, again=again)
        held.note(key, terms.delta, hypotheses)
    return look, key, hypotheses, terms


def _certified_policy(policy: Policy, facts: Mapping[str, Any], cases: CertifyCases) -> Policy:
    """Policy with its certificate and a code of each case it was certified on, by which a check counts them."""
    queries = list(chain.from_iterable(cases.by_split[name] for name in cases.tested))
    return with_learned_cases(policy.replace("certificate", facts), queries)


def pilot_trace(pilot: TraceView, start: Policy, arm: str | None) -> AbstractContextManager[TraceView]:
    """The pilot for a grid and its order: measured on disk where it stands in shards, so that two passes read it."""
    if start.structure.decision is not None:
        return nullcontext(pilot)
    return pilot.measured_once(start, arm)


def _check_facts(
    trace: TraceView, key: str, arm: str, targets: Container[str], costs: metrics.Costs | None
) -> dict[str, Any]:
    """What a check on new cases needs beside the promises: how their hits must be retrieved, and this look's key."""
    retrieval = dict(trace.meta.get("parameters", {}))
    facts: dict[str, Any] = {"key": key, "arm": arm, "retrieval": retrieval, "schema_version": SCHEMA_VERSION}
    return facts | ({"costs": metrics.stated_costs(metrics.cost_matrix(costs))} if COST in targets else {})


def _data_needs(promises: Sequence[Promise], delta: float) -> dict[str, DataNeed]:
    """What each target needs and has, but the cost."""
    rates = (promise for promise in promises if promise.name != COST)
    return {promise.name: tests.data_need(promise.alpha, promise.n, int(promise.k), delta) for promise in rates}


def _nearest(order: TestOrder, targets: Mapping[str, float], delta: float) -> Nearest:
    """Target to hint at, by what the candidates did on the pilot."""
    if order.pilot is None:
        return Nearest(float("nan"), float("nan"))
    return nearest_target(order.pilot, targets, delta, size=order.size, free_rate=order.free_rate)


def _distinct_candidates(candidates: Iterable[Policy], cases: CertifyCases) -> list[Policy]:
    """Candidates, each policy once; none of which may have learned from the cases to certify on, alone or with others.

    Raises:
      ValueError: one that has.
    """
    by_id: dict[str, Policy] = {}
    for policy in candidates:  # of equal ones that which remembers a look
        if policy.certificate is not None or policy.policy_id not in by_id:
            by_id[policy.policy_id] = policy
    offered = list(by_id.values())
    for learned in learned_cases(offered, cases.by_split, cases.tested):
        check_unlearned(learned)
    return offered


def _doubt_notes(offered: Sequence[Policy], cases: CertifyCases) -> tuple[str, ...]:
    """Notes on candidates that may have learned from a part of the cases to certify on."""
    doubts = [learned.doubt for learned in learned_cases(offered, cases.by_split, cases.tested) if learned.doubt]
    if not doubts:
        return ()
    of = "" if len(offered) == 1 else f"Of {len(doubts):,} of {len(offered):,} candidates: "
    return (f"{of}{doubts[0]}",)


class TestOrder(NamedTuple):
    """How candidates are tested.

    method: `single`, one alone; `fixed_sequence`, one after the other until one fails; `holm`, all at once. places: of
    the candidates in the order of the tests, [M]. pilot: their losses on the pilot, [N], None without one. pilot_cases,
    pilot_hash: how many it has, and their fingerprint. size: cases to certify on, over those. free_rate: hallucination
    rate of always-answer there. notes: which pilot figures flatter.
    """

    method: TestMethod
    places: NDArray[np.int64]
    pilot: RateCounts | None
    pilot_cases: int = 0
    pilot_hash: str | None = None
    size: float = float("nan")
    free_rate: float = float("nan")
    notes: tuple[str, ...] = ()

    @property
    def pilot_tried(self) -> RateCounts | None:
        """Losses of the candidates on the pilot, in the order of the tests, [M]."""
        return None if self.pilot is None else self.pilot.subset(self.places)


def _order(pilot: TraceView, cases: CertifyCases, offered: Sequence[Policy], terms: CertificationSettings) -> TestOrder:
    """Order of the candidates, learned on the pilot (rule S6.10)."""
    # Without cases of its own to learn an order on, any order would come from the cases it is tested on.
    if cases.pilot is None:
        return TestOrder("holm", np.arange(len(offered)), None)
    counts = pilot_counts(pilot, offered, list(terms.targets), terms.costs, terms.arm)
    size, alphas = len(cases.held_out) / len(pilot), np.array(list(terms.targets.values()))
    places = pilot_order(counts.losses, alphas, terms.delta, size)
    hashed = trace_hash(cases.pilot)
    return TestOrder("fixed_sequence", places, counts.losses, len(pilot), hashed, size, counts.free_rate, counts.notes)


class SequenceResult(NamedTuple):
    """Result of the tests.

    p: p-value of each target's test, [M, T]. passed: whether a candidate keeps all targets, [M]. chosen: place
    of the candidate that is taken, -1 where none passed. promises: of the chosen one, else of the one that came
    nearest. binding: the target with the least room. n_tested: candidates whose test was reached. failed: the promises
    with their bounds at the level of the test, where none passed.
    """

    p: NDArray[np.float64]
    passed: NDArray[np.bool_]
    chosen: int
    promises: tuple[Promise, ...]
    binding: str
    n_tested: int
    failed: tuple[Promise, ...]

    @property
    def certified(self) -> bool:
        """Whether a candidate passed."""
        return self.chosen >= 0


def _sequence_test(counts: RateCounts, order: TestOrder, targets: Mapping[str, float], delta: float) -> SequenceResult:
    """Tests of all targets together for every candidate, with error delta over all of them."""
    in_sequence = order.method != "holm"
    p = counts.p(np.array(list(targets.values())))
    # A candidate keeps its promise only if it keeps every target, so its p-value is the largest of them.
    joint = p.max(axis=1)
    passed = tests.fixed_sequence(joint, delta) if in_sequence else tests.holm(joint, delta)
    # Any candidate that passed may be taken, at no further error: the cheapest on the pilot, of equals the surest.
    cost = counts.cost if order.pilot_tried is None else order.pilot_tried.cost
    chosen = int(min(np.flatnonzero(passed), key=lambda place: (cost[place], joint[place]), default=-1))
    # Where none passed, a reader is told of the one that came nearest: the first in a sequence, else the least p.
    shown = chosen if chosen >= 0 else 0 if in_sequence else int(np.argmin(joint))
    promises = _promises(counts, shown, targets, delta)
    # Holm's first test of n candidates is at delta / n, so where none passed that is the level that stopped it.
    failed = promises if in_sequence else _promises(counts, shown, targets, delta / len(passed))
    # What stopped it binds: in a sequence the first that failed, of all at once the nearest where none passed.
    n_candidates = len(passed)
    stopped = int(passed.sum()) if in_sequence else n_candidates
    fails_at = stopped if in_sequence else shown if chosen < 0 else n_candidates
    binding = _binding(promises, p[fails_at] if fails_at < n_candidates else None)
    return SequenceResult(
        p=p,
        passed=passed,
        chosen=chosen,
        promises=promises,
        binding=binding,
        n_tested=min(stopped + 1, n_candidates),
        failed=() if chosen >= 0 else failed,
    )


def _promises(counts: RateCounts, row: int, targets: Mapping[str, float], delta: float) -> tuple[Promise, ...]:
    """Targets with what one candidate does, and their bounds at confidence 1 − delta."""
    return tuple(
        Promise(
            name=name,
            alpha=float(alpha),
            k=counts.total(row, place),
            n=int(counts.n[row, place]),
            bound=counts.bound(row, place, delta),
        )
        for place, (name, alpha) in enumerate(targets.items())
    )


def _check_targets(targets: Mapping[str, float], costs: metrics.Costs | None) -> None:
    example = "targets={'hallucination_rate': 0.1}"
    is_mapping = isinstance(targets, Mapping)
    wrong = (
        [alpha for alpha in targets.values() if not isinstance(alpha, Real) or isinstance(alpha, bool)]
        if is_mapping
        else [targets]
    )
    if wrong:
        msg = f"targets must map names of rates to numbers, got {wrong[0]!r:.80}; write {example}."
        raise TypeError(msg)
    if not targets:
        msg = f"targets must name at least one rate, got none; state what is to be promised, such as {example}."
        raise ValueError(msg)
    allowed, most = metrics.OBJECTIVES, float(metrics.cost_matrix(costs).max())
    for name, alpha in targets.items():
        if name not in allowed and name != COST:
            msg = f"targets must be rates of errors, one of {', '.join(allowed)}, or {COST}, got {name!r}."
            raise ValueError(msg)
        if name == COST:
            if not 0.0 < alpha < most:
                msg = f"the target of {COST} must be in (0, {most:g}), got {alpha}; {most:g} is the highest cost."
                raise ValueError(msg)
        elif not 0.0 < alpha < 1.0:
            msg = f"the target of {name} must be in (0, 1), got {alpha}; 0.1 is 10 %."
            raise ValueError(msg)


class CertifyCases(NamedTuple):
    """Cases that an order is learned on, None without any, and those to certify on; hashes of the latter and of all.

    by_split: questions of all cases. tested: the split to certify on, None where there is none.
    """

    pilot: StudyTrace | None
    held_out: StudyTrace
    held_out_hash: str
    trace_hash: str
    by_split: Queries
    tested: tuple[str | None, ...] = (None,)


def _check_drawn_alike(trace: TraceView) -> None:
    """Refuse cases that were drawn with different probabilities: a certificate counts each of them once."""
    drawn = {case.extra.get(PROBABILITY) for cases in cases_by_shard(trace) for case in cases}
    if len(drawn) > 1:
        known = [float(value) for value in drawn if value is not None]
        some = ", and cases that nobody drew" if None in drawn else ""
        msg = (
            "cases to certify on must be drawn with one probability, got inclusion probabilities from "
            f"{min(known):.3g} to {max(known):.3g}{some}; label a sample that is drawn evenly, and read this one by "
            "`raglab.review`, which weighs it."
        )
        raise ValueError(msg)


def _certify_splits(trace: StudyTrace) -> CertifyCases:
    by_split = split_queries(trace)
    check_split_names(by_split)
    pilot, held_out = SPLITS
    of_all = hash_queries(chain.from_iterable(by_split.values()))
    if held_out in by_split:
        learned_on = trace.split(pilot) if pilot in by_split else None
        of_tested = hash_queries(by_split[held_out])
        tested = trace.split(held_out)
        _check_drawn_alike(tested)
        return CertifyCases(learned_on, tested, of_tested, of_all, by_split, (held_out,))
    if by_split.keys() - {None}:
        split_names = ", ".join(sorted(map(str, by_split)))
        msg = f"cases must have a split certify to certify on, got {split_names}; label one so."
        raise ValueError(msg)
    if not len(trace):
        msg = "a certificate needs at least one case, got none."
        raise ValueError(msg)
    _check_drawn_alike(trace)
    return CertifyCases(None, trace, of_all, of_all, by_split)


def _warn_of_refusals(trace: TraceView, policy: Policy, arm: str | None) -> tuple[str, ...]:
    """Warn, and return a note, where gates refuse nearly all answerable cases of a trace of one part (S2.19)."""
    if len(trace.parts) > 1:  # it would take one more pass over their files
        return ()
    text = refusal_text(decide_policies(trace, [policy], arm)[0])
    if not text:
        return ()
    refused = f"The policy to be certified: {text}"
    warn_user(refused)
    return (refused,)


def _binding(promises: Sequence[Promise], p: NDArray[np.float64] | None) -> str:
    """Target that stopped the sequence, or the one with the least room."""
    if p is not None:
        return promises[int(np.argmax(p))].name
    return max(promises, key=lambda promise: promise.bound / promise.alpha if promise.n else np.inf).name


def _candidate_table(
    start: Policy,
    tried: Sequence[Policy],
    counts: RateCounts,
    tested: SequenceResult,
    order: TestOrder,
    names: Sequence[str],
    delta: float,
) -> pd.DataFrame:
    """A row a candidate in the order of the tests."""
    import pandas as pd

    own, pilot = start.manifest, order.pilot_tried
    rows = []
    for place, policy in enumerate(tried):
        # A manifest leaves out what was added since the first version and stands at its default.
        now = policy.manifest
        changed = {
            path: policy.value(path)
            for path in dict.fromkeys((*now, *own))
            if now.get(path, UNSTATED) != own.get(path, UNSTATED)
        }
        row: dict[str, Any] = {
            "policy_id": policy.policy_id,
            "tested": place < tested.n_tested,
            "certified": bool(tested.passed[place]),
        }
        for t, name in enumerate(names):
            k, n = counts.total(place, t), int(counts.n[place, t])
            row |= {f"{name}_k": k, f"{name}_n": n, f"{name}_bound": counts.bound(place, t, delta)}
            row |= {f"{name}_p": float(tested.p[place, t])}
            if pilot is not None:
                row |= {f"pilot_{name}_k": pilot.total(place, t), f"pilot_{name}_n": int(pilot.n[place, t])}
        row |= {"cost": float(counts.cost[place])} | ({} if pilot is None else {"pilot_cost": float(pilot.cost[place])})
        beside = {"coverage": float(counts.coverage[place]), "over_ask_rate": float(counts.over_ask[place])}
        rows.append(row | beside | {"changed": changed})
    return pd.DataFrame(rows)


def certification_key(
    tried: Sequence[Policy],
    rate_counts: RateCounts,
    targets: Mapping[str, float],
    delta: float,
    divisor: int,
    *,
    arm: str,
    costs: metrics.Costs | None = None,
) -> str:
    """Digest of a certification: what was tested, in which order, at which level, and what was counted."""
    by_name = np.argsort(list(targets))
    losses = [
        [int(loss) if float(loss).is_integer() else float(loss) for loss in row]
        for row in rate_counts.k[:, by_name].tolist()
    ]
    counts = [losses, rate_counts.n[:, by_name].tolist()]
    parts: list[Any] = [[policy.policy_id for policy in tried], sorted(targets.items()), delta, arm, counts]
    if costs:
        parts.append(metrics.stated_costs(metrics.cost_matrix(costs)))
    if divisor > 1:
        parts.append({"divisor": divisor})
    return digest(json.dumps(parts), 12)
