"""Rows of prepared data as tensors: mapped into memory, cut and padded to one length, so that each batch has the same shape.

A row holds what the model takes and `labels`, MASKED where nothing is to be learned.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.format import SplitFiles
from hpc_llm.corpus.rows import Rows, Samples, check_lengths, make_rows, stream_rows
from hpc_llm.corpus.trust import facts_of
from hpc_llm.corpus.words import DOCUMENTS, NONE, REFUSE, STREAM
from hpc_llm.errors import DataFileError, WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import open_plain, read_json
from hpc_llm.worker.data.batch import ATTENTION_MASK, DECODER_INPUT, LABELS, MASKED, POSITIONS

PADDING = 0
"""Token where there is none: it is masked, or lies behind all that is not."""

Row = dict[str, torch.Tensor]


class RowsOfTensors(Protocol):
    """The rows of one split, by number."""

    def __len__(self) -> int: ...

    def row(self, number: int) -> Row:
        """Tensors of one dimension; the same names and lengths for each row."""


def open_rows(plan: Plan, split: str, vocab_size: int, *, is_evaluated: bool = False) -> RowsOfTensors:
    """The rows of a split of the plan's data, as its packing has them; where they are evaluated no token is left out.

    Raises:
        RequestError: there are no such data, they are not whole, or a sample is too long.
        WorkerError: they hold tokens that the model has not, or this transformers cannot keep documents apart.
    """
    training, length = plan.training, plan.batch.sequence_length
    assert training.corpus is not None
    facts = facts_of(Path(training.corpus), training.data)
    if facts.vocabulary > vocab_size:
        raise WorkerError(
            f"the data in {facts.folder} hold token {facts.vocabulary - 1}, the model has {vocab_size} tokens: they were prepared for "
            "another one."
        )
    tokens = Tokens(facts, split)
    if training.packing == STREAM:
        return Stream(
            tokens,
            length,
            stream_rows(len(tokens), length, with_rest=is_evaluated),
            has_labels=not facts.is_text or is_evaluated,
        )
    samples = facts.samples(split)
    packing, too_long = training.packing or NONE, training.too_long or REFUSE
    check_lengths(facts.split(split), split, length, too_long, is_causal=facts.is_causal)
    rows = make_rows(samples, packing, length, too_long, is_causal=facts.is_causal)
    if not facts.is_causal:
        return Pairs(
            tokens, samples, rows, length, min(facts.split(split).longest_target, length), _decoder_start(plan)
        )
    if packing == DOCUMENTS:
        _check_documents_stay_apart()
        return Documents(tokens, samples, rows, length)
    return Padded(tokens, samples, rows, length)


def _decoder_start(plan: Plan) -> int:
    """The token in front of what is written."""
    config = read_json(Path(plan.model.name) / "config.json") or {}
    found = next(
        (config[key] for key in ("decoder_start_token_id", "pad_token_id") if config.get(key) is not None), PADDING
    )
    return int(found)


def _check_documents_stay_apart() -> None:
    """Raise WorkerError for a transformers that takes positions which begin anew for one long text, and says nothing."""
    try:
        from transformers.masking_utils import find_packed_sequence_indices  # noqa: F401
    except ImportError:
        import transformers

        raise WorkerError(
            f"packing=documents needs transformers 4.53 or newer, here is {transformers.__version__}, which lets documents see each "
            "other. Use --set packing=none."
        ) from None


class Tokens:
    """All tokens of a split, mapped and not read."""

    def __init__(self, facts: CorpusFacts, split: str) -> None:
        self._count = facts.split(split).tokens
        self._path, self._vocabulary = SplitFiles(facts.folder, split).tokens, facts.vocabulary
        with open_plain(self._path) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._tokens = torch.frombuffer(mapped, dtype=torch.int32)

    def __len__(self) -> int:
        return self._count

    def cut(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, and the same as labels; both int64. Raises DataFileError for a token that no model of these data has."""
        coded = self._tokens[begin:end].long()
        is_given = coded < 0
        tokens = torch.where(is_given, ~coded, coded)
        if tokens.numel() and (highest := int(tokens.max())) >= self._vocabulary:
            raise DataFileError(
                f"{self._path} holds token {highest}, and its data have {self._vocabulary} tokens: it is damaged. Remove the folder and "
                "prepare the data anew."
            )
        return tokens, coded.masked_fill(is_given, MASKED)


