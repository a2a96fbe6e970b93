"""Pipes, devices and the kernel's files: passed over in a folder, a pipe read and a device refused where it is named."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.cli import run
from hpc_llm.corpus.format import FACTS, SplitFiles
from hpc_llm.errors import Notice, PassedOverWarning, RequestError
from hpc_llm.parsing import inputs
from hpc_llm.parsing.own_tables import is_own_table
from hpc_llm.text import sources

LOG = "".join(
    f"{{'loss': {3 - i / 10:.2f}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {i}.0}}\n" for i in range(1, 9)
)
FAILED = LOG + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def pipe(path: Path, text: str) -> threading.Thread:
    """A pipe into which the text goes as soon as somebody reads it."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(text,), daemon=True)
    writer.start()
    return writer


@pytest.mark.parametrize("command", ["parse", "diagnose"])
def test_special_files_in_a_folder_are_passed_over(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.log").write_text(FAILED)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "null.log").symlink_to("/dev/zero")
    (tmp_path / "environ.log").symlink_to("/proc/self/environ")
    (tmp_path / "process").symlink_to("/proc/self")
    run([command, str(tmp_path)])
    done = capsys.readouterr()
    assert "good.log" in done.out + done.err
    for name in ("pipe.log", "null.log", "environ.log", "process"):
        assert name not in done.out
    assert "environ.log: it leads to the kernel's own files" in done.err


def test_a_pipe_that_is_named_is_read_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, text in (("parse", '"loss_first": 2.9'), ("diagnose", "device_oom")):
        writer = pipe(tmp_path / f"{command}.pipe", FAILED)
        asked = ["--format", "json"] if command == "parse" else ["--json"]
        run([command, str(tmp_path / f"{command}.pipe"), *asked])
        writer.join(10)
        assert text in capsys.readouterr().out and not writer.is_alive()


@pytest.mark.parametrize("command", ["parse", "diagnose", "report"])
def test_a_pipe_into_which_nobody_writes_is_not_waited_for_without_end(
    command: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sources, "PATIENCE_S", 0.2)
    os.mkfifo("p")
    assert run([command, "p"]) == 2
    assert "p is a named pipe, into which nothing was written for 0 s. Start what writes" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["parse", "diagnose"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_that_is_named_is_refused(command: str, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, device]) == 2
    assert f"{device} is a device or a socket" in capsys.readouterr().err


def test_what_is_no_log_by_its_name_is_no_run_of_a_folder(tmp_path: Path) -> None:
    for name in ("README.md", "README", "LICENSE.txt", "results.md", "results.tex", "notes.rst", "job.sbatch", "a.gif"):
        (tmp_path / name).write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    (tmp_path / "slurm-7.out").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    assert [path.name for path in inputs([tmp_path])] == ["slurm-7.out"]
    assert [path.name for path in inputs([tmp_path / "README.md"])] == ["README.md"]  # named itself it is read


def test_prepared_data_and_models_are_no_runs_of_a_folder(tmp_path: Path) -> None:
    files = SplitFiles(tmp_path / "caches" / "k", "train")
    for path in (files.tokens, files.ends, files.starts, files.folder / FACTS):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}" if path.name == FACTS else bytes(4000))
    for name in ("config.json", "vocab.txt", "merges.txt", "tokenizer.model", "model.safetensors"):
        (tmp_path / name).write_text('{"loss": 1.5}\n')
    (tmp_path / "good.log").write_text(FAILED)
    assert [row.run_id for row in hpc_llm.parse(tmp_path)] == ["good"]
    looked_at = {Path(one.source).suffix for one in hpc_llm.diagnose(str(tmp_path))}
    assert looked_at <= {".log", ".json"}


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
@pytest.mark.parametrize("steps", [False, True])
def test_a_table_of_ours_is_no_log(tmp_path: Path, ending: str, steps: bool) -> None:
    log = tmp_path / "a.log"
    log.write_text("{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 0.001, 'epoch': 0.1}\ntorch.OutOfMemoryError: x\n")
    path = tmp_path / f"table.{ending}"
    rows = hpc_llm.parse_steps(log) if steps else hpc_llm.parse(log)
    assert rows
    rows.write(path)
    with pytest.raises(RequestError, match="a table of runs that hpc-llm wrote, and no log"):
        hpc_llm.parse(path)
    with pytest.raises(RequestError, match="and no log"):
        hpc_llm.diagnose(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {row.source for row in hpc_llm.parse(tmp_path)} == {str(log)}
    with pytest.warns(PassedOverWarning, match="and no log"):
        assert {row.source for row in hpc_llm.parse([path, log])} == {str(log)}


def test_the_table_of_a_report_is_told_by_its_columns() -> None:
    first = b"cluster,gpu,nodes,world_size,method,configuration,outcome,runs,tokens_per_second,tokens_per_second_ci95,cause,run_ids\n"
    assert is_own_table(first)
    assert not is_own_table(b"time,step,loss,outcome,x,y,z,u,v\n") and not is_own_table(b'{"step": 1, "loss": 2.0}\n')


SETTINGS = {
    "config.json": '{"hidden_size": 64, "loss": 2.5}\n',
    "rows.jsonl": '{"a": 1}\n{"a": 2}\n',
    "list.json": "[1, 2]\n",
}


def test_json_that_no_format_knows_is_no_run_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in SETTINGS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "good.log").write_text(LOG)
    (tmp_path / "silent.log").write_text("hello\n")
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 2.5}')  # cut short
    rows = hpc_llm.parse(tmp_path)
    assert [row.run_id for row in rows] == ["good", "silent", "trainer_state"]
    assert run(["parse", str(tmp_path)]) == 0 and "JSON" not in capsys.readouterr().err
    assert run(["parse", "--verbose", str(tmp_path)]) == 0
    assert "3 files of JSON are left out, for no format is known in them" in capsys.readouterr().err


