"""Responses and checks as the audit log writes and reads them: JSON without NaN or infinity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from raglab._explain import Check
from raglab.default_learner import ClarificationDefault, ClarificationRequest, Learner, gate
from raglab.lab._pending import key_of_row
from raglab.policy import Policy
from raglab.store.audit import Entries
from raglab.store.requests import CLARIFICATIONS, POLICIES, request_of
from raglab.values import Status

_ENDLESS = {"inf": math.inf, "-inf": -math.inf}


def kept_policy(log: Entries, policy: Policy, at: str) -> str:
    """Keep a policy's body where it is new, and give its id."""
    if log.one(POLICIES, policy_id=policy.policy_id) is None:
        log.add(POLICIES, {"at": at, "policy_id": policy.policy_id, "body": policy.model_dump(mode="json")})
    return policy.policy_id


def clarify(log: Entries, row: Mapping[str, Any], request: ClarificationRequest) -> None:
    """Log what the user is asked, once a request.

    Raises:
      ValueError: request or row is not in the log, or the request was asked about already.
    """
    request_id = row["request_id"]
    request_of(log, request_id)
    key_of_row(log, row["row_id"])
    if log.one(CLARIFICATIONS, request_id=request_id) is not None:
        msg = f"a request may be asked about once, got a second clarification of {request_id!r}; decide it."
        raise ValueError(msg)
    asked = {
        "target_field": request.target_field,
        "question_to_user": request.question_to_user,
        "candidates": list(request.candidate_values),
        "proposed": request.proposed_default,
        "proposed_reason": request.proposed_default_reason,
        "audit": plain(request.audit),
    }
    log.add(CLARIFICATIONS, {**row, **asked})


def then(row: ClarificationDefault, kind: str, conditions: Mapping[str, str], learner: Learner) -> dict[str, Any]:
    """Columns of a row of the default table as it is now."""
    verdict = gate(row, ask_below=learner.ask_below, apply_above=learner.apply_above)
    state = {"row_id": row.row_id, "version": row.version, "confidence": row.confidence, "gate": verdict}
    return state | {"votes": dict(row.candidate_votes), "kind": kind, "conditions": dict(conditions)}


def decision_row(
    of: Mapping[str, Any],
    response: Mapping[str, Any],
    checks: Sequence[Check],
    ms: Mapping[str, float] | float | None,
) -> dict[str, Any]:
    """Columns of a decision: what was answered, by which checks, under what the request was opened with.

    Args:
      of: row of the request.

    Raises:
      ValueError: a status that is none (rule S0.1).
    """
    if response.get("status") not in Status.__members__:
        came = f"{response.get('status')!r:.80}"
        msg = f"status must be one of {', '.join(Status.__members__)}, got {came}; a broken input raises."
        raise ValueError(msg)
    spent = ms if isinstance(ms, Mapping) else {} if ms is None else {"total": ms}
    stated = {
        "status": response["status"],
        "reason": response.get("refusal_reason"),
        "answer": response.get("answer"),
        "sources": list(response.get("sources") or ()),
        "options": plain(list(response.get("options") or ())),
        "warnings": list(response.get("warnings") or ()),
        "confidence": number(response.get("confidence")),
        "route": response.get("route"),
        "arm": response.get("arm"),
        "clarified": int(response.get("clarification") is not None),
        "default_applied": plain(response.get("default_applied")),
    }
    told = {"checks": [written(one) for one in checks], "ms": {name: number(value) for name, value in spent.items()}}
    shared = ("request_id", "policy_id", "fingerprint", "models", "prompt_version")
    return stated | told | {name: of[name] for name in shared}


def written(check: Check) -> dict[str, Any]:
    """Check as JSON values: null for NaN, a text for an infinity."""
    numbers = {name: _out(getattr(check, name)) for name in ("value", "threshold", "margin")}
    return {"gate": check.gate, "rule": check.rule, **numbers, "passes": bool(check.passes), "text": check.text}


def read(row: Mapping[str, Any]) -> Check:
    """Check of JSON values."""
    value, threshold, margin = (_in(row[name]) for name in ("value", "threshold", "margin"))
    return Check(row["gate"], row["rule"], value, threshold, margin, row["passes"], row["text"])


def number(value: object) -> float | None:
    """A finite number, None for another."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Value as JSON can hold it; models by their fields, NaN as null.

    Example:
      >>> plain({"page_scope": ("1", float("nan"))})
      {'page_scope': ['1', None]}
    """
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value


def _out(value: float) -> float | str | None:
    if math.isfinite(value):
        return float(value)
    return None if math.isnan(value) else str(float(value))


def _in(value: float | str | None) -> float:
    if value is None:
        return math.nan
    return _ENDLESS[value] if isinstance(value, str) else float(value)