class Stream:
    """Rows cut from all samples end to end."""

    def __init__(self, tokens: Tokens, length: int, count: int, *, has_labels: bool) -> None:
        self._tokens, self._length, self._count, self._has_labels = tokens, length, count, has_labels

    def __len__(self) -> int:
        return self._count

    def row(self, number: int) -> Row:
        begin = number * self._length
        tokens, labels = self._tokens.cut(begin, begin + self._length)
        if not self._has_labels:
            return {"input_ids": tokens}
        return {"input_ids": _padded(tokens, self._length, PADDING), LABELS: _padded(labels, self._length, MASKED)}


class _OfSamples:
    """Rows that are made of whole samples."""

    def __init__(self, tokens: Tokens, samples: Samples, rows: Rows, length: int) -> None:
        self._tokens, self._samples, self._rows, self._length = tokens, samples, rows, length

    def __len__(self) -> int:
        return len(self._rows)

    def _sample(self, sample: int) -> tuple[torch.Tensor, torch.Tensor]:
        begin = self._samples.begin(sample)
        return self._tokens.cut(begin, begin + min(self._samples.length(sample), self._length))


class Padded(_OfSamples):
    """One sample a row."""

    def row(self, number: int) -> Row:
        tokens, labels = self._sample(self._rows.of(number)[0])
        return {
            "input_ids": _padded(tokens, self._length, PADDING),
            ATTENTION_MASK: _padded(torch.ones_like(tokens), self._length, 0),
            LABELS: _padded(labels, self._length, MASKED),
        }


class Documents(_OfSamples):
    """Several samples a row, which positions that begin anew keep apart; what is left of the row is a document by itself.

    A mask would let them see each other: with one, even of ones, transformers does not look at the positions.
    """

    def row(self, number: int) -> Row:
        parts = [self._sample(sample) for sample in self._rows.of(number)]
        for _, labels in parts:
            labels[0] = MASKED  # nothing of the document in front may predict it
        left = self._length - sum(len(tokens) for tokens, _ in parts)
        positions = [torch.arange(size) for size in (*(len(tokens) for tokens, _ in parts), left)]
        return {
            "input_ids": _padded(torch.cat([tokens for tokens, _ in parts]), self._length, PADDING),
            POSITIONS: torch.cat(positions),
            LABELS: _padded(torch.cat([labels for _, labels in parts]), self._length, MASKED),
        }


class Pairs(_OfSamples):
    """What an encoder reads and a decoder writes; the labels stand where the decoder predicts them."""

    def __init__(self, tokens: Tokens, samples: Samples, rows: Rows, length: int, written: int, start: int) -> None:
        super().__init__(tokens, samples, rows, length)
        self._written, self._start = written, start

    def row(self, number: int) -> Row:
        sample = self._rows.of(number)[0]
        begin, size = self._samples.begin(sample), self._samples.length(sample)
        border = begin + self._samples.starts[sample]
        source, _ = self._tokens.cut(begin, min(border, begin + self._length))
        target, labels = self._tokens.cut(border, min(begin + size, border + self._written))
        written = torch.cat([torch.tensor([self._start]), target[:-1]])
        return {
            "input_ids": _padded(source, self._length, PADDING),
            ATTENTION_MASK: _padded(torch.ones_like(source), self._length, 0),
            DECODER_INPUT: _padded(written, self._written, PADDING),
            LABELS: _padded(labels, self._written, MASKED),
        }


def _padded(values: torch.Tensor, length: int, value: int) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, length - len(values)), value=value)


def without_labels(row: Row) -> Row:
    """A row that counts for nothing: it only makes up the numbers."""
    return {**row, LABELS: torch.full_like(row[LABELS], MASKED)}


def numbered(rows: RowsOfTensors, numbers: Iterator[int]) -> Iterator[Row]:
    """Those rows, one after the other."""
    return (rows.row(number) for number in numbers)
