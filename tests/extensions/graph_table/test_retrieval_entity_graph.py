"""The graph of entities: worked examples first, then what holds for every walk."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from effort import lines_run
from raglab.extensions.graph_table.entity_graph import (
    SEED_SHARE,
    entity_graph,
    labels_in,
)
from raglab.store.loaders import load_corpus
from raglab.values import Chunk
from trades import BROKER

PARTIES = """Schedule of Ann Lee

| Role | Name |
|---|---|
| Policyholder | Ann Lee |
| Loss payee | Cotswold Building Society |
"""
TEXTS = (
    PARTIES,
    "Ann Lee bears a storm excess of £400.",
    "The loss payee is paid first, up to its debt.",
    "Bob Orr bears a storm excess of £250 under policy NM-FG-4417.",
    "Lenders are told of a cancellation 14 days ahead.",
)


@pytest.fixture(scope="module")
def graph():
    """Five passages of two clients."""
    return entity_graph([_chunk(i, text) for i, text in enumerate(TEXTS)])


@pytest.fixture(scope="module")
def broker():
    """The bundled corpus and its graph."""
    chunks = list(load_corpus(BROKER).chunks)
    return chunks, entity_graph(chunks)


def _chunk(number, text, **fields):
    return Chunk(str(number), text, f"{number}.md", **fields)  # type: ignore[arg-type]


def seeds(graph, query):
    """Weights of the entities that a query names or touches, in the order of the graph."""
    weights = graph._restart(query)
    return {graph.entities[place]: weights[place] for place in np.flatnonzero(weights)}


class TestGraph:
    """What is in it."""

    def test_labels_are_first_cells_that_hold_words(self):
        """Amounts, numbers and rules of a table are none."""
        assert labels_in(PARTIES) == ["Role", "Policyholder", "Loss payee"]
        assert labels_in("| 1 | cello |\n| £250 | storm |\n|---|---|\n| **Storm** | £400 |") == [
            "Storm"
        ]

    def test_entities_are_names_codes_labels_and_what_metadata_states(self):
        """All of them folded."""
        stated = _chunk(
            0,
            "Storms are insured.",
            entities=("Ann Lee",),
            tags={"product": "Premier Home", "version": "25"},
        )
        others = [_chunk(1, PARTIES), _chunk(2, "See NM-FG-4417."), _chunk(3, "No hail.")]
        entities = entity_graph([stated, *others]).entities
        assert {
            "ann lee",
            "premier home",
            "nm fg 4417",
            "loss payee",
            "cotswold building society",
        } <= set(entities)
        assert "25" not in entities

    def test_rarity_by_head(self, graph):
        """`ann lee` is in two of five passages: log(6 / 2); `nm fg 4417` in one: log 6."""
        rarity = dict(zip(graph.entities, graph.rarity, strict=True))
        assert rarity["ann lee"] == pytest.approx(np.log(3))
        assert rarity["nm fg 4417"] == pytest.approx(np.log(6))

    def test_a_role_is_found_in_running_text(self, graph):
        """`Loss payee` is known from the table's column 1, met in passage 3 in small letters."""
        mentions = graph.mentions[[graph.entities.index("loss payee")]].toarray()[0]
        assert np.flatnonzero(mentions).tolist() == [0, 2]

    def test_common_entities_are_dropped(self):
        """What more than half of the chunks name does not say where to look."""
        names = ("Oak", "Elm", "Ash")
        chunks = [
            _chunk(i, f"We at Acme Mutual insure {name} Ltd.") for i, name in enumerate(names)
        ]
        assert set(entity_graph(chunks).entities) == {"oak ltd", "elm ltd", "ash ltd"}
        rare = [_chunk(i, "hail") for i in range(3, 6)]
        assert "acme mutual" in entity_graph([*chunks, *rare]).entities

    def test_an_empty_corpus_finds_nothing(self):
        """Nor does one without names."""
        for chunks in ([], [_chunk(0, "hail and rain")]):
            scores, ids = entity_graph(chunks).search("Ann Lee", 2)
            assert ids.tolist() == [-1, -1]
            assert np.isnan(scores).all()


