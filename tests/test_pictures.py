"""Pictures in a corpus: what stands in a file, what is refused, and how a question finds one."""

from __future__ import annotations

import struct
import warnings
import zlib
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import raglab
from raglab.models.loaders import load_encoder
from raglab.retrieval.dense import dense_index
from raglab.retrieval.indexes import Bm25Index, Indexes, Signatures
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus, save_corpus
from raglab.store.pictures import MAX_PIXELS, read_pixels, stored_pixels
from raglab.values import Case, Chunk, Corpus
from tiny_models import CLIP_TOKENS, COLOURS, save_clip, save_encoder

RED = COLOURS["red"]
NOISE = Image.effect_noise((64, 64), 50)


def encoded(image, form="PNG", **more):
    """File of a picture."""
    file = BytesIO()
    image.save(file, form, **more)
    return file.getvalue()


def square(colour=RED, size=(6, 4), mode="RGB"):
    """Picture of one colour."""
    return Image.new(mode, size, colour)


def head_of_png(width, height):
    """A PNG of a stated size whose pixels, were they decoded, are zeros."""

    def part(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + part(b"IDAT", zlib.compress(bytes(2**16)))
        + part(b"IEND", b"")
    )


def folder_of(place, files):
    """Folder of files."""
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def refusal(path):
    """Message with which a corpus is refused, or a file of it left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((InputError, UserWarning)) as caught:
            load_corpus(path)
    return str(caught.value)


def test_a_picture_is_one_chunk_that_says_what_it_was(tmp_path):
    """Words of its name and caption; kind, media type, pixels and SHA-256 as tags.

    Saved and read again.
    """
    raw = encoded(square())
    files = {
        "img/the_red-door.png": raw,
        "img/the_red-door.png.txt": "Front door.\n",
        "notes.md": "# A\nB c.",
    }
    corpus = load_corpus(folder_of(tmp_path / "docs", files))
    picture, _ = corpus.chunks
    assert picture == Chunk(
        "img/the_red-door.png#picture",
        "the red door\nFront door.",
        "img/the_red-door.png",
        tags={
            "kind": "image",
            "media_type": "image/png",
            "pixels": "6x4",
            "sha256": sha256(raw).hexdigest(),
        },
    )
    assert corpus.pictures == {
        picture.chunk_id: str(tmp_path / "docs" / "img" / "the_red-door.png")
    }
    save_corpus(corpus, tmp_path / "c.jsonl")
    again = load_corpus(tmp_path / "c.jsonl")
    assert (again.chunks, again.pictures) == (corpus.chunks, {})


def test_captions_belong_to_their_pictures(tmp_path):
    """`a.png.txt` before `a.txt`; a caption is no document of its own, any other text is.

    A lone file has its own.
    """
    files = {
        "a.png": encoded(square()),
        "a.png.txt": "First.",
        "a.txt": "Second.",
        "__.jpg": encoded(square(), "JPEG"),
    }
    folder_of(tmp_path, files | {"b.jpeg": encoded(square(), "JPEG"), "b.txt": "Third."})
    texts = {chunk.source: chunk.text for chunk in load_corpus(tmp_path).chunks}
    assert texts == {
        "__.jpg": "picture",
        "a.png": "a\nFirst.",
        "a.txt": "Second.",
        "b.jpeg": "b\nThird.",
    }
    assert load_corpus(tmp_path / "b.jpeg").chunks[0].text == "b\nThird."


def test_a_picture_is_read_as_a_viewer_shows_it():
    """Any mode becomes RGB, transparent is white, 16 bits keep their grey, EXIF turns it."""
    here = Path("a.png")
    grey = Image.fromarray(np.full((4, 6), 0x8000, np.uint16))
    shown = {
        encoded(square((0, 255, 255, 0), mode="CMYK"), "JPEG", quality=100): (255, 0, 0),
        encoded(square((90, 0), mode="LA")): (255, 255, 255),
        encoded(square().quantize(), transparency=0): (255, 255, 255),
        encoded(grey): (127, 127, 127),
    }
    for raw, colour in shown.items():
        read = read_pixels(raw, here)
        assert (read.mode, read.size) == ("RGB", (6, 4))
        assert np.abs(np.asarray(read).astype(int) - colour).max() <= 2  # JPEG loses a little
    turned = square(size=(16, 8))
    # the left half, which stands above once it is turned to the right
    turned.paste((0, 0, 0), (0, 0, 8, 8))
    exif = Image.Exif()
    exif[0x0112] = 6
    read = read_pixels(encoded(turned, "JPEG", exif=exif, quality=100), here)
    assert read.size == (8, 16)
    assert np.asarray(read)[1, 4].max() < 20 < np.asarray(read)[14, 4].max()


@pytest.mark.parametrize(
    ("name", "raw", "rule"),
    [
        ("bomb.png", head_of_png(20_000, 20_000), f"at most {MAX_PIXELS} pixels"),
        ("line.png", head_of_png(60_000, 1), "at most 100 times as long as wide"),
        ("short.png", encoded(NOISE)[:-700], "a whole PNG or JPEG file"),
        ("cut.jpg", encoded(NOISE, "JPEG")[:-700], "a whole PNG or JPEG file"),
        ("scans.jpg", encoded(NOISE, "JPEG") + 500 * b"\xff\xda", "at most 500 scans"),
        ("moving.png", encoded(square(), "GIF"), "a whole PNG or JPEG file"),
        ("empty.png", b"", "must not be empty"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_what_is_no_whole_picture_of_ordinary_size_is_refused(tmp_path, name, raw, rule):
    """The message names the file, the rule and a remedy; nothing is decoded beyond the limits."""
    message = refusal(folder_of(tmp_path, {name: raw}))
    assert name in message
    assert rule in message


def test_the_content_says_what_a_picture_is(tmp_path):
    """A PNG named .jpg is a PNG; one that another takes the place of is not read.

    A link is not followed.
    """
    folder_of(tmp_path, {"a.jpg": encoded(square())})
    chunk = load_corpus(tmp_path).chunks[0]
    assert chunk.tags["media_type"] == "image/png"
    with pytest.raises(InputError, match="another content"):
        stored_pixels(tmp_path / "a.jpg", sha256(b"").hexdigest())
    (tmp_path / "b.png").symlink_to(tmp_path / "a.jpg")
    assert "link" in refusal(tmp_path)


def test_texts_and_pictures_are_found_in_turn():
    """The nearest text, the nearest picture, and so on, whatever lies between the two kinds.

    A scope limits both.
    """
    # of the question, so that every text is nearer than a picture
    angles = np.array([0.1, 0.2, 0.3, 0.4, 1.0, 1.1])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    axis = np.array([[1.0, 0.0]], np.float32)
    signs = Signatures(np.zeros(6, np.int64), axis)
    texts = tuple("abcdef")
    indexes = Indexes(
        texts, vectors, {}, vectors, dense_index(vectors), Bm25Index(texts), signs, signs
    )
    kinds = tuple((at, dense_index(vectors[at])) for at in (np.arange(4), np.array([4, 5])))
    mixed = replace(indexes, pictures=kinds[1][0], kinds=kinds)
    assert mixed.nearest(axis, 3, None).tolist() == [[0, 4, 1]]
    assert mixed.nearest(axis, 3, np.array([2, 5])).tolist() == [[2, 5, -1]]
    assert mixed.nearest(axis, 3, np.array([3, 1])).tolist() == [[1, 3, -1]]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A tiny CLIP model that knows three colours."""
    return save_clip(tmp_path_factory.mktemp("models") / "clip")


