"""Slices (shore): rates by group of cases.

Ranking measures of the arms, and of weights of the fused lists.
"""

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
NONE = "(none)"  # value of a case of which the column says nothing
SEVERAL = "(several)"  # line of a case whose documents are of several
HIGHER_IS_BETTER = ("coverage", "pass_rate")
STATED = ("language", "line", "doctype", "intent", "named_documents", "label")
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
    # of every case, once; a slice's rate and cost are then those of its cells
    cell, place, matrix = decisions.cells, metrics.RATES.index(rate), metrics.cost_matrix(costs)
    every = _slice_counts(cell, place, matrix)
    scored = _scored_cases(decisions)
    slice_rows, columns = [], case_columns(decisions, by or {})
    fine = 1.0 - (1.0 - level) / max(sum(len(set(texts)) for texts in columns.values()), 1)
    is_fitted = scored.ranking(level=level).low > 0.5
    for column, texts in columns.items():
        values = np.array(texts, dtype=object)
        for value in sorted(set(texts)):
            *counts, cost = _slice_counts(cell[values == value], place, matrix)
            k, best, n = counts
            # A slice is tested against the cases outside it: all would hold the slice itself.
            rest = [whole - part for whole, part in zip(every[:3], counts, strict=True)]
            ends = [metrics.clopper_pearson(count, n, level) for count in (k, best)]
            low, high = min(float(end.low) for end in ends), max(float(end.high) for end in ends)
            group = scored.rows(values == value)
            shares = _share(k, n), low, high, _share(rest[0], rest[2])
            tested = _difference_p(counts, rest), np.nan, False
            areas = group.ranking(level=level)[2:]
            slice_rows.append((column, value, n, k, *shares, *tested, cost, *areas))
            title = f"the score of the policy in {column} {value}"
            text = group.contradiction(title, level=fine, remedy="tune such cases apart")
            if is_fitted and text:
                warn_user(text)
    table = pd.DataFrame(slice_rows, columns=list(COLUMNS))
    # A slice too small to show anything is not tested, for each test costs the others power (Holm).
    enough = (table["n"] >= least) & (every[2] - table["n"] >= least) & table["p"].notna()
    table["p_holm"] = holm_adjusted(np.where(enough, table["p"].astype(float), np.nan))
    table["flag"] = table["p_holm"] < 1.0 - level
    good = rate in HIGHER_IS_BETTER
    # By the end of the interval: a slice of two cases is seldom the worst, though its rate may be.
    order = table.assign(order=np.arange(len(table))).sort_values(
        ["high" if good else "low", "rate", "n", "order"],
        ascending=[good, good, False, True],
        na_position="last",
    )
    rows = table.loc[order.index].reset_index(drop=True)
    rows.attrs["basis"] = decisions.basis_text()
    rows.attrs["headline"] = headline_note(decisions.trace, decisions.status_only)
    return rows