@pytest.mark.parametrize("name", SETTINGS)
def test_json_that_is_named_is_said_not_to_be_recognised(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SETTINGS[name])
    with pytest.warns(Notice, match=f"{name}: nothing was recognised in it: no line of a known format"):
        [row] = hpc_llm.parse(tmp_path / name)
    assert (row.format, row.outcome) == ("unknown", "UNKNOWN")


TABLES = {
    "sacct": """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
1234567      step: 9 l+     gp1d  acd110018         32 OUT_OF_ME+    0:125
1234567.bat+      batch             acd110018         32 OUT_OF_ME+    0:125
1234568      train_lla+     gp1d  acd110018         32  COMPLETED      0:0
1234569      train_lla+     gp1d  acd110018         32 CANCELLED+      0:0
""",
    "sacct --parsable2": """\
JobID|JobName|Partition|State|ExitCode|MaxRSS|Elapsed
55|loss=2.5|gp1d|NODE_FAIL|1:0||00:10:00
56|train|gp1d|TIMEOUT|0:0||1-00:00:00
57|train|gp1d|PREEMPTED|0:0||00:01:00
""",
    "squeue": """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
           1234570      gp1d train_ll  someone PD       0:00      1 (ReqNodeNotAvail, UnavailableNodes:gn1102)
           1234571      gp1d train_ll  someone  R    1:02:03      1 gn1101
""",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_of_slurms_jobs_is_no_log_of_training(tmp_path: Path, table: str) -> None:
    """It speaks of several jobs, of which none printed it."""
    log = tmp_path / "jobs.log"
    log.write_text(table)
    [row] = hpc_llm.parse(log)
    assert {name for name, value in row.to_dict().items() if value is not None} == {
        "run_id", "source", "format", "outcome", "outcome_reason",
    }  # fmt: skip
    assert row.outcome == "UNKNOWN"
    [found] = hpc_llm.diagnose(log)
    assert found.cause.id == "unknown" and found.confidence < 0.65
