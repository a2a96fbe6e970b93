"""A sweep that is refused because of one of its runs names it: method and cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_llm.cli import run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["submit", "--dry-run", *words]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    return found.err.removeprefix("hpc-llm: ")


TAIWANIA2 = ("--cluster", "taiwania2", "--account", "ACD1")


@pytest.mark.parametrize(
    ("words", "beginning"),
    [
        (("--method", "z3,z3+f,z2+f"), "methods z3+f, z2+f on cluster taiwania2: FlashAttention-2 does not run on"),
        (
            ("--method", "z3,q", "--set", "quantization.kind=int8"),
            "method z3 on cluster taiwania2: --set quantization.kind",
        ),
        (
            ("--method", "z3,q", "--set", "deepspeed.zero_optimization.stage=3"),
            "method q on cluster taiwania2: a quantized base",
        ),
        (
            ("--method", "z3,q", "--set", "peft.r=8"),
            "every method on cluster taiwania2: --set peft.r: peft is not used",
        ),
        (("--method", "z3,q", "--steps", "2"), "every method on cluster taiwania2: warmup_steps is"),
        (
            ("--method", "z3,q", "--time", "9-0"),
            "time 9-00:00:00: partition gp2d of cluster taiwania2 allows 2-00:00:00.",
        ),
        (("--method", "z3,Z3"), "method Z3 is the same as z3. Repeats are separate submissions."),
        (("--method", "z3,z33"), "there is no method 'z33'"),
        (("--method", "z3,o+z3+z2"), "method 'o+z3+z2': z3 and z2 exclude each other."),
    ],
)
def test_methods(words: tuple[str, ...], beginning: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *TAIWANIA2, *words).startswith(beginning)


@pytest.mark.parametrize(
    ("words", "beginning"),
    [
        (("taiwania2,delta", "z3"), "method z3 on cluster delta: account 'ACD1' does not fit"),
        (("mi210,taiwania2", "z3+f"), "method z3+f on cluster taiwania2: FlashAttention-2 does not run on"),
        (("mi210,taiwania2", "z3", "--gpus-per-node", "3"), "method z3 on cluster mi210: 3 GPUs per node: cluster mi210 has 2 x"),
        (("mi210,taiwania2", "z3,q", "--nodes", "2"), "2 nodes: cluster mi210 runs on this machine, without a scheduler."),
        (("mi210,by-name", "z3"), "cluster by-name: prelude.python.env is the name 'mine'"),
        (("mi210,wrong", "z3"), "clusters/wrong.yaml: there is no key 'gpus'"),
        (("mi210,delt", "z3"), "there is no cluster 'delt': did you mean 'delta'?"),
        (("mi210,strict", "z3"), "cluster strict refuses --gres, which cluster strict: request.gpu_style asks for."),
    ],
)  # fmt: skip
def test_clusters(words: tuple[str, ...], beginning: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("clusters").mkdir()
    Path("clusters/by-name.yaml").write_text("extends: taiwania2\nprelude: {python: {env: mine}}\n")
    Path("clusters/wrong.yaml").write_text("extends: taiwania2\ngpus: 2\n")
    Path("clusters/strict.yaml").write_text("extends: taiwania2\nrequest: {forbid: [gres]}\n")
    cluster, method, *more = words
    lines = said(capsys, "--account", "ACD1", "--cluster", cluster, "--method", method, *more).splitlines()
    assert lines[-1].replace(f"{Path.cwd()}/", "").removeprefix("hpc-llm: ").startswith(beginning)


def test_a_file_names_them_too_and_one_run_needs_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.yaml").write_text("cluster: [mi210, taiwania2]\nmethod: [z3, z3+f]\naccount: ACD1\n")
    assert said(capsys, "e.yaml").startswith("method z3+f on cluster taiwania2: FlashAttention-2")
    assert said(capsys, *TAIWANIA2, "--method", "z3+f").startswith("FlashAttention-2 does not run")


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("matrix: {method: [ddp, z9]}", "e.yaml: method of run z9: "),
        ("runs: [{name: a, method: z9}, {name: b, method: ddp}]", "e.yaml: method of run a: "),
        ("method: z9", "e.yaml: method: "),
    ],
)
@pytest.mark.parametrize("command", ["render", "estimate"])
def test_a_method_that_there_is_not_is_told_with_the_file_and_the_place(
    command: str, asked: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e.yaml").write_text(f"cluster: local\nmodel: tiny\n{asked}\n")
    assert run([command, "e.yaml"]) == 2
    assert capsys.readouterr().err.startswith(f"hpc-llm: {place}there is no method 'z9'. Valid: ")
    assert run([command, "--cluster=local", "--model=tiny", "--method=z9"]) == 2
    assert capsys.readouterr().err.startswith("hpc-llm: there is no method 'z9'. Valid: ")
