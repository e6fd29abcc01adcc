"""Document roles (algebra): what a document is among those that a question may mean (S5.10).

A default that names a file helps with no other portfolio: next week's contract has another name.
What is learned is the part that the document plays among the candidates: the only one of its kind,
the newest, the French one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from raglab.default_learner.confidence import LONGEST

KIND = "doc_type"
# tags whose values have an order, in the order in which they are read
RECENCY = ("version", "date")
# tags that tell documents apart by name, the most general first
NAMED = ("lang", "vendor", "product")
# 2025, v1.2, 2025-03-01: the largest unit first
_NUMBERED = re.compile(r"[vV]?(\d+(?:[.\-_/]\d+)*)")


def document_roles(tags: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Role of each document among these: what it alone is.

    In this order: its kind, where only one has it; the newest or the oldest by version, then by
    date; its language; its vendor, its product. Where several are of one kind, the same among
    those. Else the file's own name, which carries over to nothing.

    Args:
      tags: by file, as its chunks have them; a tag that is blank is not there.

    Returns:
      role by file, all different.

    Source: rule S5.10.

    Example:
      >>> document_roles({"a-2024.md": {"doc_type": "schedule"}, "b.md": {"doc_type": "contract"}})
      {'a-2024.md': 'doc_type schedule', 'b.md': 'doc_type contract'}
      >>> document_roles({"a.md": {"version": "2024"}, "b.md": {"version": "2025"}})
      {'a.md': 'oldest version', 'b.md': 'newest version'}
    """
    known = {
        name: {key: value.strip() for key, value in of.items() if value.strip()}
        for name, of in tags.items()
    }
    kinds = Counter(of.get(KIND, "") for of in known.values())
    roles: dict[str, str] = {}
    for name, of in known.items():
        kind = of.get(KIND, "")
        if kind and kinds[kind] == 1:
            role: str | None = f"{KIND} {kind}"
        else:
            role = _sole_role(name, known)
            alike = {
                file: file_tags for file, file_tags in known.items() if file_tags.get(KIND) == kind
            }
            if role is None and kind and len(alike) < len(known):
                among = _sole_role(name, alike)
                role = None if among is None else f"{KIND} {kind}, {among}"
        roles[name] = name if role is None or len(role) > LONGEST else role
    # A file may be called what another one is; then neither is told by it.
    twice = Counter(roles.values())
    return {name: role if twice[role] == 1 else name for name, role in roles.items()}


def _sole_role(name: str, known: Mapping[str, Mapping[str, str]]) -> str | None:
    """What one document alone is, of recency and names; None where nothing tells it apart."""
    for tag in RECENCY:
        order = {file: _numbers(of.get(tag, "")) for file, of in known.items()}
        if all(order.values()):
            for word, end in (("newest", max(order.values())), ("oldest", min(order.values()))):
                if (
                    order[name] == end
                    and sum(numbers == end for numbers in order.values()) == 1
                    and len(order) > 1
                ):
                    return f"{word} {tag}"
    for tag in NAMED:
        value = known[name].get(tag)
        if (
            value is not None
            and sum(of.get(tag) == value for of in known.values()) == 1
            and len(known) > 1
        ):
            return f"{tag} {value}"
    return None


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers of a version or a date, the largest unit first.

    () where it is none that has an order.
    """
    match = _NUMBERED.fullmatch(text)
    return () if match is None else tuple(int(number) for number in re.split(r"[.\-_/]", match[1]))
