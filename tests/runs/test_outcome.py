"""From what is known of a run to what became of it, case by case."""

from __future__ import annotations

import json
import socket

import pytest
from run_folders import BEGAN, ENDED, NOW, UUID, Folder, Slurm, job

from hpc_llm.parsing.formats.own_run import rows
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import Outcome, Stop
from hpc_llm.runs import status
from hpc_llm.runs.known import Judgement
from hpc_llm.runs.looks import look
from hpc_llm.runs.signs import signs_of

TIME_LIMIT = "slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n"
STEP_CANCELLED = "slurmstepd: error: *** STEP 7.0 ON gn1 CANCELLED AT 2026-08-16T16:27:59 ***\n"


def judged(folder: Folder, now: float = NOW) -> Judgement:
    [found] = look([folder.run], now)
    return found.judgement


def said(judgement: Judgement) -> tuple[str, Outcome | None, str]:
    return judgement.state, judgement.outcome, judgement.cause.id


def test_a_whole_result_and_a_clean_exit_need_no_scheduler(folder: Folder, slurm: Slurm) -> None:
    found = judged(folder.exit(0).result("COMPLETED"))
    assert said(found) == ("COMPLETED", Outcome.COMPLETED, "none") and found.reason is None
    assert not slurm.asked


def test_invalid_is_the_worker_s_word(folder: Folder, slurm: Slurm) -> None:
    found = judged(folder.exit(0).result("INVALID", invalid_reason="the loss is not a finite number from step 3 on"))
    assert said(found) == ("COMPLETED", Outcome.INVALID, "nan_loss")
    assert found.reason == "the loss is not a finite number from step 3 on"


@pytest.mark.parametrize("stop", list(Stop))
def test_a_stop_before_training_is_a_failure_with_its_reason(folder: Folder, slurm: Slurm, stop: Stop) -> None:
    found = judged(folder.exit(stop.value, stage="prelude"))
    outcome = Outcome.CANCELLED if stop is Stop.CANCELLED else Outcome.FAILED
    assert (found.outcome, found.reason) == (outcome, stop.meaning) and found.cause.id != "unknown"


@pytest.mark.parametrize("stop", list(Stop))
def test_a_program_that_ends_with_the_code_of_a_stop_did_not_stop_before_training(
    folder: Folder, slurm: Slurm, stop: Stop
) -> None:
    found = judged(folder.exit(stop.value, stage="done"))
    assert (found.outcome, found.reason, found.cause.id) == (Outcome.FAILED, f"exit code {stop.value}", "unknown")


def test_an_oom_of_the_device_is_known_from_any_rank(folder: Folder, slurm: Slurm) -> None:
    folder.exit(1).failure(0, message="connection closed", time=ENDED - 2).failure(
        3, "OOM_DEVICE", type="OutOfMemoryError"
    )
    found = judged(folder)
    assert said(found) == ("FAILED", Outcome.OOM_DEVICE, "device_oom")
    assert found.reason == "rank 3: OutOfMemoryError: boom"


@pytest.mark.parametrize(("word", "cause"), [("OOM_HOST", "host_oom"), ("OOM_DEVICE", "device_oom")])
@pytest.mark.parametrize("where", ["failures", "result", "both"])
def test_what_the_worker_says_of_memory_is_the_outcome_and_the_cause(
    folder: Folder, slurm: Slurm, word: str, cause: str, where: str
) -> None:
    folder.exit(1)
    if where != "result":
        folder.failure(0, word, type="MemoryError", message="no more")
    if where != "failures":
        folder.result(word, outcome_reason="rank 0: MemoryError: no more")
    for record in (None, job("FAILED", 1)):
        slurm.says(record)
        found = judged(folder)
        assert (found.outcome, found.cause.id) == (Outcome(word), cause)
        assert found.reason == "rank 0: MemoryError: no more"


@pytest.mark.parametrize(
    ("state", "outcome", "cause"),
    [
        ("TIMEOUT", Outcome.TIMEOUT, "walltime"),
        ("DEADLINE", Outcome.TIMEOUT, "walltime"),
        ("NODE_FAIL", Outcome.NODE_FAIL, "node_fail"),
        ("BOOT_FAIL", Outcome.NODE_FAIL, "node_fail"),
        ("PREEMPTED", Outcome.PREEMPTED, "preempted"),
        ("CANCELLED", Outcome.CANCELLED, "cancelled"),
        ("OUT_OF_MEMORY", Outcome.OOM_HOST, "host_oom"),
        ("FAILED", Outcome.FAILED, "unknown"),
        ("COMPLETED", Outcome.UNKNOWN, "unknown"),  # without a result
        ("A_STATE_OF_THE_FUTURE", Outcome.FAILED, "unknown"),
    ],
)
def test_each_final_state_is_an_outcome_and_its_cause(
    folder: Folder, slurm: Slurm, state: str, outcome: Outcome, cause: str
) -> None:
    slurm.says(job(state, 1 if state == "FAILED" else 0))
    assert said(judged(folder)) == (state, outcome, cause)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "REQUEUED", "COMPLETING", "SUSPENDED", "CONFIGURING"])
