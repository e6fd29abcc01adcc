"""The learned column of page 1: body or cover sheet."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from raglab.answering.contents import FEATURES, page_features, page_kind
from raglab.packs import GENERIC, Pack
from raglab.values import Chunk
from trades import INSURANCE

ROOT = Path(__file__).resolve().parents[1]
BROKER = ROOT / "datasets" / "broker"
COVER = """Storm Cover — Policy Wording
Reference SC-W/2025. Keep this booklet with your schedule. Write to: PO Box 7, Leeds.

- Parties and definitions — page 1
- What is insured — page 2
- Exclusions — page 3
- Claims — page 4"""
BODY = (
    "Storm Cover > 1. What we insure\nThe insurer pays for loss of or damage to the home by storm, flood and fire, up "
    "to the limit in the schedule and less the excess that the policyholder has agreed to bear for each and every "
    "claim. The policyholder must tell us of a loss within thirty days, keep what was damaged until we have seen it, "
    "and may not admit liability to anybody; a claim that is made later is reduced by what the delay has cost us."
)


@cache
def experiment() -> ModuleType:
    """The experiment, loaded from its file."""
    spec = importlib.util.spec_from_file_location("experiment_page_kind", ROOT / "experiments" / "page_kind.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored() -> dict[str, object]:
    """The coefficients in the pack."""
    return INSURANCE.page_kind.model.model_dump(mode="json")


def leaves(tree: object) -> list[float]:
    """Numbers of nested mappings and lists, in order."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, list):
        return [leaf for part in tree for leaf in leaves(part)]
    return [float(tree)] if isinstance(tree, (int, float)) else []


def test_a_cover_sheet_and_a_body() -> None:
    """Invented pages of either kind are told apart, with a probability above a half."""
    cover, body = (page_kind([Chunk("a#1", text, "a.md", 1)], pack=INSURANCE) for text in (COVER, BODY))
    assert (cover.kind, body.kind) == ("coversheet", "body")
    assert 0.5 < cover.probability <= 1.0
    assert 0.5 <= body.probability <= 1.0


def test_the_features_by_hand() -> None:
    """Seven words in two sentences under one heading, a reference, no contents, one word of the contract."""
    found = page_features([Chunk("a#1", "A > B\nReference AB/1 applies. Read the claims.", "a.md", 1)], pack=INSURANCE)
    assert found.shape == (len(FEATURES),)
    assert found == pytest.approx([np.log(8), 1.0, 0.0, 3.5, 1.0, 100.0 / 7.0])


@pytest.mark.slow
@pytest.mark.parametrize(("pack", "right"), [(INSURANCE, 34), (GENERIC, 33)], ids=["insurance", "generic"])
def test_retraining_gives_the_stored_coefficients(pack: Pack, right: int) -> None:
    """To 1e-6, with the accuracy stated beside them."""
    pages = experiment().first_pages(BROKER)
    again = experiment().trained(pages, pack)
    assert leaves(again) == pytest.approx(leaves(pack.page_kind.model.model_dump(mode="json")), abs=1e-6)
    assert (again["documents"], again["coversheets"], again["left_out_right"]) == (36, 15, right)


def test_the_package_judges_as_the_experiment() -> None:
    """The numpy form agrees with the trained model on every document, and is right on at least 34 of 36."""
    right = 0
    for _, cover, chunks in experiment().first_pages(BROKER):
        kind = page_kind(chunks, pack=INSURANCE).kind
        assert (kind == "coversheet") == experiment().says_cover(stored(), page_features(chunks, pack=INSURANCE))
        right += (kind == "coversheet") == cover
    assert right >= 34


def test_tags_and_labels_are_not_read() -> None:
    """Only the text decides: without tags and printed labels the answer is the same."""
    for _, _, chunks in experiment().first_pages(BROKER):
        bare = [Chunk(chunk.chunk_id, chunk.text, chunk.source, 1) for chunk in chunks]
        assert page_kind(bare, pack=INSURANCE) == page_kind(chunks, pack=INSURANCE)


def test_no_page_is_refused() -> None:
    """Nothing to judge."""
    with pytest.raises(ValueError, match="at least one chunk"):
        page_kind([])


def test_only_numpy_is_needed() -> None:
    """Judging a page loads no scikit-learn."""
    code = (
        "import sys; from raglab.answering.contents import page_kind; from raglab.values import Chunk;"
        "page_kind([Chunk('a#1', 'The insurer pays.', 'a.md', 1)]); print('sklearn' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
