"""GPU memory that ran out in a part of the work that is no step: what it is called, and that no smaller batch is advised."""

from __future__ import annotations

from typing import Any

import pytest
from rendering import planned
from tiny_plans import make_plan

from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.remedies import device_oom

OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB of which 1.12 GiB is free. "
    "Including non-PyTorch memory, this process has 38.20 GiB memory in use. Of the allocated memory 37.50 GiB is allocated by PyTorch, and "
    "212.12 MiB is reserved by PyTorch but unallocated.\n"
)
STEPS = "".join(
    f"{{'loss': 1.9{n}00, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.0{n}}}\n" for n in range(1, 5)
)
SITE = "/e/lib/python3.11/site-packages"


def traceback(*frames: tuple[str, str, str], label: str = "") -> str:
    lines = ["Traceback (most recent call last):"]
    for path, function, code in frames:
        lines += [f'  File "{path}", line 12, in {function}', f"    {code}"]
    return "".join(f"{label}{line}\n" for line in lines) + label + OUT


TRAINS = ("/w/train.py", "<module>", "trainer.train()")
LOADING = {
    "to the GPU": traceback(("/w/train.py", "<module>", "model.cuda()"), (f"{SITE}/torch/nn/modules/module.py", "convert", "return t.to(")),
    "from_pretrained": traceback(
        ("/w/train.py", "main", "model = load(name)"), (f"{SITE}/transformers/modeling_utils.py", "from_pretrained", "model = cls(config)")
    ),
    "DeepSpeed brings it whole": traceback(
        ("/w/train.py", "main", "deepspeed.initialize("),
        (f"{SITE}/deepspeed/runtime/engine.py", "_configure_distributed_model", "self.module.to(self.device)"),
        (f"{SITE}/torch/nn/modules/module.py", "convert", "return t.to("),
        label="[rank3]: ",
    ),
    "a server loads": "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:05<00:05,  2.50s/it]\n" + OUT,
    "below a bar": "Loading checkpoint shards:  33%|███▎      | 1/3 [00:05<00:10,  5.00s/it]\n" + OUT,
}  # fmt: skip
STATES = {
    "Adam": STEPS + traceback(TRAINS, (f"{SITE}/torch/optim/adamw.py", "_init_group", 'state["exp_avg"] = torch.zeros_like(')),
    "DeepSpeed begins": traceback(
        ("/w/train.py", "main", "deepspeed.initialize("),
        (f"{SITE}/deepspeed/runtime/zero/stage_1_and_2.py", "initialize_optimizer_states", "self.optimizer.step()"),
    ),
    "fused": STEPS + traceback(TRAINS, (f"{SITE}/apex/optimizers/fused_adam.py", "step", "state['exp_avg'] = torch.zeros_like(p)")),
    "8 bits": traceback(TRAINS, (f"{SITE}/bitsandbytes/optim/optimizer.py", "init_state", 'state["state1"] = self.get_state_buffer(p)')),
    "resumed": traceback(TRAINS, (f"{SITE}/torch/optim/optimizer.py", "load_state_dict", "value = _process_value(")),
}  # fmt: skip
SAVING = {
    "ZeRO-3": STEPS
    + traceback(
        ("/w/train.py", "<module>", 'trainer.save_model("out")'),
        (f"{SITE}/deepspeed/runtime/engine.py", "_zero3_consolidated_16bit_state_dict", "with deepspeed.zero.GatheredParameters("),
    ),
    "FSDP within training": STEPS
    + traceback(
        TRAINS,
        (f"{SITE}/transformers/trainer.py", "_save_checkpoint", "self.save_model(output_dir, _internal_call=True)"),
        (f"{SITE}/torch/distributed/fsdp/_state_dict_utils.py", "_full_pre_state_dict_hook", "_common_unshard_pre_state_dict_hook("),
    ),
}  # fmt: skip
STEP = {
    "backward": STEPS + traceback(TRAINS, (f"{SITE}/torch/autograd/graph.py", "_engine_run_backward", "return run_backward(")),
    "forward, behind a bar that is full": "Loading checkpoint shards: 100%|██████████| 3/3 [00:15<00:00,  5.00s/it]\n"
    + traceback(TRAINS, (f"{SITE}/torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")),
    "a model that moves between steps": STEPS
    + traceback(("/w/grpo.py", "fit", "reference.cuda()"), (f"{SITE}/torch/nn/modules/module.py", "convert", "return t.to(")),
    "the optimizer's closure runs the model": traceback(
        TRAINS,
        (f"{SITE}/torch/optim/adamw.py", "step", "loss = closure()"),
        (f"{SITE}/lightning/pytorch/strategies/strategy.py", "training_step", "return self.model(*args)"),
    ),
    "what a logger says behind a traceback of loading": LOADING["to the GPU"].replace(OUT, "KeyError: 'x'\n")
    + "loss.backward() begins\nERROR: "
    + OUT,
    "an earlier traceback is of loading": LOADING["to the GPU"].replace(OUT, "KeyError: 'x'\n")
    + traceback(TRAINS, (f"{SITE}/torch/nn/functional.py", "softmax", "ret = input.softmax(dim)")),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "phase", "meant", "advised"),
    [
        *((text, "loading", "weights were brought onto it", "ZeRO-3 that from_pretrained knows of") for text in LOADING.values()),
        *((text, "states", "the optimizer asked for its states", "partition more: ZeRO-3 or FSDP") for text in STATES.values()),
        *((text, "saving", "was saved", "stage3_gather_16bit_weights_on_model_save: false") for text in SAVING.values()),
    ],
    ids=[*LOADING, *STATES, *SAVING],
)  # fmt: skip
def test_memory_that_ran_out_beside_the_steps_is_answered_with_what_helps_there(
    text: str, phase: str, meant: str, advised: str, diagnose: Any
) -> None:
    found = diagnose(text)
    assert (found.cause.id, found.details.get("phase")) == ("device_oom", phase)
    assert meant in found.meaning and advised in found.remedy
    assert not any(words in found.remedy for words in ("micro batch", "recompute", "shorter sequences"))


