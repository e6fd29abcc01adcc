"""Web pages: what a reader sees of them as Markdown, and pages that are broken or hostile."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from document_samples import decode_page, document
from raglab.store.blocks import DocumentBlocks
from raglab.store.chunking import TokenLimit, chunk_blocks
from raglab.store.document_reading import DOCUMENT_LIMITS
from raglab.store.encodings import decode_text
from raglab.store.files import InputError, Where
from raglab.store.html import html_document
from raglab.store.loaders import load_corpus
from raglab.store.markdown import markdown_blocks

WORDS = TokenLimit(lambda texts: [len(text.split()) for text in texts], 64, 0)
PAGE = """<!DOCTYPE html>
<html lang="fr-CH"><head><meta charset="utf-8"><title>Contrat &amp; prime</title>
<style>p > a { color: red }</style><script>if (a < b && c > d) { x("</p>") }</script></head>
<body><h1>Contrat <em>habitation</em></h1>
<p>La prime est de 10<sup>2</sup>&nbsp;&euro;.<br>Deuxième
ligne.</p>
<ol><li><p>Un</p><li>Deux<ul><li>dedans</ul></ol>
<dl><dt>Assureur :<dd>Vauban SA<dt>Prime<dd>400 €</dl>
<table><caption>Garanties</caption><tr><th>Cause<th>Franchise<tr><td rowspan=2>Eau|gel<td>250 \
€<tr><td>300 €</table>
<h2>Fin</h2><p># pas un titre</body></html>"""


def text_of(page):
    """Blocks of a page as Markdown writes them."""
    blocks = html_document(page).blocks
    return "\n\n".join(
        f"{'#' * block.level} {block.text}" if block.kind == "heading" else block.text
        for block in blocks
    )


def test_a_page_as_a_reader_sees_it():
    """Headings, paragraphs, lists, definitions and tables; no style, no script.

    Entities and what stands raised.
    """
    page = html_document(PAGE)
    assert page.tags == {"title": "Contrat & prime", "lang": "fr"}
    assert [(block.kind, block.level, block.text) for block in page.blocks] == [
        ("heading", 1, "Contrat habitation"),
        ("text", 0, "La prime est de 10^2 €.\nDeuxième ligne."),
        ("item", 1, "1. Un"),
        ("item", 1, "2. Deux"),
        ("item", 2, "  - dedans"),
        ("text", 0, "Assureur: Vauban SA"),
        ("text", 0, "Prime: 400 €"),
        ("text", 0, "Garanties"),
        (
            "table",
            0,
            "| Cause | Franchise |\n|---|---|\n| Eau\\|gel | 250 € |\n| Eau\\|gel | 300 € |",
        ),
        ("heading", 2, "Fin"),
        ("text", 0, "\\# pas un titre"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("if a < b and c > d, or <3", "if a < b and c > d, or <3"),
        ("<p title='a > b'>x</p><p don't>y", "x\n\ny"),
        ("<P>x<!-- a --><!-->y<!doctype z><?php z ?>", "xy"),
        ("<img alt='A plan' src=x.png><svg><text>no</text></svg>", "A plan"),
        ("<pre>a  b\n  c</pre>", "```\na  b\n  c\n```"),
        ("<pre class=language-py>a<br>```</pre>", "````py\na\n```\n````"),
        ("<div class=highlight-c><pre><code>a;</code></pre></div>", "```c\na;\n```"),
        (
            "use <code>a</code>, <code>b`c</code>, <code> </code><code><code>d</code></code>",
            "use `a`, ``b`c``, `d`",
        ),
        (
            "<h2>Usage<a class=headerlink href=#usage>¶</a></h2><a href=#x>see x</a>",
            "## Usage\n\nsee x",
        ),
        ("<p>```<p>~~~ a<p>| b |", "\\```\n\n\\~~~ a\n\n\\| b |"),
        ("<ul><li>a<p>b</ul><li>c", "- a\n\n  b\n\n- c"),
        ("<ol start=3><li>a<li>b</ol>", "3. a\n\n4. b"),
        ("<dl><dt>a<dd><pre>b</pre><dt>c<dt>d<dd>e</dl>", "a:\n\n```\nb\n```\n\nc: d: e"),
        (
            "<table><tr><th>Insurer<td>Acme<tr><th>Term<td>A year</table>",
            "| Insurer | Acme |\n| Term | A year |",
        ),
        ("<table><tr><td colspan=2>a<td>b<tr><td>c</table>", "| a | a | b |\n| c |"),
        (
            "<table><tr><td><h2>Menu</h2>x<td><table><tr><th>y<tr><td>z</table>w</table>v",
            "## Menu\n\nx\n\n| y |\n|---|\n| z |\n\nw\n\nv",
        ),
        ("<table><tr><td>a<td><p>b<p>c<ul><li>d</ul></table>", "| a | b c d |"),
        ("</p></table></td></ul>x</dl><dd>y", "x\n\ny"),
        ("x <y never ends", "x"),
        ("&#0;&#xD800;&nosuch;&lt;b&gt;", "\ufffd\ufffd&nosuch;<b>"),
        (
            "<article><h2>A</h2>b</article><article><h2>C</h2>d</article>e",
            "## A\n\nb\n\n# \n\n## C\n\nd\n\n# \n\ne",
        ),
        ("<article><p>a</article><p>b", "a\n\nb"),
        ("", ""),
    ],
)
def test_parts(page, text):
    """Unclosed tags, cells over several columns, layout tables, and what only looks like a tag."""
    assert text_of(page) == text


