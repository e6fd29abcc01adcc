"""The signal audit on made-up cases whose answer is known by head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from raglab.lab.signal_audit import (
    ALWAYS_CONSTANT,
    MISSING_EVERYWHERE,
    audit_signals,
    rank_correlations,
    shard_signals,
)
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from refusals import refused
from study_worlds import N_SCORED, scored_world
from worlds import Hit, ask, policy, trace_of

RNG = np.random.default_rng(3)
CHOSEN = Policy.from_mapping(policy().model_dump())
TELLS = [0.9 if row % 2 else 0.1 for row in range(N_SCORED)]
NOISE = RNG.permutation(np.linspace(0.0, 0.9, N_SCORED)).tolist()


def audited(trace, **more):
    """Frame of an audit by signal."""
    return audit_signals(trace, CHOSEN, **{"repeats": 1, "folds": 3} | more).table.set_index(
        "signal"
    )


def test_a_perfect_signal_has_auroc_1_and_is_worth_all():
    """Confidence that says it all.

    Every right case above every wrong one, nothing left to lose, half lost without.
    """
    row = audited(scored_world(s_rerank=TELLS, anchor_sim=NOISE)).loc["confidence"]
    assert row["auroc_right"] == 1.0
    assert row["auroc_right_low"] > 0.85
    assert row["cost"] == row["cost_alone"] == 0.0
    assert row["worth"] > 0.3
    assert 0.0 < row["worth_low"] < row["worth"] < row["worth_high"]
    assert np.isnan(row["auroc_ambiguous"])  # no case is


def test_a_constant_signal_tells_nothing_and_is_worth_nothing():
    """A coin, told so, and no model reads it; nor one whose values differ by rounding alone."""
    rounding = (0.5 + 1e-16 * np.arange(N_SCORED)).tolist()
    frame = audited(scored_world(s_rerank=TELLS, anchor_sim=rounding))
    assert frame.loc["anchor_similarity", ["note", "worth"]].tolist() == [ALWAYS_CONSTANT, 0.0]
    row = frame.loc["hybrid"]
    assert row["note"] == ALWAYS_CONSTANT
    assert row["auroc_right"] == 0.5
    assert row["worth"] == row["worth_low"] == row["worth_high"] == row["worth_alone"] == 0.0
    assert np.isnan(row["rank_correlation"])


def test_a_copy_is_worth_nothing_beside_the_other():
    """Two equal signals: each good alone, each named as what the other repeats, neither missed."""
    frame = audited(scored_world(anchor_sim=TELLS, sig_sim=TELLS))
    for name, other in (
        ("anchor_similarity", "signature_similarity"),
        ("signature_similarity", "anchor_similarity"),
    ):
        row = frame.loc[name]
        assert row["nearest"] == other
        assert row["rank_correlation"] == pytest.approx(1.0)
        assert row["worth"] == 0.0
        # gone with its double, nothing is left
        assert row["worth_doubles"] == row["worth_alone"] > 0.3
        assert row["worth_alone_low"] > 0.0


def test_what_is_missing_everywhere_is_said_and_no_error():
    """One hit a case has no gap: numbers are missing, the row is last, and it is counted."""
    audit = audit_signals(scored_world(s_rerank=TELLS), CHOSEN, repeats=1, folds=3)
    row = audit.table.set_index("signal").loc["gap"]
    assert (row["note"], row["missing"], row["n"]) == (MISSING_EVERYWHERE, 1.0, 0)
    assert row[["auroc_right", "worth", "cost_without", "rank_correlation"]].isna().all()
    assert audit.table["note"].tolist()[0] != MISSING_EVERYWHERE
    assert audit.table["note"].tolist()[-1] == MISSING_EVERYWHERE
    assert audit.classes == {"right": 30, "miss": 0, "refuse": 30, "ambiguous": 0}


def test_tune_alone_is_read_where_there_is_one():
    """Cases of other splits change no number.

    Without a split named tune all are read, and the audit says which.
    """
    tuned, other = (
        scored_world(s_rerank=TELLS, split="tune"),
        scored_world(s_rerank=NOISE, split="report"),
    )
    hits = type(tuned.hits)(*map(np.concatenate, zip(tuned.hits, other.hits, strict=True)))
    hits = hits._replace(chunk=hits.chunk % N_SCORED)
    cases = (*tuned.cases, *(case._replace(id=f"r{case.id}") for case in other.cases))
    both = Trace(cases, tuned.chunks, tuned.arms, hits, meta=dict(tuned.meta))
    whole, part = (audit_signals(one, CHOSEN, repeats=1, folds=3) for one in (both, tuned))
    assert (whole.split, whole.cases) == (part.split, part.cases) == ("tune", N_SCORED)
    pd.testing.assert_frame_equal(whole.table, part.table, check_exact=True)
    assert audit_signals(other, CHOSEN, repeats=0).split == "all"


def test_the_order_of_the_cases_is_nothing():
    """The same bits for any order of the rows, and for the same seed again."""
    trace = scored_world(s_rerank=NOISE, anchor_sim=TELLS, sig_sim=NOISE[::-1])
    mixed = trace.subset(RNG.permutation(N_SCORED))
    pd.testing.assert_frame_equal(audited(trace), audited(mixed), check_exact=True)


def test_asking_needs_two_options_and_pays_where_they_hold_the_sources():
    """Ambiguous cases of two groups: what tells them from the answerable is worth its asking.

    AUROC reads backwards.
    """
    rows = []
    for row in range(N_SCORED):
        label = "ok" if row % 2 else "ambiguous"
        case = ask(
            expect_status=label,
            id=f"q{row:02d}-",
            expect_sources=("a.md", "b.md") if row % 2 == 0 else (),
        )
        tells = 0.9 if row % 2 else 0.1
        hits = [
            Hit(0.25, "a.md", tags={"product": "fleet"}, s_rerank=tells),
            Hit(0.5, "b.md", tags={"product": "hull"}),
        ]
        rows.append((case, [hits]))
    trace: Any = trace_of(*rows)
    seen = shard_signals(trace, CHOSEN, None)
    assert seen.cases.can_ask.all()
    assert seen.cases.options_right[seen.ambiguous].all()
    audit = audit_signals(trace, CHOSEN, repeats=1, folds=3)
    row = audit.table.set_index("signal").loc["confidence"]
    assert row["auroc_ambiguous"] == 1.0
    assert audit.cost == 0.0


def test_rank_correlation_is_scipys():
    """Ties at the mean rank, pairs that both have."""
    from scipy.stats import spearmanr

    values = RNG.integers(0, 5, (3, 40)).astype(float)
    values[1, :5] = np.nan
    found = rank_correlations(values)
    assert found[0, 2] == pytest.approx(spearmanr(values[0], values[2]).statistic)
    assert found[0, 1] == pytest.approx(spearmanr(values[0, 5:], values[1, 5:]).statistic)


@pytest.mark.parametrize(("folds", "count"), [(10, 12), (2, 20)])
def test_as_many_as_it_needs_are_enough(folds, count):
    """One less of either kind is too few."""
    trace = scored_world(s_rerank=TELLS)
    rows = [*range(1, 2 * count, 2), *range(0, 2 * count, 2)]
    audit_signals(trace.subset(np.array(rows)), CHOSEN, folds=folds, repeats=1)
    for few in (rows[1:], rows[:-1]):
        refused(
            f"at least {count} cases",
            audit_signals,
            trace.subset(np.array(few)),
            CHOSEN,
            folds=folds,
            repeats=1,
        )
