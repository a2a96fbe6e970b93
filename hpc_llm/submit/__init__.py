"""From a rendered script to a run under way: the run folder, the carried code, Slurm and the local queue.

Nothing here imports submitit until something is really submitted, so that printing a script stays quick.
"""

from hpc_llm.submit.local import submit_local
from hpc_llm.submit.runs import create_run, discard_run, new_run_id
from hpc_llm.submit.slurm import submit_slurm
from hpc_llm.submit.snapshot import code_digest, code_snapshot

__all__ = [
    "code_digest",
    "code_snapshot",
    "create_run",
    "discard_run",
    "new_run_id",
    "submit_local",
    "submit_slurm",
]
