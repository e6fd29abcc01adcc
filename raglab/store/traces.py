"""Traces (shore): a trace with its door to the disk and its parts.

See `raglab.store.trace_files`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from raglab import values
from raglab.decision.recorded_answers import select_answers
from raglab.decision.score_directions import warn_of_directions
from raglab.decision.trace_view import TraceView, with_splits
from raglab.extension_points import extension
from raglab.signals import Signal, declaration, own_signal
from raglab.store.csv_tables import csv_frame
from raglab.store.files import input_error, shown_value
from raglab.store.records import hash_cases
from raglab.store.signal_columns import array_hash, signal_column
from raglab.store.trace_files import load, parquet_frame, read_cases, save, trace_error
from raglab.store.trace_merging import Kind, TraceError, merge_traces
from raglab.values import NO_LABEL, Case, case_positions, map_fields
from raglab.words.canonical import canonical_json, digest

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"  # in a folder of shards


class Trace(values.TraceData):
    """A trace with the methods `save` and `load`, and its parts, `subset` and `split`.

    Everything else is `raglab.values.TraceData`.
    """

    __slots__ = ()

    def save(self, path: str | Path) -> None:
        """Write the trace as one Parquet file, whole or not at all.

        The same trace gives the same bytes.

        Args:
          path: of the Parquet file.

        Raises:
          InputError: no case, a case or a measurement that would not load again, text that is not
            Unicode, or a folder that is closed.
        """
        save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, *, corpus_hash: str | None = None, cases_hash: str | None = None
    ) -> Self:
        """Read a trace.

        Args:
          path: of the file.
          corpus_hash: of the corpus it must have been made of; of any where None.
          cases_hash: of the cases it must have been made of; of any where None.

        Raises:
          TraceError: truncated, altered, of another schema, or made of something else; the message
            names the way to build it.
        """
        trace = load(Path(path), cls)
        for what, wanted, there in (
            ("corpus", corpus_hash, trace.meta.get("corpus_hash")),
            # what a file says of its cases may be another's
            ("cases", cases_hash, cases_hash and hash_cases(trace.cases)),
        ):
            if wanted is not None and there != wanted:
                raise trace_error(
                    Path(path),
                    f"a trace must be made of the {what} it is replayed for",
                    f"other {what} ({str(there)[:12]}, not {wanted[:12]})",
                    trace.meta,
                )
        return trace

    @classmethod
    def open(cls, path: str | Path) -> Any:  # noqa: ANN401 - a `raglab.ShardedTrace` of this class
        """Trace of a folder of shards, or of one file, loaded a shard at a time.

        See `raglab.io.save_shards`.

        Args:
          path: of the folder or file.

        Raises:
          MissingExtensionError: the room `scale` is not installed.
        """
        return extension("open_shards", "scale", "a trace of shards (Trace.open)")(Path(path), cls)

    @staticmethod
    def cases_of(path: str | Path) -> tuple[Case, ...]:
        """Cases of a file, without its hits.

        Args:
          path: of the file.

        Raises:
          TraceError: no whole file of a trace.
        """
        return read_cases(Path(path))

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Trace of some cases only, in the order given; chunks and measurements stay as they are.

        Its fingerprint and `cases_hash` are its own, so that it is never taken for the whole.

        Args:
          rows: positions of the cases, from 0.

        Raises:
          ValueError: rows must be positions of cases.
        """
        keep: list[int] = case_positions(rows, len(self)).tolist()
        pattern_hits = self.pattern_hits
        if pattern_hits is not None:
            pattern_hits = pattern_hits._replace(
                counts=pattern_hits.counts[keep],
                query_entities=tuple(pattern_hits.query_entities[row] for row in keep),
            )
        cases, latency = tuple(self.cases[row] for row in keep), self.latency
        return dataclasses.replace(
            self,
            cases=cases,
            hits=map_fields(self.hits, lambda field: field[keep]),
            pattern_hits=pattern_hits,
            meta=_partial_meta(self.meta, cases, self.cases),
            queries=None if self.queries is None else tuple(self.queries[row] for row in keep),
            answers=select_answers(self.answers, keep),
            latency=None if latency is None else latency._replace(ms=latency.ms[keep]),
            columns={name: column[keep] for name, column in self.columns.items()},
        )

    def with_signal(
        self,
        name: str,
        values: Any,  # noqa: ANN401 - array, Series or path
        *,
        higher: str,
        unit: str,
        stage: str = "hits",
        missing: str = "fires",
        source: str = "",
        version: str = "",
    ) -> Self:
        """Trace with a signal of the user.

        A number a case that gates, studies and certificates read as any other.

        It is stored with the trace and hashed into its fingerprint; it replaces one of the same
        name.

        Args:
          name: a small letter, then small letters, digits and underscores; a policy gates it as
            `signals.<name>`.
          values: [Q], [Q, A] or [Q, A, D]; a Series indexed by case id, where a case that it lacks
            has none; or the path of a Parquet or CSV file with columns `case_id` and the name, or
            `value`. NaN where there is none.
          higher: `surer` where more of it speaks for an answer, `ask` where it speaks for asking
            back.
          unit: one of `raglab.signals.UNITS`, such as `probability`, or any words.
          stage: the stage after which it is measured, `query`, `hits` or `answer`; a case without
            hits has only signals of the stage `query`.
          missing: whether a case without it `fires` its gate or `passes`.
          source: its origin, in words.
          version: of its origin.

        Raises:
          ValueError: a name or declaration that is none.
          InputError: values that are not one finite number or NaN a case, or outside the unit's
            range.

        Warns:
          UserWarning: labels contradict the direction, see `raglab.decision.score_directions`.

        Source: rule S2.15.

        Example: `trace.with_signal("judge", frame["score"], higher="surer", unit="probability")`
        """
        signal = own_signal(
            name,
            higher=higher,
            unit=unit,
            stage=stage,
            missing=missing,
            source=source,
            version=version,
        )
        trace = with_column(self, signal, values)
        if trace is not self:
            warn_of_directions(trace, [name])
        return trace

    def with_labels(self, labels: Sequence[str | None], extra: Sequence[Mapping[str, Any]]) -> Self:
        """Trace whose cases have these labels; hits and measurements stay as they are.

        Its fingerprint and `cases_hash` are its own.

        Args:
          labels: status that each case should get, [Q]; None where the case keeps the label that it
            has.
          extra: keys that each case has in `extra` on top of its own, [Q].

        Raises:
          ValueError: another number than of cases, or a label that is none.
        """
        return dealt_trace(self, labelled_cases(self.cases, labels, extra))

    def signal(self, name: str, arm: str | None = None, depth: int = 0) -> pd.Series[float]:
        """A signal that the trace holds as a column, a value a case, indexed by case id.

        Args:
          name: of the signal.
          arm: the first where not given.
          depth: of refinement, 0 the first search.

        Raises:
          ValueError: the trace holds none of that name.
        """
        import pandas as pd

        if name not in self.columns:
            there = ", ".join(self.signals) or "those that were added, and there is none"
            msg = (
                f"signal must be one of {there}, got {shown_value(name)}; built-in ones stand in "
                "raglab.audit_signals."
            )
            raise ValueError(msg)
        place = 0 if arm is None else self.arm(arm)
        return pd.Series(
            self.columns[name][:, place, depth].copy(),
            index=pd.Index([case.id for case in self.cases], name="case_id"),
            name=name,
        )

    def hits_of(self, case_id: str, arm: str | None = None) -> pd.DataFrame:
        """Hits of one case by the first search, in the arm's final order, a row a hit.

        Columns: `rank` from 1; `chunk`, its id; `source` as answers name it; `score`, the
        reranker's, `s_hybrid`, the fused one, both in [0, 1]; `l2`, squared; `similarity`, the
        cosine; NaN where not measured; `section`, the headings above the passage; `text`.

        Args:
          case_id: of the case.
          arm: the first where not given.

        Raises:
          KeyError: the trace holds no such case.
          ValueError: no such arm.
        """
        import pandas as pd

        row = next((place for place, case in enumerate(self.cases) if case.id == case_id), None)
        if row is None:
            msg = (
                f"case must be one of the trace's {len(self)} cases, got {shown_value(case_id)}; "
                "see [case.id for case in trace.cases]."
            )
            raise KeyError(msg)
        at = (row, 0 if arm is None else self.arm(arm), 0)
        there = np.flatnonzero(self.hits.chunk[at] >= 0)
        order = there[np.argsort(self.hits.rank[at][there], kind="stable")]
        chunks = [self.chunks[number] for number in self.hits.chunk[at][order].tolist()]
        columns = {"score": "s_rerank", "s_hybrid": "s_hybrid", "l2": "l2", "similarity": "cosine"}
        return pd.DataFrame(
            {
                "rank": self.hits.rank[at][order].astype(np.int64) + 1,
                "chunk": [chunk.chunk_id for chunk in chunks],
                "source": [chunk.shown for chunk in chunks],
                **{name: getattr(self.hits, field)[at][order] for name, field in columns.items()},
                "section": [chunk.section_path for chunk in chunks],
                "text": [chunk.text for chunk in chunks],
            }
        )

    def merge(self, *traces: values.TraceData) -> Self:
        """Trace of the cases of this one, then of the others; each is decided as before.

        Hits of a narrower trace are padded; latencies stay where all have those of the same stages.

        Args:
          *traces: built apart, of the same corpus.

        Raises:
          InputError: traces of another corpus, other arms, depths, models, patterns, signals or
            declarations, or a case twice; the message names the difference.

        Source: rules S1.3, S2.15.
        """
        if not traces:
            return self
        return merge_traces(self, traces)

    def split(self, name: str) -> Self:
        """Cases of one split: tune, certify or report.

        Args:
          name: `tune`, `certify` or `report`.

        Raises:
          ValueError: no case is of that split.
        """
        rows = [row for row, case in enumerate(self.cases) if case.split == name]
        if not rows:
            raise split_error(name, {case.split or NO_LABEL for case in self.cases})
        return self.subset(rows)


