"""Checks of a trace from a file (shore): column types, range and place of every number.

A digest tells damage, not whoever computes it again. So what a file holds is checked as if it had
none: a trace that loads is one that retrieval could have measured (S1.1 to S1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from raglab.decision.document_names import EXACT_NAMES
from raglab.decision.measurement import CAN_BE_OFF
from raglab.policy_parts.patterns import COUNTED, MOST_PATTERNS
from raglab.signals import NAMES, signal
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.records import MAX_INTEGER
from raglab.store.signal_columns import check_columns
from raglab.values import FLOAT_FIELDS, MOST_HITS, Answers, Hits, PatternHits, TraceData

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


class BrokenRuleError(InputError):
    """A trace breaks a rule of what retrieval measures."""

    def __init__(self, rule: str, value: str) -> None:
        super().__init__(str(input_error(Where("trace"), rule, "build the trace again", value)))
        self.rule, self.value = rule, value


def _refuse(rule: str, value: str) -> NoReturn:
    raise BrokenRuleError(rule, value)


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
    if len(set(schema.names)) < len(schema.names):
        _refuse(
            "columns must have different names",
            f"{len(schema.names) - len(set(schema.names))} again",
        )
    for field in schema:
        kinds = expected.get(signals if field.name.startswith(signals) else field.name)
        if kinds is None:
            _refuse("columns must be those of a trace", shown_value(field.name))
        if field.type not in kinds:
            _refuse(
                f"column {shown_value(field.name)} must be {kinds[0]}", shown_value(str(field.type))
            )


def check_trace(trace: TraceData) -> None:
    """Stop at a trace that retrieval could not have measured.

    Raises:
      InputError: rule, value and remedy of the first that is broken.

    Source: rules S1.1 to S1.4, S2.15.
    """
    _check_names(trace)
    check_hits(trace.hits, (len(trace.cases), len(trace.arms)), len(trace.chunks))
    _check_chunks(trace)
    _check_meta(trace)
    # Of a search of ours and of a frame both are of the same two vectors of unit length.
    if not _OF_BOTH.isdisjoint(trace.meta.get("parameters") or ()):
        hits = trace.hits
        _none_at(
            "l2",
            np.abs(hits.l2 - (2.0 - 2.0 * hits.cosine)) > _APART,
            "l2 that is not 2 - 2 cosine",
        )
    if trace.pattern_hits is not None:
        _check_patterns(trace.pattern_hits, len(trace.cases), len(trace.chunks))
    if trace.queries is not None:
        _check_queries(trace)
    if trace.answers is not None:
        _check_answers(trace.answers, trace.hits.chunk.shape[:3], len(trace.chunks))
    if trace.vectors is not None:
        _check_vectors(trace.vectors, len(trace.chunks))
    _check_columns(trace)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _check_names(trace: TraceData) -> None:
    """Cases, arms and passages have names, each its own."""
    named: Mapping[str, Iterable[object]] = {
        "a case": (case.id for case in trace.cases),
        "an arm": trace.arms,
        "a passage": (chunk.chunk_id for chunk in trace.chunks),
    }
    for what, names in named.items():
        known: set[object] = set()
        for name in names:
            if not _is_text(name):
                _refuse(f"{what} must be named by a text", shown_value(name))
            if name in known:
                _refuse(f"{what} must have a name of its own", f"{shown_value(name)} twice")
            known.add(name)


def check_hits(hits: Hits, size: tuple[int, int], n_chunks: int) -> None:
    """Stop at hits that no search gives.

    Of another shape or type, out of range, out of order, or of no passage.

    Args:
      size: cases and arms.
      n_chunks: passages of the trace.

    Raises:
      InputError: rule, value and remedy of the first that is broken.

    Source: rules S1.1 to S1.3.
    """
    # Shapes and types first: all that follows compares the arrays with one another.
    shape = hits.chunk.shape
    if len(shape) != 4 or shape[:2] != size or not 1 <= shape[2] <= MOST_DEPTHS:
        _refuse(
            f"hits must be of {size[0]} cases, {size[1]} arms and 1 to {MOST_DEPTHS} depths",
            str(shape),
        )
    if shape[3] > MOST_HITS:
        _refuse(f"hits of a case, arm and depth must be at most {MOST_HITS:,}", f"{shape[3]:,}")
    for name, field in hits._asdict().items():
        kind, what = ("f", "floats") if name in FLOAT_FIELDS else ("iu", "integers")
        dims = shape[:3] if name == "n_reranked" else shape
        if field.dtype.kind not in kind or field.shape != dims:
            _refuse(f"{name} must be {what} {dims}", f"{field.dtype} {field.shape}")
    there = hits.chunk >= 0
    _check_places(hits, there, n_chunks)
    for name in FLOAT_FIELDS:
        field, (low, high) = getattr(hits, name), RANGES[name]
        _within(name, field, low, high)
        _none_at(name, ~np.isnan(field) & ~there, "a value where there is no hit")
    # l2 and cosine are of the same two vectors: one without the other is no measurement.
    _none_at("l2", np.isnan(hits.l2) != np.isnan(hits.cosine), "l2 or cosine without the other")
    before, after = hits.l2[..., :-1], hits.l2[..., 1:]
    _none_at(
        "l2",
        (after < before) | (np.isnan(before) & ~np.isnan(after)),
        "hits that are not in ascending l2",
    )
    _none_at(
        "s_rerank",
        ~np.isnan(hits.s_rerank) & (hits.rank >= hits.n_reranked[..., None]),
        "a score past the last",
    )


def _check_places(hits: Hits, there: NDArray[np.bool_], n_chunks: int) -> None:
    """Passages and ranks: each passage once, ranks 0, 1, 2, …, and nothing behind the last hit."""
    chunk, rank, n_hits = hits.chunk, hits.rank, there.sum(axis=-1)
    _none_at(
        "chunk", (chunk < -1) | (chunk >= n_chunks), f"a position outside the {n_chunks} passages"
    )
    _none_at("chunk", there[..., 1:] & ~there[..., :-1], "a hit behind the end of the hits")
    ordered = np.sort(chunk, axis=-1)
    _none_at(
        "chunk",
        (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0),
        "a passage twice",
    )
    # Sorted from the right, ranks of n hits are …, -1, 0, 1, …, n - 1: each place is known.
    width = chunk.shape[-1]
    wanted = np.maximum(np.arange(width) - (width - n_hits[..., None]), -1)
    _none_at("rank", np.sort(rank, axis=-1) != wanted, "ranks that do not count 0, 1, 2, …")
    _none_at("rank", (rank >= 0) != there, "a rank where there is no hit")
    counted = hits.n_reranked
    _none_at("n_reranked", (counted < 0) | (counted > n_hits), "more or less than there are hits")


def _none_at(name: str, wrong: NDArray[np.bool_], what: str) -> None:
    """Stop where a fact about a field is wrong of some value."""
    if wrong.any():
        place = ", ".join(map(str, np.argwhere(wrong)[0].tolist()))
        _refuse(f"{name} must be as retrieval measures it", f"{what} at [{place}]")


def _within(name: str, field: NDArray[Any], low: float, high: float) -> None:
    """Stop at a number outside its range; NaN is a missing one."""
    wrong = np.isinf(field) | (field < low - _ROUNDING) | (field > high + _ROUNDING)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        _refuse(f"{name} must lie in [{low:g}, {high:g}]", f"{field[place]:.9g} at {list(place)}")


def _check_chunks(trace: TraceData) -> None:
    """Passages hold texts, and a page that one can be on."""
    for chunk in trace.chunks:
        where = shown_value(chunk.chunk_id)
        if not isinstance(chunk.text, str) or not _is_text(chunk.source):
            _refuse("a passage must have a text and a source", where)
        page = chunk.page
        if page is not None and (type(page) is not int or not 1 <= page <= MAX_INTEGER):
            _refuse(
                f"a page must be an integer from 1 to {MAX_INTEGER}",
                f"{shown_value(page)} of {where}",
            )
        if not isinstance(chunk.page_label, str | None):
            _refuse("page_label must be a text", f"{shown_value(chunk.page_label)} of {where}")
        if not isinstance(chunk.tags, Mapping) or not all(
            isinstance(tag, str) for tag in chunk.tags.values()
        ):
            _refuse("tags must be texts by name", f"others of {where}")
        # Whatever else a passage has several of is texts too.
        if not all(
            isinstance(item, str) for field in chunk if isinstance(field, tuple) for item in field
        ):
            _refuse("lists of a passage must hold texts", f"others of {where}")


def _check_meta(trace: TraceData) -> None:
    """What decisions and studies read of a trace's meta is of the type that it is written in."""
    meta = trace.meta
    kinds: Mapping[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys(
            ("fingerprint", "cases_hash", "corpus_hash", "corpus", "pack"), (_is_text, "a text")
        ),
        **dict.fromkeys(
            ("parameters", "signals"), (lambda value: isinstance(value, Mapping), "an object")
        ),
        "gates_off": (
            lambda value: _texts(value) and set(value) <= set(CAN_BE_OFF),
            f"among {', '.join(CAN_BE_OFF)}",
        ),
        EXACT_NAMES: (_texts, "a list of texts"),
        **dict.fromkeys(
            ("n_chunks", "n_documents"),
            (lambda value: type(value) is int and value >= 0, "a count"),
        ),
    }
    for name, (fits, what) in kinds.items():
        if meta.get(name) is not None and not fits(meta[name]):
            _refuse(f"{name} of a trace's meta must be {what}", shown_value(meta[name]))


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _check_patterns(counted: PatternHits, n_cases: int, n_chunks: int) -> None:
    """Counts of patterns are counts, and names are texts."""
    counts = counted.counts
    if counts.shape != (n_cases, len(COUNTED)) or counts.dtype.kind not in "iu":
        _refuse(
            f"pattern_counts must be integers {(n_cases, len(COUNTED))}",
            f"{counts.dtype} {counts.shape}",
        )
    _none_at("pattern_counts", (counts < 0) | (counts > MOST_PATTERNS), "no count of patterns")
    named = (
        ("query_entities", counted.query_entities, n_cases),
        ("entities_found", counted.chunk_entities, n_chunks),
    )
    for name, rows, size in named:
        if len(rows) != size or not all(map(_texts, rows)):
            _refuse(
                f"{name} must be lists of texts, {size} of them", f"{len(rows)}, or others in them"
            )
    if not isinstance(counted.patterns_hash, str):
        _refuse("patterns_hash must be a text", shown_value(counted.patterns_hash))


