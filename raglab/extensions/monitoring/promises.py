"""Promises (algebra): a certificate's promise as a loss of each outcome, mean 0 or less (S6.13).

A promise that a rate is at most alpha is E[k - alpha * n] <= 0 a request: k is its count among the
errors, n among the cases that the rate is a share of. Both follow from its decision, its label and
whether it is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raglab import metrics
from raglab.certify import Certificate
from raglab.lab.certification_counts import COST, counted_losses
from raglab.lab.certification_words import Certification
from raglab.lab.looks import stated_certificate, stated_mix
from raglab.metrics import OBJECTIVES, check_delta
from raglab.store.policies import Policy
from raglab.values import FloatArray, refuse
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
    alphas: FloatArray
    scale: FloatArray
    delta: float
    k: FloatArray
    n: FloatArray
    mix: str = ""

    @property
    def levels(self) -> FloatArray:
        """Highest values on the scale of the losses, in (0, 1), [T]."""
        return self.alphas / self.scale

    @property
    def excess(self) -> FloatArray:
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
    certificate_fields = _certificate_rows(certificate)
    declared_alphas = {
        str(promise["name"]): float(promise["alpha"]) for promise in certificate_fields["promises"]
    }
    rate_names = tuple(declared_alphas)
    if unknown_names := [
        rate_name for rate_name in rate_names if rate_name not in (*OBJECTIVES, COST)
    ]:
        refuse(
            f"a promise must be of {', '.join((*OBJECTIVES, COST))}",
            repr(unknown_names[0]),
            "certify a policy, not a threshold alone",
        )
    if COST in declared_alphas and "costs" not in certificate_fields:
        refuse(
            f"a promise of {COST} must come with its costs",
            "a Certificate by itself",
            "give the policy",
        )
    loss_counts = counted_losses(
        np.eye(metrics.N_CELLS, dtype=np.int64), rate_names, certificate_fields.get("costs")
    )
    alphas = np.array(list(declared_alphas.values()))
    levels = alphas / loss_counts.scale
    if loose_promises := np.flatnonzero(~((levels > 0.0) & (levels < 1.0))).tolist():
        refuse(
            "a promise must be above 0 and below the highest value that there is",
            f"{alphas[loose_promises[0]]:g} of {rate_names[loose_promises[0]]}",
            "nothing is to be watched there",
        )
    checked_delta = check_delta(float(certificate_fields["delta"]) if delta is None else delta)
    return Promises(
        str(certificate_fields["policy_id"]),
        rate_names,
        alphas,
        loss_counts.scale,
        checked_delta,
        loss_counts.k,
        loss_counts.n.astype(np.float64),
        str(stated_mix(certificate_fields) or ""),
    )


def _certificate_rows(certificate: Policy | Certification | Certificate) -> Mapping[str, Any]:
    """Certificate as a policy file holds it."""
    if isinstance(certificate, Certification) and certificate.policy is not None:
        certificate = certificate.policy
    if isinstance(certificate, Policy):
        return stated_certificate(certificate)
    if not isinstance(certificate, Certification | Certificate):
        accepted_types = (
            "a Policy that holds one (raglab.Policy.load(path)), a Certification or a Certificate"
        )
        type_name = type(certificate).__name__
        msg = f"certificate must be {accepted_types}, got {type_name}; certify first."
        raise TypeError(msg)
    if isinstance(certificate, Certification) or certificate.chosen is None:
        fault_text = getattr(certificate, "reason", certificate)
        refuse("a certificate must promise something to be watched", fault_text, "certify a policy")
    return certificate.rows
