"""Index folders and caches that somebody altered.

The same answer or a clear error, never another answer.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import warnings
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest

from fuzz.mutation import WORDS, json_bytes, mutated_bytes, mutated_text, mutated_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.shop import QUESTIONS, asked_index, words_for_models
from labelled import free_policy
from raglab.live.ask import ask
from raglab.live.index_folder import read_index
from raglab.live.system import System
from raglab.words.canonical import canonical_json, digest

CACHES = ("cache/answers.sqlite", "cache/strategies.sqlite", "embeddings.sqlite")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An index that was asked, with its caches and logs."""
    place = tmp_path_factory.mktemp("index") / "i"
    with words_for_models(place.parent / "kept"):
        asked_index(place)
        yield place


def signed(head):
    """Content of an index.json with the digest of its fields, as made by someone who knows how."""
    if not isinstance(head, dict):
        return json_bytes(head)
    stated = {name: value for name, value in head.items() if name != "digest"}
    with suppress(ValueError, TypeError, RecursionError):
        return json_bytes(stated | {"digest": digest(canonical_json(stated, ensure_ascii=True))})
    return json_bytes(head)


def spoil_text(rng, place):
    """Change index.json or the corpus file; how."""
    (corpus,) = place.glob("corpus-*.jsonl")
    path = pick(rng, (place / "index.json", corpus))
    raw, kind = path.read_bytes(), rng.random()
    if path.name == "index.json" and kind < 0.6:
        changed = mutated_value(rng, json.loads(raw))
        path.write_bytes(signed(changed) if kind < 0.3 else json_bytes(changed))
        return f"index.json: {shown(changed, 500)}"
    if kind < 0.3:
        lines = [json.loads(line) for line in raw.decode().splitlines()]
        changed = mutated_value(rng, lines)
        rows = changed if isinstance(changed, list) else [changed]
        path.write_bytes(b"\n".join(map(json_bytes, rows)))
        return f"{path.name}: {shown(changed, 300)}"
    if kind < 0.75:
        path.write_bytes(mutated_text(rng, raw.decode()).encode("utf-8", "surrogatepass"))
    else:
        path.write_bytes(mutated_bytes(rng, raw))
    return f"{path.name}: {shown(path.read_bytes(), 300)}"


def spoil_cache(rng, place):
    """Change a cache by its cells, its tables, its bytes, or what stands beside it; how."""
    name, kind = str(pick(rng, CACHES)), rng.random()
    path = place / name
    raw = path.read_bytes()
    if kind < 0.5:
        told = []
        with closing(sqlite3.connect(path)) as link:
            tables = [
                row[0]
                for row in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            table = pick(rng, sorted(tables))
            columns = [row[1] for row in link.execute(f"PRAGMA table_info('{table}')")]
            column, other = pick(rng, columns), pick(rng, columns)
            of = f'UPDATE "{table}" SET "{column}"'
            values = link.execute(f'SELECT "{column}" FROM "{table}"').fetchall()
            statements: list[tuple[str, tuple[Any, ...]]] = [
                (
                    f"{of} = ?",
                    (
                        pick(
                            rng,
                            (
                                None,
                                0,
                                -1,
                                2**63 - 1,
                                1e308,
                                "x" * 100,
                                b"x",
                                rng.bytes(40),
                                "\x1b[2J",
                            ),
                        ),
                    ),
                ),
                (f'{of} = "{other}"', ()),
                (f'{of} = (SELECT "{column}" FROM "{table}" ORDER BY rowid DESC LIMIT 1)', ()),
                (f'DELETE FROM "{table}"', ()),
                (f'DROP TABLE "{table}"', ()),
                (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"', ()),
                (
                    (
                        f'CREATE TRIGGER trap AFTER INSERT ON "{table}" BEGIN DELETE FROM '
                        f'"{table}"; '
                        "END"
                    ),
                    (),
                ),
            ]
            if values and isinstance(values[0][0], bytes | str) and rng.random() < 0.5:
                held = values[int(rng.integers(len(values)))][0]
                changed = mutated_bytes(
                    rng, held if isinstance(held, bytes) else str(held).encode()
                )
                same = changed if isinstance(held, bytes) else changed.decode("utf-8", "replace")
                statements = [(f'{of} = ? WHERE "{column}" = ?', (same, held))]
            statement, more = pick(rng, statements)
            with suppress(sqlite3.Error):
                link.execute(statement, more)
                told.append(f"{statement} {shown(more, 200)}")
            link.commit()
        return f"{name}: {told}"
    if kind < 0.8:
        path.write_bytes(mutated_bytes(rng, raw))
        return f"{name}: bytes"
    if kind < 0.88:
        end = pick(rng, ("-wal", "-shm", "-journal"))
        (place / f"{name}{end}").write_bytes(pick(rng, (b"", rng.bytes(5_000), raw[:8192])))
        return f"{name}{end}"
    if kind < 0.95:
        path.write_bytes((place / pick(rng, CACHES)).read_bytes())
        return f"{name}: another cache"
    path.unlink()
    pick(
        rng,
        (
            path.mkdir,
            lambda: path.symlink_to(place / "index.json"),
            lambda: path.write_text(str(WORDS[30])),
        ),
    )()
    return f"{name}: a folder, a link, or text"


def fresh(whole, place):
    """The index as it was, in a place."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)


def test_a_spoilt_index_is_the_same_or_refused(whole, tmp_path):
    """index.json and the corpus, by value, by line and by byte.

    By somebody too who knows how the digest is made.
    """
    place = tmp_path / "i"
    sound = read_index(whole)

    def check(found):
        same = (found.corpus, found.settings, found.head.pack) == (
            sound.corpus,
            sound.settings,
            sound.head.pack,
        )
        return "" if same else f"another index: {shown(found, 200)}"

    def draw(rng):
        place.mkdir(exist_ok=True)
        for file in place.iterdir():
            file.unlink()
        for file in (whole / "index.json", *whole.glob("corpus-*.jsonl")):
            shutil.copyfile(file, place / file.name)
        return Trial(spoil_text(rng, place), partial(read_index, place), check)

    failures = fuzz("index: content", draw, tmp_path, -(-CASES // 4))
    assert not failures, report(failures)


def answers(place):
    """What a system over the index says to two questions, one of them from the caches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = System.open(place, policy=free_policy(), arm="hybrid")
        try:
            said = [ask(question, system=system) for question in QUESTIONS[:2]]
            return [
                [one[name] for name in ("answer", "status", "sources", "refusal_reason")]
                for one in said
            ]
        finally:
            for held in (system.audit, system.caches):
                if held is not None:
                    held.close()


def test_a_spoilt_folder_answers_as_ever_or_not(whole, tmp_path):
    """Caches, embeddings, index and corpus.

    A fiftieth of the cases, since each opens the whole system.
    """
    place, kept = tmp_path / "i", tmp_path / "kept"
    fresh(whole, kept)
    sound = answers(kept)  # and the answers of this arm are in the caches from here on
    assert answers(kept) == sound

    def draw(rng):
        fresh(kept, place)
        what = spoil_cache(rng, place) if rng.random() < 0.9 else spoil_text(rng, place)
        return Trial(
            what,
            partial(answers, place),
            lambda said: "" if said == sound else f"other answers: {said}",
        )

    failures = fuzz("index: answers", draw, tmp_path, -(-CASES // 50))
    assert not failures, report(failures)
