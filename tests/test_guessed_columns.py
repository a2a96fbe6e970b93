"""What the names of fields say of a row: nothing that belongs to a prompt is dropped without a word."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.corpus.columns import FIELD, check_first_rows, columns_of
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.corpus.sources import source_files
from hpc_llm.errors import DataRequestError, HpcLlmError, Notice, RequestError
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.preparing.pieces import Piece, reader_for

READ = {
    "a question of its passage": (
        {"instruction": "Who sang?", "context": "Ida sang.", "response": "Ida", "category": "closed"},
        "Who sang?\nIda sang.\n",
        ["category"],
    ),
    "an open one": ({"instruction": "Sing!", "context": "", "response": "La"}, "Sing!\n\n", []),
    "a passage, then the question": (
        {"id": "7", "context": "Ida sang.", "question": "Who sang?", "answer": "Ida"},
        "Ida sang.\nWho sang?\n",
        ["id"],
    ),
    "an input": ({"instruction": "Add", "input": "1 2", "output": "3", "text": "whole"}, "Add\n1 2\n", ["text"]),
    "all that a form has": (
        {"system": "Be brief.", "instruction": "Add", "input": None, "output": "3", "history": []},
        "Be brief.\nAdd\n\n",
        ["history"],
    ),
    "a system's prompt": (
        {"system_prompt": "Be brief.", "question": "1+2?", "response": "3", "answer": "3"},
        "Be brief.\n1+2?\n",
        ["response"],
    ),
    "a prompt that says it all": ({"prompt": "1+2?", "completion": "3", "question": "1+2"}, "1+2?\n", ["question"]),
}


def no_chat(messages: Sequence[Any], place: str) -> list[Piece]:
    return [Piece(f"{one['role']}: {one['content']}\n", one["role"] == "assistant") for one in messages]


@pytest.mark.parametrize(("row", "prompt", "left_out"), READ.values(), ids=READ)
def test_what_belongs_to_a_prompt_is_in_it(row: dict[str, Any], prompt: str, left_out: list[str]) -> None:
    reader = reader_for({}, None, row, "rows line 1", no_chat)
    asked, answered = reader.pieces(row, "rows line 1")
    assert asked.text == prompt and not asked.is_trained and answered.is_trained
    assert columns_of("rows line 1", row).left_out(row) == left_out
    assert all(name in reader.told(row) for name in left_out)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Who?", "passage": "Ida sang.", "answer": "Ida"},
        {"question": "Who?", "document": "Ida sang.", "background": "A stage.", "answer": "Ida"},
        {"instruction": "Say who.", "question": "Who?", "answer": "Ida"},
        {"instruction": "Say", "input": "who", "context": "Ida sang.", "output": "Ida"},
        {"prompt": "Who?", "context": "Ida sang.", "completion": "Ida"},
        {"source": "Wer?", "target": "Who?", "hint": "a question"},
    ],
    ids=" ".join,
)
def test_what_may_belong_to_it_is_refused_with_what_to_say(row: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="may belong to the prompt") as refused:
        columns_of("rows line 1", row)
    ways = list(str(refused.value).rstrip(".").split("--set columns.prompt=$")[1:])
    assert len(ways) == 2
    for way in ways:  # both can be followed
        prompt, _, completion = shlex.split(way.replace(";", " "))[:3]
        asked = {"prompt": prompt.replace("\\n", "\n"), "completion": completion.removeprefix("columns.completion=")}
        assert set(FIELD.findall(asked["prompt"])) <= set(row)
        assert reader_for(asked, None, row, "rows line 1", no_chat).pieces(row, "rows line 1")


def test_what_is_no_text_is_not_advised_as_a_part_of_the_prompt() -> None:
    row = {"instruction": "And now?", "output": "La", "history": [["Sing!", "La"]]}
    with pytest.raises(RequestError, match="has history beside output") as refused:
        columns_of("rows line 1", row)
    assert "{history}" not in str(refused.value) and "write it as text" in str(refused.value)


def test_a_later_row_that_says_more_than_the_first_is_refused_by_its_place() -> None:
    first = {"instruction": "Sing!", "output": "La", "history": []}
    reader = reader_for({}, None, first, "rows line 1", no_chat)
    with pytest.raises(RequestError, match=r"^rows line 9 has history"):
        reader.pieces({"instruction": "And now?", "output": "La", "history": [["Sing!", "La"]]}, "rows line 9")
    with pytest.raises(RequestError, match=r"^rows line 9 has context"):
        reader.pieces({"instruction": "Who?", "output": "Ida", "context": "Ida sang."}, "rows line 9")


def test_a_chat_has_its_system_message_in_a_field_of_its_own() -> None:
    chat = [{"from": "human", "value": "Sing!"}, {"from": "gpt", "value": "La"}]
    row = {"system": "Be brief.", "conversations": chat, "id": 1}
    reader = reader_for({}, None, row, "rows line 1", no_chat)
    assert [one.text for one in reader.pieces(row, "rows line 1")] == [
        "system: Be brief.\n",
        "user: Sing!\n",
        "assistant: La\n",
    ]
    for none in (
        {"conversations": chat},
        {"system": "", "conversations": chat},
        {"system": None, "conversations": chat},
    ):
        assert len(reader.pieces(none, "rows line 2")) == 2
    own = {"system": "Be brief.", "conversations": [{"from": "system", "value": "Be long."}, *chat]}
    assert next(one.text for one in reader.pieces(own, "rows line 3")) == "system: Be long.\n"
    with pytest.raises(RequestError, match="has tools beside its messages"):
        reader.pieces({**row, "tools": [{"name": "sum"}]}, "rows line 4")


def test_fields_that_are_left_out_are_told_once_and_stand_with_the_plan(own_folder: Path) -> None:
    path = own_folder / "rows.jsonl"
    row = {"instruction": "Who?", "context": "Ida sang.", "response": "Ida", "category": "closed"}
    path.write_text((json.dumps(row) + "\n") * 60)
    with pytest.warns(Notice, match="nothing is learned of category;"):
        check_first_rows(source_files((str(path),)), {})
    request = CorpusRequest(sources=(str(path),), model="tiny", layout="causal")
    made = prepare(request, own_folder / "caches", lambda text: None)
    assert made.read_as[str(path)] == ("prompt: {instruction}\\n{context}\\n, completion: response, left out: category")
    [one] = hpc_llm.plan(
        cluster="local", method="ddp", model="tiny", sequence_length=64, data=[str(made.folder)], steps=10
    )
    assert any("left out: category" in str(origin) for origin in one.origins.values())


def test_a_row_that_leaves_it_open_is_refused_before_a_job_waits_for_it(own_folder: Path) -> None:
    path = own_folder / "rows.jsonl"
    path.write_text(json.dumps({"question": "Who?", "passage": "Ida sang.", "answer": "Ida"}) + "\n")
    with pytest.raises(HpcLlmError, match="line 1 has passage beside answer"):
        check_first_rows(source_files((str(path),)), {})


@pytest.mark.parametrize("text", ["prompt,completion\na, b,c\n", "text,text\na,b\n", 'text\n"a\n'])
def test_a_table_whose_first_row_is_damaged_is_refused_when_planning(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataRequestError, match=r"--data \S+a\.csv line [12] "):
        check_first_rows(source_files([str(tmp_path / "a.csv")]), {})


def test_a_quote_that_is_closed_further_on_is_left_to_the_program(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"' + "é" * 2**20 + '"\n')
    check_first_rows(source_files([str(tmp_path / "a.csv")]), {})


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ('{"messages": "hi"}', "'messages' holds text"),
        ('{"conversations": {"a": 1}}', "'conversations' holds a mapping"),
        ('{"messages": []}', "'messages' holds an empty list"),
        ('{"messages": ["hi"]}', "'messages' holds a list of something else"),
        ('{"messages": null}', "'messages' holds nothing"),
    ],
)
def test_a_chats_field_with_another_value_is_told_as_that(line: str, holds: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(line + "\n")
    found = source_files([str(file)])
    needed = f"--data {file} line 1: the field {holds}, and a list of messages is needed, as in [{{"
    with pytest.raises(DataRequestError) as caught:
        check_first_rows(found, {})
    assert str(caught.value).startswith(needed)
    if "null" not in line:
        with pytest.raises(DataRequestError) as caught:
            check_first_rows(found, {"messages": line.split('"')[1]})
        assert str(caught.value).startswith(needed)
    file.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    check_first_rows(found, {})
    check_first_rows(found, {"messages": "messages"})


def test_a_chats_field_beside_a_text_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text('{"messages": "hi", "text": "Ida sang."}\n')
    with pytest.warns(Notice, match="nothing is learned of messages"):
        check_first_rows(source_files([str(file)]), {})
