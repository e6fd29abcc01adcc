"""What the logs of one Open Bandit Dataset campaign say of one policy from the other's log.

    python experiments/obd.py DATA/obd-men
    python experiments/obd.py DATA/open_bandit_dataset --campaign women

The folder holds `random/NAME/NAME.csv` and `bts/NAME/NAME.csv`, as the set is published; which
campaign has to be named where it holds several. How many items and positions there are is read from
both logs (men: 34 items, 3 positions).

Two policies showed the items at the positions in the same week: `random`, every item alike, and
`bts`, a Thompson sampler. A click is the reward. An arm is an item at a position; the position is
given, so the policies choose among the items.

- random from the bts log: propensities are logged, the target is 1 / items at the position of the
  round.
- bts from the random log: the probabilities of bts are logged for the item that it showed, not for
  the others, so its distribution has to be estimated. The mean logged propensity of an item is no
  estimate of it: an item is shown more often when its probability is high, so those means sum to
  about two. The share of each item among the rounds of a position is unbiased for the mean of the
  sampler's probabilities over the week, and is what is taken. It comes from the bts log and the
  clicks come from the random log, so no click is used twice and cross-fitting is not needed; what
  the shares add to the error is measured by drawing the bts log again. What is valued is the week's
  mixture, not the sampler as it learned.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from raglab.metrics import clopper_pearson
from raglab.off_policy import Overlap, OverlapWarning, difference, estimate, overlap

POLICIES = ("bts", "random")
ESTIMATORS = ("ips", "snips", "clipped_ips", "dm", "dr", "switch_dr", "replay")
AGAIN = 200  # draws of the bts log
WORLDS = 1000  # draws of the clicks
WORDS = """
What such a sample cannot show:
- which estimator is right, where ips, snips and dr are all within two standard errors of the \
policy's own log;
- a gain smaller than half an interval of SNIPS, of which a few clicks on items that the log \
rarely showed make most:
  a line says weak then although the overlap is ok, and the intervals of such a log are too narrow \
themselves (above);
- a replay of 0.00: no click among the rounds that it accepts, and so no width either, which is no \
certainty;
- which items are good, where most have no click at all at a position;
- what bts is worth while it learns: its probabilities change through the week and are logged for \
one item a round."""


class Size(NamedTuple):
    """How many items a campaign has, and positions to show them at."""

    items: int
    positions: int


class Side(NamedTuple):
    """A log as rounds over item × position, and its clicks."""

    name: str
    log: pd.DataFrame
    position: np.ndarray
    size: Size

    @property
    def clicks(self) -> int:
        """Rounds that were clicked."""
        return int(self.log["reward"].sum())


def campaign_of(folder: Path, named: str | None) -> str:
    """Campaign of which a folder holds both logs."""
    both = [{path.parent.name for path in (folder / name).glob("*/*.csv")} for name in POLICIES]
    there = sorted(
        name
        for name in set.intersection(*both)
        if all(log_file(folder, policy, name).is_file() for policy in POLICIES)
    )
    if named is None and len(there) == 1:
        return there[0]
    if named not in there:
        sys.exit(
            f"{folder} must hold bts/NAME/NAME.csv and random/NAME/NAME.csv, and --campaign name "
            "one of them where "
            f"there are several, got {named or 'no name'} of {', '.join(there) or 'none'}."
        )
    return named


def log_file(folder: Path, policy: str, campaign: str) -> Path:
    """File of one policy's log."""
    return folder / policy / campaign / f"{campaign}.csv"


def sides(folder: Path, campaign: str) -> list[Side]:
    """Logs of both policies, over the same items and positions."""
    logs = [pd.read_csv(log_file(folder, policy, campaign), index_col=0) for policy in POLICIES]
    size = Size(
        *(
            int(max(log[column].max() for log in logs)) + more
            for column, more in (("item_id", 1), ("position", 0))
        )
    )
    return [side(policy, log, size) for policy, log in zip(POLICIES, logs, strict=True)]


def side(name: str, rows: pd.DataFrame, size: Size) -> Side:
    """Log of one policy."""
    position = rows["position"].to_numpy() - 1
    log = pd.DataFrame(
        {
            "action": rows["item_id"].to_numpy() + size.items * position,
            "reward": rows["click"].to_numpy(dtype=float),
            "propensity": rows["propensity_score"].to_numpy(),
        }
    )
    return Side(name, log, position, size)


