"""The sets of two more trades: as they were written, whole, and apart in their halves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import Policy

SETS = Path(__file__).parents[1] / "datasets"
TRADES = ("handbook", "devices")


def rows(trade, name):
    """Rows of a file of a set."""
    return [
        json.loads(line) for line in (SETS / trade / name).read_text(encoding="utf-8").splitlines()
    ]


def letters(text):
    """A text without blanks and emphasis."""
    return "".join(char for char in text if not char.isspace() and char not in "*\\")


@pytest.mark.parametrize("trade", TRADES)
class TestASetOfATrade:
    """What its README says of it."""

    def test_every_value_stands_on_its_page(self, trade):
        """As it is printed, but for blanks and emphasis."""
        pages: dict[tuple[str, int | None], str] = {}
        for chunk in load_corpus(SETS / trade).chunks:
            key = (chunk.file_name, chunk.page)
            pages[key] = pages.get(key, "") + letters(chunk.full_text)
        for row in rows(trade, "fields.jsonl"):
            if row["value"] is not None:
                assert letters(row["value"]) in pages[row["doc"], row["page"]], row

    def test_it_loads(self, trade):
        """Cases of every label, and the policy with its pack."""
        assert {case.expect_status for case in load_cases(SETS / trade)} == {
            "ok",
            "refuse",
            "ambiguous",
        }
        assert Policy.load(SETS / trade / "policy.yaml").pack.endswith("pack")


@pytest.mark.parametrize(
    "manifest", sorted(SETS.rglob("MANIFEST.sha256")), ids=lambda path: path.parent.name
)
def test_nothing_was_changed_after_it_was_written(manifest):
    """Every file of a set that was written blind has the digest that its writer stated."""
    stated = manifest.read_text(encoding="utf-8").splitlines()
    assert len(stated) > 12
    for line in stated:
        digest, name = line.split(maxsplit=1)
        path = manifest.parent / name.removeprefix("*").removeprefix("./")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("trade", TRADES)
@pytest.mark.parametrize("folder", ["sealed", "sealed_second"])
class TestSealed:
    """The sealed sets, read once each."""

    def test_no_document_of_theirs_was_practised_on(self, folder, trade):
        """No file of the sets that readers and models were made on has its name or its text."""
        folders = (SETS / trade / "documents", SETS / "practice" / trade / "documents")
        stated = SETS / folder / trade / "MANIFEST.sha256"
        assert len(stated.read_text(encoding="utf-8").splitlines()) > 16
        open_ones = [path for folder in folders for path in folder.glob("*.md")]
        sealed = list((SETS / folder / trade / "documents").glob("*.md"))
        assert len(sealed) >= 13
        assert not {path.name for path in sealed} & {path.name for path in open_ones}
        assert not {path.read_text(encoding="utf-8") for path in sealed} & {
            path.read_text(encoding="utf-8") for path in open_ones
        }
