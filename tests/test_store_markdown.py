"""Markdown of others.

CommonMark with tables, front matter, marks of pages, and what only looks like them.
"""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from document_samples import document
from effort import lines_run
from raglab.store.document_reading import is_light
from raglab.store.files import InputError
from raglab.store.front_matter import front_matter
from raglab.store.markdown import markdown_blocks, markdown_page


def read(text):
    """Kind, level and text of the blocks of a text, which is read without a note."""
    document = markdown_blocks(text.encode())
    assert document.notes == ()
    return [(block.kind, block.level, block.text) for block in document.blocks if block.text]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (
            "Terms\n=====\nx\n\nStorms\n---\ny",
            [("heading", 1, "Terms"), ("text", 0, "x"), ("heading", 2, "Storms"), ("text", 0, "y")],
        ),
        (
            "peril | GBP\n--- | ---\nwind | 100",
            [("table", 0, "| peril | GBP |\n|---|---|\n| wind | 100 |")],
        ),
        ("| a\n|:-:\n| b", [("table", 0, "| a |\n|---|\n| b |")]),
        ("---\n\nx\n\n***\ny", [("text", 0, "x"), ("text", 0, "y")]),
        (
            "**b** _i_ ~~s~~ [l](http://a.b) <http://a.b> ![alt](x.png) `c`",
            [("text", 0, "b i l http://a.b alt `c`")],
        ),
        ("Vec<T>, <name> and </name>, a < b", [("text", 0, "Vec<T>, <name> and </name>, a < b")]),
        (
            "<details><summary>More</summary>\n\nx <kbd>A</kbd>\n\n</details>",
            [("text", 0, "More"), ("text", 0, "x A")],
        ),
        (
            "- a\n- b\n  1. c\n     d\n\n  e",
            [("item", 1, "- a"), ("item", 1, "- b"), ("item", 2, "  1. c d"), ("item", 1, "  e")],
        ),
        (
            "1. a\n\n   ```\n   b\n   ```\n2. c",
            [("item", 1, "1. a"), ("code", 0, "```\nb\n```"), ("item", 1, "2. c")],
        ),
        ("    a\n      b", [("code", 0, "```\na\n  b\n```")]),
        ("~~~~py\n~~~\n```\n~~~~", [("code", 0, "````py\n~~~\n```\n````")]),
        ("\\# a\n\\| b\n&copy; 1 &lt; 2", [("text", 0, "\\# a\n\\| b\n© 1 < 2")]),
        ("#### Deep\n####### seven", [("heading", 4, "Deep"), ("text", 0, "####### seven")]),
        ("a\\\nb  \nc\nd", [("text", 0, "a\nb\nc\nd")]),
        ("[a]: http://x\n\n[a]", [("text", 0, "a")]),
    ],
)
def test_commonmark_with_tables(text, blocks):
    """Underlined headings, tables without bars outside, rules, nested lists, code, escapes.

    The code is in its three forms.
    """
    assert read(text) == blocks


@pytest.mark.parametrize(
    "comment",
    [
        "<!-- page ii -->",
        "<!--page2-->",
        "<!-- page 2 label='1' -->",
        "<!-- page 2 of the plan -->",
        "<!-- page\n2 -->",
        "<!-- page 1234567890 -->",
    ],
)
def test_a_comment_that_is_no_mark_is_a_comment(comment):
    """Whatever it begins with: it is left out, and begins no page."""
    for text in (f"{comment}\n\nx", f"x\n{comment}\n", f"x {comment}"):
        (block,) = markdown_blocks(text.encode()).blocks
        assert (block.text, block.page) == ("x", 1)


def test_marks_of_pages():
    """Wherever the comment stands; a label is optional.

    Text before the first mark is page 1, with its label.
    """
    text = (
        'a\n<!-- page 1 label="i" -->\nb\n\n<div>\n<!-- page 3 -->\n</div>\n\nc <!-- page 4 '
        'label="2" --> d\n'
    )
    blocks = markdown_blocks(text.encode()).blocks
    assert [(b.text, b.page, b.label) for b in blocks] == [
        ("a", 1, "i"),
        ("b", 1, "i"),
        ("c", 3, None),
        ("d", 4, "2"),
    ]
    code = markdown_blocks(b"```\n<!-- page 2 -->\n```\n\n`<!-- page 3 -->`").blocks
    assert {block.page for block in code} == {1}


