"""`tags.yaml`: tags of documents that hold none themselves, stated beside them."""

from __future__ import annotations

import pytest

from document_samples import write_file
from pdf_samples import pdf_bytes
from raglab.store.files import InputError
from raglab.store.loaders import load_corpus
from refusals import told

HTML = (
    '<html lang="en"><head><title>Questions</title></head><body><p>Glass is '
    "covered.</p></body></html>"
)


def folder(place, stated):
    """A folder with a page of HTML, a PDF two folders down and a Markdown file.

    Its file of tags holds what is stated of them.
    """
    write_file(place / "faq.html", HTML)
    write_file(
        place / "terms" / "home" / "own.md",
        "---\ndomain: own\nentities: [Acme]\n---\nFire is covered.",
    )
    write_file(place / "terms" / "home" / "excess.pdf", pdf_bytes("The excess is 100 pounds."))
    write_file(place / "tags.yaml", stated)
    return place


def tags_of(corpus):
    """Tags of the documents by source."""
    return {chunk.source: dict(chunk.tags) for chunk in corpus.chunks}


@pytest.mark.filterwarnings("error")  # the file itself is no document that was left out
def test_tags_by_name_and_by_folder(tmp_path):
    """A file goes before its folder, a folder before its parent, all before what documents say.

    That is what a document says itself.
    """
    stated = (
        "terms/: {domain: home, doc_type: terms, entities: [Kestrel]}\n"
        "terms/home/: {doc_type: policy}\n"
        'terms/home/excess.pdf: {product: Basic, version: "1.10", entities: [Northmark, Kestrel]}\n'
        "faq.html: {title: FAQ}\n"
    )
    corpus = load_corpus(folder(tmp_path / "docs", stated))
    assert tags_of(corpus) == {
        "faq.html": {"title": "FAQ", "lang": "en"},
        "terms/home/excess.pdf": {
            "domain": "home",
            "doc_type": "policy",
            "product": "Basic",
            "version": "1.10",
        },
        "terms/home/own.md": {"domain": "home", "doc_type": "policy"},
    }
    assert {chunk.source: chunk.entities for chunk in corpus.chunks} == {
        "faq.html": (),
        "terms/home/excess.pdf": ("Kestrel", "Northmark"),
        "terms/home/own.md": ("Acme", "Kestrel"),
    }


def test_a_folder_without_it_or_with_an_empty_statement_is_as_before(tmp_path):
    """No name, no tags; texts and ids of the chunks are the same whatever is stated."""
    bare = load_corpus(folder(tmp_path / "a" / "docs", "{}\n"))
    tagged = load_corpus(folder(tmp_path / "b" / "docs", "faq.html: {domain: home}\n"))
    (tmp_path / "a" / "docs" / "tags.yaml").unlink()
    assert load_corpus(tmp_path / "a" / "docs") == bare
    assert [(c.chunk_id, c.text) for c in bare.chunks] == [
        (c.chunk_id, c.text) for c in tagged.chunks
    ]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (
            "- faq.html\n",
            "tags.yaml must give documents' names tags … guide.pdf: {domain: home}",
        ),
        (
            "faq.htm: {a: b}\nterms: {a: b}\n",
            "must name documents, or folders … got 'faq.htm', 'terms'",
        ),
        (
            "".join(f"{n}.pdf: {{a: b}}\n" for n in range(9)),
            "'0.pdf', '1.pdf', '2.pdf', '3.pdf'",
        ),
        (
            "faq.html: home\n",
            "faq.html … got 'home'",
        ),
        (
            "faq.html: {version: 1.10}\n",
            "version … got 1.1",
        ),
        ("faq.html: {entities: Acme}\n", "entities … got 'Acme'"),
        (
            "faq.html: {a: b}\nfaq.html: {a: c}\n",
            "tags.yaml must be valid YAML … line 2 … twice",
        ),
        ("faq.html: &x {a: b}\nterms/: *x\n", "the alias *x"),
        ("faq.html: {a: [\n", "tags.yaml must be valid YAML"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, stated, said):
    """File, rule, what came and a remedy; every name that is no document at once."""
    place = folder(tmp_path / "docs", stated)
    with pytest.raises(InputError) as caught:
        load_corpus(place)
    told(str(caught.value), str(place / "tags.yaml"), said)
