"""The one door to numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(inline: str = "never", *, checked: bool = True) -> Callable[[Function], Function]:
    """Decorator that compiles a function once and keeps it on disk; exact arithmetic, no fast-math.

    Args:
      checked: whether dividing by zero raises; where it does not, loops of divisions run several at once.
    """
    model = "python" if checked else "numpy"
    decorator: Callable[[Function], Function] = njit(cache=True, inline=inline, error_model=model)
    return decorator