def with_column(trace: Trace, signal: Signal, values: Any) -> Any:  # noqa: ANN401 - as with_signal
    """Trace with a signal of the user, as `Trace.with_signal`, whose direction no label judges."""
    name = signal.name
    column = signal_column(
        signal,
        signal_values(values, name),
        trace.hits.chunk.shape[:3],
        [case.id for case in trace.cases],
    )
    declared, signals = declaration(signal), trace.meta.get("signals", {})
    if signals.get(name) == declared and np.array_equal(
        trace.columns.get(name, np.nan), column, equal_nan=True
    ):
        return trace  # so that a cell of a notebook that is run again makes no other trace
    facts = [str(trace.meta.get("fingerprint")), name, declared, array_hash(column)]
    meta = {
        **trace.meta,
        "signals": {**signals, name: declared},
        "fingerprint": digest(canonical_json(facts), 16),
    }
    return dataclasses.replace(trace, columns={**trace.columns, name: column}, meta=meta)


def dealt_trace(trace: Kind, cases: Sequence[Case]) -> Kind:
    """Trace with its cases changed, such as dealt into splits.

    Hits and measurements stay as they are, fingerprint and `cases_hash` are its own.

    Args:
      cases: those of the trace, in their order.
    """
    return dataclasses.replace(trace, cases=tuple(cases), meta=_partial_meta(trace.meta, cases))


