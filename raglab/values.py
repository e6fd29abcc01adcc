"""Values (algebra): Case, Chunk, Hits, Trace, errors; what all others speak in (S0.1, S6.1).

Axis letters, used everywhere: `Q` cases, `A` arms, `D` refinement depths, `K` hits, `G` groups,
`P` policies. `[...]` is any leading batch. Arrays of the algebra are float64; a missing
measurement is NaN, a missing index is -1, and neither ever passes a gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import FieldRule, checked, converted, holds_read_only, read_only
from raglab.arguments.plain_arrays import refuse as refuse  # noqa: PLC0414 - read from here above
from raglab.words.html_display import Cell, Fold, short
from raglab.words.results import Shown, Summary

if TYPE_CHECKING:
    import pandas as pd

    from raglab.words.languages import Reason

Floats = NDArray[np.float64] | float
Ints = NDArray[np.integer[Any]] | int
Bools = NDArray[np.bool_] | bool
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
TextArray = NDArray[np.object_]
CodeArray = NDArray[np.int8]  # numbers of a status, a stage or a cell
SlotArray = NDArray[np.int16]  # numbers of sets of hits
PlaceArray = NDArray[np.intp]  # positions
BitArray = NDArray[np.uint64]  # masks of 64 bits

SCHEMA_VERSION = 3
LONGEST_QUESTION = 20_000  # characters of a question, at every door
NO_LABEL = "none"  # label or split of a case that has none
CaseCounts = dict[str, dict[str, int]]  # cases by split and label
SECTION_JOINT = " > "  # between the headings of a chunk's section
TAG_KEYS = ("domain", "doc_type", "product", "vendor", "version")


class Status(IntEnum):
    """The three outcomes of a decision, and of a label (rule S0.1)."""

    ok = 0
    refuse = 1
    ambiguous = 2


def _are_texts(candidate: object) -> bool:
    if not isinstance(candidate, tuple):
        return False
    # the first is the quicker
    return set(map(type, candidate)) <= {str} or all(
        isinstance(member, str) for member in candidate
    )


def _whole_from(minimum: int) -> Callable[[Any], bool]:
    return lambda candidate: type(candidate) is int and candidate >= minimum


STATUS_NAMES = tuple(Status.__members__)
_TEXT_RULE = FieldRule(lambda value: isinstance(value, str), "a text", "write it as a text", str)
_OPTIONAL_TEXT_RULE = FieldRule(
    _TEXT_RULE.good, "a text or None", "write None where there is none, else str(…)", str
)
_TEXTS_RULE = FieldRule(
    _are_texts, "a tuple of texts", 'write ("one",) for one and ("one", "two") for two'
)
_PAGE_RULE = FieldRule(
    _whole_from(1), "an integer from 1, or None", "count from 1; what is printed goes to page_label"
)
_OPTION_RULE = FieldRule(_whole_from(1), "an integer from 1, or None", "count the options from 1")
_COUNT_RULE = FieldRule(
    _whole_from(0), "an integer from 0", "write int(…), 0 where any number will do"
)
_LABEL_RULE = FieldRule(
    lambda value: isinstance(value, str) and value in STATUS_NAMES,
    f"one of {', '.join(STATUS_NAMES)}, or None",
    "correct the label; None is for a case that nobody labelled",
)
_MAPPING_RULE = FieldRule(
    lambda value: isinstance(value, Mapping), "a mapping", 'write {"name": value}', dict
)


def _file_name(source: str) -> str:
    """The last part of a path."""
    return PurePosixPath(source.replace("\\", "/")).name


def document_path(source: str) -> str:
    r"""Path of a document as labels and answers name it: with slashes, without `./` in front.

    Args:
      source: path as written.

    Source: rule S6.1.

    Example:
      >>> document_path(r".\guide\readme.md")
      'guide/readme.md'
    """
    if "\\" not in source and not source.startswith("./"):
        return source  # as nearly all are; every chunk of a million is asked
    slashed_path = source.replace("\\", "/")
    while slashed_path.startswith("./"):
        slashed_path = slashed_path[2:].lstrip("/")
    return slashed_path or source


@checked(
    chunk_id=_TEXT_RULE,
    text=_TEXT_RULE,
    source=_TEXT_RULE,
    page=_PAGE_RULE,
    page_label=_OPTIONAL_TEXT_RULE,
    tags=_MAPPING_RULE,
    entities=_TEXTS_RULE,
    section=_TEXTS_RULE,
)
class Chunk(NamedTuple):
    """One retrievable passage.

    Attributes:
      chunk_id: unique in its corpus.
      text: of the passage.
      source: path of its document relative to the corpus; the last part is the file name.
      page: position of the page in the document, from 1, or None.
      page_label: as printed.
      tags: `domain`, `doc_type`, `product`, `vendor`, `version` and any other; blank is missing.
      entities: names of the entities that its metadata states.
      section: headings above the text, outermost first, the document's title first where it has
        one. Answers, quotes and support are of `text`; whoever looks at the words of a chunk
        (search, embeddings, rules) reads `full_text`.
    """

    chunk_id: str
    text: str
    source: str
    page: int | None = None
    page_label: str | None = None
    tags: Mapping[str, str] = {}
    entities: tuple[str, ...] = ()
    section: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Chunk({short(self.chunk_id)}, {short(self.shown)}, {short(self.text)})"

    @property
    def section_path(self) -> str:
        """Headings above the text in a line, '' without any."""
        return SECTION_JOINT.join(self.section)

    @property
    def full_text(self) -> str:
        r"""The headings in a line above the text; what is indexed, embedded and reranked.

        Example:
          >>> Chunk("a#1", "It is £250.", "a.md", section=("Home", "Excess")).full_text
          'Home > Excess\nIt is £250.'
        """
        return f"{self.section_path}\n{self.text}" if self.section else self.text

    @property
    def document(self) -> str:
        """Path of the document, which tells documents apart; see `document_path`."""
        return document_path(self.source)

    @property
    def file_name(self) -> str:
        """The last part of `source`, with either kind of slash."""
        return _file_name(self.source)

    @property
    def page_shown(self) -> str:
        """Page as sources name it: the number, else the label, else n/a."""
        return str(self.page) if self.page is not None else self.page_label or "n/a"

    @property
    def shown(self) -> str:
        """Source as answers name it: `path#page`."""
        return f"{self.document}#{self.page_shown}"


@dataclass(frozen=True, slots=True, repr=False)
class Corpus(Shown):
    """The chunks of a collection in their order; a chunk's position breaks ties (rule S0.4).

    Its length is the number of its chunks, and a loop over it gives them.

    Attributes:
      name: of the collection.
      chunks: in their order.
      pictures: where the file of each chunk that is a picture lies on this machine, by chunk id; no
        part of the content.

    Example:
      >>> corpus = Corpus(
      ...     "home", (Chunk("a", "Glass is covered.", "a.md"), Chunk("b", "Hail is not.", "a.md"))
      ... )
      >>> (
      ...     len(corpus),
      ...     [chunk.chunk_id for chunk in corpus],
      ...     len(corpus._replace(chunks=corpus.chunks[:1])),
      ... )
      (2, ['a', 'b'], 1)
    """

    name: str
    chunks: tuple[Chunk, ...]
    pictures: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)

    def _replace(self, **changes: Any) -> Self:  # noqa: ANN401 - values of fields
        """Copy with other values of some fields, as of a named tuple."""
        return replace(self, **changes)

    def frame(self) -> pd.DataFrame:
        """One row a chunk, by the columns that `load_corpus` takes of a frame.

        Files of pictures are not in it.

        Example:
          >>> Corpus("home", (Chunk("a", "Glass is covered.", "a.md", 2),)).frame()[
          ...     ["id", "source", "page"]
          ... ].values
          array([['a', 'a.md', 2]], dtype=object)
        """
        import pandas as pd

        chunk_rows = [chunk._replace(tags=dict(chunk.tags)) for chunk in self.chunks]
        return pd.DataFrame(chunk_rows, columns=["id", *Chunk._fields[1:]]).astype(
            {"page": "Int64"}
        )

    def _summary(self) -> Summary:
        """Numbers of chunks and documents, and the first of each."""
        chunks_by_source = Counter(chunk.source for chunk in self.chunks)
        corpus_facts = [
            ("name", short(self.name)),
            ("chunks", f"{len(self.chunks):,}"),
            ("documents", f"{len(chunks_by_source):,}"),
            ("pictures", f"{len(self.pictures):,}"),
        ]
        document_rows = ((source, f"{n_chunks:,}") for source, n_chunks in chunks_by_source.items())
        chunk_rows = (
            (chunk.chunk_id, chunk.shown, chunk.section_path, chunk.text) for chunk in self.chunks
        )
        corpus_folds = {
            "documents": Fold(
                "documents", document_rows, len(chunks_by_source), ("source", "chunks")
            ),
            "chunks": Fold(
                "chunks", chunk_rows, len(self.chunks), ("chunk", "shown as", "section", "text")
            ),
        }
        return Summary(corpus_facts, corpus_folds)


class Curve(NamedTuple):
    """Bins or steps of a rate, in order: k of n cases, y = k / n, at x.

    Attributes:
      x: mean score of a bin, or coverage of a step.
      y: rate k / n.
      n: cases.
      k: cases that count.
      at: lower end of the bin, or threshold of the step.
    """

    x: FloatArray
    y: FloatArray
    n: IntArray
    k: IntArray
    at: FloatArray


@checked(
    id=_TEXT_RULE,
    query=_TEXT_RULE,
    expect_status=_LABEL_RULE,
    expect_sources=_TEXTS_RULE,
    expect_sources_any=_TEXTS_RULE,
    min_sources=_COUNT_RULE,
    selected_sources=_TEXTS_RULE,
    expect_option=_OPTION_RULE,
    answer=_OPTIONAL_TEXT_RULE,
    intent=_OPTIONAL_TEXT_RULE,
    doctype=_OPTIONAL_TEXT_RULE,
    split=_OPTIONAL_TEXT_RULE,
    notes=_OPTIONAL_TEXT_RULE,
    extra=_MAPPING_RULE,
)
class Case(NamedTuple):
    """A question with its label (rule S6.1).

    Attributes:
      id: unique in the set.
      query: the question.
      expect_status: one of `ok`, `refuse`, `ambiguous`; None without a label: the case is decided
        and counts in no rate.
      expect_sources: all must be among the sources, each `path` or `path#page`; a file name that is
        unique in the corpus replaces the path.
      expect_sources_any: at least one must be among the sources.
      min_sources: different (path, page) that the sources must hold at least (rule S6.3).
      selected_sources: documents that the user named.
      expect_option: number of the option that must hold the expected sources, from 1 (rule S6.3).
      answer: gold answer.
      intent: kind of question, for slices.
      doctype: kind of document, for slices.
      split: `tune`, `certify` or `report`.
      notes: of whoever labelled it.
      extra: any further keys of the record, unchanged; of a set that grades relevance,
        `source_grades` (see there).
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

    def __repr__(self) -> str:
        label_text = "" if self.expect_status is None else f", expect_status={self.expect_status!r}"
        return f"Case({short(self.id)}, {short(self.query)}{label_text})"


