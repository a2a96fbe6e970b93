"""Data of strangers: what hangs, leads elsewhere, belongs to others or lies about itself is refused in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rights import needs_root

import hpc_llm
from hpc_llm.corpus.facts import read_facts
from hpc_llm.corpus.format import FACTS
from hpc_llm.corpus.key import CorpusRequest, corpus_key
from hpc_llm.corpus.sources import full_source, source_files
from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.worker.preparing.build import prepare

STRANGER = 12399
RUN: dict[str, Any] = {"cluster": "local", "method": "ddp", "model": "tiny", "sequence_length": 32}


def asked(*sources: object, model: str = "tiny") -> CorpusRequest:
    return CorpusRequest(sources=tuple(map(str, sources)), model=model, layout="causal")


def plan(data: object) -> Any:
    """The run of a request that trains on the data."""
    [one] = hpc_llm.plan(data=[str(data)], **RUN)
    return one.plan.training


@pytest.fixture
def rows(own_folder: Path) -> Path:
    path = own_folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}?", "completion": str(n)}) + "\n" for n in range(20)))
    return path


@pytest.fixture
def corpus(rows: Path) -> Path:
    """Where the rows were prepared, and are found by a request for them."""
    return prepare(asked(rows), rows.parent / "caches", lambda text: None).folder


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def deaf(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [pipe, endless, deaf])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt", "a.pdf"])
@pytest.mark.timeout(60)
def test_what_never_ends_is_no_data(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    make(folder / name)
    for source in (folder, folder / name):
        with pytest.raises(RequestError, match=r"no regular file|leads out of the folder"):
            corpus_key(asked(source))
    with pytest.raises(RequestError, match="no regular file"):
        full_source(str(folder / name))


@pytest.mark.parametrize("command", ["render", "submit"])
def test_a_command_does_not_wait_for_a_pipe(own_folder: Path, command: str) -> None:
    os.mkfifo("pipe.jsonl")
    words = [command, "--cluster=local", "--method=ddp", "--model=tiny", "--data=pipe.jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm", *words], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2 and "pipe.jsonl: it is no regular file" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "vocab.txt"])
@pytest.mark.parametrize("make", [pipe, endless, lambda path: path.symlink_to("nowhere")])
@pytest.mark.timeout(60)
def test_a_tokenizer_that_never_ends_is_none(
    rows: Path, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    make(model / name)
    with pytest.raises(RequestError, match=f"{name} is no regular file, or leads to none"):
        corpus_key(asked(rows, model=str(model)))


def test_a_link_out_of_a_folder_of_data_is_not_followed(tmp_path: Path) -> None:
    """Not to a file of another folder, not over a further link, not to one whose name only begins like the folder's."""
    secret = tmp_path / "data-of-mine" / "key.txt"
    secret.parent.mkdir()
    secret.write_text("secret")
    secret.chmod(0o600)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_text("x")
    (folder / "inside.txt").symlink_to("a.txt")
    assert len(source_files([str(folder)])) == 2
    (folder / "hop").symlink_to(secret)
    for target in (secret, Path("../data-of-mine/key.txt"), Path("hop")):
        (folder / "z.txt").symlink_to(target)
        with pytest.raises(RequestError, match=r"z\.txt is a link that leads out of the folder, and is not followed"):
            source_files([str(folder)])
        (folder / "z.txt").unlink()
    (tmp_path / "named.txt").symlink_to(secret)  # its user names it
    assert len(source_files([str(tmp_path / "named.txt")])) == 1


def test_the_links_of_the_hubs_cache_are_followed_and_no_others_there(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "datasets--org--rows"
    snapshot = repository / "snapshots" / "abc" / "data"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "0").write_text('{"text": "x"}\n')
    (snapshot / "train.jsonl").symlink_to("../../../blobs/0")
    for place in (snapshot, snapshot.parent, repository):
        assert [Path(one.path).name for one in source_files([str(place)])] == ["train.jsonl"]
    (tmp_path / "hub" / "other.jsonl").write_text("{}")
    (snapshot / "more.jsonl").symlink_to("../../../../other.jsonl")
    with pytest.raises(RequestError, match=r"more\.jsonl is a link that leads out"):
        source_files([str(snapshot)])
    plain = tmp_path / "plain" / "snapshots" / "abc"
    plain.mkdir(parents=True)
    (plain.parents[1] / "blobs").mkdir()
    (plain.parents[1] / "blobs" / "0").write_text("{}")
    (plain / "a.jsonl").symlink_to("../../blobs/0")
    with pytest.raises(RequestError, match=r"a\.jsonl is a link that leads out"):
        source_files([str(plain)])


def test_tokens_are_read_by_nobody_who_may_not_read_all_that_they_are_made_of(tmp_path: Path) -> None:
    def mode_of_cache(name: str, file_mode: int, folder_mode: int) -> tuple[int, set[int]]:
        folder = reachable / name
        folder.mkdir()
        for number, mode in enumerate((0o644, file_mode)):
            (folder / f"{number}.txt").write_text(f"{name}{number}")
            (folder / f"{number}.txt").chmod(mode)
        folder.chmod(folder_mode)
        made = prepare(asked(folder), tmp_path / "caches", lambda text: None).folder
        return stat.S_IMODE(made.stat().st_mode), {stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()}

    before = os.umask(0o022)
    reachable = Path(tempfile.mkdtemp(dir="/tmp"))  # a folder of pytest's is its user's alone
    try:
        reachable.chmod(0o755)
        assert mode_of_cache("open", 0o644, 0o755) == (0o755, {0o644})
        assert mode_of_cache("secret", 0o600, 0o755) == (0o700, {0o600})
        assert mode_of_cache("group", 0o640, 0o755) == (0o750, {0o640})
        assert mode_of_cache("closed", 0o644, 0o700) == (0o700, {0o600})
        os.umask(0o077)
        assert mode_of_cache("mine", 0o644, 0o755) == (0o700, {0o600})
    finally:
        os.umask(before)
        shutil.rmtree(reachable)


