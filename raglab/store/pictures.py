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

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_PIXELS = 2**26  # an A4 page at 600 dots an inch has half of it
# times as long as wide; a model makes the short side fit, and the long one grows with it
MAX_SLENDERNESS = 100
MAX_JPEG_SCANS = 500  # of a JPEG, each of which passes over all its pixels; ten are usual
PICTURE_TAG_KIND = "image"
_PNG_MAGIC = b"\x89PNG"
_SCAN_MARK = b"\xff\xda"  # its mark, which cannot stand in coded pixels
_CAPTION_WORDS = 220
_WHOLE_PICTURE_RULE = "a picture must be a whole PNG or JPEG file"
_PIXELS_RULE = f"a picture must have at most {MAX_PIXELS} pixels"
_DEPTH_DIVISOR = 257  # 16 bits a pixel become 8: 65535 / 255


def caption_file(path: Path) -> Path | None:
    """Text file next to a picture that says what it shows: `a.png.txt`, else `a.txt`.

    None without either.
    """
    caption_paths = (path.with_name(f"{path.name}.txt"), path.with_suffix(".txt"))
    return next((caption_path for caption_path in caption_paths if caption_path.is_file()), None)


def picture_chunk(
    source: str,
    picture_path: Path,
    max_file_bytes: int,
    *,
    follow_links: bool,
    encoding: Encoding = None,
) -> Chunk:
    """A picture as one chunk, without a page.

    Its text is what is known of it in words: those of its file name, and below them its caption.
    Its tags say what it was: `kind` (image), `media_type` by its content, `pixels` (width x
    height, as a viewer shows it) and `sha256` of the file.

    Args:
      source: its name in the corpus.
      picture_path: of the file.
      max_file_bytes: its size at most.
      follow_links: whether the path may be a link.
      encoding: of the caption, as `decode_text` takes it.

    Raises:
      InputError: no PNG or JPEG, damaged or cut off, beyond a limit, or a caption that is too long.
    """
    raw_bytes = read_bytes(picture_path, max_file_bytes, follow_links=follow_links)
    width, height = read_pixels(raw_bytes, picture_path).size
    picture_name = " ".join(picture_path.stem.replace("_", " ").replace("-", " ").split())
    text_lines = [picture_name if count_words(picture_name) else "picture"]
    caption_path = caption_file(picture_path)
    if caption_path is not None:
        caption_bytes = read_bytes(
            caption_path, max_file_bytes, follow_links=follow_links, keep_mark=True
        )
        caption = decode_text(caption_bytes, Where(str(caption_path), 1), encoding).strip("\n")
        if count_words(caption) > _CAPTION_WORDS:
            raise input_error(
                caption_path,
                f"a caption, named after a picture, must have at most {_CAPTION_WORDS} words",
                "shorten it, or rename it",
                str(count_words(caption)),
            )
        text_lines.append(caption)
    return Chunk(
        chunk_id=f"{source}#picture",
        text="\n".join(text_lines),
        source=source,
        tags={
            "kind": PICTURE_TAG_KIND,
            "media_type": f"image/{'png' if raw_bytes.startswith(_PNG_MAGIC) else 'jpeg'}",
            "pixels": f"{width}x{height}",
            "sha256": sha256(raw_bytes).hexdigest(),
        },
    )


def picture_digest(chunk: Chunk) -> str | None:
    """SHA-256 of the file of a chunk that is a picture; None of any other."""
    is_picture = chunk.tags.get("kind") == PICTURE_TAG_KIND and chunk.source.lower().endswith(
        PICTURE_SUFFIXES
    )
    return chunk.tags.get("sha256") if is_picture else None


def stored_pixels(path: Path, digest: str) -> Image.Image:
    """Pixels of a picture that was loaded before, RGB.

    Raises:
      InputError: it is not there any more, or another one.
    """
    raw_bytes = read_bytes(path, MAX_FILE_BYTES)
    if sha256(raw_bytes).hexdigest() != digest:
        raise input_error(
            path,
            "a picture must stay as it was loaded",
            "load the corpus again",
            "another content",
        )
    return read_pixels(raw_bytes, path)


def read_pixels(raw_bytes: bytes, picture_path: Path) -> Image.Image:
    """Pixels of a PNG or JPEG file, RGB, turned as its EXIF says, on white where transparent.

    Args:
      raw_bytes: content of the file.
      picture_path: for messages.

    Raises:
      InputError: no PNG or JPEG, damaged or cut off, or beyond a limit.
    """
    from PIL import Image, ImageOps

    opened_image = _opened(raw_bytes, picture_path)
    try:
        opened_image.load()
        shown_image = ImageOps.exif_transpose(opened_image)
        if shown_image.mode.startswith("I"):  # Pillow would cut 16 bits off at 255
            shown_image = Image.fromarray(
                (np.asarray(shown_image).astype(np.uint32) // _DEPTH_DIVISOR)
                .clip(0, 255)
                .astype(np.uint8)
            )
        if "transparency" in shown_image.info or shown_image.mode in (
            "LA",
            "La",
            "PA",
            "RGBA",
            "RGBa",
        ):
            clear_image = shown_image.convert("RGBA")
            shown_image = Image.alpha_composite(
                Image.new("RGBA", clear_image.size, "white"), clear_image
            )
        return shown_image.convert("RGB")
    except Exception as error:  # a decoder fails in as many ways as files are damaged
        raise _refused(picture_path, _WHOLE_PICTURE_RULE, shown_value(str(error))) from error


def _opened(raw_bytes: bytes, picture_path: Path) -> Image.Image:
    """A picture whose head is read, and whose size is within the limits.

    Its pixels are not decoded yet.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # our own limit is lower
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened_image = Image.open(BytesIO(raw_bytes), formats=("PNG", "JPEG"))
    except Exception as error:  # a head fails in as many ways as files are damaged
        is_bomb = isinstance(error, Image.DecompressionBombError)
        raise _refused(
            picture_path,
            _PIXELS_RULE if is_bomb else _WHOLE_PICTURE_RULE,
            "more" if is_bomb else "something else",
        ) from error
    n_scans = 1 if raw_bytes.startswith(_PNG_MAGIC) else raw_bytes.count(_SCAN_MARK)
    width, height = opened_image.size
    if n_scans > MAX_JPEG_SCANS:
        raise _refused(
            picture_path, f"a JPEG must have at most {MAX_JPEG_SCANS} scans", str(n_scans)
        )
    if width * height > MAX_PIXELS:
        raise _refused(picture_path, _PIXELS_RULE, f"{width}x{height}")
    if max(width, height) > MAX_SLENDERNESS * min(width, height):
        raise _refused(
            picture_path,
            f"a picture must be at most {MAX_SLENDERNESS} times as long as wide",
            f"{width}x{height}",
        )
    return opened_image


def _refused(picture_path: Path, picture_rule: str, shown_value: str) -> InputError:
    return input_error(picture_path, picture_rule, "save it anew or smaller", shown_value)
