"""What task prepare makes of each kind of source: which tokens, which of them are to be learned, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pdf_file import pdf

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.format import TOKEN, SplitFiles
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.corpus.sources import CSV, JSONL, TEXT, SourceFile
from hpc_llm.corpus.words import TRAIN
from hpc_llm.errors import DataFileError, HpcLlmError, ModelFileError, RequestError, WorkerError
from hpc_llm.planning.model import layout_of_model
from hpc_llm.worker.preparing import build, rows
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.preparing.chat import cut, plain_chatml
from hpc_llm.worker.preparing.encoding import BYTE_END, OfTransformers
from hpc_llm.worker.preparing.pieces import Piece

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "See you"},
]


def prepared(
    folder: Path, *sources: object, vocab_size: int | None = 512, model: str = "tiny", **how: Any
) -> CorpusFacts:
    request = CorpusRequest(sources=tuple(map(str, sources)), model=model, layout=layout_of_model(model), **how)
    return prepare(request, folder / "caches", lambda text: None, vocab_size)


def samples(facts: CorpusFacts, split: str = "train") -> list[tuple[str, str]]:
    """Each sample as (what is given, what is to be learned), of a corpus of bytes; the end is written as |."""
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(facts.folder, split).tokens.read_bytes())
    found, begin = [], 0
    for end in facts.samples(split).ends:
        part, begin = tokens[begin:end], end
        given, learned = [~one for one in part if one < 0], [one for one in part if one >= 0]
        found.append((_text(given), _text(learned)))
    return found


def _text(tokens: list[int]) -> str:
    return "".join("|" if token == BYTE_END else chr(token) for token in tokens)


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, None),
        ({"validation_fraction": 0.02, "train_samples": 98, "validation_samples": 2}, None),
        (
            {"validation_fraction": 0.002},
            "validation_fraction=0.002: of 100 samples that is none, and nothing is held out",
        ),
        ({"validation_samples": 500}, "validation_samples=500: nothing is held out, as it says how many at most"),
        ({"validation_fraction": 0.1, "validation_samples": 500}, "validation_samples=500: the data have 10, and all"),
        ({"train_samples": 2000}, "train_samples=2000: the data have 100, and all of them are taken"),
    ],
)
def test_samples_that_the_data_do_not_have_are_told(tmp_path: Path, how: dict[str, Any], told: str | None) -> None:
    """Each time that they are asked for, prepared already or not."""
    path = jsonl(tmp_path / "a.jsonl", *({"text": f"{number}"} for number in range(100)))
    request = CorpusRequest(sources=(str(path),), model="tiny", layout=layout_of_model("tiny"), **how)
    for _ in range(2):
        said: list[str] = []
        prepare(request, tmp_path / "caches", said.append, 512)
        found = [one for one in said if "_samples=" in one or "_fraction=" in one]
        assert len(found) == (told is not None) and (told is None or found[0].startswith(told)), said


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"text": "x"}\n'.encode())
    assert samples(prepared(tmp_path, path)) == [("", "x|")]


def test_a_text_is_one_sample_and_its_end_is_for_validation_where_asked(tmp_path: Path) -> None:
    text = "".join(f"line {number:05d}\n" for number in range(20_000))
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert samples(prepared(tmp_path, path)) == [("", text + "|")]
    facts = prepared(tmp_path, path, validation_fraction=0.25)
    (train,), (validation,) = samples(facts), samples(facts, "validation")
    assert train[1][:-1] + validation[1][:-1] == text
    assert facts.splits["validation"].tokens / facts.splits["train"].tokens == pytest.approx(1 / 3, abs=1e-3)


@pytest.mark.parametrize(
    ("row", "columns", "sample"),
    [
        ({"text": "all"}, {}, ("", "all|")),
        ({"content": "all"}, {}, ("", "all|")),
        ({"prompt": "q", "completion": "a"}, {}, ("q\n", "a|")),
        ({"question": "q", "answer": "a", "id": 3}, {}, ("q\n", "a|")),
        ({"instruction": "do", "input": "it", "output": "done"}, {}, ("do\nit\n", "done|")),
        ({"a": "x", "b": 7}, {"prompt": "Number of {a}:", "completion": " {b}"}, ("Number of x:", " 7|")),
        ({"ask": "x", "say": "y"}, {"prompt": "ask", "completion": "say"}, ("x\n", "y|")),
        ({"the question": "x", "say": "y"}, {"prompt": "the question", "completion": "say"}, ("x\n", "y|")),
        ({"ask": "x", "say": "y"}, {"prompt": "{ask}", "completion": "say"}, ("x", "y|")),
        ({"body": "all"}, {"text": "body"}, ("", "all|")),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, {},
         ("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", "a<|im_end|>\n|")),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, {},
         ("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", "a<|im_end|>\n|")),
    ],
)  # fmt: skip
def test_rows_are_read_as_their_fields_or_the_request_say(
    tmp_path: Path, row: dict[str, Any], columns: dict[str, str], sample: tuple[str, str]
) -> None:
    facts = prepared(tmp_path, jsonl(tmp_path / "a.jsonl", row), columns=columns)
    assert samples(facts) == [sample]
    assert facts.is_text == (not sample[0])


def test_all_answers_of_a_conversation_are_learned_and_nothing_else() -> None:
    pieces = cut(CHAT, plain_chatml, "here")
    assert "".join(piece.text for piece in pieces) == plain_chatml(CHAT, False)
    assert [piece.text for piece in pieces if piece.is_trained] == ["Hello<|im_end|>\n", "See you<|im_end|>\n"]


def test_a_template_that_forgets_what_was_thought_lets_the_last_answer_be_learned() -> None:
    def forgetful(messages: Any, asks: bool) -> str:
        last = max(n for n, one in enumerate(messages) if one["role"] == "user")
        words = [one["content"] if one["role"] == "user" or n > last else "…" for n, one in enumerate(messages)]
        return "/".join(words) + ("/" if asks else "")

    pieces = cut(CHAT[1:], forgetful, "here")
    assert pieces[-1] == Piece("See you", True) and "Hello" not in pieces[0].text
    with pytest.raises(WorkerError, match="no message of the assistant can be learned"):
        cut(CHAT[:2], forgetful, "row 7")


def test_rows_are_dealt_out_evenly_and_up_to_the_most(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"text": f"{number}"} for number in range(100)))
    facts = prepared(tmp_path, path, validation_fraction=0.1)
    assert [text for _, text in samples(facts, "validation")] == [f"{number}|" for number in range(9, 100, 10)]
    facts = prepared(tmp_path, path, validation_fraction=0.1, train_samples=20, validation_samples=3)
    assert {split: one.samples for split, one in facts.splits.items()} == {"train": 20, "validation": 3}
    with pytest.raises(RequestError, match="a source is for validation already"):
        prepared(tmp_path, path, f"validation={path}", validation_fraction=0.1)


def test_sets_that_are_known_by_name_are_read_from_a_folder(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = {
        "gsm8k/main": [{"question": "1+1?", "answer": "2"}],
        "glue/sst2": [{"sentence": "fine", "label": 1}, {"sentence": "unknown", "label": -1}],
        "wiki/wikitext-2-raw-v1": [{"text": " = Title = \n"}, {"text": ""}],
        "wiki/wikitext-103-raw-v1": [{"text": "of another set"}],
    }
    for folder, content in rows.items():
        (tmp_path / folder).mkdir(parents=True)
        for split in ("train", "validation", "test"):
            parquet.write_table(pa.Table.from_pylist(content), tmp_path / folder / f"{split}-00000-of-00001.parquet")
    expected = {
        "gsm8k": ("gsm8k", [("Question: 1+1?\nAnswer:", " 2|")]),
        "glue/sst2": ("glue", [("Review: fine\nSentiment:", " positive|")]),
        "wikitext-2-raw-v1": ("wiki", [("", " = Title = \n|")]),
    }
    for name, (folder, found) in expected.items():
        facts = prepared(tmp_path, f"{name}={tmp_path / folder}")
        assert samples(facts) == samples(facts, "validation") == found, name


def test_dialogues_are_summarized(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        jsonl(tmp_path / f"dialogsum.{split}.jsonl", {"dialogue": split, "summary": "s"})
    facts = prepared(tmp_path, f"dialogsum={tmp_path}")
    assert samples(facts) == [("summarize: train\n", "s|")]
    assert samples(facts, "validation") == [("summarize: dev\n", "s|")]


def test_csv_has_rows_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('prompt,completion\n"two\nlines",b\n')
    assert samples(prepared(tmp_path, tmp_path / "a.csv")) == [("two\nlines\n", "b|")]


def test_rows_that_are_blank_and_columns_without_a_name_cost_nothing(tmp_path: Path) -> None:
    text = '\ufeff,prompt, completion\n\n,,\n0,a,b\n  ,  ,\n1,"c, ""d""","e\nf"\n'
    (tmp_path / "a.csv").write_text(text)
    found = samples(prepared(tmp_path, tmp_path / "a.csv"))
    assert found == [("a\n", "b|"), ('c, "d"\n', "e\nf|")]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("x\n".encode("utf-8-sig"))
    assert samples(prepared(tmp_path, tmp_path / "a.txt")) == [("", "x\n|")]


