"""Entity graph (shore): named entities of the passages, personalised PageRank over them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import sparse

from raglab.retrieval.entity_names import (
    LONGEST_NAME_WORDS,
    Lexicon,
    beginning,
    codes_in,
    lexicon,
    longest,
    names_in,
    plain_words,
    spot_names,
)
from raglab.retrieval.rank_fusion import rank_by_score
from raglab.values import Chunk, FloatArray, IntArray, WholeArray
from raglab.words.text import STOP_WORDS

_FIRST_CELL = re.compile(r"^[^\S\n]*\|([^|\n]*)\|", re.MULTILINE)
NAME_TAGS = ("product", "vendor")  # tags whose values are names
# share of the walk that goes on: half, which keeps it near its seeds (Gutiérrez et al. 2024)
DAMPING = 0.5
WALK_STEPS = 10  # to the entities and back; what is left out is below DAMPING ** 20, a millionth
MAX_NAMING_SHARE = 0.5  # share of the chunks beyond which an entity does not say where to look
# weight of a name whose words only occur in the question, against one that is named
WORD_SHARE = 0.5
SEED_SHARE = 0.5  # share of the restart that goes to another search's hits, where they are given


def labels_in(text: str) -> list[str]:
    r"""First cells of the rows of Markdown tables: what a row is about, such as a role or a peril.

    Example:
      >>> labels_in("| Role | Name |\n|---|---|\n| Trustee | Cotswold |")
      ['Role', 'Trustee']
    """
    first_cells = (cell_match.group(1).strip(" *_`") for cell_match in _FIRST_CELL.finditer(text))
    return [
        first_cell
        for first_cell in first_cells
        if any(character.isalpha() for character in first_cell) and not first_cell[0].isdigit()
    ]


class _Walk(NamedTuple):
    """Chances of a step, sparse: from entity to chunk, [N, E], and back, [E, N]."""

    out: sparse.csr_array
    back: sparse.csr_array


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """Entities on one side, the N chunks that name them on the other.

    entities: E names, folded. rarity: of each, the logarithm of N + 1 over the chunks that name it.
    mentions: weight of each entity in each chunk, sparse [E, N]. known: the names, to be found in
    texts. by_word: by the beginning of a content word, the entities that it is a word of, and what
    it adds to the weight of each where a question names none of them.
    """

    entities: tuple[str, ...] = field(repr=False)
    rarity: FloatArray = field(repr=False)
    mentions: sparse.csr_array = field(repr=False)
    known: Lexicon = field(repr=False)
    by_word: Mapping[str, tuple[IntArray, FloatArray]] = field(repr=False)
    walk: _Walk = field(repr=False)

    def search(
        self,
        query: str,
        k: int,
        scope: WholeArray | None = None,
        seeds: tuple[FloatArray, WholeArray] | None = None,
    ) -> tuple[FloatArray, IntArray]:
        """Return the k chunks that a walk from a query's entities meets most, (scores, ids), [k].

        By (score, id); NaN and -1 where the walk meets fewer. A score is the share of its time that
        the walk spends at the chunk, rounded to float32. A query that names no entity of the graph
        has no hits. A scope cuts the graph: the walk stays inside it, since what the user left out
        must not carry weight either; rarity stays the corpus's.

        Args:
          query: any text.
          k: hits.
          scope: positions that it may find; None is all of them.
          seeds: what another search found, (scores, ids), higher is better and none below 0; these
            chunks share the restart with the query's entities.

        Source: Haveliwala 2002, WWW; over entities and passages: Gutiérrez et al. 2024, NeurIPS,
          and 2025, ICML.
        """
        allowed_chunks = np.arange(self.mentions.shape[1])
        walk = self.walk
        seed_scores = np.zeros(len(allowed_chunks))
        if scope is not None:
            allowed_chunks = np.unique(scope).astype(np.int64)
            walk = _walk(self.mentions[:, allowed_chunks])
        # an entity without a way out of it is none of the scope
        restart = np.where(np.diff(walk.back.indptr) > 0, self._restart(query), 0.0)
        if not restart.any():
            return np.full(k, np.nan), np.full(k, -1, np.int64)
        if seeds is not None:
            is_hit = seeds[1] >= 0
            seed_scores[seeds[1][is_hit]] = seeds[0][is_hit]
        visit_shares = _walk_shares(walk, restart, seed_scores[allowed_chunks])
        ranked_chunks = rank_by_score(
            np.where(visit_shares > 0.0, visit_shares, np.nan)[None], allowed_chunks[None], k
        )
        return ranked_chunks[0][0], ranked_chunks[1][0]

    def _restart(self, query: str) -> FloatArray:
        """Weight of each entity in a query, [E]: its rarity where the query names it.

        A content word that is in no name which the query spells out gives its weight to the names
        that it is a word of, shared among them, and to each by the share that it is of the name.
        """
        weights = np.zeros(len(self.entities))
        query_words = plain_words(query)
        named_spots = longest(spot_names(query_words, self.known))
        covered_positions = {
            name_spot.at + ahead for name_spot in named_spots for ahead in range(name_spot.length)
        }
        for query_word in dict.fromkeys(
            query_word
            for word_position, query_word in enumerate(query_words)
            if word_position not in covered_positions
        ):
            if query_word not in STOP_WORDS and beginning(query_word) in self.by_word:
                word_entities, entity_shares = self.by_word[beginning(query_word)]
                weights[word_entities] += entity_shares
        named_entities = [name_spot.number for name_spot in named_spots]
        weights[named_entities] = self.rarity[named_entities]
        return weights


def entity_graph(chunks: Sequence[Chunk]) -> EntityGraph:
    """Graph of the entities that chunks state or name.

    Entities are what metadata states (`entities`, the tags product and vendor), names, identifiers,
    and the first cells of tables' rows, such as roles. A chunk names each of them that its text
    holds, in capitals or not. One that more than half of the chunks name is dropped.

    Args:
      chunks: N chunks in corpus order.

    Example:
      >>> texts = [
      ...     "Here Lee owes Crédit des Alpes.",
      ...     "Crédit des Alpes has 9 branches.",
      ...     "Hail is covered.",
      ...     "Rain is covered.",
      ... ]
      >>> graph = entity_graph([Chunk(text, text, "a.md") for text in texts])
      >>> graph.search("what does Lee owe?", k=3)[1]
      array([ 0,  1, -1])
    """
    # First what is named anywhere, then how often each chunk names it: a name found once is known
    # everywhere.
    folded_names = _entity_names(chunks)
    name_lexicon = lexicon(folded_names)
    mention_counts = [_mention_counts(chunk, name_lexicon) for chunk in chunks]
    mention_entities = np.array(
        [entity_number for chunk_counts in mention_counts for entity_number in chunk_counts],
        np.int64,
    )
    mention_chunks = np.repeat(
        np.arange(len(chunks)), [len(chunk_counts) for chunk_counts in mention_counts]
    )
    mention_times = np.array(
        [
            mention_count
            for chunk_counts in mention_counts
            for mention_count in chunk_counts.values()
        ],
        np.float64,
    )
    # What no text names, or nearly every text, says nothing of where to look.
    n_naming = np.bincount(mention_entities, minlength=len(folded_names))
    entity_numbers = np.flatnonzero((n_naming > 0) & (n_naming <= MAX_NAMING_SHARE * len(chunks)))
    entities = tuple(folded_names[entity_number] for entity_number in entity_numbers.tolist())
    # A mention weighs the logarithm of its count times the entity's rarity, as tf-idf has it.
    rarity = np.log((len(chunks) + 1.0) / n_naming[entity_numbers])
    term_frequencies = sparse.csr_array(
        (1.0 + np.log(mention_times), (mention_entities, mention_chunks)),
        shape=(len(folded_names), len(chunks)),
    )[entity_numbers]
    mentions = sparse.csr_array(sparse.diags_array(rarity) @ term_frequencies)
    by_word = _entities_by_word(entities, rarity)
    return EntityGraph(entities, rarity, mentions, lexicon(entities), by_word, _walk(mentions))


def _walk(mentions: sparse.csr_array) -> _Walk:
    """Chances of a step, in proportion to the weights of the mentions."""
    weight_totals = [np.asarray(mentions.sum(axis=axis), np.float64) for axis in (1, 0)]
    entity_scales, chunk_scales = (
        sparse.diags_array(
            np.divide(1.0, axis_totals, out=np.zeros(axis_totals.shape), where=axis_totals > 0.0)
        )
        for axis_totals in weight_totals
    )
    return _Walk(
        sparse.csr_array((entity_scales @ mentions).T), sparse.csr_array(mentions @ chunk_scales)
    )


def _walk_shares(walk: _Walk, restart: FloatArray, prior: FloatArray) -> FloatArray:
    """Share of its time that the walk spends at each chunk, [N].

    Personalised PageRank by power iteration.
    """
    seed_share = SEED_SHARE if prior.any() else 0.0
    to_entities = (1.0 - DAMPING) * (1.0 - seed_share) * restart / restart.sum()
    to_chunks = (1.0 - DAMPING) * seed_share * prior / (prior.sum() or 1.0)
    chunk_shares = to_chunks
    for _ in range(WALK_STEPS):
        chunk_shares = to_chunks + DAMPING * (
            walk.out @ (to_entities + DAMPING * (walk.back @ chunk_shares))
        )
    return chunk_shares.astype(np.float32).astype(np.float64)


def _entity_names(chunks: Sequence[Chunk]) -> list[str]:
    """Every entity of the chunks, folded, as they first occur.

    Spelt with blanks or without, it is one.
    """
    names_by_spelling: dict[str, str] = {}
    for chunk, chunk_names in zip(
        chunks, names_in([chunk.full_text for chunk in chunks]), strict=True
    ):
        for written_name in (
            *_metadata_entities(chunk),
            *chunk_names,
            *codes_in(chunk.full_text),
            *labels_in(chunk.full_text),
        ):
            name_words = _strip_function_words(plain_words(written_name))
            if len(name_words) <= LONGEST_NAME_WORDS and sum(map(len, name_words)) > 1:
                names_by_spelling.setdefault("".join(name_words), " ".join(name_words))
    return list(names_by_spelling.values())


def _metadata_entities(chunk: Chunk) -> list[str]:
    return [
        *chunk.entities,
        *(chunk.tags[name] for name in NAME_TAGS if chunk.tags.get(name)),
    ]


def _strip_function_words(words: Sequence[str]) -> list[str]:
    """Words without function words at either end."""
    content_positions = [
        word_position for word_position, word in enumerate(words) if word not in STOP_WORDS
    ]
    return (
        list(words[content_positions[0] : content_positions[-1] + 1]) if content_positions else []
    )


def _mention_counts(chunk: Chunk, known: Lexicon) -> dict[int, int]:
    """How often a chunk names each entity.

    One that its metadata alone states counts as named once.
    """
    counts_by_entity = Counter(
        spot.number for spot in spot_names(plain_words(chunk.full_text), known)
    )
    for metadata_name in _metadata_entities(chunk):
        entity_number = known.places.get("".join(_strip_function_words(plain_words(metadata_name))))
        if entity_number is not None:
            counts_by_entity.setdefault(entity_number, 1)
    return counts_by_entity


def _entities_by_word(
    entities: Sequence[str], rarity: FloatArray
) -> dict[str, tuple[IntArray, FloatArray]]:
    words_by_entity = [
        [word for word in name.split() if word not in STOP_WORDS] for name in entities
    ]
    name_lengths = np.array([len(entity_words) for entity_words in words_by_entity], np.int64)
    entities_of_word: dict[str, list[int]] = {}
    for entity_number, entity_words in enumerate(words_by_entity):
        for word in dict.fromkeys(map(beginning, entity_words)):
            entities_of_word.setdefault(word, []).append(entity_number)
    entity_arrays = {
        word: np.array(entity_words, np.int64) for word, entity_words in entities_of_word.items()
    }
    return {
        word: (
            entity_words,
            WORD_SHARE * rarity[entity_words] / (len(entity_words) * name_lengths[entity_words]),
        )
        for word, entity_words in entity_arrays.items()
    }