HIDDEN = {
    "a comment": "<!-- {} -->",
    "hidden": "<p hidden>{}</p>",
    "aria-hidden": "<span aria-hidden=true>{}</span>",
    "noscript": "<noscript><p>{}</noscript>",
    "template": "<template><p>{}</p></template>",
    "script": "<script>var a = '{}'</script>",
    "style": "<style>{}</style>",
    "svg": "<svg><title>{0}</title><text>{0}</text></svg>",
    "display none": "<p style='color: red; DISPLAY : none !important'>{}</p>",
    "a comment in a style": "<p style='display:/**/none'>{}</p>",
    "visibility": "<b style=visibility:hidden>{}</b>",
    "a closed dialog": "<dialog>{}</dialog>",
    "in a table": "<table><tr><td hidden>{0}<tr><td>y<td style=display:none>{0}</table>",
}


@pytest.mark.parametrize("markup", HIDDEN.values(), ids=HIDDEN.keys())
def test_what_a_browser_hides_is_left_out(markup):
    """Of a page, and of HTML inside Markdown; what stands around it stays."""
    page = f"<p>before</p>{markup.format('SECRET')}<p>after</p>"
    for text in (
        text_of(page),
        "\n".join(block.text for block in markdown_blocks(page.encode()).blocks),
    ):
        assert "SECRET" not in text
        assert "before" in text
        assert "after" in text


@pytest.mark.parametrize(
    "markup",
    [
        *(
            "<p aria-hidden=false>SEEN</p>",
            "<p style='display: block'>SEEN</p>",
        ),
        *(
            "<p style='--x-display: none-such'>SEEN</p>",
            "<p hidden=until-found>SEEN</p>",
            "<dialog open>SEEN</dialog>",
        ),
        *(
            "<details><summary>more</summary>SEEN</details>",
            "<p title='<!--'>SEEN</p>",
        ),
    ],
)
def test_what_only_looks_hidden_stays(markup):
    """Other values, names that begin alike, what opens with a click."""
    assert "SEEN" in text_of(markup)


FURNITURE = {
    **{name: f"<{name}>{{}}</{name}>" for name in ("nav", "button", "textarea")},
    "select": "<select><optgroup label=SECRET><option>{}</select>",
    "option": "<option>{}</option>",
    "input": "<input value='{}'>",
    **{
        role: f"<div role='{role} x'><ul><li>{{}}</ul></div>"
        for role in ("navigation", "BANNER", "contentinfo", "search", "dialog", "menu")
    },
    "in a table": "<table><tr><td><nav>{0}</nav>x<td><button>{0}</button></table>",
    "in an article": "<article><nav>{}</nav></article>",
    "beside a heading": "<h2>x <button>{}</button></h2>",
}


