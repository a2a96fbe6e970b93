"""Which environment variables a command or a job must not inherit."""

from __future__ import annotations

from collections.abc import Mapping

from hpc_llm.site.schedulers import JobVariables

_PREFIXES = ("SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_", "SLURM_", "SLURMD_")
_CLIENT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
"""How a client finds and talks to its cluster; everything else changes what a command asks for or prints."""

JOB_VARIABLES = JobVariables(
    job_id=("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"),
    cluster=("SLURM_CLUSTER_NAME",),
    job_name=("SLURM_JOB_NAME",),
    array_task=("SLURM_ARRAY_TASK_ID",),
    restart_count=("SLURM_RESTART_COUNT",),
)


def inherited_from_slurm(environ: Mapping[str, str]) -> list[str]:
    """Names in `environ` by which the user's shell, or a job that it runs in, would change a command or a job.

    SBATCH_* outranks the #SBATCH lines, so the script shown would not be the script that runs; SLURM_PROCID and its
    like tell a training program that it is a rank of the enclosing job.

    >>> inherited_from_slurm({"PATH": "/bin", "SBATCH_ACCOUNT": "x", "SLURM_CONF": "/etc/slurm.conf"})
    ['SBATCH_ACCOUNT']
    """
    return sorted(name for name in environ if name.startswith(_PREFIXES) and name not in _CLIENT)


def without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` less those names."""
    dropped = set(inherited_from_slurm(environ))
    return {name: value for name, value in environ.items() if name not in dropped}
