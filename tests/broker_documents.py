"""Some bundled documents by their first pages, and a policy whose gates pass their questions."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from live_worlds import SMALL, WordEncoder, stand_ins
from raglab.live import retriever
from raglab.live.system import System, build_index
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import Policy
from raglab.values import Corpus
from trades import BROKER

# page 1 is its body, and names the insurer
FRENCH = "vauban-habitation-conditions-particulieres-2024.md"
ENGLISH = "castellan-proliability-schedule-2024.md"  # so is this one's
COVER = "acme-premier-home-schedule-2024.md"  # page 1 is a cover sheet
RENEWAL = "acme-premier-home-endorsement-2025.md"
WORDING = "meridian-cargoshield-contract-2025.md"
ROLES = "northmark-fleetguard-schedule-2024.md"
FILES = (FRENCH, ENGLISH, COVER, RENEWAL, WORDING, ROLES)
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
QUI, WHO = "Qui est l'assureur ?", "Who is the insurer?"
GATES_OFF: dict[str, Any] = {
    name: {"enabled": False} for name in ("l2", "similarity", "gap", "confidence")
}
OPEN: dict[str, Any] = {
    **GATES_OFF,
    "pack": str(BROKER / "pack"),
    "patterns": {"deny": [r"\bweather\b"]},
}


@contextmanager
def system_over(chunks, folder, **more):
    """System that clarifies over passages, whose encoders are there as long as it is."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stand_ins(WordEncoder()).items():
            patch.setattr(retriever, name, value)
        build_index(Corpus("some", tuple(chunks)), folder, arms=("hybrid",), cache=None, **SMALL)
        policy = Policy.from_mapping(GATES_OFF)
        yield System.open(folder, **{"policy": policy, "cache": False, "clarify": True, **more})


def index_of(files, folder):
    """Folder of an index over bundled documents, whose encoders are there as long as it is."""
    chunks = [one for one in load_corpus(BROKER).chunks if one.file_name in files]
    with system_over(chunks, folder, audit=False, clarify=False):
        yield folder


@cache
def broker():
    """Four documents of the bundled set, and questions of it."""
    whole = load_corpus(BROKER)
    named = tuple(dict.fromkeys(chunk.source for chunk in whole.chunks))[:4]
    corpus = Corpus("part", tuple(chunk for chunk in whole.chunks if chunk.source in named))
    asked = [case for case in load_cases(BROKER) if not case.selected_sources][::40]
    return corpus, tuple(asked)
