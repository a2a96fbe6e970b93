"""A scheduler that keeps its jobs in a folder and runs them by a shell in the background."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

from hpc_llm.errors import SubmissionError
from hpc_llm.schedulers.answer import Answer
from hpc_llm.schedulers.identity import marked_comment, marked_name
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.runs import write_job
from hpc_llm.schedulers.scheduler import Scheduler
from hpc_llm.site.schedulers import JobVariables

HOME = Path(os.environ.get("TOY_HOME", "/nowhere"))


class Toy(Scheduler):
    name = "toy"
    title = "Toy"
    command = "toy"
    variables = JobVariables(job_id=("TOY_ID",), job_name=("TOY_NAME",))

    def is_here(self):
        return HOME.is_dir()

    def header(self, planned, cluster, place, array):
        from hpc_llm.job.render import HeaderLine

        return [HeaderLine("#TOY please", "the toy")]

    def submit(self, submission, runs, script):
        if (HOME / "closed").exists():
            raise SubmissionError("toy is closed")
        [run] = runs
        job_id = f"toy_{len(list(HOME.glob('toy_*'))) + 1}.x"
        folder = HOME / job_id
        folder.mkdir()
        (folder / "job.sh").write_text(script)
        (folder / "uuid").write_text(submission.uuid)
        here = shlex.quote(str(folder))
        own = {"TOY_ID": job_id, "TOY_NAME": marked_name(submission.job_name, submission.uuid)}
        with open(run.stdout, "a") as out, open(run.stderr, "a") as err:
            process = subprocess.Popen(
                ["sh", "-c", f"bash {here}/job.sh; echo $? > {here}/end"],
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        (folder / "pid").write_text(str(process.pid))
        if not (HOME / "forgetful").exists():
            write_job(run, job_id)

    def ask(self, identities):
        if not self.is_here():
            return Answer(answered=False, complaint="there is no toy here")
        jobs = {(folder / "uuid").read_text(): folder for folder in HOME.glob("toy_*")}
        found = {one.key: jobs[one.uuid] for one in identities if one.uuid in jobs}
        return Answer({key: record(folder) for key, folder in found.items()}, {key: f.name for key, f in found.items()})

    def end(self, job_ids, job_name):
        for job_id in job_ids:
            (HOME / job_id / "cancelled").touch()
            os.killpg(int((HOME / job_id / "pid").read_text()), signal.SIGTERM)
        return ""

    def find_job(self, job_id):
        folder = HOME / job_id
        return (record(folder) if folder.is_dir() else None), ""


def record(folder):
    end = folder / "end"
    code = int(end.read_text()) if end.exists() and end.read_text() else None
    state = "RUNNING" if code is None else "FAILED" if code else "COMPLETED"
    return JobRecord(
        state="CANCELLED" if (folder / "cancelled").exists() else state,
        exit_code=code,
        user_id=os.getuid(),
        started_at=folder.stat().st_mtime,
        comment=marked_comment(None, (folder / "uuid").read_text()),
    )


SCHEDULER = Toy()
