"""Advice speaks the language of the batch system whose messages stand in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.causes.catalogue import all_causes
from hpc_llm.diagnosis.askable import SLURMS_COMMANDS
from hpc_llm.diagnosis.batch_systems import in_its_words, speaking
from hpc_llm.diagnosis.elsewhere import in_other_words, where_it_infers

MEMORY = {
    "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.": "bsub -M",
    "=>> PBS: job killed: mem 67108864kb exceeded limit 62914560kb": "qsub -l mem=",
    'job 12.1 exceeds job hard limit "h_vmem" of queue "all.q@n1" (66G > limit:64G) - sending SIGKILL': "h_vmem",
    "Error from n1: Job has gone over memory limit of 65536 megabytes. Peak usage: 65540 megabytes.": "request_memory",
    "    Reason:       OOMKilled": "resources.limits.memory",
}
TIME = {
    "TERM_RUNLIMIT: job killed after reaching LSF run time limit.": ("bsub -W", "bqueues -l"),
    "=>> PBS: job killed: walltime 3617 exceeded limit 3600": ("qsub -l walltime=", "qstat -Qf"),
    "job 123456 exceeded hard wallclock time - initiate terminate method": ("qsub -l h_rt=", "qconf -sq"),
    "2.004s: job.exception type=timeout severity=0 resource allocation expired": ("flux batch -t", "flux queue list"),
}
SPEAKING = [*MEMORY, *TIME, "PBS Job 12.pbs01\nExecution terminated\nExit_status=271"]


def advice(folder: Path, text: str) -> tuple[str, str]:
    file = folder / "job.log"
    file.write_text(f"step 10 | loss 2.1\nstep 11 | loss 2.0\n{text}\n")
    [made] = hpc_llm.diagnose(file)
    return made.cause.id, made.remedy


@pytest.mark.parametrize("text", MEMORY)
def test_memory_is_asked_for_as_that_system_asks_for_it(text: str, tmp_path: Path) -> None:
    cause, remedy = advice(tmp_path, text)
    assert cause == "host_oom" and MEMORY[text] in remedy and not SLURMS_COMMANDS.search(remedy)


@pytest.mark.parametrize("text", TIME)
def test_time_is_asked_for_as_that_system_asks_for_it(text: str, tmp_path: Path) -> None:
    cause, remedy = advice(tmp_path, text)
    assert cause == "walltime" and not SLURMS_COMMANDS.search(remedy)
    assert all(words in remedy for words in TIME[text])


def test_how_a_job_ended_is_asked_of_the_system_that_had_it(tmp_path: Path) -> None:
    cause, remedy = advice(tmp_path, SPEAKING[-1])
    assert cause == "cancelled" and "qstat -xf JOB" in remedy and not SLURMS_COMMANDS.search(remedy)


@pytest.mark.parametrize("text", SPEAKING)
def test_no_advice_of_any_cause_names_a_command_of_slurms_there(text: str) -> None:
    system = speaking(text.splitlines())
    assert system is not None
    for cause in all_causes().values():
        remedies = [in_other_words(cause.id, cause.remedy, is_of_cause=True), where_it_infers(cause.id) or "x"]
        remedies += [in_other_words(cause.id, one.remedy, is_of_cause=False) for one in cause.signs if one.remedy]
        for remedy in remedies:
            said = in_its_words(remedy, system)
            lines = [line for line in said.splitlines() if "qstat" not in line and "bjobs" not in line]
            assert said and not any(map(SLURMS_COMMANDS.search, lines)), (cause.id, said)


@pytest.mark.parametrize(
    "lines",
    [
        ["slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"],
        ["Killed"],
        ["TERM_MEMLIMIT: job killed", "srun: error: n1: task 0: Killed"],
        ["TERM_MEMLIMIT: job killed", "=>> PBS: job killed: walltime 1 exceeded limit 1"],
    ],
)
def test_advice_stays_where_slurm_speaks_or_nobody_is_known(lines: list[str]) -> None:
    remedy = "ask for more: sbatch --mem=…, or --mem=0 for all of the node"
    assert in_its_words(remedy, speaking(lines)) == remedy