@pytest.mark.parametrize("markup", FURNITURE.values(), ids=FURNITURE.keys())
def test_what_stands_around_the_content_is_left_out(markup):
    """Of a page, and of HTML inside Markdown."""
    test_what_a_browser_hides_is_left_out(markup)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<header><h1>Site</h1></header>a<footer>(c)</footer>", "a"),
        ("<article><header>a</header>b<footer>c</footer></article>", "a\n\nb\n\nc"),
        ("<section><div><header>a</header></div></section><header>b</header>c", "a\n\nc"),
        ("<p>Skip</p><main><header>a</header>b</main><p>c", "a\n\nb"),
        ("<p>Skip</p><div role='MAIN x'>b</div><p>c", "b"),
        ("a<main hidden>b</main><main>c</main>", "c"),
        ("a<main> <h1>b</h1></main>c", "a\n\n# b\n\n# \n\nc"),
        ("<h3> <button>Is hail covered?</button> </h3><p>Yes.", "### Is hail covered?\n\nYes."),
        ("<p role=note>a<p role='x note'>b<p role>c<aside>d</aside>", "a\n\nb\n\nc\n\nd"),
    ],
)
def test_what_is_the_content(page, text):
    """The one main part that has text; headers and footers of articles.

    A button that is all of a heading.
    """
    assert text_of(page) == text


def test_a_text_with_html_in_it_is_no_page():
    """Markdown around a main part, a header and a footer stays."""
    text = "<header>\n\na\n\n</header>\n\n<main>\n\nb\n\n</main>\n\nc\n\n<footer>d</footer>"
    assert [block.text for block in markdown_blocks(text.encode()).blocks] == ["a", "b", "c", "d"]


def test_text_behind_an_article_has_its_own_headings(tmp_path):
    """Those outside the article, below which its own stand; the title stays."""
    page = (
        "<title>T</title><h2>A</h2>a<article><h3>B</h3>b<article><h4>C</h4>c</article></"
        "article>d<article><h1>E</h1>"
    )
    (tmp_path / "a.html").write_text(f"{page}e</article><ul><li>f</ul>", encoding="utf-8")
    chunks = load_corpus(tmp_path).chunks
    assert [(chunk.section, chunk.text) for chunk in chunks] == [
        (("T", "A"), "a"),
        (("T", "A", "B"), "b\n\nC\n\nc"),
        (("T", "A"), "d"),
        (("T", "A", "E"), "e"),
        (("T", "A"), "- f"),
    ]


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("a\n<!-- b", "comment"),
        ("<style></styl>", "style"),
        ("a<template><p>b", "template"),
    ],
)
def test_what_would_hide_the_rest_is_refused(page, name):
    """A browser shows nothing after it."""
    with pytest.raises(InputError, match=f"{name} must end with"):
        html_document(page)


@pytest.mark.parametrize(
    ("head", "codec", "text"),
    [
        (
            '<meta name="description" content="charset=koi8-r"><meta charset="windows-1251">',
            "cp1251",
            "Привет",
        ),
        (
            '<meta name=description content="charset=koi8-r"><meta charset=iso-8859-1>',
            "latin-1",
            "Straße",
        ),
        ("<!-- <meta charset=shift_jis> --><meta charset=utf-8>", "utf-8", "café"),
        ("<?xml version='1.0' encoding='windows-1251'?>", "cp1251", "Привет"),
        ("<meta data-x='a charset=koi8-r'><META CHARSET=windows-1252>", "cp1252", "café"),
        (
            '<meta content="text/html; charset=windows-1251" http-equiv=content-type>',
            "cp1251",
            "Привет",
        ),
    ],
)
def test_an_encoding_is_stated_where_browsers_look_for_it(head, codec, text):
    """By the attribute, or the content beside http-equiv.

    Not in a comment, nor in the value of another attribute.
    """
    assert decode_page(f"{head}<p>{text}".encode(codec)).endswith(f"<p>{text}")


