"""Certificates of cascades: levels by enumeration, laws, an example by hand, refusals, looks."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, xlogy

from raglab.bandit import Table, certify_cascade, fit_priced_policy
from raglab.extensions.budgets import cascades
from raglab.extensions.budgets.cascade_tests import PARTS, least_limit, mean_p, paired_test
from refusals import refused

SIZE = 14


def counts_of(size):
    """Gains and losses of every outcome, [N, 2]."""
    return [(b, c) for b in range(size + 1) for c in range(size + 1 - b)]


def multinomial(counts, shares):
    """Chance of each row of counts, [N]."""
    counts = np.asarray(counts, float)
    choices = gammaln(counts.sum(axis=1) + 1.0) - gammaln(counts + 1.0).sum(axis=1)
    return np.exp(choices + xlogy(counts, shares).sum(axis=1))


def trinomial(size, gain, loss):
    """Chance of every outcome of `counts_of`."""
    rows = [(b, c, size - b - c) for b, c in counts_of(size)]
    return multinomial(rows, [gain, loss, max(0.0, 1.0 - gain - loss)])


# Levels, computed


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("margin", [0.2, 0.4])
def test_the_exact_test_has_its_level(margin, delta):
    """At every nuisance, on the edge of the null hypothesis and inside, by all outcomes."""
    tests = [paired_test(b, c, SIZE, delta) for b, c in counts_of(SIZE)]
    rejects = np.array([p(margin) <= delta for p in tests])
    assert rejects.any()
    for lead in (margin, margin + 0.03):
        for loss in np.linspace(lead, 0.5 * (1.0 + lead), 60):
            assert trinomial(SIZE, loss - lead, loss) @ rejects <= delta + 1e-12


def test_the_p_value_is_the_largest_chance_of_its_region():
    """Not above it by more than a cell of the nuisance: the outcomes as extreme, added up."""
    delta, margin, size = 0.1, 0.1, 10
    outcomes = counts_of(size)
    p = {outcome: paired_test(*outcome, size, delta)(margin) for outcome in outcomes}
    losses = np.linspace(margin, 0.5 * (1.0 + margin), 400)
    chances = np.stack([trinomial(size, loss - margin, loss) for loss in losses])
    for outcome in outcomes:
        region = np.array([p[rival] <= p[outcome] + 1e-12 for rival in outcomes])
        assert chances[:, region].sum(axis=1).max() <= p[outcome] + 1e-9
    ties = 0.9**2  # by hand: two questions, only those without a loss are as extreme as no change
    assert ties <= paired_test(0, 0, 2)(0.1) <= ties + 0.002


@pytest.mark.parametrize("limit", [0.5, 0.7])
def test_the_bets_have_their_level_on_strata(limit):
    """Four rows of weight 1 and four of weight 1/4, whose rates differ but mean the limit."""
    delta, outcomes = 0.3, list(itertools.product(range(5), repeat=2))
    weights = np.repeat([1.0, 0.25], 4)

    def p_of(first, second):
        excess = np.array([1.0] * first + [0.0] * (4 - first) + [1.0] * second)
        return mean_p(weights, np.pad(excess, (0, 8 - len(excess))), limit)

    rejects = np.array([p_of(*outcome) <= delta for outcome in outcomes])
    assert rejects.any()
    for heavy in np.linspace(0.0, 1.25 * limit, 30):
        light = 5.0 * limit - 4.0 * heavy
        if 0.0 <= light <= 1.0 and heavy <= 1.0:
            chance = [
                multinomial([(a, 4 - a)], [heavy, 1.0 - heavy])[0]
                * multinomial([(b, 4 - b)], [light, 1.0 - light])[0]
                for a, b in outcomes
            ]
            assert np.dot(chance, rejects) <= delta


def test_the_bets_have_their_level_where_weights_are_drawn():
    """Rows of weight 1 or 1/3 by chance: the highest weight of the design, not of the sample."""
    delta, limit, size = 0.3, 0.5, 7
    kinds = np.array([(1.0, 1.0), (1.0, 0.0), (1 / 3, 1.0), (1 / 3, 0.0)])
    outcomes = [row for row in itertools.product(range(size + 1), repeat=4) if sum(row) == size]
    rejects = np.array(
        [mean_p(*np.repeat(kinds, row, axis=0).T, limit) <= delta for row in outcomes]
    )
    assert rejects.any()
    for heavy in (0.0, 0.2, 0.5, 0.8):  # rate of the heavy rows, a quarter of the draw
        share, light = 0.25, (limit * (0.25 + 0.25) - 0.25 * heavy) / 0.25
        shares = [share * heavy, share * (1 - heavy), 0.75 * light, 0.75 * (1 - light)]
        if 0.0 <= light <= 1.0:
            assert multinomial(outcomes, shares) @ rejects <= delta


def test_a_bet_by_hand():
    """A row of weight 1/2 moves a stake by half; what speaks for the null hypothesis has p = 1."""
    bets = 2.0 ** -np.arange(8.0)
    e_value = np.mean((1.0 + bets) * (1.0 + 0.5 * bets) * (1.0 - 0.5 * bets))
    p = mean_p(np.array([1.0, 0.5, 0.5]), np.array([0.0, 0.0, 1.0]), 0.5)
    assert p == pytest.approx(1.0 / e_value)
    assert mean_p(np.ones(4), np.ones(4), 0.5) == 1.0
    assert least_limit(lambda _: 0.0, 0.1) == 1 / PARTS


# Laws


def cascade(gains, losses, ties, calls):
    """Table of rights and wrongs with a plan that calls the dear arm for `calls` of the ties."""
    size = gains + losses + ties
    small = np.array([1.0] * gains + [0.0] * losses + [1.0] * ties)
    large = np.array([0.0] * gains + [1.0] * losses + [1.0] * ties)
    frame = pd.DataFrame({"small": small, "large": large})
    dear = np.arange(size) >= size - calls
    table = Table.from_frame(frame, costs={"small": 1.0, "large": 9.0}, price=1.0, order="given")
    return table.priced(0.0), np.stack([~dear, dear], axis=1).astype(float)


def certified(table, plan, **terms):
    """Certificate at a margin of .05 and 30 % of dear calls, or as stated."""
    terms = {"reference": "large", "margin": 0.05, "max_share": 0.3} | terms
    return certify_cascade(table, plan, **terms)


@pytest.mark.parametrize("weights", [None, "two"])
def test_it_is_monotone_in_both_limits(weights):
    """Who keeps a promise keeps each weaker one, and the bounds do not move."""
    table, plan = cascade(6, 8, 106, 20)
    weights = weights and np.where(np.arange(120) % 2, 1.0, 1.5)
    limits = (0.01, 0.03, 0.06, 0.1, 0.2, 0.5, 0.9)
    for name in ("margin", "max_share"):
        certificates = [
            certified(table, plan, weights=weights, **{name: limit}) for limit in limits
        ]
        claim = ["margin", "max_share"].index(name)
        holds = [bool(certificate.claims["holds"][claim]) for certificate in certificates]
        assert holds == sorted(holds)
        assert holds[-1] > holds[0]
        assert len({certificate.claims["bound"][claim] for certificate in certificates}) == 1


def test_who_always_calls_the_dear_arm():
    """Is as good, at any margin that the number of questions carries, and calls too often."""
    table, plan = cascade(10, 10, 100, 120)
    assert certified(table, plan, max_share=1.0).certified
    certificate = certified(table, plan)
    assert not certificate.certified
    assert certificate.claims["holds"].tolist() == [True, False]
    assert certificate.claims["bound"][1] == 1.0
    cheap = certified(*cascade(0, 40, 80, 0))
    assert cheap.claims["holds"].tolist() == [False, True]


def test_an_example_by_hand():
    """Of 45 questions no one differs and none is called: (1 - x)^45 = .1 at x = .0499."""
    certificate = certified(*cascade(0, 0, 45, 0), delta=0.1)
    assert certificate.claims["estimate"].tolist() == [0.0, 0.0]
    assert certificate.claims["bound"][1] == pytest.approx(1.0 - 0.1 ** (1 / 45))
    for gap, is_kept in ((0.0, True), (1e-6, False)):
        limit = certificate.claims["bound"][1] - gap
        assert certified(*cascade(0, 0, 45, 0), max_share=limit).claims["holds"][1] == is_kept
    # three gains and a loss speak for the policy as much: a little above
    assert 0.0499 <= certificate.claims["bound"][0] <= 0.06
    assert certificate.claims["test"].tolist() == ["exact", "exact"]
    assert "certified" in repr(certificate)
    # weights that are all alike say the same of one question more carefully, by bets
    even = certified(*cascade(0, 0, 45, 0), weights=np.full(45, 7.0))
    assert even.claims["test"].tolist() == ["e-value", "e-value"]
    assert (even.claims["bound"] > certificate.claims["bound"]).all()
    p = least_limit(lambda limit: mean_p(np.ones(45), np.zeros(45), limit), 0.1)
    assert even.claims["bound"].tolist() == [p, p]


def test_only_ratios_of_weights_count_and_rows_have_no_order():
    """Rewards in parts are tested by bets."""
    table, plan = cascade(4, 6, 90, 15)
    weights, order = np.linspace(1.0, 2.0, 100), np.random.default_rng(0).permutation(100)
    first = certified(table, plan, weights=weights, max_weight=2.5)
    again = certified(table, plan, weights=40.0 * weights, max_weight=100.0)
    assert first.claims.equals(again.claims)
    sums = [weights[4:10].sum() - weights[:4].sum(), weights @ plan[:, 1]]
    assert np.allclose(first.claims["estimate"], sums / weights.sum())
    # a heavier question could have been drawn: bets are smaller
    assert (first.claims["bound"] > certified(table, plan, weights=weights).claims["bound"]).all()
    mixed = table._replace(**{name: getattr(table, name)[order] for name in ("value", "mask")})
    turned = certified(
        mixed._replace(cost=table.cost), plan[order], weights=weights[order], max_weight=2.5
    )
    assert np.allclose(turned.claims["bound"], first.claims["bound"])
    assert certified(table, [0.8, 0.2]).claims["test"].tolist() == ["e-value", "e-value"]


def test_chances_among_cheap_arms_that_are_right_alike_leave_it_exact():
    """.7 + .2 + .1 is no 1 in floats: a question on which nothing differs is no loss."""
    frame = pd.DataFrame(dict.fromkeys(("small", "smaller", "least", "large"), np.ones(45)))
    table = Table.from_frame(frame, order="given")
    certificate = certified(table, [0.7, 0.2, 0.1, 0.0])
    assert certificate.claims["test"].tolist() == ["exact", "exact"]
    assert certificate.claims.equals(certified(table, [1.0, 0.0, 0.0, 0.0]).claims)


# Questions and looks


def market(seed, size=60):
    """Table in which the dear arm is better where x is 1."""
    rng = np.random.default_rng(seed)
    x = (rng.random(size) < 0.25).astype(float)
    frame = pd.DataFrame({"small": 1.0 - x, "large": np.ones(size), "x": x})
    return Table.from_frame(
        frame, costs={"small": 1.0, "large": 9.0}, price=0.0, features=["x"], order="given"
    )


def test_questions_that_it_was_fitted_on_are_refused():
    """By text, or by their numbers; up to 5 % are repeats, and told."""
    past, texts = market(0), [f"question {n}" for n in range(60)]
    later = [f"later {n}" for n in range(60)]
    rule = "it was fitted on"
    policy = fit_priced_policy(past, 9.0, questions=texts)
    new = market(1)
    assert certified(new, policy, questions=later).notes == ()
    for questions in (texts, [*later[:56], *texts[:4]], [text.upper() for text in texts]):
        refused(rule, certified, new, policy, questions=questions)
    few = certified(new, policy, questions=[*later[:57], *texts[:3]])
    assert few.repeats == 3
    # without texts the same numbers are the same question
    for questions in (None, later):
        refused(rule, certified, past, fit_priced_policy(past, 9.0), questions=questions)
    # a policy that knows no texts, and texts that the caller knows; one that knows them, and none
    unnamed = fit_priced_policy(past, 9.0)
    refused(rule, certified, new, unnamed, questions=texts, fitted_questions=texts)
    refused(rule, certified, past, policy)
    refused("list of texts", certified, new, unnamed, fitted_questions="one text")
    plan = policy.plan(new)
    refused(rule, certified, new, plan, questions=texts, fitted_questions=texts)
    assert certified(new, plan, questions=later).notes == (cascades.UNSEEN,)


def test_what_is_not_counted_is_noted():
    """Rows that are there twice, arms that cost more, weights that were not drawn."""
    frame = pd.DataFrame({"small": np.ones(40), "large": np.ones(40), "x": np.arange(40.0)})
    terms = {"costs": {"small": 1.0, "large": 0.5}, "price": 0.0, "order": "given"}
    table = Table.from_frame(frame, features=["x"], **terms)
    notes = certified(table, [0.0, 1.0], weights=np.ones(40)).notes
    assert notes == (cascades.UNSEEN, cascades.HEAVIER, cascades.CHEAPER)
    twice = Table.from_frame(pd.concat([frame[:20]] * 2), features=["x"], order="given")
    assert certified(twice, [0.0, 1.0]).notes == (cascades.UNSEEN, cascades.TWICE)


def test_a_further_look_is_stated_and_adds(tmp_path):
    """The same certification is the same look; another one needs `again`."""
    table, plan = cascade(0, 0, 60, 6)
    texts = [f"question {n}" for n in range(60)]
    terms = {"looks": tmp_path / "looks.jsonl", "questions": texts, "fitted_questions": ["before"]}
    first, same = (certified(table, plan, **terms) for _ in range(2))
    assert (first.looks, first.spent) == (same.looks, same.spent) == (1, 0.1)
    refused("must be certified on once", certified, table, plan, margin=0.04, **terms)
    second = certified(table, plan, margin=0.04, again=True, **terms)
    assert (second.looks, second.spent) == (2, 0.2)
    # of more than 5 % of these questions, in another order
    shared = [*texts[50:], *(f"more {n}" for n in range(50))]
    terms["questions"] = shared
    refused("must be certified on once", certified, table, plan, **terms)


REFUSALS = {
    "margin": ({"margin": 0.0}, "margin must be in"),
    "no margin": ({"margin": np.nan}, "margin must be in"),
    "share": ({"max_share": 1.1}, "max_share in"),
    "confidence": ({"delta": 0.5}, "delta must be in"),
    "confidence of bets": ({"delta": 0.5, "weights": np.ones(60)}, "delta must be in"),
    "arm": ({"reference": "huge"}, "reference must be an arm"),
    "number of texts": ({"questions": ["a"]}, "questions must be the texts of 60 rows"),
    "repeated text": ({"questions": ["a"] * 60}, "questions must be different, got 1 of 60"),
    "number of weights": ({"weights": [1.0]}, "weights must be"),
    "weight": ({"weights": np.zeros(60)}, "weights must be"),
    "missing weight": ({"weights": np.full(60, np.nan)}, "weights must be"),
    "highest weight": ({"weights": np.ones(60), "max_weight": 0.5}, "at most max_weight"),
}


@pytest.mark.parametrize("noun", REFUSALS)
def test_what_is_refused(noun):
    """With rule, value and remedy."""
    terms, rule = REFUSALS[noun]
    refused(rule, certified, *cascade(0, 0, 60, 6), **terms)


def test_tables_and_plans_that_are_refused():
    """An arm that a row lacks, a reward beyond 1, and what is no probability."""
    table, plan = cascade(0, 0, 60, 6)
    mask = table.mask.copy()
    mask[3, 1] = False
    refused(
        "reference must be an arm that every row has", certified, table._replace(mask=mask), plan
    )
    refused("rewards must be in", certified, table._replace(value=2.0 * table.value), plan)
    refused("sum to 1", certified, table, 0.5 * plan)
    refused("must be .A. or .Q, A.", certified, table, plan[:5])
    refused("questions must be the texts", fit_priced_policy, market(0), 9.0, questions=["a"])
