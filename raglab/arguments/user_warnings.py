"""Warnings (shore): said at the line of the user that called, however deep they arise."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

PACKAGE_FOLDER = str(Path(__file__).parents[1]) + os.sep
_INTERNAL_FILES = (
    PACKAGE_FOLDER,
    contextlib.__file__,
)  # a block of ours ends in a frame of contextlib


class IdleThresholdWarning(UserWarning):
    """A threshold cannot act: under its policy, or on the cases of a trace."""


def is_called_inside() -> bool:
    """Whether what calls this was itself called by the package, not by a line of the user."""
    # as below
    return sys._getframe(2).f_code.co_filename.startswith(_INTERNAL_FILES)  # noqa: SLF001


def warn_user(message: Warning | str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest caller outside the package.

    Args:
      message: the warning, or its text.
      category: kind of warning, where the message is a text.
    """
    # what inspect.currentframe gives, without its cost
    caller_frame, stack_level = sys._getframe(1), 2  # noqa: SLF001
    while caller_frame is not None and caller_frame.f_code.co_filename.startswith(_INTERNAL_FILES):
        caller_frame, stack_level = caller_frame.f_back, stack_level + 1  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=stack_level)
