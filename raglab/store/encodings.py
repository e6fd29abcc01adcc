"""Encodings (shore): document text by byte-order mark, caller or page statement, else UTF-8."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from raglab.store.files import InputError, Where, decode_utf8, input_error, shown_value

# The longer ones first: UTF-32 begins as UTF-16 does.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# As browsers look for it: in a `meta` by `charset`, or by `content` beside an http-equiv; not in
# comments.
_COMMENTS = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CHARSET = re.compile(
    rb"<meta\s(?=[^>]*?http-equiv)[^>]*?charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)"
    rb"|<meta\s(?:[^>\"']|\"[^\"]*\"|'[^']*')*?(?<=\s)charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)"
    rb"|<\?xml[^>]*?encoding\s*=\s*[\"']([^\"']+)",
    re.IGNORECASE,
)
_HEAD_BYTES = 4096
ENCODING_REMEDY = (
    "save the file as UTF-8, or give its encoding= (--encoding), such as 'cp1252', that of Windows"
)
CASES_ENCODING_REMEDY = ENCODING_REMEDY.replace("--encoding", "--cases-encoding")
# Browsers read these as what Windows made of them.
_AS_BROWSERS = {
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc_jisx0213",
}
_SEVERAL_BYTES = frozenset((*_AS_BROWSERS, "gb18030", "iso-2022-jp"))  # of a character
# which no text has: no tab, line or page end
_CONTROLS = bytes([*range(8), 11, *range(14, 26), *range(28, 32), 127])
_TRIED_BYTES = 8000
_MOST_CONTROLS = 0.02  # of the bytes of a text


class FolderEncoding(NamedTuple):
    """Encoding that a caller states of a folder.

    Of its texts that are not UTF-8, since one folder holds both.

    A text that is UTF-8 with characters beyond ASCII is read as UTF-8, which bytes are by chance
    next to never.

    name: of the encoding. note_file: takes each file with characters beyond ASCII, and the encoding
    that it is read in.
    """

    name: str
    note_file: Callable[[str, str], None] = lambda _file, _name: None


Encoding = str | FolderEncoding | None  # that a caller states


def check_encoding(encoding: str | None) -> None:
    """Stop at an encoding of a caller that Python does not know, or that is none of texts.

    Raises:
      ValueError: it is not None and not such a name.
    """
    if encoding is None:
        return
    try:
        b"a".decode(encoding)
    except UnicodeError:  # of two or more bytes a character
        return
    except (LookupError, TypeError, ValueError) as error:
        known = "'cp1252', 'shift_jis' or 'gb18030'"
        msg = (
            f"encoding must name an encoding of texts that Python knows, such as {known}, got "
            f"{encoding!r}."
        )
        raise ValueError(msg) from error


def decode_text(
    raw: bytes, where: Where, encoding: Encoding = None, remedy: str = ENCODING_REMEDY
) -> str:
    """Text in the encoding that a byte-order mark or the caller states, else UTF-8.

    Line ends are one line feed.

    Args:
      raw: content of a file.
      where: for messages.
      encoding: that the caller knows it to have where it has no byte-order mark, or knows some of
        its folder to have.
      remedy: of a text that is not UTF-8, for messages.

    Raises:
      InputError: it is not that, or begins with two byte-order marks.
    """
    text = _marked_text(raw, where)
    text = _known_text(raw, where, encoding, remedy) if text is None else text
    # it would hide the `---` of a front matter, or become a part of the first key
    if text.startswith("\ufeff"):
        raise input_error(
            where,
            "a file must begin with one byte-order mark at most",
            "take the second away",
            "two",
        )
    return _with_line_feeds(text)


def decode_page(
    raw: bytes,
    where: Where,
    encoding: Encoding = None,
    note_encoding: Callable[[str], None] = lambda _: None,
) -> str:
    """Text of a page of HTML, as its byte-order mark, the caller or its head states it, else UTF-8.

    A page that states another encoding, but is UTF-8 with characters beyond ASCII, is read as
    UTF-8, which bytes are by chance next to never.

    Args:
      raw: content of a file.
      where: for messages.
      encoding: that the caller knows it to have where it has no byte-order mark, or knows some of
        its folder to have.
      note_encoding: takes the encoding that a page states where it is read as UTF-8 all the same.

    Raises:
      InputError: it is not in that encoding.
    """
    text = _marked_text(raw, where)
    if text is None:
        text = (
            _stated_text(raw, where, note_encoding)
            if encoding is None
            else _known_text(raw, where, encoding)
        )
    return _with_line_feeds(text.removeprefix("\ufeff")).replace("\0", "")


def _marked_text(raw: bytes, where: Where) -> str | None:
    """Text behind a byte-order mark; None without one."""
    mark, name = next(((mark, name) for mark, name in _MARKS if raw.startswith(mark)), (b"", ""))
    if not name:
        return None
    if name == "utf-8":
        return decode_utf8(raw.removeprefix(mark), where)
    try:
        return raw.removeprefix(mark).decode(name)
    except UnicodeDecodeError as error:
        raise input_error(
            where,
            f"a file with a byte-order mark of {name.upper()} must be in that encoding",
            "save it as UTF-8",
            f"byte {error.start + len(mark)}",
        ) from error


def _known_text(raw: bytes, where: Where, encoding: Encoding, remedy: str = ENCODING_REMEDY) -> str:
    """Text in an encoding that the caller states; UTF-8 where that states none."""
    if encoding is None:
        return _utf_8_text(raw, where, remedy)
    if isinstance(encoding, FolderEncoding):
        return _folder_text(raw, where, encoding)
    try:
        return raw.decode(encoding)
    except UnicodeError as error:
        _check_no_binary(raw, where, error)
        place = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else "another one"
        raise input_error(
            where,
            f"a text without a byte-order mark must be in the stated encoding {encoding}",
            "leave encoding= out, or load it apart",
            place,
        ) from error


def _folder_text(raw: bytes, where: Where, encoding: FolderEncoding) -> str:
    """Text of a file of a folder.

    UTF-8 with characters beyond ASCII, else in the encoding that the caller states.
    """
    if not raw.isascii():
        with suppress(UnicodeDecodeError):
            text = raw.decode("utf-8")
            encoding.note_file(where.file, "utf-8")
            return text
    text = _known_text(raw, where, encoding.name)
    # In an encoding that has a character for every byte, such as latin-1, anything is a text.
    if "\0" in text:
        _check_no_binary(raw, where)
    if not text.isascii():
        encoding.note_file(where.file, encoding.name)
    return text


def _utf_8_text(raw: bytes, where: Where, remedy: str = ENCODING_REMEDY) -> str:
    """Text of UTF-8; what is none and looks binary is told so."""
    try:
        return decode_utf8(raw, where, remedy)
    except InputError as error:
        _check_no_binary(raw, where, error)
        raise


def _check_no_binary(raw: bytes, where: Where, cause: Exception | None = None) -> None:
    """Stop at bytes that are no text in any encoding that a person writes one in.

    Raises:
      InputError: some of the first bytes are NUL, or many are control characters.
    """
    tried = raw[:_TRIED_BYTES]
    nul, controls = tried.count(0), len(tried) - len(tried.translate(None, _CONTROLS))
    if nul or controls > _MOST_CONTROLS * len(tried):
        rule = (
            "a text must be text, and this file looks binary, or like UTF-16 without its "
            "byte-order mark"
        )
        remedy = "give it the ending of its format, take it away, or save it as UTF-8"
        content = f"{controls:,} control characters in its first {len(tried):,} bytes"
        raise input_error(where._replace(line=None), rule, remedy, content) from cause


def _stated_text(raw: bytes, where: Where, note_encoding: Callable[[str], None]) -> str:
    import webencodings

    match = _CHARSET.search(_COMMENTS.sub(b"", raw[:_HEAD_BYTES]))
    label = "" if match is None else next(filter(None, match.groups())).decode("ascii", "replace")
    encoding = webencodings.lookup(label)
    name = "" if encoding is None else encoding.name
    if encoding is None or name.startswith("utf-") or name == "x-user-defined":
        return _utf_8_text(raw, where)
    if not raw.isascii():
        with suppress(UnicodeDecodeError):
            text = raw.decode("utf-8")
            note_encoding(shown_value(label))
            return text
    codec = _AS_BROWSERS.get(name, name) if name in _SEVERAL_BYTES else encoding.codec_info.name
    with suppress(UnicodeDecodeError, LookupError):
        return raw.decode(codec)
    raise input_error(
        where,
        "a page must be in the encoding that it states",
        "save it as UTF-8",
        shown_value(label),
    )


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
