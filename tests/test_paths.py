"""Paths: conda environments by name, folders of a profile that must be there, addresses and files where something else is wanted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rendering import ACCOUNTS, planned, script
from test_planning import refused, variant

from hpc_llm.cli import run
from hpc_llm.errors import PlanError, ProfileError, RequestError
from hpc_llm.fetching.names import read_name
from hpc_llm.schedulers.paths import missing_paths, with_named_environment
from hpc_llm.site.cluster import Cluster, load_cluster
from hpc_llm.site.profiles import bundled, user_config
from hpc_llm.text.pasted import refuse_address

ONE = ("--cluster", "local", "--method", "ddp")


def environment(folder: Path) -> Path:
    """A folder that conda would take for an environment."""
    (folder / "conda-meta").mkdir(parents=True)
    return folder


def named(home: Path, name: str, hook: str = "auto", **environ: str) -> str | None:
    python = {"kind": "conda", "env": name, "hook": hook}
    cluster = variant("taiwania2", prelude={"python": python})
    return with_named_environment(cluster, {"HOME": str(home), **environ}).prelude.python.env


def by_installation(home: Path) -> tuple[Path, dict[str, str]]:
    return environment(home / "miniforge3/envs/train"), {}


def by_program(home: Path) -> tuple[Path, dict[str, str]]:
    return environment(home / "apps/conda/envs/train"), {"CONDA_EXE": str(home / "apps/conda/bin/conda")}


def by_variable(home: Path) -> tuple[Path, dict[str, str]]:
    return environment(home / "work/envs/train"), {"CONDA_ENVS_PATH": f"/nowhere:{home}/work/envs"}


def by_condarc(home: Path) -> tuple[Path, dict[str, str]]:
    (home / ".condarc").write_text("envs_dirs:\n  - ~/big/envs\n")
    return environment(home / "big/envs/train"), {}


def by_record(home: Path) -> tuple[Path, dict[str, str]]:
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{home}/gone/train\n{home}/a b/train\n")
    return environment(home / "a b/train"), {}


def by_hook(home: Path) -> tuple[Path, dict[str, str]]:
    return environment(home / "opt/envs/train"), {"hook": "${HOME}/opt/etc/profile.d/conda.sh"}


@pytest.mark.parametrize("place", [by_installation, by_program, by_variable, by_condarc, by_record, by_hook])
def test_a_conda_environment_is_found_by_its_name(place: Any, tmp_path: Path) -> None:
    folder, environ = place(tmp_path)
    assert named(tmp_path, "train", **environ) == str(folder)


def test_the_base_environment_has_a_name_too(tmp_path: Path) -> None:
    environment(tmp_path / "miniconda3")
    assert named(tmp_path, "base") == str(tmp_path / "miniconda3")


def test_a_name_that_is_not_here_or_twice_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        named(tmp_path, "train")
    assert str(caught.value) == (
        "cluster taiwania2: prelude.python.env is the name 'train', and no environment of that name is found here. Give its "
        "folder, which `conda env list` shows on the cluster, as in env: /path/to/envs/train"
    )
    environment(tmp_path / "miniconda3/envs/train")
    environment(tmp_path / "anaconda3/envs/train")
    with pytest.raises(RequestError, match="and 2 environments of that name are found here"):
        named(tmp_path, "train")
    (tmp_path / "miniforge3/envs/empty").mkdir(parents=True)
    with pytest.raises(RequestError, match="no environment of that name"):
        named(tmp_path, "empty")


@pytest.mark.parametrize("text", ["/work/${USER}/e", "~/envs/e", "${ENVS}/e", "$HOME/e"])
def test_a_folder_stays_as_it_is_written(text: str, tmp_path: Path) -> None:
    assert named(tmp_path, text) == text


def test_what_a_profile_names_and_is_not_here_is_said(tmp_path: Path) -> None:
    cluster = variant(
        "mi210",
        prelude={
            "use": [str(tmp_path), "${HOME}/modules"],
            "python": {"kind": "conda", "env": "${UNSET_HERE}/e", "hook": "~/hook.sh"},
        },
    )
    assert list(missing_paths(cluster, {"HOME": str(tmp_path)}, "a login node")) == [
        f"there is no {tmp_path}/modules here, which prelude.use of cluster mi210 names",
        f"there is no {tmp_path}/hook.sh here, which prelude.python.hook of cluster mi210 names",
    ]
    (tmp_path / "modules").mkdir()
    (tmp_path / "hook.sh").touch()
    assert list(missing_paths(cluster, {"HOME": str(tmp_path)}, "a login node")) == []


def test_without_user_a_folder_is_that_of_the_name_that_the_job_asks_id_for(tmp_path: Path) -> None:
    """A home folder need not be called as its user is."""
    name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    cluster = variant(
        "mi210", prelude={"use": [f"{tmp_path}/${{USER}}/modules"], "python": {"kind": "current", "env": None}}
    )
    home = {"HOME": str(tmp_path / "home" / "somebody-else")}
    for environ, user in ((home, name), ({**home, "USER": ""}, name), ({**home, "USER": "given"}, "given")):
        [said] = missing_paths(cluster, environ, "a login node")
        assert said == f"there is no {tmp_path}/{user}/modules here, which prelude.use of cluster mi210 names"
    (tmp_path / name / "modules").mkdir(parents=True)
    assert list(missing_paths(cluster, home, "a login node")) == []


@pytest.mark.parametrize("weights", ["checkpoint", "random"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_model_that_is_not_here_is_refused_where_the_run_starts_here(
    own_folder: Path, weights: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """What only the cluster has is taken at its word elsewhere; on this machine there is no elsewhere."""
    request = ("submit", "--method", "ddp", "--model", f"{own_folder}/nosuch", "--set", f"weights={weights}")
    assert run([*request, "--cluster", "local", *more]) == 2
    said = capsys.readouterr().err
    assert f"there is no folder {own_folder}/nosuch here, which the run takes as its model" in said
    assert "Correct --model, or name a preset (`hpc-llm models` lists them); --force submits all the same." in said
    assert not (own_folder / "logs").exists()
    assert run(["render", *request[1:], "--cluster", "mi210"]) == 0
    assert run(["render", *request[1:], "--cluster", "local"]) == 0


def test_each_of_several_models_is_looked_for(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{"name": "a", "model": "tiny"}, {"name": "b", "model": f"{own_folder}/nosuch"}]
    (own_folder / "s.yaml").write_text(
        json.dumps({"cluster": "local", "method": "ddp", "set": {"weights": "random"}, "runs": runs})
    )
    assert run(["submit", "s.yaml", "--dry-run"]) == 2
    assert f"there is no folder {own_folder}/nosuch here" in capsys.readouterr().err


# --- partitions with modules of their own ---------------------------------------------------------------------------


def test_a_partition_of_another_vendor_needs_modules_of_its_own() -> None:
    refused(
        PlanError,
        "partition gpuMI100x8 of cluster delta has GPUs of amd, and the modules and the Python of the profile are for nvidia. "
        f"Give the partition a prelude of its own in {user_config()}/clusters/delta.yaml with `extends: delta`. Its list `partitions` replaces the one "
        "of delta: write into it all that you use, gpuMI100x8 with its gpu, node, max_nodes as `hpc-llm clusters delta --json` shows them.",
        "delta",
        partition="gpuMI100x8",
    )


def amd_partition() -> Cluster:
    data = load_cluster("delta").model_dump(by_alias=True)["partitions"]
    [amd] = [part for part in data if part["name"] == "gpuMI100x8"]
    python = {"kind": "venv", "env": "/projects/x/rocm"}
    amd["prelude"] = {
        "module_system": "lmod",
        "init": ["/etc/profile.d/lmod.sh"],
        "load": ["rocm/6.4"],
        "python": python,
    }
    amd["env"] = {"common": {"HSA_X": "1"}}
    return variant("delta", partitions=data)


def test_a_partition_names_the_folder_of_its_environment() -> None:
    data = amd_partition().model_dump(by_alias=True)["partitions"]
    for part in data:
        if part["prelude"]:
            part["prelude"]["python"] = {"kind": "conda", "env": "rocm"}
    with pytest.raises(ProfileError, match="is the name 'rocm': of a partition give the environment's folder"):
        variant("delta", partitions=data)


def test_the_partitions_modules_and_variables_take_the_place_of_the_clusters() -> None:
    cluster = amd_partition()
    text = script(cluster, "z3", partition="gpuMI100x8", account=ACCOUNTS["delta"])
    assert "load_module rocm/6.4" in text and " /projects/x/rocm\n" in text and "export HSA_X=1" in text
    assert "pytorch-conda" not in text and "PYTORCH_CUDA_ALLOC_CONF" not in text and "module reset" not in text
    other = script(cluster, "z3", account=ACCOUNTS["delta"])
    assert "load_module pytorch-conda/2.8" in other and "rocm" not in other
    assert planned(cluster, "z3", partition="gpuMI100x8").plan.gpu.model == "MI100"
    said = "bitsandbytes nf4 does not run on MI100 (gfx908) of cluster delta. Choose a method without q."
    refused(PlanError, said, cluster, "q", partition="gpuMI100x8")


def extending(folder: Path, partition: dict[str, Any], parent: str = "delta", **more: Any) -> None:
    (folder / "clusters").mkdir(exist_ok=True)
    (folder / "clusters" / "mine.yaml").write_text(json.dumps({"extends": parent, "partitions": [partition], **more}))


ROCM = {"module_system": "lmod", "load": ["rocm/6.2"], "python": {"kind": "module"}}
SHORT = {"max_time": "2-00:00:00"}


@pytest.mark.parametrize(("name", "card"), [("gpuMI100x8", "MI100"), ("gpuA40x4", "A40"), ("gpuH200x8", "H200")])
def test_a_partition_that_had_another_gpu_is_not_planned_with_the_clusters(
    name: str, card: str, own_folder: Path
) -> None:
    extending(own_folder, {"name": name, **SHORT, "prelude": ROCM})
    with pytest.raises(ProfileError) as refusal:
        load_cluster("mine")
    said = str(refusal.value)
    assert (
        f"partition {name} says nothing of its GPU, which is {card} in delta" in said
        and "replaces the whole list" in said
    )
    extending(own_folder, {"name": name, **SHORT, "gpu": None, "node": None, "max_nodes": None})
    assert load_cluster("mine").gpu_of(load_cluster("mine").partitions[0]).model == "A100-SXM4-40GB"


def test_what_a_partition_no_longer_has_is_told(own_folder: Path) -> None:
    extending(own_folder, {"name": "gpuA100x8", **SHORT})
    with pytest.warns(UserWarning, match="partition gpuA100x8 no longer has the gpu and node of delta: .*null means"):
        load_cluster("mine")


def test_a_partition_with_a_name_of_its_own_or_all_that_it_had_is_not_told_of(
    own_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    whole = next(
        one for one in load_cluster("delta").model_dump(by_alias=True)["partitions"] if one["name"] == "gpuH200x8"
    )
    for part in ({"name": "other", **SHORT}, {"name": "gpuA100x4", **SHORT}, whole):
        extending(own_folder, part)
        load_cluster("mine")
    assert not [one for one in recwarn if "no longer has" in str(one.message)]


ADDRESS = "https://example.org/a/b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["render", *ONE, "--model", ADDRESS], f"--model {ADDRESS}: that is an address of the web, and a path is needed."),
        (["render", *ONE, "--data", ADDRESS], f"--data {ADDRESS}: that is"),
        (["render", *ONE, "--data", f"validation={ADDRESS}"], f"--data {ADDRESS}: that is"),
        (["render", *ONE, "--data", "s3://bucket/a.jsonl"], "--data s3://bucket/a.jsonl: that is"),
        (["render", *ONE, "--data", "file:///a/b.jsonl"], "and a path is needed. Give /a/b.jsonl."),
        (["render", *ONE, "--resume", ADDRESS], f"{ADDRESS}: that is"),
        (["render", *ONE, "--env-file", ADDRESS], f"--env-file {ADDRESS}: that is"),
        (["render", *ONE, "--templates", ADDRESS], f"--templates {ADDRESS}: that is"),
        (["render", *ONE, "--logs", ADDRESS], f"--logs {ADDRESS}: that is"),
        (["render", *ONE, "-o", ADDRESS], f"-o {ADDRESS}: that is"),
        (["render", ADDRESS], f"{ADDRESS}: that is"),
        (["parse", ADDRESS], f"{ADDRESS}: that is"),
        (["report", ADDRESS], f"{ADDRESS}: that is"),
        (["report", ".", "-o", ADDRESS], f"output {ADDRESS}: that is"),
        (["report", ".", "--baseline", "https://me:s3cretPw9@h.example/x"], "--baseline (hidden)h.example/x: that is"),
        (["diagnose", ADDRESS], f"{ADDRESS}: that is"),
        (["status", ADDRESS], f"{ADDRESS}: that is"),
        (["fetch", "gsm8k", "--to", ADDRESS], f"to {ADDRESS}: that is"),
    ],
)  # fmt: skip
def test_an_address_of_the_web_is_no_path(
    words: list[str], said: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(own_folder.iterdir())
    assert run(words) == 2
    assert said in capsys.readouterr().err and sorted(own_folder.iterdir()) == before


@pytest.mark.parametrize(
    ("option", "address", "name"),
    [
        ("--model", "https://huggingface.co/meta-llama/Llama-2-7b", "meta-llama/Llama-2-7b"),
        ("--model", "hf.co/meta-llama/Llama-2-7b/tree/main", "meta-llama/Llama-2-7b"),
        ("--model", "hf://Qwen/Qwen2-7B", "Qwen/Qwen2-7B"),
        ("--data", "https://huggingface.co/datasets/org/rows/blob/main/train.jsonl", "datasets/org/rows"),
    ],
)
def test_an_address_of_the_hub_is_told_what_fetches_it(
    option: str, address: str, name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", *ONE, option, address]) == 2
    assert f"`hpc-llm fetch {name} --to DIR` brings it from the Hub, then give DIR." in capsys.readouterr().err
    assert read_name(name).name == name.removeprefix("datasets/")
    refuse_address("--uri", "here:/x")
    (own_folder / "hf.co" / "a").mkdir(parents=True)
    refuse_address("--model", "hf.co/a")


@pytest.mark.parametrize(
    ("kind", "option", "name"), [("clusters", "--cluster", "delta"), ("configs", "--method", "z3")]
)
def test_the_path_of_a_profile_is_told_its_name(
    kind: str, option: str, name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_folder / "mine.yaml").write_text("")
    for said, told in (
        (f"{name}.yaml", f"is named without folder and ending, here {name}."),
        (f"{kind}/{name}.yaml", f"here {name}."),
        (str(bundled(kind) / f"{name}.yaml"), f"here {name}."),
        (str(own_folder / "mine.yaml"), f"Put the file into ./{kind}/ or "),
        ("./nothing.yaml", "there is no "),
    ):
        words = {"--cluster": "local", "--method": "z3", option: said}
        assert run(["render", *(word for pair in words.items() for word in pair)]) == 2
        assert told in capsys.readouterr().err


def test_a_part_of_a_run_and_a_run_in_place_of_data_are_told(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder = own_folder / "logs" / "run-1"
    (run_folder / "model").mkdir(parents=True)
    for name in ("experiment.json", "job.json", "steps.jsonl"):
        (run_folder / name).write_text("{}\n")
    for words in (["status"], ["logs"], ["render", *ONE, "--resume"]):
        assert run([*words, "logs/run-1/model"]) == 2
        assert f"it lies in that of run-1: name the run by its folder, {run_folder}." in capsys.readouterr().err
    assert run(["render", *ONE, "--model", "tiny", "--data", "logs/run-1"]) == 2
    assert "it is the folder of a run, and what it holds is no data." in capsys.readouterr().err
    (own_folder / "caches" / "1").mkdir(parents=True)
    (own_folder / "caches" / "1" / "corpus.json").write_text("{}")
    assert run(["render", *ONE, "--model", "tiny", "--data", "caches"]) == 2
    assert f"prepared data are in {own_folder}/caches/1: give one of these." in capsys.readouterr().err


def test_a_home_of_nobody_is_a_path_as_it_stands(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["status", "--logs", "~nobody-of-that-name/x"],
        ["render", "--cluster", "local", "--method", "~0"],
        ["parse", "~0/x"],
    ):
        assert run(words) in (1, 2)
        assert capsys.readouterr().err.startswith("hpc-llm: ")


def test_a_home_that_the_shell_left_alone_is_the_same_for_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """bash expands no `~` behind a `=`, nor one that a variable brought."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    Path("a.log").write_text("ValueError: x\n")
    for words in (
        ["parse", "a.log", "--output=~/a.csv"],
        ["report", "a.log", "--output=~/rep"],
        ["render", *ONE, "-o", "~/job.sh"],
    ):
        assert run(words) == 0, capsys.readouterr().err
    (home / "runs" / "r").mkdir(parents=True)
    assert run(["status", "--logs=~/runs"]) == 0
    assert sorted(one.name for one in home.iterdir() if not one.name.startswith(".")) == [
        "a.csv",
        "job.sh",
        "rep",
        "runs",
    ]
    assert [one.name for one in here.iterdir()] == ["a.log"]


@pytest.mark.parametrize("name", ["runs", "run", "paths", "experiment"])
def test_a_folder_may_be_called_as_an_argument_of_ours_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    assert run(["status", "--logs", name]) == 0 and run(["clean", "--logs", name]) == 0
    assert run(["render", *ONE, "--logs", name]) == 0
    assert "is an option itself" not in capsys.readouterr().err
