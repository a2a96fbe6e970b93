"""Names and words that sound like secrets and are none stay readable; beside each what it must not let through."""

from __future__ import annotations

import pytest

import hpc_llm
from hpc_llm.errors import RequestError
from hpc_llm.text.secrecy import is_secret, redacted, without_secrets

DRAWN = "aB3dE6gH9jK2mN5pQ8sT1vW4"
COLUMNS = [
    "sort_key",
    "dataset_key",
    "input_key",
    "label_key",
    "reward_key",
    "reward_fn_key",
    "JSON_KEYS",
    "INPUT_KEY",
    "imageKey",
]


@pytest.mark.parametrize("name", COLUMNS)
def test_the_name_of_a_column_is_no_secret_and_a_drawn_value_is(name: str) -> None:
    for value in ("text", "text,label", "content"):
        assert not is_secret(value, name) and redacted(f"{name}={value}") == f"{name}={value}"
        assert without_secrets({name: value}) == {name: value}
    assert is_secret(DRAWN, name) and DRAWN not in redacted(f"{name}={DRAWN}")


@pytest.mark.parametrize("name", ["secret_key", "api_key", "SIGNING_KEY", "OPENAI_API_KEY", "data_key", "KEY"])
def test_other_keys_are_as_secret_as_before(name: str) -> None:
    assert is_secret("swordfish", name)


HARMLESS = """OPENAI_API_KEY=EMPTY
export OPENAI_API_KEY=EMPTY
--api-key EMPTY
JSON_KEYS=text,label"""


@pytest.mark.parametrize("line", HARMLESS.splitlines())
def test_harmless_lines_stay(line: str) -> None:
    assert redacted(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "invalid token: {}", "Invalid API key: {}", "wrong password: {}", "docker login -p {}", "podman login -u me -p {}", "OPENAI_API_KEY={}",
        "set HF_TOKEN {}", "invalid access token: {}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("secret", ["swordfish1", "hunter22", DRAWN])
def test_secrets_in_the_same_places_are_hidden(line: str, secret: str) -> None:
    assert secret not in redacted(line.format(secret))


def test_a_refusal_from_python_says_its_verb() -> None:
    with pytest.raises(RequestError, match=r"^set env\.HF_TOKEN holds what looks like a secret"):
        hpc_llm.plan(cluster="local", method="ddp", model="tiny", set={"env": {"HF_TOKEN": "abc99defzz"}})
