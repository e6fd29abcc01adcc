"""Time and memory of an import of spans: `python experiments/spans.py --spans 1000000`.

Requests of five spans (root, retriever of five documents, reranker, model, guard), of 5,000
documents of 60 words, as JSON lines of OTLP, a span a line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import raglab

WORDS = (
    "storm",
    "excess",
    "flood",
    "cover",
    "limit",
    "policy",
    "claim",
    "home",
    "water",
    "theft",
    "escape",
    "glass",
)
DOCUMENTS, PER_REQUEST = 5_000, 5
START = 1_764_000_000 * 10**9


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP states them."""
    kinds = {str: "stringValue", float: "doubleValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in values.items()]


def request(
    number: int, documents: list[dict[str, str]], chance: random.Random
) -> list[dict[str, Any]]:
    """Spans of a request."""
    question = " ".join(chance.choices(WORDS, k=6)) + "?"
    hits = chance.sample(documents, 5)
    retrieved: dict[str, Any] = {"openinference.span.kind": "RETRIEVER", "input.value": question}
    reranked: dict[str, Any] = {"openinference.span.kind": "RERANKER"}
    for place, hit in enumerate(hits):
        row = {**hit, "score": round(1 - place / 10 - chance.random() / 20, 4)}
        retrieved |= {
            f"retrieval.documents.{place}.document.{key}": value for key, value in row.items()
        }
    for place, hit in enumerate(hits[2::-1]):
        row = {"id": hit["id"], "score": round(5 - place - chance.random(), 4)}
        reranked |= {
            f"reranker.output_documents.{place}.document.{key}": value for key, value in row.items()
        }
    answer = {"output.value": "The excess is £250.", "tenant": f"tenant {number % 12}"}
    parts = [
        {"openinference.span.kind": "CHAIN", "input.value": question, **answer},
        retrieved,
        reranked,
        {"openinference.span.kind": "LLM", "output.value": "The excess is £250."},
        {"openinference.span.kind": "GUARDRAIL"},
    ]
    return [
        {
            "traceId": f"{number:032x}",
            "spanId": f"{number * PER_REQUEST + place:016x}",
            "parentSpanId": f"{number * PER_REQUEST:016x}" if place else "",
            "name": f"step {place}",
            "startTimeUnixNano": str(START + number * 10**9 + place),
            "attributes": attributes(part),
        }
        for place, part in enumerate(parts)
    ]


def write(path: Path, spans: int) -> None:
    """A file of so many spans."""
    chance = random.Random(0)  # noqa: S311 - of an experiment
    documents = [
        {"id": f"document {number}", "content": " ".join(chance.choices(WORDS, k=60))}
        for number in range(DOCUMENTS)
    ]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(spans // PER_REQUEST):
            for span in request(number, documents, chance):
                stream.write(
                    json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"
                )


class Peak(threading.Thread):
    """Largest memory of this process and its children together, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended, self.mib = threading.Event(), 0.0

    def run(self) -> None:
        """Look until the end; memory that processes share counts in each."""
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        while not self.ended.wait(0.1):
            parents = {}
            sizes = {}
            for place in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = place.read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has ended
                parents[int(place.parent.name)], sizes[int(place.parent.name)] = (
                    int(fields[1]),
                    int(fields[21]),
                )
            own = {os.getpid()}
            while more := {child for child, parent in parents.items() if parent in own} - own:
                own |= more
            self.mib = max(self.mib, page * sum(sizes.get(process, 0) for process in own))


def main() -> None:
    """Write the file, import it, print seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spans.jsonl"
        write(path, options.spans)
        peak = Peak()
        peak.start()
        start = time.perf_counter()
        with warnings.catch_warnings(), raglab.lab.parallel_workers("joblib", options.workers):
            warnings.simplefilter("ignore", UserWarning)
            trace = raglab.trace_from_spans(path, groups=("tenant",), out=Path(folder) / "shards")
        seconds = time.perf_counter() - start
        peak.ended.set()
        size = path.stat().st_size / 2**20
        print(
            f"{options.spans:,} spans, {size:,.0f} MiB, {options.workers} workers: {len(trace):,} "
            "cases"
        )
        print(f"{seconds:.1f} s; at most {peak.mib:,.0f} MiB in all processes together")


if __name__ == "__main__":
    main()
