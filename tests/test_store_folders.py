"""A corpus folder stays inside itself: links, loops, devices, pipes and sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
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
def corpus(tmp_path: Path) -> Path:
    """A folder with one document, beside another that holds a secret."""
    for name, text in (("set/a.md", "One."), ("outside/secret.md", "Secret."), ("outside/cases.jsonl", CASE)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "set"


def make_socket(path: Path) -> None:
    """A socket that a program listens at."""
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # such names may not be long
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link out of the folder": (lambda path: path.symlink_to("../outside/secret.md"), "a link to '../outside/sec"),
    "a link inside the folder": (lambda path: path.symlink_to("a.md"), "got a link to 'a.md'"),
    "a link to a folder": (lambda path: path.symlink_to("../outside"), "got a link to '../outside'"),
    "a link to its own folder": (lambda path: path.symlink_to("."), "got a link to '.'"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "got a link to 'x.md'"),
    "a link to nothing": (lambda path: path.symlink_to("nothing"), "got a link to 'nothing'"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "got a link to '/dev/zero'"),
    "a pipe": (os.mkfifo, "got a device, pipe or socket"),
    "a socket": (make_socket, "got a device, pipe or socket"),
}


@pytest.mark.parametrize(("make", "came"), ODD.values(), ids=ODD.keys())
def test_what_is_no_file_of_the_folder_is_refused(corpus: Path, make: Callable[[Path], object], came: str) -> None:
    """The message has its path; nothing is read or waited for."""
    make(corpus / "x.md")
    with pytest.raises(InputError) as caught:
        load_corpus(corpus)
    assert str(caught.value).startswith(f"{corpus / 'x.md'}: ")
    assert came in str(caught.value)


def test_hidden_links_are_passed_over(corpus: Path) -> None:
    """As all that begins with a dot is."""
    (corpus / ".x.md").symlink_to("/dev/zero")
    assert [chunk.source for chunk in load_corpus(corpus).chunks] == ["a.md"]


def test_links_are_followed_when_asked(corpus: Path) -> None:
    """To files and folders, wherever they lead, each under the name that it has in the folder."""
    (corpus / "b.md").symlink_to("../outside/secret.md")
    (corpus / "more").symlink_to("../outside")
    chunks = load_corpus(corpus, follow_links=True).chunks
    assert [(chunk.source, chunk.text) for chunk in chunks] == [
        ("a.md", "One."),
        ("b.md", "Secret."),
        ("more/secret.md", "Secret."),
    ]


@pytest.mark.parametrize("target", [".", "..", "deep", "x.md", "nothing", "/dev/zero"])
def test_loops_and_devices_are_refused_even_then(corpus: Path, target: str) -> None:
    """So are links that lead nowhere, and a second way to a folder: a few of them would stand for millions."""
    (corpus / "deep").mkdir()
    (corpus / "deep" / "b.md").write_text("Two.")
    (corpus / "x.md").symlink_to(target)
    with pytest.raises(InputError) as caught:
        load_corpus(corpus, follow_links=True)
    assert str(corpus) in str(caught.value)


def test_the_path_itself_may_be_a_link(corpus: Path, tmp_path: Path) -> None:
    """Who gives it knows it."""
    (tmp_path / "here").symlink_to(corpus)
    (tmp_path / "one.md").symlink_to(corpus / "a.md")
    assert [chunk.text for chunk in load_corpus(tmp_path / "here").chunks] == ["One."]
    assert [chunk.text for chunk in load_corpus(tmp_path / "one.md").chunks] == ["One."]


@pytest.mark.parametrize("name", ["documents", "corpus.jsonl", "reference.jsonl"])
def test_fixed_names_may_not_be_links(corpus: Path, name: str) -> None:
    """Neither the folder of the documents nor a file with a name of its own."""
    (corpus / name).symlink_to("../outside" if name == "documents" else "../outside/cases.jsonl")
    with pytest.raises(InputError, match=f"{name}.* must hold its files itself.*--follow-links"):
        load_corpus(corpus)


@pytest.mark.parametrize("name", ["cases.jsonl", "queries.jsonl", "data_full.json", "reference.jsonl"])
def test_cases_may_not_be_links_either(corpus: Path, name: str) -> None:
    """They are followed when asked."""
    (corpus / name).symlink_to("../outside/cases.jsonl")
    with pytest.raises(InputError, match=f"{name}.* must hold its files itself"):
        load_cases(corpus)
    if name == "cases.jsonl":
        assert [case.id for case in load_cases(corpus, follow_links=True)] == ["1"]


def test_judgements_may_not_be_links(corpus: Path) -> None:
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


def test_a_packs_folder_holds_its_files(corpus: Path) -> None:
    """A link in a pack is refused, and so is a pipe; a pack that is one itself does not wait for a writer."""
    (corpus / "a.yaml").symlink_to("../outside/secret.md")
    with pytest.raises(InputError, match=r"a\.yaml.* must hold its files itself"):
        load_pack(corpus)
    (corpus / "a.yaml").unlink()
    os.mkfifo(corpus / "a.yaml")
    with pytest.raises(InputError, match=r"a\.yaml: the path must be a file, got a device, pipe or socket"):
        load_pack(corpus)
    with pytest.raises(ValueError, match="a pack must be one of"):
        load_pack(corpus / "a.yaml")


@pytest.mark.parametrize("ending", [".md", ".txt", ".csv", ".pdf", ".jsonl", ".json"])
def test_a_pipe_given_as_a_file_is_not_waited_for(tmp_path: Path, ending: str) -> None:
    """Whatever reads it says what it is."""
    path = tmp_path / f"x{ending}"
    os.mkfifo(path)
    with pytest.raises(InputError, match="the path must be a file, got a device, pipe or socket"):
        load_corpus(path)


def test_devices_are_not_read(tmp_path: Path) -> None:
    """Not even one that never ends."""
    for read in (lambda path: read_bytes(path, 10), lambda path: next(json_lines(path, 10))):
        with pytest.raises(InputError, match="got a device, pipe or socket"):
            read(Path("/dev/zero"))
        with pytest.raises(InputError, match="got a folder"):
            read(tmp_path)


def test_a_file_that_is_exchanged_is_noticed(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that becomes a link or a pipe between look and opening is neither followed nor waited for."""
    path, real = corpus / "a.md", os.open

    def exchanged(make: Callable[[Path], object]) -> None:
        def swapping(name: Path, flags: int) -> int:
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
def test_odd_names_are_shown_escaped(tmp_path: Path, name: str) -> None:
    """A document loads under such a name; a message about it is one line that a terminal may show."""
    (tmp_path / name).write_text("One.")
    assert load_corpus(tmp_path).chunks[0].source == name
    (tmp_path / name).write_text("---\n")
    with pytest.raises(InputError) as caught:
        load_corpus(tmp_path)
    assert str(caught.value).isprintable()


def test_a_name_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    """No id, no index and no trace could bear it."""
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("One.")
    with pytest.raises(InputError, match=r"a document's name must be Unicode.*rename the file") as caught:
        load_corpus(tmp_path)
    assert str(caught.value).isprintable()


def test_the_command_line_follows_links_when_asked(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`raglab trace`, `index` and `check` hand `--follow-links` on to the loaders."""
    asked: list[bool] = []

    def noted(_: object, *, follow_links: bool = False, **more: object) -> None:
        del more
        asked.append(follow_links)
        raise typer.Exit(3)

    monkeypatch.setattr("raglab.store.loaders.load_corpus", noted)
    for command in (["trace", str(corpus), "--out", "t"], ["index", str(corpus), "--out", "i"]):
        for more in ([], ["--follow-links"]):
            assert CliRunner().invoke(cli.app, [*command, *more]).exit_code == 3
    assert asked == [False, True] * 2
