"""The command line: exit codes, exact messages, what goes to stdout and what to stderr, stable JSON keys."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from made_runs import tensors
from pydantic import BaseModel, ConfigDict
from rendering import explained_lines, planned

from hpc_llm import __version__
from hpc_llm.cli import run
from hpc_llm.planning.experiment import flat_plan
from hpc_llm.planning.schema import json_schema

ENTRY = Path(sys.executable).with_name("hpc-llm")
SHIPPED = ["colab", "delta", "local", "mi210", "mi300x", "p4d", "rtx5090", "runpod", "taiwania2"]
LOCAL = ("--cluster", "local", "--method", "z3")


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _here(own_folder: Path) -> None:
    """Each test in an empty folder of its own."""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """`cli("render", ...)` in this process."""

    def call(*arguments: str) -> Done:
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(code, captured.out, captured.err)

    return call


def entry(*arguments: str, **more: Any) -> Done:
    """The real entry point in a process of its own."""
    done = subprocess.run([ENTRY, *arguments], capture_output=True, text=True, check=False, **more)
    return Done(done.returncode, done.stdout, done.stderr)


def saved(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["render"], "hpc-llm: no cluster is given. Use --cluster NAME (in Python cluster=); `hpc-llm clusters` lists them.\n"),
        (["render", "--cluster", "local"], "hpc-llm: no method is given. Use --method NAME (in Python method=); `hpc-llm methods` lists them.\n"),
        (
            ["render", "--cluster", "locl", "--method", "z3"],
            "hpc-llm: there is no cluster 'locl': did you mean 'local'? Valid: colab, delta, local, mi210, mi300x, p4d, rtx5090, runpod, taiwania2. "
            "Add clusters/locl.yaml to make it one.\n",
        ),
        (["submit", *LOCAL, "--steps", "0"], "hpc-llm: steps is 0, it must be at least 1.\n"),
        (["submit", *LOCAL, "--nodes", "2"], "hpc-llm: 2 nodes: cluster local runs on this machine, without a scheduler. Use --nodes 1.\n"),
        (
            ["submit", "--cluster", "taiwania2", "--method", "z3"],
            "hpc-llm: cluster taiwania2 needs an account. Give --account NAME (in Python account=) or set SBATCH_ACCOUNT. `wallet` lists yours. "
            "To look at a plan or a script, `hpc-llm render` takes any NAME that matches ^(ACD|MST|GOV|ENT)[0-9]+$.\n",
        ),
        (["render", *LOCAL, "--set", "stps=5"], None),
        (["render", *LOCAL, "--data", "nofile.txt"], None),
        (["render", *LOCAL, "--run-id", "a/b"], "hpc-llm: run id 'a/b': use letters, digits, dot, underscore and hyphen only.\n"),
        (["render", *LOCAL, "--run-id", "../x"], None),
        (["render", *LOCAL, "--run-id", ".hidden"], None),
        (["render", "--cluster", "local", "--method", "z3,z3"], "hpc-llm: method z3 is given twice. Repeats are separate submissions.\n"),
        (["render", "--cluster", ",", "--method", "z3"], None),
        (["render", *LOCAL, "--explain", "--json"], None),
        (["render", *LOCAL, "--full", "--json"], None),
        (["render", *LOCAL, "--diff", "taiwania2", "--json"], None),
        (["render", "nofile.yaml"], "hpc-llm: nofile.yaml: there is no such file.\n"),
        (["render", *LOCAL, "--diff", "nix"], None),
        (["clusters", "nix"], None),
        (["methods", "z3+x"], None),
        (["methods", "--deepspeed-json"], None),
        (["models", "nix"], None),
        (["render", *LOCAL, "--model", "meta-llama/Llama-2-7b-hf"], None),
        (["submit", *LOCAL, "--model", "meta-llama/Llama-2-7b-hf"], None),
        (["render", *LOCAL, "--model", "/no/such/folder"], None),
        (["render", *LOCAL, "--set", "deepspeed.tensor_parallel.autotp_size=2"], None),
        (["status", "nix"], "hpc-llm: there is no run 'nix' in logs: it holds no runs. Those of another folder: --logs DIR, in Python logs=DIR.\n"),
        (["logs", "nix"], None),
        (["cancel", "nix"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_wrong_request_exits_2_and_changes_nothing(cli: Any, arguments: list[str], message: str | None) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("hpc-llm: ") and done.err.count("\n") == 1
    if message is not None:
        assert done.err == message
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rendr"], "there is no command 'rendr': did you mean 'render'? Valid: cancel, clean, "),
        (["render", "--clustr", "x"], "there is no option '--clustr' in render: did you mean '--cluster'? Valid: "),
        (["clean", "--older-than", "3"], "there is no option '--older-than' in clean. Valid: --caches, --checkpoints, "),
        (["render", "--steps", "many"], "--steps is 'many': a whole number is needed, as in --steps 10."),
        (["estimate", "--nodes=1.5"], "--nodes is '1.5': a whole number is needed, as in --nodes 10."),
        (["submit", "--epochs", "all"], "--epochs is 'all': a number is needed, as in --epochs 1.5."),
        (["render", "--steps"], "--steps needs a value behind it. `hpc-llm render -h` says which."),
        (["status", "--watch=3"], "--watch is a switch and takes no value: leave out what is behind the =."),
        (["clusters", "a", "b"], "clusters takes NAME alone, and 'b' is more than that. "),
        (["logs"], "logs needs RUN, which is missing. "),
        (["cancel"], "cancel needs RUN…, which is missing. "),
    ],
)  # fmt: skip
def test_wrong_usage_exits_2_with_one_sentence_of_ours(cli: Any, arguments: list[str], said: str) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"hpc-llm: {said}") and done.err.count("\n") == 1, done.err


def test_slurm_that_is_not_there_is_a_failure_and_leaves_no_run(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = cli("submit", "--cluster", "taiwania2", "--method", "z3", "--account", "ACD1")
    assert done.code == 1 and done.out == ""
    assert "sbatch is not on PATH: submit from a login node of cluster taiwania2." in done.err
    assert not list(Path.cwd().glob("logs/*"))


def test_a_place_that_no_file_can_have_is_refused_first(cli: Any) -> None:
    done = cli("render", *LOCAL, "-o", "nowhere/job.sh")
    assert done.code == 2
    assert done.err == "hpc-llm: -o nowhere/job.sh: there is no folder nowhere. Make it, or name another place.\n"


def test_a_traceback_is_shown_on_request_only() -> None:
    wrong = ("render", "--cluster", "nowhere", "--method", "z3")
    quiet = entry(*wrong)
    assert quiet.code == 2 and quiet.err.count("\n") == 1
    loud = entry(*wrong, env={**os.environ, "HPC_LLM_DEBUG": "1"})
    assert loud.code == 2 and "Traceback (most recent call last)" in loud.err and loud.err.endswith(quiet.err)


def test_what_the_working_directory_decides_is_said_once_and_not_among_the_results(cli: Any) -> None:
    for kind, name, text in (("clusters", "local", "title: here\n"), ("configs", "z3", "description: mine\n")):
        Path(kind).mkdir()
        Path(kind, f"{name}.yaml").write_text(f"extends: {name}\n{text}")
    done = cli("render", *LOCAL, "--json")
    assert done.code == 0 and json.loads(done.out)["plan"]["method"] == "z3"
    said = [line for line in done.err.splitlines() if "in place of the one that hpc-llm brings" in line]
    here = Path.cwd()
    assert said == [
        f"hpc-llm: cluster local is that of {here}/clusters/local.yaml, in place of the one that hpc-llm brings",
        f"hpc-llm: method z3 is that of {here}/configs/z3.yaml, in place of the one that hpc-llm brings",
    ]


def test_the_functions_that_a_script_checks_are_shown_byte_for_byte(cli: Any) -> None:
    words = ("render", *LOCAL[:2], "--method", "z2,z3")
    plain, full, documents = cli(*words), cli(*words, "--full"), json.loads(cli(*words, "--json").out)
    [support] = {document["support"] for document in documents}
    digest = hashlib.sha256(support.encode()).hexdigest()
    path = Path.cwd() / "logs" / ".code" / f"{digest[:12]}-{os.geteuid()}.sh"
    assert full.out == f"{plain.out}\n# {path}, SHA-256 {digest}:\n{support}"
    assert plain.out.count(digest) == plain.out.count(f"\nsupport={path};") == 2


# --- the real entry point -------------------------------------------------------------------------------------------


def test_help_and_version() -> None:
    done = entry("--version")
    assert done == (0, f"hpc-llm {__version__}\n", "")
    done = entry("--help")
    assert done.code == 0 and done.err == ""
    for command in ("clusters", "methods", "models", "render", "submit", "status", "logs", "cancel", "parse"):
        assert f"\n  {command} " in done.out
    for command in ("render", "submit"):
        out = entry(command, "--help").out
        for option in (
            "--cluster", "--method", "--task", "--model", "--nodes", "--gpus-per-node", "--micro-batch-size",
            "--gradient-accumulation-steps", "--sequence-length", "--steps", "--warmup-steps", "--seed", "--partition",
            "--account", "--time", "--name", "--sbatch", "--set", "--run-id", "--logs", "EXPERIMENT.yaml",
        ):  # fmt: skip
            assert option in out, f"{command} {option}"


def test_a_script_can_be_piped_and_its_reader_may_leave() -> None:
    for command, reader in (("render --cluster local --method z3", "head -n 1"), ("clusters --schema", "true")):
        program = f"{ENTRY} {command} | {reader}; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert done.stdout.splitlines()[-1] in ("0", "141")  # 0 where all was written before the reader left


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (
            "> /dev/full",
            1,
            "hpc-llm: No space left on device. Free room there, or name another place; `hpc-llm clean` says what room runs take.\n",
        ),
        (">&-", 0, ""),
    ],
)
def test_a_stdout_that_takes_nothing(where: str, code: int, said: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{ENTRY} render --cluster local --method z3 {where}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize(
    ("command", "code"),
    [("methods", 0), ("status --logs .", 0), ("parse -", 0), ("diagnose -", 0), ("methods nope", 2)],
)
def test_streams_that_the_caller_has_closed(command: str, code: int) -> None:
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{ENTRY} {command} {closed}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (closed, done.stderr)
        assert "unexpected" not in done.stderr and "Traceback" not in done.stderr


def test_arguments_that_are_no_text_are_refused() -> None:
    done = subprocess.run([ENTRY, "render", *LOCAL, "--name", b"\xff"], capture_output=True, check=False)
    assert done.returncode == 2 and b"write it in UTF-8" in done.stderr and b"Traceback" not in done.stderr


def test_ctrl_c_is_quiet(a_run: Path) -> None:
    with subprocess.Popen(
        [ENTRY, "logs", "-f", a_run.name, "--logs", str(a_run.parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a line\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in err and "unexpected" not in err


DROPPED = """
import os, signal, sys, threading, time, weakref
from hpc_llm import cli
started = threading.Thread.start
class Thing: pass
def interrupted(arguments, *more):
    thing = Thing()
    reference = weakref.ref(thing, lambda gone: os.kill(os.getpid(), signal.SIGINT))
    try:
        {how}
    except KeyboardInterrupt:
        raise RuntimeError("what a library makes of it") from None
    return 0
