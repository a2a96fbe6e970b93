"""Several jobs in one file of which the scheduler does not tell the end: what is of one is no other's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading

RULE = "+" + "-" * 77 + "+\n"
TABLE = (
    RULE
    + "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
    + "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
    + "|   0  NVIDIA L40S                    On  |   00000000:1B:00.0 Off |                    0 |\n"
    + RULE
)
LOADS = "loading the tokenizer\n2026-03-{day:02} {time} INFO reading data\n"
FAILED = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\n    main()\nRuntimeError: no\n'
ENDED = "slurmstepd: error: *** JOB {0} ON n1 CANCELLED AT 2026-03-{1:02}T{2} ***\n"


def head(day: int, time: str) -> str:
    return f"Mon Mar {day:2} {time} 2026       \n" + TABLE


def job(day: int, time: str) -> str:
    return head(day, f"{time}:00") + LOADS.format(day=day, time=f"{time}:20")


def told(reading: Reading) -> list[tuple[str | None, str | None, str | None]]:
    return [(row.job_id, row.started_at and row.started_at[5:16], row.outcome) for row in reading.rows]


def test_a_table_behind_a_failure_begins_the_next_job(read: Callable[..., Reading]) -> None:
    text = job(2, "08:00") + FAILED + job(2, "09:00") + FAILED + job(2, "10:00") + ENDED.format(31, 2, "10:30:00")
    failed = [(None, "03-02T08:00", "FAILED"), (None, "03-02T09:00", "FAILED")]
    assert told(read(text)) == [*failed, ("31", "03-02T10:00", "CANCELLED")]


@pytest.mark.parametrize("between", ["", "wandb: find logs at: ./wandb\n" * 9])
def test_a_last_look_at_the_gpus_is_the_same_jobs(read: Callable[..., Reading], between: str) -> None:
    [row] = read(job(2, "08:00") + FAILED + between + head(2, "08:10:00")).rows
    assert (row.outcome, row.started_at) == ("FAILED", "2026-03-02T08:00:00")


def test_who_looks_at_the_gpus_again_and_again_begins_no_job(read: Callable[..., Reading]) -> None:
    looks = "".join(head(2, f"08:0{n}:00") + "still loading\n" for n in range(1, 6))
    [row] = read(job(2, "08:00") + looks + FAILED + looks + ENDED.format(31, 2, "10:30:00")).rows
    assert (row.job_id, row.started_at) == ("31", "2026-03-02T08:00:00")


def test_a_begin_that_may_be_of_another_job_is_empty(read: Callable[..., Reading]) -> None:
    text = job(2, "08:00") + job(3, "09:00") + ENDED.format(31, 3, "10:30:00")
    assert told(read(text)) == [("31", None, "CANCELLED")]


def test_two_jobs_that_write_at_once_have_no_begin(read: Callable[..., Reading]) -> None:
    text = job(2, "08:00") + job(2, "08:01") + ENDED.format(32, 2, "08:02:00")
    text += LOADS.format(day=2, time="08:09:00") + ENDED.format(31, 2, "08:20:00")
    assert told(read(text)) == [("32", None, "CANCELLED"), ("31", None, "CANCELLED")]


def report(number: int, day: int, ended: str, place: str) -> str:
    return (
        f"\n{'-' * 60}\nSender: LSF System <lsfadmin@gpu7>\nSubject: Job {number}: <tune> in cluster <c1> Exited\n\n"
        f"Job <tune> was submitted from host <login> by user <me> in cluster <c1> at Mon Mar {day:2} 07:00:00 2026\n"
        "</home/me> was used as the home directory.\n</home/me/tune> was used as the working directory.\n"
        f"Started at Mon Mar {day:2} 08:00:00 2026\nTerminated at Mon Mar {day:2} 09:00:00 2026\n"
        f"Results reported at Mon Mar {day:2} 09:00:00 2026\n\nYour job looked like:\n\n{'-' * 60}\n"
        f"# LSBATCH: User input\npython tune.py\n{'-' * 60}\n\n{ended}\n\nResource usage summary:\n\n    CPU time :      13.55 sec.\n\n"
        f"The output (if any) {place}\n\n"
    )


@pytest.mark.parametrize("place", ["is above this job summary.", "follows:"])
def test_a_report_of_lsf_parts_jobs(read: Callable[..., Reading], place: str) -> None:
    def one(number: int, day: int, printed: str) -> str:
        said = report(number, day, "Exited with exit code 1.", place)
        return (
            said + printed
            if place == "follows:"
            else printed + said + "\n\nPS:\n\nRead file <a.err> for stderr output of this job.\n\n"
        )

    lost = "OSError: gone\n"
    text = one(71, 2, FAILED) + one(72, 3, FAILED.replace("RuntimeError: no\n", lost)) + one(73, 4, FAILED)
    reading = read(text)
    assert told(reading) == [(str(70 + n), f"03-0{n + 1}T08:00", "FAILED") for n in (1, 2, 3)]
    assert [row.outcome_reason for row in reading.rows] == ["RuntimeError: no", "OSError: gone", "RuntimeError: no"]


STEPS = "".join(f"{{'loss': {3 - n / 100}, 'learning_rate': 1e-05, 'epoch': {n / 50}}}\n" for n in range(5, 51, 5))
TRAINS = "***** Running training *****\n  Num examples = 800\n" + STEPS
TRAINS += "{'train_runtime': 100.0, 'train_steps_per_second': 0.5, 'train_loss': 2.7, 'epoch': 1.0}\n"
FAR = "note\n" * 400_000


@pytest.mark.parametrize("between", ["", FAR], ids=["near", "far"])
@pytest.mark.parametrize("form", ["{}T{}+00:00\n", "[{} {}] says the script\n"])
def test_the_one_time_between_two_runs_is_no_begin_where_none_stands_above_the_first(
    read: Callable[..., Reading], form: str, between: str
) -> None:
    time = form.format("2026-03-02", "09:00:00")
    assert [row.started_at for row in read(TRAINS + time + between + TRAINS).rows] == [None, None]
    begun = [
        row.started_at for row in read(form.format("2026-03-02", "08:00:00") + TRAINS + time + between + TRAINS).rows
    ]
    assert begun == ["2026-03-02T08:00:00", "2026-03-02T09:00:00"]