def _check_queries(trace: TraceData) -> None:
    """What was searched is a text for each case, arm and depth."""
    n_cases, n_arms, n_depths = trace.hits.chunk.shape[:3]
    rows = trace.queries or ()
    whole = len(rows) == n_cases and all(len(arms) == n_arms for arms in rows)
    if not whole or not all(
        len(depths) == n_depths and _texts(depths) for arms in rows for depths in arms
    ):
        _refuse(
            f"queries must be a text for each of {n_arms} arms and {n_depths} depths of a case",
            "others",
        )


def _check_answers(answers: Answers, shape: tuple[int, ...], n_chunks: int) -> None:
    """Recorded answers are of cases, arms, depths and passages of the trace, chances in [0, 1].

    Each is there once.
    """
    for name, size in zip(("row", "arm", "depth"), shape, strict=True):
        place = getattr(answers, name)
        _none_at(
            f"{name} of an answer", (place < 0) | (place >= size), f"a position outside {size}"
        )
    _none_at(
        "chunks of an answer",
        (answers.chunks < -1) | (answers.chunks >= n_chunks),
        "no passage of the trace",
    )
    there = answers.chunks >= 0
    _none_at("chunks of an answer", there[:, 1:] & ~there[:, :-1], "a gap")
    for name in ("confidence", "support"):
        _within(f"{name} of an answer", getattr(answers, name), 0.0, 1.0)
    for name in ("text", "claim", "refused"):
        if not all(isinstance(text, str) for text in getattr(answers, name)):
            _refuse(f"{name} of an answer must be a text", "another value")
    for cited, chunks in zip(answers.cited, answers.chunks.tolist(), strict=True):
        if not {-1}.isdisjoint(cited) or not set(cited) <= set(chunks):
            _refuse("cited of an answer must be among its chunks", shown_value(cited))
    if not isinstance(answers.generator, str) or not isinstance(answers.scorer, str):
        _refuse(
            "generator and scorer must be texts", shown_value([answers.generator, answers.scorer])
        )
    # Two answers to one set of hits: which of them decides would hang on their order.
    places = np.stack([answers.row, answers.arm, answers.depth], axis=1)
    keys = np.concatenate([places, answers.chunks], axis=1)
    if len(np.unique(keys, axis=0)) < len(keys):
        _refuse("a set of hits must have one answer", "two")


