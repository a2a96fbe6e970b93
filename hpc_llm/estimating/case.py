"""One run as its memory sees it: what trains, in which types, split among how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpc_llm.estimating.sizes import Sizes
from hpc_llm.planning.engines import offload_place, zero_stage
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import PURE_BF16
from hpc_llm.planning.recompute import spread

WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number."""


@dataclass(frozen=True)
class Case:
    """A plan and the sizes of its model."""

    plan: Plan
    sizes: Sizes

    @property
    def ranks(self) -> int:
        return self.plan.parallel.data

    @property
    def shares(self) -> int:
        """Among how many ranks what an engine splits by itself is split."""
        return self.ranks // (self.plan.parallel.nodes if self.plan.engine.hybrid_sharding else 1)

    @property
    def tokens(self) -> int:
        """Of one micro batch."""
        return self.plan.batch.micro_batch_size * self.plan.batch.sequence_length

    @property
    def width(self) -> int:
        """Bytes of an activation, and of a weight as it multiplies."""
        return WIDTHS[self.plan.model.precision]

    @property
    def is_adapted(self) -> bool:
        return self.plan.model.peft is not None

    @property
    def is_quantized(self) -> bool:
        return self.plan.model.quantization is not None

    @property
    def is_int8(self) -> bool:
        how = self.plan.model.quantization
        return how is not None and how.kind == "int8"

    @cached_property
    def packed(self) -> int:
        """Numbers that are quantized."""
        return (
            sum(many * rows * columns for many, rows, columns in self.sizes.quantizable()) if self.is_quantized else 0
        )

    @cached_property
    def packed_bytes(self) -> int:
        """With their scales: a byte for each 64 numbers and one number in fp32 for 256 of these, or one in fp32 for each 64."""
        how = self.plan.model.quantization
        if how is None:
            return 0
        if self.is_int8:
            return self.packed + sum(4 * many * rows for many, rows, _ in self.sizes.quantizable())
        return int(self.packed * (0.5 + (1 / 64 + 4 / 64 / 256 if how.double_quant else 4 / 64)))

    @cached_property
    def adapters(self) -> int:
        """Numbers in adapters."""
        peft = self.plan.model.peft
        return 0 if peft is None else self.sizes.adapted(peft.target_modules, peft.r)

    @cached_property
    def trained(self) -> int:
        """Numbers that train."""
        return self.adapters if self.is_adapted else self.sizes.parameters - self.packed

    @property
    def frozen(self) -> int:
        """Numbers that neither train nor are quantized."""
        return self.sizes.parameters - self.packed if self.is_adapted else 0

    def recomputed(self, layers: int) -> list[int]:
        """Which of so many layers in a row are recomputed, counted from 0."""
        return spread(self.plan.model.recompute, layers)

    @property
    def accumulates(self) -> bool:
        """Whether gradients of one micro batch are there while the next one is computed."""
        return self.plan.batch.gradient_accumulation_steps > 1

    def sum_of_gradients(self, size: int) -> dict[str, int]:
        """The term for gradients of earlier micro batches, `size` bytes where there are any."""
        return {"gradients of earlier micro batches": size} if self.accumulates else {}

    @property
    def kind(self) -> str:
        """How well runs like it were measured: a key of the constants' precision."""
        if not self.offloads("optimizer"):
            return "counted"
        return "parameters offloaded" if self.stage == 3 else "optimizer offloaded"

    @property
    def trains_root(self) -> bool:
        """Whether embeddings and output head train."""
        return not self.is_adapted

    @property
    def moments_width(self) -> int:
        """Bytes of both moments of the optimizer, for each number that trains."""
        kind = self.plan.optimizer.type
        if kind in PURE_BF16:
            return 4
        return 2 if "8bit" in kind.lower() else 8

    @property
    def paged_bytes(self) -> int:
        """Of the moments of a paged optimizer, which lie in memory that GPU and host share, outside of torch's allocator."""
        if "paged" not in self.plan.optimizer.type.lower() or not self.plan.parallel.gpus_per_node:
            return 0
        is_split = self.stage > 0 or self.plan.engine.name == "fsdp2"
        return self.moments_width * self.trained // (self.shares if is_split else 1)

    @property
    def zero(self) -> Mapping[str, Any]:
        """DeepSpeed's block about what is split."""
        found: Mapping[str, Any] = self.plan.engine.deepspeed.get("zero_optimization") or {}
        return found

    @property
    def stage(self) -> int:
        return zero_stage(self.plan.engine.deepspeed)

    def offloads(self, what: str) -> bool:
        """Whether `optimizer` or `param` are on the host, or on a disk."""
        return offload_place(self.plan.engine.deepspeed, what) is not None
