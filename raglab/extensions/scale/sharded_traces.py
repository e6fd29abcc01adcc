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
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Self, TypeVar

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
    count_size,
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
    MANIFEST_NAME,
    Trace,
    check_labels,
    labelled_cases,
    signal_values,
    split_error,
    with_column,
)
from raglab.values import NO_LABEL, Case, CaseCounts, case_positions, count_cases, counted, refuse
from raglab.words.canonical import canonical_json, digest
from raglab.words.html_display import Fold
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

LOCK = ".lock"
CASES_OF_SHARD = 10_000
Stored = TypeVar("Stored", bound=Any)  # a class of traces
_REMEDY = "put that file back, or build the trace again"


class TraceChange(NamedTuple):
    """A method of a trace with its arguments, called where a shard is loaded.

    subset: positions of cases, int [q]. split: its name. with_labels: labels, [q], and keys of
    `extra`, [q]. with_column: a signal of the user, and its values, [q], [q, A] or [q, A, D].
    """

    method: str
    arguments: tuple[Any, ...]

    def of_cases(self, cases: list[Case]) -> list[Case]:
        """Cases after the change."""
        if self.method == "subset":
            return [cases[row] for row in self.arguments[0].tolist()]
        if self.method == "split":
            return [case for case in cases if (case.split or NO_LABEL) == self.arguments[0]]
        return (
            list(labelled_cases(cases, *self.arguments)) if self.method == "with_labels" else cases
        )

    def apply(self, trace: Any) -> Any:  # noqa: ANN401 - a trace
        """Trace after the change."""
        if self.method == "with_column":
            return with_column(trace, *self.arguments)
        if self.method == "split":  # a trace in memory has no split of those without one
            name = self.arguments[0]
            rows = [row for row, case in enumerate(trace.cases) if (case.split or NO_LABEL) == name]
            return trace.subset(rows)
        return getattr(trace, self.method)(*self.arguments)


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
    changes: tuple[TraceChange, ...] = ()
    evidence: tuple[int, ShardEvidence] | None = None
    facts: ShardFacts | None = None

    def loaded(self) -> Any:  # noqa: ANN401 - a trace
        """Trace of the shard, with its changes.

        Raises:
          TraceError: the file is not there, or is not the one that the manifest names.
        """
        self.check()
        trace = self.kind.load(self.path)
        # content that its manifest does not state, though its hash fits
        if self.facts is not None:
            self._check_size(len(trace), count_size(self.facts.counts))
            if self.facts != facts_of(trace):
                value = "other cases, arms, signals or parameters"
                self._refuse("hold what its manifest says of it", value)
        for change in self.changes:
            trace = change.apply(trace)
        self._check_size(len(trace), self.size)
        return trace

    @property
    def cases(self) -> list[Case]:
        """Cases of the shard, read from its file without its hits."""
        self.check()
        cases = list(self.kind.cases_of(self.path))
        if self.facts is not None and self.facts.counts != count_cases(cases):
            what = "hold as many cases of each split and label as its manifest counts"
            self._refuse(what, "others")
        for change in self.changes:
            cases = change.of_cases(cases)
        return cases

    def changed(self, method: str, *arguments: Any, **fields: Any) -> Shard:  # noqa: ANN401
        """The same with one more change, and other fields."""
        return replace(self, changes=(*self.changes, TraceChange(method, arguments)), **fields)

    def counted(self) -> CaseCounts:
        """Cases by split and label, which cost a reading of its cases where they are not known."""
        return count_cases(self.cases) if self.counts is None else self.counts

    def evidence_for(self, policies: Sequence[PolicyData], arm: str | None) -> Evidence | None:
        """Evidence that was measured on disk.

        None where the policies or the shard's changes are others.
        """
        if self.evidence is None or self.evidence[0] != len(self.changes):
            return None
        return self.evidence[1].matching(policies, arm)

    def check(self) -> None:
        """Stop where the file is not the one that is meant.

        What is no file, such as a pipe, is never opened.
        """
        path, fault = Path(self.path), "none there"
        with suppress(OSError):
            if path.is_file():
                fault = "another file" if file_hash(path) != self.sha256 else ""
        if not fault:
            return
        remedy = _REMEDY
        with suppress(InputError):  # a manifest that names another file in its place
            there = read_manifest(path.parent)
            if (path.name, self.sha256) not in {(row.file, row.sha256) for row in there.shards}:
                fault = f"{fault}: a newer version ({there.version}) stands there"
                remedy = "open the folder again"
        self._refuse("be the file that its manifest names", fault, remedy)

    def _check_size(self, size: int, stated: int) -> None:
        if size != stated:
            self._refuse("hold as many cases as its manifest counts", f"{size} for {stated}")

    def _refuse(self, what: str, value: str, remedy: str = _REMEDY) -> NoReturn:
        raise TraceError(str(input_error(Where(self.path), f"a shard must {what}", remedy, value)))


