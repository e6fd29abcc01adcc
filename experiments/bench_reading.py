"""How fast labelled tables, hits, documents and spans are read; see `bench.py`.

Rows of tables: processor time of one thread. A folder of documents of each format: processor time
of this process and of its readers, the first time and the second. Spans: the same number of traces
once and four times.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench import Options, Row, Rows, module, seconds

TEXT = (
    "the excess of a claim for storm flood fire theft glass is paid by the holder unless cover "
    "was taken out before a term of days within the year on notice"
)


def labelled(rows: int) -> pd.DataFrame:
    """Questions with labels, half of them to refuse."""
    return pd.DataFrame(
        {
            "id": [f"w{n}" for n in range(rows)],
            "question": [f"Question number {n}?" for n in range(rows)],
            "label": ["ok", "refuse"] * (rows // 2),
            "expect_sources": ["a.md;b.md#2", None] * (rows // 2),
            "answer": ["12", None] * (rows // 2),
            "split": "tune",
            "lang": "en",
        }
    )


def hits(rows: int) -> pd.DataFrame:
    """Ten hits a question."""
    number = np.arange(rows)
    passage = [f"d{n % 997}-{n % 10}" for n in range(rows)]
    return pd.DataFrame(
        {
            "query": [f"what is {n // 10}" for n in range(rows)],
            "label": np.where(number // 10 % 2, "ok", "refuse"),
            "hit_id": passage,
            "score": np.random.default_rng(0).random(rows),
            "text": [f"text {name}" for name in passage],
            "source": [f"s{n % 997}" for n in range(rows)],
        }
    )


def tables(options: Options) -> Rows:
    """Labelled rows of a frame, a CSV file and JSON lines; hits; passages."""
    size = 200 if options.quick else 50_000
    loaders, frames = module("loaders", "store"), module("frames", "store")
    frame, hit_rows = labelled(size), hits(size)
    csv, lines = options.folder / "cases.csv", options.folder / "cases.jsonl"
    frame.to_csv(csv, index=False)
    frame.rename(columns={"question": "query", "label": "expect_status"}).drop(
        columns="expect_sources"
    ).to_json(lines, orient="records", lines=True)
    passages = pd.DataFrame({"id": frame["id"], "text": frame["question"], "source": "a.md"})
    read: dict[str, Callable[[], Any]] = {
        "labelled rows of a frame": lambda: loaders.load_cases(frame),
        "labelled rows of a CSV file": lambda: loaders.load_cases(csv),
        "labelled rows of JSON lines": lambda: loaders.load_cases(lines),
        "rows of hits": lambda: frames.trace_from_frame(hit_rows),
        "rows of passages": lambda: loaders.load_corpus(passages),
    }
    for name, run in read.items():
        yield Row(f"{size:,} {name}", seconds(run, 1), "s")


def sentence(draw: np.random.Generator, words: int = 14) -> str:
    """Some words."""
    return f"{' '.join(draw.choice(TEXT.split(), words)).capitalize()}."


def write_documents(folder: Path, each: int) -> int:
    """So many documents of each format; how many there are."""
    import docx
    import openpyxl
    from matplotlib.figure import Figure

    draw = np.random.default_rng(0)
    for number in range(each):
        parts = [(sentence(draw, 4)[:-1], [sentence(draw) for _ in range(8)]) for _ in range(12)]
        place = folder / f"document{number}"
        texts = {
            ".md": "\n\n".join(f"## {head}\n\n" + "\n".join(text) for head, text in parts),
            ".html": "".join(f"<h2>{head}</h2><p>{' '.join(text)}</p>" for head, text in parts),
            ".txt": "\n\n".join("\n".join([head, *text]) for head, text in parts),
            ".rst": "\n\n".join(
                f"{head}\n{'-' * len(head)}\n\n" + "\n".join(text) for head, text in parts
            ),
            ".csv": "peril,remark\n"
            + "".join(f"{head},{line}\n" for head, text in parts for line in text),
            ".ipynb": json.dumps(
                {
                    "cells": [
                        {
                            "cell_type": "markdown",
                            "metadata": {},
                            "source": f"## {head}\n\n{' '.join(text)}",
                        }
                        for head, text in parts
                    ],
                    "metadata": {},
                    "nbformat": 4,
                    "nbformat_minor": 5,
                }
            ),
        }
        for ending, content in texts.items():
            place.with_suffix(ending).write_text(content, encoding="utf-8")
        word, book, page = docx.Document(), openpyxl.Workbook(), Figure()
        for row, (head, text) in enumerate(parts):
            word.add_heading(head, 2)
            word.add_paragraph(" ".join(text))
            page.text(0.1, 0.9 - row / 20, text[0], fontsize=8)
            for line in text:
                book.active.append([head, line])
        word.save(str(place.with_suffix(".docx")))
        book.save(place.with_suffix(".xlsx"))
        page.savefig(place.with_suffix(".pdf"), metadata={"CreationDate": None})
    return 9 * each


def processor_s() -> float:
    """Processor time of this process and of its children that have ended."""
    times = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in times)


def documents(options: Options) -> Rows:
    """A folder of mixed documents, the first time and the second."""
    loaders = module("loaders", "store")
    folder, cache = options.folder / "mixed", options.folder / "cache"
    for place in (folder, cache):
        shutil.rmtree(place, ignore_errors=True)
    folder.mkdir()
    size = write_documents(folder, 1 if options.quick else 22)
    os.environ["RAGLAB_CACHE"] = str(cache)
    module("tokens", "models").encoder_tokens().count(["warm"])
    for name in ("first", "second"):
        start, wall = processor_s(), time.perf_counter()
        loaders.load_corpus(folder)
        yield Row(f"{size} documents, the {name} time", processor_s() - start, "s")
        yield Row(
            f"{size} documents, the {name} time, wall", time.perf_counter() - wall, "s of the wall"
        )


def spans(options: Options) -> Rows:
    """Traces of an application, and four times as many."""
    read = module("span_traces").trace_from_spans
    size = 50 if options.quick else 5_000
    for times in (1, 4):
        path = options.folder / f"spans{times}.jsonl"
        with path.open("w", encoding="utf-8") as lines:
            for number in range(times * size):
                lines.writelines(f"{json.dumps(span)}\n" for span in request(number))
        yield Row(f"{3 * times * size:,} spans", seconds(partial(read, path), 1), "s")


def request(number: int) -> list[dict[str, Any]]:
    """Spans of a request: chain, retriever, model."""
    names, ids = ("CHAIN", "RETRIEVER", "LLM"), count(3 * number + 1)
    query = f"What is the excess of number {number}?"
    hit = "retrieval.documents.0.document"
    facts: list[dict[str, Any]] = [
        {"input.value": query, "output.value": "The excess is 12."},
        {
            "input.value": query,
            f"{hit}.id": f"p{number % 97}",
            f"{hit}.content": "The excess is 12.",
            f"{hit}.score": 0.5,
        },
        {"input.value": query, "output.value": "The excess is 12."},
    ]
    first = f"{3 * number + 1:016x}"
    return [
        {
            "name": kind.lower(),
            "context": {"trace_id": f"{number + 1:032x}", "span_id": f"{place:016x}"},
            "parent_id": None if kind == "CHAIN" else first,
            "start_time": f"2026-11-01T10:00:{place % 3:02}Z",
            "end_time": f"2026-11-01T10:00:{place % 3 + 1:02}Z",
            "attributes": {"openinference.span.kind": kind, **of},
        }
        for kind, of, place in zip(names, facts, ids, strict=False)
    ]


BENCHES = (tables, documents, spans)
