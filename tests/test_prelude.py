"""The job script run for real: what a good one does, and each way in which a bad site stops it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from standin import Ended, Machine, intend

from hpc_llm.job import start
from hpc_llm.records.files import write_json
from hpc_llm.records.run import Outcome, RunPaths, Stop
from hpc_llm.runs.looks import look
from hpc_llm.schedulers import code_digest
from hpc_llm.text.env_file import is_reserved

COUNTS_OOM_KILLS = "\noom_kill " in Path("/proc/vmstat").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


def carried_start() -> str:
    """The program by which each rank starts, as the script holds it."""
    return str(Path(start.__file__).read_text().partition('"""\n\n')[2].strip())


def stopped(ended: Ended, stop: Stop, said: str) -> None:
    """The script ended before training with this code, one clear line, and the reason on record."""
    assert ended.code == stop.value, ended.stderr
    own = [line for line in ended.stderr.splitlines() if line.startswith("hpc-llm: ")]
    assert len(own) == 1 and said in own[0], ended.stderr
    assert own[0].endswith(f"(on {os.uname().nodename})")
    record = ended.exit
    assert (record["exit_code"], record["stage"], record["signal"]) == (stop.value, "prelude", None)
    assert said in record["reason"]
    assert ended.seen is None


def test_a_good_site_gets_to_the_program(machine: Machine) -> None:
    ended = machine.run(machine.script())
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    seen = ended.seen
    assert seen is not None
    assert seen["argv"] == [
        "-u", "-c", carried_start(), str(machine.code), code_digest(), "hpc_llm.worker.pretrain_llm", "--run-dir", str(ended.run),
    ]  # fmt: skip
    assert seen["cwd"] == str(ended.run)
    env = seen["env"]
    assert "PYTHONPATH" not in env
    assert env["CONDA_PREFIX"] == str(machine.env_dir)
    assert env["HIP_VISIBLE_DEVICES"] == "1,2" and env["HPC_LLM_LAUNCHER"] == "mpirun"
    assert env["MASTER_ADDR"] == "127.0.0.1" and 10000 <= int(env["MASTER_PORT"]) < 32000
    launch, first = "mpirun -np 2 --bind-to none", carried_start().splitlines()[0]
    assert machine.calls()[:4] == [
        "module purge",
        "module load conda",
        "module load rocm",
        f"{launch} {machine.env_dir}/bin/python -u -c {first}",
    ]
    assert f"{machine.env_dir}/bin/python, modules conda/1.0:rocm/1.0" in ended.stdout


def test_the_record_of_a_good_end_is_whole(machine: Machine) -> None:
    before = int(time.time())
    record = machine.run(machine.script(time="01:00:00")).exit
    assert record == {
        "schema": 1,
        "run_id": "run-1",
        "exit_code": 0,
        "signal": None,
        "stage": "done",
        "reason": None,
        "host": os.uname().nodename,
        "job_id": None,
        "array_task": None,
        "started_at": record["started_at"],
        "ended_at": record["ended_at"],
        "time_limit_s": 3600,
        "restart_count": 0,
        "oom_kills": 0 if COUNTS_OOM_KILLS else None,
    }
    assert before <= record["started_at"] <= record["ended_at"] <= time.time()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (["nr_free_pages 7\noom_kill 12\nend 1\n", "oom_kill 14\n"], 2),
        (["nr_free_pages 7\n", "nr_free_pages 9\n"], None),
    ],
)
def test_what_the_kernel_killed_meanwhile_for_lack_of_memory_is_counted(
    machine: Machine, tmp_path: Path, counts: list[str], said: int | None
) -> None:
    places = [tmp_path / str(number) for number in (1, 2)]
    for place, count in zip(places, counts, strict=True):
        place.write_text(count)
    text = machine.script()
    begun = 'eval "$functions"'
    text = text.replace(f"\n{begun}", f"\nfunctions=${{functions//\\/proc\\/vmstat/{places[0]}}}\n{begun}").replace(
        "\nlaunch mpirun", f"\nmv {places[1]} {places[0]}\nlaunch mpirun"
    )
    ended = machine.run(text)
    assert ended.code == 0, ended.stderr
    assert ended.exit["oom_kills"] == said