def test_a_live_job_has_no_outcome_whatever_an_earlier_try_left(folder: Folder, slurm: Slurm, state: str) -> None:
    slurm.says(job(state, started_at=ENDED + 600))
    found = judged(folder.exit(143, signal="TERM").failure(0))
    assert said(found) == (state, None, "none")


def test_a_script_that_has_ended_while_slurm_says_running_is_ending_and_then_judged(
    folder: Folder, slurm: Slurm
) -> None:
    slurm.says(job("RUNNING"))
    folder.exit(3)
    assert said(judged(folder, ENDED + 10)) == ("ENDING", None, "none")
    assert said(judged(folder, ENDED + 100)) == ("FAILED", Outcome.FAILED, "unknown")


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "NODE_FAIL", "FAILED"])
def test_a_result_that_was_already_whole_is_not_taken_back(folder: Folder, slurm: Slurm, state: str) -> None:
    slurm.says(job(state, 1))
    found = judged(folder.exit(139).result("COMPLETED"))
    assert said(found) == (state, Outcome.COMPLETED, "none")
    assert found.reason == "the result was already written when the job ended with exit code 139"


def test_a_result_beside_a_failed_rank_is_a_failure(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("FAILED", 1))
    assert judged(folder.exit(1).result("COMPLETED").failure(2)).outcome is Outcome.FAILED


def test_a_missing_output_folder_is_named(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("FAILED", 0, 53))
    assert "output file could not be opened" in (judged(folder).reason or "")


def test_a_dependency_that_failed_is_named(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("CANCELLED", reason="Dependency", started_at=None))
    assert "did not succeed" in (judged(folder).reason or "")


def test_an_exit_without_a_result_is_unknown(folder: Folder, slurm: Slurm) -> None:
    for record in (None, job("COMPLETED")):
        slurm.says(record)
        found = judged(folder.exit(0))
        assert (found.outcome, found.cause.id) == (Outcome.UNKNOWN, "unknown")
        assert found.reason == "the job ended with exit code 0 and left no result"


def test_a_batch_script_that_was_killed_has_failed_and_was_not_cancelled(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("FAILED", 0, 9))
    folder.says(STEP_CANCELLED + "srun: error: gn1: task 0: Killed\n")
    found = judged(folder)
    assert said(found) == ("FAILED", Outcome.FAILED, "host_oom") and found.confidence < 0.65
    assert found.reason == "ended by SIGKILL"


@pytest.mark.parametrize("signal", ["USR1", "USR2", "XCPU", "PIPE"])
def test_the_signal_that_ended_the_script_is_named(folder: Folder, slurm: Slurm, signal: str) -> None:
    slurm.says(job("FAILED", 1))
    found = judged(folder.exit(0, signal=signal, stage="launch"))
    assert found.outcome is Outcome.FAILED and f"SIG{signal}" in str(found.found)


@pytest.mark.parametrize(
    ("lasted", "limit", "outcome"),
    [
        (300, 300, Outcome.TIMEOUT),
        (295, 300, Outcome.TIMEOUT),
        (100, 300, Outcome.CANCELLED),
        (5, 60, Outcome.CANCELLED),
    ],
)
def test_without_a_scheduler_a_signal_at_the_limit_is_a_timeout(
    folder: Folder, slurm: Slurm, lasted: int, limit: int, outcome: Outcome
) -> None:
    folder.exit(143, signal="TERM", started_at=ENDED - lasted, time_limit_s=limit)
    assert judged(folder).outcome is outcome
    slurm.says(job("CANCELLED"))
    assert judged(folder).outcome is Outcome.CANCELLED


def test_a_rank_that_was_told_to_stop_is_not_what_failed(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("FAILED", 9))
    told = {"type": "SIGTERM", "message": "stopped by SIGTERM after step 4 of 50"}
    folder.exit(137).failure(0, "UNKNOWN", **told).result("UNKNOWN", outcome_reason="rank 0: SIGTERM: stopped")
    found = judged(folder)
    assert (found.outcome, found.reason) == (Outcome.FAILED, "exit code 137: a process was ended by SIGKILL")
    found = judged(folder.failure(1, time=ENDED - 5))
    assert (found.reason, found.cause.id) == ("rank 1: ValueError: boom", "python_exception")


