"""Which of several causes is the root, what is said about it, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_plans import make_plan

from hpc_llm.diagnosis import Diagnosis, diagnose_files, jobs_under
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.ladder import rungs
from hpc_llm.diagnosis.more_time import walltime
from hpc_llm.diagnosis.remedies import device_oom, host_oom

Diagnose = Callable[[str], Diagnosis]

RANK_1_FAILS = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/t.py", line 54, in <module>
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:38056: Connection reset by peer.
[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/t.py", line 49, in <module>
[rank1]: ValueError: bad batch
"""
TIME_LIMIT = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n"
WATCHDOG = (
    "[rank{r}]:[E1 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n}, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600100 milliseconds before timing out.\n"
)


def test_the_rank_that_lost_its_peer_is_not_to_blame(diagnose: Diagnose) -> None:
    found = diagnose(RANK_1_FAILS)
    assert (found.cause.id, found.details["rank"]) == ("python_exception", "1")
    assert found.summary == "Rank 1 failed first: ValueError: bad batch"


def test_a_failure_that_hangs_the_job_until_its_time_limit_is_the_root(diagnose: Diagnose) -> None:
    found = diagnose(RANK_1_FAILS + TIME_LIMIT)
    assert found.chain[0] == "python_exception" and "walltime" in found.chain


def test_what_ranks_say_after_the_time_limit_follows_from_it(diagnose: Diagnose) -> None:
    assert diagnose(TIME_LIMIT + RANK_1_FAILS).cause.id == "walltime"


def test_out_of_memory_explains_the_watchdog(diagnose: Diagnose) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 63.98 GiB of which 1.00 GiB is free.\n"
    found = diagnose(WATCHDOG.format(r=0, n=7) + oom)
    assert found.chain == ("device_oom", "collective_timeout")
    assert (
        found.details["vendor"] == "HIP"
        and found.details["asked"] == "2.00 GiB"
        and found.details["free"] == "1.00 GiB"
    )
    assert "1.00 GiB free of 63.98 GiB" in found.summary


@pytest.mark.parametrize(
    ("waits", "behind"),
    [
        ([(0, 12), (1, 12), (2, 11)], "2"),
        ([(0, 96120), (0, 96117), (7, 96110)], None),  # a rank waits at two numbers in two groups
        ([(0, 12000), (3, 808)], None),  # nobody is so far behind in one group
    ],
)
def test_numbers_of_several_groups_are_not_compared(
    diagnose: Diagnose, waits: list[tuple[int, int]], behind: str | None
) -> None:
    found = diagnose("".join(WATCHDOG.format(r=rank, n=number) for rank, number in waits))
    assert (found.cause.id, found.details.get("silent_rank")) == ("collective_timeout", behind)
    assert (f"Rank {behind} is behind" in found.summary) == (behind is not None)
    assert behind is not None or "waited; look at the ranks that do not say so" in found.summary


def test_places_in_several_groups_are_no_ranks_of_the_job(diagnose: Diagnose) -> None:
    """torch before 2.2 writes no rank of the job before a message."""
    lines = [WATCHDOG.format(r=r, n=n).partition(":")[2] for r, n in ((0, 96120), (0, 96117), (7, 64088))]
    found = diagnose("".join(lines))
    assert "which ranks of the job they are is not said" in found.summary
    assert "rank" not in found.details and "waiting_ranks" not in found.details


IN_A_GROUP = (
    "[rank{r}]:[E804 23:05:53.816490008 ProcessGroupNCCL.cpp:685] [{pg}Rank {g}] "
    + WATCHDOG[WATCHDOG.index("Watchdog") :]
)


@pytest.mark.parametrize("pg", ["", "PG ID 5 PG GUID 37(TENSOR_MODEL_PARALLEL_GROUP) "])
@pytest.mark.parametrize("first", [8, 4])
def test_a_rank_is_that_of_the_job_and_not_its_place_in_a_group(diagnose: Diagnose, first: int, pg: str) -> None:
    lines = [IN_A_GROUP.format(r=first + g, g=g, n=5121, pg=pg) for g in range(3)]
    found = diagnose("".join(lines))
    assert found.details["waiting_ranks"] == f"{first},{first + 1},{first + 2}" and found.details["rank"] == str(first)
    assert f"Ranks {first}, {first + 1}, {first + 2} waited; look at the ranks of their process group" in found.summary


