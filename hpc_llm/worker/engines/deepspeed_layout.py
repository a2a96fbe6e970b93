"""Where DeepSpeed keeps what its optimizer steps: another place for each ZeRO stage and precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.worker.engines.layout import Layout, Part
from hpc_llm.worker.engines.stepping import SCALE

_COUNTERS = ("cur_iter", "last_overflow_iter", "cur_hysteresis")
"""What its loss scaler knows besides the scale."""


def find_layout(module: nn.Module, wrapped: Any, base: torch.optim.Optimizer, stage: int) -> Layout:
    """What trains on this rank, in the fp32 that is stepped.

    `wrapped` is DeepSpeed's optimizer, `base` the one inside. Raises WorkerError where it is on a disk.
    """
    named = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    mapped = any(hasattr(each, "_hp_mapping") for _, each in named)
    if stage == 3:
        parts = list(_of_stage_3(named, wrapped))
    elif mapped:
        parts = list(_of_fragments(named, base))
    else:
        parts = list(_of_copies(named, wrapped))
    if stage != 3 and not mapped:
        return Layout(parts, base)
    return Layout(parts, base, f"ZeRO {stage} on {torch.distributed.get_world_size()} ranks")


def _of_stage_3(named: list[tuple[str, Any]], wrapped: Any) -> Iterator[Part]:
    """Each rank has an equal stretch of each parameter, the last ones with padding; many lie in one flat tensor."""
    for name, each in named:
        group, offset, _ = wrapped.grad_position[wrapped.get_param_id(each)]
        owner, share = wrapped.fp32_partitioned_groups_flat[group], each.ds_tensor.ds_numel
        if owner is None or owner.numel() < offset + share or each.ds_tensor.numel() < share:
            raise WorkerError(
                "what DeepSpeed offloads to a disk (nvme) is not kept: offload to the CPU (device: cpu), or leave --save-every out."
            )
        if getattr(each, "ds_secondary_tensor", None) is not None:
            raise WorkerError("with zero_hpz_partition_size nothing is kept: set it to 1, or leave --save-every out.")
        begin = torch.distributed.get_rank(each.ds_process_group) * share
        yield Part(name, min(begin, each.ds_numel), max(0, min(each.ds_numel - begin, share)), owner, offset)


def _of_fragments(named: list[tuple[str, Any]], base: torch.optim.Optimizer) -> Iterator[Part]:
    """Stages 1 and 2: all parameters of a group in a row, of which each rank steps one part."""
    for name, each in named:
        mapping = each._hp_mapping
        if mapping is not None:  # else other ranks have all of it
            place = mapping.hp_fragment_address
            owner = base.param_groups[mapping.param_group_index]["params"][0]
            yield Part(name, mapping.lp_fragment_address.start, place.numel, owner, place.start)


def _of_copies(named: list[tuple[str, Any]], wrapped: Any) -> Iterator[Part]:
    """Without ZeRO: copies in fp32, one for each parameter or flat ones; none where all is in fp32."""
    names = {id(each): name for name, each in named}
    flat = getattr(wrapped, "fp32_groups_flat", None)
    copies: Any = getattr(wrapped, "fp32_groups", None)
    if flat is None and copies is None:
        yield from (Part(name, 0, each.numel(), each) for name, each in named)
        return
    for number, group in enumerate(wrapped.fp16_groups):
        offset = 0
        for place, each in enumerate(group):
            owner = copies[number][place] if flat is None else flat[number]
            yield Part(names[id(each)], 0, each.numel(), owner, offset)
            offset += each.numel() if flat is not None else 0


def scaler_state(wrapped: Any) -> dict[str, Any]:
    """The scale of losses and what decides when it changes; nothing where none is scaled."""
    scaler = _scaler(wrapped)
    if scaler is None:
        return {}
    counters = {name: getattr(scaler, name) for name in _COUNTERS if hasattr(scaler, name)}
    return {SCALE: float(scaler.cur_scale), "deepspeed_scaler": counters}


def take_scaler_state(wrapped: Any, found: Mapping[str, Any]) -> None:
    """Go on with the scale of another run, whatever engine it had."""
    scaler = _scaler(wrapped)
    if scaler is None or SCALE not in found:
        return
    for name, value in {"cur_scale": found[SCALE], **found.get("deepspeed_scaler", {})}.items():
        setattr(scaler, name, value)


def _scaler(wrapped: Any) -> Any:
    """What holds a scale that changes."""
    places = (getattr(wrapped, name, None) for name in ("loss_scaler", "loss_scale_config"))
    found = next((one for one in (*places, wrapped) if hasattr(one, "cur_scale")), None)
    is_dynamic = getattr(found, "dynamic_loss_scale", getattr(found, "dynamic", False))
    return found if is_dynamic else None
