"""Promises (algebra): a certificate's promise as a loss of each outcome, mean 0 or less (S6.13).

A promise that a rate is at most alpha is E[k - alpha * n] <= 0 a request: k is its count among the
errors, n among the cases that the rate is a share of. Both follow from its decision, its label and
whether it is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import metrics
from raglab.certify import Certificate
from raglab.lab.certification_counts import COST, counted_losses
from raglab.lab.certification_words import Certification
from raglab.lab.looks import stated_certificate, stated_mix
from raglab.metrics import OBJECTIVES, check_delta
from raglab.store.policies import Policy
from raglab.words.canonical import canonical_json, digest


class Promises(NamedTuple):
    """Promises of a certificate.

    Attributes:
      policy_id: of the policy that was certified.
      names: of the rates, or `expected_cost`, [T].
      alphas: highest values, in the units of the certificate, [T].
      scale: what a loss of 1 stands for, the highest cost or 1, [T].
      delta: error of all that a monitor says of them.
      k: loss of each cell, in [0, 1], [18, T].
      n: whether a cell is of those that the rate is a share of, [18, T].
      mix: traffic that the certificate states, '' where it states none.
    """

    policy_id: str
    names: tuple[str, ...]
    alphas: NDArray[np.float64]
    scale: NDArray[np.float64]
    delta: float
    k: NDArray[np.float64]
    n: NDArray[np.float64]
    mix: str = ""

    @property
    def levels(self) -> NDArray[np.float64]:
        """Highest values on the scale of the losses, in (0, 1), [T]."""
        return self.alphas / self.scale

    @property
    def excess(self) -> NDArray[np.float64]:
        """Loss beyond what is promised of each cell: k - alpha * n, [18, T]."""
        return self.k - self.levels * self.n

    @property
    def key(self) -> str:
        """Digest of all that the claims rest on, so that no state goes on under other promises."""
        excess = self.excess[: metrics.PLAIN_CELLS].tolist()
        return digest(canonical_json([self.policy_id, self.names, excess, self.delta]), 16)


def certificate_promises(
    certificate: Policy | Certification | Certificate, delta: float | None = None
) -> Promises:
    """Promises of a certificate.

    Args:
      certificate: a policy that holds a valid one, a certification, or the certificate of a policy.
      delta: error, in (0, 0.5); the certificate's where None.

    Raises:
      ValueError: nothing is certified, the certificate is not valid or promises what is no rate of
        decisions, a promise that cannot be broken, or delta outside (0, 0.5).
      TypeError: what is none of the three.

    Source: rules S6.2, S6.7, S6.10, S6.13.
    """
    rows = _certificate_rows(certificate)
    stated = {str(promise["name"]): float(promise["alpha"]) for promise in rows["promises"]}
    names = tuple(stated)
    if unknown := [name for name in names if name not in (*OBJECTIVES, COST)]:
        rule = f"a promise must be of {', '.join((*OBJECTIVES, COST))}"
        msg = (
            f"{rule}, got {unknown[0]!r}; certify a policy (raglab.certify_policy), not a "
            "threshold alone."
        )
        raise ValueError(msg)
    if COST in stated and "costs" not in rows:
        msg = (
            f"a promise of {COST} must come with its costs, got a Certificate by itself; give the "
            "policy."
        )
        raise ValueError(msg)
    counts = counted_losses(np.eye(metrics.N_CELLS, dtype=np.int64), names, rows.get("costs"))
    alphas = np.array(list(stated.values()))
    if loose := [
        name
        for name, level in zip(names, alphas / counts.scale, strict=True)
        if not 0.0 < level < 1.0
    ]:
        rule = "a promise must be above 0 and below the highest value that there is"
        msg = f"{rule}, got {stated[loose[0]]:g} of {loose[0]}; nothing is to be watched there."
        raise ValueError(msg)
    error = check_delta(float(rows["delta"]) if delta is None else delta)
    return Promises(
        str(rows["policy_id"]),
        names,
        alphas,
        counts.scale,
        error,
        counts.k,
        counts.n.astype(np.float64),
        str(stated_mix(rows) or ""),
    )


def _certificate_rows(certificate: Policy | Certification | Certificate) -> Mapping[str, Any]:
    """Certificate as a policy file holds it."""
    if isinstance(certificate, Policy):
        return stated_certificate(certificate)
    if isinstance(certificate, Certification):
        if certificate.policy is None:
            msg = f"a certification must have certified a policy to be watched, got {certificate!r}"
            raise ValueError(msg)
        return stated_certificate(certificate.policy)
    if isinstance(certificate, Certificate):
        if certificate.chosen is None:
            msg = (
                "a certificate must promise something to be watched, got none: "
                f"{certificate.reason}"
            )
            raise ValueError(msg)
        return certificate.rows
    kinds = "a Policy that holds one (raglab.Policy.load(path)), a Certification or a Certificate"
    msg = (
        f"certificate must be {kinds}, got {type(certificate).__name__}; certify first "
        "(raglab.certify_policy)."
    )
    raise TypeError(msg)
