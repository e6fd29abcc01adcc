"""Bandits over retrieval arms (algebra): `init`, `choose`, `update`, simulation (S4.1 to S4.7).

The simulation is fast.
"""

from __future__ import annotations

from raglab.bandit.budget import Budget, Frontier, Pacer, choose_price, frontier, pace, start_pacer
from raglab.bandit.environments import Bernoulli, Table
from raglab.bandit.fixed_plans import baselines, best_fixed_arm
from raglab.bandit.latency_guard import guarded
from raglab.bandit.learned_states import history_of, learned_state, warm_start
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
from raglab.bandit.ledgers import Ledger, learned_ledger
from raglab.bandit.persistence import Saved, dumps, loads, merge
from raglab.bandit.plans import compare_plans
from raglab.bandit.priced_policy import PricedPolicy, fit_priced_policy, play_paced
from raglab.bandit.propensity import propensities, sample
from raglab.bandit.ridge import fit_ridge, ridge_strength
from raglab.bandit.scores import kl_upper
from raglab.bandit.simulation import Run, Simulation, log, run, simulate
from raglab.bandit.text_context import TextFeatures, text_features

__all__ = [
    "LEARNERS",
    "POLICIES",
    "Bandit",
    "Bernoulli",
    "Budget",
    "Choice",
    "Frontier",
    "LearnerEntry",
    "Ledger",
    "Pacer",
    "PricedPolicy",
    "Run",
    "Saved",
    "Simulation",
    "State",
    "Stats",
    "Steps",
    "Table",
    "TextFeatures",
    "baselines",
    "best_fixed_arm",
    "choose",
    "choose_price",
    "compare_plans",
    "dumps",
    "fit_priced_policy",
    "fit_ridge",
    "fold",
    "frontier",
    "guarded",
    "history_of",
    "init",
    "kl_upper",
    "learned_ledger",
    "learned_state",
    "loads",
    "log",
    "merge",
    "pace",
    "play_paced",
    "propensities",
    "revise",
    "ridge_strength",
    "run",
    "sample",
    "simulate",
    "start_pacer",
    "text_features",
    "update",
    "warm_start",
]
