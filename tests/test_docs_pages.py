"""The pages of the site.

Blocks run and print what the page shows, links lead somewhere, tables are complete.
"""

from __future__ import annotations

import importlib.util
import json
import math
import posixpath
import re
import subprocess
import sys
import tomllib
import warnings
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import raglab
from raglab import displays
from raglab.answering.client import Capabilities, Completion, TokenScore
from raglab.cli import app
from raglab.extension_points import MissingExtensionError
from raglab.live import settings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = DOCS / "site"
PAGES = [
    *(DOCS / name for name in ("index.md", "start.md")),
    *sorted((DOCS / "howto").glob("*.md")),
    *sorted((DOCS / "explanation").glob("*.md")),
]
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
NOT_RUN = "# not run:"
MOST_NOT_RUN = 2  # blocks that need a server or a model


def site_module(name):
    """A module of the scripts that build the site."""
    sys.path.insert(0, str(SITE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SITE))


rules, tables, pages = (site_module(name) for name in ("rules", "tables", "pages"))


def stub_reply(_client, messages, *, top=0, **_):
    """Reply of the model that the pages speak to.

    A P(yes) by the words of the passages, or an answer.
    """
    text = messages[-1]["content"]
    if not top:
        answer = "The storm excess is 400 EUR."
        return Completion(
            answer, (TokenScore(answer, -0.1),), prompt_tokens=10, completion_tokens=8
        )
    yes = (0.8 if "excess is" in text else 0.3) + len(text) % 10 / 100
    scored = TokenScore("yes", math.log(yes), (("yes", math.log(yes)), ("no", math.log(1.0 - yes))))
    return Completion("yes", (scored,), prompt_tokens=10, completion_tokens=1)


@pytest.fixture(autouse=True)
def _no_server(monkeypatch):
    """Pages that speak to a language model speak to a stub."""
    monkeypatch.setenv("RAGLAB_PROGRESS", "0")
    monkeypatch.setattr(raglab.OpenAIClient, "complete", stub_reply)
    monkeypatch.setattr(
        raglab.OpenAIClient,
        "capabilities",
        lambda _: Capabilities(True, 20, "text"),
    )


def run_page(path):
    """Run the blocks of a page.

    Each line of a block of text must be in what the block before it printed.
    """
    names: dict[str, Any] = {}
    printed = ""
    for kind, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        if kind == "python" and not block.startswith(NOT_RUN):
            with redirect_stdout(StringIO()) as stream:
                # the project's own page
                exec(compile(block, path.name, "exec"), names)  # noqa: S102
            printed = stream.getvalue()
        elif kind == "text":
            assert [line for line in block.splitlines() if line not in printed] == []


