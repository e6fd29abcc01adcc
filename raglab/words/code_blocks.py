"""Code blocks (algebra): fenced code among the lines of a text, as CommonMark marks it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_PREFIX = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,3}[.)])\s+)?")  # quote and list marks before a fence
# the info string of a fence of backticks holds no backtick
_FENCE = re.compile(r"`{3,}(?=[^`]*\Z)|~{3,}")
# behind text in its line, as language models write it
_LATE = re.compile(r"(?<!`)`{3,}+(?=\s*+[\w+#.-]*+\s*+\Z)")
_FENCE_END = re.compile(r"[\s>]*(`{3,}|~{3,})\s*")
_LANGUAGE = re.compile(r"\s*([\w+#.-]*)")
_TICKS = re.compile(r"`{3,}")


class CodeBlock(NamedTuple):
    """Fenced code.

    language: as its fence names it, '' for none. lines: of the code, without the marks of a quote
    or list around it. source: its lines in the text, with the fences.
    """

    language: str
    lines: tuple[str, ...]
    source: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """The block with fences of its own kind, longer than any in the code."""
        longest = max(map(len, _TICKS.findall("\n".join(self.lines))), default=2)
        fence = "`" * (longest + 1)
        return "\n".join((fence + self.language, *self.lines, fence))

    @property
    def is_blank(self) -> bool:
        """Whether it holds no code."""
        return not any(line.strip() for line in self.lines)


def split_code(lines: Sequence[str]) -> list[str | CodeBlock]:
    """Lines of a text with each fenced code block in one piece, in order.

    A fence at the beginning of a line that is never closed holds all that follows. One behind text
    in its line counts where it is closed; the text before it is a line of its own.

    Example:
      >>> split_code(["Run:", "```sh", "ls", "```"])
      ['Run:', CodeBlock(language='sh', lines=('ls',), source=('```sh', 'ls', '```'))]
    """
    parts: list[str | CodeBlock] = []
    # length of the shortest late fence that nothing closes: a longer one needs no search
    unclosed = 0
    start = 0
    while start < len(lines):
        line = lines[start]
        # A late fence counts only where it is closed, for prose may hold such marks too.
        prefix = _PREFIX.match(line)
        first = prefix and _FENCE.match(line, prefix.end())
        late = None if first else _LATE.search(line)
        fence = first or late
        # Searching again for a close that is known to be missing would take quadratic time on
        # hostile text.
        if fence is None or (late and unclosed and len(late[0]) >= unclosed):
            parts.append(line)
            start += 1
            continue
        end = _closing_line(lines, start + 1, fence[0])
        if late and end == len(lines):
            unclosed = len(late[0])
            parts.append(line)
            start += 1
            continue
        before = line[: fence.start()]
        parts += [before.rstrip()] if late else []
        language = _LANGUAGE.match(line, fence.end())
        # Quote marks and indentation of the fence repeat in every line, and are no part of the
        # code.
        marks = ("" if late else before).replace("\t", "    ")
        code = tuple(_without_marks(inner, marks) for inner in lines[start + 1 : end])
        parts.append(
            CodeBlock(language[1] if language else "", code, tuple(lines[start : end + 1]))
        )
        start = end + 1
    return parts


def without_fences(text: str) -> str:
    r"""A text with its code, but without the fences.

    Example:
      >>> without_fences("```\nstorm excess\n```")
      'storm excess'
    """
    parts = split_code(text.split("\n"))
    return "\n".join(part if isinstance(part, str) else "\n".join(part.lines) for part in parts)


def _closing_line(lines: Sequence[str], start: int, fence: str) -> int:
    """Number of the line that closes a fence; that of the lines where none does."""
    for number in range(start, len(lines)):
        closing = _FENCE_END.fullmatch(lines[number])
        if closing and closing[1].startswith(fence):
            return number
    return len(lines)


def _without_marks(line: str, marks: str) -> str:
    """A line of code without the quote marks and the indentation of its fence."""
    for _ in range(marks.count(">")):
        line = re.sub(r"\A\s*> ?", "", line)
    width = len(marks.rpartition(">")[2].removeprefix(" ") if ">" in marks else marks)
    return line[min(width, len(line) - len(line.lstrip(" "))) :]