SOURCE_GRADES = "source_grades"  # key of `extra`


def source_grades(case: Case) -> dict[str, float]:
    """Grade of each expected source, above 0: that of `extra["source_grades"]`, else 1.

    Args:
      case: with expected sources.

    Raises:
      ValueError: it is no mapping of expected sources to numbers above 0.

    Example:
      >>> source_grades(
      ...     Case("q", "Who pays?", "ok", ("a.md", "b.md"), extra={"source_grades": {"b.md": 2}})
      ... )
      {'a.md': 1.0, 'b.md': 2.0}
    """
    grades = dict.fromkeys((*case.expect_sources, *case.expect_sources_any), 1.0)
    declared_grades = case.extra.get(SOURCE_GRADES)
    declared_grades = {} if declared_grades is None else declared_grades
    for source, source_grade in (
        declared_grades.items()
        if isinstance(declared_grades, Mapping)
        else [(None, declared_grades)]
    ):
        is_number = isinstance(source_grade, int | float | np.number) and not isinstance(
            source_grade, bool
        )
        if source not in grades or not is_number or not 0.0 < source_grade < np.inf:
            rule = f"{SOURCE_GRADES} of case {case.id!r} must give expected sources numbers above 0"
            grade_text = short(
                str(
                    {source: source_grade}
                    if isinstance(declared_grades, Mapping)
                    else declared_grades
                )
            )
            refuse(rule, grade_text, "correct it, or list the source under expect_sources_any")
        grades[source] = float(source_grade)
    return grades


