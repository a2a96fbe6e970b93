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
    "option", ["nodelist=a,b", "nodelist=gn[1-2]", "nodelist=gn1", "nodelist=./names", "mincpus=64", "tres-per-task=license/x:1", "mem=0", "foo"]
)  # fmt: skip
def test_what_a_job_can_be_passes(option: str) -> None:
    assert option.partition("=")[0] in planned("delta", "z3", nodes=2, sbatch=(option,)).plan.job.sbatch


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            "--mem=10000G",
            "request.extra: --mem=10000G asks for 10000G on a node: partition gp2d of cluster taiwania2 has 670G there.",
        ),
        ("--mem=much", "request.extra: --mem=much: not an amount."),
        ("--nodelist=a[1-4]", "request.extra: --nodelist=a[1-4] names 4 nodes"),
        ("--mincpus=33", "request.extra: --mincpus=33: partition gp2d of cluster taiwania2 has 32 cores per node."),
    ],
)
def test_an_option_of_the_profile_passes_the_same_check(extra: str, said: str) -> None:
    cluster = variant("taiwania2", request={"extra": [extra]})
    refused(RequestError, said, cluster)
    name = extra.removeprefix("--").partition("=")[0]
    instead = {"mem": "mem=1G", "nodelist": "nodelist=a1", "mincpus": "mincpus=8"}[name]
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
