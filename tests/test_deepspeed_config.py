"""The lists of DeepSpeed's keys against the DeepSpeed that is installed, whose source is read, not run."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rendering import METHODS, planned

from hpc_llm.errors import RequestError
from hpc_llm.planning.deepspeed_config import TOP_LEVEL, ZERO, check_keys
from hpc_llm.planning.deepspeed_schedules import SCHEDULES
from hpc_llm.planning.deepspeed_values import KINDS


@pytest.fixture(scope="module")
def source() -> Path:
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None and spec.origin is not None, "deepspeed is missing: python -m pip install -e '.[train]'"
    return Path(spec.origin).parent


def model_fields(path: Path, name: str) -> dict[str, str]:
    """Fields and aliases of a pydantic class in a source file, and their annotations."""
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    names = [statement.target.id, *re.findall(r"alias=[\"'](\w+)[\"']", ast.unparse(statement))]
                    found.update(dict.fromkeys(names, ast.unparse(statement.annotation)))
    assert found, f"{name} is no longer in {path}"
    return found


def test_the_zero_keys_are_deepspeeds(source: Path) -> None:
    fields = model_fields(source / "runtime" / "zero" / "config.py", "DeepSpeedZeroConfig")
    assert set(fields) == ZERO


@pytest.mark.parametrize(
    ("name", "key", "said"), [("WarmupLR", "warmup_num_step", "did you mean 'warmup_num_steps'"), ("OneCycle", "warmup_num_steps", "Valid: cycle_")]
)  # fmt: skip
def test_a_parameter_that_a_schedule_does_not_have_is_refused(name: str, key: str, said: str) -> None:
    with pytest.raises(
        RequestError, match=f"there is no parameter '{key}' in here, scheduler.params of {name}.*{said}"
    ):
        check_keys({"scheduler": {"type": name, "params": {key: 2}}}, "here")


def test_the_schedules_take_what_deepspeeds_classes_take(source: Path) -> None:
    found: dict[str, tuple[set[str], set[str]]] = {}
    for node in ast.parse((source / "runtime" / "lr_schedules.py").read_text()).body:
        made = [one for one in getattr(node, "body", []) if getattr(one, "name", "") == "__init__"]
        if isinstance(node, ast.ClassDef) and made:
            taken = [one.arg for one in made[0].args.args if one.arg not in ("self", "optimizer")]
            needed = len(taken) - len(made[0].args.defaults)
            found[node.name] = (set(taken[:needed]), set(taken[needed:]))
    assert found == {name: (set(needed.split()), set(others.split())) for name, (needed, others) in SCHEDULES.items()}


MODELS = {
    "zero_optimization": ("zero/config.py", "DeepSpeedZeroConfig"),
    "zero_optimization.offload_optimizer": ("zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
    "zero_optimization.offload_param": ("zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
    "fp16": ("precision_config.py", "DeepSpeedFP16Config"),
    "bf16": ("precision_config.py", "DeepSpeedBF16Config"),
}
TYPES = {
    "bool": ("switch",),
    "Optional[bool]": ("optional switch",),
    "int": ("whole", "positive"),
    "float": ("from 0", "share"),
}


@pytest.mark.parametrize("block", MODELS)
def test_the_kinds_of_values_are_deepspeeds(source: Path, block: str) -> None:
    """Each field of these types has the kind that stands for it."""
    file, name = MODELS[block]
    fields = model_fields(source / "runtime" / file, name)
    plain = {key: TYPES[kind] for key, kind in fields.items() if kind in TYPES}
    assert {key for key, kinds in plain.items() if KINDS[block].get(key) not in kinds} == set()


READ_TOP_LEVEL = """
import json, logging
logging.disable(logging.CRITICAL)
from deepspeed.runtime.config import DeepSpeedConfig

class Recorder(dict):
    asked = set()
    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)
    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)
    def __contains__(self, key):
        self.asked.add(key)
        return super().__contains__(key)

