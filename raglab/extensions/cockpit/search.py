"""Search from the cockpit (shore): thresholds that are not locked, by study and line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.trace_view import Measured
from raglab.lab.goals import Goal
from raglab.lab.line_search import line_search
from raglab.lab.search_space import SWITCHES, SearchRange, full_space, own_trial
from raglab.lab.trial_search import Problem, run_search, trial_policies
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.replay import tally
from raglab.store.policies import Policy

BATCH, BEST = 50, 6  # trials replayed together; of which the line search starts


OnBatch = Callable[[NDArray[np.float32]], bool]


class SearchJob(NamedTuple):
    """What is searched.

    The cases, the policy that it starts from and what it is compared with, the goal, the locks.
    """

    trace: Measured
    start: Policy
    baseline: Policy
    goal: Goal
    arm: str
    locked: frozenset[str]


def tried_policies(job: SearchJob, on_batch: OnBatch, *, trials: int, seed: int) -> list[Policy]:
    """The start, and the policies that a search tries, which differ from it in what is not locked.

    Args:
      on_batch: takes coverage and expected cost of each batch, [B, 2]; where it gives False the
        search ends with what it has.
      trials: configurations tried before the exact line search.

    Raises:
      ValueError: everything is locked, or the policy decides by expected cost.
    """
    space = _free_space(job)

    settings = {
        "arm": job.arm,
        "trials": trials,
        "sampler": "nsga2",
        "batch_size": BATCH,
        "seed": seed,
    }
    first = [own_trial(job.start, space)]
    problem = Problem(job.trace, job.start, space, job.goal, first, settings)
    search = run_search(
        problem,
        storage=None,
        study_name=None,
        on_trials=lambda rows: on_batch(rows[["coverage", "expected_cost"]].to_numpy(np.float32)),
    )
    return [job.start, *trial_policies(job.start, search.trials)]


def best_policy(job: SearchJob, policies: Sequence[Policy]) -> Policy:
    """The best policy of an exact line search from the best of some policies."""
    cells = tally(job.trace, policies, job.arm).cells
    order = np.argsort(job.goal.score(cells), kind="stable")
    _, distinct = np.unique(cells[order], axis=0, return_index=True)
    best = [policies[place] for place in order[np.sort(distinct)[:BEST]]]
    paths = [
        path for path in _free_space(job) if path in SWITCHES or job.start.value(path) is not None
    ]
    return line_search(job.trace, best, paths, job.goal.score, job.baseline, job.arm)


def _free_space(job: SearchJob) -> dict[str, SearchRange]:
    """Ranges of what is not locked."""
    if job.start.decision.rule == EXPECTED_COST:
        msg = "a search moves gates, and this policy decides by expected cost; use raglab.tune."
        raise ValueError(msg)
    space = full_space(job.trace, job.start, arm=job.arm)
    free = {
        path: extent
        for path, extent in space.items()
        if not {path, path.rpartition(".")[0]} & job.locked
    }
    if not free:
        msg = f"a search must have something that may move, got {len(space)} locked; unlock some."
        raise ValueError(msg)
    return free
