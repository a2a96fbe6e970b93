"""Every format on a small log in the program's own form; the texts are ours."""

from __future__ import annotations

import json
import math

import pytest

from hpc_llm.parsing.registry import LineFormat, formats, formats_in

GIB = 2**30
MIB = 2**20


def test_every_module_of_the_folder_is_a_format():
    names = [f.name for f in formats()]
    assert {"hpc-llm", "homework-v1", "homework-v2", "hf-trainer", "deepspeed", "megatron", "torchtitan", "nemo", "lightning",
            "composer", "llama-factory", "ms-swift", "axolotl", "nanogpt", "build-nanogpt", "accelerate", "vllm", "slurm", "mlperf", "profiler",
            "trainer-state"} <= set(names)  # fmt: skip


def test_plain_text_is_of_no_format():
    assert formats_in(b"iteration of the loss of time: we took a step: the memory of it\nEpoch 3: it/s\n") == ()


def test_every_rule_can_be_used():
    for one in formats():
        if isinstance(one, LineFormat):
            for rule in one.rules:
                assert rule.pattern.search(b"x") is None, (one.name, rule.text)
                assert rule.literal is not None, (one.name, rule.text)
                assert isinstance(rule.columns, tuple)


HF = """
***** Running training *****
  Num examples = 1,000
  Num Epochs = 2
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 16
  Gradient Accumulation steps = 2
  Total optimization steps = 60
{'loss': 2.5, 'grad_norm': 0.75, 'learning_rate': 4e-05, 'epoch': 0.5}
{'eval_loss': 2.25, 'eval_runtime': 3.1, 'eval_samples_per_second': 16.1, 'eval_steps_per_second': 2.0, 'epoch': 1.0}
{'loss': 2.125, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 2.0}
{'train_runtime': 120.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.5, 'train_loss': 2.3, 'epoch': 2.0}
"""


def test_hf_trainer(row, steps):
    found = row(HF)
    assert (found.format, found.outcome) == ("hf-trainer", "COMPLETED")
    assert (found.loss_first, found.loss_last, found.eval_loss) == (2.5, 2.125, 2.25)
    assert (found.micro_batch_size, found.global_batch_size, found.gradient_accumulation_steps) == (4, 16, 2)
    assert (found.elapsed_s, found.measured_steps, found.warmup_steps, found.step_time_s_mean) == (120.0, 60, 0, None)
    alone = row("".join(line for line in HF.splitlines(keepends=True) if "eval_loss" not in line))
    assert alone.step_time_s_mean == 2.0, "an evaluation is in those 120 s, or it is not"
    assert [(s.loss, s.learning_rate, s.grad_norm) for s in steps(HF)] == [(2.5, 4e-5, 0.75), (2.125, 2e-5, 0.5)]


def test_hf_trainer_quoted_values_and_bars(row, steps):
    text = (
        "  0%|          | 0/20 [00:00<?, ?it/s]\r 50%|#####     | 10/20 [00:05<00:05,  2.00it/s]\r"
        "{'loss': '5.8', 'grad_norm': '1.9', 'learning_rate': '0.001', 'epoch': '0.5'}\n"
        " 50%|#####     | 10/20 [00:05<00:05,  2.00it/s]\r  0%|          | 0/7 [00:00<?, ?it/s]\r"
        "100%|##########| 7/7 [00:01<00:00,  7.00it/s]\r\n"
        "{'loss': '5.5', 'grad_norm': '1.8', 'learning_rate': '0.0', 'epoch': '1'}\n"
        "100%|##########| 20/20 [00:10<00:00,  2.00it/s]\n"
        "{'train_runtime': '10.5', 'train_samples_per_second': '7', 'train_steps_per_second': '1.905', 'epoch': '1'}\n"
    )
    found = row(text)
    assert (found.measured_steps, found.step_time_s_mean, found.loss_last) == (20, 0.525, 5.5)
    assert [s.step for s in steps(text)] == [10, 20]


def test_hf_trainer_cut_short_takes_the_time_of_its_own_bar(row):
    text = (
        HF[: HF.index("{'eval_loss'")]
        + " 50%|###  | 30/60 [01:30<01:30,  3.00s/it]\n 9%|# | 1/11 [00:01<00:10,  1.0s/it]\n"
    )
    found = row(text)
    assert (found.measured_steps, found.step_time_s_mean, found.elapsed_s, found.outcome) == (30, 3.0, None, "UNKNOWN")


@pytest.mark.parametrize("first", ["  0%|  | 0/400 [00:00<?, ?it/s]\r", ""])
def test_hf_trainer_drawn_over_and_over(read, row, first):
    """Only the last state of a bar says how far it came, but another run's bar is another bar."""

    def bars(second: int) -> str:
        drawn = "".join(
            f" {i}%|#| {i}/400 [{i // 60:02}:{i % 60:02}<01:00,  1.00it/s]\r50%|# | 5/9 [00:0{second}<00:04, 1.0it/s]\r"
            for i in range(1, 91)
        )
        return first + drawn + "{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n"

    assert (row(bars(5)).measured_steps, row(bars(5)).step_time_s_mean) == (90, 1.0)
    twice = bars(5) + " 25%|#| 100/400 [03:20<10:00,  2.00s/it]\n{'train_runtime': 210.0, 'epoch': 1.0}\n" + bars(7)
    again = twice + " 25%|#| 100/400 [05:00<10:00,  3.00s/it]\n"
    ended, cut = read(again).rows
    assert (ended.elapsed_s, ended.measured_steps, cut.measured_steps, cut.step_time_s_mean) == (210.0, 100, 100, 3.0)


def test_hf_trainer_summary_table(row):
    text = (
        "***** train metrics *****\n  epoch                    =        1.0\n  train_runtime            = 0:15:19.02\n"
        "  train_steps_per_second   =      0.017\n***** eval metrics *****\n  eval_loss               =     2.3\n"
        "  perplexity              =    9.97\n"
    )
    found = row(text)
    assert (found.format, found.elapsed_s, found.eval_loss, found.perplexity) == ("hf-trainer", 919.02, 2.3, 9.97)
    assert found.step_time_s_mean is None, "0.017 steps a second are too coarse for a time"


def test_hf_trainer_that_stops_before_its_first_log_line(row):
    found = row(
        "[INFO|trainer.py:1013] 2026-01-02 03:04:05,331 >> ***** Running training *****\n"
        "[INFO|trainer.py:1016] 2026-01-02 03:04:05,332 >>   Instantaneous batch size per device = 8\n"
    )
    assert (found.format, found.micro_batch_size, found.outcome) == ("hf-trainer", 8, "UNKNOWN")


@pytest.mark.parametrize("end", ["{'train_runtime': 40.0, 'train_steps_per_second': 2.5, 'epoch': 2.0}\n", ""])
def test_hf_trainer_that_goes_on_from_a_checkpoint(row, end):
    """20 of its 100 steps are its own."""
    found = row(
        "  Total optimization steps = 100\n  Continuing training from global step 80\n"
        "  0%|          | 0/100 [00:00<?, ?it/s]\r 81%|########  | 81/100 [00:02<00:00, 40.00it/s]\r"
        "{'loss': 2.0, 'learning_rate': 4e-05, 'epoch': 2.0}\n100%|##########| 100/100 [00:40<00:00,  2.00s/it]\n" + end
    )
    assert (found.measured_steps, found.step_time_s_mean) == (20, 2.0)


def test_hf_trainer_below_llama_factory_logs_each_step_once(row, steps):
    text = "  Total optimization steps = 300\n"
    for done, loss, rate in ((5, 1.5, 1800.5), (10, 1.25, 1900.5)):
        text += (
            f"  2%|#   | {done}/300 [00:26<25:00,  5.09s/it][INFO|2026-04-30 22:55:57] llamafactory.train.callbacks:143 >> "
            f"{{'loss': {loss}, 'learning_rate': 4.9978e-05, 'epoch': 0.{done:02}, 'throughput': {rate}}}\n        \r"
            f"{{'loss': {loss}, 'grad_norm': 0.75, 'learning_rate': 4.9978e-05, 'epoch': 0.{done:02}, 'train_runtime': 26.5, 'train_tokens_per_second': 225.25}}\n"
        )
    assert [(s.loss, s.grad_norm, s.tokens_per_second) for s in steps(text)] == [(1.5, 0.75, None), (1.25, 0.75, None)]
    found = row(text)
    assert (found.tokens_per_second, found.tokens_per_second_per_gpu, found.elapsed_s) == (1900.5, None, 26.5)
    assert (found.step_time_s_mean, found.measured_steps, found.outcome) == (2.6, 10, "UNKNOWN"), "it has not ended"


def test_hf_trainer_table_of_the_end_alone(row):
    found = row("***** train metrics *****\n  train_runtime            = 0:02:00.5\n  train_samples            =  20\n")
    assert (found.outcome, found.elapsed_s) == ("COMPLETED", 120.5)


def test_hf_trainer_step_in_the_dictionary(row, steps):
    text = (
        "  Total optimization steps = 40\n"
        "{'loss': 3.5, 'learning_rate': 4e-05, 'epoch': 0.25, 'step': 10}\n"
        "{'loss': 3.0, 'grad_norm': tensor(0.5, device='cuda:0'), 'epoch': 1.0, 'step': 40, 'max_memory_allocated (GB)': 2.5}\n"
    )
    assert [(s.step, s.loss, s.grad_norm) for s in steps(text)] == [(10, 3.5, None), (40, 3.0, 0.5)]
    found = row(text)
    assert (found.outcome, found.peak_allocated_bytes) == ("COMPLETED", 2.5 * GIB)


