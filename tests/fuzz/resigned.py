"""Files with changed content and new right hashes, as made by one who can write the format.

Every walk gives each place of a file in turn each of some changes. A change is `malformed` where no
honest file holds what it makes: such a file must be refused, or decide as before. Any other makes
another file that could be honest, such as another label: it must load and decide, or be refused.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.mutation import places
from fuzz.outcomes import is_clear
from raglab.policy import PolicyData
from raglab.replay import decide
from raglab.store.trace_files import content_hash, open_trace, parse_trace, trace_head
from raglab.values import TraceData
from raglab.words.canonical import canonical_json, digest
from worlds import PATTERNS, policy

HUGE = 2**30
# Of a place of JSON: what it becomes, and whether that is malformed wherever it stands.
JSON_CHANGES: Mapping[str, tuple[Any, bool]] = {
    "none": (None, False),
    "true": (True, False),
    "empty text": ("", False),
    "text": ("another", False),
    "number as text": ("1", False),
    "zero": (0, False),
    "negative": (-1, False),
    "huge": (2**70, False),
    "beyond floats": (10**400, False),
    "float": (0.5, False),
    "nan": (float("nan"), True),
    "infinite": (float("inf"), True),
    "empty list": ([], False),
    "nested list": ([["a"]], True),
    "nested object": ({"a": {"b": ["c"]}}, True),
}
OPTIONAL = frozenset({"s_hybrid", "s_rerank", "s_raw", "anchor_sim", "sig_sim", "sig_sim_strict"})


class Change(NamedTuple):
    """A change of a file: what it is in words, whether no honest file holds it, and the content."""

    what: str
    malformed: bool
    content: Any


def with_value(document, way, value):
    """A document of JSON with another value at a place."""
    if not way:
        return value
    out = copy.deepcopy(document)
    parent = out
    for key in way[:-1]:
        parent = parent[key]
    parent[way[-1]] = value
    return out


def without(document, way):
    """A document of JSON without what stands at a place."""
    out = copy.deepcopy(document)
    parent = out
    for key in way[:-1]:
        parent = parent[key]
    del parent[way[-1]]
    return out


def json_changes(document, most_items=1):
    """Every place of a document but those inside later items of lists, with each change.

    And without it.
    """
    for way in places(document):
        if any(isinstance(key, int) and key >= most_items for key in way):
            continue
        name = "/".join(map(str, way)) or "all"
        for change, (value, malformed) in JSON_CHANGES.items():
            yield Change(f"{name}: {change}", malformed, with_value(document, way, value))
        if way:
            yield Change(f"{name}: removed", malformed=False, content=without(document, way))
            held = document
            for key in way:
                held = held[key]
            if isinstance(held, list) and held:
                yield Change(
                    f"{name}: twice",
                    malformed=False,
                    content=with_value(document, way, [*held, held[0]]),
                )
            if isinstance(held, dict):
                more = with_value(document, way, {**held, "more": 1})
                yield Change(f"{name}: with another field", malformed=False, content=more)


# a fact
def number_changes(
    values,
    kind,
    optional,
):
    """Lists of numbers, a row per case, each with one number changed or lists of a new length."""
    flat = [
        (row, place)
        for row, items in enumerate(values)
        for place in {0, len(items) // 2, len(items) - 1}
    ]
    numbers: dict[str, tuple[Any, bool]] = {
        "negative": (-7, True),
        "huge": (HUGE, True),
        "null": (None, True),
    }
    if kind == "float":
        numbers |= {"nan": (float("nan"), not optional), "infinite": (float("inf"), True)}
        numbers |= {"infinite below": (float("-inf"), True), "beyond double": (1e308, True)}
    for row, place in flat:
        if place < 0:
            continue
        for change, (value, malformed) in numbers.items():
            changed = [list(items) for items in values]
            changed[row][place] = value
            yield Change(f"[{row}, {place}] {change}", malformed, changed)
    swapped = [list(reversed(items)) for items in values]
    yield Change("reversed", malformed=False, content=swapped)
    yield Change(
        "repeated",
        malformed=False,
        content=[[items[0]] * len(items) if items else [] for items in values],
    )
    yield Change("one less", malformed=True, content=[items[:-1] for items in values])
    yield Change("one more", malformed=True, content=[[*items, *items[-1:]] for items in values])
    yield Change("rows swapped", malformed=False, content=values[::-1])


def _typed(values, kind):
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def table_changes(table):
    """A trace's table with each column changed in each way."""
    for place, field in enumerate(table.schema):
        rows = table[field.name].to_pylist()
        yield Change(f"{field.name}: removed", malformed=False, content=table.remove_column(place))
        yield Change(
            f"{field.name}: twice",
            malformed=True,
            content=table.append_column(field.name, table[field.name]),
        )
        again = table.append_column(f"signal_{field.name}", table[field.name])
        yield Change(f"{field.name}: as a signal", malformed=True, content=again)
        for kind in (
            pa.string(),
            pa.binary(),
            pa.int64(),
            pa.list_(pa.string()),
            pa.list_(pa.list_(pa.float64())),
        ):
            other = pa.array([None] * len(rows), kind)
            yield Change(
                f"{field.name}: {kind} of nulls", True, table.set_column(place, field.name, other)
            )
        yield from _column_changes(table, place, field, rows)


