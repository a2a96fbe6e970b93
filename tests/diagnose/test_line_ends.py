"""The line ends of Windows are the cause of what they break, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

SCRIPT = "/var/spool/slurmd/job7/slurm_script: line 2: $'\\r': command not found\n"
BROKEN = {
    "a module": 'Lmod has detected the following error:  The following module(s) are unknown: "cuda/12.1"\n',
    "an environment": "CondaEnvironmentNotFoundError: Could not find conda environment: llm\n",
    "a program": "python: can't open file '/w/train.py': [Errno 2] No such file or directory\n",
    "a package": "Traceback (most recent call last):\n  File \"/w/train.py\", line 1, in <module>\nModuleNotFoundError: No module named 'torch'\n",
    "a command": "bash: torchrun: command not found\n",
    "a value": "train.py: error: argument --steps: invalid int value: '10\\r'\n",
}  # fmt: skip
OTHERS = {
    "device_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    "python_exception": "Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in <module>\n    step()\nKeyError: 'loss'\n",
    "walltime": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_a_carriage_return_breaks_has_it_as_its_cause(text: str, diagnose: Any) -> None:
    found = diagnose(SCRIPT + text)
    assert found.cause.id == "script_error" and found.chain[0] == "script_error"
    assert "sed -i 's/\\r$//'" in found.remedy and "carriage return" in found.meaning


@pytest.mark.parametrize(("cause", "text"), OTHERS.items(), ids=OTHERS)
def test_what_else_failed_behind_it_has_its_own(cause: str, text: str, diagnose: Any) -> None:
    assert diagnose(SCRIPT + text).cause.id == cause


def test_what_failed_before_it_does_not_follow_from_it(diagnose: Any) -> None:
    assert diagnose(BROKEN["a module"] + SCRIPT).cause.id == "module_missing"


@pytest.mark.parametrize("name", ["a module", "a program", "a package"])
def test_without_a_carriage_return_nothing_is_laid_to_it(name: str, diagnose: Any) -> None:
    assert diagnose(BROKEN[name]).cause.id != "script_error"
    said = diagnose("job.sh: line 3: NAME: unbound variable\n" + BROKEN[name])
    assert said.cause.id != "script_error"  # another slip of a script explains none of these
