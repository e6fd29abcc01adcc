"""Encodings (shore): document text by byte-order mark, caller or page statement, else UTF-8."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from raglab.store.files import Where, decode_utf8, input_error, shown_value

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
    rb"(?:<meta\s(?=[^>]*?http-equiv)[^>]*?charset"
    rb"|<meta\s(?:[^>\"']|\"[^\"]*\"|'[^']*')*?(?<=\s)charset"
    rb"|<\?xml[^>]*?encoding)\s*=\s*[\"']?\s*([^\s\"'/>;]+)",
    re.IGNORECASE,
)
_HEAD_BYTES = 4096
ENCODING_REMEDY = "save the file as UTF-8, or give its encoding= (--encoding), such as 'cp1252'"
CASES_ENCODING_REMEDY = ENCODING_REMEDY.replace("--encoding", "--cases-encoding")
# Browsers read these as what Windows made of them.
_AS_BROWSERS = {
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc_jisx0213",
}
# which no text has: no tab, line or page end
_CONTROLS = bytes([*range(8), 11, *range(14, 26), *range(28, 32), 127])
_TRIED_BYTES = 8000
_MOST_CONTROLS = 0.02  # of the bytes of a text


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
        msg = f"encoding must name one of texts, such as 'cp1252' or 'shift_jis', got {encoding!r}."
        raise ValueError(msg) from error


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

    match = _CHARSET.search(_COMMENTS.sub(b"", raw[:_HEAD_BYTES]))
    label = "" if match is None else match[1].decode("ascii", "replace")
    encoding = webencodings.lookup(label)
    if encoding is None or encoding.name.startswith(("utf-", "x-user")):
        return None
    return LikelyEncoding(
        _AS_BROWSERS.get(encoding.name, encoding.codec_info.name), shown_value(label), notes
    )


def decode_text(
    raw: bytes, where: Where, encoding: Encoding = None, remedy: str = ENCODING_REMEDY
) -> str:
    """Text in the encoding that a byte-order mark or the caller states, else UTF-8.

    Line ends are one line feed.

    Args:
      raw: content of a file.
      where: for messages.
      encoding: that the caller knows it to have where it has no byte-order mark, or that it is
        likely to have.
      remedy: of a text that is not UTF-8, for messages.

    Raises:
      InputError: it is not that, or looks binary.
    """
    mark, codec = next(((mark, name) for mark, name in _MARKS if raw.startswith(mark)), (b"", ""))
    codec = codec or (
        encoding.name if isinstance(encoding, LikelyEncoding) else encoding or "utf-8"
    )
    content, text = raw.removeprefix(mark), None
    if isinstance(encoding, LikelyEncoding) and not mark and not raw.isascii():
        with suppress(UnicodeDecodeError):
            text = raw.decode("utf-8")
            if codecs.lookup(codec).name != "utf-8":
                encoding.notes.append(
                    f"{where.file}: read as UTF-8, which it is, and not as {encoding.label}"
                )
    try:
        text = content.decode(codec) if text is None else text
    except UnicodeError as error:
        if not mark:
            _check_no_binary(raw, where)
        if codec == "utf-8":
            decode_utf8(content, where, remedy)  # whose error names the line
        raise input_error(
            where,
            f"a text must be in the stated encoding {codec}",
            "save it as UTF-8",
            f"byte {getattr(error, 'start', 0) + len(mark)}",
        ) from error
    # In an encoding that has a character for every byte, such as latin-1, anything is a text.
    if "\0" in text and not mark:
        _check_no_binary(raw, where)
    # a second mark would hide the `---` of a front matter, or become a part of the first key
    return text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _check_no_binary(raw: bytes, where: Where) -> None:
    """Stop at bytes that are no text in any encoding that a person writes one in.

    Raises:
      InputError: some of the first bytes are NUL, or many are control characters.
    """
    tried = raw[:_TRIED_BYTES]
    controls = len(tried) - len(tried.translate(None, _CONTROLS))
    if 0 in tried or controls > _MOST_CONTROLS * len(tried):
        raise input_error(
            where._replace(line=None),
            "a text must be text",
            "correct its ending, or save it as UTF-8",
            f"what looks binary, or like UTF-16 without its mark: {controls:,} control characters",
        )