def _column_changes(table, place, field, rows):
    """A column with other values, or of another type."""
    inner = getattr(field.type, "value_type", None)
    if inner is not None and (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
        changes = _number_columns(field, rows)
    elif pa.types.is_string(field.type):
        changes = _text_columns(rows)
    else:
        changes = _record_columns(field, rows)
    for change in changes:
        yield Change(
            f"{field.name}: {change.what}",
            change.malformed,
            table.set_column(place, field.name, change.content),
        )


def _number_columns(field, rows):
    inner, is_fixed = field.type.value_type, pa.types.is_fixed_size_list(field.type)
    optional = field.name in OPTIONAL or field.name.startswith("signal_")
    for change in number_changes(rows, "float" if pa.types.is_floating(inner) else "int", optional):
        same = pa.list_(inner, len(change.content[0])) if is_fixed else pa.list_(inner)
        yield from _arrays(change, same)
    for other in (pa.float64(), pa.float32(), pa.int64(), pa.int16(), pa.string(), pa.bool_()):
        # Where it is float32 for float64 the values are the same, which is no other trace.
        values = rows if other != pa.string() else [[str(item) for item in row] for row in rows]
        for kind in (pa.list_(other, len(rows[0])), pa.list_(other)):
            yield from _arrays(Change(f"as {kind}", malformed=False, content=values), kind)


def _text_columns(rows):
    if rows[0].startswith("{"):
        for change in json_changes(json.loads(rows[0])):
            changed = change._replace(
                malformed=False, content=[json.dumps(change.content), *rows[1:]]
            )
            yield from _arrays(changed, pa.string())
    for what, value in (("none", None), ("empty", ""), ("another's", rows[-1]), ("another", "x")):
        yield from _arrays(Change(what, malformed=False, content=[value, *rows[1:]]), pa.string())


def _record_columns(field, rows):
    for change in json_changes(rows[0]):
        changed = change._replace(malformed=False, content=[change.content, *rows[1:]])
        yield from _arrays(changed, field.type)
        array = _typed([change.content], None)  # of the type that it has now
        if array is not None and array.type != field.type:
            yield from _arrays(
                changed._replace(content=[change.content, *[None] * len(rows[1:])]), array.type
            )


def _arrays(change, kind):
    """The change as an array of a type, if it fits into one."""
    array = _typed(change.content, kind)
    if array is not None:
        yield change._replace(content=array)


def trace_changes(path):
    """Changes of a trace's file: tables, whose head is a document of JSON."""
    table = pq.read_table(path)
    for change in json_changes(json.loads(table.schema.metadata[b"raglab"])):
        changed = table.replace_schema_metadata({"raglab": json.dumps(change.content)})
        yield Change(f"head/{change.what}", change.malformed, changed)
    yield from table_changes(table)


def resigned_traces(path, target, step=1):
    """Changes of a trace's file, each written to `target` with hashes that are right again.

    The content is the path.

    Args:
      step: every so manieth of them; it should be no multiple of how many changes a place has.
    """
    for number, change in enumerate(trace_changes(path)):
        if number % step == 0:
            yield from signed_tables(change, target)


def signed_tables(change, target):
    """A trace's table in a file, with the hash that its content has now."""
    pq.write_table(change.content, target)
    try:
        file, head = open_trace(target)
        trace = parse_trace(file, head, target, TraceData)
        again = trace_head(trace, content_hash(trace))
    except Exception:  # noqa: BLE001 - what cannot be read cannot be signed, and is tried as it is
        yield change._replace(content=target)
        return
    for signed in ({**again, "meta": head["meta"]}, {**head, "content": again["content"]}):
        text = json.dumps(signed, sort_keys=True)
        pq.write_table(change.content.replace_schema_metadata({"raglab": text}), target)
        yield change._replace(content=target)


def resigned_documents(
    document,
    hashed,
    hash_of,
    most_items=1,
):
    """Changes of a document of JSON with the hash that its content has now.

    Args:
      hashed: key of the hash.
      hash_of: of all other keys.
    """
    plain = {key: value for key, value in document.items() if key != hashed}
    for change in json_changes(plain, most_items):
        if isinstance(change.content, dict):
            try:
                signed = {**change.content, hashed: hash_of(change.content)}
            except (TypeError, ValueError):
                signed = {**change.content, hashed: document[hashed]}
            yield change._replace(content=signed)


def array_changes(array):
    """An array of NumPy with numbers changed, of another type, shape or length."""
    flat = array.ravel()
    numbers: dict[str, float] = {"negative": -7, "huge": HUGE, "one": 1}
    if array.dtype.kind == "f":
        numbers |= {"nan": np.nan, "infinite": np.inf, "largest": float(np.finfo(array.dtype).max)}
    for place in sorted({0, len(flat) // 2, len(flat) - 1}):
        for what, value in numbers.items():
            changed = flat.copy()
            with np.errstate(over="ignore"):
                changed[place] = value
            yield Change(
                f"[{place}] {what}", what in {"nan", "infinite"}, changed.reshape(array.shape)
            )
    for what, other in {
        "float64": array.astype(np.float64),
        "int16": array.astype(np.int16),
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
        "text": array.astype("U8"),
        "bool": array.astype(bool),
        "flat": array.reshape(-1, 1),
        "scalar": np.array(flat[0]),
        "shorter": array[:-1],
        "longer": np.concatenate([array, array[-1:]]),
        "empty": array[:0],
        "reversed": array[::-1].copy(),
        "repeated": np.broadcast_to(array[:1], array.shape).copy(),
    }.items():
        yield Change(what, malformed=False, content=other)


def json_hash(document):
    """SHA-256 of canonical JSON, as manifests have it."""
    return digest(canonical_json(document))


def reading_policies():
    """Policies that between them read every measurement."""
    return [
        policy(l2={"enabled": True, "max_l2": 0.6}),
        PolicyData.from_mapping({"patterns": PATTERNS, "signals": {"groups": {"max": 3.0}}}),
        PolicyData.from_mapping(
            {"generation": {"enabled": True}, "support": {"enabled": True}, "refine": REFINE}
        ),
    ]


REFINE = {"max_depth": 1}


def decided_alike(trace):
    """Decisions of each policy by each arm."""
    return [
        decide(trace, one, arm=arm).frame(reasons=True).to_dict("records")
        for one in reading_policies()
        for arm in trace.arms
    ]


def outcome(read, decide_all, truth):
    """`refused`, `same` or `another`, or what is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = decide_all(read())
    except (ValueError, KeyError) as error:
        return "refused" if is_clear(error) else f"raw {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - what it is, is what is asked
        return f"traceback {type(error).__name__}: {error}"
    return "same" if repr(found) == repr(truth) else "another"


def walk(changes, read, decide_all):
    """What became of every change.

    Fails with the first that is neither refused nor decides as before.
    """
    truth, counts, wrong = decide_all(read(None)), Counter[str](), []
    for change in changes:
        # called at once
        found = outcome(lambda: read(change.content), decide_all, truth)  # noqa: B023
        kind = found if found in {"refused", "same", "another"} else "wrong"
        if kind == "wrong" or (kind == "another" and change.malformed):
            wrong.append(f"{change.what}: {found}")
            kind = "wrong"
        counts[kind] += 1
    assert not wrong, f"{len(wrong)} of {counts.total()}\n" + "\n".join(wrong[:40])
    return counts
