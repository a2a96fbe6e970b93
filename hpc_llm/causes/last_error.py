"""The last line in which Slurm or MPI says itself that something is an error: where no cause is known by name, that is the word to read."""

from __future__ import annotations

import re

from hpc_llm.causes import life

_ERROR = re.compile(
    rb"^(?:\[?\d{1,5}\]?: ?)?(?:(?:srun|sbatch|salloc|slurmstepd(?:-[\w.-]{1,80})?|mpirun|mpiexec(?:\.hydra)?|prterun|orterun|flux-\w{1,20}|qsub|bsub): (?:fatal|error): \S[^\n]{0,390}"
    rb"|(?:qsub|bsub): \S[^\n]{0,390}|Abort\(\d{1,12}\) on node \d{1,6} [^\n]{1,380}|Fatal error in (?:internal_|PMPI_|MPI_)\w{1,60}[^\n]{0,340}"
    rb"|(?:\[[\w.-]{1,80}:\d{1,10}\] )?\*\*\* (?:An error occurred in MPI_\w{1,60}|MPI_ERR_\w{1,40}: [^\n]{1,300})"
    rb"|\[mpiexec@[\w.-]{1,80}\] [^\n]{1,300}|MPI startup\(\): (?!Warning|WARNING|Intel\(R\))[^\n]{0,120}\bnot found\b[^\n]{0,240})",
    re.MULTILINE,
)
_NO_REASON = re.compile(
    rb": tasks? [\d,-]{1,200}: |\*\*\* (?:JOB|STEP) |forcing job termination|Force Terminated|Waiting up to \d|Job step aborted|Detected \d+ oom|_is_a_lwp|_cgroup"
    rb"|Exited with exit code|Terminating|Timed out waiting for job step|already completing|application called MPI_Abort"
    # What Slurm's own bookkeeping of use lacks at the end of a step, which has failed of something else by then.
    rb"|no task list created|\bjobacct|\bacct_gather|task_\w{1,20}_cg\b"
)
"""What says that something ended, or is ended, or could not be counted, and not of what."""
TAKEN = re.compile(rb"\bSubmitted batch job \d|\bGranted job allocation \d")
"""The word that a request was taken after all: what stood before it was a remark."""
_REFUSED = re.compile(r"^(?:\[?\d{1,5}\]?: ?)?(?:sbatch|salloc|qsub|bsub): ")


def last_error(text: bytes) -> int | None:
    """Where the last such line in `text` begins, unless steps of training follow it, or the request was taken.

    >>> last_error(b"ok\\nsrun: fatal: no such thing\\nsrun: error: n1: task 0: Exited with exit code 1\\n")
    3
    """
    found = [line.start() for line in _ERROR.finditer(text) if not _NO_REASON.search(line[0])]
    if not found or TAKEN.search(text, found[-1]) or next(life.steps(text, found[-1]), None) is not None:
        return None
    return found[-1]


def is_refused(line: str) -> bool:
    """Whether the line says that a request was not taken, so that there is no job."""
    return _REFUSED.match(line) is not None
