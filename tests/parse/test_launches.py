"""Several launches of a launcher in one file, and what the script did before the first."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis, diagnose_stream
from hpc_llm.parsing import Reading

Read = Callable[..., Reading]

LAUNCH = (
    "W0503 03:16:55.508000 150 site-packages/torch/distributed/run.py:851] Setting OMP_NUM_THREADS environment variable for each process "
    "to be 1 in default, to avoid your system being overloaded\n"
)
OVER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain FAILED\n"
LOOP = "[Sun May  3 03:17:48 UTC 2026] [ERROR] tier failed; continuing\n"


def titan(message: str, rank: int = 0) -> str:
    return f"[rank{rank}]:[titan] 2026-05-03 03:17:05,474 - root - INFO - {message}\n"


def begins(batch: int = 8, rank: int = 0) -> str:
    settings = f"local batch size 1, global batch size {batch}, gradient accumulation steps 1, sequence length 64, total steps 20"
    return titan("Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1", rank) + titan(
        f"Trainer is initialized with {settings} (warmup 2)", rank
    )


def steps(first: int, last: int, rank: int = 0, loss: float = 6.0) -> str:
    line = "step: {:2}  loss:  {:.5f}  memory:  9.47GiB(30.19%)  tps: 810  tflops: 9.05  mfu: N/A"
    return "".join(titan(line.format(n, loss - n / 50), rank) for n in range(first, last + 1))


def raised(message: str, rank: int = 0) -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 4, in <module>',
        "    main()",
        f"RuntimeError: {message}",
    )
    return "".join(f"[rank{rank}]:{line}\n" for line in lines)


FINISHED = LAUNCH + begins() + steps(1, 20) + titan("Training completed")


def failed(message: str, batch: int = 8) -> str:
    return LAUNCH + begins(batch) + raised(message) + OVER + LOOP


def diagnose(log: str) -> Diagnosis:
    return diagnose_stream(io.BytesIO(log.encode()))


@pytest.mark.parametrize("filler", ["", "[rank0]: a line of a program\n" * 4000])
def test_what_later_launches_raise_ended_no_run_before_them(read: Read, filler: str) -> None:
    log = FINISHED + filler + failed("first", 16) + filler + failed("second", 32)
    whole, last = read(log).rows
    assert (whole.outcome, whole.measured_steps, whole.global_batch_size) == ("COMPLETED", 19, 8)
    assert (last.outcome, last.outcome_reason) == ("FAILED", "RuntimeError: second")
    assert last.global_batch_size == (None if filler else 32) and last.loss_first is None
    found = diagnose(log)
    assert found.details["message"] == "second" and "had come to its end" not in found.summary
    assert [one.outcome for one in found.runs] == ["COMPLETED", "FAILED"]


def test_launches_that_fail_before_one_trains_are_no_part_of_it(read: Read) -> None:
    (row,) = read(failed("first", 16) + FINISHED).rows
    assert (row.outcome, row.global_batch_size, row.measured_steps) == ("COMPLETED", 8, 19)


def test_a_later_launch_may_print_with_another_rank(read: Read) -> None:
    later = LAUNCH + begins(16, rank=4) + steps(1, 12, rank=4, loss=4.0)
    first, second = read(LAUNCH + begins() + steps(1, 5) + raised("gone") + OVER + later).rows
    assert (first.outcome, first.loss_last) == ("FAILED", 5.9)
    assert (second.measured_steps, second.loss_first, second.global_batch_size) == (11, 3.98, 16)


def test_the_launchers_of_several_nodes_start_one_run(read: Read) -> None:
    (row,) = read(LAUNCH * 3 + begins() + steps(1, 20) + titan("Training completed")).rows
    assert (row.outcome, row.measured_steps) == ("COMPLETED", 19)


def test_an_evaluation_by_torchrun_is_none_of_training(read: Read) -> None:
    (row,) = read(LAUNCH + "{'eval_loss': 2.1, 'eval_runtime': 3.1, 'epoch': 1.0}\n").rows
    assert row.kind == "eval"


HELPER = "Traceback (most recent call last):\n  File \"/w/report.py\", line 7, in <module>\n    import plots\nModuleNotFoundError: No module named 'plots'\n"
KEY = "Traceback (most recent call last):\n  File \"/w/report.py\", line 7, in <module>\n    f()\nKeyError: 'b'\n"
OTHERS = (
    LAUNCH,
    "The following values were not passed to `accelerate launch` and had defaults used instead:\n",
    "[2026-05-03 03:17:05,474] [INFO] [launch.py:146:main] WORLD INFO DICT: {'localhost': [0, 1]}\n",
)


@pytest.mark.parametrize("launch", OTHERS)
@pytest.mark.parametrize("helper", [HELPER, KEY])
def test_what_failed_before_the_first_launch_did_not_end_the_training(read: Read, helper: str, launch: str) -> None:
    log = f"{helper}--- next\n{launch}{begins()}{raised('widths differ')}{OVER}"
    (row,) = read(log).rows
    assert row.outcome_reason == "RuntimeError: widths differ"
    found = diagnose(log)
    assert found.details["message"] == "widths differ" and 4 in [one.line for one in found.evidence]


@pytest.mark.parametrize("helper", [HELPER, KEY])
def test_it_counts_where_nothing_else_is_known(read: Read, helper: str) -> None:
    assert diagnose(f"{helper}{LAUNCH}a line\n").cause.id in ("package_missing", "python_exception")
    assert diagnose(f"{helper}{FINISHED}").cause.id == "none"
    behind = diagnose(f"{LAUNCH}{begins()}{helper}{raised('widths differ')}")
    assert behind.evidence[0].line == 7


@pytest.mark.parametrize(
    ("before", "after"), [((1, 1), (1, 1)), ((1, 1), (1, 20)), ((1, 5), (1, 5)), ((1, 8), (6, 20))]
)
@pytest.mark.parametrize("end", ["", raised("gone"), titan("Training completed")])
@pytest.mark.parametrize("label", ["[rank0]:", ""])
def test_a_launch_begins_with_what_the_program_says_of_itself(
    read: Read, before: tuple[int, int], after: tuple[int, int], end: str, label: str
) -> None:
    """Without a word of a launcher."""
    log = begins() + steps(*before) + end + begins(16) + steps(*after)
    first, second = read(log.replace("[rank0]:", label)).rows
    said = [(row.global_batch_size, row.loss_first, row.loss_last) for row in (first, second)]
    assert said == [(batch, 6 - one / 50, 6 - last / 50) for batch, (one, last) in ((8, before), (16, after))]


def test_ranks_that_all_say_how_they_begin_are_one_launch(read: Read) -> None:
    log = begins() * 3 + "".join(steps(n, n) * 3 for n in range(1, 21)) + titan("Training completed") * 3
    (row,) = read(log.replace("[rank0]:", "")).rows
    assert (row.outcome, row.measured_steps, row.global_batch_size) == ("COMPLETED", 19, 8)
