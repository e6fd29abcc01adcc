"""Frames (shore): traces from DataFrames of own hits, with cases, passages, ranks, measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab import values
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
from raglab.decision.score_directions import HIT_SCORES, warn_of_directions
from raglab.policy import PolicyData
from raglab.policy_parts.patterns import pattern_hits
from raglab.store.files import Where, input_error, shown_value
from raglab.store.hit_tables import (
    MEASURE_OF_SCORE,
    MEASURES,
    UNSTATED,
    HitRows,
    Score,
    SignalColumn,
    cut_name,
    read_hits,
    signal_columns,
)
from raglab.store.loaders import hash_corpus
from raglab.store.records import hash_cases
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace, with_column
from raglab.values import (
    FLOAT_FIELDS,
    MOST_HITS,
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

_BOUNDS = {"surer": "min", "ask": "max"}  # of a signal, by its direction
LEAST_ALIKE = 10  # rows or cases that a column must agree with a label in to look like one
_AGREE = 1e-3  # l2 against 2 - 2 cosine: embeddings in half precision differ by less


def trace_from_frame(
    frame: pd.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    score: Score | None = UNSTATED,
    signals: Mapping[str, Mapping[str, str]] | None = None,
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
    trace = frame_trace(
        frame, columns=columns, score=score, signals=signals, policy=policy, name=name, groups=groups
    )
    warn_of_gates_off(name, trace.meta.get("gates_off", ()), signals)
    warn_of_short_sources(name, trace)
    warn_of_directions(trace, (*HIT_SCORES, *trace.signals))
    if score == UNSTATED:
        _warn_of_distances(name, trace, (columns or {}).get("score", "score"))
    return trace


def _warn_of_distances(name: str, trace: Trace, column: str) -> None:
    """Warn where a score of no stated scale, read as a cosine, looks like a distance.

    By its name, or by the ranks.
    """
    cosine, rank = (
        part.reshape(-1, part.shape[-1]) for part in (trace.hits.cosine, trace.hits.rank)
    )
    first = np.nansum(np.where(rank == 0, cosine, np.nan), axis=1)[:, None]
    # hits of a cell that have another score than its first one, in the direction of the later rank
    later = np.where((rank > 0) & ~np.isnan(cosine), cosine - first, 0.0).sum(axis=1)
    n_better, n_worse = int((later > 0.0).sum()), int((later < 0.0).sum())
    if n_better <= n_worse and "dist" not in column.casefold():
        return
    count = f"in {n_better:,} of {n_better + n_worse:,} cases it rises with the rank"
    why = count if n_better > n_worse else "its name says that it is a distance"
    warn_user(
        f"{name}: the column {cut_name(column)} is read as a cosine, but {why}; write "
        'score="cosine" where it is one, score="l2" of a squared distance of unit vectors, or '
        'score=None and signals with "higher": "ask".'
    )


def warn_of_short_sources(name: str, trace: Trace) -> None:
    """Warn the caller's caller if cases name documents by less than their path, or none hit.

    A frame holds the documents that were hit; another of the same name may stand in the corpus
    behind it.
    """
    meanings = _meanings(trace.cases, trace.chunks)
    misspelt = misspelt_sources(trace.cases, chunk_documents(trace.chunks), meanings)
    if misspelt:
        case, source, document = misspelt[0]
        expecting = sum(bool(case_sources(case)) for case in trace.cases)
        warn_user(
            f"{name}: {len(misspelt):,} of {expecting:,} cases with sources name one that is no "
            "document among the "
            f"hits, but is one up to case or file extension, the first {shown_value(source)} in "
            "case "
            f"{shown_value(case.id)} beside {shown_value(document)}: it counts as not retrieved; "
            "write sources as the "
            "column source has them."
        )
    elif meanings and not any(meaning.documents for meaning in meanings.values()):
        warn_user(
            f"{name}: none of the {len(meanings)} sources that cases name is a document among the "
            "hits, got "
            f"{shown_value(min(meanings))} beside "
            f"{shown_value(trace.chunks[0].document) if trace.chunks else 'none'}; "
            "write them as the column source has them."
        )
    short = {
        source: full_source(meaning)
        for source, meaning in meanings.items()
        if meaning.documents and document_path(source) != full_source(meaning)
    }
    if short:
        source, path = min(short.items())
        warn_user(
            f"{name}: {len(short)} of {len(meanings)} sources that cases name are the end of a "
            "path, and mean the only "
            f"document among the hits that has it, as {shown_value(source)} means "
            f"{shown_value(path)}; write the path "
            "where the corpus has others."
        )


def _meanings(cases: Sequence[Case], chunks: Sequence[Chunk]) -> dict[str, Meaning]:
    """What the sources of the cases mean among the documents of the hits."""
    sources = {source for case in cases for source in case_sources(case)}
    return source_meanings(sources, chunk_documents(chunks)) if sources else {}


def warn_of_gates_off(
    name: str, off: Sequence[str], signals: Mapping[str, Mapping[str, str]] | None
) -> None:
    """Warn whoever called the caller that gates are off, if any is, and say what to gate instead.

    Args:
      name: of the frame.
      signals: those that it brings.
    """
    if not off:
        return
    bounds = [
        f"signals.{signal}.{_BOUNDS[stated['higher']]}"
        for signal, stated in (signals or {}).items()
    ]
    how = (
        f'gate a signal instead: policy.replace("{bounds[0]}", …)'
        if bounds
        else "name a score by signals={…}"
    )
    what = "distances" if "confidence" not in off else "distances and no scores of a reranker"
    warn_user(f"{name}: the hits have no {what}, so the gates {', '.join(off)} are off; {how}.")


def frame_trace(
    frame: pd.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    score: Score | None,
    signals: Mapping[str, Mapping[str, str]] | None,
    policy: PolicyData | None,
    name: str,
    groups: Sequence[str] = (),
) -> Trace:
    """Trace as `trace_from_frame` makes it, without a warning of gates that are off."""
    user_signals = signal_columns(signals or {}, name)
    rows = read_hits(frame, columns, score, user_signals, groups, name)
    check_clear(rows.cases, _meanings(rows.cases, rows.chunks))
    shape = (len(rows.cases), len(rows.arms), int(rows.depth.max()) + 1)
    cell = np.ravel_multi_index((rows.case, rows.arm, rows.depth), shape)
    _check_cells(rows, cell, shape)
    measurements = _measurements(rows, score)
    rank = _ranks(rows, cell, measurements, score)
    hits = _hits_by_distance(rows, cell, shape, measurements, rank)
    off = _gates_off(measurements, score)
    meta: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "corpus_hash": hash_corpus(Corpus(name, rows.chunks)),
        "cases_hash": hash_cases(rows.cases),
        "parameters": {"score": score, "arms": list(rows.arms)},
        **({"gates_off": off} if off else {}),
    }
    mapped = dict(columns or {})
    shown_columns = f"columns={mapped!r}, " if mapped else ""
    parts: dict[str, Any] = {
        "cases": rows.cases,
        "chunks": rows.chunks,
        "arms": rows.arms,
        "hits": hits,
    }
    # no build made it, so its fingerprint is of what it holds
    held = values.TraceData(**parts, pattern_hits=None, meta=meta)
    meta |= {
        "fingerprint": content_hash(held)[:16],
        "corpus": name,
        "n_chunks": len(rows.chunks),
        "n_documents": len({chunk.source for chunk in rows.chunks}),
        **stated_exact_names(rows.chunks),
        "command": f"trace_from_frame(frame, {shown_columns}score={score!r}, name={name!r})",
        **({"columns": mapped} if mapped else {}),
    }
    patterns = (policy or PolicyData.from_mapping()).pattern_lists
    hits_of = pattern_hits(rows.cases, rows.chunks, patterns)
    trace = Trace(**parts, pattern_hits=hits_of, meta=meta)
    for n, signal in enumerate(user_signals):
        numbers = rows.numbers[f"signal_{n}"]
        trace = with_column(trace, signal.signal, _signal_values(rows, cell, shape, rank, numbers, signal))
        _warn_of_label(rows, signal, numbers)
    if score is None and "rank" not in rows.heads and np.isnan(measurements["s_rerank"]).all():
        _warn_of_row_order(rows, cell, user_signals)
    return trace


def _signal_values(
    rows: HitRows,
    cell: NDArray[np.int64],
    shape: tuple[int, int, int],
    rank: NDArray[np.int64],
    numbers: NDArray[np.float64],
    signal: SignalColumn,
) -> NDArray[np.float64]:
    """Values of a signal: of the first hit of each case, arm and depth, [Q, A, D].

    Of the stage query [Q].
    """
    if signal.signal.stage == "query":
        return numbers[np.unique(rows.case, return_index=True)[1]]
    values_of = np.full(math.prod(shape), np.nan)
    leads = rank <= 0  # the first hit, or the one row that says there are none
    values_of[cell[leads]] = numbers[leads]
    return values_of.reshape(shape)


def _warn_of_label(rows: HitRows, signal: SignalColumn, numbers: NDArray[np.float64]) -> None:
    """Warn if a column of 0 and 1 says in all rows whether the hit is expected, or the label."""
    known = np.flatnonzero(~np.isnan(numbers))
    if {*numbers[known].tolist()} != {0.0, 1.0}:
        return
    meanings = _meanings(rows.cases, rows.chunks)
    fulfilled = chunk_sources(rows.chunks, meanings) if meanings else []
    expected = [
        bool(numbers[row]) != {*fulfilled[rows.chunk[row]]}.isdisjoint(sources)
        for row in known
        if meanings
        and rows.chunk[row] >= 0
        and (sources := case_sources(rows.cases[rows.case[row]]))
    ]
    highest = np.full(len(rows.cases), np.nan)
    np.fmax.at(highest, rows.case, numbers)
    labels = [
        bool(value) == (case.expect_status == Status.ok.name)
        for case, value in zip(rows.cases, highest, strict=True)
        if case.expect_status is not None and not np.isnan(value)
    ]
    for agrees, what in (
        (expected, "rows whether the hit is of an expected source"),
        (labels, "cases the label"),
    ):
        if len(agrees) >= LEAST_ALIKE and len({*agrees}) == 1:
            warn_user(
                f"{rows.table.name}: the column {cut_name(signal.column)} says in all "
                f"{len(agrees):,} {what}: a signal would feed the label back to the policy; write "
                "the right hits into expect_sources_any (docs/howto/own_hits.md), unless it is "
                "known before the answer."
            )
            return


def _warn_of_row_order(
    rows: HitRows, cell: NDArray[np.int64], signals: Sequence[SignalColumn]
) -> None:
    """Warn if rows give the order of hits, and no signal makes a case's first hit its best."""
    n_cells, names = int(cell.max()) + 1, []
    unsorted = np.ones(n_cells, dtype=bool)
    for n, (signal, _) in enumerate(signals):
        if signal.stage == "query":
            continue
        numbers = rows.numbers[f"signal_{n}"] * (1.0 if signal.direction == "surer" else -1.0)
        best, first = np.full(n_cells, np.nan), np.full(n_cells, np.nan)
        np.fmax.at(best, cell, numbers)
        first[cell[::-1]] = numbers[::-1]  # the first row of a cell is written last
        unsorted &= ~np.isnan(best) & (np.isnan(first) | (first < best))
        names.append(f"signals.{signal.name}")
    if names and unsorted.any():
        warn_user(
            f"{rows.table.name}: the hits stand in the order of the rows, and in "
            f"{unsorted.sum():,} of {n_cells:,} cases (arms and depths apart) the first is not the "
            f"surest by {' nor '.join(names)}; sort the rows, or add a column rank."
        )


