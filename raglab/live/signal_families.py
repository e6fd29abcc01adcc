"""Signals of documents (shore): extension families measured on a corpus (S2.15, S5.1).

A trace holds the passages that were hit, a family reads whole documents: so its signals are
measured when a trace is built and when a question is asked live, by the same function. Families are
registered at points `signal_family.name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from raglab.decision.document_names import chunk_documents
from raglab.decision.signal_values import STORED_ROOM, STORED_SIGNALS, Columns
from raglab.extension_points import extensions, missing
from raglab.store.traces import Trace
from raglab.values import Chunk, TraceData
from raglab.words.packs import Pack


class SignalFamily(Protocol):
    """Signals over the documents of a corpus, made from its chunks and the pack of its trade."""

    @property
    def origin(self) -> Mapping[str, Mapping[str, str | None]]:
        """What measures each signal, by the signal's name, as a trace's meta has it."""

    def start(self) -> None:
        """Read the documents, so that no first question pays for it."""

    def columns(self, trace: TraceData) -> Columns:
        """Every signal for every case, arm and depth of a trace, [Q, A, D].

        NaN where there are no hits.
        """


@dataclass(frozen=True, eq=False)
class DocumentReader:
    """The documents of a corpus and the families of signals over them.

    chunks: of the corpus, without the rows of its tables. pack: of its trade.
    """

    chunks: tuple[Chunk, ...] = field(repr=False)
    pack: Pack = field(repr=False)

    @cached_property
    def paths(self) -> frozenset[str]:
        """Paths of the documents."""
        return frozenset(chunk_documents(self.chunks))

    @cached_property
    def families(self) -> tuple[SignalFamily, ...]:
        """Families that are installed."""
        return tuple(
            make_family(self.chunks, self.pack)
            for make_family in extensions("signal_family").values()
        )

    def measuring(self, names: Iterable[str]) -> list[SignalFamily]:
        """Families that measure some of the signals that a policy uses.

        Raises:
          MissingExtensionError: a signal of documents that no installed family measures.
        """
        wanted_signals = set(names) & set(STORED_SIGNALS)
        if not wanted_signals:  # as of nearly every policy
            return []
        families = [
            signal_family
            for signal_family in self.families
            if wanted_signals & signal_family.origin.keys()
        ]
        lacking_signals = wanted_signals.difference(
            *(signal_family.origin for signal_family in families)
        )
        if lacking_signals:
            missing(f"the signal {min(lacking_signals)}", STORED_ROOM)
        return families


def with_document_signals(trace: Trace, reader: DocumentReader) -> Trace:
    """The trace with the signals of every installed family.

    The very same where it holds them already.
    """
    for signal_family in reader.families:
        stored_origins = trace.meta.get("signals", {})
        family_origins = signal_family.origin
        if all(
            signal_name in trace.signals
            and stored_origins.get(signal_name) == family_origins[signal_name]
            for signal_name in family_origins
        ):
            continue
        columns = {**trace.columns, **signal_family.columns(trace)}
        trace = replace(
            trace,
            columns=columns,
            meta={**trace.meta, "signals": {**stored_origins, **family_origins}},
        )
    return trace
