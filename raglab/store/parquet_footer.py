"""Footer of a Parquet file (shore): declarations of each row group's columns, without pyarrow.

pyarrow 25 ends the process where it makes a column of a row group whose size statistics are damaged
(`RowGroupMetaData.column`, one flipped byte), so that what a file declares could not be checked
before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
_SIZES = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}  # bytes that values of a type take
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
    """Reader of Thrift's compact protocol, of which a footer is one struct."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0
        self._nested: dict[int, Callable[[int], Any]] = {_STRUCT: self.struct, _MAP: self._map}
        self._nested |= dict.fromkeys((_LIST, _SET), self._list)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Fields of a struct by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != _STOP:
            step = head >> 4
            number = number + step if step else self._integer()
            kind = head & 15
            if number in fields:  # which of two counts, another reader might take otherwise
                msg = "its footer holds a field twice"
                raise ValueError(msg)
            fields[number] = kind == _TRUE if kind in {_TRUE, _FALSE} else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - any value of Thrift
        if depth > _DEEPEST:
            msg = "its footer is nested too deep"
            raise ValueError(msg)
        if kind in {_TRUE, _FALSE}:  # inside a list a byte each
            return self._byte()
        read = self._nested.get(kind)
        return self._plain(kind) if read is None else read(depth + 1)

    def _plain(self, kind: int) -> Any:  # noqa: ANN401 - an integer or bytes
        if kind in _WHOLE:
            return self._integer()
        if kind == _TEXT:
            return self._bytes(self._varint())
        if kind not in _SIZES:
            msg = "its footer holds a value of no type"
            raise ValueError(msg)
        return self._bytes(_SIZES[kind])

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size = self._size(self._varint() if head >> 4 == _LONG_LIST else head >> 4)
        return [self._value(head & 15, depth) for _ in range(size)]

    def _map(self, depth: int) -> list[Any]:
        size = self._size(self._varint())
        kinds = self._byte() if size else 0
        return [
            (self._value(kinds >> 4, depth), self._value(kinds & 15, depth)) for _ in range(size)
        ]

    def _size(self, size: int) -> int:
        """Items of a list, each of which takes a byte at least."""
        if size > len(self._raw) - self._at:
            msg = "its footer declares a list that is longer than the footer"
            raise ValueError(msg)
        return size

    def _byte(self) -> int:
        byte = self._raw[self._at]
        self._at += 1
        return byte

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise IndexError
        part, self._at = self._raw[self._at : end], end
        return part

    def _varint(self) -> int:
        raw, at, value, shift = self._raw, self._at, 0, 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self._at = at
                return value
            shift += 7
            if shift > 63:
                msg = "its footer holds an integer of more than 64 bits"
                raise ValueError(msg)

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
        msg = "its footer is cut off, or lacks what a column must declare"
        raise ValueError(msg) from error


def _declaration(stated: Mapping[int, Any]) -> ColumnDeclaration:
    numbers = stated[_KIND], stated[_VALUES], stated[_UNCOMPRESSED]
    if not all(type(number) is int for number in numbers) or not isinstance(stated[_PATH], list):
        raise TypeError
    kind, n_values, n_bytes = numbers
    return ColumnDeclaration(kind == _BYTE_ARRAY, len(stated[_PATH]) - 1, n_values, n_bytes)


_BYTE_ARRAY = 6
