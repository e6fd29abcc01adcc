"""Sharded traces (shore): a trace as a folder of Parquet files and a manifest (S1.5).

One file is read at a time.

Each shard is a file as `Trace.save` writes it. The manifest comes last, so that a folder always
holds a whole version: a write that was killed leaves the one before it. What is asked of a sharded
trace is noted on references to its shards and done where one is loaded, so that a reference is
small enough to be sent to another process.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from raglab.decision.measurement import Evidence
from raglab.decision.recorded_answers import keep_used_chunks
from raglab.decision.trace_view import joined_failed_calls, part_with, plain_trace
from raglab.extensions.scale.measured_shards import ShardEvidence, measured_parts
from raglab.extensions.scale.shard_manifests import (
    Manifest,
    ShardFacts,
    ShardRow,
    facts_of,
    file_hash,
    read_manifest,
    shard_row,
    shared_hash,
    write_manifest,
)
from raglab.policy import PolicyData
from raglab.progress import progress
from raglab.signals import declaration, own_signal
from raglab.store.files import InputError, Where, input_error, locked, make_folder
from raglab.store.signal_columns import signal_column
from raglab.store.trace_merging import (
    FAILED_FACT,
    TraceError,
    check_alike,
    joined_fingerprint,
    refuse_duplicate,
    shared_facts,
)
from raglab.store.traces import (
    MANIFEST,
    check_labels,
    labelled_cases,
    signal_values,
    split_error,
    with_column,
)
from raglab.values import NONE, Case, CaseCounts, case_positions, count_cases, counted, refuse
from raglab.words.canonical import canonical_json, digest
from raglab.words.html_display import Fold, display, short

if TYPE_CHECKING:
    import pandas as pd

LOCK = ".lock"
CASES_OF_SHARD = 10_000
Stored = TypeVar("Stored", bound=Any)  # a class of traces


class RowSubset(NamedTuple):
    """Cases of a shard by position, int [q]."""

    rows: NDArray[np.int64]

    def of_cases(self, cases: Sequence[Case]) -> list[Case]:
        """Cases after the change."""
        return [cases[row] for row in self.rows.tolist()]

    def apply(self, trace: Any) -> Any:  # noqa: ANN401 - a trace
        """Trace after the change."""
        return trace.subset(self.rows)


class SplitSubset(NamedTuple):
    """Cases of a shard by split."""

    name: str

    def positions(self, cases: Sequence[Case]) -> list[int]:
        """Positions of the cases that stay."""
        return [row for row, case in enumerate(cases) if (case.split or NONE) == self.name]

    def of_cases(self, cases: Sequence[Case]) -> list[Case]:
        """Cases after the change."""
        return [cases[row] for row in self.positions(cases)]

    def apply(self, trace: Any) -> Any:  # noqa: ANN401 - a trace
        """Trace after the change."""
        return trace.subset(self.positions(trace.cases))


class ExtraSignal(NamedTuple):
    """A signal of the user over the cases of a shard.

    Values [q], [q, A] or [q, A, D], and its declaration.
    """

    name: str
    values: NDArray[np.float64]
    declared: Mapping[str, Any]

    def of_cases(self, cases: Sequence[Case]) -> list[Case]:
        """Cases after the change."""
        return list(cases)

    def apply(self, trace: Any) -> Any:  # noqa: ANN401 - a trace
        """Trace after the change."""
        return with_column(trace, own_signal(self.name, **self.declared), self.values)


class CaseLabels(NamedTuple):
    """Labels of the cases of a shard, None where one stays, and keys of their `extra`, [q] each."""

    labels: tuple[str | None, ...]
    extra: tuple[Mapping[str, Any], ...]

    def of_cases(self, cases: Sequence[Case]) -> list[Case]:
        """Cases after the change."""
        return list(labelled_cases(cases, self.labels, self.extra))

    def apply(self, trace: Any) -> Any:  # noqa: ANN401 - a trace
        """Trace after the change."""
        return trace.with_labels(self.labels, self.extra)


Change = RowSubset | SplitSubset | ExtraSignal | CaseLabels


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Shard:
    """Reference to a shard.

    Where it stands, the SHA-256 of its file, and what is changed once it is loaded.

    kind: class of traces that it is loaded as. size: cases that are left. counts: of those by split
    and label, None where nobody has counted them. evidence: that was measured after so many
    changes, of which there only are more. facts: what its file must hold, None where nobody has
    said so.
    """

    path: str
    sha256: str
    kind: Any
    size: int
    counts: CaseCounts | None = None
    changes: tuple[Change, ...] = ()
    evidence: tuple[int, ShardEvidence] | None = None
    facts: ShardFacts | None = None

    def loaded(self) -> Any:  # noqa: ANN401 - a trace
        """Trace of the shard, with its changes.

        Raises:
          TraceError: the file is not there, or is not the one that the manifest names.
        """
        self._check()
        trace = self.kind.load(self.path)
        self._check_facts(trace)
        for change in self.changes:
            trace = change.apply(trace)
        if len(trace) != self.size:
            self._refuse(
                "hold as many cases as its manifest counts", f"{len(trace)} for {self.size}"
            )
        return trace

    @property
    def cases(self) -> list[Case]:
        """Cases of the shard, read from its file without its hits."""
        self._check()
        cases = list(self.kind.cases_of(self.path))
        if self.facts is not None and self.facts.counts != count_cases(cases):
            self._refuse(
                "hold as many cases of each split and label as its manifest counts", "others"
            )
        for change in self.changes:
            cases = change.of_cases(cases)
        return cases

    def counted(self) -> Self:
        """The same with its counts, which cost a reading of its cases where they are not known."""
        return self if self.counts is not None else replace(self, counts=count_cases(self.cases))

    def evidence_for(self, policies: Sequence[PolicyData], arm: str | None) -> Evidence | None:
        """Evidence that was measured on disk.

        None where the policies or the shard's changes are others.
        """
        if self.evidence is None or self.evidence[0] != len(self.changes):
            return None
        return self.evidence[1].matching(policies, arm)

    def _check_facts(self, trace: Any) -> None:  # noqa: ANN401 - a trace
        """Stop at content that its manifest does not state, though its hash fits."""
        if self.facts is None:
            return
        stated = sum(n for labels in self.facts.counts.values() for n in labels.values())
        if stated != len(trace):
            self._refuse("hold as many cases as its manifest counts", f"{len(trace)} for {stated}")
        if self.facts != facts_of(trace):
            self._refuse(
                "hold what its manifest says of it", "other cases, arms, signals or parameters"
            )

    def _check(self) -> None:
        """Stop where the file is not the one that is meant.

        What is no file, such as a pipe, is never opened.
        """
        path = Path(self.path)
        fault = "none there"
        with suppress(OSError):
            if path.is_file():
                fault = "another file" if file_hash(path) != self.sha256 else ""
        if fault:
            what, version = "be the file that its manifest names", self._later_version()
            if version is not None:
                self._refuse(
                    what,
                    f"{fault}: a newer version ({version}) stands there",
                    "open the folder again",
                )
            self._refuse(what, fault)

    def _later_version(self) -> int | None:
        """Version of a manifest that names another file in the place of this one.

        None where there is none.
        """
        path = Path(self.path)
        with suppress(InputError):
            there = read_manifest(path.parent)
            if (path.name, self.sha256) not in {(row.file, row.sha256) for row in there.shards}:
                return there.version
        return None

    def _refuse(
        self, what: str, value: str, remedy: str = "put that file back, or build the trace again"
    ) -> NoReturn:
        raise TraceError(str(input_error(Where(self.path), f"a shard must {what}", remedy, value)))


class ShardedCases(Sequence[Case]):
    """Cases of all shards in order, a shard's read without its hits where one is asked for.

    Those of the last shard that was read are kept; another process is sent none of them.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.size for part in parts)])
        self._read: tuple[int, list[Case]] = (-1, [])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, place: int) -> Case: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Case, ...]: ...
    def __getitem__(self, place: int | slice) -> Case | tuple[Case, ...]:
        places = range(len(self))[place]  # counts from the end, and refuses what is beyond
        return self._case(places) if isinstance(places, int) else tuple(map(self._case, places))

    def __iter__(self) -> Iterator[Case]:
        for number in range(len(self._parts)):
            yield from self._cases_of(number)

    def __reduce__(self) -> tuple[type[ShardedCases], tuple[Any, ...]]:
        return ShardedCases, (self._parts,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} cases in {len(self._parts):,} shards)"

    def _case(self, place: int) -> Case:
        number = int(np.searchsorted(self._starts, place, side="right")) - 1
        return self._cases_of(number)[place - int(self._starts[number])]

    def _cases_of(self, number: int) -> list[Case]:
        if self._read[0] != number:
            self._read = (number, self._parts[number].cases)
        return self._read[1]


