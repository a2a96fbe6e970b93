"""Sequences that are made up: the Markov chain of `plan.synthetic`, whose entropy is known."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.synthetic import EIGHTHS, make_chain
from hpc_llm.worker.data.share import Share

_CHUNK_TOKENS = 2**17


def synthetic_sequences(plan: Plan, vocab_size: int, share: Share) -> Iterator[torch.Tensor]:
    """Endless sequences of the seed's Markov chain. Drawn on the host, so that every device gets the same ones."""
    chain = make_chain(plan.workload.seed, vocab_size)
    names, jumps = torch.tensor(chain.names), torch.tensor(chain.jumps)[torch.tensor(EIGHTHS)]
    generator = torch.Generator().manual_seed(plan.workload.seed * 100003 + share.index)
    shape = (max(1, _CHUNK_TOKENS // plan.batch.sequence_length), plan.batch.sequence_length)
    while True:
        moves = jumps[torch.randint(len(EIGHTHS), shape, generator=generator)]
        moves[:, 0] = torch.randint(len(names), (shape[0],), generator=generator)
        yield from names[moves.cumsum(dim=1) % len(names)].unbind()
