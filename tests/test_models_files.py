"""Models come from a folder, the local cache or, where it is allowed, a hub.

Nothing half-fetched counts as there.
"""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from commands import run
from model_hub import Hub, running, use
from raglab.live.system import System, build_index
from raglab.models.files import (
    NO_PROMPTS,
    Prompts,
    check_weights,
    find_model,
    pinned_name,
    read_prompts,
)
from raglab.models.loaders import identifier_of, load_encoder
from raglab.store.loaders import load_corpus
from tiny_models import save_encoder

NAME = "ann/tiny"
UNWANTED = {
    "README.md": b"# Tiny",
    "own.py": b"raise SystemExit",
    "pytorch_model.bin": pickle.dumps({}),
}


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    """Return the folder of a tiny encoder with prompts."""
    return save_encoder(
        tmp_path_factory.mktemp("models") / "tiny", {"query": "what ", "passage": "the "}
    )


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Return a hub on this machine, and an empty cache."""
    with running(Hub()) as server:
        use(server, tmp_path / "cache", monkeypatch)
        yield server


def content(folder, **changed):
    """Files of a folder by path, some of them changed or left out; `__` is the dot of a name."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    files |= {name.replace("__", "."): text for name, text in changed.items() if text is not None}
    return {
        name: text
        for name, text in files.items()
        if changed.get(name.replace(".", "__"), b"") is not None
    }


class TestNames:
    """What a name may be, and what is said where nothing is found."""

    @pytest.mark.parametrize("stated", ["0", ""])
    def test_offline_is_the_default(self, hub, monkeypatch, stated):
        """A name that is not here is refused with both ways to fetch it, and no request is made."""
        monkeypatch.setenv("RAGLAB_DOWNLOAD", stated)
        with pytest.raises(ValueError, match=r"got 'ann/tiny', .*download=True"):
            load_encoder(NAME)
        assert hub.requests == []

    @pytest.mark.parametrize(
        "name", ["ann/tiny@", "@main", "ann/tiny@../../x", "ann/tiny@a b", "ann/tiny@-x"]
    )
    def test_a_revision_that_is_none(self, hub, name):
        """Is refused before anything is looked for."""
        with pytest.raises(ValueError, match=r"must be NAME or NAME@REVISION, got "):
            find_model(name, download=True)
        assert hub.requests == []


class TestPrompts:
    """What the configuration of an encoder puts before texts."""

    @pytest.mark.parametrize(
        ("stated", "prompts"),
        [
            ({"prompts": {"query": "", "document": ""}, "default_prompt_name": None}, NO_PROMPTS),
            ({"prompts": {"query": "q", "document": "", "passage": "p"}}, Prompts("q", "p")),
            ({"prompts": {"query": "q", "document": "d", "corpus": "c"}}, Prompts("q", "d")),
            (
                {"prompts": {"query": "q", "clustering": "c"}, "default_prompt_name": "query"},
                Prompts("q", ""),
            ),
            (
                {"prompts": {"all": "a ", "query": "q "}, "default_prompt_name": "all"},
                Prompts("q ", "a "),
            ),
        ],
    )
    def test_by_head(self, tmp_path, stated, prompts):
        """Each kind has its own; a default that is neither goes before both; none is invented."""
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(stated))
        assert read_prompts(tmp_path) == prompts

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "{",
            '{"prompts": {"query": 5}}',
            '{"default_prompt_name": "x"}',
            "[" * 9_999,
        ],
    )
    def test_a_configuration_that_is_none(self, tmp_path, text):
        """Is named."""
        (tmp_path / "config_sentence_transformers.json").write_text(text)
        with pytest.raises(
            ValueError, match=r"prompts must be texts by name in JSON.*config_sentence_transformers"
        ):
            read_prompts(tmp_path)


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        (("model.safetensors", "pytorch_model.bin", "training_args.bin", "rng_state_0.pth"), None),
        (("pytorch_model-00001-of-00002.bin", "model.safetensors.index.json"), None),
        (
            ("adapter_model.bin", "adapter_model.safetensors", "openvino/openvino_model_qint8.bin"),
            None,
        ),
        (("2_Dense/pytorch_model.bin", "2_Dense/model.safetensors"), None),
        (("2_Dense/pytorch_model.bin", "model.safetensors"), "2_Dense/pytorch_model.bin"),
        (("pytorch_model.bin", "adapter_model.safetensors"), "pytorch_model.bin"),
        (
            ("pytorch_model-00001-of-00002.bin", "model-00002-of-00002.safetensors"),
            "pytorch_model-00001-of-00002.bin",
        ),
        (("weights.pkl", "model.safetensors"), "weights.pkl"),
    ],
)
def test_every_pickle_needs_its_twin(tmp_path, files, refused):
    """By name, in its own folder; what no loader reads needs none."""
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    if refused is None:
        check_weights(tmp_path)
    else:
        with pytest.raises(ValueError, match=f"got {refused} alone, without "):
            check_weights(tmp_path)


