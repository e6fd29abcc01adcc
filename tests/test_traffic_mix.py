"""The traffic mix of a labelled sample (S6.15): laws of its intervals, sheets, the command."""

from __future__ import annotations

import json
from itertools import product
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import raglab
from labelled import free_policy, labelled, unlabelled
from raglab.audit.label_samples import write_sample
from raglab.cli import app
from raglab.lab.label_sampling import sample_for_labels
from raglab.metrics.costs import LABELS
from raglab.metrics.intervals import Stratum, clopper_pearson, finite_interval
from raglab.metrics.mixes import checked_mix, estimated_mix
from raglab.store.files import InputError

WHOLE = "a sheet must have each request once, and a stratum in each row or in none"
HALF = "a sample must have all drawn rows|inclusion_probability must|a stratum in each row"
DRAW = "inclusion_probability must be in"
COLUMN = "column question_label must be ok, refuse, ambiguous or empty"
NO_COLUMN = "must have a column question_label"
COUNTS = st.tuples(*[st.integers(0, 6)] * 4).filter(lambda counts: sum(counts[:3]) > 0)


def plain(*counts):
    """A simple random sample: rows labelled ok, refuse, ambiguous and not at all."""
    return pd.DataFrame({"question_label": np.repeat([*LABELS, ""], counts)})


def sheet(*strata, name="s"):
    """A sheet: of each stratum the requests it was drawn from and the counts of its rows."""
    drawn = sum(sum(counts) for _, counts in strata)
    parts = [
        plain(*counts).assign(
            sample=name,
            stratum=f"stratum {place}",
            inclusion_probability=sum(counts) / size,
            sample_size=drawn,
            label="refuse",  # of the answer, which is wrong
        )
        for place, (size, counts) in enumerate(strata)
    ]
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(request_id=[f"{name}{row}" for row in range(len(frame))])


def toolkit_sheet(n=40):
    """As `sample_for_labels` draws it, with what each question should get."""
    policy = free_policy(similarity={"min_similarity": 0.4})
    drawn = sample_for_labels(unlabelled(labelled(3, {"": 200})), policy, n, seed=1)
    return drawn.assign(question_label=np.resize(["ok", "ok", "refuse", ""], n))


def ends(mix):
    """Both ends of all shares."""
    return [end for pair in mix.shares.values() for end in pair]


