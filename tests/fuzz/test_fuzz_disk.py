"""Every writer on a disk that is full, read-only or ends at any byte.

The old content or the new, and one line.
"""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest

from file_writers import WRITERS, Writer, contents
from fuzz.mutation import pick
from fuzz.outcomes import CASES, HalfWrittenError, Trial, fuzz, report
from hostile import no_file_longer
from labelled import free_policy
from look_files import take_look
from raglab.audit.log import AuditLog
from raglab.lab.looks import recorded_looks
from raglab.store.files import InputError
from raglab.store.log_tables import REPLIES

# may have brought a file whole before the one that failed
SEVERAL = {"report", "tables of an audit log"}
SLOW = {"report"}
OLD = ("none", "other", "same", "bytes", "a folder", "a link", "a link to nowhere", "no folder")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What each writer writes by itself, by number."""
    found: dict[str, dict[int, dict[str, bytes]]] = {}
    for writer in WRITERS:
        for number in (1, 2):
            # a batch of a study knows the name of its folder
            folder = tmp_path_factory.mktemp("whole") / "there"
            folder.mkdir()
            writer.write(number, folder / writer.file)
            found.setdefault(writer.name, {})[number] = contents(folder)
    return found


def prepared(rng, writer, folder, whole):
    """Make a folder with something in the place of the writer's file; what."""
    old = str(pick(rng, OLD))
    path = folder / writer.file
    if old == "no folder":
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text("a file in the place of the folder")
        return old
    folder.mkdir(parents=True)
    if old in {"other", "same"}:
        for name, raw in whole[1 if old == "other" else 2].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
    elif old == "bytes":
        path.write_bytes(rng.bytes(int(rng.integers(9_000))))
    elif old == "a folder":
        path.mkdir()
    elif old == "a link":
        (folder / "kept").write_bytes(b"kept")
        path.symlink_to("kept")
    elif old == "a link to nowhere":
        path.symlink_to("nowhere/at/all")
    return old


def written_or_whole(writer, folder, limits, new):
    """Write under a limit; what is wrong with what stands there then.

    Raises:
      HalfWrittenError: neither what was there, nor what the writer writes.
    """
    parts = folder.is_dir()
    before = contents(folder) if parts else {"": folder.read_bytes()}
    path = folder / writer.file
    try:
        with limits():
            writer.write(2, path)
    except InputError:
        after = contents(folder) if parts else {"": folder.read_bytes()}
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        if writer.name in SEVERAL:
            changed = {name for name in changed if after.get(name) != new.get(name)}
        if changed:
            msg = f"{sorted(changed)} after a refusal"
            raise HalfWrittenError(msg) from None
        raise
    after = contents(folder)
    wrong = [name for name, raw in new.items() if after.get(name) != raw]
    return f"another content of {wrong}" if wrong else ""


def by_size(rng, most):
    """Bytes at which a file may not grow: the first, the last, any, or past the end."""
    return int(
        pick(rng, (0, 1, most // 2, most - 1, most, 4096, int(rng.integers(most + 1)), 2 * most))
    )


def drawn_writer(rng):
    """A writer; a slow one seldom."""
    writer: Writer = pick(rng, WRITERS)
    return writer if writer.name not in SLOW or rng.random() < 0.1 else WRITERS[0]


def test_a_write_that_is_ended_at_any_byte(tmp_path, written):
    """The system ends the growth of files; whatever stood there. Half of the cases."""
    folder = tmp_path / "there"

    def draw(rng):
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.unlink(missing_ok=True)
        writer = drawn_writer(rng)
        whole = written[writer.name]
        old = prepared(rng, writer, folder, whole)
        size = by_size(rng, max(map(len, whole[2].values())))
        call = partial(written_or_whole, writer, folder, partial(no_file_longer, size), whole[2])
        return Trial(f"{writer.name} over {old}, ended at {size}", call, lambda wrong: wrong)

    failures = fuzz("disk: ended writes", draw, tmp_path, -(-CASES // 5))
    assert not failures, report(failures)


def test_a_log_that_finds_no_room(tmp_path):
    """Looks and audit events, ended at any byte.

    All that was acknowledged is there, and no part of more.
    """
    looks, audit = tmp_path / "looks.jsonl", tmp_path / "audit.sqlite"
    noted: list[str] = []
    replied: list[str] = []
    log = AuditLog(audit)
    log.opened("first", "what?", policy=free_policy(), fingerprint="f", models={})

    def note(number, size):
        with no_file_longer(size):
            take_look(looks, None, "cases", str(number), 0.1, again=True)
        noted.append(str(number))

    def ask(number, size):
        texts = [str(number), "what is it? " * 200]
        with no_file_longer(size), log.together():
            log.replied("first", texts[0])
            log.replied("first", texts[1])
        replied.extend(texts)

    def check(_):
        kept = list(recorded_looks(looks, "cases")) if looks.is_file() else []
        if kept != noted:
            return f"looks {kept[-3:]} where {noted[-3:]} were acknowledged"
        with log.log.reading() as entries:
            rows = list(entries.rows(REPLIES))
            numbers = [row["seq"] for row in rows]
            whole = numbers == list(range(4, entries.last + 1))  # policy, learner and request first
        texts = [row["reply"] for row in rows]
        return "" if whole and texts == replied else f"{len(texts)} replies, last {numbers[-3:]}"

    state = {"number": 0}

    def checked(call):
        try:
            call()
        except InputError:
            if wrong := check(None):
                raise HalfWrittenError(wrong) from None
            raise

    def draw(rng):
        state["number"] += 1
        number = state["number"]
        if rng.random() < 0.5:
            size = (looks.stat().st_size if looks.is_file() else 0) + int(rng.integers(90))
            return Trial(
                f"a look with {size}", partial(checked, partial(note, number, size)), check
            )
        beside = [
            audit.stat().st_size,
            *(file.stat().st_size for file in tmp_path.glob("audit.sqlite-wal")),
        ]
        size = max(beside) + int(rng.integers(-9_000, 18_000)) if rng.random() < 0.8 else 2**24
        return Trial(f"an event with {size}", partial(checked, partial(ask, number, size)), check)

    failures = fuzz("disk: logs", draw, None, -(-CASES // 20))
    log.close()
    assert not failures, report(failures)
    lines = looks.read_text().splitlines() if looks.is_file() else []
    assert [json.loads(line)["cases_hash"] for line in lines] == ["cases"] * len(noted)
