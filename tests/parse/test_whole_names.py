"""A field of a line is known by its whole name: the same word at the end of a longer one names something else."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest
from test_several_runs import LOGS

from hpc_llm.parsing import Reading, Row, Step

TOLD = "7654321"
"""A number that no log has, in any unit."""
UNITS = (1, 1e-3, 1e-2, 1e3, 1e6, 1e9, 2**10, 2**20, 2**30)
PREFIXES = ("x-", "x_", "encoder-", "x")

_NAMED = re.compile(
    r"(?P<name>[A-Za-z][\w/%-]*(?: [A-Za-z(][\w/%()-]*)*)(?P<sign>['\"]?(?: ?[:=] *| \.+ | +)\(?)(?P<number>\d[\d.,]*\d|\d)(?!\w*[-_])"
)


def lightning(n: int) -> str:
    bars = "".join(
        f"Epoch 0:  {i}%|#   | {i}/100 [00:10<00:12, 4.41it/s, v_num=3, train_loss=0.{n}{i}, val_loss=0.5]\n"
        for i in range(10, 30)
    )
    return bars + "`Trainer.fit` stopped: `max_steps=30` reached.\n"


def nemo_bars(n: int) -> str:
    return "".join(
        f"Epoch 0: :  {i}%|#   | {i}/100 [00:10<00:12, reduced_train_loss=0.{n}{i}, global_step={i}.0, train_step_timing in s=0.50]\n"
        for i in range(10, 30)
    )


def deepspeed_pipeline(n: int) -> str:
    return "".join(f"steps: {i} loss: 2.{n} iter time (s): 1.5 samples/sec: 10.{n}\n" for i in range(10, 30))


def vllm_throughput(n: int) -> str:
    return f"Throughput: 9.3{n} requests/s, 3823.44 total tokens/s, 1853.12 output tokens/s\n"


def vllm_latency(n: int) -> str:
    return f"Avg latency: 1.{n} seconds\n50% percentile latency: 1.5 seconds\n"


def vllm_parts(n: int) -> str:
    head = "============ Serving Benchmark Result ============\nSuccessful requests: 10\n"
    return (
        head + f"Input token throughput (tok/s):          {n}00.00\nOutput token throughput (tok/s):         300.00\n"
    )


def megatron_core(n: int) -> str:
    """The opening line of Megatron-Core 0.9 to 0.12, which has no blank between two of its fields."""
    return (
        f"using world size: 16, data-parallel size: 2, context-parallel size: 1, hierarchical context-parallel sizes: None"
        f"tensor-model-parallel size: {n}, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 2\n"
    )


def hf_summary(n: int) -> str:
    return (
        "***** Running training *****\n  Num examples = 100\n  Total train batch size (w. parallel, distributed & accumulation) = 8\n"
        f"  Gradient Accumulation steps = {n}\n{{'loss': 1.5, 'learning_rate': 4e-05, 'epoch': 0.5}}\n"
        "***** train metrics *****\n  train_runtime            = 0:01:00.00\n  train_steps_per_second   = 0.5\n"
    )


MORE = [lightning, nemo_bars, deepspeed_pipeline, vllm_throughput, vllm_latency, vllm_parts, megatron_core, hf_summary]


def changed(line: str) -> Iterator[str]:
    """The line with each of its names made the end of a longer one, and another number behind it."""
    for match in _NAMED.finditer(line):
        for word in re.finditer(r"(?<![\w(/-])(?!llama3|debug)[A-Za-z]", match["name"]):  # a model has any name
            at = match.start() + word.start()
            for prefix in PREFIXES:
                yield line[:at] + prefix + line[at : match.start("number")] + TOLD + line[match.end("number") :]


def seen_elsewhere(log: Callable[[int], str]) -> set[str]:
    """The lines, whatever their numbers, that are tried in a log before this one."""
    before = itertools.takewhile(lambda other: other is not log, [*LOGS, *MORE])
    return {re.sub(r"\d+", "0", line) for other in before for line in other(3).splitlines(keepends=True)}


def figures(row: Row | Step) -> Iterator[tuple[str, float]]:
    for name, value in asdict(row).items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            yield name, value


def is_told(value: float) -> bool:
    return any(math.isclose(value, int(TOLD) * unit, rel_tol=1e-6) for unit in UNITS)


@pytest.mark.parametrize("log", [*LOGS, *MORE], ids=lambda log: log.__name__)
def test_the_end_of_a_longer_name_changes_no_figure(
    log: Callable[[int], str], read: Callable[..., Reading], steps: Callable[..., list[Step]]
) -> None:
    text = log(3)
    lines = text.splitlines(keepends=True)
    known = seen_elsewhere(log)
    for number, line in enumerate(lines):
        shape = re.sub(r"\d+", "0", line)
        if shape in known:
            continue
        known.add(shape)
        for other in changed(line):
            # In its place, and below it: the last word of a run counts as well.
            for now in (
                [*lines[:number], other, *lines[number + 1 :]],
                [*lines[: number + 1], other, *lines[number + 1 :]],
            ):
                found = [*read("".join(now)).rows, *steps("".join(now))]
                taken = [name for one in found for name, value in figures(one) if is_told(value)]
                assert not taken, (other, taken)


@pytest.mark.parametrize(
    "before", ["", "context-parallel size: 1, ", "hierarchical context-parallel sizes: None", "hierarchical context-parallel sizes: [2]"]
)  # fmt: skip
@pytest.mark.parametrize(
    "encoder", ["", ", encoder-tensor-model-parallel size: 0", ", encoder-tensor-model-parallel size: 2"]
)
def test_megatrons_first_line_has_the_decoders_size(before: str, encoder: str, row: Callable[[str], Row]) -> None:
    head = f"using world size: 16, data-parallel size: 2, {before}tensor-model-parallel size: 4{encoder}, pipeline-model-parallel size: 2\n"
    step = (
        " iteration       71/     100 | consumed samples:         9088 | elapsed time per iteration (ms): 5361.6 |"
        " learning rate: 1.420000E-05 | global batch size:   128 | lm loss: 1.818812E+00 | loss scale: 1.0 |\n"
    )
    assert row(head + step).tensor_parallel == 4


def test_there_are_names_in_every_log() -> None:
    assert all(any(any(changed(line)) for line in log(3).splitlines()) for log in (*LOGS, *MORE))
