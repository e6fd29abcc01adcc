"""Optional libraries (shore): what the extra `documents` brings, imported when needed.

A document needs them.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from raglab.store.files import Where, input_error

EXTRA = "documents"
_PACKAGES = {
    "docx": "python-docx",
    "openpyxl": "openpyxl",
    "nbformat": "nbformat",
    "docutils.core": "docutils",
}


def library(module: str, file: str) -> ModuleType:
    """A module of a library that reads a kind of document.

    Args:
      module: its name.
      file: that is to be read, for messages.

    Raises:
      InputError: the library is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        ending = f".{file.rpartition('.')[2].lower()}"
        rule = f"a {ending} file needs the library {_PACKAGES[module]}"
        remedy = f"pip install 'raglab-toolkit[{EXTRA}]', or take such files away"
        raise input_error(Where(file), rule, remedy, "an environment without it") from error
