"""Signals of the question parser (shore): what a question leaves out (S2.15, S5.1).

It is compared with the documents of its first hits.

A trace holds the passages that were hit, the parser reads whole documents: so these signals are
measured where the corpus is at hand, when a trace is built and when a question is asked live, by
the same function. They come from the question, its hits and the documents that the user named,
never from a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from raglab.decision.document_names import chunk_documents, full_sources
from raglab.decision.signal_values import STORED_SIGNALS, Columns, arm_order
from raglab.extensions.clarification.gaps import find_gaps
from raglab.extensions.clarification.question_parsing import PARSER_VERSION, parse_question
from raglab.live.clarifier import ParsedQuestion
from raglab.progress import progress
from raglab.values import Case, Chunk, TraceData
from raglab.words.packs import Pack

FIRST = 8  # hits whose documents are read


@dataclass(frozen=True, eq=False)
class QuestionSignals:
    """The family of signals.

    Documents of a corpus and what they call things, made ready for the first question.

    Attributes:
      chunks: chunks of the corpus, without the rows of its tables.
      pack: pack of its trade.
    """

    chunks: tuple[Chunk, ...] = field(repr=False)
    pack: Pack = field(repr=False)

    @cached_property
    def documents(self) -> Mapping[str, tuple[Chunk, ...]]:
        """Source -> chunks of the document, in their order."""
        lists: dict[str, list[Chunk]] = {}
        for chunk in self.chunks:
            lists.setdefault(chunk.source, []).append(chunk)
        return {source: tuple(chunks) for source, chunks in lists.items()}

    @cached_property
    def paths(self) -> frozenset[str]:
        """Paths of the documents."""
        return frozenset(chunk_documents(self.chunks))

    @property
    def origin(self) -> dict[str, dict[str, str | None]]:
        """What measures the signals, as a trace's meta has it.

        Parser with version, and pack, by name.
        """
        return {name: {"by": PARSER_VERSION, "pack": self.pack.stored} for name in STORED_SIGNALS}

    def start(self) -> None:
        """Read the documents, so that no first question pays for it."""
        self.parsed(Case("start", "", "ok"))

    def columns(self, trace: TraceData) -> Columns:
        """The signals for every case, arm and depth, by name, [Q, A, D].

        NaN of the hits where none are.

        Args:
          trace: cases and hits, with the chunks that its hits number.

        Source: rules S2.15, S5.1.
        """
        shape = trace.hits.chunk.shape
        hits = trace.hits.chunk.reshape(-1, shape[-1]).astype(np.int64)
        order = arm_order(trace.hits.rank.reshape(hits.shape), hits)[:, :FIRST]
        first = np.take_along_axis(hits, order, axis=1).reshape(*shape[:3], -1)
        columns = {name: np.full(shape[:3], np.nan) for name in STORED_SIGNALS}
        for row, case in enumerate(progress(trace.cases, "parse", "case")):
            parsed = self.parsed(case)
            columns["empty_slots"][row] = len(parsed.missing())
            # arms and depths mostly find the same documents
            known: dict[tuple[str, ...], tuple[int, int]] = {}
            for arm, depth in np.ndindex(shape[1:3]):
                places = first[row, arm, depth].tolist()
                sources = tuple(
                    dict.fromkeys(trace.chunks[place].source for place in places if place >= 0)
                )
                if sources and sources not in known:
                    known[sources] = self.gaps(parsed, sources)
                if sources:
                    columns["gaps"][row, arm, depth], columns["gap_options"][row, arm, depth] = (
                        known[sources]
                    )
        return columns

    def parsed(self, case: Case) -> ParsedQuestion:
        """A question as the rules read it."""
        named = full_sources(case.selected_sources, self.paths)
        chunks = [
            chunk for source in named for chunk in self.documents.get(source.partition("#")[0], ())
        ]
        return parse_question(case.query, chunks, pack=self.pack).model_copy(
            update={"documents": named}
        )

    def gaps(self, parsed: ParsedQuestion, sources: tuple[str, ...]) -> tuple[int, int]:
        """How many things a question leaves out, and how many values could fill the first.

        It leaves them out of some documents.
        """
        chunks = [chunk for source in sources for chunk in self.documents.get(source, ())]
        lacking = find_gaps(parsed, chunks, pack=self.pack)
        return len(lacking), len(lacking[0].readings) if lacking else 0
