"""What enters the bandit's log, checked at the door, and the words of a reason."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from raglab.lab._folded import Features, Folded
from raglab.reward import COMPONENTS

LONGEST_ID = 200


def reason(name: str, arm: int, now: Folded, why: str | Mapping[str, str]) -> str:
    """Why an arm was selected, in words: `selected iterative: high complexity, reward 0.71 over 214 pulls`."""
    stated = why if isinstance(why, str) else why.get(name, "")
    pulls, rewards = int(now.state.pulls[arm]), float(now.n[arm])
    seen = f"{pulls} pull{'' if pulls == 1 else 's'}"
    mean = f"reward {float(now.total[arm]) / rewards:.2f} over {seen}" if rewards else f"no reward in {seen}"
    mean = mean if pulls else "not pulled yet"
    return f"selected {name}: " + ", ".join(part for part in (stated, mean) if part)


def check_id(request_id: object) -> None:
    """Refuse what is no id of a request."""
    if not isinstance(request_id, str) or not 0 < len(request_id) <= LONGEST_ID:
        msg = f"request_id must be a text of 1 to {LONGEST_ID} characters, got {request_id!r:.80}; shorten it."
        raise ValueError(msg)


def number(name: str, value: object) -> float | None:
    """A finite number, or None for one that is missing."""
    if value is None:
        return None
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_) or np.isinf(value):
        msg = f"{name} must be a finite number, got {value!r}; None says that it is missing."
        raise ValueError(msg)
    return None if np.isnan(value) else float(value)


def milliseconds(value: float) -> float:
    """A time, finite and at least 0."""
    spent = number("ms", value)
    if spent is None or spent < 0.0:
        msg = f"ms must be at least 0, got {value}; it is what the answer took."
        raise ValueError(msg)
    return spent


def digest(text: str) -> str:
    """First 16 hex digits of the SHA-256 of a text; of none, none."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else ""


def mask_of(mask: object, n_arms: int) -> NDArray[np.bool_]:
    """Mask as bool [A].

    Raises:
      ValueError: it is none, or leaves no arm.
    """
    offered = np.asarray(mask)
    if offered.shape != (n_arms,) or offered.dtype != np.bool_ or not offered.any():
        msg = f"mask must be {n_arms} booleans, one of them true, got {offered}; make an arm available."
        raise ValueError(msg)
    return offered


def raw_of(components: Features) -> dict[str, float | None]:
    """Reward components as the log keeps them: none of `reward.COMPONENTS` missing.

    Raises:
      ValueError: a component is NaN or infinite, or a thumb is among them.
    """
    raw = {name: number(name, value) for name, value in components.items()}
    for name in COMPONENTS:
        if raw.get(name, 0.0) is None:
            msg = f"{name} must be a number, got NaN; where it cannot be measured, leave the choice without reward."
            raise ValueError(msg)
    if "thumbs" in raw:
        msg = "components must not hold thumbs, got one; a thumb comes by `thumbs`, whenever it comes."
        raise ValueError(msg)
    return raw
