"""A file that may be a stranger's says neither where a job writes nor which code it loads; who types a flag may."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from rendering import batch, planned

from hpc_llm.cli import run
from hpc_llm.errors import RequestError
from hpc_llm.planning.settings import refuse_reach
from hpc_llm.site.reach import SCRATCH, leaves_folder, loads_code

LOCAL = ("--cluster", "local", "--method", "z3o", "--model", "tiny")
AWAY = (
    "/tmp/x",
    "~/x",
    "~someone/x",
    "../x",
    "a/../../x",
    "..",
    "a/..",
    "s3://bucket/x",
    "file:/x",
    "\\\\host\\x",
    "./../x",
)
INSIDE = ("x", "a/b.txt", "./x", "x..y", "a/...", "..x", "a b", "x:y", "deepspeed.txt")
PLACES = """flops_profiler.output_file csv_monitor.output_path csv_monitor.job_name tensorboard.output_path tensorboard.job_name
wandb.project comet.experiment_name autotuning.results_dir autotuning.exps_dir autotuning.metric_path
autotuning.model_info_path nebula.persistent_storage_path nebula.nebula_load_path data_efficiency.data_sampling.x.metric_path
checkpoint.writer.folder datastates_ckpt.some_path aio.folder""".split()


@pytest.mark.parametrize("path", AWAY)
def test_paths_that_leave_a_folder(path: str) -> None:
    assert leaves_folder(path)


@pytest.mark.parametrize("path", INSIDE)
def test_paths_that_stay(path: str) -> None:
    assert not leaves_folder(path)


@pytest.mark.parametrize("place", PLACES)
def test_deepspeed_writes_in_the_run_s_folder_alone(place: str) -> None:
    for path in ("/home/someone/.bashrc", "../other-run/x"):
        with pytest.raises(RequestError, match=rf"{place} is '{path}', which leads out of the run's folder"):
            planned("local", "z2", set=(f"deepspeed.{place}={path}",))
    for path in ("result.json", "./job.sh", "tries/1", "telemetry-2.jsonl", "log.err", "x/../exit.json"):
        with pytest.raises(RequestError, match=r"is a record of the run itself|leads out of"):
            planned("local", "z2", set=(f"deepspeed.{place}={path}",))
    kept: Any = planned("local", "z2", set=(f"deepspeed.{place}=profile/x",)).plan.engine.deepspeed
    for part in place.split("."):
        kept = kept[part]
    assert kept == "profile/x"


def test_a_path_in_a_mapping_or_a_list_is_found() -> None:
    for setting in ("csv_monitor={enabled: true, output_path: /x}", "comet=[{a: [/x]}]"):
        with pytest.raises(RequestError, match="leads out of the run's folder"):
            planned("local", "z2", set=(f"deepspeed.{setting}",))


def test_every_text_of_deepspeed_s_that_names_a_place_is_one_of_those(tmp_path: Path) -> None:
    """What a new DeepSpeed brings is looked at by its value, whatever its name; only the scratch disk is let through."""
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None and spec.origin is not None, "deepspeed is missing: python -m pip install -e '.[train]'"
    source = Path(spec.origin).parent
    named: set[str] = set()
    for path in (*source.glob("monitor/config.py"), *source.glob("runtime/**/*config*.py"), *source.glob("*/c*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AnnAssign) and "Path" in ast.unparse(node.annotation):
                named.add(ast.unparse(node.target))
    assert named == {SCRATCH}, "a setting of DeepSpeed's that has to be a path: does it have to lie outside the run?"


# --- who says it


FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "experiment: variable": ("e.yaml", {"set": "{env: {LD_PRELOAD: /x.so}}"}),
    "experiment: list": ("e.yaml", {"set": "['env.PYTHONPATH=/x']"}),
    "experiment: scratch": ("e.yaml", {"set": "{deepspeed.zero_optimization.offload_param: {nvme_path: /x}}"}),
    "experiment: scratch, text": (
        "e.yaml",
        {"set": "['deepspeed.zero_optimization={offload_param: {nvme_path: /x}}']"},
    ),
    "method: scratch": ("configs/own.yaml", {"deepspeed": "{zero_optimization: {offload_param: {nvme_path: /x}}}"}),
}


@pytest.mark.parametrize(("name", "values"), FILES.values(), ids=FILES)
def test_a_file_that_may_be_a_stranger_s_is_refused(
    name: str, values: dict[str, str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    head = "cluster: local\nmethod: z3o\nmodel: tiny\n" if name == "e.yaml" else "extends: z3o\n"
    Path(name).write_text(head + "".join(f"{key}: {value}\n" for key, value in values.items()))
    asked = [name] if name == "e.yaml" else ["--cluster", "local", "--model", "tiny", "--method", "own"]
    assert run(["submit", *asked]) == 2
    said = capsys.readouterr().err
    assert name in said and re.search(r"decides which code the job loads|outside the run's folder", said)
    assert "on the command line" in said and not Path("logs").exists()


def test_who_types_it_means_it(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scratch = "deepspeed.zero_optimization.offload_param.nvme_path=/local"
    assert run(["render", *LOCAL, "--set", "env.LD_PRELOAD=/x.so", "--set", scratch]) == 0
    assert "export LD_PRELOAD=/x.so\n" in capsys.readouterr().out


def test_a_method_of_one_s_own_may_name_the_scratch_disk(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own_folder / "config"))
    folder = own_folder / "config" / "hpc-llm" / "configs"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(
        "extends: z3o\ndeepspeed: {zero_optimization: {offload_param: {device: nvme, nvme_path: /local}}}\n"
    )
    assert run(["render", "--cluster", "local", "--model", "tiny", "--method", "own"]) == 0


def test_a_profile_of_the_working_directory_is_announced_with_the_code_that_it_brings(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("clusters").mkdir()
    text = "extends: local\nenv: {common: {PATH: '/x:${PATH}', NCCL_DEBUG: INFO}, single_node: {LD_PRELOAD: /x.so}}\n"
    Path("clusters/mine.yaml").write_text(text)
    assert run(["render", "--cluster", "mine", "--method", "z2", "--model", "tiny"]) == 0
    said = capsys.readouterr().err
    assert (
        f"cluster mine is that of {own_folder}/clusters/mine.yaml; it says what code the job loads (PATH, LD_PRELOAD)"
        in said
    )


@pytest.mark.parametrize(
    "name",
    """LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES PATH HOME PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS
    NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN SLURM_TASK_PROLOG SLURM_CONF OMPI_MCA_mca_base_component_path CUDA_HOME TRITON_CACHE_DIR
    TORCH_EXTENSIONS_DIR CUDA_INJECTION64_PATH UCX_MODULE_DIR FI_PROVIDER_PATH CC OPENSSL_CONF OPENSSL_ENGINES CFLAGS XLA_FLAGS
    GIT_SSH_COMMAND MPLBACKEND OMP_TOOL_LIBRARIES OCL_ICD_VENDORS CPATH CPLUS_INCLUDE_PATH COMPILER_PATH GCC_EXEC_PREFIX""".split(),
)
def test_variables_by_which_code_is_loaded(name: str) -> None:
    assert loads_code(name)


@pytest.mark.parametrize(
    "name",
    """NCCL_DEBUG NCCL_SOCKET_IFNAME NCCL_IB_HCA OMP_NUM_THREADS CUDA_VISIBLE_DEVICES PYTORCH_CUDA_ALLOC_CONF HF_HOME
    HF_HUB_OFFLINE TOKENIZERS_PARALLELISM PYTHONUNBUFFERED PYTHONHASHSEED TMPDIR WANDB_MODE MIOPEN_USER_DB_PATH
    OMPI_MCA_btl UCX_TLS FI_PROVIDER SLURM_CPU_BIND DS_SKIP_CUDA_CHECK TORCH_LOGS http_proxy MODEL_PATH DATA_DIR""".split(),
)
def test_variables_that_only_say_how(name: str) -> None:
    assert not loads_code(name)


@pytest.mark.parametrize(
    "setting", ["env.NCCL_DEBUG_FILE=/tmp/x", "env.ANYTHING=../x", "env.OTHER=~/x", "env.MORE=s3://b/x"]
)
def test_an_experiment_file_sends_no_variable_out_of_the_run_s_folder(setting: str) -> None:
    with pytest.raises(RequestError, match="leads to a place outside the run's folder"):
        refuse_reach([setting], "x.yaml")
    refuse_reach(["env.NCCL_DEBUG=INFO", "env.OMP_NUM_THREADS=4"], "x.yaml")


@pytest.mark.parametrize(
    "name",
    "HPC_LLM_RUN_UUID HPC_LLM_RUN_DIR HPC_LLM_QUEUE_OF HPC_LLM_SWEEP SUBMITIT_LOCAL_JOB_ID SLURM_JOB_ID SLURM_JOBID"
    " SLURM_JOB_NAME SLURM_RESTART_COUNT SLURM_NTASKS SLURM_NODELIST SLURM_ARRAY_TASK_ID SLURM_EXPORT_ENV SBATCH_ACCOUNT".split(),
)
def test_what_tells_which_run_or_job_it_is_belongs_to_nobody_s_env(name: str) -> None:
    with pytest.raises(RequestError, match=name):
        batch("delta", "z3", set=(f"env.{name}=1",))


@pytest.mark.parametrize(
    "name", ["SLURM_CPU_BIND", "SLURM_MPI_TYPE", "HPC_LLM_COMPILE_CPU_OPS", "SRUN_CPUS_PER_TASK_X"]
)
def test_what_says_how_slurm_starts_tasks_may_be_set(name: str) -> None:
    assert f"export {name}=1" in batch("delta", "z3", set=(f"env.{name}=1",)).scripts[0].text