def _gates_off(measurements: Mapping[str, NDArray[np.float64]], score: Score | None) -> list[str]:
    """Gates that compare what no row of the frame measures."""

    def measured(*columns: str) -> bool:
        return any(not np.isnan(measurements[column]).all() for column in columns)

    if score in {UNSTATED, "cosine", "l2"} or measured("l2", "cosine"):
        return []
    scores = score == "probability" or measured("s_rerank", "s_hybrid")
    return [gate for gate in CAN_BE_OFF if gate != "confidence" or not scores]


def _check_cells(rows: HitRows, cell: NDArray[np.int64], shape: tuple[int, int, int]) -> None:
    """Each case has rows in each arm and depth, not too many.

    Different hits, or one row that says there are none.
    """
    where = Where(rows.table.name)

    def place(number: int) -> str:
        case, arm, depth = np.unravel_index(number, shape)
        name, arm_name = shown_value(rows.cases[int(case)].id), shown_value(rows.arms[int(arm)])
        return f"case {name}, arm {arm_name}, depth {depth}"

    # Whatever is as long as there are cells comes after this: names of arms alone could make them
    # thousands of times as many as rows.
    there = np.unique(cell)
    if len(there) < math.prod(shape):
        gap = int(np.append(np.flatnonzero(there != np.arange(len(there))), len(there))[0])
        rule = "a case must have rows in every arm and depth"
        remedy = "add its hits there, or one row without hit_id if there were none"
        raise input_error(where, rule, remedy, f"none for {place(gap)}")
    n_rows = np.bincount(cell)
    longest, size = int(n_rows.max()), len(n_rows) * int(n_rows.max())
    for what, count, most in (
        ("hits of a case, arm and depth", longest, MOST_HITS),
        ("cases by arms, depths and hits of the longest case", size, MAX_CELLS),
        ("cases by arms, depths and pairs of hits of the longest case", size * longest, MAX_PAIRS),
    ):
        if count > most:
            remedy = f"keep the first of {place(int(np.argmax(n_rows)))}, which has {longest:,}"
            raise input_error(where, f"{what} must be at most {most:,}", remedy, f"{count:,}")

    def hit(row: int) -> str:
        number = rows.chunk[row]
        name = shown_value(rows.chunks[number].chunk_id) if number >= 0 else "None"
        return f"{name} in {place(int(cell[row]))}"

    order = np.lexsort((rows.chunk, cell))
    again = np.zeros(len(cell), dtype=bool)
    again[order[1:]] = (np.diff(cell[order]) == 0) & (np.diff(rows.chunk[order]) == 0)
    rule = "a row without hit_id must be the only one of its case, arm and depth"
    rows.check((rows.chunk < 0) & (n_rows[cell] > 1), "hit_id", rule, "drop the row", hit)
    rule = "a hit must stand once in a case, arm and depth"
    remedy = "drop the row, or tell the cases apart by case_id"
    rows.check(again, "hit_id", rule, remedy, hit)


