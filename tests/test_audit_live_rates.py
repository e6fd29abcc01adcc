"""Requests drawn by stratum, labels read back, and the rates that they tell.

By hand, then coverage, then the door.
"""

from __future__ import annotations

import itertools
import json
from math import comb, prod
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import run
from log_samples import audit_at, decided_request, newest_rate
from raglab.audit.label_samples import LabelCounts, draw_sample, record_labels, write_sample
from raglab.audit.live_rates import live_rates
from raglab.displays.logs import LiveRatesDisplay
from raglab.live.prometheus import metrics_text
from raglab.metrics.intervals import Stratum, finite_interval, stratified_share
from raglab.store.log_tables import LABELS, SAMPLES

GATES = ("similarity", "support")


def mixed(log):
    """A log of 12 answers, 4 refusals by either gate and 4 questions."""
    statuses = ["ok"] * 12 + ["refuse"] * 8 + ["ambiguous"] * 4
    for number, status in enumerate(statuses):
        decided_request(log, f"r{number:02d}", status, GATES[number >= 16], minute=number)
    return log


def labelled(sample, path, label):
    """The file of a sample with labels."""
    write_sample(sample.assign(label=[label(row) for row in sample.itertuples()]), path)
    return path


def label_drawn(log, folder, n, label=lambda _: "ok"):
    """Draw so many requests and record a label of each."""
    return record_labels(log, labelled(draw_sample(log, n, seed=0), folder / "a.csv", label))


