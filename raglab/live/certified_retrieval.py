"""Certified retrieval (shore): whether hits are of a certificate's arm and retrieval (S6.10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.arguments.user_warnings import warn_user
from raglab.policy import PolicyData

NO_SETTING = frozenset({"arms"})  # which others there were changes no hit of the certified one


def retrieval_differences(
    certificate: Mapping[str, Any], parameters: Mapping[str, Any]
) -> list[str]:
    """What hits were retrieved with otherwise than those of the cases that were certified.

    Args:
      certificate: of a policy.
      parameters: of the retrieval by name, as the meta of a trace has them.

    Example:
      >>> retrieval_differences(
      ...     {"retrieval": {"fetch_k": 50, "rrf_k": 60}}, {"fetch_k": 20, "rrf_k": 60}
      ... )
      ['fetch_k 20 instead of 50']
    """
    # A setting of None, such as the rewriter of an arm that rewrites nothing, has no part in the
    # certified hits.
    own = {
        name: value for name, value in certificate.get("retrieval", {}).items() if value is not None
    }
    differing = [
        name
        for name, value in own.items()
        if name not in NO_SETTING and value != parameters.get(name)
    ]
    return [f"{name} {parameters.get(name)} instead of {own[name]}" for name in differing]


def warn_of_other_retrieval(
    policy: PolicyData, parameters: Mapping[str, Any], *, arm: str | None, place: str
) -> None:
    """Warn that the promise of a policy is not about some hits, where they come from elsewhere.

    Args:
      policy: without a certificate nothing is promised, and nothing is warned of.
      parameters: of the retrieval of the hits.
      arm: that retrieves them; None where it has no name.
      place: that the hits are decided in, for the message.
    """
    certificate = policy.certificate
    if not certificate:
        return
    differences = retrieval_differences(certificate, parameters)
    certified = certificate.get("arm")
    if arm is not None and certified not in {None, arm}:
        differences.insert(0, f"arm {arm} instead of {certified}")
    if differences:
        how = "certify on hits of this retrieval, or decide where the certified ones come from"
        warn_user(
            f"{place}: the policy was certified on hits that were retrieved otherwise "
            f"({'; '.join(differences)}). Its "
            f"promise and its thresholds are not about these hits; {how} (rule S6.10)."
        )
