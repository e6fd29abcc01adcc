"""No hidden state.

No frozen value is changed, and the algebra keeps nothing between two calls (house.md, section 3).

State is what a later call finds changed by an earlier one. What is worked out once from the text of
a module, such as a table, a compiled pattern or a cached function without arguments, is a constant
and no state, and so is a `cached_property`, which is a pure function of the frozen value that holds
it.
"""

from __future__ import annotations

import ast

from package_files import ALGEBRA_FILES, FILES, place, tree

CACHES = {"cache", "lru_cache"}
CONTAINERS = {"dict", "list", "set", "defaultdict", "OrderedDict", "Counter", "deque"}
CONTAINERS |= {"WeakKeyDictionary", "WeakValueDictionary", "WeakSet"}
TRICKS = {"__setattr__", "__dict__", "__delattr__"}

# What is left, by file. Compiled patterns and readings of a text are memos of pure functions that
# are bounded: one question asked live has the same expressions compiled, and its text read, up to
# four times.
REMEMBERS = {
    # types, by the keys of a gate's row and by what it decides
    "gates.py": {"thresholds_form", "margins_form"},
    "decision/signal_values.py": {"intent"},
    "words/packs.py": {"compile_expression"},
    "policy_parts/patterns.py": {"_compile_pattern", "_compile_part", "_either", "_alternatives"},
    "words/text.py": {"word_set"},
    "words/claim_words.py": {"_plain_word", "_token_parts"},
    "words/answer_match.py": {"text_facts"},
    # Registries: what the import of a module, or a user, adds by name.
    "bandit/learner.py": {"LEARNERS"},
    "policy_parts/own_gates.py": {"REGISTERED_GATES"},
}


def remembered(path):
    """Names of what a module keeps between calls.

    Functions with arguments that are cached, and empty containers.
    """
    body = tree(path).body
    methods = [node for outer in body if isinstance(outer, ast.ClassDef) for node in outer.body]
    for node in (*body, *methods):
        if isinstance(node, ast.FunctionDef) and any(map(_is_cache, node.decorator_list)):
            arguments = node.args
            if (
                arguments.posonlyargs
                or arguments.args
                or arguments.kwonlyargs
                or arguments.vararg
                or arguments.kwarg
            ):
                yield node.name
    for node in body:
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and node.value is not None
            and _is_kept(node.value)
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (ast.unparse(target) for target in targets)
    yield from (
        name for node in ast.walk(tree(path)) if isinstance(node, ast.Global) for name in node.names
    )


def _is_cache(decorator):
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _name(called) in CACHES


def _is_kept(value):
    """Whether a value at the top of a module is an empty container or a function cached there."""
    if isinstance(value, ast.Dict | ast.List | ast.Set):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    if not isinstance(value, ast.Call):
        return False
    return _name(value.func) in CACHES or (
        _name(value.func) in CONTAINERS and not value.args and not value.keywords
    )


def _name(node):
    if isinstance(node, ast.Subscript):  # dict[str, int]()
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_the_algebra_remembers_nothing():
    """What is measured of a trace is kept by whoever holds a `Measured`.

    `REMEMBERS` can only shrink.
    """
    memories = {place(path): set(remembered(path)) for path in ALGEBRA_FILES}
    assert {file: names for file, names in memories.items() if names} == REMEMBERS


def test_no_frozen_value_is_changed():
    """Neither by `object.__setattr__` nor by its `__dict__`: fields are converted before."""
    tricks = {
        place(path): {
            node.attr
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Attribute) and node.attr in TRICKS
        }
        for path in FILES
    }
    assert {file: names for file, names in tricks.items() if names} == {}
