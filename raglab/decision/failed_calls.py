"""Failed calls (algebra): cases whose model, judge or retriever failed, left out, counted (S0.1).

An error is neither an answer nor a refusal. For which cases a call failed stands in the meta of
their trace. Whatever reads decisions reads the trace without them, and states their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raglab.values import Case, TraceData

FAILED_CALLS = "failed_calls"  # key of the meta: rows of call, id and split of a case
RECORDED = "recorded answers"  # the call of `record_answers`


def with_failed_calls(meta: Mapping[str, Any], call: str, cases: Iterable[Case]) -> dict[str, Any]:
    """Meta that states for which cases a call failed, in the place of those stated before.

    Args:
      meta: of a trace.
      call: `RECORDED`, or the name of a signal.
      cases: those it failed for.
    """
    rows = [row for row in meta.get(FAILED_CALLS, ()) if row[0] != call]
    rows += [[call, case.id, case.split] for case in cases]
    return {**meta, FAILED_CALLS: rows} if rows or FAILED_CALLS in meta else dict(meta)


def with_splits(
    meta: Mapping[str, Any], cases: Sequence[Case], before: Iterable[Case] = ()
) -> dict[str, Any]:
    """Meta whose failed calls state the splits that these cases have now.

    Args:
      meta: of a trace.
      cases: that it has now.
      before: cases that it had; failed calls of those it has no more are left out.
    """
    if FAILED_CALLS not in meta:
        return dict(meta)
    now = {case.id: case.split for case in cases}
    gone = {case.id for case in before} - now.keys()
    rows = [
        [call, name, now.get(name, split)]
        for call, name, split in meta[FAILED_CALLS]
        if name not in gone
    ]
    return {**meta, FAILED_CALLS: rows}


def joined_failed_calls(
    metas: Iterable[Mapping[str, Any]], key: str = FAILED_CALLS
) -> dict[str, Any]:
    """The entry that states all failed calls of several traces; {} without any.

    Args:
      metas: of the traces.
      key: of the entry.
    """
    rows = [row for meta in metas for row in meta.get(key, ())]
    return {key: rows} if rows else {}


def failed_splits(meta: Mapping[str, Any]) -> dict[str, str | None]:
    """Split of each case for which some call failed, by id; None where it has none."""
    return {name: split for _, name, split in meta.get(FAILED_CALLS, ())}


# a trace, in memory or of shards
def answered_cases(trace: Any) -> Any:  # noqa: ANN401
    """The trace without the cases for which a call failed; itself where none did.

    Raises:
      ValueError: a call failed for every case.

    Source: rule S0.1.
    """
    failed = failed_splits(trace.meta)
    if not failed:
        return trace
    rows = [row for row, case in enumerate(trace.cases) if case.id not in failed]
    if not rows:
        msg = f"some case must have no failed call, got none of {len(trace)}; make them again."
        raise ValueError(msg)
    if len(rows) == len(trace):
        return trace
    answered = trace.subset(rows)
    if not isinstance(trace, TraceData):
        return answered
    return replace(answered, meta={**answered.meta, FAILED_CALLS: trace.meta[FAILED_CALLS]})


# a trace, in memory or of shards
def failed_count(trace: Any) -> int:  # noqa: ANN401
    """How many cases of the splits of a trace were left out, since a call failed."""
    failed = failed_splits(trace.meta)
    splits = {None, *(case.split for case in trace.cases)} if failed else ()
    return sum(split in splits for split in failed.values())


def failed_sentence(count: int, cases: int) -> str:
    """Headline of a result that leaves out cases whose calls failed; '' where none did.

    Args:
      count: cases that are left out.
      cases: those that the result is of.

    Example:
      >>> failed_sentence(6, 14)
      '6 of 20 cases left out: their model, judge or retriever failed'
    """
    which = f"{count:,} of {cases + count:,} cases left out"
    return f"{which}: their model, judge or retriever failed" if count else ""


# a trace, in memory or of shards
def failed_note(trace: Any) -> str:  # noqa: ANN401
    """The same of a trace, as a note; '' where no call failed."""
    sentence = failed_sentence(failed_count(trace), len(trace))
    return sentence and f"{sentence} (S0.1)."
