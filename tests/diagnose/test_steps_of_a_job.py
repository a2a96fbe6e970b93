"""Several programs in one job, started by srun one after the other, or by a script within one step."""

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]


def raised(program: str, error: str) -> str:
    return f'Traceback (most recent call last):\n  File "/w/{program}", line 3, in <module>\n    main()\n{error}\n'


FAILED = "srun: error: gn07: task 0: Exited with exit code 1\nsrun: Terminating StepId=815.{}\n"
FIRST = raised("convert.py", "ValueError: 7 heads cannot be split")
MISSED = "ModuleNotFoundError: No module named 'rouge_score'"
UNREAD = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"


@pytest.mark.parametrize("error", [MISSED, UNREAD, "KeyError: 'scores'"])
def test_what_fails_in_a_later_step_ended_none_before_it(diagnose: Diagnose, error: str) -> None:
    made = diagnose(FIRST + FAILED.format(0) + raised("score.py", error) + FAILED.format(1))
    assert (made.cause.id, made.chain) == ("python_exception", ("python_exception",))
    assert "7 heads" in made.evidence[0].text


def test_a_rank_of_the_same_step_that_writes_late_may_say_more(diagnose: Diagnose) -> None:
    made = diagnose(FIRST + FAILED.format(0) + raised("convert.py", MISSED))
    assert made.cause.id == "package_missing"


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."


def test_a_step_that_finds_no_memory_is_told_as_before(diagnose: Diagnose) -> None:
    assert diagnose(FIRST + FAILED.format(0) + raised("train.py", FULL) + FAILED.format(1)).cause.id == "device_oom"


OPENING = "Loading the weights of both programs from /w/model\nComparing 64 prompts of the tokenizer at once\n"
AGAIN = "W0819 20:30:{}.887000 77 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"


def test_what_failed_within_a_step_of_several_programs_is_known(diagnose: Diagnose) -> None:
    first = AGAIN.format("05") + OPENING + raised("compare.py", "AssertionError: only 94 % agree") + CHILD
    made = diagnose(first + AGAIN.format("40") + OPENING + "wrote answers\n" + FAILED.format(0))
    assert made.cause.id == "python_exception" and "94 %" in made.evidence[0].text
    apart = diagnose(first + FAILED.format(0) + AGAIN.format("40") + OPENING + "wrote answers\n" + FAILED.format(1))
    assert "94 %" not in apart.evidence[0].text


def test_an_interrupt_of_what_is_called_at_exit_ended_nothing(diagnose: Diagnose) -> None:
    steps = "".join(f"step {n} loss: {3 - n / 10}\n" for n in range(1, 10))
    stack = 'Traceback (most recent call last):\n  File "/e/actors.py", line 3, in <lambda>\n    stop()\nKeyboardInterrupt:\n'
    ignored = "Exception ignored in atexit callback: <function stop at 0x7d>\n"
    assert diagnose(steps + ignored + stack).cause.id == "unknown"
    assert diagnose(steps + stack).cause.id == "cancelled"
