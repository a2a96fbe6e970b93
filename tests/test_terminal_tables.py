"""Tables on a terminal: no line is wider than it, and no value is broken within; a pipe and a file get them whole."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.cli import run as command
from hpc_llm.cli.parse import summary_table
from hpc_llm.cli.status import print_statuses
from hpc_llm.parsing import Row
from hpc_llm.records.checkpoints import MANIFEST
from hpc_llm.records.files import write_json
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs import RunStatus
from hpc_llm.text.tables import table, wrapped

HPC_LLM = [sys.executable, "-c", "from hpc_llm.cli import main; main()"]
COLUMNS = 80
IDS = [f"20260501-10000{i}-taiwania2-{name}-llama2-7b-ab1{i}" for i, name in enumerate(("z3", "q" * 30, "z2o-hpc2"))]
REASON = "rank 0: KeyError: 'a message that is long, and says a lot about nothing at all in particular'"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with long names that ended in different ways."""
    folder = tmp_path_factory.mktemp("wide")
    for run_id, outcome in zip(IDS, ("FAILED", "COMPLETED", "OOM_DEVICE"), strict=True):
        run = RunPaths(folder / "logs" / run_id)
        plan = {"task": "pretrain", "cluster": "taiwania2", "method": run_id.split("-")[3], "model": "llama2-7b",
                "steps": 300, "world_size": 8, "nodes": 1, "global_batch_size": 8, "sequence_length": 350}  # fmt: skip
        write_json(run.experiment, {"schema": 1, "run_id": run_id, "plan": plan})
        reason = None if outcome == "COMPLETED" else REASON
        write_json(run.result, {"schema": 1, "outcome": outcome, "outcome_reason": reason})
        write_json(run.exit, {"exit_code": int(reason is not None), "signal": None, "stage": "done",
                              "started_at": 1.0e9, "ended_at": 1.1e9})  # fmt: skip
    return folder


