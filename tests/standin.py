"""A machine for job scripts: real bash and coreutils; modules, conda, launchers and the training program are stand-ins.

The stand-in for the program writes down what reached it, its arguments and its environment, and then does what the
file `behave` in the run's folder says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkout import ROOT
from rendering import batch

from hpc_llm.schedulers import code_snapshot, support_of
from hpc_llm.site.cluster import Cluster, parse_cluster
from hpc_llm.text.yaml_text import read_yaml

MODULES = """\
module() {
  echo "module $*" >> "$STANDIN_LOG"
  case $1 in
    load)
      case $2 in
        missing*) echo "ERROR: Unable to locate a modulefile for '$2'" >&2; return 1 ;;
        silent*) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate '$2'" >&2; return 0 ;;  # as Tcl 3.2 does
        *conda*) export PATH=$STANDIN/conda/bin:$PATH ;;
      esac
      export LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}$2/1.0 ;;
    purge) unset LOADEDMODULES ;;
  esac
}
"""
CONDA = """\
#!/bin/bash
case $* in
  "info --base") echo "$STANDIN/conda" ;;
  *) echo "CondaError: Run 'conda init' before 'conda activate'" >&2; exit 1 ;;
esac
"""
HOOK = """\
conda() {
  [ "$1" = activate ] || return 1
  [ -d "$2" ] || { echo "EnvironmentLocationNotFound: Not a conda environment: $2" >&2; return 1; }
  [ ! -e "$2/does-not-activate" ] || return 0
  export CONDA_PREFIX=$2 PATH=$2/bin:$PATH
}
"""
PYTHON = """\
#!/bin/bash
here=$(dirname "$0")
if [ -e "$here/broken" ]; then exit 1; fi
flags=
[ ! -e "$here/bare" ] || flags="-S -I"
case $1 in
  -) exec {python} $flags "$@" ;;
  -c) exec {python} $flags "$@" ;;  # the check of the archive
  -I) exec {python} "$@" ;;
  *) exec {python} -S -E {program} "$@" ;;
esac
"""
PROGRAM = """\
import json, os, pathlib, signal, sys, time
run_dir = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
def seen(**more):
    record = {"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), **more}
    (run_dir / "seen.json").write_text(json.dumps(record))
seen()
behave = run_dir / "behave"
words = behave.read_text().split() if behave.exists() else ["0"]
if words[0] == "wait":
    def ended(number, frame):
        seen(signal=number)
        os._exit(int(words[1]))
    signal.signal(signal.SIGTERM, ended)
    (run_dir / "ready").touch()
    for _ in range(1200):  # a signal that comes just before a sleep does not shorten it
        time.sleep(0.05)
    os._exit(99)
if words[0] == "until":
    (run_dir / "ready").touch()
    while not (run_dir / "go").exists():
        time.sleep(0.01)
    sys.exit(int(words[1]))
if words[0] == "train":
    said = json.dumps({"try": os.environ["HPC_LLM_TRY"]})
    for name in ("steps.jsonl", "telemetry.jsonl", "telemetry-1.jsonl"):
        with open(run_dir / name, "x") as file:
            file.write(said + "\\n")
    if words[1] == "FAILED":
        (run_dir / "failures").mkdir()
        (run_dir / "failures" / "rank-0.json").write_text(said)
    if words[1] != "NOTHING":
        (run_dir / "result.json").write_text(json.dumps({"outcome": words[1], "try": said}, indent=1))
    sys.exit(int(words[2]))
sys.exit(int(words[0]))
"""
LAUNCHER = """\
#!/bin/bash
echo "{name} $*" >> "$STANDIN_LOG"
while [ $# -gt 0 ]; do
  case $1 in
    -np|--bind-to) shift 2 ;;
    -*) shift ;;
    *) exec "$@" ;;
  esac
done
"""


UUID = "0123abcd-0000-4000-8000-000000000000"
"""Of each run's submission; a job whose name ends in its digits is that of the run."""


def intend(folder: Path, task: int | None = None) -> None:
    """What submission leaves in a run's folder: without it the script writes nothing there."""
    record = {"schema": 2, "run_id": folder.name, "run_dir": str(folder), "uuid": UUID, "array_task": task}
    (folder / "job.json").write_text(json.dumps(record, indent=1))


@dataclass
class Ended:
    """How a script ended and what it left behind."""

    code: int
    stdout: str
    stderr: str
    run: Path

    @property
    def exit(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.run / "exit.json").read_bytes().decode("utf-8"))
        return record

    @property
    def seen(self) -> dict[str, Any] | None:
        path = self.run / "seen.json"
        return json.loads(path.read_text()) if path.exists() else None


