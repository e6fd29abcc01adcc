"""Certification settings (shore): targets, costs, delta and the file of looks, checked (S6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.lab.certified_losses import COST
from raglab.lab.looks import Reuse
from raglab.metrics.mixes import SAMPLE, Mix, TrafficMix, checked_mix
from raglab.values import refuse

EXAMPLE = "targets={'hallucination_rate': 0.1}"


class CertificationSettings(NamedTuple):
    """Targets, costs, arm, delta and file of looks of a certification.

    targets: rate -> highest value. costs: see `metrics.cost_matrix`. delta: error. arm: None for
    the first. again, looks: see `certify_policy`. reuse: what an upgrade knows of earlier looks;
    delta is divided then by the number of this look, which is set under the lock of the file.
    divisor: of delta, at whose quotient the policy is tested, as one of so many that these cases
    may have chosen. budget: error from which delta was divided, for the next division; None where
    it was not. mix: that the targets are of, as it is stated; None of the sample's own.
    """

    targets: Mapping[str, float]
    costs: metrics.Costs | None
    delta: float
    arm: str | None
    again: bool
    looks: Path | None
    reuse: Reuse | None = None
    divisor: int = 1
    budget: float | None = None
    mix: TrafficMix | None = None

    @property
    def traffic(self) -> TrafficMix | None:
        """The mix; an estimate takes half of the error unless its own is stated (rule S6.15)."""
        if self.mix is None or self.mix.is_fixed:
            return self.mix
        return self.mix.at(self.delta / self.divisor / 2.0)

    def corners(self, labels: NDArray[np.int64] | None) -> NDArray[np.float64] | None:
        """Outermost mixes, what is not stated in the ratio of the cases; None of their own.

        Args:
          labels: distinct questions by label, [3]; None without a mix.
        """
        if labels is None or self.traffic is None:
            return None
        return self.traffic.at_labels(labels).vertices(labels)

    @property
    def level(self) -> float:
        """Level of the tests, what the mix leaves of it.

        Raises:
          ValueError: it leaves nothing.
        """
        whole, spent = self.delta / self.divisor, self.traffic.delta if self.traffic else 0.0
        if spent >= whole:
            value = f"{whole:.3g} and {spent:.3g}"
            refuse(
                "delta must be above the error of the mix", value, "estimate it at a smaller one"
            )
        return whole - spent


def checked_settings(
    targets: Mapping[str, float] | None,
    costs: metrics.Costs | None,
    delta: float,
    arm: str | None,
    *,
    again: bool,
    looks: str | Path | None,
    mix: Mix = SAMPLE,
) -> CertificationSettings:
    """Check the settings of a certification.

    Raises:
      TypeError: targets that map no names to numbers.
      ValueError: no target, one of another name or out of its range, a wrong delta or mix.
    """
    stated = {} if targets is None else targets
    items = stated.items() if isinstance(stated, Mapping) else [("", stated)]
    for _, alpha in items:
        if not isinstance(alpha, Real) or isinstance(alpha, bool) or stated is alpha:
            msg = f"targets must map names of rates to numbers, got {alpha!r:.80}; write {EXAMPLE}."
            raise TypeError(msg)
    if not stated:
        refuse("targets must name at least one rate", "none", f"write {EXAMPLE}")
    most = {COST: float(metrics.cost_matrix(costs).max())} | dict.fromkeys(metrics.OBJECTIVES, 1.0)
    for name, alpha in items:
        if name not in most:
            listed = ", ".join(most)
            refuse("targets must be rates of errors or a cost", repr(name), f"name one of {listed}")
        if not 0.0 < alpha < most[name]:
            refuse(f"the target of {name} must be in (0, {most[name]:g})", alpha, "0.1 is 10 %")
    metrics.check_delta(delta)
    file = None if looks is None else Path(looks)
    terms = CertificationSettings(dict(items), costs, delta, arm, again, file, mix=checked_mix(mix))
    _ = terms.level  # which a mix may leave nothing of
    return terms
