"""What goes wrong on the way: killed, cut off, changed, told to wait, refused, no room, two at once. All against a real server."""

from __future__ import annotations

import contextlib
import email.utils
import json
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fetched_models import files_in, model, weights
from hub_server import Answering, Fault, HubServer, Seen
from rights import mounted

from hpc_llm.errors import RequestError
from hpc_llm.planning.recipe import choose_weights

ENTRY = Path(sys.executable).with_name("hpc-llm")
SHARD = "model-00002-of-00002.safetensors"
SINGLE = "model-00001-of-00001.safetensors"
TOKEN = "hf_GoodToken12345678"


def stalls(path: str, after: int, times: int = 1) -> tuple[Fault, threading.Event]:
    """The store sends so many bytes of a file and then nothing more, until the event is set; then the connection ends."""
    go_on, left = threading.Event(), [times]

    def fault(answering: Answering, seen: Seen) -> bool:
        if seen.server != "store" or path not in seen.path or not left[0]:
            return False
        left[0] -= 1
        content = next(c[path] for one in answering.server.hub.repositories for c in one.commits.values() if path in c)
        part = content[seen.start :]
        answering.send_response(206 if seen.start else 200)
        answering.send_header("Content-Length", str(len(part)))
        if seen.start:
            answering.send_header("Content-Range", f"bytes {seen.start}-{len(content) - 1}/{len(content)}")
        answering.end_headers()
        answering.wfile.write(part[:after])
        answering.wfile.flush()
        go_on.wait(60)
        answering.close_connection = True
        return True

    return fault, go_on


