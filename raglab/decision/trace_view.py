"""Trace views (algebra): what replay and study read of a trace, in memory or in disk shards.

A trace in memory is a view of one part, itself. A trace in shards (`raglab.ShardedTrace`) is a view
of as many parts, each a reference of a few bytes, whose hits are loaded for one part at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from raglab.decision.failed_calls import answered_cases
from raglab.policy import PolicyData
from raglab.values import Case, CaseCounts, TraceData


class TracePart(Protocol):
    """Some cases of a trace, in memory or as a reference that can be sent to another process."""

    @property
    def cases(self) -> Sequence[Case]:
        """Cases of the part; of a reference they are read each time, without the hits."""

    def loaded(self) -> TraceData:
        """Trace of the part in memory."""

    # `Evidence`
    def evidence_for(
        self,
        policies: Sequence[PolicyData],
        arm: str | None,
    ) -> Any | None:  # noqa: ANN401
        """Evidence under policies of one structure, where it was measured before.

        None where it has to be measured.
        """


class TraceView(Protocol):
    """A trace of one part or of several."""

    @property
    def parts(self) -> Sequence[TracePart]:
        """Parts in the order of the cases; at least one."""

    @property
    def cases(self) -> Sequence[Case]:
        """All cases, Q of them."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the retrieval strategies, [A]."""

    @property
    def n_depths(self) -> int:
        """Depths that were measured, D."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it holds as columns."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Corpus, models, parameters and the fingerprint."""

    @property
    def fingerprint(self) -> str:
        """Hash over all that the trace was made of."""

    @property
    def has_answers(self) -> bool:
        """Whether answers are recorded."""

    def __len__(self) -> int:
        """Count the cases, Q."""

    def counted(self) -> CaseCounts:
        """Cases by split and label."""

    def loaded(self) -> TraceData:
        """The whole trace in memory."""

    def measured_once(self, policy: PolicyData, arm: str | None) -> AbstractContextManager[Self]:
        """The trace for many replays under the structure of one policy.

        Parts on disk are measured once for all.
        """


def trace_parts(trace: TraceView) -> Sequence[TracePart]:
    """Parts of a trace, without cases for which a call failed.

    Raises:
      ValueError: it is no trace.
    """
    if not hasattr(trace, "parts"):
        remedy = "open a folder of shards by raglab.Trace.open, load a file by raglab.Trace.load"
        msg = f"trace must be in memory or of shards, got {type(trace).__name__}; {remedy}."
        raise ValueError(msg)
    parts: Sequence[TracePart] = answered_cases(trace).parts
    return parts


def part_with(trace: TraceView, case_id: str) -> TracePart:
    """The part that holds a case; of those before it the cases alone are read.

    Raises:
      KeyError: none holds it.
    """
    n_cases = 0
    for part in trace_parts(trace):
        cases = part.cases
        if any(case.id == case_id for case in cases):
            return part
        n_cases += len(cases)
    raise _no_case(n_cases, case_id)


def case_row(ids: Sequence[str], case_id: str) -> int:
    """Position of a case among the ids of all.

    Raises:
      KeyError: it is none of them.
    """
    for row, known in enumerate(ids):
        if known == case_id:
            return row
    raise _no_case(len(ids), case_id)


def _no_case(n_cases: int, case_id: str) -> KeyError:
    return KeyError(
        f"case must be one of the trace's {n_cases} cases, got {case_id!r}; see its ids."
    )


def check_in_memory(trace: object, what: str) -> None:
    """Refuse a trace of shards where all hits are needed at once.

    Raises:
      TypeError: it is none in memory.
    """
    if not isinstance(trace, TraceData):
        kind = f"a {type(trace).__name__}"
        remedy = (
            "load it whole (trace.loaded()), or draw some cases (raglab.lab.study_cases.draw_cases)"
        )
        msg = f"{what} must have a trace in memory, got {kind}; {remedy}."
        raise TypeError(msg)
