"""Encodings: what the caller knows, and pages stating another encoding than their UTF-8."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

from document_samples import decode_page
from raglab.store.files import InputError
from raglab.store.loaders import load_cases, load_corpus

SEVERAL_BYTES = ("gbk", "gb2312", "euc-kr", "Shift_JIS", "big5", "euc-jp", "gb18030", "ISO-2022-JP")


@pytest.mark.parametrize("label", [*SEVERAL_BYTES, "windows-1251", "iso-8859-1"])
@pytest.mark.parametrize("text", ["保险条款", "보험금 청구", "é – €"])
def test_utf_8_wins_over_what_a_page_states(label, text):
    """Where it has characters beyond ASCII; the label is given to the caller."""
    labels = []
    page = decode_page(f'<meta charset="{label}"><p>{text}'.encode(), labels)
    assert page.endswith(f"<p>{text}")
    assert len(labels) == 1
    assert labels[0].endswith(f"'{label}'")


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("gbk", "gbk", "保险条款如下"),
        ("euc-kr", "cp949", "보험금 청구"),
        ("shift_jis", "cp932", "保険の契約"),
        ("iso-2022-jp", "iso2022_jp", "保険"),
    ],
)
def test_a_page_in_the_encoding_that_it_states_is_read_so(label, codec, text):
    """Without a word; ASCII alone, such as that of ISO-2022-JP, does not make it UTF-8."""
    labels = []
    raw = f"<meta charset={label}><p>{text}".encode(codec)
    assert decode_page(raw, labels).endswith(f"<p>{text}")
    assert not labels


def test_pages_of_a_folder_are_named_in_one_warning(tmp_path):
    """With their count; a single page has one of its own."""
    for number, label in enumerate(SEVERAL_BYTES):
        (tmp_path / f"{number}.html").write_text(
            f"<meta charset={label}><p>保险条款", encoding="utf-8"
        )
    with pytest.warns(
        UserWarning, match=r"8 notes on documents: .*0\.html: read as UTF-8.* not as 'gbk'"
    ) as caught:
        chunks = load_corpus(tmp_path).chunks
    assert len(caught) == 1
    assert {chunk.text for chunk in chunks} == {"保险条款"}
    with pytest.warns(UserWarning, match=r"0\.html: read as UTF-8.* not as 'gbk'"):
        load_corpus(tmp_path / "0.html")


WRITERS = {
    "a.md": lambda text: f"# Cover\n\n{text}\n",
    "a.txt": lambda text: text,
    "a.html": lambda text: f"<p>{text}",
    "a.csv": lambda text: f"cause,text of it\n{text},x\n",
    "a.tsv": lambda text: f"id\ttext\n1\t{text}\n",
    "a.rst": lambda text: f"{text}\n",
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("codec", "text"),
    [("cp1252", "Straße – 5 €"), ("koi8-r", "Страхование"), ("shift_jis", "保険の契約")],
)
def test_the_caller_knows_the_encoding(tmp_path, name, codec, text):
    """Of texts, pages and tables; without it they are refused, or are not that text."""
    pytest.importorskip("docutils")
    path = tmp_path / name
    path.write_bytes(WRITERS[name](text).encode(codec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert text in load_corpus(path, encoding=codec).chunks[0].text
        with pytest.raises(InputError, match="must be UTF-8"):
            load_corpus(path)


def test_a_folder_and_its_captions_too(tmp_path):
    """A byte-order mark says more than the caller, and the caller more than a page."""
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (8, 8)).save(tmp_path / "p.png")
    (tmp_path / "d.html").write_bytes("<meta charset=koi8-r><p>Größe".encode("cp1252"))
    for name, codec in (
        ("p.png.txt", "cp1252"),
        ("a.md", "cp1252"),
        ("b.md", "utf-8-sig"),
        ("c.txt", "utf-16"),
    ):
        (tmp_path / name).write_bytes("Größe".encode(codec))
    chunks = load_corpus(tmp_path, encoding="cp1252").chunks
    assert [chunk.text.split()[-1] for chunk in chunks] == ["Größe"] * 5


def test_a_file_in_another_encoding_is_left_out(tmp_path):
    """With the encoding that was given."""
    (tmp_path / "a.md").write_text("Grosse", encoding="ascii")
    (tmp_path / "b.md").write_text("Größe", encoding="cp1252")
    with pytest.warns(
        UserWarning,
        match=r"1 files or links .*b\.md, line 1: .*in the stated encoding ascii",
    ):
        assert len(load_corpus(tmp_path, encoding="ascii").chunks) == 1


def test_utf_8_files_of_a_folder_stay_as_they_are(tmp_path):
    """Of the newcomer: one file in cp1252 among those in UTF-8, which are counted."""
    (tmp_path / "documents").mkdir()
    texts = {
        "a.md": "Über",
        "b.txt": "Straße – 5 €",
        "c.html": "<p>Größe",
        "d.csv": "Gefahr,Maß\nÖl,1\n",
        "e.md": "Hail",
    }
    for name, text in texts.items():
        (tmp_path / "documents" / name).write_text(text, encoding="utf-8")
    (tmp_path / "documents" / "f.md").write_bytes("Öl – 5 €".encode("cp1252"))
    with pytest.warns(UserWarning, match=r"4 notes .*a\.md: read as UTF-8.*cp1252") as caught:
        chunks = load_corpus(tmp_path, encoding="cp1252").chunks
    assert len(caught) == 1
    whole = "\n".join(chunk.full_text for chunk in chunks)
    assert all(
        word in whole for word in ("Über", "Straße – 5 €", "Größe", "Öl | 1", "Hail", "Öl – 5 €")
    )
    assert "Ã" not in whole


def test_a_folder_in_one_encoding_says_nothing(tmp_path):
    """Nor does one whose texts are ASCII; a file that is named alone is read as the caller says."""
    (tmp_path / "a.md").write_bytes("Größe".encode("cp1252"))
    (tmp_path / "b.md").write_text("Hail")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "Größe" in load_corpus(tmp_path, encoding="cp1252").chunks[0].text
        (tmp_path / "a.md").write_text("Größe", encoding="utf-8")
        assert "GrÃ¶ÃŸe" in load_corpus(tmp_path / "a.md", encoding="cp1252").chunks[0].text


@pytest.mark.parametrize("encoding", [None, "cp1252", "latin-1", "shift_jis"])
@pytest.mark.parametrize(
    "raw", [bytes(range(256)) * 10, b"PK\x03\x04\0\0\xff\xd8", "Maß".encode("utf-16-le")]
)
@pytest.mark.parametrize("ending", [".md", ".txt", ".csv", ".html"])
def test_what_looks_binary_is_called_so(tmp_path, encoding, raw, ending):
    """In a folder it is left out, whatever its ending, also where every byte has a character."""
    (tmp_path / f"bad{ending}").write_bytes(raw)
    (tmp_path / "a.md").write_text("Hail")
    with pytest.warns(
        UserWarning, match=rf"1 files or links .*bad\{ending}: .*looks binary.*control characters"
    ):
        assert [chunk.source for chunk in load_corpus(tmp_path, encoding=encoding).chunks] == [
            "a.md"
        ]


def test_labels_in_another_encoding(tmp_path):
    """Of a CSV or TSV file."""
    for name, mark in (("a.csv", ","), ("a.tsv", "\t")):
        (tmp_path / name).write_bytes(
            f"query{mark}expect_status\nWer zahlt für Öl?{mark}refuse\n".encode("cp1252")
        )
        assert load_cases(tmp_path / name, encoding="cp1252")[0].query == "Wer zahlt für Öl?"


@pytest.mark.parametrize("encoding", ["utf9", "rot13", "", "hex", "a\0b"])
def test_an_unknown_encoding_is_refused(tmp_path, encoding):
    """Before anything is read."""
    with pytest.raises(ValueError, match="encoding must name"):
        load_corpus(tmp_path / "none.md", encoding=encoding)
    with pytest.raises(ValueError, match="encoding must name"):
        load_cases(tmp_path / "none.csv", encoding=encoding)


def test_what_has_no_encoding_takes_none(tmp_path):
    """A frame and JSON, of cases and of a corpus."""
    lines = tmp_path / "corpus.jsonl"
    lines.write_text('{"id": "a", "query": "Who?", "expect_status": "ok"}\n', encoding="utf-8")
    frame = pd.DataFrame({"query": ["Who?"], "text": ["Ann."], "expect_status": ["ok"]})
    for load, source in ((load_cases, lines), (load_corpus, lines), (load_cases, frame)):
        with pytest.raises(InputError, match="encoding"):
            load(source, encoding="cp1252")
