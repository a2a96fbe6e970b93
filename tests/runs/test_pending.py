"""Why a held job waits: what Slurm says of it, and no more."""

from __future__ import annotations

import pytest

from hpc_llm.runs.pending import explain_wait
from hpc_llm.schedulers.job_record import JobRecord


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("JobHoldMaxRequeue", "because it was queued again too often"),
        ("launch failed requeued held", "because it could not be started"),
        ("job requeued in held state", "Slurm does not say by whom"),
        ("requeued_held", "Slurm does not say by whom"),
        ("SpecialExit", "Slurm does not say by whom"),
    ],
)
def test_a_job_that_was_queued_again_and_is_held(reason: str, said: str) -> None:
    found = explain_wait(JobRecord(state="PENDING", reason=reason), "7", 0.0)
    assert "waiting does not help" in found.sentence and said in found.sentence and "scontrol release 7" in found.remedy
    assert ("because" in found.sentence) == ("because" in said)


def test_what_was_asked_for_is_said_in_the_words_in_which_it_was() -> None:
    found = explain_wait(JobRecord(state="PENDING", reason="JobArrayTaskLimit"), "7_3", 0.0)
    assert found.sentence == "JobArrayTaskLimit: as many of its array run at once as --max-parallel allows"
    assert found.remedy == "wait for it: `hpc-llm status --watch`"


@pytest.mark.parametrize(
    "reason", ["PartitionConfig", "PartitionConfig(more)", "PartitionNodeLimit", "PartitionTimeLimit"]
)
def test_what_its_partition_does_not_take_says_what_to_change(reason: str) -> None:
    found = explain_wait(JobRecord(state="PENDING", reason=reason), "7", 0.0)
    assert "waiting does not help: cancel it and submit it again" in found.sentence and "--partition" in found.remedy
