"""The outermost door (shore): a command's exception as one line and exit code, stack on demand."""

from __future__ import annotations

import codecs
import dis
import errno
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from raglab.store.files import InputError, shown_value
from raglab.values import ModelUnavailableError
from raglab.words.characters import masked_passwords, visible

EXIT_CODES = (
    "Exit codes: 0 done · 1 an input was refused, the message says why; or decide --strict found "
    "a failed contract · "
    "2 wrong usage · 3 a promise is not certified or is broken, or a check found a loss · 4 too "
    "few cases to say · "
    "5 a log was damaged or altered · "
    "69 a language model or its server failed: ask again · "
    "70 an error inside raglab · 130 interrupted · 141 whoever read the output has gone."
)
DEBUG = "--debug"
DEBUG_VARIABLE = "RAGLAB_DEBUG"
REFUSED, USAGE, UNAVAILABLE, INTERNAL, INTERRUPTED, NO_READER = 1, 2, 69, 70, 130, 141
_NO = {"", "0", "false", "no", "off"}
_WIDEST_LINE = 1_000
_OF_RAGLAB = str(Path(__file__).parents[1]) + os.sep
_RAISES = dis.opmap["RAISE_VARARGS"]
_CLICK: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class Refusal(NamedTuple):
    """What the command line says of an error, in one line, and the exit code."""

    text: str
    code: int = REFUSED


_CHECK = "check path and rights, or choose another"
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EISDIR: "give the path of a file",
    errno.ENOTDIR: "give the path of a folder",
    errno.EEXIST: "choose another path",
    errno.EROFS: "choose a place that may be written",
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EFBIG: "free some space, or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "take away the link that leads back to itself",
    errno.EMFILE: "end other programs, or raise the limit of open files",
    errno.ENFILE: "end other programs, or raise the limit of open files",
    errno.EADDRINUSE: "choose another port",
}
# What the libraries below refuse, by the package of the error: rule and remedy.
_LIBRARIES: Mapping[str, tuple[str, str]] = {
    "yaml": ("a file of settings must be YAML", "correct it"),
    "sqlalchemy": (
        "a log must be a database that raglab wrote and may open",
        "check its place and rights",
    ),
    "sqlite3": (
        "a log must be a database that raglab wrote and may open",
        "check its place and rights",
    ),
    "psycopg": (
        "a log must be a database that raglab wrote and may open",
        "check its place and rights",
    ),
    "pyarrow": ("a Parquet file must be whole", "write it again"),
    "pandas": ("a table must be whole and have the columns that are asked for", "correct it"),
    "duckdb": ("a table must be whole and have the columns that are asked for", "correct it"),
    "pydantic": ("a value must fit its field", "correct it"),
    "pydantic_core": ("a value must fit its field", "correct it"),
    "mlflow": (
        "the folder of --mlruns must be one that MLflow may write",
        "choose another, or give --no-track",
    ),
    "alembic": (
        "the folder of --mlruns must be one that MLflow may write",
        "choose another, or give --no-track",
    ),
    "optuna": ("a study must fit its trials", "correct the options"),
    "huggingface_hub": ("a model must be a path or a name that can be fetched", "correct it"),
    "safetensors": ("a model must be whole", "fetch it again"),
}
# What Python itself refuses, the narrower kinds first.
_OF_PYTHON: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (
        RecursionError,
        (
            "an input must not be nested so deep, got more levels than Python follows; make it "
            "flatter."
        ),
    ),
    (
        MemoryError,
        (
            "an input must fit into memory, got more; take smaller files, or fewer trials, rounds "
            "or "
            "users."
        ),
    ),
    (
        UnicodeError,
        "text must be Unicode, got {value}; save files as UTF-8 and correct odd file names.",
    ),
    (OverflowError, "a number must fit into 64 bits, got {value}; choose one nearer to zero."),
    (
        ImportError,
        (
            "what a command needs must be installed, got {value}; install raglab with the extra "
            "that "
            "has it."
        ),
    ),
    (
        (ValueError, OSError, EOFError),
        f"files and options must fit the command, got {{value}}; {DEBUG} shows where.",
    ),
)


