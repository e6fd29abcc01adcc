"""Bandits over retrieval arms (algebra): `init`, `choose`, `update`, and a fast simulation (S4.1 to S4.7)."""

from __future__ import annotations

from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.latency_guard import guarded
from raglab.bandit.learned_states import learned_state
from raglab.bandit.learner import (
    LEARNERS,
    Bandit,
    Choice,
    LearnerEntry,
    State,
    Stats,
    Steps,
    choose,
    fold,
    init,
    revise,
    update,
)
from raglab.bandit.learners import POLICIES
from raglab.bandit.persistence import Helps, Saved, dumps, history_of, loads, merge, warm_start, warm_start_helps
from raglab.bandit.propensity import propensities, sample
from raglab.bandit.scores import kl_upper
from raglab.bandit.simulation import Simulation, simulate

__all__ = [
    "LEARNERS",
    "POLICIES",
    "Bandit",
    "Bernoulli",
    "Choice",
    "Helps",
    "LearnerEntry",
    "Saved",
    "Simulation",
    "State",
    "Stats",
    "Steps",
    "Table",
    "choose",
    "dumps",
    "fold",
    "guarded",
    "history_of",
    "init",
    "kl_upper",
    "learned_state",
    "loads",
    "merge",
    "propensities",
    "revise",
    "sample",
    "simulate",
    "update",
    "warm_start",
    "warm_start_helps",
]
