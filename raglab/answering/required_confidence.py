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
CONFIDENCE_SWITCHES = ("generation.enabled", "signals.generation.enabled")


def confidence_switch(policy: PolicyData) -> str | None:
    """Switch of the first gate that a missing confidence of the generator fires.

    None where no gate does.

    Example:
      >>> confidence_switch(PolicyData.from_mapping({}))
      'generation.enabled'
      >>> confidence_switch(PolicyData.from_mapping({"generation": {"enabled": False}}))
    """
    gate_order = policy.decision.order
    generation_gate = policy.signals.get("generation")
    gate_switch, signal_switch = CONFIDENCE_SWITCHES
    if (
        policy.generation.enabled
        and policy.decision.rule != EXPECTED_COST
        and (gate_order is None or "generation" in gate_order)
    ):
        return gate_switch
    if (
        generation_gate is None
        or not generation_gate.enabled
        or generation_gate.on_fire == "warn"
        or generation_gate.min is generation_gate.max is None
    ):
        return None
    return (
        signal_switch
        if gate_order is None or {"signals", "signals.generation"} & set(gate_order)
        else None
    )


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
        base_generation = self.base.answer(question, passages)
        if not base_generation.text.strip():
            return base_generation
        if not isnan(given_confidence(base_generation)):
            self.known[self.name] = True
        elif not self.known.get(self.name):
            raise _lacking(self.name, self.switch)
        elif hasattr(self.base, "probe_confidence"):
            # The server has failed, and is checked again before its next answer.
            self.known.pop(self.name, None)
            message = "the server gives no log-probabilities any more"
            raise ModelUnavailableError(message, kind=NO_CONFIDENCE)
        return base_generation


def given_confidence(generation: Generation) -> float:
    """Confidence of an answer; NaN where its generator gives NaN or None.

    Example:
      >>> given_confidence(Generation("GBP 250.", None))
      nan
    """
    confidence: float | None = generation.confidence  # a generator of the user may hold None
    return nan if confidence is None else float(confidence)


def _lacking(generator_name: str, gate_switch: str) -> ValueError:
    return ValueError(
        f"the gate {gate_switch.removesuffix('.enabled')} needs "
        "a generator that gives a confidence "
        f"(a server: log-probabilities), got {generator_name}; "
        "take another, or switch the gate off: "
        f'policy.replace("{gate_switch}", False).'
    )
