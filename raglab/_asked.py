"""What is asked of a log, checked: targets, arguments, and whether the log can answer at all."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from raglab._estimators import ESTIMATORS, WEIGHTED, Settings
from raglab._logged import Rows, arms_of, read, target_array, weigh

if TYPE_CHECKING:
    import pandas as pd

CERTAIN = 1.0 - 1e-9


def rows_of(
    log: pd.DataFrame,
    targets: tuple[ArrayLike | pd.DataFrame, ...],
    arms: Sequence[Any] | None,
    session: str | ArrayLike | None,
    mask: ArrayLike | None,
) -> tuple[Rows, ...]:
    """Log read once, and weighed for each target."""
    named = [arms_of(target, arms) for target in targets]
    arrays = [target_array(target, len(log)) for target in targets]
    if len({array.shape for array in arrays}) > 1 or len(set(named)) > 1:
        msg = "the two targets must have the same arms in the same order; give both as arrays or both as frames."
        raise ValueError(msg)
    logged = read(log, arrays[0].shape[1], arms=named[0], session=session)
    return tuple(weigh(logged, array, mask) for array in arrays)


def settings_of(rows: Rows, names: Sequence[str], clip: float | None, switch: float | None, seed: int) -> Settings:
    """Arguments of single estimators, with the square root of T where a largest weight is not given."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        msg = f"seed must be a whole number >= 0, got {seed!r}; the same seed gives the same bits."
        raise ValueError(msg)
    root = sqrt(len(rows.weight))
    for name, value in (("clip", clip), ("switch", switch)):
        if value is not None:
            check_weight(name, value)
    uniform = np.random.default_rng(streams(seed)[0]).random(len(rows.weight)) if "replay" in names else None
    return Settings(root if clip is None else clip, root if switch is None else switch, uniform)


def streams(seed: int) -> list[np.random.SeedSequence]:
    """Chance of replay, and of the bootstrap."""
    return np.random.SeedSequence(seed).spawn(2)


def check(names: Sequence[str], level: float, interval: str, n_boot: int) -> None:
    """Refuse arguments out of range."""
    unknown = names if isinstance(names, str) else [name for name in names if name not in ESTIMATORS]
    if unknown:
        msg = f"estimators must be a sequence of {list(ESTIMATORS)}, got {unknown!r}; even one stands in a tuple."
        raise ValueError(msg)
    if not 0.0 < level < 1.0:
        msg = f"level must be in (0, 1), got {level:g}; 0.95 is usual."
        raise ValueError(msg)
    if interval not in {"delta", "bootstrap"}:
        msg = f"interval must be delta or bootstrap, got {interval!r}."
        raise ValueError(msg)
    if n_boot < 1:
        msg = f"n_boot must be at least 1, got {n_boot}; 1000 is usual."
        raise ValueError(msg)


def check_weight(name: str, value: float) -> None:
    """Refuse a largest weight that is none."""
    if not value > 0.0:
        msg = f"{name} must be a weight above 0, got {value:g}; leave it out for the square root of the rounds."
        raise ValueError(msg)


def refuse_deterministic(rows: Rows, names: Sequence[str]) -> None:
    """Refuse weights on a log that chose one arm for certain, where the target does otherwise."""
    asked = [name for name in names if name in WEIGHTED]
    if not asked or rows.log.propensity.min() < CERTAIN or rows.weight.min() >= CERTAIN:
        return
    row = int(rows.weight.argmin())
    msg = (
        f"{', '.join(asked)} must not be used on a log of a deterministic policy: every propensity is 1, and in row "
        f"{row} the target puts {1.0 - rows.weight[row]:.3g} on arms that could not be logged. Log with a floor (every "
        "available arm at some probability) and come back; until then estimators=('dm',) with a reward model from "
        "outside (q_<arm>) is an extrapolation, and replay of the matches says nothing about the other arms."
    )
    raise ValueError(msg)
