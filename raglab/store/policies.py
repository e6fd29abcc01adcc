"""Policies and packs of files (shore): YAML within limits, all or nothing (rules S0.5, S5.11)."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import yaml

from raglab import policy
from raglab.policy_parts.acting import GATE_THRESHOLDS, threshold_need
from raglab.store.files import Where, input_error, parse_json, read_text, shown_value, write_text
from raglab.store.folders import is_folder
from raglab.store.strict_yaml import load_yaml
from raglab.words import packs
from raglab.words.packs import BUNDLED

MAX_POLICY_BYTES = 2**20


class Policy(policy.PolicyData):
    """A policy with the methods `load` and `save`.

    Everything else is `raglab.policy.PolicyData`.
    """

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Policy of a YAML file, what it leaves out filled in from the published defaults.

        Args:
          path: None gives the published defaults.

        Raises:
          ValueError: unreadable, no mapping, an unknown or repeated key, a value out of range or a
            bad pattern; names file, key, value and rule.

        Warns:
          IdleThresholdWarning: a number keeps a threshold from acting.
        """
        if path is None:
            return cls.from_mapping()
        policy_document = load_yaml(read_text(Path(path), MAX_POLICY_BYTES), str(path), "a policy")
        file_policy = cls.from_mapping(policy_document, str(path))
        # a switch, a rule and an order that keep a threshold from acting say so themselves
        need_by_path = {path: threshold_need(file_policy, path) for path in file_policy.diff()}
        idle_paths = [
            path
            for path, threshold_rule in need_by_path.items()
            if threshold_rule and threshold_rule.path in GATE_THRESHOLDS
        ]
        policy.warn_idle((file_policy, path) for path in idle_paths)
        if file_policy.pack in BUNDLED and file_policy.pack_hash is None:
            return file_policy
        pack_place = file_policy.pack
        if pack_place not in BUNDLED:  # stated relative to the file
            pack_place = os.path.normpath(Path(path).parent.resolve() / pack_place)
        pack = load_pack(pack_place)
        policy.check_pack(
            file_policy.pack_hash,
            pack.digest,
            f"the policy {path}",
            f"put that pack back, or correct pack_hash in {path}",
        )
        return file_policy.model_copy(update={"pack": pack_place, "pack_hash": pack.stored})

    def save(self, path: str | Path) -> None:
        """Write every value as YAML, whole or not at all, under a comment that names the policy_id.

        Args:
          path: of the YAML file.

        Raises:
          InputError: the folder cannot be written.
        """
        policy_rows = {
            policy_key: policy_value
            for policy_key, policy_value in self.model_dump(mode="json").items()
            # the content of the pack may go on changing
            if policy_key != "pack_hash"
            and (policy_value is not None or policy_key not in {"certificate", "notes"})
        }
        if "pack" in policy_rows and self.pack not in BUNDLED:
            policy_rows["pack"] = Path(
                os.path.relpath(self.pack, Path(path).resolve().parent)
            ).as_posix()
        yaml_text = yaml.safe_dump(policy_rows, sort_keys=False, allow_unicode=True, width=120)
        write_text(f"# policy_id {self.policy_id}\n{yaml_text}", Path(path))


def load_pack(name: str | Path) -> packs.Pack:
    """Pack by name, or of a YAML file or a folder of them (rule S5.11).

    What it leaves out comes from the generic pack.

    The files of a folder are one: each states keys of its own, and entries of `parts` and `wording`
    of its own.

    Args:
      name: of a bundled pack, or a path.

    Raises:
      ValueError: no such pack, a key in two files, an unknown key, a bad expression; names file,
        key and rule.
    """
    if str(name) in BUNDLED:
        return BUNDLED[str(name)]
    given_path = Path(name)
    is_in_folder = is_folder(given_path)
    pack_paths = (
        sorted((*given_path.glob("*.yaml"), *given_path.glob("*.json")))
        if is_in_folder
        else [given_path]
    )
    if not pack_paths or not all(is_in_folder or pack_file.is_file() for pack_file in pack_paths):
        raise input_error(
            given_path,
            f"a pack must be one of {', '.join(BUNDLED)}, a YAML file or a folder of them",
            "correct `pack` in the policy file",
            "none there",
        )
    pack_texts = [
        read_text(pack_file, MAX_POLICY_BYTES, follow_links=not is_in_folder)
        for pack_file in pack_paths
    ]
    return _pack_of_files(tuple(zip(map(str, pack_paths), pack_texts, strict=True)))


@lru_cache(maxsize=8)
def _pack_of_files(file_texts: tuple[tuple[str, str], ...]) -> packs.Pack:
    """Pack of the texts of its files."""
    pack_rows: dict[str, Any] = {}
    file_by_path: dict[str, str] = {}
    for file_name, file_text in file_texts:
        # a fitted model is thousands of numbers, which YAML takes seconds to read
        is_json = file_name.endswith(".json")
        file_document = (
            parse_json(file_text, Where(file_name))
            if is_json
            else load_yaml(file_text, file_name, "a pack")
        )
        if not isinstance(file_document, dict):
            raise input_error(
                file_name,
                "a pack must be a mapping of keys",
                "see datasets/README.md",
                shown_value(file_document),
            )
        for pack_key, pack_value in file_document.items():
            is_merged = pack_key in packs.MERGED_KEYS and isinstance(pack_value, dict)
            for key_path in (
                (f"{pack_key}.{entry_name}" for entry_name in pack_value)
                if is_merged
                else (pack_key,)
            ):
                if key_path in file_by_path:
                    raise input_error(
                        file_name,
                        f"a pack states {key_path} once, and {file_by_path[key_path]} has it",
                        "remove one of them",
                    )
                file_by_path[key_path] = file_name
            pack_rows[pack_key] = (
                {**pack_rows.get(pack_key, {}), **pack_value} if is_merged else pack_value
            )

    def where(key_path: str) -> str:
        path_parts = key_path.split(".")
        return (
            file_by_path.get(".".join(path_parts[:2]))
            or file_by_path.get(path_parts[0])
            or file_texts[0][0]
        )

    return packs.pack_of(pack_rows, where)
