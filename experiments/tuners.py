"""Draws of labelled cases, and policies `holdout.py` makes of them and judges on all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import raglab
from raglab import metrics
from raglab.decision.chain import values_at_slot
from raglab.decision.measurement import measured_tables
from raglab.lab.search_space import published_policy
from raglab.replay import shard_cells
from raglab.signals import BUILT_IN_SET, SignalSet
from raglab.store.case_labels import question_numbers
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

FREE = ("always-answer", "always-refuse")
TUNED, ALWAYS = "tuned", "expected cost always"
Matrices = Mapping[str, metrics.Costs | None]


# Cases
# ----------------------------------------------------------------------------------------------


class SeenCases(NamedTuple):
    """What a model other than a policy reads of labelled cases.

    label: codes of the expected statuses, [Q].
    right: whether an answer would be right, [Q].
    signals: [S, Q], in the order of `known`.
    known: the signals.
    """

    label: NDArray[np.int8]
    right: NDArray[np.bool_]
    signals: NDArray[np.float64]
    known: SignalSet = BUILT_IN_SET


def seen_cases(trace: raglab.Trace, policy: raglab.Policy) -> SeenCases:
    """Signals of a trace's cases and whether an answer would be right, at depth 0."""
    decisions = raglab.decide(trace, raglab.lab.always_answer(policy))
    evidence = decisions.tables.evidence
    answered = (decisions.status == Status.ok) & (evidence.label == Status.ok)
    right = answered & values_at_slot(evidence.right[0], decisions.outcome.slot)
    return SeenCases(evidence.label, right, evidence.signals[:, 0], evidence.known)


def limit_depth(policy: raglab.Policy, trace: raglab.Trace) -> raglab.Policy:
    """Policy that refines no further than a trace measured."""
    deepest = trace.n_depths - 1
    if policy.refine.max_depth <= deepest:
        return policy
    return policy.replace("refine.max_depth", deepest, "certificate", policy.certificate)


def labels_of(trace: raglab.Trace) -> NDArray[np.int8]:
    """Codes of the expected statuses, [Q]."""
    return np.array([Status[case.expect_status] for case in trace.cases], dtype=np.int8)


def with_splits(trace: raglab.Trace, split: Sequence[str]) -> raglab.Trace:
    """Trace whose cases have other splits, and a fingerprint of its own."""
    cases = tuple(case._replace(split=name) for case, name in zip(trace.cases, split, strict=True))
    return replace(trace, cases=cases).subset(range(len(cases)))


# Draws
# ----------------------------------------------------------------------------------------------


class Draw(NamedTuple):
    """Cases to tune on; all others are judged.

    size: how many; 0 for half of them.
    number: seed of the draw, and of whatever is fitted on it.
    """

    size: int
    number: int


def draw_rows(label: NDArray[np.int8], draw: Draw) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to tune on and rows to judge on, ascending; of every label in proportion to its share.

    Args:
      label: of all cases, [Q].
      draw: of half of them, chance says where the last case of an odd number goes.

    Raises:
      ValueError: as many cases as there are, or more.
    """
    if draw.size >= len(label):
        msg = f"a draw must leave cases to judge on, got {draw.size} of {len(label)}; draw fewer."
        raise ValueError(msg)
    drawn = np.zeros(len(label), dtype=bool)
    if draw.size:
        rng = np.random.default_rng([draw.number, draw.size])
        share = np.bincount(label, minlength=len(Status)) * draw.size / len(label)
        sizes = share.astype(np.int64)
        sizes[np.argsort(sizes - share, kind="stable")[: draw.size - sizes.sum()]] += 1
        for code, count in enumerate(sizes.tolist()):
            drawn[rng.permutation(np.flatnonzero(label == code))[:count]] = True
    else:
        rng = np.random.default_rng(draw.number)
        for code in np.unique(label):
            rows = rng.permutation(np.flatnonzero(label == code))
            drawn[rows[: (len(rows) + int(rng.integers(2))) // 2]] = True
    return np.flatnonzero(drawn), np.flatnonzero(~drawn)


def tuning_trace(trace: raglab.Trace, draw: Draw) -> raglab.Trace:
    """Drawn cases, all of split tune."""
    rows, _ = draw_rows(labels_of(trace), draw)
    return with_splits(trace.subset(rows), ["tune"] * len(rows))


# Rules
# ----------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a rule selects on the drawn cases, and what that is on the others.

    selected: name of the candidate. expected: cost on new cases by the rule's own estimate.
    cross_validated: cost of every candidate by that of the drawn cases. savings: mean saving over
    the incumbent and its standard error, by candidate; {} where the rule compares none. cells:
    judged cases by cell, [18] by policy; `tuned` is the selected one.
    """

    selected: str
    expected: float
    cross_validated: Mapping[str, float]
    savings: Mapping[str, tuple[float, float]]
    cells: Mapping[str, list[int]]


