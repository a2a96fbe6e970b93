"""Forward and backward of a micro batch as one CUDA graph: the host sends it with one call, not one for each operation.

A small batch is done faster by the GPU than Python can ask for its operations. What is recorded are the operations of one shape
of batch, with the memory that they use; another shape is recorded anew, a few of them at most, and runs unrecorded beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from hpc_llm.worker.data.batch import LABELS, POSITIONS
from hpc_llm.worker.device import count_hidden, free_in_pools
from hpc_llm.worker.model.causal import whole_samples

Compute = Callable[[Mapping[str, torch.Tensor], torch.Tensor], torch.Tensor]
"""From a batch and the weight of its loss to the loss, with the gradients of the parameters left behind."""

_UNRECORDED = 3
"""Micro batches of a shape that run before it is recorded: libraries choose their kernels and take their memory in them."""
_MOST_SHAPES = 4
_OF_WHOLE_SAMPLES = {"input_ids", LABELS}
"""What a batch holds whose rows are one sample each: nothing by which a model could decide."""
_RECORDABLE = {*_OF_WHOLE_SAMPLES, POSITIONS}
"""Positions that begin anew are looked at on the host only by what cannot be recorded: while it is, transformers makes the mask
that keeps documents apart on the device, from the positions of each batch."""


@dataclass
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: dict[str, torch.Tensor]
    weight: torch.Tensor
    loss: torch.Tensor
    gradients: list[torch.Tensor | None]


def _masks_of(batch: Mapping[str, torch.Tensor]) -> AbstractContextManager[None]:
    """Within, attention goes without a mask where a batch needs none."""
    return whole_samples() if batch.keys() <= _OF_WHOLE_SAMPLES else nullcontext()


class Captured:
    """`compute`, from a graph where it can be. The parameters' gradients are each time added to what they have."""

    def __init__(self, compute: Compute, parameters: Sequence[torch.Tensor], others: str = "global") -> None:
        """`others` is the capture_error_mode of torch: whether calls of other threads can spoil a recording."""
        self.sentences: list[str] = []
        """Why nothing is recorded, where that is so."""
        self._compute = compute
        self._parameters = list(parameters)
        self._seen: dict[object, int] = {}
        self._recorded: dict[object, _Recorded] = {}
        self._stream = torch.cuda.Stream()
        self._is_off = False
        self._others = others

    def takes(self, batch: Mapping[str, torch.Tensor]) -> bool:
        """Whether a batch of this kind may be recorded: with a mask of its own a model may choose its way by what it holds, and a
        replay would go the way of the batch that was recorded."""
        if batch.keys() <= _RECORDABLE:
            return True
        if not self._is_off:
            self._is_off = True
            self.sentences.append("Steps are not recorded as CUDA graphs: these samples come with masks of their own.")
        return False

    def __call__(self, batch: Mapping[str, torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
        shape = tuple((name, tuple(tensor.shape)) for name, tensor in sorted(batch.items()))
        found = self._recorded.get(shape)
        if found is None:
            seen = self._seen[shape] = self._seen.get(shape, 0) + 1
            if self._is_off or seen <= _UNRECORDED or len(self._recorded) >= _MOST_SHAPES:
                return self._beside(batch, weight)
            found = self._record(batch, weight)
            if found is None:
                return self._beside(batch, weight)
            self._recorded[shape] = found
            count_hidden(self._stream.device, free_in_pools([each.graph for each in self._recorded.values()]))
        return self._replay(found, batch, weight)

    def _beside(self, batch: Mapping[str, torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
        """Unrecorded, on the stream on which it will be recorded: what is set up there is set up for the graph too."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), _masks_of(batch):
            loss = self._compute(batch, weight)
        torch.cuda.current_stream().wait_stream(self._stream)
        return loss

    def _record(self, batch: Mapping[str, torch.Tensor], weight: torch.Tensor) -> _Recorded | None:
        kept = [parameter.grad for parameter in self._parameters]
        static = {name: tensor.clone() for name, tensor in batch.items()}
        divisor = weight.clone()
        for parameter in self._parameters:
            parameter.grad = None  # so that a replay writes its gradients and adds them to nothing
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode=self._others), _masks_of(batch):
                loss = self._compute(static, divisor)
            gradients = [parameter.grad for parameter in self._parameters]
        except RuntimeError as error:
            self._is_off = True
            self.sentences.append(
                f"Steps are not recorded as CUDA graphs, for this model cannot be: {str(error).strip().splitlines()[0]}"
            )
            return None
        finally:
            for parameter, before in zip(self._parameters, kept, strict=True):
                parameter.grad = before
        return _Recorded(graph, static, divisor, loss, gradients)

    def _replay(self, found: _Recorded, batch: Mapping[str, torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
        torch._foreach_copy_(list(found.batch.values()), [batch[name] for name in found.batch], non_blocking=True)
        found.weight.copy_(weight)
        pairs = [(p, g) for p, g in zip(self._parameters, found.gradients, strict=True) if g is not None]
        for parameter, gradient in pairs:
            if parameter.grad is gradient:  # of the micro batch before: the replay would write over it
                parameter.grad = gradient.clone()
        found.graph.replay()
        for parameter, gradient in pairs:
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)
        return found.loss.clone()
