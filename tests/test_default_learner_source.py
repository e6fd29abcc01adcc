"""The source document's arithmetic and its sequence, in words of our own (S5.4, S5.6).

The sequence is twelve bodies before a cover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import pytest

from raglab import default_learner as learned
from raglab.default_learner import (
    DefaultLearner,
    init,
    looked,
    lookup,
    source_split,
    split,
    stratify,
    suggest,
    update,
)

NOW = datetime(2026, 1, 5, tzinfo=UTC)
Signal = Literal["explicit_yes", "explicit_no", "implicit_ok", "failure"]
SIGNALS: tuple[Signal, ...] = ("explicit_yes", "explicit_no", "implicit_ok", "failure")
WEIGHTS = {"explicit_yes": 1.0, "explicit_no": -1.0, "implicit_ok": 0.5}
BODY, COVER = {"page_1_kind": "body"}, {"page_1_kind": "coversheet"}


class SourceRow(NamedTuple):
    """A row as the source document describes it.

    Weights of the values, votes ever counted, when the last one was.
    """

    votes: Mapping[str, float] = MappingProxyType({})
    counted: int = 0
    refreshed: datetime = NOW

    @property
    def confidence(self) -> float:
        """Share of the leading value's votes in all signals, never below none."""
        return max([0.0, *self.votes.values()]) / self.counted if self.counted else 0.0

    @property
    def gate(self) -> str:
        """Sure above .85, to be asked below .60, both ends between."""
        return (
            "apply"
            if self.confidence > 0.85
            else "ask"
            if self.confidence < 0.60
            else "ask_occasionally"
        )

    def signalled(self, value: str, signal: Signal, now: datetime) -> SourceRow:
        """The row after a signal; a failure is counted and moves no vote."""
        moved = {value: self.votes.get(value, 0.0) + WEIGHTS[signal]} if signal in WEIGHTS else {}
        return SourceRow({**self.votes, **moved}, self.counted + 1, now)


@pytest.mark.parametrize("seed", [33, 34])
def test_update_is_the_sources_on_random_signals(seed: int) -> None:
    """Votes, confidence, sample size, time and gate after each of 5,000 random signals, to the bit.

    There are 250 rows.
    """
    rng = np.random.default_rng(seed)
    shares = zip(
        rng.dirichlet([0.5] * 4, size=250), rng.dirichlet([0.5] * 3, size=250), strict=True
    )  # rows of one mind
    gates: Counter[str] = Counter()
    for signal_share, value_share in shares:
        source, own = SourceRow(), init("insurer_name", "broker_contract", now=NOW)
        for number in range(20):
            value = str(rng.choice(["1", "toc", "2"], p=value_share))
            signal = SIGNALS[int(rng.choice(4, p=signal_share))]
            now = NOW + timedelta(hours=number)
            source, own = source.signalled(value, signal, now), update(own, value, signal, now=now)
            assert own.candidate_votes == source.votes
            assert (own.confidence, own.sample_size) == (source.confidence, source.counted)
            assert own.last_refreshed == source.refreshed
            assert learned.gate(own) == source.gate
            gates[source.gate] += 1
    assert gates.total() == 5000
    assert min(gates.values()) > 100  # every gate is met


def _after_twelve_bodies() -> learned.ClarificationDefault:
    row = init("insurer_name", "broker_contract", now=NOW)
    for _ in range(12):
        row = update(row, "1", "explicit_yes", now=NOW, conditions=BODY)
    return row


def test_the_row_splits_at_the_first_cover_sheet() -> None:
    """Twelve bodies, a cover sheet that fails, the table of contents: split there.

    Body and cover are then silent.
    """
    row = update(_after_twelve_bodies(), "1", "failure", now=NOW, conditions=COVER)
    # a failure alone says nothing of what is right
    assert stratify(row, DefaultLearner(), conditions=COVER) is None
    row = update(row, "toc", "explicit_yes", now=NOW, conditions=COVER)
    found = stratify(row, DefaultLearner(), success="toc", conditions=COVER)
    assert found is not None
    assert found[:3] == ("page_1_kind", "coversheet", "1")
    rows = (looked(row, found), *split(row, found, now=NOW))
    for conditions, value in ((BODY, "1"), (COVER, "toc")):
        met = lookup(rows, "insurer_name", "broker_contract", conditions)
        assert met is not None
        assert met.sub_conditions == conditions
        assert suggest(met, ["1", "toc", "document"]).value == value
        assert learned.gate(met) == "apply"


@pytest.mark.parametrize("signal", ["explicit_yes", "implicit_ok"])
def test_a_success_before_the_failure_splits_nothing(signal: Signal) -> None:
    """The order is the source document's: first the failure, then what mends it."""
    row = update(_after_twelve_bodies(), "toc", signal, now=NOW, conditions=COVER)
    assert stratify(row, DefaultLearner(), success="toc", conditions=COVER) is None
    row = update(row, "1", "failure", now=NOW, conditions=COVER)
    assert stratify(row, DefaultLearner(), conditions=COVER) is None


def test_the_column_under_which_the_failure_is_new_is_taken() -> None:
    """Page 1 was right in English before, and never on a cover sheet.

    Not the language splits the row.
    """
    row = init("insurer_name", "broker_contract", now=NOW)
    for _ in range(3):
        row = update(row, "1", "explicit_yes", now=NOW, conditions={"language": "en", **BODY})
    where = {"language": "en", **COVER}
    row = update(row, "1", "failure", now=NOW, conditions=where)
    row = update(row, "toc", "explicit_yes", now=NOW, conditions=where)
    found = source_split(row, "toc", where)
    assert found is not None
    assert (found.column, found.value) == ("page_1_kind", "coversheet")
    assert source_split(row, "1", where) is None  # the value that failed mends nothing


def test_evidence_waits_and_alpha_is_a_setting() -> None:
    """The rule beside it needs a second cover sheet, or a looser alpha."""
    row = update(_after_twelve_bodies(), "1", "failure", now=NOW, conditions=COVER)
    row = update(row, "toc", "explicit_yes", now=NOW, conditions=COVER)
    assert stratify(row, DefaultLearner(split="evidence"), success="toc", conditions=COVER) is None
    assert (
        stratify(row, DefaultLearner(split="evidence", alpha=0.4), success="toc", conditions=COVER)
        is not None
    )


def test_a_learner_of_a_log_before_splits_by_evidence() -> None:
    """What an old log learned under stays what it was."""
    assert learned.stored_learner({"rule": "vote_share"}).split == "evidence"
    assert learned.stored_learner(DefaultLearner()._asdict()) == DefaultLearner()
    with pytest.raises(ValueError, match="split must be one of source, evidence"):
        stratify(_after_twelve_bodies(), DefaultLearner(split="never"))  # type: ignore[arg-type]
