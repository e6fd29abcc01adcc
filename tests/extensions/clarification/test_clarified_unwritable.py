"""A log that cannot be written is refused where clarifications need it; see `test_live_unwritable`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile import remount, small_disk
from raglab.live.system import build_index
from raglab.store.files import InputError
from test_live_trace_building import CORPUS, SMALL, WordEncoder, encoder  # noqa: F401 - a fixture
from test_live_unwritable import opened

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path, encoder: WordEncoder) -> Iterator[Path]:  # noqa: F811 - the fixture
    """Return a disk of 2 MB with an index in the folder `i`."""
    del encoder
    with small_disk(tmp_path / "disk", "2m") as place:
        build_index(CORPUS, place / "i", cache=None, **SMALL)
        yield place


def test_the_log_that_clarifications_need(disk: Path) -> None:
    """Before any model is loaded."""
    remount(disk, "ro")
    with pytest.raises(InputError, match="must be writable where clarifications need it"):
        opened(disk, clarify=True)