@pytest.mark.parametrize(
    ("pgs", "behind"),
    [
        (("", ""), None),  # of which groups they are is not said
        (("PG ID 5 PG GUID 37(TP) ", "PG ID 5 PG GUID 38(TP) "), None),
        (("PG ID 5 PG GUID 37(TP) ", "PG ID 5 PG GUID 37(TP) "), "10"),
    ],
)
def test_who_is_behind_is_told_of_ranks_of_one_group(
    diagnose: Diagnose, pgs: tuple[str, str], behind: str | None
) -> None:
    lines = [IN_A_GROUP.format(r=r, g=r - 8, n=n, pg=pg) for r, n, pg in ((9, 20, pgs[0]), (10, 19, pgs[1]))]
    assert diagnose("".join(lines)).details.get("silent_rank") == behind


def test_all_ranks_of_the_job_are_not_called_a_part_of_it(diagnose: Diagnose) -> None:
    lines = [IN_A_GROUP.format(r=r, g=r, n=7, pg="PG ID 0 PG GUID 0(default_pg) ") for r in (0, 2)]
    assert "Ranks 0, 2 waited; look at the ranks that do not say so" in diagnose("".join(lines)).summary


@pytest.mark.parametrize(("groups", "behind"), [((1, 1), "5"), ((1, 2), None)])
def test_numbers_of_groups_that_are_named_are_compared_within_one(
    diagnose: Diagnose, groups: tuple[int, int], behind: str | None
) -> None:
    lines = [
        WATCHDOG.format(r=rank, n=number).replace("[Rank", f"[PG ID {group} PG GUID 0(default_pg) Rank")
        for rank, number, group in ((4, 20, groups[0]), (5, 19, groups[1]))
    ]
    assert diagnose("".join(lines)).details.get("silent_rank") == behind


def test_the_first_rank_to_fall_silent(diagnose: Diagnose) -> None:
    behind = diagnose(WATCHDOG.format(r=0, n=12) + WATCHDOG.format(r=3, n=11) + WATCHDOG.format(r=1, n=12))
    assert behind.details["silent_rank"] == "3" and "ALLREDUCE number 12" in behind.summary
    named = diagnose(
        WATCHDOG.format(r=0, n=12) + "  [5] finished collective #11, but didn't join collective #12 (count from 1)\n"
    )
    assert named.details["silent_rank"] == "5"
    absent = diagnose(WATCHDOG.format(r=0, n=12) + WATCHDOG.format(r=2, n=12))
    assert absent.details["waiting_ranks"] == "0,2"


def test_node_failure_names_the_node_to_leave_out(diagnose: Diagnose) -> None:
    found = diagnose("srun: error: Node failure on gn1204\n")
    assert "sbatch --exclude=gn1204" in found.remedy and found.retry


def test_old_slurm_says_how_much_memory_was_used(diagnose: Diagnose) -> None:
    found = diagnose("slurmstepd: error: Job 5512 exceeded memory limit (134412800 > 131072000), being killed\n")
    assert found.summary == "It used 128.2 GiB, and 125.0 GiB were allowed."


def test_a_configuration_error_is_never_to_be_repeated(diagnose: Diagnose) -> None:
    assert not diagnose("pretrain.py: error: unrecognized arguments: --sequence_length 350\n").retry


def test_nothing_is_made_up(diagnose: Diagnose) -> None:
    found = diagnose("step 1 | loss 2.0\nstep 2 | loss 1.9\n")
    assert (found.cause.id, found.chain) == ("unknown", ())
    assert "stops with a training step" in found.summary


def test_a_repaired_attempt_is_no_failure(diagnose: Diagnose) -> None:
    steps = "".join(f"step {k} | loss 2.0\n" for k in range(20))
    assert diagnose(RANK_1_FAILS + steps + "Training completed\n").cause.id == "none"
    assert diagnose("Training completed\n" + steps + RANK_1_FAILS).cause.id == "python_exception"


