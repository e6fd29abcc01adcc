"""Trace views (algebra): what replay and study read of a trace, in memory or in disk shards.

A trace in memory is a view of one part, itself. A trace in shards (`raglab.ShardedTrace`) is a view
of as many parts, each a reference of a few bytes, whose hits are loaded for one part at a time. A
`Measured` is a trace and its measurements so far, held by whoever asks it often.

Cases whose model, judge or retriever failed are left out and counted (S0.1): an error is neither an
answer nor a refusal. For which cases a call failed stands in the meta of their trace. Whatever
reads decisions reads the trace without them, and states their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import wraps
from inspect import signature
from threading import Lock
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from raglab.policy import PolicyData
from raglab.values import Case, CaseCounts, TraceData, refuse

FAILED_CALLS = "failed_calls"  # key of the meta: rows of call, id and split of a case
RECORDED = "recorded answers"  # the call of `record_answers`


def with_failed_calls(
    meta: Mapping[str, Any], call_name: str, cases: Iterable[Case]
) -> dict[str, Any]:
    """Meta that states for which cases a call failed, in the place of those stated before.

    Args:
      meta: of a trace.
      call_name: `RECORDED`, or the name of a signal.
      cases: those it failed for.
    """
    call_rows = [call_row for call_row in meta.get(FAILED_CALLS, ()) if call_row[0] != call_name]
    call_rows += [[call_name, failed_case.id, failed_case.split] for failed_case in cases]
    return {**meta, FAILED_CALLS: call_rows} if call_rows or FAILED_CALLS in meta else dict(meta)


def with_splits(
    meta: Mapping[str, Any], cases: Sequence[Case], earlier_cases: Iterable[Case] = ()
) -> dict[str, Any]:
    """Meta whose failed calls state the splits that these cases have now.

    Args:
      meta: of a trace.
      cases: that it has now.
      earlier_cases: cases that it had; failed calls of those it has no more are left out.
    """
    if FAILED_CALLS not in meta:
        return dict(meta)
    split_by_case = {case.id: case.split for case in cases}
    removed_cases = {case.id for case in earlier_cases} - split_by_case.keys()
    rows = [
        [name, case_id, split_by_case.get(case_id, split)]
        for name, case_id, split in meta[FAILED_CALLS]
        if case_id not in removed_cases
    ]
    return {**meta, FAILED_CALLS: rows}


def joined_failed_calls(
    metas: Iterable[Mapping[str, Any]], meta_key: str = FAILED_CALLS
) -> dict[str, Any]:
    """The entry that states all failed calls of several traces; {} without any.

    Args:
      metas: of the traces.
      meta_key: of the entry.
    """
    call_rows = [call_row for trace_meta in metas for call_row in trace_meta.get(meta_key, ())]
    return {meta_key: call_rows} if call_rows else {}


def failed_splits(meta: Mapping[str, Any]) -> dict[str, str | None]:
    """Split of each case for which some call failed, by id; None where it has none."""
    return {case_id: split for _, case_id, split in meta.get(FAILED_CALLS, ())}


# a trace, in memory or of shards
def answered_cases(trace: Any) -> Any:  # noqa: ANN401
    """The trace without the cases for which a call failed; itself where none did.

    Raises:
      ValueError: a call failed for every case.

    Source: rule S0.1.
    """
    failed_cases = failed_splits(trace.meta)
    if not failed_cases:
        return trace
    rows = [
        case_index for case_index, case in enumerate(trace.cases) if case.id not in failed_cases
    ]
    if not rows:
        refuse("some case must have no failed call", f"none of {len(trace)}", "make them again")
    if len(rows) == len(trace):
        return trace
    answered_trace = trace.subset(rows)
    if not isinstance(trace, TraceData):
        return answered_trace
    return replace(
        answered_trace, meta={**answered_trace.meta, FAILED_CALLS: trace.meta[FAILED_CALLS]}
    )


# a trace, in memory or of shards
def failed_count(trace: Any) -> int:  # noqa: ANN401
    """How many cases of the splits of a trace were left out, since a call failed."""
    failed_cases = failed_splits(trace.meta)
    trace_splits = {None, *(case.split for case in trace.cases)} if failed_cases else ()
    return sum(split in trace_splits for split in failed_cases.values())


def failed_sentence(n_failed: int, n_cases: int) -> str:
    """Headline of a result that leaves out cases whose calls failed; '' where none did.

    Args:
      n_failed: cases that are left out.
      n_cases: those that the result is of.

    Example:
      >>> failed_sentence(6, 14)
      '6 of 20 cases left out: their model, judge or retriever failed'
    """
    left_out = f"{n_failed:,} of {n_cases + n_failed:,} cases left out"
    return f"{left_out}: their model, judge or retriever failed" if n_failed else ""


# a trace, in memory or of shards
def failed_note(trace: Any) -> str:  # noqa: ANN401
    """The same of a trace, as a note; '' where no call failed."""
    failure_sentence = failed_sentence(failed_count(trace), len(trace))
    return failure_sentence and f"{failure_sentence} (S0.1)."


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
        refuse(
            "trace must be in memory or of shards",
            type(trace).__name__,
            "open a folder of shards by raglab.Trace.open, load a file by raglab.Trace.load",
        )
    parts: Sequence[TracePart] = answered_cases(trace).parts
    return parts


def part_with(trace: TraceView, case_id: str) -> TracePart:
    """The part that holds a case; of those before it the cases alone are read.

    Raises:
      KeyError: none holds it.
    """
    n_cases = 0
    for trace_part in trace_parts(trace):
        part_cases = trace_part.cases
        if any(part_case.id == case_id for part_case in part_cases):
            return trace_part
        n_cases += len(part_cases)
    raise _no_case(n_cases, case_id)


def case_row(ids: Sequence[str], case_id: str) -> int:
    """Position of a case among the ids of all.

    Raises:
      KeyError: it is none of them.
    """
    for case_index, known_id in enumerate(ids):
        if known_id == case_id:
            return case_index
    raise _no_case(len(ids), case_id)


def _no_case(n_cases: int, case_id: str) -> KeyError:
    return KeyError(
        f"case must be one of the trace's {n_cases} cases, got {case_id!r}; see its ids."
    )


def check_in_memory(trace: object, caller_name: str) -> None:
    """Refuse a trace of shards where all hits are needed at once.

    Raises:
      TypeError: it is none in memory.
    """
    if not isinstance(trace, TraceData):
        type_name = f"a {type(trace).__name__}"
        remedy = (
            "load it whole (trace.loaded()), or draw some cases (raglab.lab.study_cases.draw_cases)"
        )
        message = f"{caller_name} must have a trace in memory, got {type_name}; {remedy}."
        raise TypeError(message)


KEPT_MEASUREMENTS = 8  # measured tables that a `Measured` keeps, and as many of each other kind


class Measured:
    """A trace and its measurements so far; hold one where many questions are asked of one trace.

    A replay of a plain trace measures it each time, about a second for 10,000 cases; a replay of a
    `Measured` does so once for all policies of the same structure. It is the only value of the
    algebra that grows.

    Threads may share it. A pickle or copy holds the trace alone, and measures again.

    Args:
      trace: in memory; cases for which a call failed are left out.

    Raises:
      TypeError: the trace is of shards, measured already, or none.

    Example: `held = Measured(trace)`, then `sweep(held, policies)`, `steps(held, policy)`,
      `decide(held, policy)`.
    """

    def __init__(self, trace: TraceData) -> None:
        if not isinstance(trace, TraceData):
            message = (
                f"Measured must have a plain trace in memory, got a {type(trace).__name__}; give "
                "shards as they are, or load them whole by trace.loaded()."
            )
            raise TypeError(message)
        self._trace = answered_cases(trace)
        self._values: dict[str, dict[Any, Any]] = {}
        self._lock = Lock()

    @classmethod
    def of(cls, trace: TraceData | Measured) -> Measured:
        """A measured trace as it is; a plain one as a new `Measured`.

        Args:
          trace: plain or measured.
        """
        return trace if isinstance(trace, Measured) else cls(trace)

    @property
    def trace(self) -> TraceData:
        """The trace; another one needs a `Measured` of its own."""
        return self._trace

    def __reduce__(self) -> tuple[type[Measured], tuple[TraceData]]:
        return type(self), (self._trace,)

    def __len__(self) -> int:
        """Count the cases, Q."""
        return len(self.trace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.trace!r})"

    # As a `TraceView` it is its trace: a view of one part, itself.

    @property
    def parts(self) -> tuple[Measured]:
        """The measured trace itself."""
        return (self,)

    @property
    def cases(self) -> tuple[Case, ...]:
        """Cases of the trace."""
        return self.trace.cases

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms of the trace."""
        return self.trace.arms

    @property
    def n_depths(self) -> int:
        """Depths of the trace."""
        return self.trace.n_depths

    @property
    def signals(self) -> tuple[str, ...]:
        """Signals of the trace."""
        return self.trace.signals

    @property
    def meta(self) -> Mapping[str, Any]:
        """Meta of the trace."""
        return self.trace.meta

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the trace."""
        return self.trace.fingerprint

    @property
    def has_answers(self) -> bool:
        """Whether the trace holds recorded answers."""
        return self.trace.has_answers

    def counted(self) -> CaseCounts:
        """Cases by split and label."""
        return self.trace.counted()

    def loaded(self) -> TraceData:
        """The trace."""
        return self.trace

    def evidence_for(self, policies: object, arm: str | None) -> None:
        """None: `measured_tables` knows the measurements.

        Args:
          policies: of one structure; not read.
          arm: of the trace; not read.
        """
        del policies, arm

    def measured_once(self, policy: object, arm: str | None) -> AbstractContextManager[Self]:
        """The measured trace itself.

        Args:
          policy: not read.
          arm: not read.
        """
        del policy, arm
        return nullcontext(self)

    # any measured value
    def once(self, kind: str, key: Any, make: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Measure once for a key; the oldest of its kind goes when there are too many.

        Args:
          kind: of the measurement.
          key: the key that tells measurements of one kind apart.
          make: measures it; called where the key is new.
        """
        with self._lock:
            known_values = self._values.setdefault(kind, {})
            if key in known_values:
                return known_values[key]
        # Outside the lock: measuring takes long and asks for other kinds; two threads may measure
        # the same.
        measured_value = make()
        with self._lock:
            while len(known_values) >= KEPT_MEASUREMENTS and key not in known_values:
                known_values.pop(next(iter(known_values)))
            return known_values.setdefault(key, measured_value)


