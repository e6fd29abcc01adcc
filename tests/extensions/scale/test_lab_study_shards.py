"""Studies over shards.

The same result as over the trace in one piece, and a sample where cases are many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from parts import alike, same
from raglab.extensions.scale.sharded_traces import save_shards
from raglab.lab import study_cases
from raglab.lab.study import tune
from raglab.lab.study_cases import (
    MIN_LABEL_CASES,
    counts_by_label,
    draw_cases,
    study_splits,
)
from raglab.replay import sweep, tally
from raglab.store.policies import Policy
from raglab.store.records import hash_cases
from raglab.store.traces import Trace
from stored_traces import stored
from study_worlds import study_world
from worlds import random_policies, random_trace


def world(size=60):
    """Cases of the study's tests under ids of their own, as a file holds them."""
    drawn = study_world(size)
    cases = tuple(case._replace(id=f"q{number}") for number, case in enumerate(drawn.cases))
    meta = {**drawn.meta, "cases_hash": hash_cases(cases)}
    return dataclasses.replace(drawn, cases=cases, meta=meta)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of the world in shards of seven cases."""
    place = tmp_path_factory.mktemp("shards")
    save_shards([world()], place, shard=7)
    return place


@pytest.fixture
def sharded(folder):
    """The world in shards."""
    return Trace.open(folder)


class TestDrawnCases:
    """A sample hangs on labels and seed alone."""

    def test_a_sample_has_each_label_in_proportion(self, sharded):
        """By head: of 60 cases, 30 ok, 15 refuse, 15 ambiguous, twelve are 6, 3 and 3, in order."""
        drawn = draw_cases(world(), 12, 0)
        names = [case.expect_status for case in drawn.cases]
        assert {name: names.count(name) for name in ("ok", "refuse", "ambiguous")} == {
            "ok": 6,
            "refuse": 3,
            "ambiguous": 3,
        }
        numbers = [int(case.id[1:]) for case in drawn.cases]
        assert numbers == sorted(set(numbers))
        assert [case.id for case in draw_cases(sharded, 12, 0).cases] == [
            case.id for case in drawn.cases
        ]
        assert [case.id for case in draw_cases(world(), 12, 1).cases] != [
            case.id for case in drawn.cases
        ]

    def test_few_cases_are_taken_whole(self, sharded):
        """A trace in memory as it is; of one in shards all cases."""
        whole = world()
        assert draw_cases(whole, 60, 0) is whole
        assert draw_cases(sharded, 60, 0).cases == whole.cases

    @settings(deadline=None, derandomize=True, max_examples=50)
    @given(n=st.tuples(*[st.integers(0, 400)] * 3), most=st.integers(90, 300))
    def test_a_rare_label_is_drawn_by_thirty(self, n, most):
        """Or as often as it is there.

        All others keep their proportions to one case, and the sizes add up.
        """
        most = min(most, sum(n))
        sizes = study_cases._stratum_sizes(np.array(n), most)
        least = np.minimum(n, MIN_LABEL_CASES)
        assert sizes.sum() == most
        assert np.all((least <= sizes) & (sizes <= n))
        common = sizes > least
        share = np.array(n) * sizes[common].sum() / max(1, np.array(n)[common].sum())
        assert np.all(np.abs(sizes - share)[common] < 1.0 + 1e-9)

    def test_counts_are_those_of_the_whole(self, sharded):
        """By split and label, whichever way the trace is held.

        A case without a label is refused.
        """
        assert sharded.counted() == world().counted()
        assert counts_by_label(sharded).tolist() == [30, 15, 15]
        sharded_splits, plain_splits = study_splits(sharded, 0), study_splits(world(), 0)
        assert (sharded_splits.unsplit, sharded_splits.n_certify, sharded_splits.made_of.cases) == (
            plain_splits.unsplit,
            plain_splits.n_certify,
            plain_splits.made_of.cases,
        )
        looks = (
            counts_by_label,
            lambda trace: draw_cases(trace, 100, 0),
            lambda trace: study_splits(trace, 0),
        )
        for split in ("tune", "report"):
            cases = list(world().cases)
            row = next(row for row, case in enumerate(cases) if case.split == split)
            cases[row] = cases[row]._replace(expect_status=None)
            for look in looks:
                with pytest.raises(ValueError, match=r"every case must have a label .* got 1 of "):
                    look(dataclasses.replace(world(), cases=tuple(cases)))


class TestMeasuredShards:
    """Shards that are measured once are replayed as they are."""

    @settings(deadline=None, derandomize=True, max_examples=3)
    @given(seed=st.integers(0, 1000))
    def test_counts_are_those_of_the_shards(self, tmp_path_factory, seed):
        """Policies of its structure from the files, of another from the shards.

        By two threads too.
        """
        trace = stored(random_trace(seed, n_cases=5, depths=1 + seed % 2))
        shards = save_shards([trace], tmp_path_factory.mktemp("t"), shard=2)
        base, *others = random_policies(seed, 3)
        policies = [base.replace("l2.max_l2", value) for value in (0.4, 0.8, 1.2)]
        with shards.measured_once(policies[0], None) as measured:
            assert measured.parts[0].evidence_for(policies, None) is not None
            same(sweep(measured, policies), sweep(trace, policies))
            same(sweep(measured, [*policies, *others]), sweep(trace, [*policies, *others]))
            with raglab.lab.parallel_workers("threads", n=2):
                same(sweep(measured, policies), sweep(trace, policies))

    def test_a_file_that_is_not_there_costs_a_measurement(self, sharded):
        """As on a machine that shares the shards alone; the folder is gone when the block ends."""
        policy = Policy.load()
        with sharded.measured_once(policy, None) as measured:
            place = Path(measured.parts[0].evidence[1].file)
            place.unlink()
            assert (
                tally(measured, [policy]).cells.tolist() == tally(world(), [policy]).cells.tolist()
            )
        assert not place.parent.exists()

    def test_it_is_a_trace_of_shards_as_any(self, sharded):
        """Cut by split and by position, with a signal more.

        What was changed is measured anew.
        """
        policy, values = Policy.load(), np.linspace(0.0, 1.0, 60)
        with sharded.measured_once(policy, None) as measured:
            rows = [*range(5), *range(9, 40)]
            more: dict[str, Any] = {"higher": "surer", "unit": "probability"}
            changes: list[Callable[[Any], Any]] = [
                lambda trace: trace.subset(rows).split("report"),
                lambda trace: trace.with_signal("own", values, **more),
            ]
            for change in changes:
                changed, expected = change(measured), change(sharded)
                assert (changed.fingerprint, changed.counted(), changed.signals) == (
                    expected.fingerprint,
                    expected.counted(),
                    expected.signals,
                )
                assert (
                    tally(changed, [policy]).cells.tolist()
                    == tally(expected, [policy]).cells.tolist()
                )
            gated = policy.replace("signals", {"own": {"min": 0.5}})
            changed, expected = (changes[-1](trace) for trace in (measured, sharded))
            assert tally(changed, [gated]).cells.tolist() == tally(expected, [gated]).cells.tolist()
            assert measured.parts[0].evidence_for([policy], None) is not None
            assert changes[-1](measured).parts[0].evidence_for([policy], None) is None


NAMED = {"tuned_on", "judged_on", "study", "best", "settings"}  # fields that hold the trace


@pytest.mark.usefixtures("quick_study")
class TestTune:
    """Studies of traces of shards."""

    def test_a_study_is_that_of_the_whole(self, sharded, tmp_path):
        """The same selection, costs, trials and judged rates by two threads; its page opens."""
        expected = tune(world(), trials=5)
        with raglab.lab.parallel_workers("threads", n=2):
            study = tune(sharded, trials=5)
        alike(study, expected, but=NAMED)
        assert len(study.judged_on) == len(expected.judged_on)
        assert "tuned" in study._repr_html_()
        page = study.report(tmp_path / "report.html").read_text(encoding="utf-8")
        assert study.policy.policy_id in page
        pd.testing.assert_frame_equal(
            study.changed().reset_index(drop=True), expected.changed().reset_index(drop=True)
        )

    def test_of_many_cases_candidates_are_made_of_a_sample(self, sharded, monkeypatch, tmp_path):
        """Of 32 cases twenty, the same ones in shards.

        Trials and rates count all, and the page says so.
        """
        monkeypatch.setattr(study_cases, "MAX_REFITTED_CASES", 20)
        study, expected = tune(sharded, trials=5), tune(world(), trials=5)
        alike(study, expected, but=NAMED)
        assert study.counts["refitted_on"] == 20
        every = int(study.rates()["coverage_n"].iloc[0])
        assert every == len(study.judged_on) == 28
        page = study.report(tmp_path / "one.html").read_text("utf-8")
        assert page.count("20 of the 32 cases tuned on") == 1
        cockpits = [result.cockpit() for result in (study, expected)]
        assert len(draw_cases(study.tuned_on, 20, 0)) == 20
        assert cockpits[0] == cockpits[1]
