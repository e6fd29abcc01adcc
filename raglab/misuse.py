"""Misuse (algebra): swapped arguments, other names for one, a path where a value is meant: answered at the door.

`takes` marks a public function with the kind of its arguments. A call that goes wrong in a way that is known is refused
with what was meant; any other value passes, since what a function can work with is for the function to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Literal, ParamSpec, TypeVar

from raglab.policy import PolicyData
from raglab.values import Case, Chunk, Corpus, TraceData

Kind = Literal["trace", "policy", "policies", "corpus", "cases", "frame", "path"]
P = ParamSpec("P")
R = TypeVar("R")

OTHER_NAMES = {  # what other libraries call an argument -> its names here, the first that the function has
    "n_trials": ("trials",),
    "n_iter": ("trials",),
    "max_trials": ("trials",),
    "random_state": ("seed", "rng"),
    "random_seed": ("seed", "rng"),
    "n_splits": ("folds",),
    "cv": ("folds",),
    "n_bootstrap": ("resamples", "n_boot"),
    "n_resamples": ("resamples", "n_boot"),
    "confidence_level": ("level", "delta"),
    "alpha": ("level", "delta"),
    "objective": ("goal", "costs"),
    "strategy": ("arm",),
    "retriever": ("arm",),
    "params": ("space", "paths"),
    "search_space": ("space", "paths"),
    "questions": ("cases",),
    "documents": ("corpus",),
    "output": ("out", "path", "folder"),
    "system": ("lab",),
}
WORKERS = frozenset({"n_jobs", "n_workers", "workers", "num_workers", "jobs"})
_SINGULAR = {
    "trace": "a trace",
    "policy": "a policy",
    "policies": "policies",
    "corpus": "a corpus",
    "cases": "cases",
    "frame": "a DataFrame",
    "path": "a path",
    "chunks": "chunks",
    "mapping": "a mapping",
    "result": "a result",
}
_REMEDIES: Mapping[tuple[str, str], str] = {  # by what is meant and what came; {} is the value
    ("trace", "path"): "open it first: raglab.Trace.open({})",
    ("trace", "frame"): "make a trace of it: raglab.trace_from_frame(frame)",
    ("trace", "corpus"): "retrieve first: raglab.build_trace(corpus, cases)",
    ("trace", "cases"): "retrieve first: raglab.build_trace(corpus, cases)",
    ("policy", "path"): "load it first: raglab.Policy.load({})",
    ("policy", "mapping"): "make a policy of it: raglab.Policy.from_mapping(mapping)",
    ("policy", "result"): "give its .policy",
    ("policies", "path"): "load each first: raglab.Policy.load({})",
    ("policy", "policies"): "give one of them; raglab.sweep takes many",
    ("policies", "policy"): "put it in a list, or in a mapping of names where names are asked for",
    ("corpus", "path"): "load it first: raglab.load_corpus({})",
    ("corpus", "chunks"): "make a corpus of them: raglab.Corpus(name, chunks)",
    ("cases", "path"): "load them first: raglab.load_cases({})",
    ("frame", "path"): "read it first: pandas.read_csv({})",
    ("frame", "trace"): "a trace needs no conversion: raglab.decide(trace, policy)",
}


def takes(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function with the kinds of its arguments, by name, so that known misuse of it is answered.

    Signature, docstring and types stay those of the function. A call costs about a microsecond more.

    Raises:
      TypeError: by the marked function: an argument of another kind, arguments that are swapped, a keyword that it does
        not have, or more arguments by position than it takes.

    Example:
      >>> @takes(trace="trace")
      ... def size(trace, *, seed=0): ...
      >>> size("a.parquet")
      Traceback (most recent call last):
      TypeError: size: trace must be a trace, got a path 'a.parquet'; open it first: raglab.Trace.open('a.parquet').
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(function).parameters
        by_position = [name for name, one in parameters.items() if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
        is_open = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
        places = [(name, by_position.index(name) if name in by_position else -1, kind) for name, kind in kinds.items()]
        known = parameters.keys()

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) > len(by_position):
                raise TypeError(_position_message(function.__name__, by_position, parameters, len(args)))
            if kwargs and not kwargs.keys() <= known:
                unknown = next(name for name in kwargs if name not in known)
                if not is_open or unknown in OTHER_NAMES or unknown in WORKERS:
                    raise TypeError(_keyword_message(function.__name__, unknown, [*known], is_open=is_open))
            for name, place, kind in places:
                value = args[place] if 0 <= place < len(args) else kwargs.get(name)
                if value is not None and not isinstance(value, _RIGHT[kind]) and not _fits(kind_of(value), kind):
                    values = {**dict(zip(by_position, args, strict=False)), **kwargs}
                    raise TypeError(_kind_message(function.__name__, name, values, kinds))
            return function(*args, **kwargs)

        return checked

    return mark


# Types that are right at a glance; sequences and mappings are looked into, since cases and policies are such.
_RIGHT: Mapping[str, tuple[type, ...]] = {
    "trace": (TraceData,),
    "policy": (PolicyData,),
    "policies": (),
    "corpus": (Corpus,),
    "cases": (),
    "frame": (),
    "path": (str,),
}


def _fits(got: str, wanted: Kind) -> bool:
    """Whether a value may be what is wanted: of that kind or of none that is known."""
    return got in {"", wanted} or (wanted == "policies" and got == "mapping")


def kind_of(value: object) -> str:
    """What a value is, of the kinds that are mixed up; '' for anything else.

    Example:
      >>> kind_of("out/trace.parquet"), kind_of([Case("q1", "What?", "ok")]), kind_of(3)
      ('path', 'cases', '')
    """
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("path", lambda: isinstance(value, str) or hasattr(value, "__fspath__")),
        ("trace", lambda: isinstance(value, TraceData) or type(value).__name__ == "ShardedTrace"),
        ("policy", lambda: isinstance(value, PolicyData)),
        ("corpus", lambda: isinstance(value, Corpus)),
        ("frame", lambda: type(value).__name__ == "DataFrame"),
        ("result", lambda: isinstance(getattr(value, "policy", None), PolicyData)),
        ("mapping", lambda: isinstance(value, Mapping)),
    )
    found = next((kind for kind, is_it in checks if is_it()), "")
    first = value[0] if not found and isinstance(value, Sequence) and len(value) else None
    of_items = {Case: "cases", Chunk: "chunks"}.get(type(first), "")
    return found or of_items or ("policies" if isinstance(first, PolicyData) else "")


def _kind_message(function: str, name: str, values: Mapping[str, object], kinds: Mapping[str, Kind]) -> str:
    """What was meant by a value of another kind; of several that stand in each other's place, their order."""
    came = {one: kind_of(values[one]) for one in kinds if values.get(one) is not None}
    wrong = [one for one, got in came.items() if not _fits(got, kinds[one])]
    if len(wrong) > 1:
        listed = ", ".join(_SINGULAR.get(got, "another value") for got in came.values())
        return f"{function} takes {', '.join(came)} in this order, got {listed}; swap them."
    wanted, got = kinds[name], came[name]
    shown = f" {str(values[name])!r}" if got == "path" else ""
    remedy = _REMEDIES.get((wanted, got), f"give {_SINGULAR[wanted]}").format(repr(str(values[name])))
    return f"{function}: {name} must be {_SINGULAR[wanted]}, got {_SINGULAR[got]}{shown}; {remedy}."


def _keyword_message(function: str, unknown: str, known: Sequence[str], *, is_open: bool) -> str:
    """Which argument is meant by a keyword that a function does not have."""
    rule = f"{function} has no argument {unknown}"
    if unknown in WORKERS:
        return f"{rule}; work is shared among processes inside `with raglab.workers(...)`."
    meant = next((name for name in OTHER_NAMES.get(unknown, ()) if name in known), None)
    near = [meant] if meant else get_close_matches(unknown, known, 1)
    if near:
        return f"{rule}; did you mean {near[0]}?"
    return f"{rule}; it takes {', '.join(known)}{' and settings' if is_open else ''}."


def _position_message(function: str, by_position: Sequence[str], known: Mapping[str, Parameter], came: int) -> str:
    named = [name for name, one in known.items() if one.kind is Parameter.KEYWORD_ONLY]
    more = f"; give the others by name: {', '.join(f'{name}=' for name in named[:6])}" if named else ""
    return f"{function} takes {', '.join(by_position) or 'nothing'} by position, got {came} arguments{more}."