def test_the_ladder_keeps_the_global_batch_and_goes_on_with_the_method() -> None:
    plan = make_plan("z2", world_size=2, micro_batch_size=4, gradient_accumulation_steps=2)
    ladder = [rung.flags for rung in rungs(plan)]
    smaller = "--micro-batch-size 2 --gradient-accumulation-steps 4"
    assert ladder == [
        smaller,
        f"--method z2+r {smaller}",  # each says all that it keeps
        f"--method z3+r {smaller}",
        f"--method z3+o+r {smaller}",
    ]
    first = next(rungs(plan)).plan
    assert first.batch.micro_batch_size * first.batch.gradient_accumulation_steps == 8


@pytest.mark.parametrize(
    ("micro", "accumulation", "smaller"), [(1, 8, None), (3, 1, (1, 3)), (6, 2, (3, 4)), (7, 1, (1, 7))]
)
def test_the_smaller_micro_batch_divides_the_same_number_of_sequences(
    micro: int, accumulation: int, smaller: tuple[int, int] | None
) -> None:
    plan = make_plan("z3o", micro_batch_size=micro, gradient_accumulation_steps=accumulation)
    first = next(rungs(plan))
    if smaller is None:
        assert "--micro-batch-size" not in first.flags
    else:
        assert first.flags == f"--micro-batch-size {smaller[0]} --gradient-accumulation-steps {smaller[1]}"


def test_memory_that_is_reserved_and_unused_or_held_by_others_comes_first() -> None:
    plan = make_plan("z3")
    fragmented = {"asked": "1.00 GiB", "reserved": "5.00 GiB", "capacity": "31.74 GiB", "allocated": "20.00 GiB"}
    assert device_oom(Case(plan=plan, facts=fragmented))[0].startswith(
        "--set env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    )
    foreign = {"asked": "1.00 GiB", "reserved": "0 bytes", "capacity": "15.98 GiB", "allocated": "0 bytes"}
    assert "another process" in device_oom(Case(plan=plan, facts=foreign))[0]


def test_host_memory_and_time() -> None:
    held = make_plan("z3o", world_size=8, mem="64G", scheduler="slurm", gpus_per_node=8)
    lines = host_oom(Case(plan=held))
    assert lines[0].startswith("--sbatch mem=128G  (128 GiB: ")
    assert lines[1].startswith("--gpus-per-node 4 --gradient-accumulation-steps 2 --sbatch mem=64G  (") and lines[
        2
    ].startswith("--method z3  (")
    assert lines[3] == "--method z2+o  (only optimizer states on the host)"
    here = host_oom(Case(plan=make_plan("z3o", world_size=8)))
    assert here[0].startswith("--set tasks_per_node=4 --gradient-accumulation-steps 2  (") and not any(
        "sbatch" in line for line in here
    )
    plan, made = make_plan("z3", time_s=1800, steps=100), {"steps_made": "40"}
    assert walltime(Case(plan=plan, facts=made)) == ["--steps 40  (so many were made; 100 were planned)"]
    paced = {**made, "step_time_s": "45", "steps_ended_s": "1795"}
    assert walltime(Case(plan=plan, facts=paced)) == [
        "--time 01:30:00  (100 steps of 45 s, of which it made 40)",
        "--steps 34  (they fit into 00:30:00; 100 were planned)",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "[rank: 0] Received SIGTERM: 15\n",
        "Terminated\n",
        "Exit_status=271\n",
        " iteration 3/ 10 | elapsed time per iteration (ms): 5.0 | lm loss: 2.5 |\n[exiting program after receiving SIGTERM.] datetime: 1\n",
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nlightning.fabric.utilities.exceptions.SIGTERMException\n',
    ],
)
def test_a_signal_alone_says_not_who_sent_it(diagnose: Diagnose, said: str) -> None:
    alone, at_the_limit = diagnose(said), diagnose(said + TIME_LIMIT)
    assert (alone.cause.id, alone.confidence) == ("cancelled", 0.5)
    assert "nothing here says by whom" in alone.meaning and alone.remedy.startswith("ask the scheduler")
    assert at_the_limit.cause.id == "walltime" and "by whom" not in at_the_limit.meaning


def test_the_exception_of_a_rank_comes_before_the_step_that_others_had_begun(diagnose: Diagnose) -> None:
    fails = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "t.py", line 9, in f\n[rank3]: KeyError: 7\n'
    found = diagnose(f"step 5 loss 2.1\n{fails}step 6 loss 2.1\n{WATCHDOG.format(r=0, n=7)}")
    assert (found.cause.id, found.details["rank"]) == ("python_exception", "3")