cli._leave_at_once = lambda code: None
cli.{where} = interrupted
sys.argv = ["hpc-llm", "methods"]
cli.main()
"""


@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("make_app", "del thing; time.sleep(20)"),
        (
            "make_app",
            "threading.Thread.start = lambda thread: (started(thread), time.sleep(0.2)); del thing; time.sleep(20)",
        ),
        ("make_app", "os.kill(os.getpid(), signal.SIGINT)"),
        ("refuse_wrong_values", "os.kill(os.getpid(), signal.SIGINT)"),
        ("run", "signal.raise_signal(signal.SIGINT)"),
        ("_leave_at_once", "signal.raise_signal(signal.SIGINT)"),
    ],
)
def test_no_ctrl_c_is_lost_or_taken_for_a_failure(where: str, how: str) -> None:
    program = DROPPED.format(where=where, how=how)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, preexec_fn=_heeds_ctrl_c
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr and "ignored" not in done.stderr


def _heeds_ctrl_c() -> None:
    """What is started in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def a_run(own_folder: Path) -> Path:
    """A run of this machine that goes on, as its folder shows it."""
    folder = own_folder / "runs" / "20260101-000000-local-z3-tiny-abcd"
    folder.mkdir(parents=True)
    plan = planned("local", "z3", model="tiny").plan.to_dict()
    created = "2026-01-01T00:00:00+00:00"
    record = {"schema": 1, "run_id": folder.name, "plan": plan, "origins": {}, "notices": [], "versions": {}, "git_commit": None, "created_at": created}  # fmt: skip
    (folder / "experiment.json").write_text(json.dumps(record))
    submission = {
        "schema": 1,
        "scheduler": "local",
        "job_id": str(os.getpid()),
        "array_task": None,
        "submitted_at": created,
    }
    (folder / "submission.json").write_text(json.dumps(submission))
    (folder / "log.out").write_text("a line\n")
    (folder / "log.err").write_text("a complaint\n")
    (folder / "job.sh").write_text("#!/bin/bash\necho mine\n")
    return folder


