"""From telemetry files to the curve of each run and the plot of all of them."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import write_telemetry
from synthetic import Made, write_run

from hpc_llm.records.run import RunPaths
from hpc_llm.reporting import collect, make_report
from hpc_llm.reporting.figures import figures, utilization
from hpc_llm.reporting.plots import write_plots
from hpc_llm.reporting.telemetry import MAX_POINTS, BinnedMeans
from hpc_llm.reporting.telemetry import utilization as read_curve

Z3 = Made(run_id="a-z3", cluster="delta", method="z3")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two runs that have nothing in common, one that ran out of memory, an INVALID one, one without telemetry."""
    folder = tmp_path / "logs"
    made = {
        Z3: [0.0, 0.5, 1.0, 0.9],
        replace(Z3, run_id="b-q", method="q", model="llama3.2-1b", sequence_length=2048): [0.2] * 400,
        replace(Z3, run_id="c-oom", method="z2", outcome="OOM_DEVICE"): [0.1, None, 0.4],
        replace(Z3, run_id="d-invalid", outcome="INVALID", reason="too short"): [1.0] * 9,
        replace(Z3, run_id="e-none"): None,
    }
    for one, values in made.items():
        run = write_run(folder, one)
        if values is not None:
            write_telemetry(run, values)
    return folder


def test_each_run_with_telemetry_has_a_line(logs: Path) -> None:
    drawn = utilization(make_report(collect([logs])))
    assert drawn is not None and drawn.panels == ["delta"]
    assert [cells[1:] for cells in sorted(drawn.cells, key=lambda c: c[2])] == [
        ["z3", "a-z3", "60", "0", "100", "3"],
        ["q", "b-q", "20", "20", "20", "396"],
        ["z2", "c-oom", "25", "10", "40", "2"],
    ]
    line = [(round(60 * r["x"]), r["y"]) for r in drawn.records if r["run"] == "a-z3"]
    assert line == [(0, 0.0), (1, 50.0), (2, 100.0), (3, 90.0)]
    assert drawn.x_title == "Time since the first sample (min)"
    assert drawn.caption == (
        "3 runs, one line each: the share of time in which a kernel ran, mean of all GPUs of the run. "
        "Highest mean: 60 % (z3 on delta). Lowest mean: 20 % (q on delta)."
    )


def test_without_telemetry_there_is_no_such_plot(tmp_path: Path) -> None:
    write_run(tmp_path, Z3)
    write_run(tmp_path, replace(Z3, run_id="b", method="q"))
    made = make_report(collect([tmp_path]))
    assert utilization(made) is None
    assert "utilization" not in {figure.kind for figure in figures(made)}


def test_telemetry_is_no_log_of_its_own(logs: Path) -> None:
    runs = collect([logs])
    assert len(runs) == 5 and all(run.is_known for run in runs)


def test_the_picture_is_written_with_its_words(logs: Path, tmp_path: Path) -> None:
    written = write_plots(make_report(collect([logs])), tmp_path)
    assert {"utilization-all-models.png", "utilization-all-models.svg"} <= {path.name for path in written}
    svg = "".join(ET.parse(tmp_path / "utilization-all-models.svg").getroot().itertext())
    assert "GPU utilisation (%)" in svg and "Time since the first sample (min)" in svg and "one line each" in svg


def test_the_gpus_of_all_nodes_count(tmp_path: Path) -> None:
    run = write_run(tmp_path, Z3)
    write_telemetry(run, [1.0, 1.0], gpus=3)
    write_telemetry(run, [0.2, 0.6], gpus=1, node=1)
    assert [value for _, value in read_curve(RunPaths(run))] == pytest.approx([0.8, 0.9])


def test_lines_that_are_no_samples_are_left_out(tmp_path: Path) -> None:
    good = [{"time": 100.0, "utilization": 0.5}, {"time": 101.5, "utilization": 1}]
    bad = [{"time": "x", "utilization": 0.5}, {"time": math.nan, "utilization": 0.5}, {"time": 1e300, "utilization": 0.5},
           {"time": 1.0, "utilization": 55}, {"time": 1.0, "utilization": True}, {"time": 1.0}, [], 7]  # fmt: skip
    path = RunPaths(tmp_path).telemetry
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in [*bad, *good]) + b"\xff\xfe\n")
    assert read_curve(RunPaths(tmp_path)) == [(0.0, 0.5), (1.0, 1.0)]


@pytest.mark.parametrize("seconds", [1, 119, 120, 121, 5000, 90_000])
def test_a_curve_of_any_length_has_few_points_and_the_same_mean(seconds: int) -> None:
    means = BinnedMeans()
    for second in range(seconds):
        means.add(1e9 + second, second % 7 / 7)
    curve = means.curve()
    assert min(seconds, MAX_POINTS // 2) <= len(curve) <= MAX_POINTS
    assert curve[0][0] == 0 and curve[-1][0] <= seconds - 1
    total = sum(value * count for (_, value), count in zip(curve, _counts(curve, seconds), strict=True))
    assert total / seconds == pytest.approx(sum(s % 7 / 7 for s in range(seconds)) / seconds)


def _counts(curve: list[tuple[float, float]], seconds: int) -> list[float]:
    edges = [*(begin for begin, _ in curve), float(seconds)]
    return [end - begin for begin, end in itertools.pairwise(edges)]


def test_many_runs_share_the_points_of_the_page(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, replace(Z3, run_id=f"r{i:03}", method=f"m{i % 9}", steps=8)) for i in range(120)]
    for run in runs:
        write_telemetry(run, [0.5] * 120, gpus=1)
    drawn = utilization(make_report(collect([tmp_path])))
    assert drawn is not None and len(drawn.cells) == 120
    assert 3000 <= len(drawn.records) <= 6120