UNLABELLED = -1  # code of a case without a label


def label_codes(cases: Sequence[Case]) -> CodeArray:
    """Labels as codes of `Status`, [Q]; `UNLABELLED` where a case has none.

    Args:
      cases: labelled or not.
    """
    status_codes = [
        UNLABELLED if case.expect_status is None else Status[case.expect_status] for case in cases
    ]
    return np.array(status_codes, dtype=np.int8)


def check_labelled(codes: CodeArray) -> CodeArray:
    """Labels as they are, where every case has one.

    Args:
      codes: of `label_codes`, [Q].

    Raises:
      ValueError: some have none, so that nothing can be counted over all.

    Example:
      >>> check_labelled(label_codes([Case("a", "who?", "ok"), Case("b", "why?")]))
      Traceback (most recent call last):
      ValueError: every case must have a label where decisions are counted, got 1 of 2 without; \
label them, take trace.subset of the labelled, or rate a drawn sample by raglab.review.
    """
    n_unlabelled = int((codes == UNLABELLED).sum())
    if n_unlabelled:
        refuse(
            "every case must have a label where decisions are counted",
            f"{n_unlabelled} of {len(codes)} without",
            "label them, take trace.subset of the labelled, or rate a drawn sample by "
            "raglab.review",
        )
    return codes


