"""Signatures, groups, rules, entity fill and options (raglab.resolver)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.resolver import (
    EntityCounts,
    RuleThresholds,
    anchor_values,
    contest,
    decides,
    fill_entities,
    group_hits,
    options,
    rank_entities,
    resolve_entities,
    rule_margins,
    select,
    signature,
    union_over,
)

NAN = np.nan
LAWFUL = settings(deadline=None, derandomize=True, max_examples=120)


def _groups(sign):
    return group_hits(np.array([sign]))


def test_a_signature_is_stripped_and_lower_cased():
    """Blank is missing; vendor and version count only in the strict one."""
    tags = {
        "domain": " Motor ",
        "doc_type": "  ",
        "product": "FLEET",
        "vendor": "Acme",
        "version": "2",
    }
    assert [value for _, value in signature(tags, "a.md", strict=False)] == ["motor", "", "fleet"]
    assert [value for _, value in signature(tags, "a.md", strict=True)] == [
        "motor",
        "",
        "fleet",
        "acme",
        "2",
    ]


def _entities(sign, mask, l2):
    groups = _groups(sign)
    best_l2 = anchor_values(np.array([l2]), groups, np.inf)
    return resolve_entities(np.array([mask], dtype=np.uint64), groups, best_l2)


def test_a_group_without_a_distance_wins_by_its_entities():
    """The one group with the entity wins whether or not its distance is known.

    In a tie it is the farthest.
    """
    assert _entities([5, 6], [0, 1], [0.1, NAN]).winner.tolist() == [1]
    assert _entities([5, 6], [1, 1], [0.1, NAN]).winner.tolist() == [0]


def test_all_groups_are_listed_where_the_first_wins():
    """By distance: the winner's own entities take no group off the list."""
    counts = EntityCounts(*(np.array([row]) for row in ([2, 1, 0], [1, 1, 1], [1, 1, 1])))
    ranked = rank_entities(counts, np.array([[0.3, 0.1, 0.2]]))
    assert (ranked.winner.tolist(), ranked.order.tolist()) == ([0], [[1, 2, 0]])
    assert ranked.candidates.all()


def _contest(l2, sig, anchor):
    everyone = np.ones((1, len(l2)), dtype=bool)
    return contest(everyone, *(np.array([values]) for values in (l2, sig, anchor)))


@pytest.mark.parametrize(
    ("measured", "winners", "leads", "best"),
    [
        (
            ([0.25, 0.5, 0.75], [0.5, 0.75, 0.0], [0.0, 0.25, 0.75]),
            [0, 1, 2],
            [0.25, 0.25, 0.5],
            [0.75, 0.75],
        ),
        (([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]), [0, 0, 0], [0.0, 0.0, 0.0], [0.5, 0.5]),
    ],
)
def test_the_two_best_by_each_measure(
    measured,
    winners,
    leads,
    best,
):
    """By distance, signature and anchor; ties go to the earlier group and lead by nothing."""
    of = _contest(*measured)
    assert [int(x[0]) for x in (of.first, of.by_signature, of.by_anchor)] == winners
    assert [float(x[0]) for x in (of.group_gap, of.gap_signature, of.gap_anchor)] == leads
    assert [float(x[0]) for x in (of.best_signature, of.best_anchor)] == best


def test_a_missing_similarity_wins_nothing_and_leaves_the_lead_unknown():
    """With one cosine of two there is a best, but no lead; with none there is neither."""
    best = _contest([0.25, 0.5], [NAN, 0.5], [NAN, NAN])
    assert (best.by_signature.tolist(), best.by_anchor.tolist()) == ([1], [-1])
    margins = rule_margins(best, RuleThresholds(0.0, 0.0, -np.inf, -np.inf, -np.inf))
    assert not decides(margins.signature_similarity)[0]
    assert not decides(margins.anchor_similarity)[0]


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [
        (RuleThresholds(0.25, 0.75, 0.25, 0.5, 0.25), [True, True, False]),
        (RuleThresholds(0.5, 1.0, 0.25, 0.5, -np.inf), [False, False, True]),
        (RuleThresholds(NAN, NAN, NAN, -np.inf, 0.0), [False, False, True]),
        (RuleThresholds(NAN, -np.inf, 0.5, NAN, -np.inf), [False, False, False]),
    ],
)
def test_rules_at_their_thresholds(thresholds, expected):
    """Both comparisons of a rule must hold; NaN switches a rule off, -inf a comparison."""
    seen = _contest([0.25, 0.5], [0.5, 0.75], [0.5, 0.5])
    assert [bool(decides(margin)[0]) for margin in rule_margins(seen, thresholds)] == expected


