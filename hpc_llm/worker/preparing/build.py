"""Making a corpus: sources are read once, row after row, and written as tokens; memory holds a few hundred rows."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.format import FACTS, SCHEMA, SplitWriter, file_mode, new_corpus
from hpc_llm.corpus.key import CorpusRequest, corpus_key, source_identities, tokenizer_digest
from hpc_llm.corpus.sources import TEXT, SourceFile, is_corpus, source_files
from hpc_llm.corpus.trust import own_facts
from hpc_llm.corpus.words import CAUSAL, SPLITS, TRAIN, VALIDATION
from hpc_llm.errors import DataFileError, ModelFileError, counted
from hpc_llm.records.files import new_file, open_plain
from hpc_llm.worker.preparing.chat import chat_with
from hpc_llm.worker.preparing.encoding import Encoder, encoder_for
from hpc_llm.worker.preparing.pieces import Piece, Reader, reader_for
from hpc_llm.worker.preparing.rows import no_text, rows_of, text_lines
from hpc_llm.worker.preparing.splitting import Chooser, split_files

_ROWS_AT_ONCE = 256
_CHUNK_CHARACTERS = 2**16
_TELL_EVERY_S = 10.0

Tell = Callable[[str], None]
Sample = tuple[str, str, Sequence[Piece]]
"""Split, place and pieces."""


def prepare(request: CorpusRequest, caches: Path, tell: Tell, vocab_size: int | None = None) -> CorpusFacts:
    """The corpus of the request, made in `caches` where it is not there yet.

    `vocab_size` is that of the model, where it is known. `tell` gets a line now and then.

    Raises:
        RequestError: a source cannot be read, or nobody says what of it is to be learned.
        WorkerError: a row is not as it should be, nothing is left, a source was changed meanwhile, the tokenizer is not the model's, or the disk is full.
    """
    before = source_identities(request)
    key = corpus_key(request, caches)
    folder = caches / key
    if is_corpus(folder):
        tell(f"the data are prepared already, in {folder}")
        return _told_what_lacks(request, own_facts(folder), tell)
    with new_corpus(caches, key, [path for path, *_ in before]) as making:
        made = _Making(making, request, tell)
        made.read_all(caches)
        record = made.record(key, vocab_size)
        if source_identities(request) != before or corpus_key(request, caches) != key:
            raise DataFileError(
                f"{', '.join(request.sources)}, or the tokenizer of {request.model}, was changed while it was read, and nothing was kept: "
                "prepare it again once nobody writes to it."
            )
        _write_facts(making / FACTS, record)
    return _told_what_lacks(request, own_facts(folder), tell)


def _told_what_lacks(request: CorpusRequest, facts: CorpusFacts, tell: Tell) -> CorpusFacts:
    """Tell where the data have fewer samples than the request says; the facts themselves."""
    fraction, there = request.validation_fraction, {split: one.samples for split, one in facts.splits.items()}
    if fraction and not there.get(VALIDATION):
        tell(
            f"validation_fraction={fraction:g}: of {counted(there[TRAIN], 'sample')} that is none, and nothing is held out"
        )
    elif request.validation_samples and not there.get(VALIDATION):
        tell(
            f"validation_samples={request.validation_samples}: nothing is held out, as it says how many at most; "
            "validation_fraction=0.1 or --data validation=FILE holds some out"
        )
    for split, most in ((TRAIN, request.train_samples), (VALIDATION, request.validation_samples)):
        if most is not None and there.get(split, most) < most:
            tell(f"{split}_samples={most}: the data have {there[split]}, and all of them are taken")
    return facts


def _write_facts(path: Path, record: dict[str, Any]) -> None:
    with new_file(path, file_mode(path.parent)) as file:
        json.dump(record, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())


class _Making:
    """One corpus on its way."""

    def __init__(self, folder: Path, request: CorpusRequest, tell: Tell) -> None:
        self._request, self._tell = request, tell
        self._layout = request.layout
        self._encoder: Encoder = encoder_for(request.model, self._layout)
        self._folder, self._writers = folder, dict[str, SplitWriter]()
        most = {TRAIN: request.train_samples, VALIDATION: request.validation_samples}
        self._chooser = Chooser(most)
        self._read_as: dict[str, str] = {}
        self._is_text = self._layout == CAUSAL
        self._only_ends = self._unlearnable = 0
        self._told = time.monotonic()
        self._main = TRAIN

    def read_all(self, caches: Path) -> None:
        read = source_files(self._request.sources)
        self._main = TRAIN if any(file.split == TRAIN for file in read) else VALIDATION
        files = split_files(read, self._request.validation_fraction, caches)
        for file, fraction in files:
            if file.kind == TEXT:
                self._read_text(file, fraction)
            else:
                self._write(self._samples(file, fraction))
                self._tell_empty(file)

    def record(self, key: str, vocab_size: int | None) -> dict[str, Any]:
        """What corpus.json says."""
        facts = {split: writer.close() for split, writer in self._writers.items()}
        named = ", ".join(self._request.sources)
        facts = {split: facts[split] for split in SPLITS if split in facts and facts[split].samples}
        if self._main not in facts:
            raise DataFileError(
                f"{named}: nothing to {'train on' if self._main == TRAIN else 'validate on'} is in there. Look at the source, and at what the rows are read as."
            )
        highest = max(writer.highest for writer in self._writers.values())
        if vocab_size is not None and highest >= vocab_size:
            raise ModelFileError(
                f"the tokenizer in {self._request.model} gives token {highest}, its model has {vocab_size} tokens: it is the tokenizer "
                "of another model."
            )
        return {
            "schema": SCHEMA,
            "key": key,
            "byte_order": sys.byteorder,
            "layout": self._layout,
            "is_text": self._is_text,
            "sources": list(self._request.sources),
            "model": self._request.model,
            "tokenizer": tokenizer_digest(self._request.model),
            "settings": self._request.settings(),
            "read_as": self._read_as,
            "vocabulary": highest + 1,
            "splits": {split: asdict(one) for split, one in facts.items()},
            "made_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        }

    def _writer(self, split: str) -> SplitWriter:
        """That of the split, whose files are made when there is something to be written."""
        if split not in self._writers:
            self._writers[split] = SplitWriter(self._folder, split, is_causal=self._layout == CAUSAL)
        return self._writers[split]

    def _samples(self, file: SourceFile, fraction: float) -> Iterator[Sample]:
        reader: Reader | None = None
        read = blank = 0
        for number, (place, row) in enumerate(rows_of(file)):
            if self._chooser.is_full(file.split, fraction):
                break
            reader = reader or self._reader(file, place, row)
            pieces = reader.pieces(row, place)
            read, blank = number + 1, blank + (not pieces)
            split = self._chooser.split(file.split, fraction, number) if pieces else None
            if split is not None:
                yield split, place, pieces
        if blank:
            self._tell(f"{file.path}: {blank} of {counted(read, 'row')} hold nothing to learn, and are left out")

    def _reader(self, file: SourceFile, place: str, row: Mapping[str, Any]) -> Reader:
        chat = chat_with(self._encoder.render)
        reader = reader_for(self._request.columns, file.known_set, row, place, chat)
        self._is_text = self._is_text and reader.is_text
        self._read_as[file.path] = reader.told(row)
        return reader

    def _write(self, samples: Iterator[Sample]) -> None:
        batch: list[Sample] = []
        for sample in samples:
            batch.append(sample)
            if len(batch) == _ROWS_AT_ONCE:
                self._write_batch(batch)
                batch = []
        self._write_batch(batch)

    def _write_batch(self, batch: Sequence[Sample]) -> None:
        if not batch:
            return
        encoded = self._encoder.samples([pieces for _, _, pieces in batch])
        for (split, place, pieces), runs in zip(batch, encoded, strict=True):
            is_learned = any(tokens and is_trained for tokens, is_trained in runs)
            is_empty = not any(piece.text for piece in pieces if piece.is_trained)
            self._unlearnable += not is_learned
            self._only_ends += is_learned and is_empty
            if not is_learned:
                continue
            writer = self._writer(split)
            for tokens, is_trained in runs:
                writer.extend(tokens, is_trained=is_trained)
            writer.end_sample(place)
        self._tell_now_and_then()

    def _tell_empty(self, file: SourceFile) -> None:
        """How many answers of the file are empty: who did not mean it looks at the rows."""
        if self._only_ends:
            are = f"{counted(self._only_ends, 'answer')} {'is' if self._only_ends == 1 else 'are'} empty"
            self._tell(f"{file.path}: {are}, and the token that ends a text is all that is learned there")
        if self._unlearnable:
            self._tell(
                f"{file.path}: {counted(self._unlearnable, 'sample')} left out: nothing to be learned of it becomes a token, "
                "and the tokenizer has none that ends a text"
            )
        self._only_ends = self._unlearnable = 0

    def _read_text(self, file: SourceFile, fraction: float) -> None:
        """A text is one sample, or two where its end is for validation; it may be larger than memory."""
        for is_behind, text in _chunks(Path(file.path), 1 - fraction):
            split = VALIDATION if is_behind else file.split
            self._writer(split).extend(self._encoder.plain(text), is_trained=True)
            self._tell_now_and_then()
        for writer in self._writers.values():
            if writer.is_in_sample:
                writer.extend([self._encoder.end], is_trained=True)
                writer.end_sample(file.path)

    def _tell_now_and_then(self) -> None:
        if time.monotonic() - self._told > _TELL_EVERY_S:
            self._told = time.monotonic()
            self._tell(
                ", ".join(
                    f"{split}: {one.samples} samples, {one.tokens} tokens" for split, one in self._writers.items()
                )
            )


def _chunks(path: Path, border: float) -> Iterator[tuple[bool, str]]:
    """Whole lines, so that no word is cut, and whether that part of the file's bytes lies before them."""
    try:
        left = math.ceil(path.stat().st_size * border)
        with io.TextIOWrapper(open_plain(path), encoding="utf-8-sig", newline="") as file:
            lines = text_lines(file, str(path))
            while text := _some(lines, min(left, _CHUNK_CHARACTERS) if left > 0 else _CHUNK_CHARACTERS):
                if "\0" in text:  # its bytes would become tokens that mean nothing
                    raise no_text(path)
                yield left <= 0, text
                left -= len(text.encode("utf-8", "replace"))
    except UnicodeDecodeError:  # letters that were replaced would be learned
        raise no_text(path) from None
    except OSError as error:
        raise DataFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _some(lines: Iterator[str], characters: int) -> str:
    """So many lines that they have more than so many characters, as `readlines` takes them: others would become other tokens."""
    taken: list[str] = []
    for line in lines:
        taken.append(line)
        characters -= len(line)
        if characters < 0:
            break
    return "".join(taken)
