"""Splitting a default by the condition under which it fails: the exact test, its looks, and what a split makes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from math import comb
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from raglab.default_learner import (
    ClarificationDefault,
    Counts,
    Learner,
    Split,
    due,
    gate,
    init,
    looked,
    lookup,
    split,
    stratify,
    update,
)
from raglab.default_learner.default_updates import gathers

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
POSTERIOR = Learner(rule="posterior")
Seen = list[tuple[str, str, dict[str, str]]]  # value, signal, conditions


def learned(seen: Seen, learner: Learner | None = None) -> ClarificationDefault:
    """Row of the insurer after these signals under these conditions."""
    made = init("insurer_name", "broker_contract", now=NOW)
    for value, signal, conditions in seen:
        made = update(made, value, signal, now=NOW, conditions=conditions, learner=learner)  # type: ignore[arg-type]
    return made


def case_12(bodies: int = 30, covers: int = 8, **more: str) -> Seen:
    """Page 1 is right on bodies, comes back empty on coversheets, where users then take the table of contents."""
    body, cover = {"page_1_kind": "body", **more}, {"page_1_kind": "coversheet", **more}
    seen: Seen = [("1", "explicit_yes", body)] + [("1", "implicit_ok", body)] * (bodies - 1)
    return seen + [("1", "failure", cover), ("toc", "explicit_yes", cover)] * covers


def noise(outcomes: NDArray[np.bool_], levels: NDArray[np.int64], looks: int) -> ClarificationDefault:
    """Row whose value 1 was silent or failed, counted under columns of noise; as `update` would count it."""

    def counts(kinds: NDArray[np.int64]) -> dict[str, dict[str, Counts]]:
        table = np.bincount(2 * kinds + outcomes, minlength=2 * int(kinds.max() + 1)).reshape(-1, 2).tolist()
        found = {str(kind): {"1": Counts(silent=ok, failed=bad)} for kind, (ok, bad) in enumerate(table)}
        return {kind: by for kind, by in found.items() if by["1"] != Counts()}

    return ClarificationDefault(
        target_field="insurer_name",
        doctype="broker_contract",
        candidate_votes={"1": 0.5 * float((~outcomes).sum())},
        confidence=0.5 * float((~outcomes).mean()),
        sample_size=len(outcomes),
        last_refreshed=NOW,
        counts=counts(np.zeros(len(outcomes), dtype=np.int64))["0"],
        strata={f"noise_{at}": counts(levels[:, at]) for at in range(levels.shape[1])},
        looks=looks,
    )


def splits_of_noise(rng: np.random.Generator, rows: int, n_levels: int, failing: float, looks: int) -> tuple[int, int]:
    """Rows of 20 columns of noise that split at any look, and rows that would at the first without correction."""
    learner, wrong, naive = Learner(), 0, 0
    most = learner.first_look * 2 ** (looks - 1)
    for _ in range(rows):
        outcomes = np.repeat([False, True], [int(rng.negative_binomial(most, failing)), most])
        outcomes[:-1] = rng.permutation(outcomes[:-1])
        levels = rng.integers(n_levels, size=(len(outcomes), 20))
        ends = np.flatnonzero(outcomes)[learner.first_look * 2 ** np.arange(looks) - 1]
        found = [
            stratify(noise(outcomes[: end + 1], levels[: end + 1], look), learner) for look, end in enumerate(ends)
        ]
        wrong += any(each is not None for each in found)
        first = outcomes[: ends[0] + 1]
        ones = levels[: ends[0] + 1] == 1
        p = gathers((ones & first[:, None]).sum(axis=0), ones.sum(axis=0), first.sum(), first.size)
        naive += bool((p <= learner.alpha).any())
    return wrong, naive


def test_the_exact_test_by_hand() -> None:
    """8 failures of 38 signals, all of them among the 8 of one part: 1 way of C(38, 8)."""
    assert float(gathers(8, 8, 8, 38)) == pytest.approx(1 / comb(38, 8), rel=1e-9)
    assert float(gathers(0, 5, 3, 10)) == pytest.approx(1.0)
    assert float(gathers(3, 3, 3, 3)) == pytest.approx(1.0)


def test_the_exact_test_counts_every_table() -> None:
    """It is the share of ways to place the failures that are at least as uneven, for every small table."""
    for n in range(1, 9):
        for m in range(n + 1):
            for failures in range(n + 1):
                for k in range(max(0, m + failures - n), min(m, failures) + 1):
                    ways = sum(comb(m, i) * comb(n - m, failures - i) for i in range(k, min(m, failures) + 1))
                    assert float(gathers(k, m, failures, n)) == pytest.approx(ways / comb(n, failures), rel=1e-9)


def test_many_tables_at_once_are_each() -> None:
    """One = a cell of many."""
    tables = np.array([[8, 8, 8, 38], [0, 5, 3, 10], [2, 4, 3, 9], [40, 70, 90, 300]])
    many = gathers(*tables.T)
    np.testing.assert_allclose(many, [float(gathers(*each)) for each in tables], rtol=1e-12)


def test_case_12_is_found_at_the_first_look() -> None:
    """At the eighth failure, p is 1 of C(38, 8), against 0.05 / 2 shared by two values of one column."""
    made = learned(case_12())
    found = stratify(made, Learner())
    assert found is not None
    assert found[:2] == ("page_1_kind", "coversheet")
    assert found.p == pytest.approx(1 / comb(38, 8), rel=1e-9)
    assert (found.bar, found.look) == (0.05 / 2 / 2, 1)
    assert stratify(learned(case_12(covers=7)), Learner()) is None


def test_each_look_has_half_of_the_last_ones_alpha() -> None:
    """Looks at 8, 16, 32 failures; between them nothing is tested, however clear it is."""
    made = learned(case_12(covers=31))
    at_looks = [due(made.model_copy(update={"looks": looks}), Learner()) for looks in range(4)]
    assert at_looks == [True, True, False, False]
    later = looked(looked(learned(case_12(bodies=90, covers=32))))
    found = stratify(later, Learner())
    assert found is not None
    assert (found.bar, found.look) == (0.05 / 8 / 2, 3)
    assert looked(later).version == later.version + 1
    assert stratify(looked(later), Learner()) is None


def test_a_learner_that_does_not_stratify() -> None:
    """It neither counts by condition nor looks."""
    learner = Learner(stratify=False)
    made = learned(case_12(), learner)
    assert made.strata == {}
    assert not due(made, learner)
    assert stratify(learned(case_12()), learner) is None


def test_the_split_learns_apart_and_the_old_row_stays() -> None:
    """Bodies keep page 1, coversheets the table of contents, both silently; a kind never seen falls back."""
    made = learned(case_12(), POSTERIOR)
    found = stratify(made, POSTERIOR)
    assert found is not None
    before = made.model_dump_json()
    rows = split(made, found, now=NOW + timedelta(days=1), learner=POSTERIOR)
    parent = looked(made, found)
    assert made.model_dump_json() == before
    assert [row.sub_conditions["page_1_kind"] for row in rows] == ["body", "coversheet"]
    body, cover = rows
    assert (body.candidate_votes, body.sample_size) == ({"1": 15.5}, 30)
    assert (cover.candidate_votes, cover.sample_size, cover.counts) == ({"toc": 8.0}, 8, {"toc": Counts(yes=8.0)})
    assert (body.requests, body.looks, body.strata, body.version) == (0, 0, {}, 0)
    assert body.confidence == update(body, "1", "failure", now=NOW, learner=POSTERIOR).confidence > 0.85
    assert cover.confidence == pytest.approx(0.2 ** (1 / 9))
    assert parent.candidate_votes == made.candidate_votes
    for kind, row in (("body", body), ("coversheet", cover), ("scan", parent)):
        assert lookup([parent, *rows], "insurer_name", "broker_contract", {"page_1_kind": kind}) is row


def test_the_published_rule_takes_the_split_as_well() -> None:
    """Eight yeses of eight: the failures that led to the split are spent, and coversheets are silent at once."""
    made = learned(case_12())
    found = stratify(made, Learner())
    assert found is not None
    body, cover = split(made, found, now=NOW)
    assert (cover.confidence, gate(cover)) == (1.0, "apply")
    assert body.confidence == 15.5 / 30


def test_a_row_does_not_split_twice_by_one_column() -> None:
    """Of the column that it was split by the old row keeps nothing; the other columns stay."""
    made = learned(case_12(language="fr"))
    found = stratify(made, Learner())
    assert found is not None
    assert list(looked(made, found).strata) == ["language"]
    assert list(looked(made).strata) == ["page_1_kind", "language"]


def test_a_column_of_one_value_is_not_tried() -> None:
    """It neither splits nor costs anything."""
    alone = learned([("1", "explicit_yes", {})] * 8 + [("1", "failure", {"language": "fr"})] * 8)
    assert stratify(alone, Learner()) is None
    assert stratify(learned(case_12(language="fr")), Learner()) == stratify(learned(case_12()), Learner())


def test_requests_without_a_value_say_nothing_of_a_column() -> None:
    """Blank and missing are the same, and change no p-value but by what the others count."""
    blank: Seen = [("1", "implicit_ok", {"page_1_kind": ""}), ("1", "failure", {}), ("1", "implicit_ok", {})] * 2
    made = learned([*case_12(covers=8), *blank])
    found, plain = stratify(made, Learner()), stratify(learned(case_12()), Learner())
    assert found == plain
    assert sum(counts["1"].failed for counts in made.strata["page_1_kind"].values()) == 8


def test_a_value_that_the_leading_one_was_not_tried_under() -> None:
    """A language in which only the table of contents was ever tried is no value of the test."""
    extra: Seen = [("toc", "explicit_yes", {"page_1_kind": "scan"})]
    found, plain = stratify(learned(case_12() + extra), Learner()), stratify(learned(case_12()), Learner())
    assert found == plain


def test_of_two_columns_the_smaller_p_is_taken() -> None:
    """And the first by name where they are equal."""
    both = learned([(value, signal, seen | {"a_copy": seen["page_1_kind"]}) for value, signal, seen in case_12()])
    found = stratify(both, Learner())
    assert found is not None
    assert (found.column, found.bar) == ("a_copy", 0.05 / 2 / 4)
    seen = [(value, signal, about | {"a_copy": about["page_1_kind"]}) for value, signal, about in case_12()]
    seen[0] = (*seen[0][:2], {"page_1_kind": "body", "a_copy": "coversheet"})
    found = stratify(learned(seen), Learner())
    assert found is not None
    assert found.column == "page_1_kind"


def test_failures_that_do_not_gather() -> None:
    """Half of bodies and half of coversheets fail: no split, at any look."""
    kinds = ("body", "coversheet")
    seen: Seen = [("1", signal, {"page_1_kind": kind}) for signal in ("implicit_ok", "failure") for kind in kinds] * 20
    assert [stratify(learned(seen).model_copy(update={"looks": looks}), Learner()) for looks in range(3)] == [None] * 3


def test_failures_of_another_value_are_not_those_of_the_leading_one() -> None:
    """Page 1 leads; that the table of contents fails on coversheets splits nothing."""
    seen: Seen = [("1", "explicit_yes", {"page_1_kind": kind}) for kind in ("body", "coversheet")] * 10
    made = learned(seen + [("toc", "failure", {"page_1_kind": "coversheet"})] * 20)
    assert due(made, Learner())
    assert stratify(made, Learner()) is None


def test_a_row_of_failures_alone_has_nothing_to_split() -> None:
    """No value leads it."""
    made = learned([("1", "failure", {"page_1_kind": kind}) for kind in ("body", "coversheet")] * 20)
    assert due(made, Learner())
    assert stratify(made, Learner()) is None


def test_a_split_survives_json() -> None:
    """Row and split read back equal, so that a log rebuilds the new rows."""
    made = learned(case_12())
    found = stratify(made, Learner())
    assert found is not None
    back = ClarificationDefault.model_validate_json(made.model_dump_json())
    again = Split(**json.loads(json.dumps(found._asdict())))
    assert split(back, again, now=NOW) == split(made, found, now=NOW)


def test_a_split_that_cannot_be_is_refused() -> None:
    """By a column that the row never counted, or at what is no time."""
    made = learned(case_12())
    with pytest.raises(ValueError, match="a row splits by a column that it counts, got 'language'"):
        split(made, Split("language", "fr", 0.0, 0.01, 1), now=NOW)
    with pytest.raises(ValueError, match="now must be a datetime"):
        split(made, Split("page_1_kind", "body", 0.0, 0.01, 1), now="today")  # type: ignore[arg-type]


def test_a_split_keeps_what_is_remembered() -> None:
    """Half of the votes are forgotten: the new rows have half of theirs, and what they had is their sample."""
    learner = Learner(half_life_days=30.0)
    made = learned(case_12(), learner)
    made = update(made, "1", "failure", now=NOW + timedelta(days=30), conditions={}, learner=learner)
    found = stratify(made.model_copy(update={"looks": 0}), learner._replace(first_look=5))
    assert found is not None
    rows: Any = split(made, found, now=made.last_refreshed, learner=learner)
    left = made.remembered / made.sample_size
    assert left == pytest.approx(24.0 / 47.0)
    assert rows[1].candidate_votes == {"toc": pytest.approx(8.0 * left)}
    assert (rows[1].sample_size, rows[1].remembered) == (8, pytest.approx(8.0 * left))


def test_counting_at_once_is_counting_one_by_one() -> None:
    """The rows of noise below are those that `update` makes."""
    rng = np.random.default_rng(3)
    outcomes, levels = rng.random(60) < 0.4, rng.integers(3, size=(60, 4))
    names = [{f"noise_{at}": str(level) for at, level in enumerate(row)} for row in levels]
    kinds = ["failure" if bad else "implicit_ok" for bad in outcomes]
    one = learned([("1", kind, about) for kind, about in zip(kinds, names, strict=True)])
    assert noise(outcomes, levels, 0).strata == one.strata
    assert noise(outcomes, levels, 0).counts == one.counts


def test_noise_rarely_splits() -> None:
    """20 columns of two values: at most 5 % of rows; without the bar for many columns far more."""
    wrong, naive = splits_of_noise(np.random.default_rng(6), rows=100, n_levels=2, failing=0.3, looks=3)
    assert wrong <= 5
    assert naive > 30


@pytest.mark.slow
@pytest.mark.parametrize(("n_levels", "failing"), [(2, 0.3)])
def test_noise_splits_under_five_percent(n_levels: int, failing: float) -> None:
    """2,000 rows of 20 columns, looks at 8 to 64 failures: under 5 % ever split."""
    wrong, _ = splits_of_noise(np.random.default_rng(20), rows=2_000, n_levels=n_levels, failing=failing, looks=4)
    assert wrong < 100
