"""Which node failed is told where somebody names it: slurmstepd, which tells of it, lives on another."""

from __future__ import annotations

from typing import Any

import pytest

LOST = "slurmstepd: error: *** {what} ON {node} CANCELLED AT 2026-04-01T04:44:44 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
STEP = "{'loss': 1.5, 'epoch': 0.5}\n"
TOLD = [LOST.format(what="STEP 31.0", node="r07"), LOST.format(what="JOB 31", node="r07")]


@pytest.mark.parametrize("text", [TOLD[0], TOLD[1], "".join(TOLD), TOLD[0] + LOST.format(what="STEP 31.0", node="r08")])
def test_the_node_that_tells_of_a_failure_is_not_left_out(text: str, diagnose: Any) -> None:
    found = diagnose(STEP + text)
    assert (found.cause.id, found.retry) == ("node_fail", True)
    assert "exclude=r0" not in found.remedy and "{" not in found.remedy
    assert all(words in found.remedy for words in ("sacct -j", "sinfo -R", "a person"))
    assert "r07" in found.summary


@pytest.mark.parametrize(
    "text", [TOLD[0] + "srun: error: Node failure on r09\n", "srun: error: Prolog failure on node r09\n"]
)
def test_the_node_that_is_named_is_left_out(text: str, diagnose: Any) -> None:
    found = diagnose(text)
    assert "sbatch --exclude=r09" in found.remedy and "sinfo" not in found.remedy and "r07" not in found.summary


ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
FAILED = "srun: error: {}: task {}: Exited with exit code 1\n"


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        (ECC + FAILED.format("r11", 5), "exclude=r11"),
        ("[rank5]: " + ECC + FAILED.format("r10", 1) + FAILED.format("r11", 5), "exclude=r11"),
        (ECC + FAILED.format("r10", 1) + FAILED.format("r11", 5), "exclude=NODE"),
    ],
)
def test_the_node_of_a_faulty_gpu_is_the_one_whose_task_failed(text: str, blamed: str, diagnose: Any) -> None:
    found = diagnose(STEP + text)
    assert found.cause.id == "gpu_hardware" and blamed in found.remedy, found.remedy
