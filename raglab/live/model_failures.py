"""Model failures (shore): a question whose language model fails raises or is refused (S0.1).

The refusal has `error`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from raglab.decision.checks import error_check
from raglab.live.pipeline import fields_response
from raglab.live.requests import Request
from raglab.live.response import Response, ResponseRecord
from raglab.live.system import System
from raglab.values import ModelUnavailableError, Status
from raglab.words.languages import sentence

UNAVAILABLE = "The language model is not available at the moment. Please ask again later."


def answer_or_refuse(request: Request, system: System, answer: Callable[[], Response]) -> Response:
    """The response of `answer`.

    Where the model fails and the system must answer, a refusal with its `error`.

    Raises:
      ModelUnavailableError: the model failed, and `on_error` of the system is `raise`.

    Source: rule S0.1.
    """
    start = perf_counter()
    try:
        return answer()
    except ModelUnavailableError as error:
        if system.on_error == "raise":
            raise
        reason = sentence(
            "no answer was generated: {reason}", request.language, reason=error.reason
        )
        fields = {
            "answer": sentence(UNAVAILABLE, request.language),
            "status": Status.refuse.name,
            "refusal_reason": reason,
            "error": str(error),
        }
        ms = {"total": 1e3 * (perf_counter() - start)}
        return fields_response(
            request, fields, system, ResponseRecord(ms, checks=(error_check(reason),))
        )
