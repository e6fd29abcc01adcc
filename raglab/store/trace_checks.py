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
from raglab.values import (
    FLOAT_FIELDS,
    MAX_HITS_PER_CASE,
    Answers,
    AnyArray,
    Hits,
    PatternHits,
    TraceData,
)

MAX_DEPTHS = 101  # `refine.max_depth` is at most 100
_UNIT_PARAMETERS = frozenset({"fetch_k", "score"})  # parameters of a search of ours, and of a frame
_RANGE_TOLERANCE = 1e-5  # by which a measurement in single precision may leave its range
_COSINE_TOLERANCE = 5e-3  # of l2 and 2 - 2 cosine: rows of float16 are of unit length within 1e-3
_LENGTH_TOLERANCE = 1e-2  # by which the length of an embedding may differ from 1
FIELD_RANGES: Mapping[str, tuple[float, float]] = {
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
    signal_prefix: str,
) -> None:
    """Stop at a column of another type than it is written in.

    To convert it would change its values unseen.

    Args:
      schema: of the file.
      expected: types that a column may have, by its name.
      signal_prefix: what the names of all columns of signals begin with, which is the name of their
        types.

    Raises:
      InputError: names the column, or one that no trace has.
    """
    counts = Counter(schema.names)
    for schema_field in schema:
        field_types = expected.get(
            signal_prefix if schema_field.name.startswith(signal_prefix) else schema_field.name,
            ["no column"],
        )
        if counts[schema_field.name] > 1 or schema_field.type not in field_types:
            type_rule = f"column {shown_value(schema_field.name)} must be one {field_types[0]}"
            raise BrokenRuleError(
                type_rule, f"{counts[schema_field.name]} {shown_value(str(schema_field.type))}"
            )


def check_trace(trace: TraceData) -> None:
    """Stop at a trace that retrieval could not have measured.

    Raises:
      InputError: rule, value and remedy of the first that is broken.

    Source: rules S1.1 to S1.4, S2.15.
    """
    for subject, signals_rule, is_broken, shown_values in _rules(trace):
        if np.any(is_broken):
            first_place = np.argwhere(is_broken)[0].tolist()
            shown_number = (
                shown_values
                if isinstance(shown_values, str)
                else f"{shown_values[tuple(first_place)]:.9g} at {first_place}"
            )
            broken_rule = f"{subject} must {signals_rule}"
            raise BrokenRuleError(broken_rule, shown_number)
    declarations = trace.meta.get("signals") or {}
    case_ids = [case.id for case in trace.cases]
    try:
        for subject in sorted(set(trace.columns).difference(NAMES)):  # of the user
            user_signal = declared_signal(subject, declarations.get(subject))
            signal_column(user_signal, trace.columns[subject], trace.hits.chunk.shape[:3], case_ids)
    except ValueError as error:
        signals_rule = "columns of signals must be as they are declared"
        raise BrokenRuleError(signals_rule, str(error).rstrip(".")) from error


def _rules(trace: TraceData) -> Iterator[_Rule]:
    """Rules of a trace in their order: each is worked out only where those before it hold."""
    hits, n_cases, n_chunks = trace.hits, len(trace.cases), len(trace.chunks)
    yield from _name_rules(trace)
    yield from _hit_rules(hits, (n_cases, len(trace.arms)), n_chunks)
    # Below this line the shapes of the hits are known to be right.
    cell_shape = hits.chunk.shape[:3]
    for form, (fits_form, key_names) in _META_FORMS.items():
        for key_name in key_names:
            meta_value = trace.meta.get(key_name)
            yield (
                f"meta.{key_name}",
                f"be {form}",
                meta_value is not None and not fits_form(meta_value),
                shown_value(meta_value),
            )
    # Of a search of ours and of a frame both are of the same two vectors of unit length.
    if not _UNIT_PARAMETERS.isdisjoint(trace.meta.get("parameters") or ()):
        yield (
            "l2",
            "be 2 - 2 cosine",
            np.abs(hits.l2 - 2 + 2 * hits.cosine) > _COSINE_TOLERANCE,
            hits.l2,
        )
    # The other parts of a trace are optional, and checked where it has them.
    if trace.pattern_hits is not None:
        yield from _pattern_rules(trace.pattern_hits, n_cases, n_chunks)
    if trace.queries is not None:
        are_whole = [
            len(arm_queries) == cell_shape[1]
            and all(
                len(depth_queries) == cell_shape[2] and _are_texts(depth_queries)
                for depth_queries in arm_queries
            )
            for arm_queries in trace.queries
        ]
        yield (
            "queries",
            f"be texts {cell_shape}",
            len(are_whole) != n_cases or not all(are_whole),
            "others",
        )
    if trace.answers is not None:
        yield from _answer_rules(trace.answers, cell_shape, n_chunks)
    if trace.vectors is not None:
        embeddings = trace.vectors
        yield _form("vectors", embeddings, "f", (n_chunks, *embeddings.shape[-1:]))
        vector_lengths = np.sqrt(np.einsum("cd,cd->c", embeddings, embeddings, dtype=np.float64))
        # A passage without a word may have no direction; NaN and infinity are neither.
        is_unit = (np.abs(vector_lengths - 1.0) <= _LENGTH_TOLERANCE) | (vector_lengths == 0.0)
        yield "vectors", "be of unit length", ~is_unit, vector_lengths
    for key_name in sorted(set(trace.columns).intersection(NAMES)):
        signal_column = trace.columns[key_name]
        signal_unit = signal(key_name).unit
        yield _form(key_name, signal_column, "f", cell_shape)
        yield _range(key_name, signal_column, signal_unit.low, signal_unit.high)


