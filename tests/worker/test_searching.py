"""The search for the micro batch: which try comes next, through the real command and script with a program that takes memory
for real, and once with real trainings on two ranks.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from copied_ranks import PLACE
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering import planned

import hpc_llm
from hpc_llm.planning.micro_batches import MicroBatches
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.collect import collect
from hpc_llm.reporting.figure import FRONTIER, Figure
from hpc_llm.reporting.figures import figures
from hpc_llm.reporting.plots import write_plots
from hpc_llm.reporting.report import make_report
from hpc_llm.runs.searching import search_found
from hpc_llm.worker.searching.choice import Known, next_at
from hpc_llm.worker.searching.found import document, ending
from hpc_llm.worker.searching.tries import Try, TryOutcome
from hpc_llm.worker.tune_llm import answer

TASK = """\
import json, os, resource, signal, subprocess, sys, time
from hpc_llm.planning.parts import Tuning
from hpc_llm.planning.tasks import TaskKind

KIND = TaskKind(
    name="allocating", worker="allocating_task", packages=lambda plan: ("json",), steps=6, workload=Tuning,
    plan_fields=frozenset({"steps", "micro_batch_size"}), result_fields=frozenset(), search="hpc_llm.worker.tune_llm",
)


def train(record):
    size, world = record.plan.batch.micro_batch_size, json.loads(os.environ["WORLD"])
    confirms = record.plan.workload.steps != 6
    if size in world.get("hangs", []):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        time.sleep(600)
    if size in world.get("killed", []):
        os.kill(os.getpid(), signal.SIGKILL)
    if size in world.get("waits", []) and not os.path.exists(world["go"]):
        print("waits as", os.getpid(), flush=True)
        time.sleep(600)
    if size in world.get("told_first", []) and not os.path.exists(world["go"]):
        parent = int(open(f"/proc/{os.getppid()}/stat").read().rsplit(")", 1)[1].split()[1])
        subprocess.Popen(["bash", "-c", f"sleep 1; kill -TERM {parent}"], start_new_session=True, env={"PATH": os.environ["PATH"]})
    if size in world.get("told_first", []) + world.get("told", []) and not os.path.exists(world.get("go", "")):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
    if size in world.get("breaks", []):
        raise ValueError("no memory's fault")
    pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + world["mib"] * 2**20, resource.RLIM_INFINITY))
    held = bytearray((size * record.plan.batch.sequence_length + (confirms and world.get("grows", 0))) * 2**20)
    rate = float(world.get("rates", {}).get(str(size), size))
    rates = {"tokens_per_second": rate, "tokens_per_second_per_gpu": rate}
    record.write(record.paths.result, {"outcome": "COMPLETED", "micro_batch_size": size, **rates})


if __name__ == "__main__":
    from hpc_llm.worker.main import Program, command

    command(Program("allocating", "allocating_task"))
