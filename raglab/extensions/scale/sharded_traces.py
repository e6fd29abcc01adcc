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
from raglab.values import (
    NO_LABEL,
    Case,
    CaseCounts,
    IntArray,
    WholeArray,
    case_positions,
    count_cases,
    counted,
    refuse,
)
from raglab.words.canonical import canonical_json, digest
from raglab.words.html_display import Fold
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

LOCK = ".lock"
CASES_OF_SHARD = 10_000
StoredTrace = TypeVar("StoredTrace", bound=Any)  # a class of traces
RESTORE_SHARD = "put that file back, or build the trace again"


class TraceChange(NamedTuple):
    """A method of a trace with its arguments, called where a shard is loaded.

    subset: positions of cases, int [q]. split: its name. with_labels: labels, [q], and keys of
    `extra`, [q]. with_column: a signal of the user, and its values, [q], [q, A] or [q, A, D].
    """

    method: str
    arguments: tuple[Any, ...]

    def of_cases(self, all_cases: list[Case]) -> list[Case]:
        """Cases after the change."""
        if self.method == "subset":
            return [all_cases[case_index] for case_index in self.arguments[0].tolist()]
        if self.method == "split":
            return [case for case in all_cases if (case.split or NO_LABEL) == self.arguments[0]]
        return (
            list(labelled_cases(all_cases, *self.arguments))
            if self.method == "with_labels"
            else all_cases
        )

    def apply(self, trace: Any) -> Any:  # noqa: ANN401 - a trace
        """Trace after the change."""
        if self.method == "with_column":
            return with_column(trace, *self.arguments)
        if self.method == "split":  # a trace in memory has no split of those without one
            name = self.arguments[0]
            case_indices = [
                case_index
                for case_index, case in enumerate(trace.cases)
                if (case.split or NO_LABEL) == name
            ]
            return trace.subset(case_indices)
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
                self._refuse(
                    "hold what its manifest says of it", "other cases, arms, signals or parameters"
                )
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
            self._refuse(
                "hold as many cases of each split and label as its manifest counts", "others"
            )
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
        shard_path = Path(self.path)
        fault = "none there"
        with suppress(OSError):
            if shard_path.is_file():
                fault = "another file" if file_hash(shard_path) != self.sha256 else ""
        if not fault:
            return
        remedy = RESTORE_SHARD
        with suppress(InputError):  # a manifest that names another file in its place
            manifest = read_manifest(shard_path.parent)
            if (shard_path.name, self.sha256) not in {
                (shard_entry.file, shard_entry.sha256) for shard_entry in manifest.shards
            }:
                fault = f"{fault}: a newer version ({manifest.version}) stands there"
                remedy = "open the folder again"
        self._refuse("be the file that its manifest names", fault, remedy)

    def _check_size(self, n_cases: int, declared_cases: int) -> None:
        if n_cases != declared_cases:
            self._refuse(
                "hold as many cases as its manifest counts", f"{n_cases} for {declared_cases}"
            )

    def _refuse(self, requirement: str, difference: str, remedy: str = RESTORE_SHARD) -> NoReturn:
        raise TraceError(
            str(input_error(Where(self.path), f"a shard must {requirement}", remedy, difference))
        )