@holds_read_only
class Hits(NamedTuple):
    """Measurements of retrieval, [Q, A, D, K], hits in ascending `l2`, padded at the end.

    Attributes:
      chunk: index into the trace's chunks, -1 for no hit.
      rank: place in the arm's final order from 0, -1 for no hit.
      l2: squared L2 distance to the original query.
      cosine: to the original query.
      s_hybrid: fused score over its maximum, in [0, 1].
      s_rerank: reranker's score in [0, 1], NaN where the hit was not reranked.
      s_raw: the reranker's raw score.
      anchor_sim: cosine of the query and the hit's first 800 characters.
      sig_sim: cosine of the query and the hit's rendered signature.
      sig_sim_strict: likewise, of the strict signature.
      n_reranked: hits of rank below it were reranked, [Q, A, D].
    """

    chunk: NDArray[np.int32]
    rank: NDArray[np.int32]
    l2: FloatArray
    cosine: FloatArray
    s_hybrid: FloatArray
    s_rerank: FloatArray
    s_raw: FloatArray
    anchor_sim: FloatArray
    sig_sim: FloatArray
    sig_sim_strict: FloatArray
    n_reranked: NDArray[np.int32]

    def __repr__(self) -> str:
        return (
            f"Hits({' × '.join(f'{axis_length:,}' for axis_length in self.chunk.shape)} "
            "of cases, arms, depths, "
            "hits)"
        )


def map_fields(hits: Hits, change: Callable[[NDArray[Any]], Any]) -> Hits:
    """Hits with every field changed alike, such as `map_fields(hits, lambda field: field[rows])`.

    Args:
      hits: to change.
      change: function of a field.
    """
    return Hits(*[change(hit_field) for hit_field in hits])


# of a case, arm and depth: places of sets of hits are of 16 bits in the algebra, 767 of them spare
MAX_HITS_PER_CASE = 32_000


def check_n_hits(n_hits: int) -> None:
    """Stop at more hits of a case than the algebra counts.

    Args:
      n_hits: hits of a case.

    Raises:
      ValueError: more than `MAX_HITS_PER_CASE`.

    Example:
      >>> check_n_hits(50)
    """
    if n_hits > MAX_HITS_PER_CASE:
        rule = f"hits of a case, arm and depth must be at most {MAX_HITS_PER_CASE:,}"
        refuse(rule, f"{n_hits:,}", "keep the first of each case")


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
    """Answer of a generator to a question.

    Attributes:
      text: the answer, '' for none.
      confidence: as the generator has it, in [0, 1], NaN where it has none.
      cited: positions, from 0, of the passages it rests on.
      reason: why there is no answer; `raglab.words.languages.say` has it in a language.
    """

    text: str
    confidence: float
    cited: tuple[int, ...] = ()
    reason: Reason | str | None = None


def unanswered(reason: Reason | str) -> Generation:
    """No answer of a generator, and why."""
    return Generation("", np.nan, (), reason)


class ModelUnavailableError(RuntimeError):
    """A language model or its server failed.

    It gave no answer, and that is no refusal either (rule S0.1).

    Args:
      message: of the exception.
      kind: of the failure, such as `timeout`, `no connection`, `cut off`, `HTTP 503` or `malformed
        reply`.
      reason: of the failure, on one line and without secrets.
      seconds: from the request to the failure, NaN where not measured.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "failure",
        reason: str = "",
        seconds: float = float("nan"),
    ) -> None:
        super().__init__(message)
        self.kind, self.reason, self.seconds = kind, reason or message, seconds


class Generator(Protocol):
    """Protocol of a generator of answers.

    It raises `ModelUnavailableError` where its model fails. It may state `gives_confidence`: True
    where its answers carry a confidence, though one of them may lack it; False where none does. One
    that learns this from its server has `probe_confidence`, which asks: True, False, or None where
    the reply does not tell.
    """

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer from the passages alone, or none with the reason.

        Args:
          question: of the user.
          passages: the chosen hits, the best first.
        """