config = Recorder(train_batch_size=1, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1)
DeepSpeedConfig(config)
print("@@" + json.dumps(sorted(k for k in Recorder.asked if isinstance(k, str))))
"""


def test_every_key_that_deepspeed_asks_for_is_listed() -> None:
    """DeepSpeed says nothing of a key that it does not know, so it is asked which it looks up when it reads a config."""
    done = subprocess.run([sys.executable, "-c", READ_TOP_LEVEL], capture_output=True, text=True, check=False)
    assert "@@" in done.stdout, done.stderr[-2000:]
    asked = set(json.loads(done.stdout.rsplit("@@", 1)[1]))
    assert {"zero_optimization", "fp16", "bf16", "gradient_clipping", "steps_per_print"} <= asked
    assert asked - TOP_LEVEL == set()


def test_no_listed_key_is_an_invention(source: Path) -> None:
    """Each stands as a string somewhere in DeepSpeed, be it to say that the feature is gone."""
    text = "\n".join(path.read_text(errors="ignore") for path in source.rglob("*.py"))
    words = set(re.findall(r"[\"'](\w+)[\"']", text)) | set(re.findall(r"^    (\w+):", text, re.MULTILINE))
    assert TOP_LEVEL - words == set()


ACCEPT = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from deepspeed.runtime.config import DeepSpeedConfig
for name, config in json.load(sys.stdin).items():
    try:
        DeepSpeedConfig(config)
    except Exception as error:
        print(name, type(error).__name__, error)
print("@@read")
"""


