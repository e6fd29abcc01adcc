"""Settings under mutated `.env` files and environments.

What is accepted is what was stated, all else is told.
"""

from __future__ import annotations

import os
import re
from functools import cache, partial

import pytest

from fuzz.mutation import VALUES, WORDS, mutated_bytes, mutated_text, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from raglab.live import settings as module
from raglab.live.settings import Settings

SECRET = "s3cr3t" + "pass"
STATED = {
    "RAGLAB_AUDIT_QUERY": "none",
    "RAGLAB_AUDIT_REQUIRED": "true",
    "RAGLAB_AUDIT_LOG": f"postgresql+psycopg://ann:{SECRET}@db/rag",
    "RAGLAB_CLARIFY_RULE": "posterior",
    "RAGLAB_BANDIT_POLICY": "ucb1",
}  # values that are not the defaults: one that is lost shows


@cache
def variables():
    """Every variable with its value in the module's first lines, except those of `STATED`."""
    lines = re.findall(r"^    (RAGLAB_\w+)=(\S*)", module.__doc__ or "", re.MULTILINE)
    return dict(lines) | STATED


def read(env_file):
    """All settings, and what is made of them; an error that shows a password is one of its own."""
    try:
        settings = Settings.read(env_file)
        for made in (
            lambda: settings.weights,
            lambda: settings.bandit(("a", "b")),
            lambda: settings.learner,
        ):
            made()
    except Exception as error:
        if SECRET in str(error):
            msg = f"a password is shown: {error}"
            raise AssertionError(msg) from error
        raise
    return settings


def lost(text, found):
    """A statement that stands in the text, outside a comment, and does not hold."""
    held = {
        "RAGLAB_AUDIT_QUERY": found.audit_query,
        "RAGLAB_CLARIFY_RULE": found.clarify_rule,
        "RAGLAB_BANDIT_POLICY": found.bandit_policy,
    }
    if SECRET in repr(found):
        return "a password is shown"
    for name, value in held.items():
        said = [
            line
            for line in re.split(r"[\r\n]+", text)
            if name in line and not line.lstrip().startswith("#")
        ]
        # of nothing what is published holds
        lines = [line for line in said if not line.rstrip(" \"'").endswith("=")]
        if lines and not any(value in line for line in lines):
            return f"{name} is {value} where the file says {shown(lines)}"
    return ""


def with_environment(changes, call):
    """What a call gives where these variables are set, and no other of ours."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("RAGLAB_")}
    try:
        os.environ.update(changes)
        return call()
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """Without a `.env` of the person who runs the tests."""
    monkeypatch.chdir(tmp_path)


def test_a_mutated_file_states_what_holds_or_is_told(tmp_path):
    """Lines and bytes of a `.env` with every variable are changed."""
    whole = "\n".join(f"{name}={value}" for name, value in variables().items()) + "\n"
    path = tmp_path / "settings.env"

    def draw(rng):
        text = mutated_text(rng, whole).encode("utf-8", "surrogatepass")
        raw = text if rng.random() < 0.6 else mutated_bytes(rng, whole.encode())
        path.write_bytes(raw)
        stated = raw.decode("utf-8", "replace")
        return Trial(
            shown(raw, 900), lambda: with_environment({}, lambda: read(path)), partial(lost, stated)
        )

    failures = fuzz("settings: file", draw, tmp_path, -(-CASES // 8))
    assert not failures, report(failures)


def test_a_mutated_environment_states_what_holds_or_is_told():
    """Values and names of some variables are changed."""
    names = list(variables())

    def draw(rng):
        changes = dict(STATED)
        for _ in range(int(rng.integers(1, 4))):
            name = pick(rng, names)
            if rng.random() < 0.15:
                name = pick(rng, (name + "S", name.replace("_", "", 1), name.lower(), name[:-1]))
            value = pick(rng, WORDS) if rng.random() < 0.6 else str(pick(rng, VALUES))[:400]
            if "\0" not in value:
                changes[name] = value.encode("utf-8", "replace").decode()
        text = "\n".join(f"{name}={value}" for name, value in changes.items())
        return Trial(
            shown(changes, 600),
            lambda: with_environment(changes, lambda: read(None)),
            partial(lost, text),
        )

    failures = fuzz("settings: environment", draw, None, -(-CASES // 8))
    assert not failures, report(failures)


def test_what_is_stated_holds(tmp_path):
    """Without a change every variable is read."""
    whole = "\n".join(f"{name}={value}" for name, value in variables().items())
    (tmp_path / "settings.env").write_text(whole)
    found = with_environment({}, lambda: read(tmp_path / "settings.env"))
    assert not lost(whole, found)
    assert (found.audit_query, found.audit_required, found.bandit_policy) == ("none", True, "ucb1")
