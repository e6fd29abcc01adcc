"""Measured traces (algebra): a trace and its measurements so far, held by whoever asks it often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, Self

from raglab.decision.failed_calls import answered_cases
from raglab.decision.trace_view import TracePart, TraceView
from raglab.values import Case, CaseCounts, TraceData

KEPT = 8  # measured tables that a `Measured` keeps, and as many of each other kind


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
            remedy = "load one by raglab.Trace.load(path)"
            if hasattr(trace, "parts"):
                remedy = (
                    "give it as it is: each shard is measured when replayed; or load it whole: "
                    "trace.loaded()"
                )
            msg = (
                f"Measured must have a plain trace in memory, got a {type(trace).__name__}; "
                f"{remedy}."
            )
            raise TypeError(msg)
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
            known = self._values.setdefault(kind, {})
            if key in known:
                return known[key]
        # Outside the lock: measuring takes long and asks for other kinds; two threads may measure
        # the same.
        value = make()
        with self._lock:
            while len(known) >= KEPT and key not in known:
                known.pop(next(iter(known)))
            return known.setdefault(key, value)


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
