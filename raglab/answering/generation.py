"""Generation (shore): answers and search queries of a language model behind a client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raglab.answering.client import (
    CUT_OFF,
    MALFORMED,
    Completion,
    Message,
    ModelClient,
    model_failure,
)
from raglab.answering.prompts import (
    ANSWER_PROMPT,
    MAX_PROMPT_TOKENS,
    Prompt,
    check_settings,
    data_prompt,
    fit_passages,
    messages,
    passage_room,
    prompt_shape,
    without_marks,
)
from raglab.answering.thoughts import without_thoughts
from raglab.values import Chunk, Generation, unanswered
from raglab.words.text import split_code

_CITATION_MARK = re.compile(r"\[\s*+([0-9]{1,4}(?:\s*+[,;]\s*+[0-9]{1,4})*+)\s*+\]")
_INSUFFICIENT_REPLY = re.compile(r"\A\W*INSUFFICIENT\b(?!\s+\w)")


def whole_text(completion: Completion, name: str, max_tokens: int) -> str:
    """Text of a reply that is whole; '' where the model declined.

    Raises:
      ModelUnavailableError: it was cut off, so that it could miss its exception, or holds no text.
    """
    if completion.finish == "declined":
        return ""
    is_cut_off = completion.finish == "length"
    if not is_cut_off and completion.text.strip():
        return completion.text
    failure_kind, text, remedy = MALFORMED, "replied without a text", "look at it"
    if is_cut_off:
        failure_kind = CUT_OFF
        text = f"cut its answer off at max_tokens {max_tokens}"
        remedy = "raise max_tokens"
    if completion.reason:  # thoughts took the tokens
        text = completion.reason
        remedy = f"{remedy}, or switch thinking off on the server"
    raise model_failure(failure_kind, f"{name} {text}", remedy, completion.ms / 1e3)


@dataclass(frozen=True, slots=True)
class ModelGenerator:
    """A generator that asks a language model.

    A model that fails raises `ModelUnavailableError`, never refuses (S0.1).

    Attributes:
      client: `raglab.OpenAIClient` or `raglab.LocalModel`.
      prompt: its instructions.
      max_tokens: most tokens of the answer; an answer that is cut off there counts as missing.
      max_prompt_tokens: most tokens of instructions, passages and question, as estimated before
        they are sent; `fit_passages` shortens the passages.
      seed: of the client's chance.
    """

    client: ModelClient
    prompt: Prompt = ANSWER_PROMPT
    max_tokens: int = 512
    max_prompt_tokens: int = MAX_PROMPT_TOKENS
    seed: int = 0

    def __post_init__(self) -> None:
        """Stop at the door: what is no client, no `Prompt`, or no whole number from 1."""
        check_settings(
            self.client,
            self.prompt,
            max_tokens=self.max_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
        )

    @property
    def name(self) -> str:
        """Identifier for fingerprints and caches.

        The model, the prompt, and what else shapes answers.
        """
        text = f"{self.max_tokens}.{prompt_shape(self.max_prompt_tokens)}.{self.seed}"
        return f"{self.client.name}/{self.prompt_version}/{text}"

    @property
    def prompt_version(self) -> str:
        """Name, version and hash of the prompt, as a log of requests keeps it."""
        return self.prompt.identity

    def probe_confidence(self) -> bool | None:
        """Whether replies carry log-probabilities.

        A server that is known to give none is asked again.

        Raises:
          ModelUnavailableError: the model failed.
        """
        return self.client.capabilities().logprobs or self.client.capabilities(again=True).logprobs

    def prompt_messages(self, question: str, passages: Sequence[Chunk]) -> tuple[Message, ...]:
        """Messages to the model: instructions, passages as they fit, question.

        Args:
          question: of the user.
          passages: the chosen hits, the best first.

        Raises:
          ModelUnavailableError: there is no room for a passage.
        """
        return messages(self.prompt, data_prompt(question, self._fitted(question, passages)))

    def _fitted(self, question: str, passages: Sequence[Chunk]) -> tuple[str, ...]:
        tokens_left = passage_room(self.max_prompt_tokens, self.prompt, question)
        return fit_passages([passage.full_text for passage in passages], tokens_left)

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """The model's answer, its confidence, and the passages it cites.

        None where the model declines.

        The confidence is the geometric mean of the probabilities of the answer's tokens, NaN where
        they are not known.

        Args:
          question: of the user.
          passages: the chosen hits, the best first; the answer cites them by position.

        Raises:
          ModelUnavailableError: the model failed, its answer is cut off or empty, or the prompt has
            no room for a passage.
        """
        if not passages:
            return unanswered("there are no passages to answer from")
        fitted_passages = self._fitted(question, passages)
        prompt_messages = messages(self.prompt, data_prompt(question, fitted_passages))
        # those of a client of the user's own, too
        model_reply = without_thoughts(
            self.client.complete(prompt_messages, max_tokens=self.max_tokens, seed=self.seed)
        )
        answer_text = whole_text(
            model_reply._replace(text=without_marks(model_reply.text)),
            self.client.name,
            self.max_tokens,
        )
        if model_reply.finish == "declined":
            return unanswered(model_reply.reason)
        if _INSUFFICIENT_REPLY.match(answer_text):
            return unanswered(
                f"{self.client.name} says that the passages do not answer the question"
            )
        return Generation(
            answer_text,
            model_reply.mean_probability,
            cited_passages(answer_text, len(fitted_passages)),
        )


def cited_passages(text: str, n: int) -> tuple[int, ...]:
    """Positions from 0 of passages an answer names as [1] or [2, 3], in order of first mention.

    Args:
      text: an answer.
      n: how many passages there were; other numbers are left out.

    Example:
      >>> cited_passages("Storm is covered [2, 3]. The excess is £250 [1][9].", 3)
      (1, 2, 0)
    """
    # `a[1]` cites nothing
    prose_text = "\n".join(part for part in split_code(text.split("\n")) if isinstance(part, str))
    cited_numbers = [
        int(cited_number)
        for citation in _CITATION_MARK.findall(prose_text)
        for cited_number in re.split("[,;]", citation)
    ]
    return tuple(
        dict.fromkeys(cited_number - 1 for cited_number in cited_numbers if 1 <= cited_number <= n)
    )
