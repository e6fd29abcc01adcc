"""Checks of a trace from a file (shore): column types, range and place of every number.

A digest tells damage, not whoever computes it again. So what a file holds is checked as if it had
none: a trace that loads is one that retrieval could have measured (S1.1 to S1.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab.decision.document_names import EXACT_NAMES
from raglab.decision.measurement import CAN_BE_OFF
from raglab.policy_parts.patterns import COUNTED_LISTS, MAX_PATTERNS
from raglab.signals import NAMES, declared_signal, signal
from raglab.store.files import InputError, input_error, shown_value
from raglab.store.records import MAX_INTEGER
from raglab.store.signal_columns import signal_column
from raglab.values import FLOAT_FIELDS, MAX_HITS_PER_CASE, Answers, Hits, PatternHits, TraceData

MOST_DEPTHS = 101  # `refine.max_depth` is at most 100
_OF_BOTH = frozenset({"fetch_k", "score"})  # parameters of a search of ours, and of a frame
_ROUNDING = 1e-5  # by which a measurement in single precision may leave its range
_APART = 5e-3  # of l2 and 2 - 2 cosine: rows of float16 are of unit length within 1e-3
_UNIT_LENGTH = 1e-2  # by which the length of an embedding may differ from 1
RANGES: Mapping[str, tuple[float, float]] = {
    "l2": (0.0, 4.0),
    "s_hybrid": (0.0, 1.0),
    "s_rerank": (0.0, 1.0),
    "s_raw": (-1e308, 1e308),
    **dict.fromkeys(("cosine", "anchor_sim", "sig_sim", "sig_sim_strict"), (-1.0, 1.0)),
}
# What has a rule, and the rule behind "must"; where it is broken, as a mask or one fact; and the
# array whose number at that place is shown, or the value as text.
_Rule = tuple[str, str, "NDArray[np.bool_] | bool", "NDArray[Any] | str"]


class BrokenRuleError(InputError):
    """A trace breaks a rule of what retrieval measures."""

    def __init__(self, rule: str, value: str) -> None:
        super().__init__(str(input_error("trace", rule, "build the trace again", value)))
        self.rule, self.value = rule, value


# of pyarrow, which one module imports
def check_column_types(
    schema: Any,  # noqa: ANN401
    expected: Mapping[str, Sequence[object]],
    signals: str,
) -> None:
    """Stop at a column of another type than it is written in.

    To convert it would change its values unseen.

    Args:
      schema: of the file.
      expected: types that a column may have, by its name.
      signals: what the names of all columns of signals begin with, which is the name of their
        types.

    Raises:
      InputError: names the column, or one that no trace has.
    """
    counts = Counter(schema.names)
    for field in schema:
        kinds = expected.get(
            signals if field.name.startswith(signals) else field.name, ["no column"]
        )
        if counts[field.name] > 1 or field.type not in kinds:
            rule = f"column {shown_value(field.name)} must be one {kinds[0]}"
            raise BrokenRuleError(rule, f"{counts[field.name]} {shown_value(str(field.type))}")


def check_trace(trace: TraceData) -> None:
    """Stop at a trace that retrieval could not have measured.

    Raises:
      InputError: rule, value and remedy of the first that is broken.

    Source: rules S1.1 to S1.4, S2.15.
    """
    for name, rule, broken, value in _rules(trace):
        if np.any(broken):
            place = np.argwhere(broken)[0].tolist()
            shown = value if isinstance(value, str) else f"{value[tuple(place)]:.9g} at {place}"
            broken_rule = f"{name} must {rule}"
            raise BrokenRuleError(broken_rule, shown)
    stated, ids = trace.meta.get("signals") or {}, [case.id for case in trace.cases]
    try:
        for name in sorted(set(trace.columns).difference(NAMES)):  # of the user
            user_signal = declared_signal(name, stated.get(name))
            signal_column(user_signal, trace.columns[name], trace.hits.chunk.shape[:3], ids)
    except ValueError as error:
        rule = "columns of signals must be as they are declared"
        raise BrokenRuleError(rule, str(error).rstrip(".")) from error


def _rules(trace: TraceData) -> Iterator[_Rule]:
    """Rules of a trace in their order: each is worked out only where those before it hold."""
    hits, n_cases, n_chunks = trace.hits, len(trace.cases), len(trace.chunks)
    yield from _name_rules(trace)
    yield from _hit_rules(hits, (n_cases, len(trace.arms)), n_chunks)
    shape = hits.chunk.shape[:3]
    for what, (fits, names) in _META.items():
        for name in names:
            value = trace.meta.get(name)
            yield (
                f"meta.{name}",
                f"be {what}",
                value is not None and not fits(value),
                shown_value(value),
            )
    # Of a search of ours and of a frame both are of the same two vectors of unit length.
    if not _OF_BOTH.isdisjoint(trace.meta.get("parameters") or ()):
        yield "l2", "be 2 - 2 cosine", np.abs(hits.l2 - 2 + 2 * hits.cosine) > _APART, hits.l2
    if trace.pattern_hits is not None:
        yield from _pattern_rules(trace.pattern_hits, n_cases, n_chunks)
    if trace.queries is not None:
        whole = [
            len(arms) == shape[1]
            and all(len(depths) == shape[2] and _are_texts(depths) for depths in arms)
            for arms in trace.queries
        ]
        yield "queries", f"be texts {shape}", len(whole) != n_cases or not all(whole), "others"
    if trace.answers is not None:
        yield from _answer_rules(trace.answers, shape, n_chunks)
    if trace.vectors is not None:
        vectors = trace.vectors
        yield _form("vectors", vectors, "f", (n_chunks, *vectors.shape[-1:]))
        lengths = np.sqrt(np.einsum("cd,cd->c", vectors, vectors, dtype=np.float64))
        # A passage without a word may have no direction; NaN and infinity are neither.
        is_unit = (np.abs(lengths - 1.0) <= _UNIT_LENGTH) | (lengths == 0.0)
        yield "vectors", "be of unit length", ~is_unit, lengths
    for name in sorted(set(trace.columns).intersection(NAMES)):
        column, unit = trace.columns[name], signal(name).unit
        yield _form(name, column, "f", shape)
        yield _range(name, column, unit.low, unit.high)


def _form(name: str, array: NDArray[Any], kinds: str, shape: tuple[int, ...]) -> _Rule:
    """Kinds of numbers, as NumPy's letters, and the shape of an array."""
    what = "floats" if kinds == "f" else "integers"
    return (
        name,
        f"be {what} {shape}",
        array.dtype.kind not in kinds or array.shape != shape,
        f"{array.dtype} {array.shape}",
    )


