"""Judge certificates (shore): a promise by few human labels, a judge as control variate (S6.14).

A request adds k to the errors and n to the cases of a rate; x = k - alpha * n. A request is drawn
for people by itself with a known probability. Its step is c * f, f the judge's x, and where it was
drawn also (x - c * f) / probability. The mean of the step over the draw is x, whatever the judge
states as long as it is fixed without knowing who is drawn, so that a test of the steps is a test of
the promise. A good judge makes the steps vary less. c is 0, 1/2 or 1, with wealth spread evenly
over the three before the first request: a judge that misleads costs a factor of 3 in wealth at
most, for c = 0 is the test without it.

Source: Waudby-Smith and Ramdas 2024; Csillag, Struchiner and Goedert 2025, Prediction-powered
  e-values.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.certify import Certificate, Promise, check_levels
from raglab.extensions.monitoring.betting import bet, log_bar, log_mean, opening_wealth
from raglab.extensions.monitoring.judged_requests import (
    JudgedRequests,
    RateParts,
    checked_rates,
    draw_dependence,
    judged_requests,
    rate_parts,
)
from raglab.store.files import Where, input_error
from raglab.values import Status

if TYPE_CHECKING:
    import pandas as pd

COEFFICIENTS = (0.0, 0.5, 1.0)  # of the judge


class StepRange(NamedTuple):
    """Least and largest step that a request can make."""

    low: float
    high: float


def step_range(alpha: float, probability: float, coefficient: float) -> StepRange:
    """Range of the steps of a promise of at most alpha, given the least probability of a draw.

    Args:
      alpha: highest rate, in (0, 1).
      probability: least that a request is drawn with, in (0, 1].
      coefficient: of the judge, in [0, 1].

    Example: an error that the judge does not see counts for 10 requests where 1 in 10 is drawn, and
      a little more.
      >>> low, high = step_range(0.05, 0.1, 1.0)
      >>> round(low, 2), round(high, 2)
      (-9.05, 9.95)
    """
    undrawn = coefficient * (1.0 / probability - 1.0)
    return StepRange(
        -(alpha / probability + undrawn * (1.0 - alpha)),
        (1.0 - alpha) / probability + undrawn * alpha,
    )


def judged_steps(
    human: NDArray[np.float64],
    judge: NDArray[np.float64],
    drawn: NDArray[np.bool_],
    probability: NDArray[np.float64],
    coefficient: float,
) -> NDArray[np.float64]:
    """Step of each request, whose mean over the draw is people's x, [T].

    Args:
      human: x = k - alpha * n by people's labels, [T]; what it holds where nobody was drawn counts
        for nothing.
      judge: x by the judge's labels, [T].
      drawn: whether the request was drawn for people, [T].
      probability: that it was drawn with, [T].
      coefficient: of the judge.

    Example: two requests, both thought right by the judge; the one drawn at 1 in 2 is wrong.
      >>> judged_steps(
      ...     np.array([0.9, 0.0]),
      ...     np.array([-0.1, -0.1]),
      ...     np.array([True, False]),
      ...     np.full(2, 0.5),
      ...     1.0,
      ... )
      array([ 1.9, -0.1])
    """
    control = coefficient * judge
    return control + np.where(drawn, (human - control) / probability, 0.0)


def judged_wealth(
    parts: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]],
    alpha: float,
    probability: float,
    *,
    below: bool,
) -> NDArray[np.float64]:
    """Log wealth after each request, [T], spread over the coefficients of the judge.

    The last one is of all requests.

    Args:
      parts: people's x, the judge's x, drawn, and the probability of it, [T] each, as
        `judged_steps` takes them.
      alpha: highest rate.
      probability: least that a request is drawn with, known before the first one.
      below: bet on a rate below alpha; otherwise on one above.
    """
    paths = [
        bet(
            opening_wealth(*step_range(alpha, probability, c), below=below), judged_steps(*parts, c)
        )[0]
        for c in COEFFICIENTS
    ]
    return log_mean(np.stack(paths, axis=-1))


def certify_judged(
    frame: pd.DataFrame, *, targets: Mapping[str, float], delta: float = 0.1
) -> Certificate:
    """Certify targets on requests of which a judge labels all and people a random part.

    The null hypothesis of a target: over the requests of the frame, the conditional means of k -
    alpha * n, each given the requests before it, sum to 0 or more. Where it holds, the test
    certifies with probability delta at most, in finite samples and with any judge whose label of a
    request is fixed without knowing who is drawn. So, with confidence 1 - delta, errors are at most
    alpha of the cases in the mean over these requests: of drifting traffic in the mean of it, and
    also of the requests as they are. Each target is tested at delta; all of them must pass
    (intersection-union). The wealth is read once, at the end, where the order of the rows changes
    nothing.

    It needs: each request drawn by itself (`rng.random(len(frame)) < probability`) with a
    probability that is known for all before the labels are; a judge that labels all of them alike,
    drawn or not, and did not learn from these labels; one reading. A judge that was run on the
    drawn ones alone, or on them in another way, gives false certificates. Such a one is refused
    where what it says differs between drawn and other requests beyond chance; a judge that knows
    the draw and hides it so far is not found. A sample of a fixed size by stratum is not drawn like
    this: with it the test is not shown to hold, and nothing warns of it. The number drawn may
    differ from the expected one by 5 and 5 standard deviations, in all, of each stratum, and of
    requests with like probabilities (within a factor of 1.42).

    Args:
      frame: as `judged_rates` takes it; `inclusion_probability` is required of every request. A
        drawn request without a full label counts as the error that it may be. `policy_id`, where it
        is there, names what is certified.
      targets: highest value of each rate, as `{"hallucination_rate": 0.05}`.
      delta: error of the certificate, in (0, 0.5).

    Returns:
      A certificate with the method "betting". Its promises have k and n of people's labels, and as
        their bound alpha where the rate is certified, else 1. `chosen` is None where the judge
        depends on the draw, with the `reason`.

    Raises:
      InputError: a request without an inclusion probability, a number of drawn ones that these
        cannot give, or as for `judged_rates`.
      ValueError: a rate, an alpha or a delta that is none.
      TypeError: targets that are no mapping of rates to numbers, or a delta that is no number.

    Warns:
      UserWarning: as for `judged_rates`.

    Source: rule S6.14; see the module; intersection-union test, Berger 1982.

    Example: 200 answers, all of them labelled by people, and right.
      >>> import pandas as pd
      >>> rows = pd.DataFrame(
      ...     {"decision": ["ok"] * 200, "judge": "ok", "label": "ok", "inclusion_probability": 1.0}
      ... )
      >>> certify_judged(rows, targets={"hallucination_rate": 0.05}).chosen
      'decisions'
    """
    if not isinstance(targets, Mapping) or not all(
        isinstance(each, Real) for each in (delta, *targets.values())
    ):
        stated = f"{str(targets)[:80]!r} and {delta!r}"
        msg = (
            f"targets and delta must be numbers, got {stated}; write "
            f"targets={{'hallucination_rate': 0.05}}."
        )
        raise TypeError(msg)
    names, requests = checked_rates([*targets]), judged_requests(frame)
    for alpha in targets.values():
        check_levels(float(alpha), float(delta))
    _check_draw(requests)
    dependence = draw_dependence(requests, requests.probability)
    least = float(requests.probability.min())
    promises, logs = [], []
    for name in names:
        parts, alpha = rate_parts(requests, name), float(targets[name])
        steps = people_and_judge(requests, parts, alpha)
        logs.append(float(judged_wealth(steps, alpha, least, below=True)[-1]))
        bound = alpha if logs[-1] >= log_bar(delta) and not dependence else 1.0
        promises.append(Promise(name, alpha, float(parts.k.sum()), int(parts.n.sum()), bound))
    worst = int(np.argmin(logs))
    is_certified = logs[worst] >= log_bar(delta) and not dependence
    labelled = int((requests.drawn & (requests.human >= 0)).sum())
    about = f"{len(requests.status):,} requests, {labelled:,} of them labelled by people"
    if is_certified:
        texts = " and ".join(f"{name} at most {alpha:g}" for name, alpha in targets.items())
        reason = f"{texts} with confidence {1.0 - delta:g}, in the mean over {about}"
    elif dependence:
        reason = dependence
    else:
        wealth = f"{np.exp(min(logs[worst], 700.0)):.3g} of the {1.0 / delta:g} that it needs"
        reason = (
            f"the wealth against {names[worst]} above {targets[names[worst]]:g} is {wealth}, "
            f"after {about}"
        )
    policies = frame["policy_id"].astype(str).unique().tolist() if "policy_id" in frame else []
    chosen = (policies[0] if len(policies) == 1 else "decisions") if is_certified else None
    return Certificate(
        chosen,
        (chosen,) if chosen is not None else (),
        float((requests.status == Status.ok).mean()) if is_certified else 0.0,
        tuple(promises),
        names[worst],
        delta=delta,
        method="betting",
        tested=1,
        candidates=1,
        cases=len(requests.status),
        reason=reason,
    )


def people_and_judge(
    requests: JudgedRequests, parts: RateParts, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """People's x, the judge's x, drawn, and its probability, [T] each.

    A drawn one without a label is at its worst.
    """
    worst = (parts.tables[0] - alpha * parts.tables[1]).max(axis=1)[requests.status]
    human = np.where(requests.human >= 0, parts.k - alpha * parts.n, worst)
    return human, parts.judge_k - alpha * parts.judge_n, requests.drawn, requests.probability


def _check_draw(requests: JudgedRequests) -> None:
    """Refuse requests without a probability, or too many or too few drawn ones.

    The drawn ones are counted in all, of a stratum and of like ones.
    """
    if (missing := int(np.isnan(requests.probability).sum())) > 0:
        rule, remedy = (
            "inclusion_probability must be known of every request",
            "state it of those not drawn too",
        )
        raise input_error(
            Where("frame"), rule, remedy, f"{missing} without one of {len(requests.status)}"
        )
    alike = np.unique(np.round(2.0 * np.log2(requests.probability)), return_inverse=True)[1]
    groups = {
        "in all": np.zeros_like(alike),
        "of a stratum": requests.stratum,
        "of a like probability": alike,
    }
    for name, group in groups.items():
        expected, drawn = (
            np.bincount(group, weights) for weights in (requests.probability, requests.drawn)
        )
        spread = np.bincount(group, requests.probability * (1.0 - requests.probability))
        # A chance of one in a million a group, or less.
        excess = np.abs(drawn - expected) - 5.0 - 5.0 * np.sqrt(spread)
        if excess[worst := int(np.argmax(excess))] > 0.0:
            rule = (
                f"about {expected[worst]:.0f} requests {name} must be drawn by their "
                "inclusion_probability"
            )
            remedy = "state the true one, and in column drawn who was drawn and not labelled"
            raise input_error(
                Where("frame"), rule, remedy, f"{drawn[worst]:.0f} of {(group == worst).sum()}"
            )
