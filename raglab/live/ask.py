"""Asking (shore): `ask`, `reply`, `explain` (S0.3, S5.8).

A request is in the audit log before it is answered, and its decision after.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from raglab.answering.client import one_deadline
from raglab.audit.explanation import Explanation, explain_request
from raglab.decision.document_names import full_sources
from raglab.live.pipeline import answer_or_refuse, answer_request
from raglab.live.requests import Request, check_request, language_of, moment_or_now
from raglab.live.response import Response
from raglab.live.system import AUDIT, OnError, System, check_on_error, normalise_question
from raglab.live.telemetry import answer_in_span
from raglab.store.database import UnwritableLogError
from raglab.store.log_tables import check_id
from raglab.values import refuse

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog


def ask(
    question: str,
    *,
    system: System | str | Path,
    selected_option: int | None = None,
    documents: Sequence[str] | None = None,
    request_id: str | None = None,
    session: str = "",
    groups: Mapping[str, str] | None = None,
    now: datetime | None = None,
    on_error: OnError | None = None,
) -> Response:
    """Answer a question, refuse it, or ask back, under the policy of a system.

    The gates are those of the replay, over a trace of this one question: the answer is the decision
    of a stored trace under the same policy. Where a bandit chooses the arm (`strategy.arm` is
    `bandit`), it learns from the answer; where the question fails with an error, its choice stays
    without a reward. A system that clarifies asks for what a vague question leaves out, or fills it
    in with what it learned from earlier replies; see `reply`, and `buttons`.

    An application that has set a tracer provider of OpenTelemetry gets spans of the request: ids,
    scores and the decision with its gate. Texts are in them only where
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `true` and the audit log keeps questions
    as text; see docs/telemetry.md.

    Args:
      question: the user's text, at most 20,000 characters.
      system: the system; the folder of an index opens one under the published policy.
      selected_option: which of the options the user chose, from 1, where the same question was
        ambiguous.
      documents: the documents that the user named, `path` or `path#page`, or a file name that one
        document has: they scope the search and switch to tau_explicit.
      request_id: goes into the response; a new one where not given. A bandit takes each only once,
        and so does a system that clarifies.
      session: the session whose request it is, for the audit log: a user's next request accepts in
        silence what was filled in.
      groups: group of the request by attribute, such as `{"tenant": "acme"}`, for a policy with
        biases of groups (`fit_decision(group=)`); the log keeps it. A group that the policy does
        not know follows the common policy, and the check of the decision says so. A policy without
        groups reads none.
      now: time of the request, with a zone; the clock's where not given.
      on_error: `raise` or `refuse` where the language model fails; as the system was opened where
        not given.

    Raises:
      ModelUnavailableError: the language model or its server failed, and `on_error` is `raise`. The
        request is in the log without a decision, and may be asked again under its id.
      ValueError: the policy gates on a confidence that the generator does not give (rule S2.10);
        the question is no text or has over 20,000 characters, over 1,000 documents, a request_id,
        session or group of over 200 characters, a document that the corpus does not hold or whose
        name several have, a time without a zone; with a bandit or where the system clarifies, a
        request_id that has had its question.

    Source: rules S0.1, S0.3, S2.10, S2.12, S2.20, S3.7, S4.6, S5.
    """
    check_request(
        question,
        documents=documents,
        selected_option=selected_option,
        request_id=request_id or None,
        session=session,
        groups=groups,
    )
    system = _opened(system, on_error)
    question_text = normalise_question(question)
    request = Request(
        id=request_id or uuid4().hex,
        text=question_text,
        documents=full_sources(documents, system.reader.paths) if documents else (),
        selected=selected_option,
        session=session,
        now=moment_or_now(now),
        language=language_of(question_text, system.pack),
        groups=tuple(sorted((groups or {}).items())),
    )
    return _answer_in_time(
        request.id, question_text, system, partial(_answer, request), "ask", session
    )


def _answer_in_time(
    request_id: str,
    request_text: str,
    system: System,
    make_response: Callable[[System], Response],
    operation: Literal["ask", "reply"],
    session: str = "",
) -> Response:
    """Response of `make_response` within one deadline, and a span where the process traces."""
    # of whatever language models are called for this question
    with one_deadline(waits=True):
        if "opentelemetry.trace" not in sys.modules:
            return make_response(system)
        return answer_in_span(
            request_id, request_text, system, make_response, operation=operation, session=session
        )


def _answer(request: Request, system: System) -> Response:
    if system.audit is None:
        return answer_or_refuse(request, system, partial(answer_request, request, system))
    if system.clarifier is None:
        return answer_logged(request, system)
    response: Response = system.clarifier.ask(request, system)
    return response


def _opened(system: System | str | Path, on_error: OnError | None, **open_settings: Any) -> System:  # noqa: ANN401
    """A system, or that of a folder, as it is now and answers a failing model."""
    opened_system = (
        system if isinstance(system, System) else System.open(system, **open_settings)
    ).snapshot()
    return (
        opened_system
        if on_error is None
        else replace(opened_system, on_error=check_on_error(on_error))
    )


def reply(
    request_id: str,
    answer: str,
    *,
    system: System | str | Path,
    question: str | None = None,
    now: datetime | None = None,
    on_error: OnError | None = None,
) -> Response:
    """Reply of the user to a question of the system, or a correction of a value that it filled in.

    A request that was asked back is completed under its own id. One that was answered by a learned
    default is confirmed by `yes`, or corrected, and is answered again. A reply counts only for what
    it names: a value on offer, a value that the documents state, a page that exists, yes. After a
    no, or a reply that names nothing, the same request is shown again once, with the values that
    are left; it ends as a refusal where fewer than two values are left, or at a second such reply.
    No answer uses a value that was declined. What a reply teaches and its answer are logged
    together or not at all.

    Args:
      request_id: as the response names it.
      answer: yes, no, one of the values that were offered, its number, or in words, in English or
        French; for a page its number.
      system: the system that asked, or the folder of its index.
      question: the text again, where the audit log does not store it.
      now: time of the reply, with a zone; the clock's where not given.
      on_error: `raise` or `refuse` where the language model fails; as the system was opened where
        not given.

    Raises:
      ValueError: the log is off, it has no such request or nothing was asked or filled in, it had
        its reply already or another one at the same time, an empty reply or one of over 200
        characters.

    Source: rules S5.2, S5.4.
    """
    check_id(request_id)
    if question is not None:
        check_request(question)
    system = _opened(system, on_error, clarify=True)
    if system.audit is None or system.clarifier is None:
        message = "a reply needs what asked; open the system with clarify=True."
        raise ValueError(message)
    make_response = partial(
        system.clarifier.reply, request_id, answer, question=question, now=moment_or_now(now)
    )
    return _answer_in_time(request_id, answer, system, make_response, "reply")


def answer_logged(request: Request, system: System) -> Response:
    """Response of a system that clarifies nothing, logged; see `ask`."""
    request_log = audit_log(system)
    answer_safely = partial(answer_or_refuse, request, system)
    try:
        with system.log_outages.writing(AUDIT, required=system.audit_required, ends=False):
            logged_as, resumed = log_request(request_log, request, system)
            # Silence of an earlier turn counts before this one is decided.
            request_log.settle(now=request.now)
    except UnwritableLogError:
        # Without the log nothing is learned, but a system that only answers goes on.
        if system.audit_required:
            raise
        return answer_safely(partial(answer_request, request, system))
    response = answer_safely(partial(answer_request, request._replace(resumed=resumed), system))
    return log_answer(request_log, logged_as, response, request.now, system)


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
    request_fields: dict[str, Any] = {
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
        return request.id, log.opened(request.id, request.text, **request_fields)
    except UnwritableLogError:
        raise
    except ValueError:  # the log has the id
        if system.clarifier is not None:
            raise
        new_id = f"{str(request.id)[:150]}~{uuid4().hex[:12]}"
        log.opened(new_id, request.text, **request_fields)
        return new_id, False


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
    return response.changed(record=response.record._replace(logged=True))


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
        message = "this needs the audit log; open the system with audit=True."
        raise ValueError(message)
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
        refuse("explain needs a log or a system", "neither" if log is None else "both", "pass one")
    return explain_request(request_id, open_audit(log) if isinstance(log, str | Path) else log)