def test_logs_go_to_the_streams_that_they_came_from(cli: Any, a_run: Path) -> None:
    done = entry("logs", a_run.name[:12], "--logs", str(a_run.parent))
    assert done == (0, "a line\n", "a complaint\n")


def test_status_of_a_run_that_ended(cli: Any, a_run: Path) -> None:
    end = {"schema": 1, "run_id": a_run.name, "exit_code": 72, "signal": None, "stage": "prelude", "reason": "module x failed to load", "host": "h", "job_id": None, "array_task": None, "started_at": 10, "ended_at": 14, "time_limit_s": None, "restart_count": 0}  # fmt: skip
    (a_run / "exit.json").write_text(json.dumps(end))
    document = json.loads(cli("status", "--json", "--logs", a_run.parent).out)
    (status,) = document["runs"]
    assert set(status) >= {
        "run_id", "job_id", "cluster", "method", "state", "outcome", "exit_code", "started_at", "elapsed_s",
        "tokens_per_second", "step", "steps",
    }  # fmt: skip
    assert (status["run_id"], status["outcome"], status["exit_code"]) == (a_run.name, "FAILED", 72)
    assert status["tokens_per_second"] is None
    shown = cli("status", a_run, "--logs", "elsewhere")
    assert shown.code == 0 and "module x failed to load" in shown.out


def test_no_runs_are_no_mistake(cli: Any) -> None:
    assert cli("status") == (0, "", "hpc-llm: there are no runs in logs\n")
    assert json.loads(cli("status", "--json").out) == {"runs": []}


def test_runs_of_a_folder_below_are_pointed_to(cli: Any, a_run: Path) -> None:
    below = a_run.parent
    found = cli("status", "--logs", below.parent)
    assert found.err == f"hpc-llm: there are no runs in {below.parent} itself; {below} holds 1: --logs {below}\n"


def test_runs_of_the_working_directory_itself_are_pointed_to(
    cli: Any, a_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(a_run.parent)
    assert cli("status").err == "hpc-llm: there are no runs in logs; the working directory holds 1: --logs .\n"
    assert a_run.name in cli("status", "--logs", ".").out


def test_advised_commands_look_into_the_same_folder_of_runs(cli: Any, a_run: Path) -> None:
    logs = a_run.parent
    for output in ("log.out", "log.err"):
        (a_run / output).unlink()
    assert f"`hpc-llm status {a_run.name} --logs {logs}`" in cli("logs", a_run.name, "--logs", logs).err
    logs.rename(logs.with_name("logs"))
    assert f"`hpc-llm status {a_run.name}`" in cli("logs", a_run.name).err


# --- showing what there is ------------------------------------------------------------------------------------------


def test_clusters_and_methods_are_listed_and_shown(cli: Any) -> None:
    listed = cli("clusters")
    assert listed.code == 0 and listed.err == ""
    assert [line.split()[0] for line in listed.out.splitlines()[2:]] == SHIPPED
    shown = cli("clusters", "taiwania2").out
    assert "default:" not in shown
    for part in ("8 x V100-SXM2-32GB", "gp2d (default)", "48:00:00", "nvhpc-24.11", "wallet", "unverified", "man.twcc.ai", "4 cores, 90 GB per GPU (enforced)"):  # fmt: skip
        assert part in shown
    methods = cli("methods").out
    assert all(f"\n{name} " in methods for name in ("z2o", "z3", "z3o", "q", "z2", "z1", "ddp", "z3-hpc2"))
    assert "offload" not in cli("methods", "z3").out and "offload_param" in cli("methods", "z3o").out
    assert "llama2-7b" in cli("models").out and "6,738,415,616" in cli("models").out


def test_json_of_what_is_listed(cli: Any) -> None:
    clusters = json.loads(cli("clusters", "--json").out)
    assert [c["name"] for c in clusters] == SHIPPED and clusters[0]["schema"] == 1
    assert json.loads(cli("clusters", "mi210", "--json").out)["gpu"]["memory_gib"] == 64
    assert json.loads(cli("methods", "q", "--json").out)["quantization"] == {"kind": "nf4", "double_quant": True}
    assert json.loads(cli("models", "tiny", "--json").out)["num_parameters"] > 0
    assert len(json.loads(cli("models", "--json").out)) >= 10
    assert json.loads(cli("clusters", "--schema").out)["$defs"]["Cluster"]["additionalProperties"] is False


def test_the_schema_leaves_no_part_unbuilt() -> None:
    """pydantic 2.13 writes a default by the serializer of its model, which `defer_build` leaves to the first use."""

    class Inner(BaseModel):
        model_config = ConfigDict(defer_build=True)
        number: int = 1

    class Outer(BaseModel):
        model_config = ConfigDict(defer_build=True)
        inner: Inner = Inner.model_construct(number=2)

    sys.modules[Outer.__module__].__dict__.update(Inner=Inner)  # where its annotations are looked up
    assert not Inner.__pydantic_complete__
    assert json_schema(Outer)["properties"]["inner"]["default"] == {"number": 2}
    assert Inner.__pydantic_complete__


@pytest.mark.parametrize("method", ["z2o", "z3+o+r", "q", "z3-hpc2"])
def test_the_plain_deepspeed_config_holds_no_computed_total(cli: Any, method: str) -> None:
    config = json.loads(cli("methods", method, "--deepspeed-json").out)
    assert config["train_micro_batch_size_per_gpu"] == 1 and "train_batch_size" not in config
    assert ("optimizer" in config) == (method != "q")


def test_a_broken_profile_of_ones_own_hides_no_other(cli: Any) -> None:
    Path("clusters").mkdir()
    saved("clusters/mine.yaml", "schema: 1\n")
    done = cli("clusters")
    assert done.code == 0 and "taiwania2" in done.out and "mine" not in done.out
    assert "mine.yaml: " in done.err and "These are missing: " in done.err and "title (text), " in done.err
    assert cli("clusters", "mine").code == 2


# --- render and submit --dry-run ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        LOCAL,
        ("--cluster", "taiwania2", "--method", "z3o", "--account", "ACD1"),
        ("--cluster", "delta", "--method", "z2o,z3", "--account", "a-delta-gpu", "--nodes", "2"),
        ("--cluster", "local,mi210", "--method", "z3,q"),
        (*LOCAL, "--run-id", "mine"),
        ("--cluster", "local", "--method", "z2o,z3", "--run-id", "mine"),
    ],
    ids=" ".join,
)
def test_render_and_dry_run_print_the_same_bytes_each_time(cli: Any, arguments: tuple[str, ...]) -> None:
    rendered = cli("render", *arguments)
    assert rendered.code == 0
    assert cli("render", *arguments).out == rendered.out
    assert cli("submit", "--dry-run", *arguments).out == rendered.out
    assert not Path("logs").exists()
    documents = json.loads(cli("submit", "--dry-run", "--json", *arguments).out)["runs"]
    assert all(set(document) == {"run_id", "job_id", "run_dir", "script"} for document in documents)
    assert "\n".join(dict.fromkeys(document["script"] for document in documents)) == rendered.out


