"""Logged requests (shore): a request in the audit log before it is answered, its decision after.

`explain` (S5.8).
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from raglab.audit.explanation import Explanation, explain_request
from raglab.live.log_outages import AUDIT
from raglab.live.model_failures import answer_or_refuse
from raglab.live.pipeline import answer_request
from raglab.live.requests import Request
from raglab.live.response import Response
from raglab.live.system import System
from raglab.store.database import UnwritableLogError

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog


def answer_logged(request: Request, system: System) -> Response:
    """Response of a system that clarifies nothing, logged; see `raglab.live.ask.ask`."""
    log = audit_log(system)
    answered = partial(answer_or_refuse, request, system)
    try:
        with system.log_outages.writing(AUDIT, required=system.audit_required, ends=False):
            logged_as, resumed = log_request(log, request, system)
            # Silence of an earlier turn counts before this one is decided.
            log.settle(now=request.now)
    except UnwritableLogError:
        # Without the log nothing is learned, but a system that only answers goes on.
        if system.audit_required:
            raise
        return answered(partial(answer_request, request, system))
    response = answered(partial(answer_request, request._replace(resumed=resumed), system))
    return log_answer(log, logged_as, response, request.now, system)


def log_request(
    log: AuditLog,
    request: Request,
    system: System,
    *,
    parsed: object = None,
    parser: str | None = None,
) -> tuple[str, bool]:
    """Log a request.

    The id that the log has it under, and whether it goes on with one that was stopped.

    Where nothing is clarified, a caller may use an id twice; the log keeps the second under a name
    of its own.

    Args:
      parsed: the question as it was read, and parser: by what; None where nothing read it.
    """
    about: dict[str, Any] = {
        "session": request.session,
        "documents": request.documents,
        "groups": request.groups,
        "parsed": parsed,
        "policy": system.policy,
        "fingerprint": system.fingerprint,
        "models": model_names(system) | ({} if parser is None else {"parser": parser}),
        "now": request.now,
    }
    try:
        return request.id, log.opened(request.id, request.text, **about)
    except UnwritableLogError:
        raise
    except ValueError:
        if system.clarifier is not None:
            raise
        again = f"{str(request.id)[:150]}~{uuid4().hex[:12]}"
        log.opened(again, request.text, **about)
        return again, False


def log_answer(
    log: AuditLog, request_id: str, response: Response, now: datetime, system: System
) -> Response:
    """Log a decision already made, and give its response, which says whether the log has it.

    Raises:
      UnwritableLogError: the log cannot be written, and the system requires it, or the response
        rests on a question to the user or a default, which nobody could reply to.
    """
    try:
        with system.log_outages.writing(AUDIT, required=system.audit_required):
            log_decision(log, request_id, response, now)
    except UnwritableLogError:
        if (
            system.audit_required
            or response["clarification"] is not None
            or response.record.applied is not None
        ):
            raise
        return response
    return Response(response, response.record._replace(logged=True))


def log_decision(log: AuditLog, request_id: str, response: Response, now: datetime) -> None:
    """Log a decision; before it, of a clarified request, what it became and retrieved."""
    record = response.record
    if record.evidence is not None:
        log.evidence(request_id, record.evidence, now=now)
    log.decided(request_id, response, record.checks, record.ms, applied=record.applied, now=now)


def model_names(system: System) -> dict[str, str]:
    """Models of a system by their part, with its prompt and pack where it has them."""
    rewriter = None if system.opening is None else system.opening.rewriter
    return {
        "encoder": system.retriever.encoder.name,
        "generator": system.generator.name,
        "scorer": system.scorer.name,
        "prompt_version": str(getattr(system.generator, "prompt_version", "")),
        **({} if rewriter is None else {"rewriter": rewriter.name}),
        **({} if system.pack.stored is None else {"pack": system.pack.stored}),
    }


def audit_log(system: System) -> AuditLog:
    """Audit log of a system.

    Raises:
      ValueError: it is switched off.
    """
    if system.audit is None:
        msg = "this needs the audit log, which is switched off; open the system with audit=True."
        raise ValueError(msg)
    return system.audit


def explain(
    request_id: str, log: AuditLog | str | Path | None = None, *, system: System | None = None
) -> Explanation:
    """Explanation of the answer to a request, from the audit log alone.

    See `audit.explanation.explain_request`.

    Args:
      request_id: as the response names it.
      log: an audit log, its file or URL, or the folder of an index.
      system: the system whose log it is, where no log is given.

    Raises:
      ValueError: neither or both are given, the system keeps no log, or the log has no such
        request.

    Source: rule S5.8.
    """
    from raglab.live.settings import open_audit

    if system is not None and log is None:
        return explain_request(request_id, audit_log(system))
    if log is None or system is not None:
        msg = (
            f"explain needs a log or a system, got {'neither' if log is None else 'both'}; pass "
            "system=, or log=."
        )
        raise ValueError(msg)
    return explain_request(request_id, open_audit(log) if isinstance(log, str | Path) else log)
