"""What is advised can be done, plans, and would not end in the same way by the plan's own arithmetic."""

from __future__ import annotations

import io
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rendering import CLUSTERS, METHODS, cluster_of, flags_of, planned
from test_diagnose_run import MOMENT, fails, new_run
from tiny_models import save
from tiny_plans import make_plan
from typer.main import get_command

from hpc_llm.causes.catalogue import CAUSES
from hpc_llm.cli import make_app
from hpc_llm.cli.options import RunOptions
from hpc_llm.diagnosis import diagnose_run, diagnose_stream
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.diagnosis import Diagnosis
from hpc_llm.diagnosis.elsewhere import in_other_words
from hpc_llm.diagnosis.inputs import diagnose_files
from hpc_llm.diagnosis.ladder import letters_of, rungs, states_bytes
from hpc_llm.diagnosis.less_host import fewer, host_oom
from hpc_llm.diagnosis.more_time import walltime
from hpc_llm.diagnosis.packages import mismatched, missing
from hpc_llm.diagnosis.remedies import (
    BY_PLAN,
    device_oom,
    filled,
    page_locked,
    without_what_it_has,
)
from hpc_llm.errors import WorkerError
from hpc_llm.parsing import parse_stream
from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import load_cluster
from hpc_llm.worker.model.capacity import refuse_what_never_fits

COMPOSED = ("z1+o", "z2+o+r", "z3+lora", "qlora+r", "lora", "q+r", "z3+o+r", "z1", "z2+lora+o")
FULL = {"asked": "2.00 GiB", "capacity": "31.74 GiB", "allocated": "30.00 GiB", "reserved": "0.5 GiB"}


def asked_again(base: dict[str, Any], cluster: str, method: str, line: str) -> Plan:
    """The plan of the same request with the advised flags."""
    asked = {**base, **flags_of(line)}
    return planned(cluster, asked.pop("method", method), **asked).plan


ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"gpus_per_node": 1},
    {"micro_batch_size": 8, "gradient_accumulation_steps": 3},
)


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """Each method on each cluster with one of three sizes, so that every method and every cluster is met with each of them."""
    pairs = itertools.product(enumerate(CLUSTERS), enumerate((*METHODS, *COMPOSED)))
    return [(c, m, {"steps": 1000, "model": "llama2-7b", **ASKED[(i + j) % len(ASKED)]}) for (i, c), (j, m) in pairs]


@pytest.mark.parametrize("cause", BY_PLAN)
def test_every_advised_request_plans_and_changes_something(cause: str) -> None:
    seen = 0
    for cluster, method, asked in cases():
        plan = planned(cluster, method, **asked).plan
        facts = {**FULL, "steps_made": "55", "step_time_s": "9.5", "steps_ended_s": "700"}
        for line in BY_PLAN[cause](Case(plan=plan, facts=facts, cluster=cluster_of(cluster))):
            if flags_of(line):
                again = asked_again(asked, cluster, method, line)
                assert again.to_dict() | {"method": ""} != plan.to_dict() | {"method": ""}, (cluster, method, line)
                seen += 1
    assert seen > 50 or cause in ("gpu_missing", "gpu_shared", "preempted")


def test_out_of_memory_each_step_needs_less_and_fits_by_its_states() -> None:
    for cluster, method, asked in cases():
        plan = planned(cluster, method, **asked).plan
        before = (
            plan.batch.micro_batch_size,
            states_bytes(plan, letters_of(plan)),
            plan.batch.sequence_length,
            plan.model.recompute,
        )
        for line in device_oom(Case(plan=plan, facts=FULL)):
            if not flags_of(line) or "env." in line:
                continue
            again = asked_again(asked, cluster, method, line)
            states = states_bytes(again, letters_of(again))
            after = (again.batch.micro_batch_size, states, again.batch.sequence_length, again.model.recompute)
            assert again.batch.global_batch_size == plan.batch.global_batch_size
            assert after != before, (cluster, method, line)
            assert states is None or states < 31.74 * 2**30, (cluster, method, line)


