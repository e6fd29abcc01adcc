"""Policies on disk: one YAML file each (rule S0.5)."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Self

import yaml

from raglab import policy
from raglab.store._errors import Where, input_error
from raglab.store._files import read_text, write_text

MAX_POLICY_BYTES = 2**20


class Policy(policy.Policy):
    """A policy with its door to the disk: `load`, `save`. Everything else is `raglab.policy.Policy`."""

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Policy of a YAML file, what it leaves out filled in from the published defaults.

        Args:
          path: None gives the published defaults.

        Raises:
          ValueError: unreadable, no mapping, an unknown or repeated key, a value out of range or a bad pattern; names
            file, key, value and rule.
        """
        if path is None:
            return cls.from_mapping()
        text = read_text(Path(path), MAX_POLICY_BYTES)
        try:
            stated = yaml.load(text, _Plain)  # noqa: S506 - a SafeLoader
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            line, came = _told(error)
            where = Where(str(path), line)
            raise input_error(where, "a policy must be valid YAML", "correct or remove the line", came) from None
        return cls.from_mapping(stated, str(path))

    def save(self, path: str | Path) -> None:
        """Write every value as YAML, whole or not at all, under a comment that names the policy_id.

        Raises:
          InputError: the folder cannot be written.
        """
        rows = self.model_dump(mode="json", exclude_none=False)
        rows = {key: value for key, value in rows.items() if value is not None or key not in {"certificate", "notes"}}
        text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=120)
        write_text(f"# policy_id {self.policy_id}\n{text}", Path(path))


class _Plain(yaml.SafeLoader):
    """YAML without what hides a value: no key twice in a mapping, no alias (a few lines of them fill the memory)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"the alias *{event.anchor}; write the value out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001 - as in the parent
        rows = super().construct_mapping(node, deep=deep)
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"key {name!r} twice in one mapping", problem_mark=key.start_mark)
            seen.add(name)
        return rows


def _told(error: Exception) -> tuple[int | None, str]:
    """Line from 1, where it is known, and what came."""
    if isinstance(error, RecursionError):
        return None, "nesting too deep"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line + 1, f"{error.problem} at column {error.problem_mark.column + 1}"
    return None, " ".join(str(error).split())
