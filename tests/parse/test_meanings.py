"""Figures that mean different things in different logs: taken where the log says which, else left empty and told."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from hpc_llm.parsing import Row

GIB = 1 << 30


def trainer(rate: float, tokens: int | None, batch: int, runtime: float = 2.0, line: bool = True) -> str:
    """A Trainer's log on `batch` devices; its last figures stand in a line of training, or in the summary."""
    seen = "" if tokens is None else f", 'num_input_tokens_seen': {tokens}"
    figures = f"'train_runtime': {runtime}, 'train_tokens_per_second': {rate}"
    first = f"{{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5{seen}, {figures}}}\n"
    summary = f"{{{figures}, 'train_steps_per_second': {10 / runtime}, 'train_loss': 2.4, 'epoch': 1.0{seen}}}\n"
    return (
        "***** Running training *****\n  Instantaneous batch size per device = 1\n  Gradient Accumulation steps = 1\n"
        f"  Total train batch size (w. parallel, distributed & accumulation) = {batch}\n  Total optimization steps = 10\n"
        + (first if line else summary)
    )


@pytest.mark.parametrize("line", [True, False])
@pytest.mark.parametrize(
    ("rate", "tokens", "batch", "total", "per_gpu"),
    [
        (5000.0, 10_000, 2, 5000.0, None),  # all devices'
        (2500.0, 10_000, 2, None, 2500.0),  # one device's
        (700.0, 10_000, 2, None, None),  # neither
        (5000.0, 10_000, 1, 5000.0, 5000.0),  # there is one device
        (700.0, None, 1, 700.0, 700.0),
    ],
)
def test_the_tokens_seen_tell_what_the_trainers_rate_counts(read, line, rate, tokens, batch, total, per_gpu):
    found = read(trainer(rate, tokens, batch, line=line))
    row = found.rows[0]
    assert (row.tokens_per_second, row.tokens_per_second_per_gpu) == (total, per_gpu)
    assert bool(found.left_empty) == (total is None and per_gpu is None)


def test_a_trainers_rate_without_the_tokens_seen(read):
    line, summary = read(trainer(2500.0, None, 2)), read(trainer(2500.0, None, 2, line=False))
    assert line.rows[0].tokens_per_second_per_gpu is None
    assert "train_tokens_per_second" in line.left_empty[0]
    assert summary.rows[0].tokens_per_second_per_gpu == 2500.0, "the summary's is one device's, its option says"


def test_a_resumed_runs_tokens_are_not_of_its_time(read):
    text = trainer(5000.0, 10_000, 2).replace("{'loss'", "  Continuing training from global step 5\n{'loss'")
    assert read(text).rows[0].tokens_per_second is None


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize(
    ("said", "counts_gpus"),
    [
        ("  Training with DataParallel so batch size has been adjusted to: 32\n", True),
        (
            "x/_functions.py:71: UserWarning: Was asked to gather along dimension 0, but all input tensors were scalars; will\n",
            True,
        ),
        (
            "Process rank: 0, device: cuda:0, n_gpu: {gpus}, distributed training: False, 16-bits training: False\n",
            True,
        ),
        ("Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: True, 16-bits training: False\n", False),
    ],
)
def test_a_process_that_drives_all_gpus_counts_the_tokens_of_all(read, said, counts_gpus, gpus):
    batch = "  Instantaneous batch size per device = 1\n"
    row = read(
        trainer(4000.0, None, gpus, line=False).replace(batch, batch + said.format(gpus=gpus))
        if "rank" not in said
        else said.format(gpus=gpus) + trainer(4000.0, None, gpus, line=False)
    ).rows[0]
    total, per_gpu = (4000.0, 4000.0 / gpus) if counts_gpus else (None, 4000.0)
    assert (row.tokens_per_second, row.tokens_per_second_per_gpu) == (total, per_gpu)


