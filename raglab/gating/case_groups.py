"""Case groups (algebra): the tenant, collection or language that a question is of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from raglab.values import Case

UNKNOWN_GROUP = ""  # group of a case that states none


def group_value(case: Case, name: str) -> str:
    """Group of a case by the name of an attribute; '' where the case states none.

    The value is `extra["groups"][name]`, as an import of spans keeps it, else `extra[name]`, a
    column of the cases.

    Example:
      >>> group_value(Case("1", "the excess?", extra={"groups": {"tenant": "acme"}}), "tenant")
      'acme'
      >>> group_value(Case("2", "l'excès ?", extra={"language": "fr"}), "language")
      'fr'
      >>> group_value(Case("3", "the excess?", extra={"tenant": 2.0}), "tenant")
      '2'
    """
    groups = case.extra.get("groups")
    group_name = (
        groups.get(name) if isinstance(groups, Mapping) and name in groups else case.extra.get(name)
    )
    # a column of numbers that lacks one is of floats: 2.0 is the group 2
    if isinstance(group_name, float):
        group_name = (
            None
            if math.isnan(group_name)
            else int(group_name)
            if group_name.is_integer()
            else group_name
        )
    return (
        UNKNOWN_GROUP
        if group_name is None or isinstance(group_name, Mapping | list | tuple)
        else str(group_name).strip()
    )


def group_values(cases: Iterable[Case], name: str) -> tuple[str, ...]:
    """Groups of cases, in their order; see `group_value`."""
    return tuple(group_value(case, name) for case in cases)
