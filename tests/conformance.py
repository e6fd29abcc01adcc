"""One conformance case through the public primitives (rule S3.8)."""

from __future__ import annotations

import numpy as np

from raglab import resolver
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.values import Case, Chunk, Hits, Status, TraceData

NO_PAGE = "n/a"


def decide_case(case, patterns):
    """Decide one case.

    Returns `{status, stage, docs, options, refusal_reason}` in the shape of `expect`.
    """
    said, order = _decide(case, patterns)
    status = Status(int(said.status[0]))
    stage = said.stage(0)
    kind = {"deny": "ood", "allow": "ood", "empty_query": "ood", "coverage": "coverage"}.get(
        stage, "retrieval"
    )
    return {
        "status": status.name,
        "stage": kind,
        "docs": [order[place] for place in said.places(0)],
        "options": [_shown(option, order) for option in said.options(case["id"])],
        "refusal_reason": _reason(said, kind, stage) if status is Status.refuse else None,
    }


def select_case(case, patterns, selected_option):
    """Choose an option of an ambiguous case; returns `{status, docs, refusal_reason}`."""
    said, order = _decide(case, patterns)
    try:
        option = said.select(case["id"], selected_option)
    except KeyError as error:
        return {"status": "refuse", "docs": [], "refusal_reason": error.args[0]}
    return {
        "status": "ok",
        "docs": [order[chunk] for chunk in _hits_of(said, option.chunks)],
        "refusal_reason": None,
    }


def _decide(case, patterns):
    hits = case["hits"]
    order = sorted(range(len(hits)), key=lambda place: hits[place]["l2"])
    return decide(_trace(case, [hits[place] for place in order]), _policy(case, patterns)), order


def _hits_of(said, chunks):
    row = said.trace.hits.chunk[0, 0, 0].tolist()
    return [row.index(chunk) for chunk in chunks]


def _shown(option, order):
    pages = [[name, NO_PAGE if page == NO_PAGE else int(page)] for name, page in option.sources]
    pages.sort(key=lambda pair: (pair[0], str(pair[1])))
    return {
        "option_id": option.option_id,
        "docs": [order[chunk] for chunk in option.chunks],
        "sources": pages,
        "best_l2": option.best_l2,
    }


def _reason(said, kind, stage):
    if kind == "ood":
        return "Empty or invalid query" if stage == "empty_query" else "Out of domain"
    if kind == "coverage":
        return "Missing document coverage for: " + ", ".join(said.lacking(0))
    return "No relevant documents found"


def _policy(case, patterns):
    gate, rules = case["gate"], case["ambiguity"]
    return PolicyData.from_mapping(
        {
            "chosen": {"final_k": gate["final_k"], "order": "l2"},
            "l2": {"max_l2": gate["max_l2"], "soft_max_l2": gate["soft_max_l2"]},
            "density": {"min_keep": gate["min_keep"]},
            "gap": {"min_gap": gate["min_gap"]},
            "similarity": {"enabled": False},
            "confidence": {"enabled": False},
            "resolver": {
                "strict": rules["strict_sig"],
                "overview": rules["keep_ambiguous_for_generic_queries"],
                "overview_entities_lift": False,
                "entity_extractor": rules["entity_extractor"],
                "entities": rules["enable_entity_resolve"],
                "require_full_entity_coverage": rules["require_full_entity_coverage"],
                "min_group_gap": rules["min_group_gap"],
                "signature": rules["enable_sig_tiebreak"],
                "min_sig_sim": rules["min_sig_sim"],
                "min_sig_sim_gap": rules["min_sig_sim_gap"],
                "anchor": rules["enable_anchor_tiebreak"],
                "min_anchor_sim": rules["min_anchor_sim"],
                "min_anchor_sim_gap": rules["min_anchor_sim_gap"],
                "max_options": rules["max_options"],
                "document_identity": "file_name",
            },
            "patterns": dict(patterns),
        }
    )


def _trace(case, hits):
    chunks = tuple(
        Chunk(
            chunk_id=str(place),
            text=hit["text"],
            source=hit["source"],
            page=hit["page"],
            tags={key: value for key, value in hit["tags"].items() if value is not None},
            entities=tuple(hit["entities"]),
        )
        for place, hit in enumerate(hits)
    )
    strict = case["ambiguity"]["strict_sig"]
    texts = [
        resolver.rendered(resolver.signature(chunk.tags, chunk.file_name, strict=strict))
        for chunk in chunks
    ]

    width = max(1, len(hits))

    def row(values):
        padded = values + [np.nan] * (width - len(values))
        return np.array(padded, dtype=np.float64).reshape(1, 1, 1, -1)

    l2 = row([hit["l2"] for hit in hits])
    sig_sim = row([case["signature_similarity"].get(text, np.nan) for text in texts])
    ranks = np.array([*range(len(hits)), *([-1] * (width - len(hits)))], dtype=np.int32).reshape(
        1, 1, 1, -1
    )
    nothing = np.full((1, 1, 1, width), np.nan)
    return TraceData(
        cases=(Case(case["id"], case["query"], "ok"),),
        chunks=chunks,
        arms=("hybrid",),
        hits=Hits(
            chunk=ranks,
            rank=ranks,
            l2=l2,
            cosine=1.0 - l2 / 2.0,
            s_hybrid=nothing,
            s_rerank=nothing,
            s_raw=nothing,
            anchor_sim=row([hit["anchor_similarity"] for hit in hits]),
            sig_sim=sig_sim,
            sig_sim_strict=sig_sim,
            n_reranked=np.zeros((1, 1, 1), dtype=np.int32),
        ),
    )
