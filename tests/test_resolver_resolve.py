"""One question's groups decided alone.

Worked examples by rule, many as each, and as the chain decides (S3.3, S3.5).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from raglab.decision.threshold_arrays import policy_thresholds
from raglab.replay import decide
from raglab.resolver import OUTCOMES, Resolution, RuleSwitches, RuleThresholds, resolve
from raglab.values import Status
from refusals import refused
from worlds import random_policies, random_trace

NAN, INF = np.nan, np.inf
LAWFUL = settings(deadline=None, derandomize=True, max_examples=40)
STRICT = RuleThresholds(
    min_group_gap=0.25, min_sig_sim=0.5, min_sig_sim_gap=0.25, min_anchor_sim=0.5
)
ASKS, OK = Status.ambiguous, Status.ok
EXAMPLES = [
    # 1. One group; padding is no group.
    ([NAN, 0.5, NAN], {"overview": True}, (OK, "single_group", 1, ())),
    # 2. An overview asks back, whatever the groups say, unless the query names an entity.
    ([0.25, 1.0], {"overview": True}, (ASKS, "overview", -1, (0, 1))),
    ([0.25, 1.0], {"overview": True, "n_entities": 1}, (OK, "group_gap", 0, ())),
    (
        [0.25, 1.0],
        {
            "overview": True,
            "n_entities": 1,
            "switches": RuleSwitches(overview_entities_lift=False),
        },
        (ASKS, "overview", -1, (0, 1)),
    ),
    # 3. The group with most of the query's entities; ties by the anchor, then by members, then
    # by distance.
    ([0.25, 0.5], {"entity_hits": [0, 1], "n_entities": 1}, (OK, "entities", 1, ())),
    (
        [0.25, 0.25],
        {"entity_hits": [1, 1], "anchor_hits": [1, 1], "member_hits": [1, 2], "n_entities": 1},
        (OK, "entities", 1, ()),
    ),
    (
        [0.25, 0.25, 0.25],
        {"entity_hits": [0, 1, 1], "n_entities": 1},
        (ASKS, "options", -1, (1, 2)),
    ),
    (
        [0.25, 0.5],
        {"entity_hits": [0, 1], "n_entities": 1, "switches": RuleSwitches(entities=False)},
        (OK, "group_gap", 0, ()),
    ),
    (
        [0.25, 0.5],
        {
            "entity_hits": [0, 1],
            "n_entities": 2,
            "switches": RuleSwitches(require_full_entity_coverage=True),
        },
        (OK, "group_gap", 0, ()),
    ),
    # 4. The gap of the first two, at its threshold; the nearest need not stand first.
    ([0.75, 0.5], {}, (OK, "group_gap", 1, ())),
    ([0.25, 0.375], {}, (ASKS, "options", -1, (0, 1))),
    # 5. The signature, then the anchor: best and lead; a missing cosine leaves the lead
    # unknown.
    ([0.25, 0.25], {"sig_sim": [0.375, 0.5]}, (ASKS, "options", -1, (0, 1))),
    ([0.25, 0.25], {"sig_sim": [NAN, 0.5]}, (ASKS, "options", -1, (0, 1))),
    (
        [0.25, 0.25],
        {"sig_sim": [0.5, 0.25], "anchor_sim": [0.5, 0.75]},
        (OK, "signature_similarity", 0, ()),
    ),
    ([0.25, 0.25], {"anchor_sim": [0.5, 0.75]}, (OK, "anchor_similarity", 1, ())),
    # 6. Options in order of best l2; the first `max_options`; one that is left answers (S3.5);
    # none refuses.
    ([0.375, 0.25, 0.3125], {"max_options": 2}, (ASKS, "options", -1, (1, 2))),
    ([0.375, 0.25, 0.3125], {"max_options": 1}, (OK, "single_option", 1, ())),
    ([0.25, 0.25], {"sources": [4, 4], "overview": True}, (OK, "single_option", 0, ())),
    ([], {}, (Status.refuse, "options", -1, ())),
    ([NAN, NAN], {"overview": True}, (Status.refuse, "overview", -1, ())),
    # A group whose distance is not known is a group, and comes last.
    ([INF, 0.25], {}, (ASKS, "options", -1, (1, 0))),
]


@pytest.mark.parametrize(("best_l2", "more", "expected"), EXAMPLES)
def test_one_query(best_l2, more, expected):
    """Status, rule, winner and options, worked out by hand."""
    resolution = resolve(best_l2, STRICT, **more)
    assert resolution == Resolution(*expected)


TWO = [0.25, 0.5]
COUNTS = ("entity_hits", "anchor_hits", "member_hits")
NO_COUNT = (INF, -INF, 1e18, 2**31, -1)
# Arguments beside two groups, and what the message begins with: the argument, and its rule.
ODD: list[tuple[dict[str, Any], str]] = [
    ({"sig_sim": [70.0, 20.0]}, r"sig_sim must be in \[-1, 1\], got 70; .* percentage"),
    ({"anchor_sim": [0.5]}, r"anchor_sim must have the shape of best_l2, \(2,\), got \(1,\)"),
    ({"best_l2": [-0.25, 0.5]}, r"best_l2 must be in \[0, inf\], got -0.25"),
    ({"best_l2": 0.25}, r"best_l2 must hold a number a group, got 0.25; write \[0.25\]"),
    ({"best_l2": None}, "best_l2 must hold a number a group, got None"),
    ({"best_l2": ["0.25", "0.5"]}, "best_l2 must be numbers, got '0.25'"),
    ({"best_l2": [0.25 + 1j, 0.5]}, r"best_l2 must be numbers, got \(0.25\+1j\)"),
    ({"entity_hits": [0, 1]}, "entity_hits must be at most n_entities, got 1"),
    ({"entity_hits": [0.5, 1], "n_entities": 1}, "entity_hits must be whole"),
    *(
        ({name: [0, odd], "n_entities": 2}, f"{name} must be")
        for name in COUNTS
        for odd in NO_COUNT
    ),
    *(({"n_entities": odd}, "n_entities must be whole") for odd in (1.9, *NO_COUNT)),
    ({"n_entities": NAN}, "n_entities must be given of every query, got NaN; write 0"),
    ({"n_entities": "1"}, "n_entities must be numbers, got '1'"),
    ({"sources": [0, INF]}, "sources must be whole and in .*, got inf"),
    ({"sig_sim": [0.5, 1j]}, "sig_sim must be numbers, got 1j"),
    *(({"overview": odd}, "overview must be True or False") for odd in ("False", NAN, 1, None)),
    (
        {"best_l2": [[0.25]] * 2, "overview": [True] * 3},
        r"overview must be one value or one a query, \(2,\), got",
    ),
    ({"best_l2": [[0.25]] * 2, "overview": [True, NAN]}, "overview must be True or False, got "),
    ({"switches": RuleSwitches(entities=NAN)}, r"switches\.entities must be True or False, got "),
    ({"max_options": 0}, "max_options must be a whole number >= 1, got 0"),
    (
        {"thresholds": RuleThresholds(min_sig_sim_gap=0.1)},
        "min_sig_sim_gap must come with min_sig_sim",
    ),
    (
        {"thresholds": STRICT._replace(min_group_gap=None)},
        "min_group_gap must be a number, got None",
    ),
    (
        {"thresholds": STRICT._replace(min_sig_sim="0.5")},
        "min_sig_sim must be numbers, got '0.5'",
    ),
]


def test_odd_input_is_refused_and_not_guessed():
    """Where a number was cut, a text true, or another group won in silence."""
    for more, message in ODD:
        refused(f"^{message}", resolve, **{"best_l2": TWO, "thresholds": STRICT, **more})
    for ragged in ({"best_l2": [[0.25], [0.5, 0.75]]}, {"overview": [[True], [True, False]]}):
        refused(r"shape|lengths", resolve, **{"best_l2": TWO, "thresholds": STRICT, **ragged})
    for odd in ({"max_options": 1.5}, {"max_options": "2"}):
        with pytest.raises(TypeError):
            resolve(TWO, STRICT, **odd)
    for odd in (
        *({"thresholds": wrong} for wrong in (0.05, (0.05,), None, {})),
        *({"switches": wrong} for wrong in (True, None, {"overview": False})),
    ):
        with pytest.raises(AttributeError):
            resolve(**{"best_l2": TWO, "thresholds": STRICT, **odd})


def test_what_numpy_and_pandas_hold_is_taken():
    """Whole floats, float32, int8, None for a missing number, objects of booleans.

    Counts up to their highest.
    """
    expected = resolve([0.25, 0.5, NAN], STRICT, entity_hits=[0, 1, 0], n_entities=1, max_options=2)
    more = {
        "entity_hits": np.array([0, 1, NAN]),
        "n_entities": np.int8(1),
        "max_options": np.int64(2),
    }
    assert (
        resolve(
            np.array([0.25, 0.5, NAN], dtype=np.float32), STRICT, overview=np.bool_(False), **more
        )
        == expected
    )
    assert (
        resolve([0.25, 0.5, None], STRICT, overview=np.array(False, dtype=object), **more)
        == expected
    )
    most = 2**31 - 1
    assert (
        resolve(
            [0.25, 0.5], STRICT, member_hits=[0, most], entity_hits=[1, 1], n_entities=most
        ).group
        == 1
    )


L2 = st.sampled_from([0.25, 0.5, 0.5, 0.75, INF, NAN])
COSINE = st.sampled_from([0.0, 0.25, 0.5, 0.75, NAN])
BOUND = st.sampled_from([0.0, 0.25, 0.5, -INF, NAN])
COUNT = st.integers(0, 2)
GROUP = st.tuples(L2, COSINE, COSINE, COUNT, COUNT, COUNT, st.integers(0, 2))
QUERY = st.tuples(st.lists(GROUP, min_size=1, max_size=4), st.integers(2, 3), st.booleans())
POLICY = st.tuples(st.tuples(*[BOUND] * 5), st.tuples(*[st.booleans()] * 4))
NAMES = ("best_l2", "sig_sim", "anchor_sim", "entity_hits", "anchor_hits", "member_hits", "sources")


def _thresholds(bounds):
    gap, sig, sig_gap, anchor, anchor_gap = bounds
    return RuleThresholds(
        gap,
        sig,
        NAN if np.isnan(sig) else sig_gap,
        anchor,
        NAN if np.isnan(anchor) else anchor_gap,
    )


@LAWFUL
@given(
    queries=st.lists(QUERY, min_size=1, max_size=4),
    policies=st.lists(POLICY, min_size=1, max_size=3),
    most=st.sampled_from([None, 1, 2]),
)
def test_many_queries_under_many_policies_are_each_alone(queries, policies, most):
    """NaN-padded, each policy-query cell has status, rule, group and options of its own call."""
    padded = np.full((len(queries), 4, len(NAMES)), NAN)
    for row, (groups, _, _) in zip(padded, queries, strict=True):
        row[: len(groups)] = groups
    many = resolve(
        **dict(zip(NAMES, np.moveaxis(padded, -1, 0), strict=True)),
        thresholds=RuleThresholds(
            *np.array([_thresholds(bounds) for bounds, _ in policies]).T[..., None]
        ),
        n_entities=[n for _, n, _ in queries],
        overview=[overview for _, _, overview in queries],
        switches=RuleSwitches(*np.array([on for _, on in policies]).T[..., None]),
        max_options=most,
    )
    assert many.status.shape == (len(policies), len(queries))
    for p, (bounds, on) in enumerate(policies):
        for q, (groups, n_entities, overview) in enumerate(queries):
            alone = resolve(
                **dict(zip(NAMES, map(list, zip(*groups, strict=True)), strict=True)),
                thresholds=_thresholds(bounds),
                n_entities=n_entities,
                overview=overview,
                switches=RuleSwitches(*on),
                max_options=most,
            )
            cell = many.options[p, q]
            assert (many.status[p, q], many.rule[p, q], many.group[p, q]) == (
                alone.status,
                alone.rule,
                alone.group,
            )
            assert tuple(cell[cell >= 0].tolist()) == alone.options
            assert (
                (alone.status == ASKS)
                == (len(alone.options) >= 2)
                == (alone.group < 0 and alone.status != Status.refuse)
            )


def _groups_of(policy, hits, named):
    """Groups of a case's hits as hits, and as `resolve` takes them, measured in plain Python."""
    groups, k = plain.groups_of(policy, hits), policy.chosen.final_k
    sources = [frozenset(hit.file_page for hit in plain.distinct(group, k)) for group in groups]
    return groups, {
        "best_l2": [group[0].l2 for group in groups],
        "sig_sim": [group[0].sig_sim for group in groups],
        "anchor_sim": [group[0].anchor_sim for group in groups],
        "entity_hits": [
            len(set().union(*(hit.entities for hit in group)) & named) for group in groups
        ],
        "anchor_hits": [len(group[0].entities & named) for group in groups],
        "member_hits": [sum(bool(hit.entities & named) for hit in group) for group in groups],
        "sources": [sources.index(alone) for alone in sources],
        "n_entities": len(named),
    }


