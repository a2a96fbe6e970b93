"""Secrets: refused wherever a record would keep them, without a word of them; their way in is a file of the user's own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from pace import is_within
from rendering import batch, planned
from rights import needs_root
from standin import Machine

from hpc_llm.cli import run
from hpc_llm.records.run import Stop
from hpc_llm.text.env_file import EnvFileError, is_reserved, parse
from hpc_llm.text.secrecy import _WORD, has_secret_shape, is_secret, redacted
from hpc_llm.text.secret_names import is_secret_name

TOKEN = "hf_AbCdEfGhIj1234567890"
LOCAL = ("--cluster", "local", "--method", "z2", "--model", "tiny")


@pytest.mark.parametrize(
    "name",
    """HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID DB_PASSWORD PASSWD MY_CREDENTIALS
    APIKEY WANDB_APIKEY api_key apiKey hubToken KEY TOKEN2 SSH_PASSPHRASE OPENAI_KEYS PGPASSWORD MYSQL_PWD DB_PASS HF_AUTH
    REDISPASSWORD GITHUB_PAT MY_APIKEY DBPASSWD AZURE_STORAGE_ACCOUNT_KEY AZURE_CLIENT_SECRET SENTRY_DSN MY_CRED CRED LDAPPW DBPW PWORD GITHUB_OAUTH API_KEY_PROD db_pass
    AWS_SESSION_TOKEN accessToken npmAuthToken""".split(),
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name) and is_secret("whatever", name)
    for harmless in ("", "0", "1", "true", "no", "${OTHER}", "$OTHER"):
        assert not is_secret(harmless, name)


@pytest.mark.parametrize(
    "name",
    """TOKENIZERS_PARALLELISM SSH_AUTH_SOCK KEYBOARD MONKEY COMPASS KEYRING_BACKEND HF_TOKEN_PATH SSL_KEY_FILE NUM_TOKENS
    tokens_per_second TOKENIZER PASSENGERS NCCL_DEBUG PATH HOTKEY SECRETARY MAX_TOKENS NUM_KEY_VALUE_HEADS PWD OLDPWD AUTHOR
    PASS_RATE BYPASS PASSED XAUTHORITY SSH_PUBLIC_KEY KEY_LENGTH TOKEN_LIMIT AUTH_METHOD CREDENTIAL_HELPER COMPAT KEYFRAMES
    num_key_value_heads TOKEN_TYPE PATH_TO_MODEL pass IGNORE_KEYS MISSING_KEYS STATE_DICT_SKIP_KEYS KEYS_TO_IGNORE_AT_INFERENCE""".split(),
)
def test_names_that_only_look_like_them(name: str) -> None:
    assert not is_secret_name(name) and not is_secret("whatever", name)


SECRETS = [
    TOKEN, "hf_abcdefghijklmnopqrstuvwxyz", "sk-abcdef1234567890abcdef", "sk-proj-abcdefghij1234567890",
    "sk-ant-api03-abcdefghijklmno1234", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "github_pat_11ABCDEFG0123456789_abc",
    "AKIAIOSFODNN7EXAMPLE", "glpat-abcdefghij1234567890", "xoxb-123456789012-abcdef", "-----BEGIN RSA PRIVATE KEY-----\nMII",
    "-----BEGIN OPENSSH PRIVATE KEY-----", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefgh123", "https://user:pass@host/x",
    "http://u:p@proxy:3128", "https://:tok@host", f"run-{TOKEN}", f"/models/{TOKEN}/x", "export WANDB_API_KEY=plainword",
    "api_key:plainword", "dckr_pat_AbCdEfGhIj1234567890abcd", "Authorization: Bearer abcdef1234567890", "Authorization: Basic dXNlcjpwYXNz",
    "curl -H 'authorization: token abcdef123456'", "bearer abcdefghijkl0123456789", "https://0123456789abcdef0123456789abcdef@host/x",
    "postgresql+psycopg2://me:word@db/x", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AccountKey=abcdefghijklmnop1234567890ABCDEFG==",
    "Endpoint=sb://x/;SharedAccessKey=abcdefghijklmnop1234567890ABCDEFG=", "https://x/y?sv=1&sig=abcdefghij0123456789%2Babc", "PGPASSWORD=word",
    "export MYSQL_PWD='two words'", '{"WANDB_API_KEY":"0123456789abcdef0123456789abcdef01234567"}', "api_key = 0123456789abcdef0123456789abcdef",
    "--token 0123456789abcdef0123456789abcdef", "npm_abcdefghijklmnopqrstuvwxyz0123456789", "pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3ODk",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv", "sk_live_abcdefghij1234567890", "hvs.abcdefghijklmnopqrstuvwx", "abc8Q~abcdefghijklmnopqrstuvwxyz012345678",
    "https://conda.anaconda.org/t/do-9b1c3f7a-2d4e-4c5b-8a6f-1e2d3c4b5a69/lab", "https://repo.anaconda.cloud/t/Ab12Cd34Ef56/repo/main",
    "https://hooks.slack.com/services/T00000000/B00000000/abcdefgh", "gsk_AbCdEfGh01AbCdEfGh01WGdyb3FYAbCdEfGh01AbCdEfGh01",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc",
    # headers, whole or assigned
    "AUTHORIZATION: Basic dXNlcjpwYXNz", "Authorization: Bearer plainword", "Proxy-Authorization: Digest abcdef12", "X-Api-Key: 0123abcd",
    "x-auth-token: plainwords", "PRIVATE-TOKEN: abcdef123", "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer abc123def",
    "H='authorization=Basic dXNlcjpwYXNz'", "-H 'x-goog-api-key: abcdef123'", "header basic dXNlcjpwYXNz", "Cookie: session=abcdef0123456789",
    # trackers
    "WANDB=0123456789abcdef0123456789abcdef01234567", "WANDB_LOGIN: 0123456789abcdef0123456789abcdef01234567",
    "wandb login --relogin 0123456789abcdef0123456789abcdef01234567", "COMET=abcdefghijklmnopqrstuvwxy1",
    "machine api.wandb.ai login user password 0123456789abcdef0123456789abcdef01234567",
    # other services
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", "sk-ant-sid01-Ab-cdefghij_k12", "sk-svcacct-abc_DEF-123456789012345678", "whsec_abcdefghijklmnopqrstuvwx12",
    "pplx-abcdefghijklmnopqrstuvwxyz0123456789abcdef", "xai-abcdefghijklmnopqrstuvwxyz0123456789", "1//0gabcdefghijklmnopqrstuvwxyz",
    "shpss_0123456789abcdef0123456789abcdef", "lin_api_abcdefghijklmnopqrstuvwxyz0123456789", "KGAT_0123456789abcdef0123456789abcdef",
    "123456789:AAEhBOweik6ad9r_QXMENQjcrbGa-12345a", "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "HF_TOKEN?=abcdef12345", "HF_TOKEN ?= hf_abcdefghijkl", "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
    "https://discord.com/api/webhooks/123456789012345678/abcdefghijklmnopqrstuvwxyz", "sq0csp-abcdefghijklmnopqrstuvwxyz01234567890",
    "X-Amz-Signature=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "PuTTY-User-Key-File-2: ssh-rsa",
    # programs
    "curl -u user:pass https://x", "curl -s --user me:pass x", "sshpass -p hunter2 ssh x", "--api-key abc123", "--hf-token plainword",
    # forms that are told from names by their length and letters
    "r8_AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfG", "my_r8_AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfG", "glsa_AbCdEfGh01AbCdEfGh01AbCdEfGh01Ab_0a1b2c3d", "ntn_01234567890AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCde",
    "shpat_0123456789abcdef0123456789abcdef", "shpca_0123456789abcdef0123456789abcdef", "tgp_v1_Ab-dEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01AbC",
    "wandb_v1_AbCdEfGh01AbCdEfGh01Ab_AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01", "sk-AbCd_fGh01AbCdEfGh01Ab", "glrt-AbCd_fGh01-bCdEfGh01",
    "github_pat_11ABCDEFG0123456789abc_AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh0", "vercel_blob_rw_AbCdEfGh01AbCdEf_AbCdEfGh01AbCdEfGh01AbCdEfGh01",
    "nvapi-Ab_dEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfGh01-bCd", "rnd_abcdefgh12345678ijklmnop9012qrst",
    "wget --password=abcd x", "AWS=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
]  # fmt: skip


UNKNOWN_TO_THE_LIST = [
    "jina_0123456789abcdef0123456789abcdefAbCdEfGhIjKlMnOpQrStUvWx12", "lsv2_pt_0123456789abcdef0123456789abcdef_0123456789",
    "sbp_0123456789abcdef0123456789abcdef01234567", "ATATT3xFfGF0abcDEF-ghi_JKL123mnoPQR=AB12CD34", "vcp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o",
    "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", "fw_3ZabcDEFghiJKLmno456pqrs", "csk-abcdefgh12345678ijklmnop9012qrst34uvwx56yz",
    "patAbCdEfGhIjKlMn.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "pat_AbCdEfGh1234IjKlMnOp5678QrSt",
    "https://x.blob.core.windows.net/c?sv=2022-11-02&sr=c&sig=aB3dE6gH9jK2mN5pQ8sT1vW4yZ7%2BcF0hI3lM6oR9u%3D",
    "newservice_x9K2mQ7pL4vR8tZ1nB6wY3cD5fG", "abc-live-Zk3Lq9Xw2Vb7Nm4Tp8Rs1Yc6", "zz_aB3dE6gH9jK2mN5pQ8sT1v",
    "the password is hunter2", "password is swordfish", "Passphrase is 'correct-horse-battery'", "The password was Tr0ub4dor&3.",
]  # fmt: skip


@pytest.mark.parametrize("text", UNKNOWN_TO_THE_LIST)
def test_keys_of_services_that_nobody_listed_one_by_one(text: str) -> None:
    assert is_secret(text) and is_secret(f"before {text} after") and is_secret(f"KIND={text}")
    assert text not in redacted(f"before {text} after")


@pytest.mark.parametrize(
    "text",
    [*"""20260731-120000-taiwania2-z3o-llama2-7b-a1b2 run-0123456789abcdef0123456789abcdef exp_9e844d7c4af500c6c4acd18d670933031930123456789abc
    run-550e8400-e29b-41d4-a716-446655440000 wandb-run-20240101_120000-a1b2c3d4 nvhpc-24.11_hpcx-2.20_cuda-12.6 miniconda3/conda24.5.0_py3.9
    python-3.10.8-6xnnuwuzcrsqxjbe3cdkxqxvnz3ojfdk gcc-6xnnuwuzcrsqxjbe3cdkxqxvnz3ojfdk job-MyModelV2Experiment3FinalRun exp-Lr1e4Bs32Sl2048Ga8Fp16Zero3
    meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 checkpoint-0000000000000000001000 TinyLlama-1.1B-intermediate-step-1431k-3T Qwen2.5-Coder-32B-Instruct-GPTQ-Int4
    cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_64x3_tn_align8 ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn
    _ZN2at6native29vectorized_elementwise_kernelILi4EN2at6native13BinaryFunctorIfffNS1 ncclDevKernel_AllReduce_Sum_f16_RING_LL
    pa_hidden_size_4096_num_layers_32 fw_bw_time_per_step_seconds_2048 key_value_projection_weight_0 token_embeddings_position_ids_1 /data/jina_models/x2
    NVIDIA-A100-SXM4-80GB gpu-a100-80gb-partition-01 taiwania2-llama2-7b-z3o-hpc2-0123abcd fc-layer-norm-weights-checkpoint-00010
    PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7 GPU-8f9d6a2b-1c3e-4d5f-9a7b-0c1d2e3f4a5b""".split(),
     "the password is required", "password is not set", "Password is incorrect.", "the passphrase is too short", "password was expired",
       "a password is being asked for", "password is empty"],
)  # fmt: skip
def test_what_only_looks_like_a_key_passes(text: str) -> None:
    assert not is_secret(text) and redacted(f"before {text} after") == f"before {text} after"


@pytest.mark.parametrize("before", ["", "lora_", "exp-", "10cat_4bit_", "logs/x/"])
@pytest.mark.parametrize(
    "prefix",
    """r8_ gsk_ glsa_ ntn_ shpat_ tgp_v1_ wandb_v1_ sk- glft- glrt- github_pat_ vercel_blob_rw_ dckr_pat_ pypi- nvapi- hf_ gho_ sk_test_ figd_ rpa_
    secret_ npm_ tskey- ms- fw_ fc- re_ rnd_ pa_ key_ token_ exa_ ek_ lf_ pk_ ops_ e2b_""".split(),
)  # fmt: skip
def test_a_name_of_words_that_begin_as_a_key_does_passes(prefix: str, before: str) -> None:
    for words in (
        "alpha16_dropout005_lr1e4_bs16_seed42", "alpha16-dropout005-lr1e4-bs16-seed42", "math_reasoning_lr1e4_seed42_8b", "lr1e4_p3_20260506_012852",
        "alpha16_all_linear_3epochs_llama3", "run_20260506012852123456", "mistral7b_qlora_4bit_20260506_012852_run_003_final_model_checkpoint_00010",
    ):  # fmt: skip
        text = f"{before}{prefix}{words}"
        assert not is_secret(text) and redacted(f"see {text} x") == f"see {text} x", text


@pytest.mark.parametrize(
    "name", ["hf_datasets6750", "hf_Llama3Finetune", "hf_trainer2024", "hf_finetune20260506", "hf_accelerate3launch12"]
)
def test_a_file_of_words_and_numbers_behind_hf_is_no_key(
    name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not is_secret(name) and redacted(f"see {name}.log") == f"see {name}.log"
    Path(f"{name}.log").write_text("{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n")
    assert run(["parse", f"{name}.log"]) == 0
    assert f"{name},{name}.log," in capsys.readouterr().out


def test_a_key_of_the_hub_is_one_however_its_letters_fall() -> None:
    drawn = random.Random(1)
    keys = ["hf_" + "".join(drawn.choices(string.ascii_letters, k=34)) for _ in range(200)]
    keys += [f"hf_{letters}" for letters in ("Words" * 6 + "more", "a" * 34, "word1" * 6 + "last", "words" * 4)]
    assert all(is_secret(key) and key not in redacted(f"see {key}.log") for key in keys)


def test_a_run_may_have_the_name_of_an_adapter_of_rank_8(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", "--cluster", "mi210", "--method", "lora", "--model", "tiny", "--name"]
    assert run([*words, "lora_r8_alpha16_dropout005_lr1e4_bs16_seed42"]) == 0
    assert "lora_r8_alpha16_dropout005_lr1e4_bs16_seed42" in capsys.readouterr().out
    assert run([*words, "lora_r8_AbCdEfGh01AbCdEfGh01AbCdEfGh01AbCdEfG"]) == 2
    assert "holds what looks like a secret" in capsys.readouterr().err


def test_the_label_of_accounting_is_no_secret(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", "--cluster", "mi210", "--method", "z2", "--model", "tiny", "--sbatch", "wckey=climate"]
    assert run(words) == 0
    assert "--wckey=climate" in capsys.readouterr().out
    assert run([*words[:-1], f"wckey={TOKEN}"]) == 2
    assert TOKEN not in capsys.readouterr().err
    Path("clusters").mkdir()
    Path("clusters/mine.yaml").write_text("extends: mi210\nrequest: {extra: [wckey=climate]}\n")
    Path("e.yaml").write_text("cluster: mine\nmethod: z2\nmodel: tiny\n")
    assert run(["render", "e.yaml"]) == 0
    assert "--wckey=climate" in capsys.readouterr().out


@pytest.mark.parametrize("text", SECRETS)
def test_shapes_of_secrets(text: str) -> None:
    assert is_secret(text) and is_secret(f"before {text} after")
    assert redacted(f"before {text} after") != f"before {text} after" or text == "api_key:plainword"


@pytest.mark.parametrize(
    "text",
    [
        "/data/hf_transformers/llama", "hf_trainer_state", "sk-llama2-7b-finetune-run-01", "sk-learn", "http://proxy:3128",
        "https://huggingface.co/x@main", "git@github.com:foo/bar.git", "ssh://git@host/x", "meta-llama/Llama-2-7b-hf",
        "disk-0123456789abcdef", "https://host:8080/a@b", "task-abcdefghijklmnopqrst", "a@b:c", "ghp_short", "lr=1e-4",
        "/work/AKIA/x", "0123456789abcdef0123456789abcdef01234567", "gpu:a100:4", "a: b", "key=1",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "550e8400-e29b-41d4-a716-446655440000",
        "commit 9e844d7c4af500c6c4acd18d670933031930123456789abc", "/work/projects/Group7/Datasets/RedPajama2/shards/part0001",
        "the bearer of this", "Bearer tokens are not shown", "max_tokens=4096", "pad_token=0", "num_key_value_heads: 8", "TOKEN=12345678",
        "KEY_LENGTH=2048", "SHA256:uNiVztksCsDhcJ3Yz0r5Yb5w3vJ7Q7LrO4mWm3cMVrk", "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8",
        "https://user@host/x", "torch-2.5.1+cu124-cp311-cp311-linux_x86_64.whl", "key, value and query", "token: see `wallet`",
        "WANDB_RUN_ID=0123456789abcdef0123456789abcdef01234567", "WANDB_GIT_COMMIT: 0123456789abcdef0123456789abcdef01234567",
        "wandb: https://wandb.ai/team/project/runs/0a1b2c3d", "WANDB_PROJECT=llama-2-7b-finetune-run-01", "WANDB_MODE=offline", "wandb login",
        "WANDB_DIR=/work/0123456789abcdef0123456789abcdef01234567", "commit=0123456789abcdef0123456789abcdef01234567",
        "COMET_REVISION=0123456789abcdef0123456789abcdef01234567", "sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "models--meta-llama--Llama-2-7b-hf/snapshots/01c7f73d771dfac7d292323805ebc428287df4f9", "md5: d41d8cd98f00b204e9800998ecf8427e",
        "/scratch/Qwen2.5-Coder-32B-Instruct-GPTQ-Int4", "basic training", "a basic benchmark", "bearer plainword of the news", "rsync -u host:path x",
        "docker run -u 1000:1000 x", "--pad-token 0", "--sort-key name", "--api-key $KEY", "--api-key ${KEY}", "--max-tokens 4096", "X-Api-Key: $KEY",
        "authorization: none", "curl -sSL https://x/y:z", "sk-admin-dashboard", "task-rpa_pipeline", "xai-explain", "OMP_PLACES={0}:4:8",
        "550E8400-E29B-41D4-A716-446655440000", "run_550e8400e29b41d4a716446655440000", "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77",
        "git+https://github.com/x/y@0123456789abcdef0123456789abcdef01234567", "nvcr.io/nvidia/pytorch:24.05-py3", "secret_santa", "cookie: yes",
        "NVIDIA-H100-80GB-HBM3-MIG-1g", "llama2-7b-z3o-20260101-120000-abcdef", "PWD=/work/me", "PASS_RATE=high", "A100-SXM4-40GB",
    ],
)  # fmt: skip
def test_texts_that_only_look_like_them(text: str) -> None:
    assert not is_secret(text) and redacted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "x-" * 100_000,
        "--api-" * 40_000,
        "curl " * 40_000,
        "basic " * 40_000,
        "a" * 200_000,
        "a:" * 100_000,
        "a://" * 50_000,
        "x=" * 50_000,
        "eyJ-" * 20_000,
        "sk-aa-" * 30_000,
        "a-" * 100_000,
    ],
)
def test_a_long_text_takes_no_long_time(text: str) -> None:
    started = time.process_time()
    is_secret(text, text)
    redacted(text)
    assert is_within(time.process_time() - started, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AUTH_HEADER", "abcdefgh"), ("AUTH_HEADER", "Bearer plainword"), ("ANY", "Bearer plainword"), ("HTTP_HEADERS", "Authorization=Bearer abc"),
        ("WANDB", "0123456789abcdef0123456789abcdef01234567"), ("wandb", "0123456789abcdef0123456789abcdef01234567"),
        ("SWANLAB", "abcdefghij0123456789ABCDE"), ("NEPTUNE", "eyJhcGlfYWRkcmVzcyI6Imh0dHBzOi8vYXBwLm5lcHR1bmUuYWkiLCJhIjoiMSJ9"),
        ("ANY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ],
)  # fmt: skip
def test_a_value_under_a_name_that_tells(name: str, value: str) -> None:
    assert is_secret(value, name) and is_secret(f"{name}={value}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_RUN_ID", "0123456789abcdef0123456789abcdef01234567"), ("GIT_COMMIT", "0123456789abcdef0123456789abcdef01234567"),
        ("WANDB_NAME", "llama2-7b-z3o-20260101-120000-abcdef"), ("REVISION", "0123456789abcdef0123456789abcdef01234567"),
        ("AUTH_HEADER", "$TOKEN"), ("HTTP_HEADERS", "Accept=text/html"), ("WANDB", "disabled"), ("WANDB_MODE", "offline"),
        ("MLFLOW_TRACKING_URI", "https://mlflow.some-university.example/tracking1"), ("NAME", "bearer"), ("NAME", "token classification"),
    ],
)  # fmt: skip
def test_a_value_under_a_name_that_tells_nothing(name: str, value: str) -> None:
    assert not is_secret(value, name) and not is_secret(f"{name}={value}")


def test_a_message_names_variables_and_hides_what_they_hold() -> None:
    assert redacted(f"HF_TOKEN=plainword and {TOKEN}, key=len") == "HF_TOKEN=(hidden) and (hidden), key=len"


FLAGS = [
    ("--set", f"env.HF_TOKEN={TOKEN}"), ("--set", f"env.ANY={TOKEN}"), ("--set", "env.WANDB_API_KEY=plainword"),
    ("--set", f"optimizer.lr={TOKEN}"), ("--set", "deepspeed.comet={api_key: plainword}"), ("--set", f"deepspeed.x.y=[{TOKEN}]"),
    ("--set", f"{TOKEN}=1"), ("--set", TOKEN), ("--name", f"job-{TOKEN}"), ("--sbatch", f"comment={TOKEN}"),
    ("--sbatch", "export=HF_TOKEN=plainword"), ("--sbatch", f"qos={TOKEN}"), ("--run-id", f"r-{TOKEN}"), ("--account", TOKEN),
    ("--partition", "https://me:plainword@host"), ("--model", f"/models/{TOKEN}"), ("--data", TOKEN), ("--time", TOKEN),
    ("--cluster", TOKEN), ("--method", f"z3+{TOKEN}"), ("--logs", f"/tmp/{TOKEN}"), ("--steps", TOKEN), ("--env-file", TOKEN),
    ("--templates", TOKEN), ("--diff", TOKEN),
]  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS, ids=range(len(FLAGS)))
def test_a_flag_with_a_secret_is_refused_without_a_word_of_it(
    flag: tuple[str, str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "render" if flag[0] == "--diff" else "submit"
    others = [word for pair in zip(LOCAL[::2], LOCAL[1::2], strict=True) if pair[0] != flag[0] for word in pair]
    assert run([command, *others, *flag]) == 2
    said = capsys.readouterr()
    assert said.out == "" and TOKEN not in said.err and "plainword" not in said.err
    if flag[0] not in ("--steps", "--diff"):
        assert f"hpc-llm: {flag[0]}" in said.err and "holds what looks like a secret" in said.err
        assert "name it by --env-file FILE" in said.err
    assert list(own_folder.iterdir()) == []


FILES = {
    "experiment, mapping": ("e.yaml", "cluster: local\nmethod: z2\nset: {env: {HF_TOKEN: plainword}}\n"),
    "experiment, list": ("e.yaml", f"cluster: local\nmethod: z2\nset: ['env.X={TOKEN}']\n"),
    "experiment, wrong type": ("e.yaml", f"cluster: local\nmethod: z2\nsteps: {TOKEN}\n"),
    "experiment, unknown key": ("e.yaml", f"cluster: local\nmethod: z2\n{TOKEN}: 1\n"),
    "profile, variables": ("clusters/mine.yaml", "extends: local\nenv: {common: {HF_TOKEN: plainword}}\n"),
    "profile, proxy": (
        "clusters/mine.yaml",
        "extends: local\naccess: {proxy_env: {https_proxy: 'http://me:plainword@p:1'}}\n",
    ),
    "profile, note": ("clusters/mine.yaml", f"extends: local\nnotes: [{TOKEN}]\n"),
    "profile, wrong type": ("clusters/mine.yaml", f"extends: local\nnode: {TOKEN}\n"),
    "method": ("configs/own.yaml", f"extends: z2\ndeepspeed: {{comet: {{api_key: {TOKEN}}}}}\n"),
}


@pytest.mark.parametrize(("name", "text"), FILES.values(), ids=FILES)
def test_a_file_with_a_secret_is_refused_without_a_word_of_it(
    name: str, text: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    by_name = {
        "e": ["e.yaml"],
        "mine": ["--cluster", "mine", "--method", "z2"],
        "own": ["--cluster", "local", "--method", "own"],
    }
    assert run(["submit", *by_name[Path(name).stem], "--model", "tiny"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and TOKEN not in said.err and "plainword" not in said.err
    assert name in said.err and "holds what looks like a secret" in said.err
    assert not Path("logs").exists()
    assert run(["clusters"]) == 0 and run(["methods"]) == 0
    said = capsys.readouterr()
    assert TOKEN not in said.err + said.out and "plainword" not in said.err + said.out


def test_an_account_of_the_environment_and_a_template_are_looked_at_too(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", TOKEN)
    assert run(["render", "--cluster", "mi210", "--method", "z2"]) == 2
    said = capsys.readouterr()
    assert "account (environment: SBATCH_ACCOUNT) holds what looks like a secret" in said.err and TOKEN not in said.err
    monkeypatch.delenv("SBATCH_ACCOUNT")
    Path("mine").mkdir()
    Path("mine", "launch.sh.j2").write_text(f"export HF_TOKEN={TOKEN}\n")
    assert run(["render", *LOCAL, "--templates", "mine"]) == 2
    said = capsys.readouterr()
    assert "the script for cluster local would hold what looks like a secret" in said.err
    assert said.out == "" and TOKEN not in said.err


@pytest.mark.parametrize("name", ["HF_TOKEN", "PGPASSWORD", "ANY"])
def test_a_secret_in_an_older_record_is_not_shown_by_a_comparison(
    name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = TOKEN if name == "ANY" else "two plainwords"
    plan = planned("local", "z2", model="tiny").plan.flat() | {"env": {name: value, "NCCL_DEBUG": "INFO"}}
    folder = Path("logs/older")
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text(json.dumps({"schema": 1, "plan": plan}))
    (folder / "job.sh").write_text(f"#!/bin/bash\nexport {name}='{value}'\n")
    assert run(["render", *LOCAL, "--diff", "older"]) == 0
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err and "plainword" not in said.out + said.err
    assert f"env.{name}: (hidden) → -" in said.out and "env.NCCL_DEBUG: INFO → -" in said.out
    assert f"-export {name}='(hidden)'" in said.out


def test_harmless_variables_pass(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = (
        "TOKENIZERS_PARALLELISM=false",
        "SSH_AUTH_SOCK=/tmp/agent",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN=1",
        "HF_TOKEN_PATH=/h/t",
    )
    assert run(["render", *LOCAL, *(word for pair in pairs for word in ("--set", f"env.{pair}"))]) == 0
    assert "export HF_TOKEN_PATH=/h/t\n" in capsys.readouterr().out


# --- the way in


@pytest.fixture
def secret(machine: Machine) -> Path:
    path = machine.folder / "my secrets.env"
    path.write_text(f"# mine\nHF_TOKEN={TOKEN}\nexport OTHER_KEY='two words'\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_job_reads_the_file_and_nothing_else_holds_it(machine: Machine, secret: Path) -> None:
    text = machine.script(env_file=str(secret))
    ended = machine.run(text)
    assert ended.code == 0, ended.stderr
    assert ended.seen is not None
    assert (ended.seen["env"]["HF_TOKEN"], ended.seen["env"]["OTHER_KEY"]) == (TOKEN, "two words")
    assert TOKEN not in text + ended.stdout + ended.stderr + json.dumps(ended.exit)
    plan: dict[str, Any] = planned("local", "z2", scheduler="local", env_file=str(secret)).plan.flat()
    assert plan["env_file"] == str(secret) and TOKEN not in json.dumps(plan)


@pytest.mark.parametrize("line", ["set -x", "set -v", "set -xv", "set -T; trap 'echo \"$BASH_COMMAND\"' DEBUG", ""])
@pytest.mark.parametrize("exported", ["", "xtrace", "verbose"])
def test_a_script_that_is_traced_prints_nothing_of_the_file(
    machine: Machine, secret: Path, line: str, exported: str
) -> None:
    text = machine.script(env_file=str(secret)).replace("# modules\n", f"{line}\n# modules\n", 1)
    after = f"\nread_variables '{secret}'\n"
    assert after in text
    text = text.replace(after, f"{after}: is traced again\n")
    ended = machine.run(text, **({"SHELLOPTS": exported} if exported else {}))
    assert ended.code == 0 and ended.seen is not None and ended.seen["env"]["HF_TOKEN"] == TOKEN
    for value in (TOKEN, "two words"):
        assert value not in ended.stdout + ended.stderr + json.dumps(ended.exit)
    is_traced = bool(line or exported)
    assert (": is traced again" in ended.stderr + ended.stdout) == is_traced


WRONG_FILES = {
    "mistake": f"{TOKEN}\n",
    "syntax": f"HF_TOKEN='{TOKEN}\n",
    "NUL": f"HF_TOKEN={TOKEN}\0\n",
    "the script's own": f"HF_TOKEN={TOKEN}\nrun_dir=/elsewhere\n",
    "run": f"HF_TOKEN=$(touch canary; echo {TOKEN})\n",
}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("missing", "cannot be read"), ("folder", "cannot be read"), ("open", "others may open the file"),
        ("readable", "others may open the file"), ("somebody else's", "belongs to somebody else"),
        ("mistake", "line 1 is no NAME=VALUE"), ("syntax", "line 1: the single quote that begins there has no end"),
        ("NUL", "it holds a NUL character"), ("the script's own", "line 2 sets run_dir, which is the job script's own"),
        ("run", "line 1: nothing is expanded"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_user_s_own_alone_stops_the_job(
    machine: Machine, secret: Path, damage: str, said: str
) -> None:
    if damage in ("missing", "folder"):
        secret.unlink()
    if damage == "folder":
        secret.mkdir(mode=0o700)
    elif damage in ("open", "readable"):
        secret.chmod({"open": 0o640, "readable": 0o604}[damage])
    elif damage == "somebody else's":
        needs_root("give a file to somebody else")
        os.chown(secret, 12345, -1)
    elif damage in WRONG_FILES:
        secret.write_text(WRONG_FILES[damage])
    ended = machine.run(machine.script(env_file=str(secret)))
    assert (ended.code, ended.exit["stage"]) == (Stop.NO_ENV_FILE.value, "prelude")
    assert said in ended.exit["reason"] and str(secret) in ended.exit["reason"]
    assert TOKEN not in ended.stdout + ended.stderr and ended.stderr.count("\n") == 1
    assert ended.seen is None


LINES = {
    "A=plain": "plain", "A=": "", "A=''": "", 'A=""': "", "  export\tA=x": "x", "A=a#b": "a#b", "A=x # said": "x", "A='a # b'#c": None,
    "A='a # b' # c": "a # b", "A= # nothing": "", "A=a=b;c|d&e<f>(g)*?[h]!": "a=b;c|d&e<f>(g)*?[h]!", "A='$HOME `x` \\n \"'": '$HOME `x` \\n "',
    'A="\\$5 \\"q\\" \\\\ \\`"': '$5 "q" \\ `', 'A="it\'s"': "it's", "A='two\nlines'": "two\nlines", "A=x\r": "x", "A=é漢": "é漢",
    "A=a b": None, "A=$B": None, "A=a${B}": None, "A=`id`": None, "A=$(id)": None, 'A="$B"': None, 'A="`id`"': None, "A=~/x": None,
    "A=a~/x": "a~/x", 'A="a\\n"': None, "A=a\\ b": None, "A='a'b": None, "A=a'b'": None, 'A="a"b': None, "A='a": None, 'A="a': None,
    "A =x": None, "A": None, "1A=x": None, "A-B=x": None, "A+=x": None, "A[0]=x": None, "export A": None, "set -x": None, ". x": None,
    "A=x; B=y": None, "A=(x y)": None, "run_dir=/x": None, "BASH_ENV=/x": None, "IFS=x": None, "export -n A=x": None, "=x": None,
}  # fmt: skip
"""A line and the value that it gives A; None where it is refused."""


@pytest.mark.parametrize("line", LINES)
def test_a_line_gives_its_value_or_is_refused_without_a_word_of_it(line: str) -> None:
    text = f"# mine\n\n{line}\n B=last"
    if LINES[line] is not None:
        assert parse(text) == {"A": LINES[line], "B": "last"}
        return
    with pytest.raises(EnvFileError, match=r"^line 3") as caught:
        parse(text.replace("x", "hunter2"))
    assert "hunter2" not in str(caught.value)


DEFAULTS = frozenset("PATH TMPDIR USER PYTHONUNBUFFERED LC_ALL".split())
"""What the script sets and a user may set otherwise."""


def variables_of_the_script() -> set[str]:
    """Every name that the bash of ours assigns: with a sign of equality, as a local, in a loop or by printf."""
    files = [ROOT / "hpc_llm" / "job" / "support.sh", *(ROOT / "templates").glob("*.j2")]
    found: set[str] = set()
    for file in files:
        text = re.sub(r"<<'PYTHON'\n.*?\nPYTHON$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"^\s*#.*|\s# .*|\{[{%].*?[%}]\}", " x ", text, flags=re.MULTILINE)
        found |= set(
            re.findall(r"(?:^|[;({!&|]|\b(?:local|export|then|do|else)\b)[ \t]*([a-zA-Z_]\w*)\+?=", text, re.MULTILINE)
        )
        found |= {
            n
            for words in re.findall(r"\blocal ([^\n;]+)", text)
            for n in re.findall(r"(?<!\S)([a-z_]\w*)(?==|\s|$)", words)
        }
        found |= set(re.findall(r"\bfor ([a-z_]\w*)(?=;| in)", text)) | set(re.findall(r"printf -v ([a-z]\w*)", text))
    return found - {"and", "defined", "is", "names", "no", "not"}  # words of a text


def test_no_variable_of_the_script_is_a_user_s_to_set() -> None:
    found = variables_of_the_script()
    assert {
        "this_job",
        "run_dir",
        "support",
        "functions",
        "said",
        "stage",
        "job_tmp",
        "limit",
        "rank",
        "why",
        "pair",
    } <= found
    left = sorted(name for name in found - DEFAULTS if not is_reserved(name))
    assert not left


@pytest.mark.parametrize("name", ["this_job", "stage", "job_record", "rank", "said", "in_run"])
def test_a_file_changes_no_record_of_the_job(machine: Machine, secret: Path, name: str) -> None:
    secret.write_text(f"{name}=forged\n")  # no digits: a time of the record would hold them one day
    ended = machine.run(machine.script(env_file=str(secret)))
    if name == "in_run":  # a function of the script's
        assert ended.code == 0
    else:
        assert (
            ended.code == Stop.NO_ENV_FILE and ended.exit["job_id"] is None and "forged" not in json.dumps(ended.exit)
        )


def test_words_as_keys_are_and_numbers_have_no_shape_of_a_secret() -> None:
    """What is passed over for how it looks: every part of the secrets above that looks so, and drawn ones."""
    drawn, letters = random.Random(1), string.ascii_letters + string.digits + "_.-"
    words = {text[start : start + length] for text in SECRETS for start in range(len(text)) for length in (7, 20, 60)}
    words |= {"".join(drawn.choices(letters, k=drawn.randint(0, 7))) for _ in range(3000)}
    low = string.ascii_lowercase
    for _ in range(3000):
        parts = ["".join(drawn.choices(low, k=drawn.randint(1, 12))) for _ in range(drawn.randint(1, 9))]
        words |= {drawn.choice("_.-").join(f"{part}{drawn.choice(['', '', '3'])}" for part in parts)}
        words |= {str(drawn.random() * 10 ** drawn.randint(0, 9)), str(drawn.randint(0, 10**12 - 1))}
    passed = [word for word in words if _WORD.fullmatch(word)]
    assert len(passed) > 8000 and not any(map(has_secret_shape, passed))
    assert not any(_WORD.fullmatch(one) for one in (*SECRETS, "hf_abcdefghijklmnopqrst", "-pswordfish"))


def test_a_long_file_is_read_in_little_time() -> None:
    started = time.process_time()
    assert len(parse("".join(f"A{i}=x\n" for i in range(20_000)))) == 20_000
    for text in ("A='" + "a\n" * 30_000, 'A="' + '\\\\"' * 20_000, "A=" + "a" * 60_000 + "$", " " * 60_000):
        with contextlib.suppress(EnvFileError):
            parse(text)
    assert is_within(time.process_time() - started, 5)


def test_what_the_job_gets_is_what_submission_read(machine: Machine, secret: Path) -> None:
    lines = {f"V{i}": (line, value) for i, (line, value) in enumerate(LINES.items()) if value is not None}
    secret.write_bytes(b"".join(line.replace("A", name, 1).encode() + b"\n" for name, (line, _) in lines.items()))
    ended = machine.run(machine.script(env_file=str(secret)))
    assert ended.code == 0 and ended.seen is not None, ended.stderr
    assert {name: ended.seen["env"][name] for name in lines} == {name: value for name, (_, value) in lines.items()}
    assert "settings" not in ended.seen["env"]


def test_a_line_that_is_wrong_is_told_before_anything_is_submitted(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.env").write_text(f"A=1\nHF_TOKEN={TOKEN} two\n")
    Path("mine.env").chmod(0o600)
    assert run(["submit", *LOCAL, "--env-file", "mine.env"]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"hpc-llm: --env-file {own_folder}/mine.env is not read: line 2: a value with blanks or quotes in it needs quotes around all of it.\n"
    )
    assert not Path("logs").exists()


def test_a_profile_may_name_the_file(machine: Machine, secret: Path) -> None:
    cluster = machine.cluster(env__file="${STANDIN}/my secrets.env")
    made = batch(cluster, "z3", scheduler="local")
    assert made.planned[0].origins["env_file"] == f"cluster {cluster.name}: env.file"
    ended = machine.run(machine.script(cluster))
    assert ended.code == 0 and ended.seen is not None and ended.seen["env"]["HF_TOKEN"] == TOKEN
    wins = machine.script(cluster, env_file="/some/${where}")
    assert "\nread_variables '/some/${where}'\n" in wins


@pytest.mark.parametrize(("mode", "code"), [(0o600, 0), (0o400, 0), (0o640, 2), (0o644, 2), (0o602, 2)])
def test_submission_looks_at_the_file_where_it_is_here(
    mode: int, code: int, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.env").write_text(f"HF_TOKEN={TOKEN}\n")
    Path("mine.env").chmod(mode)
    assert run(["render", *LOCAL, "--env-file", "mine.env"]) == code
    said = capsys.readouterr()
    if code:
        assert said.err.endswith(
            f"others may open --env-file {own_folder}/mine.env. Run chmod 600 {own_folder}/mine.env\n"
        )
    else:
        assert f"\nread_variables {own_folder}/mine.env\n" in said.out
    assert TOKEN not in said.out + said.err


@pytest.mark.parametrize("name", ["password", "db.passwd", "hf_pass", "my passwd", "token", "secrets", "api_key"])
def test_what_is_wrong_with_the_file_is_told_whatever_it_is_called(
    name: str, own_folder: Path, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own_folder / name
    for text, mode, said in (
        (f"HF_TOKEN={TOKEN}", 0o644, f". Run chmod 600 {shlex.quote(str(file))}"),
        ("HF_TOKEN = x", 0o600, "is not read: line 1 is no NAME=VALUE"),
        ("A=1\n" * 40_000, 0o600, "is not read: it has more than 64 KiB"),
    ):
        file.write_text(text)
        file.chmod(mode)
        assert run(["render", *LOCAL, "--env-file", name]) == 2
        err = capsys.readouterr().err
        assert said in err and "(hidden)" not in err and TOKEN not in err
    file.chmod(0o644)
    ended = machine.run(machine.script(env_file=str(file)))
    assert f"others may open the file {file}; chmod 600 it" in redacted(ended.stdout + ended.stderr)


def test_a_file_that_is_missing_is_told_before_the_job_waits(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ((), ("--dry-run",)):
        assert run(["submit", *LOCAL, "--env-file", "no.env", *more]) == 2
        assert f"--env-file {own_folder}/no.env is not read: there is no such file." in capsys.readouterr().err
    assert not Path("logs").exists()
    for name in ("no.env", "/of/the/nodes/x.env"):  # a look from elsewhere, and a place that only the cluster has
        assert run(["render", *LOCAL, "--env-file", name]) == 0
        assert "cannot be seen here: the job stops (79)" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["result.json", "./steps.jsonl", "tries/1/x", "telemetry-3.jsonl", " job.json"])
def test_a_file_of_settings_names_no_record_to_write_over(
    value: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e.yaml").write_text(f"cluster: local\nmethod: z2\nmodel: tiny\nset: {{env.NCCL_DEBUG_FILE: '{value}'}}\n")
    assert run(["render", "e.yaml"]) == 2
    said = capsys.readouterr().err
    assert "NCCL_DEBUG_FILE" in said and ("record of the run" in said or "outside the run's folder" in said)


def test_a_failure_of_the_program_is_recorded_without_the_secret(tmp_path: Path) -> None:
    """The error of a hub quotes the address that it was asked by."""
    program = """
