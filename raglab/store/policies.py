"""Policies and packs of files (shore): YAML within limits, all or nothing (rules S0.5, S5.11)."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import yaml

from raglab import policy
from raglab.policy_parts.acting import NUMBERS, threshold_need
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
        stated = load_yaml(read_text(Path(path), MAX_POLICY_BYTES), str(path), "a policy")
        file_policy = cls.from_mapping(stated, str(path))
        # a switch, a rule and an order that keep a threshold from acting say so themselves
        needs = {path: threshold_need(file_policy, path) for path in file_policy.diff()}
        numbers = [path for path, need in needs.items() if need and need.path in NUMBERS]
        policy.warn_idle((file_policy, path) for path in numbers)
        if file_policy.pack in BUNDLED and file_policy.pack_hash is None:
            return file_policy
        place = file_policy.pack
        if place not in BUNDLED:  # stated relative to the file
            place = os.path.normpath(Path(path).parent.resolve() / place)
        pack = load_pack(place)
        policy.check_pack(
            file_policy.pack_hash,
            pack.digest,
            f"the policy {path}",
            f"put that pack back, or correct pack_hash in {path}",
        )
        return file_policy.model_copy(update={"pack": place, "pack_hash": pack.stored})

    def save(self, path: str | Path) -> None:
        """Write every value as YAML, whole or not at all, under a comment that names the policy_id.

        Args:
          path: of the YAML file.

        Raises:
          InputError: the folder cannot be written.
        """
        rows = {
            key: value
            for key, value in self.model_dump(mode="json").items()
            # the content of the pack may go on changing
            if key != "pack_hash" and (value is not None or key not in {"certificate", "notes"})
        }
        if "pack" in rows and self.pack not in BUNDLED:
            rows["pack"] = Path(os.path.relpath(self.pack, Path(path).resolve().parent)).as_posix()
        text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=120)
        write_text(f"# policy_id {self.policy_id}\n{text}", Path(path))


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
    place = Path(name)
    inside = is_folder(place)
    files = sorted((*place.glob("*.yaml"), *place.glob("*.json"))) if inside else [place]
    if not files or not all(inside or file.is_file() for file in files):
        raise input_error(
            place,
            f"a pack must be one of {', '.join(BUNDLED)}, a YAML file or a folder of them",
            "correct `pack` in the policy file",
            "none there",
        )
    texts = [read_text(file, MAX_POLICY_BYTES, follow_links=not inside) for file in files]
    return _pack_of_files(tuple(zip(map(str, files), texts, strict=True)))


@lru_cache(maxsize=8)
def _pack_of_files(texts: tuple[tuple[str, str], ...]) -> packs.Pack:
    """Pack of the texts of its files."""
    rows: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for file, text in texts:
        # a fitted model is thousands of numbers, which YAML takes seconds to read
        is_json = file.endswith(".json")
        stated = parse_json(text, Where(file)) if is_json else load_yaml(text, file, "a pack")
        if not isinstance(stated, dict):
            raise input_error(
                file,
                "a pack must be a mapping of keys",
                "see datasets/README.md",
                shown_value(stated),
            )
        for key, value in stated.items():
            deep = key in packs.MERGED_KEYS and isinstance(value, dict)
            for path in (f"{key}.{name}" for name in value) if deep else (key,):
                if path in origin:
                    raise input_error(
                        file,
                        f"a pack states {path} once, and {origin[path]} has it",
                        "remove one of them",
                    )
                origin[path] = file
            rows[key] = {**rows.get(key, {}), **value} if deep else value

    def where(path: str) -> str:
        parts = path.split(".")
        return origin.get(".".join(parts[:2])) or origin.get(parts[0]) or texts[0][0]

    return packs.pack_of(rows, where)
