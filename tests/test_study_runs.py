"""A study from its file to its report: the example runs for real, one of its runs really runs out of memory."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from hpc_llm.records.run import RunPaths
from hpc_llm.reporting import collect, make_report
from hpc_llm.runs import status

COMMAND = str(ROOT / ".venv" / "bin" / "hpc-llm")

pytestmark = [pytest.mark.train, pytest.mark.timeout(900), pytest.mark.usefixtures("copied_ranks")]


def hpc_llm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder in which the example was run, and what the command said."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(ROOT / "examples" / "study.yaml", folder)
    return folder, hpc_llm(folder, "submit", "study.yaml", "--max-parallel=2", "--wait")


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob("logs/*/experiment.json"))


def place(record: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.read_text())["study"]
    return found


def test_a_reproduced_out_of_memory_is_a_success(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, submitted = done
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert len(records(folder)) == 12
    ended = {place(record)["name"]: status([RunPaths(record.parent)])[0] for record in records(folder)}
    assert ended.pop("too-large").outcome == "OOM_HOST"
    assert {one.outcome for one in ended.values()} == {"COMPLETED"}
    [row] = [line for line in submitted.stdout.splitlines() if "OOM_HOST: yes" in line]
    assert "too-large" in row and "as expected" in submitted.stdout


def test_an_expectation_that_is_not_met_is_code_3(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = done
    (folder / "one.yaml").write_text(
        "cluster: local\nmodel: tiny\nmethod: lora\nset: {engine: plain, peft.r: 1000000000000}\n"
        "expect: OOM_DEVICE\nsmoke: {steps: 4, expect: OOM_HOST}\n"
    )
    assert hpc_llm(folder, "submit", "one.yaml", "--wait", "--logs=one").returncode == 3
    small = hpc_llm(folder, "submit", "one.yaml", "--wait", "--logs=small", "--smoke", "--json")
    assert small.returncode == 0
    [told] = json.loads(small.stdout)["runs"]
    assert (told["study"], told["expect"], told["outcome"]) == ("one", "OOM_HOST", "OOM_HOST")


def test_commands_know_study_run_and_expectation(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = done
    told = json.loads(hpc_llm(folder, "status", "--json").stdout)["runs"]
    assert {one["study"] for one in told} == {"study"} and len({one["study_run"] for one in told}) == 12
    rows = json.loads(hpc_llm(folder, "parse", "logs", "--format=json").stdout)
    expected = {row["study_run"]: (row["expect"], row["outcome"]) for row in rows}
    assert expected["too-large"] == ("OOM_HOST", "OOM_HOST")
    assert all(row["smoke"] is None for row in rows)


def reported(folder: Path, output: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """results.csv and references.csv of a report."""
    made = hpc_llm(folder, "report", "logs", "-o", output)
    assert made.returncode == 0, made.stderr
    files = (folder / output / "results.csv", folder / output / "references.csv")
    results, held = ([*csv.DictReader(file.open())] if file.exists() else [] for file in files)
    return results, held


@pytest.fixture(scope="module")
def plain(done: tuple[Path, subprocess.CompletedProcess[str]]) -> list[dict[str, str]]:
    """What was measured, reported before anything has a reference."""
    results, held = reported(done[0], "plain")
    assert held == []
    return results


def test_repeats_by_seed_have_an_interval(
    done: tuple[Path, subprocess.CompletedProcess[str]], plain: list[dict[str, str]]
) -> None:
    results = plain
    rows = {(r["method"], r["micro_batch_size"]): r for r in results if r["outcome"] == "COMPLETED"}
    assert rows["ddp", "1"]["runs"] == rows["ddp", "2"]["runs"] == "3" and rows["lora", "1"]["runs"] == "2"
    assert float(rows["ddp", "2"]["tokens_per_second_ci95"]) > 0 and rows["lora", "4"]["tokens_per_second_ci95"] == ""
    page = (done[0] / "plain" / "index.html").read_text()
    assert "as expected" in page and "too-large" in page


def test_no_reference_changes_what_was_measured(
    done: tuple[Path, subprocess.CompletedProcess[str]], plain: list[dict[str, str]]
) -> None:
    folder, _ = done
    for record in records(folder):
        content = json.loads(record.read_text())
        content["study"]["reference"] = {
            result: {"value": 1e9, "unit": unit, "source": "a table", "hardware": "4 x H100", "tolerance": 0.1}
            for result, unit in (("tokens_per_second", "tokens/s"), ("peak_host_bytes", "GiB"), ("loss_last", "nats"))
        }
        record.write_text(json.dumps(content))
    results, held = reported(folder, "with-references")
    assert results == plain
    assert {row["reference"] for row in held if row["result"] == "tokens_per_second"} == {"1000000000.0"}
    assert all(row["ratio"] == "" for row in held)  # a CPU is no H100
    assert {row["verdict"] for row in held if row["run"] == "too-large"} == {"nothing measured: OOM_HOST"}


def test_on_other_hardware_order_and_ratios_of_the_methods_are_all_that_is_said(
    done: tuple[Path, subprocess.CompletedProcess[str]], plain: list[dict[str, str]]
) -> None:
    """Of runs that were really made here, beside figures of GPUs that are not here: once in this order, once in the other."""
    folder, _ = done
    rates = {row["method"]: float(row["tokens_per_second"]) for row in plain if row["micro_batch_size"] == "2"}
    fast, slow = sorted(rates, key=lambda method: -rates[method])
    for published, wrong in (({fast: 4000, slow: 1000}, "differs"), ({fast: 1000, slow: 4000}, "is the reference's")):
        for record in records(folder):
            content = json.loads(record.read_text())
            about = {"unit": "tokens/s", "source": "a table", "hardware": "4 x H100", "tolerance": 0.1}
            value = published[content["plan"]["method"]]
            content["study"]["reference"] = {"tokens_per_second": {"value": value, **about}}
            record.write_text(json.dumps(content))
        found = make_report(collect([folder / "logs"])).references
        assert {one.verdict for one in found.held if one.measured and one.ratio is None} == {
            "the run does not name its processor: order and ratios between methods only"
        }
        first, second = sorted(published, key=lambda method: -published[method])
        [said] = [one for one in found.orders if "study (micro_batch_size=2)" in one]
        assert f"the order {fast} > {slow} " in said and wrong not in said
        assert f"{second}/{first} {rates[second] / rates[first]:.3g} (reference 0.25)" in said
