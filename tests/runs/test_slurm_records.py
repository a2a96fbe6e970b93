"""What sacct and squeue print, line for line as Slurm 22.05 printed it, and what is read from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_llm.errors import Notice
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.slurm import clients
from hpc_llm.schedulers.slurm.records import (
    SACCT_DELIMITER,
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    compress_job_ids,
    expand_job_id,
    read_sacct,
    read_squeue,
)

SACCT = """\
JobID|State|ExitCode|DerivedExitCode|Reason|Start|End|ElapsedRaw|NodeList
279|COMPLETED|0:0|0:0|None|2026-11-20T23:57:38|2026-11-20T23:57:39|1|tw1
279.batch|COMPLETED|0:0|||2026-11-20T23:57:38|2026-11-20T23:57:38|0|tw1
279.0|COMPLETED|0:0|||2026-11-20T23:57:38|2026-11-20T23:57:38|0|tw1
280|FAILED|7:0|7:0|None|2026-11-20T23:57:38|2026-11-20T23:57:38|0|tw1
281|CANCELLED by 0|0:0|0:0|JobHeldUser|None|2026-11-20T23:57:41|0|None assigned
283|TIMEOUT|0:0|0:0|None|2026-11-20T23:57:38|2026-11-20T23:58:53|75|tw1
283.batch|FAILED|15:0|||2026-11-20T23:57:38|2026-11-20T23:58:53|75|tw1
285|FAILED|9:0|0:9|None|2026-11-20T23:57:38|2026-11-20T23:57:38|0|tw1
286|PENDING|0:0|0:0|QOSMaxGRESPerUser|Unknown|Unknown|0|None assigned
288|NODE_FAIL|0:0|0:0|None|2026-11-20T23:57:38|2026-11-20T23:58:06|28|delta8
288.batch|CANCELLED||||2026-11-20T23:57:38|2026-11-20T23:58:06|28|delta8
289|PREEMPTED|0:0|0:0|None|2026-11-20T23:57:38|2026-11-20T23:57:41|3|delta[1-2]
288|CANCELLED by 0|0:0|0:0|BeginTime|2026-11-20T23:58:12|2026-11-20T23:58:53|41|delta8
308|FAILED|0:53|0:0|None|2026-11-20T23:58:12|2026-11-20T23:58:12|0|tw1
1|FAILED|1:0|0:125|None|2026-11-20T23:51:18|2026-11-20T23:51:18|0|tw1
1.0|OUT_OF_MEMORY|0:125|||2026-11-20T23:51:18|2026-11-20T23:51:18|0|tw1
2|OUT_OF_MEMORY|0:125|0:0|None|2026-11-20T23:51:18|2026-11-20T23:51:18|0|tw1
3|FAILED|1:0|1:0|None|2026-11-20T23:51:18|2026-11-20T23:51:18|0|tw1
3.0|OUT_OF_MEMORY|0:125|||2026-11-20T23:51:18|2026-11-20T23:51:18|0|tw1
3.extern|COMPLETED|0:0|||2026-11-20T23:51:18|2026-11-20T23:51:18|0|tw1
315_0|RUNNING|0:0|0:0|None|2026-11-20T23:51:18|Unknown|12|tw1
315_[2-4%2]|PENDING|0:0|0:0|None|Unknown|Unknown|0|None assigned
46_[0-999%16]|CANCELLED by 0|0:0|0:0|None|None|2026-11-20T23:51:18|0|None assigned
"""


def last(job_id: str) -> JobRecord:
    return read_sacct(SACCT).jobs[job_id][-1]


@pytest.mark.parametrize(
    ("job_id", "state", "exit_code", "sign"),
    [
        ("279", "COMPLETED", 0, 0),
        ("280", "FAILED", 7, 0),
        ("281", "CANCELLED", 0, 0),
        ("283", "TIMEOUT", 0, 0),
        ("285", "FAILED", 9, 0),
        ("288", "CANCELLED", 0, 0),
        ("289", "PREEMPTED", 0, 0),
        ("308", "FAILED", 0, 53),
        ("315_0", "RUNNING", 0, 0),
        ("315_3", "PENDING", 0, 0),
        ("46_999", "CANCELLED", 0, 0),
    ],
)
def test_each_line_of_sacct_is_one_state(job_id: str, state: str, exit_code: int, sign: int) -> None:
    record = last(job_id)
    assert (record.state, record.exit_code, record.signal) == (state, exit_code, sign)


def test_running_out_of_memory_is_seen_in_the_job_in_its_derived_code_and_in_a_step() -> None:
    records = read_sacct(SACCT).jobs
    assert {job_id for job_id, found in records.items() if found[-1].out_of_memory} == {"1", "2", "3"}


def test_steps_are_not_jobs() -> None:
    assert not [job_id for job_id in read_sacct(SACCT).jobs if "." in job_id]


def test_a_requeued_job_is_its_last_try() -> None:
    record = last("288")
    assert (record.state, record.elapsed_s, record.reason) == ("CANCELLED", 41, "BeginTime")


def test_absent_values_are_absent() -> None:
    pending = last("286")
    assert (pending.started_at, pending.ended_at, pending.nodes) == (None, None, None)
    assert pending.reason == "QOSMaxGRESPerUser"
    assert last("279").reason is None


def test_times_are_those_of_the_reader_s_clock() -> None:
    record = last("283")
    assert record.started_at is not None and record.ended_at is not None
    assert record.ended_at - record.started_at == record.elapsed_s == 75


def test_the_fields_asked_for_are_the_columns_read() -> None:
    assert set(SACCT.splitlines()[0].split("|")) < set(SACCT_FIELDS.split(","))


def test_a_requeued_job_keeps_the_records_of_its_tries() -> None:
    assert [record.state for record in read_sacct(SACCT).jobs["288"]] == ["NODE_FAIL", "CANCELLED"]


def test_a_job_s_name_and_comment_may_hold_anything_but_the_delimiter() -> None:
    values = {
        "JobID": "7",
        "State": "RUNNING",
        "JobName": "a|b, ünï-8d0d1a3e",
        "Comment": "mine | too",
        "Submit": "2026-11-20T23:57:38",
    }
    text = "\n".join(SACCT_DELIMITER.join(row) for row in (values.keys(), values.values())) + "\n"
    [record] = read_sacct(text).jobs["7"]
    assert (record.job_name, record.comment) == ("a|b, ünï-8d0d1a3e", "mine | too")
    assert record.submitted_at is not None


@pytest.mark.parametrize("text", ["", "\n", "JobID|State\n", "slurm_load: error", "JobID|State\n|||\n"])
def test_no_answer_is_no_record(text: str) -> None:
    assert read_sacct(text).jobs == {}
    assert read_squeue(text).jobs == {}


def squeue_line(**values: str) -> str:
    columns = dict(column.split(":") for column in SQUEUE_FIELDS.split(","))
    return "".join(f"{values.get(name, ''):<{width}}" for name, width in columns.items()) + "\n"


HEADER = squeue_line(JobArrayID="JOBID", State="STATE", Reason="REASON", Comment="COMMENT", Name="NAME")
"""As every version prints it, with and without jobs."""


def test_a_line_of_squeue_holds_the_exit_code_as_wait_gives_it() -> None:
    line = squeue_line(
        JobArrayID="7_2", State="FAILED", Reason="NonZeroExitCode", exit_code="1792", TimeUsed="1-00:01:15",
        EndTime="2026-11-20T23:58:38",
    )  # fmt: skip
    record = read_squeue(HEADER + line).jobs["7_2"][0]
    assert (record.state, record.exit_code, record.signal, record.elapsed_s) == ("FAILED", 7, 0, 86475)
    killed = read_squeue(
        HEADER + squeue_line(JobArrayID="8", State="FAILED", exit_code="9", EndTime="2026-11-20T23:58:38")
    ).jobs["8"][0]
    assert (killed.exit_code, killed.signal) == (0, 9)
    # As Slurm 22.05 lists a job whose output file cannot be opened; sacct and scontrol say 0:53 of it.
    line = squeue_line(JobArrayID="12", State="FAILED", exit_code="4021", EndTime="2026-11-20T23:58:38")
    lost = read_squeue(HEADER + line).jobs["12"][0]
    assert (lost.exit_code, lost.signal) == (0, 53)


def test_pending_tasks_of_an_array_may_share_a_line() -> None:
    line = squeue_line(JobArrayID="46_[0-2,5]", State="PENDING", Reason="Priority", StartTime="N/A", TimeUsed="0:00")
    records = read_squeue(HEADER + line).jobs
    assert sorted(records) == ["46_0", "46_1", "46_2", "46_5"]
    assert (records["46_5"][0].started_at, records["46_5"][0].reason) == (None, "Priority")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("5_[1,3-5]", ["5_1", "5_3", "5_4", "5_5"]),
        ("5_[0-8:4%2]", ["5_0", "5_4", "5_8"]),
        ("5_[0-3,...]", ["5_0", "5_1", "5_2", "5_3"]),
        ("5_7", ["5_7"]),
        ("", []),
    ],
)
def test_array_expressions(text: str, ids: list[str]) -> None:
    assert list(expand_job_id(text)) == ids


@given(st.sets(st.integers(0, 2000), min_size=1), st.sets(st.integers(1, 10**6)))
def test_compressed_ids_name_the_same_jobs(tasks: set[int], jobs: set[int]) -> None:
    ids = [*map(str, jobs), *(f"77_{task}" for task in tasks)]
    found = [each for text in compress_job_ids(ids) for each in expand_job_id(text)]
    assert sorted(found) == sorted(ids)


@given(st.text(), st.text(alphabet="0123456789_[]-,%:|.\n²JobIDState"))
def test_no_text_breaks_the_readers(text: str, likely: str) -> None:
    for each in (text, likely, f"JobID|State|ExitCode\n{likely}", HEADER + likely):
        read_squeue(each)
        read_sacct(each)


@pytest.mark.parametrize("text", ["", "\n", "a site's notice\n", "\x80\x81 3000000 odd bytes"])
def test_what_has_no_header_is_no_answer(text: str) -> None:
    assert read_squeue(text).flaw and read_sacct(text).flaw


def test_a_list_of_no_jobs_has_its_header() -> None:
    assert read_squeue(HEADER) == read_squeue(f"CLUSTER: here\n{HEADER}*** the queue is closed tonight ***\n")
    assert (read_squeue(HEADER).jobs, read_squeue(HEADER).flaw) == ({}, "")
    assert (read_sacct("JobID|State|ExitCode\n").jobs, read_sacct("JobID|State|ExitCode\n").flaw) == ({}, "")


@pytest.mark.parametrize(
    "line",
    [
        squeue_line(JobArrayID="99_[²]", State="PENDING"),
        squeue_line(JobArrayID="99_[0-99999999999]", State="PENDING"),
        squeue_line(JobArrayID="99_[0-4000000,0-4000000]", State="PENDING"),
        squeue_line(JobArrayID="99_[0-8:0]", State="PENDING"),
        squeue_line(JobArrayID="²", State="PENDING"),
        squeue_line(JobArrayID="8", State="COMPL"),
        squeue_line(JobArrayID="8", State=""),
        squeue_line(JobArrayID="1" * 39, State="RUNNING"),
        "\udc80\udc81\n",
        squeue_line(JobArrayID="8", State="PENDING")[:-30],
    ],
)
def test_a_line_that_cannot_be_read_hinders_no_other_and_takes_what_is_missing_for_no_proof(line: str) -> None:
    good = squeue_line(JobArrayID="7", State="RUNNING", exit_code="²", UserID="٣", TimeUsed="²:00")
    listing = read_squeue(HEADER + good + line)
    assert listing.jobs["7"][0].state == "RUNNING" and listing.flaw
    assert listing.jobs["7"][0].user_id is None and set(listing.jobs) <= {"7", "8"}


def test_a_list_of_more_tasks_than_a_cluster_has_is_none() -> None:
    lines = [squeue_line(JobArrayID=f"{job}_[0-59999]", State="PENDING") for job in range(1, 21)]
    assert len(read_squeue(HEADER + lines[0]).jobs) == 60_000
    listing, recorded = read_squeue(HEADER + "".join(lines)), read_sacct("JobID|State\n" + "1_[0-59999]|PENDING\n" * 2)
    assert (listing.jobs, recorded.jobs) == ({}, {})
    assert "more than 100000 tasks" in listing.flaw and "sacct lists arrays" in recorded.flaw


def test_numbers_that_python_does_not_read_spoil_no_line_of_sacct() -> None:
    text = f"JobID|State|ExitCode|ElapsedRaw\n7|FAILED|²:0|{'9' * 5000}\n8|COMPLETED|0:0|5\n9_[²]|PENDING|0:0|0\n"
    listing = read_sacct(text)
    assert (listing.jobs["7"][0].exit_code, listing.jobs["8"][0].elapsed_s) == (None, 5.0)
    assert set(listing.jobs) == {"7", "8"} and listing.flaw


def test_the_queue_tells_the_end_of_what_is_over_and_not_the_end_that_is_expected() -> None:
    times = {"StartTime": "2026-11-20T23:57:38", "EndTime": "2026-11-20T23:58:38", "NodeList": "tw1"}
    found = read_squeue(
        HEADER
        + squeue_line(JobArrayID="7", State="FAILED", **times)
        + squeue_line(JobArrayID="8", State="RUNNING", **times)
    ).jobs
    assert found["7"][0].ended_at is not None and found["8"][0].ended_at is None


@pytest.mark.parametrize(
    "said",
    [
        {"State": "COMPLETED"},
        {"State": "CANCELLED", "StartTime": "N/A", "EndTime": "N/A"},
        {
            "State": "COMPLETED",
            "StartTime": "2026-11-20T23:57:38",
            "EndTime": "2026-11-20T23:57:38",
            "TimeUsed": "0:00",
        },
        {"State": "FAILED", "StartTime": "2026-11-20T23:57:38", "EndTime": "2026-11-21T23:57:38", "TimeUsed": "0:00"},
        {"State": "FAILED", "StartTime": "2026-11-20T23:57:38", "EndTime": "2026-11-19T23:57:38", "NodeList": "tw1"},
    ],
)
def test_an_end_by_whose_times_the_job_cannot_have_ended_is_no_answer(said: dict[str, str]) -> None:
    listing = read_squeue(HEADER + squeue_line(JobArrayID="7", **said))
    assert listing.jobs == {} and "by which that cannot be" in listing.flaw
    line = f"JobID|State|Start|End|NodeList\n7|{said['State']}|Unknown|Unknown|None assigned\n"
    assert read_sacct(line).jobs == {} and read_sacct(line).flaw


def test_what_was_ended_while_it_waited_has_one_time_for_start_and_end() -> None:
    times = {"StartTime": "2026-11-20T23:57:38", "EndTime": "2026-11-20T23:57:38", "TimeUsed": "0:00"}
    assert (
        read_squeue(HEADER + squeue_line(JobArrayID="7", State="CANCELLED", **times)).jobs["7"][0].state == "CANCELLED"
    )


def test_a_command_that_prints_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec yes x\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(clients, "_MOST_BYTES", 1 << 20)
    assert clients.call(["squeue"]) == (None, "squeue prints without end")
    monkeypatch.setattr(clients, "TIMEOUT_S", 0.3)
    assert clients.call(["sleep", "60"])[1].startswith("sleep gave no answer in")


def test_what_a_command_complains_of_is_short_and_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text(
        "#!/bin/sh\necho 'squeue: error: password=Tr0ub4dor99x' >&2\nhead -c 3000000 /dev/zero | tr '\\0' x >&2\nexit 1\n"
    )
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    answer, complaint = clients.call(["squeue"])
    assert answer is None and "Tr0ub4dor99x" not in complaint and len(complaint) < 5000
    assert complaint.startswith("squeue: error: password=")


def test_who_waits_for_slurm_is_told_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(clients, "_told", set())
    with pytest.warns(Notice, match="sh has not answered for 0 s: it is waited for") as told:
        for _ in range(2):
            assert clients.call(["sh", "-c", "sleep 0.4; echo 17"]) == ("17\n", "")
    assert len(told) == 1
