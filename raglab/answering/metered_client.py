"""Metered clients (shore): requests to a language model within a budget, counted."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from pydantic import NonNegativeFloat

from raglab.answering.client import (
    Capabilities,
    Completion,
    From0,
    Message,
    ModelClient,
    check_client,
    check_fields,
    check_messages,
)
from raglab.values import ModelUnavailableError

TOKENS_PER_PRICE = 1000  # tokens that a price is for
TEMPLATE_OVERHEAD = 64  # tokens that a template may put around the texts of a request
BUDGET_SPENT = "budget spent"


class TokenCount(NamedTuple):
    """Tokens that requests read and wrote."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class RequestBudget:
    """Limits on the requests to a model.

    Attributes:
      tokens: most tokens, read and written.
      cost: highest cost, in the currency of the prices.
      price_prompt: price of 1,000 tokens that are read.
      price_completion: price of 1,000 tokens that are written.
      calls: most requests.
      seconds: most seconds from the first request on.

    Raises:
      ValueError: a number is negative or NaN, or a limit on the cost is given without a price.
    """

    tokens: NonNegativeFloat = math.inf
    cost: NonNegativeFloat = math.inf
    price_prompt: From0 = 0.0
    price_completion: From0 = 0.0
    calls: NonNegativeFloat = math.inf
    seconds: NonNegativeFloat = math.inf

    def __post_init__(self) -> None:
        """Stop at the door."""
        check_fields(self)
        if self.cost < math.inf and not self.price_prompt + self.price_completion:
            message = f"a budget must have prices, got cost {self.cost:g} and none."
            raise ValueError(message)

    def price(self, tokens: TokenCount) -> float:
        """Cost of tokens.

        Args:
          tokens: counts of tokens read and written.

        Example:
          >>> RequestBudget(price_prompt=0.5, price_completion=2.0).price(TokenCount(4000, 500))
          3.0
        """
        return (
            tokens.prompt * self.price_prompt + tokens.completion * self.price_completion
        ) / TOKENS_PER_PRICE


class RequestCounts(NamedTuple):
    """What was asked so far.

    requests: sent. prompt_tokens, completion_tokens, cost: as the backend reports them; the most
    that a request could take where it reports nothing and may have read it. ms: of each request
    that was answered, in the order they ended.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    ms: tuple[float, ...] = ()


class BudgetSpentError(ModelUnavailableError):
    """A request that the budget does not bear; it was not sent."""


class MeteredClient:
    """A client that counts its requests and stops before a budget is exceeded.

    Threads may share it.
    """

    def __init__(self, client: ModelClient, budget: RequestBudget | None = None) -> None:
        """Meter a client; no budget only counts.

        Raises:
          TypeError: what is no client.
        """
        check_client(client)
        self.client, self.budget = client, RequestBudget() if budget is None else budget
        self._lock, self._begin = Lock(), math.nan
        self._requests, self._tokens, self._ms = 0, np.zeros(2, np.int64), list[float]()

    def __repr__(self) -> str:
        return f"MeteredClient({self.client!r})"

    @property
    def name(self) -> str:
        """Of the client itself."""
        return self.client.name

    @property
    def counts(self) -> RequestCounts:
        """What was asked so far."""
        with self._lock:
            token_count = TokenCount(*self._tokens.tolist())
            return RequestCounts(
                self._requests, *token_count, self.budget.price(token_count), tuple(self._ms)
            )

    def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 256,
        seed: int = 0,
        top: int = 0,
    ) -> Completion:
        """Reply of the client; see `ModelClient.complete`.

        Raises:
          BudgetSpentError: the budget does not bear the request.
          ModelUnavailableError: the model failed.
        """
        check_messages(messages)
        n_bytes = sum(len(message["content"].encode("utf-8", "replace")) for message in messages)
        largest_count = TokenCount(
            n_bytes + TEMPLATE_OVERHEAD, max_tokens
        )  # no token is shorter than a byte
        self._reserve(largest_count)
        started_at, used_tokens, milliseconds = time.monotonic(), largest_count, list[float]()
        try:
            client_reply = self.client.complete(
                messages, schema=schema, max_tokens=max_tokens, seed=seed, top=top
            )
            milliseconds = [1e3 * (time.monotonic() - started_at)]
            if (
                client_reply.prompt_tokens is not None
                and client_reply.completion_tokens is not None
            ):
                used_tokens = TokenCount(client_reply.prompt_tokens, client_reply.completion_tokens)
        except (ModelUnavailableError, ValueError) as error:
            # A status of HTTP was no reply: the server did not read the request, or did not charge
            # it.
            is_read = isinstance(error, ModelUnavailableError) and "HTTP " not in error.kind
            used_tokens = largest_count if is_read else TokenCount(0, 0)
            raise
        finally:
            with self._lock:
                self._tokens += np.subtract(used_tokens, largest_count)
                self._ms += milliseconds
        return client_reply

    def capabilities(self, *, again: bool = False) -> Capabilities:
        """What the backend can do; see `ModelClient.capabilities`.

        Not metered, and not asked where the budget bears no further request.

        Raises:
          BudgetSpentError: it does not.
        """
        self._reserve(None)
        return self.client.capabilities(again=again)

    def _reserve(self, largest_count: TokenCount | None) -> None:
        """Charge the most that a request can take, or stop where the budget does not bear it.

        None charges nothing.
        """
        with self._lock:
            current_time = time.monotonic()
            first_time = current_time if math.isnan(self._begin) else self._begin
            reserved_tokens = TokenCount(*(self._tokens + (largest_count or (1, 0))).tolist())
            budget_needs = {
                "calls": self._requests + 1,
                "tokens": sum(reserved_tokens),
                "cost": self.budget.price(reserved_tokens),
                "seconds": math.nextafter(
                    current_time - first_time, math.inf
                ),  # none are left at the limit
            }
            exceeded_limits = [
                limit_name
                for limit_name, limit_need in budget_needs.items()
                if limit_need > getattr(self.budget, limit_name)
            ]
            if not exceeded_limits:
                if largest_count is not None:
                    self._begin, self._requests = first_time, self._requests + 1
                    self._tokens[:] = reserved_tokens
                return
            spent_text = f"{self._requests} requests and {self._tokens.sum()} tokens"
        reason = (
            f"the {exceeded_limits[0]} of the budget do not bear "
            f"the next request, after {spent_text}"
        )
        message = f"{reason}; raise it, and go on with the same cache."
        raise BudgetSpentError(message, kind=BUDGET_SPENT, reason=reason, seconds=0.0)