class ShardedCases(Sequence[Case]):
    """Cases of all shards in order, a shard's read without its hits where one is asked for.

    Those of the last shard that was read are kept; another process is sent none of them.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._parts, self._starts = shards, part_starts(shards)
        self._read: tuple[int, list[Case]] = (-1, [])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a case, or cases of a slice
        positions = range(len(self))[place]  # counts from the end, and refuses what is beyond
        if not isinstance(positions, int):
            return tuple(self[position] for position in positions)
        shard_number = int(np.searchsorted(self._starts, positions, side="right")) - 1
        return self._cases_of(shard_number)[positions - int(self._starts[shard_number])]

    def __iter__(self) -> Iterator[Case]:
        for shard_number in range(len(self._parts)):
            yield from self._cases_of(shard_number)

    def __reduce__(self) -> tuple[type[ShardedCases], tuple[Any, ...]]:
        return ShardedCases, (self._parts,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} cases in {len(self._parts):,} shards)"

    def _cases_of(self, shard_number: int) -> list[Case]:
        if self._read[0] != shard_number:
            self._read = (shard_number, self._parts[shard_number].cases)
        return self._read[1]


def part_starts(shards: Sequence[Shard]) -> IntArray:
    """Position of the first case of each shard, and the number of all cases."""
    return np.cumsum([0, *(shard.size for shard in shards)])


@dataclass(frozen=True, repr=False, eq=False)
class ShardedTrace(Result, Generic[StoredTrace]):
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
        return sum(shard.size for shard in self.parts)

    def shards(self) -> Iterator[StoredTrace]:
        """Traces of the shards, one at a time; each is let go before the next is loaded.

        Raises:
          TraceError: a shard is not there, damaged or another one; names it.
        """
        for shard in progress(self.parts, "load", "shard"):
            yield shard.loaded()

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
        meta_facts = {
            fact_name: fact
            for fact_name, fact in self.shared.items()
            if fact_name.endswith(META_SUFFIX)
        }
        facts_by_name = {
            fact_name.removesuffix(META_SUFFIX): fact for fact_name, fact in meta_facts.items()
        }
        return facts_by_name | {"fingerprint": self.fingerprint}

    def counted(self) -> CaseCounts:
        """Cases by split and label; read from the shards' cases where a subset was taken."""
        label_counts: dict[str, Counter[str]] = {}
        for shard in self.parts:
            for split, split_counts in shard.counted().items():
                label_counts.setdefault(split, Counter()).update(split_counts)
        return {split: dict(sorted(label_counts[split].items())) for split in sorted(label_counts)}

    def loaded(self) -> StoredTrace:
        """The whole trace in memory, each shard with the chunks that its cases need."""
        first_shard, *later_shards = map(keep_used_chunks, self.shards())
        trace: StoredTrace = first_shard.merge(*later_shards)
        return trace

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
        with measured_parts(self.parts, policy, arm) as evidence_parts:
            measured_shards = [
                replace(shard, evidence=(len(shard.changes), evidence))
                for shard, evidence in zip(self.parts, evidence_parts, strict=True)
            ]
            yield replace(self, parts=tuple(measured_shards))

    def subset(self, rows: Sequence[int] | WholeArray) -> Self:
        """Trace of some cases only, by position among those of all shards, in their order.

        Args:
          rows: positions among the cases of all shards, ascending.

        Raises:
          ValueError: rows must be positions of cases, at least one, and go from shard to shard.
        """
        case_indices = case_positions(rows, len(self)).astype(np.int64)
        if not len(case_indices):
            refuse(
                f"rows must be positions from 0 to {len(self) - 1}",
                "none",
                "keep at least one case",
            )
        shard_starts = part_starts(self.parts)
        shard_numbers = np.searchsorted(shard_starts, case_indices, side="right") - 1
        if np.any(np.diff(shard_numbers) < 0):
            refuse(
                "rows must go from shard to shard",
                "some of an earlier shard behind a later one",
                "sort them",
            )
        kept_shards = []
        for shard_number in np.unique(shard_numbers).tolist():
            shard = self.parts[shard_number]
            local_indices = case_indices[shard_numbers == shard_number] - shard_starts[shard_number]
            is_whole = np.array_equal(local_indices, np.arange(shard.size))
            changed_shard = shard.changed(
                "subset", local_indices, size=len(local_indices), counts=None
            )
            kept_shards.append(shard if is_whole else changed_shard)
        return self._changed(
            kept_shards, ["subset", hashlib.sha256(case_indices.tobytes()).hexdigest()]
        )

    def split(self, name: str) -> Self:
        """Cases of one split: tune, certify or report.

        Shards that hold none of them are never read.

        Args:
          name: `tune`, `certify` or `report`.

        Raises:
          ValueError: no case is of that split.
        """
        counts_by_shard = [shard.counted() for shard in self.parts]
        split_shards = []
        for shard, label_counts in zip(self.parts, counts_by_shard, strict=True):
            if name in label_counts:
                split_counts = {name: label_counts[name]}
                changed_shard = shard.changed(
                    "split", name, size=count_size(split_counts), counts=split_counts
                )
                split_shards.append(
                    replace(shard, counts=label_counts) if len(label_counts) == 1 else changed_shard
                )
        if not split_shards:
            raise split_error(
                name,
                {split_name for label_counts in counts_by_shard for split_name in label_counts},
            )
        return self._changed(split_shards, ["split", name])

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
        case_hits: pd.DataFrame = shard.hits_of(case_id, arm)
        return case_hits

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
        is_by_case = hasattr(values, "index") and hasattr(values, "to_numpy")
        case_ids: Sequence[Any] = (
            [case.id for case in self.cases] if is_by_case else range(len(self))
        )
        signal_array = signal_column(
            signal, values, (len(self), len(self.arms), self.n_depths), case_ids
        )
        column_bytes = np.where(np.isnan(signal_array), np.nan, signal_array).tobytes()
        changed_shards = [
            shard.changed(
                "with_column", signal, signal_array[shard_start : shard_start + shard.size]
            )
            for shard, shard_start in zip(
                self.parts, part_starts(self.parts).tolist(), strict=False
            )
        ]
        signal_identity = [
            "signal",
            name,
            declaration(signal),
            hashlib.sha256(column_bytes).hexdigest(),
        ]
        return self._changed(changed_shards, signal_identity)

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
        labelled_shards = []
        for shard, shard_start in zip(self.parts, part_starts(self.parts).tolist(), strict=False):
            case_range = slice(shard_start, shard_start + shard.size)
            shard_labels = (tuple(labels[case_range]), tuple(extra[case_range]))
            labelled_shards.append(shard.changed("with_labels", *shard_labels, counts=None))
        return self._changed(labelled_shards, ["labels", label_hash])

    def merge(self, *traces: ShardedTrace[StoredTrace]) -> Self:
        """Trace of the shards of this one, then of the others, which were built apart.

        Args:
          *traces: built apart, of the same corpus.

        Raises:
          InputError: a trace in memory, which has no file to be read from, traces of another
            corpus, other arms, models, patterns or signals, or a case twice.
        """
        for trace in traces:
            if not isinstance(trace, ShardedTrace):
                raise input_error(
                    Where("merge"),
                    "a trace that is merged with shards must be one of shards",
                    "write it first: raglab.io.save_shards([trace], folder)",
                    f"a {type(trace).__name__}",
                )
            check_alike(_stated(self), _stated(trace))
        all_traces: list[ShardedTrace[Any]] = [self, *traces]
        shards = [shard for trace in all_traces for shard in trace.parts]
        _ids_of(shards)
        fingerprint = joined_fingerprint([trace.fingerprint for trace in all_traces])
        return replace(self, parts=tuple(shards), fingerprint=fingerprint, place=None)

    def save(self, folder: str | Path) -> ShardedTrace[StoredTrace]:
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
    ) -> ShardedTrace[StoredTrace]:
        """Next version of the folder: its shards, which stay as they are, then those of new cases.

        Args:
          *traces: of the new cases, each in memory or sharded.
          shard: cases of a shard; None takes those given whole.

        Raises:
          InputError: this trace is not the unchanged one of a folder, a trace differs in more than
            its cases, or a case occurs twice.
        """
        if self.place is None or not self.place.is_dir():
            raise input_error(
                Where("append"),
                "cases must be appended to a folder of shards as it stands",
                "write it by `save` first",
                "a part of one, or a file",
            )
        return _write_version(traces, self.place, shard, append=True)

    def _changed(self, shards: Sequence[Shard], change_identity: Sequence[Any]) -> Self:
        """Trace of other parts, with a fingerprint of its own."""
        fingerprint = digest(canonical_json([self.fingerprint, *change_identity]), 16)
        return replace(self, parts=tuple(shards), fingerprint=fingerprint, place=None)

    @property
    def table(self) -> pd.DataFrame:
        """A row a shard: file, cases and hash."""
        import pandas as pd

        rows = [(Path(shard.path).name, shard.size, shard.sha256[:12]) for shard in self.parts]
        return pd.DataFrame(rows, columns=["file", "cases", "hash"])

    def _summary(self) -> Summary:
        is_counted = all(shard.counts is not None for shard in self.parts)
        label_counts = self.counted() if is_counted else {}
        cases_by_label = sum(map(Counter, label_counts.values()), Counter[str]())
        cases_by_split = {
            split_name: sum(by_label.values()) for split_name, by_label in label_counts.items()
        }
        facts = [
            ("cases", f"{len(self):,} in {len(self.parts):,} shards"),
            ("arms", ", ".join(self.arms)),
            ("own signals", ", ".join(self.signals) or "none"),
            ("labels", counted(cases_by_label) if is_counted else "not counted"),
            ("splits", counted(cases_by_split) if is_counted else "not counted"),
            ("version", str(self.version)),
            ("folder or file", "parts of one" if self.place is None else str(self.place)),
            ("fingerprint", self.fingerprint),
        ]
        meta_rows = [
            (fact_name, str(fact))
            for fact_name, fact in self.meta.items()
            if fact_name != "fingerprint"
        ]
        return Summary(facts, {"shards": self.table, "made with": Fold("made with", meta_rows)})


