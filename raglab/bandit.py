"""Bandits over retrieval arms: `init`, `choose`, `update`, and a fast simulation (rules S4.1 to S4.5)."""

from __future__ import annotations

from raglab._choosing import choose, init, revise, update
from raglab._history import Helps, guarded, history_of, warm_start, warm_start_helps
from raglab._indices import kl_upper
from raglab._learner import POLICIES, Bandit, Choice, State, Stats
from raglab._propensity import propensities, sample
from raglab._saved import Saved, dumps, loads, merge
from raglab._simulate import Simulation, simulate
from raglab._worlds import Bernoulli, Table

__all__ = [
    "POLICIES",
    "Bandit",
    "Bernoulli",
    "Choice",
    "Helps",
    "Saved",
    "Simulation",
    "State",
    "Stats",
    "Table",
    "choose",
    "dumps",
    "guarded",
    "history_of",
    "init",
    "kl_upper",
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
