"""Extension points: how a room of `raglab.extensions` enters the core, which never imports one.

A room lists what it offers in `POINTS` of its `__init__.py`: the name of a point and the object that fills it, as
`module:object`, which is imported when the core first asks for it. The core names the point and the room, so that a
user who asks for what was taken out is told which folder is missing.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

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
    message = f"{what} is in raglab/extensions/{room}, {state}: install raglab-toolkit as a whole"
    raise MissingExtensionError(message, name=f"{ROOMS}.{room}")


def check_installed(what: str, room: str) -> None:
    """Refuse what needs a room that is gone.

    Args:
      what: the user asked for. room: folder in `raglab/extensions`.

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


def names_by_room(stub: str) -> dict[str, str]:
    """Rooms of the public names that are in one, by name.

    Args:
      stub: text of `__init__.pyi`.

    Example:
      >>> names_by_room("from .extensions.cockpit.display import cockpit as cockpit")
      {'cockpit': 'cockpit'}
    """
    lines = re.findall(r"^from \.extensions\.(\w+)[\w.]* import (\w+) as \w+$", stub, re.MULTILINE)
    return {name: room for room, name in lines}


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
    """Objects that the installed rooms offer at the points `kind.name`, by name, in the order of rooms and points."""
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