@dataclass(frozen=True, repr=False, eq=False)
class ShardedTrace(Generic[Stored]):
    """A trace in parts that are loaded one at a time.

    A `StudyTrace`, which replays and studies take as a trace.

    Attributes:
      parts: references to its shards.
      shared: arms, depths, models and parameters, the same in all.
      fingerprint: of the whole trace.
      kind: type that a shard is loaded as.
      place: folder or file; None where cases or signals were changed since.
      version: of the folder.
    """

    parts: tuple[Shard, ...]
    shared: Mapping[str, Any]
    fingerprint: str
    kind: Any = field(repr=False)
    place: Path | None = None
    version: int = 1

    @cached_property
    def cases(self) -> Sequence[Case]:
        """Cases of all shards in their order, read shard by shard where they are asked for."""
        return ShardedCases(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        """Fields alone: what was read of the cases is sent to no other process."""
        return {name: value for name, value in vars(self).items() if name != "cases"}

    def __len__(self) -> int:
        """Count the cases, Q."""
        return sum(part.size for part in self.parts)

    def shards(self) -> Iterator[Stored]:
        """Traces of the shards, one at a time; each is let go before the next is loaded.

        Raises:
          TraceError: a shard is not there, damaged or another one; names it.
        """
        for part in progress(self.parts, "load", "shard"):
            yield part.loaded()

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the retrieval strategies, [A]."""
        return tuple(self.shared["arms"])

    @property
    def n_depths(self) -> int:
        """Depths that were measured, D."""
        return int(self.shared["depths"])

    @property
    def has_answers(self) -> bool:
        """Whether answers are recorded."""
        return bool(self.meta.get("generator"))

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it holds as columns."""
        added = {change.name for change in self.parts[0].changes if isinstance(change, ExtraSignal)}
        return tuple(sorted(added.union(self.shared["signals"])))

    @property
    def meta(self) -> dict[str, Any]:
        """Corpus, models and parameters, alike in all shards, and the fingerprint."""
        of_all = {
            key.removesuffix(_META): value
            for key, value in self.shared.items()
            if key.endswith(_META)
        }
        return of_all | {"fingerprint": self.fingerprint}

    def counted(self) -> CaseCounts:
        """Cases by split and label; read from the shards' cases where a subset was taken."""
        total: Counter[tuple[str, str]] = Counter()
        for part in self.parts:
            for split, labels in (part.counted().counts or {}).items():
                total.update({(split, label): n for label, n in labels.items()})
        return {
            split: {b: n for (a, b), n in sorted(total.items()) if a == split}
            for split, _ in sorted(total)
        }

    def loaded(self) -> Stored:
        """The whole trace in memory, each shard with the chunks that its cases need."""
        first, *rest = map(keep_used_chunks, self.shards())
        merged: Stored = first.merge(*rest)
        return merged

    @contextmanager
    def measured_once(self, policy: PolicyData, arm: str | None) -> Iterator[Self]:
        """The same trace; its evidence under the structure of a policy is on disk inside the block.

        Policies of another structure are measured where they are replayed.

        Args:
          policy: the policy whose structure is measured.
          arm: of the trace; the first where not given.

        Raises:
          ValueError: as `measured_parts`.
        """
        with measured_parts(self.parts, policy, arm) as stored:
            pairs = zip(self.parts, stored, strict=True)
            yield replace(
                self,
                parts=tuple(
                    replace(part, evidence=(len(part.changes), shard_evidence))
                    for part, shard_evidence in pairs
                ),
            )

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Trace of some cases only, by position among those of all shards, in their order.

        Args:
          rows: positions among the cases of all shards, ascending.

        Raises:
          ValueError: rows must be positions of cases, at least one, and go from shard to shard.
        """
        keep = case_positions(rows, len(self))
        if not len(keep):
            refuse(
                f"rows must be positions from 0 to {len(self) - 1}",
                "none",
                "keep at least one case",
            )
        starts = np.cumsum([0, *(part.size for part in self.parts)])
        number = np.searchsorted(starts, keep, side="right") - 1
        if np.any(np.diff(number) < 0):
            refuse(
                "rows must go from shard to shard",
                "some of an earlier shard behind a later one",
                "sort them",
            )
        parts = []
        for place in np.unique(number).tolist():
            local = (keep[number == place] - starts[place]).astype(np.int64)
            part = self.parts[place]
            whole = len(local) == part.size and bool(np.all(local == np.arange(part.size)))
            part_subset = replace(
                part, size=len(local), counts=None, changes=(*part.changes, RowSubset(local))
            )
            parts.append(part if whole else part_subset)
        rows_hash = hashlib.sha256(keep.astype(np.int64).tobytes()).hexdigest()
        return self._changed(parts, ["subset", rows_hash])

    def split(self, name: str) -> Self:
        """Cases of one split: tune, certify or report.

        Shards that hold none of them are never read.

        Args:
          name: `tune`, `certify` or `report`.

        Raises:
          ValueError: no case is of that split.
        """
        parts: list[Shard] = []
        there: set[str] = set()
        for part in map(Shard.counted, self.parts):
            counts = part.counts or {}
            there |= counts.keys()
            if set(counts) == {name}:
                parts.append(part)
            elif name in counts:
                size, changes = sum(counts[name].values()), (*part.changes, SplitSubset(name))
                parts.append(replace(part, size=size, counts={name: counts[name]}, changes=changes))
        if not parts:
            raise split_error(name, there)
        return self._changed(parts, ["split", name])

    def hits_of(self, case_id: str, arm: str | None = None) -> pd.DataFrame:
        """Hits of one case, whose shard alone is loaded; as `Trace.hits_of`.

        Args:
          case_id: of the case.
          arm: of the trace; the first where not given.

        Raises:
          KeyError: the trace holds no such case.
          ValueError: no such arm.
        """
        shard: Any = part_with(self, case_id).loaded()
        hits: pd.DataFrame = shard.hits_of(case_id, arm)
        return hits

    # array, Series or path
    def with_signal(self, name: str, values: Any, **declared: str) -> Self:  # noqa: ANN401
        """Trace with a signal of your own, held whole and given to each shard when it is loaded.

        Args:
          name: a small letter, then small letters, digits and underscores.
          values: [Q], [Q, A] or [Q, A, D] in the order of the shards' cases; a Series by case id,
            or the path of a file, for which the cases of all shards are read once.
          **declared: further arguments of `Trace.with_signal`.

        Raises:
          ValueError: a name or declaration that is none.
          InputError: values that are not one finite number or NaN a case, or outside the unit's
            range.

        Source: rule S2.15.
        """
        signal = own_signal(name, **declared)
        values = signal_values(values, name)
        by_case = hasattr(values, "index") and hasattr(values, "to_numpy")
        ids: Sequence[str] = [case.id for case in self.cases] if by_case else _Positions(len(self))
        column = signal_column(signal, values, (len(self), len(self.arms), self.n_depths), ids)
        column_hash = hashlib.sha256(
            np.where(np.isnan(column), np.nan, column).tobytes()
        ).hexdigest()
        starts = np.cumsum([0, *(part.size for part in self.parts)]).tolist()
        stated = declaration(signal)
        user_declaration = {**stated, "unit": declared["unit"]}
        parts = [
            replace(
                part,
                changes=(
                    *part.changes,
                    ExtraSignal(name, column[start : start + part.size], user_declaration),
                ),
            )
            for part, start in zip(self.parts, starts[:-1], strict=True)
        ]
        return self._changed(parts, ["signal", name, stated, column_hash])

    def with_labels(self, labels: Sequence[str | None], extra: Sequence[Mapping[str, Any]]) -> Self:
        """Trace whose cases have these labels, set where a shard is loaded.

        See `Trace.with_labels`.

        Args:
          labels: status that each case should get, over all shards, [Q]; None where the case keeps
            its own.
          extra: keys that each case has in `extra` on top of its own, [Q].

        Raises:
          ValueError: another number than of cases, or a label that is none.
        """
        check_labels(len(self), labels, extra)
        label_hash = digest(canonical_json([list(labels), list(map(dict, extra))]), 16)
        parts, start = [], 0
        for part in self.parts:
            rows = slice(start, start + part.size)
            change = CaseLabels(tuple(labels[rows]), tuple(extra[rows]))
            parts.append(replace(part, counts=None, changes=(*part.changes, change)))
            start += part.size
        return self._changed(parts, ["labels", label_hash])

    def merge(self, *traces: ShardedTrace[Stored]) -> Self:
        """Trace of the shards of this one, then of the others, which were built apart.

        Args:
          *traces: built apart, of the same corpus.

        Raises:
          InputError: a trace in memory, which has no file to be read from, traces of another
            corpus, other arms, models, patterns or signals, or a case twice.
        """
        for trace in traces:
            if not isinstance(trace, ShardedTrace):
                rule = "a trace that is merged with shards must be one of shards"
                remedy = "write it first: raglab.io.save_shards([trace], folder)"
                raise input_error(Where("merge"), rule, remedy, f"a {type(trace).__name__}")
        of_all: list[ShardedTrace[Any]] = [self, *traces]
        for trace in traces:
            check_alike(_stated(self), _stated(trace))
        _ids_of(of_all)
        parts = [part for trace in of_all for part in trace.parts]
        fingerprint = joined_fingerprint([trace.fingerprint for trace in of_all])
        return replace(self, parts=tuple(parts), fingerprint=fingerprint, place=None)

    def save(self, folder: str | Path) -> ShardedTrace[Stored]:
        """Write all shards into a folder, one at a time; see `raglab.io.save_shards`.

        Args:
          folder: for the shards.
        """
        return save_shards([self], folder, shard=None)

    # traces
    def append(
        self,
        *traces: Any,  # noqa: ANN401
        shard: int | None = CASES_OF_SHARD,
    ) -> ShardedTrace[Stored]:
        """Next version of the folder: its shards, which stay as they are, then those of new cases.

        Args:
          *traces: of the new cases, each in memory or sharded.
          shard: cases of a shard; None takes those given whole.

        Raises:
          InputError: this trace is not the unchanged one of a folder, a trace differs in more than
            its cases, or a case occurs twice.
        """
        check_shard(shard)
        if self.place is None or not self.place.is_dir():
            value = "a part of one, or a file"
            rule, remedy = (
                "cases must be appended to a folder of shards as it stands",
                "write it by `save` first",
            )
            raise input_error(Where("append"), rule, remedy, value)
        with locked(self.place / LOCK):
            known = read_manifest(self.place)
            ids, version = _ids_of([open_shards(self.place, self.kind)]), known.version + 1
            remove_orphans(self.place, known)
            written = write_shards(
                _cut(traces, shard), self.place, version, ids=ids, shared=known.shared
            )
            rows = (*known.shards, *written.rows)
            write_manifest(
                self.place, Manifest(version, known.rows["content"], written.shared, rows)
            )
        return open_shards(self.place, self.kind)

    def _changed(self, parts: Sequence[Shard], what: Sequence[Any]) -> Self:
        """Trace of other parts, with a fingerprint of its own."""
        fingerprint = digest(canonical_json([self.fingerprint, *what]), 16)
        return replace(self, parts=tuple(parts), fingerprint=fingerprint, place=None)

    def __repr__(self) -> str:
        own = f", signals {short(', '.join(self.signals))}" if self.signals else ""
        n = len(self.parts)
        sizes = (
            f"{len(self):,} cases in {n:,} shard{'' if n == 1 else 's'}, by "
            f"{short(', '.join(self.arms))}"
        )
        return f"{type(self).__name__}({short(self.fingerprint, 20)}: {sizes}{own})"

    def _repr_html_(self) -> str:
        """Display for a notebook: what it is made of, and its shards; nothing is loaded for it."""
        known = all(part.counts is not None for part in self.parts)
        counts = self.counted() if known else {}
        labels = sum((Counter(by_label) for by_label in counts.values()), Counter[str]())
        splits = {split: sum(by_label.values()) for split, by_label in counts.items()}
        facts = [
            ("fingerprint", self.fingerprint),
            ("folder or file", "parts of one" if self.place is None else str(self.place)),
            ("version", str(self.version)),
            ("corpus", str(self.meta.get("corpus", "not stated"))),
            ("cases", f"{len(self):,} in {len(self.parts):,} shards"),
            ("labels", counted(labels) if known else "not counted"),
            ("splits", counted(splits) if known else "not counted"),
            ("arms", ", ".join(self.arms)),
            ("own signals", ", ".join(self.signals) or "none"),
        ]
        rows = ((Path(part.path).name, f"{part.size:,}", part.sha256[:12]) for part in self.parts)
        meta = [(name, str(value)) for name, value in self.meta.items() if name != "fingerprint"]
        folds = (
            Fold("shards", rows, len(self.parts), ("file", "cases", "hash")),
            Fold("made with", meta),
        )
        return display(type(self).__name__, facts, folds)


_META = " in their meta"


class _Positions(Sequence[str]):
    """Positions of cases, for messages about values whose cases nobody has read."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - one position
        return f"position {place}"


def _stated(trace: ShardedTrace[Any]) -> dict[str, Any]:
    """What must be alike in traces that are merged.

    Their shared facts, with the signals that were added.
    """
    added = {
        change.name: dict(change.declared)
        for change in trace.parts[0].changes
        if isinstance(change, ExtraSignal)
    }
    return {**trace.shared, "signals": list(trace.signals), "added signals": added}


def _ids_of(traces: Iterable[ShardedTrace[Any]]) -> set[str]:
    """Ids of all cases, each once.

    Raises:
      InputError: a case stands twice.
    """
    ids: set[str] = set()
    for trace in traces:
        for part in trace.parts:
            _add_ids(ids, (case.id for case in part.cases))
    return ids


def _add_ids(ids: set[str], more: Iterable[str]) -> None:
    for case_id in more:
        if case_id in ids:
            refuse_duplicate(case_id, 2)
        ids.add(case_id)


def open_shards(path: Path, kind: Any) -> ShardedTrace[Any]:  # noqa: ANN401 - a class of traces
    """Sharded trace of a folder, or of one file; see `Trace.open`."""
    if path.is_dir():
        manifest = read_manifest(path)
        shared = shared_hash(manifest.shared)
        parts = tuple(
            Shard(
                str(path / row.file),
                row.sha256,
                kind,
                row.cases,
                row.counts,
                facts=ShardFacts(row.fingerprint, row.counts, shared),
            )
            for row in manifest.shards
        )
        _check_there(parts)
        rows = manifest.rows
        return ShardedTrace(
            parts, manifest.shared, rows["fingerprint"], kind, path, manifest.version
        )
    trace = kind.load(path)  # to know what it shares with others; let go at once
    part = Shard(str(path), file_hash(path), kind, len(trace), count_cases(trace.cases))
    return ShardedTrace(
        (part,), shared_facts(trace), str(trace.meta.get("fingerprint")), kind, path
    )


def _check_there(parts: Sequence[Shard]) -> None:
    """Stop at a shard that is not there before hours are spent on those before it.

    Their content is checked on load.
    """
    lacking = next((part for part in parts if not Path(part.path).is_file()), None)
    if lacking is not None:
        lacking._check()  # noqa: SLF001 - of this module


def shard_name(version: int, number: int) -> str:
    """Name of a shard's file; a version writes over no file of another."""
    return f"v{version}-{number:05d}.parquet"


def next_version(folder: Path) -> tuple[int, Manifest | None]:
    """Version that a write into a folder makes, and the manifest that stands there.

    None where none does.
    """
    known = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    return (1 if known is None else known.version + 1), known


def save_shards(
    traces: Iterable[Any], folder: str | Path, *, shard: int | None = CASES_OF_SHARD
) -> ShardedTrace[Any]:
    """Write traces as one trace of shards.

    A folder of Parquet files and a manifest, which is written last.

    One shard is in memory at a time; a write that was killed leaves the old content. The same
    traces, cut in the same way, give the same bytes. This also merges traces that were built apart.

    Args:
      traces: each in memory or sharded; of one corpus, with the same arms, models, patterns and
        signals.
      folder: of the shards; a trace of shards that it holds gets a next version.
      shard: most cases of a shard; a larger trace is cut, each shard with the chunks that it hits,
        and those that tell the line of what its cases expect. None cuts none.

    Raises:
      ValueError: shard below 1.
      InputError: no trace, traces that differ in more than their cases, a case twice, or a folder
        that is closed.

    Source: rule S1.5.

    Example: `raglab.io.save_shards([trace], "out/shards", shard=10_000)`
    """
    check_shard(shard)
    place = make_folder(Path(folder))
    with locked(place / LOCK):
        version, known = next_version(place)
        remove_orphans(place, known)
        written = write_shards(_cut(traces, shard), place, version)
        replace_shards(place, known, written)
    return open_shards(place, written.kind)


class Written(NamedTuple):
    """Shards that a write has made: their rows, what they share, and what they are loaded as."""

    rows: tuple[ShardRow, ...]
    shared: Mapping[str, Any]
    kind: Any


def write_shards(
    traces: Iterable[Any],
    folder: Path,
    version: int,
    *,
    ids: set[str] | None = None,
    shared: Mapping[str, Any] | None = None,
) -> Written:
    """Write traces as shards of a version, a file each, without a manifest.

    Args:
      ids: of cases that stand there already.
      shared: what those share.

    Raises:
      InputError: no trace, one that differs in more than its cases, or a case twice.
    """
    rows: list[ShardRow] = []
    known: set[str] = set() if ids is None else ids
    kind: Any = None
    for trace in progress(traces, "save", "shard"):
        facts = shared_facts(trace)
        shared = facts if shared is None else shared
        check_alike(shared, facts)
        shared = {**shared, **joined_failed_calls([shared, facts], FAILED_FACT)}
        _add_ids(known, (case.id for case in trace.cases))
        path = folder / shard_name(version, len(rows))
        trace.save(path)
        rows.append(shard_row(trace, path))
        kind = type(trace)
    if shared is None or not rows:
        rule, remedy = "a trace of shards must have at least one case", "give at least one trace"
        raise input_error(Where(str(folder)), rule, remedy, "no trace")
    return Written(tuple(rows), shared, kind)


def replace_shards(folder: Path, known: Manifest | None, written: Written) -> None:
    """Write the manifest of shards that replace a version, then remove that version's files."""
    before = None if known is None else known.rows["content"]
    version = 1 if known is None else known.version + 1
    write_manifest(folder, Manifest(version, before, written.shared, written.rows))
    remove_shards(folder, () if known is None else known.shards)


def check_shard(shard: int | None) -> None:
    """Raise ValueError for a shard of less than one case.

    Raises:
      ValueError: it is below 1.
    """
    if shard is not None and shard < 1:
        refuse(
            "shard must be at least 1",
            shard,
            "10000 cases of 50 hits take 0.4 GB while they are replayed",
        )


def _cut(traces: Iterable[Any], shard: int | None) -> Iterator[Any]:
    """Traces in parts of at most so many cases."""
    return (piece for trace in traces for piece in _pieces(plain_trace(trace), shard))


# a trace, in memory or sharded
def _pieces(trace: Any, shard: int | None) -> Iterator[Any]:  # noqa: ANN401
    """Parts of a trace of at most so many cases, each with the chunks that its cases need."""
    if isinstance(trace, ShardedTrace):
        for part in trace.parts:
            yield from _pieces(part.loaded(), shard)
    elif shard is None or len(trace) <= shard:
        yield trace
    else:
        for start in range(0, len(trace), shard):
            yield keep_used_chunks(trace.subset(np.arange(start, min(start + shard, len(trace)))))


def remove_shards(folder: Path, rows: Iterable[ShardRow]) -> None:
    """Take away files of a version that another has taken the place of."""
    for row in rows:
        for name in (row.file, f"{row.file}.latency"):
            (folder / name).unlink(missing_ok=True)


_OF_VERSION = re.compile(r"(v(\d+)-\d{5,}\.parquet)(\.latency|\.[0-9a-f]+\.parts)?")


def remove_orphans(folder: Path, known: Manifest | None) -> None:
    """Take away what killed writes have left.

    Files of shards up to the version that stands, which it does not name.

    The caller holds the folder's lock. Whoever opened an earlier version loses nothing: where cases
    were appended, the manifest names its shards too; where another trace took its place, they went
    with that write. Files of the next version stay, since a build goes on from them.
    """
    if known is None:
        return
    named = {row.file for row in known.shards}
    for path in list(folder.iterdir()):
        match = _OF_VERSION.fullmatch(path.name)
        if match is None or int(match[2]) > known.version:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif match[1] not in named:
            path.unlink(missing_ok=True)
