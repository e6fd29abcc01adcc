"""Score directions (algebra): whether labels contradict the direction of a score (S2.15, S2.17)."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.learned_cases import HELD_BACK_SPLITS
from raglab.values import UNLABELLED, BoolArray, Status, TraceData, WholeArray, label_codes

MIN_RANKED_CASES = 10  # right cases, and others, below which labels contradict no direction
DIRECTION_SIGNS = {"surer": 1.0, "ask": -1.0}
HIT_SCORES = ("cosine", "s_rerank", "s_hybrid")  # fields of `Hits` of which more is surer
HIT_SIGNALS = ("top1_cosine", "confidence", "hybrid")  # the same as signals of a case
DIRECTION_REMEDY = "declare the other direction (a cosine is no distance), or give 1 - score"


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
    """A score of cases with their labels.

    Attributes:
      score: NaN if none, [Q].
      right: whether each case is right, or should be answered, [Q].
      ambiguous: whether each case should be asked back, [Q].
    """

    score: NDArray[np.floating[Any]]
    right: BoolArray
    ambiguous: BoolArray

    @classmethod
    def of_labels(cls, score: NDArray[np.floating[Any]], label: WholeArray) -> ScoredCases:
        """Labelled cases, ok against refuse.

        Args:
          score: of the cases, [Q].
          label: code of each case's label, [Q].
        """
        scored_cases = cls(score, label == Status.ok, label == Status.ambiguous)
        return scored_cases.rows(label != UNLABELLED)

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
        score_values, is_right, _ = self.rows(~np.isnan(self.score) & ~self.ambiguous)
        n_fewer = min(int(is_right.sum()), int((~is_right).sum()))
        if direction not in DIRECTION_SIGNS or not n_fewer:
            return ScoreRanking(len(is_right))
        surer_values = DIRECTION_SIGNS[direction] * score_values
        auroc_range = metrics.auroc_interval(is_right, surer_values, level)
        return ScoreRanking(
            len(is_right), n_fewer, metrics.auroc(is_right, surer_values), *map(float, auroc_range)
        )

    def contradiction(
        self,
        name: str,
        direction: str = "surer",
        level: float = 0.95,
        remedy: str = DIRECTION_REMEDY,
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
        n_cases, n_fewer, auroc_area, lower_bound, upper_bound = self.ranking(direction, level)
        if n_fewer < MIN_RANKED_CASES or upper_bound >= 0.5:
            return ""
        score_values, _, is_ambiguous = self.rows(~np.isnan(self.score))
        if (
            direction == "ask"
            and metrics.auroc_interval(is_ambiguous, score_values, level)[0] > 0.5
        ):
            return ""
        return (
            f"{name} ranks against its direction: AUROC {auroc_area:.2f}, {lower_bound:.2f} to "
            f"{upper_bound:.2f}, of "
            f"{n_cases:,} labelled cases; {remedy}."
        )


def warn_of_directions(trace: TraceData, score_names: Iterable[str]) -> None:
    """Warn of each score of a trace whose direction its labels, ok against refuse, contradict.

    It reads the first arm and search, and no case that is held back for a certificate or report.

    Args:
      trace: in memory.
      score_names: of scores, `HIT_SCORES` or signals of the trace.
    """
    is_held_back = [trace_case.split in HELD_BACK_SPLITS for trace_case in trace.cases]
    label_values = np.where(is_held_back, UNLABELLED, label_codes(trace.cases))
    for score_name in score_names:
        if score_name in HIT_SCORES:
            hit_scores = getattr(trace.hits, score_name)[:, 0, 0]
            direction = "surer"
            case_scores = np.fmax.reduce(hit_scores, axis=1, initial=nan)
        else:
            case_scores = trace.columns[score_name][:, 0, 0]
            direction = trace.meta["signals"][score_name]["higher"]
        if warning_text := ScoredCases.of_labels(case_scores, label_values).contradiction(
            score_name, direction
        ):
            warn_user(warning_text)