def refusal(error: BaseException) -> Refusal:
    """Line and exit code of an error that ends a command.

    What raglab raises states rule, value and remedy by itself; what a library or the system raises
    gets them here.

    Example:
      >>> refusal(FileNotFoundError(2, "No such file or directory", "a.csv")).text
      'a.csv: the system must be able to read or write it, got No such file or directory; check \
the path.'
      >>> refusal(ZeroDivisionError("division by zero")).code
      70
    """
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return Refusal("", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        return Refusal("", NO_READER)
    if isinstance(error, _CLICK):
        return Refusal(_usage(error), error.exit_code)
    if isinstance(error, InputError | ModelUnavailableError) or (
        isinstance(error, Exception) and _raised_by_raglab(error)
    ):
        return Refusal(
            _text(error), UNAVAILABLE if isinstance(error, ModelUnavailableError) else REFUSED
        )
    stated = _stated_by_others(error)
    if stated is None:
        return Refusal(
            f"internal error: {_error_text(error)}; run again with {DEBUG} and report it.", INTERNAL
        )
    return Refusal(stated)


# of click, which typer carries under a name of its own
def _usage(error: Any) -> str:  # noqa: ANN401
    ctx, cause = getattr(error, "ctx", None), error.__cause__
    value = f", got {shown_value(cause.errors()[0]['input'])}" if hasattr(cause, "errors") else ""
    command = ctx.command_path if ctx else "raglab"
    return f"{error.format_message().strip().rstrip('.')}{value}; see `{command} --help`."


def _text(error: BaseException) -> str:
    """Message of an error; that of a KeyError without quotes."""
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)


