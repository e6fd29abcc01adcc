"""Asking (shore): `ask`, `reply` and the buttons of a notebook.

One question from retrieval to response (S0.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from raglab.answering.client import one_deadline
from raglab.decision.document_names import full_sources
from raglab.default_learner import OTHER
from raglab.live.logged_requests import answer_logged
from raglab.live.model_failures import answer_or_refuse
from raglab.live.pipeline import answer_request
from raglab.live.requests import Request, check_request, language_of, moment_or_now
from raglab.live.response import Response
from raglab.live.system import OnError, System, check_on_error, normalise_question
from raglab.live.telemetry import answer_in_span
from raglab.store.log_tables import check_id
from raglab.words.characters import visible
from raglab.words.text import NO_MATH, html_text


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
    system = _with_on_error(
        (system if isinstance(system, System) else System.open(system)).snapshot(), on_error
    )
    text = normalise_question(question)
    request = Request(
        id=request_id or uuid4().hex,
        text=text,
        documents=full_sources(documents or (), system.reader.paths),
        selected=selected_option,
        session=session,
        now=moment_or_now(now),
        language=language_of(text, system.pack),
        groups=tuple(sorted((groups or {}).items())),
    )
    # of whatever language models are called for this question
    with one_deadline(waits=True):
        return answer_in_span(
            request.id, text, system, partial(_answer, request), operation="ask", session=session
        )


def _answer(request: Request, system: System) -> Response:
    if system.audit is None:
        return answer_or_refuse(request, system, partial(answer_request, request, system))
    response: Response = (
        answer_logged(request, system)
        if system.clarifier is None
        else system.clarifier.ask(request, system)
    )
    return response


def _with_on_error(system: System, on_error: OnError | None) -> System:
    return system if on_error is None else replace(system, on_error=check_on_error(on_error))


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
    system = (
        system if isinstance(system, System) else System.open(system, clarify=True)
    ).snapshot()
    about: dict[str, Any] = {"question": question, "now": moment_or_now(now)}
    if system.audit is None or system.clarifier is None:
        msg = "a reply needs what asked, which is switched off; open the system with clarify=True."
        raise ValueError(msg)
    replied = partial(system.clarifier.reply, request_id, answer, **about)
    system = _with_on_error(system, on_error)
    with one_deadline(waits=True):
        return answer_in_span(request_id, answer, system, replied, operation="reply", session="")


_WORDS = {
    "en": {"yes": "Yes", "no": "No", OTHER: "Other", "hint": "your own words"},
    "fr": {"yes": "Oui", "no": "Non", OTHER: "Autre", "hint": "avec vos mots"},
}
# texts of the option `other`
_FRENCH = frozenset({"autre chose", "une autre page, par son numéro"})


# a widget
def buttons(
    response: Response,
    *,
    system: System,
    on_answer: Callable[[Response], object] | None = None,
) -> Any:  # noqa: ANN401
    """A box with the question, buttons for yes, no and other values, and a field for the rest.

    A click replies once: the answer replaces the buttons. Where the request is shown again, new
    buttons replace them. A reply that is refused is shown, and the buttons stay.

    Args:
      response: whose `clarification` asks.
      system: the system that gave it.
      on_answer: function that is called with the answer.

    Raises:
      ValueError: the response asks nothing.

    Example:
      `raglab.live.buttons(raglab.ask("Who is the vendor?", system=system, documents=["a.md"]),
      system=system)`
    """
    question = response["clarification"]
    if question is None:
        msg = (
            f"buttons need a response that asks, got one of status {response['status']!r}; show "
            "the response itself."
        )
        raise ValueError(msg)
    import ipywidgets as widgets

    words = _WORDS["fr" if response["options"][-1]["text"] in _FRENCH else "en"]
    shown, box = widgets.Output(), widgets.VBox()
    own = widgets.Text(placeholder=words["hint"])

    def answer(text: str) -> None:
        if choices not in box.children:
            return  # the second click of two, on buttons that are gone
        shown.clear_output()
        try:
            final = reply(response["request_id"], text, system=system)
        except ValueError as error:
            shown.append_stdout(f"{visible(str(error))}\n")
            return
        if final["clarification"] is not None:
            box.children = buttons(final, system=system, on_answer=on_answer).children
            return
        box.children = (head, shown)
        shown.append_display_data(final)
        if on_answer is not None:
            on_answer(final)

    def button(label: str, text: Callable[[], str]) -> Any:  # noqa: ANN401 - a widget
        widget = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
        widget.on_click(lambda _: answer(text()))
        return widget

    question_html = html_text(question["question_to_user"])
    # breaks its lines, as a label does not
    head = widgets.HTML(f'<span class="{NO_MATH}">{question_html}</span>')
    options = [
        option
        for option in response["options"]
        if option["value"] not in {question["proposed_default"], OTHER}
    ]
    agreed = [] if question["proposed_default"] is None else [button(words["yes"], lambda: "yes")]
    row = (
        *agreed,
        button(words["no"], lambda: "no"),
        *(
            button(
                visible(option["text"]),
                lambda value=option["value"]: value,  # type: ignore[misc]
            )
            for option in options
        ),
    )
    choices = widgets.HBox(row)
    box.children = (
        head,
        choices,
        widgets.HBox([own, button(words[OTHER], lambda: own.value)]),
        shown,
    )
    return box
