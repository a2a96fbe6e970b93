"""The network that NCCL took between the nodes: asked for, read from what it says, and held against the site's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rendering import planned

from hpc_llm.records.metrics import invalid_reason
from hpc_llm.worker.measure import network
from hpc_llm.worker.ranks import Ranks, find_ranks

SOCKETS = """\
gpu01:22:22 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
gpu01:22:22 [0] NCCL INFO NET/IB : No device found.
gpu01:22:22 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>
gpu01:22:22 [0] NCCL INFO Initialized NET plugin Socket
gpu01:22:22 [0] NCCL INFO Assigned NET plugin Socket to comm
gpu01:22:22 [0] NCCL INFO Using network Socket
gpu01:22:22 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks 8 cudaDev 0 - Init START
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SOCKETS, "Socket"),
        ("n:1:1 [0] NCCL INFO Using network AWS Libfabric\n", "AWS Libfabric"),
        ("n:1:1 [0] NCCL INFO Using network IB\nn:1:1 [0] NCCL INFO Using network IB\n", "IB"),
        ("n:1:1 [0] NCCL INFO Using network IB\nn:1:1 [0] NCCL INFO Using network Socket\n", None),
        ("n:1:1 [0] NCCL INFO Bootstrap : Using ib0:10.0.0.5<0>\n", None),
    ],
)
def test_the_name_is_the_one_that_nccl_says_it_uses(text: str, name: str | None, tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_text(text)
    assert network.chosen(tmp_path / "nccl.log") == name
    assert network.chosen(tmp_path / "none.log") is None


def test_nccl_is_asked_on_the_first_rank_of_several_nodes_unless_somebody_asked_it_before(tmp_path: Path) -> None:
    several, one = (planned("delta", "z3", nodes=count).plan for count in (2, 1))
    first = find_ranks(
        {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "n1"}
    )

    def told(plan: object, ranks: Ranks, **before: str) -> dict[str, str]:
        environment = dict(before)
        network.listen(plan, ranks, tmp_path / "nccl.log", environment)  # type: ignore[arg-type]
        return environment

    assert told(several, first)["NCCL_DEBUG_FILE"] == str(tmp_path / "nccl.log")
    assert not told(one, first) and not told(several, replace(first, rank=1))
    assert told(several, first, NCCL_DEBUG="WARN") == {"NCCL_DEBUG": "WARN"}


def test_a_run_over_sockets_is_invalid_where_the_site_has_a_fabric() -> None:
    plan = planned("delta", "z3", nodes=2).plan
    assert plan.gpu.network == "Libfabric" and planned("delta", "z3").plan.gpu.network is None

    def reason(name: str | None) -> str | None:
        facts = {"measured_steps": 20, "losses": [2.0] * 20, "world_size": 8, "planned_world_size": 8}
        return invalid_reason(**facts, network=name, expected_network=plan.gpu.network)  # type: ignore[arg-type]

    assert reason("Socket") == "NCCL used the network Socket between the nodes, and is to use Libfabric there"
    assert reason("AWS Libfabric") is reason("Libfabric") is reason(None) is None
