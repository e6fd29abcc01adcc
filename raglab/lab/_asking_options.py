"""A user's choices among the resolver's options, as learned defaults (rule S3.5): off until the settings say so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raglab.default_learner import asks, gate, lookup, suggest
from raglab.lab._asking_request import Clarifier, Request, is_default
from raglab.lab._asking_words import LONGEST, default_of, told_default
from raglab.lab.response import Response

if TYPE_CHECKING:
    from raglab.lab.live import Lab

KIND = "options"


def value_of(option: Mapping[str, Any]) -> str:
    """What a choice is learned under: the sources of the option."""
    text = "; ".join(option["sources"])
    return text if len(text) <= LONGEST else _digest(option["sources"])


def key_of(options: Sequence[Mapping[str, Any]]) -> tuple[str, str, Mapping[str, str]]:
    """Key of the row: the set of the options' sources."""
    return (f"{KIND}:{_digest(sorted(sorted(one['sources']) for one in options))}", KIND, {})


def learned(
    said: Response, request: Request, clarifier: Clarifier, system: Lab, chain: Callable[..., Response]
) -> Response:
    """A choice teaches its set of options; options whose choice is known are settled where the gate says so."""
    log = system.audit
    if log is None:
        return said
    if request.selected is not None:
        offered = {one["id"]: one for one in said.seen.offered}
        if said["status"] == "ok" and request.selected in offered:
            value = value_of(offered[request.selected])
            key = key_of(said.seen.offered)
            log.signal(request.id, key, value, "explicit_yes", conditions={}, now=request.now)
        return said
    if said["status"] != "ambiguous" or said["clarification"] is not None:
        return said
    key = key_of(said["options"])
    values = {value_of(one): one["id"] for one in said["options"]}
    row = lookup(log.rows(*key[:2]), *key)
    log.met(request.id, key, now=request.now)
    if row is None:
        return said
    best = suggest(row, list(values), clarifier.learner).value
    if not is_default(row, best, clarifier.learner) or asks(row, clarifier.learner):
        return said
    verdict = gate(row, ask_below=clarifier.learner.ask_below, apply_above=clarifier.learner.apply_above)
    about: dict[str, Any] = {"conditions": {}, "kind": KIND, "now": request.now}
    chosen = chain(request._replace(selected=values[best]), system)
    log.applied(request.id, row=row, value=best, gate=verdict, **about)
    warnings = [*chosen["warnings"], told_default(row, best)]
    return Response({**chosen, "default_applied": default_of(row, best, verdict), "warnings": warnings}, chosen.seen)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:12]
