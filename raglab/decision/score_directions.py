"""Score directions (algebra): whether labels contradict the direction of a score (S2.15, S2.17)."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.learned_cases import HELD_BACK
from raglab.values import UNLABELLED, BoolArray, Status, TraceData, label_codes

LEAST = 10  # right cases, and others, below which labels contradict no direction
SIGNS = {"surer": 1.0, "ask": -1.0}
HIT_SCORES = ("cosine", "s_rerank", "s_hybrid")  # fields of `Hits` of which more is surer
HIT_SIGNALS = ("top1_cosine", "confidence", "hybrid")  # the same as signals of a case
REMEDY = "declare the other direction (a cosine is no distance), or give 1 - score"


class ScoreRanking(NamedTuple):
    """How a score ranks right cases above others.

    Attributes:
      n: cases that have it, without ambiguous ones.
      fewer: right cases or others among them, the rarer kind.
      area: AUROC; NaN where all are of one kind.
      low, high: ends of its interval.
    """

    n: int
    fewer: int = 0
    area: float = nan
    low: float = nan
    high: float = nan


class ScoredCases(NamedTuple):
    """A score of cases beside their labels.

    Attributes:
      score: NaN where there is none, [Q].
      right: whether each case is right, or should be answered, [Q].
      ambiguous: whether each case should be asked back, [Q].
    """

    score: NDArray[np.floating[Any]]
    right: BoolArray
    ambiguous: BoolArray

    @classmethod
    def of_labels(
        cls, score: NDArray[np.floating[Any]], label: NDArray[np.integer[Any]]
    ) -> ScoredCases:
        """Labelled cases, ok against refuse.

        Args:
          score: of the cases, [Q].
          label: code of each case's label, [Q].
        """
        cases = cls(score, label == Status.ok, label == Status.ambiguous)
        return cases.rows(label != UNLABELLED)

    def rows(self, keep: BoolArray) -> ScoredCases:
        """Some of the cases.

        Args:
          keep: whether each case is one of them, [Q].
        """
        return ScoredCases(self.score[keep], self.right[keep], self.ambiguous[keep])

    def ranking(self, direction: str = "surer", level: float = 0.95) -> ScoreRanking:
        """How the score ranks right cases above others; ambiguous ones may lie anywhere.

        Args:
          direction: in which the score is read; `either` ranks nothing.
          level: of the interval, in (0, 1).
        """
        score, right, _ = self.rows(~np.isnan(self.score) & ~self.ambiguous)
        fewer = min(int(right.sum()), int((~right).sum()))
        if direction not in SIGNS or not fewer:
            return ScoreRanking(len(right))
        surer = SIGNS[direction] * score
        interval = metrics.auroc_interval(right, surer, level)
        return ScoreRanking(len(right), fewer, metrics.auroc(right, surer), *map(float, interval))

    def contradiction(
        self, name: str, direction: str = "surer", level: float = 0.95, remedy: str = REMEDY
    ) -> str:
        """What the labels say against the direction of the score, in a sentence; '' if nothing.

        They contradict it where the whole interval of its AUROC, of at least 10 cases of a kind,
        lies below 0.5. More of a score
        that says `ask` may mark ambiguous cases alone: where it does, nothing is contradicted.

        Args:
          name: of the score.
          direction: as it is declared.
          level: of the interval, in (0, 1).
          remedy: in words.
        """
        n, fewer, area, low, high = self.ranking(direction, level)
        if fewer < LEAST or high >= 0.5:
            return ""
        score, _, ambiguous = self.rows(~np.isnan(self.score))
        if direction == "ask" and metrics.auroc_interval(ambiguous, score, level)[0] > 0.5:
            return ""
        return (
            f"{name} ranks against its direction: AUROC {area:.2f}, {low:.2f} to {high:.2f}, of "
            f"{n:,} labelled cases; {remedy}."
        )


def warn_of_directions(trace: TraceData, names: Iterable[str]) -> None:
    """Warn of each score of a trace whose direction its labels, ok against refuse, contradict.

    It reads the first arm and search, and no case that is held back for a certificate or report.

    Args:
      trace: in memory.
      names: of scores, `HIT_SCORES` or signals of the trace.
    """
    held = [case.split in HELD_BACK for case in trace.cases]
    label = np.where(held, UNLABELLED, label_codes(trace.cases))
    for name in names:
        if name in HIT_SCORES:
            hits, direction = getattr(trace.hits, name)[:, 0, 0], "surer"
            score = np.fmax.reduce(hits, axis=1, initial=nan)
        else:
            score = trace.columns[name][:, 0, 0]
            direction = trace.meta["signals"][name]["higher"]
        if text := ScoredCases.of_labels(score, label).contradiction(name, direction):
            warn_user(text)