def test_a_page_that_stands_apart():
    """A mark of a page in it is a comment, and front matter text."""
    page = markdown_page(b"---\na: b\n---\n\ny <!-- page 9 -->\n\n```\nx")
    assert {block.page for block in page.blocks} == {1}
    assert (page.tags, len(page.notes)) == ({}, 1)
    assert [block.text for block in page.blocks if block.kind == "text"][-1] == "y"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x\n\n```py\na\n# b", "```py\na\n# b\n```"),
        ("---\na: b\n---\n~~~\nx\n```", "````\nx\n```\n````"),
        ("> ```\n> a\n\n", "```\na\n```"),
    ],
)
def test_an_unclosed_fence_is_code_to_the_end(text, code):
    """As CommonMark has it, and it is counted."""
    page = markdown_blocks(text.encode())
    assert page.notes == ("1 fences are not closed and hold the rest",)
    assert [block.text for block in page.blocks if block.kind == "code"] == [code]


@pytest.mark.parametrize(
    ("text", "tags", "entities", "body"),
    [
        ("---\ntitle: A\nversion: 1.10\n...\nx", {"title": "A", "version": "1.10"}, (), "x"),
        ("---\n# a comment\n\n'title': A\nentities: [B]\n---  \nx", {"title": "A"}, ("B",), "x"),
        (
            '+++\ntitle = "A"\nversion = 1.10\ndraft = true\ndate = 2025-03-01\n+++\nx\ny',
            {"title": "A", "version": "1.10", "draft": "true", "date": "2025-03-01"},
            (),
            "x\ny",
        ),
        (
            '+++\nentities = ["B"]\nempty = ""\nn = 7\nlist = [1]\n[extra]\na = 1\n+++\nx',
            {"n": "7"},
            ("B",),
            "x",
        ),
    ],
)
def test_front_matter(text, tags, entities, body):
    """YAML up to `---` or `...`, TOML up to `+++`: scalars as they are written."""
    assert front_matter(text) == (tags, entities, body, ())


@pytest.mark.parametrize(
    "text",
    [
        "---",
        "---\n\nA paragraph.\n\n---\n\nAnother.",
        "---\n\n# A heading\n\n---\n\nx",
        "---\n- a\n---\nx",
        "---\njust words\n---\nx",
        "----\na: 1\n----\nx",
        "+++\nwords\n+++\nx",
        "---\n{{ card_data }}\n---\nx",
    ],
)
def test_what_is_no_front_matter_is_text(text):
    """A rule, a list, a paragraph between rules, a template.

    Nothing of it is lost, and nothing stops.
    """
    assert front_matter(text) == ({}, (), text, ())


@pytest.mark.parametrize(("mark", "key"), [("---", "title: A"), ("+++", 'title = "A"')])
def test_front_matter_without_an_end_is_text_and_said(mark, key):
    """With a note; nothing is lost."""
    matter = front_matter(f"{mark}\n{key}\nx")
    assert (matter.tags, matter.body, len(matter.notes)) == ({}, f"{mark}\n{key}\nx", 1)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("+++\na = 1\na = 2\nb = 1\n+++\nx", "line 3: front matter must be valid TOML"),
        ("+++\nentities = 7\n+++\nx", "line 2: entities must be a list of strings"),
        ("+++\na = [" + "[" * 5000 + "\n+++\nx", "front matter must be valid TOML"),
        ('+++\na = "' + "x" * 2**16 + '"\n+++\nx', "at most 65536 characters"),
        ("---\ntitle: a: b\n...\nx", "line 2: front matter must be valid YAML"),
    ],
)
def test_broken_front_matter_is_named(text, rule):
    """What begins like keys and values is meant to be them."""
    with pytest.raises(InputError, match=rule):
        front_matter(text)


@given(st.text(alphabet="<>/!-=\"' \n\tabp#*_`~|[]()&;:+.1\\>", max_size=150))
def test_any_text_is_read_or_refused(text):
    """Whatever it holds: blocks, or a line that says what to mend."""
    with suppress(InputError):
        blocks = markdown_blocks(text.encode()).blocks
        assert all(block.text.strip() for block in blocks if block.kind != "heading")


