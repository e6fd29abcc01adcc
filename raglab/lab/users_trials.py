"""Trials of the user (shore): run or queued by Optuna in a study's storage, outside its space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raglab.arguments.user_warnings import warn_user
from raglab.lab.search_space import SearchRange, own_trial, set_values
from raglab.store.files import shown_value
from raglab.store.policies import Policy

QUEUED = "fixed_params"  # attribute by which Optuna keeps the values of a trial that was queued
_SHOWN = 5  # trials that a message names


def outside_space(
    values: Mapping[str, Any], start: Policy, space: Mapping[str, SearchRange]
) -> str:
    """How values by path lie outside a space; '' where they make a policy of it.

    Args:
      start: whose values hold for paths that are not named.
    """
    for path, value in values.items():
        extent = space.get(path)
        if extent is None:
            return f"{shown_value(path)} is not searched"
        if extent.is_switch:
            rule, is_inside = "true or false", isinstance(value, bool)
        else:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_inside = is_number and extent.low <= value <= extent.high
            rule = f"in [{extent.low:g}, {extent.high:g}]"
            if is_inside and extent.whole:
                rule, is_inside = "a whole number", value == int(value)
        if not is_inside:
            return f"{path} must be {rule}, got {shown_value(value)}"
    try:
        set_values(start, {**own_trial(start, space), **values})
    except ValueError as error:
        return str(error)
    return ""


def warn_outside(faults: Mapping[int, str]) -> None:
    """Say which trials are left out, and why.

    Args:
      faults: by number of the trial.
    """
    if not faults:
        return
    texts = [f"trial {number}: {fault.rstrip('.')}" for number, fault in sorted(faults.items())]
    shown = "; ".join(texts[:_SHOWN]) + "; …" * (len(texts) > _SHOWN)
    warn_user(f"trials of the storage outside the search: {len(texts)}, not counted ({shown}).")
