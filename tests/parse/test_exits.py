"""DeepSpeed's launcher says of each process that ended with code 0 that it did: of all of them that is the end of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpc_llm.parsing import Row

HEAD = "[2026-01-19 14:24:40,683] [INFO] [launch.py:180:main] dist_world_size={}\n"
EXIT = "[2026-01-19 14:25:00,688] [INFO] [launch.py:367:main] Process {} exits successfully.\n"
STEP = "[Rank 0] time (ms) | fwd: 51.37 | bwd: 81.80 | bwd_inner: 80.76 | bwd_allreduce: 0.99 | step: 5.90\n"
FILLER = "some words of no interest\n" * 60_000


def log(ranks: int, exits: list[int], between: str = "", steps: int = 9) -> str:
    return HEAD.format(ranks) + STEP * steps + between + "".join(map(EXIT.format, exits))


@pytest.mark.parametrize(("ranks", "exits"), [(2, [7, 8]), (1, [7]), (4, [7, 8, 9, 10])])
@pytest.mark.parametrize("between", ["", "FINAL RESULTS\n", FILLER])
def test_where_all_processes_ended_well_the_run_did(
    row: Callable[..., Row], diagnose_text: Any, ranks: int, exits: list[int], between: str
) -> None:
    text = log(ranks, exits, between)
    assert (row(text).outcome, row(text).cause) == ("COMPLETED", "none")
    assert diagnose_text(text).cause.id == "none"


@pytest.mark.parametrize(
    "text",
    [
        log(2, [7]),
        log(2, [7, 7]),
        log(2, []),
        log(2, [7, 8]) + STEP,
        log(2, [7, 8]).replace("dist_world_size", "world size"),
    ],
)
def test_where_some_did_or_more_steps_follow_it_is_not_known(row: Callable[..., Row], text: str) -> None:
    assert row(text).outcome == "UNKNOWN"


def test_what_failed_and_ended_well_all_the_same_stays_failed(row: Callable[..., Row]) -> None:
    failed = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\nRuntimeError: no\n'
    assert row(log(2, [7, 8], failed)).outcome == "FAILED"
    assert row(log(2, [7], failed) + "[launch.py:325:sigkill_handler] ['python'] exits with return code = 1\n").outcome == "FAILED"  # fmt: skip