META_SUFFIX = " in their meta"


def _added_signals(trace: ShardedTrace[Any]) -> dict[str, dict[str, Any]]:
    """Declarations of the signals that were added, by name."""
    changes = [change for change in trace.parts[0].changes if change.method == "with_column"]
    return {signal.name: declaration(signal) for signal, _ in (each.arguments for each in changes)}


def _stated(sharded_trace: ShardedTrace[Any]) -> dict[str, Any]:
    """What must be alike in traces that are merged.

    Their shared facts, with the signals that were added.
    """
    facts = {
        "signals": list(sharded_trace.signals),
        "added signals": _added_signals(sharded_trace),
    }
    return {**sharded_trace.shared, **facts}


def _ids_of(parts: Iterable[Any], earlier_ids: set[str] | None = None) -> set[str]:
    """Ids of all cases of shards or traces, each once.

    Args:
      earlier_ids: ids that stand there already, to which the others are added.

    Raises:
      InputError: a case stands twice.
    """
    case_ids = set[str]() if earlier_ids is None else earlier_ids
    for cases_holder in parts:
        for case in cases_holder.cases:
            if case.id in case_ids:
                refuse_duplicate(case.id, 2)
            case_ids.add(case.id)
    return case_ids


def open_shards(trace_path: Path, kind: Any) -> ShardedTrace[Any]:  # noqa: ANN401 - a class of traces
    """Sharded trace of a folder, or of one file; see `Trace.open`."""
    if not trace_path.is_dir():
        trace = kind.load(trace_path)  # to know what it shares with others; let go at once
        shard = Shard(
            str(trace_path), file_hash(trace_path), kind, len(trace), count_cases(trace.cases)
        )
        fingerprint = str(trace.meta.get("fingerprint"))
        return ShardedTrace((shard,), shared_facts(trace), fingerprint, kind, trace_path)
    manifest = read_manifest(trace_path)
    shared_digest = shared_hash(manifest.shared)
    shards = []
    for shard_entry in manifest.shards:
        expected_facts = ShardFacts(shard_entry.fingerprint, shard_entry.counts, shared_digest)
        shard_path = str(trace_path / shard_entry.file)
        shards.append(
            Shard(
                shard_path,
                shard_entry.sha256,
                kind,
                shard_entry.cases,
                shard_entry.counts,
                facts=expected_facts,
            )
        )
        # Its content is checked where it is loaded; a shard that is not there stops at once, before
        # hours are spent on those before it.
        if not Path(shard_path).is_file():
            shards[-1].check()
    return ShardedTrace(
        tuple(shards), manifest.shared, manifest.fingerprint, kind, trace_path, manifest.version
    )


