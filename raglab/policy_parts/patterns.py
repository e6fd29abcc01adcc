"""Patterns (algebra): a policy's linear-time expressions, and what they hit (S0.6, S2.1).

They hit queries and chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from raglab.values import Case, Chunk, PatternHits, refuse
from raglab.words.canonical import canonical_json, digest

Pattern = str | Sequence[str]


class Patterns(NamedTuple):
    """Case-insensitive regular expressions of a policy.

    An entry that is a list must match with all its parts.

    entities: name -> alias expressions. document_entities: those by which documents name an entity,
    where they are others than those of questions.
    """

    deny: Sequence[Pattern] = ()
    allow: Sequence[Pattern] = ()
    generic: Sequence[Pattern] = ()
    facet: Sequence[Pattern] = ()
    compare: Sequence[Pattern] = ()
    coverage_generic: Sequence[Pattern] = ()
    entities: Mapping[str, Sequence[Pattern]] = {}
    document_entities: Mapping[str, Sequence[Pattern]] = {}

    @property
    def of_documents(self) -> Mapping[str, Sequence[Pattern]]:
        """Name -> alias expressions as documents have them, in the order of the policy."""
        return {
            entity_name: self.document_entities.get(entity_name, aliases)
            for entity_name, aliases in self.entities.items()
        }


# of a list, and of all entities with their aliases: each is looked for in every chunk
MAX_PATTERNS = 5_000
COUNTED_LISTS = ("deny", "allow", "generic", "facet", "compare", "coverage_generic")


def patterns_hash(patterns: Any) -> str:  # noqa: ANN401 - whatever has the fields of `Patterns`
    """First 12 hex digits of the SHA-256 of the patterns' canonical JSON (rule S0.6)."""
    hashed_lists = {name: getattr(patterns, name) for name in COUNTED_LISTS} | {
        "entities": list(patterns.entities.items())
    }
    # a later key: without it the hash is that of a policy from before
    if patterns.document_entities:
        hashed_lists["document_entities"] = dict(patterns.document_entities)
    return digest(canonical_json(hashed_lists, default=list), 12)


MAX_PATTERN_BYTES = (
    2**20
)  # of memory that RE2 may take for one expression, about 10,000 instructions
# of all expressions of a policy together: a microsecond each to compile
MAX_INSTRUCTIONS = 300_000
MAX_EXPRESSIONS = 20_000  # of all patterns of a policy


