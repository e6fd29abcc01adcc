"""Commands of traces (shore): how to build a trace again, as its file remembers it.

A command is repeated only where it is ours.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

from raglab.words.characters import visible

_LONGEST_COMMAND = 2_000
NEW = "NEW.parquet"
_PLAIN = ("raglab", "trace", "CORPUS", "--cases", "CASES")


def rebuild_command(path: Path, stored: object) -> str:
    """Command that builds a trace again, never over a file that is there.

    Args:
      path: of the trace that cannot be used.
      stored: command that the file says it was made by; it may be anyone's, so that it is repeated
        only where it is a line of `raglab trace` or `raglab demo`, each word quoted for the shell,
        and without its file to write.

    Example:
      >>> rebuild_command(Path("/"), "raglab trace docs --out t.parquet -q")
      'raglab trace docs -q --out NEW.parquet'
      >>> rebuild_command(Path("none.parquet"), "raglab trace docs; rm -rf ~")
      "raglab trace 'docs;' rm -rf '~' --out none.parquet"
      >>> rebuild_command(Path("none.parquet"), "rm -rf ~")
      'raglab trace CORPUS --cases CASES --out none.parquet'
    """
    words: list[str] = []
    # a terminal or a shell could take another text for more than words
    if isinstance(stored, str) and len(stored) <= _LONGEST_COMMAND and visible(stored) == stored:
        with suppress(ValueError):
            words = shlex.split(stored)
    if words == ["raglab", "demo"]:
        return "raglab demo --out NEW"
    arguments: list[str] = []
    rest = iter(words if words[:2] == ["raglab", "trace"] else _PLAIN)
    for word in rest:
        if word in {"--out", "-o"}:
            next(rest, "")
        elif not word.startswith(("--out", "-o")):
            arguments.append(word)
    return shlex.join([*arguments, "--out", NEW if path.exists() else str(path)])
