"""Commands of traces (shore): how to build a trace again, as its file remembers it.

A command is repeated only where it is ours.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

from raglab.words.characters import visible

_LONGEST_COMMAND = 2_000
NEW_TRACE = "NEW.parquet"
_PLAIN_COMMAND = ("raglab", "trace", "CORPUS", "--cases", "CASES")


def rebuild_command(trace_path: Path, stored_command: object) -> str:
    """Command that builds a trace again, never over a file that is there.

    Args:
      trace_path: of the trace that cannot be used.
      stored_command: command that the file says it was made by; it may be anyone's, so it is
        repeated only if it is a line of `raglab trace` or `raglab demo`, each word quoted for the
        shell, and without its file to write.

    Example:
      >>> rebuild_command(Path("/"), "raglab trace docs --out t.parquet -q")
      'raglab trace docs -q --out NEW.parquet'
      >>> rebuild_command(Path("none.parquet"), "raglab trace docs; rm -rf ~")
      "raglab trace 'docs;' rm -rf '~' --out none.parquet"
      >>> rebuild_command(Path("none.parquet"), "rm -rf ~")
      'raglab trace CORPUS --cases CASES --out none.parquet'
    """
    command_words: list[str] = []
    # a terminal or a shell could take another text for more than words
    if (
        isinstance(stored_command, str)
        and len(stored_command) <= _LONGEST_COMMAND
        and visible(stored_command) == stored_command
    ):
        with suppress(ValueError):
            command_words = shlex.split(stored_command)
    if command_words == ["raglab", "demo"]:
        return "raglab demo --out NEW"
    arguments: list[str] = []
    next_words = iter(command_words if command_words[:2] == ["raglab", "trace"] else _PLAIN_COMMAND)
    for command_word in next_words:
        if command_word in {"--out", "-o"}:
            next(next_words, "")
        elif not command_word.startswith(("--out", "-o")):
            arguments.append(command_word)
    return shlex.join([*arguments, "--out", NEW_TRACE if trace_path.exists() else str(trace_path)])
