"""Default learner (algebra): ask once, learn the default; rows, votes, splits (S5.2 to S5.7).

A row answers one kind of question on one kind of document. `update` takes one signal into it and
gives a new row, `gate` and `asks` say whether its value is applied silently (`fills_in`: with what
a question is worth), `stratify` and `split` part a row whose failures gather under one condition,
`lookup` finds the row of a request, `suggest` the value to propose. `simulate` plays users.
"""

from __future__ import annotations

from raglab.default_learner.default_updates import (
    Suggested,
    Worth,
    asks,
    fills_in,
    gate,
    init,
    leads,
    lookup,
    met,
    shares,
    suggest,
    update,
    worth_asking,
)
from raglab.default_learner.simulated_users import World, world
from raglab.default_learner.simulation import (
    confidence_paths,
    request_outcomes,
    silence,
    simulate,
)
from raglab.default_learner.stratification import (
    Split,
    looked,
    source_split,
    split,
    stored_split,
    stratify,
)
from raglab.default_learner.votes import (
    OTHER,
    RULES,
    SIGNALS,
    SPLITS,
    ClarificationDefault,
    ClarificationRequest,
    Counts,
    DefaultLearner,
    stored_learner,
)

__all__ = [
    "OTHER",
    "RULES",
    "SIGNALS",
    "SPLITS",
    "ClarificationDefault",
    "ClarificationRequest",
    "Counts",
    "DefaultLearner",
    "Split",
    "Suggested",
    "World",
    "Worth",
    "asks",
    "confidence_paths",
    "fills_in",
    "gate",
    "init",
    "leads",
    "looked",
    "lookup",
    "met",
    "request_outcomes",
    "shares",
    "silence",
    "simulate",
    "source_split",
    "split",
    "stored_learner",
    "stored_split",
    "stratify",
    "suggest",
    "update",
    "world",
    "worth_asking",
]
