"""Systems that clarify, over some of the bundled documents."""

from __future__ import annotations

import shutil

import pytest

from broker_documents import FILES, OPEN, index_of
from live_worlds import WordEncoder, stand_ins
from raglab.live import retriever
from raglab.live.system import System
from raglab.store.policies import Policy


@pytest.fixture(scope="session")
def broker_index(tmp_path_factory):
    """Return the folder of an index over some bundled documents, built once."""
    (folder,) = index_of(FILES, tmp_path_factory.mktemp("broker") / "index")
    return folder


@pytest.fixture(scope="module")
def indexed(broker_index):
    """Return the folder of an index over some bundled documents, with the encoder of words."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stand_ins(WordEncoder()).items():
            patch.setattr(retriever, name, value)
        yield broker_index


@pytest.fixture
def opened(tmp_path, indexed):
    """Return what opens a system of its own that clarifies."""
    shutil.copytree(indexed, tmp_path / "index")

    def make(policy=None, **more):
        stated = Policy.from_mapping(OPEN | (policy or {}))
        return System.open(
            tmp_path / "index", **{"policy": stated, "cache": False, "clarify": True, **more}
        )

    return make
