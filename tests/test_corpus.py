"""A corpus on the disk: whole or not at all, in an order that anybody can go on with, and in rows that waste and lose nothing."""

from __future__ import annotations

import itertools
import json
import os
import random
import struct
from array import array
from pathlib import Path
from typing import Any

import pytest

from hpc_llm.api.corpora import caches_folder
from hpc_llm.corpus.facts import CorpusFacts, read_facts
from hpc_llm.corpus.format import FACTS, SCHEMA, TOKEN, SplitFiles, SplitWriter, new_corpus
from hpc_llm.corpus.key import CorpusRequest, corpus_key
from hpc_llm.corpus.order import endless_rows, shuffled
from hpc_llm.corpus.rows import Samples, make_rows
from hpc_llm.corpus.sources import full_source, refuse_without_training, source_files
from hpc_llm.errors import DataRequestError, PlanError, RequestError, WorkerError


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 65, 1000])
def test_each_epoch_has_each_row_once_in_an_order_of_its_own(count: int) -> None:
    drawn = list(itertools.islice(endless_rows(count, 5, 0, 1), 3 * count))
    epochs = [drawn[start : start + count] for start in (0, count, 2 * count)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    if count >= 7:
        assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != list(range(count))


def test_an_order_favours_no_place() -> None:
    """Over 2000 keys each of 6 things stands at each place about as often as at any other."""
    counts = [[0] * 6 for _ in range(6)]
    for key in range(2000):
        for place in range(6):
            counts[place][shuffled(place, 6, b"%d" % key)] += 1
    assert all(abs(count - 2000 / 6) < 90 for row in counts for count in row)  # five standard deviations


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 2), (3, 1), (2, 4)])
def test_other_numbers_of_groups_go_on_behind_what_was_used(before: int, after: int) -> None:
    rows, used = 23, 12 * 4
    whole = list(itertools.islice(endless_rows(rows, 1, 0, 1), used + 24))

    def of_groups(groups: int, begin: int, each: int) -> list[int]:
        shares = [list(itertools.islice(endless_rows(rows, 1, g, groups, begin), each)) for g in range(groups)]
        return [row for turn in zip(*shares, strict=True) for row in turn]

    assert of_groups(before, 0, used // before) + of_groups(after, used, 24 // after) == whole


def samples_of(lengths: list[int], starts: list[int] | None = None) -> Samples:
    return Samples(list(itertools.accumulate(lengths)), starts or [0] * len(lengths))


def test_packed_rows_hold_each_sample_once_and_none_too_much() -> None:
    chooser = random.Random(3)
    lengths = [chooser.randint(2, 60) for _ in range(500)]
    samples = samples_of(lengths)
    rows = make_rows(samples, "documents", 64, "refuse")
    held = [list(rows.of(row)) for row in range(len(rows))]
    assert sorted(itertools.chain(*held)) == list(range(500))
    assert all(0 < sum(lengths[sample] for sample in row) <= 64 for row in held)
    assert len(rows) < 1.05 * sum(lengths) / 64  # hardly anything is padded


def test_what_is_too_long_or_has_nothing_to_learn_is_left_out_as_asked() -> None:
    samples = samples_of([10, 30, 8, 1, 20], [2, 25, 8, 0, 0])  # the third has no answer, the fourth predicts nothing
    assert list(make_rows(samples, "none", 20, "drop").samples) == [0, 4]
    assert list(make_rows(samples, "none", 20, "truncate").samples) == [
        0,
        4,
    ]  # of the second only the prompt would be left
    assert list(make_rows(samples, "none", 26, "truncate").samples) == [0, 1, 4]


def test_what_is_read_and_what_is_written_each_have_the_whole_length() -> None:
    samples = samples_of([30, 30, 10, 5], [20, 5, 8, 5])  # the last has nothing to write
    assert list(make_rows(samples, "none", 20, "drop", is_causal=False).samples) == [0, 2]
    assert list(make_rows(samples, "none", 20, "truncate", is_causal=False).samples) == [0, 1, 2]


def written(caches: Path, key: str = "k", lengths: tuple[int, ...] = (3, 5)) -> CorpusFacts:
    """A corpus of samples of which the first token is given."""
    with new_corpus(caches, key) as making:
        writer = SplitWriter(making, "train", is_causal=True)
        for number, length in enumerate(lengths, 1):
            writer.extend([7], is_trained=False)
            writer.extend(list(range(length - 1)), is_trained=True)
            writer.end_sample(f"line {number}")
        facts = writer.close()
        record = {
            "schema": SCHEMA, "key": key, "byte_order": "little", "layout": "causal", "is_text": False, "sources": ["x"],
            "tokenizer": "bytes", "vocabulary": 9, "splits": {"train": vars(facts)},
        }  # fmt: skip
        (making / FACTS).write_text(json.dumps(record))
    return read_facts(caches / key)


def test_facts_are_those_of_what_was_written(tmp_path: Path) -> None:
    one = written(tmp_path).splits["train"]
    assert (one.samples, one.tokens, one.trained_tokens, one.longest, one.longest_at) == (2, 8, 6, 5, "line 2")
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(tmp_path / "k", "train").tokens.read_bytes())
    assert list(tokens) == [~7, 0, 1, ~7, 0, 1, 2, 3]