def is_a_link(folder: Path) -> None:
    moved = folder.rename(folder.with_name("moved"))
    folder.symlink_to(moved)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: folder.chmod(0o777),
        lambda folder: (folder / "train.tokens").chmod(0o664),
        lambda folder: (folder / FACTS).chmod(0o646),
        is_a_link,
    ],
)
def test_prepared_data_that_others_can_have_written_are_not_found(
    rows: Path, corpus: Path, change: Callable[[Path], None]
) -> None:
    assert plan(rows).corpus == str(corpus)
    change(corpus)
    with pytest.raises(RequestError, match=rf"somebody else can have written .*HPC_LLM_CACHE.*--data {corpus}"):
        plan(rows)
    with pytest.raises(RequestError, match="somebody else can have written"):
        prepare(asked(rows), corpus.parent, lambda text: None)
    assert plan(corpus).corpus == str(corpus)  # who names them means them


@pytest.mark.parametrize("what", [".", "train.tokens", FACTS])
def test_prepared_data_of_somebody_else_are_not_found(rows: Path, corpus: Path, what: str) -> None:
    needs_root("give a file to somebody else")
    os.chown(corpus / what, STRANGER, STRANGER)
    with pytest.raises(RequestError, match="somebody else can have written"):
        plan(rows)
    assert plan(corpus).corpus == str(corpus)


def test_prepared_data_under_the_name_of_others_are_not_found(rows: Path, corpus: Path) -> None:
    record = json.loads((corpus / FACTS).read_text())
    (corpus / FACTS).write_text(json.dumps({**record, "key": "0" * 32}))
    with pytest.raises(RequestError, match=r"are other ones, 0+: remove the folder and prepare them anew"):
        plan(rows)


@pytest.mark.parametrize(
    "value",
    [
        {"vocabulary": -5}, {"vocabulary": 2**40}, {"vocabulary": True}, {"vocabulary": "9"}, {"splits": {}}, {"splits": []},
        {"sources": 3}, {"tokenizer": None}, {"longest": 3}, {"longest": -1}, {"tokens": 2**70}, {"samples": 1.5}, {"longest_at": 7},
        {"trained_tokens": 10**9}, {"longest_source": 1}, {"longest_target": 1}, {"sha256": {}}, {"sha256": "x"}, {"samples": 0},
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_true_is_refused(corpus: Path, value: dict[str, Any]) -> None:
    record = json.loads((corpus / FACTS).read_text())
    [name] = value
    changed = (
        {**record, **value}
        if name in record
        else {**record, "splits": {"train": {**record["splits"]["train"], **value}}}
    )
    (corpus / FACTS).write_text(json.dumps(changed))
    with pytest.raises(RequestError, match=r"are not whole \(.*\)\. Remove the folder and prepare them anew"):
        plan(corpus)


@pytest.mark.parametrize(
    ("name", "kind", "place", "value"),
    [
        ("tokens", "i", 3, 999),
        ("tokens", "i", 3, 70),
        ("ends", "Q", 2, 2**63),
        ("ends", "Q", 2, 1),
        ("starts", "I", 1, 99),
    ],
)
def test_files_that_hold_something_else_are_refused(corpus: Path, name: str, kind: str, place: int, value: int) -> None:
    path = corpus / f"train.{name}"
    plan(corpus)  # what is remembered of the whole one must not count for this one
    content = array(kind, path.read_bytes())
    content[place] = value
    path.write_bytes(content.tobytes())
    os.utime(path, (1e9, 1e9))
    with pytest.raises(RequestError, match=rf"train\.{name} (does not hold|and)"):
        plan(corpus)
    if name != "tokens":
        with pytest.raises(RequestError, match="are not those that"):
            read_facts(corpus).samples("train")


def test_a_pipe_in_place_of_tokens_is_not_waited_for(corpus: Path) -> None:
    (corpus / "train.ends").unlink()
    os.mkfifo(corpus / "train.ends")
    with pytest.raises(RequestError, match=r"train\.ends: it is no regular file"):
        read_facts(corpus)


def test_words_of_strangers_make_no_line_of_ours(corpus: Path) -> None:
    record = json.loads((corpus / FACTS).read_text())
    record["splits"]["train"]["longest_at"] = "x\nhpc-llm: all is well\u2028\x1b[2J"
    (corpus / FACTS).write_text(json.dumps(record))
    with pytest.raises(HpcLlmError) as caught:
        hpc_llm.plan(data=[str(corpus)], **{**RUN, "sequence_length": 2})
    assert str(caught.value).isprintable() and "x hpc-llm: all is well" in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x85", "\u2028"])
def test_an_error_is_one_line_whatever_it_quotes(own_folder: Path, end: str) -> None:
    name = f"a{end}hpc-llm: b.zip"
    Path(name).write_text("x")
    with pytest.raises(RequestError) as caught:
        source_files([name])
    assert len(str(caught.value).splitlines()) == 1 and "a hpc-llm: b.zip" in str(caught.value)
