"""Text and scores to measurements: pattern hits, entity hits, keyword share, confidence.

Nothing here knows a threshold. Sets of entities, words and expected sources are bit masks (uint64),
numbered within one query, so that the union over chosen hits is a bitwise or.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.values import Case, Chunk, PatternHits

BITS = 64
_WORD = re.compile(r"[^\W_]+")
Pattern = str | Sequence[str]

# Function words of English and French: they say nothing about what a question is about (rule S2.7).
STOP_WORDS = frozenset(
    """a an the of to in on at by for from with without and or not no is are was were be been being do does did has
    have had will would can could should may might must shall i you he she it we they me him her us them my your his
    its our their this that these those what which who whom whose when where why how there here as if than then so
    such about into over under le la les un une des du de d l et ou ne pas est sont a ont été être avoir dans sur
    sous par pour avec sans ce cet cette ces qui que quoi dont où quand comment pourquoi quel quelle quels quelles
    je tu il elle nous vous ils elles mon ma mes ton ta tes son sa ses notre votre nos vos leur leurs au aux en y se
    s n j m t c qu""".split()  # noqa: SIM905
)


class Patterns(NamedTuple):
    """Case-insensitive regular expressions of a policy; an entry that is a list must match with all its parts.

    entities: name -> alias expressions.
    """

    deny: Sequence[Pattern] = ()
    allow: Sequence[Pattern] = ()
    generic: Sequence[Pattern] = ()
    facet: Sequence[Pattern] = ()
    compare: Sequence[Pattern] = ()
    coverage_generic: Sequence[Pattern] = ()
    entities: Mapping[str, Sequence[Pattern]] = {}


COUNTED = ("deny", "allow", "generic", "facet", "compare", "coverage_generic")


def patterns_hash(patterns: Any) -> str:  # noqa: ANN401 - whatever has the fields of `Patterns`
    """First 12 hex digits of the SHA-256 of the patterns' canonical JSON (rule S0.6)."""
    rows = {name: getattr(patterns, name) for name in COUNTED} | {"entities": list(patterns.entities.items())}
    text = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> Any:  # noqa: ANN401 - re2 ships no types
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        remedy = (
            "look-around is not linear-time: write a list of expressions that must all match"
            if "(?=" in pattern or "(?!" in pattern or "(?<" in pattern
            else "see the syntax of RE2"
        )
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        msg = f"a pattern must be a linear-time regular expression, got {pattern!r} ({reason}); {remedy}."
        raise ValueError(msg) from None


def matches(pattern: Pattern, text: str) -> bool:
    """Whether a pattern, or every part of a list of them, occurs in the text, in time linear in the text.

    Raises:
      ValueError: the expression is no RE2 expression (look-ahead, back-reference, bad syntax).

    Source: rule S2.1.

    Example:
      >>> matches(["excess", "fleet"], "the FLEET excess"), matches("excess", "the premium")
      (True, False)
    """
    parts = [pattern] if isinstance(pattern, str) else pattern
    return all(_expression(part).search(text) is not None for part in parts)


