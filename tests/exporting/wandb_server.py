"""As much of the service of Weights & Biases as `wandb sync` talks to, on this machine: it keeps runs by their ids."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Run:
    """One run as the service holds it: what is sent from an offset replaces what lay there."""

    project: str = ""
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    files: dict[str, list[Any]] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.files.get("wandb-history.jsonl", [])

    @property
    def summary(self) -> dict[str, Any]:
        return dict(self.files["wandb-summary.json"][-1])


@dataclass
class Service:
    """What was sent so far."""

    url: str
    runs: dict[str, Run] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """All that came, as text."""

    def upsert(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.setdefault(asked["name"], Run())
        run.project, run.name = asked["project"], asked["displayName"] or run.name
        config = json.loads(asked["config"] or "{}")
        run.config = {name: one["value"] for name, one in config.items() if name != "_wandb"}
        project = {"id": "p", "name": asked["project"], "entity": {"id": "e", "name": "us"}}
        bucket = {"id": "b", "name": asked["name"], "displayName": run.name, "config": "{}", "project": project}
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def stream(self, run_id: str, sent: dict[str, Any]) -> None:
        run = self.runs[run_id]
        for name, part in (sent.get("files") or {}).items():
            run.files.setdefault(name, [])[part["offset"] :] = map(json.loads, part["content"])
        run.exit_code = sent.get("exitcode", run.exit_code)

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        self.said.append(body.decode())
        asked = json.loads(body or b"{}")
        if path.endswith("/file_stream"):
            self.stream(path.split("/")[-2], asked)
            return {}
        query = asked.get("query", "")
        if "upsertBucket" in query:
            return {"data": self.upsert(asked["variables"])}
        if "createRunFiles" in query:
            return {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []}}}
        return {"data": {}}


@contextmanager
def service() -> Iterator[Service]:
    """The service, at an address of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer = json.dumps(here.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Service(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
