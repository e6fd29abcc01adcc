"""A corpus folder stays inside itself: links, loops, devices, pipes and sockets."""

from __future__ import annotations

import importlib
import os
import socket
import warnings
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from raglab import cli
from raglab.store import files
from raglab.store.files import InputError, json_lines, read_bytes
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import load_pack

CASE = '{"id": "1", "query": "q", "expect_status": "refuse"}\n'


@pytest.fixture
def corpus(tmp_path):
    """A folder with one document, beside another that holds a secret."""
    for name, text in (
        ("set/a.md", "One."),
        ("outside/secret.md", "Secret."),
        ("outside/cases.jsonl", CASE),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "set"


def make_socket(path):
    """A socket that a program listens at."""
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # such names may not be long
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


ODD = {
    "a link out of the folder": (
        lambda path: path.symlink_to("../outside/secret.md"),
        "a link to '../outside/sec",
    ),
    "a link inside the folder": (lambda path: path.symlink_to("a.md"), "got a link to 'a.md'"),
    "a link to a folder": (
        lambda path: path.symlink_to("../outside"),
        "got a link to '../outside'",
    ),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "got a link to '/dev/zero'"),
    "a pipe": (os.mkfifo, "got a device, pipe or socket"),
    "a socket": (make_socket, "got a device, pipe or socket"),
}


@pytest.mark.parametrize(("make", "came"), ODD.values(), ids=ODD.keys())
def test_what_is_no_file_of_the_folder_is_left_out(corpus, make, came):
    """The warning has its path; nothing is read or waited for.

    Where nothing else is there, it is the error.
    """
    make(corpus / "x.md")
    with pytest.warns(
        UserWarning, match="left out of the corpus: 1 files or links that cannot be read: "
    ) as caught:
        loaded = load_corpus(corpus)
    assert [chunk.source for chunk in loaded.chunks] == ["a.md"]
    assert all(text in str(caught[0].message) for text in (f"{corpus / 'x.md'}: ", came))
    (corpus / "a.md").unlink()
    if came != "got a link to 'a.md'":  # which then leads nowhere
        with pytest.raises(InputError) as refused:
            load_corpus(corpus)
        assert str(refused.value).startswith(f"{corpus / 'x.md'}: ")


def test_links_are_followed_when_asked(corpus):
    """To files and folders, wherever they lead, each under the name that it has in the folder."""
    (corpus / "b.md").symlink_to("../outside/secret.md")
    (corpus / "more").symlink_to("../outside")
    chunks = load_corpus(corpus, follow_links=True).chunks
    assert [(chunk.source, chunk.text) for chunk in chunks] == [
        ("a.md", "One."),
        ("b.md", "Secret."),
        ("more/secret.md", "Secret."),
    ]


@pytest.mark.parametrize("target", [".", "..", "deep", "/dev/zero"])
def test_loops_and_devices_are_left_out_even_then(corpus, target):
    """So is a second way to a folder: a few of them would stand for millions."""
    (corpus / "deep").mkdir()
    (corpus / "deep" / "b.md").write_text("Two.")
    (corpus / "x.md").symlink_to(target)
    with pytest.warns(UserWarning, match="1 files or links that cannot be read: ") as caught:
        loaded = load_corpus(corpus, follow_links=True)
    assert str(corpus) in str(caught[0].message)
    texts = [chunk.text for chunk in loaded.chunks]
    assert sorted({*texts} - {"Secret."}) == ["One.", "Two."]
    assert len(texts) == len({*texts})


def test_the_path_itself_may_be_a_link(corpus, tmp_path):
    """Who gives it knows it."""
    (tmp_path / "here").symlink_to(corpus)
    (tmp_path / "one.md").symlink_to(corpus / "a.md")
    assert [chunk.text for chunk in load_corpus(tmp_path / "here").chunks] == ["One."]
    assert [chunk.text for chunk in load_corpus(tmp_path / "one.md").chunks] == ["One."]


@pytest.mark.parametrize(
    ("load", "name"),
    [
        *((load_corpus, name) for name in ("documents", "corpus.jsonl", "reference.jsonl")),
        *((load_cases, name) for name in ("cases.jsonl", "queries.jsonl", "data_full.json")),
    ],
)
def test_fixed_names_may_not_be_links(corpus, load, name):
    """Neither the folder of the documents nor a file with a name of its own.

    They are followed when asked.
    """
    (corpus / name).symlink_to("../outside" if name == "documents" else "../outside/cases.jsonl")
    with pytest.raises(InputError, match=f"{name}.* must hold its files itself.*--follow-links"):
        load(corpus)
    if name == "cases.jsonl":
        assert [case.id for case in load_cases(corpus, follow_links=True)] == ["1"]


