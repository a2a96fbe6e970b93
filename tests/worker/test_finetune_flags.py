"""`finetune_llm` with the flags of the LZU project's programs: the same lines work, and leave the same file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import ROOT
from tiny_models import save

import hpc_llm
from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths
from hpc_llm.worker import data_of_flags
from hpc_llm.worker.data_of_flags import source_of
from hpc_llm.worker.finetune_flags import parse_arguments, read_request
from hpc_llm.worker.finetune_llm import main
from hpc_llm.worker.ranks import Ranks

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("copied_ranks")]
ALONE = Ranks(0, 1, 0, 1, "127.0.0.1", 0, "python")
MODULE = (sys.executable, "-m", "hpc_llm.worker.finetune_llm")
TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *MODULE[1:])
METRICS = [
    "total_time_seconds", "time_per_epoch_seconds", "num_samples", "num_epochs", "batch_size", "learning_rate",
    "gradient_checkpointing", "peak_memory_gb",
]  # fmt: skip
NO_OFFLOAD = {"offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}}
AUTO = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
DS_ZERO3 = {
    "zero_optimization": {"stage": 3, **NO_OFFLOAD, "overlap_comm": True, "sub_group_size": 1e9, **dict.fromkeys(AUTO, "auto")},
    "gradient_clipping": 1.0, "train_micro_batch_size_per_gpu": 4, "train_batch_size": 4,
    "fp16": {"enabled": True, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
}  # fmt: skip
"""In the form of the project's ds_zero3.json, with its values that a Trainer fills in."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a set in the form of wikitext: empty rows, headings, paragraphs of all lengths."""
    lines = [f"the miller of town {n} grinds the corn of the valley " * (1 + n % 4) for n in range(40)]
    rows = [{"text": text} for line in lines for text in (line, "")]
    for split in ("train", "validation"):
        made = tmp_path / "set" / f"{split}.jsonl"
        made.parent.mkdir(exist_ok=True)
        made.write_text(
            "".join(json.dumps({**row, "split": split}) + "\n" for row in rows[:: 1 + 3 * (split != "train")])
        )
    (tmp_path / "prose.txt").write_text("\n".join(lines))
    (tmp_path / "ds_zero3.json").write_text(json.dumps(DS_ZERO3))
    monkeypatch.chdir(tmp_path)
    return tmp_path


LENGTHS = tuple("--dataset_name wikitext=set --num_epochs 2 --batch_size 4 --max_length 64 --num_samples 24".split())
FAST = (*LENGTHS, "--learning_rate", "1e-2", "--output_dir", "out", "--device", "cuda")


