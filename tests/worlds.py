"""Small traces for tests: written by hand, or drawn on coarse grids so that ties occur."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raglab.policy import PolicyData
from raglab.values import Case, Chunk, Hits, TraceData

NAN = float("nan")


class Hit(NamedTuple):
    """One hit of a hand-written trace.

    `rank` is its place by l2 where not given, `cosine` is 1 - l2 / 2.
    """

    l2: float
    source: str = "guide.md"
    page: int | None = 1
    tags: Mapping[str, str] = {}
    entities: tuple[str, ...] = ()
    text: str = "text"
    rank: int | None = None
    cosine: float | None = None
    s_hybrid: float = 0.5
    s_rerank: float = NAN
    s_raw: float = NAN
    anchor_sim: float = 0.0
    sig_sim: float = 0.0
    sig_sim_strict: float | None = None
    page_label: str | None = None


def ask(query="what is the excess", expect_status="ok", **more):
    """A case with the id `q`."""
    return Case(**({"id": "q", "query": query, "expect_status": expect_status} | more))


SCORES = (
    "l2",
    "cosine",
    "s_hybrid",
    "s_rerank",
    "s_raw",
    "anchor_sim",
    "sig_sim",
    "sig_sim_strict",
)


def trace_of(*rows, n_reranked=None):
    """Trace of one arm: a row a case, the case and its hits by depth; hits are sorted by l2 here.

    n_reranked: of every case; the hits whose `s_rerank` is given where None.
    """
    depths = max(len(by_depth) for _, by_depth in rows)
    width = max(1, *(len(hits) for _, by_depth in rows for hits in by_depth))
    shape = (len(rows), 1, depths, width)
    chunks: list[Chunk] = []
    ints = {name: np.full(shape, -1, dtype=np.int32) for name in ("chunk", "rank")}
    floats = {name: np.full(shape, NAN) for name in SCORES}
    reranked = np.zeros(shape[:3], dtype=np.int32)
    for row, (_, by_depth) in enumerate(rows):
        for depth, hits in enumerate(by_depth):
            for place, hit in enumerate(sorted(hits, key=lambda hit: hit.l2)):
                values = hit._asdict() | {"chunk": len(chunks)}
                for name, default in (
                    ("rank", place),
                    ("cosine", 1.0 - hit.l2 / 2.0),
                    ("sig_sim_strict", hit.sig_sim),
                ):
                    values[name] = default if values[name] is None else values[name]
                for name, field in (ints | floats).items():
                    field[row, 0, depth, place] = values[name]
                chunks.append(
                    Chunk(
                        str(len(chunks)),
                        hit.text,
                        hit.source,
                        hit.page,
                        hit.page_label,
                        dict(hit.tags),
                        hit.entities,
                    )
                )
            scored = sum(not np.isnan(hit.s_rerank) for hit in hits)
            reranked[row, 0, depth] = scored if n_reranked is None else n_reranked
    cases = tuple(
        case._replace(id=f"{case.id}{row}" if len(rows) > 1 else case.id)
        for row, (case, _) in enumerate(rows)
    )
    return TraceData(cases, tuple(chunks), ("hybrid",), Hits(**ints, **floats, n_reranked=reranked))


OFF: dict[str, Any] = {
    "chosen": {"final_k": 2, "order": "l2"},
    "similarity": {"enabled": False},
    "confidence": {"enabled": False},
}


def policy(**sections):
    """Policy with similarity and confidence off and two chosen hits in l2 order.

    What is stated goes on top.
    """
    merged: dict[str, Any] = {key: dict(value) for key, value in OFF.items()}
    for name, section in sections.items():
        merged[name] = merged.get(name, {}) | section if isinstance(section, dict) else section
    return PolicyData.from_mapping(merged)


ENTITIES = {"fleet": ["fleet"], "hull": ["hull"], "cargo": ["cargo"]}
PATTERNS: dict[str, Any] = {
    "deny": [["weather", "today"]],
    "allow": [],
    "generic": ["overall"],
    "facet": ["clause"],
    "compare": ["versus"],
    "coverage_generic": ["explain"],
    "entities": ENTITIES,
}
_WORDS = (
    "overall",
    "clause",
    "versus",
    "explain",
    "fleet",
    "hull",
    "cargo",
    "excess",
    "the",
    "weather",
    "today",
    "",
)
# that the cases expect; folder b has fewer chunks of both files
SOURCES = ("a/x.md", "a/y.md", "a/x.md#2")
_L2 = (0.25, 0.5, 0.5, 0.5, 0.75, 1.0, 1.25)
_SIM = (0.0, 0.25, 0.5, 0.5, 0.75)
_UNIT = (0.0, 0.25, 0.5, 0.5, 0.75, 1.0)


def random_trace(seed, n_cases=4, depths=1, width=5, arms=1):
    """A trace drawn on coarse grids: ties in l2, scores, pages and entities are the rule."""
    rng = np.random.default_rng(seed)
    n_chunks = 12
    chunks = _random_chunks(rng, n_chunks)
    cases = []
    for row in range(n_cases):
        expected = [
            tuple(str(rng.choice(SOURCES)) for _ in range(rng.integers(0, 2))) for _ in "ab"
        ]
        cases.append(
            Case(
                id=f"q{row}",
                query=" ".join(rng.choice(_WORDS, size=rng.choice([1, 3, 4, 4, 5]))),
                expect_status=str(rng.choice(["ok", "refuse", "ambiguous"])),
                expect_sources=expected[0],
                expect_sources_any=expected[1],
                min_sources=int(rng.integers(0, 3)),
                selected_sources=("a/x.md",) if rng.random() < 0.3 else (),
            )
        )
    shape = (n_cases, arms, depths, width)
    chunk = np.full(shape, -1, dtype=np.int32)
    rank = np.full(shape, -1, dtype=np.int32)
    n_reranked = np.zeros(shape[:3], dtype=np.int32)
    grids = dict(zip(SCORES, (_L2, _SIM, _UNIT, _UNIT, (0.0, 1.0), _SIM, _SIM, _SIM), strict=True))
    floats = {name: np.full(shape, np.nan) for name in grids}
    for at in np.ndindex(shape[:3]):
        n = int(min(width, rng.choice([0, 1, 2, width, width, width, width])))
        chunk[at][:n] = rng.choice(n_chunks, size=n, replace=False)
        rank[at][:n] = rng.permutation(n)
        n_reranked[at] = rng.choice([0, n, n, max(0, n - 1)])
        for name, grid in grids.items():
            floats[name][at][:n] = rng.choice(grid, size=n)
        floats["l2"][at][:n] = np.sort(floats["l2"][at][:n])
        floats["s_rerank"][at][rank[at] >= n_reranked[at]] = np.nan
        floats["s_raw"][at][rank[at] >= n_reranked[at]] = np.nan
        if n_reranked[at] and rng.random() < 0.1:
            floats["s_rerank"][at][rank[at] == 0] = rng.choice([1.5, np.nan])
    names = ("hybrid", "iterative", "graph")[:arms]
    return TraceData(
        tuple(cases), chunks, names, Hits(chunk, rank, **floats, n_reranked=n_reranked)
    )


def _random_chunks(rng, n_chunks):
    """Chunks with short texts, of few files, pages, tags and entities."""
    return tuple(
        Chunk(
            chunk_id=str(number),
            text=" ".join(rng.choice(_WORDS, size=3)),
            source=f"{rng.choice([['a', 'b'], ['a', 'a']][number % 2])}/"
            f"{rng.choice(['x.md', 'y.md'])}",
            page=None if rng.random() < 0.15 else int(rng.integers(1, 6)),
            page_label=str(rng.choice(["iv", "2"])) if rng.random() < 0.3 else None,
            tags={
                key: str(rng.choice(["motor", "Marine ", "", " "]))
                for key in ("domain", "product", "vendor")
                if rng.random() < 0.6
            },
            entities=tuple(name for name in ENTITIES if rng.random() < 0.25),
        )
        for number in range(n_chunks)
    )


def measured(trace):
    """A trace of `random_trace` as retrieval measures one.

    Cosines that are those of its distances, chances up to 1.
    """
    hits = trace.hits
    scores = hits.s_rerank.clip(0.0, 1.0)
    return dataclasses.replace(
        trace, hits=hits._replace(cosine=1.0 - hits.l2 / 2.0, s_rerank=scores)
    )


FUSED = {
    "bias": 0.5,
    "parts": {
        "gap": {"x": [0.0, 0.25, 0.5], "y": [-1.0, 0.0, 1.0]},
        "top1_cosine": {"x": [0.25], "y": [-0.5]},
        "confidence": {"x": [25.0, 75.0], "y": [-2.0, 1.0]},
    },
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "chosen.final_k": (1, 2, 3),
    "chosen.order": ("rank", "l2"),
    "domain.enabled": (True, True, False),
    "l2.enabled": (True, True, True, False),
    "l2.max_l2": (0.25, 0.5, 0.75, 1.0),
    "l2.soft_max_l2": (None, 0.5, 0.75, 1.0, 1.25),
    "density.enabled": (True, True, False),
    "density.min_keep": (1, 1, 2, 3),
    "gap.enabled": (True, True, True, False),
    "gap.min_gap": (None, 0.0, 0.25, 0.5, 0.5),
    "coverage.enabled": (True, True, False),
    "similarity.enabled": (True, False),
    "similarity.min_similarity": (0.0, 0.25, 0.5),
    "sufficiency.min_keyword_share": (0.0, 0.5, 1.0),
    "confidence.enabled": (True, True, False),
    "confidence.tau_default": (25.0, 50.0, 75.0),
    "confidence.tau_explicit": (25.0, 50.0),
    "confidence.blend": (1.0, 1.0, 0.5, 0.0),
    "fused.enabled": (True, False, False),
    "fused.min_fused": (0.25, 0.5, 0.75),
    "refine.max_depth": (0, 1, 2, 3),
    "refine.epsilon": (0.0, 1.0, 50.0),
    "refine.refine_on_refusal": (True, True, False),
    "resolver.strict": (True, False),
    "resolver.overview": (True, True, False),
    "resolver.overview_entities_lift": (True, False),
    "resolver.entity_extractor": (True, True, False),
    "resolver.entities": (True, True, False),
    "resolver.require_full_entity_coverage": (True, False),
    "resolver.min_group_gap": (None, 0.0, 0.25, 0.25, 0.5),
    "resolver.signature": (True, False),
    "resolver.min_sig_sim": (None, 0.5, 0.5, 0.75),
    "resolver.min_sig_sim_gap": (None, 0.25, 0.25),
    "resolver.anchor": (True, False),
    "resolver.min_anchor_sim": (None, 0.5, 0.75),
    "resolver.min_anchor_sim_gap": (None, 0.25, 0.5),
    "resolver.max_options": (1, 2, 3),
}


_BOUNDS = {
    "confidence": (25.0, 50.0, 75.0),
    "gap": (0.0, 0.25, 0.5),
    "top1_cosine": (0.25, 0.5, 0.75),
}


def with_signals(policies, seed, bounds=None):
    """The policies with gates on some signals.

    One bound or both, all three firings, now and then switched off.

    bounds: values by signal; of three signals, on the grids of `random_trace`, where not given.
    """
    rng = np.random.default_rng([seed, 15])
    out = []
    for chosen in policies:
        gated: dict[str, Any] = {}
        for name, grid in (bounds or _BOUNDS).items():
            low, high = sorted(rng.choice(grid, size=2).tolist())
            kept = rng.choice(["none", "min", "max", "both"])
            if kept != "none":
                gated[name] = {
                    "min": None if kept == "max" else low,
                    "max": None if kept == "min" else high,
                    "on_fire": str(rng.choice(["refuse", "ask", "ask", "warn"])),
                    "enabled": bool(rng.random() < 0.9),
                }
        rows = chosen.model_dump(exclude={"signals"}) | {"signals": gated}
        out.append(PolicyData.from_mapping(rows))
    return out


def random_policies(seed, count, **fixed):
    """Policies drawn on the grids of `random_trace`.

    `fixed` holds paths with `__` for the point.
    """
    rng = np.random.default_rng(seed)
    # Parts of the structure that all of them share.
    told: dict[str, Any] = {"confidence.fallback": ("cosine", "hybrid")[seed % 2]}
    told |= {"coverage.min_hits": (1, 2, 1, 3)[seed % 4]}
    told |= {"resolver.document_identity": ("path", "file_name", "path")[seed % 3]}
    told |= {path.replace("__", "."): value for path, value in fixed.items()}
    base = PolicyData.from_mapping({"patterns": PATTERNS, "fused": FUSED})
    out = []
    for _ in range(count):
        drawn = {
            path: choices[rng.integers(len(choices))] for path, choices in _CHOICES.items()
        } | told
        drawn["patterns.allow"] = () if rng.random() < 0.8 else ("excess", "fleet")
        out.append(base.replace(*(part for pair in drawn.items() for part in pair)))
    return out
