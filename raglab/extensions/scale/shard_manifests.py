"""Manifests of sharded traces (shore): what a shard folder holds, checked to the last (S1.5).

The check goes to the last number.

The manifest comes last, so that a folder always holds a whole version. Its hash tells damage, not
whoever computes it again: what it says of a shard is held against the shard where that is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from raglab.store.files import Where, input_error, read_json, shown_value, write_text
from raglab.store.trace_merging import FAILED_FACT, TraceError, joined_fingerprint, shared_facts
from raglab.store.traces import MANIFEST_NAME
from raglab.values import CaseCounts, count_cases
from raglab.words.canonical import canonical_json, digest

MANIFEST_SCHEMA = 1
MAX_MANIFEST_BYTES = 2**28


class ShardFacts(NamedTuple):
    """What a manifest says of a shard's content.

    Fingerprint, cases by split and label, hash of what all share.
    """

    fingerprint: str | None
    counts: CaseCounts
    shared: str


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
      OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def facts_of(trace: Any) -> ShardFacts:  # noqa: ANN401 - a trace
    """What a manifest says of a trace that is a shard."""
    return ShardFacts(
        trace.meta.get("fingerprint"), count_cases(trace.cases), shared_hash(shared_facts(trace))
    )


def shared_hash(shared: Mapping[str, Any]) -> str:
    """Hash of what all shards share; calls that failed are of each."""
    return digest(canonical_json({name: shared[name] for name in shared if name != FAILED_FACT}))


def count_size(counts: CaseCounts) -> int:
    """Number of cases that are counted by split and label."""
    return sum(n_cases for label_counts in counts.values() for n_cases in label_counts.values())


PositiveCount = Annotated[int, Field(gt=0, strict=True)]
NonEmptyText = Annotated[str, Field(min_length=1)]


class SharedFacts(BaseModel, extra="allow"):
    """What a manifest must state of what its shards share."""

    depths: PositiveCount
    arms: Annotated[list[NonEmptyText], Field(min_length=1)]
    signals: list[NonEmptyText]


def _checked_facts(shared: Mapping[str, Any]) -> Mapping[str, Any]:
    SharedFacts.model_validate(shared)
    return shared


class ShardRow(NamedTuple):
    """Row of a manifest: a file, its cases, hash, fingerprint, and cases by split and label.

    The file is one of the folder: another one would be read, and written over, as a shard of it.
    """

    file: Annotated[str, Field(pattern=r"^[^/\\]+\.parquet$")]
    cases: PositiveCount
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    fingerprint: str | None
    counts: dict[NonEmptyText, dict[NonEmptyText, PositiveCount]]


class Manifest(NamedTuple):
    """What a folder holds.

    Version from 1, content of the version before, what its shards share, a row a shard.
    """

    version: PositiveCount
    before: str | None
    shared: Annotated[Mapping[str, Any], AfterValidator(_checked_facts)]
    shards: Annotated[tuple[ShardRow, ...], Field(min_length=1)]

    @property
    def files(self) -> list[str]:
        """Names of the shards' files."""
        return [row.file for row in self.shards]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the whole trace."""
        return joined_fingerprint([row.fingerprint for row in self.shards])

    @property
    def content(self) -> str:
        """Hash of all."""
        return str(self.rows["content"])

    @property
    def rows(self) -> dict[str, Any]:
        """The manifest as JSON, with the hash of all."""
        manifest_fields = {
            "schema_version": MANIFEST_SCHEMA,
            "version": self.version,
            "before": self.before,
            "cases": sum(row.cases for row in self.shards),
            "fingerprint": self.fingerprint,
            "shared": dict(self.shared),
            "shards": [row._asdict() for row in self.shards],
        }
        return manifest_fields | {"content": digest(canonical_json(manifest_fields))}


def read_manifest(folder: Path) -> Manifest:
    """Manifest of a folder.

    Raises:
      TraceError: none there, of another schema, or altered.
    """
    manifest_path = folder / MANIFEST_NAME
    requirement = "a manifest must be as it was written"
    if not manifest_path.is_file():
        raise _manifest_error(
            manifest_path, "a folder of a trace must hold its manifest", "none there"
        )
    manifest_fields = read_json(manifest_path, MAX_MANIFEST_BYTES)
    schema_version = (
        manifest_fields.get("schema_version") if isinstance(manifest_fields, dict) else None
    )
    if schema_version != MANIFEST_SCHEMA:
        raise _manifest_error(
            manifest_path,
            f"the schema of a manifest must be version {MANIFEST_SCHEMA}",
            shown_value(schema_version),
        )
    known_fields = {
        field_name: manifest_fields[field_name]
        for field_name in Manifest._fields
        if field_name in manifest_fields
    }
    try:
        manifest = TypeAdapter(Manifest).validate_json(canonical_json(known_fields), strict=True)
    except ValidationError as error:
        raise _manifest_error(
            manifest_path, requirement, f"altered content at {error.errors()[0]['loc']}"
        ) from error
    # Its hash tells damage, not whoever meant it: shards differ, and counts add up.
    shared = manifest.shared
    hashes = [row.sha256 for row in manifest.shards]
    lists = (shared["arms"], shared["signals"], manifest.files, hashes)
    if (
        manifest.rows != manifest_fields
        or any(len(set(entries)) < len(entries) for entries in lists)
        or any(count_size(row.counts) != row.cases for row in manifest.shards)
    ):
        raise _manifest_error(manifest_path, requirement, "altered content")
    return manifest


def _manifest_error(path: Path, requirement: str, fault_text: str) -> TraceError:
    return TraceError(
        str(
            input_error(
                Where(str(path)),
                requirement,
                "put it back, or write the trace again with `raglab.io.save_shards`",
                fault_text,
            )
        )
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of shards that stand in a folder, whole or not at all.

    What was there goes over to it.
    """
    manifest_text = json.dumps(manifest.rows, sort_keys=True, ensure_ascii=False, indent=1)
    write_text(f"{manifest_text}\n", folder / MANIFEST_NAME)


def shard_row(trace: Any, path: Path) -> ShardRow:  # noqa: ANN401 - a trace
    """Row of a manifest of a trace that was saved."""
    return ShardRow(
        path.name,
        len(trace),
        file_hash(path),
        trace.meta.get("fingerprint"),
        count_cases(trace.cases),
    )