def test_what_slurm_says_of_the_job_is_on_record(machine: Machine) -> None:
    slurm = {"SLURM_JOB_ID": "45", "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "2"}
    text = machine.script()
    intend(machine.logs / "run-1", task=3)
    record = machine.run(text, **slurm).exit
    assert (record["job_id"], record["array_task"], record["restart_count"]) == ("42", 3, 2)


@pytest.mark.parametrize("code", [7, *(stop.value for stop in Stop)])
def test_the_exit_code_of_the_program_is_the_scripts(machine: Machine, code: int) -> None:
    """One by which the script itself says why it stopped is the program's own all the same: the stage tells."""
    text = machine.script()
    machine.behave(str(code))
    ended = machine.run(text)
    assert ended.code == code
    assert (ended.exit["exit_code"], ended.exit["stage"], ended.exit["reason"]) == (code, "done", None)


def test_a_site_that_ends_the_script_without_an_error_is_no_good_end(machine: Machine) -> None:
    with (machine.folder / "init" / "modules.sh").open("a") as file:
        file.write("exit 0\n")
    ended = machine.run(machine.script())
    assert (ended.code, ended.exit["exit_code"], ended.exit["stage"]) == (1, 1, "prelude")
    assert ended.exit["reason"] == "the job script was ended in the stage prelude by something that left no exit code"


# --- each way to be stopped -----------------------------------------------------------------------------------------


def test_without_a_module_system(machine: Machine) -> None:
    shutil.rmtree(machine.folder / "init")
    stopped(machine.run(machine.script()), Stop.NO_MODULE_SYSTEM, "the module system is missing: none of ")


def test_without_a_file_that_would_define_module(machine: Machine) -> None:
    cluster = machine.cluster(prelude__init=[])
    said = "the module system is missing: module is not defined and prelude.init names no file"
    stopped(machine.run(machine.script(cluster)), Stop.NO_MODULE_SYSTEM, said)


def test_the_first_file_that_exists_defines_module(machine: Machine) -> None:
    wrong = machine.folder / "init" / "later.sh"
    wrong.write_text("exit 99\n")
    inits = ["/nowhere/modules.sh", f"{machine.folder}/init/modules.sh", str(wrong)]
    assert machine.run(machine.script(machine.cluster(prelude__init=inits))).code == 0


def test_module_that_is_defined_already_is_not_read_again(machine: Machine) -> None:
    cluster = machine.cluster(prelude__init=["/nowhere"])
    inherited = {"BASH_ENV": f"{machine.folder}/init/modules.sh"}
    assert machine.run(machine.script(cluster), **inherited).code == 0


@pytest.mark.parametrize("module", ["missing/1.2", "silent/3.4"])
def test_a_module_that_fails(machine: Machine, module: str) -> None:
    cluster = machine.cluster(prelude__load=["conda", module, "rocm"])
    stopped(machine.run(machine.script(cluster)), Stop.MODULE_FAILED, f"module {module} failed to load")
    assert "module load rocm" not in machine.calls()


def test_a_module_folder_that_is_missing(machine: Machine) -> None:
    cluster = machine.cluster(prelude__use=["/nowhere/modulefiles"])
    stopped(
        machine.run(machine.script(cluster)), Stop.MODULE_FAILED, "module folder /nowhere/modulefiles does not exist"
    )


@pytest.mark.parametrize(("start", "first"), [("reset", "module reset"), ("force-purge", "module --force purge"), ("none", "module use")])  # fmt: skip
def test_module_folders_come_after_the_start(machine: Machine, start: str, first: str) -> None:
    cluster = machine.cluster(prelude__start=start, prelude__use=[str(machine.folder)])
    assert machine.run(machine.script(cluster)).code == 0
    calls = machine.calls()
    assert calls[0].startswith(first)
    assert calls.index(f"module use {machine.folder}") < calls.index("module load conda")


def test_without_conda(machine: Machine) -> None:
    cluster = machine.cluster(prelude__load=["rocm"])
    stopped(machine.run(machine.script(cluster)), Stop.NO_CONDA, "conda is not on PATH")


def test_with_a_conda_that_fails(machine: Machine) -> None:
    conda = machine.folder / "conda" / "bin" / "conda"
    conda.write_text("#!/bin/bash\nexit 1\n")
    stopped(machine.run(machine.script()), Stop.NO_CONDA, "'conda info --base' failed")


@pytest.mark.parametrize("hook", ["auto", "/nowhere/conda.sh", "~/conda.sh"])
def test_without_condas_hook(machine: Machine, hook: str) -> None:
    (machine.folder / "conda/etc/profile.d/conda.sh").unlink()
    cluster = machine.cluster(prelude__python__hook=hook)
    stopped(machine.run(machine.script(cluster)), Stop.NO_CONDA, "conda's shell hook ")


def test_a_hook_in_the_home_folder_is_found(machine: Machine) -> None:
    (machine.folder / "home").mkdir()
    shutil.copy(machine.folder / "conda/etc/profile.d/conda.sh", machine.folder / "home/conda.sh")
    cluster = machine.cluster(prelude__python__hook="~/conda.sh", prelude__load=["rocm"])
    assert machine.run(machine.script(cluster)).code == 0


def test_an_environment_that_is_missing(machine: Machine) -> None:
    cluster = machine.cluster(prelude__python__env="/nowhere/env")
    ended = machine.run(machine.script(cluster))
    stopped(ended, Stop.ENV_NOT_ACTIVE, "conda environment /nowhere/env did not activate")
    assert "EnvironmentLocationNotFound" in ended.stderr


def test_an_environment_that_says_nothing_and_does_not_activate(machine: Machine) -> None:
    (machine.env_dir / "does-not-activate").touch()
    ended = machine.run(machine.script(), CONDA_PREFIX="/usr")
    stopped(ended, Stop.ENV_NOT_ACTIVE, f"conda environment {machine.env_dir} is not active, CONDA_PREFIX is /usr")


@pytest.mark.parametrize("kind", ["conda", "venv"])
def test_a_variable_without_a_value_in_a_path_is_told_where_the_path_is_not_there(machine: Machine, kind: str) -> None:
    env = "${OF_THE_NODE}" + str(machine.env_dir)[:-3] + "${USR}" + str(machine.env_dir)[-3:]
    text = machine.script(machine.cluster(prelude__python={"kind": kind, "env": env}))
    (machine.env_dir / "bin" / "activate").write_text(
        f'export VIRTUAL_ENV="{machine.env_dir}" PATH="{machine.env_dir}/bin:$PATH"\n'
    )
    ended = machine.run(text, OF_THE_NODE="/nowhere")
    stopped(ended, Stop.ENV_NOT_ACTIVE, ", and the variable USR in the paths of the profile is not set")
    assert "OF_THE_NODE" not in ended.stderr
    ended = machine.run(text, USR="/gone")
    stopped(ended, Stop.ENV_NOT_ACTIVE, ", and the variable OF_THE_NODE in the paths of the profile is not set")
    assert machine.run(text).code == 0  # where the path is there without them, all is well


def test_a_virtual_environment_that_is_missing_or_is_another(machine: Machine) -> None:
    cluster = machine.cluster(prelude__python={"kind": "venv", "env": str(machine.env_dir)})
    text = machine.script(cluster)
    stopped(machine.run(text), Stop.ENV_NOT_ACTIVE, f"virtual environment {machine.env_dir} does not exist")
    activate = machine.env_dir / "bin" / "activate"
    activate.write_text("export VIRTUAL_ENV=/usr\n")
    stopped(machine.run(text), Stop.ENV_NOT_ACTIVE, f"virtual environment {machine.env_dir} is not active")
    activate.write_text(f'export VIRTUAL_ENV="{machine.env_dir}" PATH="{machine.env_dir}/bin:$PATH"\n')
    assert machine.run(text).code == 0


def test_a_python_without_torch(machine: Machine) -> None:
    (machine.env_dir / "bin" / "bare").touch()
    said = f"the Python environment lacks torch, transformers, deepspeed: {machine.env_dir}/bin/python"
    stopped(machine.run(machine.script()), Stop.NO_TRAINING_STACK, said)


def test_a_python_that_does_not_start(machine: Machine) -> None:
    (machine.env_dir / "bin" / "broken").touch()
    stopped(
        machine.run(machine.script()), Stop.NO_TRAINING_STACK, f"python does not start: {machine.env_dir}/bin/python"
    )


def test_without_the_launcher(machine: Machine) -> None:
    """A PATH with coreutils, grep and no mpirun, whatever this machine has installed."""
    (machine.folder / "bin" / "mpirun").unlink()
    for program in (
        "bash",
        "date",
        "hostname",
        "id",
        "mkdir",
        "rm",
        "mv",
        "iconv",
        "dirname",
        "timeout",
        "head",
        "grep",
        "find",
        "sort",
        "sha256sum",
    ):
        os.symlink(str(shutil.which(program)), machine.folder / "bin" / program)
    ended = machine.run(machine.script(), PATH=f"{machine.folder}/bin")
    assert ended.code == Stop.NO_LAUNCHER.value
    assert "hpc-llm: mpirun is not on PATH" in ended.stderr and ended.exit["reason"] == "mpirun is not on PATH"


def test_without_the_run_folder(machine: Machine) -> None:
    text = machine.script()
    shutil.rmtree(machine.logs / "run-1")
    ended = machine.run(text)
    assert ended.code == Stop.NO_RUN_FOLDER.value
    assert ended.stderr == f"hpc-llm: run folder {machine.logs}/run-1 is not visible on {os.uname().nodename}\n"
    assert not (machine.logs / "run-1").exists()


@pytest.mark.parametrize("what", ["gone", "changed", "longer", "cut", "a pipe", "a folder", "a link to a device"])
def test_code_that_is_not_what_was_submitted_does_not_run(machine: Machine, what: str) -> None:
    code, text = machine.code, machine.script()
    content = code.read_bytes()
    code.unlink()
    if what == "changed":
        code.write_bytes(content.replace(b"import", b"export", 1))
    elif what == "longer":
        code.write_bytes(content + b"\0")
    elif what == "cut":
        code.write_bytes(content[:-1])
    elif what == "a pipe":
        os.mkfifo(code)
    elif what == "a folder":
        code.mkdir()
    elif what == "a link to a device":
        code.symlink_to("/dev/zero")
    stopped(machine.run(text), Stop.CODE_CHANGED, f"the code in {code} is not what was submitted with this run")
    assert not any(call.startswith("mpirun") for call in machine.calls())


@pytest.mark.parametrize(
    "what", ["gone", "changed", "longer", "cut", "NUL", "a pipe", "a folder", "a link to a device"]
)
def test_functions_that_are_not_what_was_submitted_are_not_run(machine: Machine, what: str) -> None:
    path, text = machine.support.path, machine.script()
    content = path.read_bytes()
    path.unlink()
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a folder":
        path.mkdir()
    elif what == "a link to a device":
        path.symlink_to("/dev/zero")
    elif what != "gone":
        harmful = f"touch '{machine.canary}'\n".encode()
        changes = {
            "changed": harmful + content,
            "longer": content + harmful,
            "cut": content[:-9],
            "NUL": b"\0" + content,
        }
        path.write_bytes(changes[what])
    ended = machine.run(text)
    if what == "NUL":  # which bash leaves out of what it checks and runs
        assert ended.code == 0 and not machine.canary.exists()
        return
    assert ended.code == Stop.CODE_CHANGED.value
    assert ended.stderr.splitlines()[-1] == f"hpc-llm: the code in {path} is not what was submitted"
    assert ended.exit == {"exit_code": Stop.CODE_CHANGED.value}
    assert ended.seen is None and machine.calls() == [] and not machine.canary.exists()
    run = RunPaths(machine.logs / "run-1")
    write_json(run.experiment, {"schema": 1, "run_id": "run-1"})
    [judged] = look([run])
    assert judged.judgement.outcome is Outcome.FAILED and judged.judgement.verdict.cause.id == "config_error"


@pytest.mark.parametrize("ours", [True, False])
def test_without_its_functions_a_job_writes_no_end_into_a_folder_that_became_another_job_s(
    machine: Machine, ours: bool
) -> None:
    text = machine.script(machine.cluster(scheduler="slurm"), scheduler="slurm")
    run = RunPaths(machine.logs / "run-1")
    run.job.write_text('{"schema": 2,\n "uuid": "0123abcd-1111"}\n')
    machine.support.path.unlink()
    ended = machine.run(text, SLURM_JOB_ID="7", SLURM_JOB_NAME="tiny-0123abcd" if ours else "tiny-99999999")
    assert ended.code == Stop.CODE_CHANGED.value and run.exit.exists() is ours


def test_functions_that_are_gone_when_a_job_is_queued_again_cost_no_record_of_the_earlier_try(machine: Machine) -> None:
    text = machine.script()
    machine.behave("train FAILED 1")
    before = machine.run(text).exit
    machine.support.path.unlink()
    ended = machine.run(text, SLURM_RESTART_COUNT="1")
    assert ended.code == Stop.CODE_CHANGED.value and ended.exit == before


def test_what_stands_before_a_rank_stands_before_each_python_of_the_job(machine: Machine, tmp_path: Path) -> None:
    """A container, for one: the launcher starts it, and what looks at the environment looks into it."""
    log, wrap = tmp_path / "wrapped", tmp_path / "in a box"
    wrap.write_text(f'#!/bin/bash\necho "$1 $3" >> "{log}"\nshift 2\nBOXED=yes exec "$@"\n')
    wrap.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("MINE=1\n")
    secret.chmod(0o600)
    for launcher in ("mpirun", "srun", "torchrun"):
        nodes: dict[str, Any] = {"nodes": 2} if launcher != "mpirun" else {}
        cluster = machine.cluster(scheduler="slurm")
        text = machine.script(cluster, scheduler="slurm", set=(f"launcher={launcher}",), env_file=str(secret), **nodes)
        text = text.replace("# environment\n", f"# environment\nwrapper=('{wrap}' --image 'my image')\n")
        ended = machine.run(text, SLURM_JOB_NODELIST="n1", SLURM_PROCID="0")
        assert ended.code == 0 and ended.seen is not None, ended.stderr
        assert ended.seen["env"]["BOXED"] == "yes" and ended.seen["env"]["HPC_LLM_LAUNCHER"] == launcher
        python = machine.env_dir / "bin" / "python"
        assert (
            log.read_text().splitlines() == [f"--image {python}"] * 5
        )  # packages, code, variables, port, rank or agent
        log.unlink()


def test_empty_parts_of_search_paths_do_not_lead_to_the_run_folder(machine: Machine) -> None:
    """A module that appends to an unset variable leaves one, and the working directory is the run's."""
    paths = {"LD_LIBRARY_PATH": ":/a::/b:", "PYTHONPATH": ":", "PATH": f":{machine.environ['PATH']}:"}
    seen = machine.run(machine.script(), **paths).seen
    assert seen is not None and seen["env"]["LD_LIBRARY_PATH"] == "/a:/b" and "PYTHONPATH" not in seen["env"]
    assert all(seen["env"]["PATH"].split(":"))


def test_the_program_in_the_script_ends_no_quote() -> None:
    assert "'" not in carried_start() and start.CODE_CHANGED == Stop.CODE_CHANGED


def test_without_the_profiler_that_is_asked_for(machine: Machine) -> None:
    said = "the profiler rocprofv3 is not on PATH: name the module that brings it in prelude.profilers"
    stopped(machine.run(machine.script(profile="rocprof")), Stop.NO_PROFILER, said)


def test_without_the_file_of_variables(machine: Machine) -> None:
    stopped(machine.run(machine.script(env_file="/no/file")), Stop.NO_ENV_FILE, "the file /no/file cannot be read")


def test_a_run_that_was_cancelled_before_it_was_a_job_does_not_begin_and_one_that_is_queued_again_does(
    machine: Machine,
) -> None:
    text = machine.script()
    run = RunPaths(machine.logs / "run-1")
    write_json(run.cancelled, {"schema": 1})
    stopped(machine.run(text), Stop.CANCELLED, "it was cancelled before it began")
    [judged] = look([run])
    assert judged.judgement.outcome is Outcome.CANCELLED
    assert machine.run(text, SLURM_RESTART_COUNT="1").code == 0


def test_a_module_in_the_run_folder_is_not_imported(machine: Machine) -> None:
    text = machine.script()
    (machine.logs / "run-1" / "socket.py").write_text("raise SystemExit('planted')\n")
    ended = machine.run(text)
    assert ended.code == 0 and "planted" not in ended.stderr
    assert ended.seen is not None and ended.seen["env"]["PYTHONSAFEPATH"] == "1"


def test_every_stop_has_been_seen_here() -> None:
    source = Path(__file__).read_text()
    assert all(f"Stop.{stop.name}" in source for stop in Stop)


@pytest.mark.parametrize(
    "name",
    ['a "quoted" name', "back\\slash", "tab\tand\x1f", "line\nbreak", "é ü 漢", "percent %s %d", "{json: 1}, [x]"],
)
def test_the_reason_is_valid_json_whatever_it_holds(machine: Machine, name: str) -> None:
    plain = machine.cluster()  # a profile holds no module of such a name
    cluster = plain.model_copy(update={"prelude": plain.prelude.model_copy(update={"load": [f"missing {name}"]})})
    ended = machine.run(machine.script(cluster))
    clean = "".join(c if c >= " " else " " for c in name)
    stopped(ended, Stop.MODULE_FAILED, f"module missing {clean} failed to load")
    assert ended.exit["reason"] == f"module missing {clean} failed to load"


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.UTF-8"])
def test_a_reason_in_bytes_that_are_no_text_is_still_valid_json(machine: Machine, locale: str) -> None:
    python = machine.env_dir / "bin" / "python"
    python.write_bytes(b'#!/bin/bash\nprintf "bad \\xff\\xfe caf\\xc3\\xa9 \\x01 end\\n" >&2\nexit 1\n')
    ended = machine.run(machine.script(), LC_ALL=locale)
    assert ended.code == Stop.NO_TRAINING_STACK.value
    reason = ended.exit["reason"]
    assert reason.startswith("bad  caf") and " end: " in reason and "\x01" not in reason


# --- time, leftovers ---------------------------------------------------------------------------------------------------


def test_the_time_limit_ends_a_local_run(machine: Machine) -> None:
    text = machine.script(time="0:01")
    machine.behave("wait 0")
    ended = machine.run(text)
    assert ended.code == 124
    assert (ended.exit["signal"], ended.exit["reason"]) == ("TERM", "time limit of 1 s reached")
    assert ended.exit["stage"] == "launch"


def test_folders_of_the_job_are_made_and_taken_away(machine: Machine) -> None:
    ended = machine.run(machine.script())
    assert ended.seen is not None
    folder = Path(ended.seen["env"]["MIOPEN_USER_DB_PATH"])
    assert folder.name == "miopen" and folder.parent.parent == machine.folder / "tmp"
    assert list((machine.folder / "tmp").iterdir()) == []


def test_no_variable_of_the_submitting_shell_is_taken_for_the_scripts_own(machine: Machine) -> None:
    """A run without a scheduler inherits the shell's environment, and the end of the script removes a folder."""
    precious = machine.folder / "precious"
    precious.mkdir()
    shutil.rmtree(machine.folder / "init")
    ended = machine.run(machine.script(), job_tmp=str(precious), reason="mine", stage="mine", signal="KILL", child="1")
    assert precious.is_dir()
    stopped(ended, Stop.NO_MODULE_SYSTEM, "the module system is missing")


def test_an_array_task_finds_its_run(machine: Machine) -> None:
    text, folders = machine.array("z2", "z3")
    for task, folder in enumerate(folders):
        ended = machine.run(text, folder, SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_JOB_ID="9")
        assert ended.code == 0, ended.stderr
        assert ended.seen is not None and ended.seen["argv"][-1] == str(folder)
        assert (ended.exit["run_id"], ended.exit["array_task"]) == (folder.name, task)
    ended = machine.run(text, SLURM_ARRAY_TASK_ID="2")
    assert ended.code == Stop.NO_RUN_FOLDER.value and "is not visible on" in ended.stderr


@pytest.mark.parametrize("task", [1, 10])
def test_of_two_array_tasks_that_are_led_to_one_run_the_second_refuses(machine: Machine, task: int) -> None:
    text, folders = machine.array("ddp", "z1", "z2", "z3", "z2o", "z3o", "z1+r", "z2+r", "z3+r", "z2o+r", "z3o+r")
    for number, folder in enumerate(folders):
        write_json(
            folder / "job.json", {"schema": 1, "uuid": "8d0d1a3e-0000-4000-8000-000000000000", "array_task": number}
        )
    link = folders[0].parent / ".array-sweep" / str(task)
    link.unlink()
    link.symlink_to(folders[0])
    slurm = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_JOB_NAME": "sweep-8d0d1a3e"}
    first = machine.run(text, folders[0], SLURM_ARRAY_TASK_ID="0", **slurm)
    held = {path.name: path.read_bytes() for path in folders[0].glob("*.json*") if path.name != "started.jsonl"}
    second = machine.run(text, folders[0], SLURM_ARRAY_TASK_ID=str(task), **slurm)
    assert (first.code, second.code) == (0, Stop.NO_RUN_FOLDER.value)
    assert f"run folder {folders[0]} is that of another task (on " in second.stderr
    assert {path.name: path.read_bytes() for path in folders[0].glob("*.json*") if path.name != "started.jsonl"} == held
    assert not (folders[0] / "tries").exists()


def test_two_jobs_on_one_host_do_not_share_a_port(machine: Machine) -> None:
    ports = set()
    for job in ("1000", "1001", "1002"):
        ended = machine.run(machine.script(), SLURM_JOB_ID=job)
        assert ended.seen is not None
        ports.add(ended.seen["env"]["MASTER_PORT"])
    assert len(ports) == 3


def test_a_port_that_is_taken_is_passed_over(machine: Machine) -> None:
    import socket

    first = machine.run(machine.script(), SLURM_JOB_ID="5")
    assert first.seen is not None
    port = int(first.seen["env"]["MASTER_PORT"])
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        second = machine.run(machine.script(), SLURM_JOB_ID="5")
    assert second.seen is not None and int(second.seen["env"]["MASTER_PORT"]) > port


def test_torchrun_on_two_nodes_starts_one_per_node(machine: Machine) -> None:
    """The rank of a node is expanded on that node, so the batch script must not expand it."""
    cluster = machine.cluster(scheduler="slurm")
    scontrol = machine.folder / "bin" / "scontrol"
    scontrol.write_text("#!/bin/bash\necho no-such-node-1\necho no-such-node-2\n")
    scontrol.chmod(0o755)
    text = machine.script(cluster, scheduler="slurm", nodes=2, set=("launcher=torchrun",))
    ended = machine.run(text, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]", SLURM_PROCID="1")
    assert ended.code == 0, ended.stderr
    assert ended.seen is not None
    env, argv = ended.seen["env"], ended.seen["argv"]
    assert "--node-rank=1" in argv and f"--master-port={env['MASTER_PORT']}" in argv
    assert argv[-3:] == ["hpc_llm.worker.pretrain_llm", "--run-dir", str(ended.run)]
    assert argv[:6] == ["-u", "-c", carried_start(), str(machine.code), code_digest(), "torch.distributed.run"]
    assert argv[6:9] == ["--node-rank=1", "--nnodes=2", "--nproc-per-node=2"]
    program = argv.index("--no-python") + 1
    assert argv[program:-3] == [str(machine.env_dir / "bin" / "python"), *argv[:5]]
    assert env["MASTER_ADDR"] == os.uname().nodename  # the name does not resolve, so the host's own


def test_no_module_of_the_run_folder_is_imported_by_a_python_that_does_not_heed_the_variable(machine: Machine) -> None:
    """The real program, as far as it comes without a plan, under a Python that looks where it is started, as 3.10 does."""
    python = machine.env_dir / "bin" / "python"
    python.write_text(f'#!/bin/bash\nunset PYTHONSAFEPATH\nexec {sys.executable} "$@"\n')
    text = machine.script()
    for name in ("torch", "socket", "importlib", "argparse", "json", "hpc_llm", "deepspeed", "transformers"):
        (machine.logs / "run-1" / f"{name}.py").write_text(f"open({str(machine.canary)!r}, 'w')\n")
    ended = machine.run(text)
    assert not machine.canary.exists()
    assert "pretrain_llm: " in ended.stderr, "the program did not start"


def test_every_variable_of_the_script_is_nobody_else_s_to_set(machine: Machine) -> None:
    """A profile or a file of variables that sets one would change how the job goes on."""
    text = machine.script()
    for place, end in (("before", 'eval "$functions"'), ("after", "launch mpirun")):
        text = text.replace(f"\n{end}", f'\ncompgen -v > "{machine.folder}/{place}"\n{end}')
    assert machine.run(text).code == 0
    before, after = ({*(machine.folder / place).read_text().split()} for place in ("before", "after"))
    of_the_site = {
        *"CONDA_PREFIX LOADEDMODULES TORCH_EXTENSIONS_DIR OMP_NUM_THREADS PYTHONUNBUFFERED USER TMPDIR OLDPWD".split()
    }
    of_the_site |= {name for name in after if name.startswith(("MIOPEN_", "PYTORCH_", "HIP_"))}
    own = {name for name in after - before if name not in of_the_site} | {"run_dir", "support", "functions"}
    assert {"rank", "stage", "stop_no_conda", "MASTER_PORT"} <= own
    assert [name for name in sorted(own) if not is_reserved(name)] == []
