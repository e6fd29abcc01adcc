"""Decisions on a trace of shards (algebra): a few numbers a case are held whole, hits of one shard at a time (S1.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.answer_text import Basis, has_gold_answer, text_cases
from raglab.decision.case_verdicts import CaseVerdicts
from raglab.decision.checks import Checks
from raglab.decision.decisions import Decisions, OptionShown
from raglab.parallel import run_each
from raglab.policy import PolicyData
from raglab.values import Case, Status, TraceData, label_codes, read_only

if TYPE_CHECKING:
    import pandas as pd


class CaseColumns(NamedTuple):
    """What is held of every case, [Q] each: its id and some thirty bytes, whatever its hits.

    ids: of the cases. status, decided_by, depth, confidence: as `Decisions` has them.
    label_code: expected status. passes: whether it passes its contract, false without a label. status_only: whether it
    is scored by status alone. answer_checks: codes of `AnswerCheck`.
    """

    ids: NDArray[np.object_]
    status: NDArray[np.int8]
    decided_by: NDArray[np.object_]
    depth: NDArray[np.int8]
    confidence: NDArray[np.float64]
    label_code: NDArray[np.int8]
    passes: NDArray[np.bool_]
    status_only: NDArray[np.bool_]
    answer_checks: NDArray[np.int8]


def joined_columns(parts: Sequence[CaseColumns]) -> CaseColumns:
    """Columns of all shards as one."""
    return read_only(CaseColumns(*(np.concatenate(fields) for fields in zip(*parts, strict=True))))


def decision_columns(said: Decisions) -> CaseColumns:
    """Columns of the decisions on one trace in memory."""
    depth = said.outcome.depth.astype(np.int8)
    ids = np.array(said.ids(), dtype=object)
    verdicts = (said.label_code, said.passes, said.status_only, said.answer_checks)
    return CaseColumns(ids, said.status, said.decided_by, depth, said.confidence(), *verdicts)


def reference_trace(reference: Any) -> TraceData:  # noqa: ANN401 - a trace or a reference to one
    """Trace of a shard, loaded where it is not in memory."""
    trace: TraceData = reference if isinstance(reference, TraceData) else reference.load()
    return trace


def reference_cases(reference: Any) -> Sequence[Case]:  # noqa: ANN401 - a trace or a reference to one
    """Cases of a shard, read without its hits where that can be."""
    if not isinstance(reference, TraceData) and hasattr(reference, "cases"):
        read: Sequence[Case] = reference.cases()
        return read
    return reference_trace(reference).cases


def trace_basis(trace: Any) -> Basis:  # noqa: ANN401 - a trace in memory or of shards
    """Basis on which the cases of a trace are judged; of shards the hits are loaded only where some gold answer is."""
    if isinstance(trace, TraceData):
        return Basis.of(text_cases(trace), label_codes(trace.cases))
    parts = getattr(trace, "parts", None)
    return Basis.joined(_part_basis(part) for part in (trace.shards() if parts is None else parts))


def _part_basis(part: Any) -> Basis:  # noqa: ANN401 - a trace or a reference to one
    cases = reference_cases(part)
    if not has_gold_answer(cases).any():
        return Basis(0, int((label_codes(cases) == Status.ok).sum()))
    return trace_basis(reference_trace(part))


def check_in_memory(trace: object, what: str) -> None:
    """Refuse a trace of shards where all hits are needed at once.

    Raises:
      TypeError: it is none in memory.
    """
    if not isinstance(trace, TraceData):
        came = f"a {type(trace).__name__}"
        remedy = "draw some cases (raglab.lab.study_cases.draw_cases), or merge shards (first, *rest = trace.shards(); "
        msg = f"{what} must have a trace in memory, got {came}; {remedy}first.merge(*rest))."
        raise TypeError(msg)


def shard_with(references: Iterable[Any], case_id: str) -> Any:  # noqa: ANN401 - a trace or a reference to one
    """The shard that holds a case; of those before it the cases alone are read, where they can be.

    Raises:
      KeyError: none holds it.
    """
    n_cases = 0
    for reference in references:
        cases = reference_cases(reference)
        if any(case.id == case_id for case in cases):
            return reference
        n_cases += len(cases)
    msg = f"case must be one of the trace's {n_cases} cases, got {case_id!r}; see its ids."
    raise KeyError(msg)


@dataclass(frozen=True, eq=False, repr=False)
class ShardedDecisions(CaseVerdicts):
    """What one policy says of every case of a trace of shards; whatever needs hits decides the shard that holds them.

    columns: of all cases. sizes: cases of each shard. references: gives what stands for the shards. decided: decisions
    on a shard, by its reference.

    Example: `raglab.decide(raglab.Trace.open("out/shards"), policy).explain("q17")` loads one shard.
    """

    trace: Any
    policy: PolicyData
    columns: CaseColumns
    sizes: tuple[int, ...]
    references: Callable[[], Iterable[Any]]
    decided: Callable[[Any], Decisions]

    def __len__(self) -> int:
        """Count the cases."""
        return len(self.columns.status)

    def __repr__(self) -> str:
        sizes = f"{len(self):,} cases in {len(self.sizes):,} shard{'' if len(self.sizes) == 1 else 's'}"
        return f"{type(self).__name__}({sizes}: {self._told()})"

    @property
    def origin(self) -> list[tuple[str, str]]:
        """What was decided, as facts of a display."""
        meta = getattr(self.trace, "meta", {})
        return [("trace", str(meta.get("fingerprint", "none"))), ("shards", f"{len(self.sizes):,}")]

    @property
    def status(self) -> NDArray[np.int8]:
        """Status codes, [Q]."""
        return self.columns.status

    @property
    def decided_by(self) -> NDArray[np.object_]:
        """Name of what decided each case, [Q], see `Decisions.decided_by`."""
        return self.columns.decided_by

    @property
    def label_code(self) -> NDArray[np.int8]:
        """The expected `Status` of every case, [Q]; `UNLABELLED` where it has none."""
        return self.columns.label_code

    @property
    def passes(self) -> NDArray[np.bool_]:
        """Whether each case passes its contract, [Q]; false where it has no label."""
        return self.columns.passes

    @property
    def status_only(self) -> NDArray[np.bool_]:
        """Whether each case is scored by status alone, [Q]."""
        return self.columns.status_only

    @property
    def answer_checks(self) -> NDArray[np.int8]:
        """`AnswerCheck` of every case, [Q]: what its recorded answer says, where it is judged by text."""
        return self.columns.answer_checks

    def confidence(self) -> NDArray[np.float64]:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100; NaN where no score was measured."""
        return self.columns.confidence

    def ids(self) -> Sequence[str]:
        """Ids of the cases, [Q]."""
        found: list[str] = self.columns.ids.tolist()
        return found

    def cases_at(self, rows: NDArray[np.intp]) -> list[Case]:
        """Cases at ascending positions; of each shard that holds some the cases are read, without its hits."""
        return [case for reference, here in self._shard_rows(rows) for case in _cases_of(reference, here)]

    def reasons(self, rows: Sequence[int]) -> dict[int, str]:
        """Why some cases came out as they did, by position, see `Decisions.reason`; their shards are loaded."""
        at = np.unique(np.asarray(rows, dtype=np.intp))
        function = partial(shard_reasons, decided=self.decided)
        told = run_each(function, list(self._shard_rows(at)), what="explain")
        return dict(zip(at.tolist(), (text for texts in told for text in texts), strict=True))

    def _shard_rows(self, rows: NDArray[np.intp]) -> Iterator[tuple[Any, list[int]]]:
        """Shards that hold some of ascending positions, and the positions in each."""
        start = 0
        for size, reference in zip(self.sizes, self.references(), strict=True):
            here = rows[(rows >= start) & (rows < start + size)] - start
            if len(here):
                yield reference, here.tolist()
            start += size

    def shards(self) -> Iterator[Decisions]:
        """Decisions on each shard, one at a time."""
        return map(self.decided, self.references())

    def shard_of(self, case_id: str) -> Decisions:
        """Decisions on the shard that holds a case, which alone is loaded.

        Raises:
          KeyError: the trace holds no such case.
        """
        number = int(np.searchsorted(np.cumsum(self.sizes), self.row_of(case_id), side="right"))
        return next(self.decided(one) for place, one in enumerate(self.references()) if place == number)

    def explain(self, case_id: str) -> Checks:
        """Every gate and rule of one case in the order of the chain, see `Decisions.explain`; one shard is loaded."""
        return self.shard_of(case_id).explain(case_id)

    def options(self, case_id: str) -> tuple[OptionShown, ...]:
        """Options of an ambiguous case, none for another; their chunks are those of `shard_of(case_id).trace`."""
        return self.shard_of(case_id).options(case_id)

    def frame(self, *, reasons: bool = False) -> pd.DataFrame:
        """One row a case, see `Decisions.frame`; every shard is decided once more, by the workers of `raglab.workers`.

        Questions, answers and sources are texts, 0.5 to 1 kB a case: for millions of cases take `status`, `decided_by`
        and `confidence()`, or the frames of `shards()` one by one.
        """
        function = partial(shard_frame, decided=self.decided, reasons=reasons)
        return join_frames(list(run_each(function, self.references(), what="frame")))


