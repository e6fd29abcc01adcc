"""LangChain (shore): traces from any vector store's or retriever's hits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from raglab.decision.document_names import (
    check_clear,
    chunk_documents,
    chunk_sources,
    source_meanings,
)
from raglab.store.cells import whole_number
from raglab.store.files import InputError, Where, input_error, shown_value
from raglab.store.frames import signal_columns, trace_from_frame
from raglab.store.hit_tables import CASE_COLUMNS, Score
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import LONGEST_QUESTION, TAG_KEYS, Case, Chunk, FloatArray
from raglab.words.canonical import digest
from raglab.words.characters import is_unicode

if TYPE_CHECKING:
    import pandas as pd
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore

Distance = Literal["cosine", "cosine_distance", "l2", "euclidean"]
FIRST_COLUMNS = (
    "case_id",
    "query",
    "expect_status",
    *CASE_COLUMNS,
    "hit_id",
    "score",
    "rank",
    "l2",
    "s_rerank",
    "text",
)
# in place of a key of the metadata: what a store gives with a document
STORE_SCORE = "store_score"
METADATA_COLUMNS = ("source", "page", "page_label", *TAG_KEYS, "entities")
FRAME_COLUMNS = FIRST_COLUMNS + METADATA_COLUMNS
# distance of unit vectors, squared
SQUARED_DISTANCE: Mapping[str | None, Callable[[float], float]] = {
    "l2": lambda score: score,
    "euclidean": lambda score: score * score,
}
# by which a similarity in single precision may leave its range, or the order of the hits
COSINE_ROUNDING = 1e-5


class _StoreHit(NamedTuple):
    """One hit: a document, its id, and the store's score, NaN where it gives none."""

    document: Document
    hit_id: str
    score: float