def shard_name(version: int, shard_number: int) -> str:
    """Name of a shard's file; a version writes over no file of another."""
    return f"v{version}-{shard_number:05d}.parquet"


def next_version(folder: Path) -> tuple[int, Manifest | None]:
    """Version that a write into a folder makes, and the manifest that stands there.

    None where none does.
    """
    manifest = read_manifest(folder) if (folder / MANIFEST_NAME).is_file() else None
    return (1 if manifest is None else manifest.version + 1), manifest


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
    traces: Iterable[Any], folder: Path, max_cases: int | None, *, append: bool
) -> ShardedTrace[Any]:
    """Write traces as the next version of a folder, behind its shards or in their place."""
    check_shard(max_cases)
    with locked(folder / LOCK):
        if append:
            read_manifest(folder)  # else a folder that lost it would be begun anew
        version, manifest = next_version(folder)
        remove_orphans(folder, manifest)
        earlier_manifest = manifest if append else None
        case_ids = _ids_of(open_shards(folder, Trace).parts) if earlier_manifest else set[str]()
        shard_rows: list[ShardRow] = list(earlier_manifest.shards) if earlier_manifest else []
        common_facts = earlier_manifest.shared if earlier_manifest else None
        trace_class: Any = Trace
        trace_pieces = (
            trace_piece
            for trace in traces
            for trace_piece in _pieces(plain_trace(trace), max_cases)
        )
        for shard_number, trace_piece in enumerate(progress(trace_pieces, "save", "shard")):
            piece_facts = shared_facts(trace_piece)
            common_facts = piece_facts if common_facts is None else common_facts
            check_alike(common_facts, piece_facts)
            common_facts = {
                **common_facts,
                **joined_failed_calls([common_facts, piece_facts], FAILED_FACT),
            }
            _ids_of([trace_piece], case_ids)
            shard_path = folder / shard_name(version, shard_number)
            trace_piece.save(shard_path)
            shard_rows.append(shard_row(trace_piece, shard_path))
            trace_class = type(trace_piece)
        if common_facts is None:
            raise input_error(
                Where(str(folder)),
                "a trace of shards must have at least one case",
                "give at least one",
                "no trace",
            )
        replace_shards(folder, manifest, shard_rows, common_facts)
    return open_shards(folder, trace_class)


