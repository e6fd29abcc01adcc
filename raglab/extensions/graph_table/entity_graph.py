"""Entity graph (shore): named entities of the passages, personalised PageRank over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from raglab.retrieval.entity_names import (
    LONGEST,
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
from raglab.values import Chunk, refuse
from raglab.words.text import STOP_WORDS

Ids = NDArray[np.int64]
Values = NDArray[np.float64]
Allowed = Sequence[NDArray[np.integer] | None]

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
    """Chances of a step, sparse: from entity to chunk, [N, E], and back, [E, N].

    Which entities have a way out, [E].
    """

    out: sparse.csr_array
    back: sparse.csr_array
    open: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EntityGraph:
    """Entities on one side, the N chunks that name them on the other.

    entities: E names, folded. rarity: of each, the logarithm of N + 1 over the chunks that name it.
    n_words: content words of each. mentions: weight of each entity in each chunk, sparse [E, N].
    known: the names, to be found in texts. by_word: entities by the beginnings of their content
    words. damping: share of the walk that goes on, in [0, 1).
    """

    entities: tuple[str, ...] = field(repr=False)
    rarity: Values = field(repr=False)
    n_words: Ids = field(repr=False)
    mentions: sparse.csr_array = field(repr=False)
    known: Lexicon = field(repr=False)
    by_word: Mapping[str, Ids] = field(repr=False)
    walk: _Walk = field(repr=False)
    damping: float = DAMPING

    def search(
        self,
        queries: Sequence[str],
        k: int,
        allowed: Allowed | None = None,
        seeds: tuple[Values, NDArray[np.integer]] | None = None,
    ) -> tuple[Values, Ids]:
        """Return the k chunks a walk from each query's entities meets most, (scores, ids), [Q, k].

        By (score, id); NaN and -1 where the walk meets fewer. A score is the share of its time that
        the walk spends at the chunk, rounded to float32. A query that names no entity of the graph
        has no hits. A scope cuts the graph: the walk stays inside it, since what the user left out
        must not carry weight either; rarity stays the corpus's.

        Args:
          queries: Q texts.
          k: hits a query.
          allowed: for each query the positions it may find; None is all of them.
          seeds: what another search found, (scores, ids), each [Q, any], higher is better and none
            below 0; these chunks share the restart with the query's entities.

        Source: Haveliwala 2002, WWW; over entities and passages: Gutiérrez et al. 2024, NeurIPS,
          and 2025, ICML.
        """
        scores, ids = np.full((len(queries), k), np.nan), np.full((len(queries), k), -1, np.int64)
        scopes = [None] * len(queries) if allowed is None else allowed
        n = self.mentions.shape[1]
        for i, (query, scope) in enumerate(zip(queries, scopes, strict=True)):
            within = np.arange(n) if scope is None else np.unique(scope).astype(np.int64)
            walk = self.walk if scope is None else _walk(self.mentions[:, within])
            restart = np.where(walk.open, self._restart(query), 0.0)
            if restart.any():
                prior = np.zeros(n) if seeds is None else _chunk_scores(seeds[0][i], seeds[1][i], n)
                met = _walk_shares(walk, restart, prior[within], self.damping)
                ranking = rank_by_score(np.where(met > 0.0, met, np.nan)[None], within[None], k)
                scores[i], ids[i] = ranking[0][0], ranking[1][0]
        return scores, ids

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
            among = self.by_word.get(beginning(word))
            if among is not None and word not in STOP_WORDS:
                weights[among] += (
                    WORD_SHARE * self.rarity[among] / (len(among) * self.n_words[among])
                )
        numbers = [spot.number for spot in named]
        weights[numbers] = self.rarity[numbers]
        return weights


def entity_graph(
    chunks: Sequence[Chunk], *, damping: float = DAMPING, common: float = COMMON
) -> EntityGraph:
    """Graph of the entities that chunks state or name.

    Entities are what metadata states (`entities`, the tags product and vendor), names, identifiers,
    and the first cells of tables' rows, such as roles. A chunk names each of them that its text
    holds, in capitals or not.

    Args:
      chunks: N chunks in corpus order.
      damping: share of the walk that goes on, in [0, 1).
      common: entities of more than this share of the chunks are dropped, in (0, 1].

    Raises:
      ValueError: damping or common is out of range.

    Example:
      >>> texts = [
      ...     "Here Lee owes Crédit des Alpes.",
      ...     "Crédit des Alpes has 9 branches.",
      ...     "Hail is covered.",
      ... ]
      >>> graph = entity_graph([Chunk(text, text, "a.md") for text in texts], common=1.0)
      >>> graph.search(["what does Lee owe?"], k=3)[1]
      array([[ 0,  1, -1]])
    """
    if not (0.0 <= damping < 1.0 and 0.0 < common <= 1.0):
        refuse(
            "damping in [0, 1) and common in (0, 1] must hold",
            f"{damping} and {common}",
            "both are shares",
        )
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
    entity_numbers = np.flatnonzero((n_naming > 0) & (n_naming <= common * len(chunks)))
    entities = tuple(names[number] for number in entity_numbers.tolist())
    # A mention weighs the logarithm of its count times the entity's rarity, as tf-idf has it.
    rarity = np.log((len(chunks) + 1.0) / n_naming[entity_numbers])
    heard = sparse.csr_array(
        (1.0 + np.log(times), (numbers, columns)), shape=(len(names), len(chunks))
    )[entity_numbers]
    mentions = sparse.csr_array(sparse.diags_array(rarity) @ heard)
    return EntityGraph(
        entities=entities,
        rarity=rarity,
        n_words=np.array([len(_content(name)) for name in entities], np.int64),
        mentions=mentions,
        known=lexicon(entities),
        by_word=_entities_by_word(entities),
        walk=_walk(mentions),
        damping=damping,
    )


def _walk(mentions: sparse.csr_array) -> _Walk:
    """Chances of a step, in proportion to the weights of the mentions."""
    of_entity, of_chunk = (
        np.asarray(mentions.sum(axis=1), np.float64),
        np.asarray(mentions.sum(axis=0), np.float64),
    )
    out = (sparse.diags_array(_inverse(of_entity)) @ mentions).T
    back = mentions @ sparse.diags_array(_inverse(of_chunk))
    return _Walk(sparse.csr_array(out), sparse.csr_array(back), of_entity > 0.0)


def _inverse(totals: Values) -> Values:
    return np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0.0)


def _chunk_scores(scores: Values, ids: NDArray[np.integer], n: int) -> Values:
    """Scores of hits at the places of their chunks, [N]."""
    prior = np.zeros(n)
    prior[ids[ids >= 0]] = scores[ids >= 0]
    return prior


def _walk_shares(walk: _Walk, restart: Values, prior: Values, damping: float) -> Values:
    """Share of its time that the walk spends at each chunk, [N].

    Personalised PageRank by power iteration.
    """
    share = SEED_SHARE if prior.any() else 0.0
    to_entities = (1.0 - damping) * (1.0 - share) * restart / restart.sum()
    to_chunks = (1.0 - damping) * share * prior / (prior.sum() or 1.0)
    chunks = to_chunks
    for _ in range(STEPS):
        chunks = to_chunks + damping * (walk.out @ (to_entities + damping * (walk.back @ chunks)))
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
            if len(words) <= LONGEST and sum(map(len, words)) > 1:
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
    counts: dict[int, int] = {}
    for spot in spot_names(plain_words(chunk.full_text), known):
        counts[spot.number] = counts.get(spot.number, 0) + 1
    for name in _metadata_entities(chunk):
        number = known.places.get("".join(_strip_function_words(plain_words(name))))
        if number is not None:
            counts.setdefault(number, 1)
    return counts


def _content(name: str) -> list[str]:
    return [word for word in name.split() if word not in STOP_WORDS]


def _entities_by_word(entities: Sequence[str]) -> dict[str, Ids]:
    numbers_by_word: dict[str, list[int]] = {}
    for number, name in enumerate(entities):
        for word in dict.fromkeys(beginning(word) for word in _content(name)):
            numbers_by_word.setdefault(word, []).append(number)
    return {word: np.array(numbers, np.int64) for word, numbers in numbers_by_word.items()}
