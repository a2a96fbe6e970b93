"""Measured beside published figures: a ratio only where size and hardware are the same, else the order of methods."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from synthetic import Made, write_run

from hpc_llm.reporting import collect, make_report, write_report
from hpc_llm.reporting.references import Held
from hpc_llm.reporting.report import Report

V100 = "8 x V100-SXM2-32GB"
RATES = {"z2o": 52.0, "z3": 300.0, "q": 926.0}


def add(logs: Path, name: str, *, study: dict[str, Any] | None = None, **made: Any) -> Path:
    """One run of the study, in whose record stands what `study` says besides."""
    folder = write_run(logs, Made(run_id=name, **{"cluster": "taiwania2", "method": "z3", **made}))
    record = folder / "experiment.json"
    place = {"study": "hpc2", "name": name, "differs": {"method": made.get("method", "z3")}, **(study or {})}
    record.write_text(json.dumps({**json.loads(record.read_text()), "study": place}))
    return folder


def tokens(value: float, hardware: str = V100, **more: Any) -> dict[str, Any]:
    """A published throughput."""
    published = {"value": value, "unit": "tokens/s", "source": "table 3", "hardware": hardware, **more}
    return {"reference": {"tokens_per_second": published}}


def report(logs: Path) -> Report:
    return make_report(collect([logs]))


def only(logs: Path) -> Held:
    [one] = report(logs).references.held
    return one


@pytest.mark.parametrize(
    "hardware", [V100, "8 × NVIDIA Tesla V100 SXM2 32GB", "8x v100-sxm2-32gb", "V100-SXM2-32GB", "Tesla V100-SXM2-32GB"]
)
def test_on_the_same_hardware_there_is_a_ratio(tmp_path: Path, hardware: str) -> None:
    add(tmp_path, "a", study=tokens(2500, hardware, tolerance=0.05))
    assert only(tmp_path).ratio == pytest.approx(2400 / 2500) and only(tmp_path).verdict == "within 5 %"
    add(tmp_path, "a", study=tokens(3000, hardware, tolerance=0.05))
    assert only(tmp_path).verdict == "beyond 5 %"


@pytest.mark.parametrize(
    "hardware", ["4 x V100-SXM2-32GB", "8 x A100-SXM4-40GB", "8 x V100", "8 x V100-SXM2-16GB", "V100", "H100", "8", "x"]
)
def test_on_other_hardware_there_is_none(tmp_path: Path, hardware: str) -> None:
    add(tmp_path, "a", study=tokens(2500, hardware))
    assert only(tmp_path).ratio is None and "order and ratios between methods only" in only(tmp_path).verdict


def test_where_nobody_knows_the_hardware_there_is_none(tmp_path: Path) -> None:
    add(tmp_path, "a", study=tokens(2500, "cpu"), gpu=None)
    assert only(tmp_path).ratio is None


def test_a_run_of_another_size_has_none(tmp_path: Path) -> None:
    add(tmp_path, "a", study={**tokens(2500), "smoke": True})
    assert only(tmp_path).ratio is None and "smoke" in only(tmp_path).verdict
    add(tmp_path, "a", study={**tokens(2500), "changed": ["steps", "cluster"]})
    assert only(tmp_path).ratio is None and only(tmp_path).verdict == "the command line changed steps: no ratio"
    add(tmp_path, "a", study={**tokens(2500), "changed": ["cluster"]})
    assert only(tmp_path).ratio is not None  # eight GPUs of the same kind elsewhere
    add(tmp_path, "a", study={**tokens(2500, "V100-SXM2-32GB"), "changed": ["cluster"]})
    assert only(tmp_path).ratio is None  # nobody says how many they were


@pytest.mark.parametrize(("began", "has_ratio"), [("checkpoint", True), ("random", False), (None, False)])
def test_what_depends_on_trained_weights_is_held_against_them_alone(
    tmp_path: Path, began: str | None, has_ratio: bool
) -> None:
    folder = add(tmp_path, "a", study=tokens(2500, weights="checkpoint"))
    record = folder / "experiment.json"
    content = json.loads(record.read_text())
    content["plan"]["weights"] = began
    record.write_text(json.dumps(content))
    assert (only(tmp_path).ratio is not None) == has_ratio
    assert has_ratio or f"began with {began or 'unknown'} weights" in only(tmp_path).verdict


@pytest.mark.parametrize("outcome", ["OOM_DEVICE", "TIMEOUT", "INVALID"])
def test_what_did_not_complete_is_no_measurement(tmp_path: Path, outcome: str) -> None:
    add(tmp_path, "a", study=tokens(2500), outcome=outcome, reason="so it was")
    assert only(tmp_path).measured is None and only(tmp_path).verdict == f"nothing measured: {outcome}"


def test_repeats_are_held_together_with_their_interval(tmp_path: Path) -> None:
    for seed, rate in enumerate((290.0, 300.0, 310.0)):
        add(tmp_path, f"seed={seed}", study={**tokens(2400), "differs": {"seed": str(seed)}}, rate_per_gpu=rate)
    one = only(tmp_path)
    assert (one.runs, one.measured) == (3, pytest.approx(2400)) and one.half_width == pytest.approx(198.7, abs=0.1)


def test_units_are_turned_and_peaks_are_the_largest(tmp_path: Path) -> None:
    peak = {"value": 20, "unit": "GiB", "source": "s", "hardware": V100}
    for name, size in (("a", 20), ("b", 21)):
        add(tmp_path, name, study={"reference": {"peak_allocated_bytes": peak}}, peak_bytes=size << 30)
    assert only(tmp_path).ratio == pytest.approx(21 / 20)
    [row] = write_and_read(tmp_path)
    assert float(row["reference"]) == 20 * 2**30 and row["unit"] == "GiB"


def write_and_read(logs: Path) -> list[dict[str, str]]:
    write_report(report(logs), logs.parent / "report")
    return [*csv.DictReader((logs.parent / "report" / "references.csv").open())]


def methods(logs: Path, measured: dict[str, float], published: dict[str, float], **more: Any) -> list[str]:
    for method, rate in measured.items():
        add(logs, method, method=method, study=tokens(published[method], "4 x H100"), rate_per_gpu=rate, **more)
    return report(logs).references.orders


def test_the_order_of_methods_is_compared_in_words(tmp_path: Path) -> None:
    [same] = methods(tmp_path / "same", RATES, {"z2o": 100, "z3": 900, "q": 1000})
    assert "the order q > z3 > z2o is the reference's q > z3 > z2o" in same
    assert "z3/q 0.324 (reference 0.9)" in same
    [turned] = methods(tmp_path / "turned", RATES, {"z2o": 100, "z3": 2000, "q": 1000})
    assert "the order q > z3 > z2o differs from the reference's z3 > q > z2o" in turned


def test_repeats_that_overlap_do_not_contradict(tmp_path: Path) -> None:
    for number, (z3, q) in enumerate(((300, 310), (340, 330), (280, 300))):
        for method, rate, published in (("z3", z3, 900), ("q", q, 800)):
            study = {**tokens(published, "4 x H100"), "differs": {"method": method, "seed": str(number)}}
            add(tmp_path, f"{method}-{number}", method=method, study=study, rate_per_gpu=float(rate))
    [said] = report(tmp_path).references.orders
    assert "cannot be told from these repeats" in said


def test_smoke_runs_and_other_settings_are_in_no_order(tmp_path: Path) -> None:
    for method in RATES:
        add(tmp_path, f"small-{method}", method=method, study={**tokens(100), "smoke": True})
        own = {"differs": {"method": method, "micro_batch_size": method}}  # each another batch
        add(tmp_path, f"own-{method}", method=method, study={**tokens(100), **own})
    assert report(tmp_path).references.orders == []


def test_smoke_runs_stand_apart(tmp_path: Path) -> None:
    add(tmp_path, "full", rate_per_gpu=100.0)
    add(tmp_path, "small", study={"smoke": True}, rate_per_gpu=900.0)
    made = report(tmp_path)
    assert len(made.compared) == 2 and all(section.is_mixed or len(section.rows) == 1 for section in made.sections)
    write_report(made, tmp_path.parent / "report")
    assert "smoke" in (tmp_path.parent / "report" / "results.md").read_text()


def test_no_reference_changes_a_measured_cell(tmp_path: Path) -> None:
    texts = set()
    for value in (1.0, 2400.0, 1e8):
        for seed, rate in enumerate((290.0, 310.0)):
            add(tmp_path, f"r{seed}", study=tokens(value), rate_per_gpu=rate)
        [row] = write_and_read(tmp_path)
        texts.add(((tmp_path.parent / "report" / "results.csv").read_text(), row["measured"], row["measured_ci95"]))
    assert len(texts) == 1


def test_page_and_markdown_show_both_figures(tmp_path: Path) -> None:
    add(tmp_path, "a", study=tokens(2500, source="table 3 <b>of</b> x|y", tolerance=0.1))
    write_report(report(tmp_path), tmp_path.parent / "report")
    page = (tmp_path.parent / "report" / "index.html").read_text()
    assert "Measured and published" in page and "2,400 tokens/s" in page and "0.960" in page and "within 10 %" in page
    assert "<b>of</b>" not in page and "table 3 &lt;b&gt;of" in page
    assert "Measured and published" in (tmp_path.parent / "report" / "results.md").read_text()


@pytest.mark.parametrize(
    "study",
    [
        7, [], {"study": 1}, {"study": "s", "name": 5}, {"study": "s" * 300, "name": "x"},
        {"study": "s", "name": "x", "reference": []}, {"study": "s", "name": "x", "reference": {"a": {"value": "x"}}},
        {"study": "s", "name": "x", "expect": ["x"], "differs": [1], "changed": {"a": 1}, "smoke": "yes"},
        {"study": "s", "name": "x", "reference": {"outcome": {"value": 1, "unit": "1", "source": "s", "hardware": "h"}}},
    ],
)  # fmt: skip
def test_a_damaged_place_in_a_study_is_left_out(tmp_path: Path, study: Any) -> None:
    record = add(tmp_path, "a") / "experiment.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "study": study}))
    made = report(tmp_path)
    assert all(one.ratio is None for one in made.references.held) and made.table[0]["tokens_per_second"] == 2400