def test_what_the_run_has_is_not_advised() -> None:
    all_of_it = planned("taiwania2", "z3+o+r", sequence_length=100).plan
    [said] = device_oom(Case(plan=all_of_it, facts={}))
    assert "it saves memory in all ways that there are" in said and "--micro" not in said
    one = planned("local", "ddp", gpus_per_node=1, model="llama2-13b", micro_batch_size=1).plan
    lines = device_oom(Case(plan=one, facts={"capacity": "79.10 GiB"}))
    assert not any(line.startswith(("--micro", "--method ddp", "--sequence", "--method z2")) for line in lines), lines
    assert lines[0].startswith("--method z3+o+r  (")
    assert "alone take 194.0 GiB of the GPU's 79.1 GiB" in lines[-1]
    whole = planned("delta", "z3", gpus_per_node=4).plan
    assert not any(
        line.startswith("--sbatch mem=0") for line in host_oom(Case(plan=whole, cluster=cluster_of("delta")))
    )
    asked = planned("delta", "z3", gpus_per_node=1, sbatch=("mem=0",)).plan
    assert "for you to decide" in host_oom(Case(plan=asked, cluster=cluster_of("delta")))[0]
    expandable = {"asked": "1.00 GiB", "reserved": "5.00 GiB"}
    assert "expandable" not in device_oom(Case(plan=whole, facts=expandable, cluster=cluster_of("delta")))[0]


@pytest.mark.parametrize(
    ("steps", "pace", "partition", "advised"),
    [
        (1000, 2.0, "gtest", ["--partition gp1d --time 00:40:00", "--steps 750"]),
        (300_000, 30.0, "gp2d", ["no partition allows the 119-19:10:00", "--steps 5000"]),
        (2000, 1.0, "gp2d", ["--time 00:40:00", "--steps 1500"]),
        (300_000, 30.0, "gtest", ["no partition allows the 119-19:10:00", "--steps 50"]),
        (300_000, 900.0, "gtest", ["no partition allows the 3593"]),
    ],
)
def test_time_is_asked_for_by_the_runs_own_steps(steps: int, pace: float, partition: str, advised: list[str]) -> None:
    limit = {"gtest": "00:30:00", "gp2d": "00:30:00" if steps < 10_000 else "2-00:00:00"}[partition]
    plan = planned("taiwania2", "z3", steps=steps, partition=partition, time=limit).plan
    facts = {"steps_made": "55", "step_time_s": str(pace), "steps_ended_s": str(60 + 55 * pace)}
    lines = walltime(Case(plan=plan, facts=facts, cluster=cluster_of("taiwania2")))
    assert len(lines) == len(advised) and all(map(str.startswith, lines, advised)), lines
    for line in lines:
        asked = flags_of(line)
        if not asked:
            continue
        again = asked_again({"steps": steps, "partition": partition, "time": limit}, "taiwania2", "z3", line)
        assert again.job.time_s is not None and 60 + again.workload.steps * pace < again.job.time_s


def test_no_time_is_advised_where_no_step_was_made() -> None:
    plan = planned("taiwania2", "z3", steps=1000).plan
    [said] = walltime(Case(plan=plan, facts={}, cluster=cluster_of("taiwania2")))
    assert said.startswith("it made no step: look for what it waited for") and "--" not in said


def test_pages_are_unpinned_where_they_are_pinned() -> None:
    plan = planned("taiwania2", "z3o").plan
    lines = page_locked(Case(plan=plan))
    for line, part in zip(lines, ("offload_optimizer", "offload_param"), strict=False):
        again = asked_again({}, "taiwania2", "z3o", line)
        assert again.engine.deepspeed["zero_optimization"][part]["pin_memory"] is False
    assert not any("pin_memory" in line for line in page_locked(Case(plan=planned("taiwania2", "z3").plan)))


