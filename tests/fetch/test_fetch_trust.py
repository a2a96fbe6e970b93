"""What lies in a folder counts as fetched only where it is what was listed, and nobody else can have put it there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fetched_models import files_in, model
from hub_server import HubServer
from rights import needs_root

from hpc_llm.fetching.listing import Entry
from hpc_llm.records.files import write_json

OTHER = 12345
FOLDER = Path("m")
STATE = FOLDER / ".hpc-llm"


def _changed_in_secret(path: Path) -> None:
    """One byte, with the size and the time of before."""
    was, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _put_there_by_somebody(path: Path) -> None:
    needs_root("give a file away")
    os.chown(path, OTHER, OTHER)


def _led_elsewhere(path: Path) -> None:
    path.rename("elsewhere")
    path.symlink_to(Path("elsewhere").absolute())


@pytest.mark.parametrize("spoil", [_changed_in_secret, _put_there_by_somebody, _led_elsewhere])
def test_a_file_that_is_no_longer_what_was_fetched_is_fetched_anew(
    spoil: Callable[[Path], None], hub: HubServer, fetch: Any
) -> None:
    content = model()
    hub.add("org/m", content)
    assert fetch("org/m", "--to", "m").code == 0
    path = FOLDER / "config.json"
    spoil(path)
    spoilt = path.read_bytes()
    done = fetch("org/m", "--to", "m", "--json")
    assert json.loads(done.out)["received_bytes"] == len(content["config.json"])
    is_told = f"{path.name} was no longer what was fetched: it is fetched anew" in done.err
    assert is_told == (spoil is not _put_there_by_somebody), "what it held was what was fetched"
    aside = {"config.json.changed": spoilt} if spoil is _changed_in_secret else {}
    assert files_in(FOLDER) == content | aside and not path.is_symlink() and path.stat().st_uid == os.geteuid()


def test_what_a_user_made_of_a_fetched_file_is_kept_each_time(hub: HubServer, fetch: Any) -> None:
    content = model()
    hub.add("org/m", content)
    edits = [b'{"model_type": "llama", "note": "of an hour"}', b'{"model_type": "llama", "note": "of another"}']
    assert fetch("org/m", "--to", "m").code == 0
    for edit in edits:
        (FOLDER / "config.json").write_bytes(edit)
        assert fetch("org/m", "--to", "m").code == 0
    assert files_in(FOLDER) == content | {"config.json.changed": edits[0], "config.json.changed1": edits[1]}


def test_a_folder_is_read_once_where_its_record_does_not_vouch_for_it(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model())
    assert fetch("org/m", "--to", "m").code == 0
    record = json.loads((STATE / "fetch.json").read_text())
    bare = {**record, "files": [{n: v for n, v in one.items() if n != "stamp"} for one in record["files"]]}
    write_json(STATE / "fetch.json", bare)  # as earlier versions wrote it
    hub.seen.clear()
    assert "was already in" in fetch("org/m", "--to", "m").out
    assert hub.seen == [] and json.loads((STATE / "fetch.json").read_text()) == record


def test_a_part_that_is_said_to_be_whole_is_looked_at(hub: HubServer, fetch: Any) -> None:
    content = model()
    one = hub.add("org/m", content)
    assert fetch("org/m", "--to", "m").code == 0
    record = json.loads((STATE / "fetch.json").read_text())
    said = next(file for file in record["files"] if file["path"] == "config.json")
    entry = Entry(*(said[name] for name in ("path", "size", "algorithm", "digest")))
    (FOLDER / "config.json").unlink()
    (STATE / "parts").mkdir()
    (STATE / "parts" / entry.key).write_bytes(b"x" * entry.size)
    assert fetch("org/m", "--to", "m").code == 0
    assert files_in(FOLDER) == content and one.refs["main"] == record["commit"]


@pytest.mark.parametrize(
    ("place", "is_fetched"), [("m", True), ("m", False), ("m/.hpc-llm", True), ("m/.hpc-llm", False), ("m/.hpc-llm/fetch.json", True)]
)  # fmt: skip
@pytest.mark.parametrize("how", ["owned", "open"])
def test_a_folder_in_which_others_have_the_word_is_refused(
    place: str, is_fetched: bool, how: str, hub: HubServer, fetch: Any
) -> None:
    needs_root("give a folder away")
    hub.add("org/m", model())
    if is_fetched:
        assert fetch("org/m", "--to", "m").code == 0
    Path(place).mkdir(parents=True, exist_ok=True) if not is_fetched else None
    if how == "owned":
        os.chown(place, OTHER, OTHER)
    else:
        Path(place).chmod(0o777)
    hub.seen.clear()
    done = fetch("org/m", "--to", "m")
    if how == "open" and place == "m":  # who shares a folder may fill it; each file is held to its digest
        assert done.code == 0
        return
    assert (done.code, hub.seen) == (2, [])
    assert f"{Path(place).absolute()}: " in done.sentence
    assert ("belongs to user 12345" if how == "owned" else "others may write it") in done.sentence


@pytest.mark.parametrize("words", [("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567/m",), ("org/m", "--from", "/w/hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"), ("org/m", "--only", "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567*")])  # fmt: skip
def test_what_the_record_would_keep_of_a_token_is_refused(words: tuple[str, ...], hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", model())
    done = fetch(*words, "--to", "m")
    assert done.code == 2 and "holds what looks like a secret" in done.sentence and "aBcDeF" not in done.err + done.out
    assert not FOLDER.exists() and not hub.seen
