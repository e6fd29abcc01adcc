"""Generators and scorers for tests.

What they say hangs on the question and the passages alone, on coarse grids.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from raglab.answering.support import Support
from raglab.values import Generation

NAN = float("nan")
TEXTS = (
    "The excess is £250.",
    "See page 2.",
    "None",
    "",
    "The context does not contain the answer.",
)
CONFIDENCES = (0.25, 0.5, 0.5, 0.75, NAN)
SUPPORTS = (0.25, 0.5, 0.5, 0.75, 1.0)


class Drawn(NamedTuple):
    """Says one of a few texts with one of a few confidences."""

    name: str = "drawn"
    gives_confidence = True  # though one of its answers may lack it

    def answer(self, question, passages):
        """Answer drawn by a hash of question and passages."""
        seed = crc32("\0".join([question, *(chunk.chunk_id for chunk in passages)]).encode())
        text = TEXTS[0] if seed % 3 else TEXTS[seed // 3 % len(TEXTS)]
        reason = None if text else "nothing was said"
        return Generation(
            text, CONFIDENCES[seed // 20 % len(CONFIDENCES)], (seed % len(passages),), reason
        )


class Weighed(NamedTuple):
    """Scores an answer with one of a few supports."""

    name: str = "weighed"

    def support(self, answer, passages):
        """Support drawn by a hash of answer and passages."""
        seed = crc32("\0".join([answer, *passages]).encode())
        return Support(SUPPORTS[seed % len(SUPPORTS)], answer, ((answer, 0.0),))


class Fixed(NamedTuple):
    """Says the same to everything."""

    text: str = "The excess is £250."
    confidence: float = 0.9
    name: str = "fixed"

    # whatever is asked
    def answer(self, question, passages):  # noqa: ARG002
        """The one answer, resting on the first passage."""
        return Generation(self.text, self.confidence, (0,))
