"""What to do about a run of ours, as lines with the exact flags and with the numbers of its plan.

Nothing is advised that the run has already, or that its plan says would fail for the same reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from hpc_llm.diagnosis.case import Case, takes_options
from hpc_llm.diagnosis.device_memory import (
    against_pieces,
    elsewhere,
    in_words_of_vendor,
    is_filled_by_others,
    is_in_pieces,
    is_refused,
    is_shared,
    one_too_large,
    who_refuses,
)
from hpc_llm.diagnosis.elsewhere import in_general, where_it_infers
from hpc_llm.diagnosis.exceptions import python_exception
from hpc_llm.diagnosis.less_device import fewer_states, steps_down
from hpc_llm.diagnosis.less_host import host_oom, weights_too_large
from hpc_llm.diagnosis.more_time import limits, same_gpu, walltime
from hpc_llm.diagnosis.packages import command_missing, mismatched, missing
from hpc_llm.diagnosis.phases import is_of_no_batch, remedy_in, remedy_on_host_in
from hpc_llm.errors import counted
from hpc_llm.planning.engines import offload_place
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.recipe import frozen_by, learning_rate
from hpc_llm.planning.settings import parse_value
from hpc_llm.records.metrics import has_bf16
from hpc_llm.text.secrecy import redacted


def device_oom(case: Case) -> list[str]:
    """The ladder for this plan, after what the message itself points at."""
    lines, plan, facts = [], case.plan, case.facts
    settings = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"
    own = {**(case.cluster.env.common if case.cluster else {}), **plan.job.env}
    option = against_pieces(facts).partition("=")[2].partition(":")[0]
    is_set = any(
        words in own.get(name, "") for name in settings for words in (f"{option}:", "expandable_segments:True")
    )
    if is_in_pieces(facts) and not is_set:
        lines.append(f"--set env.{against_pieces(facts)}  (more was reserved and unused than was asked for)")
    if is_refused(facts):
        return [*lines, *who_refuses(facts)]
    less = fewer_states if is_of_no_batch(facts) else steps_down
    if not is_shared(facts):
        return [*lines, *less(case)]
    lines += [_not_alone(plan), _SEE_WHOSE]
    return lines if is_filled_by_others(facts) else [*lines, *less(case)]


_SEE_WHOSE = (
    "see whose it is: `nvidia-smi` or `rocm-smi` on the node; where it is another rank of the run, give each a GPU of its own: "
    "as many ranks on a node as GPUs"
)


def _not_alone(plan: Plan) -> str:
    held = "another process held the GPU's memory"
    if not takes_options(plan):
        return f"{held}: end it, or choose another GPU (`nvidia-smi` or `rocm-smi` shows which is free)"
    if "exclusive" in plan.job.sbatch:
        return f"{held}, though the job asked for the node alone: tell the site"
    return f"--sbatch exclusive  ({held}: no other job then has a part of the node)"


def gpu_missing(case: Case) -> list[str]:
    plan, node = case.plan, case.facts.get("node")
    ranks, gpus = counted(plan.parallel.tasks_per_node, "rank"), counted(plan.parallel.gpus_per_node, "GPU")
    lines = [
        f"the plan has {ranks} and {gpus} on a node: see that the job got them (nvidia-smi or rocm-smi in the job)"
    ]
    if takes_options(plan) and node:
        nodes = ",".join(filter(None, (plan.job.sbatch.get("exclude"), node)))
        lines.append(f"--sbatch exclude={nodes}  (if that node should have them and does not)")
    return lines


def _usual_rate(plan: Plan) -> float:
    """The learning rate that planning would choose, as far as the model can be seen from here."""
    frozen = frozen_by(lora=plan.model.peft is not None, quantized=plan.model.quantization is not None)
    return learning_rate(plan.model.name, None, frozen)[0]


def _numbers(case: Case) -> list[str]:
    """For numbers that ran away: less of a step, a wider range, and what is not set yet."""
    plan, lines = case.plan, []
    rate = plan.optimizer.lr
    if isinstance(rate, (int, float)) and rate > 0:
        usual = _usual_rate(plan)
        if rate > 10 * usual:
            lines.append(f"--set optimizer.lr={usual:g}  (what this model's width suggests, it was {rate:g})")
        else:
            lines.append(f"--set optimizer.lr={rate / 3:.1g}  (a smaller learning rate, it was {rate:g})")
    if not plan.engine.deepspeed.get("gradient_clipping"):
        lines.append("--set deepspeed.gradient_clipping=1.0  (there was none)")
    if plan.model.fp8:
        lines.append("--set fp8=false  (products in bf16, whose range and digits are more)")
    gpu = case.cluster.gpu_of(case.partition) if case.cluster else None
    known = has_bf16(plan.gpu.model or "") if gpu is None or gpu.capabilities is None else gpu.capabilities.bf16
    if plan.model.precision == "fp16" and known:
        lines.append("--set precision=bf16  (its range is that of fp32)")
    elif plan.model.precision == "fp16" and known is None:
        lines.append("--set precision=fp32  (twice the memory and slower; bf16 where the GPU has it)")
    elif plan.model.precision == "fp16":
        lines.append("--set precision=fp32  (this GPU has no bf16: twice the memory and slower)")
    return [*lines, "if it is so from the first step, look at the data and the checkpoint"]


def preempted(case: Case) -> list[str]:
    lines = ["submit it again as it is: nothing is wrong with it"]
    others = [name for name in limits(case) if "preempt" not in name and same_gpu(case, name)]
    fitting = [name for name in others if (case.plan.job.time_s or 0) <= limits(case)[name]]
    if case.plan.job.partition and "preempt" in case.plan.job.partition and fitting:
        lines.append(f"--partition {fitting[0]}  (nobody is preempted there, as far as its name tells)")
    return lines


def page_locked(case: Case) -> list[str]:
    """What host memory does, after the pages that are pinned without need."""
    deepspeed = case.plan.engine.deepspeed
    lines = [
        f"--set deepspeed.zero_optimization.offload_{part}.pin_memory=false  (page-locked memory ran out)"
        for part in ("optimizer", "param")
        if offload_place(deepspeed, part) and deepspeed["zero_optimization"][f"offload_{part}"].get("pin_memory")
    ]
    return [*lines, *host_oom(case)]


BY_PLAN: dict[str, Callable[[Case], list[str]]] = {
    "device_oom": device_oom,
    "host_oom": host_oom,
    "walltime": walltime,
    "gpu_missing": gpu_missing,
    "gpu_shared": gpu_missing,
    "nan_loss": _numbers,
    "loss_scale_collapse": _numbers,
    "preempted": preempted,
}
"""Causes whose remedy depends on the plan."""


def device_oom_elsewhere(facts: Mapping[str, Any]) -> list[str]:
    """What the amounts say first, then what helps in general, unless others filled the GPU."""
    if too_large := one_too_large(facts):
        return too_large
    lines = [in_words_of_vendor(line, facts.get("vendor")) for line in elsewhere(facts)]
    if is_refused(facts):
        return lines
    if facts.get("phase") and not (lines and is_filled_by_others(facts)):
        return [*lines, *remedy_in(facts)]
    if facts.get("engine") and not (lines and is_filled_by_others(facts)):
        return [*lines, *(where_it_infers("device_oom") or "").splitlines()]
    return lines if not lines or is_filled_by_others(facts) else [*lines, *in_general("device_oom")]


def host_oom_elsewhere(facts: Mapping[str, Any]) -> list[str]:
    """What helps where a data loader's worker was killed, where the process that ran out only infers, or evaluated; nothing else of its own."""
    if "weights" in facts:
        return weights_too_large(facts)
    usual = (where_it_infers("host_oom") or "").splitlines() if facts.get("engine") else remedy_on_host_in(facts)
    return [_FEWER_WORKERS, *(usual or in_general("host_oom"))] if facts.get("killed") else usual


