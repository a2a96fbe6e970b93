"""A model that was to be read from a folder, and one that was to come from the Hub."""

from __future__ import annotations

from typing import Any

import pytest

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\n'
SAID = (
    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{}'. Use `repo_type` argument if needed.",
    "huggingface_hub.errors.HFValidationError: Repo id must use alphanumeric chars or '-', '_', '.', '--' and '..' are forbidden, '-' and '.' cannot start or end the name, max length is 96: '{}'.",
    "OSError: Incorrect path_or_model_id: '{}'. Please provide either the path to a local folder or the repo_id of a model on the Hub.",
    "OSError: {} is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    "OSError: Can't load tokenizer for '{}'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize(
    "folder", ["/models/llama-7b", "./out", "../out/last", "~/models/llama", "out/run3/checkpoint-500"]
)
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(said: str, folder: str, diagnose: Any) -> None:
    found = diagnose(f"{TRACEBACK}{said.format(folder)}\n")
    assert (found.cause.id, found.details["folder"]) == ("model_missing", folder)
    assert folder in found.remedy and "log in" not in found.remedy and "NAME" not in found.remedy


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("name", ["meta-llama/Llama-2-7b", "gpt2"])
def test_a_name_of_the_hub_is_looked_for_there(said: str, name: str, diagnose: Any) -> None:
    found = diagnose(f"{TRACEBACK}{said.format(name)}\n")
    assert found.cause.id == "model_missing" and "login node" in found.remedy and "folder" not in found.details


def test_a_command_that_is_advised_holds_the_folder_as_one_word(diagnose: Any) -> None:
    found = diagnose(f"{TRACEBACK}{SAID[2].format('/m/a; reboot')}\n")
    assert "ls -l '/m/a; reboot'" in found.remedy