@pytest.mark.parametrize(
    "path",
    PAGES,
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_the_blocks_of_a_page_run(path, tmp_path):
    """Top to bottom, in an empty folder, offline.

    A page about a room that is not installed is left out.
    """
    with chdir(tmp_path), warnings.catch_warnings():
        # what a page shows may be warned of; its text says so
        warnings.simplefilter("ignore", UserWarning)
        try:
            run_page(path)
        except MissingExtensionError as error:
            pytest.skip(str(error))


def test_few_blocks_are_not_run():
    """A block that is not run says why, and there are few."""
    blocks = [
        block for path in PAGES for _, block in BLOCK.findall(path.read_text(encoding="utf-8"))
    ]
    skipped = [block for block in blocks if block.startswith(NOT_RUN)]
    assert len(skipped) <= MOST_NOT_RUN
    assert all("needs" in block.splitlines()[0] for block in skipped)


def test_every_extra_is_explained():
    """In the table of the page on installing."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    text = (DOCS / "howto" / "install.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == sorted(stated)


def commands():
    """Options of every command, by the words that name it."""
    known: dict[str, set[str]] = {}

    def note(command, name):
        known[name] = {
            option for row in command.params for option in (*row.opts, *row.secondary_opts)
        } | {"--help"}
        if isinstance(command, TyperGroup):
            context = command.make_context(name, [], resilient_parsing=True)
            for sub in command.list_commands(context):
                note(command.get_command(context, sub), f"{name} {sub}".strip())

    note(typer.main.get_command(app), "")
    return known


def test_commands_and_targets_that_pages_show_exist():
    """Each line of a block of a shell: the command, its options, the target of make."""
    known = commands()
    targets = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    wrong = []
    for path in sorted(DOCS.rglob("*.md")):
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            for line in re.split(r"\n|&&", block.replace("\\\n", " ")):
                words = line.partition("#")[0].split()
                if words[:1] == ["make"]:
                    wrong += [f"{path.name}: {line}" for word in words[1:2] if word not in targets]
                if words[:1] == ["raglab"]:
                    name = next(key for key in (" ".join(words[1:3]), words[1], "") if key in known)
                    options = {
                        word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)
                    }
                    wrong += (
                        [f"{path.name}: {line}"]
                        if not name or options - known[name] - known[""]
                        else []
                    )
    assert wrong == []


def slugs(text):
    """Anchors of the headings of a page of Markdown, as GitHub and MyST make them."""
    heads = re.findall(
        r"^#{1,4} (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE
    )
    plain = (re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads)
    return set(plain)


@pytest.fixture(scope="module")
def generated():
    """Pages from the tables of the code, by their path in the site."""
    return tables.reference_pages((ROOT / "raglab" / "defaults.yaml").read_text(encoding="utf-8"))


def test_links_between_pages_lead_somewhere(generated):
    """To a page that is there, and to a heading in it."""
    broken = []
    for file in sorted(DOCS.rglob("*.md")):
        for _, _, target in pages.LINK.findall(
            re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        ):
            place, _, anchor = target.partition("#")
            if ":" in target or not place:
                continue
            path = posixpath.normpath(
                posixpath.join(file.parent.relative_to(ROOT).as_posix(), place)
            )
            if path.startswith("raglab/extensions/") and not (ROOT / path).parent.is_dir():
                continue  # of a room that is not installed
            text = generated.get(path.removeprefix("docs/"))
            if text is None and (ROOT / path).is_file():
                text = (ROOT / path).read_text(encoding="utf-8") if path.endswith(".md") else ""
            is_api = path == "docs/reference/api/index"
            if not is_api and (text is None or (anchor and anchor not in slugs(text))):
                broken.append(f"{file.relative_to(ROOT)}: {target}")
    assert broken == []


def test_rules_that_pages_name_exist():
    """Each number leads to a rule."""
    numbers = {
        number
        for path in DOCS.rglob("*.md")
        for number in rules.NUMBER.findall(path.read_text(encoding="utf-8"))
    }
    sentences = rules.rule_sentences()
    assert sentences["S0.1"] == "A decision is ok, refuse or ambiguous."
    assert sentences["S3.7"].startswith("Selection: With options pending, a known id is ok")
    assert all(text.endswith((".", "…")) for text in sentences.values())
    text = (ROOT / "raglab" / "RULES.md").read_text(encoding="utf-8")
    assert len(sentences) == text.count("\n- **S")
    assert numbers - sentences.keys() == set()


def test_every_page_is_in_a_table_of_contents(generated, tmp_path):
    """Pages that nobody listed are added to the how-to pages; those of this site are all listed.

    None is long but two that are looked up.
    """
    unlisted = pages.stage(tmp_path / "source", generated)
    assert all("/" not in place for place in unlisted), unlisted
    index = (tmp_path / "source" / pages.HOWTO).read_text(encoding="utf-8")
    assert all(f"/{place}" in index for place in unlisted)
    assert (tmp_path / "source" / "explanation" / "rules.md").is_file()
    assert "(/explanation/rules.md)" in (tmp_path / "source" / "glossary.md").read_text(
        encoding="utf-8"
    )
    lengths = {
        place.relative_to(tmp_path / "source").as_posix(): pages.n_words(
            place.read_text(encoding="utf-8")
        )
        for place in (tmp_path / "source").rglob("*.md")
    }
    assert {place for place, length in lengths.items() if length > pages.MOST_WORDS} == set(
        pages.UNCUT
    )


def test_a_long_page_is_cut_at_its_headings():
    """A page a section, or a part of a long one; links to it and in it follow."""
    long = "word " * 1000
    first = f"# A\n\n[two](#two)\n\n## [One]\n\n{long}\n\n### Deep\n\n```\n## Code\n```\n\n"
    second = f"## Two\n\n### Three\n\n{long}\n\n### Four\n\n{long}"
    other = "[t](/a.md#two) [f](/a.md#four) [d](/a.md#deep)"
    cut = pages.cut_pages({"a.md": first + second, "b.md": other})
    assert list(cut) == ["a/one.md", "a/two--three.md", "a/two--four.md", "a.md", "b.md"]
    assert cut["a/one.md"].startswith("# A · One\n")
    assert "## Code" in cut["a/one.md"]
    assert cut["b.md"] == "[t](/a.md) [f](/a/two--four.md) [d](/a/one.md#deep)"
    assert cut["a.md"].startswith("# A\n\n[two](/a.md)\n")
    assert "\nTwo · Three </a/two--three>\n" in cut["a.md"]
    uncut = pages.cut_pages({"methods.md": first + second})
    assert list(uncut) == ["methods.md"]


PLACES = {
    "docs/a.md": "a.md",
    "docs/howto/b.md": "howto/b.md",
    "raglab/RULES.md": "explanation/rules.md",
}


class TestLinks:
    """Links of the repository as the site has them."""

    @pytest.mark.parametrize(
        ("path", "link", "expected"),
        [
            ("docs/a.md", "[b](howto/b.md#c)", "[b](/howto/b.md#c)"),
            ("docs/howto/b.md", "[rules](../../raglab/RULES.md)", "[rules](/explanation/rules.md)"),
            ("docs/howto/b.md", "[code](../../raglab/gates.py)", "code"),
            ("docs/howto/b.md", "![c](../pictures/c.png)", "![c](/pictures/c.png)"),
            ("docs/a.md", "[web](https://example.org/a.md)", "[web](https://example.org/a.md)"),
            ("docs/a.md", "[here](#c)", "[here](#c)"),
            ("docs/a.md", "```\n[b](howto/b.md)\n```", "```\n[b](howto/b.md)\n```"),
        ],
    )
    def test_a_link(self, path, link, expected):
        """To a page by its place in the site, to a file that is no page as its text; code stays."""
        assert pages.linked(link, path, PLACES) == expected


class TestTables:
    """Pages from the tables of the code."""

    def test_the_units_of_own_signals(self, generated):
        """The same table on the page that a reader of the files sees."""
        assert tables.units_table() in generated["reference/signals.md"]
        assert tables.units_table() in (DOCS / "howto" / "own_signals.md").read_text(
            encoding="utf-8"
        )

    def test_every_variable_has_a_meaning(self, generated):
        """Those of a `.env` and those of the process."""
        text = generated["reference/settings.md"]
        rows = re.findall(r"^\| `(RAGLAB_\w+)` \| ([^|]*) \|", text, re.MULTILINE)
        assert {name for name, _ in rows} == settings.known_variables()
        assert [name for name, meaning in rows if not meaning.strip()] == []

    def test_a_cell_cannot_break_its_table(self):
        """Bars and line breaks."""
        assert tables.table(("a",), [("x|y\nz",)]) == "| a |\n| --- |\n| x\\|y z |\n"


@pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None, reason="the extra `docs` is not installed"
)
def test_the_site_builds_without_a_warning(tmp_path):
    """All pages, all links, offline; `llms.txt` lists the pages, the search knows the words."""
    done = subprocess.run(
        [sys.executable, SITE / "build.py", "--out", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    html = tmp_path / "html"
    assert 'id="S2.3"' in (html / "explanation" / "rules.html").read_text(encoding="utf-8")
    assert "(start.html)" in (html / "llms.txt").read_text(encoding="utf-8")
    text = (html / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    for place, words in pages.SOUGHT.items():  # of the entries of a word the main one is first
        for word in words:
            first = [
                index["docnames"][file] for file, _, main in index["indexentries"][word] if main
            ]
            assert first == [place.removesuffix(".md")]
    gallery = (html / "gallery.html").read_text(encoding="utf-8")
    shown = re.findall(r'<img alt="(\w+)\(', gallery)
    assert {name for name in dir(displays) if name.endswith("Display")} == set(shown)
