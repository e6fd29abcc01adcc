"""Some bundled documents by their first pages, and a policy whose gates pass their questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from raglab.live import trace_building
from raglab.live.system import build_index
from raglab.store.loaders import load_cases, load_corpus
from raglab.values import Case, Corpus
from test_live_trace_building import SMALL, PairEncoder, WordEncoder

BROKER = Path(__file__).parents[1] / "datasets" / "broker"
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
OPEN: dict[str, Any] = {
    "pack": str(BROKER / "pack"),
    "l2": {"enabled": False},
    "similarity": {"enabled": False},
    "gap": {"enabled": False},
    "confidence": {"enabled": False},
    "patterns": {"deny": [r"\bweather\b"]},
}


def index_of(files: Sequence[str], folder: Path) -> Iterator[Path]:
    """Folder of an index over bundled documents, whose encoders are there as long as it is."""
    words = WordEncoder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_building, "load_encoder", lambda _, **__: words)
        patch.setattr(trace_building, "load_cross_encoder", lambda _: PairEncoder())
        patch.setattr(
            trace_building, "identifier_of", lambda name: "words" if name is None else name
        )
        chunks = tuple(one for one in load_corpus(BROKER).chunks if one.file_name in files)
        build_index(Corpus("some", chunks), folder, arms=("hybrid",), cache=None, **SMALL)
        yield folder


@cache
def broker() -> tuple[Corpus, tuple[Case, ...]]:
    """Four documents of the bundled set, and questions of it."""
    whole = load_corpus(BROKER)
    named = tuple(dict.fromkeys(chunk.source for chunk in whole.chunks))[:4]
    corpus = Corpus("part", tuple(chunk for chunk in whole.chunks if chunk.source in named))
    asked = [case for case in load_cases(BROKER) if not case.selected_sources][::40]
    return corpus, tuple(asked)