def outcome_of(
    selected: str, expected: float, costs: pd.DataFrame, cells: Mapping[str, list[int]]
) -> Outcome:
    """Outcome with the columns of a table of candidates."""
    pairs = costs[["gain", "std_error"]].itertuples(name=None) if "gain" in costs else ()
    savings = {str(name): (float(gain), float(error)) for name, gain, error in pairs}
    return Outcome(selected, float(expected), costs["cross_validated"].to_dict(), savings, cells)


def judged_cells(
    trace: raglab.Trace, draw: Draw, policies: Mapping[str, raglab.Policy]
) -> dict[str, list[int]]:
    """Cases that were not drawn, by cell, [18] by policy."""
    _, rows = draw_rows(labels_of(trace), draw)
    cells = shard_cells(trace, list(policies.values()))[:, rows]
    counts = [np.bincount(row, minlength=metrics.N_CELLS).tolist() for row in cells]
    return dict(zip(policies, counts, strict=True))


def tuned(
    trace: raglab.Trace,
    policy: raglab.Policy,
    draw: Draw,
    costs: metrics.Costs | None,
    **settings: Any,  # noqa: ANN401
) -> Outcome:
    """`raglab.tune` of the installed version on the drawn cases, without targets.

    Args:
      trace: all cases.
      policy: where the study starts.
      draw: which cases to tune on.
      costs: of the goal.
      settings: of `raglab.tune`.
    """
    goal = raglab.Goal(costs=costs, targets={})
    study = raglab.tune(
        tuning_trace(trace, draw), policy=policy, seed=draw.number, goal=goal, **settings
    )
    expected = study.held_out_estimate if hasattr(study, "held_out_estimate") else study.expected
    return outcome_of(
        study.selected, expected, study.costs, judged_cells(trace, draw, study.policies)
    )


def selected(
    trace: raglab.Trace,
    policy: raglab.Policy,
    draw: Draw,
    matrices: Matrices,
    deals: Sequence[tuple[int, int]],
) -> Iterator[tuple[str, tuple[int, int], Outcome]]:
    """The selection of `raglab.tune` by its default rule, without the chain search.

    That search does not compete.

    The models of a fold are fitted once for all cost matrices and numbers of repeats.

    Args:
      trace: all cases.
      policy: where the study starts.
      draw: which cases to tune on.
      matrices: costs by name.
      deals: folds and repeats to select with.

    Returns: name of the matrix, folds and repeats, and the outcome, one after the other.
    """
    from raglab.lab import candidates as lab_candidates
    from raglab.lab.competition import competition
    from raglab.lab.decision_fitting import decision_cases, policy_with_costs
    from raglab.lab.selection import select_candidate

    drawn = tuning_trace(trace, draw)
    start = limit_depth(policy, drawn).replace("decision.rule", "chain")
    defaults = limit_depth(published_policy(start), drawn)
    held = raglab.lab.Measured(drawn)
    evidence = measured_tables(held, start).evidence
    goal, seed = raglab.Goal(), draw.number
    cases = lab_candidates.Cases(
        held,
        None,
        start,
        defaults,
        goal,
        evidence,
        decision_cases(evidence),
        {},
        question_numbers(drawn.cases),
        seed,
    )
    try:
        always = raglab.fit_decision(drawn, start, costs={}, seed=seed)
    except ValueError:  # too few cases of a kind
        always = None
    for folds in dict.fromkeys(folds for folds, _ in deals):
        most = max(repeats for n_folds, repeats in deals if n_folds == folds)
        widest = cases._replace(folds=folds, repeats=most)
        fit = lab_candidates.cross_fit(widest) if lab_candidates.can_fit(widest) else None
        for repeats in (repeats for n_folds, repeats in deals if n_folds == folds):
            dealt = widest._replace(repeats=repeats)
            part = fit._replace(evidence=fit.evidence[:repeats]) if fit else None
            if part is None and lab_candidates.can_fit(dealt):
                part = lab_candidates.cross_fit(dealt)
            for name, costs in matrices.items():
                priced = dealt._replace(goal=raglab.Goal(costs=costs))
                entrants = [
                    *lab_candidates.free_candidates(priced),
                    lab_candidates.threshold_candidate(priced),
                ]
                entrants += [lab_candidates.cost_candidate(priced, part)] if part else []
                entrants = [entrant for entrant in entrants if entrant is not None]
                choice = select_candidate(
                    entrants, competition(priced, "expected_cost", {}).competing, priced
                )
                free = min(FREE, key=lambda free_name: choice.costs.loc[free_name, "in_sample"])
                own = {
                    TUNED: choice.policies[choice.selected],
                    ALWAYS: policy_with_costs(always, costs) if always else choice.policies[free],
                }
                cells = judged_cells(trace, draw, {**choice.policies, **own})
                yield (
                    name,
                    (folds, repeats),
                    outcome_of(choice.selected, choice.held_out_estimate, choice.costs, cells),
                )