class TestIntervals:
    """`estimated_mix` and `TrafficMix.at`."""

    @settings(max_examples=40)
    @given(COUNTS, st.sampled_from([0.01, 0.05, 0.2]))
    def test_simple_samples_are_exact(self, counts, delta):
        """Clopper and Pearson at a third of the error; what nobody labelled counts both ways."""
        mix = raglab.traffic_mix(plain(*counts), delta=delta)
        for label, hits in zip(LABELS, counts, strict=False):
            low = clopper_pearson(hits, sum(counts), 1 - delta / 3).low
            high = clopper_pearson(hits + counts[3], sum(counts), 1 - delta / 3).high
            assert mix.shares[label] == pytest.approx((float(low), float(high)), abs=1e-11)

    @settings(max_examples=40)
    @given(st.lists(st.tuples(st.integers(0, 30), COUNTS), min_size=1, max_size=3))
    def test_strata_are_summed(self, parts):
        """Hypergeometric bounds, each side at delta / (2 × strata × labels)."""
        parts = [
            (sum(counts) + more, (*counts[:2], counts[2] + 1, counts[3])) for more, counts in parts
        ]
        strata = [(size + 1, counts) for size, counts in parts]
        mix = raglab.traffic_mix(sheet(*strata), delta=0.1)
        total, level = sum(size for size, _ in strata), 1 - 0.1 / (3 * len(strata))
        for place, label in enumerate(LABELS):
            bounds = [
                finite_interval(Stratum(size, sum(counts), counts[place], counts[3]), level)
                for size, counts in strata
            ]
            expected = [sum(end) / total for end in zip(*bounds, strict=True)]
            assert mix.shares[label] == pytest.approx(tuple(expected))

    @pytest.mark.parametrize("delta", [0.05, 0.45])
    @pytest.mark.parametrize("sizes", [((6, 3),), ((3, 3), (4, 2))])
    def test_all_shares_are_held_at_once(self, sizes, delta):
        """Over all draws, enumerated, of each population: missed at most with probability delta."""

        def counted(totals):
            """Counts of three labels that sum to each total, in every way."""
            ways = (
                [row for row in product(range(n + 1), repeat=3) if sum(row) == n] for n in totals
            )
            return product(*ways)

        total = sum(size for size, _ in sizes)
        boxes = {}
        for draw in counted(drawn for _, drawn in sizes):
            strata = tuple(
                tuple(Stratum(size, drawn, hits) for hits in counts)
                for (size, drawn), counts in zip(sizes, draw, strict=True)
            )
            boxes[draw] = estimated_mix(strata, delta, is_finite=True)
        worst = 0.0
        for population in counted(size for size, _ in sizes):
            truth = np.sum(population, axis=0) / total
            missed = 0.0
            for draw, mix in boxes.items():
                chance = np.prod(
                    [
                        np.prod([*map(comb, labels, counts)]) / comb(*stratum)
                        for labels, counts, stratum in zip(population, draw, sizes, strict=True)
                    ]
                )
                is_in = (np.array(mix.low) <= truth + 1e-9) & (truth - 1e-9 <= np.array(mix.high))
                missed += float(chance) * (not is_in.all())
            worst = max(worst, missed)
        assert worst <= delta + 1e-12

    @settings(max_examples=40)
    @given(st.lists(st.tuples(st.integers(0, 9), COUNTS), min_size=1, max_size=3), st.booleans())
    def test_shares_can_sum_to_one(self, parts, is_finite):
        """The estimate lies inside and sums to 1; there is a vertex, and each is a mix inside."""
        if not is_finite:
            parts = parts[:1]
        strata = tuple(
            tuple(
                Stratum(sum(counts) + more * is_finite, sum(counts), hits, counts[3])
                for hits in counts[:3]
            )
            for more, counts in parts
        )
        mix = estimated_mix(strata, 0.3, is_finite=is_finite)
        assert sum(mix.estimate.values()) == pytest.approx(1.0)
        assert sum(mix.low) <= 1.0 + 1e-9 <= sum(mix.high) + 2e-9
        table = mix.vertices(np.ones(3))
        assert table.sum(axis=1) == pytest.approx(np.ones(len(table)))
        assert (table >= np.array(mix.low) - 1e-6).all()
        assert (table <= np.array(mix.high) + 1e-6).all()

    @settings(max_examples=40)
    @given(COUNTS, st.integers(0, 2), st.integers(0, 20), st.booleans())
    def test_an_empty_label_widens(self, counts, place, more, is_finite):
        """Whichever label is taken away, each interval holds that of before."""
        if counts[place] == 0 or sum(counts[:3]) == 1:
            return
        emptied = list(counts)
        emptied[place] -= 1
        emptied[3] += 1
        before, after = (
            raglab.traffic_mix(sheet((sum(row) + more, tuple(row))) if is_finite else plain(*row))
            for row in (counts, emptied)
        )
        for label in LABELS:
            assert after.shares[label][0] <= before.shares[label][0]
            assert after.shares[label][1] >= before.shares[label][1]
        assert ends(before) != ends(after) or is_finite

    def test_another_error(self):
        """A certificate takes its half; an error or shares that the user stated stay."""
        rows = plain(60, 20, 10, 10)
        mix, stated = raglab.traffic_mix(rows), raglab.traffic_mix(rows, delta=0.05)
        assert ends(mix) == ends(stated)
        assert ends(mix.at(0.02)) == ends(raglab.traffic_mix(rows, delta=0.02))
        assert mix.at(0.02).at(0.05) == mix
        assert stated.at(0.02) is stated
        shares = checked_mix({"ok": 0.9})
        assert shares.at(0.02) is shares