_FEWER_WORKERS = "fewer data loader workers (num_workers), as it was one of them that was killed: each may hold a copy of the data and what it has read ahead"


def module_missing(facts: Mapping[str, Any]) -> list[str]:
    """Which module was looked for, and where a run of ours did; nothing where that is not known."""
    module, cluster = str(facts.get("module") or ""), facts.get("cluster")
    if not module:
        return []
    name = module.partition("/")[0]
    if not cluster:
        return [
            f"see which versions there are on a login node: `module avail {name}`, `module spider {name}`; then correct {module} in the script"
        ]
    return [
        f"see which versions there are: `module avail {name}` or `module spider {name}` on a login node of {cluster}",
        f"then correct {module} in prelude.load of the profile (`hpc-llm clusters {cluster}` shows it, and its file)",
    ]


BY_FACTS: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "device_oom": device_oom_elsewhere,
    "host_oom": host_oom_elsewhere,
    "module_missing": module_missing,
    "python_exception": python_exception,
    "package_missing": missing,
    "command_missing": command_missing,
    "driver_mismatch": mismatched,
}
"""Causes whose remedy depends on what the evidence names, whoever's run it was."""


def without_what_it_has(remedy: str, plan: Plan) -> str:
    """The lines that change something about a run of that plan."""
    lines = [line for line in remedy.splitlines() if not _has(plan, line)]
    return "\n".join(lines) or "it has already what usually helps: what to change is for you to decide"


def _has(plan: Plan, line: str) -> bool:
    """Whether the line asks for what the plan has, or for what has no meaning where it ran."""
    if not takes_options(plan) and "--sbatch" in line:
        return True
    settings = re.findall(r"--set ([\w.]+)=([\w.:-]+)", line)
    options = re.findall(r"--sbatch ([a-z-]+)=([\w.-]+)", line)
    if not settings and not options:
        return False
    values = plan.flat()
    return all(_value(values, path) == parse_value(text) for path, text in settings) and all(
        plan.job.sbatch.get(name) == value for name, value in options
    )


def _value(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


_PLACE = re.compile(r"\{([a-z]\w{0,20})\}")
"""Where in a remedy a fact stands."""


def filled(remedy: str, facts: Mapping[str, Any]) -> str:
    """The remedy with the facts in its places; a line whose fact is not known is left out, unless it is the only one."""
    known = {name: redacted(str(value)) for name, value in facts.items() if value} | {
        "package": str(facts.get("package") or "").split(".")[0],  # of a submodule, what brings it
        **{name: shlex.quote(str(facts[name])) for name in ("env", "folder") if facts.get(name)},
    }
    lines = [line for line in remedy.splitlines() if all(map(known.get, _PLACE.findall(line)))]
    return _PLACE.sub(lambda place: known.get(place[1]) or place[1].upper(), "\n".join(lines) or remedy)
