"""Failed calls (algebra): cases whose model, judge or retriever failed, left out, counted (S0.1).

An error is neither an answer nor a refusal. Which cases a call failed for stands in the meta of
their trace. Whatever reads decisions reads the trace without them, and states their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raglab.values import Case

FAILED_CALLS = "failed_calls"  # key of the meta: by what was called, id and split of each case
RECORDED = "recorded answers"  # the call of `record_answers`


def with_failed_calls(meta: Mapping[str, Any], call: str, cases: Iterable[Case]) -> dict[str, Any]:
    """Meta that states for which cases a call failed, in the place of those stated before.

    Args:
      meta: of a trace.
      call: `RECORDED`, or the name of a signal.
      cases: those it failed for.
    """
    calls = {**meta.get(FAILED_CALLS, {}), call: {case.id: case.split for case in cases}}
    stated = {name: splits for name, splits in calls.items() if splits}
    rest = {name: value for name, value in meta.items() if name != FAILED_CALLS}
    return rest | ({FAILED_CALLS: stated} if stated else {})


def with_splits(meta: Mapping[str, Any], cases: Iterable[Case]) -> dict[str, Any]:
    """Meta whose failed calls state the splits that these cases have now."""
    calls = meta.get(FAILED_CALLS, {})
    now = {case.id: case.split for case in cases} if calls else {}
    return dict(meta) | (
        {
            FAILED_CALLS: {
                call: {name: now.get(name, split) for name, split in splits.items()}
                for call, splits in calls.items()
            }
        }
        if calls
        else {}
    )


def joined_failed_calls(
    metas: Iterable[Mapping[str, Any]], key: str = FAILED_CALLS
) -> dict[str, Any]:
    """The entry that states all failed calls of several traces; {} without any.

    Args:
      metas: of the traces.
      key: of the entry.
    """
    calls: dict[str, dict[str, Any]] = {}
    for meta in metas:
        for call, splits in meta.get(key, {}).items():
            calls[call] = calls.get(call, {}) | splits
    return {key: calls} if calls else {}


def failed_splits(meta: Mapping[str, Any]) -> dict[str, str | None]:
    """Split of each case for which some call failed, by id; None where it has none."""
    calls = meta.get(FAILED_CALLS, {})
    return {name: split for splits in calls.values() for name, split in splits.items()}


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
    cases = trace.cases
    rows = [row for row, case in enumerate(cases) if case.id not in failed]
    if not rows:
        msg = (
            f"some case must have no failed call, got one for each of {len(cases)} cases; make the "
            "calls again."
        )
        raise ValueError(msg)
    return trace if len(rows) == len(cases) else trace.subset(rows)


# a trace, in memory or of shards
def failed_count(trace: Any) -> int:  # noqa: ANN401
    """How many cases of the splits of a trace were left out, since a call failed."""
    failed = failed_splits(trace.meta)
    splits = {None, *(case.split for case in trace.cases)} if failed else set()
    return sum(split in splits for split in failed.values())


def failed_sentence(count: int, cases: int) -> str:
    """Headline of a result that leaves out cases whose calls failed; '' where none did.

    Args:
      count: cases that are left out.
      cases: those that the result is of.

    Example:
      >>> failed_sentence(6, 14)
      '6 of 20 cases are left out, since their model, judge or retriever failed'
    """
    return (
        f"{count:,} of {cases + count:,} cases {'is' if count == 1 else 'are'} left out, since "
        "their model, judge or retriever failed"
        if count
        else ""
    )


# a trace, in memory or of shards
def failed_note(trace: Any) -> str:  # noqa: ANN401
    """The same of a trace, as a note; '' where no call failed."""
    sentence = failed_sentence(failed_count(trace), len(trace))
    return f"{sentence} (S0.1)." if sentence else ""
