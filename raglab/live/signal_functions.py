"""Signal functions (shore): a user's measurement as a row function, from code or entry point.

Its name says which it is.

A signal function reads a frame with one row a case, arm and depth, and returns a number a row. The
same function fills the columns of a stored trace (`add_signals`) and answers live, over the same
rows, so that both see the same number. No code travels in a policy or a trace: they name a signal,
and the machine must have its function.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, get_args

from raglab.arguments.plain_arrays import converted
from raglab.signals import MAX_TEXT_CHARACTERS, Signal, Stage, check_name, own_signal
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import visible

if TYPE_CHECKING:
    import pandas as pd

GROUP = "raglab.signals"  # of entry points
QUERY_COLUMNS = ("query", "documents")
HIT_COLUMNS = ("hits.text", "hits.source", "hits.cosine", "hits.l2", "hits.s_rerank")
ANSWER_COLUMNS = ("answer.text", "answer.confidence")
COLUMNS = (*QUERY_COLUMNS, *HIT_COLUMNS, *ANSWER_COLUMNS)
Rows = Callable[["pd.DataFrame"], "Sequence[float]"]


def _needed_columns(needs: str | Iterable[str]) -> tuple[str, ...]:
    return (needs,) if isinstance(needs, str) else tuple(needs)


@converted(needs=_needed_columns)
@dataclass(frozen=True, slots=True, eq=False)
class SignalFunction:
    """A signal with the function that measures it.

    name: of the signal, as policies and traces have it. fn: takes a frame of the columns in
    `needs`, one row a case, arm and depth, and returns as many numbers in the order of the rows;
    NaN where there is nothing to measure. needs: of `COLUMNS`: `query` (text, as `ask` normalises
    it), `documents` (names that the user selected), `hits.text`, `hits.source`, `hits.cosine`,
    `hits.l2`, `hits.s_rerank` (tuples over the first `n_hits` hits in the arm's final order),
    `answer.text`, `answer.confidence`. higher: `surer` where more of it speaks for an answer, `ask`
    where more of it speaks for asking back. unit: one of `raglab.signals.UNITS`, such as
    `probability`, or any words. stage: what must be there before it is measured. missing: what a
    NaN means to its gate. version: to be raised with every change of what it returns. batch: rows
    of one call at most.
    """

    name: str
    fn: Rows = field(repr=False)
    needs: tuple[str, ...] = ("query", "hits.text")
    higher: Literal["surer", "ask"] = "surer"
    unit: str = "probability"
    stage: Literal["query", "hits", "answer"] = "hits"
    missing: Literal["fires", "passes"] = "fires"
    version: str = "1"
    n_hits: int = 4
    batch: int = 64

    def __post_init__(self) -> None:
        """Stop where a field is none of its kind."""
        declared = self.declared
        unknown = [name for name in self.needs if name not in COLUMNS]
        if unknown or not self.needs:
            rule = f"needs of the signal {self.name} must be of {', '.join(COLUMNS)}"
            refuse(rule, ", ".join(unknown) or "none", "correct them")
        reads = {*self.needs}
        least = (
            "answer" if reads & {*ANSWER_COLUMNS} else "hits" if reads & {*HIT_COLUMNS} else "query"
        )
        if STAGES.index(declared.stage) < STAGES.index(least):
            rule = f"stage of the signal {self.name} must be {least} by its needs"
            refuse(rule, repr(self.stage), "correct it")
        for name in ("n_hits", "batch"):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                rule = f"{name} of the signal {self.name} must be a whole number from 1"
                refuse(rule, repr(size), "correct it")
        if not callable(self.fn):
            msg = f"fn of the signal {self.name} must be callable, got {type(self.fn).__name__}."
            raise TypeError(msg)

    @property
    def declared(self) -> Signal:
        """The signal as a trace declares it.

        Raises:
          ValueError: a field that is none of its kind.
        """
        return own_signal(self.name, **self.declaration)

    @property
    def declaration(self) -> dict[str, str]:
        """What a trace says of the signal, by name."""
        names = ("higher", "unit", "stage", "missing", "source", "version")
        return {name: getattr(self, name) for name in names}

    @property
    def needs_answers(self) -> bool:
        """Whether it reads the answer, which must then be there before anything is decided."""
        return bool({*self.needs} & {*ANSWER_COLUMNS})

    @property
    def source(self) -> str:
        """What measures it, by its name in its module.

        The module's own name hangs on how it was started.
        """
        fn = inspect.unwrap(self.fn)
        return f"function {getattr(fn, '__qualname__', type(fn).__qualname__)}"[
            :MAX_TEXT_CHARACTERS
        ]

    def __call__(self, rows: pd.DataFrame) -> Sequence[float]:
        """Numbers of the rows, as the function has them."""
        return self.fn(rows)

    @property
    def identity(self) -> str:
        """Name, version and digest of the function's own code, which changes as it is written."""
        made_of = [self.unit, self.n_hits, _code_of(inspect.unwrap(self.fn))]
        return f"{self.name} {self.version} {digest(canonical_json(made_of), 16)}"


STAGES = get_args(Stage)
# defaults whose text is the same in every process
_PLAIN = (bool, int, float, str, bytes, type(None))
_REGISTERED: dict[str, SignalFunction] = {}


def _code_of(fn: Any) -> list[Any]:  # noqa: ANN401 - a function, or what can be called like one
    """Code of a function, and the plain values among its defaults and what it closes over."""
    # of its class
    function = fn if hasattr(fn, "__code__") else getattr(type(fn), "__call__")  # noqa: B004, B009
    held = list(getattr(function, "__defaults__", None) or ())
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # one that is empty yet
            held.append(cell.cell_contents)
    plain = [repr(value) for value in held if isinstance(value, _PLAIN)]
    return [plain, _code_parts(getattr(function, "__code__", None))]


def _code_parts(code: Any) -> Any:  # noqa: ANN401 - a code object or a constant
    """What a function does, as far as its own code tells.

    Instructions, names and constants, equal in every process.
    """
    if isinstance(code, CodeType):
        return [
            code.co_code.hex(),
            [*code.co_names, *code.co_varnames],
            [_code_parts(constant) for constant in code.co_consts],
        ]
    return sorted(map(repr, code)) if isinstance(code, frozenset) else repr(code)


# fields of SignalFunction
def register_signal(name: str | SignalFunction | None = None, **fields: Any) -> Any:  # noqa: ANN401
    """Make a signal known by its name: a decorator of its function, or a `SignalFunction` as it is.

    A later function replaces an earlier one of the same name, as when a notebook's cell runs twice.

    Args:
      name: of the signal, the function's own where not given; or the signal function that a factory
        made.
      **fields: the other fields of `SignalFunction`.

    Returns:
      The `SignalFunction`, which can be called as the function that it decorates.

    Example:
      >>> import pandas as pd
      >>> @register_signal(needs=("query",), unit="probability", stage="query")
      ... def question_mark(rows):
      ...     return [float(text.endswith("?")) for text in rows["query"]]
      >>> question_mark(pd.DataFrame({"query": ["Who pays?", "storm"]}))
      [1.0, 0.0]
    """
    if isinstance(name, SignalFunction):
        _REGISTERED[name.name] = name
        return name

    def decorate(fn: Rows) -> SignalFunction:
        own = str(getattr(fn, "__name__", "")) if name is None else name
        return register_signal(SignalFunction(name=own, fn=fn, **fields))

    return decorate


def signal_function(signal: str | SignalFunction) -> SignalFunction:
    """The signal function of a name.

    Registered in this process, else of an entry point, which is imported now.

    Raises:
      ValueError: there is none of that name, or its entry point cannot be imported.
    """
    if isinstance(signal, SignalFunction):
        return signal
    check_name(signal)
    if signal in _REGISTERED:
        return _REGISTERED[signal]
    entries = [*entry_points(group=GROUP, name=signal)]
    values = {entry.value: _owner(entry) for entry in entries}
    if len(values) != 1:
        names = sorted({*_REGISTERED, *entry_points(group=GROUP).names})
        value = f"{signal!r} of {', '.join(values.values())}" if values else repr(signal)
        remedy = (
            f"registered: {', '.join(names) or 'none'}; import the module of its "
            f"@raglab.register_signal, or keep one entry point of {GROUP}"
        )
        refuse("a signal must be registered once", value, remedy)
    return _imported(entries[0])


def signal_functions(
    signals: str | SignalFunction | Iterable[str | SignalFunction],
) -> tuple[SignalFunction, ...]:
    """Signal functions of different names, each by itself or by its name.

    Raises:
      TypeError: one is neither a name nor a signal function.
      ValueError: as `signal_function`, or two have a name.
    """
    listed: list[Any] = [signals]
    if isinstance(signals, Iterable) and not isinstance(signals, str | SignalFunction):
        listed = list(signals)
    for signal in listed:
        if not isinstance(signal, str | SignalFunction):
            kind = signal.__name__ if isinstance(signal, type) else type(signal).__name__
            msg = (
                f"a signal must be a name or a signal function, got {kind}; see "
                "raglab.register_signal and SignalCalibration.signal_function."
            )
            raise TypeError(msg)
    functions = tuple(signal_function(signal) for signal in listed)
    for name, count in Counter(function.name for function in functions).items():
        if count > 1:
            refuse("signals must have different names", f"{name} twice", "leave one out")
    return functions


def _owner(entry: EntryPoint) -> str:
    return "no distribution" if entry.dist is None else entry.dist.name


def _imported(entry: EntryPoint) -> SignalFunction:
    """Signal function of an entry point.

    Raises:
      ValueError: it cannot be imported, or is none of this name; names the distribution.
    """
    rule = f"the entry point {entry.name} = {entry.value} of {_owner(entry)} must be"
    try:
        loaded = entry.load()
    except (Exception, SystemExit) as error:
        value = f"{type(error).__name__}: {visible(str(error))[:MAX_TEXT_CHARACTERS]}"
        msg = f"{rule} importable, got {value}; mend or remove that distribution."
        raise ValueError(msg) from error
    if not isinstance(loaded, SignalFunction) or loaded.name != entry.name:
        value = loaded.name if isinstance(loaded, SignalFunction) else type(loaded).__name__
        refuse(f"{rule} a signal function of this name", f"{value!r:.80}", "correct it")
    return loaded
