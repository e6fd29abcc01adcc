"""Frames (shore): traces from DataFrames of own hits, with cases, passages, ranks, measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import values
from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import ANSWERS
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
from raglab.signals import DECLARED, Signal, own_signal
from raglab.store.case_frames import LOGGED_COLUMNS
from raglab.store.case_labels import labelled_set
from raglab.store.case_records import hash_cases
from raglab.store.cells import (
    Cells,
    field_names,
    frame_cells,
    measurement,
    read_columns,
    warn_of_empty_columns,
)
from raglab.store.files import Where, input_error, shown_value
from raglab.store.hit_columns import (
    HIT_COLUMNS,
    MEASURE_OF_SCORE,
    MEASURES,
    OF_CASE,
    OF_HIT,
    PASSAGE_COLUMNS,
    UNSTATED,
    Score,
    cut_name,
    hit_places,
    meant_columns,
    signal_remedy,
)
from raglab.store.loaders import hash_corpus
from raglab.store.record_fields import flat_name
from raglab.store.trace_checks import MOST_DEPTHS
from raglab.store.trace_files import content_hash
from raglab.store.traces import Trace, with_column
from raglab.values import (
    FLOAT_FIELDS,
    MOST_HITS,
    SCHEMA_VERSION,
    TAG_KEYS,
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


class Numbering(NamedTuple):
    """Distinct names in the order of their first rows.

    Number of each row's, -1 where it is missing; first rows.
    """

    names: tuple[str, ...]
    of_row: list[int]
    first: list[int]


class HitRows(NamedTuple):
    """Rows of a frame of hits.

    Cells, columns of the frame by our names, and their values, None where missing.
    """

    cells: Cells
    places: Mapping[str, str]
    columns: Mapping[str, Sequence[Any]]

    def of(self, field: str) -> Sequence[Any]:
        """Values of a column, all None where the frame has none."""
        return self.columns[field] if field in self.columns else [None] * self.cells.size

    def numbered(self, field: str) -> Numbering:
        """Names of a column, numbered."""
        values = self.of(field)
        # A text "1" beside an integer 1 would be one name: it must be all strings, or all integers.
        kinds = list(dict.fromkeys(type(value) for value in values if value is not None))
        if len(kinds) > 1:
            row = next(row for row, value in enumerate(values) if type(value) is kinds[1])
            rule, remedy = (
                f"{field} must be all strings or all integers",
                f'write frame["{field}"].astype(str)',
            )
            raise self.cells.error(row, field, rule, remedy, shown_value(values[row]))
        first: dict[Any, int] = {}
        for row, value in enumerate(values):
            first.setdefault(value, row)
        first.pop(None, None)
        number = {value: place for place, value in enumerate(first)}
        return Numbering(
            tuple(map(str, first)),
            [number.get(value, -1) for value in values],
            list(first.values()),
        )

    def check_same(
        self, fields: Iterable[str], first: Sequence[int], what: str, remedy: str
    ) -> None:
        """Stop if a row differs in a column from the first row of its case or passage, [rows]."""
        for field in fields:
            self.cells.same(self.places[field], self.columns[field], first, what, remedy)


def frame_cases(rows: HitRows, groups: Sequence[str] = ()) -> tuple[tuple[Case, ...], Numbering]:
    """Cases in the order of their first rows, and their numbers.

    Without a column of labels none has one.

    Two cases of one question may have different labels, since hits are given for each: that is a
    warning.

    Args:
      groups: columns whose values group the cases, see `raglab.gating.case_groups.group_value`.
    """
    has_id = "case_id" in rows.columns
    numbering = rows.numbered("case_id" if has_id else "query")
    # The first row of a case states it, all others must agree with it.
    fields = [
        field
        for field in ("query", "expect_status", *OF_CASE, *LOGGED_COLUMNS)
        if field in rows.columns
    ]
    remedy = "correct it" if has_id else "correct it, or tell the cases apart by case_id"
    first = [numbering.first[number] for number in numbering.of_row]
    rows.check_same(fields, first, "a case", remedy)
    for group in groups:
        rows.cells.same(group, rows.cells.of(group), first, "a case", remedy)
    placed: list[tuple[Where, Case]] = []
    for name, row in zip(numbering.names, numbering.first, strict=True):
        stated = {
            field: value for field in fields if (value := rows.columns[field][row]) is not None
        }
        stated |= {
            field: tuple(value) for field, value in stated.items() if isinstance(value, list)
        }
        extra: dict[str, Any] = {
            field: stated.pop(field) for field in LOGGED_COLUMNS if field in stated
        }
        extra |= {ANSWERS: list(stated.pop(ANSWERS))} if ANSWERS in stated else {}
        by_group = {
            group: str(value)
            for group in groups
            if (value := rows.cells.of(group)[row]) is not None
        }
        extra |= {"groups": {**extra.get("groups", {}), **by_group}} if by_group else {}
        case = Case(name if has_id else f"q{len(placed) + 1}", **stated, extra=extra)
        placed.append((Where(f"{rows.cells.name}, row {row}", id=case.id), case))
    return labelled_set(placed, rows.cells.name), numbering


def frame_chunks(rows: HitRows, of_hit: Iterable[str]) -> tuple[tuple[Chunk, ...], list[int]]:
    """Passages in the order of their first rows, and each row's passage number, -1 without one.

    Args:
      of_hit: columns that must be empty in a row without a passage.
    """
    cells = rows.cells
    # A row without a passage says that its case found nothing: whatever else it says of one is a
    # mistake.
    hits, chunk_of_row, first = rows.numbered("hit_id")
    nothing = [row for row, number in enumerate(chunk_of_row) if number < 0]
    for column in filter(cells.has, of_hit):
        for row in nothing:
            value = cells.of(column)[row]
            if value is not None:
                rule = (
                    f"a row without hit_id says that nothing was found, so it must have no {column}"
                )
                raise cells.error(
                    row, column, rule, "fill hit_id, or empty the cell", shown_value(value)
                )
    # Passages repeat from row to row: the first row states them, all others must agree with it.
    of_row = [first[number] if number >= 0 else row for row, number in enumerate(chunk_of_row)]
    fields = [field for field in PASSAGE_COLUMNS if field in rows.columns]
    rows.check_same(fields, of_row, "a hit_id", "correct it, or name the passages apart")
    of = {field: rows.of(field) for field in PASSAGE_COLUMNS}
    chunks = [
        Chunk(
            chunk_id=hit,
            text=of["text"][row] or "",
            source=of["source"][row] or flat_name(hit),
            page=of["page"][row],
            page_label=of["page_label"][row],
            tags={key: of[key][row] for key in TAG_KEYS if of[key][row] is not None},
            entities=tuple(of["entities"][row] or ()),
            section=tuple(of["section"][row] or ()),
        )
        for hit, row in zip(hits, first, strict=True)
    ]
    return tuple(chunks), chunk_of_row


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
    about: dict[str, Any] = {
        "columns": columns,
        "score": score,
        "signals": signals,
        "policy": policy,
        "name": name,
    }
    trace = frame_trace(frame, groups=groups, **about)
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
    first = np.where(rank == 0, cosine, np.nan)
    # Hits of a cell that have another score than its first one, in the direction of the later rank.
    later = np.where(
        (rank > 0) & ~np.isnan(cosine), cosine - np.nansum(first, axis=1)[:, None], 0.0
    )
    n_better, n_worse = int((later.sum(axis=1) > 0.0).sum()), int((later.sum(axis=1) < 0.0).sum())
    against = n_better > n_worse
    if not against and "dist" not in column.casefold():
        return
    count = (
        f"in {n_better:,} of {n_better + n_worse:,} cases it rises while the hits get worse by rank"
    )
    why = count if against else "its name says that it is a distance"
    declared = (
        f'score=None, signals={{"distance": {{"column": "{cut_name(column)}", "higher": "ask", '
        f'"unit": "distance"}}}}'
    )
    warn_user(
        f"{name}: the column {cut_name(column)} is read as a cosine, of which more is better, but "
        f"{why}; write "
        'score="cosine" where it is one, score="l2" of a squared distance of unit vectors, or '
        f"{declared}."
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
    mapped = dict(columns) if isinstance(columns, Mapping) else {}
    cells = frame_cells(frame, name, index={*field_names(HIT_COLUMNS), *map(str, mapped.values())})
    _warn_of_index(frame, cells)
    user_signals = signal_columns(signals or {}, name)
    places = hit_places(
        cells, columns, score, [*(signal.column for signal in user_signals), *groups]
    )
    known = {**HIT_COLUMNS, **({"score": MEASURES[MEASURE_OF_SCORE[score]]} if score else {})}
    rows = HitRows(cells, places, read_columns(cells, places, known))
    warn_of_empty_columns(cells, [*places.values()])
    # Cases, passages, arms and depths are numbered apart; a row of the frame is then one cell of
    # the trace.
    cases, case_numbers = frame_cases(rows, groups)
    of_hit = [
        signal_column.column
        for signal_column in user_signals
        if signal_column.signal.stage != "query"
    ]
    chunks, chunk_of_row = frame_chunks(
        rows, dict.fromkeys((*(places.get(field, field) for field in OF_HIT), *of_hit))
    )
    check_clear(cases, _meanings(cases, chunks))
    arms, arm_of_row, _ = (
        rows.numbered("arm") if "arm" in places else ((name,), [0] * cells.size, [0])
    )
    depth_of_row = _row_depths(rows)
    shape = (len(cases), len(arms), max(depth_of_row) + 1)
    at = _Rows(
        np.ravel_multi_index((case_numbers.of_row, arm_of_row, depth_of_row), shape),
        np.array(chunk_of_row),
        shape,
    )
    _check_rows(rows, at, cases, arms)
    measurements = _measurements(rows, score)
    rank = _ranks(rows, at, measurements, score)
    hits = _hits_by_distance(cells, at, measurements, rank)
    off = _gates_off(measurements, score)
    meta: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "corpus_hash": hash_corpus(Corpus(name, chunks)),
        "cases_hash": hash_cases(cases),
        "parameters": {"score": score, "arms": list(arms)},
        **({"gates_off": off} if off else {}),
    }
    shown_columns = f"columns={mapped!r}, " if mapped else ""
    # No build made it, so its fingerprint is of what it holds.
    meta |= {
        "fingerprint": content_hash(
            values.TraceData(
                cases=cases, chunks=chunks, arms=arms, hits=hits, pattern_hits=None, meta=meta
            )
        )[:16],
        "corpus": name,
        "n_chunks": len(chunks),
        "n_documents": len({chunk.source for chunk in chunks}),
        **stated_exact_names(chunks),
        "command": f"trace_from_frame(frame, {shown_columns}score={score!r}, name={name!r})",
        **({"columns": mapped} if mapped else {}),
    }
    hits_of = pattern_hits(cases, chunks, (policy or PolicyData.from_mapping()).pattern_lists)
    trace = Trace(cases=cases, chunks=chunks, arms=arms, hits=hits, pattern_hits=hits_of, meta=meta)
    for signal_column in user_signals:
        values_of = _signal_values(cells, at, rank, case_numbers, signal_column)
        trace = with_column(trace, signal_column.signal, values_of)
        _warn_of_label(cells, signal_column, cases, case_numbers.of_row, chunks, chunk_of_row)
    if score is None and "rank" not in places and np.isnan(measurements["s_rerank"]).all():
        _warn_of_row_order(
            cells, at, [column for column in user_signals if column.signal.stage != "query"]
        )
    return trace


class SignalColumn(NamedTuple):
    """A signal of a frame: what it is, and its column."""

    signal: Signal
    column: str


def signal_columns(signals: Mapping[str, Mapping[str, str]], name: str) -> tuple[SignalColumn, ...]:
    """Signals of a frame as they are stated."""
    if not isinstance(signals, Mapping):
        rule, remedy = (
            "signals must state each signal by its name",
            'write {"my_score": {"higher": …, "unit": …}}',
        )
        raise input_error(Where(name), rule, remedy, shown_value(signals))
    return tuple(_signal_column(signal, stated, name) for signal, stated in signals.items())


def _signal_column(signal: str, stated: Mapping[str, str], name: str) -> SignalColumn:
    where = Where(name, id=f"signal {signal}")
    needed = {"higher", "unit"}
    if not isinstance(stated, Mapping) or not needed <= stated.keys() <= {"column", *DECLARED}:
        optional = ", ".join(sorted({"column", *DECLARED} - needed))
        rule = f"a signal must state higher and unit, and may state {optional}"
        remedy = 'write {"column": "my_score", "higher": "surer", "unit": "probability"}'
        value = shown_value(stated)
        if isinstance(stated, Mapping):
            lacking = [f"no {key}" for key in sorted(needed - stated.keys())]
            unknown = [
                f"an unknown {cut_name(str(key))}"
                for key in stated
                if key not in {"column", *DECLARED}
            ]
            value = " and ".join([*lacking, *unknown]) + (
                f" beside {', '.join(map(str, stated))}" if stated else ""
            )
        raise input_error(where, rule, remedy, value)
    column = stated.get("column", signal)
    if not isinstance(column, str):
        raise input_error(where, "column must name a column", "correct it", shown_value(column))
    declared: dict[str, Any] = {key: stated[key] for key in DECLARED & stated.keys()}
    return SignalColumn(own_signal(signal, **declared), column)


def _signal_values(
    cells: Cells, at: _Rows, rank: NDArray[np.int64], cases: Numbering, signal: SignalColumn
) -> NDArray[np.float64]:
    """Values of a signal: of the first hit of each case, arm and depth, [Q, A, D].

    Of the stage query [Q].
    """
    unit, name = signal.signal.unit, signal.column
    known = {name: measurement(unit.low, unit.high, unit.described, signal_remedy(unit))}
    values = read_columns(cells, {name: name}, known)[name]
    array = np.array(values, dtype=np.float64)  # None becomes NaN
    if signal.signal.stage == "query":
        of_row = [cases.first[number] for number in cases.of_row]
        cells.same(name, values, of_row, "a case", 'write "stage": "hits" where it is of the hits')
        return array[cases.first]
    values_of = np.full(int(np.prod(at.shape)), np.nan)
    leads = rank <= 0  # the first hit, or the one row that says there are none
    values_of[at.cell[leads]] = array[leads]
    return values_of.reshape(at.shape)


def _warn_of_label(
    cells: Cells,
    signal: SignalColumn,
    cases: Sequence[Case],
    case_of_row: Sequence[int],
    chunks: Sequence[Chunk],
    chunk_of_row: Sequence[int],
) -> None:
    """Warn if a column of 0 and 1 says in all rows whether the hit is expected, or the label."""
    by_row = [
        (row, value) for row, value in enumerate(cells.of(signal.column)) if value is not None
    ]
    if {value for _, value in by_row} != {0, 1}:
        return
    meanings = _meanings(cases, chunks)
    fulfilled = chunk_sources(chunks, meanings) if meanings else []
    # whether the column is what is expected of the hit, of rows whose case states sources
    of_hits: list[bool] = []
    highest: dict[int, bool] = {}  # by case with a label
    for row, value in by_row:
        case, chunk = cases[case_of_row[row]], chunk_of_row[row]
        if meanings and chunk >= 0 and case_sources(case):
            of_hits.append(
                bool(value) == (not set(fulfilled[chunk]).isdisjoint(case_sources(case)))
            )
        if case.expect_status is not None:
            highest[case_of_row[row]] = highest.get(case_of_row[row], False) or bool(value)
    of_labels = [
        value == (cases[place].expect_status == Status.ok.name) for place, value in highest.items()
    ]
    for agrees, what in (
        (of_hits, "rows whether the hit is of an expected source"),
        (of_labels, "cases the label"),
    ):
        if len(agrees) >= LEAST_ALIKE and len(set(agrees)) == 1:
            warn_user(
                f"{cells.name}: the column {cut_name(signal.column)} of signal "
                f"{signal.signal.name} says in "
                f"{len(agrees):,} of {len(agrees):,} {what}: it looks like the label itself, "
                "which a signal would feed "
                "back to the policy; take it out of signals and write the right hits of each "
                "question into "
                "expect_sources_any (docs/howto/own_hits.md), unless it is known before the answer."
            )
            return


def _warn_of_row_order(cells: Cells, at: _Rows, signals: Sequence[SignalColumn]) -> None:
    """Warn if rows give the order of hits, and no signal makes a case's first hit its best."""
    n_cells = math.prod(at.shape)
    unsorted = np.ones(n_cells, dtype=bool)
    for signal in signals:
        sign = 1.0 if signal.signal.direction == "surer" else -1.0
        values = sign * np.array(cells.of(signal.column), dtype=np.float64)
        best, first = np.full(n_cells, np.nan), np.full(n_cells, np.nan)
        np.fmax.at(best, at.cell, values)
        first[at.cell[::-1]] = values[::-1]  # the first row of a cell is written last
        unsorted &= ~np.isnan(best) & (np.isnan(first) | (first < best))
    if signals and unsorted.any():
        names = " nor ".join(f"signals.{signal.signal.name}" for signal in signals)
        warn_user(
            f"{cells.name}: the hits stand in the order of the rows, and in {unsorted.sum():,} of "
            f"{n_cells:,} cases "
            f"(arms and depths apart) the first is not the surest by {names}; sort the rows, or "
            "state their order by "
            "a column rank."
        )


