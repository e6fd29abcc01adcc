"""Pictures (shore): PNG and JPEG files as chunks, captions, and pixels as viewers show them."""

from __future__ import annotations

import warnings
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raglab.store.blocks import count_words
from raglab.store.encodings import Encoding, decode_text
from raglab.store.files import (
    MAX_FILE_BYTES,
    InputError,
    Where,
    input_error,
    read_bytes,
    shown_value,
)
from raglab.values import Chunk

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg")
MOST_PIXELS = 2**26  # an A4 page at 600 dots an inch has half of it
# times as long as wide; a model makes the short side fit, and the long one grows with it
MOST_SLENDER = 100
MOST_SCANS = 500  # of a JPEG, each of which passes over all its pixels; ten are usual
KIND = "image"
_PNG = b"\x89PNG"
_SCAN = b"\xff\xda"  # its mark, which cannot stand in coded pixels
_CAPTION_WORDS = 220
_WHOLE = "a picture must be a whole PNG or JPEG file"
_PIXELS = f"a picture must have at most {MOST_PIXELS} pixels"
_HALVES = 257  # 16 bits a pixel become 8: 65535 / 255


def caption_file(path: Path) -> Path | None:
    """Text file beside a picture that says what it shows: `a.png.txt`, else `a.txt`.

    None where there is neither.
    """
    beside = (path.with_name(f"{path.name}.txt"), path.with_suffix(".txt"))
    return next((file for file in beside if file.is_file()), None)


def picture_chunk(
    source: str, path: Path, max_file_bytes: int, *, follow_links: bool, encoding: Encoding = None
) -> Chunk:
    """A picture as one chunk, without a page.

    Its text is what is known of it in words: those of its file name, and below them its caption.
    What it was stands in its tags: `kind` (image), `media_type` by its content, `pixels` (width x
    height, as a viewer shows it) and `sha256` of the file.

    Args:
      source: its name in the corpus.
      path: of the file.
      max_file_bytes: its size at most.
      follow_links: whether the path may be a link.
      encoding: of the caption, as `decode_text` takes it.

    Raises:
      InputError: no PNG or JPEG, damaged or cut off, beyond a limit, or a caption that is too long.
    """
    raw = read_bytes(path, max_file_bytes, follow_links=follow_links)
    width, height = read_pixels(raw, path).size
    name = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    lines = [name if count_words(name) else "picture"]
    beside = caption_file(path)
    if beside is not None:
        text = read_bytes(beside, max_file_bytes, follow_links=follow_links, keep_mark=True)
        caption = decode_text(text, Where(str(beside), 1), encoding).strip("\n")
        if count_words(caption) > _CAPTION_WORDS:
            raise input_error(
                beside,
                f"a caption, named after a picture, must have at most {_CAPTION_WORDS} words",
                "shorten it, or rename it",
                str(count_words(caption)),
            )
        lines.append(caption)
    return Chunk(
        chunk_id=f"{source}#picture",
        text="\n".join(lines),
        source=source,
        tags={
            "kind": KIND,
            "media_type": f"image/{'png' if raw.startswith(_PNG) else 'jpeg'}",
            "pixels": f"{width}x{height}",
            "sha256": sha256(raw).hexdigest(),
        },
    )


def picture_digest(chunk: Chunk) -> str | None:
    """SHA-256 of the file of a chunk that is a picture; None of any other."""
    is_picture = chunk.tags.get("kind") == KIND and chunk.source.lower().endswith(SUFFIXES)
    return chunk.tags.get("sha256") if is_picture else None


def stored_pixels(path: Path, digest: str) -> Image.Image:
    """Pixels of a picture that was loaded before, RGB.

    Raises:
      InputError: it is not there any more, or another one.
    """
    raw = read_bytes(path, MAX_FILE_BYTES)
    if sha256(raw).hexdigest() != digest:
        raise input_error(
            path,
            "a picture must stay as it was loaded",
            "load the corpus again",
            "another content",
        )
    return read_pixels(raw, path)


def read_pixels(raw: bytes, path: Path) -> Image.Image:
    """Pixels of a PNG or JPEG file, RGB, turned as its EXIF says, on white where transparent.

    Args:
      raw: content of the file.
      path: for messages.

    Raises:
      InputError: no PNG or JPEG, damaged or cut off, or beyond a limit.
    """
    from PIL import Image, ImageOps

    opened = _opened(raw, path)
    try:
        opened.load()
        shown = ImageOps.exif_transpose(opened)
        if shown.mode.startswith("I"):  # Pillow would cut 16 bits off at 255
            shown = Image.fromarray(
                (np.asarray(shown).astype(np.uint32) // _HALVES).clip(0, 255).astype(np.uint8)
            )
        if "transparency" in shown.info or shown.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
            clear = shown.convert("RGBA")
            shown = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
        return shown.convert("RGB")
    except Exception as error:  # a decoder fails in as many ways as files are damaged
        raise _refused(path, _WHOLE, shown_value(str(error))) from error


def _opened(raw: bytes, path: Path) -> Image.Image:
    """A picture whose head is read, and whose size is within the limits.

    Its pixels are not decoded yet.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # our own limit is lower
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = Image.open(BytesIO(raw), formats=("PNG", "JPEG"))
    except Exception as error:  # a head fails in as many ways as files are damaged
        is_bomb = isinstance(error, Image.DecompressionBombError)
        raise _refused(
            path, _PIXELS if is_bomb else _WHOLE, "more" if is_bomb else "something else"
        ) from error
    scans = 1 if raw.startswith(_PNG) else raw.count(_SCAN)
    width, height = opened.size
    if scans > MOST_SCANS:
        raise _refused(path, f"a JPEG must have at most {MOST_SCANS} scans", str(scans))
    if width * height > MOST_PIXELS:
        raise _refused(path, _PIXELS, f"{width}x{height}")
    if max(width, height) > MOST_SLENDER * min(width, height):
        raise _refused(
            path,
            f"a picture must be at most {MOST_SLENDER} times as long as wide",
            f"{width}x{height}",
        )
    return opened


def _refused(path: Path, rule: str, value: str) -> InputError:
    return input_error(path, rule, "save it anew or smaller", value)