def at_positions(share: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Target [T, positions · items] from item shares at each position, [positions, items]."""
    positions, items = share.shape
    whole = np.zeros((positions, positions * items))
    for place in range(positions):
        whole[place, place * items : (place + 1) * items] = share[place]
    return whole[position]


def shares(action: np.ndarray, size: Size) -> np.ndarray:
    """How often each item was shown among the rounds of each position, [positions, items]."""
    count = np.bincount(action, minlength=size.positions * size.items).reshape(
        size.positions, size.items
    )
    return count / np.maximum(1, count.sum(axis=1, keepdims=True))


class Evaluation(NamedTuple):
    """What the log of one policy says of the other, and what the other's own log says."""

    name: str
    by: Side
    on: Side
    target: np.ndarray
    overlap: Overlap
    table: pd.DataFrame
    drawn: pd.DataFrame


def evaluate(name: str, by: Side, target: np.ndarray, on: Side) -> Evaluation:
    """All estimators, with both intervals."""
    table = estimate(by.log, target, ESTIMATORS)
    drawn = estimate(by.log, target, ESTIMATORS, interval="bootstrap", n_boot=2000)
    return Evaluation(name, by, on, target, overlap(by.log, target), table, drawn)


def main() -> None:
    """Print the table and what it cannot show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--campaign", help="where the folder holds several")
    args = parser.parse_args()
    campaign = campaign_of(args.folder, args.campaign)
    bts, random = sides(args.folder, campaign)
    size = bts.size
    uniform = at_positions(np.full((size.positions, size.items), 1 / size.items), bts.position)
    warnings.simplefilter("ignore", OverlapWarning)  # the table has the status
    both = (
        evaluate("random", bts, uniform, random),
        evaluate(
            "bts",
            random,
            at_positions(shares(bts.log["action"].to_numpy(), size), random.position),
            bts,
        ),
    )
    print(f"Campaign {campaign}: {size.items} items, {size.positions} positions.")
    print("Clicks per 1,000 rounds, with 95 % intervals:\n")
    print(
        "| value of | from the log of | estimator | value | delta method | bootstrap | ESS | "
        "largest weight | status |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for evaluation in both:
        print_evaluation(evaluation)
    print()
    for evaluation in both:
        diagnostics = evaluation.overlap
        why = "; ".join(
            f"{name}: {evaluation.table.attrs['notes'][name]}"
            for name in ("ips", "snips", "replay")
        )
        print(
            f"- {evaluation.name} from {evaluation.by.name}: overlap {diagnostics.status}, "
            f"{diagnostics.n:,} rounds "
            f"worth {diagnostics.ess:,.0f}, mean weight {diagnostics.mean_weight:.3f} "
            f"[{diagnostics.mean_weight_low:.3f}, {diagnostics.mean_weight_high:.3f}]; {why}"
        )
    learned(both[1])
    limits(both[0], both[1])
    for evaluation in both:
        print_coverage(evaluation)
    print(WORDS)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print a row for each estimator, and one for the policy's own log."""
    for row, again in zip(
        evaluation.table.itertuples(), evaluation.drawn.itertuples(), strict=True
    ):
        delta, drawn = (f"{1e3 * each.low:.2f} to {1e3 * each.high:.2f}" for each in (row, again))
        print(
            f"| {evaluation.name} | {evaluation.by.name} | {row.estimator} | "
            f"{1e3 * row.value:.2f} | {delta} | {drawn} "
            f"| {row.ess:,.0f} | {row.max_weight:.3g} | {row.status} |"
        )
    clicks, rounds = evaluation.on.clicks, len(evaluation.on.log)
    low, high = (1e3 * float(end) for end in clopper_pearson(clicks, rounds))
    print(
        f"| {evaluation.name} | **{evaluation.name}** | its own {clicks} clicks | "
        f"**{1e3 * clicks / rounds:.2f}** "
        f"| {low:.2f} to {high:.2f}, exact | | {rounds:,} | 1 | |"
    )


def learned(of_bts: Evaluation) -> None:
    """Print the error added by bts's estimated distribution, and what mean propensity would say."""
    rng, random, bts = np.random.default_rng(0), of_bts.by, of_bts.on
    again = []
    for _ in range(AGAIN):
        action = rng.choice(bts.log["action"].to_numpy(), len(bts.log))
        again.append(
            estimate(
                random.log, at_positions(shares(action, bts.size), random.position), ("snips",)
            )["value"][0]
        )
    row = of_bts.table.set_index("estimator").loc["snips"]
    print(
        "- shares of bts: drawing its log again moves SNIPS by a standard deviation of "
        f"{1e3 * np.std(again):.2f}, "
        f"beside a standard error of {1e3 * (row['high'] - row['low']) / 3.92:.2f} from the clicks."
    )
    propensities = bts.log.groupby("action")["propensity"].mean()
    mean = propensities.reindex(range(bts.size.positions * bts.size.items), fill_value=0.0)
    mean = mean.to_numpy().reshape(bts.size.positions, bts.size.items)
    sums = mean.sum(axis=1)
    target = at_positions(mean / np.maximum(sums[:, None], 1e-12), random.position)
    value = 1e3 * estimate(random.log, target, ("snips",))["value"][0]
    print(
        f"- mean logged propensities of bts sum to {', '.join(f'{total:.2f}' for total in sums)} "
        "at the positions; "
        f"divided by that they are another policy, worth {value:.2f} by SNIPS."
    )


def print_coverage(evaluation: Evaluation) -> None:
    """Print how often a SNIPS interval holds if every item is clicked alike, with these weights."""
    rate, rng, holds = evaluation.on.clicks / len(evaluation.on.log), np.random.default_rng(1), []
    for _ in range(WORLDS):
        world = evaluation.by.log.assign(
            reward=(rng.random(len(evaluation.by.log)) < rate).astype(float)
        )
        row = estimate(world, evaluation.target, ("snips",)).iloc[0]
        holds.append(row["low"] <= rate <= row["high"])
    error = evaluation.table.set_index("estimator")
    gaps = {
        name: (error.loc[name, "value"] - rate)
        / _error(error.loc[name], rate, len(evaluation.on.log))
        for name in ("ips", "snips", "dr")
    }
    print(
        f"- {evaluation.name} from {evaluation.by.name}: were every item clicked at "
        f"{1e3 * rate:.2f}, the 95 % "
        f"interval of SNIPS would hold in {np.mean(holds):.1%} of such logs; against the policy's "
        "own log the values "
        "are off by "
        + ", ".join(f"{gap:+.1f} ({name})" for name, gap in gaps.items())
        + " standard errors of both."
    )


def _error(row: pd.Series, rate: float, rounds: int) -> float:
    return float(np.hypot((row["high"] - row["low"]) / 3.92, np.sqrt(rate * (1 - rate) / rounds)))


def limits(of_random: Evaluation, of_bts: Evaluation) -> None:
    """Print what these logs cannot show."""
    bts, random = of_random.by, of_random.on
    n, p, q = len(bts.log), bts.clicks / len(bts.log), random.clicks / len(random.log)
    gap, reach = 1e3 * (p - q), 1.96e3 * np.sqrt((p * (1 - p) + q * (1 - q)) / n)
    print(
        f"- both logs: bts earns {gap:.2f} [{gap - reach:.2f}, {gap + reach:.2f}] more than random."
    )
    own = np.zeros_like(of_random.target)  # only the logged item's weight, 1, matters to SNIPS
    action, rows = bts.log["action"].to_numpy(), np.arange(n)
    own[rows, np.where(action % bts.size.items == 0, action + 1, action - 1)] = (
        1 - bts.log["propensity"]
    )
    own[rows, action] = bts.log["propensity"]
    paired = difference(bts.log, own, of_random.target, "snips")
    print(
        f"- the bts log alone: {1e3 * paired.value:.2f} [{1e3 * paired.low:.2f}, "
        f"{1e3 * paired.high:.2f}] more "
        f"by SNIPS ({paired.status})."
    )
    for evaluation in (of_random, of_bts):
        row = evaluation.table.set_index("estimator").loc["snips"]
        half = 1e3 * (row["high"] - row["low"]) / 2
        need = n * (half / (gap / 2)) ** 2
        print(
            f"- {evaluation.name} from {evaluation.by.name}: half an interval is {half:.2f}; to "
            "bring it to half of "
            f"the gap of {gap:.2f}, about {need:,.0f} rounds like these."
        )
    for log_side in (bts, random):
        cells = log_side.log.groupby("action")["reward"].sum()
        print(
            f"- {log_side.name}: {log_side.clicks} clicks fall on {int((cells > 0).sum())} of "
            f"{len(cells)} "
            f"items × positions, at most {int(cells.max())} on one."
        )


if __name__ == "__main__":
    main()
