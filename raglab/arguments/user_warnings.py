"""Warnings (shore): said at the line of the user that called, however deep they arise."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1]) + os.sep
_INSIDE = (PACKAGE, contextlib.__file__)  # a block of ours ends in a frame of contextlib


def warn_user(message: Warning | str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest caller outside the package.

    Args:
      message: the warning, or its text.
      category: kind of warning, where the message is a text.
    """
    # what inspect.currentframe gives, without its cost
    frame, level = sys._getframe(1), 2  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)