# --- packages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"program": "torchrun"}, "torchrun comes with torch: is this the environment that has it? Otherwise: python -m pip install torch"),
        ({"program": "srun"}, "srun is not on PATH on the compute node"),
        ({"program": "python3"}, "python3 is not on PATH"),
        ({"package": "torch, transformers"}, "pip install torch transformers"),
        ({"package": "yaml"}, "pip install pyyaml"),
        ({"package": "pkg_resources"}, "pip install 'setuptools<81'"),
        ({"package": "pkg_resources.extern"}, "pip install 'setuptools<81'"),
        ({"package": "setuptools"}, "pip install setuptools\n"),
        ({"package": "cv2"}, "pip install opencv-python-headless"),
        ({"package": "sklearn"}, "pip install scikit-learn"),
        ({"package": "PIL"}, "pip install pillow"),
        ({"package": "flash_attn"}, "pip install --no-build-isolation flash-attn"),
        ({"package": "transformer_engine.pytorch"}, "pip install 'transformer-engine[pytorch]'"),
        ({"package": "my_own_file"}, "find out what brings my_own_file: a file of the program (then PYTHONPATH)"),
        ({"package": "apex"}, "NVIDIA's apex is built from its source (PyPI's apex is another program)"),
        ({"package": "_ctypes"}, "_ctypes belongs to Python itself"),
        ({"package": "readline"}, "was built, or installed, without it"),
        ({"package": "tomllib"}, "from 3.11 on"),
        ({"package": "imghdr"}, "Python 3.13 has no imghdr any more"),
        ({"package": "msvcrt"}, "on Windows alone"),
        ({"package": "importlib.later"}, "take a newer Python"),
        ({"package": "distutils"}, "Python 3.12 has no distutils any more"),
        ({"package": "hpc_llm"}, "is not visible to the job"),
    ],
)  # fmt: skip
def test_the_name_to_install_is_that_of_the_package(facts: dict[str, str], said: str) -> None:
    text = "\n".join(missing(facts))
    assert said in text
    for command in re.findall(r"pip install (.*)", text):
        assert not re.search(r"[,…]", command) and "my_own_file" not in command and "apex" not in command


@pytest.mark.parametrize(
    ("line", "program", "said"),
    [
        ("slurm_script: line 12: mpirun: command not found", "mpirun", "load the module of MPI"),
        ("/var/spool/slurmd/job7/slurm_script: line 4: srun: command not found", "srun", "belongs to Slurm"),
        ("bash: python: command not found", "python", "where a system has python3 alone"),
        ("run.sh: 9: torchrun: not found", "torchrun", "torchrun comes with torch"),
        ("zsh:1: command not found: composer", "composer", "python -m pip install mosaicml"),
        ("bash: llamafactory-cli: command not found", "llamafactory-cli", "python -m pip install llamafactory"),
        ("bash: vllm: command not found", "vllm", "python -m pip install vllm"),
        (
            "slurm_script: line 49: --intervene_value: command not found",
            "--intervene_value",
            "lacks its `\\` at the end",
        ),
        ("run.sh: line 9: --lr=1e-4: command not found", "--lr", "run without that option"),
        ("run.sh: line 41: run.num_workers=0: command not found", "run.num_workers", "run.num_workers is an option"),
        ("run.sh: 9: -n: not found", "-n", "is an option"),
        ("bash: my_tool.sh: command not found", "my_tool.sh", "load the module, or activate the environment"),
    ],
)
def test_a_command_that_no_shell_found_is_named(line: str, program: str, said: str, diagnose: Any) -> None:
    found: Diagnosis = diagnose(f"{line}\n")
    assert (found.cause.id, found.details["program"]) == ("command_missing", program)
    assert said in found.remedy and f"pip install {program.partition('.')[0]}_" not in found.remedy
    went_on = diagnose(f"{line}\nreading the shards\nbuilding the index\n")
    assert went_on.cause.id == "unknown"