@holds_read_only
class PatternHits(NamedTuple):
    """Matches of a policy's patterns in queries and chunks (rule S0.6).

    Attributes:
      patterns_hash: of the patterns.
      counts: patterns that match, int [Q, 6], columns deny, allow, generic, facet, compare,
        coverage_generic.
      query_entities: [Q], in the policy's order.
      chunk_entities: [C], stated by the metadata or named in the text.
    """

    patterns_hash: str
    counts: NDArray[np.int32]
    query_entities: tuple[tuple[str, ...], ...]
    chunk_entities: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        sizes = f"{len(self.query_entities):,} queries, {len(self.chunk_entities):,} chunks"
        return f"PatternHits({self.patterns_hash}: {sizes})"


@holds_read_only
class Answers(NamedTuple):
    """A generator's answers to N hit sets that a decision may rest on, each scored on its hits.

    Attributes:
      generator: name of what wrote them.
      scorer: name of what checked them.
      row: number of the set's case, int [N].
      arm: number of the set's arm, int [N].
      depth: depth of the set, int [N].
      chunks: the set in its order, [N, k], -1 at the end.
      text: as it leaves the system, '' where nothing is left.
      confidence: the generator's own, NaN where it has none.
      support: least support of a claim, NaN without a claim.
      claim: the least supported.
      cited: chunks that the text cites.
      refused: why hygiene or the generator leaves no answer, else ''.
    """

    generator: str
    scorer: str
    row: NDArray[np.int32]
    arm: NDArray[np.int32]
    depth: NDArray[np.int32]
    chunks: NDArray[np.int32]
    text: tuple[str, ...]
    confidence: FloatArray
    support: FloatArray
    claim: tuple[str, ...]
    cited: tuple[tuple[int, ...], ...]
    refused: tuple[str, ...]

    def __repr__(self) -> str:
        refused = sum(map(bool, self.refused))
        return (
            f"Answers({len(self.text):,} of {short(self.generator)} by {short(self.scorer)}, "
            f"{refused:,} refused)"
        )


@holds_read_only
class Latency(NamedTuple):
    """Milliseconds by stage of retrieval, [Q, A, D, stages]; NaN where a stage did not run.

    No part of any hash.

    Attributes:
      stages: names.
      ms: milliseconds, [Q, A, D, stages].
    """

    stages: tuple[str, ...]
    ms: FloatArray


def _read_only_columns(
    columns: Mapping[str, FloatArray],
) -> dict[str, FloatArray]:
    return {column_name: read_only(column) for column_name, column in columns.items()}


