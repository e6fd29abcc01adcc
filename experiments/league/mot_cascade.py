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

from experiments.league.stored import stored_text
from experiments.league.table_checks import table_part
from raglab import bandit

KINDS = ("cot1", "cot2", "pot1", "pot2")
VOTES = 5  # of each kind: 20 calls of the weak model
WEAK, STRONG = "weak", "strong"
MAX_SHARE, SPEND = 0.30, 0.22  # promised; aimed at, so that the bound of 184 questions is within it
MARGINS = (0.02, 0.05)


class DateTable(NamedTuple):
    """Rewards of both arms with signals of the votes; texts; stems of questions that share one."""

    table: bandit.Table
    questions: list[str]
    stems: list[str]


def date_table(folder: Path) -> DateTable:
    """Table of the date questions: the most frequent of 20 votes, or the strong model's answer.

    A vote that failed (null) is no answer; it lowers all shares. Signals are of votes alone.

    Args:
      folder: of the layout.
    """
    weak = [json.loads(stored_text(folder / f"GPT3_result/date_{kind}.json")) for kind in KINDS]
    strong = json.loads(stored_text(folder / "GPT4_result/date_greedy_cot2.json"))
    rows = []
    for *records, dear in zip(*weak, strong, strict=True):
        assert len({record["question"] for record in (*records, dear)}) == 1, "of one question"
        votes = [record["results"][:VOTES] for record in records]
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
    texts = [record["question"] for record in strong]
    return DateTable(table, texts, [_stem(text) for text in texts])


def vote_signals(votes: Sequence[Sequence[str | None]]) -> dict[str, float]:
    """Shares of the two most frequent answers, and the least share of the first in a kind.

    Args:
      votes: answers of each kind; None where a vote failed.

    Example:
      >>> vote_signals([["a", "a"], ["a", "b"]])
      {'first': 0.75, 'second': 0.25, 'least_kind': 0.5}
    """
    total = sum(map(len, votes))
    (best, first), (_, second), *_ = [*_counted(votes).most_common(2), ("", 0)]
    shares = [[*kind].count(best) / len(kind) for kind in votes]
    return {"first": first / total, "second": second / total, "least_kind": min(shares)}


def certified_halves(
    dates: DateTable, n_halves: int = 200, seed: int = 0, *, by_stem: bool = False
) -> pd.DataFrame:
    """Fit on a random half, certify on the other: a row a half.

    The price is fitted for a spend of .22 strong calls; its share between two prices is left out,
    so that the plan is of zeros and ones. Halves share questions: their number certified is a
    frequency on this table, no probability.

    Args:
      dates: the table.
      n_halves: random halves.
      seed: of the halves.
      by_stem: whether questions with a common stem stay in one half.

    Returns:
      `policy`, `strong`, `mixture` (of equal cost on the judged half) and `calls`, means; a column
        a margin, whether it is certified.
    """
    rng, table, questions = np.random.default_rng(seed), dates.table, np.array(dates.questions)
    names = pd.factorize(np.array(dates.stems) if by_stem else questions)[0]
    rows = []
    for _ in range(n_halves):
        is_fitted = (rng.permutation(names.max() + 1) % 2 == 0)[names]
        fitted, judged = (table_part(table, mask) for mask in (is_fitted, ~is_fitted))
        texts = [list(questions[mask]) for mask in (is_fitted, ~is_fitted)]
        policy = bandit.fit_priced_policy(fitted, SPEND, known_costs=True, questions=texts[0])
        policy = policy._replace(price=policy.price._replace(share=0.0))
        # bounds do not depend on the margin
        found = bandit.certify_cascade(
            judged,
            policy,
            reference=STRONG,
            margin=max(MARGINS),
            max_share=MAX_SHARE,
            questions=texts[1],
        )
        bound, is_seldom = found.claims["bound"][0], bool(found.claims["holds"][1])
        certified = {f"{margin:g}": is_seldom and bound <= margin for margin in MARGINS}
        plan, means = policy.plan(judged), judged.gross.mean(axis=0)
        shares = plan.mean(axis=0)
        reward = (plan * judged.gross).sum(axis=1).mean()
        row = {"policy": reward, STRONG: means[1], "mixture": shares @ means, "calls": shares[1]}
        rows.append(row | certified)
    return pd.DataFrame(rows)


def _counted(votes: Sequence[Sequence[str | None]]) -> Counter[str]:
    """Answers of all kinds, counted; one without any answer is the empty text."""
    answers = Counter(vote for kind in votes for vote in kind if vote is not None)
    return answers or Counter({"": 0})


def _stem(question: str) -> str:
    """What is told before the last sentence, which asks."""
    return re.split(r"(?<=[.!?])\s+(?=What)", question)[0]
