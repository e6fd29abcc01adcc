"""Probability of each arm being chosen, exactly: what a log must hold so that other policies can be judged by it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab._choosing import uniform_share
from raglab._indices import beta, index, normal, spread, student
from raglab._largest import largest_beta, largest_normal, largest_t
from raglab._learner import LINEAR, THOMPSON, Bandit, State, check_bandit, check_context, check_mask

Array = NDArray[np.float64]
SUM_ERROR = 1e-9


def propensities(
    state: State, bandit: Bandit, *, mask: ArrayLike | None = None, context: ArrayLike | None = None
) -> Array:
    """Probability that `choose` takes each arm in this round, [..., A]; sums to 1, 0 on masked arms.

    Read it before `choose`, which counts the round. The index policies put 1 on their best arm, or split it over ties
    where these are random; Thompson sampling is integrated over the posteriors of the available arms, to an absolute
    error below 1e-8. With share s of rounds that choose uniformly (epsilon, the floor, or both) it is
    (1 − s) p + s / available. An arm whose draws are best less often than once in 1e12 may get 0; a floor above 0
    keeps every weight of an off-policy estimate finite. Draws are taken as real numbers: with Beta counts below 0.1
    (an exploration above 4 on few rewards) those of `choose` round to 1 and tie, and its lowest arm gains.

    Args:
      mask: available arms, [A] or [..., A]. context: [..., d], for linear policies.

    Raises:
      ValueError: settings outside their ranges, a mask that leaves no arm, or a context that does not fit.

    Source: rules S4.5 and S4.6.

    Example:
      >>> from raglab._choosing import init, update
      >>> bandit = Bandit("thompson_beta")
      >>> state = update(init(2), 0, 1.0, bandit)  # Beta(2, 1) against Beta(1, 1)
      >>> propensities(state, bandit).round(9).tolist()
      [0.666666667, 0.333333333]
      >>> propensities(state, bandit, mask=[False, True]).tolist()
      [0.0, 1.0]
    """
    check_bandit(bandit, state.n.shape[-1])
    if bandit.policy in LINEAR and state.moment.shape[-1] == 0:
        msg = f"{bandit.policy} needs a state with features, got none; give init the same bandit and n_features."
        raise ValueError(msg)
    checked = check_mask(mask, state.n.shape)
    on = np.ones(state.n.shape, np.bool_) if checked is None else checked
    x = check_context(context, state)
    best = (
        _drawn(state, bandit, on, x) if bandit.policy in THOMPSON else _first(index(state, bandit, on, x), bandit, on)
    )
    available = on.sum(axis=-1, keepdims=True)
    most = int(available.max())
    if bandit.floor * most > 1.0:
        msg = f"floor times {most} arms may not pass 1, got {bandit.floor:g}; at most {1.0 / most:g} fits."
        raise ValueError(msg)
    share = uniform_share(bandit, available)
    return np.where(on, (1.0 - share) * best + share / available, 0.0)


def sample(propensity: ArrayLike, uniform: ArrayLike) -> NDArray[np.int64]:
    """Arm that a uniform number picks by the inverse of the cumulated propensities, [...]; never one of propensity 0.

    Args:
      propensity: [..., A], sums to 1. uniform: in [0, 1), [...].

    Raises:
      ValueError: propensities that are negative, NaN or do not sum to 1, or a uniform outside [0, 1).

    Example:
      >>> sample([0.25, 0.0, 0.75], [0.0, 0.2, 0.25, 0.999]).tolist()
      [0, 0, 2, 2]
    """
    p, u = np.asarray(propensity, dtype=np.float64), np.asarray(uniform, dtype=np.float64)
    if not bool((p >= 0.0).all()):
        msg = f"propensity must be at least 0, got {p[~(p >= 0.0)][0]:g}; it is 0 on an arm that is not available."
        raise ValueError(msg)
    total = p.sum(axis=-1)
    missed = np.abs(total - 1.0) > SUM_ERROR
    if missed.any():
        msg = f"propensities of a round must sum to 1, got {total[missed].flat[0]:.9g}; divide them by their sum."
        raise ValueError(msg)
    inside = (u >= 0.0) & (u < 1.0)
    if not inside.all():
        msg = f"uniform must be in [0, 1), got {u[~inside].flat[0]:g}; draw it with Generator.random."
        raise ValueError(msg)
    upto = np.cumsum(p, axis=-1)
    beyond = upto > (u * upto[..., -1])[..., None]
    last = p.shape[-1] - 1 - np.argmax((p > 0.0)[..., ::-1], axis=-1)  # where u · total rounds up to the total
    return np.asarray(np.where(beyond[..., -1], np.argmax(beyond, axis=-1), last), dtype=np.int64)


def _first(score: Array, bandit: Bandit, on: NDArray[np.bool_]) -> Array:
    """1 on the best available score, on the lowest of equal arms or split between them, [..., A]."""
    masked = np.where(on, score, -np.inf)
    tied = on & (masked == masked.max(axis=-1, keepdims=True))
    if bandit.ties == "random":
        return tied / tied.sum(axis=-1, keepdims=True)
    return np.asarray(tied & (np.cumsum(tied, axis=-1) == 1), dtype=np.float64)


def _drawn(state: State, bandit: Bandit, on: NDArray[np.bool_], context: Array) -> Array:
    """Probability that each available arm's draw is the largest, [..., A]."""
    if bandit.policy == "thompson_beta":
        return largest_beta(*beta(state, bandit), on)
    if bandit.policy == "thompson_nig":
        mean, scale, df = student(state, bandit)
    else:
        mean, scale = normal(state, bandit, context)
        scale, df = spread(bandit) * scale, np.zeros(())
    certain = np.asarray(~(on & (scale > 0.0)).any(axis=-1, keepdims=True))  # nothing to draw: the means decide
    scale = np.where(certain, 1.0, scale)
    drawn = largest_t(mean, scale, df, on) if bandit.policy == "thompson_nig" else largest_normal(mean, scale, on)
    return np.where(certain, _first(mean, bandit, on), drawn)
