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
            name: self.document_entities.get(name, aliases)
            for name, aliases in self.entities.items()
        }


# of a list, and of all entities with their aliases: each is looked for in every chunk
MOST_PATTERNS = 5_000
COUNTED = ("deny", "allow", "generic", "facet", "compare", "coverage_generic")


def patterns_hash(patterns: Any) -> str:  # noqa: ANN401 - whatever has the fields of `Patterns`
    """First 12 hex digits of the SHA-256 of the patterns' canonical JSON (rule S0.6)."""
    rows = {name: getattr(patterns, name) for name in COUNTED} | {
        "entities": list(patterns.entities.items())
    }
    # a later key: without it the hash is that of a policy from before
    if patterns.document_entities:
        rows["document_entities"] = dict(patterns.document_entities)
    return digest(canonical_json(rows, default=list), 12)


LARGEST_BYTES = 2**20  # of memory that RE2 may take for one expression, about 10,000 instructions
# of all expressions of a policy together: a microsecond each to compile
MOST_INSTRUCTIONS = 300_000
MOST_PARTS = 20_000  # of all patterns of a policy


@lru_cache(maxsize=4096)
# re2 ships no types
def _compile_pattern(pattern: str, largest: int = LARGEST_BYTES) -> Any:  # noqa: ANN401
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    options.max_mem = largest
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        msg = (
            f"a pattern must be a linear-time regular expression, got {pattern!r} ({reason}); "
            "write look-around as a list of expressions that must all match, and repeat less."
        )
        raise ValueError(msg) from None


@lru_cache(maxsize=4096)
def _compile_part(part: str) -> Any:  # noqa: ANN401 - re2 ships no types
    r"""Expression that stands by itself.

    A quotation `\Q` without its end would run into the next one of a list.
    """
    compiled = _compile_pattern(part)
    if r"\Q" in part and _either((part,)) is None:
        refuse("a pattern must end each quotation \\Q with \\E", repr(part), "add the \\E")
    return compiled


class PatternBudget(NamedTuple):
    """What patterns take: expressions, and instructions of RE2."""

    parts: int
    instructions: int


NOTHING_SPENT = PatternBudget(0, 0)


def check_patterns(
    patterns: Iterable[Pattern], spent: PatternBudget = NOTHING_SPENT
) -> PatternBudget:
    """Compile patterns one after the other, and stop where all that were compiled take too much.

    What they take.

    Args:
      spent: by other patterns of the same policy.

    Raises:
      ValueError: an expression that RE2 does not take, or more than `MOST_PARTS` or
        `MOST_INSTRUCTIONS` of all.

    Source: rule S2.1.

    Example:
      >>> check_patterns(["price", ["bicycle", "cost"]]).parts
      3
    """
    n_parts, size = spent
    for pattern in patterns:
        for part in [pattern] if isinstance(pattern, str) else pattern:
            size, n_parts = size + _compile_part(part).programsize, n_parts + 1
            if size > MOST_INSTRUCTIONS or n_parts > MOST_PARTS:
                most = f"{MOST_PARTS:,} expressions and {MOST_INSTRUCTIONS:,} instructions of RE2"
                rule = f"all patterns together must take at most {most}"
                total = f"{n_parts:,} and {size:,} up to {part[:80]!r}"
                refuse(rule, total, "repeat less, or join some")
    return PatternBudget(n_parts, size)


def matches(pattern: Pattern, text: str | bytes) -> bool:
    """Whether a pattern, or every part of a list of them, occurs in the text, in linear time.

    Args:
      text: as it is or, where many patterns are looked for in it, as UTF-8.

    Raises:
      ValueError: the expression is no RE2 expression (look-ahead, back-reference, bad syntax).

    Source: rule S2.1.

    Example:
      >>> matches(["price", "bicycle"], "the BICYCLE price"), matches("price", "the cost")
      (True, False)
    """
    parts = [pattern] if isinstance(pattern, str) else pattern
    return all(_compile_part(part).search(text) is not None for part in parts)


