"""parse and diagnose never contradict each other on a log of others: what parse lists is what diagnose explains."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from diagnose_accuracy import samples
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.diagnosis import Diagnosis, diagnose_files, diagnose_stream
from hpc_llm.parsing import UNKNOWN_FORMAT, Row, parse_paths, parse_stream
from hpc_llm.records.run import Outcome

SHARED = Path(__file__).parents[3] / "shared" / "logs"
LARGEST = 1 << 25


def belong_together(rows: list[Row], cause: str) -> bool:
    """Whether the cause is that of one of the runs in the log, and that run is listed as what it means."""
    for row in rows:
        if row.format == UNKNOWN_FORMAT and cause == "unknown":
            return True
        may_be = {BY_ID[cause].outcome.value}
        may_be |= {Outcome.FAILED.value} if cause not in ("none", "nan_loss") else set()
        if row.cause in (cause, None) and row.outcome in may_be:
            return True
    return False


def agree(rows: list[Row], found: Diagnosis) -> bool:
    """Whether both say the same of each run, and the log's own diagnosis is that of its last one."""
    if len(rows) == 1:
        return belong_together(rows, found.cause.id) and not found.runs
    said = [(one.source, one.outcome, one.cause.id) for one in found.runs]
    return said == [(row.run_id, row.outcome, row.cause) for row in rows] and found.cause.id == rows[-1].cause


@pytest.mark.parametrize("part", ["tuning", "held_out"])
def test_the_corpus(part: str) -> None:
    wrong = []
    for sample in samples((part,)):
        text = sample.text.encode()
        rows, found = parse_stream("x", io.BytesIO(text)).rows, diagnose_stream(io.BytesIO(text), "x")
        if not agree(rows, found):
            wrong.append((sample.name, found.cause.id, rows[-1].outcome))
    assert not wrong


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not here")
def test_real_logs() -> None:
    wrong = []
    for file in sorted(path for path in SHARED.rglob("*") if path.is_file() and path.suffix not in (".csv", ".json")):
        if file.stat().st_size <= LARGEST:
            rows, found = list(parse_paths([file], jobs=1)), diagnose_files([file])
            if not agree(rows, found):
                wrong.append((file.name, found.cause.id, rows[-1].outcome))
    assert not wrong


_STEPS = (
    "iter {k}: loss {loss:.4f}, time 100.00ms, mfu 30.00%\n",
    "{{'loss': {loss:.4f}, 'learning_rate': 1e-05, 'epoch': 0.{k:03}}}\n",
    "[Step {k}/40] Loss: {loss:.4f} | Global Tokens/s: 100.00 | GPU Mem (GB): 1.00 | Peak Mem: 2.00\n",
    "some program: step {k} loss {loss:.3f}\n",
)
_SAYS = (
    "Training completed\n", "Training done in 12.0 seconds.\n", "Training completed. Do not forget to share your model\n",
    "100%|##########| 30/30 [00:10<00:00,  3.0it/s]\n", " 50%|#####     | 15/30 [00:05<00:05,  3.0it/s]\n",
    "INFO Process 12 exits successfully.\n", "submitit INFO (x) - Job completed successfully\n",
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nOSError: [Errno 5] Input/output error\n",
    "OSError: cannot read the cache\n", "RuntimeError: Connection closed by peer\n", "KeyboardInterrupt\n",
    "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 ***\n",
    "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-08-16T16:27:59 ***\n",
    "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "Killed\n",
    "srun: error: n1: task 1: Exited with exit code 1\n", "srun: error: n1: task 0: Terminated\n",
    "ModuleNotFoundError: No module named 'apex'\n", "No space left on device\n", "Segmentation fault (core dumped)\n",
    "loss: nan\n", "some words that say nothing\n", "{'train_runtime': 12.5, 'train_samples_per_second': 3.0}\n",
)  # fmt: skip


