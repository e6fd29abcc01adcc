"""Slices (shore): rates by group of cases.

Ranking measures of the arms, and of weights of the fused lists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.certify import holm_adjusted
from raglab.decision.decisions import Decisions
from raglab.decision.document_names import (
    Meaning,
    check_clear,
    chunk_documents,
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
from raglab.replay import cases_by_shard, each_shard
from raglab.values import SOURCE_GRADES, Case, Chunk, TraceData, source_grades

if TYPE_CHECKING:
    import pandas as pd

NONE = "(none)"  # value of a case of which the column says nothing
SEVERAL = "(several)"  # line of a case whose documents are of several
HIGHER_IS_BETTER = ("coverage", "pass_rate")
COLUMNS = (
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
    place = metrics.RATES.index(rate)
    # of every case, once; a slice's rate and cost are then those of its cells
    cell = decisions.cells
    matrix = metrics.cost_matrix(costs)

    # Each slice is tested against the cases outside it, not against all: those would hold the slice
    # itself.
    all_k, all_best, all_n, _ = _slice_counts(cell, place, matrix)
    scored = _scored_cases(decisions)
    slice_rows, columns = [], case_columns(decisions, by or {})
    fine = 1.0 - (1.0 - level) / max(sum(len(set(texts)) for texts in columns.values()), 1)
    is_fitted = scored.ranking(level=level).low > 0.5
    for column, texts in columns.items():
        values = np.array(texts, dtype=object)
        for value in sorted(set(texts)):
            k, best, n, cost = _slice_counts(cell[values == value], place, matrix)
            rest = all_k - k, all_n - n
            p = _difference_p((k, best, n), (all_k - k, all_best - best, all_n - n))
            ends = [metrics.clopper_pearson(count, n, level) for count in (k, best)]
            low, high = min(float(end.low) for end in ends), max(float(end.high) for end in ends)
            group = scored.rows(values == value)
            rates = _share(k, n), low, high, _share(*rest)
            slice_rows.append(
                (column, value, n, k, *rates, p, cost, *group.ranking(level=level)[2:])
            )
            if is_fitted:
                _warn_of_turned(group, f"{column} {value}", fine)
    table = pd.DataFrame(
        slice_rows, columns=[name for name in COLUMNS if name not in {"p_holm", "flag"}]
    )
    # A slice too small to show anything is not tested, for each test costs the others power (Holm).
    enough = (table["n"] >= least) & (all_n - table["n"] >= least) & table["p"].notna()
    table["p_holm"] = holm_adjusted(np.where(enough, table["p"].astype(float), np.nan))
    table["flag"] = table["p_holm"] < 1.0 - level
    good = rate in HIGHER_IS_BETTER
    # By the end of the interval: a slice of two cases is seldom the worst, though its rate may be.
    order = table.assign(order=np.arange(len(table))).sort_values(
        ["high" if good else "low", "rate", "n", "order"],
        ascending=[good, good, False, True],
        na_position="last",
    )
    rows = table.loc[order.index, list(COLUMNS)].reset_index(drop=True)
    rows.attrs["basis"] = decisions.basis_text()
    rows.attrs["headline"] = headline_note(decisions.trace, decisions.status_only)
    return rows


def _slice_counts(
    cells: NDArray[np.int8], place: int, matrix: NDArray[np.float64]
) -> tuple[int, int, int, float]:
    """Counted of a rate, counted were undecided answers right, of how many, and mean cost."""
    counts = np.bincount(cells, minlength=metrics.N_CELLS)
    worst, best = (
        metrics.rate_counts(metrics.settled_cells(counts, settled))
        for settled in (metrics.WRONG_CELL, metrics.RIGHT_CELL)
    )
    size = metrics.denominators(worst, metrics.label_counts(counts))
    cost = float(metrics.expected_cost(counts, matrix))
    return int(worst[place]), int(best[place]), int(size[place]), cost


def _difference_p(some: tuple[int, int, int], rest: tuple[int, int, int]) -> float:
    """Two-sided p of Fisher's test of k of n in a slice and outside; NaN where one is empty.

    The largest over undecided answers: k as they are wrong or right, on either side.
    """
    from scipy.stats import fisher_exact

    if not (some[2] and rest[2]):
        return float("nan")
    pairs = list(product(some[:2], rest[:2]))
    shares = [inside / some[2] - outside / rest[2] for inside, outside in pairs]
    if min(shares) < 0.0 < max(shares):
        return 1.0
    tables = (
        [[inside, some[2] - inside], [outside, rest[2] - outside]] for inside, outside in pairs
    )
    return min(max(float(fisher_exact(np.array(table))[1]) for table in tables), 1.0)


def _warn_of_turned(group: ScoredCases, name: str, level: float) -> None:
    """Warn where the score of a policy ranks the right cases of a slice below the others."""
    title = f"the score of the policy in {name}"
    if text := group.contradiction(title, level=level, remedy="tune such cases apart"):
        warn_user(text)


def shard_scores(part: TracePart, decided: Callable[[TracePart], Decisions]) -> ScoredCases:
    """Scores of one part, [3, Q], the fitted ones first; pure, so that any worker may read them."""
    evidence = decided(part).tables.evidence
    scores = np.stack([evidence.probability[0, 0], evidence.fused[0], evidence.top1[0]])
    return scored_cases(decision_cases(evidence), scores)


def _scored_cases(decisions: Decisions | ShardedDecisions) -> ScoredCases:
    """Cases by the first score that any of them has."""
    if isinstance(decisions, ShardedDecisions):
        function = partial(shard_scores, decided=decisions.decided)
        parts = list(run_each(function, decisions.trace.parts, what="slice"))
    else:
        parts = [shard_scores(decisions.trace, lambda _: decisions)]
    scores, *kinds = (np.concatenate(fields, axis=-1) for fields in zip(*parts, strict=True))
    return ScoredCases(scores[int((~np.isnan(scores)).any(axis=1).argmax())], *kinds)


def business_lines(cases: Sequence[Case], chunks: Sequence[Chunk]) -> list[str]:
    """Line of business of every case.

    What it says itself (`line` or `domain` of its extra), else its documents' tag.

    Its documents are those expected, without any those that the user named; the tag is `domain`,
    where no document of the cases has one `product`. `(several)` where its documents differ,
    `(none)` where none of them is known.
    """
    return _lines(
        [_own_line(case) for case in cases], _document_lines(chunks), chunk_documents(chunks)
    )


def _document_lines(chunks: Sequence[Chunk]) -> dict[str, dict[str, str]]:
    """Line of each document by each of `LINE_TAGS`.

    What its first chunk says that says anything.
    """
    return {
        tag: {name: text_value(chunks[number].tags.get(tag)) for name, number in of_tag.items()}
        for tag, of_tag in line_chunks(chunks).items()
    }


def _own_line(case: Case) -> str | tuple[str, ...]:
    """Line that a case states itself, else the sources that tell it."""
    own = text_value(case.extra.get("line")) or text_value(case.extra.get("domain"))
    return own or line_sources(case)


def _lines(
    stated: Sequence[str | tuple[str, ...]],
    lines: Mapping[str, Mapping[str, str]],
    documents: Collection[str],
) -> list[str]:
    """Line of every case, by what it states and what documents say, by tag.

    Args:
      stated: line of each case, or the sources that tell it.
      lines: by tag and document.
      documents: that the sources may mean.
    """
    meanings = source_meanings(
        {name for statement in stated if not isinstance(statement, str) for name in statement},
        documents,
    )
    named = {document for meaning in meanings.values() for document in meaning.documents}
    # A tag that other documents alone have would leave all cases without a line, and shards do not
    # hold those.
    tag = next((tag for tag in LINE_TAGS if not named.isdisjoint(lines[tag])), LINE_TAGS[0])
    return [
        statement if isinstance(statement, str) else _line_of(statement, lines[tag], meanings)
        for statement in stated
    ]


def _line_of(
    sources: Sequence[str], of_document: Mapping[str, str], meanings: Mapping[str, Meaning]
) -> str:
    documents = [document for source in sources for document in meanings[source].documents]
    lines = {of_document[name] for name in documents if name in of_document}
    return SEVERAL if len(lines) > 1 else next(iter(lines), NONE)


class StatedColumns(NamedTuple):
    """What cases say of themselves, by column, and documents of their line, by tag.

    The documents are those of their trace.

    documents: that the sources of the cases may mean.
    """

    columns: dict[str, list[Any]]
    lines: dict[str, dict[str, str]]
    documents: set[str]


def stated_columns(trace: TraceData) -> StatedColumns:
    """Columns of the cases of one trace in memory; pure, so that any worker may read them."""
    cases = trace.cases
    columns: dict[str, list[Any]] = {
        "language": [
            text_value(case.extra.get("lang")) or text_value(case.extra.get("language"))
            for case in cases
        ],
        "line": [_own_line(case) for case in cases],
        "doctype": [text_value(case.doctype) for case in cases],
        "intent": [text_value(case.intent) for case in cases],
        "named_documents": ["yes" if case.selected_sources else "no" for case in cases],
        "label": [text_value(case.expect_status) for case in cases],
    }
    return StatedColumns(columns, _document_lines(trace.chunks), known_documents(trace))


def case_columns(
    decisions: Decisions | ShardedDecisions, by: Mapping[str, Sequence[Any] | NDArray[Any]]
) -> dict[str, list[str]]:
    """Column -> value of every case; columns that say nothing of any case are left out."""
    own: dict[str, list[Any]] = {}
    lines: dict[str, dict[str, str]] = {tag: {} for tag in LINE_TAGS}
    documents: set[str] = set()
    for part in each_shard(stated_columns, decisions.trace, what="slice"):
        documents |= part.documents
        for name, column in part.columns.items():
            own.setdefault(name, []).extend(column)
        for tag, of_document in part.lines.items():
            for name, line in of_document.items():
                lines[tag].setdefault(name, line)  # of the first that knows a document
    own["line"] = _lines(own["line"], lines, documents)
    for name, values in by.items():
        if len(values) != len(decisions):
            msg = (
                f"by must hold a value a case, got {len(values)} of {name!r} for {len(decisions)} "
                "cases."
            )
            raise ValueError(msg)
        own[name] = [text_value(value) for value in values]
    stated = {name: [value or NONE for value in values] for name, values in own.items()}
    return {name: values for name, values in stated.items() if set(values) - {NONE}}


def _share(k: int, n: int) -> float:
    return k / n if n else float("nan")


DEPTHS_OF_LIST = (1, 5, 20)
NDCG_AT = 10
FINAL, FUSED = "final", "fused (s_hybrid)"
HITS = tuple(f"hit@{k}" for k in DEPTHS_OF_LIST)
GRADED, BINARY, UNGRADED = f"nDCG@{NDCG_AT} (graded)", f"nDCG@{NDCG_AT} (binary)", f"nDCG@{NDCG_AT}"
Gains = Literal["graded", "binary"]


def ndcg_measures(trace: TraceView) -> tuple[str, ...]:
    """Names of nDCG@10 of a trace's cases, the one to judge by first.

    Where no case grades its sources there is one, `nDCG@10`; else `nDCG@10 (graded)`, whose gains
    are the grades, and `nDCG@10 (binary)`, to which every relevant source is worth the same.
    """
    return _measures(
        graded=any(
            case.extra.get(SOURCE_GRADES) for cases in cases_by_shard(trace) for case in cases
        )
    )


def _measures(*, graded: bool) -> tuple[str, ...]:
    return (GRADED, BINARY) if graded else (UNGRADED,)


class OrderedGrades(NamedTuple):
    """Hits in one order of an arm that are the first of an expected source.

    acts: whether a reranker changed the order. row: which of the judged cases, place: of the hit,
    grade: of its sources in sum, n_sources: how many it is the first of, two where a document and
    its page are expected, [E] each.
    """

    arm: str
    order: str
    acts: bool
    row: NDArray[np.int64]
    place: NDArray[np.int64]
    grade: NDArray[np.float64]
    n_sources: NDArray[np.float64]


class RankedCases(NamedTuple):
    """Cases that expect a source, and where it stands among their hits; nothing of the others.

    n_cases: of the trace, Q. rows: positions of the judged ones, [q]. ideal: gains of the best
    possible order, the first 10, by grades and by number of sources, [2, q, R], 0 behind the last.
    graded: whether any case grades its sources. width: hits a case that were looked at. arms: of
    the trace. orders: of each arm, by name and order.
    """

    n_cases: int
    rows: NDArray[np.int64]
    ideal: NDArray[np.float64]
    graded: bool
    width: int
    arms: tuple[str, ...]
    orders: tuple[OrderedGrades, ...]

    def gains(self, order: OrderedGrades) -> NDArray[np.float64]:
        """Gains of the hits of an order, by grades and by number of sources, [2, q, width]."""
        gains, within = np.zeros((2, len(self.rows), self.width)), order.place < self.width
        gains[:, order.row[within], order.place[within]] = (
            order.grade[within],
            order.n_sources[within],
        )
        return gains


def ranked_cases(trace: TraceData, orders: Sequence[str]) -> RankedCases:
    """Where the expected sources stand in some orders of one trace in memory.

    Pure, so that any worker may look.
    """
    judged, width, grades_by_order = (
        _judged(trace),
        min(trace.hits.chunk.shape[3], max(DEPTHS_OF_LIST)),
        [],
    )
    for name, order, places, acts in _orders(trace, orders):
        chunk = np.take_along_axis(
            trace.hits.chunk[judged.rows, trace.arm(name), 0], places[judged.rows], axis=1
        )
        grades_by_order.append(
            OrderedGrades(
                name, order, acts, *_gains_of(_best_of_each(chunk, judged)[:, :width], judged)
            )
        )
    graded = any(case.extra.get(SOURCE_GRADES) for case in trace.cases)
    rows = np.array(judged.rows, dtype=np.int64)
    return RankedCases(
        len(trace), rows, judged.ideal, graded, width, trace.arms, tuple(grades_by_order)
    )


def _all_ranked(trace: TraceView, orders: Sequence[str]) -> RankedCases:
    """Ranked cases of all shards, in order."""
    parts = list(each_shard(ranked_cases, trace, tuple(orders), what="rank"))
    widest = max(part.ideal.shape[2] for part in parts)
    starts = np.cumsum([0, *(part.n_cases for part in parts)])
    first_rows = np.cumsum([0, *(len(part.rows) for part in parts)])
    in_orders = []
    for same in zip(*(part.orders for part in parts), strict=True):
        rows = [grades.row + first for grades, first in zip(same, first_rows[:-1], strict=True)]
        places = [
            np.concatenate([getattr(grades, field) for grades in same])
            for field in ("place", "grade", "n_sources")
        ]
        acts = any(grades.acts for grades in same)
        in_orders.append(
            OrderedGrades(same[0].arm, same[0].order, acts, np.concatenate(rows), *places)
        )
    return RankedCases(
        n_cases=int(starts[-1]),
        rows=np.concatenate(
            [part.rows + start for part, start in zip(parts, starts[:-1], strict=True)]
        ),
        ideal=np.concatenate([_padded(part.ideal, widest) for part in parts], axis=1),
        graded=any(part.graded for part in parts),
        width=max(part.width for part in parts),
        arms=parts[0].arms,
        orders=tuple(grades for grades in in_orders if grades.acts or grades.order == FINAL),
    )


def _padded(gains: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    return np.pad(gains, [(0, 0), (0, 0), (0, width - gains.shape[2])])


class _Judged(NamedTuple):
    """Cases that expect a source, and what is to be found.

    rows: of the cases, q of them. ideal: as of `RankedCases`. grades: of each case's sources.
    named: sources that each chunk of the trace fulfils, [C]. ranked: what is ranked for each case,
    the documents or, where a source of the case names a page, the pages: number of that of each
    chunk, [C] of both. by_page: of each case, [q].
    """

    rows: list[int]
    ideal: NDArray[np.float64]
    grades: list[dict[str, float]]
    named: list[list[str]]
    ranked: tuple[NDArray[np.int64], NDArray[np.int64]]
    by_page: NDArray[np.bool_]


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

    judged = _all_ranked(trace, (FINAL, FUSED))
    names, rows = _measures(graded=judged.graded), []
    for grades in judged.orders:
        gains = judged.gains(grades)
        hits = [metrics.hit_rate(gains[0] > 0.0, k) for k in DEPTHS_OF_LIST]
        measured = [
            float(each.mean()) if len(each) else np.nan for each in _ndcg_of(gains, judged, names)
        ]
        rows.append((grades.arm, grades.order, len(judged.rows), *hits, *measured))
    table = pd.DataFrame(rows, columns=["arm", "order", "n", *HITS, *names])
    table.attrs["without_source"] = judged.n_cases - len(judged.rows)
    return table


def ndcg_by_case(trace: TraceView, gains: Gains = "graded") -> NDArray[np.float64]:
    """nDCG@10 of every case under every arm in its final order, [Q, A].

    NaN where a case expects no source.

    Args:
      trace: in memory, or of shards.
      gains: of a relevant hit, its grade or 1; the same where no case grades its sources.

    Raises:
      ValueError: other gains, or grades that are none.
    """
    if gains not in get_args(Gains):
        msg = f"gains must be one of {', '.join(get_args(Gains))}, got {gains!r}."
        raise ValueError(msg)
    judged = _all_ranked(trace, (FINAL,))
    measure = _measures(graded=judged.graded)[0] if gains == "graded" else BINARY
    values = np.full((judged.n_cases, len(judged.arms)), np.nan)
    for grades in judged.orders:
        (each,) = _ndcg_of(judged.gains(grades), judged, [measure])
        values[judged.rows, judged.arms.index(grades.arm)] = each
    return values


def _judged(trace: TraceData) -> _Judged:
    """Cases that expect a source."""
    all_grades = {row: source_grades(case) for row, case in enumerate(trace.cases)}
    sourced_rows = [row for row, grades in all_grades.items() if grades]
    meanings = source_meanings(
        {source for row in sourced_rows for source in all_grades[row]}, known_documents(trace)
    )
    check_clear([trace.cases[row] for row in sourced_rows], meanings)
    all_grades = {row: _distinct_grades(all_grades[row], meanings) for row in sourced_rows}
    best = [_ideal_gains(all_grades[row], meanings) for row in sourced_rows]
    ideal = np.zeros((2, len(sourced_rows), max((len(gains[0]) for gains in best), default=0)))
    for at, gains in enumerate(best):
        ideal[:, at, : len(gains[0])] = gains
    documents = _numbered([(chunk.document,) for chunk in trace.chunks])
    pages = _numbered([(chunk.document, chunk.page_shown) for chunk in trace.chunks])
    named = chunk_sources(trace.chunks, meanings)
    paged = [any(bool(meanings[source].page) for source in all_grades[row]) for row in sourced_rows]
    grades = [all_grades[row] for row in sourced_rows]
    return _Judged(
        sourced_rows, ideal, grades, named, (documents, pages), np.array(paged, dtype=bool)
    )


def _distinct_grades(
    grades: Mapping[str, float], meanings: Mapping[str, Meaning]
) -> dict[str, float]:
    """Grades with each place named once, by its best grade; a page and its document are two."""
    named: dict[tuple[object, str], str] = {}
    for source in sorted(grades, key=lambda name: -grades[name]):
        meaning = meanings[source]
        named.setdefault((meaning.documents or source, meaning.page), source)
    distinct_sources = set(named.values())
    return {source: grade for source, grade in grades.items() if source in distinct_sources}


def _ideal_gains(
    grades: Mapping[str, float], meanings: Mapping[str, Meaning]
) -> NDArray[np.float64]:
    """Gains of a case's best source order, by grades and by number, first 10 descending, [2, R].

    A document of which pages are expected too is met by the first of these, so that its gain is
    added to that of the page with the highest grade: no order reaches more, and with these pages in
    the list it is reached.
    """
    places: dict[object, dict[str, float]] = {}
    for source, grade in grades.items():
        page = meanings[source].page
        document = meanings[source].documents or (
            source.removesuffix(f"#{page}") if page else source
        )
        places.setdefault(document, {})[page] = grade
    gains = []
    for of_page in places.values():
        whole = of_page.pop("", None)
        best, *rest = sorted(of_page.values(), reverse=True) or [0.0]
        first = (best, 1.0) if whole is None else (best + whole, 2.0 if of_page else 1.0)
        gains += [first, *((grade, 1.0) for grade in rest)]
    return -np.sort(-np.array(gains).T, axis=1)[:, :NDCG_AT]


def _numbered(names: Sequence[tuple[str, ...]]) -> NDArray[np.int64]:
    """Number of each name, the same for the same name."""
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)


def _best_of_each(chunk: NDArray[np.integer[Any]], judged: _Judged) -> NDArray[np.int64]:
    """Hits in order, [q, K], only the first of each document or page; -1 at the end.

    A document stands in the list once, where its best chunk does, as in a list of documents.
    """
    documents, pages = judged.ranked
    if not len(documents):
        return chunk.astype(np.int64)
    of = np.where(judged.by_page[:, None], pages[chunk], documents[chunk])
    of = np.where(chunk >= 0, of, -1 - np.arange(chunk.shape[1]))  # padding repeats nothing
    order = np.argsort(of, axis=1, kind="stable")
    ordered = np.take_along_axis(of, order, axis=1)
    again = np.zeros(chunk.shape, dtype=bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    places = np.argsort(again, axis=1, kind="stable")
    return np.take_along_axis(np.where(again, -1, chunk), places, axis=1).astype(np.int64)


def _ndcg_of(
    gains: NDArray[np.float64], judged: RankedCases, measures: Sequence[str]
) -> Iterator[NDArray[np.float64]]:
    """nDCG@10 of every judged case by each measure, [q]; gains as of `RankedCases.gains`."""
    for measure in measures:
        of = int(measure == BINARY)
        yield metrics.graded_ndcg(gains[of], judged.ideal[of], NDCG_AT)


def _gains_of(
    chunk: NDArray[np.integer[Any]], judged: _Judged
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Hits in ranked order that are the first of an expected source.

    Row, place, grade, n_sources, [E] each.
    """
    gains = [
        _first_gains(judged.named, row, grades)
        for row, grades in zip(chunk, judged.grades, strict=True)
    ]
    each = np.array(gains, dtype=np.float64).reshape(*chunk.shape, 2)
    row, place = np.nonzero(each[..., 1])
    return row, place, each[row, place, 0], each[row, place, 1]


