"""Synthetic cases, hits and policies in which every gate and rule decides something.

What the benchmarks replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import Case, Chunk, Policy, Trace, fit_decision
from raglab.values import Hits

WORDS = [
    "premium",
    "excess",
    "claim",
    "theft",
    "flood",
    "driver",
    "cover",
    "roof",
    "rental",
    "audit",
]
ENTITIES = ("Alba", "Borea", "Cirrus", "Dorado", "Etna", "Fjord")
PATTERNS = {"entities": {name: [rf"\b{name}\b"] for name in ENTITIES}}
N_SIGNATURES = 24
UNTAGGED = (3, 11, 19)
MAX_GROUPS = 8
N_RERANKED = 20
OWN_SIGNALS = 5  # of the user, each gated by every policy
# signals of the decision by cost
MODEL = ("confidence", "top1_cosine", "gap", "keyword_share", "groups", "words")
FITTED_ON = 1_000  # cases of it


class Sizes(NamedTuple):
    """How much is made: cases, hits of each, policies, chunks."""

    cases: int
    hits: int
    policies: int
    chunks: int


FULL, QUICK = Sizes(10_000, 50, 1_000, 4_000), Sizes(300, 50, 40, 400)


def synthetic_chunks(n: int, rng: np.random.Generator) -> tuple[Chunk, ...]:
    """Chunks in turn of each signature, some of which name an entity."""
    return tuple(
        Chunk(
            chunk_id=f"c{i}",
            text=" ".join(rng.choice(WORDS, 12)) + f" {i}",
            source=f"docs/{i % N_SIGNATURES}-"
            f"{0 if i % N_SIGNATURES in UNTAGGED else i // N_SIGNATURES % 7}.md",
            page=1 + i // N_SIGNATURES % 9,
            tags={}
            if i % N_SIGNATURES in UNTAGGED
            else {"domain": "fleet", "doc_type": "guide", "product": f"p{i % N_SIGNATURES}"},
            entities=(ENTITIES[i % len(ENTITIES)],) if rng.random() < 0.5 else (),
        )
        for i in range(n)
    )


def synthetic_hits(sizes: Sizes, rng: np.random.Generator) -> Hits:
    """Hits of up to 8 signatures a case in ascending l2, values as a float32 file holds them."""
    shape = (sizes.cases, sizes.hits)

    def stored(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values.astype(np.float32).astype(np.float64)[:, None, None, :]

    n_groups = rng.integers(1, MAX_GROUPS + 1, sizes.cases)
    offered = rng.permuted(np.tile(np.arange(N_SIGNATURES), (sizes.cases, 1)), axis=1)[
        :, :MAX_GROUPS
    ]
    of_group = (rng.random(shape) * n_groups[:, None]).astype(np.int64)
    sign = np.take_along_axis(offered, of_group, axis=1)
    chunk = sign + N_SIGNATURES * rng.integers(0, sizes.chunks // N_SIGNATURES, shape)
    start = rng.uniform(0.3, 1.1, (sizes.cases, 1))
    l2 = np.sort(start + rng.uniform(0.0, 1.0, shape) ** 1.5 * (1.3 - start), axis=1)
    rank = (np.arange(sizes.hits) + rng.normal(0.0, 6.0, shape)).argsort(axis=1).argsort(axis=1)
    raw = np.sort(rng.normal(-3.0, 1.5, shape), axis=1)[:, ::-1]
    reranked = rank < N_RERANKED
    s_raw = np.where(reranked, np.take_along_axis(raw, rank, axis=1), np.nan)
    by_sign = rng.uniform(0.05, 0.7, (sizes.cases, N_SIGNATURES))
    sig_sim = np.take_along_axis(by_sign, sign, axis=1)
    absent = (
        np.arange(sizes.hits)
        >= np.where(
            rng.random(sizes.cases) < 0.02, rng.integers(0, sizes.hits, sizes.cases), sizes.hits
        )[:, None]
    )

    def hit_values(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return stored(np.where(absent, np.nan, values))

    return Hits(
        chunk=np.where(absent, -1, chunk).astype(np.int32)[:, None, None, :],
        rank=np.where(
            absent, -1, np.where(absent, sizes.hits, rank).argsort(axis=1).argsort(axis=1)
        ).astype(np.int32)[:, None, None, :],
        l2=hit_values(l2),
        cosine=hit_values(1.0 - l2 / 2.0),
        s_hybrid=hit_values(
            np.sort(rng.random(shape), axis=1)[:, ::-1] * rng.uniform(0.2, 1.0, (sizes.cases, 1))
        ),
        s_rerank=hit_values(1.0 / (1.0 + np.exp(-s_raw))),
        s_raw=hit_values(s_raw),
        anchor_sim=hit_values(rng.uniform(0.05, 0.7, shape)),
        sig_sim=hit_values(sig_sim),
        sig_sim_strict=hit_values(sig_sim),
        n_reranked=np.full((sizes.cases, 1, 1), N_RERANKED, dtype=np.int32),
    )


def synthetic_cases(
    hits: Hits, chunks: Sequence[Chunk], rng: np.random.Generator
) -> tuple[Case, ...]:
    """Cases of all three labels.

    The answerable ones expect a source or a page among their first hits.
    """
    cases = []
    for q, row in enumerate(hits.chunk[:, 0, 0, :8]):
        status = ("ok", "ok", "ok", "refuse", "ambiguous")[q % 5]
        named = [
            ENTITIES[i]
            for i in rng.integers(0, len(ENTITIES), (0, 0, 1, 1, 2)[int(rng.integers(5))])
        ]
        lead = ("", "", "", "compare", "overall", "explain", "overview of section 3,")[
            int(rng.integers(7))
        ]
        wanted = chunks[int(row[rng.integers(len(row))])]
        spec = wanted.file_name if rng.random() < 0.5 else f"{wanted.file_name}#{wanted.page}"
        expected = (spec,) if status != "refuse" and rng.random() < 0.8 else ()
        any_of = rng.random() < 0.3
        cases.append(
            Case(
                id=f"q{q}",
                query=" ".join([lead, *rng.choice(WORDS, 4), *named]).strip(),
                expect_status=status,
                expect_sources=() if any_of else expected,
                expect_sources_any=expected if any_of else (),
                selected_sources=(wanted.source,) if rng.random() < 0.2 else (),
            )
        )
    return tuple(cases)


def synthetic_trace(sizes: Sizes, seed: int = 7) -> Trace:
    """Trace in which every gate and rule decides some case."""
    rng = np.random.default_rng(seed)
    chunks = synthetic_chunks(sizes.chunks, rng)
    hits = synthetic_hits(sizes, rng)
    meta = {"fingerprint": f"synthetic-{seed}", "corpus": "synthetic"}
    return Trace(synthetic_cases(hits, chunks, rng), chunks, ("hybrid",), hits, meta=meta)


def random_policies(n: int, seed: int = 8) -> list[Policy]:
    """Policies with every continuous threshold at random, all gates and rules on, one structure."""
    rng = np.random.default_rng(seed)
    base = Policy.from_mapping({"patterns": PATTERNS})
    ranges = {
        "l2.max_l2": (0.5, 1.2),
        "l2.soft_max_l2": (0.5, 1.3),
        "gap.min_gap": (0.0, 0.1),
        "similarity.min_similarity": (0.4, 0.8),
        "confidence.tau_default": (0.0, 90.0),
        "confidence.tau_explicit": (0.0, 90.0),
        "confidence.blend": (0.0, 1.0),
        "resolver.min_group_gap": (0.0, 0.05),
        "resolver.min_sig_sim": (0.0, 0.7),
        "resolver.min_sig_sim_gap": (0.0, 0.3),
        "resolver.min_anchor_sim": (0.0, 0.7),
        "resolver.min_anchor_sim_gap": (0.0, 0.3),
    }

    def drawn() -> Iterator[Any]:
        for path, (low, high) in ranges.items():
            yield path
            yield float(rng.uniform(low, high))
        yield "density.min_keep"
        yield int(rng.integers(1, 7))
        for path in ("resolver.overview_entities_lift", "resolver.require_full_entity_coverage"):
            yield path
            yield bool(rng.random() < 0.5)

    return [base.replace(*drawn()) for _ in range(n)]


def own_signals(
    trace: Trace, policies: Sequence[Policy], seed: int = 10
) -> tuple[Trace, list[Policy]]:
    """The trace with user signals, one case in fifty without, and policies, each randomly bounded.

    Each policy has a bound on each signal, drawn at random.

    The bounds let nine in ten cases pass on average, so that the gates behind them decide too.
    """
    rng, names = np.random.default_rng(seed), [f"own_{number}" for number in range(OWN_SIGNALS)]
    for name in names:
        values = np.where(rng.random(len(trace)) < 0.02, np.nan, rng.random(len(trace)))
        trace = trace.with_signal(name, values, higher="surer", unit="probability")
    gated = [
        policy.replace(
            "signals",
            {name: {"min": float(rng.uniform(0.0, 0.2)), "on_fire": "refuse"} for name in names},
        )
        for policy in policies
    ]
    return trace, gated


def cost_policies(trace: Trace, n: int, seed: int = 9) -> list[Policy]:
    """Policies that decide by one model fitted on a few cases, and random costs (rule S2.17)."""
    rng = np.random.default_rng(seed)
    some = trace.subset(range(min(FITTED_ON, len(trace))))
    fitted = fit_decision(some, Policy.from_mapping({"patterns": PATTERNS}), signals=MODEL)
    paths = ("decision.ratio", "decision.costs.ok.refused", "decision.costs.refuse.asked_wrong")
    return [
        fitted.replace(*(item for path in paths for item in (path, float(rng.uniform(0.1, 3.0)))))
        for _ in range(n)
    ]
