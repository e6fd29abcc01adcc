"""Web pages: what a reader sees of them as Markdown, and pages that are broken or hostile."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raglab.store.files import InputError, Where
from raglab.store.html import decode_html, html_document
from raglab.store.loaders import load_corpus

PAGE = """<!DOCTYPE html>
<html lang="fr-CH"><head><meta charset="utf-8"><title>Contrat &amp; prime</title>
<style>p > a { color: red }</style><script>if (a < b && c > d) { x("</p>") }</script></head>
<body><h1>Contrat <em>habitation</em></h1>
<p>La prime est de 10<sup>2</sup>&nbsp;&euro;.<br>Deuxième
ligne.</p>
<ol><li><p>Un</p><li>Deux<ul><li>dedans</ul></ol>
<dl><dt>Assureur :<dd>Vauban SA<dt>Prime<dd>400 €</dl>
<table><caption>Garanties</caption><tr><th>Cause<th>Franchise<tr><td rowspan=2>Eau|gel<td>250 €<tr><td>300 €</table>
<h2>Fin</h2><p># pas un titre</body></html>"""


def text_of(page: str) -> str:
    """Markdown of a page."""
    return html_document(page, "a.html").text


def test_a_page_as_a_reader_sees_it() -> None:
    """Headings, paragraphs, lists, definitions and tables; no style, no script; entities and what stands raised."""
    page = html_document(PAGE, "a.html")
    assert (page.title, page.language) == ("Contrat & prime", "fr")
    assert page.text.split("\n\n") == [
        "# Contrat habitation",
        "La prime est de 10^2 €.\nDeuxième ligne.",
        "1. Un\n2. Deux\n  - dedans",
        "Assureur: Vauban SA\nPrime: 400 €",
        "Garanties",
        "| Cause | Franchise |\n|---|---|\n| Eau\\|gel | 250 € |\n| Eau\\|gel | 300 € |",
        "## Fin",
        "\\# pas un titre",
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("if a < b and c > d, or <3", "if a < b and c > d, or <3"),
        ("<p title='a > b'>x</p><p don't>y", "x\n\ny"),
        ("<P>x<!-- a --><!-->y<!doctype z><?php z ?>", "xy"),
        ("x <b>bold</b>, <a href=b.html>link</a>", "x bold, link"),
        ("a<div>b<span>c</span></div>d", "a\n\nbc\n\nd"),
        ("<img alt='A plan' src=x.png><svg><text>no</text></svg>", "A plan"),
        ("<pre>a  b\n  c</pre>", "a  b\n  c"),
        ("<p>```<p>~~~ a<p>| b |", "\\```\n\n\\~~~ a\n\n\\| b |"),
        ("<ul><li>a<p>b</ul><li>c", "- a\n  b\n\n- c"),
        ("<table><tr><td>a<td>b</table>", "| a | b |"),
        ("<table><tr><th>Insurer<td>Acme<tr><th>Term<td>A year</table>", "| Insurer | Acme |\n| Term | A year |"),
        ("<table><tr><td colspan=2>a<td>b<tr><td>c</table>", "| a | a | b |\n| c |"),
        (
            "<table><tr><td><h2>Menu</h2>x<td><table><tr><th>y<tr><td>z</table>w</table>v",
            "## Menu\n\nx\n\n| y |\n|---|\n| z |\n\nw\n\nv",
        ),
        ("<table><tr><td>a<td><p>b<p>c<ul><li>d</ul></table>", "| a | b c d |"),
        ("x<table></table>y<table><tr><td></table>", "x\n\ny"),
        ("</p></table></td></ul>x</dl><dd>y", "x\n\ny"),
        ("x <y never ends", "x <y never ends"),
        ("&#0;&#xD800;&nosuch;&lt;b&gt;", "\ufffd\ufffd&nosuch;<b>"),
        ("", ""),
    ],
)  # fmt: skip
def test_parts(page: str, text: str) -> None:
    """Tags that never close, cells over several columns, tables that lay out a page, what only looks like a tag."""
    assert text_of(page) == text


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("a\n<!-- b", "a.html, line 2: a comment must end with -->, got none to the end; close it."),
        ("<script>a", "a.html, line 1: an element script must end with </script>, got none to the end; close it."),
        ("<style></styl>", "an element style must end with </style>"),
    ],
)
def test_what_would_hide_the_rest_is_refused(page: str, message: str) -> None:
    """A browser shows nothing after it: a person is told the line."""
    with pytest.raises(InputError, match=message):
        html_document(page, "a.html")


