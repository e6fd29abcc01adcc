"""Decisions on a trace of shards (algebra): a few numbers a case whole, hits by shard (S1.5).

Hits of one shard at a time are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raglab import metrics
from raglab.arguments.plain_arrays import read_only
from raglab.decision.case_verdicts import CaseColumns, CaseVerdicts
from raglab.decision.checks import Checks
from raglab.decision.decisions import Decisions, OptionShown
from raglab.decision.trace_view import TracePart, TraceView
from raglab.loops.parallel import run_each
from raglab.metrics.mixes import Mix, mix_column
from raglab.policy import PolicyData
from raglab.values import Case, PlaceArray
from raglab.words.results import Result

if TYPE_CHECKING:
    import pandas as pd


def joined_columns(shard_columns: Sequence[CaseColumns]) -> CaseColumns:
    """Columns of all shards as one."""
    return read_only(
        CaseColumns(
            *(np.concatenate(shard_fields) for shard_fields in zip(*shard_columns, strict=True))
        )
    )


def decision_columns(decisions: Decisions) -> CaseColumns:
    """Columns of the decisions on one trace in memory."""
    return CaseColumns(
        ids=np.array(decisions.ids(), dtype=object),
        status=decisions.status,
        decided_by=decisions.decided_by,
        depth=decisions.outcome.depth.astype(np.int8),
        confidence=decisions.confidence(),
        label_code=decisions.label_code,
        passes=decisions.passes,
        status_only=decisions.status_only,
        answer_checks=decisions.answer_checks,
    )


@dataclass(frozen=True, eq=False, repr=False)
class ShardedDecisions(CaseVerdicts, Result):
    """What one policy says of every case of a trace of shards.

    Whatever needs hits decides the shard that holds them.

    decided: decisions on a part of the trace. columns: of all cases. sizes: cases of each part.

    Example: `raglab.decide(raglab.Trace.open("out/shards"), policy).explain("q17")` loads one
      shard.
    """

    trace: TraceView
    policy: PolicyData
    decided: Callable[[TracePart], Decisions]
    columns: CaseColumns
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        """Count the cases."""
        return len(self.columns.status)

    @property
    def origin(self) -> list[tuple[str, str]]:
        """What was decided, as facts of a display."""
        return [
            ("trace", str(self.trace.meta.get("fingerprint", "none"))),
            ("shards", f"{len(self.sizes):,}"),
        ]

    def cases_at(self, rows: PlaceArray) -> list[Case]:
        """Cases at ascending positions.

        Of each shard that holds some the cases are read, without its hits.
        """
        return [
            part_cases[case_index]
            for part, part_rows in self._part_rows(rows)
            for part_cases in [part.cases]
            for case_index in part_rows
        ]

    def reasons(self, rows: Sequence[int]) -> dict[int, str]:
        """Why some cases came out as they did, by position, see `Decisions.reason`.

        Their shards are loaded.
        """
        case_indices = np.unique(np.asarray(rows, dtype=np.intp))
        explain_shard = partial(shard_reasons, decided=self.decided)
        shard_texts = run_each(explain_shard, list(self._part_rows(case_indices)), what="explain")
        return dict(
            zip(
                case_indices.tolist(),
                (reason for reason_texts in shard_texts for reason in reason_texts),
                strict=True,
            )
        )

    def _part_rows(self, case_indices: PlaceArray) -> Iterator[tuple[TracePart, list[int]]]:
        """Parts that hold some of ascending positions, and the positions in each."""
        shard_start = 0
        for shard_size, part in zip(self.sizes, self.trace.parts, strict=True):
            rows = (
                case_indices[
                    (case_indices >= shard_start) & (case_indices < shard_start + shard_size)
                ]
                - shard_start
            )
            if len(rows):
                yield part, rows.tolist()
            shard_start += shard_size

    def shards(self) -> Iterator[Decisions]:
        """Decisions on each shard, one at a time."""
        return map(self.decided, self.trace.parts)

    def shard_of(self, case_id: str) -> Decisions:
        """Decisions on the shard that holds a case, which alone is loaded.

        Raises:
          KeyError: the trace holds no such case.
        """
        shard_index = int(
            np.searchsorted(np.cumsum(self.sizes), self.row_of(case_id), side="right")
        )
        return self.decided(self.trace.parts[shard_index])

    def explain(self, case_id: str) -> Checks:
        """Every gate and rule of one case in the order of the chain, see `Decisions.explain`.

        One shard is loaded.
        """
        return self.shard_of(case_id).explain(case_id)

    def options(self, case_id: str) -> tuple[OptionShown, ...]:
        """Options of an ambiguous case, none for another.

        Their chunks are those of `shard_of(case_id).trace`.
        """
        return self.shard_of(case_id).options(case_id)

    def frame(self, *, reasons: bool = False, mix: Mix = metrics.SAMPLE) -> pd.DataFrame:
        """One row a case, see `Decisions.frame`.

        Every shard is decided once more, by `raglab.lab.parallel_workers`.

        Questions, answers and sources are texts, 0.5 to 1 kB a case: for millions of cases take
        `status`, `decided_by` and `confidence()`, or the frames of `shards()` one by one.
        """
        make_frame = partial(shard_frame, decided=self.decided, reasons=reasons)
        joined_table = join_frames(list(run_each(make_frame, self.trace.parts, what="frame")))
        return joined_table.assign(**mix_column(self.label_code, mix))


def shard_reasons(
    part_and_rows: tuple[TracePart, Sequence[int]], decided: Callable[[TracePart], Decisions]
) -> list[str]:
    """Why some cases of one part came out as they did; pure, so that any worker may tell."""
    part, case_indices = part_and_rows
    decisions = decided(part)
    return [decisions.reason(case_index) for case_index in case_indices]


def shard_frame(
    part: TracePart, decided: Callable[[TracePart], Decisions], *, reasons: bool
) -> pd.DataFrame:
    """Table of the decisions on one part; pure, so that any worker may make it."""
    return decided(part).frame(reasons=reasons)


def join_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of same-column tables, stacked, with the types that the rows would have in one table."""
    import pandas as pd

    joined_columns_by_name = {}
    for column_name in frames[0]:
        part_columns = [part_frame[column_name] for part_frame in frames]
        if all(part_column.dtype == part_columns[0].dtype for part_column in part_columns):
            joined_columns_by_name[column_name] = pd.concat(part_columns, ignore_index=True)
        # a part without a text, or with a contract of nobody, has another type than all together
        else:
            plain_parts = (
                part_column.astype(object).where(part_column.notna(), None)
                for part_column in part_columns
            )
            joined_columns_by_name[column_name] = pd.Series(
                [cell for part_column in plain_parts for cell in part_column.tolist()]
            )
    return pd.DataFrame(joined_columns_by_name)