def test_a_training_that_came_to_its_end_without_an_option_came_to_its_end(diagnose: Any) -> None:
    trained = "{'loss': 1.5, 'epoch': 0.5}\n{'train_runtime': 100.0, 'epoch': 1.0}\nrun.sh: line 9: --lr=1e-4: command not found\n"
    assert diagnose(trained).cause.id == "none"


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("/e/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "--no-build-isolation flash-attn"),
        ("/e/site-packages/bitsandbytes/libbitsandbytes_cuda124.so", "pip install --upgrade -c torch.txt bitsandbytes"),
        ("/e/site-packages/torchvision/_C.so", "pip install --upgrade torch torchvision"),
        ("/h/.cache/torch_extensions/py311_cu124/cpu_adam/cpu_adam.so", "rm -r /h/.cache/torch_extensions/py311_cu124/cpu_adam"),
        ("/e/site-packages/nvidia/cusparse/lib/libcusparse.so.12", "see LD_LIBRARY_PATH"),
        ("/e/site-packages/torch/lib/libtorch_cuda.so", "see LD_LIBRARY_PATH"),
        ("/e/site-packages/thing/_ext.cpython-311.so", "install it again"),
    ],
)  # fmt: skip
def test_a_library_that_lacks_a_symbol_is_mended_where_it_lies(library: str, said: str, diagnose: Any) -> None:
    text = f"ImportError: {library}: undefined symbol: _ZN3c104cuda9SetDeviceEi\n"
    found: Diagnosis = diagnose(text)
    assert (found.cause.id, said in found.remedy) == ("driver_mismatch", True), found.remedy
    assert found.remedy == "\n".join(mismatched({"library": library}))
    assert ("torch_extensions" in library) == ("rm -r" in found.remedy)


# --- logs of other programs -----------------------------------------------------------------------------------------

OURS = {f"--{name.replace(chr(95), chr(45))}" for name in RunOptions.__annotations__}


def _remedies() -> list[tuple[str, str, bool]]:
    found = [(cause.id, cause.remedy, True) for cause in CAUSES]
    return found + [(c.id, s.remedy, False) for c in CAUSES for s in c.signs if s.remedy is not None]


@pytest.mark.parametrize(("cause", "remedy", "is_of_cause"), _remedies())
def test_a_log_that_is_no_run_of_ours_is_not_told_our_flags(cause: str, remedy: str, is_of_cause: bool) -> None:
    text = in_other_words(cause, filled(remedy, {"node": "gn1", "package": "x"}), is_of_cause)
    assert text and not re.search(r"hpc-llm|cluster's profile|prelude", text)
    for flag in re.findall(r"(?<![\w-])(--[a-z-]+)", re.sub(r"(?:sbatch|pip|hf|torchrun) [^\n]*", "", text)):
        assert flag not in OURS, text


def test_no_place_of_a_fact_stays_open_in_what_is_advised() -> None:
    for _, remedy, _ in _remedies():
        names = re.findall(r"\{(\w+)\}", remedy)
        texts = [filled(remedy, {}), filled(remedy, dict.fromkeys(names, "x1"))]
        assert all(text and not re.search(r"\{\w+\}", text) for text in texts), remedy
        assert all("x1" in texts[1] for _ in names), remedy


@pytest.mark.parametrize("why", ["No such file or directory", "Permission denied", "Exec format error"])
@pytest.mark.parametrize("program", ["/home/alice/proj/run.sh", "./bin/my_trainer", "./train"])
def test_a_program_that_does_not_start_is_named(why: str, program: str) -> None:
    text = (
        "slurmstepd: error: couldn't chdir to `/home/alice/proj': No such file or directory: going to /tmp instead\n"
        f"slurmstepd: error: execve(): {program}: {why}\nsrun: error: node12: task 0: Exited with exit code 2\n"
    )
    remedy = diagnose_stream(io.BytesIO(text.encode())).remedy
    assert remedy.startswith(f"{program} cannot be started") and "chdir" in remedy


