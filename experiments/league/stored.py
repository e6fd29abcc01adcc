"""Stored files of published repositories: JSON and JSON lines, gzipped or not."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any


def stored_text(path: Path) -> str:
    """Text of a file."""
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def stored_lines(path: Path) -> list[dict[str, Any]]:
    """Records of a file of JSON lines."""
    return [json.loads(line) for line in stored_text(path).split("\n") if line.strip()]


def stored_records(path: Path) -> list[dict[str, Any]]:
    """Records of a file of JSON objects or lists, one after another, over one line or several."""
    text, read, place = stored_text(path).strip(), json.JSONDecoder(), 0
    records: list[dict[str, Any]] = []
    while place < len(text):
        record, place = read.raw_decode(text, place)
        records += record if isinstance(record, list) else [record]
        place += len(text[place:]) - len(text[place:].lstrip())
    return records


def read_note(folder: Path) -> str:
    """Number of JSON files below a folder, and one hash of their names and contents."""
    files = sorted(path for path in folder.rglob("*.json*") if path.is_file())
    total = hashlib.sha256()
    for path in files:
        content = hashlib.sha256(path.read_bytes()).digest()
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return f"{folder.name}: {len(files)} files, SHA-256 {total.hexdigest()[:16]}"
