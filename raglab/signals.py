"""Signals (algebra): name, unit, direction, what a missing one means; retrieval confidence (S2.8, S2.15).

A signal is a named number a case, measured once and free of thresholds. Gates compare one with a threshold, the fused
gate puts several into one probability. One more signal is a row of `BUILT_IN` and its measurement in
`raglab.decision.signal_values`; one that needs more than the hits is a column of the trace.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Unit(NamedTuple):
    """What a number is measured in.

    name: in words. low, high: the values it may take. whole: integers only. note: what people take it for.
    """

    name: str
    low: float
    high: float
    whole: bool = False
    note: str = ""

    @property
    def described(self) -> str:
        """The unit in a sentence: `it is …`."""
        return f"a {self.name}, {self.note}" if self.note else f"a {self.name}"


SQUARED_L2 = Unit("squared L2 distance of unit vectors", 0.0, 4.0)
COSINE = Unit("cosine", -1.0, 1.0, note="not a percentage")
LEAD = Unit("difference of two cosines", 0.0, 2.0)
SCORE_LEAD = Unit("difference of two scores", -1.0, 1.0)
POINTS = Unit("confidence from 0 to 100", 0.0, 100.0)
SHARE = Unit("share", 0.0, 1.0)
COUNT = Unit("count", 1.0, 1_000.0, whole=True)
RATIO = Unit("ratio", 0.0, 1_000.0)
COST = Unit("cost", 0.0, 1e9, note="of which a failed contract is 1")

NUMBER = Unit("count", 0.0, 10_000.0, whole=True)

Direction = Literal["surer", "ask", "either"]
Stage = Literal["query", "hits", "answer"]
Firing = Literal["refuse", "ask", "warn"]


class Signal(NamedTuple):
    """A named number a case.

    direction: `surer` where more of it speaks for an answer, `ask` where more of it speaks for asking back, `either`
    where it says nothing by itself. stage: what must be there before it is measured. missing: what a NaN means to a
    gate; `fires` as everywhere. stored: whether the trace holds it as a column, since it needs more than the hits.
    alone: whether one arm is enough to measure it; live only one answers, so nothing is fitted on others unasked.
    """

    name: str
    unit: Unit
    direction: Direction
    stage: Stage
    meaning: str
    missing: Literal["fires", "passes"] = "fires"
    stored: bool = False
    alone: bool = True


# Measured when the trace is built: the question parser reads the documents of the first hits, which a trace has not.
PARSED: tuple[Signal, ...] = (
    Signal("gaps", NUMBER, "ask", "hits", "things that the question leaves out (rule S5.1)", stored=True),
    Signal("gap_options", NUMBER, "ask", "hits", "values that could fill in the first of them", stored=True),
    Signal("empty_slots", NUMBER, "ask", "query", "slots that the question says nothing of (rule S5.1)", stored=True),
)
BUILT_IN: tuple[Signal, ...] = (
    Signal("confidence", POINTS, "surer", "hits", "retrieval confidence by the reranker alone (rule S2.8)"),
    Signal("top1_cosine", COSINE, "surer", "hits", "cosine of the query and the nearest hit"),
    Signal("mean_cosine", COSINE, "surer", "hits", "mean cosine of the first hits in the arm's order"),
    Signal("gap", SQUARED_L2, "surer", "hits", "distance between the two nearest hits (rule S2.4)"),
    Signal("hybrid", SHARE, "surer", "hits", "best hybrid score of the first hits"),
    Signal("rerank_margin", SCORE_LEAD, "surer", "hits", "reranked score of the first hit above that of the second"),
    Signal("keyword_share", SHARE, "surer", "hits", "share of the query's content words in the first hits"),
    Signal("anchor_similarity", COSINE, "surer", "hits", "best cosine of the query and the text of a group's best hit"),
    Signal("signature_similarity", COSINE, "surer", "hits", "best cosine of the query and a group's signature"),
    Signal("groups", NUMBER, "ask", "hits", "groups of hits with one signature (rule S3.2)"),
    Signal("options", NUMBER, "ask", "hits", "options that could be offered, whatever the gap says (rule S3.5)"),
    Signal("group_gap", SQUARED_L2, "surer", "hits", "distance between the two nearest groups (rule S3.3)"),
    Signal("score_scale", COSINE, "surer", "hits", "mean cosine of all hits"),
    Signal("score_spread", LEAD, "surer", "hits", "standard deviation of the ten best cosines"),
    Signal("nqc", RATIO, "surer", "hits", "that spread over the mean cosine of all hits (NQC: Shtok et al. 2012)"),
    Signal("arms_first", SHARE, "surer", "hits", "share of the pairs of arms with the same first hit", alone=False),
    Signal(
        "arms_overlap",
        SHARE,
        "surer",
        "hits",
        "mean overlap of the pairs of arms among the first five hits",
        alone=False,
    ),
    Signal("words", NUMBER, "either", "query", "words of the query"),
    Signal("entities", NUMBER, "surer", "query", "entities that the query names (rule S2.5)"),
    Signal("documents", NUMBER, "surer", "query", "documents that the user named"),
    Signal("intent_graph", SHARE, "either", "query", "how much it asks for relations (rule S4.1)"),
    Signal("intent_table", SHARE, "either", "query", "how much it asks for figures of a table (rule S4.1)"),
    Signal("complexity", SHARE, "either", "query", "how many steps and conditions it has (rule S4.1)"),
    *PARSED,
    Signal("generation", SHARE, "surer", "answer", "the generator's confidence, calibrated (rule S2.10)"),
    Signal("support", SHARE, "surer", "answer", "support of the answer's weakest claim (rule S2.11)"),
)
NAMES = tuple(signal.name for signal in BUILT_IN)  # rows of `Evidence.signals`; policies use them
SIGNALS = NAMES[:9]  # those of retrieval that the fused gate is fitted on (rule S2.14)


def signal(name: str) -> Signal:
    """A built-in signal by its name.

    Raises:
      KeyError: there is none of that name.

    Example:
      >>> signal("top1_cosine").unit.described
      'a cosine, not a percentage'
    """
    for one in BUILT_IN:
        if one.name == name:
            return one
    msg = f"signal must be one of {', '.join(one.name for one in BUILT_IN)}, got {name!r}."
    raise KeyError(msg)


def degenerate_scores(
    s_rerank: NDArray[np.float64],
    s_raw: NDArray[np.float64],
    text: NDArray[np.integer[Any]],
    reranked: NDArray[np.bool_],
    min_texts: int = 3,
) -> NDArray[np.bool_]:
    """Whether a reranker's output says nothing, so that the hybrid score stands in for the whole query.

    Args:
      s_rerank, s_raw: [..., K]. text: number of the hit's text, [..., K]. reranked: [..., K].
      min_texts: different texts over which equal raw scores say nothing.

    Returns: bool [...]: nothing was reranked, a score is NaN or outside [0, 1], or all raw scores are
      equal over `min_texts` or more different texts.

    Source: rule S2.8.
    """
    bad = reranked & ~((s_rerank >= 0.0) & (s_rerank <= 1.0))
    low = np.where(reranked, s_raw, np.inf).min(axis=-1, initial=np.inf)
    high = np.where(reranked, s_raw, -np.inf).max(axis=-1, initial=-np.inf)
    distinct = np.sort(np.where(reranked, text, -1), axis=-1)
    n_texts = (np.diff(distinct, axis=-1, prepend=-1) != 0).sum(axis=-1)
    return ~reranked.any(axis=-1) | bad.any(axis=-1) | ((low == high) & (n_texts >= min_texts))


def retrieval_confidence(
    s_rerank: NDArray[np.float64],
    s_hybrid: NDArray[np.float64],
    degenerate: NDArray[np.bool_],
    blend: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Retrieval confidence, 0 to 100: a hundred times the best final score among the top hits; 0 without hits.

    Args:
      s_rerank, s_hybrid: of the first `final_k` hits in the arm's order, [K, ...]; NaN where there is none.
      degenerate: [...]. blend: share of the reranker in the final score, in [0, 1], broadcast against [...].

    Source: confidence heuristics, section 3 (rule S2.8).

    Example:
      >>> float(retrieval_confidence(np.array([0.25, 0.5]), np.array([1.0, 0.5]), np.array(False), 1.0))
      50.0
    """
    pure = np.equal(blend, 1.0)
    mixed = s_rerank if np.all(pure) else np.where(pure, s_rerank, blend * s_rerank + (1.0 - blend) * s_hybrid)
    final = np.where(degenerate, s_hybrid, mixed)
    best = np.fmax.reduce(final, axis=0) if len(final) else np.full(final.shape[1:], np.nan)
    return np.where(np.isnan(best), 0.0, 100.0 * best)
