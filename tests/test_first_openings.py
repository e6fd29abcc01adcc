"""Several processes at one store: the first opening of it, and what each of them writes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial

import pytest

from processes import at_once
from raglab.lab.tracking import DATABASE_NAME, track_run
from raglab.lab.trial_search import open_study

PAIRS = [pytest.param(1, id="one"), pytest.param(20, id="twenty")]


def rows(file, query):
    """Rows of a database of SQLite."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("pairs", PAIRS)
def test_runs_of_two_notebooks_in_a_fresh_folder(tmp_path, pairs):
    """Both are tracked, in one experiment, and the store takes a third run."""
    import mlflow  # noqa: F401 - before the forks, so that they meet

    broken = []
    for pair in range(pairs):
        folder = tmp_path / str(pair)
        works = [
            partial(track_run, name, "study", {"n": name}, [("m", 1.0, 0)], {}, folder)
            for name in ("first", "second", "third")
        ]
        codes = at_once(works[:2]) + at_once(works[2:] if pair < 2 else [])
        file = folder / DATABASE_NAME
        runs = rows(file, "SELECT count(*) FROM runs WHERE status = 'FINISHED'")
        names = rows(file, "SELECT count(*) FROM experiments WHERE name = 'study'")
        if any(codes) or runs != [(len(codes),)] or names != [(1,)]:
            broken.append((pair, codes, runs, names))
    assert broken == []


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_one_study_of_two_processes(tmp_path, pairs, kind):
    """Both open it, and it states its settings once; of two settings one is refused."""
    broken = []
    for pair in range(pairs):
        place = tmp_path / str(pair)
        place.mkdir()
        storage = f"sqlite:///{place}/study.db" if kind == "sqlite" else str(place)
        codes = at_once([partial(open_study, storage, "s", {"seed": 1})] * 2)
        odd = at_once([partial(open_study, storage, "t", {"seed": seed}) for seed in "ab"])
        if any(codes) or sorted(odd) != [0, 1]:
            broken.append((pair, codes, odd))
    assert broken == []