def _orders(
    trace: TraceData, orders: Sequence[str]
) -> Iterator[tuple[str, str, NDArray[np.int64], bool]]:
    """Arm, order, places of its hits in that order, [Q, K], and whether anything was reranked.

    Ties go by position in the corpus (rule S0.4).
    """
    for at, name in enumerate(trace.arms):
        chunk = trace.hits.chunk[:, at, 0]
        hit, reranked = chunk.astype(np.int64), bool((trace.hits.n_reranked[:, at, 0] > 0).any())
        yield name, FINAL, arm_order(trace.hits.rank[:, at, 0], hit), reranked
        # where nothing was reranked here, another part may hold cases that were
        if FUSED in orders:
            fused = np.where(
                (chunk >= 0) & ~np.isnan(trace.hits.s_hybrid[:, at, 0]),
                -trace.hits.s_hybrid[:, at, 0],
                np.inf,
            )
            yield name, FUSED, np.lexsort((chunk, fused)), reranked


def _first_gains(
    named: Sequence[Sequence[str]], numbers: NDArray[np.integer[Any]], grades: Mapping[str, float]
) -> list[tuple[float, int]]:
    """Grades in sum and number of the expected sources that chunks, in order, are the first of.

    -1 is no chunk.

    Args:
      named: sources that each chunk of the trace fulfils, [C].
    """
    open_grades = dict(grades)
    gains = []
    for number in numbers:
        names = [name for name in named[number] if name in open_grades] if number >= 0 else []
        gains.append((sum(open_grades.pop(name) for name in names), len(names)))
    return gains