@st.composite
def _logs(draw: st.DrawFn) -> bytes:
    parts = []
    step = draw(st.sampled_from(_STEPS))
    number = 0
    for kind in draw(st.lists(st.sampled_from(["say", "say", "steps", "filler", "again"]), min_size=1, max_size=7)):
        if kind == "say":
            parts.append(draw(st.sampled_from(_SAYS)))
        elif kind == "steps":
            for _ in range(draw(st.sampled_from([1, 3, 7, 8, 9, 40]))):
                number += 1
                parts.append(step.format(k=number, loss=5 - number / 100))
        elif kind == "filler":
            parts.append("words of no interest at all\n" * draw(st.sampled_from([1, 2, 3, 5, 5, 5, 5, 45_000])))
        else:
            number = 0
    return "".join(parts).encode()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(text=_logs())
def test_drawn_logs(text: bytes) -> None:
    rows, found = parse_stream("x.out", io.BytesIO(text)).rows, diagnose_stream(io.BytesIO(text), "x.out")
    assert agree(rows, found), ([(r.format, r.outcome, r.cause) for r in rows], found)


THREE_RUNS = """\
{'loss': 4.1, 'learning_rate': 1e-05, 'epoch': 0.1}
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
***** Running training *****
  Num examples = 10
{'loss': 4.1, 'learning_rate': 1e-05, 'epoch': 0.1}
KeyError: 'labels'
***** Running training *****
  Num examples = 10
{'loss': 4.1, 'learning_rate': 1e-05, 'epoch': 0.1}
"""


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("{'train_runtime': 12.5, 'train_samples_per_second': 3.0}\n", "none"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB.\n", "device_oom"),
        ("slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n", "walltime"),
        ("", "unknown"),
    ],
)
def test_each_run_of_a_file_has_its_cause_and_its_line(tmp_path: Path, end: str, cause: str) -> None:
    file = tmp_path / "several.log"
    file.write_text(THREE_RUNS + end)
    found = diagnose_files([file])
    assert [(one.source, one.cause.id) for one in found.runs] == [
        ("several", "device_oom"), ("several#2", "python_exception"), ("several#3", cause),
    ]  # fmt: skip
    assert [one.evidence[0].line for one in found.runs[:2]] == [2, 6]
    assert found.cause.id == cause and (cause in ("unknown",) or found.evidence[0].line == 10)
    assert agree(list(parse_paths([file])), found)


def test_a_line_that_stands_there_more_often_has_no_number(tmp_path: Path) -> None:
    file = tmp_path / "several.log"
    file.write_text("retrying after KeyError: 'labels'\nKeyError: 'labels'\n" + THREE_RUNS + "KeyError: 'labels'\n")
    found = diagnose_files([file])
    assert [one.cause.id for one in found.runs][-2:] == ["python_exception"] * 2
    assert found.runs[-2].evidence[0].line is None
    assert found.to_dict()["runs"][-2]["evidence"][0]["line"] is None


@pytest.mark.parametrize(
    ("name", "cause"), [("slurm-812.out", "python_exception"), ("slurm-7.out", "walltime"), ("x.out", "walltime")]
)
def test_what_slurm_says_of_another_job_was_printed_by_the_program(tmp_path: Path, name: str, cause: str) -> None:
    file = tmp_path / name
    quoted = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
    file.write_text(f"iter 1: loss 3.1, time 100.00ms, mfu 30.00%\nsample:\n{quoted}" + "Traceback (most recent call last):\n"
                    '  File "a.py", line 3, in f\nKeyError: 7\n')  # fmt: skip
    found = diagnose_files([file])
    assert found.cause.id == cause and agree(list(parse_paths([file])), found)