def test_a_rank_that_lost_its_peer_is_not_what_failed(folder: Folder, slurm: Slurm) -> None:
    folder.exit(1).failure(0, type="RuntimeError", message="Connection closed by peer [127.0.0.1]:395.")
    found = judged(folder)
    assert (found.outcome, found.cause.id) == (Outcome.FAILED, "unknown")
    killed = "  exitcode  : -9 (pid: 15798)  (SIGKILL)\n  traceback : Signal 9 (SIGKILL) received by PID 15798\n"
    assert judged(folder.says(killed)).cause.id == "host_oom"


KILLED = "/run/job.sh: line 45:   556 Killed                  srun python train.py\n"


@pytest.mark.parametrize(
    ("nodes", "count", "expected"),
    [
        (1, 0, (Outcome.FAILED, "unknown", "not by the kernel of its node for lack of memory")),
        (1, None, (Outcome.FAILED, "host_oom", "nothing says by whom")),  # a kernel that does not count
        (2, 0, (Outcome.FAILED, "host_oom", "nothing says by whom")),  # it may have been on the other node
        (1, 1, (Outcome.OOM_HOST, "host_oom", "the kernel of the node killed a process for lack of memory")),
        (2, 3, (Outcome.OOM_HOST, "host_oom", "killed 3 processes for lack of memory")),
    ],
)
def test_what_the_kernel_counted_decides_why_a_process_was_killed(
    folder: Folder, slurm: Slurm, nodes: int, count: int | None, expected: tuple[Outcome, str, str]
) -> None:
    folder.planned(nodes=nodes).says(KILLED).exit(137, oom_kills=count)
    found = judged(folder)
    assert (found.outcome, found.cause.id) == expected[:2] and expected[2] in (found.reason or ""), found.reason


def test_ranks_that_a_launcher_stopped_do_not_say_who_killed_the_first(folder: Folder, slurm: Slurm) -> None:
    """Rank 1 was killed; torchrun told rank 0 to stop, which said so in its record before any other had one."""
    killed = "failed (exitcode: -9) local_rank: 1 (pid: 768) of binary: python\n  traceback : Signal 9 (SIGKILL) received by PID 768\n"
    folder.planned(nodes=1).says(killed).exit(1, oom_kills=0)
    found = judged(folder.failure(0, "UNKNOWN", type="SIGTERM", message="stopped by SIGTERM after step 11 of 5000"))
    assert (found.outcome, found.cause.id) == (Outcome.FAILED, "unknown")
    assert "a process was killed (SIGKILL), and not by the kernel" in (found.reason or "")


def test_words_that_name_the_memory_need_no_count(folder: Folder, slurm: Slurm) -> None:
    folder.planned(nodes=1).says("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n").exit(137, oom_kills=0)
    assert said(judged(folder))[1:] == (Outcome.OOM_HOST, "host_oom")


def test_srun_names_the_task_that_failed_first(folder: Folder, slurm: Slurm) -> None:
    folder.says(
        "srun: error: tw1: task 1: Exited with exit code 7\nsrun: error: tw1: task 0: Exited with exit code 143\n"
    )
    found = judged(folder.exit(143).failure(0, "UNKNOWN", type="SIGTERM", message="told"))
    assert found.outcome is Outcome.FAILED and "task 1: Exited with exit code 7" in (found.reason or "")


def test_a_reason_is_one_line(folder: Folder, slurm: Slurm) -> None:
    folder.exit(1).failure(0, message="1 validation error\nbucket\n  not a number")
    assert judged(folder).reason == "rank 0: ValueError: 1 validation error bucket not a number"


def test_a_cancelled_run_is_cancelled_however_it_exits(folder: Folder, slurm: Slurm) -> None:
    found = judged(folder.exit(1, signal="TERM").failure(0).cancelled())
    assert (found.outcome, found.reason) == (Outcome.CANCELLED, "cancelled with hpc-llm cancel")


def test_the_signal_of_a_cancel_is_told_once_and_where_the_mark_lies(folder: Folder, slurm: Slurm) -> None:
    folder.exit(143, signal="TERM").cancelled()
    [seen] = look([folder.run], NOW)
    assert [(one.file, one.text) for one in signs_of(seen.records, None)] == [
        ("cancelled.json", "cancelled with hpc-llm cancel")
    ]