def trained(start: Sequence[str], words: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The file that the project's line leaves, the run's result, and its row."""
    done = subprocess.run([*start, *words.split(), *FAST], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found, result = read_json(Path("out/baseline_finetune_metrics.json")), read_json(RunPaths(Path("out")).result)
    assert found is not None and result is not None
    [row] = hpc_llm.parse("out")
    return found, result, row


@pytest.mark.parametrize(
    ("start", "words", "method", "engine"),
    [
        ((str(Path(sys.executable).with_name("finetune_llm")),), "--model_name tiny --use_lora", "lora", "plain"),
        (MODULE, "--model_name tiny --use_qlora", "qlora+r", "plain"),
        (MODULE, "--model_path tiny --gradient_checkpointing", "bf16+r", "plain"),
        (MODULE, "--model_name tiny --use_lora --deepspeed_config ds_zero3.json --local_rank=0", "z3+lora", "deepspeed"),
        (TWO, "--model_name tiny --deepspeed_config ds_zero3.json", "z3", "deepspeed"),
    ],
)  # fmt: skip
def test_the_projects_lines_train_and_leave_the_projects_file(
    start: tuple[str, ...], words: str, method: str, engine: str
) -> None:
    found, result, row = trained(start, words)
    ranks = 2 if start == TWO else 1
    assert (row.outcome, row.task, row.method, result["engine"]) == ("COMPLETED", "finetune", method, engine)
    assert row.world_size == ranks and row.loss_last < row.loss_first - 0.3 and row.eval_loss is not None
    steps = list(read_json_lines(RunPaths(Path("out")).steps))
    assert len(steps) == 2 * 24 // (4 * ranks)
    config, metrics = found["config"], found["metrics"]
    assert list(found) == ["config", "metrics"] and list(metrics) == METRICS
    assert config["dataset_name"] == "wikitext=set" and config["num_samples"] == 24 and "run_dir" not in config
    assert metrics == {
        "total_time_seconds": pytest.approx(sum(step["step_time_s"] for step in steps)),
        "time_per_epoch_seconds": metrics["total_time_seconds"] / 2,
        "num_samples": 24,
        "num_epochs": 2,
        "batch_size": 4,
        "learning_rate": 1e-2,
        "gradient_checkpointing": method.endswith("+r"),
        "peak_memory_gb": None,  # nobody counts it on a CPU
    }
    assert [path.name for path in Path("caches").iterdir() if not path.name.startswith(".")] == [
        Path(plan_in("out").training.corpus or "").name
    ]
    assert ("fp16 on the CPU" in " ".join(result["adaptations"])) == ("ds_zero3.json" in words)
    kept = "adapter_model.safetensors" if "lora" in method else "model.safetensors"
    assert (Path("out/model") / kept).is_file()
    if "lora" not in method:  # what was trained is a model for the next line
        again = planned("--model_name out/model --use_lora --dataset_name set --max_length 64")
        assert (again.model.weights, again.model.name, again.engine.fused_loss) == ("checkpoint", "out/model", True)


def plan_in(folder: str) -> Plan:
    experiment = read_json(RunPaths(Path(folder)).experiment)
    assert experiment is not None
    return Plan.from_dict(experiment["plan"])


def planned(words: str, ranks: Ranks = ALONE) -> Plan:
    """What the project's line stands for."""
    return read_request(parse_arguments([*words.split(), "--output_dir", "elsewhere"]), ranks).plan


LORA = {"peft.r": 8, "peft.alpha": 16, "peft.dropout": 0.05, "peft.target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}  # fmt: skip
FP16 = {**LORA, "precision": "fp16", "optimizer.lr": 2e-4}
AS_EXPERIMENTS = {"train_samples": 4000, "packing": "none", "too_long": "truncate"}


@pytest.mark.parametrize(
    ("words", "method", "settings"),
    [
        ("--model_path llama3.2-3b", "bf16", {"optimizer.lr": 2e-5}),
        ("--model_name llama3.2-3b --use_lora", "lora", FP16),
        ("--model_name llama3.2-3b --use_lora --gradient_checkpointing", "lora+r", FP16),
        ("--model_name llama3.2-3b --use_qlora", "qlora+r", FP16),
        ("--model_name llama3.2-3b --use_qlora --deepspeed_config ds_zero3.json", "z3+qlora+r", FP16),
    ],
)
def test_a_line_is_the_run_of_our_file_of_experiments(
    monkeypatch: pytest.MonkeyPatch, words: str, method: str, settings: dict[str, Any]
) -> None:
    """`experiments/lzu-5090.yaml` as planning takes it, on the same data; without the ramp of the learning rate, and with what is kept."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    found = planned(f"{words} --dataset_name wikitext=set")
    [expected] = hpc_llm.plan(
        task="finetune", cluster="rtx5090", model="llama3.2-3b", method=method, data=["wikitext-2-raw-v1=set"],
        micro_batch_size=4, sequence_length=512, epochs=2, set={**AS_EXPERIMENTS, **settings},
    )  # fmt: skip
    other = expected.plan
    assert (found.method, found.letters, found.batch) == (other.method, other.letters, other.batch)
    assert (found.model, found.optimizer, found.parallel) == (other.model, other.optimizer, other.parallel)
    assert replace(found.training, lr_ramp_steps=other.training.lr_ramp_steps, save_every=None) == other.training
    assert replace(found.engine, deepspeed={}) == replace(other.engine, deepspeed={})
    own = {"steps_per_print", "zero_optimization", "fp16"}
    assert {k: v for k, v in found.engine.deepspeed.items() if k not in own} == {
        k: v for k, v in other.engine.deepspeed.items() if k not in own
    }
    text = (ROOT / "experiments" / "lzu-5090.yaml").read_text()
    assert f"method: {method}\n" in text


def test_auto_in_the_projects_config_is_what_its_trainer_makes_of_it(place: Path) -> None:
    found = planned("--model_name tiny --use_lora --dataset_name set --deepspeed_config ds_zero3.json --batch_size 2")
    zero = found.engine.deepspeed["zero_optimization"]
    assert [zero[key] for key in AUTO] == [128 * 128, int(0.9 * 128 * 128), 10 * 128]
    assert found.engine.deepspeed["optimizer"]["params"]["lr"] == found.optimizer.lr == 2e-4
    assert found.engine.deepspeed["train_batch_size"] == found.batch.global_batch_size == 2
    of_its_own = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": 0.1}}
    batch = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    auto = {**DS_ZERO3, **batch, "gradient_clipping": "auto", "optimizer": of_its_own, "fp16": {"enabled": "auto"}}
    (place / "auto.json").write_text(json.dumps(auto))
    found = planned("--model_path tiny --dataset_name set --deepspeed_config auto.json")
    assert (found.optimizer.lr, found.optimizer.weight_decay, found.model.precision) == (2e-5, 0.1, "fp32")
    assert found.batch.global_batch_size == 4 and found.engine.deepspeed["gradient_clipping"] == 1.0


def test_a_text_without_samples_is_cut_into_sequences() -> None:
    arguments = parse_arguments("--model_name tiny --dataset_name prose.txt --max_length 64 --num_samples 9".split())
    request = read_request(arguments, ALONE)
    training = request.plan.training
    assert (training.packing, training.eval_every, training.steps) == ("stream", None, 41)
    assert "is text without samples: all of its 81 sequences are trained on, not 9" in request.sentences[-1]


@pytest.mark.parametrize(
    ("name", "config", "source"),
    [
        ("wikitext", "wikitext-2-raw-v1", "wikitext-2-raw-v1"),
        ("Salesforce/wikitext", "wikitext-2-raw-v1", "wikitext-2-raw-v1"),
        ("wikitext=set", "wikitext-103-v1", "wikitext-2-raw-v1=set"),
        ("glue", "sst2", "glue/sst2"),
        ("set", "wikitext-2-raw-v1", "set"),
        ("nowhere.jsonl", "main", "nowhere.jsonl"),
    ],
)
def test_the_hubs_name_and_configuration_are_a_known_set(name: str, config: str, source: str) -> None:
    assert source_of(name, config) == source


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--use_lora --use_qlora", "--use_lora and --use_qlora exclude each other"),
        ("--num_samples 0", "--num_samples is 0, it must be at least 1."),
        ("--num_epochs -1", "--num_epochs is -1, it must be at least 1."),
        ("--batch_size 0", "--batch_size is 0, it must be at least 1."),
        ("--max_length 1", "--max_length is 1, it must be at least 2."),
        ("--max_length 4096", "--max_length is 4096: the model tiny takes 2048 tokens at most."),
        ("--learning_rate nan", "--learning_rate is nan, it must be above 0."),
        ("--dataset_name wikitxt", "There is no known data set 'wikitxt'."),
        ("--dataset_name nowhere.jsonl", "nowhere.jsonl: there is no such file."),
        ("--dataset_name validation=prose.txt", "all of it is for validation"),
        ("--dataset_name wikitext --dataset_config wikitext-2", "there is no dataset_config 'wikitext-2': did you mean 'wikitext-2-raw-v1'"),
        ("--dataset_name prose.txt --max_length 2048 --device cpu --deepspeed_config none.json", "the DeepSpeed config none.json cannot be read"),
        ("--deepspeed_config other-rate.json --learning_rate 1e-4", "optimizer.params.lr is 0.001: leave one of the two out."),
        ("--deepspeed_config other-schedule.json --learning_rate 1e-4", "scheduler.params.warmup_max_lr is 0.001: leave one of the two out."),
        ("--deepspeed_config no-steps.json", "gradient_accumulation_steps is 'two'"),
        ("--output_dir prose.txt", "--output_dir prose.txt is a file"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    place: Path, capfd: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    rate = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    (place / "other-rate.json").write_text(json.dumps({**DS_ZERO3, **rate}))
    schedule = {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}}
    (place / "other-schedule.json").write_text(json.dumps({**DS_ZERO3, **schedule}))
    (place / "no-steps.json").write_text(json.dumps({**DS_ZERO3, "gradient_accumulation_steps": "two"}))
    before = sorted(place.iterdir())
    assert main(["--model_name", "tiny", "--dataset_name", "set", "--output_dir", "out", *words.split()]) == 2
    answer = capfd.readouterr().err
    assert answer.startswith("finetune_llm: ") and answer.count("\n") == 1 and said in answer
    assert [path for path in sorted(place.iterdir()) if path.name != "caches"] == before


def test_models_that_cannot_be_trained_so_are_refused(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(place / "untold", "llama")
    (place / "shape").mkdir()
    (place / "shape" / "config.json").write_text((place / "untold" / "config.json").read_text())
    for words, said in (
        ("--model_path missing", "there is no model 'missing'"),
        ("--model_path untold", "the folder untold holds no tokenizer"),
        ("--model_path shape", "the folder shape holds a config.json and no weights"),
        ("--model_name flan-t5-small", "is an encoder and decoder"),
        ("--model_path tiny --use_lora", "--model_path trains all weights"),
    ):
        assert main([*words.split(), "--dataset_name", "set", "--max_length", "64", "--output_dir", "out"]) == 2
        assert said in capfd.readouterr().err
    assert not (place / "out").exists()


def test_several_ranks_need_a_deepspeed_config_and_a_folder_is_used_once(place: Path) -> None:
    two = Ranks(1, 2, 1, 2, "127.0.0.1", 29500, "torchrun")
    with pytest.raises(RequestError, match="2 ranks: without --deepspeed_config these flags are of one process"):
        planned("--model_name tiny --use_lora", two)
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "result.json").write_text("{}")
    with pytest.raises(RequestError, match=r"result.json would be lost: take another --output_dir\.$"):
        planned("--model_name tiny --use_lora")


def test_a_rank_whose_first_rank_prepares_nothing_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_of_flags, "_PATIENCE_S", 0.0)
    second = Ranks(1, 2, 1, 2, "127.0.0.1", 29500, "torchrun")
    with pytest.raises(WorkerError, match=r"rank 0 has not prepared the data in .*caches"):
        planned("--model_name tiny --dataset_name set --deepspeed_config ds_zero3.json", second)
