"""Displays of every kind, and the numbers that they draw."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from labelled import free_policy, labelled, unlabelled
from raglab import certify
from raglab.bandit import Bandit, Bernoulli, Table, init, propensities, update
from raglab.bandit.simulation import run
from raglab.displays.bandits import (
    ArmShareDisplay,
    PosteriorDisplay,
    PropensityDisplay,
    RegretDisplay,
    lai_robbins,
)
from raglab.displays.boundary import DecisionBoundaryDisplay
from raglab.displays.gates import (
    OutcomeTableDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    ThresholdSweepDisplay,
)
from raglab.displays.logs import ForestDisplay, RewardAuditDisplay
from raglab.lab.signal_audit import audit_signals
from raglab.lab.trace_comparison import compare_traces
from raglab.lab.traffic_review import review
from raglab.metrics import TARGETS
from raglab.store.policies import Policy
from raglab.values import Status
from study_worlds import COSINE, FOUR, NEXT, audited, cosine_trace, drawn
from worlds import PATTERNS, Hit, ask, policy, random_trace, trace_of

RNG = np.random.default_rng(0)
SCORE = RNG.integers(0, 21, 300) / 20.0
RIGHT = RNG.random(300) < SCORE**0.7
LABEL = np.where(RIGHT, Status.ok, RNG.integers(0, 3, 300))
DECIDED = RNG.integers(0, 3, 300)
COSTS = {
    "ok": {"refused": 0.2, "asked": 0.05},
    "refuse": {"asked": 0.05},
    "ambiguous": {"refused": 0.2},
}
CERTIFIED = certify.certify(RIGHT, SCORE, alpha=0.3)
SHUFFLED = RNG.permutation(300)


def gate_displays(order=slice(None), **more):
    """Every display of the same cases in some order."""
    right, score, label, status = RIGHT[order], SCORE[order], LABEL[order], DECIDED[order]
    return {
        "uniform": ReliabilityDisplay.from_predictions(right, score, **more),
        "quantile": ReliabilityDisplay.from_predictions(
            right, score, strategy="quantile", n_bins=4, **more
        ),
        "corp": ReliabilityDisplay.from_predictions(right, score, strategy="corp", **more),
        "pointwise": RiskCoverageDisplay.from_predictions(right, score, target=0.2, **more),
        "simultaneous": RiskCoverageDisplay.from_predictions(
            right, score, band="simultaneous", certificate=CERTIFIED, **more
        ),
        "no band": RiskCoverageDisplay.from_predictions(right, score, band=None, **more),
        "sweep": ThresholdSweepDisplay.from_predictions(
            right, score, label=label, targets=TARGETS, certificate=CERTIFIED, **more
        ),
        "outcome": OutcomeTableDisplay.from_predictions(
            label, status, right=right, costs=COSTS, **more
        ),
    }


MEANS = np.array([0.7, 0.6, 0.5])
ARMS = ("hybrid", "iterative", "graph")
PRICED = Table.from_frame(
    pd.DataFrame({"small": np.repeat([0.75, 0.25], 30), "large": np.repeat([0.25, 1.0], 30)}),
    costs={"small": 1.0, "large": 4.0},
    price=0.125,
    order="given",
)
ROW: dict[str, Any] = {"ess": 200.0, "max_weight": 12.5, "status": "ok"}
ESTIMATES = pd.DataFrame(
    [
        {"estimator": "snips", "value": 0.6, "low": 0.55, "high": 0.65} | ROW,
        {"estimator": "dr", "value": 0.62, "low": 0.58, "high": 0.66} | ROW | {"status": "weak"},
        {"estimator": "ips", "value": 0.9, "low": np.nan, "high": np.nan}
        | ROW
        | {"status": "none", "ess": 1.0},
    ]
)


@cache
def bandit_runs():
    """Runs of two learners on three arms."""
    names = ("ucb1", "thompson_beta")
    return {
        name: run(Bandit(name), Bernoulli(MEANS), rounds=500, replications=12) for name in names
    }


@cache
def priced_runs():
    """Runs of two learners on arms with prices."""
    names = ("ucb1", "thompson_nig")
    return {name: run(Bandit(name), PRICED, rounds=60, replications=8) for name in names}


def bandit_state(policy="thompson_beta"):
    """State after 3 successes and 1 failure of the first arm, 1 failure of the second."""
    bandit = Bandit(policy)
    at = init(2, bandit=bandit)
    for arm, reward in ((0, 1.0), (0, 1.0), (0, 1.0), (0, 0.0), (1, 0.0)):
        at = update(at, arm, reward, bandit)
    return at, bandit


def logged_choices(rounds=60):
    """Propensities of every round of a log, and the arms chosen."""
    rng, bandit = np.random.default_rng(0), Bandit(floor=0.05)
    at, p, arms = init(3, bandit=bandit), [], []
    for _ in range(rounds):
        p.append(propensities(at, bandit))
        arms.append(int(rng.choice(3, p=p[-1])))
        at = update(at, arms[-1], float(rng.random() < MEANS[arms[-1]]), bandit)
    return np.array(p), np.array(arms)


def bandit_displays(**more):
    """Every display."""
    p, arms = logged_choices()
    runs = bandit_runs()
    return {
        "interval": RegretDisplay.from_runs(runs, slope=lai_robbins(MEANS), **more),
        "quantiles": RegretDisplay.from_runs(runs, band="quantiles", level=0.8, log_x=True, **more),
        "spend": RegretDisplay.from_runs(priced_runs(), cost_unit="US dollars", **more),
        "share": ArmShareDisplay.from_run(runs["ucb1"], ARMS, **more),
        "beta": PosteriorDisplay.from_state(*bandit_state(), ("hybrid", "iterative"), **more),
        "student": PosteriorDisplay.from_state(*bandit_state("thompson_nig"), **more),
        "propensity": PropensityDisplay.from_propensities(p, ARMS, action=arms, floor=0.05, **more),
        "forest": ForestDisplay.from_estimates(ESTIMATES, truth=0.61, **more),
        "audit": RewardAuditDisplay.from_audit(audited(*drawn()), **more),
    }


def scored_case(label, score, *, named=False, source="guide.md"):
    """Case with a single hit of guide.md that the reranker gives a score."""
    expected = (source,) if label == "ok" else ()
    case = ask(
        expect_status=label,
        expect_sources=expected,
        selected_sources=("guide.md",) if named else (),
    )
    return case, [[Hit(0.2, s_rerank=score)]]


ROWS = [
    scored_case("ok", 0.2),
    scored_case("ok", 0.35, named=True),
    scored_case("ok", 0.40),
    scored_case("ok", 0.9),
    scored_case("ok", 0.9, source="other.md"),
    scored_case("refuse", 0.2),
    scored_case("refuse", 0.35),
    scored_case("refuse", 0.5),
    scored_case("ambiguous", 0.3),
]


def gated(tau_explicit=30.0, tau_default=40.0):
    """Policy whose confidence gate is the only one that can refuse."""
    taus = {"enabled": True, "tau_default": float(tau_default), "tau_explicit": float(tau_explicit)}
    return policy(confidence=taus, resolver={"min_group_gap": 0.0})


def boundary_display(*taus, **more):
    """Display of the rows."""
    return DecisionBoundaryDisplay.from_trace(trace_of(*ROWS), gated(*taus), **more)


def monitored(n=50):
    """Steps of two promises."""
    labelled = np.arange(1, n + 1)
    rows = {"labelled": labelled, "bar_held": 3.0, "rate": 0.1 + labelled / 1_000}
    first = pd.DataFrame(rows).assign(
        promise="hallucination_rate",
        alpha=0.1,
        margin_alarm=labelled / 10 - 3.0,
        log_wealth_held=-labelled / 10,
        verdict=np.where(labelled >= 30, "alarm", "cannot say yet"),
    )
    return pd.concat(
        [first, first.assign(promise="over_ask_rate", verdict="held")], ignore_index=True
    )


@cache
def audited_signals():
    """Audit of a random trace."""
    patterned = Policy.from_mapping(policy(patterns=PATTERNS).model_dump())
    return audit_signals(random_trace(3, 80), patterned, repeats=1, folds=2)


def reviewed_traffic(n=60, steps=20, **extra):
    """Review of some requests."""
    trace = unlabelled(labelled(3, {"": n}, steps=steps), **extra)
    return review(trace, free_policy(similarity={"min_similarity": 0.4}))


def upgraded():
    """Four questions and one without a label, on two traces."""
    more = ("5", "no label?", None, "", (0.2, 0.1))
    return compare_traces(cosine_trace(*FOUR, more), cosine_trace(*NEXT, more), policy=COSINE)
