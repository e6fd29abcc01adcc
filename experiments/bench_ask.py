"""What a live question costs, stage by stage, on the bundled documents; above all what the gates add.

Prints a plain table. Times are of the wall, one question after the other, without caches; read the shares.

    python experiments/bench_ask.py [folder of the index]
"""

from __future__ import annotations

import sys
import time
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


if __name__ == "__main__":
    main()
