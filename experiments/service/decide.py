"""A service's core: load a policy, apply it to frames.

With the distributions of requirements-service.txt alone.

    python experiments/service/decide.py [POLICY]

Prints decisions, what else was imported, megabytes of the environment, seconds of processor time to
import, load and decide, and milliseconds a decision in batches of 1,000 questions with one and with
four hits.
"""

import sys
from pathlib import Path
from time import process_time

HEAVY = ("torch", "transformers", "pyarrow", "matplotlib", "IPython", "mlflow")
POLICY = Path(__file__).parents[2] / "datasets" / "broker" / "policy.yaml"
BATCH = 1_000  # questions


def main() -> None:
    """Decide two questions with two hits and one, then batches, and print what it took."""
    start = process_time()
    import pandas as pd

    import raglab

    decide_frame = raglab.decide_frame
    imported = process_time() - start
    rows = [("the excess?", "a", 0.9), ("the excess?", "b", 0.6), ("Who won?", "b", 0.1)]
    frame = pd.DataFrame(rows, columns=["query", "hit_id", "score"])
    policy = raglab.Policy.load(sys.argv[1] if len(sys.argv) > 1 else POLICY).replace(
        "confidence.enabled", False
    )
    decided = decide_frame(frame, policy)
    seconds = process_time() - start
    heavy = [name for name in HEAVY if name in sys.modules]
    places = {Path(place) for place in sys.path if place.endswith("site-packages")}
    size = sum(
        file.stat().st_size for place in places for file in place.rglob("*") if file.is_file()
    )
    print("statuses", *decided["status"])
    print("imported beside", *(heavy or ["nothing"]))
    print(
        f"environment {size / 2**20:.0f} MB, import {imported:.2f} s, with load and decide "
        f"{seconds:.2f} s"
    )
    for hits in (1, 4):
        batch = pd.DataFrame(
            {
                "query": [f"what is the excess of item {n // hits}?" for n in range(BATCH * hits)],
                "hit_id": [f"{n % 997}" for n in range(BATCH * hits)],
                "text": [
                    f"The excess of item {n % 997} is stated in the schedule."
                    for n in range(BATCH * hits)
                ],
                "score": [0.9 - n % 400 / 1_000 for n in range(BATCH * hits)],
            }
        )
        start = process_time()
        decide_frame(batch, policy)
        print(f"{hits} hits a question: {(process_time() - start) / BATCH * 1e3:.2f} ms a decision")


if __name__ == "__main__":
    main()