def _measurements(rows: HitRows, score: Score | None) -> dict[str, NDArray[np.float64]]:
    """Measurements of every row, NaN where not given; the score under its own name."""
    measurements = {field: rows.number(field) for field in MEASURES}
    if score:
        measurements[MEASURE_OF_SCORE[score]] = rows.number("score")
    l2, cosine = measurements["l2"], measurements["cosine"]
    rule, remedy = "l2 must be 2 - 2 * cosine, of unit vectors", "square it, or drop the column"
    apart = np.abs(l2 - (2.0 - 2.0 * cosine)) > _AGREE
    field = "l2" if "l2" in rows.heads else "score"
    rows.check(apart, field, rule, remedy, lambda row: f"{l2[row]:g} beside {cosine[row]:g}")
    return measurements | {
        "l2": np.where(np.isnan(l2), 2.0 - 2.0 * cosine, l2),
        "cosine": np.where(np.isnan(cosine), 1.0 - l2 / 2.0, cosine),
    }


def _within(cell: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places 0, 1, 2, … inside their cell, of rows in an order that keeps cells together."""
    n_before = np.append(0, np.cumsum(np.bincount(cell[order], minlength=int(cell.max()) + 1)))
    places: NDArray[np.int64] = np.arange(len(order)) - n_before[cell[order]]
    return places


def _ranks(
    rows: HitRows,
    cell: NDArray[np.int64],
    measurements: Mapping[str, NDArray[np.float64]],
    score: Score | None,
) -> NDArray[np.int64]:
    """Place of every row in the final order of its cell, [rows].

    As given, else by s_rerank, score, row.
    """
    hits = np.flatnonzero(rows.chunk >= 0)
    if "rank" in rows.heads:
        stated = rows.numbers["rank"]
        rank = np.where(np.isnan(stated), -1, stated).astype(np.int64)
        order = hits[np.lexsort((rank[hits], cell[hits]))]
        wrong = np.zeros(len(rank), dtype=bool)
        missing = hits[rank[hits] < 0]
        wrong[missing if len(missing) else order[rank[order] != _within(cell, order)]] = True
        rule = "rank must count 0, 1, 2, … within a case, arm and depth"
        remedy = "number the hits from 0, or drop the column"
        rows.check(wrong, "rank", rule, remedy, lambda row: "None" if rank[row] < 0 else str(rank[row]))
        return rank
    worse = np.zeros(len(cell))
    if score:
        worse = measurements[MEASURE_OF_SCORE[score]] * (1.0 if score == "l2" else -1.0)
    later = np.where(np.isnan(measurements["s_rerank"]), np.inf, -measurements["s_rerank"])
    order = hits[np.lexsort((worse[hits], later[hits], cell[hits]))]
    rank = np.full(len(cell), -1)
    rank[order] = _within(cell, order)
    return rank


def _hits_by_distance(
    rows: HitRows,
    cell: NDArray[np.int64],
    shape: tuple[int, int, int],
    measurements: Mapping[str, NDArray[np.float64]],
    rank: NDArray[np.int64],
) -> Hits:
    """Hits by (l2, chunk), [Q, A, D, K].

    Those without a distance last, by rank: the order that their system gave.
    """
    reranked = ~np.isnan(measurements["s_rerank"])
    n_reranked = np.bincount(cell[reranked], minlength=math.prod(shape))
    late = reranked & (rank >= n_reranked[cell])
    rule = "hits with s_rerank must come before those without"
    remedy = "correct rank or drop the column"
    rows.check(late, "rank", rule, remedy, lambda row: f"rank {rank[row]}")
    hits = np.flatnonzero(rows.chunk >= 0)
    ties = np.where(np.isnan(measurements["l2"]), rank, rows.chunk)
    order = hits[np.lexsort((ties[hits], measurements["l2"][hits], cell[hits]))]
    place = _within(cell, order)
    width = int(place.max(initial=0)) + 1

    def laid(of: NDArray[Any], empty: float, kind: type[np.generic]) -> NDArray[Any]:
        out = np.full((math.prod(shape), width), empty, dtype=kind)
        out[cell[order], place] = of[order]
        return out.reshape(*shape, width)

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
        n_reranked=n_reranked.astype(np.int32).reshape(shape),
        **floats,
    )
