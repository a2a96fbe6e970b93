"""A node is left out where it is proven that it was the silent one, and never that of the ranks which say that they waited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rendering import planned

from hpc_llm.causes.found import Found, signs_in
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.remedies import filled
from hpc_llm.diagnosis.silent import of_others

WAITED = (
    "[rank{rank}]: RuntimeError: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)
PART = WAITED.replace("[Rank {rank}] Watchdog", "[PG ID 3 PG GUID 5(tensor) Rank {rank}] Watchdog")
NAMED = "RuntimeError: Rank {rank} failed to pass monitoredBarrier in 1800000 ms\n"
SOCKET = "RuntimeError: The client socket has timed out after 600s while trying to connect to ({host}, 29500).\n"
NODES = ("gn1", "gn2")


def _found(text: str) -> list[Found]:
    return [one for one in signs_in(text.encode()) if one.is_root]


def _case(nodes: tuple[str, ...], hosts: dict[int, str], options: tuple[str, ...] = ()) -> Case:
    plan = planned("delta", "z3", model="tiny", nodes=2, gpus_per_node=4, sbatch=options).plan
    return Case(plan=plan, facts={"node": "gn1"}, nodes=nodes, hosts=hosts)


def _told(text: str, case: Case) -> str:
    found = _found(text)
    root = found[0]
    own = dict(root.details or {})
    remedy = root.sign.remedy or root.cause.remedy
    return filled(remedy, {**case.facts, **own, **of_others(own, case, root, found)})


ON_FIRST = dict.fromkeys(range(4), "gn1")


@pytest.mark.parametrize(
    ("text", "case", "said"),
    [
        ("".join(WAITED.format(rank=k) for k in range(4)), _case(NODES, ON_FIRST), "exclude=gn2"),
        ("".join(WAITED.format(rank=k) for k in range(4)), _case((), ON_FIRST), "ranks 4-7 left no word"),
        ("".join(WAITED.format(rank=k) for k in range(4)), _case(("gn2", "gn1"), ON_FIRST), "ranks 4-7 left no word"),
        ("".join(WAITED.format(rank=k) for k in range(4)), _case(NODES, ON_FIRST, ("distribution=cyclic",)), "ranks 4-7 left"),
        (WAITED.format(rank=0), _case(NODES, {0: "gn1"}), "ranks 1-7 left no word"),
        (NAMED.format(rank=5), _case(NODES, {0: "gn1"}), "exclude=gn2"),
        (NAMED.format(rank=5), _case((), {0: "gn1"}), "rank 5 left no word"),
        (SOCKET.format(host="gn2"), _case(NODES, {0: "gn1"}), "exclude=gn2"),
    ],
)  # fmt: skip
def test_the_silent_node_is_left_out_where_it_is_known(text: str, case: Case, said: str) -> None:
    remedy = _told(text, case)
    assert said in remedy and "exclude=gn1" not in remedy, remedy


@pytest.mark.parametrize(
    ("text", "case"),
    [
        (SOCKET.format(host="10.0.0.1"), _case(NODES, {0: "gn1"})),
        (SOCKET.format(host="gn9"), _case(NODES, {0: "gn1"})),
        ("".join(PART.format(rank=k) for k in range(4)), _case(NODES, ON_FIRST)),
    ],
)
def test_no_node_is_named_where_nothing_proves_it(text: str, case: Case) -> None:
    remedy = _told(text, case)
    assert "exclude" not in remedy and "left no word" not in remedy, remedy


def test_of_a_job_on_one_node_it_is_that_one() -> None:
    plan = planned("delta", "z3", model="tiny", nodes=1).plan
    case = replace(_case(NODES, {}), plan=plan)
    assert "exclude=gn1" in _told(WAITED.format(rank=0), case)
