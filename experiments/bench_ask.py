"""Costs on the bundled documents: a live question, part by part, and building index and trace.

Every question of split `report` is asked twice, without caches; parts are by the stages that a
response tells, in processor time; see `bench.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from bench import ROOT, Options, Row, Rows

import raglab

BROKER = ROOT / "datasets" / "broker"
PARTS = {  # of a question: stages of `record.ms`; what is in none of them is the log
    "encode": ("embed",),
    "retrieve": ("keyword", "dense", "graph", "table", "fuse", "measure", "rewrite"),
    "rerank": ("rerank",),
    "evidence for the gates": ("evidence",),
    "verdicts of the gates": ("gates",),
    "answer and its support": ("generate", "support"),
}


def bundled(options: Options) -> tuple[raglab.Corpus, list[raglab.Case]]:
    """Documents and questions of the bundled set.

    Of the quick size a few, which expect no source.
    """
    corpus, cases = raglab.load_corpus(BROKER), list(raglab.load_cases(BROKER))
    if not options.quick:
        return corpus, cases
    few = [
        case._replace(expect_sources=(), expect_sources_any=(), selected_sources=())
        for case in cases
    ]
    return raglab.Corpus("some", corpus.chunks[:20]), [
        case for case in few if case.split == "report"
    ][:2]


def index(options: Options) -> Path:
    """Folder of the tree's own index, built where it is not there yet."""
    folder = options.folder / "index"
    if not folder.exists():
        raglab.build_index(bundled(options)[0], folder, cache=None)
    return folder


def questions(options: Options) -> list[raglab.Case]:
    """Questions that are asked."""
    return [case for case in bundled(options)[1] if case.split == "report"]


def built(options: Options) -> Rows:
    """Index and trace of the bundled set, models loaded within, nothing cached.

    Measured in the first turn alone.
    """
    if options.first:
        corpus, cases = bundled(options)
        start = time.process_time()
        raglab.build_trace(
            corpus, cases, policy=raglab.Policy.load(BROKER / "policy.yaml"), cache=None
        )
        yield Row("trace of the bundled set", time.process_time() - start, "s")
        start = time.process_time()
        index(options)
        yield Row("index of the bundled documents", time.process_time() - start, "s")


@contextmanager
def processor_time() -> Iterator[None]:
    """Stages timed by the processor instead of the wall."""
    own = [module for name, module in sys.modules.items() if name.startswith("raglab.")]
    loaded = [module for module in own if hasattr(module, "perf_counter")]
    for module in loaded:
        # of modules whose type lacks it
        setattr(module, "perf_counter", time.process_time)  # noqa: B010
    try:
        yield
    finally:
        for module in loaded:
            # of modules whose type lacks it
            setattr(module, "perf_counter", time.perf_counter)  # noqa: B010


def milliseconds(system: raglab.System, cases: Sequence[raglab.Case]) -> dict[str, np.ndarray]:
    """Processor milliseconds of each question and of its parts, the least of two rounds."""
    names = ("question", *PARTS, "log", "retrievals")
    least = {name: np.full(len(cases), np.inf) for name in names}
    with processor_time():
        for _ in range(2):
            for at, case in enumerate(cases):
                start = time.process_time()
                record = raglab.ask(
                    case.query, system=system, documents=case.selected_sources
                ).record
                spent = 1e3 * (time.process_time() - start)
                parts = {
                    name: sum(record.ms.get(stage, 0.0) for stage in stages)
                    for name, stages in PARTS.items()
                }
                measures = parts | {"question": spent, "log": spent - record.ms["total"]}
                measures["retrievals"] = len(record.queries)
                for name, ms in measures.items():
                    least[name][at] = min(least[name][at], ms)
    return least


def asked_live(options: Options) -> Rows:
    """A question and its parts, at the thresholds of the set's policy."""
    folder, cases = index(options), questions(options)
    start = time.process_time()
    system = raglab.System.open(folder, policy=BROKER / "policy.yaml", cache=False)
    raglab.ask(cases[0].query, system=system)
    yield Row("open an index and answer the first question", time.process_time() - start, "s")
    for case in cases[:8]:  # the first questions load what is read lazily
        raglab.ask(case.query, system=system, documents=case.selected_sources)
    ms = milliseconds(system, cases)
    yield Row("question, P50", float(np.median(ms["question"])), "ms")
    # the mean: most questions are refused, and nothing is generated for them
    for name in (*PARTS, "log"):
        yield Row(f"{name}, mean", float(np.mean(ms[name])), "ms")
    yield Row("question, P95", float(np.quantile(ms["question"], 0.95)), "ms")
    gates = ms["evidence for the gates"] + ms["verdicts of the gates"]
    yield Row(
        "one decision of the gates with its evidence, P50",
        float(np.median(gates / ms["retrievals"])),
        "ms",
    )


BENCHES = (built, asked_live)
