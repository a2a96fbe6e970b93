"""Unsloth's banner, in the words of its older and newer releases."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading

OLD = r"""==((====))==  Unsloth 2024.8: Fast Llama patching. Transformers = 4.43.3.
   \\   /|    GPU: Tesla T4. Max memory: 14.748 GB. Platform = Linux.
==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 1
   \\   /|    Num examples = 4,000 | Num Epochs = 1
O^O/ \_/ \    Batch size per device = 2 | Gradient Accumulation steps = 4
\        /    Total batch size = 8 | Total steps = 60
 "-____-"     Number of trainable parameters = 41,943,040
"""
NEW = r"""==((====))==  Unsloth 2025.6.2: Fast Llama patching. Transformers: 4.52.4.
   \\   /|    NVIDIA L4. Num GPUs = 1. Max memory: 22.161 GB. Platform: Linux.
==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1
   \\   /|    Num examples = 4,000 | Num Epochs = 1 | Total steps = 60
O^O/ \_/ \    Batch size per device = 2 | Gradient accumulation steps = 4
\        /    Data Parallel GPUs = 1 | Total batch size (2 x 4 x 1) = 8
 "-____-"     Trainable parameters = 41,943,040 of 8,072,204,288 (0.52% trained)
"""
TRAINED = (
    "{'loss': 1.8, 'grad_norm': 0.6, 'learning_rate': 4e-05, 'epoch': 0.0}\n"
    "{'loss': 0.9, 'grad_norm': 0.3, 'learning_rate': 0.0, 'epoch': 0.12}\n"
    "{'train_runtime': 480.0, 'train_samples_per_second': 1.0, 'train_steps_per_second': 0.125, 'train_loss': 1.1, 'epoch': 0.12}\n"
    "Peak reserved memory = 7.5 GB.\nPeak reserved memory for training = 1.5 GB.\n"
)


@pytest.mark.parametrize("banner", [OLD, NEW])
def test_the_banner_says_the_batch_and_the_steps(banner: str, read: Callable[..., Reading]) -> None:
    (row,) = read(banner + TRAINED).rows
    batch = (row.micro_batch_size, row.gradient_accumulation_steps, row.global_batch_size, row.world_size)
    assert (row.format, *batch) == ("unsloth", 2, 4, 8, 1)
    assert (row.measured_steps, row.step_time_s_mean) == (60, 8.0)
    assert row.peak_reserved_bytes == 7.5 * 2**30
    assert row.gpu == ("T4" if banner is OLD else None)


def test_a_second_banner_begins_another_run(read: Callable[..., Reading]) -> None:
    first, second = read(OLD + TRAINED + OLD.replace("device = 2", "device = 4") + TRAINED).rows
    assert (first.micro_batch_size, second.micro_batch_size) == (2, 4)


def notebook(*cells: str) -> str:
    outputs = [[{"output_type": "stream", "name": "stdout", "text": cell}] for cell in cells]
    return json.dumps({"cells": [{"cell_type": "code", "outputs": one} for one in outputs], "nbformat": 4})


DEEPSPEED = (
    "[2025-01-01 10:00:00,000] [INFO] [real_accelerator.py:161:get_accelerator] Setting ds_accelerator to cuda\n"
)
TRAINER = "***** Running training *****\n  Total optimization steps = 60\n"


def test_the_peak_that_the_next_cell_prints_is_the_trainings(read: Callable[..., Reading]) -> None:
    trained, peak = TRAINED.split("Peak", 1)
    for cells in ((OLD + trained, f"Peak{peak}"), (OLD + trained, "trained\n", f"Peak{peak}", "an answer\n")):
        (row,) = read(notebook(*cells), "job.ipynb").rows
        assert (row.peak_reserved_bytes, row.outcome) == (7.5 * 2**30, "COMPLETED")
    above = read(notebook(f"Peak{peak}", OLD + trained), "job.ipynb").rows[-1]
    assert (above.outcome, above.peak_reserved_bytes) == ("COMPLETED", None)


@pytest.mark.parametrize(
    ("before", "training"),
    [
        (OLD.split("==((", 2)[1], OLD.split("==((", 2)[2]),
        (NEW.split("==((", 2)[1], NEW.split("==((", 2)[2]),
        (DEEPSPEED, TRAINER),
    ],
    ids=["old", "new", "DeepSpeed"],
)
def test_a_cell_that_only_says_how_it_is_set_up_is_no_run(
    before: str, training: str, read: Callable[..., Reading]
) -> None:
    cells = [f"==(({text}" if text.startswith("====))==") else text for text in (before, training)]
    (row,) = read(notebook(cells[0], cells[1] + TRAINED), "job.ipynb").rows
    assert (row.measured_steps, row.outcome) == (60, "COMPLETED")
    (alone,) = read(notebook(cells[0]), "job.ipynb").rows
    assert alone.outcome == "UNKNOWN"
    first, second = read(
        notebook(f"{cells[0]}torch.OutOfMemoryError: CUDA out of memory.\n", cells[1] + TRAINED), "job.ipynb"
    ).rows
    assert (first.outcome, second.outcome) == ("OOM_DEVICE", "COMPLETED")
