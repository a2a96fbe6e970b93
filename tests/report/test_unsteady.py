"""A rate that a few slow steps decide is told, and never the best."""

from __future__ import annotations

import json
from pathlib import Path

from synthetic import Made, write_run

import hpc_llm
from hpc_llm.records.files import write_json
from hpc_llm.records.metrics import percentile
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.collect import collect
from hpc_llm.reporting.comparison import best
from hpc_llm.reporting.report import make_report


def test_runs_of_which_a_few_steps_decide_the_rate_are_told_and_never_the_best(tmp_path: Path) -> None:
    for name in ("steady", "unsteady", "other"):
        run_of = RunPaths(write_run(tmp_path, Made(run_id=name, cluster="local", method=name)))
        if name != "unsteady":
            continue
        steps = [json.loads(line) for line in run_of.steps.read_text().splitlines()]
        result = json.loads(run_of.result.read_text())
        for step in steps[-3:]:
            step["step_time_s"] *= 60
            step["tokens_per_second"] /= 60
        run_of.steps.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
        times = [step["step_time_s"] for step in steps if not step["warmup"]]
        by = result["step_time_s_mean"] / (sum(times) / len(times))
        result["tokens_per_second"] *= by
        result["tokens_per_second_per_gpu"] *= by
        result |= {f"step_time_s_p{percent}": percentile(times, percent) for percent in (50, 90)}
        result |= {"step_time_s_mean": sum(times) / len(times), "mfu": None}
        result["elapsed_s"] += 2 * sum(times)
        write_json(run_of.result, result)
    report = make_report(collect([tmp_path]))
    assert "Of 1 run the mean step takes more than twice the median" in report.notes[0]
    [marked] = {frozenset(rows) for rows in best(report.compared).values()}
    assert all(report.compared[row]["method"] != "unsteady" for row in marked)
    told = {one.run_id: one.reason for one in hpc_llm.status(logs=tmp_path)}
    assert told["steady"] is None and "a few of its steps took far longer than the others" in (told["unsteady"] or "")
