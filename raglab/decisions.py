"""Decisions of one policy: a row a case, and one case explained with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import chain, gates, resolver
from raglab._explain import Check, checks, reason
from raglab._recorded import Answer, Key, answer_at, places_of
from raglab._tables import Tables
from raglab.policy import Policy, Thresholds
from raglab.values import Status, Trace

if TYPE_CHECKING:
    import pandas as pd

_GENERATED = frozenset(n for name, n in chain.STAGE.items() if n >= chain.FIRST_OK or name in chain.ON_ANSWER)
GATE_OF = {
    "empty_query": "domain",
    "deny": "domain",
    "allow": "domain",
    "no_hits": "l2",
    "overview": "resolver",
    "options": "resolver",
    "single_group": "resolver",
    "entities": "resolver",
    "group_gap": "resolver",
    "signature_similarity": "resolver",
    "anchor_similarity": "resolver",
    "single_option": "resolver",
}


class OptionShown(NamedTuple):
    """An option as the user sees it (rule S3.5)."""

    option_id: int
    chunks: tuple[int, ...]
    sources: tuple[tuple[str, str], ...]
    best_l2: float


@dataclass(frozen=True, eq=False)
class Decisions:
    """What one policy says of every case of a trace; see `frame`, `explain` and `options`."""

    trace: Trace
    policy: Policy
    tables: Tables
    limits: Thresholds
    outcome: chain.Outcome

    def __len__(self) -> int:
        """Count the cases."""
        return len(self.trace)

    @cached_property
    def status(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Status codes, [Q]."""
        return chain.STATUS_OF[self.outcome.stage]

    @cached_property
    def right(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each case passes its contract, [Q] (rule S6.3)."""
        found = self.tables.evidence
        seen = found.right[self.outcome.depth, self.outcome.slot.astype(int), np.arange(len(self))]
        return (self.status == found.label) & (seen | (found.label == Status.refuse))

    def row_of(self, case_id: str) -> int:
        """Position of a case.

        Raises:
          KeyError: the trace holds no such case.
        """
        for row, case in enumerate(self.trace.cases):
            if case.id == case_id:
                return row
        msg = f"case must be one of the trace's {len(self)} cases, got {case_id!r}; see frame()['case_id']."
        raise KeyError(msg)

    def confidence(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100."""
        return self._confidence

    @cached_property
    def _confidence(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Retrieval confidence at the depth that decided, [Q], 0 to 100."""
        depths = self.tables.evidence.l2.shape[0]
        every = np.concatenate([chain.confidence_of(self.tables.evidence, self.limits, d) for d in range(depths)])
        return every[self.outcome.depth, np.arange(len(self))]

    def stage(self, row: int) -> str:
        """Name of what decided a case, one of `chain.STAGES`."""
        return chain.STAGES[int(self.outcome.stage[row])][0]

    def places(self, row: int) -> list[int]:
        """Places of the chosen hits of a case; none unless it is answered."""
        if self.status[row] != Status.ok:
            return []
        chosen = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return [int(place) for place in chosen if place >= 0]

    def chosen(self, row: int) -> list[int]:
        """Chunks of the chosen hits of a case, as numbers of `trace.chunks`."""
        return [self._chunk(row, place) for place in self.places(row)]

    def options(self, case_id: str) -> tuple[OptionShown, ...]:
        """Options of an ambiguous case, none for another."""
        return self._options(self.row_of(case_id))

    def select(self, case_id: str, selected_option: int) -> OptionShown:
        """The option a user chose.

        Raises:
          KeyError: `Invalid selection: <id>` (rule S3.7).
        """
        row = self.row_of(case_id)
        found = self._found(row) if self.status[row] == Status.ambiguous else ()
        resolver.select(found, selected_option)
        return self._options(row)[selected_option - 1]

    def _batch(self, row: int) -> int:
        return int(self.outcome.depth[row]) * len(self) + row

    def _chunk(self, row: int, place: int) -> int:
        hits = self.trace.hits.chunk[row, self.trace.arm(self.tables.arm), int(self.outcome.depth[row])]
        return int(hits[place])

    def _found(self, row: int) -> tuple[resolver.Option, ...]:
        chosen, batch = self.tables.chosen, self._batch(row)
        last = self.tables.evidence.missing.shape[1] - 1
        return (chosen.options_tied if int(self.outcome.slot[row]) == last else chosen.options_all)[batch]

    def _options(self, row: int) -> tuple[OptionShown, ...]:
        if self.status[row] != Status.ambiguous:
            return ()
        names = self.tables.chosen.sources
        return tuple(
            OptionShown(
                found.option_id,
                tuple(self._chunk(row, place) for place in found.places),
                tuple(names[key] for key in found.sources),
                found.best_l2,
            )
            for found in self._found(row)
        )

    def generated(self, row: int) -> bool:
        """Whether retrieval lets a case through to generation."""
        return int(self.outcome.stage[row]) in _GENERATED

    def route(self, row: int) -> str | None:
        """`synthesize` where the confidence suffices, `refine` where the hits refuse, None where neither is asked.

        Source: rule S2.8.
        """
        if self.generated(row):
            return "synthesize"
        refused = self.status[row] == Status.refuse and GATE_OF.get(self.stage(row)) != "domain"
        return "refine" if refused else None

    def answer(self, row: int) -> Answer | None:
        """Answer recorded for the hits that a case's retrieval chose, None where there is none."""
        said = self.trace.answers
        if said is None or not self.generated(row):
            return None
        place = (row, self.trace.arm(self.tables.arm), int(self.outcome.depth[row]), self.in_slot(row))
        number = self._answers.get(place)
        return None if number is None else answer_at(said, number)

    def in_slot(self, row: int) -> tuple[int, ...]:
        """Chunks that a case's decision rests on, whatever it is, in order."""
        slot = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return tuple(self._chunk(row, int(place)) for place in slot if place >= 0)

    @cached_property
    def _answers(self) -> dict[Key, int]:
        return {} if self.trace.answers is None else places_of(self.trace.answers)

    def lacking(self, row: int) -> list[str]:
        """Entities of the query that the hits of a case's slot do not carry."""
        seen = self.tables.pattern_hits
        slot = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        carried = {name for place in slot if place >= 0 for name in seen.chunk_entities[self._chunk(row, int(place))]}
        return [name for name in seen.query_entities[row] if name not in carried]

    def warnings(self, row: int) -> list[str]:
        """Warnings attached to an answer (rules S2.7, S2.8)."""
        found, depth, out = self.tables.evidence, int(self.outcome.depth[row]), []
        if self.status[row] == Status.ok:
            share = float(found.share[depth, int(self.outcome.slot[row]), row])
            limit = self.limits.sufficiency
            if bool(np.squeeze(gates.fires(gates.sufficiency_margins(share, limit)))):
                out.append(
                    f"keyword share {share:.2f} is below min_keyword_share {_number(limit.min_keyword_share):.2f}"
                )
        gate_on = bool(np.squeeze(self.limits.confidence.on))
        if gate_on and bool(found.degenerate[depth, row]) and found.n_hits[depth, row]:
            out.append("reranker gave no usable scores: confidence is the hybrid score")
        return out

    def explain(self, case_id: str) -> list[Check]:
        """Every gate and rule of one case in the order of the chain, with the numbers that decided."""
        return checks(self, self.row_of(case_id))

    def reason(self, row: int) -> str:
        """Why the case came out as it did, in one line with the numbers."""
        return reason(self, row)

    def frame(self) -> pd.DataFrame:
        """One row a case: what it asked, its label, status, gate, reason with numbers, confidence, sources, options."""
        import pandas as pd

        confidence = self.confidence()
        rows = []
        for row, case in enumerate(self.trace.cases):
            stage = self.stage(row)
            sources = dict.fromkeys(self.trace.chunks[chunk].shown for chunk in self.chosen(row))
            rows.append(
                {
                    "case_id": case.id,
                    "query": case.query,
                    "expect_status": case.expect_status,
                    "status": Status(int(self.status[row])).name,
                    "gate": GATE_OF.get(stage, stage),
                    "stage": stage,
                    "reason": self.reason(row),
                    "confidence": float(confidence[row]),
                    "answer": said.text if (said := self.answer(row)) and self.status[row] == Status.ok else None,
                    "sources": list(sources),
                    "options": [[f"{name}#{page}" for name, page in option.sources] for option in self._options(row)],
                    "warnings": self.warnings(row),
                    "depth": int(self.outcome.depth[row]),
                    "passes": bool(self.right[row]),
                    "split": case.split,
                    "policy_id": self.policy.policy_id,
                }
            )
        return pd.DataFrame(rows)


def _number(threshold: Any) -> float:  # noqa: ANN401 - scalar or [1, 1]
    return float(np.squeeze(threshold))
