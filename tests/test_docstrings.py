"""Docstrings of the public names.

Griffe parses them without a warning, and every parameter has one entry, in order.

Public are the names of `raglab.__all__`, the functions and classes of the modules among them,
`raglab.sklearn`, and the public methods of these classes. Names of rooms that are not installed are
not in `raglab.__all__`.
"""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import json
import logging
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import griffe
import pytest

import raglab
import raglab.sklearn

ROOT = Path(__file__).resolve().parents[1]
EXCEPTION = r"[A-Z]\w*(?:Error|Exception|Warning)"


class Documented(NamedTuple):
    """Entries of a docstring, and the warnings of the parser.

    Attributes:
      names: of the parameters, in the order of the docstring.
      attributes: names of the attributes, in the order of the docstring.
      exceptions: names and descriptions of exceptions and warnings.
      warnings: texts of the parser.
    """

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    exceptions: tuple[tuple[str, str], ...]
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
        return Documented((), (), (), ("no docstring",))
    handler, logger = _Warnings(), logging.getLogger("griffe")
    logger.addHandler(handler)
    try:
        sections = node.docstring.parse("google")
    finally:
        logger.removeHandler(handler)
    entries: dict[str, list[Any]] = {"parameters": [], "attributes": [], "raises": [], "warns": []}
    for section in sections:
        if section.kind.value in entries:
            entries[section.kind.value] += section.value
    return Documented(
        tuple(entry.name.lstrip("*") for entry in entries["parameters"]),
        tuple(entry.name for entry in entries["attributes"]),
        tuple(
            (str(entry.annotation), entry.description)
            for kind in ("raises", "warns")
            for entry in entries[kind]
        ),
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
    merged = [
        name
        for name, text in documented.exceptions
        if re.search(rf"(?:^|[.;] ){EXCEPTION}: ", text)
    ]
    return [
        *documented.warnings,
        *(f"no entry for {name}" for name in sorted(set(required) - set(names))),
        *(f"entry of no parameter: {name}" for name in sorted(set(names) - set(allowed))),
        *(f"several entries for {name}" for name in sorted(set(names)) if names.count(name) > 1),
        *(f"several entries for {name}" for name in sorted(set(stated)) if stated.count(name) > 1),
        *(f"another exception in the line of {name}" for name in merged),
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
    own = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [value for value in own if getattr(value, "__module__", None) == module.__name__]


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
    """A parameter missing, listed twice or merged into the line of another one is an error."""
    found = {}
    for value in dict.fromkeys(public_values()):
        if inspect.isclass(value):
            found[value] = class_defects(value)
            found |= {method: function_defects(method) for method in methods(value)}
        else:
            found[value] = function_defects(value)
    assert len(found) > 400
    broken = [f"{full_name(value)}: {defect}" for value, texts in found.items() for defect in texts]
    assert not broken, "\n".join(broken)


GOOD = '''
def rate(k: int, *parts: int, n: int = 1) -> float:
    """Share.

    Args:
      k: count, at least 0. Note: at
        most n.
      *parts: further counts.
      n: cases.

    Raises:
      ValueError: n is 0.
      TypeError: k is no number.
    """
'''


COUNTS = "      k: count, at least 0. Note: at\n        most n.\n      *parts: further counts.\n"
SWAPPED = "      *parts: further counts.\n      k: count.\n"


@pytest.mark.parametrize(
    ("before", "after", "defect"),
    [
        ("      n: cases.\n", "", "no entry for n"),
        ("further counts.\n      n: cases.", "further counts. n: cases.", "no entry for n"),
        ("      k: count", "      k, n: count", "'k, n' does not appear"),
        ("      n: cases.\n", "      n: cases.\n      m: more.\n", "'m' does not appear"),
        ("      n: cases.\n", "      n: cases.\n      n: cases.\n", "several entries for n"),
        ("        most n.\n", "      most n.\n", "Failed to get"),
        (COUNTS, SWAPPED, "another order"),
        (
            "n is 0.\n      TypeError",
            "n is 0. TypeError",
            "another exception in the line of ValueError",
        ),
    ],
)
def test_a_docstring_that_breaks_a_rule_is_found(before, after, defect):
    """The test above fails for two arguments a line, a missing or misplaced one, merged errors."""
    names = ["k", "parts", "n"]
    node = griffe.visit("sample", filepath=Path("sample.py"), code=GOOD)["rate"]
    assert defects(parse(node), names, names) == []
    assert before in GOOD
    code = GOOD.replace(before, after)
    ast.parse(code)
    node = griffe.visit("sample", filepath=Path("sample.py"), code=code)["rate"]
    assert any(defect in text for text in defects(parse(node), names, names))


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


def documented_code():
    """Code in docstrings, guides and the prose of notebooks, with its file."""
    for path in (ROOT / "raglab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = (
                ast.get_docstring(node)
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
                else None
            )
            yield from ((str(path), code) for code in code_of(text or ""))
            yield from (
                (str(path), example.source)
                for example in doctest.DocTestParser().get_examples(text or "")
            )
    for path in (ROOT / "README.md", ROOT / "raglab" / "RULES.md", *(ROOT / "docs").rglob("*.md")):
        yield from ((str(path), code) for code in code_of(path.read_text(encoding="utf-8")))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield from ((str(path), code) for code in code_of("".join(cell["source"])))


def code_of(text):
    """Code in a text: between backticks, or in a block of Python."""
    for inline, block in re.findall(r"`([^`\n]+)`|(?ms:^```python\n(.*?)^```)", text):
        yield inline or block


CALLS = re.compile(rf"\b(?:{'|'.join(raglab.__all__)})\(")


def misfits(code):
    """Calls of public functions that their signatures refuse; nothing of a text that is no code."""
    if not CALLS.search(code):
        return []
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return []
    texts = []
    for node in nodes:
        if not isinstance(node, ast.Call) or any(
            isinstance(argument, ast.Starred) for argument in node.args
        ):
            continue
        name = ast.unparse(node.func).removeprefix("raglab.")
        function = getattr(raglab, name, None) if name in raglab.__all__ else None
        has_dots = any(ast.unparse(argument) == "..." for argument in node.args)
        if (
            not inspect.isfunction(function)
            or has_dots
            or any(word.arg is None for word in node.keywords)
        ):
            continue
        try:
            inspect.signature(function).bind(
                *node.args, **{str(word.arg): word.value for word in node.keywords}
            )
        except TypeError as error:
            texts.append(f"{ast.unparse(node)}: {error}")
    return texts


def test_documented_calls_fit_the_signatures():
    """Documented calls of public functions give by position what the function takes so.

    They are the calls in docstrings, guides and notebooks.
    """
    code = list(documented_code())
    assert sum("raglab." in text for _, text in code) > 100
    assert misfits("raglab.steps(trace, policy, 'l2.max_l2')")
    broken = [f"{path}: {text}" for path, source in code for text in misfits(source)]
    assert not broken, "\n".join(broken)