def _slice_counts(
    cells: NDArray[np.int8], place: int, matrix: Array
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


def _difference_p(some: Sequence[int], rest: Sequence[int]) -> float:
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


def business_lines(
    stated: Sequence[str | tuple[str, ...]],
    lines: Mapping[str, Mapping[str, str]],
    documents: Collection[str],
) -> list[str]:
    """Line of business of every case: what it states, else its documents' tag.

    The tag is `domain`, where no document of the cases has one `product`. `(several)` where its
    documents differ, `(none)` where none of them is known.

    Args:
      stated: line of each case, or the sources that tell it.
      lines: by tag and document.
      documents: that the sources may mean.
    """
    sources = {name for names in stated if not isinstance(names, str) for name in names}
    meanings = source_meanings(sources, documents)
    named = {document for meaning in meanings.values() for document in meaning.documents}
    # A tag that other documents alone have would leave all cases without a line, and shards do not
    # hold those.
    tag = next((tag for tag in LINE_TAGS if not named.isdisjoint(lines[tag])), LINE_TAGS[0])
    of_cases: list[str] = []
    for statement in stated:
        line: Any = statement
        if not isinstance(statement, str):
            of_case = {document for name in statement for document in meanings[name].documents}
            tags: list[Any] = [*{lines[tag][document] for document in of_case & lines[tag].keys()}]
            line = SEVERAL if tags[1:] else (tags or [NONE])[0]
        of_cases.append(line)
    return of_cases


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

    rows = []
    for case in trace.cases:
        lang, language, line, domain = (
            text_value(case.extra.get(key)) for key in ("lang", "language", "line", "domain")
        )
        named = "yes" if case.selected_sources else "no"
        kinds = (text_value(case.doctype), text_value(case.intent), named)
        label = text_value(case.expect_status)
        rows.append((lang or language, line or domain or line_sources(case), *kinds, label))
    columns = pd.DataFrame(rows, columns=list(STATED), dtype=object)
    lines = {
        tag: {
            name: text_value(trace.chunks[number].tags.get(tag)) for name, number in first.items()
        }
        for tag, first in line_chunks(trace.chunks).items()
    }
    return StatedColumns(columns, lines, known_documents(trace))


def case_columns(
    decisions: Decisions | ShardedDecisions, by: Mapping[str, Sequence[Any] | NDArray[Any]]
) -> dict[str, list[str]]:
    """Column -> value of every case; columns that say nothing of any case are left out."""
    import pandas as pd

    parts = list(each_shard(stated_columns, decisions.trace, what="slice"))
    own = pd.concat([part.columns for part in parts], ignore_index=True)
    # of the first that knows a document
    lines = {
        tag: {name: line for part in parts[::-1] for name, line in part.lines[tag].items()}
        for tag in LINE_TAGS
    }
    documents = set().union(*(part.documents for part in parts))
    own["line"] = business_lines(own["line"].tolist(), lines, documents)
    for name, values in by.items():
        if len(values) != len(decisions):
            sizes = f"{len(values)} of {name!r} for {len(decisions)}"
            msg = f"by must hold a value a case, got {sizes} cases."
            raise ValueError(msg)
        own[name] = [text_value(value) for value in values]
    stated = own.replace("", NONE)
    return {str(name): stated[name].tolist() for name in stated if (stated[name] != NONE).any()}


def _share(k: int, n: int) -> float:
    return k / n if n else float("nan")


DEPTHS_OF_LIST = (1, 5, 20)
NDCG_AT = 10
FINAL, FUSED = "final", "fused (s_hybrid)"
HITS = tuple(f"hit@{k}" for k in DEPTHS_OF_LIST)
GRADED, BINARY, UNGRADED = f"nDCG@{NDCG_AT} (graded)", f"nDCG@{NDCG_AT} (binary)", f"nDCG@{NDCG_AT}"
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
    grades = {row: source_grades(case) for row, case in enumerate(trace.cases)}
    judged = {row: of_case for row, of_case in grades.items() if of_case}
    meanings = source_meanings(set().union(*judged.values()), known_documents(trace))
    check_clear([trace.cases[row] for row in judged], meanings)
    judged = {row: _distinct_grades(of_case, meanings) for row, of_case in judged.items()}
    best = _gain_table([_source_gains(of_case, meanings) for of_case in judged.values()])
    ideal = -np.sort(-best, axis=2)[:, :, :NDCG_AT]
    named = chunk_sources(trace.chunks, meanings)
    documents: list[Any] = [chunk.document for chunk in trace.chunks]
    pages = [(chunk.document, chunk.page_shown) for chunk in trace.chunks]
    ranked = [
        pages if any(meanings[source].page for source in of_case) else documents
        for of_case in judged.values()
    ]
    width, measures = min(trace.hits.chunk.shape[3], max(DEPTHS_OF_LIST)), {}
    for pair, hits in ordered_hits(trace, orders).items():
        reached = _gain_table(
            [
                _first_gains(hits[row].tolist(), of_list, named, of_case)
                for (row, of_case), of_list in zip(judged.items(), ranked, strict=True)
            ],
            width,
        )
        is_hit = reached[0] > 0.0
        first = np.where(is_hit.any(axis=1), is_hit.argmax(axis=1), np.inf)
        ndcg = [metrics.graded_ndcg(*of, NDCG_AT) for of in zip(reached, ideal, strict=True)]
        measures[pair] = np.stack([first, *ndcg])
    is_reranked = (trace.hits.n_reranked[:, :, 0] > 0).any(axis=0)
    return RankedCases(
        len(trace),
        np.array(list(judged), dtype=np.int64),
        any(case.extra.get(SOURCE_GRADES) for case in trace.cases),
        measures,
        frozenset(np.array(trace.arms)[is_reranked].tolist()),
    )


def _gain_table(gains: Sequence[Sequence[tuple[float, float]]], width: int | None = None) -> Array:
    """Gains of each case, by grade and by number, behind which follow zeros, [2, q, R].

    The width is part of the result: sums of other widths differ in their last bit.
    """
    table = np.zeros((2, len(gains), width or max(map(len, gains), default=0) or 1))
    for row, of_case in enumerate(each[:width] for each in gains):
        table[:, row, : len(of_case)] = np.array(of_case, dtype=np.float64).reshape(-1, 2).T
    return table


def ordered_hits(
    trace: TraceData, orders: Sequence[str] = (FINAL,)
) -> dict[tuple[str, str], NDArray[np.int64]]:
    """Chunks of each arm in some orders, [Q, K], -1 for none.

    Ties go by position in the corpus (rule S0.4).
    """
    ordered = {}
    for at, name in enumerate(trace.arms):
        chunk = trace.hits.chunk[:, at, 0].astype(np.int64)
        places = {FINAL: arm_order(trace.hits.rank[:, at, 0], chunk)}
        if FUSED in orders:
            score = trace.hits.s_hybrid[:, at, 0]
            is_fused = (chunk >= 0) & ~np.isnan(score)
            places[FUSED] = np.lexsort((chunk, np.where(is_fused, -score, np.inf)))
        for order, of_hits in places.items():
            ordered[name, order] = np.take_along_axis(chunk, of_hits, axis=1)
    return ordered


def _first_gains(
    hits: Sequence[int],
    ranked: Sequence[Any],
    named: Sequence[Sequence[str]],
    grades: Mapping[str, float],
) -> list[tuple[float, int]]:
    """Grades in sum and number of the expected sources that a place of a list is the first of.

    A document stands in the list once, where its best chunk does.

    Args:
      hits: numbers of the chunks in order; -1 is none.
      ranked: document or page of each chunk of the trace, [C].
      named: sources that each chunk fulfils, [C].
      grades: of the sources of the case.
    """
    first_chunks: dict[Any, int] = {}
    for number in hits:
        if number >= 0:
            first_chunks.setdefault(ranked[number], number)
    unmet, gains = dict(grades), []
    for number in first_chunks.values():
        names = [name for name in named[number] if name in unmet]
        gains.append((sum(unmet.pop(name) for name in names), len(names)))
    return gains


def _all_ranked(trace: TraceView, orders: Sequence[str]) -> RankedCases:
    """Ranked cases of all shards, in order."""
    parts = list(each_shard(ranked_cases, trace, tuple(orders), what="rank"))
    ends = np.cumsum([part.n_cases for part in parts])
    rows = [part.rows + end - part.n_cases for part, end in zip(parts, ends, strict=True)]
    measures = {
        pair: np.concatenate([part.measures[pair] for part in parts], axis=1)
        for pair in parts[0].measures
    }
    is_graded, reranked = any(part.graded for part in parts), [part.reranked for part in parts]
    reranked_arms = frozenset().union(*reranked)
    return RankedCases(int(ends[-1]), np.concatenate(rows), is_graded, measures, reranked_arms)


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
    names, rows = (GRADED, BINARY) if judged.graded else (UNGRADED,), []
    for (arm, order), (first, *ndcg) in judged.measures.items():
        if order == FINAL or arm in judged.reranked:
            each = [*(first < k for k in DEPTHS_OF_LIST), *ndcg[: len(names)]]
            means = [float(of.mean()) if len(of) else np.nan for of in each]
            rows.append((arm, order, len(first), *means))
    table = pd.DataFrame(rows, columns=["arm", "order", "n", *HITS, *names])
    table.attrs["without_source"] = judged.n_cases - len(judged.rows)
    return table


def ndcg_by_case(trace: TraceView, gains: Gains = "graded") -> Array:
    """nDCG@10 of every case under every arm in its final order, [Q, A].

    NaN where a case expects no source.

    Args:
      trace: in memory, or of shards.
      gains: of a relevant hit, its grade or 1; the same where no case grades its sources.

    Raises:
      ValueError: other gains, or grades that are none.
    """
    places = {"graded": 1, "binary": 2}
    if gains not in places:
        msg = f"gains must be one of {', '.join(places)}, got {gains!r}."
        raise ValueError(msg)
    judged = _all_ranked(trace, (FINAL,))
    values = np.full((judged.n_cases, len(judged.measures)), np.nan)
    values[judged.rows] = np.transpose([of[places[gains]] for of in judged.measures.values()])
    return values


def _distinct_grades(
    grades: Mapping[str, float], meanings: Mapping[str, Meaning]
) -> dict[str, float]:
    """Grades with each place named once, by its best grade; a page and its document are two."""
    named: dict[tuple[object, str], str] = {}
    for source in sorted(grades, key=lambda name: -grades[name]):
        meaning = meanings[source]
        named.setdefault((meaning.documents or source, meaning.page), source)
    return {source: grade for source, grade in grades.items() if source in named.values()}


def _source_gains(
    grades: Mapping[str, float], meanings: Mapping[str, Meaning]
) -> list[tuple[float, float]]:
    """Gains of the best order of a case's sources, by grade and by number, in any order.

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
    return gains