def _options(members, files, pages, k):
    keys = {key: number for number, key in enumerate(sorted(set(zip(files, pages, strict=True))))}
    page_key = [keys[key] for key in zip(files, pages, strict=True)]
    found = options(
        members, [ord(f) for f in files], page_key, pages, [0.1 * n for n in range(len(files))], k
    )
    return [(option.option_id, option.places, option.sources) for option in found]


def test_options_with_the_same_sources_are_one():
    """Groups 0 and 1 both stand for page a1; ids run on without a hole."""
    assert [(n, places) for n, places, _ in _options([[0], [1], [2]], "aab", [1, 1, 1], 2)] == [
        (1, (0,)),
        (2, (2,)),
    ]


def test_a_selection_is_an_option_or_an_error():
    """Ids run from 1; any other gets the words of the refusal."""
    found = options([[0], [1]], [0, 1], [0, 1], [1, 1], [0.1, 0.2], 1)
    assert select(found, 2).places == (1,)
    for wrong in (0, 3, -1):
        with pytest.raises(KeyError, match=f"Invalid selection: {wrong}"):
            select(found, wrong)


HITS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 7), st.sampled_from([0.25, 0.5, 0.5])),
    min_size=1,
    max_size=6,
)


@LAWFUL
@given(hits=HITS)
def test_the_entity_rule_is_the_ranking_of_the_rules(hits):
    """Against a plain sort by anchor entities, members with any and best l2, ties everywhere."""
    hits = sorted(hits, key=lambda hit: hit[2])
    said = _entities(*(list(column) for column in zip(*hits, strict=True)))
    groups: dict[int, list[tuple[int, int, float]]] = {}
    for hit in hits:
        groups.setdefault(hit[0], []).append(hit)
    rows = []
    for number, members in enumerate(groups.values()):
        union = 0
        for member in members:
            union |= member[1]
        rows.append(
            (
                union.bit_count(),
                -members[0][1].bit_count(),
                -sum(m[1] > 0 for m in members),
                members[0][2],
                number,
            )
        )
    best = max(row[0] for row in rows)
    ranked = sorted(row[1:] for row in rows if row[0] == best)
    assert int(said.best[0]) == best
    if best == 0:
        assert int(said.winner[0]) == -1
    elif len(ranked) == 1 or ranked[0][:3] != ranked[1][:3]:
        assert int(said.winner[0]) == ranked[0][3]
    else:
        assert int(said.winner[0]) == -1
        going = sorted(ranked, key=lambda row: row[2])
        assert [n for n in said.order[0].tolist() if said.candidates[0, n]] == [
            row[3] for row in going
        ]


@LAWFUL
@given(hits=HITS, k=st.integers(1, 4), wanted=st.integers(0, 7), data=st.data())
def test_fill_never_adds_what_is_not_missing(hits, k, wanted, data):
    """The filled hits are distinct and keep the first one.

    With a place free they cover no less of what is wanted.
    """
    mask = np.array([[hit[1] for hit in hits]], dtype=np.uint64)
    pages = np.array(
        [data.draw(st.lists(st.integers(0, 3), min_size=len(hits), max_size=len(hits)))]
    )
    n = data.draw(st.integers(1, min(k, len(hits))))
    chosen = np.array([[*range(n), *[-1] * (k - n)]])
    want = np.array([wanted], dtype=np.uint64)
    filled = fill_entities(chosen, mask, want, pages)
    taken = [place for place in filled[0].tolist() if place >= 0]
    assert len(taken) == len(set(taken)) <= k
    assert taken[0] == 0
    covered, before = (int((union_over(mask, c) & want)[0]) for c in (filled, chosen))
    if n < k:
        assert covered | before == covered
    if before == wanted:
        assert filled.tolist() == chosen.tolist()


@LAWFUL
@given(
    hits=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), min_size=1, max_size=6),
    k=st.integers(1, 4),
)
def test_an_option_never_shows_a_page_twice(hits, k):
    """Distinct (file, page) as many as there are, up to final_k, and the anchor first."""
    files, pages = "".join(file for file, _ in hits), [page for _, page in hits]
    [(_, places, sources)] = _options([list(range(len(hits)))], files, pages, k)
    shown = [hits[place] for place in places]
    assert places[0] == 0
    assert len(shown) == len(set(shown)) == min(k, len(set(hits))) == len(sources)
