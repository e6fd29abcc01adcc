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

ENTRY_POINT_GROUP = "raglab.signals"  # of entry points
QUERY_COLUMNS = ("query", "documents")
HIT_COLUMNS = ("hits.text", "hits.source", "hits.cosine", "hits.l2", "hits.s_rerank")
ANSWER_COLUMNS = ("answer.text", "answer.confidence")
ROW_COLUMNS = (*QUERY_COLUMNS, *HIT_COLUMNS, *ANSWER_COLUMNS)
RowFunction = Callable[["pd.DataFrame"], "Sequence[float]"]


def _needed_columns(column_names: str | Iterable[str]) -> tuple[str, ...]:
    return (column_names,) if isinstance(column_names, str) else tuple(column_names)


@converted(needs=_needed_columns)
@dataclass(frozen=True, slots=True, eq=False)
class SignalFunction:
    """A signal with the function that measures it.

    name: of the signal, as policies and traces have it. fn: takes a frame of the columns in
    `needs`, one row a case, arm and depth, and returns as many numbers in the order of the rows;
    NaN without anything to measure. needs: of `ROW_COLUMNS`: `query` (text, as `ask`
    normalises it), `documents` (names that the user selected), `hits.text`, `hits.source`,
    `hits.cosine`, `hits.l2`, `hits.s_rerank` (tuples over the first `n_hits` hits in the arm's
    final order), `answer.text`, `answer.confidence`. higher: `surer` where more of it speaks for an
    answer, `ask` where more of it speaks for asking back. unit: one of `raglab.signals.UNITS`, such
    as `probability`, or any words. stage: what must be there before it is measured. missing: what a
    NaN means to its gate. version: to be raised with every change of what it returns. batch: rows
    of one call at most.
    """

    name: str
    fn: RowFunction = field(repr=False)
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
        declared_signal = self.declared
        unknown_columns = [field_name for field_name in self.needs if field_name not in ROW_COLUMNS]
        if unknown_columns or not self.needs:
            refuse(
                f"needs of the signal {self.name} must be of {', '.join(ROW_COLUMNS)}",
                ", ".join(unknown_columns) or "none",
                "correct them",
            )
        read_columns = {*self.needs}
        least_stage = (
            "answer"
            if read_columns & {*ANSWER_COLUMNS}
            else "hits"
            if read_columns & {*HIT_COLUMNS}
            else "query"
        )
        if SIGNAL_STAGES.index(declared_signal.stage) < SIGNAL_STAGES.index(least_stage):
            refuse(
                f"stage of the signal {self.name} must be {least_stage} by its needs",
                repr(self.stage),
                "correct it",
            )
        for field_name in ("n_hits", "batch"):
            value = getattr(self, field_name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                refuse(
                    f"{field_name} of the signal {self.name} must be a whole number from 1",
                    repr(value),
                    "correct it",
                )
        if not callable(self.fn):
            message = (
                f"fn of the signal {self.name} must be callable, got {type(self.fn).__name__}."
            )
            raise TypeError(message)

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
        field_names = ("higher", "unit", "stage", "missing", "source", "version")
        return {field_name: getattr(self, field_name) for field_name in field_names}

    @property
    def needs_answers(self) -> bool:
        """Whether it reads the answer, which must then be there before anything is decided."""
        return bool({*self.needs} & {*ANSWER_COLUMNS})

    @property
    def source(self) -> str:
        """What measures it, by its name in its module.

        The module's own name depends on how it was started.
        """
        inner_function = inspect.unwrap(self.fn)
        name = getattr(inner_function, "__qualname__", type(inner_function).__qualname__)
        return f"function {name}"[:MAX_TEXT_CHARACTERS]

    def __call__(self, rows: pd.DataFrame) -> Sequence[float]:
        """Numbers of the rows, as the function has them."""
        return self.fn(rows)

    @property
    def identity(self) -> str:
        """Name, version and digest of the function's own code, which changes as it is written."""
        parts = [self.unit, self.n_hits, _code_of(inspect.unwrap(self.fn))]
        return f"{self.name} {self.version} {digest(canonical_json(parts), 16)}"


SIGNAL_STAGES = get_args(Stage)
# defaults whose text is the same in every process
_PLAIN_TYPES = (bool, int, float, str, bytes, type(None))
_REGISTERED_SIGNALS: dict[str, SignalFunction] = {}


def _code_of(signal_callable: Any) -> list[Any]:  # noqa: ANN401 - a function, or what can be called like one
    """Code of a function, and the plain values among its defaults and what it closes over."""
    # of its class
    code_function = signal_callable
    if not hasattr(signal_callable, "__code__"):
        code_function = getattr(type(signal_callable), "__call__")  # noqa: B004, B009
    closed_values = list(getattr(code_function, "__defaults__", None) or ())
    for cell in getattr(code_function, "__closure__", None) or ():
        with suppress(ValueError):  # one that is empty yet
            closed_values.append(cell.cell_contents)
    plain_texts = [
        repr(closed_value)
        for closed_value in closed_values
        if isinstance(closed_value, _PLAIN_TYPES)
    ]
    return [plain_texts, _code_parts(getattr(code_function, "__code__", None))]


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
        _REGISTERED_SIGNALS[name.name] = name
        return name

    def decorate(fn: RowFunction) -> SignalFunction:
        signal_name = str(getattr(fn, "__name__", "")) if name is None else name
        return register_signal(SignalFunction(name=signal_name, fn=fn, **fields))

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
    if signal in _REGISTERED_SIGNALS:
        return _REGISTERED_SIGNALS[signal]
    matching_entries = [*entry_points(group=ENTRY_POINT_GROUP, name=signal)]
    owner_of_value = {
        matching_entry.value: _owner(matching_entry) for matching_entry in matching_entries
    }
    if len(owner_of_value) != 1:
        known_names = sorted({*_REGISTERED_SIGNALS, *entry_points(group=ENTRY_POINT_GROUP).names})
        signal_text = (
            f"{signal!r} of {', '.join(owner_of_value.values())}"
            if owner_of_value
            else repr(signal)
        )
        refuse(
            "a signal must be registered once",
            signal_text,
            (
                f"registered: {', '.join(known_names) or 'none'}; import the module of its "
                f"@raglab.register_signal, or keep one entry point of {ENTRY_POINT_GROUP}"
            ),
        )
    return _imported(matching_entries[0])


def signal_functions(
    signals: str | SignalFunction | Iterable[str | SignalFunction],
) -> tuple[SignalFunction, ...]:
    """Signal functions of different names, each by itself or by its name.

    Raises:
      TypeError: one is neither a name nor a signal function.
      ValueError: as `signal_function`, or two have a name.
    """
    listed_signals: list[Any] = [signals]
    if isinstance(signals, Iterable) and not isinstance(signals, str | SignalFunction):
        listed_signals = list(signals)
    for signal in listed_signals:
        if not isinstance(signal, str | SignalFunction):
            type_name = signal.__name__ if isinstance(signal, type) else type(signal).__name__
            message = (
                f"a signal must be a name or a signal function, got {type_name}; see "
                "raglab.register_signal and SignalCalibration.signal_function."
            )
            raise TypeError(message)
    functions = tuple(signal_function(signal) for signal in listed_signals)
    for function_name, n_functions in Counter(function.name for function in functions).items():
        if n_functions > 1:
            refuse("signals must have different names", f"{function_name} twice", "leave one out")
    return functions


def _owner(package_entry: EntryPoint) -> str:
    return "no distribution" if package_entry.dist is None else package_entry.dist.name


def _imported(package_entry: EntryPoint) -> SignalFunction:
    """Signal function of an entry point.

    Raises:
      ValueError: it cannot be imported, or is none of this name; names the distribution.
    """
    requirement = (
        f"the entry point {package_entry.name} = {package_entry.value} of "
        f"{_owner(package_entry)} must be"
    )
    try:
        loaded_value = package_entry.load()
    except (Exception, SystemExit) as error:
        value_text = f"{type(error).__name__}: {visible(str(error))[:MAX_TEXT_CHARACTERS]}"
        message = f"{requirement} importable, got {value_text}; mend or remove that distribution."
        raise ValueError(message) from error
    if not isinstance(loaded_value, SignalFunction) or loaded_value.name != package_entry.name:
        value_text = (
            loaded_value.name
            if isinstance(loaded_value, SignalFunction)
            else type(loaded_value).__name__
        )
        refuse(f"{requirement} a signal function of this name", f"{value_text!r:.80}", "correct it")
    return loaded_value