def _cases_of(reference: Any, rows: Sequence[int]) -> list[Case]:  # noqa: ANN401 - a trace or a reference to one
    cases = reference_cases(reference)
    return [cases[row] for row in rows]


def shard_reasons(held: tuple[Any, Sequence[int]], decided: Callable[[Any], Decisions]) -> list[str]:
    """Why some cases of one shard came out as they did; pure, so that any worker may tell."""
    reference, rows = held
    said = decided(reference)
    return [said.reason(row) for row in rows]


def shard_frame(reference: Any, decided: Callable[[Any], Decisions], *, reasons: bool) -> pd.DataFrame:  # noqa: ANN401 - a trace or a reference to one
    """Table of the decisions on one shard; pure, so that any worker may make it."""
    return decided(reference).frame(reasons=reasons)


def join_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of tables of the same columns one below the other, of the types that the rows in one table would have."""
    import pandas as pd

    columns = {}
    for name in frames[0]:
        parts = [frame[name] for frame in frames]
        if all(part.dtype == parts[0].dtype for part in parts):
            columns[name] = pd.concat(parts, ignore_index=True)
        else:  # a part without a text, or with a contract of nobody, has another type than all together
            told = (part.astype(object).where(part.notna(), None) for part in parts)
            columns[name] = pd.Series([value for part in told for value in part.tolist()])
    return pd.DataFrame(columns)
