"""Notes of a reward audit (shore): what learners reach on it and follow of it (S4.3 to S4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.bandit.environments import Table
from raglab.bandit.learner import LEARNERS, Bandit
from raglab.lab.reward_simulation import BEST, HARMS, HELPS, LEAST, LEVEL, ROUTER, UNIFORM
from raglab.reward import PUBLISHED, ClampShares, RewardWeights, threshold

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
COIN = 0.5
# of the threshold, within which a reward lies at it: 1.2 s of a budget of 8 s, at the published
# weights
NEAR = 0.05
TYPICAL = 0.5  # share of the rewards that is typical
ONE_SIDED = 0.95  # share of the rewards on one side, from which a success tells next to nothing


class AuditTables(NamedTuple):
    """Tables that the notes read: those of `RewardAudit`."""

    arms: pd.DataFrame
    rules: pd.DataFrame
    simulation: pd.DataFrame
    correlations: pd.DataFrame
    policies: pd.DataFrame


def audit_notes(
    world: Table,
    signals: Mapping[str, Array],
    tables: AuditTables,
    binds: ClampShares | None,
    weights: RewardWeights | None,
    bandit: Bandit,
) -> tuple[str, ...]:
    """Findings, the most important first.

    Args:
      world: with the rewards that were audited.
      weights: of the reward; None where the rewards came with the table.
    """
    by_signal = {str(row["signal"]): row for row in tables.correlations.to_dict("records")}
    by_policy = {str(row["policy"]): row for row in tables.policies.to_dict("records")}
    compared = {str(row["policy"]): row for row in tables.simulation.to_dict("records")}
    name = (
        "The reward"
        if weights is None
        else "The published weights"
        if weights == PUBLISHED
        else "These weights"
    )
    binary = bool(np.isin(world.value[world.mask], (0.0, 1.0)).all())
    # What a learner comes to decides; what it follows explains that; pairs of arms are a detail.
    lines = [
        headline(compared, bandit),
        *_reference_notes(compared, tables, bandit),
        *_rule_notes(tables, bandit),
        threshold_note(world, bandit),
        _room(by_policy, binary),
        _within_case_notes(name, by_signal["reward"], str(compared[UNIFORM]["verdict"])),
        _across(name, by_signal["reward"]),
        _decision_notes(by_policy, binary),
        _component_notes(by_signal),
        _constant_components(by_signal, signals, world.mask),
        _reward_spread(signals["reward"], world.mask),
        "" if binds is None else _clamp(binds),
        _missing(signals["reward"], world.mask, parts=weights is not None),
    ]
    return tuple(line for line in lines if line)


def headline(compared: Mapping[str, Any], bandit: Bandit) -> str:
    """Where the learner ends, beside a uniform choice: what the audit says above all."""
    learner, uniform = compared[bandit.algorithm], compared[UNIFORM]
    ends = f"{bandit.algorithm} on this reward ends at {_estimate(learner, 'value')}"
    even = f"uniform {uniform['value']:.3f} {_gap(uniform)}"
    if uniform["verdict"] == HARMS:
        return f"{ends}, below {even}: the reward misleads it."
    if uniform["verdict"] == HELPS:
        return f"{ends}, above {even}: the reward helps it."
    return f"{ends}, {_place(uniform)} {even}{_too_small(uniform)}: no gain by the reward is shown."


def _place(row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Where the learner lies beside a policy, by the interval of their difference."""
    if row["difference_low"] > 0.0:
        return "above"
    return "below" if row["difference_high"] < 0.0 else "not told apart from"


