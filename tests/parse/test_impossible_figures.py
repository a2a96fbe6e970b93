"""What no machine can have measured is left empty, whoever printed it, and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_llm.parsing.read import read_inputs

TRAINER = "{'loss': 2.5, 'learning_rate': 1e-5, 'epoch': 0.1}\n{'loss': 2.4, 'learning_rate': 1e-5, 'epoch': 0.2}\n"
ENDED = "{'train_runtime': %s, 'train_samples_per_second': %s, 'train_steps_per_second': 1.2, 'train_loss': 2.0, 'epoch': 1.0}\n"
VLLM = "============ Serving Benchmark Result ============\nSuccessful requests:   10\nBenchmark duration (s):   %s\n"


@pytest.mark.parametrize(
    ("name", "text", "empty"),
    [
        ("a.log", TRAINER + ENDED % (-100.0, -12.5), ["elapsed_s -100.0"]),  # a clock that was set back
        ("a.log", TRAINER + ENDED % (100.0, 12.5), []),
        ("b.log", VLLM % "-5.00", ["elapsed_s -5.0"]),
        (
            "all_results.json",
            json.dumps({"train_runtime": -1.0, "train_loss": 2.0, "perplexity": -4.0, "epoch": 1.0}),
            ["elapsed_s -1.0", "perplexity -4.0"],
        ),
    ],
)
def test_a_figure_that_cannot_be_is_empty_and_told(tmp_path: Path, name: str, text: str, empty: list[str]) -> None:
    (tmp_path / name).write_text(text)
    [reading] = read_inputs([tmp_path / name])
    [row] = reading.rows
    told = [one for one in reading.left_empty if one.startswith("no possible figure: ")]
    assert sorted(", ".join(told).removeprefix("no possible figure: ").split(", ") if told else []) == empty
    for figure in ("elapsed_s", "perplexity"):
        value = getattr(row, figure)
        assert value is None or value > 0
    assert (row.elapsed_s is None) == bool(empty)