def test_columns_of_one_name_in_parquet_are_refused(tmp_path: Path) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    table = arrow.Table.from_arrays([arrow.array(["a"]), arrow.array(["b"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match=r"a\.parquet has two columns 'text'"):
        prepared(tmp_path, tmp_path / "a.parquet")


def test_rows_of_which_nothing_is_learned_are_told(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", {"text": "x"}, {"text": " "}, {"text": ""})
    told: list[str] = []
    prepare(CorpusRequest(sources=(str(tmp_path / "a.jsonl"),), model="tiny", layout="causal"), tmp_path, told.append)
    assert any("2 of 3 rows hold nothing to learn" in line for line in told)


def told_of(tmp_path: Path, *rows: Any, model: str = "tiny") -> list[str]:
    """What preparing such rows tells."""
    told: list[str] = []
    source = str(jsonl(tmp_path / "a.jsonl", *rows))
    prepare(CorpusRequest(sources=(source,), model=model, layout="causal"), tmp_path / "told", told.append)
    return told


def test_an_empty_answer_is_learned_as_the_end_of_a_text_and_told(tmp_path: Path, words: Path) -> None:
    rows = [
        {"prompt": "a", "completion": ""},
        {"prompt": "b </s>", "completion": ""},
        {"prompt": "c", "completion": "d"},
    ]
    assert samples(prepared(tmp_path, jsonl(tmp_path / "b.jsonl", *rows)))[0] == ("a\n", "|")
    facts = prepared(tmp_path, jsonl(tmp_path / "b.jsonl", *rows), model=str(words))
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(facts.folder, "train").tokens.read_bytes())
    assert list(tokens) == [~0, ~5, 1, ~0, ~6, ~1, 1, ~0, ~7, 8, 1]
    for model in ("tiny", str(words)):
        [line] = [one for one in told_of(tmp_path, *rows, model=model) if "empty" in one]
        assert "a.jsonl: 2 answers are empty, and the token that ends a text is all that is learned there" in line


def test_what_makes_no_token_to_learn_is_left_out_and_told(tmp_path: Path, words: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(words)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "endless")
    rows = [{"prompt": "a", "completion": ""}, {"prompt": "c", "completion": "d"}, {"prompt": "", "completion": " "}]
    told = told_of(tmp_path, *rows, model=str(tmp_path / "endless"))
    assert any("a.jsonl: 1 sample left out: nothing to be learned of it becomes a token" in line for line in told), told
    assert any("1 of 3 rows hold nothing to learn" in line for line in told), told


def test_a_tokenizer_that_is_damaged_is_a_file_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(ModelFileError, match=r"the tokenizer in .* cannot be used: "):
        OfTransformers(tmp_path, is_causal=True)


def test_pdf_files_become_documents_of_thirty_pages_and_a_tenth_of_the_files_is_for_validation(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    for number in range(10):
        pdf(folder / f"{number}.pdf", [f"file {number} page {page}" for page in range(32 if number == 3 else 1)])
    facts = prepared(tmp_path, folder)
    assert facts.splits["train"].samples + facts.splits["validation"].samples == 11
    every = [text for _, text in samples(facts) + samples(facts, "validation")]
    assert sorted(text.count("page") for text in every) == [1] * 9 + [2, 30]
    of_validation = {text.split(" page")[0] for _, text in samples(facts, "validation")}
    assert len(of_validation) == 1 and not any(of_validation & {text.split(" page")[0]} for _, text in samples(facts))
    (folder / "broken.pdf").write_text("%PDF-1.4 and no more")
    with pytest.raises(WorkerError, match=r"broken\.pdf cannot be read as PDF"):
        prepared(tmp_path, folder)


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.jsonl", '{"text": "x"}\n{"tex": "y"}\n', {}, r"a\.jsonl line 2 has no field 'text': it has tex"),
        ("a.jsonl", '{"text": "x"}\n{"text": null}\n', {}, r"line 2 has nothing in the field 'text'"),
        ("a.jsonl", '{"text": "x"}\nnonsense\n', {}, r"line 2 is no JSON: Expecting value at character 1\. One"),
        ("a.jsonl", '{"text": "x"}\n{"text": "b"\n', {}, r"line 2 is no JSON: Expecting ',' delimiter at character 13\. One"),
        ("a.jsonl", b'{"text": "' + b"x" * 2**16 + b'"}\n\xff\0\xfe\xff\n', {}, r"a\.jsonl is no text, it holds zero bytes"),
        ("a.csv", b"text\n" + b"x\n" * 2**16 + b"\xff\0\xfe\xff\n", {}, r"a\.csv is no text, it holds zero bytes"),
        ("a.jsonl", '["x"]\n', {}, r"line 1 holds list and no JSON object"),
        ("a.jsonl", '{"body": "x"}\n', {}, r"fields body.*columns\.text=FIELD.*columns\.messages=FIELD"),
        ("a.jsonl", '{"text": "x"}\n', {"txt": "x"}, r"no column 'txt'.*did you mean 'text'"),
        ("a.jsonl", '{"text": "x"}\n', {"prompt": "text"}, r"either text alone, or prompt and completion"),
        ("a.jsonl", '{"messages": []}\n', {}, r"a list of messages is needed"),
        ("a.jsonl", '{"messages": [{"role": "user"}]}\n', {}, r"no role or no content"),
        ("a.jsonl", "", {}, r"a\.jsonl: nothing to train on"),
        ("a.jsonl", '{"text": "  "}\n', {}, r"a\.jsonl: nothing to train on"),
        ("a.jsonl", '{"text": NaN}\n', {}, r"line 1 has a number and no text in the field 'text'"),
        ("a.jsonl", '{"text": "x"}\n{"text": true}\n', {}, r"line 2 has true or false and no text in the field 'text'"),
        ("a.jsonl", '{"text": 3}\n', {}, r"line 1 has a number and no text"),
        ("a.jsonl", '{"text": {"a": [1, 2]}}\n', {}, r"line 1 has an object and no text"),
        ("a.jsonl", '{"prompt": "x", "completion": ["y"]}\n', {}, r"line 1 has a list and no text in the field 'completion'"),
        ("a.jsonl", '{"q": 1.5, "a": "y"}\n', {"prompt": "Q: {q}", "completion": "a"}, r"a number and no text in the field 'q'"),
        ("a.jsonl", '{"q": false, "a": "y"}\n', {"prompt": "Q: {q}", "completion": "a"}, r"true or false and no text in the field 'q'"),
        ("a.jsonl", '{"text": "x\\u0000y"}\n', {}, r"line 1 has a zero byte in the field 'text'"),
        ("a.jsonl", '{"text": "x\\ud800y"}\n', {}, r"line 1 has half a character in the field 'text'"),
        ("a.jsonl", '{"messages": [{"role": "user", "content": "\\u0000"}]}\n', {}, r"line 1 has a zero byte in the field 'messages'"),
        ("a.csv", "text\nx\0y\n", {}, r"a\.csv line 2 (has a zero byte in the field 'text'|is no CSV)"),
        ("a.csv", "prompt,completion\na,b\nred, white and blue?,a flag\n", {}, r"a\.csv line 3 has 3 fields, and the header names 2\. .*between quotes"),
        ("a.csv", "prompt,completion\na,b\nc\n", {}, r"a\.csv line 3 has 1 field, and the header names 2"),
        ("a.csv", "prompt,completion,input\na,b,c\nd,e\n", {"prompt": "prompt", "completion": "completion"}, r"line 3 has 2 fields"),
        ("a.csv", "text\nhello, world\n", {}, r"line 2 has 2 fields, and the header names 1"),
        ("a.csv", "prompt,completion,\nred, white and blue?,a flag\n", {}, r"line 2 has a field behind those that the header names"),
        ("a.csv", 'prompt,completion\na,"b\nc,d\n', {}, r"a\.csv line 2 opens a quote that nothing closes"),
        ("a.csv", 'prompt,completion\n\na,b\n"He said "hi" to",x\n', {}, r"a\.csv line 4 is no CSV: .*each quote in it written twice"),
        ("a.csv", "text,text\na,b\n", {}, r"a\.csv line 1 names two columns 'text'"),
        ("a.jsonl", '{"text": "x"}\n{"text": "a", "text": "b"}\n', {}, r"line 2 is no JSON: the name 'text' stands twice"),
        ("a.txt", "x\n" * 2**17 + "\0", {}, r"a\.txt is no text, it holds zero bytes"),
        ("a.txt", "", {}, r"a\.txt: nothing to train on"),
        ("a.txt", "\0\1", {}, r"is no text"),
        ("a.parquet", "PAR1", {}, r"cannot be read as parquet"),
        ("a.jsonl", '{"text": "x"}\n{"text": "café"}\n'.encode("latin-1"), {}, r"line 2 is not written in UTF-8, it may be WINDOWS-1252 .*iconv -f WINDOWS-1252 -t UTF-8 \S+a\.jsonl > \S+a\.utf8\.jsonl"),
        ("a.jsonl", '{"text": "x"}\n'.encode("utf-16"), {}, r"line 1 .*looks like UTF-16\. .*iconv -f UTF-16 "),
        ("a.jsonl", '{"text": "x"}\n'.encode("utf-16-be"), {}, r"line 1 .*iconv -f UTF-16BE "),
        ("a.csv", "text\nthe “word” itself\n".encode("cp1252"), {}, r"a\.csv line 2 .*iconv -f WINDOWS-1252 "),
        ("a.txt", ("x\n" * 2**17 + "café\n").encode("latin-1"), {}, r"a\.txt line 131073 .*iconv -f WINDOWS-1252 "),
        ("a.txt", "abc\n".encode("utf-16-le"), {}, r"a\.txt line 1 .*iconv -f UTF-16LE "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_source_is_one_sentence_and_nothing_is_left(
    tmp_path: Path, name: str, content: str | bytes, columns: dict[str, str], said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HpcLlmError, match=said):
        prepared(tmp_path, path, columns=columns)
    assert [one.name for one in (tmp_path / "caches").glob("*") if not one.name.startswith(".digests")] == []


@pytest.mark.parametrize(
    ("text", "encoding", "candidate"),
    [
        ("Le café d'été, déjà vu.", "latin-1", True),
        ("Książka leży na stole w małym pokoju.", "cp1250", True),
        ("古池や蛙飛びこむ水の音", "shift-jis", False),
        ("カタカナノテスト", "shift-jis", False),
        ("訓練大型語言模型", "big5", False),
        ("训练大型语言模型", "gb18030", False),
        ("대규모 언어 모델", "euc-kr", False),
        ("Обучение модели", "cp1251", False),
        ("Обучение модели", "koi8-r", False),
    ],
)
@pytest.mark.parametrize("row", ["{}", '{{"prompt": "{0}", "completion": "{0}"}}'], ids=["txt", "jsonl"])
def test_an_encoding_that_the_bytes_do_not_decide_is_no_fact(
    tmp_path: Path, row: str, text: str, encoding: str, candidate: bool
) -> None:
    """Any bytes are a text in an encoding of one byte: what is named as one must be looked at, or garbage trains."""
    path = tmp_path / ("a.txt" if row == "{}" else "a.jsonl")
    path.write_bytes((row.format(text) + "\n").encode(encoding) * 3)
    with pytest.raises(HpcLlmError) as refused:
        prepared(tmp_path, path)
    said = str(refused.value)
    assert "looks like" not in said and "look whether line 1 can be read then: iconv" in said
    assert ("it may be " in said) == candidate and ("iconv -f ENCODING -t UTF-8 " in said) != candidate
    assert not candidate or {"latin-1": "WINDOWS-1252", "cp1250": "WINDOWS-1250"}[encoding] in said


@pytest.mark.parametrize(
    ("name", "begin", "said"),
    [
        ("a.txt", b"", r"a\.txt is no text, it holds zero bytes"),
        ("a.txt", b"x\n", r"a\.txt is no text, it holds zero bytes"),
        ("a.csv", b"text\nx\n", r"a\.csv is no text, it holds zero bytes"),
        ("a.csv", b'text\n"x', r"a\.csv is no text, it holds zero bytes"),
        (
            "a.jsonl",
            b'{"text": "x"}\n',
            r"a\.jsonl line 2 is longer than 1 MiB, and at most so much is read of one line",
        ),
    ],
)
def test_a_hole_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, begin: bytes, said: str
) -> None:
    monkeypatch.setattr(rows, "LONGEST_TEXT", 1 << 20)
    monkeypatch.setattr(rows, "_PIECE_CHARACTERS", 1 << 16)
    path = tmp_path / name
    path.write_bytes(begin)
    os.truncate(path, 1 << 28)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataFileError, match=said), path.open("rb") as file:
        one = SourceFile(str(path), {".txt": TEXT, ".csv": CSV, ".jsonl": JSONL}[path.suffix], TRAIN, None)
        list(build._chunks(path, 1.0) if one.kind == TEXT else rows.rows_of(one))
    assert file.closed and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "a\n" + "x" * (1 << 21), r"a\.txt line 2 is longer than 1 MiB"),
        ("a.jsonl", '{"text": "a"}\n{"text": "' + "x" * (1 << 21) + '"}\n', r"a\.jsonl line 2 is longer than 1 MiB"),
        ("a.csv", "text\na\n" + "x" * (1 << 21) + "\n", r"a\.csv line 3 is longer than 1 MiB"),
        ("a.csv", 'text\na\n"b\n' + "x\n" * (1 << 20), r"a\.csv line 3 begins a row of more than 1 MiB.* a quote that nothing closes"),
    ],
)  # fmt: skip
def test_a_line_or_a_row_without_an_end_is_refused_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, said: str
) -> None:
    monkeypatch.setattr(rows, "LONGEST_TEXT", 1 << 20)
    monkeypatch.setattr(rows, "_PIECE_CHARACTERS", 1 << 16)
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(HpcLlmError, match=said):
        prepared(tmp_path, path)