# any measured value
def once(trace: TraceView | TracePart, kind: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401
    """What is made of a measured trace once; of any other view at each call."""
    return trace.once(kind, None, make) if isinstance(trace, Measured) else make()


def held_trace(trace: TraceView) -> TraceView:
    """A trace in memory as `Measured`, to be asked many questions; any other view as it is."""
    return Measured(trace) if isinstance(trace, TraceData) else trace


# a trace, measured or not, in memory or of shards
def plain_trace(trace: Any) -> Any:  # noqa: ANN401
    """The trace without what was measured of it."""
    return trace.trace if isinstance(trace, Measured) else trace


P = ParamSpec("P")
R = TypeVar("R")


def answered_traces(
    *argument_names: str, measured: bool = False, every_case: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function that gets its traces without the cases for which a call failed.

    Signature, docstring and types stay those of the function.

    Args:
      argument_names: of its parameters that are traces; a value that is no trace passes as it is.
      measured: whether a `Measured` stays one; else the function gets the plain trace.
      every_case: whether it gets the other cases too, since it calls for them again.

    Source: rule S0.1.
    """

    def answered_argument(argument: Any) -> Any:  # noqa: ANN401 - of any argument
        if not hasattr(type(argument), "measured_once"):
            return argument
        plain_value = argument if measured else plain_trace(argument)
        return plain_value if every_case else answered_cases(plain_value)

    def mark_function(function: Callable[P, R]) -> Callable[P, R]:
        call_signature = signature(function)

        @wraps(function)
        def filtered_call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound_arguments = call_signature.bind(*args, **kwargs)
            for argument_name in bound_arguments.arguments.keys() & argument_names:
                bound_arguments.arguments[argument_name] = answered_argument(
                    bound_arguments.arguments[argument_name]
                )
            return function(*bound_arguments.args, **bound_arguments.kwargs)

        return filtered_call

    return mark_function
