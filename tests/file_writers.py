"""Writers of every file that raglab writes, each with contents by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from labelled import labelled
from raglab.audit.log_export import export_tables
from raglab.lab.report import page
from raglab.lab.report.blocks import Picture
from raglab.live.prometheus import ARM_METRICS, write_metrics
from raglab.live.trace_building import _write_part
from raglab.store import files
from raglab.store.files import write_lines, write_text
from raglab.store.loaders import save_cases, save_corpus
from raglab.store.log_tables import REQUEST_TABLES, REQUESTS
from raglab.store.policies import Policy
from raglab.values import Case, Chunk, Corpus, Latency


def big(number):
    """Some 12 kB of text that does not compress, another for each number: three pages of a disk."""
    return np.random.default_rng(number).bytes(6_000).hex()


def corpus(number):
    """A corpus of one long chunk."""
    return Corpus("c", (Chunk("a", big(number), "a.md"),))


def policy(number):
    """A policy with long notes."""
    return Policy.load().replace("notes", big(number))


def trace(number):
    """A trace with latencies of some pages."""
    made = labelled(number, {"": 40})
    ms = np.random.default_rng(number).random((40, 1, 1, 64))
    return dataclasses.replace(made, latency=Latency(tuple(f"s{stage}" for stage in range(64)), ms))


def report(number, path):
    """A report of one section with two figures; what stands in it is not the point."""
    pictures = [
        Picture(f"figure{place}", "caption", big(number + place).encode(), big(number))
        for place in range(2)
    ]
    policies = {"defaults": Policy.load().replace("refine.max_depth", 0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "SECTIONS", {"Only": lambda _: pictures})
        return page.write_report(labelled(1, {"": 5}), policies, out=path)


def exported(number, path):
    """Tables of a log that holds one request, in memory."""
    (table,) = (table for table in REQUEST_TABLES if table.name == REQUESTS)
    names = ["seq", "at", *(column.name for column in table.columns)]
    held = {REQUESTS: [dict.fromkeys(names) | {"question": big(number)}]}
    export_tables(SimpleNamespace(rows=lambda name: held.get(name, [])), path.parent)


def prometheus(number, path):
    """Metrics of sixty arms."""
    pytest.importorskip("prometheus_client")
    columns = [row[2] for row in ARM_METRICS]
    rows = [{"arm": f"{big(number)[:90]}{arm}", **dict.fromkeys(columns, 1.0)} for arm in range(60)]
    write_metrics(pd.DataFrame(rows), path)


class Writer(NamedTuple):
    """A writer of a file: `write(number, path)` writes another content for each number."""

    name: str
    write: Callable[[int, Path], object]
    file: str = "kept.out"


WRITERS = (
    Writer("text", lambda number, path: write_text(big(number), path)),
    Writer("bytes", lambda number, path: files.write_bytes(big(number).encode(), path)),
    Writer("lines", lambda number, path: write_lines([{"a": big(number)}], path)),
    Writer("corpus", lambda number, path: save_corpus(corpus(number), path), "corpus.jsonl"),
    Writer(
        "cases",
        lambda number, path: save_cases([Case("a", big(number), "ok")], path),
        "cases.jsonl",
    ),
    Writer("policy", lambda number, path: policy(number).save(path), "policy.yaml"),
    Writer("trace", lambda number, path: trace(number).save(path), "trace.parquet"),
    Writer(
        "part of a trace",
        lambda number, path: _write_part(path, {"text": np.array([big(number)])}),
        "000000000-000000003.npz",
    ),
    Writer("report", report, "report.html"),
    Writer("tables of an audit log", exported, f"{REQUESTS}.parquet"),
    Writer("metrics", prometheus, "raglab.prom"),
)


def contents(folder):
    """Bytes of every file below a folder, by its path there; hidden ones as well."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
