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
    names = {
        path.name
        for extensions_folder in _folders()
        for path in Path(extensions_folder, room).glob("*.py")
    }
    is_damaged = bool(names) and "__init__.py" not in names
    install_state = "which lacks its __init__.py" if is_damaged else "which is not installed"
    message = (
        f"{what} is in raglab/extensions/{room}, {install_state}: "
        "install raglab-toolkit as a whole."
    )
    raise MissingExtensionError(message, name=f"{ROOMS}.{room}")


def check_installed(wanted_name: str, room: str) -> None:
    """Refuse what needs a room that is gone.

    Args:
      wanted_name: the user asked for.
      room: folder in `raglab/extensions`.

    Raises:
      MissingExtensionError: the room is not installed.
    """
    if room not in installed():
        missing(wanted_name, room)


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
    return {name: PublicName(path, _room_of(path)) for path, name in lines}


def _room_of(module_path: str) -> str | None:
    room_match = re.match(r"extensions\.(\w+)", module_path)
    return room_match[1] if room_match else None


def public_names(
    package: str, file: str, *more: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module whose public names load on first use.

    Args:
      package: `__name__` of the module.
      file: `__file__` of the module; the stub next to it lists the names.
      more: names that the module defines itself.
    """
    listed_places = listed_names(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))

    def load(name: str) -> Any:  # noqa: ANN401
        if name not in listed_places:
            if (submodule := _submodule(package, name)) is not None:
                return submodule
            other_doors = " or ".join(f"{public_door}.{name}" for public_door in doors_of(name))
            message = (
                f"module {package!r} has no attribute "
                f"{name!r}{other_doors and f'; it is {other_doors}'}"
            )
            raise AttributeError(message, name=name, obj=sys.modules[package])
        module_path, room = listed_places[name]
        if room is not None and room not in installed():
            missing(f"{package}.{name}", room)
        if not module_path:
            return importlib.import_module(f"raglab.{name}")
        loaded_module = importlib.import_module(f"raglab.{module_path}")
        return (
            getattr(loaded_module, name)
            if hasattr(loaded_module, name)
            else importlib.import_module(f"{loaded_module.__name__}.{name}")
        )

    def listed() -> list[str]:
        # Without the names of rooms that are gone, so that help, completion and `import *` go on
        # without them.
        return [
            *(
                public_name
                for public_name, name_place in listed_places.items()
                if name_place.room in {None, *installed()}
            ),
            *more,
        ]

    return load, listed


def public(name: str) -> Any:  # noqa: ANN401
    """A public name of the package, whichever room defines it; loaded when it is asked for."""
    return getattr(importlib.import_module("raglab"), name)


def _submodule(package: str, name: str) -> ModuleType | None:
    """Module of a package, imported; None if it does not exist or is private."""
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
    package_folder = Path(__file__).parent
    stub_paths = [*package_folder.glob("*.pyi"), *package_folder.glob("*/__init__.pyi")]
    names_by_path = {
        stub_path: [*listed_names(stub_path.read_text(encoding="utf-8"))]
        for stub_path in stub_paths
    }
    for class_file in ("default_learner/__init__.py", "sklearn.py"):
        source_text = (package_folder / class_file).read_text(encoding="utf-8")
        names_by_path[package_folder / class_file] = re.findall(
            r'^(?:    "|class )(\w+)(?:",$|\()', source_text, re.MULTILINE
        )
    module_parts = {
        listing_path: listing_path.relative_to(package_folder.parent).with_suffix("").parts
        for listing_path in names_by_path
    }
    return sorted(
        ".".join(module_parts[listing_path]).removesuffix(".__init__")
        for listing_path, path_names in names_by_path.items()
        if name in path_names
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
    point_prefix = f"{kind}."
    return {
        point.removeprefix(point_prefix): _load(point_target)
        for room in installed()
        for point, point_target in _points(room).items()
        if point.startswith(point_prefix)
    }


def _points(room: str) -> dict[str, str]:
    room_points: dict[str, str] = importlib.import_module(f"{ROOMS}.{room}").POINTS
    return room_points


def _load(target_path: str) -> Any:  # noqa: ANN401
    module_name, _, object_name = target_path.partition(":")
    return getattr(importlib.import_module(module_name), object_name)
