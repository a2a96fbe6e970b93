"""Times without their year above the first full date: a run began no later than the first time that its log shows."""

from __future__ import annotations

import json

import pytest

FULL = "[2025-03-19 15:14:35,281] [INFO] [real_accelerator.py:219:get_accelerator] Setting ds_accelerator to cuda (auto detect)\n"
STEPS = "".join(f"{{'loss': {2.3 - n / 10:.1f}, 'learning_rate': 5e-05, 'epoch': {n / 10}}}\n" for n in range(1, 4))
ABOVE = (
    "W0319 14:23:04.852000 32645 site-packages/torch/distributed/run.py:792] *****************************************\n",
    "I0319 14:23:04.123456 140234 xla_bridge.py:660] Unable to initialize backend\n",
    "I20250319 14:23:04.123456 140234 main.cc:12] begins\n",
    "[rank0]:I0319 14:23:04.852000 32645 foo.py:1] x\n",
    "[W319 14:23:04.935789486 TCPStore.cpp:122] x\n",
    "INFO 03-19 14:23:04 [__init__.py:239] Automatically detected platform cuda.\n",
    "(EngineCore pid=1) INFO 03-19 14:23:04 [core.py:61] Initializing\n",
    "[03/19 14:23:04 d2.utils.env]: Using a random seed\n",
    "03/19 14:23:04 - mmengine - INFO - begins\n",
    "Mar 19 14:23:04 node1 systemd[1]: begun\n",
    "Wed Mar 19 14:23:04 2025       \n",
    "Wed Mar 19 14:23:04 CET 2025\n",
    "Begin PBS Prologue Wed 19 Mar 2025 02:23:04 PM CET\n",
)


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("between", ["", "x\n" * 300_000])
def test_the_first_date_tells_the_year_of_a_time_above_it(read, above: str, between: str) -> None:
    (row,) = read(above + between + FULL + STEPS).rows
    assert row.started_at == "2025-03-19T14:23:04"


@pytest.mark.parametrize(
    ("above", "began"),
    [
        ("INFO 03-19 15:14:34 [__init__.py:239] x\n", "2025-03-19T15:14:34"),
        ("INFO 03-19 15:14:36 [__init__.py:239] x\n", "2025-03-19T15:14:35"),  # another clock, or a line that came late
        ("INFO 03-17 23:00:00 [__init__.py:239] x\n", "2025-03-17T23:00:00"),
        ("INFO 03-19 16:14:34 [__init__.py:239] x\n", None),  # another zone: which is the first nobody knows
        ("INFO 11-19 14:23:04 [__init__.py:239] x\n", None),
        ("INFO 02-30 14:23:04 [__init__.py:239] x\n", None),
        ("W0319 14:23:04.852000 32645 api.py:897] Process 77 failed, stopping the others\n", None),  # of a run before
        (
            "Finished at: Wed Mar 19 15:18:21 CET 2025\nSubmit : 2025-03-19T15:10:00\n",
            "2025-03-19T15:14:35",
        ),  # an epilogue
        ("Finished at: Wed Mar 19 15:08:21 CET 2025\n", None),
        ("14:23:04 [__init__.py:239] x\n", None),
        ("Linux n1 5.14.0 #1 SMP Tue Jan 7 14:23:04 UTC 2025 x86_64\n", "2025-03-19T15:14:35"),  # when it was built
        ("Python 3.10.12 (main, Mar 18 2025, 15:14:05) [GCC 11.4.0]\n", "2025-03-19T15:14:35"),
        ("job submitted on Wed Mar 19 08:00:00 2025\n", "2025-03-19T15:14:35"),
    ],
)
def test_a_time_that_cannot_be_joined_for_certain_leaves_the_begin_empty(read, above: str, began: str | None) -> None:
    (row,) = read(above + FULL + STEPS).rows
    assert row.started_at == began


def test_a_run_of_the_days_around_new_year_began_in_the_old_one(read) -> None:
    (row,) = read("INFO 12-31 23:00:04 [a.py:1] x\n" + FULL.replace("2025-03-19", "2026-01-01") + STEPS).rows
    assert row.started_at == "2025-12-31T23:00:04"


def test_the_time_at_which_the_run_of_one_cell_ended_is_no_start_of_the_next(read) -> None:
    def cell(text: str) -> dict[str, object]:
        output = {"output_type": "stream", "name": "stdout", "text": text}
        return {"cell_type": "code", "source": [], "outputs": [output]}

    killed = "[2025-03-19 15:27:15,384] [ERROR] [launch.py:322:sigkill_handler] ['/opt/bin/python'] exits with return code = -9\n"
    missing = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nOSError: out does not appear to have a file named config.json.\n'
    first, second = read(json.dumps({"cells": [cell(FULL + STEPS + killed), cell(missing)]})).rows
    assert (first.started_at, second.started_at) == ("2025-03-19T15:14:35", None)
    _, second = read(json.dumps({"cells": [cell(FULL + STEPS + killed), cell(killed + missing)]})).rows
    assert second.started_at == "2025-03-19T15:27:15"
