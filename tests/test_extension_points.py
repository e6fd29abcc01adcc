"""Extension points.

What a room offers is found where it is installed, and named where it is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import raglab
from raglab import extension_points
from raglab.extension_points import (
    MissingExtensionError,
    extension,
    extensions,
    installed,
    listed_names,
    missing,
)
from raglab.lab.study_result import TuneResult
from raglab.live.retriever import check_settings
from raglab.retrieval.arms import live_arms

ROOT = Path(raglab.__file__).parent
DOORS = {
    "raglab": ROOT / "__init__.pyi",
    "raglab.io": ROOT / "io.pyi",
    **{f"raglab.{name}": ROOT / name / "__init__.pyi" for name in ("displays", "lab", "live")},
}
# Public names by the room that they are in: room, door, name.
NAMES = [
    (place.room, door, name)
    for door, stub in DOORS.items()
    for name, place in listed_names(stub.read_text(encoding="utf-8")).items()
    if place.room is not None
]


@pytest.fixture
def rooms(tmp_path, monkeypatch):
    """Replace the rooms by those that a test writes: name -> lines of its `__init__.py`."""

    def write(**texts):
        for room, text in texts.items():
            (tmp_path / room).mkdir()
            (tmp_path / room / "__init__.py").write_text(text, encoding="utf-8")
        (tmp_path / "no_room.py").write_text("", encoding="utf-8")
        monkeypatch.setattr(import_module(extension_points.ROOMS), "__path__", [str(tmp_path)])
        for name in [name for name in sys.modules if name.startswith(f"{extension_points.ROOMS}.")]:
            monkeypatch.delitem(sys.modules, name)
        installed.cache_clear()

    yield write
    monkeypatch.undo()
    installed.cache_clear()


class TestRegistry:
    """Rows of rooms."""

    def test_rows_of_a_kind(self, rooms):
        """By name, in the order of rooms and points; a kind that begins alike is another kind."""
        rooms(
            b='POINTS = {"unit.y": "math:tau", "units.z": "math:e", "other": "math:inf"}',
            a='POINTS = {"unit.x": "math:pi"}',
        )
        assert installed() == ("a", "b")
        assert list(extensions("unit")) == ["x", "y"]
        assert extensions("unit") == {"x": pytest.approx(3.14159), "y": pytest.approx(6.28318)}
        assert extensions("none") == {}

    def test_one_object(self, rooms):
        """It is imported when it is asked for, and not before."""
        rooms(a='POINTS = {"late": "no_such_module:thing", "now": "math:pi"}')
        assert extension("now", "a", "pi") == pytest.approx(3.14159)
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            extension("late", "a", "late")

    def test_a_room_that_is_not_there(self, rooms):
        """The message names what was asked for and the folder.

        It is an ImportError that names the module.
        """
        rooms(a="POINTS = {}")
        text = (
            r"^arm x is in raglab/extensions/b, which is not installed: install raglab-toolkit as "
            r"a whole\.$"
        )
        with pytest.raises(MissingExtensionError, match=text) as caught:
            extension("arm.x", "b", "arm x")
        assert isinstance(caught.value, ImportError)
        assert caught.value.name == "raglab.extensions.b"
        with pytest.raises(MissingExtensionError, match=r"^x is in raglab/extensions/c"):
            missing("x", "c")


class TestArms:
    """Arms whose room is taken out."""

    def test_arms_of_a_missing_room_are_named(self, rooms):
        """In settings of retrieval; all other arms go on."""
        rooms()
        for arm in ("graph", "table"):
            with pytest.raises(
                MissingExtensionError,
                match=rf"^arm {arm} is in raglab/extensions/graph_table, which",
            ):
                check_settings({"arms": ("hybrid", arm)})
        assert check_settings({"arms": ("hybrid", "iterative")}).arms == ("hybrid", "iterative")
        assert live_arms() == ("hybrid", "iterative")


def test_a_study_is_without_a_cockpit_where_its_room_is_missing(rooms):
    """Report and run have no page of it; asked for itself, it is named."""
    rooms()
    study = object.__new__(TuneResult)
    assert study.cockpit_page() is None
    with pytest.raises(
        MissingExtensionError, match=r"^TuneResult\.cockpit is in raglab/extensions/cockpit, which"
    ):
        study.cockpit()


# A process in which no room is there: what a user then sees of each of their names, and of the
# names beside them.
GONE = """
import sys
from importlib import import_module
import raglab
from raglab.extension_points import MissingExtensionError, installed

