"""What to do, as lines with the exact flags; for a run of ours with the numbers of its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpc_llm.experiment import Plan
from hpc_llm.slurm_time import format_time


@dataclass(frozen=True)
class Rung:
    """One step of the ladder by which a run comes to need less GPU memory."""

    flags: str
    why: str
    plan: Plan
    """The plan with that change; whoever can estimate memory can tell from it whether the step suffices."""


def rungs(plan: Plan) -> Iterator[Rung]:
    """The steps from the least costly one on; each keeps the ones before it."""
    smaller = _smaller_micro_batch(plan)
    if smaller is not None:
        flags = f"--micro-batch-size {smaller.micro_batch_size} --gradient-accumulation-steps {smaller.gradient_accumulation_steps}"
        yield Rung(flags, f"a smaller micro batch at the same global batch of {plan.global_batch_size}", smaller)
        plan = smaller
    for letters, why in _more_saving(plan.letters):
        plan = replace(plan, letters=letters, method=letters, recompute="r" in letters.split("+"))
        yield Rung(f"--method {letters}", why, plan)
    if plan.sequence_length > 1:
        shorter = plan.sequence_length // 2
        yield Rung(
            f"--sequence-length {shorter}",
            "shorter sequences, which is another experiment",
            replace(plan, sequence_length=shorter),
        )


def _smaller_micro_batch(plan: Plan) -> Plan | None:
    """Half the micro batch or the next smaller one that divides the same global batch; None at 1."""
    sequences = plan.micro_batch_size * plan.gradient_accumulation_steps
    fitting = [n for n in range(1, plan.micro_batch_size // 2 + 1) if sequences % n == 0]
    if not fitting:
        return None
    return replace(plan, micro_batch_size=fitting[-1], gradient_accumulation_steps=sequences // fitting[-1])


def _more_saving(letters: str) -> Iterator[tuple[str, str]]:
    """Letters that save more than `letters`, one step at a time.

    >>> [letters for letters, _ in _more_saving("z2+o")]
    ['z2+o+r', 'z3+o+r']
    """
    parts = [part for part in letters.split("+") if part]
    if "r" not in parts:
        parts = [*parts, "r"]
        yield "+".join(parts), "recompute activations: about a third more time"
    if parts[0] in ("z0", "z1", "z2"):
        parts = ["z3", *parts[1:]]
        yield "+".join(parts), "partition parameters and gradients, too"
    if "o" not in parts and parts[0] == "z3":
        parts = [parts[0], "o", *parts[1:]]
        yield "+".join(parts), "move optimizer states and parameters to the host: slow, and it needs host memory"


def device_oom(plan: Plan, facts: Mapping[str, str]) -> list[str]:
    """The ladder for this plan, after what the message itself points at."""
    lines = []
    asked, capacity = size_bytes(facts.get("asked")), size_bytes(facts.get("capacity"))
    reserved = size_bytes(facts.get("reserved"))
    if asked and reserved and reserved > asked:
        lines.append(
            "--set env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  (more was reserved and unused than was asked for)"
        )
    if capacity and (allocated := size_bytes(facts.get("allocated"))) is not None and allocated < capacity / 50:
        lines.append(
            "another process held the GPU's memory: ask for the GPU alone, --sbatch exclusive=user, or another node"
        )
    return lines + [f"{rung.flags}  ({rung.why})" for rung in rungs(plan)]


def host_oom(plan: Plan, facts: Mapping[str, str]) -> list[str]:
    """More memory, then fewer ranks, then less on the host."""
    asked = f" instead of {plan.mem}" if plan.mem else ""
    lines = [f"--sbatch mem=…  (more{asked}; mem=0 is all of the node)"]
    if plan.tasks_per_node > 1:
        lines.append(
            f"--gpus-per-node {plan.tasks_per_node // 2}  (fewer ranks per node: each has host buffers of its own)"
        )
    zero = plan.deepspeed.get("zero_optimization") or {}
    if zero.get("offload_param"):
        lines.append(
            "--method z3  (without offload: parameters stay on the GPUs), or z2o (only optimizer states on the host)"
        )
    elif zero.get("offload_optimizer"):
        lines.append("--method z3  (without offload: nothing is kept on the host)")
    return lines


def walltime(plan: Plan, facts: Mapping[str, str]) -> list[str]:
    """Twice the time, or fewer steps where some were made."""
    lines = []
    if plan.time_s:
        lines.append(f"--time {format_time(2 * plan.time_s)}  (it had {format_time(plan.time_s)})")
    made = facts.get("steps_made")
    if made and int(made) > plan.warmup_steps:
        lines.append(f"--steps {made}  (so many were made; {plan.steps} were planned)")
    return lines


def gpu_missing(plan: Plan, facts: Mapping[str, str]) -> list[str]:
    return [
        f"the plan has {plan.tasks_per_node} ranks and {plan.gpus_per_node} GPUs on a node: "
        "see that the job got them (nvidia-smi or rocm-smi in the job)",
        "--sbatch exclude=NODE  (if that node should have them and does not)",
    ]


BY_PLAN = {"device_oom": device_oom, "host_oom": host_oom, "walltime": walltime, "gpu_missing": gpu_missing}
"""Causes whose remedy depends on the plan."""

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def size_bytes(text: str | None) -> float | None:
    """Bytes of an amount as torch prints it.

    >>> size_bytes("1.50 GiB")
    1610612736.0
    """
    number, _, unit = (text or "").partition(" ")
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        return None


def filled(remedy: str, facts: Mapping[str, Any]) -> str:
    """The remedy with the facts in its places; a word in capitals where one is not known."""
    package = str(facts.get("package") or "PACKAGE").split(".")[0]  # of a submodule, what brings it
    return remedy.replace("{node}", str(facts.get("node") or "NODE")).replace("{package}", package)