@pytest.mark.parametrize(
    ("batch", "packing", "expected"),
    [(8, "true", (8, 2048)), (4, "true", (None, 2048)), (8, "false", (8, None)), (8, "null", (8, None))],
)
def test_axolotl_prints_its_configuration(row, batch, packing, expected):
    config = {"batch_size": batch, "gradient_accumulation_steps": 4, "micro_batch_size": 1}
    lines = "".join(f'  "{name}": {value},\n' for name, value in config.items())
    found = row(
        "[2026-01-01 10:00:00,000] [INFO] [axolotl.cli.config] config:\n{\n"
        f'{lines}  "sample_packing": {packing},\n  "sequence_len": 2048,\n  "inner": {{\n    "micro_batch_size": 7\n  }},\n  "world_size": 2\n}}\n'
        "{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    )
    assert (found.format, found.micro_batch_size, found.gradient_accumulation_steps) == ("axolotl", 1, 4)
    assert (found.world_size, found.global_batch_size, found.sequence_length) == (2, *expected)


def test_axolotl(row):
    text = (
        "[2026-01-01 10:00:00,000] [INFO] [axolotl.train] Starting trainer...\n"
        "{'loss': 4.75, 'grad_norm': 98.5, 'learning_rate': 5e-06, 'memory/max_mem_active(gib)': 25.5,"
        " 'memory/max_mem_allocated(gib)': 25.25, 'memory/device_mem_reserved(gib)': 30.5, 'epoch': 1.0}\n"
        "{'train_runtime': '158.8', 'train_steps_per_second': '1.638', 'memory/max_allocated (GiB)': '26.5', 'epoch': '1',"
        " 'tokens/train_per_sec_per_gpu': '0'}\n"
        "[2026-01-01 10:03:00,000] [INFO] [axolotl.train] Training completed! Saving trained model to ./out.\n"
    )
    found = row(text)
    assert (found.format, found.outcome, found.elapsed_s) == ("axolotl", "COMPLETED", 158.8)
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (26.5 * GIB, 30.5 * GIB)
    assert found.tokens_per_second_per_gpu is None, "a rate of 0 is no measurement"


DS_CONFIG = """[2026-01-01 10:00:00,001] [INFO] [config.py:954:print] DeepSpeedEngine configuration:
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   bfloat16_config .............. enabled=False immediate_grad_update=False
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   float16_config ............... enabled=True auto_cast=False
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   gradient_accumulation_steps .. 2
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   train_batch_size ............. 32
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   train_micro_batch_size_per_gpu  4
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   world_size ................... 4
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   zero_config .................. stage=3 {offload} sub_group_size=1
[2026-01-01 10:00:00,001] [INFO] [config.py:958:print]   zero_optimization_stage ...... 3
[2026-01-01 10:00:00,002] [INFO] [logging.py:107:log_dist] [Rank 0] step=0, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]
"""


def deepspeed(first: int = 1, last: int = 4) -> str:
    return "".join(
        f"[2026-01-01 10:00:0{i},001] [INFO] [logging.py:107:log_dist] [Rank 0] step={i}, skipped={min(i, 1)}, "
        f"lr=[1e-05, 1e-05], mom=[(0.9, 0.999)]\n"
        f"[2026-01-01 10:00:0{i},002] [INFO] [timer.py:264:stop] epoch=0/micro_step={2 * i}/global_step={i}, "
        f"RunningAvgSamplesPerSec=16.0, CurrSamplesPerSec={8.0 * i}, MemAllocated=1.5GB, MaxMemAllocated={i}.25GB\n"
        for i in range(first, last + 1)
    )


@pytest.mark.parametrize(
    ("offload", "method"),
    [
        ("offload_param=DeepSpeedZeroOffloadParamConfig(device='cpu', nvme_path=None) offload_optimizer=None", "z3o"),
        ("offload_optimizer=DeepSpeedZeroOffloadOptimizerConfig(device=<OffloadDeviceEnum.cpu: 'cpu'>, x=1)", "z3o"),
        ("offload_param=DeepSpeedZeroOffloadParamConfig(device='none', nvme_path=None, ratio=1.0)", "z3"),
        ("offload_param=None offload_optimizer=None", "z3"),
    ],
)
def test_deepspeed(row, steps, offload, method):
    text = DS_CONFIG.replace("{offload}", offload) + deepspeed()
    found = row(text)
    assert (found.format, found.method, found.precision, found.world_size) == ("deepspeed", method, "fp16", 4)
    assert (found.global_batch_size, found.micro_batch_size, found.gradient_accumulation_steps) == (32, 4, 2)
    assert found.peak_allocated_bytes == 4.25 * GIB
    assert found.loss_first is None
    assert (found.warmup_steps, found.measured_steps) == (1, 3)
    assert math.isclose(found.step_time_s_mean, (32 / 16 + 32 / 24 + 32 / 32) / 3)
    first, second, *_ = steps(text)
    assert (first.step, first.skipped, second.skipped, second.learning_rate) == (1, True, False, 1e-5)
    assert (second.step_time_s, second.allocated_bytes, second.peak_allocated_bytes) == (2.0, 1.5 * GIB, 2.25 * GIB)


def test_deepspeed_oldest_and_old_spelling(row):
    oldest = (
        "[2021-03-10 18:22:31,608] [INFO] [logging.py:60:log_dist] [Rank 0] step=25, skipped=5, lr=[1e-05], mom=[[0.8, 0.999]]\n"
        "[2021-03-10 18:22:31,608] [INFO] [timer.py:154:stop] 0/25, SamplesPerSec=6.25, MemAllocated=0.5GB, MaxMemAllocated=9.5GB\n"
    )
    old = "[2022-12-20 08:26:26,101] [INFO] [timer.py:197:stop] 0/17, RunningAvgSamplesPerSec=158.5, CurrSamplesPerSec=160.0, MemAllocated=1.75GB, MaxMemAllocated=2.5GB\n"
    assert row(oldest).peak_allocated_bytes == 9.5 * GIB
    assert row(old).peak_allocated_bytes == 2.5 * GIB


def test_deepspeed_wall_clock_breakdown(row, steps):
    text = "".join(
        f"[Rank 0] time (ms) | fwd_microstep: {i}.00 | bwd_microstep: 20.00 | step_microstep: 5.00\n"
        f"[Rank 0] time (ms) | fwd: {i}.00 | bwd: 20.00 | bwd_inner: 15.00 | bwd_allreduce: 5.00 | step: 5.00\n"
        for i in (90, 10, 11, 12)
    )
    assert [s.step_time_s for s in steps(text)] == [0.115, 0.035, 0.036, 0.037]
    assert row(text).step_time_s_mean == 0.036


def test_deepspeed_before_it_named_its_modules(row, steps):
    text = (
        "[INFO 2020-06-08 06:02:19] 0/450, SamplesPerSec=7.5\n"
        "time (ms) | forward_microstep: 19.5 | backward_microstep: 30.5 | step_microstep: 0.5\n"
        "time (ms) | forward: 100.0 | backward: 200.0 | backward_inner: 150.0 | step: 50.0\n"
    )
    assert row(text).format == "deepspeed"
    assert [(s.step, s.step_time_s) for s in steps(text)] == [(450, 0.35)]


@pytest.mark.parametrize("line", [
    "[2026-01-02 03:04:05,903] [INFO] [loss_scaler.py:188:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32",
    "[2026-01-02 03:04:05,683] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.10.2, git-hash=unknown",
    "[2026-01-02 03:04:05,689] [INFO] [utils.py:782:see_memory_usage] MA 0.0 GB         Max_MA 0.0 GB         CA 0.77 GB         Max_CA 1 GB",
])  # fmt: skip
def test_deepspeed_without_a_step(row, line):
    found = row(line + "\n")
    assert (found.format, found.peak_allocated_bytes) == ("deepspeed", None), "a peak of 0 is no measurement"


def test_deepspeed_memory_report(row):
    text = "[INFO] [utils.py:782:see_memory_usage] MA 10.6 GB         Max_MA {} GB         CA 23.03 GB         Max_CA 23 GB \n"
    cuda = "[INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cuda (auto detect)\n"
    assert row(cuda + text.format(19.5)).peak_allocated_bytes is None, "before the first step it is no peak of training"
    assert row(cuda + text.format(99.5) + deepspeed() + text.format(19.5)).peak_allocated_bytes == 19.5 * GIB


def test_deepspeed_below_another_program_only_adds(row, steps):
    text = DS_CONFIG.replace("{offload}", "") + "".join(
        deepspeed(i, i) + f"{{'loss': {3 - i / 10}, 'learning_rate': 1e-05, 'epoch': 0.{i}}}\n" for i in range(1, 5)
    )
    found = row(text)
    assert (found.format, found.loss_last, found.world_size) == ("hf-trainer", 2.6, 4)
    assert found.peak_allocated_bytes == 4.25 * GIB
    assert [s.step_time_s for s in steps(text)] == [4.0, 2.0, 32 / 24, 1.0]


def megatron(i: int, spelling: str) -> str:
    if spelling == "equals":
        return (
            f"[2026-01-01 10:00:42][INFO][training:1609] -  iteration=       {i}/  100 | consumed_samples={16 * i:12} |"
            f" consumed_tokens=     3145728 | elapsed_time_per_iteration_ms=2000.5 | learning_rate=1.5e-08 |"
            f" global_batch_size=   16 | lm loss=11.25 | loss_scale=1.0 | grad_norm=2.5 | actual_seqlen=  512 |"
            f" number_of_skipped_iterations=  0 | samples_per_second=8.0 | tokens_per_gpu_per_second_tgs=1203.5 |"
            f" [LM]-TFLOPs=49.5 | [DS]-TFLOPs=73.5 |\n"
        )
    stamp = " [2026-01-01 15:23:07]" if spelling == "new" else ""
    rate = " throughput per GPU (TFLOP/s/GPU): 49.5 |" if spelling == "new" else ""
    return (
        f"{stamp} iteration        {i}/     100 | consumed samples: {16 * i:12} | elapsed time per iteration (ms): 2000.5 |{rate}"
        f" learning rate: 1.500E-08 | global batch size:    16 | lm loss: 1.125000E+01 | loss scale: 8388608.0 | grad norm: 2.500 |"
        f" number of skipped iterations:   {int(i == 1)} | number of nan iterations:   0 |\n"
    )


@pytest.mark.parametrize("spelling", ["old", "new", "equals"])
def test_megatron(row, steps, spelling):
    text = "".join(megatron(i, spelling) for i in range(1, 5))
    found = row(text)
    assert (found.format, found.loss_last, found.global_batch_size) == ("megatron", 11.25, 16)
    assert (found.step_time_s_mean, found.warmup_steps, found.measured_steps) == (2.0005, 1, 3)
    assert found.model_tflops_per_gpu == (49.5 if spelling == "new" else None)
    first = steps(text)[0]
    assert (first.step, first.loss, first.learning_rate, first.grad_norm) == (1, 11.25, 1.5e-8, 2.5)
    assert first.skipped is (spelling != "equals")
    if spelling == "equals":
        assert (found.sequence_length, found.tokens_per_second_per_gpu) == (512, 1203.5)


@pytest.mark.parametrize(("unit", "seconds"), [("ms", 0.10522), ("s", 105.22), ("sec", 105.22)])
def test_megatron_s_iteration_time_has_the_unit_that_it_names(row, unit, seconds):
    line = (
        f" [default7]: iteration 12695/ 115311 | consumed samples: 9841584 | elapsed time per iteration ({unit}): 105.22 |"
        " learning rate: 5.969E-05 | global batch size: 2048 | lm loss: 2.463556E+00 | samples per second: 19.463 |\n"
    )
    assert row(line * 3).step_time_s_mean == pytest.approx(seconds)


def test_megatron_arguments_memory_and_validation(row):
    text = (
        "using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n"
        "------------------------ arguments ------------------------\n"
        "  bf16 ............................................ True\n"
        "  micro_batch_size ................................ 2\n"
        "  retriever_seq_length ............................ 256\n"
        "  seq_length ...................................... 512\n"
        "  world_size ...................................... 8\n"
        "-------------------- end of arguments ---------------------\n" + "".join(megatron(i, "old") for i in range(1, 5)) +
        "[Rank 1] (after 2 iterations) memory (MB) | allocated: 100.5 | max allocated: 201.0 | reserved: 300.0 | max reserved: 300.5"
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 100.5 | max allocated: 200.5 | reserved: 310.0 | max reserved: 310.0\n"
        " validation loss at iteration 4 | lm loss value: 7.5E+00 | lm loss PPL: 1.8E+03 | \n"
        "[after training is done] datetime: 2026-01-01 10:00:00 \n"
    )  # fmt: skip
    found = row(text)
    assert (found.world_size, found.micro_batch_size, found.sequence_length, found.precision) == (8, 2, 512, "bf16")
    assert found.tensor_parallel == 2
    argued = text.partition("\n")[2].replace(
        "  world_size ...", "  tensor_model_parallel_size ...................... 4\n  world_size ..."
    )
    assert row(argued).tensor_parallel == 4
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (201 * MIB, 310 * MIB)
    assert (found.eval_loss, found.perplexity, found.outcome) == (7.5, 1800.0, "COMPLETED")
    assert math.isclose(found.tokens_per_second, 16 * 512 / 2.0005)
    assert math.isclose(found.tokens_per_second_per_gpu, 16 * 512 / 2.0005 / 8)


def docker(line: str) -> str:
    """As its log driver json-file keeps it."""
    kept = {"log": line, "stream": "stdout", "time": "2026-01-01T10:00:00.123456789Z"}
    return f"{json.dumps(kept, separators=(',', ':'))}\n"


def kubernetes(line: str) -> str:
    """As a container runtime (CRI) keeps it."""
    return f"2026-01-01T10:00:00.123456789+08:00 stdout F {line}"


@pytest.mark.parametrize("keep", [docker, kubernetes, lambda line: docker(line.replace("\n", "\r\n"))])
@pytest.mark.parametrize("recompute", ["None", "full"])
def test_the_arguments_of_megatron_are_read_as_containers_keep_them(row, keep, recompute):
    arguments = {
        "bf16": "True", "micro_batch_size": "2", "recompute_granularity": recompute, "recompute_method": recompute, "seq_length": "512",
        "tensor_model_parallel_size": "2", "world_size": "8",
    }  # fmt: skip
    plain = [
        "------------------------ arguments ------------------------\n",
        *(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in arguments.items()),
        "-------------------- end of arguments ---------------------\n",
        *(megatron(i, "old") for i in range(1, 5)),
    ]
    assert all(line.count("\n") == 1 for line in plain)
    names = "world_size micro_batch_size sequence_length precision tensor_parallel tokens_per_second model_tflops_per_gpu mfu".split()
    told, kept = row("".join(plain)), row("".join(map(keep, plain)))
    assert [getattr(kept, name) for name in names] == [getattr(told, name) for name in names]
    assert (kept.micro_batch_size, kept.sequence_length) == (2, 512) and kept.tokens_per_second


def test_megatron_wrapped_line_and_its_kin(row):
    wrapped = (
        " [2026-01-01 03:12:44.118201] iteration     1370/  100000 | consumed samples:       701440 | elapsed time per iteration (ms): 4812.3 |\n"
        " throughput per GPU (TFLOP/s/GPU): 411.2 | learning rate: 2.987000E-04 | global batch size:   512 | lm loss: 2.104000E+00 |\n"
        " loss scale: 1.0 | grad norm: 0.812 | number of skipped iterations:   0 |\n"
    )
    found = row(wrapped)
    assert (found.step_time_s_mean, found.model_tflops_per_gpu, found.loss_last) == (4.8123, 411.2, 2.104)
    neox = " samples/sec: 7.75 | iteration       34/   10000 | elapsed time per iteration (ms): 4100.0 | learning rate: 2.1E-06 | approx flops per GPU: 112.5TFLOPS | lm_loss: 1.125E+01 | number of skipped iterations:   0 |\n"
    found = row(neox)
    assert (found.model_tflops_per_gpu, found.loss_last) == (None, 11.25)
    primus = " iteration  3/  50 | elapsed time per iteration (ms): 10.0 | throughput per GPU (TFLOP/s/GPU): 496.5/490.1 | tokens per GPU (tokens/s/GPU): 9640.5/9600.0 | lm loss: 2.5 |\n"
    found = row(primus)
    assert (found.model_tflops_per_gpu, found.tokens_per_second_per_gpu) == (496.5, 9640.5)


TITAN = """[rank0]:[titan] 2026-01-01 14:32:00,000 - root - INFO - Starting job: Llama debug
[rank0]:[titan] 2026-01-01 14:32:00,000 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory
[rank0]:[titan] 2026-01-01 14:32:00,000 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]
[rank0]:[titan] 2026-01-01 14:32:00,000 - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters
[rank0]:[titan] 2026-01-01 14:32:00,000 - root - INFO - Training starts at step 1, with local batch size 2, global batch size 8, sequence length 2048, total steps 30 (warmup 2)
[rank0]:[titan] 2026-01-01 14:32:01,000 - root - INFO - step:  1  loss:  8.1661  grad_norm:  3.6855  memory:  2.50GiB(3.12%)  tps: 502  tflops: 1.90  mfu: 0.19%
[rank0]:[titan] 2026-01-01 14:32:02,000 - root - INFO - step: 10  loss:  6.1098  grad_norm:  4.6416  memory:  2.75GiB(3.14%)  tps: 4,000  tflops: 96.50  mfu: 9.75%
[rank0]:[titan] 2026-01-01 14:32:03,000 - root - INFO - validate step: 10  loss:  6.0000  memory:  9.75GiB(3.14%)  tps: 9,000
[rank0]:[titan] 2026-01-01 14:32:04,000 - root - INFO - step: 20  loss:  4.7947  grad_norm:  2.4418  memory:  2.75GiB(3.14%)  tps: 4,000  tflops: 96.50  mfu: 9.75%
[rank0]:[titan] 2026-01-01 14:32:05,000 - root - INFO - step: 30  loss:  4.5000  memory:  2.75GiB(3.14%)  tps: 4,000  tflops: 96.50  mfu: 9.75%
[rank0]:[titan] 2026-01-01 14:32:06,000 - root - INFO - Training completed
"""


def test_megatron_without_the_blank_before_it_and_neox_validation(row):
    found = row(
        "iteration        7/      10 | elapsed time per iteration (ms): 430.0 | lm loss: 7.5E+00 |\n"
        " validation results at iteration 7 | lm_loss value: 6.5E+00 | lm_loss_ppl value: 6.6E+02 |\n"
    )
    assert (found.format, found.loss_last, found.step_time_s_mean) == ("megatron", 7.5, 0.43)
    assert (found.eval_loss, found.perplexity) == (6.5, 660.0)


def test_neox_arguments_say_where_they_are_from(row):
    found = row(
        "-------------------- arguments --------------------\n"
        "  global_num_gpus ................. 8...........................updated\n"
        "  precision ....................... bfloat16....................updated\n"
        "  seq_length ...................... 2048........................updated\n"
        "  train_batch_size ................ 64..........................updated\n"
        "  train_micro_batch_size_per_gpu  4...........................updated\n"
        "  gradient_accumulation_steps ..... 2...........................default\n"
        " samples/sec: 6.4 | iteration       10/      50 | elapsed time per iteration (ms): 9500.0 | lm_loss: 7.5E+00 |\n"
        " samples/sec: 6.4 | iteration       20/      50 | elapsed time per iteration (ms): 8000.0 | lm_loss: 7.5E+00 |\n"
    )
    assert (found.world_size, found.micro_batch_size, found.gradient_accumulation_steps) == (8, 4, 2)
    assert (found.global_batch_size, found.sequence_length, found.precision) == (64, 2048, "bf16")
    assert found.tokens_per_second == 64 * 2048 / 8


def test_megatron_bridge_prints_the_flops_first(row):
    found = row(
        "Step Time : 2.00s GPU utilization: 412.5MODEL_TFLOP/s/GPU\n"
        " [2026-01-02 03:04:05] iteration        1/       9 | elapsed time per iteration (ms): 2000.0 | lm loss: 7.5E+00 |\n"
        "Step Time : 2.00s GPU utilization: 400.5TFLOP/s/GPU\n"
        " [2026-01-02 03:04:07] iteration        2/       9 | elapsed time per iteration (ms): 2000.0 | lm loss: 7.0E+00 |\n"
    )
    assert found.model_tflops_per_gpu == 400.5  # of the second: the first is a warm-up


def test_megatron_wrapped_within_a_key(row):
    found = row(
        " iteration       10/      50 | elapsed time per iteration (ms): 13000.0 | learning rate: 3.0E-04 | global batch\n"
        "size:   512 | lm loss: 4.5E+00 | loss scale: 1.0 | grad norm: 0.5 | number of s\nkipped iterations:   0 |\n"
    )
    assert found.loss_last == 4.5


def test_torchtitan(row, steps):
    found = row(TITAN)
    assert (found.format, found.outcome, found.model, found.num_parameters) == (
        "torchtitan",
        "COMPLETED",
        "llama3 8B",
        8030261248,
    )
    assert (found.gpu, found.world_size, found.sequence_length) == ("NVIDIA H100 80GB HBM3", 8, 2048)
    assert (found.tokens_per_second_per_gpu, found.tokens_per_second) == (4000.0, 32000.0)
    assert (found.warmup_steps, found.measured_steps, found.mfu, found.model_tflops_per_gpu) == (1, 29, 0.0975, 96.5)
    assert (found.peak_reserved_bytes, found.eval_loss, found.loss_last) == (2.75 * GIB, 6.0, 4.5)
    assert found.step_time_s_mean == 8 * 2048 / 32000
    assert [s.step for s in steps(TITAN)] == [1, 10, 20, 30]


@pytest.mark.parametrize("ranks", [[""], ["[rank0]:"], ["[rank0]:", "[rank1]:", "[rank7]:"], ["", ""]])
def test_torchtitan_validates_behind_each_step(row, ranks):
    """What stands in the validation's line is none of training; the first step compiles. Each rank prints its own."""
    text = "".join(
        f"{rank}2026-01-01 14:32:00,000 - root - INFO - {what}  memory: {memory + place:5.2f}GiB(3.14%)  tps: {rate:,}\n"
        for i in range(1, 9)
        for what, memory, rate in (
            (f"step: {i:2}  loss:  8.5000  grad_norm:  1.2500", 2, 100 if i == 1 else 4000),
            (f"validate step: {i:2}  loss:  7.5000", 40, 9000),
        )
        for place, rank in enumerate(ranks)
    )
    found = row(text)
    assert (found.tokens_per_second_per_gpu, found.measured_steps, found.eval_loss) == (4000.0, 7, 7.5)
    assert found.peak_reserved_bytes == (1 + len(ranks)) * GIB


def test_a_stage_of_torchtitan_without_a_loss_prints_none(row, steps):
    lines = (
        "step: {:2}  loss: -1.0000  grad_norm:  1.2500  memory:  2.50GiB(3.14%)  tps: 4,000  tflops: 1.90  mfu: 0.19%\n"
    )
    text = "".join("[rank0]:[titan] 2026-01-01 14:32:00,000 - root - INFO - " + lines.format(i) for i in range(1, 200))
    found = row(text)
    assert (found.loss_first, found.loss_last, found.tokens_per_second_per_gpu) == (None, None, 4000.0)
    assert {step.loss for step in steps(text)} == {None}


def test_torchtitan_of_2026_says_it_in_other_words(row):
    found = row(
        "[titan] 2026-01-01 14:32:00,000 - root - INFO - Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=1, ep=4, etp=1\n"
        "[titan] 2026-01-01 14:32:00,838 - root - INFO - Trainer is initialized with local batch size 8, global batch size 64"
        ", gradient accumulation steps 2, sequence length 2048, total steps 10 (warmup 2)\n"
        "[titan] 2026-01-01 14:32:00,900 - root - INFO - Training starts at step 1\n"
        "[titan] 2026-01-01 14:32:01,441 - root - INFO - step: 10  loss:  8.5  grad_norm:  1.25  memory:  0.00GiB(0.00%)  tps: 1,000\n"
    )
    assert (found.world_size, found.micro_batch_size, found.global_batch_size) == (8, 8, 64)
    assert (found.gradient_accumulation_steps, found.sequence_length, found.outcome) == (2, 2048, "COMPLETED")
    assert (found.tokens_per_second, found.peak_reserved_bytes) == (8000.0, None)


@pytest.mark.parametrize(
    ("gpu", "share", "mfu"),
    [
        ("B200", 17.8, 0.178),
        ("B200", 8.9, None),
        ("H100 PCIe", 40.4, None),
        ("H100 PCIe", 52.9, 0.529),
        ("X9", 1.0, 0.01),
    ],
)
def test_torchtitans_utilisation_is_of_the_gpus_dense_peak(row, gpu, share, mfu):
    lines = "".join(
        f"[titan] INFO - step: {i:2}  loss:  5.5  memory: 30.5GiB(32.51%)  tps: 512  tflops: 400.00  mfu: {share}%\n"
        for i in range(1, 9)
    )
    assert row(f"[titan] INFO - CUDA capacity: NVIDIA {gpu} with 79.10GiB memory\n{lines}").mfu == mfu


def test_torchtitan_without_teraflops_and_older_names(row):
    lines = "".join(
        f"2024-08-01 10:00:00,000 - root - INFO - step: {i:2}  loss:  5.5  memory: 30.5GiB(32.51%)  wps: 6,344  mfu: 37.25%\n"
        for i in (1, 2, 3, 4)
    )
    found = {
        name: row(f"GPU capacity: {name} (0) with 94.99GiB memory\n{lines}").mfu
        for name in ("NVIDIA H100", "NVIDIA L40S")
    }
    assert found == {"NVIDIA H100": 0.3725, "NVIDIA L40S": None}, "what it did not know was an A100 to it"
    assert (row(lines).tokens_per_second_per_gpu, row(lines).mfu) == (6344.0, None)
    bare = "".join(f"[titan] INFO - step: {i:2}  loss:  5.5  memory: 30.5GiB(32.51%)  tps: 512\n" for i in (1, 2, 3, 4))
    assert row(bare).tokens_per_second_per_gpu == 512.0


def test_nemo_printer(row, steps):
    text = (
        "".join(
            f" 0: Training epoch 0, iteration {i}/9 | lr: 5.5e-06 | global_batch_size: 512 | global_step: {i} |"
            f" max_memory_reserved: 57466159104 | max_memory_allocated: 5.393e+10 | reduced_train_loss: {10 - i} |"
            f" train_step_timing in s: {20.5 if i else 90} | consumed_samples: 4608 | TFLOPS_per_GPU: 85.5 | val_loss: 4.25\n 0: \n"
            for i in range(4)
        )
        + "`Trainer.fit` stopped: `max_steps=4` reached.\n"
    )
    found = row(text)
    assert (found.format, found.outcome, found.step_time_s_mean, found.model_tflops_per_gpu) == (
        "nemo",
        "COMPLETED",
        20.5,
        85.5,
    )
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (53930000000, 57466159104)
    assert (found.loss_first, found.loss_last, found.eval_loss, found.global_batch_size) == (10, 7, 4.25, 512)
    assert [(s.step, s.learning_rate) for s in steps(text)][1] == (1, 5.5e-6)


def test_nemo_bar(row):
    text = "".join(
        f"Epoch 0: :   1%|▏         | {i}/100 [01:02<1:40:00, v_num=0, reduced_train_loss=1{i}.50, global_step={i}.000,"
        f" consumed_samples=1.63e+6, train_step_timing in s=5.25]\r"
        for i in (1, 1, 2, 3, 4)
    )
    found = row(text)
    assert (found.format, found.loss_first, found.loss_last, found.step_time_s_mean) == ("nemo", 11.5, 14.5, 5.25)
    assert found.measured_steps == 3


def test_lightning(row, steps):
    text = "".join(
        f"Epoch {epoch}: {10 * i}%|####      | {i}/10 [00:10<00:12,  4.41it/s, v_num=3, train_loss_step={1 / (i + 10 * epoch)}]\r"
        for epoch in (0, 1) for i in (1, 5, 10)
    ) + "\n`Trainer.fit` stopped: `max_epochs=2` reached.\n"  # fmt: skip
    found = row(text)
    assert (found.format, found.outcome, found.loss_first, found.loss_last) == ("lightning", "COMPLETED", 1.0, 0.05)
    assert [s.step for s in steps(text)] == [None] * 6  # batches: the log does not say how many are a step


def _lightning_bar(epoch: int, done: int, loss: object, length: int = 4) -> str:
    """As Lightning 1.x draws it, whose length holds the batches of a validation."""
    return f"Epoch {epoch}:  50%|##   | {done}/{length} [00:00<00:00,  9.77it/s, loss={loss}, v_num=8x7o]\n"


@pytest.mark.parametrize(
    ("saved", "numbers"),
    [
        ((4, 8, 12), [None, None, 6, 8, 10, 12]),  # each batch is a step
        ((3, 6, 9), [None] * 6),  # one of the four is a validation's
        ((2, 4, 6), [None] * 6),  # two batches a step
        ((8, 16, 24), [None] * 6),  # two optimizers
        ((4, 6, 8), [None, None, 6, 8, None, None]),  # several batches a step from the second epoch on
        ((), [None] * 6),
    ],
)
def test_a_batch_of_lightning_is_a_step_only_where_its_checkpoints_say_so(row, steps, saved, numbers):
    def said(epoch: int) -> str:
        return (
            f"Epoch {epoch}, global step {saved[epoch]}: 'val_loss' reached 0.25 (best 0.25), saving\n" if saved else ""
        )

    text = "".join(
        _lightning_bar(epoch, 2, 3.5 - epoch) + _lightning_bar(epoch, 4, 3.0 - epoch) + said(epoch)
        for epoch in range(3)
    )
    assert [s.step for s in steps(text)] == numbers
    found = row(text)
    assert (found.loss_first, found.loss_last) == (3.5, 1.0)


def test_a_lightning_bar_at_the_beginning_of_an_epoch_has_the_loss_of_the_step_before(row, steps):
    text = (
        _lightning_bar(0, 0, 9.5) + _lightning_bar(2, 0, "nan") + _lightning_bar(3, 0, 3.5) + _lightning_bar(3, 2, 3.0)
    )
    assert (row(text).loss_first, row(text).loss_last) == (3.5, 3.0)
    text = _lightning_bar(0, 4, 3.5) + _lightning_bar(1, 0, 3.5) + _lightning_bar(1, 4, 3.0)
    assert [s.loss for s in steps(text)] == [3.5, 3.0]


def test_epochs_of_lightning_with_and_without_a_validation_are_of_one_run(read):
    """The bar of an epoch with one is longer."""
    text = (
        _lightning_bar(0, 6, 4.0, 6)
        + _lightning_bar(1, 1, 3.5)
        + _lightning_bar(1, 4, 3.0)
        + _lightning_bar(2, 1, 2.5, 6)
    )
    assert [(r.loss_first, r.loss_last) for r in read(text).rows] == [(4.0, 2.5)]


def test_nemo_bar_of_unknown_length_and_with_rounded_steps(row, steps):
    text = (
        "[x] [INFO] Epoch 0: : 1it [00:04,  4.36s/it, v_num=d3c7, reduced_train_loss=0.75, global_step=1.000]\n"
        "[x] [INFO] Epoch 0: : 2it [00:08,  4.36s/it, v_num=d3c7, reduced_train_loss=0.5, global_step=2.000]\n"
    )
    assert [(s.step, s.loss) for s in steps(text)] == [(1, 0.75), (2, 0.5)]
    bars = "".join(
        f"Epoch 0:  25%|##  | {n}/800000 [1:00<3:00, reduced_train_loss=0.5, global_step=2e+5, gradient_norm=0.25]\n"
        for n in (200_001, 200_002, 200_003)
    )
    assert [(s.step, s.grad_norm) for s in steps(bars)] == [(n, 0.25) for n in (200_000, 200_001, 200_002)]
    assert (
        row("Epoch 0: 100%|####| 40/40 [00:31<00:00, v_num=, reduced_train_loss=1.5, global_step=39.00]\n").outcome
        == "COMPLETED"
    )


def test_nemo_draws_bars_again_after_each_validation(read):
    """More text than is looked at in one piece, so that pieces end between a validation and its bar, too."""
    lines, evaluated = [], ""
    for done in range(1, 801):
        bar = f"Epoch 0: 9%|#| {done}/800 [00:01<10:00, reduced_train_loss=2.5, global_step={done - 1}.0, train_step_timing in s=1.5"
        lines.append(f"{bar}{evaluated}]")
        if done % 10 == 0:
            lines += [f"Validation DataLoader 0: {n}%|#####     | {n}/60 [00:00<00:01, 50.00it/s]" for n in range(60)]
            evaluated = ", val_loss=2.25"
            lines += [f"{bar}{evaluated}]"] * 2
    rows = read("\r".join(lines) + "\n").rows
    assert [(r.measured_steps, r.step_time_s_mean, r.eval_loss, r.outcome) for r in rows] == [
        (799, 1.5, 2.25, "COMPLETED")
    ]


def test_lightning_draws_bars_again(read, steps):
    def bar(epoch: int, done: int, more: str = "") -> str:
        return f"Epoch {epoch}: 50%|#####| {done}/2 [00:01<00:00, 2.00it/s, v_num=0, train_loss={4 - 2 * epoch - done / 2}{more}]\r"

    validation = "".join(f"Validation DataLoader 0: {n}%|##   | {n}/99 [00:00<00:01, 9.00it/s]\r" for n in range(99))
    text = (
        bar(0, 1) + bar(0, 2) + validation + bar(0, 2, ", val_loss=2.5") + bar(0, 2, ", val_loss=2.5, train_loss_epoch=3.0")
        + bar(1, 1, ", val_loss=2.5") + bar(1, 2, ", val_loss=2.5") + validation + bar(1, 2, ", val_loss=2.25")
        + "\n`Trainer.fit` stopped: `max_epochs=2` reached.\n\n" + bar(1, 2, ", val_loss=2.25") + "\n"
    )  # fmt: skip
    assert len(validation) > 4096
    rows = read(text).rows
    assert [(r.loss_first, r.loss_last, r.eval_loss, r.outcome) for r in rows] == [(3.5, 1.0, 2.25, "COMPLETED")]
    assert sorted({s.loss for s in steps(text)}) == [1.0, 1.5, 3.0, 3.5]


def test_lightning_bar_of_unknown_length(row, steps):
    text = "Epoch 2: : 17it [05:34, 4.49it/s, loss=2.5, v_num=3h]\nEpoch 2: | | 18/? [05:40, 4.49it/s, v_num=3h, loss=2.25]\n"
    assert [(s.step, s.loss) for s in steps(text)] == [(None, 2.5), (None, 2.25)]
    assert row(text).format == "lightning"


def test_composer(row, steps):
    text = (
        "".join(
            f"[batch={i}/100]:\n\t Train time/batch: {i - 1}\n\t Train memory/peak_allocated_mem: 44.5\n"
            f"\t Train memory/peak_reserved_mem: 51.25\n\t Train loss/train/total: {11 - i}.5\n"
            f"\t Train throughput/tokens_per_sec: 222.5\n\t Train throughput/device/tokens_per_sec: 111.25\n"
            f"\t Train lr-DecoupledAdamW/group0: 0.0001\n"
            for i in range(1, 5)
        )
        + "[Eval batch=1/2] Eval on eval data:\n\t Eval metrics/eval/LanguageCrossEntropy: 9.5\n\t Eval metrics/eval/LanguagePerplexity: 13000.0\n"
    )
    found = row(text)
    assert (found.format, found.loss_first, found.loss_last, found.eval_loss) == ("composer", 10.5, 7.5, 9.5)
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (44_500_000_000, 51_250_000_000)
    assert (found.tokens_per_second, found.tokens_per_second_per_gpu, found.measured_steps) == (222.5, 111.25, 3)
    assert next((s.step, s.loss, s.learning_rate) for s in steps(text)) == (1, 10.5, 0.0001)


def test_composer_says_how_many_gpus(row):
    found = row(
        "0: num_gpus_per_node: 8\n0: num_nodes: 2\n0: [batch=1/9]:\n0:   Train throughput/device/tokens_per_sec: 50.0\n"
        "0: [batch=2/9]:\n0:   Train throughput/device/tokens_per_sec: 100.0\n"
    )
    assert (found.nodes, found.gpus_per_node, found.world_size, found.tokens_per_second) == (2, 8, 16, 1600.0)


def test_composer_epochs_and_rank_prefix(steps):
    text = "".join(
        f"0: [epoch={e}][batch={i}/3]:\n0: \t Train loss/train/total: {e}.{i}\n" for e in (1, 2) for i in (1, 2, 3)
    )
    assert [(s.step, s.loss) for s in steps(text)] == [(1, 1.1), (2, 1.2), (3, 1.3), (4, 2.1), (5, 2.2), (6, 2.3)]


def llama_factory(step: int, **more) -> str:
    record = {"current_steps": step, "total_steps": 20, "loss": 2.5 - step / 20, "lr": 1e-5, "epoch": step / 10, "percentage": 1.0,
              "elapsed_time": f"0:00:{2 * step:02}", "remaining_time": "1 day, 0:08:23", **more}  # fmt: skip
    return json.dumps(record) + "\n"


def test_llama_factory(row, steps):
    text = "".join(llama_factory(i, throughput=2000.5 + i, total_tokens=5) for i in (5, 10, 15, 20))
    found = row(text, "trainer_log.jsonl")
    assert (found.format, found.outcome, found.loss_first, found.loss_last) == ("llama-factory", "COMPLETED", 2.25, 1.5)
    assert (found.tokens_per_second, found.elapsed_s, found.step_time_s_mean) == (2020.5, 40.0, 2.0)
    assert (found.warmup_steps, found.measured_steps, found.run_id) == (5, 15, "trainer_log")
    assert next((s.step, s.learning_rate) for s in steps(text)) == (5, 1e-5)


def test_llama_factory_twice_written_resumed_and_null(read):
    text = "".join(2 * llama_factory(i) for i in range(1, 20)) + llama_factory(9, loss=None) + llama_factory(20)
    rows = read(text).rows
    assert [(r.run_id, r.loss_last) for r in rows] == [("job", 1.55), ("job#2", 1.5)]


def ms_swift(step: int, time_s: float, **more) -> str:
    record = {"loss": 2.5 - step / 20, "grad_norm": 1.5, "learning_rate": 1e-5, "epoch": step / 10, "global_step/max_steps": f"{step}/20",
              "elapsed_time": f"1h {time_s // 60:.0f}m {time_s % 60:.0f}s", "remaining_time": "2m 60s", "memory(GiB)": 26.8,
              "train_speed(s/it)": round((3600 + time_s) / step, 6), **more}  # fmt: skip
    return json.dumps(record) + "\n"


MS_SWIFT_END = '{"train_runtime": 3640.0, "train_loss": 2.0, "epoch": 2.0, "global_step/max_steps": "20/20", "elapsed_time": "1h 0m 40s"}\n'
MS_SWIFT_STATE = '{"last_model_checkpoint": null, "global_step": 20, "log_history": [], "memory": null}\n'


def test_ms_swift(read, row, steps):
    text = "".join(ms_swift(i, 2.25 * i - 5) for i in (5, 10, 15, 20)) + MS_SWIFT_END + MS_SWIFT_STATE
    found = row(text, "logging.jsonl")
    assert (found.format, found.outcome, found.loss_first, found.loss_last) == ("ms-swift", "COMPLETED", 2.25, 1.5)
    assert (found.warmup_steps, found.measured_steps, found.elapsed_s) == (5, 15, 3640.0)
    assert found.step_time_s_mean == pytest.approx(2.25, rel=1e-4) and found.peak_reserved_bytes is None
    assert "memory(GiB)" in read(text, "logging.jsonl").left_empty[0]
    assert [(s.step, s.grad_norm, s.learning_rate) for s in steps(text)][:2] == [(5, 1.5, 1e-5), (10, 1.5, 1e-5)]


def test_ms_swift_between_its_evaluations_and_with_the_mean_of_another_call(row):
    evaluation = ms_swift(10, 300).replace('{"loss"', '{"eval_loss"').replace("2.0", "2.125")
    text = "".join((ms_swift(5, 0), ms_swift(10, 10), evaluation, ms_swift(15, 310), ms_swift(20, 320)))
    found = row(text, "logging.jsonl")
    assert (found.eval_loss, found.measured_steps) == (2.125, 10)
    assert found.step_time_s_mean == pytest.approx(2.0, rel=1e-3)
    resumed = "".join(ms_swift(i, 2 * i, **{"train_speed(s/it)": 9.0}) for i in range(2, 20))
    assert row(resumed, "logging.jsonl").step_time_s_mean == pytest.approx(2.0, rel=0.05)


def test_nanogpt(row, steps):
    text = (
        "tokens per iteration will be: 491,520\nnumber of parameters: 10.65M\nstep 0: train loss 4.2874, val loss 4.2823\n"
        "iter 0: loss 4.2586, time 35048.17ms, mfu -100.00%\niter 10: loss 3.2202, time 2000.00ms, mfu 10.75%\n"
        "iter 20: loss 2.7714, ppl 16.1, time 2000.00ms, mfu 10.75%\nstep 25: train loss 2.6439, val loss 2.5, train ppl 14.0\n"
        "iter 30: loss 2.6154, time 2000.00ms, mfu 10.75%\n"
    )
    found = row(text)
    assert (found.format, found.num_parameters, found.eval_loss, found.loss_last) == (
        "nanogpt",
        10_650_000,
        2.5,
        2.6154,
    )
    assert (found.step_time_s_mean, found.mfu, found.tokens_per_second) == (2.0, None, 245_760.0)
    assert [s.tokens_per_second for s in steps(text)][1] == 245_760.0
    assert found.measured_steps == 2  # the time is that of the step that is printed; the last holds an evaluation, too


BUILD_NANOGPT = (
    "total desired batch size: 524288\n=> calculated gradient accumulation steps: 4\n"
    "num decayed parameter tensors: 50, with 124,354,560 parameters\nnum non-decayed parameter tensors: 98, with 121,344 parameters\n"
    "validation loss: 10.9375\n"
    "step     0 | loss: 10.954321 | lr 8.4e-07 | norm: 15.25 | dt: 9500.00ms | tok/sec: 55188.21\n"
    "step     1 | loss: 10.812345 | lr 1.7e-06 | norm: 14.50 | dt: 500.00ms | tok/sec: 1048576.00\n"
    "step     2 | loss: 10.612345 | lr 2.5e-06 | norm: 12.75 | dt: 500.00ms | tok/sec: 1048576.00\n"
    "validation loss: 10.5000\nHellaSwag accuracy: 2600/10042=0.2589\n"
    "step     3 | loss: 10.412345 | lr 3.4e-06 | norm: 11.25 | dt: 8000.00ms | tok/sec: 65536.00\n"
)


def test_build_nanogpt(row, steps):
    found = row(BUILD_NANOGPT)
    assert (found.format, found.num_parameters, found.gradient_accumulation_steps) == ("build-nanogpt", 124_475_904, 4)
    assert (found.loss_first, found.loss_last, found.eval_loss) == (10.954321, 10.412345, 10.5)
    assert (found.step_time_s_mean, found.tokens_per_second) == (0.5, 1_048_576.0)
    assert found.measured_steps == 2, "neither the first step nor the one whose clock an evaluation is in"
    assert [(s.step, s.learning_rate, s.grad_norm) for s in steps(BUILD_NANOGPT)][1] == (1, 1.7e-6, 14.5)
    without_unit = BUILD_NANOGPT.replace("ms |", " |")
    assert (row(without_unit).step_time_s_mean, row(without_unit).tokens_per_second) == (None, 1_048_576.0)
    assert row(BUILD_NANOGPT.replace("lr ", "lr: ").replace("| loss", "| train loss")).loss_last == 10.412345


def nanochat(step: int, more: str) -> str:
    return f"step {step:05d}/00005 ({20 * step}.00%) | loss: {9 - step / 8:.6f} | lrm: 1.00 | dt: {250 if step else 9000}.00ms | tok/sec: 262,144 | {more}\n"


@pytest.mark.parametrize(
    ("gpu", "peak", "more", "mfu"),
    [
        ("NVIDIA H100 80GB HBM3", "9.89e+14", "mfu: 40.00 | total time: 0.10m", 0.4),
        ("NVIDIA A100-SXM4-80GB", "3.12e+14", "mfu: 40.00 | total time: 0.10m", None),
        ("NVIDIA A100-SXM4-80GB", "3.12e+14", "bf16_mfu: 40.00 | epoch: 1 | total time: 0.10m", 0.4),
        ("NVIDIA A100-SXM4-80GB", "1.00e+14", "bf16_mfu: 40.00 | epoch: 1 | total time: 0.10m", None),
        ("NVIDIA GeForce GTX 1660 SUPER", "1.00e+14", "bf16_mfu: 1.16 | epoch: 1 | total time: 0.10m", None),
        ("Tesla T4", "inf", "bf16_mfu: 0.00 | epoch: 1 | total time: 0.10m", None),
    ],
)
def test_nanochat(read, steps, gpu, peak, more, mfu):
    text = (
        f"GPU: {gpu} | Peak FLOPS (BF16): {peak}\nNumber of parameters: 560,988,160\nTokens / micro-batch / rank: 8 x 2048 = 16,384\n"
        "Total batch size 65,536 => gradient accumulation steps: 4\n"
        + "".join(nanochat(i, more) for i in range(5))
        + "Step 00005 | Validation bpb: 1.2500\nPeak memory usage: 7548.00MiB\nTotal training time: 0.10m\nMinimum validation bpb: 1.2500\n"
    )
    reading = read(text)
    (found,) = reading.rows
    assert (found.format, found.outcome, found.gpu, found.num_parameters) == (
        "build-nanogpt",
        "COMPLETED",
        gpu,
        560_988_160,
    )
    assert (found.micro_batch_size, found.sequence_length, found.gradient_accumulation_steps) == (8, 2048, 4)
    assert (found.step_time_s_mean, found.tokens_per_second, found.mfu) == (0.25, 262_144.0, mfu)
    assert found.peak_allocated_bytes == 7548 * MIB and found.eval_loss is None, "bits a byte are no loss"
    assert (found.loss_first, found.loss_last) == (None, None) and "running mean" in reading.left_empty[0]
    assert [one.step for one in steps(text)] == [0, 1, 2, 3, 4]


def test_autoresearch_writes_its_steps_over_each_other(row):
    lines = "".join(
        f"\rstep {i:05d} ({i}.0%) | loss: {9 - i / 8:.6f} | lrm: 1.00 | dt: {250 if i else 7000}ms | tok/sec: 262,144 | mfu: 2.9% | epoch: 1 | remaining: 300s    "
        for i in range(5)
    )
    end = "\n---\nval_bpb:          1.187432\ntraining_seconds: 300.1\ntotal_seconds:    342.5\npeak_vram_mb:     14230.5\nnum_steps:        5\n"
    found = row(lines + end)
    assert (found.outcome, found.step_time_s_mean, found.measured_steps, found.elapsed_s) == (
        "COMPLETED",
        0.25,
        4,
        342.5,
    )
    assert (found.peak_allocated_bytes, found.mfu, found.loss_last) == (int(14230.5 * MIB), None, None)


@pytest.mark.parametrize(
    "line",
    [
        "epoch={}: train_epoch_perplexity=tensor(2.7, device='cuda:0') train_epoch_loss=tensor(0.{}5, device='cuda:0')\n",
        "epoch={}: train_ppl=tensor(2.7) train_epoch_loss=tensor(0.{}5) eval_ppl=tensor(3.5) eval_epoch_loss=tensor(1.25)\n",
    ],
)
def test_accelerate_epochs(row, line):
    found = row("".join(line.format(i, 9 - i) for i in range(3)))
    assert (found.format, found.loss_first, found.loss_last) == ("accelerate", 0.95, 0.75)
    assert found.eval_loss == (1.25 if "eval" in line else None)


def test_accelerate_memory_of_peft(row):
    found = row(
        "GPU Total Peak Memory consumed during the train (max): 9404\n"
        "CPU Total Peak Memory consumed during the train (max): 19411\n"
        "epoch=4: train_ppl=tensor(1.5, device='cuda:0') train_epoch_loss=tensor(0.25, device='cuda:0')\n"
        "GPU Total Peak Memory consumed during the eval (max): 99999\n"
        "epoch=4: eval_ppl=tensor(2.5, device='cuda:0') eval_loss=tensor(0.75, device='cuda:0')\n"
    )
    assert (found.peak_allocated_bytes, found.peak_host_bytes) == (9404 * MIB, 19411 * MIB)
    assert (found.loss_last, found.perplexity, found.eval_loss) == (0.25, 2.5, 0.75)


def test_accelerate_no_trainer(row):
    found = row("06/01/2026 10:00:00 - INFO - __main__ - epoch 0: perplexity: 23.5 eval_loss: 3.157\n")
    assert (found.format, found.perplexity, found.eval_loss) == ("accelerate", 23.5, 3.157)


def test_vllm(read):
    text = """============ Serving Benchmark Result ============
Successful requests:                     772
Benchmark duration (s):                  329.83
Output token throughput (tok/s):         529.33
Total Token throughput (tok/s):          925.72
==================================================
============ Serving Benchmark Result ============
Successful requests:                     10
Failed requests:                         0
Benchmark duration (s):                  30.50
Total token throughput (tok/s):          14,029.44
Throughput: 9.14 requests/s, 1754.43 tokens/s
Throughput: 89.27 requests/s, 22853.37 total tokens/s, 11426.69 output tokens/s
Avg latency: 2.5 seconds
50% percentile latency: 2.25 seconds
90% percentile latency: 2.75 seconds
"""
    rows = read(text).rows
    assert [r.tokens_per_second for r in rows] == [925.72, 14029.44, 1754.43, 22853.37, None]
    assert [r.elapsed_s for r in rows] == [329.83, 30.5, None, None, None]
    assert [r.queries_per_second for r in rows[2:]] == [9.14, 89.27, None]
    assert [r.generated_tokens_per_second for r in rows[2:]] == [None, 11426.69, None]
    assert rows[3].prompt_tokens_per_second == pytest.approx(22853.37 - 11426.69)
    assert (rows[4].step_time_s_mean, rows[4].step_time_s_p50, rows[4].step_time_s_p90) == (2.5, 2.25, 2.75)
    assert {(r.format, r.task, r.outcome) for r in rows} == {("vllm", "infer", "COMPLETED")}


def test_vllm_older_serving(read):
    text = (
        "============ Serving Benchmark Result ============\nSuccessful requests:     10\nBenchmark duration (s):  2.00\n"
        "Input token throughput (tok/s):   150.5\nOutput token throughput (tok/s):  100.25\n"
        "Total time: 166.5 s\nThroughput: 5.99 requests/s\nAverage latency: 67.59 s\n"
    )
    rows = read(text, verbose=True)
    assert [(r.elapsed_s, r.tokens_per_second, r.outcome) for r in rows.rows] == [
        (2.0, 250.75, "COMPLETED"),
        (166.5, None, "COMPLETED"),
    ]
    assert rows.rows[1].queries_per_second == 5.99
    assert rows.unparsed.count == 0


def test_vllm_results(row):
    serve = {
        "model_id": "m",
        "duration": 30.5,
        "completed": 10,
        "total_token_throughput": 14029.5,
        "output_throughput": 29.5,
        "request_throughput": 0.33,
        "request_goodput": None,
        "mean_ttft_ms": 80.0,
        "median_ttft_ms": 75.0,
        "mean_tpot_ms": 12.5,
        "p99_tpot_ms": 14.0,
        "mean_e2el_ms": 2500.0,
        "median_e2el_ms": 2000.0,
        "p99_e2el_ms": 4000.0,
    }
    found = row(json.dumps(serve), "serve.json")
    assert (found.prompt_tokens_per_second, found.generated_tokens_per_second) == (14000.0, 29.5)
    assert (found.queries_per_second, found.time_to_first_token_s_p50) == (0.33, 0.075)
    assert (found.time_per_output_token_s_mean, found.latency_s_mean, found.latency_s_p50) == (0.0125, 2.5, 2.0)
    assert (found.latency_s_p90, found.latency_s_p99) == (None, 4.0)
    assert (found.format, found.model, found.tokens_per_second, found.elapsed_s) == ("vllm", "m", 14029.5, 30.5)
    throughput = {
        "elapsed_time": 10.0,
        "num_requests": 5,
        "total_num_tokens": 50,
        "requests_per_second": 0.5,
        "tokens_per_second": 5.0,
    }
    found = row(json.dumps(throughput, indent=4), "t.json")
    assert (found.tokens_per_second, found.queries_per_second, found.generated_tokens_per_second) == (5.0, 0.5, None)
    latency = {"avg_latency": 2.5, "latencies": [2.5], "percentiles": {"50": 2.5, "90": 3.0, "99": 3.5}}
    found = row(json.dumps(latency), "l.json")
    assert (found.step_time_s_p90, found.latency_s_mean, found.latency_s_p90, found.latency_s_p99) == (
        3.0,
        2.5,
        3.0,
        3.5,
    )


@pytest.mark.parametrize(
    ("said", "outcome", "rate"),
    [
        ({"num_prompts": 1000, "completed": 1000, "failed": 0}, "COMPLETED", 200.0),
        ({"num_prompts": 1000, "completed": 995, "failed": 5}, "COMPLETED", 200.0),
        ({"num_prompts": 1000, "completed": 10, "failed": 990}, "COMPLETED", None),
        ({"num_prompts": 1000, "completed": 10}, "COMPLETED", None),
        ({"num_prompts": 1000, "completed": 0, "failed": 1000}, "UNKNOWN", None),
        ({"completed": 0}, "UNKNOWN", None),
    ],
)
def test_rates_of_vllm_are_none_where_requests_failed(row, said, outcome, rate):
    """The keys are those of vllm/benchmarks/serve.py."""
    figures = {
        "request_throughput": said["completed"] / 10.0,
        "output_throughput": 100.0,
        "total_token_throughput": 200.0,
        "median_ttft_ms": 9.0,
    }
    found = row(json.dumps({"duration": 10.0, **said, **figures}), "serve.json")
    assert (found.outcome, found.tokens_per_second, found.elapsed_s) == (outcome, rate, 10.0)
    assert (found.queries_per_second is None) == (found.time_to_first_token_s_p50 is None) == (rate is None)
    assert (found.outcome_reason is None) == (rate is not None)


def mllog(key: str, value: object, time: int = 1_700_000_000_000, **metadata: object) -> str:
    record = {"namespace": "", "time_ms": time, "event_type": "POINT_IN_TIME", "key": key, "value": value,
              "metadata": {"file": "x.py", "lineno": 1, **metadata}}  # fmt: skip
    return f" 0: :::MLLOG {json.dumps(record)}\n"


def test_mlperf(row, steps):
    text = (
        mllog("submission_benchmark", "llama2_70b_lora") + mllog("global_batch_size", 8) + mllog("run_start", None)
        + "".join(mllog("train_loss", 2.5 - i / 10, samples_count=8 * i, lr=0.0004) for i in range(1, 5))
        + "".join(mllog("tracked_stats", {"throughput": x}, step=8) for x in (1.0, 4.0, 4.0))
        + mllog("eval_accuracy", 0.925, samples_count=32)
        + mllog("run_stop", None, 1_700_000_100_500, status="success")
    )  # fmt: skip
    found = row(text)
    assert (found.format, found.outcome, found.eval_loss, found.elapsed_s) == ("mlperf", "COMPLETED", 0.925, 100.5)
    assert (found.loss_first, found.loss_last, found.step_time_s_mean) == (2.4, 2.1, 2.0)
    assert found.started_at == "2023-11-14T22:13:20+00:00"
    assert steps(text)[0].learning_rate == 0.0004
    assert row(text.replace("\n", " \n")) == found  # a blank behind the record


@pytest.mark.parametrize("status", ["aborted", "success", None])
def test_mlperf_stops_without_success(row, status):
    """`run_stop` is written for a run that missed its target, too, or that was broken off."""
    said = {} if status is None else {"status": status}
    text = (
        mllog("run_start", None)
        + mllog("train_loss", 2.5, samples_count=8)
        + mllog("run_stop", None, 1_700_000_100_500, **said)
    )
    found = row(text)
    assert found.elapsed_s == 100.5
    if status == "aborted":
        assert (found.outcome, found.outcome_reason) == ("UNKNOWN", "MLPerf's run_stop has the status aborted")
    else:
        assert found.outcome == "COMPLETED"
    killed = row(text + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n")
    assert killed.outcome == ("TIMEOUT" if status == "aborted" else "COMPLETED")


@pytest.mark.parametrize("loss", ["2_9.0", "'2_9.0'", "2_9", "1_0e-1"])
def test_an_underscore_stands_in_no_number(row, loss):
    """Python reads 2_9.0 as 29.0; in a log it is what is left of two numbers."""
    text = "".join(f"{{'loss': {loss}, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n" for epoch in (0.1, 0.2))
    found = row(text)
    assert (found.loss_first, found.loss_last) == (None, None)


def test_deepspeed_chat(row):
    text = (
        "***** Running training *****\n***** Evaluating perplexity, Epoch 0/2 *****\nppl: 4998.25\n"
        + deepspeed()
        + "***** Evaluating perplexity, Epoch 2/2 *****\nppl: 1.75\nsaving the final model ...\n"
    )
    found = row(text)
    assert (found.format, found.perplexity, found.outcome) == ("deepspeed-chat", 1.75, "COMPLETED")
    assert found.peak_allocated_bytes == 4.25 * GIB


def chat_epoch(epoch: int, losses: list[float], ranks: int = 2) -> str:
    """What `--print_loss` adds: a line of each rank for each of its micro batches, counted anew."""
    return "".join(
        f"Epoch: {epoch}, Step: {step}, Rank: {rank}, loss = {loss + rank}\n"
        for step, loss in enumerate(losses)
        for rank in reversed(range(ranks))
    )


def test_deepspeed_chat_prints_the_loss_of_micro_batches(row, steps):
    begin = "***** Running training *****\n***** Evaluating perplexity, Epoch 0/2 *****\nppl: 6.5, loss: 1.875\n"
    end = "***** Evaluating perplexity, Epoch {}/2 *****\nppl: {}, loss: {}\n"
    text = (
        begin
        + chat_epoch(0, [2.5, 2.25, 2.0])
        + end.format(1, 5.5, 1.75)
        + chat_epoch(1, [1.75, 1.25])
        + end.format(2, 4.5, 1.5)
    )
    found = row(text + "saving the final model ...\n")
    assert (found.loss_first, found.loss_last, found.eval_loss, found.perplexity) == (2.5, 1.25, 1.5, 4.5)
    assert (found.measured_steps, found.outcome, found.kind) == (None, "COMPLETED", "train")
    assert not steps(text)  # a micro batch is no step
    assert row(text + chat_epoch(2, [float("nan")])).loss_last is None


def test_deepspeed_chat_times_micro_batches(row):
    """With two of them to a step, of 0.5 s and 0.25 s, and 16 sequences on all devices."""
    micro = "Model Parameters: 0.331 B, Latency: {}s, TFLOPs: 1.0, Samples/sec: 4.0, Time/seq 0.2s, Batch Size: 2, Sequence Length: 512\n"
    step = "[timer.py:264:stop] epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=21.0, CurrSamplesPerSec=20.0\n"
    config = "[INFO] [config.py:999:print]   {} ............. {}\n"
    text = config.format("train_batch_size", 16) + config.format("gradient_accumulation_steps", 2)
    for number in (1, 2, 3):
        text += micro.format("0.5") + micro.format("0.25") + step.format(number)
    found = row("***** Evaluating rewards, Epoch 1/1 *****\nchosen: 0.5, rejected: 0.25, loss: 0.75\n" + text)
    assert (found.format, found.step_time_s_mean, found.measured_steps) == ("deepspeed-chat", 0.8, 2)
    assert (found.micro_batch_size, found.global_batch_size, found.sequence_length) == (2, 16, 512)
    assert (found.model_tflops_per_gpu, found.eval_loss) == (None, 0.75)


def test_sagemaker(row):
    text = (
        "2024-03-28 00:02:40 I [logging_utils.py:135] Batch 0 Loss: 5.125, Speed: 0.43 samples/sec, Model TFLOPS/GPU: 8.83, lr: 0.000001, gradnorm: 40.5\n"
        "2024-03-28 00:02:41 I [logging_utils.py:135] Batch 1 Loss: 5.0, Speed: 3.25 samples/sec, Model TFLOPS/GPU: 67.5, lr: 0.000001, gradnorm: 36.5\n"
        "2024-03-28 00:02:42 I [logging_utils.py:135] Batch 2 Loss: 4.5, Speed: 3.25 samples/sec, Model TFLOPS/GPU: 67.5, lr: 0.000001, gradnorm: 36.5\n"
        "2024-03-28 00:03:12 I [logging_utils.py:166] Batch 2 Validation loss: 4.25\n\n2024-03-28 00:05:46 Completed - Training job completed\n"
        "Training seconds: 583\nBillable seconds: 583\n"
    )
    found = row(text)
    assert (found.format, found.model_tflops_per_gpu, found.eval_loss, found.elapsed_s) == (
        "sagemaker",
        67.5,
        4.25,
        583.0,
    )
    assert found.outcome == "COMPLETED"


def test_profiler_txt(read):
    one = {"key": "Llama-2-7b-hf-bs2-seq350-----recompute-quant-bf16-zero3-off", "step_time (s)": 1.5, "step_time_std (s)": 0.1,
           "token/s": 1866.67, "mem (GB)": 20.25}  # fmt: skip
    text = (
        json.dumps(one, indent=4)
        + "\n"
        + json.dumps({**one, "key": "m-bs1-seq8-lora-r8-a1-flash----"}, indent=4)
        + "\n"
        + '{"key": "cu'
    )
    rows = read(text, "profiler.txt").rows
    assert [r.run_id for r in rows] == ["profiler", "profiler#2"]
    assert (rows[0].model, rows[0].micro_batch_size, rows[0].sequence_length) == ("Llama-2-7b-hf", 2, 350)
    assert (rows[0].method, rows[0].precision, rows[0].peak_device_bytes) == ("z3+o+q+r", "bf16", 20.25 * GIB)
    assert (rows[0].tokens_per_second, rows[0].step_time_s_mean) == (1866.67, 1.5)
    assert rows[1].method == "lora+f"


def test_trainer_state(row, steps):
    history = [
        {"epoch": i / 2, "grad_norm": 0.5, "learning_rate": 1e-5, "loss": 3.0 - i, "step": 10 * i} for i in (1, 2)
    ]
    state = {"global_step": 20, "max_steps": 20, "train_batch_size": 4, "log_history": [
        *history, {"eval_loss": 1.5, "epoch": 1.0, "step": 20}, {"train_runtime": 40.0, "epoch": 1.0, "step": 20}]}  # fmt: skip
    found = row(json.dumps(state, indent=2), "trainer_state.json")
    assert (found.format, found.loss_first, found.loss_last, found.eval_loss) == ("hf-trainer", 2.0, 1.0, 1.5)
    assert (found.elapsed_s, found.step_time_s_mean, found.outcome) == (40.0, None, "COMPLETED")
    ended = [*history, {"train_runtime": 40.0, "train_steps_per_second": 0.5, "epoch": 1.0, "step": 20}]
    alone = row(json.dumps(state | {"log_history": ended}))
    assert (alone.step_time_s_mean, alone.measured_steps) == (None, None), "it may have gone on from a checkpoint"
    ended[-1]["train_steps_per_second"] = 0.25
    alone = row(json.dumps(state | {"log_history": ended}))
    assert (alone.step_time_s_mean, alone.measured_steps) == (4.0, 10)
    assert [(s.step, s.loss) for s in steps(json.dumps(state))] == [(10, 2.0), (20, 1.0)]
    state["global_step"], state["log_history"] = 10, history[:1]
    assert row(json.dumps(state)).outcome == "UNKNOWN"


def test_slurm_alone(row):
    found = row("slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n")
    assert (found.format, found.outcome, found.job_id) == ("slurm", "TIMEOUT", "4711")


def test_messages_alone(row):
    found = row('Traceback (most recent call last):\n  File "a.py", line 1\nModuleNotFoundError: No module named "x"\n')
    assert (found.format, found.outcome, found.outcome_reason) == (
        "messages",
        "FAILED",
        'ModuleNotFoundError: No module named "x"',
    )


def test_loss_that_is_no_number(row):
    text = "".join(f"iter {i}: loss {'nan' if i > 2 else 3.5}, time 10.00ms, mfu 1.00%\n" for i in range(6))
    found = row(text)
    assert found.loss_last == 3.5
    assert found.invalid_reason == "the loss is not a finite number at step 3"


WHOSE = ("0: ", "worker-0: ", "actor-multi-node-worker-0: ", "gpu-07.cluster.org: ", "[default0]:", "[1,0]<stdout>:", "[rank0]:",
         "[rank0]: ", "(worker pid=17) ", "  3: ", "[0] ")  # fmt: skip


@pytest.mark.parametrize("whose", WHOSE)
def test_the_launchers_prefix_hides_nothing(row, whose):
    def told(text: str) -> str:
        return "".join(whose + line for line in text.splitlines(keepends=True))

    chat = told(
        "***** Evaluating perplexity, Epoch 0/2 *****\nppl: 4998.25, loss: 8.5\n" + deepspeed()
        + "***** Evaluating perplexity, Epoch 2/2 *****\nppl: 1.75, loss: 0.5\nsaving the final model ...\n"
    )  # fmt: skip
    found = row(chat)
    assert (found.format, found.perplexity, found.eval_loss, found.outcome) == (
        "deepspeed-chat",
        1.75,
        0.5,
        "COMPLETED",
    )
    metrics = told(
        "***** Running training *****\n  Total optimization steps = 50\n{'loss': 2.5, 'epoch': 1.0}\n"
        "***** train metrics *****\n  epoch                    =        1.0\n  train_runtime            = 0:01:40.00\n"
        "  train_steps_per_second   =        0.5\n***** eval metrics *****\n  perplexity               =     9.25\n"
    )
    found = row(metrics)
    assert (found.elapsed_s, found.step_time_s_mean, found.perplexity, found.outcome) == (100.0, 2.0, 9.25, "COMPLETED")
    assert row(told("max_iters = 7\n" + "iter 1: loss 2.5, time 5.0ms\n" * 2)).format == "nanogpt"


def test_a_word_before_a_figure_is_no_prefix(row):
    assert row("***** Evaluating perplexity, Epoch 0/2 *****\nthe best ppl: 3.5\nworse ppl: 4.5\n").perplexity is None


def test_the_steps_of_deepspeeds_pipeline_are_the_runs_where_megatron_prints_none(row, steps):
    """stark-sim/megatron-deepspeed-lock-clock, dual16_tp1pp4dp4_base20: the arguments are Megatron's, the steps the engine's."""
    arguments = {"world_size": 16, "global_batch_size": 16, "micro_batch_size": 1, "seq_length": 2048}
    text = (
        "using world size: 16, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 4\n"
    )
    text += "------------------------ arguments ------------------------\n"
    text += "".join(f"  {name} {'.' * 30} {value}\n" for name, value in arguments.items())
    engine = "".join(f"steps: {i} loss: {12.5 - i / 8} iter time (s): 2.048 samples/sec: 7.812\n" for i in range(1, 6))
    found = row(text + engine)
    assert (found.format, found.step_time_s_mean, found.measured_steps) == ("megatron", 2.048, 4)
    assert (found.loss_first, found.loss_last, found.tokens_per_second) == (12.375, 11.875, 16000.0)
    assert [step.step for step in steps(text + engine)] == [1, 2, 3, 4, 5]
    own = " iteration        {0}/     100 | elapsed time per iteration (ms): 3000.0 | lm loss: 2.5E+00 |\n"
    both = row(text + engine.replace("steps: 1 ", "") + "".join(own.format(i) for i in range(1, 6)))
    assert (both.step_time_s_mean, both.loss_last) == (3.0, 2.5)


SERVED = """============ Serving Benchmark Result ============
Successful requests:                     {0}
Failed requests:                         {1}
Benchmark duration (s):                  100.00
Total input tokens:                      40000
Total generated tokens:                  10000
Request throughput (req/s):              2.00
{2}Output token throughput (tok/s):         100.00
Peak output token throughput (tok/s):    139.00
Total Token throughput (tok/s):          500.00
---------------Time to First Token----------------
Mean TTFT (ms):                          1500.00
Median TTFT (ms):                        1400.50
P99 TTFT (ms):                           4000.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          17.25
Median TPOT (ms):                        17.00
----------------End-to-end Latency----------------
Mean {3} (ms):                        2500.00
Median {3} (ms):                      2400.00
P90 {3} (ms):                         2900.00
P99 {3} (ms):                         3000.00
==================================================
"""


@pytest.mark.parametrize("whole", ["E2EL", "E2E Latency"])
@pytest.mark.parametrize("given", ["", "Input token throughput (tok/s):          400.00\n"])
def test_the_table_of_a_serving_benchmark_says_what_its_json_says(row, given, whole):
    found = row(SERVED.format(200, 0, given, whole))
    document = {
        "duration": 100.0, "completed": 200, "failed": 0, "total_token_throughput": 500.0, "output_throughput": 100.0,
        "request_throughput": 2.0, "median_ttft_ms": 1400.5, "mean_tpot_ms": 17.25, "mean_e2el_ms": 2500.0, "median_e2el_ms": 2400.0,
        "p90_e2el_ms": 2900.0, "p99_e2el_ms": 3000.0,
    }  # fmt: skip
    expected = row(json.dumps(document), "result.json").to_dict()
    assert {**found.to_dict(), "source": None, "run_id": None} == {**expected, "source": None, "run_id": None}
    assert (found.time_to_first_token_s_p50, found.prompt_tokens_per_second, found.latency_s_p90) == (
        1.4005,
        400.0,
        2.9,
    )


def test_a_table_of_few_answers_has_no_rates_and_no_latencies(row):
    found = row(SERVED.format(10, 190, "", "E2EL"))
    assert (found.elapsed_s, found.outcome) == (100.0, "COMPLETED")
    figures = (
        found.tokens_per_second,
        found.generated_tokens_per_second,
        found.prompt_tokens_per_second,
        found.queries_per_second,
    )
    assert figures == (None,) * 4
    assert (found.time_to_first_token_s_p50, found.time_per_output_token_s_mean, found.latency_s_mean) == (None,) * 3
