"""Document roles (algebra): what a document is among those that a question may mean (S5.10).

A default that names a file helps with no other portfolio: next week's contract has another name.
What is learned is the part that the document plays among the candidates: the only one of its kind,
the newest, the French one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from raglab.default_learner.votes import MAX_FIELD_LENGTH

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
    called: dict[str, list[str]] = {}
    for name, of in known.items():
        texts = _descriptions(of, list(known.values()))
        if kind := of.get(KIND):
            alike = [each for each in known.values() if each.get(KIND) == kind]
            among = [f"{KIND} {kind}, {text}" for text in _descriptions(of, alike)]
            texts = [f"{KIND} {kind}", *texts, *among]
        called[name] = texts
    # A file may be called what another one is; then neither is told by it.
    count = Counter(text for name, texts in called.items() for text in {*texts, name})
    return {
        name: next(
            (text for text in texts if count[text] == 1 and len(text) <= MAX_FIELD_LENGTH), name
        )
        for name, texts in called.items()
    }


def _descriptions(of: Mapping[str, str], group: Sequence[Mapping[str, str]]) -> list[str]:
    """What a document may be called in a group, by recency and by name."""
    if len(group) == 1:
        return []
    texts = []
    for tag in RECENCY:
        order = [_numbers(each.get(tag, "")) for each in group]
        if order and all(order):
            ends = {"newest": max(order), "oldest": min(order)}
            texts += [f"{word} {tag}" for word in ends if ends[word] == _numbers(of[tag])]
    return texts + [f"{tag} {of[tag]}" for tag in NAMED if tag in of]


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers of a version or a date, the largest unit first.

    () where it is none that has an order.
    """
    match = _NUMBERED.fullmatch(text)
    return () if match is None else tuple(int(number) for number in re.split(r"[.\-_/]", match[1]))