class TestHub:
    """Models of a hub that plays by the rules."""

    def test_fetched_once(self, hub, encoder_folder, monkeypatch):
        """With leave it is fetched, without code and pickles; from then on no request is needed."""
        commit = hub.put(NAME, content(encoder_folder) | UNWANTED)
        encoder = load_encoder(NAME, download=True)
        assert encoder.name.startswith(f"{NAME}@{commit}+prompts.")
        fetched = [path for path in hub.paths() if "/resolve/" in path]
        assert {path.rpartition("/")[2] for path in fetched}.isdisjoint(UNWANTED)
        assert np.array_equal(
            encoder.sentences(["fire"]), load_encoder(str(encoder_folder)).sentences(["fire"])
        )
        before = len(hub.requests)
        assert load_encoder(NAME).name == encoder.name == identifier_of(NAME)
        assert pinned_name(NAME) == f"{NAME}@{commit}"
        monkeypatch.setenv("RAGLAB_DOWNLOAD", "1")
        # a commit that is here is not asked for
        assert identifier_of(f"{NAME}@{commit}") == encoder.name
        assert len(hub.requests) == before

    def test_a_moved_branch_is_another_model(self, hub, encoder_folder, monkeypatch):
        """The branch is what the hub says when it is asked; a commit stays what it was."""
        monkeypatch.setenv("RAGLAB_DOWNLOAD", "1")
        first = hub.put(NAME, encoder_folder)
        old = identifier_of(NAME)
        second = hub.put(NAME, content(encoder_folder, README__md=b"moved"))
        monkeypatch.delenv("RAGLAB_DOWNLOAD")
        assert identifier_of(NAME) == old
        new = find_model(NAME, download=True).identifier
        assert (old.split("+")[0], new.split("+")[0]) == (f"{NAME}@{first}", f"{NAME}@{second}")
        assert identifier_of(f"{NAME}@{first}") == old

    def test_a_hub_that_is_down(self, hub, encoder_folder, monkeypatch):
        """What the cache last knew is used, and a warning says so.

        What it does not know is refused.
        """
        commit = hub.put(NAME, encoder_folder)
        find_model(NAME, download=True)
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        with pytest.warns(UserWarning, match=f"local cache, commit {commit}"):
            assert find_model(NAME, download=True).folder.name == commit
        with pytest.raises(ValueError, match=r"got 'ann/other', .*HF_ENDPOINT"):
            find_model("ann/other", download=True)


