"""Replay, metrics, certificates and bandits without PyTorch.

With the distributions of requirements-replay.txt alone.

    python experiments/service/replay.py

Prints one result of each, what else was imported, and megabytes of the environment before Python
compiles its modules. Ends with 1 where that is above 250 MB.
"""

import sys
from pathlib import Path

HEAVY = ("torch", "transformers", "pyarrow", "matplotlib", "IPython", "mlflow", "optuna", "sklearn")
HITS = Path(__file__).parents[2] / "datasets" / "hits.csv"
MAX_MEGABYTES = 250


def main() -> int:
    """Use each of the four on the bundled table of hits."""
    import pandas as pd

    import raglab
    from raglab import bandit, metrics

    trace = raglab.trace_from_frame(pd.read_csv(HITS), score="cosine", name="broker")
    policy = raglab.lab.starting_policy(trace).replace("similarity.min_similarity", 0.5)
    decided = raglab.decide(trace, policy).frame()
    steps = raglab.steps(trace.split("tune"), policy, path="similarity.min_similarity")
    print("replay", decided["status"].value_counts().to_dict(), len(steps), "steps")
    correct = decided["correct"].to_numpy(bool)
    print("metrics", metrics.clopper_pearson(int(correct.sum()), len(correct)))
    promise = raglab.certify_policy(trace, policy, targets={"hallucination_rate": 0.6})
    print("certificate", promise.certificate.reason)
    rewards = pd.DataFrame({"answer": correct * 1.0, "refuse": 1.0 - correct})
    table = bandit.Table.from_frame(rewards, order="shuffled")
    print("bandit", bandit.run(bandit.Bandit("thompson_beta"), table, rounds=300, replications=10))
    print("imported beside", *([name for name in HEAVY if name in sys.modules] or ["nothing"]))
    folders = [Path(folder) for folder in sys.path if folder.endswith("site-packages")]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files if file.suffix != ".pyc") / 2**20
    print(f"environment {size:.0f} MB")
    return int(size > MAX_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
