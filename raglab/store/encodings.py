"""Encodings (shore): document text by byte-order mark, caller or page statement, else UTF-8."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from raglab.store.files import Where, decode_utf8, input_error, shown_value

# The longer ones first: UTF-32 begins as UTF-16 does.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# As browsers look for it: in a `meta` by `charset`, or by `content` beside an http-equiv; not in
# comments.
_HTML_COMMENTS = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CHARSET_MARKUP = re.compile(
    rb"(?:<meta\s(?=[^>]*?http-equiv)[^>]*?charset"
    rb"|<meta\s(?:[^>\"']|\"[^\"]*\"|'[^']*')*?(?<=\s)charset"
    rb"|<\?xml[^>]*?encoding)\s*=\s*[\"']?\s*([^\s\"'/>;]+)",
    re.IGNORECASE,
)
_PAGE_HEAD_BYTES = 4096
ENCODING_REMEDY = "save the file as UTF-8, or give its encoding= (--encoding), such as 'cp1252'"
CASES_ENCODING_REMEDY = ENCODING_REMEDY.replace("--encoding", "--cases-encoding")
# Browsers read these as what Windows made of them.
_BROWSER_CODECS = {
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc_jisx0213",
}
# which no text has: no tab, line or page end
_CONTROL_BYTES = bytes([*range(8), 11, *range(14, 26), *range(28, 32), 127])
_TRIED_BYTES = 8000
_MAX_CONTROL_SHARE = 0.02  # of the bytes of a text


class LikelyEncoding(NamedTuple):
    """Encoding of a text unless it is UTF-8 with characters beyond ASCII.

    Bytes are that by chance next to never. A page may state another one, and a folder whose
    encoding a caller states may hold both.

    name: of the encoding. label: for messages. notes: takes a note on each text that is UTF-8 all
    the same.
    """

    name: str
    label: str
    notes: list[str]


Encoding = str | LikelyEncoding | None  # that a caller states


def check_encoding(encoding: str | None) -> None:
    """Stop at an encoding of a caller that Python does not know, or that is none of texts.

    Raises:
      ValueError: it is not None and not such a name.
    """
    try:
        b"a".decode("utf-8" if encoding is None else encoding)
    except UnicodeError:  # of two or more bytes a character
        return
    except (LookupError, TypeError, ValueError) as error:
        message = (
            f"encoding must name one of texts, such as 'cp1252' or 'shift_jis', got {encoding!r}."
        )
        raise ValueError(message) from error


def check_no_encoding(encoding: Encoding, name: str) -> None:
    """Stop at an encoding of what has none to state: a frame, Parquet, JSON.

    Args:
      name: of the frame or file.

    Raises:
      InputError: it is not None.
    """
    if encoding is not None:
        raise input_error(
            name,
            "encoding must come with texts or CSV tables",
            "leave it out",
            shown_value(encoding),
        )


def likely_encoding(encoding: Encoding, notes: list[str]) -> Encoding:
    """Encoding that a caller states of a folder, some of whose texts may be UTF-8."""
    return LikelyEncoding(encoding, encoding, notes) if isinstance(encoding, str) else encoding


def page_encoding(raw: bytes, notes: list[str]) -> Encoding:
    """Encoding that the head of a page of HTML states; None for UTF-8, or none that browsers know.

    Args:
      raw: content of the file.
      notes: takes a note where the page is UTF-8 all the same.
    """
    import webencodings

    charset_match = _CHARSET_MARKUP.search(_HTML_COMMENTS.sub(b"", raw[:_PAGE_HEAD_BYTES]))
    charset_label = "" if charset_match is None else charset_match[1].decode("ascii", "replace")
    encoding = webencodings.lookup(charset_label)
    if encoding is None or encoding.name.startswith(("utf-", "x-user")):
        return None
    return LikelyEncoding(
        _BROWSER_CODECS.get(encoding.name, encoding.codec_info.name),
        shown_value(charset_label),
        notes,
    )


def decode_text(
    raw_bytes: bytes, location: Where, encoding: Encoding = None, remedy: str = ENCODING_REMEDY
) -> str:
    """Text in the encoding that a byte-order mark or the caller states, else UTF-8.

    Line ends are one line feed.

    Args:
      raw_bytes: content of a file.
      location: for messages.
      encoding: that the caller knows it to have where it has no byte-order mark, or that it is
        likely to have.
      remedy: of a text that is not UTF-8, for messages.

    Raises:
      InputError: it is not that, or looks binary.
    """
    byte_order_mark, codec_name = next(
        (
            (byte_order_mark, mark_codec)
            for byte_order_mark, mark_codec in _BYTE_ORDER_MARKS
            if raw_bytes.startswith(byte_order_mark)
        ),
        (b"", ""),
    )
    codec_name = codec_name or (
        encoding.name if isinstance(encoding, LikelyEncoding) else encoding or "utf-8"
    )
    marked_content = raw_bytes.removeprefix(byte_order_mark)
    decoded_text = None
    if isinstance(encoding, LikelyEncoding) and not byte_order_mark and not raw_bytes.isascii():
        with suppress(UnicodeDecodeError):
            decoded_text = raw_bytes.decode("utf-8")
            if codecs.lookup(codec_name).name != "utf-8":
                encoding.notes.append(
                    f"{location.file}: read as UTF-8, which it is, and not as {encoding.label}"
                )
    try:
        decoded_text = marked_content.decode(codec_name) if decoded_text is None else decoded_text
    except UnicodeError as error:
        if not byte_order_mark:
            _check_no_binary(raw_bytes, location)
        if codec_name == "utf-8":
            decode_utf8(marked_content, location, remedy)  # whose error names the line
        raise input_error(
            location,
            f"a text must be in the stated encoding {codec_name}",
            "save it as UTF-8",
            f"byte {getattr(error, 'start', 0) + len(byte_order_mark)}",
        ) from error
    # In an encoding that has a character for every byte, such as latin-1, anything is a text.
    if "\0" in decoded_text and not byte_order_mark:
        _check_no_binary(raw_bytes, location)
    # a second mark would hide the `---` of a front matter, or become a part of the first key
    return decoded_text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _check_no_binary(raw_bytes: bytes, location: Where) -> None:
    """Stop at bytes that are no text in any encoding that a person writes one in.

    Raises:
      InputError: some of the first bytes are NUL, or many are control characters.
    """
    first_bytes = raw_bytes[:_TRIED_BYTES]
    n_controls = len(first_bytes) - len(first_bytes.translate(None, _CONTROL_BYTES))
    if 0 in first_bytes or n_controls > _MAX_CONTROL_SHARE * len(first_bytes):
        raise input_error(
            location._replace(line=None),
            "a text must be text",
            "correct its ending, or save it as UTF-8",
            f"what looks binary, or like UTF-16 without its mark: {n_controls:,} control "
            "characters",
        )
