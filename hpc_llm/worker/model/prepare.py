"""From a model that is there to one that trains: adapters, recompute, the training mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from torch import nn

from hpc_llm.errors import WorkerError, unknown_name
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import Lora
from hpc_llm.planning.recompute import Share, spread
from hpc_llm.worker.compiled_late import compiled_when_called
from hpc_llm.worker.model.flops import full_shape
from hpc_llm.worker.model.shapes import rows_of_layers


def prepare(model: Any, plan: Plan) -> Any:
    """`model` as the plan trains it: with LoRA it is wrapped, else it is changed in place."""
    model.config.use_cache = False
    if plan.model.peft is not None:
        model = _with_lora(model, plan.model.peft)
    if plan.model.recompute:
        recompute(model, plan.model.recompute)
    model.train()
    return model


def _with_lora(model: Any, peft: Lora) -> Any:
    if peft.kind != "lora":
        raise WorkerError(unknown_name("peft kind", peft.kind, ("lora",)))
    with compiled_when_called():  # it imports bitsandbytes
        from peft import LoraConfig, get_peft_model

    how = LoraConfig(
        r=peft.r,
        lora_alpha=peft.alpha,
        lora_dropout=peft.dropout,
        target_modules=peft.target_modules,
        task_type="SEQ_2_SEQ_LM" if getattr(model.config, "is_encoder_decoder", False) else "CAUSAL_LM",
    )
    # The adapters stay in the model's own precision: DeepSpeed keeps the fp32 copy and wants one type throughout.
    return get_peft_model(model, how, autocast_adapter_dtype=False)


def recompute(model: Any, share: Share) -> None:
    """Recompute activations in the backward pass instead of keeping them, in that share of each row of layers."""
    switch = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    # Without dropout nothing random is done twice, and a state that is read cannot be recorded in a CUDA graph.
    draws = any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())
    switch({"use_reentrant": False, "preserve_rng_state": draws})
    if share is not True:
        rows = list(rows_of_layers(model))
        _only(
            model, [row[one] for row in rows for one in spread(share, len(row))], [each for row in rows for each in row]
        )


def _only(model: nn.Module, chosen: Sequence[nn.Module], layers: Sequence[nn.Module]) -> None:
    """Of `layers`, all of which recompute, let all but the chosen ones keep their activations."""
    for layer in layers:
        if hasattr(layer, "gradient_checkpointing"):
            layer.gradient_checkpointing = layer in chosen
    for module in model.modules():
        again = vars(module).get("_gradient_checkpointing_func")
        if (
            again is not None and module not in layers
        ):  # before transformers 4.53 what holds layers decides for each of them
            module._gradient_checkpointing_func = partial(_where_chosen, again, frozenset(chosen))


def _where_chosen(
    again: Callable[..., Any], chosen: Collection[nn.Module], call: Any, *args: Any, **kwargs: Any
) -> Any:
    """What `call`, a method of a layer, gives: recomputed by `again` where the layer is a chosen one."""
    method = call.func if isinstance(call, partial) else call
    is_chosen = getattr(method, "__self__", None) in chosen
    return again(call, *args, **kwargs) if is_chosen else call(*args, **kwargs)


def stop_dropout(model: nn.Module) -> None:
    """Let the model compute as it evaluates. `model.train()` undoes it.

    bitsandbytes' layers are left as they train: on a CPU the first pass of one that does not would pack its weights anew,
    with coarser scales, for good.
    """
    model.eval()
    for module in model.modules():
        if type(module).__module__.startswith("bitsandbytes."):
            module.training = True


def parameter_types(model: nn.Module) -> dict[str, list[str]]:
    """In which types the parameters are that train, and those that do not; packed ones are in the type they are stored in."""
    found: dict[str, set[str]] = {"trained": set(), "frozen": set()}
    for parameter in model.parameters():
        kind = str(parameter.dtype).removeprefix("torch.")
        found["trained" if parameter.requires_grad else "frozen"].add(kind)
    return {what: sorted(kinds) for what, kinds in found.items()}


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """(all, trainable) parameters of the whole model, however they are split or packed."""
    sizes = [(math.prod(full_shape(parameter)), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
