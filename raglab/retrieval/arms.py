"""Arms of retrieval (shore): each strategy, its hits measured against the question, rewriting (S1.3, S2.9, S4.1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from math import exp, log
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from raglab.arms import ARMS
from raglab.extensions.graph_table.entity_graph import (
    beginning,
    codes_in,
    lexicon,
    longest,
    names_in,
    plain_words,
    spot_names,
)
from raglab.retrieval.dense import cosines, distances
from raglab.retrieval.indexes import Indexes, Queries, Signatures
from raglab.retrieval.rank_fusion import reciprocal_rank_fusion
from raglab.retrieval.reranking import (
    BestTableRows,
    RankedHits,
    Reranker,
    Values,
    fuse_orders,
    late_interaction,
    ranks_in,
    rerank_chunks,
    rerank_with_rows,
)
from raglab.text import STOP_WORDS
from raglab.values import Hits

PASSAGES = 5  # first hits that are believed to be relevant
TERMS = 10  # words that a step adds
SMOOTHING = 100.0  # words of the corpus that every passage is mixed with (Dirichlet's mu), about a passage's length
PASSAGES_KEPT = 4096  # passages that are kept as they were read
UNSEEN = 0.5  # occurrences of a word that the corpus does not have

_TERM = re.compile(r"[^\W\d_]{3,}")


class Rewriter(Protocol):
    """What says a question anew."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints."""

    def rewrite(self, question: str, passages: Sequence[str], step: int) -> str:
        """Return a query of plain text.

        Args:
          question: as the user asked it.
          passages: texts of the hits of the step before, best first.
          step: from 1.
        """


class Reflection(NamedTuple):
    """What passages cover of a question: its names, codes and other content words, folded, in its order.

    share: of those covered, in [0, 1]; NaN where the question has none.
    """

    covered: tuple[str, ...]
    missing: tuple[str, ...]
    share: float


def reflect(question: str, passages: Sequence[str]) -> Reflection:
    """What passages cover of a question.

    A word is covered by any passage, a name by one that holds all its words, an identifier by one that holds them in a
    row; words are compared by their beginnings.

    Example:
      >>> reflect("Which excess has Crédit des Alpes?", ["Excesses: none.", "The Alpes."])
      Reflection(covered=('excess',), missing=('crédit des alpes',), share=0.5)
    """
    held = [(_beginnings(passage), f" {' '.join(plain_words(passage))} ") for passage in passages]
    units = _units(question)
    is_covered = [any(_holds(words, text, unit) for words, text in held) for unit in units]
    covered = tuple(unit for unit, found in zip(units, is_covered, strict=True) if found)
    missing = tuple(unit for unit, found in zip(units, is_covered, strict=True) if not found)
    return Reflection(covered, missing, len(covered) / len(units) if units else float("nan"))


