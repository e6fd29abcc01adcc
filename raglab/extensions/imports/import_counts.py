"""Import counts (algebra): what an import left out, merged, mapped and guessed, with how often."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from raglab.extensions.imports.span_requests import SIGNALS, SpanRequest
from raglab.extensions.imports.spans import Losses
from raglab.signals import ANY

FALLS, RISES = 1, -1  # how a score runs down its ranking
NAMED, SHOWN = 6, 40  # judgements that a warning names, and characters of one
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
      by_question: requests that have the label of a case with the same question.
      missing_groups: requests that do not state a group, by its attribute.
      labels: of feedback, by judgement and label.
      refused: labels of feedback on requests that were logged as refused.
      contradictory: requests whose feedback contradicts itself.
      unread: judgements of requests without a label by them.
    """

    losses: Losses = field(default_factory=Losses)
    documents: dict[str, bytes] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    rankings: dict[str, Counter[int]] = field(
        default_factory=lambda: {signal: Counter() for signal in SIGNALS}
    )
    scored: Counter[str] = field(default_factory=Counter)
    matched: set[str] = field(default_factory=set)
    by_question: int = 0
    missing_groups: Counter[str] = field(default_factory=Counter)
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: int = 0
    contradictory: int = 0
    unread: Counter[str] = field(default_factory=Counter)

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
            self.losses.add(
                "requests retrieved no document and are cases without hits", f"trace {request.id}"
            )
        bare = sum(math.isnan(hit.retrieved) and math.isnan(hit.reranked) for hit in hits)
        if bare:
            self.losses.add(
                f"hits have no score, or none within ±{ANY:.0e}", f"trace {request.id}", bare
            )
        for signal, field_name in SIGNALS.items():
            self.scored[signal] += sum(not math.isnan(getattr(hit, field_name)) for hit in hits)
            self.rankings[signal][request.slopes[signal]] += 1

    def add_feedback(self, label: str | None, why: str, request: SpanRequest) -> None:
        """Count the feedback of a request: its label, or why it gives none."""
        if label is not None:
            self.labels[why.removeprefix("feedback ").rpartition(" (")[0], label] += 1
            self.refused += request.decision == "refuse"
        elif why:
            self.contradictory += 1
        else:
            self.unread.update(f"{row.name}={row.value:.{SHOWN}}" for row in request.feedback)

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
        self.by_question += more.by_question
        self.missing_groups += more.missing_groups
        self.labels += more.labels
        self.refused += more.refused
        self.contradictory += more.contradictory
        self.unread += more.unread

    def signals(self) -> list[str]:
        """Signals of which there is a score."""
        return [signal for signal in sorted(SIGNALS) if self.scored[signal]]

    def direction(self, signal: str) -> str:
        """Direction of a score: `ask`, as of a distance, where it rises down nearly all rankings.

        Else `surer`.
        """
        falls, rises = self.rankings[signal][FALLS], self.rankings[signal][RISES]
        return "ask" if rises > CLEAR * (falls + rises) else "surer"

    def direction_sentence(self, signal: str) -> str:
        """How the direction of a score was guessed."""
        falls, rises = self.rankings[signal][FALLS], self.rankings[signal][RISES]
        more = "lower" if self.direction(signal) == "ask" else "higher"
        why = "since" if max(falls, rises) > CLEAR * (falls + rises) else "though nothing tells so:"
        return (
            f"a {more} {signal} is taken as surer, {why} scores fall down the ranking in "
            f"{falls:,} requests and rise in"
            f' {rises:,}; state the direction by higher={{"{signal}": "surer"}}, or "ask" of a '
            "distance"
        )

    def sentences(self) -> list[str]:
        """A line for each kind of count that is not zero."""
        lines = [self.losses.sentence()] if self.losses.counts else []
        if self.changed:
            some = ", ".join(sorted(self.changed)[:3])
            lines.append(
                f"{len(self.changed):,} documents have several texts or sources, of which the "
                f"first counts: {some}"
            )
        if self.by_question:
            lines.append(
                f"{self.by_question:,} requests have the label of a case with the same question"
            )
        for name, number in sorted(self.missing_groups.items()):
            lines.append(f"{number:,} requests state no group {name}")
        if self.labels:
            listed = _listed(
                {f"{judged} is {label}": n for (judged, label), n in self.labels.items()}
            )
            lines.append(
                f"labels of feedback: {listed}; `notes` of a case names the source. Who gives "
                "feedback is no sample of"
                " all requests, and what feedback says of an answer that refuses in words is read "
                "as of any answer"
            )
        if self.refused:
            lines.append(
                f"{self.refused:,} of these labels are of requests that were refused: a good "
                "refusal is refuse"
            )
        if self.contradictory:
            lines.append(
                f"feedback of {self.contradictory:,} requests contradicts itself and is no label"
            )
        if self.unread:
            lines.append(
                "judgements that are no label, by their value or their name: "
                f"{_listed(self.unread)}; state what a yes "
                'means by feedback={"name": "ok"} or "refuse"'
            )
        return lines


def _listed(counts: Mapping[str, int]) -> str:
    """The most frequent of some counts, and how many more there are."""
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return ", ".join(f"{name} ({number:,})" for name, number in rows[:NAMED]) + more