def test_our_flags_are_all_flags_that_there_are() -> None:
    commands = get_command(make_app([])).commands  # type: ignore[attr-defined]
    known = {word for name in ("submit", "fetch") for option in commands[name].params for word in option.opts}
    foreign = {
        "--allow-run-as-root",
        "--local-dir",
        "--duplicates",
        "--nv",
        "--gpus",
        "--shm-size",
        "--ipc",
        "--standalone",
        "--rdzv-endpoint",
        "--bind",
        "--base",
        "--cpu-bind",
        "--mpi",
        "--upgrade",
        "--index-url",
        "--repo-type",
        "--version",
        "--propagate",
        "--force-reinstall",
        "--no-cache-dir",
        "--enable-cuda-graph",
        "--no-binary",
        "--no-build-isolation",
        "--nproc-per-node",
        "--ntasks-per-node",
        "--cpus-per-task",
        "--network",
        "--mem-per-cpu",
        "--mem-per-gpu",
        # of launchers, as far as the first underscore
        "--local-rank",
        "--local",
        "--no",
        # of engines of inference
        "--cache-type-k",
        "--context-length",
        "--max-batch-prefill-tokens",
        "--max-total-tokens",
        "--mem-fraction-static",
        "--num-shard",
        "--tp-size",
    }
    for _, remedy, _ in _remedies():
        own = re.sub(r"sbatch --[a-z-]+", "", remedy)  # an option of Slurm's own
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own)) <= known | foreign, remedy


def test_settings_that_the_run_has_are_left_out() -> None:
    remedy = "bf16: --set precision=bf16\nleave it out: --sbatch exclude=gn1\nlook at the data"
    assert without_what_it_has(remedy, make_plan("z3")) == "look at the data"
    slurm = planned("taiwania2", "z3").plan
    assert without_what_it_has(remedy, slurm) == remedy
    assert "for you to decide" in without_what_it_has("x: --set precision=fp16", slurm)


@pytest.mark.parametrize(("mem", "advised"), [("60G", False), ("110G", True), (None, True)])
def test_no_method_is_advised_that_the_hosts_memory_cannot_hold(mem: str | None, advised: bool) -> None:
    """A model of 6.7e9 parameters keeps 14 bytes of each on the host with z2+o, and 16 with z3+o: 94 and 108 GB."""
    plan = make_plan("z3o", world_size=1, model="llama2-7b")
    held = plan.changed(sbatch={"mem": mem} if mem else {}, scheduler="local")
    lines = host_oom(Case(plan=held))
    assert any(line.startswith("--method z2+o") for line in lines) == advised


def test_the_nodes_to_leave_out_are_added_to_those_that_are() -> None:
    plan = make_plan("z3o", world_size=1).changed(sbatch={"exclude": "n1"}, scheduler="slurm")
    lines = BY_PLAN["gpu_missing"](Case(plan=plan, facts={"node": "n2"}))
    assert any(line.startswith("--sbatch exclude=n1,n2  (") for line in lines)
    assert "1 rank and" in lines[0]


def test_pieces_that_the_plan_sets_are_not_advised_again() -> None:
    facts = {"asked": "1.50 GiB", "reserved": "9.00 GiB", "reserved_total": "36.00 GiB"}
    for value, is_advised in ((None, True), ("max_split_size_mb:64", False), ("expandable_segments:True", False)):
        env = {"PYTORCH_CUDA_ALLOC_CONF": value} if value else {}
        lines = device_oom(Case(plan=make_plan("z3", world_size=1).changed(env=env), facts=facts))
        assert any("ALLOC_CONF" in line for line in lines) is is_advised, (value, lines)


@pytest.mark.parametrize("built", ["2.13.0+cpu (built for no GPU support)", "2.3.1 (built for no GPU support)"])
def test_a_torch_for_the_cpu_alone_is_replaced(built: str) -> None:
    text = f"WorkerError: the plan wants 1 GPUs per node, torch {built} sees none on n1. More words."
    found = diagnose_stream(io.BytesIO(text.encode()))
    assert (found.cause.id, "exclude" in found.remedy) == ("gpu_missing", False)
    assert found.remedy.startswith("install a build of torch")


