"""A real browser on a real JupyterLab, for the browser tests and for `bench_cockpit.py`.

Chromium is the machine's own (Debian's `chromium`): Playwright's download is not used. The server
binds to 127.0.0.1, keeps its settings in a folder of its own and ends with the block.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
SECONDS = 90


def chromium_path() -> str:
    """Path of the machine's Chromium; empty where there is none."""
    return next(
        (path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), ""
    )


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        try:
            yield opened
        finally:
            opened.close()


def only_this_machine(page: Page) -> list[str]:
    """Block every request of a page that would leave the machine.

    The list fills with their addresses.
    """
    addresses: list[str] = []

    def route(page_route: Route) -> None:
        address = page_route.request.url
        if address.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file:")):
            page_route.continue_()
        else:
            addresses.append(address)
            page_route.abort()

    page.route("**/*", route)
    return addresses


@contextmanager
def jupyter_lab(folder: Path, settings: Path) -> Iterator[str]:
    """Address of a JupyterLab on a folder, `{}` for the path in it.

    Args:
      settings: an empty folder for what it keeps beside.

    Raises:
      RuntimeError: it does not answer.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "run",
        "IPYTHONDIR": "i",
    }
    env = os.environ | {name: str(settings / place) for name, place in names.items()}
    overrides = settings / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    overrides.mkdir(parents=True, exist_ok=True)
    (overrides / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--allow-root",
    ]
    command += ["--IdentityProvider.token=local", f"--ServerApp.root_dir={folder}"]
    address = f"http://127.0.0.1:{port}"
    with (settings / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        wait_for_server(f"{address}/api?token=local", server)
        yield f"{address}/lab/tree/{{}}?token=local"
    finally:
        server.terminate()
        server.wait(SECONDS)


def wait_for_server(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server that was started answers.

    Raises:
      RuntimeError: it ended, or does not answer.
    """
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends and server.poll() is None:
        try:
            with urlopen(address, timeout=5):  # noqa: S310 - of this machine
                return
        except (URLError, OSError):
            time.sleep(0.2)
    msg = (
        f"a server must answer within {SECONDS} s, got none at {address}; JupyterLab's log stands "
        "in its settings."
    )
    raise RuntimeError(msg)


def run_all(page: Page, address: str) -> None:
    """Open a notebook and start all its cells."""
    page.goto(address)
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=SECONDS * 1e3)
    # before, JupyterLab would ask which kernel to take
    page.wait_for_selector("text=| Idle", timeout=SECONDS * 1e3)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def show_pane(page: Page, name: str) -> None:
    """Show the numbers or the cases of a cockpit that has room for one of the two."""
    button = page.locator(".raglab-cockpit .panes button", has_text=name).first
    if button.is_visible():
        button.click()
