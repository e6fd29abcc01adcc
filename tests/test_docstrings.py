"""Docstrings of the public names.

Griffe parses them without a warning, and every parameter has one entry, in order.

Public are the names of `raglab.__all__`, the functions and classes of the modules among them,
`raglab.sklearn`, and the public methods of these classes. Names of rooms that are not installed are
not in `raglab.__all__`.
"""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import logging
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import griffe

import raglab
import raglab.sklearn


class Documented(NamedTuple):
    """Entries of a docstring, and the warnings of the parser.

    Attributes:
      names: of the parameters, in the order of the docstring.
      attributes: names of the attributes, in the order of the docstring.
      warnings: texts of the parser.
    """

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    warnings: tuple[str, ...]


class _Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def parse(node):
    """Docstring of a function or class as griffe reads it."""
    if node.docstring is None:
        return Documented((), (), ("no docstring",))
    handler, logger = _Warnings(), logging.getLogger("griffe")
    logger.addHandler(handler)
    try:
        sections = node.docstring.parse("google")
    finally:
        logger.removeHandler(handler)
    entries: dict[str, list[Any]] = {"parameters": [], "attributes": []}
    for section in sections:
        if section.kind.value in entries:
            entries[section.kind.value] += section.value
    return Documented(
        tuple(entry.name.lstrip("*") for entry in entries["parameters"]),
        tuple(entry.name for entry in entries["attributes"]),
        tuple(handler.texts),
    )


def defects(documented, required, allowed):
    """Rules that a docstring breaks, in words.

    Args:
      documented: entries of the docstring.
      required: names that must have an entry.
      allowed: names that may have one; of a list, in the order of the entries.
    """
    names, stated = documented.names, documented.attributes
    order = (
        [name for name in allowed if name in names] if isinstance(allowed, list) else list(names)
    )
    is_sorted = set(order) != set(names) or list(dict.fromkeys(names)) == order
    return [
        *documented.warnings,
        *(f"no entry for {name}" for name in sorted(set(required) - set(names))),
        *(f"entry of no parameter: {name}" for name in sorted(set(names) - set(allowed))),
        *(f"several entries for {name}" for name in sorted(set(names)) if names.count(name) > 1),
        *(f"several entries for {name}" for name in sorted(set(stated)) if stated.count(name) > 1),
        *(
            []
            if is_sorted
            else [f"entries in another order than the signature: {', '.join(order)}"]
        ),
    ]


def fields_of(kind):
    """Fields a class docstring must list, those the class itself states, and those it may list."""
    if dataclasses.is_dataclass(kind):
        fields = {field.name for field in dataclasses.fields(kind)}
    else:
        names = (
            getattr(kind, "_fields", ())
            if issubclass(kind, tuple)
            else getattr(kind, "model_fields", ())
        )
        fields = set(names)
    stated = inspect.get_annotations(kind)
    return {name for name in fields if name in stated and not name.startswith("_")}, fields


def parameters_of(function):
    """Names of the parameters that a caller gives, in the order of the signature."""
    return [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]


def is_ours(value):
    """Whether a value is a function or class of raglab."""
    module = value.__module__ if inspect.isfunction(value) or inspect.isclass(value) else ""
    return module.startswith("raglab")


def is_public(kind):
    """Whether a class is raglab's and has no private name."""
    return is_ours(kind) and not kind.__name__.startswith("_")


def public_values():
    """Public functions and classes, and the classes of raglab that these inherit from."""
    shown = [getattr(raglab, name) for name in raglab.__all__ if not name.startswith("__")]
    for value in (*shown, raglab.sklearn):
        for member in _members(value) if inspect.ismodule(value) else (value,):
            if is_ours(member):
                yield from (
                    filter(is_public, member.__mro__) if inspect.isclass(member) else (member,)
                )


def _members(module):
    """Public names of a module: of `__all__`, else what it defines."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return [getattr(module, name) for name in names]
    members = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [value for value in members if getattr(value, "__module__", None) == module.__name__]


@cache
def module_tree(name):
    """A module as griffe reads its source."""
    path = Path(sys.modules[name].__file__)
    return griffe.visit(name, filepath=path, code=path.read_text(encoding="utf-8"))


def node_of(value):
    """Function or class in the source; None of one that is made by a call."""
    tree = module_tree(value.__module__)
    try:
        node = tree[value.__qualname__]
    except KeyError:
        return None
    return None if node.is_attribute else node


def function_defects(function):
    """Defects of a function's docstring."""
    node = node_of(inspect.unwrap(function))
    if node is None:
        return []
    names, documented = parameters_of(function), parse(node)
    attributes = ["a function has no attributes"] if documented.attributes else []
    return defects(documented, names, names) + attributes


def class_defects(kind):
    """Defects of a class's docstring.

    Parameters of its own `__init__` are listed there or in the class.
    """
    node = node_of(kind)
    if node is None:
        return []
    documented, init = parse(node), vars(kind).get("__init__")
    initialiser = node_of(init) if getattr(init, "__module__", None) == kind.__module__ else None
    if initialiser is None:  # an `__init__` that is made for the fields
        required, allowed = fields_of(kind)
        return defects(
            documented._replace(names=documented.names + documented.attributes), required, allowed
        )
    names = parameters_of(init)
    if initialiser.docstring is None or documented.names:
        return defects(documented, names, names)
    return defects(documented, set(), set()) + defects(parse(initialiser), names, names)


def full_name(value):
    """Path of a function or class."""
    return f"{value.__module__}.{value.__qualname__}"


def methods(kind):
    """Public methods that a class states itself."""
    for name, value in vars(kind).items():
        method = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if not name.startswith("_") and inspect.isfunction(method) and is_ours(method):
            yield method


def test_docstrings_of_public_names_list_every_parameter_once():
    """A parameter that is missing, or listed twice, is an error."""
    defects_of = {}
    for value in dict.fromkeys(public_values()):
        if inspect.isclass(value):
            defects_of[value] = class_defects(value)
            defects_of |= {method: function_defects(method) for method in methods(value)}
        else:
            defects_of[value] = function_defects(value)
    assert len(defects_of) > 400
    broken = [
        f"{full_name(value)}: {defect}" for value, texts in defects_of.items() for defect in texts
    ]
    assert not broken, "\n".join(broken)


def test_examples_of_marked_functions_run():
    """Examples of decorated functions, which pytest does not collect as the module's own."""
    marked = [value for value in dict.fromkeys(public_values()) if hasattr(value, "__wrapped__")]
    examples = [value for value in marked if ">>> " in (value.__doc__ or "")]
    assert examples
    for function in examples:
        names = dict(vars(sys.modules[function.__module__]))
        example = doctest.DocTestParser().get_doctest(
            function.__doc__, names, full_name(function), None, 0
        )
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0, full_name(function)