def test_a_cancelled_job_without_a_mark_is_said_to_be_no_one_s(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("CANCELLED"))  # `hpc-llm cancel JOBID` from another folder leaves no mark here either
    found = judged(folder)
    assert (found.outcome, found.reason) == (Outcome.CANCELLED, "cancelled, and nothing in its folder says by whom")


def test_an_exception_that_was_caught_long_before_is_not_why_the_time_ran_out(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("TIMEOUT"))
    caught = 'Traceback (most recent call last):\n  File "x.py", line 1\nImportError: no apex\n'
    folder.exit(143, signal="TERM").steps().says(caught + TIME_LIMIT)
    assert said(judged(folder)) == ("TIMEOUT", Outcome.TIMEOUT, "walltime")


# Evidence that is late, kept, or of nobody


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"])
def test_a_job_that_is_over_is_ending_until_its_files_are_here_or_a_minute_has_passed(
    folder: Folder, slurm: Slurm, state: str
) -> None:
    slurm.says(job(state, 1))
    assert judged(folder, ENDED + 59).state == "ENDING"
    assert judged(folder, ENDED - 59).state == "ENDING"  # this clock is behind
    assert judged(folder, ENDED + 61).is_over and judged(folder, ENDED - 28800).is_over
    folder.exit(0)
    assert judged(folder, ENDED + 59).state == "ENDING"  # the result is still missing
    folder.result("COMPLETED")
    assert judged(folder, ENDED + 1).outcome is Outcome.COMPLETED


def test_nothing_is_late_on_the_host_itself_or_of_a_job_that_never_started(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("CANCELLED", started_at=None))
    assert judged(folder, ENDED + 1).outcome is Outcome.CANCELLED
    slurm.says(job("CANCELLED", started_at=ENDED, elapsed_s=0.0, nodes=None))  # as squeue has it
    assert judged(folder, ENDED + 1).outcome is Outcome.CANCELLED
    slurm.says(job("FAILED", 1))
    assert judged(folder.started(BEGAN, host=socket.gethostname()), ENDED + 1).outcome is Outcome.FAILED


def test_a_good_run_whose_files_come_late_is_a_good_run(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("FAILED", 1))
    assert judged(folder, ENDED + 600).outcome is Outcome.FAILED
    assert judged(folder.exit(0).result("COMPLETED"), ENDED + 900).outcome is Outcome.COMPLETED


def test_slurm_s_final_word_is_kept_as_evidence_and_a_later_try_replaces_it(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("PREEMPTED"))
    folder.exit(143, signal="TERM")
    assert judged(folder).outcome is Outcome.PREEMPTED
    assert said(judged(folder)) == ("PREEMPTED", Outcome.PREEMPTED, "preempted")
    slurm.says(job("RUNNING", started_at=ENDED + 100))
    assert judged(folder.started(BEGAN, ENDED + 100)).state == "RUNNING"
    folder.exit(1, restart_count=1, started_at=ENDED + 100, ended_at=ENDED + 200)
    slurm.says(job("FAILED", 1, started_at=ENDED + 100, ended_at=ENDED + 200))
    assert judged(folder).outcome is Outcome.FAILED
    assert judged(folder).state == "FAILED"
    assert (read_json(folder.run.scheduler_record) or {})["record"]["state"] == "FAILED"


def test_what_slurm_said_a_day_later_is_not_asked_for_again(folder: Folder, slurm: Slurm) -> None:
    folder.exit(1).kept(job("FAILED", 1), asked_at=ENDED + 100)
    judged(folder)
    assert slurm.asked
    slurm.asked.clear()
    judged(folder.kept(job("FAILED", 1), asked_at=ENDED + 90000))
    assert not slurm.asked


def test_an_end_without_times_is_asked_for_again_and_does_not_count_while_slurm_is_silent(
    folder: Folder, slurm: Slurm
) -> None:
    folder.kept(job("COMPLETED", started_at=None, ended_at=None, nodes=None), asked_at=NOW - 7 * 86400)
    [seen] = status([folder.run], NOW)
    assert (seen.outcome, seen.state, len(slurm.asked)) == (None, "UNKNOWN", 1)
    slurm.says(job("PENDING", started_at=None, nodes=None))
    assert status([folder.run], NOW)[0].state == "PENDING"


def test_an_end_that_slurm_has_forgotten_a_day_later_is_not_asked_for_again(folder: Folder, slurm: Slurm) -> None:
    folder.kept(job("TIMEOUT", ended_at=None), asked_at=NOW)
    for later in (60.0, 2 * 86400.0, 3 * 86400.0):
        slurm.says(None)
        assert status([folder.run], NOW + later)[0].outcome is Outcome.TIMEOUT
    assert len(slurm.asked) == 2


