"""Required confidence (shore): a confidence gate needs a generator that gives it (S2.10).

The gate is that of a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from raglab.policy import PolicyData
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.values import Chunk, Generation, Generator, ModelUnavailableError

NO_CONFIDENCE = "no log-probabilities"  # kind of a failure
SWITCHES = ("generation.enabled", "signals.generation.enabled")


def confidence_switch(policy: PolicyData) -> str | None:
    """Switch of the first gate that a missing confidence of the generator fires.

    None where no gate does.

    Example:
      >>> confidence_switch(PolicyData.from_mapping({}))
      'generation.enabled'
      >>> confidence_switch(PolicyData.from_mapping({"generation": {"enabled": False}}))
    """
    order, signal = policy.decision.order, policy.signals.get("generation")
    gate, of_signal = SWITCHES
    if (
        policy.generation.enabled
        and policy.decision.rule != EXPECTED_COST
        and (order is None or "generation" in order)
    ):
        return gate
    if (
        signal is None
        or not signal.enabled
        or signal.on_fire == "warn"
        or signal.min is signal.max is None
    ):
        return None
    return of_signal if order is None or {"signals", "signals.generation"} & set(order) else None


def check_confidence(generator: Generator, switch: str | None) -> None:
    """Ask a generator that has a server whether its answers carry a confidence.

    Args:
      switch: of a gate that needs it, see `confidence_switch`; None needs none, and asks the server
        all the same.

    Raises:
      ValueError: a gate needs the confidence, and the generator gives none.
      ModelUnavailableError: its server failed.
    """
    has_confidence = getattr(generator, "gives_confidence", None)
    if has_confidence is None and hasattr(generator, "probe_confidence"):
        has_confidence = generator.probe_confidence()
    if has_confidence is False and switch is not None:
        raise _lacking(generator.name, switch)


@dataclass(frozen=True, slots=True, eq=False)
class RequiredConfidence:
    """A generator whose answers must carry a confidence.

    It is checked before its first answer, and by the first answer where the generator does not
    state that it gives one. After an answer that carries a confidence, one that lacks it is a
    missing measurement like any other, but of a server, whose model has failed then.

    base: the generator. switch: of the gate that needs the confidence. known: whether answers are
    known to carry one, by the name of each generator that was checked; it belongs to whoever asks,
    and is written here.
    """

    base: Generator
    switch: str
    known: dict[str, bool]

    @property
    def name(self) -> str:
        """Of the generator itself."""
        return self.base.name

    @property
    def prompt_version(self) -> str:
        """Of the generator itself, '' where it states none."""
        return str(getattr(self.base, "prompt_version", ""))

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer of the generator.

        Raises:
          ValueError: it gives no confidence.
          ModelUnavailableError: its model failed.
        """
        if self.name not in self.known:
            check_confidence(self.base, self.switch)
            self.known[self.name] = getattr(self.base, "gives_confidence", None) is True
        generation = self.base.answer(question, passages)
        if not generation.text.strip():
            return generation
        if not isnan(given_confidence(generation)):
            self.known[self.name] = True
        elif not self.known.get(self.name):
            raise _lacking(self.name, self.switch)
        elif hasattr(self.base, "probe_confidence"):
            # The server has failed, and is checked again before its next answer.
            self.known.pop(self.name, None)
            msg = "the server gives no log-probabilities any more"
            raise ModelUnavailableError(msg, kind=NO_CONFIDENCE)
        return generation


def given_confidence(generation: Generation) -> float:
    """Confidence of an answer; NaN where its generator gives NaN or None.

    Example:
      >>> given_confidence(Generation("GBP 250.", None))
      nan
    """
    confidence: float | None = generation.confidence  # a generator of the user may hold None
    return nan if confidence is None else float(confidence)


def _lacking(name: str, switch: str) -> ValueError:
    msg = (
        f"the gate {switch.removesuffix('.enabled')} needs a generator that gives a confidence "
        f"(a server: log-probabilities), got {name}; take another, or switch the gate off: "
        f'policy.replace("{switch}", False).'
    )
    return ValueError(msg)
