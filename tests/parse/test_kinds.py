"""What a run did, where its log holds a configuration of training and no training, or a training in words that are not read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading, Row

BATCH = ("micro_batch_size", "gradient_accumulation_steps", "global_batch_size")
_PRINT = "[2026-01-01 10:00:00,001] [INFO] [config.py:1007:print] "
ENGINE = f"{_PRINT}DeepSpeedEngine configuration:\n" + "".join(
    f"{_PRINT}  {name} {'.' * 10} {value}\n"
    for name, value in {
        "gradient_accumulation_steps": 8,
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "world_size": 4,
    }.items()
)
OPTIMIZER = "[2026-01-01 10:00:00,001] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed Basic Optimizer = AdamW\n"
INFO = "[INFO|trainer.py:4643] 2026-01-01 10:00:05,100 >> "
EVALUATION = f"{INFO}\n***** Running Evaluation *****\n{INFO}  Num examples = 40\n{INFO}  Batch size = 1\n"
BAR = "".join(f" {n * 10}%|{'#' * n}   | {n}/10 [00:0{n}<00:0{9 - n},  1.0s/it]\n" for n in range(1, 9))
METRICS = (
    "***** eval metrics *****\n  eval_loss                   =     0.5\n  eval_runtime                = 0:00:10.86\n"
)
PREDICTION = EVALUATION.replace("Evaluation", "Prediction")
TRAINING = f"{INFO}***** Running training *****\n{INFO}  Num examples = 640\n{INFO}  Total optimization steps = 10\n"
CANCELLED = "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"


def raised(*functions: str, error: str = MEMORY) -> str:
    frames = "".join(f'  File "/w/a.py", line {n}, in {name}\n    f()\n' for n, name in enumerate(functions, 3))
    return f"Traceback (most recent call last):\n{frames}{error}"


def batch(row: Row) -> set[int | None]:
    return {getattr(row, name) for name in BATCH}


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (ENGINE + EVALUATION + BAR + METRICS, "eval"),
        (ENGINE + EVALUATION + BAR, "eval"),
        (ENGINE + EVALUATION + BAR + CANCELLED, "eval"),
        (ENGINE + "{'eval_runtime': 10.86, 'eval_samples_per_second': 3.7}\n", "eval"),
        (ENGINE + raised("main", "evaluate", "evaluation_loop"), "eval"),
        (ENGINE + PREDICTION + BAR + "***** predict metrics *****\n  predict_runtime = 0:00:09.36\n", "infer"),
        (ENGINE + PREDICTION + BAR + CANCELLED, "infer"),
        (ENGINE, None),
        (ENGINE + CANCELLED, None),
        (ENGINE + raised("main", "load_model"), None),
        (ENGINE + EVALUATION + "step 3: loss 2.25\n", None),
    ],
)
def test_a_configuration_that_is_printed_is_no_training(row: Callable[..., Row], log: str, kind: str | None) -> None:
    found = row(log)
    assert (found.kind, batch(found)) == (kind, {None})


@pytest.mark.parametrize(
    "log",
    [
        TRAINING + ENGINE + EVALUATION + BAR + CANCELLED,
        ENGINE + TRAINING + BAR,
        ENGINE + "***** Running training *****\n" + EVALUATION + METRICS,
        OPTIMIZER + ENGINE + EVALUATION + CANCELLED,
        ENGINE + raised("main", "train", "_inner_training_loop", "training_step"),
        ENGINE + raised("main", "train", "evaluate", "evaluation_loop"),
        ENGINE + "[Step 10/20] Loss: 5.1 | lr 1e-5\n[Step 20/20] Loss: 4.1 | lr 1e-5\n",
        ENGINE + "Epoch 0:  50%|## | 5/10 [00:05<00:05,  1.0s/it, loss=2.5]\n",
        ENGINE + "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n",
    ],
)
def test_what_shows_a_training_is_one_with_its_batch(row: Callable[..., Row], log: str) -> None:
    found = row(log)
    assert (found.kind, batch(found)) == ("train", {2, 8, 64})


def arguments(**values: object) -> str:
    table = {"global_batch_size": 4, "micro_batch_size": 1, "seq_length": 512, "train_iters": 1, **values}
    lines = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in table.items())
    return f"------------------------ arguments ------------------------\n{lines}-------------------- end of arguments ---------------------\n"


RANKS = "using world size: {0}, data-parallel size: {0}, context-parallel size: 1, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n"
MEGATRON = RANKS.format(4) + arguments(world_size=4)


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("> initializing torch distributed ...\nprompt: a\nanswer: b\nDone rep=0\n", None),
        (CANCELLED, None),
        (" validation loss at iteration 0 on test set | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 | \n", "eval"),
        (" validation loss at iteration 0 | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 | \n", "eval"),
        ("training ...\n", "train"),
        ("[before the start of training step] datetime: 2026-01-01 10:00:00 \n", "train"),
        (raised("<module>", "pretrain", "setup_model_and_optimizer"), "train"),
        (" iteration 1/ 1 | elapsed time per iteration (ms): 12.3 | lm loss: 5.0E+00 |\n", "train"),
    ],
)
def test_megatrons_arguments_alone_are_no_training(row: Callable[..., Row], rest: str, kind: str | None) -> None:
    found = row(MEGATRON + rest)
    assert (found.format, found.kind, found.world_size) == ("megatron", kind, 4)
    assert (found.micro_batch_size, found.global_batch_size) == ((1, 4) if kind == "train" else (None, None))


def nano(line: str, evaluated: str = "step {}: train loss 2.5, val loss 2.75\n") -> str:
    return "".join(
        (evaluated.format(i) if i % 50 == 0 else "") + line.format(i, 9000 if i % 50 == 0 else 500)
        for i in range(0, 101, 10)
    )


@pytest.mark.parametrize(
    ("line", "loss", "time_s"),
    [
        ("iter {}: loss 2.5000, time {}.00ms, mfu 1.82%\n", 2.5, 0.5),
        ("iter {}: loss 2.5000, time {}.00 ms, mfu 1.82%\n", 2.5, 0.5),
        ("iter {}: loss 2.5000 BPC, time {}.00ms, mfu 1.82%\n", None, 0.5),
        ("iter {}: loss 2.5000 bits, time {}.00 ms\n", None, 0.5),
        ("iter {} | loss 2.5000 | {} ms\n", None, None),
        ("", None, None),
    ],
)
def test_trainings_of_nanogpt_s_kin_are_no_evaluations(
    row: Callable[..., Row], line: str, loss: float | None, time_s: float | None
) -> None:
    found = row(nano(line))
    assert (found.format, found.kind, found.eval_loss) == ("nanogpt", "train", 2.75)
    assert (found.loss_last, found.step_time_s_mean) == (loss, time_s)


def test_a_loss_of_another_unit_is_no_loss_and_its_evaluation_takes_time(row: Callable[..., Row]) -> None:
    log = nano("iter {}: loss 2.5 BPC, time {}.00ms\n", "step {}: train loss 2.5 BPC, val loss 2.75 BPC\n")
    found = row(log)
    assert (found.kind, found.loss_first, found.eval_loss, found.step_time_s_mean) == ("train", None, None, 0.5)


def test_nanogpt_that_only_evaluates_evaluates(row: Callable[..., Row]) -> None:
    """The evaluation before its first step is a training's too, unless its settings are printed, of which one asks for no more."""
    evaluated = "step 0: train loss 2.5, val loss 2.75\n"
    assert row("Overriding: eval_only = True\n" + evaluated).kind == "eval"
    assert (
        row("eval_interval = 500\neval_only = True # set this to True to do just evaluation\n" + evaluated).kind
        == "eval"
    )
    for end in (
        "",
        raised("<module>", "forward"),
        "Memory access fault by GPU node-4 on address 0x14e2. Reason: Unknown.\n",
    ):
        found = row("using fused AdamW: True\n" + evaluated + end)
        assert (found.kind, found.eval_loss) == (None, 2.75)