def test_judgements_may_not_be_links(corpus):
    """BEIR's folder `qrels`, and the files in it."""
    (corpus / "queries.jsonl").write_text('{"_id": "a", "text": "q"}\n')
    (corpus.parent / "outside" / "test.tsv").write_text("a\tb\t1\n")
    (corpus / "qrels").symlink_to("../outside")
    with pytest.raises(InputError, match=r"qrels.* must hold its files itself"):
        load_cases(corpus)
    assert len(load_cases(corpus, follow_links=True)) == 1
    (corpus / "qrels").unlink()
    (corpus / "qrels").mkdir()
    (corpus / "qrels" / "test.tsv").symlink_to("../../outside/test.tsv")
    with pytest.raises(InputError, match=r"test\.tsv.* must hold its files itself"):
        load_cases(corpus)


def test_a_packs_folder_holds_its_files(corpus):
    """A link in a pack is refused, and so is a pipe.

    A pack that is one itself does not wait for a writer.
    """
    (corpus / "a.yaml").symlink_to("../outside/secret.md")
    with pytest.raises(InputError, match=r"a\.yaml.* must hold its files itself"):
        load_pack(corpus)
    (corpus / "a.yaml").unlink()
    os.mkfifo(corpus / "a.yaml")
    with pytest.raises(
        InputError, match=r"a\.yaml: the path must be a file, got a device, pipe or socket"
    ):
        load_pack(corpus)
    with pytest.raises(ValueError, match="a pack must be one of"):
        load_pack(corpus / "a.yaml")


@pytest.mark.parametrize("ending", [".md", ".csv", ".pdf", ".jsonl", ".json"])
def test_a_pipe_given_as_a_file_is_not_waited_for(tmp_path, ending):
    """Whatever reads it says what it is."""
    path = tmp_path / f"x{ending}"
    os.mkfifo(path)
    with pytest.raises(InputError, match="the path must be a file, got a device, pipe or socket"):
        load_corpus(path)


def test_devices_are_not_read(tmp_path):
    """Not even one that never ends."""
    for read in (lambda path: read_bytes(path, 10), lambda path: next(json_lines(path, 10))):
        with pytest.raises(InputError, match="got a device, pipe or socket"):
            read(Path("/dev/zero"))
        with pytest.raises(InputError, match="got a folder"):
            read(tmp_path)


def test_a_file_that_is_exchanged_is_noticed(corpus, monkeypatch):
    """One that turns into a link or pipe between look and opening is not followed or awaited."""
    path, real = corpus / "a.md", os.open

    def exchanged(make):
        def swapping(name, flags):
            monkeypatch.undo()
            path.unlink()
            make(path)
            return real(name, flags)

        monkeypatch.setattr(files.os, "open", swapping)

    exchanged(lambda path: path.symlink_to("../outside/secret.md"))
    with pytest.raises(InputError, match=r"a\.md"):
        read_bytes(path, 100, follow_links=False)
    path.unlink()
    path.write_text("One.")
    exchanged(os.mkfifo)
    with pytest.raises(InputError, match="got a device, pipe or socket"):
        read_bytes(path, 100)


@pytest.mark.parametrize("name", ["a\nb.md", "\x1b[2J.md", "\u202egpj.md"])
def test_odd_names_are_shown_escaped(tmp_path, name):
    """A document loads under such a name.

    A message about it is one line that a terminal may show.
    """
    (tmp_path / name).write_text("One.")
    assert load_corpus(tmp_path).chunks[0].source == name
    (tmp_path / name).write_text("---\n")
    with pytest.raises(InputError) as caught:
        load_corpus(tmp_path)
    assert str(caught.value).isprintable()


def test_a_name_that_is_no_unicode_is_refused(tmp_path):
    """No id, no index and no trace could bear it."""
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("One.")
    with pytest.raises(InputError, match=r"a document's name must be Unicode.*rename the file"):
        load_corpus(tmp_path)


def test_the_command_line_follows_links_when_asked(corpus, monkeypatch):
    """`raglab trace`, `index` and `check` hand `--follow-links` on to the loaders."""
    calls = []

    def noted(_, *, follow_links=False, **_more):
        calls.append(follow_links)
        raise typer.Exit(3)

    # which would else hold what is patched here for good
    importlib.import_module("raglab.live.index_folder")
    monkeypatch.setattr("raglab.store.loaders.load_corpus", noted)
    for command in ("trace", "index"):
        for more in ([], ["--follow-links"]):
            CliRunner().invoke(cli.app, [command, str(corpus), "--out", "t", *more])
    assert calls == [False, True] * 2


@pytest.mark.parametrize("follow_links", [False, True])
def test_what_cannot_matter_is_left_out_with_a_count(corpus, *, follow_links):
    """Lock files, links that lead nowhere, empty files, stubs; each alone as well."""
    (corpus / "~$a.docx").write_bytes(b"\x05owner")
    (corpus / "gone.md").symlink_to("nothing")
    (corpus / "self.md").symlink_to("self.md")
    (corpus / ".hidden.md").symlink_to("/dev/zero")
    (corpus / "empty.md").write_text("\n")
    (corpus / "stub.md").write_text("# A heading alone\n")
    (corpus / "hidden.html").write_text("<script>x()</script>")
    rule = (
        r"left out of the corpus: 3 documents without text: .*empty\.md.* 2 links that lead .*\. "
        r"1 lock files\.$"
    )
    with pytest.warns(UserWarning, match=rule):
        loaded = load_corpus(corpus, follow_links=follow_links)
    assert [chunk.source for chunk in loaded.chunks] == ["a.md"]