def _too_small(row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Words for a difference whose interval lies on one side of 0 and whose size does not count.

    Else nothing.
    """
    if row["verdict"] != LEVEL or row["difference_low"] <= 0.0 <= row["difference_high"]:
        return ""
    return (
        f", less than the least difference that counts ({100 * LEAST:g} % of the range of the "
        "values)"
    )


def _reference_notes(compared: Mapping[str, Any], tables: AuditTables, bandit: Bandit) -> list[str]:
    """The learner beside the best fixed arm, the router and other policies that learn nothing."""
    fixed = int((tables.arms["n"] == tables.arms["n"].max()).sum())
    lines = []
    for policy, row in compared.items():
        if policy in {bandit.algorithm, UNIFORM}:
            continue
        arm = f" ({_best_arm(tables.arms)})" if policy == BEST else ""
        name = {BEST: f"the best fixed arm{arm}", ROUTER: "the source's router"}.get(policy, policy)
        several = (
            f"; the interval allows for its choice among {fixed} arms"
            if policy == BEST and fixed > 2
            else ""
        )
        lines.append(
            f"It is {_place(row)} {name} {row['value']:.3f} {_gap(row)}{_too_small(row)}{several}."
        )
    if BEST not in compared:
        lines.append("No arm is available in every case, so there is no fixed arm to compare with.")
    return lines


def _best_arm(arms: pd.DataFrame) -> str:
    """Arm of the best mean value among those that are always available."""
    always = arms[arms["n"] == arms["n"].max()]
    return str(always["arm"].iloc[int(np.argmax(always["mean_value"]))])


def _rule_notes(tables: AuditTables, bandit: Bandit) -> list[str]:
    """Arm that each rule ends on."""
    lines = []
    for row in tables.rules.to_dict("records"):
        who = f", which {bandit.algorithm} follows," if row["followed"] else ""
        if row["rule"] == "mean value":
            continue
        sure = f"in {100 * row['leads']:.3g} % of the resamples"
        lines.append(
            f"By {row['rule']}{who} the arm to end on is {row['arm']} ({sure}), of value "
            f"{row['value']:.3f}."
        )
    if LEARNERS[bandit.algorithm].linear:
        lines.append(
            f"{bandit.algorithm} reads the context, so it may take another arm for each question."
        )
    return lines


def threshold_note(world: Table, bandit: Bandit) -> str:
    """Whether typical rewards lie at the threshold or on one side of it, else nothing.

    It is for a learner of successes.
    """
    rewards = _known_values(world.reward, world.mask)
    if not LEARNERS[bandit.algorithm].successes or not np.ptp(rewards) > 0.0:
        return ""
    n, cut = len(rewards), bandit.threshold
    near, above = int((np.abs(rewards - cut) <= NEAR).sum()), int((rewards > cut).sum())
    share = above / n
    if near < TYPICAL * n and 1.0 - ONE_SIDED < share < ONE_SIDED:
        return ""
    lines = []
    if near >= TYPICAL * n:
        lines.append(
            f"{near} of {n} rewards lie within {NEAR:g} of the threshold {cut:g}: whether an "
            "answer is a success turns "
            "on small differences."
        )
    if not 1.0 - ONE_SIDED < share < ONE_SIDED:
        lines.append(
            f"{above} of {n} rewards lie above the threshold {cut:g}: a success tells little of "
            "an answer."
        )
    median = threshold(rewards, "median")
    if median != cut:
        lines.append(
            f'reward.threshold(rewards, "median"), {median:.3f} here, would split these rewards '
            "in halves."
        )
    return " ".join(lines)


def _gap(row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Size of a difference whose interval lies on one side of 0, with that interval.

    Else both with signs.
    """
    gain, low, high = (row[f"difference{end}"] + 0.0 for end in ("", "_low", "_high"))
    if low > 0.0:
        return f"by {gain:.3f} ({low:.3f} to {high:.3f})"
    if high < 0.0:
        return f"by {-gain:.3f} ({-high:.3f} to {-low:.3f})"
    return f"({gain:+.3f}, {low:+.3f} to {high:+.3f})"


def _estimate(row: Any, name: str, sign: str = "") -> str:  # noqa: ANN401 - a row of a frame
    """Number with its interval."""
    value, low, high = (row[f"{name}{end}"] + 0.0 for end in ("", "_low", "_high"))
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def _value_text(row: Any, binary: bool) -> str:  # noqa: ANN401, FBT001 - a row of a frame
    """Value of a policy in words."""
    return (
        f"is right {row['right']:.4g} of {row['n']} times"
        if binary
        else f"earns {row['right']:.4g} of {row['n']}"
    )


def _room(rows: Mapping[str, Any], binary: bool) -> str:  # noqa: FBT001
    """What choosing could gain at all."""
    best, oracle = rows.get(BEST), rows["oracle"]
    if best is None:
        return ""
    gain = f"{best['regret']:.3g}{' right answers' if binary else ''}"
    fixed = f"the best fixed arm {best['right']:.4g}"
    return (
        f"The best arm of each case {_value_text(oracle, binary)}, {fixed}: choosing can gain at "
        f"most {gain}."
    )


def _within_case_notes(name: str, row: Any, verdict: str) -> str:  # noqa: ANN401 - a row of a frame
    """Does the reward tell the better arm of one question? A detail.

    A learner follows means, not pairs.
    """
    counts = f"{row['pairs']} pairs of arms in {row['cases']} cases"
    if not row["pairs"]:
        return (
            "No case has two available arms of different value, so no reward can tell arms apart "
            "here."
        )
    share = f"{row['concordance']:.3g}"
    detail = (
        f"Detail, pairs of arms of one question: by {name[0].lower()}{name[1:]} the better arm is "
        "the higher in"
    )
    if np.isnan(row["concordance_low"]):
        return f"{detail} {share} of {counts}; too few to say."
    interval = (
        f"{share} ({row['concordance_low']:.3g} to {row['concordance_high']:.3g}) of {counts}; "
        "0.5 is a coin"
    )
    if row["concordance_low"] > COIN:
        result = (
            "more than a coin"
            if verdict == HELPS
            else "more than a coin, yet the learner does not gain by it"
        )
    elif row["concordance_high"] < COIN:
        result = "less than a coin: within a question the reward points away from the labels"
    else:
        result = "no more than a coin, as far as these cases can tell"
    return f"{detail} {interval}: {result}."


def _across(name: str, row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Does the reward tell right decisions from wrong ones over all questions?"""
    if np.isnan(row["pearson"]):
        return "Reward or value is the same in every row, so there is no correlation."
    interval = f"{row['pearson']:+.3f} ({row['pearson_low']:+.3f} to {row['pearson_high']:+.3f})"
    crosses = row["pearson_low"] <= 0.0 <= row["pearson_high"]
    trend = "do not move" if crosses else ("rise" if row["pearson"] > 0.0 else "fall")
    line = (
        f"{name}: over all {row['n']} rows the values {trend} with the reward, correlation "
        f"{interval}"
    )
    easy = row["pearson_low"] > 0.0 and not row["concordance_low"] > COIN
    return (
        f"{line}; it tells easy questions from hard ones, which no choice of an arm can use."
        if easy
        else f"{line}."
    )


def _decision_notes(rows: Mapping[str, Any], binary: bool) -> str:  # noqa: FBT001
    """What the highest reward of each question would give, which no learner can follow."""
    row, even = rows["greedy by reward"], rows[UNIFORM]
    lost = f"{row['regret']:.3g} ({row['regret_low']:.3g} to {row['regret_high']:.3g})"
    line = (
        "Detail: who knew all rewards of a question before choosing, as no learner does, and "
        "took the highest, "
        f"{_value_text(row, binary)}, a uniform choice {even['right']:.4g}; that loses {lost} "
        f"{'right answers ' if binary else ''}against the best arm of each case"
    )
    if np.isnan(row["behind"]):
        return line + "."
    gain, low, high = (-row[column] + 0.0 for column in ("behind", "behind_high", "behind_low"))
    return f"{line}, and is {gain:+.3g} ({low:+.3g} to {high:+.3g}) beside the best fixed arm."


def _component_notes(rows: Mapping[str, Any]) -> str:
    """Which components tell more than a coin within a case."""
    good = [
        name for name, row in rows.items() if name != "reward" and row["concordance_low"] > COIN
    ]
    bad = [
        name for name, row in rows.items() if name != "reward" and row["concordance_high"] < COIN
    ]
    parts = (
        [f"{', '.join(good)} point{'s' if len(good) == 1 else ''} to the better arm"]
        if good
        else []
    )
    parts += [f"{', '.join(bad)} point{'s' if len(bad) == 1 else ''} away from it"] if bad else []
    return f"Within a question, by their intervals: {'; '.join(parts)}." if parts else ""


def _constant_components(
    rows: Mapping[str, Any], signals: Mapping[str, Array], mask: NDArray[np.bool_]
) -> str:
    """Components that are the same everywhere."""
    flat = [name for name in rows if np.ptp(_known_values(signals[name], mask)) == 0.0]
    if not flat:
        return ""
    return (
        f"{', '.join(flat)}: the same in every row, so it has no correlation, and choosing by it "
        "is uniform."
    )


def _reward_spread(rewards: Array, mask: NDArray[np.bool_]) -> str:
    """How far apart the rewards of one question lie."""
    several = mask.sum(axis=1) > 1
    if not several.any() or np.isnan(rewards[mask]).all():
        return ""
    pool = np.where(mask & ~np.isnan(rewards), rewards, np.nan)[several]
    pool = pool[~np.isnan(pool).all(axis=1)]
    apart = (
        float((np.nanmax(pool, axis=1) - np.nanmin(pool, axis=1)).mean())
        if len(pool)
        else float("nan")
    )
    known = _known_values(rewards, mask)
    return (
        f"Rewards lie between {known.min():.3f} and {known.max():.3f}, their median is "
        f"{np.median(known):.3f}; those "
        f"of one question differ by {apart:.3f} on average."
    )


def _clamp(binds: ClampShares) -> str:
    """How often the clamp binds."""
    if binds.n == 0:
        return ""
    if binds.low == binds.high == 0.0:
        return f"The clamp never binds in {binds.n} rows."
    return (
        f"The clamp binds below in {100 * binds.low:.3g} % and above in {100 * binds.high:.3g} % "
        f"of {binds.n} rows: "
        "differences beyond it are lost."
    )


def _missing(rewards: Array, mask: NDArray[np.bool_], *, parts: bool) -> str:
    """How many rows have no reward."""
    missing = int(np.isnan(rewards[mask]).sum())
    reason = ", since a component is missing" if parts else ""
    return f"{missing} of {int(mask.sum())} rows have no reward{reason}." if missing else ""


def _known_values(signal: Array, mask: NDArray[np.bool_]) -> Array:
    values = signal[mask]
    known = values[~np.isnan(values)]
    return known if len(known) else np.zeros(1)
