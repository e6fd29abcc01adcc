"""Reward (algebra): components of a strategy's reward, weighted, normalised, clamped (S4.3, S4.4).

A log holds components, never rewards: any weights re-score it exactly, with the bits they would
have given live.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.values import AnyArray, BoolArray, FloatArray, Floats, refuse

if TYPE_CHECKING:
    from pandas import DataFrame

UNIT_NORM = 1e-3  # how far from 1 the length of a stored float32 unit vector may be

ComponentColumns: TypeAlias = "Mapping[str, Any] | DataFrame"


class RewardWeights(NamedTuple):
    """Weights w1 … w5 of the reward, each at least 0.

    Scalar, or arrays that broadcast against the rows.

    Attributes:
      margin: w1, of the margin.
      diversity: w2, of the diversity.
      latency: w3, of the latency.
      cache: w4, of a hit in the cache.
      consistency: w5, of the consistency.
      lambda_: cost of one whole budget of latency, in units of its weight.
      delta: reward of an answer from the cache, in units of its weight.
      brevity: of the optional brevity; with weight 0 it is not read.
      logprob: of the optional log-probability; with weight 0 it is not read.
      thumbs: of the optional thumb; with weight 0 it is not read.
    """

    margin: Floats = 0.4
    diversity: Floats = 0.1
    latency: Floats = 0.2
    cache: Floats = 0.1
    consistency: Floats = 0.2
    lambda_: Floats = 2.0
    delta: Floats = 1.0
    brevity: Floats = 0.0
    logprob: Floats = 0.0
    thumbs: Floats = 0.0


PUBLISHED_REWARD_WEIGHTS = RewardWeights()  # those of the source
HALF_WORDS = 50.0  # of an answer that is half as brief as can be
REWARD_BUDGET_MS = 8000.0  # of a question, in milliseconds (rule S4.4)


class Component(NamedTuple):
    """One part of the reward, an entry of `COMPONENT_BY_NAME`.

    Attributes:
      weight: field of `RewardWeights`, whose default is the published weight.
      variable: in the environment, after `RAGLAB_BANDIT_`; empty where none sets it.
      measured: name of the measurement, with its unit.
      times: field that multiplies the weight; empty where none does.
      sign: −1 where more of it is worth less.
      high: its largest value.
      optional: whether a row may lack it, which then leaves its weight out.
    """

    weight: str
    variable: str
    measured: str
    times: str = ""
    sign: int = 1
    high: float = 1.0
    optional: bool = False


COMPONENT_BY_NAME: dict[
    str, Component
] = {  # by name of the component, in the order in which terms are added (rules S4.3, S4.4)
    "margin": Component(
        "margin", "W1", "best less second reranked score, in [0, 1]; `score_margin`"
    ),
    "diversity": Component(
        "diversity", "W2", "one less the mean cosine between chosen hits; `hit_diversity`"
    ),
    "latency_ratio": Component(
        "latency",
        "W3",
        "milliseconds over the budget, at least 0",
        times="lambda_",
        sign=-1,
        high=np.inf,
    ),
    "cache_hit": Component(
        "cache", "W4", "1 where the answer came from the cache, else 0", times="delta"
    ),
    "consistency": Component(
        "consistency", "W5", "pairs that both passes order alike; `rank_consistency`"
    ),
    "brevity": Component(
        "brevity", "W_BREVITY", "of an answer, in [0, 1]; `answer_brevity`", optional=True
    ),
    "logprob": Component(
        "logprob",
        "W_LOGPROB",
        "the generator's own probability of an answer, not its logarithm",
        optional=True,
    ),
    "thumbs": Component("thumbs", "W_THUMBS", "1 for a thumb up, 0 for one down", optional=True),
}
LESS_IS_BETTER = tuple(name for name, part in COMPONENT_BY_NAME.items() if part.sign < 0)
COMPONENTS = tuple(name for name, part in COMPONENT_BY_NAME.items() if not part.optional)
OPTIONAL_COMPONENTS = tuple(name for name, part in COMPONENT_BY_NAME.items() if part.optional)


class Bounds(NamedTuple):
    """Raw rewards that become 0 and 1, [...].

    Attributes:
      lo: raw reward that becomes 0.
      hi: raw reward that becomes 1.
    """

    lo: Floats
    hi: Floats


def reward(
    components: ComponentColumns, weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS
) -> Floats:
    """Reward in [0, 1], [...]: (raw − lo) / (hi − lo), clamped.

    NaN where a component of `COMPONENTS` is missing.

    Missing is not zero: a row without its margin has no reward. An optional component that is
    missing (no thumb yet) leaves its weight out of raw and of hi for that row. Multiplying w1 … w5
    and the optional weights by the same number changes nothing.

    Args:
      components: arrays or scalars by name, broadcast to [...], or a frame of one row each. margin,
        diversity, cache_hit, consistency, brevity, logprob (a probability, not its logarithm) and
        thumbs (1 up, 0 down) in [0, 1]; latency_ratio is milliseconds over the budget, at least 0.
        Other names are left alone.
      weights: of the components.

    Raises:
      ValueError: a component of `COMPONENTS` is absent, one is outside its range, or a weight is
        negative or NaN, or none is positive.

    Source: rules S4.3 and S4.4.

    Example:
      >>> row = {
      ...     "margin": 0.5,
      ...     "diversity": 0.2,
      ...     "latency_ratio": 0.25,
      ...     "cache_hit": 0.0,
      ...     "consistency": 1.0,
      ... }
      >>> round(reward(row), 9)  # raw 0.32, between −0.4 and 0.8
      0.6
      >>> reward(row | {"latency_ratio": 4.0})
      0.0
    """
    raw_reward, lowest, highest = _reward_bounds(components, weights)
    with np.errstate(invalid="ignore"):
        return _scalar_or_array(
            np.clip(
                (raw_reward - lowest) / np.where(highest > lowest, highest - lowest, np.nan),
                0.0,
                1.0,
            )
        )


def raw(components: ComponentColumns, weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS) -> Floats:
    """Weighted sum of the components before it is normalised, [...].

    Latency counts against it (rule S4.4).

    Args:
      components: as for `reward`.
      weights: of the components.

    Example:
      >>> row = {
      ...     "margin": 0.5,
      ...     "diversity": 0.2,
      ...     "latency_ratio": 0.25,
      ...     "cache_hit": 0.0,
      ...     "consistency": 1.0,
      ... }
      >>> round(raw(row), 9)
      0.32
    """
    return _scalar_or_array(_reward_bounds(components, weights)[0])


def bounds(
    weights: RewardWeights = PUBLISHED_REWARD_WEIGHTS, components: ComponentColumns | None = None
) -> Bounds:
    """Least raw reward of an answer within its budget, and the largest there can be (rule S4.4).

    Args:
      weights: of the components.
      components: of the rows to bound, where an optional one may be missing; None where all are
        there.

    Example:
      >>> lo, hi = bounds()
      >>> round(lo, 9), round(hi, 9)
      (-0.4, 0.8)
    """
    if components is None:
        components = dict.fromkeys((*COMPONENTS, *OPTIONAL_COMPONENTS), 1.0)
    _, lowest, highest = _reward_bounds(components, weights)
    return Bounds(_scalar_or_array(lowest), _scalar_or_array(highest))


def score_margin(s_rerank: ArrayLike, retrieved: ArrayLike | None = None) -> Floats:
    """Reranked score of the best hit minus that of the second, in [0, 1], [...].

    Nothing retrieved has no margin, 0; a single hit counts against 0. A retrieved hit that was not
    reranked makes it NaN: whether it were the best is not known.

    Args:
      s_rerank: of the chosen hits in any order, in [0, 1], [..., K]; NaN is padding, or a hit
        without a score.
      retrieved: which of them are hits, bool [..., K]; None: those with a score.

    Raises:
      ValueError: a score outside [0, 1].

    Source: rule S4.3.

    Example:
      >>> (
      ...     score_margin([0.3, 0.8, float("nan")]),
      ...     score_margin([0.3, 0.8, float("nan")], [True, True, True]),
      ... )
      (0.5, nan)
    """
    rerank_scores = _in_range("s_rerank", float_array(s_rerank, "s_rerank"), 1.0)
    is_hit = _hit_mask(retrieved, ~np.isnan(rerank_scores))
    if rerank_scores.shape[-1] == 0:
        return _scalar_or_array(np.zeros(rerank_scores.shape[:-1]))
    zero_pad = np.zeros((*rerank_scores.shape[:-1], 1))
    # NaN sorts last and stays NaN
    sorted_scores = np.sort(
        np.concatenate([np.where(is_hit, rerank_scores, 0.0), zero_pad], axis=-1), axis=-1
    )
    return _scalar_or_array(
        np.where(
            (is_hit & np.isnan(rerank_scores)).any(axis=-1),
            np.nan,
            sorted_scores[..., -1] - sorted_scores[..., -2],
        )
    )


def hit_diversity(vectors: ArrayLike, retrieved: ArrayLike | None = None) -> Floats:
    """One minus the mean cosine between two of the chosen hits, clipped to [0, 1], [...].

    Fewer than two hits: 0.

    Args:
      vectors: unit vectors of the hits, [..., K, dim]; NaN in a row without one.
      retrieved: which of them are hits, bool [..., K]; None: those without a NaN.

    Raises:
      ValueError: a hit's vector is not of length 1.

    Source: rule S4.3.

    Example:
      >>> (
      ...     hit_diversity([[1.0, 0.0], [0.0, 1.0]]),
      ...     hit_diversity([[1.0, 0.0], [1.0, 0.0]]),
      ...     hit_diversity([[1.0, 0.0]]),
      ... )
      (1.0, 0.0, 0.0)
    """
    unit_vectors = float_array(vectors, "vectors")
    is_hit = _hit_mask(retrieved, np.asarray(~np.isnan(unit_vectors).any(axis=-1)))
    hit_vectors = np.where(is_hit[..., None], unit_vectors, 0.0)
    squared_norms = np.einsum("...kd,...kd->...k", hit_vectors, hit_vectors)
    is_wrong_length = is_hit & (np.abs(squared_norms - 1.0) > 2.0 * UNIT_NORM)
    if is_wrong_length.any():
        refuse(
            "vectors must have length 1",
            f"{float(np.sqrt(squared_norms[is_wrong_length][0])):g}",
            "divide each by its norm",
        )
    n_hits = is_hit.sum(axis=-1)
    # every ordered pair of different hits
    pair_cosines = (hit_vectors.sum(axis=-2) ** 2).sum(axis=-1) - squared_norms.sum(axis=-1)
    diversity = np.clip(1.0 - pair_cosines / np.maximum(n_hits * (n_hits - 1), 1), 0.0, 1.0)
    is_missing = (is_hit & np.isnan(squared_norms)).any(axis=-1)
    return _scalar_or_array(np.where(is_missing, np.nan, np.where(n_hits < 2, 0.0, diversity)))


def rank_consistency(
    first: ArrayLike, second: ArrayLike, retrieved: ArrayLike | None = None
) -> Floats:
    """Share of pairs of hits that both passes put in the same order, in [0, 1], [...].

    A tie in either counts half.

    It is (1 + tau_a) / 2 with Kendall's tau_a: 1 the same order, 0 the reverse, 0.5 unrelated.
    Fewer than two hits have no pair and get 0.5, what tied scores get: 1 would pay an arm the full
    weight for finding nothing.

    Args:
      first: scores of the hits in the first pass, higher is better, [..., K].
      second: scores of the same hits in the second pass; where it is an order, minus the rank. NaN
        in both is padding, NaN in one makes the result NaN.
      retrieved: which of them are hits, bool [..., K]; None: those with a score in either pass.

    Raises:
      ValueError: the two passes differ in shape.

    Source: rule S4.3; Kendall 1938.

    Example:
      >>> rank_consistency([0.9, 0.5, 0.1], [0.8, 0.2, 0.4])  # two of three pairs
      0.6666666666666666
    """
    first_scores = float_array(first, "first")
    second_scores = float_array(second, "second")
    if first_scores.shape != second_scores.shape:
        shapes_text = f"{first_scores.shape} and {second_scores.shape}"
        refuse(
            "first and second must score the same hits",
            f"shapes {shapes_text}",
            "pad both with NaN",
        )
    is_hit = _hit_mask(retrieved, ~(np.isnan(first_scores) & np.isnan(second_scores)))
    first_of_pair, second_of_pair = np.triu_indices(first_scores.shape[-1], 1)
    pair_agreement = np.sign(
        first_scores[..., first_of_pair] - first_scores[..., second_of_pair]
    ) * np.sign(second_scores[..., first_of_pair] - second_scores[..., second_of_pair])
    is_pair = is_hit[..., first_of_pair] & is_hit[..., second_of_pair]
    n_pairs = is_pair.sum(axis=-1)
    consistency = 0.5 + 0.5 * np.where(is_pair, pair_agreement, 0.0).sum(axis=-1) / np.maximum(
        n_pairs, 1
    )
    is_missing = (is_hit & (np.isnan(first_scores) | np.isnan(second_scores))).any(axis=-1)
    return _scalar_or_array(np.where(is_missing, np.nan, consistency))


def threshold(rewards: ArrayLike, rule: float | str = 0.5) -> float:
    """Reward above which a learner of successes calls a round a success.

    Goes into `Bandit(threshold=...)`.

    The source's is 0.5, and stays the default. Where typical rewards lie at it, or nearly all on
    one side, a success hardly tells the arms apart; the median of past rewards splits them in
    halves.

    Args:
      rewards: from history, in [0, 1], of any shape; NaN is left out.
      rule: a number in [0, 1], which is the threshold, or "median": of the rewards. Where no reward
        lies above the median, because many are equal to it, the next lower reward is taken.

    Raises:
      ValueError: another rule, a reward outside [0, 1], or for the median rewards that do not
        differ.

    Source: rule S4.5.

    Example:
      >>> threshold([0.25, 0.5, 0.75, 1.0], "median"), threshold([0.2, 0.9, 0.9, 0.9], "median")
      (0.625, 0.2)
    """
    if rule != "median":
        if isinstance(rule, str) or not 0.0 <= rule <= 1.0:
            refuse("rule must be a number in [0, 1] or 'median'", repr(rule), "0.5 is usual")
        return float(rule)
    reward_values = _in_range("rewards", float_array(rewards, "rewards").ravel(), 1.0)
    known_rewards = reward_values[~np.isnan(reward_values)]
    if not len(known_rewards) or known_rewards.min() == known_rewards.max():
        refuse(
            "rewards must differ for a median to split them",
            f"{len(known_rewards)} alike",
            "state a number instead",
        )
    median_reward = float(np.median(known_rewards))
    return (
        median_reward
        if (known_rewards > median_reward).any()
        else float(known_rewards[known_rewards < median_reward].max())
    )


def answer_brevity(n_words: ArrayLike) -> Floats:
    """Brevity of an answer, in (0, 1], [...].

    1 / (1 + words / 50), so that every further word counts a little less.

    Args:
      n_words: white-space separated words, at least 0, [...]; NaN without an answer.

    Raises:
      ValueError: a negative number.

    Source: rule S4.3, which leaves the form open.

    Example:
      >>> answer_brevity([0, 50, 150]).tolist()
      [1.0, 0.5, 0.25]
    """
    counts = float_array(n_words, "n_words")
    if np.any(counts < 0.0):
        refuse(
            "n_words must be at least 0",
            f"{float(np.nanmin(counts)):g}",
            "NaN says that there is no answer",
        )
    return _scalar_or_array(1.0 / (1.0 + counts / HALF_WORDS))


def _reward_bounds(
    components: ComponentColumns, weights: RewardWeights
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Raw reward, lo and hi of every row.

    Hi takes the same steps as raw, so that rounding never puts raw above it.
    """
    _check_weights(weights)
    absent_names = [
        component_name for component_name in COMPONENTS if component_name not in components
    ]
    if absent_names:
        refuse(
            f"components must hold {', '.join(COMPONENTS)}", f"no {absent_names}", "log it, or NaN"
        )
    # an optional component with weight 0 is not even read: its column may hold anything
    used_components = {
        component_name: component
        for component_name, component in COMPONENT_BY_NAME.items()
        if not component.optional or np.any(_weight(component, weights) > 0.0)
    }
    # one that is optional and absent is missing in every row
    component_values = {
        component_name: _in_range(
            component_name,
            float_array(components.get(component_name, np.nan), component_name),
            component.high,
        )
        for component_name, component in used_components.items()
    }
    # costs come first: they alone make lo, and every gain after them is at least 0
    cost_weights = [
        (component_name, _weight(component, weights))
        for component_name, component in used_components.items()
        if component.sign < 0
    ]
    raw_reward: Any = sum(
        np.multiply(-component_weight, component_values[component_name])
        for component_name, component_weight in cost_weights
    )
    lowest: Any = -sum(
        (component_weight for _, component_weight in cost_weights), start=np.zeros(())
    )
    highest: Any = np.zeros(())
    for component_name, component in used_components.items():
        if component.sign < 0:
            continue
        component_weight = _weight(component, weights)
        if component.optional:  # a row that lacks it has neither the term nor the room for it
            is_known = ~np.isnan(component_values[component_name])
            known_term = np.where(
                is_known, component_weight * component_values[component_name], 0.0
            )
            raw_reward = raw_reward + known_term
            highest = highest + np.where(is_known, component_weight, 0.0)
        else:
            raw_reward = raw_reward + component_weight * component_values[component_name]
            highest = highest + component_weight
    raw_reward, lowest, highest = np.broadcast_arrays(raw_reward, lowest, highest)
    return raw_reward, lowest, highest