BAD = {
    "no.pdf": lambda path: path.write_bytes(b"%PDF-1.7 nothing"),
    "encrypted.docx": lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0"),
    "no.csv": lambda path: path.write_text("a,b\n1,2,3\n"),
    "open.html": lambda path: path.write_text("<p>Text<!-- more"),
    "no.ipynb": lambda path: path.write_text("{"),
    "no.png": lambda path: path.write_bytes(b"GIF89a"),
    "front.md": lambda path: path.write_text("---\na: 1\na: 2\n---\nText."),
    "tag.md": lambda path: path.write_text(f"---\nnote: {'x' * 10_001}\n---\nText."),
}


def test_whatever_is_wrong_with_one_file_the_others_load(corpus):
    """Of any format; the same file by its own name is refused."""
    for name, write in BAD.items():
        write(corpus / name)
    with pytest.warns(UserWarning, match=f"{len(BAD)} files or links that cannot") as caught:
        loaded = load_corpus(corpus)
    assert all(name in str(caught[0].message) for name in BAD)
    assert [chunk.source for chunk in loaded.chunks] == ["a.md"]
    with pytest.raises(InputError, match=r"no\.csv"):
        load_corpus(corpus / "no.csv")


def test_of_many_bad_files_the_first_ten_are_named(corpus):
    """With their reasons; the others are counted."""
    for number in range(40):
        (corpus / f"{number:02}.md").write_bytes(b"\xff")
    with pytest.warns(
        UserWarning, match="40 files or links that cannot be read.*30 more"
    ) as caught:
        load_corpus(corpus)
    assert str(caught[0].message).count("must be UTF-8") == 10


@pytest.mark.parametrize(
    "heads",
    [
        "query,expect_status",
        "id;Question;expected source",
        "user_query\tgold_doc\tanswer",
        "text,label",
    ],
)
def test_labels_among_documents_are_left_out(corpus, heads):
    """They would answer their own questions: the warning has the file and the way to load it."""
    (corpus / "labels.csv").write_text(f"{heads}\n{heads}\n")
    with pytest.warns(
        UserWarning, match=r"1 tables of labels: .*labels\.csv: .*load_cases\('labels\.csv'\)"
    ):
        loaded = load_corpus(corpus)
    assert [chunk.source for chunk in loaded.chunks] == ["a.md"]


@pytest.mark.parametrize(
    "heads",
    [
        "question,answer",
        "message,status",
        "text,source",
        "cause,excess",
        "Anfrage,Statut",
        "Dokument,Erwartung",
    ],
)
def test_other_tables_stay_documents(corpus, heads):
    """A FAQ has no labels, and names that may mean anything are none."""
    (corpus / "table.csv").write_text(f"{heads}\n1,2\n")
    assert [chunk.source for chunk in load_corpus(corpus).chunks] == ["a.md", "table.csv"]


def test_labels_alone_are_no_corpus(tmp_path):
    """With the way to load them; as a single file the table is what was asked for."""
    (tmp_path / "labels.csv").write_text("question,label\nWho pays?,ok\n")
    with pytest.raises(InputError, match=r"must hold no labelled questions.*load_cases"):
        load_corpus(tmp_path)
    assert len(load_corpus(tmp_path / "labels.csv").chunks) == 1


def test_labels_in_a_workbook_are_left_out_too(corpus):
    """By the head of any of its sheets."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["peril", "price"])
    sheet = book.create_sheet("Labels")
    for row in (["Question", "Label"], ["x", "ok"]):
        sheet.append(row)
    book.save(corpus / "labels.xlsx")
    with pytest.warns(
        UserWarning, match=r"1 tables of labels: .*load_cases\(pd\.read_excel\('labels\.xlsx'\)\)"
    ):
        loaded = load_corpus(corpus)
    assert [chunk.source for chunk in loaded.chunks] == ["a.md"]


@pytest.mark.parametrize("name", ["b.md", "more/b.TXT", "b.pdf"])
def test_texts_beside_documents_are_counted(corpus, name):
    """They are not read, at any depth."""
    for path in (corpus / "documents/c.md", corpus / name):
        path.parent.mkdir(exist_ok=True)
        path.write_text("Two.")
    (corpus / "a.md").unlink()
    with pytest.warns(
        UserWarning, match=f"left out of the corpus: 1 texts beside documents/: {name}"
    ):
        loaded = load_corpus(corpus)
    assert [chunk.source for chunk in loaded.chunks] == ["c.md"]


def test_what_belongs_to_a_set_of_documents_is_not_counted(corpus):
    """Its README, its cases, and what retrieval made of them."""
    (corpus / "documents").mkdir()
    (corpus / "a.md").rename(corpus / "documents/a.md")
    for name in (
        "README.md",
        "LICENSES.md",
        "cases.jsonl",
        "labels.csv",
        "plot.png",
        "policy.yaml",
    ):
        (corpus / name).write_text("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_corpus(corpus).chunks) == 1
