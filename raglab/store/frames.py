"""Frames (shore): traces from DataFrames of own hits, with cases, passages, ranks, measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.decision.document_names import (
    Meaning,
    case_sources,
    check_clear,
    chunk_documents,
    chunk_sources,
    full_source,
    misspelt_sources,
    source_meanings,
    stated_exact_names,
)
from raglab.decision.measurement import CAN_BE_OFF
from raglab.decision.score_directions import DIRECTION_SIGNS, HIT_SCORES, warn_of_directions
from raglab.policy import PolicyData
from raglab.policy_parts.patterns import pattern_hits
from raglab.signals import DECLARED_KEYS, Signal, own_signal
from raglab.store.case_labels import is_outside
from raglab.store.files import Where, input_error, shown_value
from raglab.store.hit_tables import (
    EMPTY,
    MEASURE_OF_SCORE,
    MEASURES,
    SHARE,
    UNSTATED,
    HitTable,
    Numbers,
    Positions,
    Score,
    cut_name,
    hit_cases,
    hit_chunks,
    hit_places,
    read_hits,
)
from raglab.store.loaders import hash_corpus
from raglab.store.records import MAX_INTEGER, Columns, hash_cases
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace, with_column
from raglab.values import (
    FLOAT_FIELDS,
    MAX_HITS_PER_CASE,
    SCHEMA_VERSION,
    Case,
    Chunk,
    Corpus,
    Hits,
    Status,
    document_path,
)

if TYPE_CHECKING:
    import pandas as pd

# cases by arms by depths by hits of the longest case: what an array of a trace holds
MAX_CELLS = 20_000_000
MAX_PAIRS = 2_000_000_000  # the same by pairs of hits: what grouping the hits takes, in bytes

Signals = Mapping[str, Mapping[str, str]] | None  # what is stated of each, by name
Measurements = Mapping[str, Numbers]  # of the rows, by field
LEAST_ALIKE = 10  # rows or cases that a column must agree with a label in to look like one
_AGREE = 1e-3  # l2 against 2 - 2 cosine: embeddings in half precision differ by less


class _Rows(NamedTuple):
    """Where the rows belong.

    case, chunk: numbers of each row's, [rows], of the chunk -1 for none. cell: number of its (case,
    arm, depth), [rows]. shape: (Q, A, D).
    """

    hits: HitTable
    cases: tuple[Case, ...]
    chunks: tuple[Chunk, ...]
    arms: tuple[str, ...]
    case: Positions
    chunk: Positions
    cell: Positions
    shape: tuple[int, int, int]

    def within(self, order: Positions) -> Positions:
        """Places 0, 1, 2, … inside their cell, of rows in an order that keeps cells together."""
        n_before = np.append(0, np.cumsum(np.bincount(self.cell[order], minlength=self.n_cells)))
        places: Positions = np.arange(len(order)) - n_before[self.cell[order]]
        return places

    @property
    def n_cells(self) -> int:
        """Cases by arms by depths."""
        return math.prod(self.shape)

    def place(self, cell: int) -> str:
        """A cell as messages name it."""
        case, arm, depth = map(int, np.unravel_index(cell, self.shape))
        names = shown_value(self.cases[case].id), shown_value(self.arms[arm])
        return f"case {names[0]}, arm {names[1]}, depth {depth}"


def trace_from_frame(
    frame: pd.DataFrame,
    *,
    columns: Columns = None,
    score: Score | None = UNSTATED,
    signals: Signals = None,
    groups: Sequence[str] = (),
    policy: PolicyData | None = None,
    name: str = "frame",
) -> Trace:
    """Trace of hits that another system found, one row a hit.

    A cell is missing where it is None, NaN or NA. Columns, the first three required:

    - `query` (or `question`): the question. `hit_id`: name of the passage, strings, integers or
      UUIDs; missing in the one row of a case that found nothing.
    - `score`: by the argument `score`: `cosine` of query and passage; `l2`, squared distance of
      their unit vectors; `probability`, a reranker's, in [0, 1], which becomes `s_rerank`. Not
      stated, it must lie in [-1, 1] as a cosine does and is read as one, but a study and the
      cockpit then begin with an always-answer policy that gates it (`raglab.lab.starting_policy`),
      not with thresholds made for one encoder's cosines: TF-IDF scores are far lower. `l2` and
      `cosine` follow from one another where one is not given (rule S1.1). Without both the gates
      l2, density, gap and similarity are off for this trace, and without s_rerank and s_hybrid also
      confidence; a warning names them, and the gates on `signals` decide.
    - `label` (or `expect_status`): ok, refuse or ambiguous. Without the column, or where its cell
      is missing, the cases are decided and count in no rate.
    - `case_id`: of the question; without it each distinct query is a case: q1, q2, …
    - `text`, `source` (path of the document; without it each passage is a document of its own),
      `page` (from 1), `page_label`, `domain`, `doc_type`, `product`, `vendor`, `version` (tags),
      `entities` (a list, or a text with semicolons): of the passage, the same in each of its rows.
      Without `text` the keyword share is 0, a warning.
    - `rank`: place in the final order, 0, 1, 2, … within a case; without it by descending
      `s_rerank`, hits without one after those with one, then from the best to the worst `score`,
      ties in the order of the rows. With score=None and without `s_rerank` the order is that of the
      rows; a warning counts the cases whose first hit no signal puts first.
    - `s_rerank`, `s_raw` (its logit), `s_hybrid` (in [0, 1]): for the gate of confidence. With
      distances and without s_rerank and s_hybrid the confidence is 0: switch that gate off.
    - `l2`, `cosine`: in addition to a score of another kind. `anchor_similarity`,
      `signature_similarity`: cosine of the query with the passage's first 800 characters and with
      its rendered signature; missing never decides.
    - `arm`, `depth` (from 0): of several strategies and refinements; each case has rows in each of
      them.
    - `expect_sources`, `expect_sources_any`, `selected_sources` (lists of `source` or
      `source#page`, or one text with semicolons between them; the end of a source that no other
      has, such as its file name, replaces it), `min_sources`, `expect_option`, `answer`, `answers`
      (several gold answers: a list of texts, or what Hugging Face has, `{"text": [...]}`),
      `intent`, `doctype`, `split`, `notes`: of the case, the same in each of its rows; splits are
      `tune`, `certify`, `report`, or names that `load_cases` reads as these.
    - `at` (a time, or its ISO text; in UTC without a zone) and `groups` (`{"tenant": "acme"}`): of
      a logged question, the same in each of its rows; kept in `extra` of the case, for reviews by
      day and by group.

    An index with the name of a column counts as that column.

    Args:
      frame: one row a hit.
      columns: our names to those of the frame, such as {"query": "prompt", "hit_id": "chunk"}, as
        `load_cases` takes them; columns that have our names need none. `trace.meta["columns"]`
        holds what was mapped.
      score: kind of the column `score`; None where there is no such column.
      signals: further scores by name, which a policy gates as `signals.<name>`: {"column": its
        column, the name where not given; "higher": "surer" or "ask"; "unit": "probability" or other
        words; and, as `Trace.with_signal` takes them, "stage", "missing", "source", "version"}. A
        case has the value of its first hit; of the stage "query" the same value in each of its
        rows.
      groups: columns whose values group the cases, such as `tenant` (rule S2.20); the same in each
        row of a case.
      policy: the policy whose patterns are measured at once (others later, on replay).
      name: of the collection, of the arm where there is no such column, and of the frame in errors.

    Returns:
      Q cases and C chunks in the order of their first rows; K hits, as many as the longest case
        has, by (l2, chunk); measurements in float64 as given.

    Raises:
      InputError: a column or cell breaks a rule; names row (from 0), column, rule and remedy.
      ValueError: a source of a case that several documents of the frame have.

    Warns:
      UserWarning: gates are off, since nothing was measured for them; splits are mapped; questions
        are repeated; labels contradict the direction of a score; or sources of cases name documents
        by the end of their path, which are looked for among the documents of the hits alone, or
        differ from one in upper case or file extension alone.

    Source: rules S0.4, S1.1 to S1.4, S2.15, S6.1, S6.5.

    Example:
      >>> import pandas as pd
      >>> from raglab.policy import PolicyData
      >>> from raglab.replay import decide
      >>> rows = [
      ...     ("the excess?", "a", 0.9, "ok"),
      ...     ("the excess?", "b", 0.6, "ok"),
      ...     ("Who won?", "b", 0.1, "refuse"),
      ... ]
      >>> trace = trace_from_frame(
      ...     pd.DataFrame(rows, columns=["query", "hit_id", "score", "label"])
      ... )
      >>> policy = PolicyData.from_mapping({"confidence": {"enabled": False}})
      >>> decide(trace, policy).frame()[["status", "decided_by", "sources"]].values.tolist()
      [['ok', 'answered', ['a#n/a', 'b#n/a']], ['refuse', 'l2', []]]
    """
    trace = frame_trace(frame, columns, score, signals, policy, name, groups)
    warn_of_gates_off(name, trace.meta.get("gates_off", ()))
    for note in _source_notes(trace):
        warn_user(f"{name}: {note}; write sources as the column source has them.")
    warn_of_directions(trace, (*HIT_SCORES, *trace.signals))
    if score == UNSTATED:
        _warn_of_distances(name, trace, (columns or {}).get("score", "score"))
    return trace


def _warn_of_distances(name: str, trace: Trace, column: str) -> None:
    """Warn where a score of no stated scale, read as a cosine, looks like a distance.

    By its name, or by the ranks.
    """
    cosine, rank = trace.hits.cosine, trace.hits.rank
    first = np.nansum(np.where(rank == 0, cosine, np.nan), axis=-1, keepdims=True)
    # hits of a cell that have another score than its first one, in the direction of the later rank
    later = np.where((rank > 0) & ~np.isnan(cosine), cosine - first, 0.0).sum(axis=-1)
    n_better, n_worse = int((later > 0.0).sum()), int((later < 0.0).sum())
    if n_better <= n_worse and "dist" not in column.casefold():
        return
    warn_user(
        f"{name}: the column {cut_name(column)}, read as a cosine, looks like a distance: it rises "
        f"with the rank in {n_better:,} cells; write score="
        '"l2", "cosine", or None and a signal with "higher": "ask".'
    )


def _source_notes(trace: Trace) -> Iterator[str]:
    """What to know where cases name documents by less than their path, or none of the hits.

    A frame holds the documents that were hit; another of the same name may stand in the corpus
    behind it.
    """
    meanings = _meanings(trace.cases, trace.chunks)
    hit = trace.chunks[0].document if trace.chunks else "none"
    absent = [source for source, meaning in meanings.items() if not meaning.documents]
    slips = misspelt_sources(trace.cases, chunk_documents(trace.chunks), meanings)
    kinds = {
        "are documents of the hits but for case or ending": {
            source: document for _, source, document in slips
        },
        "are no documents of the hits": dict.fromkeys(
            absent if len(absent) == len(meanings) and not slips else (), hit
        ),
        "are the end of a path": {
            source: path
            for source, meaning in meanings.items()
            if meaning.documents and document_path(source) != (path := full_source(meaning))
        },
        "are paths outside a corpus": dict.fromkeys(filter(is_outside, absent), hit),
    }
    for what, sources in kinds.items():
        if sources:
            source, document = map(shown_value, min(sources.items()))
            count = f"{len(sources):,} of {len(meanings):,} sources of cases"
            yield f"{count} {what}, first {source} beside {document}"


def _meanings(cases: Sequence[Case], chunks: Sequence[Chunk]) -> dict[str, Meaning]:
    """What the sources of the cases mean among the documents of the hits."""
    sources = {source for case in cases for source in case_sources(case)}
    return source_meanings(sources, chunk_documents(chunks)) if sources else {}


def warn_of_gates_off(name: str, off: Sequence[str]) -> None:
    """Warn whoever called the caller that gates of a frame are off, if any is."""
    if off:
        gates = ", ".join(off)
        remedy = 'gate a score of signals={…} by policy.replace("signals.<name>.min", …)'
        warn_user(f"{name}: without distances the gates {gates} are off; {remedy}.")


def frame_trace(
    frame: pd.DataFrame,
    columns: Columns,
    score: Score | None,
    signals: Signals,
    policy: PolicyData | None,
    name: str,
    groups: Sequence[str] = (),
) -> Trace:
    """Trace as `trace_from_frame` makes it, without a warning of gates that are off."""
    user_signals = signal_columns(signals, name)
    of_query = [column for signal, column in user_signals if signal.stage == "query"]
    of_hits = [column for signal, column in user_signals if signal.stage != "query"]
    hits = read_hits(frame, columns, score, [*of_query, *of_hits, *groups], name)
    cases, of_case = hit_cases(hits, groups, of_query)
    chunks, of_chunk = hit_chunks(hits, of_hits)
    arms, depth = hit_places(hits)
    measurements = _measurements(hits, score)
    rank = hits.numbers("rank", hits.cells.get("rank"), (0, MAX_INTEGER, "count from 0"), int)
    measured = []
    for signal, column in user_signals:
        low, high = signal.unit.low, signal.unit.high
        bounds = (low, high, SHARE if (low, high) == (0.0, 1.0) else EMPTY)
        measured.append((signal, column, hits.numbers(column, hits.table.columns[column], bounds)))
    hits.faults.stop()
    check_clear(cases, _meanings(cases, chunks))
    shape = (len(cases), len(arms.names), int(depth.max()) + 1)
    cell = np.ravel_multi_index((of_case.of_row, arms.of_row, depth), shape)
    rows = _Rows(hits, cases, chunks, arms.names, of_case.of_row, of_chunk.of_row, cell, shape)
    _check_cells(rows)
    hits.faults.stop()
    order = _ranks(rows, measurements, score, rank)
    off = _gates_off(measurements)
    laid = _hits_by_distance(rows, measurements, order)
    trace = _trace(rows, laid, off, score, columns, policy or PolicyData.from_mapping())
    unsorted = np.ones(rows.n_cells, dtype=bool)
    for signal, column, numbers in measured:
        values_of = numbers[of_case.first]
        if signal.stage != "query":
            values_of = np.full(rows.n_cells, np.nan)
            leads = order <= 0  # the first hit, or the one row that says there are none
            values_of[cell[leads]] = numbers[leads]
            sign, best = DIRECTION_SIGNS[signal.direction], np.full(rows.n_cells, np.nan)
            np.fmax.at(best, cell, numbers * sign)
            unsorted &= ~np.isnan(best) & ~(values_of * sign >= best)
            values_of = values_of.reshape(shape)
        trace = with_column(trace, signal, values_of)
        _warn_of_label(rows, column, numbers)
    if (
        score is None
        and "rank" not in hits.cells
        and np.isnan(measurements["s_rerank"]).all()
        and of_hits
        and unsorted.any()
    ):
        names = [f"signals.{signal.name}" for signal, column in user_signals if column in of_hits]
        warn_user(
            f"{name}: hits are in the order of the rows, and in {unsorted.sum():,} of "
            f"{rows.n_cells:,} cells the first is not the surest by {' nor '.join(names)}; sort "
            "the rows, or add a column rank."
        )
    return trace


def _trace(
    rows: _Rows,
    hits: Hits,
    off: Sequence[str],
    score: Score | None,
    columns: Columns,
    policy: PolicyData,
) -> Trace:
    """Trace of hits, without signals."""
    name = rows.hits.table.name
    meta: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "corpus_hash": hash_corpus(Corpus(name, rows.chunks)),
        "cases_hash": hash_cases(rows.cases),
        "parameters": {"score": score, "arms": list(rows.arms)},
        **({"gates_off": off} if off else {}),
    }
    stated = {"columns": dict(columns)} if columns else {}
    shown_columns = "".join(f"{key}={value!r}, " for key, value in stated.items())
    trace = Trace(rows.cases, rows.chunks, rows.arms, hits, None, meta)
    meta = {
        **meta,
        "fingerprint": content_hash(trace)[:16],  # no build made it: of what it holds
        "corpus": name,
        "n_chunks": len(rows.chunks),
        "n_documents": len({chunk.source for chunk in rows.chunks}),
        **stated_exact_names(rows.chunks),
        "command": f"trace_from_frame(frame, {shown_columns}score={score!r}, name={name!r})",
        **stated,
    }
    return replace(
        trace, meta=meta, pattern_hits=pattern_hits(rows.cases, rows.chunks, policy.pattern_lists)
    )


def signal_columns(signals: Signals, name: str) -> list[tuple[Signal, str]]:
    """Signals of a frame as they are stated, with their columns.

    Raises:
      InputError: a signal does not state what it is.
    """
    columns, needed = [], {"higher", "unit"}
    for signal, stated in (signals or {}).items():
        keys = {*stated} if isinstance(stated, Mapping) else set()
        if not needed <= keys <= {"column", *DECLARED_KEYS}:
            raise input_error(
                Where(name, id=f"signal {signal}"),
                "a signal must state higher and unit, of column, "
                f"{', '.join(sorted(DECLARED_KEYS))}",
                'write {"my_score": {"column": …, "higher": "surer", "unit": "probability"}}',
                shown_value(", ".join(map(str, stated)) if keys else stated),
            )
        declared: dict[str, Any] = {key: stated[key] for key in DECLARED_KEYS & keys}
        columns.append((own_signal(signal, **declared), str(stated.get("column", signal))))
    return columns


def _warn_of_label(rows: _Rows, column: str, numbers: Numbers) -> None:
    """Warn if a column of 0 and 1 says in all rows whether the hit is expected, or the label."""
    known = np.flatnonzero(~np.isnan(numbers))
    if {*numbers[known].tolist()} != {0.0, 1.0}:
        return
    meanings = _meanings(rows.cases, rows.chunks)
    fulfilled = chunk_sources(rows.chunks, meanings) if meanings else []
    expected = [
        bool(numbers[row]) != {*fulfilled[rows.chunk[row]]}.isdisjoint(sources)
        for row in known
        if (sources := case_sources(rows.cases[rows.case[row]])) and rows.chunk[row] >= 0
    ]
    highest = np.full(len(rows.cases), np.nan)
    np.fmax.at(highest, rows.case, numbers)
    labels = [
        bool(value) == (case.expect_status == Status.ok.name)
        for case, value in zip(rows.cases, highest, strict=True)
        if case.expect_status is not None and not np.isnan(value)
    ]
    for agrees, what in ((expected, "hits whether they are expected"), (labels, "cases the label")):
        if len(agrees) >= LEAST_ALIKE and len({*agrees}) == 1:
            warn_user(
                f"{rows.hits.table.name}: the column {cut_name(column)} says of all "
                f"{len(agrees):,} {what}, which a signal must not know; write the right hits into "
                "expect_sources_any (docs/howto/own_hits.md)."
            )
            return


def _gates_off(measurements: Measurements) -> list[str]:
    """Gates that compare what no row of the frame measures."""
    known = {column for column, numbers in measurements.items() if not np.isnan(numbers).all()}
    if not known.isdisjoint(("l2", "cosine")):
        return []
    has_scores = not known.isdisjoint(("s_rerank", "s_hybrid"))
    return [gate for gate in CAN_BE_OFF if gate != "confidence" or not has_scores]


def _check_cells(rows: _Rows) -> None:
    """Each case has rows in each arm and depth, not too many.

    Different hits, or one row that says there are none.
    """
    name, cell = rows.hits.table.name, rows.cell
    # Whatever is as long as there are cells comes after this: names of arms alone could make them
    # thousands of times as many as rows.
    there = np.unique(cell)
    if len(there) < rows.n_cells:
        gap = next(place for place, number in enumerate([*there, -1]) if place != number)
        raise input_error(
            name,
            "a case must have rows in every arm and depth",
            "add its hits there, or one row without hit_id",
            f"none for {rows.place(gap)}",
        )
    n_rows = np.bincount(cell)
    longest = int(n_rows.max())
    what = "cases by arms, depths and"
    for rule, count, most in (
        ("hits of a case, arm and depth", longest, MAX_HITS_PER_CASE),
        (f"{what} hits of the longest case", longest * rows.n_cells, MAX_CELLS),
        (f"{what} pairs of hits of the longest case", longest**2 * rows.n_cells, MAX_PAIRS),
    ):
        if count > most:
            raise input_error(
                name,
                f"{rule} must be at most {most:,}",
                f"keep the first of the {longest:,} of {rows.place(int(np.argmax(n_rows)))}",
                f"{count:,}",
            )
    again = np.ones(len(cell), dtype=bool)
    again[np.unique(cell * (len(rows.chunks) + 1) + rows.chunk, return_index=True)[1]] = False
    rows.hits.check(
        (rows.chunk < 0) & (n_rows[cell] > 1),
        "hit_id",
        "a row without hit_id must stand alone in its case, arm and depth",
        "drop the row",
    )
    rows.hits.check(
        again & (rows.chunk >= 0),
        "hit_id",
        "a hit must stand once in a case, arm and depth",
        "tell cases apart by case_id",
    )


def _measurements(hits: HitTable, score: Score | None) -> dict[str, Numbers]:
    """Measurements of every row, NaN where not given; the score under its own name.

    Distance and cosine follow from one another.
    """
    measured = {
        field: hits.numbers(field, hits.cells.get(field), bounds)
        for field, bounds in MEASURES.items()
    }
    if score:
        measure = MEASURE_OF_SCORE[score]
        measured[measure] = hits.numbers("score", hits.cells["score"], MEASURES[measure])
        pairs = zip(hits.cells["hit_id"], hits.cells["score"], strict=True)
        hits.check(
            np.array([hit is not None and cell is None for hit, cell in pairs]),
            "score",
            "a hit must have a score",
            "drop the row, or empty its hit_id",
        )
    l2, cosine = measured["l2"], measured["cosine"]
    hits.check(
        np.abs(l2 - (2.0 - 2.0 * cosine)) > _AGREE,
        "l2" if "l2" in hits.cells else "score",
        "l2 must be 2 - 2 * cosine, of unit vectors",
        "square it, or drop the column",
    )
    return measured | {
        "l2": np.where(np.isnan(l2), 2.0 - 2.0 * cosine, l2),
        "cosine": np.where(np.isnan(cosine), 1.0 - l2 / 2.0, cosine),
    }


def _ranks(
    rows: _Rows,
    measurements: Measurements,
    score: Score | None,
    stated: Numbers,
) -> Positions:
    """Place of every row in the final order of its cell, [rows].

    As given, else by s_rerank, score, row.
    """
    hits = np.flatnonzero(rows.chunk >= 0)
    rank = np.full(len(rows.cell), -1)
    if "rank" in rows.hits.cells:
        rank = np.nan_to_num(stated, nan=-1.0).astype(np.int64)
        order = hits[np.lexsort((rank[hits], rows.cell[hits]))]
        wrong = np.zeros(len(rank), dtype=bool)
        wrong[order] = rank[order] != rows.within(order)
        rows.hits.check(
            wrong,
            "rank",
            "rank must count 0, 1, 2, … within a case, arm and depth",
            "number the hits from 0, or drop the column",
        )
        return rank
    worse = np.zeros(len(rank))
    if score:
        worse = measurements[MEASURE_OF_SCORE[score]] * (1.0 if score == "l2" else -1.0)
    later = np.where(np.isnan(measurements["s_rerank"]), np.inf, -measurements["s_rerank"])
    order = hits[np.lexsort((worse[hits], later[hits], rows.cell[hits]))]
    rank[order] = rows.within(order)
    return rank


def _hits_by_distance(rows: _Rows, measurements: Measurements, rank: Positions) -> Hits:
    """Hits by (l2, chunk), [Q, A, D, K].

    Those without a distance last, by rank: the order that their system gave.
    """
    reranked = ~np.isnan(measurements["s_rerank"])
    n_reranked = np.bincount(rows.cell[reranked], minlength=rows.n_cells)
    rows.hits.check(
        reranked & (rank >= n_reranked[rows.cell]),
        "rank",
        "hits with s_rerank must come before those without",
        "correct or drop rank",
    )
    rows.hits.faults.stop()
    hits = np.flatnonzero(rows.chunk >= 0)
    ties = np.where(np.isnan(measurements["l2"]), rank, rows.chunk)
    order = hits[np.lexsort((ties[hits], measurements["l2"][hits], rows.cell[hits]))]
    place = rows.within(order)
    width = int(place.max(initial=0)) + 1

    def laid(of: NDArray[Any], empty: float, kind: type[np.generic]) -> NDArray[Any]:
        out = np.full((rows.n_cells, width), empty, dtype=kind)
        out[rows.cell[order], place] = of[order]
        return out.reshape(*rows.shape, width)

    similarity = {
        "anchor_sim": "anchor_similarity",
        "sig_sim": "signature_similarity",
        "sig_sim_strict": "signature_similarity",
    }
    floats = {
        field: laid(measurements[similarity.get(field, field)], np.nan, np.float64)
        for field in FLOAT_FIELDS
    }
    return Hits(
        chunk=laid(rows.chunk, -1, np.int32),
        rank=laid(rank, -1, np.int32),
        n_reranked=n_reranked.astype(np.int32).reshape(rows.shape),
        **floats,
    )