@pytest.mark.parametrize("unit", ["> ", "1. ", "* > "])
def test_100000_quotes_and_lists_in_one_another_are_refused(unit):
    """At once; as many as anybody writes are read."""
    began = time.process_time()
    with pytest.raises(InputError, match="quotes and lists must be nested at most 50 deep"):
        markdown_blocks(f"x\n{unit * 100_000}y".encode())
    assert time.process_time() - began < 20
    assert "y" in read(f"{unit * 20}y")[-1][2]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```{versionadded} 4.0\nA *b*.\n```", ["New in version 4.0", "A b."]),
        ("```{note} First\n:class: a b\n:name: c\n\n- d\n```", ["Note First", "- d"]),
        ("```{seealso}\n---\nclass: a\n---\n`b`\n```", ["See also", "`b`"]),
        (
            "`````{admonition} Take *care*\n```{tip}\na\n```\n````c\n:::\n````\n`````",
            ["Take care", "Tip", "a", "```c\n:::\n```"],
        ),
        (
            "````{warning}\n```{code-block} py\n:linenos:\n\nx = {1}\n:y:\n```\n````",
            ["Warning", "```py\nx = {1}\n:y:\n```"],
        ),
        (
            (
                "```{toctree}\n:glob:\na\n```\n```{contents} T\n```\n```{include} "
                "x\n```\n```{image} "
                "x.png\n```\ny"
            ),
            ["y"],
        ),
        ("```{figure} x.png\n:alt: a\n\nThe *plan*.\n```", ["The plan."]),
        (
            "(a)=\n(b c)=\n# Guide {#guide .x}\ne\n\n## *G* {h}",
            ["Guide", "e", "G {h}"],
        ),
        (
            "{func}`~a.b` and {ref}`A b <c>`, {std:doc}`D<e>` {x} `f`",
            ["`~a.b` and `A b <c>`, `D<e>` {x} `f`"],
        ),
        (
            "- a\n  ```{tip}\n  b\n  ```\n- c\n\n> ```{tip}\n> d\n> ```",
            ["- a", "  Tip", "  b", "- c", "Tip", "d"],
        ),
    ],
)
def test_myst(text, blocks):
    """Directives in fences of three kinds, their options, targets, attributes, roles."""
    assert [block for _, _, block in read(text)] == blocks


@pytest.mark.parametrize(
    "code",
    [
        "{% if a %}\n{{ b }}\n{% endif %}",
        "(a)=\n{.b}\n# c {#d}\n{e}`f`",
        ":::{note}\n:::",
        ":a: b",
    ],
)
@pytest.mark.parametrize("language", ["", "r", "jinja"])
def test_code_with_braces_stays_as_it_is(code, language):
    """Byte for byte, in fences, indented, and in a line.

    Also below a name in braces that is no directive.
    """
    fence = f"```{language}\n{code}\n```"
    assert read(fence) == [("code", 0, fence)]
    assert read(f"````{{{language or 'x'} a=1}}\n{code}\n````") == [
        ("code", 0, f"```\n{code}\n```")
    ]
    assert read("    " + code.replace("\n", "\n    ")) == [("code", 0, f"```\n{code}\n```")]


@pytest.mark.parametrize(
    "text",
    [
        "{{ a }}",
        "{a=1}",
        "{#if a}",
        "a {.b}",
        "f\n(x)=\n3",
        "::: tip\na\n:::",
        "a {b} `c`",
        "\\# a {#b}",
        ":a: b",
    ],
)
def test_what_only_looks_like_myst_is_text(text):
    """Braces of templates, sets and equations."""
    assert [block for _, _, block in read(text)] == [text]


def test_pages_within_directives():
    """Marks of pages count there too."""
    text = b"````{tip}\n:a: b\n\n```{note}\n<!-- page 3 -->\nc\n```\n<!-- page 2 -->\n````"
    with pytest.raises(InputError, match="page numbers must go up, got 2 after 3"):
        markdown_blocks(text)


