"""Certificates of cascades (shore): right as often as the dear arm, but for a margin, at few calls.

Both claims are tested on questions that the policy was not fitted on (S4.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from raglab.arguments.plain_arrays import float_array
from raglab.bandit.environments import Table, table_costs
from raglab.decision.learned_cases import (
    REPEATED_SHARE,
    hash_queries,
    question_codes,
    text_codes,
)
from raglab.extensions.budgets.cascade_tests import least_limit, mean_p, paired_test
from raglab.extensions.budgets.plans import plan_rows
from raglab.extensions.budgets.priced_policy import PricedPolicy, row_names
from raglab.lab.looks import take_look
from raglab.metrics.intervals import check_delta, upper_bound
from raglab.values import BitArray, FloatArray, refuse
from raglab.words.canonical import digest
from raglab.words.characters import plain_question
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("shortfall", "dear calls")
UNSEEN = "Without the texts of both, questions that the policy was fitted on may go unseen."
TWICE = "Rows repeat the numbers of others; the bounds take each row for a question of its own."
CHEAPER = "Another arm costs more than the reference on average; its calls are not counted."
HEAVIER = "No weight above those here was taken to be possible; if one was, give max_weight."


@dataclass(frozen=True, repr=False)
class CascadeCertificate(Result):
    """Outcome of `certify_cascade`.

    Attributes:
      certified: whether both claims hold.
      claims: a row each. `claim`: `shortfall`, the reward of the reference less that of the policy,
        or `dear calls`, the share of the questions for which the reference is called. `estimate`:
        mean over the questions, by their weights. `bound`: upper bound at confidence 1 - delta.
        `limit`: `margin` or `max_share`. `test`: `exact`, by counts, or `e-value`, of rewards
        between 0 and 1 or of weighted questions. `holds`: whether the bound is within the limit.
      reference: name of the dear arm.
      delta: error of the promise.
      questions: number of questions tested on.
      repeats: of these, questions that the policy was fitted on, at most 5 %.
      looks: certifications on these questions so far that a file remembers, this one included.
      spent: sum of their deltas.
      notes: what the test could not see.
    """

    certified: bool
    claims: pd.DataFrame
    reference: str
    delta: float
    questions: int
    repeats: int
    looks: int
    spent: float
    notes: tuple[str, ...] = ()

    TABLE = "claims"

    def _summary(self) -> Summary:
        facts = [
            ("certified", str(self.certified)),
            *zip(
                self.claims["claim"], self.claims["bound"].map("up to {:.4g}".format), strict=True
            ),
            ("questions", f"{self.questions:,}"),
        ]
        return Summary(facts, {"claims": self.claims}, self.notes)


def certify_cascade(
    table: Table,
    policy: PricedPolicy | ArrayLike,
    *,
    reference: str,
    margin: float,
    max_share: float,
    delta: float = 0.1,
    questions: Sequence[str] | None = None,
    fitted_questions: Sequence[str] = (),
    weights: ArrayLike | None = None,
    max_weight: float | None = None,
    looks: str | Path | None = None,
    again: bool = False,
) -> CascadeCertificate:
    """Test whether a policy is as good as the dear arm, but for a margin, and seldom calls it.

    The promise: on questions like these the mean reward of the policy is at least that of
    `reference` less `margin`, and it calls `reference` for at most `max_share` of them. It holds
    with probability at least 1 - delta over the draw of the questions.

    Proof. Each claim has an upper bound at confidence 1 - delta. If the promise is wrong, one claim
    is wrong, and its bound is within its limit with probability delta at most; both bounds are
    within their limits no more often than that one, so delta is not divided (intersection-union).
    Of rights and wrongs without weights the bound of the shortfall is that of `paired_test`, exact
    at the worst value of the nuisance, and that of the calls is binomial. Of rewards or chances
    between 0 and 1, and of weighted questions, both are those of `mean_p`. The proofs are there.
    A simulation can only show it.

    Args:
      table: rewards of all arms, before costs, and the features that `policy` reads.
      policy: of `fit_priced_policy`, or the probabilities [A] or [Q, A] of a plan. A row of a plan
        may depend on that question alone, not on rewards nor, as `play_paced` does, on other rows.
        Zeros and ones are tested exactly; the share of a price (`PriceChoice`) makes others.
      reference: name of the dear arm, available in every row.
      margin: highest shortfall in reward, in (0, 1).
      max_share: highest share of the questions for which `reference` is called, in (0, 1].
      delta: error of the promise, in (0, 0.5).
      questions: text of each row, [Q], each once; None: a row is known by all its numbers.
      fitted_questions: texts that a plan was chosen on; a policy of `fit_priced_policy` keeps its
        own.
      weights: of the rows, 1 / their inclusion probability, [Q], above 0, in any unit.
      max_weight: highest weight that the draw could have given, in the unit of `weights`; None: the
        highest here, right where the number of rows of each weight was fixed before the draw.
      looks: file that remembers every look at the questions, see `raglab.certify_policy`.
      again: states that these questions were looked at before, and allows a further look.

    Raises:
      ValueError: a limit outside its range, an unknown or unavailable reference, a reward outside
        [0, 1], probabilities, texts or weights that break a rule, more than 5 % of the questions
        among those that the policy was fitted on, or an earlier look without `again`.

    Source: rules S4.9, S6.4; Berger, Multiparameter hypothesis testing and acceptance sampling
      (1982).

    Example: 60 questions; the policy calls the dear arm for the ten that the cheap one has wrong.
      >>> import pandas as pd
      >>> frame = pd.DataFrame({"small": [1.0] * 50 + [0.0] * 10, "large": [1.0] * 60})
      >>> costs = {"small": 1.0, "large": 9.0}
      >>> table = Table.from_frame(frame, costs=costs, price=1.0, order="given")
      >>> plan = [[1.0, 0.0]] * 50 + [[0.0, 1.0]] * 10
      >>> promise = certify_cascade(table, plan, reference="large", margin=0.05, max_share=0.3)
      >>> promise.certified, promise.claims["bound"].round(3).tolist()
      (True, [0.038, 0.245])
    """
    check_delta(delta)
    if not (0.0 < margin < 1.0 and 0.0 < max_share <= 1.0):
        refuse(
            "margin must be in (0, 1) and max_share in (0, 1]",
            (margin, max_share),
            "0.05 is 5 % of the questions",
        )
    if reference not in np.array(table.arms)[table.mask.all(axis=0)]:
        refuse(
            "reference must be an arm that every row has",
            reference,
            f"name one of {', '.join(table.arms)[:300]}",
        )
    reward = np.where(table.mask, table.gross, 0.0)
    if reward.min() < 0.0 or reward.max() > 1.0:
        refuse("rewards must be in [0, 1]", reward.max(), "normalise them (S4.4)")
    chances = policy.plan(table) if isinstance(policy, PricedPolicy) else policy
    plan = plan_rows(table, "policy", chances)
    size = len(plan)
    dear = table.arms.index(reference)
    weight = np.ones(size) if weights is None else float_array(weights, "weights")
    top = float(weight.max()) if max_weight is None else max_weight
    if weight.shape != (size,) or not 0.0 < weight.min() <= weight.max() <= top < np.inf:
        refuse(
            f"weights must be [Q], {size} numbers above 0 and at most max_weight",
            f"{weight.min():g} to {weight.max():g}",
            "give 1 / inclusion probability",
        )
    # Whose questions these are, and which look this is, is settled before a bound is computed.
    known_codes, has_texts = _known_codes(policy, fitted_questions)
    names, repeats = _known_rows(table, known_codes, questions, has_texts=has_texts)
    excess = np.stack([reward[:, dear] - (plan * reward).sum(axis=1), plan[:, dear]])
    excess = excess.round(12)  # so that sums of chances are whole again
    counted = [excess.tolist(), (weight / top).tolist()]
    hashed = hash_queries(names)
    key = digest(str((hashed, margin, max_share, delta, counted)), 12)
    look = take_look(
        (),
        Path(looks) if looks else None,
        hashed,
        names,
        lambda *_: key,
        delta,
        None,
        n_tested=1,
        again=again,
    )
    is_exact = weights is None and not (excess % 1.0).any()
    limits = (margin, max_share)
    claims = _claims(excess, weight / top, limits, delta, is_exact=is_exact)
    return CascadeCertificate(
        certified=bool(claims["holds"].all()),
        claims=claims,
        reference=reference,
        delta=delta,
        questions=size,
        repeats=repeats,
        looks=look.number,
        spent=look.spent,
        notes=_notes(
            table,
            dear,
            {
                UNSEEN: questions is None or not has_texts,
                TWICE: questions is None and len({*names}) < size,
                HEAVIER: weights is not None and max_weight is None,
            },
        ),
    )


def _notes(table: Table, dear: int, is_true: Mapping[str, bool]) -> tuple[str, ...]:
    """Notes that hold, that on costs too."""
    arm_costs = np.where(table.mask, table_costs(table), 0.0).sum(axis=0)
    mean_costs = arm_costs / np.maximum(table.mask.sum(axis=0), 1)
    checks = {**is_true, CHEAPER: mean_costs.max() > mean_costs[dear]}
    return tuple(note for note, holds in checks.items() if holds)


def _claims(
    excess: FloatArray, weight: FloatArray, limits: Sequence[float], delta: float, *, is_exact: bool
) -> pd.DataFrame:
    """Estimates and bounds of shortfall and calls, [2, Q]; `weight` is at most 1, [Q]."""
    import pandas as pd

    if is_exact:
        n_gains, n_losses, size = np.sum(excess[0] < 0.0), np.sum(excess[0] > 0.0), len(weight)
        calls = float(upper_bound(np.sum(excess[1]), size, delta))
        bounds = [least_limit(paired_test(n_gains, n_losses, size, delta), delta), calls]
    else:
        bounds = [least_limit(partial(mean_p, weight, part), delta) for part in excess]
    claims = {
        "claim": NAMES,
        "estimate": np.average(excess, axis=1, weights=weight),
        "bound": bounds,
        "limit": limits,
        "test": "exact" if is_exact else "e-value",
    }
    return pd.DataFrame(claims | {"holds": np.less_equal(bounds, limits)})


def _known_codes(
    policy: PricedPolicy | ArrayLike, fitted_questions: Sequence[str]
) -> tuple[BitArray, bool]:
    """Codes of the questions that a policy was fitted on, and whether all their texts are there."""
    if isinstance(fitted_questions, str):
        refuse("fitted_questions must be a list of texts", fitted_questions[:80], "write [text]")
    known_codes = question_codes(fitted_questions)[0]
    has_texts = len(known_codes) > 0
    if isinstance(policy, PricedPolicy):
        known_codes = np.append(known_codes, text_codes(policy.fitted_on))
        has_texts = policy.has_texts
    return known_codes, has_texts


def _known_rows(
    table: Table, known_codes: BitArray, questions: Sequence[str] | None, *, has_texts: bool
) -> tuple[Sequence[str], int]:
    """Names of the questions, and how many of them are among those that a policy was fitted on.

    A question is known by its text or by its numbers.

    Args:
      known_codes: of the latter.
      has_texts: whether the texts of the latter are all among the codes. Questions without texts,
        on either side, are compared by their numbers, which questions of few features share.
    """
    names = row_names([table], questions)
    rows = row_names([table])
    n_different = len({*map(plain_question, names)})
    if questions is not None and n_different < len(names):
        refuse(
            "questions must be different",
            f"{n_different:,} of {len(names):,}",
            "keep one row of each",
        )
    compared = [*names, *([] if has_texts and questions is not None else rows)]
    is_fitted = np.isin(question_codes(compared)[0], known_codes).reshape(-1, len(rows))
    repeats = int(is_fitted.any(axis=0).sum())
    if repeats > REPEATED_SHARE * len(rows):
        refuse(
            f"at most {REPEATED_SHARE:.0%} of the questions may be of those it was fitted on",
            f"{repeats:,} of {len(rows):,}",
            "certify on others, or state questions= there and in fit_priced_policy",
        )
    return names, repeats
