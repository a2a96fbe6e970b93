"""What a log shows to be set already is not advised, nor what is set as low as it goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free. "
    "Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the allocated memory 60.00 GiB is allocated by PyTorch, and "
    "15.20 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
)
HALVE, RECOMPUTE, PARTITION, OFFLOAD, PIECES = "halve the micro batch", "recompute activations", "partition more", "offload to the host: ", "export PYTORCH_CUDA_ALLOC_CONF"  # fmt: skip
ALL = {HALVE, RECOMPUTE, PARTITION, PIECES}
STATED = {
    "Trainer, least batch": ("  Instantaneous batch size per device = 1\n", ALL - {HALVE}),
    "Trainer, larger batch": ("  Instantaneous batch size per device = 8\n", ALL),
    "Unsloth": ("O^O/ \\_/ \\    Batch size per device = 1 | Gradient Accumulation steps = 4\n", ALL - {HALVE}),
    "DeepSpeed, least batch": ("[INFO] [config.py:1000:print]   train_micro_batch_size_per_gpu  1\n", ALL - {HALVE}),
    "Megatron, least batch": ("  micro_batch_size ................................ 1\n", ALL - {HALVE}),
    "Megatron, 16": ("  micro_batch_size ................................ 16\n", ALL),
    "torchtitan": ("Trainer is initialized with local batch size 1, global batch size 64, sequence length 8192\n", ALL - {HALVE}),
    "two words on it": ("train_micro_batch_size_per_gpu: 1\n  Instantaneous batch size per device = 4\n", ALL),
    "evaluation's": ("per_device_eval_batch_size=1\n", ALL),
    "Trainer recomputes": ("`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.\n", ALL - {RECOMPUTE}),
    "switched on": ("gradient_checkpointing=True,\n", ALL - {RECOMPUTE}),
    "switched off": ("gradient_checkpointing=False,\n", ALL),
    "Megatron recomputes": ("  recompute_granularity ........................... full\n", ALL - {RECOMPUTE}),
    "ZeRO-3": ("  zero_optimization_stage ...... 3\n", ALL - {PARTITION} | {OFFLOAD}),
    "ZeRO-2": ("  zero_optimization_stage ...... 2\n", ALL),
    "FSDP": ("+ accelerate launch train.py --fsdp full_shard\n", ALL - {PARTITION} | {OFFLOAD}),
    "ZeRO-3, all offloaded": (
        "zero_optimization_stage ...... 3\nzero_config ... stage=3 offload_param=DeepSpeedZeroOffloadParamConfig(device='cpu', nvme_path=None) "
        "offload_optimizer=DeepSpeedZeroOffloadOptimizerConfig(device='cpu', nvme_path=None)\n",
        ALL - {PARTITION},
    ),
    "JSON": (
        '"zero_optimization": {\n  "stage": 3,\n  "offload_optimizer": {\n    "device": "cpu"\n  },\n  "offload_param": {\n    "device": "nvme"\n  }\n}\n',
        ALL - {PARTITION},
    ),
    "offload to nowhere": ('"stage": 3, "offload_param": {"device": "none"}, "offload_optimizer": {"device": "cpu"}\n', ALL - {PARTITION} | {OFFLOAD}),
    "pieces": ("+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", ALL - {PIECES}),
    "pieces, new name": ("PYTORCH_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True\n", ALL - {PIECES}),
    "pieces, off": ("+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n", ALL),
    "nothing": ("", ALL),
}  # fmt: skip


@pytest.mark.parametrize("stated", STATED)
def test_what_the_log_shows_to_be_set_is_not_advised(stated: str, diagnose: Diagnose) -> None:
    said, advised = STATED[stated]
    remedy = diagnose(said + "    loss.backward()\n" + OOM).remedy.splitlines()
    found = {begin for begin in ALL | {OFFLOAD} if any(line.startswith(begin) for line in remedy)}
    assert found == advised, remedy
    assert remedy[-1] == "shorter sequences, or more GPUs"


def test_what_an_earlier_run_of_the_log_had_says_nothing_of_the_last(diagnose: Diagnose) -> None:
    run = "***** Running training *****\n  Num examples = 64\n  Instantaneous batch size per device = {}\n  Total optimization steps = 2\n{}"
    steps = "{'loss': 1.9, 'grad_norm': 0.5, 'learning_rate': 4e-05, 'epoch': 0.5}\n{'loss': 1.8, 'grad_norm': 0.5, 'learning_rate': 4e-05, 'epoch': 1.0}\n"
    ended = "{'train_runtime': 21.0, 'train_samples_per_second': 7.62, 'train_steps_per_second': 0.9, 'train_loss': 1.2, 'epoch': 1.0}\n"
    assert HALVE in diagnose(run.format(1, steps + ended) + run.format(8, OOM)).remedy


@pytest.mark.parametrize(
    "function", ["evaluate", "evaluation_loop", "prediction_step", "torch_pad_and_concatenate", "validation_step"]
)
def test_memory_that_ran_out_in_an_evaluation_is_saved_there(function: str, diagnose: Diagnose) -> None:
    frames = f'Traceback (most recent call last):\n  File "/env/transformers/trainer.py", line 38, in {function}\n    output = run(\n'
    remedy = diagnose(frames + OOM).remedy
    assert "eval_accumulation_steps" in remedy and HALVE not in remedy
    assert HALVE in diagnose(frames.replace(function, "training_step") + OOM).remedy


@pytest.mark.parametrize("function", ["evaluation_loop", "nested_concat", "numpy_pad_and_concatenate"])
def test_results_of_an_evaluation_that_the_host_does_not_hold_are_kept_smaller(
    function: str, diagnose: Diagnose
) -> None:
    """logs/training-TinyLlama-1.5B-sl-2048-no-ds-eval.log of ydhira/finetuning_hubert_llama."""
    frames = f'Traceback (most recent call last):\n  File "/env/transformers/trainer.py", line 38, in {function}\n    output = run(\n'
    error = "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 78.3 GiB for an array with shape (320, 2048, 32090) and data type float32\n"
    found = diagnose(frames + error)
    assert (found.cause.id, "preprocess_logits_for_metrics" in found.remedy) == ("host_oom", True)
    assert "--mem" not in found.remedy and "offload" not in found.remedy
    assert "--mem" in diagnose(frames.replace(function, "_inner_training_loop") + error).remedy


OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 39.39 GiB total capacity; 20.00 GiB already allocated; "
    "1.00 GiB free; 36.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.\n"
)


@pytest.mark.parametrize(
    ("said", "is_advised"),
    [
        ("", True),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512\n", False),
        ("environ({'PYTORCH_CUDA_ALLOC_CONF': 'garbage_collection_threshold:0.6,max_split_size_mb:64'})\n", False),
        ("+ export PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8\n", True),
    ],
)
def test_pieces_of_a_size_that_the_log_shows_are_not_advised(said: str, is_advised: bool, diagnose: Diagnose) -> None:
    assert ("max_split_size_mb" in diagnose(said + "    loss.backward()\n" + OLD).remedy) is is_advised


ASSERTED = (
    "RuntimeError: CUDA error: device-side assert triggered\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n"
)


@pytest.mark.parametrize(("said", "is_advised"), [("", True), ("+ export CUDA_LAUNCH_BLOCKING=1\n", False)])
def test_a_variable_that_the_script_set_is_not_advised(said: str, is_advised: bool, diagnose: Diagnose) -> None:
    remedy = diagnose(said + "Assertion `t >= 0 && t < n_classes` failed.\n" + ASSERTED).remedy
    assert ("export CUDA_LAUNCH_BLOCKING=1" in remedy) is is_advised and "num_classes" in remedy