"""


# --- which try comes next ---------------------------------------------------------------------------------------------


def search(
    fits: Callable[[int, bool], TryOutcome],
    first: int,
    sizes: MicroBatches,
    rate: Callable[[int], float] = float,
    rate_confirmed: Callable[[int], float] | None = None,
) -> Known:
    """A search in a world where that is so."""
    tries: list[Try] = []
    while (wanted := next_at(Known(64, sizes, tries), first, looks_for_fastest=True)) is not None:
        assert len(tries) < 200, "it does not end"
        verdict = fits(wanted.size, wanted.confirms)
        measured = rate_confirmed if wanted.confirms and rate_confirmed else rate
        tries.append(
            Try(
                number=len(tries) + 1,
                folder=Path(),
                size=wanted.size,
                length=64,
                confirms=wanted.confirms,
                verdict=verdict,
                tokens_per_second=measured(wanted.size) if verdict is TryOutcome.FITS else None,
                peaks={},
            )
        )
    return Known(64, sizes, tries)


@given(limit=st.integers(0, 3000), first=st.integers(1, 3000), share=st.sampled_from([None, 1, 97, 360, 4096]))
@settings(max_examples=150)
def test_a_limit_is_found_to_the_very_size_from_wherever_it_begins(limit: int, first: int, share: int | None) -> None:
    sizes = MicroBatches(share)
    known = search(
        lambda size, _: TryOutcome.FITS if size <= limit else TryOutcome.MEMORY, sizes.at_most(first) or 1, sizes
    )
    assert known.largest == sizes.at_most(limit)
    if known.largest is not None:
        assert known.fits(known.largest, confirms=True) and known.limit == sizes.above(known.largest)


@given(st.data())
@settings(max_examples=150)
def test_whatever_the_sizes_do_the_search_ends_and_reports_only_what_ran(data: st.DataObject) -> None:
    drawn: dict[tuple[int, bool, int], TryOutcome] = {}
    count = 0

    def anything(size: int, confirms: bool) -> TryOutcome:
        nonlocal count
        count += 1
        conclusive = [one for one in TryOutcome if one is not TryOutcome.CUT]
        verdict = data.draw(st.sampled_from(conclusive)) if size < 500 else TryOutcome.MEMORY
        drawn[size, confirms, count] = verdict
        return verdict

    known = search(anything, data.draw(st.integers(1, 64)), MicroBatches(data.draw(st.sampled_from([None, 48, 60]))))
    for size in {known.largest, known.fastest} - {None}:
        confirming = [verdict for (s, confirms, _), verdict in drawn.items() if s == size and confirms]
        short = [verdict for (s, confirms, _), verdict in drawn.items() if s == size and not confirms]
        assert short[-1] is TryOutcome.FITS and confirming[-1] is TryOutcome.FITS


@pytest.mark.parametrize("verdict", [TryOutcome.MEMORY, TryOutcome.HANGS, TryOutcome.CLOSE, TryOutcome.LOST])
def test_the_end_says_what_became_of_the_size_above(verdict: TryOutcome) -> None:
    known = search(lambda size, _: TryOutcome.FITS if size <= 4 else verdict, 4, MicroBatches())
    plan = planned("local", "z3", task="tune", sequence_length=64).plan
    assert f", 5 {verdict.value}" in ending(plan, known.tries, None).sentence


def test_the_fastest_is_looked_for_below_the_largest() -> None:
    known = search(
        lambda size, _: TryOutcome.FITS if size <= 100 else TryOutcome.MEMORY, 60, MicroBatches(),
        rate=lambda size: 1000 - abs(size - 12),
    )  # fmt: skip
    assert (known.largest, known.fastest) == (100, 12) and known.fits(12, confirms=True)


def test_of_sizes_that_were_confirmed_the_long_tries_tell_which_is_faster() -> None:
    """Of 3 steps one that waits makes a size look slow that is not."""
    known = search(
        lambda size, _: TryOutcome.FITS if size <= 8 else TryOutcome.MEMORY, 8, MicroBatches(),
        rate=lambda size: {8: 10602.0, 4: 13609.0}.get(size, 1000.0 * size),
        rate_confirmed=lambda size: {8: 18767.7, 4: 7919.3}[size],
    )  # fmt: skip
    plan = planned("local", "z3", task="tune", sequence_length=64).plan
    assert [one.size for one in known.tries if one.confirms] == [8, 4]
    assert (known.promising, known.fastest) == (4, 8)
    assert "largest 8 (confirmed), fastest 8 (18768 tokens/s)" in ending(plan, known.tries, None).sentence


def test_a_size_whose_short_try_was_faster_than_what_is_confirmed_is_confirmed_too() -> None:
    """Something else on the machine slowed the long try of one size, and says nothing of the others."""
    short = {1: 9043.0, 2: 13848.0, 4: 19033.0, 8: 19821.0}
    known = search(
        lambda size, _: TryOutcome.FITS, 1, MicroBatches(8),
        rate=lambda size: short[size], rate_confirmed=lambda size: {8: 12559.0}.get(size, short[size]),
    )  # fmt: skip
    assert [one.size for one in known.tries if one.confirms] == [8, 4] and known.fastest == 4
    assert known.faster_unconfirmed == []


@given(st.data())
@settings(max_examples=60)
def test_nothing_that_was_seen_faster_goes_without_a_long_try(data: st.DataObject) -> None:
    rates = st.floats(1, 1000)
    short = data.draw(st.fixed_dictionaries(dict.fromkeys(range(1, 13), rates)))
    long = data.draw(st.fixed_dictionaries(dict.fromkeys(range(1, 13), rates)))
    known = search(
        lambda size, _: TryOutcome.FITS, data.draw(st.integers(1, 12)), MicroBatches(12),
        rate=short.__getitem__, rate_confirmed=long.__getitem__,
    )  # fmt: skip
    confirmed = {one.size for one in known.tries if one.confirms}
    assert known.fastest == max(sorted(confirmed), key=long.__getitem__)
    assert all(short[size] <= long[known.fastest] for size in known.good if size not in confirmed)


def test_a_search_that_ends_before_that_names_the_one_that_was_faster(tmp_path: Path) -> None:
    tries = [
        Try(number=n, folder=Path(), size=size, length=64, confirms=confirms, verdict=TryOutcome.FITS, tokens_per_second=rate, peaks={})
        for n, (size, confirms, rate) in enumerate([(4, False, 19033.0), (8, False, 19821.0), (8, True, 12559.0)], 1)
    ]  # fmt: skip
    plan = planned("local", "z3", task="tune", sequence_length=64).plan
    end = ending(plan, tries, "the search ended after 3 of its tries")
    assert "fastest 8 (12559 tokens/s; 4 had 19033 in a short try, not confirmed)" in end.sentence
    result = document(plan, tries, end, time.time())
    said = "fastest 8 with 12559 tokens/s of those that were confirmed, 4 with 19033 tokens/s in a short try"
    assert search_found(result) == f"64 tokens: largest micro batch 8, {said}"
    short = document(plan, tries[:2], ending(plan, tries[:2], "the search ended"), time.time())
    assert (search_found(short) or "").endswith("fastest 8 with 19821 tokens/s in a short try, not confirmed")


def test_a_size_that_dies_when_it_runs_longer_gives_way_to_the_next_one() -> None:
    known = search(
        lambda size, confirms: TryOutcome.FITS if size <= (20 if confirms else 24) else TryOutcome.MEMORY,
        16,
        MicroBatches(),
    )
    assert (known.largest, known.limit) == (20, 21)


def test_a_failure_that_is_not_of_memory_is_tried_again_and_then_from_one_on() -> None:
    known = search(lambda size, _: TryOutcome.FAILED, 64, MicroBatches())
    assert [one.size for one in known.tries] == [64, 64, 1, 1] and known.largest is None


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (TryOutcome.FAILED, "sequence length 64: every try failed"),
        (TryOutcome.MEMORY, "sequence length 64: none fits"),
        (TryOutcome.CLOSE, "sequence length 64: none fits"),
        (TryOutcome.HANGS, "sequence length 64: none was over in time"),
        (TryOutcome.LOST, "sequence length 64: nothing is known, each try was lost or cut off"),
    ],
)
def test_where_no_size_ran_memory_is_short_only_where_a_try_says_so(verdict: TryOutcome, said: str) -> None:
    plan = planned("local", "z3", task="tune", sequence_length=64).plan
    known = search(lambda size, _: verdict, 2, MicroBatches())
    end = ending(plan, known.tries, None)
    assert end.sentence == said
    assert ("fits" in (end.reason or "")) == (verdict not in (TryOutcome.FAILED, TryOutcome.LOST))
    mixed = search(lambda size, _: TryOutcome.FAILED if size == 1 else TryOutcome.MEMORY, 2, MicroBatches())
    assert ending(plan, mixed.tries, None).sentence == "sequence length 64: none fits"


# --- through the command and the script -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elsewhere:
    """Searches of a program that takes as many MiB as a micro batch has tokens."""

    site: Path
    logs: Path

    def command(self, *words: str, world: dict[str, Any], run_id: str = "r") -> list[str]:
        os.environ["WORLD"] = json.dumps(world)
        set_ = [f"--set={pair}" for pair in ("confirm_steps=9",)]
        return [
            sys.executable, "-m", "hpc_llm", "submit", "--cluster", "local", "--method", "ddp", "--task", "allocating",
            "--gpus-per-node", "0", "--sequence-length", "8", "--run-id", run_id, "--logs", str(self.logs), "--wait", *set_, *words,
        ]  # fmt: skip

    def run(self, *words: str, world: dict[str, Any], run_id: str = "r") -> dict[str, Any]:
        """The result of a search that was submitted."""
        done = subprocess.run(
            self.command(*words, world=world, run_id=run_id), capture_output=True, text=True, timeout=300, check=False
        )
        run = RunPaths(self.logs / run_id)
        assert run.result.exists(), done.stderr + (run.stderr.read_text() if run.stderr.exists() else "")
        result: dict[str, Any] = json.loads(run.result.read_text())
        return result | {"code": done.returncode, "said": done.stderr}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied_ranks: None) -> Elsewhere:
    site = tmp_path / "site"
    info = site / "allocating_task-1.dist-info"
    info.mkdir(parents=True)
    (site / "allocating_task.py").write_text(TASK)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: allocating-task\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hpc_llm.tasks]\nallocating = allocating_task:KIND\n")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    monkeypatch.setenv("WORLD", "{}")
    return Elsewhere(site, tmp_path / "logs")


def figures_of(elsewhere: Elsewhere) -> list[Figure]:
    """The plots of a report of all that was searched."""
    return figures(make_report(collect([elsewhere.logs])))


def printed_by(one: RunPaths) -> str:
    return one.stdout.read_text() if one.stdout.exists() else ""


def sizes_of(result: dict[str, Any]) -> list[tuple[int, str]]:
    return [(one["micro_batch_size"], one["verdict"]) for one in result["tries"]]


def test_a_search_begins_with_its_job_however_long_that_waited(elsewhere: Elsewhere) -> None:
    elsewhere.run("--micro-batch-size", "8", "--set=most_tries=1", world={"mib": 160, "rates": {"8": 90}, "grows": 0})
    run = RunPaths(elsewhere.logs / "r")
    began = json.loads(run.started.read_text().splitlines()[-1])["time"]
    os.utime(run.experiment, (began - 36000, began - 36000))  # ten hours in the queue
    answer(run.root, None)
    result = json.loads(run.result.read_text())
    assert datetime.fromisoformat(result["started_at"]).timestamp() == began and 0 <= result["elapsed_s"] < 3600


def test_a_search_ends_where_memory_does_and_each_try_is_a_row(elsewhere: Elsewhere) -> None:
    result = elsewhere.run(
        "--micro-batch-size", "8", world={"mib": 160, "rates": {"8": 90, "16": 80, "4": 60}, "grows": 0}
    )
    [found] = result["search"]
    assert result["outcome"] == "COMPLETED" and result["code"] == 0
    largest = found["largest"]["micro_batch_size"]
    assert 16 <= largest <= 20 and found["does_not_fit"]["micro_batch_size"] == largest + 1
    assert found["largest"]["confirmed"] and found["fastest"]["micro_batch_size"] == 8 and found["fastest"]["confirmed"]
    assert sizes_of(result)[:3] == [(8, "FITS"), (16, "FITS"), (32, "MEMORY")]
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm", "parse", str(elsewhere.logs), "--format", "json"], capture_output=True, text=True, check=True
    )  # fmt: skip
    own, *rows = json.loads(done.stdout)
    assert (own["task"], own["kind"], own["outcome"]) == ("allocating", "train", "COMPLETED")
    assert [row["try"] for row in rows] == [one["try"] for one in result["tries"]]
    assert {row["kind"] for row in rows} == {"train"} and {row["run_id"] for row in rows} == {"r"}
    outcomes = {"FITS": "COMPLETED", "MEMORY": "OOM_HOST"}
    assert [row["outcome"] for row in rows] == [outcomes[verdict] for _, verdict in sizes_of(result)]
    [drawn] = [one for one in figures_of(elsewhere) if one.kind == "tries"]
    assert {(r["x"], r["fits"]) for r in drawn.records} == {(s, v == "FITS") for s, v in sizes_of(result)}
    assert all((r["y"] > 0) == r["fits"] for r in drawn.records) and f"with {8}," in drawn.caption


def test_a_try_that_hangs_is_ended_with_all_that_it_started(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PLACE)  # the marks of a copy are those of the process that is copied
    result = elsewhere.run("--set", "try_time_s=2", "--micro-batch-size", "2", world={"mib": 2000, "hangs": [4, 3]})
    assert result["search"][0]["largest"]["micro_batch_size"] == 2
    assert [verdict for size, verdict in sizes_of(result) if size in (3, 4)] == ["HANGS", "HANGS"]
    marks = {f"HPC_LLM_TRY_DIR={elsewhere.logs}/r/search/{one['try']}".encode() for one in result["tries"]}
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert not marks & set(place.read_bytes().split(b"\0")), place
        except OSError:
            continue


def test_what_is_killed_or_broken_bounds_the_search_and_is_told_apart(elsewhere: Elsewhere) -> None:
    result = elsewhere.run("--micro-batch-size", "4", world={"mib": 2000, "killed": [8, 7], "breaks": [6]})
    assert result["search"][0]["largest"]["micro_batch_size"] == 5
    assert [verdict for size, verdict in sizes_of(result) if size > 5] == ["FAILED"] * 4
    reasons = {one["micro_batch_size"]: one["why"] for one in result["tries"] if one["why"]}
    assert "137" in reasons[8] and "no memory's fault" in reasons[6]


def test_where_nothing_fits_the_run_ends_as_its_smallest_try(elsewhere: Elsewhere) -> None:
    result = elsewhere.run("--micro-batch-size", "4", world={"mib": 2})
    assert result["outcome"] == "OOM_HOST" and "micro batch of 1" in result["outcome_reason"] and result["code"] == 3
    assert [size for size, _ in sizes_of(result)] == [4, 2, 1] and result["search"][0]["largest"] is None


def test_a_search_over_lengths_gives_the_largest_at_each(elsewhere: Elsewhere, tmp_path: Path) -> None:
    result = elsewhere.run("--over", "sequence-length=8,16,32", "--micro-batch-size", "16", world={"mib": 200})
    lengths = {one["sequence_length"]: one["largest"]["micro_batch_size"] for one in result["search"]}
    assert list(lengths) == [8, 16, 32] and lengths[8] >= 2 * lengths[16] >= 4 * lengths[32] > 0
    assert all(one["largest"]["confirmed"] for one in result["search"])
    frontier = next(one for one in figures_of(elsewhere) if one.section == FRONTIER)
    assert {r["x"]: r["y"] for r in frontier.records} == lengths and {r["method"] for r in frontier.records} == {"ddp"}
    written = write_plots(make_report(collect([elsewhere.logs])), tmp_path)
    assert (
        len([path for path in written if path.name.startswith("tries-all-models") and path.stat().st_size > 1000]) == 6
    )


def test_the_global_batch_is_kept_by_sizes_that_divide_it(elsewhere: Elsewhere) -> None:
    result = elsewhere.run("--micro-batch-size", "4", "--gradient-accumulation-steps", "6", world={"mib": 90})
    assert {size for size, _ in sizes_of(result)} <= {1, 2, 3, 4, 6, 8, 12, 24}
    largest = result["search"][0]["largest"]
    assert (largest["micro_batch_size"], largest["gradient_accumulation_steps"], largest["global_batch_size"]) == (
        8,
        3,
        24,
    )


def test_a_search_that_the_global_batch_ends_says_so_and_what_it_found(elsewhere: Elsewhere) -> None:
    result = elsewhere.run("--micro-batch-size", "4", "--gradient-accumulation-steps", "2", world={"mib": 2000})
    [found] = result["search"]
    assert found["largest"]["micro_batch_size"] == 8 and found["does_not_fit"] is None
    assert found["no_larger"] == "the kept global batch has no more sequences for a rank"
    assert found["no_larger"] in (elsewhere.logs / "r" / "log.out").read_text()
    [told] = hpc_llm.status("r", logs=elsewhere.logs)
    assert told.reason is not None and re.search(
        r"tokens: largest micro batch 8, fastest 8 with \d+ tokens/s", told.reason
    )


def test_a_job_that_dies_goes_on_with_what_it_has(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """As Slurm queues it again, and as another run that resumes."""
    world = {"mib": 90, "waits": [8], "go": str(tmp_path / "go")}
    waiting = subprocess.Popen(
        elsewhere.command("--micro-batch-size", "2", world=world), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    run = RunPaths(elsewhere.logs / "r")
    deadline = time.monotonic() + 300
    while not (said := re.search(r"waits as (\d+)", printed_by(run.search_try(3)))):
        assert time.monotonic() < deadline, "the third try does not begin"
        time.sleep(0.05)
    script = int(json.loads(run.process.read_text())["script"]["pid"])
    os.killpg(os.getpgid(script), signal.SIGKILL)
    os.kill(int(said[1]), signal.SIGKILL)  # `timeout` gave it a group of its own
    waiting.wait(timeout=300)
    assert not run.result.exists()
    (tmp_path / "go").touch()
    again = subprocess.run(["bash", str(run.script)], capture_output=True, text=True, timeout=300, check=False)
    result = json.loads(run.result.read_text())
    assert again.returncode == 0 and sizes_of(result)[:4] == [(2, "FITS"), (4, "FITS"), (8, "LOST"), (8, "FITS")]
    done = elsewhere.run("--micro-batch-size", "2", "--resume", "r", world=world, run_id="more")
    assert done["search"] == result["search"] and not RunPaths(elsewhere.logs / "more").search_tries()


def test_ranks_that_are_told_to_end_before_their_job_is_were_cut_off_with_it(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """As Slurm ends a job: that says nothing of the size, which is tried again."""
    world = {"mib": 90, "told_first": [4], "go": str(tmp_path / "go")}
    subprocess.run(
        elsewhere.command("--micro-batch-size", "4", world=world), capture_output=True, timeout=300, check=False
    )
    run = RunPaths(elsewhere.logs / "r")
    assert json.loads(run.search_try(1).exit.read_text())["signal"] == "TERM" and not run.search_try(2).stdout.exists()
    (tmp_path / "go").touch()
    assert subprocess.run(["bash", str(run.script)], capture_output=True, timeout=300, check=False).returncode == 0
    assert sizes_of(json.loads(run.result.read_text()))[:2] == [(4, "CUT"), (4, "FITS")]


def test_ranks_that_somebody_ends_alone_are_no_failure_of_their_size_before_it_happens_again(
    elsewhere: Elsewhere,
) -> None:
    result = elsewhere.run("--micro-batch-size", "2", world={"mib": 90, "told": [4]})
    assert (
        sizes_of(result)[:3] == [(2, "FITS"), (4, "LOST"), (4, "LOST")]
        and result["search"][0]["largest"]["micro_batch_size"] == 3
    )


def test_a_search_ends_before_its_time_does_and_says_so(elsewhere: Elsewhere) -> None:
    result = elsewhere.run("--set", "most_tries=2", world={"mib": 2000})
    assert result["outcome"] == "INVALID" and "most_tries" in result["invalid_reason"] and result["code"] == 3
    assert not result["search"][0]["largest"]["confirmed"]


# --- real trainings ---------------------------------------------------------------------------------------------------


@pytest.mark.train
def test_two_ranks_out_of_memory_agree(tmp_path: Path, copied_ranks: None) -> None:
    """Of 19 sequences a rank and step either one or all are a micro batch, and for all there is no memory."""
    words = (
        "submit --cluster local --method ddp --task tune --model tiny --gpus-per-node 0 --sequence-length 256 "
        "--set tasks_per_node=2 --set kept_global_batch=38 --micro-batch-size 19 --steps 3 --warmup-steps 0 --set confirm_steps=4 "
        "--run-id r --wait"
    )
    limited = ["bash", "-c", 'ulimit -d 500000; exec "$@"', "-", sys.executable, "-m", "hpc_llm", *words.split()]
    done = subprocess.run(
        [*limited, "--logs", str(tmp_path)], capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(RunPaths(tmp_path / "r").result.read_text())
    # oneDNN says nothing of memory where it is the first that gets none; the search tries such a size again.
    silent = [one for one in result["tries"] if "could not create a primitive" in str(one["why"])]
    assert len(silent) <= 1
    result["tries"] = [one for one in result["tries"] if one not in silent]
    assert sizes_of(result) == [(19, "MEMORY"), (1, "FITS"), (1, "FITS")]
    [found] = result["search"]
    assert found["largest"] == found["fastest"] and found["largest"]["gradient_accumulation_steps"] == 19
    assert found["largest"]["global_batch_size"] == 38 and found["largest"]["confirmed"]
    assert found["largest"]["peak_host_bytes"] > 2**20
