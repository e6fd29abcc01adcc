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

MANIFEST_NAME = "manifest.json"  # in a folder of shards


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
        for source_kind, expected_hash, stored_hash in (
            ("corpus", corpus_hash, trace.meta.get("corpus_hash")),
            # what a file says of its cases may be another's
            ("cases", cases_hash, cases_hash and hash_cases(trace.cases)),
        ):
            if expected_hash is not None and stored_hash != expected_hash:
                raise trace_error(
                    Path(path),
                    f"a trace must be made of the {source_kind} it is replayed for",
                    f"other {source_kind} ({str(stored_hash)[:12]}, not {expected_hash[:12]})",
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
        case_indices: list[int] = case_positions(rows, len(self)).tolist()
        pattern_hits = self.pattern_hits
        if pattern_hits is not None:
            pattern_hits = pattern_hits._replace(
                counts=pattern_hits.counts[case_indices],
                query_entities=tuple(
                    pattern_hits.query_entities[case_index] for case_index in case_indices
                ),
            )
        cases, latency = tuple(self.cases[case_index] for case_index in case_indices), self.latency
        return dataclasses.replace(
            self,
            cases=cases,
            hits=map_fields(self.hits, lambda hit_field: hit_field[case_indices]),
            pattern_hits=pattern_hits,
            meta=_partial_meta(self.meta, cases, self.cases),
            queries=None
            if self.queries is None
            else tuple(self.queries[case_index] for case_index in case_indices),
            answers=select_answers(self.answers, case_indices),
            latency=None if latency is None else latency._replace(ms=latency.ms[case_indices]),
            columns={
                signal_name: signal_column[case_indices]
                for signal_name, signal_column in self.columns.items()
            },
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
            `value`. NaN for a missing one.
          higher: `surer` where more of it speaks for an answer, `ask` where it speaks for asking
            back.
          unit: one of `raglab.signals.UNITS`, such as `probability`, or any words.
          stage: the stage after which it is measured, `query`, `hits` or `answer`; a case without
            hits has only signals of the stage `query`.
          missing: whether a case without it `fires` its gate or `passes`.
          source: its origin, in words.
          version: of its origin.

        Raises:
          ValueError: no valid name or declaration.
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
        signal_trace = with_column(self, signal, values)
        if signal_trace is not self:
            warn_of_directions(signal_trace, [name])
        return signal_trace

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
            signal_names = ", ".join(self.signals) or "those that were added, and there is none"
            message = (
                f"signal must be one of {signal_names}, got {shown_value(name)}; built-in ones "
                "stand in raglab.lab.signal_table(trace)."
            )
            raise ValueError(message)
        arm_index = 0 if arm is None else self.arm(arm)
        return pd.Series(
            self.columns[name][:, arm_index, depth].copy(),
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

        case_index = next(
            (position for position, case in enumerate(self.cases) if case.id == case_id), None
        )
        if case_index is None:
            message = (
                f"case must be one of the trace's {len(self)} cases, got {shown_value(case_id)}; "
                "see [case.id for case in trace.cases]."
            )
            raise KeyError(message)
        cell_index = (case_index, 0 if arm is None else self.arm(arm), 0)
        filled_ranks = np.flatnonzero(self.hits.chunk[cell_index] >= 0)
        ordered_hits = filled_ranks[
            np.argsort(self.hits.rank[cell_index][filled_ranks], kind="stable")
        ]
        hit_passages = [
            self.chunks[chunk_index]
            for chunk_index in self.hits.chunk[cell_index][ordered_hits].tolist()
        ]
        hit_columns = {
            "score": "s_rerank",
            "s_hybrid": "s_hybrid",
            "l2": "l2",
            "similarity": "cosine",
        }
        return pd.DataFrame(
            {
                "rank": self.hits.rank[cell_index][ordered_hits].astype(np.int64) + 1,
                "chunk": [chunk.chunk_id for chunk in hit_passages],
                "source": [chunk.shown for chunk in hit_passages],
                **{
                    column_name: getattr(self.hits, hit_field)[cell_index][ordered_hits]
                    for column_name, hit_field in hit_columns.items()
                },
                "section": [chunk.section_path for chunk in hit_passages],
                "text": [chunk.text for chunk in hit_passages],
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
        case_indices = [
            case_index for case_index, case in enumerate(self.cases) if case.split == name
        ]
        if not case_indices:
            raise split_error(name, {case.split or NO_LABEL for case in self.cases})
        return self.subset(case_indices)


def with_column(trace: Trace, signal: Signal, values: Any) -> Any:  # noqa: ANN401 - as with_signal
    """Trace with a signal of the user, as `Trace.with_signal`, whose direction no label judges."""
    signal_name = signal.name
    checked_column = signal_column(
        signal,
        signal_values(values, signal_name),
        trace.hits.chunk.shape[:3],
        [case.id for case in trace.cases],
    )
    signal_declaration, declarations = declaration(signal), trace.meta.get("signals", {})
    if declarations.get(signal_name) == signal_declaration and np.array_equal(
        trace.columns.get(signal_name, np.nan), checked_column, equal_nan=True
    ):
        return trace  # so that a cell of a notebook that is run again makes no other trace
    hashed_facts = [
        str(trace.meta.get("fingerprint")),
        signal_name,
        signal_declaration,
        array_hash(checked_column),
    ]
    signal_meta = {
        **trace.meta,
        "signals": {**declarations, signal_name: signal_declaration},
        "fingerprint": digest(canonical_json(hashed_facts), 16),
    }
    return dataclasses.replace(
        trace, columns={**trace.columns, signal_name: checked_column}, meta=signal_meta
    )


def dealt_trace(trace: Kind, cases: Sequence[Case]) -> Kind:
    """Trace with its cases changed, such as dealt into splits.

    Hits and measurements stay as they are, fingerprint and `cases_hash` are its own.

    Args:
      cases: those of the trace, in their order.
    """
    return dataclasses.replace(trace, cases=tuple(cases), meta=_partial_meta(trace.meta, cases))


def labelled_cases(
    cases: Sequence[Case],
    case_labels: Sequence[str | None],
    extra_fields: Sequence[Mapping[str, Any]],
) -> tuple[Case, ...]:
    """Cases with other labels and more keys of `extra_fields`, see `Trace.with_labels`.

    Raises:
      ValueError: another number than of cases, or a label that is none.
    """
    check_labels(len(cases), case_labels, extra_fields)
    return tuple(
        case._replace(
            expect_status=case.expect_status if case_label is None else case_label,
            extra={**case.extra, **case_extra} if case_extra else case.extra,
        )
        for case, case_label, case_extra in zip(cases, case_labels, extra_fields, strict=True)
    )


def check_labels(
    n_cases: int, case_labels: Sequence[str | None], extra_fields: Sequence[Mapping[str, Any]]
) -> None:
    """Raise ValueError if labels or `extra_fields` keys are not one entry a case."""
    if not n_cases == len(case_labels) == len(extra_fields):
        message = (
            f"labels and extra must hold an entry a case, got {len(case_labels)} and "
            f"{len(extra_fields)} for {n_cases} cases; write None and {{}} where nothing changes."
        )
        raise ValueError(message)


def split_error(split_name: str, case_splits: Collection[str]) -> ValueError:
    """Error about a split that no case is of.

    Args:
      case_splits: splits of the cases, `NONE` of those without.
    """
    known_splits = ", ".join(sorted({*case_splits} - {NO_LABEL}))
    shown_split, remedy = repr(split_name), "set `split` in the cases"
    if not known_splits:
        shown_split += " of cases without splits"
        remedy = "deal them by trace = raglab.split(trace)"
    return ValueError(
        f"split must be one of {known_splits or 'the cases'}, got {shown_split}; {remedy}."
    )


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
    loaded_view: StudyTrace = Trace.open(path) if Path(path).is_dir() else Trace.load(path)
    return loaded_view


def signal_values(stated_values: Any, signal_name: str) -> Any:  # noqa: ANN401 - array, Series or path
    """Values of a signal of the user; those of a file, Parquet or CSV, as a Series by case id.

    Raises:
      InputError: a file without a column `case_id`, or without the signal's and `value`.
    """
    if not isinstance(stated_values, str | Path):
        return stated_values
    values_path = Path(stated_values)
    is_parquet = values_path.suffix == ".parquet"
    values_frame = (
        parquet_frame(values_path)
        if is_parquet
        else csv_frame(values_path, text_columns=("case_id",))
    )
    values_column = signal_name if signal_name in values_frame else "value"
    if not {"case_id", values_column} <= {*values_frame}:
        raise input_error(
            values_path,
            f"a file of values must have columns case_id and {signal_name}",
            "name them so",
            f"columns {', '.join(map(str, values_frame.columns[:8]))}",
        )
    return values_frame.set_index("case_id")[values_column]


def _partial_meta(
    trace_meta: Mapping[str, Any], cases: Sequence[Case], earlier_cases: Sequence[Case] = ()
) -> dict[str, Any]:
    """Meta of a trace that keeps some of the cases; as it is where they are all."""
    trace_meta, cases_digest = with_splits(trace_meta, cases, earlier_cases), hash_cases(cases)
    if "fingerprint" not in trace_meta or cases_digest == trace_meta.get("cases_hash"):
        return dict(trace_meta)
    return {
        **trace_meta,
        "fingerprint": digest(f"{trace_meta['fingerprint']} {cases_digest}", 16),
        "cases_hash": cases_digest,
    }


__all__ = ["StudyTrace", "Trace", "TraceError", "load_view"]