def test_the_exception_of_a_rank_with_a_file_of_its_own_is_the_root(tmp_path: Path) -> None:
    fails = 'Traceback (most recent call last):\n  File "t.py", line 9, in f\nKeyError: 7\n'
    for rank, text in enumerate((WATCHDOG.format(r=0, n=7), fails)):
        folder = tmp_path / str(rank)
        folder.mkdir()
        (folder / "stderr.log").write_text(text)
    [files] = jobs_under([tmp_path])
    assert diagnose_files(files).summary.endswith("KeyError: 7")


@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_a_traceback_behind_a_bar_is_read(diagnose: Diagnose, label: str) -> None:
    bar = "Epoch 0:  16%|#  | 7/45 [13:13<68:36,  6.44s/it, train_loss: 0.084]"
    lines = [
        "Traceback (most recent call last):",
        '  File "t.py", line 9, in f',
        "OSError: [Errno 5] Input/output error",
    ]
    found = diagnose(bar + "\n".join(label + line for line in lines) + "\n")
    assert found.cause.id == "python_exception" and found.summary.endswith("Input/output error")


def test_a_program_that_refuses_its_arguments_behind_one_that_failed_is_not_the_first(diagnose: Diagnose) -> None:
    """As in a script that goes on with the next program whatever became of the one before."""
    first = 'Traceback (most recent call last):\n  File "/w/base_train.py", line 64, in <module>\n    exec(f())\nAssertionError\n'
    usage = (
        "usage: chat_eval.py [-h] -i SOURCE\nchat_eval.py: error: the following arguments are required: -i/--source\n"
    )
    found = diagnose(first + "evaluating\n" + usage)
    assert (found.cause.id, found.evidence[0].text) == ("python_exception", "AssertionError")
    for text in (usage, usage + first, usage.replace("usage", "x: y\nusage") + "torchrun failed\n"):
        assert diagnose(text).cause.id == "config_error"


BAR = "".join(f" {n}%|##   | {n}/100 [0{n // 60}:{n % 60:02}<01:00,  1.54s/it]\n" for n in range(90, 100))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BAR, "The output stops in the middle of a progress bar, without an error."),
        ("Generating answers " + BAR + "saved to answers.jsonl\n", "The output stops after progress bars, with lines of which no cause is known."),
        ("step 3/9: loss 2.25\n" + BAR, "The output stops in the middle of training, without an error."),
        ("epoch 2/2 batch 16/16 loss: 2.25\n", "The output ends with the last of the steps that it counts, without an error."),
        ("epoch 2/3 batch 16/16 loss: 2.25\n", "The output stops in the middle of training, without an error."),
        ("epoch 2/2 batch 16 loss: 2.25\n", "The output stops with a training step, of which it does not say whether it is the last, without an error."),
        ("Epoch 1/1 [300/1000] loss: 2.25\n", "The output stops in the middle of training, without an error."),
        ("Splitting across 32 workers\ndone\n", ""),
        ("step 3: loss 2.25\n", "The output stops with a training step, of which it does not say whether it is the last, without an error."),
        (BAR + "100%|#####| 100/100 [02:34<00:00,  1.54s/it]\n", "The output ends with a progress bar that has come to its end, without an error."),
        ("step 3: loss 2.25\nAverage test loss: 0.0695\n", "The output ends with the loss of an evaluation, without an error."),
        ("step 3: loss 2.25\nwaiting\n", "The output stops after training steps, with lines of which no cause is known."),
        ("(EngineCore_DP0 pid=18) Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:04<00:12,  4.21s/it]\nApplication shutdown complete.\n", ""),
        ("Average test loss: 0.0695\n", ""),
        ("distillation loss: 2.31\nretrieval loss: 0.42\n", "The output stops with a training step, of which it does not say whether it is the last, without an error."),
    ],
)  # fmt: skip
def test_what_an_output_without_an_error_stops_with_is_said_as_it_is(text: str, said: str, diagnose: Diagnose) -> None:
    assert diagnose(text).summary.strip() == said