def test_a_text_is_taken_in_the_pieces_in_which_it_always_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_PIECE_CHARACTERS", 1 << 10)
    monkeypatch.setattr(build, "_CHUNK_CHARACTERS", 1 << 12)
    path, chance = tmp_path / "a.txt", random.Random(3)
    ends = ("\n", "\r\n", "\n\n", "\r")
    text = "".join("é" * chance.randrange(3) + "x" * chance.randrange(3000) + chance.choice(ends) for _ in range(300))
    path.write_text(text, encoding="utf-8", newline="")
    with path.open(encoding="utf-8", newline="") as file:
        expected = ["".join(lines) for lines in iter(lambda: file.readlines(1 << 12), [])]
    assert [one for _, one in build._chunks(path, 0.0)] == expected and "".join(expected) == text


def test_a_tokenizer_of_another_model_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    with pytest.raises(WorkerError, match="gives token 256, its model has 200 tokens"):
        prepared(tmp_path, path, vocab_size=200)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Nothing larger can be written, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_no_room_is_left_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 500_000 + "\n" + "y" * 500_000)
    with (
        pytest.raises(WorkerError, match=r"tokens cannot be written to .*file too large.*HPC_LLM_CACHE"),
        files_of_at_most(100_000),
    ):
        prepared(tmp_path, path)
    assert not list((tmp_path / "caches").glob("*")) or not list((tmp_path / "caches").glob("[!.]*"))
    assert prepared(tmp_path, path).splits["train"].tokens == 1_000_002


