"""Requests and profiles that nobody would expect: refused with one sentence that can be followed, or passed with what is to know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rendering import planned
from test_planning import refused, variant

from hpc_llm.cli import run
from hpc_llm.errors import HpcLlmError, PlanError, ProfileError, RequestError


@pytest.mark.parametrize(
    ("option", "error", "said"),
    [
        ("tres-per-task=cpu=4", RequestError, "--sbatch tres-per-task: the plan has to know it. Use --sbatch cpus-per-task=N."),
        ("tres-per-task=license/x:1,cpu:4", RequestError, "Use --sbatch cpus-per-task=N."),
        ("nodefile=/x", RequestError, "--sbatch nodefile: the plan has to know it. Use --sbatch nodelist=NAMES."),
        ("nodelist=a,b,c", PlanError, "--sbatch nodelist=a,b,c names 3 nodes, which the job would all get, and the plan has 2. "
                                      "Use --nodes 3, or name fewer."),
        ("nodelist=gn[001-004,9]", PlanError, "names 5 nodes"),
        ("mincpus=65", PlanError, "--sbatch mincpus=65: partition gpuA100x4 of cluster delta has 64 cores per node. Ask for less."),
        ("cores-per-socket=999", PlanError, "--sbatch cores-per-socket=999: partition gpuA100x4 of cluster delta has 64 cores per node. Ask for less."),
        ("sockets-per-node=999", PlanError, "has 64 cores per node."),
        ("cores-per-socket=" + "9" * 5000, RequestError, "it has a number of more than 18 digits"),
        ("distribution=arbitrary", RequestError, "--sbatch distribution=arbitrary: sbatch takes it beside a nodelist alone"),
        ("distribution=Arbitrary,Pack", RequestError, "with a node for each task. Add that, or take block or cyclic."),
        ("dependency=afterok:1,afterany:2?after:3", RequestError, "with , for all or ? for any between them and not both"),
        ("dependency=1?2,3", RequestError, "and not both"),
        *((f"licenses={text}", RequestError, f"--sbatch licenses={text}: sbatch does not know that. Valid: the name of a license")
          for text in ("matlab:x", "matlab:", "a b", ":2", "a,b:-1")),
        *((f"{name}={text}", RequestError, f"--sbatch {name}={text}: sbatch does not know that. Valid: names of features without blanks")
          for name in ("constraint", "prefer") for text in ("a b", "a & b", "a*", "a*x")),
        ("nice=high", RequestError, "--sbatch nice=high: sbatch would read it as 0. Write a whole number."),
        ("nice=5x", RequestError, "sbatch would read it as 5. Write"),
        ("priority=abc", RequestError, "sbatch would read it as 0 and hold the job. Write a whole number."),
        ("uid=root", RequestError, "--sbatch uid: Slurm lets only root send a job in another's name. Leave it out."),
        ("gid=0", RequestError, "--sbatch gid: Slurm lets only root"),
        ("mem=300G", PlanError, "--sbatch mem=300G asks for 300G on a node: partition gpuA100x4 of cluster delta has 232G there. Ask for at most mem=238418M."),
        ("mem=1e3G", RequestError, "--sbatch mem=1e3G: not an amount."),
        ("mem=" + "9" * 5000 + "G", RequestError, "--sbatch mem: it has a number of more than 18 digits"),
        ("mincpus=" + "9" * 5000, RequestError, "--sbatch mincpus: it has a number of more than 18 digits"),
        ("nodelist=a[1-" + "9" * 5000 + "]", RequestError, "--sbatch nodelist: it has a number of more than 18 digits"),
        ("mem-per-cpu=lots", RequestError, "--sbatch mem-per-cpu=lots: not an amount."),
    ],
)  # fmt: skip
def test_what_no_job_could_be_is_refused(option: str, error: type[HpcLlmError], said: str) -> None:
    refused(error, said, "delta", nodes=2, sbatch=(option,))


@pytest.mark.parametrize(
    "option", ["nodelist=a,b", "nodelist=gn[1-2]", "nodelist=gn1", "nodelist=./names", "mincpus=64", "tres-per-task=license/x:1", "mem=0", "foo",
               "cores-per-socket=64", "cores-per-socket=73", "sockets-per-node=2", "dependency=afterok:1?after:2?3", "licenses=a@db:2,b;c", "licenses=a|b:3",
               "constraint=[a|b]&c*2", "nice=-5", "nice", "priority=TOP", "priority=7", "distribution=block"]
)  # fmt: skip
def test_what_a_job_can_be_passes(option: str) -> None:
    assert option.partition("=")[0] in planned("delta", "z3", nodes=2, sbatch=(option,)).plan.job.sbatch


def test_tasks_may_be_placed_by_a_list_of_nodes() -> None:
    asked = ("distribution=arbitrary", "nodelist=a,b")
    assert "distribution" in planned("delta", "z3", nodes=2, sbatch=asked).plan.job.sbatch
    both = ("cores-per-socket=32", "sockets-per-node=2")
    assert "cores-per-socket" in planned("delta", "z3", sbatch=both).plan.job.sbatch
    refused(PlanError, "has 64 cores per node", "delta", sbatch=("cores-per-socket=32", "sockets-per-node=3"))


NO_NAMES = {
    "my proj": "a blank",
    "abc,def": "','",
    "<ACCOUNT>": "'<'",
    "x\u00a0-delta-gpu": r"a character that looks like a blank (U+00A0)",
    "x\u200b": "a character that looks like a blank (U+200B)",
}


@pytest.mark.parametrize(("text", "found"), NO_NAMES.items())
def test_an_account_or_a_partition_that_none_can_be_called_is_refused(text: str, found: str) -> None:
    cluster = variant("mi210", account={"list_command": "mine"})
    said = f"account {text!r} (request) holds {found}"
    refused(RequestError, said, cluster, scheduler="slurm", account=text)
    refused(RequestError, "Give --account NAME. `mine` lists yours.", cluster, scheduler="slurm", account=text)
    own = variant("mi210", account={"default": text})
    refused(RequestError, f"account {text!r} (cluster mi210: account.default) holds", own, scheduler="slurm")
    if "," not in text:
        refused(RequestError, f"partition {text!r} (request) holds {found}", "mi210", scheduler="slurm", partition=text)
    assert planned("mi210", "z3", scheduler="slurm", partition="a,b", account="a.b@c-d_1").plan.job.partition == "a,b"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            "--mem=10000G",
            "request.extra: --mem=10000G asks for 10000G on a node: partition gp2d of cluster taiwania2 has 670G there.",
        ),
        ("--mem=much", "request.extra: --mem=much: not an amount."),
        ("--nodelist=a[1-4]", "request.extra: --nodelist=a[1-4] names 4 nodes"),
        (
            "--cores-per-socket=99",
            "request.extra: --cores-per-socket=99: partition gp2d of cluster taiwania2 has 32 cores per node.",
        ),
        ("--mincpus=33", "request.extra: --mincpus=33: partition gp2d of cluster taiwania2 has 32 cores per node."),
    ],
)
def test_an_option_of_the_profile_passes_the_same_check(extra: str, said: str) -> None:
    cluster = variant("taiwania2", request={"extra": [extra]})
    refused(RequestError, said, cluster)
    name = extra.removeprefix("--").partition("=")[0]
    instead = {
        "mem": "mem=1G",
        "nodelist": "nodelist=a1",
        "mincpus": "mincpus=8",
        "cores-per-socket": "cores-per-socket=8",
    }[name]
    assert planned(cluster, "z3", sbatch=(instead,)).plan.job.sbatch == dict([instead.split("=")])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "partion=x",
            "--sbatch partion: --partion is no option of sbatch that is known here (did you mean --partition?), it passes as",
        ),
        ("memory=20G", "--sbatch memory: --memory is no option of sbatch that is known here (did you mean --mem?), it"),
        (
            "walltime=2:00",
            "--sbatch walltime: --walltime is no option of sbatch that is known here (did you mean --time?)",
        ),
        (
            "time-limit=2:00",
            "--sbatch time-limit: --time-limit is no option of sbatch that is known here (did you mean --time?)",
        ),
        ("exclusiv", None),
        (
            "gpu_mode=shared",
            "--sbatch gpu_mode: --gpu_mode is no option of sbatch that is known here, it passes as it is written",
        ),
        ("bell=4", "--sbatch bell: --bell is no option of sbatch that is known here, it passes as it is written"),
        ("nice=4", None),
    ],
)
def test_an_option_that_sbatch_may_not_have_is_told(option: str, said: str | None) -> None:
    if option == "exclusiv":
        refused(RequestError, "sbatch reads it as the beginning of --exclusive", "delta", sbatch=(option,))
        return
    notices = planned("delta", "z3", sbatch=(option,)).notices
    assert notices == () if said is None else notices[0].startswith(said)


def test_several_partitions_are_one_too_many() -> None:
    refused(PlanError, "--partition gp1d,gp2d: the plan depends on the partition's GPUs and limits. Name one of them.", "taiwania2", partition="gp1d,gp2d")  # fmt: skip
    refused(PlanError, "there is no partition 'gp1d,gp9d' in cluster taiwania2", "taiwania2", partition="gp1d,gp9d")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slurm_cluster": ""}, "slurm_cluster names no cluster, and would check nothing. Leave it out, or name one."),
        ({"slurm_cluster": []}, "slurm_cluster names no cluster"),
        ({"slurm_cluster": ["a", ""]}, "slurm_cluster names no cluster"),
        ({"partitions": [{"name": "a,b", "max_time": "1:00"}]}, "'partitions.0.name' is 'a,b'"),
        ({"partitions": [{"name": "a b", "max_time": "1:00"}]}, "'partitions.0.name' is 'a b'"),
        ({"prelude": {"python": {"kind": "conda", "env": "./env"}}}, "env is './env', and the job works in the folder of its run."),
        ({"prelude": {"python": {"kind": "conda", "env": "envs/mine"}}}, "env is 'envs/mine'"),
        ({"prelude": {"python": {"kind": "venv", "env": "venv"}}}, "env is 'venv', and the job works in the folder of its run. Give the full"),
        ({"prelude": {"python": {"kind": "conda", "env": "/e", "hook": "conda.sh"}}}, "hook is 'conda.sh'"),
        ({"prelude": {"use": ["modulefiles"]}}, "use is 'modulefiles'"),
        ({"env": {"file": "secrets"}}, "file is 'secrets', and the job works in the folder of its run."),
        ({"prelude": {"init": ["modules.sh"]}}, "init is 'modules.sh'"),
    ],
)  # fmt: skip
def test_a_profile_that_would_check_or_find_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        variant("taiwania2", **changes)
    assert said in str(caught.value)


@pytest.mark.parametrize("env", ["by-name", "/e", "~/e", "${HOME}/e", "$HOME/e"])
def test_an_environment_that_the_job_finds_passes(env: str) -> None:
    assert variant("taiwania2", prelude={"python": {"kind": "conda", "env": env}}).prelude.python.env == env


def test_memory_without_a_unit_is_told() -> None:
    assert (
        "--sbatch mem=64 is 64 MiB on a node: without a unit sbatch reads M"
        in planned("delta", "z3", sbatch=("mem=64",)).notices
    )
    for whole in ("mem=0", "mem=64G", "mem=65536", "mem=512M"):
        assert not any("without a unit" in said for said in planned("delta", "z3", sbatch=(whole,)).notices)


@pytest.mark.parametrize("text", ["qos = high", "qos=high ", "qos=\u00a0high"])
def test_a_blank_at_an_end_would_be_part_of_the_value(text: str) -> None:
    refused(RequestError, "has a blank at an end. Write qos=high.", "delta", sbatch=(text,))
    assert planned("delta", "z3", sbatch=("comment= a b ",)).plan.job.sbatch == {"comment": " a b "}


def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str], sbatch: str, *words: str) -> tuple[list[str], str]:
    """The #SBATCH lines and what was said of an experiment file with those options."""
    path = tmp_path / "e.yaml"
    path.write_text(f"cluster: taiwania2\nmethod: z3\naccount: ACD1\n{sbatch}\n")
    run(["render", str(path), *words])
    said = capsys.readouterr()
    return re.findall(r"^#SBATCH --(.*)$", said.out, re.MULTILINE), said.err


