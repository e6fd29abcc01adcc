"""Mutations of inputs, each drawn from a generator.

Bytes, text, and values of JSON, YAML and cells of a frame.
"""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np

# a file of this name is what hostile input would make if any of it were run
MARKER = "raglab-fuzz-marker"

WORDS = (
    "",
    " ",
    "\0",
    "\x1b[2J",
    "\u202egpj.exe",
    "\ufeff",
    "\r",
    "\f",
    "\u2028",
    "\ud800",
    "é",
    "日本",
    "🙂",
    "e\u0301",
    "NaN",
    "nan",
    "inf",
    "-inf",
    ".inf",
    ".nan",
    "1e400",
    "-1e400",
    "1e-400",
    "-0",
    "0x1F",
    "0o17",
    "1_000",
    "9" * 400,
    "yes",
    "no",
    "on",
    "~",
    "null",
    "None",
    "true",
    "2020-01-01",
    "2020-13-45T99:99:99Z",
    "12:30:45",
    "=1+1",
    "../../etc/passwd",
    "/dev/zero",
    "file:///etc/passwd",
    "a" * 5_000,
    "x\n" * 500,
    "#",
    "---",
    "...",
    "```",
    "|",
    ">",
    "[",
    "]",
    "{",
    "}",
    "[" * 3_000,
    "{" * 500,
    "(" * 200,
    "(a+)+$",
    "\\Q",
    "\\",
    "%s%n",
    "${HOME}",
    "{{7*7}}",
    "@A(1)",
    "!!timestamp foo",
    "!!binary x",
    "!!set {a}",
    "!!int foo",
    "!!float x",
    "&a [*a]",
    "*a",
    "<<: *a",
    "? a",
    ": ",
    f"!!python/object/apply:os.system ['touch {MARKER}']",
    f"__import__('os').system('touch {MARKER}')",
    "- ",
    "'",
    '"',
    f"$(touch {MARKER})",
    f"'; touch {MARKER}; '",
    "'; DROP TABLE requests; --",
    "<script>alert(1)</script>",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.5,
    -0.0,
    1.5,
    -0.5,
    70,
    10**6,
    2**31,
    2**63,
    2**70,
    10**400,
    1e308,
    -1e308,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"a": {"a": {}}}},
    ["a", "a"],
    [1, "a", None],
)


def pick(rng, items):
    """One of some items, as it is."""
    return items[int(rng.integers(len(items)))]


def hostile_value(rng):
    """A value of JSON or YAML that a reader may stumble over."""
    return pick(rng, WORDS) if rng.random() < 0.4 else copy.deepcopy(pick(rng, VALUES))


def mutated_bytes(rng, raw):
    """Bytes with one to four changes.

    Bits flipped, parts cut, doubled, moved or overwritten, hostile words between.
    """
    out = bytearray(raw)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(out) + 1))
        end = min(len(out), at + int(rng.integers(1, max(2, len(out) // 4))))
        match int(rng.integers(8)):
            case 0:
                del out[at:]
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end]
            case 3:
                out[at:at] = pick(rng, WORDS).encode("utf-8", "surrogatepass")
            case 4:
                out[at:end] = rng.bytes(end - at)
            case 5:
                out[at:end] = bytes(end - at)
            case _ if out:
                for place in rng.integers(len(out), size=int(rng.integers(1, 9))):
                    out[place] ^= 1 << int(rng.integers(8))
            case _:
                out += rng.bytes(8)
    return bytes(out)


def mutated_text(rng, text):
    """Text with one to three changes to whole lines and hostile words."""
    lines = text.split("\n")
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        match int(rng.integers(6)):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, lines[int(rng.integers(len(lines)))])
            case 2:
                lines.insert(at, pick(rng, WORDS))
            case 3:
                lines[at] = "  " * int(rng.integers(1, 4)) + lines[at]
            case 4:
                place = int(rng.integers(len(lines[at]) + 1))
                lines[at] = lines[at][:place] + pick(rng, WORDS) + lines[at][place:]
            case _:
                head, mark, _ = lines[at].partition(":")
                lines[at] = f"{head}{mark or ':'} {pick(rng, WORDS)}"
    return "\n".join(lines)


def places(value, way=()):
    """Ways to every value inside a value of JSON, the whole first."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [way, *(place for key, item in inside for place in places(item, (*way, key)))]


def mutated_value(rng, value):
    """A value of JSON with one to three changes.

    Values replaced, keys dropped, renamed or added, lists grown.
    """
    out = copy.deepcopy(value)
    # small changes are accepted more often, and must mean the same
    change = _nudge if rng.random() < 0.3 else _change
    for _ in range(int(rng.integers(1, 4))):
        way = pick(rng, places(out))
        if way:
            parent = out
            for key in way[:-1]:
                parent = parent[key]
            change(rng, parent, way[-1])
        elif rng.random() < 0.02:  # the whole, seldom: little is to be learned from that
            return hostile_value(rng)
    return out


def _change(rng, parent, key):
    """Change one member of a list or an object."""
    held, kind = parent[key], int(rng.integers(7))
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[str(pick(rng, WORDS))] = parent.pop(key)
    elif kind == 2 and isinstance(parent, dict):
        parent[str(pick(rng, WORDS))] = hostile_value(rng)
    elif kind in {1, 2}:
        parent.insert(key, copy.deepcopy(held))
    elif kind in {3, 4} and isinstance(held, int | float) and not isinstance(held, bool):
        parent[key] = pick(
            rng, (-held, held + 1, held * 1000, str(held)[:1_000], [held], float(str(held)[:300]))
        )
    elif kind in {3, 4} and isinstance(held, str):
        at = int(rng.integers(len(held) + 1))
        parent[key] = held[:at] + pick(rng, WORDS) + held[at:]
    else:
        parent[key] = hostile_value(rng)


def _nudge(rng, parent, key):
    """Change one number, switch or text of a list or an object a little; else nothing."""
    held = parent[key]
    if isinstance(held, bool):
        parent[key] = not held
    elif isinstance(held, int):
        parent[key] = held + int(rng.integers(-1, 2))
    elif isinstance(held, float):
        parent[key] = pick(
            rng,
            (np.nextafter(held, 2.0).item(), held / 2, float(np.round(held)), -held, held + 1e-9),
        )
    elif isinstance(held, str):
        parent[key] = pick(
            rng, (held + " ", held.upper(), held[::-1], held + "é", f" {held}", held[:-1])
        )


def json_bytes(value):
    """JSON as Python writes it, NaN and half surrogate pairs among it."""
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except ValueError:  # an integer of more digits than Python writes
        return b"1" * 5_000


def shown(value, most=200):
    """An input as a report shows it: on one line, escaped."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