import sys
from hpc_llm.worker.failure import report_refusal
from hpc_llm.errors import WorkerError
from pathlib import Path
report_refusal(Path(sys.argv[1]), WorkerError("no answer of https://me:plainword@hub/x, HF_TOKEN=plainword"))
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    text = (tmp_path / "result.json").read_text()
    assert "plainword" not in text and "no answer of (hidden)hub/x, HF_TOKEN=(hidden)" in text


@pytest.mark.parametrize("command", [["diagnose"], ["diagnose", "--json"], ["parse"], ["report", "-o", "page"]])
def test_a_secret_in_somebody_s_log_is_shown_by_no_command(
    command: list[str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.err").write_text(
        "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 3, in <module>\n'
        f"ValueError: no answer of https://me:plainword@hub/x with HF_TOKEN=plainword and {TOKEN}\n"
    )
    assert run([*command, "job.err"]) == 0
    said = capsys.readouterr()
    written = [path.read_text(errors="replace") for path in Path("page").glob("*") if path.is_file()]
    shown = said.out + said.err + "".join(written)
    assert TOKEN not in shown and "plainword" not in shown
    assert "no answer of" in shown


@pytest.mark.parametrize(
    "name", "PGPASS PASSKEY SSHKEY SIGNINGKEY DBPASS sshkey CLIENTSECRET HFTOKEN masterKey".split()
)
def test_secret_words_at_the_end_of_one_word(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", "TURKEY donkey SORTKEY PUBKEY BANDPASS FORWARDPASS LATCHKEY TRESPASS CACHEKEY".split())
def test_words_that_only_end_like_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "push --token plainword", "mysql -u me -pplainword db", "mysqldump -pplainword db", "comment=password: plainword",
        "connecting with password=plainword", "db_password: 'plainword'", "Passphrase = plainword",
    ],
)  # fmt: skip
def test_passwords_in_prose_and_options(text: str) -> None:
    assert is_secret(text) and "plainword" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(password: str, x)",
        "Password: ",
        "password: required",
        "mysql -u me -p db",
        "--token $TOKEN",
        "--token <s>",
    ],
)
def test_what_only_speaks_of_a_password_stays(text: str) -> None:
    assert redacted(text) == text


