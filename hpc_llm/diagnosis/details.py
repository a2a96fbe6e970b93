"""What the evidence says beyond the cause: amounts of memory, the rank and collective, the exception."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hpc_llm.causes.found import Found
from hpc_llm.diagnosis.case import size_bytes
from hpc_llm.diagnosis.device_memory import held_by_others, is_shared
from hpc_llm.text.numbers import whole_number

_MOST_KIB = 1 << 33
"""No node has that many: 8 TiB."""


def explain(root: Found, found: Sequence[Found]) -> tuple[str, dict[str, str]]:
    """One sentence with the facts of this failure, empty if there are none, and the facts by name.

    `found` is everything else that was found, by file and position.
    """
    facts = dict(root.details or {})
    if root.rank is not None:
        facts["rank"] = str(root.rank)
    describe = {
        "device_oom": _device_oom,
        "host_oom": _host_oom,
        "node_fail": _node_fail,
        "collective_timeout": _collective_timeout,
        "python_exception": _exception,
        "config_error": _setting,
    }.get(root.cause.id)
    return (describe(facts, root, found) if describe else ""), facts


def _device_oom(facts: dict[str, str], root: Found, found: Sequence[Found]) -> str:
    ranks = sorted({f.rank for f in found if f.cause is root.cause and f.rank is not None})
    if len(ranks) > 1:
        facts["ranks"] = ",".join(map(str, ranks))
    # The sums of older torch do not tell the context of this process apart.
    about = "about " if "reserved_total" in facts else ""
    _share_out(facts)
    if "asked" not in facts:
        return ""
    where = f"GPU {facts['gpu']}" if "gpu" in facts else "the GPU"
    sentence = f"{where} was asked for {facts['asked']}"
    if "free" in facts:
        sentence += f" with {facts['free']} free"
    if "capacity" in facts:
        sentence += f" of {facts['capacity']}"
    if "allowed" in facts:
        sentence += f", of which the process may take {facts['allowed']}"
    if "reserved" in facts:
        sentence += f", {facts['reserved']} reserved and unused"
    if is_shared(facts) and "held_by_others" in facts:
        sentence += f"; other processes held {about}{facts['held_by_others']}"
    return sentence + "."


def _share_out(facts: dict[str, str]) -> None:
    """What torch says in sums: what it had reserved and did not use, and what others held."""
    others = held_by_others(facts)
    total, used = size_bytes(facts.get("reserved_total")), size_bytes(facts.get("allocated"))
    if total is not None and used is not None:
        facts["reserved"] = _amount(max(int(total - used), 0))
    if others is not None:
        facts["held_by_others"] = _amount(int(others))
    facts.pop("held", None)


def _host_oom(facts: dict[str, str], root: Found, found: Sequence[Found]) -> str:
    # slurmstepd writes several lines in any order, and one of them has the amounts.
    told = next((f for f in (root, *found) if f.cause is root.cause and "limit" in (f.details or {})), root)
    facts |= told.details or {}
    if any(f.cause is root.cause and "DataLoader worker" in f.text for f in (root, *found)):
        facts["killed"] = "data loader worker"
    if "used" in facts and "limit" in facts:
        used, limit = int(facts["used"]), int(facts["limit"])
        # Slurm counts in bytes since it writes StepId=, and counted in KiB when it began to write of limits.
        unit = 1 if "StepId=" in told.text or limit > _MOST_KIB else 1024
        facts["used_bytes"] = str(used * unit)
        return f"It used {_amount(used * unit)}, and {_amount(limit * unit)} were allowed."
    return f"{facts['asked']} bytes were asked for." if facts.get("asked", "").isdigit() else ""


def _node_fail(facts: dict[str, str], root: Found, found: Sequence[Found]) -> str:
    """Takes the node from srun, which names the one that failed; slurmstepd names the one on which it lives itself."""
    named = (f.details for f in found if "ode failure on " in f.text and f.details and "node" in f.details)
    first = next(named, None)
    if first is not None:
        facts["node"] = first["node"]
    if "node" in facts or "living_node" not in facts:
        return ""
    return f"Slurm's process on {facts['living_node']} tells it, which is the one that failed only where the job had no other node."


_UNNAMED = "which the output does not say"


def of_the_node(root: Found, found: Sequence[Found], facts: Mapping[str, str]) -> dict[str, str]:
    """The node of a GPU that failed, as srun names it, and what a remedy says in place of a node that nobody names."""
    if facts.get("node"):
        return {}
    if root.cause.id == "gpu_hardware" and (node := named_by_srun(found, root.rank)) is not None:
        return {"node": node}
    return {"unnamed": _UNNAMED} if root.cause.id == "node_fail" else {}


_TASK_FAILED = re.compile(
    r"srun: error: (?P<node>[\w.-]{1,80}): tasks? (?P<tasks>[\d,-]+): (?!Terminated|Exited with exit code 143$)"
)


def named_by_srun(found: Sequence[Found], rank: int | None) -> str | None:
    """The node of that rank, as srun names it, or the only one of which srun says that a task failed."""
    told = [said for one in found if (said := _TASK_FAILED.search(one.text)) is not None]
    if rank is not None:
        told = [said for said in told if _holds(said["tasks"], rank)]
    nodes = {said["node"] for said in told}
    return nodes.pop() if len(nodes) == 1 else None


def _holds(ranges: str, task: int) -> bool:
    """Whether srun's list of tasks has that one.

    >>> _holds("0-3,7", 7), _holds("0-3,7", 5)
    (True, False)
    """
    for part in ranges.split(","):
        first, last = (whole_number(number) for number in part.partition("-")[::2])
        if first is not None and first <= task <= (first if last is None else last):
            return True
    return False


def _amount(size_bytes: int) -> str:
    """In GiB, or in MiB where that would be less than one.

    >>> _amount(3 << 29), _amount(100 << 20)
    ('1.5 GiB', '100 MiB')
    """
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"


_MOST_AHEAD = 100
"""Collectives by which a rank is ahead of another one of its group; far more than can be begun and not yet be over."""


def _collective_timeout(facts: dict[str, str], root: Found, found: Sequence[Found]) -> str:
    """Names the first rank to fall silent: as the watchdog says, or the one whose collective is furthest behind."""
    waits = [f for f in found if f.cause is root.cause and f.details]
    silent = next((f.details["silent_rank"] for f in waits if f.details and "silent_rank" in f.details), None)
    behind, of_one_group = _waited_at(waits)
    is_told = silent is None and of_one_group and len(set(behind.values())) > 1
    late = str(min(behind, key=lambda rank: behind[rank])) if is_told else None
    sentence = ""
    if "collective" in facts:
        sentence = facts["collective"] + (f" number {facts['seq']}" if "seq" in facts else "") + " did not complete"
        if "timeout_ms" in facts:
            sentence += f" in {int(facts['timeout_ms']) / 1000:g} s"
        sentence += ". "
    if silent is not None:
        facts["silent_rank"] = silent
        sentence += f"Rank {silent} fell silent first."
    elif late is not None:
        facts["silent_rank"] = late
        sentence += f"Rank {late} is behind, at number {min(behind.values())}; others are at {max(behind.values())}."
    elif behind and _are_of_groups(waits):
        facts.pop("rank", None)
        sentence += "Ranks of several process groups waited, and each group counts its own: which ranks of the job they are is not said."
    elif behind:
        facts["waiting_ranks"] = ",".join(map(str, sorted(behind)))
        who = f"Rank{'s' * (len(behind) > 1)} {facts['waiting_ranks'].replace(',', ', ')}"
        others = "the ranks of their process group" if any(map(_is_of_a_part, waits)) else "the ranks"
        sentence += f"{who} waited; look at {others} that do not say so."
    if not sentence and "joined" in facts:
        sentence = f"{facts['joined']} of {facts['expected']} had come when the time was over."
    reported = next((f.details["reported_by"] for f in waits if f.details and "reported_by" in f.details), None)
    if reported is not None and not sentence:
        facts["reported_by"] = reported
        sentence = (
            f"Rank {reported} was the first whose collective failed, which the others say of it: look at its output."
        )
    return sentence.strip()


def _waited_at(waits: Sequence[Found]) -> tuple[dict[int, int], bool]:
    """The number of the collective at which each rank waited, and whether all are numbers of one group of ranks.

    Each group counts its own. Ranks of one group are a few collectives apart at most, as each waits for all others, and a rank
    that waited at two numbers did so in two groups.
    """
    said = [
        (f.rank, int(f.details["seq"]), f.details.get("group"))
        for f in waits
        if f.details and "seq" in f.details and "silent_rank" not in f.details and f.rank is not None
    ]
    numbers = [number for _, number, _ in said]
    of_one_group = (
        len({(rank, number) for rank, number, _ in said}) == len({rank for rank, _, _ in said})
        and len({group for _, _, group in said}) == 1
        and max(numbers) - min(numbers) <= _MOST_AHEAD
        and not any(_is_of_a_part(f) and "group" not in (f.details or {}) for f in waits)
    )
    return {rank: number for rank, number, _ in said}, of_one_group


def _is_of_a_part(wait: Found) -> bool:
    """Whether it is said of a process group that is not all of the job: the group counts the rank in another way, or has another name."""
    said = wait.details or {}
    is_other = "rank_in_group" in said and wait.rank is not None and int(said["rank_in_group"]) != wait.rank
    return is_other or ("group" in said and "default" not in said["group"])


def is_of_all_ranks(root: Found, found: Sequence[Found]) -> bool:
    """Whether all ranks of the job were waited for, as far as is said: of ranks in other groups silence says nothing."""
    waits = [one for one in (root, *found) if one.cause is root.cause and one.details]
    return not any(map(_is_of_a_part, waits)) and not _are_of_groups(waits)


def _are_of_groups(waits: Sequence[Found]) -> bool:
    """Whether ranks are known by their places in several groups alone: one of them waited at more than one number, without a name of its own."""
    said = {(f.rank, f.details["seq"]) for f in waits if f.details and "seq" in f.details and _is_in_group_alone(f)}
    return len(said) > len({rank for rank, _ in said})


def _is_in_group_alone(wait: Found) -> bool:
    return "rank_in_group" in (wait.details or {}) and f"[rank{wait.rank}]:" not in wait.text


def _setting(facts: dict[str, str], root: Found, found: Sequence[Found]) -> str:
    if "mismatch" in facts:
        return f"{facts['mismatch'].strip().rstrip('.')}."
    return f"It is {facts['setting']}." if "setting" in facts else ""


def _exception(facts: dict[str, str], root: Found, found: Sequence[Found]) -> str:
    if "exception" not in facts:
        return ""
    who = f"Rank {root.rank} failed first: " if root.rank is not None else ""
    return f"{who}{facts['exception']}: {facts.get('message', '')}".rstrip(": ")