def _error_text(error: BaseException) -> str:
    """Kind and first words of an error."""
    text = " ".join(_text(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _raised_by_raglab(error: Exception) -> bool:
    """Whether raglab itself raised the error for invalid input, not a call into something else."""
    last = error.__traceback__
    if last is None or not isinstance(error, ValueError | KeyError | ImportError | OSError):
        return False
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    # a message of the system, whoever raised it
    named = isinstance(error, OSError) and error.errno is not None
    return (
        code.co_filename.startswith(_OF_RAGLAB)
        and code.co_code[last.tb_lasti] == _RAISES
        and not named
    )


def _stated_by_others(error: BaseException) -> str | None:
    """Rule, value and remedy for an error of the system or a library.

    None where it is nobody's input.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error)
    package = type(error).__module__.partition(".")[0]
    if package in _LIBRARIES:
        rule, remedy = _LIBRARIES[package]
        return f"{rule}, got {_error_text(error)}; {remedy}."
    for kinds, line in _OF_PYTHON:
        if isinstance(error, kinds):
            return line.format(value=_error_text(error))
    return None


def _of_system(error: OSError) -> str:
    shown = (
        os.fsdecode(error.filename)
        if isinstance(error.filename, str | bytes)
        else "a file or address"
    )
    reason = error.strerror or type(error).__name__
    rule = "the system must be able to read or write it"
    return f"{shown}: {rule}, got {reason}; {_REMEDIES.get(error.errno or 0, _CHECK)}."


def one_line(text: str) -> str:
    """Text as one line that a terminal may show, without passwords.

    Of a long one the middle is left out.

    The value stands in the middle, rule and remedy after it.
    """
    line = visible(masked_passwords(re.sub(r"\s*[\r\n]+\s*", " ", text.strip())))
    return (
        line
        if len(line) <= _WIDEST_LINE
        else f"{line[: _WIDEST_LINE // 2]} … {line[-_WIDEST_LINE // 2 :]}"
    )


class Door(TyperGroup):
    """The group of all commands: whatever one of them raises ends here."""

    # of click
    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *_: Any,  # noqa: ANN401
        **extra: Any,  # noqa: ANN401
    ) -> NoReturn:
        """Run the command of the arguments; end with its exit code."""
        stated = list(sys.argv[1:] if args is None else args)
        rest = stated.index("--") if "--" in stated else len(stated)  # what follows is no option
        debug = (
            DEBUG in stated[:rest] or os.environ.get(DEBUG_VARIABLE, "").strip().lower() not in _NO
        )
        command_line = [argument for argument in stated[:rest] if argument != DEBUG] + stated[rest:]
        extra.pop("standalone_mode", None)
        # What options set for their command, such as no progress bars, ends with it, refused or
        # not.
        sys.exit(
            copy_context().run(self._run, command_line, prog_name or "raglab", extra, debug=debug)
        )

    def _run(self, args: list[str], name: str, extra: dict[str, Any], *, debug: bool) -> int:
        try:
            check_arguments(args)
            if "--help" not in args:
                check_environment()
            with (
                warnings.catch_warnings(),
                self.make_context(
                    name, [*args] or ["--help"], obj=shell_command(args), **extra
                ) as ctx,
            ):
                warnings.showwarning = _show_warning
                self.invoke(ctx)
            _flush()
        except typer.Exit as ended:
            return _flushed(ended.exit_code if args else USAGE)
        except BaseException as error:
            if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
                return NO_READER  # how rich, which prints the help, ends where nobody reads
            if isinstance(error, SystemExit | GeneratorExit):
                raise
            return _tell(error, debug=debug)
        return 0


def check_arguments(args: Sequence[str]) -> None:
    """Refuse arguments that no file and no question can have.

    Raises:
      InputError: half a surrogate pair, which is a byte that is no UTF-8, or a NUL.
    """
    for argument in args:
        if "\0" in argument or any("\ud800" <= letter <= "\udfff" for letter in argument):
            msg = (
                f"an argument must be text in UTF-8 without NUL, got {argument!a:.80}; rename the "
                "file or correct it."
            )
            raise InputError(msg)


def check_environment() -> None:
    """Refuse an unknown variable prefixed RAGLAB_, whether or not the command reads settings.

    Raises:
      InputError: names it, and the nearest that there is.
    """
    if {name for name in os.environ if name.upper().startswith("RAGLAB_")} - {
        DEBUG_VARIABLE,
        "RAGLAB_CACHE",
        "RAGLAB_DOWNLOAD",
        "RAGLAB_PROGRESS",
    }:
        from raglab.live.settings import check_variables

        check_variables(None)


def shell_command(args: Sequence[str]) -> str:
    """Command line of some arguments, as a shell takes it, without passwords.

    Example:
      >>> shell_command(["trace", "my documents", "--out", "t.parquet"])
      "raglab trace 'my documents' --out t.parquet"
    """
    return shlex.join(["raglab", *map(masked_passwords, args)])


def _tell(error: BaseException, *, debug: bool) -> int:
    """Print the line of an error, under its stack where that is asked for; the exit code."""
    text, code = refusal(error)
    with suppress(OSError, ValueError):
        if debug:
            stack = "".join(traceback.format_exception(error))
            echo(visible(masked_passwords(stack), lines=True), err=True)
        if text:
            echo(f"raglab: {one_line(text)}\n", err=True)
    return code if code == NO_READER else _flushed(code)


def echo(text: str, *, err: bool = False) -> None:
    """Write a text that may be shown to a standard stream, at once.

    Raises:
      OSError: the stream cannot take it; names it.
    """
    try:
        typer.echo(text, err=err, nl=False)
    except OSError as error:
        error.filename = "the standard error" if err else "the standard output"
        raise


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


# of warnings.showwarning
def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:  # noqa: ANN401
    """A library's warning as one line, in the place of a line of its source."""
    echo(f"warning: {one_line(str(message))}\n", err=True)


def _flushed(code: int) -> int:
    """Exit code after the last of the output has gone, or could not go."""
    try:
        _flush()
    except BrokenPipeError:
        return NO_READER
    except OSError:
        return code or REFUSED
    return code


def open_standard_streams() -> None:
    """Give a process silent standard streams if it has none, and escape text it cannot encode.

    The text is what a terminal cannot encode.

    A file that is opened where a stream was closed would take its number, and be written over by
    what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    codecs.register_error("raglab.escape", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="raglab.escape")


def close_standard_streams() -> None:
    """Send unwritable output to nobody, so that the interpreter ends without a word about it."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Characters that a stream has no code for as `\uXXXX`, which is right in JSON too."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json_escapes(error.object[error.start : error.end]), error.end


def json_escapes(text: str) -> str:
    r"""Characters as JSON escapes them, by halves of a surrogate pair where they need one.

    Example:
      >>> json_escapes("é😀")
      '\\u00e9\\ud83d\\ude00'
    """
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