@pytest.mark.parametrize("flag", ["mem=8G", "--mem=8G", "mem-per-gpu=8G", "mem-per-cpu=1G"])
def test_a_flag_wins_over_what_it_excludes_in_the_file(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = asked(
        tmp_path, capsys, "sbatch: {mem: 64G, nice: 5, requeue: }", "--sbatch", flag, "--sbatch", "no-requeue"
    )
    assert flag.removeprefix("--") in lines and "nice=5" in lines and "no-requeue" in lines
    assert "mem=64G" not in lines and "requeue" not in lines


@pytest.mark.parametrize(
    ("sbatch", "said"),
    [
        (
            "sbatch: {requeue: false}",
            "sbatch.requeue is false, and nothing asks for it unless it is named. Leave it out.",
        ),
        ("qos: high", "there is no option 'qos': it is said as sbatch: {qos: VALUE}."),
        ("sbatch: [mem=1G, mem=2G]", "--sbatch mem is given twice"),
    ],
)
def test_a_file_is_told_what_to_write(
    sbatch: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, told = asked(tmp_path, capsys, sbatch)
    assert lines == [] and said in told


def test_an_option_of_sbatch_given_to_us_is_told_its_way(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--qos", "high"], "--sbatch qos=VALUE"),
        (["--exclusive"], "--sbatch exclusive"),
        (["--mem=4G"], "--sbatch mem="),
    ):
        assert run(["render", "--cluster", "mi210", "--method", "z3", *words]) == 2
        assert f"it is said as {said}" in capsys.readouterr().err
    for words in (["--array=1-2"], ["--ntasks", "4"], ["--colour"]):
        assert run(["render", "--cluster", "mi210", "--method", "z3", *words]) == 2
        assert "--sbatch " not in capsys.readouterr().err.partition("Valid: ")[0]


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_ranks_that_would_take_the_same_gpu_are_refused(name: str) -> None:
    for shown, count in (
        ("0", "1 GPU"),
        ("0,1", "2 GPUs"),
        ("0,0,0,0", "1 GPU"),
        ("0,-1,1,2", "1 GPU"),
        ("", "0 GPUs"),
    ):
        said = f"env.{name} is '{shown}', which shows {count}, and the job has 4 per node"
        refused(PlanError, said, "delta", gpus_per_node=4, set=(f"env.{name}={shown}",))
    for shown in ("0,1,2,3", "GPU-a,GPU-b,GPU-c,GPU-d", "0,1,2,3,4"):
        planned("delta", "z3", gpus_per_node=4, set=(f"env.{name}={shown}",))
    planned("delta", "z3", gpus_per_node=1, set=(f"env.{name}=2",))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1800, "the job may take 1800 s"), (3600, "the job may take 1800 s"), (65536, "at most 65535 s"), (300, None), (1799, None)],
)  # fmt: skip
def test_a_signal_that_would_come_before_training_is_refused(seconds: int, said: str | None) -> None:
    asked: dict[str, Any] = {"time": "00:30:00", "save_every": 10, "sbatch": (f"signal=B:USR1@{seconds}",)}
    if said is None:
        planned("delta", "z3", **asked)
    else:
        refused(RequestError, said, "delta", **asked)
