"""Extension points: how a room of `raglab.extensions` enters the core, which never imports one.

A room lists what it offers in `POINTS` of its `__init__.py`: the name of a point and the object
that fills it, as `module:object`, which is imported when the core first asks for it. The core names
the point and the room, so that a user who asks for what was taken out is told which folder is
missing.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

ROOMS = "raglab.extensions"


class MissingExtensionError(ImportError):
    """A room of `raglab.extensions` that is asked for is not installed."""


def missing(what: str, room: str) -> NoReturn:
    """Say that a room is gone.

    Args:
      what: the user asked for, a public name or an option.
      room: folder in `raglab/extensions`.

    Raises:
      MissingExtensionError: always.
    """
    # A folder whose modules are there but whose `__init__.py` is lost is damaged, and says so.
    modules = {path.name for place in _folders() for path in Path(place, room).glob("*.py")}
    is_damaged = bool(modules) and "__init__.py" not in modules
    state = "which lacks its __init__.py" if is_damaged else "which is not installed"
    message = f"{what} is in raglab/extensions/{room}, {state}: install raglab-toolkit as a whole."
    raise MissingExtensionError(message, name=f"{ROOMS}.{room}")


def check_installed(what: str, room: str) -> None:
    """Refuse what needs a room that is gone.

    Args:
      what: the user asked for.
      room: folder in `raglab/extensions`.

    Raises:
      MissingExtensionError: the room is not installed.
    """
    if room not in installed():
        missing(what, room)


@cache
def installed() -> tuple[str, ...]:
    """Names of the rooms that are installed, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(_folders()) if module.ispkg))


def _folders() -> list[str]:
    """Folders of rooms; none where `raglab.extensions` was deleted as a whole."""
    try:
        return list(importlib.import_module(ROOMS).__path__)
    except ModuleNotFoundError as error:
        if error.name != ROOMS:
            raise
        return []


class PublicName(NamedTuple):
    """Where a public name is defined.

    A module relative to `raglab`, and the room of an extension or None.
    """

    module: str
    room: str | None


def listed_names(stub: str) -> dict[str, PublicName]:
    """Public names that the stub of a package lists.

    Args:
      stub: text of a `.pyi` file; a line a name.

    Example:
      >>> listed_names("from raglab.extensions.cockpit.display import cockpit as cockpit")
      {'cockpit': PublicName(module='extensions.cockpit.display', room='cockpit')}
    """
    lines = re.findall(r"^from raglab\.?([\w.]*) import (\w+) as \w+$", stub, re.MULTILINE)
    return {name: PublicName(module, _room_of(module)) for module, name in lines}


def _room_of(module: str) -> str | None:
    match = re.match(r"extensions\.(\w+)", module)
    return match[1] if match else None


def public_names(
    package: str, file: str, *more: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module whose public names load on first use.

    Args:
      package: `__name__` of the module.
      file: `__file__` of the module; the stub beside it lists the names.
      more: names that the module defines itself.
    """
    names = listed_names(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))

    def load(name: str) -> Any:  # noqa: ANN401
        if name not in names:
            if (module_there := _submodule(package, name)) is not None:
                return module_there
            elsewhere = " or ".join(f"{door}.{name}" for door in doors_of(name))
            msg = (
                f"module {package!r} has no attribute "
                f"{name!r}{elsewhere and f'; it is {elsewhere}'}"
            )
            raise AttributeError(msg, name=name, obj=sys.modules[package])
        module, room = names[name]
        if room is not None and room not in installed():
            missing(f"{package}.{name}", room)
        if not module:
            return importlib.import_module(f"raglab.{name}")
        loaded = importlib.import_module(f"raglab.{module}")
        return (
            getattr(loaded, name)
            if hasattr(loaded, name)
            else importlib.import_module(f"{loaded.__name__}.{name}")
        )

    def listed() -> list[str]:
        # Without the names of rooms that are gone, so that help, completion and `import *` go on
        # without them.
        return [
            *(name for name, place in names.items() if place.room in {None, *installed()}),
            *more,
        ]

    return load, listed


def public(name: str) -> Any:  # noqa: ANN401
    """A public name of the package, whichever room defines it; loaded when it is asked for."""
    return getattr(importlib.import_module("raglab"), name)


def _submodule(package: str, name: str) -> ModuleType | None:
    """Module of a package, imported; None where there is none or its name is private."""
    try:
        return None if name.startswith("_") else importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        return None


def doors_of(name: str) -> list[str]:
    """Public modules that list a name; none of them is imported.

    Example:
      >>> doors_of("slices"), doors_of("DefaultLearner"), doors_of("nothing")
      (['raglab.lab'], ['raglab.default_learner'], [])
    """
    root = Path(__file__).parent
    stubs = [*root.glob("*.pyi"), *root.glob("*/__init__.pyi")]
    names = {stub: [*listed_names(stub.read_text(encoding="utf-8"))] for stub in stubs}
    for file in ("default_learner/__init__.py", "sklearn.py"):
        text = (root / file).read_text(encoding="utf-8")
        names[root / file] = re.findall(r'^(?:    "|class )(\w+)(?:",$|\()', text, re.MULTILINE)
    modules = {path: path.relative_to(root.parent).with_suffix("").parts for path in names}
    return sorted(
        ".".join(modules[path]).removesuffix(".__init__")
        for path, listed in names.items()
        if name in listed
    )


def extension(point: str, room: str, what: str) -> Any:  # noqa: ANN401
    """The object that a room offers at a point.

    Args:
      point: key of the room's `POINTS`.
      room: folder in `raglab/extensions`.
      what: the user asked for, for the message.

    Raises:
      MissingExtensionError: the room is not installed.
    """
    return _load(_points(room)[point]) if room in installed() else missing(what, room)


def extensions(kind: str) -> dict[str, Any]:
    """Objects installed rooms offer at points `kind.name`, by name, in room and point order."""
    prefix = f"{kind}."
    return {
        point.removeprefix(prefix): _load(target)
        for room in installed()
        for point, target in _points(room).items()
        if point.startswith(prefix)
    }


def _points(room: str) -> dict[str, str]:
    points: dict[str, str] = importlib.import_module(f"{ROOMS}.{room}").POINTS
    return points


def _load(target: str) -> Any:  # noqa: ANN401
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
