"""Two ranks on one GPU are told as that, and not as GPUs that are missing."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_plans import make_plan

from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.remedies import BY_PLAN

SAID = "gn1:12:13 [0] init.cc:871 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n"


@pytest.mark.parametrize("before", ["", "rank 1/4 local_rank 1 sees 4 GPUs\n", "Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\n    main()\n"])  # fmt: skip
def test_ranks_on_one_gpu_are_sent_to_that_of_their_local_rank(before: str, diagnose: Any) -> None:
    found = diagnose(before + SAID)
    assert (found.cause.id, found.details["rank"], found.details["other_rank"]) == ("gpu_shared", "1", "0")
    assert "set_device(int(os.environ['LOCAL_RANK']))" in found.remedy and "found no GPU" not in found.meaning
    assert found.remedy.index("LOCAL_RANK") < found.remedy.index("ask for as many")


def test_a_number_beyond_the_gpus_stays_a_gpu_that_is_missing(diagnose: Any) -> None:
    assert diagnose("RuntimeError: CUDA error: invalid device ordinal\n").cause.id == "gpu_missing"


def test_a_run_of_ours_is_not_told_to_change_its_program() -> None:
    lines = BY_PLAN["gpu_shared"](Case(plan=make_plan("z3", world_size=2), facts={}))
    assert "2 ranks and" in lines[0] and "set_device" not in "\n".join(lines)