@pytest.mark.parametrize("site", [LOCAL, ("--cluster", "mi210", "--method", "z3")], ids=" ".join)
def test_a_dry_run_refuses_an_id_that_is_taken(cli: Any, site: tuple[str, ...]) -> None:
    Path("logs/over").mkdir(parents=True)
    for name in ("experiment.json", "result.json"):
        Path("logs/over", name).write_text("{}")
    before = sorted(Path("logs").rglob("*"))
    done = cli("submit", *site, "--run-id", "over", "--dry-run")
    assert done.code == 2 and "there is already a run over in logs" in done.err and not done.out
    assert cli("submit", *site, "--run-id", "another", "--dry-run").code == 0
    assert sorted(Path("logs").rglob("*")) == before


def test_a_dry_run_says_that_the_scheduler_is_not_here(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path.cwd()))
    site = ("--cluster", "taiwania2", "--account", "ACD110018", "--method", "z2,z3")
    done = cli("submit", *site, "--dry-run")
    assert done.code == 0 and done.err.count("sbatch is not on PATH: what only cluster taiwania2 itself can tell") == 1
    assert "not on PATH" not in cli("render", *site).err + cli("submit", *LOCAL, "--dry-run").err


def test_the_run_id_is_where_the_run_will_live(cli: Any) -> None:
    out = cli("render", *LOCAL, "--run-id", "mine", "--logs", "some where").out
    assert f"run_dir='{Path.cwd()}/some where/mine'" in out
    assert "RUN-ID" not in out and f"run_dir={Path.cwd()}/logs/RUN-ID" in cli("render", *LOCAL).out