SLOWLY = """
import sys, time
from pathlib import Path
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.worker.preparing import build
build._TELL_EVERY_S = 0
tell = lambda text: (print(text, flush=True), time.sleep(60))
build.prepare(CorpusRequest(sources=(sys.argv[1],), model="tiny", layout="causal"), Path("caches"), tell, 512)
"""


def test_of_a_process_that_is_killed_nothing_is_taken_for_data(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"text": "x"} for _ in range(600)))
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, str(path)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and "256 samples" in process.stdout.readline()
    process.kill()
    process.wait()
    assert all(one.name.startswith(".making-") for one in (tmp_path / "caches").iterdir())
    assert prepared(tmp_path, path).splits["train"].samples == 600


def test_two_at_once_make_one_corpus(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"text": f"{number}" * 50} for number in range(3000)))
    found: list[CorpusFacts] = []
    threads = [threading.Thread(target=lambda: found.append(prepared(tmp_path, path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len({facts.folder for facts in found}) == 1
    assert found[0].splits["train"].samples == 3000
    assert [one.name for one in (tmp_path / "caches").iterdir() if not one.name.startswith(".digests")] == [
        found[0].key
    ]


def test_a_whole_number_may_stand_within_a_text(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"n": 2, "answer": "4"})
    facts = prepared(tmp_path, path, columns={"prompt": "{n}+{n}=", "completion": "answer"})
    assert samples(facts) == [("2+2=", "4|")]


@pytest.mark.parametrize("change", ["other text", "other file", "same size", "tokenizer", "there and back"])
def test_what_is_changed_while_it_is_read_is_not_kept(tmp_path: Path, words: Path, change: str) -> None:
    """Even where the new content has the old size, or the old one is back in the end."""
    folder, model = tmp_path / "data", tmp_path / "model"
    folder.mkdir()
    shutil.copytree(words, model)
    path = jsonl(folder / "a.jsonl", *({"text": "a b"} for _ in range(600)))
    old = path.read_bytes()

    def tell(text: str) -> None:
        if change == "other text":
            path.write_bytes(old + old)
        elif change == "other file":
            jsonl(folder / "b.jsonl", {"text": "c"})
        elif change == "same size":
            path.write_bytes(old.replace(b"a b", b"c d"))
        elif change == "tokenizer":
            (model / "tokenizer_config.json").write_text("{}")
        else:
            path.write_bytes(old.replace(b"a b", b"c d"))
            path.write_bytes(old)

    request = CorpusRequest(sources=(str(folder),), model=str(model), layout="causal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpc_llm.worker.preparing.build._TELL_EVERY_S", -1)
        with pytest.raises(WorkerError, match=r"was changed while it was read, and nothing was kept"):
            prepare(request, tmp_path / "caches", tell, 512)
    assert not list((tmp_path / "caches").glob("[!.]*")) and not list((tmp_path / "caches").glob(".making-*"))
    assert prepare(request, tmp_path / "caches", lambda text: None, 512).splits["train"].samples >= 600


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set found = namespace(text='x') %}{% for a in range(60) %}{% set found.text = found.text + found.text %}{% endfor %}",
    ],
)
def test_a_chat_template_without_end_is_stopped(
    tmp_path: Path, words: Path, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpc_llm.worker.preparing.limits.SECONDS", 0.5)
    model = tmp_path / "model"
    shutil.copytree(words, model)
    (model / "chat_template.jinja").write_text(template)
    path = jsonl(tmp_path / "a.jsonl", {"messages": CHAT})
    before = resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)
    with pytest.raises(WorkerError, match=r"a\.jsonl line 1: the model's chat template does not come to its end"):
        prepared(tmp_path, path, model=str(model))
    assert (resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer of words that begins and ends texts with tokens of its own, and has a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("words")
    names = ["<s>", "</s>", "<unk>", "<user>", "<bot>", *"abcdefgh"]
    made = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<user>", "<bot>"]})
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ '<user> ' if m.role == 'user' else '<bot> ' }}{{ m.content }}"
        "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<bot> {% endif %}"
    )
    tokenizer.save_pretrained(folder)
    return folder


