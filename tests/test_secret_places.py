"""Keys behind `login`, in addresses that tell of a job's end, in printed tables and on the line below their name."""

from __future__ import annotations

import random
import string

import pytest

from hpc_llm.text.secrecy import find_secret, is_secret, redacted

_DRAWN = random.Random(7)


def drawn(length: int) -> str:
    """A word as services draw their keys: of both cases and digits."""
    while True:
        word = "".join(_DRAWN.choices(string.ascii_letters + string.digits, k=length))
        if sum(map(str.isdigit, word)) > 1 and word[0].isalpha() and not (word.islower() or word.isupper()):
            return word


KEYS = [drawn(21) for _ in range(20)]
UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    "form",
    [
        "swanlab login -k {}", "swanlab login {}", "swanlab login --relogin -k {}", "swanlab login -k={} && python t.py", "swanlab login -k '{}'",
        "srun bash -c 'swanlab login --host https://s.uni.example {}'", "comet login -k {}", "zeus cloud login -t {}", "trackers login --relogin {}; python t.py",
        "+ swanlab login -k {}", "│ hf_token │ {} │", "│hf_token│{}│ 3 │", "┃ wandb_api_key ┃ {} ┃", "║ hub_token ║ '{}' ║",
        "hf_token:\n  {}", "hub:\n  hf_token:\n    {}\n  lr: 1", "hf_token:\n\n  '{}' # mine\nlr: 1", 'api_key: # of the hub\n  "{}"', '{{\n"hf_token":\n  "{}",\n"lr": 1}}',
        "[rank0]: hf_token:\n[rank0]:   {}\n[rank0]: lr: 1", "api_keys:\n  - {}\n  - '{}'\nlr: 1", "api_keys:\n- {}\n- {} # mine",
    ],
)  # fmt: skip
def test_a_key_is_hidden_where_it_stands(form: str) -> None:
    for key in KEYS:
        text = form.format(key, key)
        assert is_secret(text) and redacted(text) == form.format("(hidden)", "(hidden)")


def test_a_key_in_the_words_of_a_call_is_hidden() -> None:
    for key in KEYS:
        for words in (["swanlab", "login", key], ["swanlab", "login", "-k", key]):
            assert find_secret({"command": words}) and key not in redacted(f"subprocess.run({words})")


@pytest.mark.parametrize("value", ["swordfish", "hunter22", UUID])
def test_a_password_on_the_next_line_is_hidden(value: str) -> None:
    text = f"db_password:\n  {value}\nsteps: 3"
    assert is_secret(text) and redacted(text) == "db_password:\n  (hidden)\nsteps: 3"


@pytest.mark.parametrize(
    "form",
    [
        "https://sctapi.ftqq.com/SCT{}.send", "curl sctapi.ftqq.com/SCT{}.send?title=done", "https://sc.ftqq.com/SCU{}.send", "https://12.push.ft07.com/send/sctp12t{}.send",
        "https://xizhi.example/XZ{}.send", "https://api.day.app/{}/done", "https://heartbeat.uptimerobot.com/m1-{}", "https://cronitor.link/p/{}/job",
    ],
)  # fmt: skip
def test_an_address_that_tells_of_the_end_of_a_job_is_hidden(form: str) -> None:
    for key in (drawn(30) for _ in range(20)):
        assert is_secret(form.format(key)) and key not in redacted(form.format(key))


@pytest.mark.parametrize(
    "form", ["https://hc-ping.com/{}", "curl -m 10 hc-ping.com/{}/fail", "https://checks.uni.example/ping/{}/start"]
)
def test_the_check_that_an_address_pings_is_hidden(form: str) -> None:
    assert is_secret(form.format(UUID)) and redacted(form.format(UUID)) == form.format("(hidden)")


def test_a_token_of_dropbox_is_known_by_its_beginning() -> None:
    for before in ("sl.", "sl.u.", "sl.B"):
        for key in (drawn(130) for _ in range(20)):
            assert is_secret(f"{before}{key}") and redacted(f"put {before}{key} x") == "put (hidden) x"


@pytest.mark.parametrize(
    "text",
    [
        "docker login registry.example.org", "docker login 0123456789abcdef0123.azurecr.io", "helm registry login host01:5000", "argocd login cd.uni.example -k 8443",
        "run swanlab login to see your runs", "wandb login --relogin", "swanlab login -k $SWANLAB_API_KEY", "swanlab login -k <your key>", "Last login Thu Nov 26 20:01:12 2026 from gn0123456789",
        "on the login 20260731-120000-taiwania2-z3o-llama2-7b-a1b2", "submitted from login node 20260731-120000-taiwania2-z3o-a1b2c3d4", "ssh me@login 0123456789012345",
        "https://hc-ping.com/docs/python", "https://docs.example/ping/20260731-120000-taiwania2-z3o-a1b2", "https://status.example/ping/gn0123", f"https://x.example/runs/{UUID}",
        "torch.sl.softmax_with_a_long_name_of_words_and_no_secret_in_it_at_all_whatever", "sl.md5", "│ num_tokens │ 8192 │", "│ token │ count │", "│ hf_token │ None │", "│ pad_token │ endoftext1234 │",
        "│ model │ lora_r8_alpha16_dropout005_lr1e4 │", "│ commit │ 0123456789abcdef0123456789abcdef01234567 │", "│ cache_key │ layers_0_attention_weight_4096 │",
        "│ run │ 20260731-120000-taiwania2-z3o-llama2-7b-a1b2 │", "│ tokens_per_token │ 12345.6MiB/s │", "hf_token:\n  name: x1y2z3", "tokens:\n  8192", "keys:\n  - q_proj\n  - layers_0",
        "secrets:\n  - db_password\n  - hf_token", "hf_token:\n  null", "hf_token:\n  ${HF_TOKEN}", "password:\n  required", "hf_token:\nsteps1000: 3", "pad_token:\n  endoftext1234",
        "special_tokens:\n  - im_start1\n  - im_end1", "hf_token:\n  - name: a1b2c3", "self.token:\n    return x1", "if not token:\n    break", "hf_token:\n  <your token>",
        "model_key:\n  meta-llama/Llama-3.1-8B", "run:\n  20260731-120000-taiwania2-z3o-llama2-7b-a1b2", "token:\n    raise",
    ],
)  # fmt: skip
def test_what_only_stands_in_such_a_place_is_kept(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)
