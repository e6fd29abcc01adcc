"""A service: load a policy, decide on measured values; with the distributions of requirements-service.txt alone.

    python experiments/service.py [POLICY]

Prints decisions, what else was imported, megabytes of the environment, and seconds to import, load and decide.
"""

import sys
from pathlib import Path
from time import process_time

HEAVY = ("torch", "transformers", "pyarrow", "matplotlib", "IPython", "mlflow")


def main() -> None:
    """Decide three hits of two questions, and print what it took."""
    start = process_time()
    import pandas as pd

    import raglab

    rows = [("the excess?", "a", 0.9, "ok"), ("the excess?", "b", 0.6, "ok"), ("Who won?", "b", 0.1, "refuse")]
    frame = pd.DataFrame(rows, columns=["query", "hit_id", "score", "label"])
    stated = Path(__file__).parents[1] / "datasets" / "broker" / "policy.yaml"
    policy = raglab.Policy.load(sys.argv[1] if len(sys.argv) > 1 else stated).replace("confidence.enabled", False)
    decided = raglab.decide(raglab.trace_from_frame(frame), policy)
    seconds = process_time() - start
    statuses = decided.frame()["status"].tolist()
    heavy = [
        name for name in ("torch", "transformers", "pyarrow", "matplotlib", "IPython", "mlflow") if name in sys.modules
    ]
    places = {Path(place) for place in sys.path if place.endswith("site-packages")}
    size = sum(file.stat().st_size for place in places for file in place.rglob("*") if file.is_file())
    print("statuses", *statuses)
    print("imported beside", *(heavy or ["nothing"]))
    print(f"environment {size / 2**20:.0f} MB, import, load and decide {seconds:.2f} s of processor time")


if __name__ == "__main__":
    main()