class TestStrata:
    """Intervals of draws from strata."""

    def test_by_hand(self):
        """Of 4 with 1 drawn and hit, 1 to 4 hits are possible.

        What nobody labelled may be either.
        """
        assert finite_interval(Stratum(4, 1, 1), 0.9) == (1, 4)
        assert finite_interval(Stratum(10, 10, 3, 2)) == (3, 5)
        assert finite_interval(Stratum(10, 0, 0)) == (0, 10)
        share, (low, high) = stratified_share([Stratum(2, 2, 1)], [Stratum(3, 3, 3)])
        assert (share, low, high) == (0.25, 0.25, 0.25)  # a census tells the truth
        assert np.isnan(stratified_share([Stratum(2, 2, 0)], [])[1]).all()

    @pytest.mark.parametrize("counts", [(2, 3, 0), (2, 1, 2), (2, 1, 1, 1), (2, 1, -1)])
    def test_what_no_draw_gives(self, counts):
        """Is refused."""
        with pytest.raises(ValueError, match="a stratum must have"):
            finite_interval(Stratum(*counts))

    @pytest.mark.parametrize(
        ("sizes", "drawn"),
        [((8, 12), (2, 3)), ((10, 10, 20), (3, 2, 4)), ((1, 30), (1, 4))],
    )
    @pytest.mark.parametrize("level", [0.8, 0.95])
    def test_exact_coverage(self, sizes, drawn, level):
        """Every draw summed with its probability.

        The interval holds the truth as often as it says, 0 and 1 too.
        """
        grid = [sorted({0, 1, size // 2, size - 1, size}) for size in sizes]
        draws = [*itertools.product(*(range(n + 1) for n in drawn))]
        for counts in itertools.product(*grid):
            if not sum(counts):
                continue
            truth = counts[0] / sum(counts)
            held = 0.0
            for hits in draws:
                strata = [Stratum(*one) for one in zip(sizes, drawn, hits, strict=True)]
                low, high = stratified_share(strata[:1], strata[1:], level)[1]
                if low - 1e-12 <= truth <= high + 1e-12:
                    held += prod(
                        chance(h, n, size, k)
                        for h, n, size, k in zip(hits, drawn, sizes, counts, strict=True)
                    )
            assert held >= level - 1e-9, (counts, held)


def chance(hits, drawn, size, count):
    """Probability of so many hits among those drawn."""
    return comb(count, hits) * comb(size - count, drawn - hits) / comb(size, drawn)


class TestSample:
    """`draw_sample`."""

    def test_it_is_even_and_known(self, audit_logs):
        """As many of each stratum as there are, up to the same number.

        The probability beside each.
        """
        log = mixed(audit_logs())
        drawn = draw_sample(log, 14, seed=3)
        strata = drawn.groupby("stratum")["inclusion_probability"].agg(["size", "min", "max"])
        assert list(strata.itertuples(name=None)) == [
            ("ambiguous by resolver", 4, 1.0, 1.0),
            ("ok", 4, 4 / 12, 4 / 12),
            ("refuse by similarity", 3, 0.75, 0.75),
            ("refuse by support", 3, 0.75, 0.75),
        ]
        assert drawn["request_id"].is_unique

    def test_same_seed_same_draw(self, audit_logs):
        """And one event of it."""
        log = mixed(audit_logs())
        first, again, _ = (draw_sample(log, 6, seed=seed) for seed in (1, 1, 2))
        assert first.equals(again)
        with log.log.reading() as entries:
            assert len(list(entries.rows(SAMPLES))) == 2

    def test_a_window(self, audit_logs):
        """Only the latest requests, by number or by days."""
        log = mixed(audit_logs())
        assert set(draw_sample(log, 99, seed=0, last=4)["stratum"]) == {"ambiguous by resolver"}
        assert len(draw_sample(log, 99, seed=0, days=7 / 1440)) == 8

    def test_what_the_log_does_not_keep(self, audit_logs):
        """Is not in the file either."""
        log = mixed(audit_logs(query="none"))
        assert draw_sample(log, 4, seed=0)["question"].eq("").all()

    def test_nothing_to_draw(self, audit_logs):
        """Is refused."""
        with pytest.raises(ValueError, match="requests with a decision, got none"):
            draw_sample(audit_logs(), 4, seed=0)


class TestLabels:
    """`record_labels`."""

    @pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl"])
    def test_they_come_back_once(self, audit_logs, tmp_path, name):
        """A second reading adds nothing; another label counts from now on; empty ones are none.

        All is chained.
        """
        log = mixed(audit_logs())
        sample = draw_sample(log, 8, seed=0)
        for labels, counts in (
            ({0: ""}, (7, 0, 0)),
            ({0: ""}, (0, 0, 7)),
            ({1: "refuse"}, (1, 1, 6)),
        ):
            path = labelled(sample, tmp_path / name, lambda row, by=labels: by.get(row.Index, "ok"))
            assert record_labels(log, path) == LabelCounts(*counts)
        with log.log.reading() as entries:
            assert len(list(entries.rows(LABELS))) == 9

    @pytest.mark.parametrize(
        ("old", "new", "rule"),
        [
            (",label", ",labels", "line 2: column label must be a text"),
            ("ok,\nX", "fine,\nX", "column label must be ok, refuse, ambiguous or empty"),
            ("r23", "r22", "column request_id must name a request once"),
            ("r2", "q2", r"column request_id must be one that sample \w+ drew, got 'q2"),
            ("X", "Y", "column sample must name a draw of this log"),
        ],
    )
    def test_what_is_refused(self, audit_logs, tmp_path, old, new, rule):
        """File, line, column, rule, remedy; and none of the labels is kept."""
        log, path = mixed(audit_logs()), tmp_path / "labels.csv"
        sample = draw_sample(log, 4, seed=0, last=4)
        labelled(sample, path, lambda _: "ok")
        name = str(sample["sample"][0])
        text = path.read_text().replace(name, "X").replace(old, new)
        path.write_text(text.replace("X", name).replace("Y", "0" * 12))
        with pytest.raises(ValueError, match=rf"labels\.csv.*{rule}"):
            record_labels(log, path)
        with log.log.reading() as entries:
            assert list(entries.rows(LABELS)) == []

    def test_a_spreadsheets_apostrophe(self, audit_logs, tmp_path):
        """An id that would be a formula comes back as it was."""
        log = audit_logs()
        decided_request(log, "=1+1", "ok")
        path = labelled(draw_sample(log, 1, seed=0), tmp_path / "labels.csv", lambda _: "ok")
        assert "'=1+1" in path.read_text()
        assert record_labels(log, path) == LabelCounts(1, 0, 0)


class TestRates:
    """`live_rates`."""

    def test_a_census(self, audit_logs, tmp_path):
        """All 24 drawn.

        Of 12 answers, 8 refusals and 4 questions, half of each refusal's gate should be answered.
        """
        log = mixed(audit_logs())
        answer = {"ok": "ok", "refuse by similarity": "ok", "refuse by support": "refuse"}
        label_drawn(log, tmp_path, 24, lambda row: answer.get(row.stratum, "refuse"))
        table = live_rates(log)
        for name, share in (("false_refusal_rate", 4 / 16), ("over_ask_rate", 4 / 24)):
            row = newest_rate(table, name, "labels")
            assert row[["estimate", "low", "high"]].tolist() == [share] * 3
            assert row[["known", "covered", "requests"]].tolist() == [24] * 3

    def test_nothing_is_known(self, audit_logs):
        """NaN, and an empty log has no row; a window that is none is refused."""
        log = audit_logs()
        assert len(live_rates(log)) == 0
        decided_request(log, "r1", "refuse")
        assert live_rates(log)[["estimate", "low", "high"]].isna().all(axis=None)
        for more in ({"last": None}, {"last": 5, "days": 2.0}, {"every": 0}, {"level": 1.0}):
            with pytest.raises(ValueError, match="must be"):
                live_rates(log, **more)

    def test_requests_after_the_draw(self, audit_logs, tmp_path):
        """Are not covered by it, nor those before the window.

        A later draw speaks for both once it has a label.
        """
        log = mixed(audit_logs())
        label_drawn(log, tmp_path, 24)
        for number in range(4):
            decided_request(log, f"s{number}", "refuse", minute=60 + number)

        def newest():
            return newest_rate(live_rates(log, last=8), "false_refusal_rate", "labels")

        counts = ["known", "covered", "requests"]
        later = draw_sample(log, 28, seed=1)
        assert newest()[counts].tolist() == [4, 4, 8]
        path = labelled(later, tmp_path / "b.csv", lambda row: "ok" * (row.request_id == "s0"))
        record_labels(log, path)
        assert newest()[[*counts, "low", "high"]].tolist() == [1, 8, 8, 1 / 5, 1.0]

    def test_nought_of_nought_is_missing(self, audit_logs, tmp_path):
        """Nothing was refused and no label says that a request should be answered.

        No share, and no interval of 0.
        """
        log = audit_logs()
        for number in range(10):
            decided_request(log, f"r{number}", "ok", minute=number)
        label_drawn(log, tmp_path, 4, lambda _: "refuse")
        row = newest_rate(live_rates(log), "false_refusal_rate", "labels")
        assert row[["estimate", "low", "high"]].isna().all()
        assert (row["known"], row["covered"], row["unknown"]) == (4, 10, 6)

    def test_a_course_over_time(self, audit_logs):
        """A window at each number of requests, by number or by days.

        The newest is what stands alone.
        """
        log = mixed(audit_logs())
        course = live_rates(log, last=10, every=10)
        assert course["requests"].tolist() == [4] * 5 + [10] * 10
        newest = course[course["until"] == course["until"].max()].reset_index(drop=True)
        pd.testing.assert_frame_equal(newest, live_rates(log, last=10))
        assert live_rates(log, last=None, days=9 / 1440)["requests"].unique().tolist() == [10]


def test_the_door(tmp_path, monkeypatch):
    """`raglab audit sample`, `label` and `metrics`; the log may stand before the command."""
    monkeypatch.chdir(tmp_path)
    mixed(audit_at("audit.sqlite")).close()
    assert run("audit", "sample", "sample.csv", "-n", "12", "--log", ".").exit_code == 0
    sample = pd.read_csv("sample.csv", keep_default_na=False)
    sample["label"] = sample["decision"].replace("refuse", "ok")
    write_sample(sample, Path("sample.csv"))
    assert "new: 12" in run("audit", "--log", ".", "label", "sample.csv").stdout
    result = json.loads(run("audit", "label", "sample.csv", "--log", ".", "--json").stdout)
    assert result["labels"] == {"new": 0, "changed": 0, "known": 12}
    assert run("metrics", ".", "--out", "raglab.prom").exit_code == 0
    assert (
        'raglab_live_rate{rate="over_ask_rate",source="labels"} 0.0'
        in Path("raglab.prom").read_text()
    )
    # never over the log
    assert run("audit", "sample", "audit.sqlite", "--log", "audit.sqlite").exit_code == 1


def test_metrics_leave_nan_out():
    """A bound that is known stands without an estimate."""
    row = {"until": "t", "rate": "over_ask_rate", "source": "labels", "known": 0, "unknown": 3}
    row |= {"requests": 3, "errors": 2, "estimate": np.nan, "low": 0.0, "high": 0.5}
    text = metrics_text(None, pd.DataFrame([row]))
    assert "raglab_live_rate{" not in text
    assert 'raglab_live_rate_high{rate="over_ask_rate",source="labels"} 0.5' in text


def test_the_display(audit_logs, tmp_path):
    """A panel a rate, a line a source; what is no table of rates is refused."""
    log = mixed(audit_logs())
    label_drawn(log, tmp_path, 12)
    table = live_rates(log, last=10, every=5)
    display = LiveRatesDisplay.from_rates(table)
    assert len(display.axes_) == 3
    assert len(display.lines_) == 5
    looks = {(line.get_label(), line.get_color()) for line in display.lines_}
    assert len(looks) == 2  # a source looks the same in every panel
    assert display.frame().equals(table)
    for wrong, rule in ((table[:0], "got no row"), (table.drop(columns="low"), "low missing")):
        with pytest.raises(ValueError, match=rule):
            LiveRatesDisplay.from_rates(wrong)