def _range(name: str, array: NDArray[Any], low: float, high: float) -> _Rule:
    """Range of the numbers of an array; NaN is a missing one."""
    return (
        name,
        f"lie in [{low:g}, {high:g}]",
        np.isinf(array) | (array < low - _ROUNDING) | (array > high + _ROUNDING),
        array,
    )


def _shown_items(items: Sequence[object]) -> str:
    return ", ".join(map(shown_value, items[:3]))


def _are_texts(values: object) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


def _is_filled(value: object) -> bool:
    return isinstance(value, str) and bool(value)


# of what decisions and studies read of a trace's meta
_META: Mapping[str, tuple[Callable[[Any], bool], tuple[str, ...]]] = {
    "a text": (_is_filled, ("fingerprint", "cases_hash", "corpus_hash", "corpus", "pack")),
    "an object": (lambda value: isinstance(value, Mapping), ("parameters", "signals")),
    f"among {', '.join(CAN_BE_OFF)}": (
        lambda value: _are_texts(value) and set(value) <= set(CAN_BE_OFF),
        ("gates_off",),
    ),
    "a list of texts": (_are_texts, (EXACT_NAMES,)),
    "a count": (lambda value: type(value) is int and value >= 0, ("n_chunks", "n_documents")),
}


def _name_rules(trace: TraceData) -> Iterator[_Rule]:
    """Cases, arms and passages have names, each its own; passages hold what a case may hit."""
    for what, names in (
        ("cases", [case.id for case in trace.cases]),
        ("arms", list(trace.arms)),
        ("passages", [chunk.chunk_id for chunk in trace.chunks]),
    ):
        yield what, "be named by texts", not _are_texts(names), "others"
        wrong = [name for name, count in Counter(names).items() if count > 1 or not name]
        yield what, "have different names", bool(wrong), _shown_items(wrong)
    wrong = [
        chunk.chunk_id
        for chunk in trace.chunks
        if not chunk.source
        or (chunk.page or 0) > MAX_INTEGER
        or not _are_texts([*chunk.tags.values()])
    ]
    yield (
        "passages",
        f"have a source, pages up to {MAX_INTEGER} and texts as tags",
        bool(wrong),
        _shown_items(wrong),
    )


