"""Entity graph (shore): named entities of the passages, personalised PageRank over them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
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
from raglab.values import Chunk
from raglab.words.text import STOP_WORDS

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

_CELL = re.compile(r"^[^\S\n]*\|([^|\n]*)\|", re.MULTILINE)
STATED_TAGS = ("product", "vendor")  # tags whose values are names
# share of the walk that goes on: half, which keeps it near its seeds (Gutiérrez et al. 2024)
DAMPING = 0.5
STEPS = 10  # to the entities and back; what is left out is below DAMPING ** 20, a millionth
COMMON = 0.5  # share of the chunks beyond which an entity does not say where to look
# weight of a name whose words only occur in the question, against one that is named
WORD_SHARE = 0.5
SEED_SHARE = 0.5  # share of the restart that goes to another search's hits, where they are given


def labels_in(text: str) -> list[str]:
    r"""First cells of the rows of Markdown tables: what a row is about, such as a role or a peril.

    Example:
      >>> labels_in("| Role | Name |\n|---|---|\n| Trustee | Cotswold |")
      ['Role', 'Trustee']
    """
    cells = (match.group(1).strip(" *_`") for match in _CELL.finditer(text))
    return [
        cell for cell in cells if any(char.isalpha() for char in cell) and not cell[0].isdigit()
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
    rarity: Values = field(repr=False)
    mentions: sparse.csr_array = field(repr=False)
    known: Lexicon = field(repr=False)
    by_word: Mapping[str, tuple[Ids, Values]] = field(repr=False)
    walk: _Walk = field(repr=False)

    def search(
        self,
        query: str,
        k: int,
        scope: NDArray[np.integer] | None = None,
        seeds: tuple[Values, NDArray[np.integer]] | None = None,
    ) -> tuple[Values, Ids]:
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
        within = np.arange(self.mentions.shape[1])
        walk, prior = self.walk, np.zeros(len(within))
        if scope is not None:
            within = np.unique(scope).astype(np.int64)
            walk = _walk(self.mentions[:, within])
        # an entity without a way out of it is none of the scope
        restart = np.where(np.diff(walk.back.indptr) > 0, self._restart(query), 0.0)
        if not restart.any():
            return np.full(k, np.nan), np.full(k, -1, np.int64)
        if seeds is not None:
            hits = seeds[1] >= 0
            prior[seeds[1][hits]] = seeds[0][hits]
        met = _walk_shares(walk, restart, prior[within])
        ranked = rank_by_score(np.where(met > 0.0, met, np.nan)[None], within[None], k)
        return ranked[0][0], ranked[1][0]

    def _restart(self, query: str) -> Values:
        """Weight of each entity in a query, [E]: its rarity where the query names it.

        A content word that is in no name which the query spells out gives its weight to the names
        that it is a word of, shared among them, and to each by the share that it is of the name.
        """
        weights = np.zeros(len(self.entities))
        words = plain_words(query)
        named = longest(spot_names(words, self.known))
        covered = {spot.at + ahead for spot in named for ahead in range(spot.length)}
        for word in dict.fromkeys(word for at, word in enumerate(words) if at not in covered):
            if word not in STOP_WORDS and beginning(word) in self.by_word:
                among, shares = self.by_word[beginning(word)]
                weights[among] += shares
        numbers = [spot.number for spot in named]
        weights[numbers] = self.rarity[numbers]
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
    names = _entity_names(chunks)
    known = lexicon(names)
    counted = [_mention_counts(chunk, known) for chunk in chunks]
    numbers = np.array([number for counts in counted for number in counts], np.int64)
    columns = np.repeat(np.arange(len(chunks)), [len(counts) for counts in counted])
    times = np.array([count for counts in counted for count in counts.values()], np.float64)
    # What no text names, or nearly every text, says nothing of where to look.
    n_naming = np.bincount(numbers, minlength=len(names))
    entity_numbers = np.flatnonzero((n_naming > 0) & (n_naming <= COMMON * len(chunks)))
    entities = tuple(names[number] for number in entity_numbers.tolist())
    # A mention weighs the logarithm of its count times the entity's rarity, as tf-idf has it.
    rarity = np.log((len(chunks) + 1.0) / n_naming[entity_numbers])
    heard = sparse.csr_array(
        (1.0 + np.log(times), (numbers, columns)), shape=(len(names), len(chunks))
    )[entity_numbers]
    mentions = sparse.csr_array(sparse.diags_array(rarity) @ heard)
    by_word = _entities_by_word(entities, rarity)
    return EntityGraph(entities, rarity, mentions, lexicon(entities), by_word, _walk(mentions))


def _walk(mentions: sparse.csr_array) -> _Walk:
    """Chances of a step, in proportion to the weights of the mentions."""
    totals = [np.asarray(mentions.sum(axis=axis), np.float64) for axis in (1, 0)]
    entities, chunks = (
        sparse.diags_array(np.divide(1.0, sums, out=np.zeros(sums.shape), where=sums > 0.0))
        for sums in totals
    )
    return _Walk(sparse.csr_array((entities @ mentions).T), sparse.csr_array(mentions @ chunks))


def _walk_shares(walk: _Walk, restart: Values, prior: Values) -> Values:
    """Share of its time that the walk spends at each chunk, [N].

    Personalised PageRank by power iteration.
    """
    share = SEED_SHARE if prior.any() else 0.0
    to_entities = (1.0 - DAMPING) * (1.0 - share) * restart / restart.sum()
    to_chunks = (1.0 - DAMPING) * share * prior / (prior.sum() or 1.0)
    chunks = to_chunks
    for _ in range(STEPS):
        chunks = to_chunks + DAMPING * (walk.out @ (to_entities + DAMPING * (walk.back @ chunks)))
    return chunks.astype(np.float32).astype(np.float64)


def _entity_names(chunks: Sequence[Chunk]) -> list[str]:
    """Every entity of the chunks, folded, as they first occur.

    Spelt with blanks or without, it is one.
    """
    names: dict[str, str] = {}
    for chunk, named in zip(chunks, names_in([chunk.full_text for chunk in chunks]), strict=True):
        for written in (
            *_metadata_entities(chunk),
            *named,
            *codes_in(chunk.full_text),
            *labels_in(chunk.full_text),
        ):
            words = _strip_function_words(plain_words(written))
            if len(words) <= LONGEST_NAME_WORDS and sum(map(len, words)) > 1:
                names.setdefault("".join(words), " ".join(words))
    return list(names.values())


def _metadata_entities(chunk: Chunk) -> list[str]:
    return [*chunk.entities, *(chunk.tags[key] for key in STATED_TAGS if chunk.tags.get(key))]


def _strip_function_words(words: Sequence[str]) -> list[str]:
    """Words without function words at either end."""
    content = [at for at, word in enumerate(words) if word not in STOP_WORDS]
    return list(words[content[0] : content[-1] + 1]) if content else []


def _mention_counts(chunk: Chunk, known: Lexicon) -> dict[int, int]:
    """How often a chunk names each entity.

    One that its metadata alone states counts as named once.
    """
    counts = Counter(spot.number for spot in spot_names(plain_words(chunk.full_text), known))
    for name in _metadata_entities(chunk):
        number = known.places.get("".join(_strip_function_words(plain_words(name))))
        if number is not None:
            counts.setdefault(number, 1)
    return counts


def _entities_by_word(entities: Sequence[str], rarity: Values) -> dict[str, tuple[Ids, Values]]:
    words = [[word for word in name.split() if word not in STOP_WORDS] for name in entities]
    sizes = np.array([len(some) for some in words], np.int64)
    numbers: dict[str, list[int]] = {}
    for number, some in enumerate(words):
        for word in dict.fromkeys(map(beginning, some)):
            numbers.setdefault(word, []).append(number)
    among = {word: np.array(some, np.int64) for word, some in numbers.items()}
    return {
        word: (some, WORD_SHARE * rarity[some] / (len(some) * sizes[some]))
        for word, some in among.items()
    }