def test_lines_with_a_norm_of_gradients_are_a_training_s_whose_evaluation_is_not_its_kind(
    row: Callable[..., Row],
) -> None:
    step = "[12:00:0{0}] INFO: loss: {0}.8619, orth_loss: 0.0018, total_loss: {0}.8637, grad_norm: 21.1250\n"
    found = row(
        "".join(map(step.format, range(3, 0, -1))) + "INFO: {'eval_loss': 1.327, 'eval_runtime': 240.4, 'epoch': 3.0}\n"
    )
    assert (found.kind, found.eval_loss, found.outcome) == (None, 1.327, "UNKNOWN")
    assert str(found.outcome_reason).startswith("the log has training steps in words that are not read")


CALL = "{{'train_runtime': {0}, 'train_samples_per_second': 0.8, 'train_steps_per_second': {1:.3f}, 'train_loss': 1.5, 'epoch': 1.0}}\n100%|####| 8/8 [00:{2:02d}<00:00,  1.2s/it]\n"


def calls(*times: float) -> str:
    return "".join(CALL.format(time, 8 / time, int(time)) for time in times)


@pytest.mark.parametrize("times", [(11.2237, 9.3417), (9.3369, 9.3247, 11.2237, 9.3417), (11.2, 9.3, 11.2)])
def test_of_several_calls_that_end_in_one_run_no_time_is_the_run_s(
    read: Callable[..., Reading], times: tuple[float, ...]
) -> None:
    found = read("  0%|    | 0/8 [00:00<?, ?it/s]\n" + calls(*times))
    assert {(row.kind, row.outcome, row.elapsed_s, row.step_time_s_mean) for row in found.rows} == {
        ("train", "COMPLETED", None, None)
    }
    assert any("several trainings end here" in said for said in found.left_empty)