class _PassageWords(NamedTuple):
    """A passage, read.

    n_words: how many words it has. counts: how often each of their beginnings occurs. terms: beginning, word and number
    of occurrences of each word that can be added to a question, in their order.
    """

    n_words: int
    counts: Counter[str]
    terms: list[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class Rm3:
    """Pseudo-relevance feedback: the question, and after it the words that set its first hits apart from the corpus.

    counts: occurrences of each beginning of a word in the corpus. total: of them all. passages: hits that are believed.
    terms: words that a step adds.
    """

    counts: Mapping[str, int] = field(repr=False)
    total: int
    passages: int = PASSAGES
    terms: int = TERMS

    @property
    def name(self) -> str:
        """The method with its parameters."""
        return f"rm3-{self.passages}-{self.terms}"

    def rewrite(self, question: str, passages: Sequence[str], step: int) -> str:
        """Return the question and, after it, the first words of the relevance model, `terms` for every step.

        Step 1 believes the first passages, step 2 those that hold what the first ones miss of the question, where there
        are any, and a later step as many times more of the first. With each step the text grows, as long as the
        passages have words to add; where they have none, it is the question as it came.

        Source: Lavrenko and Croft 2001, SIGIR (the model); Abdul-Jaleel et al. 2004, TREC (the question stays in it);
          Carpineto et al. 2001, ACM TOIS (the words that are chosen).
        """
        believed = [_passage_words(text) for text in self._believed(question, passages, step)]
        return " ".join((question, *self._words(question, believed)[: self.terms * step]))

    def _believed(self, question: str, passages: Sequence[str], step: int) -> Sequence[str]:
        first = passages[: self.passages]
        if step == 1:
            return first
        if step == 2:
            missing = [_beginnings(unit) for unit in reflect(question, first).missing]
            held = [_beginnings(passage) for passage in passages]
            holding = [one for one, words in zip(passages, held, strict=True) if any(unit <= words for unit in missing)]
            return holding[: self.passages] or first
        return passages[: self.passages * (step - 1)]

    def _words(self, question: str, passages: Sequence[_PassageWords]) -> list[str]:
        """Words of the passages that the question does not have, by their part in the divergence from the corpus.

        A passage's chance of a word is smoothed with the corpus (Dirichlet), a word's in the model is the sum over the
        passages of that chance times how far the passage is believed.
        """
        believed = self._shares(_beginnings(question), passages)
        rates = [share / (one.n_words + SMOOTHING) for share, one in zip(believed, passages, strict=True)]
        heard: dict[str, float] = {}
        for rate, one in zip(rates, passages, strict=True):
            for word, times in one.counts.items():
                heard[word] = heard.get(word, 0.0) + rate * times
        asked = {beginning(word) for word in plain_words(question)}
        spelt = _spelt(passages)
        parts: dict[str, float] = {}
        for word in sorted(spelt.keys() - asked):
            common = self._common(word)
            chance = heard[word] + sum(rates) * SMOOTHING * common
            parts[word] = chance * log(chance / common)
        return [spelt[word] for word in sorted(parts, key=lambda word: -parts[word])]

    def _shares(self, asked: set[str], passages: Sequence[_PassageWords]) -> list[float]:
        """How far each passage is believed: its likelihood of the question, per word, as a share; they sum to 1."""
        likelihoods = []
        for one in passages:
            chances = [one.counts[word] + SMOOTHING * self._common(word) for word in sorted(asked)]
            logs = [log(chance / (one.n_words + SMOOTHING)) for chance in chances]
            likelihoods.append(exp(sum(logs) / max(len(logs), 1)))
        return [likelihood / sum(likelihoods) for likelihood in likelihoods]

    def _common(self, word: str) -> float:
        return (self.counts.get(word, 0) + UNSEEN) / (self.total + UNSEEN)


def rm3(texts: Sequence[str], *, passages: int = PASSAGES, terms: int = TERMS) -> Rm3:
    """Feedback for a corpus, whose words are counted once.

    Args:
      texts: of its chunks.
      passages: hits that are believed, at least 1.
      terms: words that a step adds, at least 1.

    Raises:
      ValueError: passages or terms is below 1.

    Example:
      >>> texts = ["Hail breaks glass.", "Glass is covered against hail.", "Rain is wet.", "Fog is grey."]
      >>> rm3(texts, terms=2).rewrite("hail?", texts[:1], step=1)
      'hail? breaks glass'
    """
    if passages < 1 or terms < 1:
        msg = f"passages and terms must be at least 1, got {passages} and {terms}; 5 and 10 suit most corpora."
        raise ValueError(msg)
    counts = Counter(beginning(word) for text in texts for word in plain_words(text))
    return Rm3(dict(counts), counts.total(), passages, terms)


@lru_cache(maxsize=PASSAGES_KEPT)
def _passage_words(text: str) -> _PassageWords:
    """A passage, read; kept, since the first hits of one question are those of others."""
    words = plain_words(text)
    terms = Counter(word for word in words if _TERM.fullmatch(word) and word not in STOP_WORDS)
    starts = Counter(beginning(word) for word in words)
    return _PassageWords(len(words), starts, [(beginning(word), word, times) for word, times in terms.items()])


def _spelt(passages: Sequence[_PassageWords]) -> dict[str, str]:
    """Beginnings of the words that can be added, each with its most frequent spelling, the first of equals."""
    spellings: dict[str, Counter[str]] = {}
    for passage in passages:
        for start, word, times in passage.terms:
            spellings.setdefault(start, Counter())[word] += times
    return {start: words.most_common(1)[0][0] for start, words in spellings.items()}


def _units(question: str) -> list[str]:
    """Names, codes and content words of a question, folded, in order, each once."""
    words = plain_words(question)
    known = lexicon("".join(plain_words(name)) for name in (*names_in([question])[0], *codes_in(question)))
    spots = {spot.at: spot.length for spot in longest(spot_names(words, known))}
    units: list[str] = []
    at = 0
    while at < len(words):
        length = spots.get(at, 1)
        unit = " ".join(words[at : at + length])
        if length > 1 or unit not in STOP_WORDS:
            units.append(unit)
        at += length
    return list(dict.fromkeys(units))


def _holds(words: set[str], text: str, unit: str) -> bool:
    """Whether a passage, by the beginnings of its words and its folded text, holds a name, an identifier or a word."""
    if " " in unit and any(char.isdigit() for char in unit):
        return f" {unit} " in text
    return _beginnings(unit) <= words


def _beginnings(text: str) -> set[str]:
    return {beginning(word) for word in plain_words(text) if word not in STOP_WORDS}


STAGES = ("embed", "rewrite", "keyword", "dense", "graph", "table", "fuse", "rerank", "measure")
FEEDBACK = 20  # hits whose texts a rewriter may read

Ids = NDArray[np.int64]
Allowed = Sequence[NDArray[np.integer] | None]
Lists = list[tuple[Ids, float]]  # ids [1, k] of a ranked list, and what it counts in the fusion
Milliseconds = dict[str, float]


class Sizes(NamedTuple):
    """Sizes of retrieval.

    fetch_k: hits a list and in the end. rerank_k: hits that are reranked. rrf_k: constant of the fusion. dense_weight:
    what the list of the embeddings counts in it, where every other list counts 1.
    """

    fetch_k: int = 50
    rerank_k: int = 20
    rrf_k: int = 60
    dense_weight: float = 1.0


class DepthHits(NamedTuple):
    """One depth of one arm: what was searched, its hits [1, 1, 1, K], milliseconds by stage."""

    query: str
    hits: Hits
    ms: Milliseconds


class Strategy(NamedTuple):
    """An arm with what it works with; `walk` follows it depth by depth.

    embed: text -> unit vector [1, dim], for rewritten questions. rewriter: None where nothing is rewritten.
    reranker: None is late interaction over the token embeddings.
    """

    arm: str
    indexes: Indexes
    sizes: Sizes = Sizes()
    embed: Callable[[str], NDArray[np.float32]] | None = None
    rewriter: Rewriter | None = None
    reranker: Reranker | None = None


def walk(strategy: Strategy, question: Queries, scope: NDArray[np.integer] | None = None) -> Iterator[DepthHits]:
    """Hits of one question at depth 0, 1, 2 …, each made when it is asked for; endless.

    Depth d searches for the question as it was rewritten from the hits of depth d − 1. Nothing here knows a threshold,
    so that a trace holds what a live question would find, and any tau is replayed.

    Args:
      question: of length one. scope: positions that it may find (the user named documents); None is all of them.

    Raises:
      ValueError: the arm must be known and what it needs be there.

    Source: rules S1.2 to S1.4, S2.9, S4.1.
    """
    check_strategy(strategy)
    if strategy.reranker is None and _rerank_width(strategy):  # one for all depths, which find much the same chunks
        strategy = strategy._replace(reranker=late_interaction(strategy.indexes, question))
    text, ms = question.texts[0], {} if question.ms is None else {"embed": question.ms[0]}
    base = _ranked_lists(strategy, text, question.vectors, scope, ms)
    own = _arm_findings(strategy, text, scope, ms)
    first = [*base, *own.lists]
    step, lists = 0, first
    while True:
        if ARMS[strategy.arm].rewrites:  # within a depth, so that depth 0 already knows what the first hits say
            step += 1
            best = _order_hits(strategy, question, _fuse_lists(strategy, lists, ms), own, ms)
            again = _rewritten(strategy, question, best, step, ms)
            if again != text:
                lists = [*lists, *_ranked_lists(strategy, again, _vector(strategy, again, ms), scope, ms)]
        ordered = _order_hits(strategy, question, _fuse_lists(strategy, lists, ms), own, ms)
        with _time_stage(ms, "measure"):
            hits = measure_hits(strategy.indexes, question, ordered)
        yield DepthHits(text, hits, ms)
        step, ms = step + 1, {}
        text = _rewritten(strategy, question, ordered, step, ms)
        more = (
            [] if text == question.texts[0] else _ranked_lists(strategy, text, _vector(strategy, text, ms), scope, ms)
        )
        lists = [*first, *more]


def depths(strategy: Strategy, question: Queries, n: int, scope: NDArray[np.integer] | None = None) -> list[DepthHits]:
    """The first n depths of a question."""
    return list(islice(walk(strategy, question, scope), n))


def check_strategy(strategy: Strategy) -> None:
    """Stop at an arm that is not known, or that lacks what it works with."""
    arm, indexes = strategy.arm, strategy.indexes
    if arm not in ARMS:
        msg = f"arm must be one of {', '.join(ARMS)}, got {arm!r}; choose one of them."
        raise ValueError(msg)
    needs = ARMS[arm].needs
    if needs and getattr(strategy if needs == "rewriter" else indexes, needs) is None:
        msg = f"arm {arm} needs its {'rewriter' if needs == 'rewriter' else 'index'}, got none; build it with the arm."
        raise ValueError(msg)


@contextmanager
def _time_stage(ms: Milliseconds, stage: str) -> Iterator[None]:
    start = perf_counter()
    try:
        yield
    finally:
        ms[stage] = ms.get(stage, 0.0) + 1e3 * (perf_counter() - start)


def _ranked_lists(
    strategy: Strategy, text: str, vector: NDArray[np.float32], scope: NDArray[np.integer] | None, ms: Milliseconds
) -> Lists:
    """Ranked lists of an arm for one text."""
    arm, indexes, k = ARMS[strategy.arm], strategy.indexes, strategy.sizes.fetch_k
    lists: Lists = []
    if arm.keyword:
        with _time_stage(ms, "keyword"):
            lists.append((indexes.bm25.search([text], k, [scope])[1], 1.0))
    if arm.dense:
        with _time_stage(ms, "dense"):
            lists.append((indexes.nearest(vector, k, scope), strategy.sizes.dense_weight))
    return lists


class _ArmFindings(NamedTuple):
    """What an arm finds beside the two lists by the question itself: further lists, rows by chunk, the walk's order."""

    lists: Lists
    rows: dict[int, tuple[int, float]] | None = None
    walked: Ids | None = None


def _arm_findings(strategy: Strategy, text: str, scope: NDArray[np.integer] | None, ms: Milliseconds) -> _ArmFindings:
    """What the arm's own search finds; nothing where it has none."""
    search = SEARCHES.get(strategy.arm)
    return _ArmFindings([]) if search is None else search(strategy, text, scope, ms)


def _search_graph(strategy: Strategy, text: str, scope: NDArray[np.integer] | None, ms: Milliseconds) -> _ArmFindings:
    """Chunks near the question's entities, by a walk that starts from the keywords' hits."""
    indexes, k = strategy.indexes, strategy.sizes.fetch_k
    if indexes.graph is None:
        return _ArmFindings([])
    with _time_stage(ms, "graph"):
        seeds = indexes.bm25.search([text], k, [scope])
        walked = indexes.graph.search([text], k, [scope], seeds=seeds)[1]
    return _ArmFindings([(walked, 1.0)], walked=walked)


def _search_tables(strategy: Strategy, text: str, scope: NDArray[np.integer] | None, ms: Milliseconds) -> _ArmFindings:
    """Rows of tables as the chunks that they stand in, each by its best row."""
    indexes, k = strategy.indexes, strategy.sizes.fetch_k
    if indexes.tables is None:
        return _ArmFindings([])
    with _time_stage(ms, "table"):
        scores, ids = indexes.tables.search([text], k, [scope])
        rows: dict[int, tuple[int, float]] = {}
        for row, score in zip(ids[0].tolist(), scores[0].tolist(), strict=True):
            if row >= 0:
                rows.setdefault(int(indexes.tables.parents[row]), (row + indexes.n_chunks, score))
        parents = np.full((1, k), -1, np.int64)
        parents[0, : len(rows)] = list(rows)
    return _ArmFindings([(parents, 1.0)], rows=rows)


SEARCHES: dict[str, Callable[[Strategy, str, NDArray[np.integer] | None, Milliseconds], _ArmFindings]] = {
    "graph": _search_graph,
    "table": _search_tables,
}  # an arm's own search beside the lists of `raglab.arms.ARMS`, for the question as it was put


def _fuse_lists(strategy: Strategy, lists: Lists, ms: Milliseconds) -> tuple[NDArray[np.float64], Ids]:
    with _time_stage(ms, "fuse"):
        ids, weights = zip(*lists, strict=True)
        return reciprocal_rank_fusion(ids, strategy.sizes.fetch_k, strategy.sizes.rrf_k, weights)


def _rerank_width(strategy: Strategy) -> int:
    """How many of the fused hits are reranked."""
    return min(strategy.sizes.rerank_k, strategy.sizes.fetch_k) if ARMS[strategy.arm].reranked else 0


def _order_hits(
    strategy: Strategy, question: Queries, fused: tuple[NDArray[np.float64], Ids], own: _ArmFindings, ms: Milliseconds
) -> RankedHits:
    """Hits reranked by the original question, in the arm's final order.

    `iterative` fuses the fused order once and the reranked one twice, `graph` the walk's and the reranked one: what the
    reranker cannot see from the question's words alone keeps a say.
    """
    indexes, reranker, width = strategy.indexes, strategy.reranker, _rerank_width(strategy)
    with _time_stage(ms, "rerank"):
        if own.rows is not None and reranker is not None and width:
            pairs = [own.rows.get(place, (-1, 0.0)) for place in fused[1][0].tolist()]
            found = BestTableRows(*(np.array([[pair[at] for pair in pairs]]) for at in (0, 1)))
            return rerank_with_rows(indexes, question, fused, reranker, width, found)
        ordered = rerank_chunks(indexes, question, fused, reranker, width)
        if ARMS[strategy.arm].rewrites:
            return fuse_orders(ordered, np.arange(width), weight=2.0, k=strategy.sizes.rrf_k)
        if own.walked is not None:
            return fuse_orders(ordered, ranks_in(own.walked[0], ordered.chunk[0, :width]), k=strategy.sizes.rrf_k)
        return ordered


def _rewritten(strategy: Strategy, question: Queries, best: RankedHits, step: int, ms: Milliseconds) -> str:
    """What to search after a try, from its best hits; the question itself where nothing rewrites it."""
    if strategy.rewriter is None:
        return question.texts[0]
    with _time_stage(ms, "rewrite"):
        rank = np.where(best.rank[0] >= 0, best.rank[0], np.iinfo(np.int32).max)
        places = best.chunk[0, np.argsort(rank, kind="stable")[:FEEDBACK]]
        texts = [strategy.indexes.texts[place] for place in places if place >= 0]
        return strategy.rewriter.rewrite(question.texts[0], texts, step)


def _vector(strategy: Strategy, text: str, ms: Milliseconds) -> NDArray[np.float32]:
    if strategy.embed is None:
        msg = f"arm {strategy.arm} rewrites questions and needs an embedding for them, got none; pass embed."
        raise ValueError(msg)
    with _time_stage(ms, "embed"):
        return strategy.embed(text)


def measure_hits(indexes: Indexes, queries: Queries, ordered: RankedHits) -> Hits:
    """Measure every hit against the original question and put the hits in the order of (l2, position), [Q, 1, 1, K].

    Source: rule S1.3.
    """
    chunk = ordered.chunk
    l2, cosine = distances(queries.vectors, indexes.vectors, chunk)
    order = np.lexsort((chunk, l2), axis=-1)

    def laid(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, order, -1)[:, None, None, :]

    def similarity(signatures: Signatures) -> Values:
        ids = np.where(chunk >= 0, signatures.of_chunk[chunk], -1)
        return laid(cosines(queries.vectors, signatures.vectors, ids))

    return Hits(
        chunk=laid(chunk).astype(np.int32),
        rank=laid(ordered.rank).astype(np.int32),
        l2=laid(l2),
        cosine=laid(cosine),
        s_hybrid=laid(ordered.s_hybrid),
        s_rerank=laid(ordered.s_rerank),
        s_raw=laid(ordered.s_raw),
        anchor_sim=laid(cosines(queries.vectors, indexes.anchors, chunk)),
        sig_sim=similarity(indexes.signatures),
        sig_sim_strict=similarity(indexes.strict_signatures),
        n_reranked=(chunk[:, : ordered.n_reranked] >= 0).sum(axis=1).astype(np.int32)[:, None, None],
    )