def replace_shards(
    folder: Path,
    manifest: Manifest | None,
    shard_rows: Sequence[ShardRow],
    common_facts: Mapping[str, Any],
) -> None:
    """Write the manifest of a next version, then remove what it names no more of the one before."""
    earlier_content = None if manifest is None else manifest.content
    next_number = 1 if manifest is None else manifest.version + 1
    write_manifest(folder, Manifest(next_number, earlier_content, common_facts, tuple(shard_rows)))
    for file_name in set(manifest.files if manifest else ()) - {
        file_name.file for file_name in shard_rows
    }:
        for stale_name in (file_name, f"{file_name}.latency"):
            (folder / stale_name).unlink(missing_ok=True)


def check_shard(max_cases: int | None) -> None:
    """Raise ValueError for a shard of less than one case."""
    if max_cases is not None and max_cases < 1:
        refuse("shard must be at least 1", max_cases, "10000 cases of 50 hits take 0.4 GB")


# a trace, in memory or sharded
def _pieces(trace: Any, max_cases: int | None) -> Iterator[Any]:  # noqa: ANN401
    """Parts of a trace of at most so many cases, each with the chunks that its cases need."""
    if isinstance(trace, ShardedTrace):
        for shard_reference in trace.parts:
            yield from _pieces(shard_reference.loaded(), max_cases)
    elif max_cases is None or len(trace) <= max_cases:
        yield trace
    else:
        for first_case in range(0, len(trace), max_cases):
            yield keep_used_chunks(
                trace.subset(np.arange(first_case, min(first_case + max_cases, len(trace))))
            )


_SHARD_FILE_NAME = re.compile(r"(v(\d+)-\d{5,}\.parquet)(\.latency|\.[0-9a-f]+\.parts)?")


def remove_orphans(folder: Path, manifest: Manifest | None) -> None:
    """Take away what killed writes have left.

    Files of shards up to the version that stands, which it does not name.

    The caller holds the folder's lock. Whoever opened an earlier version loses nothing: where cases
    were appended, the manifest names its shards too; where another trace took its place, they went
    with that write. Files of the next version stay, since a build goes on from them.
    """
    if manifest is None:
        return
    for path in list(folder.iterdir()):
        name_match = _SHARD_FILE_NAME.fullmatch(path.name)
        if name_match is None or int(name_match[2]) > manifest.version:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif name_match[1] not in manifest.files:
            path.unlink(missing_ok=True)
