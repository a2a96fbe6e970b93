"""Whether a machine can hold a model's weights at all, before a layer of it is made."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import torch

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import architecture, num_parameters

_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
_LEAST_QUANTIZED = 0.5
_SWAP = re.compile(r"^SwapTotal:\s+(\d+) kB", re.MULTILINE)


def refuse_what_never_fits(plan: Plan) -> None:
    """Raise WorkerError where the weights alone take more than the memory of all nodes and their GPUs, where nothing is on disks."""
    try:
        parameters = num_parameters(architecture(plan.model.name))
    except RequestError:  # of another family, whose parameters nobody counts here
        return
    if '"nvme"' in json.dumps(plan.to_dict()):
        return
    each = _LEAST_QUANTIZED if plan.model.quantization else _BYTES[plan.model.precision]
    there = plan.parallel.nodes * memory_of_node()
    if parameters * each > there:
        raise WorkerError(
            f"the weights of {plan.model.name} take {parameters * each / 2**30:.0f} GiB ({parameters:.3g} parameters), and "
            f"{plan.parallel.nodes} node(s) have {there / 2**30:.0f} GiB of host and GPU memory in all: nothing was built. "
            "Choose a smaller model, more nodes, or look at the sizes in its config.json."
        )


def memory_of_node() -> int:
    """Bytes of memory, swap and GPUs that there are here."""
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        swap = _SWAP.search(Path("/proc/meminfo").read_text())
    except OSError:
        swap = None
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    of_gpus = sum(int(torch.cuda.get_device_properties(i).total_memory) for i in range(gpus))
    return host + (int(swap[1]) * 1024 if swap else 0) + of_gpus
