"""Support calibration (shore): scores made probabilities, a certified `support.min_support` bar.

The published bar of 0.50 was set for one scorer on one kind of text; on another it may refuse
nearly every true claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raglab import calibration, metrics
from raglab.answering.support import ClaimScorer, WordSupport, split_claims
from raglab.calibration import Calibrated, Method
from raglab.certify import cases_needed, check_levels, fixed_sequence, pareto_order
from raglab.metrics import binomial_p, upper_bound
from raglab.store.policies import Policy
from raglab.words.decimals import decimals

if TYPE_CHECKING:
    import pandas as pd

Pair = tuple[str, Sequence[str]]
# bars that the frame shows beside the published and certified one
SHOWN = tuple(number / 10 for number in range(11))
PATH = "support.min_support"
PUBLISHED, CERTIFIED = "published", "certified"


class BarTest(NamedTuple):
    """What the test of the bars found.

    bar: the least that keeps the promise, None without one. passed, unsupported: pairs of the
    testing half that pass it and how many of them are not supported; of the first bar tried where
    none is certified. bound: exact upper bound of that share. tested, candidates: bars that were
    tested of those ordered. cases: pairs of the testing half.
    """

    bar: float | None
    passed: int
    unsupported: int
    bound: float
    tested: int
    candidates: int
    cases: int
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class SupportCalibration:
    """Support as a probability, and the certified bar.

    Attributes:
      table: a row a bar, over all pairs; see `calibrate_support`.
      scores: support of each pair, [N]; NaN where the answer claims nothing.
      calibrated: the map to probabilities with its judgement, in sample and cross-fitted, over the
        pairs that have a score.
      test: the test that gave the bar.
      scorer: name of what scores the support.
      target: promised share: at most this share of the claims that pass is unsupported.
      delta: error of the promise.
    """

    table: pd.DataFrame
    scores: NDArray[np.float64]
    calibrated: Calibrated
    test: BarTest
    scorer: str
    target: float
    delta: float

    def frame(self) -> pd.DataFrame:
        """Bars of support with what passes them, a row a bar."""
        return self.table.copy()

    @property
    def min_support(self) -> float | None:
        """Certified bar; None where there is none."""
        return self.test.bar

    def probability(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Probability that a pair of this support is supported, [...]; NaN stays NaN.

        Args:
          scores: support, [...].
        """
        return calibration.apply(self.calibrated.calibrator, scores)

    def policy(self, policy: Policy) -> Policy:
        """Policy with the certified bar, its gate switched on.

        Args:
          policy: the policy that gets the bar.

        Raises:
          ValueError: no bar is certified.
        """
        if self.min_support is None:
            msg = (
                f"{PATH} needs a certified bar, got none ({self.test.reason}); label more pairs "
                "or raise the target."
            )
            raise ValueError(msg)
        return policy.replace("support.enabled", True, PATH, self.min_support)

    @property
    def text(self) -> str:
        """What was found, in a few lines."""
        published = self.table[self.table["what"].str.startswith(PUBLISHED)].iloc[0]
        judged, method = self.calibrated.cross_fitted, self.calibrated.calibrator.method
        true, false = (
            f"{published[kind]} of {published[f'n_{kind}']}" for kind in ("true", "false")
        )
        bar, brier = decimals(float(published["bar"])), judged.brier
        lead = f"{len(self.scores)} pairs, scorer {self.scorer}: {self.test.reason}"
        today = (
            f"The published bar {bar} lets {true} supported pairs pass, and {false} of those that "
            "are not."
        )
        errors = f"ECE {judged.ece:.3f}, Brier score {brier.score:.3f}"
        base = f"where the share of supported pairs alone has {brier.unc:.3f}"
        return f"{lead}\n{today}\nAs a probability ({method}, cross-fitted): {errors} {base}."

    def __repr__(self) -> str:
        return self.text