class TestSheets:
    """`raglab.traffic_mix`."""

    def test_by_hand(self):
        """Strata weigh by their sizes, not by how many were drawn; the column label is not read."""
        rows = sheet((900, (9, 1, 0, 0)), (100, (2, 6, 2, 0)))
        mix = raglab.traffic_mix(rows)
        assert mix.estimate == pytest.approx({"ok": 0.83, "refuse": 0.15, "ambiguous": 0.02})
        assert raglab.traffic_mix(rows.assign(label="ok")) == mix
        assert {type(end) for end in ends(mix)} == {float}  # YAML writes no other

    @settings(max_examples=25)
    @given(st.randoms(use_true_random=False))
    def test_order_changes_nothing(self, chance):
        """Of rows."""
        rows = sheet((50, (4, 1, 0, 1)), (20, (1, 1, 3, 0)), (7, (2, 0, 0, 0)))
        order = chance.sample(range(len(rows)), len(rows))
        assert raglab.traffic_mix(rows.iloc[order]) == raglab.traffic_mix(rows)

    def test_file_and_frame_alike(self, tmp_path):
        """CSV, JSON lines, a frame of pandas."""
        rows = toolkit_sheet()
        mix = raglab.traffic_mix(rows)
        for name in ("sheet.csv", "sheet.jsonl"):
            write_sample(rows, tmp_path / name)
            assert raglab.traffic_mix(tmp_path / name) == mix

    def test_sizes_are_those_of_the_traffic(self):
        """All 200 requests, however they fall into strata; a census is exact."""
        mix = raglab.traffic_mix(toolkit_sheet())
        assert sum(stratum.size for stratum, *_ in mix.strata) == 200
        rows = toolkit_sheet(200)
        whole = raglab.traffic_mix(rows.assign(question_label=np.resize(["ok", "refuse"], 200)))
        assert whole.shares == {"ok": (0.5, 0.5), "refuse": (0.5, 0.5), "ambiguous": (0.0, 0.0)}

    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            (lambda rows: rows.drop(columns="question_label"), NO_COLUMN),
            (lambda rows: rows.assign(question_label="yes"), COLUMN),
            (lambda rows: rows.assign(question_label=""), "a row must have a question_label"),
            (lambda rows: rows[1:], "a sample must have all drawn rows"),
            # of other strata there may be none, so the sheet does not tell all traffic
            (lambda _: sheet((5, (1, 0, 0, 0)), (1, (0, 1, 0, 0))), "must have two drawn rows"),
            (lambda rows: rows.drop(columns="stratum"), DRAW),
            (lambda rows: rows.assign(request_id="r1"), WHOLE),
            (lambda rows: rows.assign(stratum=rows["stratum"].where(rows.index % 2 > 0, "")), HALF),
            (lambda rows: rows.assign(inclusion_probability=np.linspace(0.1, 1, len(rows))), DRAW),
        ],
    )
    def test_what_is_no_sample(self, change, rule, tmp_path):
        """Is an error, in a frame and in a file; nothing is guessed from the column label."""
        rows = change(toolkit_sheet().assign(label="ok"))
        rows.to_csv(tmp_path / "sheet.csv", index=False)
        for sample in (rows, tmp_path / "sheet.csv"):
            with pytest.raises(InputError, match=rule):
                raglab.traffic_mix(sample)

    def test_probabilities_without_strata(self):
        """All alike are a simple random sample; others are refused."""
        rows = plain(30, 10, 5, 5)
        assert raglab.traffic_mix(rows.assign(inclusion_probability=0.3)) == raglab.traffic_mix(
            rows
        )
        with pytest.raises(InputError, match=DRAW):
            raglab.traffic_mix(rows.assign(inclusion_probability=[0.3] * 49 + [0.4]))


def test_the_command(tmp_path):
    """`raglab audit mix --json`; an older sheet is an error."""
    rows, path = toolkit_sheet(), tmp_path / "sheet.csv"
    write_sample(rows, path)
    mix = raglab.traffic_mix(rows)
    as_json = CliRunner().invoke(app, ["audit", "mix", str(path), "--json"])
    assert json.loads(as_json.output) == mix.rows
    write_sample(rows.drop(columns="question_label"), path)
    assert CliRunner().invoke(app, ["audit", "mix", str(path)]).exit_code != 0
