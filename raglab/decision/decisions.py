"""Decided cases, explained in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import fusion, gates, resolver
from raglab.decision import chain
from raglab.decision.measurement import Tables
from raglab.decision.recorded_answers import Answer, AnswerKey, answer_at, places_of
from raglab.policy import PolicyData, Thresholds
from raglab.text import decimals
from raglab.values import Floats, Status, TraceData

if TYPE_CHECKING:
    import pandas as pd


class Check(NamedTuple):
    """One gate or rule of one case: what it measured, the threshold it met, its headroom (>= 0 passes), in words."""

    gate: str
    rule: str
    value: float
    threshold: float
    margin: float
    passes: bool
    text: str


def checks(said: Decisions, row: int) -> list[Check]:
    """Checks of one case at the depth that decided, in the order of the chain, as far as it went."""
    found = [*_domain(said, row)]
    stage = said.stage(row)
    if stage in {"empty_query", "deny", "allow"}:
        return found
    found += _retrieval(said, row)
    if stage in {"no_hits", "l2", "density"}:
        return found
    if not found[-1].passes:
        found += _rules(said, row)
    return found if said.status[row] == Status.ambiguous else [*found, *_chosen(said, row)]


def reason(said: Decisions, row: int) -> str:
    """One line: which gate or rule decided, with its numbers."""
    stage, depth = said.stage(row), int(said.outcome.depth[row])
    groups = int(said.tables.evidence.n_groups[depth, row])
    plain = {
        "empty_query": "empty query",
        "deny": "out of domain: a deny pattern matches",
        "allow": "out of domain: no allow pattern matches",
        "no_hits": "no hits were retrieved",
        "overview": f"an overview question over {groups} groups of documents",
        "single_group": "all hits are of one group",
        "entities": "one group has the query's entities",
        "single_option": "one option is left",
    }
    if stage in plain:
        return plain[stage]
    rows = checks(said, row)
    if stage == "options":
        thresholded = ("S3.3 group_gap", "S3.3 signature_similarity", "S3.3 anchor_similarity")
        return "no rule picks one of the groups: " + "; ".join(c.text for c in rows if c.rule in thresholded)
    named = [check for check in rows if stage in {check.gate, check.rule.removeprefix("S3.3 ")}]
    text = next((check.text for check in named if not check.passes), named[-1].text)
    return f"{text} after {_counted(depth, 'refinement')}" if stage == "confidence" and depth else text


def _check(gate: str, rule: str, value: Floats, threshold: Floats, margin: Floats, text: str) -> Check:
    headroom = _n(margin)
    return Check(gate, rule, _n(value), _n(threshold), headroom, not bool(gates.fires((headroom,))), text)


def _domain(said: Decisions, row: int) -> Iterator[Check]:
    found, limits = said.tables.evidence, said.limits
    words, denied, allowed = (int(counts[row]) for counts in (found.words, found.denied, found.allowed))
    margins = gates.domain_margins(words, denied, allowed, found.needs_allowed, limits.domain)
    off = "" if _n(limits.domain) else " (gate off)"
    yield _check("domain", "S2.1", words, 1, margins.query, f"{_counted(words, 'word')} in the query")
    yield _check("domain", "S2.1", denied, 0, margins.deny, f"{_counted(denied, 'deny pattern')} matched{off}")
    if found.needs_allowed:
        yield _check("domain", "S2.1", allowed, 1, margins.allow, f"{_counted(allowed, 'allow pattern')} matched{off}")


def _retrieval(said: Decisions, row: int) -> Iterator[Check]:
    found, limits = said.tables.evidence, said.limits
    depth = int(said.outcome.depth[row])
    hits = int(found.n_hits[depth, row])
    yield _check("l2", "S2.2", hits, 1, hits - 1.0, f"{_counted(hits, 'hit')} retrieved")
    best = float(found.best_l2[depth, row])
    margin = gates.l2_margins(best, limits.l2).l2
    hard = gates.l2_margins(best, limits.l2._replace(soft_max_l2=np.nan)).l2
    by_soft = bool(gates.fires((hard,))) and not bool(gates.fires((margin,)))
    name = "soft_max_l2" if by_soft else "max_l2"
    bound = _n(getattr(limits.l2, name))
    text = _told("l2 of the nearest hit", best, name, bound, margin, limits.l2.on, upper=True)
    soft = _n(limits.l2.soft_max_l2)
    if not (by_soft or np.isnan(soft)) and bool(gates.fires((margin,))):
        text += f" and soft_max_l2 {decimals(soft, best)}"
    yield _check("l2", "S2.2", best, bound, margin, text)
    cut = gates.l2_cut(best, limits.l2)
    count = int(_n(gates.n_relevant(found.l2[depth][:, [row]], np.reshape(cut, (1, 1)))))
    least, margin = _n(limits.density.min_keep), gates.density_margins(count, limits.density).density
    text = f"{_counted(count, 'relevant hit')} within l2 {decimals(_n(cut))}, min_keep {decimals(least)}"
    text += _off(limits.density.on)
    yield _check("density", "S2.3", count, least, margin, text)
    gap, agree = float(found.gap[depth, row]), bool(found.agree[depth, row])
    least, margin = _n(limits.gap.min_gap), gates.gap_margins(gap, count, agree, limits.gap).gap
    text = _told("gap of the first two hits", gap, "min_gap", least, margin, limits.gap.on)
    if count <= 1:
        text = "no second relevant hit to be apart from"
    elif agree:
        text = "the first two hits agree: one document, near pages, or one signature"
    yield _check("gap", "S2.4", gap, least, margin, text)


def _rules(said: Decisions, row: int) -> Iterator[Check]:
    found, limits = said.tables.evidence, said.limits
    depth, shape = int(said.outcome.depth[row]), (1, len(said))
    groups = int(found.n_groups[depth, row])
    overview = bool(np.broadcast_to(chain.is_overview(found, limits), shape)[0, row])
    tied = bool(np.broadcast_to(chain.uses_tied(found, limits, depth), shape)[0, row])
    winner = tied and bool(found.has_winner[depth, row])
    told = "one group has the query's entities" if winner else "groups tie on them" if tied else "they decide nothing"
    yield _rule("single_group", groups == 1, f"{_counted(groups, 'group')} of hits")
    yield _rule("overview", overview, "an overview question" if overview else "no overview question")
    yield _rule("entities", winner, f"entities of the query: {told}")
    seen = resolver.Contest(*[field[depth, row] for field in (found.tied if tied else found.all)])
    rules, margins = limits.rules, resolver.rule_margins(seen, limits.rules)
    least = _n(rules.min_group_gap)
    text = _beside("gap of the first two groups", float(seen.group_gap), "min_group_gap", least)
    yield _check("resolver", "S3.3 group_gap", seen.group_gap, least, margins.group_gap, text)
    for what, best, lead, least_best, least_lead in (
        ("signature", seen.best_signature, seen.gap_signature, rules.min_sig_sim, rules.min_sig_sim_gap),
        ("anchor", seen.best_anchor, seen.gap_anchor, rules.min_anchor_sim, rules.min_anchor_sim_gap),
    ):
        name = f"{what}_similarity"
        text = f"best {what} {_wanted(float(best), _n(least_best))}, lead {_wanted(float(lead), _n(least_lead))}"
        yield _check("resolver", f"S3.3 {name}", best, least_best, getattr(margins, name), text)


def _rule(name: str, decides: bool, text: str) -> Check:  # noqa: FBT001 - a verdict
    return _check("resolver", f"S3.3 {name}", float(decides), 1, 0.0 if decides else -1.0, text)


def _chosen(said: Decisions, row: int) -> Iterator[Check]:
    found, limits = said.tables.evidence, said.limits
    depth, slot = int(said.outcome.depth[row]), int(said.outcome.slot[row])
    missing = int(found.missing[depth, slot, row])
    margin = gates.coverage_margins(missing, limits.coverage).coverage
    text = (
        "missing document coverage for: " + ", ".join(said.lacking(row))
        if missing
        else "every entity that must be covered is"
    )
    yield _check("coverage", "S2.5", missing, 0, margin, text + _off(limits.coverage))
    top1, least = float(found.top1[depth, row]), limits.similarity.min_similarity
    margin = gates.similarity_margins(top1, limits.similarity).similarity
    text = _told("top-1 similarity", top1, "min_similarity", _n(least), margin, limits.similarity.on)
    yield _check("similarity", "S2.6", top1, least, margin, text)
    share, least = float(found.share[depth, slot, row]), limits.sufficiency.min_keyword_share
    margin = gates.sufficiency_margins(share, limits.sufficiency).sufficiency
    text = _told("keyword share", share, "min_keyword_share", _n(least), margin, limits.sufficiency.on)
    yield _check("sufficiency", "S2.7", share, least, margin, text)
    if said.policy.fused_model is not None:
        yield _fused(said, row, depth)
    value, explicit = float(said.confidence()[row]), bool(found.explicit[row])
    name = "tau_explicit" if explicit else "tau_default"
    least = getattr(limits.confidence, name)
    margin = gates.confidence_margins(value, explicit, limits.confidence).confidence
    text = _told("confidence", value, name, _n(least), margin, limits.confidence.on)
    yield _check("confidence", "S2.8", value, least, margin, text)
    if found.answered and said.generated(row):
        yield from _answered(said, row, depth, slot)


def _answered(said: Decisions, row: int, depth: int, slot: int) -> Iterator[Check]:
    """Checks of the answer recorded for the chosen hits."""
    found, answer = said.tables.evidence, said.answer(row)
    value, support = float(found.generation[depth, slot, row]), float(found.support[depth, slot, row])
    if answer is None:
        return answer_checks(value, support, "", "no answer was recorded for these hits", said.limits)
    return answer_checks(value, support, answer.claim, answer.refused, said.limits)


def answer_checks(confidence: float, support: float, claim: str, refused: str, limits: Thresholds) -> Iterator[Check]:
    """Checks of one answer: generation, support, hygiene.

    Args:
      confidence: calibrated, in [0, 1]. support: of the weakest claim, in [0, 1]. refused: why it may not leave, or ''.

    Source: rules S2.10 to S2.13.
    """
    why = f"; {refused}" if refused else ""
    least, margin = limits.generation.min_generation_confidence, gates.generation_margins(confidence, limits.generation)
    on, name = limits.generation.on, "min_generation_confidence"
    text = _told("generation confidence", confidence, name, _n(least), margin.generation, on)
    missing = why if np.isnan(confidence) else ""
    yield _check("generation", "S2.10", confidence, least, margin.generation, text + missing)
    least, bound = limits.support.min_support, gates.support_margins(support, limits.support)
    text = _told("support of the weakest claim", support, "min_support", _n(least), bound.support, limits.support.on)
    yield _check("support", "S2.11", support, least, bound.support, f"{text}: {claim!r}" if claim else text + why)
    held = float(bool(refused))
    yield _check("hygiene", "S2.13", held, 0, -held, refused or "the answer is fit to leave")


def _fused(said: Decisions, row: int, depth: int) -> Check:
    found, limits, model = said.tables.evidence, said.limits.fused, said.policy.fused_model
    value = float(found.fused[depth, row])
    margin = gates.fused_margins(value, limits).fused
    text = _told("fused probability", value, "min_fused", _n(limits.min_fused), margin, limits.on)
    if model is not None:
        parts = fusion.contributions(found.signals[:, depth, [row]], model)[:, 0]
        named = sorted(zip(parts.tolist(), model.parts, strict=True), key=lambda pair: (-abs(pair[0]), pair[1].signal))
        told = ", ".join(f"{part.signal} {_signed(share)}" for share, part in named)
        text += f"; in logits: {told}, bias {_signed(model.bias)}"
    return _check("fused", "S2.14", value, limits.min_fused, margin, text)


def _told(what: str, value: float, name: str, threshold: float, margin: Floats, on: Any, *, upper: bool = False) -> str:  # noqa: ANN401 - bool or [1, 1]
    """Sentence of a check, its relation read from the margin."""
    if not _n(on):
        return f"{what} {decimals(value)}{_off(on)}"
    if np.isnan(value):
        return f"{what} is missing, {name} {_set(threshold, value)}"
    fails = bool(gates.fires((_n(margin),)))
    relation = ("above" if upper else "below") if fails else ("within" if upper else "at or above")
    return f"{what} {decimals(value, threshold)} is {relation} {name} {_set(threshold, value)}"


def _off(on: Any) -> str:  # noqa: ANN401 - bool or [1, 1]
    return "" if _n(on) else " (gate off)"


def _set(threshold: float, value: float) -> str:
    return decimals(threshold, value) if np.isfinite(threshold) else "not set"


def _beside(what: str, value: float, name: str, threshold: float) -> str:
    """Value and threshold of a rule, without a verdict."""
    told = "is missing" if np.isnan(value) else decimals(value, threshold)
    return f"{what} {told}, {name} {_set(threshold, value)}"


def _wanted(value: float, threshold: float) -> str:
    return f"{decimals(value, threshold)} (at least {_set(threshold, value)})"


def _signed(share: float) -> str:
    return f"{'' if share < 0.0 else '+'}{decimals(share)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _n(value: Any) -> float:  # noqa: ANN401 - scalar or array of one
    return float(np.squeeze(value))


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

    trace: TraceData
    policy: PolicyData
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
        key = AnswerKey(row, self.trace.arm(self.tables.arm), int(self.outcome.depth[row]), self.in_slot(row))
        number = self._answers.get(key)
        return None if number is None else answer_at(said, number)

    def in_slot(self, row: int) -> tuple[int, ...]:
        """Chunks that a case's decision rests on, whatever it is, in order."""
        slot = self.tables.chosen.places[self._batch(row), int(self.outcome.slot[row])]
        return tuple(self._chunk(row, int(place)) for place in slot if place >= 0)

    @cached_property
    def _answers(self) -> dict[AnswerKey, int]:
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
                least = _n(limit.min_keyword_share)
                out.append(f"keyword share {decimals(share, least)} is below min_keyword_share {_set(least, share)}")
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
