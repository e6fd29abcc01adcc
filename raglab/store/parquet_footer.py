"""Footer of a Parquet file (shore): declarations of each row group's columns, without pyarrow.

pyarrow 25 ends the process where it makes a column of a row group whose size statistics are damaged
(`RowGroupMetaData.column`, one flipped byte), so that what a file declares could not be checked
before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MAGIC = b"PAR1"
_TAIL = 8  # bytes behind the footer: its length and the magic
_DEEPEST = 12  # structs of Parquet's metadata stand at most six deep
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, _LIST, _SET, _MAP, _STRUCT, _UUID = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
)
_WHOLE = frozenset({4, 5, 6})  # integers of 16, 32 and 64 bits, all written alike
# bytes that values of a type take, those of a truth inside a list
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
# numbers of fields
_ROW_GROUPS, _COLUMNS, _META, _KIND, _PATH, _VALUES, _UNCOMPRESSED = 4, 1, 3, 1, 3, 5, 6
_LONG_LIST = 15  # mark of a list whose length follows


class ColumnDeclaration(NamedTuple):
    """What a column of a row group declares.

    is_text: whether it holds byte arrays. depth: names on the way to it, less one. n_values:
    values, of lists each item. n_bytes: of its pages when uncompressed.
    """

    is_text: bool
    depth: int
    n_values: int
    n_bytes: int


class _Compact:
    """Reader of Thrift's compact protocol, of which a footer is one struct.

    Damage is a LookupError or a TypeError.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Fields of a struct by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != _STOP:
            step, kind = head >> 4, head & 15
            number = number + step if step else self._integer()
            if number in fields:  # which of two counts, another reader might take otherwise
                raise LookupError
            fields[number] = kind == _TRUE if kind in {_TRUE, _FALSE} else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - any value of Thrift
        if depth > _DEEPEST:
            raise LookupError
        if kind in _WHOLE:
            return self._integer()
        if kind == _TEXT:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in {_LIST, _SET}:
            head = self._byte()
            size = self._size(self._varint() if head >> 4 == _LONG_LIST else head >> 4)
            return [self._value(head & 15, depth + 1) for _ in range(size)]
        if kind == _MAP:
            size = self._size(self._varint())
            kinds = self._byte() if size else 0
            pair = (kinds >> 4, kinds & 15)
            return [[self._value(kind, depth + 1) for kind in pair] for _ in range(size)]
        return self._bytes(_SIZES[kind])  # a value of no type is no key

    def _size(self, size: int) -> int:
        """Bytes, or items of a list, each of which takes a byte at least."""
        if size > len(self._raw) - self._at:
            raise LookupError
        return size

    def _byte(self) -> int:
        byte = self._raw[self._at]
        self._at += 1
        return byte

    def _bytes(self, size: int) -> bytes:
        start = self._at
        self._at += self._size(size)
        return self._raw[start : self._at]

    def _varint(self) -> int:
        raw, at, value, shift = self._raw, self._at, 0, 0
        while shift <= 63:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self._at = at
                return value
            shift += 7
        raise LookupError

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def declared_columns(path: Path) -> list[ColumnDeclaration]:
    """What a file's footer declares of every column of every row group.

    Raises:
      ValueError: no footer, or one that is damaged.
      OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - _TAIL))
        tail = file.read(_TAIL)
        size = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or size > end - _TAIL - len(MAGIC):
            msg = "a Parquet file must end with its footer"
            raise ValueError(msg)
        file.seek(end - _TAIL - size)
        raw = file.read(size)
    try:
        footer = _Compact(raw).struct()
        groups = [group[_COLUMNS] for group in footer[_ROW_GROUPS]]
        return [_declaration(column[_META]) for columns in groups for column in columns]
    except (LookupError, TypeError) as error:
        msg = "its footer is damaged"
        raise ValueError(msg) from error


def _declaration(stated: Mapping[int, Any]) -> ColumnDeclaration:
    numbers = stated[_KIND], stated[_VALUES], stated[_UNCOMPRESSED]
    if not all(type(number) is int for number in numbers) or not isinstance(stated[_PATH], list):
        raise TypeError
    kind, n_values, n_bytes = numbers
    return ColumnDeclaration(kind == _BYTE_ARRAY, len(stated[_PATH]) - 1, n_values, n_bytes)


_BYTE_ARRAY = 6