def on_a_terminal(arguments: list[str], folder: Path) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"HPC_LLM_SCHEDULER": ""}
    with subprocess.Popen(
        [*HPC_LLM, *arguments], stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    ):
        os.close(theirs)
        parts: list[bytes] = []
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # all of it was read
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--logs", "logs"],
        ["parse", "logs"],
        ["parse", "logs", "--columns", "run_id,method,outcome,outcome_reason,cause,started_at"],
        ["diagnose", "logs"],
        ["methods"],
        ["clusters"],
        ["models"],
        ["clusters", "delta"],
        ["clusters", "local"],
        ["render", "--cluster", "mi210", "--method", "z3,q", "--explain"],
        ["render", "--cluster", "mi210", "--method", "z3o", "--diff", "delta"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(place: Path, arguments: list[str]) -> None:
    lines = on_a_terminal(arguments, place).splitlines()
    longer = [line.strip() for line in lines if len(line) > COLUMNS]  # nothing but a command, which is not broken
    assert lines and all(one.startswith(("python -m pip install ", "`")) for one in longer)
    if "logs" in arguments:
        assert all(any(run_id in line for line in lines) for run_id in IDS), "a run's name is what one copies"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose ends are answered with commands: a package to install, what was kept to go on with, and another folder of runs."""
    folder = tmp_path_factory.mktemp("failed")
    profile = [
        "schema: 1",
        "name: here",
        "extends: local",
        "prelude: {python: {kind: venv, env: /home/someone/environments/training}}",
    ]
    (folder / "clusters").mkdir()
    (folder / "clusters" / "here.yaml").write_text("\n".join(profile) + "\n")
    plan = hpc_llm.plan(cluster="local", method="z3", model="tiny", steps=300, warmup_steps=1)[0].plan.to_dict()
    reasons = [
        "ModuleNotFoundError: No module named 'torch'",
        "HpcLlmError: files of JSON in zstandard are read with the package zstandard, which is missing here (No module named "
        "'zstandard'): python -m pip install zstandard torch transformers deepspeed.",
    ]
    for number, reason in enumerate(reasons):
        run = RunPaths(folder / "runs of others" / f"20260501-10000{number}-here-z3-tiny-ab1{number}")
        write_json(
            run.experiment,
            {"schema": 1, "run_id": run.run_id, "plan": {**plan, "cluster": "here"}, "asked": {"method": "z3"}},
        )
        write_json(run.result, {"schema": 1, "outcome": "FAILED", "outcome_reason": f"rank 0: {reason}"})
        write_json(run.exit, {"exit_code": 1, "signal": None, "stage": "train", "started_at": 1.0e9, "ended_at": 1.1e9})
        run.stderr.write_text(
            f'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    import x\n{reason}\n'
        )
        write_json(run.checkpoint(20) / MANIFEST, {"schema": 2, "step": 20, "files": {}})
    return folder


_COMMAND = re.compile(r"`[^`\n]+`|[\w/]*python -m pip install[^;(\n]*|source /[^;(\n]*|(?:--[a-z-]+ [^\s(;]+ ?)+")


@pytest.mark.parametrize("command", ["diagnose", "status"])
def test_no_command_is_broken_on_a_narrow_terminal(failed: Path, command: str) -> None:
    words = [command, "--logs", "runs of others", *(["runs of others"] if command == "diagnose" else [])]
    done = subprocess.run([*HPC_LLM, *words], cwd=failed, capture_output=True, text=True, check=False)
    narrow = on_a_terminal(words, failed)
    found = [one.strip(" .") for one in _COMMAND.findall(done.stdout)]
    assert any("pip install zstandard torch transformers deepspeed" in one for one in found)
    assert [one for one in found if one not in narrow] == []


def unfolded(text: str) -> list[str]:
    """What was printed for reading, without its origins and in whole lines."""
    lines: list[str] = []
    for row in text.splitlines():
        body = re.sub(r"(?:^|  ) *<- .*$", "", row).rstrip()
        if row.startswith("… "):
            lines[-1] += body[2:]
        elif body:
            lines.append(body)
    return lines


def test_what_a_narrow_terminal_folds_is_what_a_pipe_gets(place: Path) -> None:
    words = ["render", "--cluster", "mi210", "--method", "z3o", "--explain", "--run-id", "r"]
    done = subprocess.run([*HPC_LLM, *words], cwd=place, capture_output=True, text=True, check=True)
    widths = [len(line) for line in done.stdout.splitlines()]
    assert COLUMNS < max(widths) <= 100
    # A line that is cut at a space loses it at the end of the row.
    narrow, wide = (
        [line.replace(" ", "") for line in unfolded(text)] for text in (on_a_terminal(words, place), done.stdout)
    )
    assert narrow == wide


def test_a_pipe_gets_one_line_a_run(place: Path) -> None:
    done = subprocess.run(
        [*HPC_LLM, "parse", "logs", "--format", "table"], cwd=place, capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 2 + len(IDS) and max(map(len, done.stdout.splitlines())) > COLUMNS


def test_columns_that_say_nothing_give_way_in_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = RunStatus(
        run_id="20260501-100000-delta-z3o-llama2-ab12", job_id="1234567", cluster="delta", method="z3o", state="COMPLETED",
        outcome=Outcome.COMPLETED, reason=None, exit_code=0, started_at=None, elapsed_s=70.0, tokens_per_second=8502.6, step=4, steps=4,
    )  # fmt: skip
    failed = replace(ended, state="FAILED", outcome=Outcome.OOM_DEVICE, exit_code=1)
    monkeypatch.setattr("hpc_llm.cli.status.terminal_width", lambda: 90)
    print_statuses([ended, replace(ended, state="RUNNING", outcome=None, exit_code=None)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].split() == ["run", "job", "state", "time", "step", "tokens/s"]
    print_statuses([ended, failed])
    assert {"OOM_DEVICE", "exit", "outcome"} <= set(capsys.readouterr().out.split())
    monkeypatch.setattr("hpc_llm.cli.status.terminal_width", lambda: None)
    print_statuses([ended])
    assert {"exit", "outcome"} < set(capsys.readouterr().out.split())


def test_a_row_goes_on_below_itself() -> None:
    rows = [["a" * 30, "1", "x" * 20, "22.5"], ["b", "10", "", "3"]]
    assert table(rows, ["run", "n", "why", "rate"], 40) == [
        "run                              n",
        "    why                   rate",
        "------------------------------  --",
        "    --------------------  ----",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa   1",
        "    xxxxxxxxxxxxxxxxxxxx  22.5",
        "b                               10",
        "                             3",
    ]


def test_words_go_on_in_their_column() -> None:
    lines = table([["z3", "parameters and states are split over all of the GPUs"]], ["method", "what"], 40)
    assert lines[2:] == ["z3        parameters and states are", "          split over all of the GPUs"]


@pytest.mark.parametrize("width", [None, 20, 40, 80, 200])
def test_nothing_is_lost_but_the_middle_of_what_cannot_fit(width: int | None) -> None:
    rows = [[f"run-{i}", str(i), "word " * (i % 12), "v" * (i % 16)] for i in range(1, 30)]
    lines = table(rows, ["run", "n", "words", "value"], width)
    assert width is None or max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(f"run-{i}" in text for i in range(1, 30)) and ("…" not in text or width in (20, 40))


def test_prose_is_broken_between_words() -> None:
    assert wrapped("one two three four five six seven eight", 30, 4) == "one two three four five\n    six seven eight"
    assert wrapped("one two three", None, 4) == "one two three"


@pytest.mark.parametrize("width", [80, 90, 120, 160, 400])
def test_rows_of_one_setting_take_a_line_each(width: int) -> None:
    same: dict[str, Any] = {
        "cluster": "taiwania2", "model": "llama2-7b", "gpu": "Tesla V100-SXM2-32GB", "world_size": 8, "global_batch_size": 64,
        "sequence_length": 350, "precision": "fp16", "measured_steps": 40, "mfu": 0.234, "peak_allocated_bytes": 2**34,
        "peak_host_bytes": 2**36, "loss_first": 9.1, "loss_last": 2.3, "outcome": "COMPLETED", "source": "x", "format": "hpc-llm",
    }  # fmt: skip
    methods = ("z3", "z2o", "z3o")
    rows = [
        Row(run_id=f"20261122-142035-taiwania2-{m}-ab1", method=m, tokens_per_second=1e3 + i, **same)
        for i, m in enumerate(methods)
    ]
    lines = summary_table(rows, width).splitlines()
    assert all(len(line) <= width for line in lines)
    of_rows = [line for line in lines if line.startswith("20261122")]
    assert len(of_rows) == 3 and all(f"{1e3 + i:.1f}" in line and "2.300" in line for i, line in enumerate(of_rows))
    text = " ".join(" ".join(lines).split())
    for value in ("taiwania2", "llama2-7b", "Tesla V100-SXM2-32GB", "350", "fp16", "COMPLETED"):
        assert value in text
    for name, value in (("MFU", "0.234"), ("host peak GiB", "64.00"), ("first loss", "9.100")):
        assert value in text or f"{name}" in text.partition("no room for")[2]
    assert ("no room for" in text) == (width < 110)
    assert summary_table(rows[:1], 400).splitlines()[0].startswith("run ")


def test_many_long_methods_keep_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["z3+lora+r0.25+f", "z2+lora+r0.5+f", "z3o+lora+r0.75+f", "z3-hpc2+lora+r0.25"]
    asked = ["estimate", "--cluster", "delta", "--account", "a", "--model", "llama2-7b", "--method", ",".join(methods)]
    assert command(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "all: cluster delta, GPUs 4x A100-SXM4-40GB" in lines and max(map(len, lines)) <= COLUMNS
    header = next(line for line in lines if line.startswith("method"))
    assert header.split() == ["method", "verdict", "GiB", "host", "tokens/s", "GPU-h"]
    assert [len(line.split()) for line in lines if line.split("  ")[0] in methods] == [6] * len(methods)
