"""Says which try of a batch-size search comes next, and writes down what was found. Standard library only.

    python -m hpc_llm.worker.tune_llm --run-dir logs/RUN --seconds-left 1200

The job script asks before each try, on its first node alone, and starts all ranks in the folder of that try. The answer is one
line: `try NUMBER LIMIT_S SENTENCE`, or `end CODE 0 SENTENCE`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.planning.experiment import Plan, register_workload
from hpc_llm.planning.micro_batches import plan_of_try
from hpc_llm.planning.parts import Tuning
from hpc_llm.records.files import make_own_folder, read_json, read_json_lines
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.searching.choice import Wanted, next_try
from hpc_llm.worker.searching.found import document, ending
from hpc_llm.worker.searching.tries import Try, TryOutcome, last_number, tries_of

_ROOM = 1.5
"""So much longer than the longest one before the next try may take: it may be larger."""


def main(argv: Sequence[str] | None = None) -> int:
    """Answer on stdout, and return the exit code: 0 where there is an answer."""
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    try:
        print(answer(arguments.run_dir, arguments.seconds_left), flush=True)
    except HpcLlmError as error:
        print(f"tune_llm: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tune_llm", allow_abbrev=False)
    parser.add_argument("--run-dir", type=Path, required=True, help="folder of the run, with experiment.json")
    parser.add_argument("--seconds-left", type=int, help="until the job's time limit, where it has one")
    return parser.parse_args(argv)


def answer(folder: Path, seconds_left: int | None) -> str:
    """The line for the job script. What it names is in the run's folder by then.

    Raises:
        RequestError: the folder holds no run that searches.
    """
    run = RunPaths(folder)
    plan = _plan(run)
    tries = tries_of(run, plan)
    wanted = next_try(plan, tries)
    unfinished = None if wanted is None else _why_not(wanted, plan, tries, seconds_left)
    if wanted is not None and unfinished is None:
        return _begin(wanted, plan, run, tries)
    end = ending(plan, tries, unfinished)
    run.write(run.result, document(plan, tries, end, _began(run)))
    return f"end {end.exit_code} 0 {_line(f'{_last(tries)}{end.sentence}')}"


def _began(run: RunPaths) -> float:
    """When this job began, Unix time: the script wrote it down. One without that record is as old as its plan."""
    times = [line.get("time") for line in read_json_lines(run.started)]
    known = [float(one) for one in times if isinstance(one, int | float)]
    return known[-1] if known else run.experiment.stat().st_mtime


def _plan(run: RunPaths) -> Plan:
    experiment = read_json(run.experiment)
    if experiment is None or not isinstance(experiment.get("plan"), dict):
        raise RequestError(f"{run.experiment} is missing or not whole: --run-dir takes the folder of a submitted run.")
    register_workload(
        str(experiment["plan"].get("task")), Tuning
    )  # whatever the task is called, also one from elsewhere
    try:
        plan = Plan.from_dict(experiment["plan"])
        _ = plan.tuning
    except TypeError as error:
        raise RequestError(f"{run.experiment} does not hold the plan of a search: {error}.") from None
    return plan


def _why_not(wanted: Wanted, plan: Plan, tries: Sequence[Try], seconds_left: int | None) -> str | None:
    """Why the search ends although there is more to try; None where it goes on."""
    conclusive = [one for one in tries if one.verdict.is_conclusive]
    if len(tries) >= plan.tuning.most_tries:
        return f"the search ended after {len(tries)} of its tries: --set most_tries=N allows more"
    needed = _expected_s(wanted, plan, conclusive)
    if seconds_left is None or needed is None or needed <= seconds_left:
        return None
    return (
        f"the search ended with {seconds_left} s left, in which another try, of about {needed:.0f} s, has no room: "
        "--resume RUN goes on with a longer --time"
    )


def _expected_s(wanted: Wanted, plan: Plan, tries: Sequence[Try]) -> float | None:
    """Seconds that the next try may take; None before there was one."""
    short = [
        one for one in tries if not one.confirms and one.verdict is not TryOutcome.HANGS and one.seconds is not None
    ]
    if not short:
        return None
    longest = max(one.seconds or 0.0 for one in short)
    more = max(0, plan.tuning.confirm_steps - plan.tuning.steps) if wanted.confirms else 0
    steps_s = max((one.step_time_s or 0.0) for one in short)
    return _ROOM * longest + more * steps_s


def _begin(wanted: Wanted, plan: Plan, run: RunPaths, tries: list[Try]) -> str:
    """Make the folder of the next try; the line that names it."""
    number = last_number(tries, run) + 1
    place, made = run.search_try(number), run.search / f".{number}"
    limit_s = plan.tuning.try_time_s
    if wanted.confirms:
        limit_s = limit_s * max(plan.tuning.confirm_steps, plan.tuning.steps) // plan.tuning.steps
    own = plan_of_try(plan, wanted.size, wanted.length, confirms=wanted.confirms)
    asked = {
        "try": number,
        "micro_batch_size": wanted.size,
        "sequence_length": wanted.length,
        "confirms": wanted.confirms,
        "limit_s": limit_s,
    }
    if not run.search.exists():
        make_own_folder(run.search)
    shutil.rmtree(made, ignore_errors=True)
    make_own_folder(made)
    record = {"schema": 1, "run_id": run.run_id, "plan": own.to_dict(), "search": asked, "made_at": time.time()}
    RunPaths(made).write(RunPaths(made).experiment, record)
    made.rename(place.root)  # whole or not at all
    what = f"{_last(tries)}try {number}: {'confirming ' if wanted.confirms else ''}micro batch {wanted.size} x {wanted.length}"
    return f"try {number} {limit_s} {_line(what)}"


def _last(tries: Sequence[Try]) -> str:
    """What became of the last one, before a sentence about what follows."""
    if not tries:
        return ""
    one = tries[-1]
    rate = f", {one.tokens_per_second:.4g} tokens/s" if one.tokens_per_second else ""
    return f"{one.size} x {one.length}: {one.verdict.value}{rate}; "


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
