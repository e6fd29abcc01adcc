"""Clarified traces (shore): what a clarified request became, as a one-case replay trace (S5.10)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from raglab.audit.log import request_groups
from raglab.decision.recorded_answers import AnswerKey
from raglab.live.pipeline import case_trace
from raglab.live.response import CheckedAnswer, answer_sets
from raglab.live.system import unpack_depths
from raglab.store.log_tables import EVIDENCE, request_row
from raglab.store.traces import Trace
from raglab.values import Case, refuse

if TYPE_CHECKING:
    from raglab.live.system import System


def clarified_trace(request_id: str, system: System) -> Trace:
    """Trace of a clarified request: one case with its hits and the answer that the user got.

    The query is the whole question under the accepted scope. The hits are those of the documents or
    pages in the scope. `raglab.decide` under the system's policy decides the trace as the system
    did. Any other policy of the same structure can be replayed over it.

    Args:
      request_id: id of a request that a reply, a learned default or its own scope completed, and
        that was retrieved; a request whose field was read from its page has no hits.
      system: the system that answered it, with its audit log.

    Raises:
      ValueError: the system keeps no log, the log has no such request or no hits of it, its text is
        not kept, or it was asked of another index.

    Source: rule S5.10.
    """
    if system.audit is None:
        msg = (
            "a clarified trace needs the audit log, which is switched off; open the system with "
            "audit=True."
        )
        raise ValueError(msg)
    with system.audit.log.reading() as log:
        request, row = request_row(log, request_id), log.row(EVIDENCE, request_id=request_id)
    if row is None:
        refuse(
            "a clarified trace must be of a request that was retrieved anew",
            repr(request_id),
            "see explain",
        )
    if row["query"] is None:
        msg = (
            f"the log keeps no text of {request_id!r}, by which patterns are decided; keep texts "
            "(query='text')."
        )
        raise ValueError(msg)
    if request["fingerprint"] != system.fingerprint:
        refuse(
            f"{request_id!r} was asked of index {request['fingerprint']}",
            system.fingerprint,
            "open that index",
        )
    depths = unpack_depths(row["depths"], len(system.retriever.chunks))
    extra = {"groups": dict(groups)} if (groups := request_groups(request)) else {}
    case = Case(
        request_id, row["query"], "ok", selected_sources=tuple(row["documents"]), extra=extra
    )
    trace = case_trace(case, row["arm"], depths, system)
    answers = None if row["answer"] is None else _given_answer(row["answer"], system)
    return Trace(
        **{field.name: getattr(trace, field.name) for field in fields(trace)} | {"answers": answers}
    )


def _given_answer(row: dict[str, Any], system: System) -> Any:  # noqa: ANN401 - Answers
    """The answer that was given, as the recorded one of its set of hits."""
    numbers = {
        name: np.nan if row[name] is None else float(row[name])
        for name in ("confidence", "support")
    }
    answer = CheckedAnswer(
        text=row["text"],
        claim=row["claim"],
        cited=tuple(row["cited"]),
        refused=row["refused"],
        **numbers,
    )
    key = AnswerKey(case=0, arm=0, depth=int(row["depth"]), chunks=tuple(row["chunks"]))
    return answer_sets([key], [answer], system.generator.name, system.scorer.name)