def test_an_error_of_the_python_face_holds_no_secret(own_folder: Path) -> None:
    import hpc_llm

    for call in (hpc_llm.status, hpc_llm.parse, hpc_llm.diagnose, lambda name: hpc_llm.report(name, output="page")):
        with pytest.raises(hpc_llm.errors.HpcLlmError) as caught:
            call(TOKEN)
        assert TOKEN not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [["status", "--logs", f"/x/{TOKEN}"], ["render", *LOCAL, "-o", f"/x/{TOKEN}"], ["render", *LOCAL, "-o", TOKEN]],
)
def test_no_path_that_is_a_secret_is_repeated(
    arguments: list[str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(arguments)
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err and said.err


@pytest.mark.parametrize(
    "command",
    [
        ["parse", "--format", "csv"],
        ["parse", "--format", "markdown"],
        ["report", "-o", "page"],
        ["diagnose"],
        ["diagnose", "--json"],
    ],
)
def test_a_log_named_like_a_secret_is_shown_without_it(
    command: list[str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{TOKEN}.log").write_text(
        "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}\nRuntimeError: no answer with password=plainword\n"
    )
    assert run([command[0], f"{TOKEN}.log", *command[1:]]) == 0
    said = capsys.readouterr()
    written = [path.read_text(errors="replace") for path in Path("page").glob("*") if path.is_file()]
    shown = said.out + "".join(written)
    assert TOKEN not in shown and "plainword" not in shown and "hidden" in shown


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN: plainword",
        "HF_TOKEN = plainword",
        "{'HF_TOKEN': 'plainword'}",
        '"token": "plainword"',
        "hf_token='plainword'",
        "docker login -u me -p plainword",
        "machine x login me password plainword",
        "password plainword1",
        "https://user%3Aplainword%40host/x",
        "user%3Aplainword%40",
        "DB_PASSWORD : plainword",
        '{"api_key": "plainword"}',
        "{'wandb_key': 'plainword'}",
        "HF_TOKEN\u200b=plainword",
        "HF_TO\u200bKEN=plainword",
        "hf_AbCd\u200bEfGhIj1234567890",
        "HF_\x1b[31mTOKEN=plainword",
        "environ({'HF_TOKEN': 'plainword', 'A': 'b'})",
        "('HF_TOKEN', 'plainword')",
        "  HF_TOKEN:   plainword  # x",
        "podman login --username me -p plainword reg",
        "http%3A%2F%2Fuser%3Aplainword%40proxy%3A80",
        'export HF_TOKEN "plainword"',
        "setenv HF_TOKEN plainword",
        "HF_TOKEN => plainword",
    ],
)
def test_however_a_name_and_its_value_are_written(text: str) -> None:
    said = redacted(f"before {text} after")
    assert is_secret(text) and "plainword" not in said and "EfGh" not in said
    assert said.startswith("before ") and said.endswith(" after")


@pytest.mark.parametrize(
    "text",
    [
        "pad_token: '<pad>'", "'eos_token': '</s>'", "eos_token = endoftext", "sort by key: name", "key = value",
        "token: str = None", "hf_token: Optional[str]", "HF_TOKEN: ${HF_TOKEN}", "HF_TOKEN: $HF_TOKEN", "HF_TOKEN = 'required'", "HF_TOKEN: not set",
        "password incorrect", "password for user", "password required", "login node: password file", "ssh -p 2222 login", "docker login -u me -p $PASSWORD",
        "mailto%3Auser%40host", "https%3A%2F%2Fgit%40host", "a%3Ab", "num_tokens: 4096", "tokens = 123456", "{'num_key_value_heads': 'many'}",
        "hf_token = load_token(path)", "max_new_tokens: 1234567", "colo\u200br: blue",
    ],
)  # fmt: skip
def test_how_words_near_secrets_are_written(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)
