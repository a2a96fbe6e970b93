"""A hub on this machine that speaks the Hub's HTTP interface, with a second server as its store of large files.

It answers as the Hub does where that matters: moved names, pages of a tree, digests, ranges, refusals with their words. What
goes wrong is told to it by `faults`: functions that see a request before it is answered.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Content = dict[str, bytes]
LARGE = re.compile(r"\.(?:safetensors|bin|parquet|gguf)$")


@dataclass
class Repository:
    """A model or data set with its commits."""

    name: str
    commits: dict[str, Content]
    refs: dict[str, str]
    kind: str = "model"
    gated: bool = False
    private: bool = False
    may_read: tuple[str, ...] = ()
    """Tokens of those who may."""
    moved_from: str = ""


@dataclass
class Seen:
    """A request as it came."""

    server: str
    method: str
    path: str
    headers: dict[str, str]

    @property
    def start(self) -> int:
        """The byte from which on a file is asked for."""
        found = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(found[1]) if found else 0


Fault = Callable[["Answering", Seen], bool]
"""Whether it has answered the request itself."""


@dataclass
class HubServer:
    """What the two servers share."""

    repositories: list[Repository] = field(default_factory=list)
    tokens: tuple[str, ...] = ("hf_GoodToken12345678",)
    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    page: int = 1000
    """Files on one page of a tree."""
    sent: dict[str, bytes] = field(default_factory=dict)
    """What is sent in the place of a file, by its path."""

    def __enter__(self) -> HubServer:
        self.servers = [_Server(self, word) for word in ("hub", "store")]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.servers[0].server_address[1]}"

    @property
    def store(self) -> str:
        return f"http://127.0.0.1:{self.servers[1].server_address[1]}"

    def add(self, name: str, content: Content, **more: Any) -> Repository:
        """A repository with one commit, which `main` and the tag `v1` lead to."""
        commit = hashlib.sha1(name.encode()).hexdigest()
        made = Repository(name, {commit: content}, {"main": commit, "v1": commit}, **more)
        self.repositories.append(made)
        return made

    def asked(self, word: str) -> list[Seen]:
        """The requests for files in whose address `word` stands; large ones as their store saw them."""
        return [
            one
            for one in self.seen
            if word in unquote(one.path) and ("/resolve/" not in one.path or not LARGE.search(urlsplit(one.path).path))
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: HubServer, word: str) -> None:
        self.hub, self.word = hub, word
        super().__init__(("127.0.0.1", 0), Answering)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is what some tests are about."""