def calibrate_support(
    pairs: Sequence[Pair],
    labels: ArrayLike,
    *,
    scorer: ClaimScorer | None = None,
    target: float = 0.1,
    delta: float = 0.1,
    method: Method = "isotonic",
    folds: int = 5,
    seed: int = 0,
) -> SupportCalibration:
    """Support as a claim's probability of support, and the least bar to trust passing claims.

    The pairs are split at random into two halves. On one the bars are ordered, from the safest to
    the one that lets most pass; on the other they are tested in that order, each at delta, until
    one fails (fixed sequence): with confidence 1 - delta at most the share `target` of what passes
    the bar is unsupported, on pairs drawn as these were. Where nothing passes that test there is no
    bar, and `test.reason` states how near one is.

    Each pair counts separately: many claims on one passage are fewer draws than they look. The
    promise is that of one seed, named beforehand: seeds tried until one passes promise nothing.

    The frame has a row a bar, over all pairs: `bar`, `what` (`published`, `certified`, both or ''),
    `true` of `n_true` supported pairs that pass with `true_share` and its `low` and `high`, `false`
    of `n_false` others, `unsupported` (share of those that pass, in sample), and `probability` of a
    pair right on the bar.

    Args:
      pairs: an answer or claim, and the texts of its passages, [N].
      labels: whether it is supported by them, [N].
      scorer: of the support; None is the embedded one.
      target: highest share of unsupported pairs among those that pass, in (0, 1).
      delta: error of the promise, in (0, 0.5).
      method: of the calibration, one of `calibration.METHODS`.
      folds: of the calibration's cross-fit, at least 2.
      seed: of the halves and the folds.

    Raises:
      ValueError: pairs and labels that differ in number, labels other than 0 and 1, one kind of
        label only, fewer than two pairs a fold, target or delta out of range.

    Source: rules S2.11, S6.4; Clopper and Pearson 1934; Laufer-Goldshtein et al. 2023 (order from a
      pilot half).
    """
    check_levels(target, delta)
    truth = _checked(pairs, labels, folds)
    used = scorer or WordSupport()
    scores = pair_supports(pairs, used)
    known = ~np.isnan(scores)
    _check_kinds(truth[known])
    rng = np.random.default_rng(seed)
    test = certified_bar(truth[known], scores[known], target=target, delta=delta, rng=rng)
    fitted = calibration.calibrated(
        truth[known], scores[known], method=method, folds=folds, rng=rng
    )
    return SupportCalibration(
        table=_bars(truth, scores, test.bar, fitted),
        scores=scores,
        calibrated=fitted,
        test=test,
        scorer=used.name,
        target=target,
        delta=delta,
    )


def pair_supports(pairs: Sequence[Pair], scorer: ClaimScorer) -> NDArray[np.float64]:
    """Support of each answer by its passages, that of its least supported claim, [N].

    NaN where it claims nothing.

    All claims go to the scorer at once, since a model reads many as fast as one.
    """
    claims = [split_claims(answer) for answer, _ in pairs]
    flat = [claim for of_pair in claims for claim in of_pair]
    evidence = [texts for of_pair, (_, texts) in zip(claims, pairs, strict=True) for _ in of_pair]
    supports = np.full(len(pairs), np.inf)
    owner = np.repeat(np.arange(len(pairs)), [len(of_pair) for of_pair in claims])
    np.minimum.at(supports, owner, scorer.scores(flat, evidence) if flat else np.empty(0))
    return np.where(np.isinf(supports), np.nan, supports)