class ShardedCases(Sequence[Case]):
    """Cases of all shards in order, a shard's read without its hits where one is asked for.

    Those of the last shard that was read are kept; another process is sent none of them.
    """

    def __init__(self, parts: Sequence[Shard]) -> None:
        self._parts, self._starts = parts, part_starts(parts)
        self._read: tuple[int, list[Case]] = (-1, [])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a case, or cases of a slice
        places = range(len(self))[place]  # counts from the end, and refuses what is beyond
        if not isinstance(places, int):
            return tuple(self[position] for position in places)
        number = int(np.searchsorted(self._starts, places, side="right")) - 1
        return self._cases_of(number)[places - int(self._starts[number])]

    def __iter__(self) -> Iterator[Case]:
        for number in range(len(self._parts)):
            yield from self._cases_of(number)

    def __reduce__(self) -> tuple[type[ShardedCases], tuple[Any, ...]]:
        return ShardedCases, (self._parts,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} cases in {len(self._parts):,} shards)"

    def _cases_of(self, number: int) -> list[Case]:
        if self._read[0] != number:
            self._read = (number, self._parts[number].cases)
        return self._read[1]


def part_starts(parts: Sequence[Shard]) -> NDArray[np.int64]:
    """Position of the first case of each shard, and the number of all cases."""
    return np.cumsum([0, *(part.size for part in parts)])


