"""Systems that clarify, over some of the bundled documents."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_documents import FILES, OPEN, index_of
from raglab.live.system import System
from raglab.store.policies import Policy


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of an index over some bundled documents, with the encoder of words."""
    yield from index_of(FILES, tmp_path_factory.mktemp("broker") / "index")


@pytest.fixture
def opened(tmp_path: Path, indexed: Path) -> Callable[..., System]:
    """Return what opens a system of its own that clarifies."""
    shutil.copytree(indexed, tmp_path / "index")

    def make(policy: dict[str, Any] | None = None, **more: Any) -> System:
        stated = Policy.from_mapping(OPEN | (policy or {}))
        return System.open(
            tmp_path / "index", **{"policy": stated, "cache": False, "clarify": True, **more}
        )

    return make