@lru_cache(maxsize=4096)
# re2 ships no types
def _compile_pattern(pattern: str, max_memory: int = MAX_PATTERN_BYTES) -> Any:  # noqa: ANN401
    import re2

    re2_options = re2.Options()
    re2_options.log_errors = False
    re2_options.case_sensitive = False
    re2_options.max_mem = max_memory
    try:
        return re2.compile(pattern, re2_options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        message = (
            f"a pattern must be a linear-time regular expression, got {pattern!r} ({reason}); "
            "write look-around as a list of expressions that must all match, and repeat less."
        )
        raise ValueError(message) from None


@lru_cache(maxsize=4096)
def _compile_part(expression: str) -> Any:  # noqa: ANN401 - re2 ships no types
    r"""Expression that stands by itself.

    A quotation `\Q` without its end would run into the next one of a list.
    """
    compiled = _compile_pattern(expression)
    if r"\Q" in expression and _either((expression,)) is None:
        refuse("a pattern must end each quotation \\Q with \\E", repr(expression), "add the \\E")
    return compiled


class PatternBudget(NamedTuple):
    """What patterns take: expressions, and instructions of RE2."""

    parts: int
    instructions: int


NOTHING_SPENT = PatternBudget(0, 0)


def check_patterns(
    patterns: Iterable[Pattern], spent_budget: PatternBudget = NOTHING_SPENT
) -> PatternBudget:
    """Compile patterns one after the other, and stop where all that were compiled take too much.

    What they take.

    Args:
      spent_budget: by other patterns of the same policy.

    Raises:
      ValueError: an expression that RE2 does not take, or more than `MAX_EXPRESSIONS` or
        `MAX_INSTRUCTIONS` of all.

    Source: rule S2.1.

    Example:
      >>> check_patterns(["price", ["bicycle", "cost"]]).parts
      3
    """
    n_parts, n_instructions = spent_budget
    for pattern in patterns:
        for expression in [pattern] if isinstance(pattern, str) else pattern:
            n_instructions = n_instructions + _compile_part(expression).programsize
            n_parts = n_parts + 1
            if n_instructions > MAX_INSTRUCTIONS or n_parts > MAX_EXPRESSIONS:
                limit_text = (
                    f"{MAX_EXPRESSIONS:,} expressions and {MAX_INSTRUCTIONS:,} instructions of RE2"
                )
                refuse(
                    f"all patterns together must take at most {limit_text}",
                    f"{n_parts:,} and {n_instructions:,} up to {expression[:80]!r}",
                    "repeat less, or join some",
                )
    return PatternBudget(n_parts, n_instructions)


def matches(pattern: Pattern, searched_text: str | bytes) -> bool:
    """Whether a pattern, or every part of a list of them, occurs in the text, in linear time.

    Args:
      searched_text: as it is or, where many patterns are looked for in it, as UTF-8.

    Raises:
      ValueError: the expression is no RE2 expression (look-ahead, back-reference, bad syntax).

    Source: rule S2.1.

    Example:
      >>> matches(["price", "bicycle"], "the BICYCLE price"), matches("price", "the cost")
      (True, False)
    """
    expressions = [pattern] if isinstance(pattern, str) else pattern
    return all(
        _compile_part(expression).search(searched_text) is not None for expression in expressions
    )


@lru_cache(maxsize=4096)
def _either(patterns: tuple[str, ...]) -> Any:  # noqa: ANN401 - re2 ships no types
    """Expression that occurs where any of the patterns does.

    None where they are too large for one.
    """
    try:
        return _compile_pattern(
            "|".join(f"(?:{pattern})" for pattern in patterns), 8 * MAX_PATTERN_BYTES
        )
    except ValueError:
        return None


MAX_UNJOINED_ENTITIES = 3  # entities that are looked for without a common expression first


@dataclass(frozen=True)
class _Alternatives:
    """Entities with their aliases, in the order of the policy.

    Compiled as far as a text asks for it.
    """

    rows: tuple[tuple[str, Sequence[Pattern]], ...]

    @cached_property
    def either(self) -> Any:  # noqa: ANN401 - re2 ships no types
        """Expression that occurs where any of them does.

        None where there are few, or they are too large for one.
        """
        first_parts = (
            alias if isinstance(alias, str) else alias[0]
            for _, aliases in self.rows
            for alias in aliases
        )
        return _either(tuple(first_parts)) if len(self.rows) > MAX_UNJOINED_ENTITIES else None

    @cached_property
    def halves(self) -> tuple[_Alternatives, ...]:
        """The first and the second half of them; nothing where they are looked for one by one."""
        middle_index = len(self.rows) // 2
        entity_halves = (
            (self.rows[:middle_index], self.rows[middle_index:])
            if len(self.rows) > MAX_UNJOINED_ENTITIES
            else ()
        )
        return tuple(map(_Alternatives, entity_halves))

    def named(self, utf8_text: bytes) -> Iterator[str]:
        """Names of those that a text, as UTF-8, names.

        It names few, and one pass over it dismisses half of them.
        """
        if self.either is not None and self.either.search(utf8_text) is None:
            return
        for half in self.halves:
            yield from half.named(utf8_text)
        if not self.halves:
            yield from (
                entity_name
                for entity_name, aliases in self.rows
                if any(matches(alias, utf8_text) for alias in aliases)
            )


@lru_cache(maxsize=256)
def _alternatives(entity_aliases: tuple[tuple[str, tuple[Pattern, ...]], ...]) -> _Alternatives:
    """Entities with their aliases, kept with what was compiled of them.

    A live question asks the same ones again.
    """
    return _Alternatives(entity_aliases)


def _cannot_match(patterns: Iterable[Pattern], searched_text: str) -> bool:
    """Whether none of the patterns can occur, found in one pass over the text.

    Most questions meet none.
    """
    first_parts = tuple(pattern if isinstance(pattern, str) else pattern[0] for pattern in patterns)
    common_expression = _either(first_parts)
    return not first_parts or (
        common_expression is not None and common_expression.search(searched_text) is None
    )


def entities_of(
    texts: Sequence[str], entities: Mapping[str, Sequence[Pattern]]
) -> tuple[tuple[str, ...], ...]:
    """Names of the entities that each text names, in the order of the policy.

    Example:
      >>> entities_of(["Acme pays", "who pays?"], {"Acme": ("acme",)})
      (('Acme',), ())
    """
    entity_aliases = (
        (
            entity_name,
            tuple(pattern if isinstance(pattern, str) else tuple(pattern) for pattern in patterns),
        )
        for entity_name, patterns in entities.items()
    )
    alternatives = _alternatives(tuple(entity_aliases))
    return tuple(tuple(alternatives.named(searched_text.encode())) for searched_text in texts)


def entities_in(searched_text: str, entities: Mapping[str, Sequence[Pattern]]) -> tuple[str, ...]:
    """Names of the entities that a text names, in the order of the policy."""
    (entity_names,) = entities_of((searched_text,), entities)
    return entity_names


def chunk_entities(
    chunks: Sequence[Chunk], entity_patterns: Mapping[str, Sequence[Pattern]]
) -> tuple[tuple[str, ...], ...]:
    """Entities of each chunk.

    Those that its metadata states and those that its text names (rule S2.5).
    """
    entities = entities_of([chunk.full_text for chunk in chunks], entity_patterns)
    return tuple(
        tuple(dict.fromkeys((*chunk.entities, *found_entities)))
        for chunk, found_entities in zip(chunks, entities, strict=True)
    )


def pattern_hits(
    cases: Sequence[Case],
    chunks: Sequence[Chunk],
    patterns: Patterns,
    named: tuple[tuple[str, ...], ...] | None = None,
    digest: str | None = None,
) -> PatternHits:
    """What the patterns hit in queries and chunks.

    Args:
      named: entities of the chunks, where they are known already.
      digest: hash of the patterns, likewise.

    Source: rule S0.6.
    """
    list_counts = np.zeros((len(cases), len(COUNTED_LISTS)), dtype=np.int32)
    for list_index, name in enumerate(COUNTED_LISTS):
        list_patterns = getattr(patterns, name)
        for case_index, case in enumerate(cases):
            if not _cannot_match(list_patterns, case.query):
                list_counts[case_index, list_index] = sum(
                    matches(pattern, case.query) for pattern in list_patterns
                )
    return PatternHits(
        patterns_hash=digest or patterns_hash(patterns),
        counts=list_counts,
        query_entities=entities_of([case.query for case in cases], patterns.entities),
        chunk_entities=chunk_entities(chunks, patterns.of_documents) if named is None else named,
    )
