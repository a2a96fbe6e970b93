"""`report --fail-on-regression` is no verdict where a watched figure, or a row, could not be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import Made, write_run
from test_repeats import compared, run

from hpc_llm.cli import run as command
from hpc_llm.reporting import collect, make_report, read_baseline
from hpc_llm.reporting.baseline import changes
from hpc_llm.reporting.files import write_csv
from hpc_llm.reporting.report import results_table

ONE = Made(run_id="a", cluster="delta", method="z3")
RATE, PEAK = "tokens_per_second", "peak_allocated_bytes"
Check = Callable[..., int]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The exit code of the comparison of the runs in `new` with those in `old`; nothing is drawn, which takes long."""
    monkeypatch.setattr("hpc_llm.reporting.write_report", lambda *_: [])

    def of(*more: str, baseline: str | None = None) -> int:
        old = baseline or str(tmp_path / "old")
        words = [str(tmp_path / "new"), "-o", str(tmp_path / "out"), "--baseline", old, "--fail-on-regression", *more]
        return command(["report", *words])

    return of


def spoil(folder: Path, name: str, value: Any, run_id: str = "a") -> None:
    path = folder / run_id / "result.json"
    result = json.loads(path.read_text())
    if value is None:
        result.pop(name)
    else:
        result[name] = value
    path.write_text(json.dumps(result))


