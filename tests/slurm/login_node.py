"""A user's session on the login node of the scratch cluster: the hpc-llm command, run in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from checkout import ROOT
from copied_ranks import copied_command
from last_said import last_said
from polling import pause
from scratch_slurm import ScratchSlurm

from hpc_llm.records.files import read_json_lines
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.process import describe_process, is_alive

COMMAND = str(Path(sys.executable).with_name("hpc-llm"))


class LoginNode:
    """`folder` holds the user's clusters/ and logs/."""

    def __init__(self, folder: Path, slurm: ScratchSlurm) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.slurm = slurm
        folder.mkdir(parents=True, exist_ok=True)

    def start(
        self,
        *words: str,
        environ: dict[str, str] | None = None,
        under: Sequence[str] = (),
        own_session: bool = False,
    ) -> subprocess.Popen[str]:
        """The command, left running; `under` is a command that runs it, as `timeout 5` would."""
        return subprocess.Popen(
            [*under, COMMAND, *last_said(words)], cwd=self.folder, env={**self.slurm.environ, **(environ or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=own_session,
        )  # fmt: skip

    def ask(
        self, *words: str, environ: dict[str, str] | None = None, under: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """The command, run to its end, whatever its exit code."""
        reads_another_clock = "CHAOS_AHEAD" in (environ or {})
        is_plain = reads_another_clock or not any(name.startswith("PYTHON") for name in environ or {})
        if self.slurm.commands is not None and is_plain and not under:
            return copied_command(
                self.slurm.commands,
                [COMMAND, *last_said(words)],
                self.folder,
                {**self.slurm.environ, **(environ or {})},
            )
        process = self.start(*words, environ=environ, under=under)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def do(self, *words: str, environ: dict[str, str] | None = None) -> str:
        """The stdout of a command that must succeed."""
        done = self.ask(*words, environ=environ)
        assert done.returncode == 0, f"hpc-llm {' '.join(words)} exited {done.returncode}:\n{done.stderr}"
        return done.stdout

    def submit(self, *words: str, environ: dict[str, str] | None = None) -> list[RunPaths]:
        """The runs that the request became."""
        document = json.loads(self.do("submit", "--json", *words, environ=environ))
        return [RunPaths(Path(run["run_dir"])) for run in document["runs"]]

    def status(self, runs: Sequence[RunPaths], environ: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """The runs as `status --json` tells them, in the order asked for."""
        names = [run.run_id for run in runs]
        found: list[dict[str, Any]] = json.loads(self.do("status", "--json", *names, environ=environ))["runs"]
        assert [each["run_id"] for each in found] == names
        return found

    def wait(self, runs: Sequence[RunPaths], seconds: float = 240.0) -> list[dict[str, Any]]:
        """The runs' statuses once all of them are over."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.status(runs)
            if all(each["outcome"] for each in found):
                return found
            assert time.monotonic() < deadline, f"not over after {seconds:.0f} s: {found}"
            _sleep_until_ended([run for run, each in zip(runs, found, strict=True) if not each["outcome"]])

    def add_cluster(self, name: str, **profile: object) -> None:
        """A profile of the user's own."""
        file = self.folder / "clusters" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump({"name": name, **profile}))


def _sleep_until_ended(runs: Sequence[RunPaths]) -> None:
    """Until all have said that they end, or for a few seconds: asking takes more of the processor than some runs."""
    asked = time.monotonic()
    while True:
        time.sleep(0.2)
        if time.monotonic() > asked + 4 or all(run.exit.exists() for run in runs):
            return


def until(what: str, condition: Callable[[], bool], seconds: float = 150.0) -> None:
    """Poll for something that happens soon."""
    deadline = (began := time.monotonic()) + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{seconds:.0f} s were not enough until {what}"
        pause(began)
        began = time.monotonic()


def until_dead(pids: Iterable[int]) -> None:
    """Wait until these processes are dead: one that ends has lost its environment, and with it its marks, while it lives."""
    described = [describe_process(pid) for pid in pids]
    until("the processes are dead", lambda: not any(map(is_alive, described)))


def steps_of(run: RunPaths) -> list[int]:
    return [row["step"] for row in read_json_lines(run.steps)]


def trains(run: RunPaths, steps: int = 3) -> None:
    """Wait until a run has done so many steps."""
    until("it trains", lambda: len(steps_of(run)) >= steps)


def job_id(run: RunPaths) -> str:
    found = json.loads(run.job.read_text())["job_id"]
    assert isinstance(found, str), "its job id is not known"
    return found


def printed(run: RunPaths) -> str:
    """All that the run has printed so far."""
    return "".join(path.read_text() for path in (run.stdout, run.stderr) if path.exists())


def prepend_path(folder: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}


def strict_templates(folder: Path) -> Path:
    """Templates of one's own that begin as most job scripts do; all else is as it is brought."""
    own = folder / "own templates"
    own.mkdir()
    brought = (ROOT / "templates" / "prelude.sh.j2").read_text()
    (own / "prelude.sh.j2").write_text(f"set -euo pipefail\nIFS=$'\\n\\t'\n{brought}")
    return own
