"""Crossings (algebra): shares of ok in traffic at which another policy becomes cheaper (S6.15).

The expected cost of a policy is a straight line in the share of ok, the other labels in the ratio
of the labelled cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isinf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab.metrics.costs import Cells
from raglab.values import FloatArray, Status

if TYPE_CHECKING:
    import pandas as pd

CROSSING_LEVEL = 0.9  # of the intervals
COST_DIGITS = 12  # of a difference of costs
CROSSING_RESAMPLES = 2_000  # of the cases, within labels


class Crossing(NamedTuple):
    """Shares of ok in traffic between which a policy costs less than each of several others.

    Attributes:
      low: lower end; -inf where it costs less down to 0.
      high: upper end; inf where it costs less up to 1. Nowhere where `low` is at least `high`.
      below: policy that is cheaper below the lower end; empty where none is.
      above: policy that is cheaper above the upper end; empty where none is.
      low_interval: 90 % interval of the lower end.
      high_interval: 90 % interval of the upper end.
      sample: share of ok among the labelled cases.
    """

    low: float
    high: float
    below: str
    above: str
    low_interval: tuple[float, float]
    high_interval: tuple[float, float]
    sample: float

    def says(self, subject: str) -> str:
        """The crossing in a sentence or two, ends with their 90 % intervals.

        Args:
          subject: name of the policy.
        """
        sample_text = f"The labelled cases are {100.0 * self.sample:.0f} % ok"
        end_texts = [
            (
                rival_name,
                (
                    f"{end_side} {100.0 * end_share:.0f} % "
                    f"({_percent_text(interval_start)} to {_percent_text(interval_end)})"
                ),
            )
            for rival_name, end_side, end_share, (interval_start, interval_end) in (
                (self.above, "above", self.high, self.high_interval),
                (self.below, "below", self.low, self.low_interval),
            )
            if rival_name
        ]
        if self.low >= self.high:
            rival_names = " or ".join(
                dict.fromkeys(rival_name for rival_name in (self.below, self.above) if rival_name)
            )
            return (
                f"{sample_text}. At no share of ok in traffic does {subject} cost less than "
                f"{rival_names}."
            )
        if not end_texts:
            # what the cases do not rule out, by the near ends of the intervals
            near_ends = {"above": self.high_interval[0], "below": self.low_interval[1]}
            possible_ends = [
                f"{end_side} {_percent_text(end_share)} %"
                for end_side, end_share in near_ends.items()
                if not isinf(end_share)
            ]
            doubt_text = (
                f", but by the 90 % interval one may be {' or '.join(possible_ends)}"
                if possible_ends
                else ""
            )
            return (
                f"{sample_text}. At no share of ok in traffic is a policy without tuning "
                f"cheaper{doubt_text}."
            )
        (rival_name, end_text), *further_ends = end_texts
        further_text = "".join(
            f", {end_share} {further_rival}" for further_rival, end_share in further_ends
        )
        return (
            f"{sample_text}. {end_text.capitalize()} ok in traffic {rival_name} is "
            f"cheaper{further_text}: state `mix`."
        )


def _percent_text(end_share: float) -> str:
    return "none" if isinf(end_share) else f"{100.0 * end_share:.0f}"


def cost_lines(
    loss: FloatArray, label: Cells, rng: np.random.Generator | None = None
) -> list[FloatArray]:
    """Expected cost of policies where no case of traffic is ok, and where all are, [P] each.

    Args:
      loss: cost of each case under each policy, [P, Q].
      label: of each case, [Q]; some are ok, and some not.
      rng: generator of resamples within labels, whose costs are [P, resamples] each.
    """
    mean_costs: list[FloatArray] = []
    for is_in_group in (label != Status.ok, label == Status.ok):
        cost_sums: FloatArray = np.zeros(())
        for label_code in np.unique(label[is_in_group]).tolist():
            distinct_losses, loss_counts = np.unique(
                loss[:, label == label_code], axis=1, return_counts=True
            )
            drawn_counts = loss_counts[:, None]
            if rng is not None:
                n_cases = int(loss_counts.sum())
                drawn_counts = rng.multinomial(
                    n_cases, loss_counts / n_cases, size=CROSSING_RESAMPLES
                ).T
            cost_sums = cost_sums + distinct_losses @ drawn_counts
        group_means = cost_sums / is_in_group.sum()
        mean_costs.append(group_means if rng is not None else group_means[:, 0])
    return mean_costs


def cost_table(losses: Mapping[str, FloatArray], label: Cells) -> pd.DataFrame:
    """Cost of a case that is ok, and of the others in their ratio, a row a policy.

    Args:
      losses: cost of each case by name of the policy, [Q].
      label: of each case, [Q].

    Returns:
      `cases`; `all_ok` and `none_ok` with their standard errors `_error`; NaN where no case is of
        the kind.
    """
    import pandas as pd

    policy_rows = []
    for loss in losses.values():
        policy_row: dict[str, float] = {"cases": len(label)}
        for column_name, is_in_group in (
            ("all_ok", label == Status.ok),
            ("none_ok", label != Status.ok),
        ):
            label_losses = [
                loss[label == label_code] for label_code in np.unique(label[is_in_group]).tolist()
            ]
            n_cases = max(1, sum(map(len, label_losses)))
            summed_variance = sum(
                len(losses_of_label) * losses_of_label.var(ddof=min(1, len(losses_of_label) - 1))
                for losses_of_label in label_losses
            )
            policy_row[column_name] = (
                sum(float(losses_of_label.sum()) for losses_of_label in label_losses) / n_cases
                if label_losses
                else np.nan
            )
            policy_row[f"{column_name}_error"] = float(np.sqrt(summed_variance)) / n_cases
        policy_rows.append(policy_row)
    return pd.DataFrame(policy_rows, index=pd.Index(list(losses), name="policy"))


def crossing_ends(none_ok: FloatArray, all_ok: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper share of ok that each rival leaves a policy, [P - 1, ...] each.

    Args:
      none_ok: costs of the policy and its rivals where no case of traffic is ok, [P, ...].
      all_ok: likewise where all are.
    """
    # costs nearer than that are equal, and equal at an end alone is no crossing
    gain_none_ok, gain_all_ok = (
        np.round(policy_costs[1:] - policy_costs[0], COST_DIGITS)
        for policy_costs in (none_ok, all_ok)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        crossing_share = gain_none_ok / (gain_none_ok - gain_all_ok)
    is_never_cheaper = (gain_none_ok <= 0.0) & (gain_all_ok <= 0.0)
    lower_ends = np.where(
        is_never_cheaper, 1.0, np.where(gain_none_ok >= 0.0, -inf, crossing_share)
    )
    upper_ends = np.where(is_never_cheaper, 0.0, np.where(gain_all_ok >= 0.0, inf, crossing_share))
    return lower_ends, upper_ends


def crossing(
    loss: FloatArray,
    rivals: FloatArray,
    names: Sequence[str],
    label: Cells,
    seed: int = 0,
) -> Crossing | None:
    """Crossing of a policy with several others, on cases that none of them learned from.

    Args:
      loss: cost of each case under the policy, [Q].
      rivals: cost of each case under each other policy, [P, Q].
      names: of the other policies, [P].
      label: of each case, [Q].
      seed: of the resamples within labels that the intervals come from.

    Returns:
      None where no case is ok, or all are: the lines are not known then.

    Source: rule S6.15; percentile interval, Efron and Tibshirani 1993.

    Example: always-answer fails on what should be refused, the policy on one in ten of each.
      >>> label, tenth = np.repeat([0, 1], 50), np.tile(np.arange(10) == 0, 10) * 1.0
      >>> found = crossing(tenth, (label == 1)[None] * 1.0, ["always-answer"], label)
      >>> round(found.high, 3), found.above, found.low
      (0.9, 'always-answer', -inf)
    """
    is_ok = label == Status.ok
    if is_ok.all() or not is_ok.any():
        return None
    policy_losses = np.concatenate([loss[None], rivals])
    lower_ends, upper_ends = crossing_ends(*cost_lines(policy_losses, label))
    rng = np.random.default_rng([seed, len(label)])
    resampled_lower, resampled_upper = crossing_ends(*cost_lines(policy_losses, label, rng))
    lower_rival = int(np.argmax(lower_ends))
    upper_rival = int(np.argmin(upper_ends))
    tail_mass = (1.0 - CROSSING_LEVEL) / 2.0
    intervals = [
        tuple(np.quantile(resampled_ends, [tail_mass, 1.0 - tail_mass], method="nearest").tolist())
        for resampled_ends in (resampled_lower.max(axis=0), resampled_upper.min(axis=0))
    ]
    return Crossing(
        low=float(lower_ends[lower_rival]),
        high=float(upper_ends[upper_rival]),
        below="" if isinf(lower_ends[lower_rival]) else names[lower_rival],
        above="" if isinf(upper_ends[upper_rival]) else names[upper_rival],
        low_interval=intervals[0],
        high_interval=intervals[1],
        sample=float(is_ok.mean()),
    )
