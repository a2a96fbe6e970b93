"""Parameters of some layers as one row of numbers: whole on each rank as the layers compute with it, a share of it in fp32.

A row is gathered, summed, stepped and rounded by one call each, however many parameters lie in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.worker.engines.layout import Part

_ALIGNED = 64
"""Numbers: compiled kernels read from addresses that 16 divides, and each rank's share begins at one that 128 does."""

Named = tuple[str, nn.Parameter]


@dataclass(frozen=True)
class Piece:
    """One parameter's place in a row."""

    name: str
    parameter: nn.Parameter
    begin: int

    @property
    def end(self) -> int:
        """Where the next one may begin."""
        return self.begin + int(self.parameter.numel())

    def of(self, row: torch.Tensor) -> torch.Tensor:
        """Its stretch of a row, in its own shape."""
        return row[self.begin : self.end].view(self.parameter.shape)


class Unit:
    """Parameters that lie in one row from now on. What lies between them is 0 and stays so."""

    on_host = False
    """Whether `own` lies on the host, and the whole row nowhere for long."""

    def __init__(self, named: Sequence[Named], ranks: int, rank: int, *, copies: bool = True) -> None:
        """Without `copies` the share that is stepped is made elsewhere."""
        self.pieces: list[Piece] = []
        end = 0
        for name, parameter in named:
            self.pieces.append(Piece(name, parameter, end))
            end = _up(self.pieces[-1].end, _ALIGNED)
        self.size = _up(end, _ALIGNED * ranks)
        self.begin, self.end = rank * self.size // ranks, (rank + 1) * self.size // ranks
        self.device = named[0][1].device
        self.own = self._take_over(named[0][1])
        self.has_copy = copies and self.own.dtype != torch.float32
        """Whether what is stepped is another tensor than the row."""
        self.share = self.own.float() if self.has_copy else self.own

    def _take_over(self, first: torch.Tensor) -> torch.Tensor:
        """Let the parameters lie in the row; this rank's share of that."""
        self.whole = torch.zeros(self.size, dtype=first.dtype, device=first.device)
        with torch.no_grad():
            for piece in self.pieces:
                place = piece.of(self.whole)
                place.copy_(piece.parameter)
                piece.parameter.data = place  # what it had is free before the next one is moved
        return self.whole[self.begin : self.end]

    def gaps(self) -> Iterator[slice]:
        """The stretches in which no parameter lies."""
        ends = [0, *(piece.end for piece in self.pieces)]
        for end, begin in zip(ends, [*(piece.begin for piece in self.pieces), self.size], strict=True):
            if end < begin:
                yield slice(end, begin)

    def parts(self) -> Iterator[Part]:
        """What of each parameter lies in this rank's share."""
        for piece in self.pieces:
            begin, end = max(piece.begin, self.begin), min(piece.end, self.end)
            if begin < end:
                yield Part(piece.name, begin - piece.begin, end - begin, self.share, begin - self.begin)

    def round_share(self) -> None:
        """Put this rank's share into the row, in the row's precision."""
        if self.has_copy:
            self.own.copy_(self.share)

    def gather(self) -> None:
        """Fill the row with the shares of all ranks. Collective."""
        gather(self.whole, self.own)

    def held(self) -> list[torch.Tensor]:
        """What there is of its parameters."""
        return [self.whole]


def gather(whole: torch.Tensor, own: torch.Tensor) -> None:
    """Fill `whole` with what lies at `own` of it on each rank. Collective."""
    if whole.is_cuda:
        dist.all_gather_into_tensor(whole, own)  # in place, as NCCL allows
    else:
        dist.all_gather_into_tensor(whole, own.clone())


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def grouped(model: nn.Module, layers: Iterable[nn.Module], size: int) -> list[list[Named]]:
    """The parameters of `size` layers at a time; those before, between and behind layers for themselves; in the model's order."""
    layer_of: dict[int, int] = {}
    for number, layer in enumerate(layers):
        for parameter in layer.parameters():
            layer_of.setdefault(id(parameter), number)
    groups: dict[tuple[str, int, torch.dtype], list[Named]] = {}
    last = -1
    for name, parameter in model.named_parameters():
        found = layer_of.get(id(parameter))
        last = last if found is None else found
        place = ("behind layer", last) if found is None else ("layers", found // size)
        groups.setdefault((*place, parameter.dtype), []).append((name, parameter))
    return list(groups.values())