@dataclass(frozen=True, repr=False, eq=False)
class ShardedTrace(Result, Generic[Stored]):
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
        return tuple(sorted(_added_signals(self).keys() | self.shared["signals"]))

    @property
    def meta(self) -> dict[str, Any]:
        """Corpus, models and parameters, alike in all shards, and the fingerprint."""
        meta = {key: value for key, value in self.shared.items() if key.endswith(_META)}
        names = {key.removesuffix(_META): value for key, value in meta.items()}
        return names | {"fingerprint": self.fingerprint}

    def counted(self) -> CaseCounts:
        """Cases by split and label; read from the shards' cases where a subset was taken."""
        total: dict[str, Counter[str]] = {}
        for part in self.parts:
            for split, labels in part.counted().items():
                total.setdefault(split, Counter()).update(labels)
        return {split: dict(sorted(total[split].items())) for split in sorted(total)}

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
            measured = [
                replace(part, evidence=(len(part.changes), evidence))
                for part, evidence in zip(self.parts, stored, strict=True)
            ]
            yield replace(self, parts=tuple(measured))

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Self:
        """Trace of some cases only, by position among those of all shards, in their order.

        Args:
          rows: positions among the cases of all shards, ascending.

        Raises:
          ValueError: rows must be positions of cases, at least one, and go from shard to shard.
        """
        keep = case_positions(rows, len(self)).astype(np.int64)
        if not len(keep):
            rule = f"rows must be positions from 0 to {len(self) - 1}"
            refuse(rule, "none", "keep at least one case")
        starts = part_starts(self.parts)
        number = np.searchsorted(starts, keep, side="right") - 1
        if np.any(np.diff(number) < 0):
            value = "some of an earlier shard behind a later one"
            refuse("rows must go from shard to shard", value, "sort them")
        parts = []
        for place in np.unique(number).tolist():
            part, local = self.parts[place], keep[number == place] - starts[place]
            whole = np.array_equal(local, np.arange(part.size))
            changed = part.changed("subset", local, size=len(local), counts=None)
            parts.append(part if whole else changed)
        return self._changed(parts, ["subset", hashlib.sha256(keep.tobytes()).hexdigest()])

    def split(self, name: str) -> Self:
        """Cases of one split: tune, certify or report.

        Shards that hold none of them are never read.

        Args:
          name: `tune`, `certify` or `report`.

        Raises:
          ValueError: no case is of that split.
        """
        counts = [part.counted() for part in self.parts]
        parts = []
        for part, own in zip(self.parts, counts, strict=True):
            if name in own:
                of_split = {name: own[name]}
                changed = part.changed("split", name, size=count_size(of_split), counts=of_split)
                parts.append(replace(part, counts=own) if len(own) == 1 else changed)
        if not parts:
            raise split_error(name, {split for own in counts for split in own})
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
        ids: Sequence[Any] = [case.id for case in self.cases] if by_case else range(len(self))
        column = signal_column(signal, values, (len(self), len(self.arms), self.n_depths), ids)
        bits = np.where(np.isnan(column), np.nan, column).tobytes()
        parts = [
            part.changed("with_column", signal, column[start : start + part.size])
            for part, start in zip(self.parts, part_starts(self.parts).tolist(), strict=False)
        ]
        what = ["signal", name, declaration(signal), hashlib.sha256(bits).hexdigest()]
        return self._changed(parts, what)

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
        parts = []
        for part, start in zip(self.parts, part_starts(self.parts).tolist(), strict=False):
            rows = slice(start, start + part.size)
            labelled = (tuple(labels[rows]), tuple(extra[rows]))
            parts.append(part.changed("with_labels", *labelled, counts=None))
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
            check_alike(_stated(self), _stated(trace))
        every: list[ShardedTrace[Any]] = [self, *traces]
        parts = [part for trace in every for part in trace.parts]
        _ids_of(parts)
        fingerprint = joined_fingerprint([trace.fingerprint for trace in every])
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
        if self.place is None or not self.place.is_dir():
            rule = "cases must be appended to a folder of shards as it stands"
            remedy = "write it by `save` first"
            raise input_error(Where("append"), rule, remedy, "a part of one, or a file")
        return _write_version(traces, self.place, shard, append=True)

    def _changed(self, parts: Sequence[Shard], what: Sequence[Any]) -> Self:
        """Trace of other parts, with a fingerprint of its own."""
        fingerprint = digest(canonical_json([self.fingerprint, *what]), 16)
        return replace(self, parts=tuple(parts), fingerprint=fingerprint, place=None)

    @property
    def table(self) -> pd.DataFrame:
        """A row a shard: file, cases and hash."""
        import pandas as pd

        rows = [(Path(part.path).name, part.size, part.sha256[:12]) for part in self.parts]
        return pd.DataFrame(rows, columns=["file", "cases", "hash"])

    def _summary(self) -> Summary:
        known = all(part.counts is not None for part in self.parts)
        counts = self.counted() if known else {}
        labels = sum(map(Counter, counts.values()), Counter[str]())
        splits = {split: sum(by_label.values()) for split, by_label in counts.items()}
        facts = [
            ("cases", f"{len(self):,} in {len(self.parts):,} shards"),
            ("arms", ", ".join(self.arms)),
            ("own signals", ", ".join(self.signals) or "none"),
            ("labels", counted(labels) if known else "not counted"),
            ("splits", counted(splits) if known else "not counted"),
            ("version", str(self.version)),
            ("folder or file", "parts of one" if self.place is None else str(self.place)),
            ("fingerprint", self.fingerprint),
        ]
        meta = [(name, str(value)) for name, value in self.meta.items() if name != "fingerprint"]
        return Summary(facts, {"shards": self.table, "made with": Fold("made with", meta)})


_META = " in their meta"


def _added_signals(trace: ShardedTrace[Any]) -> dict[str, dict[str, Any]]:
    """Declarations of the signals that were added, by name."""
    changes = [change for change in trace.parts[0].changes if change.method == "with_column"]
    return {signal.name: declaration(signal) for signal, _ in (each.arguments for each in changes)}


def _stated(trace: ShardedTrace[Any]) -> dict[str, Any]:
    """What must be alike in traces that are merged.

    Their shared facts, with the signals that were added.
    """
    added = {"signals": list(trace.signals), "added signals": _added_signals(trace)}
    return {**trace.shared, **added}


def _ids_of(parts: Iterable[Any], known: set[str] | None = None) -> set[str]:
    """Ids of all cases of shards or traces, each once.

    Args:
      known: ids that stand there already, to which the others are added.

    Raises:
      InputError: a case stands twice.
    """
    ids = set[str]() if known is None else known
    for part in parts:
        for case in part.cases:
            if case.id in ids:
                refuse_duplicate(case.id, 2)
            ids.add(case.id)
    return ids


