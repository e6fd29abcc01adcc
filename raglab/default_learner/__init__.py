"""Default learner (algebra): ask once, learn the default; rows, votes, gate and splits (S5.2 to S5.7).

A row answers one kind of question on one kind of document. `update` takes one signal into it and gives a new row,
`gate` and `asks` say whether its value is applied silently, `stratify` and `split` part a row whose failures gather
under one condition, `lookup` finds the row of a request, `suggest` the value to propose. `simulate` plays users.
"""

from __future__ import annotations

from raglab.default_learner.confidence import (
    OTHER,
    RULES,
    SIGNALS,
    ClarificationDefault,
    ClarificationRequest,
    Counts,
    Learner,
)
from raglab.default_learner.default_updates import (
    Split,
    Suggested,
    Worth,
    asks,
    due,
    gate,
    init,
    looked,
    lookup,
    met,
    shares,
    split,
    stratify,
    suggest,
    update,
    worth_asking,
)
from raglab.default_learner.simulation import Priced, World, asked, confidence_paths, silence, simulate, world

__all__ = [
    "OTHER",
    "RULES",
    "SIGNALS",
    "ClarificationDefault",
    "ClarificationRequest",
    "Counts",
    "Learner",
    "Priced",
    "Split",
    "Suggested",
    "World",
    "Worth",
    "asked",
    "asks",
    "confidence_paths",
    "due",
    "gate",
    "init",
    "looked",
    "lookup",
    "met",
    "shares",
    "silence",
    "simulate",
    "split",
    "stratify",
    "suggest",
    "update",
    "world",
    "worth_asking",
]
