"""Several runs in one log: each has the facts and results that its own text says, as if it stood alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hpc_llm.parsing import Reading

OF_THE_LOG = {
    "run_id",
    "source",
    "job_id",
    "gpu",
    "nodes",
    "outcome",
    "outcome_reason",
    "cause",
    "cause_confidence",
    "started_at",
}
"""What belongs to the whole log, or depends on the text around a run."""
CANCELLED = "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-05-01T10:30:00 DUE TO PREEMPTION ***\n"


def megatron_steps(n: int) -> str:
    return "".join(
        f" iteration {i:8}/      40 | consumed samples: {i * 8:12} | elapsed time per iteration (ms): {100.0 * n:.1f} |"
        f" learning rate: 1.5E-04 | global batch size:    {8 * n} | lm loss: {9 - i / 10:.6E} | loss scale: 1.0 |\n"
        for i in range(1, 41)
    )


def megatron_world(n: int) -> str:
    return f"using world size: {n}, data-parallel size: {n}, tensor-model-parallel size: {n}, pipeline-model-parallel size: 1\n"


def megatron(n: int) -> str:
    table = f"  micro_batch_size ................................ {n}\n  seq_length ...................................... {512 * n}\n"
    arguments = f"-------------------- arguments --------------------\n{table}  world_size ...... {n}\n"
    evaluation = f" validation loss at iteration 40 | lm loss value: {n}.500000E+00 | lm loss PPL: 1.200000E+01 | \n"
    return megatron_world(n) + arguments + megatron_steps(n) + evaluation


def megatron_without_table(n: int) -> str:
    return megatron_world(n) + megatron_steps(n)


def megatron_with_end(n: int) -> str:
    return megatron(n) + "[after training is done] datetime: 2026-12-01 11:30:00 \n"


def nanogpt(n: int) -> str:
    head = f"tokens per iteration will be: {1024 * n:,}\nnumber of parameters: {n}.50M\nstep 0: train loss 10.5, val loss 10.{n}\n"
    steps = "".join(f"iter {i}: loss {10 - i / 100:.4f}, time {100 * n}.00ms, mfu 9.50%\n" for i in range(0, 200, 10))
    return f"{head}{steps}step 200: train loss 7.0, val loss 7.{n}\n"


def nanogpt_evaluation(n: int) -> str:
    return f"tokens per iteration will be: {1024 * n:,}\nnumber of parameters: {n}.50M\nstep 0: train loss 3.5, val loss 3.{n}\n"


def build_nanogpt(n: int) -> str:
    head = f"total desired batch size: {1024 * n}\n=> calculated gradient accumulation steps: {n}\nvalidation loss: 10.{n}\n"
    steps = (
        f"step {i:5d} | loss: {10 - i / 100:.6f} | lr 6.0e-05 | norm: {n}.5 | dt: {100 * n}.00ms | tok/sec: 10240.00\n"
        for i in range(20)
    )
    return f"{head}{''.join(steps)}"


def nanochat(n: int) -> str:
    head = f"Number of parameters: {n}60,988,160\nTotal batch size {1024 * n:,} => gradient accumulation steps: {n}\n"
    steps = "".join(
        f"step {i:05d}/00020 ({5 * i}.00%) | loss: {10 - i / 100:.6f} | lrm: 1.00 | dt: {100 * n}.00ms | tok/sec: 10,240 | bf16_mfu: {n}.50 | epoch: 1\n"
        for i in range(20)
    )
    return f"{head}{steps}Peak memory usage: {n}000.00MiB\nTotal training time: 0.10m\n"


def composer(n: int) -> str:
    steps = "".join(
        f"[batch={i}/20]:\n\t Train trainer/device_train_microbatch_size: {n}\n\t Train loss/train/total: {12 - i / 10:.4f}\n"
        f"\t Train throughput/tokens_per_sec: {1000.0 * n}\n"
        for i in range(1, 21)
    )
    return f"Config:\nnum_gpus_per_node: 8\nnum_nodes: {n}\n\n{steps}\t Eval metrics/eval/LanguageCrossEntropy: {n}.5\n"


def deepspeed(n: int) -> str:
    said = "[2026-05-01 10:00:00,000] [INFO] "
    facts = {"gradient_accumulation_steps": n, "train_batch_size": 8 * n, "train_micro_batch_size_per_gpu": n,
             "world_size": 8, "zero_optimization_stage": n}  # fmt: skip
    setup = "".join(f"{said}[config.py:984:print]   {name} ...... {value}\n" for name, value in facts.items())
    steps = "".join(
        f"{said}[timer.py:260:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=50.0, "
        f"CurrSamplesPerSec={50.0 + n}, MemAllocated=13.5GB, MaxMemAllocated={30 + n}.0GB\n"
        for i in range(10, 110, 10)
    )
    return setup + steps


def deepspeed_launched(n: int) -> str:
    said = "[2026-05-01 09:59:00,000] [INFO] "
    command = (
        f"{said}[launch.py:253:main] process 7 spawned with command: ['python', 'train.py', '--seq_len', '{512 * n}']\n"
    )
    return command + f"{said}[config.py:980:print] DeepSpeedEngine configuration:\n" + deepspeed(n)


def deepspeed_chat(n: int) -> str:
    line = "Model Parameters: 1.429 B, Latency: 0.51s, TFLOPs: 60.1, Samples/sec: 31.4, Time/seq 0.03s"
    return (
        "***** Running training *****\n***** Evaluating perplexity, Epoch 0/1 *****\nppl: 4937.0, loss: 8.504\n"
        f"{line}, Batch Size: {n}, Sequence Length: {256 * n}\n"
        f"***** Evaluating perplexity, Epoch 1/1 *****\nppl: {n}.25, loss: 0.{n}\n"
    )


def mlperf(n: int) -> str:
    def line(key: str, value: Any, ms: int, event: str = "POINT_IN_TIME", **metadata: Any) -> str:
        record = {"namespace": "", "time_ms": 1700000000000 + ms, "event_type": event, "key": key, "value": value}
        return f":::MLLOG {json.dumps({**record, 'metadata': metadata})}\n"

    facts = line("cache_clear", True, 0) + line("init_start", None, 0, "INTERVAL_START")
    facts += line("global_batch_size", 8 * n, 1) + line("max_sequence_length", 512 * n, 2)
    facts += line("tracked_stats", {"before_model_init": 9.5}, 3)
    begin = line("run_start", None, 1000, "INTERVAL_START")
    evaluation = line("eval_accuracy", 0.9 / n, 2000, samples_count=99)
    return facts + begin + evaluation + line("run_stop", None, 1000 + 60000 * n, "INTERVAL_END", status="success")


def mlperf_cut_short(n: int) -> str:
    return mlperf(n)[: mlperf(n).rindex(":::MLLOG")]


def mlperf_of_losses(n: int) -> str:
    return mlperf_cut_short(n).replace("eval_accuracy", "train_loss")


def accelerate(n: int) -> str:
    return f"***** Running training *****\n  Num Epochs = 1\nepoch 0: perplexity: {n}.25 eval_loss: 2.{n}\n"


def hf_trainer(n: int) -> str:
    return (
        f"***** Running training *****\n  Num examples = {100 * n}\n  Num Epochs = 2\n"
        f"  Instantaneous batch size per device = {n}\n  Total optimization steps = 60\n"
        f"{{'loss': {n}.5, 'grad_norm': 0.75, 'learning_rate': 4e-05, 'epoch': 0.5}}\n"
        f"{{'eval_loss': 2.{n}, 'eval_runtime': 3.1, 'epoch': 1.0}}\n"
        f"{{'train_runtime': {60.0 * n}, 'train_steps_per_second': 0.5, 'train_loss': 2.3, 'epoch': 2.0}}\n"
    )


def torchtitan(n: int) -> str:
    said = "[titan] 2026-05-01 10:00:00,000 - root - INFO - "
    steps = "".join(
        f"{said}step: {i:2}  loss:  {9 - i / 10:.4f}  memory: {n}.50GiB(1.10%)  tps: {1000 * n}  tflops: 1.50  mfu: 9.50%\n"
        for i in range(1, 11)
    )
    head = f"{said}Starting job: run {n}\n{said}Building 1-D device mesh with ['dp'], [{n}]\n"
    return head + f"{said}Model llama3 debug size: {1000 * n} total parameters\n" + steps


def llama_factory(n: int) -> str:
    return "".join(
        json.dumps({"current_steps": i, "total_steps": 50, "loss": n + i / 100, "lr": 1e-4, "epoch": i / 50,
                    "elapsed_time": f"0:00:{i}", "remaining_time": "0:00:00", "throughput": 100.0 * n}) + "\n"
        for i in range(10, 60, 10)
    )  # fmt: skip


def ms_swift(n: int) -> str:
    return "".join(
        json.dumps({"loss": n + i / 100, "learning_rate": 1e-4, "epoch": i / 50, "global_step/max_steps": f"{i}/50",
                    "elapsed_time": f"{i}s", "memory(GiB)": 7.5, "train_speed(s/it)": 1.0}) + "\n"
        for i in range(10, 60, 10)
    )  # fmt: skip


def vllm(n: int) -> str:
    return (
        f"============ Serving Benchmark Result ============\nSuccessful requests:                     {n}\n"
        f"Benchmark duration (s):                  {n}.50\nTotal Token throughput (tok/s):          {1000 * n}.00\n"
    )


def homework_v1(n: int) -> str:
    steps = "".join(
        f"[Step {i}/30] Loss: {n}.{i:04} | Global Tokens/s: {100 * n}.5 | GPU Mem (GB): 3.10 | Peak Mem: {n}.25\n"
        for i in range(1, 31)
    )
    return deepspeed_launched(n).split("[2026-05-01 10:00:00,000] [INFO] [timer")[0] + steps


def homework_v1_with_end(n: int) -> str:
    return homework_v1(n) + f"Training done in {10 * n}.50 seconds.\nPeak GPU Mem (GB): {n}.25\n"


def homework_v2(n: int) -> str:
    steps = "".join(f"[Recording] Step {i}: Loss {n}.{i:04} | {100 * n}.5 tokens/s\n" for i in range(31, 61))
    return f"{steps}Total Recording Time: {n}.5 s\nPeak GPU Mem (GB): {n}.25\n"


def nemo(n: int) -> str:
    steps = "".join(
        f"Training epoch 0, iteration {i}/{100 * n - 1} | lr: 1e-05 | global_batch_size: {8 * n} | global_step: {i} |"
        f" reduced_train_loss: {n}.{i:03} | train_step_timing in s: {n}.5 | consumed_samples: {i * 8}\n"
        for i in range(20)
    )
    return f"trainer.max_steps={100 * n}\n{steps}"


def sagemaker(n: int) -> str:
    steps = "".join(
        f"Batch {i} Loss: {n}.5, Speed: {10 * n}.0 samples/sec, Model TFLOPS/GPU: {n}.5\n" for i in range(1, 10)
    )
    return f"{steps}Batch 9 Validation loss: {n}.5\n"


LOGS = [homework_v2, nemo, sagemaker, megatron, megatron_without_table, megatron_with_end, nanogpt, nanogpt_evaluation, build_nanogpt, nanochat, composer, deepspeed,
        deepspeed_launched, deepspeed_chat, mlperf, mlperf_cut_short, mlperf_of_losses, accelerate, hf_trainer, torchtitan, llama_factory,
        ms_swift, vllm, homework_v1, homework_v1_with_end]  # fmt: skip


def told(reading: Reading) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.to_dict().items() if k not in OF_THE_LOG} for row in reading.rows]


@pytest.mark.parametrize("between", ["", CANCELLED], ids=["", "cancelled"])
@pytest.mark.parametrize("log", LOGS)
def test_each_run_has_its_own_facts(read: Callable[..., Reading], log: Callable[[int], str], between: str) -> None:
    alone = [told(read(log(n))) for n in (1, 2, 3)]
    assert all(len(rows) == 1 for rows in alone)
    assert len({json.dumps(rows) for rows in alone}) == 3, "the runs of this test differ"
    assert told(read(log(1) + between + log(2))) == alone[0] + alone[1]
    assert told(read(log(3) + between + log(2) + between + log(1))) == alone[2] + alone[1] + alone[0]


@pytest.mark.parametrize(
    ("log", "first_step"),
    [(megatron, " iteration "), (megatron_with_end, " iteration "), (nanogpt, "iter 0:"), (composer, "[batch="),
     (torchtitan, "[titan] 2026-05-01 10:00:00,000 - root - INFO - step: ")],
)  # fmt: skip
def test_a_run_that_came_to_nothing_changes_nothing_before_it(
    read: Callable[..., Reading], log: Callable[[int], str], first_step: str
) -> None:
    opening = log(2)[: log(2).index(first_step)]
    assert told(read(log(1) + opening))[:1] == told(read(log(1)))
    crashed = read(log(1) + opening + 'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: gone\n')
    assert told(crashed)[0] == told(read(log(1)))[0]
    assert [row.outcome for row in crashed.rows][1:] == ["FAILED"]


def test_settings_said_late_are_of_the_run_that_goes_on(read: Callable[..., Reading]) -> None:
    launch = "[launch.py:253:main] command: ['python', 'train.py', '--seq_len', '{}']\n"
    lines = deepspeed(2).splitlines(keepends=True)
    middle = len(lines) - 5
    text = "".join([*lines[:middle], launch.format(512), *lines[middle:]])
    assert [row.sequence_length for row in read(text).rows] == [512]
    assert [row.sequence_length for row in read(text + launch.format(64)).rows] == [512], "no step follows it"
    assert [row.sequence_length for row in read(text + launch.format(64) + deepspeed(1)).rows] == [512, 64]


SAID = "[rank0]:[titan] 2025-05-06 10:00:00,000 - root - INFO - "


def resumed_titan(ranks: int, gpu: str, steps: Iterable[int], rate: int) -> str:
    lines = "".join(
        f"{SAID}step: {i:2}  loss:  {12 - i / 20:.4f}  memory: 4.50GiB(1.10%)  tps: {rate}  tflops: 1.50  mfu: 9.50%\n"
        for i in steps
    )
    head = f"{SAID}Building 1-D device mesh with ['dp_shard'], [{ranks}]\n{SAID}CUDA capacity: {gpu} with 79.10GiB memory\n"
    start = f"local batch size 1, global batch size {ranks}, sequence length 8192, total steps 60 (warmup 2).\n"
    return f"{head}{SAID}Training starts at step {min(steps)}, with {start}{lines}"


def resumed_nemo(ranks: int, steps: Iterable[int], seconds: float) -> str:
    lines = "".join(
        f"Training epoch 0, iteration {i}/99 | lr: 1.5e-05 | global_batch_size: 128 | global_step: {i} | reduced_train_loss: {11 - i / 10:.3f} |"
        f" train_step_timing in s: {seconds} | consumed_samples: {128 * (i + 1)}\n"
        for i in steps
    )
    return f"Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/{ranks}\n{lines}"


@pytest.mark.parametrize(
    "between", ["", 'Traceback (most recent call last):\n  File "a.py", line 1\nRuntimeError: gone\n']
)
def test_what_goes_on_with_other_ranks_or_another_gpu_is_another_run(
    read: Callable[..., Reading], between: str
) -> None:
    first = resumed_titan(8, "H100", range(1, 31), 6000)
    for ranks, gpu in ((4, "H100"), (8, "A100")):
        rows = read(first + between + resumed_titan(ranks, gpu, range(31, 61), 7000)).rows
        found = [(row.world_size, row.gpu, row.tokens_per_second) for row in rows]
        assert found == [(8, "H100", 48000.0), (ranks, gpu, ranks * 7000.0)]
    [row] = read(first + between + resumed_titan(8, "H100", range(31, 61), 7000)).rows
    assert (row.world_size, row.measured_steps) == (8, 59)
    rows = read(resumed_nemo(8, range(20), 3.5) + between + resumed_nemo(16, range(20, 40), 1.8)).rows
    assert [(row.world_size, row.step_time_s_mean) for row in rows] == [(8, 3.5), (16, 1.8)]


def test_an_evaluation_before_training_is_of_that_run(read: Callable[..., Reading]) -> None:
    text = "{'eval_loss': 9.5, 'eval_runtime': 3.1, 'epoch': 0.0}\n" + hf_trainer(2)
    assert [row.eval_loss for row in read(text).rows] == [2.2]


SAVED_BY_THE_SHELL = (
    'Traceback (most recent call last):\n  File "prepare.py", line 9, in <module>\nOSError: no such disk\n'
)
LOADED = 'Lmod has detected the following error: The following module(s) are unknown: "cuda/99"\n'


@pytest.mark.parametrize(
    "between", [SAVED_BY_THE_SHELL, LOADED, "./next.sh: line 3: 77 Killed   python prepare.py\n", CANCELLED]
)
@pytest.mark.parametrize("log", [megatron_with_end, hf_trainer, mlperf, homework_v1_with_end, vllm])
def test_what_stands_between_two_programs_is_of_neither(
    read: Callable[..., Reading], log: Callable[[int], str], between: str
) -> None:
    rows = read(log(1) + between + log(2)).rows
    assert [(row.outcome, row.cause) for row in rows] == [("COMPLETED", "none")] * 2
    assert rows[0].outcome_reason is None or "before" not in rows[0].outcome_reason
    assert [row.outcome for row in read(log(1) + between).rows][-1] in ("COMPLETED", "FAILED"), ()


def test_what_a_program_says_before_its_end_stays_its_own(read: Callable[..., Reading]) -> None:
    crashed = megatron(1).partition(" iteration       20/")[0] + SAVED_BY_THE_SHELL
    assert [row.outcome for row in read(crashed + megatron_with_end(2)).rows] == ["FAILED", "COMPLETED"]


def short(steps: Iterable[int], loss: float) -> str:
    return "".join(
        f"[Step {i}/9] Loss: {loss - i / 10:.4f} | Global Tokens/s: 99.0 | GPU Mem (GB): 3.10 | Peak Mem: 4.25\n"
        for i in steps
    )


@pytest.mark.parametrize("length", [2, 3, 4, 5, 9])
@pytest.mark.parametrize("copies", [1, 2, 4])
def test_runs_of_few_steps_are_not_copies_of_one_another(
    read: Callable[..., Reading], length: int, copies: int
) -> None:
    steps = [step for step in range(1, length + 1) for _ in range(copies)]
    rows = read("".join(short(steps, loss) for loss in (9.0, 8.0, 7.0))).rows
    assert [(row.measured_steps, row.loss_first, row.loss_last) for row in rows] == [
        (length, loss - 0.1, loss - length / 10) for loss in (9.0, 8.0, 7.0)
    ]


def test_a_run_that_ends_early_is_not_the_beginning_of_the_next(read: Callable[..., Reading]) -> None:
    rows = read(short([1, 2], 9.0) + short(range(1, 10), 8.0)).rows
    assert [(row.measured_steps, row.loss_last) for row in rows] == [(2, 8.8), (9, 7.1)]


@pytest.mark.parametrize(
    "steps", [[1, 2, 1, 2, 3, 3, 4, 4], [1, 1, 2, 2, 1, 2, 3, 3, 3], [1, 2, 3, 1, 4, 2, 5, 3, 4, 5]]
)
def test_a_rank_that_lags_at_the_beginning_is_no_run(read: Callable[..., Reading], steps: list[int]) -> None:
    [row] = read(short(steps, 9.0)).rows
    assert row.measured_steps == max(steps)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("lines", [2, 10])
def test_a_resumed_run_of_deepspeed_is_one(read, lines: int, copies: int) -> None:
    """`[Rank 0] step=` is the engine's global_steps, which load_checkpoint restores; the timer's count begins with the process."""
    said = "[2026-01-01 00:00:00,000] [INFO] [config.py:1001:print]   train_batch_size ............. 32\n"
    text = said.replace("  train_batch_size ............. 32", "DeepSpeedEngine configuration:") + said
    for i in range(10, 10 * lines + 1, 10):
        text += (
            f"[x] [INFO] [logging.py:107:log_dist] [Rank 0] step={1000 + i}, skipped=0, lr=[1e-05], mom=[[0.9, 0.95]]\n"
        )
        timer = f"[x] [INFO] [timer.py:264:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=16.0, "
        text += copies * f"{timer}CurrSamplesPerSec=16.0, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
    [found] = read(text).rows
    assert (found.format, found.step_time_s_mean) == ("deepspeed", 2.0)
    assert found.measured_steps == (2 if lines == 2 else 9)
    assert found.outcome_reason == f"the log stops at step {1000 + 10 * lines} without a message of an end"
    again = text + text.replace("] step=1", "] step=2")
    assert len(read(again).rows) == 2


MEGATRON_LINE = (
    " iteration {0:8d}/ {1:7d} | consumed samples: {2:8d} | elapsed time per iteration (ms): {3} | learning rate: 1.0E-05 |"
    " global batch size:     8 | lm loss: 2.0 |\n"
)
LLAMA_FACTORY_LINE = (
    '{{"current_steps": {0}, "total_steps": 6750, "loss": 2.2, "lr": 1e-06, "epoch": 0.1, "percentage": 1.0,'
    ' "elapsed_time": "0:00:{0:02d}", "remaining_time": "6:00:00"}}\n'
)


@pytest.mark.parametrize(
    "second",
    [
        "".join(MEGATRON_LINE.format(i, 100000, 8 * i, 4000.0) for i in range(1370, 1376)),
        "".join(LLAMA_FACTORY_LINE.format(i) for i in range(10, 50, 10)),
    ],
    ids=["another number of steps", "another program"],
)
def test_excerpts_of_two_runs_without_an_opening_have_two_rows(read, second: str) -> None:
    """The second one's numbers are higher, so nothing but the total and the program's form tells it from the first."""
    first = "".join(MEGATRON_LINE.format(i, 1000, 8 * i, 1000.0) for i in range(1, 6))
    rows, alone = read(first + second).rows, [*read(first).rows, *read(second).rows]
    assert [one.step_time_s_mean for one in rows] == [one.step_time_s_mean for one in alone]
    assert [one.loss_last for one in rows] == [2.0, alone[1].loss_last]


def test_a_run_whose_lines_are_missing_in_between_is_one(read) -> None:
    text = "".join(MEGATRON_LINE.format(i, 1000, 8 * i, 1000.0) for i in (*range(1, 6), *range(300, 306)))
    assert len(read(text).rows) == 1


def test_steps_of_a_library_alone_are_no_figures_of_the_program_that_begins_behind_them(read):
    setting = "[INFO] [config.py:1000:print]   {} {}\n"
    engine = "".join(
        setting.format(name.ljust(29, "."), value) for name, value in (("train_batch_size", 64), ("world_size", 8))
    )
    engine += "".join(
        f"[INFO] [timer.py:199:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=256.0, CurrSamplesPerSec=256.1, MemAllocated=10.5GB, MaxMemAllocated=20.5GB\n"
        for n in range(10, 101, 10)
    )
    program = hf_trainer(1)
    [alone] = read(program).rows
    behind = read(engine + program).rows[-1]
    for name in (
        "step_time_s_mean",
        "measured_steps",
        "world_size",
        "global_batch_size",
        "peak_allocated_bytes",
        "loss_last",
    ):
        assert getattr(behind, name) == getattr(alone, name), name


STARTS = "[after megatron is initialized] datetime: {} \n"
ENDS = "[after training is done] datetime: {} \n"
SAVES = "  successfully saved checkpoint from iteration      12 to /ckpt [ t 1/1, p 1/1 ]\n"
ARGUMENTS = (
    "using world size: 8, data-parallel-size: 8, tensor-model-parallel size: 1, pipeline-model-parallel size: 1 \n"
    "------------------------ arguments ------------------------\n  micro_batch_size ................................ 4\n"
    "-------------------- end of arguments ---------------------\n"
)
ITERATIONS = "".join(
    f" iteration {n:8d}/      12 | consumed samples: {64 * n:12d} | elapsed time per iteration (ms): 1000.5 | learning rate: 1.0E-04 |"
    f" global batch size:    64 | lm loss: {9 - n / 10:.6E} | loss scale: 1.0 | grad norm: 1.000 |\n"
    for n in range(1, 13)
)
TRAINS = (
    "***** Running training *****\n  Num examples = 800\n  Total optimization steps = 50\n"
    + "".join(f"{{'loss': {3 - n / 100}, 'learning_rate': 1e-05, 'epoch': {n / 50}}}\n" for n in range(5, 51, 5))
    + "{'train_runtime': 100.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.5, 'train_loss': 2.7, 'epoch': 1.0}\n"
)  # fmt: skip
FAR = "note\n" * 400_000


@pytest.mark.parametrize("between", ["", FAR], ids=["near", "far"])
@pytest.mark.parametrize("closing", ["", SAVES])
def test_the_time_of_the_end_of_a_run_is_no_begin_of_the_next(
    read: Callable[[str], Reading], closing: str, between: str
) -> None:
    def one(day: str) -> str:
        return ARGUMENTS + STARTS.format(f"{day} 09:59:00") + ITERATIONS + ENDS.format(f"{day} 10:00:30") + closing

    rows = read(one("2024-05-06") + between + one("2024-05-09")).rows
    assert [row.started_at for row in rows] == ["2024-05-06T09:59:00", "2024-05-09T09:59:00"]


@pytest.mark.parametrize("between", ["", FAR], ids=["near", "far"])
@pytest.mark.parametrize("form", ["{}T{}+00:00\n", "[{} {}] says the script\n"])
def test_what_a_script_prints_before_and_behind_its_program_leaves_a_begin_empty_or_right(
    read: Callable[[str], Reading], form: str, between: str
) -> None:
    def one(day: str, begun: str, ended: str) -> str:
        return form.format(day, begun) + TRAINS + form.format(day, ended)

    first, second = one("2024-05-06", "09:00:00", "10:00:30"), one("2024-05-09", "09:00:00", "10:00:30")
    assert [row.started_at for row in read(first + between + second).rows] == ["2024-05-06T09:00:00", None]
    at_once = one("2024-05-06", "10:00:31", "10:10:00")
    begun = [row.started_at for row in read(first + between + at_once).rows]
    assert begun == ["2024-05-06T09:00:00", "2024-05-06T10:00:30"]