def test_a_sample_that_is_too_long_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    facts = written(tmp_path)
    with pytest.raises(
        PlanError, match=r"line 2, has 5 tokens, and sequence_length is 4.*too_long=truncate .*too_long=drop"
    ):
        facts.count_rows("train", "none", 4, "refuse")
    assert [facts.count_rows("train", "none", 4, how) for how in ("drop", "truncate")] == [1, 2]
    assert [facts.count_left_out("train", "none", 4, how) for how in ("drop", "truncate")] == [1, 0]
    with pytest.raises(PlanError, match=r"its end is left out, and all of it where nothing to learn would be left"):
        facts.count_rows("train", "none", 4, "refuse")
    with pytest.raises(RequestError, match="no validation split, only train"):
        facts.split("validation")


def test_who_finishes_second_takes_what_the_first_has_made(tmp_path: Path) -> None:
    with new_corpus(tmp_path, "k") as making:
        (making / FACTS).write_text("second")
        written(tmp_path)
    assert (tmp_path / "k" / FACTS).read_text() != "second"
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def test_of_an_interrupted_one_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_corpus(tmp_path, "k") as making:
        (making / "train.tokens").write_bytes(b"x")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_goes_after_a_week(tmp_path: Path) -> None:
    for name, age in (("old", 8), ("new", 1)):
        folder = tmp_path / f".making-{name}"
        folder.mkdir()
        when = folder.stat().st_mtime - age * 86400
        os.utime(folder, (when, when))
    written(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".making-new", "k"]


@pytest.mark.parametrize("damage", ["cut", "gone", "no json", "no splits", "other schema"])
def test_a_corpus_that_is_not_whole_is_refused(tmp_path: Path, damage: str) -> None:
    folder = written(tmp_path).folder
    tokens, record = folder / "train.tokens", json.loads((folder / FACTS).read_text())
    if damage == "cut":
        tokens.write_bytes(tokens.read_bytes()[:-1])
    elif damage == "gone":
        tokens.unlink()
    elif damage == "no json":
        (folder / FACTS).write_text("{")
    else:
        changed = {**record, "schema": 99} if damage == "other schema" else {**record, "splits": {}}
        (folder / FACTS).write_text(json.dumps(changed))
    with pytest.raises(RequestError, match=r"repare them anew") as caught:
        read_facts(folder)
    assert str(folder) in str(caught.value)


def request(*sources: Path, model: str = "tiny", **how: Any) -> CorpusRequest:
    return CorpusRequest(sources=tuple(map(str, sources)), model=model, layout="causal", **how)


