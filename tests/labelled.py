"""Labelled traces for tests of certificates and of the fused gate.

Signals that know how likely a case is right.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np

from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import Case, Chunk, Hits

FREE: dict[str, Any] = {  # only similarity and confidence decide
    "chosen": {"final_k": 2, "order": "l2"},
    "l2": {"enabled": False},
    "gap": {"enabled": False},
    "coverage": {"enabled": False},
    "resolver": {"overview": False, "entities": False, "min_group_gap": 0.0},
}


def free_policy(**sections):
    """Published policy with only similarity and confidence gates, and what is stated on top."""
    return Policy.from_mapping(FREE | sections)


def labelled(
    seed,
    splits,
    *,
    wrong=None,
    refusable=0.5,
    steps=20,
    missing=0.0,
):
    """Trace with two hits a case.

    top-1 cosine, confidence and gap rise with the chance that a case is right.

    Args:
      splits: cases of each split; the name "" is none.
      wrong: chance of every case, whatever its signals.
      refusable: share of the wrong ones that are labelled refuse; of the others the evidence is
        missed.
      steps: levels of a signal on [0, 1], None for all.
      missing: share of cases without any hit.
    """
    rng = np.random.default_rng(seed)
    names = [name for name, size in splits.items() for _ in range(size)]
    n = len(names)
    sure = rng.random(n)
    right = rng.random(n) < (
        1.0 / (1.0 + np.exp(-(sure - 0.35) / 0.1)) if wrong is None else 1.0 - wrong
    )
    ok = right | (rng.random(n) >= refusable)
    cases = tuple(
        Case(
            id=f"q{row:04d}",
            query=f"question {seed} {row}",
            expect_status="ok" if ok[row] else "refuse",
            expect_sources=("guide.md" if right[row] else "other.md",) if ok[row] else (),
            split=names[row] or None,
        )
        for row in range(n)
    )

    def told(spread):
        value = np.clip(sure + rng.normal(0.0, spread, n), 0.0, 1.0)
        return value if steps is None else np.round(value * steps) / steps

    shape = (n, 1, 1, 2)
    hit = np.broadcast_to(rng.random(n)[:, None, None, None] >= missing, shape)
    top, rerank, gap = told(0.1), told(0.2), told(0.4)
    pair = {
        "l2": (0.25 + 0.0 * top, 0.25 + gap),
        "cosine": (top, top / 2.0),
        "s_hybrid": (told(0.3), 0.0 * top),
        "s_rerank": (rerank, rerank / 2.0),
        "s_raw": (rerank, rerank - 1.0),
        "anchor_sim": (told(0.3), 0.0 * top),
        "sig_sim": (0.0 * top, 0.0 * top),
        "sig_sim_strict": (0.0 * top, 0.0 * top),
    }
    floats = {
        name: np.where(hit, np.stack(both, axis=-1).reshape(shape), np.nan)
        for name, both in pair.items()
    }
    place = np.where(hit, np.arange(2), -1).astype(np.int32)
    reranked = np.where(hit[..., 0], 2, 0).astype(np.int32)
    chunks = (Chunk("0", "text", "guide.md", 1), Chunk("1", "more", "guide.md", 2))
    meta = {"fingerprint": f"made {seed}", "parameters": {"encoder": "none", "arms": ["hybrid"]}}
    return Trace(
        cases, chunks, ("hybrid",), Hits(place, place, **floats, n_reranked=reranked), None, meta
    )


def shuffled(trace, seed):
    """The same cases in another order."""
    return trace.subset(np.random.default_rng(seed).permutation(len(trace)))


def rows_of(trace, keep):
    """The cases where a mask holds."""
    return trace.subset(np.flatnonzero(keep))


def unsplit(trace):
    """The trace whose cases are of no split."""
    return replace(trace, cases=tuple(case._replace(split=None) for case in trace.cases))


def relabelled(trace, *splits):
    """The trace with all cases of these splits labelled refuse."""
    return replace(
        trace,
        cases=tuple(
            case._replace(expect_status="refuse", expect_sources=())
            if case.split in splits
            else case
            for case in trace.cases
        ),
    )


def noted(notes, *words):
    """Whether one of the notes has all of these words."""
    return any(all(word in note for word in words) for note in notes)


def unlabelled(trace, **extra):
    """The same, as traffic is: without labels; values of `extra` go round the cases."""
    cases = tuple(
        case._replace(
            expect_status=None,
            extra={name: values[row % len(values)] for name, values in extra.items()},
        )
        for row, case in enumerate(trace.cases)
    )
    return replace(trace, cases=cases)


LENIENT = free_policy(similarity={"min_similarity": 0.4})


def traffic(seed=3, n=200):
    """Requests without labels, and the label of each."""
    trace = labelled(seed, {"": n}, missing=0.05)
    return unlabelled(trace), {case.id: str(case.expect_status) for case in trace.cases}


def filled(sample, labels):
    """The sample as people fill it in."""
    return sample.assign(label=[labels[name] for name in sample["request_id"]])


def with_tenants(trace, sizes, strict, share=0.8):
    """The trace with a tenant a case.

    Of strict tenants a share of the cases labelled ok is to be refused.
    """
    rng = np.random.default_rng(5)
    names = np.repeat(list(sizes), list(sizes.values()))
    assert len(names) == len(trace)
    cases = []
    for case, name in zip(trace.cases, names.tolist(), strict=True):
        turned = name in strict and case.expect_status == "ok" and rng.random() < share
        stated = case._replace(expect_status="refuse", expect_sources=()) if turned else case
        cases.append(stated._replace(extra={"groups": {"tenant": name}} if name else {}))
    return replace(trace, cases=tuple(cases))


def status_alone(sizes, every=2):
    """Trace in which every so many cases state no sources."""
    trace = labelled(0, sizes)
    cases = tuple(
        case if row % every else case._replace(expect_sources=())
        for row, case in enumerate(trace.cases)
    )
    return dataclasses.replace(trace, cases=cases)


def status_alone_sentence(trace):
    """Headline that results on a trace must have, counted plainly."""
    count = sum(case.expect_status == "ok" and not case.expect_sources for case in trace.cases)
    assert count
    return f"{count} of {len(trace)} cases are scored by status alone"