def test_the_models_own_tokenizer_begins_and_ends_samples(tmp_path: Path, words: Path) -> None:
    found = OfTransformers(words, is_causal=True).samples(
        [[Piece("a b", False), Piece(" c", True)], [Piece("d", True)]]
    )
    assert found == [[([0], False), ([5, 6], False), ([7], True), ([1], True)], [([0], True), ([8], True), ([1], True)]]
    chat = [
        {"role": role, "content": text}
        for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    ]
    path = jsonl(tmp_path / "a.jsonl", {"messages": chat})
    facts = prepared(tmp_path, path, model=str(words))
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(facts.folder, "train").tokens.read_bytes())
    assert list(tokens) == [~0, ~3, ~5, ~4, 6, 1, ~3, ~7, ~4, 8, 1]
    assert facts.tokenizer != "bytes" and facts.vocabulary == 9


def t5_of(folder: Path, words: Path) -> str:
    """A model with an encoder and a decoder, and with that tokenizer."""
    folder.mkdir()
    for file in words.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text('{"is_encoder_decoder": true, "vocab_size": 13}')
    return str(folder)


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_encoder_reads_a_conversation_in_order_up_to_its_last_answer(
    tmp_path: Path, words: Path, is_answered: bool
) -> None:
    said = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")]
    chat = [{"role": role, "content": text} for role, text in said[: 4 if is_answered else 5]]
    path = jsonl(tmp_path / "a.jsonl", {"messages": chat})
    facts = prepared(tmp_path, path, model=t5_of(tmp_path / "t5", words))
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(facts.folder, "train").tokens.read_bytes())
    given = [~0, ~0, ~3, ~5, ~4, ~6, ~1, ~3, ~7, ~4]  # the tokenizer begins the text, and so does the template
    assert list(tokens) == [*given, 0, 8, 1]