def hits_frame(
    source: VectorStore | BaseRetriever,
    cases: Sequence[Case],
    *,
    k: int = 50,
    distance: Distance | None = None,
    embeddings: Embeddings | None = None,
    probability: str | None = None,
    scores: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    first_page: Literal[0, 1] = 1,
    search: Callable[[Case], Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """Hits of a vector store or retriever for all cases, a row a hit, for `trace_from_frame`.

    `score` is the cosine of query and passage, `rank` the place in the order of the source; `l2` is
    a column too where the store states it. A passage is named by its document's id, without one by
    a hash of its text and place: give documents ids, since a store may make up new ones each time.
    A passage that occurs twice counts at its first place. Cosines beyond [-1, 1] by rounding are
    cut off; nothing else is corrected. Cases lose their `extra`.

    A vector store's scores have no confidence in them: `s_rerank` exists only with `probability`.
    Without it the confidence of every case is 0; switch that gate off. A source that gives neither
    distances nor vectors needs `scores`; the columns `score` and `l2` are then left out.

    Args:
      source: vector store, asked by `similarity_search_with_score`, or retriever, asked by
        `invoke`; both get the query of each case alone.
      cases: questions; where none of them has a label, the frame has no column of labels.
      k: hits a case at most; a retriever's own number counts as well.
      distance: kind of a store's scores, which the store does not state: `cosine`
        (InMemoryVectorStore), `cosine_distance`, 1 − cosine (Chroma with the space cosine), `l2`,
        the squared distance of unit vectors (FAISS), `euclidean`, its root (PGVector).
      embeddings: the embeddings that measure the cosines instead: for a retriever, or a store that
        gives no such score.
      probability: key of the metadata under which a reranker left its probability, such as
        `relevance_score`.
      scores: further columns of numbers by name, with the key of the metadata that each is read
        from; `store_score` is the score that a vector store gives with a document. They are signals
        of `trace_from_frame`.
      columns: keys of the metadata for `source`, `page`, `page_label`, `domain`, `doc_type`,
        `product`, `vendor`, `version` or `entities`, where their names differ: `{"source":
        "file_path"}`.
      first_page: number of a document's first page in `page`; LangChain's loaders of PDFs count
        from 0.
      search: further arguments of the search for a case, such as a filter by the documents that it
        names.

    Raises:
      ImportError: the extra is not installed.
      InputError: scores without a stated distance, or that contradict it; a hit outside the
        documents that a case names; metadata that is not what it is taken for.

    Source: rules S1.1 to S1.3.

    Example:
      >>> from langchain_core.embeddings import DeterministicFakeEmbedding
      >>> from langchain_core.vectorstores import InMemoryVectorStore
      >>> store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
      >>> added = store.add_texts(
      ...     ["The excess is £250."], [{"source": "a.md", "page": 2}], ids=["a#1"]
      ... )
      >>> frame = hits_frame(store, [Case("q", "The excess is £250.", "ok")], distance="cosine")
      >>> frame.round(6)[["hit_id", "score", "rank", "source", "page"]].values.tolist()
      [['a#1', 1.0, 0, 'a.md', 2]]
    """
    import pandas as pd

    score_keys = dict(scores or {})
    _check_source(source, cases, distance, embeddings, score_keys, columns or {})
    metadata_keys = {column_name: column_name for column_name in METADATA_COLUMNS} | dict(
        columns or {}
    )
    # Asked for only where it is used, since not every store has a score.
    with_score = distance is not None or STORE_SCORE in score_keys.values()
    hits_by_case = [
        _case_hits(source, case, k, search(case) if search else {}, with_score=with_score)
        for case in cases
    ]
    # Vectors of the user measure a cosine in any case; the score of a store only where its meaning
    # is stated.
    if embeddings is not None:
        cosines_by_case = _embedding_cosines(hits_by_case, cases, embeddings)
    else:
        cosines_by_case = [
            _store_cosines(*hits_and_case, distance)
            for hits_and_case in zip(hits_by_case, cases, strict=True)
        ]
    hit_rows: list[dict[str, Any]] = []
    for case, case_hits, case_cosines in zip(cases, hits_by_case, cosines_by_case, strict=True):
        case_columns: dict[str, Any] = {
            "case_id": case.id,
            "query": case.query,
            "expect_status": case.expect_status,
        }
        case_columns |= {
            column_name: getattr(case, column_name, case.extra.get(column_name))
            for column_name in CASE_COLUMNS
        }
        hit_passages = [_passage(store_hit, metadata_keys, first_page) for store_hit in case_hits]
        _check_scope(case, hit_passages)
        for hit_rank, (store_hit, passage) in enumerate(zip(case_hits, hit_passages, strict=True)):
            measured_columns: dict[str, Any] = {
                "score": float(case_cosines[hit_rank]),
                "rank": hit_rank,
            }
            measured_columns["l2"] = (
                SQUARED_DISTANCE[distance](store_hit.score)
                if distance in SQUARED_DISTANCE
                else None
            )
            measured_columns["s_rerank"] = (
                store_hit.document.metadata.get(probability) if probability else None
            )
            for column_name, metadata_key in score_keys.items():
                score_value = (
                    store_hit.score
                    if metadata_key == STORE_SCORE
                    else store_hit.document.metadata.get(metadata_key)
                )
                measured_columns[column_name] = (
                    None if score_value is None else _number(score_value, store_hit.hit_id)
                )
            hit_rows.append(case_columns | passage | measured_columns)
        # A case without hits keeps a row, else it is no case of the trace.
        if not case_hits:
            hit_rows.append(case_columns)
    # A column that the source cannot fill is left out: empty, it would read as measured and
    # missing.
    empty_columns = (
        {"expect_status"} if all(case.expect_status is None for case in cases) else set()
    )
    empty_columns |= {"score", "l2"} if distance is None and embeddings is None else set()
    return pd.DataFrame(
        hit_rows,
        columns=[
            column_name
            for column_name in (*FRAME_COLUMNS, *score_keys)
            if column_name not in empty_columns
        ],
    )


def trace_from_langchain(
    source: VectorStore | BaseRetriever,
    cases: Sequence[Case],
    *,
    signals: Mapping[str, Mapping[str, str]] | None = None,
    policy: Policy | None = None,
    name: str = "langchain",
    **how: Any,  # noqa: ANN401 - arguments of hits_frame
) -> Trace:
    """Trace of the hits of a LangChain vector store or retriever, decided and tuned like any other.

    Args:
      source: as `hits_frame` takes it.
      cases: as `hits_frame` takes them.
      signals: as `trace_from_frame` takes them, "column" being the key of the documents' metadata,
        or `store_score`.
      policy: as `trace_from_frame` takes it.
      name: as `trace_from_frame` takes it.
      **how: further arguments of `hits_frame`.

    Raises:
      ImportError: the extra is not installed.
      InputError: as `hits_frame` and `trace_from_frame`.

    Warns:
      UserWarning: gates are off, since the source gives no distances and no embeddings were passed.

    Example: `decide(trace_from_langchain(store, cases, distance="cosine"), policy).frame()`
    """
    score_keys = {
        signal.name: metadata_key for signal, metadata_key in signal_columns(signals, name)
    }
    hit_table = hits_frame(source, cases, scores=score_keys, **how)
    own_signals = {
        signal_name: {**signal_settings, "column": signal_name}
        for signal_name, signal_settings in (signals or {}).items()
    }
    score: Score | None = "cosine" if "score" in hit_table else None
    return trace_from_frame(hit_table, score=score, signals=own_signals, policy=policy, name=name)


def _check_source(
    source: object,
    cases: Sequence[Case],
    distance: str | None,
    embeddings: object,
    scores: Mapping[str, str],
    columns: Mapping[str, str],
) -> None:
    """Stop before the first request, which may take time and cost money."""
    try:
        from langchain_core.retrievers import BaseRetriever
        from langchain_core.vectorstores import VectorStore
    except ImportError as error:
        message = 'langchain-core is not installed; pip install "raglab-toolkit[langgraph]".'
        raise ImportError(message) from error
    is_store = isinstance(source, VectorStore)
    distance_kinds = ", ".join(get_args(Distance))
    measure_remedy = (
        f"pass distance, one of {distance_kinds}, or embeddings, or scores to do without"
    )
    is_unmeasured = distance is None and embeddings is None and not scores
    long_queries = [case.query for case in cases if len(case.query) > LONGEST_QUESTION]
    taken_names = [column_name for column_name in scores if column_name in FRAME_COLUMNS]
    unknown_columns = [
        column_name for column_name in columns if column_name not in METADATA_COLUMNS
    ]
    is_misplaced = STORE_SCORE in scores.values() and (not is_store or distance is not None)
    source_checks = (
        (
            not isinstance(source, VectorStore | BaseRetriever),
            "a source of hits must be a VectorStore or a BaseRetriever of langchain_core",
            type(source).__name__,
            "wrap it in one, or use trace_from_frame",
        ),
        (
            taken_names,
            f"a score must have a name that is none of {', '.join(FRAME_COLUMNS)}",
            shown_value(taken_names),
            "rename it",
        ),
        (
            is_misplaced,
            f"{STORE_SCORE} must be the score of a vector store whose distance is not stated",
            f"distance={distance!r}",
            "name a key of the metadata, or leave out distance",
        ),
        (
            is_unmeasured and is_store,
            "what a store's scores are must be stated",
            None,
            measure_remedy,
        ),
        (
            is_unmeasured,
            "hits must have a distance to the query, and a retriever gives none",
            None,
            "pass embeddings, the vector store behind it, or scores to do without",
        ),
        (
            distance is not None and embeddings is not None,
            "cosines are either given or measured",
            "both",
            "leave out distance or embeddings",
        ),
        (
            distance is not None and not is_store,
            "a retriever gives documents without scores, so that no distance can be stated",
            shown_value(distance),
            "pass embeddings, or the vector store behind it",
        ),
        (
            distance not in {None, *get_args(Distance)},
            f"distance must be one of {distance_kinds}",
            shown_value(distance),
            "see the store's manual",
        ),
        (
            long_queries,
            f"query must have at most {LONGEST_QUESTION} characters",
            f"{len(long_queries[0]) if long_queries else 0}",
            "shorten it",
        ),
        (
            unknown_columns,
            f"columns may rename {', '.join(METADATA_COLUMNS)}",
            shown_value(unknown_columns),
            "write {'source': 'file_path'}",
        ),
    )
    for is_wrong, rule, wrong_value, remedy in source_checks:
        if is_wrong:
            raise _fault(rule, remedy, wrong_value)


def _fault(
    rule: str, remedy: str, wrong_value: str | None = None, hit_id: str | None = None
) -> InputError:
    """Error of the hits of a source; `hit_id` is the id of a case or hit."""
    return input_error(Where("langchain", id=hit_id), rule, remedy, wrong_value)


def _case_hits(
    source: Any,  # noqa: ANN401 - of either kind
    case: Case,
    k: int,
    search_arguments: Mapping[str, Any],
    *,
    with_score: bool,
) -> list[_StoreHit]:
    """Hits of a case in their order, each passage once."""
    if with_score:
        try:
            scored_documents = source.similarity_search_with_score(
                case.query, k=k, **search_arguments
            )
        except NotImplementedError:
            rule = "a store must have similarity_search_with_score for its scores"
            raise _fault(
                rule, f"pass embeddings instead of distance or {STORE_SCORE}", type(source).__name__
            ) from None
    else:
        is_store = hasattr(source, "similarity_search")
        search_documents = partial(source.similarity_search, k=k) if is_store else source.invoke
        scored_documents = [
            (document, np.nan) for document in search_documents(case.query, **search_arguments)
        ]
    hits_by_id: dict[str, _StoreHit] = {}
    for document, score in scored_documents[:k]:
        hit_id = _document_id(document)
        hits_by_id.setdefault(hit_id, _StoreHit(document, hit_id, _number(score, hit_id)))
    return list(hits_by_id.values())


def _number(score: Any, hit_id: str) -> float:  # noqa: ANN401 - whatever a store gives
    """Score of a hit as a number."""
    try:
        number = None if isinstance(score, str | bytes | bool) else float(score)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        rule = "a store's score must be a number"
        raise _fault(rule, "correct the store", shown_value(score), hit_id)
    return number


def _document_id(document: Document) -> str:
    """Id of a document, else a hash of its text and metadata."""
    if document.id:
        return str(document.id)
    text = json.dumps([document.page_content, document.metadata], sort_keys=True, default=repr)
    return digest(text, 12)


def _store_cosines(hits: Sequence[_StoreHit], case: Case, distance: str | None) -> FloatArray:
    """Cosines of unit vectors from a store's scores, which must come best first (rule S1.1)."""
    store_scores = np.array([hit.score for hit in hits], dtype=np.float64)
    if distance is None:
        return store_scores * np.nan
    hit_cosines = 1.0 - store_scores if distance == "cosine_distance" else store_scores
    if distance in SQUARED_DISTANCE:
        squared_distances = np.array(
            [SQUARED_DISTANCE[distance](hit.score) for hit in hits], dtype=np.float64
        )
        hit_cosines = 1.0 - squared_distances / 2.0
    for hit_place in np.flatnonzero(np.diff(hit_cosines) > COSINE_ROUNDING)[:1]:
        rule = f"hits must come best first, but with distance={distance!r} a nearer one follows"
        raise _fault(
            rule,
            f"state another, of {', '.join(get_args(Distance))}, or pass embeddings",
            f"{store_scores[hit_place]:g}, then {store_scores[hit_place + 1]:g}",
            case.id,
        )
    return _exact_cosine(hit_cosines)


def _embedding_cosines(
    hits_by_case: Sequence[Sequence[_StoreHit]], cases: Sequence[Case], embeddings: Embeddings
) -> list[FloatArray]:
    """Cosines of each case's query and hits."""
    passage_texts = list(
        dict.fromkeys(hit.document.page_content for case_hits in hits_by_case for hit in case_hits)
    )
    text_vectors = _unit_rows(embeddings.embed_documents(passage_texts)) if passage_texts else ()
    vector_of_text = dict(zip(passage_texts, text_vectors, strict=True))
    cosines_by_case = [np.empty(0)] * len(cases)
    for case_index, (case, case_hits) in enumerate(zip(cases, hits_by_case, strict=True)):
        if case_hits:
            query_vector = _unit_rows([embeddings.embed_query(case.query)])[0]
            hit_vectors = np.array([vector_of_text[hit.document.page_content] for hit in case_hits])
            cosines_by_case[case_index] = _exact_cosine(hit_vectors @ query_vector)
    return cosines_by_case


def _unit_rows(vector_rows: Sequence[Sequence[float]]) -> FloatArray:
    wide_rows = np.asarray(vector_rows, dtype=np.float64)
    row_norms = np.linalg.norm(wide_rows, axis=1, keepdims=True)
    return np.divide(
        wide_rows, row_norms, out=np.full_like(wide_rows, np.nan), where=row_norms > 0.0
    )


def _exact_cosine(cosine: FloatArray) -> FloatArray:
    return np.where(np.abs(cosine) <= 1.0 + COSINE_ROUNDING, cosine.clip(-1.0, 1.0), cosine)


def _passage(hit: _StoreHit, metadata_keys: Mapping[str, str], first_page: int) -> dict[str, Any]:
    """Columns that a document gives; whoever reads the frame checks what they hold."""
    passage_columns = {
        column_name: hit.document.metadata.get(metadata_key)
        for column_name, metadata_key in metadata_keys.items()
    }
    for column_name, column_value in passage_columns.items():
        # a version may be a number
        is_number = isinstance(column_value, int | float) and not isinstance(column_value, bool)
        is_text = column_name in {"source", "page_label"} and column_value is not None
        if is_text or (column_name in TAG_KEYS and is_number):
            passage_columns[column_name] = str(column_value)
    if passage_columns["page"] is not None:
        page_number = whole_number(passage_columns["page"])
        if type(page_number) is not int or page_number < first_page:
            rule = f"{metadata_keys['page']} must be an integer from {first_page}"
            raise _fault(
                rule,
                "pass first_page=0, or columns={'page_label': …} where it is a label",
                shown_value(passage_columns["page"]),
                hit.hit_id,
            )
        passage_columns["page"] = page_number + 1 - first_page
    passage_columns |= {"hit_id": hit.hit_id, "text": hit.document.page_content}
    for column_name, column_value in passage_columns.items():
        if not is_unicode(column_value):
            rule = f"{column_name} must be Unicode"
            raise _fault(
                rule,
                "correct the text",
                f"half a surrogate pair in {shown_value(column_value)}",
                hit.hit_id,
            )
    return passage_columns


def _check_scope(case: Case, passages: Sequence[Mapping[str, Any]]) -> None:
    """Hits must be of the documents that the user named, for these scope the search (rule S3.7)."""
    if not case.selected_sources:
        return
    hit_chunks = [
        Chunk(passage["hit_id"], "", passage["source"] or "", passage["page"])
        for passage in passages
    ]
    document_meanings = source_meanings(case.selected_sources, chunk_documents(hit_chunks))
    check_clear([case], document_meanings)
    for hit_chunk, named_sources in zip(
        hit_chunks, chunk_sources(hit_chunks, document_meanings), strict=True
    ):
        if not named_sources:
            document_names = ", ".join(case.selected_sources)
            rule = f"hits must be of the documents that the case names, {document_names}"
            raise _fault(
                rule, "pass search, a filter for a case", shown_value(hit_chunk.shown), case.id
            )
