"""What a live question costs, stage by stage, on the bundled documents; above all what the gates add.

Prints a plain table. Times are of the wall, one question after the other, without caches; read the shares. Last, the
same questions to the same index mounted for reading alone, with and without caches, as a ratio within one run.

    python experiments/bench_ask.py [folder of the index]
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

PARTS = {  # from the narrowest to the widest reading of "the gates"
    "verdicts": ("gates",),
    "and evidence": ("gates", "evidence"),
    "and support": ("gates", "evidence", "support"),
}
AT_MOST = 5.0  # milliseconds that the gates may add to a question
ALLOWED = "50 to 100 ms"  # what the source allowed

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


def main() -> None:
    """Ask every question of the report split under the published policy and under one that lets more through."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/bench-index")
    raglab.build_index(raglab.load_corpus("datasets/broker"), folder)
    start = time.perf_counter()
    lab = raglab.Lab.open(folder, policy="datasets/broker/policy.yaml", cache=False)
    print(f"{'load an index of 420 chunks, models included':<58}{time.perf_counter() - start:>14.2f} s")
    cases = [case for case in raglab.load_cases("datasets/broker") if case.split == "report"]
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