@pytest.mark.parametrize(
    ("options", "facts", "said"),
    [
        # One rank and one GPU of delta: 16 cores, and a share of 62.5 GB.
        (("mem-per-cpu=50",), {}, "--sbatch mem-per-cpu=3776M  (3.69 GiB per CPU, 59 GiB on a node: the site's share"),
        (
            ("mem-per-gpu=2G",),
            {"used_bytes": str(2**31)},
            "--sbatch mem-per-gpu=59G  (59 GiB per GPU, 59 GiB on a node",
        ),
        (("mem=100G",), {}, "--sbatch mem=200G  (200 GiB: 2 times what it reached; it had 100 GiB"),
        (("mem=110G",), {"used_bytes": str(108 << 30)}, "--sbatch mem=220G  ("),
        (
            ("mem-per-cpu=10G",),
            {},
            "--sbatch mem=0  (instead of mem-per-cpu: all of the node's memory, it had 10 GiB per CPU, 160 GiB",
        ),
        ((), {}, "--sbatch mem=117G  ("),
    ],
)
def test_more_memory_is_an_amount_in_the_form_in_which_it_was_asked_for(
    options: tuple[str, ...], facts: dict[str, str], said: str
) -> None:
    delta = cluster_of("delta")
    plan = planned("delta", "z3", gpus_per_node=1, sbatch=options).plan
    line = host_oom(Case(plan=plan, cluster=delta, facts=facts))[0]
    assert line.startswith(said), line
    option = line.split()[1]  # what is advised is taken
    planned("delta", "z3", gpus_per_node=1, sbatch=(option,))


def test_fewer_ranks_keep_the_memory_of_all_and_the_global_batch() -> None:
    delta = cluster_of("delta")
    for option, share in (("mem-per-gpu=20G", " --sbatch mem-per-gpu=40G"), ("mem=80G", "")):
        was = planned("delta", "z3", gpus_per_node=4, model="tiny", sbatch=(option,)).plan
        line = host_oom(Case(plan=was, cluster=delta))[1]
        assert line.startswith(f"--gpus-per-node 2 --gradient-accumulation-steps 2{share}  (")
        followed = planned("delta", "z3", model="tiny", **flags_of(line)).plan
        assert followed.batch.global_batch_size == was.batch.global_batch_size
        assert "global batch" not in line


def test_fewer_ranks_that_cannot_keep_the_global_batch_say_so() -> None:
    was = planned("mi300x", "z3", gpus_per_node=5, micro_batch_size=1).plan
    line = fewer(Case(plan=was), 2)
    followed = planned("mi300x", "z3", micro_batch_size=1, **flags_of(line)).plan
    assert (was.batch.global_batch_size, followed.batch.global_batch_size) == (5, 2)
    assert "the global batch is 2 then and no longer 5, which is another experiment" in line


def test_a_few_mebibytes_for_ranks_without_a_share_become_what_a_rank_takes() -> None:
    plan = make_plan("z3", world_size=2).changed(sbatch={"mem": "100M"}, scheduler="slurm")
    assert host_oom(Case(plan=plan))[0].startswith(
        "--sbatch mem=4G  (4 GiB: what a rank takes before it trains; it had 100 MiB)"
    )


@pytest.mark.parametrize(
    ("method", "setting", "advice", "length"),
    [
        ("lora", "peft.r=256", "--set peft.r=8", 4096),
        ("z3", "attention=eager", "--set attention=sdpa", 4096),
        ("z3", "precision=fp32", "--set precision=bf16", 4096),
    ],
)
def test_a_setting_that_takes_memory_is_taken_back_and_the_estimate_counts_it(
    method: str, setting: str, advice: str, length: int
) -> None:
    cluster = load_cluster("delta")
    costly = planned("delta", method, set=(setting,), sequence_length=length).plan
    usual = planned("delta", method, sequence_length=length).plan
    lines = [device_oom(Case(plan=plan, cluster=cluster, facts=FULL)) for plan in (costly, usual)]
    assert [any(advice in line for line in one) for one in lines] == [True, False], lines