def test_a_job_that_slurm_does_not_know_is_pending_for_a_minute_and_then_lost(folder: Folder, slurm: Slurm) -> None:
    slurm.says(None)
    folder.submitted(at=NOW - 10)
    assert said(judged(folder)) == ("PENDING", None, "none")
    found = judged(folder, NOW + 300)
    assert said(found) == ("UNKNOWN", Outcome.UNKNOWN, "unknown") and "no longer knows job 7" in (found.reason or "")
    assert judged(folder.submitted(at=NOW + 28800)).outcome is Outcome.UNKNOWN  # a login node's clock far ahead
    assert judged(folder.cancelled()).outcome is Outcome.CANCELLED


def test_while_slurm_does_not_answer_a_run_without_a_record_is_unknown_and_not_over(
    folder: Folder, slurm: Slurm
) -> None:
    found = judged(folder.steps())
    assert said(found) == ("UNKNOWN", None, "unknown") and "Unable to contact" in (found.reason or "")
    assert judged(folder.says(TIME_LIMIT)).outcome is Outcome.TIMEOUT  # which Slurm itself wrote


def test_a_copy_without_its_submission_is_judged_by_what_it_holds(folder: Folder, slurm: Slurm) -> None:
    folder.run.job.unlink()
    assert "never submitted" in (judged(folder).reason or "")
    folder.steps()
    assert said(judged(folder)) == ("UNKNOWN", Outcome.UNKNOWN, "unknown")
    assert judged(folder.says(TIME_LIMIT)).outcome is Outcome.TIMEOUT
    assert judged(folder.result("COMPLETED")).outcome is Outcome.COMPLETED


def test_a_record_of_a_newer_version_is_shown_and_not_guessed_at(folder: Folder, slurm: Slurm) -> None:
    folder.exit(0).result("COMPLETED")
    write_json(folder.run.experiment, {"schema": 9, "plan": {}})
    found = judged(folder)
    assert said(found) == ("UNKNOWN", Outcome.UNKNOWN, "unknown")
    assert "written by a newer version (schema 9 of experiment.json)" in (found.reason or "")


def test_a_job_that_its_federation_runs_elsewhere_is_not_over(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("REVOKED"))
    folder.says("Training begins\n", out=True)
    seen = judged(folder)
    assert seen.outcome is None and "its federation has given it to" in (seen.reason or "")
    line = {"schema": 1, "job_id": "7", "cluster": "sibling", "job_name": f"x-{UUID[:8]}", "time": BEGAN}
    folder.run.started.write_text(json.dumps(line) + "\n")
    seen = judged(folder)
    assert seen.outcome is None and "the Slurm cluster sibling: look from there" in (seen.reason or "")
    folder.result("COMPLETED").exit(0)
    assert judged(folder).outcome is Outcome.COMPLETED


def test_who_says_where_a_job_ran_must_be_that_job(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("RUNNING"))
    for name, number in (("x-00000000", "7"), (f"x-{UUID[:8]}", "8"), (None, "7")):
        line = {"schema": 1, "job_id": number, "cluster": "sibling", "job_name": name, "time": BEGAN}
        folder.run.started.write_text(json.dumps(line) + "\n")
        assert judged(folder).state == "RUNNING"


@pytest.mark.parametrize("reason", ["PartitionNodeLimit", "AssocGrpGRESMinutes", "BadConstraints", "JobHeldUser"])
def test_a_job_that_will_never_start_says_what_to_change(folder: Folder, slurm: Slurm, reason: str) -> None:
    slurm.says(job("PENDING", reason=reason, started_at=None))
    found = judged(folder)
    assert said(found) == ("PENDING", None, "none")
    assert reason in (found.reason or "") and "waiting does not help" in (found.reason or "")
    assert found.remedy and "wait" not in found.remedy


def test_a_job_that_waits_for_its_turn_has_slurm_s_estimate(folder: Folder, slurm: Slurm) -> None:
    slurm.says(job("PENDING", reason="Priority", started_at=NOW + 600))
    assert "expects it to start at 2026-" in (judged(folder).reason or "")


@pytest.mark.parametrize(("took", "elapsed_s"), [(0.0, 0.0), (12.0, 12.0), (-100.0, None)])
def test_nobody_knows_how_long_it_took_where_a_clock_was_set_back(
    folder: Folder, slurm: Slurm, took: float, elapsed_s: float | None
) -> None:
    folder.exit(1, started_at=BEGAN, ended_at=BEGAN + took)
    [row] = rows([folder.run.root])
    [told] = status([folder.run])
    assert (row.elapsed_s, told.elapsed_s) == (elapsed_s, elapsed_s)
