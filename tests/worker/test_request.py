"""The worker's own doors: the homework's flags, a travelling copy, and modules that need nothing installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_plans import make_plan

from hpc_llm.errors import RequestError
from hpc_llm.job import start
from hpc_llm.planning.parts import OptimizerSetup
from hpc_llm.records.compiled import caches_of, compiled_in
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.schedulers.snapshot import code_digest, code_snapshot
from hpc_llm.worker.deepspeed_file import read_deepspeed_config
from hpc_llm.worker.homework import _folder_name, homework_plan, parse_arguments, read_request
from hpc_llm.worker.pretrain_llm import main
from hpc_llm.worker.ranks import Ranks

pytestmark = pytest.mark.train

HOMEWORK_JSON = """{
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}},
  "bf16": {"enabled": true}, "gradient_clipping": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},},
}"""
ALONE = Ranks(0, 1, 0, 1, "127.0.0.1", 0, "python")


@pytest.fixture
def homework_config(tmp_path: Path) -> Path:
    path = tmp_path / "zero_2_offload.json"
    path.write_text(HOMEWORK_JSON, encoding="utf-8")
    return path


def test_the_homeworks_command_line_trains_and_prints_its_lines(homework_config: Path, tmp_path: Path) -> None:
    flags = "--deepspeed --model_name tiny --batch_size 2 --seq_len 32 --total_steps 10 --local_rank 0".split()
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm.worker.pretrain_llm", *flags, "--deepspeed_config", str(homework_config)],
        cwd=tmp_path,
        env={**os.environ, "HPC_LLM_LOGS": "runs", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    number = r"\d+\.\d\d"
    memory = r"GPU Mem \(GB\): n/a \| Peak Mem: n/a"  # a CPU has none, and none is not 0
    for pattern in (
        rf"\[Step 1/10\] Loss: \d\.\d{{4}} \| Global Tokens/s: {number} \| {memory}",
        r"Measured 9 steps after 1 of warm-up\.",
        rf"Training done in {number} seconds\.",
        rf"Avg Global Tokens/s: {number}",
        r"Peak GPU Mem \(GB\): n/a",
    ):
        assert any(re.fullmatch(pattern, line) for line in lines), pattern
    (run,) = (tmp_path / "runs").iterdir()
    assert is_run(run)
    result = read_json(RunPaths(run).result)
    assert result is not None
    assert (result["outcome"], result["warmup_steps"], result["measured_steps"]) == ("COMPLETED", 1, 9)
    assert "train_batch_size is 2 for 1 ranks, not 8." in result["adaptations"]


def test_the_homeworks_flags_become_a_plan(homework_config: Path) -> None:
    arguments = parse_arguments(
        ["--deepspeed_config", str(homework_config), "--model_name", "meta-llama/Llama-2-7b-hf", "--seq_len", "350"]
    )
    ranks = Ranks(3, 8, 3, 8, "127.0.0.1", 29500, "mpirun")
    config = {**read_deepspeed_config(homework_config), "gradient_checkpointing": {"enable": True}}
    plan, sentences = homework_plan(arguments, config, ranks, 8)
    assert (
        plan.parallel.world_size,
        plan.batch.global_batch_size,
        plan.parallel.nodes,
        plan.parallel.gpus_per_node,
    ) == (8, 8, 1, 8)
    assert (plan.model.precision, plan.letters, plan.model.recompute, plan.workload.steps) == (
        "bf16",
        "z2+o+r",
        True,
        100,
    )
    assert plan.optimizer == OptimizerSetup(type="AdamW", lr=1e-3)
    assert "gradient_checkpointing" not in plan.engine.deepspeed
    assert any("llama2-7b with random weights is trained" in sentence for sentence in sentences)


@pytest.mark.parametrize(("said", "rate"), [({}, 1e-3), ({"warmup_max_lr": 4e-4}, 4e-4)])
def test_the_plan_of_a_file_has_the_rate_of_its_schedule(
    homework_config: Path, said: dict[str, float], rate: float
) -> None:
    arguments = parse_arguments(["--deepspeed_config", str(homework_config), "--model_name", "tiny"])
    schedule = {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, **said}}
    config = {**read_deepspeed_config(homework_config), "scheduler": schedule}
    plan, _ = homework_plan(arguments, config, Ranks(0, 1, 0, 1, "127.0.0.1", 0, "python"), 1)
    assert plan.optimizer.lr == rate == plan.engine.deepspeed["scheduler"]["params"]["warmup_max_lr"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--deepspeed_config", "none.json", "--model_name", "tiny"], "none.json cannot be read"),
        (["--run-dir", "none"], "experiment.json is missing or not whole"),
    ],
)
def test_a_wrong_request_is_named(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=message):
        read_request(parse_arguments(arguments), ALONE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"train_batch_size": 1', "is not JSON"),
        (b"[1]", "must hold one object"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": ' * 150 + b"1" + b"}" * 150, "nested too deep"),
        (None, "is no regular file"),
    ],
)
def test_a_config_that_is_none_is_refused_with_a_sentence(text: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_bytes(text)
    with pytest.raises(RequestError, match=message):
        read_deepspeed_config(path)


def test_a_rank_that_cannot_be_read_leaves_a_result_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_LLM_LAUNCHER", "mpirun")
    write_json(RunPaths(tmp_path).experiment, {"schema": 1, "run_id": "run", "plan": make_plan().to_dict()})
    assert main(["--run-dir", str(tmp_path)]) == 1
    result = read_json(RunPaths(tmp_path).result)
    assert result is not None
    assert result["outcome"] == "FAILED"
    assert "was not started by mpirun" in result["outcome_reason"]


@pytest.mark.parametrize("arguments", [[], ["--deepspeed_config", "x.json"], ["--run", "x"]])
def test_flags_that_do_not_say_what_to_run_exit_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse_arguments(arguments)
    assert exit_.value.code == 2


def test_a_travelling_copy_runs_where_nothing_of_ours_is_installed(tmp_path: Path) -> None:
    copy = code_snapshot(tmp_path / "logs")
    run = RunPaths(tmp_path / "run")
    write_json(run.experiment, {"schema": 1, "run_id": "run", "plan": make_plan("z3").to_dict()})
    packages = [path for path in sys.path if path.endswith("site-packages")]
    program = ["hpc_llm.worker.pretrain_llm", "--run-dir", str(run.root)]
    done = subprocess.run(
        # Without -S an editable install of this checkout would be found as well.
        [sys.executable, "-S", "-c", Path(start.__file__).read_text(), str(copy), code_digest(), *program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(packages), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = read_json(run.result)
    assert result is not None
    assert result["outcome"] == "COMPLETED"


def test_what_runs_before_torch_needs_the_standard_library_only() -> None:
    modules = [
        "worker.ranks",
        "worker.request",
        "worker.homework",
        "worker.main",
        "worker.failure",
        "worker.result",
        "worker.pretrain_llm",
        "worker.finetune_llm",
        "worker.infer_llm",
    ]
    modules += ["records.metrics", "planning.model", "planning.experiment", "records.run", "errors"]
    program = (
        f"import sys, importlib; before = set(sys.modules); "
        f"[importlib.import_module('hpc_llm.' + name) for name in {modules!r}]; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'hpc_llm'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"SLURM_JOB_ID": "7"}, "pretrain_llm-7-0"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_RESTART_COUNT": "0"}, "pretrain_llm-7-1"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_RESTART_COUNT": "2"}, "pretrain_llm-7-1-2"),
    ],
)
def test_each_start_by_the_homeworks_flags_has_a_folder_of_its_own(env: dict[str, str], name: str) -> None:
    assert _folder_name(env, ALONE) == name


def test_what_is_compiled_lies_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = {name: f"/h/.cache/hpc-llm/delta/{place}" for name, place in (
        ("TORCH_EXTENSIONS_DIR", "torch_extensions"), ("TORCHINDUCTOR_CACHE_DIR", "torchinductor"), ("TRITON_CACHE_DIR", "triton"),
    )}  # fmt: skip
    assert caches_of("delta", "/h") == folder
    assert [name for name, _ in compiled_in(tmp_path)] == []
    (tmp_path / ".cache/hpc-llm/delta/torchinductor").mkdir(parents=True)
    assert [name for name, _ in compiled_in(tmp_path)] == ["delta"]