def _form(
    subject: str, array: AnyArray, dtype_kinds: str, expected_shape: tuple[int, ...]
) -> _Rule:
    """Kinds of numbers, as NumPy's letters, and the shape of an array."""
    number_noun = "floats" if dtype_kinds == "f" else "integers"
    return (
        subject,
        f"be {number_noun} {expected_shape}",
        array.dtype.kind not in dtype_kinds or array.shape != expected_shape,
        f"{array.dtype} {array.shape}",
    )


def _range(subject: str, array: AnyArray, lower_bound: float, upper_bound: float) -> _Rule:
    """Range of the numbers of an array; NaN is a missing one."""
    return (
        subject,
        f"lie in [{lower_bound:g}, {upper_bound:g}]",
        np.isinf(array)
        | (array < lower_bound - _RANGE_TOLERANCE)
        | (array > upper_bound + _RANGE_TOLERANCE),
        array,
    )


def _shown_items(items: Sequence[object]) -> str:
    return ", ".join(map(shown_value, items[:3]))


def _are_texts(text_values: object) -> bool:
    return isinstance(text_values, list | tuple) and all(
        isinstance(text_value, str) for text_value in text_values
    )


def _is_filled(text_value: object) -> bool:
    return isinstance(text_value, str) and bool(text_value)