assert installed() == ()
raglab.live.settings, raglab.lab.certificate_checks.retest  # a plain import is enough

def check(call, room, name):
    try:
        call()
    except MissingExtensionError as error:
        assert str(error).startswith(f"{name} is in raglab/extensions/{room}, which is not \
installed"), error
    else:
        raise AssertionError(f"{name} was found")

for row in sys.argv[1:]:
    room, door, name = row.split()
    module = import_module(door)
    check(lambda: getattr(module, name), room, f"{door}.{name}")
    check(lambda: exec(f"from {door} import {name}"), room, f"{door}.{name}")
    assert name not in {*module.__all__, *dir(module)}
exec("from raglab import *")
raglab.Policy, raglab.Case, raglab.gates
"""


def test_a_name_of_a_missing_room_says_where_it_belongs(tmp_path):
    """As an attribute and as an import; `import *` and what is beside it go on without it."""
    rooms = tmp_path / "raglab" / "extensions"
    rooms.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in {"extensions", "__pycache__"}:
            (rooms.parent / path.name).symlink_to(path)
    (rooms / "__init__.py").symlink_to(ROOT / "extensions" / "__init__.py")
    command = [sys.executable, "-c", GONE, *map(" ".join, NAMES)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


ELSEWHERE = [
    ("slices", "raglab.lab.slices"),
    ("PolicyClassifier", "raglab.sklearn.PolicyClassifier"),
    ("update", "raglab.bandit.update or raglab.default_learner.update"),
]


@pytest.mark.parametrize(("name", "place"), ELSEWHERE)
def test_a_name_of_another_door_says_where_it_is(name, place):
    """Of whichever door has it; a name of none is unknown."""
    with pytest.raises(
        AttributeError, match=rf"^module 'raglab' has no attribute '{name}'; it is {place}$"
    ):
        getattr(raglab, name)
    with pytest.raises(AttributeError, match=r"^module 'raglab.io' has no attribute 'nothing'$"):
        raglab.io.nothing  # noqa: B018


def test_what_a_module_lacks_is_told_as_it_is():
    """A private module is no attribute."""
    with pytest.raises(AttributeError, match=r"^module 'raglab' has no attribute '__main__'$"):
        raglab.__getattr__("__main__")


def test_a_damaged_room_is_not_reported_as_missing(rooms, tmp_path):
    """A lost module raises as Python does; a lost `__init__.py` is named."""
    rooms(cockpit="POINTS = {}")
    with pytest.raises(
        ModuleNotFoundError, match=r"^No module named 'raglab\.extensions\.cockpit\.display'$"
    ):
        raglab.__getattr__("cockpit")
    (tmp_path / "cockpit" / "__init__.py").rename(tmp_path / "cockpit" / "display.py")
    installed.cache_clear()
    with pytest.raises(
        MissingExtensionError, match=r"^raglab\.cockpit is in .*/cockpit, which lacks its __init__"
    ):
        raglab.__getattr__("cockpit")


@pytest.mark.parametrize("room", installed())
def test_points_of_a_room_load(room):
    """Every row that a room lists is there."""
    for target in import_module(f"{extension_points.ROOMS}.{room}").POINTS.values():
        module, _, name = target.partition(":")
        assert module.startswith(f"{extension_points.ROOMS}.{room}."), (
            "a room offers what is its own"
        )
        assert hasattr(import_module(module), name), target
