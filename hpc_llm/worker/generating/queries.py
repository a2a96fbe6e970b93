"""The queries of this rank, in batches of one size, padded on their left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hpc_llm.corpus.facts import read_facts
from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.corpus import PADDING, Tokens
from hpc_llm.worker.data.share import Share
from hpc_llm.worker.data.synthetic import synthetic_sequences


@dataclass(frozen=True)
class Query:
    """One prompt."""

    number: int
    """Its place among all queries, from 0."""
    tokens: torch.Tensor


@dataclass(frozen=True)
class QueryBatch:
    """Queries that are answered together, on the host."""

    queries: tuple[Query, ...]
    """Those that count; more rows may follow, which only fill the batch."""
    tokens: torch.Tensor
    """(batch, longest prompt), padded on the left."""
    real: torch.Tensor
    """The same shape: False where it is padded."""


def queries_of(plan: Plan, vocab_size: int, share: Share) -> list[Query]:
    """The rank's share of the plan's queries.

    Raises WorkerError where they hold tokens that the model has not, and RequestError where the data are not whole.
    """
    wanted = range(share.index, plan.inference.queries or 0, share.count)
    if plan.inference.corpus is None:
        return _made_up(plan, vocab_size, wanted)
    facts = read_facts(Path(plan.inference.corpus))
    if facts.vocabulary > vocab_size:
        raise WorkerError(
            f"the data in {facts.folder} hold token {facts.vocabulary - 1}, the model has {vocab_size} tokens: they were prepared for "
            "another one."
        )
    split = plan.inference.split or ""
    tokens = Tokens(facts, split)
    length = plan.inference.prompt_tokens
    if length is not None:
        spans = [(number * length, length) for number in wanted]
    else:
        samples = facts.samples(split)
        prompted = [(samples.begin(one), start) for one, start in enumerate(samples.starts) if start]
        spans = [prompted[number] for number in wanted]
    return [
        Query(number, tokens.cut(begin, begin + size)[0]) for number, (begin, size) in zip(wanted, spans, strict=True)
    ]


def _made_up(plan: Plan, vocab_size: int, wanted: range) -> list[Query]:
    """The same ones whatever the number of ranks."""
    made = synthetic_sequences(plan, vocab_size, Share(0, 1))
    chosen = itertools.islice(made, wanted.start, wanted.stop, wanted.step)
    return [Query(number, one[: plan.inference.prompt_tokens]) for number, one in zip(wanted, chosen, strict=False)]


def batches(queries: Sequence[Query], size: int) -> Iterator[QueryBatch]:
    """All queries in their order; the last batch is filled with its last query."""
    for begin in range(0, len(queries), size):
        own = tuple(queries[begin : begin + size])
        rows = [*own, *[own[-1]] * (size - len(own))]
        longest = max(len(one.tokens) for one in rows)
        tokens = torch.full((size, longest), PADDING, dtype=torch.int64)
        real = torch.zeros(size, longest, dtype=torch.bool)
        for row, one in enumerate(rows):
            tokens[row, longest - len(one.tokens) :] = one.tokens
            real[row, longest - len(one.tokens) :] = True
        yield QueryBatch(own, tokens, real)


def warmup_batches(queries: Sequence[Query], size: int, count: int) -> Iterator[QueryBatch]:
    """So many batches of the first queries, which are answered once more later on."""
    return itertools.islice(itertools.cycle(batches(queries[: size * count], size)), count)
