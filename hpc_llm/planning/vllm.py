"""Inference by vLLM's own program, `vllm bench latency`, in place of ours: what it can be asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.planning.draft import Draft
from hpc_llm.planning.parts import Inference, ModelSetup, Parallel

if TYPE_CHECKING:
    from hpc_llm.planning.checkpoint import Checkpoint

NAME = "vllm"
ANSWERING = ("plain", NAME)
"""What a task that generates can be carried out by."""
_NOT_HEEDED = ("temperature", "top_p", "keep_outputs", "split", "stop_at_end", "cuda_graph", "attention")


def is_asked(draft: Draft) -> bool:
    """Whether `--set engine=vllm` is said: it is one process, whatever GPUs it has."""
    return bool(draft.settings.applied("engine", None) == NAME)


def check_answering(name: str) -> str:
    """Raises RequestError where nothing of that name answers."""
    if name not in ANSWERING:
        raise RequestError(unknown_name("engine of task infer", name, ANSWERING))
    return name


def check_bench(
    workload: Inference, model: ModelSetup, found: Checkpoint | None, parallel: Parallel, draft: Draft
) -> None:
    """Raise RequestError or PlanError for what vLLM's program is not told, or cannot do."""
    for name in _NOT_HEEDED:
        if draft.settings.of(name):
            raise RequestError(f"{draft.settings.said(name)}: `vllm bench latency` is not told of it. Leave it out.")
    if workload.data:
        raise RequestError(
            "data are given, and `vllm bench latency` makes prompts up: --set prompt_tokens=N says how long."
        )
    if found is None and "/" not in model.name:
        raise PlanError(
            f"{model.name} is a shape without a folder, and vLLM loads a model by its own: --model DIR, one with config.json; "
            "--set weights=random takes its shape alone."
        )
    if model.quantization is not None and model.quantization.kind != "nf4":
        raise PlanError(
            f"vLLM quantizes weights to nf4 as it loads them, not to {model.quantization.kind}: use method q or ddp."
        )
    if parallel.world_size != 1:
        raise PlanError(
            f"{parallel.world_size} ranks: vLLM is one process, which starts one for each GPU of its node itself. "
            "Leave tasks_per_node and --nodes out."
        )
