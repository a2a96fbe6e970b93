"""Sources besides the Hub: a folder, an entry of the Hub's cache, ModelScope."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from fetched_models import UNNEEDED, files_in, model, weights
from hub_server import LARGE, Content, HubServer, git_sha1

from hpc_llm.cli import run
from hpc_llm.records.models import write_manifest


def written(folder: Path, content: Content) -> Path:
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def cached(root: Path, name: str, content: Content) -> Path:
    """An entry of the Hub's cache: blobs by their digest, and links to them."""
    entry = root / f"models--{name.replace('/', '--')}"
    snapshot = entry / "snapshots" / ("c" * 40)
    for path, data in content.items():
        digest = hashlib.sha256(data).hexdigest() if LARGE.search(path) else git_sha1(data)
        written(entry / "blobs", {digest: data})
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(entry / "blobs" / digest, link.parent))
    return entry


def test_a_folder_is_copied_without_what_no_run_needs(fetch: Any) -> None:
    source = written(Path("theirs"), model() | UNNEEDED)
    done = fetch("org/m", "--from", source, "--to", "m")
    assert done.code == 0 and files_in(Path("m")) == model()
    assert fetch("org/m", "--from", source.absolute(), "--to", "m").out.startswith("org/m was already in ")


def test_a_folder_that_was_fetched_is_held_to_what_was_listed(hub: HubServer, fetch: Any) -> None:
    commit = hub.add("org/m", model()).refs["main"]
    assert fetch("org/m", "--to", "first").code == 0
    assert fetch("org/m", "--from", "first", "--to", "second", "--json").code == 0
    assert files_in(Path("second")) == model()
    assert json.loads(Path("second/.hpc-llm/fetch.json").read_text())["commit"] == commit
    Path("first/tokenizer.json").write_bytes(b'{"a": 2}')
    done = fetch("org/m", "--from", "first", "--to", "third")
    assert (
        done.code == 1 and "tokenizer.json came 2 times as something else than is listed: its git-sha1" in done.sentence
    )


@pytest.mark.parametrize("path", ["cache", "cache/models--org--m", f"cache/models--org--m/snapshots/{'c' * 40}"])
def test_an_entry_of_the_hubs_cache_is_found_and_held_to_its_names(path: str, fetch: Any) -> None:
    entry = cached(Path("cache"), "org/m", model())
    assert fetch("org/m", "--from", path, "--to", "m").code == 0
    assert files_in(Path("m")) == model()
    assert not any(one.is_symlink() for one in Path("m").rglob("*"))
    large = next(one for one in (entry / "blobs").iterdir() if len(one.name) == 64)
    large.write_bytes(weights(5))
    done = fetch("org/m", "--from", path, "--to", "n")
    assert done.code == 1 and "its sha256 is not" in done.sentence and not files_in(Path("n"))


def test_a_folder_of_models_holds_them_by_name(fetch: Any) -> None:
    written(Path("site/Llama-2-7b-hf"), model(1))
    assert fetch("llama2-7b", "--from", "site", "--to", "m").code == 0
    assert files_in(Path("m")) == model(1)
    done = fetch("org/other", "--from", "site", "--to", "n")
    assert (
        done.code == 2 and "it is no model (it holds no config.json), and holds none called org/other." in done.sentence
    )