def _weight(component: Component, weights: RewardWeights) -> Any:  # noqa: ANN401 - a scalar or an array
    """Weight of a component with what multiplies it, broadcast; at least 0."""
    base_weight = np.asarray(getattr(weights, component.weight), dtype=np.float64)
    return (
        np.multiply(base_weight, getattr(weights, component.times))
        if component.times
        else base_weight
    )


def _in_range(component_name: str, component_values: FloatArray, upper_limit: float) -> FloatArray:
    is_outside = (
        (component_values < 0.0) | (component_values > upper_limit) | np.isinf(component_values)
    )
    if is_outside.any():
        text = "in [0, 1]" if upper_limit == 1.0 else "at least 0, milliseconds over the budget"
        refuse(
            f"{component_name} must be {text}",
            f"{float(component_values[is_outside].flat[0]):g}",
            "NaN says that it is missing",
        )
    return component_values


def _check_weights(weights: RewardWeights) -> None:
    for weight_name, weight in weights._asdict().items():
        values = np.asarray(weight, dtype=np.float64)
        is_wrong = ~((values >= 0.0) & np.isfinite(values))
        if is_wrong.any():
            refuse(
                f"weight {weight_name} must be at least 0",
                f"{float(values[is_wrong].flat[0]):g}",
                "0 leaves it out",
            )
    if not np.all(
        sum(_weight(component, weights) for component in COMPONENT_BY_NAME.values()) > 0.0
    ):
        refuse("one weight at least must be positive", "none", "raise one")


def _hit_mask(retrieved: ArrayLike | None, has_score: BoolArray) -> BoolArray:
    return np.broadcast_to(
        np.asarray(has_score if retrieved is None else retrieved, dtype=bool), has_score.shape
    )


def _scalar_or_array(reward_values: AnyArray) -> Floats:
    """A float for a single value, else float64 [...]."""
    return (
        float(reward_values)
        if np.ndim(reward_values) == 0
        else np.array(reward_values, dtype=np.float64)
    )
