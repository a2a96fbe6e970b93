"""A script that goes on after a program that was killed or failed, with another that misses what that should have left."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]
STEPS = "".join(f"{{'loss': {3 - n / 10:.2f}, 'learning_rate': 1e-05, 'epoch': {n / 100}}}\n" for n in range(1, 4))
BAR = "  1%|          | 20/3000 [00:24<55:43,  1.19s/it]"
RAISED = 'Traceback (most recent call last):\n  File "{}", line 3, in <module>\n    main()\n{}\n'
KILLED = {
    "shell": "\n/var/spool/slurmd/job123/slurm_script: line 12: 366842 Killed                  python finetune.py\n",
    "sh": "\nKilled\n",
    "deepspeed": "[2024-05-15 14:27:15,384] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 366842\n"
    "[2024-05-15 14:27:15,384] [ERROR] [launch.py:322:sigkill_handler] ['/opt/bin/python', '-u', 'finetune.py'] exits with return code = -9\n",
    "torchrun": "\nE0319 14:23:04.852000 32645 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 0 "
    "(pid: 366842) of binary: /opt/bin/python\n",
}
MISSES = {
    "model": "OSError: /home/me/out does not appear to have a file named config.json. Checkout "
    "'https://huggingface.co//home/me/out/main' for available files.",
    "file": "FileNotFoundError: [Errno 2] No such file or directory: 'out/preds.json'",
    "argument": "ValueError: no predictions in out",
}


@pytest.mark.parametrize("misses", MISSES.values(), ids=MISSES)
@pytest.mark.parametrize("killed", KILLED.values(), ids=KILLED)
def test_the_training_that_was_killed_is_the_cause(killed: str, misses: str, diagnose: Diagnose) -> None:
    alone = diagnose(STEPS + BAR + killed)
    text = STEPS + BAR + killed + RAISED.format("infer.py", misses)
    found, row = diagnose(text), parse_stream("a.log", io.BytesIO(text.encode())).rows[-1]
    assert (found.cause.id, found.confidence) == ("host_oom", alone.confidence)
    assert found.chain[0] == "host_oom" and len(found.chain) == 2
    assert (row.cause, row.outcome) == ("host_oom", "FAILED")


def test_the_training_that_failed_is_the_cause(diagnose: Diagnose) -> None:
    failed = RAISED.format("finetune.py", "ValueError: x is no y") + RAISED.format("infer.py", MISSES["model"])
    assert diagnose(STEPS + failed).chain == ("python_exception", "model_missing")


def test_what_a_later_program_says_of_itself_stands_where_none_ended_before(diagnose: Diagnose) -> None:
    missing = RAISED.format("finetune.py", MISSES["model"])
    assert diagnose(missing + KILLED["torchrun"]).cause.id == "model_missing"
    # A check before training is no training that failed, and ranks of one script are no later program.
    assert diagnose(RAISED.format("check.py", "ValueError: x") + missing).cause.id == "model_missing"
    assert diagnose(STEPS + RAISED.format("finetune.py", "ValueError: x") + missing).cause.id == "model_missing"