class Machine:
    """Everything under one folder; `canary` is what no value may bring into being."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env_dir = folder / "envs" / "a stack"
        self.logs = folder / "logs"
        self.canary = folder / "canary"
        self.log = folder / "standins.log"
        self._write("init/modules.sh", MODULES)
        self._write("conda/bin/conda", CONDA, 0o755)
        self._write("conda/etc/profile.d/conda.sh", HOOK)
        self._write("program.py", PROGRAM)
        python = PYTHON.format(python=sys.executable, program=f"'{folder}/program.py'")
        self._write("envs/a stack/bin/python", python, 0o755)
        for name in ("mpirun", "srun"):
            self._write(f"bin/{name}", LAUNCHER.format(name=name), 0o755)
        self.logs.mkdir()
        self.code = code_snapshot(folder)
        self.support = support_of(folder)
        self.environ = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "USER": "someone",
            "TMPDIR": str(folder / "tmp"),
            "STANDIN": str(folder),
            "STANDIN_LOG": str(self.log),
        }
        (folder / "tmp").mkdir()

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def cluster(self, **changes: Any) -> Cluster:
        """A site with modules and conda, run without a scheduler; dotted places of the profile can be changed."""
        data = read_yaml(ROOT / "clusters" / "mi210.yaml")
        data["scheduler"] = "local"
        data["prelude"] |= {"init": [f"{self.folder}/init/modules.sh"], "use": [], "load": ["conda", "rocm"]}
        data["prelude"]["python"] = {"kind": "conda", "env": str(self.env_dir)}
        for place, value in changes.items():
            holder = data
            *parts, last = place.split("__")
            for part in parts:
                holder = holder.setdefault(part, {})
            holder[last] = value
        return parse_cluster(data, "site.yaml")

    def script(
        self, cluster: Cluster | None = None, run_id: str = "run-1", logs: Path | None = None, **asked: Any
    ) -> str:
        """The script of one run, with its run folder made."""
        logs = logs or self.logs
        (logs / run_id).mkdir(parents=True, exist_ok=True)
        intend(logs / run_id)
        python = self.env_dir / "bin" / "python"
        profile = cluster or self.cluster()
        asked.setdefault("scheduler", "local")
        made = batch(profile, "z3", run_id=run_id, logs=logs, support=self.support, python=python, **asked)
        return made.scripts[0].text

    def array(self, *methods: str) -> tuple[str, list[Path]]:
        """The script of a sweep as a job array of Slurm's, and the folders of its runs, made as a submission makes them."""
        made = batch(
            self.cluster(scheduler="slurm"), *methods, run_id="sweep", logs=self.logs, support=self.support,
            scheduler="slurm",
        )  # fmt: skip
        assert made.array is not None
        made.array.folder.mkdir(parents=True)
        folders = [self.logs / run_id for run_id in made.run_ids]
        for task, folder in enumerate(folders):
            folder.mkdir()
            intend(folder, task)
            (made.array.folder / str(task)).symlink_to(folder)
        return made.scripts[0].text, folders

    def start(self, text: str, **environ: str) -> subprocess.Popen[str]:
        path = self.folder / "job.sh"
        path.write_text(text, encoding="utf-8")
        return subprocess.Popen(
            ["bash", str(path)],
            env={**self.environ, **environ},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )

    def run(self, text: str, run: Path | None = None, /, **environ: str) -> Ended:
        """Run a script to its end."""
        process = self.start(text, **environ)
        out, err = process.communicate(timeout=300)
        return Ended(process.returncode, out, err, run or self.logs / "run-1")

    def behave(self, words: str) -> None:
        """What the program does in the next run: `CODE`, `wait CODE` for TERM, `until CODE`, `train OUTCOME CODE`."""
        (self.logs / "run-1" / "behave").write_text(words)
        (self.logs / "run-1" / "ready").unlink(missing_ok=True)

    def ready(self, mark: str = "ready") -> None:
        """Wait until the program, or what a test put before it, says by the file `mark` that it runs."""
        deadline = time.monotonic() + 300
        while not (self.logs / "run-1" / mark).exists():
            assert time.monotonic() < deadline, "the program did not start"
            time.sleep(0.02)

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for a script that was started."""
        out, err = process.communicate(timeout=300)
        return Ended(process.returncode, out, err, self.logs / "run-1")

    def calls(self) -> list[str]:
        """What the stand-ins were called with."""
        return self.log.read_text().splitlines() if self.log.exists() else []