def test_the_key_follows_content_tokenizer_and_settings_and_nothing_else(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("one")
    first = request(text)
    key = corpus_key(first)
    (tmp_path / "b.txt").write_text("one")
    assert corpus_key(request(tmp_path / "b.txt", model="llama2-7b")) == key  # both take bytes
    assert corpus_key(request(text, train_samples=3)) != key
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    with_tokenizer = corpus_key(request(text, model=str(model)))
    assert with_tokenizer != key
    (model / "tokenizer.json").write_text("{ }")
    assert corpus_key(request(text, model=str(model))) != with_tokenizer
    text.write_text("two")
    assert corpus_key(first) != key


def test_a_digest_that_was_kept_is_not_trusted_once_the_file_has_changed(tmp_path: Path) -> None:
    text, caches = tmp_path / "a.txt", tmp_path / "caches"
    caches.mkdir()
    asked = request(text)
    keys = []
    for number, content in enumerate(("one", "two")):
        text.write_text(content)
        os.utime(text, (1e9 + number, 1e9 + number))
        keys += [corpus_key(asked, caches), corpus_key(asked, caches)]
    assert len(list(caches.glob(".digests-*/*.json"))) == 1
    assert keys[0] == keys[1] != keys[2] == keys[3] == corpus_key(asked)


def test_folders_tell_their_splits_by_the_names_of_their_files(tmp_path: Path) -> None:
    for name in (
        "data/train-00000-of-00002.jsonl",
        "data/train-00001-of-00002.jsonl",
        "dialogs.dev.jsonl",
        "test.jsonl",
        "README.md",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = source_files([str(tmp_path)])
    assert [(Path(one.path).name, one.split) for one in found] == [
        ("train-00000-of-00002.jsonl", "train"), ("train-00001-of-00002.jsonl", "train"), ("dialogs.dev.jsonl", "validation"),
    ]  # fmt: skip
    known = source_files([f"gsm8k={tmp_path}"])  # which evaluates on what it calls test
    assert [(Path(one.path).name, one.split) for one in known][2:] == [("test.jsonl", "validation")]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere.txt", "there is no such file"),
        ("gsm8", "did you mean 'gsm8k'"),
        ("gsm8k=nowhere", "there is no such file"),
        ("validation=nowhere.jsonl", "there is no such file"),
    ],
)
def test_a_source_that_is_not_there_is_named(source: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        full_source(source)


def test_a_file_may_be_called_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train=a.txt", "gsm8k", "b=c.txt"):
        Path(name).write_text("x")
        assert full_source(name) == str(tmp_path / name)


def test_what_cannot_be_read_is_refused_with_what_can(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(RequestError, match=r"\.json files are not read.*one JSON object a line"):
        source_files([str(tmp_path / "a.json")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="holds nothing to train on"):
        source_files([str(tmp_path / "empty")])
    (tmp_path / "a.txt").write_text("x")
    alone = [f"validation={tmp_path / 'a.txt'}"]
    with pytest.raises(RequestError, match="nothing is left to train on"):
        refuse_without_training(alone, {file.split for file in source_files(alone)})


@pytest.mark.parametrize("name", ["a.tsv", "a.xlsx"])
def test_a_table_that_is_no_csv_is_not_read_as_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("prompt\tcompletion\na\tb\n")
    with pytest.raises(DataRequestError, match=r"files are not read.*write it as CSV"):
        source_files([str(tmp_path / name)])


BINARY = {
    "train.bin": struct.pack("<7H", 11, 13, 198, 262, 5000, 31373, 50256) * 500,
    "tokens_u32.bin": struct.pack("<3I", 128000, 9906, 1917) * 500,
    "edufineweb_000001.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (9,), }\n"
    + b"\x0b\x00" * 9,
    "page.png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x02\x00",
    "photo.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01",
    "model.safetensors": struct.pack("<Q", 40) + b'{"w": {"dtype": "BF16"}}',
    "rows.jsonl": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",
}


@pytest.mark.parametrize("name", BINARY)
def test_what_holds_no_text_is_refused_before_it_is_queued(tmp_path: Path, name: str) -> None:
    """No encoding makes a text of tokens or of an image."""
    (tmp_path / name).write_bytes(BINARY[name])
    with pytest.raises(DataRequestError, match="it is no text, it holds zero bytes") as refused:
        source_files([str(tmp_path / name)])
    assert "iconv" not in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "utf-8", "big5"])
def test_a_text_in_another_encoding_is_left_to_what_reads_it(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(("訓練" if encoding == "big5" else "Café, déjà vu.\n").encode(encoding) * 40)
    assert len(source_files([str(tmp_path / "a.txt")])) == 1


def test_caches_lie_where_the_variable_says_else_beside_the_runs(tmp_path: Path) -> None:
    assert caches_folder(tmp_path / "logs", {}) == tmp_path / "caches"
    assert caches_folder(tmp_path / "logs", {"HPC_LLM_CACHE": "/scratch/c"}) == Path("/scratch/c")


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "caches").write_text("a file")
    with (
        pytest.raises(WorkerError, match=r"cannot be written to .*caches.*HPC_LLM_CACHE"),
        new_corpus(tmp_path / "caches", "k"),
    ):
        pass
