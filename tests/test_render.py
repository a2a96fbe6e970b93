"""The script: golden texts, valid bash for every cluster and method, an origin for every line, nothing that a site refuses.

After a change that is meant: HPC_LLM_RECORD_GOLDEN=1 python -m pytest tests/test_render.py, then read the diff.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from rendering import CLUSTERS, METHODS, batch, explained_lines, planned, script
from test_planning import CPU, refused, variant

from hpc_llm import __version__
from hpc_llm.errors import PlanError, RequestError
from hpc_llm.job.batch import Batch
from hpc_llm.schedulers import support_of
from hpc_llm.site.cluster import load_cluster
from hpc_llm.text.shell import sbatch_word, shell_comment, shell_expand, shell_word

GOLDEN = ROOT / "tests" / "golden"
RECORD = "HPC_LLM_RECORD_GOLDEN"
SWEEP = ("z2o", "z3", "z3o", "q")

SHAPES: dict[str, Callable[[], Batch]] = {
    "taiwania2-one-node": lambda: batch("taiwania2", "z3"),
    "taiwania2-two-nodes": lambda: batch("taiwania2", "z3", nodes=2),
    "taiwania2-array": lambda: batch("taiwania2", *SWEEP),
    "taiwania2-every-option": lambda: batch(
        "taiwania2",
        "z3",
        nodes=2,
        gpus_per_node=4,
        partition="gtest",
        time="20",
        name="it's 100% \\ mine",
        sbatch=("qos=high", "requeue", "comment=a $(b) `c`"),
        set=("env.PROXY=http://a b'c", "env.TWO=a\nb", "launcher=srun"),
        env_file="/home/someone/it's own.env",
    ),
    "delta-one-node": lambda: batch("delta", "z3"),
    "delta-two-nodes": lambda: batch("delta", "z3", nodes=2),
    "delta-array": lambda: batch("delta", *SWEEP),
    "mi210-slurm": lambda: batch("mi210", "z3"),
    "mi210-two-nodes": lambda: batch("mi210", "z3", nodes=2),
    "mi210-array": lambda: batch("mi210", *SWEEP),
    "mi210-bash": lambda: batch("mi210", "z3", scheduler="local", time="01:00:00"),
    "p4d-two-nodes": lambda: batch("p4d", "z3", nodes=2, partition="dev"),
    "runpod-bash": lambda: batch("runpod", "z3", scheduler="local", gpus_per_node=2),
    "runpod-two-nodes": lambda: batch("runpod", "z3", nodes=2, gpus_per_node=8),
    "mi300x-bash": lambda: batch("mi300x", "z3", scheduler="local"),
    "rtx5090-bash": lambda: batch("rtx5090", "qlora"),
    "local-one-gpu": lambda: batch("local", "z3"),
    "local-four-gpus": lambda: batch("local", "z3", gpus_per_node=4, time="30"),
    "local-cpu": lambda: batch("local", "z3", hardware=CPU),
    "taiwania2-tune-two-nodes": lambda: batch(
        "taiwania2", "z3", task="tune", nodes=2, partition="gp2d", over="sequence-length=512,1024"
    ),
    "local-tune": lambda: batch("local", "ddp", task="tune", model="tiny", gpus_per_node=0, time="01:00:00"),
    "delta-infer": lambda: batch("delta", "q", task="infer", gpus_per_node=1, set=("queries=500", "new_tokens=512")),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_script_is_the_golden_one(name: str) -> None:
    path = GOLDEN / f"{name}.sh"
    text = SHAPES[name]().scripts[0].text.replace(f"# hpc-llm {__version__}: ", "# hpc-llm VERSION: ")
    if os.environ.get(RECORD):
        path.write_text(text, encoding="utf-8")
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = "".join(difflib.unified_diff(golden.splitlines(True), text.splitlines(True), str(path), "now"))
    assert not difference, f"{difference}\nIf this is meant: {RECORD}=1 python -m pytest {Path(__file__).name}"


def test_every_golden_file_has_its_shape() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(SHAPES)


def several(cluster: str) -> tuple[dict[str, Any], ...]:
    """One GPU or node, and several where there can be."""
    profile = load_cluster(cluster)
    if profile.scheduler != "local":
        return ({}, {"nodes": 2})
    return ({}, {"gpus_per_node": 2}) if profile.gpu.vendor == "auto" or profile.gpu.per_node > 1 else ({},)


SEVERAL = {cluster: several(cluster) for cluster in CLUSTERS}


def shape_names(cluster: str) -> list[str]:
    return [
        name for name in SHAPES if name.startswith(f"{cluster}-") and not name.endswith(("-array", "-every-option"))
    ]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_method_changes_the_script_in_its_name_and_packages_only(cluster: str) -> None:
    """The method's switches are in experiment.json, so the golden texts stand for all methods."""
    for shape in SEVERAL[cluster]:
        golden = script(cluster, "z3", **shape).splitlines()
        for method in METHODS:
            lines = script(cluster, method, **shape).splitlines()
            different = [(old, new) for old, new in zip(golden, lines, strict=True) if old != new]
            renamed = [(old, new) for old, new in different if not old.startswith("need_packages ")]
            assert all(new == old.replace("z3", method) for old, new in renamed), renamed
            assert len(renamed) <= 2 and len(different) <= len(renamed) + 1