def test_directives_300_deep_are_text_with_nothing_lost():
    """Those of more marks outside, and those of as many."""
    names = [f"{'`' * (303 - at)}{{admonition}} T{at}" for at in range(300)]
    ends = ["`" * (4 + at) for at in range(300)]
    for lines in ([*names, "x", *ends], ["```{tip}"] * 300 + ["x"] + ["```"] * 300):
        began = time.process_time()
        page = markdown_blocks("\n".join(lines).encode())
        text = "\n".join(block.text for block in page.blocks)
        assert time.process_time() - began < 20
        assert "x" in text.split()
        assert "T299" in text or "T0" not in text


UNITS = (
    *("> ", "- ", "![", "*a ", "_a**", "`a``b", "<", "<a ", "<!--", "&", "|a|b\n", "<http:"),
    *("[a](", "# ", "```\n", "1. ", "\t- ", "\n", "[a]: b\n", '[a]: b "\n', "</a>", "a|b\n-|-\n"),
    *("<div>", "<!-- page 1 -->", "---\n", "+++\n", ": - [", "~~a", "a\n===\n"),
    # of MyST
    *("{\n", "{.a", "{a}`b` ", "(a)=\n", "# {#a}\n", "> :::{tip}\n", "- :::{tip}\n", ":::\n"),
    *("```{tip}\n", "```{tip}\n---\n", "```{toctree}\n:a: b\n", ":::{tip}\n:::\n"),
)


@pytest.mark.parametrize("unit", UNITS)
def test_time_is_bounded(unit):
    """30,000 characters of anything are read in about a second, or refused at a limit.

    A square of them would take an hour.
    """
    began = time.process_time()
    with suppress(InputError):
        markdown_blocks((unit * (30_000 // len(unit))).encode())
    assert time.process_time() - began < 10


def test_a_large_text_is_read_by_a_process_of_its_own():
    """With the same blocks, tags and notes."""
    text = f"---\ntitle: T\nentities: [A]\n---\n# H\n{'word *word*' * 9_000}\n\n- a\n\n```\nb"
    page = document("Markdown", text)
    assert page == markdown_blocks(text.encode())
    assert page.notes[0].startswith("1 fences")


@pytest.mark.parametrize("unit", ["![", "[*a", "a\n!["], ids=["pictures", "marks", "pairs"])
def test_marks_that_nothing_closes_cost_little(unit):
    """A file of 25 kB of them: nested inline marks are tried 20 deep, deeper ones are text."""
    assert is_light(unit * (25_000 // len(unit)))
    text, blocks = unit * (1_500 // len(unit)), []
    lines = lines_run(lambda: blocks.extend(markdown_blocks(text.encode()).blocks))
    assert lines < 1_500 * len(text)
    assert "".join(block.text for block in blocks).replace("\n", "").count("[") == text.count("[")


QUOTED = {
    "plain": ">" * 49 + " a\n",
    "spaced": "> " * 45 + "a\n",
    "in a list": "- " + ">" * 30 + " a\n",
}


@pytest.mark.parametrize("quote", QUOTED.values(), ids=QUOTED.keys())
def test_lines_that_continue_many_quotes_are_read_by_a_process_of_their_own(quote):
    """Which has its seconds; a text of as many quotes is read at once."""
    assert not is_light(quote + "b\n" * 15_000)
    assert is_light(quote * 80)
    assert is_light("b >>>> c >>>\n" * 6_000)


@pytest.mark.parametrize("depth", [1, 19, 25, 60])
def test_no_word_is_lost_in_nested_marks(depth):
    """Links and emphasis, read as such or as text; what is read later may be as deep as before."""
    text = "[" * depth + "hail" + "](u)" * depth
    assert "hail" in markdown_blocks(text.encode()).blocks[0].text
    assert "hail" in read("*_" * depth + "hail" + "_*" * depth)[0][2]
    nested = f"{text}\n\n```{{note}}\n{'> ' * 40}wind\n```\n\n{'- ' * 40}hail"
    assert [block.split()[-1] for _, _, block in read(nested)[1:]] == ["Note", "wind", "hail"]


def test_a_definition_of_a_footnote_is_text():
    """A link's is none."""
    blocks = read("Fee 45[^a] [b].\n\n[^a]: 60EUR (weekends)\n\n[b]: http://x.org\n")
    assert [text for _, _, text in blocks] == ["Fee 45[^a] b.", "[^a]: 60EUR (weekends)"]
