"""Coverage (algebra): entities that a question compares must each be in the chosen hits (S2.5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raglab.decision.evidence import CaseBatch, Entities
from raglab.decision.item_masks import full_masks, item_masks, positions
from raglab.policy import Structure
from raglab.values import PatternHits


def entity_requirements(hits_of: PatternHits, batch: CaseBatch, structure: Structure) -> Entities:
    """Entities each question names, which hits carry them, and which the chosen hits must cover.

    Source: rule S2.5.
    """
    depths, _ = batch.shape
    named = list(hits_of.query_entities) * depths
    carried = item_masks(named, positions(hits_of.chunk_entities), batch.keys.hit)
    n_entities = np.array([len(names) for names in named], dtype=np.int64)
    wanted = full_masks(n_entities, len(carried))
    must_cover = np.where(_needs_coverage(hits_of, n_entities, depths), wanted, 0)
    # Coverage is asked of every question; the extractor of the resolver is a switch of its own.
    if structure.entity_extractor:
        return Entities(carried, must_cover, wanted, carried)
    return Entities(carried, must_cover, np.zeros_like(wanted), np.zeros_like(carried))


def _needs_coverage(
    hits_of: PatternHits, n_entities: NDArray[np.int64], depths: int
) -> NDArray[np.bool_]:
    """Whether a question must have its entities covered.

    One that compares two, or a generic one that names one.
    """
    compares, generic = (np.tile(hits_of.counts[:, column] > 0, depths) for column in (4, 5))
    return (compares & (n_entities >= 2)) | (generic & (n_entities >= 1))
