"""Misuse (algebra): swapped arguments, other names for one, a path where a value is meant.

Answered at the door.

`takes` marks a public function with the kind of its arguments. A value of another kind that is
known is refused with what was meant, and so are None (unless it is the default), numbers and lists
of such; an object of any other class passes, since what a function can work with is for the
function to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from numbers import Number
from pathlib import PurePosixPath
from typing import Any, Literal, ParamSpec, TypeVar

from raglab.bandit.environments import Table
from raglab.decision.failed_calls import answered_cases
from raglab.decision.measured_trace import Measured, plain_trace
from raglab.policy import PolicyData
from raglab.values import Case, Chunk, Corpus, TraceData

Kind = Literal[
    "policy or policies",
    "named policies",
    "measured",
    "cases or trace",
    "trace",
    "traces",
    "policy",
    "policies",
    "corpus",
    "cases",
    "frame",
    "path",
    "table",
    "text",
    "numbers",
    "signals",
    "decisions",
    "log",
    "log or path",
    "system",
    "system or path",
    "world",
    "response",
    "baseline",
    "reward table",
    "trace or table",
    "index folder",
    "policy or path",
    "policy file",
    "direction",
    "unit",
]
P = ParamSpec("P")
R = TypeVar("R")

# what other libraries call an argument -> its names here, the first that the function has
OTHER_NAMES = {
    "max_words": ("max_tokens",),
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
    "lab": ("system",),
    "output": ("out", "path", "folder"),
    "train": ("tune",),
    "train_size": ("tune",),
    "validation": ("certify",),
    "test": ("report",),
    "test_size": ("report",),
}
GOAL_FIELDS = frozenset({"targets", "costs", "min_coverage", "max_over_ask"})  # of `raglab.Goal`
WORKERS = frozenset({"n_jobs", "n_workers", "workers", "num_workers", "jobs"})
_SINGULAR = {
    "trace": "a trace",
    "traces": "traces",
    "policy": "a policy",
    "policies": "policies",
    "policy or policies": "a policy or several",
    "named policies": "a mapping of names to policies",
    "corpus": "a corpus",
    "case": "a single case",
    "cases": "cases",
    "cases or trace": "cases or a trace",
    "frame": "a DataFrame",
    "path": "a path",
    "chunk": "a single chunk",
    "chunks": "chunks",
    "mapping": "a mapping",
    "result": "a result",
    "table": "a path or a DataFrame",
    "text": "a text",
    "numbers": "several numbers",
    "signals": "names of signals or signal functions",
    "decisions": "decisions",
    "log": "an audit log",
    "log or path": "an audit log or its path",
    "system": "a System",
    "system or path": "a System or the folder of an index",
    "world": "a world of clarifications",
    "response": "a response",
    "baseline": "a baseline",
    "reward table": "a table of rewards",
    "trace or table": "a trace or a table of rewards",
    "index folder": "the folder of an index",
    "policy or path": "a policy or the path of its file",
    "policy file": "the path of a YAML file",
    "direction": "'surer' or 'ask'",
    "unit": "the unit of a signal",
}
# kinds that fit beside the one that is meant; the function looks into them
_ALSO: Mapping[str, frozenset[str]] = {
    "cases": frozenset({"list"}),
    "cases or trace": frozenset({"cases", "list", "trace"}),
    "traces": frozenset({"list"}),
    "policies": frozenset({"list", "named policies"}),
    "policy or policies": frozenset({"policy", "policies", "list", "named policies"}),
    "table": frozenset({"path", "frame", "mapping", "list", "plain list"}),
    "text": frozenset({"path"}),
    "numbers": frozenset({"list", "plain list"}),
    "signals": frozenset({"path", "list", "plain list"}),
    "log or path": frozenset({"log", "path"}),
    "system or path": frozenset({"system", "path"}),
    "response": frozenset({"mapping"}),
    "trace or table": frozenset({"trace", "reward table"}),
    "index folder": frozenset({"path"}),
    "policy or path": frozenset({"policy", "path"}),
    "policy file": frozenset({"path"}),
    "direction": frozenset({"path"}),  # a text, which the function reads
    "unit": frozenset({"path"}),
}
_REMEDIES: Mapping[tuple[str, str], str] = {  # by what is meant and what came; {} is the value
    (
        "trace",
        "path",
    ): "open it first: a folder of shards by raglab.Trace.open, a file by raglab.Trace.load({})",
    ("trace", "frame"): "make a trace of it: raglab.trace_from_frame(frame)",
    ("trace", "corpus"): "retrieve first: raglab.build_trace(corpus, cases)",
    ("trace", "cases"): "retrieve first: raglab.build_trace(corpus, cases)",
    ("trace", "traces"): "give one of them",
    ("trace", "decisions"): "give its .trace",
    (
        "trace",
        "reward table",
    ): "it holds rewards, not hits; see raglab.audit_rewards and raglab.tune_bandit",
    ("traces", "trace"): "put it in a list",
    (
        "trace or table",
        "path",
    ): "open a trace first: shards by raglab.Trace.open, a file by raglab.Trace.load({})",
    (
        "trace or table",
        "frame",
    ): "make a table of rewards of it: raglab.bandit.Table.from_frame(frame)",
    (
        "reward table",
        "frame",
    ): "make a table of rewards of it: raglab.bandit.Table.from_frame(frame)",
    ("reward table", "trace"): "make a table of it: raglab.lab.arm_tables(trace, policy).world",
    ("policy", "path"): "load it first: raglab.Policy.load({})",
    ("policy", "mapping"): "make a policy of it: raglab.Policy.from_mapping(mapping)",
    ("policy", "result"): "give its .policy",
    ("policy", "system"): "give its .policy",
    ("policy", "decisions"): "give its .policy",
    ("policies", "path"): "load each first: raglab.Policy.load({})",
    ("policy or policies", "path"): "load it first: raglab.Policy.load({})",
    ("policy or policies", "result"): "give its .policy, or its .policies",
    ("policy", "policies"): "give one of them; raglab.sweep takes many",
    ("policies", "plain list"): "make each a policy: raglab.Policy.from_mapping(mapping)",
    ("policies", "policy"): "put it in a list",
    ("policies", "mapping"): "make each a policy: raglab.Policy.from_mapping(mapping)",
    ("policy or policies", "mapping"): "make each a policy: raglab.Policy.from_mapping(mapping)",
    ("policy", "named policies"): "give one of them; raglab.sweep takes many",
    ("named policies", "policy"): "name it: {{'defaults': policy}}",
    ("named policies", "policies"): "name each: {{'defaults': policy, 'tuned': tuned}}",
    ("named policies", "mapping"): "make each a policy: raglab.Policy.from_mapping(mapping)",
    ("named policies", "path"): "load each first: raglab.Policy.load({})",
    ("corpus", "path"): "load it first: raglab.load_corpus({})",
    ("corpus", "chunks"): "make a corpus of them: raglab.Corpus(name, chunks)",
    ("cases", "path"): "load them first: raglab.load_cases({})",
    ("cases", "frame"): "load them first: raglab.load_cases(frame)",
    ("cases", "case"): "put it in a list",
    (
        "cases or trace",
        "path",
    ): "load it first: a trace by raglab.Trace.load({0}), cases by raglab.load_cases({0})",
    (
        "cases or trace",
        "frame",
    ): "load it first: questions by raglab.load_cases, hits by raglab.trace_from_frame",
    ("cases or trace", "case"): "put it in a list",
    (
        "cases",
        "plain list",
    ): "make a table of them and load it: raglab.load_cases(pandas.DataFrame(rows))",
    ("frame", "trace"): "a trace needs no conversion: raglab.decide(trace, policy)",
    ("table", "cases"): "they are cases already: use them as they are",
    ("table", "corpus"): "it is a corpus already: use it as it is",
    ("table", "chunks"): "make a corpus of them: raglab.Corpus(name, chunks)",
    ("text", "response"): 'give its id: response["request_id"]',
    ("text", "mapping"): 'give the id of a response: response["request_id"]',
    ("log", "system"): "give its log: system.audit",
    (
        "log",
        "path",
    ): "open it first: raglab.AuditLog({}), of the folder of an index the file audit.sqlite in it",
    ("log or path", "system"): "give its log, system.audit, or the system by name: system=system",
    ("system", "path"): "open it first: raglab.System.open({})",
    ("baseline", "path"): "load it first: raglab.store.baselines.Baseline.load({})",
    ("system", "log"): "give the system that keeps it: raglab.System.open(folder)",
    (
        "index folder",
        "corpus",
    ): "index it first: raglab.build_index(corpus, 'out/index'), and open that folder",
    ("index folder", "system"): "it is open already: use it as it is",
    ("index folder", "policy"): "give the policy by name: policy=policy",
    ("policy or path", "mapping"): "make a policy of it: raglab.Policy.from_mapping(mapping)",
    ("policy or path", "result"): "give its .policy",
    ("policy file", "mapping"): "make a policy of it: raglab.Policy.from_mapping(mapping)",
    ("policy file", "policy"): "it is loaded already: use it as it is",
    ("policy file", "result"): "give its .policy",
}
_READERS = {  # of a table, by the end of its path; any other is read as CSV
    ".jsonl": "pandas.read_json({}, lines=True)",
    ".ndjson": "pandas.read_json({}, lines=True)",
    ".json": "pandas.read_json({})",
    ".parquet": "pandas.read_parquet({})",
    ".tsv": "pandas.read_csv({}, sep='\\t')",
    ".xlsx": "pandas.read_excel({})",
}
_MAKE: Mapping[Kind, str] = {  # how a value of a kind is made, where nothing nearer is known
    "trace": (
        "build one by raglab.build_trace(corpus, cases), or load one by raglab.Trace.load(path)"
    ),
    "traces": "put them in a list",
    "policy": "load one by raglab.Policy.load(path), or the published one by raglab.Policy.load()",
    "policies": "put some in a list, such as [raglab.Policy.load()]",
    "policy or policies": "give one, such as raglab.Policy.load(path), or a list of some",
    "named policies": "name some, such as {{'defaults': raglab.Policy.load()}}",
    "corpus": "load one by raglab.load_corpus(path)",
    "cases": "load some by raglab.load_cases(path or frame)",
    "cases or trace": (
        "load cases by raglab.load_cases(path or frame), or a trace by raglab.Trace.load(path)"
    ),
    "frame": "read one by pandas.read_csv(path), or make one of rows by pandas.DataFrame(rows)",
    "path": "name a file or folder, such as 'out'",
    "table": "name a file or folder, or make a table by pandas.DataFrame(rows)",
    "text": "give it as a str",
    "numbers": "put them in a list, such as [0.5, 1.0, 2.0]",
    "signals": "name them, such as ['judge']",
    "decisions": "decide first: raglab.decide(trace, policy)",
    "log": "open one by raglab.AuditLog(path), or give system.audit of a system that keeps one",
    "log or path": "give system.audit of a system that keeps one",
    "system": "open one by raglab.System.open(folder)",
    "system or path": "open one by raglab.System.open(folder)",
    "world": "make one by raglab.default_learner.world(shares)",
    "response": "ask first: raglab.ask(question, system=system)",
    "baseline": "make one by raglab.lab.baseline.baseline_of(trace, policy)",
    "reward table": "make one by raglab.bandit.Table.from_frame(frame), a column an arm",
    "trace or table": (
        "make a trace by raglab.build_trace(corpus, cases), or a table by "
        "raglab.bandit.Table.from_frame"
    ),
    "index folder": "make one by raglab.build_index(corpus, 'out/index'), and name that folder",
    "policy or path": "load one by raglab.Policy.load(path), or leave it out for the published one",
    "policy file": "name the file, such as 'policy.yaml', or leave it out for the published policy",
    "direction": (
        "write higher='surer' where more of it speaks for an answer, higher='ask' for asking back"
    ),
    "unit": "write unit='probability', another of raglab.signals.UNITS, or any words",
}


def takes(*, every_case: bool = False, **kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function with the kinds of its arguments by name, so that known misuse is answered.

    Signature, docstring and types stay those of the function. A call costs about a microsecond
    more. Of a trace the function gets the cases for which no call failed (`answered_cases`).

    Args:
      every_case: whether it gets the others too, since it calls for them again.
      kinds: `measured` is a trace that may be a `Measured`; of one that is given for a `trace`, the
        function gets the plain trace.

    Raises:
      TypeError: by the marked function: an argument of another kind, arguments that are swapped, a
        keyword that it does not have, or more arguments by position than it takes.

    Example:
      >>> @takes(policy="policy")
      ... def gates(policy, *, seed=0): ...
      >>> gates("a.yaml")
      Traceback (most recent call last):
      TypeError: gates: policy must be a policy, got a path 'a.yaml'; load it first: \
raglab.Policy.load('a.yaml').
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        # What can be known of the function is worked out once: `checked` runs at every call.
        # The first parameter of a method is none that its caller writes.
        every = signature(function).parameters
        owner = next((name for name in every if name in {"self", "cls"}), "")
        parameters = {name: parameter for name, parameter in every.items() if name != owner}
        n_own, door = 1 if owner else 0, _door(function)
        wanted: dict[str, Kind] = {
            name: "trace" if kind == "measured" else kind for name, kind in kinds.items()
        }
        call = _on_traces(function, set(kinds.values()), every_case=every_case)
        by_position = [
            name
            for name, parameter in parameters.items()
            if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
        ]
        is_open = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
        places = [
            (
                name,
                by_position.index(name) if name in by_position else -1,
                kind,
                parameters[name].default,
            )
            for name, kind in wanted.items()
        ]
        known = parameters.keys()
        required = _required(parameters)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            # The words of Python name no remedy, so the usual mistakes are caught before the call.
            if len(args) - n_own > len(by_position):
                raise TypeError(_position_message(door, by_position, parameters, len(args) - n_own))
            if kwargs and not kwargs.keys() <= known:
                unknown = next(name for name in kwargs if name not in known)
                if not is_open or unknown in OTHER_NAMES or unknown in WORKERS:
                    raise TypeError(_keyword_message(door, unknown, [*known], is_open=is_open))
            for name, place, kind, default in places:
                # A value of the right class passes by one look at it, since nearly every value is
                # right.
                index = place + n_own
                value = (
                    args[index] if place >= 0 and index < len(args) else kwargs.get(name, default)
                )
                if isinstance(value, _RIGHT.get(kind, ())) or (
                    value is default and default is not _ABSENT
                ):
                    continue
                if value is _ABSENT or not _fits(kind_of(value), kind):
                    values = {**dict(zip(by_position, args[n_own:], strict=False)), **kwargs}
                    raise TypeError(_kind_message(door, name, values, wanted))
            if len(args) - n_own + len(kwargs) < len(required):
                _check_present(
                    door, required, kwargs.keys() | set(by_position[: len(args) - n_own])
                )
            return call(*args, **kwargs)

        return checked

    return mark


def _required(parameters: Mapping[str, Parameter]) -> list[str]:
    """Arguments without a default."""
    open_kinds = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    return [
        name
        for name, parameter in parameters.items()
        if parameter.default is _ABSENT and parameter.kind not in open_kinds
    ]


def _check_present(door: str, required: Sequence[str], stated: Collection[str]) -> None:
    """Stop where a required argument is not stated."""
    absent = [name for name in required if name not in stated]
    if absent:
        msg = (
            f"{door} needs {', '.join(required)}, got no {' and no '.join(absent)}; see "
            f"help({door})."
        )
        raise TypeError(msg)


def _door(function: Callable[..., Any]) -> str:
    """Name of a function as its caller writes it.

    With the class of a method, and the class alone of its making.
    """
    return (
        function.__qualname__.rpartition("<locals>.")[2]
        .removesuffix(".__init__")
        .removesuffix(".__new__")
    )


def _on_traces(
    function: Callable[P, R], kinds: Collection[Kind], *, every_case: bool
) -> Callable[P, R]:
    """The function on the traces that it is to get, wherever one is given; see `takes`."""
    is_plain = not {"trace", "trace or table"}.isdisjoint(kinds)
    if not is_plain and "measured" not in kinds:
        return function

    def trace(value: Any) -> Any:  # noqa: ANN401 - of any argument
        if not hasattr(type(value), "measured_once"):
            return value
        plain = plain_trace(value) if is_plain else value
        return plain if every_case else answered_cases(plain)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        named: Any = {name: trace(value) for name, value in kwargs.items()}
        values: Any = map(trace, args)
        return function(*values, **named)

    return call


_ABSENT = Parameter.empty
# Types that are right at a glance; sequences and mappings are looked into, since cases and policies
# are such.
_RIGHT: Mapping[str, Any] = {
    "trace": (TraceData, Measured),
    "trace or table": (TraceData, Measured, Table),
    "reward table": Table,
    "policy": PolicyData,
    "corpus": Corpus,
    "path": str,
    "text": str,
}
_TYPES = (
    (TraceData, "trace"),
    (PolicyData, "policy"),
    (Corpus, "corpus"),
    (Case, "case"),
    (Chunk, "chunk"),
    (Table, "reward table"),
)
_NAMED = {  # by name, since their packages lie above
    "ShardedTrace": "trace",
    "Measured": "trace",
    "DataFrame": "frame",
    "Decisions": "decisions",
    "ShardedDecisions": "decisions",
    "AuditLog": "log",
    "System": "system",
    "World": "world",
    "Response": "response",
    "Baseline": "baseline",
}
_PLAIN = (Number, bytes, bytearray, type(None))
_BUILTIN = (list, tuple, set, frozenset, range)
_MANY = {"case": "cases", "chunk": "chunks", "policy": "policies", "trace": "traces"}


def _fits(got: str, wanted: Kind) -> bool:
    """Whether a value may be what is wanted.

    Of that kind, of one that fits beside it, or of none that is known.
    """
    return got in {"", wanted} or got in _ALSO.get(wanted, ())


def kind_of(value: object) -> str:
    """What a value is, of the kinds that are mixed up; '' for an object of any other class.

    Example:
      >>> (
      ...     kind_of("out/trace.parquet"),
      ...     kind_of([Case("q1", "What?", "ok")]),
      ...     kind_of(3),
      ...     kind_of(object()),
      ... )
      ('path', 'cases', 'plain', '')
    """
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return "path"
    if isinstance(value, _PLAIN):
        return "plain"
    known_kind = next(
        (kind for type_, kind in _TYPES if isinstance(value, type_)),
        _NAMED.get(type(value).__name__, ""),
    )
    if not known_kind and isinstance(getattr(value, "policy", None), PolicyData):
        return "result"
    if not known_kind and isinstance(value, Mapping):
        return (
            "named policies"
            if isinstance(next(iter(value.values()), None), PolicyData)
            else "mapping"
        )
    return known_kind or _kind_of_many(value)


def _kind_of_many(value: object) -> str:
    """Kind of a sequence, by its first item.

    `list` of a built-in one of none or of other objects, '' of no such.
    """
    is_plain = type(value) in _BUILTIN
    if not is_plain and not isinstance(value, Sequence):
        return ""
    first = (
        kind_of(next(iter(value)))  # type: ignore[call-overload]
        if len(value)  # type: ignore[arg-type]
        else ""
    )
    return _MANY.get(first, ("plain list" if first else "list") if is_plain else "")


def _described(value: object, kind: str) -> str:
    """A value of a known kind, in a sentence."""
    if kind == "plain":
        return repr(value)[:40]
    if kind == "path":
        return f"a path {str(value)!r}"
    if kind in {"list", "plain list"}:
        first = next(iter(value), _ABSENT)  # type: ignore[call-overload]
        of = "" if first is _ABSENT else f" of {type(first).__name__}"
        return f"{'an empty' if first is _ABSENT else 'a'} {type(value).__name__}{of}"
    return _SINGULAR[kind]


def _kind_message(
    function: str, name: str, values: Mapping[str, object], kinds: Mapping[str, Kind]
) -> str:
    """Message for a value of the wrong kind; for values in each other's place, with their order."""
    value_kinds = {
        argument: kind_of(values[argument])
        for argument in kinds
        if values.get(argument) is not None
    }
    wrong = [argument for argument, got in value_kinds.items() if not _fits(got, kinds[argument])]
    if len(wrong) > 1 and all(
        any(_fits(value_kinds[candidate], kinds[argument]) for candidate in wrong)
        for argument in wrong
    ):
        listed = ", ".join(_SINGULAR.get(got, "another value") for got in value_kinds.values())
        return f"{function} takes {', '.join(value_kinds)} in this order, got {listed}; swap them."
    wanted, value = kinds[name], values.get(name, _ABSENT)
    if value is _ABSENT:
        return (
            f"{function}: {name} must be {_SINGULAR[wanted]}, got nothing; "
            f"{_MAKE[wanted].format('')}."
        )
    got = kind_of(value)
    remedy = _REMEDIES.get((wanted, got), _MAKE[wanted]).format(repr(str(value)))
    if (wanted, got) == ("frame", "path"):
        reader = _READERS.get(PurePosixPath(str(value)).suffix.lower(), "pandas.read_csv({})")
        remedy = f"read it first: {reader.format(repr(str(value)))}"
    return (
        f"{function}: {name} must be {_SINGULAR[wanted]}, got {_described(value, got)}; {remedy}."
    )


