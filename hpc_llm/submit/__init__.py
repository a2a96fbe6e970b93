"""From a rendered script to a run under way: the run folder, the carried code, Slurm and the local queue.

Nothing here imports submitit until something is really submitted, so that printing a script stays quick.
"""

from hpc_llm.submit.local import submit_local
from hpc_llm.submit.runs import NewRun, create_runs, discard_run, new_run_id, take_back
from hpc_llm.submit.slurm import UnclearAnswer, submit_slurm
from hpc_llm.submit.snapshot import code_digest, code_snapshot
from hpc_llm.submit.submission import Submission

__all__ = [
    "NewRun",
    "Submission",
    "UnclearAnswer",
    "code_digest",
    "code_snapshot",
    "create_runs",
    "discard_run",
    "new_run_id",
    "submit_local",
    "submit_slurm",
    "take_back",
]
