"""Deadlines that a job cannot meet: Slurm takes such a job and removes it before it starts, so it is refused before."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import pytest
from login_node import LoginNode, job_id, until
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

from hpc_llm.site.sbatch_times import moment_of
from hpc_llm.site.sbatch_values import valid_values

pytestmark = pytest.mark.slurm

ASKED = (
    "submit", "--cluster=taiwania2", "--account=ACD110018", "--method=z2", "--model=tiny", "--partition=gtest",
    "--gpus-per-node=0", "--set=precision=fp32", "--steps=8", "--sequence-length=32",
)  # fmt: skip
FORMS = """now+90 now+90minutes now+2hours now+3days now+1week tomorrow midnight noon fika teatime {clock} {clock}:30 {half}
    {later:%Y-%m-%d} {later:%Y-%m-%dT%H:%M} {later:%Y-%m-%dT%H:%M:%S} tomorrowT16:20 tomorrownoon
    {later:%m/%d} {later:%m%d%y} {later:%m.%d.%y}T{clock} {day:%m/%d}T{clock} {day:%m/%d} uts{later:%s}""".split()


def begin_of(slurm: ScratchSlurm, value: str) -> str:
    """When a job that is to begin then may begin, as Slurm says."""
    job = slurm.run(
        "sbatch", "--parsable", "--hold", f"--begin={value}", "--time=1", "--partition=gtest", "--wrap=true"
    )
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job.strip().split(";")[0])
    slurm.run("scancel", job.strip().split(";")[0])
    return re.findall(r"\bStartTime=(\S+)", shown)[0]


def test_moments_are_those_that_sbatch_reads(slurm: ScratchSlurm) -> None:
    now = datetime.now()
    later = now + timedelta(days=40)
    for clock in (now - timedelta(hours=1), now + timedelta(hours=1)):
        for form in FORMS:
            text = form.format(clock=f"{clock:%H:%M}", half=f"{clock:%I:%M%p}", later=later, day=now)
            assert valid_values("begin", text) is None
            read = moment_of(text, datetime.now())
            assert read is not None, text
            told = datetime.fromisoformat(begin_of(slurm, text))
            assert abs((told - read).total_seconds()) < 30, (text, told, read)


def test_slurm_removes_what_cannot_end_in_time_and_here_it_is_refused(node: LoginNode, slurm: ScratchSlurm) -> None:
    job = slurm.run("sbatch", "--parsable", "--deadline=now+5minutes", "--time=10", "--partition=gtest", "--wrap=true")
    number = job.strip().split(";")[0]
    until("Slurm has removed it", lambda: "DEADLINE" in slurm.run("scontrol", "show", "job", number))
    for options in (["deadline=now+5minutes"], ["deadline=now+10minutes"], ["begin=now+1hour", "deadline=now+65minutes"],
        [f"deadline={datetime.now() + timedelta(minutes=8):%Y-%m-%dT%H:%M:%S}"], ["deadline=2020-01-01"]):  # fmt: skip
        done = node.ask(*ASKED, "--time=00:10:00", *(f"--sbatch={one}" for one in options))
        assert done.returncode == 2 and done.stdout == "" and not node.logs.exists(), done.stderr
        assert (
            "and Slurm removes a job that cannot end before its deadline: this one may take 00:10:00. Ask"
            in done.stderr
        )


def test_the_advice_of_the_refusal_is_taken_by_slurm(node: LoginNode) -> None:
    said = node.ask(*ASKED, "--time=00:10:00", "--sbatch=begin=now+1hour", "--sbatch=deadline=now+65minutes").stderr
    [moment], [limit] = re.findall(r"deadline=(\d\S+) or after", said), re.findall(r"--time (\S+),", said)
    for words in (
        ["--time=00:10:00", f"--sbatch=deadline={moment}"],
        [f"--time={limit}", "--sbatch=deadline=now+65minutes"],
    ):
        [run] = node.submit(*ASKED[1:], "--sbatch=begin=now+1hour", *words)
        assert node.status([run])[0]["state"] == "PENDING"
        node.do("cancel", run.run_id)


def test_a_deadline_with_room_is_met(node: LoginNode) -> None:
    [run] = node.submit(*ASKED[1:], "--time=00:05:00", "--sbatch=deadline=now+20minutes")
    assert job_id(run)
    [status] = node.wait([run])
    assert status["outcome"] == "COMPLETED", json.dumps(status)


def test_the_time_that_a_partition_gives_counts_where_none_is_asked_for(
    node: LoginNode, slurm: ScratchSlurm, site: ScratchSite
) -> None:
    node.add_cluster("timeless", **{**site.profile("taiwania2"), "defaults": {"time": None}})
    options = ["--begin=now+2minutes", "--deadline=now+6minutes"]
    job = slurm.run("sbatch", "--parsable", *options, "--partition=gtest", "--wrap=true").strip().split(";")[0]
    assert "TimeLimit=00:05:00" in slurm.run("scontrol", "show", "job", job)  # and four minutes are left
    slurm.run("scancel", job)
    before = sorted(node.logs.glob("[!.]*"))
    asked = [word.replace("taiwania2", "timeless") for word in ASKED]
    words = [f"--sbatch={option.strip('-')}" for option in options]
    for more in ([], ["--dry-run"]):
        done = node.ask(*asked, *words, *more)
        assert (done.returncode, done.stdout, sorted(node.logs.glob("[!.]*"))) == (2, "", before), done.stderr
        assert "may take 00:05:00, as partition gtest gives a job that says none. Ask for a later one" in done.stderr, (
            done.stderr
        )
    [moment], [limit] = re.findall(r"deadline=(\d\S+) or after", done.stderr), re.findall(r"--time (\S+),", done.stderr)
    for better in ([words[0], f"--sbatch=deadline={moment}"], [*words, f"--time={limit}"]):
        [run] = node.submit(*asked[1:], *better)
        assert node.status([run])[0]["state"] == "PENDING"
        node.do("cancel", run.run_id)


def test_the_deadline_of_a_profile_counts_as_one_of_the_request(node: LoginNode, site: ScratchSite) -> None:
    profile = site.profile("taiwania2")
    request = {**profile.get("request", {}), "extra": ["--deadline=now+20minutes"]}
    node.add_cluster("hasty", **{**profile, "request": request})
    asked = [word.replace("taiwania2", "hasty") for word in ASKED]
    done = node.ask(*asked, "--time=00:10:00", "--sbatch=begin=now+15minutes", "--dry-run")
    assert done.returncode == 2 and "removes a job that cannot end before its deadline" in done.stderr, done.stderr
    assert node.ask(*asked, "--time=00:10:00", "--dry-run").returncode == 0
