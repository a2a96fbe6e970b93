"""Batches of token ids, ready before the step that uses them.

Ranks that share a batch (one data-parallel group) get the same sequences, no two groups get the same sequence of a text.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.checkpoint import has_tokenizer
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.synthetic import EIGHTHS, make_chain
from hpc_llm.worker.ranks import Ranks

MASKED = -100
"""Label of a token that is not to be predicted, as in torch and transformers."""

BYTE_END = 256
"""Token after each text in the byte-level vocabulary, where a token is a byte."""

_CHUNK_TOKENS = 2**17
_CHUNK_CHARACTERS = 2**16
_SHUFFLE_SEQUENCES = 1024
_PREFETCH_BATCHES = 8

Tokenize = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Share:
    """Which samples a rank trains on: those of group `index` of `count`."""

    index: int
    count: int


@dataclass(frozen=True)
class Batch:
    """A micro batch on the training device. Shapes are (micro batch, sequence length), types int64."""

    tokens: torch.Tensor
    labels: torch.Tensor | None = None
    """The tokens with MASKED where none is to be predicted; None where each is. A source masks always or never."""

    def targets(self) -> int | torch.Tensor:
        """How many tokens are predicted; a number on the device where it depends on the labels."""
        if self.labels is None:
            return self.tokens.shape[0] * (self.tokens.shape[1] - 1)  # the first one has nothing before it
        return (self.labels[:, 1:] != MASKED).sum()


def share_of(plan: Plan, ranks: Ranks) -> Share:
    """The samples of this rank."""
    return Share(ranks.rank * plan.parallel.data // ranks.world_size, plan.parallel.data)


def batches(plan: Plan, vocab_size: int, ranks: Ranks, device: torch.device) -> Iterator[Batch]:
    """Endless micro batches of this rank, from the plan's text files or made up."""
    share = share_of(plan, ranks)
    if plan.training.data:
        tokenize, end = find_tokenizer(plan.model.name, vocab_size, loaded=plan.model.weights == "checkpoint")
        sequences = packed_sequences(plan, tokenize, end, share)
    else:
        sequences = synthetic_sequences(plan, vocab_size, share)
    return prefetched_batches(sequences, plan.batch.micro_batch_size, device)


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


def find_tokenizer(model: str, vocab_size: int, loaded: bool = False) -> tuple[Tokenize, int]:
    """The tokenizer of a checkpoint folder, else bytes as tokens; and the token that ends a text.

    Bytes are refused for weights that were `loaded`: they have learned other tokens.
    """
    if has_tokenizer(Path(model)):
        return _own_tokenizer(model, vocab_size)
    if loaded:
        raise WorkerError(f"the folder {model} holds no tokenizer, and its model knows no other tokens.")
    if vocab_size <= BYTE_END:
        raise RequestError(
            f"a vocabulary of {vocab_size} is too small for bytes as tokens, which need {BYTE_END + 1}: choose a "
            "larger model, or a checkpoint folder with a tokenizer.json."
        )
    return lambda text: text.encode("utf-8"), BYTE_END


def _own_tokenizer(folder: str, vocab_size: int) -> tuple[Tokenize, int]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 0

    def tokenize(text: str) -> Sequence[int]:
        tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        highest = max(tokens, default=0)
        if max(highest, end) >= vocab_size:  # on a GPU it would end in an assertion that names nothing
            raise WorkerError(
                f"the tokenizer in {folder} gives token {max(highest, end)}, its model has {vocab_size} tokens."
            )
        return tokens

    return tokenize, end


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
                f"the text in {', '.join(plan.training.data)} is too short: {share.count} ranks need at least "
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


def prefetched_batches(
    sequences: Iterator[torch.Tensor], micro_batch_size: int, device: torch.device
) -> Iterator[Batch]:
    """Batches that a thread puts together ahead of time; an error there is raised here."""
    ready: queue.Queue[torch.Tensor | BaseException] = queue.Queue(maxsize=_PREFETCH_BATCHES)

    def produce() -> None:
        try:
            while True:
                batch = torch.stack(list(itertools.islice(sequences, micro_batch_size)))
                ready.put(batch.pin_memory() if device.type == "cuda" else batch)
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=produce, name="data", daemon=True).start()
    while True:
        item = ready.get()
        if isinstance(item, BaseException):
            raise item
        yield Batch(item.to(device, non_blocking=True))
