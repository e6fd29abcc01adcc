"""A bar for the support of claims.

Known answers, a promise that holds, and the plain word where there is none.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import raglab
from raglab.answering.support import WordSupport, answer_support
from raglab.lab.support_calibration import calibrate_support, certified_bar, pair_supports
from raglab.store.policies import Policy

DATA = Path(__file__).parents[2] / "shared" / "data"
RNG = np.random.default_rng(5)


class Told(NamedTuple):
    """Scores a claim by the number that stands in its passage."""

    name: str = "told"

    def scores(
        self, claims: Sequence[str], evidence: Sequence[Sequence[str]]
    ) -> NDArray[np.float64]:
        """The number of each."""
        del claims
        return np.array([float(texts[0]) for texts in evidence])


def pairs_of(scores: Sequence[float]) -> list[tuple[str, list[str]]]:
    """Pairs that `Told` scores so."""
    return [("Storm damage is covered.", [str(score)]) for score in scores]


def test_a_clean_cut_is_found() -> None:
    """Supported at 0.3 and more, never below.

    The bar is there, although the published one loses four in seven.
    """
    scores = np.repeat(np.arange(10) / 10, 60)
    found = calibrate_support(pairs_of(scores.tolist()), scores >= 0.3, scorer=Told(), target=0.05)
    assert found.min_support == 0.3
    assert found.test.unsupported == 0
    assert found.probability([0.0, 0.2, 0.3, 0.9]).round(3).tolist() == [0.0, 0.0, 1.0, 1.0]
    rows = found.table.set_index("what").loc[["published", "certified"]]
    assert rows["bar"].tolist() == [0.5, 0.3]
    assert rows["true"].tolist() == [300, 420]
    assert rows["false"].tolist() == [0, 0]
    assert "published bar 0.5 lets 300 of 420" in found.text


def test_the_policy_carries_the_bar() -> None:
    """Nothing else of it changes but the gate is on."""
    scores = np.repeat(np.arange(10) / 10, 60)
    found = calibrate_support(pairs_of(scores.tolist()), scores >= 0.3, scorer=Told(), target=0.05)
    before = Policy.load().replace("support.enabled", False)
    after = found.policy(before)
    assert after.support.min_support == 0.3
    assert after.support.enabled
    assert (
        after.replace("support.min_support", 0.5, "support.enabled", False).policy_id
        == before.policy_id
    )


def test_scores_that_say_nothing_earn_no_bar() -> None:
    """Half of the claims are supported whatever the score.

    No bar, the reason in words, and no policy.
    """
    labels = np.arange(400) % 2
    found = calibrate_support(
        pairs_of(RNG.random(400).tolist()), labels, scorer=Told(), target=0.05
    )
    assert found.min_support is None
    assert "no bar keeps the unsupported share at 5 %" in found.test.reason
    assert found.test.bound > 0.05
    with pytest.raises(ValueError, match="needs a certified bar"):
        found.policy(Policy.load())


def test_the_promise_holds_in_a_small_simulation() -> None:
    """A claim is supported with chance = score: above bar b a share (1 - b) / 2 is not.

    It is over 15 % too rarely.
    """
    delta, repeats, broken, earned = 0.1, 300, 0, 0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        scores = rng.random(1000)
        found = certified_bar(rng.random(1000) < scores, scores, target=0.15, delta=delta, rng=rng)
        broken += found.bar is not None and (1.0 - found.bar) / 2.0 > 0.15
        earned += found.bar is not None
    assert broken / repeats <= delta + 3.0 * np.sqrt(delta * (1 - delta) / repeats)
    assert earned > repeats / 2


def test_the_order_of_the_pairs_is_nothing() -> None:
    """Halves and folds are drawn for the scores, not for the rows."""
    scores = RNG.random(200)
    labels = RNG.random(200) < scores
    mixed = RNG.permutation(200)
    one = calibrate_support(pairs_of(scores.tolist()), labels, scorer=Told(), target=0.2)
    other = calibrate_support(
        pairs_of(scores[mixed].tolist()), labels[mixed], scorer=Told(), target=0.2
    )
    assert one.test == other.test
    np.testing.assert_array_equal(one.calibrated.p[mixed], other.calibrated.p)


def test_a_pair_scores_as_the_gate_meets_it() -> None:
    """The least supported claim of the answer; NaN where it claims nothing."""
    passages = ["Storm is covered. Frost is covered."]
    answers = ["Storm is covered. Frost is excluded.", "Storm is covered.", "Yes."]
    found = pair_supports([(answer, passages) for answer in answers], WordSupport())
    np.testing.assert_array_equal(
        found, [answer_support(answer, passages).score for answer in answers]
    )
    assert np.isnan(found[2])


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([1] * 20, "supported and unsupported"),
        ([1, 0], "one a pair"),
        ([2, 0] * 10, "must be 0 or 1"),
    ],
)
def test_what_can_not_be_calibrated_is_refused(labels: list[int], says: str) -> None:
    """With the rule, the value and the remedy."""
    with pytest.raises(ValueError, match=says):
        calibrate_support(pairs_of([0.5] * 20), labels, scorer=Told())


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data sets are not here")
def test_begin_earns_a_bar_above_the_published_one() -> None:
    """BEGIN: at 0.5 more than a quarter of what passes is unsupported.

    The certified bar keeps a tenth.
    """
    with (DATA / "begin-wow-dev" / "begin_dev_wow.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    pairs = [(row["response"], [row["knowledge"]]) for row in rows]
    found = calibrate_support(
        pairs, [row["begin_label"].strip() == "Fully attributable" for row in rows]
    )
    frame = found.table.set_index("what")
    assert frame.loc["published", "unsupported"] > 0.25
    assert found.min_support is not None
    assert found.min_support > 0.7
    assert frame.loc["certified", "unsupported"] < 0.1


def test_it_is_public() -> None:
    """By the package's name."""
    assert raglab.lab.calibrate_support is calibrate_support
