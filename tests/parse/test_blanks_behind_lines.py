"""Lines with blanks or a carriage return behind them, as some programs print them and as terminals and copies leave them: they say the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading

MLPERF = "".join(
    f':::MLLOG {{"namespace": "", "time_ms": {time}, "event_type": "{event}", "key": "{key}", "value": {value}, "metadata": {meta}}}\n'
    for time, event, key, value, meta in (
        (1000, "POINT_IN_TIME", "submission_benchmark", '"llama2_70b_lora"', "{}"),
        (1000, "POINT_IN_TIME", "global_batch_size", 8, "{}"),
        (2000, "INTERVAL_START", "run_start", "null", "{}"),
        (4000, "POINT_IN_TIME", "train_loss", 1.5, '{"samples_count": 8, "lr": 0.0004}'),
        (6000, "POINT_IN_TIME", "train_loss", 1.25, '{"samples_count": 16, "lr": 0.0003}'),
        (7000, "POINT_IN_TIME", "eval_accuracy", 0.925, '{"samples_count": 16}'),
        (8000, "INTERVAL_END", "run_stop", "null", '{"samples_count": 16, "status": "success"}'),
    )
)
DEEPSPEED = "".join(
    f"[2026-01-01 10:00:00,000] [INFO] [config.py:1003:print]   {name:30} {value}\n"
    for name, value in (("world_size", 8), ("train_batch_size", 16), ("train_micro_batch_size_per_gpu", 2))
) + "".join(
    f"[2026-01-01 10:00:0{n},000] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n"
    f"[2026-01-01 10:00:0{n},000] [INFO] [timer.py:260:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=8.0, "
    "CurrSamplesPerSec=8.0, MemAllocated=1.5GB, MaxMemAllocated=2.5GB\n"
    for n in range(1, 6)
)
COMPOSER = "".join(
    f"[batch={n}/8]:\n\t Train time/batch: {n - 1}\n\t Train loss/train/total: {9 - n / 8}\n\t Train trainer/device_train_microbatch_size: 4\n"
    for n in range(1, 5)
)
UNSLOTH = (
    "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 1\n"
    "   \\\\   /|    Num examples = 100 | Num Epochs = 1 | Total steps = 4\n"
    "O^O/ \\_/ \\    Batch size per device = 2 | Gradient Accumulation steps = 4\n"
    "\\        /    Total batch size = 8 | Number of trainable parameters = 1000\n"
    + "".join(f"{{'loss': {2 - n / 8}, 'learning_rate': 1e-05, 'epoch': {n / 4}}}\n" for n in range(1, 5))
)
EXAMPLES = {"mlperf": MLPERF, "deepspeed": DEEPSPEED, "composer": COMPOSER, "unsloth": UNSLOTH}


@pytest.mark.parametrize("behind", [" ", "   ", "\t", "\r", " \r"])
@pytest.mark.parametrize("program", EXAMPLES)
def test_they_give_the_same_figures(program: str, behind: str, read: Callable[..., Reading]) -> None:
    text = EXAMPLES[program]
    assert read(text.replace("\n", f"{behind}\n")).rows == read(text).rows
    assert read(text.replace("\n", f"{behind}\n").rstrip("\n")).rows == read(text).rows


def test_a_submission_with_them_has_its_figures(read: Callable[..., Reading]) -> None:
    (row,) = read(MLPERF.replace("\n", " \n")).rows
    assert (row.format, row.outcome, row.global_batch_size, row.elapsed_s) == ("mlperf", "COMPLETED", 8, 6.0)
    assert (row.loss_first, row.loss_last, row.eval_loss) == (1.5, 1.25, 0.925)
