"""Evidence (algebra): confidence, degenerate scores, bit masks of entities and words, intent (S2.5 to S2.8).

Nothing here knows a threshold. Sets of entities, words and expected sources are bit masks (uint64),
numbered within one query, so that the union over chosen hits is a bitwise or.

The rules of intent stand in the files of the languages, by no corpus. A question that no rule speaks to scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.languages import LANGUAGES, Language, expression
from raglab.text import BITS, unaccented


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
    min_texts: int = 3,
) -> NDArray[np.bool_]:
    """Whether a reranker's output says nothing, so that the hybrid score stands in for the whole query.

    Args:
      s_rerank, s_raw: [..., K]. text: number of the hit's text, [..., K]. reranked: [..., K].
      min_texts: different texts over which equal raw scores say nothing.

    Returns: bool [...]: nothing was reranked, a score is NaN or outside [0, 1], or all raw scores are
      equal over `min_texts` or more different texts.

    Source: rule S2.8.
    """
    bad = reranked & ~((s_rerank >= 0.0) & (s_rerank <= 1.0))
    low = np.where(reranked, s_raw, np.inf).min(axis=-1, initial=np.inf)
    high = np.where(reranked, s_raw, -np.inf).max(axis=-1, initial=-np.inf)
    distinct = np.sort(np.where(reranked, text, -1), axis=-1)
    n_texts = (np.diff(distinct, axis=-1, prepend=-1) != 0).sum(axis=-1)
    return ~reranked.any(axis=-1) | bad.any(axis=-1) | ((low == high) & (n_texts >= min_texts))


def retrieval_confidence(
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
      >>> float(retrieval_confidence(np.array([0.25, 0.5]), np.array([1.0, 0.5]), np.array(False), 1.0))
      50.0
    """
    pure = np.equal(blend, 1.0)
    mixed = s_rerank if np.all(pure) else np.where(pure, s_rerank, blend * s_rerank + (1.0 - blend) * s_hybrid)
    final = np.where(degenerate, s_hybrid, mixed)
    best = np.fmax.reduce(final, axis=0) if len(final) else np.full(final.shape[1:], np.nan)
    return np.where(np.isnan(best), 0.0, 100.0 * best)


Flag = Literal["graph", "table", "complexity"]

FLAGS: tuple[Flag, ...] = ("graph", "table", "complexity")


class IntentPattern(NamedTuple):
    """A pattern, and how much its occurrence says for a flag.

    weight: score of the flag where this rule alone speaks, in (0, 1); 0.5 and more is a rule that needs no second.
    pattern: case-insensitive. times: occurrences that it takes.
    """

    flag: Flag
    name: str
    weight: float
    pattern: re.Pattern[str]
    times: int = 1


class Intent(NamedTuple):
    """What a question asks for, each score in [0, 1].

    graph: relations of named persons and things. table: figures of a table, such as a lookup, a comparison, a total.
    complexity: several steps or conditions. reasons: by flag, the names of the rules that spoke.
    """

    graph: float
    table: float
    complexity: float
    reasons: Mapping[str, tuple[str, ...]]


# Flag, name, weight and occurrences of each rule, and what it matches in every language; a language's own expressions
# stand in its file under the name, or under flag and name where two flags have a rule of that name.
_RULES: tuple[tuple[Flag, str, float, int, str], ...] = (
    # Relations: who stands how to whom.
    ("graph", "role", 0.5, 1, ""),
    ("graph", "standing", 0.6, 1, ""),
    ("graph", "who is", 0.5, 1, ""),
    ("graph", "who does", 0.4, 1, ""),
    ("graph", "whom", 0.4, 1, ""),
    ("graph", "right or duty", 0.4, 1, ""),
    ("graph", "payment to a party", 0.4, 1, ""),
    ("graph", "which party", 0.4, 1, ""),
    ("graph", "relation", 0.6, 1, ""),
    ("graph", "a party by what it does", 0.6, 1, ""),
    ("graph", "both", 0.4, 1, ""),
    ("graph", "interest of a party", 0.4, 1, ""),
    # Tables: figures by row and column.
    ("table", "how much", 0.5, 1, ""),
    ("table", "how long", 0.3, 1, ""),
    ("table", "figure", 0.5, 1, ""),
    ("table", "comparison", 0.6, 1, ""),
    ("table", "change", 0.5, 1, ""),
    ("table", "aggregate", 0.5, 1, ""),
    ("table", "most or least", 0.5, 1, ""),
    ("table", "table", 0.4, 1, ""),
    ("table", "per unit", 0.3, 1, ""),
    ("table", "money or share", 0.2, 1, r"[£$€%]|\b(?:gbp|eur|usd)\b"),
    # Complexity: several steps, conditions, things to hold beside one another.
    ("complexity", "comparison", 0.5, 1, ""),
    ("complexity", "condition", 0.3, 1, ""),
    ("complexity", "time order", 0.3, 1, ""),
    ("complexity", "why or how", 0.4, 1, ""),
    ("complexity", "second question", 0.5, 1, ""),
    ("complexity", "second sentence", 0.4, 1, r"[.!?;] +\S"),
    ("complexity", "clauses", 0.4, 3, "[,;:]| - "),
    ("complexity", "figures", 0.3, 2, r"\d+(?:[.,/]\d+)*"),
    ("complexity", "length", 0.3, 15, r"\w+"),
    ("complexity", "great length", 0.3, 22, r"\w+"),
)


def intent_rules(language: Language = LANGUAGES) -> tuple[IntentPattern, ...]:
    """Rules that read what a question asks for, with the expressions of a language.

    Raises:
      ValueError: the language has expressions for a rule that there is not.

    Example:
      >>> next(rule for rule in intent_rules() if rule.name == "both").pattern.search("Are both covered?")[0]
      'both'
    """
    own = language.intent
    known = {name for _, name, *_ in _RULES} | {f"{flag} {name}" for flag, name, *_ in _RULES}
    if not own.rules.keys() <= known:
        unknown = ", ".join(sorted(own.rules.keys() - known))
        msg = f"intent.rules of {language.name} must be rules of intent, got {unknown}; en.yaml has their names."
        raise ValueError(msg)
    rules = []
    for flag, name, weight, times, everywhere in _RULES:
        patterns = own.rules.get(f"{flag} {name}", own.rules.get(name, ()))
        every = [*([everywhere] if everywhere else []), *patterns] or ["(?!)"]
        rules.append(IntentPattern(flag, name, weight, re.compile(expression(every, own.words), re.IGNORECASE), times))
    return tuple(rules)


RULES = intent_rules()


def intent(question: str) -> Intent:
    """Scores of a question by every rule that speaks: one minus the product of what their weights leave.

    Example:
      >>> asked = intent("Who is the beneficiary of the client whose excess is £250?")
      >>> round(asked.graph, 2), round(asked.table, 2)
      (0.96, 0.6)
      >>> asked.reasons["table"]
      ('figure', 'money or share')
    """
    text = unaccented(question.replace("’", "'"))  # as the patterns are written
    spoke = [rule for rule in RULES if _occurs(rule, text)]
    left = {flag: prod(1.0 - rule.weight for rule in spoke if rule.flag == flag) for flag in FLAGS}
    reasons: dict[str, tuple[str, ...]] = {
        flag: tuple(rule.name for rule in spoke if rule.flag == flag) for flag in FLAGS
    }
    return Intent(1.0 - left["graph"], 1.0 - left["table"], 1.0 - left["complexity"], reasons)


def _occurs(rule: IntentPattern, text: str) -> bool:
    found = rule.pattern.finditer(text)
    return all(next(found, None) is not None for _ in range(rule.times))