@lru_cache(maxsize=4096)
def _either(patterns: tuple[str, ...]) -> Any:  # noqa: ANN401 - re2 ships no types
    """Expression that occurs where any of the patterns does.

    None where they are too large for one.
    """
    try:
        return _compile_pattern(
            "|".join(f"(?:{pattern})" for pattern in patterns), 8 * LARGEST_BYTES
        )
    except ValueError:
        return None


ONE_BY_ONE = 3  # entities that are looked for without a common expression first


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
        firsts = (
            alias if isinstance(alias, str) else alias[0]
            for _, aliases in self.rows
            for alias in aliases
        )
        return _either(tuple(firsts)) if len(self.rows) > ONE_BY_ONE else None

    @cached_property
    def halves(self) -> tuple[_Alternatives, ...]:
        """The first and the second half of them; nothing where they are looked for one by one."""
        middle = len(self.rows) // 2
        parts = (self.rows[:middle], self.rows[middle:]) if len(self.rows) > ONE_BY_ONE else ()
        return tuple(map(_Alternatives, parts))

    def named(self, text: bytes) -> Iterator[str]:
        """Names of those that a text, as UTF-8, names.

        It names few, and one pass over it dismisses half of them.
        """
        if self.either is not None and self.either.search(text) is None:
            return
        for half in self.halves:
            yield from half.named(text)
        if not self.halves:
            yield from (
                name
                for name, aliases in self.rows
                if any(matches(alias, text) for alias in aliases)
            )


@lru_cache(maxsize=256)
def _alternatives(rows: tuple[tuple[str, tuple[Pattern, ...]], ...]) -> _Alternatives:
    """Entities with their aliases, kept with what was compiled of them.

    A live question asks the same ones again.
    """
    return _Alternatives(rows)


def _cannot_match(patterns: Iterable[Pattern], text: str) -> bool:
    """Whether none of the patterns can occur, found in one pass over the text.

    Most questions meet none.
    """
    first = tuple(pattern if isinstance(pattern, str) else pattern[0] for pattern in patterns)
    either = _either(first)
    return not first or (either is not None and either.search(text) is None)


def entities_of(
    texts: Sequence[str], entities: Mapping[str, Sequence[Pattern]]
) -> tuple[tuple[str, ...], ...]:
    """Names of the entities that each text names, in the order of the policy.

    Example:
      >>> entities_of(["Acme pays", "who pays?"], {"Acme": ("acme",)})
      (('Acme',), ())
    """
    rows = (
        (
            name,
            tuple(pattern if isinstance(pattern, str) else tuple(pattern) for pattern in patterns),
        )
        for name, patterns in entities.items()
    )
    among = _alternatives(tuple(rows))
    return tuple(tuple(among.named(text.encode())) for text in texts)


def entities_in(text: str, entities: Mapping[str, Sequence[Pattern]]) -> tuple[str, ...]:
    """Names of the entities that a text names, in the order of the policy."""
    (named,) = entities_of((text,), entities)
    return named


def chunk_entities(
    chunks: Sequence[Chunk], names: Mapping[str, Sequence[Pattern]]
) -> tuple[tuple[str, ...], ...]:
    """Entities of each chunk.

    Those that its metadata states and those that its text names (rule S2.5).
    """
    entities = entities_of([chunk.full_text for chunk in chunks], names)
    return tuple(
        tuple(dict.fromkeys((*chunk.entities, *own)))
        for chunk, own in zip(chunks, entities, strict=True)
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
    counts = np.zeros((len(cases), len(COUNTED)), dtype=np.int32)
    for column, name in enumerate(COUNTED):
        listed = getattr(patterns, name)
        for row, case in enumerate(cases):
            if not _cannot_match(listed, case.query):
                counts[row, column] = sum(matches(pattern, case.query) for pattern in listed)
    return PatternHits(
        patterns_hash=digest or patterns_hash(patterns),
        counts=counts,
        query_entities=entities_of([case.query for case in cases], patterns.entities),
        chunk_entities=chunk_entities(chunks, patterns.of_documents) if named is None else named,
    )