def test_long_tables_repeat_their_heads() -> None:
    """As those of a CSV file, 25 rows at a time."""
    rows = "".join(f"<tr><td>{n}<td>x" for n in range(60))
    blocks = text_of(f"<table><tr><th>n<th>v{rows}</table>").split("\n\n")
    assert [len(block.split("\n")) for block in blocks] == [27, 27, 12]
    assert {block.split("\n")[0] for block in blocks} == {"| n | v |"}


def test_encodings() -> None:
    """UTF-8, or one byte a character where the page says so; another is refused."""
    where = Where("a.html", 1)
    assert decode_html("\ufeffé\r\n".encode(), where) == "é\n"
    assert decode_html('<meta charset="iso-8859-1">é\u20ac'.encode("windows-1252"), where).endswith("é€")
    assert decode_html("<meta charset=iso-8859-15>€".encode("iso-8859-15"), where).endswith("€")
    for page in (b"<meta charset=utf-16>\xe9", b"\xe9", b"<meta charset=windows-1259>\xe9", b"<meta charset=zip>\xe9"):
        with pytest.raises(InputError, match="must be"):
            decode_html(page, where)


@given(st.text(alphabet="<>/!-=\"' \nabpultdrh123&;#", max_size=200))
def test_any_page_is_read_or_refused(page: str) -> None:
    """Whatever it holds: text, or a line that says what to close."""
    try:
        text = text_of(page)
    except InputError:
        return
    assert text == text.strip("\n")


@pytest.mark.full
@pytest.mark.parametrize(
    "unit",
    [
        *("<", "<a", "<a ", "<!-- -->", "</", "<a b='", '<a b="x" ', "<a/", "<!", "&", "='", "<td colspan=1000>"),
        *("<table>", "<table><tr><td>", "<tr><td rowspan=1000>", "<tr>", "<ul>", "<dt>", "<html a", "<img alt "),
    ],
)  # fmt: skip
def test_time_and_size_are_linear_in_the_page(unit: str) -> None:
    """A fifth of a megabyte of anything takes seconds at most, and says little more than it has."""
    page = f"<table><p>x</p>{unit * (200_000 // len(unit))}"
    began = time.perf_counter()
    assert len(text_of(page)) < 15 * len(page)
    assert time.perf_counter() - began < 10


def test_pages_of_a_folder(tmp_path: Path) -> None:
    """Are documents with their title and language; what is left out is named once, by kind."""
    (tmp_path / "a.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "b.htm").write_text("<title>Rain</title><h1>Rain</h1><p>It is wet.", encoding="utf-8")
    for name in ("c.docx", "d.docx", "e"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"left out of the corpus: 2 .docx, 1 without an ending; documents are .md"):
        corpus = load_corpus(tmp_path)
    assert [chunk.source for chunk in corpus.chunks] == ["a.html", "a.html", "b.htm"]
    assert dict(corpus.chunks[0].tags) == {"title": "Contrat & prime", "lang": "fr"}
    assert corpus.chunks[0].text.startswith("Contrat & prime > Contrat habitation\nLa prime est de 10^2 €.")
    assert corpus.chunks[2].text == "Rain\nIt is wet."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_corpus(tmp_path / "b.htm").chunks[0].source == "b.htm"
    (tmp_path / "b.htm").write_text("<p> </p>", encoding="utf-8")
    with pytest.raises(InputError, match="a document must have text"):
        load_corpus(tmp_path / "b.htm")
