"""Draws of labelled cases, and policies `holdout.py` makes of them and judges on all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import raglab
from raglab import metrics
from raglab.decision.measurement import measured_tables
from raglab.lab.untuned_policies import published_policy
from raglab.replay import shard_cells
from raglab.store.case_labels import question_numbers
from raglab.values import Status

FREE = ("always-answer", "always-refuse")
TUNED, ALWAYS = "tuned", "expected cost always"
Matrices = Mapping[str, metrics.Costs | None]


# Cases
# ----------------------------------------------------------------------------------------------


def limit_depth(policy: raglab.Policy, trace: raglab.Trace) -> raglab.Policy:
    """Policy that refines no further than a trace measured."""
    deepest = trace.n_depths - 1
    if policy.refine.max_depth <= deepest:
        return policy
    return policy.replace("refine.max_depth", deepest, "certificate", policy.certificate)


def labels_of(trace: raglab.Trace) -> NDArray[np.int8]:
    """Codes of the expected statuses, [Q]."""
    return np.array([Status[case.expect_status] for case in trace.cases], dtype=np.int8)


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
    part = trace.subset(draw_rows(labels_of(trace), draw)[0])
    cases = tuple(case._replace(split="tune") for case in part.cases)
    return replace(part, cases=cases).subset(range(len(cases)))


# Rules
# ----------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a rule selects on the drawn cases, and what that is on the others.

    selected: name of the candidate. expected: cost on new cases by the rule's own estimate. costs:
    of every candidate on the drawn cases. cells: judged cases by cell, [18] by policy; `tuned` is
    the selected one.
    """

    selected: str
    expected: float
    costs: pd.DataFrame
    cells: Mapping[str, list[int]]


def judged_cells(
    trace: raglab.Trace, draw: Draw, policies: Mapping[str, raglab.Policy]
) -> dict[str, list[int]]:
    """Cases that were not drawn, by cell, [18] by policy."""
    _, rows = draw_rows(labels_of(trace), draw)
    cells = shard_cells(trace, list(policies.values()))[:, rows]
    counts = [np.bincount(row, minlength=metrics.N_CELLS).tolist() for row in cells]
    return dict(zip(policies, counts, strict=True))


def selected(
    trace: raglab.Trace,
    policy: raglab.Policy,
    draw: Draw,
    matrices: Matrices,
    **deals: int,
) -> Iterator[tuple[str, Outcome]]:
    """The selection of `raglab.tune` by its default rule, without the chain search.

    That search does not compete. The models of a fold are fitted once for all cost matrices.

    Args:
      trace: all cases.
      policy: where the study starts.
      draw: which cases to tune on.
      matrices: costs by name.
      deals: `folds` and `repeats`, where not those of `raglab.tune`.

    Returns: name of the matrix and the outcome, one after the other.
    """
    from raglab.lab import candidates as lab_candidates
    from raglab.lab.competition import competition
    from raglab.lab.decision_fitting import decision_cases, policy_with_costs
    from raglab.lab.selection import select_candidate

    drawn = tuning_trace(trace, draw)
    start = limit_depth(policy, drawn).replace("decision.rule", "chain")
    held = raglab.lab.Measured(drawn)
    evidence = measured_tables(held, start).evidence
    cases = lab_candidates.Cases(
        held,
        None,
        start,
        limit_depth(published_policy(start), drawn),
        raglab.Goal(),
        evidence,
        decision_cases(evidence),
        {},
        question_numbers(drawn.cases),
        draw.number,
    )._replace(**deals)
    try:
        always = raglab.fit_decision(drawn, start, costs={}, seed=draw.number)
    except ValueError:  # too few cases of a kind
        always = None
    fit = lab_candidates.cross_fit(cases) if lab_candidates.can_fit(cases) else None
    for name, costs in matrices.items():
        priced = cases._replace(goal=raglab.Goal(costs=costs))
        entrants = [
            *lab_candidates.free_candidates(priced),
            lab_candidates.threshold_candidate(priced),
            lab_candidates.cost_candidate(priced, fit) if fit else None,
        ]
        choice = select_candidate(
            [entrant for entrant in entrants if entrant is not None],
            competition(priced, "expected_cost", {}).competing,
            priced,
        )
        free = min(FREE, key=lambda free_name: choice.costs.loc[free_name, "in_sample"])
        own = {
            TUNED: choice.policies[choice.selected],
            ALWAYS: policy_with_costs(always, costs) if always else choice.policies[free],
        }
        cells = judged_cells(trace, draw, {**choice.policies, **own})
        yield (
            name,
            Outcome(choice.selected, float(choice.held_out_estimate), choice.costs, cells),
        )
