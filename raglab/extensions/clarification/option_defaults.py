"""Option defaults (shore): a choice among resolver options, learned for the next (S3.5, S5.4).

The next is the next set of options.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from raglab.audit.default_table import DefaultUse, RowKey
from raglab.audit.log import row_gate
from raglab.default_learner import fills_in, lookup, suggest
from raglab.extensions.clarification.document_roles import document_roles
from raglab.extensions.clarification.question_texts import applied_default, default_sentence
from raglab.extensions.clarification.turns import Turn
from raglab.live.response import Response
from raglab.values import Chunk
from raglab.words.canonical import digest

KIND = "options"
LONGEST = 200  # characters of a value


def option_values(options: Sequence[Mapping[str, Any]], chunks: Sequence[Chunk]) -> dict[str, int]:
    """Id of each option by what a choice of it is learned under.

    The roles of its documents among the options'.

    So that what was learned holds for other documents; where roles do not tell the options apart,
    it is their sources.
    """
    files = [
        sorted({source.rsplit("#", 1)[0] for source in option["sources"]}) for option in options
    ]
    named = set(chain.from_iterable(files))
    roles = document_roles(
        {chunk.document: chunk.tags for chunk in chunks if chunk.document in named}
    )
    values = ["; ".join(roles.get(name, name) for name in names) for names in files]
    if len(set(values)) < len(values):
        values = ["; ".join(option["sources"]) for option in options]
    short = [value if 0 < len(value) <= LONGEST else _value_digest(value) for value in values]
    return {value: option["id"] for value, option in zip(short, options, strict=True)}


def option_key(values: Iterable[str]) -> RowKey:
    """Key of the row: the set of the options' values."""
    return RowKey(f"{KIND}:{_value_digest(sorted(values))}", KIND, {})


def _value_digest(value: object) -> str:
    return digest(json.dumps(value, ensure_ascii=False), 12)


def learn_options(response: Response, turn: Turn) -> Response:
    """A choice teaches its set of options.

    Options whose choice is known are settled where the gate says so.
    """
    log, request, rule, chunks = (
        turn.log,
        turn.request,
        turn.clarification.learner,
        turn.clarification.chunks,
    )
    if request.selected is not None:
        values = option_values(response.record.offered, chunks)
        chosen = {number: value for value, number in values.items()}.get(request.selected)
        if response["status"] == "ok" and chosen is not None:
            key = option_key(values)
            log.signal(request.id, key, chosen, "explicit_yes", conditions={}, now=request.now)
        return response
    # A question that was asked back is settled by its reply, not by what earlier users chose.
    if response["status"] != "ambiguous" or response["clarification"] is not None:
        return response
    # The row is read before this request counts: the schedule asks by how often it was met before.
    values = option_values(response["options"], chunks)
    key = option_key(values)
    row = lookup(log.rows(key.target_field, key.doctype), *key)
    log.met(request.id, key, now=request.now)
    if row is None:
        return response
    best = suggest(row, list(values), rule).value
    if not fills_in(row, best, rule):
        return response
    settled = turn.answer(selected=values[best])
    use = DefaultUse(row, best, row_gate(row, rule), KIND, {})
    warning = default_sentence(row, best, request.language)
    record = settled.record._replace(applied=use)
    return settled.changed([warning], default_applied=applied_default(use), record=record)