def test_deepspeed_reads_the_config_of_every_method() -> None:
    configs = {}
    for name in METHODS:
        config = planned("taiwania2", name, gpus_per_node=1).plan.engine.deepspeed
        configs[name] = {
            k: v for k, v in config.items() if k != "quantize_training"
        }  # the worker leaves it out as well
    done = subprocess.run(
        [sys.executable, "-c", ACCEPT], input=json.dumps(configs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if line.split(" ")[0] in METHODS] == []
    assert "@@read" in done.stdout


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"zero_optimisation": {}},
            "there is no DeepSpeed key 'zero_optimisation' in here: did you mean 'zero_optimization'?",
        ),
        ({"zero_optimization": {"stge": 1}}, "'stge' in here, zero_optimization: did you mean 'stage'?"),
        ({"zero_optimization": "stage 3"}, "here, zero_optimization: holds 'stage 3', keys of its own are needed."),
        ({"fp16": None}, "here, fp16: holds None"),
        ({"zero_optimization": {"stage": -1}}, "stage is -1. Valid: 0, 1, 2, 3."),
    ],
)
def test_wrong_keys_are_named_with_their_place(config: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_keys(config, "here")
    assert said in str(caught.value)


def zero(key: str, value: object) -> dict[str, object]:
    return {"zero_optimization": {key: value}}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"gradient_clipping": "foo"}, "gradient_clipping is 'foo': it must be a number of at least 0."),
        ({"gradient_clipping": None}, "gradient_clipping is None: it must be a number of at least 0."),
        ({"gradient_clipping": True}, "gradient_clipping is True: it must be a number of at least 0."),
        ({"gradient_clipping": float("nan")}, "gradient_clipping is nan: it must be a number of at least 0."),
        ({"gradient_clipping": {"max": 1}}, "gradient_clipping is {'max': 1}: it must be a number of at least 0."),
        ({"steps_per_print": 0}, "steps_per_print is 0: it must be a whole number of at least 1."),
        ({"prescale_gradients": "yes"}, "prescale_gradients is 'yes': it must be true or false."),
        ({"gradient_clipping": -1}, "gradient_clipping is -1: it must be a number of at least 0."),
        ({"gradient_predivide_factor": 0}, "gradient_predivide_factor is 0: it must be a number above 0."),
        ({"scheduler": {"type": "Cosine"}}, "scheduler.type is 'Cosine'. Valid: LRRangeTest, OneCycle,"),
        ({"scheduler": {"type": "WarmupLR"}}, "scheduler.params is missing, which WarmupLR needs"),
        ({"scheduler": {"type": "OneCycle"}}, "scheduler.params.cycle_min_lr is missing, which OneCycle needs."),
        ({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2}}}, "total_num_steps is missing, which WarmupDecayLR needs, as many as --steps"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}, "warmup_num_steps is 0: it must be a whole number of at least 1."),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "x"}}}, "warmup_max_lr is 'x': it must be a number of at least 0."),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}}, "warmup_type is 'cosine'. Valid: log, linear."),
        ({"scheduler": {"type": "WarmupLR", "params": [1]}}, "scheduler.params is [1]: it must be keys of its own."),
        ({"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}}, "zenflow goes with an optimizer on the host alone"),
        (zero("offload_optimizer", {"device": "nvme"}), "offload_optimizer.device is nvme, and there is no nvme_path beside it"),
        ({"gradient_predivide_factor": 2, "zero_optimization": {"stage": 1}}, "gradient_predivide_factor goes not with gradients that ZeRO scatters."),
        ({"prescale_gradients": True, "zero_optimization": {"stage": 3}}, "prescale_gradients goes not with gradients"),
        ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "offload_param has no effect with stage 2"),
        ({"zero_optimization": {"stage": 1, "zero_quantized_weights": True}}, "zero_quantized_weights has no effect with stage 1"),
        (zero("reduce_bucket_size", "foo"), "zero_optimization.reduce_bucket_size is 'foo': it must be a whole number"),
        (zero("reduce_bucket_size", 0.5), "reduce_bucket_size is 0.5: it must be a whole number of at least 1."),
        (zero("sub_group_size", -1), "sub_group_size is -1: it must be a whole number of at least 0."),
        (zero("overlap_comm", "on"), "overlap_comm is 'on': it must be true, false or null."),
        (zero("contiguous_gradients", 2), "contiguous_gradients is 2: it must be true or false."),
        (zero("contiguous_gradients", None), "contiguous_gradients is None: it must be true or false."),
        (zero("offload_optimizer", "cpu"), "offload_optimizer is 'cpu': it must be keys of its own, or null."),
        (zero("offload_optimizer", {"device": "gpu"}), "offload_optimizer.device is 'gpu': it must be none, cpu or nvme."),
        (zero("offload_optimizer", {"ratio": 2}), "offload_optimizer.ratio is 2: it must be a number from 0 to 1."),
        (zero("offload_param", {"pin_memory": "x"}), "offload_param.pin_memory is 'x': it must be true or false."),
        ({"fp16": {"initial_scale_power": "16"}}, "fp16.initial_scale_power is '16': it must be a whole number"),
        ({"bf16": {"immediate_grad_update": []}}, "bf16.immediate_grad_update is []: it must be true or false."),
        (zero("reduce_bucket_size", "auto"), "is 'auto', which nothing fills in here. Leave it out for DeepSpeed's default, or give a whole number of at least 1."),
        ({"gradient_clipping": "auto"}, "Leave it out for DeepSpeed's default, or give a number of at least 0."),
        ({"train_batch_size": "auto"}, "train_batch_size is 'auto', which nothing fills in here. Leave it out, it is computed."),
        ({"fp16": {"enabled": "auto"}}, "Leave it out, it is computed."),
        ({"optimizer": {"params": {"lr": "auto"}}}, "optimizer.params.lr is 'auto', which nothing fills in here. Leave it out: optimizer.lr"),
        ({"optimizer": {"params": {"betas": ["auto", 0.9]}}}, "optimizer.params.betas is 'auto'"),
        ({"scheduler": {"params": {"warmup_num_steps": "auto"}}}, "scheduler.params.warmup_num_steps is 'auto'"),
        ({"aio": {"queue_depth": "auto"}}, "aio.queue_depth is 'auto'"),
        ({"communication_data_type": "fp64"}, "communication_data_type is 'fp64': it must be fp16, bf16, fp32 or null."),
        ({"communication_data_type": "float32"}, "communication_data_type is 'float32': it must be fp16, bf16, fp32 or null."),
        ({"data_types": {"grad_accum_dtype": "fp64"}}, "data_types.grad_accum_dtype is 'fp64': it must be fp16, bf16, fp32 or null."),
        ({"data_types": "fp32"}, "data_types is 'fp32': it must be keys of its own, or null."),
        ({"compression_training": {"weight_quantization": {}}}, "compression_training has no effect: DeepSpeed's compression is set up by"),
        ({"sparse_attention": {"mode": "fixed"}}, "sparse_attention has no effect"),
        ({"nebula": {"enabled": True}}, "nebula has no effect"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_would_fail_in_the_job_is_refused_before_it(config: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_keys(config, "here")
    assert said in str(caught.value) and str(caught.value).startswith("here: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        zero("reduce_bucket_size", 5e8), zero("sub_group_size", 1e12), zero("overlap_comm", None), zero("allgather_bucket_size", 0),
        zero("offload_param", None), zero("offload_optimizer", {"device": "none", "ratio": 1}), zero("contiguous_gradients", 1),
        {"zero_optimization": {"stage": 2, "zenflow": {"select_strategy": "auto"}, "offload_optimizer": {"device": "cpu"}}},
        {"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": 1e-4}}}, {"gradient_clipping": 1}, {"fp16": {"loss_scale": 0.0}},
        {"communication_data_type": "FP32"}, {"data_types": {"grad_accum_dtype": "float32", "keep_in_fp32_modules": "auto"}},
        {"wandb": {"project": "auto"}}, {"comms_logger": {"enabled": "whatever it takes"}},
    ],
    ids=str,
)  # fmt: skip
def test_what_deepspeed_takes_passes(config: dict[str, object]) -> None:
    check_keys(config, "here")


