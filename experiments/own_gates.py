"""A gate of one's own and another order of the gates.

Does a question asked live come out as its replay does?

Every question of a set is asked of an index and of its LangGraph, under a policy with a gate of the
user before the gap gate and similarity before L2, and compared with a trace of the same documents:
status, reason and, where it refuses, what decided. Prints how many agree, and what decided.

    python -m experiments.own_gates [every n-th question] [--data FOLDER with a policy.yaml]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import raglab

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
ORDER = ["domain", "similarity", "gates.brief", "l2", "density", "gap", "coverage", "confidence"]
CHANGES: tuple[Any, ...] = (
    *("similarity.min_similarity", 0.45),
    *("gates.brief.most", 14.0),
    *("confidence.tau_default", 35.0),
    *("decision.order", ORDER),
)


@raglab.register_gate(
    "brief",
    thresholds={"most": {"side": "ceiling", "default": 12.0, "unit": "count"}},
    reads=["words", "signals.documents"],
)
def brief(read: Any, limits: Any) -> Any:  # noqa: ANN401 - numbers or arrays
    """Long questions pass only where documents are named."""
    return limits.most + 20.0 * read("signals.documents") - read("words")


def main() -> None:
    """Ask, replay, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("every", type=int, nargs="?", default=1)
    parser.add_argument("--data", type=Path, default=BROKER)
    args = parser.parse_args()
    corpus, cases = raglab.load_corpus(args.data), raglab.load_cases(args.data)[:: args.every]
    policy = raglab.Policy.load(args.data / "policy.yaml").replace(*CHANGES)
    trace = raglab.build_trace(corpus, cases, policy=policy, max_depth=policy.refine.max_depth)
    agree: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        raglab.build_index(corpus, Path(folder) / "index", policy=policy)
        system = raglab.System.open(Path(folder) / "index", policy=policy, cache=False, audit=False)
        graph = raglab.live.build_graph(system)
        # With the answers that live would be given, so that what is not fit to leave is refused
        # here as well.
        decisions = raglab.decide(
            raglab.record_answers(trace, policy, system.generator, system.scorer), policy
        )
        for row, case in enumerate(cases):
            stated = {"question": case.query, "documents": list(case.selected_sources)}
            live = raglab.ask(case.query, system=system, documents=stated["documents"])
            by_graph = graph.invoke(stated)["response"]
            status = raglab.values.Status(int(decisions.status[row])).name
            reason = decisions.reason(row) if status == "refuse" else None
            agree["ask"] += (live["status"], live["refusal_reason"]) == (status, reason)
            agree["graph"] += (by_graph["status"], by_graph["refusal_reason"]) == (status, reason)
            decided[str(decisions.decided_by[row])] += 1
    print(
        f"{len(cases)} questions; ask agrees with the replay in {agree['ask']}, the graph in "
        f"{agree['graph']}"
    )
    print("decided by", ", ".join(f"{name} {count}" for name, count in decided.most_common()))


if __name__ == "__main__":
    main()
