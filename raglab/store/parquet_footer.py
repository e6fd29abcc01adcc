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
_TAIL_BYTES = 8  # bytes behind the footer: its length and the magic
_MAX_STRUCT_DEPTH = 12  # structs of Parquet's metadata stand at most six deep
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
_WHOLE_TYPES = frozenset({4, 5, 6})  # integers of 16, 32 and 64 bits, all written alike
# bytes that values of a type take, those of a truth inside a list
_TYPE_BYTES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
# numbers of fields
(
    _ROW_GROUPS_FIELD,
    _COLUMNS_FIELD,
    _META_FIELD,
    _TYPE_FIELD,
    _PATH_FIELD,
    _N_VALUES_FIELD,
    _UNCOMPRESSED_FIELD,
) = 4, 1, 3, 1, 3, 5, 6
_LONG_LIST_MARK = 15  # mark of a list whose length follows


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

    def struct(self, nesting_depth: int = 0) -> dict[int, Any]:
        """Fields of a struct by their numbers."""
        struct_fields: dict[int, Any] = {}
        field_number = 0
        while (type_byte := self._byte()) != _STOP:
            field_step = type_byte >> 4
            field_type = type_byte & 15
            field_number = field_number + field_step if field_step else self._integer()
            # which of two counts, another reader might take otherwise
            if field_number in struct_fields:
                raise LookupError
            struct_fields[field_number] = (
                field_type == _TRUE
                if field_type in {_TRUE, _FALSE}
                else self._value(field_type, nesting_depth)
            )
        return struct_fields

    def _value(self, value_type: int, nesting_depth: int) -> Any:  # noqa: ANN401 - any value of Thrift
        if nesting_depth > _MAX_STRUCT_DEPTH:
            raise LookupError
        if value_type in _WHOLE_TYPES:
            return self._integer()
        if value_type == _TEXT:
            return self._bytes(self._varint())
        if value_type == _STRUCT:
            return self.struct(nesting_depth + 1)
        if value_type in {_LIST, _SET}:
            list_byte = self._byte()
            n_items = self._size(
                self._varint() if list_byte >> 4 == _LONG_LIST_MARK else list_byte >> 4
            )
            return [self._value(list_byte & 15, nesting_depth + 1) for _ in range(n_items)]
        if value_type == _MAP:
            n_items = self._size(self._varint())
            map_byte = self._byte() if n_items else 0
            map_types = (map_byte >> 4, map_byte & 15)
            return [
                [self._value(value_type, nesting_depth + 1) for value_type in map_types]
                for _ in range(n_items)
            ]
        return self._bytes(_TYPE_BYTES[value_type])  # a value of no type is no key

    def _size(self, n_bytes: int) -> int:
        """Bytes, or items of a list, each of which takes a byte at least."""
        if n_bytes > len(self._raw) - self._at:
            raise LookupError
        return n_bytes

    def _byte(self) -> int:
        byte = self._raw[self._at]
        self._at += 1
        return byte

    def _bytes(self, n_bytes: int) -> bytes:
        start_position = self._at
        self._at += self._size(n_bytes)
        return self._raw[start_position : self._at]

    def _varint(self) -> int:
        footer_bytes, position, value, bit_shift = self._raw, self._at, 0, 0
        while bit_shift <= 63:
            next_byte = footer_bytes[position]
            position += 1
            value |= (next_byte & 127) << bit_shift
            if next_byte < 128:
                self._at = position
                return value
            bit_shift += 7
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
    with path.open("rb") as parquet_file:
        file_end = parquet_file.seek(0, 2)
        parquet_file.seek(max(0, file_end - _TAIL_BYTES))
        file_tail = parquet_file.read(_TAIL_BYTES)
        footer_bytes = int.from_bytes(file_tail[:4], "little")
        if file_tail[4:] != MAGIC or footer_bytes > file_end - _TAIL_BYTES - len(MAGIC):
            message = "a Parquet file must end with its footer"
            raise ValueError(message)
        parquet_file.seek(file_end - _TAIL_BYTES - footer_bytes)
        raw_footer = parquet_file.read(footer_bytes)
    try:
        footer = _Compact(raw_footer).struct()
        group_columns = [row_group[_COLUMNS_FIELD] for row_group in footer[_ROW_GROUPS_FIELD]]
        return [
            _declaration(column_chunk[_META_FIELD])
            for column_chunks in group_columns
            for column_chunk in column_chunks
        ]
    except (LookupError, TypeError) as error:
        message = "its footer is damaged"
        raise ValueError(message) from error


def _declaration(column_metadata: Mapping[int, Any]) -> ColumnDeclaration:
    declared_numbers = (
        column_metadata[_TYPE_FIELD],
        column_metadata[_N_VALUES_FIELD],
        column_metadata[_UNCOMPRESSED_FIELD],
    )
    if not all(
        type(declared_number) is int for declared_number in declared_numbers
    ) or not isinstance(column_metadata[_PATH_FIELD], list):
        raise TypeError
    column_type, n_values, n_bytes = declared_numbers
    return ColumnDeclaration(
        column_type == _BYTE_ARRAY, len(column_metadata[_PATH_FIELD]) - 1, n_values, n_bytes
    )


_BYTE_ARRAY = 6
