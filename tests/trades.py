"""Packs that tests read with: the insurance pack of the bundled set."""

from __future__ import annotations

from pathlib import Path

from raglab.store.policies import load_pack

BROKER = Path(__file__).resolve().parents[1] / "datasets" / "broker"
INSURANCE = load_pack(BROKER / "pack")

LIBRARY = Path(__file__).parent / "data" / "library"