def answers(status: int, word: str, times: int, **headers: str) -> Fault:
    """The first requests in whose address `word` stands are answered so."""
    left = [times]

    def fault(answering: Answering, seen: Seen) -> bool:
        if word not in seen.path or not left[0]:
            return False
        left[0] -= 1
        answering.answer(status, b"", **headers)
        return True

    return fault


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([ENTRY, "fetch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def sizes_in(folder: Path) -> list[int]:
    """Bytes of the files there, in order; one that gets another name meanwhile is left out."""
    found = []
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.stat().st_size)
    return sorted(found)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def part_of_size(folder: Path, size: int) -> bool:
    """Whether a file that is being fetched has come so far."""
    sizes = []
    for path in (folder / ".hpc-llm/parts").glob("*.part"):
        with contextlib.suppress(FileNotFoundError):  # it has become whole meanwhile
            sizes.append(path.stat().st_size)
    return size in sizes


# --- ended in the middle --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_fetch_that_was_ended_goes_on_where_it_was(how: signal.Signals, hub: HubServer, fetch: Any) -> None:
    content = model(2, 3_000_000)
    hub.add("org/m", content)
    fault, go_on = stalls(SHARD, 2_000_000)
    hub.faults.append(fault)
    process = started("org/m", "--to", "m")
    wait_for(lambda: part_of_size(Path("m"), 2_000_000))
    process.send_signal(how)
    _, err = process.communicate(timeout=300)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert ("What was fetched is kept: the same command goes on" in err) == (how == signal.SIGINT)
    assert files_in(Path("m")) == {}, "nothing is at its place before all is whole"
    folder = str(Path("m").absolute())
    with pytest.raises(RequestError, match=f"{folder} is not whole, .*: `hpc-llm fetch org/m --to {folder}` goes on"):
        choose_weights(folder, None)
    go_on.set()
    hub.seen.clear()
    done = fetch("org/m", "--to", "m", "--json")
    assert done.code == 0 and files_in(Path("m")) == content
    (asked,) = [one for one in hub.seen if one.server == "store" and SHARD in one.path]
    assert asked.start == 2_000_000
    assert json.loads(done.out)["received_bytes"] <= 1_100_000 + 3_000_000  # the other shard may not have been begun


def test_what_was_whole_when_it_was_killed_is_not_fetched_again(hub: HubServer, fetch: Any) -> None:
    content = model(3)
    hub.add("org/m", content)
    last = "model-00003-of-00003.safetensors"
    fault, go_on = stalls(last, 100_000)
    hub.faults.append(fault)
    process = started("org/m", "--to", "m")
    sizes = sorted(100_000 if name == last else len(bytes_) for name, bytes_ in content.items())
    wait_for(lambda: sizes_in(Path("m/.hpc-llm/parts")) == sizes)
    process.kill()
    process.communicate()
    go_on.set()
    done = fetch("org/m", "--to", "m", "--json")
    assert json.loads(done.out)["received_bytes"] == len(content[last]) - 100_000
    assert files_in(Path("m")) == content


def test_a_part_that_was_damaged_meanwhile_is_fetched_again_whole(hub: HubServer, fetch: Any) -> None:
    content = model(1)
    hub.add("org/m", content)
    fault, go_on = stalls(SINGLE, 100_000)
    hub.faults.append(fault)
    process = started("org/m", "--to", "m")
    wait_for(lambda: part_of_size(Path("m"), 100_000))
    process.kill()
    process.communicate()
    go_on.set()
    (part,) = [path for path in Path("m/.hpc-llm/parts").glob("*.part") if path.stat().st_size == 100_000]
    part.write_bytes(b"\0" * 100_000)
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == content


def test_another_commit_meanwhile_is_fetched_as_it_is(hub: HubServer, fetch: Any) -> None:
    one = hub.add("org/m", model(2))
    fault, go_on = stalls(SHARD, 100_000)
    hub.faults.append(fault)
    process = started("org/m", "--to", "m")
    wait_for(lambda: part_of_size(Path("m"), 100_000))
    process.kill()
    process.communicate()
    go_on.set()
    new = {**model(2), SHARD: weights(50), "config.json": b"{}"}
    one.commits["e" * 40] = new
    one.refs["main"] = "e" * 40
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == new
    assert not Path("m/.hpc-llm/parts").exists()


def test_a_kill_between_the_moves_is_made_good(hub: HubServer, fetch: Any) -> None:
    """As after a kill while files went to their places: some are there, the record says that not all are."""
    content = model(2)
    hub.add("org/m", content)
    assert fetch("org/m", "--to", "m").code == 0
    record = Path("m/.hpc-llm/fetch.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "complete": False}))
    Path("m/config.json").unlink()
    with pytest.raises(RequestError, match="is not whole"):
        choose_weights(str(Path("m").absolute()), None)
    done = fetch("org/m", "--to", "m", "--json")
    assert json.loads(done.out)["received_bytes"] == len(content["config.json"])
    assert files_in(Path("m")) == content


def test_connections_that_break_are_taken_up_where_they_broke(hub: HubServer, fetch: Any) -> None:
    content = model(1)
    hub.add("org/m", content)
    fault, go_on = stalls(SINGLE, 100_000, times=2)
    go_on.set()  # it does not wait: the connection ends too early, twice
    hub.faults.append(fault)
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == content
    assert [one.start for one in hub.seen if one.server == "store"] == [0, 100_000, 200_000]


def test_silence_counts_as_a_broken_connection(hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "0.5")
    hub.add("org/m", model(1))
    fault, go_on = stalls(SINGLE, 100_000)
    hub.faults.append(fault)
    done = fetch("org/m", "--to", "m")
    go_on.set()
    assert done.code == 0 and "the connection broke (no answer in time); again in 1 s" in done.err
    assert files_in(Path("m")) == model(1)


def test_a_server_without_parts_of_files_sends_them_whole(hub: HubServer, fetch: Any) -> None:
    content = model(1)
    hub.add("org/m", content)
    fault, go_on = stalls(SINGLE, 100_000)
    go_on.set()

    def whole(answering: Answering, seen: Seen) -> bool:
        if seen.server == "store" and seen.start:
            del answering.headers["Range"]
        return False

    hub.faults += [whole, fault]
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == content


def test_a_server_that_is_not_there_is_one_sentence(
    fetch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a network nothing comes back by waiting, and nothing is said to be kept where nothing is."""
    monkeypatch.setattr("hpc_llm.fetching.patience._LONGEST_PAUSE_S", 0.01)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and not Path("m").exists()
    last = done.err.splitlines()[-1]
    assert last == (
        "hpc-llm: no way through to 127.0.0.1:9, 3 times in a row: 127.0.0.1:9 cannot be reached (Connection refused). "
        "Nothing was fetched. Fetch where there is a way out to it."
    )


def test_without_a_network_the_reason_comes_within_seconds(fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that drops packets (here a listener whose queue is full), and a name that nobody resolves."""
    monkeypatch.setattr("hpc_llm.fetching.patience._LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr("hpc_llm.fetching.web._CONNECT_S", 0.2)

    def said() -> str:
        began, done = time.monotonic(), fetch("org/m", "--to", "m")
        assert "3 times in a row" in done.err and "Nothing was fetched." in done.err
        assert time.monotonic() - began < 20
        return str(done.err)

    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{full.getsockname()[1]}")
        assert "cannot be reached (no answer in time)" in said()

    def nobody(*asked: Any, **how: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr("socket.getaddrinfo", nobody)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    assert "hub.invalid cannot be reached (Temporary failure in name resolution)" in said()


def test_what_an_earlier_try_left_is_said_to_be_kept(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpc_llm.fetching.patience._LONGEST_PAUSE_S", 0.01)
    hub.add("org/m", model(2))
    hub.faults.append(answers(500, SHARD, 100))
    assert fetch("org/m", "--to", "m").code == 1
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "What was fetched is kept: the same command goes on with it." in fetch("org/m", "--to", "m").err


# --- something else than is listed ----------------------------------------------------------------------------------


def test_a_file_that_is_another_is_fetched_once_more(hub: HubServer, fetch: Any) -> None:
    content = model(2)
    hub.add("org/m", content)
    hub.sent[SHARD] = weights(99)

    def right_from_then_on(answering: Answering, seen: Seen) -> bool:
        if len([one for one in hub.seen if one.server == "store" and SHARD in one.path]) > 1:
            hub.sent.clear()
        return False

    hub.faults.append(right_from_then_on)
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == content


@pytest.mark.parametrize("wrong", [weights(99), weights(1)[:-1] + b"?", weights(1).replace(b"1", b"2")])
@pytest.mark.parametrize("path", [SHARD, "tokenizer.json"])
def test_a_file_that_stays_another_is_refused_and_nothing_of_it_kept(
    wrong: bytes, path: str, hub: HubServer, fetch: Any
) -> None:
    content = model(2)
    hub.add("org/m", content)
    hub.sent[path] = wrong
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and f"{path} came 2 times as something else than is listed: its " in done.sentence
    assert files_in(Path("m")) == {}
    with pytest.raises(RequestError, match="is not whole"):
        choose_weights(str(Path("m").absolute()), None)
    hub.sent.clear()
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == content


def test_an_index_that_is_another_decides_nothing(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(2))
    hub.sent["model.safetensors.index.json"] = model(1)["model.safetensors.index.json"]
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and "model.safetensors.index.json of org/m is not what 127.0.0.1" in done.sentence
    assert not Path("m").exists()


@pytest.mark.parametrize("path", ["../evil.json", "/etc/evil", "a/../../b", ".hpc-llm/fetch.json", ".git/hooks/x", "a\\b", "a\nb", ""])  # fmt: skip
def test_a_list_with_paths_that_lead_elsewhere_is_refused(path: str, hub: HubServer, fetch: Any) -> None:
    hub.add("org/rows", {"a.jsonl": b"1", path: b"evil"}, kind="dataset")
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and "lists a file by a name that is none" in done.sentence
    assert not Path("d").exists()


@pytest.mark.parametrize("change", [{"size": "1"}, {"size": -1}, {"oid": None}, {"oid": "x" * 40}, {"size": True}])
def test_a_file_that_cannot_be_checked_is_not_fetched(change: dict[str, Any], hub: HubServer, fetch: Any) -> None:
    hub.add("org/rows", {"a.jsonl": b"1"}, kind="dataset")

    def fault(answering: Answering, seen: Seen) -> bool:
        if "/tree/" not in seen.path:
            return False
        answering.send_json([{"type": "file", "path": "a.jsonl", "size": 1, "oid": "0" * 40} | change])
        return True

    hub.faults.append(fault)
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and "lists a.jsonl without a size and a digest" in done.sentence


@pytest.mark.parametrize("answer", [[], {}, {"sha": "x", "id": "a"}, "text", None])
def test_a_server_that_is_no_hub_is_one_sentence(answer: Any, hub: HubServer, fetch: Any) -> None:
    def fault(answering: Answering, seen: Seen) -> bool:
        answering.send_json(answer)
        return True

    hub.faults.append(fault)
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and "does not answer as the Hub does: is HF_ENDPOINT right?" in done.sentence


@pytest.mark.parametrize(
    "endpoint", ["huggingface.co", "ftp://h", "https://", "http://me:pw@h", "http://h:x", "http://h?a=1"]
)
def test_an_endpoint_that_is_none_is_refused_unshown(
    endpoint: str, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    done = fetch("org/m", "--to", "m")
    assert (done.code, done.sentence[:45]) == (2, "HF_ENDPOINT is no address of a server without")
    assert "pw" not in done.err


# --- told to wait ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["/revision/", "/tree/", "resolve/", "?signed"])
def test_too_many_requests_wait_as_they_are_told(word: str, hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    hub.faults.append(answers(429, word, 2, Retry_After="1"))
    before = time.monotonic()
    done = fetch("org/m", "--to", "m")
    assert done.code == 0 and files_in(Path("m")) == model(1)
    assert time.monotonic() - before >= 2
    assert f"127.0.0.1:{hub.servers[0].server_address[1]} asks to wait 1 s" in done.err


def test_a_wait_may_be_told_as_a_date_or_by_the_limit(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    soon = email.utils.formatdate(time.time() + 4, usegmt=True)
    hub.faults.append(answers(503, "/tree/", 1, Retry_After=soon))
    hub.faults.append(answers(429, "/revision/", 1, RateLimit='"api";r=0;t=1'))
    before = time.monotonic()
    assert fetch("org/m", "--to", "m").code == 0
    assert time.monotonic() - before >= 3


def test_a_wait_of_hours_is_the_users_to_decide(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    hub.faults.append(answers(429, "/revision/", 1, Retry_After="7200"))
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and "asks to wait 7200 s before it sends more" in done.sentence


def test_a_server_in_trouble_is_asked_again(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    hub.faults += [answers(500, "/revision/", 1), answers(502, "?signed", 1), answers(504, "/tree/", 1)]
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(Path("m")) == model(1)


# --- refused --------------------------------------------------------------------------------------------------------


def test_who_must_accept_what_is_said_before_anything_is_made(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("meta-llama/Llama-2-7b-hf", model(1), gated=True, may_read=(TOKEN,))
    done = fetch("llama2-7b", "--to", "m")
    page = f"{hub.endpoint}/meta-llama/Llama-2-7b-hf"
    assert (done.code, done.sentence) == (
        2,
        f"the model meta-llama/Llama-2-7b-hf is given only to those who accepted its conditions: log in at {page} and accept "
        f"them there, make a token that may read at {hub.endpoint}/settings/tokens, and give it as HF_TOKEN in the environment, "
        "or as the line HF_TOKEN=VALUE of a file of mode 600 by --env-file FILE.",
    )
    hub.tokens += ("hf_Somebody987654321",)
    monkeypatch.setenv("HF_TOKEN", "hf_Somebody987654321")
    done = fetch("llama2-7b", "--to", "m")
    assert done.code == 2 and "the owner of the token of HF_TOKEN is none of them" in done.sentence
    assert (
        "(Access to model meta-llama/Llama-2-7b-hf is restricted. Your request to access it awaits a review)"
        in done.sentence
    )
    assert not Path("m").exists()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch("llama2-7b", "--to", "m").code == 0


def test_what_is_not_there_or_not_for_us_says_so(hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/mine", model(1), private=True, may_read=(TOKEN,))
    who = hub.endpoint.removeprefix("http://")
    done = fetch("org/mine", "--to", "m")
    assert done.code == 2
    assert done.sentence.startswith(
        f"{who} has no model org/mine. Nor is there a data set of that name. If it is private, make a token"
    )
    assert (
        f"{who} has no model meta-lama/Llama-2-7b: did you mean meta-llama/Llama-2-7b-hf?"
        in fetch("meta-lama/Llama-2-7b", "--to", "m").sentence
    )
    assert "has no model llama2-7: did you mean llama2-7b?" in fetch("llama2-7", "--to", "m").sentence
    assert f"{who} has no data set org/mine. If it" in fetch("datasets/org/mine", "--to", "m").sentence
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch("org/mine", "--to", "m").code == 0
    assert "may not see it" in fetch("org/other", "--to", "n").sentence


def test_a_wrong_token_is_told_from_a_missing_right(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", model(1))
    monkeypatch.setenv("HF_TOKEN", "hf_OldToken123456789")
    done = fetch("org/m", "--to", "m")
    assert (
        done.code == 2
        and "does not take the token of HF_TOKEN: it is mistyped, expired or withdrawn. Make one at" in done.sentence
    )
    hub.faults.append(answers(403, "/revision/", 99, X_Error_Message="no rights here\x1b[31m"))
    assert "does not give the model org/m (no rights here). See at" in fetch("org/m", "--to", "m").sentence
    hub.faults[:] = [answers(451, "/revision/", 99)]
    assert fetch("org/m", "--to", "m").sentence.endswith("refuses the model org/m: 451.")


def test_offline_is_offline(hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set, so nothing may be fetched" in fetch("org/m", "--to", "m").sentence
    assert hub.seen == []


# --- tokens ---------------------------------------------------------------------------------------------------------


def secret_file(mode: int, text: str = f"HF_TOKEN={TOKEN}\n") -> str:
    path = Path("secrets")
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_token_goes_to_its_server_alone_and_stays_nowhere(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", model(1), gated=True, may_read=(TOKEN,), moved_from="old")
    done = fetch("old", "--to", "m", "--env-file", secret_file(0o600))
    assert done.code == 0
    assert all(one.headers.get("Authorization") == f"Bearer {TOKEN}" for one in hub.seen if one.server == "hub")
    stored = [one for one in hub.seen if one.server == "store"]
    assert stored and not any("Authorization" in one.headers for one in stored)
    assert TOKEN not in done.out + done.err
    assert not any(TOKEN.encode() in path.read_bytes() for path in Path("m").rglob("*") if path.is_file())


def test_the_token_that_the_hubs_own_program_keeps_is_used(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", model(1), gated=True, may_read=(TOKEN,))
    kept = Path("hf/token")
    kept.parent.mkdir()
    kept.write_text(f"{TOKEN}\n")
    kept.chmod(0o600)
    monkeypatch.setenv("HF_HOME", str(kept.parent))
    assert fetch("org/m", "--to", "m").code == 0
    kept.chmod(0o644)
    assert "others may open hf/token, which holds a token: chmod 600" in fetch("org/m", "--to", "n").err


@pytest.mark.parametrize(
    ("mode", "text", "said"),
    [
        (0o644, f"HF_TOKEN={TOKEN}\n", "others may open --env-file secrets. Run chmod 600 secrets"),
        (0o600, f"HF_TOKEN='{TOKEN} x'\n", "HF_TOKEN in secrets holds a blank or a character that no token has"),
        (0o600, f"HF_TOKEN={TOKEN} x\n", "--env-file secrets is not read: line 1"),
    ],
)
def test_a_token_that_others_may_read_or_none_can_be_is_refused_unshown(
    mode: int, text: str, said: str, hub: HubServer, fetch: Any
) -> None:
    done = fetch("org/m", "--to", "m", "--env-file", secret_file(mode, text))
    assert done.code == 2 and said in done.sentence and TOKEN not in done.err and hub.seen == []
    assert "there is no such file" in fetch("org/m", "--to", "m", "--env-file", "nowhere").sentence


@pytest.mark.parametrize("where", ["ftp://127.0.0.1/x", "file:///etc/passwd"])
def test_a_way_that_is_not_http_is_not_gone(where: str, hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    hub.faults.append(answers(302, "/resolve/", 99, Location=where))
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and not files_in(Path("m"))


def test_a_further_page_on_another_server_is_not_asked_with_the_token(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.add("org/m", model(1))

    def fault(answering: Answering, seen: Seen) -> bool:
        if "/tree/" in seen.path:
            answering.send_json([], Link=f'<{hub.store}/steal>; rel="next"')
        return "/tree/" in seen.path

    hub.faults.append(fault)
    done = fetch("org/m", "--to", "m")
    assert done.code != 0 and [one for one in hub.seen if "/steal" in one.path]
    assert not [one for one in hub.seen if one.server == "store"], "the page is asked for where the list came from"


@pytest.fixture
def encrypted(hub: HubServer, tool: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub by HTTPS, with a certificate that nobody trusts who is not told to: its file."""
    made = [
        tool("openssl", "openssl"),
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]
    made += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("cert.pem", "key.pem")
    hub.servers[0].socket = context.wrap_socket(hub.servers[0].socket, server_side=True)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint.replace("http:", "https:"))
    return Path("cert.pem").absolute()


def test_a_certificate_that_is_not_trusted_is_one_sentence(encrypted: Path, hub: HubServer, fetch: Any) -> None:
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and "is not one that this Python trusts (" in done.sentence
    assert done.sentence.endswith("SSL_CERT_FILE=FILE names the certificates of your site.")


def test_what_was_encrypted_does_not_go_on_in_the_clear(
    encrypted: Path, hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(encrypted))
    small = {"train.jsonl": b"{}"}
    hub.add("org/rows", small, kind="dataset")
    assert fetch("datasets/org/rows", "--to", "d").code == 0 and files_in(Path("d")) == small
    hub.add("org/m", model(1))  # whose store is not encrypted
    done = fetch("org/m", "--to", "m")
    assert done.code == 1 and "sends us on to an address that is not safe (http)" in done.sentence
    assert not [one for one in hub.seen if one.server == "store"]


# --- room -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    with mounted(tmp_path / "disk", "1m") as disk:
        yield disk.folder


def test_room_is_looked_at_first(small_disk: Path, hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(2, 700_000))
    done = fetch("org/m", "--to", small_disk / "m")
    assert done.code == 2 and not (small_disk / "m").exists()
    assert "1.38 MB are needed, 1.05 MB are free on the file system of" in done.sentence
    assert not hub.asked("?signed")


def test_a_disk_that_fills_up_keeps_what_came(small_disk: Path, hub: HubServer, fetch: Any) -> None:
    content = model(2, 400_000)
    hub.add("org/m", content)
    filler = small_disk / "filler"

    def fill(answering: Answering, seen: Seen) -> bool:
        if SHARD in seen.path and not filler.exists():
            filler.write_bytes(b"x" * 500_000)
        return False

    hub.faults.append(fill)
    done = fetch("org/m", "--to", small_disk)  # the root of a mount is as good a folder as any
    assert done.code == 1
    assert f"no more room for {small_disk} (no space left on device): " in done.sentence and "goes on." in done.sentence
    filler.unlink()
    hub.faults.clear()
    again = fetch("org/m", "--to", small_disk, "--json")
    assert again.code == 0 and json.loads(again.out)["received_bytes"] < sum(map(len, content.values()))
    assert files_in(small_disk) == content


def test_a_limit_on_files_is_told_as_a_lack_of_room(hub: HubServer, fetch: Any) -> None:
    content = model(1)
    hub.add("org/m", content)
    limit = (200_000, 200_000)
    done = subprocess.run(
        [ENTRY, "fetch", "org/m", "--to", "m"], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"no more room for \S+ \(file too large\): 2\d\d kB of 289 kB are there and are kept", done.stderr)
    hub.seen.clear()
    assert fetch("org/m", "--to", "m").code == 0
    assert [one.start for one in hub.seen if one.server == "store"] == [200_000]
    assert files_in(Path("m")) == content


# --- the folder -----------------------------------------------------------------------------------------------------


Fetch = subprocess.Popen[str]


def two_at_once(hub: HubServer) -> tuple[dict[str, bytes], threading.Event, Fetch, Fetch]:
    """A fetch that stands still until it is told to go on, and another into the same folder, which waits for it."""
    content = model(2)
    hub.add("org/m", content)
    fault, go_on = stalls(SHARD, 100_000)
    hub.faults.append(fault)
    first = started("org/m", "--to", "m")
    wait_for(lambda: part_of_size(Path("m"), 100_000))
    second = started("org/m", "--to", "m")
    assert second.stderr is not None
    assert "another fetch is at work in" in second.stderr.readline()
    return content, go_on, first, second


def test_two_at_once_into_one_folder_fetch_each_file_once(hub: HubServer, fetch: Any) -> None:
    content, go_on, first, second = two_at_once(hub)
    go_on.set()
    assert (first.wait(30), second.wait(30)) == (0, 0)
    assert second.stdout is not None and "was already in" in second.stdout.read()
    assert files_in(Path("m")) == content
    stored = [one.start for one in hub.seen if one.server == "store" and SHARD in one.path]
    assert stored == [0, 100_000]


def test_the_second_takes_over_from_a_first_that_dies(hub: HubServer, fetch: Any) -> None:
    content, go_on, first, second = two_at_once(hub)
    first.kill()
    first.communicate()
    go_on.set()
    assert second.wait(30) == 0
    assert files_in(Path("m")) == content


def test_a_folder_of_something_else_is_left_as_it_is(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    hub.add("org/n", model(1))
    Path("models/mine").mkdir(parents=True)
    done = fetch("org/m", "--to", "models")
    folder = Path("models").absolute()
    assert (done.code, done.sentence) == (
        2,
        f"--to {folder}: it holds files that no fetch put there (mine). Give a folder that is empty or not there yet, as {folder}/m.",
    )
    Path("file").write_text("")
    assert "it is a file, a folder is needed" in fetch("org/m", "--to", "file").sentence
    assert fetch("org/m", "--to", "m").code == 0
    done = fetch("org/n", "--to", "m")
    assert done.code == 2 and "it holds org/m at " in done.sentence
    record = Path("m/.hpc-llm/fetch.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "complete": False}))
    assert "a fetch of org/m at" in (said := fetch("org/n", "--to", "m").sentence)
    assert f"`hpc-llm fetch org/m --to {Path('m').absolute()}` goes on with that one." in said
    record.write_text("{")
    assert fetch("org/m", "--to", "m").code == 0, "a record that nobody can read is made anew"
    assert hub.seen and files_in(Path("m")) == model(1)


def test_a_folder_that_cannot_be_written_says_so(small_disk: Path, hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = fetch("org/m", "--to", small_disk / "a/b")
    assert (done.code, done.sentence) == (
        2, f"--to {small_disk}/a/b: you may not write in {small_disk}. Give a folder of your own.",
    )  # fmt: skip
    Path("file").write_text("")
    assert "file/m: not a directory. Give a folder of your own." in fetch("org/m", "--to", "file/m").sentence
    assert not hub.asked("?signed")


def test_one_model_is_the_same_by_each_of_its_names(hub: HubServer, fetch: Any) -> None:
    hub.add("meta-llama/Llama-2-7b-hf", model(1), moved_from="meta-llama/Llama-2-7b-old")
    assert fetch("meta-llama/Llama-2-7b-old", "--to", "m").code == 0
    for name in ("llama2-7b", "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-old"):
        assert "was already in" in fetch(name, "--to", "m").out
    hub.add("nyu-mll/glue", {"sst2/a.parquet": b"1", "cola/a.parquet": b"2"}, kind="dataset")
    assert fetch("glue/sst2", "--to", "d").code == 0
    assert "it holds nyu-mll/glue at" in fetch("datasets/nyu-mll/glue/cola", "--to", "d").sentence


@pytest.mark.parametrize("path", ["../mine.txt", "/etc/hostname", "sub/../../mine.txt", 7, None, ["a"]])
def test_a_forged_record_makes_nothing_outside_disappear(path: Any, hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model(1))
    Path("mine.txt").write_text("mine")
    Path("m/.hpc-llm").mkdir(parents=True)
    forged = [{"path": path, "size": 4, "algorithm": "sha256", "digest": "0" * 64}, 3, {}]
    about = {
        "asked": "org/m",
        "wanted": "org/m",
        "part": "",
        "name": "org/m",
        "from": "hub",
        "only": [],
        "commit": "c" * 40,
    }
    Path("m/.hpc-llm/fetch.json").write_text(json.dumps({"complete": False, **about, "files": forged}))
    assert fetch("org/m", "--to", "m").code == 0
    assert Path("mine.txt").read_text() == "mine" and files_in(Path("m")) == model(1)


@pytest.mark.parametrize("link", [".hpc-llm", ".hpc-llm/parts", "data"])
def test_nothing_goes_through_a_link_that_somebody_laid(link: str, hub: HubServer, fetch: Any) -> None:
    hub.add("org/rows", {"data/a.jsonl": b"1", "b.jsonl": b"2"}, kind="dataset")
    assert fetch("datasets/org/rows", "--to", "d").code == 0
    record = Path("d/.hpc-llm/fetch.json")
    kept = {**json.loads(record.read_text()), "complete": False}
    Path("victim").mkdir()
    Path("victim/precious").write_text("x")
    shutil.rmtree(Path("d") / link, ignore_errors=True)
    (Path("d") / link).symlink_to(Path("victim").absolute())
    record.write_text(json.dumps(kept))
    before = sorted(path.name for path in Path("victim").iterdir())
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 2 and "is a link, which no fetch makes" in done.sentence
    assert sorted(path.name for path in Path("victim").iterdir()) == before


def test_a_list_that_never_ends_is_left(hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpc_llm.fetching.hub._MOST_PAGES", 5)
    hub.add("org/rows", {f"{i}.jsonl": b"1" for i in range(9)}, kind="dataset")
    hub.page = 1
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and "lists org/rows on more than 5 pages" in done.sentence


DEEP = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 150 + b"]" * 150,
    b'{"siblings": ' + b"[" * 5000 + b"]" * 5000 + b"}",
]


@pytest.mark.parametrize("body", DEEP)
@pytest.mark.parametrize("word", ["/revision/", "/tree/"])
def test_an_answer_that_is_nested_without_end_is_one_sentence(
    body: bytes, word: str, hub: HubServer, fetch: Any
) -> None:
    def fault(answering: Answering, seen: Seen) -> bool:
        if word in seen.path:
            answering.answer(200, body)
        return word in seen.path

    hub.add("org/rows", {"a.jsonl": b"1"}, kind="dataset")
    hub.faults.append(fault)
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and "answers with what no hub says: it is nested too deep" in done.sentence
    assert not Path("d").exists()


def test_a_refusal_that_is_nested_without_end_is_a_refusal(hub: HubServer, fetch: Any) -> None:
    def fault(answering: Answering, seen: Seen) -> bool:
        answering.answer(403, DEEP[0])
        return True

    hub.faults.append(fault)
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 2 and "does not give the data set org/rows" in done.sentence


@pytest.mark.parametrize("word", ["/revision/", "/tree/"])
def test_an_answer_without_end_is_not_read_to_it(
    word: str, hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpc_llm.fetching.web._LARGEST_ANSWER", 1 << 20)

    def fault(answering: Answering, seen: Seen) -> bool:
        if word in seen.path:
            with contextlib.suppress(OSError):
                answering.answer(200, b"[" + b" " * (8 << 20) + b"]")
        return word in seen.path

    hub.add("org/rows", {"a.jsonl": b"1"}, kind="dataset")
    hub.faults.append(fault)
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and "answers with more than 1 MiB to a question" in done.sentence


def test_a_list_of_too_many_files_is_left_and_a_long_one_is_told_of(
    hub: HubServer, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/rows", {f"{i}.jsonl": b"1" for i in range(9)}, kind="dataset")
    hub.page = 2
    monkeypatch.setattr("hpc_llm.fetching.hub._TELL_EVERY_S", -1.0)
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 0 and "lists what org/rows holds, 4 files so far" in done.err
    monkeypatch.setattr("hpc_llm.fetching.hub._MOST_FILES", 5)
    done = fetch("datasets/org/rows", "--to", "e")
    assert done.code == 1 and "lists more than 5 files in org/rows. Nothing was fetched." in done.err.splitlines()[-1]
    assert not Path("e").exists()


@pytest.mark.parametrize("inner", ["data/train.jsonl", "data/a/b/c.jsonl"])
def test_a_file_that_would_be_a_folder_too_is_refused_before_anything_is_made(
    inner: str, hub: HubServer, fetch: Any
) -> None:
    content = {"data": b"1", "data-1.jsonl": b"2", "data.jsonl": b"3", inner: b"4"}
    hub.add("org/rows", content, kind="dataset")
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and f"lists data as a file and as a folder, that of {inner}" in done.sentence.replace(
        "org/rows is listed with", "lists"
    )
    assert not Path("d").exists()
    assert fetch("datasets/org/rows", "--to", "d", "--only", "data/*").code == 0


@pytest.mark.parametrize("name", ["../../x", "a/b/c", "a/../b", "x\ny", "org/" + TOKEN, "", " "])
def test_a_name_that_no_model_has_is_not_shown_as_one(name: str, hub: HubServer, fetch: Any) -> None:
    def fault(answering: Answering, seen: Seen) -> bool:
        if "/revision/" in seen.path:
            answering.send_json({"id": name, "sha": "0" * 40})
        return "/revision/" in seen.path

    hub.add("org/rows", {"a.jsonl": b"1"}, kind="dataset")
    hub.faults.append(fault)
    done = fetch("datasets/org/rows", "--to", "d")
    assert done.code == 1 and "does not answer as the Hub does" in done.sentence and TOKEN not in done.err + done.out
    assert not Path("d").exists()
