"""What the audit log keeps of people's words, and how it forgets them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, get_args

from raglab.lab._audited import hashed
from raglab.lab._written import plain
from raglab.store.audit import Entries
from raglab.store.requests import CLARIFICATIONS, DECISIONS, REPLIES, REQUESTS

Redaction = Literal["text", "hash", "none"]
OF_QUESTION = frozenset({"coverage"})  # gates whose words may quote the question
QUOTING = OF_QUESTION | {"support", "hygiene"}  # or the answer
_SLOT = 2


def check_kept(query: str, keep_days: float) -> None:
    """Refuse what is no setting of what is kept, and for how long."""
    if query not in get_args(Redaction):
        msg = f"query must be one of {', '.join(get_args(Redaction))}, got {query!r:.80}; choose what is kept."
        raise ValueError(msg)
    if not 0.0 <= keep_days < float("inf"):
        msg = f"keep_days must be at least 0, got {keep_days!r:.80}; 0 keeps texts for ever."
        raise ValueError(msg)


def check_texts(**texts: object) -> None:
    """Refuse what is no text, by name."""
    for name, text in texts.items():
        if not isinstance(text, str):
            msg = f"{name} must be a text, got {type(text).__name__}; pass a str."
            raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere


def kept(question: str, parsed: object, query: Redaction) -> dict[str, Any]:
    """Columns of a question's words, as far as they are kept."""
    fields, whole = plain(parsed), query == "text"
    return {
        "question": question if whole else None,
        "question_hash": "" if query == "none" else hashed(question),
        "parsed": fields if whole else without_values(fields),
    }


def without_values(parsed: Any) -> Any:  # noqa: ANN401 - JSON values
    """Parsed fields with their confidences alone."""
    if not isinstance(parsed, Mapping):
        return None
    return {name: blank for name, slot in parsed.items() if (blank := _blank(slot)) is not None}


def _blank(slot: object) -> list[Any] | None:
    """A field without its value: [null, confidence]; None for what has no confidence."""
    parts = slot.get("confidence") if isinstance(slot, Mapping) else None
    if isinstance(slot, Sequence) and not isinstance(slot, str) and len(slot) == _SLOT:
        parts = slot[1]
    return [None, float(parts)] if isinstance(parts, int | float) and not isinstance(parts, bool) else None


def blanked(log: Entries, before: str) -> int:
    """Take texts out of rows older than a moment; requests that had any."""
    had: set[str] = set()
    for table, without in _WITHOUT.items():
        for row in list(log.rows(table, before=before)):
            new = without(row)
            if any(row[name] != value for name, value in new.items()):
                log.blank(table, row, **new)
                had.add(row["request_id"])
    return len(had)


def _decision(row: Mapping[str, Any]) -> dict[str, Any]:
    """A decision without answer, previews, warnings and quotations; its numbers stay."""
    options = [{key: item for key, item in one.items() if key != "text"} for one in row["options"]]
    return {"answer": None, "options": options, "warnings": [], **_unquoted(row, QUOTING)}


def spoken(row: Mapping[str, Any], query: Redaction) -> dict[str, Any]:
    """Columns of a decision without what quotes the question, where its text is not kept."""
    return {**row, **({} if query == "text" else _unquoted(row, OF_QUESTION))}


def _unquoted(row: Mapping[str, Any], gates: Collection[str]) -> dict[str, Any]:
    """Reason and checks of a decision without the words of these gates."""
    quoted = {one["text"] for one in row["checks"] if one["gate"] in gates and one["text"]}
    reason = "" if any((row["reason"] or "").startswith(text) for text in quoted) else row["reason"]
    return {"reason": reason, "checks": [one | {"text": ""} if one["gate"] in gates else one for one in row["checks"]]}


_WITHOUT: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {  # by table: columns without their texts
    REQUESTS: lambda row: {"question": None, "question_hash": "", "parsed": without_values(row["parsed"])},
    CLARIFICATIONS: lambda _: {"question_to_user": None, "proposed_reason": None, "audit": {}},
    REPLIES: lambda _: {"reply": None},
    DECISIONS: _decision,
}
