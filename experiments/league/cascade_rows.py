"""Cascades fitted on one part of a published table and judged on another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.abstention import KINDS, Cell
from experiments.league.mot_cascade import STRONG, DateTable
from experiments.league.rows import paired_interval, signed
from experiments.league.table_checks import (
    joined_tables,
    near_duplicates,
    table_part,
    turned_groups,
)
from raglab import bandit

MAX_SHARE, SPEND = 0.30, 0.22  # promised; aimed at, so that the bound of 184 questions is within it
MARGINS = (0.02, 0.05)
INTERVENTIONS = 0.40  # aimed at, of .50 promised


def mean_text(gain: NDArray[np.float64], units: Sequence[str] | None = None) -> str:
    """Mean of paired differences with its interval and the number of independent units.

    Args:
      gain: differences, [N].
      units: of each, whose differences are added up first, [N]; None: each is one.
    """
    sums = gain if units is None else pd.Series(gain).groupby(list(units)).sum().to_numpy()
    parts = sums * (len(sums) / len(gain))  # their mean is that of the differences
    low, high = paired_interval(parts)
    return f"{signed(parts.mean())} [{signed(low)}, {signed(high)}], n {len(parts)}"


def cascade_policy(table: bandit.Table, spend: float, questions: list[str]) -> bandit.PricedPolicy:
    """Policy with a price for a spend in calls of the dear arm.

    Its share between two prices is left out, so that the plan is of zeros and ones.
    """
    policy = bandit.fit_priced_policy(table, spend, known_costs=True, questions=questions)
    return policy._replace(price=policy.price._replace(share=0.0))


def certified_halves(
    dates: DateTable, n_halves: int = 200, seed: int = 0, *, by_stem: bool = False
) -> pd.DataFrame:
    """Fit on a random half, certify on the other: a row a half.

    Halves share questions: their number certified is a frequency on this table, no probability.

    Args:
      dates: the table.
      n_halves: random halves.
      seed: of the halves.
      by_stem: whether questions with a common stem stay in one half.

    Returns:
      Of the judged half: `policy`, `strong`, `mixture` (of equal cost) and `calls`, means; a column
        a margin, whether it is certified; `near`, questions with a near-duplicate in the fitted
        half, `shared`, share of those whose story is there; `turned`, signals that turn in a kind
        of question of the fitted half; `gain`, policy less mixture, and `gain, votes differ`, the
        same where not all votes are one answer.
    """
    rng, table, questions = np.random.default_rng(seed), dates.table, np.array(dates.questions)
    stems = np.array(dates.stems)
    names = pd.factorize(stems if by_stem else questions)[0]
    differ = table.features[:, table.feature_names.index("first")] < 1.0
    rows = []
    kinds = np.array([text[len(stem) :] for text, stem in zip(questions, dates.stems, strict=True)])
    for _ in range(n_halves):
        is_fitted = (rng.permutation(names.max() + 1) % 2 == 0)[names]
        fitted, judged = (table_part(table, mask) for mask in (is_fitted, ~is_fitted))
        texts = [list(questions[mask]) for mask in (is_fitted, ~is_fitted)]
        policy = cascade_policy(fitted, SPEND, texts[0])
        # bounds do not depend on the margin
        certificate = bandit.certify_cascade(
            judged,
            policy,
            reference=STRONG,
            margin=max(MARGINS),
            max_share=MAX_SHARE,
            questions=texts[1],
        )
        bound, is_seldom = certificate.claims["bound"][0], bool(certificate.claims["holds"][1])
        plan = policy.plan(judged)
        whole = _beside_mixture(plan, judged.gross)
        varied = differ[~is_fitted]
        signals = pd.DataFrame(fitted.features, columns=table.feature_names)
        rows.append(
            {
                **whole,
                **{f"{margin:g}": is_seldom and bound <= margin for margin in MARGINS},
                "near": near_duplicates(texts[1], texts[0]).sum(),
                "shared": np.isin(stems[~is_fitted], stems[is_fitted]).mean(),
                "turned": len(turned_groups(signals, fitted.gross[:, 0] > 0.5, kinds[is_fitted])),
                "gain, votes differ": _beside_mixture(plan[varied], judged.gross[varied])["gain"],
            }
        )
    return pd.DataFrame(rows)


def abstention_rows(cells: Sequence[Cell], seed: int = 0) -> pd.DataFrame:
    """A row a model and set: fitted on a random half, certified on the other.

    `vanilla`, `intervened` and `policy`: share of right replies on the judged half. `certified`: at
    most .05 worse than the intervened reply, at no more than half of the interventions. `gain`:
    policy less intervened reply, `gain, clean`: the same of questions without a near-duplicate in
    the fitted half, of which `near` have one.

    Args:
      cells: of `abstention_cells`.
      seed: of the halves.
    """
    rows = []
    for cell in cells:
        is_fitted = np.random.default_rng(seed).permutation(len(cell.kinds)) % 2 == 0
        fitted, judged = (table_part(cell.table, mask) for mask in (is_fitted, ~is_fitted))
        # a few texts stand twice in a cell
        texts = np.array([f"{row} {text}" for row, text in enumerate(cell.questions)])
        policy = cascade_policy(fitted, INTERVENTIONS, list(texts[is_fitted]))
        certificate = bandit.certify_cascade(
            judged,
            policy,
            reference=cell.table.arms[1],
            margin=0.05,
            max_share=0.5,
            questions=list(texts[~is_fitted]),
        )
        plan, known = policy.plan(judged), np.array(cell.questions)
        gain = (plan * judged.gross).sum(axis=1) - judged.gross[:, 1]
        is_near = near_duplicates(list(known[~is_fitted]), known[is_fitted])
        rows.append(
            {
                "cell": f"{cell.group} {cell.model}",
                "n": len(plan),
                **dict(zip(cell.table.arms, judged.gross.mean(axis=0), strict=True)),
                "policy": (plan * judged.gross).sum(axis=1).mean(),
                "calls": plan[:, 1].mean(),
                "shortfall at most": certificate.claims["bound"][0],
                "certified": certificate.certified,
                "near": is_near.sum(),
                "gain": gain.mean(),
                "gain, clean": gain[~is_near].mean(),
            }
        )
    return pd.DataFrame(rows)


def left_out(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell], list[Cell]]]:
    """Each model, the cells of all others, and its own."""
    for model in sorted({cell.model for cell in cells}):
        parts = [[cell for cell in cells if (cell.model == model) == is_own] for is_own in (0, 1)]
        yield model, parts[0], parts[1]


def refusal_rows(cells: Sequence[Cell]) -> pd.DataFrame:
    """Refusals by signals of one reply beside those of the published intervention, which takes two.

    A row a model that is left out, and one of all. Least squares of `unsolve` on the signals of the
    first reply, on the other models; a question is refused above the score that as many answerable
    questions of these exceed as the intervention refuses there. `first`, `intervened` and `fitted`:
    share of the unanswerable questions that are refused; `false, …`: of the answerable ones.
    Differences are fitted less intervened, by question.

    Args:
      cells: of `abstention_cells`.
    """
    rows, parts = [], []
    for model, fit_cells, judged_cells in left_out(cells):
        known, judged = (
            joined_tables([cell.table for cell in part]) for part in (fit_cells, judged_cells)
        )
        is_open, is_unsolved = (
            np.concatenate([np.array(cell.kinds) == KINDS[1] for cell in part])
            for part in (fit_cells, judged_cells)
        )
        refused = np.concatenate([cell.refused for cell in fit_cells])[~is_open, 1]
        weights = np.linalg.lstsq(known.features, is_open.astype(float), rcond=None)[0]
        bound = np.quantile((known.features @ weights)[~is_open], 1.0 - refused.mean())
        part = pd.DataFrame(
            np.concatenate([cell.refused for cell in judged_cells]), columns=["first", "intervened"]
        )
        part["fitted"] = judged.features @ weights > bound
        part["question"] = [text for cell in judged_cells for text in cell.questions]
        parts.append(part.assign(model=model, false=~is_unsolved))
    whole = pd.concat(parts)
    for model, part in [*whole.groupby("model"), ("all", whole)]:
        row = {"model": model}
        for is_false, group in part.groupby("false"):
            name = "false, " if is_false else ""
            shares = group[["first", "intervened", "fitted"]].mean()
            row |= {f"{name}{key}": share for key, share in shares.items()}
            gain = group["fitted"].astype(float) - group["intervened"]
            row[f"{name}difference"] = mean_text(gain.to_numpy(), list(group["question"]))
        rows.append(row)
    return pd.DataFrame(rows)


def _beside_mixture(plan: NDArray[np.float64], rewards: NDArray[np.float64]) -> dict[str, float]:
    """Means of a plan over the weak and the strong arm, and of the mixture of equal cost."""
    reward, share, means = (plan * rewards).sum(axis=1).mean(), plan.mean(axis=0), rewards.mean(0)
    mixture = share @ means
    row = {"policy": reward, STRONG: means[1], "mixture": mixture, "calls": share[1]}
    return row | {"gain": reward - mixture}
