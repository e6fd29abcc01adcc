"""Order of the gates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import gates, resolver
from raglab.decision import evidence as measure
from raglab.decision.measurement import WINNERS, Evidence
from raglab.policy import Thresholds
from raglab.values import Status

# What decided, in the order of the chain. The first word is the gate, the second the resolver's rule.
STAGES: tuple[tuple[str, Status], ...] = (
    ("empty_query", Status.refuse),
    ("deny", Status.refuse),
    ("allow", Status.refuse),
    ("no_hits", Status.refuse),
    ("l2", Status.refuse),
    ("density", Status.refuse),
    ("coverage", Status.refuse),
    ("similarity", Status.refuse),
    ("fused", Status.refuse),
    ("confidence", Status.refuse),
    ("generation", Status.refuse),
    ("support", Status.refuse),
    ("hygiene", Status.refuse),
    ("overview", Status.ambiguous),
    ("options", Status.ambiguous),
    ("gap", Status.ok),
    ("single_group", Status.ok),
    ("entities", Status.ok),
    ("group_gap", Status.ok),
    ("signature_similarity", Status.ok),
    ("anchor_similarity", Status.ok),
    ("single_option", Status.ok),
)
STAGE = {name: number for number, (name, _) in enumerate(STAGES)}
STATUS_OF = np.array([status for _, status in STAGES], dtype=np.int8)
FIRST_OK = STAGE["gap"]
ON_ANSWER = ("generation", "support", "hygiene")  # they judge the answer, not the hits


def _slot_table() -> NDArray[np.int16]:
    """Slot of what the resolver picked, after those of relevant hits, by (whether rule `entities` speaks, stage)."""
    table = np.zeros((2, len(STAGES)), dtype=np.int16)
    for tied, group in enumerate(("all", "tied")):
        named = {
            "single_group": "first_of_all",
            "entities": "entities",
            "group_gap": f"first_of_{group}",
            "signature_similarity": f"signature_of_{group}",
            "anchor_similarity": f"anchor_of_{group}",
            "overview": "options_of_all",
            "options": f"options_of_{group}",
            "single_option": f"options_of_{group}",
        }
        for stage, winner in named.items():
            table[tied, STAGE[stage]] = WINNERS.index(winner)
    return table


SLOT_TABLE = _slot_table()


class Outcome(NamedTuple):
    """stage, slot, depth [P, Q]: what decided (`STAGES`), on which set of hits, at which refinement depth."""

    stage: NDArray[np.int8]
    slot: NDArray[np.int16]
    depth: NDArray[np.int8]


class Pass(NamedTuple):
    """One depth of the chain: stage and slot [P, Q], confidence broadcast against them."""

    stage: NDArray[np.int8]
    slot: NDArray[np.int16]
    confidence: NDArray[np.float64]


def narrowed(found: Evidence, limits: Thresholds) -> tuple[Evidence, Thresholds]:
    """The same L2 distances and bounds in float32, where no distance loses a digit: half the memory to read.

    The bounds are rounded down, so that every float32 distance compares with them as before.
    """
    l2: Any = found.l2.astype(np.float32)
    best: Any = found.best_l2.astype(np.float32)
    if not (np.array_equal(l2, found.l2, equal_nan=True) and np.array_equal(best, found.best_l2, equal_nan=True)):
        return found, limits

    def down(bound: Any) -> Any:  # noqa: ANN401 - scalar or array
        near = np.asarray(bound, dtype=np.float32)
        return np.where(near > bound, np.nextafter(near, np.float32(-np.inf)), near)

    bounds = limits.l2._replace(max_l2=down(limits.l2.max_l2), soft_max_l2=down(limits.l2.soft_max_l2))
    return found._replace(l2=l2, best_l2=best), limits._replace(l2=bounds)


def n_judged(found: Evidence, limits: Thresholds) -> int:
    """How many of the nearest hits a count must look at: in L2 order no more than are chosen or must be kept."""
    if found.rank_order:
        return int(found.l2.shape[1])
    return int(max(found.final_k, 2, np.max(limits.density.min_keep)))


def domain(found: Evidence, limits: Thresholds) -> gates.DomainMargins:
    """Margins of the domain gate."""
    return gates.domain_margins(found.words, found.denied, found.allowed, found.needs_allowed, limits.domain)


def _if(switch: Any, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:  # noqa: ANN401 - bool or array
    """A mask where a switch is on; on bytes, since NumPy broadcasts bools four times as slowly."""
    return np.bitwise_and(np.asarray(switch).view(np.uint8), mask.view(np.uint8)).view(np.bool_)


def is_overview(found: Evidence, limits: Thresholds) -> Any:  # noqa: ANN401 - bool or array
    """Whether rule `overview` ends the resolver."""
    return _if(limits.overview, found.overview) & ~_if(limits.overview_entities_lift, found.names_entity)


def uses_tied(found: Evidence, limits: Thresholds, depth: int) -> Any:  # noqa: ANN401 - bool or array
    """Whether rule `entities` speaks: it is on, some group has a hit, and full coverage where it is asked for."""
    return _if(limits.entities, ~found.skips_entities[depth]) & ~_if(limits.require_full, ~found.full_entities[depth])


def confidence_of(found: Evidence, limits: Thresholds, depth: int) -> NDArray[np.float64]:
    """Confidence of every case at a depth, [P, Q] or [1, Q]."""
    blends = np.unique(limits.blend)
    blend = blends[0] if len(blends) == 1 else limits.blend
    rerank, hybrid = found.top_rerank[:, depth], found.top_hybrid[:, depth]
    if len(blends) > 1:
        rerank, hybrid = rerank[:, None, :], hybrid[:, None, :]
    return np.atleast_2d(measure.confidence(rerank, hybrid, found.degenerate[depth], blend))


def _put(into: NDArray[Any], value: Any, where: Any) -> None:  # noqa: ANN401 - a number or array, a bool or array
    """Write a value where a mask holds, in arithmetic: four times as fast as a masked copy."""
    np.add(into, where * (value - into), out=into)


def _resolved(
    found: Evidence, limits: Thresholds, depth: int, shape: tuple[int, ...]
) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
    """Stage and slot if the case goes to the resolver, [P, Q]."""
    single, overview = found.n_groups[depth] == 1, is_overview(found, limits)
    tied = uses_tied(found, limits, depth) & ~(single | overview)
    one_option = (tied & (found.n_options_tied[depth] == 1)) | (~tied & (found.n_options_all[depth] == 1))
    wins_all = resolver.rule_margins(_at(found.all, depth), limits.rules)
    wins_tied = resolver.rule_margins(_at(found.tied, depth), limits.rules)
    stage = np.full(shape, STAGE["options"], dtype=np.int8)
    for rule in ("anchor_similarity", "signature_similarity", "group_gap"):
        of_all, of_tied = resolver.decides(getattr(wins_all, rule)), resolver.decides(getattr(wins_tied, rule))
        _put(stage, STAGE[rule], (tied & of_tied) | (~tied & of_all))
    _put(stage, STAGE["entities"], tied & found.has_winner[depth])
    _put(stage, STAGE["overview"], overview)
    _put(stage, STAGE["single_option"], one_option & (stage <= STAGE["options"]))
    _put(stage, STAGE["single_group"], single)
    picked = np.multiply(tied, len(STAGES), dtype=np.int8) + stage
    return stage, SLOT_TABLE.take(picked) + np.int16(found.n_slots_relevant)


def _at(contest: resolver.Contest, depth: int) -> resolver.Contest:
    return resolver.Contest(*[field[depth] for field in contest])


def at_slot(table: NDArray[Any], slot: NDArray[np.int16]) -> NDArray[Any]:
    """Table [S, Q] looked up at slot [P, Q]."""
    place = np.multiply(slot, table.shape[1], dtype=np.intp)
    place += np.arange(table.shape[1])
    return table.ravel().take(place)


def one_depth(found: Evidence, limits: Thresholds, depth: int, shape: tuple[int, ...]) -> Pass:
    """Gates from L2 to confidence on the hits of one depth."""
    cut = np.broadcast_to(gates.l2_cut(found.best_l2[depth], limits.l2), shape)
    count = gates.n_relevant(found.l2[depth][: n_judged(found, limits)], cut)
    gap = gates.gap_margins(found.gap[depth], count, found.agree[depth], limits.gap)
    stage, slot = _resolved(found, limits, depth, shape)
    confident = ~gates.fires(gap)
    _put(stage, STAGE["gap"], confident)
    _put(slot, count if found.rank_order else np.minimum(count, found.final_k), confident)
    confidence = confidence_of(found, limits, depth)
    answered = stage >= FIRST_OK
    missing = gates.coverage_margins(at_slot(found.missing[depth], slot), limits.coverage)
    checks = (
        ("confidence", gates.confidence_margins(confidence, found.explicit, limits.confidence)),
        ("fused", gates.fused_margins(found.fused[depth], limits.fused)),
        ("similarity", gates.similarity_margins(found.top1[depth], limits.similarity)),
        ("coverage", missing),
    )
    for name, margins in checks:
        _put(stage, STAGE[name], gates.fires(margins) & answered)
    _put(stage, STAGE["density"], gates.fires(gates.density_margins(count, limits.density)))
    _put(stage, STAGE["l2"], np.isneginf(cut))
    _put(stage, STAGE["no_hits"], found.n_hits[depth] == 0)
    return Pass(stage, slot, confidence)


def refines(seen: Pass, limits: Thresholds) -> Any:  # noqa: ANN401 - an array of bools
    """Whether another try is made after a depth: its confidence is too low, or it refuses and that counts as such."""
    return (STATUS_OF[seen.stage] == Status.refuse) & (
        np.equal(seen.stage, STAGE["confidence"]) | limits.refine.on_refusal
    )


def looped(found: Evidence, limits: Thresholds, shape: tuple[int, ...]) -> tuple[Outcome, NDArray[np.bool_]]:
    """Outcome of retrieval, depth by depth, and whether the loop would go on past the last depth that was measured.

    Source: rule S2.9.
    """
    last = one_depth(found, limits, 0, shape)
    stage, slot = last.stage.copy(), last.slot.copy()
    depth = np.zeros(shape, dtype=np.int8)
    change: Any = np.inf
    going: Any = True
    for step in range(1, found.l2.shape[0] + 1):
        margins = gates.refine_margins(step, change, limits.refine)
        going = going & refines(last, limits) & ~gates.fires(margins)
        if step == found.l2.shape[0] or not going.any():
            break
        now = one_depth(found, limits, step, shape)
        np.copyto(stage, now.stage, where=going)
        np.copyto(slot, now.slot, where=going)
        np.copyto(depth, step, where=going, casting="unsafe")
        change = np.abs(now.confidence - last.confidence)
        last = now
    return Outcome(stage, slot, depth), np.broadcast_to(going, shape)


def goes_on(found: Evidence, limits: Thresholds) -> NDArray[np.bool_]:
    """Whether a live question is tried once more after the last depth that was measured, [P, Q]."""
    shape = (np.size(limits.refine.max_depth), len(found.label))
    _, going = looped(found, limits, shape)
    on: NDArray[np.bool_] = going & np.logical_not(gates.fires(domain(found, limits)))
    return on


def _generated(found: Evidence, limits: Thresholds, said: Outcome) -> None:
    """Put in what the gates on the answer say, where retrieval answers and answers were recorded (S2.10 to S2.13)."""
    ready = said.stage >= FIRST_OK

    def of(table: NDArray[Any]) -> NDArray[Any]:
        if len(table) == 1:
            return at_slot(table[0], said.slot)
        every: NDArray[Any] = table[said.depth, said.slot.astype(np.intp), np.arange(table.shape[2])]
        return every

    generation = gates.generation_margins(of(found.generation), limits.generation)
    support = gates.support_margins(of(found.support), limits.support)
    _put(said.stage, STAGE["hygiene"], of(found.unfit) & ready)
    _put(said.stage, STAGE["support"], gates.fires(support) & ready)
    _put(said.stage, STAGE["generation"], gates.fires(generation) & ready)


def outcome(found: Evidence, limits: Thresholds, shape: tuple[int, ...]) -> Outcome:
    """What each policy decides for each case.

    Args:
      found: measurements. limits: thresholds, [P, 1] or [P, Q]. shape: (P, Q).

    Source: rules S2.9, S2.12.
    """
    said, _ = looped(found, limits, shape)
    if found.answered:
        _generated(found, limits, said)
    text = domain(found, limits)
    for name, margin in (("allow", text.allow), ("deny", text.deny), ("empty_query", text.query)):
        fired = gates.fires((margin,))
        _put(said.stage, STAGE[name], fired)
        _put(said.slot, 0, fired)
        _put(said.depth, 0, fired)
    return said
