"""Import counts (algebra): what an import left out, merged, mapped and guessed, with how often."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from raglab.words.characters import visible

SIGNALS = {"retriever_score": "retrieved", "reranker_score": "reranked"}  # signal -> score of a hit
MOST_REASONS = 40  # in a message; names of judgements may be many
CLEAR = 0.9  # share of the rankings that tell a direction


@dataclass(slots=True)
class ImportCounts:
    """Counts of an import; those of its parts are merged.

    Attributes:
      reasons: what is left out, merged or guessed, in words that follow a number: "lines are no
        JSON".
      first: place of the first, by reason.
      documents: the first digest of each document's text and source.
      tallies: numbers of names by their kind: `changed` documents, `matched` cases; signals by
        `scored` hits, and by rankings that they `falls` or `rises` down.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    tallies: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, reason: str, place: str, number: int = 1) -> None:
        """Count what is left out, merged or guessed.

        Args:
          reason: in words that follow a number.
          place: of the first of them.
          number: of them; 0 is no count.
        """
        if number:
            self.reasons[reason] += number
            self.first.setdefault(reason, place)

    def add_document(self, name: str, digest: bytes) -> None:
        """Note a document; one with another digest than before has changed."""
        self.tallies["changed"][name] += self.documents.setdefault(name, digest) != digest

    def merge(self, more: ImportCounts) -> None:
        """Add the counts of another part."""
        for reason, number in more.reasons.items():
            self.add(reason, more.first[reason], number)
        for kind, tally in more.tallies.items():
            self.tallies[kind] += tally
        for name, digest in more.documents.items():
            self.add_document(name, digest)

    def direction(self, signal: str) -> str:
        """Direction of a score: `ask`, as of a distance, where it rises down nearly all rankings.

        Else `surer`.
        """
        falls = self.tallies["falls"][signal]
        rises = self.tallies["rises"][signal]
        return "ask" if rises > CLEAR * (falls + rises) else "surer"

    def direction_sentence(self, signal: str) -> str:
        """How the direction of a score was guessed."""
        falls = self.tallies["falls"][signal]
        rises = self.tallies["rises"][signal]
        more = "lower" if self.direction(signal) == "ask" else "higher"
        return (
            f"a {more} {signal} is taken as surer: it falls down the ranking of {falls:,} requests "
            f'and rises down that of {rises:,}; state higher={{"{signal}": "surer"}}, or "ask" of '
            "a distance"
        )

    def sentence(self) -> str:
        """All reasons in a line, the most frequent first, '' where there is none."""
        rows = [
            f"{number:,} {reason} (the first: {self.first[reason]})"
            for reason, number in self.reasons.most_common()
        ]
        if len(rows) > MOST_REASONS:
            rows[MOST_REASONS:] = [f"{len(rows) - MOST_REASONS:,} more kinds"]
        return visible("; ".join(rows))
