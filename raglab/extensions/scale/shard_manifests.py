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
    return digest(canonical_json({key: shared[key] for key in shared if key != FAILED_FACT}))


def count_size(counts: CaseCounts) -> int:
    """Number of cases that are counted by split and label."""
    return sum(n for labels in counts.values() for n in labels.values())


Number = Annotated[int, Field(gt=0, strict=True)]
Text = Annotated[str, Field(min_length=1)]


class SharedFacts(BaseModel, extra="allow"):
    """What a manifest must state of what its shards share."""

    depths: Number
    arms: Annotated[list[Text], Field(min_length=1)]
    signals: list[Text]


def _checked_facts(shared: Mapping[str, Any]) -> Mapping[str, Any]:
    SharedFacts.model_validate(shared)
    return shared


class ShardRow(NamedTuple):
    """Row of a manifest: a file, its cases, hash, fingerprint, and cases by split and label.

    The file is one of the folder: another one would be read, and written over, as a shard of it.
    """

    file: Annotated[str, Field(pattern=r"^[^/\\]+\.parquet$")]
    cases: Number
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    fingerprint: str | None
    counts: dict[Text, dict[Text, Number]]


class Manifest(NamedTuple):
    """What a folder holds.

    Version from 1, content of the version before, what its shards share, a row a shard.
    """

    version: Number
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
        rows = {
            "schema_version": MANIFEST_SCHEMA,
            "version": self.version,
            "before": self.before,
            "cases": sum(row.cases for row in self.shards),
            "fingerprint": self.fingerprint,
            "shared": dict(self.shared),
            "shards": [row._asdict() for row in self.shards],
        }
        return rows | {"content": digest(canonical_json(rows))}


def read_manifest(folder: Path) -> Manifest:
    """Manifest of a folder.

    Raises:
      TraceError: none there, of another schema, or altered.
    """
    path, rule = folder / MANIFEST_NAME, "a manifest must be as it was written"
    if not path.is_file():
        raise _manifest_error(path, "a folder of a trace must hold its manifest", "none there")
    rows = read_json(path, MAX_MANIFEST_BYTES)
    version = rows.get("schema_version") if isinstance(rows, dict) else None
    if version != MANIFEST_SCHEMA:
        schema = f"the schema of a manifest must be version {MANIFEST_SCHEMA}"
        raise _manifest_error(path, schema, shown_value(version))
    fields = {name: rows[name] for name in Manifest._fields if name in rows}
    try:
        manifest = TypeAdapter(Manifest).validate_json(canonical_json(fields), strict=True)
    except ValidationError as error:
        value = f"altered content at {error.errors()[0]['loc']}"
        raise _manifest_error(path, rule, value) from error
    # Its hash tells damage, not whoever meant it: shards differ, and counts add up.
    shared, hashes = manifest.shared, [row.sha256 for row in manifest.shards]
    lists = (shared["arms"], shared["signals"], manifest.files, hashes)
    if (
        manifest.rows != rows
        or any(len(set(names)) < len(names) for names in lists)
        or any(count_size(row.counts) != row.cases for row in manifest.shards)
    ):
        raise _manifest_error(path, rule, "altered content")
    return manifest


def _manifest_error(path: Path, rule: str, value: str) -> TraceError:
    remedy = "put it back, or write the trace again with `raglab.io.save_shards`"
    return TraceError(str(input_error(Where(str(path)), rule, remedy, value)))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of shards that stand in a folder, whole or not at all.

    What was there goes over to it.
    """
    text = json.dumps(manifest.rows, sort_keys=True, ensure_ascii=False, indent=1)
    write_text(f"{text}\n", folder / MANIFEST_NAME)


def shard_row(trace: Any, path: Path) -> ShardRow:  # noqa: ANN401 - a trace
    """Row of a manifest of a trace that was saved."""
    return ShardRow(
        path.name,
        len(trace),
        file_hash(path),
        trace.meta.get("fingerprint"),
        count_cases(trace.cases),
    )