def labelled_cases(
    cases: Sequence[Case], labels: Sequence[str | None], extra: Sequence[Mapping[str, Any]]
) -> tuple[Case, ...]:
    """Cases with other labels and more keys of `extra`, see `Trace.with_labels`.

    Raises:
      ValueError: another number than of cases, or a label that is none.
    """
    check_labels(len(cases), labels, extra)
    return tuple(
        case._replace(
            expect_status=case.expect_status if label is None else label,
            extra={**case.extra, **more} if more else case.extra,
        )
        for case, label, more in zip(cases, labels, extra, strict=True)
    )


def check_labels(
    n_cases: int, labels: Sequence[str | None], extra: Sequence[Mapping[str, Any]]
) -> None:
    """Raise ValueError if labels or `extra` keys are not one entry a case."""
    if not n_cases == len(labels) == len(extra):
        msg = (
            f"labels and extra must hold an entry a case, got {len(labels)} and {len(extra)} for "
            f"{n_cases} cases; write None and {{}} where nothing changes."
        )
        raise ValueError(msg)


def split_error(name: str, there: Collection[str]) -> ValueError:
    """Error about a split that no case is of.

    Args:
      there: splits of the cases, `NONE` of those without.
    """
    splits = ", ".join(sorted({*there} - {NO_LABEL}))
    value, remedy = repr(name), "set `split` in the cases"
    if not splits:
        value += " of cases without splits"
        remedy = "deal them by trace = raglab.split(trace)"
    return ValueError(f"split must be one of {splits or 'the cases'}, got {value}; {remedy}.")


class StudyTrace(TraceView, Protocol):
    """A view that is cut by its cases, as studies and certificates do.

    `Trace` or `raglab.ShardedTrace`.
    """

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Trace of some cases only, by position."""

    def split(self, name: str) -> Self:
        """Cases of one split."""

    def with_labels(self, labels: Sequence[str | None], extra: Sequence[Mapping[str, Any]]) -> Self:
        """Trace whose cases have these labels, and more keys of `extra`."""

    def loaded(self) -> Trace:
        """The whole trace in memory."""


def load_view(path: str | Path) -> StudyTrace:
    """Trace of a file in memory, or view of a folder of shards.

    Raises:
      TraceError: no whole trace of this schema.
      MissingExtensionError: a folder, and the room `scale` is not installed.
    """
    view: StudyTrace = Trace.open(path) if Path(path).is_dir() else Trace.load(path)
    return view


def signal_values(values: Any, name: str) -> Any:  # noqa: ANN401 - array, Series or path
    """Values of a signal of the user; those of a file, Parquet or CSV, as a Series by case id.

    Raises:
      InputError: a file without a column `case_id`, or without the signal's and `value`.
    """
    if not isinstance(values, str | Path):
        return values
    path = Path(values)
    is_parquet = path.suffix == ".parquet"
    frame = parquet_frame(path) if is_parquet else csv_frame(path, texts=("case_id",))
    column = name if name in frame else "value"
    if not {"case_id", column} <= {*frame}:
        raise input_error(
            path,
            f"a file of values must have columns case_id and {name}",
            "name them so",
            f"columns {', '.join(map(str, frame.columns[:8]))}",
        )
    return frame.set_index("case_id")[column]


def _partial_meta(
    meta: Mapping[str, Any], cases: Sequence[Case], before: Sequence[Case] = ()
) -> dict[str, Any]:
    """Meta of a trace that keeps some of the cases; as it is where they are all."""
    meta, part = with_splits(meta, cases, before), hash_cases(cases)
    if "fingerprint" not in meta or part == meta.get("cases_hash"):
        return dict(meta)
    return {**meta, "fingerprint": digest(f"{meta['fingerprint']} {part}", 16), "cases_hash": part}


__all__ = ["StudyTrace", "Trace", "TraceError", "load_view"]
