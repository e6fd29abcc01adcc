"""Mixture-of-thought cascade: votes of a weak model, greedy answers of a strong one (date).

Layout of the repository: `GPT3_result/date_{cot1,cot2,pot1,pot2}.json` with `question`, `answer`
and 20 `results` a question, `GPT4_result/date_greedy_cot2.json` with `prediction`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.stored import stored_text
from raglab import bandit
from raglab.values import refuse

KINDS = ("cot1", "cot2", "pot1", "pot2")
VOTES = 5  # of each kind: 20 calls of the weak model
WEAK, STRONG = "weak", "strong"


class DateTable(NamedTuple):
    """Rewards of both arms with signals of the votes; texts; stems; failed votes of each, [Q]."""

    table: bandit.Table
    questions: list[str]
    stems: list[str]
    failed: NDArray[np.int64]


def date_table(folder: Path, *, is_failed_counted: bool = True) -> DateTable:
    """Table of the date questions: the most frequent of 20 votes, or the strong model's answer.

    A vote that failed (null) is no answer. Signals are of votes alone.

    Args:
      folder: of the layout.
      is_failed_counted: whether a vote that failed lowers all shares, or is left out.
    """
    weak = [json.loads(stored_text(folder / f"GPT3_result/date_{kind}.json")) for kind in KINDS]
    strong = json.loads(stored_text(folder / "GPT4_result/date_greedy_cot2.json"))
    texts = [record["question"] for record in strong]
    if any([record["question"] for record in records] != texts for records in weak):
        refuse("all files must have the same questions", "others", "take them of one commit")
    rows, failed = [], []
    for *records, dear in zip(*weak, strong, strict=True):
        votes = [record["results"][:VOTES] for record in records]
        failed.append(sum(kind.count(None) for kind in votes))
        if not is_failed_counted:
            votes = [[vote for vote in kind if vote is not None] for kind in votes]
        rows.append(
            {
                WEAK: float(_counted(votes).most_common(1)[0][0] == dear["answer"]),
                STRONG: float(dear["prediction"] == dear["answer"]),
                **vote_signals(votes),
            }
        )
    frame = pd.DataFrame(rows)
    signals = [name for name in frame if name not in {WEAK, STRONG}]
    table = bandit.Table.from_frame(
        frame, costs={WEAK: 0.0, STRONG: 1.0}, price=0.0, features=signals, order="given"
    )
    return DateTable(table, texts, [_stem(text) for text in texts], np.array(failed))


def vote_signals(votes: Sequence[Sequence[str | None]]) -> dict[str, float]:
    """Shares of the two most frequent answers, and the least share of the first in a kind.

    Args:
      votes: answers of each kind; None where a vote failed.

    Example:
      >>> vote_signals([["a", "a"], ["a", "b"]])
      {'first': 0.75, 'second': 0.25, 'least_kind': 0.5}
    """
    total = max(1, sum(map(len, votes)))
    (best, first), (_, second), *_ = [*_counted(votes).most_common(2), ("", 0)]
    shares = [[*kind].count(best) / max(1, len(kind)) for kind in votes]
    return {"first": first / total, "second": second / total, "least_kind": min(shares)}


def _counted(votes: Sequence[Sequence[str | None]]) -> Counter[str]:
    """Answers of all kinds, counted; one without any answer is the empty text."""
    answers = Counter(vote for kind in votes for vote in kind if vote is not None)
    return answers or Counter({"": 0})


def _stem(question: str) -> str:
    """What is told before the last sentence, which asks."""
    return re.split(r"(?<=[.!?])\s+(?=What)", question)[0]