def certified_bar(
    supported: NDArray[np.bool_],
    scores: NDArray[np.float64],
    *,
    target: float,
    delta: float,
    rng: np.random.Generator,
) -> BarTest:
    """Least bar with at most `target` of passing pairs unsupported, at confidence 1 - delta.

    Args:
      supported, scores: [N], no NaN.
      rng: draws the halves; the order of the pairs is nothing to them.

    Source: rule S6.4.
    """
    # One half orders the bars and the other tests them: an order made on the tested pairs would
    # void the confidence.
    testing = calibration.folds_of(supported, scores, folds=2, rng=rng) == 1
    bars = np.unique(scores[~testing])
    passed, wrong = _counts(supported[~testing], scores[~testing], bars)
    order = pareto_order(np.asarray(binomial_p(wrong, passed, target)), passed.astype(np.float64))
    ordered = bars[order]
    passed, wrong = _counts(supported[testing], scores[testing], ordered)
    is_certified = fixed_sequence(np.asarray(binomial_p(wrong, passed, target)), delta)
    n_kept = int(is_certified.sum())
    # The sequence ends at the first bar that fails, which is tested too.
    tested = min(len(ordered), n_kept + 1)
    at = max(n_kept - 1, 0)
    bound = float(upper_bound(wrong[at], passed[at], delta))
    observation = f"{wrong[at]} of {passed[at]} passing pairs of the testing half unsupported"
    if n_kept:
        lead = (
            f"at {decimals(float(ordered[at]))} or more at most {100 * target:g} % is unsupported "
            "with confidence "
        )
        reason = f"{lead}{100 * (1 - delta):g} % ({observation})."
    else:
        why = f"upper bound {decimals(bound, target)} above the target {decimals(target, bound)}"
        # With so few pairs even no error proves nothing: more pairs help, another bar does not.
        if passed[at] < cases_needed(target, delta):
            why = f"{cases_needed(target, delta)} passing pairs without one are needed at the least"
        reason = (
            f"no bar keeps the unsupported share at {100 * target:g} % with confidence "
            f"{100 * (1 - delta):g} %: "
            f"at {decimals(float(ordered[at]))}, the safest on the other half, {observation}; "
            f"{why}."
        )
    return BarTest(
        bar=float(ordered[at]) if n_kept else None,
        passed=int(passed[at]),
        unsupported=int(wrong[at]),
        bound=bound,
        tested=tested,
        candidates=len(ordered),
        cases=int(testing.sum()),
        reason=reason,
    )


def _counts(
    supported: NDArray[np.bool_], scores: NDArray[np.float64], bars: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs at or above each bar, and how many of them are not supported."""
    every, wrong = np.sort(scores), np.sort(scores[~supported])
    return len(every) - np.searchsorted(every, bars), len(wrong) - np.searchsorted(wrong, bars)


def _bars(
    supported: NDArray[np.bool_],
    scores: NDArray[np.float64],
    certified: float | None,
    fitted: Calibrated,
) -> pd.DataFrame:
    """A row a bar, ascending."""
    import pandas as pd

    # Both bars have a row, on the grid or not, so that they can be compared.
    published = float(Policy.load().value(PATH))
    named = {published: PUBLISHED}
    if certified is not None:
        named[certified] = f"{PUBLISHED}, {CERTIFIED}" if certified == published else CERTIFIED
    rows: list[dict[str, Any]] = []
    for bar in sorted({*SHOWN, *named}):
        passes = scores >= bar
        # The true share does not depend on how many pairs of each kind were drawn; the unsupported
        # share does.
        true, false = int((passes & supported).sum()), int((passes & ~supported).sum())
        n_true, n_false = int(supported.sum()), int((~supported).sum())
        low, high = metrics.clopper_pearson(true, n_true)
        rows.append(
            {
                "bar": bar,
                "what": named.get(bar, ""),
                "true": true,
                "n_true": n_true,
                "true_share": true / n_true,
                "low": float(low),
                "high": float(high),
                "false": false,
                "n_false": n_false,
                "unsupported": false / (true + false) if true + false else float("nan"),
                "probability": float(calibration.apply(fitted.calibrator, bar)),
            }
        )
    return pd.DataFrame(rows)


def _checked(pairs: Sequence[Pair], labels: ArrayLike, folds: int) -> NDArray[np.bool_]:
    """Labels as bools.

    Raises:
      ValueError: another number of them than pairs, none, or what is neither 0 nor 1.
    """
    codes = np.asarray(labels)
    if codes.shape != (len(pairs),):
        msg = f"labels must be one a pair, got shape {codes.shape} for {len(pairs)} pairs."
        raise ValueError(msg)
    if not np.isin(codes, (0, 1)).all():
        msg = (
            "labels must be 0 or 1, 1 where the passages support the claim; decide what a partial "
            "support counts as."
        )
        raise ValueError(msg)
    if len(codes) < 2 * folds:
        msg = (
            f"a calibration in {folds} folds needs {2 * folds} pairs at least, got {len(codes)}; "
            "label more."
        )
        raise ValueError(msg)
    truth: NDArray[np.bool_] = codes.astype(bool)
    return truth


def _check_kinds(truth: NDArray[np.bool_]) -> None:
    if truth.all() or not truth.any():
        kind = "supported" if truth.any() else "unsupported"
        msg = (
            f"pairs must hold supported and unsupported claims, got {len(truth)} {kind} only; "
            "label both kinds."
        )
        raise ValueError(msg)