STATE = (
    '{{"global_step": {done}, "max_steps": 40, "log_history": [{{"loss": 2.5, "step": {done}, "epoch": 1.0}}{more}]}}'
)
PROFILED = '{"key": "Llama-2-7b-bs2-seq350-zero3", "step_time (s)": 2.5, "token/s": 1000.0}\n'
LONG = ', {"words": "' + "x" * 9_000 + '"}'
CELL = (
    '{"cells": [{"cell_type": "code", "outputs": [{"output_type": "stream", "text": ["LOSS"]}]}],'
    ' "metadata": {}, "nbformat": 4}'
)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (STATE.format(done=40, more=""), "COMPLETED"),
        (STATE.format(done=20, more=', {"train_runtime": 12.5, "step": 20}'), "COMPLETED"),
        (STATE.format(done=20, more=""), "UNKNOWN"),
        (STATE.format(done=40, more=LONG * 2_000), "COMPLETED"),
        ('{\n    "epoch": 1.0,\n    "train_loss": 2.3,\n    "train_runtime": 12.5\n}', "COMPLETED"),
        ('{"epoch": 1.0, "eval_loss": 2.2, "eval_runtime": 1.5, "train_runtime": 12.5}', "COMPLETED"),
        ('{"eval_loss": 2.2, "eval_runtime": 1.5, "perplexity": 9.0}', "COMPLETED"),
        ('{"total_token_throughput": 9.5, "duration": 2.5}', "COMPLETED"),
        (PROFILED, "COMPLETED"),
        (PROFILED * 3, "COMPLETED"),
        ('{"loss": 2.5, "words": "no document that is known"}', "UNKNOWN"),
        (CELL.replace("LOSS", "{'loss': 2.5, 'epoch': 1.0}\\n{'train_runtime': 12.5}\\n"), "COMPLETED"),
        (CELL.replace("LOSS", "{'loss': 2.5, 'epoch': 1.0}\\n"), "UNKNOWN"),
        ("step,loss\n1,2.5\n2,2.25\n", "UNKNOWN"),
    ],
)
def test_a_file_that_is_no_stream_of_lines(text: str, outcome: str) -> None:
    rows, found = (
        parse_stream("x.json", io.BytesIO(text.encode())).rows,
        diagnose_stream(io.BytesIO(text.encode()), "x.json"),
    )
    assert {row.outcome for row in rows} == {outcome}
    assert agree(rows, found), ([(r.format, r.outcome, r.cause) for r in rows], found)
    assert "in the middle" not in found.summary or rows[0].format == UNKNOWN_FORMAT or "cell_type" in text
    assert found.meaning and (outcome != "COMPLETED" or found.cause.id == "none")


COMPLAINTS = (
    "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
    "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'cuda/11'",
    'Lmod has detected the following error: The following module(s) are unknown: "cuda/11"',
    "/var/spool/slurmd/job9/slurm_script: line 4: module: command not found",
    "/var/spool/slurmd/job9/slurm_script: line 4: conda: command not found",
    "/var/spool/slurmd/job9/slurm_script: line 4: accelerate: command not found",
)
DOWN = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59"
ENDS = (
    (f"{DOWN} DUE TO TIME LIMIT ***", "walltime"),
    (f"{DOWN} DUE TO PREEMPTION ***", "preempted"),
    (f"{DOWN} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "node_fail"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=9.batch. Some of the step tasks have been OOM Killed.", "host_oom"),
    ("=>> PBS: job killed: walltime 3601 exceeded limit 3600", "walltime"),
)  # fmt: skip


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize(("end", "cause"), ENDS)
def test_the_scheduler_says_what_ended_a_job_that_had_only_complained(complaint: str, end: str, cause: str) -> None:
    text = f"{complaint}\nepoch 1 of something\nepoch 2 of something\n{end}\n".encode()
    rows, found = parse_stream("x.out", io.BytesIO(text)).rows, diagnose_stream(io.BytesIO(text), "x.out")
    assert found.cause.id == cause
    assert agree(rows, found)


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_a_complaint_is_the_cause_where_nothing_else_is_said(complaint: str) -> None:
    text = f"{complaint}\nModuleNotFoundError: No module named 'torch'\n{DOWN} ***\n".encode()
    assert diagnose_stream(io.BytesIO(text), "x.out").cause.id in (
        "module_missing",
        "conda_not_initialised",
        "package_missing",
    )


@pytest.mark.parametrize(
    "killed", ["Killed", "failed (exitcode: -9) local_rank: 0 (pid: 7) of binary: python", "exit code 137"]
)
def test_a_guess_is_called_one_where_parse_lists_a_failure(killed: str) -> None:
    text = f"iter 1: loss 2.5, time 5.0ms\n{killed}\n".encode()
    rows, found = parse_stream("x.out", io.BytesIO(text)).rows, diagnose_stream(io.BytesIO(text), "x.out")
    assert ("a guess" in found.summary) == (found.cause.id == "host_oom" and rows[0].outcome == "FAILED")
    assert found.cause.id == rows[0].cause
