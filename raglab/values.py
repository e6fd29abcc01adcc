"""Values (algebra): Case, Chunk, Hits, Trace; what all others speak in.

Axis letters, used everywhere: `Q` cases, `A` arms, `D` refinement depths, `K` hits, `G` groups,
`P` policies. `[...]` is any leading batch. Arrays of the algebra are float64; a missing
measurement is NaN, a missing index is -1, and neither ever passes a gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64] | float
Ints = NDArray[np.integer[Any]] | int
Bools = NDArray[np.bool_] | bool

SCHEMA_VERSION = 3
LONGEST_QUESTION = 20_000  # characters of a question, at every door
TAG_KEYS = ("domain", "doc_type", "product", "vendor", "version")


class Status(IntEnum):
    """The three outcomes of a decision, and of a label (rule S0.1)."""

    ok = 0
    refuse = 1
    ambiguous = 2


class Chunk(NamedTuple):
    """One retrievable passage.

    chunk_id: unique in its corpus. source: path of its document; the last part is the file name.
    page: position of the page in the document, from 1, or None. page_label: as printed.
    tags: `domain`, `doc_type`, `product`, `vendor`, `version` and any other; blank is missing.
    entities: names of the entities that its metadata states.
    """

    chunk_id: str
    text: str
    source: str
    page: int | None = None
    page_label: str | None = None
    tags: Mapping[str, str] = {}
    entities: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        """The last part of `source`, with either kind of slash."""
        last = self.source.replace("\\", "/").rstrip("/").rpartition("/")[2]
        return last if last != "." else PurePosixPath(self.source).name

    @property
    def page_shown(self) -> str:
        """Page as sources name it: the number, else the label, else n/a."""
        return str(self.page) if self.page is not None else self.page_label or "n/a"

    @property
    def shown(self) -> str:
        """Source as labels and answers name it: `file#page`."""
        return f"{self.file_name}#{self.page_shown}"


class Corpus(NamedTuple):
    """The chunks of a collection in their order; a chunk's position breaks ties (rule S0.4).

    pictures: where the file of each chunk that is a picture lies on this machine, by chunk id; no part of the content.
    """

    name: str
    chunks: tuple[Chunk, ...]
    pictures: Mapping[str, str] = {}


class Curve(NamedTuple):
    """Bins or steps of a rate, in order: k of n cases, y = k / n, at x.

    x: mean score of a bin, or coverage of a step. at: lower end of the bin, or threshold of the step; all [N].
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    n: NDArray[np.int64]
    k: NDArray[np.int64]
    at: NDArray[np.float64]


class Case(NamedTuple):
    """A question with its label (rule S6.1).

    expect_status: one of `ok`, `refuse`, `ambiguous`; None where nobody labelled it: it is decided and counts in no
    rate. expect_sources: all must be among the
    sources, each `file` or `file#page`. expect_sources_any: at least one must be. selected_sources:
    documents that the user named. extra: any further keys of the record, kept as they came.
    """

    id: str
    query: str
    expect_status: str | None = None
    expect_sources: tuple[str, ...] = ()
    expect_sources_any: tuple[str, ...] = ()
    min_sources: int = 0
    selected_sources: tuple[str, ...] = ()
    expect_option: int | None = None
    answer: str | None = None
    intent: str | None = None
    doctype: str | None = None
    split: str | None = None
    notes: str | None = None
    extra: Mapping[str, Any] = {}


UNLABELLED = -1  # code of a case without a label


def label_codes(cases: Sequence[Case]) -> NDArray[np.int8]:
    """Labels as codes of `Status`, [Q]; `UNLABELLED` where a case has none."""
    codes = [UNLABELLED if case.expect_status is None else Status[case.expect_status] for case in cases]
    return np.array(codes, dtype=np.int8)


