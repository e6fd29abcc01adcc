"""Strict YAML (shore): policies, packs without what hides a value, errors with file and line."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from raglab.store.files import Where, input_error, shown_value
from raglab.store.records import MAX_NAME_CHARACTERS


def load_yaml(yaml_text: str, file_name: str, document_noun: str, *, as_texts: bool = False) -> Any:  # noqa: ANN401 - any YAML value
    """Value of a YAML text.

    Args:
      file_name: for messages.
      document_noun: what it holds, such as "a policy".
      as_texts: whether a scalar is its text as it is written; null is None all the same.

    Raises:
      InputError: it is no YAML, or of a kind that `_StrictYaml` refuses; the message names the
        line.
    """
    line_number: int | None = None
    if "\ufeff" in yaml_text:  # it would become a part of a key that nobody sees
        line_number = 1 + yaml_text.count("\n", 0, yaml_text.index("\ufeff"))
        raise input_error(
            Where(file_name, line_number),
            f"{document_noun} must hold no byte-order mark but at its beginning",
            "take it away",
            "one",
        )
    try:
        yaml_loader = (_TextYaml if as_texts else _StrictYaml)(yaml_text)
        try:
            return yaml_loader.get_single_data()
        except RecursionError:
            line_number = yaml_loader.line + 1
            reason = "nesting too deep"
    except yaml.YAMLError as error:  # the reader's come before there is a loader
        problem_mark = getattr(error, "problem_mark", None)
        reason = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError) and problem_mark is not None:
            line_number = problem_mark.line + 1
            reason = f"{error.problem} at column {problem_mark.column + 1}"
    raise input_error(
        Where(file_name, line_number),
        f"{document_noun} must be valid YAML",
        "correct or remove the line",
        reason,
    )


MAX_YAML_VALUES = 20_000  # keys, values and lists of a policy or pack
_MAX_YAML_DEPTH = 100  # a policy is seven deep
_TAG_PREFIX = "tag:yaml.org,2002:"
_PLAIN_NUMBERS = {
    f"{_TAG_PREFIX}int": re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,307})"),
    f"{_TAG_PREFIX}float": re.compile(r"[^:]*"),
}


class _StrictYaml(yaml.SafeLoader):
    """YAML without what hides a value.

    No key twice in a mapping, no alias (a few lines of them fill the memory), no merged mapping, no
    number in sixties, octal or hexadecimal.
    """

    nodes = depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        next_event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self.nodes += 1
        problem = ""
        if self.nodes > MAX_YAML_VALUES:
            problem = f"more than {MAX_YAML_VALUES} keys and values"
        elif self.depth > _MAX_YAML_DEPTH:
            problem = "nesting too deep"
        elif isinstance(next_event, yaml.AliasEvent):
            problem = f"the alias *{next_event.anchor}; write the value out"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=next_event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    # as in the parent
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401, FBT001
        number_pattern = _PLAIN_NUMBERS.get(node.tag)
        if number_pattern is not None and not (
            isinstance(node, yaml.ScalarNode) and number_pattern.fullmatch(node.value)
        ):
            raise yaml.MarkedYAMLError(
                problem=f"{shown_value(node.value)} as a number; "
                "write it in decimal digits, or in quotes",
                problem_mark=node.start_mark,
            )
        try:
            return super().construct_object(node, deep=deep)
        # such as month 13
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            cause_clause = f": {error}" if isinstance(error, ValueError) else ""
            raise yaml.MarkedYAMLError(
                problem=(
                    f"{shown_value(node.value)}, which is no "
                    f"{node.tag.removeprefix(_TAG_PREFIX)}{cause_clause}"
                ),
                problem_mark=node.start_mark,
            ) from error

    # as in the parent
    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001
    ) -> dict[Hashable, Any]:
        key_nodes = (
            [key_node for key_node, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        )
        mapping = super().construct_mapping(node, deep=deep)
        seen_keys: set[Hashable] = set()
        for key_node in key_nodes:
            is_merge = key_node.tag == f"{_TAG_PREFIX}merge"
            problem = ""
            mapping_key = key_node.value if is_merge else self.construct_object(key_node, deep=True)
            if is_merge:
                problem = "the merge <<; write the keys out"
            elif isinstance(mapping_key, str) and len(mapping_key) > MAX_NAME_CHARACTERS:
                problem = (
                    f"a key of {len(mapping_key)} characters; write at most {MAX_NAME_CHARACTERS}"
                )
            elif mapping_key in seen_keys:
                problem = f"key {shown_value(mapping_key)} twice in one mapping"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen_keys.add(mapping_key)
        return mapping


class _TextYaml(_StrictYaml):
    """The same with scalars as they are written: 1.10 is no 1.1."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the parent
        first: [pair for pair in pairs if pair[0].endswith((":null", ":merge"))]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
