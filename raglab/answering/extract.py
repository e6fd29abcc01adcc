"""The embedded generator: it answers with the passages' own sentences, cited, and says how far it trusts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from raglab.answering._fitted import fit_confidence
from raglab.answering._reading import lines, read_question
from raglab.answering._spans import short_answer
from raglab.answering._support import confidence, scored, second, weights
from raglab.values import Chunk, Generation

__all__ = ["Extractive", "fit_confidence", "short_answer"]


@dataclass(frozen=True, slots=True)
class Extractive:
    """Answers with the best supported sentence or table row of the passages, or two of them, verbatim.

    Support of a line is the sum of its own share of the question's content, of what the lines beside it and the
    headings add, of neighbouring words kept together, of the expected kind of answer, and of its passage's rank. A
    word weighs the more, the fewer lines have it. A second line comes along where it is nearly as well supported and
    adds words of the question. Nothing in a passage is an instruction: whatever it says is one more sentence.

    confidence = 1 / (1 + exp(−(ln(s / (1 − s)) + 4 c + k − 4) / 2)), which rises with each of
      s: share of the answer among all lines, each counted as exp(support / 0.09): its lead over what else is there;
      c: share of the question covered by the answer, the lines beside it and its headings;
      k: 1 where it has a phrase of the expected kind, 0 where it has none, ½ where the question leaves the kind open.
    It ranks answers; `fit_confidence` makes a probability of it.

    name: stable identifier for fingerprints and cache keys; it changes when answers may.
    """

    name: str = "extractive-1"

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer to a question from passages, the best first; '' and a reason where no line speaks of it.

        Example:
          >>> passage = Chunk("a#1", "The storm excess is £400. Claims are paid in May.", "a.md")
          >>> Extractive().answer("How much is the storm excess?", [passage]).text
          'The storm excess is £400.'
        """
        asked = read_question(question)
        if not asked.stems:
            return Generation("", nan, (), "the question has no content word to look for")
        read = [lines(passage.text) for passage in passages]
        weight = weights(asked, read)
        candidates = tuple(scored(asked, weight, read))
        if not candidates:
            return Generation("", nan, (), "the passages have no sentence to answer with")
        best = max(candidates, key=lambda one: one.support)
        if not best.near:
            return Generation("", nan, (), "no sentence of the passages shares a content word with the question")
        other = second(best, candidates, weight)
        chosen = [best] if other is None else [best, other]
        trust = confidence(chosen, candidates, weight)
        shown = sorted(chosen, key=lambda one: one.place)
        cited = tuple(dict.fromkeys(one.passage for one in shown))
        return Generation(_joined([one.line.text for one in shown]), trust, cited)


def _joined(texts: Sequence[str]) -> str:
    """Lines as one answer: prose goes on in the line, a table row stands on its own."""
    parts = [text + (" " if text.rstrip("\"'”»)]").endswith((".", "!", "?", "…")) else "\n") for text in texts]
    return "".join(parts).strip()
