"""Checks of what users bring (shore): whether a signal function measures the same.

It is tried alone, among others and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.measurement import measured_tables
from raglab.decision.score_directions import ScoreRanking
from raglab.lab.decision_fitting import decision_cases, scored_cases
from raglab.live.measured_signals import measure, signal_rows
from raglab.live.signal_functions import SignalFunction, signal_function
from raglab.policy import PolicyData
from raglab.store.traces import Trace
from raglab.values import Answers, Case, Chunk, Hits, TraceData

CONTRADICTED = 0.99  # level of the interval that must lie below one half
PASSAGES = (
    "The library opens at 9:30 on weekdays.",
    "Books are lent for 28 days; each day more costs 20 cents.",
    "La bibliothèque ferme à 18 h 30 le samedi.",
    "Lost cards are replaced at desk 3 within 30 minutes. " * 40,
    "",
)
QUESTIONS = (
    "When does the library open?",
    "Quand ferme la bibliothèque ?",
    "books",
    "Who won the cup in 1966?",
    "",
    "? " * 400,
)


class SignalCheck(NamedTuple):
    """Measurements of a signal function on some rows.

    Attributes:
      rows: different ones that it was called for.
      missing: share of NaN.
      ms: milliseconds a row in batches.
      auroc: chance that it ranks a case that is right if answered above one that is wrong, in its
        declared direction, ambiguous ones left out; NaN without a labelled trace, or where all
        cases are of one kind.
      auroc_low: lower end of its 99 % interval.
      auroc_high: upper end of its 99 % interval.
    """

    rows: int
    missing: float
    ms: float
    auroc: float
    auroc_low: float
    auroc_high: float


def check_signal(
    signal: str | SignalFunction,
    trace: TraceData | None = None,
    *,
    policy: PolicyData | None = None,
    most_cases: int = 64,
) -> SignalCheck:
    """Check a signal function in a test: stop at the first rule that it breaks.

    A row has the same value alone, among others, in another order and measured again, to the last
    bit; it is finite or NaN, and within the unit. On a labelled trace its direction must not be
    contradicted: an interval of 99 % that lies below one half. The function is called for every row
    four times.

    Args:
      signal: its name or function.
      trace: with rows as they will occur; a small sample where not given, of six questions over
        five passages and without hits, with and without an answer.
      policy: the policy whose hits are judged and whose answers are read; the published defaults.
      most_cases: most cases that are read, spread over the trace.

    Raises:
      AssertionError: a rule is broken; the message names rule, case and remedy.
      ValueError: the function raised, or returned what is no value; see `raglab.add_signals`.

    Example:
      >>> from raglab.live.signal_functions import SignalFunction
      >>> words = SignalFunction(
      ...     "n_words", lambda rows: rows["query"].str.split().str.len(), ("query",), unit="count"
      ... )
      >>> check_signal(words).rows
      6
    """
    function, start = signal_function(signal), policy or PolicyData.from_mapping()
    whole = sample_trace() if trace is None else trace
    step = max(1, -(-len(whole) // most_cases))
    sample = whole.subset(range(0, len(whole), step)) if isinstance(whole, Trace) else whole
    rows = signal_rows(sample, function, [0], start.structure, sample.answers)
    cells = [*rows.cells.values()]
    whose = [f"case {sample.cases[places[0][0]].id!r}" for places in rows.places.values()]
    if not cells:
        msg = (
            f"check_signal needs rows of the signal {function.name}, got none; give a trace with "
            "hits and answers."
        )
        raise ValueError(msg)
    begin = perf_counter()
    values = _in_batches(function, cells, whose)
    ms = 1e3 * (perf_counter() - begin) / len(cells)
    alone = np.concatenate(
        [measure(function, [row], [name]) for row, name in zip(cells, whose, strict=True)]
    )
    backwards = _in_batches(function, cells[::-1], whose[::-1])[::-1]
    again = _in_batches(function, cells, whose)
    for repeat, rule in (
        (again, "return the same for the same rows again; fix its seed, or its temperature"),
        (backwards, "not hang on the order of the rows; score each row by itself"),
        (
            alone,
            (
                "return the same for a row alone and among others; score each row by itself, or "
                "round "
                "the values"
            ),
        ),
    ):
        _same(function, values, repeat, whose, rule)
    area = (
        ScoreRanking(0)
        if trace is None
        else _direction(function, sample, rows.places, values, start)
    )
    return SignalCheck(len(cells), float(np.isnan(values).mean()), ms, *area[2:])


def _in_batches(
    function: SignalFunction, cells: Sequence[tuple[Any, ...]], whose: Sequence[str]
) -> NDArray[np.float64]:
    """Values of rows, as many at once as the function takes."""
    starts = range(0, len(cells), function.batch)
    parts = [slice(start, start + function.batch) for start in starts]
    return np.concatenate([measure(function, cells[part], whose[part]) for part in parts])


def _same(
    function: SignalFunction,
    values: NDArray[np.float64],
    repeat: NDArray[np.float64],
    whose: Sequence[str],
    rule: str,
) -> None:
    """Stop at the first row whose values differ."""
    differs = np.flatnonzero(~((values == repeat) | (np.isnan(values) & np.isnan(repeat))))
    if len(differs):
        row = int(differs[0])
        msg = (
            f"the signal {function.name} must {rule}: got {values[row]} and {repeat[row]} for "
            f"{whose[row]}."
        )
        raise AssertionError(msg)


def _direction(
    function: SignalFunction,
    trace: TraceData,
    places: dict[str, list[tuple[int, int, int]]],
    values: NDArray[np.float64],
    policy: PolicyData,
) -> ScoreRanking:
    """AUROC in the declared direction with its interval, over cases at depth 0 with the signal.

    Raises:
      AssertionError: the labels say the opposite.
    """
    by_case = np.full(len(trace), np.nan)
    for value, of_row in zip(values, places.values(), strict=True):
        by_case[[case for case, _, depth in of_row if not depth]] = value
    cases = scored_cases(decision_cases(measured_tables(trace, policy).evidence), by_case)
    if text := cases.contradiction(f"the signal {function.name}", function.higher, CONTRADICTED):
        raise AssertionError(text)
    return cases.ranking(function.higher, CONTRADICTED)


def sample_trace() -> Trace:
    """Six questions, each over up to five passages, with an answer to those that have hits.

    The made one of a check.
    """
    chunks = tuple(
        Chunk(f"p{n}", text, "hours.md" if n < 2 else "other.md", n + 1)
        for n, text in enumerate(PASSAGES)
    )
    named = [("hours.md",) if text == "books" else () for text in QUESTIONS]
    pairs = enumerate(zip(QUESTIONS, named, strict=True))
    cases = tuple(
        Case(f"sample-{n}", text, "ok", selected_sources=sources) for n, (text, sources) in pairs
    )
    # Many hits, few, one and none: a policy must bear each.
    n_hits = np.array([5, 3, 2, 1, 0, 4])
    shape = (len(cases), 1, 1, len(chunks))
    place = np.broadcast_to(np.arange(len(chunks)), shape)
    there = place < n_hits[:, None, None, None]
    # Each question begins at another passage, so that cases differ by their hits.
    number = (place + np.arange(len(cases))[:, None, None, None]) % len(chunks)
    cosine = np.where(there, 0.9 - 0.125 * place, np.nan)
    # Two hits are reranked: below the depth of a reranker there is no score.
    score = np.where(there & (place < 2), 0.75 - 0.25 * place, np.nan)
    hits = Hits(
        chunk=np.where(there, number, -1).astype(np.int32),
        rank=np.where(there, place, -1).astype(np.int32),
        l2=2.0 - 2.0 * cosine,
        cosine=cosine,
        s_hybrid=cosine,
        s_rerank=score,
        s_raw=score,
        anchor_sim=cosine,
        sig_sim=cosine,
        sig_sim_strict=cosine,
        n_reranked=np.minimum(n_hits, 2).astype(np.int32)[:, None, None],
    )
    return Trace(
        cases,
        chunks,
        ("hybrid",),
        hits,
        meta={"fingerprint": "sample"},
        answers=_sample_answers(hits, n_hits),
    )


def _sample_answers(hits: Hits, n_hits: NDArray[np.int64]) -> Answers:
    """One answer to all hits of each question that has any; the third has no confidence."""
    rows = np.flatnonzero(n_hits)
    width = PolicyData.from_mapping().structure.final_k
    chunks = np.full((len(rows), max(width, hits.chunk.shape[3])), -1, dtype=np.int32)
    for place, row in enumerate(rows):
        chunks[place, : min(width, n_hits[row])] = hits.chunk[row, 0, 0][: min(width, n_hits[row])]
    none, size = np.zeros(len(rows), dtype=np.int32), len(rows)
    confidence = np.where(np.arange(size) == 2, np.nan, 0.25 + 0.125 * np.arange(size))
    texts = tuple(f"It is {250 + row}." for row in rows.tolist())
    return Answers(
        generator="sample",
        scorer="sample",
        row=rows.astype(np.int32),
        arm=none,
        depth=none,
        chunks=chunks,
        text=texts,
        confidence=confidence,
        support=np.full(size, 0.5),
        claim=texts,
        cited=((),) * size,
        refused=("",) * size,
    )