def test_logs_come_from_the_environment_and_the_flag_wins(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_LLM_LOGS", "/env/logs")
    assert "run_dir=/env/logs/RUN-ID" in cli("render", *LOCAL).out
    assert "run_dir=/flag/RUN-ID" in cli("render", *LOCAL, "--logs", "/flag").out


def test_a_variable_in_a_path_of_the_profile_that_is_not_set_is_told(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("clusters").mkdir()
    Path("clusters/typo.yaml").write_text('extends: taiwania2\nprelude: {python: {env: "/work/${USR}/${USER}/e"}}\n')
    words = ("render", "--cluster", "typo", "--method", "z3", "--account", "ACD1")
    done = cli(*words)
    said = "${USR} in its paths is not set here: the job stops where the node does not set it either"
    assert done.code == 0 and f"cluster typo: {said}\n" in done.err and "${USER}" not in done.err
    assert "\nin_paths USR\n" in done.out
    monkeypatch.setenv("USR", "me")
    assert said not in cli(*words).err


def test_scripts_go_to_stdout_and_notices_to_stderr(cli: Any) -> None:
    done = cli("render", "--cluster", "taiwania2", "--method", "z3", "--account", "ACD1")
    assert done.out.startswith("#!/bin/bash\n") and done.out.endswith(
        '\nlaunch mpirun -np 8 --bind-to none "${rank[@]}"\n'
    )
    assert done.err == (
        "hpc-llm: cluster taiwania2: bf16 becomes fp16: V100-SXM2-32GB (sm_70) has no bf16 units\n"
        "hpc-llm: beside the script sbatch gets --job-name=llama2-7b-z3-UUID --comment=hpc-llm:UUID, and submission draws the UUID\n"
    )


def test_an_output_file_holds_the_same_bytes(cli: Any) -> None:
    out = cli("render", *LOCAL).out
    done = cli("render", *LOCAL, "-o", "job.sh")
    assert done == (0, "", "hpc-llm: written to job.sh, to look at: hpc-llm submit with the same options sends it\n")
    assert Path("job.sh").read_text() == out
    assert cli("render", *LOCAL, "--json", "-o", "job.json").out == ""
    assert json.loads(Path("job.json").read_text())["script"] == out


@pytest.mark.parametrize("kind", [(), ("--json",), ("--explain",), ("--full",), ("--diff", "mi210")], ids=str)
def test_an_output_replaces_an_earlier_one_and_nothing_else(cli: Any, kind: tuple[str, ...]) -> None:
    for method in ("z2", "z2,z3"):
        request = ("render", "--cluster", "local", "--method", method, "-o", "out", *kind)
        assert cli(*request).code == 0
        text = Path("out").read_bytes()
        assert cli(*request).code == 0 and Path("out").read_bytes() == text
    Path("logs/t1/model").mkdir(parents=True)
    Path("logs/t1/experiment.json").write_text("{}")
    others = {
        "train.log": b"step 1 loss 5.2\n",
        "sweep.sh": b"#!/bin/bash\nhpc-llm submit a.yaml\n",
        "a.yaml": b"cluster: local\n",
    }
    own = {"logs/t1/job.sh": text, "logs/t1/log.out": b"", "logs/t1/model/config.json": b"{}"}
    for name, content in (others | own).items():
        Path(name).write_bytes(content)
        refused = cli("render", *LOCAL, *kind, "-o", name)
        assert (
            refused.code == 2
            and f"-o {name} is " in refused.err
            and "would be replaced: give another file" in refused.err
        )
        assert Path(name).read_bytes() == content


def test_json_of_a_script(cli: Any) -> None:
    document = json.loads(cli("render", *LOCAL, "--json", "--steps", "9").out)
    assert set(document) == {"script", "support", "plan", "origins"}
    assert document["script"] == cli("render", *LOCAL, "--steps", "9").out
    assert document["plan"]["workload"]["steps"] == 9
    assert [entry["line"] for entry in document["origins"]] == list(range(1, document["script"].count("\n") + 1))
    assert {"line", "origin"} == set(document["origins"][0])
    sweep = json.loads(cli("render", "--cluster", "mi210", "--method", "z3,q", "--json").out)
    assert len(json.loads(cli("render", "--cluster", "local", "--method", "z3,q", "--json").out)) == 2
    assert sweep if isinstance(sweep, list) else [p["method"] for p in sweep["plans"]] == ["z3", "q"]


def test_explain_shows_the_whole_plan_and_each_lines_origin(cli: Any) -> None:
    arguments = (
        "--cluster",
        "delta",
        "--method",
        "z3o-hpc2",
        "--account",
        "a-delta-gpu",
        "--nodes",
        "2",
        "--set",
        "optimizer.lr=3e-4",
    )
    plain, explained = cli("render", *arguments).out, cli("render", *arguments, "--explain").out
    rows = explained_lines(explained)
    plan, script = rows[: rows.index(("", ""))], rows[rows.index(("", "")) + 2 :]
    assert [line for line, _ in script] == [line.rstrip() for line in plain.splitlines()]
    origins = dict(script)
    assert origins["#SBATCH --nodes=2"] == "--nodes"
    assert origins["module reset"] == "cluster delta: prelude.start"
    assert origins["load_module aws-ofi-nccl"] == "cluster delta: prelude.load_multi_node"
    shown = {line.split()[0]: (line.split(maxsplit=1)[-1], origin) for line, origin in plan}
    values = flat_plan(json.loads(cli("render", *arguments, "--json").out)["plan"])
    assert set(values) <= set(shown) and {"zero_optimization.sub_group_size", "optimizer.params.lr"} <= set(shown)
    assert shown["lr"] == ("0.0003", "") and shown["optimizer"][1] == "--set"
    assert shown["nodes"] == ("2", "--nodes") and shown["steps"] == ("30", "")
    assert "default" not in {origin for _, origin in rows}


def test_explain_and_estimate_know_the_same_memory_of_this_machine(cli: Any) -> None:
    asked = ("--cluster", "local", "--model", "tiny", "--method", "z3")
    texts = cli("render", *asked, "--explain").out, cli("estimate", *asked).out
    explained, estimated = (
        next(line for line in text.splitlines() if line.startswith("host, each node:")) for text in texts
    )
    assert explained == estimated and "fits" in explained


def test_explain_of_a_sweep_shows_what_the_others_have_otherwise(cli: Any) -> None:
    rows = cli(
        "render", "--cluster", "delta", "--method", "z2,z3", "--account", "a-delta-gpu", "--explain"
    ).out.splitlines()
    others = rows[rows.index("# z3 instead of z2") :]
    assert "deepspeed.zero_optimization.stage: 2 → 3" in others[: others.index("")]


def test_explain_of_an_array_says_whose_name_its_job_has(cli: Any, tmp_path: Path) -> None:
    Path("my.yaml").write_text("cluster: mi210\nmodel: tiny\nmatrix: {method: [ddp, z2]}\n")
    of_study = dict(explained_lines(cli("render", "my.yaml", "--run", "ddp", "--explain").out))
    assert of_study["#SBATCH --job-name=my"] == "study my: the name of its file, which all runs of a job array share"
    asked = ("render", "--cluster", "mi210", "--model", "tiny", "--method", "ddp,z2", "--explain")
    of_sweep = dict(explained_lines(cli(*asked).out))
    assert of_sweep["#SBATCH --job-name=tiny-sweep"] == "computed: the model, which all runs of a job array share"
    own = dict(explained_lines(cli(*asked, "--name", "mine").out))
    assert own["#SBATCH --job-name=mine"] == "--name"


def test_diff_with_another_cluster_needs_no_account_of_it(cli: Any) -> None:
    done = cli("render", "--cluster", "delta", "--method", "z3", "--account", "a-delta-gpu", "--partition", "gpuA40x4", "--diff", "taiwania2")  # fmt: skip
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "# the plan: taiwania2 → this request"
    plan, script = lines[1 : lines.index("--- taiwania2")], lines[lines.index("--- taiwania2") :]
    assert {"precision: fp16 → bf16", "gpus_per_node: 8 → 4", "account: ACCOUNT → a-delta-gpu"} <= set(plan)
    assert script[:2] == ["--- taiwania2", "+++ this script"]
    assert {"-module purge", "+module reset", "-#SBATCH --account=ACCOUNT", "+#SBATCH --partition=gpuA40x4"} <= set(
        script
    )


def test_a_difference_of_several_methods_is_told_of_each(cli: Any) -> None:
    words = ("render", "--cluster", "taiwania2", "--account", "MST1", "--diff", "delta", "--method")
    both, alone = cli(*words, "z2,z3").out, cli(*words, "z3").out
    fields = alone.split("--- ")[0].splitlines()[1:]
    told = both.split("# the plan of z3: delta → this request\n")[1].split("--- ")[0].splitlines()
    assert told == fields and any("engine" in line for line in fields)
    assert both.startswith("# the plan of z2: delta → this request\n")


def test_diff_for_a_program_makes_one_script_of_the_other(cli: Any, tmp_path: Path) -> None:
    words = ("--set", f"env.LONG={'/a/long/path' * 20}", "--set", "env.BLANKS=a  b   " + "c " * 60)
    theirs, ours = cli("render", *LOCAL, "--run-id", "r").out, cli("render", *LOCAL, "--run-id", "r", *words).out
    Path("logs/r").mkdir(parents=True)
    Path("logs/r/experiment.json").write_text(cli("render", *LOCAL, "--run-id", "r", "--json").out)
    Path("logs/r/job.sh").write_text(theirs)
    out = cli("render", *LOCAL, "--diff", "r", *words).out
    assert max(map(len, out.splitlines())) > 200 and max(map(len, ours.splitlines())) > 200
    assert cli("render", *LOCAL, "--diff", "r", *words, "-o", "a.diff").code == 0 and Path("a.diff").read_text() == out
    lines = out[out.index("--- r\n") :].splitlines(keepends=True)[2:]
    changed = [line for line in lines if line[0] in "+-"]
    assert all(line[1:] in (ours if line[0] == "+" else theirs) for line in changed)
    if shutil.which("patch"):
        subprocess.run(["patch", "logs/r/job.sh"], input=out, text=True, check=True)
        assert Path("logs/r/job.sh").read_text() == ours


def test_diff_with_a_run_shows_what_the_request_changes(cli: Any) -> None:
    logs = ("--logs", "runs")
    document = json.loads(cli("render", *LOCAL, *logs, "--run-id", "earlier", "--json").out)
    folder = Path("runs/earlier")
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text(json.dumps({"plan": document["plan"]}))
    (folder / "job.sh").write_text(document["script"])
    assert cli("render", *LOCAL, *logs, "--diff", "earlier") == (0, "", "hpc-llm: nothing differs from earlier\n")
    changed = cli("render", *LOCAL, *logs, "--diff", "earlier", "--set", "env.A=b").out.splitlines()
    assert changed[:2] == ["# the plan: earlier → this request", "env.A: - → b"]
    assert [line for line in changed[2:] if line[0] in "+-"][2:] == ["+export A=b"]


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--steps", "40"], ["steps: 30 → 40"]),
        (["--sequence-length", "64"], ["sequence_length: 350 → 64"]),
        (["--set", "optimizer.lr=3e-4"], ["optimizer.lr: 1e-05 → 0.0003", "deepspeed.optimizer.params.lr: 1e-05 → 0.0003"]),
        (["--set", "deepspeed.zero_optimization.sub_group_size=1e8"], ["deepspeed.zero_optimization.sub_group_size: 1e+09 → 100000000"]),
        (["--set", "recompute=true"], ["letters: z3 → z3+r", "recompute: false → true"]),
        (["--seed", "7"], ["seed: 42 → 7"]),
        (["--set", "deepspeed.zero_optimization.sub_group_size=1000000000"], []),
    ],
)  # fmt: skip
def test_diff_shows_what_no_script_shows(cli: Any, words: list[str], fields: list[str]) -> None:
    logs = ("--logs", "runs")
    document = json.loads(cli("render", *LOCAL, *logs, "--run-id", "earlier", "--json").out)
    fields = [field.replace("1e-05", f"{document['plan']['optimizer']['lr']:g}") for field in fields]
    Path("runs/earlier").mkdir(parents=True)
    Path("runs/earlier/experiment.json").write_text(json.dumps({"plan": document["plan"]}))
    Path("runs/earlier/job.sh").write_text(document["script"])
    done = cli("render", *LOCAL, *logs, "--diff", "earlier", *words)
    assert (done.code, done.out.splitlines()[1:]) == (0, fields)


