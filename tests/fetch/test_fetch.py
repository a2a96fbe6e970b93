"""hpc-llm fetch from the Hub: what is brought, under which name, and what the folder is then good for."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fetched_models import CONFIG, UNNEEDED, files_in, model, weights
from hub_server import HubServer

import hpc_llm
from hpc_llm.corpus.sources import full_source, source_files
from hpc_llm.errors import RequestError
from hpc_llm.planning.checkpoint import read_checkpoint

ENTRY = Path(sys.executable).with_name("hpc-llm")
INDEX = "model.safetensors.index.json"


def test_a_model_is_brought_with_all_that_a_run_needs_and_nothing_else(hub: HubServer, fetch: Any) -> None:
    content = model()
    commit = hub.add("org/some-model", content | UNNEEDED).refs["main"]
    done = fetch("org/some-model", "--to", "models/m")
    size = sum(map(len, content.values()))
    folder = Path("models/m").absolute()
    assert (done.code, done.out) == (
        0,
        f"org/some-model at {commit[:12]} is in {folder}: 9 files, {size / 1000:.0f} kB\n",
    )
    assert done.sentence == f"a run takes it by --model {folder}"
    assert files_in(folder) == content
    assert len(read_checkpoint(folder).weights) == 2
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} <= {0o644}
    record = json.loads((folder / ".hpc-llm/fetch.json").read_text())
    assert (record["name"], record["commit"], record["complete"]) == ("org/some-model", commit, True)


def test_what_is_there_is_not_asked_for_again(hub: HubServer, fetch: Any) -> None:
    hub.add("org/some-model", model())
    assert fetch("org/some-model", "--to", "m").code == 0
    hub.seen.clear()
    done = fetch("org/some-model", "--to", "m", "--json")
    assert (done.code, hub.seen) == (0, [])
    found = json.loads(done.out)
    assert (found["files"], found["received_bytes"], found["folder"]) == (9, 0, str(Path("m").absolute()))
    assert fetch("org/some-model", "--to", "m", "--revision", found["commit"][:9]).code == 0
    assert "was already in" in fetch("org/some-model", "--to", "m").out


def test_one_file_that_is_lost_is_brought_again_at_the_same_commit(hub: HubServer, fetch: Any) -> None:
    one = hub.add("org/some-model", model())
    assert fetch("org/some-model", "--to", "m").code == 0
    one.commits["f" * 40] = {"config.json": b"{}", "model.safetensors": b"other"}
    one.refs["main"] = "f" * 40
    Path("m/tokenizer.model").unlink()
    hub.seen.clear()
    assert fetch("org/some-model", "--to", "m").code == 0
    assert files_in(Path("m")) == model()
    assert len(hub.asked("/resolve/")) <= 3  # to see whether one may, the index, and the file


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (["model.safetensors", "pytorch_model.bin", "model-00001-of-00001.safetensors", INDEX], ["model.safetensors"]),
        (["pytorch_model.bin", "tf_model.h5", "rust_model.ot"], ["pytorch_model.bin"]),
        (["adapter_model.safetensors", "adapter_config.json", "optimizer.pt"], ["adapter_config.json", "adapter_model.safetensors"]),
        (["model.safetensors", "spiece.model", "vocab.txt", "merges.txt", "chat_template.jinja", "training_args.bin"],
         ["chat_template.jinja", "merges.txt", "model.safetensors", "spiece.model", "vocab.txt"]),
    ],
)  # fmt: skip
def test_one_set_of_weights_is_brought_the_best_first(
    there: list[str], expected: list[str], hub: HubServer, fetch: Any
) -> None:
    hub.add("org/m", {name: name.encode() for name in there})
    assert fetch("org/m", "--to", "m").code == 0
    assert sorted(files_in(Path("m"))) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"m.Q4.gguf": b"x", "README.md": b"x"}, "org/m holds no weights that can be trained (model.safetensors or pytorch_model.bin, whole or in shards). It holds m.Q4.gguf. --only PATTERN"),
        ({"README.md": b"x"}, "It holds README.md."),
        ({}, "It holds nothing."),
        ({k: v for k, v in model().items() if "00002-of" not in k}, "org/m is not whole where it lies: its index names model-00002-of-00002.safetensors"),
        ({INDEX: b"[]"}, f"{INDEX} of org/m does not say which files hold the weights."),
    ],
)  # fmt: skip
def test_what_is_no_model_for_a_run_is_refused_before_anything_is_made(
    content: dict[str, bytes], said: str, hub: HubServer, fetch: Any
) -> None:
    hub.add("org/m", content)
    done = fetch("org/m", "--to", "m")
    assert done.code == 2 and said in done.sentence
    assert not Path("m").exists()


def test_other_files_are_brought_when_they_are_asked_for(hub: HubServer, fetch: Any) -> None:
    hub.add("org/m", {"a.Q4.gguf": b"4", "a.Q8.gguf": b"8", "README.md": b"x"})
    assert fetch("org/m", "--to", "m", "--only", "*.Q4.*", "--only", "README*").code == 0
    assert sorted(files_in(Path("m"))) == ["README.md", "a.Q4.gguf"]
    done = fetch("org/m", "--to", "n", "--only", "*.Q2.*")
    assert (done.code, done.sentence) == (
        2,
        "--only *.Q2.*: org/m has no such file. There: a.Q4.gguf, a.Q8.gguf, README.md.",
    )


@pytest.mark.parametrize("asked", ["llama2-7b", "meta-llama/Llama-2-7b-hf", "https://huggingface.co/meta-llama/Llama-2-7b-hf/tree/main"])  # fmt: skip
def test_a_preset_and_an_address_mean_the_model_of_the_hub(asked: str, hub: HubServer, fetch: Any) -> None:
    hub.add("meta-llama/Llama-2-7b-hf", model(1))
    done = fetch(asked, "--to", "m")
    assert done.code == 0 and done.out.startswith("meta-llama/Llama-2-7b-hf at ")


def test_a_name_that_moved_leads_to_the_new_one(hub: HubServer, fetch: Any) -> None:
    hub.add("openai-community/gpt2", model(1), moved_from="gpt2")
    done = fetch("gpt2", "--to", "m")
    assert done.code == 0 and done.out.startswith("openai-community/gpt2 at ")


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: HubServer, fetch: Any) -> None:
    one = hub.add("org/m", model(1))
    old = one.refs["main"]
    one.commits["e" * 40] = {"config.json": b'{"new": 1}', "model.safetensors": weights(7)}
    one.refs |= {"main": "e" * 40, "refs/pr/1": old}
    for number, revision in enumerate(["v1", old, "refs/pr/1"]):
        assert fetch("org/m", "--to", f"m{number}", "--revision", revision).code == 0
        assert files_in(Path(f"m{number}")) == model(1)
    assert fetch("org/m", "--to", "new").code == 0
    assert files_in(Path("new"))["config.json"] == b'{"new": 1}'
    done = fetch("org/m", "--to", "m0", "--revision", "main")
    assert (
        done.code == 2
        and f"it holds org/m at {old[:12]}. Give another folder, or remove that one first." in done.sentence
    )
    done = fetch("org/m", "--to", "x", "--revision", "v2")
    assert (
        done.sentence
        == "--revision v2: the model org/m has none of that name. Valid: main, v1, refs/pr/1, or a commit."
    )


@pytest.mark.parametrize("revision", ["..", ".", "a..b", "a b", "/a", "a/./b", "a//b", "main?x", "a\nb"])
def test_a_revision_that_git_allows_nobody_asks_nobody(revision: str, hub: HubServer, fetch: Any) -> None:
    done = fetch("org/m", "--to", "m", "--revision", revision)
    assert done.code == 2 and "a branch, a tag or a commit is needed" in done.sentence
    assert hub.seen == []


def test_a_part_of_a_data_set_is_brought_by_the_name_that_it_is_known_by(hub: HubServer, fetch: Any) -> None:
    parts = {f"{part}/train-00000-of-00001.parquet": part.encode() for part in ("sst2", "mnli", "cola")}
    hub.add("nyu-mll/glue", {**parts, "README.md": b"x", ".gitattributes": b"", "glue.py": b"x"}, kind="dataset")
    for number, asked in enumerate(["glue/sst2", "datasets/nyu-mll/glue/sst2", "datasets/glue/sst2"]):
        done = fetch(asked, "--to", f"d{number}")
        assert done.code == 0 and done.sentence.startswith("a run takes it by --data ")
        assert sorted(files_in(Path(f"d{number}"))) == ["README.md", "sst2/train-00000-of-00001.parquet"]
    assert fetch("datasets/nyu-mll/glue", "--to", "all").code == 0
    assert sorted(files_in(Path("all"))) == ["README.md", *sorted(parts)]
    done = fetch("datasets/nyu-mll/glue/sst3", "--to", "no")
    assert (done.code, done.sentence) == (
        2,
        "the data set nyu-mll/glue has no data in sst3; its folders: cola, mnli, sst2.",
    )


def test_a_known_set_that_was_fetched_is_read_as_that_set(hub: HubServer, fetch: Any) -> None:
    rows = b'{"question": "1+1?", "answer": "2"}\n'
    hub.add(
        "openai/gsm8k",
        {"main/train.jsonl": rows, "main/test.jsonl": rows, "socratic/train.jsonl": rows, "README.md": b"#"},
        kind="dataset",
    )
    assert fetch("gsm8k", "--to", "d").code == 0
    folder = Path("d").absolute()
    assert full_source("d") == f"gsm8k={folder}"
    found = [(Path(one.path).relative_to(folder).as_posix(), one.split) for one in source_files([f"{folder}"])]
    assert found == [("main/test.jsonl", "validation"), ("main/train.jsonl", "train")]
    record = folder / ".hpc-llm/fetch.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "complete": False}))
    with pytest.raises(
        RequestError, match=f"{folder} is not whole, .*: `hpc-llm fetch gsm8k --to {folder}` goes on with it"
    ):
        source_files([str(folder)])


def test_data_that_is_not_here_is_told_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    from hpc_llm.cli import run

    for name, way in (("org/rows", "If it is a data set of the Hub: `hpc-llm fetch datasets/org/rows --to DIR`, then --data DIR."),
                      ("wikitext-103-raw-v1", "`hpc-llm fetch wikitext-103-raw-v1 --to DIR` brings that data set")):  # fmt: skip
        assert run(["render", "--cluster", "local", "--method", "z3", "--data", name]) == 2
        assert way in capsys.readouterr().err
    assert run(["render", "--cluster", "local", "--method", "z3", "--data", "texts/a.txt"]) == 2
    assert "hpc-llm fetch" not in capsys.readouterr().err


def test_a_name_that_only_a_data_set_has_is_that_data_set(hub: HubServer, fetch: Any) -> None:
    hub.add("org/rows", {"data/train.jsonl": b"{}\n", "README.md": b"x"}, kind="dataset")
    done = fetch("org/rows", "--to", "d", "--json")
    assert json.loads(done.out)["kind"] == "dataset"
    assert sorted(files_in(Path("d"))) == ["README.md", "data/train.jsonl"]


def test_a_tree_of_many_pages_is_read_to_its_end(hub: HubServer, fetch: Any) -> None:
    hub.page = 7
    content = {f"data/{i:03}.jsonl": b"%d\n" % i for i in range(60)} | {"same.txt": b"", "as.txt": b""}
    hub.add("org/rows", content, kind="dataset")
    assert fetch("datasets/org/rows", "--to", "d").code == 0
    assert files_in(Path("d")) == content


def test_the_function_tells_how_far_it_is(hub: HubServer) -> None:
    hub.add("org/m", model())
    told: list[Any] = []
    done = hpc_llm.fetch("org/m", to="m", on_update=told.append)
    again = hpc_llm.fetch("org/m", to="m")
    assert (done.files, done.size, done.received) == (9, sum(map(len, model().values())), done.size)
    assert again.received == 0 and again.commit == done.commit
    assert (told[-1].files_done, told[-1].done) == (9, done.size)
    assert [one.done for one in told] == sorted(one.done for one in told)


def test_progress_is_for_a_terminal_alone(hub: HubServer) -> None:
    hub.add("org/m", model())
    plain = subprocess.run([ENTRY, "fetch", "org/m", "--to", "m"], capture_output=True, text=True, check=True)
    assert plain.stderr == f"hpc-llm: a run takes it by --model {Path('m').absolute()}\n"
    main, terminal = pty.openpty()
    subprocess.run([ENTRY, "fetch", "org/m", "--to", "n"], stderr=terminal, stdout=subprocess.PIPE, check=True)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(
        OSError
    ):  # a terminal gives a few thousand characters at a time, and has no end but an error
        while piece := os.read(main, 1 << 20):
            shown += piece
    os.close(main)
    assert "\r\x1b[K9/9 files · 578 kB of 578 kB" in shown.decode()


def test_the_hubs_own_client_finds_the_same(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """That this server speaks as the Hub does is not our own opinion."""
    import huggingface_hub

    content = model() | UNNEEDED
    hub.add("org/m", content)
    hub.page = 5
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    theirs = huggingface_hub.snapshot_download(
        "org/m", endpoint=hub.endpoint, local_dir="theirs", token=False, allow_patterns=[*model()]
    )
    hpc_llm.fetch("org/m", to="ours")
    brought = {path: data for path, data in files_in(Path(theirs)).items() if not path.startswith(".cache/")}
    assert brought == files_in(Path("ours")) == model()


def test_a_run_can_be_planned_with_what_was_fetched(
    hub: HubServer, fetch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpc_llm.cli import run

    hub.add("org/m", model())
    assert fetch("org/m", "--to", "m").code == 0
    folder = str(Path("m").absolute())
    asked = ["render", "--cluster", "local", "--method", "z3", "--sequence-length", "32", "--model", folder, "--json"]
    assert run(asked) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["model"]["weights"] == "checkpoint"
    assert json.loads((Path(folder) / "config.json").read_text()) == CONFIG


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("tiny", "tiny is a preset that stands for no published model, so there is nothing to fetch: --model tiny trains it"),
        ("a/b/c", "'a/b/c' is no name of a model or data set. Valid: OWNER/NAME as on the Hub, a preset"),
        ("../x", "'../x' is no name"),
        ("a b", "'a b' is no name"),
        ("", "'' is no name"),
        ("/here", "'/here' is no name"),
        ("org/m?x=1", "is no name"),
        ("org/..", "is no name"),
        ("datasets/", "is no name"),
    ],
)  # fmt: skip
def test_what_is_no_name_asks_nobody(asked: str, said: str, hub: HubServer, fetch: Any) -> None:
    done = fetch(asked, "--to", "m")
    assert done.code == 2 and said in done.sentence
    assert hub.seen == [] and not Path("m").exists()


def test_a_path_in_the_place_of_a_name_is_told_the_way(fetch: Any) -> None:
    Path("here/a/b").mkdir(parents=True)
    assert (
        "here/a/b is here already: give it as --model or --data. To copy it" in fetch("here/a/b", "--to", "m").sentence
    )
