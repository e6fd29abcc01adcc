"""The response to one question, as every door gives it (rule S0.3)."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from raglab._explain import Check

KEYS = (
    "answer",
    "sources",
    "status",
    "refused",
    "refusal_reason",
    "options",
    "warnings",
    "confidence",
    "route",
    "arm",
    "arm_reason",
    "clarification",
    "default_applied",
    "policy_id",
    "request_id",
)
PREVIEW = 160  # characters of an option's anchor


class Seen(NamedTuple):
    """What happened on the way to a response, for people and learners; no part of it.

    ms: milliseconds by stage: of retrieval, `evidence` (measured from the hits), `gates` (verdicts on it), `generate`,
    `support` (with hygiene). answer_cache_hit, strategy_cache_hit: signals to the bandit (rule S4.2). queries: what
    was searched, depth by depth. checks: every gate with its numbers. measures: margin, diversity and consistency of
    the reward (rule S4.3), None where one cannot be measured; both from the cache where the answer is. retrieved:
    statistics of the hits at the depth that decided. propensity: probability of the arm where a bandit chose it.
    offered: options among which a user chose.
    """

    ms: Mapping[str, float]
    answer_cache_hit: bool
    strategy_cache_hit: bool
    queries: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    measures: Mapping[str, float | None] = {}
    retrieved: Mapping[str, float | None] = {}
    propensity: float | None = None
    offered: Sequence[Mapping[str, Any]] = ()


class Response(Mapping[str, Any]):
    """The answer to one question: a mapping with the keys of rule S0.3, which equals another with the same items.

    seen: how it came about.
    """

    __slots__ = ("_fields", "seen")

    def __init__(self, fields: Mapping[str, Any], seen: Seen) -> None:
        self._fields = {key: fields[key] for key in KEYS}
        self.seen = seen

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - values of any key
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Response({json.dumps(self._fields, ensure_ascii=False)})"

    def _repr_html_(self) -> str:
        """Table for a notebook; whatever came from documents or models is escaped."""
        shown = {key: value for key, value in self._fields.items() if value not in (None, [], False)}
        told = {**shown, **_asked_shown(shown)}
        rows = "".join(
            f"<tr><th style='text-align:left'>{key}</th><td style='text-align:left'>{_cell(value)}</td></tr>"
            for key, value in told.items()
        )
        return f"<table>{rows}</table>"

    def json(self) -> str:
        """The response as JSON, keys in the order of rule S0.3."""
        return json.dumps(self._fields, ensure_ascii=False)


def _asked_shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked and what was filled in, in words; the options of a question stand under it."""
    told: dict[str, Any] = {}
    if asked := fields.get("clarification"):
        told["clarification"] = asked["question_to_user"]
        told["options"] = "\n".join(f"{one['text']} ({one['value']})" for one in fields["options"])
    if default := fields.get("default_applied"):
        about = f"row {default['row_id']}, version {default['version']}, {default['gate']}"
        confidence = f"confidence {default['confidence']:.2f}"
        told["default_applied"] = f"{default['field']} = {default['value']} ({confidence}; {about})"
    return told


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return html.escape(text).replace("\n", "<br>")