@pytest.mark.parametrize(
    ("gpu", "advised"),
    [
        ("V100-SXM2-32GB", "--set precision=fp16  (half the bytes of weights and activations)"),
        ("A100-SXM4-40GB", "--set precision=bf16  (half the bytes of weights and activations)"),
        (
            "Unheard-of",
            "--set precision=bf16  (half the bytes of weights and activations, where the GPU has bf16; else fp16)",
        ),
    ],
)
def test_half_the_precision_is_one_that_the_device_has(gpu: str, advised: str) -> None:
    plan = planned("delta", "z3", set=("precision=fp32",)).plan
    plan = replace(plan, gpu=replace(plan.gpu, model=gpu))
    assert any(f"{rung.flags}  ({rung.why})" == advised for rung in rungs(plan))


def test_a_cut_line_of_evidence_and_a_cut_reason_say_that_they_go_on() -> None:
    log = f'Traceback (most recent call last):\n  File "/w/t.py", line 1, in <module>\nValueError: {"x" * 900}\n'
    found = diagnose_stream(io.BytesIO(log.encode()), "log")
    assert found.evidence[0].text.endswith("x…")
    reason = parse_stream("log", io.BytesIO(log.encode())).rows[-1].outcome_reason
    assert reason is not None and reason.endswith("x…")
    short = diagnose_stream(io.BytesIO(log.replace("x" * 900, "x").encode()), "log")
    assert "…" not in short.evidence[0].text


@pytest.mark.parametrize("method", ["ddp+fp8", "z3+fp8"])
def test_what_is_advised_for_a_run_in_fp8_can_be_planned(method: str) -> None:
    plan = planned("runpod", method, gpus_per_node=2, micro_batch_size=2).plan
    asked = [rung.flags.split()[1] for rung in rungs(plan) if rung.flags.startswith("--method")]
    assert asked[0] == f"{method}+r" and all(planned("runpod", one).plan.model.fp8 for one in asked)
    assert any(line.startswith("--set fp8=false  (") for line in BY_PLAN["nan_loss"](Case(plan=plan)))


@pytest.mark.parametrize("is_log", [False, True])
def test_weights_that_nothing_here_holds_are_a_lack_of_memory(tmp_path: Path, is_log: bool) -> None:
    """In the worker's own words."""
    config = json.loads((save(tmp_path / "model", "llama") / "config.json").read_text())
    big = {"num_hidden_layers": 900, "hidden_size": 65536, "intermediate_size": 65536}
    (tmp_path / "model/config.json").write_text(json.dumps({**config, **big}))
    asked = {"scheduler": "slurm", "model": str(tmp_path / "model"), "weights": "random"}
    run = new_run(tmp_path, plan=asked)
    with pytest.raises(WorkerError) as refused:
        refuse_what_never_fits(make_plan("z3", world_size=2, **asked))
    fails(run, 0, "WorkerError", str(refused.value), MOMENT + 10)
    if is_log:
        (tmp_path / "log.err").write_text(f"hpc_llm.errors.WorkerError: {refused.value}\n")
    found = diagnose_files([tmp_path / "log.err"]) if is_log else diagnose_run(run)
    assert found.cause.id == "host_oom" and not found.retry and "The weights alone take more" in found.meaning
    more, other = found.remedy.splitlines()
    has, needs = (float(re.findall(rf"{word} (\d+) GiB", str(refused.value))[0]) for word in ("have", "take"))
    nodes = int(re.findall(r"^--nodes (\d+)", more)[0])
    assert nodes * has > (needs if is_log else 7 * needs) and other.startswith("a smaller --model")
    assert ("--method z3" in more) is is_log
