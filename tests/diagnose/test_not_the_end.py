"""What a log says in passing, or counts of something else, is neither the end of its job nor its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.causes.life import reached_last_step
from hpc_llm.diagnosis import diagnose_files

BITSANDBYTES = "/home/u/env/lib/python3.10/site-packages/bitsandbytes/libbitsandbytes_cpu.so: undefined symbol: cadam32bit_grad_fp32\n"
OTHER = "/home/u/env/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi\n"
LAUNCHER = (
    'Launcher: Starting parallel tasks...\nLmod has detected the following error: The following module(s) are unknown:\n"git"\n\n'
    "Launcher: Task 3 running job 4 on c101-7 (bash part_4.sh)\nLauncher: Job 4 completed in 71 seconds.\n"
    "Launcher: Done. Job exited without errors\n"
)
LMOD = LAUNCHER[LAUNCHER.index("Lmod") : LAUNCHER.index("Launcher: Task")]


OLD_DRIVER = "/e/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n  return torch._C._cuda_getDeviceCount() > 0\n"
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\n    main()\n'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OLD_DRIVER, "driver_mismatch"),
        (OLD_DRIVER + "srun: error: n1: task 0: Exited with exit code 1\n", "driver_mismatch"),
        (OLD_DRIVER + "cpu\nepoch 1 accuracy 0.31\n", "unknown"),
        (
            OLD_DRIVER + f"cpu\n{RAISED}RuntimeError: shape '[16, 64, 192]' is invalid for input of size 1228800\n",
            "python_exception",
        ),
        (
            OLD_DRIVER + f"cpu\n{RAISED}torch._C._LinAlgError: torch.linalg.solve: the input matrix is singular.\n",
            "python_exception",
        ),
        (OLD_DRIVER + f"{RAISED}ValueError: fp16 mixed precision requires a GPU\n", "driver_mismatch"),
        (OLD_DRIVER + f"starts\n{RAISED}RuntimeError: No CUDA GPUs are available\n", "driver_mismatch"),
        (BITSANDBYTES + "Using CPU\nGreedy total time: 102.7\n", "unknown"),
        (OTHER, "driver_mismatch"),
        (LAUNCHER, "unknown"),
        (LMOD, "module_missing"),
        (LAUNCHER + LMOD + "Launcher: Setup complete.\n", "module_missing"),
    ],
)
def test_what_a_program_went_on_behind(tmp_path: Path, text: str, cause: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(text)
    assert diagnose_files([log]).cause.id == cause


@pytest.mark.parametrize(
    ("counter", "cause"),
    [
        ("Step 6/6 : RUN python3 -c 'import lib'\n ---> Using cache\n", "unknown"),
        ("Task: TV, Iter:12990/12990; accuracy 71.3\n", "unknown"),
        ("Step 6/6 : RUN make\n{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 1.0}\n", "unknown"),
        ("iter 10: loss 2.5000, time 100.00ms, mfu 10.00%\nStep 10/10 : loss 2.5\n", "unknown"),
        ("{'train_runtime': 3.0, 'train_loss': 1.0, 'epoch': 1.0}\n", "none"),
    ],
)
def test_a_counter_of_no_known_program_ends_no_job(tmp_path: Path, counter: str, cause: str) -> None:
    files = [tmp_path / "job.err", tmp_path / "job.out"]
    files[0].write_text("the last layer was not built\n")
    files[1].write_text(f"Step 5/6 : RUN pip3 install lib\n{counter}")
    found, [row] = diagnose_files(files), hpc_llm.parse(tmp_path)
    assert found.cause.id == cause and row.outcome == ("COMPLETED" if cause == "none" else "UNKNOWN")


def test_a_time_among_data_is_no_beginning(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    steps = "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    log.write_text("  * time     (time) datetime64[ns] 2012-10-01T00:30:00 ... 2013-09-30T23:30:00\n" + steps)
    [row] = hpc_llm.parse(log)
    assert row.started_at is None


def test_a_last_step_is_an_end_and_the_last_layer_of_an_image_is_none() -> None:
    assert reached_last_step(b"step 99/100 : loss 2.6\nStep 100/100 : loss 2.5\n") == 23
    assert reached_last_step(b"Step 6/6 : RUN make\n") is None