class TestWalk:
    """Search by personalised PageRank."""

    def test_by_head(self):
        """One entity in two of four chunks and nothing else.

        At every visit of its entity the walk goes to either chunk with chance a half, from there
        back to the entity. With damping 1/2 it begins at the entity half the time, so the entity
        has 2/3 of the time, the chunks 1/6 each.
        """
        chunks = [
            _chunk(i, text) for i, text in enumerate(("we met Ann.", "Ann left.", "hail", "rain"))
        ]
        scores, ids = entity_graph(chunks).search("where is Ann?", 4)
        assert ids.tolist() == [0, 1, -1, -1]
        assert scores[:2] == pytest.approx([1 / 6, 1 / 6], abs=1e-6)

    def test_the_second_hop(self, graph):
        """The excess of the society's borrower is in a passage that names the borrower alone."""
        ids = graph.search("storm excess of the client who owes Cotswold Building Society", 3)[
            1
        ].tolist()
        assert ids == [0, 1, 2]

    def test_a_relation(self, graph):
        """The passage naming both role and client comes first, those with one of them after it."""
        ids = graph.search("Who is the loss payee of Ann Lee?", 5)[1].tolist()
        assert ids[0] == 0
        assert set(ids[1:]) == {1, 2, -1}

    def test_explains_its_seeds(self, graph):
        """What is named has its rarity.

        A word of a name gives half of it, by the share that it is of the name.
        """
        named, touched = np.log(3.0), 0.5 * np.log(6.0) / 2
        assert seeds(graph, "who is the loss payee of Bob?") == pytest.approx(
            {"loss payee": named, "bob orr": touched}
        )
        assert [*seeds(graph, "NM-FG-4417?")] == ["nm fg 4417"]

    def test_without_an_entity_there_are_no_hits(self, graph):
        """Seeds of another search or not."""
        others = np.array([1.0]), np.array([2])
        for query in ("how do I bake bread", "", "???"):
            assert seeds(graph, query) == {}
            for result in (graph.search(query, 3), graph.search(query, 3, seeds=others)):
                assert (result[1] == -1).all()
                assert np.isnan(result[0]).all()

    def test_the_walk_stays_inside_the_scope(self, graph):
        """Only named chunks are found, and what lies outside of them carries no weight."""
        query = "storm excess of the client who owes Cotswold Building Society"
        for question, scope, ids in (
            (query, [1, 3], [-1, -1, -1]),
            ("Ann Lee", [1, 4, 1], [1, -1, -1]),
            ("Ann Lee", [], [-1, -1, -1]),
        ):
            assert graph.search(question, 3, np.array(scope, np.int64))[1].tolist() == ids
        whole = graph.search(query, 3, np.arange(5))
        for ours, theirs in zip(graph.search(query, 3), whole, strict=True):
            assert np.array_equal(ours, theirs, equal_nan=True)

    def test_seeds_share_the_restart(self, graph):
        """Two hits of another search have half of the restart, in proportion to their scores.

        The walk never leaves the last passage, which names nothing: of its time 1/2 are restarts,
        of them 1/2 go to hits, of those 3/4 to this one.
        """
        seeds = np.array([3.0, 1.0, np.nan]), np.array([4, 2, -1])
        scores, ids = graph.search("Ann Lee", 5, seeds=seeds)
        assert SEED_SHARE == 0.5
        assert set(ids.tolist()) == {0, 1, 2, 4, -1}
        assert scores[ids == 4] == pytest.approx(0.5 * 0.5 * 0.75)

    def test_seeds_outside_of_the_scope_do_not_count(self, graph):
        """With no seed inside, the entities have the whole restart."""
        scope = np.array([0, 1])
        seeded = graph.search("Ann Lee", 2, scope, (np.array([1.0]), np.array([4])))
        for ours, theirs in zip(graph.search("Ann Lee", 2, scope), seeded, strict=True):
            assert np.array_equal(ours, theirs)

    def test_scores_are_shares_of_time(self, broker):
        """They descend, ties by position, and sum to less than 1."""
        for query in (
            "Who is the loss payee of Brightwater?",
            "Quelle franchise chez Roussel ?",
        ):
            scores, ids = broker[1].search(query, 420)
            is_hit = ids >= 0
            assert 0.0 < scores[is_hit].sum() < 1.0
            steps = np.diff(scores[is_hit])
            assert ((steps < 0) | ((steps == 0) & (np.diff(ids[is_hit]) > 0))).all()

    def test_the_same_in_every_process(self, broker):
        """Bytes equal, whatever the hash seed; a pickled graph is the same graph."""
        query = "Which insurer covers both Brightwater and Tom Aldridge?"
        code = (
            "import sys; from raglab.store.loaders import load_corpus; "
            "from raglab.extensions.graph_table.entity_graph import entity_graph; "
            "graph = entity_graph(load_corpus(sys.argv[1]).chunks); "
            "print([one.tobytes().hex() for one in graph.search(sys.argv[2], 20)])"
        )
        ours = [
            column.tobytes().hex()
            for column in pickle.loads(pickle.dumps(broker[1])).search(query, 20)
        ]
        out = subprocess.run(
            [sys.executable, "-c", code, str(BROKER), query],
            env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(BROKER.parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.strip() == str(ours)

    def test_a_query_takes_little_work(self, broker):
        """Some thousand lines of Python at 420 chunks."""
        broker[1].search("Who is the loss payee of Brightwater?", 50)
        assert (
            lines_run(lambda: broker[1].search("Who is the loss payee of Brightwater?", 50)) < 2_000
        )