def _hit_rules(hits: Hits, size: tuple[int, int], n_chunks: int) -> Iterator[_Rule]:
    """Hits are such as a search gives, of cases and arms, by rules S1.1 to S1.3."""
    # Shapes and types first: all that follows compares the arrays with one another.
    shape = hits.chunk.shape
    yield (
        "hits",
        f"be of {size[0]} cases and {size[1]} arms",
        len(shape) != 4 or shape[:2] != size,
        str(shape),
    )
    yield (
        "hits",
        f"be of 1 to {MOST_DEPTHS} depths and {MAX_HITS_PER_CASE:,} at most",
        not 1 <= shape[2] <= MOST_DEPTHS or shape[3] > MAX_HITS_PER_CASE,
        str(shape),
    )
    for name, field in hits._asdict().items():
        yield _form(
            name,
            field,
            "f" if name in FLOAT_FIELDS else "iu",
            shape[:3] if name == "n_reranked" else shape,
        )
    chunk, rank, n_reranked = hits.chunk, hits.rank, hits.n_reranked
    is_hit = chunk >= 0
    n_hits = is_hit.sum(axis=-1)
    yield _range("chunk", chunk, -1, n_chunks - 1)
    yield "chunk", "be padded at the end", is_hit[..., 1:] & ~is_hit[..., :-1], chunk[..., 1:]
    ordered = np.sort(chunk, axis=-1)
    before, after = ordered[..., :-1], ordered[..., 1:]
    yield "chunk", "hold a passage once", (before == after) & (after >= 0), after
    # Sorted from the right, ranks of n hits are …, -1, 0, 1, …, n - 1: each place is known.
    ranks = np.sort(rank, axis=-1)
    wanted = np.arange(shape[3]) - shape[3] + n_hits[..., None]
    yield "rank", "count 0, 1, 2, …", ranks != np.maximum(wanted, -1), ranks
    yield "rank", "be of a hit", (rank >= 0) != is_hit, rank
    yield "n_reranked", "count hits", (n_reranked < 0) | (n_reranked > n_hits), n_reranked
    for name in FLOAT_FIELDS:
        field = getattr(hits, name)
        yield _range(name, field, *RANGES[name])
        yield name, "be of a hit", ~np.isnan(field) & ~is_hit, field
    # l2 and cosine are of the same two vectors: one without the other is no measurement.
    is_missing = np.isnan(hits.l2)
    yield "l2", "stand with cosine", is_missing != np.isnan(hits.cosine), hits.l2
    nearer, farther = hits.l2[..., :-1], hits.l2[..., 1:]
    yield (
        "l2",
        "ascend",
        (farther < nearer) | (is_missing[..., :-1] & ~is_missing[..., 1:]),
        farther,
    )
    yield (
        "s_rerank",
        "be of the first n_reranked hits",
        ~np.isnan(hits.s_rerank) & (rank >= n_reranked[..., None]),
        hits.s_rerank,
    )


def _pattern_rules(patterns: PatternHits, n_cases: int, n_chunks: int) -> Iterator[_Rule]:
    """Counts of patterns are counts, and names are texts."""
    yield _form("pattern_counts", patterns.counts, "iu", (n_cases, len(COUNTED_LISTS)))
    yield _range("pattern_counts", patterns.counts, 0, MAX_PATTERNS)
    for name, rows, size in (
        ("query_entities", patterns.query_entities, n_cases),
        ("entities_found", patterns.chunk_entities, n_chunks),
    ):
        yield (
            name,
            f"be {size} lists of texts",
            len(rows) != size or not all(map(_are_texts, rows)),
            f"{len(rows)} lists",
        )
    yield "patterns_hash", "be a text", not _are_texts([patterns.patterns_hash]), "another"


def _answer_rules(answers: Answers, shape: tuple[int, ...], n_chunks: int) -> Iterator[_Rule]:
    """Recorded answers are of cases, arms, depths and passages of the trace, one a set of hits."""
    for name, low, high in (
        *((name, 0, size - 1) for name, size in zip(("row", "arm", "depth"), shape, strict=True)),
        ("chunks", -1, n_chunks - 1),
        ("confidence", 0, 1),
        ("support", 0, 1),
    ):
        yield _range(f"answers.{name}", getattr(answers, name), low, high)
    is_hit, after = answers.chunks >= 0, answers.chunks[:, 1:]
    yield "answers.chunks", "be padded at the end", is_hit[:, 1:] & ~is_hit[:, :-1], after
    texts = [answers.generator, answers.scorer, *answers.text, *answers.claim, *answers.refused]
    yield "texts of answers", "be texts", not _are_texts(texts), "another"
    wrong = [
        cited
        for cited, chunks in zip(answers.cited, answers.chunks.tolist(), strict=True)
        if not set(cited) <= set(chunks) - {-1}
    ]
    yield "answers.cited", "be among the chunks", bool(wrong), _shown_items(wrong)
    # Two answers to one set of hits: which of them decides would hang on their order.
    places = np.stack([answers.row, answers.arm, answers.depth], axis=1)
    keys = np.concatenate([places, answers.chunks], axis=1)
    yield "answers", "be of different hits", len(np.unique(keys, axis=0)) < len(keys), "several"