def _check_vectors(vectors: NDArray[np.float32], n_chunks: int) -> None:
    """Embeddings are of unit length or zero, one a passage."""
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or len(vectors) != n_chunks:
        _refuse(f"vectors must be floats ({n_chunks}, dim)", f"{vectors.dtype} {vectors.shape}")
    lengths = np.sqrt(np.einsum("cd,cd->c", vectors, vectors, dtype=np.float64))
    # A passage without a word may have no direction; NaN and infinity are neither.
    wrong = ~((np.abs(lengths - 1.0) <= _UNIT_LENGTH) | (lengths == 0.0))
    if wrong.any():
        place = int(np.argmax(wrong))
        _refuse("vectors must be of unit length", f"{lengths[place]:.9g} at [{place}]")


def _check_columns(trace: TraceData) -> None:
    """Columns of signals lie in the range of their unit, those that raglab measures too."""
    for name in sorted(set(trace.columns).intersection(NAMES)):
        column, unit = trace.columns[name], signal(name).unit
        if column.shape != trace.hits.chunk.shape[:3]:
            _refuse(f"{name} must be {trace.hits.chunk.shape[:3]}", str(column.shape))
        _within(name, column, unit.low, unit.high)
    try:
        check_columns(trace)
    except ValueError as error:
        _refuse("columns of signals must be as they are declared", str(error).rstrip("."))