# --- valid for every cluster, method and way to run -----------------------------------------------------------------


def every_script() -> dict[str, str]:
    """All clusters x methods x {one node, several, each launcher, without a scheduler}, and an array per cluster."""
    texts: dict[str, str] = {}
    for cluster in CLUSTERS:
        profile = load_cluster(cluster)
        for method in METHODS:
            for key, asked in ways(profile.scheduler, profile.launch.allowed, most=len(SEVERAL[cluster])).items():
                texts[f"{cluster}-{method}-{key}"] = script(cluster, method, **asked)
        if profile.scheduler != "local":
            texts[f"{cluster}-array"] = batch(cluster, *METHODS).scripts[0].text
    texts |= {name: make().scripts[0].text for name, make in SHAPES.items()}
    return texts


def ways(scheduler: str, launchers: Sequence[str], most: int = 2) -> dict[str, dict[str, Any]]:
    """What to ask for to see each launcher, on `most` GPUs of a node."""
    found: dict[str, dict[str, Any]] = {"one": {"gpus_per_node": 1}}
    for launcher in launchers:
        if launcher != "python":
            found[f"one-{launcher}"] = {"gpus_per_node": most, "set": (f"launcher={launcher}",)}
        if launcher != "python" and scheduler != "local":
            found[f"two-{launcher}"] = {"nodes": 2, "gpus_per_node": 2, "set": (f"launcher={launcher}",)}
        if launcher != "srun" and scheduler != "slurm":
            gpus = 1 if launcher == "python" else most
            found[f"bash-{launcher}"] = {
                "scheduler": "local",
                "gpus_per_node": gpus,
                "time": "10",
                "set": (f"launcher={launcher}",),
            }
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("scripts")
    paths = []
    for name, text in every_script().items():
        path = folder / f"{name}.sh"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def test_all_are_valid_bash(written: list[Path]) -> None:
    assert len(written) > len(CLUSTERS) * len(METHODS)
    program = 'for f in "$@"; do bash -n "$f" || echo "BROKEN $f"; done'
    done = subprocess.run(["bash", "-c", program, "check", *written], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_shellcheck_has_nothing_to_say(written: list[Path], tool: Callable[[str, str], str]) -> None:
    """One of each text: scripts that differ by nothing but a method's name in a comment and the job's name are one."""
    distinct: dict[str, Path] = {}
    for path in written:
        lines = path.read_text(encoding="utf-8").splitlines()
        key = "\n".join(line for line in lines if not line.startswith(("# hpc-llm ", "#SBATCH --job-name=", "# task ")))
        distinct.setdefault(key, path)
    done = subprocess.run(
        [tool("shellcheck", "shellcheck"), "--norc", "--shell=bash", *distinct.values()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "" and done.returncode == 0, done.stdout[:3000]


def test_the_functions_that_scripts_use_are_clean_as_well(tmp_path: Path, tool: Callable[[str, str], str]) -> None:
    """Alone, and where a script takes them in: then nothing is unknown on either side."""
    support = support_of(tmp_path)
    assert support.text.isascii() and support.text.endswith("\n") and len(support.text) < 99999
    alone = tmp_path / "support.sh"
    alone.write_text(support.text)
    whole = tmp_path / "whole.sh"
    text = SHAPES["taiwania2-every-option"]().scripts[0].text.replace("# shellcheck disable=SC2154", "#")
    whole.write_text(text.replace('eval "$functions" && ', support.text))
    called_by_trap, used_by_some = "--exclude=SC2317,SC2329", "--exclude=SC2034,SC2119,SC2120"
    done = subprocess.run(
        [tool("shellcheck", "shellcheck"), "--norc", "--shell=bash", called_by_trap, used_by_some, alone, whole], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 0), done.stdout[:3000]


# --- what a person reads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_script_of_one_node_fits_a_screen_and_has_its_blocks_in_order(cluster: str) -> None:
    asked: list[dict[str, Any]] = [{}, {"gpus_per_node": 1}, {"time": "01:00:00"}]
    for text in [script(cluster, "z3", **more) for more in asked]:
        lines = text.splitlines()
        assert len(lines) <= 50 and max(map(len, lines)) <= 132, text
        blocks = text.split("\n\n")[1:]
        opening = [block.partition("\n")[0] for block in blocks]
        modules = [] if load_cluster(cluster).prelude.module_system == "none" else ["# modules"]
        assert opening[1:] == [*modules, "# environment", opening[-1]]
        assert opening[0].startswith("# run: ") and opening[-1].startswith("# launch: ")
        assert all(not re.search(r"^#(?! shellcheck)", block.partition("\n")[2], re.MULTILINE) for block in blocks)


ADDING: list[dict[str, Any]] = [
    {"sbatch": ["nice=7"]}, {"sbatch": ["nice=7", "begin=now+1hour", "mem=20G"]}, {"set": ["env.A=1", "env.B=2"]}, {"save_every": 5},
    {"sbatch": ["signal=B:USR1@300"], "save_every": 5}, {"profile": "torch"}, {"profile": "nsys"}, {"profile": "rocprof"},
]  # fmt: skip
"""Options that may add a line for each thing in them."""


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_script_has_at_most_the_lines_that_the_docs_say(cluster: str) -> None:
    def lines(**asked: Any) -> int | None:
        try:
            return len(script(cluster, asked.pop("method", "z3"), **asked).splitlines())
        except PlanError:  # no method of that GPU, or no profiler
            return None

    of_methods = [lines(method=one) for one in METHODS]
    assert max(filter(None, [*of_methods, lines(method="ddp", task="infer")])) <= 50
    assert (lines(task="tune") or 0) <= 53
    for asked in ADDING:
        number = sum(len(one) if isinstance(one, list) else 1 for one in asked.values())
        assert (lines(steps=40, **asked) or 0) <= 50 + number, asked


# --- origins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_every_line_has_an_origin(name: str) -> None:
    found = SHAPES[name]().scripts[0]
    lines = found.text.removesuffix("\n").split("\n")
    assert len(lines) == len(found.origins)
    assert all(found.origins)
    assert "\x1f" not in found.text
    shown = explained_lines(found.explained())
    assert [line for line, _ in shown] == [line.rstrip() for line in lines]
    told = ["" if origin in ("template", "default") else origin[:97] for origin in found.origins]
    assert [origin for _, origin in shown] == told


def test_lines_come_from_where_their_values_come_from() -> None:
    found = batch("taiwania2", "z3", nodes=2, set=("env.A=b",), sbatch=("qos=high",)).scripts[0]
    origin = dict(zip(found.text.split("\n"), found.origins, strict=False))
    assert origin["#SBATCH --nodes=2"] == "request"
    assert origin["#SBATCH --partition=gp2d"] == "cluster taiwania2: default partition"
    assert origin["#SBATCH --gres=gpu:8"] == "cluster taiwania2: request.gpu_style"
    assert origin["#SBATCH --qos=high"] == "request"
    assert origin["module purge"] == "cluster taiwania2: prelude.start"
    assert origin["load_module cmake"] == "cluster taiwania2: prelude.load"
    assert origin["export NCCL_SOCKET_IFNAME=ib0"] == "cluster taiwania2: env.multi_node"
    assert origin["export A=b"] == "request: set"
    assert (
        origin['set_ranks torchrun hpc_llm.worker.pretrain_llm --run-dir "$run_dir"']
        == "cluster taiwania2: launch.multi_node"
    )
    assert origin["# modules"] == "template"


def test_variables_of_the_proxy_name_their_place() -> None:
    cluster = variant("mi210", access={"internet_compute": "proxy", "proxy_env": {"https_proxy": "http://p:3128"}})
    found = batch(cluster, "z3").scripts[0]
    assert dict(zip(found.text.split("\n"), found.origins, strict=False))["export https_proxy=http://p:3128"] == (
        "cluster mi210: access.proxy_env"
    )
    assert "export HF_HUB_OFFLINE=1" in script(variant("mi210", access={"internet_compute": "no"}), "z3")


# --- the header -----------------------------------------------------------------------------------------------------


def header(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


@pytest.mark.parametrize("name", [name for name in SHAPES if not name.startswith("local") and "bash" not in name])
def test_sbatch_lines_stand_at_the_top_and_come_once(name: str) -> None:
    text = SHAPES[name]().scripts[0].text
    flags = [line.partition("=")[0] for line in header(text)]
    assert len(set(flags)) == len(flags)
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    first_other = next(i for i, line in enumerate(text.splitlines()[1:], 1) if not line.startswith("#SBATCH"))
    assert not any(line.startswith("#SBATCH") for line in text.splitlines()[first_other:])


def test_without_a_scheduler_there_is_no_header() -> None:
    for cluster in ("local", "mi210"):
        text = script(cluster, "z3", scheduler="local")
        assert header(text) == [] and "srun" not in text


@pytest.mark.parametrize("flag", ["account", "partition", "nodes", "gres", "time", "ntasks-per-node", "cpus-per-task"])
def test_a_flag_that_the_site_refuses_never_appears(flag: str) -> None:
    cluster = variant("taiwania2", request={"forbid": [flag]})
    with pytest.raises(PlanError, match=f"cluster taiwania2 refuses --{flag}, which .* asks for"):
        script(cluster, "z3")
    assert f"--{flag}" in "".join(header(script("taiwania2", "z3")))


def test_where_the_site_refuses_export_all_is_exported_without_a_line() -> None:
    text = script(variant("taiwania2", request={"forbid": ["export"], "export": "all"}), "z3")
    assert "#SBATCH --export" not in text and "#SBATCH --open-mode=append" in text
    assert "#SBATCH --export=ALL" in script(variant("taiwania2", request={"export": "all"}), "z3")


@pytest.mark.parametrize(
    ("style", "kind", "launcher", "line"),
    [
        ("gres", None, "mpirun", "--gres=gpu:4"),
        ("gres", "v100", "mpirun", "--gres=gpu:v100:4"),
        ("gpus-per-node", None, "srun", "--gpus-per-node=4"),
        ("gpus", None, "srun", "--gpus-per-node=4"),  # of a sum of 8 Slurm may give one node 7
        ("gpus", "h100-80", "srun", "--gpus-per-node=h100-80:4"),
        ("gpus-per-task", None, "srun", "--gpus-per-task=1"),
        ("gpus-per-task", None, "torchrun", "--gpus-per-task=4"),  # one task, which starts the ranks
        ("none", None, "srun", None),
    ],
)
def test_gpus_are_asked_for_in_the_sites_style(style: str, kind: str | None, launcher: str, line: str | None) -> None:
    cluster = variant("taiwania2", request={"gpu_style": style, "gpu_type": kind})
    lines = header(script(cluster, "z3", nodes=2, gpus_per_node=4, set=(f"launcher={launcher}",)))
    assert [entry for entry in lines if entry.startswith(("--g", "--gpus"))] == ([line] if line else [])


@pytest.mark.parametrize(
    ("style", "asked", "line", "why"),
    [
        ("gpus", {"gpus_per_node": 4}, "--gpus=4", None),
        ("gpus", {"gpus_per_node": 1, "nodes": 3}, "--gpus-per-node=1", "a sum unevenly among nodes"),
        ("gpus-per-task", {"gpus_per_node": 4, "set": ("tasks_per_node=2",)}, "--gpus-per-task=2", None),
        ("gpus-per-task", {"gpus_per_node": 3, "set": ("tasks_per_node=2",)}, "--gpus-per-node=3", "cannot share its GPUs evenly"),
    ],
)  # fmt: skip
def test_each_node_gives_the_gpus_of_the_plan(style: str, asked: dict[str, Any], line: str, why: str | None) -> None:
    cluster = variant("taiwania2", request={"gpu_style": style}, launch={"single_node": "srun", "multi_node": "srun"})
    found = batch(cluster, "z3", **asked).scripts[0]
    gpus = {
        text: origin for text, origin in zip(found.text.splitlines(), found.origins, strict=True) if "--gpus" in text
    }
    assert list(gpus) == [f"#SBATCH {line}"]
    [origin] = gpus.values()
    assert (why in origin) if why else origin == "cluster taiwania2: request.gpu_style"


def test_where_the_site_refuses_one_way_to_ask_per_node_the_other_is_taken() -> None:
    cluster = variant("taiwania2", request={"gpu_style": "gpus", "forbid": ["gpus-per-node"]})
    assert "--gres=gpu:2" in header(script(cluster, "z3", nodes=2, gpus_per_node=2))


@pytest.mark.parametrize(
    ("launcher", "tasks", "cores"), [("mpirun", "8", "4"), ("srun", "8", "4"), ("torchrun", "1", "32")]
)
def test_tasks_and_cores_fit_the_launcher(launcher: str, tasks: str, cores: str) -> None:
    lines = header(script("taiwania2", "z3", set=(f"launcher={launcher}",)))
    assert f"--ntasks-per-node={tasks}" in lines and f"--cpus-per-task={cores}" in lines


@pytest.mark.parametrize("style", ["mem", "mem-per-gpu", "mem-per-cpu"])
def test_memory_is_one_flag_of_the_sites_style(style: str) -> None:
    cluster = variant("taiwania2", request={"memory": style})
    assert [line.partition("=")[0] for line in header(script(cluster, "z3")) if "mem" in line] == [f"--{style}"]
    assert [line for line in header(script(cluster, "z3", sbatch=("mem=5G",))) if "mem" in line] == ["--mem=5G"]


def test_constraint_exclusive_and_extra_flags_are_passed_and_can_be_replaced() -> None:
    cluster = variant("delta", request={"exclusive": True, "extra": ["--hint=nomultithread", "--requeue"]})
    lines = header(script(cluster, "z3"))
    assert {"--constraint=work", "--exclusive", "--hint=nomultithread", "--requeue"} <= set(lines)
    lines = header(script(cluster, "z3", sbatch=("constraint=projects",)))
    assert "--constraint=projects" in lines and "--constraint=work" not in lines


def test_gres_holds_the_gpus_and_what_else_is_asked_for() -> None:
    assert "--gres=gpu:8,lustre:1" in header(script("taiwania2", "z3", sbatch=("gres=lustre:1",)))
    lines = header(script("delta", "z3", sbatch=("gres=lustre:1",)))
    assert "--gres=lustre:1" in lines and "--gpus-per-node=4" in lines


def test_of_options_that_exclude_each_other_the_requests_one_stands() -> None:
    cluster = variant("mi210", request={"extra": ["--mem=10G", "--requeue", "--exclusive"]})
    lines = header(script(cluster, "z3", sbatch=("mem-per-gpu=3G", "no-requeue", "oversubscribe")))
    assert {"--mem-per-gpu=3G", "--no-requeue", "--oversubscribe"} <= set(lines)
    assert not {"--mem=10G", "--requeue", "--exclusive"} & set(lines)


def test_the_folder_of_a_run_may_hold_what_slurm_would_fill_in(tmp_path: Path) -> None:
    lines = header(script("mi210", "z3", logs=Path("/work/100%/it's %j")))
    assert """--output='/work/100%%/it'"'"'s %%j/RUN-ID/log.out'""" in lines
    array = header(batch("mi210", "z3", "z2", logs=Path("/work/50%")).scripts[0].text)
    assert "--output=/work/50%%/.array-RUN-ID/%a/log.out" in array and "--array=0-1" in array
    with pytest.raises(RequestError, match="holds a backslash"):
        script("mi210", "z3", logs=Path("/work/a\\b"))
    assert "run_dir='/work/a\\b/RUN-ID'" in script("local", "z3", logs=Path("/work/a\\b"))


# --- templates and quoting ------------------------------------------------------------------------------------------


def test_a_full_home_folder_does_not_stop_a_preview(own_folder: Path) -> None:
    """The cache of compiled templates cannot be written here: no file may grow beyond 0 bytes."""
    program = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
from rendering import script
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(script("local", "z3").count("hpc_llm.worker.pretrain_llm"))
"""
    import sys

    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(ROOT / "tests")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("plain", "plain"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", "'it'\"'\"'s'"),
        ("$(x)", "'$(x)'"),
        ("a\nb", "$'a\\nb'"),
        ("'\n\\", "$'\\'\\n\\\\'"),
        ("\x1b[31m\x1f", "$'\\033[31m\\037'"),
        ("é", "'é'"),
        (5, "5"),
    ],
)
def test_shell_words(value: Any, word: str) -> None:
    assert shell_word(value) == word


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "bytes \udcff"])
def test_what_no_script_can_carry_is_refused(value: str) -> None:
    for quote in (shell_word, shell_expand, sbatch_word):
        with pytest.raises(RequestError, match="holds a character that a script cannot carry"):
            quote(value)


def test_sbatch_reads_a_backslash_between_quotes() -> None:
    """Seen with Slurm 22.05: `--job-name='a\\b'` becomes ab, and `'a\\'` is an unmatched quote."""
    assert sbatch_word("a\\b") == "'a\\\\b'"
    assert sbatch_word("it's\\") == "'it'\"'\"'s\\\\'"
    with pytest.raises(RequestError, match="control character"):
        sbatch_word("a\nb")


def test_variables_are_expanded_in_profiles_and_in_nothing_else() -> None:
    assert shell_expand("/work/${USER}/$X.d") == '/work/"${USER}"/"${X}".d'
    assert shell_expand("~/envs/a b") == "\"${HOME}\"'/envs/a b'"
    assert shell_expand("a~/b") == "'a~/b'"
    assert shell_expand("$(id) $5 $$ ${x y} ${#A} `id`") == "'$(id) $5 $$ ${x y} ${#A} `id`'"
    assert shell_expand("") == "''"


def test_comments_are_one_line() -> None:
    assert shell_comment("a\nb\x1f\u2028\x85c") == "a b   c"


# --- several runs as one ---------------------------------------------------------------------------------------------


def test_an_array_is_one_script_and_names_its_tasks() -> None:
    found = batch("taiwania2", *SWEEP)
    assert len(found.distinct_scripts) == 1 and len(found.scripts) == 4
    text = found.scripts[0].text
    assert "--array=0-3" in header(text) and "--job-name=llama2-7b-sweep" in header(text)
    for task, method in enumerate(SWEEP):
        assert f"# task {task}: RUN-ID-{method} ({method})" in text
    assert "--job-name=mine" in header(batch("taiwania2", *SWEEP, name="mine").scripts[0].text)


def test_without_a_scheduler_each_run_has_its_own_script() -> None:
    found = batch("local", *SWEEP)
    assert found.array is None and len({s.text for s in found.distinct_scripts}) == 4


def test_an_own_launcher_in_an_array_is_the_same_for_all() -> None:
    text = batch("taiwania2", *SWEEP, nodes=2).scripts[0].text
    assert text.count("agent_of_node") == 1
    refused(PlanError, "there is no partition", "taiwania2", partition="nowhere")


def test_nothing_of_the_plan_is_lost_between_plan_and_script() -> None:
    plan = planned("delta", "z3", nodes=2, time="01:30:00").plan
    lines = header(script("delta", "z3", nodes=2, time="01:30:00"))
    assert f"--nodes={plan.parallel.nodes}" in lines and f"--mem={plan.job.mem}" in lines and "--time=01:30:00" in lines


BINDING = [
    "--mpi=none",
    "--cpu-bind=mask_cpu:0xff,0xff00",
    "--distribution",
    "block:block",
    "-c8",
    "--gpu-bind=closest",
]


def launched(launcher: str, args: list[str], **asked: Any) -> tuple[str, str]:
    """The launch line of two nodes, and where it comes from."""
    site = variant("delta", launch={"multi_node": launcher, "allowed": [launcher, "srun"], "srun_args": args})
    script = batch(site, "z3", nodes=2, **asked).scripts[0]
    [found] = [pair for pair in zip(str(script).splitlines(), script.origins, strict=True) if "launch srun" in pair[0]]
    return found


def test_what_binds_a_rank_is_not_given_to_the_agent_of_a_node() -> None:
    line, origin = launched("torchrun", BINDING)
    assert "--mpi=none" in line
    assert not any(word in line for word in ("--cpu-bind", "block:block", "--distribution", "-c8", "--gpu-bind"))
    assert origin.endswith("one agent a node: without srun_args' --cpu-bind, --distribution, -c, --gpu-bind")
    of_ranks, origin = launched("srun", BINDING)
    assert all(
        word in of_ranks for word in ("mask_cpu:0xff", "--distribution block:block", "-c8", "--gpu-bind=closest")
    )
    assert "agent" not in origin


def test_an_agent_gets_what_binds_nothing_and_a_single_rank_all() -> None:
    line, origin = launched("torchrun", ["--mpi=none", "--gpu-bind=none", "--cpu-bind", "none"])
    assert "--gpu-bind=none --cpu-bind none" in line and "agent" not in origin
    line, origin = launched("torchrun", BINDING, gpus_per_node=1)
    assert "--gpu-bind=closest" in line and "agent" not in origin
