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

    def corners(self, units: NDArray[np.int64] | None) -> NDArray[np.float64] | None:
        """Outermost mixes, what is not stated in the ratio of the units; None of the sample's own.

        Args:
          units: see `unit_cells`.
        """
        if units is None or self.traffic is None:
            return None
        labels = metrics.label_counts(units[0, 0])
        return self.traffic.at_labels(labels).vertices(labels)

    @property
    def level(self) -> float:
        """Level of the tests, what the mix leaves of it.

        Raises:
          ValueError: it leaves nothing.
        """
        whole, spent = self.delta / self.divisor, self.traffic.delta if self.traffic else 0.0
        if spent >= whole:
            msg = (
                f"delta must be above the error of the mix, got {whole:.3g} and {spent:.3g}; "
                "estimate the mix at a smaller delta."
            )
            raise ValueError(msg)
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
    """Check the settings of a certification."""
    _check_targets({} if targets is None else targets, costs)
    metrics.check_delta(delta)
    terms = CertificationSettings(
        dict(targets or {}), costs, delta, arm, again, None if looks is None else Path(looks)
    )._replace(mix=checked_mix(mix))
    _ = terms.level  # which a mix may leave nothing of
    return terms


def _check_targets(targets: Mapping[str, float], costs: metrics.Costs | None) -> None:
    example = "targets={'hallucination_rate': 0.1}"
    is_mapping = isinstance(targets, Mapping)
    wrong = (
        [
            alpha
            for alpha in targets.values()
            if not isinstance(alpha, Real) or isinstance(alpha, bool)
        ]
        if is_mapping
        else [targets]
    )
    if wrong:
        msg = f"targets must map names of rates to numbers, got {wrong[0]!r:.80}; write {example}."
        raise TypeError(msg)
    if not targets:
        msg = (
            "targets must name at least one rate, got none; state what is to be promised, such "
            f"as {example}."
        )
        raise ValueError(msg)
    allowed, most = metrics.OBJECTIVES, float(metrics.cost_matrix(costs).max())
    for name, alpha in targets.items():
        if name not in allowed and name != COST:
            msg = (
                f"targets must be rates of errors, one of {', '.join(allowed)}, or {COST}, got "
                f"{name!r}."
            )
            raise ValueError(msg)
        if name == COST:
            if not 0.0 < alpha < most:
                msg = (
                    f"the target of {COST} must be in (0, {most:g}), got {alpha}; {most:g} is the "
                    "highest cost."
                )
                raise ValueError(msg)
        elif not 0.0 < alpha < 1.0:
            msg = f"the target of {name} must be in (0, 1), got {alpha}; 0.1 is 10 %."
            raise ValueError(msg)
