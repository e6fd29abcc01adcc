"""Certified retrieval (shore): whether hits are of a certificate's arm and retrieval (S6.10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.arguments.user_warnings import warn_user
from raglab.decision.signal_values import ANSWER_SIGNALS, STORED_SIGNALS, used_signals
from raglab.policy import PolicyData
from raglab.policy_parts.acting import acting_gates
from raglab.signals import NAMES

# gates and signals that read scores of retrieval
SCORE_READERS = frozenset(
    {"l2", "density", "gap", "similarity", "confidence", "fused", *NAMES}
).difference(STORED_SIGNALS, ANSWER_SIGNALS)
IGNORED_SETTINGS = frozenset(
    {"arms"}
)  # which others there were changes no hit of the certified one


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
    certified_settings = {
        setting_name: setting
        for setting_name, setting in certificate.get("retrieval", {}).items()
        if setting is not None
    }
    differing_names = [
        setting_name
        for setting_name, setting in certified_settings.items()
        if setting_name not in IGNORED_SETTINGS and setting != parameters.get(setting_name)
    ]
    return [
        f"{setting_name} {parameters.get(setting_name)} instead of "
        f"{certified_settings[setting_name]}"
        for setting_name in differing_names
    ]


def check_scores(policy: PolicyData) -> None:
    """Stop at a policy whose values were chosen on scores of another system than raglab.

    What counts is where the hits came from: an exported trace of raglab that is read as a frame is
    another system's. A policy none of whose gates reads a score has no such value.

    Args:
      policy: that is to decide hits of raglab, with `tuned_scores`.

    Raises:
      ValueError: it was tuned or fitted on a trace of a frame or of spans.
    """
    if SCORE_READERS.intersection([*acting_gates(policy), *used_signals(policy)]):
        message = (
            "a policy must be tuned on scores of raglab's retrieval, got one of "
            f"{policy.tuned_scores} scores of another system; map it by "
            "raglab.rescale_thresholds(trace, policy, to=build_trace(…)), or decide your hits by "
            "decide_frame."
        )
        raise ValueError(message)


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
    certified_arm = certificate.get("arm")
    if arm is not None and certified_arm not in {None, arm}:
        differences.insert(0, f"arm {arm} instead of {certified_arm}")
    if differences:
        warn_user(
            f"{place}: the policy was certified on hits of another retrieval "
            f"({'; '.join(differences)}): its promise is not about these hits; certify again "
            "(rule S6.10)."
        )