def test_gpus_of_a_process_are_those_of_its_own_run(read):
    one = trainer(4000.0, None, 4, line=False)
    named = "Process rank: 0, device: cuda:0, n_gpu: {}, distributed training: {}, 16-bits training: False\n"
    line = "{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    one = one.replace("{'train_runtime'", line + "{'train_runtime'")
    rows = read(named.format(4, False) + one + named.format(1, True) + one).rows
    assert [row.tokens_per_second_per_gpu for row in rows] == [1000.0, 4000.0]


def bars(pause: str, every: int = 10, last: int = 100, extra_s: int = 60) -> str:
    """Lines and progress bars of steps of 2 s; after step 50 `pause` takes a minute."""
    text = ""
    for step in range(every, last + 1, every):
        at = 2 * step + (extra_s if step > 50 and pause else 0)
        text += (
            f"{{'loss': {5 - step / 100}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {step / 100}}}\n"
            f" {step}%|#####     | {step}/100 [{at // 60:02}:{at % 60:02}<01:00,  2.00s/it]\n"
            + (pause if step == 50 else "")
        )
    return text + f"{{'train_runtime': {2 * last + extra_s}.0, 'train_steps_per_second': 0.4, 'epoch': 1.0}}\n"


PAUSES = [
    "{'eval_loss': 2.25, 'eval_runtime': 60.1, 'eval_samples_per_second': 16.1, 'epoch': 0.5}\n",
    "***** Running Evaluation *****\n",
    "[INFO|trainer.py:3503] 2026-01-02 03:04:05,332 >> Saving model checkpoint to out/checkpoint-50\n",
]


@pytest.mark.parametrize("pause", PAUSES)
def test_a_trainers_step_time_is_without_evaluations_and_checkpoints(row, pause):
    found = row(bars(pause))
    assert (found.step_time_s_mean, found.measured_steps) == (2.0, 80), "the lines before and after step 50 are apart"


def test_a_trainers_step_time_that_lines_do_not_give(read):
    text = bars(PAUSES[0])
    found = read("".join(line for line in text.splitlines(keepends=True) if "%|" not in line) + "\n")
    assert found.rows[0].step_time_s_mean is None
    assert "step time" in found.left_empty[0]


def test_a_trainers_rate_over_evaluations_is_left_empty(read):
    text = trainer(5000.0, 10_000, 2).replace("{'loss'", PAUSES[0] + "{'loss'")
    found = read(text)
    assert (found.rows[0].tokens_per_second, found.rows[0].tokens_per_second_per_gpu) == (None, None)
    assert "tokens/s" in found.left_empty[0]


def test_llama_factory_between_its_evaluations(row):
    def line(step: int, time: int, **more: object) -> str:
        record = {
            "current_steps": step,
            "total_steps": 100,
            **more,
            "elapsed_time": f"0:{time // 60:02}:{time % 60:02}",
        }
        return json.dumps(record) + "\n"

    text = ""
    for step in range(10, 101, 10):
        at = 2 * step + (60 if step > 50 else 0)
        text += line(step, at, loss=3.0 - step / 100, throughput=500.0 * step / at, total_tokens=1000 * step)
        text += line(step, at + 60, eval_loss=1.75) if step == 50 else ""
    found = row(text)
    assert (found.step_time_s_mean, found.tokens_per_second, found.measured_steps) == (2.0, 500.0, 80)
    assert (found.eval_loss, found.loss_last, found.outcome) == (1.75, 2.0, "COMPLETED")


NANO = "tokens per iteration will be: 1,000\n" + "".join(
    (f"step {i}: train loss 2.5, val loss 2.75\n" if i % 50 == 0 else "")
    + f"iter {i}: loss 2.5, time {9000 if i % 50 == 0 else 500}.00ms, mfu 10.00%\n"
    for i in range(0, 101, 10)
)


@pytest.mark.parametrize("end", ["", ".", ", best 2.5", '\\n", "stream": "stdout"}', "'"])
def test_an_evaluation_of_nanogpt_is_seen_whatever_stands_behind_its_loss(read, end):
    wrapped = NANO.replace("val loss 2.75", f"val loss 2.75{end}")
    found, plain = read(wrapped).rows[0], read(NANO).rows[0]
    assert (found.step_time_s_mean, found.measured_steps, found.eval_loss) == (0.5, plain.measured_steps, 2.75)


MEGATRON = "".join(
    f" iteration {i}/ 100 | consumed samples: 40 | elapsed time per iteration (ms): {9000 if i in (51, 81) else 500}.0 |"
    f" learning rate: 1E-08 | global batch size: 16 | lm loss: 2.5E+00 | number of skipped iterations: 0 |\n"
    + (" validation loss at iteration 50 | lm loss value: 7.5E+00 | lm loss PPL: 1.8E+03 | \n" if i == 50 else "")
    + ("saving checkpoint at iteration      80 to ckpt\n" if i == 80 else "")
    for i in range(41, 101)
)
TITAN = "[titan] Starting job: x\n" + "".join(
    f"[titan] step: {i:2}  loss: 2.5  memory: 2.50GiB(1.1%)  tps: {100 if i in (60, 80) else 2000}\n"
    + (
        "[titan] validate step: 50  loss:  6.0\n"
        if i == 50
        else "[titan] Saving the checkpoint (or staging).\n"
        if i == 70
        else ""
    )
    for i in range(10, 101, 10)
)


def test_the_line_after_an_evaluation_or_a_checkpoint_is_not_measured(row, steps):
    assert row(NANO).step_time_s_mean == 0.5
    assert (row(MEGATRON).step_time_s_mean, row(MEGATRON).step_time_s_p90) == (0.5, 0.5)
    assert row(MEGATRON).measured_steps == 57
    assert row(TITAN).tokens_per_second_per_gpu == 2000.0
    assert {s.step_time_s for s in steps(MEGATRON)} == {0.5, None}
    assert row("".join(NANO.splitlines(keepends=True)[:3])).step_time_s_mean is None, (
        "its only step holds an evaluation"
    )


@pytest.mark.parametrize(
    ("gpu", "mfu"), [("NVIDIA A100-SXM4-80GB", 0.1), ("NVIDIA H100 80GB HBM3", None), (None, None)]
)
def test_nanogpts_utilisation_is_an_a100s(read, gpu, mfu):
    table = f"| Bus-Id |\n|   0  {gpu}          On  | 00000000:07:00.0 Off |\n" if gpu else ""
    found = read(table + NANO)
    assert found.rows[0].mfu == mfu
    assert ("mfu" in "".join(found.left_empty)) == (mfu is None)


ENGINE = (
    "[INFO] [timer.py:264:stop] epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=15.5, CurrSamplesPerSec=15.5, "
    "MemAllocated={1}GB, MaxMemAllocated={2}GB\n"
)
ON_CPU = [
    "[WARNING] [real_accelerator.py:213:get_accelerator] Setting accelerator to CPU. If you have GPU or other accelerator\n",
    "[INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cpu (auto detect)\n",
    "[INFO] [comm.py:821:init_distributed] Initializing TorchBackend in DeepSpeed with backend gloo\n",
]
ON_GPU = [
    "[INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cuda (auto detect)\n",
    "[INFO] [comm.py:821:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl\n",
]


@pytest.mark.parametrize("says", [*ON_CPU, *ON_GPU, ""])
def test_deepspeeds_memory_is_the_processs_on_a_cpu(read, steps, says):
    text = says + "".join(ENGINE.format(i, 1.0, 1.0) for i in (1, 2, 3))
    found = read(text)
    row = found.rows[0]
    expected = {True: (None, GIB), False: (GIB, None)}[says in ON_CPU] if says else (None, None)
    assert (row.peak_allocated_bytes, row.peak_host_bytes) == expected
    assert {s.peak_allocated_bytes for s in steps(text)} == {expected[0]}
    assert bool(found.left_empty) == (not says)


def test_deepspeeds_memory_that_falls_between_steps_is_a_devices(row):
    assert row("".join(ENGINE.format(i, 1.0, 2.5) for i in (1, 2))).peak_allocated_bytes == 2.5 * GIB


def test_each_row_says_what_was_measured(row):
    serving = "============ Serving Benchmark Result ============\nSuccessful requests:       10\nTotal Token throughput (tok/s):   100.0\n"
    assert row(serving).kind == "infer"
    assert row(json.dumps({"tokens_per_second": 5.0, "elapsed_time": 2.0, "num_requests": 3})).kind == "infer"
    assert row(NANO).kind == row(MEGATRON).kind == row(bars("")).kind == "train"
    assert row(PAUSES[0]).kind == "eval"
    assert row(PAUSES[1] + PAUSES[0]).kind == "eval"
    assert (
        row("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n").kind is None
    )


@pytest.mark.parametrize("says", ["max_iters = 100 # total\n", "Overriding: max_iters = 100\n"])
def test_nanogpt_that_made_all_its_steps_completed(row, says):
    assert (row(says + NANO).outcome, row(says.replace("100", "200") + NANO).outcome) == ("COMPLETED", "UNKNOWN")


@pytest.mark.parametrize("why", ["", " DUE TO TIME LIMIT", " DUE TO PREEMPTION"])
def test_a_job_that_is_taken_down_after_training_completed_whoever_did_it(row, why):
    down = f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00{why} ***\n"
    found = row(bars("") + down)
    assert (found.outcome, found.cause) == ("COMPLETED", "none")
    assert "training had ended before" in str(found.outcome_reason)


def megatron_deepspeed(arguments: str, rate: str) -> str:
    line = (
        " iteration  {}/  9 | elapsed time per iteration (ms): 100.0 | global batch size: 8 | lm loss: 2.5E+00 | {} |\n"
    )
    return arguments + "".join(line.format(i, rate) for i in range(1, 10)) + "[after training is done]\n"


ARGUMENT = "  {} .......... {}\n"
METHOD = ARGUMENT.format("recompute_method", "{}")
ONCE, TWICE = ARGUMENT.format("checkpoint_activations", "False"), ARGUMENT.format("checkpoint_activations", "True")


@pytest.mark.parametrize(
    ("arguments", "rate", "takes"),
    [
        ("", "TFLOPs: 69.5", None),
        (TWICE, "TFLOPs: 69.5", None),
        (ONCE + ARGUMENT.format("recompute_granularity", "selective"), "TFLOPs: 69.5", None),
        (ONCE + ARGUMENT.format("recompute_granularity", "None"), "TFLOPs: 69.5", 69.5),
        (ONCE, "TFLOPs: 69.5", 69.5),
        # Another process wrote into the line, or over its name.
        (ONCE + ARGUMENT.format("recompute_granularity", "fulltorch version ... 2.1"), "TFLOPs: 69.5", None),
        (ONCE + ARGUMENT.format("recompute_granularity", "Nonetorch version ... 2.1"), "TFLOPs: 69.5", None),
        (ONCE + ARGUMENT.format("recompute_granu[INFO] larity", "full") + METHOD.format("None"), "TFLOPs: 69.5", None),
        (ONCE + ARGUMENT.format("recompute_granularity", "None") + METHOD.format("None"), "TFLOPs: 69.5", 69.5),
        (ARGUMENT.format("checkpoint_activations", "Falsetorch version"), "TFLOPs: 69.5", None),
        ("", "approx flops per GPU: 69.5TFLOPS", None),
        (ONCE, "approx flops per GPU: 69.5TFLOPS", None),
        ("", "[LM]-TFLOPs=69.5", None),
        (TWICE, "throughput per GPU (TFLOP/s/GPU): 69.5", 69.5),
        (TWICE, "TFLOPs: 92.5 | throughput per GPU (TFLOP/s/GPU): 69.5", 69.5),
    ],
)
def test_megatrons_teraflops_are_the_models_where_nothing_is_computed_twice(read, arguments, rate, takes):
    found = read(megatron_deepspeed(arguments, rate))
    assert found.rows[0].model_tflops_per_gpu == takes
    assert ("TFLOP/s" in "".join(found.left_empty)) == (takes is None)
    assert found.rows[0].step_time_s_mean == 0.1


@pytest.mark.parametrize(("varies", "rate"), [("False", 8 * 512 / 0.1), ("True", None), ("Truetorch version", None)])
def test_megatrons_samples_are_full_sequences_unless_it_says_that_lengths_vary(read, varies, rate):
    arguments = (
        ARGUMENT.format("seq_length", "512")
        + ARGUMENT.format("world_size", "8")
        + ARGUMENT.format("variable_seq_lengths", varies)
    )
    found = read(megatron_deepspeed(arguments, "TFLOPs: 69.5"))
    assert found.rows[0].tokens_per_second == (rate and pytest.approx(rate))
    assert ("lengths" in "".join(found.left_empty)) == (rate is None)


@pytest.mark.parametrize(
    ("shown", "ranks"),
    [
        ("", 2),  # nothing shares a batch: as many as there are
        (
            "Using topology: {"
            + ", ".join(f"ProcessCoord(pipe={i // 2}, data={i % 2}): {i}" for i in range(8))
            + "}\n",
            8,
        ),
        ("RANK=0 STAGE=0 LAYERS=12 [0, 12) STAGE_PARAMS=1\n", None),
        ("[2024-05-01 10:00:00,001] [INFO] [config.py:1002:print]   autotp_size .................. 4\n", None),
        ("{'sequence_parallel_size': 4}\n", None),
        ("[2024-05-01 10:00:00,001] [INFO] [config.py:1002:print]   autotp_size .................. 0\n", 2),
    ],
)
def test_deepspeeds_world_size_is_that_of_data_parallelism(read, shown, ranks):
    config = "[2024-05-01 10:00:00,001] [INFO] [config.py:1002:print]   {} {}\n"
    text = (
        shown + config.format("train_batch_size .............", 64) + config.format("world_size ...................", 2)
    )
    text += "[2024-05-01 10:00:00,001] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[2e-05], mom=[(0.9, 0.95)]\n"
    found = read(text)
    assert found.rows[0].world_size == ranks
    assert bool(found.left_empty) == (ranks is None)


def test_what_was_printed_of_the_warm_up_alone_is_no_mean(row):
    line = "[titan] 2025-10-01 10:00:00,123 - root - INFO - step: {}  loss:  8.0  memory: 38.40GiB(48.54%)  tps: {}  tflops: 18.06  mfu: {}\n"
    found = row(line.format(1, 312, "1.83%") + "".join(line.format(step, 7000, "N/A") for step in (10, 20, 30)))
    assert (found.mfu, found.tokens_per_second_per_gpu) == (None, 7000.0)


@pytest.mark.parametrize(
    "test", [" validation loss at iteration 500 on test set", "validation loss at the end of training for test data"]
)
def test_megatrons_loss_of_the_test_set_is_no_validations(row, test):
    text = (
        " iteration 500/ 500 | elapsed time per iteration (ms): 2000.0 | global batch size: 256 | lm loss: 5.0E+00 |\n"
    )
    text += " validation loss at iteration 500 on validation set | lm loss value: 2.1E+00 | lm loss PPL: 8.1E+00 | \n"
    found = row(text + f"{test} | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 | \n")
    assert (found.eval_loss, found.perplexity) == (2.1, 8.1)


def test_training_that_prints_only_its_evaluations_is_training(row):
    text = "INFO - __main__ - ***** Running training *****\nINFO - __main__ - epoch 0: perplexity: 12.1825 eval_loss: 2.5\n"
    assert row(text).kind == "train"
    assert row(text.splitlines()[1] + "\n").kind == "eval"


def test_where_a_bar_stops_is_a_part_of_an_epoch(row):
    text = "".join(
        f"Epoch 0:  0%|#| {i}/1000 [00:01<15:00,  2.50s/it, v_num=3, train_loss_step=8.9, val_loss=3.2]\n"
        for i in range(1, 300)
    )
    assert row(text).outcome_reason == "the log stops at epoch 0.299 without a message of an end"


def test_our_own_log_says_which_steps_its_time_is_of(row):
    text = "".join(
        f"[Step {i}/40] Loss: 5.0 | Global Tokens/s: 100.00 | GPU Mem (GB): n/a | Peak Mem: n/a\n" for i in range(1, 41)
    )
    end = "Training done in 7.00 seconds.\nAvg Global Tokens/s: 110.00\nPeak GPU Mem (GB): n/a\n"
    found = row(text + "Measured 35 steps after 5 of warm-up.\n" + end)
    assert (found.warmup_steps, found.measured_steps, found.elapsed_s, found.step_time_s_mean) == (5, 35, None, 0.2)
    found = row(text + end)
    assert (found.warmup_steps, found.measured_steps, found.elapsed_s) == (0, 40, 7.0), "the homework's own program"


def test_the_tokens_that_axolotl_counts_of_a_device_are_left_empty(read):
    steps = "".join(
        f"{{'loss': 1.{9 - n}, 'grad_norm': 0.5, 'memory/max_allocated (GiB)': 18.2, 'tokens_per_second_per_gpu': 2000.0, 'epoch': 0.{n}}}\n"
        for n in range(1, 5)
    )
    found = read(steps)
    assert (found.rows[0].format, found.rows[0].tokens_per_second, found.rows[0].tokens_per_second_per_gpu) == (
        "axolotl", None, None,
    )  # fmt: skip
    assert "axolotl" in found.left_empty[0]


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("steps: {n} loss: 8.9000 iter time (s): 2.500 samples/sec: 102.400\n", 8.9),
        ("steps: {n} loss: 8.9000 lm_loss: 2.2000 aux: 0.1000 iter time (s): 2.500 samples/sec: 102.400\n", 8.9),
        ("[2026-01-01 10:00:00.000] [INFO] step:    {n} /   100 loss: 8.9000 iter time (s): 2.500 samples/sec: 102.400 eta: 3m2s\n", 8.9),
        ("[rank0]: steps: {n} loss: 8.9000 iter time (s): 2.500 samples/sec: 102.400\n", 8.9),
    ],
)  # fmt: skip
def test_the_pipeline_engines_line_is_a_mean_over_the_steps_since_the_one_before(read, line, loss):
    found = read("".join(line.format(n=n) for n in range(10, 101, 10)))
    row = found.rows[0]
    assert (row.format, row.step_time_s_mean, row.measured_steps, row.loss_last) == (
        "deepspeed-pipeline",
        2.5,
        90,
        loss,
    )


