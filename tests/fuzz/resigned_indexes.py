"""Index folders with one value of index.json or the corpus changed and every digest remade."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import Any

from fuzz.mutation import pick
from fuzz.outcomes import Trial, fuzz
from fuzz.resigned import Change, json_changes
from fuzz.shop import QUESTIONS, words_for_models
from labelled import free_policy
from live_worlds import CORPUS, SMALL
from raglab.live.ask import ask
from raglab.live.index_folder import INDEX, _corpus_file, _digest, index_fingerprint
from raglab.live.retriever import RetrievalSettings
from raglab.live.system import System, build_index
from raglab.store.loaders import hash_corpus, load_corpus

WITH_FINGERPRINT = ", with its fingerprint"


def changed_index(place, kind):
    """An index of a kind."""
    build_index(CORPUS, place, cache=None, arms=("hybrid", "iterative"), **{**SMALL, "index": kind})


def answers(place):
    """What a folder's index answers by each arm, without logs and caches, and what it finds."""
    out: list[Any] = []
    for arm in ("hybrid", "iterative"):
        system = System.open(place, policy=free_policy(), arm=arm, audit=False, cache=False)
        for question in QUESTIONS:
            response = ask(question, system=system)
            out.append(
                {name: response[name] for name in ("status", "answer", "sources", "confidence")}
            )
    return out


def head_changes(head):
    """Changes of index.json with a digest that fits.

    And, where the settings can be read, a fingerprint that fits.
    """
    plain = {name: value for name, value in head.items() if name != "digest"}
    for change in json_changes(plain, most_items=2):
        yield change._replace(content=signed(change.content, head))
        stated = change.content
        if isinstance(stated, dict) and not change.what.startswith("fingerprint"):
            with suppress(Exception):
                parameters = RetrievalSettings(**stated["settings"]).parameters(None)
                again = stated | {
                    "fingerprint": index_fingerprint(stated["corpus_hash"], parameters)
                }
                if again != stated:
                    yield Change(
                        f"{change.what}{WITH_FINGERPRINT}", change.malformed, signed(again, head)
                    )


def signed(stated, head):
    """Content of index.json with its digest; the old one where none can be made."""
    if not isinstance(stated, dict):
        return stated
    with suppress(Exception):
        return stated | {"digest": _digest(stated)}
    return stated | {"digest": head["digest"]}


def corpus_changes(lines):
    """Changes of a corpus's first line, of its first chunk, and of the whole."""
    for at in (0, 1):
        for change in json_changes(lines[at]):
            yield change._replace(
                what=f"{at}/{change.what}", content=[*lines[:at], change.content, *lines[at + 1 :]]
            )
    yield Change("repeated", malformed=True, content=[*lines, lines[0]])
    yield Change("reversed", malformed=False, content=lines[::-1])
    yield Change("none", malformed=True, content=[])


def write_head(place, content):
    """Write index.json."""
    (place / INDEX).write_text(json.dumps(content))


def write_corpus(place, lines):
    """Write the corpus of an index, and index.json with its matching hash, name and numbers."""
    head = json.loads((place / INDEX).read_text())
    file = _corpus_file(place, head["corpus_hash"])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with suppress(Exception):
        corpus = load_corpus(file)
        new = hash_corpus(corpus)
        file.replace(_corpus_file(place, new))
        parameters = RetrievalSettings(**head["settings"]).parameters(None)
        head |= {"corpus_hash": new, "n_chunks": len(corpus.chunks), "corpus": corpus.name}
        write_head(place, signed(head | {"fingerprint": index_fingerprint(new, parameters)}, head))


def restored(whole, place):
    """Copy an index over what stands in a folder."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)


def try_changes(folder, kind, cases):
    """Failures of so many changes of an index of a kind, drawn from all.

    What no honest folder holds, and a change that leaves the fingerprint as it was, must be refused
    or decide as before.
    """
    whole, place = folder / kind, folder / "i"
    with words_for_models(folder / "kept"):
        changed_index(whole, kind)
        head = json.loads((whole / INDEX).read_text())
        lines = [
            json.loads(line) for line in next(whole.glob("corpus-*.jsonl")).read_text().splitlines()
        ]
        tries = [(write_head, change) for change in head_changes(head)]
        tries += [(write_corpus, change) for change in corpus_changes(lines)]
        sound = answers(whole)

        def draw(rng):
            write, change = pick(rng, tries)
            restored(whole, place)
            write(place, change.content)
            is_strict = change.malformed or (
                write is write_head and not change.what.endswith(WITH_FINGERPRINT)
            )

            def check(found):
                if is_strict and found != sound:
                    return f"another decision: {found}"
                return ""

            return Trial(change.what, lambda: answers(place), check)

        return fuzz(f"re-signed: index {kind}", draw, None, cases)
