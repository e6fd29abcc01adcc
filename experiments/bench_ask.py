"""What a live question costs, stage by stage, on the bundled documents; above all what the gates add.

Prints a plain table. First the parts of a question in processor time of one thread, which other programs disturb least;
then the stages by the wall, one question after the other, without caches: read the shares. Last, the same questions to
the same index mounted for reading alone, with and without caches, as a ratio within one run.

    python experiments/bench_ask.py [folder of the index] [--parts]
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import raglab
from raglab.live import pipeline, response
from raglab.retrieval import arms, indexes

PARTS = {  # from the narrowest to the widest reading of "the gates"
    "verdicts": ("gates",),
    "and evidence": ("gates", "evidence"),
    "and support": ("gates", "evidence", "support"),
}
AT_MOST = 5.0  # milliseconds that the gates may add to a question
ALLOWED = "50 to 100 ms"  # what the source allowed

LIVE_PARTS = {  # of a question: stages of `seen.ms`; what is in none of them is the log
    "encode": ("embed",),
    "retrieve": ("keyword", "dense", "graph", "table", "fuse", "measure", "rewrite"),
    "rerank": ("rerank",),
    "gates with evidence": ("evidence", "gates"),
    "answer": ("generate", "support"),
}
QUESTION_AT_MOST, GATES_AT_MOST = 45.0, 1.0  # milliseconds: P95 of a question on one core, median of a decision

READ_ONLY_AT_MOST = 1.05  # times a question to an index that can be written


@contextmanager
def read_only(folder: Path) -> Iterator[Path | None]:
    """The same folder mounted for reading alone; None where it cannot be."""
    place = folder.with_name(f"{folder.name}-read-only")
    place.mkdir(exist_ok=True)
    bound = subprocess.run(["/bin/mount", "--bind", str(folder), str(place)], capture_output=True, check=False)
    if bound.returncode:
        place.rmdir()
        yield None
        return
    try:
        subprocess.run(["/bin/mount", "-o", "remount,ro,bind", str(place)], capture_output=True, check=True)
        yield place
    finally:
        subprocess.run(["/bin/umount", "-l", str(place)], capture_output=True, check=False)
        place.rmdir()


def compare_read_only(folder: Path, cases: Sequence[raglab.Case]) -> None:
    """Median milliseconds of a question, asked in turns of an index that can be written and of one that cannot."""
    with read_only(folder) as place:
        if place is None:
            print("\na read-only index: not measured, nothing can be mounted here")
            return
        for what, cache in (("without caches", False), ("from the cache", True)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nothing is logged
                first, *pair = (
                    raglab.Lab.open(one, policy="datasets/broker/policy.yaml", cache=cache)
                    for one in (folder, folder, place)
                )
                for case in cases if cache else cases[:1]:
                    raglab.ask(case.query, lab=first, documents=case.selected_sources)
                if first.caches is not None:
                    first.caches.close()
                ms: list[list[float]] = [[], []]
                for case in (cases[0], *cases):
                    for lab, spent in zip(pair, ms, strict=True):
                        start = time.perf_counter()
                        raglab.ask(case.query, lab=lab, documents=case.selected_sources)
                        spent.append(1e3 * (time.perf_counter() - start))
            written, read = (float(np.median(spent[-len(cases) :])) for spent in ms)
            mark = "met" if read <= READ_ONLY_AT_MOST * written else "MISSED"
            print(
                f"a read-only index, {what:<16}{read:8.2f} ms, writable {written:8.2f} ms: "
                f"ratio {read / written:5.2f}, asked <= {READ_ONLY_AT_MOST:g}: {mark}"
            )


@contextmanager
def processor_time() -> Iterator[None]:
    """Stages timed by the processor instead of the wall."""
    modules = [one for one in (pipeline, response, arms, indexes) if hasattr(one, "perf_counter")]
    for one in modules:
        setattr(one, "perf_counter", time.process_time)  # noqa: B010 - of modules whose type lacks it
    try:
        yield
    finally:
        for one in modules:
            setattr(one, "perf_counter", time.perf_counter)  # noqa: B010 - of modules whose type lacks it


def compare_parts(lab: raglab.Lab, cases: Sequence[raglab.Case], rounds: int = 3) -> None:
    """P50 and P95 of a question and of its parts, processor time, the least of some rounds for each question."""
    for case in cases[:8]:  # the first questions load what is read lazily
        raglab.ask(case.query, lab=lab, documents=case.selected_sources)
    names = ("question", *LIVE_PARTS, "log", "a decision of the gates")
    least = {name: np.full(len(cases), np.inf) for name in names}
    wall = np.full(len(cases), np.inf)
    with processor_time():
        for _ in range(rounds):
            for at, case in enumerate(cases):
                start, begun = time.process_time(), time.perf_counter()
                seen = raglab.ask(case.query, lab=lab, documents=case.selected_sources).seen
                spent = 1e3 * (time.process_time() - start)
                wall[at] = min(wall[at], 1e3 * (time.perf_counter() - begun))
                parts = {name: sum(seen.ms.get(one, 0.0) for one in stages) for name, stages in LIVE_PARTS.items()}
                decision = parts["gates with evidence"] / max(1, len(seen.queries))
                told = parts | {"question": spent, "log": spent - seen.ms["total"], names[-1]: decision}
                for name, ms in told.items():
                    least[name][at] = min(least[name][at], ms)
    print(f"\nprocessor time of one thread, least of {rounds} rounds, {len(cases)} questions")
    for name, ms in {**least, "question, by the wall": wall}.items():
        p50, p95 = np.quantile(ms, 0.5), np.quantile(ms, 0.95)
        asked = {
            "question": (p95, QUESTION_AT_MOST, "P95"),
            "gates with evidence": (p50, GATES_AT_MOST, "P50"),
            names[-1]: (p50, GATES_AT_MOST, "P50"),
        }.get(name)
        mark = (
            "" if asked is None else f"   {asked[2]} asked < {asked[1]:g}: {'met' if asked[0] < asked[1] else 'MISSED'}"
        )
        print(f"  {name:<24}P50 {p50:8.2f} ms   P95 {p95:8.2f} ms{mark}")


def main() -> None:
    """Ask every question of the report split under the published policy and under one that lets more through."""
    folder = Path(next((one for one in sys.argv[1:] if one != "--parts"), "out/bench-index"))
    raglab.build_index(raglab.load_corpus("datasets/broker"), folder)
    start = time.perf_counter()
    lab = raglab.Lab.open(folder, policy="datasets/broker/policy.yaml", cache=False)
    print(f"{'load an index of 420 chunks, models included':<58}{time.perf_counter() - start:>14.2f} s")
    cases = [case for case in raglab.load_cases("datasets/broker") if case.split == "report"]
    compare_parts(lab, cases)
    if "--parts" in sys.argv:
        return
    free = lab.policy.replace("similarity.enabled", False, "l2.enabled", False)
    for name, policy in (("published thresholds", lab.policy), ("without l2 and similarity", free)):
        system = lab.replace(policy)
        raglab.ask(cases[0].query, lab=system)
        seen = [raglab.ask(case.query, lab=system, documents=case.selected_sources).seen for case in cases]
        tries = np.array([len(one.queries) for one in seen])
        print(f"\n{name}: {len(seen)} questions, {tries.mean():.2f} retrievals each")
        stages = sorted({stage for one in seen for stage in one.ms} - {"total"})
        table = {stage: np.array([one.ms.get(stage, 0.0) for one in seen]) for stage in stages}
        total = np.array([one.ms["total"] for one in seen])
        for stage, ms in sorted(table.items(), key=lambda pair: -pair[1].mean()):
            share = ms.sum() / total.sum()
            print(f"  {stage:<20}mean {ms.mean():8.2f} ms   P95 {np.quantile(ms, 0.95):8.2f} ms   {share:6.1%}")
        print(f"  {'all':<20}mean {total.mean():8.2f} ms   P95 {np.quantile(total, 0.95):8.2f} ms")
        for what, names in PARTS.items():
            ms = sum(table[stage] for stage in names if stage in table)
            mark = "met" if ms.mean() < AT_MOST else "MISSED"
            print(
                f"  gates: {what:<13}mean {ms.mean():8.2f} ms   P95 {np.quantile(ms, 0.95):8.2f} ms   "
                f"asked < {AT_MOST:g} ms, the source allowed {ALLOWED}: {mark}"
            )
    compare_read_only(folder, cases)


if __name__ == "__main__":
    main()