@pytest.mark.parametrize(("size", "nodes"), [(3, 1), (8, 1), (5, 2), (16, 2)])
def test_a_partition_that_does_not_divide_the_ranks_is_refused(size: int, nodes: int) -> None:
    setting = f"deepspeed.zero_optimization.zero_hpz_partition_size={size}"
    with pytest.raises(
        RequestError, match=rf"is {size}, which does not divide the plan's {4 * nodes} ranks\. Valid: 1, 2, 4"
    ):
        planned("delta", "z3", nodes=nodes, set=(setting,))


@pytest.mark.parametrize("size", [0, 1, 2, 4, 8])
def test_a_partition_that_divides_the_ranks_passes(size: int) -> None:
    found = planned("delta", "z3", nodes=2, set=(f"deepspeed.zero_optimization.zero_hpz_partition_size={size}",))
    assert found.plan.engine.deepspeed["zero_optimization"]["zero_hpz_partition_size"] == size


@pytest.mark.parametrize("setting", ["optimizer.lr=auto", "optimizer.betas=auto", "peft.r=auto"])
def test_auto_is_refused_beside_deepspeeds_keys_too(setting: str) -> None:
    with pytest.raises(RequestError, match="nothing fills in 'auto' here: leave it out, or give a value"):
        planned("delta", "z3+lora", set=(setting,))


def test_without_zero_gradients_are_added_up_in_the_type_of_the_weights() -> None:
    said = ("deepspeed.data_types.grad_accum_dtype=fp32",)
    with pytest.raises(RequestError, match=r"grad_accum_dtype is fp32, and without ZeRO .* alone, bf16\. Leave it out"):
        planned("delta", "ddp", set=(*said, "engine=deepspeed"))
    for method, more in (("z2", ()), ("ddp", ("engine=deepspeed", "precision=fp32"))):
        found = planned("delta", method, set=(*said, *more)).plan
        assert found.engine.name == "deepspeed" and found.engine.deepspeed["data_types"] == {"grad_accum_dtype": "fp32"}