def test_diff_with_a_run_whose_plan_is_lost_says_so(cli: Any) -> None:
    script = cli("render", *LOCAL, "--run-id", "earlier").out
    Path("logs/earlier").mkdir(parents=True)
    Path("logs/earlier/experiment.json").write_text("{}")
    Path("logs/earlier/job.sh").write_text(script)
    done = cli("render", *LOCAL, "--diff", "earlier")
    assert (done.code, done.out) == (0, "")
    told = "hpc-llm: earlier keeps no plan that can be read: only the scripts are compared\n"
    assert done.err in (told, f"{told}hpc-llm: nothing differs from earlier\n")


# --- EXPERIMENT.yaml ------------------------------------------------------------------------------------------------


def plan_of(cli: Any, *arguments: str) -> dict[str, Any]:
    done = cli("render", "--json", *arguments)
    assert done.code == 0, done.err
    plan: dict[str, Any] = json.loads(done.out)["plan"]
    return plan


def test_a_file_holds_any_option_and_flags_win(cli: Any) -> None:
    file = saved(
        "mine.yaml",
        "cluster: taiwania2\nmethod: z3+r\naccount: ACD9\ntime: 00:10:00\nsteps: 40\nmicro-batch-size: 2\nmodel: tiny\n"
        "partition: gtest\nseed: 7\nname: 5\nsbatch: {qos: high, requeue: }\n"
        "set: {optimizer: {lr: 1e-3}, recompute: false, env.A: 007, env.B: yes, deepspeed.zero_optimization.sub_group_size: 1e9}\n",
    )
    plan = plan_of(cli, file, "--steps", "50", "--set", "env.A=flag")
    assert (
        plan["method"],
        plan["job"]["account"],
        plan["job"]["time_s"],
        plan["workload"]["seed"],
        plan["job"]["name"],
    ) == (
        "z3+r",
        "ACD9",
        600,
        7,
        "5",
    )
    assert (
        plan["workload"]["steps"],
        plan["batch"]["micro_batch_size"],
        plan["model"]["name"],
        plan["job"]["partition"],
    ) == (50, 2, "tiny", "gtest")
    assert plan["job"]["sbatch"] == {"qos": "high", "requeue": ""}
    assert plan["optimizer"]["lr"] == 1e-3 and plan["model"]["recompute"] is False
    assert plan["job"]["env"] == {"A": "flag", "B": "yes"}
    assert plan["engine"]["deepspeed"]["zero_optimization"]["sub_group_size"] == 10**9
    origins = dict(explained_lines(cli("render", file, "--explain").out))
    assert origins["#SBATCH --time=00:10:00"] == "mine.yaml"
    assert origins["#SBATCH --qos=high"] == "mine.yaml" and origins["export A=007"] == "mine.yaml: set"


