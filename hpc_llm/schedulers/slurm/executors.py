"""submitit's Slurm executor with our own batch file. The only module that imports submitit's Slurm side."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils
from submitit.slurm.slurm import SlurmExecutor

from hpc_llm.records.files import make_own_folder
from hpc_llm.schedulers.environment import inherited_from_slurm
from hpc_llm.schedulers.runs import accepted_job_id, answer_file, asking_file
from hpc_llm.schedulers.slurm import sbatch_session


class ScriptExecutor(SlurmExecutor):
    """Submits `script` byte for byte, as one job or as one array, with `arguments` beside it.

    The script starts the training program itself, so a job leaves no pickled result: what became of it is in the run's
    folder and in Slurm's accounting.
    """

    def __init__(self, folder: Path, script: str, arguments: Sequence[str], *, is_array: bool) -> None:
        super().__init__(folder)
        self._script = script
        self._arguments = list(arguments)
        self._is_array = is_array

    @classmethod
    def name(cls) -> str:
        return "slurm"  # submitit would take it from the name of the class

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._script

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        unset = [word for name in inherited_from_slurm(os.environ) for word in ("-u", name)]
        session = [sys.executable, "-I", str(Path(sbatch_session.__file__)), str(os.getpid())]
        records = [str(asking_file(self.folder)), str(answer_file(self.folder))]
        script = [str(submission_file_path), hashlib.sha256(self._script.encode()).hexdigest()]
        return [*session, *records, *script, "env", *unset, "sbatch", *self._arguments]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        text = string if isinstance(string, str) else string.decode()
        job_id = accepted_job_id(f"{text}\n")  # submitit strips it; whether it was whole, the kept answer tells
        if job_id is None:
            raise utils.FailedSubmissionError(f"sbatch answered without a job id: {text.strip()}")
        return job_id

    def _internal_process_submissions(self, delayed_submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        # Upstream makes a plain SlurmExecutor for an array, which would write its own batch file.
        if not self._is_array:
            return super()._internal_process_submissions(delayed_submissions)
        make_own_folder(self.folder)
        array = self._submit_command(self._submitit_command_str)
        tasks = range(self._num_tasks())
        jobs = [self._array_job(array.job_id, k, tasks) for k in range(len(delayed_submissions))]
        for job, delayed in zip(jobs, delayed_submissions, strict=True):
            delayed.dump(job.paths.submitted_pickle)
        return jobs

    def _array_job(self, array_id: str, task: int, ranks: Sequence[int]) -> core.Job[Any]:
        return self.job_class(folder=self.folder, job_id=f"{array_id}_{task}", tasks=ranks)