@pytest.mark.parametrize("lead", ["", "2026-06-18 00:29:32,984 - INFO - Evaluation results: "])
def test_of_several_trainings_that_end_in_one_run_no_evaluation_is_the_run_s(
    read: Callable[..., Reading], lead: str
) -> None:
    """An evaluation follows each, as programs print it that train one model after another without step lines."""
    said = lead + "{{'eval_loss': {}, 'eval_runtime': 1.1, 'eval_perplexity': 2.5, 'epoch': 1.0}}\n"
    found = read("".join(calls(time) + said.format(loss) for time, loss in ((11.2, 0.9), (9.3, 0.5), (7.1, 0.7))))
    assert {(row.outcome, row.elapsed_s, row.eval_loss, row.perplexity) for row in found.rows} == {
        ("COMPLETED", None, None, None)
    }
    [one] = read(calls(11.2) + said.format(0.9)).rows
    assert (one.elapsed_s, one.eval_loss) == (11.2, 0.9)


@pytest.mark.parametrize("times", [(900.1,), (900.1, 900.1), (900.1, 901.9)])
def test_nodes_that_end_together_are_one_training(row: Callable[..., Row], times: tuple[float, ...]) -> None:
    assert row(calls(*times)).elapsed_s == 900.1


@pytest.mark.parametrize(
    ("said", "ranks", "parallel"),
    [
        ("", 4, 1),
        ("mpu_info:\n\tworld_size=4\n\ttp_size=1\n", 4, 1),
        ("mpu_info:\n\tworld_size=64\n\ttp_size=1\n", None, 1),
        ("mpu_info:\n\tworld_size=64\n\ttp_size=8\n", None, None),
        ("0: world_size: 64\n", None, 1),
        (arguments(fake_world_size=64, fake_tp=8, world_size=4), None, None),
    ],
)
def test_a_number_of_ranks_that_two_lines_tell_differently_is_none(
    read: Callable[..., Reading], said: str, ranks: int | None, parallel: int | None
) -> None:
    found = read(MEGATRON + said + "training ...\n")
    assert (found.rows[0].world_size, found.rows[0].tensor_parallel) == (ranks, parallel)
    assert any("ambiguous world_size: 4 and 64" in one for one in found.left_empty) == (ranks is None)