def test_an_encoder_reads_what_is_given_and_a_decoder_writes_the_rest(tmp_path: Path, words: Path) -> None:
    t5_of(tmp_path / "t5", words)
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "a b", "completion": "c"})
    facts = prepared(
        tmp_path, path, model=str(tmp_path / "t5"), columns={"prompt": "prompt", "completion": "completion"}
    )
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(facts.folder, "train").tokens.read_bytes())
    assert list(tokens) == [~0, ~5, ~6, 0, 7]  # each as the tokenizer itself begins and ends a text
    assert (facts.layout, facts.splits["train"].trained_tokens) == ("seq2seq", 2)


HUB = """
import sys
from pathlib import Path
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.worker.preparing.build import prepare
request = CorpusRequest(sources=("gsm8k",), model="tiny", layout="causal")
try:
    print({split: one.samples for split, one in prepare(request, Path("caches"), print, 512).splits.items()})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_a_set_of_the_hub_comes_through_datasets(tmp_path: Path, is_there: bool) -> None:
    """`datasets` takes a folder of the name for the set itself, which stands in for the network here."""
    if is_there:
        folder = tmp_path / "openai" / "gsm8k"
        folder.mkdir(parents=True)
        for split, count in (("train", 3), ("test", 2)):
            jsonl(folder / f"{split}.jsonl", *({"question": f"{n}?", "answer": str(n)} for n in range(count)))
        files = "".join(f"  - split: {split}\n    path: {split}.jsonl\n" for split in ("train", "test"))
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: main\n  data_files:\n{files}---\n")
    done = subprocess.run(
        [sys.executable, "-c", HUB], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    if is_there:
        assert "{'train': 3, 'validation': 2}" in done.stdout, done.stdout + done.stderr
    else:
        assert "WorkerError the data set openai/gsm8k cannot be had from the Hub" in done.stdout, (
            done.stdout + done.stderr
        )
        assert "--data gsm8k=DIR" in done.stdout


@pytest.mark.parametrize(("behind", "ended"), [("\n", True), (" \n\n", True), ("", True), ("\nover", False)])
def test_a_template_that_ends_its_text_before_a_blank_is_given_no_second_end(
    tmp_path: Path, behind: str, ended: bool
) -> None:
    """ChatML writes a line's end behind the token that ends a turn: what is learned is what the template writes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {letter: number for number, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    made = Tokenizer(models.BPE(alphabet, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{{ '"
        + behind.replace("\n", "\\n")
        + "' }}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    facts = prepared(tmp_path, jsonl(tmp_path / "a.jsonl", {"messages": chat}), model=str(tmp_path / "model"))
    tokens = array(TOKEN)
    tokens.frombytes(SplitFiles(facts.folder, "train").tokens.read_bytes())
    own = tokenizer(tokenizer.apply_chat_template(chat, tokenize=False), add_special_tokens=False).input_ids
    found = [token if token >= 0 else ~token for token in tokens]
    assert found == (own if ended else [*own, tokenizer.eos_token_id])
