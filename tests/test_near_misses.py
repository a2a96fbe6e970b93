"""Wherever a name is refused, one that is nearly the same is offered, whatever its case."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_llm.cli import run as command

RENDER = "render --cluster local --method z3 --model tiny"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("stauts", "status"),
        ("clusters Taiwania2", "taiwania2"),
        ("render --cluster LOCL --method z3 --model tiny", "local"),
        ("render --cluster local --method z3oo --model tiny", "z3o"),
        ("render --cluster local --method z3+lor --model tiny", "lora"),
        ("render --cluster local --method z3 --model TINY", "tiny"),
        ("models lama2-7b", "llama2-7b"),
        (f"{RENDER} --task pretran", "pretrain"),
        (f"{RENDER} --profile torhc", "torch"),
        (f"{RENDER} --partitoin x", "--partition"),
        (f"{RENDER} --set precison=bf16", "precision"),
        (f"{RENDER} --set optimizer.lrr=1", "lr"),
        (f"{RENDER} --set precision=bf61", "bf16"),
        (f"{RENDER} --set optimizer.type=adamw", "AdamW"),
        (f"{RENDER} --set lr_schedule=cosin", "cosine"),
        (f"{RENDER} --set engine=fsdp", "fsdp2"),
        (f"{RENDER} --diff locl", "local"),
        ("fetch gpt2 --to there --from hubb", "hub"),
        ("parse a.log --columns los_last", "loss_last"),
        ("parse a.log --format cvs", "csv"),
        ("report a.log --assume modle=x", "model"),
        ("diagnose --list device_omm", "device_oom"),
    ],
)
def test_a_near_miss_offers_the_name(
    line: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text("step 1\n")
    assert command(line.split()) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_a_value_of_a_file_is_offered_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text("extends: z3\ndescription: x\nprecision: bf61\n")
    assert command(["methods", "mine"]) == 2
    assert "valid are 'auto', 'bf16', 'fp16' or 'fp32': did you mean 'bf16'" in capsys.readouterr().err


def test_what_is_near_to_nothing_offers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(f"{RENDER} --set precision=42".split()) == 2
    assert "did you mean" not in capsys.readouterr().err