@pytest.mark.parametrize("side", ["new", "old"])
@pytest.mark.parametrize("name", [RATE, PEAK])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "fast", -5, [1], 0, True])
def test_a_watched_figure_that_is_gone_on_one_side_is_no_comparison(
    side: str, name: str, value: Any, tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
    assert check() == 0
    spoil(tmp_path / side, name, value)
    capsys.readouterr()
    assert check() == 2
    told = capsys.readouterr().err
    where = "now" if side == "new" else "in the baseline"
    figure = "tokens/s" if name == RATE else "peak allocated"
    assert f"not compared: llama2-7b, z3 on delta, 8 × V100-SXM2-32GB: {figure} is unknown {where}\n" in told


def test_what_got_worse_is_told_before_what_could_not_be_compared(
    tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "old", ONE)
    write_run(tmp_path / "new", replace(ONE, rate_per_gpu=100.0))
    spoil(tmp_path / "new", PEAK, None)
    assert check() == 3
    assert "peak allocated is unknown now" in capsys.readouterr().err


def test_a_comparison_of_nothing_counts_no_row(
    tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
        spoil(tmp_path / folder, RATE, None)
        spoil(tmp_path / folder, PEAK, None)
    assert check() == 2
    told = capsys.readouterr().err
    assert ": 0, of them worse: 0" in told and "tokens/s is unknown in both" in told and "nothing was compared" in told


def test_memory_that_neither_side_measures_is_not_watched(tmp_path: Path, check: Check) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, replace(ONE, peak_bytes=None))
    assert check() == 0


@pytest.mark.parametrize("name", [RATE, PEAK])
@pytest.mark.parametrize("side", ["old", "new"])
def test_of_repeats_each_has_the_figure(
    side: str, name: str, tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("old", "new"):
        for number in range(3):
            write_run(tmp_path / folder, replace(ONE, run_id=f"r{number}", seed=number))
    assert check() == 0
    spoil(tmp_path / side, name, float("nan"), "r1")
    assert check() == 2
    assert "of some of the runs" in capsys.readouterr().err


def test_a_row_that_vanished_is_named(tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
    write_run(tmp_path / "old", replace(ONE, run_id="b", method="z2"))
    assert check() == 2
    assert "not compared: llama2-7b, z2 on delta, 8 × V100-SXM2-32GB: in the baseline alone" in capsys.readouterr().err
    write_run(tmp_path / "new", replace(ONE, run_id="b", method="z2", outcome="OOM_DEVICE", reason="memory"))
    assert check() == 3
    write_run(tmp_path / "new", replace(ONE, run_id="b", method="z2", outcome="INVALID", reason="too short"))
    assert check() == 3


def test_rows_that_failed_before_and_new_ones_need_no_counterpart(tmp_path: Path, check: Check) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
    write_run(tmp_path / "old", replace(ONE, run_id="b", method="z2", outcome="OOM_DEVICE", reason="memory"))
    write_run(tmp_path / "new", replace(ONE, run_id="c", method="z1"))
    assert check() == 0


def test_settings_of_one_method_vanish_and_fail_one_by_one() -> None:
    """Where another GPU's row is there, and where the same one fails now."""
    then = [run(gpu="A100", tokens_per_second=100.0), run(gpu="A100-80", tokens_per_second=130.0)]
    failed = [then[0], run(gpu="A100-80", outcome="OOM_DEVICE")]
    assert [one.regressions for one in changes(compared(*failed), compared(*then), 0.05) if one.is_regression] == [
        ("OOM_DEVICE, completed before",)
    ]
    gone = make_report(then[:1], (Path("old"), compared(*then)))
    assert gone.baseline is not None and [line.rpartition(": ")[2] for line in gone.baseline.not_compared] == [
        "in the baseline alone"
    ]


@pytest.mark.parametrize("cell", ["", "nan", "-5", "fast", "inf", "0"])
@pytest.mark.parametrize("kind", ["parse", "report"])
def test_a_baseline_of_a_table_is_held_to_the_same(
    cell: str, kind: str, tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "new", ONE)
    table = tmp_path / "then.csv"
    if kind == "parse":
        assert command(["parse", str(tmp_path / "new"), "-o", str(table)]) == 0
    else:
        write_csv(results_table(make_report(collect([tmp_path / "new"]))), table)
    assert check(baseline=str(table)) == 0
    header, line = (text.split(",") for text in table.read_text().splitlines())
    line[header.index(RATE)] = cell
    table.write_text(",".join(header) + "\n" + ",".join(line) + "\n")
    capsys.readouterr()
    assert check(baseline=str(table)) == 2
    assert "tokens/s is unknown in the baseline" in capsys.readouterr().err


@pytest.mark.parametrize("cell", ['"12,074.6"', "#DIV/0!", "fast", "12 074"])
def test_a_cell_that_is_no_number_is_told_and_its_row_is_not_called_missing(
    cell: str, tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "new", replace(ONE, peak_bytes=None))
    table = tmp_path / "then.csv"
    assert command(["parse", str(tmp_path / "new"), "-o", str(table)]) == 0
    header, line = (text.split(",") for text in table.read_text().splitlines())
    line[header.index(RATE)] = cell
    table.write_text(",".join(header) + "\n" + ",".join(line) + "\n")
    capsys.readouterr()
    assert check(baseline=str(table)) == 2
    told = capsys.readouterr().err
    shown = cell.strip('"')
    assert f"the baseline {table}: {RATE} of row 1 is '{shown}', which is no number as it is read" in told
    assert f"1 row found in {table}, and no figure that is watched is known on both sides" in told
    assert "has its counterpart" not in told


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("then.csv", lambda text: text.replace(",", ";").encode(), "its columns are separated by ';', and commas are read"),
        ("then.csv", lambda text: text.replace(",", "\t").encode(), "its columns are separated by tabs, and commas are read"),
        ("then.csv", lambda text: text.replace(",", ";").replace(".", ",").encode(), "its columns are separated by ';'"),
        ("then.csv", lambda text: text.encode("utf-16"), "is not written in UTF-8, it looks like UTF-16. Write it anew: iconv -f"),
        ("then.xlsx", lambda text: b"PK\x03\x04", "is no CSV: save the sheet as CSV, with commas."),
        ("then.tsv", lambda text: text.replace(",", "\t").encode(), "is no CSV: write it with commas in place of tabs"),
    ],
)  # fmt: skip
def test_what_a_spreadsheet_writes_otherwise_is_told(
    name: str,
    change: Callable[[str], bytes],
    said: str,
    tmp_path: Path,
    check: Check,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_run(tmp_path / "new", ONE)
    assert command(["parse", str(tmp_path / "new"), "-o", str(tmp_path / "whole.csv")]) == 0
    table = tmp_path / name
    table.write_bytes(change((tmp_path / "whole.csv").read_text()))
    capsys.readouterr()
    assert check(baseline=str(table)) == 2
    assert said in capsys.readouterr().err


def test_rows_that_say_too_little_are_named(tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
        write_run(tmp_path / folder, replace(ONE, run_id="b", method="z2"))
    plan = tmp_path / "new" / "b" / "experiment.json"
    plan.write_text(plan.read_text().replace('"llama2-7b"', "null"))
    assert check() == 2
    told = capsys.readouterr().err
    assert (
        "too little is known of its settings" in told
        and "z2 on delta, 8 × V100-SXM2-32GB: in the baseline alone" in told
    )


def test_a_whole_study_is_compared_with_itself(logs: Path, tmp_path: Path) -> None:
    write_csv(results_table(make_report(collect([logs]))), tmp_path / "then.csv")
    for then in (logs, tmp_path / "then.csv"):
        found = make_report(collect([logs]), (then, read_baseline(then))).baseline
        assert found is not None and found.not_compared == []


def test_json_and_the_page_say_what_was_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
    spoil(tmp_path / "new", PEAK, None)
    words = [str(tmp_path / "new"), "-o", str(tmp_path / "out"), "--baseline", str(tmp_path / "old"), "--json"]
    assert command(["report", *words]) == 0 and command(["report", *words, "--fail-on-regression"]) == 2
    assert json.loads("{" + capsys.readouterr().out.rpartition("\n{")[2])["not_compared"] == [
        "llama2-7b, z3 on delta, 8 × V100-SXM2-32GB: peak allocated is unknown now"
    ]
    assert "not compared: peak allocated is unknown now" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize("tolerance", ["nan", "inf"])
def test_a_tolerance_that_is_no_share_is_refused(tolerance: str, tmp_path: Path, check: Check) -> None:
    """By the one all got worse, by the other nothing ever does."""
    for folder in ("old", "new"):
        write_run(tmp_path / folder, ONE)
    assert check("--tolerance", tolerance) == 2


LEARNING_RATES = {"one": 1e-3, "two": 2e-3, "three": 3e-3}


def of_other_settings(folder: Path, share: float = 1.0) -> None:
    """Three runs that differ in their learning rate, which the CSV of `parse` does not say, and in nothing else of their row."""
    for number, (name, lr) in enumerate(LEARNING_RATES.items(), 1):
        path = write_run(folder, replace(ONE, run_id=name, rate_per_gpu=100.0 * number * share)) / "experiment.json"
        record = json.loads(path.read_text())
        record["plan"].setdefault("optimizer", {})["lr"] = lr
        path.write_text(json.dumps(record))


def test_runs_of_other_settings_are_held_against_themselves(
    tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is faster or slower than their mean; what a row of the CSV mixes is told as no measure."""
    for folder in ("new", "old"):
        of_other_settings(tmp_path / folder)
    assert check() == 0
    table = tmp_path / "then.csv"
    assert command(["parse", str(tmp_path / "new"), "-o", str(table)]) == 0
    rows = table.read_text().splitlines()
    steps = rows[0].split(",").index("measured_steps")
    capsys.readouterr()
    assert check(baseline=str(table)) == 2
    told = capsys.readouterr().err
    assert "of them worse: 0" in told and told.count("differ only in settings") == 3 and "baseline alone" not in told
    # Where their steps tell them apart, each run has a row of its own there.
    told_apart = [rows[0]]
    for number, row in enumerate(rows[1:]):
        cells = row.split(",")
        cells[steps] = str(int(cells[steps]) + number)
        told_apart.append(",".join(cells))
    table.write_text("\n".join(told_apart) + "\n")
    assert check(baseline=str(table)) == 0
    of_other_settings(tmp_path / "new", 0.5)
    capsys.readouterr()
    assert check(baseline=str(table)) == 3
    assert "worse: z3 [lr=0.002] on delta" in capsys.readouterr().err


def test_another_run_is_not_held_against_the_mean_of_several_settings(tmp_path: Path, check: Check) -> None:
    of_other_settings(tmp_path / "old")
    write_run(tmp_path / "new", replace(ONE, run_id="four", rate_per_gpu=50.0))
    assert check() == 2
