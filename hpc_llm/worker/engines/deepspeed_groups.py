"""How DeepSpeed is told which ranks share layers: by an object with methods of Megatron's names, which it calls `mpu`."""

from __future__ import annotations

from typing import Any

from torch import nn

from hpc_llm.worker.tensor_parallel.group import TensorGroup
from hpc_llm.worker.tensor_parallel.split import slice_of


class ModelParallel:
    """The groups of this rank. Of what all ranks of a group have whole, DeepSpeed counts one for the norm of the gradients."""

    def __init__(self, model: nn.Module, tensor: TensorGroup) -> None:
        self._tensor = tensor
        for parameter in model.parameters():
            parameter.tensor_model_parallel = slice_of(parameter) is not None

    def get_model_parallel_rank(self) -> int:
        return self._tensor.rank

    def get_model_parallel_world_size(self) -> int:
        return self._tensor.size

    def get_model_parallel_group(self) -> Any:
        return self._tensor.group

    def get_data_parallel_rank(self) -> int:
        return self._tensor.data_rank

    def get_data_parallel_world_size(self) -> int:
        return self._tensor.data_size

    def get_data_parallel_group(self) -> Any:
        return self._tensor.data_group