@converted(vectors=read_only, columns=_read_only_columns)
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, repr=False)
class TraceData(Shown):
    """All measurements of retrieval for a set of cases, stored once and replayed.

    Attributes:
      cases: [Q].
      chunks: chunks that occur among the hits, in corpus order.
      arms: names of the retrieval strategies, [A].
      hits: see `Hits`.
      pattern_hits: of the patterns it was built with.
      meta: corpus, models, parameters and the fingerprint over all of them.
      queries: the queries that each arm searched at each depth, [Q][A][D].
      answers: generated from its hits.
      latency: of its retrieval.
      vectors: embeddings of the chunks, float32 [C, dim], of unit length; None where the hits are
        from another system.
      columns: signals that need more than the hits, those of `signals.PARSED` and the user's own,
        by name, [Q, A, D] each, NaN where there is nothing to measure.
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
    columns: Mapping[str, FloatArray] = field(default_factory=dict)

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

    @property
    def parts(self) -> tuple[Self, ...]:
        """The trace itself.

        A trace in memory is a `raglab.decision.trace_view.TraceView` of one part.
        """
        return (self,)

    @property
    def n_depths(self) -> int:
        """Depths that were measured, D."""
        return int(self.hits.chunk.shape[2])

    @property
    def has_answers(self) -> bool:
        """Whether any answer is recorded."""
        return self.answers is not None and bool(self.answers.text)

    def counted(self) -> CaseCounts:
        """Cases by split and label."""
        return count_cases(self.cases)

    def loaded(self) -> Self:
        """The trace itself, which is in memory."""
        return self

    def measured_once(self, policy: object, arm: str | None) -> AbstractContextManager[Self]:
        """The trace itself: a trace in memory is measured where it is replayed.

        Args:
          policy: not read.
          arm: not read.
        """
        del policy, arm
        return nullcontext(self)

    def evidence_for(self, policies: object, arm: str | None) -> None:
        """None: no evidence of a trace in memory is stored.

        Args:
          policies: not read.
          arm: not read.
        """
        del policies, arm

    def arm(self, name: str) -> int:
        """Position of an arm on axis A.

        Args:
          name: of the arm.
        """
        if not isinstance(name, str) or name not in self.arms:
            rule = f"arm must be one of {', '.join(self.arms)}"
            refuse(rule, repr(name), "build the trace with it to replay it")
        return self.arms.index(name)

    def _summary(self) -> Summary:
        """What was retrieved, by what, and the first cases."""
        *_, n_depths, max_hits = self.hits.chunk.shape
        hits_per_case = (self.hits.chunk >= 0).sum(axis=-1)
        # cases without label or split are counted as such: their lack decides what a study can do
        trace_facts = [
            ("fingerprint", str(self.meta.get("fingerprint", NO_LABEL))),
            ("corpus", short(str(self.meta.get("corpus", "not stated")))),
            ("cases", f"{len(self):,}"),
            ("labels", counted(Counter(case.expect_status or NO_LABEL for case in self.cases))),
            ("splits", short(counted(Counter(case.split or NO_LABEL for case in self.cases)))),
            ("arms", short(", ".join(self.arms))),
            ("depths", f"{n_depths}"),
            ("hits", f"{hits_per_case.min(initial=max_hits)} to {hits_per_case.max(initial=0)}"),
            ("chunks", f"{len(self.chunks):,}"),
            ("answers", "none recorded" if self.answers is None else repr(self.answers)),
            ("own signals", short(", ".join(self.signals) or NO_LABEL)),
        ]
        # a generator: of millions of cases only those that are shown become rows
        case_rows = (
            (
                case.id,
                case.query,
                Cell(case.expect_status or NO_LABEL, mark="" if case.expect_status else "off"),
                case.split or "",
            )
            for case in self.cases
        )
        meta_rows = [(str(meta_key), str(meta_value)) for meta_key, meta_value in self.meta.items()]
        trace_folds = {
            "cases": Fold("cases", case_rows, len(self), ("case", "query", "label", "split")),
            "made with": Fold("made with", meta_rows),
        }
        return Summary(trace_facts, trace_folds)


def count_cases(cases: Iterable[Case]) -> CaseCounts:
    """Cases by split and label, both sorted.

    Args:
      cases: to count.
    """
    label_counts = Counter(
        (case.split or NO_LABEL, case.expect_status or NO_LABEL) for case in cases
    )
    counts_by_split: CaseCounts = {}
    for (split, case_label), n_cases in sorted(label_counts.items()):
        counts_by_split.setdefault(split, {})[case_label] = n_cases
    return counts_by_split


def counted(counts: Mapping[str, int]) -> str:
    """Counts by name in a line, the largest first.

    Args:
      counts: by name.

    Example:
      >>> counted({"refuse": 1, "ok": 1_200})
      '1,200 ok, 1 refuse'
    """
    return ", ".join(
        f"{count:,} {name}"
        for name, count in sorted(counts.items(), key=lambda name_and_count: -name_and_count[1])
    )


def case_positions(rows: Sequence[int] | NDArray[np.integer[Any]], n_cases: int) -> IntArray:
    """Positions of the selected cases of a trace, as an array.

    Args:
      rows: positions from 0, in any order.
      n_cases: cases of the trace.

    Raises:
      ValueError: a mask, ids or other values that are no whole numbers, or a position that no case
        has.

    Example:
      >>> case_positions(range(2), 3)
      array([0, 1])
    """
    positions = np.asarray(rows)
    rule = f"rows must be positions from 0 to {n_cases - 1}"
    if positions.dtype.kind == "b":
        refuse(rule, "a mask", "np.flatnonzero(mask) gives positions")
    is_whole = positions.dtype.kind in "iu" or not positions.size
    if not is_whole or positions.ndim != 1:
        remedy = "those of ids are [row for row, case in enumerate(trace.cases) if case.id in ids]"
        refuse(rule, repr(rows)[:60], remedy)
    if positions.size and not 0 <= positions.min() <= positions.max() < n_cases:
        refuse(rule, f"{positions.min()} to {positions.max()}", "count from 0")
    return positions.astype(np.int64)
