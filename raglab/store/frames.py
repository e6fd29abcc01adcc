"""Frames (shore): traces from DataFrames of own hits, with cases, passages, ranks, measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

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
    EMPTY_REMEDY,
    MEASURE_OF_SCORE,
    MEASURE_RANGES,
    SHARE_REMEDY,
    UNSTATED,
    HitTable,
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
    AnyArray,
    Case,
    Chunk,
    Corpus,
    FloatArray,
    Hits,
    IntArray,
    Status,
    document_path,
)

if TYPE_CHECKING:
    import pandas as pd

# cases by arms by depths by hits of the longest case: what an array of a trace holds
MAX_HIT_CELLS = 20_000_000
MAX_HIT_PAIRS = 2_000_000_000  # the same by pairs of hits: what grouping the hits takes, in bytes

Signals = Mapping[str, Mapping[str, str]] | None  # what is stated of each, by name
Measurements = Mapping[str, FloatArray]  # of the rows, by field
MIN_ALIKE_ROWS = 10  # rows or cases that a column must agree with a label in to look like one
_COSINE_TOLERANCE = 1e-3  # l2 against 2 - 2 cosine: embeddings in half precision differ by less


class _Rows(NamedTuple):
    """Where the rows belong.

    case, chunk: numbers of each row's, [rows], of the chunk -1 for none. cell: number of its (case,
    arm, depth), [rows]. shape: (Q, A, D).
    """

    hits: HitTable
    cases: tuple[Case, ...]
    chunks: tuple[Chunk, ...]
    arms: tuple[str, ...]
    case: IntArray
    chunk: IntArray
    cell: IntArray
    shape: tuple[int, int, int]

    def within(self, ordered_rows: IntArray) -> IntArray:
        """Places 0, 1, 2, … inside their cell, of rows in an order that keeps cells together."""
        n_before = np.append(
            0, np.cumsum(np.bincount(self.cell[ordered_rows], minlength=self.n_cells))
        )
        ranks: IntArray = np.arange(len(ordered_rows)) - n_before[self.cell[ordered_rows]]
        return ranks

    @property
    def n_cells(self) -> int:
        """Cases by arms by depths."""
        return math.prod(self.shape)

    def place(self, cell: int) -> str:
        """A cell as messages name it."""
        case, arm, depth = map(int, np.unravel_index(cell, self.shape))
        shown_names = shown_value(self.cases[case].id), shown_value(self.arms[arm])
        return f"case {shown_names[0]}, arm {shown_names[1]}, depth {depth}"


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
      score: kind of the column `score`; None without such a column.
      signals: further scores by name, which a policy gates as `signals.<name>`: {"column": its
        column, the name where not given; "higher": "surer" or "ask"; "unit": "probability" or other
        words; and, as `Trace.with_signal` takes them, "stage", "missing", "source", "version"}. A
        case has the value of its first hit; of the stage "query" the same value in each of its
        rows.
      groups: columns whose values group the cases, such as `tenant` (rule S2.20); the same in each
        row of a case.
      policy: the policy whose patterns are measured at once (others later, on replay).
      name: of the collection, of the arm without such a column, and of the frame in errors.

    Returns:
      Q cases and C chunks in the order of their first rows; K hits, as many as the longest case
        has, by (l2, chunk); measurements in float64 as given.

    Raises:
      InputError: a column or cell breaks a rule; names row (from 0), column, rule and remedy.
      ValueError: a source of a case that several documents of the frame have.

    Warns:
      UserWarning: gates are off, since nothing was measured for them; splits are mapped; questions
        are repeated; a score rises from the first hit of the questions on, as a distance does;
        labels contradict the direction of a score; or sources of cases name documents
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
    return trace


def _warn_of_distances(
    hit_rows: _Rows, scores: FloatArray, stated_ranks: FloatArray, score: Score, column_name: str
) -> None:
    """Warn where a column read as a cosine looks like a distance, or one read as l2 like a cosine.

    By its name, and by how it goes from the first hit of a cell to the later ones, in the order of
    the ranks, of the rows without them. Rows may lie in any order, so that without ranks, or with a
    stated scale, nine of ten cells of an arm must go the wrong way, and ten at least.
    """
    row_order = np.argsort(stated_ranks, kind="stable")
    row_order = row_order[~np.isnan(scores[row_order])]
    cells, first_hits, cell_places, n_hits = np.unique(
        hit_rows.cell[row_order], return_index=True, return_inverse=True, return_counts=True
    )
    hit_scores = scores[row_order] * (-1.0 if score == "l2" else 1.0)
    rises = np.bincount(cell_places, hit_scores) / n_hits - hit_scores[first_hits]
    arms = np.unravel_index(cells, hit_rows.shape)[1]
    n_wrong = np.bincount(arms, rises > 1e-9)
    n_right = np.bincount(arms, rises < -1e-9)
    if score == UNSTATED and "rank" in hit_rows.hits.cells:
        is_turned = n_wrong > n_right
    else:
        is_turned = n_wrong >= np.maximum(MIN_ALIKE_ROWS, 9 * n_right)
    name_part = {UNSTATED: "dist", "cosine": "distance", "l2": "cosine"}[score]
    if is_turned.any() or name_part in column_name.casefold():
        kinds = ("a distance", "a cosine") if score == "l2" else ("a cosine", "a distance")
        direction = "falls" if score == "l2" else "rises"
        warn_user(
            f"{hit_rows.hits.table.name}: the column {cut_name(column_name)}, read as {kinds[0]}, "
            f"looks like {kinds[1]}: it {direction} from the first hit on in "
            f'{int(n_wrong.sum()):,} cells; write score="l2", "cosine", or None and a signal with '
            '"higher": "ask".'
        )


def _source_notes(trace: Trace) -> Iterator[str]:
    """What to know where cases name documents by less than their path, or none of the hits.

    A frame holds the documents that were hit; another of the same name may stand in the corpus
    behind it.
    """
    meanings = _meanings(trace.cases, trace.chunks)
    example_document = trace.chunks[0].document if trace.chunks else "none"
    absent_sources = [source for source, meaning in meanings.items() if not meaning.documents]
    misspellings = misspelt_sources(trace.cases, chunk_documents(trace.chunks), meanings)
    examples_by_note = {
        "are documents of the hits but for case or ending": {
            source: document for _, source, document in misspellings
        },
        "are no documents of the hits": dict.fromkeys(
            absent_sources if len(absent_sources) == len(meanings) and not misspellings else (),
            example_document,
        ),
        "are the end of a path": {
            source: matched_path
            for source, meaning in meanings.items()
            if meaning.documents and document_path(source) != (matched_path := full_source(meaning))
        },
        "are paths outside a corpus": dict.fromkeys(
            filter(is_outside, absent_sources), example_document
        ),
    }
    for note, noted_sources in examples_by_note.items():
        if noted_sources:
            source, document = map(shown_value, min(noted_sources.items()))
            shown_counts = f"{len(noted_sources):,} of {len(meanings):,} sources of cases"
            yield f"{shown_counts} {note}, first {source} beside {document}"


def _meanings(cases: Sequence[Case], chunks: Sequence[Chunk]) -> dict[str, Meaning]:
    """What the sources of the cases mean among the documents of the hits."""
    gold_sources = {source for case in cases for source in case_sources(case)}
    return source_meanings(gold_sources, chunk_documents(chunks)) if gold_sources else {}


def warn_of_gates_off(frame_name: str, gates_off: Sequence[str]) -> None:
    """Warn whoever called the caller that gates of a frame are off, if any is."""
    if gates_off:
        gate_names = ", ".join(gates_off)
        remedy = 'gate a score of signals={…} by policy.replace("signals.<name>.min", …)'
        warn_user(f"{frame_name}: without distances the gates {gate_names} are off; {remedy}.")


def frame_trace(
    frame: pd.DataFrame,
    columns: Columns,
    score: Score | None,
    signals: Signals,
    policy: PolicyData | None,
    frame_name: str,
    groups: Sequence[str] = (),
) -> Trace:
    """Trace as `trace_from_frame` makes it, without a warning of gates that are off."""
    user_signals = signal_columns(signals, frame_name)
    query_columns = [column_name for signal, column_name in user_signals if signal.stage == "query"]
    hit_columns = [column_name for signal, column_name in user_signals if signal.stage != "query"]
    hit_table = read_hits(
        frame, columns, score, [*query_columns, *hit_columns, *groups], frame_name
    )
    # Every reader notes its faults in `hit_table`, which stops once for all of them.
    cases, case_groups = hit_cases(hit_table, groups, query_columns)
    passages, chunk_groups = hit_chunks(hit_table, hit_columns)
    arm_groups, depths = hit_places(hit_table)
    measurements = _measurements(hit_table, score)
    stated_ranks = hit_table.numbers(
        "rank", hit_table.cells.get("rank"), (0, MAX_INTEGER, "count from 0"), int
    )
    measured_signals = []
    for signal, column_name in user_signals:
        lower_bound = signal.unit.low
        upper_bound = signal.unit.high
        value_bounds = (
            lower_bound,
            upper_bound,
            SHARE_REMEDY if (lower_bound, upper_bound) == (0.0, 1.0) else EMPTY_REMEDY,
        )
        measured_signals.append(
            (
                signal,
                column_name,
                hit_table.numbers(column_name, hit_table.table.columns[column_name], value_bounds),
            )
        )
    hit_table.faults.stop()
    check_clear(cases, _meanings(cases, passages))
    # A row belongs to one cell of the grid (case, arm, depth), as one number.
    cell_shape = (len(cases), len(arm_groups.names), int(depths.max()) + 1)
    cell_numbers = np.ravel_multi_index((case_groups.of_row, arm_groups.of_row, depths), cell_shape)
    hit_rows = _Rows(
        hit_table,
        cases,
        passages,
        arm_groups.names,
        case_groups.of_row,
        chunk_groups.of_row,
        cell_numbers,
        cell_shape,
    )
    _check_cells(hit_rows)
    hit_table.faults.stop()
    final_ranks = _ranks(hit_rows, measurements, score, stated_ranks)
    if score in ("cosine", "l2", UNSTATED):
        column_name = (columns or {}).get("score", "score")
        scores = measurements[MEASURE_OF_SCORE[score]]
        _warn_of_distances(hit_rows, scores, stated_ranks, score, column_name)
    gates_off = _gates_off(measurements)
    sorted_hits = _hits_by_distance(hit_rows, measurements, final_ranks)
    trace = _trace(
        hit_rows, sorted_hits, gates_off, score, columns, policy or PolicyData.from_mapping()
    )
    # A case has the signals of its first hit; a frame in another order would give other values.
    is_unsorted = np.ones(hit_rows.n_cells, dtype=bool)
    for signal, column_name, row_values in measured_signals:
        signal_values = row_values[case_groups.first]
        if signal.stage != "query":
            signal_values = np.full(hit_rows.n_cells, np.nan)
            is_leading = final_ranks <= 0  # the first hit, or the one row that says there are none
            signal_values[cell_numbers[is_leading]] = row_values[is_leading]
            sign = DIRECTION_SIGNS[signal.direction]
            best_values = np.full(hit_rows.n_cells, np.nan)
            np.fmax.at(best_values, cell_numbers, row_values * sign)
            is_unsorted &= ~np.isnan(best_values) & ~(signal_values * sign >= best_values)
            signal_values = signal_values.reshape(cell_shape)
        trace = with_column(trace, signal, signal_values)
        _warn_of_label(hit_rows, column_name, row_values)
    if (
        score is None
        and "rank" not in hit_table.cells
        and np.isnan(measurements["s_rerank"]).all()
        and hit_columns
        and is_unsorted.any()
    ):
        gate_names = [
            f"signals.{signal.name}"
            for signal, column_name in user_signals
            if column_name in hit_columns
        ]
        warn_user(
            f"{frame_name}: hits are in the order of the rows, and in {is_unsorted.sum():,} of "
            f"{hit_rows.n_cells:,} cells the first is not the surest by "
            f"{' nor '.join(gate_names)}; sort the rows, or add a column rank."
        )
    return trace


def _trace(
    hit_rows: _Rows,
    hits: Hits,
    gates_off: Sequence[str],
    score: Score | None,
    columns: Columns,
    policy: PolicyData,
) -> Trace:
    """Trace of hits, without signals."""
    frame_name = hit_rows.hits.table.name
    trace_meta: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "corpus_hash": hash_corpus(Corpus(frame_name, hit_rows.chunks)),
        "cases_hash": hash_cases(hit_rows.cases),
        "parameters": {"score": score, "arms": list(hit_rows.arms)},
        **({"gates_off": gates_off} if gates_off else {}),
    }
    column_map = {"columns": dict(columns)} if columns else {}
    shown_columns = "".join(
        f"{our_name}={frame_column!r}, " for our_name, frame_column in column_map.items()
    )
    trace = Trace(hit_rows.cases, hit_rows.chunks, hit_rows.arms, hits, None, trace_meta)
    trace_meta = {
        **trace_meta,
        "fingerprint": content_hash(trace)[:16],  # no build made it: of what it holds
        "corpus": frame_name,
        "n_chunks": len(hit_rows.chunks),
        "n_documents": len({chunk.source for chunk in hit_rows.chunks}),
        **stated_exact_names(hit_rows.chunks),
        "command": f"trace_from_frame(frame, {shown_columns}score={score!r}, name={frame_name!r})",
        **column_map,
    }
    return replace(
        trace,
        meta=trace_meta,
        pattern_hits=pattern_hits(hit_rows.cases, hit_rows.chunks, policy.pattern_lists),
    )


def signal_columns(signals: Signals, frame_name: str) -> list[tuple[Signal, str]]:
    """Signals of a frame as they are stated, with their columns.

    Raises:
      InputError: a signal does not state what it is.
    """
    declared_columns = []
    required_keys = {"higher", "unit"}
    for signal_name, declaration in (signals or {}).items():
        declared_keys = {*declaration} if isinstance(declaration, Mapping) else set()
        if not required_keys <= declared_keys <= {"column", *DECLARED_KEYS}:
            raise input_error(
                Where(frame_name, id=f"signal {signal_name}"),
                "a signal must state higher and unit, of column, "
                f"{', '.join(sorted(DECLARED_KEYS))}",
                'write {"my_score": {"column": …, "higher": "surer", "unit": "probability"}}',
                shown_value(", ".join(map(str, declaration)) if declared_keys else declaration),
            )
        signal_options: dict[str, Any] = {
            option: declaration[option] for option in DECLARED_KEYS & declared_keys
        }
        declared_columns.append(
            (own_signal(signal_name, **signal_options), str(declaration.get("column", signal_name)))
        )
    return declared_columns


def _warn_of_label(hit_rows: _Rows, column_name: str, row_values: FloatArray) -> None:
    """Warn if a column of 0 and 1 says in all rows whether the hit is expected, or the label."""
    filled_rows = np.flatnonzero(~np.isnan(row_values))
    if {*row_values[filled_rows].tolist()} != {0.0, 1.0}:
        return
    meanings = _meanings(hit_rows.cases, hit_rows.chunks)
    fulfilled = chunk_sources(hit_rows.chunks, meanings) if meanings else []
    hit_agreement = [
        bool(row_values[row_index]) != {*fulfilled[hit_rows.chunk[row_index]]}.isdisjoint(sources)
        for row_index in filled_rows
        if (sources := case_sources(hit_rows.cases[hit_rows.case[row_index]]))
        and hit_rows.chunk[row_index] >= 0
    ]
    highest = np.full(len(hit_rows.cases), np.nan)
    np.fmax.at(highest, hit_rows.case, row_values)
    case_agreement = [
        bool(highest_value) == (case.expect_status == Status.ok.name)
        for case, highest_value in zip(hit_rows.cases, highest, strict=True)
        if case.expect_status is not None and not np.isnan(highest_value)
    ]
    for agreement, told_label in (
        (hit_agreement, "hits whether they are expected"),
        (case_agreement, "cases the label"),
    ):
        if len(agreement) >= MIN_ALIKE_ROWS and len({*agreement}) == 1:
            warn_user(
                f"{hit_rows.hits.table.name}: the column {cut_name(column_name)} says of all "
                f"{len(agreement):,} {told_label}, which a signal must not know; write the right "
                "hits into expect_sources_any (docs/howto/own_hits.md)."
            )
            return


def _gates_off(measurements: Measurements) -> list[str]:
    """Gates that compare what no row of the frame measures."""
    measured_columns = {name for name, values in measurements.items() if not np.isnan(values).all()}
    if not measured_columns.isdisjoint(("l2", "cosine")):
        return []
    has_scores = not measured_columns.isdisjoint(("s_rerank", "s_hybrid"))
    return [gate for gate in CAN_BE_OFF if gate != "confidence" or not has_scores]


def _check_cells(hit_rows: _Rows) -> None:
    """Each case has rows in each arm and depth, not too many.

    Different hits, or one row that says there are none.
    """
    frame_name = hit_rows.hits.table.name
    cell_numbers = hit_rows.cell
    # Whatever is as long as there are cells comes after this: names of arms alone could make them
    # thousands of times as many as rows.
    filled_cells = np.unique(cell_numbers)
    if len(filled_cells) < hit_rows.n_cells:
        empty_cell = next(
            expected_cell
            for expected_cell, filled_cell in enumerate([*filled_cells, -1])
            if expected_cell != filled_cell
        )
        raise input_error(
            frame_name,
            "a case must have rows in every arm and depth",
            "add its hits there, or one row without hit_id",
            f"none for {hit_rows.place(empty_cell)}",
        )
    n_rows = np.bincount(cell_numbers)
    most_hits = int(n_rows.max())
    cells_clause = "cases by arms, depths and"
    for rule, n_needed, max_allowed in (
        ("hits of a case, arm and depth", most_hits, MAX_HITS_PER_CASE),
        (f"{cells_clause} hits of the longest case", most_hits * hit_rows.n_cells, MAX_HIT_CELLS),
        (
            f"{cells_clause} pairs of hits of the longest case",
            most_hits**2 * hit_rows.n_cells,
            MAX_HIT_PAIRS,
        ),
    ):
        if n_needed > max_allowed:
            raise input_error(
                frame_name,
                f"{rule} must be at most {max_allowed:,}",
                f"keep the first of the {most_hits:,} of {hit_rows.place(int(np.argmax(n_rows)))}",
                f"{n_needed:,}",
            )
    is_repeated = np.ones(len(cell_numbers), dtype=bool)
    is_repeated[
        np.unique(cell_numbers * (len(hit_rows.chunks) + 1) + hit_rows.chunk, return_index=True)[1]
    ] = False
    hit_rows.hits.check(
        (hit_rows.chunk < 0) & (n_rows[cell_numbers] > 1),
        "hit_id",
        "a row without hit_id must stand alone in its case, arm and depth",
        "drop the row",
    )
    hit_rows.hits.check(
        is_repeated & (hit_rows.chunk >= 0),
        "hit_id",
        "a hit must stand once in a case, arm and depth",
        "tell cases apart by case_id",
    )


def _measurements(hit_table: HitTable, score: Score | None) -> dict[str, FloatArray]:
    """Measurements of every row, NaN where not given; the score under its own name.

    Distance and cosine follow from one another.
    """
    row_measurements = {
        column_name: hit_table.numbers(column_name, hit_table.cells.get(column_name), value_bounds)
        for column_name, value_bounds in MEASURE_RANGES.items()
    }
    if score:
        measure = MEASURE_OF_SCORE[score]
        row_measurements[measure] = hit_table.numbers(
            "score", hit_table.cells["score"], MEASURE_RANGES[measure]
        )
        scored_hits = zip(hit_table.cells["hit_id"], hit_table.cells["score"], strict=True)
        hit_table.check(
            np.array(
                [hit_id is not None and score_cell is None for hit_id, score_cell in scored_hits]
            ),
            "score",
            "a hit must have a score",
            "drop the row, or empty its hit_id",
        )
    l2 = row_measurements["l2"]
    cosine = row_measurements["cosine"]
    hit_table.check(
        np.abs(l2 - (2.0 - 2.0 * cosine)) > _COSINE_TOLERANCE,
        "l2" if "l2" in hit_table.cells else "score",
        "l2 must be 2 - 2 * cosine, of unit vectors",
        "square it, or drop the column",
    )
    return row_measurements | {
        "l2": np.where(np.isnan(l2), 2.0 - 2.0 * cosine, l2),
        "cosine": np.where(np.isnan(cosine), 1.0 - l2 / 2.0, cosine),
    }


def _ranks(
    hit_rows: _Rows,
    measurements: Measurements,
    score: Score | None,
    stated_ranks: FloatArray,
) -> IntArray:
    """Place of every row in the final order of its cell, [rows].

    As given, else by s_rerank, score, row.
    """
    hit_positions = np.flatnonzero(hit_rows.chunk >= 0)
    final_ranks = np.full(len(hit_rows.cell), -1)
    if "rank" in hit_rows.hits.cells:
        final_ranks = np.nan_to_num(stated_ranks, nan=-1.0).astype(np.int64)
        ordered_hits = hit_positions[
            np.lexsort((final_ranks[hit_positions], hit_rows.cell[hit_positions]))
        ]
        is_misnumbered = np.zeros(len(final_ranks), dtype=bool)
        is_misnumbered[ordered_hits] = final_ranks[ordered_hits] != hit_rows.within(ordered_hits)
        hit_rows.hits.check(
            is_misnumbered,
            "rank",
            "rank must count 0, 1, 2, … within a case, arm and depth",
            "number the hits from 0, or drop the column",
        )
        return final_ranks
    tie_scores = np.zeros(len(final_ranks))
    if score:
        tie_scores = measurements[MEASURE_OF_SCORE[score]] * (1.0 if score == "l2" else -1.0)
    rerank_order = np.where(np.isnan(measurements["s_rerank"]), np.inf, -measurements["s_rerank"])
    ordered_hits = hit_positions[
        np.lexsort(
            (tie_scores[hit_positions], rerank_order[hit_positions], hit_rows.cell[hit_positions])
        )
    ]
    final_ranks[ordered_hits] = hit_rows.within(ordered_hits)
    return final_ranks


def _hits_by_distance(hit_rows: _Rows, measurements: Measurements, final_ranks: IntArray) -> Hits:
    """Hits by (l2, chunk), [Q, A, D, K].

    Those without a distance last, by rank: the order that their system gave.
    """
    reranked = ~np.isnan(measurements["s_rerank"])
    n_reranked = np.bincount(hit_rows.cell[reranked], minlength=hit_rows.n_cells)
    hit_rows.hits.check(
        reranked & (final_ranks >= n_reranked[hit_rows.cell]),
        "rank",
        "hits with s_rerank must come before those without",
        "correct or drop rank",
    )
    hit_rows.hits.faults.stop()
    hit_positions = np.flatnonzero(hit_rows.chunk >= 0)
    tie_breaks = np.where(np.isnan(measurements["l2"]), final_ranks, hit_rows.chunk)
    ordered_hits = hit_positions[
        np.lexsort(
            (
                tie_breaks[hit_positions],
                measurements["l2"][hit_positions],
                hit_rows.cell[hit_positions],
            )
        )
    ]
    cell_positions = hit_rows.within(ordered_hits)
    n_columns = int(cell_positions.max(initial=0)) + 1

    def laid(row_values: AnyArray, empty_value: float, number_type: type[np.generic]) -> AnyArray:
        filled_array = np.full((hit_rows.n_cells, n_columns), empty_value, dtype=number_type)
        filled_array[hit_rows.cell[ordered_hits], cell_positions] = row_values[ordered_hits]
        return filled_array.reshape(*hit_rows.shape, n_columns)

    source_columns = {
        "anchor_sim": "anchor_similarity",
        "sig_sim": "signature_similarity",
        "sig_sim_strict": "signature_similarity",
    }
    float_arrays = {
        field_name: laid(
            measurements[source_columns.get(field_name, field_name)], np.nan, np.float64
        )
        for field_name in FLOAT_FIELDS
    }
    return Hits(
        chunk=laid(hit_rows.chunk, -1, np.int32),
        rank=laid(final_ranks, -1, np.int32),
        n_reranked=n_reranked.astype(np.int32).reshape(hit_rows.shape),
        **float_arrays,
    )
