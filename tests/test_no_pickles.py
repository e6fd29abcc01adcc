"""Nothing that raglab reads runs.

Every file of every folder is replaced by pickles that would leave a mark.
"""

from __future__ import annotations

import ast
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

import raglab
from generators import Fixed
from hostile import diskcache_rows, pickles
from live_worlds import CASES, CORPUS, SMALL
from raglab.lab.study import tune
from raglab.lab.study_journal import STUDY_FILE
from raglab.lab.tracking import track_run
from raglab.live.ask import ask
from raglab.live.system import System, build_index
from raglab.live.trace_building import build_trace
from raglab.retrieval.dense import EmbeddingCache, default_cache
from raglab.store.files import InputError
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from study_worlds import study_world

ROOT = Path(raglab.__file__).parents[1]
SOURCES = sorted([*(ROOT / "raglab").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")])
FREE: dict[str, Any] = {
    name: {"enabled": False} for name in ("l2", "similarity", "gap", "support", "confidence")
}
UNPICKLERS = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "diskcache",
    "jsonpickle",
}
LOADERS = {  # what reads pickles, and where
    ("torch", "load"),
    ("joblib", "load"),
    ("pandas", "read_pickle"),
    ("pd", "read_pickle"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("yaml", "load_all"),
}
SAFE_YAML = {"_YAML_LOADER", "_StrictYaml", "BaseLoader", "SafeLoader", "CSafeLoader"}


class TestSources:
    """What stands in the code."""

    @pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
    def test_nothing_unpickles_or_evaluates(self, path):
        """No pickle, no `eval` or `exec`; arrays without objects; YAML of safe loaders alone."""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else [one.name for one in node.names]
                )
                assert not {name.split(".")[0] for name in names} & UNPICKLERS, (
                    f"line {node.lineno}"
                )
            if isinstance(node, ast.Call):
                _check_call(node)

    def test_the_loaders_of_yaml_are_safe(self):
        """Both that have a name of their own make plain values alone."""
        from raglab.store.strict_yaml import _StrictYaml
        from raglab.words.languages import _YAML_LOADER

        assert _YAML_LOADER in {yaml.SafeLoader, getattr(yaml, "CSafeLoader", None)}
        assert issubclass(_StrictYaml, yaml.SafeLoader)
        for loader in (_YAML_LOADER, _StrictYaml):
            with pytest.raises(yaml.YAMLError):
                # that is what is tested
                yaml.load("!!python/object/apply:os.getcwd []", loader)  # noqa: S506


def _check_call(node):
    called, line = node.func, f"line {node.lineno}"
    if isinstance(called, ast.Name) and called.id == "_language":  # which passes its loader on
        assert ast.unparse(node.args[2]).removeprefix("yaml.") in SAFE_YAML, line
    if isinstance(called, ast.Name):
        assert called.id not in {"eval", "exec", "compile", "__import__"}, line
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return
    owner, name = called.value.id, called.attr
    assert (owner, name) not in LOADERS, line
    keywords = {one.arg: one.value for one in node.keywords}
    if (owner, name) in {("np", "load"), ("numpy", "load")}:
        allowed = keywords.get("allow_pickle")
        assert isinstance(allowed, ast.Constant), line
        assert allowed.value is False, line
    if (owner, name) in {("yaml", "load"), ("yaml", "compose")}:
        loader = keywords.get("Loader", node.args[1] if len(node.args) > 1 else None)
        told = (
            loader.id
            if isinstance(loader, ast.Name)
            else loader.attr
            if isinstance(loader, ast.Attribute)
            else ""
        )
        assert told in SAFE_YAML | {"loader"}, line


def spoilt(folder, marker):
    """Each file of a folder replaced in turn by a pickle of two protocols and by rows with them."""
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        content = path.read_bytes()
        bombs = pickles(marker)
        for bomb in (bombs[0], bombs[-1]):
            path.write_bytes(bomb)
            yield path
        for spoil in (diskcache_rows, _bombs_in_every_row) if path.suffix == ".sqlite" else ():
            path.write_bytes(content)
            spoil(path, bombs[-1])
            yield path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        for rest in folder.rglob("*.damaged"):
            rest.unlink()


def _bombs_in_every_row(path, bomb):
    """Put a pickle into every column of bytes or text but keys and names."""
    with sqlite3.connect(path) as link:
        for (table,) in link.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            for column in link.execute(f"PRAGMA table_info({table})").fetchall():
                if column[1] in {"value", "body", "state", "sums", "digest"}:
                    # of a test's own file
                    link.execute(f"UPDATE {table} SET {column[1]} = ?", (bomb,))


def outcome(work):
    """What some work gives, or the class of its refusal.

    Anything but that is an error of the test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return work()
        except ValueError as error:
            told = str(error)
    assert "\n" not in told
    return InputError


@pytest.fixture
def marker(tmp_path):
    """Return a file that must not appear."""
    yield tmp_path / "marker"
    assert not (tmp_path / "marker").exists()


@pytest.mark.usefixtures("encoder")
def test_an_index(tmp_path, marker, monkeypatch):
    """With its caches and logs: the question is answered as ever, or refused in one line."""
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "own"))
    build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)
    policy = Policy.from_mapping(FREE | {"strategy": {"arm": "bandit"}})

    def answer():
        system = System.open(tmp_path / "i", policy=policy, generator=Fixed())
        try:
            return ask("What is the motor excess?", system=system)["answer"]
        finally:
            for one in (
                system.audit,
                system.caches,
                system.online.log if system.online is not None else None,
            ):
                if one is not None:
                    one.close()

    wanted, seen = answer(), set()
    for path in spoilt(tmp_path / "i", marker):
        said = outcome(answer)
        assert said in (wanted, InputError), path
        seen.add((path.suffix, said is InputError))
    assert {(".sqlite", False), (".json", True), (".jsonl", True)} <= seen


@pytest.mark.usefixtures("encoder")
def test_the_users_cache(tmp_path, marker, monkeypatch):
    """The folder RAGLAB_CACHE: indexes are built as without it."""
    monkeypatch.setenv("RAGLAB_CACHE", str(tmp_path / "own"))

    build_index(CORPUS, tmp_path / "i", cache=None, **SMALL)

    def build():
        System.open(tmp_path / "i", generator=Fixed(), audit=False)
        return build_trace(CORPUS, CASES[:2], **SMALL).fingerprint

    wanted = build()
    assert {path.name for path in (tmp_path / "own").iterdir()} == {
        "cache.key",
        default_cache().path.name,
        "documents",
    }
    for _ in spoilt(tmp_path / "own", marker):
        assert outcome(build) == wanted


@pytest.mark.usefixtures("encoder")
def test_a_trace_and_its_parts(tmp_path, marker, monkeypatch):
    """The trace is refused, as its latencies are, and damaged parts are retrieved again."""
    place = tmp_path / "t" / "trace.parquet"
    place.parent.mkdir()
    cache = EmbeddingCache(tmp_path / "e.sqlite")

    def build():
        return build_trace(CORPUS, CASES, out=place, cache=cache, batch_size=4, **SMALL).fingerprint

    def broken(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trace, "save", broken)
        with pytest.raises(KeyboardInterrupt):
            build()
    (parts,) = place.parent.glob("*.parts")
    assert len(list(parts.iterdir())) == 2
    wanted = None
    for _ in spoilt(parts, marker):
        with monkeypatch.context() as patch:
            patch.setattr(Trace, "save", lambda *_: None)
            patch.setattr("raglab.live.trace_building.shutil.rmtree", lambda *_, **__: None)
            made = outcome(build)
        wanted = made if wanted is None else wanted
        assert made == wanted
    assert build() == wanted
    for path in spoilt(place.parent, marker):
        said = outcome(lambda: Trace.load(place).fingerprint)
        assert said == InputError or (said == wanted and path != place)


@pytest.mark.usefixtures("quick_study")
def test_a_study(tmp_path, marker):
    """A damaged study is refused, and so is a damaged policy."""
    trace = study_world(40)

    def study():
        return tune(trace, trials=8, batch_size=4, storage=tmp_path / "study").policy.policy_id

    wanted, journal = study(), tmp_path / "study" / STUDY_FILE
    whole = journal.read_bytes()
    for bomb in pickles(marker):
        journal.write_bytes(bomb + b"\n" + whole)
        assert outcome(study) is InputError
    journal.write_bytes(whole)
    assert study() == wanted
    for bomb in pickles(marker):
        (tmp_path / "tuned.yaml").write_bytes(bomb)
        assert outcome(lambda: Policy.load(tmp_path / "tuned.yaml")) is InputError


def test_runs(tmp_path, marker):
    """A tracking database that is none is refused before MLflow opens it."""
    for bomb in pickles(marker):
        (tmp_path / "mlflow.db").write_bytes(bomb)
        with pytest.raises(InputError, match="the tracking database must be one of SQLite's"):
            track_run("run", "experiment", {}, [], {}, tmp_path)
