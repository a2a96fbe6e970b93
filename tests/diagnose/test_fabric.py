"""Cray MPICH, Slingshot and libfabric: what could not be used, and what to set."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]
ABORTED = (
    "MPICH ERROR [Rank 0] [job id 4711.0] [Mon May  5 10:11:12 2025] [nid001234] - Abort(2665871) (rank 0 in comm 0): "
)
ENDED = "srun: error: nid001234: task 0: Exited with exit code 255\nslurmstepd: error: *** STEP 4711.0 ON nid001234 CANCELLED AT 2025-05-05T10:11:13 ***\n"
CXI = "libfabric:41234:1715000000::cxi:core:"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (ABORTED + "MPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked", "MPICH_GPU_SUPPORT_ENABLED=0"),
        ("MPICH ERROR: Unable to use a NIC_POLICY of 'NUMA'. Rank 4 is not confined to a single NUMA node.", "MPICH_OFI_NIC_POLICY=BLOCK"),
        ("MPICH ERROR: Unable to use a NIC_POLICY of 'GPU'. No GPU was detected.", "MPICH_OFI_NIC_POLICY=BLOCK"),
        ("srun: error: task 256 launch failed: Error configuring interconnect", "submit it again"),
        ("slurmstepd: error: switch_g_job_init: Cannot allocate memory", "--network=no_vni"),
        ("slurmstepd: error: Could not open CXI device dev_id=0 (cxi0): No such device", "tell the site"),
        ("open_fabric(1559)...........: OFI fi_getinfo() failed (ofi_init.c:1559:open_fabric:No data available)", "fi_info -p cxi"),
        ("create_vni_context(2253).....: OFI endpoint open failed (ofi_init.c:2253:create_vni_context:Invalid argument)", "fi_info -p cxi"),
        (CXI + "cxip_cq_eq_progress():531<warn> nid1: Cassini Event Queue overflow detected.", "FI_CXI_DEFAULT_CQ_SIZE"),
        (CXI + "cxip_ux_onload_cb():26<warn> nid1: PtlTE 3:[Fatal] LE resources not recovered during flow control.", "FI_CXI_RX_MATCH_MODE"),
        ("nid006352:34157:34217 [1] net.cc:626 NCCL WARN Error: network AWS Libfabric not found.", "aws-ofi-nccl"),
    ],
)  # fmt: skip
def test_what_the_network_lacks_is_told_with_what_to_set(said: str, advice: str, diagnose: Diagnose) -> None:
    found = diagnose(f"loading modules\n{said}\n{ENDED}")
    assert found.cause.id == "fabric" and said[:60] in found.evidence[0].text and advice in found.remedy
    assert found.retry == ("submit it again" in found.remedy or "--network=no_vni" in found.remedy)


@pytest.mark.parametrize(
    "end",
    ["srun: error: nid1: task 0: Out Of Memory\n", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"],
)
def test_a_card_that_is_busy_when_the_step_has_ended_is_no_cause(end: str, diagnose: Diagnose) -> None:
    late = "slurmstepd: error: Failed to destroy CXI Service ID 5 (cxi0): Device or resource busy\nslurmstepd: error: switch_g_job_postfini: Device or resource busy\n"
    assert diagnose(end + late).cause.id in ("host_oom", "device_oom")
    assert diagnose("step 1 loss 2.0\n" + late).cause.id == "unknown"


def test_a_message_that_did_not_get_through_is_not_of_the_settings(diagnose: Diagnose) -> None:
    lost = "MPIDI_OFI_handle_cq_error(1075): OFI poll failed (ofi_events.c:1077:MPIDI_OFI_handle_cq_error:Input/output error - UNDELIVERABLE)\n"
    assert (
        diagnose(ABORTED + "Fatal error in PMPI_Wait: Other MPI error, error stack:\n" + lost).cause.id == "unreachable"
    )
    setup = diagnose(
        "n1:1:2 [0] f:10 NCCL WARN NET/OFI Couldn't enable endpoint. RC: -12, ERROR: Cannot allocate memory\n"
    )
    assert setup.cause.id == "unreachable" and "ulimit -l" in setup.remedy and not setup.retry
    raised = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n    f()\nKeyError: 3\n'
    assert diagnose(raised + lost).cause.id == "python_exception"
