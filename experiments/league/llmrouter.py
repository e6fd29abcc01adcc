"""LLMRouter's table of RouterDC: scores of nine models on 5,608 questions, and 500 to judge.

Layout of the repository's `data`: `dcrouter_preprocessed/{train,test}.json` with `question` and
`scores`, `example_data/llm_candidates/default_llm.json` with prices a million tokens.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.rows import INTERVAL, Row, paired_interval, signed
from experiments.league.stored import stored_text
from experiments.league.table_checks import near_duplicates, table_part
from raglab import bandit

HALF = 0.5  # of the price of the best fixed model
RAGLAB, FIXED = "raglab", "best fixed model of train"


def llmrouter_tables(
    folder: Path,
) -> tuple[tuple[bandit.Table, bandit.Table], tuple[list[str], list[str]], list[str]]:
    """Tables of train and test, their questions, and the published cluster of those of train.

    Features are of the texts, fitted on train. The cost of a question is the price list's, dollars
    a million output tokens, since no lengths are stored.

    Args:
      folder: of the layout.
    """
    parts = [
        json.loads(stored_text(folder / f"dcrouter_preprocessed/{part}.json"))
        for part in ("train", "test")
    ]
    listed = json.loads(stored_text(folder / "example_data/llm_candidates/default_llm.json"))
    arms = sorted(parts[0][0]["scores"])
    prices = {arm: float(listed[arm]["output_price"]) for arm in arms}
    texts = [[record["question"] for record in part] for part in parts]
    features = bandit.text_features(texts[0], seed=None)
    tables = []
    for part, questions in zip(parts, texts, strict=True):
        scores = pd.DataFrame([record["scores"] for record in part])[arms]
        frame = pd.concat([scores, features.frame(questions)], axis=1)
        tables.append(
            bandit.Table.from_frame(
                frame, costs=prices, price=0.0, features=features.names, order="given"
            )
        )
    clusters = [str(record["cluster_id"]) for record in parts[0]]
    return (tables[0], tables[1]), (texts[0], texts[1]), clusters


def llmrouter_rows(folder: Path, seed: int = 0) -> list[Row]:
    """Reward against the best fixed model of train, at any price and at half of its price.

    On all test questions, and on those without a near-duplicate in train. The null hypothesis of a
    row is that both earn the same mean reward on such questions; policies stay fixed.

    Args:
      folder: of the layout.
      seed: of the resamples.
    """
    (train, test), (fitted, judged), _ = llmrouter_tables(folder)
    is_clean = ~near_duplicates(judged, fitted)
    fixed = int(np.argmax(train.gross.mean(axis=0)))
    dear = float(train.cost[0, fixed])
    duplicates = f"{int((~is_clean).sum())} of {len(judged)} test questions are nearly in train"
    rows = []
    for label, budget in (
        ("any price", float(train.cost.max())),
        (f"{HALF:.0%} of its price", HALF * dear),
    ):
        policy = bandit.fit_priced_policy(train, budget, known_costs=True, questions=fitted)
        plan = policy.plan(test)
        for part, mask in (("all", np.ones(len(judged), np.bool_)), ("clean", is_clean)):
            rows.append(_judged_row(f"{label}, {part}", test, plan, fixed, mask, duplicates, seed))
    return rows


def _judged_row(
    cell: str,
    test: bandit.Table,
    plan: NDArray[np.float64],
    fixed: int,
    mask: NDArray[np.bool_],
    duplicates: str,
    seed: int,
) -> Row:
    """Row of some test questions."""
    part = table_part(test, mask)
    reference = np.eye(len(test.arms))[fixed]
    plans = {RAGLAB: plan[mask], FIXED: reference}
    shown = bandit.compare_plans(part, plans, reference=FIXED, level=INTERVAL, seed=seed)
    first = shown.to_dict("records")[0]
    gain = ((plan[mask] - reference) * part.gross).sum(axis=1)
    low, high = paired_interval(gain, first["difference_low"], first["difference_high"])
    spend = float(first["spend"]) / float(part.cost[0, fixed])
    return Row(
        "llmrouter",
        cell,
        "reward",
        len(gain),
        free=float(part.gross[:, fixed].mean()),
        free_name=test.arms[fixed],
        hindsight=float(part.gross.mean(axis=0).max()),
        raglab=float(first["reward"]),
        fitted_on="train",
        reference=FIXED,
        difference=float(gain.mean()),
        low=low,
        high=high,
        clusters=len(gain),
        calls=1.0,
        reference_calls=1.0,
        note=f"{duplicates}; spend {signed(spend)[1:]} of the reference's price",
    )