def test_the_chain_decides_through_a_trace_as_resolve_does_alone():
    """On coarse grids.

    Stage, status, the winner's hits and the options of every case that reaches the resolver.
    """
    met: set[str] = set()
    compared = 0
    for seed in (0, 1, 2, 3, 4, 5, 18):
        trace = random_trace(seed, n_cases=8, width=6)
        for policy in random_policies(
            seed, 6, gap__enabled=True, gap__min_gap=4.0, l2__enabled=False
        ):
            decisions = decide(
                trace, policy.replace("similarity.enabled", False, "confidence.enabled", False)
            )
            frame, limits = decisions.frame(), policy_thresholds([policy])
            for row, case in enumerate(trace.cases):
                if decisions.stage(row) not in {name for name, _ in OUTCOMES}:
                    continue
                hits = plain.hits_of(trace, policy, row, 0, 0)
                extracts = policy.resolver.entity_extractor
                named = set(plain.entities_of(policy, case.query)) if extracts else set()
                groups, measured = _groups_of(policy, hits, named)
                generic, facet = (
                    any(plain.matches(pattern, case.query) for pattern in patterns)
                    for patterns in (policy.patterns.generic, policy.patterns.facet)
                )
                resolution = resolve(
                    thresholds=RuleThresholds(*(float(bound[0, 0]) for bound in limits.rules)),
                    **measured,
                    overview=generic and not facet,
                    max_options=policy.resolver.max_options,
                    switches=RuleSwitches(*(bool(is_on[0, 0]) for is_on in limits.switches)),
                )
                assert (resolution.rule, resolution.status.name) == (
                    decisions.stage(row),
                    frame["status"][row],
                )
                offered = [option.chunks[0] for option in decisions.options(case.id)]
                assert [groups[group][0].number for group in resolution.options] == offered
                if resolution.status is OK and resolution.rule != "single_option":
                    chosen = plain.filled(policy, groups[resolution.group], hits, named)
                    assert [hit.place for hit in chosen] == list(decisions.places(row))
                met.add(resolution.rule)
                compared += 1
    assert met == {name for name, _ in OUTCOMES}
    assert compared > 80