def _keyword_message(function: str, unknown: str, known: Sequence[str], *, is_open: bool) -> str:
    """Which argument is meant by a keyword that a function does not have."""
    rule = f"{function} has no argument {unknown}"
    if unknown in WORKERS:
        return (
            f"{rule}; work is shared among processes inside `with "
            "raglab.lab.parallel_workers(...)`."
        )
    if unknown in GOAL_FIELDS and "goal" in known:
        return f"{rule}; write goal=raglab.Goal({unknown}=…)."
    meant = next((name for name in OTHER_NAMES.get(unknown, ()) if name in known), None)
    near = [meant] if meant else get_close_matches(unknown, known, 1)
    if near:
        return f"{rule}; did you mean {near[0]}?"
    return f"{rule}; it takes {', '.join(known)}{' and settings' if is_open else ''}."


def _position_message(
    function: str, by_position: Sequence[str], known: Mapping[str, Parameter], n_args: int
) -> str:
    named = [name for name, parameter in known.items() if parameter.kind is Parameter.KEYWORD_ONLY]
    more = (
        f"; give the others by name: {', '.join(f'{name}=' for name in named[:6])}" if named else ""
    )
    return (
        f"{function} takes {', '.join(by_position) or 'nothing'} by position, got {n_args} "
        f"arguments{more}."
    )
