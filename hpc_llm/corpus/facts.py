"""What is known of a prepared corpus without its tokens: `CorpusFacts`, from its corpus.json."""

from __future__ import annotations

import itertools
import operator
import os
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpc_llm.corpus.format import END, FACTS, SCHEMA, START, TOKEN, SplitFacts, SplitFiles
from hpc_llm.corpus.rows import Samples, check_lengths, make_rows, stream_rows
from hpc_llm.corpus.words import CAUSAL, LAYOUTS, SPLITS, STREAM
from hpc_llm.errors import DataRequestError, RequestError
from hpc_llm.records.files import load_json, open_plain, reason_of
from hpc_llm.text.json_text import DamagedRecordError

_LARGEST_TOKEN = 2**31 - 1
_MOST_TOKENS = 2**60


@dataclass(frozen=True, eq=False, kw_only=True)
class CorpusFacts:
    """A prepared corpus, as planning and the ranks know it."""

    folder: Path
    key: str
    layout: str
    """One of words.LAYOUTS."""
    sources: tuple[str, ...]
    tokenizer: str
    """Digest of the tokenizer's files, or `bytes`."""
    vocabulary: int
    """The smallest vocabulary that holds all of its tokens."""
    is_text: bool
    """Whether all of it is to be learned, so that its samples may be put end to end."""
    splits: Mapping[str, SplitFacts]
    read_as: Mapping[str, str] = field(default_factory=dict)
    """By source file: what its fields were read as, and which were left out."""
    _counted: dict[tuple[str, str, int, str], tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def is_causal(self) -> bool:
        return self.layout == CAUSAL

    def split(self, name: str) -> SplitFacts:
        """Raises RequestError where the corpus has no such split."""
        if name not in self.splits:
            raise RequestError(
                f"the data in {self.folder} have no {name} split, only {', '.join(self.splits)}: prepare them with "
                f"--data {name}=FILE, or with --set validation_fraction=0.1."
            )
        return self.splits[name]

    def count_rows(self, split: str, packing: str, length: int, too_long: str) -> int:
        """Rows of `length` tokens that one epoch has.

        Raises:
            PlanError: a sample is too long, and `too_long` says that this is an error.
            RequestError: there is no such split.
        """
        return self._count(split, packing, length, too_long)[0]

    def count_left_out(self, split: str, packing: str, length: int, too_long: str) -> int:
        """Samples that are in no row: they are too long, or nothing of them is to be learned in a row. Raises as `count_rows`."""
        return self._count(split, packing, length, too_long)[1]

    def _count(self, split: str, packing: str, length: int, too_long: str) -> tuple[int, int]:
        facts = self.split(split)
        if packing == STREAM:
            return stream_rows(facts.tokens, length), 0
        check_lengths(facts, split, length, too_long, is_causal=self.is_causal)
        asked = (split, packing, length, too_long)
        if asked not in self._counted:
            rows = make_rows(self.samples(split), packing, length, too_long, is_causal=self.is_causal)
            self._counted[asked] = len(rows), facts.samples - len(rows.samples)
        return self._counted[asked]

    def samples(self, split: str) -> Samples:
        """Where the samples of a split lie. Raises RequestError where that is not what is known of them."""
        files = SplitFiles(self.folder, split)
        found = Samples(_numbers(files.ends, END), _numbers(files.starts, START))
        if not _are_those(found, self.split(split)):
            raise not_whole(
                self.folder, f"{files.ends.name} and {files.starts.name} are not those that {FACTS} tells of"
            )
        return found


def _numbers(path: Path, kind: str) -> array[int]:
    found = array(kind)
    try:
        with open_plain(path) as file:
            found.frombytes(file.read())
    except (OSError, ValueError) as error:
        why = reason_of(error) if isinstance(error, OSError) else "it is cut off"
        raise not_whole(path.parent, f"{path.name}: {why}") from None
    return found


def _are_those(samples: Samples, facts: SplitFacts) -> bool:
    """Whether the samples lie one behind the other and are as many and as long as is known. Ten million take two seconds."""
    ends, starts = samples.ends, samples.starts
    if len(ends) != facts.samples or len(starts) != facts.samples or ends[-1] != facts.tokens:
        return False
    try:
        lengths = array("q", map(operator.sub, ends, itertools.chain((0,), ends)))
    except OverflowError:
        return False
    targets = map(operator.sub, lengths, starts)
    return (
        min(lengths) > 0
        and all(map(operator.le, starts, lengths))
        and (max(lengths), max(starts), max(targets)) == (facts.longest, facts.longest_source, facts.longest_target)
    )


def read_facts(folder: Path) -> CorpusFacts:
    """What is known of the corpus in `folder`. Raises RequestError where it is none, or not whole."""
    try:
        record = load_json(folder / FACTS)
    except DamagedRecordError as error:
        raise not_whole(folder, f"{FACTS}: {error}") from None
    if record is None:
        raise DataRequestError(
            f"the folder {folder} holds no {FACTS}, so it is no prepared data: `--task prepare` makes them."
        )
    if record.get("schema") != SCHEMA or record.get("byte_order") != sys.byteorder:
        raise DataRequestError(
            f"the data in {folder} were prepared by another version or kind of machine. Prepare them anew."
        )
    try:
        found = _facts_of(record, folder)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise not_whole(folder, f"{FACTS} does not say what it must") from None
    for split, facts in found.splits.items():
        _check_sizes(SplitFiles(folder, split), facts)
    return found


def _facts_of(record: Mapping[str, Any], folder: Path) -> CorpusFacts:
    """What the record says. Raises KeyError, TypeError or ValueError, among others, where that can be said of no corpus."""
    splits = {name: _split_facts(values) for name, values in record["splits"].items()}
    if record["layout"] not in LAYOUTS or not splits or not splits.keys() <= set(SPLITS):
        raise ValueError
    return CorpusFacts(
        folder=folder,
        key=_one_line(record["key"]),
        layout=record["layout"],
        sources=tuple(map(_one_line, record["sources"])),
        tokenizer=_one_line(record["tokenizer"]),
        vocabulary=_whole(record["vocabulary"], 1, _LARGEST_TOKEN + 1),
        is_text=record["is_text"] is True,
        splits=splits,
        read_as={_one_line(name): _escaped(told) for name, told in record.get("read_as", {}).items()},
    )


def _split_facts(values: Mapping[str, Any]) -> SplitFacts:
    samples = _whole(values["samples"], 1, _MOST_TOKENS)
    tokens = _whole(values["tokens"], samples, _MOST_TOKENS)
    longest = _whole(values["longest"], 1, tokens)
    sums = values["sha256"]
    return SplitFacts(
        samples=samples,
        tokens=tokens,
        trained_tokens=_whole(values["trained_tokens"], 0, tokens),
        longest=longest,
        longest_at=_one_line(values["longest_at"]),
        longest_source=_whole(values["longest_source"], 0, longest),
        longest_target=_whole(values["longest_target"], 0, longest),
        sha256={_one_line(name): _one_line(one) for name, one in sums.items()},
    )


def _whole(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError
    return value


def _escaped(value: object) -> str:
    """A text of a record with its line ends as they are written in a program."""
    if not isinstance(value, str):
        raise TypeError
    return _one_line(value.replace("\n", "\\n"))


def _one_line(value: object) -> str:
    """A text of a record, which messages quote; others may have written it."""
    if not isinstance(value, str):
        raise TypeError
    return value if value.isprintable() else " ".join("".join(c if c.isprintable() else " " for c in value).split())


def _check_sizes(files: SplitFiles, facts: SplitFacts) -> None:
    for path, kind, count in (
        (files.tokens, TOKEN, facts.tokens),
        (files.ends, END, facts.samples),
        (files.starts, START, facts.samples),
    ):
        try:
            with open_plain(path) as file:
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise not_whole(files.folder, f"{path.name}: {reason_of(error)}") from None
        if size != count * array(kind).itemsize:
            raise not_whole(files.folder, f"{path.name} has {size} bytes, not {count * array(kind).itemsize}")


def not_whole(folder: Path, why: str) -> DataRequestError:
    """The error that says so, and what to do."""
    return DataRequestError(
        f"the prepared data in {folder} are not whole ({why}). Remove the folder and prepare them anew."
    )
