"""Speed-up over GPUs, and ratios to an earlier table, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_repeats import compared, run

from hpc_llm.errors import RequestError
from hpc_llm.parsing import Row, write_rows
from hpc_llm.reporting import collect, make_report, read_baseline
from hpc_llm.reporting.baseline import changes
from hpc_llm.reporting.files import write_csv
from hpc_llm.reporting.report import regressions, results_table
from hpc_llm.reporting.scaling import scaling


def test_speed_up_is_over_the_fewest_gpus_of_the_series() -> None:
    table = compared(*(run(world_size=n, tokens_per_second=r) for n, r in ((8, 180.0), (4, 100.0), (16, 300.0))))
    found = scaling(table)
    assert found.column("world_size") == [4, 8, 16]
    assert found.column("speed_up") == pytest.approx([1.0, 1.8, 3.0])
    assert found.column("efficiency") == pytest.approx([1.0, 0.9, 0.75])
    assert set(found.column("kind")) == {"weak"} and set(found.column("base_world_size")) == {4}


def test_the_same_global_batch_on_more_gpus_is_strong_scaling() -> None:
    table = compared(
        run(world_size=4, gradient_accumulation_steps=4, global_batch_size=16, tokens_per_second=100.0),
        run(world_size=8, gradient_accumulation_steps=2, global_batch_size=16, tokens_per_second=160.0),
    )
    found = scaling(table)
    assert found.column("kind") == ["strong", "strong"]
    assert found.column("efficiency") == pytest.approx([1.0, 0.8])


def test_runs_of_other_methods_clusters_or_that_failed_are_no_series() -> None:
    table = compared(
        run(world_size=4, tokens_per_second=100.0),
        run(world_size=8, tokens_per_second=100.0, method="z2"),
        run(world_size=8, tokens_per_second=100.0, cluster="mi210"),
        run(world_size=8, tokens_per_second=100.0, outcome="TIMEOUT"),
    )
    assert not len(scaling(table))


def against(now: list[Any], then: list[Any], tolerance: float = 0.05) -> list[Any]:
    return changes(compared(*now), compared(*then), tolerance)


def test_ratio_is_now_over_then() -> None:
    (change,) = against(
        [run(tokens_per_second=96.0, peak_allocated_bytes=104)],
        [run(tokens_per_second=100.0, peak_allocated_bytes=100)],
    )
    assert change.ratios["tokens_per_second"] == pytest.approx(0.96)
    assert change.ratios["peak_allocated_bytes"] == pytest.approx(1.04)
    assert not change.is_regression, "both are within 5 %"


def test_slower_and_larger_beyond_the_tolerance_are_regressions() -> None:
    (change,) = against(
        [run(tokens_per_second=90.0, peak_allocated_bytes=120)],
        [run(tokens_per_second=100.0, peak_allocated_bytes=100)],
    )
    assert change.regressions == ("tokens/s 10.0 % lower", "peak allocated 20.0 % higher")


def test_exactly_the_tolerance_and_better_are_no_regressions() -> None:
    for rate in (95.0, 200.0):
        (change,) = against([run(tokens_per_second=rate)], [run(tokens_per_second=100.0)])
        assert not change.is_regression


def test_what_completed_before_and_does_not_now_is_a_regression() -> None:
    (change,) = against([run(outcome="OOM_DEVICE")], [run(tokens_per_second=100.0)])
    assert change.regressions == ("OOM_DEVICE, completed before",)
    found = against([run(tokens_per_second=100.0), run(outcome="OOM_DEVICE")], [run(tokens_per_second=100.0)])
    assert not any(change.is_regression for change in found), "a repeat of it completes"


def test_what_failed_before_is_no_baseline() -> None:
    assert against([run(tokens_per_second=1.0)], [run(outcome="TIMEOUT", tokens_per_second=100.0)]) == []


@pytest.mark.parametrize("unknown", ["model", "method", "world_size", "micro_batch_size", "sequence_length"])
def test_what_is_not_known_to_be_equal_is_not_compared(unknown: str) -> None:
    now, then = run(**{unknown: None}, tokens_per_second=50.0), run(**{unknown: None}, tokens_per_second=100.0)
    assert against([now], [then]) == []
    nowhere = {"cluster": None, "gpu": None}
    assert against([run(**nowhere, tokens_per_second=50.0)], [run(**nowhere, tokens_per_second=100.0)]) == []


def test_a_single_run_is_a_yardstick_for_its_shape_only() -> None:
    now = [
        run(method="z3", tokens_per_second=50.0),
        run(method="q", tokens_per_second=300.0),
        run(model="other", tokens_per_second=1.0),
    ]
    found = {c.row: c for c in against(now, [run(method="z3", tokens_per_second=100.0)])}
    methods = {i: (row["model"], row["method"]) for i, row in compared(*now).items()}
    ratios = {methods[i]: (c.ratios["tokens_per_second"], c.same_setting, c.is_regression) for i, c in found.items()}
    assert ratios == {("m", "q"): (3.0, False, False), ("m", "z3"): (0.5, True, True)}


def test_of_several_that_agree_only_that_of_the_same_gpu_is_a_counterpart() -> None:
    then = [run(tokens_per_second=100.0, gpu="A100"), *(run(tokens_per_second=130.0, gpu="A100-80") for _ in range(2))]
    assert not any(one.same_setting for one in against([run(tokens_per_second=120.0, gpu="A100-40")], then))
    (exact,) = against([run(tokens_per_second=120.0, gpu="A100")], then)
    assert exact.then["tokens_per_second"] == 100.0
    (only,) = against([run(tokens_per_second=120.0, gpu="A100-40")], then[:1])
    assert only.then["tokens_per_second"] == 100.0
    two = [run(tokens_per_second=120.0, gpu="A100-40"), run(tokens_per_second=60.0, gpu="L4")]
    assert not any(one.same_setting for one in against(two, then[:1]))


def test_the_report_itself_is_a_baseline_without_regressions(logs: Path, tmp_path: Path) -> None:
    runs = collect([logs])
    first = make_report(runs)
    write_csv(results_table(first), tmp_path / "results.csv")
    again = make_report(runs, (tmp_path / "results.csv", read_baseline(tmp_path / "results.csv")))
    assert again.baseline is not None
    assert regressions(again) == []
    assert len(again.baseline.changes) == first.compared.column("outcome").count("COMPLETED")
    ratios = [change.ratios["tokens_per_second"] for change in again.baseline.changes]
    assert ratios == pytest.approx([1.0] * len(ratios))


def test_the_csv_of_parse_and_a_run_folder_are_baselines(logs: Path, tmp_path: Path) -> None:
    with (tmp_path / "parsed.csv").open("w") as file:
        write_rows([r.row for r in collect([logs])], "csv", file)
    assert len(read_baseline(tmp_path / "parsed.csv")) >= 40
    folder = next(p for p in logs.iterdir() if "-delta-z3-" in p.name)
    assert read_baseline(folder).column("method") == ["z3"]


def test_a_missing_or_foreign_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no baseline"):
        read_baseline(tmp_path / "nothing")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RequestError, match="lacks the columns method, model"):
        read_baseline(tmp_path / "x.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(RequestError, match=r"cannot read the baseline .* as CSV"):
        read_baseline(tmp_path / "empty.csv")


def test_a_row_is_unknown_rather_than_zero_in_a_baseline() -> None:
    (change,) = against([run(tokens_per_second=100.0)], [run(tokens_per_second=100.0)])
    assert change.ratios["peak_allocated_bytes"] is None
    assert Row().peak_allocated_bytes is None