def test_the_pipeline_engine_below_another_program_counts_its_steps_once(read):
    text = ""
    for n in range(10, 101, 10):
        text += f"steps: {n} loss: 8.9000 iter time (s): 2.500 samples/sec: 102.400\n"
        text += (
            f" iteration {n:8}/     100 | consumed samples: {256 * n} | elapsed time per iteration (ms): 2600.0 | learning rate: 1.0E-04 | "
            "global batch size:   256 | lm loss: 8.9E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )
    row = read(text).rows[0]
    assert (row.format, row.step_time_s_mean, row.measured_steps) == ("megatron", 2.6, 90)


CONFIG = "[2021-05-27 21:31:58,966] [INFO] [config.py:748:print]   world_size ................... 16\n"
ITERATION = (
    " iteration {:8}/  1000 | consumed samples: 768 | elapsed time per iteration (ms): 128441.9 | learning rate: 1.0E-04 | "
    "global batch size: 768 | lm loss: 1.2E+01 |\n"
)
TELLS = "using world size: 64, data-parallel-size: 16, tensor-model-parallel size: 4, pipeline-model-parallel size: 1\n"


@pytest.mark.parametrize(
    ("before", "world_size"),
    [("", None), (TELLS, 64), ("> initializing model parallel with size 4\n", None)],
)
@pytest.mark.parametrize("first", ["config", "iterations"])
def test_deepspeed_s_world_size_counts_no_ranks_where_megatron_may_have_them_share_layers(
    row: Callable[..., Row], before: str, world_size: int | None, first: str
) -> None:
    steps = "".join(ITERATION.format(step) for step in (1, 2, 3, 4))
    text = CONFIG + steps if first == "config" else steps[: steps.index("\n") + 1] + steps
    assert row(before + text).world_size == (world_size if first == "config" or before == TELLS else None)


def test_deepspeed_s_world_size_alone_is_that_of_the_ranks(row: Callable[..., Row]) -> None:
    step = "[2024-03-11 02:06:58,985] [INFO] [logging.py:69:log_dist] [Rank 0] step={}, skipped=2, lr=[5e-05], mom=[[0.9, 0.999]]\n"
    alone = CONFIG + "".join(step.format(number) for number in (10, 20, 30))
    assert row(alone).world_size == 16
    assert row("> initializing model parallel with size 4\n" + alone).world_size is None


ACCELERATOR = "[2026-01-01 10:00:00,318] [INFO] [real_accelerator.py:161:get_accelerator] Setting ds_accelerator to cuda (auto detect)\n"
ENGINE_STEP = "[2026-01-01 10:00:00,001] [INFO] [logging.py:107:log_dist] [Rank 0] step={0}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n"


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        (ACCELERATOR + "accepted 1.88 tokens a pass\n" * 9, "unknown", None),
        (ACCELERATOR * 4 + "Traceback (most recent call last):\n  File 'a.py', line 3, in f\nOSError: gone\n", "messages", None),
        (ACCELERATOR + "".join(map(ENGINE_STEP.format, range(1, 5))), "deepspeed", "train"),
        (ACCELERATOR + "[2026-01-01 10:00:00,001] [INFO] [config.py:954:print] DeepSpeedEngine configuration:\n", "deepspeed", None),
        (ACCELERATOR + "[2026-01-01 10:00:00,001] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed Basic Optimizer = FusedAdam\n", "deepspeed", "train"),
    ],
    ids=["inference", "an error", "steps", "an engine", "an optimizer"],
)  # fmt: skip
def test_whoever_imports_deepspeed_need_not_train(read, text, name, kind):
    [row] = read(text).rows
    assert (row.format, row.kind) == (name, kind)