@lru_cache(maxsize=256)
def _either(patterns: tuple[str, ...]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _none_of(patterns: Iterable[Pattern], text: str) -> bool:
    """Whether none of the patterns can occur, found in one pass over the text: most questions meet none."""
    first = tuple(pattern if isinstance(pattern, str) else pattern[0] for pattern in patterns)
    return not first or _expression(_either(first)).search(text) is None


def entities_in(text: str, entities: Mapping[str, Sequence[Pattern]]) -> tuple[str, ...]:
    """Names of the entities that a text names, in the order of the policy."""
    if _none_of((alias for aliases in entities.values() for alias in aliases), text):
        return ()
    named = (name for name, aliases in entities.items() if not _none_of(aliases, text))
    return tuple(name for name in named if any(matches(alias, text) for alias in entities[name]))


def chunk_entities(chunks: Sequence[Chunk], names: Mapping[str, Sequence[Pattern]]) -> tuple[tuple[str, ...], ...]:
    """Entities of each chunk: those that its metadata states and those that its text names (rule S2.5)."""
    return tuple(tuple(dict.fromkeys((*chunk.entities, *entities_in(chunk.text, names)))) for chunk in chunks)


def pattern_hits(
    cases: Sequence[Case],
    chunks: Sequence[Chunk],
    patterns: Patterns,
    named: tuple[tuple[str, ...], ...] | None = None,
    digest: str | None = None,
) -> PatternHits:
    """What the patterns hit in queries and chunks.

    Args:
      named: entities of the chunks, where they are known already. digest: hash of the patterns, likewise.

    Source: rule S0.6.
    """
    counts = np.zeros((len(cases), len(COUNTED)), dtype=np.int32)
    for column, name in enumerate(COUNTED):
        listed = getattr(patterns, name)
        for row, case in enumerate(cases):
            if not _none_of(listed, case.query):
                counts[row, column] = sum(matches(pattern, case.query) for pattern in listed)
    names = patterns.entities
    return PatternHits(
        patterns_hash=digest or patterns_hash(patterns),
        counts=counts,
        query_entities=tuple(entities_in(case.query, names) for case in cases),
        chunk_entities=chunk_entities(chunks, names) if named is None else named,
    )


def words(text: str) -> list[str]:
    """Lower-case words of a text in order, with accents, numbers included.

    Example:
      >>> words("Quel est l'excess? £1,000")
      ['quel', 'est', 'l', 'excess', '1', '000']
    """
    return _WORD.findall(unicodedata.normalize("NFC", text).casefold())


@lru_cache(maxsize=1 << 16)
def word_set(text: str) -> frozenset[str]:
    """Distinct words of a text, kept for the passages that are asked about again."""
    return frozenset(words(text))


def content_words(text: str) -> tuple[str, ...]:
    """Distinct words of a text that are no function words of English or French, in order, at most 64.

    Example:
      >>> content_words("What is the excess on the fleet, the excess?")
      ('excess', 'fleet')
    """
    return tuple(dict.fromkeys(w for w in words(text) if w not in STOP_WORDS))[:BITS]


def bit_masks(
    items: Sequence[Sequence[str]], found: Mapping[str, NDArray[np.intp]], chunk: NDArray[np.integer[Any]]
) -> NDArray[np.uint64]:
    """Bit i of a hit is set where its chunk has the query's i-th item.

    Args:
      items: per query, at most 64 different items. found: item -> positions of the chunks that have it.
      chunk: [Q, K] chunk of each hit, -1 for none.

    Returns: uint64 [Q, K].
    """
    masks = np.zeros(chunk.shape, dtype=np.uint64)
    n_chunks = int(chunk.max(initial=-1)) + 1
    asked: dict[str, list[tuple[int, int]]] = {}
    for query, row in enumerate(items):
        if len(row) > BITS:
            msg = f"a query may name at most {BITS} entities, words or sources, got {len(row)}; take some away."
            raise ValueError(msg)
        for bit, item in enumerate(row):
            if item in found:
                asked.setdefault(item, []).append((query, bit))
    member = np.zeros(n_chunks + 1, dtype=np.uint64)  # the last one stands for "no hit"
    for item, pairs in asked.items():
        rows, bits = np.array(pairs).T
        where = found[item]
        where = where[where < n_chunks]
        member[where] = 1
        masks[rows] |= member[chunk[rows]] << bits.astype(np.uint64)[:, None]
        member[where] = 0
    return masks


def positions(sets: Sequence[Sequence[str]]) -> dict[str, NDArray[np.intp]]:
    """Item -> positions of the sets that hold it."""
    lists: dict[str, list[int]] = {}
    for place, members in enumerate(sets):
        for item in dict.fromkeys(members):
            lists.setdefault(item, []).append(place)
    return {item: np.array(places, dtype=np.intp) for item, places in lists.items()}


def degenerate_scores(
    s_rerank: NDArray[np.float64],
    s_raw: NDArray[np.float64],
    text: NDArray[np.integer[Any]],
    reranked: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Whether a reranker's output says nothing, so that the hybrid score stands in for the whole query.

    Args:
      s_rerank, s_raw: [..., K]. text: number of the hit's text, [..., K]. reranked: [..., K].

    Returns: bool [...]: nothing was reranked, a score is NaN or outside [0, 1], or all raw scores are
      equal over three or more different texts.

    Source: rule S2.8.
    """
    bad = reranked & ~((s_rerank >= 0.0) & (s_rerank <= 1.0))
    low = np.where(reranked, s_raw, np.inf).min(axis=-1, initial=np.inf)
    high = np.where(reranked, s_raw, -np.inf).max(axis=-1, initial=-np.inf)
    distinct = np.sort(np.where(reranked, text, -1), axis=-1)
    n_texts = (np.diff(distinct, axis=-1, prepend=-1) != 0).sum(axis=-1)
    return ~reranked.any(axis=-1) | bad.any(axis=-1) | ((low == high) & (n_texts >= 3))


def confidence(
    s_rerank: NDArray[np.float64],
    s_hybrid: NDArray[np.float64],
    degenerate: NDArray[np.bool_],
    blend: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Retrieval confidence, 0 to 100: a hundred times the best final score among the top hits; 0 without hits.

    Args:
      s_rerank, s_hybrid: of the first `final_k` hits in the arm's order, [K, ...]; NaN where there is none.
      degenerate: [...]. blend: share of the reranker in the final score, in [0, 1], broadcast against [...].

    Source: confidence heuristics, section 3 (rule S2.8).

    Example:
      >>> float(confidence(np.array([0.25, 0.5]), np.array([1.0, 0.5]), np.array(False), 1.0))
      50.0
    """
    pure = np.equal(blend, 1.0)
    mixed = s_rerank if np.all(pure) else np.where(pure, s_rerank, blend * s_rerank + (1.0 - blend) * s_hybrid)
    final = np.where(degenerate, s_hybrid, mixed)
    best = np.fmax.reduce(final, axis=0) if len(final) else np.full(final.shape[1:], np.nan)
    return np.where(np.isnan(best), 0.0, 100.0 * best)
