"""--set PATH=VALUE: any field of the plan, with the type it has, and nothing without effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rendering import planned

import hpc_llm
from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.planning import tasks
from hpc_llm.planning.experiment import PATHS, Plan
from hpc_llm.planning.parts import Lora, OptimizerSetup, Quantization
from hpc_llm.planning.settings import PairOfFile, parse_value, read_setting, split_pair


def after(*settings: str, method: str = "z3", cluster: str = "delta") -> Plan:
    return planned(cluster, method, set=settings).plan


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1_000_000_000), ("5", 5), ("-5", -5), ("1.0", 1.0), ("1e-4", 1e-4), ("true", True), ("True", "True"),
        ("null", None), ("", None), ("fp32", "fp32"), ("[0.8, 0.999]", [0.8, 0.999]), ("{a: 1}", {"a": 1}), ("'5'", "5"),
        ("no", "no"), ("24:00:00", "24:00:00"), ("a b", "a b"),
    ],
)  # fmt: skip
def test_values_are_read_as_yaml_without_surprises(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["[1, 2", "{a: 1", "a: b: c", "1e999", "-1e999", "!!python/name:os.system x", "*x"])
def test_values_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_value(text)


@pytest.mark.parametrize(
    "path",
    ["optimizer.lr", "optimizer.weight_decay", "sequence_length", "batch.sequence_length", "eval_every", "weights", "save_every",
     "peft", "deepspeed.zero_optimization.stage", "lr_schedule", "columns.prompt"],
)  # fmt: skip
@pytest.mark.parametrize("nothing", ["", " "])
def test_a_setting_without_a_value_is_refused_whatever_it_sets(path: str, nothing: str) -> None:
    with pytest.raises(RequestError) as refused:
        after(f"{path}={nothing}")
    said = f"--set {path} is empty: a variable of the shell may not be set. Give it a value, or leave it out."
    assert str(refused.value) == said


def test_an_empty_setting_of_a_file_names_the_file_and_no_shell() -> None:
    with pytest.raises(RequestError) as refused:
        read_setting(PairOfFile("optimizer.lr=", "e.yaml", "e.yaml"))
    assert str(refused.value) == "e.yaml: set.optimizer.lr is empty. Give it a value, or leave it out."


def test_a_variable_of_the_job_may_be_empty_and_null_is_said_by_name() -> None:
    plan = after("env.SOME_VARIABLE=", "eval_every=null")
    assert plan.flat()["env"]["SOME_VARIABLE"] == "" and plan.flat()["eval_every"] is None


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert split_pair("a=b=c", "--set") == ("a", "b=c")
    assert split_pair("a", "--sbatch") == ("a", "")
    assert split_pair(" a =b ", "--set") == ("a", "b ")
    for text in ("", "=", " =x"):
        with pytest.raises(RequestError, match="write it as KEY=VALUE"):
            split_pair(text, "--set")


def test_settings_reach_the_plan() -> None:
    assert after("optimizer.lr=3e-4").optimizer.lr == 3e-4
    assert after("optimizer.lr=3e-4").engine.deepspeed["optimizer"]["params"]["lr"] == 3e-4
    assert after("optimizer={type: Adam, lr: 1}").optimizer == OptimizerSetup(type="Adam", lr=1.0)
    assert after("optimizer.type=AdamW8bit").engine.deepspeed.get("optimizer") is None
    assert after("steps=1e2").workload.steps == 100
    assert after("recompute=true").model.recompute is True
    assert after("precision=fp32").engine.deepspeed.keys().isdisjoint({"fp16", "bf16"})
    assert after("peft={r: 4}").model.peft == Lora(r=4, alpha=16, dropout=0.0, target_modules="all-linear")
    peft = after("peft.target_modules=[q_proj, v_proj]", method="z2+lora").model.peft
    assert peft is not None and peft.target_modules == ["q_proj", "v_proj"]
    assert after("quantization.kind=fp4", method="q").model.quantization == Quantization(
        kind="fp4", double_quant=True, compute_dtype="bf16"
    )
    assert after("quantization=null", method="q").model.quantization is None
    assert after("env.NCCL_DEBUG=INFO", "env.N=5", "env.E=").job.env == {"NCCL_DEBUG": "INFO", "N": "5", "E": ""}
    assert after("steps=10", "steps=10").workload.steps == 10
    with pytest.raises(RequestError, match=r"^--set steps is given twice, as 10 and as 20\. Say it once\.$"):
        after("steps=10", "workload.steps=20")


def test_deepspeeds_keys_are_reached_and_added() -> None:
    zero = after("deepspeed.zero_optimization.sub_group_size=1e9").engine.deepspeed["zero_optimization"]
    assert zero["sub_group_size"] == 1_000_000_000 and isinstance(zero["sub_group_size"], int)
    assert after("deepspeed.zero_optimization.round_robin_gradients=true").engine.deepspeed["zero_optimization"]["round_robin_gradients"] is True  # fmt: skip
    assert after("deepspeed.flops_profiler.enabled=true").engine.deepspeed["flops_profiler"] == {"enabled": True}
    assert after("deepspeed.bf16.immediate_grad_update=true").engine.deepspeed["bf16"] == {"immediate_grad_update": True, "enabled": True}  # fmt: skip
    loss_scale = after("precision=fp16", "deepspeed.fp16.loss_scale=128").engine.deepspeed["fp16"]
    assert loss_scale == {"loss_scale": 128, "enabled": True}


@pytest.mark.parametrize(
    ("short", "path", "value"),
    [
        ("micro_batch_size", "batch.micro_batch_size", "3"), ("steps", "workload.steps", "17"), ("precision", "model.precision", "fp32"),
        ("engine", "engine.name", "deepspeed"), ("deepspeed.gradient_clipping", "engine.deepspeed.gradient_clipping", "0.5"),
        ("env.A", "job.env.A", "1"), ("peak_flops", "gpu.peak_flops", "1e14"), ("tasks_per_node", "parallel.tasks_per_node", "1"),
        ("recompute", "model.recompute", "true"), ("launcher", "job.launcher", "torchrun"), ("lr_ramp_steps", "workload.lr_ramp_steps", "2"),
    ],
)  # fmt: skip
def test_a_path_through_the_parts_is_the_short_name(short: str, path: str, value: str) -> None:
    assert after(f"{path}={value}") == after(f"{short}={value}") != after()


def test_every_field_has_one_short_name() -> None:
    plan = after()
    assert set(plan.flat()) == set(PATHS) - tasks.find("infer").own_fields - tasks.find("tune").own_fields
    assert Plan.from_dict(plan.flat()) == plan == Plan.from_dict(plan.to_dict())


def test_what_follows_from_a_value_follows_from_its_setting() -> None:
    found = planned("delta", "z3", set=("steps=6", "micro_batch_size=3", "gradient_accumulation_steps=2"))
    assert (found.plan.workload.warmup_steps, found.plan.batch.global_batch_size) == (
        3,
        3 * 2 * found.plan.parallel.data,
    )
    assert found.plan.engine.deepspeed["train_batch_size"] == found.plan.batch.global_batch_size
    assert found.origins["steps"] == "request: set"


def test_the_letters_follow_what_is_set() -> None:
    assert after("recompute=true").letters == "z3+r"
    assert after("deepspeed.zero_optimization.stage=2", "attention=flash_attention_2").letters == "z2+f"
    assert after("steps=9").letters == "z3"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("stps=5", "--set stps: there is no plan field 'stps': did you mean 'steps'? Valid: steps, warmup_steps,"),
        ("steps", "--set 'steps': write it as PATH=VALUE, e.g. --set optimizer.lr=1e-4."),
        ("steps=many", "--set steps: 'many' is not a whole number. The default is 30."),
        ("steps=1.5", "--set steps=1.5: a whole number is needed."),
        ("steps=true", "--set steps: True is not a whole number. The default is 30."),
        ("steps=null", "--set steps: None is not a whole number."),
        ("steps.x=1", "--set steps.x: steps has no parts. Write --set steps=VALUE."),
        ("engine.foo=1", "--set engine.foo: there is no field 'foo' in engine. Valid: compiled_layers, cuda_graph, deepspeed, "),
        ("engine.fused_los=1", "--set engine.fused_los: there is no field 'fused_los' in engine: did you mean 'fused_loss'? Valid: "),
        ("engine.steps=9", "--set engine.steps: there is no field 'steps' in engine: did you mean steps?"),
        ("model.lr=1", "--set model.lr: there is no field 'lr' in model: did you mean optimizer.lr?"),
        ("job.time=9", "--set job.time: there is no field 'time' in job: use --time."),
        ("batch.micro=3", "there is no field 'micro' in batch: did you mean 'micro_batch_size'? Valid: gradient_accumulation_steps, "),
        ("fused_loss=1", "--set fused_loss=1: write true or false, in small letters. The default is true."),
        ("recompute=maybe", "--set recompute=maybe: valid are true, false, auto, or a share of the layers from 0 to 1, as 0.25."),
        ("recompute=1.5", "valid are true, false, auto, or a share"),
        ("recompute=-1", "valid are true, false, auto, or a share"),
        ("recompute=null", "valid are true, false, auto, or a share"),
        ("precision=int4", "--set precision=int4: valid are bf16, fp16, fp32."),
        ("attention=flash", "--set attention=flash: valid are sdpa, eager, flash_attention_2: did you mean 'flash_attention_2'?"),
        ("launcher=ibrun", "there is no launcher 'ibrun' in cluster delta: did you mean 'srun'? Valid: srun, torchrun."),
        ("optimizer.lrr=1", "--set optimizer.lrr: there is no key 'lrr': did you mean 'lr'?"),
        ("optimizer.lr=fast", "--set optimizer: 'lr' is 'fast': a number is needed."),
        ("optimizer.lr=-1", "--set optimizer: 'lr' is -1: it must be greater than or equal to 0."),
        ("optimizer.betas=[1]", "--set optimizer: 'betas.0' is 1: it must be less than 1."),
        ("optimizer.type=SGD", "--set optimizer.type=SGD: valid are AdamW, Adam, AdamW8bit, Adam8bit, PagedAdamW8bit, "),
        ("optimizer={}", "--set optimizer: 'type' is missing: one of AdamW, Adam, AdamW8bit, Adam8bit, PagedAdamW8bit, PagedAdam8bit, PagedAdamW32bit, AdamWBF16 is needed."),
        ("optimizer=null", "--set optimizer: None is not a mapping"),
        ("optimizer.betas.0=1", "--set optimizer.betas.0: 'betas' holds [0.9, 0.999], which has no parts."),
        ("peft.r=8", "--set peft.r: peft is not used by this method. Add +lora to it, as in z3+lora."),
        ("quantization.kind=fp4", "--set quantization.kind: quantization is not used by this method. Take q or ql."),
        ("peft=5", "--set peft: a mapping is needed"),
        ("quantization=nf4", "--set quantization: a mapping is needed"),
        ("quantization={kind: nf5}", "--set quantization: 'kind' is 'nf5'"),
        ("deepspeed=5", "--set deepspeed: 5 is not a mapping"),
        ("deepspeed.gradient_cliping=1", "there is no DeepSpeed key 'gradient_cliping' in --set deepspeed: did you mean 'gradient_clipping'?"),
        ("deepspeed.zero_optimization.stge=1", "'stge' in --set deepspeed, zero_optimization: did you mean 'stage'?"),
        ("deepspeed.zero_optimization=5", "--set deepspeed, zero_optimization: holds 5, keys of its own are needed."),
        ("deepspeed.zero_optimization.stage=7", "stage is 7. Valid: 0, 1, 2, 3."),
        ("deepspeed.gradient_clipping.x=1", "'gradient_clipping' holds 1.0, which has no parts."),
        ("deepspeed.train_batch_size=8", "deepspeed.train_batch_size is computed. Set micro_batch_size"),
        ("deepspeed.gradient_accumulation_steps=8", "deepspeed.gradient_accumulation_steps is computed."),
        ("deepspeed={train_batch_size: 8}", "deepspeed.train_batch_size is computed."),
        ("deepspeed={optimizer: {type: Adam}}", "deepspeed.optimizer is computed. Set optimizer.lr and its like."),
        ("deepspeed.optimizer.params.lr=1", "deepspeed.optimizer.params.lr is computed. Set optimizer.lr and its like."),
        ("deepspeed.bf16.enabled=false", "deepspeed.bf16.enabled is computed. Set precision."),
        ("deepspeed.fp16.loss_scale=128", "deepspeed.fp16.loss_scale has no effect: the precision is bf16."),
        ("env=A", "--set env: write it as env.NAME=VALUE."),
        ("env.A.B=1", "--set env.A.B: write it as env.NAME=VALUE."),
        ("weights=mine", "--set weights=mine: valid are random, checkpoint."),
        ("weights=checkpoint", "llama2-7b is a preset, which has the shape of a model and no weights."),
        ("lr_ramp_steps=-1", "lr_ramp_steps is -1, it must be between 0 and the 30 steps."),
        ("lr_ramp_steps=31", "lr_ramp_steps is 31, it must be between 0 and the 30 steps."),
        ("lr_ramp_steps=fast", "lr_ramp_steps is 'fast', it must be"),
        ("loss_floor_nats=0", "loss_floor_nats cannot be set: it follows from the data."),
        ("data_parallel=2", "data_parallel cannot be set: use --nodes or --tensor-parallel, or set tasks_per_node."),
        ("world_size=4", "--set world_size: world_size cannot be set: use --nodes, or set tasks_per_node."),
        ("global_batch_size=4", "global_batch_size cannot be set: set micro_batch_size or"),
        ("nodes=2", "nodes cannot be set: use --nodes."),
        ("gpus_per_node=2", "use --gpus-per-node."),
        ("task=infer", "task cannot be set: use --task."),
        ("data=[a]", "data cannot be set: use --data."),
        ("method=z2", "use --method."),
        ("cluster=mi210", "use --cluster."),
        ("scheduler=local", "set it in the cluster's profile."),
        ("sbatch.qos=x", "use --sbatch KEY=VALUE."),
        ("cpus_per_task=3", "use --sbatch cpus-per-task=N."),
        ("mem=3G", "use --sbatch mem=SIZE."),
        ("account=x", "use --account."),
        ("time_s=3", "use --time."),
        ("expected_gpu=x", "it follows from the cluster."),
    ],
)  # fmt: skip
def test_wrong_settings_say_what_where_and_what_instead(setting: str, said: str) -> None:
    with pytest.raises(HpcLlmError) as caught:
        after(setting)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_variables_of_the_script_itself_cannot_be_set() -> None:
    from rendering import script

    for name in ("run_dir", "python", "IFS", "a-b", "", "A B", "1A", "x;y"):
        with pytest.raises(RequestError):
            script("delta", "z3", set=(f"env.{name}=x",))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("stps: 5", "e.yaml: set.stps: there is no plan field 'stps': did you mean 'steps'"),
        ("optimizer: {lrr: 1}", "e.yaml: set.optimizer.lrr: there is no key 'lrr': did you mean 'lr'"),
        ("optimizer.lr: -1", "e.yaml: set.optimizer: 'lr' is -1"),
        ("steps: ten", "e.yaml: set.steps: 'ten' is not a whole number"),
        ("attention: flash", "e.yaml: set.attention=flash: valid are sdpa"),
        ("nodes: 2", "e.yaml: set.nodes: nodes cannot be set"),
        ("deepspeed.zero_optimization.stge: 1", "'stge' in e.yaml: set.deepspeed, zero_optimization"),
        ("columns.text: a", "e.yaml: set.columns.text: synthetic tokens do not heed it"),
    ],
)
def test_a_setting_of_a_file_is_refused_by_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, said: str
) -> None:
    """Also where the command line sets something else."""
    monkeypatch.chdir(tmp_path)
    Path("e.yaml").write_text(f"cluster: local\nmethod: z3\nmodel: tiny\nset:\n  {setting}\n")
    for more in ([], ["seed=1"]):
        with pytest.raises(RequestError) as refused:
            hpc_llm.plan("e.yaml", set=more)
        assert said in str(refused.value) and "--set " not in str(refused.value).partition(". ")[0]


def test_each_setting_has_the_origin_that_said_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.yaml").write_text("cluster: local\nmethod: z3\nmodel: tiny\nset: {seed: 3, recompute: true}\n")
    [one] = hpc_llm.plan("e.yaml", set=["seed=4"])
    assert one.plan.training.seed == 4
    assert one.origins["recompute"] == "e.yaml: set" and one.origins["seed"] != "e.yaml: set"
