"""Batches of token ids, ready before the step that uses them.

Every batch is a tensor of int64 token ids, shape (micro batch, sequence length), on the training device; labels are
the same ids, which the model shifts by one. No two ranks see the same sequence of a text.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.experiment import Plan
from hpc_llm.worker.ranks import Ranks

POOL_TOKENS = 2**20
"""Synthetic tokens kept on the device, at most: 8 MiB, however long the run."""

BYTE_END = 256
"""Token after each text in the byte-level vocabulary, where a token is a byte."""

_CHUNK_CHARACTERS = 2**16
_SHUFFLE_SEQUENCES = 1024
_PREFETCH_BATCHES = 8

Tokenize = Callable[[str], Sequence[int]]


def batches(plan: Plan, vocab_size: int, ranks: Ranks, device: torch.device) -> Iterator[torch.Tensor]:
    """Endless micro batches of this rank, from the plan's text files or made up."""
    if not plan.data:
        return synthetic_batches(plan, vocab_size, ranks.rank, device)
    tokenize, end = find_tokenizer(plan.model, vocab_size)
    sequences = packed_sequences(plan, tokenize, end, ranks)
    return prefetched_batches(sequences, plan.micro_batch_size, device)


def synthetic_batches(plan: Plan, vocab_size: int, rank: int, device: torch.device) -> Iterator[torch.Tensor]:
    """A pool of batches on the device, gone through again and again.

    Token k comes with a frequency of about 1/k, as words do, so there is something to learn and the loss falls.
    """
    shape = (plan.micro_batch_size, plan.sequence_length)
    wanted = plan.steps * plan.gradient_accumulation_steps
    pool = max(1, min(wanted, POOL_TOKENS // (shape[0] * shape[1])))
    generator = torch.Generator(device).manual_seed(plan.seed * 100003 + rank)
    frequencies = 1.0 / torch.arange(3, vocab_size + 3, device=device, dtype=torch.float32)
    drawn = torch.multinomial(frequencies, pool * shape[0] * shape[1], replacement=True, generator=generator)
    return itertools.cycle(drawn.view(pool, *shape).unbind())


def find_tokenizer(model: str, vocab_size: int) -> tuple[Tokenize, int]:
    """The tokenizer of a checkpoint folder, else bytes as tokens; and the token that ends a text."""
    folder = Path(model)
    if (folder / "tokenizer.json").is_file() or (folder / "tokenizer.model").is_file():
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(model, local_files_only=True)
        end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 0
        return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"], end
    if vocab_size <= BYTE_END:
        raise RequestError(
            f"a vocabulary of {vocab_size} is too small for bytes as tokens, which need {BYTE_END + 1}: choose a "
            "larger model, or a checkpoint folder with a tokenizer.json."
        )
    return lambda text: text.encode("utf-8"), BYTE_END


def packed_sequences(plan: Plan, tokenize: Tokenize, end: int, ranks: Ranks) -> Iterator[torch.Tensor]:
    """Endless sequences of this rank, shape (sequence length,): the texts end to end, no padding, nothing twice an epoch.

    Sequence i of the text goes to rank i modulo the world size. Each epoch is shuffled anew within a window, from the
    plan's seed. Raises WorkerError when the text is too short to give each rank one sequence.
    """
    for epoch in itertools.count():
        chooser = random.Random(f"{plan.seed}/{epoch}/{ranks.rank}")
        blocks = _blocks(_tokens(plan.data, tokenize, end), plan.sequence_length)
        mine = itertools.islice(blocks, ranks.rank, None, ranks.world_size)
        empty = True
        for tokens in _shuffled(mine, chooser):
            empty = False
            yield torch.tensor(tokens, dtype=torch.int64)
        if empty:
            raise WorkerError(
                f"the text in {', '.join(plan.data)} is too short: {ranks.world_size} ranks need at least "
                f"{ranks.world_size * plan.sequence_length} tokens. Give more text or a shorter sequence_length."
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
) -> Iterator[torch.Tensor]:
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
        yield item.to(device, non_blocking=True)