@pytest.fixture(scope="module")
def encoder(clip):
    """The same, loaded."""
    return load_encoder(str(clip))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three squares without their colours' names, one with a caption, and a text."""
    files: dict[str, bytes | str] = {
        f"{i}.png": encoded(square(colour, (40, 60))) for i, colour in enumerate(COLOURS.values())
    }
    files |= {"0.png.txt": "A red door.", "sea.md": "# Sea\nThe sea is deep."}
    return load_corpus(folder_of(tmp_path_factory.mktemp("corpus") / "docs", files))


CASES = tuple(Case(colour, colour, "ok") for colour in ("red", "green", "blue"))


def test_no_text_is_taken_for_the_address_of_a_picture(encoder, tmp_path):
    """A question that looks like an address or a path is a text.

    Nothing is fetched, no file is read.
    """
    square().save(tmp_path / "a.png")
    texts = [str(tmp_path / "a.png"), "http://127.0.0.1:9/a.png", "data:image/png;base64,AA"]
    as_passages, as_questions = encoder.sentences(texts), encoder.sentences(texts, query=True)
    assert np.array_equal(as_passages, as_questions)
    assert abs(float(as_passages[0] @ encoder.pictures([square()])[0])) < 0.999


def test_a_question_finds_a_picture(corpus, clip, tmp_path):
    """Nearest by its pixels, whatever its words; the trace stores what it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = raglab.build_trace(
            corpus,
            CASES,
            encoder=str(clip),
            arms=("dense", "hybrid"),
            cache=None,
            out=tmp_path / "a.parquet",
        )
    # no token embeddings, so that nothing is reranked
    assert trace.meta["parameters"]["rerank_k"] == 0
    again = raglab.Trace.load(tmp_path / "a.parquet")
    for arm in range(2):
        nearest = [again.chunks[chunk] for chunk in again.hits.chunk[:, arm, 0, 0]]
        assert [chunk.source for chunk in nearest] == ["0.png", "1.png", "2.png"]
        assert {chunk.tags["kind"] for chunk in nearest} == {"image"}
    assert again.hits.cosine[:, :, 0, 0].min() > 0.999


def test_an_index_answers_from_a_picture(corpus, clip, tmp_path):
    """The pictures are not needed once they are indexed; sources name them.

    Without words the answer is refused.
    """
    raglab.build_index(corpus, tmp_path / "index", arms=("hybrid",), encoder=str(clip), cache=None)
    system = raglab.System.open(tmp_path / "index", audit=False)
    answer = raglab.ask("red", system=system)
    assert (answer["status"], answer["sources"][0]) == ("ok", "0.png#n/a")
    assert "red door" in answer["answer"]
    assert "content word" in raglab.ask("green", system=system)["refusal_reason"]
    (tmp_path / "index" / "embeddings.sqlite").unlink()
    with pytest.raises(InputError, match="load the corpus from its folder"):
        raglab.System.open(tmp_path / "index", audit=False)


def test_an_encoder_of_texts_finds_pictures_by_their_words(corpus, tmp_path):
    """Their number is said; a picture is found by its caption."""
    folder = str(save_encoder(tmp_path / "texts"))
    with pytest.warns(UserWarning, match="3 of 4 chunks are pictures, which texts@"):
        trace = raglab.build_trace(
            corpus, (Case("a", "door", "ok"),), encoder=folder, arms=("bm25",), cache=None
        )
    assert trace.chunks[trace.hits.chunk[0, 0, 0, 0]].source == "0.png"


def test_a_long_text_is_counted_and_a_long_caption_is_not(corpus, clip):
    """The 24 letters of the tiny model, the 77 tokens of a real one, cut texts.

    Pictures are not read as text.
    """
    long = Corpus("long", (*corpus.chunks, Chunk("t", "deep sea " * 9, "t.md")), corpus.pictures)
    with pytest.warns(UserWarning, match=f"1 of 2 chunks are longer than the {CLIP_TOKENS} tokens"):
        raglab.build_trace(long, CASES[:1], encoder=str(clip), arms=("dense",), cache=None)