@pytest.mark.parametrize("text", STEP.values(), ids=STEP)
def test_memory_that_ran_out_in_a_step_is_answered_as_before(text: str, diagnose: Any) -> None:
    found = diagnose(text)
    assert found.cause.id == "device_oom" and "phase" not in found.details
    assert "halve the micro batch" in found.remedy


def test_what_others_hold_counts_more_than_the_part_of_the_work(diagnose: Any) -> None:
    full = LOADING["to the GPU"].replace(
        "Including non-PyTorch memory, this process has 38.20",
        "Process 7 has 36.00 GiB memory in use. Including non-PyTorch memory, this process has 2.00",
    )
    found = diagnose(full.replace("37.50 GiB is allocated", "1.50 GiB is allocated"))
    assert "in the hands of other processes" in found.meaning and "from_pretrained" not in found.remedy


def test_a_partitioned_run_is_told_to_offload_its_states(diagnose: Any) -> None:
    found = diagnose("zero_optimization_stage ...... 3\n" + STATES["Adam"])
    assert "ZeRO-3" not in found.remedy and found.remedy.startswith("offload to the host")


@pytest.mark.parametrize("phase", ["loading", "states", "saving"])
def test_a_run_of_ours_keeps_its_batch_there(phase: str) -> None:
    facts = {"phase": phase, "capacity": "79.10 GiB", "allocated": "78.00 GiB", "asked": "1.00 GiB", "free": "0.10 GiB"}
    plan = planned("delta", "z1", gpus_per_node=4, micro_batch_size=4, model="llama2-7b").plan
    lines = device_oom(Case(plan=plan, facts=facts))
    assert lines[0].startswith("--method z3  (partition parameters, gradients and optimizer states")
    assert not any("micro-batch" in line or "sequence-length" in line or "recompute" in line for line in lines), lines
    [said] = device_oom(Case(plan=make_plan("z3o"), facts=facts))
    assert "for you to decide" in said and "--micro" not in said