def test_settings_of_a_file_keep_their_types(cli: Any) -> None:
    text = 'cluster: local\nmethod: q\nset:\n  - optimizer.lr=1e-3\n  - {quantization: {double_quant: false}, env: {X: "true", Y: 5}}\n'
    plan = plan_of(cli, saved("a.yaml", text))
    assert plan["optimizer"]["lr"] == 1e-3 and plan["model"]["quantization"]["double_quant"] is False
    assert plan["job"]["env"] == {"X": "true", "Y": "5"}
    text = "cluster: local\nmethod: z2+lora\nset: {peft.target_modules: [q_proj, v_proj], model: 'tiny'}\n"
    plan = plan_of(cli, saved("b.yaml", text))
    assert plan["model"]["peft"]["target_modules"] == ["q_proj", "v_proj"] and plan["model"]["name"] == "tiny"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clustr: local\n", "bad.yaml: there is no option 'clustr': did you mean 'cluster'? Valid: cluster, "),
        ("steps: many\n", "bad.yaml: steps is 'many', a whole number is needed."),
        ('nodes: "2"\n', "bad.yaml: nodes is '2', a whole number is needed. Quotes make a text of it: write 2 without them."),
        ("steps: 1.5\n", "bad.yaml: steps is 1.5, a whole number is needed."),
        ("steps: true\n", "bad.yaml: steps is True, a whole number is needed."),
        ("steps:\n", "bad.yaml: steps has nothing behind it. Give a value, or leave it out."),
        ("model: [a, b]\n", "bad.yaml: model is ['a', 'b'], text is needed."),
        ("name: true\n", "bad.yaml: name is True, text is needed."),
        ("account:\n", "bad.yaml: account has nothing behind it. Give a value, or leave it out."),
        ("data:\n", "bad.yaml: data has nothing behind it. Give a path or the name of a known set, or a list of these, as in [train=PATH, validation=PATH], or leave it out."),
        ("set:\n", "bad.yaml: set has nothing behind it. Give keys with values, as in {optimizer.lr: 1e-4}, or leave it out."),
        ("set: 5\n", "bad.yaml: set holds 5. Give keys with values, as in {optimizer.lr: 1e-4}."),
        ("data: [3]\n", "bad.yaml: data holds 3. Give a path or the name of a known set, or a list of these, as in ["),
        ("data: {a: b}\n", "bad.yaml: data holds {'a': 'b'}. Give a path or the name of a known set, or a list of these, as in [train=PATH, validation=PATH]."),
        ("steps: 1\nsteps: 2\n", "bad.yaml, line 2: not valid YAML: key 'steps' comes twice."),
        ("micro-batch-size: 1\nmicro_batch_size: 2\n", "bad.yaml: micro_batch_size comes twice. Keep one of them."),
        ("- a\n", "bad.yaml: holds a list, a mapping of keys is needed."),
        ("", "bad.yaml: is empty, a mapping of keys is needed."),
        ("model: \"a\\0b\"\n", "model is 'a\\x00b': write it in UTF-8, without NUL characters."),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_key(cli: Any, text: str, said: str) -> None:
    done = cli("render", saved("bad.yaml", text), *LOCAL)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_sweeps_are_comma_lists_and_yaml_lists(cli: Any) -> None:
    flags = cli("submit", "--dry-run", "--json", "--cluster", "local,mi210", "--method", "z3, q", "--run-id", "s")
    runs = json.loads(flags.out)["runs"]
    assert [r["run_id"] for r in runs] == ["s-local-z3", "s-local-q", "s-mi210-z3", "s-mi210-q"]
    file = saved("sweep.yaml", "cluster: [local, mi210]\nmethod: [z3, q]\n")
    assert cli("submit", "--dry-run", "--json", file, "--run-id", "s").out == flags.out
    file = saved("sweep.yaml", "cluster: local,mi210\nmethod: z3,q\n")
    assert cli("submit", "--dry-run", "--json", file, "--run-id", "s").out == flags.out


def test_folders_and_files_are_found_from_where_the_user_stands(cli: Any) -> None:
    Path("model").mkdir()
    Path("tiny").mkdir()
    config = {
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 10, "max_position_embeddings": 64,
    }  # fmt: skip
    saved("model/config.json", json.dumps(config))
    Path("model/model.safetensors").write_bytes(tensors({"model.norm.weight": 16}, "BF16"))
    saved("model/tokenizer.json", "{}")
    saved("a b.txt", "text")
    plan = plan_of(cli, *LOCAL, "--task", "prepare", "--model", "model", "--data", "a b.txt")
    assert plan["model"]["name"] == str(Path.cwd() / "model") and plan["workload"]["data"] == [
        str(Path.cwd() / "a b.txt")
    ]
    assert "takes 64 tokens at most" in cli("render", *LOCAL, "--model", "model").err
    # The name of a preset is the preset, whatever lies beside.
    assert plan_of(cli, *LOCAL, "--model", "tiny")["model"]["name"] == "tiny"
    assert "--data nofile: there is no such file" in cli("render", *LOCAL, "--data", "nofile").err.replace(
        f"{Path.cwd()}/", ""
    )