RAN_OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.10 GiB is free. "
    "Of the allocated memory {} GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated.\n"
)
RAN_OUT_OF_OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.20 GiB total capacity; {} GiB already allocated; 1.10 GiB free; "
    "76.00 GiB reserved in total by PyTorch)\n"
)


@pytest.mark.parametrize("said", [RAN_OUT, RAN_OUT_OF_OLD])
@pytest.mark.parametrize(("held", "peak"), [("74.50", None), ("4.20", 4.25 * 2**30)])
def test_a_peak_that_the_file_proves_too_low_is_none(read, said, held, peak):
    steps = "".join(
        f"[Step {i}/9] Loss: {9 - i / 10:.4f} | Global Tokens/s: 99.0 | GPU Mem (GB): 3.10 | Peak Mem: 4.25\n"
        for i in range(1, 6)
    )
    found = read(steps + said.format(held), verbose=True)
    [row] = found.rows
    assert (row.outcome, row.peak_allocated_bytes) == ("OOM_DEVICE", peak)
    assert ("ran out" in "".join(found.left_empty)) == (peak is None)


def test_megatrons_encoder_and_decoder_have_each_a_length(read):
    arguments = (
        ARGUMENT.format("seq_length", "512")
        + ARGUMENT.format("decoder_seq_length", "{}")
        + ARGUMENT.format("world_size", "8")
    )
    for decoder, rate in (("None", pytest.approx(8 * 512 / 0.1)), ("128", None), ("128torch version", None)):
        assert read(megatron_deepspeed(arguments.format(decoder), "TFLOPs: 69.5")).rows[0].tokens_per_second == rate


@pytest.mark.parametrize(
    ("said", "rate"), [("--tp_size 4", None), ("{'tp_size': 2}", None), ("--tp_size 1", 4096.0), ("", 4096.0)]
)
def test_a_trainers_rate_of_a_process_is_no_devices_where_ranks_share_samples(read, said, rate):
    text = f"+ torchrun --nproc_per_node 8 train.py {said}\n***** Running training *****\n  Num examples = 1,000\n  Num Epochs = 1\n"
    text += "  Instantaneous batch size per device = 4\n  Total train batch size (w. parallel, distributed & accumulation) = 8\n"
    text += "  Gradient Accumulation steps = 1\n  Total optimization steps = 125\n{'loss': 2.9, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 1.0}\n"
    text += "{'train_runtime': 125.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 1.0, 'train_tokens_per_second': 4096.0, 'train_loss': 3.0, 'epoch': 1.0}\n"
    found = read(text, verbose=True)
    assert found.rows[0].tokens_per_second_per_gpu == rate
    assert ("share a sample" in "".join(found.left_empty)) == (rate is None)
