"""Commands of traces (shore): how to build a trace again, as its file remembers it.

A command is repeated only where it is ours.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from raglab.words.characters import visible

# Options of `raglab trace` that take a value, and those that take none; --out is stated anew.
_VALUED = (
    "--cases",
    "-c",
    "--policy",
    "-p",
    "--arm",
    "--encoder",
    "--reranker",
    "--index",
    "--fetch-k",
    "--rerank-k",
    "--dense-weight",
    "--precision",
    "--turns",
    "--columns",
    "--corpus-columns",
    "--encoding",
    "--cases-encoding",
    "--split",
)
TRACE_OPTIONS = frozenset({*_VALUED, "--max-depth", "--out", "-o"})
TRACE_FLAGS = frozenset({"--download", "--follow-links", "--quiet", "-q", "--json"})
_LONGEST_COMMAND = 2_000
NEW = "NEW.parquet"
_TRACE = ("raglab", "trace")
_PLAIN = ("CORPUS", "--cases", "CASES")


def rebuild_command(path: Path, stored: object) -> str:
    """Command that builds a trace again, never over a file that is there.

    Args:
      path: of the trace that cannot be used.
      stored: command that the file says it was made by; it may be anyone's, so that it is repeated
        only where it is a line of `raglab trace` or `raglab demo`, each word quoted for the shell.

    Example:
      >>> rebuild_command(Path("/"), "raglab trace docs --out t.parquet -q")
      'raglab trace docs -q --out NEW.parquet'
      >>> rebuild_command(Path("none.parquet"), "raglab trace docs; rm -rf ~")
      'raglab trace CORPUS --cases CASES --out none.parquet'
    """
    words = _stored_words(stored)
    if words == ["raglab", "demo"]:
        return "raglab demo --out NEW"
    arguments = _trace_words(words[2:]) if tuple(words[:2]) == _TRACE else []
    return shlex.join(
        [*_TRACE, *(arguments or _PLAIN), "--out", NEW if path.exists() else str(path)]
    )


def _trace_words(words: Sequence[str]) -> list[str]:
    """Arguments of `raglab trace` without the file to write; none where it would not take them."""
    arguments: list[str] = []
    corpora = 0
    rest = iter(words)
    for word in rest:
        name, joined, _ = word.partition("=")
        if name in TRACE_OPTIONS:
            stated = [word] if joined else [word, next(rest, "")]
            arguments += [] if name in {"--out", "-o"} else stated
        elif word.startswith("-") and word not in TRACE_FLAGS:
            return []
        else:
            corpora += not word.startswith("-")
            arguments.append(word)
    return arguments if corpora == 1 else []


def _stored_words(stored: object) -> list[str]:
    """Words of a stored command.

    None where a terminal or a shell would take it for more than that.
    """
    if not isinstance(stored, str) or len(stored) > _LONGEST_COMMAND or visible(stored) != stored:
        return []
    try:
        return shlex.split(stored)
    except ValueError:
        return []
