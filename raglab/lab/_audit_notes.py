"""What a reward audit found, in plain sentences; every one with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raglab._worlds import Table
from raglab.reward import PUBLISHED, Clamped, RewardWeights

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
COIN = 0.5


def notes(
    world: Table,
    signals: Mapping[str, Array],
    correlations: pd.DataFrame,
    policies: pd.DataFrame,
    binds: Clamped,
    weights: RewardWeights,
) -> tuple[str, ...]:
    """Findings, the most important first."""
    by_signal = {str(row["signal"]): row for row in correlations.to_dict("records")}
    by_policy = {str(row["policy"]): row for row in policies.to_dict("records")}
    reward = signals["reward"]
    called = "The published weights" if weights == PUBLISHED else "These weights"
    right = bool(np.isin(world.value[world.mask], (0.0, 1.0)).all())
    said = [_room(by_policy, right), _within_cases(called, by_signal["reward"]), _across(called, by_signal["reward"])]
    said += [_led(by_policy, right), _parts(by_signal), _flat(by_signal, signals, world.mask)]
    said += [_spread(reward, world.mask), _clamp(binds), _missing(signals, world.mask)]
    return tuple(line for line in said if line)


def _sum(row: Any, right: bool) -> str:  # noqa: ANN401, FBT001 - a row of a frame
    """Value of a policy in words."""
    return f"is right {row['right']:.4g} of {row['n']} times" if right else f"earns {row['right']:.4g} of {row['n']}"


def _room(rows: Mapping[str, Any], right: bool) -> str:  # noqa: FBT001
    """What choosing could gain at all."""
    best, oracle = rows.get("best fixed arm"), rows["oracle"]
    if best is None:
        return "No arm is available in every case, so there is no fixed arm to compare with."
    gain = f"{best['regret']:.3g}{' right answers' if right else ''}"
    fixed = f"the best fixed arm {best['right']:.4g}"
    return f"The best arm of each case {_sum(oracle, right)}, {fixed}: choosing can gain at most {gain}."


def _within_cases(called: str, row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Does the reward tell the better arm of one question?"""
    counted = f"{row['pairs']} pairs of arms in {row['cases']} cases"
    if not row["pairs"]:
        return "No case has two available arms of different value, so no reward can be told from a coin here."
    share = f"{row['concordance']:.3g}"
    if np.isnan(row["concordance_low"]):
        return f"{called}: the better arm of a question has the higher reward in {share} of {counted}; too few to say."
    sure = f"{share} ({row['concordance_low']:.3g} to {row['concordance_high']:.3g}) of {counted}"
    if row["concordance_low"] > COIN:
        verdict = "better than a coin"
    elif row["concordance_high"] < COIN:
        verdict = "worse than a coin: the reward points away from the labels"
    else:
        verdict = "no better than a coin, as far as these cases can tell"
    return f"{called} are {verdict}: the better arm of a question has the higher reward in {sure}."


def _across(called: str, row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Does the reward tell right decisions from wrong ones over all questions?"""
    if np.isnan(row["pearson"]):
        return "Reward or value is the same in every row, so there is no correlation."
    sure = f"{row['pearson']:+.3f} ({row['pearson_low']:+.3f} to {row['pearson_high']:+.3f})"
    crosses = row["pearson_low"] <= 0.0 <= row["pearson_high"]
    verdict = "do not move" if crosses else ("rise" if row["pearson"] > 0.0 else "fall")
    told = f"{called}: over all {row['n']} rows the values {verdict} with the reward, correlation {sure}"
    easy = row["pearson_low"] > 0.0 and not row["concordance_low"] > COIN
    return f"{told}; it tells easy questions from hard ones, which no choice of an arm can use." if easy else f"{told}."


def _led(rows: Mapping[str, Any], right: bool) -> str:  # noqa: FBT001
    """What following the reward gives."""
    row, coin = rows["greedy by reward"], rows["uniform"]
    lost = f"{row['regret']:.3g} ({row['regret_low']:.3g} to {row['regret_high']:.3g})"
    line = (
        f"Choosing the arm of highest reward {_sum(row, right)}, a uniform choice {coin['right']:.4g}; it loses {lost} "
        f"{'right answers ' if right else ''}against the best arm of each case"
    )
    if np.isnan(row["behind"]):
        return line + "."
    gain, low, high = (-row[name] + 0.0 for name in ("behind", "behind_high", "behind_low"))
    return f"{line}, and gains {gain:+.3g} ({low:+.3g} to {high:+.3g}) against the best fixed arm."


def _parts(rows: Mapping[str, Any]) -> str:
    """Which components tell more than a coin within a case."""
    good = [name for name, row in rows.items() if name != "reward" and row["concordance_low"] > COIN]
    bad = [name for name, row in rows.items() if name != "reward" and row["concordance_high"] < COIN]
    parts = [f"{', '.join(good)} point{'s' if len(good) == 1 else ''} to the better arm"] if good else []
    parts += [f"{', '.join(bad)} point{'s' if len(bad) == 1 else ''} away from it"] if bad else []
    return f"Within a question, by their intervals: {'; '.join(parts)}." if parts else ""


def _flat(rows: Mapping[str, Any], signals: Mapping[str, Array], mask: NDArray[np.bool_]) -> str:
    """Components that are the same everywhere."""
    flat = [name for name in rows if np.ptp(_known(signals[name], mask)) == 0.0]
    if not flat:
        return ""
    return f"{', '.join(flat)}: the same in every row, so it has no correlation, and choosing by it is uniform."


def _spread(reward: Array, mask: NDArray[np.bool_]) -> str:
    """How far apart the rewards of one question lie."""
    several = mask.sum(axis=1) > 1
    if not several.any() or np.isnan(reward[mask]).all():
        return ""
    pool = np.where(mask & ~np.isnan(reward), reward, np.nan)[several]
    pool = pool[~np.isnan(pool).all(axis=1)]
    apart = float((np.nanmax(pool, axis=1) - np.nanmin(pool, axis=1)).mean()) if len(pool) else float("nan")
    known = _known(reward, mask)
    above = float((known > COIN).mean())
    return (
        f"Rewards lie between {known.min():.3f} and {known.max():.3f}; those of one question differ by {apart:.3f} on "
        f"average; {100 * above:.3g} % lie above {COIN}, where thompson_beta sees a success."
    )


def _clamp(binds: Clamped) -> str:
    """How often the clamp binds."""
    if binds.n == 0:
        return ""
    if binds.low == binds.high == 0.0:
        return f"The clamp never binds in {binds.n} rows."
    return (
        f"The clamp binds below in {100 * binds.low:.3g} % and above in {100 * binds.high:.3g} % of {binds.n} rows: "
        "differences beyond it are lost."
    )


def _missing(signals: Mapping[str, Array], mask: NDArray[np.bool_]) -> str:
    """How many rows have no reward."""
    none = int(np.isnan(signals["reward"][mask]).sum())
    return f"{none} of {int(mask.sum())} rows have no reward, since a component is missing." if none else ""


def _known(signal: Array, mask: NDArray[np.bool_]) -> Array:
    values = signal[mask]
    known = values[~np.isnan(values)]
    return known if len(known) else np.zeros(1)