def test_an_account_of_the_shell_is_used_and_an_empty_one_is_none(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "ACD5")
    assert "#SBATCH --account=ACD5\n" in cli("render", "--cluster", "taiwania2", "--method", "z3").out
    monkeypatch.setenv("SBATCH_ACCOUNT", "")
    assert (
        "takes any NAME that matches ^(ACD|MST|GOV|ENT)[0-9]+$."
        in cli("render", "--cluster", "taiwania2", "--method", "z3").err
    )
    assert cli("render", "--cluster", "taiwania2", "--method", "z3", "--account", "ENT0").code == 0


def test_a_cluster_of_ones_own_is_one_file(cli: Any) -> None:
    Path("clusters").mkdir()
    saved(
        "clusters/lab.yaml",
        "extends: taiwania2\ntitle: the lab\naccount: {required: false, pattern: null}\nprelude: {load: [mine/1]}\n",
    )
    assert "the lab" in cli("clusters").out
    out = cli("render", "--cluster", "lab", "--method", "z3").out
    assert "load_module mine/1\n" in out and "--account" not in out


def test_clusters_says_how_to_begin_ones_own_and_that_is_so(cli: Any) -> None:
    """The hint is followed to the letter."""
    for base in ("local", "taiwania2"):
        said = re.sub(r"\s+", " ", cli("clusters", base).out)
        words = re.search(r"write `(extends: \w+)` and what differs into (\S+)/NAME\.yaml", said)
        assert words is not None
        folder = Path(os.path.expandvars(words[2])).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        saved(f"{folder}/mine-{base}.yaml", f"{words[1]}\ntitle: the workshop's\ndefaults: {{steps: 77}}\n")
        assert "the workshop's" in cli("clusters").out
        plan = plan_of(cli, "--cluster", f"mine-{base}", "--method", "z2", "--account", "ACD1", "--model", "tiny")
        assert (plan["cluster"], plan["workload"]["steps"]) == (f"mine-{base}", 77)


def test_a_sweep_on_one_machine_gives_new_ids_each_time(cli: Any) -> None:
    """Two submissions within a second must not collide, whatever else they share."""
    from datetime import datetime
    from random import Random

    from hpc_llm.schedulers.runs import new_run_id

    now = datetime(2026, 1, 2, 3, 4, 5)
    ids: list[str] = []
    for seed in range(50):
        ids.append(new_run_id("local", "z3+o", "/models/My Model", now, Random(seed), ids))
    assert len(set(ids)) == 50
    assert all(i.startswith("20260102-030405-local-z3-o-My-Model-") for i in ids)


def test_commands_answer_quickly() -> None:
    """A guard against an import that does not belong here; the benchmarks hold the real figures."""
    before = os.times()
    assert entry("--help").code == 0
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 3


# --- names that are not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("render", "--cluster", "local", "--method", "zero3"), "there is no method 'zero3': did you mean 'z3'? Valid: bf16, ddp, int8, q, q-hpc2, z1,"),
        (("render", "--cluster", "local", "--method", "ZeRO-2-offload"), "did you mean 'z2o'?"),
        (("methods", "fsdp"), "did you mean 'z3'?"),
        (("methods", "z3+x"), "there is no method 'x'. Valid: bf16, ddp, int8, q, q-hpc2, z1, z2, z2o, z2o-hpc2, z3, z3-hpc2, z3o, z3o-hpc2. With + they take letters, as in z3+o+r: o, r, f,"),
        (("diagnose", "--list", "oom"), "there is no cause 'oom': did you mean 'device_oom' or 'host_oom'? Valid: host_oom, device_oom,"),
        (("diagnose", "--list", "segv"), "did you mean 'segfault'?"),
        (("models", "7b"), "did you mean 'llama2-7b' or 'mistral-7b' or 'mistral-7b-v0.2'?"),
    ],
)  # fmt: skip
def test_what_people_call_otherwise_is_understood(cli: Any, words: tuple[str, ...], said: str) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "") and said in done.err


@pytest.mark.parametrize(
    "command", [("status",), ("parse", "x"), ("logs", "x"), ("render", *LOCAL), ("submit", *LOCAL)]
)
def test_a_file_in_the_place_of_the_logs_is_one_sentence(cli: Any, command: tuple[str, ...]) -> None:
    Path("afile").write_text("")
    done = cli(*command, "--logs", "afile")
    assert done == (2, "", "hpc-llm: --logs afile: it is a file, the folder that holds the runs is needed.\n")


def test_the_runs_that_there_are_are_listed_or_counted(cli: Any) -> None:
    for number in range(12):
        Path(f"logs/run-{number:02}").mkdir(parents=True)
        Path(f"logs/run-{number:02}/experiment.json").write_text("{}")
    err = cli("status", "nix").err
    assert all(f"run-{number:02}" in err for number in range(12))
    Path("logs/run-12").mkdir()
    Path("logs/run-12/experiment.json").write_text("{}")
    assert cli("status", "rum-12").err == (
        "hpc-llm: there is no run 'rum-12' in logs: did you mean 'run-12'? 13 runs are there, `hpc-llm status` lists them.\n"
    )


def test_parse_takes_a_bare_run_id(cli: Any) -> None:
    folder = Path("elsewhere/20260101-run")
    folder.mkdir(parents=True)
    plan = json.loads(cli("render", *LOCAL, "--json").out)["plan"]
    (folder / "experiment.json").write_text(json.dumps({"run_id": folder.name, "plan": plan}))
    for text in (folder.name, "20260101", str(folder)):
        done = cli("parse", text, "--logs", "elsewhere", "--format", "csv", "--columns", "run_id")
        assert (done.code, done.out.splitlines()) == (0, ["run_id", folder.name]), done.err
    assert cli("parse", "nix", "--logs", "elsewhere").code == 2


@pytest.mark.parametrize(
    "flag", ["--name", "--set", "--sbatch", "--model", "--partition", "--run-id", "--env-file", "--logs", "--time"]
)
def test_bytes_that_are_no_utf_8_are_one_sentence(
    flag: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("x\udcff", "env.X=\udcff", "optimizer.lr=\udcff", "\udcff=1"):
        assert run(["render", "--cluster", "local", "--method", "z2", "--model", "tiny", flag, value]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("hpc-llm:") == 1 and "unexpected" not in said.err
