"""Writing rows."""

from __future__ import annotations

import csv
import io
import json

import pytest

from hpc_llm.errors import RequestError
from hpc_llm.parsing import COLUMNS, STEP_COLUMNS, Row, Step, write_rows

ROWS = [Row(run_id="a", tokens_per_second=1.5, outcome_reason="x, y"), Row(run_id="b|c", loss_last=float("nan"))]


def written(rows, output_format, **kwargs) -> str:
    file = io.StringIO()
    write_rows(rows, output_format, file, **kwargs)
    return file.getvalue()


def test_csv_has_all_columns_and_empty_cells_for_what_is_missing():
    records = list(csv.DictReader(io.StringIO(written(ROWS, "csv"))))
    assert tuple(records[0]) == COLUMNS
    assert records[0]["tokens_per_second"] == "1.5"
    assert records[0]["outcome_reason"] == "x, y"
    assert records[1]["loss_last"] == "" == records[1]["mfu"]


def test_json_is_one_list_with_null():
    records = json.loads(written(ROWS, "json"))
    assert [r["run_id"] for r in records] == ["a", "b|c"]
    assert records[1]["loss_last"] is None
    assert tuple(records[0]) == COLUMNS


def test_jsonl_is_one_object_a_line():
    assert [json.loads(line)["run_id"] for line in written(ROWS, "jsonl").splitlines()] == ["a", "b|c"]


def test_tables_show_the_columns_in_use():
    assert written(ROWS, "table").splitlines()[0].split() == [
        "run_id",
        "tokens_per_second",
        "loss_last",
        "outcome_reason",
    ]
    assert "b\\|c" in written(ROWS, "markdown")


def test_steps_have_their_own_columns():
    assert written([Step(step=1)], "csv").splitlines()[0] == ",".join(STEP_COLUMNS)


@pytest.mark.parametrize(("output_format", "empty"), [("json", []), ("jsonl", None), ("csv", None)])
def test_nothing_to_write(output_format, empty):
    text = written([], output_format)
    assert json.loads(text) == empty if output_format == "json" else text.strip() in ("", ",".join(COLUMNS))


def test_unknown_output_format_lists_the_valid_ones():
    with pytest.raises(RequestError, match=r"did you mean 'json'.*csv, json, jsonl, markdown, table"):
        written(ROWS, "jsn")


def test_columns_are_the_documented_ones():
    assert COLUMNS[:3] == ("run_id", "source", "format")
    added = COLUMNS[COLUMNS.index("tensor_parallel") + 1 :]
    assert added == (
        "profile", "total_queries", "total_time_s", "prompt_tokens", "generated_tokens", "train_samples", "epochs", "learning_rate",
        "recompute",
    )  # fmt: skip
    before = COLUMNS[: -len(added)]
    assert before[-23:-16] == (
        "kind",
        "cause",
        "cause_confidence",
        "try",
        "trained_tokens",
        "epoch_time_s",
        "best_step",
    )
    assert before[-16:-12] == ("study", "study_run", "expect", "smoke")
    assert before[-12:-7] == (
        "prompt_tokens_per_second", "generated_tokens_per_second", "queries_per_second", "time_to_first_token_s_p50",
        "time_per_output_token_s_mean",
    )  # fmt: skip
    assert before[-7:-3] == ("latency_s_mean", "latency_s_p50", "latency_s_p90", "latency_s_p99")
    assert before[-3:-1] == ("predicted_step_time_s", "predicted_peak_allocated_bytes")
    assert len(COLUMNS) == 72
    assert len(STEP_COLUMNS) == 12
