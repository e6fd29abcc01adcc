"""A hub of models on this machine.

What `huggingface_hub` asks of a hub, and what a bad hub may do.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from local_server import LocalServer, serving

SUFFIX_OF_LARGE = (".safetensors", ".bin")  # files that a hub names by SHA-256


class Request(NamedTuple):
    """What came in, and whether it carried a token."""

    method: str
    path: str
    token: str | None


@dataclass
class Hub:
    """Repositories by name: files by commit, commits by branch.

    cut: files of which only half is sent, at a length that says so. altered: content that is sent
    in the place of a file's own. elsewhere: address to which requests for large files are sent on.
    away: one to which all are.
    """

    address: str = ""
    commits: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    altered: dict[str, bytes] = field(default_factory=dict)
    elsewhere: str | None = None
    away: str | None = None
    requests: list[Request] = field(default_factory=list)

    def put(self, name, files, branch="main"):
        """Commit the files of a folder to a branch; the commit."""
        if isinstance(files, Path):
            files = {
                path.relative_to(files).as_posix(): path.read_bytes()
                for path in files.rglob("*")
                if path.is_file()
            }
        text = repr(sorted((path, content) for path, content in files.items()))
        commit = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.commits.setdefault(name, {})[commit] = dict(files)
        self.branches.setdefault(name, {})[branch] = commit
        return commit

    def paths(self, method="GET"):
        """Paths that were asked for."""
        return [request.path for request in self.requests if request.method == method]


def tag(path, content):
    """Name of a file's content at a hub: SHA-256 of a large one, Git's hash of a small one."""
    if path.endswith(SUFFIX_OF_LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Answers of a hub."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        """Answer without a body."""
        self._answer()

    def do_GET(self):
        """Answer with a body."""
        self._answer()

    def log_message(self, *_):
        """Say nothing."""

    def _answer(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(Request(self.command, path, self.headers.get("Authorization")))
        if self.hub.away is not None:
            self._send(307, b"", {"Location": self.hub.away + self.path})
            return
        known = [
            name
            for name in self.hub.commits
            if path.startswith((f"/api/models/{name}", f"/{name}/resolve/"))
        ]
        if not known:
            self._send(
                404,
                b"{}",
                {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
            )
            return
        name = max(known, key=len)
        commits, branches = self.hub.commits[name], self.hub.branches[name]
        if path.startswith("/api/"):
            _, _, rest = path.removeprefix(f"/api/models/{name}").partition("/")
            kind, _, revision = rest.partition("/")
            commit = branches.get(revision or "main", revision)
            if commit not in commits:
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
                return
            files = commits[commit]
            self._json(_tree(files) if kind == "tree" else _info(name, commit, files))
            return
        commit, _, file = path.removeprefix(f"/{name}/resolve/").partition("/")
        content = commits.get(commit, {}).get(file)
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        self._file(commit, file, content)

    def _file(self, commit, file, content):
        stated = {"X-Repo-Commit": commit, "ETag": f'"{tag(file, content)}"'}
        if self.hub.elsewhere is not None and file.endswith(SUFFIX_OF_LARGE):
            more = {"X-Linked-Etag": stated["ETag"], "X-Linked-Size": str(len(content))}
            self._send(302, b"", stated | more | {"Location": self.hub.elsewhere + self.path})
            return
        sent = self.hub.altered.get(file, content)
        self._send(
            200, sent[: len(sent) // 2] if file in self.hub.cut else sent, stated, length=len(sent)
        )

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status, body, headers, length=None):
        """Answer; a length that is not the body's is given to requests for the length alone."""
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        head = self.command == "HEAD"
        self.send_header(
            "Content-Length", str(length if head and length is not None else len(body))
        )
        self.end_headers()
        if not head:
            self.wfile.write(body)


def _info(name, commit, files):
    return {"id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]}


def _tree(files):
    rows = []
    for path, content in files.items():
        row: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": "0" * 40}
        if path.endswith(SUFFIX_OF_LARGE):
            row["lfs"] = {"oid": tag(path, content), "size": len(content), "pointerSize": 134}
        rows.append(row)
    return rows


@contextmanager
def running(hub):
    """Serve a hub on a free port of this machine."""
    server = LocalServer(type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://{server.host}"
    with serving(server):
        yield hub


def use(hub, cache, monkeypatch):
    """Have this process take the hub for the only one, and a folder for its local cache."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.delenv("RAGLAB_DOWNLOAD", raising=False)
