"""Means and their intervals, and which runs are repeats of each other, worked out by hand."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from synthetic import Made, write_run

from hpc_llm.errors import PassedOverWarning
from hpc_llm.parsing import Row, write_rows
from hpc_llm.records.files import write_json
from hpc_llm.reporting.baseline import changes, key_of, read_baseline
from hpc_llm.reporting.collect import RanHere, ReportedRun, collect
from hpc_llm.reporting.comparison import best, compare, run_table
from hpc_llm.reporting.metric import MFU, PEAK_ALLOCATED, TOKENS
from hpc_llm.reporting.report import make_report
from hpc_llm.reporting.scaling import scaling
from hpc_llm.reporting.sections import sections
from hpc_llm.reporting.statistics import estimate, student_t95
from hpc_llm.reporting.together import beside_others

ONE = {
    "format": "hpc-llm", "cluster": "delta", "gpu": "A100", "method": "z3", "task": "pretrain", "model": "m", "nodes": 1,
    "world_size": 4, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "sequence_length": 350,
    "precision": "bf16", "warmup_steps": 5, "measured_steps": 35, "outcome": "COMPLETED",
}  # fmt: skip


def run(plan: dict[str, Any] | None = None, **columns: Any) -> ReportedRun:
    return ReportedRun(row=Row(**{**ONE, **columns}), plan=plan or {})


def compared(*runs: ReportedRun) -> Any:
    return compare(run_table(runs))


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (9, 2.2622),
        (30, 2.0423),
        (31, 2.0395),
        (40, 2.0211),
        (120, 1.9799),
        (100_000, 1.9600),
    ],
)
def test_student_t_agrees_with_printed_tables(degrees: int, quantile: float) -> None:
    assert student_t95(degrees) == pytest.approx(quantile, abs=6e-5)


def test_interval_of_three_values() -> None:
    # Mean 104, deviations -4, 0, 4: variance 32 / 2 = 16, so 4.30265 * 4 / sqrt(3) = 9.9366.
    found = estimate([100.0, 104.0, 108.0])
    assert (found.mean, found.n) == (104.0, 3)
    assert found.half_width == pytest.approx(9.9366, abs=1e-4)


def test_missing_values_are_left_out_and_one_value_has_no_interval() -> None:
    assert estimate([None, 7.0, math.nan]) == estimate([7.0])
    assert (estimate([7.0]).mean, estimate([7.0]).half_width) == (7.0, None)
    assert estimate([]).mean is None


def test_repeats_are_one_row_with_the_mean_and_the_largest_peak() -> None:
    rates, peaks = (100.0, 104.0, 108.0), (5, 9, 7)
    table = compared(
        *(run(tokens_per_second=r, peak_allocated_bytes=p) for r, p in zip(rates, peaks, strict=True)),
    )
    assert len(table) == 1
    row = table.first
    assert (row["runs"], row["tokens_per_second"], row["peak_allocated_bytes"]) == (3, 104.0, 9)
    assert row["tokens_per_second_ci95"] == pytest.approx(9.9366, abs=1e-4)
    assert row["members"] == (0, 1, 2)


@pytest.mark.parametrize(
    ("column", "value"),
    [("cluster", "mi210"), ("gpu", "H100"), ("method", "z2"), ("model", "n"), ("world_size", 8), ("nodes", 2),
     ("micro_batch_size", 2), ("sequence_length", 512), ("precision", "fp16"), ("gradient_accumulation_steps", 2)],
)  # fmt: skip
def test_runs_that_differ_in_their_setting_are_no_repeats(column: str, value: Any) -> None:
    assert len(compared(run(tokens_per_second=1.0), run(tokens_per_second=2.0, **{column: value}))) == 2


@pytest.mark.parametrize("column", ["model", "method", "world_size", "micro_batch_size", "sequence_length"])
def test_runs_of_which_too_little_is_known_are_no_repeats(column: str) -> None:
    assert len(compared(run(**{column: None}), run(**{column: None}))) == 2


def test_runs_with_neither_cluster_nor_gpu_are_no_repeats() -> None:
    assert len(compared(run(cluster=None), run(cluster=None))) == 1
    assert len(compared(run(cluster=None, gpu=None), run(cluster=None, gpu=None))) == 2


def test_other_settings_of_the_same_method_keep_a_row_and_a_label() -> None:
    usual = {"deepspeed": {"zero_optimization": {"sub_group_size": 1e9}, "train_batch_size": 4}}
    other = {"deepspeed": {"zero_optimization": {"sub_group_size": 4e9}, "train_batch_size": 4}}
    table = compared(run(usual), run(usual), run(other))
    assert table.column("configuration") == ["", "sub_group_size=4e9"]
    assert table.column("runs") == [2, 1]


def test_settings_without_a_majority_are_all_named() -> None:
    table = compared(run({"recompute": True}), run({"recompute": False}))
    assert table.column("configuration") == ["recompute=False", "recompute=True"]


def test_runs_that_recompute_other_shares_of_the_layers_never_share_a_row() -> None:
    shares = (True, True, 0.25, 0.5, False)
    table = compared(*(run({"recompute": share}) for share in shares))
    assert table.column("configuration") == ["", "recompute=0.25", "recompute=0.5", "recompute=False"]
    assert table.column("runs") == [2, 1, 1, 1]


def test_runs_in_fp8_never_share_a_row_with_others_and_plans_of_before_had_none() -> None:
    table = compared(*(run({"recompute": True, **more}) for more in ({"fp8": False}, {}, {"fp8": True})))
    assert table.column("configuration") == ["", "fp8=True"]
    assert table.column("runs") == [2, 1]


def test_a_label_names_what_differs_from_most_and_the_cause_before_what_follows() -> None:
    usual = {"steps": 10, "optimizer": {"lr_ramp_steps": 1}, "env_file": None, "a": 1, "b": 1, "c": 1}
    odd = [
        {"optimizer": {"lr_ramp_steps": 30}, "steps": 300},
        {"a": 2},
        {"b": 2},
        {"c": 2, "env_file": "x"},
        {"job": {"sbatch_extra": {"qos": "high"}}},
        {"job": {"sbatch_extra": {"gres": "gpu:2"}}},
    ]
    table = compared(run(usual), run(usual), *(run(usual | one) for one in odd))
    assert sorted(table.column("configuration")) == sorted(
        ["", "steps=300, lr_ramp_steps=30", "a=2", "b=2", "c=2, env_file=x", "qos=high", "gres=gpu:2"]
    )


PLAN = {"steps": 12, "seed": 42, "optimizer": {"lr": 2e-5}, "job_name": "z3", "data": {"seed": 1, "source": "random"}}


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"steps": 300}, "steps=300"),
        ({"optimizer": {"lr": 1e-4}}, "lr=0.0001"),
        ({"data": {"seed": 1, "source": "wiki"}}, "source=wiki"),
        ({"partition": "gp4d"}, "partition=gp4d"),
    ],
)
def test_runs_whose_plans_differ_are_no_repeats_and_say_in_what(change: dict[str, Any], label: str) -> None:
    table = compared(run(PLAN, tokens_per_second=450.0), run(PLAN | change, tokens_per_second=90.0))
    assert table.column("runs") == [1, 1]
    assert sorted(table.column("tokens_per_second")) == [90.0, 450.0]
    assert any(label in text for text in table.column("configuration"))
    assert len(set(table.column("configuration"))) == 2


def test_a_run_in_which_the_fallback_trained_is_no_repeat_of_one_in_which_the_plan_s_engine_did() -> None:
    plan = {"engine": "fsdp2", "engine_fallback": "deepspeed"}
    as_planned, fallen_back, unknown = run(plan), run(plan), run(plan)
    as_planned.result, fallen_back.result = {"engine": "fsdp2"}, {"engine": "deepspeed"}
    assert [row.settings["engine"] for row in (as_planned, fallen_back, unknown)] == ["fsdp2", "deepspeed", "fsdp2"]


def test_runs_whose_plans_differ_in_the_seed_and_the_name_are_repeats() -> None:
    other = PLAN | {"seed": 7, "job_name": "again", "data": {"seed": 2, "source": "random"}}
    table = compared(run(PLAN, tokens_per_second=100.0), run(other, tokens_per_second=104.0))
    assert (table.column("runs"), table.column("tokens_per_second")) == ([2], [102.0])


@pytest.mark.parametrize(
    "change",
    [
        {"sbatch": {"begin": "now+1hour"}},
        {"sbatch": {"comment": "second try", "mail-user": "me", "mail-type": "END"}},
        {"sbatch": {"dependency": "afterany:7", "kill-on-invalid-dep": "yes"}},
        {"sbatch": {"nice": "100", "hold": "", "deadline": "tomorrow"}},
        {"sbatch": {"priority": "5", "requeue": ""}},
        {"sbatch": {}},
        {"time_s": 7200, "account": "other"},
    ],
)
def test_what_says_only_when_a_job_starts_tells_no_runs_apart(change: dict[str, Any]) -> None:
    usual = PLAN | {"time_s": 3600, "account": "mine"}
    table = compared(run(usual, tokens_per_second=100.0), run(usual | change, tokens_per_second=104.0))
    assert (table.column("runs"), table.column("tokens_per_second")) == ([2], [102.0])
    assert table.column("configuration") == [""]


@pytest.mark.parametrize(
    "option", ["exclusive", "constraint", "nodelist", "reservation", "qos", "mem", "cpu-freq", "a-site-s-own"]
)
def test_an_option_that_may_change_where_or_beside_what_a_job_runs_tells_runs_apart(option: str) -> None:
    when = {"sbatch": {"begin": "now"}}
    table = compared(run(PLAN | when), run(PLAN | {"sbatch": {**when["sbatch"], option: "x"}}))
    assert table.column("runs") == [1, 1]
    labels = "".join(table.column("configuration"))
    assert option in labels and "begin" not in labels


@pytest.mark.parametrize(
    "said", [{"measured_steps": 295}, {"warmup_steps": 0}, {"format": "megatron"}, {"num_parameters": 7}]
)
def test_logs_without_a_plan_are_repeats_only_where_all_they_say_agrees(said: dict[str, Any]) -> None:
    assert compared(run(), run()).column("runs") == [2]
    assert compared(run(), run(**said)).column("runs") == [1, 1]


def test_training_and_inference_are_never_compared() -> None:
    train = [run(kind="train", task=None, method=m, tokens_per_second=r) for m, r in (("z2", 100.0), ("z3", 90.0))]
    infer = [run(kind="infer", task=None, method="z2", tokens_per_second=9e5)]
    table = compared(*train, *infer)
    assert table.column("runs") == [1, 1, 1]
    assert changes(table, compared(train[0]), 0.05) == [
        one for one in changes(table, compared(train[0]), 0.05) if table[one.row]["kind"] == "train"
    ]
    parts = sections(table)
    assert [set(part.rows.column("kind")) for part in parts] == [{"train"}, {"infer"}]
    assert "inference" in parts[1].title
    assert [table[i]["tokens_per_second"] for i in best(parts[0].rows)[TOKENS.name]] == [100.0]
    lonely = sections(compared(run(kind="train", model=None), run(kind="infer", model=None)))
    assert [(set(part.rows.column("kind")), part.is_mixed) for part in lonely] == [({"infer"}, True), ({"train"}, True)]
    apart = compared(run(kind="train", tokens_per_second=1.0), run(kind="infer", world_size=8, tokens_per_second=9.0))
    assert len(scaling(apart)) == 0


def test_batch_sizes_are_no_settings_of_their_own() -> None:
    plans = [{"deepspeed": {"train_batch_size": n}} for n in (4, 8)]
    table = compared(run(plans[0]), run(plans[1], world_size=8))
    assert table.column("configuration") == ["", ""]


def test_what_did_not_complete_is_a_row_and_in_no_mean() -> None:
    table = compared(
        run(tokens_per_second=100.0),
        run(tokens_per_second=300.0, outcome="TIMEOUT", outcome_reason="stopped at the time limit"),
        run(outcome="OOM_DEVICE", outcome_reason="2 GiB asked"),
        run(outcome="OOM_DEVICE", outcome_reason="2 GiB asked"),
    )
    by_outcome = {row["outcome"]: row for row in table}
    assert by_outcome["COMPLETED"]["tokens_per_second"] == 100.0
    assert by_outcome["TIMEOUT"]["tokens_per_second"] == 300.0
    assert (by_outcome["OOM_DEVICE"]["runs"], by_outcome["OOM_DEVICE"]["outcome_reason"]) == (2, "2 GiB asked")
    assert by_outcome["OOM_DEVICE"]["tokens_per_second"] is None


def test_two_timeouts_are_not_averaged() -> None:
    table = compared(*(run(tokens_per_second=r, outcome="TIMEOUT") for r in (100.0, 300.0)))
    assert sorted(table.column("tokens_per_second")) == [100.0, 300.0]


def test_invalid_runs_and_unread_inputs_have_no_row() -> None:
    assert len(compared(run(), run(outcome="INVALID", tokens_per_second=9e9), run(format="unknown"))) == 1


def test_figures_that_are_no_numbers_are_missing() -> None:
    row = compared(run(tokens_per_second="fast", mfu=math.inf)).first
    assert row["tokens_per_second"] is None and row["mfu"] is None


def test_best_is_the_highest_rate_and_the_lowest_peak_of_what_completed() -> None:
    table = compared(
        run(method="a", tokens_per_second=10.0, peak_allocated_bytes=5),
        run(method="b", tokens_per_second=30.0, peak_allocated_bytes=9),
        run(method="c", tokens_per_second=90.0, peak_allocated_bytes=1, outcome="TIMEOUT"),
        run(method="d", tokens_per_second=30.0),
    )
    marks = best(table)
    assert marks[TOKENS.name] == {1, 3}, "equal values are both the best"
    assert marks[PEAK_ALLOCATED.name] == {0}
    assert MFU.name not in marks, "nobody knows it"


def test_runs_that_shared_their_machine_are_never_the_best() -> None:
    def of(method: str, rate: float, began: float, host: str = "me", search: str | None = None) -> ReportedRun:
        one = run(method=method, tokens_per_second=rate, run_id=method)
        one.ran_here, one.of_search = RanHere(host=host, began=began, ended=began + 10), search
        return one

    runs = [of("a", 90.0, 0), of("b", 80.0, 5), of("c", 30.0, 20), of("d", 20.0, 40), of("e", 10.0, 5, host="other")]
    assert beside_others(runs) == [True, True, False, False, False]
    assert best(compared(*runs))[TOKENS.name] == {2}
    notes = make_report(runs).notes
    assert notes[0].startswith("2 runs of this report ran at the same time") and notes[0].endswith(
        "no row that holds one is the best. a, b."
    )
    turns = [of("a", 1.0, 0, search="s"), of("b", 1.0, 5, search="s")]
    assert beside_others(turns) == [False, False] and "at the same time" not in make_report(turns).notes[0]


def test_figures_that_look_equal_are_equally_good() -> None:
    table = compared(*(run(method=m, tokens_per_second=r) for m, r in (("a", 8237.3), ("b", 8237.4), ("c", 8236.0))))
    assert best(table)[TOKENS.name] == {0, 1}


def test_one_row_is_not_the_best_of_anything() -> None:
    assert best(compared(run(tokens_per_second=1.0))) == {}


@pytest.mark.parametrize("loss", ["loss_last", "eval_loss", "perplexity"])
def test_losses_compare_only_after_equally_many_steps(loss: str) -> None:
    same = compared(run(method="a", **{loss: 2.0}), run(method="b", **{loss: 1.0}))
    assert best(same)[loss] == {1}
    other = compared(run(method="a", **{loss: 2.0}), run(method="b", **{loss: 1.0}, measured_steps=95))
    assert loss not in best(other)


def test_figures_are_shown_in_the_units_of_their_header() -> None:
    assert PEAK_ALLOCATED.header == "Peak allocated (GiB)"
    assert PEAK_ALLOCATED.text(29_527_900_160) == "27.50"
    assert MFU.text(0.4053) == "40.5"
    assert TOKENS.text_with_interval(8237.3, 64.32) == "8,237 ± 64"
    assert TOKENS.text_with_interval(42.86, 1.234) == "42.86 ± 1.23"
    assert TOKENS.text_with_interval(42.5, 380.0, (40.0, 45.0)) == "42.50 (40.00 to 45.00)"
    assert TOKENS.text(None) == ""
    assert TOKENS.text(0.0) == "0"


def test_the_copy_of_a_run_is_no_repeat(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for name, uuid in (("a", "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b"), ("b", "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6c")):
        folder = write_run(logs, Made(run_id=name, cluster="delta", method="z3"))
        write_json(
            folder / "job.json", {"schema": 2, "scheduler": "local", "uuid": uuid, "run_id": name, "job_id": "1"}
        )
    shutil.copytree(logs / "a", tmp_path / "kept" / "a")
    shutil.copytree(logs / "b", logs / "b-copy")
    with pytest.warns(PassedOverWarning, match="one measurement counts once"):
        runs = collect([logs, tmp_path / "kept"])
    assert sorted(run.row.run_id or "" for run in runs) == ["a", "b"]


def training(rate: float, method: str = "z3", **columns: Any) -> ReportedRun:
    plan = {"method": method, "optimizer": {"lr": rate}, "steps": 40}
    return run(plan, method=method, kind="train", **columns)


def test_a_try_of_a_search_stands_in_no_table_with_trainings() -> None:
    """It has a few steps of its own, whatever its shape."""
    tries = [training(1e-4, "ddp", world_size=ranks, tokens_per_second=900.0) for ranks in (4, 8)]
    for one in tries:
        one.of_search = "logs/search"
    table = compared(training(1e-4, "ddp", tokens_per_second=400.0), training(1e-4, tokens_per_second=500.0), *tries)
    found = {section.title: section.rows.column("tokens_per_second") for section in sections(table)}
    shape = "m · micro batch 1 · sequence length 350"
    assert found == {shape: [400.0, 500.0], f"{shape} · search for the micro batch": [900.0, 900.0]}
    assert all(row["method"] == "ddp" and row["speed_up"] == 1.0 for row in scaling(table))  # of the tries alone
    assert sorted(key_of(row)[7] or "" for row in table) == ["", ""] + ["search for the micro batch"] * 2


def test_the_tries_in_a_table_of_parse_are_those_of_a_search(tmp_path: Path) -> None:
    columns = {
        "kind": "train",
        "run_id": "search",
        "method": "ddp",
        "peak_allocated_bytes": 1,
        "tokens_per_second": 9.0,
    }
    rows = [Row(**{**ONE, **columns, "micro_batch_size": number, "try_": number}) for number in (1, 2)]
    rows.append(Row(**{**ONE, **columns, "run_id": "alone", "try_": 2}))
    with (tmp_path / "rows.csv").open("w") as file:
        write_rows(rows, "csv", file)
    then = read_baseline(tmp_path / "rows.csv")
    assert sorted(str(row["search"]) for row in then) == ["None"] + ["search for the micro batch"] * 2


@pytest.mark.parametrize(
    ("others", "labels"),
    [
        ([], {"z2o": "", "z3": "", "ddp": "lr=0.01"}),
        ([training(0.01, sequence_length=64)], {"z2o": "lr=0.003", "z3": "lr=0.003", "ddp": "lr=0.01"}),
    ],
)
def test_a_learning_rate_is_told_of_all_rows_of_a_table_or_of_the_odd_ones(
    others: list[ReportedRun], labels: dict[str, str]
) -> None:
    """Told of one alone of two that have it, it would say that the other has none such."""
    table = compared(training(0.003), training(0.003, "z2o"), training(0.01, "ddp"), *others)
    told = {row["method"]: row["configuration"] for row in table if row["sequence_length"] == 350}
    assert told == labels
    assert [row["configuration"] for row in table if row["sequence_length"] == 64] == ["lr=0.01"] * len(others)


@pytest.mark.parametrize(
    ("steps", "labels"),
    [
        ({"z3": 20, "ddp": 30, "z2": 30}, {"z3": "steps=20", "ddp": "", "z2": ""}),
        ({"z3": 20, "ddp": 30}, {"z3": "steps=20", "ddp": "steps=30"}),
        ({"z3": 30, "ddp": 30}, {"z3": "", "ddp": ""}),
    ],
)
def test_steps_are_told_of_rows_that_have_not_those_of_most_in_their_table(
    steps: dict[str, int], labels: dict[str, str], tmp_path: Path
) -> None:
    """More steps come to a lesser loss, whatever the method."""
    for method, number in steps.items():
        write_run(tmp_path, Made(run_id=method, cluster="delta", method=method, steps=number))
        write_run(
            tmp_path, Made(run_id=f"{method}-long", cluster="delta", method=method, steps=50, sequence_length=700)
        )
    table = compare(run_table(collect([tmp_path])))
    assert {row["method"]: row["configuration"] for row in table if row["sequence_length"] == 350} == labels
    assert {row["configuration"] for row in table if row["sequence_length"] == 700} == {""}


def test_of_two_repeats_both_values_are_shown_and_of_three_an_interval() -> None:
    for rates, shown in (
        ((100.0, 104.0), "102.0 (100.0 to 104.0)"),
        ((100.0, 104.0, 108.0), "104.0 ± 9.9"),
        ((100.0,), "100.0"),
    ):
        row = compared(*(run(tokens_per_second=rate) for rate in rates)).first
        width, ends = row["tokens_per_second_ci95"], row.get(TOKENS.ends)
        assert TOKENS.text_with_interval(row["tokens_per_second"], width, ends) == shown