class TestBadHub:
    """Repositories and hubs that must not be trusted.

    Each is refused, and nothing of them counts as there.
    """

    @pytest.mark.parametrize(
        "name", ["ann/none", "ann/tiny@none", f"ann/tiny@{'0' * 40}", "a//b", "../x"]
    )
    def test_what_does_not_exist(self, hub, encoder_folder, name):
        """Is named, with what the hub's client says."""
        hub.put(NAME, encoder_folder)
        with pytest.raises(ValueError, match="hub or in the local model cache") as caught:
            find_model(name, download=True)
        assert repr(name) in str(caught.value)
        assert "hf_secret" not in str(caught.value)

    def test_pickled_weights_alone(self, hub, encoder_folder):
        """Are refused by the list of files, before a file is asked for."""
        hub.put(NAME, content(encoder_folder, model__safetensors=None) | UNWANTED)
        with pytest.raises(
            ValueError,
            match=r"got pytorch_model.bin alone in 'ann/tiny'",
        ):
            load_encoder(NAME, download=True)
        assert not any("/resolve/" in request.path for request in hub.requests)

    def test_code(self, hub, encoder_folder, tmp_path):
        """A model that needs code of its own is refused; the code is neither fetched nor run."""
        mark = tmp_path / "mark"
        code = f"open({str(mark)!r}, 'w')\nclass Own: ...\n".encode()
        config = json.loads((encoder_folder / "config.json").read_text()) | {
            "model_type": "own",
            "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"},
        }
        hub.put(
            NAME, content(encoder_folder, config__json=json.dumps(config).encode(), own__py=code)
        )
        with pytest.raises(ValueError, match="needs code of its own, which raglab never runs"):
            load_encoder(NAME, download=True)
        assert not any(path.endswith(".py") for path in hub.paths())
        assert not mark.exists()

    def test_half_a_file(self, hub, encoder_folder):
        """Is refused, with the network and without; once the hub sends the whole, all is there."""
        hub.put(NAME, encoder_folder)
        hub.cut.add("model.safetensors")
        with pytest.raises(
            ValueError, match=r"got 'ann/tiny', of which the hub's client says: .*should be of size"
        ):
            load_encoder(NAME, download=True)
        with pytest.raises(ValueError, match="fetch it once"):
            load_encoder(NAME)
        hub.cut.clear()
        assert load_encoder(NAME, download=True).dim == 16

    @pytest.mark.parametrize("file", ["model.safetensors", "config_sentence_transformers.json"])
    def test_another_content(self, hub, encoder_folder, file):
        """Of the size of the one that is listed, is refused and removed."""
        files = content(encoder_folder)
        hub.put(NAME, files)
        hub.altered[file] = files[file][:-1] + b" "
        with pytest.raises(
            ValueError, match=rf"must send what it lists, got other content in {file} of 'ann/tiny'"
        ):
            load_encoder(NAME, download=True)
        with pytest.raises(ValueError, match="fetch it once"):
            load_encoder(NAME)
        hub.altered.clear()
        assert load_encoder(NAME, download=True).dim == 16

    def test_a_redirect_elsewhere(self, hub, encoder_folder):
        """Large files may come from other hosts, which get no token and must match the hub."""
        commit = hub.put(NAME, encoder_folder)
        with running(Hub()) as mirror:
            hub.elsewhere = mirror.address
            assert mirror.put(NAME, encoder_folder) == commit
            mirror.altered["model.safetensors"] = bytes(
                len((encoder_folder / "model.safetensors").read_bytes())
            )
            with pytest.raises(ValueError, match=r"got other content in model.safetensors"):
                load_encoder(NAME, download=True)
            mirror.altered.clear()
            assert load_encoder(NAME, download=True).dim == 16
            assert {request.token for request in mirror.requests} == {None}
            assert {request.token for request in hub.requests} == {"Bearer hf_secret"}

    def test_a_hub_that_sends_everyone_away(self, hub, encoder_folder):
        """A host other than the named one says nothing that is believed, and gets no token."""
        with running(Hub()) as mirror:
            mirror.put(NAME, encoder_folder)
            hub.away = mirror.address
            with pytest.raises(
                ValueError, match=r"got 'ann/tiny', of which the hub's client says: "
            ):
                load_encoder(NAME, download=True)
            assert not any("/resolve/" in request.path for request in mirror.requests)
            assert {request.token for request in mirror.requests} <= {None}

    def test_a_cache_that_was_altered(self, hub, encoder_folder):
        """A file that is not what the hub listed is named, whenever the model is looked for."""
        hub.put(NAME, encoder_folder)
        folder = find_model(NAME, download=True).folder
        (folder / "config.json").resolve().write_text("{}")
        with pytest.raises(
            ValueError,
            match=r"must be what the hub listed, got other content in .*config.json; remov",
        ):
            identifier_of(NAME)


TEXT = (
    "# The policy\n\nthe policy does cover fire .\n\n# Water\n\n"
    + "what does the policy cover ? water . " * 12
)


class TestSystem:
    """Names of the hub in traces and indexes."""

    def test_an_index_keeps_the_commit(self, hub, encoder_folder, tmp_path):
        """An index opens with the commit that it was made with, wherever the branch moves."""
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.md").write_text(TEXT)
        corpus = load_corpus(tmp_path / "docs")
        first = hub.put(NAME, encoder_folder)
        index = tmp_path / "index"
        with pytest.warns(UserWarning, match="1 of 2 chunks are longer than the 32 tokens"):
            build_index(corpus, index, arms=("hybrid",), encoder=NAME, download=True, cache=None)
        hub.put(NAME, content(encoder_folder, README__md=b"moved"))
        pinned_name(NAME, download=True)
        before = len(hub.requests)
        system = System.open(index, audit=False, cache=False)
        assert system.retriever.encoder.name.split("+")[0] == f"{NAME}@{first}"
        assert len(hub.requests) == before

    def test_from_a_shell(self, hub, encoder_folder, tmp_path):
        """`--download` allows what is refused without it."""
        hub.put(NAME, encoder_folder)
        docs = tmp_path / "docs"
        docs.mkdir()
        (docs / "a.md").write_text(TEXT)
        index = tmp_path / "index"
        command = ["index", docs, "-o", index, "--arm", "hybrid", "--encoder", NAME, "-q"]
        assert run(*command).exit_code != 0
        assert hub.requests == []
        done = run(*command, "--download")
        assert done.exit_code == 0, done.stderr
        assert not any(b"hf_secret" in path.read_bytes() for path in index.glob("*"))
