"""What sbatch gets beside the script, and how Slurm writes ids."""

from __future__ import annotations

import re

from hpc_llm.schedulers.identity import marked_comment, marked_name

JOB_ID = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9})?")
"""As Slurm counts; anything else in a record is damage, and would spoil the question for all runs."""


def sbatch_arguments(job_name: str, comment: str | None, uuid: str) -> list[str]:
    """The marks of a submission: the same flags in the script itself yield to these."""
    return [f"--job-name={marked_name(job_name, uuid)}", f"--comment={marked_comment(comment, uuid)}"]