def check_labelled(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Labels as they are, where every case has one.

    Raises:
      ValueError: some have none, so that nothing can be counted over all.

    Example:
      >>> check_labelled(label_codes([Case("a", "who?", "ok"), Case("b", "why?")]))
      Traceback (most recent call last):
      ValueError: every case must have a label where decisions are counted, got 1 of 2 without; label them, or keep \
those that are labelled with `trace.subset`.
    """
    n = int((codes == UNLABELLED).sum())
    if n:
        msg = (
            f"every case must have a label where decisions are counted, got {n} of {len(codes)} without;"
            " label them, or keep those that are labelled with `trace.subset`."
        )
        raise ValueError(msg)
    return codes


class Hits(NamedTuple):
    """What retrieval measured, [Q, A, D, K], hits in ascending `l2`, padded at the end.

    chunk: index into the trace's chunks, -1 where there is no hit. rank: place in the arm's final
    order from 0, -1 where there is no hit. l2: squared L2 distance to the original query. cosine:
    to the original query. s_hybrid: fused score over its maximum, in [0, 1]. s_rerank: reranker's
    score in [0, 1], NaN where the hit was not reranked. s_raw: the reranker's raw score. anchor_sim:
    cosine of the query and the hit's first 800 characters. sig_sim, sig_sim_strict: cosine of the
    query and the hit's rendered signature. n_reranked [Q, A, D]: hits of rank below it were reranked.
    """

    chunk: NDArray[np.int32]
    rank: NDArray[np.int32]
    l2: NDArray[np.float64]
    cosine: NDArray[np.float64]
    s_hybrid: NDArray[np.float64]
    s_rerank: NDArray[np.float64]
    s_raw: NDArray[np.float64]
    anchor_sim: NDArray[np.float64]
    sig_sim: NDArray[np.float64]
    sig_sim_strict: NDArray[np.float64]
    n_reranked: NDArray[np.int32]


def map_fields(hits: Hits, change: Callable[[NDArray[Any]], Any]) -> Hits:
    """Hits with every field changed alike, such as `map_fields(hits, lambda field: field[rows])`."""
    return Hits(*[change(field) for field in hits])


FLOAT_FIELDS = (
    "l2",
    "cosine",
    "s_hybrid",
    "s_rerank",
    "s_raw",
    "anchor_sim",
    "sig_sim",
    "sig_sim_strict",
)


class Generation(NamedTuple):
    """What a generator says to a question.

    text: the answer, '' where there is none. confidence: as the generator has it, in [0, 1], NaN where it has none.
    cited: positions, from 0, of the passages it rests on. reason: why there is no answer.
    """

    text: str
    confidence: float
    cited: tuple[int, ...] = ()
    reason: str | None = None


class Generator(Protocol):
    """What writes answers."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer from the passages alone, or none with the reason."""


class PatternHits(NamedTuple):
    """What a policy's patterns hit in queries and chunks (rule S0.6).

    counts: patterns that match, int [Q, 6], columns deny, allow, generic, facet, compare,
    coverage_generic. query_entities: [Q], in the policy's order. chunk_entities: [C], stated by the
    metadata or named in the text.
    """

    patterns_hash: str
    counts: NDArray[np.int32]
    query_entities: tuple[tuple[str, ...], ...]
    chunk_entities: tuple[tuple[str, ...], ...]


class Answers(NamedTuple):
    """What a generator said to N sets of hits that a decision may rest on, each scored against those hits.

    generator, scorer: names of what wrote and what checked them. row, arm, depth: of the set, int [N]. chunks: the set
    in its order, [N, k], -1 at the end. text: as it leaves the system, '' where nothing is left. confidence: the
    generator's own, NaN where it has none. support: least support of a claim, NaN without a claim. claim: the least
    supported. cited: chunks that the text cites. refused: why hygiene or the generator leaves no answer, else ''.
    """

    generator: str
    scorer: str
    row: NDArray[np.int32]
    arm: NDArray[np.int32]
    depth: NDArray[np.int32]
    chunks: NDArray[np.int32]
    text: tuple[str, ...]
    confidence: NDArray[np.float64]
    support: NDArray[np.float64]
    claim: tuple[str, ...]
    cited: tuple[tuple[int, ...], ...]
    refused: tuple[str, ...]


class Latency(NamedTuple):
    """Milliseconds by stage of retrieval, [Q, A, D, stages]; NaN where a stage did not run. No part of any hash."""

    stages: tuple[str, ...]
    ms: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TraceData:
    """Everything retrieval measured for a set of cases, stored once and replayed ever after.

    cases: [Q]. chunks: those that occur among the hits, in corpus order. arms: names of the retrieval strategies, [A].
    hits: see `Hits`. pattern_hits: of the patterns it was built with. meta: corpus, models, parameters and the
    fingerprint over all of them. queries: what each arm searched at each depth, [Q][A][D]. answers: what was
    generated from its hits. latency: of its retrieval. vectors: embeddings of the chunks, float32 [C, dim], of unit
    length; None where hits came from elsewhere. columns: signals that need more than the hits, those of
    `signals.PARSED` and the user's own, by name, [Q, A, D] each, NaN where there is nothing to measure.
    """

    cases: tuple[Case, ...]
    chunks: tuple[Chunk, ...]
    arms: tuple[str, ...]
    hits: Hits
    pattern_hits: PatternHits | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    queries: tuple[tuple[tuple[str, ...], ...], ...] | None = None
    answers: Answers | None = None
    latency: Latency | None = None
    vectors: NDArray[np.float32] | None = None
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Count the cases, Q."""
        return len(self.cases)

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it holds as columns."""
        return tuple(sorted(self.columns))

    @property
    def fingerprint(self) -> str:
        """Hash over corpus, cases, models, parameters and the columns that were added."""
        return str(self.meta["fingerprint"])

    def arm(self, name: str) -> int:
        """Position of an arm on axis A."""
        if name not in self.arms:
            msg = f"arm must be one of {', '.join(self.arms)}, got {name!r}; build the trace with it to replay it."
            raise ValueError(msg)
        return self.arms.index(name)