def test_a_data_set_is_copied_from_a_folder(fetch: Any) -> None:
    content = {"train.jsonl": b"{}\n", "sub/test.jsonl": b"{}\n"}
    written(Path("theirs"), content | {".hidden": b"x"})
    assert fetch("datasets/org/rows", "--from", "theirs", "--to", "d").code == 0
    assert files_in(Path("d")) == content


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda at: written(at, {"config.json": b"{}", "model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}), "a pointer of Git LFS: run `git lfs pull`"),
        (lambda at: written(at, {k: v for k, v in model().items() if "00002-of" not in k}), "is not whole where it lies"),
        (lambda at: written(at, {"config.json": b"{}"}), "holds no weights that can be trained"),
        (lambda at: written(at, {**model(1), ".hpc-llm/fetch.json": b'{"complete": false, "asked": "org/m"}'}), "is not whole, a fetch into it is under way or was cut off"),
        (lambda at: (written(at, model(1)) / "model.safetensors").symlink_to("nowhere"), "cannot be read: no such file or directory. The folder is not whole."),
        (lambda at: at, "there is no such folder. Valid: hub, modelscope, or the path of a folder."),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_whole_is_not_copied(make: Any, said: str, fetch: Any) -> None:
    make(Path("theirs"))
    done = fetch("org/m", "--from", "theirs", "--to", "m")
    assert done.code == 2 and said in done.sentence and not Path("m").exists()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("model.safetensors", lambda data: data[:500], "are damaged: "),
        ("model.safetensors", lambda data: data[:200_000], "are damaged: "),
        ("model.safetensors", lambda data: b"", "are an empty file"),
        ("model.safetensors", lambda data: (1 << 60).to_bytes(8, "little") + data[8:], "are damaged: "),
        ("model-00002-of-00002.safetensors", lambda data: data[:200_000], "are damaged: "),
        ("adapter_model.safetensors", lambda data: data[:200_000], "are damaged: "),
        ("config.json", lambda data: data[:40], "config.json is not JSON"),
    ],
)
def test_a_model_that_a_run_refuses_is_not_called_whole(
    name: str, change: Any, said: str, fetch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `submit --model` says of the same folder."""
    content = model(2 if name.startswith("model-") else 1)
    if name == "model.safetensors":
        content = {key: data for key, data in content.items() if "-of-" not in key and "index" not in key}
        content[name] = weights(1)
    if name.startswith("adapter"):
        content = {"adapter_config.json": b"{}", name: weights(1)}
    source = written(Path("theirs"), {**content, name: change(content[name])})
    done = fetch("org/m", "--from", source, "--to", "m")
    assert done.code == 2 and said in done.sentence and not Path("m").exists()
    if "config.json" in content:
        run(["render", "--cluster", "local", "--method", "z2", "--model", str(source.absolute())])
        assert said in capsys.readouterr().err
    written(source, {name: content[name]})
    assert fetch("org/m", "--from", source, "--to", "m").code == 0


def test_a_kept_model_is_copied_as_it_was_written_or_not_at_all(fetch: Any) -> None:
    source = written(Path("theirs"), model())
    write_manifest(source)
    assert fetch("org/m", "--from", source, "--to", "m").code == 0
    path = source / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    done = fetch("org/m", "--from", source, "--to", "n")
    assert done.code == 2 and f"{path.name} does not hold what was written" in done.sentence and not Path("n").exists()


def test_a_folder_is_not_copied_into_itself(fetch: Any) -> None:
    written(Path("theirs"), model(1))
    for to in ("theirs/m", "."):
        done = fetch("org/m", "--from", "theirs", "--to", to)
        assert done.code == 2 and (
            "lie one in the other" in done.sentence or "holds files that no fetch put there" in done.sentence
        )
    assert "Leave it out with --from" in fetch("org/m", "--from", "theirs", "--to", "x", "--revision", "v1").sentence
    assert "given by HF_ENDPOINT=http://x" in fetch("org/m", "--from", "http://x", "--to", "x").sentence


class _ModelScope(BaseHTTPRequestHandler):
    """Two addresses of ModelScope's interface, as its own programs ask them."""

    content: ClassVar[Content] = {}

    def log_message(self, *arguments: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/api/v1/models/Qwen/Qwen2-7B/repo/files" and asked["Revision"] == "master":
            self._send(200, json.dumps({"Code": 200, "Success": True, "Data": {"Files": list(self._files())}}).encode())
        elif url.path == "/api/v1/models/Qwen/Qwen2-7B/repo" and asked["FilePath"] in self.content:
            self._send(200, self.content[asked["FilePath"]])
        else:
            self._send(404, json.dumps({"Code": 10010205001, "Message": "record not found", "Success": False}).encode())

    def _files(self) -> Iterator[dict[str, Any]]:
        yield {"Path": "original", "Name": "original", "Type": "tree", "Size": 0, "Sha256": ""}
        for path, data in self.content.items():
            yield {"Path": path, "Type": "blob", "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def modelscope(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ModelScope)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(_ModelScope, "content", model() | UNNEEDED)
    monkeypatch.setenv("MODELSCOPE_DOMAIN", f"http://127.0.0.1:{server.server_address[1]}")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("modelscope")
def test_modelscope_brings_the_same(fetch: Any) -> None:
    assert fetch("qwen2-7b", "--from", "modelscope", "--to", "m").code == 0
    assert files_in(Path("m")) == model()
    done = fetch("llama2-7b", "--from", "modelscope", "--to", "n")
    assert (
        done.code == 2
        and "has no model meta-llama/Llama-2-7b-hf of revision master (record not found)" in done.sentence
    )
    assert "brings models only, gsm8k is a data set" in fetch("gsm8k", "--from", "modelscope", "--to", "n").sentence
    assert "of revision v9" in fetch("qwen2-7b", "--from", "modelscope", "--revision", "v9", "--to", "n").sentence


def test_a_link_out_of_a_folder_to_what_is_private_is_not_copied(fetch: Any) -> None:
    Path("key").write_text("secret")
    Path("shared.jsonl").write_text("1")
    Path("shared.jsonl").chmod(0o644)
    Path("rows").mkdir()
    Path("rows/a.jsonl").symlink_to("../shared.jsonl")
    assert fetch("datasets/org/rows", "--from", "rows", "--to", "d").code == 0
    Path("rows/b.jsonl").symlink_to("../key")
    for mode in (0o600, 0o640):
        Path("key").chmod(mode)
        done = fetch("datasets/org/rows", "--from", "rows", "--to", "e")
        assert done.code == 2 and "b.jsonl is a link that leads out of" in done.sentence and not Path("e").exists()


def test_a_folder_that_says_of_itself_what_no_hub_does_is_called_as_it_was_asked_for(fetch: Any) -> None:
    Path("rows/.hpc-llm").mkdir(parents=True)
    Path("rows/a.jsonl").write_text("1")
    record = {"complete": True, "name": "../../x\nhpc-llm: y", "commit": "z\ny", "files": []}
    Path("rows/.hpc-llm/fetch.json").write_text(json.dumps(record))
    done = fetch("datasets/org/rows", "--from", "rows", "--to", "d")
    assert done.code == 0 and done.out.startswith("org/rows ") and "hpc-llm: y" not in done.out + done.err
