"""Documents that a fork of the test reads, in place of the worker of `DocumentWorker`.

A fork has all libraries loaded, which is what most of a worker's time goes to.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from importlib import import_module

from raglab.store import document_worker
from raglab.store.document_reading import answered
from raglab.store.workers import SECONDS_LIMIT

for library in ("docutils.core", "docutils.parsers.rst.directives", "mammoth", "openpyxl", "pypdf"):
    with suppress(ImportError):
        import_module(library)


def forked(_worker, raw, request):
    """Say what the worker's own code says of a document.

    The fork spends as much time as a worker may. Memory is left as it is: the process of the tests
    has more of it than a worker may take.
    """
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(source)
            document_worker._allow(request["seconds"], resource.RLIM_INFINITY)
            kind, text = answered(request["reader"], raw, request["limits"])
            with os.fdopen(target, "wb") as pipe:
                pipe.write(kind.encode() + b" " + text)
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source, "rb") as pipe:
        kind, _, answer = pipe.read().partition(b" ")
    _, status = os.waitpid(child, 0)
    return ("limit", SECONDS_LIMIT) if os.WIFSIGNALED(status) else (kind.decode(), answer)
