"""The source document's sequence, in words of our own (S5.6).

The sequence is twelve bodies before a cover.
"""

from __future__ import annotations

from datetime import UTC, datetime

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
BODY, COVER = {"page_1_kind": "body"}, {"page_1_kind": "coversheet"}


def _after_twelve_bodies():
    row = init("insurer_name", "broker_contract", now=NOW)
    for _ in range(12):
        row = update(row, "1", "explicit_yes", now=NOW, conditions=BODY)
    return row


def test_the_row_splits_at_the_first_cover_sheet():
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
def test_a_success_before_the_failure_splits_nothing(signal):
    """The order is the source document's: first the failure, then what mends it."""
    row = update(_after_twelve_bodies(), "toc", signal, now=NOW, conditions=COVER)
    assert stratify(row, DefaultLearner(), success="toc", conditions=COVER) is None
    row = update(row, "1", "failure", now=NOW, conditions=COVER)
    assert stratify(row, DefaultLearner(), conditions=COVER) is None


def test_the_column_under_which_the_failure_is_new_is_taken():
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


def test_evidence_waits_and_alpha_is_a_setting():
    """The rule beside it needs a second cover sheet, or a looser alpha."""
    row = update(_after_twelve_bodies(), "1", "failure", now=NOW, conditions=COVER)
    row = update(row, "toc", "explicit_yes", now=NOW, conditions=COVER)
    assert stratify(row, DefaultLearner(split="evidence"), success="toc", conditions=COVER) is None
    assert (
        stratify(row, DefaultLearner(split="evidence", alpha=0.4), success="toc", conditions=COVER)
        is not None
    )


def test_a_learner_of_a_log_before_splits_by_evidence():
    """What an old log learned under stays what it was."""
    assert learned.stored_learner({"rule": "vote_share"}).split == "evidence"
    assert learned.stored_learner(DefaultLearner()._asdict()) == DefaultLearner()
    with pytest.raises(ValueError, match="split must be one of source, evidence"):
        stratify(_after_twelve_bodies(), DefaultLearner(split="never"))  # type: ignore[arg-type]