class Answering(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *arguments: Any) -> None:
        """Tests look at `seen`."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server.hub
        seen = Seen(self.server.word, self.command, self.path, dict(self.headers.items()))
        hub.seen.append(seen)
        if any(fault(self, seen) for fault in list(hub.faults)):
            return
        if self.server.word == "store":
            self._store()
        else:
            self._hub()

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str, message: str) -> None:
        named = {"X_Error_Code": code} if code else {}
        self.answer(status, json.dumps({"error": message}).encode(), X_Error_Message=message, **named)

    def send_json(self, value: Any, **headers: str) -> None:
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def send_file(self, content: bytes, **headers: str) -> None:
        """A file, or the part of it that is asked for."""
        start = Seen("", "", "", dict(self.headers.items())).start
        if start >= len(content) and start:
            self.answer(416, Content_Range=f"bytes */{len(content)}")
        elif start:
            part = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.answer(206, content[start:], Content_Range=part, **headers)
        else:
            self.answer(200, content, Accept_Ranges="bytes", **headers)

    def _hub(self) -> None:
        path = urlsplit(self.path).path
        found = re.fullmatch(r"/api/(model|dataset)s/(.+?)(?:/(revision|tree|refs)(?:/(.+))?)?", path)
        if found:
            self._api(found[1], found[2], found[3] or "revision", unquote(found[4] or "main"))
            return
        found = re.fullmatch(r"/(datasets/)?(.+?)/resolve/([^/]+)/(.+)", path)
        if found:
            self._resolve("dataset" if found[1] else "model", found[2], unquote(found[3]), unquote(found[4]))
            return
        self.refuse(404, "", "Sorry, we can't find the page you are looking for.")

    def _repository(self, kind: str, name: str) -> Repository | None:
        """The one that is meant, or None where the refusal was sent."""
        hub = self.server.hub
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in hub.tokens:
            self.refuse(401, "", "Invalid credentials in Authorization header")
            return None
        for one in hub.repositories:
            if one.kind == kind and one.moved_from == name:
                self.answer(307, Location=self.path.replace(name, one.name, 1))
                return None
            if one.kind == kind and one.name == name and (not one.private or token in one.may_read):
                return one
        self.refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        return None

    def _api(self, kind: str, name: str, what: str, revision: str) -> None:
        one = self._repository(kind, name)
        if one is None:
            return
        if what == "refs":
            branches = [{"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": sha} for ref, sha in one.refs.items()]
            self.send_json({"branches": branches, "tags": [], "converts": []})
            return
        commit = one.refs.get(revision, revision)
        if commit not in one.commits:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif what == "tree":
            self._tree(one, commit)
        else:
            siblings = [{"rfilename": path} for path in one.commits[commit]]
            gated = "manual" if one.gated else False
            self.send_json(
                {
                    "_id": "0",
                    "id": one.name,
                    "sha": commit,
                    "private": one.private,
                    "gated": gated,
                    "siblings": siblings,
                    "tags": [],
                }
            )

    def _tree(self, one: Repository, commit: str) -> None:
        hub = self.server.hub
        entries = [_folder(path) for path in one.commits[commit] if "/" in path]
        entries += [_entry(path, content) for path, content in one.commits[commit].items()]
        start = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        more = start + hub.page
        address = f"{hub.endpoint}{urlsplit(self.path).path}?recursive=true&cursor={more}"
        link = {"Link": f'<{address}>; rel="next"'} if more < len(entries) else {}
        self.send_json(entries[start:more], **link)

    def _resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        one = self._repository(kind, name)
        if one is None:
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if one.gated and token not in one.may_read:
            told = "Please log in." if not token else "Your request to access it awaits a review."
            self.refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted. {told}")
            return
        commit = one.refs.get(revision, revision)
        content = one.commits.get(commit, {}).get(path)
        if content is None:
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        if LARGE.search(path):
            sha = hashlib.sha256(content).hexdigest()
            linked = {"X_Linked_Etag": f'"{sha}"', "X_Linked_Size": str(len(content))}
            self.answer(302, X_Repo_Commit=commit, Location=f"{self.server.hub.store}/{sha}/{path}?signed", **linked)
            return
        sent = self.server.hub.sent.get(path, content)
        self.send_file(sent, X_Repo_Commit=commit, ETag=f'"{git_sha1(content)}"')

    def _store(self) -> None:
        """Large files by their digest; whoever comes with a token has shown it to a stranger."""
        hub = self.server.hub
        _, sha, path = unquote(urlsplit(self.path).path).split("/", 2)
        contents = (c for one in hub.repositories for commit in one.commits.values() for c in commit.values())
        content = next(c for c in contents if hashlib.sha256(c).hexdigest() == sha)
        self.send_file(hub.sent.get(path, content), ETag=f'"{sha}"')


def git_sha1(content: bytes) -> str:
    """The name that git gives to a file of that content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _folder(path: str) -> dict[str, Any]:
    return {"type": "directory", "oid": "0" * 40, "size": 0, "path": path.rpartition("/")[0]}


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_sha1(content)}
    if LARGE.search(path):
        sha = hashlib.sha256(content).hexdigest()
        entry |= {"oid": git_sha1(sha.encode()), "lfs": {"oid": sha, "size": len(content), "pointerSize": 134}}
    return entry
