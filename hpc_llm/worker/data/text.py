"""Sequences of a text: end to end, no padding, nothing twice an epoch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import torch

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.share import Share
from hpc_llm.worker.data.tokenizer import Tokenize

_CHUNK_CHARACTERS = 2**16
_SHUFFLE_SEQUENCES = 1024


def packed_sequences(plan: Plan, tokenize: Tokenize, end: int, share: Share) -> Iterator[torch.Tensor]:
    """Endless sequences of this rank, shape (sequence length,): the texts end to end, no padding, nothing twice an epoch.

    Sequence i of the text goes to group i modulo their number. Each epoch is shuffled anew within a window, from the
    plan's seed. Raises WorkerError when the text is too short to give each group one sequence.
    """
    for epoch in itertools.count():
        chooser = random.Random(f"{plan.workload.seed}/{epoch}/{share.index}")
        blocks = _blocks(_tokens(plan.training.data, tokenize, end), plan.batch.sequence_length)
        mine = itertools.islice(blocks, share.index, None, share.count)
        empty = True
        for tokens in _shuffled(mine, chooser):
            empty = False
            yield torch.tensor(tokens, dtype=torch.int64)
        if empty:
            raise WorkerError(
                f"the text in {', '.join(plan.training.data)} is too short: {share.count} rank{'s need' if share.count > 1 else ' needs'} at least "
                f"{share.count * plan.batch.sequence_length} tokens. Give more text or a shorter sequence_length."
            )


def _tokens(paths: Sequence[str], tokenize: Tokenize, end: int) -> Iterator[int]:
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                while chunk := file.readlines(_CHUNK_CHARACTERS):  # whole lines, so no word is cut
                    yield from tokenize("".join(chunk))
        except OSError as error:
            raise WorkerError(f"the text file {path} cannot be read: {error.strerror}.") from error
        yield end


def _blocks(tokens: Iterator[int], length: int) -> Iterator[list[int]]:
    while len(block := list(itertools.islice(tokens, length))) == length:
        yield block


def _shuffled(blocks: Iterator[list[int]], chooser: random.Random) -> Iterator[list[int]]:
    """The blocks, each at most a window away from its place."""
    while window := list(itertools.islice(blocks, _SHUFFLE_SEQUENCES)):
        chooser.shuffle(window)
        yield from window