@pytest.mark.parametrize(
    "codec", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
def test_a_byte_order_mark_states_the_encoding(codec, tmp_path):
    """Of pages, whatever they state besides, and of other texts; line ends are one line feed."""
    mark = "" if codec in {"utf-8-sig", "utf-16", "utf-32"} else "\ufeff"
    raw = f"{mark}<meta charset=shift_jis>é保\r\n".encode(codec)
    assert decode_page(raw) == "<meta charset=shift_jis>é保\n"
    assert decode_text(raw, Where("a.md", 1)) == "<meta charset=shift_jis>é保\n"
    for name in ("a.html", "b.md", "c.txt", *(() if codec.startswith("utf-32") else ("d.csv",))):
        (tmp_path / name).write_bytes(f"{mark}保険,x\r\n1,2\n".encode(codec))
    assert all("保険" in chunk.full_text for chunk in load_corpus(tmp_path).chunks)


@pytest.mark.parametrize(
    "raw",
    [
        *(
            b"<meta charset=utf-16>\xe9",
            b"\xe9",
            b"<meta charset=windows-1259>\xe9",
            b"<meta charset=zip>\xe9",
        ),
        *(b"<meta charset=shift_jis>\x81", b"\xff\xfea", b"\xff\xfe\x00\x00a\x00"),
    ],
)
def test_what_is_not_in_its_encoding_is_refused(raw):
    """A label that no browser knows, bytes that are none of the encoding."""
    with pytest.raises(InputError, match="must be"):
        decode_page(raw)


@given(st.text(alphabet="<>/!-=\"' \nabpultdrh123&;#", max_size=200))
def test_any_page_is_read_or_refused(page):
    """Whatever it holds: text, or a line that says what to close."""
    try:
        blocks = html_document(page).blocks
    except InputError:
        return
    assert all(block.text.strip() for block in blocks)


UNITS = (
    *("<", "<a ", "<!-- -->", "</", "<a b='", '<a b="x" ', "<a/", "<!", "&", "='", "<tr>", "<pre>"),
    *(
        "<td colspan=1000>x",
        "<tr><td rowspan=1000>",
        "<table><tr><td>",
        "<ul>",
    ),
    *("<img alt ", "<b>x<p>", "<ul><li>", "<code>x", "<dl><dt>x", "<li><p>x"),
    *(
        "<blockquote>",
        "<svg>",
        "<select><option>x",
        "<a href=#><a href=#>",
        "<h1><table>",
        "<main>",
    ),
    *("<span style=display:none>", "<p hidden>", "<a><div>", "<noscript>", "<article><h2>x"),
    *("<h1><button>", "<article></article>x"),
)


@pytest.mark.parametrize("unit", UNITS)
def test_time_and_size_are_linear_in_the_page(unit):
    """40,000 characters of anything take a second at most, and say little more than they have."""
    page = f"<table><p>x</p>{unit * (40_000 // len(unit))}"
    began = time.process_time()
    with suppress(InputError):
        assert sum(len(block.text) for block in html_document(page).blocks) < 15 * len(page)
    assert time.process_time() - began < 10


def test_a_page_of_100000_elements_in_one_another_is_bounded():
    """It is read by a process of its own, which is ended at its limit; 3,000 are read."""
    limits = DOCUMENT_LIMITS._replace(seconds=1)
    with pytest.raises(InputError, match=r"a\.html: .* 1 seconds for each MiB"):
        document("HTML", "<div>" * 100_000 + "x", "a.html", limits)
    (block,) = document("HTML", "<div>" * 3_000 + "x").blocks
    assert block.text == "x"


def test_a_large_page_is_read_by_a_process_of_its_own():
    """With the same blocks, title and tags; and what it refuses is refused."""
    page = (
        f"<title>T</title><html lang=de><h1>A</h1>{'<p>word <b>word</b>' * 6_000}<table><tr><th>a"
        "<tr><td>b</table>"
    )
    assert document("HTML", page) == html_document(page)
    with pytest.raises(InputError, match=r"^a\.html: a comment must end with"):
        document("HTML", f"{page}<!-- x", "a.html")


def test_pages_of_a_folder(tmp_path):
    """Are documents with their title and language; what is left out is named once, by kind."""
    (tmp_path / "a.html").write_text(PAGE, encoding="utf-8")
    page = "<title>Rain</title><h1>Rain</h1><p>It is wet."
    (tmp_path / "b.htm").write_text(page, encoding="utf-8")
    for name in ("c.rtf", "d.rtf", "e"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"left out of the corpus: 2 .rtf.* 1 without an ending"):
        first, *_, last = load_corpus(tmp_path).chunks
    assert first.section == ("Contrat & prime", "Contrat habitation")
    assert first.tags["lang"] == "fr"
    assert last.full_text == "Rain\nIt is wet."
    (tmp_path / "b.htm").write_text("<p> </p>", encoding="utf-8")
    with pytest.raises(InputError, match="a document must have text"):
        load_corpus(tmp_path / "b.htm")


def test_struck_text_is_left_out():
    """Else 100 that gave way to 250 would be 100250.

    By every element that strikes, and by Markdown's own marks.
    """
    page = "<p>Fee <del>100</del><ins>250</ins> or <s>9</s> 8 <strike>7</strike>6"
    assert [block.text for block in html_document(page).blocks] == ["Fee 250 or 8 6"]
    assert [block.text for block in markdown_blocks(b"Fee ~~100~~ 250, `<s>`").blocks] == [
        "Fee 250, `<s>`"
    ]


def test_parts_of_a_formula_stay_apart():
    """1 over 2 is not 12, and cells of a matrix are numbers of their own."""
    page = "<p>so <math><mfrac><mn>1</mn><mn>2</mn></mfrac><mtr><mtd>3<mtd>4</mtr></math> of it"
    assert html_document(page).blocks[0].text.split() == ["so", "1", "2", "3", "4", "of", "it"]


HIDDEN_CELLS = {
    "aria-hidden": ("<tr><td aria-hidden=true>x<td>1<td>2", "|  | 1 | 2 |"),
    "over two columns": ("<tr><td aria-hidden=true colspan=2>x<td>2", "|  |  | 2 |"),
    "visibility": ("<tr><td style='visibility: hidden'>x<td>1<td>2", "|  | 1 | 2 |"),
    # A browser gives these no place.
    "hidden": ("<tr><td hidden>x<td>1<td>2<td>3", "| 1 | 2 | 3 |"),
    "display": ("<tr><td style='display:none'>x<td>1<td>2<td>3", "| 1 | 2 | 3 |"),
}


@pytest.mark.parametrize(("row", "text"), HIDDEN_CELLS.values(), ids=HIDDEN_CELLS.keys())
def test_a_hidden_cell_keeps_its_place(row, text):
    """Its text alone is left out, so that the others stay below their heads."""
    table = html_document(f"<table><tr><th>a<th>b<th>c{row}</table>").blocks[0].text
    assert table.split("\n")[-1] == text


GROUPS = {
    "to the end": ("<tr><td rowspan=0>x<td>1<tr><td>2<tr><td>3", ["x 1", "x 2", "x 3"]),
    "of its group": (
        "<tbody><tr><td rowspan=0>x<td>1<tr><td>2<tbody><tr><td>y<td>3",
        ["x 1", "x 2", "y 3"],
    ),
    "and no further": ("<thead><tr><td rowspan=9>x<td>1<tbody><tr><td>y<td>2", ["x 1", "y 2"]),
    "with columns": ("<tr><td rowspan=0 colspan=2>x<td>1<tr><td>2", ["x x 1", "x x 2"]),
    "no number": ("<tr><td rowspan=-1>x<td>1<tr><td>y<td>2", ["x 1", "y 2"]),
}


@pytest.mark.parametrize(("rows", "texts"), GROUPS.values(), ids=GROUPS.keys())
def test_a_cell_reaches_to_the_end_of_its_rows(rows, texts):
    """With `rowspan="0"`; no cell reaches into the next group of rows."""
    lines = html_document(f"<table>{rows}</table>").blocks[0].text.split("\n")
    assert [" ".join(line.strip("| ").split(" | ")) for line in lines if "---" not in line] == texts


@pytest.mark.parametrize("name", ["aside", "blockquote", "details"])
@pytest.mark.parametrize("level", [1, 3])
def test_text_behind_what_stands_beside_it_has_its_own_heading(name, level):
    """Whatever the level of the inner heading, which stands below the outer one."""
    page = f"<h1>Home</h1><h2>Cover</h2><p>one<{name}><h{level}>Tip</h{level}><p>tip</{name}><p>two"
    chunks = chunk_blocks(DocumentBlocks("", html_document(page).blocks), "a.html", limit=WORDS)
    assert [(chunk.section, chunk.text) for chunk in chunks] == [
        (("Home", "Cover"), "one"),
        (("Home", "Cover", "Tip"), "tip"),
        (("Home", "Cover"), "two"),
    ]


def test_headings_in_a_quote_stay_below_one_another():
    """In Markdown too.

    The next heading of the page ends them, and what stands in a quote in a quote.
    """
    raw = b"# A\n\n> # B\n> b\n>\n> ## C\n> c\n>\n> > # D\n> > d\n\ntext\n\n## E\n\ne"
    headings = [(block.text, block.level) for block in markdown_blocks(raw).blocks if block.level]
    expected = [("A", 1), ("B", 2), ("C", 3), ("D", 4), ("E", 2)]
    assert [head for head in headings if head[0]] == expected


def test_a_high_cell_far_to_the_right_costs_little():
    """Each of its copies would widen a row up to its column."""
    page = "<table><tr>" + "<td>" * 4000 + "<td rowspan=9000>x" + "<tr><td>y" * 2000
    (table,) = html_document(page).blocks
    assert len(table.text) < 20 * len(page)
