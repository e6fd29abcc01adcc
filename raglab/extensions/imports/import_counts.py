"""Import counts (algebra): what an import left out, merged, mapped and guessed, with how often."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from raglab.extensions.imports.span_requests import SIGNALS, SpanRequest
from raglab.extensions.imports.spans import Losses
from raglab.signals import ANY

FALLS, RISES = 1, -1  # how a score runs down its ranking
CLEAR = 0.9  # share of the rankings that tell a direction


@dataclass(slots=True)
class ImportCounts:
    """Counts of an import; those of its parts are merged.

    Attributes:
      losses: what is left out or merged.
      documents: the first digest of each document's text and source.
      changed: ids of documents with several texts or sources.
      rankings: of each signal, of how many rankings the scores fall and rise.
      scored: hits with a score, by signal.
      matched: ids of cases that a request had.
      labels: of feedback.
      contradictory: requests whose feedback contradicts itself.
      unread: requests with feedback that is none of the known words.
    """

    losses: Losses = field(default_factory=Losses)
    documents: dict[str, bytes] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    rankings: dict[str, Counter[int]] = field(default_factory=lambda: {signal: Counter() for signal in SIGNALS})
    scored: Counter[str] = field(default_factory=Counter)
    matched: set[str] = field(default_factory=set)
    labels: Counter[str] = field(default_factory=Counter)
    contradictory: int = 0
    unread: int = 0

    def add_request(self, request: SpanRequest) -> None:
        """Count the documents and scores of a request."""
        hits = request.hits
        for hit in hits:
            document = hit.document
            text = f"{document.source}\0{document.text}".encode("utf-8", "replace")
            own = hashlib.blake2b(text, digest_size=8).digest()
            if self.documents.setdefault(document.id, own) != own:
                self.changed.add(document.id)
        if not hits:
            self.losses.add("requests retrieved no document and are cases without hits", f"trace {request.id}")
        bare = sum(math.isnan(hit.retrieved) and math.isnan(hit.reranked) for hit in hits)
        if bare:
            self.losses.add(f"hits have no score, or none within ±{ANY:.0e}", f"trace {request.id}", bare)
        for signal, field_name in SIGNALS.items():
            self.scored[signal] += sum(not math.isnan(getattr(hit, field_name)) for hit in hits)
            self.rankings[signal][request.slopes[signal]] += 1

    def add_feedback(self, label: str | None, why: str, n: int) -> None:
        """Count the feedback of a request: its label, or why it gives none."""
        if label is not None:
            self.labels[label] += 1
        elif why:
            self.contradictory += 1
        else:
            self.unread += n > 0

    def merge(self, more: ImportCounts) -> None:
        """Add the counts of another part."""
        self.losses.merge(more.losses)
        for name, own in more.documents.items():
            if self.documents.setdefault(name, own) != own:
                self.changed.add(name)
        self.changed |= more.changed
        for signal, counter in more.rankings.items():
            self.rankings[signal] += counter
        self.scored += more.scored
        self.matched |= more.matched
        self.labels += more.labels
        self.contradictory += more.contradictory
        self.unread += more.unread

    def signals(self) -> list[str]:
        """Signals of which there is a score."""
        return [signal for signal in sorted(SIGNALS) if self.scored[signal]]

    def direction(self, signal: str) -> str:
        """Direction of a score: `ask`, as of a distance, where it rises down nearly all rankings; else `surer`."""
        falls, rises = self.rankings[signal][FALLS], self.rankings[signal][RISES]
        return "ask" if rises > CLEAR * (falls + rises) else "surer"

    def direction_sentence(self, signal: str) -> str:
        """How the direction of a score was guessed."""
        falls, rises = self.rankings[signal][FALLS], self.rankings[signal][RISES]
        more = "lower" if self.direction(signal) == "ask" else "higher"
        return (
            f"a {more} {signal} is taken as surer, since scores fall down the ranking in {falls:,} requests and rise in"
            f' {rises:,}; state the direction by higher={{"{signal}": "surer"}} or "ask"'
        )

    def sentences(self, feedback: Sequence[str] | None) -> list[str]:
        """A line for each kind of count that is not zero."""
        lines = [self.losses.sentence()] if self.losses.counts else []
        if self.changed:
            some = ", ".join(sorted(self.changed)[:3])
            lines.append(
                f"{len(self.changed):,} documents have several texts or sources, of which the first counts: {some}"
            )
        if self.labels:
            counts = ", ".join(f"{number:,} {label}" for label, number in sorted(self.labels.items()))
            lines.append(
                f"labels of feedback: {counts}; `notes` of a case names the source. Who gives feedback is no sample of"
                " all requests"
            )
        if self.contradictory:
            lines.append(f"feedback of {self.contradictory:,} requests contradicts itself and is no label")
        if self.unread and feedback is not None:
            lines.append(f"feedback of {self.unread:,} requests has no known value or name and is no label")
        return lines
