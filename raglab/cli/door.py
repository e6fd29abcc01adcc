"""The outermost door (shore): a command's exception as one line and exit code, stack on demand."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from raglab.values import ModelUnavailableError
from raglab.words.characters import masked_passwords, visible

EXIT_CODES = (
    "Exit codes: 0 done · 1 an input was refused, or decide --strict failed · 2 wrong usage · "
    "3 not certified, broken, or a loss · 4 too few cases · 69 a model or its server failed · "
    "70 an error inside raglab · 130 interrupted · 141 no reader."
)
DEBUG = "--debug"
DEBUG_VARIABLE = "RAGLAB_DEBUG"
EXIT_REFUSED, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_NO_READER = (
    1,
    2,
    69,
    70,
    130,
    141,
)
_USAGE_ERROR: Any = (
    typer.BadParameter.__base__
)  # the UsageError of click, which typer carries along
# What an input makes Python raise, and the packages with kinds of their own for it.
_INPUT_ERRORS = (
    ValueError,
    OSError,
    ImportError,
    EOFError,
    MemoryError,
    RecursionError,
    OverflowError,
)
_INPUT_PACKAGES = "yaml sqlalchemy sqlite3 psycopg pyarrow duckdb mlflow alembic optuna safetensors"


def refusal(error: Exception) -> tuple[str, int]:
    """Line and exit code of an error that ends a command.

    A sentence states rule, value and remedy by itself; other errors of an input get them here.
    What no input explains is an error inside raglab.

    Example:
      >>> refusal(ValueError("trials must be at least 1, got 0."))
      ('trials must be at least 1, got 0.', 1)
      >>> refusal(ZeroDivisionError("division by zero"))[1]
      70
    """
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    error_description = f"{type(error).__name__}: {text}"
    if isinstance(error, _USAGE_ERROR):
        text = error.format_message().strip(" .\n")
        command_path = error.ctx.command_path if error.ctx else "raglab"  # none at an option's end
        return f"{text}; see `{command_path} --help`.", EXIT_USAGE
    if isinstance(error, ModelUnavailableError):
        return text, EXIT_UNAVAILABLE
    if isinstance(error, OSError) and error.strerror:
        text = ""
        error_description = f"{error.filename or 'a stream'}: {error.strerror}"
    if isinstance(error, (*_INPUT_ERRORS, KeyError)) and text.endswith((".", "?")):
        return text, EXIT_REFUSED
    if (
        isinstance(error, _INPUT_ERRORS)
        or type(error).__module__.partition(".")[0] in _INPUT_PACKAGES.split()
    ):
        return (
            f"an input must fit the command, got {error_description}; check it, or run {DEBUG}.",
            EXIT_REFUSED,
        )
    return (
        f"internal error: {error_description}; run again with {DEBUG} and report it.",
        EXIT_INTERNAL,
    )


def one_line(text: str) -> str:
    """Text as one line that a terminal may show, without passwords.

    Of a long one the middle is left out: there stands the value, rule and remedy around it.
    """
    line = visible(masked_passwords(" ".join(map(str.strip, text.strip().splitlines()))))
    return line if len(line) <= 1_000 else f"{line[:500]} … {line[-500:]}"


class Door(TyperGroup):
    """The group of all commands: what one of them raises ends here."""

    # of click
    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Run the command of the arguments; end with its exit code."""
        # What options set for their command, such as no progress bars, ends with it.
        sys.exit(copy_context().run(self._run, sys.argv[1:] if args is None else args))

    def _run(self, command_arguments: Sequence[str]) -> int:
        shows_stack = DEBUG in command_arguments or os.environ.get(DEBUG_VARIABLE, "") not in {
            "",
            "0",
        }
        passed_arguments = [argument for argument in command_arguments if argument != DEBUG]
        try:
            "".join(
                passed_arguments
            ).encode()  # refuses a byte that is no UTF-8, before anything is read
            if "--help" not in passed_arguments and any(
                variable_name.upper().startswith("RAGLAB_") for variable_name in os.environ
            ):
                from raglab.live.settings import check_variables

                check_variables(None)
            with (
                warnings.catch_warnings(),
                self.make_context(
                    "raglab", [*passed_arguments] or ["--help"], obj=shell_command(passed_arguments)
                ) as command_context,
            ):
                warnings.showwarning = lambda message, *_, **__: typer.echo(
                    f"warning: {one_line(str(message))}", err=True
                )
                self.invoke(command_context)
        except typer.Exit as ended:
            return ended.exit_code if passed_arguments else EXIT_USAGE
        except (KeyboardInterrupt, typer.Abort):
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            return EXIT_NO_READER
        except SystemExit as ended:  # so ends rich, which prints the help, where nobody reads
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            return EXIT_NO_READER
        except Exception as error:  # noqa: BLE001 - the last to see it
            refusal_text, exit_code = refusal(error)
            with suppress(OSError):
                if shows_stack:
                    stack_text = masked_passwords(traceback.format_exc())
                    typer.echo(visible(stack_text, lines=True), err=True)
                typer.echo(f"raglab: {one_line(refusal_text)}", err=True)
            return exit_code
        return 0


def shell_command(args: Sequence[str]) -> str:
    """Command line of some arguments, as a shell takes it, without passwords.

    Example:
      >>> shell_command(["trace", "my documents", "--out", "t.parquet"])
      "raglab trace 'my documents' --out t.parquet"
    """
    return shlex.join(["raglab", *map(masked_passwords, args)])


@contextmanager
def standard_streams() -> Iterator[None]:
    """Standard streams that are there, take every text, and end without a word of Python.

    A file that is opened where a stream was closed would take its number, and be written over by
    what is printed. A character that a stream has no code for is escaped.
    """
    while (
        file_number := os.open(os.devnull, os.O_RDWR)
    ) < 3:  # takes the lowest number that is free
        pass
    os.close(file_number)
    open_streams: list[Any] = list(filter(None, (sys.stdout, sys.stderr)))
    for open_stream in open_streams:
        open_stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for open_stream in open_streams:
            try:
                open_stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), open_stream.fileno())
