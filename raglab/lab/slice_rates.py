"""Slices (shore): rates by group of cases, and ranking measures of arms and fused lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import holm_adjusted
from raglab.decision.decisions import Decisions
from raglab.decision.document_names import (
    Meaning,
    check_clear,
    chunk_sources,
    known_documents,
    source_meanings,
)
from raglab.decision.recorded_answers import LINE_TAGS, line_chunks, line_sources, text_value
from raglab.decision.score_directions import ScoredCases
from raglab.decision.scoring import headline_note
from raglab.decision.sharded_decisions import ShardedDecisions
from raglab.decision.signal_values import arm_order
from raglab.decision.trace_view import TracePart, TraceView, answered_traces
from raglab.lab.decision_fitting import decision_cases, scored_cases
from raglab.loops.parallel import run_each
from raglab.replay import each_shard
from raglab.values import SOURCE_GRADES, TraceData, source_grades

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
NO_VALUE = "(none)"  # value of a case of which the column says nothing
SEVERAL_LINES = "(several)"  # line of a case whose documents are of several
HIGHER_IS_BETTER = ("coverage", "pass_rate")
CASE_COLUMNS = ("language", "line", "doctype", "intent", "named_documents", "label")
SLICE_COLUMNS = (
    "column",
    "value",
    "n",
    "k",
    "rate",
    "low",
    "high",
    "rest",
    "p",
    "p_holm",
    "flag",
    "expected_cost",
    "auroc",
    "auroc_low",
    "auroc_high",
)


def slices(
    decisions: Decisions | ShardedDecisions,
    *,
    by: Mapping[str, Sequence[Any] | NDArray[Any]] | None = None,
    rate: str = "pass_rate",
    level: float = 0.95,
    least: int = 10,
    costs: metrics.Costs | None = None,
) -> pd.DataFrame:
    """One rate of a policy by slices of the cases, worst first, each tested against the rest.

    Columns are `language`, `line`, `doctype`, `intent`, `named_documents` (whether the user named
    documents) and `label`, where the cases state them, and those of `by`. The slices of a column
    hold every case once; a case without a value in a column is in `(none)`. Every case outside a
    slice is its rest, so a slice that holds only cases labelled ok differs from its rest in the
    pass rate, since refusing is easier than answering: read `doctype` and `intent` together with
    `label`.

    Args:
      decisions: on a trace in memory, or on one of shards, whose cases are then read once more.
        Over shards a document's line is that of the first shard that has the document: the same
        wherever its chunks have the same tags.
      by: name -> value of every case, [Q]; a name of a column takes its place.
      rate: one of `metrics.RATES`, over its own cases: `false_refusal_rate` over those labelled ok,
        `hallucination_rate` over those answered.
      level: of the intervals; 1 − level is the error that Holm's correction keeps.
      least: cases that a slice and its rest must have each to be tested.
      costs: label -> outcome -> cost, of `expected_cost`; see `metrics.cost_matrix`.

    Returns:
      A row a slice: `column`, `value`, `n`, `k`, `rate`, `low`, `high` (exact), `rest` (rate of all
        other cases), `p` (Fisher's exact test against the rest, two-sided; NaN without a rest),
        `p_holm` (over all slices tested, NaN for the others), `flag` (p_holm below 1 − level:
        really unlike the rest, worse or better) and `expected_cost` (mean over all cases of the
        slice, not only those of the rate), `auroc` with `auroc_low` and `auroc_high` (right against
        wrong cases of the slice, ambiguous ones left out, by what the policy was fitted to: its
        chance that an answer is right, else the best cosine; NaN where all are of one kind). Worst
        first: by the bound on the good side, the highest `low` of an error rate, the lowest `high`
        of a pass rate, so that a slice of few cases is not worst by chance. Its `attrs["basis"]`
        states on which basis cases are judged, `attrs["headline"]` how many are scored by status
        alone.

    Raises:
      ValueError: unknown rate, values of `by` that are not one a case, a level outside (0, 1), or
        costs without a meaning.

    Warns:
      UserWarning: that score ranks right cases below wrong ones in a slice, but not in all (at
        Bonferroni's level of all slices).

    Source: Holm 1979; Fisher 1935; rules S6.2, S6.3, S6.7.

    Example: `slices(decide(trace, policy), rate="false_refusal_rate").query("flag")`.
    """
    import pandas as pd

    if rate not in metrics.RATES:
        msg = f"rate must be one of {', '.join(metrics.RATES)}, got {rate!r}."
        raise ValueError(msg)
    # of every case, once; a slice's rate and cost are then those of its cells
    cell_codes, rate_index, cost_matrix = (
        decisions.cells,
        metrics.RATES.index(rate),
        metrics.cost_matrix(costs),
    )
    all_counts = _slice_counts(cell_codes, rate_index, cost_matrix)
    case_scores = _scored_cases(decisions)
    slice_rows, columns = [], case_columns(decisions, by or {})
    bonferroni_level = 1.0 - (1.0 - level) / max(
        sum(len(set(case_texts)) for case_texts in columns.values()), 1
    )
    is_fitted = case_scores.ranking(level=level).low > 0.5
    for column_name, case_texts in columns.items():
        case_values = np.array(case_texts, dtype=object)
        for slice_value in sorted(set(case_texts)):
            *slice_counts, slice_cost = _slice_counts(
                cell_codes[case_values == slice_value], rate_index, cost_matrix
            )
            k, k_best, n = slice_counts
            # A slice is tested against the cases outside it: all would hold the slice itself.
            rest_counts = [
                all_count - slice_count
                for all_count, slice_count in zip(all_counts[:3], slice_counts, strict=True)
            ]
            intervals = [
                metrics.clopper_pearson(n_successes, n, level) for n_successes in (k, k_best)
            ]
            lower_bound, upper_bound = (
                min(float(interval.low) for interval in intervals),
                max(float(interval.high) for interval in intervals),
            )
            slice_scores = case_scores.rows(case_values == slice_value)
            rate_cells = (
                _share(k, n),
                lower_bound,
                upper_bound,
                _share(rest_counts[0], rest_counts[2]),
            )
            test_cells = _difference_p(slice_counts, rest_counts), np.nan, False
            auroc_cells = slice_scores.ranking(level=level)[2:]
            slice_rows.append(
                (column_name, slice_value, n, k, *rate_cells, *test_cells, slice_cost, *auroc_cells)
            )
            score_title = f"the score of the policy in {column_name} {slice_value}"
            contradiction = slice_scores.contradiction(
                score_title, level=bonferroni_level, remedy="tune such cases apart"
            )
            if is_fitted and contradiction:
                warn_user(contradiction)
    slice_table = pd.DataFrame(slice_rows, columns=list(SLICE_COLUMNS))
    # A slice too small to show anything is not tested, for each test costs the others power (Holm).
    is_tested = (
        (slice_table["n"] >= least)
        & (all_counts[2] - slice_table["n"] >= least)
        & slice_table["p"].notna()
    )
    slice_table["p_holm"] = holm_adjusted(
        np.where(is_tested, slice_table["p"].astype(float), np.nan)
    )
    slice_table["flag"] = slice_table["p_holm"] < 1.0 - level
    higher_is_better = rate in HIGHER_IS_BETTER
    # By the end of the interval: a slice of two cases is seldom the worst, though its rate may be.
    sorted_table = slice_table.assign(order=np.arange(len(slice_table))).sort_values(
        ["high" if higher_is_better else "low", "rate", "n", "order"],
        ascending=[higher_is_better, higher_is_better, False, True],
        na_position="last",
    )
    sorted_rows = slice_table.loc[sorted_table.index].reset_index(drop=True)
    sorted_rows.attrs["basis"] = decisions.basis_text()
    sorted_rows.attrs["headline"] = headline_note(decisions.trace, decisions.status_only)
    return sorted_rows


def _slice_counts(
    cell_codes: NDArray[np.int8], rate_index: int, cost_matrix: Array
) -> tuple[int, int, int, float]:
    """Counted of a rate, counted were undecided answers right, of how many, and mean cost."""
    cell_counts = np.bincount(cell_codes, minlength=metrics.N_CELLS)
    worst_counts, best_counts = (
        metrics.rate_counts(metrics.settled_cells(cell_counts, settled_cell))
        for settled_cell in (metrics.WRONG_CELL, metrics.RIGHT_CELL)
    )
    rate_sizes = metrics.denominators(worst_counts, metrics.label_counts(cell_counts))
    mean_cost = float(metrics.expected_cost(cell_counts, cost_matrix))
    return (
        int(worst_counts[rate_index]),
        int(best_counts[rate_index]),
        int(rate_sizes[rate_index]),
        mean_cost,
    )


def _difference_p(slice_counts: Sequence[int], rest_counts: Sequence[int]) -> float:
    """Two-sided p of Fisher's test of k of n in a slice and outside; NaN where one is empty.

    The largest over undecided answers: k as they are wrong or right, on either side.
    """
    from scipy.stats import fisher_exact

    if not (slice_counts[2] and rest_counts[2]):
        return float("nan")
    count_pairs = list(product(slice_counts[:2], rest_counts[:2]))
    share_differences = [
        n_inside / slice_counts[2] - n_outside / rest_counts[2]
        for n_inside, n_outside in count_pairs
    ]
    if min(share_differences) < 0.0 < max(share_differences):
        return 1.0
    contingency_tables = (
        [[n_inside, slice_counts[2] - n_inside], [n_outside, rest_counts[2] - n_outside]]
        for n_inside, n_outside in count_pairs
    )
    return min(
        max(
            float(fisher_exact(np.array(contingency_table))[1])
            for contingency_table in contingency_tables
        ),
        1.0,
    )


def shard_scores(part: TracePart, decided: Callable[[TracePart], Decisions]) -> ScoredCases:
    """Scores of one part, [3, Q], the fitted ones first; pure, so that any worker may read them."""
    evidence = decided(part).tables.evidence
    score_rows = np.stack([evidence.probability[0, 0], evidence.fused[0], evidence.top1[0]])
    return scored_cases(decision_cases(evidence), score_rows)


def _scored_cases(decisions: Decisions | ShardedDecisions) -> ScoredCases:
    """Cases by the first score that any of them has."""
    if isinstance(decisions, ShardedDecisions):
        score_shard = partial(shard_scores, decided=decisions.decided)
        parts = list(run_each(score_shard, decisions.trace.parts, what="slice"))
    else:
        parts = [shard_scores(decisions.trace, lambda _: decisions)]
    score_rows, *label_kinds = (
        np.concatenate(part_arrays, axis=-1) for part_arrays in zip(*parts, strict=True)
    )
    return ScoredCases(score_rows[int((~np.isnan(score_rows)).any(axis=1).argmax())], *label_kinds)


def business_lines(
    case_statements: Sequence[str | tuple[str, ...]],
    lines_by_tag: Mapping[str, Mapping[str, str]],
    documents: Collection[str],
) -> list[str]:
    """Line of business of every case: what it states, else its documents' tag.

    The tag is `domain`, where no document of the cases has one `product`. `(several)` where its
    documents differ, `(none)` where none of them is known.

    Args:
      case_statements: line of each case, or the sources that tell it.
      lines_by_tag: by tag and document.
      documents: that the sources may mean.
    """
    source_names = {
        source_name
        for case_sources in case_statements
        if not isinstance(case_sources, str)
        for source_name in case_sources
    }
    meanings = source_meanings(source_names, documents)
    named_documents = {document for meaning in meanings.values() for document in meaning.documents}
    # A tag that other documents alone have would leave all cases without a line, and shards do not
    # hold those.
    line_tag = next(
        (
            line_tag
            for line_tag in LINE_TAGS
            if not named_documents.isdisjoint(lines_by_tag[line_tag])
        ),
        LINE_TAGS[0],
    )
    case_lines: list[str] = []
    for statement in case_statements:
        case_line: Any = statement
        if not isinstance(statement, str):
            case_documents = {
                document
                for source_name in statement
                for document in meanings[source_name].documents
            }
            document_lines: list[Any] = [
                *{
                    lines_by_tag[line_tag][document]
                    for document in case_documents & lines_by_tag[line_tag].keys()
                }
            ]
            case_line = SEVERAL_LINES if document_lines[1:] else (document_lines or [NO_VALUE])[0]
        case_lines.append(case_line)
    return case_lines


class StatedColumns(NamedTuple):
    """What cases say of themselves, by column, and documents of their line, by tag.

    The documents are those of their trace.

    documents: that the sources of the cases may mean.
    """

    columns: pd.DataFrame
    lines: dict[str, dict[str, str]]
    documents: set[str]


def stated_columns(trace: TraceData) -> StatedColumns:
    """Columns of the cases of one trace in memory; pure, so that any worker may read them."""
    import pandas as pd

    case_rows = []
    for case in trace.cases:
        lang, language, line, domain = (
            text_value(case.extra.get(extra_key))
            for extra_key in ("lang", "language", "line", "domain")
        )
        names_documents = "yes" if case.selected_sources else "no"
        case_kinds = (text_value(case.doctype), text_value(case.intent), names_documents)
        status_label = text_value(case.expect_status)
        case_rows.append(
            (lang or language, line or domain or line_sources(case), *case_kinds, status_label)
        )
    case_table = pd.DataFrame(case_rows, columns=list(CASE_COLUMNS), dtype=object)
    lines_by_tag = {
        line_tag: {
            name: text_value(trace.chunks[chunk_number].tags.get(line_tag))
            for name, chunk_number in first_chunks.items()
        }
        for line_tag, first_chunks in line_chunks(trace.chunks).items()
    }
    return StatedColumns(case_table, lines_by_tag, known_documents(trace))


def case_columns(
    decisions: Decisions | ShardedDecisions, by: Mapping[str, Sequence[Any] | NDArray[Any]]
) -> dict[str, list[str]]:
    """Column -> value of every case; columns that say nothing of any case are left out."""
    import pandas as pd

    parts = list(each_shard(stated_columns, decisions.trace, what="slice"))
    case_table = pd.concat([part.columns for part in parts], ignore_index=True)
    # of the first that knows a document
    lines_by_tag = {
        line_tag: {
            column_name: line
            for part in parts[::-1]
            for column_name, line in part.lines[line_tag].items()
        }
        for line_tag in LINE_TAGS
    }
    documents = set().union(*(part.documents for part in parts))
    case_table["line"] = business_lines(case_table["line"].tolist(), lines_by_tag, documents)
    for column_name, column_values in by.items():
        if len(column_values) != len(decisions):
            size_text = f"{len(column_values)} of {column_name!r} for {len(decisions)}"
            msg = f"by must hold a value a case, got {size_text} cases."
            raise ValueError(msg)
        case_table[column_name] = [text_value(column_value) for column_value in column_values]
    filled_table = case_table.replace("", NO_VALUE)
    return {
        str(column_name): filled_table[column_name].tolist()
        for column_name in filled_table
        if (filled_table[column_name] != NO_VALUE).any()
    }


def _share(k: int, n_cases: int) -> float:
    return k / n_cases if n_cases else float("nan")


LIST_DEPTHS = (1, 5, 20)
NDCG_DEPTH = 10
FINAL_ORDER, FUSED_ORDER = "final", "fused (s_hybrid)"
HIT_COLUMNS = tuple(f"hit@{k}" for k in LIST_DEPTHS)
GRADED, BINARY, UNGRADED = (
    f"nDCG@{NDCG_DEPTH} (graded)",
    f"nDCG@{NDCG_DEPTH} (binary)",
    f"nDCG@{NDCG_DEPTH}",
)
Gains = Literal["graded", "binary"]


class RankedCases(NamedTuple):
    """Where the expected sources of cases stand, of the q cases that expect one.

    n_cases: of the trace, Q. rows: positions of the judged ones, [q]. graded: whether any case
    grades its sources. measures: of each order of an arm, by both names, [3, q]: place of the first
    expected source (infinite for none), nDCG@10 by grades, and by number of sources. reranked: arms
    of which a reranker changed the order.
    """

    n_cases: int
    rows: NDArray[np.int64]
    graded: bool
    measures: dict[tuple[str, str], Array]
    reranked: frozenset[str]


def ranked_cases(trace: TraceData, orders: Sequence[str]) -> RankedCases:
    """Where the expected sources stand in some orders of one trace in memory.

    Pure, so that any worker may look. What is ranked are documents, or pages for a case of which a
    source names a page, each once, where its best chunk stands.
    """
    grades_by_row = {row: source_grades(case) for row, case in enumerate(trace.cases)}
    judged_grades = {row: case_grades for row, case_grades in grades_by_row.items() if case_grades}
    meanings = source_meanings(set().union(*judged_grades.values()), known_documents(trace))
    check_clear([trace.cases[row] for row in judged_grades], meanings)
    judged_grades = {
        row: _distinct_grades(case_grades, meanings) for row, case_grades in judged_grades.items()
    }
    # The best order of the expected sources, which nDCG divides by.
    best_gains = _gain_table(
        [_source_gains(case_grades, meanings) for case_grades in judged_grades.values()]
    )
    ideal_gains = -np.sort(-best_gains, axis=2)[:, :, :NDCG_DEPTH]
    sources_by_chunk = chunk_sources(trace.chunks, meanings)
    chunk_documents: list[Any] = [chunk.document for chunk in trace.chunks]
    chunk_pages = [(chunk.document, chunk.page_shown) for chunk in trace.chunks]
    # A case that expects a page is judged by pages: its document alone would be half an answer.
    ranked_units = [
        chunk_pages if any(meanings[source].page for source in case_grades) else chunk_documents
        for case_grades in judged_grades.values()
    ]
    list_width, order_measures = min(trace.hits.chunk.shape[3], max(LIST_DEPTHS)), {}
    for order_key, ordered_chunks in ordered_hits(trace, orders).items():
        reached_gains = _gain_table(
            [
                _first_gains(
                    ordered_chunks[row].tolist(), chunk_units, sources_by_chunk, case_grades
                )
                for (row, case_grades), chunk_units in zip(
                    judged_grades.items(), ranked_units, strict=True
                )
            ],
            list_width,
        )
        # Infinite where no expected source is in the list, so that it is beyond every depth.
        is_hit = reached_gains[0] > 0.0
        first_places = np.where(is_hit.any(axis=1), is_hit.argmax(axis=1), np.inf)
        ndcg_rows = [
            metrics.graded_ndcg(*gain_pair, NDCG_DEPTH)
            for gain_pair in zip(reached_gains, ideal_gains, strict=True)
        ]
        order_measures[order_key] = np.stack([first_places, *ndcg_rows])
    is_reranked = (trace.hits.n_reranked[:, :, 0] > 0).any(axis=0)
    return RankedCases(
        len(trace),
        np.array(list(judged_grades), dtype=np.int64),
        any(case.extra.get(SOURCE_GRADES) for case in trace.cases),
        order_measures,
        frozenset(np.array(trace.arms)[is_reranked].tolist()),
    )


def _gain_table(
    gains_by_case: Sequence[Sequence[tuple[float, float]]], n_places: int | None = None
) -> Array:
    """Gains of each case, by grade and by number, behind which follow zeros, [2, q, R].

    The width is part of the result: sums of other widths differ in their last bit.
    """
    gain_table = np.zeros(
        (2, len(gains_by_case), n_places or max(map(len, gains_by_case), default=0) or 1)
    )
    for row, place_gains in enumerate(case_gains[:n_places] for case_gains in gains_by_case):
        gain_table[:, row, : len(place_gains)] = (
            np.array(place_gains, dtype=np.float64).reshape(-1, 2).T
        )
    return gain_table


def ordered_hits(
    trace: TraceData, orders: Sequence[str] = (FINAL_ORDER,)
) -> dict[tuple[str, str], NDArray[np.int64]]:
    """Chunks of each arm in some orders, [Q, K], -1 for none.

    Ties go by position in the corpus (rule S0.4).
    """
    chunks_by_order = {}
    for arm_index, arm in enumerate(trace.arms):
        arm_chunks = trace.hits.chunk[:, arm_index, 0].astype(np.int64)
        places_by_order = {FINAL_ORDER: arm_order(trace.hits.rank[:, arm_index, 0], arm_chunks)}
        if FUSED_ORDER in orders:
            fused_scores = trace.hits.s_hybrid[:, arm_index, 0]
            is_fused = (arm_chunks >= 0) & ~np.isnan(fused_scores)
            places_by_order[FUSED_ORDER] = np.lexsort(
                (arm_chunks, np.where(is_fused, -fused_scores, np.inf))
            )
        for order, hit_places in places_by_order.items():
            chunks_by_order[arm, order] = np.take_along_axis(arm_chunks, hit_places, axis=1)
    return chunks_by_order


def _first_gains(
    chunk_numbers: Sequence[int],
    chunk_units: Sequence[Any],
    sources_by_chunk: Sequence[Sequence[str]],
    grades_by_source: Mapping[str, float],
) -> list[tuple[float, int]]:
    """Grades in sum and number of the expected sources that a place of a list is the first of.

    A document stands in the list once, where its best chunk does.

    Args:
      chunk_numbers: numbers of the chunks in order; -1 for no hit.
      chunk_units: document or page of each chunk of the trace, [C].
      sources_by_chunk: sources that each chunk fulfils, [C].
      grades_by_source: of the sources of the case.
    """
    first_chunks: dict[Any, int] = {}
    for chunk_number in chunk_numbers:
        if chunk_number >= 0:
            first_chunks.setdefault(chunk_units[chunk_number], chunk_number)
    unmet_grades, place_gains = dict(grades_by_source), []
    for chunk_number in first_chunks.values():
        first_sources = [
            source_name
            for source_name in sources_by_chunk[chunk_number]
            if source_name in unmet_grades
        ]
        place_gains.append(
            (
                sum(unmet_grades.pop(source_name) for source_name in first_sources),
                len(first_sources),
            )
        )
    return place_gains


def _all_ranked(trace: TraceView, orders: Sequence[str]) -> RankedCases:
    """Ranked cases of all shards, in order."""
    parts = list(each_shard(ranked_cases, trace, tuple(orders), what="rank"))
    shard_ends = np.cumsum([part.n_cases for part in parts])
    case_rows = [
        part.rows + shard_end - part.n_cases
        for part, shard_end in zip(parts, shard_ends, strict=True)
    ]
    order_measures = {
        order_key: np.concatenate([part.measures[order_key] for part in parts], axis=1)
        for order_key in parts[0].measures
    }
    is_graded, reranked_sets = any(part.graded for part in parts), [part.reranked for part in parts]
    reranked_arms = frozenset().union(*reranked_sets)
    return RankedCases(
        int(shard_ends[-1]), np.concatenate(case_rows), is_graded, order_measures, reranked_arms
    )


@answered_traces("trace")
def ranking(trace: TraceView) -> pd.DataFrame:
    """Each arm's hit@1, hit@5, hit@20 and nDCG@10, over the cases that expect a source.

    This is before any refinement.

    Relevant is the first hit of each expected source, which is any of `expect_sources` or
    `expect_sources_any`, a document or a page of it. What is ranked are documents, each at the
    place of its best chunk, or pages for a case one of whose sources names a page; further chunks
    of it take no place. A page that is the first of two sources, itself and its document, gains
    both, and the ideal order has it first. An arm that reranks has a second row: the order of the
    fused score, before reranking. Where cases grade their sources (`raglab.values.source_grades`),
    nDCG@10 is given twice and its name states the gain: the grade itself, as trec_eval and
    ir_measures count, or 1.

    Args:
      trace: in memory, or of shards (`Trace.open`), one of which is in memory at a time.

    Returns:
      A row an arm and order: `arm`, `order`, `n` (cases), `hit@1`, `hit@5`, `hit@20`, and
        `nDCG@10`, or `nDCG@10 (graded)` and `nDCG@10 (binary)`; NaN where no case expects a source.
        `attrs["without_source"]` is the number of cases that expect none and are left out.

    Raises:
      ValueError: grades that are none.

    Source: rules S1.3, S6.1; Järvelin and Kekäläinen 2002.
    """
    import pandas as pd

    case_ranks = _all_ranked(trace, (FINAL_ORDER, FUSED_ORDER))
    ndcg_names, table_rows = (GRADED, BINARY) if case_ranks.graded else (UNGRADED,), []
    for (arm, order), (first_places, *ndcg_rows) in case_ranks.measures.items():
        if order == FINAL_ORDER or arm in case_ranks.reranked:
            measure_rows = [
                *(first_places < list_depth for list_depth in LIST_DEPTHS),
                *ndcg_rows[: len(ndcg_names)],
            ]
            measure_means = [
                float(case_measures.mean()) if len(case_measures) else np.nan
                for case_measures in measure_rows
            ]
            table_rows.append((arm, order, len(first_places), *measure_means))
    ranking_table = pd.DataFrame(
        table_rows, columns=["arm", "order", "n", *HIT_COLUMNS, *ndcg_names]
    )
    ranking_table.attrs["without_source"] = case_ranks.n_cases - len(case_ranks.rows)
    return ranking_table


def ndcg_by_case(trace: TraceView, gains: Gains = "graded") -> Array:
    """nDCG@10 of every case under every arm in its final order, [Q, A].

    NaN where a case expects no source.

    Args:
      trace: in memory, or of shards.
      gains: of a relevant hit, its grade or 1; the same where no case grades its sources.

    Raises:
      ValueError: other gains, or grades that are none.
    """
    measure_index = {"graded": 1, "binary": 2}
    if gains not in measure_index:
        msg = f"gains must be one of {', '.join(measure_index)}, got {gains!r}."
        raise ValueError(msg)
    case_ranks = _all_ranked(trace, (FINAL_ORDER,))
    ndcg_values = np.full((case_ranks.n_cases, len(case_ranks.measures)), np.nan)
    ndcg_values[case_ranks.rows] = np.transpose(
        [order_measures[measure_index[gains]] for order_measures in case_ranks.measures.values()]
    )
    return ndcg_values


def _distinct_grades(
    grades_by_source: Mapping[str, float], meanings: Mapping[str, Meaning]
) -> dict[str, float]:
    """Grades with each place named once, by its best grade; a page and its document are two."""
    source_by_place: dict[tuple[object, str], str] = {}
    for source in sorted(grades_by_source, key=lambda source_name: -grades_by_source[source_name]):
        meaning = meanings[source]
        source_by_place.setdefault((meaning.documents or source, meaning.page), source)
    return {
        source: grade
        for source, grade in grades_by_source.items()
        if source in source_by_place.values()
    }


def _source_gains(
    grades_by_source: Mapping[str, float], meanings: Mapping[str, Meaning]
) -> list[tuple[float, float]]:
    """Gains of the best order of a case's sources, by grade and by number, in any order.

    A document of which pages are expected too is met by the first of these, so that its gain is
    added to that of the page with the highest grade: no order reaches more, and with these pages in
    the list it is reached.
    """
    grades_by_document: dict[object, dict[str, float]] = {}
    for source, grade in grades_by_source.items():
        page = meanings[source].page
        document = meanings[source].documents or (
            source.removesuffix(f"#{page}") if page else source
        )
        grades_by_document.setdefault(document, {})[page] = grade
    place_gains = []
    for page_grades in grades_by_document.values():
        document_grade = page_grades.pop("", None)
        best_grade, *other_grades = sorted(page_grades.values(), reverse=True) or [0.0]
        first_gain = (
            (best_grade, 1.0)
            if document_grade is None
            else (best_grade + document_grade, 2.0 if page_grades else 1.0)
        )
        place_gains += [first_gain, *((grade, 1.0) for grade in other_grades)]
    return place_gains
