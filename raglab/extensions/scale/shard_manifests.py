"""Manifests of sharded traces (shore): what a shard folder holds, checked to the last (S1.5).

The check goes to the last number.

The manifest comes last, so that a folder always holds a whole version. Its hash tells damage, not
whoever computes it again: what it says of a shard is held against the shard where that is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from raglab.store.files import Where, input_error, read_json, shown_value, write_text
from raglab.store.trace_merging import FAILED_FACT, TraceError, joined_fingerprint, shared_facts
from raglab.store.traces import MANIFEST
from raglab.values import CaseCounts, count_cases
from raglab.words.canonical import canonical_json, digest

MANIFEST_SCHEMA = 1
MAX_MANIFEST_BYTES = 2**28
_SHA256 = re.compile(r"[0-9a-f]{64}")


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


class ShardRow(NamedTuple):
    """Row of a manifest: a file, its cases, hash, fingerprint, and cases by split and label."""

    file: str
    cases: int
    sha256: str
    fingerprint: str | None
    counts: CaseCounts


class Manifest(NamedTuple):
    """What a folder holds.

    Version from 1, content of the version before, what its shards share, a row a shard.
    """

    version: int
    before: str | None
    shared: Mapping[str, Any]
    shards: tuple[ShardRow, ...]

    @property
    def rows(self) -> dict[str, Any]:
        """The manifest as JSON, with the hash of all."""
        rows = {
            "schema_version": MANIFEST_SCHEMA,
            "version": self.version,
            "before": self.before,
            "cases": sum(row.cases for row in self.shards),
            "fingerprint": joined_fingerprint([row.fingerprint for row in self.shards]),
            "shared": dict(self.shared),
            "shards": [row._asdict() for row in self.shards],
        }
        return rows | {"content": digest(canonical_json(rows))}


def read_manifest(folder: Path) -> Manifest:
    """Manifest of a folder.

    Raises:
      TraceError: none there, of another schema, or altered.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise _manifest_error(path, "a folder of a trace must hold its manifest", "none there")
    rows = read_json(path, MAX_MANIFEST_BYTES)
    version = rows.get("schema_version") if isinstance(rows, dict) else None
    if version != MANIFEST_SCHEMA:
        value = f"{shown_value(version)}"
        raise _manifest_error(
            path, f"the schema of a manifest must be version {MANIFEST_SCHEMA}", value
        )
    try:
        shards = tuple(ShardRow(**row) for row in rows["shards"])
        manifest = Manifest(rows["version"], rows["before"], rows["shared"], shards)
        same = bool(shards) and manifest.rows == rows and _is_plausible(manifest)
        # A name of another folder would be read, and written over, as a shard of this one.
        inside = all(
            row.file == Path(row.file).name and row.file.endswith(".parquet") for row in shards
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        value = f"a damaged one ({type(error).__name__})"
        raise _manifest_error(path, "a manifest must be as it was written", value) from error
    if not (same and inside):
        raise _manifest_error(path, "a manifest must be as it was written", "altered content")
    return manifest


def _is_plausible(manifest: Manifest) -> bool:
    """Whether numbers are numbers, texts texts, shards different and counts add up.

    Its hash tells damage, not whoever meant it.
    """
    rows, shared = manifest.shards, manifest.shared
    counts = [n for row in rows for labels in row.counts.values() for n in labels.values()]
    whole = [manifest.version, shared["depths"], *(row.cases for row in rows), *counts]
    names = [
        name for row in rows for split, labels in row.counts.items() for name in (split, *labels)
    ]
    texts = [*names, *(row.file for row in rows), *shared["arms"], *shared["signals"]]
    hashes = [row.sha256 for row in rows]
    optional = [manifest.before, *(row.fingerprint for row in rows)]
    lists = [shared["arms"], shared["signals"], [row.file for row in rows], hashes]
    return (
        all(type(number) is int and number > 0 for number in whole)
        and all(isinstance(text, str) and text for text in texts)
        and all(isinstance(text, str | None) for text in optional)
        and all(isinstance(text, str) and _SHA256.fullmatch(text) for text in hashes)
        and all(type(items) is list and len(set(items)) == len(items) for items in lists)
        and all(
            sum(n for labels in row.counts.values() for n in labels.values()) == row.cases
            for row in rows
        )
        and bool(shared["arms"])
    )


def _manifest_error(path: Path, rule: str, value: str) -> TraceError:
    remedy = "put it back, or write the trace again with `raglab.io.save_shards`"
    return TraceError(str(input_error(Where(str(path)), rule, remedy, value)))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of shards that stand in a folder, whole or not at all.

    What was there goes over to it.
    """
    text = json.dumps(manifest.rows, sort_keys=True, ensure_ascii=False, indent=1)
    write_text(f"{text}\n", folder / MANIFEST)


def shard_row(trace: Any, path: Path) -> ShardRow:  # noqa: ANN401 - a trace
    """Row of a manifest of a trace that was saved."""
    return ShardRow(
        path.name,
        len(trace),
        file_hash(path),
        trace.meta.get("fingerprint"),
        count_cases(trace.cases),
    )
