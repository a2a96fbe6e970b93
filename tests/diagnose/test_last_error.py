"""A line in which Slurm or MPI says that something is an error is the word, also where its cause has no name here."""

from __future__ import annotations

from typing import Any

import pytest

STEP = "step 9 loss 2.5\n"
ENDED = "srun: error: n1: task 0: Exited with exit code 15\n"
UNNAMED = {
    "srun": "srun: fatal: No idea what to do with that constellation\n",
    "a launcher": "[mpiexec@n1] main (proxy.c:31): the demux engine gave up on its ports\n",
    "MPI": "Abort(1090831) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Comm_split: Other MPI error, error stack:\n",
    "mpirun": "mpirun: error: no hosts of that kind\n",
}
SILENT = {
    "an exit code": ENDED,
    "a step that ended": "slurmstepd: error: *** STEP 7.0 ON n1 FAILED (non-zero exit code or other failure mode) ***\n",
    "a late step": "srun: error: Unable to create step for job 2998: Job/step already completing or completed\n",
    "a task that is counted no more": "slurmstepd-n1: error: no task list created!\n",
    "what a step used": "slurmstepd: error: Could not find task_cpuacct_cg, this should never happen\nslurmstepd: error: jobacctinfo_getinfo: read failed\n",
    "an abort that is asked for": "Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3\n",
    "a remark on a request that was taken": "sbatch: error: lua: your project ends soon\nSubmitted batch job 7\n",
    "trained on": UNNAMED["srun"] + "".join(f"step {n} loss 2.{n}\n" for n in range(3)),
}


@pytest.mark.parametrize("line", UNNAMED.values(), ids=UNNAMED)
def test_the_last_word_on_an_error_is_told_where_no_cause_has_its_name(line: str, diagnose: Any) -> None:
    found = diagnose(f"loading\n{line}{ENDED}")
    assert found.cause.id == "unknown" and "Nothing in the output" not in found.meaning
    assert found.meaning == f"The cause is not known by name; the last error line is: {line.strip()}"
    assert found.evidence[0].text == line.strip() and found.evidence[0].line == 2
    assert "sacct" in found.remedy


def test_a_request_that_was_refused_has_no_job_to_ask_for(diagnose: Any) -> None:
    found = diagnose("sbatch: error: The moon is in the wrong house\n")
    assert found.cause.id == "unknown" and "the last error line is: sbatch" in found.meaning
    assert "sacct -j" not in found.remedy and "no job came of that request" in found.remedy


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_what_says_only_that_something_ended_is_no_reason(text: str, diagnose: Any) -> None:
    found = diagnose(STEP + text)
    assert found.cause.id == "unknown" and "Nothing in the output says why" in found.meaning


@pytest.mark.parametrize(
    ("text", "cause", "said"),
    [
        ("srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.\n", "launch_failed", "unset SLURM_MEM_PER_CPU"),
        ("sbatch: error: lua: Requesting memory by node is not supported. Use --mem-per-cpu.\n", "config_error", "the site's own rules"),
        ("sbatch: error: job_submit/lua: partition gpu wants --gpus\nsbatch: error: Batch job submission failed: Unspecified error\n", "config_error", ""),
        ("sbatch: error: lua: your project ends soon\nSubmitted batch job 7\n", "unknown", ""),
        (
            "MPI startup(): PMI server not found. Please set I_MPI_PMI_LIBRARY variable if it is not a singleton case.\n"
            "Abort(1090831) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Unknown error class\n",
            "launch_failed",
            "I_MPI_PMI_LIBRARY",
        ),
        ("MPI startup(): PMI server not found. Please set I_MPI_PMI_LIBRARY variable if it is not a singleton case.\n" + STEP, "unknown", ""),
    ],
)  # fmt: skip
def test_requests_that_are_refused_before_anything_begins(text: str, cause: str, said: str, diagnose: Any) -> None:
    found = diagnose(text)
    assert (found.cause.id, said in found.remedy) == (cause, True), found.remedy
