"""Servers of the tests on this machine: a free port, a thread of their own, gone with the block."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


class LocalServer(ThreadingHTTPServer):
    """A server at 127.0.0.1; released: set when it ends, for handlers that wait."""

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.released = threading.Event()
        self.host = f"127.0.0.1:{self.server_port}"


@contextmanager
def serving(server):
    """Serve until the block ends."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