def open_shards(path: Path, kind: Any) -> ShardedTrace[Any]:  # noqa: ANN401 - a class of traces
    """Sharded trace of a folder, or of one file; see `Trace.open`."""
    if not path.is_dir():
        trace = kind.load(path)  # to know what it shares with others; let go at once
        part = Shard(str(path), file_hash(path), kind, len(trace), count_cases(trace.cases))
        fingerprint = str(trace.meta.get("fingerprint"))
        return ShardedTrace((part,), shared_facts(trace), fingerprint, kind, path)
    manifest = read_manifest(path)
    shared = shared_hash(manifest.shared)
    parts = []
    for row in manifest.shards:
        facts = ShardFacts(row.fingerprint, row.counts, shared)
        place = str(path / row.file)
        parts.append(Shard(place, row.sha256, kind, row.cases, row.counts, facts=facts))
        # Its content is checked where it is loaded; a shard that is not there stops at once, before
        # hours are spent on those before it.
        if not Path(place).is_file():
            parts[-1].check()
    return ShardedTrace(
        tuple(parts), manifest.shared, manifest.fingerprint, kind, path, manifest.version
    )


def shard_name(version: int, number: int) -> str:
    """Name of a shard's file; a version writes over no file of another."""
    return f"v{version}-{number:05d}.parquet"


def next_version(folder: Path) -> tuple[int, Manifest | None]:
    """Version that a write into a folder makes, and the manifest that stands there.

    None where none does.
    """
    known = read_manifest(folder) if (folder / MANIFEST_NAME).is_file() else None
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
    return _write_version(traces, make_folder(Path(folder)), shard, append=False)


def _write_version(
    traces: Iterable[Any], folder: Path, shard: int | None, *, append: bool
) -> ShardedTrace[Any]:
    """Write traces as the next version of a folder, behind its shards or in their place."""
    check_shard(shard)
    with locked(folder / LOCK):
        if append:
            read_manifest(folder)  # else a folder that lost it would be begun anew
        version, known = next_version(folder)
        remove_orphans(folder, known)
        earlier = known if append else None
        ids = _ids_of(open_shards(folder, Trace).parts) if earlier else set[str]()
        rows: list[ShardRow] = list(earlier.shards) if earlier else []
        shared = earlier.shared if earlier else None
        kind: Any = Trace
        pieces = (piece for trace in traces for piece in _pieces(plain_trace(trace), shard))
        for number, piece in enumerate(progress(pieces, "save", "shard")):
            facts = shared_facts(piece)
            shared = facts if shared is None else shared
            check_alike(shared, facts)
            shared = {**shared, **joined_failed_calls([shared, facts], FAILED_FACT)}
            _ids_of([piece], ids)
            path = folder / shard_name(version, number)
            piece.save(path)
            rows.append(shard_row(piece, path))
            kind = type(piece)
        if shared is None:
            rule, remedy = "a trace of shards must have at least one case", "give at least one"
            raise input_error(Where(str(folder)), rule, remedy, "no trace")
        replace_shards(folder, known, rows, shared)
    return open_shards(folder, kind)


def replace_shards(
    folder: Path, known: Manifest | None, rows: Sequence[ShardRow], shared: Mapping[str, Any]
) -> None:
    """Write the manifest of a next version, then remove what it names no more of the one before."""
    before = None if known is None else known.content
    version = 1 if known is None else known.version + 1
    write_manifest(folder, Manifest(version, before, shared, tuple(rows)))
    for row in set(known.files if known else ()) - {row.file for row in rows}:
        for name in (row, f"{row}.latency"):
            (folder / name).unlink(missing_ok=True)


def check_shard(shard: int | None) -> None:
    """Raise ValueError for a shard of less than one case."""
    if shard is not None and shard < 1:
        refuse("shard must be at least 1", shard, "10000 cases of 50 hits take 0.4 GB")


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
    for path in list(folder.iterdir()):
        match = _OF_VERSION.fullmatch(path.name)
        if match is None or int(match[2]) > known.version:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif match[1] not in known.files:
            path.unlink(missing_ok=True)