# of what decisions and studies read of a trace's meta
_META_FORMS: Mapping[str, tuple[Callable[[Any], bool], tuple[str, ...]]] = {
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
    for plural_noun, own_names in (
        ("cases", [case.id for case in trace.cases]),
        ("arms", list(trace.arms)),
        ("passages", [chunk.chunk_id for chunk in trace.chunks]),
    ):
        yield plural_noun, "be named by texts", not _are_texts(own_names), "others"
        wrong_names = [
            wrong_name
            for wrong_name, n_uses in Counter(own_names).items()
            if n_uses > 1 or not wrong_name
        ]
        yield plural_noun, "have different names", bool(wrong_names), _shown_items(wrong_names)
    wrong_names = [
        chunk.chunk_id
        for chunk in trace.chunks
        if not chunk.source
        or (chunk.page or 0) > MAX_INTEGER
        or not _are_texts([*chunk.tags.values()])
    ]
    yield (
        "passages",
        f"have a source, pages up to {MAX_INTEGER} and texts as tags",
        bool(wrong_names),
        _shown_items(wrong_names),
    )


def _hit_rules(hits: Hits, n_cases_and_arms: tuple[int, int], n_chunks: int) -> Iterator[_Rule]:
    """Hits are such as a search gives, of cases and arms, by rules S1.1 to S1.3."""
    # Shapes and types first: all that follows compares the arrays with one another.
    hits_shape = hits.chunk.shape
    yield (
        "hits",
        f"be of {n_cases_and_arms[0]} cases and {n_cases_and_arms[1]} arms",
        len(hits_shape) != 4 or hits_shape[:2] != n_cases_and_arms,
        str(hits_shape),
    )
    yield (
        "hits",
        f"be of 1 to {MAX_DEPTHS} depths and {MAX_HITS_PER_CASE:,} at most",
        not 1 <= hits_shape[2] <= MAX_DEPTHS or hits_shape[3] > MAX_HITS_PER_CASE,
        str(hits_shape),
    )
    for field_name, measurement in hits._asdict().items():
        yield _form(
            field_name,
            measurement,
            "f" if field_name in FLOAT_FIELDS else "iu",
            hits_shape[:3] if field_name == "n_reranked" else hits_shape,
        )
    chunk_indices, hit_ranks, n_reranked = hits.chunk, hits.rank, hits.n_reranked
    # Padding has no passage: anything else would be read as a hit.
    is_hit = chunk_indices >= 0
    n_hits = is_hit.sum(axis=-1)
    yield _range("chunk", chunk_indices, -1, n_chunks - 1)
    yield (
        "chunk",
        "be padded at the end",
        is_hit[..., 1:] & ~is_hit[..., :-1],
        chunk_indices[..., 1:],
    )
    sorted_chunks = np.sort(chunk_indices, axis=-1)
    previous_chunks = sorted_chunks[..., :-1]
    next_chunks = sorted_chunks[..., 1:]
    yield (
        "chunk",
        "hold a passage once",
        (previous_chunks == next_chunks) & (next_chunks >= 0),
        next_chunks,
    )
    # Sorted from the right, ranks of n hits are …, -1, 0, 1, …, n - 1: each place is known.
    sorted_ranks = np.sort(hit_ranks, axis=-1)
    expected_ranks = np.arange(hits_shape[3]) - hits_shape[3] + n_hits[..., None]
    yield "rank", "count 0, 1, 2, …", sorted_ranks != np.maximum(expected_ranks, -1), sorted_ranks
    yield "rank", "be of a hit", (hit_ranks >= 0) != is_hit, hit_ranks
    yield "n_reranked", "count hits", (n_reranked < 0) | (n_reranked > n_hits), n_reranked
    for field_name in FLOAT_FIELDS:
        measurement = getattr(hits, field_name)
        yield _range(field_name, measurement, *FIELD_RANGES[field_name])
        yield field_name, "be of a hit", ~np.isnan(measurement) & ~is_hit, measurement
    # l2 and cosine are of the same two vectors: one without the other is no measurement.
    is_missing = np.isnan(hits.l2)
    yield "l2", "stand with cosine", is_missing != np.isnan(hits.cosine), hits.l2
    nearer_distances = hits.l2[..., :-1]
    farther_distances = hits.l2[..., 1:]
    yield (
        "l2",
        "ascend",
        (farther_distances < nearer_distances) | (is_missing[..., :-1] & ~is_missing[..., 1:]),
        farther_distances,
    )
    yield (
        "s_rerank",
        "be of the first n_reranked hits",
        ~np.isnan(hits.s_rerank) & (hit_ranks >= n_reranked[..., None]),
        hits.s_rerank,
    )


def _pattern_rules(patterns: PatternHits, n_cases: int, n_chunks: int) -> Iterator[_Rule]:
    """Counts of patterns are counts, and names are texts."""
    yield _form("pattern_counts", patterns.counts, "iu", (n_cases, len(COUNTED_LISTS)))
    yield _range("pattern_counts", patterns.counts, 0, MAX_PATTERNS)
    for subject, name_lists, n_lists in (
        ("query_entities", patterns.query_entities, n_cases),
        ("entities_found", patterns.chunk_entities, n_chunks),
    ):
        yield (
            subject,
            f"be {n_lists} lists of texts",
            len(name_lists) != n_lists or not all(map(_are_texts, name_lists)),
            f"{len(name_lists)} lists",
        )
    yield "patterns_hash", "be a text", not _are_texts([patterns.patterns_hash]), "another"


def _answer_rules(answers: Answers, cell_shape: tuple[int, ...], n_chunks: int) -> Iterator[_Rule]:
    """Recorded answers are of cases, arms, depths and passages of the trace, one a set of hits."""
    for field_name, lower_bound, upper_bound in (
        *(
            (field_name, 0, n_positions - 1)
            for field_name, n_positions in zip(("row", "arm", "depth"), cell_shape, strict=True)
        ),
        ("chunks", -1, n_chunks - 1),
        ("confidence", 0, 1),
        ("support", 0, 1),
    ):
        yield _range(
            f"answers.{field_name}", getattr(answers, field_name), lower_bound, upper_bound
        )
    is_hit = answers.chunks >= 0
    next_chunks = answers.chunks[:, 1:]
    yield "answers.chunks", "be padded at the end", is_hit[:, 1:] & ~is_hit[:, :-1], next_chunks
    answer_texts = [
        answers.generator,
        answers.scorer,
        *answers.text,
        *answers.claim,
        *answers.refused,
    ]
    yield "texts of answers", "be texts", not _are_texts(answer_texts), "another"
    wrong_citations = [
        cited_chunks
        for cited_chunks, hit_chunks in zip(answers.cited, answers.chunks.tolist(), strict=True)
        if not set(cited_chunks) <= set(hit_chunks) - {-1}
    ]
    yield (
        "answers.cited",
        "be among the chunks",
        bool(wrong_citations),
        _shown_items(wrong_citations),
    )
    # Two answers to one set of hits: which of them decides would hang on their order.
    answer_cells = np.stack([answers.row, answers.arm, answers.depth], axis=1)
    answer_keys = np.concatenate([answer_cells, answers.chunks], axis=1)
    yield (
        "answers",
        "be of different hits",
        len(np.unique(answer_keys, axis=0)) < len(answer_keys),
        "several",
    )
