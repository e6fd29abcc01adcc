"""Worlds for tests of candidates and selection."""

from __future__ import annotations

import numpy as np

from labelled import free_policy
from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import Measured
from raglab.lab.candidates import Cases
from raglab.lab.decision_fitting import decision_cases
from raglab.lab.goals import Goal
from raglab.lab.search_space import full_space
from raglab.lab.untuned_policies import published_policy
from raglab.store.case_labels import question_numbers
from raglab.store.traces import Trace
from worlds import Hit, ask, trace_of


def made_trace(rows):
    """Trace of cases and their hits."""
    made = trace_of(*rows)
    return Trace(
        made.cases,
        made.chunks,
        made.arms,
        made.hits,
        None,
        {"fingerprint": "made", "corpus": "made"},
    )


def separable(n, seed=0):
    """Answerable if confidence plus cosine exceeds 1, ambiguous if a third group ties, else refuse.

    No single threshold tells them apart.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        u, v = (round(float(x), 3) for x in rng.random(2))
        asks = number % 4 == 0
        status = "ambiguous" if asks else "ok" if u + v > 1.0 else "refuse"
        tags = [
            {"domain": name}
            for name in (("home", "fleet", "hull") if asks else ("home", "fleet", "home"))
        ]
        hits = [
            Hit(
                0.2 + 0.1 * place,
                f"{'abc'[place]}.md",
                1,
                tag,
                cosine=v,
                s_rerank=u,
                s_raw=u,
                rank=place,
            )
            for place, tag in enumerate(tags)
        ]
        sources = ("a.md",) if status == "ok" else ()
        rows.append((ask(expect_status=status, expect_sources=sources), [hits]))
    return made_trace(rows)


def measured_cases(
    trace,
    goal=None,
    start=None,
    seed=0,
    repeats=2,
):
    """Cases of a trace as candidates are made of them."""
    begin = free_policy() if start is None else start
    held = Measured(trace)
    evidence = measured_tables(held, begin).evidence
    return Cases(
        held=held,
        arm=None,
        start=begin,
        defaults=published_policy(begin),
        goal=goal or Goal(),
        evidence=evidence,
        decided=decision_cases(evidence),
        space=full_space(held, begin),
        questions=question_numbers(trace.cases),
        seed=seed,
        repeats=repeats,
    )