def _gates_off(measurements: Mapping[str, NDArray[np.float64]], score: Score | None) -> list[str]:
    """Gates that compare what no row of the frame measures."""

    def measured(*columns: str) -> bool:
        return any(not np.isnan(measurements[column]).all() for column in columns)

    if score in {UNSTATED, "cosine", "l2"} or measured("l2", "cosine"):
        return []
    scores = score == "probability" or measured("s_rerank", "s_hybrid")
    return [gate for gate in CAN_BE_OFF if gate != "confidence" or not scores]


class _Rows(NamedTuple):
    """Where the rows belong: cell [rows], number of (case, arm, depth); chunk [rows], -1 for none.

    Shape (Q, A, D).
    """

    cell: NDArray[np.int64]
    chunk: NDArray[np.int64]
    shape: tuple[int, int, int]

    def within(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places 0, 1, 2, … inside their cell, of rows in an order that keeps cells together."""
        n_before = np.append(
            0, np.cumsum(np.bincount(self.cell[order], minlength=int(np.prod(self.shape))))
        )
        places: NDArray[np.int64] = np.arange(len(order)) - n_before[self.cell[order]]
        return places


def _warn_of_index(frame: pd.DataFrame, cells: Cells) -> None:
    """Warn of an index that looks like a column which the frame lacks; it is not read."""
    for name in frame.index.names:
        meant = (
            meant_columns(name, cells)
            if isinstance(name, str) and name not in cells.columns
            else ()
        )
        if meant:
            warn_user(
                f"{cells.name}: the index {shown_value(name)} is not read, though it looks like "
                f"{' or '.join(meant)}; "
                f'write frame.rename_axis("{meant[0]}"), or frame.reset_index(drop=True).'
            )


def _row_depths(rows: HitRows) -> list[int]:
    depths = list(rows.columns["depth"]) if "depth" in rows.columns else [0] * rows.cells.size
    most = min(len(set(depths)), MOST_DEPTHS) - 1
    for row, depth in enumerate(depths):
        if depth > most:
            rule = f"depths must be 0, 1, 2 without a gap, at most {MOST_DEPTHS} of them"
            raise rows.cells.error(row, "depth", rule, "number the refinements from 0", str(depth))
    return depths


def _check_rows(rows: HitRows, at: _Rows, cases: Sequence[Case], arms: Sequence[str]) -> None:
    """Each case has rows in each arm and depth, not too many.

    Different hits, or one row that says there are none.
    """
    cells = rows.cells

    def place(cell: int) -> str:
        case, arm, depth = np.unravel_index(cell, at.shape)
        return (
            f"case {shown_value(cases[int(case)].id)}, arm {shown_value(arms[int(arm)])}, depth "
            f"{depth}"
        )

    # Whatever is as long as there are cells comes after this: names of arms alone could make them
    # thousands of times as many as rows.
    there = np.unique(at.cell)
    if len(there) < math.prod(at.shape):
        rule = "a case must have rows in every arm and depth"
        remedy = "add its hits there, or one row without hit_id if there were none"
        gap = np.flatnonzero(there != np.arange(len(there)))
        raise input_error(
            Where(cells.name),
            rule,
            remedy,
            f"none for {place(int(gap[0]) if len(gap) else len(there))}",
        )
    n_rows = np.bincount(at.cell)
    longest = int(n_rows.max())
    if longest > MOST_HITS:
        rule, remedy = (
            f"hits of a case, arm and depth must be at most {MOST_HITS:,}",
            "keep the first of each case",
        )
        value = f"{longest:,} for {place(int(np.argmax(n_rows)))}"
        raise input_error(Where(cells.name), rule, remedy, value)
    size, what = math.prod(at.shape) * longest, "cases by arms, depths and"
    for pairs, number, most in (
        ("hits", size, MAX_CELLS),
        ("pairs of hits", size * longest, MAX_PAIRS),
    ):
        if number > most:
            remedy = (
                f"keep the first hits of each case: {place(int(np.argmax(n_rows)))} has {longest:,}"
            )
            rule = f"{what} {pairs} of the longest case must be at most {most:,}"
            raise input_error(Where(cells.name), rule, remedy, f"{number:,}")
    order = np.lexsort((at.chunk, at.cell))
    again = order[1:][(np.diff(at.cell[order]) == 0) & (np.diff(at.chunk[order]) == 0)]
    mixed = np.flatnonzero((at.chunk < 0) & (n_rows[at.cell] > 1))
    found_nothing = "a row without hit_id must be the only one of its case, arm and depth"
    twice = "a hit must stand once in a case, arm and depth"
    for wrong, rule in ((mixed, found_nothing), (again, twice)):
        if len(wrong):
            row = int(wrong.min())
            value = f"{shown_value(rows.of('hit_id')[row])} in {place(int(at.cell[row]))}"
            remedy = "drop the row, or tell the cases apart by case_id"
            raise cells.error(row, rows.places["hit_id"], rule, remedy, value)


def _measurements(rows: HitRows, score: Score | None) -> dict[str, NDArray[np.float64]]:
    """Measurements of every row, NaN where not given; the score under its own name."""
    cells, measurements = (
        rows.cells,
        {field: np.array(rows.of(field), dtype=np.float64) for field in MEASURES},
    )
    if score:
        for row, (hit, value) in enumerate(zip(rows.of("hit_id"), rows.of("score"), strict=True)):
            if hit is not None and value is None:
                rule, remedy = "a hit must have a score", "drop the row, or empty its hit_id"
                raise cells.error(row, rows.places["score"], rule, remedy, "a missing one")
        measurements[MEASURE_OF_SCORE[score]] = np.array(rows.of("score"), dtype=np.float64)
    l2, cosine = measurements["l2"], measurements["cosine"]
    apart = np.flatnonzero(np.abs(l2 - (2.0 - 2.0 * cosine)) > _AGREE)
    if len(apart):
        row = int(apart[0])
        rule = "l2 must be the squared distance of unit vectors, 2 - 2 * cosine"
        raise cells.error(
            row,
            "l2",
            rule,
            "square it, or drop the column",
            f"{l2[row]:g} beside cosine {cosine[row]:g}",
        )
    return measurements | {
        "l2": np.where(np.isnan(l2), 2.0 - 2.0 * cosine, l2),
        "cosine": np.where(np.isnan(cosine), 1.0 - l2 / 2.0, cosine),
    }


def _ranks(
    rows: HitRows, at: _Rows, measurements: Mapping[str, NDArray[np.float64]], score: Score | None
) -> NDArray[np.int64]:
    """Place of every row in the final order of its cell, [rows].

    As given, else by s_rerank, score, row.
    """
    hits = np.flatnonzero(at.chunk >= 0)
    if "rank" in rows.columns:
        rank_column = rows.columns["rank"]
        rank = np.array([-1 if value is None else value for value in rank_column])
        order = hits[np.lexsort((rank[hits], at.cell[hits]))]
        wrong = hits[rank[hits] < 0]
        wrong = wrong if len(wrong) else order[rank[order] != at.within(order)]
        if len(wrong):
            row = int(wrong.min())
            rule = "rank must count 0, 1, 2, … within a case, arm and depth"
            remedy = "number the hits from 0, or drop the column"
            raise rows.cells.error(row, "rank", rule, remedy, shown_value(rank_column[row]))
        return rank
    worse = (
        measurements["l2"]
        if score == "l2"
        else -measurements[MEASURE_OF_SCORE[score]]
        if score
        else np.zeros(rows.cells.size)
    )
    later = np.where(np.isnan(measurements["s_rerank"]), np.inf, -measurements["s_rerank"])
    order = hits[np.lexsort((worse[hits], later[hits], at.cell[hits]))]
    rank = np.full(rows.cells.size, -1)
    rank[order] = at.within(order)
    return rank


def _hits_by_distance(
    cells: Cells,
    at: _Rows,
    measurements: Mapping[str, NDArray[np.float64]],
    rank: NDArray[np.int64],
) -> Hits:
    """Hits by (l2, chunk), [Q, A, D, K].

    Those without a distance last, by rank: the order that their system gave.
    """
    reranked = ~np.isnan(measurements["s_rerank"])
    n_reranked = np.bincount(at.cell[reranked], minlength=int(np.prod(at.shape)))
    late = np.flatnonzero(reranked & (rank >= n_reranked[at.cell]))
    if len(late):
        rule = "hits with s_rerank must come before those without"
        raise cells.error(
            int(late[0]), "rank", rule, "correct rank or drop the column", f"rank {rank[late[0]]}"
        )
    hits = np.flatnonzero(at.chunk >= 0)
    ties = np.where(np.isnan(measurements["l2"]), rank, at.chunk)
    order = hits[np.lexsort((ties[hits], measurements["l2"][hits], at.cell[hits]))]
    place = at.within(order)
    width = int(place.max(initial=0)) + 1

    def laid(of: NDArray[Any], empty: float, kind: type[np.generic]) -> NDArray[Any]:
        out = np.full((int(np.prod(at.shape)), width), empty, dtype=kind)
        out[at.cell[order], place] = of[order]
        return out.reshape(*at.shape, width)

    similarity = {
        "anchor_sim": "anchor_similarity",
        "sig_sim": "signature_similarity",
        "sig_sim_strict": "signature_similarity",
    }
    floats = {
        field: laid(measurements[similarity.get(field, field)], np.nan, np.float64)
        for field in FLOAT_FIELDS
    }
    counted = n_reranked.astype(np.int32).reshape(at.shape)
    return Hits(
        chunk=laid(at.chunk, -1, np.int32),
        rank=laid(rank, -1, np.int32),
        n_reranked=counted,
        **floats,
    )
